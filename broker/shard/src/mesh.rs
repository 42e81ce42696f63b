//! What cores say to each other. Per ordered pair: one request ring and one reply ring of `calls_inflight_max`. A call needs a free
//! slot, a return always has room: nothing blocks, nothing is dropped, two full cores can't deadlock. Calls never nest: an owner
//! answers from its own state.

use std::sync::Arc;

use ringmain_batch::CheckedBatches;
use ringmain_buffer::Bufs;
use ringmain_log::{Found, ProducerView, Slices, TimeQuery};
use ringmain_metadata::ClusterImage;
use ringmain_session::Request;
use ringmain_types::*;
use smallvec::SmallVec;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    pub from: ShardId,
    /// Slots are counted by peer: without it, calls to two owners have one id, and who waits for one's late answer gets the other's.
    pub to: ShardId,
    pub slot: u16,
    pub generation: u32,
}

#[derive(Debug)]
pub enum Mesh {
    Call {
        id: CallId,
        deadline: Instant,
        call: Call,
    },
    Return {
        id: CallId,
        result: Return,
    },
    /// The connection is gone, or its fetch was satisfied elsewhere: ends a watch, or hastens a call that reads, which is answered
    /// with what it has.
    Cancel {
        id: CallId,
    },
    /// From shard 0: one immutable image for all cores.
    Image(Arc<ClusterImage>),
    /// To shard 0: this shard serves the image that ends at `next` (its logs exist, removed ones are gone). CreateTopics and
    /// DeleteTopics are answered when every shard said so.
    Applied {
        next: Offset,
    },
}
/// What an owner is asked, or answers, a partition each: most clients ask for one, whose part then takes no memory of its own.
pub type Parts<T> = SmallVec<[T; 1]>;

#[derive(Debug)]
pub enum Call {
    Produce {
        acks: i16,
        parts: Parts<ProducePart>,
    },
    /// Reads what is there. With `wait` and less than `min_bytes`: `Waiting` at once, then `Ready` once that much could be had; the
    /// asking shard holds min_bytes and max_wait over all owners and takes with a second call.
    Fetch {
        parts: Vec<FetchPart>,
        bytes_max: u32,
        min_bytes: u32,
        wait: bool,
    },
    Offsets {
        parts: Parts<(Partition, Option<LeaderEpoch>, OffsetQuery)>,
    },
    Epochs {
        parts: Parts<(Partition, Option<LeaderEpoch>, LeaderEpoch)>,
    },
    DeleteRecords {
        parts: Parts<(Partition, Offset)>,
    },
    Describe {
        parts: Parts<Partition>,
    },
    /// At most so many in all, but for the first partition's.
    Producers {
        parts: Parts<Partition>,
        most: usize,
    },
    /// Controller requests: the frame itself, decoded where it is decided (shard 0).
    Control {
        request: Request,
    },
    /// Of a group, to the owner of its partition of `__consumer_offsets`.
    Group {
        partition: Partition,
        ask: GroupAsk,
    },
    /// From Metadata: make these topics if they are missing; answered when every shard serves them.
    AutoCreate {
        names: Vec<String>,
    },
}
/// What is asked of a coordinator.
#[derive(Debug)]
pub enum GroupAsk {
    /// Of one group: the frame itself, decoded where it is decided. `host` is the client's, as Kafka writes it.
    Request {
        request: Request,
        host: String,
    },
    Fetch(FetchGroup),
    Delete(String),
    Describe(String),
    DescribeConsumer(String),
    List {
        states: Vec<String>,
        types: Vec<String>,
    },
}
/// One group's part of an OffsetFetch.
#[derive(Debug)]
pub struct FetchGroup {
    pub group: String,
    pub member: Option<String>,
    pub member_epoch: i32,
    /// `None` asks for all.
    pub topics: Option<Vec<(String, TopicId, Vec<PartitionIndex>)>>,
}
#[derive(Debug)]
pub struct ProducePart {
    pub partition: Partition,
    pub batches: CheckedBatches,
}
#[derive(Debug, Clone)]
pub struct FetchPart {
    pub partition: Partition,
    pub epoch: Option<LeaderEpoch>,
    pub last_epoch: Option<LeaderEpoch>,
    pub from: Offset,
    pub bytes_max: u32,
    pub committed_only: bool,
}
#[derive(Debug, Clone, Copy)]
pub enum OffsetQuery {
    Latest,
    Earliest,
    Time(TimeQuery),
}

#[derive(Debug)]
pub enum Return {
    Produce(Parts<ProduceResult>),
    Fetch(Vec<FetchResult>),
    /// Less than asked: what there is, and a watch under this call's id that ends in `Ready`, or in the caller's `Cancel`. The call's
    /// slot is free again: long polls hold none.
    Waiting(Vec<FetchResult>),
    /// The one message that no slot stands for: a watch fired. The hands keep it until the return ring has room.
    Ready,
    Offsets(Vec<Result<Option<Found>, ErrorCode>>),
    Epochs(Vec<Result<(LeaderEpoch, Offset), ErrorCode>>),
    DeleteRecords(Vec<Result<Offset, ErrorCode>>),
    Describe(Vec<LogView>),
    Producers(Vec<Result<Vec<ProducerView>, ErrorCode>>),
    /// A whole reply frame.
    /// A whole reply frame, and the first error in it.
    Control(Bufs, ErrorCode),
    AutoCreated(Vec<(String, ErrorCode)>),
    Group(ringmain_group::Reply),
    /// A join or sync that waits for others: the call's slot is free, and `Late` follows under its id.
    Parked,
    /// As `Ready`, no slot stands for it; a connection waits for at most one.
    Late(Result<ringmain_group::Reply, ErrorCode>),
    Failed(ErrorCode),
    /// The request's body does not parse: with the reason.
    Close(String),
}
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProduceResult {
    pub error: ErrorCode,
    pub message: Option<String>,
    pub base: Offset,
    pub log_append_time: Option<WallMs>,
    pub start: Offset,
}
#[derive(Debug)]
pub struct FetchResult {
    pub error: ErrorCode,
    pub high_watermark: Offset,
    pub last_stable: Offset,
    pub start: Offset,
    pub diverging: Option<(LeaderEpoch, Offset)>,
    pub slices: Slices,
}
#[derive(Debug, Clone)]
pub struct LogView {
    pub partition: Partition,
    pub error: ErrorCode,
    pub bytes: u64,
    pub start: Offset,
    pub end: Offset,
    pub epoch: LeaderEpoch,
}
