//! A store on the model disk, and what it was told and has promised.

pub mod disk;

use std::collections::BTreeMap;

use disk::{Disk, Random};
use ringmain_batch::{Builder, CheckRules, CheckedBatches, Codec, HEADER_BYTES, Producer, check};
use ringmain_buffer::{Buf, Pool};
use ringmain_disk::DiskOp;
use ringmain_log::*;
use ringmain_types::*;

/// One log as its users know it.
#[derive(Clone, Default, Debug)]
pub struct Known {
    pub name: String,
    /// Offset and bytes of each batch that was appended in the life that goes on.
    pub batches: BTreeMap<i64, Vec<u8>>,
    pub end: i64,
    pub flushed: i64,
    pub started: i64,
    pub start_asked: i64,
}

pub struct World {
    pub disk: Disk,
    pub random: Random,
    pub limits: Limits,
    pub pool: Pool,
    pub store: Store,
    pub now: Now,
    pub logs: BTreeMap<Partition, Known>,
    pub ids: BTreeMap<Partition, LogId>,
    pub events: Vec<StoreEvent>,
    pub journal_exists: bool,
    pub opened: bool,
    pub closed: bool,
    pub fenced: bool,
    pub removed: u32,
    /// The newest group that was looked at: whether there is room to say all again.
    pub group: u64,
    /// Logs that wait for space.
    pub full: u32,
    pub config: LogConfig,
    pub reads: BTreeMap<ReadToken, ReadResult>,
    pub finds: BTreeMap<ReadToken, FindResult>,
}

pub fn config() -> LogConfig {
    LogConfig { index_interval_bytes: 512, delete: true, ..LogConfig::keeping_all(16 << 10) }
}

fn store_config(limits: &Limits, exists: bool, covers: bool) -> StoreConfig {
    StoreConfig {
        shard: ShardId(0),
        dir: DirId(0),
        limits: limits.clone(),
        seed: 42,
        journal_generation: 1,
        journal_exists: exists,
        journal_flush_covers: covers,
    }
}

pub fn partition(topic: u128, index: i32) -> Partition {
    Partition { topic: TopicId(topic), index: PartitionIndex(index) }
}

/// Of a batch of `records` records, with the sequences from `first` on.
pub fn producer(id: i64, first: i32, records: u32) -> Option<Producer> {
    let last = Sequence(first + records as i32 - 1);
    Some(Producer { id: ProducerId(id), epoch: ProducerEpoch(0), first: Sequence(first), last })
}

/// One batch of `records` records, `bytes` of value each.
pub fn batch(records: u32, bytes: usize, fill: u8, at: i64, producer: Option<Producer>) -> CheckedBatches {
    let mut builder = Builder::new(Codec::None, producer);
    for n in 0..records {
        let value: Vec<u8> = (0..bytes).map(|i| fill.wrapping_add((i as u32 * 7 + n) as u8)).collect();
        builder.push(WallMs(at + i64::from(n)), Some(&n.to_be_bytes()), Some(&value), &[]);
    }
    let encoded = builder.encode();
    check(Buf::copy_of(&encoded), &CheckRules::lenient(1 << 20)).expect("a good batch")
}

impl World {
    pub fn new(seed: u64) -> World {
        World::with(seed, Limits::tiny())
    }

    /// Where the seed is even, a flush covers other files' overwritten extents.
    pub fn with(seed: u64, limits: Limits) -> World {
        let mut out = Vec::new();
        let mut disk = Disk::new();
        disk.covers = seed.is_multiple_of(2);
        let store = Store::open(store_config(&limits, false, disk.covers), &mut out);
        let mut world = World {
            disk,
            random: Random(seed),
            pool: Pool::new(ShardId(0), &limits),
            limits,
            store,
            now: Now { mono: Instant(1_000_000_000), wall: WallMs(1_700_000_000_000) },
            logs: BTreeMap::new(),
            ids: BTreeMap::new(),
            events: Vec::new(),
            journal_exists: false,
            opened: false,
            closed: false,
            fenced: false,
            removed: 0,
            group: 0,
            full: 0,
            config: config(),
            reads: BTreeMap::new(),
            finds: BTreeMap::new(),
        };
        world.submit(out);
        world
    }

    pub fn submit(&mut self, out: Vec<DiskOp>) {
        for op in out {
            self.disk.submit(op);
        }
    }

    /// One turn: at most one completion.
    pub fn turn(&mut self) -> bool {
        let mut events = Vec::new();
        let done = self.disk.step(&mut self.random);
        let any = done.is_some();
        if let Some(done) = done {
            self.store.done(self.now, &mut self.pool, done, &mut events);
        }
        self.finish(events);
        any
    }

    pub fn finish(&mut self, mut events: Vec<StoreEvent>) {
        let mut out = Vec::new();
        self.store.events(&mut events);
        self.store.finish_turn(self.now, &mut self.pool, &mut out);
        self.store.events(&mut events);
        self.submit(out);
        self.pool.collect();
        for event in events {
            self.heard(event);
        }
        if let Some((group, room)) = self.store.ring_room(self.group) {
            self.group = group;
            assert!(room, "no room to say again what is live behind group {group}");
        }
    }

    fn partition_of(&self, log: LogId) -> Option<Partition> {
        self.ids.iter().find(|(_, id)| **id == log).map(|(partition, _)| *partition)
    }

    fn heard(&mut self, event: StoreEvent) {
        match event {
            StoreEvent::Opened => {
                self.opened = true;
                self.journal_exists = true;
            }
            StoreEvent::Closed => self.closed = true,
            StoreEvent::Fenced { error, .. } => {
                self.fenced = true;
                self.events.push(StoreEvent::Fenced { dir: DirId(0), error });
            }
            StoreEvent::Flushed { log, end } => {
                if let Some(partition) = self.partition_of(log) {
                    let known = self.logs.get_mut(&partition).unwrap();
                    assert!(end.0 <= known.end, "flushed past the end");
                    assert!(end.0 > known.flushed, "flushed twice");
                    known.flushed = end.0;
                }
            }
            StoreEvent::Started { log, start } => {
                if let Some(partition) = self.partition_of(log) {
                    let known = self.logs.get_mut(&partition).unwrap();
                    known.started = start.0;
                    known.start_asked = known.start_asked.max(start.0);
                }
            }
            StoreEvent::Read { token, result, .. } => {
                self.reads.insert(token, result);
            }
            StoreEvent::Found { token, result, .. } => {
                self.finds.insert(token, result);
            }
            StoreEvent::Removed { .. } => self.removed += 1,
            StoreEvent::NoSpace { .. } => self.full += 1,
            StoreEvent::SpaceAgain { .. } => self.full -= 1,
            event @ (StoreEvent::Recovered { .. } | StoreEvent::Damaged { .. }) => self.events.push(event),
        }
    }

    /// Turns until nothing is in flight.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            if !self.turn() {
                // What waited for a turn.
                self.finish(Vec::new());
                if self.disk.flight.is_empty() {
                    return;
                }
            }
        }
        panic!("no end: {:?}", self.disk.flight);
    }

    /// Background work and what comes of it, `ms` later.
    pub fn rest(&mut self, ms: u64) {
        self.background(ms);
        self.settle();
    }

    /// Background work is begun, `ms` later.
    pub fn background(&mut self, ms: u64) {
        self.now.mono = self.now.mono.plus_ms(ms);
        let mut out = Vec::new();
        self.store.background(self.now, &mut self.pool, self.limits.background_bytes_per_turn, &mut out);
        self.submit(out);
    }

    pub fn create(&mut self, partition: Partition, name: &str) -> LogId {
        let id = self.store.create(self.now, partition, name, self.config.clone());
        self.ids.insert(partition, id);
        self.logs.entry(partition).or_insert_with(|| Known { name: name.to_owned(), ..Known::default() });
        id
    }

    pub fn append(&mut self, partition: Partition, batches: &CheckedBatches) -> Result<Appended, AppendError> {
        let id = self.ids[&partition];
        let epoch = LeaderEpoch(1);
        let appended = self.store.append(self.now, &mut self.pool, id, batches, AppendAs::Leader { epoch })?;
        if !appended.duplicate {
            let known = self.logs.get_mut(&partition).unwrap();
            assert_eq!(appended.base.0, known.end);
            let mut bytes = batches.bytes.to_vec();
            ringmain_batch::stamp(&mut bytes[..HEADER_BYTES], appended.base, epoch);
            if let Some(at) = appended.log_append_time {
                ringmain_batch::stamp_time(&mut bytes, at);
            }
            known.batches.insert(appended.base.0, bytes);
            known.end = appended.next.0;
        }
        Ok(appended)
    }

    /// Power cut, and the way back.
    pub fn crash(&mut self) {
        self.disk.crash(&mut self.random);
        self.reopen();
    }
    /// kill -9: nothing that was written is lost.
    pub fn kill(&mut self) {
        self.disk.restart();
        self.reopen();
    }

    pub fn reopen(&mut self) {
        let mut out = Vec::new();
        self.pool = Pool::new(ShardId(0), &self.limits);
        self.store = Store::open(store_config(&self.limits, self.journal_exists, self.disk.covers), &mut out);
        self.events.clear();
        self.ids.clear();
        self.reads.clear();
        self.finds.clear();
        (self.opened, self.closed, self.fenced) = (false, false, false);
        self.submit(out);
    }

    /// After `reopen`: every log is opened, and has what was promised and nothing that was not appended.
    pub fn recover_and_check(&mut self) {
        self.settle();
        assert!(self.opened, "not opened: {:?}", self.events);
        let all: Vec<(Partition, String)> = self.logs.iter().map(|(p, known)| (*p, known.name.clone())).collect();
        for (partition, name) in &all {
            self.create(*partition, name);
        }
        self.settle();
        for event in std::mem::take(&mut self.events) {
            if let StoreEvent::Recovered { partition, report, .. } = event {
                assert!(report.damage.is_empty(), "{partition:?}: {:?}", report.damage);
            }
        }
        for (partition, _) in all {
            let id = self.ids[&partition];
            assert!(!self.store.recovering(id));
            let (start, end) = (self.store.start(id).0, self.store.end(id).0);
            let known = self.logs.get_mut(&partition).unwrap();
            assert!(
                known.flushed <= end && end <= known.end,
                "{partition:?}: flushed {} end {end} of {}",
                known.flushed,
                known.end
            );
            assert!(known.started <= start && start <= known.start_asked.max(known.started), "start {start}");
            known.batches.split_off(&end);
            (known.end, known.flushed) = (end, end);
            (known.started, known.start_asked) = (start, start);
            assert_eq!(self.store.flushed(id).0, end);
            // Of a compacted log others know what must be left.
            if self.config.compaction.is_none() {
                self.check(partition);
            }
        }
    }

    /// Reads the whole log and compares.
    pub fn check(&mut self, partition: Partition) {
        let id = self.ids[&partition];
        let start = self.store.start(id);
        let end = self.store.end(id);
        let mut at = start;
        while at < end {
            let bytes_max = 200 + self.random.below(6000) as u32;
            let slices = self.read(id, at, bytes_max);
            assert!(!slices.parts.is_empty(), "nothing at {at:?} of {start:?}..{end:?}");
            let bytes = slices.parts.concat();
            assert_eq!(bytes.len(), slices.bytes as usize);
            let known = &self.logs[&partition];
            let mut from = 0;
            let mut first = true;
            while from < bytes.len() {
                let base = i64::from_be_bytes(bytes[from..from + 8].try_into().unwrap());
                let expected = known.batches.get(&base).unwrap_or_else(|| panic!("{base} was never appended"));
                assert!(bytes[from..].starts_with(expected), "other bytes at {base}");
                assert!(if first { base <= at.0 } else { base == at.0 });
                first = false;
                from += expected.len();
                let count = i32::from_be_bytes(expected[23..27].try_into().unwrap()) + 1;
                at = Offset(base + i64::from(count));
            }
            assert_eq!(slices.next, at);
        }
    }

    pub fn read(&mut self, log: LogId, from: Offset, bytes_max: u32) -> Slices {
        match self.try_read(log, from, bytes_max) {
            ReadResult::Ready(slices) => slices,
            other => panic!("read at {from:?}: {other:?}"),
        }
    }

    /// Whatever comes of it, but want of memory.
    pub fn try_read(&mut self, log: LogId, from: Offset, bytes_max: u32) -> ReadResult {
        let below = self.store.end(log);
        for _ in 0..100 {
            let at = ReadAt { log, from, below, bytes_max, at_least_one: true };
            let result = match self.store.read(self.now, &mut self.pool, at) {
                ReadResult::Pending(token) => self.wait(token),
                result => result,
            };
            match result {
                ReadResult::Memory(_) => {
                    self.turn();
                }
                result => return result,
            }
        }
        panic!("no memory for a read");
    }

    pub fn find(&mut self, log: LogId, query: TimeQuery) -> FindResult {
        for _ in 0..100 {
            let result = match self.store.find(self.now, &mut self.pool, log, query) {
                FindResult::Pending(token) => self.wait_find(token),
                result => result,
            };
            match result {
                FindResult::Memory(_) => {
                    self.turn();
                }
                result => return result,
            }
        }
        panic!("no memory for a search");
    }

    pub fn wait_find(&mut self, token: ReadToken) -> FindResult {
        for _ in 0..100_000 {
            if let Some(result) = self.finds.remove(&token) {
                return result;
            }
            self.turn();
        }
        panic!("no answer");
    }

    pub fn wait(&mut self, token: ReadToken) -> ReadResult {
        for _ in 0..100_000 {
            if let Some(result) = self.reads.remove(&token) {
                return result;
            }
            self.turn();
        }
        panic!("no answer");
    }
}
