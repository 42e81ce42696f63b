//! Where glommio and the data ring meet, and the only place that knows glommio: an executor per core, on a pinned thread, which takes
//! the core's turns.

use std::os::fd::OwnedFd;
use std::time::Duration;

use glommio::{ExecutorJoinHandle, LocalExecutorBuilder, Placement};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::core::{Core, Turn};

/// glommio registers this much memory three times for each executor, out of RLIMIT_MEMLOCK. Our data has its own buffers.
const IO_MEMORY_BYTES: usize = 64 << 10;
/// A core without work looks for some this long before it sleeps: waking another core costs 36 us.
const SPIN_NS: u64 = 50_000;
/// With the disk at work there is nothing sooner to come than a flush takes, and its worker may need this very CPU.
const SPIN_DISK_NS: u64 = 5_000;
/// A sleep ends by the eventfd; this only bounds what a lost wake-up could cost.
const SLEEP_MAX: Duration = Duration::from_secs(2);

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
    F: FnOnce() -> Result<(Core, OwnedFd), String> + Send + 'static,
{
    let builder =
        LocalExecutorBuilder::new(Placement::Fixed(cpu)).name(&format!("core-{cpu}")).io_memory(IO_MEMORY_BYTES);
    let handle = builder.spawn(move || async move {
        let (core, eventfd) = build()?;
        take_turns(core, &eventfd);
        Ok(())
    });
    handle.map(Running).map_err(|error| error.to_string())
}

/// Keeps the thread: nothing else runs on this executor yet, and a sleep in glommio costs 20 us and can be for good (DESIGN.md).
fn take_turns(mut core: Core, eventfd: &OwnedFd) {
    let mut idle_since = None;
    loop {
        match core.turn() {
            Turn::Stopped => return,
            Turn::Busy => idle_since = None,
            Turn::Idle => {
                let now = ringmain_ring::monotonic_ns();
                let until = *idle_since.get_or_insert(now) + if core.awaits_disk() { SPIN_DISK_NS } else { SPIN_NS };
                if now < until {
                    core.spin(until);
                } else {
                    if core.sleep() {
                        wait(eventfd);
                    }
                    core.wake();
                    idle_since = None;
                }
            }
        }
    }
}

/// Blocks until the eventfd was written, and sets it back. What goes wrong here only ends the sleep early.
fn wait(eventfd: &OwnedFd) {
    let timeout = Timespec { tv_sec: SLEEP_MAX.as_secs() as i64, tv_nsec: 0 };
    let mut descriptors = [PollFd::new(eventfd, PollFlags::IN)];
    if poll(&mut descriptors, Some(&timeout)).is_ok_and(|ready| ready > 0) {
        let _ = rustix::io::read(eventfd, &mut [0; 8]);
    }
}
