//! File systems of our own. The suite runs in a mount namespace of its own (see `main.rs`), so they end with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::run;
use crate::suite::Stop;

/// Unmounted when dropped.
pub struct Mount {
    pub path: PathBuf,
}

impl Mount {
    /// Memory, `mib` of it.
    pub fn tmpfs(path: &Path, mib: u32) -> Result<Mount, Stop> {
        mount(path, &["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs"])
    }

    /// Has neither O_DIRECT nor sizes.
    pub fn ramfs(path: &Path) -> Result<Mount, Stop> {
        mount(path, &["-t", "ramfs", "ramfs"])
    }

    /// In a file behind a loop device, `mib` of it.
    pub fn ext4(path: &Path, mib: u32) -> Result<Mount, Stop> {
        let image = path.with_extension("img");
        fs::File::create(&image)?.set_len(u64::from(mib) << 20)?;
        let (code, text) = run(Command::new("mkfs.ext4").arg("-q").args(["-m", "0"]).arg(&image))?;
        if code != Some(0) {
            return Err(Stop::Skip(format!("mkfs.ext4: {}", text.trim())));
        }
        mount(path, &["-o", "loop", &image.display().to_string()])
    }

    /// What is at `from`, so that nothing in it can be changed.
    pub fn read_only(path: &Path, from: &Path) -> Result<Mount, Stop> {
        let mount = mount(path, &["--bind", &from.display().to_string()])?;
        let (code, text) = run(Command::new("mount").args(["-o", "remount,bind,ro"]).arg(path))?;
        if code == Some(0) { Ok(mount) } else { Err(Stop::Skip(format!("mount: {}", text.trim()))) }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // What is still in use there goes with the namespace.
        let _ = Command::new("umount").arg(&self.path).status();
    }
}

fn mount(path: &Path, arguments: &[&str]) -> Result<Mount, Stop> {
    fs::create_dir_all(path)?;
    let (code, text) = run(Command::new("mount").args(arguments).arg(path))?;
    if code == Some(0) { Ok(Mount { path: path.into() }) } else { Err(Stop::Skip(format!("mount: {}", text.trim()))) }
}
