//! Taking away: offsets, groups, and what time takes. A turn takes no more than `removed_max` offsets: a group may have a million.

use std::collections::BTreeSet;
use std::sync::Arc;

use ringmain_coordinator::Waiter;
use ringmain_types::*;

use crate::coordinator::{GroupCoordinator, Out};
use crate::group::{Group, Kind};
use crate::record::{Record, offset_bytes};
use crate::{CommittedOffset, Reply, Topics};

/// Groups, and offsets, that one look for expired offsets visits.
const EXPIRY_GROUPS: usize = 1000;
const EXPIRY_OFFSETS: usize = 10_000;

/// A topic that is not known may be new rather than gone: the image of this core may be older than the one that let the commit in.
const ORPHAN_MS: i64 = 60_000;

/// The group to look at next, behind this offset of it.
pub(crate) type Place = (Arc<str>, Option<(Arc<str>, PartitionIndex)>);

impl GroupCoordinator {
    /// One batch, or nothing is deleted: 18.
    pub(crate) fn delete_offsets(
        &mut self,
        now: Now,
        world: &dyn Topics,
        (id, topics): (&str, &[(&str, Vec<PartitionIndex>)]),
        out: &mut Out,
    ) -> Result<Vec<Vec<ErrorCode>>, ErrorCode> {
        let Some((id, group)) = self.groups.get_key_value(id) else { return Err(ErrorCode::GroupIdNotFound) };
        let id = id.clone();
        let mut codes = Vec::with_capacity(topics.len());
        let (mut gone, mut bytes) = (Vec::new(), 0);
        let mut named = BTreeSet::new();
        for (topic, partitions) in topics {
            let subscribed = is_subscribed(group, topic)?;
            let code = if subscribed { ErrorCode::GroupSubscribedToTopic } else { ErrorCode::None };
            codes.push(vec![code; partitions.len()]);
            let has = |partition: &&PartitionIndex| !subscribed && group.offsets.has(topic, **partition);
            for partition in partitions.iter().filter(has) {
                if named.insert((*topic, *partition)) {
                    bytes += offset_bytes(&id, topic, None);
                    gone.push((Arc::from(*topic), *partition));
                }
            }
        }
        if !self.is_batch(world, bytes) {
            return Err(ErrorCode::RecordListTooLarge);
        }
        self.take_offsets(now, &id, gone, out);
        self.forget_if_nothing(&id);
        Ok(codes)
    }

    /// Answers when the last of its offsets is gone. Until then nobody joins it and nothing is committed: 14, and clients ask again.
    pub(crate) fn delete_group(&mut self, now: Now, waiter: Waiter, id: &str, out: &mut Out) {
        let code = match self.groups.get_mut(id) {
            None => ErrorCode::GroupIdNotFound,
            Some(group) if !group.is_vacant() => ErrorCode::NonEmptyGroup,
            Some(group) => {
                group.deleting = true;
                self.deletions.push_back((waiter, id.into()));
                if self.deletions.len() == 1 {
                    self.go_on_deleting(now, out);
                }
                return;
            }
        };
        out.replies.push((waiter, Reply::Code(code)));
    }

    /// The next part of the oldest deletion.
    pub(crate) fn go_on_deleting(&mut self, now: Now, out: &mut Out) {
        let Some((waiter, id)) = self.deletions.front().cloned() else { return };
        // Asked for twice, it may be gone, and somebody else's since.
        if let Some(group) = self.groups.get(&id).filter(|group| group.deleting) {
            let removed_max = (self.config.limits.removed_max as usize).max(1);
            let gone: Vec<(Arc<str>, PartitionIndex)> = group
                .offsets
                .behind(None)
                .take(removed_max)
                .map(|(topic, partition, _)| (topic.clone(), partition))
                .collect();
            let rest = gone.len() < group.offsets.len();
            self.take_each(now, &id, gone, out);
            if rest {
                return;
            }
            self.clear(now, &id, out);
            self.forget(&id);
        }
        self.deletions.pop_front();
        out.replies.push((waiter, Reply::Code(ErrorCode::None)));
    }

    /// As `take_offsets`; but they need not be one batch.
    fn take_each(&mut self, now: Now, id: &Arc<str>, gone: Vec<(Arc<str>, PartitionIndex)>, out: &mut Out) {
        for one in gone {
            self.take_offsets(now, id, vec![one], out);
            out.cut();
        }
    }

    fn take_offsets(&mut self, now: Now, id: &Arc<str>, gone: Vec<(Arc<str>, PartitionIndex)>, out: &mut Out) {
        for (topic, partition) in gone {
            self.write(now, Record::Offset { group: id.clone(), topic, partition, value: None }, out);
        }
    }

    /// Offsets of groups that nobody is in, for longer than they are kept; then the groups that have none left. Where to go on, when that
    /// was not all.
    pub(crate) fn expire_offsets(
        &mut self,
        now: Now,
        topics: &dyn Topics,
        from: Option<Place>,
        out: &mut Out,
    ) -> Option<Place> {
        let mut next = from.or_else(|| self.groups.first_key_value().map(|(id, _)| (id.clone(), None)));
        let mut left = (EXPIRY_OFFSETS, (self.config.limits.removed_max as usize).max(1));
        for _ in 0..EXPIRY_GROUPS {
            let (id, behind) = next?;
            if left.0 == 0 || left.1 == 0 {
                return Some((id, behind));
            }
            let stopped = self.expire_group(now, topics, (&id, behind), &mut left, out);
            if stopped.is_some() {
                return Some((id, stopped));
            }
            out.cut();
            let others = (std::ops::Bound::Excluded(&*id), std::ops::Bound::Unbounded);
            next = self.groups.range::<str, _>(others).next().map(|(id, _)| (id.clone(), None));
        }
        next
    }

    /// Of one group. `left` are the offsets that may still be looked at and taken; the last one looked at when that was not all.
    fn expire_group(
        &mut self,
        now: Now,
        topics: &dyn Topics,
        (id, behind): (&Arc<str>, Option<(Arc<str>, PartitionIndex)>),
        (looks, takes): &mut (usize, usize),
        out: &mut Out,
    ) -> Option<(Arc<str>, PartitionIndex)> {
        let group = self.groups.get(id)?;
        let (vacant, since) = (group.is_vacant(), group.empty_since());
        let age_ms = |at: WallMs| now.wall.0.saturating_sub(at.0);
        // A topic that was deleted does not come back under its id.
        let orphaned = |offset: &CommittedOffset| {
            let known = offset.topic == TopicId::NONE || topics.by_id(offset.topic).is_some();
            !known && age_ms(offset.at) >= ORPHAN_MS
        };
        let expired = |offset: &CommittedOffset| match offset.expires {
            _ if orphaned(offset) => true,
            _ if !vacant => false,
            Some(at) => at <= now.wall,
            None => age_ms(since.map_or(offset.at, |since| since.max(offset.at))) >= self.config.offsets_retention_ms,
        };
        let (mut gone, mut stopped) = (Vec::new(), None);
        let mut last = behind.clone();
        for (topic, partition, offset) in group.offsets.behind(behind.as_ref()) {
            if *looks == 0 || *takes == 0 {
                stopped = last;
                break;
            }
            *looks -= 1;
            if expired(offset) {
                *takes -= 1;
                gone.push((topic.clone(), partition));
            }
            last = Some((topic.clone(), partition));
        }
        self.take_each(now, id, gone, out);
        let empty = self.groups.get(id).is_some_and(|group| group.offsets.is_empty());
        if stopped.is_none() && vacant && empty {
            self.clear(now, id, out);
            self.forget(id);
        }
        stopped
    }
}

/// Whether somebody reads this topic for the group, or may; 68 where nobody can tell.
fn is_subscribed(group: &Group, topic: &str) -> Result<bool, ErrorCode> {
    match &group.kind {
        Kind::Simple => Ok(false),
        Kind::Classic(_) if group.is_vacant() => Ok(false),
        Kind::Classic(classic) if classic.protocol_type().as_deref() == Some("consumer") => {
            Ok(classic.is_subscribed(topic))
        }
        // Whatever its members do with offsets, they are doing it.
        Kind::Classic(_) => Err(ErrorCode::NonEmptyGroup),
        Kind::Consumer(consumer) => Ok(consumer.is_subscribed(topic)),
    }
}
