//! What a run is expected to reach, so that what it never reached is seen: a fault that never strikes and a state that nobody gets into
//! are not tested.

use std::collections::BTreeMap;

use crate::disk;
use crate::faults::{Plan, Strike};

/// Every state that a history counts.
pub const STATES: &[&str] = &[
    "a pair of shards with no slot left",
    "answers: a group is full",
    "answers: no coordinator yet",
    "answers: not controller",
    "answers: not leader",
    "answers: others",
    "answers: storage error",
    "answers: timed out",
    "answers: written long ago",
    "blocks dropped by failed flushes",
    "closed: for memory",
    "closed: idle",
    "closed: no protocol of ours",
    "closed: others",
    "closed: slow",
    "closed: too large a frame",
    "closed: too many connections",
    "compactions",
    "compactions given up",
    "directories fenced",
    "failed flushes",
    "failed names and sizes",
    "failed reads",
    "failed writes",
    "files made spare",
    "found by time",
    "groups: assignments received",
    "groups: classic members assigned by the broker",
    "groups: generations joined",
    "groups: large commits",
    "groups: members only beat",
    "groups: members put out",
    "groups: members stalled",
    "groups: members vanished",
    "groups: offsets committed",
    "groups: offsets fetched",
    "groups: offsets of a new topic looked for",
    "groups: offsets of a short-lived topic committed",
    "groups: old epochs refused",
    "groups: old epochs tried",
    "groups: old generations refused",
    "logs that could not be read at a start",
    "logs without space",
    "long polls over several owners",
    "metadata said again",
    "misdirected: a copy elsewhere",
    "misdirected: a copy in an index",
    "misdirected: a copy in records",
    "misdirected: missing elsewhere",
    "misdirected: missing in an index",
    "misdirected: missing in records",
    "misdirected: spared",
    "no space",
    "nothing found by time",
    "nuisances: ends in peace",
    "nuisances: garbage",
    "nuisances: gigabytes announced",
    "nuisances: halves of requests",
    "nuisances: large requests",
    "nuisances: pipelines that nobody reads",
    "nuisances: silence",
    "power losses behind a change of names",
    "produce: dozens of missing partitions",
    "records compacted away",
    "requests answered with an error",
    "rot: a journal refused",
    "rot: elsewhere",
    "rot: in a journal",
    "rot: in a snapshot",
    "rot: in an index",
    "rot: in records",
    "rot: refused",
    "segments replaced",
    "spare files used again",
    "stale blocks after power losses",
    "tombstones that went",
    "topics not made by Metadata",
    "zeroes ahead of a log's end",
];

/// One kind of fault in one history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub name: &'static str,
    /// The seed asked for it.
    pub drawn: bool,
    pub hits: u64,
}

/// What happened, as far as counts of the disk and the strikes do not say it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hits {
    pub reshards: u64,
    pub split: u64,
    pub slow: u64,
    pub dribbled: u64,
    pub nuisances: u64,
    pub mesh: u64,
    pub rot: u64,
    pub misdirected: u64,
}

/// Every fault that a seed may draw, whether this one did, and how often it came.
pub fn faults(plan: &Plan, strikes: &BTreeMap<Strike, u32>, disk: &disk::Counts, hits: Hits) -> Vec<Fault> {
    let (faults, wide) = (&plan.faults, &plan.faults.wide);
    let errors = &faults.disk_errors;
    let mut all: Vec<Fault> = Vec::new();
    let mut add = |name, drawn, hits| all.push(Fault { name, drawn, hits });
    for (strike, mean_ns) in faults.strikes() {
        // A clean stop also ends every history.
        let more = u64::from(strikes.get(&strike).copied().unwrap_or(0));
        let own = if strike == Strike::CleanStop { more.saturating_sub(1) } else { more };
        add(strike.name(), mean_ns > 0, own);
    }
    add("slow disks", faults.disk_latency_ns.1 >= 3_000_000, disk.operations);
    add("disk stalls", faults.disk_stall > 0.0, disk.stalls);
    add("disk completions out of order", faults.completions_reordered > 0.0, disk.reordered);
    add("write errors", errors.write > 0.0, disk.write_errors);
    add("flush errors", errors.flush > 0.0, disk.flush_errors);
    add("read errors", errors.read > 0.0, disk.read_errors);
    add("errors of names and sizes", errors.other > 0.0, disk.other_errors);
    add("receptions cut in two", faults.bytes_split > 0.0, hits.split);
    add("slow mesh", faults.mesh_delay_ns.1 >= 500_000, hits.mesh);
    add("slow readers", wide.slow > 0.0, hits.slow);
    add("dribbled requests", wide.dribbles > 0.0, hits.dribbled);
    add("nuisances", wide.nuisances > 0, hits.nuisances);
    add("little memory", plan.tight, u64::from(plan.tight));
    add("other numbers of shards", plan.reshards, hits.reshards);
    add("bits that turn", plan.rots, hits.rot);
    add("misdirected writes", plan.misdirects, hits.misdirected);
    add("hours instead of moments", wide.pace > 1, u64::from(wide.pace > 1));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_listed_once() {
        assert!(STATES.is_sorted_by(|a, b| a < b));
    }
}
