//! A bit of a file turns while nobody looks. What rotted is named and never served; all else is.

mod cut;
mod giant;
mod neighbours;

use std::collections::BTreeSet;

use ringmain_batch::BatchHeader;
use ringmain_log::*;
use ringmain_types::*;

use crate::model::*;

const BATCHES: i64 = 48;

/// A stopped store with one log of several segments, its timestamps in no order.
fn stopped() -> World {
    let mut world = World::new(2);
    world.settle();
    world.config.segment_bytes = 3 << 10;
    world.config.index_interval_bytes = 400;
    let p = partition(7, 0);
    world.create(p, "orders-0");
    for n in 0..BATCHES {
        let at = 1_000_000 + n * 1000 + n * 7919 % 5 * 700;
        world.append(p, &batch(2, 80, n as u8, at, None)).unwrap();
        world.settle();
    }
    stop(&mut world);
    world
}

fn stop(world: &mut World) {
    world.store.close(world.now);
    world.finish(Vec::new());
    world.settle();
    assert!(world.closed);
}

/// The files of one sealed segment in the middle that end in `extension`, and how many bytes it has.
fn file(world: &World, extension: &str) -> (String, usize) {
    let files =
        world.disk.paths().into_iter().filter(|(path, _)| path.ends_with(extension) && path.starts_with("orders-0"));
    let files: Vec<_> = files.collect();
    assert!(files.len() >= 4, "{}", files.len());
    let (path, bytes) = &files[2];
    (path.clone(), bytes.len())
}

/// Where the batches of a segment begin, and where the last one ends.
fn places(segment: &[u8]) -> Vec<usize> {
    let mut places = vec![0];
    while let Some(at) = places.last().copied().filter(|at| *at < segment.len()) {
        places.push(at + BatchHeader::parse(&segment[at..]).unwrap().info.bytes as usize);
    }
    places
}

/// What a life says of the log.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    /// From each batch on: its bytes; none when that was refused as rot.
    batches: Vec<Option<Vec<u8>>>,
    /// Offsets found by time; an error for those that were refused.
    found: Vec<Result<Option<i64>, ()>>,
}

fn said(world: &mut World) -> (Said, BTreeSet<(String, u64)>) {
    said_from(world, BATCHES, (0..BATCHES).map(|n| 2 * n))
}

/// What it says when it is read from these offsets on, and searched for the times of so many batches.
fn said_from(
    world: &mut World,
    times: i64,
    offsets: impl DoubleEndedIterator<Item = i64>,
) -> (Said, BTreeSet<(String, u64)>) {
    world.kill();
    world.settle();
    assert!(world.opened, "{:?}", world.events);
    let p = partition(7, 0);
    world.create(p, "orders-0");
    world.settle();
    let id = world.ids[&p];
    let mut batches = Vec::new();
    for offset in offsets.rev() {
        batches.push(match world.try_read(id, Offset(offset), 1) {
            ReadResult::Ready(slices) => Some(slices.parts.concat()),
            ReadResult::Failed(ReadError::Rot { .. }) => None,
            other => panic!("{other:?}"),
        });
    }
    let mut found = Vec::new();
    let times = (0..times).flat_map(|n| [0, 100].map(|ms| TimeQuery::At(WallMs(1_000_000 + n * 1000 + ms))));
    for query in times.chain([TimeQuery::At(WallMs(0)), TimeQuery::At(WallMs(1 << 40)), TimeQuery::Max]) {
        found.push(match world.find(id, query) {
            FindResult::Ready(found) => Ok(found.map(|found| found.offset.0)),
            FindResult::Failed(ReadError::Rot { .. }) => Err(()),
            other => panic!("{other:?}"),
        });
    }
    let mut named = BTreeSet::new();
    for event in &world.events {
        match event {
            StoreEvent::Damaged { damage: Damage::Rot { path, position }, .. } => {
                named.insert((path.clone(), *position));
            }
            StoreEvent::Recovered { report, .. } => {
                for damage in &report.damage {
                    let Damage::Rot { path, position } = damage else { panic!("{damage:?}") };
                    named.insert((path.clone(), *position));
                }
            }
            other => panic!("{other:?}"),
        }
    }
    (Said { batches, found }, named)
}

/// Every bit of both indexes of a segment, one at a time: all is served as ever, and nothing else is named.
#[test]
fn an_index_that_rots_costs_nothing_but_time() {
    for (extension, entry_bytes) in [(".index", 8), (".timeindex", 12)] {
        let mut world = stopped();
        let (path, bytes) = file(&world, extension);
        let (sound, named) = said(&mut world);
        assert!(named.is_empty() && sound.batches.iter().all(Option::is_some));
        let mut seen = BTreeSet::new();
        for bit in 0..bytes * 8 {
            world.disk.turn_bit(&path, bit);
            let (now, named) = said(&mut world);
            world.disk.turn_bit(&path, bit);
            assert!(now == sound, "{path}, bit {bit}: {named:?}");
            for (named, position) in named {
                assert_eq!(named, path, "bit {bit}");
                // An entry that does not rise above the one before may be met for that one.
                let entry = (bit / 8 / entry_bytes) as u64;
                let met = position / entry_bytes as u64;
                assert!(met == entry || met == entry + 1, "{path}, bit {bit}: {position}");
                seen.insert(bit);
            }
        }
        // Some make no difference: a search begins earlier than it must.
        assert!(seen.len() > bytes * 8 / 2, "{extension}: {} of {}", seen.len(), bytes * 8);
    }
}

/// A bit of every byte of a segment's records: its batch is refused and named, the others are served.
#[test]
fn records_that_rot_are_never_served() {
    let mut world = stopped();
    let (path, bytes) = file(&world, ".log");
    let (sound, _) = said(&mut world);
    for byte in 0..bytes {
        let bit = byte * 8 + byte * 5 % 8;
        world.disk.turn_bit(&path, bit);
        let (now, named) = said(&mut world);
        world.disk.turn_bit(&path, bit);
        let mut refused = 0;
        for (now, sound) in now.batches.iter().zip(&sound.batches) {
            refused += u32::from(now.is_none());
            assert!(now.is_none() || now == sound, "{path}, byte {byte}");
        }
        assert!((1..=4).contains(&refused), "{path}, byte {byte}: {refused} batches are refused");
        assert!(named.iter().any(|(named, _)| *named == path), "{path}, byte {byte}: {named:?}");
        for (now, sound) in now.found.iter().zip(&sound.found) {
            assert!(now.is_err() || now == sound, "{path}, byte {byte}: {now:?} for {sound:?}");
        }
    }
}

/// Whoever came to a segment's begin was not led there by an entry that says the same: a search that begins anew would come there again.
#[test]
fn a_damaged_begin_is_named_though_an_entry_leads_there() {
    let mut world = stopped();
    let (log, _) = file(&world, ".log");
    let (index, _) = file(&world, ".index");
    let mut entries = world.disk.paths()[&index].clone();
    entries[..8].fill(0);
    world.disk.replace(&index, &entries);
    // The format number of the first batch.
    world.disk.turn_bit(&log, 16 * 8);
    let (said, named) = said(&mut world);
    assert!(said.batches.iter().any(Option::is_none), "the damaged one is refused");
    assert!(named.contains(&(log, 0)), "{named:?}");
}

/// Two that an entry leads astray at the same time: what the first one finds out the second one must not take for damage of the records.
#[test]
fn readers_that_are_led_astray_together_are_served() {
    let mut world = stopped();
    let (path, bytes) = file(&world, ".index");
    let mut both = 0;
    for bit in 0..bytes * 8 {
        world.disk.turn_bit(&path, bit);
        for offset in (0..2 * BATCHES).step_by(6) {
            world.kill();
            world.settle();
            let log = world.create(partition(7, 0), "orders-0");
            world.settle();
            let below = world.store.end(log);
            let at = ReadAt { log, from: Offset(offset), below, bytes_max: 1, at_least_one: true };
            let tokens = [at; 2].map(|at| world.store.read(world.now, &mut world.pool, at));
            let [ReadResult::Pending(first), ReadResult::Pending(second)] = tokens else { continue };
            both += 1;
            for token in [first, second] {
                let result = world.wait(token);
                assert!(matches!(result, ReadResult::Ready(_)), "bit {bit}, offset {offset}: {result:?}");
            }
        }
        world.disk.turn_bit(&path, bit);
    }
    assert!(both > bytes, "{both}");
}

/// Little room for indexes: the one that led a reader astray may have gone when what it reads comes back, and says nothing of it any more.
#[test]
fn who_is_led_astray_by_an_index_that_went_is_served() {
    let mut world = stopped();
    world.limits.memory_bytes[Account::Cache as usize] = 1 << 10;
    let (path, bytes) = file(&world, ".index");
    let mut served = 0;
    // Bits of positions within a segment's length.
    for bit in (0..bytes * 8).filter(|bit| bit / 32 % 2 == 1 && bit % 32 >= 16) {
        world.disk.turn_bit(&path, bit);
        for turns in 0..8 {
            world.kill();
            world.settle();
            let log = world.create(partition(7, 0), "orders-0");
            world.settle();
            let below = world.store.end(log);
            let (mut tokens, mut finds) = (Vec::new(), Vec::new());
            for offset in (0..2 * BATCHES).step_by(5) {
                let query = TimeQuery::At(WallMs(1_000_000 + offset * 500));
                if let FindResult::Pending(token) = world.store.find(world.now, &mut world.pool, log, query) {
                    finds.push(token);
                }
                let at = ReadAt { log, from: Offset(offset), below, bytes_max: 1, at_least_one: true };
                if let ReadResult::Pending(token) = world.store.read(world.now, &mut world.pool, at) {
                    tokens.push(token);
                }
                for _ in 0..turns {
                    world.turn();
                }
            }
            for token in tokens {
                let result = world.wait(token);
                assert!(!matches!(result, ReadResult::Failed(_)), "bit {bit}, {turns} turns: {result:?}");
                served += usize::from(matches!(result, ReadResult::Ready(_)));
            }
            for token in finds {
                let result = world.wait_find(token);
                assert!(!matches!(result, FindResult::Failed(_)), "bit {bit}, {turns} turns: {result:?}");
            }
        }
        world.disk.turn_bit(&path, bit);
    }
    assert!(served > bytes, "{served}");
}
