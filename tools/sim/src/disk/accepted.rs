//! What is handed in, against the seam's rules: aligned whole blocks, each written once, of files that are open.

use std::collections::BTreeSet;

use ringmain_disk::{DiskKind, DiskToken, FileId};
use ringmain_types::ShardId;

use super::media::Bytes;
use super::names::{Change, Inode};
use super::{SimDisk, Work};

impl SimDisk {
    /// Checks an operation against the seam's rules and finds what it is about.
    pub(super) fn accept(&mut self, shard: ShardId, kind: DiskKind) -> Option<Work> {
        let work = match kind {
            DiskKind::Write { file, position, data } => {
                self.digest.number(0x77 ^ file.0 << 8 ^ position << 20);
                for part in &data {
                    self.digest.bytes(part);
                }
                self.accept_write(shard, file, position, &data)?
            }
            DiskKind::Flush { files, after, .. } => {
                self.digest.number(0x66);
                self.counts.flushes += 1;
                let files = files.into_iter().map(|file| self.inode(shard, file)).collect::<Option<Vec<_>>>()?;
                self.accept_flush(shard, files, after)
            }
            DiskKind::Read { file, position, bytes, into } => {
                let block = u64::from(self.manner.block_bytes);
                if !position.is_multiple_of(block)
                    || !u64::from(bytes).is_multiple_of(block)
                    || bytes == 0
                    || into.spare() < bytes as usize
                {
                    self.broken(format!("a read of {bytes} bytes at {position} into {} is out of shape", into.spare()));
                }
                Work::Read { inode: self.inode(shard, file)?, position, bytes, into }
            }
            DiskKind::Open { file, path, create, .. } => {
                if self.open.contains_key(&(shard, file)) {
                    self.broken(format!("{file:?} is open and opened again as {path}"));
                }
                Work::Open { file, path, create }
            }
            DiskKind::Close { file } => {
                self.inode(shard, file)?;
                Work::Close { file }
            }
            DiskKind::Allocate { file, from, bytes } => {
                Work::Grow { inode: self.inode(shard, file)?, size: from + bytes }
            }
            DiskKind::Truncate { file, bytes } => Work::Truncate { inode: self.inode(shard, file)?, size: bytes },
            DiskKind::Rename { from, to, .. } => Work::Name(Change::Rename { from, to }),
            DiskKind::Remove { path, .. } => Work::Name(Change::Remove { path }),
            DiskKind::MakeDir { path, .. } => Work::Name(Change::MakeDirectory { path }),
            DiskKind::RemoveDir { path, .. } => Work::Name(Change::RemoveDirectory { path }),
            DiskKind::List { path, .. } => Work::List { path },
            DiskKind::Space { .. } => Work::Space,
            DiskKind::SyncDir { path, .. } => Work::SyncDir { path, mark: 0 },
        };
        Some(work)
    }

    fn accept_write(
        &mut self,
        shard: ShardId,
        file: FileId,
        position: u64,
        data: &[ringmain_buffer::Buf],
    ) -> Option<Work> {
        let inode = self.inode(shard, file)?;
        let path = self.open[&(shard, file)].1.clone();
        let block = u64::from(self.manner.block_bytes);
        let aligned = |part: &ringmain_buffer::Buf| {
            !part.is_empty()
                && (part.len() as u64).is_multiple_of(block)
                && (part.as_ptr() as u64).is_multiple_of(block)
        };
        if !position.is_multiple_of(block) || data.is_empty() || !data.iter().all(aligned) {
            self.broken(format!("a write to {path} at {position} is not in whole aligned blocks: {data:?}"));
            return None;
        }
        let mut blocks = Vec::new();
        for part in data {
            blocks.extend(part.chunks_exact(block as usize).map(Bytes::from));
        }
        let first = position / block;
        for (at, bytes) in (first..).zip(&blocks) {
            if !self.writing.insert((inode, at)) {
                self.broken(format!("two writes in flight to block {at} of {path}"));
            }
            // Segments are written once; the journal is a ring, and an index's last block grows.
            let ahead = path.ends_with(".log") && bytes.iter().all(|byte| *byte == 0);
            self.counts.zeroed += u64::from(ahead);
            if path.ends_with(".log") && !self.files[inode.0 as usize].write_once(at, bytes) {
                self.broken(format!("block {at} of {path} is written a second time"));
            }
        }
        self.counts.writes += 1;
        self.counts.written_bytes += blocks.len() as u64 * block;
        Some(Work::Write { inode, first, blocks })
    }

    fn accept_flush(&mut self, shard: ShardId, files: Vec<Inode>, after: Vec<DiskToken>) -> Work {
        let mut open = BTreeSet::new();
        for token in after {
            if !self.tokens.contains(&(shard, token)) {
                self.broken(format!("a flush waits for {token:?}, which was never submitted"));
            }
            let flying = self.flight.values().find(|flying| flying.shard == shard && flying.token == token);
            match flying.map(|flying| &flying.work) {
                None => {}
                Some(Work::Write { .. }) => {
                    open.insert((shard, token));
                }
                Some(_) => self.broken(format!("a flush waits for {token:?}, which is no write")),
            }
        }
        Work::Flush { files, after: open, started: None }
    }

    fn inode(&mut self, shard: ShardId, file: FileId) -> Option<Inode> {
        let inode = self.open.get(&(shard, file)).map(|(inode, _)| *inode);
        if inode.is_none() {
            self.broken(format!("{file:?} of shard {} is not open", shard.0));
        }
        inode
    }

    pub(super) fn broken(&mut self, what: String) {
        self.fault.get_or_insert(what);
    }
}
