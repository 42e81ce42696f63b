//! Retention and starts: what a life lets go, when, and what its producers know afterwards.

use ringmain_types::*;

use crate::model::*;

const LONG_AGO: i64 = 1_600_000_000_000;

/// A log whose records are all older than its retention allows, by one producer: the sequences are the offsets.
fn old_log(seed: u64) -> (World, Partition) {
    let mut world = World::new(seed);
    world.config.retention_ms = 1000;
    world.config.segment_bytes = 4 << 10;
    world.settle();
    let p = partition(7, 0);
    world.create(p, "orders-0");
    (world, p)
}

/// The batch at `offset`, two records: always the same.
fn one(offset: i64) -> ringmain_batch::CheckedBatches {
    batch(2, 300, offset as u8, LONG_AGO + offset, producer(1, offset as i32, 2))
}

fn append(world: &mut World, p: Partition) {
    let end = world.store.end(world.ids[&p]).0;
    let appended = world.append(p, &one(end)).unwrap();
    assert!(!appended.duplicate && appended.base.0 == end);
}

#[test]
fn a_start_lets_nothing_go_before_its_time() {
    let (mut world, p) = old_log(2);
    for _ in 0..10 {
        append(&mut world, p);
        world.settle();
    }
    // Lives that are killed at once: each has its logs back before anything else happens.
    for _ in 0..5 {
        world.kill();
        world.recover_and_check();
        world.rest(1);
        append(&mut world, p);
        world.settle();
        world.rest(1);
        assert_eq!(world.store.start(world.ids[&p]), Offset(0), "nobody lived long enough for that");
    }
    let first = world.limits.retention_first_ms;
    for _ in 0..4 {
        world.rest(first);
    }
    assert_eq!(world.store.start(world.ids[&p]), world.store.end(world.ids[&p]), "in time all of it goes");
}

/// Cuts power, or kills, after each operation of a history in which retention lets go of all there is, again and again: the producer
/// goes on where it was.
#[test]
fn producers_outlive_what_retention_takes() {
    for (kill, seed) in [(true, 2), (false, 2), (true, 3), (false, 3)] {
        let mut operations = 20;
        loop {
            let (mut world, p) = old_log(seed + operations * 2);
            let cut = live(&mut world, p, operations);
            let flushed = world.logs[&p].flushed;
            back(&mut world, p, kill, flushed);
            // Once more, at some moment of what the start has left to do.
            let again = world.disk.completed + world.random.below(60);
            live(&mut world, p, again);
            let flushed = world.logs[&p].flushed;
            let kill = world.random.below(2) == 0;
            back(&mut world, p, kill, flushed);
            if !cut {
                break;
            }
            operations += 1;
        }
        assert!(operations > 150, "{operations}");
    }
}

/// Batches and retention in turns. True when it ended after `operations`.
fn live(world: &mut World, p: Partition, operations: u64) -> bool {
    for round in 0..60 {
        if round % 20 < 8 {
            append(world, p);
        }
        for _ in 0..5 {
            world.background(100);
            world.turn();
            if world.disk.completed >= operations {
                return true;
            }
        }
    }
    false
}

fn back(world: &mut World, p: Partition, kill: bool, flushed: i64) {
    if kill {
        world.kill()
    } else {
        world.crash()
    }
    world.settle();
    let known = world.logs.get_mut(&p).unwrap();
    // What retention has let go meanwhile, the next life may know of or not.
    known.start_asked = flushed;
    world.recover_and_check();
    let id = world.ids[&p];
    let end = world.store.end(id).0;
    if end > 0 {
        let again = world.append(p, &one(end - 2)).unwrap();
        assert!(again.duplicate && again.base.0 == end - 2);
    }
    append(world, p);
    world.settle();
    assert_eq!(world.store.flushed(id).0, end + 2);
}
