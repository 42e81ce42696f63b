//! Why a node did not start: one line with the path, the errno and what to do about it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use ringmain_disk::DiskError;

#[derive(Debug)]
pub enum StartError {
    /// A file or directory of the data directory could not be used.
    Path {
        operation: &'static str,
        path: PathBuf,
        error: io::Error,
    },
    /// Another process holds the data directory.
    Locked {
        path: PathBuf,
        pid: Option<u32>,
    },
    /// Written by a later version.
    Newer {
        path: PathBuf,
        found: u32,
        known: u32,
    },
    /// A file without which the data beside it can't be understood: never taken for a first start.
    Lost {
        path: PathBuf,
        /// What is there and needs it.
        beside: String,
    },
    /// A file of ours that does not read as one.
    Malformed {
        path: PathBuf,
        why: String,
    },
    Listen {
        address: String,
        error: io::Error,
    },
    /// Below what a node needs even at its smallest.
    Limit {
        name: &'static str,
        has: u64,
        needs: u64,
    },
    /// The kernel has no io_uring, or forbids it.
    IoUring(io::Error),
    /// An option or property whose value can't be used.
    Config {
        name: String,
        value: String,
        allowed: String,
    },
    /// Properties that can't be used, each with what is allowed.
    Properties(String),
    /// The node ran, and had to end: the disk failed before it was ready, or a core's thread died.
    Failed(String),
}

impl StartError {
    pub(crate) fn path(operation: &'static str, path: impl Into<PathBuf>, error: io::Error) -> StartError {
        StartError::Path { operation, path: path.into(), error }
    }

    /// What a person can do about it.
    fn remedy(&self) -> String {
        match self {
            StartError::Path { error, .. } => path_remedy(error).into(),
            StartError::Locked { .. } => "stop that process, or give another --data-dir".into(),
            StartError::Newer { .. } => "start it with the newer ringmain, or give another --data-dir".into(),
            StartError::Lost { .. } => {
                "restore it from a copy, or give another --data-dir: without it every record here would be passed over".into()
            }
            StartError::Malformed { .. } => "restore the file from a copy, or give another --data-dir".into(),
            StartError::Listen { error, .. } => match error.kind() {
                io::ErrorKind::AddrInUse => "stop what listens there, or give another port".into(),
                io::ErrorKind::PermissionDenied => "give a port above 1023".into(),
                _ => "give an address of this machine".into(),
            },
            StartError::Limit { name, needs, .. } => format!("raise {name} to at least {needs} (ulimit, or the service's Limit... setting)"),
            StartError::IoUring(_) => {
                "allow it: kernel 6.1 or later, sysctl kernel.io_uring_disabled=0, and a seccomp profile (container) that lets io_uring_setup through".into()
            }
            StartError::Config { name, allowed, .. } => format!("{name} takes {allowed}"),
            StartError::Properties(_) => "correct them in the file of --config, or by --set".into(),
            StartError::Failed(_) => "see the log above".into(),
        }
    }
}

fn path_remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(code) if code == libc::ENOSPC || code == libc::EDQUOT => {
            "make room on that file system, or give another --data-dir"
        }
        Some(libc::EROFS) => "mount it writable, or give another --data-dir",
        Some(libc::EACCES | libc::EPERM) => "give this user the right to write there, or give another --data-dir",
        Some(libc::ENOTDIR | libc::EEXIST) => "give a directory as --data-dir",
        Some(DiskError::DAMAGED) => {
            "see `ringmain log verify`; restore the directory from a copy, or give another --data-dir"
        }
        Some(DiskError::NEWER) => "start it with the newer ringmain, or give another --data-dir",
        Some(libc::ENOENT) => "restore it from a copy, or give another --data-dir",
        Some(libc::EIO) => "check the disk (dmesg), or give another --data-dir",
        _ => "give another --data-dir",
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Path { operation, path, error } => write!(f, "{operation} {}: {error}", path.display())?,
            StartError::Locked { path, pid: Some(pid) } => write!(f, "{}: in use by process {pid}", path.display())?,
            StartError::Locked { path, pid: None } => write!(f, "{}: in use by another process", path.display())?,
            StartError::Newer { path, found, known } => write!(
                f,
                "{}: format {found} is newer than {known}, the newest that this version knows",
                path.display()
            )?,
            StartError::Lost { path, beside } => write!(f, "{}: missing, though there is {beside}", path.display())?,
            StartError::Malformed { path, why } => write!(f, "{}: {why}", path.display())?,
            StartError::Listen { address, error } => write!(f, "listen on {address}: {error}")?,
            StartError::Limit { name, has, needs } => {
                write!(f, "limit {name} is {has}, too low (a node needs {needs})")?
            }
            StartError::IoUring(error) => write!(f, "io_uring is not available: {error}")?,
            StartError::Config { name, value, .. } => write!(f, "{name}={value}: not a legal value")?,
            StartError::Properties(why) | StartError::Failed(why) => f.write_str(why)?,
        }
        write!(f, "; {}", self.remedy())
    }
}
impl std::error::Error for StartError {}
