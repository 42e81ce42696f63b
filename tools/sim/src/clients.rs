//! Clients that speak real frames through `ringmain-wire` and know what they were promised.

mod admin;
mod churn;
mod committer;
mod consumer;
mod line;
mod member;
mod modern;
mod nuisance;
mod producer;
mod trimmer;
mod watcher;

pub use admin::{Admin, By, Wish};
pub use churn::Churn;
pub use committer::Committer;
pub use consumer::{Consumer, Style as ConsumerStyle};
pub use member::Member;
pub use modern::{Modern, SESSION_MS as MODERN_SESSION_MS};
pub use nuisance::Nuisance;
pub use producer::{Producer, Style as ProducerStyle};
pub use trimmer::Trimmer;
pub use watcher::Watcher;

use ringmain_types::WallMs;

use crate::faults::{Plan, WIDE_FROM};
use crate::ledger::{Compacted, Keeping, Ledger};
use crate::network::Link;
use crate::random::Random;
use crate::trace::Trace;

/// What a client has in hand while it runs.
pub struct Context<'a> {
    pub now_ns: u64,
    pub wall: WallMs,
    pub random: &'a mut Random,
    pub ledger: &'a mut Ledger,
    pub trace: Trace,
    pub me: usize,
    pub next_link: &'a mut u64,
    pub actions: Vec<Action>,
    /// Faults are over: finish.
    pub calm: bool,
    /// Whoever pauses does so for this many times as long; 1 once it is calm.
    pub pace: u64,
    /// Since then nothing that faults left behind is under way: what waits does so within its bound. Not said while a process starts or
    /// stops.
    pub quiet_since_ns: Option<u64>,
}

#[derive(Debug)]
pub enum Action {
    Connect(Link),
    Send(Link, Vec<u8>),
    /// Sends no more, behind all that was sent; hears no more.
    Leave(Link),
    /// Wake this client then.
    Wake(u64),
}

impl Context<'_> {
    pub fn connect(&mut self) -> Link {
        let link = Link(*self.next_link);
        *self.next_link += 1;
        self.actions.push(Action::Connect(link));
        link
    }

    /// Nothing was wrong for longer than this.
    pub fn quiet_for(&self, ns: u64) -> bool {
        self.quiet_since_ns.is_some_and(|since| self.now_ns > since.saturating_add(ns))
    }

    pub fn wake_in(&mut self, ns: u64) {
        self.actions.push(Action::Wake(self.now_ns + ns));
    }

    pub fn say(&self, what: impl FnOnce() -> String) {
        let me = self.me;
        self.trace.line(self.now_ns, || format!("client {me}"), what);
    }

    pub fn fail(&mut self, invariant: &'static str, text: String) {
        let me = self.me;
        self.ledger.fail(invariant, format!("client {me}: {text}"));
    }
}

pub trait Client {
    /// Something may be done: at the start, when asked for, and after every event.
    fn poll(&mut self, context: &mut Context<'_>);
    fn received(&mut self, context: &mut Context<'_>, link: Link, bytes: &[u8]);
    fn closed(&mut self, context: &mut Context<'_>, link: Link);
    /// All its work is done and answered.
    fn finished(&self, ledger: &Ledger) -> bool;
    /// What it waits for.
    fn describe(&self) -> String;
}

/// Who was taken out of a history.
pub struct Absent;

impl Client for Absent {
    fn poll(&mut self, _: &mut Context<'_>) {}
    fn received(&mut self, _: &mut Context<'_>, _: Link, _: &[u8]) {}
    fn closed(&mut self, _: &mut Context<'_>, _: Link) {}
    fn finished(&self, _: &Ledger) -> bool {
        true
    }
    fn describe(&self) -> String {
        "nobody".into()
    }
}

/// What the admin shall make of a plan; the first topic is there from the start.
pub fn wishes(random: &mut Random, topics: u32, partitions_max: u64, start_ns: u64, plan: &Plan) -> Vec<Wish> {
    let durable = plan.cut_at.is_some();
    let mut wishes = Vec::new();
    // Of its own: histories without compaction stay what they were.
    let mut compacts = Random::new(plan.seed ^ 0x636f_6d70_6163_7473);
    let mut indexed = Random::new(plan.seed ^ 0x69_6e_64_65_78);
    let often = if compacts.chance(0.5) { 0.7 } else { 0.0 };
    // Of a short history it is the last one, and is compacted as soon as can be: its power is to go in each step of that.
    let often = |at: u32| if !durable { often } else { f32::from(at + 1 == topics) };
    for at in 0..topics {
        let mut configs = Vec::new();
        let by = if at > 0 && random.chance(0.2) { By::Metadata } else { By::CreateTopics };
        let asynchronous = !durable && by == By::CreateTopics && at > 0 && random.chance(0.3);
        if asynchronous {
            configs.push(("flush", "async".to_string()));
        }
        let retained = !durable && by == By::CreateTopics && random.chance(0.2);
        if retained {
            configs.push(("retention.bytes", (8 << 10).to_string()));
        }
        if plan.seed >= WIDE_FROM && by == By::CreateTopics {
            // Entries for each batch, or for every few.
            let interval = [0, 0, 500, 4096][indexed.below(4) as usize];
            configs.push(("index.interval.bytes", interval.to_string()));
        }
        let later = random.below(plan.chaos_ns / 2);
        let compacted = (by == By::CreateTopics && !asynchronous && compacts.chance(often(at)))
            .then(|| if durable { soon(&mut configs) } else { compacted(&mut compacts, &mut configs, retained) });
        wishes.push(Wish {
            by,
            name: format!("topic-{at}"),
            partitions: if by == By::Metadata { 1 } else { random.between(1, partitions_max) as i32 },
            configs,
            keeping: if asynchronous { Keeping::Async } else { Keeping::Group },
            retained,
            compacted,
            not_before_ns: start_ns + if at == 0 || random.chance(0.5) { 0 } else { later },
        });
    }
    if random.chance(0.4) {
        let mut grown = wishes[0].clone();
        grown.by = By::CreatePartitions;
        grown.partitions += random.between(1, 2) as i32;
        grown.not_before_ns += random.below(plan.chaos_ns / 2);
        wishes.push(grown);
    }
    wishes
}

/// A compacted topic that has something to do in a few milliseconds.
fn soon(configs: &mut Vec<(&'static str, String)>) -> Compacted {
    let wanted = [("cleanup.policy", "compact"), ("segment.ms", "1"), ("min.cleanable.dirty.ratio", "0.01")];
    configs.extend(wanted.map(|(name, value)| (name, value.to_string())));
    Compacted { keys: 10, tombstones_stay: true }
}

/// What makes a topic a compacted one, of a few keys, with segments that roll while the history lasts.
fn compacted(random: &mut Random, configs: &mut Vec<(&'static str, String)>, retained: bool) -> Compacted {
    let policy = if retained { "compact,delete" } else { "compact" };
    // A wall that jumps does not jump by a day.
    let tombstones_stay = random.chance(0.5);
    let mut config = |name, value: u64| configs.push((name, value.to_string()));
    config("delete.retention.ms", if tombstones_stay { 86_400_000 } else { random.below(100) });
    config("segment.ms", random.between(1, 60));
    if random.chance(0.2) {
        config("min.compaction.lag.ms", random.between(1, 50));
    }
    if random.chance(0.2) {
        config("max.compaction.lag.ms", random.between(50, 100));
    }
    configs.push(("cleanup.policy", policy.to_string()));
    configs.push(("min.cleanable.dirty.ratio", ["0.01", "0.2", "0.5"][random.below(3) as usize].to_string()));
    Compacted { keys: [3, 10, 200][random.below(3) as usize], tombstones_stay }
}

pub fn producer_style(random: &mut Random, values: (u64, u64)) -> ProducerStyle {
    let idempotent = random.chance(0.6);
    let acks = match random.below(10) {
        0 if !idempotent => 0,
        1..=4 if !idempotent => 1,
        _ => -1,
    };
    let large = random.chance(0.2);
    ProducerStyle {
        idempotent,
        acks,
        version: random.between(3, 13) as i16,
        values: random.between(values.0, values.1) as u32,
        requests_inflight_max: random.between(1, 5) as usize,
        // A batch fits into the smallest segment.
        records_per_batch_max: random.between(1, if large { 2 } else { 8 }),
        value_bytes_max: if large { 3_000 } else { random.between(50, 400) },
        think_ns: (0, [10_000, 1_000_000, 10_000_000][random.below(3) as usize]),
        compressed: if random.chance(0.3) { 0.5 } else { 0.0 },
        stamp_ms: [0, 20, 2_000_000][random.below(3) as usize],
        overreaches: 0.0,
    }
}

pub fn consumer_style(random: &mut Random) -> ConsumerStyle {
    let version = random.between(4, 18) as i16;
    ConsumerStyle {
        version,
        session: version >= 7 && random.chance(0.5),
        rewind: if random.chance(0.5) { 0.05 } else { 0.0 },
        max_wait_ms: [0, 5, 100][random.below(3) as usize],
        bytes_max: [500, 5_000, 1 << 20][random.below(3) as usize],
        list: 0.1,
        greatest: false,
        pause_ns: [0, 2_000_000, 10_000_000][random.below(3) as usize],
    }
}
