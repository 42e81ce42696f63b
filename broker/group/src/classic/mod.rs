//! Classic groups: the clients assign, the broker brings them together.
//!
//! ```text
//!          join                     all joined, or time is up               leader's SyncGroup
//! Empty ---------> Preparing ---------------------------------> Completing --------------------> Stable
//!   ^                 |  ^  ^------------ join, leave, lost ----------'                            |
//!   '--- nobody left -'  '------------------- join, leave, lost, the leader joins again -----------'
//! ```
//! A completed join is a record too, with assignments of no bytes: a generation that a member was told of never comes again, and a
//! group that is loaded in that state starts over.

mod join;
mod member;
mod rebalance;
mod session;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringmain_coordinator::Decision;
use ringmain_types::*;
use ringmain_wire::{ConsumerProtocolSubscription, decode_embedded};

use crate::consumer::{Emigrant, assigned, subscribed};
use crate::group::State;
use crate::record::{ClassicProtocol, Generation, MemberMetadata, Record};
use crate::{DescribedMember, GroupConfig, JoinReply, Joined, JoinedMember, Reply};

pub(crate) use join::uuid;
use member::Member;

/// What a group takes whatever is in it (a map's leaf has eleven places, and members' are large: measured, 3.4 KB for a group of one); what a
/// member takes besides what it says and has; and an id that was handed out.
const GROUP_BYTES: usize = 1500;
const MEMBER_BYTES: usize = 800;
const PENDING_BYTES: usize = 200;

/// What one decision about one group needs and leaves behind.
pub(crate) struct Turn<'a> {
    pub(crate) now: Now,
    pub(crate) config: &'a GroupConfig,
    pub(crate) group: &'a Arc<str>,
    /// The coordinator has no memory left for more than there is.
    pub(crate) full: bool,
    pub(crate) out: &'a mut Decision<Record, Reply>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Empty,
    Preparing { until: Instant, initial: Option<Initial> },
    Completing,
    Stable,
}

/// The first join of an empty group is waited out, so that those who start together are one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Initial {
    /// How much longer it may be drawn out.
    remaining_ms: u64,
    /// Somebody came since the wait began.
    joined: bool,
}

#[derive(Debug)]
pub(crate) struct ClassicGroup {
    // What the records say.
    generation: i32,
    protocol_type: Option<Arc<str>>,
    protocol: Option<Arc<str>>,
    leader: Option<Arc<str>>,
    since: WallMs,
    /// Also those who are not in any generation yet.
    members: BTreeMap<Arc<str>, Member>,

    // Of this life.
    phase: Phase,
    /// Ids that were handed out and not used yet (KIP-394), until when.
    pending: BTreeMap<Arc<str>, Instant>,
    /// Member ids by instance.
    statics: BTreeMap<Arc<str>, Arc<str>>,
    /// How many members know each protocol.
    known: BTreeMap<Arc<str>, usize>,
    /// Members whose join waits.
    joining: usize,
    /// Of all that members say of themselves, and of the ids that were handed out.
    said_bytes: usize,
    pending_bytes: usize,
    /// Of the generation's assignments.
    assigned_bytes: usize,
    /// No session of a member and no id that was handed out ends before; looked up again when it is over. A group of a thousand members
    /// is not gone through for each of their requests.
    soonest: Instant,
    /// By when every member must have sent its SyncGroup.
    sync_until: Option<Instant>,
}

impl Default for ClassicGroup {
    fn default() -> Self {
        ClassicGroup {
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            since: WallMs(-1),
            members: BTreeMap::new(),
            phase: Phase::Empty,
            pending: BTreeMap::new(),
            statics: BTreeMap::new(),
            known: BTreeMap::new(),
            joining: 0,
            said_bytes: 0,
            pending_bytes: 0,
            assigned_bytes: 0,
            soonest: Instant(u64::MAX),
            sync_until: None,
        }
    }
}

impl ClassicGroup {
    pub(crate) fn replay(&mut self, value: &Generation) {
        self.generation = value.generation;
        self.protocol_type = Some(value.protocol_type.clone()).filter(|kind| !kind.is_empty());
        self.protocol = value.protocol.clone();
        self.leader = value.leader.clone();
        self.since = value.since;
        self.assigned_bytes = value.members.iter().map(|member| member.assignment.len()).sum();
        let ids: BTreeSet<&Arc<str>> = value.members.iter().map(|member| &member.id).collect();
        let gone: Vec<Arc<str>> = self.members.keys().filter(|id| !ids.contains(id)).cloned().collect();
        gone.iter().for_each(|id| drop(self.take(id)));
        for record in &value.members {
            match self.members.get_mut(&record.id) {
                Some(member) => member.assignment = record.assignment.clone(),
                None => self.insert(Member::of(record, value.protocol.as_ref())),
            }
        }
    }

    /// A new life of the coordinator: everybody is given a session, nobody waits.
    pub(crate) fn loaded(&mut self, now: Now) {
        self.phase = if self.members.is_empty() {
            Phase::Empty
        } else if self.members.values().all(|member| member.assignment.is_empty()) {
            // The generation was complete, and its assignment never came.
            Phase::Preparing { until: now.mono.plus_ms(self.rebalance_timeout_ms()), initial: None }
        } else {
            Phase::Stable
        };
        self.members.values_mut().for_each(|member| member.touch(now, &mut self.soonest));
    }

    /// Writes the present generation: nothing else changes what its record says.
    fn write(&mut self, turn: &mut Turn, value: Generation) {
        self.replay(&value);
        turn.out.records.push(Record::Classic { group: turn.group.clone(), value: Some(value) });
    }

    fn record(&self, now: Now) -> Generation {
        let protocol = self.protocol.as_deref().unwrap_or("");
        Generation {
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            since: now.wall,
            members: self.members.values().map(|member| member.record(protocol)).collect(),
        }
    }

    /// All members with what they read and have, for the other protocol; `None` when some of them do not say it.
    pub(crate) fn emigrants(&self) -> Option<Vec<Emigrant>> {
        let protocol = self.protocol.as_ref().filter(|_| self.protocol_type.as_deref() == Some("consumer"))?;
        let emigrant = |member: &Member| {
            let meta = MemberMetadata {
                instance: member.instance.clone(),
                client_id: member.client_id.clone(),
                client_host: member.client_host.clone(),
                rebalance_timeout_ms: member.rebalance_timeout_ms,
                classic: Some(ClassicProtocol {
                    session_timeout_ms: member.session_timeout_ms,
                    protocols: member.protocols.clone(),
                }),
                ..MemberMetadata::default()
            };
            let meta = subscribed(&member.metadata(protocol), meta)?;
            Some(Emigrant { id: member.id.clone(), meta, assigned: assigned(&member.assignment) })
        };
        self.members.values().map(emigrant).collect()
    }

    /// Whoever waits here is told to come again.
    pub(crate) fn let_go(&mut self, turn: &mut Turn) {
        for member in self.members.values_mut() {
            if let Some(waiter) = member.joining.take() {
                self.joining -= 1;
                let reply = refused(ErrorCode::RebalanceInProgress, &member.id);
                turn.out.replies.push((waiter, Reply::Join(reply)));
            }
        }
        self.fail_syncs(turn, ErrorCode::RebalanceInProgress);
    }

    pub(crate) fn generation(&self) -> i32 {
        self.generation
    }

    /// After a KIP-848 group became this one: what its members speak, in their order. They are called together.
    pub(crate) fn settle(&mut self, turn: &mut Turn, spoken: Vec<ClassicProtocol>) {
        let ids: Vec<Arc<str>> = self.members.keys().cloned().collect();
        for (id, classic) in ids.iter().zip(spoken) {
            let Some(mut member) = self.take(id) else { continue };
            member.protocols = classic.protocols;
            member.touch(turn.now, &mut self.soonest);
            self.insert(member);
        }
        self.phase = Phase::Stable;
        self.rebalance(turn);
    }

    fn insert(&mut self, member: Member) {
        for (name, _) in &member.protocols {
            *self.known.entry(name.clone()).or_default() += 1;
        }
        if let Some(instance) = &member.instance {
            self.statics.insert(instance.clone(), member.id.clone());
        }
        self.joining += usize::from(member.joining.is_some());
        self.said_bytes += member.bytes();
        self.soonest = self.soonest.min(member.until);
        let before = self.members.insert(member.id.clone(), member);
        assert!(before.is_none());
    }

    fn take(&mut self, id: &str) -> Option<Member> {
        let member = self.members.remove(id)?;
        for (name, _) in &member.protocols {
            match self.known.get_mut(name) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(self.known.remove(name)),
            }
        }
        if let Some(instance) = &member.instance
            && self.statics.get(instance) == Some(&member.id)
        {
            self.statics.remove(instance);
        }
        self.joining -= usize::from(member.joining.is_some());
        self.said_bytes -= member.bytes();
        Some(member)
    }

    /// Hands an id out (KIP-394).
    fn expect(&mut self, id: Arc<str>, until: Instant) {
        self.soonest = self.soonest.min(until);
        self.pending_bytes += PENDING_BYTES + id.len();
        let before = self.pending.insert(id, until);
        assert!(before.is_none(), "an id is random");
    }

    /// Whether this id was handed out; it is not from now on.
    fn take_pending(&mut self, id: &str) -> bool {
        let found = self.pending.remove(id).is_some();
        self.pending_bytes -= if found { PENDING_BYTES + id.len() } else { 0 };
        found
    }

    pub(crate) fn state(&self) -> State {
        match self.phase {
            Phase::Empty => State::Empty,
            Phase::Preparing { .. } => State::PreparingRebalance,
            Phase::Completing => State::CompletingRebalance,
            Phase::Stable => State::Stable,
        }
    }

    pub(crate) fn member_count(&self) -> usize {
        self.members.len()
    }

    /// About what it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        debug_assert_eq!(self.said_bytes, self.members.values().map(Member::bytes).sum::<usize>());
        debug_assert_eq!(self.pending_bytes, self.pending.keys().map(|id| PENDING_BYTES + id.len()).sum::<usize>());
        let names = [&self.protocol_type, &self.protocol].into_iter().flatten().map(|name| name.len()).sum::<usize>();
        let members = self.members.len() * MEMBER_BYTES + self.said_bytes + self.assigned_bytes;
        GROUP_BYTES + names + members + self.pending_bytes
    }

    /// -1 or 0 before the first.
    pub(crate) fn generation_id(&self) -> i32 {
        self.generation
    }

    pub(crate) fn has_members(&self) -> bool {
        !self.members.is_empty()
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    pub(crate) fn protocol_type(&self) -> Option<Arc<str>> {
        self.protocol_type.clone()
    }

    /// Since when it is as it is; `None` of a group that never had a generation.
    pub(crate) fn since(&self) -> Option<WallMs> {
        (self.protocol_type.is_some() && self.since.0 >= 0).then_some(self.since)
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let rebalance = match self.phase {
            Phase::Preparing { until, .. } => Some(until),
            _ => None,
        };
        debug_assert!(self.next_session() >= self.soonest);
        let sessions = Some(self.soonest).filter(|at| *at < Instant(u64::MAX));
        sessions.into_iter().chain(rebalance).chain(self.sync_until).min()
    }

    /// Of a member, or of an id that was handed out.
    fn next_session(&self) -> Instant {
        let members = self.members.values().filter_map(Member::expires);
        members.chain(self.pending.values().copied()).min().unwrap_or(Instant(u64::MAX))
    }

    /// The longest that any member asks for; never now.
    fn rebalance_timeout_ms(&self) -> u64 {
        self.members.values().map(|member| member.rebalance_timeout_ms.max(1) as u64).max().unwrap_or(1)
    }

    /// The protocol's name is part of the answer only in a stable generation.
    pub(crate) fn describe(&self) -> (Arc<str>, Vec<DescribedMember>) {
        let stable = self.phase == Phase::Stable;
        let protocol = self.protocol.clone().filter(|_| stable).unwrap_or_default();
        let members = self.members.values().map(|member| DescribedMember {
            id: member.id.clone(),
            instance: member.instance.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            metadata: if stable { member.metadata(&protocol) } else { Arc::default() },
            assignment: if stable { member.assignment.clone() } else { Arc::default() },
        });
        (protocol.clone(), members.collect())
    }

    /// Whether a member may be reading this topic: only members of type `consumer` say so.
    pub(crate) fn is_subscribed(&self, topic: &str) -> bool {
        let Some(protocol) = &self.protocol else { return false };
        self.members.values().any(|member| {
            let metadata = member.metadata(protocol);
            match decode_embedded::<ConsumerProtocolSubscription>(&metadata) {
                Ok(subscription) => subscription.topics.iter().any(|name| name == topic),
                // Who does not say what he reads may read anything.
                Err(_) => true,
            }
        })
    }

    fn joined(&self, member: &Member) -> Joined {
        let leads = self.leader.as_ref() == Some(&member.id);
        Joined {
            member: member.id.clone(),
            generation: self.generation,
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            protocol: self.protocol.clone().unwrap_or_default(),
            leader: self.leader.clone().unwrap_or_default(),
            skip_assignment: false,
            members: if leads { self.member_list() } else { Vec::new() },
        }
    }

    fn member_list(&self) -> Vec<JoinedMember> {
        let protocol = self.protocol.as_deref().unwrap_or("");
        let members = self.members.values();
        let joined = |member: &Member| JoinedMember {
            id: member.id.clone(),
            instance: member.instance.clone(),
            metadata: member.metadata(protocol),
        };
        members.map(joined).collect()
    }
}

/// The answer to a join that did not succeed.
fn refused(error: ErrorCode, member: &str) -> JoinReply {
    Err((error, member.into()))
}
