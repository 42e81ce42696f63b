//! One frame that did not come whole.
//!
//! Its block grows with what came, not with what is claimed: at most sixteen times the bytes that arrived, or 4 KiB. So a large body
//! has its final block as soon as the driver's first buffer of it came, and goes on straight into it; a claim that nothing follows
//! costs next to nothing. A frame that outgrows its block is copied, twice at the most from 64 KiB to 16 MiB.

use ringmain_buffer::{Buf, BufMut, Pool};
use ringmain_types::Account;

const BLOCK_BYTES_MIN: usize = 4 << 10;
const GROWTH: usize = 16;
/// Below this, a receive of its own costs more than a copy.
const DIRECT_BYTES_MIN: usize = 16 << 10;
/// A driver may wait until all of it is there, and a slow sender must show progress meanwhile.
const DIRECT_BYTES_MAX: usize = 256 << 10;

pub(crate) struct Frame {
    bytes: usize,
    store: Store,
    /// What came while there was no block for it: the pool had refused, or the driver had it. At most what receives that were
    /// under way bring, since nothing more is asked for meanwhile. Follows the block's bytes.
    beside: Vec<u8>,
}

enum Store {
    None,
    Block(BufMut),
    /// In the driver's hands, with `have` bytes.
    Lent {
        have: usize,
    },
}

impl Frame {
    pub(crate) fn new(bytes: usize) -> Frame {
        Frame { bytes, store: Store::None, beside: Vec::new() }
    }

    /// Bytes here. What the driver is filling does not count yet; while it is, the next frame's may count too.
    pub(crate) fn have(&self) -> usize {
        let stored = match &self.store {
            Store::None => 0,
            Store::Block(block) => block.len(),
            Store::Lent { have } => *have,
        };
        stored + self.beside.len()
    }

    pub(crate) fn whole(&self) -> bool {
        !self.lent() && self.have() == self.bytes
    }

    pub(crate) fn lent(&self) -> bool {
        matches!(self.store, Store::Lent { .. })
    }

    /// Takes from the front of `bytes` what is this frame's and returns how much that was: all, while the block is lent.
    pub(crate) fn fill(&mut self, pool: &mut Pool, bytes: &[u8]) -> usize {
        if self.lent() {
            self.beside.extend_from_slice(bytes);
            return bytes.len();
        }
        let take = bytes.len().min(self.bytes - self.have());
        let bytes = &bytes[..take];
        if self.room(pool, take) {
            if let Store::Block(block) = &mut self.store {
                block.extend(bytes);
            }
        } else {
            self.beside.extend_from_slice(bytes);
        }
        take
    }

    /// Makes room for `more` bytes and moves what lies beside into the block. False when the pool refuses.
    pub(crate) fn room(&mut self, pool: &mut Pool, more: usize) -> bool {
        let want = self.have() + more;
        let old: &[u8] = match &self.store {
            Store::Block(block) if block.block_bytes() >= want => {
                let Store::Block(block) = &mut self.store else { return false };
                block.extend(&self.beside);
                self.beside = Vec::new();
                return true;
            }
            Store::Block(block) => block,
            Store::None => &[],
            Store::Lent { .. } => return false,
        };
        let size = self.bytes.min(BLOCK_BYTES_MIN.max(want.saturating_mul(GROWTH)));
        let Ok(mut block) = pool.take(Account::Receive, size) else { return false };
        block.extend(old);
        block.extend(&self.beside);
        self.beside = Vec::new();
        self.store = Store::Block(block);
        true
    }

    /// The block and how many bytes should come straight into it, if that is worth a receive.
    pub(crate) fn lend(&mut self) -> Option<(BufMut, usize)> {
        let Store::Block(block) = &self.store else { return None };
        let bytes = (self.bytes - self.have()).min(block.spare()).min(DIRECT_BYTES_MAX);
        if bytes < DIRECT_BYTES_MIN || !self.beside.is_empty() {
            return None;
        }
        let have = block.len();
        match std::mem::replace(&mut self.store, Store::Lent { have }) {
            Store::Block(block) => Some((block, bytes)),
            _ => None,
        }
    }

    /// The block comes back. What came beside meanwhile was received before its new bytes: it is put in front of them. Returns what
    /// is then too much: the next frame's.
    pub(crate) fn take_back(&mut self, mut block: BufMut) -> Vec<u8> {
        let Store::Lent { have } = self.store else { panic!("no block was lent") };
        assert!(block.len() >= have && block.len() <= self.bytes);
        let beside = std::mem::take(&mut self.beside);
        let mut excess = Vec::new();
        if !beside.is_empty() {
            let mut rest = beside;
            rest.extend_from_slice(&block[have..]);
            excess = rest.split_off(rest.len().min(self.bytes - have));
            let over = block.len() - have;
            block.written_mut()[have..].copy_from_slice(&rest[..over]);
            // `lend` asked for no more than fits, but both together may be more than the block holds.
            let fits = (rest.len() - over).min(block.spare());
            block.extend(&rest[over..over + fits]);
            self.beside = rest.split_off(over + fits);
        }
        self.store = Store::Block(block);
        excess
    }

    /// Of a whole frame: its bytes, contiguous.
    pub(crate) fn finish(self) -> Buf {
        assert!(self.whole());
        match self.store {
            Store::Block(block) if self.beside.is_empty() => block.freeze(),
            Store::Block(block) => {
                let mut bytes = block.to_vec();
                bytes.extend_from_slice(&self.beside);
                Buf::from_vec(bytes)
            }
            _ => Buf::from_vec(self.beside),
        }
    }

    /// Bytes are here that the pool had no block for, or the block is full: nothing more should come before `room` succeeds.
    pub(crate) fn cramped(&self) -> bool {
        match &self.store {
            Store::Block(block) => !self.beside.is_empty() || block.spare() == 0,
            // Nothing but its length came: a claim takes no memory.
            Store::None => !self.beside.is_empty(),
            Store::Lent { .. } => false,
        }
    }
}
