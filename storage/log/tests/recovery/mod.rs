//! The way back after a kill: what is scanned, and what was believed instead.

mod leftovers;
mod retention;

use std::collections::BTreeMap;

use ringmain_log::*;
use ringmain_types::*;

use crate::model::*;

/// What recovery said that it read.
fn scanned(world: &mut World) -> u64 {
    let reports = std::mem::take(&mut world.events).into_iter().filter_map(|event| match event {
        StoreEvent::Recovered { report, .. } => Some(report),
        _ => None,
    });
    reports
        .map(|report| {
            assert!(report.damage.is_empty(), "{:?}", report.damage);
            report.scanned_bytes
        })
        .sum()
}

/// Comes back after `how`; the bytes that were scanned for it.
fn back(world: &mut World, how: fn(&mut World)) -> u64 {
    how(world);
    world.settle();
    assert!(world.opened, "{:?}", world.events);
    let all: Vec<(Partition, String)> = world.logs.iter().map(|(p, known)| (*p, known.name.clone())).collect();
    for (partition, name) in &all {
        world.create(*partition, name);
    }
    world.settle();
    let bytes = scanned(world);
    for (partition, _) in all {
        assert_eq!(world.store.end(world.ids[&partition]).0, world.logs[&partition].end, "all of it was flushed");
        world.check(partition);
    }
    bytes
}

fn close(world: &mut World) {
    world.store.close(world.now);
    world.finish(Vec::new());
    world.settle();
    assert!(world.closed);
}

/// Segments that never fill, small steps, an index entry a batch.
fn large_segments(seed: u64, recovery_bytes_max: u64) -> World {
    let mut limits = Limits::tiny();
    limits.segment_bytes_max = 8 << 20;
    limits.recovery_bytes_max = recovery_bytes_max;
    let mut world = World::with(seed, limits);
    world.config.segment_bytes = 4 << 20;
    world.config.index_interval_bytes = 64;
    world.settle();
    world
}

/// Three logs with two producers each, `rounds` batches; `strike` strikes now and then.
fn fill(world: &mut World, rounds: u32, strike: impl Fn(&mut World, u32)) {
    let logs = [partition(7, 0), partition(7, 1), partition(8, 0)];
    for (n, p) in logs.iter().enumerate() {
        if !world.ids.contains_key(p) {
            world.create(*p, &format!("log-{n}"));
        }
    }
    for round in 0..rounds {
        for p in logs {
            let batch = batch(
                2,
                150,
                round as u8,
                i64::from(round) * 10,
                producer(1 + i64::from(round % 2), (round / 2 * 2) as i32, 2),
            );
            world.append(p, &batch).unwrap();
        }
        world.settle();
        strike(world, round);
    }
}

fn index_files(world: &World) -> BTreeMap<String, Vec<u8>> {
    let index = |path: &String| path.ends_with(".index") || path.ends_with(".timeindex");
    world.disk.paths().into_iter().filter(|(path, _)| index(path)).collect()
}

#[test]
fn a_start_scans_what_no_checkpoint_covers_and_no_more() {
    let mut world = large_segments(1, 8 << 10);
    let bytes = |world: &World| world.ids.values().map(|id| world.store.size_bytes(*id)).sum::<u64>();
    fill(&mut world, 300, |_, _| {});
    let all = bytes(&world);
    assert!(all > 300 << 10, "{all}");
    let after_kill = back(&mut world, World::kill);
    assert!(after_kill < 16 << 10, "{after_kill} of {all}");
    let again = back(&mut world, World::kill);
    assert!(again < 16 << 10, "{again} of {all}");
    let after_power_cut = back(&mut world, World::crash);
    assert!(after_power_cut < 16 << 10, "{after_power_cut} of {all}");
    close(&mut world);
    let after_stop = back(&mut world, World::kill);
    assert!(after_stop < 16 << 10, "{after_stop} of {all}");

    let mut without = large_segments(1, 1 << 40);
    fill(&mut without, 300, |_, _| {});
    let all_of_it = back(&mut without, World::kill);
    assert!(all_of_it > all - (8 << 10), "{all_of_it} of {all}: nothing else shortens a start");
}

#[test]
fn indexes_are_those_of_a_log_that_never_stopped() {
    let mut plain = large_segments(2, 1 << 40);
    fill(&mut plain, 200, |_, _| {});
    close(&mut plain);
    let mut struck = large_segments(3, 8 << 10);
    fill(&mut struck, 200, |world, round| {
        if round % 23 == 22 {
            back(world, if round % 2 == 0 { World::kill } else { World::crash });
        }
    });
    close(&mut struck);
    let (plain, struck) = (index_files(&plain), index_files(&struck));
    assert_eq!(plain.len(), 6, "{:?}", plain.keys());
    assert!(plain.values().all(|bytes| bytes.len() > 1000));
    assert!(plain == struck);
}

#[test]
fn producers_come_back_with_the_checkpoint() {
    let mut world = large_segments(4, 8 << 10);
    fill(&mut world, 200, |_, _| {});
    back(&mut world, World::kill);
    for (p, known) in world.logs.clone() {
        // The last batch of each producer, once more.
        for round in [198u32, 199] {
            let first = (round / 2 * 2) as i32;
            let again = batch(2, 150, round as u8, i64::from(round) * 10, producer(1 + i64::from(round % 2), first, 2));
            let appended = world.append(p, &again).unwrap();
            assert!(appended.duplicate, "{round}");
            assert_eq!(appended.base.0, i64::from(round) * 2);
        }
        assert_eq!(world.store.end(world.ids[&p]).0, known.end);
    }
}

#[test]
fn what_rotted_is_made_anew() {
    for kind in [".index", ".timeindex", ".snapshot"] {
        for gone in [false, true] {
            let mut world = large_segments(5, 8 << 10);
            fill(&mut world, 200, |_, _| {});
            let paths: Vec<String> = world.disk.paths().into_keys().filter(|path| path.ends_with(kind)).collect();
            assert!(paths.len() >= 3, "{kind}: {paths:?}");
            for path in &paths {
                if gone { world.disk.lose(path) } else { world.disk.rot(path, 20) }
            }
            let bytes = back(&mut world, World::kill);
            assert!(bytes > 200 << 10, "{kind}: {bytes}, though nothing could be believed");
            fill(&mut world, 0, |_, _| {});
            close(&mut world);
            let mut plain = large_segments(6, 1 << 40);
            fill(&mut plain, 200, |_, _| {});
            close(&mut plain);
            assert!(index_files(&world) == index_files(&plain), "{kind}");
        }
    }
}

/// Appends until the active segment of the one log has rolled twice, and power is cut after `operations` operations.
fn rolls(world: &mut World, operations: u64) -> bool {
    let p = partition(7, 0);
    world.create(p, "log-0");
    for round in 0..40u8 {
        let _ = world.append(p, &batch(2, 400, round, 1000, None));
        for _ in 0..4 {
            world.turn();
            if world.disk.completed >= operations {
                return true;
            }
        }
    }
    false
}

#[test]
fn power_cuts_around_rolls_leave_no_file_that_is_taken_for_a_segment() {
    let mut operations = 30;
    loop {
        let mut world = World::new(operations);
        world.settle();
        world.config.segment_bytes = 4 << 10;
        let cut = rolls(&mut world, operations);
        world.crash();
        world.recover_and_check();
        // On from there: segments of other bases than those that were begun before, and again a cut.
        for round in 0..12u8 {
            let _ = world.append(partition(7, 0), &batch(1, 300 + usize::from(round), round, 1000, None));
            world.turn();
            world.turn();
        }
        let turns = world.random.below(40);
        for _ in 0..turns {
            world.turn();
        }
        for _ in 0..2 {
            world.crash();
            world.recover_and_check();
            for round in 0..30u8 {
                let _ = world.append(partition(7, 0), &batch(1, 700, round, 1000, None));
                world.settle();
            }
        }
        if !cut {
            break;
        }
        operations += 1;
    }
    assert!(operations > 100, "{operations}");
}

/// What the journal on the disk says of every log; with the newest group, when it is torn, passed over as if it had never been begun.
fn journal_says(world: &World, without_torn: bool) -> (Vec<String>, bool) {
    let paths = world.disk.paths();
    let mut bytes = paths["journal-1/0.journal"].clone();
    let mut report = inspect::journal(&bytes).unwrap();
    let torn = report.faults.iter().find(|fault| fault.torn).map(|fault| fault.position as usize);
    if let (Some(at), true) = (torn, without_torn) {
        bytes[at..at + 8].fill(0);
        report = inspect::journal(&bytes).unwrap();
    }
    let line = |log: &inspect::OpenLog| {
        let parts: Vec<_> = log.segments.iter().map(|s| (s.base, s.written_to, s.inline.clone(), s.next)).collect();
        format!("{:?} {:?} {:?} {:?} {parts:?}", log.partition, log.dir, log.start, log.end)
    };
    (report.logs.iter().map(line).collect(), torn.is_some())
}

#[test]
fn a_torn_group_names_no_horizon_behind_which_its_predecessor_needs_anything() {
    let mut torn_groups = 0;
    for seed in 0..150 {
        let mut world = World::new(seed);
        world.settle();
        for _ in 0..4 {
            let steps = 20 + world.random.below(300);
            crate::random_life(&mut world, steps);
            world.crash();
            let (with, torn) = journal_says(&world, false);
            if torn {
                torn_groups += 1;
                assert_eq!(with, journal_says(&world, true).0, "seed {seed}");
            }
            world.recover_and_check();
        }
    }
    assert!(torn_groups > 30, "{torn_groups}");
}

#[test]
fn rot_in_the_last_group_of_a_stopped_store_is_no_torn_write() {
    let mut world = World::new(3);
    world.settle();
    let p = partition(7, 0);
    world.create(p, "orders-0");
    world.append(p, &batch(3, 20, 1, 1000, None)).unwrap();
    world.settle();
    close(&mut world);
    let journal = &world.disk.paths()["journal-1/0.journal"];
    let report = inspect::journal(journal).unwrap();
    let last = report.groups.iter().rev().find(|group| !group.entries.is_empty()).unwrap();
    assert_eq!(report.flushed, last.sequence);
    world.disk.rot("journal-1/0.journal", last.position as usize + 100);
    world.kill();
    world.settle();
    assert!(!world.opened);
    let Some(StoreEvent::Fenced { error, .. }) = world.events.first() else { panic!("{:?}", world.events) };
    assert!(error.path.contains("rot in group"), "{error}");
}

/// A disk that wrote a group elsewhere and said that it was done: it is whole, and what stood where it is now is gone.
#[test]
fn a_group_that_stands_elsewhere_is_named() {
    let mut world = World::new(3);
    world.settle();
    let p = partition(7, 0);
    world.create(p, "orders-0");
    for fill in 0..4 {
        world.append(p, &batch(3, 20, fill, 1000, None)).unwrap();
        world.settle();
    }
    close(&mut world);
    let path = "journal-1/0.journal";
    let mut journal = world.disk.paths()[path].clone();
    let report = inspect::journal(&journal).unwrap();
    let group = report.groups.iter().rev().skip(1).find(|group| !group.entries.is_empty()).unwrap();
    let (from, blocks) = (group.position as usize, (group.bytes as usize).next_multiple_of(512));
    let free = journal.len() - 2 * blocks;
    journal.copy_within(from..from + blocks, free);
    journal[from..from + blocks].fill(0);
    world.kill();
    world.disk.put(path, &journal);
    world.settle();
    assert!(!world.opened);
    let Some(StoreEvent::Fenced { error, .. }) = world.events.first() else { panic!("{:?}", world.events) };
    assert!(error.path.contains(&format!("the one before ends at {}", free + blocks)), "{error}");
}

/// What an earlier life wrote where its group never was told of lies under the newest group of the next one, of the same length, batch by batch:
/// whole blocks, so that no batch is half of each.
#[test]
fn blocks_of_an_older_try_are_not_taken_for_the_newest_groups() {
    let whole = |fill: u8| {
        let of = |bytes| batch(1, bytes, fill, 1000, None);
        (2000..3000).map(of).find(|batch| batch.bytes.len() == 2560).expect("such a value")
    };
    let mut again = 0;
    for seed in 0..600 {
        let mut world = World::new(seed);
        world.settle();
        let p = partition(7, 0);
        world.create(p, "orders-0");
        world.append(p, &whole(0)).unwrap();
        world.settle();
        for fill in 1..6 {
            let end = world.logs[&p].end;
            world.append(p, &whole(fill)).unwrap();
            for _ in 0..world.random.below(6) {
                world.turn();
            }
            world.crash();
            world.recover_and_check();
            again += u32::from(world.logs[&p].end == end);
        }
    }
    assert!(again > 600, "{again}: tries that came to nothing");
}

/// Lives in a ring that what its logs hold can fill: appends may be refused, a start may not.
#[test]
fn a_crowded_ring_opens() {
    for seed in 0..150 {
        let mut limits = Limits::tiny();
        limits.journal_bytes = 32 << 10;
        let mut world = World::with(seed, limits);
        world.settle();
        for life in 0..8 {
            let steps = 50 + world.random.below(if life % 3 == 2 { 20 } else { 400 });
            crate::random_life(&mut world, steps);
            if world.random.below(3) == 0 {
                world.kill()
            } else {
                world.crash()
            }
            world.recover_and_check();
        }
    }
}

/// What is due and has no room in the ring is tried again when something happens, not all the time.
#[test]
fn who_waits_for_room_does_not_spin() {
    let mut limits = Limits::tiny();
    limits.journal_bytes = 16 << 10;
    let mut world = World::with(1, limits);
    world.settle();
    world.config.flush = FlushMode::Async;
    let mut waits = 0;
    for n in 0..20 {
        let p = partition(7, n);
        let id = world.create(p, &format!("orders-{n}"));
        world.settle();
        if world.append(p, &batch(1, 200, n as u8, 1000, None)).is_err() {
            continue;
        }
        world.now.mono = world.now.mono.plus_ms(1000);
        world.finish(Vec::new());
        world.settle();
        waits += usize::from(world.store.flushed(id) < world.store.end(id));
        let deadline = world.store.deadline();
        assert!(
            deadline.is_none_or(|at| at > world.now.mono),
            "log {n}: due at {deadline:?}, now {:?}",
            world.now.mono
        );
    }
    assert!(waits > 0);
}
