//! Zeroes ahead of a fast log's end. What goes into extents that were never written needs a flush of its file beside the journal's, and with
//! it an inode; where zeroes were written and flushed before, the journal's flush covers it.
//!
//! ```text
//! file: [ written | ... end | lead | zeroing ->|   allocated |
//!                                    ^ nothing is written at or behind it until the zeroes are
//! ```
//! One piece of one log of a shard at a time, one write at a time: commits go first. A log that comes to the piece that is being zeroed
//! has outrun the disk, and gets no more of them in that segment: half of what the disk can do would go into zeroes. A spare file's
//! extents were all written before, so this is for logs that have no retention at work yet.

use ringmain_buffer::{Buf, Pool};
use ringmain_disk::{DiskClass, DiskError, DiskKind};
use ringmain_types::*;

use crate::jobs::{Job, Step, Then};
use crate::store::Store;

impl Store {
    /// Begins with the next piece, where one is due.
    pub(crate) fn zero_ahead(&mut self, pool: &mut Pool, id: LogId) {
        let (piece, gather) = (self.config.limits.zero_ahead_bytes, self.config.limits.gather_bytes_max);
        if piece == 0 || self.zeroing || self.closing || !self.config.journal_flush_covers {
            return;
        }
        let Some(segment) = self.log(id).and_then(|log| log.open.back()) else { return };
        let (base, block) = (segment.base, self.block);
        let Some(file) = segment.file_id() else { return };
        if !segment.fast || segment.outran || segment.rolled.is_some() || segment.zeroing.is_some() {
            return;
        }
        let lead = segment.end.max(segment.overwritten).saturating_add(2 * piece) / block * block;
        let on = segment.zeroed.end > segment.end.saturating_add(piece);
        let from = if on { segment.zeroed.end } else { lead };
        let to = from.saturating_add(piece);
        if to > segment.allocated {
            return;
        }
        let Some(zeroes) = self.zeroes(pool, piece.min(gather)) else { return };
        let bytes = piece.min(gather * 4);
        let writes = (from..to).step_by(bytes as usize).map(|at| {
            let mut data = Vec::new();
            let mut left = bytes.min(to - at) as usize;
            while left > 0 {
                data.push(zeroes.slice(0..zeroes.len().min(left)));
                left -= zeroes.len().min(left);
            }
            Step::of(vec![DiskKind::Write { file, position: u64::from(at), data }])
        });
        let flush = DiskKind::Flush { dir: self.config.dir, files: vec![file], after: Vec::new() };
        let steps = writes.chain([Step::of(vec![flush])]).collect();
        self.jobs.add(Job::new(DiskClass::Background, steps, Then::Zeroed(id, base)));
        self.zeroing = true;
        let Some(log) = self.log_mut(id) else { return };
        log.jobs += 1;
        if let Some(segment) = log.segment_mut(base) {
            segment.zeroing = Some(from..to);
        }
    }

    /// The same block again and again; none when there is no memory for it.
    fn zeroes(&mut self, pool: &mut Pool, bytes: u32) -> Option<Buf> {
        if self.zeroes.is_none() {
            let mut block = pool.take(Account::Background, bytes as usize).ok()?;
            block.extend_zeroes(bytes as usize);
            self.zeroes = Some(block.freeze());
        }
        self.zeroes.clone()
    }

    /// A piece is written and flushed, or failed.
    pub(crate) fn zeroed(&mut self, now: Now, id: LogId, base: Offset, error: Option<DiskError>) {
        self.zeroing = false;
        let block = self.block;
        let Some(log) = self.log_any_mut(id) else { return };
        log.jobs -= 1;
        if let Some(segment) = log.segment_mut(base)
            && let Some(piece) = segment.zeroing.take()
        {
            segment.outran |= error.is_some() || segment.end / block * block > piece.start;
            if error.is_none() {
                let start = if segment.zeroed.end == piece.start { segment.zeroed.start } else { piece.start };
                segment.zeroed = start..piece.end;
            }
        }
        self.dirty.insert(id.slot);
        self.settle.insert(id.slot);
        // Without room for zeroes there is none to be had: what the log writes itself says so.
        if let Some(error) = error.filter(|error| error.errno != DiskError::ENOSPC) {
            self.file_failed(now, id, error);
        }
    }
}
