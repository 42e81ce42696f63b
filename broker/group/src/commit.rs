//! OffsetCommit and OffsetFetch.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringmain_types::*;

use crate::coordinator::{GroupCoordinator, Out};
use crate::group::{Group, Kind};
use crate::record::{Record, offset_bytes};
use crate::{
    CommitOffset, CommitOffsets, CommittedOffset, FetchOffsets, FetchTopic, FetchedOffset, OffsetTopic, Topics,
};

/// Whatever the configs say: they are not looked up for less.
const SMALL_BATCH_BYTES: usize = 16 << 10;

impl GroupCoordinator {
    /// Of a partition that comes more than once the last one counts. All that is let in is one batch, or nothing is committed: both as
    /// on Kafka.
    pub(crate) fn commit(
        &mut self,
        now: Now,
        topics: &dyn Topics,
        ask: &CommitOffsets,
        out: &mut Out,
    ) -> Result<Vec<ErrorCode>, ErrorCode> {
        if ask.group.len() > self.config.limits.id_bytes_max as usize {
            return Err(ErrorCode::InvalidGroupId);
        }
        let checked = self.check_commit(now, ask)?;
        // A member that is unknown or stale in all is told so once, as on Kafka.
        if let Some(Err(code)) = checked.first()
            && checked.iter().all(|result| result.is_err())
        {
            return Err(*code);
        }
        let metadata_max = self.config.offset_metadata_max_bytes as usize;
        let mut codes: Vec<ErrorCode> = checked
            .into_iter()
            .zip(&ask.offsets)
            .map(|(checked, offset)| match checked {
                Err(code) => code,
                Ok(()) if offset.metadata.len() > metadata_max => ErrorCode::OffsetMetadataTooLarge,
                Ok(()) => ErrorCode::None,
            })
            .collect();
        let mut last: BTreeMap<(&str, PartitionIndex), usize> = BTreeMap::new();
        let taken = |place: &usize| codes[*place] == ErrorCode::None;
        for place in (0..ask.offsets.len()).filter(taken) {
            last.insert(key(&ask.offsets[place]), place);
        }
        let bytes = |place: &usize| {
            let offset = &ask.offsets[*place];
            offset_bytes(ask.group, offset.topic, Some(offset.metadata))
        };
        if !self.is_batch(topics, last.values().map(bytes).sum()) {
            for code in codes.iter_mut().filter(|code| **code == ErrorCode::None) {
                *code = ErrorCode::InvalidCommitOffsetSize;
            }
            return Ok(codes);
        }
        self.write_offsets(now, ask, &last, &mut codes, out);
        Ok(codes)
    }

    /// Whether records of offsets with so many bytes may be one batch.
    pub(crate) fn is_batch(&self, topics: &dyn Topics, bytes: usize) -> bool {
        bytes <= SMALL_BATCH_BYTES || bytes <= self.batch_bytes_max().min(topics.batch_bytes_max())
    }

    /// Who may commit what; `Err` of all of it.
    fn check_commit(&mut self, now: Now, ask: &CommitOffsets) -> Result<Vec<Result<(), ErrorCode>>, ErrorCode> {
        let has_room = self.has_room();
        let everything = Ok(vec![Ok(()); ask.offsets.len()]);
        let Some(group) = self.groups.get_mut(ask.group) else {
            // Offsets of nobody's: a generation of a group that is not there can't be the present one.
            return match (ask.generation_or_epoch, has_room) {
                (0.., _) => Err(ErrorCode::IllegalGeneration),
                (_, false) => Err(ErrorCode::GroupMaxSizeReached),
                (_, true) => everything,
            };
        };
        if group.deleting {
            return Err(ErrorCode::CoordinatorLoadInProgress);
        }
        match &mut group.kind {
            Kind::Simple if ask.generation_or_epoch >= 0 => Err(ErrorCode::UnknownMemberId),
            Kind::Simple => everything,
            Kind::Classic(group) => {
                group.check_commit(now, ask.member, ask.instance, ask.generation_or_epoch)?;
                everything
            }
            Kind::Consumer(group) => {
                let check = |offset: &CommitOffset| {
                    group.check_commit(ask.member, ask.generation_or_epoch, (offset.id, offset.partition))
                };
                Ok(ask.offsets.iter().map(check).collect())
            }
        }
    }

    /// Those at `last`, as far as there is room; an offset that another stands for has that one's code.
    fn write_offsets(
        &mut self,
        now: Now,
        ask: &CommitOffsets,
        last: &BTreeMap<(&str, PartitionIndex), usize>,
        codes: &mut [ErrorCode],
        out: &mut Out,
    ) {
        let id: Arc<str> = ask.group.into();
        let offsets_max = self.config.limits.offsets_max as usize;
        let mut count = self.groups.get(&id).map_or(0, |group| group.offsets.len());
        let mut written = 0;
        for (place, offset) in ask.offsets.iter().enumerate() {
            if last.get(&key(offset)) != Some(&place) {
                continue;
            }
            let group = self.groups.get(&id);
            let known = group.and_then(|group| group.offsets.metadata_bytes(offset.topic, offset.partition));
            let grows = known.is_none_or(|bytes| offset.metadata.len() > bytes);
            if (known.is_none() && count >= offsets_max) || (grows && self.is_full()) {
                codes[place] = ErrorCode::InvalidCommitOffsetSize;
                continue;
            }
            count += usize::from(known.is_none());
            written += 1;
            let value = CommittedOffset {
                offset: offset.offset,
                leader_epoch: offset.leader_epoch,
                metadata: offset.metadata.into(),
                at: now.wall,
                expires: (ask.retention_ms >= 0).then(|| WallMs(now.wall.0.saturating_add(ask.retention_ms))),
                topic: offset.id,
            };
            let (group, topic, partition) = (id.clone(), offset.topic.into(), offset.partition);
            self.write(now, Record::Offset { group, topic, partition, value: Some(value) }, out);
        }
        for place in 0..codes.len() {
            if codes[place] == ErrorCode::None
                && let Some(stands) = last.get(&key(&ask.offsets[place]))
            {
                codes[place] = codes[*stands];
            }
        }
        if let Some(group) = self.groups.get_mut(&id) {
            group.commits += written;
        }
    }

    pub(crate) fn fetch(&self, topics: &dyn Topics, ask: &FetchOffsets) -> Result<Vec<OffsetTopic>, ErrorCode> {
        let group = self.groups.get(ask.group);
        // Members of classic groups name themselves too (franz-go), and are not looked at: on Kafka neither.
        if let Some(Kind::Consumer(consumer)) = group.map(|group| &group.kind) {
            consumer.check_fetch(ask.member, ask.member_epoch)?;
        }
        let Some(asked) = &ask.topics else {
            let Some(group) = group else { return Ok(Vec::new()) };
            return Ok(all_offsets(group, topics));
        };
        let topic = |asked: &FetchTopic| OffsetTopic {
            topic: asked.name.into(),
            id: asked.id,
            partitions: asked
                .partitions
                .iter()
                .map(|partition| FetchedOffset {
                    partition,
                    committed: group.and_then(|group| group.offsets.get(asked.name, asked.id, partition)).cloned(),
                })
                .collect(),
        };
        Ok(asked.iter().map(topic).collect())
    }
}

fn key<'a>(offset: &CommitOffset<'a>) -> (&'a str, PartitionIndex) {
    (offset.topic, offset.partition)
}

fn all_offsets(group: &Group, topics: &dyn Topics) -> Vec<OffsetTopic> {
    let mut out = Vec::new();
    for (name, partitions) in group.offsets.topics() {
        let id = topics.by_name(name).map_or(TopicId::NONE, |(id, _)| id);
        let counts = partitions.keys().filter_map(|index| {
            let partition = PartitionIndex(*index);
            let committed = group.offsets.get(name, id, partition)?.clone();
            Some(FetchedOffset { partition, committed: Some(committed) })
        });
        let partitions: Vec<FetchedOffset> = counts.collect();
        if !partitions.is_empty() {
            out.push(OffsetTopic { topic: name.clone(), id, partitions });
        }
    }
    out
}
