//! JoinGroup.

use std::sync::Arc;

use ringmain_coordinator::Waiter;
use ringmain_types::*;
use ringmain_wire::JoinGroupRequest;

use super::member::Member;
use super::{ClassicGroup, Phase, Turn, refused};
use crate::record::{Protocols, asked_protocol_bytes, protocol_bytes};
use crate::{Client, JoinReply, Reply};

/// How long a new member may wait for its first generation: its client may have gone, and no heartbeat says so.
const NEW_MEMBER_JOIN_MS: u64 = 300_000;

impl ClassicGroup {
    /// Session timeout and group id were checked.
    pub(crate) fn join(&mut self, turn: &mut Turn, waiter: Waiter, ask: &JoinGroupRequest, client: &Client) {
        if let Err(refusal) = self.try_join(turn, waiter, ask, client) {
            turn.out.replies.push((waiter, Reply::Join(refusal)));
        }
    }

    /// `Err` is an answer at once, a good one too; otherwise the waiter was answered or is kept.
    fn try_join(
        &mut self,
        turn: &mut Turn,
        waiter: Waiter,
        ask: &JoinGroupRequest,
        client: &Client,
    ) -> Result<(), JoinReply> {
        let id = ask.member_id;
        if !self.has_room(turn, ask, client) {
            if self.members.contains_key(id) {
                self.remove(turn, id);
                self.rebalance(turn);
            }
            return Err(refused(ErrorCode::GroupMaxSizeReached, ""));
        }
        let protocols: Protocols =
            ask.protocols.iter().map(|protocol| (protocol.name.into(), protocol.metadata.into())).collect();
        if !self.supports(ask.protocol_type, &protocols) {
            return Err(refused(ErrorCode::InconsistentGroupProtocol, id));
        }
        if id.is_empty() {
            return self.join_new(turn, waiter, (ask, client), protocols);
        }
        if self.pending.contains_key(id) {
            if ask.group_instance_id.is_some() {
                return Err(refused(ErrorCode::UnknownMemberId, id));
            }
            self.take_pending(id);
            self.add(turn, waiter, Member::new(id.into(), ask, client, protocols), ask.protocol_type);
            return Ok(());
        }
        self.check_member(id, ask.group_instance_id).map_err(|code| refused(code, id))?;
        self.join_again(turn, waiter, ask, protocols)
    }

    /// As on Kafka, an empty group takes anybody, and one that rebalances counts those who came back.
    fn has_room(&self, turn: &Turn, ask: &JoinGroupRequest, client: &Client) -> bool {
        let limits = &turn.config.limits;
        let member = self.members.get(ask.member_id);
        let before = member.map_or(0, Member::bytes);
        let others = self.said_bytes - before;
        let bytes = match member {
            // Only its protocols change.
            Some(member) => before - protocol_bytes(&member.protocols) + asked_protocol_bytes(ask),
            None => {
                let instance = ask.group_instance_id.map_or(0, str::len);
                let id = instance.max(client.id.len()) + UUID_BYTES;
                let names = id.max(ask.member_id.len()) + instance + client.id.len() + client.host.len();
                names + asked_protocol_bytes(ask)
            }
        };
        let grows = member.is_none() || bytes > before;
        let bounded = !(turn.full && grows)
            && bytes <= limits.member_bytes_max as usize
            && others + bytes <= limits.group_bytes_max as usize
            && (member.is_some() || self.members.len() + self.pending.len() < limits.members_max as usize);
        let max = turn.config.max_size as usize;
        let allowed = match self.phase {
            Phase::Empty => true,
            Phase::Preparing { .. } => member.is_some_and(|member| member.joining.is_some()) || self.joining < max,
            Phase::Completing | Phase::Stable => member.is_some() || self.members.len() < max,
        };
        bounded && allowed
    }

    /// Whether there is a protocol that all members would know.
    fn supports(&self, kind: &str, protocols: &Protocols) -> bool {
        if self.members.is_empty() {
            return !kind.is_empty() && !protocols.is_empty();
        }
        self.protocol_type.as_deref() == Some(kind)
            && protocols.iter().any(|(name, _)| self.known.get(name) == Some(&self.members.len()))
    }

    fn join_new(
        &mut self,
        turn: &mut Turn,
        waiter: Waiter,
        (ask, client): (&JoinGroupRequest, &Client),
        protocols: Protocols,
    ) -> Result<(), JoinReply> {
        let prefix = ask.group_instance_id.unwrap_or(client.id);
        let id: Arc<str> = format!("{prefix}-{}", uuid(client.random)).into();
        let Some(instance) = ask.group_instance_id else {
            // KIP-394: an id first, so that a client that gives up waiting leaves no member behind.
            if client.version >= 4 {
                let until = turn.now.mono.plus_ms(ask.session_timeout_ms.max(0) as u64);
                self.expect(id.clone(), until);
                return Err(refused(ErrorCode::MemberIdRequired, &id));
            }
            self.add(turn, waiter, Member::new(id, ask, client, protocols), ask.protocol_type);
            return Ok(());
        };
        match self.statics.get(instance).cloned() {
            Some(old) => {
                let next = Member::new(id, ask, client, protocols);
                self.replace_static(turn, waiter, (&old, next), client.version)
            }
            None => {
                self.add(turn, waiter, Member::new(id, ask, client, protocols), ask.protocol_type);
                Ok(())
            }
        }
    }

    fn add(&mut self, turn: &mut Turn, waiter: Waiter, mut member: Member, kind: &str) {
        member.joining = Some(waiter);
        member.until = turn.now.mono.plus_ms(NEW_MEMBER_JOIN_MS);
        if self.members.is_empty() {
            self.protocol_type = Some(kind.into());
        }
        if self.leader.is_none() {
            self.leader = Some(member.id.clone());
        }
        self.insert(member);
        if let Phase::Preparing { initial: Some(initial), .. } = &mut self.phase {
            initial.joined = true;
        }
        self.rebalance(turn);
    }

    fn join_again(
        &mut self,
        turn: &mut Turn,
        waiter: Waiter,
        ask: &JoinGroupRequest,
        protocols: Protocols,
    ) -> Result<(), JoinReply> {
        let Some(member) = self.members.get_mut(ask.member_id) else {
            return Err(refused(ErrorCode::UnknownMemberId, ask.member_id));
        };
        let same = member.protocols == protocols;
        let leads = self.leader.as_ref() == Some(&member.id);
        match self.phase {
            Phase::Empty => return Err(refused(ErrorCode::UnknownMemberId, ask.member_id)),
            // It did not get the answer: the generation stands.
            Phase::Completing if same => {
                member.touch(turn.now, &mut self.soonest);
                let member = &self.members[ask.member_id];
                return Err(Ok(self.joined(member)));
            }
            // A follower that joins again with nothing new is told where it is; a leader asks for another assignment.
            Phase::Stable if same && !leads => {
                member.touch(turn.now, &mut self.soonest);
                let member = &self.members[ask.member_id];
                return Err(Ok(self.joined(member)));
            }
            Phase::Preparing { .. } | Phase::Completing | Phase::Stable => {}
        }
        self.update(turn, waiter, ask, protocols);
        self.rebalance(turn);
        Ok(())
    }

    /// The member says anew what it knows, and waits.
    fn update(&mut self, turn: &mut Turn, waiter: Waiter, ask: &JoinGroupRequest, protocols: Protocols) {
        let Some(mut member) = self.take(ask.member_id) else { return };
        member.update(ask, protocols);
        let before = member.joining.replace(waiter);
        self.insert(member);
        // Its earlier request: from a connection that is gone, or nobody would ask twice.
        if let Some(before) = before {
            let reply = refused(ErrorCode::RebalanceInProgress, ask.member_id);
            turn.out.replies.push((before, Reply::Join(reply)));
        }
    }

    /// The same instance under a new id: whoever has the old one is fenced (KIP-345).
    fn replace_static(
        &mut self,
        turn: &mut Turn,
        waiter: Waiter,
        (old, mut next): (&Arc<str>, Member),
        version: i16,
    ) -> Result<(), JoinReply> {
        let Some(before) = self.take(old) else { return Err(refused(ErrorCode::UnknownMemberId, "")) };
        if let Some(waiting) = before.joining {
            turn.out.replies.push((waiting, Reply::Join(refused(ErrorCode::FencedInstanceId, old))));
        }
        if let Some(waiting) = before.syncing {
            turn.out.replies.push((waiting, Reply::Sync(Err(ErrorCode::FencedInstanceId))));
        }
        next.assignment = before.assignment;
        (next.new, next.synced) = (before.new, before.synced);
        next.touch(turn.now, &mut self.soonest);
        let (id, led) = (next.id.clone(), self.leader.as_ref() == Some(old));
        let old_leader = self.leader.clone();
        if led {
            self.leader = Some(id.clone());
        }
        let stays = self.phase == Phase::Stable;
        if !stays {
            next.joining = Some(waiter);
        }
        self.insert(next);
        // Nothing to assign anew when the same protocol would be chosen again (KIP-814).
        if stays && self.protocol == self.select_protocol() {
            self.write(turn, self.record(turn.now));
            let mut joined = self.joined(&self.members[&id]);
            if version >= 9 {
                joined.skip_assignment = led;
            } else {
                // An older client must not take itself for the leader: it would assign.
                joined.members = Vec::new();
                joined.leader = old_leader.unwrap_or_default();
            }
            return Err(Ok(joined));
        }
        if stays && let Some(mut member) = self.take(&id) {
            member.joining = Some(waiter);
            self.insert(member);
        }
        self.rebalance(turn);
        Ok(())
    }

    /// 25 when there is no such member, 82 when another has the instance now.
    pub(super) fn check_member(&self, id: &str, instance: Option<&str>) -> Result<(), ErrorCode> {
        if let Some(instance) = instance {
            match self.statics.get(instance) {
                None => return Err(ErrorCode::UnknownMemberId),
                Some(member) if **member != *id => return Err(ErrorCode::FencedInstanceId),
                Some(_) => {}
            }
        }
        if self.members.contains_key(id) { Ok(()) } else { Err(ErrorCode::UnknownMemberId) }
    }
}

/// With the hyphen before it.
const UUID_BYTES: usize = 37;

/// Of version 4, as Kafka's.
pub(crate) fn uuid(random: u128) -> String {
    let bits = random & !(0xf << 76) & !(0x3 << 62) | 4 << 76 | 2 << 62;
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
