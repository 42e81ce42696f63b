//! The store on a disk that loses what may be lost.

mod compaction;
mod model;
mod reads;
mod recovery;
mod rot;

use model::*;
use ringmain_log::AppendError;
use ringmain_types::*;

#[test]
fn appended_flushed_read_and_there_after_a_crash() {
    let mut world = World::new(1);
    world.settle();
    assert!(world.opened);
    let p = partition(7, 0);
    world.create(p, "orders-0");
    for n in 0..5 {
        world.append(p, &batch(3, 20, n, 1000, None)).unwrap();
    }
    assert_eq!(world.logs[&p].flushed, 0, "nothing is flushed by itself");
    world.settle();
    assert_eq!(world.logs[&p].flushed, 15);
    world.check(p);
    world.crash();
    world.recover_and_check();
    assert_eq!(world.logs[&p].end, 15);
}

#[test]
fn large_appends_go_to_segments_and_roll() {
    let mut world = World::new(2);
    world.settle();
    let p = partition(7, 0);
    world.create(p, "orders-0");
    for n in 0..40 {
        world.append(p, &batch(2, 700, n, 1000, None)).unwrap();
        world.settle();
    }
    assert_eq!(world.logs[&p].flushed, 80);
    world.check(p);
    let logs = world.disk.paths().keys().filter(|path| path.ends_with(".log")).count();
    assert!(logs >= 3, "{:?}", world.disk.paths().keys());
    world.crash();
    world.recover_and_check();
    assert_eq!(world.logs[&p].end, 80);
    assert!(world.store.fenced().is_none());
}

/// FAILURES 59.
#[test]
fn a_full_disk_takes_what_fits_in_the_journal_and_says_when_there_is_space_again() {
    let mut world = World::new(3);
    world.settle();
    let p = partition(7, 0);
    world.create(p, "orders-0");
    world.disk.full = true;
    let mut refused = (0..100).filter_map(|n| {
        let taken = world.append(p, &batch(2, 700, n, 1000, None));
        world.settle();
        taken.err()
    });
    let error = refused.next();
    drop(refused);
    assert!(matches!(error, Some(AppendError::NoSpace)), "{error:?}");
    assert_eq!(world.full, 1, "told once");
    let end = world.logs[&p].end;
    assert_eq!(world.logs[&p].flushed, end, "what was taken is durable");
    world.check(p);
    world.disk.full = false;
    world.now.mono = world.now.mono.plus_ms(1000);
    world.settle();
    assert_eq!(world.full, 0);
    world.append(p, &batch(2, 700, 0, 1000, None)).unwrap();
    world.settle();
    assert!(world.store.fenced().is_none());
    world.crash();
    world.recover_and_check();
    assert_eq!(world.logs[&p].end, end + 2);
}

/// A short history: small and large appends to three logs, a roll, a removal; then power is cut after `operations` operations.
fn short_history(world: &mut World, operations: u64) -> bool {
    let mut step = |world: &mut World| {
        world.turn();
        world.disk.completed >= operations
    };
    let wait = |world: &mut World, step: &mut dyn FnMut(&mut World) -> bool| {
        for _ in 0..3 {
            if step(world) {
                return true;
            }
        }
        false
    };
    while !world.opened {
        if step(world) {
            return true;
        }
    }
    let logs = [partition(7, 0), partition(7, 1), partition(8, 0)];
    for (n, p) in logs.iter().enumerate() {
        world.create(*p, &format!("log-{n}"));
    }
    for round in 0..60u8 {
        for (n, p) in logs.iter().enumerate() {
            let bytes = if (usize::from(round) + n).is_multiple_of(3) { 900 } else { 60 };
            let _ = world.append(*p, &batch(1 + u32::from(round % 3), bytes, round, 1000, None));
        }
        if wait(world, &mut step) {
            return true;
        }
    }
    for _ in 0..2000 {
        if step(world) {
            return true;
        }
        if world.disk.flight.is_empty() {
            break;
        }
    }
    false
}

#[test]
fn power_cut_at_every_operation_of_a_short_history() {
    let mut operations = 1;
    loop {
        let mut world = World::new(operations * 7 + 1);
        let cut = short_history(&mut world, operations);
        let opened = world.opened;
        world.crash();
        if opened {
            world.recover_and_check();
            // And again: nothing hangs on the first recovery.
            world.crash();
        }
        world.recover_and_check();
        if !cut {
            break;
        }
        operations += 1;
    }
    assert!(operations > 120, "{operations}");
}

fn spares(world: &World) -> usize {
    world.disk.paths().keys().filter(|path| path.contains(".spare-")).count()
}

/// A log of small segments, of which all but the last are let go.
fn segments_that_went(world: &mut World, p: Partition) {
    for n in 0..40 {
        world.append(p, &batch(2, 700, n, 1000, None)).unwrap();
        world.settle();
    }
    let end = world.store.end(world.ids[&p]);
    world.store.advance_start(world.now, world.ids[&p], end).unwrap();
    world.logs.get_mut(&p).unwrap().start_asked = end.0;
    world.finish(Vec::new());
    world.settle();
}

#[test]
fn files_of_segments_that_went_are_written_again() {
    let mut world = World::new(2);
    world.settle();
    let (p, q) = (partition(7, 0), partition(8, 0));
    world.create(p, "orders-0");
    segments_that_went(&mut world, p);
    assert!(world.disk.given > 0 && spares(&world) > 0, "{:?}", world.disk.paths().keys());
    let lengths =
        world.disk.paths().into_iter().filter(|(path, _)| path.contains(".spare-")).map(|(_, bytes)| bytes.len());
    let lengths: Vec<usize> = lengths.collect();
    assert!(
        lengths.len() > 1 && lengths.iter().sum::<usize>() < world.limits.spare_bytes_max as usize + 512,
        "{lengths:?}"
    );
    let before = world.disk.own_flushes;
    world.create(q, "others-0");
    for n in 0..7 {
        world.append(q, &batch(2, 700, n, 1000, None)).unwrap();
        world.settle();
    }
    assert!(world.disk.taken > 0);
    assert_eq!(world.disk.own_flushes, before, "the journal's flush covers what is overwritten");
    world.check(q);
    world.crash();
    world.recover_and_check();
    assert_eq!(spares(&world), 0, "an earlier life's files are not believed");
}

#[test]
fn a_used_file_waits_until_the_journal_knows_its_segment() {
    for seed in [10, 12, 14, 16, 18, 20] {
        // Without zeroes, so that the ring is roomy: in a crowded one any file is better than the right one.
        let mut world = World::with(seed, Limits { zero_ahead_bytes: 0, ..Limits::tiny() });
        world.settle();
        let (p, q) = (partition(7, 0), partition(8, 0));
        world.create(p, "orders-0");
        world.create(q, "others-0");
        for n in 0..10 {
            world.append(q, &batch(2, 700, n, 1000, None)).unwrap();
            world.settle();
        }
        segments_that_went(&mut world, p);
        assert!(spares(&world) > 0);
        let before = world.disk.taken;
        // It rolls, and is long enough for a file at once.
        world.append(q, &batch(1, 1500, 1, 1000, None)).unwrap();
        world.finish(Vec::new());
        while world.disk.taken == before && world.turn() {}
        assert_eq!(world.disk.taken, before + 1, "seed {seed}");
        assert_eq!(world.logs[&q].flushed, world.logs[&q].end, "seed {seed}: its name had stale bytes too early");
        world.crash();
        world.recover_and_check();
    }
}

#[test]
fn zeroes_ahead_of_a_fast_log_are_covered_by_the_journal_s_flush() {
    let own_flushes = |zero_ahead_bytes| {
        let mut world = World::with(2, Limits { zero_ahead_bytes, ..Limits::tiny() });
        world.settle();
        let p = partition(7, 0);
        world.config.segment_bytes = 64 << 10;
        world.create(p, "orders-0");
        for n in 0..36 {
            world.append(p, &batch(2, 700, n, 1000, None)).unwrap();
            world.settle();
        }
        world.check(p);
        world.crash();
        world.recover_and_check();
        world.disk.own_flushes
    };
    let (with, without) = (own_flushes(1 << 10), own_flushes(0));
    assert!(with * 2 < without, "{with} of {without} groups had to flush the segment too");
}

/// Seed 2981934813: while there were spares, segments that had rolled with less than a trickle waited for ever, and so did appends.
#[test]
fn a_small_segment_that_rolled_gets_a_file_beside_spares() {
    let mut world = World::new(2);
    world.settle();
    let (p, q) = (partition(7, 0), partition(8, 0));
    world.create(p, "orders-0");
    segments_that_went(&mut world, p);
    assert!(spares(&world) > 0);
    world.config.segment_ms = 1;
    world.create(q, "others-0");
    for n in 0..20 {
        world.append(q, &batch(1, 60, n, 1000 + 10 * i64::from(n), None)).unwrap();
        world.settle();
    }
    assert!(spares(&world) > 0);
    world.check(q);
    world.crash();
    world.recover_and_check();
}

#[test]
fn without_a_covering_flush_there_are_no_spares() {
    let mut world = World::new(3);
    world.settle();
    let p = partition(7, 0);
    world.create(p, "orders-0");
    segments_that_went(&mut world, p);
    for _ in 0..20 {
        world.rest(2000);
    }
    assert_eq!((world.disk.given, spares(&world)), (0, 0));
}

#[test]
fn a_removed_log_s_files_are_written_again() {
    let mut world = World::new(4);
    world.settle();
    let p = partition(7, 0);
    world.create(p, "orders-0");
    for n in 0..20 {
        world.append(p, &batch(2, 700, n, 1000, None)).unwrap();
        world.settle();
    }
    let id = world.ids.remove(&p).unwrap();
    world.logs.remove(&p);
    world.store.remove(world.now, id);
    world.finish(Vec::new());
    world.settle();
    assert_eq!(world.removed, 1);
    assert!(spares(&world) > 0);
    assert!(!world.disk.paths().keys().any(|path| path.contains("orders")), "{:?}", world.disk.paths().keys());
}

#[test]
fn idle_time_makes_spares_of_zeroes_as_far_as_they_were_missed() {
    let mut world = World::with(6, Limits { spare_quiet_ms: 1000, ..Limits::tiny() });
    world.settle();
    for _ in 0..20 {
        world.rest(2000);
    }
    assert_eq!(spares(&world), 0, "nobody wrote anything");
    let p = partition(7, 0);
    world.create(p, "orders-0");
    for n in 0..20 {
        world.append(p, &batch(2, 700, n, 1000, None)).unwrap();
        world.settle();
    }
    world.rest(10);
    assert_eq!(spares(&world), 0, "it was not quiet for long");
    for _ in 0..20 {
        world.rest(2000);
    }
    assert_eq!(spares(&world), world.limits.spare_fill_files_max as usize);
    let zeroes = world.disk.paths().into_iter().find(|(path, _)| path.contains(".spare-")).unwrap().1;
    assert_eq!(zeroes, vec![0; world.limits.spare_fill_bytes as usize]);
    world.store.close(world.now);
    world.finish(Vec::new());
    world.settle();
    assert!(world.closed);
    assert_eq!(spares(&world), 0, "a clean stop leaves none");
}

#[test]
fn a_directory_that_the_journal_never_heard_of_is_left_alone() {
    let mut world = World::new(8);
    world.settle();
    let p = partition(7, 0);
    world.create(p, "orders-0");
    world.append(p, &batch(1, 20, 1, 1000, None)).unwrap();
    world.settle();
    let named = |world: &World| {
        let paths = world.disk.paths();
        let directories = paths.keys().filter(|path| path.ends_with("/partition.metadata") && !path.contains("-new"));
        directories.count()
    };
    // Each life is killed as soon as its directory has its name: the wished one, the topic's own, and those behind it.
    for life in 1..5 {
        world.append(p, &batch(1, 3000, life as u8, 1000, None)).unwrap();
        for _ in 0..1000 {
            if named(&world) == life {
                break;
            }
            if !world.turn() {
                world.finish(Vec::new());
            }
        }
        assert_eq!(named(&world), life);
        world.kill();
        world.settle();
        let id = world.create(p, "orders-0");
        while world.store.recovering(id) {
            if !world.turn() {
                world.finish(Vec::new());
            }
        }
        let end = world.store.end(id).0;
        let known = world.logs.get_mut(&p).unwrap();
        known.batches.split_off(&end);
        (known.end, known.flushed) = (end, end);
    }
    world.append(p, &batch(1, 3000, 9, 1000, None)).unwrap();
    world.finish(Vec::new());
    world.settle();
    assert!(!world.fenced);
    assert_eq!(named(&world), 5);
    world.crash();
    world.recover_and_check();
}

fn random_life(world: &mut World, steps: u64) {
    for _ in 0..steps {
        let partitions: Vec<Partition> = world.ids.keys().copied().collect();
        match world.random.below(20) {
            0 if partitions.len() < 6 => {
                let p = partition(u128::from(world.random.next()) | 1 << 100, 0);
                let name = format!("t{}-0", world.random.below(3));
                world.create(p, &name);
            }
            1 if partitions.len() > 2 && world.random.below(8) == 0 => {
                let p = partitions[world.random.below(partitions.len() as u64) as usize];
                let id = world.ids.remove(&p).unwrap();
                world.logs.remove(&p);
                world.store.remove(world.now, id);
            }
            2 if !partitions.is_empty() && world.random.below(4) == 0 => {
                let p = partitions[world.random.below(partitions.len() as u64) as usize];
                let (start, flushed) = (world.store.start(world.ids[&p]).0, world.logs[&p].flushed);
                let to = start + world.random.below((flushed - start).max(0) as u64 + 1) as i64;
                if world.store.advance_start(world.now, world.ids[&p], Offset(to)).is_ok() {
                    let known = world.logs.get_mut(&p).unwrap();
                    known.start_asked = known.start_asked.max(to);
                }
            }
            3..=11 if !partitions.is_empty() => {
                let p = partitions[world.random.below(partitions.len() as u64) as usize];
                let bytes = match world.random.below(6) {
                    0 => 2000 + world.random.below(6000),
                    1..=2 => 300 + world.random.below(1500),
                    _ => world.random.below(100),
                };
                let fill = world.random.next() as u8;
                let count = 1 + world.random.below(3) as u32;
                // One producer a log: its sequences are the offsets.
                let first = world.store.end(world.ids[&p]).0 as i32;
                let batch = batch(count, bytes as usize, fill, world.now.wall.0, producer(1, first, count));
                let _ = world.append(p, &batch);
            }
            12 if !partitions.is_empty() => {
                let p = partitions[world.random.below(partitions.len() as u64) as usize];
                // Retention may take what is being read.
                if world.random.below(4) == 0 && world.config.retention_ms < 0 {
                    world.check(p);
                }
            }
            13 => {
                let ms = if world.random.below(4) == 0 { 2000 } else { 200 };
                world.now.mono = world.now.mono.plus_ms(ms);
                world.now.wall = WallMs(world.now.wall.0 + 200);
                let mut out = Vec::new();
                world.store.background(world.now, &mut world.pool, 4096, &mut out);
                world.submit(out);
            }
            _ => {
                world.turn();
            }
        }
    }
}

/// The power goes, or the process does.
fn strike(world: &mut World) {
    if world.random.below(3) == 0 { world.kill() } else { world.crash() }
}

/// Starts that do not get far, some of them not even to their first group.
fn cut_off_starts(world: &mut World) {
    for _ in 0..world.random.below(4) {
        for _ in 0..world.random.below(60) {
            world.turn();
            if world.opened && world.ids.is_empty() {
                let all: Vec<(Partition, String)> = world.logs.iter().map(|(p, l)| (*p, l.name.clone())).collect();
                for (p, name) in &all {
                    world.create(*p, name);
                }
            }
            if world.opened && world.random.below(8) == 0 {
                world.background(1);
            }
        }
        strike(world);
    }
}

fn lives(seed: u64) -> (u32, u32) {
    let mut world = World::new(seed);
    let retention = seed % 4 >= 2;
    if retention {
        world.config.retention_ms = 1500;
    }
    world.settle();
    for _ in 0..6 {
        let most = if world.random.below(5) == 0 { 30 } else { 1000 };
        let steps = world.random.below(most);
        random_life(&mut world, steps);
        if world.random.below(4) == 0 {
            world.store.close(world.now);
            world.finish(Vec::new());
            world.settle();
            assert!(world.closed, "seed {seed}: not closed");
            world.crash();
        } else {
            strike(&mut world);
        }
        cut_off_starts(&mut world);
        for known in world.logs.values_mut().filter(|_| retention) {
            known.start_asked = known.start_asked.max(known.flushed);
        }
        world.recover_and_check();
        for (p, known) in &world.logs {
            let mut views = Vec::new();
            world.store.producers(world.ids[p], &mut views);
            let last = views.first().map(|view| i64::from(view.last_sequence.0));
            assert_eq!(last.unwrap_or(-1), known.end - 1, "what the producer of {p:?} did last");
        }
    }
    (world.disk.given, world.disk.taken)
}

#[test]
fn many_lives() {
    let (mut given, mut taken) = (0, 0);
    for seed in 0..100 {
        let run = std::panic::catch_unwind(|| lives(seed));
        let (more, less) = run.unwrap_or_else(|_| panic!("seed {seed}"));
        (given, taken) = (given + more, taken + less);
    }
    assert!(given > 20 && taken > 10, "{given} spares made, {taken} used");
}

/// A ring of logs that have no files, for the disk is full, and starts that are cut off again and again, each with a word of the
/// metadata: the next one ends all the same, and so does what waited.
#[test]
fn a_start_ends_however_many_were_cut_off() {
    let metadata = partition(1, 0);
    let word = |world: &mut World| {
        world.config.reserve_bytes = 512;
        let id = world.create(metadata, "metadata-0");
        world.config.reserve_bytes = 0;
        world.settle();
        let (end, known) = (world.store.end(id).0, world.logs.get_mut(&metadata).unwrap());
        assert!(known.flushed <= end && end <= known.end);
        known.batches.split_off(&end);
        (known.end, known.flushed) = (end, end);
        world.append(metadata, &batch(1, 50, 0, 1000, None))
    };
    for seed in 0..40 {
        let mut world = World::new(seed);
        world.settle();
        world.disk.full = true;
        word(&mut world).unwrap();
        for n in 0..10 {
            world.create(partition(2, n), &format!("t-{n}"));
        }
        for n in 0..200 {
            let (p, bytes) = (partition(2, n % 10), 50 + world.random.below(600) as usize);
            let _ = world.append(p, &batch(1, bytes, n as u8, 1000, None));
            if world.random.below(2) == 0 {
                world.turn();
            }
        }
        for _ in 0..12 {
            strike(&mut world);
            cut_off_starts(&mut world);
            world.settle();
            assert!(world.opened, "seed {seed}");
            let _ = word(&mut world);
            for _ in 0..world.random.below(20) {
                world.turn();
            }
        }
        strike(&mut world);
        world.recover_and_check();
        world.disk.full = false;
        for _ in 0..3 {
            world.now.mono = world.now.mono.plus_ms(1000);
            world.settle();
        }
        for p in world.ids.keys().copied().collect::<Vec<_>>() {
            world.append(p, &batch(1, 600, 9, 1000, None)).unwrap_or_else(|e| panic!("seed {seed}: {p:?}: {e:?}"));
            world.settle();
            let known = &world.logs[&p];
            assert_eq!(known.flushed, known.end, "seed {seed}: {p:?} waits for ever");
        }
        world.crash();
        world.recover_and_check();
    }
}
