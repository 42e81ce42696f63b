//! Descriptors: files are opened, opened again after they were idle, and closed; what waits for one is started when it is there.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use io_uring::opcode;
use io_uring::types::Fd;
use ringmain_disk::{DiskDone, DiskOk, DiskToken, FileId};
use ringmain_types::DirId;

use super::names::c_path;
use super::{Files, Task, close_silently, errno};
use crate::driver::Driver;

/// How long a file that finds no descriptor is tried again, turn by turn.
const SHORT_NS_MAX: u64 = 1_000_000_000;

impl Files {
    pub(super) fn open(
        &mut self,
        token: DiskToken,
        dir: DirId,
        file: FileId,
        path: String,
        create: bool,
        driver: &mut Driver,
    ) {
        let legal = self.directories.get(&dir).ok_or(libc::EBADF).and_then(|_| c_path(&path));
        if let Err(code) = legal {
            return self.fail(token, "open", dir, &path, code);
        }
        if !self.table.insert(file, dir, path.clone()) {
            return self.fail(token, "open", dir, &path, libc::EEXIST);
        }
        self.start_open(file, create, Some(token), driver);
    }

    pub(super) fn start_open(&mut self, file: FileId, create: bool, first: Option<DiskToken>, driver: &mut Driver) {
        self.trim(self.open_max - 1, driver);
        let Some(state) = self.table.get_mut(file) else { return };
        state.opening = true;
        let Ok(path) = c_path(&state.path) else { return };
        let directory = &self.directories[&state.dir];
        let (name, direct, root) = (state.path.clone(), directory.direct, directory.root.as_raw_fd());
        let flags = libc::O_RDWR
            | libc::O_CLOEXEC
            | if create { libc::O_CREAT } else { 0 }
            | if direct { libc::O_DIRECT } else { 0 };
        let entry = opcode::OpenAt::new(Fd(root), path.as_ptr()).flags(flags).mode(0o644).build();
        let slot = self.tasks.insert(Task::Open { file, _path: path, name, create, direct, first });
        self.push(slot, entry, driver);
    }

    /// Closes what is idle until at most `max` are open. Those in use at the same time may exceed it until they are not.
    pub(super) fn trim(&mut self, max: u32, driver: &mut Driver) {
        while self.table.open() > max {
            let Some(descriptor) = self.table.evict() else { return };
            close_silently(descriptor, driver);
        }
    }

    pub(super) fn reopen(&mut self, file: FileId, driver: &mut Driver) {
        match self.table.get(file) {
            Some(state) if state.unnamed => self.open_failed(file, None, libc::ENOENT, driver),
            Some(_) => self.start_open(file, false, None, driver),
            None => {}
        }
    }

    pub(super) fn opened(
        &mut self,
        (file, name): (FileId, String),
        (create, direct): (bool, bool),
        first: Option<DiskToken>,
        result: i32,
        driver: &mut Driver,
    ) {
        let Some(state) = self.table.get(file) else { return };
        match -result {
            libc::EINVAL if direct => {
                if let Some(directory) = self.directories.get_mut(&state.dir) {
                    directory.direct = false;
                }
                self.start_open(file, create, first, driver)
            }
            libc::EINTR | libc::EAGAIN => self.start_open(file, create, first, driver),
            // The process has fewer descriptors than we were told: get along with less.
            libc::EMFILE | libc::ENFILE => {
                let many = self.table.open() > 4;
                if many {
                    self.open_max = self.open_max.min(self.table.open()).max(5) - 1;
                }
                match if many { self.table.evict() } else { None } {
                    Some(descriptor) => {
                        drop(descriptor);
                        self.start_open(file, create, first, driver)
                    }
                    None if self.descriptors_may_come() => self.start_open(file, create, first, driver),
                    None => self.open_failed(file, first, -result, driver),
                }
            }
            libc::ENOENT if first.is_none() && !state.unnamed && state.path != name => self.reopen(file, driver),
            libc::ENOENT if first.is_none() && !state.unnamed && self.renames > 0 => self.parked.push(file),
            code if code > 0 => self.open_failed(file, first, code, driver),
            _ => {
                self.short_since = None;
                // SAFETY: a successful openat gives a descriptor that nobody else has.
                let descriptor = unsafe { OwnedFd::from_raw_fd(result) };
                self.use_descriptor(file, first, descriptor, driver)
            }
        }
    }

    /// Sockets that were accepted and may not stay have descriptors for a moment.
    fn descriptors_may_come(&mut self) -> bool {
        let now = crate::monotonic_ns();
        now < *self.short_since.get_or_insert(now) + SHORT_NS_MAX
    }

    pub(super) fn use_descriptor(
        &mut self,
        file: FileId,
        first: Option<DiskToken>,
        descriptor: OwnedFd,
        driver: &mut Driver,
    ) {
        if let Some(token) = first {
            let opened = std::fs::File::from(descriptor);
            let bytes = opened.metadata().map(|metadata| metadata.len());
            match bytes {
                Ok(bytes) => self.done.push(DiskDone { token, result: Ok(DiskOk::Opened { bytes }) }),
                Err(error) => return self.open_failed(file, first, errno(&error), driver),
            }
            self.table.opened(file, opened.into());
        } else {
            self.table.opened(file, descriptor);
        }
        let waiting = self.table.get_mut(file).map(|state| std::mem::take(&mut state.waiting)).unwrap_or_default();
        for slot in waiting {
            self.table.acquire(file);
            self.start(slot, driver);
        }
        self.table.rest(file);
        self.trim(self.open_max, driver);
        self.close_if_unused(file, driver);
    }

    pub(super) fn open_failed(&mut self, file: FileId, first: Option<DiskToken>, errno: i32, driver: &mut Driver) {
        let error = self.file_error("open", file, errno);
        let Some(state) = self.table.get_mut(file) else { return };
        state.opening = false;
        let waiting = std::mem::take(&mut state.waiting);
        for slot in waiting {
            self.finish(slot, Err(error.clone()), driver);
        }
        if let Some(token) = first {
            self.table.remove(file);
            self.done.push(DiskDone { token, result: Err(error) });
        } else {
            self.close_if_unused(file, driver);
        }
    }

    pub(super) fn close(&mut self, token: DiskToken, file: FileId, driver: &mut Driver) {
        match self.table.get_mut(file) {
            Some(state) if state.close.is_none() => state.close = Some(token),
            _ => {
                let error = self.file_error("close", file, libc::EBADF);
                return self.done.push(DiskDone { token, result: Err(error) });
            }
        }
        self.close_if_unused(file, driver);
    }

    pub(super) fn close_if_unused(&mut self, file: FileId, driver: &mut Driver) {
        let Some(state) = self.table.get(file) else { return };
        let Some(token) = state.close else { return };
        if state.users > 0 || state.opening || !state.waiting.is_empty() {
            return;
        }
        let path = self.full(state.dir, &state.path);
        match self.table.remove(file).and_then(|state| state.descriptor) {
            Some(descriptor) => {
                let entry = opcode::Close::new(Fd(descriptor.into_raw_fd())).build();
                let slot = self.tasks.insert(Task::Close { token, path });
                self.push(slot, entry, driver);
            }
            None => self.done.push(DiskDone { token, result: Ok(DiskOk::Done) }),
        }
    }
}
