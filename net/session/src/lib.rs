//! `net/session`: one client connection. Frames, order of replies, back-pressure; later TLS and SASL. Bytes in, bytes out; `Send` and
//! free of shard-local pointers, so that a connection can move to the core that owns its partitions.
//!
//! What a request means is the shard's business; a session knows of an API only whether it is spoken, in which versions, and whether
//! it may overlap with others.
#![forbid(unsafe_code)]

mod backlog;
mod frame;
mod greeting;
mod order;
mod output;
mod pace;
mod session;

use std::sync::Arc;

use ringmain_buffer::{Buf, BufMut, Bufs};
use ringmain_types::{ConnectionId, Instant, PrincipalId};
use ringmain_wire::Counted;

pub use output::SEND_PARTS_MAX;
pub use session::Session;

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
    /// Lent by the driver for this call only. What a receive that was already under way brings is taken even after another `Want`:
    /// the session keeps it, and counts on the driver not to go on. Behind a `Direct`, such bytes come before the `Direct`'s own.
    Lent(&'a [u8]),
    /// As `Lent`, for good: larger frames in it are not copied out.
    Given(Buf),
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
    /// One of `ringmain_wire::APIS`.
    pub api: i16,
    /// One that the API has, but for ApiVersions: there a newer one is answered with error 35 (KIP-511).
    pub version: i16,
    pub correlation: i32,
    pub client_id: Buf,
    pub principal: PrincipalId,
    /// The whole frame without its length prefix, contiguous: bodies decode from it without a copy.
    pub frame: Buf,
    /// Where the body starts in `frame`.
    pub body: u32,
    pub received: Instant,
    /// What is known of a large body by who has counted it.
    pub counted: Option<Arc<Counted>>,
}
#[derive(Debug)]
pub struct Reply {
    pub slot: ReplySlot,
    pub parts: Bufs,
    pub throttle_ms: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Close {
    /// The client sends no more, and has its replies.
    Eof,
    Idle,
    Slow,
    Shutdown,
    Memory,
    /// More connections than are allowed, in all or from its address.
    TooMany,
    /// Not Kafka's protocol: with what it looked like.
    Protocol(String),
    TooLarge {
        bytes: u32,
        max: u32,
    },
    Errno(i32),
}
