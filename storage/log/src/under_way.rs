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
    /// Where each ends and whose it is, by where it begins. Of several that begin together the one that ends last, until it comes back.
    ends: BTreeMap<(LogId, Offset, u32), (u32, ReadToken)>,
    /// Who waits for it, too.
    sharers: BTreeMap<ReadToken, Vec<ReadToken>>,
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

    /// Whether the byte at `from` is being read: then `token` comes out of `ended` with that read.
    pub fn shares(&mut self, token: ReadToken, (log, base, from): (LogId, Offset, u32)) -> bool {
        let before = self.ends.range((log, base, 0)..=(log, base, from)).next_back();
        let Some((_, (_, reader))) = before.filter(|(_, (end, _))| from < *end) else { return false };
        self.sharers.entry(*reader).or_default().push(token);
        true
    }

    pub fn started(&mut self, token: ReadToken, read: FileRead) {
        self.bytes += u64::from(read.bytes);
        let end = read.begin.saturating_add(read.bytes);
        let longest = self.ends.entry((read.log, read.base, read.begin)).or_insert((end, token));
        if longest.0 < end {
            *longest = (end, token);
        }
        self.reads.insert(token, read);
    }

    /// The disk has answered; who waited for that, too.
    pub fn ended(&mut self, token: ReadToken) -> Vec<ReadToken> {
        let Some(read) = self.reads.remove(&token) else { return Vec::new() };
        self.bytes -= u64::from(read.bytes);
        let begin = (read.log, read.base, read.begin);
        if self.ends.get(&begin).is_some_and(|(_, reader)| *reader == token) {
            self.ends.remove(&begin);
        }
        self.sharers.remove(&token).unwrap_or_default()
    }
}
