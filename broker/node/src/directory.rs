//! The data directory at start: made, locked, probed, named.
//!
//! Beside the shards' own files it holds `.lock` (flock: one process), `meta.properties` (Kafka's form: who this broker is) and
//! `ringmain.layout` (which journals are in force).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ringmain_buffer::Buf;
use rustix::fs::{AtFlags, CWD, FlockOperation, StatxFlags};

use crate::error::StartError;
use crate::properties::Properties;

/// The newest `ringmain.layout` that this version reads and writes.
const LAYOUT_FORMAT: u32 = 1;
/// Kafka's `meta.properties`.
const META_VERSION: u32 = 1;
const LAYOUT: &str = "ringmain.layout";
const META: &str = "meta.properties";

/// Held for the life of the process: dropping it lets another process in.
pub struct Directory {
    /// Absolute.
    pub path: PathBuf,
    _lock: File,
}

/// Which journals are in force (FAILURES 61).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub journal_generation: u64,
    pub cores: usize,
    /// All cores were ready with it once: then a missing journal is damage, not a beginning.
    pub served: bool,
}

/// Who this broker is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub node_id: i32,
    pub cluster_id: String,
    pub directory_id: String,
}

/// What the file system can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystem {
    pub name: String,
    pub direct_io: bool,
    /// A flush of the journal covers overwritten extents of the other files (measured for ext4 and xfs; never assumed elsewhere); else
    /// why not.
    pub journal_flush_covers: Result<(), &'static str>,
    pub free_bytes: u64,
}

impl Directory {
    /// Makes it when it is missing, takes its lock, and clears what a start that was cut off left behind.
    pub fn open(path: &Path) -> Result<Directory, StartError> {
        fs::create_dir_all(path).map_err(|error| StartError::path("create", path, error))?;
        let path = path.canonicalize().map_err(|error| StartError::path("open", path, error))?;
        let lock_path = path.join(".lock");
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(|error| StartError::path("open", &lock_path, error))?;
        if let Err(error) = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(StartError::path("lock", &lock_path, error.into()));
            }
            let mut holder = String::new();
            let _ = lock.read_to_string(&mut holder);
            return Err(StartError::Locked { path, pid: holder.trim().parse().ok() });
        }
        let named = lock.set_len(0).and_then(|()| lock.write_all(format!("{}\n", std::process::id()).as_bytes()));
        named.map_err(|error| StartError::path("write", &lock_path, error))?;
        Ok(Directory { path, _lock: lock })
    }

    /// Writes, flushes and removes a block.
    pub fn probe(&self) -> Result<FileSystem, StartError> {
        let path = self.path.join(".probe");
        let failed = |operation| {
            let path = path.clone();
            move |error| StartError::path(operation, path, error)
        };
        let block = Buf::copy_of(&[0x52; 4096]);
        let open = |flags| OpenOptions::new().write(true).create(true).truncate(true).custom_flags(flags).open(&path);
        let direct = open(libc::O_DIRECT).and_then(|file| file.write_all_at(&block, 0));
        let direct_io = match direct {
            Ok(()) => true,
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => false,
            Err(error) => return Err(failed("write")(error)),
        };
        let file = open(0).map_err(failed("open"))?;
        file.write_all_at(&block, 0).map_err(failed("write"))?;
        file.sync_data().map_err(failed("flush"))?;
        let status =
            rustix::fs::statfs(&self.path).map_err(|error| StartError::path("statfs", &self.path, error.into()))?;
        let (name, known) = kind(status.f_type as u64);
        let journal_flush_covers = match () {
            () if !known => Err("not known to cover other files on this file system"),
            // What a fallback to the page cache leaves there, no other file's flush writes.
            () if !direct_io || !unbuffered(&path) => Err("writes may go through the page cache here"),
            () if self.shares_extents(&file) => Err("files may share extents here (reflink)"),
            () if !self.one_device() => Err("a directory in it lies on another device"),
            () => Ok(()),
        };
        fs::remove_file(&path).map_err(failed("remove"))?;
        // A file system without a size (ramfs) says nothing of what is left.
        let sized = status.f_blocks > 0;
        let free_bytes = if sized { status.f_bavail.saturating_mul(status.f_bsize as u64) } else { u64::MAX };
        Ok(FileSystem { name, direct_io, journal_flush_covers, free_bytes })
    }

    /// Whether the file system can clone a file: then an overwritten extent may be another file's too, and the write goes elsewhere.
    fn shares_extents(&self, file: &File) -> bool {
        let path = self.path.join(".probe-clone");
        let cloned = File::create(&path).is_ok_and(|clone| rustix::fs::ioctl_ficlone(&clone, file).is_ok());
        let _ = fs::remove_file(&path);
        cloned
    }

    /// Journals and segments lie in directories of this one.
    fn one_device(&self) -> bool {
        let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
        let own = device(&self.path);
        let Ok(entries) = fs::read_dir(&self.path) else { return false };
        // What is gone meanwhile is nobody's.
        own.is_some() && entries.flatten().all(|entry| device(&entry.path()).is_none_or(|other| Some(other) == own))
    }

    /// `None` in a directory that was never used.
    pub fn layout(&self) -> Result<Option<Layout>, StartError> {
        let path = self.path.join(LAYOUT);
        let Some(properties) = Properties::read(&path)? else { return Ok(None) };
        let format = properties.number("format")?;
        if format > u64::from(LAYOUT_FORMAT) {
            return Err(StartError::Newer { path, found: format as u32, known: LAYOUT_FORMAT });
        }
        let cores = properties.number("cores")? as usize;
        if cores == 0 || cores > usize::from(u16::MAX) {
            return Err(StartError::Malformed { path, why: format!("cores={cores} is no number of cores") });
        }
        let served = properties.text("served")? == "yes";
        Ok(Some(Layout { journal_generation: properties.number("journal.generation")?, cores, served }))
    }

    /// The switch: before it the old journals are in force, after it the new ones.
    pub fn write_layout(&self, layout: Layout) -> Result<(), StartError> {
        let text = format!(
            "format={LAYOUT_FORMAT}\njournal.generation={}\ncores={}\nserved={}\n",
            layout.journal_generation,
            layout.cores,
            if layout.served { "yes" } else { "no" }
        );
        self.write(LAYOUT, &text)
    }

    /// Whether all is there that the data needs: the layout beside any data, and each journal of the one that has served.
    pub fn check_whole(&self, found: Option<Layout>) -> Result<(), StartError> {
        let lost = |path: PathBuf, beside: String| Err(StartError::Lost { path, beside });
        let Some(layout) = found else {
            return match self.data().map_err(|error| StartError::path("list", &self.path, error))? {
                Some(beside) => lost(self.path.join(LAYOUT), beside),
                None => Ok(()),
            };
        };
        for core in (0..layout.cores).filter(|_| layout.served) {
            let path = self.path.join(format!("journal-{}/{core}.journal", layout.journal_generation));
            if !path.exists() {
                return lost(path, format!("{LAYOUT}, which says that {} cores have served here", layout.cores));
            }
        }
        Ok(())
    }

    /// A journal or a partition's directory, when there is one.
    fn data(&self) -> io::Result<Option<String>> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.path().join("partition.metadata").exists() {
                return Ok(Some(format!("{name}/partition.metadata")));
            }
            if name.starts_with("journal-")
                && let Some(journal) = fs::read_dir(entry.path())?.next().transpose()?
            {
                return Ok(Some(format!("{name}/{}", journal.file_name().to_string_lossy())));
            }
        }
        Ok(None)
    }

    /// Removes the journals of other generations than the one in force: what a change of the number of cores left behind.
    pub fn remove_old_journals(&self, layout: Layout) -> io::Result<()> {
        let kept = format!("journal-{}", layout.journal_generation);
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let other = name.to_str().is_some_and(|name| {
                let generation = name.strip_prefix("journal-");
                name != kept && generation.is_some_and(|generation| generation.parse::<u64>().is_ok())
            });
            // A partition's directory is never ours to remove, whatever its name.
            if other && !self.path.join(&name).join("partition.metadata").exists() {
                fs::remove_dir_all(self.path.join(name))?;
            }
        }
        Ok(())
    }

    /// As it was written at the first start; `node_id` must be what it was then. Made up at the first start.
    pub fn identity(&self, node_id: i32) -> Result<Identity, StartError> {
        let path = self.path.join(META);
        let Some(properties) = Properties::read(&path)? else {
            let identity = Identity { node_id, cluster_id: random_id(), directory_id: random_id() };
            let text = format!(
                "#\ncluster.id={}\ndirectory.id={}\nnode.id={}\nversion={META_VERSION}\n",
                identity.cluster_id, identity.directory_id, identity.node_id
            );
            self.write(META, &text)?;
            return Ok(identity);
        };
        let version = properties.number("version")?;
        if version > u64::from(META_VERSION) {
            return Err(StartError::Newer { path, found: version as u32, known: META_VERSION });
        }
        let was = properties.number("node.id")?;
        if was != node_id as u64 {
            return Err(StartError::Config {
                name: "node.id".into(),
                value: node_id.to_string(),
                allowed: format!("{was}, as {} says, on this directory", path.display()),
            });
        }
        let cluster_id = properties.text("cluster.id")?.to_string();
        let directory_id = properties.text("directory.id").map(str::to_string).unwrap_or_default();
        Ok(Identity { node_id, cluster_id, directory_id })
    }

    /// Whole or not at all: a new file, flushed, takes the old one's name, and the directory is flushed.
    fn write(&self, name: &str, text: &str) -> Result<(), StartError> {
        let (path, fresh) = (self.path.join(name), self.path.join(format!("{name}.tmp")));
        let written = || -> io::Result<()> {
            let mut file = File::create(&fresh)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&fresh, &path)?;
            File::open(&self.path)?.sync_all()
        };
        written().map_err(|error| StartError::path("write", path.clone(), error))
    }
}

/// Whether O_DIRECT means it (statx(2), since Linux 6.1): ext4 with data=journal takes the flag and writes through the page cache.
fn unbuffered(path: &Path) -> bool {
    rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::DIOALIGN).is_ok_and(|found| {
        let told = found.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
        told && (1..=4096).contains(&found.stx_dio_offset_align)
    })
}

/// Name of a file system by its magic number (statfs(2)), and whether one flush covers what is overwritten on it.
fn kind(magic: u64) -> (String, bool) {
    match magic & 0xffff_ffff {
        0xef53 => ("ext4".into(), true),
        0x5846_5342 => ("xfs".into(), true),
        0x9123_683e => ("btrfs".into(), false),
        0x2fc1_2fc1 => ("zfs".into(), false),
        0x0102_1994 => ("tmpfs: lost at a reboot".into(), false),
        0x8584_58f6 => ("ramfs: lost at a reboot".into(), false),
        0x794c_7630 => ("overlayfs".into(), false),
        0x6969 => ("nfs".into(), false),
        other => (format!("file system {other:#x}"), false),
    }
}

/// Kafka's form of a random id: 16 bytes in base64 for URLs, without padding.
fn random_id() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    // Kafka's own are UUIDs of version 4 that do not begin with a dash (a command line would take it for an option).
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes[0] &= 0x7f;
    base64_url(&bytes)
}

fn base64_url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let value = group.iter().fold(0u32, |value, byte| value << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for digit in 0..=group.len() {
            text.push(DIGITS[(value >> (18 - 6 * digit) & 63) as usize] as char);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("ringmain-node-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn ids_are_written_as_kafka_writes_them() {
        assert_eq!(base64_url(&[0; 16]), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(base64_url(b"\xff\xfe\xfd\xfc"), "__79_A");
        let id = random_id();
        assert!(id.len() == 22 && id != random_id() && !id.starts_with('-'));
    }

    #[test]
    fn a_directory_is_one_process_s_and_remembers_who_it_is() {
        let path = fresh("identity");
        let directory = Directory::open(&path.join("deep")).unwrap();
        match Directory::open(&path.join("deep")) {
            Err(StartError::Locked { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
            other => panic!("{:?}", other.map(|_| ())),
        }
        let probed = directory.probe().unwrap();
        assert!(probed.free_bytes > 0);
        // Whatever this is run on: only where it was measured.
        assert!(
            probed.journal_flush_covers.is_err() || ["ext4", "xfs"].contains(&probed.name.as_str()) && probed.direct_io
        );
        assert_eq!(directory.layout().unwrap(), None);
        let layout = Layout { journal_generation: 3, cores: 2, served: true };
        directory.write_layout(layout).unwrap();
        assert_eq!(directory.layout().unwrap(), Some(layout));
        let identity = directory.identity(7).unwrap();
        assert_eq!(directory.identity(7).unwrap(), identity);
        assert!(matches!(directory.identity(8), Err(StartError::Config { .. })));
        let mut names: Vec<_> =
            fs::read_dir(&directory.path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, [".lock", "meta.properties", "ringmain.layout"]);
        drop(directory);
        Directory::open(&path.join("deep")).unwrap();
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_directory_that_lost_its_layout_or_a_journal_is_no_new_one() {
        let path = fresh("lost");
        let directory = Directory::open(&path).unwrap();
        let check = |found| directory.check_whole(found).map_err(|error| error.to_string());
        assert_eq!(check(None), Ok(()));
        let layout = Layout { journal_generation: 2, cores: 2, served: true };
        fs::create_dir_all(path.join("journal-2")).unwrap();
        assert_eq!(check(None), Ok(()), "a first start that was cut off has no journal yet");
        fs::write(path.join("journal-2/0.journal"), "").unwrap();
        let lost = check(None).unwrap_err();
        assert!(lost.contains("ringmain.layout: missing, though there is journal-2/0.journal; restore it"), "{lost}");
        let lost = check(Some(layout)).unwrap_err();
        assert!(lost.contains("journal-2/1.journal: missing") && !lost.contains('\n'), "{lost}");
        assert_eq!(check(Some(Layout { served: false, ..layout })), Ok(()), "it was being made");
        fs::write(path.join("journal-2/1.journal"), "").unwrap();
        assert_eq!(check(Some(layout)), Ok(()));
        fs::remove_dir_all(path.join("journal-2")).unwrap();
        fs::create_dir_all(path.join("orders-0")).unwrap();
        fs::write(path.join("orders-0/partition.metadata"), "").unwrap();
        assert!(check(None).is_err_and(|lost| lost.contains("orders-0/partition.metadata")));
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn what_it_can_not_use_is_named() {
        let path = fresh("bad");
        let directory = Directory::open(&path).unwrap();
        fs::write(path.join(LAYOUT), "format=2\n").unwrap();
        assert!(matches!(directory.layout(), Err(StartError::Newer { found: 2, known: 1, .. })));
        for bad in ["", "format=1\ncores=2", "format=x", "format=1\ncores=0\njournal.generation=1", "\u{0}\u{1}"] {
            fs::write(path.join(LAYOUT), bad).unwrap();
            assert!(matches!(directory.layout(), Err(StartError::Malformed { .. })), "{bad:?}");
        }
        fs::write(path.join(META), "version=2\n").unwrap();
        assert!(matches!(directory.identity(1), Err(StartError::Newer { .. })));
        fs::remove_dir_all(&path).unwrap();
        fs::write(&path, "a file").unwrap();
        let Err(error) = Directory::open(&path) else { panic!() };
        assert!(error.to_string().contains("give a directory as --data-dir"), "{error}");
        fs::remove_file(&path).unwrap();
    }
}
