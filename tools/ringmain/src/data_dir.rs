//! What is in the data directory of a stopped broker, found by name.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use ringmain_log::inspect::{self, JournalReport, OpenLog, parse_file_name};

#[derive(Debug)]
pub enum PathError {
    Io {
        path: PathBuf,
        error: io::Error,
    },
    /// A broker holds the directory: what it is writing would look like damage.
    InUse {
        path: PathBuf,
    },
    /// Neither a data directory, a partition's, nor a file of either.
    Unknown {
        path: PathBuf,
    },
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathError::Io { path, error } => write!(f, "{}: {error}", path.display()),
            PathError::InUse { path } => write!(f, "{}: in use by a broker; stop it first", path.display()),
            PathError::Unknown { path } => write!(
                f,
                "{}: not a data directory, a partition's directory, or a file of these; give one of them",
                path.display()
            ),
        }
    }
}
impl std::error::Error for PathError {}

pub fn failed(path: &Path) -> impl Fn(io::Error) -> PathError + '_ {
    move |error| PathError::Io { path: path.into(), error }
}

/// What a file is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    Segment,
    OffsetIndex,
    TimeIndex,
    Snapshot,
    Epochs,
    PartitionMetadata,
    Journal,
}

pub fn kind(path: &Path) -> Option<FileKind> {
    let name = path.file_name()?.to_str()?;
    if name.ends_with(".journal") {
        return Some(FileKind::Journal);
    }
    match (name, parse_file_name(name).map(|(_, extension)| extension)) {
        ("leader-epoch-checkpoint", _) => Some(FileKind::Epochs),
        ("partition.metadata", _) => Some(FileKind::PartitionMetadata),
        (_, Some("log")) => Some(FileKind::Segment),
        (_, Some("index")) => Some(FileKind::OffsetIndex),
        (_, Some("timeindex")) => Some(FileKind::TimeIndex),
        (_, Some("snapshot")) => Some(FileKind::Snapshot),
        _ => None,
    }
}

/// A data directory, held against a broker's start while it is read.
pub struct DataDir {
    pub path: PathBuf,
    /// Journals of the newest generation, each with what reading it gave.
    pub journals: Vec<(PathBuf, Result<JournalReport, &'static str>)>,
    _lock: Option<File>,
}

impl DataDir {
    /// `None` when the directory has no journals and so is none.
    pub fn open(path: &Path) -> Result<Option<DataDir>, PathError> {
        let Some(generation) = newest_generation(path)? else { return Ok(None) };
        let lock = lock(path)?;
        let mut journals = Vec::new();
        for file in sorted(&generation)? {
            if kind(&file) == Some(FileKind::Journal) {
                let bytes = std::fs::read(&file).map_err(failed(&file))?;
                journals.push((file, inspect::journal(&bytes)));
            }
        }
        Ok(Some(DataDir { path: path.into(), journals, _lock: lock }))
    }

    /// The data directory that a partition's directory is in.
    pub fn above(partition: &Path) -> Result<Option<DataDir>, PathError> {
        let partition = partition.canonicalize().map_err(failed(partition))?;
        partition.parent().map_or(Ok(None), DataDir::open)
    }

    pub fn partitions(&self) -> Result<Vec<PathBuf>, PathError> {
        let mut partitions = sorted(&self.path)?;
        partitions.retain(|path| is_partition(path));
        Ok(partitions)
    }

    pub fn logs(&self) -> impl Iterator<Item = &OpenLog> {
        self.journals.iter().filter_map(|(_, report)| report.as_ref().ok()).flat_map(|report| &report.logs)
    }

    /// What the journals say of the log in this directory.
    pub fn log(&self, directory: &Path) -> Option<&OpenLog> {
        let name = directory.file_name()?.to_str()?;
        self.logs().find(|log| log.dir.as_deref() == Some(name))
    }

    /// A journal that can't be read leaves open how far its logs are valid.
    pub fn complete(&self) -> bool {
        let good = |report: &JournalReport| report.faults.iter().all(|fault| fault.torn);
        self.journals.iter().all(|(_, report)| report.as_ref().is_ok_and(good))
    }
}

/// `<topic>-<partition>`, with something of a log in it.
pub fn is_partition(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let numbered =
        name.rsplit_once('-').is_some_and(|(topic, index)| !topic.is_empty() && index.parse::<i32>().is_ok());
    let holds = |path: &Path| sorted(path).is_ok_and(|files| files.iter().any(|file| kind(file).is_some()));
    numbered && !name.starts_with("journal-") && path.is_dir() && holds(path)
}

/// By name.
pub fn sorted(directory: &Path) -> Result<Vec<PathBuf>, PathError> {
    let entries = std::fs::read_dir(directory).map_err(failed(directory))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>();
    let mut paths = paths.map_err(failed(directory))?;
    paths.sort();
    Ok(paths)
}

fn newest_generation(path: &Path) -> Result<Option<PathBuf>, PathError> {
    let numbered = |path: PathBuf| {
        let number = path.file_name()?.to_str()?.strip_prefix("journal-")?.parse::<u64>().ok()?;
        Some((number, path))
    };
    Ok(sorted(path)?.into_iter().filter_map(numbered).max().map(|(_, path)| path))
}

fn lock(path: &Path) -> Result<Option<File>, PathError> {
    // A copy of a directory may come without one, or on a file system that can't be written.
    let Ok(file) = File::open(path.join(".lock")) else { return Ok(None) };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(std::fs::TryLockError::WouldBlock) => Err(PathError::InUse { path: path.into() }),
        Err(std::fs::TryLockError::Error(error)) => Err(PathError::Io { path: path.join(".lock"), error }),
    }
}
