//! What a process has used and uses: proc(5).

use std::io;

use rustix::thread::{CpuSet, sched_setaffinity};

/// User and system time of all threads of `pid`, dead ones included, in seconds; the kernel's resolution is 10 ms.
pub fn process_seconds(pid: u32) -> io::Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let ticks = ticks(&text).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat has an unknown shape")))?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Fields 14 and 15. The name in field 2 may hold anything, so counting starts behind its closing parenthesis.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// Resident memory, in bytes.
pub fn resident_bytes(pid: u32) -> io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = text.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
    kib.map(|kib: u64| kib << 10).ok_or_else(|| io::Error::other(format!("/proc/{pid}/status has no VmRSS")))
}

/// Keeps the calling thread, and threads that it starts, on one CPU.
pub fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_spaces_and_parentheses() {
        let stat = "12 (a) b (c)) S 1 1 1 0 -1 4194560 100 0 0 0 250 13 0 0 20 0 1 0 100 0 0";
        assert_eq!(ticks(stat), Some(263));
        assert_eq!(ticks("12 (a) S 1"), None);
    }

    #[test]
    fn our_own_time_grows() {
        let before = process_seconds(std::process::id()).unwrap();
        let mut sum = 0u64;
        while process_seconds(std::process::id()).unwrap() <= before {
            sum = std::hint::black_box(sum + 1);
        }
    }
}
