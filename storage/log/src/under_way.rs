//! Reads of files that the disk has not answered yet, whether or not anybody still waits for them.

use std::collections::BTreeMap;

use ringmain_disk::FileId;
use ringmain_types::{LogId, Offset};

use crate::ReadToken;

#[derive(Debug)]
pub(crate) struct FileRead {
    pub log: LogId,
    pub file: FileId,
    /// The segment.
    pub base: Offset,
    pub begin: u32,
    pub bytes: u32,
}

#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    reads: BTreeMap<ReadToken, FileRead>,
    /// Of all together.
    bytes: u64,
    /// Where each ends, by where it begins. Of several that begin together the one that ends last, until the first of them comes back.
    ends: BTreeMap<(LogId, Offset, u32), u32>,
}

impl UnderWay {
    pub fn len(&self) -> usize {
        self.reads.len()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Of the log, or of this file of it.
    pub fn any(&self, log: LogId, file: Option<FileId>) -> bool {
        self.reads.values().any(|read| read.log == log && file.is_none_or(|file| file == read.file))
    }

    /// Whether the byte at `from` is being read.
    pub fn covers(&self, log: LogId, base: Offset, from: u32) -> bool {
        let before = self.ends.range((log, base, 0)..=(log, base, from)).next_back();
        before.is_some_and(|(_, end)| from < *end)
    }

    pub fn started(&mut self, token: ReadToken, read: FileRead) {
        self.bytes += u64::from(read.bytes);
        let end = self.ends.entry((read.log, read.base, read.begin)).or_default();
        *end = read.begin.saturating_add(read.bytes).max(*end);
        self.reads.insert(token, read);
    }

    pub fn ended(&mut self, token: ReadToken) {
        let Some(read) = self.reads.remove(&token) else { return };
        self.bytes -= u64::from(read.bytes);
        self.ends.remove(&(read.log, read.base, read.begin));
    }
}
