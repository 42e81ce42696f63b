//! Members that speak the classic protocol in a KIP-848 group: while a group changes over, the two live together.
//!
//! The broker assigns for all of them. A classic member learns by heartbeat that it has to join again; its JoinGroup says what it
//! owns and takes the next step towards its target, and its SyncGroup fetches what it has now.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringmain_types::*;
use ringmain_wire::consumer_protocol_assignment::TopicPartition;
use ringmain_wire::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest,
    SyncGroupRequest, decode_embedded, encode_value,
};

use super::heartbeat::is_within;
use super::{ConsumerGroup, ConsumerMember, NEVER};
use crate::classic::{Turn, uuid};
use crate::record::{
    Assignment, ClassicProtocol, CurrentAssignment, Generation, GenerationMember, MemberMetadata, MemberState,
    Protocols, Record, asked_protocol_bytes, protocol_bytes,
};
use crate::{Client, JoinReply, Joined, LeftMember, SyncReply, Topics};

const PROTOCOL_TYPE: &str = "consumer";
/// The newest form of an assignment that members are told in.
const ASSIGNMENT_VERSION_MAX: i16 = 3;

/// A classic member on its way into a KIP-848 group.
pub(crate) struct Emigrant {
    pub(crate) id: Arc<str>,
    pub(crate) meta: MemberMetadata,
    /// Topic names and partitions.
    pub(crate) assigned: Vec<(String, Vec<i32>)>,
}

/// The subscription that classic metadata holds, as a member's. `None` when it holds none.
pub(crate) fn subscribed(metadata: &[u8], mut meta: MemberMetadata) -> Option<MemberMetadata> {
    let subscription: ConsumerProtocolSubscription = decode_embedded(metadata).ok()?;
    meta.topics = subscription.topics.iter().map(Into::into).collect();
    meta.rack = subscription.rack_id.map(Into::into);
    Some(meta)
}

/// Topic names and partitions of a classic assignment; nothing when it holds none.
pub(crate) fn assigned(assignment: &[u8]) -> Vec<(String, Vec<i32>)> {
    let Ok(assignment) = decode_embedded::<ConsumerProtocolAssignment>(assignment) else { return Vec::new() };
    let topics = assignment.assigned_partitions.iter();
    topics.map(|topic| (topic.topic.to_owned(), topic.partitions.iter().map(|index| index.0).collect())).collect()
}

impl ConsumerGroup {
    /// Takes a classic generation over: everybody keeps what he has, under the generation as his epoch.
    pub(crate) fn immigrate(&mut self, turn: &mut Turn, topics: &dyn Topics, generation: i32, members: Vec<Emigrant>) {
        let group = turn.group;
        self.write(turn, Record::GroupEpoch { group: group.clone(), value: Some((generation, 0)) });
        let mut taken = Assignment::new();
        for Emigrant { id, meta, assigned } in members {
            let mut has = BTreeMap::<TopicId, BTreeMap<i32, i32>>::new();
            for (name, partitions) in assigned {
                let Some((topic, _)) = topics.by_name(&name) else { continue };
                // A leader that gave a partition to two gave it to one.
                let free = partitions.into_iter().filter(|index| taken.entry(topic).or_default().insert(*index));
                has.entry(topic).or_default().extend(free.map(|index| (index, generation)));
            }
            let target: Assignment =
                has.iter().map(|(topic, partitions)| (*topic, partitions.keys().copied().collect())).collect();
            let current = CurrentAssignment {
                epoch: generation,
                previous_epoch: generation,
                state: MemberState::Stable,
                assigned: has,
                pending_revocation: BTreeMap::new(),
            };
            let member = || id.clone();
            self.write(turn, Record::Member { group: group.clone(), member: member(), value: Some(meta) });
            self.write(turn, Record::Target { group: group.clone(), member: member(), value: Some(target) });
            self.write(turn, Record::Current { group: group.clone(), member: member(), value: Some(current) });
            self.touch(turn, &id);
        }
        // Whoever comes now is assigned at once.
        self.write(turn, Record::TargetEpoch { group: group.clone(), value: Some((generation, NEVER)) });
    }

    /// The classic generation that this group becomes, with all that its members speak, when nobody in it speaks KIP-848 any more.
    pub(crate) fn emigrate(&self, turn: &Turn, topics: &dyn Topics) -> Option<(Generation, Vec<ClassicProtocol>)> {
        if self.members.is_empty() {
            return None;
        }
        let spoken: Option<Vec<&ClassicProtocol>> =
            self.members.values().map(|member| member.meta.classic.as_ref()).collect();
        let spoken: Vec<ClassicProtocol> = spoken?.into_iter().cloned().collect();
        let named = |(id, member): (&Arc<str>, &ConsumerMember)| {
            let instance = member.meta.instance.as_deref().map_or(0, str::len);
            id.len() + instance + member.meta.client_id.len() + member.meta.client_host.len()
        };
        let said = spoken.iter().map(|classic| protocol_bytes(&classic.protocols)).sum::<usize>();
        // No more than may join one.
        if said + self.members.iter().map(named).sum::<usize>() > turn.config.limits.group_bytes_max as usize {
            return None;
        }
        let first = &self.members.values().next()?.meta.classic.as_ref()?.protocols;
        let knows =
            |classic: &ClassicProtocol, name: &Arc<str>| classic.protocols.iter().any(|(known, _)| known == name);
        let (protocol, _) = first.iter().find(|(name, _)| spoken.iter().all(|classic| knows(classic, name)))?;
        let member = |(id, member): (&Arc<str>, &ConsumerMember)| GenerationMember {
            id: id.clone(),
            instance: member.meta.instance.clone(),
            client_id: member.meta.client_id.clone(),
            client_host: member.meta.client_host.clone(),
            rebalance_timeout_ms: member.meta.rebalance_timeout_ms,
            session_timeout_ms: member.meta.classic.as_ref().map_or(0, |classic| classic.session_timeout_ms),
            subscription: metadata(member, protocol),
            assignment: self.classic_assignment(member, topics),
        };
        let generation = Generation {
            protocol_type: PROTOCOL_TYPE.into(),
            generation: self.epoch,
            protocol: Some(protocol.clone()),
            leader: self.members.keys().next().cloned(),
            since: turn.now.wall,
            members: self.members.iter().map(member).collect(),
        };
        Some((generation, spoken))
    }

    pub(crate) fn classic_join(
        &mut self,
        turn: &mut Turn,
        topics: &dyn Topics,
        ask: &JoinGroupRequest,
        client: &Client,
    ) -> JoinReply {
        let refuse = |code, id: &str| -> JoinReply { Err((code, id.into())) };
        if asked_protocol_bytes(ask) > turn.config.limits.member_bytes_max as usize {
            return refuse(ErrorCode::GroupMaxSizeReached, ask.member_id);
        }
        let protocols: Protocols =
            ask.protocols.iter().map(|protocol| (protocol.name.into(), protocol.metadata.into())).collect();
        let classic = ClassicProtocol { session_timeout_ms: ask.session_timeout_ms, protocols };
        let meta = MemberMetadata {
            instance: ask.group_instance_id.map(Into::into),
            client_id: client.id.into(),
            client_host: client.host.into(),
            rebalance_timeout_ms: match ask.rebalance_timeout_ms {
                ..0 => ask.session_timeout_ms,
                timeout => timeout,
            },
            ..MemberMetadata::default()
        };
        let first = classic.protocols.first().filter(|_| ask.protocol_type == PROTOCOL_TYPE).cloned();
        let Some((name, metadata)) = first.filter(|_| self.shares_protocol(ask.member_id, &classic)) else {
            return refuse(ErrorCode::InconsistentGroupProtocol, ask.member_id);
        };
        let Some(meta) = subscribed(&metadata, meta) else {
            return refuse(ErrorCode::InconsistentGroupProtocol, ask.member_id);
        };
        let meta = MemberMetadata { classic: Some(classic), ..meta };
        if !is_within(turn, &ask.member_id.into(), &meta, turn.config.limits.batch_bytes_max as usize / 2) {
            return refuse(ErrorCode::GroupMaxSizeReached, ask.member_id);
        }
        let id: Arc<str> = match ask.member_id {
            "" => format!("{}-{}", ask.group_instance_id.unwrap_or(client.id), uuid(client.random)).into(),
            id => id.into(),
        };
        if ask.member_id.is_empty() && ask.group_instance_id.is_none() && client.version >= 4 {
            return refuse(ErrorCode::MemberIdRequired, &id);
        }
        let changed = match self.classic_enter(turn, &id, ask, meta) {
            Ok(changed) => changed,
            Err(code) => return refuse(code, &id),
        };
        let matched = self.refresh_regexes(turn, topics);
        self.advance_epoch(turn, topics, changed || matched);
        self.update_target(turn, topics);
        if let Some(next) = self.next_step(&id, Some(&owned(&metadata, topics))) {
            let record = Record::Current { group: turn.group.clone(), member: id.clone(), value: Some(next) };
            self.write(turn, record);
        }
        let mut epoch = 0;
        if let Some(member) = self.members.get_mut(&id) {
            epoch = member.current.epoch;
            member.sync_until = Some(turn.now.mono.plus_ms(member.meta.rebalance_timeout_ms.max(1) as u64));
        }
        self.touch(turn, &id);
        // Nobody leads: the broker assigns.
        Ok(Joined {
            member: id,
            generation: epoch,
            protocol_type: PROTOCOL_TYPE.into(),
            protocol: name,
            ..Joined::default()
        })
    }

    /// Whether the classic members would still have a protocol in common.
    fn shares_protocol(&self, id: &str, classic: &ClassicProtocol) -> bool {
        let others = || self.members.iter().filter(|(other, _)| ***other != *id);
        classic.protocols.iter().any(|(name, _)| {
            others()
                .filter_map(|(_, member)| member.meta.classic.as_ref())
                .all(|spoken| spoken.protocols.iter().any(|(known, _)| known == name))
        })
    }

    /// Whether the group has to be assigned anew.
    fn classic_enter(
        &mut self,
        turn: &mut Turn,
        id: &Arc<str>,
        ask: &JoinGroupRequest,
        meta: MemberMetadata,
    ) -> Result<bool, ErrorCode> {
        let before = ask.group_instance_id.and_then(|instance| self.statics.get(instance).cloned());
        match before {
            // A static member that restarts has a new id and tells nobody of the old one.
            Some(old) if old != *id && ask.member_id.is_empty() => {
                let changed = self.members.get(&old).is_none_or(|found| found.meta.topics != meta.topics);
                self.replace(turn, &old, id, meta);
                return Ok(changed);
            }
            Some(old) if old != *id => return Err(ErrorCode::FencedInstanceId),
            None if ask.group_instance_id.is_some() && !ask.member_id.is_empty() => {
                return Err(ErrorCode::UnknownMemberId);
            }
            _ => {}
        }
        let max = turn.config.consumer_max_size.min(turn.config.limits.members_max) as usize;
        if !self.members.contains_key(id) {
            if turn.full || self.members.len() >= max {
                return Err(ErrorCode::GroupMaxSizeReached);
            }
            self.write(turn, Record::Member { group: turn.group.clone(), member: id.clone(), value: Some(meta) });
            return Ok(true);
        }
        Ok(self.update(turn, id, meta))
    }

    /// A member of the classic protocol, in its present epoch.
    fn classic_member(&self, id: &str, instance: Option<&str>, generation: i32) -> Result<&ConsumerMember, ErrorCode> {
        if let Some(instance) = instance {
            match self.statics.get(instance) {
                None => return Err(ErrorCode::UnknownMemberId),
                Some(owner) if **owner != *id => return Err(ErrorCode::FencedInstanceId),
                Some(_) => {}
            }
        }
        let member = self.members.get(id).filter(|member| member.meta.classic.is_some());
        let member = member.ok_or(ErrorCode::UnknownMemberId)?;
        if generation == member.current.epoch { Ok(member) } else { Err(ErrorCode::IllegalGeneration) }
    }

    /// Whether a classic member has to join again to get further.
    pub(super) fn must_rejoin(&self, id: &str) -> bool {
        let Some(member) = self.members.get(id) else { return false };
        let waits = || {
            let target = self.target_of(id).into_iter().flatten();
            target
                .flat_map(|(topic, partitions)| partitions.iter().map(move |index| (*topic, *index)))
                .any(|at| self.owners.get(&at).is_some_and(|owner| **owner != *id))
        };
        member.current.epoch < self.epoch
            || member.current.state == MemberState::UnrevokedPartitions
            || (member.current.state == MemberState::UnreleasedPartitions && !waits())
    }

    pub(crate) fn classic_heartbeat(&mut self, turn: &Turn, ask: &HeartbeatRequest) -> ErrorCode {
        if let Err(code) = self.classic_member(ask.member_id, ask.group_instance_id, ask.generation_id) {
            return code;
        }
        self.touch(turn, ask.member_id);
        if self.must_rejoin(ask.member_id) { ErrorCode::RebalanceInProgress } else { ErrorCode::None }
    }

    pub(crate) fn classic_sync(&mut self, turn: &Turn, topics: &dyn Topics, ask: &SyncGroupRequest) -> SyncReply {
        let member = self.classic_member(ask.member_id, ask.group_instance_id, ask.generation_id)?;
        let spoken = member.meta.classic.as_ref().and_then(|classic| classic.protocols.first());
        let name = spoken.map(|(name, _)| name.clone()).unwrap_or_default();
        let differs = |said: Option<&str>, is: &str| said.is_some_and(|said| said != is);
        if differs(ask.protocol_type, PROTOCOL_TYPE) || differs(ask.protocol_name, &name) {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        let assignment = self.classic_assignment(member, topics);
        if self.must_rejoin(ask.member_id) && member.current.state != MemberState::UnrevokedPartitions {
            return Err(ErrorCode::RebalanceInProgress);
        }
        self.touch(turn, ask.member_id);
        if let Some(member) = self.members.get_mut(ask.member_id) {
            member.sync_until = None;
        }
        Ok((PROTOCOL_TYPE.into(), name, assignment))
    }

    /// What a member has, in the words of its protocol: of the version that it speaks itself.
    fn classic_assignment(&self, member: &ConsumerMember, topics: &dyn Topics) -> Arc<[u8]> {
        let has = member.current.assigned.iter().filter_map(|(topic, partitions)| {
            let (name, _) = topics.by_id(*topic)?;
            Some((name, partitions.keys().map(|index| PartitionIndex(*index)).collect::<Vec<_>>()))
        });
        let has: Vec<(Arc<str>, Vec<PartitionIndex>)> = has.collect();
        let assigned_partitions = has
            .iter()
            .map(|(topic, partitions)| TopicPartition { topic, partitions: partitions.clone().into() })
            .collect();
        let body = ConsumerProtocolAssignment { assigned_partitions, user_data: None };
        let spoken = member.meta.classic.as_ref().and_then(|classic| classic.protocols.first());
        let version =
            spoken.and_then(|(_, metadata)| metadata.first_chunk::<2>()).map_or(0, |v| i16::from_be_bytes(*v));
        encode_value(version.clamp(0, ASSIGNMENT_VERSION_MAX), &body).into()
    }

    /// Members of the classic protocol alone: the others leave by their own request.
    pub(crate) fn classic_leave(
        &mut self,
        turn: &mut Turn,
        topics: &dyn Topics,
        ask: &LeaveGroupRequest,
        version: i16,
    ) -> Vec<LeftMember> {
        let named: Vec<(&str, Option<&str>)> = match version {
            ..3 => vec![(ask.member_id, None)],
            _ => ask.members.iter().map(|member| (member.member_id, member.group_instance_id)).collect(),
        };
        let (mut left, mut gone) = (Vec::new(), Vec::new());
        for (id, instance) in named {
            let owner = instance.and_then(|instance| self.statics.get(instance));
            let error = match (instance, owner) {
                (Some(_), None) => ErrorCode::UnknownMemberId,
                (Some(_), Some(owner)) if !id.is_empty() && **owner != *id => ErrorCode::FencedInstanceId,
                _ => {
                    let id: Arc<str> = owner.cloned().unwrap_or_else(|| id.into());
                    let found = self.members.get(&id).is_some_and(|member| member.meta.classic.is_some());
                    if found && !gone.contains(&id) {
                        gone.push(id);
                        ErrorCode::None
                    } else {
                        ErrorCode::UnknownMemberId
                    }
                }
            };
            left.push(LeftMember { member: id.into(), instance: instance.map(Into::into), error });
        }
        self.remove(turn, topics, &gone);
        left
    }
}

fn metadata(member: &ConsumerMember, protocol: &str) -> Arc<[u8]> {
    let spoken = member.meta.classic.as_ref();
    let found = spoken.and_then(|classic| classic.protocols.iter().find(|(name, _)| **name == *protocol));
    found.map(|(_, metadata)| metadata.clone()).unwrap_or_default()
}

/// What the member says that it has.
fn owned(metadata: &[u8], topics: &dyn Topics) -> Assignment {
    let Ok(subscription) = decode_embedded::<ConsumerProtocolSubscription>(metadata) else { return Assignment::new() };
    let mut owned = Assignment::new();
    for topic in &subscription.owned_partitions {
        if let Some((id, _)) = topics.by_name(topic.topic) {
            owned.entry(id).or_default().extend(topic.partitions.iter().map(|index| index.0));
        }
    }
    owned
}
