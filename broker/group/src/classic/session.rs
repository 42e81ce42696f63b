//! SyncGroup, Heartbeat, LeaveGroup, and what time does to a group.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringmain_coordinator::Waiter;
use ringmain_types::*;
use ringmain_wire::{HeartbeatRequest, LeaveGroupRequest, SyncGroupRequest};

use super::{ClassicGroup, Phase, Turn};
use crate::{LeftMember, Reply};

/// What each member may be assigned where memory is short: groups that are there go on.
const FULL_ASSIGNMENT_BYTES: usize = 1024;

impl ClassicGroup {
    pub(crate) fn sync(&mut self, turn: &mut Turn, waiter: Waiter, ask: &SyncGroupRequest) {
        if let Err(code) = self.check_sync(ask) {
            return turn.out.replies.push((waiter, Reply::Sync(Err(code))));
        }
        let Some(member) = self.members.get_mut(ask.member_id) else { return };
        member.synced = true;
        member.touch(turn.now, &mut self.soonest);
        match self.phase {
            Phase::Empty => turn.out.replies.push((waiter, Reply::Sync(Err(ErrorCode::UnknownMemberId)))),
            Phase::Preparing { .. } => {
                turn.out.replies.push((waiter, Reply::Sync(Err(ErrorCode::RebalanceInProgress))));
            }
            Phase::Stable => {
                let reply = self.synced(ask.member_id);
                turn.out.replies.push((waiter, Reply::Sync(Ok(reply))));
            }
            Phase::Completing => {
                if let Some(before) = member.syncing.replace(waiter) {
                    turn.out.replies.push((before, Reply::Sync(Err(ErrorCode::RebalanceInProgress))));
                }
                if self.leader.as_deref() == Some(ask.member_id) {
                    self.assign(turn, ask);
                }
            }
        }
        if self.members.values().all(|member| member.synced) {
            self.sync_until = None;
        }
    }

    fn check_sync(&self, ask: &SyncGroupRequest) -> Result<(), ErrorCode> {
        self.check_member(ask.member_id, ask.group_instance_id)?;
        if ask.generation_id != self.generation {
            return Err(ErrorCode::IllegalGeneration);
        }
        let differs = |said: Option<&str>, is: &Option<Arc<str>>| said.is_some_and(|said| Some(said) != is.as_deref());
        if differs(ask.protocol_type, &self.protocol_type) || differs(ask.protocol_name, &self.protocol) {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        Ok(())
    }

    /// The leader's word: whom it left out has nothing.
    fn assign(&mut self, turn: &mut Turn, ask: &SyncGroupRequest) {
        let bytes: usize = ask.assignments.iter().map(|assignment| assignment.assignment.len()).sum();
        let max = match turn.full {
            true => self.members.len() * FULL_ASSIGNMENT_BYTES,
            false => usize::MAX,
        };
        let max = max.min(turn.config.limits.group_bytes_max as usize);
        if bytes > max {
            self.fail_syncs(turn, ErrorCode::RecordListTooLarge);
            return self.rebalance(turn);
        }
        let assigned: BTreeMap<&str, &[u8]> =
            ask.assignments.iter().map(|assignment| (assignment.member_id, assignment.assignment)).collect();
        let mut record = self.record(turn.now);
        for member in &mut record.members {
            member.assignment = assigned.get(&*member.id).copied().unwrap_or_default().into();
        }
        self.phase = Phase::Stable;
        self.write(turn, record);
        let waiting: Vec<(Arc<str>, Waiter)> = self
            .members
            .values_mut()
            .filter_map(|member| member.syncing.take().map(|waiter| (member.id.clone(), waiter)))
            .collect();
        for (id, waiter) in waiting {
            let reply = self.synced(&id);
            turn.out.replies.push((waiter, Reply::Sync(Ok(reply))));
            if let Some(member) = self.members.get_mut(&id) {
                member.touch(turn.now, &mut self.soonest);
            }
        }
    }

    fn synced(&self, id: &str) -> (Arc<str>, Arc<str>, Arc<[u8]>) {
        let assignment = self.members.get(id).map(|member| member.assignment.clone()).unwrap_or_default();
        (self.protocol_type.clone().unwrap_or_default(), self.protocol.clone().unwrap_or_default(), assignment)
    }

    pub(crate) fn heartbeat(&mut self, now: Now, ask: &HeartbeatRequest) -> ErrorCode {
        if let Err(code) = self.check_member(ask.member_id, ask.group_instance_id) {
            return code;
        }
        if ask.generation_id != self.generation {
            return ErrorCode::IllegalGeneration;
        }
        let code = match self.phase {
            Phase::Empty => return ErrorCode::UnknownMemberId,
            Phase::Preparing { .. } => ErrorCode::RebalanceInProgress,
            // The member may beat before it has sent its SyncGroup.
            Phase::Completing | Phase::Stable => ErrorCode::None,
        };
        if let Some(member) = self.members.get_mut(ask.member_id) {
            member.touch(now, &mut self.soonest);
        }
        code
    }

    /// All that can leave do, then the rest is called together, once.
    pub(crate) fn leave(&mut self, turn: &mut Turn, waiter: Waiter, ask: &LeaveGroupRequest, version: i16) {
        let mut left = Vec::new();
        let mut changed = false;
        if version < 3 {
            let error = self.leave_one(turn, ask.member_id, None, &mut changed);
            left.push(LeftMember { member: ask.member_id.into(), instance: None, error });
        } else {
            for member in &ask.members {
                let error = self.leave_one(turn, member.member_id, member.group_instance_id, &mut changed);
                let instance = member.group_instance_id.map(Into::into);
                left.push(LeftMember { member: member.member_id.into(), instance, error });
            }
        }
        turn.out.replies.push((waiter, Reply::Left(left)));
        if changed {
            self.rebalance(turn);
        }
    }

    fn leave_one(&mut self, turn: &mut Turn, id: &str, instance: Option<&str>, changed: &mut bool) -> ErrorCode {
        // An administrator names the instance alone.
        let id: Arc<str> = match (instance, id) {
            (Some(instance), "") => match self.statics.get(instance) {
                Some(id) => id.clone(),
                None => return ErrorCode::UnknownMemberId,
            },
            _ => id.into(),
        };
        if self.take_pending(&id) {
            *changed |= matches!(self.phase, Phase::Preparing { .. });
            return ErrorCode::None;
        }
        if let Err(code) = self.check_member(&id, instance) {
            return code;
        }
        self.remove(turn, &id);
        *changed = true;
        ErrorCode::None
    }

    /// Whether this member may commit now; it is a sign of life.
    pub(crate) fn check_commit(
        &mut self,
        now: Now,
        member: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Result<(), ErrorCode> {
        if generation < 0 && self.phase == Phase::Empty {
            return Ok(());
        }
        if generation < 0 && member.is_empty() && instance.is_none() {
            return Err(ErrorCode::UnknownMemberId);
        }
        self.check_member(member, instance)?;
        if generation != self.generation {
            return Err(ErrorCode::IllegalGeneration);
        }
        if self.phase == Phase::Completing {
            return Err(ErrorCode::RebalanceInProgress);
        }
        if let Some(member) = self.members.get_mut(member) {
            member.touch(now, &mut self.soonest);
        }
        Ok(())
    }

    /// Everything that is due.
    pub(crate) fn expire(&mut self, turn: &mut Turn) {
        let now = turn.now.mono;
        let mut changed = false;
        let lapsed = self.pending.iter().filter(|(_, until)| **until <= now);
        let lapsed: Vec<Arc<str>> = lapsed.map(|(id, _)| id.clone()).collect();
        for id in lapsed {
            self.take_pending(&id);
            changed |= matches!(self.phase, Phase::Preparing { .. });
        }
        let lost = self.members.values().filter(|member| member.expires().is_some_and(|until| until <= now));
        let mut lost: Vec<Arc<str>> = lost.map(|member| member.id.clone()).collect();
        if self.sync_until.is_some_and(|until| until <= now) {
            self.sync_until = None;
            lost.extend(self.members.values().filter(|member| !member.synced).map(|member| member.id.clone()));
        }
        for id in lost {
            changed |= self.members.contains_key(&id);
            self.remove(turn, &id);
        }
        if changed {
            self.rebalance(turn);
        }
        if let Phase::Preparing { until, initial } = self.phase
            && until <= now
        {
            self.join_time_is_up(turn, initial);
        }
        self.soonest = self.next_session();
    }
}
