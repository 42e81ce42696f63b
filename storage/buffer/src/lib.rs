//! `storage/buffer`: aligned, counted memory with an owner and a price.
//!
//! A [`Pool`] belongs to one shard and refuses rather than grows. What it hands out is written once through a [`BufMut`] and read
//! for ever through [`Buf`]s, on any core; a block that is dropped elsewhere goes home through a return list and is counted again
//! at the owner's next [`Pool::collect`].
#![deny(unsafe_op_in_unsafe_fn)]

mod arena;
mod block;
mod pool;

pub use block::{Buf, BufMut, Bufs};
pub use pool::{Pool, Refused};
