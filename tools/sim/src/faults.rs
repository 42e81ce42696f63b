//! What a seed draws: how the world is built, and what goes wrong in it.

use ringmain_types::Limits;

use crate::less::Less;
use crate::random::Random;

/// Seeds below this draw what they always drew: the old failures and the table of mutations name them. Fresh ones lie above it.
pub const WIDE_FROM: u64 = 1 << 32;
/// No rarer than a broker may be told to.
const RETENTION_CHECK_MS_MAX: u64 = 300_000;
const COMPACTION_CHECK_MS_MAX: u64 = 60_000;

/// Drawn once a seed. Swarm testing (Groce et al., 2012): half of the faults are off in each run, so that runs differ in kind, not
/// only in order.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub disk_latency_ns: (u64, u64),
    pub disk_stall: f32,
    pub completions_reordered: f32,
    pub network_latency_ns: (u64, u64),
    pub mesh_delay_ns: (u64, u64),
    pub bytes_split: f32,
    pub disk_errors: DiskErrors,
    /// Mean times between two of a kind, in virtual nanoseconds; 0: never.
    pub kill_ns: u64,
    pub power_loss_ns: u64,
    pub clean_stop_ns: u64,
    pub vanish_ns: u64,
    pub wall_jump_ns: u64,
    pub pause_ns: u64,
    pub disk_full_ns: u64,
    pub wide: Wide,
    /// How often each may happen.
    pub each_max: u32,
}

/// Chances that one operation fails.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskErrors {
    pub write: f32,
    pub flush: f32,
    pub read: f32,
    /// Of names and sizes: open, make, rename, remove, list, sync, allocate, cut.
    pub other: f32,
}

/// What only seeds from `WIDE_FROM` on draw.
#[derive(Clone, Copy, Debug)]
pub struct Wide {
    /// Everybody takes this many times as long between two deeds, and faults are as far apart: hours, in which what idles and what is
    /// looked after once a minute comes into play. 1: none of that.
    pub pace: u64,
    /// Mean time between two, as those of `Faults`.
    pub freeze_ns: u64,
    /// Chances that a connection's client reads slowly, and that it sends in small pieces.
    pub slow: f32,
    pub dribbles: f32,
    pub nuisances: u32,
    /// Chance that a change of names is followed by a power loss.
    pub aimed: f32,
}

impl Default for Wide {
    fn default() -> Wide {
        Wide { pace: 1, freeze_ns: 0, slow: 0.0, dribbles: 0.0, nuisances: 0, aimed: 0.0 }
    }
}

impl Wide {
    /// From numbers of their own.
    fn draw(seed: u64) -> Wide {
        let mut random = Random::new(seed ^ 0x7769_6465);
        if seed < WIDE_FROM {
            return Wide::default();
        }
        let mut often = |odds: f32| random.chance(odds);
        let (paced, freezes, slow, dribbles, annoyed) = (often(0.5), often(0.5), often(0.4), often(0.4), often(0.4));
        // As many of each order of magnitude; a day is the least that a tombstone of these histories may have to stay.
        let pace = if paced { 10u64.pow(random.between(1, 5) as u32) / random.between(1, 10) } else { 1 };
        Wide {
            pace: pace.max(1),
            freeze_ns: if freezes { random.between(10, 300) * 1_000_000 } else { 0 },
            slow: if slow { random.between(5, 60) as f32 / 100.0 } else { 0.0 },
            dribbles: if dribbles { random.between(5, 60) as f32 / 100.0 } else { 0.0 },
            nuisances: if annoyed { random.between(1, 3) as u32 } else { 0 },
            aimed: 0.02,
        }
    }
}

/// The kinds of faults that strike at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strike {
    Kill,
    PowerLoss,
    CleanStop,
    Vanish,
    WallJump,
    /// One core does not run for a while: its thread was not scheduled.
    Pause,
    /// No core does: the process was stopped, or its machine.
    Freeze,
    /// No space on the device for a while.
    DiskFull,
}

impl Strike {
    pub const ALL: [Strike; 8] = [
        Strike::Kill,
        Strike::PowerLoss,
        Strike::CleanStop,
        Strike::Vanish,
        Strike::WallJump,
        Strike::Pause,
        Strike::Freeze,
        Strike::DiskFull,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Strike::Kill => "kills",
            Strike::PowerLoss => "power losses",
            Strike::CleanStop => "clean stops",
            Strike::Vanish => "vanishing clients",
            Strike::WallJump => "jumps of the wall clock",
            Strike::Pause => "paused shards",
            Strike::Freeze => "paused processes",
            Strike::DiskFull => "full disks",
        }
    }
}

impl Faults {
    pub fn draw(random: &mut Random) -> Faults {
        let mut often = |from: u64, to: u64| if random.chance(0.5) { random.between(from, to) * 1_000_000 } else { 0 };
        let (kill_ns, power_loss_ns, clean_stop_ns) = (often(20, 300), often(20, 300), often(50, 400));
        let (vanish_ns, wall_jump_ns, pause_ns) = (often(10, 200), often(10, 200), often(10, 200));
        // Each hides others: while a directory is fenced or full, little else happens.
        let disk_full_ns = if often(1, 1) > 0 { 0 } else { often(50, 400) };
        let mut rate = |to: f32| if random.chance(0.5) { to * random.below(100) as f32 / 100.0 } else { 0.0 };
        let (disk_stall, completions_reordered, bytes_split) = (rate(0.05), rate(1.0), rate(0.5));
        let disk_errors = if random.chance(0.25) { DiskErrors::draw(random) } else { DiskErrors::default() };
        let mut upper = |small: u64, large: u64| if random.chance(0.5) { small } else { large } * 1000;
        Faults {
            disk_latency_ns: (20_000, upper(200, 3_000)),
            disk_stall,
            completions_reordered,
            network_latency_ns: (10_000, upper(100, 5_000)),
            mesh_delay_ns: (500, upper(5, 500) * [1, 1, 20][random.below(3) as usize]),
            bytes_split,
            disk_errors,
            kill_ns,
            power_loss_ns,
            clean_stop_ns,
            vanish_ns,
            wall_jump_ns,
            pause_ns,
            disk_full_ns,
            wide: Wide::default(),
            each_max: 4,
        }
    }

    /// Nothing goes wrong.
    pub fn none() -> Faults {
        Faults {
            disk_latency_ns: (20_000, 200_000),
            network_latency_ns: (10_000, 100_000),
            mesh_delay_ns: (500, 5_000),
            ..Default::default()
        }
    }

    /// With what wide seeds have beside.
    fn widened(mut self, wide: Wide) -> Faults {
        let means = [
            &mut self.kill_ns,
            &mut self.power_loss_ns,
            &mut self.clean_stop_ns,
            &mut self.vanish_ns,
            &mut self.wall_jump_ns,
            &mut self.pause_ns,
            &mut self.disk_full_ns,
        ];
        for mean in means {
            *mean *= wide.pace;
        }
        if wide.pace > 1 {
            // In hours, a disk on which nearly each start fails would be started thousands of times, and nothing else would be done.
            let errors = &mut self.disk_errors;
            (errors.read, errors.other) = (errors.read.min(RARELY), errors.other.min(RARELY));
        }
        // Where power goes at all.
        let aimed = if self.power_loss_ns > 0 { wide.aimed } else { 0.0 };
        self.wide = Wide { freeze_ns: wide.freeze_ns * wide.pace, aimed, ..wide };
        self
    }

    pub fn strikes(&self) -> [(Strike, u64); 8] {
        [
            (Strike::Kill, self.kill_ns),
            (Strike::PowerLoss, self.power_loss_ns),
            (Strike::CleanStop, self.clean_stop_ns),
            (Strike::Vanish, self.vanish_ns),
            (Strike::WallJump, self.wall_jump_ns),
            (Strike::Pause, self.pause_ns),
            (Strike::DiskFull, self.disk_full_ns),
            (Strike::Freeze, self.wide.freeze_ns),
        ]
    }
}

const RARELY: f32 = 0.005;

impl DiskErrors {
    fn draw(random: &mut Random) -> DiskErrors {
        let mut rate = |to: f32| if random.chance(0.5) { to * random.below(100) as f32 / 100.0 } else { 0.0 };
        DiskErrors { write: rate(0.02), flush: rate(0.05), read: rate(0.1), other: rate(0.02) }
    }
}

/// How large a world is and how long its troubles last.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub shards: u16,
    pub limits: Limits,
    /// Memory is short.
    pub tight: bool,
    pub faults: Faults,
    /// Faults stop here; then everything must end within `CALM_NS_MAX`.
    pub chaos_ns: u64,
    pub flush_covers: bool,
    /// A start may have another number of shards than the life before, however that ended.
    pub reshards: bool,
    /// Power is cut at this point: each submission and each completion of a disk operation is one.
    pub cut_at: Option<u64>,
    /// In the end a bit of a file changes.
    pub rots: bool,
    /// Or a write turns out to have gone elsewhere.
    pub misdirects: bool,
    pub work: Work,
    /// Taken out of all that.
    pub less: Less,
}

#[derive(Clone, Debug)]
pub struct Work {
    pub topics: u32,
    pub partitions_max: u64,
    pub producers: u32,
    pub consumers: u32,
    pub churns: u32,
    pub churn_rounds: u32,
    pub trims: u32,
    /// Long polls over all shards.
    pub watchers: u32,
    pub nuisances: u32,
    pub groups: Groups,
    pub values: (u64, u64),
}

/// Clients of group coordinators.
#[derive(Clone, Copy, Debug, Default)]
pub struct Groups {
    pub committers: u32,
    pub commits: u32,
    pub members: u32,
    pub modern: u32,
    /// In one group: of the classic protocol, and of KIP-848.
    pub mixed: (u32, u32),
    pub whims: u32,
    /// Segments of what has no time of its own, the coordinators' topic among it, close after this and are compacted soon; 0: as by default.
    pub roll_ms: u64,
    /// And their tombstones go after this.
    pub tombstones_ms: u64,
}

impl Groups {
    /// From numbers of their own: histories without groups are what they were before there were any.
    fn draw(seed: u64) -> Groups {
        let mut random = Random::new(seed ^ 0x6772_6f75_7073);
        if !random.chance(0.4) {
            return Groups::default();
        }
        Groups {
            committers: random.below(3) as u32,
            commits: random.between(5, 60) as u32,
            members: if random.chance(0.6) { random.between(2, 6) as u32 } else { 0 },
            modern: if random.chance(0.6) { random.between(2, 6) as u32 } else { 0 },
            whims: random.between(0, 6) as u32,
            roll_ms: if random.chance(0.5) { random.between(1, 60) } else { 0 },
            tombstones_ms: random.below(100),
            mixed: match random.chance(0.5) {
                true => (random.between(1, 3) as u32, random.between(1, 3) as u32),
                false => (0, 0),
            },
        }
    }

    pub fn clients(&self) -> u32 {
        self.committers + self.members + self.modern + self.mixed.0 + self.mixed.1
    }
}

impl Plan {
    /// How many clients the history has, auditors apart.
    pub fn clients(&self) -> usize {
        let work = &self.work;
        let others = 1 + u32::from(work.trims > 0);
        let drawn = work.producers + work.consumers + work.churns + work.watchers + work.nuisances;
        (others + drawn + work.groups.clients()) as usize
    }

    pub fn draw(seed: u64) -> Plan {
        let mut random = Random::new(seed);
        let wide = Wide::draw(seed);
        let faults = Faults::draw(&mut random).widened(wide);
        let mut limits = Limits::tiny();
        limits.segment_bytes_max = (8 << 10) << random.below(4);
        if seed >= WIDE_FROM {
            nearer_edges(&mut limits, seed);
        }
        if random.chance(0.1) {
            // As in production but for memory: other edges are near.
            limits =
                Limits { journal_bytes: 1 << 20, segment_allocate_bytes: 64 << 10, ..Limits::production(64 << 20) };
        }
        said_again_soon(&mut limits, seed);
        let tight = random.chance(0.3);
        if tight {
            // Of one kind or the other.
            for bytes in &mut limits.memory_bytes {
                *bytes /= 1 + random.below(4);
            }
        }
        let mut work = Work {
            topics: random.between(1, 3) as u32,
            partitions_max: random.between(1, 4),
            producers: random.between(1, 3) as u32,
            consumers: random.between(1, 2) as u32,
            churns: random.below(2) as u32,
            churn_rounds: random.between(1, 4) as u32,
            trims: if random.chance(0.3) { random.between(1, 4) as u32 } else { 0 },
            watchers: Random::new(seed ^ 0x0077_6174_6368).below(3).saturating_sub(1) as u32,
            nuisances: wide.nuisances,
            groups: Groups::draw(seed),
            values: (10, 120),
        };
        if seed >= WIDE_FROM {
            // A log's start in the middle of a segment.
            let mut trims = Random::new(seed ^ 0x0074_7269_6d73);
            work.trims = if trims.chance(0.5) { trims.between(1, 8) as u32 } else { 0 };
        }
        if wide.pace > 1 {
            // Those who beat every few milliseconds, and who wait for a poll, are of the short histories.
            (work.groups, work.watchers) = (Groups::default(), 0);
            limits.retention_check_ms = (limits.retention_check_ms * wide.pace).min(RETENTION_CHECK_MS_MAX);
            limits.compaction_check_ms = (limits.compaction_check_ms * wide.pace).min(COMPACTION_CHECK_MS_MAX);
        }
        // Who is kept out for as long as connections may idle is no failure: groups bring room for their own, and for those that vanish.
        limits.connections_max += 2 * work.groups.clients() + 4 * work.watchers + 4 * work.nuisances;
        let mut own = Random::new(seed ^ 0x0072_6f74);
        let rots = own.chance(0.5);
        Plan {
            seed,
            shards: [1, 2, 2, 2, 3][random.below(5) as usize],
            limits,
            tight,
            faults,
            chaos_ns: random.between(100, 600) * 1_000_000 * wide.pace,
            flush_covers: random.chance(0.7),
            reshards: random.chance(0.3),
            cut_at: None,
            rots,
            misdirects: seed >= WIDE_FROM && !rots && own.chance(0.7),
            work,
            less: Less::default(),
        }
    }

    /// A short history without other faults, cut at one point.
    pub fn cut(seed: u64, point: u64) -> Plan {
        let work = Work {
            topics: 2,
            partitions_max: 2,
            producers: 2,
            consumers: 1,
            churns: 1,
            churn_rounds: 1,
            trims: 1,
            watchers: 0,
            nuisances: 0,
            groups: Groups { committers: 1, commits: 10, ..Groups::default() },
            values: (15, 25),
        };
        let mut limits = Limits::tiny();
        (limits.segment_bytes_max, limits.compaction_check_ms) = (8 << 10, 5);
        said_again_soon(&mut limits, seed);
        Plan {
            shards: 2,
            faults: Faults { completions_reordered: 0.3, ..Faults::none() },
            chaos_ns: 60_000_000,
            cut_at: Some(point),
            rots: false,
            misdirects: false,
            tight: false,
            reshards: false,
            limits,
            work,
            ..Plan::draw(seed)
        }
    }
}

/// A history has few topics: the metadata log's state is said again several times in most, and its segments go.
fn said_again_soon(limits: &mut Limits, seed: u64) {
    limits.metadata_again_bytes = 256 << Random::new(seed ^ 0x6d65_7461).below(4);
    limits.metadata_again_times = 2;
    limits.metadata_segment_bytes = 2 * limits.gather_bytes_max;
}

/// Of wide histories, in which more comes to its end: the journal's ring, spare files that nobody fills with zeroes, so that those of
/// removed segments are used, and retention that has its turn while the history lasts.
fn nearer_edges(limits: &mut Limits, seed: u64) {
    let mut random = Random::new(seed ^ 0x6564_6765);
    let mut one_of = |few: [u64; 3]| few[random.below(3) as usize];
    limits.journal_bytes = limits.journal_bytes.min(one_of([48 << 10, 56 << 10, u64::MAX]));
    if one_of([0, 0, 1]) == 0 {
        limits.spare_fill_files_max = 0;
    }
    limits.retention_check_ms = limits.retention_check_ms.min(one_of([5, 50, u64::MAX]));
    limits.retention_first_ms = limits.retention_first_ms.min(one_of([1, 50, u64::MAX]));
}
