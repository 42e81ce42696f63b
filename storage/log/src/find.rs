//! ListOffsets by time: the time index says where to begin, the records say which.

use ringmain_batch::{BatchHeader, records};
use ringmain_buffer::{Pool, Refused};
use ringmain_types::*;

use crate::log::Log;
use crate::read::{Ask, Need, Outcome, What};
use crate::store::Store;
use crate::{FindResult, Found, ReadError, TimeQuery};

/// A search, and how far it is.
#[derive(Clone, Debug)]
pub(crate) struct Find {
    query: TimeQuery,
    /// The batch that is looked at next.
    at: Option<(Offset, u32)>,
}

/// The record that a batch has for a query.
enum Seen {
    Record(Offset, WallMs),
    None,
    Rot,
}

impl Store {
    /// The first record at or after a time, or the one with the greatest. Looks at everything up to the end: who must not show
    /// what is not committed compares.
    pub fn find(&mut self, _now: Now, _pool: &mut Pool, id: LogId, query: TimeQuery) -> FindResult {
        match self.ask(id, Ask::Find(Find { query, at: None })) {
            Ok(What::Find(result)) => result,
            Ok(What::Read(_)) => FindResult::Failed(ReadError::Removed),
            Err(Some(token)) => FindResult::Pending(token),
            Err(None) => FindResult::Memory(Refused { account: Account::Cache, wanted: 0, left: 0 }),
        }
    }
}

impl Log {
    /// `bytes_max`: what a batch may decompress to.
    pub(crate) fn find(&self, find: &mut Find, bytes_max: usize) -> Outcome {
        let done = |result| Outcome::Done(What::Find(result));
        if find.at.is_none() {
            find.at = match self.begin_find(find.query) {
                Ok(Some(at)) => Some(at),
                Ok(None) => return done(FindResult::Ready(None)),
                Err(base) => return Outcome::Need(Need::Index { base }),
            };
        }
        let mut scratch = Vec::new();
        while let Some((base, position)) = find.at {
            let Some((base, next, bytes)) = self.segment_of(base) else { return done(FindResult::Ready(None)) };
            if position >= bytes {
                find.at = (bytes > 0 && next < self.end()).then_some((next, 0));
                continue;
            }
            let Some(stretch) = self.in_memory(base, position) else {
                return Outcome::Need(Need::Bytes { base, from: position, bytes: READ_BYTES, whole: false });
            };
            let batch = &stretch.data[(position - stretch.first) as usize..];
            let Ok(header) = BatchHeader::parse(batch) else {
                let position = Position(position);
                return done(FindResult::Failed(ReadError::Rot { segment: base, position }));
            };
            let batch = &batch[..(header.info.bytes as usize).min(batch.len())];
            match self.seen(find.query, &header, batch, &mut scratch, bytes_max) {
                Seen::Record(offset, timestamp) => {
                    let epoch = self.epochs.epoch_of(offset);
                    return done(FindResult::Ready(Some(Found { offset, timestamp, epoch })));
                }
                Seen::None => find.at = Some((base, position + header.info.bytes)),
                Seen::Rot => {
                    let position = Position(position);
                    return done(FindResult::Failed(ReadError::Rot { segment: base, position }));
                }
            }
        }
        done(FindResult::Ready(None))
    }

    /// The first batch to look at; an error names the segment whose index must be loaded.
    fn begin_find(&self, query: TimeQuery) -> Result<Option<(Offset, u32)>, Offset> {
        let mut best: Option<(WallMs, Offset)> = None;
        let sealed = self.sealed.values().map(|s| (s.base, s.next, s.max_timestamp, s.index.as_ref()));
        let open = self.open.iter().map(|s| {
            let max = s.index.max_timestamp().map_or(WallMs(-1), |(at, _)| at);
            (s.base, s.next, Some(max), Some(&s.index))
        });
        for (base, next, max, index) in sealed.chain(open) {
            if next <= self.start || next == base {
                continue;
            }
            let max = max.ok_or(base)?;
            match query {
                TimeQuery::At(at) if max >= at => {
                    return Ok(Some((base, index.ok_or(base)?.position_at(at).0)));
                }
                TimeQuery::At(_) => {}
                TimeQuery::Max => {
                    if best.is_none_or(|(so_far, _)| max > so_far) {
                        best = Some((max, base));
                    }
                }
            }
        }
        let Some((_, base)) = best else { return Ok(None) };
        let index = self.index_of(base).ok_or(base)?;
        let position = index.max_timestamp().map_or(0, |(_, last)| index.position(last).0);
        Ok(Some((base, position)))
    }

    fn seen(
        &self,
        query: TimeQuery,
        header: &BatchHeader,
        batch: &[u8],
        scratch: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Seen {
        let wanted = match query {
            TimeQuery::At(at) => at,
            // The greatest of the segment that has the greatest of all.
            TimeQuery::Max => self.max_timestamp(header.base),
        };
        if header.info.max_timestamp < wanted || header.next() <= self.start {
            return Seen::None;
        }
        if header.info.control {
            return Seen::None;
        }
        let Ok(found) = records(batch, scratch, bytes_max) else { return Seen::Rot };
        for record in found {
            let Ok(record) = record else { return Seen::Rot };
            let offset = Offset(header.base.0 + i64::from(record.offset_delta));
            let timestamp = if header.info.log_append_time {
                header.info.max_timestamp
            } else {
                WallMs(header.info.base_timestamp.0.saturating_add(record.timestamp_delta))
            };
            if timestamp >= wanted && offset >= self.start {
                return Seen::Record(offset, timestamp);
            }
        }
        Seen::None
    }

    fn max_timestamp(&self, base: Offset) -> WallMs {
        let index = self.segment_of(base).and_then(|(base, _, _)| self.index_of(base));
        index.and_then(SegmentIndexMax::of).unwrap_or(WallMs(0))
    }
}

/// Bytes fetched at once for a search.
const READ_BYTES: u32 = 64 << 10;

struct SegmentIndexMax;
impl SegmentIndexMax {
    fn of(index: &crate::index::SegmentIndex) -> Option<WallMs> {
        index.max_timestamp().map(|(at, _)| at)
    }
}
