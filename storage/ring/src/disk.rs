//! `DiskOp`s as io_uring operations: each a small state machine over its completions.
#![allow(unsafe_code)]

mod descriptors;
mod flush;
mod names;
mod shrink;

use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use io_uring::types::{Fd, FsyncFlags};
use io_uring::{opcode, squeue};
use ringmain_buffer::{Buf, BufMut};
use ringmain_disk::{DiskDone, DiskError, DiskKind, DiskOk, DiskOp, DiskToken, FileId};
use ringmain_types::DirId;

use crate::driver::{Driver, Kind};
use crate::files::FileTable;
use crate::slots::Slots;
use names::{Change, c_path};
use shrink::Shrinking;

/// Linux takes no more parts than this in one call (IOV_MAX).
pub(crate) const PARTS_MAX: usize = 1024;
/// No single read or write larger than this is submitted; the rest follows.
const STEP_BYTES_MAX: usize = 1 << 30;

struct Directory {
    path: PathBuf,
    root: OwnedFd,
    /// False once the file system refused O_DIRECT.
    direct: bool,
}

enum Task {
    Write {
        token: DiskToken,
        file: FileId,
        position: u64,
        data: Vec<Buf>,
        bytes: usize,
        done: usize,
        parts: Vec<libc::iovec>,
    },
    Read {
        token: DiskToken,
        file: FileId,
        position: u64,
        bytes: usize,
        done: usize,
        into: BufMut,
    },
    /// One file of a flush.
    Sync {
        flush: u32,
        file: FileId,
    },
    Flush {
        token: DiskToken,
        files: Vec<FileId>,
        writes: usize,
        syncs: usize,
        error: Option<DiskError>,
    },
    /// `first`: the `Open` that waits for it; otherwise it is opened again for those in `waiting`.
    Open {
        file: FileId,
        /// Read by the kernel, as in the others.
        _path: CString,
        /// As in the table when the open was submitted: a rename may overtake it.
        name: String,
        create: bool,
        direct: bool,
        first: Option<DiskToken>,
    },
    Close {
        token: DiskToken,
        path: String,
    },
    Allocate {
        token: DiskToken,
        file: FileId,
        from: u64,
        bytes: u64,
    },
    Truncate {
        token: DiskToken,
        file: FileId,
        bytes: u64,
    },
    Name {
        token: DiskToken,
        dir: DirId,
        change: Change,
        _path: CString,
        _to: CString,
        /// Of a removal: the file, when it is large.
        large: Option<Shrinking>,
    },
    OpenDoomed {
        token: DiskToken,
        dir: DirId,
        path: String,
        _c: CString,
    },
    /// Both of the first of `Files::shrinking`.
    Cut,
    CutSynced,
    OpenDirectory {
        token: DiskToken,
        path: CString,
        name: String,
    },
    SyncDirectory {
        token: DiskToken,
        directory: OwnedFd,
        name: String,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    pub written_bytes: u64,
    pub read_bytes: u64,
    /// fdatasync calls.
    pub flushes: u64,
}

pub(crate) struct Files {
    directories: HashMap<DirId, Directory>,
    table: FileTable,
    tasks: Slots<Task>,
    /// Writes in flight, and the flushes that wait for each.
    writes: HashMap<DiskToken, Vec<u32>>,
    renames: usize,
    /// Since when files find no descriptor.
    short_since: Option<u64>,
    /// Opened again under a name that a rename in flight may just have changed.
    parked: Vec<FileId>,
    /// Removed, and giving back their space.
    shrinking: VecDeque<Shrinking>,
    open_max: u32,
    done: Vec<DiskDone>,
    pub(crate) counters: DiskCounters,
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

impl Files {
    pub(crate) fn new(open_max: u32) -> Files {
        Files {
            directories: HashMap::new(),
            table: FileTable::default(),
            tasks: Slots::new(),
            writes: HashMap::new(),
            renames: 0,
            short_since: None,
            parked: Vec::new(),
            shrinking: VecDeque::new(),
            open_max: open_max.max(4),
            done: Vec::new(),
            counters: DiskCounters::default(),
        }
    }

    pub(crate) fn add_directory(&mut self, dir: DirId, path: &Path, direct: bool) -> io::Result<()> {
        let root = OwnedFd::from(std::fs::File::open(path)?);
        self.directories.insert(dir, Directory { path: path.to_path_buf(), root, direct });
        Ok(())
    }

    pub(crate) fn direct(&self, dir: DirId) -> Option<bool> {
        self.directories.get(&dir).map(|directory| directory.direct)
    }
    pub(crate) fn open_files(&self) -> u32 {
        self.table.open()
    }
    pub(crate) fn busy(&self) -> usize {
        self.tasks.len()
    }
    pub(crate) fn done(&mut self) -> &mut Vec<DiskDone> {
        &mut self.done
    }

    pub(crate) fn submit(&mut self, op: DiskOp, driver: &mut Driver) {
        let token = op.token;
        match op.kind {
            DiskKind::Write { file, position, data } => {
                let bytes = data.iter().map(|part| part.len()).sum();
                let task = Task::Write { token, file, position, data, bytes, done: 0, parts: Vec::new() };
                self.writes.insert(token, Vec::new());
                self.with_descriptor(file, task, driver);
            }
            DiskKind::Read { file, position, bytes, into } => {
                let bytes = (bytes as usize).min(into.spare());
                self.with_descriptor(file, Task::Read { token, file, position, bytes, done: 0, into }, driver);
            }
            DiskKind::Flush { files, after, .. } => self.flush(token, files, &after, driver),
            DiskKind::Open { dir, file, path, create } => self.open(token, dir, file, path, create, driver),
            DiskKind::Close { file } => self.close(token, file, driver),
            DiskKind::Allocate { file, from, bytes } => {
                self.with_descriptor(file, Task::Allocate { token, file, from, bytes }, driver);
            }
            DiskKind::Truncate { file, bytes } => {
                self.with_descriptor(file, Task::Truncate { token, file, bytes }, driver);
            }
            DiskKind::Rename { dir, from, to } => self.change(token, dir, Change::Rename { from, to }, driver),
            DiskKind::Remove { dir, path } => self.change(token, dir, Change::Remove { path }, driver),
            DiskKind::MakeDir { dir, path } => self.change(token, dir, Change::MakeDir { path }, driver),
            DiskKind::RemoveDir { dir, path } => self.change(token, dir, Change::RemoveDir { path }, driver),
            DiskKind::List { dir, path } => {
                let result = self.list(dir, &path).map(DiskOk::Listed);
                let result = result.map_err(|error| self.error("list", dir, &path, errno(&error)));
                self.done.push(DiskDone { token, result });
            }
            DiskKind::Space { dir } => {
                let result = self.space(dir).map_err(|error| self.error("statvfs", dir, "", errno(&error)));
                self.done.push(DiskDone { token, result });
            }
            DiskKind::SyncDir { dir, path } => {
                let named = self.directories.get(&dir).ok_or(libc::EBADF).and_then(|_| c_path(&path));
                match named {
                    Ok(c) => {
                        let slot =
                            self.tasks.insert(Task::OpenDirectory { token, path: c, name: self.full(dir, &path) });
                        self.open_directory(slot, dir, driver);
                    }
                    Err(code) => self.fail(token, "sync directory", dir, &path, code),
                }
            }
        }
    }

    fn with_descriptor(&mut self, file: FileId, task: Task, driver: &mut Driver) {
        let slot = self.tasks.insert(task);
        if self.table.acquire(file).is_some() {
            return self.start(slot, driver);
        }
        match self.table.get_mut(file) {
            Some(state) if state.close.is_none() && (state.opening || !state.unnamed) => {
                state.waiting.push(slot);
                if !state.opening {
                    self.start_open(file, false, None, driver);
                }
            }
            state => {
                let code = if state.is_some_and(|state| state.unnamed) { libc::ENOENT } else { libc::EBADF };
                let error = self.file_error("use", file, code);
                self.finish(slot, Err(error), driver);
            }
        }
    }

    fn descriptor(&self, file: FileId) -> RawFd {
        let descriptor = self.table.get(file).and_then(|state| state.descriptor.as_ref());
        descriptor.expect("an operation that was started holds its descriptor").as_raw_fd()
    }

    /// Submits the next step of an operation that holds its descriptor.
    fn start(&mut self, slot: u32, driver: &mut Driver) {
        let (Some(Task::Write { file, .. })
        | Some(Task::Read { file, .. })
        | Some(Task::Sync { file, .. })
        | Some(Task::Allocate { file, .. })
        | Some(Task::Truncate { file, .. })) = self.tasks.get_mut(slot)
        else {
            return;
        };
        let file = *file;
        let fd = Fd(self.descriptor(file));
        let buffered = self.table.get(file).is_some_and(|state| !self.directories[&state.dir].direct);
        let entry = match self.tasks.get_mut(slot) {
            Some(Task::Write { position, data, done, parts, .. }) => {
                if buffered && let Some(state) = self.table.get_mut(file) {
                    state.dirty = true;
                }
                fill_parts(parts, data, *done);
                let at = *position + *done as u64;
                match parts.as_slice() {
                    [one] => opcode::Write::new(fd, one.iov_base.cast(), one.iov_len as u32).offset(at).build(),
                    many => opcode::Writev::new(fd, many.as_ptr(), many.len() as u32).offset(at).build(),
                }
            }
            Some(Task::Read { position, bytes, done, into, .. }) => {
                let step = (*bytes - *done).min(STEP_BYTES_MAX);
                let pointer = into.spare_mut().as_mut_ptr();
                opcode::Read::new(fd, pointer, step as u32).offset(*position + *done as u64).build()
            }
            Some(Task::Sync { .. }) => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
            Some(Task::Allocate { from, bytes, .. }) => opcode::Fallocate::new(fd, *bytes).offset(*from).build(),
            Some(Task::Truncate { bytes, .. }) if driver.truncates() => opcode::Ftruncate::new(fd, *bytes).build(),
            Some(Task::Truncate { bytes, .. }) => {
                // SAFETY: ftruncate(2) takes no pointer; the descriptor is open while this operation holds it.
                let failed = unsafe { libc::ftruncate(fd.0, *bytes as i64) } < 0;
                let code = if failed { -errno(&io::Error::last_os_error()) } else { 0 };
                return self.complete(slot, code, driver);
            }
            _ => return,
        };
        self.push(slot, entry, driver);
    }

    fn push(&mut self, slot: u32, entry: squeue::Entry, driver: &mut Driver) {
        // SAFETY: buffers, paths and vectors that the entry points to are on the heap and owned by the task in `slot` (or, for
        // an open, by its directory), which is taken out only at its completion; descriptors are held by the file's `users`.
        unsafe { driver.push(entry.user_data(Kind::Disk.tag(slot))) }
    }

    pub(crate) fn complete(&mut self, slot: u32, result: i32, driver: &mut Driver) {
        let again = matches!(-result, libc::EINTR | libc::EAGAIN);
        match self.tasks.get_mut(slot) {
            None => {}
            Some(Task::Write { .. } | Task::Read { .. } | Task::Allocate { .. } | Task::Truncate { .. }) if again => {
                self.start(slot, driver)
            }
            Some(Task::Write { bytes, done, .. }) => {
                *done += result.max(0) as usize;
                let left = *bytes - *done;
                match result {
                    _ if result < 0 => self.failed("write", slot, -result, driver),
                    _ if left == 0 => self.finish(slot, Ok(()), driver),
                    // Nothing was written and no reason given.
                    0 => self.failed("write", slot, libc::EIO, driver),
                    _ => self.start(slot, driver),
                }
            }
            Some(Task::Read { bytes, done, into, .. }) => {
                let got = result.max(0) as usize;
                into.advance(got);
                *done += got;
                let whole = *done == *bytes || got == 0 || !(*done).is_multiple_of(512);
                match result {
                    _ if result < 0 => self.failed("read", slot, -result, driver),
                    _ if whole => self.finish(slot, Ok(()), driver),
                    _ => self.start(slot, driver),
                }
            }
            Some(Task::Sync { .. }) if result < 0 => self.failed("flush", slot, -result, driver),
            Some(Task::Allocate { file, from, bytes, .. }) if result == -libc::EOPNOTSUPP => {
                let (file, to) = (*file, *from + *bytes);
                match self.extend(file, to) {
                    Ok(()) => self.finish(slot, Ok(()), driver),
                    Err(error) => self.failed("allocate", slot, errno(&error), driver),
                }
            }
            Some(Task::Allocate { .. }) if result < 0 => self.failed("allocate", slot, -result, driver),
            Some(Task::Truncate { .. }) if result < 0 => self.failed("truncate", slot, -result, driver),
            Some(Task::Sync { .. } | Task::Allocate { .. } | Task::Truncate { .. }) => {
                self.finish(slot, Ok(()), driver)
            }
            Some(Task::Flush { .. }) => {}
            Some(_) => self.complete_name(slot, result, driver),
        }
    }

    /// Completions of what needs no descriptor.
    fn complete_name(&mut self, slot: u32, result: i32, driver: &mut Driver) {
        match self.tasks.take(slot) {
            Some(Task::Open { file, name, create, direct, first, .. }) => {
                self.opened((file, name), (create, direct), first, result, driver);
            }
            Some(Task::Close { token, path }) => {
                let error = DiskError { operation: "close", path, errno: -result };
                let result = if result < 0 { Err(error) } else { Ok(DiskOk::Done) };
                self.done.push(DiskDone { token, result });
            }
            Some(Task::Name { token, dir, change, large, .. }) => {
                if let Some(file) = large.filter(|_| result >= 0) {
                    self.shrink(file, driver);
                }
                self.named(token, dir, change, result, driver);
            }
            Some(Task::OpenDoomed { token, dir, path, .. }) => self.doomed_opened(token, dir, path, result, driver),
            Some(Task::Cut) => self.cut(result, driver),
            Some(Task::CutSynced) => self.cut_synced(driver),
            Some(Task::OpenDirectory { token, name, .. }) => self.directory_opened(token, name, result, driver),
            Some(Task::SyncDirectory { token, directory, name }) => {
                let error = DiskError { operation: "sync directory", path: name, errno: -result };
                let result = if result < 0 { Err(error) } else { Ok(DiskOk::Done) };
                close_silently(directory, driver);
                self.done.push(DiskDone { token, result });
            }
            _ => {}
        }
    }

    /// Where the file system can't reserve: a hole.
    fn extend(&self, file: FileId, to: u64) -> io::Result<()> {
        let descriptor = self.table.get(file).and_then(|state| state.descriptor.as_ref());
        let descriptor = descriptor.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        let file = std::fs::File::from(descriptor.try_clone()?);
        if file.metadata()?.len() < to { file.set_len(to) } else { Ok(()) }
    }

    fn failed(&mut self, operation: &'static str, slot: u32, errno: i32, driver: &mut Driver) {
        let file = match self.tasks.get_mut(slot) {
            Some(
                Task::Write { file, .. }
                | Task::Read { file, .. }
                | Task::Sync { file, .. }
                | Task::Allocate { file, .. }
                | Task::Truncate { file, .. },
            ) => *file,
            _ => return,
        };
        let error = self.file_error(operation, file, errno);
        self.release_and_finish(slot, file, Err(error), driver)
    }

    fn finish(&mut self, slot: u32, result: Result<(), DiskError>, driver: &mut Driver) {
        let held = match self.tasks.get_mut(slot) {
            // It never got a descriptor when its file could not be opened.
            _ if result.is_err() => None,
            Some(
                Task::Write { file, .. }
                | Task::Read { file, .. }
                | Task::Sync { file, .. }
                | Task::Allocate { file, .. }
                | Task::Truncate { file, .. },
            ) => Some(*file),
            _ => None,
        };
        match held {
            Some(file) => self.release_and_finish(slot, file, result, driver),
            None => self.report(slot, result, driver),
        }
    }

    fn release_and_finish(&mut self, slot: u32, file: FileId, result: Result<(), DiskError>, driver: &mut Driver) {
        self.table.release(file);
        self.trim(self.open_max, driver);
        self.report(slot, result, driver);
        self.close_if_unused(file, driver);
    }

    fn report(&mut self, slot: u32, result: Result<(), DiskError>, driver: &mut Driver) {
        let (token, result) = match self.tasks.take(slot) {
            Some(Task::Write { token, bytes, .. }) => {
                self.counters.written_bytes += if result.is_ok() { bytes as u64 } else { 0 };
                for flush in self.writes.remove(&token).unwrap_or_default() {
                    self.write_done(flush, result.as_ref().err(), driver);
                }
                (token, result.map(|()| DiskOk::Done))
            }
            Some(Task::Read { token, into, done, .. }) => {
                self.counters.read_bytes += done as u64;
                (token, result.map(|()| DiskOk::Read(into)))
            }
            Some(Task::Allocate { token, .. } | Task::Truncate { token, .. }) => (token, result.map(|()| DiskOk::Done)),
            Some(Task::Sync { flush, .. }) => return self.sync_done(flush, result.err()),
            _ => return,
        };
        self.done.push(DiskDone { token, result });
    }
}

/// The parts of `data` behind its first `done` bytes, as many as one call takes.
pub(crate) fn fill_parts(parts: &mut Vec<libc::iovec>, data: &[Buf], done: usize) {
    parts.clear();
    let (mut skip, mut bytes) = (done, 0);
    for part in data {
        if skip >= part.len() {
            skip -= part.len();
            continue;
        }
        if parts.len() == PARTS_MAX || bytes >= STEP_BYTES_MAX {
            return;
        }
        let rest = &part[skip..];
        skip = 0;
        bytes += rest.len();
        parts.push(libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() });
    }
}

fn close_silently(descriptor: OwnedFd, driver: &mut Driver) {
    let entry = opcode::Close::new(Fd(descriptor.into_raw_fd())).build();
    // SAFETY: it points to nothing, and we gave the descriptor up.
    unsafe { driver.push(entry.user_data(Kind::Silent.tag(0))) }
}
