//! What the machine gives: cores, memory, descriptors; and how a node's shards share it.

use std::path::Path;

use ringmain_types::Limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::StartError;

/// Descriptors that a shard needs at its smallest: rings, eventfds, a journal, a few segments and connections.
const DESCRIPTORS_PER_SHARD_MIN: u64 = 96;
/// Descriptors of the process itself.
const DESCRIPTORS_MIN: u64 = 64;
/// glommio does not start an executor below this.
const LOCKED_BYTES_MIN: u64 = 512 << 10;
/// The largest segment that a topic can ask for.
const FILE_BYTES_MIN: u64 = 1 << 31;
/// Below this a shard has no room for a frame of 1 MiB and its reply.
const MEMORY_PER_SHARD_MIN: u64 = 64 << 20;

/// The CPUs that this process may run on, in order.
pub fn cpus() -> Vec<usize> {
    let ids = core_affinity::get_core_ids().unwrap_or_default();
    let mut cpus: Vec<usize> = ids.into_iter().map(|core| core.id).collect();
    cpus.sort_unstable();
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// Raises the soft limit of descriptors to the hard one; returns it.
pub fn raise_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Refused only where policy forbids it; then the soft limit stands.
    let _ = setrlimit(Resource::Nofile, raised);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the soft limit of locked memory to the hard one, and refuses what an executor could not start with.
pub fn check_locked_memory() -> Result<(), StartError> {
    let limit = getrlimit(Resource::Memlock);
    let _ = setrlimit(Resource::Memlock, Rlimit { current: limit.maximum, maximum: limit.maximum });
    match getrlimit(Resource::Memlock).current {
        Some(has) if has < LOCKED_BYTES_MIN => {
            Err(StartError::Limit { name: "RLIMIT_MEMLOCK (locked memory in bytes)", has, needs: LOCKED_BYTES_MIN })
        }
        _ => Ok(()),
    }
}

/// A write beyond this limit of a file's size would end the process with SIGXFSZ.
pub fn check_file_size() -> Result<(), StartError> {
    let limit = getrlimit(Resource::Fsize);
    let _ = setrlimit(Resource::Fsize, Rlimit { current: limit.maximum, maximum: limit.maximum });
    match getrlimit(Resource::Fsize).current {
        Some(has) if has < FILE_BYTES_MIN => {
            Err(StartError::Limit { name: "RLIMIT_FSIZE (bytes of a file)", has, needs: FILE_BYTES_MIN })
        }
        _ => Ok(()),
    }
}

/// For all shards together: what was asked, else a quarter of the memory that this process may use.
pub fn memory_bytes(asked: Option<u64>) -> u64 {
    let total = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    let total = total.map_or(4 << 30, |kib| kib << 10);
    // A container's bound (cgroup 2), where there is one.
    let bound = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    asked.unwrap_or(total.min(bound.unwrap_or(u64::MAX)) / 4)
}

/// One shard's limits out of `memory` and `descriptors` for `shards` of them.
pub fn limits(memory: u64, descriptors: u64, shards: usize, data_dir: &Path) -> Result<Limits, StartError> {
    let shards = shards as u64;
    let needs = DESCRIPTORS_MIN + shards * DESCRIPTORS_PER_SHARD_MIN;
    if descriptors < needs {
        return Err(StartError::Limit { name: "RLIMIT_NOFILE (open files)", has: descriptors, needs });
    }
    let each = memory / shards;
    if each < MEMORY_PER_SHARD_MIN {
        return Err(StartError::Config {
            name: "memory".into(),
            value: format!("{memory} bytes for {} on {shards} cores", data_dir.display()),
            allowed: format!("at least {} MiB a core", MEMORY_PER_SHARD_MIN >> 20),
        });
    }
    let mut limits = Limits::production(each);
    limits.partitions_max =
        limits.partitions_max.min((limits.journal_logs_max() * shards).min(u64::from(u32::MAX)) as u32);
    // A quarter for files, the rest for connections.
    let free = descriptors - DESCRIPTORS_MIN;
    limits.open_files_max = limits.open_files_max.min((free / 4 / shards).min(u64::from(u32::MAX)) as u32);
    let connections = (free - free / 4) / shards;
    limits.connections_possible = connections.saturating_sub(16).min(u64::from(u32::MAX)) as u32;
    limits.check();
    Ok(limits)
}

/// Spare files take at most a twentieth of what is free at the start, for all shards together; those of zeroes a fiftieth.
pub fn bound_spares(limits: &mut Limits, free_bytes: u64, shards: usize) {
    limits.spare_bytes_max = limits.spare_bytes_max.min(free_bytes / 20 / shards as u64);
    let filled = free_bytes / 50 / shards as u64 / u64::from(limits.spare_fill_bytes).max(1);
    limits.spare_fill_files_max = limits.spare_fill_files_max.min(filled.min(u64::from(u32::MAX)) as u32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_share_what_there_is() {
        let path = Path::new("data");
        let limits = |memory, descriptors, shards| super::limits(memory, descriptors, shards, path);
        let small = limits(1 << 30, 1024, 2).unwrap();
        assert!(2 * (small.open_files_max + small.connections_possible) <= 1024 - 64);
        assert!(small.open_files_max >= 100 && small.connections_possible >= 300);
        assert!(small.memory_bytes.iter().sum::<u64>() <= 1 << 29);
        let large = limits(64 << 30, 1 << 20, 8).unwrap();
        assert_eq!(large.open_files_max, Limits::production(1 << 30).open_files_max);
        let error = limits(1 << 30, 200, 2).unwrap_err().to_string();
        assert!(error.contains("200") && error.contains("256"), "{error}");
        assert!(limits(100 << 20, 1024, 2).is_err());
        let mut young = Limits::production(1 << 30);
        bound_spares(&mut young, 40 << 30, 2);
        assert!(young.spare_bytes_max <= 1 << 30 && young.spare_fill_files_max == 4);
        bound_spares(&mut young, 10 << 30, 2);
        assert!(young.spare_bytes_max <= 256 << 20 && young.spare_fill_files_max == 1);
        bound_spares(&mut young, 1 << 20, 2);
        assert_eq!(young.spare_fill_files_max, 0, "a full disk gets no zeroes");
        assert!(!cpus().is_empty() && memory_bytes(None) > 0);
    }
}
