//! One Produce request, encoded once and patched for each use: the generator's cost a request is two integers and a `writev`.

use std::time::{SystemTime, UNIX_EPOCH};

use ringmain_batch::{Builder, Codec};
use ringmain_buffer::Buf;
use ringmain_types::{PartitionIndex, WallMs};
use ringmain_wire::produce::{PartitionProduceData, TopicProduceData};
use ringmain_wire::{PRODUCE, ProduceRequest, RecordBytes, encode_request};

use crate::Frame;

/// A frame's length, API key and version stand in front of the correlation id.
const CORRELATION: usize = 8;
/// Bytes in front of the records, at most: a longer topic name is refused.
pub const HEAD_BYTES_MAX: usize = 160;

/// The patched bytes in front of one request's records.
#[derive(Clone, Copy)]
pub struct Head {
    bytes: [u8; HEAD_BYTES_MAX],
    len: u8,
}

impl Head {
    pub const EMPTY: Head = Head { bytes: [0; HEAD_BYTES_MAX], len: 0 };

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// A request for one partition, with one uncompressed batch of equal records: `acks=all`, no producer id.
pub struct Template {
    head: Head,
    partition_at: usize,
    /// The batch, shared by all requests: nothing in it depends on connection, partition or time.
    records: Buf,
    /// Closing tag counts.
    tail: Buf,
    pub records_count: u64,
    pub version: i16,
}

impl Template {
    /// A batch of as many records of `record_bytes` random bytes as fit into `batch_bytes` (one at least).
    pub fn new(topic: &str, record_bytes: usize, batch_bytes: usize, version: i16) -> Result<Template, String> {
        let (batch, records_count) = batch(record_bytes, batch_bytes);
        let records = Buf::from_vec(batch);
        // Partitions 0 and -1 differ in each of the index's four bytes and nowhere else.
        let (zero, tail) = request(topic, PartitionIndex(0), &records, version);
        let (ones, _) = request(topic, PartitionIndex(-1), &records, version);
        if zero.len() > HEAD_BYTES_MAX {
            return Err(format!("the topic's name takes more than the {HEAD_BYTES_MAX} bytes of a request's head"));
        }
        let partition_at =
            zero.iter().zip(&ones).position(|(a, b)| a != b).expect("the heads differ in their partition");
        let mut head = Head { bytes: [0; HEAD_BYTES_MAX], len: zero.len() as u8 };
        head.bytes[..zero.len()].copy_from_slice(&zero);
        Ok(Template { head, partition_at, records, tail: Buf::from_vec(tail), records_count, version })
    }

    pub fn frame(&self, correlation: i32, partition: PartitionIndex) -> Frame {
        let mut head = self.head;
        head.bytes[CORRELATION..CORRELATION + 4].copy_from_slice(&correlation.to_be_bytes());
        head.bytes[self.partition_at..self.partition_at + 4].copy_from_slice(&partition.0.to_be_bytes());
        Frame { head, body: self.records.clone(), tail: self.tail.clone() }
    }

    /// Of a batch, as it stands in the log.
    pub fn batch_bytes(&self) -> u64 {
        self.records.len() as u64
    }
}

/// As many records of `record_bytes` random bytes as fit into `batch_bytes` (one at least), and how many they are.
pub fn batch(record_bytes: usize, batch_bytes: usize) -> (Vec<u8>, u64) {
    build(record_bytes, |builder, longer| longer.bytes() > batch_bytes && builder.count() > 0)
}

/// A batch of `count` records.
pub fn batch_of(record_bytes: usize, count: usize) -> Vec<u8> {
    build(record_bytes, |builder, _| builder.count() as usize == count).0
}

/// Pushes records until `enough` says so of the batch and what it would be with one more.
fn build(record_bytes: usize, enough: impl Fn(&Builder, &Builder) -> bool) -> (Vec<u8>, u64) {
    let now = WallMs(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64));
    let mut random = fastrand::Rng::with_seed(1);
    let mut builder = Builder::new(Codec::None, None);
    loop {
        let value: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(record_bytes).collect();
        let mut longer = builder.clone();
        longer.push(now, None, Some(&value), &[]);
        if enough(&builder, &longer) {
            let count = u64::from(builder.count());
            return (builder.encode(), count);
        }
        builder = longer;
    }
}

/// What stands in front of the records and behind them.
fn request(topic: &str, partition: PartitionIndex, records: &Buf, version: i16) -> (Vec<u8>, Vec<u8>) {
    let data = PartitionProduceData { index: partition, records: RecordBytes::Parts(vec![records.clone()]) };
    let topic = TopicProduceData { name: topic, partition_data: vec![data].into(), ..Default::default() };
    let body = ProduceRequest { transactional_id: None, acks: -1, timeout_ms: 30_000, topic_data: vec![topic].into() };
    let parts = encode_request(&PRODUCE, version, 0, Some("ringmain-perf"), &body);
    let at = parts.iter().position(|part| part.same_block(records)).expect("the records are spliced");
    (parts[..at].concat(), parts[at + 1..].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringmain_wire::{decode, request_header};

    #[test]
    fn a_patched_frame_is_a_request() {
        for version in [3, 8, 9, 12] {
            let template = Template::new("bench", 1024, 16 << 10, version).unwrap();
            assert_eq!(template.records_count, 15);
            let frame = template.frame(77, PartitionIndex(5));
            let frame = [frame.head.bytes(), &frame.body[..], &frame.tail[..]].concat();
            assert_eq!(u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize, frame.len() - 4);
            let (header, bytes) = request_header(&frame[4..]).unwrap();
            assert_eq!((header.api, header.version, header.correlation), (PRODUCE.key, version, 77));
            let body: ProduceRequest<'_> = decode(&PRODUCE, version, &frame[4 + bytes..]).unwrap();
            let topic = body.topic_data.iter().next().unwrap();
            let partition = topic.partition_data.iter().next().unwrap();
            assert_eq!((topic.name, partition.index), ("bench", PartitionIndex(5)));
            assert!(ringmain_batch::crc_ok(partition.records.wire().unwrap()));
        }
    }

    #[test]
    fn a_large_record_comes_alone() {
        let template = Template::new("bench", 5_000, 1_000, 12).unwrap();
        assert_eq!(template.records_count, 1);
        assert!(template.batch_bytes() > 5_000);
    }
}
