//! One broker of several shards, its disk, its clients, one clock, one seed.
//!
//! ```text
//! chaos: clients work, faults strike -> calm: no faults, everything pending ends -> audit: a fresh reader reads it all
//!   -> clean stop, start, audit again -> end
//! ```

mod cast;
mod phases;
mod process;
mod rot;

use std::collections::{BTreeMap, VecDeque};

use ringmain_log::{CompactionStats, Damage};
use ringmain_session::Close;
use ringmain_shard::{Effects, Note, Shard, turn};
use ringmain_types::{ErrorCode, Instant, Now, Offset, Partition, ShardId, WallMs};

use crate::clients::{Action, Client, Context};
use crate::coverage::{self, Fault, Hits};
use crate::digest::Digest;
use crate::disk::{self, SimDisk};
use crate::events::{Event, Events};
use crate::faults::{Plan, Strike};
use crate::hands::{Arrived, Outside, SimHands};
use crate::images::Images;
use crate::ledger::{Broken, Ledger};
use crate::mesh::SimMesh;
use crate::network::{self, Network};
use crate::random::Random;
use crate::reshard::{self, Layout, Reshard};
use crate::trace::Trace;
use cast::cast;
use phases::Phase;

/// 2026-01-01.
const WALL_START_MS: i64 = 1_767_225_600_000;
/// No pause or stall lasts longer once nothing new goes wrong; and after a full disk, whose broker looks once a second for space.
const AFTERMATH_NS: u64 = 500_000_000;
const AFTERMATH_FULL_NS: u64 = 1_500_000_000;
/// How long after a change of names its power loss comes, at most; and how many of these there are in a history.
const AIMED_NS_MAX: u64 = 20_000_000;
const AIMED_MAX: u32 = 4;
/// A start, up to `Note::Ready` of every shard, and a clean stop.
const START_NS_MAX: u64 = 20_000_000_000;
const SHARDS_MAX: u16 = 3;
/// Far above what any history needs: past it, something spins.
const STEPS_MAX: u64 = 2_000_000;

/// A promise was broken.
#[derive(Clone, Debug)]
pub struct Violation {
    pub seed: u64,
    pub at_ns: u64,
    pub invariant: String,
    pub text: String,
}

#[derive(Clone, Debug, Default)]
pub struct Report {
    pub digest: u64,
    pub steps: u64,
    pub virtual_ns: u64,
    pub acked: u64,
    pub read: u64,
    pub disk: disk::Counts,
    pub mesh: u64,
    /// Points at which power could have been cut.
    pub points: u64,
    pub starts: u32,
    /// Starts with another number of shards.
    pub reshards: u32,
    /// Everybody took his time.
    pub paced: bool,
    pub strikes: BTreeMap<Strike, u32>,
    pub faults: Vec<Fault>,
    /// States that are worth reaching.
    pub reached: BTreeMap<&'static str, u64>,
    /// By request: the slowest while faults were quiet, beyond what it wished to wait.
    pub slowest_ns: BTreeMap<&'static str, u64>,
    /// The cut that was planned has come.
    pub cut: bool,
}

struct Core {
    shard: Option<Shard>,
    inbox: VecDeque<Arrived>,
    effects: Effects,
    /// `u64::MAX`: none.
    next_turn_ns: u64,
    /// Until then it does not run.
    paused_until_ns: u64,
    /// The newest group of its journal that was looked at.
    group: u64,
    ready: bool,
    stopped: bool,
    compaction: CompactionStats,
}

pub struct World {
    plan: Plan,
    outside: Outside,
    cores: Vec<Core>,
    clients: Vec<Box<dyn Client>>,
    auditors: usize,
    ledger: Ledger,
    visible: BTreeMap<Partition, Offset>,
    images: Images,
    next_link: u64,
    wall_jump_ms: i64,
    /// Power losses behind a change of names, so far.
    aimed: u32,
    /// Of the present life, and what the next one finds.
    layout: Layout,
    resharding: Option<Box<Reshard>>,
    reshard_ns: u64,
    /// The process is to be started anew, for its disk failed.
    restart_due: bool,
    phase: Phase,
    phase_until_ns: u64,
    /// From then on nothing that faults left is under way, if the process serves.
    quiet_since_ns: u64,
    start_until_ns: u64,
    /// A clean stop is under way.
    stopping: bool,
    running: bool,
    /// Somebody may have got further since it was last asked whether all are done.
    stirred: bool,
    report: Report,
}

impl World {
    pub fn new(plan: Plan, trace: Trace) -> World {
        let mut random = Random::new(plan.seed ^ 0x0077_6f72_6c64);
        let faults = &plan.faults;
        let manner = disk::Manner {
            block_bytes: plan.limits.block_bytes,
            flush_covers: plan.flush_covers,
            latency_ns: faults.disk_latency_ns,
            stall: faults.disk_stall,
            stall_ns: (1_000_000, 100_000_000),
            reordered: faults.completions_reordered,
            errors: faults.disk_errors,
            remembers: plan.misdirects,
        };
        let network = network::Manner {
            latency_ns: faults.network_latency_ns,
            split: faults.bytes_split,
            slow: faults.wide.slow,
            dribbles: faults.wide.dribbles,
        };
        let mut outside = Outside {
            now_ns: 1_000_000_000,
            random: course(&mut random, plan.less.salt),
            events: Events::default(),
            disk: SimDisk::new(manner),
            mesh: SimMesh::new(faults.mesh_delay_ns, plan.limits.calls_inflight_max),
            network: Network::new(network, SHARDS_MAX, Random::new(plan.seed ^ 0x006e_6574_776f_726b)),
            digest: Digest::default(),
            trace,
            points: 0,
            cut_at: plan.cut_at,
            cut: false,
            fault: None,
        };
        let start_ns = outside.now_ns;
        outside.events.push(start_ns, Event::Start);
        let chaos_ns = plan.less.chaos_us.map_or(plan.chaos_ns, |less| plan.chaos_ns.min(less * 1_000));
        outside.events.push(start_ns + chaos_ns, Event::Calm);
        outside.disk.hostile = true;
        let clients = cast(&plan, &mut random, start_ns);
        for client in 0..clients.len() {
            outside.events.push(start_ns + random.below(5_000_000), Event::Wake { client });
        }
        for (strike, mean_ns) in faults.strikes().into_iter().filter(|(_, mean_ns)| *mean_ns > 0) {
            let at = start_ns + random.below(2 * mean_ns);
            if !plan.less.strikes.contains(&strike) {
                outside.events.push(at, Event::Strike(strike));
            }
        }
        World {
            outside,
            cores: Vec::new(),
            clients,
            auditors: 0,
            ledger: Ledger::new(plan.tight),
            visible: BTreeMap::new(),
            images: Images::default(),
            next_link: 1,
            wall_jump_ms: 0,
            aimed: 0,
            layout: Layout { generation: 1, shards: plan.shards, served: false },
            resharding: None,
            reshard_ns: u64::MAX,
            restart_due: false,
            phase: Phase::Chaos,
            phase_until_ns: u64::MAX,
            quiet_since_ns: u64::MAX,
            start_until_ns: u64::MAX,
            stopping: false,
            running: false,
            stirred: true,
            report: Report::default(),
            plan,
        }
    }

    /// To the end of the history.
    pub fn run(mut self) -> Result<Report, Violation> {
        while self.phase != Phase::End {
            self.step()?;
        }
        if let Some(Broken { invariant, text }) = self.ledger.broken() {
            return Err(self.violation(invariant, text));
        }
        let mut digest = self.outside.digest;
        digest.number(self.outside.disk.digest.0);
        let counts = &self.outside.disk.counts;
        let disk = [
            ("failed writes", counts.write_errors),
            ("failed flushes", counts.flush_errors),
            ("failed reads", counts.read_errors),
            ("failed names and sizes", counts.other_errors),
            ("blocks dropped by failed flushes", counts.dropped_blocks),
            ("no space", counts.no_space),
            ("stale blocks after power losses", counts.stale_blocks),
            ("files made spare", counts.spared),
            ("spare files used again", counts.reused),
            ("zeroes ahead of a log's end", counts.zeroed),
            ("a pair of shards with no slot left", self.outside.mesh.full),
        ];
        let mut reached = std::mem::take(&mut self.ledger.reached);
        reached.extend(disk.into_iter().filter(|(_, count)| *count > 0));
        let network = &self.outside.network;
        let hits = Hits {
            reshards: u64::from(self.report.reshards),
            rot: u64::from(self.ledger.rot.is_some() && self.plan.rots),
            misdirected: u64::from(self.ledger.rot.is_some() && self.plan.misdirects),
            split: network.split,
            slow: network.slow,
            dribbled: network.dribbled,
            nuisances: reached.iter().filter(|(what, _)| what.starts_with("nuisances")).map(|(_, count)| count).sum(),
            mesh: self.outside.mesh.messages,
        };
        Ok(Report {
            faults: coverage::faults(&self.plan, &self.report.strikes, counts, hits),
            paced: self.plan.faults.wide.pace > 1,
            reached,
            slowest_ns: std::mem::take(&mut self.ledger.slowest_ns),
            digest: digest.0,
            virtual_ns: self.outside.now_ns,
            acked: self.ledger.acked,
            read: self.ledger.read,
            disk: self.outside.disk.counts,
            mesh: self.outside.mesh.messages,
            points: self.outside.points,
            cut: self.outside.cut_at.is_some_and(|at| at <= self.outside.points),
            ..self.report
        })
    }

    /// The earliest event.
    fn step(&mut self) -> Result<(), Violation> {
        let Some((at_ns, life, event)) = self.outside.events.pop() else {
            return Err(self.violation("something is always to come", "no event is left".into()));
        };
        self.outside.now_ns = self.outside.now_ns.max(at_ns);
        self.report.steps += 1;
        self.ledger.stopping = self.stopping;
        self.ledger.late = life != self.outside.events.life;
        self.ledger.troubled = self.outside.disk.troubled;
        self.ledger.was_troubled |= self.outside.disk.troubled;
        // Of these nobody hears but by a shard's note, or by an event of his own.
        self.stirred |= !matches!(
            event,
            Event::Turn(_) | Event::Disk(_) | Event::Mesh(_) | Event::ToServer { .. } | Event::Sent { .. }
        );
        self.play(at_ns, event);
        if self.outside.cut {
            self.outside.cut = false;
            self.end_process(Strike::PowerLoss);
        }
        self.judge()
    }

    fn judge(&mut self) -> Result<(), Violation> {
        if let Some(what) = self.outside.fault.take().or_else(|| self.outside.disk.fault.take()) {
            return Err(self.violation("the seams' rules", what));
        }
        if let Some(Broken { invariant, text }) = self.ledger.broken() {
            return Err(self.violation(invariant, text));
        }
        if self.report.steps > STEPS_MAX {
            return Err(self.violation("nothing spins", format!("{STEPS_MAX} steps")));
        }
        let now_ns = self.outside.now_ns;
        if now_ns > self.start_until_ns {
            let what = if self.stopping { "a clean stop ends" } else { "a start ends" };
            let slow: Vec<_> = self.cores.iter().map(|core| (core.ready, core.stopped)).collect();
            return Err(self.violation(what, format!("after {START_NS_MAX} ns (ready, stopped): {slow:?}")));
        }
        if now_ns > self.phase_until_ns {
            let open = self.clients.iter().filter(|client| !client.finished(&self.ledger));
            let pending: Vec<_> = open.map(|client| client.describe()).collect();
            return Err(self.violation("everything pending ends", format!("{:?}: {pending:?}", self.phase)));
        }
        self.advance();
        Ok(())
    }

    fn violation(&self, invariant: &str, text: String) -> Violation {
        Violation { seed: self.plan.seed, at_ns: self.outside.now_ns, invariant: invariant.into(), text }
    }

    fn play(&mut self, at_ns: u64, event: Event) {
        match event {
            Event::Turn(shard) => {
                let core = &mut self.cores[usize::from(shard.0)];
                if core.next_turn_ns == at_ns {
                    core.next_turn_ns = u64::MAX;
                    if at_ns < core.paused_until_ns {
                        let at = core.paused_until_ns;
                        self.turn_at(shard, at);
                    } else {
                        self.turn(shard);
                    }
                }
            }
            Event::Disk(operation) => self.disk_done(operation),
            Event::Mesh(ring) => {
                if let Some(message) = self.outside.mesh.deliver(ring) {
                    self.arrive(ring.to, Arrived::Mesh { from: ring.from, message });
                }
            }
            Event::ToServer { link, bytes } => {
                if let Some(connection) = self.outside.network.find(link)
                    && self.outside.network.arrived(connection, &bytes)
                {
                    self.arrive(connection.shard, Arrived::Readable(connection));
                }
            }
            Event::ToClient { client, link, bytes } => self.client(client, |c, cx| c.received(cx, link, &bytes)),
            Event::Sent { connection, bytes } => self.arrive(connection.shard, Arrived::Sent { connection, bytes }),
            Event::ClientEnded { connection } => {
                if self.outside.network.ended(connection) {
                    self.arrive(connection.shard, Arrived::Readable(connection));
                }
            }
            Event::ClientClosed { client, link } => self.client(client, |c, cx| c.closed(cx, link)),
            Event::Wake { client } => self.client(client, |_, _| {}),
            Event::Strike(strike) => self.strike(strike),
            Event::Aimed => self.aimed(),
            Event::Start => self.start(),
            Event::Reshard if self.reshard_ns == at_ns => self.reshard_turn(),
            Event::Reshard => {}
            Event::Restart => self.restart(),
            Event::Space => self.outside.disk.full = false,
            Event::Calm => {
                (self.outside.disk.hostile, self.outside.disk.full) = (false, false);
                self.outside.network.calm = true;
                let was_full = self.report.strikes.contains_key(&Strike::DiskFull);
                self.quiet_since_ns = self.outside.now_ns + if was_full { AFTERMATH_FULL_NS } else { AFTERMATH_NS };
                self.phase(Phase::Calm);
            }
        }
    }

    fn now(&self) -> Now {
        let wall = WALL_START_MS + (self.outside.now_ns / 1_000_000) as i64 + self.wall_jump_ms;
        Now { mono: Instant(self.outside.now_ns), wall: WallMs(wall) }
    }

    fn disk_done(&mut self, operation: disk::Operation) {
        let outside = &mut self.outside;
        let mut due = Vec::new();
        let named = outside.disk.counts.named;
        let done = outside.disk.complete(outside.now_ns, &mut outside.random, operation, &mut due);
        for (at, operation) in due {
            outside.events.push(at, Event::Disk(operation));
        }
        // Done, but the shard does not hear of it.
        if outside.point() {
            return;
        }
        let aimed = match self.plan.less.strikes.contains(&Strike::PowerLoss) {
            true => 0.0,
            false => self.plan.faults.wide.aimed,
        };
        if aimed > 0.0 && outside.disk.counts.named > named && outside.random.chance(aimed) {
            let at = outside.now_ns + outside.random.skewed(1_000, AIMED_NS_MAX);
            outside.events.push(at, Event::Aimed);
        }
        match done {
            Some((driver, done)) if reshard::driver(driver) => {
                if let Some(resharding) = &mut self.resharding {
                    resharding.done(driver, done);
                    let at = self.outside.now_ns + 1_000 + self.outside.random.below(20_000);
                    self.reshard_at(at);
                }
            }
            Some((shard, done)) => self.arrive(shard, Arrived::Disk(done)),
            None => {}
        }
    }

    fn arrive(&mut self, shard: ShardId, arrived: Arrived) {
        let core = &mut self.cores[usize::from(shard.0)];
        core.inbox.push_back(arrived);
        let at = self.outside.now_ns + 1_000 + self.outside.random.below(20_000);
        self.turn_at(shard, at);
    }

    fn turn_at(&mut self, shard: ShardId, at_ns: u64) {
        let core = &mut self.cores[usize::from(shard.0)];
        if at_ns < core.next_turn_ns {
            core.next_turn_ns = at_ns;
            self.outside.events.push(at_ns, Event::Turn(shard));
        }
    }

    /// What a node's loop does: a turn, and background work when there was room.
    fn turn(&mut self, id: ShardId) {
        let now = self.now();
        let inputs_max = self.outside.random.between(1, 16) as usize;
        let mut notes = Vec::new();
        let core = &mut self.cores[usize::from(id.0)];
        let Some(shard) = core.shard.as_mut() else { return };
        let mut hands =
            SimHands { shard: id, inbox: &mut core.inbox, outside: &mut self.outside, notes: &mut notes, inputs_max };
        let busy = turn(shard, &mut hands, now, &mut core.effects);
        let mut more = false;
        if !busy && !hands.outside.cut {
            more = shard.background(now, self.plan.limits.background_bytes_per_turn, &mut core.effects);
            ringmain_shard::Hands::perform(&mut hands, &mut core.effects);
        }
        if let Some((group, room)) = shard.ring_room(core.group) {
            core.group = group;
            if !room {
                self.ledger
                    .fail("a journal has room to say again what is live in it", format!("{id:?}, group {group}"));
            }
        }
        let deadline = shard.deadline();
        let waits = !core.inbox.is_empty();
        let now_ns = self.outside.now_ns;
        if waits {
            self.turn_at(id, now_ns + 2_000);
        } else if busy || more {
            // The loop spins before it parks: one more turn, which has room.
            self.turn_at(id, now_ns + 20_000);
        }
        if let Some(Instant(at)) = deadline {
            self.turn_at(id, at.max(now_ns + 1_000));
        }
        // `Stopped` ends the process: what else was said in this turn was said before.
        notes.sort_by_key(|note| matches!(note, Note::Stopped));
        for note in notes {
            self.note(id, note);
        }
    }

    fn note(&mut self, shard: ShardId, note: Note) {
        self.outside.trace.line(self.outside.now_ns, || format!("shard {}", shard.0), || format!("note {note:?}"));
        self.stirred = true;
        match note {
            Note::Ready => {
                self.cores[usize::from(shard.0)].ready = true;
                if self.serving() {
                    self.served();
                }
            }
            Note::Visible { partition, high_watermark } => {
                let before = self.visible.insert(partition, high_watermark);
                if before.is_some_and(|before| before > high_watermark) {
                    let text = format!("{partition:?}: {high_watermark:?} after {before:?}");
                    self.ledger.fail("the high watermark never falls within a life", text);
                }
            }
            Note::Recovered { partition, report } => {
                let unreadable = |damage: &Damage| matches!(damage, Damage::Unreadable(_));
                if self.ledger.rot.is_some() {
                    report.damage.iter().for_each(|damage| self.damaged(damage));
                } else if self.ledger.troubled && !report.damage.is_empty() && report.damage.iter().all(unreadable) {
                    self.ledger.reach("logs that could not be read at a start");
                    self.restart_soon();
                } else if !report.damage.is_empty() {
                    self.ledger.fail("nothing rots here", format!("{partition:?}: {:?}", report.damage));
                }
                self.ledger.recovered(partition, report.start, report.end);
            }
            Note::Damaged { damage, .. } => self.damaged(&damage),
            Note::Fenced { error, .. } => self.fenced(&error),
            Note::Compaction(stats) => self.compacted(shard, stats),
            Note::Stopped => {
                self.cores[usize::from(shard.0)].stopped = true;
                if self.stopping && self.cores.iter().all(|core| core.stopped) {
                    self.end_process(Strike::CleanStop);
                }
            }
            Note::Request { error, .. } if error != ErrorCode::None => {
                self.ledger.reach("requests answered with an error")
            }
            Note::NoSpace { .. } => self.ledger.reach("logs without space"),
            Note::Image(image) => {
                if let Err(text) = self.images.published(&image, &self.plan.limits) {
                    self.ledger.fail("metadata that was published stays", text);
                }
            }
            Note::SaidAgain { .. } => self.ledger.reach("metadata said again"),
            Note::Closed { why, .. } => self.ledger.reach(match why {
                Close::Idle => "closed: idle",
                Close::Slow => "closed: slow",
                Close::Memory => "closed: for memory",
                Close::Protocol(_) => "closed: no protocol of ours",
                Close::TooLarge { .. } => "closed: too large a frame",
                Close::TooMany => "closed: too many connections",
                _ => "closed: others",
            }),
            Note::Acked { base, next, .. } if base >= next => {
                self.ledger.fail("an ack is of something", format!("{base:?}..{next:?}"));
            }
            _ => {}
        }
    }

    fn damaged(&mut self, damage: &Damage) {
        match damage {
            Damage::Rot { path, .. } | Damage::TooLarge { path, .. } | Damage::Stray { path } => {
                self.ledger.named(path)
            }
            Damage::Unreadable(error) => self.ledger.named(&error.path),
        }
    }

    fn compacted(&mut self, shard: ShardId, stats: CompactionStats) {
        let core = &mut self.cores[usize::from(shard.0)];
        let before = std::mem::replace(&mut core.compaction, stats);
        let reached = [
            ("compactions", stats.runs - before.runs),
            ("compactions given up", stats.aborted - before.aborted),
            ("segments replaced", stats.segments_replaced - before.segments_replaced),
        ];
        for (what, more) in reached.into_iter().filter(|(_, more)| *more > 0) {
            *self.ledger.reached.entry(what).or_default() += more;
        }
        if stats.uncleanable_logs > 0 && self.ledger.rot.is_none() {
            self.ledger.fail("nothing rots here", format!("a log of {shard:?} can't be compacted"));
        }
    }

    /// Lets a client do something, then whatever comes of it.
    fn client(&mut self, client: usize, act: impl FnOnce(&mut dyn Client, &mut Context<'_>)) {
        let quiet_since_ns = self.quiet_since();
        let mut context = Context {
            now_ns: self.outside.now_ns,
            wall: self.now().wall,
            random: &mut self.outside.random,
            ledger: &mut self.ledger,
            trace: self.outside.trace,
            me: client,
            next_link: &mut self.next_link,
            actions: Vec::new(),
            calm: self.phase > Phase::Chaos,
            pace: if self.phase > Phase::Chaos { 1 } else { self.plan.faults.wide.pace },
            quiet_since_ns,
        };
        let who = &mut self.clients[client];
        act(who.as_mut(), &mut context);
        who.poll(&mut context);
        for action in context.actions {
            self.act(client, action);
        }
    }

    fn act(&mut self, client: usize, action: Action) {
        let outside = &mut self.outside;
        match action {
            Action::Connect(link) if self.running => {
                let shard = ShardId(outside.random.below(u64::from(self.layout.shards)) as u16);
                let (connection, peer) = outside.network.accept(shard, link, client);
                self.arrive(shard, Arrived::Accepted { connection, peer });
            }
            Action::Connect(link) => {
                let at = outside.now_ns + outside.network.latency(&mut outside.random);
                outside.events.push(at, Event::ClientClosed { client, link });
            }
            Action::Send(link, bytes) => {
                for (at, bytes) in outside.network.pieces(outside.now_ns, &mut outside.random, link, bytes) {
                    outside.events.push(at, Event::ToServer { link, bytes });
                }
            }
            Action::Leave(link) => {
                if let Some(connection) = outside.network.find(link) {
                    self.leave(connection);
                }
            }
            Action::Wake(at) => outside.events.push(at, Event::Wake { client }),
        }
    }

    fn vanish(&mut self, connection: ringmain_types::ConnectionId) {
        const ECONNRESET: i32 = 104;
        if self.outside.random.chance(0.5) {
            return self.leave(connection);
        }
        if let Some((link, client)) = self.outside.network.close(connection) {
            self.arrive(connection.shard, Arrived::Closed { connection, why: Close::Errno(ECONNRESET) });
            self.outside.events.push(self.outside.now_ns, Event::ClientClosed { client, link });
        }
    }

    /// The client is gone in peace: its end comes behind all that it sent, and the shard still answers, to nobody.
    fn leave(&mut self, connection: ringmain_types::ConnectionId) {
        let outside = &mut self.outside;
        let Some((link, client)) = outside.network.client(connection) else { return };
        if let Some(at) = outside.network.server_at(outside.now_ns, &mut outside.random, link) {
            outside.events.push(at, Event::ClientEnded { connection });
        }
        outside.events.push(outside.now_ns, Event::ClientClosed { client, link });
    }

    fn strike(&mut self, strike: Strike) {
        if self.phase != Phase::Chaos {
            return;
        }
        let mean = self.plan.faults.strikes().iter().find(|(kind, _)| *kind == strike).map_or(0, |(_, mean)| *mean);
        let count = self.report.strikes.get(&strike).copied().unwrap_or(0);
        if count < self.plan.faults.each_max {
            let at = self.outside.now_ns + 1 + self.outside.random.below(2 * mean);
            self.outside.events.push(at, Event::Strike(strike));
        }
        match strike {
            Strike::Kill | Strike::PowerLoss if self.running || self.resharding.is_some() => self.end_process(strike),
            Strike::CleanStop if self.running && !self.stopping => self.stop(),
            Strike::Vanish => {
                let all = self.outside.network.all();
                if !all.is_empty() {
                    self.hit(strike);
                    let at = self.outside.random.below(all.len() as u64) as usize;
                    self.vanish(all[at]);
                }
            }
            Strike::WallJump => {
                self.hit(strike);
                // In all less than the hour that a record may lie ahead (message.timestamp.after.max.ms).
                self.wall_jump_ms = self.outside.random.between(0, 3_000_000) as i64 - 1_500_000;
            }
            Strike::Pause if self.running => {
                self.hit(strike);
                let core = self.outside.random.below(self.cores.len() as u64) as usize;
                let length = self.outside.random.skewed(1_000_000, 300_000_000);
                self.cores[core].paused_until_ns = self.outside.now_ns + length;
            }
            Strike::Freeze if self.running => {
                self.hit(strike);
                let until_ns = self.outside.now_ns + self.outside.random.skewed(1_000_000, 300_000_000);
                for core in &mut self.cores {
                    core.paused_until_ns = core.paused_until_ns.max(until_ns);
                }
            }
            Strike::DiskFull => {
                self.hit(strike);
                self.outside.disk.full = true;
                let at = self.outside.now_ns + self.outside.random.skewed(5_000_000, 400_000_000);
                self.outside.events.push(at, Event::Space);
            }
            _ => {}
        }
    }

    fn aimed(&mut self) {
        let struck = self.phase == Phase::Chaos && (self.running || self.resharding.is_some());
        if struck && self.aimed < AIMED_MAX {
            self.aimed += 1;
            self.ledger.reach("power losses behind a change of names");
            self.end_process(Strike::PowerLoss);
        }
    }

    fn hit(&mut self, strike: Strike) {
        *self.report.strikes.entry(strike).or_default() += 1;
        self.outside.trace.line(self.outside.now_ns, || "world".into(), || format!("==== {strike:?}"));
    }
}

/// The numbers that a history's course is drawn from.
fn course(random: &mut Random, salt: Option<u64>) -> Random {
    let mut course = random.fork();
    if let Some(salt) = salt {
        course = Random::new(course.next() ^ salt);
    }
    course
}
