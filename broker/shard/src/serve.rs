//! What a shard does as the owner of partitions: calls of any shard, itself included. It answers from its own state and never calls.

use ringmain_log::{Found, ReadToken};
use ringmain_types::*;

use crate::mesh::{Call, CallId, FetchPart, FetchResult, LogView, Parts, ProduceResult, Return};
use crate::shard::Timer;
use crate::slab::Key;
use crate::timers::TimerId;
use crate::{Effects, Note, Shard};

/// A call that can't be answered at once.
pub(crate) struct Serve {
    pub(crate) id: CallId,
    pub(crate) timer: Option<TimerId>,
    pub(crate) work: Serving,
}

pub(crate) enum Serving {
    Produce(ProduceServe),
    Fetch(FetchServe),
    Offsets(OffsetsServe),
    DeleteRecords(DeleteServe),
}

/// Appended batches that wait for their flush. What is not flushed by the deadline is answered with 7; it stays in the log.
pub(crate) struct ProduceServe {
    pub(crate) acks: i16,
    /// Those that wait say so already: REQUEST_TIMED_OUT.
    pub(crate) results: Parts<ProduceResult>,
    pub(crate) acks_due: Parts<Option<AckDue>>,
    pub(crate) waiting: u32,
}

/// What a flush turns into an ack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckDue {
    pub(crate) partition: Partition,
    pub(crate) base: Offset,
    pub(crate) next: Offset,
    pub(crate) log_append_time: Option<WallMs>,
    pub(crate) start: Offset,
}

impl AckDue {
    pub(crate) fn result(&self) -> ProduceResult {
        ProduceResult {
            error: ErrorCode::None,
            message: None,
            base: self.base,
            log_append_time: self.log_append_time,
            start: self.start,
        }
    }
}

/// Reads under way.
pub(crate) struct FetchServe {
    pub(crate) parts: Vec<FetchPart>,
    pub(crate) results: Vec<FetchResult>,
    pub(crate) tokens: Vec<ReadToken>,
    pub(crate) waiting: u32,
    pub(crate) min_bytes: u32,
    pub(crate) wait: bool,
    /// A read found no memory: what is there can't be had now.
    pub(crate) starved: bool,
}

/// Searches by time under way.
pub(crate) struct OffsetsServe {
    pub(crate) results: Vec<Result<Option<Found>, ErrorCode>>,
    pub(crate) parts: Vec<Partition>,
    pub(crate) waiting: u32,
}

/// Log starts that are not durable yet.
pub(crate) struct DeleteServe {
    pub(crate) results: Vec<Result<Offset, ErrorCode>>,
    pub(crate) waiting: u32,
}

impl Shard {
    pub(crate) fn serve(&mut self, now: Now, id: CallId, deadline: Instant, call: Call, out: &mut Effects) {
        if self.closing() {
            return self.answer(id, Return::Failed(ErrorCode::NotLeaderOrFollower), out);
        }
        let Some(call) = self.hold_call(id, deadline, call) else { return };
        match call {
            Call::Produce { acks, parts } => self.serve_produce(now, (id, deadline), acks, parts, out),
            Call::Fetch { parts, bytes_max, min_bytes, wait } => {
                let wait = wait.then_some(min_bytes);
                self.serve_fetch(now, (id, deadline), parts, (bytes_max, wait), out);
            }
            Call::Offsets { parts } => self.serve_offsets(now, (id, deadline), parts, out),
            Call::Epochs { parts } => {
                let results = parts
                    .into_iter()
                    .map(|(partition, current, epoch)| self.epoch_end(partition, current, epoch))
                    .collect();
                self.answer(id, Return::Epochs(results), out);
            }
            Call::DeleteRecords { parts } => self.serve_delete_records(now, (id, deadline), parts, out),
            Call::Describe { parts } => {
                let views = parts.into_iter().map(|partition| self.log_view(partition)).collect();
                self.answer(id, Return::Describe(views), out);
            }
            Call::Producers { parts, most } => {
                let results = self.producers(parts, most);
                self.answer(id, Return::Producers(results), out);
            }
            Call::Group { partition, ask } => self.serve_group(now, id, partition, ask, out),
            call @ (Call::Control { .. } | Call::AutoCreate { .. }) => self.control_request(now, id, call, out),
        }
    }

    fn log_view(&mut self, partition: Partition) -> LogView {
        let view =
            |error| LogView { partition, error, bytes: 0, start: Offset(-1), end: Offset(-1), epoch: LeaderEpoch(-1) };
        match self.logs.get(partition) {
            Err(error) => view(error),
            Ok(log) => LogView {
                bytes: self.store.size_bytes(log.id),
                start: self.store.start(log.id),
                end: self.store.end(log.id),
                epoch: log.epoch,
                ..view(ErrorCode::None)
            },
        }
    }

    pub(crate) fn add_serve(&mut self, id: CallId, deadline: Instant, work: Serving) -> Key {
        let key = self.serves.insert(Serve { id, timer: None, work });
        let timer = self.timers.set(deadline, Timer::Serve(key));
        if let Some(serve) = self.serves.get_mut(key) {
            serve.timer = Some(timer);
        }
        self.serving.insert(id, key);
        key
    }

    pub(crate) fn take_serve(&mut self, key: Key) -> Option<Serve> {
        let serve = self.serves.remove(key)?;
        self.serving.remove(serve.id);
        if let Some(timer) = serve.timer {
            self.timers.cancel(timer);
        }
        Some(serve)
    }

    /// Answers with what there is.
    pub(crate) fn finish_serve(&mut self, key: Key, out: &mut Effects) {
        let Some(serve) = self.take_serve(key) else { return };
        let result = match serve.work {
            Serving::Produce(produce) => {
                let acks = produce.acks;
                for (due, result) in produce.acks_due.iter().zip(&produce.results) {
                    if let Some(due) = due
                        && result.error == ErrorCode::None
                    {
                        let AckDue { partition, base, next, .. } = *due;
                        out.notes.push(Note::Acked { partition, base, next, acks });
                    }
                }
                Return::Produce(produce.results)
            }
            Serving::Fetch(fetch) => Return::Fetch(fetch.results),
            Serving::Offsets(offsets) => Return::Offsets(offsets.results),
            Serving::DeleteRecords(delete) => Return::DeleteRecords(delete.results),
        };
        self.answer(serve.id, result, out);
    }

    /// A caller lost interest: its watch ends in silence, its reads are cancelled and answered as they are.
    pub(crate) fn cancelled(&mut self, id: CallId, out: &mut Effects) {
        if self.watches.cancel(id) {
            return;
        }
        let Some(key) = self.serving.get(id) else { return };
        let Some(serve) = self.serves.get_mut(key) else { return };
        let tokens = match &mut serve.work {
            Serving::Fetch(fetch) => std::mem::take(&mut fetch.tokens),
            Serving::Offsets(_) => Vec::new(),
            // An append is not undone, and its ack is short in coming.
            Serving::Produce(_) | Serving::DeleteRecords(_) => return,
        };
        for token in tokens {
            self.reads.remove(&token);
            self.store.cancel(token);
        }
        self.finish_serve(key, out);
    }

    /// The directory failed. Nothing that waits for it will come.
    pub(crate) fn fenced(&mut self, out: &mut Effects) {
        self.groups_fenced(out);
        let (mut acks, mut starts) = (Vec::new(), Vec::new());
        self.flush_waits.fail_all(&mut acks);
        self.start_waits.fail_all(&mut starts);
        self.produced(&acks, ErrorCode::KafkaStorageError, out);
        for (key, part) in starts {
            self.record_deleted(key, part, Err(ErrorCode::KafkaStorageError), out);
        }
    }
}
