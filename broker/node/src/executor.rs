//! Where glommio and the data ring meet, and the only place that knows glommio: an executor per core, whose one task of high
//! shares takes the core's turns. What may wait (later: gateway, QUIC) are other tasks of the same executor.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use glommio::io::BufferedFile;
use glommio::timer::Timer;
use glommio::{ExecutorJoinHandle, Latency, LocalExecutorBuilder, Placement, Shares, executor};

use crate::core::{Core, Turn};

/// glommio looks at its own ring at least this often; nothing there is in a hurry while a core is awake, shorter costs throughput
/// (MEASURED.md: 100 us costs half), and a thread that loses its CPU for this long may fall into what [`Watchdog`] is for.
const PREEMPT: Duration = Duration::from_millis(20);
/// The longest that glommio may sleep by mistake ([`Watchdog`]).
const WATCHDOG: Duration = Duration::from_millis(1);
/// glommio registers this much memory three times for each executor, out of RLIMIT_MEMLOCK. Our data has its own buffers.
const IO_MEMORY_BYTES: usize = 64 << 10;
/// A core without work looks for some this long before it sleeps: waking another core costs 36 us.
const SPIN_NS: u64 = 50_000;
/// Of that, how long at a time before glommio's other tasks get a turn.
const SPIN_SLICE_NS: u64 = 5_000;

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
    let builder = LocalExecutorBuilder::new(Placement::Fixed(cpu))
        .name(&format!("core-{cpu}"))
        .io_memory(IO_MEMORY_BYTES)
        .preempt_timer(PREEMPT);
    let handle = builder.spawn(move || async move {
        let (core, eventfd) = build()?;
        let queue = executor().create_task_queue(Shares::Static(1000), Latency::NotImportant, "turns");
        let alarm = Alarm::set(eventfd);
        match glommio::spawn_local_into(take_turns(core, alarm), queue) {
            Ok(task) => {
                task.await;
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        }
    });
    handle.map(Running).map_err(|error| error.to_string())
}

async fn take_turns(mut core: Core, alarm: Alarm) {
    let watchdog = Watchdog::start();
    let mut idle_since = None;
    loop {
        match core.turn() {
            Turn::Stopped => return,
            Turn::Busy => idle_since = None,
            Turn::Idle => {
                let now = ringmain_ring::monotonic_ns();
                let since = *idle_since.get_or_insert(now);
                if now < since + SPIN_NS {
                    core.spin(now + SPIN_SLICE_NS);
                } else {
                    if core.sleep() {
                        watchdog.rest();
                        alarm.wait().await;
                        watchdog.watch();
                    }
                    core.wake();
                    idle_since = None;
                    continue;
                }
            }
        }
        executor().yield_task_queue_now().await;
    }
}

/// Bounds a sleep of glommio with work at hand. Its loop (0.9.0, `LocalExecutor::run`) takes "the preempt timer fired before the
/// first task queue ran" for "there was nothing to run" and parks; that happens when the thread loses its CPU at the wrong moment,
/// and nothing would ever wake it, since the data ring's eventfd is silent while a turn is due. A timer does: while the core is
/// awake, one is always set. It costs nothing until glommio parks.
struct Watchdog(Rc<WatchdogState>);

struct WatchdogState {
    awake: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
}

impl Watchdog {
    fn start() -> Watchdog {
        let state = Rc::new(WatchdogState { awake: Cell::new(true), waiting: RefCell::new(None) });
        let watched = state.clone();
        glommio::spawn_local(async move {
            loop {
                Timer::new(WATCHDOG).await;
                poll_fn(|context| {
                    if watched.awake.get() {
                        return Poll::Ready(());
                    }
                    *watched.waiting.borrow_mut() = Some(context.waker().clone());
                    Poll::Pending
                })
                .await;
            }
        })
        .detach();
        Watchdog(state)
    }

    /// The core sleeps by its own will: it is not to be woken.
    fn rest(&self) {
        self.0.awake.set(false);
    }

    fn watch(&self) {
        self.0.awake.set(true);
        let waiting = self.0.waiting.borrow_mut().take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

/// Waits for the core's eventfd through glommio's ring. A task reads it for good: an awaited read that were dropped and begun
/// anew for each sleep could swallow a count.
struct Alarm(Rc<AlarmState>);

#[derive(Default)]
struct AlarmState {
    rang: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
}

impl Alarm {
    fn set(eventfd: OwnedFd) -> Alarm {
        let state = Rc::new(AlarmState::default());
        let watched = state.clone();
        let file: BufferedFile = ringmain_ring::adopt(eventfd);
        glommio::spawn_local(async move {
            while file.read_at(0, 8).await.is_ok() {
                watched.rang.set(true);
                let waiting = watched.waiting.borrow_mut().take();
                if let Some(waker) = waiting {
                    waker.wake();
                }
            }
        })
        .detach();
        Alarm(state)
    }

    async fn wait(&self) {
        poll_fn(|context| {
            if self.0.rang.replace(false) {
                return Poll::Ready(());
            }
            *self.0.waiting.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}
