//! One shard's memory: accounts that refuse, and blocks that are used again.

use std::sync::Arc;

use ringmain_types::{ACCOUNTS, Account, Limits, ShardId};

use crate::arena::Arenas;
use crate::block::{BLOCK_BYTES_MIN, Block, Buf, BufMut, Memory, Returns};

/// Blocks above this are allocated exactly, by themselves.
const ROUNDED_BYTES_MAX: usize = 1 << 20;
/// What a pool keeps though nobody uses it: a part of it, within these, or all of a small one.
const KEPT_BYTES_MIN: u64 = 16 << 20;
const KEPT_BYTES_MAX: u64 = 32 << 20;

/// An account had no room. Callers wait, shorten or evict; nobody allocates past it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    pub account: Account,
    pub wanted: usize,
    pub left: usize,
}

/// One a shard.
pub struct Pool {
    shard: ShardId,
    used: [u64; ACCOUNTS],
    limit: [u64; ACCOUNTS],
    arenas: Arenas,
    returns: Arc<Returns>,
}

impl Pool {
    pub fn new(shard: ShardId, limits: &Limits) -> Pool {
        let total: u64 = limits.memory_bytes.iter().sum();
        Pool {
            shard,
            used: [0; ACCOUNTS],
            limit: limits.memory_bytes,
            arenas: Arenas::new(total, (total / 16).clamp(KEPT_BYTES_MIN, KEPT_BYTES_MAX) as usize),
            returns: Arc::new(Returns::new()),
        }
    }

    /// A pool that has `count` blocks of `bytes` each for `account`, and nothing else.
    pub fn uniform(shard: ShardId, account: Account, bytes: usize, count: usize) -> Pool {
        let total = block_size(bytes) * count;
        let mut limit = [0; ACCOUNTS];
        limit[account as usize] = total as u64;
        let (used, returns) = ([0; ACCOUNTS], Arc::new(Returns::new()));
        Pool { shard, used, limit, arenas: Arenas::uniform(total), returns }
    }

    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// A block with room for at least `bytes`, charged to `account` by its whole size.
    pub fn take(&mut self, account: Account, bytes: usize) -> Result<BufMut, Refused> {
        let size = block_size(bytes);
        if self.left(account) < size {
            self.collect();
        }
        let left = self.left(account);
        if left < size {
            return Err(Refused { account, wanted: size, left });
        }
        self.used[account as usize] += size as u64;
        let memory = self.arenas.take(size).unwrap_or_else(|| Memory::allocate(size));
        Ok(BufMut::new(Block::new(memory, account, self.returns.clone())))
    }

    /// Whether `account` could ever give a block for `bytes`.
    pub fn fits(&self, account: Account, bytes: usize) -> bool {
        block_size(bytes) as u64 <= self.limit(account)
    }

    /// Moves a block's charge, for instance from Tail to Cache once it is written. Another shard's block is left alone: it is
    /// charged at home.
    pub fn charge(&mut self, buf: &Buf, account: Account) {
        if let Some(block) = buf.block() {
            self.recharge(block, account, buf.block_bytes());
        }
    }

    /// As `charge`, for a block that is still written.
    pub fn charge_mut(&mut self, buf: &BufMut, account: Account) {
        self.recharge(buf.block(), account, buf.block_bytes());
    }

    fn recharge(&mut self, block: &Block, account: Account, bytes: usize) {
        if !block.belongs_to(&self.returns) {
            return;
        }
        let before = block.recharge(account);
        self.used[usize::from(before)] -= bytes as u64;
        self.used[account as usize] += bytes as u64;
    }

    /// Bytes that `account` may still take. A charge that was moved in can exceed the limit; then nothing is left.
    pub fn left(&self, account: Account) -> usize {
        self.limit[account as usize].saturating_sub(self.used[account as usize]) as usize
    }

    pub fn used(&self, account: Account) -> u64 {
        self.used[account as usize]
    }

    pub fn limit(&self, account: Account) -> u64 {
        self.limit[account as usize]
    }

    /// Takes back what was dropped, here or on other cores. Once a turn.
    pub fn collect(&mut self) {
        let returns = self.returns.clone();
        returns.take(|memory, account| {
            self.used[usize::from(account)] -= memory.bytes as u64;
            match memory.arena {
                Some(number) => self.arenas.put(&memory, number),
                None => memory.free(),
            }
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.collect();
        self.returns.keep(self.arenas.take_all());
    }
}

/// The size of the block that holds `bytes`.
fn block_size(bytes: usize) -> usize {
    if bytes <= ROUNDED_BYTES_MAX {
        bytes.next_power_of_two().max(BLOCK_BYTES_MIN)
    } else {
        bytes.next_multiple_of(4096)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // blocks come back from other threads
mod tests {
    use super::*;

    #[test]
    fn a_uniform_pool_has_so_many_blocks_close_together() {
        let mut pool = Pool::uniform(ShardId(0), Account::Receive, 64 << 10, 40);
        let blocks: Vec<BufMut> = std::iter::from_fn(|| pool.take(Account::Receive, 64 << 10).ok()).collect();
        assert_eq!(blocks.len(), 40);
        let mut arenas: Vec<usize> = blocks.iter().map(|block| block.as_ptr().addr() / (2 << 20)).collect();
        arenas.sort_unstable();
        arenas.dedup();
        assert!(cfg!(miri) || arenas.len() == 2, "huge pages: {arenas:?}");
        assert!(pool.take(Account::Tail, 1).is_err(), "of nothing else");
    }

    /// Sizes on both sides of where blocks are mapped by themselves; freed on another thread.
    #[test]
    fn the_largest_blocks_are_zeroed_aligned_and_whole() {
        let limits = Limits { memory_bytes: [16 << 20; ringmain_types::ACCOUNTS], ..Limits::tiny() };
        let mut pool = Pool::new(ShardId(0), &limits);
        for bytes in [2 << 20, (2 << 20) + 512, (3 << 20) + 4096] {
            let mut block = pool.take(Account::Receive, bytes).unwrap();
            assert_eq!(block.as_ptr().addr() % 4096, 0);
            assert!(block.spare_mut().iter().step_by(512).all(|byte| *byte == 0));
            block.extend(&vec![7; bytes]);
            let frozen = block.freeze();
            std::thread::spawn(move || assert_eq!((frozen.len(), frozen[bytes - 1]), (bytes, 7))).join().unwrap();
            pool.collect();
            assert_eq!(pool.left(Account::Receive), 16 << 20, "all of it is back");
        }
    }

    #[test]
    fn an_account_refuses_and_takes_back() {
        let mut pool = Pool::new(ShardId(0), &Limits::tiny());
        let limit = pool.limit(Account::Cache) as usize;
        let held: Vec<BufMut> = std::iter::from_fn(|| pool.take(Account::Cache, 4096).ok()).collect();
        assert_eq!(held.len(), limit / 4096);
        assert_eq!(
            pool.take(Account::Cache, 1).unwrap_err(),
            Refused { account: Account::Cache, wanted: 512, left: 0 }
        );
        assert!(pool.take(Account::Tail, 1).is_ok(), "accounts do not share");
        std::thread::spawn(move || drop(held)).join().unwrap();
        assert_eq!(pool.left(Account::Cache), 0, "what came back counts from the next collect on");
        pool.collect();
        assert_eq!(pool.left(Account::Cache), limit);
    }

    #[test]
    fn frozen_bytes_are_shared_and_the_writer_goes_on() {
        let mut pool = Pool::new(ShardId(0), &Limits::tiny());
        let mut writer = pool.take(Account::Tail, 1000).unwrap();
        writer.extend(b"abcdef");
        let front = writer.freeze_to(4);
        writer.extend(b"gh");
        writer.written_mut()[0] = b'E';
        assert_eq!((&front[..], &writer[..]), (&b"abcd"[..], &b"Efgh"[..]));
        let whole = writer.freeze();
        assert!(whole.same_block(&front));
        assert_eq!(whole.slice_of(&whole[1..3]), whole.slice(1..3));
        pool.charge(&front, Account::Reply);
        assert_eq!((pool.used(Account::Tail), pool.used(Account::Reply)), (0, 1024));
        drop((front, whole));
        pool.collect();
        assert_eq!(pool.used(Account::Reply), 0);
    }

    #[test]
    fn a_vec_becomes_a_buffer_in_place() {
        let mut bytes = Vec::with_capacity(700);
        bytes.extend_from_slice(b"abcdef");
        let pointer = bytes.as_ptr();
        let buf = Buf::from_vec(bytes);
        let part = buf.slice(2..4);
        assert_eq!((buf.as_ptr(), buf.block_bytes()), (pointer, 700));
        drop(buf);
        std::thread::spawn(move || assert_eq!(&part[..], b"cd")).join().unwrap();
        assert_eq!(Buf::from_vec(Vec::with_capacity(9)).block_bytes(), 0, "nothing is held for nothing");
        let mut pool = Pool::new(ShardId(0), &Limits::tiny());
        pool.charge(&Buf::from_vec(vec![1]), Account::Reply);
        assert_eq!(pool.used(Account::Reply), 0, "it is no pool's");
    }
}
