//! Keyed records over many partitions, as a producer with a linger sends them: every few milliseconds one request with a batch for
//! each partition that a key fell to.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::io;

use ringmain_buffer::Buf;
use ringmain_types::PartitionIndex;
use ringmain_wire::produce::{PartitionProduceData, TopicProduceData};
use ringmain_wire::{PRODUCE, ProduceRequest, RecordBytes, encode_request};

use crate::publisher::acknowledged;
use crate::template::batch_of;
use crate::{Actor, Connection, Frame, Span, Tally};

#[derive(Clone, Debug)]
pub struct KeyedConfig {
    pub address: String,
    pub topic: String,
    pub partitions: u32,
    pub record_bytes: usize,
    pub records_a_second: f64,
    pub linger_ms: f64,
    pub version: i16,
}

pub struct Keyed {
    config: KeyedConfig,
    connection: [Connection; 1],
    random: fastrand::Rng,
    /// Batches of so many records, made when first needed.
    batches: BTreeMap<usize, Buf>,
    scheduled: u64,
    correlation: i32,
    open: VecDeque<(u64, u64)>,
    tally: Tally,
}

impl Keyed {
    pub fn open(config: KeyedConfig) -> io::Result<Keyed> {
        Ok(Keyed {
            connection: [Connection::open(&config.address)?],
            config,
            random: fastrand::Rng::with_seed(3),
            batches: BTreeMap::new(),
            scheduled: 0,
            correlation: 0,
            open: VecDeque::new(),
            tally: Tally::new("publish"),
        })
    }

    fn records_a_request(&self) -> usize {
        (self.config.records_a_second * self.config.linger_ms / 1e3).round().max(1.0) as usize
    }

    fn schedule(&self, number: u64) -> u64 {
        (number as f64 * self.config.linger_ms * 1e6) as u64
    }

    fn batch_of(&mut self, count: usize) -> Buf {
        let bytes = self.config.record_bytes;
        let made = self.batches.entry(count).or_insert_with(|| Buf::from_vec(batch_of(bytes, count)));
        made.clone()
    }

    /// The request of `records` records with random keys, and how many bytes its batches have.
    fn request(&mut self, records: usize) -> (Vec<u8>, u64) {
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for _ in 0..records {
            *counts.entry(self.random.u32(..self.config.partitions)).or_default() += 1;
        }
        let mut bytes = 0;
        let mut data = Vec::with_capacity(counts.len());
        for (partition, count) in counts {
            let batch = self.batch_of(count);
            bytes += batch.len() as u64;
            let index = PartitionIndex(partition as i32);
            data.push(PartitionProduceData { index, records: RecordBytes::Parts(vec![batch]) });
        }
        let topic = TopicProduceData { name: &self.config.topic, partition_data: data.into(), ..Default::default() };
        let body =
            ProduceRequest { acks: -1, timeout_ms: 30_000, topic_data: vec![topic].into(), ..Default::default() };
        let parts = encode_request(&PRODUCE, self.config.version, self.correlation, Some("ringmain-perf"), &body);
        (parts.concat(), bytes)
    }
}

impl Actor for Keyed {
    fn act(&mut self, now: u64) {
        while self.schedule(self.scheduled) <= now {
            let due = self.schedule(self.scheduled);
            self.scheduled += 1;
            self.correlation = self.correlation.wrapping_add(1);
            let (frame, bytes) = self.request(self.records_a_request());
            self.open.push_back((due, bytes));
            self.connection[0].queue(Frame::whole(frame));
        }
    }

    fn receive(&mut self, _: usize, now: u64, span: &Span) -> io::Result<()> {
        let records = self.records_a_request() as u64;
        let (open, tally, last, version) = (&mut self.open, &mut self.tally, self.correlation, self.config.version);
        self.connection[0].receive(|frame| {
            let (due, bytes) = open.pop_front().ok_or_else(|| io::Error::other("a reply to nothing"))?;
            acknowledged(frame, version, last.wrapping_sub(open.len() as i32), None)?;
            tally.answered(span, due, now, records, bytes);
            Ok(())
        })
    }

    fn due(&self) -> Option<u64> {
        Some(self.schedule(self.scheduled))
    }

    fn waiting(&self) -> bool {
        !self.open.is_empty()
    }

    fn connections(&mut self) -> &mut [Connection] {
        &mut self.connection
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }
}
