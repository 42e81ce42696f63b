//! The machine: all groups of one partition of `__consumer_offsets`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ringmain_coordinator::{Decision, Machine, Waiter};
use ringmain_types::*;
use ringmain_wire::{HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest};

use crate::classic::{ClassicGroup, Turn};
use crate::consumer::{self, ConsumerGroup};
use crate::group::{Group, Kind};
use crate::record::Record;
use crate::removal::Place;
use crate::{Client, GroupConfig, LeftMember, Reply, Request, Topics};

pub(crate) type Out = Decision<Record, Reply>;

pub struct GroupCoordinator {
    pub(crate) config: Arc<GroupConfig>,
    pub(crate) groups: BTreeMap<Arc<str>, Group>,
    /// Each group's next moment, at the latest.
    wakes: BTreeSet<(Instant, Arc<str>)>,
    /// Groups that metrics were not told of since they changed.
    pub(crate) changed: BTreeSet<Arc<str>>,
    /// About what all groups take in memory.
    bytes: usize,
    /// When offsets are looked through for expired ones, and from where on.
    expiry: Option<(Instant, Option<Place>)>,
    /// Groups that are being deleted, and who waits for it: one after the other.
    pub(crate) deletions: VecDeque<(Waiter, Arc<str>)>,
}

impl GroupCoordinator {
    pub fn new(config: Arc<GroupConfig>) -> GroupCoordinator {
        GroupCoordinator {
            config,
            groups: BTreeMap::new(),
            wakes: BTreeSet::new(),
            changed: BTreeSet::new(),
            bytes: 0,
            expiry: None,
            deletions: VecDeque::new(),
        }
    }

    /// Groups that are known.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// What records that only hold together take at the most.
    pub fn batch_bytes_max(&self) -> usize {
        self.config.limits.batch_bytes_max as usize
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// What holds for this group.
    fn config_of(&self, topics: &dyn Topics, id: &str) -> Arc<GroupConfig> {
        topics.overrides(id).map_or_else(|| self.config.clone(), |own| Arc::new(self.config.with(own)))
    }

    fn group_mut(&mut self, id: &Arc<str>) -> &mut Group {
        self.groups.entry(id.clone()).or_default()
    }

    /// Whether one more group may be made.
    pub(crate) fn has_room(&self) -> bool {
        self.groups.len() < self.config.limits.groups_max as usize && !self.is_full()
    }

    /// Nothing is taken in that makes it more.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes as u64 >= self.config.limits.state_bytes_max
    }

    /// Whoever comes to it is told to come again.
    fn is_being_deleted(&self, id: &str) -> bool {
        self.groups.get(id).is_some_and(|group| group.deleting)
    }

    /// 24: no group has such an id, and none gets it.
    fn is_illegal(&self, id: &str) -> bool {
        id.is_empty() || id.len() > self.config.limits.id_bytes_max as usize
    }

    /// Counts anew what the group takes.
    fn recount(&mut self, id: &Arc<str>) {
        let Some(group) = self.groups.get_mut(id) else { return };
        let bytes = group.bytes(id.len());
        self.bytes = self.bytes + bytes - std::mem::replace(&mut group.counted, bytes);
    }

    /// Keeps the group's place among the timers true. A heartbeat only puts its member's off: the group is then looked at in vain, once.
    fn reschedule(&mut self, id: &Arc<str>) {
        self.recount(id);
        let Some(group) = self.groups.get_mut(id) else { return };
        let next = group.deadline();
        if group.wake == next {
            return;
        }
        if let Some(before) = std::mem::replace(&mut group.wake, next) {
            self.wakes.remove(&(before, id.clone()));
        }
        if let Some(next) = next {
            self.wakes.insert((next, id.clone()));
        }
    }

    /// Metrics are to be told of this group. Who makes groups faster than they are told of has some left out.
    fn mark(&mut self, id: &Arc<str>) {
        if !self.changed.contains(id) && self.changed.len() < self.config.limits.groups_max as usize {
            self.changed.insert(id.clone());
        }
    }

    pub(crate) fn forget(&mut self, id: &Arc<str>) {
        self.mark(id);
        let Some(group) = self.groups.remove(id) else { return };
        self.bytes -= group.counted;
        if let Some(wake) = group.wake {
            self.wakes.remove(&(wake, id.clone()));
        }
    }

    /// Runs `then` on the classic group of this name.
    fn classic<T>(
        &mut self,
        now: Now,
        id: &str,
        out: &mut Out,
        then: impl FnOnce(&mut ClassicGroup, &mut Turn) -> T,
    ) -> Option<T> {
        let full = self.is_full();
        let id = self.groups.get_key_value(id)?.0.clone();
        let group = self.groups.get_mut(&id)?;
        let Kind::Classic(classic) = &mut group.kind else { return None };
        let config = self.config.clone();
        let mut turn = Turn { now, config: &config, group: &id, full, out };
        let result = then(classic, &mut turn);
        self.reschedule(&id);
        Some(result)
    }

    fn join(
        &mut self,
        now: Now,
        topics: &dyn Topics,
        waiter: Waiter,
        (ask, client): (&JoinGroupRequest, &Client),
        out: &mut Out,
    ) {
        let refuse = |out: &mut Out, error| {
            out.replies.push((waiter, Reply::Join(Err((error, ask.member_id.into())))));
        };
        if self.is_illegal(ask.group_id) {
            return refuse(out, ErrorCode::InvalidGroupId);
        }
        if !(self.config.min_session_timeout_ms..=self.config.max_session_timeout_ms).contains(&ask.session_timeout_ms)
        {
            return refuse(out, ErrorCode::InvalidSessionTimeout);
        }
        let id: Arc<str> = ask.group_id.into();
        if self.is_being_deleted(&id) {
            return refuse(out, ErrorCode::CoordinatorLoadInProgress);
        }
        match self.groups.get(&id).map(|group| (&group.kind, group.is_vacant())) {
            Some((Kind::Classic(_), _)) => {}
            // A group without members may speak another protocol from now on.
            Some((Kind::Consumer(_), true)) if ask.member_id.is_empty() => self.clear(now, &id, out),
            Some((Kind::Consumer(_), true)) => return refuse(out, ErrorCode::UnknownMemberId),
            Some((Kind::Consumer(_), false)) => {
                let joined =
                    self.consumer(now, topics, &id, out, |group, turn| group.classic_join(turn, topics, ask, client));
                return out.replies.extend(joined.map(|joined| (waiter, Reply::Join(joined))));
            }
            _ if !ask.member_id.is_empty() => return refuse(out, ErrorCode::UnknownMemberId),
            Some((Kind::Simple, _)) => {}
            None if !self.has_room() => return refuse(out, ErrorCode::GroupMaxSizeReached),
            None => {}
        }
        let group = self.group_mut(&id);
        if matches!(group.kind, Kind::Simple) {
            group.kind = Kind::Classic(Box::default());
        }
        self.classic(now, &id, out, |group, turn| group.join(turn, waiter, ask, client));
        self.mark(&id);
        self.forget_if_unused(&id);
    }

    /// A group that never had a generation, and that nobody is in or has an id for, was only asked for: a refused join leaves nothing.
    fn forget_if_unused(&mut self, id: &Arc<str>) {
        let Some(group) = self.groups.get_mut(id) else { return };
        let simple = matches!(&group.kind, Kind::Classic(classic) if classic.protocol_type().is_none());
        if simple && group.is_vacant() {
            group.kind = Kind::Simple;
            self.recount(id);
        }
        self.forget_if_nothing(id);
    }

    /// Runs `then` on the KIP-848 group of this name.
    fn consumer<T>(
        &mut self,
        now: Now,
        topics: &dyn Topics,
        id: &str,
        out: &mut Out,
        then: impl FnOnce(&mut ConsumerGroup, &mut Turn) -> T,
    ) -> Option<T> {
        let full = self.is_full();
        let id = self.groups.get_key_value(id)?.0.clone();
        let config = self.config_of(topics, &id);
        let group = self.groups.get_mut(&id)?;
        let Kind::Consumer(consumer) = &mut group.kind else { return None };
        let mut turn = Turn { now, config: &config, group: &id, full, out };
        let result = then(consumer, &mut turn);
        self.downgrade_if_all_are_classic(now, topics, &id, out);
        self.reschedule(&id);
        Some(result)
    }

    /// A classic group with members becomes a KIP-848 group, if it may, its members say what they read, and all of it is one batch.
    fn upgrade(&mut self, now: Now, topics: &dyn Topics, id: &Arc<str>, out: &mut Out) {
        let (config, full) = (self.config_of(topics, id), self.is_full());
        let found = self.groups.get_mut(id).map(|group| &mut group.kind);
        let Some(Kind::Classic(classic)) = found.filter(|_| config.migration.upgrades()) else { return };
        let Some(members) = classic.emigrants() else { return };
        if members.len() >= config.consumer_max_size as usize {
            return;
        }
        let mut consumer = Box::<ConsumerGroup>::default();
        let mut written = Out::default();
        let mut turn = Turn { now, config: &config, group: id, full, out: &mut written };
        consumer.immigrate(&mut turn, topics, classic.generation(), members);
        let gone = Record::Classic { group: id.clone(), value: None };
        if !fits(&config, written.records.iter().chain([&gone])) {
            return;
        }
        let mut turn = Turn { now, config: &config, group: id, full, out };
        classic.let_go(&mut turn);
        self.write(now, gone, out);
        out.records.extend(written.records);
        out.cut();
        self.group_mut(id).kind = Kind::Consumer(consumer);
    }

    /// A group in which nobody speaks KIP-848 any more is a classic one again, if it may be, and all of it is one batch.
    fn downgrade_if_all_are_classic(&mut self, now: Now, topics: &dyn Topics, id: &Arc<str>, out: &mut Out) {
        let (config, full) = (self.config_of(topics, id), self.is_full());
        let found = self.groups.get(id).map(|group| &group.kind);
        let Some(Kind::Consumer(consumer)) = found.filter(|_| config.migration.downgrades()) else { return };
        let turn = Turn { now, config: &config, group: id, full, out };
        let Some((generation, spoken)) = consumer.emigrate(&turn, topics) else { return };
        let settled = Record::Classic { group: id.clone(), value: Some(generation) };
        if !fits(&config, consumer.tombstones(id).iter().chain([&settled])) {
            return;
        }
        out.cut();
        self.clear(now, id, out);
        self.write(now, settled, out);
        out.cut();
        self.classic(now, id, out, |group, turn| group.settle(turn, spoken));
    }

    /// Takes away what records say of a group's protocol; its offsets stay.
    pub(crate) fn clear(&mut self, now: Now, id: &Arc<str>, out: &mut Out) {
        let records = match self.groups.get(id).map(|group| &group.kind) {
            Some(Kind::Classic(_)) => vec![Record::Classic { group: id.clone(), value: None }],
            Some(Kind::Consumer(group)) => group.tombstones(id),
            _ => return,
        };
        for record in records {
            self.write(now, record, out);
        }
        self.reschedule(id);
    }

    pub(crate) fn write(&mut self, now: Now, record: Record, out: &mut Out) {
        self.replay(now, &record);
        out.records.push(record);
    }

    fn sync(&mut self, now: Now, topics: &dyn Topics, waiter: Waiter, ask: &SyncGroupRequest, out: &mut Out) {
        let then = |group: &mut ConsumerGroup, turn: &mut Turn| group.classic_sync(turn, topics, ask);
        if let Some(synced) = self.consumer(now, topics, ask.group_id, out, then) {
            return out.replies.push((waiter, Reply::Sync(synced)));
        }
        let code = match ask.group_id {
            "" => ErrorCode::InvalidGroupId,
            id => match self.classic(now, id, out, |group, turn| group.sync(turn, waiter, ask)) {
                Some(()) => return,
                None => ErrorCode::UnknownMemberId,
            },
        };
        out.replies.push((waiter, Reply::Sync(Err(code))));
    }

    /// No rescheduling in a classic group: it only puts a moment off.
    fn heartbeat(&mut self, now: Now, topics: &dyn Topics, ask: &HeartbeatRequest, out: &mut Out) -> ErrorCode {
        if ask.group_id.is_empty() {
            return ErrorCode::InvalidGroupId;
        }
        let then = |group: &mut ConsumerGroup, turn: &mut Turn| group.classic_heartbeat(turn, ask);
        if let Some(code) = self.consumer(now, topics, ask.group_id, out, then) {
            return code;
        }
        match self.groups.get_mut(ask.group_id).map(|group| &mut group.kind) {
            Some(Kind::Classic(group)) => group.heartbeat(now, ask),
            _ => ErrorCode::UnknownMemberId,
        }
    }

    fn leave(
        &mut self,
        now: Now,
        topics: &dyn Topics,
        waiter: Waiter,
        (ask, client): (&LeaveGroupRequest, &Client),
        out: &mut Out,
    ) {
        let version = client.version;
        let then = |group: &mut ConsumerGroup, turn: &mut Turn| group.classic_leave(turn, topics, ask, version);
        if let Some(left) = self.consumer(now, topics, ask.group_id, out, then) {
            return out.replies.push((waiter, Reply::Left(left)));
        }
        let left = self.classic(now, ask.group_id, out, |group, turn| group.leave(turn, waiter, ask, version));
        if left.is_some() {
            self.mark(&ask.group_id.into());
            return;
        }
        // There is no such group: nobody asked about is a member.
        let error = if ask.group_id.is_empty() { ErrorCode::InvalidGroupId } else { ErrorCode::UnknownMemberId };
        let one = |member: &str, instance: Option<&str>| LeftMember {
            member: member.into(),
            instance: instance.map(Into::into),
            error,
        };
        let left = match version {
            ..3 => vec![one(ask.member_id, None)],
            _ => ask.members.iter().map(|member| one(member.member_id, member.group_instance_id)).collect(),
        };
        out.replies.push((waiter, Reply::Left(left)));
    }

    /// A group of which no record says anything any more is not there.
    pub(crate) fn forget_if_nothing(&mut self, id: &Arc<str>) {
        let nothing = |group: &Group| group.offsets.is_empty() && matches!(group.kind, Kind::Simple);
        if self.groups.get(id).is_some_and(nothing) {
            self.forget(id);
        }
    }

    fn consumer_heartbeat(
        &mut self,
        now: Now,
        topics: &dyn Topics,
        ask: &ringmain_wire::ConsumerGroupHeartbeatRequest,
        client: &Client,
        out: &mut Out,
    ) -> Result<consumer::Heartbeat, (ErrorCode, String)> {
        let config = self.config_of(topics, ask.group_id);
        consumer::check(ask, client, &config)?;
        let id: Arc<str> = ask.group_id.into();
        let missing = || Err((ErrorCode::GroupIdNotFound, format!("Consumer group {id} not found.")));
        let joins = ask.member_epoch == 0;
        if joins && self.is_being_deleted(&id) {
            return Err((ErrorCode::CoordinatorLoadInProgress, format!("Group {id} is being deleted.")));
        }
        if joins && self.groups.get(&id).is_some_and(|group| !group.is_vacant()) {
            self.upgrade(now, topics, &id, out);
        }
        match self.groups.get(&id).map(|group| (&group.kind, group.is_vacant())) {
            Some((Kind::Consumer(_), _)) => {}
            None | Some((Kind::Simple, _)) if !joins => return missing(),
            None if !self.has_room() => {
                let text = format!("This coordinator has {} groups, as many as it may have.", self.groups.len());
                return Err((ErrorCode::GroupMaxSizeReached, text));
            }
            None | Some((Kind::Simple, _)) => {}
            Some((Kind::Classic(_), true)) if joins => self.clear(now, &id, out),
            Some((Kind::Classic(_), _)) => {
                let text = format!("Group {id} is not a consumer group.");
                return Err((ErrorCode::GroupIdNotFound, text));
            }
        }
        let full = self.is_full();
        let group = self.group_mut(&id);
        if matches!(group.kind, Kind::Simple) {
            group.kind = Kind::Consumer(Box::default());
        }
        let Kind::Consumer(consumer) = &mut group.kind else { return missing() };
        let mut turn = Turn { now, config: &config, group: &id, full, out };
        let result = consumer.heartbeat(&mut turn, topics, ask, client);
        // A join that was refused leaves nothing behind.
        if consumer.members().is_empty() && consumer.epoch() == 0 {
            group.kind = Kind::Simple;
            self.forget_if_nothing(&id);
        }
        self.downgrade_if_all_are_classic(now, topics, &id, out);
        self.reschedule(&id);
        result
    }
}

/// Whether these are one batch.
fn fits<'a>(config: &GroupConfig, records: impl Iterator<Item = &'a Record>) -> bool {
    records.map(Record::bytes).sum::<usize>() <= config.limits.batch_bytes_max as usize
}

impl Machine for GroupCoordinator {
    type Request<'a> = Request<'a>;
    type Reply = Reply;
    type Record = Record;
    type World = dyn Topics;

    fn decide(&mut self, now: Now, topics: &dyn Topics, waiter: Waiter, request: Request<'_>, out: &mut Out) {
        let reply = match request {
            Request::Join(ask, client) => return self.join(now, topics, waiter, (ask, &client), out),
            Request::Sync(ask) => return self.sync(now, topics, waiter, ask, out),
            Request::Leave(ask, client) => return self.leave(now, topics, waiter, (ask, &client), out),
            Request::Heartbeat(ask) => Reply::Code(self.heartbeat(now, topics, ask, out)),
            Request::Commit(ask) => Reply::Committed(self.commit(now, topics, &ask, out)),
            Request::Fetch(ask) => Reply::Fetched(self.fetch(topics, &ask)),
            Request::DeleteOffsets { group, topics: named } => {
                Reply::DeletedOffsets(self.delete_offsets(now, topics, (group, &named), out))
            }
            Request::DeleteGroup { group } => return self.delete_group(now, waiter, group, out),
            Request::Describe { group } => Reply::Described(self.describe(group)),
            Request::DescribeConsumer { group } => Reply::DescribedConsumer(self.describe_consumer(group, topics)),
            Request::List { states, types } => Reply::Listed(self.list(&states, &types)),
            Request::ConsumerHeartbeat(ask, client) => {
                Reply::ConsumerHeartbeat(self.consumer_heartbeat(now, topics, ask, &client, out))
            }
        };
        out.replies.push((waiter, reply));
    }

    fn expire(&mut self, now: Now, topics: &dyn Topics, out: &mut Out) {
        let due = self.wakes.iter().take_while(|(at, _)| *at <= now.mono).map(|(_, id)| id.clone());
        let due: Vec<Arc<str>> = due.take(self.config.limits.expired_max as usize).collect();
        for id in due {
            let (config, full) = (self.config_of(topics, &id), self.is_full());
            let Some(group) = self.groups.get_mut(&id) else { continue };
            let mut turn = Turn { now, config: &config, group: &id, full, out };
            match &mut group.kind {
                Kind::Simple => {}
                Kind::Classic(classic) => classic.expire(&mut turn),
                Kind::Consumer(consumer) => consumer.expire(&mut turn, topics),
            }
            self.downgrade_if_all_are_classic(now, topics, &id, out);
            out.cut();
            self.reschedule(&id);
            // An id was asked for and never used: nobody will miss the group.
            self.forget_if_unused(&id);
            self.mark(&id);
            // What is due is done: the same moment does not come again.
            debug_assert!(self.groups.get(&id).is_none_or(|group| group.wake.is_none_or(|wake| wake > now.mono)));
        }
        self.go_on_deleting(now, out);
        out.cut();
        if let Some((at, from)) = self.expiry.take_if(|(at, _)| *at <= now.mono) {
            let next = self.expire_offsets(now, topics, from, out);
            let due = if next.is_some() { at } else { now.mono.plus_ms(self.config.offsets_retention_check_ms.max(1)) };
            self.expiry = Some((due, next));
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let expiry = self.expiry.as_ref().map(|(at, _)| *at);
        // In the next turn.
        let deletion = (!self.deletions.is_empty()).then_some(Instant(0));
        self.wakes.first().map(|(at, _)| *at).into_iter().chain(expiry).chain(deletion).min()
    }

    fn replay(&mut self, _: Now, record: &Record) {
        self.mark(record.group());
        self.replay_group(record);
        self.recount(record.group());
    }

    fn loaded(&mut self, now: Now, topics: &dyn Topics) {
        let ids: Vec<Arc<str>> = self.groups.keys().cloned().collect();
        for id in ids {
            let own = topics.overrides(&id).map(|own| own.session_timeout_ms);
            let session_ms = own.unwrap_or(self.config.consumer_session_timeout_ms);
            match self.groups.get_mut(&id).map(|group| &mut group.kind) {
                Some(Kind::Classic(classic)) => classic.loaded(now),
                Some(Kind::Consumer(consumer)) => consumer.loaded(now, session_ms),
                Some(Kind::Simple) | None => {}
            }
            self.reschedule(&id);
            self.forget_if_nothing(&id);
        }
        self.expiry = Some((now.mono.plus_ms(self.config.offsets_retention_check_ms.max(1)), None));
    }

    fn encode(record: &Record) -> (Vec<u8>, Option<Vec<u8>>) {
        record.encode()
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Option<Record>, ErrorCode> {
        Record::decode(key, value).map_err(|_| ErrorCode::CorruptMessage)
    }
}

impl GroupCoordinator {
    fn replay_group(&mut self, record: &Record) {
        match record {
            Record::Offset { group, topic, partition, value } => {
                if value.is_some() {
                    self.group_mut(group).offsets.replay(topic, *partition, value);
                } else if let Some(found) = self.groups.get_mut(group) {
                    found.offsets.replay(topic, *partition, value);
                }
            }
            Record::Classic { group, value: Some(value) } => {
                let group = self.group_mut(group);
                if !matches!(group.kind, Kind::Classic(_)) {
                    group.kind = Kind::Classic(Box::default());
                }
                if let Kind::Classic(classic) = &mut group.kind {
                    classic.replay(value);
                }
            }
            Record::Classic { group, value: None } => {
                if let Some(found) = self.groups.get_mut(group)
                    && matches!(found.kind, Kind::Classic(_))
                {
                    found.kind = Kind::Simple;
                }
            }
            Record::GroupEpoch { group, value: None } => {
                if let Some(found) = self.groups.get_mut(group)
                    && matches!(found.kind, Kind::Consumer(_))
                {
                    found.kind = Kind::Simple;
                }
            }
            Record::GroupEpoch { group, .. }
            | Record::Member { group, .. }
            | Record::TargetEpoch { group, .. }
            | Record::Target { group, .. }
            | Record::Current { group, .. }
            | Record::Regex { group, .. } => self.replay_consumer(group, record),
        }
    }

    fn replay_consumer(&mut self, group: &Arc<str>, record: &Record) {
        let says = !matches!(
            record,
            Record::Member { value: None, .. }
                | Record::TargetEpoch { value: None, .. }
                | Record::Target { value: None, .. }
                | Record::Current { value: None, .. }
                | Record::Regex { value: None, .. }
        );
        // Nothing is taken from a group that is not there, or speaks the other protocol.
        let known = matches!(self.groups.get(group).map(|group| &group.kind), Some(Kind::Consumer(_)));
        if !says && !known {
            return;
        }
        let found = self.group_mut(group);
        if !known {
            found.kind = Kind::Consumer(Box::default());
        }
        if let Kind::Consumer(consumer) = &mut found.kind {
            consumer.replay(record);
        }
    }
}
