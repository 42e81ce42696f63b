//! A store that finds its files changed: it comes back or says why not, serves nothing that was never written, and goes on.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use ringmain_batch::{Builder, CheckRules, CheckedBatches, Codec, HEADER_BYTES, Producer, check, stamp};
use ringmain_buffer::{Buf, Pool};
use ringmain_log::*;
use ringmain_types::*;

use crate::directory::{Disk, Image};
use crate::input::Input;

/// Turns after which a store that still asks for something is stuck. An untouched one takes a few hundred.
const TURNS_MAX: u32 = 20_000;
const EPOCH: LeaderEpoch = LeaderEpoch(1);
/// Where a batch's leader epoch stands, which nothing covers in a sealed segment.
const EPOCH_FIELD: std::ops::Range<usize> = 12..16;

/// What was appended to each log: offset and bytes of each batch; and the end of what was flushed.
#[derive(Clone, Default)]
struct Known {
    name: &'static str,
    batches: BTreeMap<i64, Vec<u8>>,
    flushed: i64,
}

#[derive(Clone)]
struct Past {
    image: Image,
    logs: BTreeMap<Partition, Known>,
    config: LogConfig,
}

fn limits() -> Limits {
    Limits { journal_bytes: 32 << 10, recovery_bytes_max: 2 << 10, ..Limits::tiny() }
}

fn config(compacted: bool) -> LogConfig {
    LogConfig {
        index_interval_bytes: 256,
        delete: !compacted,
        compaction: compacted.then_some(CompactionConfig {
            min_cleanable_dirty_ratio: 0.1,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            delete_retention_ms: 5_000,
        }),
        ..LogConfig::keeping_all(2 << 10)
    }
}

fn partition(topic: u128) -> Partition {
    Partition { topic: TopicId(topic), index: PartitionIndex(0) }
}

fn batch(number: u32) -> CheckedBatches {
    let id = Producer { id: ProducerId(7), epoch: ProducerEpoch(0), first: Sequence(number as i32), last: Sequence(0) };
    let mut builder = Builder::new(Codec::None, number.is_multiple_of(2).then_some(id));
    for record in 0..2u32 {
        let value = vec![number as u8; 60 + 10 * (number % 5) as usize];
        builder.push(WallMs(i64::from(number) * 10), Some(&[(number % 3) as u8, record as u8]), Some(&value), &[]);
    }
    check(Buf::copy_of(&builder.encode()), &CheckRules::lenient(1 << 20)).expect("a good batch")
}

/// One life of a store.
struct Life {
    store: Store,
    pool: Pool,
    disk: Disk,
    now: Now,
    turns: u32,
    opened: bool,
    fenced: bool,
    closed: bool,
    /// Of any log, something that it said was wrong.
    damage: bool,
    flushed: BTreeMap<LogId, i64>,
    reads: BTreeMap<ReadToken, ReadResult>,
    finds: BTreeMap<ReadToken, FindResult>,
}

impl Life {
    fn new(image: &Image, journal_exists: bool) -> Life {
        let mut out = Vec::new();
        let config = StoreConfig {
            shard: ShardId(0),
            dir: DirId(0),
            limits: limits(),
            seed: 42,
            journal_generation: 1,
            journal_exists,
            journal_flush_covers: true,
        };
        let store = Store::open(config, &mut out);
        let mut life = Life {
            store,
            pool: Pool::new(ShardId(0), &limits()),
            disk: Disk::new(image),
            now: Now { mono: Instant(1_000_000_000), wall: WallMs(1_700_000_000_000) },
            turns: 0,
            opened: false,
            fenced: false,
            closed: false,
            damage: false,
            flushed: BTreeMap::new(),
            reads: BTreeMap::new(),
            finds: BTreeMap::new(),
        };
        life.disk.submit(out);
        life.settle();
        life
    }

    /// Until nothing is asked of the disk any more.
    fn settle(&mut self) {
        let mut idle = 0;
        while idle < 2 || self.disk.is_busy() {
            self.turns += 1;
            assert!(self.turns < TURNS_MAX, "it never comes to rest");
            let mut events = Vec::new();
            let done = self.disk.step();
            idle = if done.is_none() { idle + 1 } else { 0 };
            if let Some(done) = done {
                self.store.done(self.now, &mut self.pool, done, &mut events);
            }
            self.store.events(&mut events);
            let mut out = Vec::new();
            self.store.finish_turn(self.now, &mut self.pool, &mut out);
            self.store.events(&mut events);
            self.disk.submit(out);
            self.pool.collect();
            events.into_iter().for_each(|event| self.heard(event));
        }
    }

    fn heard(&mut self, event: StoreEvent) {
        match event {
            StoreEvent::Opened => self.opened = true,
            StoreEvent::Closed => self.closed = true,
            StoreEvent::Fenced { .. } => self.fenced = true,
            StoreEvent::Recovered { report, .. } => self.damage |= !report.damage.is_empty(),
            StoreEvent::Flushed { log, end } => drop(self.flushed.insert(log, end.0)),
            StoreEvent::Read { token, result, .. } => drop(self.reads.insert(token, result)),
            StoreEvent::Found { token, result, .. } => drop(self.finds.insert(token, result)),
            _ => {}
        }
    }

    fn background(&mut self, ms: u64) {
        self.now.mono = self.now.mono.plus_ms(ms);
        self.now.wall.0 += ms as i64;
        let mut out = Vec::new();
        self.store.background(self.now, &mut self.pool, 4 << 10, &mut out);
        self.disk.submit(out);
        self.settle();
    }

    fn append(&mut self, id: LogId, number: u32) -> Option<(i64, Vec<u8>)> {
        let batch = batch(number);
        let appended =
            self.store.append(self.now, &mut self.pool, id, &batch, AppendAs::Leader { epoch: EPOCH }).ok()?;
        self.settle();
        let mut bytes = batch.bytes.to_vec();
        stamp(&mut bytes[..HEADER_BYTES], appended.base, EPOCH);
        (!appended.duplicate).then_some((appended.base.0, bytes))
    }

    /// Batches from `from` on, or an error.
    fn read(&mut self, log: LogId, from: Offset) -> Option<Slices> {
        let below = self.store.end(log);
        let at = ReadAt { log, from, below, bytes_max: 1000, at_least_one: true };
        let mut result = self.store.read(self.now, &mut self.pool, at);
        if let ReadResult::Pending(token) = result {
            self.settle();
            result = self.reads.remove(&token).expect("an answer");
        }
        match result {
            ReadResult::Ready(slices) => Some(slices),
            _ => None,
        }
    }

    fn find(&mut self, log: LogId, query: TimeQuery) {
        if let FindResult::Pending(token) = self.store.find(self.now, &mut self.pool, log, query) {
            self.settle();
            assert!(self.finds.remove(&token).is_some(), "no answer");
        }
    }

    fn close(mut self) -> Image {
        self.store.close(self.now);
        self.settle();
        assert!(self.closed || self.fenced || !self.opened, "it never closes");
        self.disk.image()
    }
}

/// What the fuzzer finds: 0 a broker that was killed, 1 one that was stopped, 2 a compacted log, stopped.
fn pasts() -> &'static [Past] {
    static PASTS: OnceLock<Vec<Past>> = OnceLock::new();
    PASTS.get_or_init(|| vec![past(false, false), past(true, false), past(true, true)])
}

fn past(stopped: bool, compacted: bool) -> Past {
    let config = config(compacted);
    let mut life = Life::new(&Image::default(), false);
    assert!(life.opened);
    let mut logs: BTreeMap<Partition, Known> = BTreeMap::new();
    for (topic, name) in [(7, "orders-0"), (8, "b-0")] {
        logs.insert(partition(topic), Known { name, ..Known::default() });
        let id = life.store.create(life.now, partition(topic), name, config.clone());
        life.settle();
        for number in 0..if topic == 7 { 24 } else { 3 } {
            let (base, bytes) = life.append(id, number).expect("a good disk");
            logs.get_mut(&partition(topic)).expect("it is there").batches.insert(base, bytes);
            if number % 8 == 7 {
                (0..20).for_each(|_| life.background(50));
            }
        }
        logs.get_mut(&partition(topic)).expect("it is there").flushed = life.flushed[&id];
    }
    let image = if stopped { life.close() } else { life.disk.image() };
    Past { image, logs, config }
}

/// Which past, what is set right after the changes, and the changes. Then the store is opened, looked at, written to, closed, and opened
/// again.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (which, flags) = (input.byte(), input.byte());
    let past = &pasts()[usize::from(which) % pasts().len()];
    let mut image = past.image.clone();
    let touched = change(&mut image, &mut input, flags);
    let mut life = Life::new(&image, true);
    let mut ids = Vec::new();
    for (partition, known) in &past.logs {
        let id = life.store.create(life.now, *partition, known.name, past.config.clone());
        life.settle();
        ids.push((id, known));
    }
    (0..10).for_each(|_| life.background(50));
    for (id, known) in &ids {
        look(&mut life, *id, known, past, touched);
    }
    for (id, _) in &ids {
        let _ = life.append(*id, 100);
    }
    let image = life.close();
    let mut life = Life::new(&image, true);
    for (partition, known) in &past.logs {
        life.store.create(life.now, *partition, known.name, past.config.clone());
        life.settle();
    }
    drop(life.close());
}

/// What was changed, and so what may be asked of the store.
#[derive(Clone, Copy, Default)]
struct Touched {
    journal: bool,
    /// CRCs were made right again: what is read may be anything.
    forged: bool,
}

const FIX_JOURNAL: u8 = 1;
const FIX_BATCHES: u8 = 2;

fn change(image: &mut Image, input: &mut Input, flags: u8) -> Touched {
    let mut touched = Touched::default();
    while !input.is_empty() {
        let op = input.byte();
        let number = usize::from(input.byte()) % image.files.len().max(1);
        let position = input.u16() as usize;
        let Some(path) = image.files.keys().nth(number).cloned() else { break };
        touched.journal |= path.ends_with(".journal");
        let file = image.files.get_mut(&path).expect("it was listed");
        match op % 5 {
            0 | 1 => {
                let count = usize::from(input.byte()) % 33;
                for (at, byte) in input.take(count).iter().enumerate() {
                    if let Some(place) = file.get_mut(position + at) {
                        *place = if op.is_multiple_of(5) { *byte } else { *place ^ *byte };
                    }
                }
            }
            2 => file.truncate(position),
            3 => file.resize((file.len() + position).min(256 << 10), 0),
            _ => drop(image.files.remove(&path)),
        }
    }
    for (path, file) in &mut image.files {
        if flags & FIX_JOURNAL != 0 && path.ends_with(".journal") {
            fix_journal(file);
            touched.forged = true;
        }
        if flags & FIX_BATCHES != 0 && path.ends_with(".log") {
            fix_batches(file);
            touched.forged = true;
        }
    }
    touched
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// FORMAT.md: the superblock's CRC, and those of every group that still begins with its magic.
fn fix_journal(file: &mut [u8]) {
    if file.len() < 512 {
        return;
    }
    let crc = crc32c::crc32c(&file[..40]);
    file[40..44].copy_from_slice(&crc.to_le_bytes());
    for at in (512..file.len()).step_by(512) {
        if file.len() < at + 72 || !file[at..].starts_with(b"RMGROUP1") {
            continue;
        }
        let crc = crc32c::crc32c(&file[at..at + 68]);
        file[at + 68..at + 72].copy_from_slice(&crc.to_le_bytes());
        let end = at + number(file, at + 48) as usize;
        if end >= at + 76 && end <= file.len() {
            let all = crc32c::crc32c_append(crc, &file[at + 72..end - 4]);
            file[end - 4..end].copy_from_slice(&all.to_le_bytes());
        }
    }
}

/// Each batch's CRC, as far as lengths lead.
fn fix_batches(file: &mut [u8]) {
    let mut at = 0;
    while file.len() >= at + HEADER_BYTES {
        let length = u32::from_be_bytes([file[at + 8], file[at + 9], file[at + 10], file[at + 11]]) as usize;
        let end = at.saturating_add(12).saturating_add(length);
        if end > file.len() || length < HEADER_BYTES - 12 {
            break;
        }
        let crc = crc32c::crc32c(&file[at + 21..end]);
        file[at + 17..at + 21].copy_from_slice(&crc.to_be_bytes());
        at = end;
    }
}

/// Everything is read, each batch held against what was written, and what is missing was said to be.
fn look(life: &mut Life, id: LogId, known: &Known, past: &Past, touched: Touched) {
    let (start, end) = (life.store.start(id), life.store.end(id));
    for query in [TimeQuery::At(WallMs(0)), TimeQuery::At(WallMs(115)), TimeQuery::Max] {
        life.find(id, query);
    }
    if life.fenced || !life.opened || life.store.recovering(id) {
        return;
    }
    let compacted = past.config.compaction.is_some();
    if !touched.journal && !life.damage && !life.store.is_damaged(id) {
        assert!(end.0 >= known.flushed, "it ends at {} of {}, and says nothing of it", end.0, known.flushed);
    }
    let mut at = start;
    while at < end {
        let Some(slices) = life.read(id, at) else { break };
        assert!(slices.next > at || slices.bytes == 0, "a read that goes nowhere");
        if slices.next <= at {
            break;
        }
        let bytes = slices.parts.concat();
        let mut from = 0;
        while !touched.forged && !compacted && from < bytes.len() {
            let (base, length) = served(&bytes[from..], known);
            assert!(length > 0, "offset {base} of {}: what was never written", known.name);
            from += length;
        }
        at = slices.next;
    }
}

/// Of the batch in front of `bytes`, its base offset, and its length if it was written so; 0 if not.
fn served(bytes: &[u8], known: &Known) -> (i64, usize) {
    let Some((base, _)) = bytes.split_first_chunk::<8>() else { return (-1, 0) };
    let base = i64::from_be_bytes(*base);
    let Some(written) = known.batches.get(&base) else { return (base, 0) };
    let same = bytes.len() >= written.len()
        && bytes[..EPOCH_FIELD.start] == written[..EPOCH_FIELD.start]
        && bytes[EPOCH_FIELD.end..written.len()] == written[EPOCH_FIELD.end..];
    (base, if same { written.len() } else { 0 })
}

/// Pasts as they are, and one change in each file.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (which, past) in pasts().iter().enumerate() {
        seeds.push(vec![which as u8, 0]);
        seeds.push(vec![which as u8, FIX_JOURNAL | FIX_BATCHES]);
        for (number, file) in past.image.files.values().enumerate() {
            for flags in [0, FIX_JOURNAL | FIX_BATCHES] {
                for position in [0, 9, file.len() / 2, file.len().saturating_sub(8)] {
                    let [low, high] = (position.min(65_535) as u16).to_le_bytes();
                    seeds.push(vec![which as u8, flags, 1, number as u8, low, high, 1, 4]);
                }
            }
            seeds.push(vec![which as u8, 0, 4, number as u8, 0, 0]);
            seeds.push(vec![which as u8, 0, 2, number as u8, 100, 0]);
        }
    }
    seeds
}
