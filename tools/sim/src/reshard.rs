//! What a node does in front of a start with another number of shards, with the real stores: the old ones are opened, each by its
//! journal, and closed; what they say of their logs is dealt by the new number and becomes the beginning of the new generation's
//! journals. The layout is switched last, so an end at any point only means that this is done again.

use std::collections::{BTreeMap, VecDeque};

use ringmain_buffer::Pool;
use ringmain_disk::{DiskDone, DiskError, DiskOp};
use ringmain_log::{LogState, Store, StoreConfig, StoreEvent};
use ringmain_types::{DirId, Limits, Now, ShardId, owner};

use crate::hands::Outside;

/// Which journals are in force: a file of the node's, replaced in one durable step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub generation: u64,
    pub shards: u16,
    /// All shards were ready with it once.
    pub served: bool,
}

/// Disks know drivers by shard; these are the stores' while there are no shards.
const DRIVERS: u16 = 1000;

pub fn driver(shard: ShardId) -> bool {
    shard.0 >= DRIVERS
}

pub enum Outcome {
    /// Called again when an operation is back, and after a while.
    Going,
    Done(Layout),
    /// The node does not start.
    Failed(DiskError),
}

pub struct Reshard {
    old: Layout,
    new: Layout,
    limits: Limits,
    flush_covers: bool,
    /// Stores so far, of the old layout and then of the new one.
    opened: u16,
    open: Option<Open>,
    dealt: BTreeMap<ShardId, Vec<LogState>>,
}

struct Open {
    driver: ShardId,
    store: Store,
    pool: Pool,
    operations: Vec<DiskOp>,
    done: VecDeque<DiskDone>,
}

impl Reshard {
    pub fn new(old: Layout, shards: u16, limits: Limits, flush_covers: bool) -> Reshard {
        let new = Layout { generation: old.generation + 1, shards, served: true };
        Reshard { old, new, limits, flush_covers, opened: 0, open: None, dealt: BTreeMap::new() }
    }

    pub fn new_generation(&self) -> u64 {
        self.new.generation
    }

    pub fn done(&mut self, driver: ShardId, done: DiskDone) {
        if let Some(open) = self.open.as_mut().filter(|open| open.driver == driver) {
            open.done.push_back(done);
        }
    }

    pub fn turn(&mut self, now: Now, outside: &mut Outside) -> Outcome {
        if self.open.is_none() && !self.next() {
            return Outcome::Done(self.new);
        }
        let Some(open) = &mut self.open else { return Outcome::Going };
        let mut events = Vec::new();
        open.pool.collect();
        while let Some(done) = open.done.pop_front() {
            open.store.done(now, &mut open.pool, done, &mut events);
        }
        open.store.finish_turn(now, &mut open.pool, &mut open.operations);
        open.store.events(&mut events);
        outside.submit(open.driver, &mut open.operations);
        for event in events {
            match event {
                StoreEvent::Fenced { error, .. } => return Outcome::Failed(error),
                StoreEvent::Opened => open.store.close(now),
                StoreEvent::Closed => {
                    let states = open.store.export();
                    outside.disk.release_driver(open.driver);
                    self.closed(states);
                    return Outcome::Going;
                }
                _ => {}
            }
        }
        Outcome::Going
    }

    /// Opens the next store; false when there is none.
    fn next(&mut self) -> bool {
        let (layout, shard, exists) = match self.opened.checked_sub(self.old.shards) {
            None => (self.old, ShardId(self.opened), self.old.served),
            Some(at) if at < self.new.shards => (self.new, ShardId(at), false),
            Some(_) => return false,
        };
        let states = if layout == self.new { self.dealt.remove(&shard).unwrap_or_default() } else { Vec::new() };
        let config = StoreConfig {
            shard,
            dir: DirId(0),
            limits: self.limits.clone(),
            seed: 0,
            journal_generation: layout.generation,
            journal_exists: exists,
            journal_flush_covers: self.flush_covers,
        };
        let mut operations = Vec::new();
        let store = Store::open_with(config, states, &mut operations);
        let pool = Pool::new(shard, &self.limits);
        self.open =
            Some(Open { driver: ShardId(DRIVERS + self.opened), store, pool, operations, done: VecDeque::new() });
        self.opened += 1;
        true
    }

    fn closed(&mut self, states: Vec<LogState>) {
        self.open = None;
        if self.opened <= self.old.shards {
            for state in states {
                self.dealt.entry(owner(state.partition, self.new.shards)).or_default().push(state);
            }
        }
    }
}
