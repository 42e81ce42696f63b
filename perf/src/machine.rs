//! What a result has to name: machine, kernel, file system, commit, load.

use std::path::Path;
use std::process::Command;

pub struct Machine {
    pub processor: String,
    pub cpus: usize,
    pub kernel: String,
    pub file_system: String,
    pub commit: String,
    pub date: String,
}

impl Machine {
    /// `directory`: where data is kept. What can't be found out is called "unknown".
    pub fn read(directory: &Path) -> Machine {
        let cpus = std::thread::available_parallelism().map_or(0, |count| count.get());
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        Machine {
            processor: model.map_or("unknown".into(), |(_, name)| name.trim().to_string()),
            cpus,
            kernel,
            file_system: file_system(directory).unwrap_or("unknown".into()),
            commit: commit(),
            date: said(Command::new("date").arg("+%F")).unwrap_or("unknown-date".into()),
        }
    }
}

/// One, five and fifteen minutes.
pub fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_ascii_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// Type and mount point of the file system that `directory` is on: the longest mount point above it.
fn file_system(directory: &Path) -> Option<String> {
    let path = directory.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/mounts").ok()?;
    let entry = |line: &str| {
        let mut fields = line.split(' ');
        let (_, point, kind) = (fields.next()?, fields.next()?, fields.next()?);
        path.starts_with(point).then(|| (point.len(), format!("{kind} on {point}")))
    };
    mounts.lines().filter_map(entry).max().map(|(_, text)| text)
}

fn commit() -> String {
    let Some(commit) = said(Command::new("git").args(["rev-parse", "--short", "HEAD"])) else {
        return "unknown".into();
    };
    match said(Command::new("git").args(["status", "--porcelain", "--untracked-files=no"])) {
        Some(changes) if !changes.is_empty() => format!("{commit} with changes"),
        _ => commit,
    }
}

fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_string())
}
