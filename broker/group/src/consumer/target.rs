//! The group's epoch and the target assignment.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ringmain_types::*;

use super::{ConsumerGroup, NEVER};
use crate::Topics;
use crate::assignor::{Assignor, Reader, Spec};
use crate::classic::Turn;
use crate::record::{Assignment, Record};

/// A target on its way into the log, a part of it at a time: a thousand records at once are what nobody else of the core should wait
/// for. Until its epoch is written members go on towards the one before, or a partition could change hands within an epoch.
#[derive(Debug)]
pub(super) struct Assigning {
    epoch: i32,
    /// What is to change.
    left: VecDeque<(Arc<str>, Assignment)>,
    /// What was the target of those that are changed already.
    before: BTreeMap<Arc<str>, Assignment>,
    /// When the next part may be written.
    pub(super) next: Instant,
}

impl Assigning {
    /// Another id takes a member's place.
    pub(super) fn rename(&mut self, old: &Arc<str>, new: &Arc<str>) {
        for (member, _) in self.left.iter_mut().filter(|(member, _)| member == old) {
            *member = new.clone();
        }
        if let Some(before) = self.before.remove(old) {
            self.before.insert(new.clone(), before);
        }
    }

    pub(super) fn forget(&mut self, member: &Arc<str>) {
        self.before.remove(member);
    }
}

impl ConsumerGroup {
    pub(super) fn write(&mut self, turn: &mut Turn, record: Record) {
        self.replay(&record);
        turn.out.records.push(record);
    }

    /// The group epoch rises when somebody came, left or reads something else, or when the topics that are read changed.
    pub(super) fn advance_epoch(&mut self, turn: &mut Turn, topics: &dyn Topics, changed: bool) {
        let version = topics.version();
        if !changed && self.seen == Some(version) {
            return;
        }
        self.seen = Some(version);
        let hash = self.topics_hash(topics);
        if changed || hash != self.hash {
            let epoch = self.epoch.saturating_add(1);
            self.write(turn, Record::GroupEpoch { group: turn.group.clone(), value: Some((epoch, hash)) });
        }
    }

    /// Of names, ids and numbers of partitions of what is read; 0 when nothing of it exists.
    fn topics_hash(&self, topics: &dyn Topics) -> i64 {
        let names: BTreeSet<&Arc<str>> = self.names().collect();
        debug_assert_eq!(names, self.members.values().flat_map(|member| self.reads(member)).collect());
        let mut hash = 0u64;
        for name in names {
            let Some((id, partitions)) = topics.by_name(name) else { continue };
            let mut one = 0xcbf2_9ce4_8422_2325u64;
            for byte in name.bytes().chain(id.0.to_be_bytes()).chain(partitions.to_be_bytes()) {
                one = (one ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
            hash = hash.rotate_left(7) ^ one;
        }
        hash as i64
    }

    /// The most wanted of what the members name; the broker's first when they name none.
    pub(crate) fn assignor(&self, known: &[Assignor]) -> Assignor {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for name in self.members.values().filter_map(|member| member.meta.assignor.as_deref()) {
            *votes.entry(name).or_default() += 1;
        }
        let wanted = votes.into_iter().max_by_key(|(_, votes)| *votes).and_then(|(name, _)| Assignor::parse(name));
        wanted.filter(|wanted| known.contains(wanted)).or(known.first().copied()).unwrap_or(Assignor::Uniform)
    }

    /// A new target when the group has moved on, but not sooner than the interval after the last: members that come together are
    /// assigned together.
    pub(super) fn update_target(&mut self, turn: &mut Turn, topics: &dyn Topics) {
        // The one before is not in the log yet.
        if self.assigning.is_some() {
            return;
        }
        let age = turn.now.wall.0.saturating_sub(self.assigned_at.0);
        let early = self.assigned_at != NEVER && (0..turn.config.consumer_assignment_interval_ms).contains(&age);
        if self.epoch <= self.assignment_epoch || early {
            return;
        }
        let assigned = self.assignor(&turn.config.consumer_assignors).assign(&self.spec(topics));
        let nothing = Assignment::new();
        let changes = |(member, target): &(Arc<str>, Assignment)| self.target.get(member).unwrap_or(&nothing) != target;
        let left = assigned.into_iter().filter(changes).collect();
        let (epoch, next) = (self.epoch, turn.now.mono);
        self.assigning = Some(Assigning { epoch, left, before: BTreeMap::new(), next });
        let most = if std::mem::take(&mut self.torn) { usize::MAX } else { turn.config.limits.targets_max as usize };
        self.write_targets(turn, most);
    }

    pub(super) fn go_on_assigning(&mut self, turn: &mut Turn) {
        self.write_targets(turn, turn.config.limits.targets_max as usize);
    }

    /// Writes so many members' targets, and the target's epoch with the last.
    fn write_targets(&mut self, turn: &mut Turn, most: usize) {
        let Some(mut assigning) = self.assigning.take() else { return };
        // Who finds the group's epoch above its target's assigns anew, however much of the target it finds.
        turn.out.cut();
        for _ in 0..most.max(1) {
            let Some((member, target)) = assigning.left.pop_front() else { break };
            // Who has left meanwhile gets nothing; the group has moved on then, and is assigned once more.
            if self.members.contains_key(&member) {
                assigning.before.insert(member.clone(), self.target.get(&member).cloned().unwrap_or_default());
                self.write(turn, Record::Target { group: turn.group.clone(), member, value: Some(target) });
                turn.out.cut();
            }
        }
        if assigning.left.is_empty() {
            let value = Some((assigning.epoch, turn.now.wall));
            self.write(turn, Record::TargetEpoch { group: turn.group.clone(), value });
        } else {
            // In the next turn.
            assigning.next = Instant(turn.now.mono.0 + 1);
            self.assigning = Some(assigning);
        }
    }

    /// What a member is to have in the present assignment epoch.
    pub(super) fn target_of(&self, member: &str) -> Option<&Assignment> {
        let before = self.assigning.as_ref().and_then(|assigning| assigning.before.get(member));
        before.or_else(|| self.target.get(member))
    }

    fn spec(&self, topics: &dyn Topics) -> Spec {
        let mut spec = Spec::default();
        let mut ids: BTreeMap<&Arc<str>, Option<TopicId>> = BTreeMap::new();
        for (id, member) in &self.members {
            let mut reads = BTreeSet::new();
            for name in self.reads(member) {
                let topic = *ids.entry(name).or_insert_with(|| {
                    let (topic, partitions) = topics.by_name(name)?;
                    spec.topics.insert(topic, partitions);
                    Some(topic)
                });
                reads.extend(topic);
            }
            let before = self.target.get(id).cloned().unwrap_or_default();
            spec.members.insert(id.clone(), Reader { instance: member.meta.instance.clone(), topics: reads, before });
        }
        spec
    }
}
