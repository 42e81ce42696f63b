//! A raw idempotent producer with five requests in flight, which goes on through any number of broker lives.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ringmain_batch::{Builder, Codec, Producer};
use ringmain_buffer::Buf;
use ringmain_types::{ErrorCode, PartitionIndex, ProducerEpoch, ProducerId, Sequence, WallMs};
use ringmain_wire::RecordBytes;
use ringmain_wire::produce::{PartitionProduceData, TopicProduceData};
use ringmain_wire::{
    INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse, PRODUCE, ProduceRequest, ProduceResponse,
};

use crate::connection::Connection;

pub const IN_FLIGHT: usize = 5;
pub const PRODUCE_VERSION: i16 = 12;
const RECORDS_MAX: u64 = 20;
/// A broker that is down comes back within this, or the run fails.
const DOWN_MAX: Duration = Duration::from_secs(30);

/// The value of a record says which one of its partition it is; the filler varies the batches' sizes over block edges.
pub fn value(partition: usize, number: u64) -> Vec<u8> {
    let mut text = format!("{partition}:{number}:").into_bytes();
    text.resize(text.len() + (number * 37 % 1500) as usize, b'.');
    text
}

struct Batch {
    partition: usize,
    first: u64,
    count: u64,
    bytes: Buf,
}

/// What the producer was promised: per partition, each record's offset.
#[derive(Default)]
pub struct Promised {
    pub offsets: Vec<Vec<i64>>,
    pub reconnects: u64,
    /// Batches refused with 56.
    pub storage_errors: u64,
}

pub struct RawProducer<'a> {
    pub address: &'a str,
    pub topic: &'a str,
    pub partitions: usize,
    pub stop: &'a AtomicBool,
    pub acked: &'a AtomicU64,
    /// Before each batch.
    pub pause: Duration,
}

impl RawProducer<'_> {
    /// Sends until told to stop, then until everything sent is acknowledged.
    pub fn run(&self) -> Result<Promised, String> {
        let producer_id = self.connect(init_producer_id)?.1;
        let mut promised = Promised { offsets: vec![Vec::new(); self.partitions], ..Promised::default() };
        let mut sent = vec![0u64; self.partitions];
        let mut pending: VecDeque<Batch> = VecDeque::new();
        let mut refused = 0;
        while !(self.stop.load(Ordering::Relaxed) && pending.is_empty()) {
            let mut connection = self.connect(|_| Ok(()))?.0;
            match self.talk(&mut connection, producer_id, &mut pending, &mut sent, &mut promised, &mut refused) {
                Ok(()) => break,
                Err(e) if e.kind() == io::ErrorKind::InvalidData => return Err(e.to_string()),
                Err(_) => promised.reconnects += 1,
            }
        }
        Ok(promised)
    }

    fn connect<T>(&self, mut then: impl FnMut(&mut Connection) -> io::Result<T>) -> Result<(Connection, T), String> {
        let began = Instant::now();
        loop {
            let tried = Connection::open(self.address).and_then(|mut c| then(&mut c).map(|t| (c, t)));
            match tried {
                Ok(done) => return Ok(done),
                Err(e) if began.elapsed() > DOWN_MAX => return Err(format!("no broker for {DOWN_MAX:?}: {e}")),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// One connection: first everything that is still unacknowledged, in order, then news.
    fn talk(
        &self,
        connection: &mut Connection,
        producer_id: i64,
        pending: &mut VecDeque<Batch>,
        sent: &mut [u64],
        promised: &mut Promised,
        refused: &mut u32,
    ) -> io::Result<()> {
        for batch in pending.iter() {
            send(connection, self.topic, [(batch.partition, batch.bytes.clone())].into_iter())?;
        }
        loop {
            while pending.len() < IN_FLIGHT && !self.stop.load(Ordering::Relaxed) {
                if !self.pause.is_zero() {
                    std::thread::sleep(self.pause);
                }
                let partition = fastrand::usize(..self.partitions);
                let batch = make_batch(producer_id, partition, sent[partition], fastrand::u64(1..=RECORDS_MAX));
                sent[partition] += batch.count;
                let one = [(batch.partition, batch.bytes.clone())];
                // Pending first: what a connection that ends did not take must come again.
                pending.push_back(batch);
                send(connection, self.topic, one.into_iter())?;
            }
            let Some(batch) = pending.front() else { return Ok(()) };
            let frame = connection.receive()?;
            let (_, reply): (i32, ProduceResponse<'_>) = frame.decode(&PRODUCE, PRODUCE_VERSION)?;
            let topic = reply.responses.iter().next().ok_or_else(|| invalid("an empty reply"))?;
            let part = topic.partition_responses.iter().next().ok_or_else(|| invalid("an empty reply"))?;
            if part.error_code != ErrorCode::None {
                *refused += 1;
                if part.error_code == ErrorCode::KafkaStorageError {
                    promised.storage_errors += 1;
                    std::thread::sleep(Duration::from_millis(20));
                }
                if *refused > 200 {
                    return Err(invalid(&format!(
                        "refused 200 times in a row, last with {:?}: partition {} from {} on, {} acknowledged, {} in flight",
                        part.error_code,
                        batch.partition,
                        batch.first,
                        promised.offsets[batch.partition].len(),
                        pending.len()
                    )));
                }
                return Err(io::Error::other("refused"));
            }
            *refused = 0;
            if part.index.0 as usize != batch.partition {
                return Err(invalid("a reply out of order"));
            }
            let known = &mut promised.offsets[batch.partition];
            assert_eq!(known.len() as u64, batch.first);
            known.extend((0..batch.count).map(|i| part.base_offset.0 + i as i64));
            self.acked.fetch_add(batch.count, Ordering::Relaxed);
            pending.pop_front();
        }
    }
}

/// One request that has a batch for each of these partitions.
pub fn send(connection: &mut Connection, topic: &str, batches: impl Iterator<Item = (usize, Buf)>) -> io::Result<()> {
    let data = batches.map(|(partition, batch)| PartitionProduceData {
        index: PartitionIndex(partition as i32),
        records: RecordBytes::Parts(vec![batch]),
    });
    let topic = TopicProduceData { name: topic, partition_data: data.collect::<Vec<_>>().into(), ..Default::default() };
    let request =
        ProduceRequest { transactional_id: None, acks: -1, timeout_ms: 30_000, topic_data: vec![topic].into() };
    connection.send(&PRODUCE, PRODUCE_VERSION, &request).map(|_| ())
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}

pub fn init_producer_id(connection: &mut Connection) -> io::Result<i64> {
    let request =
        InitProducerIdRequest { transactional_id: None, transaction_timeout_ms: 60_000, ..Default::default() };
    let frame = connection.call(&INIT_PRODUCER_ID, 4, &request)?;
    let (_, reply): (i32, InitProducerIdResponse) = frame.decode(&INIT_PRODUCER_ID, 4)?;
    if reply.error_code == ErrorCode::None {
        Ok(reply.producer_id.0)
    } else {
        Err(io::Error::other(format!("InitProducerId: {:?}", reply.error_code)))
    }
}

/// The clock's time: records of another year are retention's to take, and look like lost ones.
pub fn now() -> WallMs {
    WallMs(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64))
}

/// What one record says.
pub struct Content {
    pub at: WallMs,
    pub key: Option<Vec<u8>>,
    pub value: Vec<u8>,
}

/// Records `first` to `first + count` of a partition, numbered by their sequences; `record` says what is in each.
pub fn encode(producer_id: i64, first: u64, count: u64, record: impl Fn(u64) -> Content) -> Buf {
    let sequence = |n: u64| Sequence((n % (1 << 31)) as i32);
    let producer = Producer {
        id: ProducerId(producer_id),
        epoch: ProducerEpoch(0),
        first: sequence(first),
        last: sequence(first + count - 1),
    };
    let mut builder = Builder::new(Codec::None, Some(producer));
    for number in first..first + count {
        let Content { at, key, value } = record(number);
        builder.push(at, key.as_deref(), Some(&value), &[]);
    }
    Buf::copy_of(&builder.encode())
}

fn make_batch(producer_id: i64, partition: usize, first: u64, count: u64) -> Batch {
    let at = now();
    let bytes = encode(producer_id, first, count, |number| Content { at, key: None, value: value(partition, number) });
    Batch { partition, first, count, bytes }
}
