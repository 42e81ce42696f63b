//! The store on a disk that loses what may be lost.

mod model;

use model::*;
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
                let _ = world.append(p, &batch(count, bytes as usize, fill, world.now.wall.0, None));
            }
            12 if !partitions.is_empty() => {
                let p = partitions[world.random.below(partitions.len() as u64) as usize];
                if world.random.below(4) == 0 {
                    world.check(p);
                }
            }
            13 => {
                world.now.mono = world.now.mono.plus_ms(200);
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

fn lives(seed: u64) {
    let mut world = World::new(seed);
    world.settle();
    for _ in 0..6 {
        let steps = 50 + world.random.below(800);
        random_life(&mut world, steps);
        match world.random.below(4) {
            0 => world.kill(),
            1 => {
                world.store.close(world.now);
                world.finish(Vec::new());
                world.settle();
                assert!(world.closed, "seed {seed}: not closed");
                world.crash();
            }
            _ => world.crash(),
        }
        world.recover_and_check();
    }
}

#[test]
fn many_lives() {
    for seed in 0..100 {
        let run = std::panic::catch_unwind(|| lives(seed));
        assert!(run.is_ok(), "seed {seed}");
    }
}
