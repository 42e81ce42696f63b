//! One file's content, block by block: what a read sees, and what is sure to be there after a power loss.
//!
//! ```text
//!            write done                 own flush done (started after the write)
//!   in flight ---------> current, dirty ---------------------------------------> durable, mapped
//!                          \ the block was mapped: another file's flush does it too
//!   power loss: each dirty block is kept, lost (what was durable; zeroes or stale bytes if never mapped) or torn, on its own
//! ```
//! A block is *mapped* once a flush of its own file made its extent durable (MEASURED.md: data in allocated or grown extents without
//! their own fdatasync is lost).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::random::Random;

/// One block's bytes. Zeroes are the absence of one.
pub type Bytes = Rc<[u8]>;

#[derive(Clone, Debug)]
struct Current {
    bytes: Bytes,
    /// Its extent is not durable.
    fresh: bool,
}

#[derive(Default, Debug)]
pub struct Media {
    size: u64,
    blocks: BTreeMap<u64, Current>,
    durable_size: u64,
    /// Own flushes that started, and the one that `durable_size` is of: they may end in another order.
    own_flushes: u64,
    sized_by: u64,
    durable: BTreeMap<u64, Bytes>,
    /// Blocks of `blocks` that differ from `durable`, and what they held in between: any of it may be what a power loss leaves.
    dirty: BTreeMap<u64, Vec<Bytes>>,
    /// Something durable was cut away, and perhaps is still.
    cut: bool,
    /// Blocks written since they were allocated or the file was renamed: may not be written again.
    written: BTreeSet<u64>,
}

/// What a flush will make durable: taken when it starts.
#[derive(Debug)]
pub struct Snapshot {
    blocks: Vec<(u64, Bytes)>,
    /// Of the file's own flush: extents and size too, and which of its flushes it is.
    size: Option<(u64, u64)>,
    /// Cut away and not yet durably so, with what is durable there; of the file's own flush.
    cut: Vec<(u64, Bytes)>,
}

impl Media {
    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn dirty(&self) -> bool {
        !self.dirty.is_empty() || self.size != self.durable_size
    }

    pub fn read(&self, block: u64, into: &mut [u8]) {
        match self.blocks.get(&block) {
            Some(current) => into.copy_from_slice(&current.bytes),
            None => into.fill(0),
        }
    }

    pub fn write(&mut self, block: u64, bytes: Bytes) {
        let size = (block + 1) * bytes.len() as u64;
        self.size = self.size.max(size);
        let older = self.dirty.entry(block).or_default();
        match self.blocks.get_mut(&block) {
            Some(current) => older.push(std::mem::replace(&mut current.bytes, bytes)),
            None => {
                self.blocks.insert(block, Current { bytes, fresh: true });
            }
        }
    }

    /// Counts a write against the rule that no block is written twice; false when it was. Zeroes may go ahead of what is written.
    pub fn write_once(&mut self, block: u64, bytes: &[u8]) -> bool {
        let zeroes = bytes.iter().all(|byte| *byte == 0);
        if zeroes { !self.written.contains(&block) } else { self.written.insert(block) }
    }

    /// Another life of the file: recycled under a new name, or opened by a new process.
    pub fn renew(&mut self) {
        self.written.clear();
    }

    pub fn grow(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    pub fn truncate(&mut self, size: u64, block_bytes: u64) {
        let first_gone = size.div_ceil(block_bytes);
        self.blocks.split_off(&first_gone);
        self.dirty.split_off(&first_gone);
        self.cut |= self.durable.range(first_gone..).next().is_some();
        // The block that the cut goes through may be written again, as all behind it.
        self.written.split_off(&(size / block_bytes));
        let inside = (size % block_bytes) as usize;
        if size < self.size && inside > 0 && self.blocks.contains_key(&(size / block_bytes)) {
            let block = size / block_bytes;
            let mut bytes = self.blocks[&block].bytes.to_vec();
            bytes[inside..].fill(0);
            self.write(block, bytes.into());
        }
        self.size = size;
    }

    /// `own`: the flush names this file. Without it only what lies in mapped extents is covered.
    pub fn snapshot(&mut self, own: bool) -> Snapshot {
        let covered = self.dirty.keys().filter_map(|block| {
            let current = &self.blocks[block];
            (own || !current.fresh).then(|| (*block, current.bytes.clone()))
        });
        let blocks = covered.collect();
        let cut = match own && self.cut {
            true => {
                let gone = self.durable.iter().filter(|(block, _)| !self.blocks.contains_key(block));
                gone.map(|(block, bytes)| (*block, bytes.clone())).collect()
            }
            false => Vec::new(),
        };
        self.cut &= !own || !cut.is_empty();
        self.own_flushes += u64::from(own);
        Snapshot { blocks, size: own.then_some((self.own_flushes, self.size)), cut }
    }

    pub fn flushed(&mut self, snapshot: Snapshot) {
        let own = snapshot.size.is_some();
        if let Some((nth, size)) = snapshot.size.filter(|(nth, _)| *nth > self.sized_by) {
            (self.sized_by, self.durable_size) = (nth, size);
        }
        for (block, gone) in snapshot.cut {
            // A flush that started before the block was written anew, and ends after that is durable, takes nothing of it away.
            if self.durable.get(&block).is_some_and(|durable| Rc::ptr_eq(durable, &gone)) {
                self.durable.remove(&block);
            }
        }
        for (block, bytes) in snapshot.blocks {
            let Some(current) = self.blocks.get_mut(&block) else { continue };
            current.fresh &= !own;
            if Rc::ptr_eq(&current.bytes, &bytes) {
                self.dirty.remove(&block);
            } else if let Some(older) = self.dirty.get_mut(&block)
                && let Some(at) = older.iter().position(|version| Rc::ptr_eq(version, &bytes))
            {
                // What was before it can't come back; what came after is still open.
                older.drain(..=at);
            } else {
                // A flush that started earlier and ends later: what is durable by now is newer.
                continue;
            }
            self.durable.insert(block, bytes);
        }
    }

    /// A flush of this file failed, and the device forgot: what was to become durable is as it was before. How many blocks are.
    pub fn dropped(&mut self, snapshot: Snapshot) -> u64 {
        if snapshot.size.is_none() {
            return 0;
        }
        let mut dropped = 0;
        for (block, bytes) in snapshot.blocks {
            let Some(current) = self.blocks.get_mut(&block).filter(|current| Rc::ptr_eq(&current.bytes, &bytes)) else {
                continue;
            };
            match self.durable.get(&block) {
                Some(durable) => current.bytes = durable.clone(),
                None => _ = self.blocks.remove(&block),
            }
            self.dirty.remove(&block);
            dropped += 1;
        }
        dropped
    }

    /// The device loses its power; `stale` is what unwritten extents may show instead of zeroes. Everything left is durable. How many blocks
    /// show something stale.
    pub fn lose_power(&mut self, random: &mut Random, block_bytes: u64, stale: &[Bytes]) -> u64 {
        let mut shown = 0;
        if self.dirty() {
            let mut left = self.durable.clone();
            for (block, older) in std::mem::take(&mut self.dirty) {
                // One that was cut away and not flushed is not in `blocks`; `dirty` has only what is.
                let new = self.blocks[&block].bytes.clone();
                match survivor(random, self.durable.get(&block), &older, new, stale) {
                    Some(bytes) => {
                        let fresh = !self.durable.contains_key(&block);
                        shown += u64::from(fresh && stale.iter().any(|stale| Rc::ptr_eq(stale, &bytes)));
                        left.insert(block, bytes)
                    }
                    None => left.remove(&block),
                };
            }
            if random.chance(0.5) {
                self.durable_size = self.size;
            }
            let end = self.durable_size.div_ceil(block_bytes);
            left.split_off(&end);
            self.durable = left;
        }
        self.size = self.durable_size;
        self.blocks = self
            .durable
            .iter()
            .map(|(block, bytes)| (*block, Current { bytes: bytes.clone(), fresh: false }))
            .collect();
        self.written.clear();
        shown
    }

    /// What a reader sees.
    pub fn content(&self, block_bytes: u64) -> Vec<u8> {
        let mut content = vec![0; self.size as usize];
        for (block, current) in &self.blocks {
            let from = ((block * block_bytes) as usize).min(content.len());
            let bytes = current.bytes.len().min(content.len() - from);
            content[from..from + bytes].copy_from_slice(&current.bytes[..bytes]);
        }
        content
    }

    /// One bit of some block is another, durably. Where, in bytes; none when there is nothing, or when `spared` says so of the content
    /// and the place.
    pub fn rot(&mut self, random: &mut Random, block_bytes: u64, spared: impl Fn(&[u8], u64) -> bool) -> Option<u64> {
        let content = self.content(block_bytes);
        let nth = random.below((self.blocks.len() as u64).max(1)) as usize;
        let (block, current) = self.blocks.iter_mut().nth(nth)?;
        let at = random.below(block_bytes.min(self.size.saturating_sub(block * block_bytes).max(1)));
        if spared(&content, block * block_bytes + at) {
            return None;
        }
        let mut bytes = current.bytes.to_vec();
        bytes[at as usize] ^= 1 << random.below(8);
        current.bytes = bytes.into();
        self.durable.insert(*block, current.bytes.clone());
        self.dirty.remove(block);
        Some(block * block_bytes + at)
    }

    /// What a block holds; none: zeroes.
    pub fn block(&self, block: u64) -> Option<&Bytes> {
        self.blocks.get(&block).map(|current| &current.bytes)
    }

    /// A block holds something else, durably, and nobody was told.
    pub fn replace(&mut self, block: u64, bytes: Option<Bytes>) {
        self.dirty.remove(&block);
        match bytes {
            Some(bytes) => {
                self.blocks.insert(block, Current { bytes: bytes.clone(), fresh: false });
                self.durable.insert(block, bytes);
            }
            None => {
                self.blocks.remove(&block);
                self.durable.remove(&block);
            }
        }
    }

    /// Some of what is durable: stale bytes for others.
    pub fn sample(&self, random: &mut Random) -> Option<Bytes> {
        if self.durable.is_empty() {
            return None;
        }
        let at = random.below(self.durable.len() as u64) as usize;
        self.durable.values().nth(at).cloned()
    }
}

/// What a power loss leaves of one dirty block.
fn survivor(
    random: &mut Random,
    durable: Option<&Bytes>,
    older: &[Bytes],
    new: Bytes,
    stale: &[Bytes],
) -> Option<Bytes> {
    let before = || durable.cloned();
    match random.below(8) {
        0..=2 => Some(new),
        3..=5 => before(),
        6 => {
            // Torn: a front of the new over what was there.
            let mut bytes = before().map_or_else(|| vec![0; new.len()], |bytes| bytes.to_vec());
            let cut = random.below(new.len() as u64) as usize;
            bytes[..cut].copy_from_slice(&new[..cut]);
            Some(bytes.into())
        }
        _ if durable.is_none() && !stale.is_empty() => Some(stale[random.below(stale.len() as u64) as usize].clone()),
        _ if !older.is_empty() => Some(older[random.below(older.len() as u64) as usize].clone()),
        _ => before(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 512;

    fn filled(byte: u8) -> Bytes {
        vec![byte; BLOCK as usize].into()
    }
    fn first(media: &Media, block: u64) -> u8 {
        let mut bytes = vec![0; BLOCK as usize];
        media.read(block, &mut bytes);
        bytes[0]
    }
    fn flush(media: &mut Media, own: bool) {
        let snapshot = media.snapshot(own);
        media.flushed(snapshot);
    }
    /// First bytes of `block` over many power losses.
    fn outcomes(make: impl Fn() -> Media, block: u64) -> BTreeSet<u8> {
        (0..300)
            .map(|seed| {
                let mut media = make();
                media.lose_power(&mut Random::new(seed), BLOCK, &[filled(9)]);
                if media.size() > block * BLOCK { first(&media, block) } else { 255 }
            })
            .collect()
    }

    #[test]
    fn a_fresh_block_needs_its_own_flush() {
        let make = |own: Option<bool>| {
            move || {
                let mut media = Media::default();
                media.grow(4 * BLOCK);
                flush(&mut media, true);
                media.write(1, filled(1));
                if let Some(own) = own {
                    flush(&mut media, own);
                }
                media
            }
        };
        assert_eq!(outcomes(make(None), 1), [0, 1, 9].into());
        assert_eq!(outcomes(make(Some(false)), 1), [0, 1, 9].into());
        assert_eq!(outcomes(make(Some(true)), 1), [1].into());
    }

    #[test]
    fn a_mapped_block_is_covered_by_any_flush() {
        let make = |flushed: bool| {
            move || {
                let mut media = Media::default();
                media.write(0, filled(1));
                flush(&mut media, true);
                media.write(0, filled(2));
                media.write(0, filled(3));
                if flushed {
                    flush(&mut media, false);
                }
                media
            }
        };
        assert_eq!(outcomes(make(false), 0), [1, 2, 3].into());
        assert_eq!(outcomes(make(true), 0), [3].into());
    }

    #[test]
    fn a_write_behind_the_start_of_a_flush_is_not_covered() {
        let mut media = Media::default();
        media.write(0, filled(1));
        let snapshot = media.snapshot(true);
        media.write(0, filled(2));
        media.write(1, filled(2));
        media.flushed(snapshot);
        assert!(media.dirty());
        assert_eq!(media.dirty.keys().copied().collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn a_flush_that_ends_late_takes_nothing_newer_away() {
        let mut media = Media::default();
        media.write(0, filled(1));
        media.write(1, filled(2));
        flush(&mut media, true);
        media.truncate(BLOCK, BLOCK);
        let early = media.snapshot(true);
        media.write(1, filled(3));
        flush(&mut media, true);
        media.flushed(early);
        media.write(0, filled(4));
        media.lose_power(&mut Random::new(1), BLOCK, &[]);
        assert_eq!((media.size(), first(&media, 1)), (2 * BLOCK, 3));
    }

    #[test]
    fn a_cut_is_undone_until_it_is_flushed() {
        let make = |flushed: bool| {
            move || {
                let mut media = Media::default();
                media.write(0, filled(1));
                media.write(1, filled(2));
                flush(&mut media, true);
                media.truncate(BLOCK, BLOCK);
                if flushed {
                    flush(&mut media, true);
                }
                media
            }
        };
        assert_eq!(outcomes(make(false), 1), [2, 255].into());
        assert_eq!(outcomes(make(true), 1), [255].into());
        // Allocated again behind a cut that was not flushed: the extent is a new one.
        let again = || {
            let mut media = make(false)();
            media.write(1, filled(3));
            flush(&mut media, false);
            media
        };
        assert!(outcomes(again, 1).len() > 1);
    }
}
