//! Requests about groups: each group is asked of the shard that owns its partition of `__consumer_offsets`.

use std::collections::{BTreeMap, BTreeSet};

use ringmain_buffer::Bufs;
use ringmain_group::{Reply, partition_of};
use ringmain_metadata::OFFSETS_TOPIC;
use ringmain_session::Request;
use ringmain_types::*;
use ringmain_wire as wire;

use super::group_replies;
use super::{body, too_large};
use crate::dispatch::REQUEST_MS;
use crate::jobs::{GroupJob, ReplyTo, Waiter, Work, without_frame};
use crate::mesh::{Call, FetchGroup, GroupAsk};
use crate::{Effects, Shard};

/// A join is answered when its generation is complete, which the coordinator sees to; this only keeps the books bounded.
const PARKED_MS: u64 = 24 * 3_600_000;
/// From here on an OffsetFetch names several groups.
pub(super) const FETCH_GROUPS: i16 = 8;
/// From here on offsets go by topic id.
pub(super) const BY_ID: i16 = 10;

pub(crate) fn is_group(api: i16) -> bool {
    let apis = [
        wire::OFFSET_COMMIT,
        wire::OFFSET_FETCH,
        wire::JOIN_GROUP,
        wire::HEARTBEAT,
        wire::LEAVE_GROUP,
        wire::SYNC_GROUP,
        wire::DESCRIBE_GROUPS,
        wire::LIST_GROUPS,
        wire::DELETE_GROUPS,
        wire::OFFSET_DELETE,
        wire::CONSUMER_GROUP_HEARTBEAT,
        wire::CONSUMER_GROUP_DESCRIBE,
    ];
    apis.iter().any(|spec| spec.key == api)
}

/// Those that wait for what other members do.
pub(crate) fn waits(api: i16) -> bool {
    api == wire::JOIN_GROUP.key || api == wire::SYNC_GROUP.key
}

/// What to ask, and the partition that answers it; `None` where there is no such topic.
type Part = (Option<Partition>, GroupAsk);

impl Shard {
    pub(crate) fn ask_groups(&mut self, now: Now, request: &Request, out: &mut Effects) -> Result<(), wire::WireError> {
        if let Some(why) = too_large(&self.config.limits, request) {
            self.close(request.connection, ringmain_session::Close::Protocol(why), out);
            return Ok(());
        }
        let parts = self.group_parts(request)?;
        let deadline = now.mono.plus_ms(if waits(request.api) { PARKED_MS } else { REQUEST_MS });
        // Where there is no topic there is no coordinator: clients then look for one, which makes the topic.
        let answers: Vec<Result<Reply, ErrorCode>> = parts
            .iter()
            .map(|(partition, _)| match partition {
                Some(_) => Err(ErrorCode::RequestTimedOut),
                None => Err(ErrorCode::NotCoordinator),
            })
            .collect();
        let waiting = parts.iter().filter(|(partition, _)| partition.is_some()).count() as u32;
        // What a member said the coordinator has taken out when it lets it wait.
        let kept = if waits(request.api) { without_frame(request) } else { request.clone() };
        let job = GroupJob { request: kept, answers, waiting, bytes: 0 };
        let key = self.add_job(ReplyTo::new(now, &job.request), Work::Groups(job), deadline);
        if waiting == 0 {
            self.finish_job(now, key, out);
            return Ok(());
        }
        for (share, (partition, ask)) in parts.into_iter().enumerate() {
            let Some(partition) = partition else { continue };
            let to = owner(partition, self.config.shards);
            let waiter = Waiter { job: key, share: share as u32 };
            self.call(to, deadline, Call::Group { partition, ask }, waiter, out);
        }
        Ok(())
    }

    fn group_parts(&self, request: &Request) -> Result<Vec<Part>, wire::WireError> {
        use crate::dispatch::body;
        let topic = self.image.topic(OFFSETS_TOPIC);
        let of = |group: &str| -> Option<Partition> {
            let topic = topic?;
            let index = partition_of(group, i32::try_from(topic.partitions.len()).ok().filter(|count| *count > 0)?);
            Some(Partition { topic: topic.id, index: PartitionIndex(index) })
        };
        let whole = |group: &str| -> Vec<Part> {
            let host = self.sessions.host(request.connection);
            vec![(of(group), GroupAsk::Request { request: request.clone(), host })]
        };
        Ok(match request.api {
            key if key == wire::JOIN_GROUP.key => {
                whole(body::<wire::JoinGroupRequest<'_>>(&wire::JOIN_GROUP, request)?.group_id)
            }
            key if key == wire::SYNC_GROUP.key => {
                whole(body::<wire::SyncGroupRequest<'_>>(&wire::SYNC_GROUP, request)?.group_id)
            }
            key if key == wire::HEARTBEAT.key => {
                whole(body::<wire::HeartbeatRequest<'_>>(&wire::HEARTBEAT, request)?.group_id)
            }
            key if key == wire::LEAVE_GROUP.key => {
                whole(body::<wire::LeaveGroupRequest<'_>>(&wire::LEAVE_GROUP, request)?.group_id)
            }
            key if key == wire::OFFSET_COMMIT.key => {
                whole(body::<wire::OffsetCommitRequest<'_>>(&wire::OFFSET_COMMIT, request)?.group_id)
            }
            key if key == wire::OFFSET_DELETE.key => {
                whole(body::<wire::OffsetDeleteRequest<'_>>(&wire::OFFSET_DELETE, request)?.group_id)
            }
            key if key == wire::CONSUMER_GROUP_HEARTBEAT.key => {
                let asked: wire::ConsumerGroupHeartbeatRequest<'_> = body(&wire::CONSUMER_GROUP_HEARTBEAT, request)?;
                whole(asked.group_id)
            }
            key if key == wire::OFFSET_FETCH.key => {
                let asked: wire::OffsetFetchRequest<'_> = body(&wire::OFFSET_FETCH, request)?;
                let fetches = self.fetch_groups(&asked, request.version);
                fetches.into_iter().map(|fetch| (of(&fetch.group), GroupAsk::Fetch(fetch))).collect()
            }
            key if key == wire::DESCRIBE_GROUPS.key => {
                let asked: wire::DescribeGroupsRequest<'_> = body(&wire::DESCRIBE_GROUPS, request)?;
                once(&asked.groups).map(|group| (of(group), GroupAsk::Describe(group.to_owned()))).collect()
            }
            key if key == wire::CONSUMER_GROUP_DESCRIBE.key => {
                let asked: wire::ConsumerGroupDescribeRequest<'_> = body(&wire::CONSUMER_GROUP_DESCRIBE, request)?;
                once(&asked.group_ids).map(|group| (of(group), GroupAsk::DescribeConsumer(group.to_owned()))).collect()
            }
            key if key == wire::DELETE_GROUPS.key => {
                let asked: wire::DeleteGroupsRequest<'_> = body(&wire::DELETE_GROUPS, request)?;
                once(&asked.groups_names).map(|group| (of(group), GroupAsk::Delete(group.to_owned()))).collect()
            }
            _ => {
                let asked: wire::ListGroupsRequest<'_> = body(&wire::LIST_GROUPS, request)?;
                let (states, types) = (filter(&asked.states_filter), filter(&asked.types_filter));
                let partitions = topic.map_or(0, |topic| topic.partitions.len() as i32);
                let list = |index| {
                    let partition = topic.map(|topic| Partition { topic: topic.id, index: PartitionIndex(index) });
                    (partition, GroupAsk::List { states: states.clone(), types: types.clone() })
                };
                (0..partitions).map(list).collect()
            }
        })
    }

    fn fetch_groups(&self, asked: &wire::OffsetFetchRequest<'_>, version: i16) -> Vec<FetchGroup> {
        let by_name = |name: &str, indexes: &wire::Array<'_, PartitionIndex>| -> FetchTopic {
            let id = self.image.names.get(name).copied().unwrap_or(TopicId::NONE);
            (name.to_owned(), id, indexes.iter().collect())
        };
        if version < FETCH_GROUPS {
            let topics = asked.topics.as_ref();
            return vec![FetchGroup {
                group: asked.group_id.to_owned(),
                member: None,
                member_epoch: -1,
                topics: topics
                    .map(|topics| merged(topics.iter().map(|topic| by_name(topic.name, &topic.partition_indexes)))),
            }];
        }
        let topic = |topic: wire::offset_fetch::OffsetFetchRequestTopics<'_>| {
            if version < BY_ID {
                return by_name(topic.name, &topic.partition_indexes);
            }
            // An id that is not known has no name, and no offsets.
            let name = self.image.topics.get(&topic.topic_id).map_or(String::new(), |found| found.name.to_string());
            (name, topic.topic_id, topic.partition_indexes.iter().collect())
        };
        let group = |group: wire::offset_fetch::OffsetFetchRequestGroup<'_>| FetchGroup {
            group: group.group_id.to_owned(),
            member: group.member_id.map(str::to_owned),
            member_epoch: group.member_epoch,
            topics: group.topics.as_ref().map(|topics| merged(topics.iter().map(topic))),
        };
        once_by(&asked.groups, |group| group.group_id).map(group).collect()
    }
}

type FetchTopic = (String, TopicId, Vec<PartitionIndex>);

/// Each name once, in the order in which they come first: a group is as large as it is, however often it is named.
pub(super) fn once<'s, 'a>(names: &'s wire::Array<'a, &'a str>) -> impl Iterator<Item = &'a str> + use<'s, 'a> {
    once_by(names, |name| *name)
}

/// The same of what has a name.
pub(super) fn once_by<'s, 'a, T: wire::Field<'a> + Clone>(
    all: &'s wire::Array<'a, T>,
    name: impl Fn(&T) -> &'a str,
) -> impl Iterator<Item = T> {
    let mut seen = BTreeSet::new();
    all.iter().filter(move |one| seen.insert(name(one)))
}

/// Each partition of each topic once: what a commit left with it may be a thousand times its name.
fn merged(topics: impl Iterator<Item = FetchTopic>) -> Vec<FetchTopic> {
    let mut places = BTreeMap::new();
    let mut out: Vec<(FetchTopic, BTreeSet<PartitionIndex>)> = Vec::new();
    for (name, id, partitions) in topics {
        let place = *places.entry((name.clone(), id)).or_insert(out.len());
        if place == out.len() {
            out.push(((name, id, Vec::new()), BTreeSet::new()));
        }
        let ((_, _, all), seen) = &mut out[place];
        all.extend(partitions.into_iter().filter(|partition| seen.insert(*partition)));
    }
    out.into_iter().map(|(topic, _)| topic).collect()
}

/// The words of a filter that mean something; one that does not, if there are no others: none at all would let everything pass. Each
/// coordinator gets a copy, and compares each of its groups with each word.
fn filter(words: &wire::Array<'_, &str>) -> Vec<String> {
    const STATES: [&str; 7] =
        ["empty", "preparingrebalance", "completingrebalance", "stable", "assigning", "reconciling", "dead"];
    const TYPES: [&str; 2] = ["classic", "consumer"];
    let lower = words.iter().filter(|word| word.len() < 32).map(str::to_ascii_lowercase);
    let known: BTreeSet<String> =
        lower.filter(|word| STATES.contains(&word.as_str()) || TYPES.contains(&word.as_str())).collect();
    if known.is_empty() && !words.is_empty() { vec![String::new()] } else { known.into_iter().collect() }
}

/// The whole reply, and the error that metrics count; or why the request does not parse.
pub(crate) fn encode(request: &Request, answers: &[Result<Reply, ErrorCode>]) -> Result<(Bufs, ErrorCode), String> {
    let first = || answers.first().cloned().unwrap_or(Err(ErrorCode::UnknownServerError));
    match request.api {
        key if key == wire::JOIN_GROUP.key => Ok(group_replies::join(request, first())),
        key if key == wire::SYNC_GROUP.key => Ok(group_replies::sync(request, first())),
        key if key == wire::HEARTBEAT.key => Ok(group_replies::heartbeat(request, first())),
        key if key == wire::LEAVE_GROUP.key => {
            Ok(group_replies::leave(request, &body(&wire::LEAVE_GROUP, request)?, first()))
        }
        key if key == wire::OFFSET_COMMIT.key => {
            Ok(group_replies::commit(request, &body(&wire::OFFSET_COMMIT, request)?, first()))
        }
        key if key == wire::OFFSET_DELETE.key => {
            Ok(group_replies::delete_offsets(request, &body(&wire::OFFSET_DELETE, request)?, first()))
        }
        key if key == wire::CONSUMER_GROUP_HEARTBEAT.key => Ok(group_replies::consumer_heartbeat(request, first())),
        key if key == wire::OFFSET_FETCH.key => {
            Ok(group_replies::fetch(request, &body(&wire::OFFSET_FETCH, request)?, answers))
        }
        key if key == wire::DESCRIBE_GROUPS.key => {
            Ok(group_replies::describe(request, &body(&wire::DESCRIBE_GROUPS, request)?, answers))
        }
        key if key == wire::CONSUMER_GROUP_DESCRIBE.key => {
            Ok(group_replies::describe_consumers(request, &body(&wire::CONSUMER_GROUP_DESCRIBE, request)?, answers))
        }
        key if key == wire::DELETE_GROUPS.key => {
            Ok(group_replies::delete(request, &body(&wire::DELETE_GROUPS, request)?, answers))
        }
        _ => Ok(group_replies::list(request, answers)),
    }
}
