//! Committed offsets of one group.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use ringmain_types::*;
use ringmain_wire::records::OffsetCommitValue;
use ringmain_wire::{WireError, decode_value, encode_value};

/// What a group committed for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    pub offset: Offset,
    /// -1 when the client named none.
    pub leader_epoch: LeaderEpoch,
    pub metadata: Arc<str>,
    pub at: WallMs,
    /// Of clients that name their own retention (OffsetCommit v2-4).
    pub expires: Option<WallMs>,
    /// None (0) in what was committed before topics had ids here: it counts for whatever topic has the name.
    pub topic: TopicId,
}

impl CommittedOffset {
    /// v4, or v1 with an expiry of its own, as Kafka 4.4 writes them.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let body = OffsetCommitValue {
            offset: self.offset,
            leader_epoch: self.leader_epoch,
            metadata: &self.metadata,
            commit_timestamp: self.at,
            expire_timestamp: self.expires.unwrap_or(WallMs(-1)),
            topic_id: self.topic,
        };
        encode_value(if self.expires.is_some() { 1 } else { 4 }, &body)
    }

    pub(crate) fn decode(value: &[u8]) -> Result<CommittedOffset, WireError> {
        let body: OffsetCommitValue = decode_value(value)?;
        Ok(CommittedOffset {
            offset: body.offset,
            leader_epoch: body.leader_epoch,
            metadata: body.metadata.into(),
            at: body.commit_timestamp,
            expires: (body.expire_timestamp.0 != -1).then_some(body.expire_timestamp),
            topic: body.topic_id,
        })
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Offsets {
    topics: BTreeMap<Arc<str>, BTreeMap<i32, CommittedOffset>>,
    count: usize,
    bytes: usize,
}

/// What an offset and a topic take besides their strings. A map's leaf has eleven places, however few are taken.
const OFFSET_BYTES: usize = 160;
const TOPIC_BYTES: usize = 1000;

impl Offsets {
    pub(crate) fn replay(&mut self, topic: &Arc<str>, partition: PartitionIndex, value: &Option<CommittedOffset>) {
        match value {
            Some(value) => {
                let partitions = self.topics.entry(topic.clone()).or_insert_with(|| {
                    self.bytes += TOPIC_BYTES + topic.len();
                    BTreeMap::new()
                });
                self.bytes += OFFSET_BYTES + value.metadata.len();
                match partitions.insert(partition.0, value.clone()) {
                    None => self.count += 1,
                    Some(before) => self.bytes -= OFFSET_BYTES + before.metadata.len(),
                }
            }
            None => {
                let Some(partitions) = self.topics.get_mut(topic) else { return };
                if let Some(before) = partitions.remove(&partition.0) {
                    self.count -= 1;
                    self.bytes -= OFFSET_BYTES + before.metadata.len();
                }
                if partitions.is_empty() && self.topics.remove(topic).is_some() {
                    self.bytes -= TOPIC_BYTES + topic.len();
                }
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// About what they take in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Of the metadata that is committed for this partition; `None` where nothing is.
    pub(crate) fn metadata_bytes(&self, topic: &str, partition: PartitionIndex) -> Option<usize> {
        self.topics.get(topic)?.get(&partition.0).map(|offset| offset.metadata.len())
    }

    pub(crate) fn has(&self, topic: &str, partition: PartitionIndex) -> bool {
        self.topics.get(topic).is_some_and(|partitions| partitions.contains_key(&partition.0))
    }

    /// What counts for the topic that has this id now: an older topic's offset of the same name is none (FAILURES 55).
    pub(crate) fn get(&self, topic: &str, id: TopicId, partition: PartitionIndex) -> Option<&CommittedOffset> {
        let offset = self.topics.get(topic)?.get(&partition.0)?;
        (offset.topic == TopicId::NONE || id == TopicId::NONE || offset.topic == id).then_some(offset)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, PartitionIndex, &CommittedOffset)> {
        self.behind(None)
    }

    /// Those behind this one, or all.
    pub(crate) fn behind<'a>(
        &'a self,
        place: Option<&'a (Arc<str>, PartitionIndex)>,
    ) -> impl Iterator<Item = (&'a Arc<str>, PartitionIndex, &'a CommittedOffset)> {
        let from = place.map_or(Bound::Unbounded, |(topic, _)| Bound::Included(&**topic));
        self.topics.range::<str, _>((from, Bound::Unbounded)).flat_map(move |(topic, partitions)| {
            let here = place.filter(|(at, _)| at == topic);
            let from = here.map_or(Bound::Unbounded, |(_, index)| Bound::Excluded(index.0));
            let found = partitions.range((from, Bound::Unbounded));
            found.map(move |(index, offset)| (topic, PartitionIndex(*index), offset))
        })
    }

    pub(crate) fn topics(&self) -> impl Iterator<Item = (&Arc<str>, &BTreeMap<i32, CommittedOffset>)> {
        self.topics.iter()
    }
}
