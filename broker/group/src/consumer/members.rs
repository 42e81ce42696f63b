//! Who is in the group: leaving, time, and static members that come back.

use std::sync::Arc;

use ringmain_types::*;

use super::{ConsumerGroup, LEAVES_STATIC, NEVER};
use crate::Topics;
use crate::classic::Turn;
use crate::record::{CurrentAssignment, MemberMetadata, MemberState, Record};

/// Tombstones of one member, and what each takes besides its ids, at the most.
const TAKE_OUT_RECORDS: usize = 3;
const TAKE_OUT_BYTES: usize = 48;

impl ConsumerGroup {
    /// Takes members out: what they had is free at once, and the rest is assigned anew. When that was all of them, the next one to come
    /// waits for no interval: there is nobody to be assigned together with.
    pub(crate) fn remove(&mut self, turn: &mut Turn, topics: &dyn Topics, ids: &[Arc<str>]) {
        let mut rest = ids;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(self.batch(turn, rest));
            rest = later;
            for id in now {
                self.take_out(turn, id);
            }
            self.empty_since = Some(turn.now.wall);
            self.refresh_regexes(turn, topics);
            self.advance_epoch(turn, topics, true);
            if self.members.is_empty() {
                let value = Some((self.epoch, NEVER));
                self.write(turn, Record::TargetEpoch { group: turn.group.clone(), value });
            }
            turn.out.cut();
        }
        if self.members.is_empty() {
            self.assigning = None;
        }
    }

    /// How many of them one batch takes out; one at the least.
    fn batch(&self, turn: &Turn, ids: &[Arc<str>]) -> usize {
        let mut left = turn.config.limits.batch_bytes_max as usize / 4;
        let mut fits = |id: &&Arc<str>| {
            let bytes = TAKE_OUT_RECORDS * (TAKE_OUT_BYTES + turn.group.len() + id.len());
            let fits = bytes <= left;
            left = left.saturating_sub(bytes);
            fits
        };
        ids.iter().take_while(|id| fits(id)).count().max(1)
    }

    fn take_out(&mut self, turn: &mut Turn, id: &Arc<str>) {
        let group = turn.group;
        if let Some(assigning) = &mut self.assigning {
            assigning.forget(id);
        }
        self.write(turn, Record::Current { group: group.clone(), member: id.clone(), value: None });
        self.write(turn, Record::Target { group: group.clone(), member: id.clone(), value: None });
        self.write(turn, Record::Member { group: group.clone(), member: id.clone(), value: None });
    }

    /// A static member goes away for a while: it keeps its place until its session ends.
    pub(super) fn step_out(&mut self, turn: &mut Turn, id: &Arc<str>) {
        let Some(member) = self.members.get(id) else { return };
        let value = CurrentAssignment {
            epoch: LEAVES_STATIC,
            previous_epoch: member.current.epoch,
            state: MemberState::Stable,
            assigned: member.current.assigned.clone(),
            // It has gone: there is nothing left that it could give back.
            pending_revocation: Default::default(),
        };
        self.write(turn, Record::Current { group: turn.group.clone(), member: id.clone(), value: Some(value) });
        if let Some(member) = self.members.get_mut(id) {
            (member.revoke_until, member.sync_until) = (None, None);
        }
    }

    /// The same instance under another id takes its place over, with what it had.
    pub(super) fn replace(&mut self, turn: &mut Turn, old: &Arc<str>, new: &Arc<str>, meta: MemberMetadata) {
        let group = turn.group;
        let Some(before) = self.members.get(old) else { return };
        let current = CurrentAssignment { epoch: 0, previous_epoch: 0, ..before.current.clone() };
        let target = self.target.get(old).cloned().unwrap_or_default();
        if let Some(assigning) = &mut self.assigning {
            assigning.rename(old, new);
        }
        self.take_out(turn, old);
        self.write(turn, Record::Member { group: group.clone(), member: new.clone(), value: Some(meta) });
        self.write(turn, Record::Target { group: group.clone(), member: new.clone(), value: Some(target) });
        self.write(turn, Record::Current { group: group.clone(), member: new.clone(), value: Some(current) });
    }

    /// Those whose session ended, and those who did not give back, or ask for what they were given, in time, leave. And what is being
    /// assigned goes on.
    pub(crate) fn expire(&mut self, turn: &mut Turn, topics: &dyn Topics) {
        self.go_on_assigning(turn);
        // Nobody is due: they need not be gone through.
        if self.soonest.is_none_or(|soonest| soonest > turn.now.mono) {
            return;
        }
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= turn.now.mono);
        let lost: Vec<Arc<str>> = self
            .members
            .iter()
            .filter(|(_, member)| due(member.until) || due(member.revoke_until) || due(member.sync_until))
            .map(|(id, _)| id.clone())
            .collect();
        self.remove(turn, topics, &lost);
        self.find_soonest();
    }

    /// A sign of life. Who has something to do for the group has the time of a rebalance for it.
    pub(super) fn touch(&mut self, turn: &Turn, id: &str) {
        let rejoins = self.must_rejoin(id);
        let Some(member) = self.members.get_mut(id) else { return };
        let (session_ms, owes) = match &member.meta.classic {
            Some(classic) => (classic.session_timeout_ms, rejoins),
            None => {
                // It changed over: who speaks this protocol asks for nothing.
                member.sync_until = None;
                let gives = member.current.state == MemberState::UnrevokedPartitions;
                (turn.config.consumer_session_timeout_ms, gives)
            }
        };
        member.until = Some(turn.now.mono.plus_ms(session_ms.max(1) as u64));
        if !owes {
            member.revoke_until = None;
        } else if member.revoke_until.is_none() {
            let ms = member.meta.rebalance_timeout_ms.max(1) as u64;
            member.revoke_until = Some(turn.now.mono.plus_ms(ms));
        }
        let due = [self.soonest, member.until, member.revoke_until, member.sync_until];
        self.soonest = due.into_iter().flatten().min();
    }
}
