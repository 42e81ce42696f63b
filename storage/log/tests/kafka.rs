//! Files that Kafka 4.4 wrote: they read here, and the same bytes come out again.

use ringmain_log::epochs::LeaderEpochs;
use ringmain_log::index::{IndexedBatch, OffsetIndex, SegmentIndex, TimeIndex};
use ringmain_log::partition_metadata;
use ringmain_log::producer::{ProducerState, Verdict};
use ringmain_log::snapshot;
use ringmain_types::{Offset, Position, WallMs};

const INDEX: &[u8] = include_bytes!("data/kafka-4.4/segment.index");
const TIME_INDEX: &[u8] = include_bytes!("data/kafka-4.4/segment.timeindex");
const SNAPSHOT: &[u8] = include_bytes!("data/kafka-4.4/00000000000000004910.snapshot");
/// What the topic had.
const INTERVAL_BYTES: u32 = 1000;

fn batches() -> Vec<IndexedBatch> {
    let lines = include_str!("data/kafka-4.4/segment.txt").lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let fields: Vec<i64> = line.split(' ').map(|field| field.parse().unwrap()).collect();
            IndexedBatch {
                last: Offset(fields[0]),
                position: Position(fields[1] as u32),
                bytes: fields[2] as u32,
                max_timestamp: WallMs(fields[3]),
            }
        })
        .collect()
}

#[test]
fn indexes_are_the_same_byte_for_byte() {
    let batches = batches();
    let mut index = SegmentIndex::new(Offset(0), 10 << 20);
    for batch in &batches {
        index.push(*batch, INTERVAL_BYTES);
    }
    index.seal();
    assert!(batches.len() > 300 && index.offsets().len() > 200);
    assert_eq!(index.offsets().encode(), INDEX);
    assert_eq!(index.times().encode(), TIME_INDEX);

    let last = batches.last().unwrap();
    let offsets = OffsetIndex::decode(Offset(0), last.position.0 + last.bytes, INDEX).unwrap();
    let times = TimeIndex::decode(Offset(0), Offset(last.last.0 + 1), TIME_INDEX).unwrap();
    assert_eq!((&offsets, &times), (index.offsets(), index.times()));
    // A segment that ends before the last entry's batch has another index.
    assert!(OffsetIndex::decode(Offset(0), offsets.last().unwrap().1.0, INDEX).is_err());
    assert!(TimeIndex::decode(Offset(0), times.last().unwrap().1, TIME_INDEX).is_err());
}

#[test]
fn a_snapshot_is_the_same_byte_for_byte() {
    let rows = snapshot::decode(SNAPSHOT).unwrap();
    assert_eq!(snapshot::encode(&rows), SNAPSHOT);
    let state = ProducerState::from_rows(&rows, 10, WallMs(0));
    assert_eq!(state.rows(), rows);
    let last = batches().last().unwrap().last;
    assert_eq!(rows[0].last_offset, last);
    let retry = ringmain_batch::Producer {
        id: rows[0].id,
        epoch: rows[0].epoch,
        first: ringmain_types::Sequence(rows[0].last_sequence.0 - rows[0].offset_delta),
        last: rows[0].last_sequence,
    };
    let base = Offset(last.0 - i64::from(rows[0].offset_delta));
    assert_eq!(state.check(&retry), Ok(Verdict::Duplicate { base, timestamp: rows[0].timestamp }));
}

#[test]
fn text_files_are_the_same() {
    let checkpoint = include_bytes!("data/kafka-4.4/leader-epoch-checkpoint");
    assert_eq!(LeaderEpochs::decode(checkpoint, 16).unwrap().encode().as_bytes(), checkpoint);
    let metadata = include_bytes!("data/kafka-4.4/partition.metadata");
    let topic = partition_metadata::decode(metadata).unwrap();
    // Kafka leaves out the last line's end, and reads a file with it.
    assert_eq!(partition_metadata::encode(topic).trim_end().as_bytes(), metadata);
}
