//! A file that is shorter, or longer, than it was. No length of a sealed segment is written anywhere; where its last batch ends tells.

use ringmain_batch::{Builder, CheckRules, CheckedBatches, Codec, check};
use ringmain_buffer::Buf;

use super::*;

pub const RECORDS: i64 = 160;

/// One record of the key.
fn keyed(key: &str, fill: u8, at: i64) -> CheckedBatches {
    let mut builder = Builder::new(Codec::None, None);
    builder.push(WallMs(at), Some(key.as_bytes()), Some(&[fill; 90]), &[]);
    check(Buf::copy_of(&builder.encode()), &CheckRules { compacted: true, ..CheckRules::lenient(1 << 20) })
        .expect("a good batch")
}

/// As `stopped`, of a log whose every third record is of a key of its own, and all others of one.
pub fn written() -> World {
    let mut world = World::new(2);
    world.settle();
    world.config.segment_bytes = 3 << 10;
    world.config.index_interval_bytes = 400;
    world.config.delete = false;
    world.config.compaction = Some(CompactionConfig {
        min_cleanable_dirty_ratio: 0.3,
        min_compaction_lag_ms: 0,
        max_compaction_lag_ms: i64::MAX,
        delete_retention_ms: 5_000,
    });
    let p = partition(7, 0);
    world.create(p, "orders-0");
    for n in 0..RECORDS {
        let key = if n % 3 == 0 { format!("key {n}") } else { "same".to_owned() };
        let at = 1_000_000 + n * 1000 + n * 7919 % 5 * 700;
        world.append(p, &keyed(&key, n as u8, at)).unwrap();
        world.settle();
    }
    world
}

pub fn compact(world: &mut World) -> CompactionStats {
    for _ in 0..2000 {
        world.rest(20);
        let stats = world.store.compaction();
        if stats.runs + stats.uncleanable_logs > 0 {
            return stats;
        }
    }
    panic!("no end: {:?}", world.store.compaction());
}

/// Compacted, and stopped.
pub fn compacted() -> World {
    let mut world = written();
    let stats = compact(&mut world);
    assert!(stats.segments_replaced > 5 && stats.records_removed > 50, "{stats:?}");
    stop(&mut world);
    world
}

/// At each batch's end, and a byte behind it: what is missing is refused and the place named; all else is as ever.
#[test]
fn a_segment_that_was_cut_off_is_noticed() {
    for (mut world, compacted) in [(written(), false), (compacted(), true)] {
        if !compacted {
            stop(&mut world);
        }
        let (path, bytes) = file(&world, ".log");
        let whole = world.disk.paths()[&path].clone();
        let places = places(&whole);
        let (sound, named) = said_from(&mut world, RECORDS, 0..RECORDS);
        assert!(named.is_empty() && sound.batches.iter().all(Option::is_some));
        let next = BatchHeader::parse(&whole[places[places.len() - 2]..]).unwrap().next();
        for (place, more) in places[1..].iter().flat_map(|place| [(*place, 0), (*place, 70)]) {
            let cut = (place + more).min(bytes);
            if cut == bytes {
                continue;
            }
            world.disk.replace(&path, &whole[..cut]);
            let (now, named) = said_from(&mut world, RECORDS, 0..RECORDS);
            world.disk.replace(&path, &whole);
            // The first that is not there any more.
            let from = BatchHeader::parse(&whole[place..]).unwrap().base.0;
            let before = places[..places.len() - 1].iter().rev().find(|before| **before < place).unwrap();
            let behind = BatchHeader::parse(&whole[*before..]).unwrap().next().0;
            for (at, (now, sound)) in (0..RECORDS).rev().zip(now.batches.iter().zip(&sound.batches)) {
                assert!(from >= behind);
                let missing = behind <= at && at < next.0;
                assert_eq!(now.is_none(), missing, "{path} cut to {cut}, compacted {compacted}: offset {at}");
                assert!(missing || now == sound, "{path} cut to {cut}: offset {at}");
            }
            assert!(named.contains(&(path.clone(), place as u64)), "{path} cut to {cut}: {named:?}");
            for (now, sound) in now.found.iter().zip(&sound.found) {
                assert!(now.is_err() || now == sound, "{path} cut to {cut}: {now:?} for {sound:?}");
            }
        }
    }
}

/// What would be made of it were whole, and nobody could tell any more.
#[test]
fn a_segment_that_was_cut_off_is_not_compacted() {
    let mut world = written();
    stop(&mut world);
    let (path, _) = file(&world, ".log");
    let whole = world.disk.paths()[&path].clone();
    let places = places(&whole);
    let cut = places[places.len() / 2];
    world.disk.replace(&path, &whole[..cut]);
    world.kill();
    world.settle();
    let p = partition(7, 0);
    let id = world.create(p, "orders-0");
    world.settle();
    let stats = compact(&mut world);
    assert_eq!((stats.uncleanable_logs, stats.segments_replaced), (1, 0), "{stats:?}");
    let from = BatchHeader::parse(&whole[cut..]).unwrap().base;
    let read = world.try_read(id, from, 1);
    assert!(matches!(read, ReadResult::Failed(ReadError::Rot { .. })), "{read:?}");
}

/// An epoch is under no checksum: copied, its damage would stand where nobody knows of it.
#[test]
fn a_batch_of_an_epoch_that_never_was_is_not_compacted() {
    let mut world = written();
    stop(&mut world);
    let (path, _) = file(&world, ".log");
    let mut bytes = world.disk.paths()[&path].clone();
    let place = places(&bytes)[1];
    bytes[place + 15] ^= 4;
    world.disk.replace(&path, &bytes);
    world.kill();
    world.settle();
    world.create(partition(7, 0), "orders-0");
    world.settle();
    let stats = compact(&mut world);
    assert_eq!((stats.uncleanable_logs, stats.segments_replaced), (1, 0), "{stats:?}");
}

/// Producers can't be made anew of what is not there.
#[test]
fn a_segment_that_was_cut_off_is_not_recovered_from() {
    let mut world = stopped();
    let (path, _) = file(&world, ".log");
    let whole = world.disk.paths()[&path].clone();
    let places = places(&whole);
    for more in [0, 70] {
        let cut = places[places.len() - 2];
        world.disk.replace(&path, &whole[..cut + more]);
        for (path, _) in world.disk.paths().iter().filter(|(path, _)| path.ends_with(".snapshot")) {
            world.disk.lose(path);
        }
        world.kill();
        world.settle();
        world.create(partition(7, 0), "orders-0");
        world.settle();
        let damage = world.events.iter().find_map(|event| match event {
            StoreEvent::Recovered { report, .. } => report.damage.first(),
            _ => None,
        });
        let Some(Damage::Rot { path: named, position }) = damage else { panic!("{damage:?}") };
        assert_eq!((named, *position), (&path, cut as u64));
    }
}

/// An index that no memory holds is not waited for.
#[test]
fn an_index_that_got_too_long_is_made_anew() {
    for extension in [".index", ".timeindex"] {
        let mut world = stopped();
        let (path, _) = file(&world, extension);
        let (sound, _) = said(&mut world);
        let mut bytes = world.disk.paths()[&path].clone();
        bytes.resize(1 << 20, 0);
        world.disk.replace(&path, &bytes);
        let (now, _) = said(&mut world);
        assert!(now == sound, "{extension}");
    }
}

/// Retention goes by what is left: a segment whose end is missing, or whose index is, neither stays for ever nor keeps what is behind it.
#[test]
fn a_segment_that_was_cut_off_goes_in_its_time() {
    let world = stopped();
    let (path, bytes) = file(&world, ".log");
    let whole = world.disk.paths()[&path].clone();
    let places = places(&whole);
    let header = |at: usize| BatchHeader::parse(&whole[at..]).unwrap();
    let base = header(0).base;
    let half = places[places.len() / 2];
    // Not at all, at a batch's end, within one, within the first, and before it.
    for cut in [bytes, half, half + 70, 70, 0] {
        let left = places[..places.len() - 1].iter().zip(&places[1..]).filter(|(_, end)| **end <= cut);
        let newest = left.map(|(at, _)| header(*at).info.max_timestamp.0).max();
        for old in [false, true] {
            // With nothing left there is nothing young.
            let Some(newest) = newest.or(old.then_some(0)) else { continue };
            let mut world = stopped();
            world.disk.replace(&path, &whole[..cut]);
            if cut == bytes {
                for extension in [".index", ".timeindex"] {
                    world.disk.lose(&path.replace(".log", extension));
                }
            }
            world.config.retention_ms = if old { 1000 } else { world.now.wall.0 - newest };
            world.kill();
            world.settle();
            let id = world.create(partition(7, 0), "orders-0");
            world.settle();
            for _ in 0..10 {
                world.rest(world.limits.retention_first_ms.max(world.limits.retention_check_ms));
            }
            let (start, end) = (world.store.start(id), world.store.end(id));
            match old {
                true => assert_eq!(start, end, "{path} cut to {cut}"),
                false => assert!(start <= base, "{path} cut to {cut}: {start:?}, and {newest} is young"),
            }
        }
    }
}

/// One after the other, and none waits for the next pass over all logs.
#[test]
fn segments_without_indexes_go_in_one_pass() {
    let mut world = stopped();
    let paths: Vec<String> = world.disk.paths().keys().cloned().collect();
    let lost: Vec<_> = paths.iter().filter(|path| path.ends_with("index")).collect();
    assert!(lost.len() > 6, "{lost:?}");
    lost.iter().for_each(|path| world.disk.lose(path));
    world.config.retention_ms = 1000;
    world.kill();
    world.settle();
    let id = world.create(partition(7, 0), "orders-0");
    world.settle();
    world.rest(0);
    world.rest(world.limits.retention_first_ms);
    for _ in 0..4 * lost.len() {
        world.rest(0);
    }
    assert_eq!(world.store.start(id), world.store.end(id));
}
