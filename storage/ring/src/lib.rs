//! `storage/ring`: the data ring. All of a core's files and client sockets on one io_uring, used by that core's thread alone.
//! Implements [`ringmain_disk::Disk`]; sockets are [`SocketEvent`]s and calls. It decides nothing: no protocol, no order between
//! disk operations, no retry.
//!
//! A turn is [`Ring::poll`] (hand out what completed), then calls that queue work, then one [`Ring::submit`].
#![deny(unsafe_op_in_unsafe_fn)]

mod disk;
mod driver;
mod files;
mod provided;
mod slots;
mod sockets;

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use ringmain_buffer::Buf;
use ringmain_disk::{Disk, DiskDone, DiskOp};
use ringmain_types::{ConnectionId, DirId, ShardId};

pub use disk::DiskCounters;
use driver::{Completion, Driver, Kind};
use provided::Provided;
pub use sockets::{Ended, Received, SocketCounters, SocketEvent, Want};

/// What a ring is sized by. Ten megabytes of locked memory are not to be had everywhere, so nothing large is registered.
#[derive(Clone, Debug)]
pub struct RingConfig {
    pub shard: ShardId,
    /// Entries of the submission queue; more than that waits in the driver.
    pub submissions: u32,
    pub completions: u32,
    /// Provided receive buffers: few, so that they stay in the cache. A power of two.
    pub receive_buffers: u16,
    /// A power of two from 4096 on. Bodies larger than this are received straight into their blocks.
    pub receive_buffer_bytes: usize,
    /// Descriptors of files kept open (`Limits::open_files_max`).
    pub open_files_max: u32,
}

impl RingConfig {
    pub fn new(shard: ShardId, open_files_max: u32) -> RingConfig {
        RingConfig {
            shard,
            submissions: 1024,
            completions: 8192,
            receive_buffers: 16,
            receive_buffer_bytes: 128 << 10,
            open_files_max,
        }
    }
}

/// What happened, in the order of completion.
#[derive(Debug)]
pub enum Event<'a> {
    Socket(SocketEvent<'a>),
    Disk(DiskDone),
}

/// One a core, made on the core's thread.
pub struct Ring {
    /// Dropped last, and only if the kernel has let go of their memory: see `Drop`.
    state: ManuallyDrop<State>,
}

struct State {
    driver: Driver,
    files: disk::Files,
    sockets: sockets::Sockets,
    completions: Vec<Completion>,
    done: Vec<DiskDone>,
}

impl Ring {
    /// ENOSYS or EPERM where io_uring does not exist or is forbidden.
    pub fn new(config: &RingConfig) -> io::Result<Ring> {
        let driver = Driver::new(config.submissions, config.completions)?;
        let provided =
            Provided::register(driver.ring(), config.shard, config.receive_buffers, config.receive_buffer_bytes)?;
        let state = State {
            driver,
            files: disk::Files::new(config.open_files_max),
            sockets: sockets::Sockets::new(config.shard, provided),
            completions: Vec::new(),
            done: Vec::new(),
        };
        Ok(Ring { state: ManuallyDrop::new(state) })
    }

    /// Names a log directory. `direct`: whether to try O_DIRECT; when the file system refuses, files are opened without.
    pub fn add_directory(&mut self, dir: DirId, path: &Path, direct: bool) -> io::Result<()> {
        self.state.files.add_directory(dir, path, direct)
    }
    /// Whether files of `dir` are (still) opened with O_DIRECT.
    pub fn direct(&self, dir: DirId) -> Option<bool> {
        self.state.files.direct(dir)
    }

    /// Takes a listening socket and accepts from it. Its index comes with each event.
    pub fn add_listener(&mut self, socket: OwnedFd) -> u16 {
        let state = &mut *self.state;
        state.sockets.add_listener(socket, &mut state.driver)
    }
    /// Accepts again after `AcceptFailed`.
    pub fn accept(&mut self, listener: u16) {
        let state = &mut *self.state;
        state.sockets.accept(listener, &mut state.driver)
    }
    pub fn stop_listening(&mut self, listener: u16) {
        let state = &mut *self.state;
        state.sockets.stop_listening(listener, &mut state.driver)
    }

    /// Makes a connected socket a connection of this ring; it wants `Any` until told otherwise.
    pub fn adopt(&mut self, socket: OwnedFd) -> ConnectionId {
        self.state.sockets.adopt(socket)
    }
    /// For a connection that is closing or gone this and the next two do nothing: its `Closed` is on the way or was seen.
    pub fn receive(&mut self, connection: ConnectionId, want: Want) {
        self.state.sockets.receive(connection, want)
    }
    /// All of `parts` in order; one at a time per connection (panics on a second). `Sent` follows, or `Closed`.
    pub fn send(&mut self, connection: ConnectionId, parts: Vec<Buf>) {
        let state = &mut *self.state;
        state.sockets.send(connection, parts, &mut state.driver)
    }
    /// Breaks off what is under way; `Closed` follows.
    pub fn close(&mut self, connection: ConnectionId) {
        let state = &mut *self.state;
        state.sockets.close(connection, &mut state.driver)
    }

    /// Calls `each` for all that completed; returns how often. Enters the kernel only when nothing is at hand and something is to be
    /// had.
    pub fn poll(&mut self, each: &mut dyn FnMut(Event<'_>)) -> usize {
        let State { driver, files, sockets, completions, done } = &mut *self.state;
        let mut count = sockets.deliver(&mut |event| each(Event::Socket(event)));
        completions.clear();
        driver.fetch();
        driver.reap(completions);
        for completion in completions.drain(..) {
            match completion.kind {
                Kind::Disk => files.complete(completion.slot, completion.result, driver),
                _ => {
                    count += 1;
                    sockets.complete(completion, driver, &mut |event| each(Event::Socket(event)))
                }
            }
        }
        std::mem::swap(files.done(), done);
        count += done.len();
        done.drain(..).for_each(|done| each(Event::Disk(done)));
        count
    }

    /// Arms receives and, if there is anything for the kernel to do, enters it once.
    pub fn submit(&mut self) {
        let state = &mut *self.state;
        state.sockets.arm(&mut state.driver);
        if state.driver.wants_enter() {
            state.driver.enter();
        }
    }

    /// Whether `poll` would find something, or one `submit` would bring it. No system call.
    pub fn ready(&mut self) -> bool {
        let state = &mut *self.state;
        !state.files.done().is_empty() || state.sockets.pending() || state.driver.ready()
    }

    /// With everything submitted: blocks the thread until something completes, the bell is rung, or `max` is over. Returns at once
    /// when there is something to do already.
    pub fn sleep(&mut self, max: Duration) {
        let state = &mut *self.state;
        if state.files.done().is_empty() && !state.sockets.pending() {
            state.driver.sleep(max);
        }
    }
    /// An eventfd: another core writes it to end this one's sleep, the present one or the next.
    pub fn bell(&self) -> io::Result<OwnedFd> {
        self.state.driver.bell()
    }

    /// Submits and blocks the thread until something completes, at most `max`: for loops without an executor.
    pub fn wait(&mut self, max: Duration) {
        let state = &mut *self.state;
        state.sockets.arm(&mut state.driver);
        if state.files.done().is_empty() && !state.sockets.pending() {
            state.driver.wait(max);
        }
    }

    /// Disk operations under way: while a flush runs in a kernel worker on this core, a spinning thread should yield to it.
    pub fn disk_busy(&self) -> bool {
        self.state.files.busy() > 0
    }
    pub fn connections(&self) -> u32 {
        self.state.sockets.open()
    }
    pub fn open_files(&self) -> u32 {
        self.state.files.open_files()
    }
    pub fn enters(&self) -> u64 {
        self.state.driver.enters()
    }
    pub fn disk_counters(&self) -> DiskCounters {
        self.state.files.counters
    }
    pub fn socket_counters(&self) -> SocketCounters {
        self.state.sockets.counters
    }
}

impl Disk for Ring {
    fn submit(&mut self, op: DiskOp) {
        let state = &mut *self.state;
        state.files.submit(op, &mut state.driver)
    }
    /// For a user without sockets: hands out disk completions and drops socket events.
    fn poll(&mut self, done: &mut Vec<DiskDone>) {
        Ring::submit(self);
        Ring::poll(self, &mut |event| {
            if let Event::Disk(finished) = event {
                done.push(finished);
            }
        });
    }
}

impl Drop for Ring {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        if self.state.driver.drain(Duration::from_secs(5)) {
            // SAFETY: dropped once, here; nothing of it is in the kernel's hands any more.
            unsafe { ManuallyDrop::drop(&mut self.state) }
        }
        // Otherwise leaked: the kernel may still write into its buffers.
    }
}

/// Gives a descriptor to a type that is made of one.
#[allow(unsafe_code)]
pub fn adopt<F: FromRawFd>(descriptor: OwnedFd) -> F {
    // SAFETY: what `FromRawFd` asks for is an open descriptor that nobody else owns.
    unsafe { F::from_raw_fd(descriptor.into_raw_fd()) }
}

/// CLOCK_MONOTONIC.
#[allow(unsafe_code)]
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the one argument points to a timespec of ours.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    assert_eq!(result, 0, "every Linux has CLOCK_MONOTONIC");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
