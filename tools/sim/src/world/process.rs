//! The broker's lives: starts, with another number of shards perhaps, stops, and ends of all kinds.

use std::collections::{BTreeMap, VecDeque};

use ringmain_disk::DiskError;
use ringmain_log::CompactionStats;
use ringmain_shard::{Config, Effects, Shard};
use ringmain_types::{BrokerId, DirId, ShardId};

use super::phases::Phase;
use super::{Core, SHARDS_MAX, START_NS_MAX, World};
use crate::clients;
use crate::events::Event;
use crate::faults::{Groups, Strike};
use crate::groups;
use crate::hands::Arrived;
use crate::ledger::Rot;
use crate::reshard::{Outcome, Reshard};

impl World {
    pub(super) fn start(&mut self) {
        if self.running || self.resharding.is_some() {
            return;
        }
        self.report.starts += 1;
        let (now_ns, listing) = (self.outside.now_ns, || format!("==== start on {:?}", self.outside.disk.listing()));
        self.outside.trace.line(now_ns, || "world".into(), listing);
        self.start_until_ns = self.outside.now_ns + START_NS_MAX;
        let mut shards = self.layout.shards;
        if self.plan.reshards && self.report.starts > 1 && self.outside.random.chance(0.4) {
            shards = self.outside.random.between(1, u64::from(SHARDS_MAX)) as u16;
        }
        if shards == self.layout.shards {
            return self.start_shards();
        }
        let text = || format!("==== from {} shards to {shards}", self.layout.shards);
        self.outside.trace.line(self.outside.now_ns, || "world".into(), text);
        let resharding = Reshard::new(self.layout, shards, self.plan.limits.clone(), self.plan.flush_covers);
        // What an earlier attempt left.
        self.remove_journals(resharding.new_generation());
        self.resharding = Some(Box::new(resharding));
        self.reshard_at(self.outside.now_ns + 1_000);
    }

    pub(super) fn reshard_at(&mut self, at_ns: u64) {
        if at_ns < self.reshard_ns {
            self.reshard_ns = at_ns;
            self.outside.events.push(at_ns, Event::Reshard);
        }
    }

    pub(super) fn reshard_turn(&mut self) {
        self.reshard_ns = u64::MAX;
        let now = self.now();
        let Some(mut resharding) = self.resharding.take() else { return };
        match resharding.turn(now, &mut self.outside) {
            Outcome::Going => {
                self.resharding = Some(resharding);
                self.reshard_at(self.outside.now_ns + 10_000_000);
            }
            Outcome::Done(layout) => {
                self.layout = layout;
                self.report.reshards += 1;
                self.start_shards();
            }
            Outcome::Failed(error) => {
                self.resharding = Some(resharding);
                self.fenced(&error);
            }
        }
    }

    fn start_shards(&mut self) {
        let now = self.now();
        // A node takes its seed anew at each start.
        let seed = self.outside.random.next();
        self.cores.clear();
        for shard in 0..self.layout.shards {
            let mut effects = Effects::default();
            let config = self.config(ShardId(shard), seed);
            let shard = Shard::open(config, now, &mut effects);
            self.cores.push(Core {
                shard: Some(shard),
                inbox: VecDeque::new(),
                effects,
                next_turn_ns: u64::MAX,
                paused_until_ns: 0,
                group: 0,
                ready: false,
                stopped: false,
                compaction: CompactionStats::default(),
            });
        }
        for shard in 0..self.layout.shards {
            // What `open` put into its effects leaves with the first turn.
            let at = self.outside.now_ns + 1 + self.outside.random.below(10_000);
            self.turn_at(ShardId(shard), at);
        }
        self.running = true;
    }

    fn config(&self, shard: ShardId, seed: u64) -> Config {
        Config {
            broker: BrokerId(1),
            shard,
            shards: self.layout.shards,
            dir: DirId(0),
            limits: self.plan.limits.clone(),
            seed,
            journal_generation: self.layout.generation,
            journal_flush_covers: self.plan.flush_covers,
            cluster_id: "simulated-cluster-0001".into(),
            advertised: ("sim".into(), 9092),
            journal_exists: self.layout.served,
            dir_path: "/sim".into(),
            properties: properties(&self.plan.work.groups),
        }
    }

    pub(super) fn stop(&mut self) {
        self.stopping = true;
        self.start_until_ns = self.outside.now_ns + START_NS_MAX;
        self.outside.trace.line(self.outside.now_ns, || "world".into(), || "==== stop, please".into());
        for shard in 0..self.layout.shards {
            self.arrive(ShardId(shard), Arrived::Stop);
        }
    }

    /// The process is gone, one way or the other; it comes back a little later.
    pub(super) fn end_process(&mut self, how: Strike) {
        self.hit(how);
        let outside = &mut self.outside;
        outside.events.life += 1;
        for core in &mut self.cores {
            core.shard = None;
            core.inbox.clear();
            core.effects = Effects::default();
        }
        for connection in outside.network.all() {
            let at = outside.network.client_at(outside.now_ns, &mut outside.random, connection);
            if let Some((link, client)) = outside.network.close(connection) {
                outside.events.push(at.unwrap_or(outside.now_ns), Event::ClientClosed { client, link });
            }
        }
        outside.mesh.reset();
        let (troubled, in_flight) = (outside.disk.troubled, outside.disk.in_flight());
        match how {
            Strike::PowerLoss => outside.disk.lose_power(&mut outside.random),
            _ => outside.disk.kill(&mut outside.random),
        }
        if how == Strike::CleanStop && !troubled {
            if in_flight > 0 {
                self.ledger.fail("a clean stop leaves nothing in flight", String::new());
            }
        } else {
            self.ledger.crashed();
        }
        if self.phase == Phase::Rot && self.ledger.rot.is_none() {
            self.rot();
        }
        let outside = &mut self.outside;
        self.visible.clear();
        self.running = false;
        self.restart_due = false;
        self.resharding = None;
        self.reshard_ns = u64::MAX;
        self.stopping = false;
        self.start_until_ns = u64::MAX;
        let at = outside.now_ns + outside.random.between(100_000, 30_000_000);
        outside.events.push(at, Event::Start);
    }

    /// A shard fenced its directory.
    pub(super) fn fenced(&mut self, error: &DiskError) {
        // What is not whole is not begun with: named, and nothing is made of it.
        let of_journal = |rot: &&Rot| rot.paths.iter().any(|path| path.ends_with(".journal"));
        if let Some(rot) = self.ledger.rot.as_ref().filter(of_journal) {
            if error.errno != DiskError::DAMAGED || !rot.paths.iter().any(|path| error.path.contains(path)) {
                self.ledger.fail("rot is named", format!("{error}, {rot:?}"));
            }
            self.ledger.reach("rot: a journal refused");
            self.phase = Phase::End;
            return;
        }
        if !self.outside.disk.troubled {
            return self.ledger.fail("no disk failed here", format!("{error}"));
        }
        if error.errno == DiskError::ENOSPC && self.serving() {
            return self.ledger.fail("a full disk fences nothing", format!("{error}"));
        }
        self.ledger.reach("directories fenced");
        self.restart_soon();
    }

    /// All shards are ready, and stay.
    pub(super) fn serving(&self) -> bool {
        self.running && !self.stopping && self.cores.iter().all(|core| core.ready)
    }

    pub(super) fn served(&mut self) {
        if let Some(rot) = self.ledger.rot.as_ref().filter(|rot| rot.fatal) {
            let text = format!("a start without what stood in {:?}", rot.paths);
            return self.ledger.fail("a journal that is not whole is refused", text);
        }
        self.start_until_ns = u64::MAX;
        if self.quiet_since_ns < u64::MAX {
            self.quiet_since_ns = self.quiet_since_ns.max(self.outside.now_ns);
        }
        self.layout.served = true;
        let kept = self.layout.generation;
        (1..=kept + 1).filter(|generation| *generation != kept).for_each(|generation| self.remove_journals(generation));
    }

    fn remove_journals(&mut self, generation: u64) {
        self.outside.disk.remove_tree(&format!("journal-{generation}"));
    }

    /// Whoever looks after the broker sees what is wrong.
    pub(super) fn restart_soon(&mut self) {
        if !self.restart_due {
            self.restart_due = true;
            let at = self.outside.now_ns + self.outside.random.between(100_000, 60_000_000);
            self.outside.events.push(at, Event::Restart);
        }
    }

    pub(super) fn restart(&mut self) {
        self.restart_due = false;
        if self.stopping {
            return;
        }
        if self.resharding.is_some() || !self.serving() || self.outside.random.chance(0.5) {
            self.end_process(Strike::Kill);
        } else {
            self.stop();
        }
    }
}

/// Coordinators in the time of these histories, and few of them.
fn properties(groups: &Groups) -> BTreeMap<String, String> {
    let (session, offsets) = (clients::MODERN_SESSION_MS.to_string(), groups::OFFSETS_PARTITIONS.to_string());
    let given = [
        ("offsets.topic.num.partitions", offsets.as_str()),
        ("group.min.session.timeout.ms", "10"),
        ("group.initial.rebalance.delay.ms", "20"),
        ("group.consumer.min.session.timeout.ms", "10"),
        ("group.consumer.session.timeout.ms", &session),
        ("group.consumer.min.heartbeat.interval.ms", "10"),
        ("group.consumer.heartbeat.interval.ms", "50"),
        ("group.consumer.assignment.interval.ms", "20"),
    ];
    let mut properties: BTreeMap<String, String> =
        given.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    if groups.roll_ms > 0 {
        properties.insert("log.roll.ms".into(), groups.roll_ms.to_string());
        properties.insert("log.cleaner.min.cleanable.ratio".into(), "0.01".into());
        properties.insert("log.cleaner.delete.retention.ms".into(), groups.tombstones_ms.to_string());
    }
    properties
}
