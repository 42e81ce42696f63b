//! What readers ask of the disk.

use ringmain_disk::{DiskClass, DiskKind};
use ringmain_log::{ReadAt, ReadResult, ReadToken};

use crate::model::*;
use ringmain_types::*;

/// Bytes of what the disk reads for readers at this moment, each.
fn under_way(world: &World) -> Vec<u32> {
    let reads = world.disk.flight.iter().filter(|op| op.class == DiskClass::Read);
    let bytes = reads.filter_map(|op| match op.kind {
        DiskKind::Read { bytes, .. } => Some(bytes),
        _ => None,
    });
    bytes.collect()
}

/// A log of 40 batches of about 1500 bytes in several segments, none of them in memory, and its index loaded where `from` is.
fn cold(world: &mut World, from: Offset) -> LogId {
    let p = partition(7, 0);
    world.settle();
    world.create(p, "orders-0");
    for n in 0..40 {
        world.append(p, &batch(2, 700, n, 1000, None)).unwrap();
        world.settle();
    }
    world.kill();
    world.settle();
    let id = world.create(p, "orders-0");
    world.settle();
    world.read(id, from, 100);
    id
}

fn ask(world: &mut World, log: LogId, from: i64) -> ReadToken {
    let at = ReadAt { log, from: Offset(from), below: world.store.end(log), bytes_max: 4096, at_least_one: true };
    match world.store.read(world.now, &mut world.pool, at) {
        ReadResult::Pending(token) => token,
        other => panic!("{other:?} from a file"),
    }
}

#[test]
fn many_readers_of_one_place_cost_one_read() {
    let mut world = World::new(1);
    let log = cold(&mut world, Offset(0));
    let tokens: Vec<ReadToken> = (0..3).map(|_| ask(&mut world, log, 6)).collect();
    for _ in 0..10 {
        world.finish(Vec::new());
        assert_eq!(under_way(&world).len(), 1, "however long the disk takes");
    }
    for token in tokens {
        assert!(matches!(world.wait(token), ReadResult::Ready(slices) if slices.next.0 > 6));
    }
}

#[test]
fn a_reader_goes_to_the_disk_when_the_one_that_it_waited_for_has_gone() {
    let mut world = World::new(1);
    let log = cold(&mut world, Offset(0));
    let (first, second) = (ask(&mut world, log, 6), ask(&mut world, log, 6));
    world.finish(Vec::new());
    world.store.cancel(first);
    assert!(matches!(world.wait(second), ReadResult::Ready(slices) if slices.next.0 > 6));
}

#[test]
fn reads_are_bounded_by_their_bytes_too() {
    let mut limits = Limits::tiny();
    (limits.reads_inflight_max, limits.reads_inflight_bytes_max) = (64, 4096);
    let mut world = World::with(1, limits);
    let log = cold(&mut world, Offset(0));
    let tokens: Vec<ReadToken> = (0..30).map(|n| ask(&mut world, log, 6 + n)).collect();
    let mut most = 0;
    world.finish(Vec::new());
    while !under_way(&world).is_empty() {
        let bytes = under_way(&world);
        most = most.max(bytes.iter().sum());
        assert!(bytes[1..].iter().sum::<u32>() <= 4096, "{bytes:?}");
        world.turn();
    }
    assert!(most >= 4096, "as many as may be");
    for token in tokens {
        assert!(matches!(world.wait(token), ReadResult::Ready(_)));
    }
}
