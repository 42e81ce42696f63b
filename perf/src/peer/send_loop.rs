//! A bare send loop: answers each Fetch from memory with the batches that are asked for, a blocking thread a connection. What
//! sending costs at least; no log, no lookup, no checks.

use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use ringmain_buffer::Buf;
use ringmain_types::{LeaderEpoch, Offset, PartitionIndex};
use ringmain_wire::fetch::{FetchableTopicResponse, PartitionData};
use ringmain_wire::{FETCH, FetchRequest, FetchResponse, RecordBytes, decode, encode_reply, request_header};

const VERSION: i16 = 12;
/// In a reply, behind the length.
const CORRELATION: usize = 4;
const REQUEST_BYTES_MAX: usize = 64 << 10;

/// Equal batches, one behind the other: a partition, and the same one for everybody.
struct Memory {
    batches: Vec<u8>,
    batch_bytes: usize,
    records: u64,
}

impl Memory {
    fn new(bytes: usize, batch_bytes: usize) -> Memory {
        let (batch, records) = ringmain_load::batch(1024, batch_bytes);
        let mut batches = Vec::with_capacity(bytes + batch.len());
        while batches.len() + batch.len() <= bytes {
            let number = (batches.len() / batch.len()) as u64;
            let at = batches.len();
            batches.extend_from_slice(&batch);
            ringmain_batch::stamp(&mut batches[at..], Offset((number * records) as i64), LeaderEpoch(0));
        }
        Memory { batches, batch_bytes: batch.len(), records }
    }

    /// The whole batches from `offset` on that fit into `most` bytes.
    fn from(&self, offset: Offset, most: usize) -> &[u8] {
        let at = ((offset.0.max(0) as u64 / self.records) as usize).saturating_mul(self.batch_bytes);
        let rest = &self.batches[at.min(self.batches.len())..];
        &rest[..rest.len().min(most) / self.batch_bytes * self.batch_bytes]
    }
}

/// Serves until the process ends.
pub fn run(listen: &str, memory_bytes: usize, batch_bytes: usize) -> io::Result<()> {
    let memory = Arc::new(Memory::new(memory_bytes, batch_bytes));
    for stream in TcpListener::bind(listen)?.incoming() {
        let (stream, memory) = (stream?, memory.clone());
        std::thread::spawn(move || {
            if let Err(error) = serve(stream, &memory)
                && error.kind() != io::ErrorKind::UnexpectedEof
            {
                eprintln!("send loop: connection closed: {error}");
            }
        });
    }
    Ok(())
}

fn serve(mut stream: TcpStream, memory: &Memory) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut frame, mut known) = (Vec::new(), (0, (Vec::new(), Vec::new())));
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > REQUEST_BYTES_MAX {
            return Err(io::Error::other(format!("a request of {length} bytes")));
        }
        frame.resize(length, 0);
        stream.read_exact(&mut frame)?;
        let bad = |error| io::Error::other(format!("{error:?}"));
        let (header, at) = request_header(&frame).map_err(bad)?;
        let request: FetchRequest<'_> = decode(&FETCH, VERSION, &frame[at..]).map_err(bad)?;
        let Some(partition) = request.topics.iter().next().and_then(|topic| topic.partitions.iter().next()) else {
            return Err(io::Error::other("a Fetch of nothing"));
        };
        let records = memory.from(partition.fetch_offset, partition.partition_max_bytes as usize);
        if known.0 != records.len() || known.1.0.is_empty() {
            known = (records.len(), around(records.len()));
        }
        let (head, tail) = &mut known.1;
        head[CORRELATION..CORRELATION + 4].copy_from_slice(&header.correlation.to_be_bytes());
        send(&mut stream, &[head, records, tail])?;
    }
}

/// What stands in front of `bytes` bytes of records and behind them.
fn around(bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let stand_in = Buf::from_vec(vec![0; bytes]);
    let partition = PartitionData {
        partition_index: PartitionIndex(0),
        records: RecordBytes::Parts(vec![stand_in.clone()]),
        ..Default::default()
    };
    let topic = FetchableTopicResponse { topic: "bench", partitions: vec![partition].into(), ..Default::default() };
    let body = FetchResponse { responses: vec![topic].into(), ..Default::default() };
    let parts = encode_reply(&FETCH, VERSION, 0, &body);
    let at = parts.iter().position(|part| part.same_block(&stand_in)).unwrap_or(parts.len());
    (parts[..at].concat(), parts[(at + 1).min(parts.len())..].concat())
}

fn send(stream: &mut TcpStream, parts: &[&[u8]; 3]) -> io::Result<()> {
    let whole: usize = parts.iter().map(|part| part.len()).sum();
    let mut sent = 0;
    while sent < whole {
        let mut skip = sent;
        let slices = parts.map(|part| {
            let skipped = skip.min(part.len());
            skip -= skipped;
            IoSlice::new(&part[skipped..])
        });
        sent += stream.write_vectored(&slices)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_holds_the_batches_that_were_asked_for() {
        let memory = Memory::new(1 << 20, 16 << 10);
        let records = memory.from(Offset(30), 40 << 10);
        assert_eq!(records.len(), 2 * memory.batch_bytes);
        let header = ringmain_batch::BatchHeader::parse(records).unwrap();
        assert!(header.base == Offset(30) && ringmain_batch::crc_ok(&records[..memory.batch_bytes]));
        let (head, tail) = around(records.len());
        let frame = [&head, records, &tail].concat();
        let (correlation, reply): (i32, FetchResponse<'_>) =
            ringmain_wire::decode_reply(&FETCH, VERSION, &frame[4..]).unwrap();
        let partition = reply.responses.iter().next().unwrap().partitions.iter().next().unwrap();
        assert_eq!((correlation, partition.records.wire().unwrap()), (0, records));
        assert!(memory.from(Offset(i64::MAX), 1 << 20).is_empty());
    }
}
