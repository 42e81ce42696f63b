//! Files that go: a large one gives its space back in steps.
//!
//! ```text
//! open -> unlink, and the caller is told -> (cut a step, sync) .. -> close
//! ```
//! A file system frees all of a file at once, and one that tells the device of it (`discard`) keeps the device busy with that for tens
//! of milliseconds, in which nobody else's flush ends. The name is gone first, so a crash leaves no shortened file; what is left of it
//! goes with the process.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use io_uring::types::Fd;
use io_uring::{opcode, squeue};
use ringmain_disk::DiskToken;
use ringmain_types::DirId;

use super::names::Change;
use super::{Files, Task};
use crate::driver::{Driver, Kind};

/// Given back at once.
const STEP_BYTES: u64 = 8 << 20;
/// Files under way; more go as they always did.
const SHRINKING_MAX: usize = 64;

/// A file without a name.
pub(super) struct Shrinking {
    file: OwnedFd,
    bytes: u64,
}

impl Files {
    /// Opens a file that is to be removed, if only to see how large it is. False: it is simply to be removed.
    pub(super) fn open_doomed(
        &mut self,
        token: DiskToken,
        dir: DirId,
        path: &str,
        c: &CString,
        driver: &mut Driver,
    ) -> bool {
        // Without cuts by the ring this thread would do the steps.
        if !driver.truncates() || self.shrinking.len() >= SHRINKING_MAX {
            return false;
        }
        let Some(directory) = self.directories.get(&dir) else { return false };
        let flags = libc::O_WRONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
        let c = c.clone();
        let entry = opcode::OpenAt::new(Fd(directory.root.as_raw_fd()), c.as_ptr()).flags(flags).build();
        let slot = self.tasks.insert(Task::OpenDoomed { token, dir, path: path.to_owned(), _c: c });
        self.push(slot, entry, driver);
        true
    }

    /// What can't be opened is removed all the same, or the error is that of the removal.
    pub(super) fn doomed_opened(
        &mut self,
        token: DiskToken,
        dir: DirId,
        path: String,
        result: i32,
        driver: &mut Driver,
    ) {
        let mut large = None;
        if result >= 0 {
            // SAFETY: a successful openat gives a descriptor that nobody else has.
            let file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(result) });
            match file.metadata().map_or(0, |metadata| metadata.len()) {
                bytes if bytes > STEP_BYTES => large = Some(Shrinking { file: file.into(), bytes }),
                _ => close_aside(file.into(), driver),
            }
        }
        self.change_now(token, dir, Change::Remove { path }, large, driver);
    }

    /// Its name is gone. One at a time.
    pub(super) fn shrink(&mut self, file: Shrinking, driver: &mut Driver) {
        self.shrinking.push_back(file);
        if self.shrinking.len() == 1 {
            self.next_cut(driver);
        }
    }

    fn next_cut(&mut self, driver: &mut Driver) {
        while let Some(first) = self.shrinking.front_mut() {
            if first.bytes > 0 {
                first.bytes = first.bytes.saturating_sub(STEP_BYTES);
                let entry = opcode::Ftruncate::new(Fd(first.file.as_raw_fd()), first.bytes).build();
                let slot = self.tasks.insert(Task::Cut);
                return self.push(slot, entry, driver);
            }
            if let Some(first) = self.shrinking.pop_front() {
                close_aside(first.file, driver);
            }
        }
    }

    /// The file system is made to free each step by itself: steps that it gathers are one again.
    pub(super) fn cut(&mut self, result: i32, driver: &mut Driver) {
        let Some(first) = self.shrinking.front_mut() else { return };
        if result < 0 {
            // Then all at once.
            first.bytes = 0;
            return self.next_cut(driver);
        }
        let entry = opcode::Fsync::new(Fd(first.file.as_raw_fd())).build();
        let slot = self.tasks.insert(Task::CutSynced);
        self.push(slot, entry, driver);
    }

    pub(super) fn cut_synced(&mut self, driver: &mut Driver) {
        // Nobody relies on it: its failure is no failed flush.
        self.next_cut(driver);
    }
}

/// By a worker: who closes a file without a name last frees it.
fn close_aside(descriptor: OwnedFd, driver: &mut Driver) {
    let entry = opcode::Close::new(Fd(descriptor.into_raw_fd())).build().flags(squeue::Flags::ASYNC);
    // SAFETY: it points to nothing, and we gave the descriptor up.
    unsafe { driver.push(entry.user_data(Kind::Silent.tag(0))) }
}
