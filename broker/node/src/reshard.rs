//! Another number of cores than last time: the logs' states move from the old set of journals to a new one (FAILURES 61).
//!
//! The old stores are opened, each by its journal, and closed; what they say of their logs is dealt by the new number and written as
//! the beginning of the new generation's journals. Until the layout is switched the old set is in force and was not changed in
//! meaning, so a crash at any point only means that this is done again.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use ringmain_buffer::Pool;
use ringmain_disk::{Disk, DiskOp};
use ringmain_log::{LogState, Store, StoreConfig, StoreEvent};
use ringmain_ring::{Event, Ring, RingConfig};
use ringmain_types::{DirId, Limits, ShardId, owner};

use crate::core::now;
use crate::directory::Layout;
use crate::error::StartError;

/// What does not differ between the stores.
pub struct Resharding<'a> {
    pub path: &'a Path,
    pub dir: DirId,
    pub limits: &'a Limits,
    pub direct_io: bool,
    pub journal_flush_covers: bool,
}

impl Resharding<'_> {
    /// Makes the journals of `cores` cores out of those of `old`; returns the layout that is to be switched to.
    pub fn run(&self, old: Layout, cores: usize) -> Result<Layout, StartError> {
        let new = Layout { journal_generation: old.journal_generation + 1, cores, served: true };
        // Of an attempt that did not come to its end: nothing in it is in force.
        let unfinished = self.path.join(format!("journal-{}", new.journal_generation));
        match std::fs::remove_dir_all(&unfinished) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StartError::path("remove unfinished journals in", unfinished, error));
            }
            _ => {}
        }
        let mut dealt: BTreeMap<ShardId, Vec<LogState>> = BTreeMap::new();
        for shard in shards(old.cores) {
            for state in self.store(old, shard, old.served, Vec::new())? {
                dealt.entry(owner(state.partition, cores as u16)).or_default().push(state);
            }
        }
        for shard in shards(cores) {
            self.store(new, shard, false, dealt.remove(&shard).unwrap_or_default())?;
        }
        assert!(dealt.is_empty(), "every log has an owner");
        Ok(new)
    }

    /// Opens a store, closes it, and returns what it knows of its logs.
    fn store(
        &self,
        layout: Layout,
        shard: ShardId,
        journal_exists: bool,
        states: Vec<LogState>,
    ) -> Result<Vec<LogState>, StartError> {
        let failed = |error| StartError::path("open", self.path, error);
        let mut ring = Ring::new(&RingConfig::new(shard, self.limits.open_files_max)).map_err(StartError::IoUring)?;
        ring.add_directory(self.dir, self.path, self.direct_io).map_err(failed)?;
        let config = StoreConfig {
            shard,
            dir: self.dir,
            limits: self.limits.clone(),
            seed: 0,
            journal_generation: layout.journal_generation,
            journal_exists,
            journal_flush_covers: self.journal_flush_covers,
        };
        let mut operations = Vec::new();
        let store = Store::open_with(config, states, &mut operations);
        let mut driven = Driven { store, ring, pool: Pool::new(shard, self.limits), operations };
        driven.until(|event| matches!(event, StoreEvent::Opened))?;
        driven.store.close(now());
        driven.until(|event| matches!(event, StoreEvent::Closed))?;
        Ok(driven.store.export())
    }
}

fn shards(cores: usize) -> impl Iterator<Item = ShardId> {
    (0..cores as u16).map(ShardId)
}

/// A store with hands of its own, outside any shard.
struct Driven {
    store: Store,
    ring: Ring,
    pool: Pool,
    operations: Vec<DiskOp>,
}

impl Driven {
    fn until(&mut self, is_it: impl Fn(&StoreEvent) -> bool) -> Result<(), StartError> {
        loop {
            let mut events = Vec::new();
            self.pool.collect();
            self.store.finish_turn(now(), &mut self.pool, &mut self.operations);
            self.operations.drain(..).for_each(|operation| Disk::submit(&mut self.ring, operation));
            self.store.events(&mut events);
            // The bound is for what the store wants to try again later.
            self.ring.wait(if events.is_empty() { Duration::from_millis(10) } else { Duration::ZERO });
            let (store, pool) = (&mut self.store, &mut self.pool);
            self.ring.poll(&mut |event| {
                if let Event::Disk(done) = event {
                    store.done(now(), pool, done, &mut events);
                }
            });
            for event in &events {
                if let StoreEvent::Fenced { error, .. } = event {
                    let cause = std::io::Error::from_raw_os_error(error.errno);
                    return Err(StartError::path(error.operation, error.path.clone(), cause));
                }
            }
            if events.iter().any(&is_it) {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringmain_batch::{Builder, Codec};
    use ringmain_log::{AppendAs, LogConfig};
    use ringmain_types::{Account, LeaderEpoch, Offset, Partition, PartitionIndex, TopicId, WallMs};

    fn partition(index: i32) -> Partition {
        Partition { topic: TopicId(77 << 64 | 5), index: PartitionIndex(index) }
    }

    /// Makes the logs of `shard` in a directory's first generation, and closes cleanly.
    fn fill(resharding: &Resharding<'_>, layout: Layout, shard: ShardId, logs: i32) {
        let mut ring = Ring::new(&RingConfig::new(shard, 16)).unwrap();
        ring.add_directory(resharding.dir, resharding.path, true).unwrap();
        let config = StoreConfig {
            shard,
            dir: resharding.dir,
            limits: resharding.limits.clone(),
            seed: 0,
            journal_generation: layout.journal_generation,
            journal_exists: false,
            journal_flush_covers: false,
        };
        let mut operations = Vec::new();
        let store = Store::open(config, &mut operations);
        let mut driven = Driven { store, ring, pool: Pool::new(shard, resharding.limits), operations };
        driven.until(|event| matches!(event, StoreEvent::Opened)).unwrap();
        for index in (0..logs).filter(|index| owner(partition(*index), layout.cores as u16) == shard) {
            let log =
                driven.store.create(now(), partition(index), &format!("t-{index}"), LogConfig::keeping_all(1 << 20));
            let mut builder = Builder::new(Codec::None, None);
            (0..=index).for_each(|_| builder.push(WallMs(1), None, Some(b"value"), &[]));
            let into = driven.pool.take(Account::Receive, builder.bytes()).unwrap();
            let (batches, epoch) = (builder.finish(into), LeaderEpoch(1));
            driven.store.append(now(), &mut driven.pool, log, &batches, AppendAs::Leader { epoch }).unwrap();
        }
        driven.store.close(now());
        driven.until(|event| matches!(event, StoreEvent::Closed)).unwrap();
    }

    #[test]
    fn every_log_is_found_by_its_new_owner_and_a_lost_journal_is_an_error() {
        let path = std::env::temp_dir().join(format!("ringmain-reshard-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let mut limits = Limits::production(64 << 20);
        limits.journal_bytes = 1 << 20;
        let dir = DirId(0);
        let resharding = Resharding { path: &path, dir, limits: &limits, direct_io: true, journal_flush_covers: false };
        let mut layout = Layout { journal_generation: 1, cores: 2, served: true };
        shards(2).for_each(|shard| fill(&resharding, layout, shard, 9));
        let expected: Vec<_> = (0..9).map(|index| (partition(index), Offset(i64::from(index) + 1))).collect();
        // The layout is not switched: as if the power went in between, and another number is asked for afterwards.
        resharding.run(layout, 3).unwrap();
        for cores in [1, 3, 2] {
            layout = resharding.run(layout, cores).unwrap();
            let mut found = Vec::new();
            for shard in shards(cores) {
                for state in resharding.store(layout, shard, true, Vec::new()).unwrap() {
                    assert_eq!(owner(state.partition, cores as u16), shard);
                    found.push((state.partition, state.end()));
                }
            }
            found.sort();
            assert_eq!(found, expected, "{cores} cores");
        }
        std::fs::remove_file(path.join("journal-4/1.journal")).unwrap();
        let error = resharding.run(layout, 4).unwrap_err().to_string();
        assert!(error.contains("journal-4/1.journal") && error.contains("No such file"), "{error}");
        std::fs::remove_dir_all(&path).unwrap();
    }
}
