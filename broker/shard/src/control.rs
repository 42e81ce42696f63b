//! The metadata log of a cluster of one, on shard 0: replay, decide, append, publish.
//!
//! ```text
//! Opening -> Loading -> Starting (this life's records) -> Serving
//!                 \________________\________________\____ Failed: the log can't be read or written
//! ```
//! A decision's records are replayed as soon as they are appended, so that the next decision sees them; its answer waits until they
//! are flushed and every shard serves the image that has them. An answer without records waits for whatever it may have seen.

use std::collections::VecDeque;
use std::sync::Arc;

use ringmain_batch::{BatchHeader, Builder, Codec};
use ringmain_buffer::Buf;
use ringmain_disk::DiskError;
use ringmain_log::{AppendAs, LogConfig, ReadAt, ReadError, ReadResult, ReadToken, Slices};
use ringmain_metadata::{ClusterImage, Controller, ControllerConfig, Record};
use ringmain_types::*;

use crate::api::control::{Reply, auto_create, decide};
use crate::mesh::{Call, CallId, Mesh, Return};
use crate::{Effects, Note, Shard};

/// The leader epoch of the one voter.
const EPOCH: LeaderEpoch = LeaderEpoch(0);
const LOG_NAME: &str = "__cluster_metadata-0";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Opening,
    /// Replayed up to here; with a read under way, or to be asked again.
    Loading {
        next: Offset,
        read: Option<ReadToken>,
    },
    Starting,
    Serving,
    Failed(ErrorCode),
}

struct Pending {
    call: CallId,
    /// The answer goes out when every shard serves this.
    next: Offset,
    answer: Return,
}

/// An answer's way out: who may be told what. Separate from the log, so that it can be tested alone.
struct Outbox {
    /// What each shard serves.
    applied: Vec<Offset>,
    pending: VecDeque<Pending>,
}

pub(crate) struct Control {
    log: LogId,
    phase: Phase,
    controller: Controller,
    /// Images whose records are not flushed yet, oldest first.
    images: VecDeque<Arc<ClusterImage>>,
    /// Replayed since the last image was taken.
    changed: bool,
    published: Offset,
    outbox: Outbox,
    again: Again,
}

/// When the state is said again, so that what was before it may go.
struct Again {
    /// Of the log from its start on.
    bytes: u64,
    /// It is said again beyond so many.
    above: u64,
    /// Where it was said last, and where that ends: the log starts there when all of it is flushed.
    said: Option<(Offset, Offset)>,
}

impl Control {
    pub(crate) fn is_log(&self, log: LogId) -> bool {
        self.log == log
    }

    /// Nobody waits for an answer.
    pub(crate) fn quiet(&self) -> bool {
        self.outbox.pending.is_empty()
    }

    fn end(&self) -> Offset {
        self.controller.image().next
    }
}

impl Outbox {
    fn served(&self) -> Offset {
        self.applied.iter().copied().min().unwrap_or(Offset(0))
    }

    /// Answers that may go. They were put in by rising `next`.
    fn release(&mut self) -> Vec<(CallId, Return)> {
        let served = self.served();
        let mut out = Vec::new();
        while self.pending.front().is_some_and(|first| first.next <= served) {
            out.extend(self.pending.pop_front().map(|pending| (pending.call, pending.answer)));
        }
        out
    }
}

impl Shard {
    /// The journal is replayed: the metadata log comes first.
    pub(crate) fn control_open(&mut self, now: Now) {
        let config = LogConfig {
            // Deleting a topic is what makes room on a full disk: thousands of changes fit.
            reserve_bytes: self.config.limits.segment_allocate_bytes / 4,
            ..LogConfig::keeping_all(self.config.limits.metadata_segment_bytes)
        };
        let log = self.store.create(now, Partition::METADATA, LOG_NAME, config);
        self.control = Some(Control {
            log,
            phase: Phase::Opening,
            controller: Controller::new(ControllerConfig {
                broker: self.config.broker,
                seed: self.config.seed,
                limits: self.config.limits.clone(),
                properties: self.broker_config.clone(),
            }),
            images: VecDeque::new(),
            changed: false,
            published: Offset(0),
            outbox: Outbox { applied: vec![Offset(0); usize::from(self.config.shards)], pending: VecDeque::new() },
            again: Again { bytes: 0, above: self.config.limits.metadata_again_bytes, said: None },
        });
        if !self.store.recovering(log) {
            self.control_recovered(now);
        }
    }

    /// The metadata log is usable: it is read from its start.
    pub(crate) fn control_recovered(&mut self, now: Now) {
        let Some(control) = &mut self.control else { return };
        if control.phase == Phase::Opening {
            let next = self.store.start(control.log);
            control.controller.begin(next);
            control.phase = Phase::Loading { next, read: None };
            self.control_load(now);
        }
    }

    /// Replays until the end, or until a read has to be waited for. Called again each turn while memory is short.
    pub(crate) fn control_load(&mut self, now: Now) {
        loop {
            let Some(control) = &mut self.control else { return };
            let Phase::Loading { next, read: None } = control.phase else { return };
            let end = self.store.end(control.log);
            if next >= end {
                return self.control_start(now);
            }
            let bytes_max = self.config.limits.fetch_reply_bytes_max;
            let at = ReadAt { log: control.log, from: next, below: end, bytes_max, at_least_one: true };
            match self.store.read(now, &mut self.pool, at) {
                ReadResult::Pending(token) => {
                    control.phase = Phase::Loading { next, read: Some(token) };
                    return;
                }
                ReadResult::Memory(_) => return,
                result => self.control_loaded(result),
            }
        }
    }

    /// A read of the metadata log has ended.
    pub(crate) fn control_read(&mut self, now: Now, token: ReadToken, result: ReadResult) {
        let Some(control) = &mut self.control else { return };
        let Phase::Loading { next, read } = control.phase else { return };
        if read != Some(token) {
            return;
        }
        control.phase = Phase::Loading { next, read: None };
        if !matches!(result, ReadResult::Memory(_)) {
            self.control_loaded(result);
            self.control_load(now);
        }
    }

    fn control_loaded(&mut self, result: ReadResult) {
        let Some(control) = &mut self.control else { return };
        let Phase::Loading { next, .. } = control.phase else { return };
        let outcome = match result {
            ReadResult::Ready(slices) if slices.next > next => {
                control.again.bytes += u64::from(slices.bytes);
                replay(&mut control.controller, &slices).map(|()| slices.next)
            }
            ReadResult::Ready(_) => Err("an empty read below the log's end".to_owned()),
            ReadResult::OutOfRange { start, end } => Err(format!("the log is {}..{}", start.0, end.0)),
            ReadResult::Failed(ReadError::Rot { segment, position }) => {
                Err(format!("damaged bytes in segment {} at {}", segment.0, position.0))
            }
            ReadResult::Failed(ReadError::Disk(error)) => Err(error.to_string()),
            ReadResult::Failed(ReadError::TooLarge { bytes, max, .. }) => {
                Err(format!("a batch of {bytes} bytes is larger than the {max} there are for reads"))
            }
            ReadResult::Failed(ReadError::Removed) => Err("the log was removed".to_owned()),
            ReadResult::Pending(_) | ReadResult::Memory(_) => return,
        };
        match outcome {
            Ok(next) => control.phase = Phase::Loading { next, read: None },
            Err(cause) => {
                control.phase = Phase::Failed(ErrorCode::KafkaStorageError);
                let path = format!("{LOG_NAME} at offset {}: {cause}", next.0);
                let error = DiskError { operation: "replay", path, errno: DiskError::EIO };
                self.failed = Some(error);
            }
        }
    }

    /// Everything is replayed: this life is registered.
    fn control_start(&mut self, now: Now) {
        let Some(control) = &mut self.control else { return };
        let loaded = std::mem::replace(&mut control.phase, Phase::Starting);
        let (host, port) = &self.config.advertised;
        let records = control.controller.start(&self.config.cluster_id, host, *port);
        let Err(code) = self.control_append(now, &records) else { return };
        // A stop that came first: nothing failed. No room in memory or journal: once more, next turn.
        let waits = self.closing() || matches!(code, ErrorCode::RequestTimedOut | ErrorCode::NotController);
        if !waits {
            let error = DiskError { operation: "append", path: LOG_NAME.to_owned(), errno: DiskError::EIO };
            self.failed = Some(error);
        }
        if let Some(control) = &mut self.control {
            control.phase = if waits { loaded } else { Phase::Failed(code) };
        }
    }

    /// One batch of `records`, replayed at once.
    fn control_append(&mut self, now: Now, records: &[Record]) -> Result<(), ErrorCode> {
        let Some(control) = &mut self.control else { return Err(ErrorCode::NotController) };
        if records.is_empty() {
            control.changed = true;
            return Ok(());
        }
        let mut builder = Builder::new(Codec::None, None);
        for record in records {
            builder.push(now.wall, None, Some(&record.encode()), &[]);
        }
        let bytes = builder.bytes() as u64;
        // Retried by clients, as a change of controller would be.
        let into = self.pool.take(Account::Control, builder.bytes()).map_err(|_| ErrorCode::NotController)?;
        let batches = builder.finish(into);
        let appended = self
            .store
            .append(now, &mut self.pool, control.log, &batches, AppendAs::Leader { epoch: EPOCH })
            .map_err(|error| crate::api::produce::append_error(&error).0)?;
        for (at, record) in records.iter().enumerate() {
            let offset = Offset(appended.base.0 + at as i64);
            if let Err(error) = control.controller.replay(offset, record) {
                // The decision was made against this very state.
                unreachable!("a decided record does not replay: {error}");
            }
        }
        control.changed = true;
        control.again.bytes += bytes;
        Ok(())
    }

    /// Says the whole state again when the log has become long: a start reads from there on, and what was before goes. All in one turn, so
    /// that no change comes in between; cut off in its middle it has said what was known anyway.
    fn control_say_again(&mut self, now: Now) {
        let limits = &self.config.limits;
        let (least, times) = (limits.metadata_again_bytes, u64::from(limits.metadata_again_times));
        let batch_bytes = limits.gather_bytes_max as usize;
        let Some(control) = &mut self.control else { return };
        let again = &mut control.again;
        let due = control.phase == Phase::Serving && again.said.is_none() && self.stopping.is_none();
        if !due || again.bytes <= again.above {
            return;
        }
        let image = control.controller.image();
        let state: u64 = image.said_again().map(|record| record.encode().len() as u64).sum();
        if again.bytes < state * times {
            again.above = state * times;
            return;
        }
        // What finds no room is not tried in each turn; what is left of a full disk is for changes that make room.
        let before = again.bytes;
        again.above = before * 2;
        if state * 2 > self.pool.left(Account::Tail) as u64 || self.store.without_space(control.log) {
            return;
        }
        let (mut records, mut bytes) = (Vec::new(), 0);
        for record in image.said_again() {
            let more = record.encode().len();
            if bytes + more > batch_bytes && !records.is_empty() {
                if self.control_append(now, &records).is_err() {
                    return;
                }
                records.clear();
                bytes = 0;
            }
            records.push(record);
            bytes += more;
        }
        if self.control_append(now, &records).is_err() {
            return;
        }
        if let Some(Control { again, controller, .. }) = &mut self.control {
            again.bytes -= before;
            again.above = least.max(state * times);
            again.said = Some((image.next, controller.image().next));
        }
    }

    /// What was said again is durable: nobody needs what was before.
    fn control_said_again(&mut self, now: Now, flushed: Offset, out: &mut Effects) {
        let Some(control) = &mut self.control else { return };
        let Some((start, _)) = control.again.said.take_if(|(_, end)| *end <= flushed) else { return };
        // A directory that was fenced meanwhile keeps all of it, and so does a crash from here on until the new start is durable.
        if self.store.advance_start(now, control.log, start).is_ok() {
            out.notes.push(Note::SaidAgain { start });
        }
    }

    /// Controller requests, on shard 0.
    pub(crate) fn control_request(&mut self, now: Now, id: CallId, call: Call, out: &mut Effects) {
        let phase = self.control.as_ref().map(|control| control.phase);
        match phase {
            Some(Phase::Serving) if self.stopping.is_none() => {}
            Some(Phase::Failed(code)) => return self.answer(id, Return::Failed(code), out),
            _ => return self.answer(id, Return::Failed(ErrorCode::NotController), out),
        }
        let Some(control) = &mut self.control else { return };
        let (records, answer) = match call {
            Call::Control { request } => {
                let decided = decide(&mut control.controller, now, &request);
                match decided.reply {
                    Reply::Answer(answer) => (decided.records, Return::Control(answer.parts, answer.error)),
                    Reply::Close(why) => return self.answer(id, Return::Close(why), out),
                }
            }
            Call::AutoCreate { names } => {
                let (records, created) = auto_create(&mut control.controller, now, &names);
                (records, Return::AutoCreated(created))
            }
            _ => return,
        };
        if !records.is_empty()
            && let Err(code) = self.control_append(now, &records)
        {
            return self.answer(id, Return::Failed(code), out);
        }
        let Some(control) = &mut self.control else { return };
        let next = control.end();
        control.outbox.pending.push_back(Pending { call: id, next, answer });
        self.control_release(out);
    }

    /// Once a turn: one image for all that was replayed in it.
    pub(crate) fn control_finish_turn(&mut self, now: Now, out: &mut Effects) {
        self.control_load(now);
        self.control_say_again(now);
        let Some(control) = &mut self.control else { return };
        if std::mem::take(&mut control.changed) {
            control.images.push_back(control.controller.image());
        }
        let flushed = self.store.flushed(control.log);
        self.control_said_again(now, flushed, out);
        self.control_flushed(flushed, out);
    }

    /// Publishes the newest image that is durable.
    pub(crate) fn control_flushed(&mut self, flushed: Offset, out: &mut Effects) {
        let Some(control) = &mut self.control else { return };
        let mut newest = None;
        while control.images.front().is_some_and(|image| image.next <= flushed) {
            newest = control.images.pop_front();
        }
        let Some(image) = newest else { return };
        if control.phase == Phase::Starting {
            control.phase = Phase::Serving;
        }
        control.published = image.next;
        out.notes.push(Note::Image(image.clone()));
        for shard in 0..self.config.shards {
            self.send(ShardId(shard), Mesh::Image(image.clone()), out);
        }
    }

    /// A shard serves the image that ends at `next`.
    pub(crate) fn control_applied(&mut self, from: ShardId, next: Offset, out: &mut Effects) {
        let Some(control) = &mut self.control else { return };
        if let Some(applied) = control.outbox.applied.get_mut(usize::from(from.0)) {
            *applied = (*applied).max(next);
        }
        self.control_release(out);
    }

    fn control_release(&mut self, out: &mut Effects) {
        let Some(control) = &mut self.control else { return };
        for (call, answer) in control.outbox.release() {
            self.answer(call, answer, out);
        }
    }

    /// The directory failed: nobody will ever be told that his change is durable.
    pub(crate) fn control_fenced(&mut self, out: &mut Effects) {
        let Some(control) = &mut self.control else { return };
        control.phase = Phase::Failed(ErrorCode::KafkaStorageError);
        control.images.clear();
        for pending in std::mem::take(&mut control.outbox.pending) {
            self.answer(pending.call, Return::Failed(ErrorCode::KafkaStorageError), out);
        }
    }
}

/// Every record of whole batches.
fn replay(controller: &mut Controller, slices: &Slices) -> Result<(), String> {
    let mut bytes = Vec::with_capacity(slices.bytes as usize);
    slices.parts.iter().for_each(|part: &Buf| bytes.extend_from_slice(part));
    let (mut rest, mut scratch) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let header = BatchHeader::parse(rest).map_err(|error| error.to_string())?;
        let length = header.info.bytes as usize;
        let batch = rest.get(..length).ok_or("a batch is cut short")?;
        rest = &rest[length..];
        for record in
            ringmain_batch::records(batch, &mut scratch, i32::MAX as usize).map_err(|error| error.to_string())?
        {
            let record = record.map_err(|error| error.to_string())?;
            let offset = Offset(header.base.0 + i64::from(record.offset_delta));
            let value = record.value.ok_or("a metadata record without a value")?;
            let decoded = Record::decode(value).map_err(|error| error.to_string())?;
            controller.replay(offset, &decoded).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_waits_for_the_slowest_shard_and_for_what_it_saw() {
        let call = |slot| CallId { from: ShardId(0), to: ShardId(0), slot, generation: 0 };
        let answer = || Return::AutoCreated(Vec::new());
        let mut outbox = Outbox { applied: vec![Offset(3), Offset(3)], pending: VecDeque::new() };
        // A change that ends at 5; then a question that saw it; both go when both shards serve 5.
        for (slot, next) in [(1, Offset(5)), (2, Offset(5)), (3, Offset(6))] {
            outbox.pending.push_back(Pending { call: call(slot), next, answer: answer() });
        }
        let slots = |out: Vec<(CallId, Return)>| out.into_iter().map(|(call, _)| call.slot).collect::<Vec<_>>();
        assert!(slots(outbox.release()).is_empty());
        outbox.applied[1] = Offset(6);
        assert!(slots(outbox.release()).is_empty());
        outbox.applied[0] = Offset(5);
        assert_eq!(slots(outbox.release()), [1, 2]);
        outbox.applied[0] = Offset(6);
        assert_eq!(slots(outbox.release()), [3]);
        // Nothing to wait for: at once.
        outbox.pending.push_back(Pending { call: call(4), next: Offset(6), answer: answer() });
        assert_eq!(slots(outbox.release()), [4]);
    }
}
