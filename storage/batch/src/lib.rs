//! `storage/batch`: record batch v2. Checks what a client sent, reads records, builds batches. Runs on whichever core holds the
//! bytes; no I/O. It does not know of logs: base offset and leader epoch are stamped by their owner.
#![forbid(unsafe_code)]

mod builder;
mod check;
mod compression;
mod filter;
mod header;
mod lz4;
mod records;
mod varint;

pub use builder::{Builder, Encoded, recode};
pub use check::{BatchError, CheckRules, CheckedBatches, check};
pub use compression::Codec;
pub use filter::{Filtered, delete_horizon, emptied, filter};
pub use header::{
    BatchHeader, BatchInfo, CrcInPieces, HEADER_BYTES, LENGTH_OVERHEAD_BYTES, Producer, crc_ok, stamp, stamp_time,
};
pub use records::{Headers, HeadersIter, Record, Records, records};
