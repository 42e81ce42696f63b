//! One core: its shard, its hands, and what a turn does with them. Knows no executor.

use ringmain_shard::{Config, Effects, Hands, Shard, turn};
use ringmain_types::{Instant, Now, WallMs};

use crate::hands::CoreHands;

/// A core that is never idle still gives background work a slice this often.
const BACKGROUND_EVERY_NS: u64 = 10_000_000;
/// Gauges are published this often.
const PUBLISH_EVERY_NS: u64 = 200_000_000;
/// And before a sleep, unless they were just now.
const PUBLISH_AGAIN_NS: u64 = 10_000_000;
/// A core without work goes round this often: a core that does not is stuck (`/health/live`).
const BEAT_NS: u64 = 1_000_000_000;
/// Behind a turn that took longer, others may run.
const GIVE_WAY_NS: u64 = 250_000;

pub struct Core {
    shard: Shard,
    hands: CoreHands,
    effects: Effects,
    background_bytes: u32,
    background_at: u64,
    published_at: u64,
    /// The last turn was one.
    long: bool,
}

/// What came of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Busy,
    Idle,
    Stopped,
}

/// Both clocks.
pub fn now() -> Now {
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Now { mono: Instant(ringmain_ring::monotonic_ns()), wall: WallMs(wall.as_millis() as i64) }
}

impl Core {
    /// Opens the shard; its first operations are submitted.
    pub fn new(config: Config, mut hands: CoreHands) -> Core {
        let now = now();
        let mut effects = Effects::default();
        let background_bytes = config.limits.background_bytes_per_turn;
        hands.begin(now);
        let shard = Shard::open(config, now, &mut effects);
        hands.perform(&mut effects);
        Core { shard, hands, effects, background_bytes, background_at: now.mono.0, published_at: 0, long: false }
    }

    pub fn turn(&mut self) -> Turn {
        let now = now();
        self.hands.begin(now);
        let mut busy = turn(&mut self.shard, &mut self.hands, now, &mut self.effects);
        if !busy || now.mono.0 >= self.background_at + BACKGROUND_EVERY_NS {
            self.background_at = now.mono.0;
            busy |= self.shard.background(now, self.background_bytes, &mut self.effects);
            self.hands.perform(&mut self.effects);
        }
        let ended_ns = ringmain_ring::monotonic_ns();
        self.hands.ended(ended_ns);
        self.long = ended_ns - now.mono.0 > GIVE_WAY_NS;
        if now.mono.0 >= self.published_at + PUBLISH_EVERY_NS {
            self.published_at = now.mono.0;
            self.hands.publish(self.shard.memory());
        }
        match busy {
            _ if self.hands.stopped() => Turn::Stopped,
            true => Turn::Busy,
            false => Turn::Idle,
        }
    }

    fn deadline_ns(&self) -> Option<u64> {
        let shard = self.shard.deadline().map(|at| at.0);
        shard.into_iter().chain(self.hands.deadline_ns()).min()
    }

    /// Disk operations are under way.
    pub fn awaits_disk(&mut self) -> bool {
        self.hands.ring().disk_busy()
    }

    /// Behind a long turn, before the next one: a flush runs in a kernel worker, mostly on this CPU, and one that has just been woken waits
    /// for the end of the core's slice of time otherwise, up to 4 ms (a tick).
    pub fn give_way(&mut self) {
        if self.long && self.hands.ring().disk_busy() {
            std::thread::yield_now();
        }
    }

    /// Looks for news until `until_ns` without a system call (but for giving way to a flush that runs on this core). True when
    /// there is some.
    pub fn spin(&mut self, until_ns: u64) -> bool {
        let deadline = self.deadline_ns().unwrap_or(u64::MAX);
        loop {
            if self.hands.ready() {
                return true;
            }
            let now = ringmain_ring::monotonic_ns();
            if now >= deadline {
                return true;
            }
            if now >= until_ns {
                return false;
            }
            if self.hands.ring().disk_busy() {
                std::thread::yield_now();
            } else {
                for _ in 0..16 {
                    std::hint::spin_loop();
                }
            }
        }
    }

    /// Blocks until there is something to do.
    pub fn sleep(&mut self) {
        // A sleeper's gauges stay right, but for what happened within a blink of the last time.
        let now = ringmain_ring::monotonic_ns();
        if now >= self.published_at + PUBLISH_AGAIN_NS {
            self.published_at = now;
            self.hands.publish(self.shard.memory());
        }
        let beat = now + BEAT_NS;
        self.hands.sleep(self.deadline_ns().map_or(beat, |at| at.min(beat)));
    }
}
