//! `net/session`: one client connection. Frames, order of replies, back-pressure; later TLS and SASL. Bytes in, bytes out; `Send` and
//! free of shard-local pointers, so that a connection can move to the core that owns its partitions.
#![forbid(unsafe_code)]

use ringmain_buffer::{Buf, BufMut, Pool};
use ringmain_types::{ConnectionId, Instant, Limits, Now, PrincipalId};

/// TLS takes its place here.
#[derive(Debug)]
pub enum Transport {
    Plain,
}

/// How the driver should receive next.
#[derive(Debug)]
pub enum Want {
    /// Whatever comes, into the driver's provided buffers.
    Any,
    /// The rest of a large body, straight into its block: at most `bytes`, into the spare part of `into`.
    Direct { into: BufMut, bytes: usize },
    /// Muted: over memory, over quota, or too many unanswered. Asked again when a reply leaves, memory returns or `until` comes.
    Nothing { until: Option<Instant> },
}
#[derive(Debug)]
pub enum Incoming<'a> {
    /// Lent by the driver for this call only.
    Lent(&'a [u8]),
    /// What `Want::Direct` gave, `bytes` more of it filled (`BufMut::advance` was called).
    Direct(BufMut),
}

/// The place of a reply in its connection's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplySlot(pub u64);

#[derive(Clone, Debug)]
pub struct Request {
    pub connection: ConnectionId,
    pub slot: ReplySlot,
    pub api: i16,
    pub version: i16,
    pub correlation: i32,
    pub client_id: Buf,
    pub principal: PrincipalId,
    /// The whole frame without its length prefix, contiguous: bodies decode from it without a copy.
    pub frame: Buf,
    /// Where the body starts in `frame`.
    pub body: u32,
    pub received: Instant,
}
#[derive(Debug)]
pub struct Reply {
    pub slot: ReplySlot,
    pub parts: Vec<Buf>,
    pub throttle_ms: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Close {
    Eof,
    Idle,
    Slow,
    Shutdown,
    Memory,
    /// Not Kafka's protocol: with what it looked like.
    Protocol(String),
    TooLarge {
        bytes: u32,
        max: u32,
    },
    Errno(i32),
}

pub struct Session {}
#[allow(unused_variables)]
impl Session {
    pub fn open(id: ConnectionId, transport: Transport, limits: &Limits, now: Now) -> Session {
        unimplemented!()
    }
    pub fn want(&mut self, now: Now, pool: &mut Pool) -> Want {
        unimplemented!()
    }
    /// Whole requests come out in order; a Barrier request only once all before it are answered, and none after it until it is.
    pub fn received(
        &mut self,
        now: Now,
        pool: &mut Pool,
        incoming: Incoming<'_>,
        out: &mut Vec<Request>,
    ) -> Result<(), Close> {
        unimplemented!()
    }
    /// Replies in any order; held until their turn. `out` gets requests that a barrier had held back.
    pub fn reply(&mut self, now: Now, reply: Reply, out: &mut Vec<Request>) {
        unimplemented!()
    }
    /// acks=0: the slot is passed without bytes.
    pub fn skip(&mut self, now: Now, slot: ReplySlot, out: &mut Vec<Request>) {
        unimplemented!()
    }
    /// The next bytes to send, at most about `bytes`; empty when there are none or a send is under way.
    pub fn outgoing(&mut self, bytes: usize) -> Vec<Buf> {
        unimplemented!()
    }
    pub fn sent(&mut self, now: Now, bytes: usize) {
        unimplemented!()
    }
    /// Blocks kept alive by unsent replies.
    pub fn held_bytes(&self) -> usize {
        unimplemented!()
    }
    pub fn deadline(&self) -> Option<Instant> {
        unimplemented!()
    }
    /// What the deadline asks for: close as idle or slow, or nothing yet.
    pub fn tick(&mut self, now: Now) -> Result<(), Close> {
        unimplemented!()
    }
    /// Nothing unanswered, unsent or half received.
    pub fn quiet(&self) -> bool {
        unimplemented!()
    }
}
