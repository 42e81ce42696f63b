//! `broker/shard`: one core's whole state and its turn. No socket, file, clock, thread or randomness: inputs in, effects out. The
//! simulator runs this very type through this very `turn`.
#![forbid(unsafe_code)]

mod api;
mod asked;
mod calling;
mod calls;
mod connections;
mod control;
mod dispatch;
mod fair;
mod fetch;
mod fetch_reading;
mod fetch_session;
mod fetch_telling;
mod group_request;
mod group_settings;
mod groups;
mod jobs;
mod logs;
pub mod mesh;
mod middle;
mod purgatory;
mod serve;
mod serve_fetch;
mod sessions;
mod shard;
mod slab;
mod space;
mod timers;
mod work;

use std::sync::Arc;

use ringmain_buffer::Buf;
use ringmain_disk::{DiskDone, DiskError, DiskOp};
pub use ringmain_group::Figures;
use ringmain_log::{CompactionStats, Damage, Recovery};
use ringmain_metadata::ClusterImage;
use ringmain_session::{Close, Incoming, Want};
use ringmain_types::*;

use mesh::Mesh;
pub use shard::Shard;

/// One completion, not one record.
#[derive(Debug)]
pub enum Input<'a> {
    /// `listener`: index into the node's listeners.
    Accepted {
        connection: ConnectionId,
        listener: u16,
        peer: std::net::SocketAddr,
    },
    Received {
        connection: ConnectionId,
        incoming: Incoming<'a>,
    },
    Sent {
        connection: ConnectionId,
        bytes: usize,
    },
    /// The peer sends no more, but may still read: what it asked is answered, then the shard closes.
    Eof {
        connection: ConnectionId,
    },
    /// The driver's side is gone (an error, or the answer to `NetOp::Close`); nothing more comes of this connection.
    Closed {
        connection: ConnectionId,
        why: Close,
    },
    Disk(DiskDone),
    Mesh {
        from: ShardId,
        message: Mesh,
    },
    /// Clean stop: no new connections, answer what is under way, close the store; `Note::Stopped` ends it.
    Stop,
}

/// Filled by the shard, emptied by the hands once a turn. Order within a queue is kept; between queues there is none, and no rule
/// may need one (a reply that needs a flush is not put in before the flush is done).
#[derive(Default, Debug)]
pub struct Effects {
    pub disk: Vec<DiskOp>,
    pub net: Vec<NetOp>,
    pub mesh: Vec<(ShardId, Mesh)>,
    pub notes: Vec<Note>,
}
#[derive(Debug)]
pub enum NetOp {
    /// How to receive from now on. `Want::Any` stays in force until the next; `Direct` is one receive of exactly or up to that many bytes;
    /// after a `Direct` completion the shard always says what it wants next.
    Receive { connection: ConnectionId, want: Want },
    /// One vectored send; at most one under way per connection. `Sent` with the whole length follows, or `Closed`.
    Send { connection: ConnectionId, parts: Vec<Buf> },
    /// `Closed` follows.
    Close { connection: ConnectionId },
}

/// Facts for logs, metrics and the simulator's checkers: one stream feeds all three.
#[derive(Debug, Clone)]
pub enum Note {
    /// This shard's logs and image are ready: the node may report ready when all shards are.
    Ready,
    Acked {
        partition: Partition,
        base: Offset,
        next: Offset,
        acks: i16,
    },
    Visible {
        partition: Partition,
        high_watermark: Offset,
    },
    Truncated {
        partition: Partition,
        to: Offset,
    },
    Recovered {
        partition: Partition,
        report: Recovery,
    },
    Fenced {
        dir: DirId,
        error: DiskError,
    },
    /// A log waits for space on its disk: what does not fit in the journal is refused meanwhile.
    NoSpace {
        partition: Partition,
        error: DiskError,
    },
    /// A read met bytes that do not check: they are not served.
    Damaged {
        partition: Partition,
        damage: Damage,
    },
    /// After `NoSpace`.
    SpaceAgain {
        partition: Partition,
    },
    /// A connection was closed for a reason worth a log line (the node limits their rate).
    Closed {
        connection: ConnectionId,
        peer: std::net::SocketAddr,
        why: Close,
    },
    Request {
        api: i16,
        version: i16,
        error: ErrorCode,
        phases: Phases,
    },
    Image(Arc<ClusterImage>),
    /// The metadata log's state was said again from here on: what was before goes.
    SaidAgain {
        start: Offset,
    },
    /// A partition's part of an answered Produce or Fetch: batch bytes, as they are on the wire.
    Traffic {
        partition: Partition,
        in_bytes: u32,
        out_bytes: u32,
    },
    /// What a log holds: when it is opened, and then at most once a second and log, if it changed.
    Log {
        partition: Partition,
        start: Offset,
        end: Offset,
        size_bytes: u64,
    },
    /// Compaction went on: what it has done since the start.
    Compaction(CompactionStats),
    /// A group that changed, at most once a second; `None` when it is gone.
    Group {
        group: Arc<str>,
        figures: Option<Arc<Figures>>,
    },
    /// How many groups this shard's coordinators know.
    Groups {
        count: u32,
    },
    Stopped,
}
#[derive(Debug, Clone, Copy, Default)]
pub struct Phases {
    pub queue_ns: u64,
    pub local_ns: u64,
    pub remote_ns: u64,
    pub throttle_ns: u64,
    pub send_ns: u64,
}

/// `host:port` as it is typed and told: an IPv6 address in brackets (RFC 3986, section 3.2.2).
pub fn address(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Everything that differs between two shards. `seed` keys hashers, jitter and ids: nothing else is random.
#[derive(Debug, Clone)]
pub struct Config {
    pub broker: BrokerId,
    pub shard: ShardId,
    pub shards: u16,
    pub dir: DirId,
    pub limits: Limits,
    pub seed: u64,
    pub journal_generation: u64,
    /// The node saw all journals of this generation made: a missing one is damage.
    pub journal_exists: bool,
    pub journal_flush_covers: bool,
    pub cluster_id: String,
    /// What clients are told: `advertised.listeners`.
    pub advertised: (String, u16),
    /// The absolute path that DescribeLogDirs shows.
    pub dir_path: String,
    /// server.properties' names -> values as given (file, then `--set`); the metadata crate types them and knows the defaults.
    pub properties: std::collections::BTreeMap<String, String>,
}

/// What a core has for hands. Two implementations: `broker/node` and `tools/sim`. Static dispatch.
pub trait Hands {
    /// Calls `step` for each thing that happened, in the hands' order; at most a turn's worth. Returns how many.
    fn poll(&mut self, step: &mut dyn FnMut(Input<'_>)) -> usize;
    fn perform(&mut self, effects: &mut Effects);
}

/// One turn. Returns whether there was work.
pub fn turn<H: Hands>(shard: &mut Shard, hands: &mut H, now: Now, effects: &mut Effects) -> bool {
    let busy = hands.poll(&mut |input| shard.step(now, input, effects)) > 0;
    if !busy {
        shard.crowd.idle();
    }
    if shard.deadline().is_some_and(|at| at <= now.mono) {
        shard.tick(now, effects);
    }
    shard.finish_turn(now, effects);
    hands.perform(effects);
    busy
}
