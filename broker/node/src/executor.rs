//! Where glommio and the data ring meet, and the only place that knows glommio: an executor per core, on a pinned thread, which takes
//! the core's turns.

use glommio::{ExecutorJoinHandle, LocalExecutorBuilder, Placement};

use crate::core::{Core, Turn};

/// glommio registers this much memory three times for each executor, out of RLIMIT_MEMLOCK. Our data has its own buffers.
const IO_MEMORY_BYTES: usize = 64 << 10;
/// A core without work looks for some this long before it sleeps, where that brings some: waking another core costs 36 us.
const SPIN_NS: u64 = 50_000;
/// Where looking brought nothing again and again it looks only this long.
const SPIN_NS_MIN: u64 = 1_000;
/// With the disk at work there is nothing sooner to come than a flush takes, and its worker may need this very CPU.
const SPIN_DISK_NS: u64 = 5_000;

/// A core's thread; joined at the end.
pub struct Running(ExecutorJoinHandle<Result<(), String>>);

impl Running {
    /// The error says why the core ended early.
    pub fn join(self) -> Result<(), String> {
        self.0.join().map_err(|error| error.to_string())?
    }
}

/// Starts a thread on `cpu`, builds the core on it, and takes turns until its shard has stopped.
pub fn start<F>(cpu: usize, build: F) -> Result<Running, String>
where
    F: FnOnce() -> Result<Core, String> + Send + 'static,
{
    let builder =
        LocalExecutorBuilder::new(Placement::Fixed(cpu)).name(&format!("core-{cpu}")).io_memory(IO_MEMORY_BYTES);
    let handle = builder.spawn(move || async move {
        take_turns(build()?);
        Ok(())
    });
    handle.map(Running).map_err(|error| error.to_string())
}

/// Keeps the thread: nothing else runs on this executor yet, and a sleep in glommio costs 20 us and can be for good (DESIGN.md).
fn take_turns(mut core: Core) {
    let mut spin = Spin::default();
    loop {
        match core.turn() {
            Turn::Stopped => return,
            Turn::Busy => core.give_way(),
            Turn::Idle => {
                core.give_way();
                let most = if core.awaits_disk() { SPIN_DISK_NS } else { SPIN_NS };
                let found = core.spin(ringmain_ring::monotonic_ns() + spin.ns(most));
                spin.ended(found);
                if !found {
                    core.sleep();
                }
            }
        }
    }
}

/// How long to look before a sleep: as long as allowed while that finds something, half as long with each time that it does not.
#[derive(Default)]
struct Spin {
    misses: u32,
}

impl Spin {
    fn ns(&self, most: u64) -> u64 {
        (most >> self.misses).max(SPIN_NS_MIN.min(most))
    }

    fn ended(&mut self, found: bool) {
        // One step back for each find: half of the looks must find something for the long ones to come back.
        self.misses = if found { self.misses.saturating_sub(1) } else { (self.misses + 1).min(6) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_is_cut_short_where_it_finds_nothing_and_comes_back() {
        let mut spin = Spin::default();
        assert_eq!(spin.ns(SPIN_NS), SPIN_NS);
        (0..100).for_each(|_| spin.ended(false));
        assert_eq!((spin.ns(SPIN_NS), spin.ns(SPIN_DISK_NS)), (SPIN_NS_MIN, SPIN_NS_MIN));
        (0..6).for_each(|_| spin.ended(true));
        assert_eq!(spin.ns(SPIN_NS), SPIN_NS);
    }
}
