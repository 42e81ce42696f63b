//! The group coordinators of one shard: one for each partition of `__consumer_offsets` that it owns.
//!
//! ```text
//! (the log is usable) -> Loading -> Serving -> dropped, when the log goes, fails, or was written by somebody else
//! ```
//! Decisions are appended once a turn, all of a coordinator's in one batch where they fit; answers leave when that is flushed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringmain_batch::{BatchHeader, Builder, Codec};
use ringmain_buffer::Buf;
use ringmain_coordinator::{Append, Replies, Runtime, Waiter};
use ringmain_disk::DiskError;
use ringmain_group::{Client, GroupConfig, GroupCoordinator};
use ringmain_log::{AppendAs, AppendError, FlushMode, ReadAt, ReadResult, ReadToken, Slices};
use ringmain_metadata::{BrokerConfig, OFFSETS_TOPIC};
use ringmain_types::*;

use crate::api::groups::waits;
use crate::fair::Fair;
use crate::group_request::{ImageTopics, decide_request, fetch_of, with_refused};
use crate::group_settings::{group_config, share};
use crate::mesh::{CallId, GroupAsk, Return};
use crate::{Config, Effects, Note, Shard};

/// Decisions of one turn go into batches of about this.
const BATCH_BYTES: usize = 256 << 10;
/// A coordinator's load reads so much at once, and so often in a turn: about a millisecond.
const LOAD_BYTES: u32 = 64 << 10;
const LOAD_READS: usize = 4;
/// When there was no room for a batch, or none to read into.
const RETRY_MS: u64 = 10;

struct Coordinator {
    partition: Partition,
    log: LogId,
    runtime: Runtime<GroupCoordinator>,
    /// Of the load.
    read: Option<ReadToken>,
    /// It could not be loaded: nobody is answered from half of what was committed.
    failed: bool,
    /// Its place in `Groups::dues`.
    due: Option<Instant>,
}

/// A call that is not answered yet.
struct Pending {
    call: CallId,
    index: i32,
    /// It was told so, and holds no slot.
    parked: bool,
    /// Of a commit or a deletion of offsets: the codes of what the coordinator was not asked, by place.
    refused: Vec<(usize, ErrorCode)>,
}

pub(crate) struct Groups {
    config: Arc<GroupConfig>,
    backlog_max: usize,
    backlog_bytes_max: usize,
    topic: Option<TopicId>,
    coordinators: BTreeMap<i32, Coordinator>,
    pending: BTreeMap<Waiter, Pending>,
    /// Asked, and to be decided in the turns to come: of each coordinator in its order.
    asked: Fair<i32, (CallId, Partition, GroupAsk)>,
    /// How many may still be decided in this turn.
    asks_left: usize,
    asks_max: usize,
    /// Decided and committed; leave a few a turn.
    answers: Fair<i32, (CallId, Return)>,
    answers_max: usize,
    waiters: u64,
    /// Logs came or went.
    look: bool,
    /// Where something was decided or read since the last turn's end. Most turns have nothing for most of the coordinators, and there
    /// may be fifty.
    touched: BTreeSet<i32>,
    /// The next moment of each coordinator that has one, as of the last turn's end that had something to do for it.
    dues: BTreeSet<(Instant, i32)>,
    /// When all are looked at again.
    retry: Option<Instant>,
    /// Keys member ids; differs at every start.
    seed: u64,
    drawn: u64,
}

impl Groups {
    pub(crate) fn new(properties: &BrokerConfig, config: &Config) -> Groups {
        Groups {
            config: Arc::new(group_config(properties, &config.limits)),
            backlog_max: config.limits.coordinator_backlog_max as usize,
            backlog_bytes_max: config.limits.coordinator_backlog_bytes_max as usize,
            topic: None,
            coordinators: BTreeMap::new(),
            pending: BTreeMap::new(),
            asked: Fair::new(),
            asks_left: config.limits.group_asks_max as usize,
            asks_max: config.limits.group_asks_max as usize,
            answers: Fair::new(),
            answers_max: config.limits.group_answers_max as usize,
            waiters: 0,
            look: false,
            touched: BTreeSet::new(),
            dues: BTreeSet::new(),
            retry: None,
            seed: mixed(config.seed ^ u64::from(config.shard.0) << 48),
            drawn: 0,
        }
    }

    pub(crate) fn look_again(&mut self) {
        self.look = true;
    }

    pub(crate) fn reads(&self, token: ReadToken) -> bool {
        self.coordinators.values().any(|coordinator| coordinator.read == Some(token))
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        if self.look || !self.touched.is_empty() || !self.answers.is_empty() || !self.asked.is_empty() {
            // At once.
            return Some(Instant(0));
        }
        self.dues.first().map(|(at, _)| *at).into_iter().chain(self.retry).min()
    }

    /// So much of it waits for the log that nothing more is decided: neither what is asked nor what is due. The log is tried again.
    fn is_stuck(&self, index: i32) -> bool {
        self.coordinators.get(&index).is_some_and(|found| {
            found.runtime.backlog() >= self.backlog_max || found.runtime.backlog_bytes() >= self.backlog_bytes_max
        })
    }

    /// Keeps a coordinator's place among the moments true.
    fn reschedule(&mut self, index: i32) {
        let stuck = self.is_stuck(index);
        let Some(coordinator) = self.coordinators.get_mut(&index) else { return };
        let next = coordinator.runtime.deadline().filter(|_| !coordinator.failed && !stuck);
        let before = std::mem::replace(&mut coordinator.due, next);
        if before == next {
            return;
        }
        if let Some(before) = before {
            self.dues.remove(&(before, index));
        }
        if let Some(next) = next {
            self.dues.insert((next, index));
        }
    }

    /// The coordinators that have something to do at the end of this turn.
    fn take_touched(&mut self, now: Now) -> BTreeSet<i32> {
        let mut touched = std::mem::take(&mut self.touched);
        touched.extend(self.dues.iter().take_while(|(at, _)| *at <= now.mono).map(|(_, index)| *index));
        if self.retry.take_if(|at| *at <= now.mono).is_some() {
            touched.extend(self.coordinators.keys());
        }
        touched
    }

    /// Nobody waits for an answer.
    pub(crate) fn quiet(&self) -> bool {
        self.pending.is_empty() && self.answers.is_empty() && self.asked.is_empty()
    }

    pub(crate) fn any_changed(&self) -> bool {
        self.coordinators.values().any(|coordinator| coordinator.runtime.machine().any_changed())
    }

    /// Tells of groups that changed since the last time, and of about as many offsets in all as one group may have; the rest is told the
    /// next time.
    pub(crate) fn tell(&mut self, limits: &Limits, notes: &mut Vec<Note>) {
        let (mut left, offsets_max) = (limits.metric_groups_max as usize, limits.metric_group_offsets_max as usize);
        let mut offsets_left = offsets_max;
        for coordinator in self.coordinators.values_mut().filter(|found| found.runtime.is_loaded()) {
            let changed = coordinator.runtime.machine_mut().take_changed(left, offsets_max, &mut offsets_left);
            left -= changed.len();
            notes.extend(
                changed.into_iter().map(|(group, figures)| Note::Group { group, figures: figures.map(Arc::new) }),
            );
        }
        let count: usize = self.coordinators.values().map(|coordinator| coordinator.runtime.machine().len()).sum();
        notes.push(Note::Groups { count: count as u32 });
    }

    fn random(&mut self) -> u128 {
        self.drawn += 2;
        let half = |nth| u128::from(mixed(self.seed.wrapping_add(mixed(nth))));
        half(self.drawn) << 64 | half(self.drawn + 1)
    }
}

impl Shard {
    fn image_topics(&self) -> ImageTopics {
        let (image, properties) = (self.image.clone(), self.broker_config.clone());
        ImageTopics { image, properties, broker: self.config.broker }
    }

    /// A call to a coordinator. A burst of them (a thousand members that join) is decided over several turns, so that what else this
    /// core is asked does not wait for all of it.
    pub(crate) fn serve_group(&mut self, now: Now, id: CallId, at: Partition, ask: GroupAsk, out: &mut Effects) {
        match self.groups.asks_left.checked_sub(1).filter(|_| self.groups.asked.idle(at.index.0)) {
            Some(left) => {
                self.groups.asks_left = left;
                self.group_asked(now, id, at, ask, out);
            }
            // Callers have a bounded number of calls under way.
            None => self.groups.asked.push(at.index.0, (id, at, ask)),
        }
    }

    fn group_asked(&mut self, now: Now, id: CallId, at: Partition, ask: GroupAsk, out: &mut Effects) {
        let found = self.groups.coordinators.get(&at.index.0);
        let code = match found.filter(|found| found.partition == at && !found.failed && self.stopping.is_none()) {
            None => Some(self.no_coordinator(at)),
            Some(found) if !found.runtime.is_loaded() || self.groups.is_stuck(at.index.0) => {
                Some(ErrorCode::CoordinatorLoadInProgress)
            }
            Some(_) => None,
        };
        if let Some(code) = code {
            return self.answer(id, Return::Failed(code), out);
        }
        self.groups.touched.insert(at.index.0);
        self.groups.waiters += 1;
        let waiter = Waiter(self.groups.waiters);
        let pending = Pending { call: id, index: at.index.0, parked: false, refused: Vec::new() };
        self.groups.pending.insert(waiter, pending);
        match self.decide_group(now, at.index.0, waiter, &ask) {
            Ok(replies) => self.groups_reply(replies),
            Err(refusal) => {
                self.groups.pending.remove(&waiter);
                return self.answer(id, refusal, out);
            }
        }
        let waits = matches!(&ask, GroupAsk::Request { request, .. } if waits(request.api));
        if waits && let Some(pending) = self.groups.pending.get_mut(&waiter) {
            pending.parked = true;
            self.answer(id, Return::Parked, out);
        }
    }

    /// Ours, but not ready yet, or not ours.
    fn no_coordinator(&mut self, at: Partition) -> ErrorCode {
        match self.logs.get(at) {
            Err(ErrorCode::NotLeaderOrFollower) => ErrorCode::CoordinatorLoadInProgress,
            Ok(_) if !self.groups.coordinators.contains_key(&at.index.0) => ErrorCode::CoordinatorLoadInProgress,
            _ => ErrorCode::NotCoordinator,
        }
    }

    fn decide_group(
        &mut self,
        now: Now,
        index: i32,
        waiter: Waiter,
        ask: &GroupAsk,
    ) -> Result<Replies<GroupCoordinator>, Return> {
        use ringmain_group::Request as Ask;
        let topics = self.image_topics();
        let random = self.groups.random();
        let Groups { coordinators, pending, .. } = &mut self.groups;
        let Some(coordinator) = coordinators.get_mut(&index) else {
            return Err(Return::Failed(ErrorCode::NotCoordinator));
        };
        let mut replies = Vec::new();
        let mut decide =
            |ask: Ask<'_>| coordinator.runtime.request(now, &topics, waiter, ask, &mut replies).map_err(Return::Failed);
        match ask {
            GroupAsk::Fetch(fetch) => decide(Ask::Fetch(fetch_of(fetch)))?,
            GroupAsk::Delete(group) => decide(Ask::DeleteGroup { group })?,
            GroupAsk::Describe(group) => decide(Ask::Describe { group })?,
            GroupAsk::DescribeConsumer(group) => decide(Ask::DescribeConsumer { group })?,
            GroupAsk::List { states, types } => {
                let states: Vec<&str> = states.iter().map(String::as_str).collect();
                let types: Vec<&str> = types.iter().map(String::as_str).collect();
                decide(Ask::List { states, types })?;
            }
            GroupAsk::Request { request, host } => {
                let client = Client {
                    id: std::str::from_utf8(&request.client_id).unwrap_or_default(),
                    host,
                    version: request.version,
                    random,
                };
                let refused = decide_request(&topics, request, client, &mut decide)?;
                if let Some(pending) = pending.get_mut(&waiter) {
                    pending.refused = refused;
                }
            }
        }
        Ok(replies)
    }

    /// Who is answered, from the end of this turn on.
    fn groups_reply(&mut self, replies: Replies<GroupCoordinator>) {
        for (waiter, reply) in replies {
            let Some(pending) = self.groups.pending.remove(&waiter) else { continue };
            let reply = with_refused(reply, &pending.refused);
            let result = if pending.parked { Return::Late(Ok(reply)) } else { Return::Group(reply) };
            self.groups.answers.push(pending.index, (pending.call, result));
        }
    }

    fn groups_answer(&mut self, count: usize, out: &mut Effects) {
        for _ in 0..count {
            let Some((call, result)) = self.groups.answers.pop() else { return };
            self.answer(call, result, out);
        }
    }

    /// Once a turn: what came is loaded, what is due is done, what was decided is appended.
    pub(crate) fn groups_finish_turn(&mut self, now: Now, out: &mut Effects) {
        if std::mem::take(&mut self.groups.look) {
            self.groups_look(now, out);
            self.groups.touched.extend(self.groups.coordinators.keys());
        }
        // One at the least: what came to others at once must not hold back what waits.
        for _ in 0..std::mem::replace(&mut self.groups.asks_left, self.groups.asks_max).max(1) {
            let Some((id, at, ask)) = self.groups.asked.pop() else { break };
            self.group_asked(now, id, at, ask, out);
        }
        for index in self.groups.take_touched(now) {
            self.group_load(now, index);
            self.group_tick(now, index);
            self.group_append(now, index, out);
            self.groups.reschedule(index);
        }
        self.groups_answer(self.groups.answers_max, out);
    }

    /// Coordinators follow the logs of the offsets topic.
    fn groups_look(&mut self, now: Now, out: &mut Effects) {
        let topic = self.image.topic(OFFSETS_TOPIC).cloned();
        let id = topic.as_ref().map(|topic| topic.id);
        if self.groups.topic != id {
            self.groups.topic = id;
            let old: Vec<i32> = self.groups.coordinators.keys().copied().collect();
            old.into_iter().for_each(|index| self.group_drop(index, out));
        }
        let Some(topic) = topic else { return };
        for index in 0..topic.partitions.len() as i32 {
            let partition = Partition { topic: topic.id, index: PartitionIndex(index) };
            if owner(partition, self.config.shards) != self.config.shard {
                continue;
            }
            let usable = self.logs.get(partition).ok().map(|owned| (owned.id, owned.epoch));
            let before = self.groups.coordinators.get(&index).map(|found| (found.log, found.runtime.epoch()));
            if before.is_some() && before != usable {
                self.group_drop(index, out);
            }
            if let Some((log, epoch)) = usable
                && !self.groups.coordinators.contains_key(&index)
            {
                let owned = topic.partitions.len().div_ceil(usize::from(self.config.shards).max(1));
                let segment_bytes = self.logs.config(topic.id).map_or(u32::MAX, |config| config.segment_bytes);
                let segment_bytes = segment_bytes.min(self.config.limits.segment_bytes_max);
                let config = share(&self.groups.config, owned, segment_bytes);
                self.group_open(partition, log, epoch, config);
                self.group_load(now, index);
            }
        }
    }

    fn group_open(&mut self, partition: Partition, log: LogId, epoch: LeaderEpoch, config: Arc<GroupConfig>) {
        let machine = GroupCoordinator::new(config);
        let runtime = Runtime::new(machine, epoch, self.store.start(log));
        let coordinator = Coordinator { partition, log, runtime, read: None, failed: false, due: None };
        self.groups.coordinators.insert(partition.index.0, coordinator);
    }

    /// Its state is dropped whole; everybody who waits is told to look for the coordinator.
    fn group_drop(&mut self, index: i32, out: &mut Effects) {
        self.group_end(index, out);
        if let Some(due) = self.groups.coordinators.remove(&index).and_then(|coordinator| coordinator.due) {
            self.groups.dues.remove(&(due, index));
        }
    }

    /// What it decided since can't be appended: whoever waits for that is told to come again, and it begins from what the log has.
    fn group_reload(&mut self, index: i32, out: &mut Effects) {
        self.group_drop(index, out);
        self.groups.look_again();
    }

    /// It answers nobody any more; everybody who waits is told.
    fn group_end(&mut self, index: i32, out: &mut Effects) {
        let Some(coordinator) = self.groups.coordinators.get_mut(&index) else { return };
        coordinator.failed = true;
        if let Some(token) = coordinator.read.take() {
            self.store.cancel(token);
        }
        let waiting = self.groups.pending.iter().filter(|(_, pending)| pending.index == index);
        let waiting: Vec<Waiter> = waiting.map(|(waiter, _)| *waiter).collect();
        for waiter in waiting {
            self.group_fail(waiter, ErrorCode::NotCoordinator, out);
        }
    }

    fn group_fail(&mut self, waiter: Waiter, code: ErrorCode, out: &mut Effects) {
        let Some(pending) = self.groups.pending.remove(&waiter) else { return };
        let result = if pending.parked { Return::Late(Err(code)) } else { Return::Failed(code) };
        self.answer(pending.call, result, out);
    }

    /// A few reads further; the rest in the turns to come.
    fn group_load(&mut self, now: Now, index: i32) {
        for _ in 0..LOAD_READS {
            self.group_load_one(now, index);
        }
    }

    fn group_load_one(&mut self, now: Now, index: i32) {
        let Some(coordinator) = self.groups.coordinators.get_mut(&index) else { return };
        if coordinator.runtime.is_loaded() || coordinator.failed || coordinator.read.is_some() {
            return;
        }
        let (log, from) = (coordinator.log, coordinator.runtime.next());
        let end = self.store.end(log);
        // What a coordinator before this one wrote is not committed before it is flushed.
        if self.logs.get(coordinator.partition).is_ok_and(|owned| owned.visible < end) {
            self.groups.retry = Some(now.mono.plus_ms(RETRY_MS));
            return;
        }
        if from >= end {
            let topics = self.image_topics();
            if let Some(coordinator) = self.groups.coordinators.get_mut(&index) {
                coordinator.runtime.serve(now, &topics, end);
            }
            return;
        }
        let bytes_max = LOAD_BYTES.min(self.config.limits.fetch_reply_bytes_max);
        let at = ReadAt { log, from, below: end, bytes_max, at_least_one: true };
        match self.store.read(now, &mut self.pool, at) {
            ReadResult::Pending(token) => coordinator.read = Some(token),
            ReadResult::Memory(_) => self.groups.retry = Some(now.mono.plus_ms(RETRY_MS)),
            result => self.group_loaded(now, index, result),
        }
    }

    /// A read of a load has ended.
    pub(crate) fn groups_read(&mut self, now: Now, token: ReadToken, result: ReadResult) {
        let found = self.groups.coordinators.iter_mut().find(|(_, coordinator)| coordinator.read == Some(token));
        let Some((&index, coordinator)) = found else { return };
        self.groups.touched.insert(index);
        coordinator.read = None;
        match result {
            ReadResult::Memory(_) => self.groups.retry = Some(now.mono.plus_ms(RETRY_MS)),
            result => self.group_loaded(now, index, result),
        }
    }

    fn group_loaded(&mut self, now: Now, index: i32, result: ReadResult) {
        let Some(coordinator) = self.groups.coordinators.get_mut(&index) else { return };
        let from = coordinator.runtime.next();
        let outcome = match result {
            ReadResult::Ready(slices) if slices.next > from => {
                load(&mut coordinator.runtime, now, &slices, &mut self.scratch)
            }
            ReadResult::Ready(_) => Err("an empty read below the log's end".to_owned()),
            ReadResult::OutOfRange { start, end } => Err(format!("the log is {}..{}", start.0, end.0)),
            ReadResult::Failed(error) => Err(format!("{error:?}")),
            ReadResult::Pending(_) | ReadResult::Memory(_) => return,
        };
        match outcome {
            Ok(()) => {
                self.groups.touched.insert(index);
            }
            Err(cause) => {
                coordinator.failed = true;
                let path = format!("{OFFSETS_TOPIC}-{index} at offset {}: {cause}", from.0);
                self.failed = Some(DiskError { operation: "load", path, errno: DiskError::EIO });
            }
        }
    }

    fn group_tick(&mut self, now: Now, index: i32) {
        let is_due = |found: &Coordinator| found.runtime.deadline().is_some_and(|due| due <= now.mono);
        if !self.groups.coordinators.get(&index).is_some_and(|found| !found.failed && is_due(found))
            || self.groups.is_stuck(index)
        {
            return;
        }
        let topics = self.image_topics();
        let Some(coordinator) = self.groups.coordinators.get_mut(&index) else { return };
        let mut replies = Vec::new();
        coordinator.runtime.tick(now, &topics, &mut replies);
        self.groups_reply(replies);
    }

    fn group_append(&mut self, now: Now, index: i32, out: &mut Effects) {
        loop {
            let Some(coordinator) = self.groups.coordinators.get(&index).filter(|found| !found.failed) else { return };
            let bytes_max = BATCH_BYTES.min(coordinator.runtime.machine().batch_bytes_max());
            let Some(append) = coordinator.runtime.to_append(bytes_max) else { return };
            let (partition, log, epoch) = (coordinator.partition, coordinator.log, coordinator.runtime.epoch());
            match self.group_batch(now, partition, log, epoch, &append, out) {
                Ok(base) => {
                    let Some(coordinator) = self.groups.coordinators.get_mut(&index) else { return };
                    if !coordinator.runtime.appended(&append, base) {
                        // Somebody else wrote: what was decided rests on a log that is not there.
                        return self.group_reload(index, out);
                    }
                }
                // No decision is, by the log's configs of when this was loaded: it is loaded anew, with those of now.
                Err(AppendError::TooLarge { .. }) => return self.group_reload(index, out),
                Err(AppendError::Memory(refused)) if refused.wanted as u64 > self.pool.limit(refused.account) => {
                    return self.group_reload(index, out);
                }
                Err(AppendError::Memory(_) | AppendError::NoSpace) => {
                    self.groups.retry = Some(now.mono.plus_ms(RETRY_MS));
                    return;
                }
                // The log is gone or will take nothing any more.
                Err(_) => return self.group_end(index, out),
            }
        }
    }

    fn group_batch(
        &mut self,
        now: Now,
        partition: Partition,
        log: LogId,
        epoch: LeaderEpoch,
        append: &Append,
        out: &mut Effects,
    ) -> Result<Offset, AppendError> {
        let mut builder = Builder::new(Codec::None, None);
        for (key, value) in &append.records {
            builder.push(now.wall, Some(key), value.as_deref(), &[]);
        }
        let into = self.pool.take(Account::Control, builder.bytes()).map_err(AppendError::Memory)?;
        let batches = builder.finish(into);
        let appended = self.store.append(now, &mut self.pool, log, &batches, AppendAs::Leader { epoch })?;
        let Ok(owned) = self.logs.get(partition) else { return Ok(appended.base) };
        owned.appended(appended.next, batches.bytes.len() as u32);
        if owned.flush == FlushMode::Async {
            self.show(log, self.store.end(log), out);
        }
        Ok(appended.base)
    }

    /// What is flushed is committed: a cluster of one has nobody else to ask.
    pub(crate) fn groups_flushed(&mut self, log: LogId, end: Offset) {
        let Some((partition, _)) = self.logs.by_id(log) else { return };
        if self.groups.topic != Some(partition.topic) {
            return;
        }
        let found = self.groups.coordinators.get_mut(&partition.index.0);
        let Some(coordinator) = found.filter(|coordinator| coordinator.log == log) else { return };
        let mut replies = Vec::new();
        let epoch = coordinator.runtime.epoch();
        coordinator.runtime.committed(epoch, end, &mut replies);
        self.groups_reply(replies);
    }

    /// The directory failed: nobody will ever be told that what he wrote is durable.
    pub(crate) fn groups_fenced(&mut self, out: &mut Effects) {
        let indexes: Vec<i32> = self.groups.coordinators.keys().copied().collect();
        for index in indexes {
            self.group_end(index, out);
        }
    }

    /// A clean stop does not wait for members: they come again.
    pub(crate) fn groups_stop(&mut self, out: &mut Effects) {
        let parked: Vec<Waiter> =
            self.groups.pending.iter().filter(|(_, pending)| pending.parked).map(|(waiter, _)| *waiter).collect();
        for waiter in parked {
            self.group_fail(waiter, ErrorCode::NotCoordinator, out);
        }
        self.groups_answer(usize::MAX, out);
    }
}

/// Every record of whole batches; what transactions mark is theirs.
fn load(
    runtime: &mut Runtime<GroupCoordinator>,
    now: Now,
    slices: &Slices,
    scratch: &mut Vec<u8>,
) -> Result<(), String> {
    let mut bytes = Vec::with_capacity(slices.bytes as usize);
    slices.parts.iter().for_each(|part: &Buf| bytes.extend_from_slice(part));
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let header = BatchHeader::parse(rest).map_err(|error| error.to_string())?;
        let batch = rest.get(..header.info.bytes as usize).ok_or("a batch is cut short")?;
        rest = &rest[batch.len()..];
        if header.info.control {
            continue;
        }
        for record in ringmain_batch::records(batch, scratch, i32::MAX as usize).map_err(|error| error.to_string())? {
            let record = record.map_err(|error| error.to_string())?;
            let offset = Offset(header.base.0 + i64::from(record.offset_delta));
            let Some(key) = record.key else { continue };
            runtime.load(now, offset, key, record.value).map_err(|code| format!("offset {}: {code:?}", offset.0))?;
        }
    }
    runtime.skip_to(slices.next);
    Ok(())
}

/// SplitMix64's finalizer.
fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
