//! ListOffsets by time: the time index says where to begin, the records say which.

use ringmain_batch::{BatchHeader, records};
use ringmain_buffer::{Pool, Refused};
use ringmain_types::*;

use crate::doubt::Doubt;
use crate::index::{Entry, TimeEntry};
use crate::log::Log;
use crate::read::{Ask, Need, Outcome, What};
use crate::store::Store;
use crate::{FindResult, Found, ReadError, STORED_RECORDS_BYTES_MAX, TimeQuery};

/// A search, and how far it is.
#[derive(Clone, Debug)]
pub(crate) struct Find {
    query: TimeQuery,
    state: State,
    /// Behind the batch that was looked at last.
    follows: Option<Offset>,
    /// In this segment alone.
    only: Option<Offset>,
    /// Segments that were read through for their greatest timestamp: their index names one that no record from the log's start on has.
    known: Vec<(Offset, Option<(WallMs, Offset)>)>,
}

impl Find {
    pub fn new(query: TimeQuery, only: Option<Offset>) -> Find {
        Find { query, state: State::Begin, follows: None, only, known: Vec::new() }
    }

    /// It goes on in this segment where an entry said, or at its begin.
    pub fn led_into(&self, of: Offset) -> bool {
        match self.state {
            State::Begin => false,
            State::Seek { base, .. } | State::Scan { base, .. } => base == of && self.follows.is_none(),
        }
    }

    /// The segments are others than they were.
    pub fn restart(&mut self) {
        self.state = State::Begin;
        self.follows = None;
        self.known.clear();
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    Begin,
    /// The first record at or after a time is in this batch or behind it.
    Seek {
        base: Offset,
        position: u32,
        /// The entry of the time index that led there, until its batch was met.
        by: Option<TimeEntry>,
    },
    /// The greatest of a segment: `wanted` by its index, which leads to where `from` begins; if it is not there, all from `whole` on
    /// is looked at.
    Scan {
        base: Offset,
        position: u32,
        wanted: WallMs,
        whole: Option<u32>,
        best: Option<(WallMs, Offset)>,
    },
}

impl Store {
    /// The first record at or after a time, or the one with the greatest. Looks at everything up to the end: who must not show
    /// what is not committed compares.
    pub fn find(&mut self, _now: Now, _pool: &mut Pool, id: LogId, query: TimeQuery) -> FindResult {
        match self.ask(id, Ask::Find(Find::new(query, None))) {
            Ok(What::Find(result)) => result,
            Ok(What::Read(_)) => FindResult::Failed(ReadError::Removed),
            Err(Some(token)) => FindResult::Pending(token),
            Err(None) => FindResult::Memory(Refused { account: Account::Cache, wanted: 0, left: 0 }),
        }
    }
}

impl Log {
    pub(crate) fn find(&self, find: &mut Find) -> Outcome {
        let done = |found: Option<(WallMs, Offset)>| {
            let found =
                found.map(|(timestamp, offset)| Found { offset, timestamp, epoch: self.epochs.epoch_of(offset) });
            Outcome::Done(What::Find(FindResult::Ready(found)))
        };
        let mut scratch = Vec::new();
        loop {
            let (base, position) = match find.state {
                State::Begin => match self.begin_find(find) {
                    Ok(Some(found)) => return done(found),
                    Ok(None) => {
                        find.follows = None;
                        continue;
                    }
                    Err(need) => return Outcome::Need(need),
                },
                State::Seek { base, position, .. } | State::Scan { base, position, .. } => (base, position),
            };
            let segment = self.segment_of(base).filter(|(of, ..)| *of == base);
            let Some((_, next, bytes)) = segment else {
                // It went below the log's start meanwhile.
                find.state = State::Begin;
                continue;
            };
            if position >= bytes {
                if self.chain(base).is_some_and(|chain| !chain.ends(find.follows)) {
                    let rot = ReadError::Rot { segment: base, position: Position(bytes) };
                    return Outcome::Done(What::Find(FindResult::Failed(rot)));
                }
                match self.over(find, next, bytes) {
                    true => continue,
                    false => return done(None),
                }
            }
            let Some(stretch) = self.in_memory(base, position) else {
                let need = Need::Bytes {
                    base,
                    from: position,
                    bytes: READ_BYTES,
                    whole: false,
                    build: false,
                    follows: find.follows,
                };
                return Outcome::Need(need);
            };
            if let Some(doubt) = self.misled(base, position, &stretch) {
                return Outcome::Doubt(doubt);
            }
            let batch = &stretch.data[(position - stretch.first) as usize..];
            let follows = find.follows.or((position == 0).then_some(base));
            let joins = |header: &BatchHeader| self.chain(base).is_some_and(|chain| chain.joins(follows, header));
            let seen = BatchHeader::parse(batch).map_err(|_| ()).and_then(|header| {
                if !joins(&header) {
                    return Err(());
                }
                let length = header.info.bytes;
                let batch = &batch[..(length as usize).min(batch.len())];
                let seen = self.seen(&find.state, find.query, &header, batch, &mut scratch)?;
                Ok((length, seen, header))
            });
            let Ok((length, seen, header)) = seen else {
                let rot = ReadError::Rot { segment: base, position: Position(position) };
                return Outcome::Done(What::Find(FindResult::Failed(rot)));
            };
            if let State::Seek { by, .. } = &mut find.state
                && let Some(entry) = *by
            {
                if !entry.bears(&header, seen.is_some()) {
                    return Outcome::Doubt(Doubt { base, entry: Entry::Time(entry.number) });
                }
                *by = by.filter(|entry| header.last() < entry.last);
            }
            find.follows = Some(header.next());
            match &mut find.state {
                State::Begin => {}
                State::Seek { position, .. } if seen.is_none() => *position += length,
                State::Seek { .. } => return done(seen),
                State::Scan { position, wanted, best, .. } => {
                    if let Some((at, _)) = seen {
                        if at >= *wanted {
                            return done(seen);
                        }
                        *best = seen;
                    }
                    *position += length;
                }
            }
        }
    }

    /// A segment's end; false when there is nothing behind it to be looked at.
    fn over(&self, find: &mut Find, next: Offset, bytes: u32) -> bool {
        match &mut find.state {
            State::Scan { position, whole, .. } if whole.is_some() => {
                *position = whole.take().unwrap_or(0);
                find.follows = None;
            }
            State::Scan { base, best, .. } => {
                find.known.push((*base, *best));
                find.state = State::Begin;
            }
            State::Seek { .. } if bytes == 0 || next >= self.end() => return false,
            state => *state = State::Seek { base: next, position: 0, by: None },
        }
        true
    }

    /// Where to begin, or what is found without a look; an error is what must be read first.
    #[allow(clippy::type_complexity)]
    fn begin_find(&self, find: &mut Find) -> Result<Option<Option<(WallMs, Offset)>>, Need> {
        let mut best: Option<(WallMs, Offset, bool)> = None;
        let sealed = self.sealed.values().map(|s| (s.base, s.next, s.max_timestamp, s.built_to.map(|(to, _)| to)));
        let open = self.open.iter().map(|s| {
            let max = s.index.max_timestamp().map_or(WallMs(-1), |(at, _)| at);
            (s.base, s.next, Some(max), None)
        });
        for (base, next, max, built_to) in sealed.chain(open) {
            if next <= self.start || next == base || find.only.is_some_and(|only| only != base) {
                continue;
            }
            let max = max.ok_or(Need::Index { base })?;
            match (find.query, built_to) {
                (TimeQuery::At(at), _) if max >= at => {
                    let index = self.index_of(base).ok_or(Need::Index { base })?;
                    let (Position(position), by) = index.position_at(at);
                    find.state = State::Seek { base, position, by };
                    return Ok(None);
                }
                (TimeQuery::At(_), _) => {}
                // Its greatest is not known before its index is made.
                (TimeQuery::Max, Some(from)) => {
                    return Err(Need::Bytes {
                        base,
                        from,
                        bytes: READ_BYTES,
                        whole: false,
                        build: true,
                        follows: None,
                    });
                }
                (TimeQuery::Max, None) => {
                    let known = find.known.iter().find(|(of, _)| *of == base).map(|(_, greatest)| *greatest);
                    let candidate = match known {
                        None => (max, base, false),
                        Some(Some((at, offset))) => (at, offset, true),
                        Some(None) => continue,
                    };
                    if best.is_none_or(|(so_far, ..)| candidate.0 > so_far) {
                        best = Some(candidate);
                    }
                }
            }
        }
        let (wanted, base) = match best {
            None => return Ok(Some(None)),
            Some((at, offset, true)) => return Ok(Some(Some((at, offset)))),
            Some((wanted, base, false)) => (wanted, base),
        };
        let index = self.index_of(base).ok_or(Need::Index { base })?;
        let from = index.position(self.start.max(base)).0;
        let last = index.max_timestamp().map(|(_, last)| last).filter(|last| *last >= self.start);
        let position = last.map_or(from, |last| index.position(last).0);
        let whole = (position > from).then_some(from);
        find.state = State::Scan { base, position, wanted, whole, best: None };
        Ok(None)
    }

    /// The record of a batch that a search wants: the first at or after a time; the first of the greatest, if greater than what was
    /// seen before.
    fn seen(
        &self,
        state: &State,
        query: TimeQuery,
        header: &BatchHeader,
        batch: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Result<Option<(WallMs, Offset)>, ()> {
        let least = match (state, query) {
            (_, TimeQuery::At(at)) => at.0,
            (State::Scan { best: Some((so_far, _)), .. }, _) => so_far.0.saturating_add(1),
            _ => i64::MIN,
        };
        if header.info.max_timestamp.0 < least || header.next() <= self.start || header.info.control {
            return Ok(None);
        }
        let mut greatest: Option<(WallMs, Offset)> = None;
        for record in records(batch, scratch, STORED_RECORDS_BYTES_MAX).map_err(|_| ())? {
            let record = record.map_err(|_| ())?;
            let offset = Offset(header.base.0 + i64::from(record.offset_delta));
            let timestamp = if header.info.log_append_time {
                header.info.max_timestamp
            } else {
                WallMs(header.info.base_timestamp.0.saturating_add(record.timestamp_delta))
            };
            if timestamp.0 < least || offset < self.start {
                continue;
            }
            if matches!(query, TimeQuery::At(_)) {
                return Ok(Some((timestamp, offset)));
            }
            if greatest.is_none_or(|(so_far, _)| timestamp > so_far) {
                greatest = Some((timestamp, offset));
            }
        }
        Ok(greatest)
    }
}

/// Bytes fetched at once for a search.
const READ_BYTES: u32 = 64 << 10;
