//! The shard itself: what it is made of, and how one completion after the other passes through it.
//!
//! Nothing recurses: calls to itself, requests that a reply set free, and events wait in queues that `settle` empties.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ringmain_buffer::{Bufs, Pool};
use ringmain_disk::DiskError;
use ringmain_log::{CompactionStats, ReadToken, Store, StoreConfig, StoreEvent};
use ringmain_metadata::{BrokerConfig, ClusterImage};
use ringmain_session::{Close, Reply, Request};
use ringmain_types::*;

use crate::calling::Calling;
use crate::calls::{Calls, Outgoing};
use crate::control::Control;
use crate::fetch_session::FetchSessions;
use crate::groups::Groups;
use crate::jobs::{Job, ReplyTo, Waiter, Work};
use crate::logs::{ImageScope, Logs};
use crate::mesh::{Call, CallId, Mesh, Return};
use crate::purgatory::{OffsetWaits, Watches};
use crate::serve::{Serve, Serving};
use crate::sessions::Sessions;
use crate::slab::{Key, Slab};
use crate::space::Space;
use crate::timers::Timers;
use crate::work::{Crowd, InTurn};
use crate::{Config, Effects, Input, Note, Phases};

/// How long a clean stop waits for what is under way.
const STOP_MS: u64 = 5_000;
/// How often at most a log that changes is told of.
const LOG_NOTES_MS: u64 = 1_000;
/// How long a caller outlives the deadline that it gave its owner, who answers in time unless something is wrong.
const CALL_GRACE_MS: u64 = 5_000;

const ALL_ACCOUNTS: [Account; ACCOUNTS] =
    [Account::Receive, Account::Tail, Account::Cache, Account::Reply, Account::Background, Account::Control];

#[derive(Clone, Copy, Debug)]
pub(crate) enum Timer {
    Session(ConnectionId),
    Job(Key),
    Serve(Key),
    /// A long poll that found no memory: it is asked to try again.
    Retry(CallId),
    /// Logs that changed are told of.
    LogNotes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopping {
    /// Until then, what is under way may end.
    Draining(Instant),
    /// The store closes.
    Closing,
    Done,
}

/// One core's whole state.
pub struct Shard {
    pub(crate) config: Config,
    pub(crate) broker_config: Arc<BrokerConfig>,
    pub(crate) pool: Pool,
    pub(crate) store: Store,
    pub(crate) image: Arc<ClusterImage>,
    /// Topics and partitions in it.
    pub(crate) image_elements: u64,
    /// The image that all of this shard's logs follow.
    applied: Option<Offset>,
    log_notes_due: bool,
    /// As it was told of last.
    compaction: CompactionStats,
    pub(crate) logs: Logs,
    pub(crate) sessions: Sessions,
    /// Requests that wait for memory.
    pub(crate) crowd: Crowd,
    pub(crate) space: Space,
    pub(crate) fetch_sessions: FetchSessions,
    pub(crate) timers: Timers<Timer>,
    pub(crate) stopping: Option<Stopping>,
    /// Shard 0's part.
    pub(crate) control: Option<Control>,
    /// Reported once, as `Note::Fenced`.
    pub(crate) failed: Option<DiskError>,

    // Requests of this shard's connections, and what they asked of owners.
    pub(crate) jobs: Slab<Job>,
    pub(crate) calls: Calls<Waiter>,
    /// Watches that owners hold for our long polls.
    pub(crate) watching: BTreeMap<CallId, Waiter>,

    // What this shard owes others as an owner.
    pub(crate) serves: Slab<Serve>,
    pub(crate) serving: Calling,
    pub(crate) reads: BTreeMap<ReadToken, (Key, u32)>,
    pub(crate) flush_waits: OffsetWaits<(Key, u32)>,
    pub(crate) start_waits: OffsetWaits<(Key, u32)>,
    pub(crate) watches: Watches,

    // The coordinators of this shard's partitions of `__consumer_offsets`, and our requests that wait in others'.
    pub(crate) groups: Groups,
    pub(crate) parked: BTreeMap<CallId, Waiter>,

    // Emptied by `settle`.
    pub(crate) requests: VecDeque<Request>,
    loopback: VecDeque<Mesh>,
    pub(crate) failed_calls: VecDeque<(Waiter, Return)>,
    events: Vec<StoreEvent>,
    /// The journal is replayed: logs may be made.
    opened: bool,
    /// Came before that; the newest is enough.
    early_image: Option<Arc<ClusterImage>>,
    /// Requests that came before the shard was ready; the sessions bound their number.
    held: Vec<Request>,
    /// Calls of shards that were ready earlier; their slots bound the number.
    held_calls: Vec<(CallId, Instant, Call)>,
    /// What is decompressed, again and again.
    pub(crate) scratch: Vec<u8>,
    /// Empty but within `flushed`, which has it for its room.
    acked: Vec<(Key, u32)>,
}

impl Shard {
    /// Starts in recovery; connections are accepted and their requests wait. The one way to make a shard.
    pub fn open(mut config: Config, now: Now, out: &mut Effects) -> Shard {
        let _ = now;
        assert!(config.shard.0 < config.shards);
        // The node has checked them; a shard does not start on half of what was asked.
        let mut broker_config = BrokerConfig::parse(&config.properties).unwrap_or_else(|errors| panic!("{errors:?}"));
        let (host, port) = &config.advertised;
        broker_config.settle("node.id", config.broker.0.to_string());
        broker_config.settle("broker.id", config.broker.0.to_string());
        broker_config.settle("advertised.listeners", format!("PLAINTEXT://{}", crate::address(host, *port)));
        broker_config.settle("log.dirs", config.dir_path.clone());
        config.limits = broker_config.bound(config.limits, config.shards);
        config.limits.check();
        let store = StoreConfig {
            shard: config.shard,
            dir: config.dir,
            limits: config.limits.clone(),
            seed: config.seed,
            journal_generation: config.journal_generation,
            journal_exists: config.journal_exists,
            journal_flush_covers: config.journal_flush_covers,
        };
        let (shard, shards, limits) = (config.shard, config.shards, &config.limits);
        Shard {
            pool: Pool::new(shard, limits),
            store: Store::open(store, &mut out.disk),
            image: Arc::default(),
            image_elements: 0,
            applied: None,
            log_notes_due: false,
            compaction: CompactionStats::default(),
            logs: Logs::new(shard, shards),
            sessions: Sessions::new(limits),
            crowd: Crowd::default(),
            space: Space::default(),
            fetch_sessions: FetchSessions::new(shard, shards, config.seed, limits),
            timers: Timers::new(),
            stopping: None,
            control: None,
            failed: None,
            jobs: Slab::new(),
            calls: Calls::new(shard, shards, limits),
            watching: BTreeMap::new(),
            serves: Slab::new(),
            serving: Calling::default(),
            reads: BTreeMap::new(),
            flush_waits: OffsetWaits::new(),
            start_waits: OffsetWaits::new(),
            watches: Watches::new(),
            groups: Groups::new(&broker_config, &config),
            parked: BTreeMap::new(),
            requests: VecDeque::new(),
            loopback: VecDeque::new(),
            failed_calls: VecDeque::new(),
            events: Vec::new(),
            opened: false,
            early_image: None,
            held: Vec::new(),
            held_calls: Vec::new(),
            scratch: Vec::new(),
            acked: Vec::new(),
            broker_config: Arc::new(broker_config),
            config,
        }
    }

    pub fn step(&mut self, now: Now, input: Input<'_>, out: &mut Effects) {
        match input {
            Input::Accepted { connection, peer, .. } => {
                if self.stopping.is_some() {
                    out.net.push(crate::NetOp::Close { connection });
                } else {
                    self.sessions.accept(now, connection, peer, out);
                }
            }
            Input::Received { connection, incoming } => self.received(now, connection, incoming, out),
            Input::Sent { connection, bytes } => {
                if let Some(found) = self.sessions.get_mut(connection) {
                    found.session.sent(now, bytes, &mut self.requests);
                    self.sessions.touch(connection);
                }
            }
            Input::Eof { connection } => self.peer_ended(now, connection, out),
            Input::Closed { connection, why } => {
                self.crowd.forget(connection);
                if let Some(gone) = self.sessions.forget(connection, why, &mut self.timers, out) {
                    self.end_jobs(gone.jobs, out);
                }
            }
            Input::Disk(done) if Space::is_own(&done) => self.space_known(now, done, out),
            Input::Disk(done) => self.store.done(now, &mut self.pool, done, &mut self.events),
            Input::Mesh { from, message } => self.message(now, from, message, out),
            Input::Stop => self.stop(now, out),
        }
        self.settle(now, out);
    }

    /// After the last input of a turn: group commit, fetch completions, credits.
    pub fn finish_turn(&mut self, now: Now, out: &mut Effects) {
        self.pool.collect();
        self.store.events(&mut self.events);
        self.settle(now, out);
        self.control_finish_turn(now, out);
        self.groups_finish_turn(now, out);
        self.settle(now, out);
        self.store.finish_turn(now, &mut self.pool, &mut out.disk);
        self.store.events(&mut self.events);
        if !self.events.is_empty() {
            self.settle(now, out);
            self.control_finish_turn(now, out);
            self.groups_finish_turn(now, out);
            self.settle(now, out);
            self.store.finish_turn(now, &mut self.pool, &mut out.disk);
        }
        if let Some(error) = self.failed.take() {
            out.notes.push(Note::Fenced { dir: self.config.dir, error });
        }
        self.close_worst(out);
        if !self.log_notes_due && (self.logs.any_changed() || self.groups.any_changed()) {
            self.log_notes_due = true;
            self.timers.set(now.mono.plus_ms(LOG_NOTES_MS), Timer::LogNotes);
        }
        let timer = Timer::Session;
        for finished in self.sessions.flush(now, &mut self.pool, &mut self.timers, timer, out) {
            self.close(finished, Close::Eof, out);
        }
        self.finish_stop(now, out);
    }

    /// Fires what is due.
    pub fn tick(&mut self, now: Now, out: &mut Effects) {
        self.expire_crowd(now, out);
        self.settle(now, out);
        while let Some(timer) = self.timers.fire(now.mono) {
            match timer {
                Timer::Session(connection) => {
                    if let Err(why) = self.sessions.tick(now, connection) {
                        self.close(connection, why, out);
                    }
                }
                Timer::Job(job) => self.job_expired(now, job, out),
                Timer::Serve(serve) => self.serve_expired(serve, out),
                Timer::LogNotes => {
                    self.log_notes_due = false;
                    self.logs.tell(&self.store, &mut out.notes);
                    if self.groups.any_changed() {
                        self.groups.tell(&self.config.limits, &mut out.notes);
                    }
                }
                Timer::Retry(call) => {
                    if self.watches.cancel(call) {
                        self.answer(call, Return::Ready, out);
                    }
                }
            }
            self.settle(now, out);
        }
    }

    /// What is taken of an account, in bytes: for tests, and the simulator's checkers.
    pub fn memory_used(&self, account: Account) -> u64 {
        self.pool.used(account)
    }

    /// Of each account: what is used, and what may be. What requests under way take counts to Reply.
    pub fn memory(&self) -> [(u64, u64); ACCOUNTS] {
        let mut memory = ALL_ACCOUNTS.map(|account| (self.pool.used(account), self.pool.limit(account)));
        memory[Account::Reply as usize].0 = self.sessions.work_bytes();
        memory
    }

    /// For checks: see `Store::ring_room`.
    pub fn ring_room(&self, known: u64) -> Option<(u64, bool)> {
        self.store.ring_room(known)
    }

    /// When `tick` and `finish_turn` want to run, whatever comes in.
    pub fn deadline(&self) -> Option<Instant> {
        let stop = match self.stopping {
            Some(Stopping::Draining(until)) => Some(until),
            _ => None,
        };
        let parts = [self.timers.deadline(), self.store.deadline(), self.sessions.deadline()];
        let all = parts.into_iter().chain([self.groups.deadline(), stop]);
        all.chain([self.crowd_deadline()]).flatten().min()
    }

    /// False when there is nothing to do. Called when a turn had room.
    pub fn background(&mut self, now: Now, bytes: u32, out: &mut Effects) -> bool {
        let more = self.store.background(now, &mut self.pool, bytes, &mut out.disk);
        let stats = self.store.compaction();
        if stats != self.compaction {
            if let Some(log) = stats.last_log.filter(|_| stats.runs > self.compaction.runs) {
                self.logs.compacted(log);
            }
            self.compaction = stats;
            out.notes.push(Note::Compaction(stats));
        }
        more
    }

    fn received(&mut self, now: Now, id: ConnectionId, incoming: ringmain_session::Incoming<'_>, out: &mut Effects) {
        if matches!(incoming, ringmain_session::Incoming::Direct(_)) {
            self.sessions.direct_done(id);
        }
        let Some(found) = self.sessions.get_mut(id) else { return };
        let result = found.session.received(now, &mut self.pool, incoming, &mut self.requests);
        self.sessions.touch(id);
        if let Err(why) = result {
            // What came before the fault is done first, as a slower reader would have.
            self.settle(now, out);
            self.close(id, why, out);
        }
    }

    /// As on Kafka, a client that sends no more gets all its replies. Long polls end now: most such clients are gone, and those that
    /// are not ask for nothing more.
    fn peer_ended(&mut self, now: Now, id: ConnectionId, out: &mut Effects) {
        let Some(found) = self.sessions.get_mut(id) else { return };
        found.session.end(now);
        let jobs = found.jobs.clone();
        self.sessions.touch(id);
        for key in jobs {
            self.end_wait(now, key, out);
        }
    }

    /// A long poll is answered with what there is.
    pub(crate) fn end_wait(&mut self, now: Now, key: Key, out: &mut Effects) {
        if matches!(self.jobs.get(key), Some(Job { work: Work::Fetch(_), .. })) {
            self.job_expired(now, key, out);
        }
    }

    /// While replies and what is under way take more than their account, those go that take most.
    fn close_worst(&mut self, out: &mut Effects) {
        while let Some(worst) = self.sessions.worst_holder() {
            self.close(worst, Close::Memory, out);
        }
    }

    /// Closes a connection for a reason of ours.
    pub(crate) fn close(&mut self, id: ConnectionId, why: Close, out: &mut Effects) {
        self.crowd.forget(id);
        if let Some(gone) = self.sessions.close(id, why, &mut self.timers, out) {
            self.end_jobs(gone.jobs, out);
        }
    }

    /// A closed connection's long polls end; everything else runs to its end and is told to nobody.
    fn end_jobs(&mut self, jobs: impl IntoIterator<Item = Key>, out: &mut Effects) {
        for key in jobs {
            if matches!(self.jobs.get(key), Some(Job { work: Work::Fetch(_), .. }))
                && let Some(job) = self.take_job(key)
                && let Work::Fetch(fetch) = job.work
            {
                self.give_fetch_up(*fetch, out);
            }
        }
    }

    /// Empties the queues.
    pub(crate) fn settle(&mut self, now: Now, out: &mut Effects) {
        loop {
            if !self.events.is_empty() {
                let mut events = std::mem::take(&mut self.events);
                for event in events.drain(..) {
                    self.event(now, event, out);
                }
                events.append(&mut self.events);
                self.events = events;
            } else if let Some(request) = self.requests.pop_front() {
                self.dispatch(now, request, out);
            } else if let Some(message) = self.loopback.pop_front() {
                self.message(now, self.config.shard, message, out);
            } else if let Some((waiter, result)) = self.failed_calls.pop_front() {
                self.returned(now, waiter, result, out);
            } else if let Some(next) = self.next_of_crowd(now, out) {
                match next {
                    InTurn::Request(admitted) => self.run(now, &admitted, out),
                    InTurn::Step(job) => self.do_step(now, job, out),
                    InTurn::Waste => self.crowd.middle.let_go(self.config.limits.step_elements_max as usize),
                }
            } else {
                return;
            }
        }
    }

    fn message(&mut self, now: Now, from: ShardId, message: Mesh, out: &mut Effects) {
        match message {
            Mesh::Call { id, deadline, call } => self.serve(now, id, deadline, call, out),
            Mesh::Return { id, result: Return::Ready } => self.watch_fired(now, id, out),
            Mesh::Return { id, result: Return::Late(result) } => {
                if let Some(waiter) = self.parked.remove(&id) {
                    self.returned(now, waiter, result.map_or_else(Return::Failed, Return::Group), out);
                }
            }
            Mesh::Return { id, result } => {
                let waiter = self.calls.returned(from, id);
                if let Some(next) = self.calls.next(from) {
                    self.send_call(from, next, out);
                }
                let waiter = waiter.filter(|waiter| self.jobs.get(waiter.job).is_some());
                match (waiter, result) {
                    (Some(waiter), Return::Waiting(results)) => self.fetch_waiting(now, id, waiter, results, out),
                    (Some(waiter), Return::Parked) => drop(self.parked.insert(id, waiter)),
                    (Some(waiter), result) => self.returned(now, waiter, result, out),
                    (None, Return::Waiting(_)) => self.send(from, Mesh::Cancel { id }, out),
                    (None, _) => {}
                }
            }
            Mesh::Cancel { id } => self.cancelled(id, out),
            // A log made before the journal is replayed would begin anew.
            Mesh::Image(image) if !self.opened => self.early_image = Some(image),
            Mesh::Image(image) => self.apply_image(now, image, out),
            Mesh::Applied { next } => self.control_applied(from, next, out),
        }
    }

    pub(crate) fn send(&mut self, to: ShardId, message: Mesh, out: &mut Effects) {
        if to == self.config.shard {
            self.loopback.push_back(message);
        } else {
            out.mesh.push((to, message));
        }
    }

    /// Asks an owner; the answer comes to `returned`.
    pub(crate) fn call(&mut self, to: ShardId, deadline: Instant, call: Call, waiter: Waiter, out: &mut Effects) {
        if to != self.config.shard
            && let Some(job) = self.jobs.get_mut(waiter.job)
        {
            job.remote = true;
        }
        match self.calls.make(to, deadline, call, waiter) {
            Ok(Some(outgoing)) => self.send_call(to, outgoing, out),
            Ok(None) => {}
            Err(waiter) => {
                self.failed_calls.push_back((waiter, Return::Failed(ErrorCode::RequestTimedOut)));
            }
        }
    }

    fn send_call(&mut self, to: ShardId, outgoing: Outgoing, out: &mut Effects) {
        let Outgoing { id, deadline, call } = outgoing;
        self.send(to, Mesh::Call { id, deadline, call }, out);
    }

    /// Answers a call.
    pub(crate) fn answer(&mut self, id: CallId, result: Return, out: &mut Effects) {
        self.send(id.from, Mesh::Return { id, result }, out);
    }

    fn event(&mut self, now: Now, event: StoreEvent, out: &mut Effects) {
        match event {
            StoreEvent::Opened => {
                self.opened = true;
                if self.config.shard == ShardId(0) {
                    self.control_open(now);
                }
                if let Some(image) = self.early_image.take() {
                    self.apply_image(now, image, out);
                }
            }
            StoreEvent::Recovered { log, partition, report } => {
                if self.is_control(log) {
                    self.control_recovered(now);
                } else {
                    self.logs.recovered(&self.store, log);
                    self.groups.look_again();
                }
                out.notes.push(Note::Recovered { partition, report });
                self.maybe_applied(out);
            }
            StoreEvent::Flushed { log, end } => self.flushed(log, end, out),
            StoreEvent::Started { log, start } => {
                if let Some((partition, _)) = self.logs.by_id(log) {
                    self.logs.changed(partition);
                }
                let mut done = Vec::new();
                self.start_waits.reached(log, start, &mut done);
                self.records_deleted(log, &done, ErrorCode::None, out);
            }
            StoreEvent::Read { log, token, result } => {
                if self.is_control(log) {
                    self.control_read(now, token, result);
                } else if self.groups.reads(token) {
                    self.groups_read(now, token, result);
                } else {
                    self.read_done(now, token, result, out);
                }
            }
            StoreEvent::Found { token, result, .. } => self.find_done(token, result, out),
            StoreEvent::NoSpace { partition, error } => out.notes.push(Note::NoSpace { partition, error }),
            StoreEvent::Damaged { partition, damage } => out.notes.push(Note::Damaged { partition, damage }),
            StoreEvent::SpaceAgain { partition } => out.notes.push(Note::SpaceAgain { partition }),
            StoreEvent::Fenced { dir, error } => {
                out.notes.push(Note::Fenced { dir, error });
                self.control_fenced(out);
                self.fenced(out);
            }
            StoreEvent::Removed { log } => {
                let image = self.image.clone();
                self.logs.removed(now, &mut self.store, &image, log);
                self.maybe_applied(out);
            }
            StoreEvent::Closed => {
                self.stopping = Some(Stopping::Done);
                out.notes.push(Note::Stopped);
            }
        }
    }

    fn is_control(&self, log: LogId) -> bool {
        self.control.as_ref().is_some_and(|control| control.is_log(log))
    }

    /// Local durability moved: acks go out, and in group mode the high watermark moves.
    fn flushed(&mut self, log: LogId, end: Offset, out: &mut Effects) {
        if self.is_control(log) {
            return self.control_flushed(end, out);
        }
        self.show(log, end, out);
        let mut acked = std::mem::take(&mut self.acked);
        self.flush_waits.reached(log, end, &mut acked);
        self.produced(&acked, ErrorCode::None, out);
        acked.clear();
        self.acked = acked;
        self.groups_flushed(log, end);
    }

    /// Moves a log's high watermark.
    pub(crate) fn show(&mut self, log: LogId, to: Offset, out: &mut Effects) {
        let Some((partition, owned)) = self.logs.by_id(log) else { return };
        let Some(grown) = owned.advance(to) else { return };
        self.logs.changed(partition);
        out.notes.push(Note::Visible { partition, high_watermark: to });
        let mut ready = Vec::new();
        self.watches.grew(log, grown, &mut ready);
        for call in ready {
            self.answer(call, Return::Ready, out);
        }
    }

    /// A new image: logs come and go.
    fn apply_image(&mut self, now: Now, image: Arc<ClusterImage>, out: &mut Effects) {
        if image.next <= self.image.next && self.applied.is_some() {
            return;
        }
        let old = std::mem::replace(&mut self.image, image.clone());
        self.image_elements = image.topics.values().map(|topic| 1 + topic.partitions.len() as u64).sum();
        let scope = ImageScope { image: &image, broker_config: &self.broker_config, broker: self.config.broker };
        let mut gone = Vec::new();
        self.logs.apply(now, &mut self.store, &scope, &old, &mut gone);
        if old.next == Offset(0) {
            self.logs.sweep(now, &mut self.store, &scope);
        }
        for log in gone {
            self.log_gone(log, out);
        }
        self.groups.look_again();
        self.maybe_applied(out);
    }

    fn log_gone(&mut self, log: LogId, out: &mut Effects) {
        let (mut acks, mut starts, mut ready) = (Vec::new(), Vec::new(), Vec::new());
        self.flush_waits.fail(log, &mut acks);
        self.start_waits.fail(log, &mut starts);
        self.watches.fail(log, &mut ready);
        self.produced(&acks, ErrorCode::UnknownTopicOrPartition, out);
        self.records_deleted(log, &starts, ErrorCode::UnknownTopicOrPartition, out);
        for call in ready {
            self.answer(call, Return::Ready, out);
        }
    }

    /// Tells shard 0 when the newest image is served in full; the first time, requests that came early are run.
    fn maybe_applied(&mut self, out: &mut Effects) {
        let next = self.image.next;
        if next == Offset(0) || !self.logs.settled() || self.applied.is_some_and(|applied| applied >= next) {
            return;
        }
        if self.applied.replace(next).is_none() {
            out.notes.push(Note::Ready);
            self.requests.extend(std::mem::take(&mut self.held));
            for (id, deadline, call) in std::mem::take(&mut self.held_calls) {
                self.loopback.push_back(Mesh::Call { id, deadline, call });
            }
        }
        self.send(ShardId(0), Mesh::Applied { next }, out);
    }

    /// Whether a request must wait, and does.
    pub(crate) fn hold(&mut self, request: Request) -> Option<Request> {
        if self.applied.is_some() {
            return Some(request);
        }
        self.held.push(request);
        None
    }

    /// As `hold`, for a call: its caller may have been ready first. What changes metadata is asked of shard 0 alone, and only by those
    /// who have an image.
    pub(crate) fn hold_call(&mut self, id: CallId, deadline: Instant, call: Call) -> Option<Call> {
        if self.applied.is_some() || matches!(call, Call::Control { .. } | Call::AutoCreate { .. }) {
            return Some(call);
        }
        self.held_calls.push((id, deadline, call));
        None
    }

    /// Registers a request under way; `deadline` is the last moment at which it is answered.
    pub(crate) fn add_job(&mut self, to: ReplyTo, work: Work, deadline: Instant) -> Key {
        let mut job = Job { to, work, timer: None, remote: false, bytes: 0 };
        job.bytes = job.work_bytes();
        self.sessions.charge(job.bytes);
        if matches!(job.work, Work::Fetch(_)) {
            self.poll_begins(job.bytes);
        }
        let job = self.jobs.insert(job);
        let timer = self.timers.set(deadline, Timer::Job(job));
        if let Some(job) = self.jobs.get_mut(job) {
            job.timer = Some(timer);
        }
        if let Some(connection) = self.sessions.get_mut(to.connection) {
            connection.jobs.push(job);
        }
        job
    }

    pub(crate) fn call_deadline(deadline: Instant) -> Instant {
        deadline.plus_ms(CALL_GRACE_MS)
    }

    pub(crate) fn take_job(&mut self, key: Key) -> Option<Job> {
        let job = self.jobs.remove(key)?;
        self.sessions.discharge(job.bytes);
        if matches!(job.work, Work::Fetch(_)) {
            self.poll_ends(job.bytes);
        }
        if let Some(timer) = job.timer {
            self.timers.cancel(timer);
        }
        if let Some(connection) = self.sessions.get_mut(job.to.connection) {
            connection.jobs.retain(|job| *job != key);
        }
        Some(job)
    }

    /// Sends a reply in its connection's order. `error` is what metrics count.
    pub(crate) fn reply(
        &mut self,
        now: Now,
        to: &ReplyTo,
        parts: Bufs,
        (error, remote): (ErrorCode, bool),
        out: &mut Effects,
    ) {
        self.note_request(now, to, error, remote, out);
        let Some(connection) = self.sessions.get_mut(to.connection) else { return };
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let reply = Reply { slot: to.slot, parts, throttle_ms: to.throttle_ms };
        connection.session.reply(now, reply, &mut self.requests);
        self.sessions.touch(to.connection);
        // A turn may bring many.
        self.sessions.replied(to.connection, bytes);
        self.close_worst(out);
    }

    /// acks=0: no bytes.
    pub(crate) fn skip(&mut self, now: Now, to: &ReplyTo, remote: bool, out: &mut Effects) {
        self.note_request(now, to, ErrorCode::None, remote, out);
        let Some(connection) = self.sessions.get_mut(to.connection) else { return };
        connection.session.skip(now, to.slot, &mut self.requests);
        self.sessions.touch(to.connection);
    }

    fn note_request(&mut self, now: Now, to: &ReplyTo, error: ErrorCode, remote: bool, out: &mut Effects) {
        let spent = now.mono.since(to.dispatched);
        let phases = Phases {
            queue_ns: to.dispatched.since(to.received),
            local_ns: if remote { 0 } else { spent },
            remote_ns: if remote { spent } else { 0 },
            throttle_ns: 0,
            send_ns: 0,
        };
        out.notes.push(Note::Request { api: to.api, version: to.version, error, phases });
    }

    /// Clean stop: long polls end now, the rest has a bounded time.
    fn stop(&mut self, now: Now, out: &mut Effects) {
        if self.stopping.is_some() {
            return;
        }
        self.stopping = Some(Stopping::Draining(now.mono.plus_ms(STOP_MS)));
        self.crowd.clear();
        let mut ready = Vec::new();
        self.watches.fail_all(&mut ready);
        for call in ready {
            self.answer(call, Return::Ready, out);
        }
        self.groups_stop(out);
        for key in self.jobs.keys() {
            self.end_wait(now, key, out);
        }
    }

    fn finish_stop(&mut self, now: Now, out: &mut Effects) {
        let Some(Stopping::Draining(until)) = self.stopping else { return };
        let quiet = self.jobs.len() == 0
            && self.serves.len() == 0
            && self.control.as_ref().is_none_or(Control::quiet)
            && self.groups.quiet()
            && self.sessions.all_sent();
        if !quiet && now.mono < until {
            return;
        }
        self.stopping = Some(Stopping::Closing);
        for id in self.sessions.ids() {
            self.close(id, Close::Shutdown, out);
        }
        self.store.close(now);
        self.store.finish_turn(now, &mut self.pool, &mut out.disk);
        self.store.events(&mut self.events);
        self.settle(now, out);
    }

    /// Whether anything is still owed to anybody; a stopped shard owes nothing.
    pub(crate) fn closing(&self) -> bool {
        matches!(self.stopping, Some(Stopping::Closing | Stopping::Done))
    }

    fn serve_expired(&mut self, key: Key, out: &mut Effects) {
        let Some(serve) = self.serves.get_mut(key) else { return };
        serve.timer = None;
        match serve.work {
            Serving::Produce(_) | Serving::DeleteRecords(_) => self.finish_serve(key, out),
            Serving::Fetch(_) | Serving::Offsets(_) => {
                let id = serve.id;
                self.cancelled(id, out);
            }
        }
    }
}
