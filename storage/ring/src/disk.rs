//! `DiskOp`s as io_uring operations: each a small state machine over its completions.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use io_uring::types::{Fd, FsyncFlags};
use io_uring::{opcode, squeue};
use ringmain_buffer::{Buf, BufMut};
use ringmain_disk::{DiskDone, DiskError, DiskKind, DiskOk, DiskOp, DiskToken, Entry, FileId};
use ringmain_types::DirId;

use crate::driver::{Driver, Kind};
use crate::files::FileTable;
use crate::slots::Slots;

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
    },
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

#[derive(Clone, PartialEq)]
enum Change {
    Rename { from: String, to: String },
    Remove { path: String },
    MakeDir { path: String },
    RemoveDir { path: String },
}

impl Change {
    fn operation(&self) -> (&'static str, &str) {
        match self {
            Change::Rename { from, .. } => ("rename", from),
            Change::Remove { path } => ("remove", path),
            Change::MakeDir { path } => ("mkdir", path),
            Change::RemoveDir { path } => ("rmdir", path),
        }
    }
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
    /// Opened again under a name that a rename in flight may just have changed.
    parked: Vec<FileId>,
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
            parked: Vec::new(),
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

    // ---- names

    fn full(&self, dir: DirId, path: &str) -> String {
        match self.directories.get(&dir) {
            Some(directory) if path.is_empty() => directory.path.display().to_string(),
            Some(directory) => directory.path.join(path).display().to_string(),
            None => format!("{dir:?}/{path}"),
        }
    }

    fn error(&self, operation: &'static str, dir: DirId, path: &str, errno: i32) -> DiskError {
        DiskError { operation, path: self.full(dir, path), errno }
    }

    fn file_error(&self, operation: &'static str, file: FileId, errno: i32) -> DiskError {
        match self.table.get(file) {
            Some(state) => self.error(operation, state.dir, &state.path, errno),
            None => DiskError { operation, path: format!("{file:?}"), errno },
        }
    }

    fn fail(&mut self, token: DiskToken, operation: &'static str, dir: DirId, path: &str, errno: i32) {
        let error = self.error(operation, dir, path, errno);
        self.done.push(DiskDone { token, result: Err(error) });
    }

    fn change(&mut self, token: DiskToken, dir: DirId, change: Change, driver: &mut Driver) {
        let (operation, path) = change.operation();
        let to = if let Change::Rename { to, .. } = &change { to } else { "" };
        let root = self.directories.get(&dir).map(|directory| directory.root.as_raw_fd()).ok_or(libc::EBADF);
        let named = root.and_then(|root| Ok((root, c_path(path)?, c_path(to)?)));
        let (root, path_c, to_c) = match named {
            Ok(named) => named,
            Err(code) => {
                let path = path.to_string();
                return self.fail(token, operation, dir, &path, code);
            }
        };
        let (root, from, to) = (Fd(root), path_c.as_ptr(), to_c.as_ptr());
        let entry = match &change {
            Change::Rename { .. } => {
                self.renames += 1;
                opcode::RenameAt::new(root, from, root, to).build()
            }
            Change::Remove { .. } => opcode::UnlinkAt::new(root, from).build(),
            Change::RemoveDir { .. } => opcode::UnlinkAt::new(root, from).flags(libc::AT_REMOVEDIR).build(),
            Change::MakeDir { .. } => opcode::MkDirAt::new(root, from).mode(0o755).build(),
        };
        let slot = self.tasks.insert(Task::Name { token, dir, change, _path: path_c, _to: to_c });
        self.push(slot, entry, driver);
    }

    fn named(&mut self, token: DiskToken, dir: DirId, change: Change, result: i32, driver: &mut Driver) {
        if let Change::Rename { from, to } = &change {
            self.renames -= 1;
            if result >= 0 {
                self.table.renamed(dir, from, to);
            }
            for file in std::mem::take(&mut self.parked) {
                self.reopen(file, driver);
            }
        }
        let exists = result == -libc::EEXIST && matches!(change, Change::MakeDir { .. });
        if result < 0 && !exists {
            let (operation, path) = change.operation();
            let path = path.to_string();
            return self.fail(token, operation, dir, &path, -result);
        }
        if let Change::Remove { path } | Change::RemoveDir { path } = &change {
            self.table.removed(dir, path);
        }
        self.done.push(DiskDone { token, result: Ok(DiskOk::Done) });
    }

    /// Blocks; asked for at recovery only.
    fn list(&self, dir: DirId, path: &str) -> io::Result<Vec<Entry>> {
        c_path(path).map_err(io::Error::from_raw_os_error)?;
        let directory = self.directories.get(&dir).ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(directory.path.join(path))? {
            let entry = entry?;
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // Removed since.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            // A name that is not UTF-8 is none of ours.
            if let Ok(name) = entry.file_name().into_string() {
                entries.push(Entry { name, bytes: metadata.len(), directory: metadata.is_dir() });
            }
        }
        entries.sort();
        Ok(entries)
    }

    /// Answered by the kernel from memory, as `list` is by a file system whose names are cached.
    fn space(&self, dir: DirId) -> io::Result<DiskOk> {
        let directory = self.directories.get(&dir).ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        // SAFETY: a statvfs of zeroes is one; the descriptor is open and the call writes into `stat` alone.
        let (result, stat) = unsafe {
            let mut stat = std::mem::zeroed::<libc::statvfs>();
            (libc::fstatvfs(directory.root.as_raw_fd(), &raw mut stat), stat)
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok(DiskOk::Space { total_bytes: bytes(stat.f_blocks), usable_bytes: bytes(stat.f_bavail) })
    }

    fn open_directory(&mut self, slot: u32, dir: DirId, driver: &mut Driver) {
        let root = self.directories[&dir].root.as_raw_fd();
        let Some(Task::OpenDirectory { path, .. }) = self.tasks.get_mut(slot) else { return };
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let entry = opcode::OpenAt::new(Fd(root), path.as_ptr()).flags(flags).build();
        self.push(slot, entry, driver);
    }

    fn directory_opened(&mut self, token: DiskToken, name: String, result: i32, driver: &mut Driver) {
        if result < 0 {
            let error = DiskError { operation: "open directory", path: name, errno: -result };
            return self.done.push(DiskDone { token, result: Err(error) });
        }
        // SAFETY: a successful openat gives a descriptor that nobody else has.
        let directory = unsafe { OwnedFd::from_raw_fd(result) };
        let entry = opcode::Fsync::new(Fd(directory.as_raw_fd())).build();
        let slot = self.tasks.insert(Task::SyncDirectory { token, directory, name });
        self.push(slot, entry, driver);
    }

    // ---- descriptors

    fn open(&mut self, token: DiskToken, dir: DirId, file: FileId, path: String, create: bool, driver: &mut Driver) {
        let legal = self.directories.get(&dir).ok_or(libc::EBADF).and_then(|_| c_path(&path));
        if let Err(code) = legal {
            return self.fail(token, "open", dir, &path, code);
        }
        if !self.table.insert(file, dir, path.clone()) {
            return self.fail(token, "open", dir, &path, libc::EEXIST);
        }
        self.start_open(file, create, Some(token), driver);
    }

    fn start_open(&mut self, file: FileId, create: bool, first: Option<DiskToken>, driver: &mut Driver) {
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
    fn trim(&mut self, max: u32, driver: &mut Driver) {
        while self.table.open() > max {
            let Some(descriptor) = self.table.evict() else { return };
            close_silently(descriptor, driver);
        }
    }

    fn reopen(&mut self, file: FileId, driver: &mut Driver) {
        match self.table.get(file) {
            Some(state) if state.unnamed => self.open_failed(file, None, libc::ENOENT, driver),
            Some(_) => self.start_open(file, false, None, driver),
            None => {}
        }
    }

    fn opened(
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
            libc::EMFILE | libc::ENFILE if self.table.open() > 4 => {
                self.open_max = self.open_max.min(self.table.open()).max(5) - 1;
                match self.table.evict() {
                    Some(descriptor) => {
                        drop(descriptor);
                        self.start_open(file, create, first, driver)
                    }
                    None => self.open_failed(file, first, -result, driver),
                }
            }
            libc::ENOENT if first.is_none() && !state.unnamed && state.path != name => self.reopen(file, driver),
            libc::ENOENT if first.is_none() && !state.unnamed && self.renames > 0 => self.parked.push(file),
            code if code > 0 => self.open_failed(file, first, code, driver),
            _ => {
                // SAFETY: a successful openat gives a descriptor that nobody else has.
                let descriptor = unsafe { OwnedFd::from_raw_fd(result) };
                self.use_descriptor(file, first, descriptor, driver)
            }
        }
    }

    fn use_descriptor(&mut self, file: FileId, first: Option<DiskToken>, descriptor: OwnedFd, driver: &mut Driver) {
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

    fn open_failed(&mut self, file: FileId, first: Option<DiskToken>, errno: i32, driver: &mut Driver) {
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

    fn close(&mut self, token: DiskToken, file: FileId, driver: &mut Driver) {
        match self.table.get_mut(file) {
            Some(state) if state.close.is_none() => state.close = Some(token),
            _ => {
                let error = self.file_error("close", file, libc::EBADF);
                return self.done.push(DiskDone { token, result: Err(error) });
            }
        }
        self.close_if_unused(file, driver);
    }

    fn close_if_unused(&mut self, file: FileId, driver: &mut Driver) {
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

    // ---- operations on one file

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
            Some(Task::Name { token, dir, change, .. }) => self.named(token, dir, change, result, driver),
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

    // ---- flushes

    fn flush(&mut self, token: DiskToken, files: Vec<FileId>, after: &[DiskToken], driver: &mut Driver) {
        let slot = self.tasks.insert(Task::Flush { token, files, writes: 0, syncs: 0, error: None });
        let mut waits = 0;
        for write in after {
            if let Some(flushes) = self.writes.get_mut(write) {
                flushes.push(slot);
                waits += 1;
            }
        }
        if let Some(Task::Flush { writes, .. }) = self.tasks.get_mut(slot) {
            *writes = waits;
        }
        if waits == 0 {
            self.start_syncs(slot, driver);
        }
    }

    fn write_done(&mut self, flush: u32, failed: Option<&DiskError>, driver: &mut Driver) {
        let Some(Task::Flush { writes, error, .. }) = self.tasks.get_mut(flush) else { return };
        if error.is_none() {
            *error = failed.cloned();
        }
        *writes -= 1;
        if *writes == 0 {
            self.start_syncs(flush, driver);
        }
    }

    fn start_syncs(&mut self, flush: u32, driver: &mut Driver) {
        let Some(Task::Flush { files, syncs, error, .. }) = self.tasks.get_mut(flush) else { return };
        // One more than there are, so that failures on the way can't end it before all are started.
        *syncs = 1;
        if error.is_none() {
            let files = files.clone();
            *syncs += files.len();
            self.counters.flushes += files.len() as u64;
            for file in files {
                self.with_descriptor(file, Task::Sync { flush, file }, driver);
            }
        }
        self.sync_done(flush, None);
    }

    fn sync_done(&mut self, flush: u32, failed: Option<DiskError>) {
        let Some(Task::Flush { syncs, error, .. }) = self.tasks.get_mut(flush) else { return };
        if error.is_none() {
            *error = failed;
        }
        *syncs -= 1;
        if *syncs > 0 {
            return;
        }
        let Some(Task::Flush { token, files, error, .. }) = self.tasks.take(flush) else { return };
        if error.is_none() {
            for file in files {
                if let Some(state) = self.table.get_mut(file) {
                    state.dirty = false;
                }
                self.table.rest(file);
            }
        }
        self.done.push(DiskDone { token, result: error.map_or(Ok(DiskOk::Done), Err) });
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

/// A path below its log directory; `""` is the directory itself.
fn c_path(path: &str) -> Result<CString, i32> {
    if path.starts_with('/') || path.split('/').any(|part| part == "..") {
        return Err(libc::EINVAL);
    }
    CString::new(if path.is_empty() { "." } else { path }).map_err(|_| libc::EINVAL)
}

fn close_silently(descriptor: OwnedFd, driver: &mut Driver) {
    let entry = opcode::Close::new(Fd(descriptor.into_raw_fd())).build();
    // SAFETY: it points to nothing, and we gave the descriptor up.
    unsafe { driver.push(entry.user_data(Kind::Silent.tag(0))) }
}
