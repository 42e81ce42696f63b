//! Reads whole partitions and compares them with what a producer was promised.

use std::{fmt, io};

use ringmain_batch::{BatchHeader, HEADER_BYTES, Record, crc_ok, records};
use ringmain_types::{ErrorCode, Offset, PartitionIndex};
use ringmain_wire::fetch::{FetchPartition, FetchTopic};
use ringmain_wire::{FETCH, FetchRequest, FetchResponse};

use crate::connection::Connection;

pub const FETCH_VERSION: i16 = 12;

/// What was found wrong, and how much was looked at.
#[derive(Default, Debug)]
pub struct Verdict {
    pub records: u64,
    pub lost: u64,
    pub duplicated: u64,
    pub reordered: u64,
    pub gaps: u64,
    pub first: Option<String>,
}

impl Verdict {
    pub fn clean(&self) -> bool {
        self.lost + self.duplicated + self.reordered + self.gaps == 0
    }

    fn wrong(&mut self, count: fn(&mut Verdict) -> &mut u64, what: impl FnOnce() -> String) {
        *count(self) += 1;
        self.first.get_or_insert_with(what);
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verdict { records, lost, duplicated, reordered, gaps, first } = self;
        write!(f, "{records} records read, lost {lost}, duplicated {duplicated}, reordered {reordered}, gaps {gaps}")?;
        first.as_ref().map_or(Ok(()), |first| write!(f, ": {first}"))
    }
}

/// `promised[partition][number]` is the offset that record `number` was acknowledged with. A record that was never acknowledged may be
/// there or not, but only in its place.
pub fn verify(address: &str, topic: &str, promised: &[Vec<i64>]) -> io::Result<Verdict> {
    let mut verdict = Verdict::default();
    for (partition, offsets) in promised.iter().enumerate() {
        let log = read_all(address, topic, partition)?;
        verdict.records += log.len() as u64;
        let mut next = 0u64;
        for (at, (offset, number)) in log.iter().enumerate() {
            if *offset != at as i64 {
                verdict.wrong(|v| &mut v.gaps, || format!("{topic}-{partition}: offset {offset} where {at} was due"));
            }
            match number.cmp(&next) {
                std::cmp::Ordering::Equal => next += 1,
                std::cmp::Ordering::Less => verdict
                    .wrong(|v| &mut v.duplicated, || format!("{topic}-{partition}: record {number} again at {offset}")),
                std::cmp::Ordering::Greater => {
                    verdict.wrong(
                        |v| &mut v.reordered,
                        || format!("{topic}-{partition}: record {number} at {offset} where {next} was due"),
                    );
                    next = number + 1;
                }
            }
        }
        for (number, offset) in offsets.iter().enumerate() {
            let found = usize::try_from(*offset).ok().and_then(|at| log.get(at)).map(|(_, n)| *n);
            if found != Some(number as u64) {
                verdict.wrong(
                    |v| &mut v.lost,
                    || format!("{topic}-{partition}: record {number} was acknowledged at {offset}, there is {found:?}"),
                );
            }
        }
    }
    Ok(verdict)
}

/// (offset, number) of every record of a partition, in the log's order.
fn read_all(address: &str, topic: &str, partition: usize) -> io::Result<Vec<(i64, u64)>> {
    let mut log = Vec::new();
    read_partition(address, topic, partition, |bytes, from| {
        let before = log.len();
        take_records(bytes, from, &mut log)?;
        Ok(log[before..].last().map(|(last, _)| last + 1))
    })?;
    Ok(log)
}

/// From the start to the high watermark. `take` gets what each Fetch brought and the offset that was asked for, and says from where on
/// to go on; `None`: no record of it was at or above that.
pub fn read_partition(
    address: &str,
    topic: &str,
    partition: usize,
    mut take: impl FnMut(&[u8], i64) -> io::Result<Option<i64>>,
) -> io::Result<()> {
    let mut connection = Connection::open(address)?;
    let mut next = 0;
    loop {
        let part = FetchPartition {
            partition: PartitionIndex(partition as i32),
            fetch_offset: Offset(next),
            partition_max_bytes: 4 << 20,
            ..Default::default()
        };
        let topics = vec![FetchTopic { topic, partitions: vec![part].into(), ..Default::default() }];
        let request = FetchRequest {
            max_wait_ms: 100,
            min_bytes: 1,
            max_bytes: 4 << 20,
            topics: topics.into(),
            ..Default::default()
        };
        let frame = connection.call(&FETCH, FETCH_VERSION, &request)?;
        let (_, reply): (i32, FetchResponse<'_>) = frame.decode(&FETCH, FETCH_VERSION)?;
        let found = reply.responses.iter().next().and_then(|t| t.partitions.iter().next());
        let Some(data) = found.filter(|d| d.error_code == ErrorCode::None && reply.error_code == ErrorCode::None)
        else {
            return Err(io::Error::other(format!("{topic}-{partition} at {next}: {reply:?}")));
        };
        match take(data.records.wire().unwrap_or(&[]), next)? {
            Some(after) => next = after,
            None if next >= data.high_watermark.0 => return Ok(()),
            None => {
                return Err(io::Error::other(format!(
                    "{topic}-{partition} at {next}: nothing below {:?}",
                    data.high_watermark
                )));
            }
        }
    }
}

/// (offset, number) of every record from `from` on in these batches, the last of which may be cut.
pub fn take_records(bytes: &[u8], from: i64, log: &mut Vec<(i64, u64)>) -> io::Result<()> {
    each_record(bytes, |offset, record| {
        if offset >= from {
            log.push((offset, number_of(offset, record.value)?));
        }
        Ok(())
    })
    .map(|_| ())
}

/// The number in `partition:number:...`.
pub fn number_of(offset: i64, value: Option<&[u8]>) -> io::Result<u64> {
    let mut parts = value.unwrap_or_default().splitn(3, |byte| *byte == b':').skip(1);
    let number = parts.next().and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
    number.ok_or_else(|| bad(format!("a value that nobody sent at {offset}")))
}

/// Every record of these batches, the last of which may be cut; the offset behind the last whole one.
pub fn each_record(
    mut bytes: &[u8],
    mut take: impl FnMut(i64, &Record<'_>) -> io::Result<()>,
) -> io::Result<Option<i64>> {
    let (mut scratch, mut next) = (Vec::new(), None);
    while bytes.len() >= HEADER_BYTES {
        let header = BatchHeader::parse(bytes).map_err(|e| bad(e.to_string()))?;
        let Some(batch) = bytes.get(..header.info.bytes as usize) else { break };
        if !crc_ok(batch) {
            return Err(bad(format!("a batch at {:?} with a wrong CRC", header.base)));
        }
        for record in records(batch, &mut scratch, 16 << 20).map_err(|e| bad(e.to_string()))? {
            let record = record.map_err(|e| bad(e.to_string()))?;
            take(header.base.0 + i64::from(record.offset_delta), &record)?;
        }
        next = Some(header.next().0);
        bytes = &bytes[header.info.bytes as usize..];
    }
    Ok(next)
}

fn bad(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
