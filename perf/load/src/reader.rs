//! Reads one partition over one connection: from its start, round and round, or along its tail.

use std::io;

use ringmain_batch::{BatchHeader, HEADER_BYTES};
use ringmain_types::{ErrorCode, Offset, PartitionIndex};
use ringmain_wire::fetch::{FetchPartition, FetchTopic};
use ringmain_wire::{FETCH, FetchRequest, FetchResponse, decode_reply, encode_request};

use crate::{Actor, Connection, Frame, Span, Tally, Timeline};

/// Where a reader is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Never: it waits for more.
    Tail,
    /// Here it begins again.
    Again(i64),
    /// Here it stops.
    Stop(i64),
}

#[derive(Clone, Debug)]
pub struct ReaderConfig {
    /// Of its tally.
    pub name: &'static str,
    pub address: String,
    pub topic: String,
    pub partition: u32,
    /// Of a request, and of the partition in it.
    pub bytes_max: usize,
    pub from: i64,
    pub end: End,
    pub version: i16,
}

pub struct Reader {
    config: ReaderConfig,
    connection: [Connection; 1],
    offset: i64,
    correlation: i32,
    asked: Option<u64>,
    /// With it, latencies are those of records: from when they were due to be published.
    timeline: Option<Timeline>,
    tally: Tally,
}

/// What a reply held.
struct Got {
    records: u64,
    bytes: u64,
    next: i64,
}

impl Reader {
    pub fn open(config: ReaderConfig, timeline: Option<Timeline>) -> io::Result<Reader> {
        let (offset, tally) = (config.from, Tally::new(config.name));
        let connection = [Connection::open(&config.address)?];
        Ok(Reader { config, connection, offset, correlation: 0, asked: None, timeline, tally })
    }

    fn ask(&mut self, now: u64) {
        self.correlation = self.correlation.wrapping_add(1);
        self.asked = Some(now);
        let partition = FetchPartition {
            partition: PartitionIndex(self.config.partition as i32),
            fetch_offset: Offset(self.offset),
            partition_max_bytes: self.config.bytes_max as i32,
            ..Default::default()
        };
        let topic = FetchTopic { topic: &self.config.topic, partitions: vec![partition].into(), ..Default::default() };
        let body = FetchRequest {
            max_wait_ms: 500,
            min_bytes: 1,
            max_bytes: self.config.bytes_max as i32,
            topics: vec![topic].into(),
            ..Default::default()
        };
        let parts = encode_request(&FETCH, self.config.version, self.correlation, Some("ringmain-perf"), &body);
        self.connection[0].queue(Frame::whole(parts.concat()));
    }
}

impl Actor for Reader {
    fn act(&mut self, now: u64) {
        if self.asked.is_none() && !self.exhausted() {
            self.ask(now);
        }
    }

    fn receive(&mut self, _: usize, now: u64, span: &Span) -> io::Result<()> {
        let mut got = None;
        let (config, timeline, tally, offset) = (&self.config, &self.timeline, &mut self.tally, self.offset);
        let want = self.correlation;
        self.connection[0].receive(|frame| {
            got = Some(read(frame, config.version, want, offset, |base| {
                let due = timeline.as_ref().and_then(|timeline| timeline.due(config.partition, base));
                due.into_iter().for_each(|due| tally.late(span, due, now));
            })?);
            Ok(())
        })?;
        let Some(got) = got else { return Ok(()) };
        let asked = self.asked.take().ok_or_else(|| io::Error::other("a reply to nothing"))?;
        if span.open() {
            self.tally.requests += 1;
            self.tally.records += got.records;
            self.tally.bytes += got.bytes;
        }
        if self.timeline.is_none() {
            self.tally.late(span, asked, now);
        }
        self.offset = match self.config.end {
            End::Again(end) if got.next >= end => self.config.from,
            _ => got.next,
        };
        // After the end too, until all is read that was published: the slowest must not be left out.
        if (!span.ended || self.waiting()) && !self.exhausted() {
            self.ask(now);
        }
        Ok(())
    }

    fn due(&self) -> Option<u64> {
        None
    }

    fn waiting(&self) -> bool {
        self.timeline.as_ref().is_some_and(|timeline| self.offset < timeline.end(self.config.partition))
    }

    fn exhausted(&self) -> bool {
        matches!(self.config.end, End::Stop(end) if self.offset >= end)
    }

    fn connections(&mut self) -> &mut [Connection] {
        &mut self.connection
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }
}

/// Walks the whole batches of a reply from `offset` on and tells `each` their base offsets.
fn read(frame: &[u8], version: i16, want: i32, offset: i64, mut each: impl FnMut(i64)) -> io::Result<Got> {
    let decoded = decode_reply(&FETCH, version, frame);
    let (correlation, reply): (i32, FetchResponse<'_>) =
        decoded.map_err(|error| io::Error::other(format!("Fetch v{version}: {error:?}")))?;
    if correlation != want {
        return Err(io::Error::other(format!("reply {correlation} where {want} was due")));
    }
    let mut got = Got { records: 0, bytes: 0, next: offset };
    let partitions = reply.responses.iter().flat_map(|topic| topic.partitions.iter().collect::<Vec<_>>());
    for partition in partitions {
        let code = if reply.error_code == ErrorCode::None { partition.error_code } else { reply.error_code };
        if code != ErrorCode::None {
            return Err(io::Error::other(format!("Fetch of partition {}: {code:?}", partition.partition_index.0)));
        }
        let mut rest = partition.records.wire().unwrap_or_default();
        // The last batch may be cut off, as Kafka's protocol allows.
        while rest.len() >= HEADER_BYTES
            && let Ok(header) = BatchHeader::parse(rest)
            && header.info.bytes as usize <= rest.len()
        {
            if header.next().0 > got.next {
                if header.base.0 > got.next {
                    let (base, next) = (header.base.0, got.next);
                    return Err(io::Error::other(format!("a batch at {base} where {next} was due")));
                }
                each(header.base.0);
                got.records += (header.next().0 - got.next) as u64;
                got.bytes += u64::from(header.info.bytes);
                got.next = header.next().0;
            }
            rest = &rest[header.info.bytes as usize..];
        }
        if got.records == 0 && !rest.is_empty() {
            return Err(io::Error::other("a fetch brought no whole batch: more bytes must be asked for"));
        }
    }
    Ok(got)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringmain_types::LeaderEpoch;
    use ringmain_wire::fetch::{FetchableTopicResponse, PartitionData};
    use ringmain_wire::{RecordBytes, encode_reply};

    fn reply(records: &[u8]) -> Vec<u8> {
        let partition = PartitionData { records: RecordBytes::Wire(records), ..Default::default() };
        let topic = FetchableTopicResponse { topic: "t", partitions: vec![partition].into(), ..Default::default() };
        let body = FetchResponse { responses: vec![topic].into(), ..Default::default() };
        encode_reply(&FETCH, 12, 7, &body).concat()[4..].to_vec()
    }

    fn batches(bases: &[i64]) -> Vec<u8> {
        let mut all = Vec::new();
        for base in bases {
            let at = all.len();
            all.extend(crate::template::batch_of(100, 10));
            ringmain_batch::stamp(&mut all[at..], Offset(*base), LeaderEpoch(0));
        }
        all
    }

    #[test]
    fn whole_batches_count_from_the_offset_on() {
        let mut records = batches(&[0, 10, 20]);
        let whole = records.len() / 3;
        records.truncate(records.len() - 1);
        let mut bases = Vec::new();
        let got = read(&reply(&records), 12, 7, 4, |base| bases.push(base)).unwrap();
        assert_eq!((got.next, got.records, got.bytes, bases), (20, 16, 2 * whole as u64, vec![0, 10]));
        assert!(
            read(&reply(&records[..whole - 1]), 12, 7, 0, |_| {}).is_err(),
            "less than a batch would be asked for forever"
        );
        assert_eq!(read(&reply(&[]), 12, 7, 4, |_| {}).unwrap().next, 4);
    }

    #[test]
    fn what_is_wrong_is_an_error() {
        assert!(read(&reply(&batches(&[0, 20])), 12, 7, 0, |_| {}).is_err(), "a gap");
        assert!(read(&reply(&batches(&[0])), 12, 8, 0, |_| {}).is_err(), "another request's");
        assert!(read(&[0; 5], 12, 7, 0, |_| {}).is_err(), "no reply");
    }
}
