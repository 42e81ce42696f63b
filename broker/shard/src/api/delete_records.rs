//! DeleteRecords (KIP-107): answered when the new log start is durable.

use ringmain_buffer::Bufs;
use ringmain_session::Request;
use ringmain_types::*;
use ringmain_wire::delete_records::{
    DeleteRecordsPartitionResult, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopicResult,
};
use ringmain_wire::{DELETE_RECORDS, WireError, encode_reply};

use crate::api::produce::append_error;
use crate::asked::{Asked, Dealt, TopicKey};
use crate::dispatch::body;
use crate::jobs::{ReplyTo, Work};
use crate::mesh::{Call, CallId, Parts, Return};
use crate::serve::{DeleteServe, Serving};
use crate::slab::Key;
use crate::{Effects, Shard};

pub(crate) type Answer = Result<Offset, ErrorCode>;
/// As for Produce: what is about to be durable is not refused.
const TIMEOUT_MS_MIN: u64 = 1_000;
const HIGH_WATERMARK: Offset = Offset(-1);

/// How the start of one log moves.
enum Moved {
    /// Nothing to do: the start is there, or behind it.
    Already(Offset),
    Pending(LogId, Offset),
}

impl Shard {
    pub(crate) fn ask_delete_records(
        &mut self,
        now: Now,
        request: &Request,
        out: &mut Effects,
    ) -> Result<(), WireError> {
        let delete: DeleteRecordsRequest<'_> = body(&DELETE_RECORDS, request)?;
        let mut asked = Asked::new();
        let mut dealt = Dealt::new(self.config.shards);
        for topic in &delete.topics {
            let key = TopicKey::by_name(&self.image, topic.name);
            asked.topic(key.clone());
            let internal = matches!(&key, TopicKey::Known(topic) if topic.internal);
            for part in &topic.partitions {
                let place = asked.part(part.partition_index, Err(ErrorCode::RequestTimedOut));
                match key.partition(part.partition_index) {
                    Err(error) => asked.set(place, Err(error)),
                    Ok(_) if internal => asked.set(place, Err(ErrorCode::InvalidTopicException)),
                    Ok(partition) => dealt.push(partition, place, (partition, part.offset)),
                }
            }
        }
        let timeout_ms = u64::try_from(delete.timeout_ms).unwrap_or(0).max(TIMEOUT_MS_MIN);
        let to = ReplyTo::new(now, request);
        let make = (Work::DeleteRecords, |parts| Call::DeleteRecords { parts });
        self.ask_owners(now, (to, now.mono.plus_ms(timeout_ms)), asked, dealt, make, out);
        Ok(())
    }

    pub(crate) fn serve_delete_records(
        &mut self,
        now: Now,
        (id, deadline): (CallId, Instant),
        parts: Parts<(Partition, Offset)>,
        out: &mut Effects,
    ) {
        let mut results = Vec::with_capacity(parts.len());
        let mut waits = Vec::new();
        for (at, (partition, to)) in parts.into_iter().enumerate() {
            results.push(match self.move_start(now, partition, to) {
                Ok(Moved::Already(start)) => Ok(start),
                Ok(Moved::Pending(log, to)) => {
                    waits.push((log, to, at as u32));
                    Err(ErrorCode::RequestTimedOut)
                }
                Err(error) => Err(error),
            });
        }
        if waits.is_empty() {
            return self.answer(id, Return::DeleteRecords(results), out);
        }
        let waiting = waits.len() as u32;
        let key = self.add_serve(id, deadline, Serving::DeleteRecords(DeleteServe { results, waiting }));
        for (log, to, at) in waits {
            self.start_waits.wait(log, to, (key, at));
        }
    }

    fn move_start(&mut self, now: Now, partition: Partition, to: Offset) -> Result<Moved, ErrorCode> {
        let log = self.logs.get(partition)?;
        let (id, visible) = (log.id, log.visible);
        if !log.delete {
            return Err(ErrorCode::PolicyViolation);
        }
        let to = if to == HIGH_WATERMARK { visible } else { to };
        if to.0 < 0 || to > visible {
            return Err(ErrorCode::OffsetOutOfRange);
        }
        let start = self.store.start(id);
        if to <= start && self.store.durable_start(id) == start {
            return Ok(Moved::Already(start));
        }
        // Where it is about to start, by retention or another request, may be further on; it may also never be durable.
        let to = to.max(start);
        self.store.advance_start(now, id, to).map_err(|error| append_error(&error).0)?;
        Ok(Moved::Pending(id, to))
    }

    /// The new starts of one log are durable, or never will be.
    pub(crate) fn records_deleted(&mut self, log: LogId, done: &[(Key, u32)], error: ErrorCode, out: &mut Effects) {
        for &(key, at) in done {
            let answer = match error {
                ErrorCode::None => Ok(self.store.start(log)),
                error => Err(error),
            };
            self.record_deleted(key, at, answer, out);
        }
    }

    pub(crate) fn record_deleted(&mut self, key: Key, at: u32, answer: Answer, out: &mut Effects) {
        let Some(Serving::DeleteRecords(delete)) = self.serves.get_mut(key).map(|serve| &mut serve.work) else {
            return;
        };
        delete.results[at as usize] = answer;
        delete.waiting -= 1;
        if delete.waiting == 0 {
            self.finish_serve(key, out);
        }
    }
}

pub(crate) fn encode(to: &ReplyTo, asked: &Asked<Answer>) -> (Bufs, ErrorCode) {
    let topics = asked.iter().map(|(key, parts)| DeleteRecordsTopicResult {
        name: key.name(),
        partitions: parts
            .iter()
            .map(|(index, answer)| DeleteRecordsPartitionResult {
                partition_index: *index,
                low_watermark: answer.unwrap_or(Offset(-1)),
                error_code: answer.err().unwrap_or_default(),
            })
            .collect(),
    });
    let reply = DeleteRecordsResponse { topics: topics.collect(), ..DeleteRecordsResponse::default() };
    let error = asked.parts.iter().find_map(|(_, answer)| answer.err()).unwrap_or_default();
    (encode_reply(&DELETE_RECORDS, to.version, to.correlation, &reply), error)
}
