//! The records of `__consumer_offsets`, as this crate speaks of them. On disk they are Kafka's (`net/wire`, `records`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringmain_types::*;
use ringmain_wire::records as wire;
use ringmain_wire::{
    Array, Format, JoinGroupRequest, WireError, decode_key, decode_value, encode_key, encode_value, key_type,
};

use crate::offsets::CommittedOffset;

/// A change of one key; no value takes it away.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    Offset {
        group: Arc<str>,
        topic: Arc<str>,
        partition: PartitionIndex,
        value: Option<CommittedOffset>,
    },
    /// A generation of a classic group.
    Classic {
        group: Arc<str>,
        value: Option<Generation>,
    },
    /// A KIP-848 group: its epoch, and the hash of what its topics are.
    GroupEpoch {
        group: Arc<str>,
        value: Option<(i32, i64)>,
    },
    Member {
        group: Arc<str>,
        member: Arc<str>,
        value: Option<MemberMetadata>,
    },
    /// The group epoch that the target is of, and when it was made.
    TargetEpoch {
        group: Arc<str>,
        value: Option<(i32, WallMs)>,
    },
    Target {
        group: Arc<str>,
        member: Arc<str>,
        value: Option<Assignment>,
    },
    Current {
        group: Arc<str>,
        member: Arc<str>,
        value: Option<CurrentAssignment>,
    },
    Regex {
        group: Arc<str>,
        regex: Arc<str>,
        value: Option<Resolved>,
    },
}

impl Record {
    /// What it takes in a batch.
    pub(crate) fn bytes(&self) -> usize {
        let (key, value) = self.encode();
        RECORD_BYTES + key.len() + value.map_or(0, |value| value.len())
    }

    pub fn group(&self) -> &Arc<str> {
        match self {
            Record::Offset { group, .. }
            | Record::Classic { group, .. }
            | Record::GroupEpoch { group, .. }
            | Record::Member { group, .. }
            | Record::TargetEpoch { group, .. }
            | Record::Target { group, .. }
            | Record::Current { group, .. }
            | Record::Regex { group, .. } => group,
        }
    }
}

/// What a record takes in a batch besides key and value, at the most; an offset's, whose parts are short, takes less.
const RECORD_BYTES: usize = 32;
const OFFSET_RECORD_BYTES: usize = 18;
/// What surrounds the strings of an offset's key and value.
const OFFSET_KEY_BYTES: usize = 10;
const OFFSET_VALUE_BYTES: usize = 44;

/// What an offset with this metadata, or the tombstone of one, takes in a batch: never less, and little more.
pub(crate) fn offset_bytes(group: &str, topic: &str, metadata: Option<&str>) -> usize {
    let value = metadata.map_or(0, |metadata| OFFSET_VALUE_BYTES + metadata.len());
    OFFSET_RECORD_BYTES + OFFSET_KEY_BYTES + group.len() + topic.len() + value
}

/// Partitions by topic.
pub type Assignment = BTreeMap<TopicId, BTreeSet<i32>>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Generation {
    pub protocol_type: Arc<str>,
    pub generation: i32,
    /// None when there are no members.
    pub protocol: Option<Arc<str>>,
    pub leader: Option<Arc<str>>,
    pub since: WallMs,
    pub members: Vec<GenerationMember>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GenerationMember {
    pub id: Arc<str>,
    pub instance: Option<Arc<str>>,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
    /// Of the generation's protocol.
    pub subscription: Arc<[u8]>,
    /// Empty in the record of a completed join: the leader has not assigned yet.
    pub assignment: Arc<[u8]>,
}

/// What a KIP-848 member said of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberMetadata {
    pub instance: Option<Arc<str>>,
    pub rack: Option<Arc<str>>,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
    pub topics: BTreeSet<Arc<str>>,
    pub regex: Option<Arc<str>>,
    pub rebalance_timeout_ms: i32,
    pub assignor: Option<Arc<str>>,
    /// Present while it speaks the classic protocol.
    pub classic: Option<ClassicProtocol>,
}

impl MemberMetadata {
    /// Of all that it says, in memory.
    pub(crate) fn bytes(&self) -> usize {
        const TOPIC: usize = 80;
        let texts = [&self.instance, &self.rack, &self.regex, &self.assignor].into_iter().flatten();
        let topics: usize = self.topics.iter().map(|topic| TOPIC + topic.len()).sum();
        let protocols: usize = self.classic.iter().map(|classic| protocol_bytes(&classic.protocols)).sum();
        let names = self.client_id.len() + self.client_host.len();
        texts.map(|text| text.len()).sum::<usize>() + topics + protocols + names
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassicProtocol {
    pub session_timeout_ms: i32,
    pub protocols: Protocols,
}

/// Name and metadata of each, by falling preference.
pub type Protocols = Vec<(Arc<str>, Arc<[u8]>)>;

/// What protocols take in memory; a name without metadata takes much more than its bytes.
pub(crate) fn protocol_bytes(protocols: &Protocols) -> usize {
    protocols.iter().map(|(name, metadata)| PROTOCOL_BYTES + name.len() + metadata.len()).sum()
}

/// As [`protocol_bytes`], of what is only asked for yet.
pub(crate) fn asked_protocol_bytes(ask: &JoinGroupRequest) -> usize {
    ask.protocols.iter().map(|protocol| PROTOCOL_BYTES + protocol.name.len() + protocol.metadata.len()).sum()
}

const PROTOCOL_BYTES: usize = 128;

/// Kafka's names and numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemberState {
    #[default]
    Stable = 0,
    UnrevokedPartitions = 1,
    UnreleasedPartitions = 2,
    Unknown = 127,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CurrentAssignment {
    pub epoch: i32,
    pub previous_epoch: i32,
    pub state: MemberState,
    /// With the member epoch at which each was assigned.
    pub assigned: BTreeMap<TopicId, BTreeMap<i32, i32>>,
    pub pending_revocation: BTreeMap<TopicId, BTreeMap<i32, i32>>,
}

/// The topics that an expression matched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    pub topics: BTreeSet<Arc<str>>,
    pub version: i64,
    pub at: WallMs,
}

impl Record {
    pub fn encode(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        match self {
            Record::Offset { group, topic, partition, value } => (
                encode_key(&wire::OffsetCommitKey { group, topic, partition: *partition }),
                value.as_ref().map(CommittedOffset::encode),
            ),
            Record::Classic { group, value } => {
                (encode_key(&wire::GroupMetadataKey { group }), value.as_ref().map(Generation::encode))
            }
            Record::GroupEpoch { group, value } => (
                encode_key(&wire::ConsumerGroupMetadataKey { group_id: group }),
                value.map(|(epoch, hash)| {
                    encode_value(0, &wire::ConsumerGroupMetadataValue { epoch, metadata_hash: hash })
                }),
            ),
            Record::Member { group, member, value } => (
                encode_key(&wire::ConsumerGroupMemberMetadataKey { group_id: group, member_id: member }),
                value.as_ref().map(MemberMetadata::encode),
            ),
            Record::TargetEpoch { group, value } => (
                encode_key(&wire::ConsumerGroupTargetAssignmentMetadataKey { group_id: group }),
                value.map(|(assignment_epoch, assignment_timestamp)| {
                    let body =
                        wire::ConsumerGroupTargetAssignmentMetadataValue { assignment_epoch, assignment_timestamp };
                    encode_value(0, &body)
                }),
            ),
            Record::Target { group, member, value } => (
                encode_key(&wire::ConsumerGroupTargetAssignmentMemberKey { group_id: group, member_id: member }),
                value.as_ref().map(encode_target),
            ),
            Record::Current { group, member, value } => (
                encode_key(&wire::ConsumerGroupCurrentMemberAssignmentKey { group_id: group, member_id: member }),
                value.as_ref().map(CurrentAssignment::encode),
            ),
            Record::Regex { group, regex, value } => (
                encode_key(&wire::ConsumerGroupRegularExpressionKey { group_id: group, regular_expression: regex }),
                value.as_ref().map(Resolved::encode),
            ),
        }
    }

    /// `None` for a kind that is passed over: share and streams groups, and what only Kafka 4.0 wrote.
    pub fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Option<Record>, WireError> {
        let record = match key_type(key)? {
            // Type 0 has the same key under another number; Kafka reads its values as it does those of type 1.
            0 => {
                let wire::LegacyOffsetCommitKey { group, topic, partition } = decode_key(key)?;
                let value = value.map(CommittedOffset::decode).transpose()?;
                Record::Offset { group: group.into(), topic: topic.into(), partition, value }
            }
            1 => {
                let wire::OffsetCommitKey { group, topic, partition } = decode_key(key)?;
                let value = value.map(CommittedOffset::decode).transpose()?;
                Record::Offset { group: group.into(), topic: topic.into(), partition, value }
            }
            2 => {
                let wire::GroupMetadataKey { group } = decode_key(key)?;
                Record::Classic { group: group.into(), value: value.map(Generation::decode).transpose()? }
            }
            3 => {
                let wire::ConsumerGroupMetadataKey { group_id } = decode_key(key)?;
                let value = read::<wire::ConsumerGroupMetadataValue>(value)?;
                Record::GroupEpoch { group: group_id.into(), value: value.map(|v| (v.epoch, v.metadata_hash)) }
            }
            5 => {
                let wire::ConsumerGroupMemberMetadataKey { group_id, member_id } = decode_key(key)?;
                let value = value.map(MemberMetadata::decode).transpose()?;
                Record::Member { group: group_id.into(), member: member_id.into(), value }
            }
            6 => {
                let wire::ConsumerGroupTargetAssignmentMetadataKey { group_id } = decode_key(key)?;
                let value = read::<wire::ConsumerGroupTargetAssignmentMetadataValue>(value)?;
                let value = value.map(|v| (v.assignment_epoch, v.assignment_timestamp));
                Record::TargetEpoch { group: group_id.into(), value }
            }
            7 => {
                let wire::ConsumerGroupTargetAssignmentMemberKey { group_id, member_id } = decode_key(key)?;
                let value = read::<wire::ConsumerGroupTargetAssignmentMemberValue>(value)?;
                let value = value.map(|v| decode_target(&v));
                Record::Target { group: group_id.into(), member: member_id.into(), value }
            }
            8 => {
                let wire::ConsumerGroupCurrentMemberAssignmentKey { group_id, member_id } = decode_key(key)?;
                let value = value.map(CurrentAssignment::decode).transpose()?;
                Record::Current { group: group_id.into(), member: member_id.into(), value }
            }
            16 => {
                let wire::ConsumerGroupRegularExpressionKey { group_id, regular_expression } = decode_key(key)?;
                let value = value.map(Resolved::decode).transpose()?;
                Record::Regex { group: group_id.into(), regex: regular_expression.into(), value }
            }
            _ => return Ok(None),
        };
        Ok(Some(record))
    }
}

fn read<'a, T: Format + ringmain_wire::Field<'a>>(value: Option<&'a [u8]>) -> Result<Option<T>, WireError> {
    value.map(decode_value::<T>).transpose()
}

impl Generation {
    /// v3, as Kafka 4.4 writes it.
    fn encode(&self) -> Vec<u8> {
        let members = self.members.iter().map(|member| wire::group_metadata::MemberMetadata {
            member_id: &member.id,
            group_instance_id: member.instance.as_deref(),
            client_id: &member.client_id,
            client_host: &member.client_host,
            rebalance_timeout: member.rebalance_timeout_ms,
            session_timeout: member.session_timeout_ms,
            subscription: &member.subscription,
            assignment: &member.assignment,
        });
        let body = wire::GroupMetadataValue {
            protocol_type: &self.protocol_type,
            generation: self.generation,
            protocol: self.protocol.as_deref(),
            leader: self.leader.as_deref(),
            current_state_timestamp: self.since,
            members: members.collect(),
        };
        encode_value(3, &body)
    }

    fn decode(value: &[u8]) -> Result<Generation, WireError> {
        let body: wire::GroupMetadataValue = decode_value(value)?;
        let members = body.members.iter().map(|member| GenerationMember {
            id: member.member_id.into(),
            instance: member.group_instance_id.map(Into::into),
            client_id: member.client_id.into(),
            client_host: member.client_host.into(),
            // v0 had none.
            rebalance_timeout_ms: match member.rebalance_timeout {
                -1 => member.session_timeout,
                timeout => timeout,
            },
            session_timeout_ms: member.session_timeout,
            subscription: member.subscription.into(),
            assignment: member.assignment.into(),
        });
        Ok(Generation {
            protocol_type: body.protocol_type.into(),
            generation: body.generation,
            protocol: body.protocol.map(Into::into),
            leader: body.leader.map(Into::into),
            since: body.current_state_timestamp,
            members: members.collect(),
        })
    }
}

impl MemberMetadata {
    fn encode(&self) -> Vec<u8> {
        let classic = self.classic.as_ref().map(|classic| wire::ClassicMemberMetadata {
            session_timeout_ms: classic.session_timeout_ms,
            supported_protocols: classic
                .protocols
                .iter()
                .map(|(name, metadata)| wire::ClassicProtocol { name, metadata })
                .collect(),
        });
        let body = wire::ConsumerGroupMemberMetadataValue {
            instance_id: self.instance.as_deref(),
            rack_id: self.rack.as_deref(),
            client_id: &self.client_id,
            client_host: &self.client_host,
            subscribed_topic_names: self.topics.iter().map(|topic| &**topic).collect(),
            subscribed_topic_regex: self.regex.as_deref(),
            rebalance_timeout_ms: self.rebalance_timeout_ms,
            server_assignor: self.assignor.as_deref(),
            classic_member_metadata: classic,
        };
        encode_value(0, &body)
    }

    fn decode(value: &[u8]) -> Result<MemberMetadata, WireError> {
        let body: wire::ConsumerGroupMemberMetadataValue = decode_value(value)?;
        let classic = body.classic_member_metadata.as_ref().map(|classic| ClassicProtocol {
            session_timeout_ms: classic.session_timeout_ms,
            protocols: classic.supported_protocols.iter().map(|p| (p.name.into(), p.metadata.into())).collect(),
        });
        Ok(MemberMetadata {
            instance: body.instance_id.map(Into::into),
            rack: body.rack_id.map(Into::into),
            client_id: body.client_id.into(),
            client_host: body.client_host.into(),
            topics: body.subscribed_topic_names.iter().map(Into::into).collect(),
            regex: body.subscribed_topic_regex.filter(|regex| !regex.is_empty()).map(Into::into),
            rebalance_timeout_ms: body.rebalance_timeout_ms,
            assignor: body.server_assignor.map(Into::into),
            classic,
        })
    }
}

fn encode_target(target: &Assignment) -> Vec<u8> {
    let topic_partitions = target.iter().map(|(topic, partitions)| wire::TopicPartition {
        topic_id: *topic,
        partitions: partitions.iter().map(|index| PartitionIndex(*index)).collect(),
    });
    let body = wire::ConsumerGroupTargetAssignmentMemberValue { topic_partitions: topic_partitions.collect() };
    encode_value(0, &body)
}

fn decode_target(body: &wire::ConsumerGroupTargetAssignmentMemberValue) -> Assignment {
    let topics = body.topic_partitions.iter();
    topics.map(|topic| (topic.topic_id, topic.partitions.iter().map(|index| index.0).collect())).collect()
}

impl CurrentAssignment {
    fn encode(&self) -> Vec<u8> {
        let topics = |of: &BTreeMap<TopicId, BTreeMap<i32, i32>>| -> Array<'static, wire::TopicPartitions<'static>> {
            let topic = |(topic, partitions): (&TopicId, &BTreeMap<i32, i32>)| wire::TopicPartitions {
                topic_id: *topic,
                partitions: partitions.keys().map(|index| PartitionIndex(*index)).collect(),
                assignment_epochs: Some(partitions.values().copied().collect()),
            };
            of.iter().map(topic).collect()
        };
        let body = wire::ConsumerGroupCurrentMemberAssignmentValue {
            member_epoch: self.epoch,
            previous_member_epoch: self.previous_epoch,
            state: self.state as i8,
            assigned_partitions: topics(&self.assigned),
            partitions_pending_revocation: topics(&self.pending_revocation),
        };
        encode_value(0, &body)
    }

    fn decode(value: &[u8]) -> Result<CurrentAssignment, WireError> {
        let body: wire::ConsumerGroupCurrentMemberAssignmentValue = decode_value(value)?;
        let topics = |of: &Array<wire::TopicPartitions>| {
            let mut topics: BTreeMap<TopicId, BTreeMap<i32, i32>> = BTreeMap::new();
            for topic in of.iter() {
                // Where the epochs are missing the partitions count as assigned now.
                let mut epochs = topic.assignment_epochs.as_ref().map(|epochs| epochs.iter());
                let mut next = || epochs.as_mut().and_then(Iterator::next).unwrap_or(body.member_epoch);
                let into = topics.entry(topic.topic_id).or_default();
                into.extend(topic.partitions.iter().map(|index| (index.0, next())));
            }
            topics
        };
        Ok(CurrentAssignment {
            epoch: body.member_epoch,
            previous_epoch: body.previous_member_epoch,
            state: match body.state {
                0 => MemberState::Stable,
                1 => MemberState::UnrevokedPartitions,
                2 => MemberState::UnreleasedPartitions,
                _ => MemberState::Unknown,
            },
            assigned: topics(&body.assigned_partitions),
            pending_revocation: topics(&body.partitions_pending_revocation),
        })
    }
}

impl Resolved {
    fn encode(&self) -> Vec<u8> {
        let body = wire::ConsumerGroupRegularExpressionValue {
            topics: self.topics.iter().map(|topic| &**topic).collect(),
            version: self.version,
            timestamp: self.at,
        };
        encode_value(0, &body)
    }

    fn decode(value: &[u8]) -> Result<Resolved, WireError> {
        let body: wire::ConsumerGroupRegularExpressionValue = decode_value(value)?;
        Ok(Resolved { topics: body.topics.iter().map(Into::into).collect(), version: body.version, at: body.timestamp })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offsets_bytes_are_never_fewer_than_said_and_little_more() {
        for bytes in [0, 1, 200, 20_000, 32_767] {
            for (expires, metadata) in [(None, bytes), (Some(WallMs(i64::MAX)), bytes), (None, 0)] {
                let (group, topic, metadata) =
                    ("g".repeat(bytes.min(1024)), "t".repeat(bytes.min(249)), "m".repeat(metadata));
                let said = offset_bytes(&group, &topic, Some(&metadata));
                let value = CommittedOffset {
                    offset: Offset(i64::MAX),
                    leader_epoch: LeaderEpoch(i32::MAX),
                    metadata: metadata.into(),
                    at: WallMs(i64::MAX),
                    expires,
                    topic: TopicId(u128::MAX),
                };
                let record = |value| Record::Offset {
                    group: group.as_str().into(),
                    topic: topic.as_str().into(),
                    partition: PartitionIndex(i32::MAX),
                    value,
                };
                let (key, value) = record(Some(value)).encode();
                let takes = OFFSET_RECORD_BYTES + key.len() + value.unwrap().len();
                assert!((takes..=takes + 24).contains(&said), "{takes} but {said}");
                assert_eq!(record(None).encode().0.len() + OFFSET_RECORD_BYTES, offset_bytes(&group, &topic, None));
            }
        }
    }
}
