//! A member of a classic group that others share: it joins, leads when it is told to, beats, commits what it has, and now and
//! then stalls past its session, beats on without a rejoin or a sync, vanishes, comes back with what it was, or leaves.
//!
//! ```text
//! Out -> Find -> Join (79: with an id) -> Sync -> In -> ... 27: Join again; 22, 25: Out; stalled: silent, then as before
//! ```

use ringmain_types::{ErrorCode, LeaderEpoch, Offset, PartitionIndex};
use ringmain_wire::consumer_protocol_assignment::TopicPartition;
use ringmain_wire::join_group::JoinGroupRequestProtocol;
use ringmain_wire::leave_group::MemberIdentity;
use ringmain_wire::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use ringmain_wire::sync_group::SyncGroupRequestAssignment;
use ringmain_wire::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, FIND_COORDINATOR, FindCoordinatorRequest,
    FindCoordinatorResponse, HEARTBEAT, HeartbeatRequest, HeartbeatResponse, JOIN_GROUP, JoinGroupRequest,
    JoinGroupResponse, LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse, OFFSET_COMMIT, OffsetCommitRequest,
    OffsetCommitResponse, SYNC_GROUP, SyncGroupRequest, SyncGroupResponse, decode_embedded, encode_value,
};

use super::line::{Line, Patience, reply};
use super::{Client, Context};
use crate::groups::{self, Broken, MIXED, legal};
use crate::ledger::Ledger;
use crate::network::Link;

const TOPIC: &str = "topic-0";
const SESSION_MS: i32 = 200;
const REBALANCE_MS: i32 = 300;
/// A join or a sync may wait for everybody else that long, no longer.
const WAITS: Patience = Patience { waits_ns: (SESSION_MS + REBALANCE_MS) as u64 * 1_000_000, prompt_ns: 2_000_000_000 };
const BEAT_NS: u64 = 30_000_000;
/// JoinGroup's: without ids of their own, with, and the newest.
const JOIN_VERSIONS: [i16; 3] = [2, 5, 9];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Out,
    Find,
    Join,
    /// As the generation's leader or not.
    Sync(bool),
    In,
}

enum Asked {
    Find,
    Join { version: i16, floor: i32 },
    Sync { sent_ns: u64 },
    Beat { sent_ns: u64 },
    Commit { generation: i32, floor: i32 },
    Leave,
}

pub struct Member {
    /// Its group: in the books, and by name.
    at: usize,
    group: String,
    /// Members of both protocols are in it: then who has what stands in the book of a KIP-848 group, where each life has a number.
    mixed: Option<u32>,
    line: Line<Asked>,
    state: State,
    /// "" before it was given one.
    id: String,
    generation: i32,
    /// Told to the leader.
    members: Vec<String>,
    partitions: Vec<i32>,
    /// It led, and shared out so many partitions.
    shared: Option<i32>,
    /// How often it does something else than beat.
    whims: u32,
    /// Until then it beats, and does nothing else that it is asked for.
    deaf_until_ns: u64,
    /// Or until it is put out.
    stubborn: bool,
    /// It joined on this connection: the broker of now waits for its sync.
    watched: bool,
    /// How often it is told of a generation and does not sync.
    unsynced: f32,
    /// And once more when the faults are over: it has to be put out, however quiet it is.
    late: bool,
    /// It vanished for good.
    gone: bool,
    /// It synced on this connection: a heartbeat says something then. While a coordinator is loaded, each is accepted.
    synced: bool,
    next_ns: u64,
    offset: i64,
}

impl Member {
    /// Of the `at`th classic group.
    pub fn new(at: usize, whims: u32) -> Member {
        Member {
            at,
            group: groups::name("members", at),
            mixed: None,
            line: Line::default(),
            state: State::Out,
            id: String::new(),
            generation: -1,
            members: Vec::new(),
            partitions: Vec::new(),
            shared: None,
            whims,
            deaf_until_ns: 0,
            stubborn: false,
            watched: false,
            unsynced: 0.05,
            late: false,
            gone: false,
            synced: false,
            next_ns: 0,
            offset: 0,
        }
    }

    /// Of the group that members of both protocols share.
    pub fn mixed(number: u32, whims: u32) -> Member {
        let (at, group) = (MIXED, groups::name("mixed", MIXED));
        Member { at, group, mixed: Some(1_000_000 + number * 1000), ..Member::new(0, whims) }
    }

    /// One that often joins, beats, and never says what it made of it.
    pub fn half_hearted(self, often: bool) -> Member {
        Member { unsynced: if often { 0.3 } else { self.unsynced }, late: often, ..self }
    }

    /// The newest generation that anybody was told of; in a mixed group each member has a count of its own.
    fn floor(&self, context: &Context<'_>) -> i32 {
        if self.mixed.is_some() { i32::MIN } else { context.ledger.classic[self.at].generation() }
    }

    /// It uses what it had no more.
    fn release(&mut self, context: &mut Context<'_>) {
        if let Some(me) = self.mixed {
            self.partitions.iter().for_each(|index| context.ledger.modern[self.at].released(me, *index));
        }
        self.partitions.clear();
    }

    /// Faults are quiet, and somebody has each partition.
    fn whole(&self, context: &mut Context<'_>) -> bool {
        let count = partitions(context);
        context.quiet_for(0)
            && match self.mixed {
                Some(_) => context.ledger.modern[self.at].look(count),
                None => context.ledger.classic[self.at].look(count),
            }
    }

    fn find(&mut self, context: &mut Context<'_>) {
        let keys = vec![self.group.as_str()].into();
        let body = FindCoordinatorRequest { key_type: 0, coordinator_keys: keys, ..Default::default() };
        self.line.ask(context, &FIND_COORDINATOR, 4, &body, Asked::Find);
    }

    fn join(&mut self, context: &mut Context<'_>) {
        self.release(context);
        let version = JOIN_VERSIONS[context.random.below(3) as usize];
        let said = ConsumerProtocolSubscription { topics: vec![TOPIC].into(), ..Default::default() };
        let metadata = encode_value(0, &said);
        let body = JoinGroupRequest {
            group_id: &self.group,
            session_timeout_ms: SESSION_MS,
            rebalance_timeout_ms: REBALANCE_MS,
            member_id: &self.id,
            protocol_type: "consumer",
            protocols: vec![JoinGroupRequestProtocol { name: "range", metadata: &metadata }].into(),
            ..Default::default()
        };
        context.say(|| format!("join v{version} as `{}`", self.id));
        let floor = self.floor(context);
        self.line.ask_waiting(context, &JOIN_GROUP, version, &body, (Asked::Join { version, floor }, WAITS));
    }

    fn again(&self, context: &Context<'_>) -> bool {
        let old = self.mixed.is_none() && context.ledger.classic[self.at].old(self.generation);
        self.shared.is_some_and(|shared| old || shared < partitions(context))
    }

    fn sync(&mut self, context: &mut Context<'_>, leads: bool) {
        let mut assigned = Vec::new();
        let count = partitions(context);
        self.shared = leads.then_some(count);
        if leads {
            for (at, member) in self.members.iter().enumerate() {
                let mine = (0..count).filter(|index| *index as usize % self.members.len() == at).map(PartitionIndex);
                let topic = TopicPartition { topic: TOPIC, partitions: mine.collect() };
                let body = ConsumerProtocolAssignment { assigned_partitions: vec![topic].into(), user_data: None };
                assigned.push((member.clone(), encode_value(0, &body)));
            }
        }
        let assignments =
            assigned.iter().map(|(member, assignment)| SyncGroupRequestAssignment { member_id: member, assignment });
        let body = SyncGroupRequest {
            group_id: &self.group,
            generation_id: self.generation,
            member_id: &self.id,
            protocol_type: Some("consumer"),
            protocol_name: Some("range"),
            assignments: assignments.collect(),
            ..Default::default()
        };
        self.line.ask_waiting(context, &SYNC_GROUP, 5, &body, (Asked::Sync { sent_ns: context.now_ns }, WAITS));
    }

    fn beat(&mut self, context: &mut Context<'_>) {
        let body = HeartbeatRequest {
            group_id: &self.group,
            generation_id: self.generation,
            member_id: &self.id,
            group_instance_id: None,
        };
        self.line.ask(context, &HEARTBEAT, 4, &body, Asked::Beat { sent_ns: context.now_ns });
    }

    fn commit(&mut self, context: &mut Context<'_>, generation: i32) {
        self.offset += 1;
        // Whoever has nothing may still try.
        let mine = if self.partitions.is_empty() { vec![0] } else { self.partitions.clone() };
        let partitions = mine.iter().map(|index| OffsetCommitRequestPartition {
            partition_index: PartitionIndex(*index),
            committed_offset: Offset(self.offset),
            committed_leader_epoch: LeaderEpoch(-1),
            committed_metadata: None,
        });
        let topic = OffsetCommitRequestTopic { name: TOPIC, partitions: partitions.collect(), ..Default::default() };
        let body = OffsetCommitRequest {
            group_id: &self.group,
            generation_id_or_member_epoch: generation,
            member_id: &self.id,
            topics: vec![topic].into(),
            ..Default::default()
        };
        let floor = self.floor(context);
        self.line.ask(context, &OFFSET_COMMIT, 8, &body, Asked::Commit { generation, floor });
    }

    fn leave(&mut self, context: &mut Context<'_>) {
        self.release(context);
        context.say(|| format!("`{}` leaves", self.id));
        let member = MemberIdentity { member_id: &self.id, ..Default::default() };
        let body = LeaveGroupRequest { group_id: &self.group, member_id: "", members: vec![member].into() };
        self.line.ask(context, &LEAVE_GROUP, 5, &body, Asked::Leave);
    }

    /// What a member does that is not as it should be, or is only now and then.
    fn whim(&mut self, context: &mut Context<'_>) {
        self.whims -= 1;
        let silent_ns = context.random.between(0, 3 * SESSION_MS as u64) * 1_000_000;
        match context.random.below(6) {
            0 => self.leave(context),
            5 => self.deafen(context),
            // As if the newest generation had not reached it.
            4 => self.commit(context, self.generation - 1),
            1 => {
                context.ledger.reach("groups: members stalled");
                context.say(|| format!("`{}` stalls", self.id));
                self.next_ns = context.now_ns + silent_ns;
                context.wake_in(silent_ns);
            }
            2 => {
                context.ledger.reach("groups: members vanished");
                context.say(|| format!("`{}` is forgotten", self.id));
                self.out(context, true);
                self.gone = context.random.chance(0.3);
                self.next_ns = context.now_ns + silent_ns;
                context.wake_in(silent_ns);
            }
            // Joins although nobody asked it to.
            _ => self.state = State::Join,
        }
    }

    fn deafen(&mut self, context: &mut Context<'_>) {
        context.ledger.reach("groups: members only beat");
        context.say(|| format!("`{}` only beats", self.id));
        self.stubborn = context.random.chance(0.5) && self.watched;
        self.deaf_until_ns = context.now_ns + context.random.between(0, 3 * REBALANCE_MS as u64) * 1_000_000;
        context.wake_in(1_000_000);
    }

    fn deaf(&self, context: &Context<'_>) -> bool {
        self.stubborn || !context.calm && context.now_ns < self.deaf_until_ns
    }

    fn out(&mut self, context: &mut Context<'_>, forget: bool) {
        self.state = State::Out;
        self.release(context);
        if forget {
            self.mixed = self.mixed.map(|me| me + 1);
            (self.stubborn, self.deaf_until_ns) = (false, 0);
            self.id.clear();
        }
        self.next_ns = context.now_ns + context.random.between(1_000_000, 10_000_000);
        context.wake_in(self.next_ns - context.now_ns);
    }

    fn check(&self, context: &mut Context<'_>, result: Result<(), Broken>) {
        if let Err((invariant, text)) = result {
            context.fail(invariant, text);
        }
    }

    fn answered(&mut self, context: &mut Context<'_>, asked: Asked, frame: &[u8]) {
        match asked {
            Asked::Find => {
                let found = reply::<FindCoordinatorResponse<'_>>(context, &FIND_COORDINATOR, 4, frame);
                match found.and_then(|found| found.coordinators.iter().next().map(|one| one.error_code)) {
                    Some(ErrorCode::None) => self.state = State::Join,
                    Some(code) => self.refused(context, "FindCoordinator", code),
                    None => context.fail("a coordinator can be found", "FindCoordinator names none".into()),
                }
            }
            Asked::Join { version, floor } => self.joined(context, version, floor, frame),
            Asked::Sync { sent_ns } => self.synced(context, sent_ns, frame),
            Asked::Beat { sent_ns } => {
                let Some(body) = reply::<HeartbeatResponse>(context, &HEARTBEAT, 4, frame) else { return };
                if let Some(me) = self.mixed.filter(|_| self.synced && body.error_code == ErrorCode::None) {
                    context.ledger.modern[self.at].beat(me, sent_ns, SESSION_MS as u64 * 1_000_000);
                }
                // Accepted in any generation while the coordinator is loaded, as on Kafka.
                self.told(context, "a heartbeat", body.error_code, None);
            }
            Asked::Commit { generation, floor } => {
                let Some(body) = reply::<OffsetCommitResponse<'_>>(context, &OFFSET_COMMIT, 8, frame) else { return };
                let codes = body.topics.iter().flat_map(|topic| topic.partitions.iter().collect::<Vec<_>>());
                let code = codes.map(|partition| partition.error_code).next().unwrap_or_default();
                self.told(context, "a commit", code, Some((generation, floor)));
            }
            Asked::Leave => {
                let Some(body) = reply::<LeaveGroupResponse<'_>>(context, &LEAVE_GROUP, 5, frame) else { return };
                match body.error_code {
                    ErrorCode::None => self.out(context, true),
                    code => self.refused(context, "LeaveGroup", code),
                }
            }
        }
    }

    fn joined(&mut self, context: &mut Context<'_>, version: i16, floor: i32, frame: &[u8]) {
        let Some(body) = reply::<JoinGroupResponse<'_>>(context, &JOIN_GROUP, version, frame) else { return };
        context.say(|| format!("joined: {:?} {} as `{}`", body.error_code, body.generation_id, body.member_id));
        match body.error_code {
            ErrorCode::None => {}
            ErrorCode::MemberIdRequired => return self.id = body.member_id.to_owned(),
            code => return self.refused(context, "JoinGroup", code),
        }
        context.ledger.reach("groups: generations joined");
        if self.mixed.is_some() && body.leader.is_empty() {
            context.ledger.reach("groups: classic members assigned by the broker");
        }
        if self.mixed.is_none() {
            let result = context.ledger.classic[self.at].joined(body.member_id, body.generation_id, body.leader, floor);
            self.check(context, result);
        }
        self.id = body.member_id.to_owned();
        self.watched = true;
        self.generation = body.generation_id;
        let leads = body.leader == body.member_id && !body.skip_assignment;
        self.members = body.members.iter().map(|member| member.member_id.to_owned()).collect();
        self.members.sort();
        if leads && !self.members.contains(&self.id) {
            context.fail("a leader is a member", format!("`{}` of {:?}", self.id, self.members));
        }
        self.state = State::Sync(leads);
    }

    fn synced(&mut self, context: &mut Context<'_>, sent_ns: u64, frame: &[u8]) {
        let Some(body) = reply::<SyncGroupResponse<'_>>(context, &SYNC_GROUP, 5, frame) else { return };
        match body.error_code {
            ErrorCode::None => {}
            code => return self.refused(context, "SyncGroup", code),
        }
        self.synced = true;
        // A leader that was told nothing of its own generation's assignment left everybody without.
        let said: Option<ConsumerProtocolAssignment<'_>> = decode_embedded(body.assignment).ok();
        let topics = said.iter().flat_map(|said| said.assigned_partitions.iter());
        let mine: Vec<i32> =
            topics.flat_map(|topic| topic.partitions.iter().map(|index| index.0).collect::<Vec<_>>()).collect();
        context.say(|| format!("`{}` has {mine:?} in {}", self.id, self.generation));
        match self.mixed {
            None => {
                let result = context.ledger.classic[self.at].assigned(&self.id, self.generation, &mine);
                self.check(context, result);
            }
            Some(me) => {
                context.ledger.modern[self.at].beat(me, sent_ns, SESSION_MS as u64 * 1_000_000);
                for index in &mine {
                    let result = context.ledger.modern[self.at].taken(me, *index, context.now_ns);
                    self.check(context, result);
                }
            }
        }
        context.ledger.reach("groups: assignments received");
        self.partitions = mine;
        self.state = State::In;
    }

    /// What a heartbeat or a commit came to.
    fn told(&mut self, context: &mut Context<'_>, what: &str, code: ErrorCode, asked: Option<(i32, i32)>) {
        context.say(|| format!("{what} of `{}` in {asked:?}: {code:?}", self.id));
        match code {
            ErrorCode::None => {
                if let Some((generation, floor)) = asked.filter(|_| self.mixed.is_none()) {
                    let result = context.ledger.classic[self.at].accepted(what, &self.id, generation, floor);
                    self.check(context, result);
                }
            }
            ErrorCode::RebalanceInProgress if self.deaf(context) => {}
            ErrorCode::RebalanceInProgress => self.state = State::Join,
            code => self.refused(context, what, code),
        }
    }

    fn refused(&mut self, context: &mut Context<'_>, what: &str, code: ErrorCode) {
        match code {
            ErrorCode::IllegalGeneration | ErrorCode::StaleMemberEpoch => {
                context.ledger.reach("groups: old generations refused");
                self.out(context, false);
            }
            ErrorCode::UnknownMemberId => {
                context.ledger.reach("groups: members put out");
                self.out(context, true);
            }
            ErrorCode::RebalanceInProgress => self.out(context, false),
            code if legal(context.ledger, code) => self.out(context, false),
            code => context.fail("a member is told what it has to do", format!("{what}: {code:?}")),
        }
    }
}

/// As many as the topic has, as far as anybody was told.
fn partitions(context: &Context<'_>) -> i32 {
    context.ledger.by_name(TOPIC).map_or(0, |number| context.ledger.topic(number).partitions)
}

impl Client for Member {
    fn poll(&mut self, context: &mut Context<'_>) {
        if self.gone {
            return;
        }
        if context.ledger.by_name(TOPIC).is_none() {
            return context.wake_in(5_000_000);
        }
        if context.now_ns < self.next_ns {
            return context.wake_in(self.next_ns - context.now_ns);
        }
        if context.calm && self.finished(context.ledger) || !self.line.up(context) || self.line.pending() > 0 {
            return;
        }
        let whole = self.whole(context);
        if context.quiet_for(groups::WHOLE_NS_MAX) && !whole {
            context.fail("a group has all its partitions again", format!("{}: {}", self.group, self.describe()));
        }
        match self.state {
            State::Out | State::Find => {
                self.state = State::Find;
                self.find(context);
            }
            State::Join => self.join(context),
            State::Sync(_) if !context.calm && self.whims > 0 && context.random.chance(self.unsynced) => {
                self.whims -= 1;
                self.deafen(context);
            }
            State::Sync(_) if context.calm && self.late && context.random.chance(0.3) => {
                self.deafen(context);
                (self.late, self.stubborn) = (false, self.watched);
            }
            State::Sync(_) if self.deaf(context) => {
                self.next_ns = context.now_ns + context.random.below(2 * BEAT_NS);
                self.beat(context);
            }
            State::Sync(leads) => self.sync(context, leads),
            // The group is as it should be once more: every rebalance ended.
            State::In if whole => self.leave(context),
            // As a leader does that sees a topic grow; and once more when faults are over, for everybody to show that he is there.
            State::In if self.again(context) => {
                self.shared = None;
                self.join(context);
            }
            State::In if !context.calm && self.whims > 0 && context.random.chance(0.15) => self.whim(context),
            State::In => {
                self.next_ns = context.now_ns + context.random.below(2 * BEAT_NS);
                if !self.partitions.is_empty() && context.random.chance(0.4) {
                    self.commit(context, self.generation);
                } else {
                    self.beat(context);
                }
            }
        }
    }

    fn received(&mut self, context: &mut Context<'_>, link: Link, bytes: &[u8]) {
        self.line.received(link, bytes);
        while let Some(answer) = self.line.next(context) {
            self.answered(context, answer.asked, &answer.frame);
        }
    }

    fn closed(&mut self, context: &mut Context<'_>, link: Link) {
        let Some(unanswered) = self.line.closed(context, link) else { return };
        // A broker that starts anew can't know who never synced, as on Kafka: no client may be as stubborn over a restart, nor become so
        // before it joins again.
        (self.stubborn, self.watched, self.deaf_until_ns, self.synced) = (false, false, 0, false);
        self.late &= !matches!(self.state, State::Sync(_));
        for asked in unanswered {
            match asked {
                // Whether it is a member, and of which generation, is not known.
                Asked::Join { .. } | Asked::Sync { .. } => self.state = State::Join,
                Asked::Leave => self.out(context, true),
                Asked::Find | Asked::Beat { .. } | Asked::Commit { .. } => {}
            }
        }
    }

    /// Of the calm: out, by its own wish, of a group that was as it should be.
    fn finished(&self, ledger: &Ledger) -> bool {
        let whole = if self.mixed.is_some() { ledger.modern[self.at].whole } else { ledger.classic[self.at].whole };
        self.gone || self.state == State::Out && self.id.is_empty() && self.line.pending() == 0 && whole
    }

    fn describe(&self) -> String {
        format!("member `{}`: {:?} in {}, {} in flight", self.id, self.state, self.generation, self.line.pending())
    }
}
