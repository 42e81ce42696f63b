//! What requests allocate in the steady state: counts, no times. The bounds are what is seen and less than one more: a list that is made
//! for each request fails them.

use ringmain_types::*;
use ringmain_wire as wire;
use ringmain_wire::RecordBytes;
use ringmain_wire::produce::{PartitionProduceData, TopicProduceData};

use crate::counting;
use crate::world::{World, batch};

const PARTITIONS: usize = 8;

/// A Produce frame: one batch of 16 KiB, in so many records, to one partition.
fn frame(partition: usize, records: usize) -> Vec<u8> {
    let value = "x".repeat((16 << 10) / records - 10);
    let records = batch(&vec![value.as_str(); records], None);
    let part = PartitionProduceData { index: PartitionIndex(partition as i32), records: RecordBytes::Wire(&records) };
    let topic = TopicProduceData { name: "lean", partition_data: vec![part].into(), ..Default::default() };
    let request =
        wire::ProduceRequest { acks: -1, timeout_ms: 1000, topic_data: vec![topic].into(), ..Default::default() };
    wire::encode_request(&wire::PRODUCE, 9, 1, Some("test"), &request).concat()
}

/// What `window` requests in one turn allocate until they are answered, on average.
fn allocations(shards: u16, window: usize, records: usize) -> f64 {
    const ROUNDS: usize = 200;
    let mut world = World::with(shards, Limits::production(512 << 20), &[]);
    world.counter = counting::allocations;
    let connection = world.connect(0);
    world.create_topic(connection, "lean", PARTITIONS as i32, &[]);
    let frames: Vec<Vec<u8>> = (0..PARTITIONS).map(|partition| frame(partition, records)).collect();
    let mut before = 0;
    for round in 0..ROUNDS + 100 {
        if round == 100 {
            before = world.counted;
        }
        (0..window).for_each(|at| world.send_bytes(connection, frames[at % PARTITIONS].clone()));
        world.run();
        (0..window).for_each(|_| drop(world.frame(connection).expect("an answer")));
    }
    (world.counted - before) as f64 / ROUNDS as f64
}

/// Beside what a turn and its flush take, which eight requests and sixty-four share alike: fewer than four, two of them for the reply.
#[test]
fn a_produce_request_allocates_a_handful() {
    for shards in [1, 2] {
        let (few, many) = (allocations(shards, 8, 16), allocations(shards, 64, 16));
        let each = (many - few) / 56.0;
        assert!(each <= 4.5, "{each} a request on {shards} shards");
        let turn = few - 8.0 * each;
        assert!(turn <= 100.0, "{turn} for turns and a flush of {PARTITIONS} logs on {shards} shards");
    }
}

#[test]
fn a_record_allocates_nothing() {
    let (few, many) = (allocations(1, 8, 1), allocations(1, 8, 500));
    assert!(many <= few + 8.0, "{few} for 8 requests of a record, {many} for those of 500");
}
