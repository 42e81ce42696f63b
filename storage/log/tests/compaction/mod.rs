//! Compaction on a disk that loses what may be lost: of every key the last value stays, where and as it was.

use std::collections::BTreeMap;

use ringmain_batch::{BatchHeader, Builder, CheckRules, CheckedBatches, Codec, Producer, check, crc_ok, records};
use ringmain_buffer::Buf;
use ringmain_log::*;
use ringmain_types::*;

use crate::model::*;

const DELETE_RETENTION_MS: i64 = 5_000;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Written {
    key: Vec<u8>,
    value: Option<Vec<u8>>,
    timestamp: i64,
    headers: Vec<u8>,
    /// The broker's clock at the append.
    at: i64,
}

/// One compacted log, and what was written to it.
struct Bench {
    world: World,
    p: Partition,
    written: BTreeMap<i64, Written>,
    asked: BTreeMap<ReadToken, Offset>,
    producers: BTreeMap<i64, i32>,
    keys: u64,
    /// Delete markers that were found gone.
    expired: u64,
}

fn compacted() -> LogConfig {
    LogConfig {
        segment_bytes: 3 << 10,
        index_interval_bytes: 256,
        delete: false,
        compaction: Some(CompactionConfig {
            min_cleanable_dirty_ratio: 0.3,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            delete_retention_ms: DELETE_RETENTION_MS,
        }),
        ..config()
    }
}

impl Bench {
    fn new(seed: u64, keys: u64) -> Bench {
        let mut world = World::new(seed);
        world.config = compacted();
        Bench {
            world,
            p: partition(7, 0),
            written: BTreeMap::new(),
            asked: BTreeMap::new(),
            producers: BTreeMap::new(),
            keys,
            expired: 0,
        }
    }

    fn id(&self) -> LogId {
        self.world.ids[&self.p]
    }

    /// A random batch: keys again and again, some of them deleted, any codec, with a producer or without.
    fn append(&mut self) {
        let end = self.world.store.end(self.id()).0;
        let random = &mut self.world.random;
        let codec = Codec::ALL[random.below(5) as usize];
        let count = 1 + random.below(4);
        let producer = (random.below(3) == 0).then(|| random.below(3) as i64);
        let identity = producer.map(|id| {
            let first = Sequence(self.producers.get(&id).copied().unwrap_or(0));
            Producer { id: ProducerId(id), epoch: ProducerEpoch(0), first, last: first }
        });
        let mut builder = Builder::new(codec, identity);
        let mut new = Vec::new();
        for n in 0..count {
            let key = format!("key {}", random.below(self.keys)).into_bytes();
            let length = random.below(200) as usize;
            let fill = random.next() as u8;
            let value = (random.below(5) > 0).then(|| vec![fill; length]);
            let timestamp = self.world.now.wall.0 - random.below(1000) as i64;
            let name = format!("h{fill}");
            let headers: Vec<(&str, Option<&[u8]>)> = vec![(&name, None); random.below(3) as usize];
            builder.push(WallMs(timestamp), Some(&key), value.as_deref(), &headers);
            let mut encoded = vec![2 * headers.len() as u8];
            for _ in &headers {
                encoded.push(2 * name.len() as u8);
                encoded.extend(name.as_bytes());
                encoded.push(1);
            }
            let at = self.world.now.wall.0;
            new.push((end + n as i64, Written { key, value, timestamp, headers: encoded, at }));
        }
        if self.world.append(self.p, &checked(builder.encode())).is_ok() {
            self.written.extend(new);
            if let Some(id) = producer {
                *self.producers.entry(id).or_default() += count as i32;
            }
        }
    }

    /// A slice of background work, and a read from anywhere that nobody waits for.
    fn background(&mut self) -> bool {
        let world = &mut self.world;
        let mut out = Vec::new();
        let bytes = world.limits.background_bytes_per_turn;
        let more = world.store.background(world.now, &mut world.pool, bytes, &mut out);
        world.submit(out);
        more
    }

    fn ask(&mut self) {
        let id = self.id();
        let (start, end) = (self.world.store.start(id), self.world.store.end(id));
        if start == end {
            return;
        }
        let from = Offset(start.0 + self.world.random.below((end.0 - start.0) as u64) as i64);
        let bytes_max = 100 + self.world.random.below(4000) as u32;
        let at = ReadAt { log: id, from, below: end, bytes_max, at_least_one: true };
        match self.world.store.read(self.world.now, &mut self.world.pool, at) {
            ReadResult::Pending(token) => drop(self.asked.insert(token, from)),
            result => self.judge(from, result),
        }
    }

    fn turn(&mut self) {
        self.world.turn();
        for (token, result) in std::mem::take(&mut self.world.reads) {
            if let Some(from) = self.asked.remove(&token) {
                self.judge(from, result);
            }
        }
    }

    fn judge(&mut self, from: Offset, result: ReadResult) {
        match result {
            ReadResult::Ready(slices) => drop(self.verify(from, &slices)),
            ReadResult::Memory(_) => {}
            // DeleteRecords came between.
            ReadResult::OutOfRange { start, .. } if from < start => {}
            other => panic!("read at {from:?}: {other:?}"),
        }
    }

    /// What a read gave is what was written, and what it left out is dead.
    fn verify(&mut self, from: Offset, slices: &Slices) -> Offset {
        let bytes = slices.parts.concat();
        assert!(!bytes.is_empty(), "nothing at {from:?}");
        let (mut at, mut next) = (0, from.0);
        let mut scratch = Vec::new();
        while at < bytes.len() {
            let header = BatchHeader::parse(&bytes[at..]).expect("a batch");
            let batch = &bytes[at..at + header.info.bytes as usize];
            assert!(crc_ok(batch), "the CRC at {}", header.base.0);
            assert!(header.next().0 > next, "{} is behind {next}", header.next().0);
            assert_eq!(header.epoch, LeaderEpoch(1));
            let mut inside = header.base.0;
            for record in records(batch, &mut scratch, 1 << 20).expect("records") {
                let record = record.expect("a record");
                let offset = header.base.0 + i64::from(record.offset_delta);
                assert!(offset >= inside && offset < header.next().0, "{offset} in {header:?}");
                let written = self.written.get(&offset).unwrap_or_else(|| panic!("{offset} was never written"));
                let found = Written {
                    key: record.key.expect("a key").to_vec(),
                    value: record.value.map(<[u8]>::to_vec),
                    timestamp: header.info.base_timestamp.0 + record.timestamp_delta,
                    headers: record.headers.0.to_vec(),
                    at: written.at,
                };
                assert_eq!(&found, written, "at {offset}");
                assert!(header.info.max_timestamp.0 >= found.timestamp);
                self.dead(next.max(inside)..offset);
                inside = offset + 1;
                next = next.max(inside);
            }
            self.dead(next..header.next().0);
            next = header.next().0;
            at += batch.len();
        }
        assert_eq!(slices.next.0, next);
        slices.next
    }

    /// Records that are gone: each had a younger one of its key, or is a delete marker whose time is over.
    fn dead(&mut self, offsets: std::ops::Range<i64>) {
        for offset in offsets {
            let gone = &self.written[&offset];
            let younger = self.written.range(offset + 1..).any(|(_, written)| written.key == gone.key);
            let old = gone.value.is_none() && self.world.now.wall.0 - gone.at >= DELETE_RETENTION_MS;
            assert!(younger || old, "{offset} is gone: {gone:?}");
            self.expired += u64::from(!younger);
        }
    }

    /// Everything, from the start to the end.
    fn read_all(&mut self) -> u64 {
        let id = self.id();
        let (mut at, end) = (self.world.store.start(id), self.world.store.end(id));
        let mut bytes = 0;
        while at < end {
            let slices = self.world.read(id, at, 5000);
            bytes += u64::from(slices.bytes);
            at = self.verify(at, &slices);
        }
        bytes
    }

    fn recovered(&mut self) {
        self.asked.clear();
        self.world.recover_and_check();
        if !self.world.ids.contains_key(&self.p) {
            // Nobody had made it yet.
            return;
        }
        let end = self.world.store.end(self.id()).0;
        self.written.split_off(&end);
        self.read_all();
        // Everything else begins from what is there: sequences too.
        let mut views = Vec::new();
        self.world.store.producers(self.id(), &mut views);
        self.producers = views.iter().map(|view| (view.id.0, view.last_sequence.0 + 1)).collect();
    }

    fn pass(&mut self, ms: u64) {
        self.world.now.mono = self.world.now.mono.plus_ms(ms);
        self.world.now.wall.0 += ms as i64;
    }

    /// Until nothing is dirty enough.
    fn compact(&mut self) {
        let runs = self.world.store.compaction().runs;
        for _ in 0..20_000 {
            let more = self.background();
            let quiet = self.world.disk.flight.is_empty();
            self.turn();
            if !more && quiet {
                self.pass(20);
                if self.world.store.compaction().runs > runs {
                    return;
                }
            }
        }
        panic!("no end: {:?}", self.world.store.compaction());
    }

    fn write_much(&mut self) {
        for _ in 0..120 {
            self.append();
            self.world.settle();
        }
    }
}

fn checked(batch: Vec<u8>) -> CheckedBatches {
    check(Buf::copy_of(&batch), &CheckRules { compacted: true, ..CheckRules::lenient(1 << 20) }).expect("a good batch")
}

#[test]
fn of_every_key_the_last_value_stays() {
    let mut bench = Bench::new(1, 12);
    bench.world.settle();
    bench.world.create(bench.p, "latest-0");
    bench.write_much();
    let before = bench.read_all();
    bench.compact();
    let after = bench.read_all();
    let stats = bench.world.store.compaction();
    assert!(stats.runs == 1 && stats.segments_replaced > 4 && stats.records_removed > 50, "{stats:?}");
    assert!(after < before / 2, "{after} of {before}");
    let files = bench.world.disk.paths();
    assert!(!files.keys().any(|path| path.contains("clean-") || path.ends_with(".swap")), "{:?}", files.keys());
    bench.world.crash();
    bench.recovered();
    assert_eq!(bench.read_all(), after);
    // What is clean is not looked at again.
    for _ in 0..50 {
        bench.background();
        bench.world.settle();
        bench.pass(20);
    }
    assert_eq!(bench.world.store.compaction().runs, 0);
    // Small ones are put together by the next.
    let logs = |bench: &Bench| bench.world.disk.paths().keys().filter(|path| path.ends_with(".log")).count();
    bench.write_much();
    let before = logs(&bench);
    bench.compact();
    assert!(logs(&bench) + 3 <= before, "{} of {before}", logs(&bench));
    bench.read_all();
}

#[test]
fn a_delete_marker_lives_out_its_time_and_goes() {
    let mut bench = Bench::new(2, 50);
    bench.world.settle();
    bench.world.create(bench.p, "latest-0");
    bench.write_much();
    bench.compact();
    bench.read_all();
    assert_eq!(bench.expired, 0, "none is old enough");
    bench.pass(DELETE_RETENTION_MS as u64 + 1);
    // Nothing of what is there is overwritten any more.
    bench.keys = 1_000_000;
    bench.write_much();
    bench.compact();
    bench.read_all();
    assert!(bench.expired > 0, "{:?}", bench.world.store.compaction());
}

#[test]
fn a_lost_checkpoint_costs_a_pass() {
    let mut bench = Bench::new(4, 12);
    bench.world.settle();
    bench.world.create(bench.p, "latest-0");
    bench.write_much();
    bench.compact();
    let paths = bench.world.disk.paths();
    let path = paths.keys().find(|path| path.ends_with("cleaner-offset-checkpoint")).unwrap().clone();
    bench.world.disk.lose(&path);
    bench.world.kill();
    bench.recovered();
    bench.compact();
    assert_eq!(bench.world.store.compaction().runs, 1);
    bench.read_all();
}

#[test]
fn what_must_wait_waits() {
    let mut bench = Bench::new(6, 12);
    let config = bench.world.config.compaction.as_mut().unwrap();
    config.min_compaction_lag_ms = 10_000;
    bench.world.settle();
    bench.world.create(bench.p, "latest-0");
    bench.write_much();
    let idle = |bench: &mut Bench| {
        for _ in 0..150 {
            bench.background();
            bench.world.settle();
            bench.pass(20);
        }
        bench.world.store.compaction().runs
    };
    assert_eq!(idle(&mut bench), 0, "all of it is young");
    bench.pass(10_001);
    assert_eq!(idle(&mut bench), 1);
    // What is hardly dirty waits for max.compaction.lag.ms.
    let mut config = bench.world.config.clone();
    let compaction = config.compaction.as_mut().unwrap();
    (compaction.min_cleanable_dirty_ratio, compaction.min_compaction_lag_ms) = (1.0, 0);
    bench.world.store.configure(bench.world.now, bench.id(), config.clone());
    bench.write_much();
    assert_eq!(idle(&mut bench), 1);
    config.compaction.as_mut().unwrap().max_compaction_lag_ms = 100;
    bench.world.store.configure(bench.world.now, bench.id(), config);
    assert_eq!(idle(&mut bench), 2);
    bench.read_all();
}

/// A run beside a producer that appends in every millisecond, to this log or to another: milliseconds, bytes read and written.
fn run_beside(same: bool) -> (u64, u64) {
    let mut bench = Bench::new(7, 12);
    let other = partition(8, 0);
    bench.world.settle();
    bench.world.create(bench.p, "latest-0");
    bench.world.config = config();
    bench.world.create(other, "other-0");
    bench.write_much();
    bench.world.settle();
    for ms in 1..20_000 {
        match same {
            true => bench.append(),
            false => drop(bench.world.append(other, &batch(1, 500, 1, 0, None))),
        }
        for _ in 0..16 {
            bench.background();
            bench.turn();
        }
        bench.pass(1);
        let stats = bench.world.store.compaction();
        if stats.runs > 0 {
            return (ms, stats.read_bytes + stats.written_bytes);
        }
    }
    panic!("no end: {:?}", bench.world.store.compaction());
}

#[test]
fn it_stands_back_while_others_commit_and_keeps_up_with_what_comes_in() {
    let busy = Limits::tiny().compaction_busy_bytes_per_second;
    let (ms, bytes) = run_beside(false);
    assert!(bytes > 32 << 10, "{bytes}");
    assert!(ms * busy / 1000 + (16 << 10) >= bytes, "{bytes} in {ms} ms beside others");
    let (ms, bytes) = run_beside(true);
    assert!(ms * busy / 1000 < bytes * 3 / 4, "{bytes} in {ms} ms beside its own producer");
}

/// Appends, compaction, reads, time and retention; then power is cut after `operations` operations.
fn history(bench: &mut Bench, operations: u64) -> bool {
    while !bench.world.opened {
        bench.turn();
        if bench.world.disk.completed >= operations {
            return true;
        }
    }
    bench.world.create(bench.p, "latest-0");
    for round in 0..70 {
        bench.append();
        let turns = 2 + bench.world.random.below(12);
        for _ in 0..turns {
            if bench.world.random.below(2) == 0 {
                bench.background();
            }
            if bench.world.random.below(6) == 0 {
                bench.ask();
            }
            bench.turn();
            if bench.world.disk.completed >= operations {
                return true;
            }
        }
        let ms = [1, 30, 2_000][bench.world.random.below(3) as usize];
        bench.pass(ms);
        if round == 50 {
            // DeleteRecords, in the middle of what was compacted.
            let to = Offset(bench.world.store.flushed(bench.id()).0 / 3);
            bench.world.store.advance_start(bench.world.now, bench.id(), to).expect("it is below the end");
            bench.world.logs.get_mut(&bench.p).expect("the log").start_asked = to.0;
        }
    }
    for _ in 0..3000 {
        let more = bench.background();
        bench.turn();
        if bench.world.disk.completed >= operations {
            return true;
        }
        if !more && bench.world.disk.flight.is_empty() {
            bench.pass(20);
        }
    }
    bench.read_all();
    false
}

#[test]
fn power_cut_at_every_operation() {
    let (mut operations, mut runs, mut expired) = (1, 0, 0);
    loop {
        let keys = if operations % 3 == 0 { 150 } else { 8 };
        let mut bench = Bench::new(operations * 7 + 1, keys);
        let cut = history(&mut bench, operations);
        let opened = bench.world.opened;
        runs += bench.world.store.compaction().runs;
        bench.world.crash();
        if opened {
            bench.recovered();
            if operations % 2 == 0 {
                // It goes on: what was cut off is done again.
                for _ in 0..400 {
                    bench.background();
                    bench.turn();
                    if bench.world.disk.flight.is_empty() {
                        bench.pass(20);
                    }
                }
                bench.read_all();
            }
            bench.world.crash();
        }
        bench.recovered_if(opened);
        expired += bench.expired;
        if !cut {
            break;
        }
        operations += 1;
    }
    assert!(operations > 300 && runs > 100 && expired > 0, "{operations} operations, {runs} runs, {expired} expired");
}

impl Bench {
    fn recovered_if(&mut self, opened: bool) {
        if opened {
            self.recovered();
        } else {
            self.world.recover_and_check();
        }
    }
}

#[test]
fn a_clean_stop_in_the_middle_leaves_nothing_half_done() {
    for turns in (0..400).step_by(7) {
        let mut bench = Bench::new(turns + 3, 8);
        bench.world.settle();
        bench.world.create(bench.p, "latest-0");
        bench.write_much();
        bench.pass(20);
        for _ in 0..turns {
            bench.background();
            bench.turn();
        }
        bench.world.store.close(bench.world.now);
        bench.world.finish(Vec::new());
        bench.world.settle();
        assert!(bench.world.closed, "after {turns} turns");
        let files = bench.world.disk.paths();
        let left = files.keys().filter(|path| path.contains("clean-") || path.ends_with(".swap"));
        assert_eq!(left.collect::<Vec<_>>(), Vec::<&String>::new(), "after {turns} turns");
        bench.world.kill();
        bench.recovered();
    }
}

#[test]
fn a_log_that_goes_in_the_middle_takes_its_compaction_along() {
    for turns in (0..300).step_by(11) {
        let mut bench = Bench::new(turns + 5, 8);
        bench.world.settle();
        bench.world.create(bench.p, "latest-0");
        bench.write_much();
        bench.pass(20);
        for _ in 0..turns {
            bench.background();
            bench.turn();
        }
        let id = bench.world.ids.remove(&bench.p).unwrap();
        bench.world.logs.clear();
        bench.world.store.remove(bench.world.now, id);
        for _ in 0..200 {
            bench.background();
            bench.world.turn();
            bench.pass(5);
        }
        bench.world.settle();
        assert_eq!(bench.world.removed, 1, "after {turns} turns");
        let files = bench.world.disk.paths();
        assert!(!files.keys().any(|path| path.contains("clean-") || path.contains("latest")), "{:?}", files.keys());
    }
}

#[test]
fn a_full_disk_only_delays_it() {
    let mut bench = Bench::new(8, 12);
    bench.world.settle();
    bench.world.create(bench.p, "latest-0");
    bench.write_much();
    bench.world.disk.full = true;
    for _ in 0..200 {
        bench.background();
        bench.world.settle();
        bench.pass(20);
    }
    assert!(bench.world.store.fenced().is_none());
    bench.read_all();
    bench.world.disk.full = false;
    if bench.world.store.compaction().runs == 0 {
        bench.compact();
    }
    bench.read_all();
}

/// Who makes producers anew from the batches, for want of a snapshot, knows the same retries.
#[test]
fn retries_are_told_though_the_snapshots_are_lost() {
    let mut bench = Bench::new(9, 12);
    bench.world.settle();
    bench.world.create(bench.p, "latest-0");
    let id = 77;
    let of = |sequence: i32| {
        let first = Sequence(sequence);
        let producer = Producer { id: ProducerId(id), epoch: ProducerEpoch(0), first, last: first };
        let mut builder = Builder::new(Codec::None, Some(producer));
        builder.push(WallMs(1_000_000), Some(b"one"), Some(&[sequence as u8; 50]), &[]);
        checked(builder.encode())
    };
    let mut appended = Vec::new();
    for sequence in 0..9 {
        appended.push(bench.world.append(bench.p, &of(sequence)).unwrap());
        bench.world.settle();
        let at = bench.world.now.wall.0;
        let (timestamp, headers) = (1_000_000, vec![0]);
        let written = Written { key: b"one".to_vec(), value: Some(vec![sequence as u8; 50]), timestamp, headers, at };
        bench.written.insert(appended[sequence as usize].base.0, written);
        bench.append();
        bench.world.settle();
    }
    // A key that lives on, so that all of those are dead.
    bench
        .world
        .append(bench.p, &{
            let mut builder = Builder::new(Codec::None, None);
            builder.push(WallMs(1_000_000), Some(b"one"), Some(b"last"), &[]);
            checked(builder.encode())
        })
        .unwrap();
    bench.written.clear();
    for _ in 0..120 {
        bench.append();
        bench.world.settle();
    }
    bench.compact();
    assert!(bench.world.store.compaction().records_removed > 50);
    for path in bench.world.disk.paths().keys().filter(|path| path.ends_with(".snapshot")) {
        bench.world.disk.lose(path);
    }
    bench.world.kill();
    bench.world.recover_and_check();
    for sequence in 4..9 {
        let again = bench.world.append(bench.p, &of(sequence)).unwrap();
        assert!(again.duplicate && again.base == appended[sequence as usize].base, "{sequence}: {again:?}");
    }
    let next = bench.world.append(bench.p, &of(9)).unwrap();
    assert!(!next.duplicate);
}
