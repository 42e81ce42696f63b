//! The disk as a block device with a file system on it: a FUSE file, a loop device over that, ext4 or xfs on the loop device.
//!
//! The loop driver passes a flush of the device on as an fsync of the file (fs/loop), so the kernel's own file system and block layer are
//! between broker and [`Disk`].

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, LockOwner,
    MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyWrite, Request, WriteFlags,
};

use crate::disk::{Cut, Disk, SECTOR};

const FILE: INodeNo = INodeNo(2);
const NAME: &str = "disk";
/// A flush takes up to this long.
const FLUSH_US_MAX: u64 = 3000;
/// A loop device's file is free again within this.
const DETACH_MAX: Duration = Duration::from_secs(20);
const FOR_EVER: Duration = Duration::from_secs(1 << 20);

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FileSystem {
    Ext4,
    Xfs,
}

impl FileSystem {
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
        }
    }

    /// Makes one on the image, which no device has yet.
    pub fn make(self, image: &Path) -> Result<(), String> {
        let quiet = if self == FileSystem::Ext4 { ["-q", "-F"] } else { ["-q", "-f"] };
        run(&format!("mkfs.{}", self.name()), quiet.map(OsStr::new).into_iter().chain([image.as_os_str()]))?;
        Ok(())
    }
}

/// The power is on until [`Device::cut`].
///
/// What mounts the file system is not this process: one that serves a file system and holds the last mount of what lies on it can't end,
/// for the unmount waits for the server.
pub struct Device {
    disk: Arc<Mutex<Disk>>,
    session: Option<BackgroundSession>,
    served: PathBuf,
    /// The loop device.
    looped: Option<String>,
}

impl Device {
    /// `work` has the image, and gets the mount point `fuse`. `lies`: the disk does nothing at seven flushes of eight.
    pub fn new(work: &Path, image: &Path, lies: bool) -> Result<Device, String> {
        let file = File::options().read(true).write(true).open(image);
        let disk = file.and_then(Disk::open).map_err(|e| format!("{}: {e}", image.display()))?;
        let disk = Arc::new(Mutex::new(disk));
        let served = work.join("fuse");
        std::fs::create_dir_all(&served).map_err(|e| format!("{}: {e}", served.display()))?;
        let mut config = Config::default();
        config.n_threads = Some(4);
        config.mount_options = vec![MountOption::FSName("ringmain-power".into())];
        let session = fuser::spawn_mount(Exported { disk: disk.clone(), lies }, &served, &config);
        let session = session.map_err(|e| format!("FUSE at {}: {e}", served.display()))?;
        let file = served.join(NAME);
        let mut device = Device { disk, session: Some(session), served, looped: None };
        device.looped = Some(run("losetup", ["--find".as_ref(), "--show".as_ref(), file.as_os_str()])?);
        Ok(device)
    }

    /// A command that mounts the file system at `data`, in a mount namespace of its own that goes with it, and becomes the one behind it.
    pub fn mounted(&self, kind: FileSystem, data: &Path) -> Vec<OsString> {
        // Detached while mounted: the device is free when the mount goes.
        let script = r#"mount -t "$0" "$1" "$2" && losetup -d "$1" && shift 2 && exec "$@""#;
        // It ends with this process, however that ends.
        let words = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            script,
            kind.name(),
        ];
        let looped = self.looped.iter().map(OsString::from);
        words.map(OsString::from).into_iter().chain(looped).chain([data.into()]).collect()
    }

    /// The power goes. What ran on it is to be killed before the device is dropped.
    pub fn cut(&self, torn: bool) -> Result<Cut, String> {
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        disk.cut(torn).map_err(|e| format!("the image: {e}"))
    }

    pub fn detach(mut self) -> Result<(), String> {
        self.release()
    }

    fn release(&mut self) -> Result<(), String> {
        if let Some(looped) = self.looped.take() {
            // Where it was mounted, that is done.
            let _ = run("losetup", ["-d", &looped].map(OsStr::new));
        }
        let Some(session) = self.session.take() else { return Ok(()) };
        // The loop device lets go of its file a moment later.
        let until = Instant::now() + DETACH_MAX;
        while let Err(what) = run("umount", [self.served.as_os_str()]) {
            if Instant::now() > until {
                return Err(what);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        session.join().map_err(|e| format!("FUSE: {e}"))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // An earlier error is the one to tell.
        let _ = self.release();
    }
}

/// What it says on success.
fn run<'a>(program: &str, arguments: impl IntoIterator<Item = &'a OsStr>) -> Result<String, String> {
    let ran = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let ran = ran.map_err(|e| format!("{program}: {e}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if ran.status.success() { Ok(text(&ran.stdout)) } else { Err(format!("{program}: {}", text(&ran.stderr))) }
}

/// One directory with one file.
struct Exported {
    disk: Arc<Mutex<Disk>>,
    lies: bool,
}

impl Exported {
    fn disk(&self) -> std::sync::MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, size) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0),
            FILE => (FileType::RegularFile, self.disk().bytes),
            _ => return None,
        };
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / SECTOR as u64,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

impl Filesystem for Exported {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(FILE).filter(|_| parent == INodeNo::ROOT && name == NAME) {
            Some(attributes) => reply.entry(&FOR_EVER, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&FOR_EVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        at: u64,
        bytes: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.disk().read(at, bytes as usize) {
            Ok(data) => reply.data(&data),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        at: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.disk().write(at, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let written = self.disk().written();
        // As long as a disk needs for it: meanwhile others write, and the power may go.
        std::thread::sleep(Duration::from_micros(fastrand::u64(..FLUSH_US_MAX)));
        if self.lies && fastrand::u8(..8) > 0 {
            return reply.ok();
        }
        match self.disk().flush(written) {
            Ok(()) => reply.ok(),
            Err(_) => reply.error(Errno::EIO),
        }
    }
}
