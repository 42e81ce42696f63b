//! One member of a group, as a machine over one connection: what it asks next, and what an answer makes of it.
//!
//! ```text
//! classic:  Joins -> Syncs -> In --(27, after a last commit)--> Joins
//! KIP-848:  In: every heartbeat says what it owns; what is asked back is committed, then given back by the next one
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use ringmain_torture::connection::{Connection, Frame};
use ringmain_torture::verify::{FETCH_VERSION, take_records};
use ringmain_types::{ErrorCode, LeaderEpoch, Offset, PartitionIndex};
use ringmain_wire::consumer_protocol_assignment::TopicPartition;
use ringmain_wire::fetch::{FetchPartition, FetchTopic};
use ringmain_wire::join_group::JoinGroupRequestProtocol;
use ringmain_wire::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use ringmain_wire::offset_fetch::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use ringmain_wire::sync_group::SyncGroupRequestAssignment;
use ringmain_wire::*;

use crate::book::{Book, Plan, metadata_of};

/// After a code that says "not now".
const AGAIN: Duration = Duration::from_millis(50);
const FETCH_WAIT_MS: i32 = 100;
const FETCH_BYTES: i32 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Classic,
    /// KIP-848.
    Consumer,
    /// Commits to all partitions and is in no group.
    Outside,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// Nobody's member, and does not want to be.
    Out,
    Joins,
    /// With what the leader hands in.
    Syncs(Vec<(String, Vec<u8>)>),
    In,
    Leaves,
}

#[derive(Debug)]
enum Ask {
    Join,
    Sync,
    Beat,
    Leave,
    Commit(Vec<(i32, i64)>),
    Positions(Vec<i32>),
    Fetch,
}

#[derive(Clone, Copy, Debug, Default)]
struct Position {
    /// Not known until the committed offset was asked for.
    next: Option<i64>,
    committed: i64,
}

/// What all members count together.
pub struct Stats {
    /// From a heartbeat's sending to its answer, us.
    pub beats: Histogram<u64>,
    pub joins: u64,
    /// Answers that a restart must not give: a member that was told of its generation is not known.
    pub forgotten: u64,
}

/// So many members at most.
const NUMBERS: usize = 1 << 20;

pub struct Member {
    pub number: usize,
    /// Differs in each of its memberships: who vanished and comes again is somebody else to the broker.
    identity: usize,
    pub group: usize,
    protocol: Protocol,
    connection: Option<Connection>,
    id: String,
    /// Or member epoch.
    generation: i32,
    stage: Stage,
    owned: BTreeMap<i32, Position>,
    gives: BTreeSet<i32>,
    /// Was told to join again.
    called: bool,
    /// The last commit before partitions are given back was tried.
    parted: bool,
    ask: Option<(Ask, Instant)>,
    beat_due: Instant,
    commit_due: Instant,
    /// Nothing is asked before.
    pause: Instant,
    /// The broker was started anew, and this member knew where it stood.
    known: bool,
}

impl Member {
    pub fn new(number: usize, group: usize, protocol: Protocol) -> Member {
        let now = Instant::now();
        Member {
            number,
            identity: number,
            group,
            protocol,
            connection: None,
            id: String::new(),
            generation: 0,
            stage: Stage::Out,
            owned: BTreeMap::new(),
            gives: BTreeSet::new(),
            called: false,
            parted: false,
            ask: None,
            beat_due: now,
            commit_due: now,
            pause: now,
            known: false,
        }
    }

    /// Whether it is the one that the book calls so.
    pub fn is(&self, identity: usize) -> bool {
        self.identity == identity
    }

    /// Of whoever the book calls so.
    pub fn number_of(identity: usize) -> usize {
        identity % NUMBERS
    }

    pub fn is_out(&self) -> bool {
        self.stage == Stage::Out
    }

    /// In a generation, with nothing to do for the next.
    pub fn is_settled(&self) -> bool {
        self.stage == Stage::In && !self.called && self.gives.is_empty()
    }

    pub fn generation(&self) -> i32 {
        self.generation
    }

    /// Begins a membership.
    pub fn enter(&mut self, connection: Connection, book: &mut Book) {
        let now = Instant::now();
        self.identity += NUMBERS;
        (self.connection, self.ask) = (Some(connection), None);
        (self.generation, self.called, self.parted) = (0, false, false);
        (self.beat_due, self.commit_due, self.pause) = (now, now, now);
        match self.protocol {
            Protocol::Classic => (self.id, self.stage) = (String::new(), Stage::Joins),
            Protocol::Consumer => {
                (self.id, self.stage) = (format!("{}-{:016x}", self.number, fastrand::u64(..)), Stage::In);
            }
            Protocol::Outside => {
                (self.generation, self.stage) = (-1, Stage::In);
                self.owned = (0..book.plan.partitions).map(|partition| (partition, Position::default())).collect();
            }
        }
    }

    /// Gives everything back and goes.
    pub fn leave(&mut self) {
        if self.stage == Stage::In {
            (self.stage, self.parted) = (Stage::Leaves, false);
        }
    }

    /// Is not there any more, and says nothing.
    pub fn vanish(&mut self) {
        (self.connection, self.ask, self.stage) = (None, None, Stage::Out);
        self.owned.clear();
        self.gives.clear();
    }

    /// The broker is gone, and what was asked may have been done or not.
    pub fn disconnect(&mut self) {
        self.connection = None;
        if let Some((Ask::Join, _)) = self.ask
            && self.generation == 0
        {
            // What it was called is told to nobody any more.
            self.id.clear();
        }
        self.known = matches!(self.stage, Stage::In) && self.generation > 0;
        self.ask = None;
    }

    pub fn reconnect(&mut self, connection: Connection) {
        let now = Instant::now();
        self.connection = Some(connection);
        (self.beat_due, self.pause) = (now, now);
    }

    /// When it wants to be asked again, if it waits for no answer.
    pub fn due(&self, plan: &Plan) -> Option<Instant> {
        if self.ask.is_some() || self.connection.is_none() || self.stage == Stage::Out {
            return None;
        }
        let mut due = self.beat_due;
        if plan.commit.is_some() {
            due = due.min(self.commit_due);
        }
        Some(due.max(self.pause))
    }

    /// Asks what is to be asked now.
    pub fn act(&mut self, now: Instant, book: &mut Book) -> io::Result<()> {
        if self.ask.is_some() || self.connection.is_none() || now < self.pause {
            return Ok(());
        }
        match &self.stage {
            Stage::Out => Ok(()),
            Stage::Joins => self.send_join(now, book),
            Stage::Syncs(_) => self.send_sync(now, book),
            Stage::Leaves => match self.last_commit(None, book) {
                Some(offsets) => self.send_commit(now, offsets, book),
                None => self.send_leave(now, book),
            },
            Stage::In => self.act_in(now, book),
        }
    }

    fn act_in(&mut self, now: Instant, book: &mut Book) -> io::Result<()> {
        if self.called {
            if let Some(offsets) = self.last_commit(None, book) {
                return self.send_commit(now, offsets, book);
            }
            self.lose_all(book);
            (self.stage, self.called) = (Stage::Joins, false);
            return self.send_join(now, book);
        }
        if !self.gives.is_empty() {
            if let Some(offsets) = self.last_commit(Some(&self.gives.clone()), book) {
                return self.send_commit(now, offsets, book);
            }
            for partition in std::mem::take(&mut self.gives) {
                self.owned.remove(&partition);
                book.release(self.identity, partition);
            }
            self.beat_due = now;
        }
        if now >= self.beat_due && self.protocol != Protocol::Outside {
            return self.send_beat(now, book);
        }
        let unknown: Vec<i32> = self
            .owned
            .iter()
            .filter(|(_, position)| position.next.is_none())
            .map(|(partition, _)| *partition)
            .collect();
        if !unknown.is_empty() && (book.plan.reads || book.plan.commit.is_some()) {
            return self.send_positions(now, unknown, book);
        }
        if let Some(every) = book.plan.commit
            && now >= self.commit_due
        {
            self.commit_due = now + every;
            let offsets = self.uncommitted(None, book);
            if !offsets.is_empty() {
                return self.send_commit(now, offsets, book);
            }
        }
        if book.plan.reads && !self.owned.is_empty() {
            return self.send_fetch(now, book);
        }
        Ok(())
    }

    /// What is to be committed before partitions go; `None` when that was done or tried.
    fn last_commit(&mut self, among: Option<&BTreeSet<i32>>, book: &Book) -> Option<Vec<(i32, i64)>> {
        let offsets = self.uncommitted(among, book);
        if std::mem::replace(&mut self.parted, true) || offsets.is_empty() {
            self.parted = false;
            return None;
        }
        Some(offsets)
    }

    fn uncommitted(&mut self, among: Option<&BTreeSet<i32>>, book: &Book) -> Vec<(i32, i64)> {
        if book.plan.commit.is_none() {
            return Vec::new();
        }
        let mut offsets = Vec::new();
        for (partition, position) in &mut self.owned {
            let Some(next) = &mut position.next else { continue };
            if !book.plan.reads {
                *next += fastrand::i64(1..5);
            }
            if *next != position.committed && among.is_none_or(|among| among.contains(partition)) {
                offsets.push((*partition, *next));
            }
        }
        offsets
    }

    fn lose_all(&mut self, book: &mut Book) {
        self.gives.clear();
        for partition in std::mem::take(&mut self.owned).into_keys() {
            book.release(self.identity, partition);
        }
    }

    fn send<'a, T: Field<'a>>(&mut self, ask: Ask, now: Instant, api: (&ApiSpec, i16), body: &T) -> io::Result<()> {
        self.ask = Some((ask, now));
        match &mut self.connection {
            Some(connection) => connection.send(api.0, api.1, body).map(|_| ()),
            None => Ok(()),
        }
    }

    fn send_join(&mut self, now: Instant, book: &Book) -> io::Result<()> {
        let plan = &book.plan;
        let subscription = ConsumerProtocolSubscription { topics: vec![&*plan.topic].into(), ..Default::default() };
        let metadata = encode_value(0, &subscription);
        let id = self.id.clone();
        let request = JoinGroupRequest {
            group_id: &plan.group,
            session_timeout_ms: plan.session.as_millis() as i32,
            rebalance_timeout_ms: plan.rebalance.as_millis() as i32,
            member_id: &id,
            protocol_type: "consumer",
            protocols: vec![JoinGroupRequestProtocol { name: "range", metadata: &metadata }].into(),
            ..Default::default()
        };
        self.send(Ask::Join, now, (&JOIN_GROUP, 9), &request)
    }

    fn send_sync(&mut self, now: Instant, book: &Book) -> io::Result<()> {
        let Stage::Syncs(assignments) = &mut self.stage else { return Ok(()) };
        let (assignments, id) = (std::mem::take(assignments), self.id.clone());
        let assignments = assignments
            .iter()
            .map(|(member, assignment)| SyncGroupRequestAssignment { member_id: member, assignment })
            .collect();
        let request = SyncGroupRequest {
            group_id: &book.plan.group,
            generation_id: self.generation,
            member_id: &id,
            protocol_type: Some("consumer"),
            protocol_name: Some("range"),
            assignments,
            ..Default::default()
        };
        self.send(Ask::Sync, now, (&SYNC_GROUP, 5), &request)
    }

    fn send_leave(&mut self, now: Instant, book: &mut Book) -> io::Result<()> {
        self.lose_all(book);
        if self.protocol == Protocol::Consumer {
            self.generation = -1;
            return self.send_consumer_beat(Ask::Leave, now, book);
        }
        let id = self.id.clone();
        let member = leave_group::MemberIdentity { member_id: &id, ..Default::default() };
        let request =
            LeaveGroupRequest { group_id: &book.plan.group, members: vec![member].into(), ..Default::default() };
        self.send(Ask::Leave, now, (&LEAVE_GROUP, 5), &request)
    }

    fn send_beat(&mut self, now: Instant, book: &Book) -> io::Result<()> {
        if self.protocol == Protocol::Consumer {
            return self.send_consumer_beat(Ask::Beat, now, book);
        }
        let id = self.id.clone();
        let request = HeartbeatRequest {
            group_id: &book.plan.group,
            generation_id: self.generation,
            member_id: &id,
            ..Default::default()
        };
        self.send(Ask::Beat, now, (&HEARTBEAT, 4), &request)
    }

    fn send_consumer_beat(&mut self, ask: Ask, now: Instant, book: &Book) -> io::Result<()> {
        let (plan, id) = (&book.plan, self.id.clone());
        let owned: Vec<PartitionIndex> = self.owned.keys().map(|partition| PartitionIndex(*partition)).collect();
        let owned = consumer_group_heartbeat::TopicPartitions { topic_id: plan.topic_id, partitions: owned.into() };
        let request = ConsumerGroupHeartbeatRequest {
            group_id: &plan.group,
            member_id: &id,
            member_epoch: self.generation,
            rebalance_timeout_ms: plan.rebalance.as_millis() as i32,
            subscribed_topic_names: Some(vec![&*plan.topic].into()),
            topic_partitions: Some(if self.owned.is_empty() { Vec::new().into() } else { vec![owned].into() }),
            ..Default::default()
        };
        self.send(ask, now, (&CONSUMER_GROUP_HEARTBEAT, 1), &request)
    }

    fn send_positions(&mut self, now: Instant, partitions: Vec<i32>, book: &Book) -> io::Result<()> {
        let (plan, id) = (&book.plan, self.id.clone());
        let topic = OffsetFetchRequestTopics {
            name: &plan.topic,
            topic_id: plan.topic_id,
            partition_indexes: partitions.iter().map(|partition| PartitionIndex(*partition)).collect(),
        };
        let consumer = self.protocol == Protocol::Consumer;
        let group = OffsetFetchRequestGroup {
            group_id: &plan.group,
            member_id: Some(&*id).filter(|_| consumer),
            member_epoch: if consumer { self.generation } else { -1 },
            topics: Some(vec![topic].into()),
        };
        let request = OffsetFetchRequest { groups: vec![group].into(), ..Default::default() };
        self.send(Ask::Positions(partitions), now, (&OFFSET_FETCH, self.by_id()), &request)
    }

    /// KIP-848 members name topics by id, the others by name.
    fn by_id(&self) -> i16 {
        if self.protocol == Protocol::Consumer { 10 } else { 9 }
    }

    fn send_commit(&mut self, now: Instant, offsets: Vec<(i32, i64)>, book: &mut Book) -> io::Result<()> {
        let metadata: Vec<String> = offsets.iter().map(|(_, offset)| metadata_of(*offset)).collect();
        let partitions =
            offsets.iter().zip(&metadata).map(|((partition, offset), metadata)| OffsetCommitRequestPartition {
                partition_index: PartitionIndex(*partition),
                committed_offset: Offset(*offset),
                committed_leader_epoch: LeaderEpoch(-1),
                committed_metadata: Some(metadata),
            });
        let id = self.id.clone();
        let topic = OffsetCommitRequestTopic {
            name: &book.plan.topic,
            topic_id: book.plan.topic_id,
            partitions: partitions.collect(),
        };
        let group = book.plan.group.clone();
        let request = OffsetCommitRequest {
            group_id: &group,
            generation_id_or_member_epoch: self.generation,
            member_id: &id,
            topics: vec![topic].into(),
            ..Default::default()
        };
        let sent = self.send(Ask::Commit(offsets.clone()), now, (&OFFSET_COMMIT, self.by_id()), &request);
        offsets.iter().for_each(|(partition, offset)| book.commit_sent(*partition, *offset));
        sent
    }

    fn send_fetch(&mut self, now: Instant, book: &Book) -> io::Result<()> {
        let partitions = self.owned.iter().filter_map(|(partition, position)| {
            Some(FetchPartition {
                partition: PartitionIndex(*partition),
                fetch_offset: Offset(position.next?),
                partition_max_bytes: FETCH_BYTES,
                ..Default::default()
            })
        });
        let topics =
            vec![FetchTopic { topic: &book.plan.topic, partitions: partitions.collect(), ..Default::default() }];
        let request = FetchRequest {
            max_wait_ms: FETCH_WAIT_MS,
            min_bytes: 1,
            max_bytes: FETCH_BYTES,
            topics: topics.into(),
            ..Default::default()
        };
        self.send(Ask::Fetch, now, (&FETCH, FETCH_VERSION), &request)
    }

    /// Takes one answer, if it is here whole. False when there is none.
    pub fn receive(&mut self, now: Instant, book: &mut Book, stats: &mut Stats) -> io::Result<bool> {
        let Some(connection) = &mut self.connection else { return Ok(false) };
        let Some(frame) = connection.try_receive()? else { return Ok(false) };
        let Some((ask, sent)) = self.ask.take() else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "an answer to nothing"));
        };
        let waited = now - sent;
        if waited > book.plan.rebalance_max() {
            book.broken(format!("member {} waited {waited:?} for {ask:?}", self.number));
        }
        match ask {
            Ask::Join => self.joined(now, sent, &frame, book, stats)?,
            Ask::Sync => self.synced(now, sent, &frame, book, stats)?,
            Ask::Beat if self.protocol == Protocol::Consumer => {
                self.consumer_beaten((now, sent), &frame, book, stats)?
            }
            Ask::Beat => self.beaten((now, sent), &frame, book, stats)?,
            // Whatever it was told: it is gone.
            Ask::Leave => self.vanish(),
            Ask::Commit(offsets) => self.committed(now, offsets, &frame, book, stats)?,
            Ask::Positions(partitions) => self.positioned(now, &partitions, &frame, book)?,
            Ask::Fetch => self.fetched(now, &frame, book)?,
        }
        Ok(true)
    }

    /// What a code that is none of success does to a member.
    fn refused(&mut self, now: Instant, (what, code): (&str, ErrorCode), book: &mut Book, stats: &mut Stats) {
        use ErrorCode::*;
        let known = std::mem::take(&mut self.known);
        match code {
            CoordinatorLoadInProgress | CoordinatorNotAvailable | NotCoordinator | RequestTimedOut => {
                self.known = known;
                self.pause = now + AGAIN;
            }
            RebalanceInProgress => {
                self.called = self.stage == Stage::In;
                if matches!(self.stage, Stage::Syncs(_)) {
                    self.stage = Stage::Joins;
                }
            }
            StaleMemberEpoch => (self.beat_due, self.pause) = (now, now + Duration::from_millis(1)),
            // The last: it was put out, and without it the group is one of the classic protocol again.
            UnknownMemberId | IllegalGeneration | FencedMemberEpoch | GroupIdNotFound => {
                if known {
                    stats.forgotten += 1;
                    book.broken(format!("member {} was forgotten: {code:?} to {what}", self.number));
                }
                self.lose_all(book);
                (self.called, self.generation) = (false, 0);
                if code == UnknownMemberId && self.protocol == Protocol::Classic {
                    self.id.clear();
                }
                if self.stage != Stage::Leaves && self.protocol == Protocol::Classic {
                    self.stage = Stage::Joins;
                }
                self.beat_due = now;
            }
            _ => book.broken(format!("member {}: {code:?} to {what}", self.number)),
        }
    }

    fn joined(
        &mut self,
        now: Instant,
        sent: Instant,
        frame: &Frame,
        book: &mut Book,
        stats: &mut Stats,
    ) -> io::Result<()> {
        let (_, reply): (i32, JoinGroupResponse<'_>) = frame.decode(&JOIN_GROUP, 9)?;
        match reply.error_code {
            ErrorCode::None => {}
            ErrorCode::MemberIdRequired => {
                self.id = reply.member_id.into();
                return Ok(());
            }
            code => {
                self.refused(now, ("JoinGroup", code), book, stats);
                return Ok(());
            }
        }
        stats.joins += 1;
        self.known = false;
        book.beat(self.identity, sent);
        (self.id, self.generation) = (reply.member_id.into(), reply.generation_id);
        let mut assignments = Vec::new();
        if reply.leader == reply.member_id && !reply.skip_assignment {
            let ids: Vec<&str> = reply.members.iter().map(|member| member.member_id).collect();
            for (at, id) in ids.iter().enumerate() {
                let partitions: Vec<PartitionIndex> =
                    (at as i32..book.plan.partitions).step_by(ids.len()).map(PartitionIndex).collect();
                let topic = TopicPartition { topic: &book.plan.topic, partitions: partitions.into() };
                let body = ConsumerProtocolAssignment { assigned_partitions: vec![topic].into(), ..Default::default() };
                assignments.push((id.to_string(), encode_value(0, &body)));
            }
        }
        self.stage = Stage::Syncs(assignments);
        Ok(())
    }

    fn synced(
        &mut self,
        now: Instant,
        sent: Instant,
        frame: &Frame,
        book: &mut Book,
        stats: &mut Stats,
    ) -> io::Result<()> {
        let (_, reply): (i32, SyncGroupResponse<'_>) = frame.decode(&SYNC_GROUP, 5)?;
        if reply.error_code != ErrorCode::None {
            self.refused(now, ("SyncGroup", reply.error_code), book, stats);
            return Ok(());
        }
        book.beat(self.identity, sent);
        let assigned: Vec<i32> = if reply.assignment.is_empty() {
            Vec::new()
        } else {
            let invalid = |e| io::Error::new(io::ErrorKind::InvalidData, format!("an assignment: {e:?}"));
            let body: ConsumerProtocolAssignment<'_> = decode_embedded(reply.assignment).map_err(invalid)?;
            body.assigned_partitions
                .iter()
                .flat_map(|topic| topic.partitions.iter().collect::<Vec<_>>())
                .map(|p| p.0)
                .collect()
        };
        book.assigned(self.identity, self.generation, &assigned);
        for partition in assigned {
            book.take(self.identity, partition, now);
            self.owned.insert(partition, Position::default());
        }
        book.changed = true;
        self.stage = Stage::In;
        self.beat_due = now + book.plan.next_beat();
        Ok(())
    }

    fn beaten(
        &mut self,
        (now, sent): (Instant, Instant),
        frame: &Frame,
        book: &mut Book,
        stats: &mut Stats,
    ) -> io::Result<()> {
        let (_, reply): (i32, HeartbeatResponse) = frame.decode(&HEARTBEAT, 4)?;
        self.beat_due = now + book.plan.next_beat();
        stats.beats.saturating_record((now - sent).as_micros() as u64);
        if matches!(reply.error_code, ErrorCode::None | ErrorCode::RebalanceInProgress) {
            book.beat(self.identity, sent);
            self.known = false;
        }
        if reply.error_code != ErrorCode::None {
            self.refused(now, ("Heartbeat", reply.error_code), book, stats);
        }
        Ok(())
    }

    fn consumer_beaten(
        &mut self,
        (now, sent): (Instant, Instant),
        frame: &Frame,
        book: &mut Book,
        stats: &mut Stats,
    ) -> io::Result<()> {
        let (_, reply): (i32, ConsumerGroupHeartbeatResponse<'_>) = frame.decode(&CONSUMER_GROUP_HEARTBEAT, 1)?;
        self.beat_due = now + book.plan.next_beat();
        stats.beats.saturating_record((now - sent).as_micros() as u64);
        if reply.error_code != ErrorCode::None {
            self.refused(now, ("ConsumerGroupHeartbeat", reply.error_code), book, stats);
            return Ok(());
        }
        self.known = false;
        book.beat(self.identity, sent);
        if reply.member_epoch != self.generation {
            self.generation = reply.member_epoch;
            book.changed = true;
            stats.joins += 1;
        }
        let Some(assignment) = &reply.assignment else { return Ok(()) };
        let partitions =
            assignment.topic_partitions.iter().flat_map(|topic| topic.partitions.iter().collect::<Vec<_>>());
        let assigned: BTreeSet<i32> = partitions.map(|partition| partition.0).collect();
        self.gives = self.owned.keys().filter(|partition| !assigned.contains(partition)).copied().collect();
        let new: Vec<i32> = assigned.into_iter().filter(|partition| !self.owned.contains_key(partition)).collect();
        for partition in new {
            book.take(self.identity, partition, now);
            self.owned.insert(partition, Position::default());
        }
        Ok(())
    }

    fn committed(
        &mut self,
        now: Instant,
        offsets: Vec<(i32, i64)>,
        frame: &Frame,
        book: &mut Book,
        stats: &mut Stats,
    ) -> io::Result<()> {
        let (_, reply): (i32, OffsetCommitResponse<'_>) = frame.decode(&OFFSET_COMMIT, self.by_id())?;
        let codes = reply.topics.iter().flat_map(|topic| topic.partitions.iter().collect::<Vec<_>>());
        let mut worst = ErrorCode::None;
        for ((partition, offset), answer) in offsets.into_iter().zip(codes) {
            if answer.error_code == ErrorCode::None {
                book.commit_acknowledged(partition, offset);
                if let Some(position) = self.owned.get_mut(&partition) {
                    position.committed = offset;
                }
            } else {
                // A time that is over says nothing.
                if answer.error_code != ErrorCode::RequestTimedOut {
                    book.commit_refused(partition, offset);
                }
                worst = answer.error_code;
            }
        }
        if worst != ErrorCode::None {
            self.refused(now, ("OffsetCommit", worst), book, stats);
        }
        Ok(())
    }

    fn positioned(&mut self, now: Instant, partitions: &[i32], frame: &Frame, book: &mut Book) -> io::Result<()> {
        let (_, reply): (i32, OffsetFetchResponse<'_>) = frame.decode(&OFFSET_FETCH, self.by_id())?;
        let group = reply.groups.iter().next();
        let Some(group) = group.filter(|group| group.error_code == ErrorCode::None) else {
            (self.beat_due, self.pause) = (now, now + AGAIN);
            return Ok(());
        };
        let answers = group.topics.iter().flat_map(|topic| topic.partitions.iter().collect::<Vec<_>>());
        let answers: Vec<_> = answers.collect();
        if answers.len() != partitions.len() {
            book.broken(format!("{} offsets for {} partitions", answers.len(), partitions.len()));
        }
        for answer in answers {
            let (partition, offset) = (answer.partition_index.0, answer.committed_offset.0);
            book.read(partition, offset, answer.metadata.unwrap_or_default());
            if let Some(position) = self.owned.get_mut(&partition) {
                *position = Position { next: Some(offset.max(0)), committed: offset.max(0) };
            }
        }
        Ok(())
    }

    fn fetched(&mut self, now: Instant, frame: &Frame, book: &mut Book) -> io::Result<()> {
        let (_, reply): (i32, FetchResponse<'_>) = frame.decode(&FETCH, FETCH_VERSION)?;
        let mut records = Vec::new();
        for topic in &reply.responses {
            for data in &topic.partitions {
                let partition = data.partition_index.0;
                let Some(next) = self.owned.get_mut(&partition).and_then(|position| position.next.as_mut()) else {
                    continue;
                };
                match data.error_code {
                    ErrorCode::None => {}
                    ErrorCode::OffsetOutOfRange => {
                        book.broken(format!("partition {partition} has no offset {next}, where the group goes on"));
                    }
                    _ => {
                        self.pause = now + AGAIN;
                        continue;
                    }
                }
                records.clear();
                take_records(data.records.wire().unwrap_or(&[]), *next, &mut records)?;
                for (offset, _) in &records {
                    if *offset != *next {
                        book.broken(format!("partition {partition}: offset {offset} where {next} was due"));
                    }
                    book.deliver(partition, *offset);
                    *next = offset + 1;
                }
            }
        }
        Ok(())
    }
}
