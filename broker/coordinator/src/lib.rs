//! `broker/coordinator`: records, then replay: what coordinators share. A [`Machine`] decides, a [`Runtime`] sees to it that what it
//! wrote is appended in its order and that nobody is told of it before it is committed.
//!
//! No log, no clock, no bytes of a batch: the shard that leads the partition brings what it read, takes what is to be appended, and
//! says what is committed. One core runs one partition's coordinator.
#![forbid(unsafe_code)]

mod machine;
mod outbox;
mod runtime;

pub use machine::{Decision, Machine, Waiter};
pub use runtime::{Append, Replies, Runtime, Written};
