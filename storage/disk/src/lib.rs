//! `storage/disk`: the seam. What a shard may ask of a file system, names included. Implemented by `storage/ring` and by the
//! simulator, nobody else.
//!
//! Paths are relative to their log directory, with `/` between their parts; the driver knows where a [`DirId`] is.
#![forbid(unsafe_code)]

use ringmain_buffer::{Buf, BufMut};
use ringmain_types::DirId;

/// Chosen by the shard, never used again. The driver maps it to a descriptor and keeps a bounded number of those open: it
/// reopens by path when needed, so thousands of partitions need not hold a descriptor each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// Chosen by the shard, never used again: names one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskToken(pub u64);

/// The store issues operations in this order of precedence and within each class's share in flight; the driver only submits.
/// A cold fetch is a `Read`: it can't get ahead of a `Commit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DiskClass {
    Commit,
    Read,
    Background,
}

#[derive(Debug)]
pub struct DiskOp {
    pub token: DiskToken,
    pub class: DiskClass,
    pub kind: DiskKind,
}

/// Operations in flight are unordered against each other, `Flush::after` apart. Whoever needs order waits for the completion.
#[derive(Debug)]
pub enum DiskKind {
    /// Whole blocks, block-aligned, the parts one behind the other from `position` on (each part a multiple of the block, and
    /// aligned in memory). No two writes in flight touch one block, and no block is written twice between allocation and
    /// truncation (the journal's ring apart). A write behind the end of the file extends it.
    Write {
        file: FileId,
        position: u64,
        data: Vec<Buf>,
    },
    /// `fdatasync` of each of `files`, started once every write in `after` is done. Durable when it is done: all of these files'
    /// writes that were done before or are in `after`, their sizes and allocations included; and of the directory's other files,
    /// writes into extents that were durable before (the device's cache is flushed as a whole, allocations are not committed).
    /// A failure of any fails it whole. Never retried.
    Flush {
        dir: DirId,
        files: Vec<FileId>,
        after: Vec<DiskToken>,
    },
    /// Reads `bytes` from `position` into the spare part of `into`; both are multiples of the block. Shorter at the end of the
    /// file: `into.len()` tells.
    Read {
        file: FileId,
        position: u64,
        bytes: u32,
        into: BufMut,
    },
    /// Opens for reading and writing, direct where the file system allows. `create`: made when missing (its directory exists).
    /// Without it a missing file is ENOENT.
    Open {
        dir: DirId,
        file: FileId,
        path: String,
        create: bool,
    },
    Close {
        file: FileId,
    },
    /// Reserves space for `from..from + bytes` and extends the file to it. Reads as zeroes until written.
    Allocate {
        file: FileId,
        from: u64,
        bytes: u64,
    },
    /// Cuts or extends (with a hole) to exactly `bytes`.
    Truncate {
        file: FileId,
        bytes: u64,
    },
    /// Replaces `to` when it exists. Open files follow.
    Rename {
        dir: DirId,
        from: String,
        to: String,
    },
    /// Removes a file; an open `FileId` of it may still be closed.
    Remove {
        dir: DirId,
        path: String,
    },
    /// Makes one directory; one that exists is fine.
    MakeDir {
        dir: DirId,
        path: String,
    },
    /// Removes an empty directory.
    RemoveDir {
        dir: DirId,
        path: String,
    },
    List {
        dir: DirId,
        path: String,
    },
    /// How large the directory's file system is, and how much of it we may still use.
    Space {
        dir: DirId,
    },
    /// Makes created, renamed and removed names in `path` (`""`: the log directory itself) durable; until then a power loss may
    /// undo each of them.
    SyncDir {
        dir: DirId,
        path: String,
    },
}

#[derive(Debug)]
pub struct DiskDone {
    pub token: DiskToken,
    pub result: Result<DiskOk, DiskError>,
}

#[derive(Debug)]
pub enum DiskOk {
    Done,
    /// What was read is behind what `into` held.
    Read(BufMut),
    /// The file's size.
    Opened {
        bytes: u64,
    },
    Listed(Vec<Entry>),
    /// `usable_bytes`: without what is kept for the superuser.
    Space {
        total_bytes: u64,
        usable_bytes: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub name: String,
    pub bytes: u64,
    pub directory: bool,
}

/// Names operation, path and errno. A shorter write than asked is finished inside the driver or is an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskError {
    pub operation: &'static str,
    pub path: String,
    pub errno: i32,
}

impl DiskError {
    pub const ENOENT: i32 = 2;
    pub const EIO: i32 = 5;
    pub const ENOSPC: i32 = 28;
    /// EUCLEAN: bytes were read, and are not what was written.
    pub const DAMAGED: i32 = 117;
    /// EOPNOTSUPP: bytes of a format that only a newer version knows.
    pub const NEWER: i32 = 95;

    pub fn missing(&self) -> bool {
        self.errno == DiskError::ENOENT
    }
}

impl std::fmt::Display for DiskError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.operation, self.path, std::io::Error::from_raw_os_error(self.errno))
    }
}
impl std::error::Error for DiskError {}

pub trait Disk {
    fn submit(&mut self, op: DiskOp);
    /// Moves finished operations into `done`, in any order.
    fn poll(&mut self, done: &mut Vec<DiskDone>);
}
