//! Names: what is renamed, removed, made, listed and synced as a directory, and how errors call things.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use io_uring::opcode;
use io_uring::types::Fd;
use ringmain_disk::{DiskDone, DiskError, DiskOk, DiskToken, Entry, FileId};
use ringmain_types::DirId;

use super::shrink::Shrinking;
use super::{Files, Task};
use crate::driver::Driver;

#[derive(Clone, PartialEq)]
pub(super) enum Change {
    Rename { from: String, to: String },
    Remove { path: String },
    MakeDir { path: String },
    RemoveDir { path: String },
}

impl Change {
    pub(super) fn operation(&self) -> (&'static str, &str) {
        match self {
            Change::Rename { from, .. } => ("rename", from),
            Change::Remove { path } => ("remove", path),
            Change::MakeDir { path } => ("mkdir", path),
            Change::RemoveDir { path } => ("rmdir", path),
        }
    }
}

impl Files {
    pub(super) fn full(&self, dir: DirId, path: &str) -> String {
        match self.directories.get(&dir) {
            Some(directory) if path.is_empty() => directory.path.display().to_string(),
            Some(directory) => directory.path.join(path).display().to_string(),
            None => format!("{dir:?}/{path}"),
        }
    }

    pub(super) fn error(&self, operation: &'static str, dir: DirId, path: &str, errno: i32) -> DiskError {
        DiskError { operation, path: self.full(dir, path), errno }
    }

    pub(super) fn file_error(&self, operation: &'static str, file: FileId, errno: i32) -> DiskError {
        match self.table.get(file) {
            Some(state) => self.error(operation, state.dir, &state.path, errno),
            None => DiskError { operation, path: format!("{file:?}"), errno },
        }
    }

    pub(super) fn fail(&mut self, token: DiskToken, operation: &'static str, dir: DirId, path: &str, errno: i32) {
        let error = self.error(operation, dir, path, errno);
        self.done.push(DiskDone { token, result: Err(error) });
    }

    pub(super) fn change(&mut self, token: DiskToken, dir: DirId, change: Change, driver: &mut Driver) {
        if let Change::Remove { path } = &change
            && let Ok(c) = c_path(path)
            && self.open_doomed(token, dir, path, &c, driver)
        {
            return;
        }
        self.change_now(token, dir, change, None, driver);
    }

    /// `large`: of a removal, the file that is then cut away.
    pub(super) fn change_now(
        &mut self,
        token: DiskToken,
        dir: DirId,
        change: Change,
        large: Option<Shrinking>,
        driver: &mut Driver,
    ) {
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
        let slot = self.tasks.insert(Task::Name { token, dir, change, _path: path_c, _to: to_c, large });
        self.push(slot, entry, driver);
    }

    pub(super) fn named(&mut self, token: DiskToken, dir: DirId, change: Change, result: i32, driver: &mut Driver) {
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
    pub(super) fn list(&self, dir: DirId, path: &str) -> io::Result<Vec<Entry>> {
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
    pub(super) fn space(&self, dir: DirId) -> io::Result<DiskOk> {
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

    pub(super) fn open_directory(&mut self, slot: u32, dir: DirId, driver: &mut Driver) {
        let root = self.directories[&dir].root.as_raw_fd();
        let Some(Task::OpenDirectory { path, .. }) = self.tasks.get_mut(slot) else { return };
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let entry = opcode::OpenAt::new(Fd(root), path.as_ptr()).flags(flags).build();
        self.push(slot, entry, driver);
    }

    pub(super) fn directory_opened(&mut self, token: DiskToken, name: String, result: i32, driver: &mut Driver) {
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
}

/// A path below its log directory; `""` is the directory itself.
pub(super) fn c_path(path: &str) -> Result<CString, i32> {
    if path.starts_with('/') || path.split('/').any(|part| part == "..") {
        return Err(libc::EINVAL);
    }
    CString::new(if path.is_empty() { "." } else { path }).map_err(|_| libc::EINVAL)
}
