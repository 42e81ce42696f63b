//! KIP-848 consumer groups: members say what they read, the broker assigns, and each member walks to its target on its own.
//!
//! Three epochs: the *group* epoch rises with every change that asks for a new assignment; the *assignment* epoch is the group epoch
//! that the target is of; a *member* epoch is the assignment that the member has reached. A partition goes to its new owner only when
//! its old one said that it gave it back.
//!
//! ```text
//!             target changed, something to give back         given back, another still has what comes
//!   Stable -----------------------------------> Unrevoked ----------------------------------------> Unreleased
//!     ^ ^------------ given back, all is free -----'                                                   |
//!     '---------------------------------- what comes is free ------------------------------------------'
//! ```

mod classic_members;
mod heartbeat;
mod members;
mod reconcile;
mod regex;
mod subscriptions;
mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringmain_types::*;

use crate::group::State;
use crate::record::{Assignment, CurrentAssignment, MemberMetadata, MemberState, Record, Resolved};
use crate::{DescribedConsumerMember, Topics};

use subscriptions::Subscriptions;
use target::Assigning;

pub(crate) use classic_members::{Emigrant, assigned, subscribed};
pub use heartbeat::Heartbeat;
pub(crate) use heartbeat::check;

/// The epoch with which a member leaves, and the one with which a static member goes away for a while.
pub(crate) const LEAVES: i32 = -1;
pub(crate) const LEAVES_STATIC: i32 = -2;

/// No assignment was made of those who are members now: the first is made at once.
const NEVER: WallMs = WallMs(0);

/// What a member takes besides its id and what it says and has; an expression likewise; a partition that it has, with its place among the owners, or is to have; and a
/// topic of a list.
const MEMBER_BYTES: usize = 1000;
const REGEX_BYTES: usize = 300;
const OWNED_BYTES: usize = 100;
const TARGET_BYTES: usize = 16;
const TOPIC_BYTES: usize = 60;

#[derive(Debug, Default)]
pub(crate) struct ConsumerMember {
    pub(crate) meta: MemberMetadata,
    pub(crate) current: CurrentAssignment,
    /// When its session ends.
    pub(crate) until: Option<Instant>,
    /// By when it must have given back what it was asked for.
    pub(crate) revoke_until: Option<Instant>,
    /// By when a classic member that has joined must ask for what it was given: one that only beats would keep it from everybody.
    pub(crate) sync_until: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct ConsumerGroup {
    // What the records say.
    epoch: i32,
    hash: i64,
    members: BTreeMap<Arc<str>, ConsumerMember>,
    assignment_epoch: i32,
    assigned_at: WallMs,
    target: BTreeMap<Arc<str>, Assignment>,
    regexes: BTreeMap<Arc<str>, Resolved>,

    // What follows from them.
    statics: BTreeMap<Arc<str>, Arc<str>>,
    /// Who has each partition, or has not given it back.
    owners: BTreeMap<(TopicId, i32), Arc<str>>,
    subscriptions: Subscriptions,
    /// About what members, targets and expressions take in memory.
    bytes: usize,

    // Of this life.
    /// The version of the topics that `hash` was last compared with.
    seen: Option<i64>,
    regexes_seen: Option<(i64, WallMs)>,
    /// Since when it has no members, as far as this life knows: no record says so.
    empty_since: Option<WallMs>,
    /// No member is due before; looked up again when it is over.
    soonest: Option<Instant>,
    assigning: Option<Assigning>,
    /// The life before may have ended within a target: the next one is made before anybody takes a step, and written whole.
    torn: bool,
}

impl Default for ConsumerGroup {
    fn default() -> Self {
        ConsumerGroup {
            epoch: 0,
            hash: 0,
            members: BTreeMap::new(),
            assignment_epoch: 0,
            assigned_at: NEVER,
            target: BTreeMap::new(),
            regexes: BTreeMap::new(),
            statics: BTreeMap::new(),
            owners: BTreeMap::new(),
            subscriptions: Subscriptions::default(),
            bytes: 0,
            seen: None,
            regexes_seen: None,
            empty_since: None,
            soonest: None,
            assigning: None,
            torn: false,
        }
    }
}

impl ConsumerGroup {
    /// Of this group. The group itself goes with its epoch, in the coordinator.
    pub(crate) fn replay(&mut self, record: &Record) {
        match record {
            Record::GroupEpoch { value: Some((epoch, hash)), .. } => (self.epoch, self.hash) = (*epoch, *hash),
            Record::Member { member, value: Some(meta), .. } => {
                if let Some(instance) = &meta.instance {
                    self.statics.insert(instance.clone(), member.clone());
                }
                self.bytes += meta.bytes();
                let (_, found) = member_of(&mut self.members, &mut self.bytes, member);
                self.subscriptions.take(&found.meta);
                self.subscriptions.add(meta);
                self.bytes -= std::mem::replace(&mut found.meta, meta.clone()).bytes();
            }
            Record::Member { member, value: None, .. } => {
                self.disown(member);
                let gone = self.members.remove(member);
                if let Some(gone) = &gone {
                    self.subscriptions.take(&gone.meta);
                    self.bytes -= member.len() + gone.meta.bytes() + current_bytes(&gone.current);
                }
                if let Some(instance) = gone.and_then(|gone| gone.meta.instance)
                    && self.statics.get(&instance) == Some(member)
                {
                    self.statics.remove(&instance);
                }
            }
            Record::TargetEpoch { value, .. } => {
                (self.assignment_epoch, self.assigned_at) = value.unwrap_or((0, NEVER));
            }
            Record::Target { member, value, .. } => {
                let bytes = |target: &Assignment| member.len() + assignment_bytes(target);
                self.bytes += value.as_ref().map_or(0, bytes);
                let before = match value {
                    Some(target) => self.target.insert(member.clone(), target.clone()),
                    None => self.target.remove(member),
                };
                self.bytes -= before.as_ref().map_or(0, bytes);
            }
            Record::Current { member, value: None, .. } => {
                self.disown(member);
                if let Some(found) = self.members.get_mut(member) {
                    self.bytes -= current_bytes(&std::mem::take(&mut found.current));
                }
            }
            // Compaction may have put the member's own record behind this one.
            Record::Current { member, value: Some(current), .. } => {
                self.disown(member);
                self.bytes += current_bytes(current);
                let (id, found) = member_of(&mut self.members, &mut self.bytes, member);
                self.bytes -= current_bytes(&std::mem::replace(&mut found.current, current.clone()));
                for (topic, partitions) in found.current.assigned.iter().chain(&found.current.pending_revocation) {
                    for index in partitions.keys() {
                        self.owners.insert((*topic, *index), id.clone());
                    }
                }
            }
            Record::Regex { regex, value, .. } => {
                let bytes = |resolved: &Resolved| REGEX_BYTES + regex.len() + resolved_bytes(resolved);
                self.bytes += value.as_ref().map_or(0, bytes);
                let before = match value {
                    Some(resolved) => self.regexes.insert(regex.clone(), resolved.clone()),
                    None => self.regexes.remove(regex),
                };
                self.bytes -= before.as_ref().map_or(0, bytes);
            }
            Record::GroupEpoch { value: None, .. } | Record::Offset { .. } | Record::Classic { .. } => {}
        }
    }

    /// What the member has is nobody's, unless somebody else has it by now.
    fn disown(&mut self, id: &Arc<str>) {
        let Some(member) = self.members.get(id) else { return };
        for (topic, partitions) in member.current.assigned.iter().chain(&member.current.pending_revocation) {
            for index in partitions.keys() {
                if self.owners.get(&(*topic, *index)) == Some(id) {
                    self.owners.remove(&(*topic, *index));
                }
            }
        }
    }

    pub(crate) fn loaded(&mut self, now: Now, session_ms: i32) {
        self.empty_since = Some(now.wall);
        if self.epoch > self.assignment_epoch && !self.members.is_empty() {
            (self.torn, self.assigned_at) = (true, NEVER);
        }
        for member in self.members.values_mut() {
            let ms = member.meta.classic.as_ref().map_or(session_ms, |classic| classic.session_timeout_ms);
            member.until = Some(now.mono.plus_ms(ms.max(0) as u64));
            member.revoke_until = (member.current.state == MemberState::UnrevokedPartitions)
                .then(|| now.mono.plus_ms(member.meta.rebalance_timeout_ms.max(0) as u64));
        }
        self.find_soonest();
    }

    fn find_soonest(&mut self) {
        self.soonest = self.next_due();
    }

    fn next_due(&self) -> Option<Instant> {
        self.members.values().flat_map(|member| [member.until, member.revoke_until, member.sync_until]).flatten().min()
    }

    pub(crate) fn state(&self) -> State {
        if self.members.is_empty() {
            State::Empty
        } else if self.epoch > self.assignment_epoch {
            State::Assigning
        } else if self
            .members
            .values()
            .any(|member| member.current.state != MemberState::Stable || member.current.epoch != self.assignment_epoch)
        {
            State::Reconciling
        } else {
            State::Stable
        }
    }

    pub(crate) fn members(&self) -> &BTreeMap<Arc<str>, ConsumerMember> {
        &self.members
    }

    /// `None` while it has members.
    pub(crate) fn empty_since(&self) -> Option<WallMs> {
        self.empty_since.filter(|_| self.members.is_empty())
    }

    pub(crate) fn epoch(&self) -> i32 {
        self.epoch
    }

    pub(crate) fn assignment_epoch(&self) -> i32 {
        self.assignment_epoch
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        debug_assert!(self.next_due().is_none_or(|due| self.soonest.is_some_and(|soonest| soonest <= due)));
        let next = self.assigning.as_ref().map(|assigning| assigning.next);
        next.into_iter().chain(self.soonest).min().filter(|_| !self.members.is_empty())
    }

    /// About what it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        debug_assert_eq!(self.bytes, self.counted());
        self.members.len() * MEMBER_BYTES + self.bytes
    }

    /// What `bytes` must be: counted over everything.
    fn counted(&self) -> usize {
        let member = |(id, member): (&Arc<str>, &ConsumerMember)| {
            id.len() + member.meta.bytes() + current_bytes(&member.current)
        };
        let target = |(id, target): (&Arc<str>, &Assignment)| id.len() + assignment_bytes(target);
        let regex = |(regex, found): (&Arc<str>, &Resolved)| REGEX_BYTES + regex.len() + resolved_bytes(found);
        let members: usize = self.members.iter().map(member).sum();
        members + self.target.iter().map(target).sum::<usize>() + self.regexes.iter().map(regex).sum::<usize>()
    }

    pub(crate) fn is_subscribed(&self, topic: &str) -> bool {
        self.names().any(|name| **name == *topic)
    }

    /// All that somebody reads; some more than once.
    fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        let matched = self.subscriptions.patterns().filter_map(|pattern| self.regexes.get(pattern));
        self.subscriptions.topics().chain(matched.flat_map(|resolved| &resolved.topics))
    }

    /// Names and what its expression matched.
    fn reads<'s>(&'s self, member: &'s ConsumerMember) -> impl Iterator<Item = &'s Arc<str>> {
        let resolved = member.meta.regex.as_ref().and_then(|regex| self.regexes.get(regex));
        member.meta.topics.iter().chain(resolved.into_iter().flat_map(|resolved| &resolved.topics))
    }

    /// Everything that the group's records say of it, taken away.
    pub(crate) fn tombstones(&self, group: &Arc<str>) -> Vec<Record> {
        let group = || group.clone();
        let mut out = Vec::new();
        for member in self.members.keys() {
            out.push(Record::Current { group: group(), member: member.clone(), value: None });
        }
        let targets: BTreeSet<&Arc<str>> = self.members.keys().chain(self.target.keys()).collect();
        for member in targets {
            out.push(Record::Target { group: group(), member: member.clone(), value: None });
        }
        out.push(Record::TargetEpoch { group: group(), value: None });
        for member in self.members.keys() {
            out.push(Record::Member { group: group(), member: member.clone(), value: None });
        }
        for regex in self.regexes.keys() {
            out.push(Record::Regex { group: group(), regex: regex.clone(), value: None });
        }
        out.push(Record::GroupEpoch { group: group(), value: None });
        out
    }

    /// Whether this member may commit for this partition. 113: its epoch is not the present one; an older one will do as long as
    /// the partition has been its own since then.
    pub(crate) fn check_commit(
        &self,
        member: &str,
        epoch: i32,
        partition: (TopicId, PartitionIndex),
    ) -> Result<(), ErrorCode> {
        // From outside, while nobody is in it.
        if epoch < 0 && self.members.is_empty() {
            return Ok(());
        }
        let found = self.members.get(member).ok_or(ErrorCode::UnknownMemberId)?;
        let stale =
            if found.meta.classic.is_some() { ErrorCode::IllegalGeneration } else { ErrorCode::StaleMemberEpoch };
        if epoch == found.current.epoch {
            return Ok(());
        }
        if epoch < 0 || epoch > found.current.epoch {
            return Err(stale);
        }
        let (topic, PartitionIndex(index)) = partition;
        let current = &found.current;
        let since = [&current.assigned, &current.pending_revocation]
            .into_iter()
            .find_map(|of| of.get(&topic)?.get(&index).copied());
        if since.is_some_and(|since| since <= epoch) { Ok(()) } else { Err(stale) }
    }

    pub(crate) fn check_fetch(&self, member: Option<&str>, epoch: i32) -> Result<(), ErrorCode> {
        let Some(member) = member.filter(|_| epoch >= 0) else { return Ok(()) };
        let found = self.members.get(member).ok_or(ErrorCode::UnknownMemberId)?;
        if epoch == found.current.epoch { Ok(()) } else { Err(ErrorCode::StaleMemberEpoch) }
    }

    pub(crate) fn describe(&self, topics: &dyn Topics) -> Vec<DescribedConsumerMember> {
        // A topic that is gone has no name to show.
        let named =
            |topic: &TopicId, partitions: Vec<i32>| topics.by_id(*topic).map(|(name, _)| (*topic, name, partitions));
        let member = |(id, member): (&Arc<str>, &ConsumerMember)| DescribedConsumerMember {
            id: id.clone(),
            instance: member.meta.instance.clone(),
            rack: member.meta.rack.clone(),
            epoch: member.current.epoch,
            client_id: member.meta.client_id.clone(),
            client_host: member.meta.client_host.clone(),
            topics: member.meta.topics.iter().cloned().collect(),
            regex: member.meta.regex.clone(),
            assigned: member
                .current
                .assigned
                .iter()
                .filter_map(|(topic, partitions)| named(topic, partitions.keys().copied().collect()))
                .collect(),
            target: self
                .target
                .get(id)
                .into_iter()
                .flatten()
                .filter_map(|(topic, partitions)| named(topic, partitions.iter().copied().collect()))
                .collect(),
            classic: member.meta.classic.is_some(),
        };
        self.members.iter().map(member).collect()
    }
}

/// The member, made when it is not there, with the id under which it is held: one of a later record would be held beside it.
fn member_of<'m>(
    members: &'m mut BTreeMap<Arc<str>, ConsumerMember>,
    bytes: &mut usize,
    id: &Arc<str>,
) -> (Arc<str>, &'m mut ConsumerMember) {
    let id = match members.get_key_value(id) {
        Some((id, _)) => id.clone(),
        None => {
            *bytes += id.len();
            id.clone()
        }
    };
    (id.clone(), members.entry(id).or_default())
}

fn resolved_bytes(resolved: &Resolved) -> usize {
    resolved.topics.iter().map(|topic| TOPIC_BYTES + topic.len()).sum()
}

fn current_bytes(current: &CurrentAssignment) -> usize {
    let owned = current.assigned.values().chain(current.pending_revocation.values());
    owned.map(|partitions| TOPIC_BYTES + partitions.len() * OWNED_BYTES).sum()
}

fn assignment_bytes(assignment: &Assignment) -> usize {
    assignment.values().map(|partitions| TOPIC_BYTES + partitions.len() * TARGET_BYTES).sum()
}
