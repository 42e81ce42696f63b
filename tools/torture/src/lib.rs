//! What torture and hostile share: a blocking client that speaks real frames.
#![forbid(unsafe_code)]

pub mod connection;
