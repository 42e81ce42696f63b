//! From what coordinators answer to frames.

use ringmain_buffer::Bufs;
use ringmain_group::{DescribedConsumer, FetchedOffset, OffsetTopic, Reply};
use ringmain_session::Request;
use ringmain_types::*;
use ringmain_wire as wire;
use ringmain_wire::{ApiSpec, Array, Field};

use super::groups::{BY_ID, FETCH_GROUPS, once, once_by};
use super::{NOT_ASKED, frame};

/// `AclOperation` bits of a group (read, delete, describe, describe configs, alter configs).
const GROUP_OPERATIONS: i32 = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11;
/// Since then a group that is not there is an error, before it was `Dead`.
const DESCRIBE_MISSING: i16 = 6;
/// Since then an OffsetFetch has a code for all of it.
const FETCH_ERROR: i16 = 2;
/// Since then a LeaveGroup names several members.
const LEAVE_MEMBERS: i16 = 3;

type Answer = Result<Reply, ErrorCode>;
type Encoded = (Bufs, ErrorCode);

fn done<'a, T: Field<'a>>(spec: &ApiSpec, request: &Request, reply: &T, error: ErrorCode) -> Encoded {
    (frame(spec, request, reply), error)
}

/// About what an answer takes in the reply; nothing of one that says only what was done: it can't be taken back.
pub(crate) fn answer_bytes(reply: &Reply) -> usize {
    const FIXED_BYTES: usize = 64;
    let told: usize = match reply {
        Reply::Join(Ok(joined)) => {
            joined.members.iter().map(|member| FIXED_BYTES + member.id.len() + member.metadata.len()).sum()
        }
        Reply::Fetched(Ok(topics)) => topics
            .iter()
            .flat_map(|topic| &topic.partitions)
            .map(|partition| FIXED_BYTES + partition.committed.as_ref().map_or(0, |found| found.metadata.len()))
            .sum(),
        Reply::Described(group) => group
            .members
            .iter()
            .map(|member| {
                let words = member.id.len() + member.client_id.len() + member.client_host.len();
                FIXED_BYTES + words + member.metadata.len() + member.assignment.len()
            })
            .sum(),
        Reply::DescribedConsumer(group) => group.members.iter().map(described_bytes).sum(),
        Reply::Listed(groups) => groups.iter().map(|group| FIXED_BYTES + group.group.len()).sum(),
        _ => return 0,
    };
    FIXED_BYTES + told
}

fn described_bytes(member: &ringmain_group::DescribedConsumerMember) -> usize {
    let assigned = member.assigned.iter().chain(&member.target);
    let topics: usize = member.topics.iter().map(|topic| topic.len() + 16).sum();
    let partitions: usize = assigned.map(|(_, name, partitions)| 32 + name.len() + 4 * partitions.len()).sum();
    let words = member.id.len() + member.client_id.len() + member.client_host.len();
    128 + words + member.regex.as_ref().map_or(0, |regex| regex.len()) + topics + partitions
}

/// What metrics count of several codes.
fn worst(codes: impl IntoIterator<Item = ErrorCode>) -> ErrorCode {
    codes.into_iter().find(|code| *code != ErrorCode::None).unwrap_or_default()
}

pub(super) fn join(request: &Request, answer: Answer) -> Encoded {
    use wire::join_group::JoinGroupResponseMember;
    let joined = match answer {
        Ok(Reply::Join(Ok(joined))) => joined,
        other => {
            let (error_code, member) = match &other {
                Ok(Reply::Join(Err((code, member)))) => (*code, &**member),
                Err(code) => (*code, ""),
                Ok(_) => (ErrorCode::UnknownServerError, ""),
            };
            let reply = wire::JoinGroupResponse { error_code, member_id: member, ..Default::default() };
            return done(&wire::JOIN_GROUP, request, &reply, error_code);
        }
    };
    let members = joined.members.iter().map(|member| JoinGroupResponseMember {
        member_id: &member.id,
        group_instance_id: member.instance.as_deref(),
        metadata: &member.metadata,
    });
    let reply = wire::JoinGroupResponse {
        generation_id: joined.generation,
        protocol_type: Some(&joined.protocol_type),
        protocol_name: Some(&joined.protocol),
        leader: &joined.leader,
        skip_assignment: joined.skip_assignment,
        member_id: &joined.member,
        members: members.collect(),
        ..Default::default()
    };
    done(&wire::JOIN_GROUP, request, &reply, ErrorCode::None)
}

pub(super) fn sync(request: &Request, answer: Answer) -> Encoded {
    let (error_code, synced) = match &answer {
        Ok(Reply::Sync(Ok(synced))) => (ErrorCode::None, Some(synced)),
        Ok(Reply::Sync(Err(code))) | Err(code) => (*code, None),
        Ok(_) => (ErrorCode::UnknownServerError, None),
    };
    let reply = wire::SyncGroupResponse {
        error_code,
        protocol_type: synced.map(|(kind, ..)| &**kind),
        protocol_name: synced.map(|(_, name, _)| &**name),
        assignment: synced.map_or(&[], |(.., assignment)| assignment),
        ..Default::default()
    };
    done(&wire::SYNC_GROUP, request, &reply, error_code)
}

pub(super) fn heartbeat(request: &Request, answer: Answer) -> Encoded {
    let error_code = match answer {
        Ok(Reply::Code(code)) => code,
        // Nobody is put out while nobody knows who is in, as on Kafka.
        Err(ErrorCode::CoordinatorLoadInProgress) => ErrorCode::None,
        Err(code) => code,
        Ok(_) => ErrorCode::UnknownServerError,
    };
    let reply = wire::HeartbeatResponse { error_code, ..Default::default() };
    done(&wire::HEARTBEAT, request, &reply, error_code)
}

pub(super) fn leave(request: &Request, asked: &wire::LeaveGroupRequest<'_>, answer: Answer) -> Encoded {
    use wire::leave_group::MemberResponse;
    let left = match answer {
        Ok(Reply::Left(left)) => left,
        other => {
            let error_code = other.err().unwrap_or(ErrorCode::UnknownServerError);
            let reply = wire::LeaveGroupResponse { error_code, ..Default::default() };
            return done(&wire::LEAVE_GROUP, request, &reply, error_code);
        }
    };
    let error = worst(left.iter().map(|member| member.error));
    let members = left.iter().map(|member| MemberResponse {
        member_id: &member.member,
        group_instance_id: member.instance.as_deref(),
        error_code: member.error,
    });
    let whole = request.version < LEAVE_MEMBERS || asked.group_id.is_empty();
    let reply = wire::LeaveGroupResponse {
        error_code: if whole { error } else { ErrorCode::None },
        members: members.collect(),
        ..Default::default()
    };
    done(&wire::LEAVE_GROUP, request, &reply, error)
}

pub(super) fn commit(request: &Request, asked: &wire::OffsetCommitRequest<'_>, answer: Answer) -> Encoded {
    use wire::offset_commit::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
    let (codes, all) = match answer {
        Ok(Reply::Committed(Ok(codes))) => (codes, ErrorCode::None),
        Ok(Reply::Committed(Err(code))) | Err(code) => (Vec::new(), code),
        Ok(_) => (Vec::new(), ErrorCode::UnknownServerError),
    };
    let error = if all == ErrorCode::None { worst(codes.iter().copied()) } else { all };
    let mut codes = codes.into_iter();
    let topics = asked.topics.iter().map(|topic| OffsetCommitResponseTopic {
        name: topic.name,
        topic_id: topic.topic_id,
        partitions: topic
            .partitions
            .iter()
            .map(|partition| OffsetCommitResponsePartition {
                partition_index: partition.partition_index,
                error_code: codes.next().unwrap_or(all),
            })
            .collect(),
    });
    let reply = wire::OffsetCommitResponse { topics: topics.collect(), ..Default::default() };
    done(&wire::OFFSET_COMMIT, request, &reply, error)
}

pub(super) fn delete_offsets(request: &Request, asked: &wire::OffsetDeleteRequest<'_>, answer: Answer) -> Encoded {
    use wire::offset_delete::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic};
    let codes = match answer {
        Ok(Reply::DeletedOffsets(Ok(codes))) => codes,
        Ok(Reply::DeletedOffsets(Err(error_code))) | Err(error_code) => {
            let reply = wire::OffsetDeleteResponse { error_code, ..Default::default() };
            return done(&wire::OFFSET_DELETE, request, &reply, error_code);
        }
        Ok(_) => Vec::new(),
    };
    let error = worst(codes.iter().flatten().copied());
    let topics = asked.topics.iter().zip(&codes).map(|(topic, codes)| OffsetDeleteResponseTopic {
        name: topic.name,
        partitions: topic
            .partitions
            .iter()
            .zip(codes)
            .map(|(partition, code)| OffsetDeleteResponsePartition {
                partition_index: partition.partition_index,
                error_code: *code,
            })
            .collect(),
    });
    let reply = wire::OffsetDeleteResponse { topics: topics.collect(), ..Default::default() };
    done(&wire::OFFSET_DELETE, request, &reply, error)
}

pub(super) fn consumer_heartbeat(request: &Request, answer: Answer) -> Encoded {
    use wire::consumer_group_heartbeat::{Assignment, TopicPartitions};
    let beat = match answer {
        Ok(Reply::ConsumerHeartbeat(Ok(beat))) => beat,
        other => {
            let (error_code, message) = match &other {
                Ok(Reply::ConsumerHeartbeat(Err((code, message)))) => (*code, Some(message.as_str())),
                Err(code) => (*code, None),
                Ok(_) => (ErrorCode::UnknownServerError, None),
            };
            let reply =
                wire::ConsumerGroupHeartbeatResponse { error_code, error_message: message, ..Default::default() };
            return done(&wire::CONSUMER_GROUP_HEARTBEAT, request, &reply, error_code);
        }
    };
    let topics = |assignment: &Vec<(TopicId, Vec<i32>)>| Assignment {
        topic_partitions: assignment
            .iter()
            .map(|(topic_id, partitions)| TopicPartitions {
                topic_id: *topic_id,
                partitions: partitions.iter().map(|index| PartitionIndex(*index)).collect(),
            })
            .collect(),
    };
    let reply = wire::ConsumerGroupHeartbeatResponse {
        member_id: Some(&beat.member),
        member_epoch: beat.epoch,
        heartbeat_interval_ms: beat.interval_ms,
        assignment: beat.assignment.as_ref().map(topics),
        ..Default::default()
    };
    done(&wire::CONSUMER_GROUP_HEARTBEAT, request, &reply, ErrorCode::None)
}

/// Offset, leader epoch and metadata as they go out: nothing is -1.
fn committed(found: &FetchedOffset) -> (Offset, LeaderEpoch, &str) {
    let nothing = (Offset(-1), LeaderEpoch(-1), "");
    found.committed.as_ref().map_or(nothing, |found| (found.offset, found.leader_epoch, &found.metadata))
}

pub(super) fn fetch(request: &Request, asked: &wire::OffsetFetchRequest<'_>, answers: &[Answer]) -> Encoded {
    let result = |answer: Option<&'_ Answer>| match answer {
        Some(Ok(Reply::Fetched(result))) => result.clone(),
        Some(Err(code)) => Err(*code),
        _ => Err(ErrorCode::UnknownServerError),
    };
    if request.version < FETCH_GROUPS {
        return fetch_one(request, asked, result(answers.first()));
    }
    use wire::offset_fetch::OffsetFetchResponseGroup;
    let results: Vec<Result<Vec<OffsetTopic>, ErrorCode>> = answers.iter().map(|answer| result(Some(answer))).collect();
    let error = worst(results.iter().filter_map(|result| result.as_ref().err().copied()));
    let groups =
        once_by(&asked.groups, |group| group.group_id).zip(&results).map(|(group, result)| OffsetFetchResponseGroup {
            group_id: group.group_id,
            topics: result.iter().flatten().filter_map(|topic| fetched_topic(request.version, topic)).collect(),
            error_code: result.as_ref().err().copied().unwrap_or_default(),
        });
    let reply = wire::OffsetFetchResponse { groups: groups.collect(), ..Default::default() };
    done(&wire::OFFSET_FETCH, request, &reply, error)
}

/// `None` for a topic that has no id any more, where topics go by id.
fn fetched_topic(version: i16, topic: &OffsetTopic) -> Option<wire::offset_fetch::OffsetFetchResponseTopics<'_>> {
    use wire::offset_fetch::{OffsetFetchResponsePartitions, OffsetFetchResponseTopics};
    if version >= BY_ID && topic.id == TopicId::NONE {
        return None;
    }
    let unknown = version >= BY_ID && topic.topic.is_empty();
    let partitions = topic.partitions.iter().map(|partition| {
        let (committed_offset, committed_leader_epoch, metadata) = committed(partition);
        OffsetFetchResponsePartitions {
            partition_index: partition.partition,
            committed_offset,
            committed_leader_epoch,
            metadata: Some(metadata),
            error_code: if unknown { ErrorCode::UnknownTopicId } else { ErrorCode::None },
        }
    });
    Some(OffsetFetchResponseTopics { name: &topic.topic, topic_id: topic.id, partitions: partitions.collect() })
}

fn fetch_one(
    request: &Request,
    asked: &wire::OffsetFetchRequest<'_>,
    result: Result<Vec<OffsetTopic>, ErrorCode>,
) -> Encoded {
    use wire::offset_fetch::{OffsetFetchResponsePartition, OffsetFetchResponseTopic};
    let error_code = result.as_ref().err().copied().unwrap_or_default();
    let found = result.unwrap_or_default();
    let mut topics: Array<'_, OffsetFetchResponseTopic<'_>> = found
        .iter()
        .map(|topic| OffsetFetchResponseTopic {
            name: &topic.topic,
            partitions: topic
                .partitions
                .iter()
                .map(|partition| {
                    let (committed_offset, committed_leader_epoch, metadata) = committed(partition);
                    OffsetFetchResponsePartition {
                        partition_index: partition.partition,
                        committed_offset,
                        committed_leader_epoch,
                        metadata: Some(metadata),
                        error_code: ErrorCode::None,
                    }
                })
                .collect(),
        })
        .collect();
    // An older client finds the code nowhere but at its partitions.
    if error_code != ErrorCode::None && request.version < FETCH_ERROR {
        topics = asked
            .topics
            .iter()
            .flat_map(|topics| topics.iter())
            .map(|topic| OffsetFetchResponseTopic {
                name: topic.name,
                partitions: topic
                    .partition_indexes
                    .iter()
                    .map(|partition_index| OffsetFetchResponsePartition {
                        partition_index,
                        committed_offset: Offset(-1),
                        metadata: Some(""),
                        error_code,
                        ..Default::default()
                    })
                    .collect(),
            })
            .collect();
    }
    let reply = wire::OffsetFetchResponse { topics, error_code, ..Default::default() };
    done(&wire::OFFSET_FETCH, request, &reply, error_code)
}

pub(super) fn describe(request: &Request, asked: &wire::DescribeGroupsRequest<'_>, answers: &[Answer]) -> Encoded {
    use wire::describe_groups::{DescribedGroup, DescribedGroupMember};
    let authorized_operations = if asked.include_authorized_operations { GROUP_OPERATIONS } else { NOT_ASKED };
    let groups = once(&asked.groups).zip(answers).map(|(group_id, answer)| match answer {
        Ok(Reply::Described(group)) => DescribedGroup {
            error_code: if request.version >= DESCRIBE_MISSING { group.error } else { ErrorCode::None },
            error_message: group.message.as_deref(),
            group_id,
            group_state: group.state,
            protocol_type: &group.protocol_type,
            protocol_data: &group.protocol,
            members: group
                .members
                .iter()
                .map(|member| DescribedGroupMember {
                    member_id: &member.id,
                    group_instance_id: member.instance.as_deref(),
                    client_id: &member.client_id,
                    client_host: &member.client_host,
                    member_metadata: &member.metadata,
                    member_assignment: &member.assignment,
                })
                .collect(),
            authorized_operations,
        },
        other => DescribedGroup {
            error_code: other.as_ref().err().copied().unwrap_or(ErrorCode::UnknownServerError),
            group_id,
            authorized_operations,
            ..Default::default()
        },
    });
    let groups: Vec<DescribedGroup<'_>> = groups.collect();
    let error = worst(groups.iter().map(|group| group.error_code));
    let reply = wire::DescribeGroupsResponse { groups: groups.into(), ..Default::default() };
    done(&wire::DESCRIBE_GROUPS, request, &reply, error)
}

pub(super) fn describe_consumers(
    request: &Request,
    asked: &wire::ConsumerGroupDescribeRequest<'_>,
    answers: &[Answer],
) -> Encoded {
    use wire::consumer_group_describe::DescribedGroup;
    let operations = if asked.include_authorized_operations { GROUP_OPERATIONS } else { NOT_ASKED };
    let groups = once(&asked.group_ids).zip(answers).map(|(group_id, answer)| match answer {
        Ok(Reply::DescribedConsumer(group)) => described_consumer(group_id, group, operations),
        other => DescribedGroup {
            error_code: other.as_ref().err().copied().unwrap_or(ErrorCode::UnknownServerError),
            group_id,
            ..Default::default()
        },
    });
    let groups: Vec<DescribedGroup<'_>> = groups.collect();
    let error = worst(groups.iter().map(|group| group.error_code));
    let reply = wire::ConsumerGroupDescribeResponse { groups: groups.into(), ..Default::default() };
    done(&wire::CONSUMER_GROUP_DESCRIBE, request, &reply, error)
}

fn described_consumer<'a>(
    group_id: &'a str,
    group: &'a DescribedConsumer,
    authorized_operations: i32,
) -> wire::consumer_group_describe::DescribedGroup<'a> {
    use wire::consumer_group_describe::{Assignment, DescribedGroup, Member, TopicPartitions};
    let assignment = |of: &'a [(TopicId, std::sync::Arc<str>, Vec<i32>)]| Assignment {
        topic_partitions: of
            .iter()
            .map(|(topic_id, name, partitions)| TopicPartitions {
                topic_id: *topic_id,
                topic_name: name,
                partitions: partitions.iter().map(|index| PartitionIndex(*index)).collect(),
            })
            .collect(),
    };
    let members = group.members.iter().map(|member| Member {
        member_id: &member.id,
        instance_id: member.instance.as_deref(),
        rack_id: member.rack.as_deref(),
        member_epoch: member.epoch,
        client_id: &member.client_id,
        client_host: &member.client_host,
        subscribed_topic_names: member.topics.iter().map(|topic| &**topic).collect(),
        subscribed_topic_regex: member.regex.as_deref(),
        assignment: assignment(&member.assigned),
        target_assignment: assignment(&member.target),
        member_type: if member.classic { 0 } else { 1 },
    });
    DescribedGroup {
        error_code: group.error,
        error_message: group.message.as_deref(),
        group_id,
        group_state: group.state,
        group_epoch: group.epoch,
        assignment_epoch: group.assignment_epoch,
        assignor_name: group.assignor,
        members: members.collect(),
        authorized_operations,
    }
}

pub(super) fn delete(request: &Request, asked: &wire::DeleteGroupsRequest<'_>, answers: &[Answer]) -> Encoded {
    use wire::delete_groups::DeletableGroupResult;
    let results = once(&asked.groups_names).zip(answers).map(|(group_id, answer)| DeletableGroupResult {
        group_id,
        error_code: match answer {
            Ok(Reply::Code(code)) | Err(code) => *code,
            Ok(_) => ErrorCode::UnknownServerError,
        },
        error_message: None,
    });
    let results: Vec<DeletableGroupResult<'_>> = results.collect();
    let error = worst(results.iter().map(|result| result.error_code));
    let reply = wire::DeleteGroupsResponse { results: results.into(), ..Default::default() };
    done(&wire::DELETE_GROUPS, request, &reply, error)
}

/// Of all coordinators; one that does not know yet fails all of it, as on Kafka.
pub(super) fn list(request: &Request, answers: &[Answer]) -> Encoded {
    use wire::list_groups::ListedGroup;
    let error_code = worst(answers.iter().filter_map(|answer| answer.as_ref().err().copied()));
    let listed = answers.iter().filter(|_| error_code == ErrorCode::None).flat_map(|answer| match answer {
        Ok(Reply::Listed(groups)) => groups.iter(),
        _ => [].iter(),
    });
    let groups = listed.map(|group| ListedGroup {
        group_id: &group.group,
        protocol_type: &group.protocol_type,
        group_state: group.state,
        group_type: group.kind,
    });
    let reply = wire::ListGroupsResponse { error_code, groups: groups.collect(), ..Default::default() };
    done(&wire::LIST_GROUPS, request, &reply, error_code)
}
