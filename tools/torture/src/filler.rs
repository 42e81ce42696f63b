//! One idempotent producer with five requests in flight, each with a batch for every partition: what fills gigabytes.

use std::collections::VecDeque;
use std::io;

use ringmain_buffer::Buf;
use ringmain_types::ErrorCode;
use ringmain_wire::{PRODUCE, ProduceResponse};

use crate::connection::Connection;
use crate::producer::{self, Content, IN_FLIGHT, PRODUCE_VERSION};

/// `record` says what is in a partition's record of that number. Its offset is its number, or the run has failed.
pub struct Filler<R> {
    topic: &'static str,
    producer_id: i64,
    partitions: usize,
    batch_records: u64,
    record: R,
    /// By request, oldest first: the number of the first record in each of its batches.
    pending: VecDeque<u64>,
    next: u64,
    acked: u64,
}

impl<R: Fn(usize, u64) -> Content> Filler<R> {
    pub fn new(topic: &'static str, producer_id: i64, partitions: usize, batch_records: u64, record: R) -> Filler<R> {
        Filler { topic, producer_id, partitions, batch_records, record, pending: VecDeque::new(), next: 0, acked: 0 }
    }

    /// Records of each partition that were acknowledged.
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// Until `wanted` records of each partition are acknowledged; some requests stay in flight.
    pub fn fill(&mut self, connection: &mut Connection, wanted: u64) -> io::Result<()> {
        while self.acked < wanted {
            while self.pending.len() < IN_FLIGHT {
                self.send(connection, self.next)?;
                self.pending.push_back(self.next);
                self.next += self.batch_records;
            }
            self.receive(connection)?;
        }
        Ok(())
    }

    /// Until nothing is in flight.
    pub fn finish(&mut self, connection: &mut Connection) -> io::Result<()> {
        while !self.pending.is_empty() {
            self.receive(connection)?;
        }
        Ok(())
    }

    /// Over a new connection: what was not answered is sent once more, and answered.
    pub fn again(&mut self, connection: &mut Connection) -> io::Result<()> {
        for first in self.pending.clone() {
            self.send(connection, first)?;
        }
        self.finish(connection)
    }

    fn send(&self, connection: &mut Connection, first: u64) -> io::Result<()> {
        let batches = (0..self.partitions).map(|partition| (partition, self.batch(partition, first)));
        producer::send(connection, self.topic, batches)
    }

    fn batch(&self, partition: usize, first: u64) -> Buf {
        producer::encode(self.producer_id, first, self.batch_records, |number| (self.record)(partition, number))
    }

    fn receive(&mut self, connection: &mut Connection) -> io::Result<()> {
        let bad = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let frame = connection.receive()?;
        let (_, reply): (i32, ProduceResponse<'_>) = frame.decode(&PRODUCE, PRODUCE_VERSION)?;
        let first = self.pending.front().copied().ok_or_else(|| bad("a reply to nothing".into()))?;
        for topic in &reply.responses {
            for part in &topic.partition_responses {
                if part.error_code != ErrorCode::None || part.base_offset.0 != first as i64 {
                    let (code, at) = (part.error_code, part.base_offset.0);
                    return Err(bad(format!("record {first} of {}: {code:?}, at {at}", part.index.0)));
                }
            }
        }
        self.pending.pop_front();
        self.acked = first + self.batch_records;
        Ok(())
    }
}
