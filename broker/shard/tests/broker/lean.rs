//! What requests allocate and flush in the steady state: counts, no times. The bounds are what is seen and less than one more: a list that
//! is made for each request fails them. `counted ...` is for `cargo xtask bench`, which puts the counts into its table.

use ringmain_types::*;
use ringmain_wire as wire;
use ringmain_wire::RecordBytes;
use ringmain_wire::produce::{PartitionProduceData, TopicProduceData};

use crate::counting;
use crate::world::{World, batch};

const PARTITIONS: usize = 8;

/// A Produce frame: one batch of so many records of `value` to one partition.
fn frame(partition: usize, value: &str, records: usize) -> Vec<u8> {
    let records = batch(&vec![value; records], None);
    let part = PartitionProduceData { index: PartitionIndex(partition as i32), records: RecordBytes::Wire(&records) };
    let topic = TopicProduceData { name: "lean", partition_data: vec![part].into(), ..Default::default() };
    let request =
        wire::ProduceRequest { acks: -1, timeout_ms: 1000, topic_data: vec![topic].into(), ..Default::default() };
    wire::encode_request(&wire::PRODUCE, 9, 1, Some("test"), &request).concat()
}

/// Of a turn, on average.
struct Counted {
    allocations: f64,
    flushes: f64,
}

/// What `window` requests in one turn take until they are answered; they go to `partitions` partitions in turn.
fn count(shards: u16, partitions: usize, window: usize, frame: impl Fn(usize) -> Vec<u8>) -> Counted {
    const ROUNDS: usize = 200;
    let mut world = World::with(shards, Limits::production(512 << 20), &[]);
    world.counter = counting::allocations;
    let connection = world.connect(0);
    world.create_topic(connection, "lean", partitions as i32, &[]);
    let frames: Vec<Vec<u8>> = (0..partitions).map(frame).collect();
    let flushes = |world: &World| world.disks.iter().map(|disk| disk.flushes).sum::<usize>();
    let mut before = (0, 0);
    for round in 0..ROUNDS + 100 {
        if round == 100 {
            before = (world.counted, flushes(&world));
        }
        (0..window).for_each(|at| world.send_bytes(connection, frames[at % partitions].clone()));
        world.run();
        (0..window).for_each(|_| drop(world.frame(connection).expect("an answer")));
    }
    let each = |after: usize, before: usize| (after - before) as f64 / ROUNDS as f64;
    Counted { allocations: each(world.counted, before.0), flushes: each(flushes(&world), before.1) }
}

/// What `window` requests of 16 KiB in one turn allocate.
fn allocations(shards: u16, window: usize, records: usize) -> f64 {
    let value = "x".repeat((16 << 10) / records - 10);
    count(shards, PARTITIONS, window, |partition| frame(partition, &value, records)).allocations
}

/// Beside what a turn and its flush take, which eight requests and sixty-four share alike: fewer than four, two of them for the reply.
#[test]
fn a_produce_request_allocates_a_handful() {
    for shards in [1, 2] {
        let (few, many) = (allocations(shards, 8, 16), allocations(shards, 64, 16));
        let each = (many - few) / 56.0;
        println!("counted allocations a Produce request: {each}");
        assert!(each <= 4.5, "{each} a request on {shards} shards");
        let turn = few - 8.0 * each;
        assert!(turn <= 100.0, "{turn} for turns and a flush of {PARTITIONS} logs on {shards} shards");
    }
}

#[test]
fn a_record_allocates_nothing() {
    let (few, many) = (allocations(1, 8, 1), allocations(1, 8, 500));
    // What one more record takes is less than can be told apart from none.
    println!("counted allocations a record: {:.2}", ((many - few) / (8.0 * 499.0)).max(0.0));
    assert!(many <= few + 8.0, "{few} for 8 requests of a record, {many} for those of 500");
}

/// A group commit is one flush, however many requests and partitions are in it: a flush is what costs most.
#[test]
fn requests_and_partitions_share_a_flush() {
    let flushes = |partitions, window| count(1, partitions, window, |partition| frame(partition, "x", 1)).flushes;
    for (partitions, window) in [(1, 1), (1, 64), (64, 64)] {
        let seen = flushes(partitions, window);
        println!("counted flushes of {window} requests to {partitions} partitions: {seen}");
        assert!((0.9..=1.1).contains(&seen), "{seen} flushes for {window} requests to {partitions} partitions");
    }
}
