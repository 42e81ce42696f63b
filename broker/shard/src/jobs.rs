//! Requests under way on the shard that their connection lives on.

use ringmain_buffer::Buf;
use ringmain_group::Reply;
use ringmain_log::{Found, ProducerView};
use ringmain_session::{ReplySlot, Request};
use ringmain_types::*;

use crate::asked::Asked;
use crate::fetch::FetchJob;
use crate::mesh::{LogView, ProduceResult};
use crate::slab::Key;
use crate::timers::TimerId;

/// Where a reply goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyTo {
    pub(crate) connection: ConnectionId,
    pub(crate) slot: ReplySlot,
    pub(crate) api: i16,
    pub(crate) version: i16,
    pub(crate) correlation: i32,
    pub(crate) received: Instant,
    pub(crate) dispatched: Instant,
    /// Of the request.
    pub(crate) frame_bytes: u32,
    /// For so long after the reply nothing more is read (KIP-219).
    pub(crate) throttle_ms: u32,
}

impl ReplyTo {
    pub(crate) fn new(now: Now, request: &Request) -> ReplyTo {
        ReplyTo {
            connection: request.connection,
            slot: request.slot,
            api: request.api,
            version: request.version,
            correlation: request.correlation,
            received: request.received,
            dispatched: now.mono,
            frame_bytes: request.frame.len() as u32,
            throttle_ms: 0,
        }
    }
}

pub(crate) struct Job {
    pub(crate) to: ReplyTo,
    pub(crate) work: Work,
    pub(crate) timer: Option<TimerId>,
    /// Another shard was asked.
    pub(crate) remote: bool,
    /// What it counts for (`work.rs`).
    pub(crate) bytes: u64,
}

pub(crate) enum Work {
    Produce {
        acks: i16,
        asked: Asked<Produced>,
    },
    Fetch(Box<FetchJob>),
    Offsets(Asked<Result<Option<Found>, ErrorCode>>),
    Epochs(Asked<Result<(LeaderEpoch, Offset), ErrorCode>>),
    DeleteRecords(Asked<Result<Offset, ErrorCode>>),
    Describe(Asked<Option<LogView>>),
    Producers(Asked<Result<Vec<ProducerView>, ErrorCode>>),
    Groups(GroupJob),
    Control(Request),
    /// Metadata that waits for these topics to be made.
    AutoCreate(Request, Vec<String>),
}

/// A request as long as its answer: who waits for hours keeps no frame.
pub(crate) fn without_frame(request: &Request) -> Request {
    let nothing = || Buf::from_vec(Vec::new());
    Request { client_id: nothing(), frame: nothing(), body: 0, counted: None, ..request.clone() }
}

/// A request about groups. Each part is a group's, but for ListGroups, where it is a coordinator's.
pub(crate) struct GroupJob {
    pub(crate) request: Request,
    /// What is not answered in time is this.
    pub(crate) answers: Vec<Result<Reply, ErrorCode>>,
    pub(crate) waiting: u32,
    /// What the answers take.
    pub(crate) bytes: usize,
}

/// One partition's answer to Produce, with what only the asking shard knows of a refused batch.
#[derive(Debug)]
pub(crate) struct Produced {
    pub(crate) result: ProduceResult,
    /// The records that spoiled their batch (KIP-467).
    pub(crate) records: Vec<u32>,
}

impl Produced {
    pub(crate) fn failed(error: ErrorCode, message: Option<String>) -> Produced {
        let result = ProduceResult { error, message, base: Offset(-1), log_append_time: None, start: Offset(-1) };
        Produced { result, records: Vec::new() }
    }
}

/// Who waits for a call: a job, and which of its shares this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) job: Key,
    pub(crate) share: u32,
}
