//! Where glommio and the data ring meet, and the only place that knows glommio: an executor per core, on a pinned thread, which takes
//! the core's turns.

use glommio::{ExecutorJoinHandle, LocalExecutorBuilder, Placement};

use crate::core::{Core, Turn};

/// glommio registers this much memory three times for each executor, out of RLIMIT_MEMLOCK. Our data has its own buffers.
const IO_MEMORY_BYTES: usize = 64 << 10;
/// A core without work looks for some this long before it sleeps: waking another core costs 36 us.
const SPIN_NS: u64 = 50_000;
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
    loop {
        match core.turn() {
            Turn::Stopped => return,
            Turn::Busy => {}
            Turn::Idle => {
                let spin = if core.awaits_disk() { SPIN_DISK_NS } else { SPIN_NS };
                if !core.spin(ringmain_ring::monotonic_ns() + spin) {
                    core.sleep();
                }
            }
        }
    }
}
