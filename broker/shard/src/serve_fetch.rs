//! Fetch, on the owner: what is there, and a watch for more.

use ringmain_log::{ReadAt, ReadError, ReadResult, ReadToken, Slices};
use ringmain_types::*;

use crate::mesh::{CallId, FetchPart, FetchResult, Return};
use crate::serve::{FetchServe, Serving};
use crate::shard::Timer;
use crate::slab::Key;
use crate::{Effects, Shard};

/// When a long poll that found no memory is asked to try again.
const RETRY_MS: u64 = 10;

impl Shard {
    /// `bytes_max` is for all parts together, the first batch apart (0 is for none at all); with `wait`, less than that many bytes means to wait.
    pub(crate) fn serve_fetch(
        &mut self,
        now: Now,
        (id, deadline): (CallId, Instant),
        parts: Vec<FetchPart>,
        (bytes_max, wait): (u32, Option<u32>),
        out: &mut Effects,
    ) {
        let mut fetch = FetchServe {
            results: Vec::with_capacity(parts.len()),
            parts,
            tokens: Vec::new(),
            waiting: 0,
            min_bytes: wait.unwrap_or(0),
            wait: wait.is_some(),
            starved: false,
        };
        let mut pending = Vec::new();
        let mut left = bytes_max;
        for at in 0..fetch.parts.len() {
            let (mut result, read) = self.read_part(now, &fetch.parts[at], left, left == bytes_max && bytes_max > 0);
            match read {
                Read::Had => left = left.saturating_sub(result.slices.bytes),
                Read::Pending(token) => {
                    left = left.saturating_sub(fetch.parts[at].bytes_max.max(1));
                    pending.push((token, at as u32));
                }
                Read::Starved => {
                    fetch.starved = true;
                    result.slices = Slices::default();
                }
            }
            fetch.results.push(result);
        }
        if pending.is_empty() {
            return self.conclude_fetch(now, id, fetch, out);
        }
        fetch.waiting = pending.len() as u32;
        fetch.tokens = pending.iter().map(|(token, _)| *token).collect();
        let key = self.add_serve(id, deadline, Serving::Fetch(fetch));
        for (token, at) in pending {
            self.reads.insert(token, (key, at));
        }
    }

    fn read_part(&mut self, now: Now, part: &FetchPart, left: u32, first: bool) -> (FetchResult, Read) {
        let failed = |error| (FetchResult::failed(error), Read::Had);
        let (log, epoch, visible) = match self.logs.get(part.partition) {
            Ok(log) => (log.id, log.epoch, log.visible),
            Err(error) => return failed(error),
        };
        if let Err(error) = check_epoch(epoch, part.epoch) {
            return failed(error);
        }
        let (start, end) = (self.store.start(log), self.store.end(log));
        let mut result = FetchResult {
            error: ErrorCode::None,
            high_watermark: visible,
            last_stable: visible,
            start,
            diverging: None,
            slices: Slices::default(),
        };
        if let Some(last) = part.last_epoch {
            match self.store.epoch_end(log, last) {
                (LeaderEpoch(..0), _) | (_, Offset(..0)) => return failed(ErrorCode::OffsetOutOfRange),
                (found, at) if found < last || at < part.from => {
                    result.diverging = Some((found, at));
                    return (result, Read::Had);
                }
                _ => {}
            }
        }
        if part.from < start || part.from > end {
            return failed(ErrorCode::OffsetOutOfRange);
        }
        if part.from >= visible || (left == 0 && !first) {
            return (result, Read::Had);
        }
        let bytes_max = part.bytes_max.min(left);
        let at = ReadAt { log, from: part.from, below: visible, bytes_max, at_least_one: first };
        match self.store.read(now, &mut self.pool, at) {
            ReadResult::Pending(token) => (result, Read::Pending(token)),
            ReadResult::Memory(_) => (result, Read::Starved),
            ReadResult::Ready(slices) => {
                result.slices = slices;
                (result, Read::Had)
            }
            ReadResult::OutOfRange { .. } => failed(ErrorCode::OffsetOutOfRange),
            ReadResult::Failed(error) => failed(read_error(&error)),
        }
    }

    /// A cold read has ended.
    pub(crate) fn read_done(&mut self, now: Now, token: ReadToken, result: ReadResult, out: &mut Effects) {
        let Some((key, at)) = self.reads.remove(&token) else { return };
        let Some(serve) = self.serves.get_mut(key) else { return };
        let Serving::Fetch(fetch) = &mut serve.work else { return };
        let place = &mut fetch.results[at as usize];
        match result {
            ReadResult::Ready(slices) => place.slices = slices,
            // The store has read what it asked itself for; another round is the caller's to ask for.
            ReadResult::Pending(_) | ReadResult::Memory(_) => fetch.starved = true,
            ReadResult::OutOfRange { .. } => *place = FetchResult::failed(ErrorCode::OffsetOutOfRange),
            ReadResult::Failed(error) => *place = FetchResult::failed(read_error(&error)),
        }
        fetch.waiting -= 1;
        if fetch.waiting == 0 {
            self.finish_fetch(now, key, out);
        }
    }

    fn finish_fetch(&mut self, now: Now, key: Key, out: &mut Effects) {
        let Some(serve) = self.take_serve(key) else { return };
        if let Serving::Fetch(fetch) = serve.work {
            self.conclude_fetch(now, serve.id, fetch, out);
        }
    }

    /// Everything is read: an answer, or a watch.
    fn conclude_fetch(&mut self, now: Now, id: CallId, fetch: FetchServe, out: &mut Effects) {
        let FetchServe { parts, results, min_bytes, wait, starved, .. } = fetch;
        let bytes: u64 = results.iter().map(|result| u64::from(result.slices.bytes)).sum();
        let news = results.iter().any(|result| result.error != ErrorCode::None || result.diverging.is_some());
        if !wait || news || bytes >= u64::from(min_bytes) || self.stopping.is_some() {
            return self.answer(id, Return::Fetch(results), out);
        }
        let mut logs = Vec::with_capacity(parts.len());
        for (part, result) in parts.iter().zip(&results) {
            match self.logs.get(part.partition) {
                // Nothing moved while cold reads were under way: the watch will see all that comes.
                Ok(log) if log.visible == result.high_watermark => logs.push(log.id),
                _ => return self.answer(id, Return::Fetch(results), out),
            }
        }
        self.watches.watch(id, logs, bytes, u64::from(min_bytes));
        if starved {
            self.timers.set(now.mono.plus_ms(RETRY_MS), Timer::Retry(id));
        }
        self.answer(id, Return::Waiting(results), out);
    }
}

enum Read {
    Had,
    Pending(ReadToken),
    Starved,
}

/// KIP-320: an older epoch than ours is fenced, a newer one is not known here yet.
pub(crate) fn check_epoch(ours: LeaderEpoch, theirs: Option<LeaderEpoch>) -> Result<(), ErrorCode> {
    match theirs {
        Some(theirs) if theirs < ours => Err(ErrorCode::FencedLeaderEpoch),
        Some(theirs) if theirs > ours => Err(ErrorCode::UnknownLeaderEpoch),
        _ => Ok(()),
    }
}

pub(crate) fn read_error(error: &ReadError) -> ErrorCode {
    match error {
        ReadError::Disk(_) => ErrorCode::KafkaStorageError,
        // Consumers try again on a storage error, for ever and without a word. This one they tell.
        ReadError::Rot { .. } => ErrorCode::CorruptMessage,
        // Nothing is wrong with the batch; it is the broker that has too little memory, and its log says so.
        ReadError::TooLarge { .. } => ErrorCode::UnknownServerError,
        ReadError::Removed => ErrorCode::UnknownTopicOrPartition,
    }
}
