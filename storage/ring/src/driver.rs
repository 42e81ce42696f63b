//! The io_uring instance: submissions, one enter a turn, completions, sleep, and the bell that ends it.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

/// io_uring_enter(2): run deferred task work and post what it completes.
const GETEVENTS: u32 = 1;

/// What a completion belongs to: the top byte of its `user_data`, the rest is a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    Accept = 1,
    Receive,
    Send,
    Shutdown,
    CloseSocket,
    Disk,
    /// Another core has news for this one.
    Bell,
    /// Nobody waits for it.
    Silent,
}

impl Kind {
    pub(crate) fn tag(self, slot: u32) -> u64 {
        (self as u64) << 56 | u64::from(slot)
    }

    fn of(user_data: u64) -> Kind {
        const KINDS: [Kind; 8] = [
            Kind::Accept,
            Kind::Receive,
            Kind::Send,
            Kind::Shutdown,
            Kind::CloseSocket,
            Kind::Disk,
            Kind::Bell,
            Kind::Silent,
        ];
        *KINDS.get((user_data >> 56) as usize - 1).expect("user_data is ours: the kernel gives back what it got")
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    pub(crate) kind: Kind,
    pub(crate) slot: u32,
    /// Bytes, a descriptor, or a negative errno.
    pub(crate) result: i32,
    pub(crate) flags: u32,
}

impl Completion {
    pub(crate) fn more(&self) -> bool {
        cqueue::more(self.flags)
    }
}

/// The kernel's flag that an enter would bring completions (IORING_SQ_TASKRUN). It is set behind the queueing of the work that it
/// stands for: when that work was run in between, the flag stays set for nothing until more comes, and who believes it enters without
/// end. So once an enter brought nothing the flag counts only now and then.
#[derive(Default)]
struct Hint {
    /// So many looks more at which it does not count.
    doubted: u32,
}

/// Some twenty microseconds of a spinning core.
const DOUBTED_LOOKS: u32 = 64;

impl Hint {
    /// An enter is over. `set`: the flag is, all the same.
    fn entered(&mut self, brought: bool, set: bool) {
        self.doubted = if set && !brought { DOUBTED_LOOKS } else { 0 };
    }

    /// Whether to enter for it.
    fn counts(&mut self, set: bool) -> bool {
        self.doubted = if set { self.doubted } else { 0 };
        let doubted = self.doubted > 0;
        self.doubted = self.doubted.saturating_sub(1);
        set && !doubted
    }
}

pub(crate) struct Driver {
    ring: IoUring,
    hint: Hint,
    /// What did not fit into the submission queue, in order.
    backlog: VecDeque<squeue::Entry>,
    /// Submissions whose last completion is still to come.
    in_flight: usize,
    enters: u64,
    /// Written by who wakes this thread. One read of it is under way while `bell_armed`.
    bell: OwnedFd,
    bell_armed: bool,
    /// Where that read puts its count; nobody looks at it.
    bell_count: Box<[u8; 8]>,
    truncates: bool,
}

impl Driver {
    /// On the thread that will use it (IORING_SETUP_SINGLE_ISSUER).
    pub(crate) fn new(submissions: u32, completions: u32) -> io::Result<Driver> {
        let ring = build(submissions, completions)?;
        let mut probe = io_uring::Probe::new();
        let truncates =
            ring.submitter().register_probe(&mut probe).is_ok() && probe.is_supported(opcode::Ftruncate::CODE);
        // SAFETY: eventfd(2) takes no pointer; the descriptor is ours alone.
        let bell = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Driver {
            ring,
            hint: Hint::default(),
            backlog: VecDeque::new(),
            in_flight: 0,
            enters: 0,
            bell,
            bell_armed: false,
            bell_count: Box::new([0; 8]),
            truncates,
        })
    }

    pub(crate) fn ring(&self) -> &IoUring {
        &self.ring
    }
    pub(crate) fn truncates(&self) -> bool {
        self.truncates
    }
    pub(crate) fn enters(&self) -> u64 {
        self.enters
    }
    pub(crate) fn bell(&self) -> io::Result<OwnedFd> {
        self.bell.try_clone()
    }

    /// # Safety
    /// All that `entry` points to stays where it is and is not touched otherwise until its last completion; descriptors in it
    /// stay open as long.
    pub(crate) unsafe fn push(&mut self, entry: squeue::Entry) {
        self.in_flight += 1;
        // SAFETY: the caller's promise is `push`'s own.
        if !self.backlog.is_empty() || unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.backlog.push_back(entry);
        }
    }

    /// Whether an enter would do something: submissions, or completions that the kernel holds back until we ask.
    pub(crate) fn wants_enter(&mut self) -> bool {
        let queue = self.ring.submission();
        let (waits, hint, overflow) = (!queue.is_empty(), queue.taskrun(), queue.cq_overflow());
        waits || overflow || !self.backlog.is_empty() || self.hint.counts(hint)
    }

    /// Brings completions that are there but for an enter, if none is at hand.
    pub(crate) fn fetch(&mut self) {
        if self.ring.completion().is_empty() && self.ready() {
            self.enter();
        }
    }

    /// Completions are there, or one enter away.
    pub(crate) fn ready(&mut self) -> bool {
        if !self.ring.completion().is_empty() {
            return true;
        }
        let queue = self.ring.submission();
        let (hint, overflow) = (queue.taskrun(), queue.cq_overflow());
        overflow || self.hint.counts(hint)
    }

    /// Submits everything and runs deferred work; does not wait.
    pub(crate) fn enter(&mut self) {
        loop {
            let count = self.fill();
            self.enters += 1;
            // SAFETY: no argument is passed; what the submissions point to lives (`push`).
            let entered = unsafe { self.ring.submitter().enter::<libc::sigset_t>(count, 0, GETEVENTS, None) };
            self.entered();
            match entered {
                // Without progress the rest waits for the next turn, when completions were taken out.
                Ok(0) => return,
                Ok(_) if self.backlog.is_empty() => return,
                Ok(_) => {}
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // The completion queue overflowed, or the kernel is short of memory: take completions first.
                    Some(libc::EBUSY | libc::EAGAIN | libc::ENOMEM) => return,
                    _ => panic!("io_uring_enter: {error}: the ring was used by another thread or is broken"),
                },
            }
        }
    }

    fn entered(&mut self) {
        let brought = !self.ring.completion().is_empty();
        let set = self.ring.submission().taskrun();
        self.hint.entered(brought, set);
    }

    /// Moves the backlog on; returns how much there is to submit.
    fn fill(&mut self) -> u32 {
        let mut queue = self.ring.submission();
        while let Some(entry) = self.backlog.front() {
            // SAFETY: promised when the entry was pushed.
            if unsafe { queue.push(entry) }.is_err() {
                break;
            }
            self.backlog.pop_front();
        }
        queue.len() as u32
    }

    /// As `wait`, and a ring of the bell ends it too: also one that was rung before.
    pub(crate) fn sleep(&mut self, max: Duration) {
        if !std::mem::replace(&mut self.bell_armed, true) {
            let (fd, into) = (Fd(self.bell.as_raw_fd()), self.bell_count.as_mut_ptr());
            let read = opcode::Read::new(fd, into, 8).build();
            // SAFETY: the eight bytes are boxed and nobody else's; box and descriptor live with the driver, which is dropped once the
            // kernel has let go (`Ring`).
            unsafe { self.push(read.user_data(Kind::Bell.tag(0))) };
        }
        self.wait(max);
    }

    /// Submits and waits for a completion, at most `max`.
    pub(crate) fn wait(&mut self, max: Duration) {
        self.fill();
        let timespec = Timespec::from(max);
        self.enters += 1;
        let entered = self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timespec));
        self.entered();
        match entered {
            Ok(_) => {}
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => {}
                _ => panic!("io_uring_enter: {error}"),
            },
        }
    }

    /// Moves all completions into `out`.
    pub(crate) fn reap(&mut self, out: &mut Vec<Completion>) {
        for entry in self.ring.completion() {
            let completion = Completion {
                kind: Kind::of(entry.user_data()),
                slot: entry.user_data() as u32,
                result: entry.result(),
                flags: entry.flags(),
            };
            if !completion.more() {
                self.in_flight -= 1;
            }
            match completion.kind {
                Kind::Silent => {}
                Kind::Bell => self.bell_armed = false,
                _ => out.push(completion),
            }
        }
    }

    /// Cancels everything and waits until the kernel holds none of our memory. False when it still does after `max`.
    pub(crate) fn drain(&mut self, max: Duration) -> bool {
        let until = std::time::Instant::now() + max;
        let mut reaped = Vec::new();
        let cancel = opcode::AsyncCancel2::new(io_uring::types::CancelBuilder::any()).build();
        // SAFETY: it points to nothing.
        unsafe { self.push(cancel.user_data(Kind::Silent.tag(0))) };
        while self.in_flight > 0 && std::time::Instant::now() < until {
            self.wait(Duration::from_millis(10));
            self.reap(&mut reaped);
        }
        self.in_flight == 0
    }
}

impl AsRawFd for Driver {
    fn as_raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}

/// With the best flags that the kernel takes: deferred task work (6.1), cooperative (5.19), none.
fn build(submissions: u32, completions: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_cqsize(completions).setup_submit_all().dontfork();
    let plain = builder.clone();
    let defer = builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().build(submissions);
    let refused = |error: &io::Error| error.raw_os_error() == Some(libc::EINVAL);
    match defer {
        Err(error) if refused(&error) => {
            match plain.clone().setup_coop_taskrun().setup_taskrun_flag().build(submissions) {
                Err(error) if refused(&error) => IoUring::builder().setup_cqsize(completions).build(submissions),
                built => built,
            }
        }
        built => built,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_that_was_left_set_is_not_followed_for_ever() {
        let mut hint = Hint::default();
        let mut enters = 0;
        for _ in 0..10_000 {
            if hint.counts(true) {
                enters += 1;
                hint.entered(false, true);
            }
        }
        assert!((100..200).contains(&enters), "{enters}: rarely, but again and again");
        while hint.counts(true) {
            hint.entered(false, true);
        }
        assert!(!hint.counts(false));
        assert!(hint.counts(true), "set anew, it counts at once");
        hint.entered(true, true);
        assert!(hint.counts(true), "and so while it brings something");
        hint.entered(false, false);
        assert!(hint.counts(true), "it was not set when the enter was over: this is news");
    }
}
