//! Batches in memory that the files have too, in the order in which they may go.

use std::collections::BTreeMap;

use ringmain_buffer::{Buf, Pool};
use ringmain_types::*;

use crate::log::Cached;
use crate::store::Store;

#[derive(Debug)]
pub(crate) struct Cache {
    /// What it may keep: the account's limit once files were read, little while nobody reads what it could not give.
    goal_bytes: u64,
    next: u64,
    /// Oldest first: log, segment and position.
    order: BTreeMap<u64, (LogId, Offset, u32)>,
}

impl Cache {
    pub fn new(limits: &Limits) -> Cache {
        Cache { goal_bytes: limits.cache_bytes_min, next: 0, order: BTreeMap::new() }
    }

    /// What these were of is gone.
    pub fn forget(&mut self, orders: impl Iterator<Item = u64>) {
        for order in orders {
            self.order.remove(&order);
        }
    }

    /// So many bytes came from a file: a larger cache might have had them.
    pub fn missed(&mut self, bytes: u32) {
        self.goal_bytes = self.goal_bytes.saturating_add(u64::from(bytes));
    }
}

impl Store {
    /// Whole batches of a segment from `first` on, whose bytes the file has.
    pub(crate) fn cache_insert(&mut self, pool: &mut Pool, id: LogId, base: Offset, first: u32, data: Buf) {
        pool.charge(&data, Account::Cache);
        self.cache.next += 1;
        let order = self.cache.next;
        let Some(log) = self.log_mut(id) else { return };
        let before = log.cache.insert((base, first), Cached { data, order });
        if let Some(before) = before {
            self.cache.order.remove(&before.order);
        }
        self.cache.order.insert(order, (id, base, first));
    }

    /// Drops the oldest until the account is within the cache's goal and its limit.
    pub(crate) fn evict(&mut self, pool: &mut Pool) {
        for (id, base, first, data) in std::mem::take(&mut self.cache_later) {
            self.cache_insert(pool, id, base, first, data);
        }
        let goal = self.cache.goal_bytes.min(pool.limit(Account::Cache));
        let over = pool.used(Account::Cache).saturating_sub(goal);
        if over > 0 {
            self.evict_bytes(pool, over as usize);
        }
    }

    /// Drops the oldest until about `bytes` are free; what readers still hold counts until they let go.
    pub(crate) fn evict_bytes(&mut self, pool: &mut Pool, bytes: usize) {
        let mut freed = 0;
        while freed < bytes {
            let Some((_, (id, base, first))) = self.cache.order.pop_first() else { break };
            if let Some(cached) = self.log_any_mut(id).and_then(|log| log.cache.remove(&(base, first))) {
                freed += cached.data.block_bytes();
            }
        }
        pool.collect();
    }
}
