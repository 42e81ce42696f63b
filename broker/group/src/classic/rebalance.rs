//! From one generation to the next.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringmain_types::*;

use super::{ClassicGroup, Initial, Phase, Turn, refused};
use crate::Reply;

impl ClassicGroup {
    /// Something changed: the members are called together, or, if they are coming already, it may be complete.
    pub(super) fn rebalance(&mut self, turn: &mut Turn) {
        match self.phase {
            Phase::Preparing { initial: None, .. } => self.complete_if_all_joined(turn),
            // The wait of an empty group is waited out.
            Phase::Preparing { initial: Some(_), .. } => {}
            Phase::Empty | Phase::Completing | Phase::Stable => self.prepare(turn),
        }
    }

    fn prepare(&mut self, turn: &mut Turn) {
        if self.phase == Phase::Completing {
            self.fail_syncs(turn, ErrorCode::RebalanceInProgress);
        }
        self.sync_until = None;
        let timeout_ms = self.rebalance_timeout_ms();
        if self.phase == Phase::Empty {
            let delay_ms = turn.config.initial_rebalance_delay_ms.max(0) as u64;
            let initial = Initial { remaining_ms: timeout_ms.saturating_sub(delay_ms), joined: false };
            self.phase = Phase::Preparing { until: turn.now.mono.plus_ms(delay_ms), initial: Some(initial) };
        } else {
            self.phase = Phase::Preparing { until: turn.now.mono.plus_ms(timeout_ms), initial: None };
            self.complete_if_all_joined(turn);
        }
    }

    fn complete_if_all_joined(&mut self, turn: &mut Turn) {
        if self.joining == self.members.len() && self.pending.is_empty() {
            self.complete(turn);
        }
    }

    /// The time for joining is up.
    pub(super) fn join_time_is_up(&mut self, turn: &mut Turn, initial: Option<Initial>) {
        match initial {
            Some(Initial { remaining_ms, joined: true })
                if remaining_ms > 0 && turn.config.initial_rebalance_delay_ms > 0 =>
            {
                let delay_ms = (turn.config.initial_rebalance_delay_ms as u64).min(remaining_ms);
                let initial = Initial { remaining_ms: remaining_ms - delay_ms, joined: false };
                self.phase = Phase::Preparing { until: turn.now.mono.plus_ms(delay_ms), initial: Some(initial) };
            }
            _ => self.complete(turn),
        }
    }

    /// The next generation: of those who came, and of static members, who may be restarting.
    fn complete(&mut self, turn: &mut Turn) {
        let gone: Vec<Arc<str>> = self
            .members
            .values()
            .filter(|member| member.joining.is_none() && member.instance.is_none())
            .map(|member| member.id.clone())
            .collect();
        gone.iter().for_each(|id| drop(self.take(id)));
        if !self.members.is_empty() && !self.elect_leader() {
            // Only static members, none of which came: they have the time of another round, or their sessions end.
            self.phase = Phase::Preparing { until: turn.now.mono.plus_ms(self.rebalance_timeout_ms()), initial: None };
            return;
        }
        self.generation = self.generation.checked_add(1).unwrap_or(0);
        self.protocol = self.select_protocol();
        self.members.values_mut().for_each(|member| member.assignment = Arc::default());
        if self.members.is_empty() {
            self.leader = None;
            self.phase = Phase::Empty;
            self.write(turn, self.record(turn.now));
            return;
        }
        self.phase = Phase::Completing;
        self.write(turn, self.record(turn.now));
        self.sync_until = Some(turn.now.mono.plus_ms(self.rebalance_timeout_ms()));
        let ids: Vec<Arc<str>> = self.members.keys().cloned().collect();
        for id in ids {
            let joined = self.joined(&self.members[&id]);
            let Some(member) = self.members.get_mut(&id) else { continue };
            member.touch(turn.now, &mut self.soonest);
            (member.new, member.synced) = (false, false);
            if let Some(waiter) = member.joining.take() {
                self.joining -= 1;
                turn.out.replies.push((waiter, Reply::Join(Ok(joined))));
            }
        }
    }

    /// Somebody who is here. The old leader if it is.
    fn elect_leader(&mut self) -> bool {
        let leads = |id: &Arc<str>| self.members.get(id).is_some_and(|member| member.joining.is_some());
        if self.leader.as_ref().is_some_and(leads) {
            return true;
        }
        let next = self.members.values().find(|member| member.joining.is_some());
        let Some(next) = next else { return false };
        self.leader = Some(next.id.clone());
        true
    }

    /// Each member votes for the first of its protocols that all know; ties go to the leader's order of names.
    pub(super) fn select_protocol(&self) -> Option<Arc<str>> {
        let mut votes: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
        for member in self.members.values() {
            let vote = member.protocols.iter().find(|(name, _)| self.known.get(name) == Some(&self.members.len()));
            if let Some((name, _)) = vote {
                *votes.entry(name).or_default() += 1;
            }
        }
        votes.into_iter().max_by_key(|(_, votes)| *votes).map(|(name, _)| name.clone())
    }

    pub(super) fn fail_syncs(&mut self, turn: &mut Turn, error: ErrorCode) {
        for member in self.members.values_mut() {
            member.assignment = Arc::default();
            if let Some(waiter) = member.syncing.take() {
                // Its session stood still while it waited.
                member.touch(turn.now, &mut self.soonest);
                turn.out.replies.push((waiter, Reply::Sync(Err(error))));
            }
        }
    }

    /// Takes a member out; whoever waits in its name is told.
    pub(super) fn remove(&mut self, turn: &mut Turn, id: &str) {
        let Some(member) = self.take(id) else { return };
        if let Some(waiter) = member.joining {
            turn.out.replies.push((waiter, Reply::Join(refused(ErrorCode::UnknownMemberId, id))));
        }
        if let Some(waiter) = member.syncing {
            turn.out.replies.push((waiter, Reply::Sync(Err(ErrorCode::UnknownMemberId))));
        }
        if self.leader.as_deref() == Some(id) {
            self.leader = self.members.keys().next().cloned();
        }
    }
}
