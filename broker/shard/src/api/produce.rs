//! Produce: checked where the connection is, appended by the owners, answered when it is durable.

use ringmain_batch::{BatchError, CheckedBatches, check, recode};
use ringmain_buffer::{Buf, Bufs};
use ringmain_log::{AppendAs, AppendError, FlushMode};
use ringmain_metadata::TopicConfig;
use ringmain_session::{Close, Request};
use ringmain_types::*;
use ringmain_wire::produce::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse,
};
use ringmain_wire::{PRODUCE, WireError, encode_reply};

use crate::api::first_error;
use crate::asked::{Asked, Dealt, TopicKey};
use crate::dispatch::{REQUEST_MS, body};
use crate::jobs::{Produced, ReplyTo, Work};
use crate::logs::{check_rules, topic_codec};
use crate::mesh::{Call, CallId, Parts, ProducePart, ProduceResult};
use crate::serve::{AckDue, ProduceServe, Serving};
use crate::slab::Key;
use crate::{Effects, Note, Shard};

/// From here on a request carries topic ids.
const BY_ID: i16 = 13;
/// From here on a batch may be transactional, and is of format 2 (KAFKA-18659).
const SERVED: i16 = 3;
/// A flush takes milliseconds: a shorter timeout would refuse what is about to be durable.
const TIMEOUT_MS_MIN: u64 = 1_000;

impl Shard {
    pub(crate) fn ask_produce(&mut self, now: Now, request: &Request, out: &mut Effects) -> Result<(), WireError> {
        let produce: ProduceRequest<'_> = body(&PRODUCE, request)?;
        let mut asked = Asked::new();
        let mut dealt = Dealt::new(self.config.shards);
        for topic in &produce.topic_data {
            let key = match request.version {
                BY_ID.. => TopicKey::by_id(&self.image, topic.topic_id),
                _ => TopicKey::by_name(&self.image, topic.name),
            };
            asked.topic(key.clone());
            for part in &topic.partition_data {
                // What an owner does not answer in time is this.
                let place = asked.part(part.index, Produced::failed(ErrorCode::RequestTimedOut, None));
                let refused = refused_whole(request.version, produce.acks);
                let checked = match refused {
                    Some(error) => Err(Produced::failed(error, None)),
                    None => {
                        let records = request.frame.slice_of(part.records.wire().unwrap_or_default());
                        self.checked(now, &key, part.index, records, produce.transactional_id.is_some())
                    }
                };
                match checked {
                    Ok(part) => dealt.push(part.partition, place, part),
                    Err(failed) => asked.set(place, failed),
                }
            }
        }
        let timeout_ms = u64::try_from(produce.timeout_ms).unwrap_or(0);
        let timeout_ms = if produce.acks == -1 { timeout_ms.max(TIMEOUT_MS_MIN) } else { timeout_ms.max(REQUEST_MS) };
        let (acks, deadline) = (produce.acks, now.mono.plus_ms(timeout_ms));
        let work = |asked| Work::Produce { acks, asked };
        let call = |parts| Call::Produce { acks, parts };
        self.ask_owners(now, (ReplyTo::new(now, request), deadline), asked, dealt, (work, call), out);
        Ok(())
    }

    /// One partition's batch, by the rules of its topic.
    fn checked(
        &mut self,
        now: Now,
        key: &TopicKey,
        index: PartitionIndex,
        records: Buf,
        transactional: bool,
    ) -> Result<ProducePart, Produced> {
        let failed = |error, text: &str| Produced::failed(error, Some(text.to_owned()));
        let partition = key.partition(index).map_err(|error| Produced::failed(error, None))?;
        if let TopicKey::Known(topic) = key
            && topic.internal
        {
            return Err(failed(ErrorCode::InvalidTopicException, "an internal topic takes no records of clients"));
        }
        let Some(config) = self.logs.config(partition.topic).cloned() else {
            return Err(Produced::failed(ErrorCode::UnknownTopicOrPartition, None));
        };
        let batches =
            check(records, &check_rules(&config, &self.config.limits, now)).map_err(|error| spoiled(&error))?;
        if batches.infos.iter().any(|info| info.control) {
            return Err(failed(ErrorCode::InvalidRecord, "control batches are written by brokers alone"));
        }
        if transactional || batches.infos.iter().any(|info| info.transactional) {
            return Err(failed(ErrorCode::InvalidTxnState, "transactions are not served by this version"));
        }
        let batches = self.recoded(batches, &config)?;
        Ok(ProducePart { partition, batches })
    }

    /// In the codec that the topic asks for.
    fn recoded(&mut self, batches: CheckedBatches, config: &TopicConfig) -> Result<CheckedBatches, Produced> {
        let Some(codec) = topic_codec(config) else { return Ok(batches) };
        if batches.infos.iter().all(|info| info.codec == codec) {
            return Ok(batches);
        }
        let limits = &self.config.limits;
        // As much as the check lets pass, whatever frames are bound to.
        let bytes_max = limits.frame_bytes_max.max(limits.batch_decompressed_bytes_max) as usize;
        let encoded = recode(&batches, codec, config.compression_level, &mut self.scratch, bytes_max)
            .map_err(|error| spoiled(&error))?;
        self.scratch = Vec::new();
        if encoded.bytes() > config.max_message_bytes as usize {
            let error = BatchError::TooLarge { bytes: encoded.bytes() as u32, max: config.max_message_bytes };
            return Err(spoiled(&error));
        }
        // Retried by producers.
        let into = self
            .pool
            .take(Account::Receive, encoded.bytes())
            .map_err(|_| Produced::failed(ErrorCode::RequestTimedOut, Some("out of memory for now".to_owned())))?;
        Ok(encoded.finish(into))
    }

    /// Appends; answers at once what need not, or can't, wait for a flush.
    pub(crate) fn serve_produce(
        &mut self,
        now: Now,
        (id, deadline): (CallId, Instant),
        acks: i16,
        parts: Parts<ProducePart>,
        out: &mut Effects,
    ) {
        let mut produce = ProduceServe { acks, results: Parts::new(), acks_due: Parts::new(), waiting: 0 };
        let mut waits: Parts<(LogId, Offset, u32)> = Parts::new();
        for (at, part) in parts.iter().enumerate() {
            match self.append(now, part, out) {
                Err((error, message)) => {
                    produce.results.push(Produced::failed(error, message).result);
                    produce.acks_due.push(None);
                }
                Ok((log, due, durable)) => {
                    let mut result = due.result();
                    if !durable && acks != 0 {
                        result = Produced::failed(ErrorCode::RequestTimedOut, None).result;
                        waits.push((log, due.next, at as u32));
                    }
                    produce.results.push(result);
                    produce.acks_due.push((acks != 0).then_some(due));
                }
            }
        }
        produce.waiting = waits.len() as u32;
        let key = self.add_serve(id, deadline, Serving::Produce(produce));
        if waits.is_empty() {
            return self.finish_serve(key, out);
        }
        for (log, next, at) in waits {
            self.flush_waits.wait(log, next, (key, at));
        }
    }

    /// The log, what its flush acknowledges, and whether that may be said already.
    fn append(
        &mut self,
        now: Now,
        part: &ProducePart,
        out: &mut Effects,
    ) -> Result<(LogId, AckDue, bool), (ErrorCode, Option<String>)> {
        let owned = self.logs.get(part.partition).map_err(|error| (error, None))?;
        let (log, epoch, flush) = (owned.id, owned.epoch, owned.flush);
        let appended = self
            .store
            .append(now, &mut self.pool, log, &part.batches, AppendAs::Leader { epoch })
            .map_err(|error| append_error(&error))?;
        let due = AckDue {
            partition: part.partition,
            base: appended.base,
            next: appended.next,
            log_append_time: appended.log_append_time,
            start: self.store.start(log),
        };
        if !appended.duplicate
            && let Ok(owned) = self.logs.get(part.partition)
        {
            let in_bytes = part.batches.bytes.len() as u32;
            owned.appended(appended.next, in_bytes);
            out.notes.push(Note::Traffic { partition: part.partition, in_bytes, out_bytes: 0 });
        }
        if flush == FlushMode::Async {
            self.show(log, self.store.end(log), out);
        }
        let durable = flush == FlushMode::Async || self.store.flushed(log) >= appended.next;
        Ok((log, due, durable))
    }

    /// These parts of produce calls are flushed, or never will be.
    pub(crate) fn produced(&mut self, parts: &[(Key, u32)], error: ErrorCode, out: &mut Effects) {
        for &(key, at) in parts {
            let Some(serve) = self.serves.get_mut(key) else { continue };
            let Serving::Produce(produce) = &mut serve.work else { continue };
            let Some(Some(due)) = produce.acks_due.get(at as usize) else { continue };
            produce.results[at as usize] = match error {
                ErrorCode::None => due.result(),
                error => Produced::failed(error, None).result,
            };
            produce.waiting -= 1;
            if produce.waiting == 0 {
                self.finish_serve(key, out);
            }
        }
    }

    /// acks=0: no reply; a producer learns of an error by its connection's end, as on Kafka.
    pub(crate) fn finish_unanswered(
        &mut self,
        now: Now,
        to: &ReplyTo,
        asked: &Asked<Produced>,
        remote: bool,
        out: &mut Effects,
    ) {
        let bad = asked.parts.iter().find(|(_, produced)| produced.result.error != ErrorCode::None);
        let Some((index, produced)) = bad else { return self.skip(now, to, remote, out) };
        let error = produced.result.error;
        let why = format!("Produce with acks=0 failed: partition {} has error {}", index.0, error.code());
        self.close(to.connection, Close::Protocol(why), out);
    }
}

fn refused_whole(version: i16, acks: i16) -> Option<ErrorCode> {
    if version < SERVED {
        return Some(ErrorCode::UnsupportedVersion);
    }
    (!(-1..=1).contains(&acks)).then_some(ErrorCode::InvalidRequiredAcks)
}

fn spoiled(error: &BatchError) -> Produced {
    let records = match error {
        BatchError::NullKey { records } | BatchError::Timestamp { records, .. } => records.clone(),
        _ => Vec::new(),
    };
    Produced { records, ..Produced::failed(error.code(), Some(error.to_string())) }
}

/// The one place where the log's refusals become Kafka's.
pub(crate) fn append_error(error: &AppendError) -> (ErrorCode, Option<String>) {
    match error {
        AppendError::Fenced => (ErrorCode::KafkaStorageError, None),
        AppendError::Removed => (ErrorCode::UnknownTopicOrPartition, None),
        AppendError::Sequence(code) => (*code, None),
        // Retried; nothing was written.
        AppendError::Memory(_) => (ErrorCode::RequestTimedOut, Some("out of memory for now".to_owned())),
        AppendError::NoSpace => (ErrorCode::KafkaStorageError, Some("no space left on the device".to_owned())),
        AppendError::TooLarge { bytes, max } => {
            let text = format!("a batch of {bytes} bytes is larger than a segment can be ({max} bytes)");
            (ErrorCode::RecordListTooLarge, Some(text))
        }
        AppendError::OutOfOrder { .. } => (ErrorCode::UnknownServerError, None),
    }
}

pub(crate) fn encode(to: &ReplyTo, asked: &Asked<Produced>) -> (Bufs, ErrorCode) {
    let error = first_error(asked.parts.iter().map(|(_, produced)| produced.result.error));
    let parts: Parts<_> = asked.parts.iter().map(|(index, produced)| encode_part(*index, produced)).collect();
    let responses = asked.by_topic(&parts).map(|(key, parts)| TopicProduceResponse {
        name: key.name(),
        topic_id: key.id(),
        partition_responses: parts.into(),
    });
    let responses: Parts<_> = responses.collect();
    let reply = ProduceResponse { responses: responses[..].into(), ..ProduceResponse::default() };
    (encode_reply(&PRODUCE, to.version, to.correlation, &reply), error)
}

fn encode_part(index: PartitionIndex, produced: &Produced) -> PartitionProduceResponse<'_> {
    let ProduceResult { error, message, base, log_append_time, start } = &produced.result;
    let named = |record: &u32| BatchIndexAndErrorMessage {
        batch_index: *record as i32,
        // The partition's message says it; a copy a record could be more than the batch.
        batch_index_error_message: None,
    };
    PartitionProduceResponse {
        index,
        error_code: *error,
        base_offset: *base,
        log_append_time_ms: log_append_time.unwrap_or(WallMs(-1)),
        log_start_offset: *start,
        record_errors: produced.records.iter().map(named).collect(),
        error_message: message.as_deref(),
        ..PartitionProduceResponse::default()
    }
}
