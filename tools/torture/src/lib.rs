//! What the programs here share: the broker as a process, a client that speaks real frames, a producer and a reader that know what
//! they were promised.
#![forbid(unsafe_code)]

pub mod broker;
pub mod connection;
pub mod filler;
pub mod pacer;
pub mod producer;
pub mod verify;
