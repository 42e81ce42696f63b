//! What is taken out of a seed's plan, to see whether it still fails: a text that can be given again (`--seed N --less TEXT`).
//!
//! Nothing is drawn anew for what is left: a client that is taken out keeps its place among the draws and is never woken, a fault that is
//! taken out is still drawn and never comes. Only the course of a history shifts, since one source of numbers serves all that goes on;
//! `salt` gives it other numbers.

use std::collections::BTreeSet;
use std::fmt;

use crate::faults::{Plan, Strike};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Less {
    /// Places among the clients; 0 makes the topics and stays.
    pub clients: BTreeSet<usize>,
    /// Places among what the admin is to make; 0 stays.
    pub topics: BTreeSet<usize>,
    pub strikes: BTreeSet<Strike>,
    /// Of `CALMED`.
    pub calmed: BTreeSet<&'static str>,
    /// At most.
    pub values: Option<u64>,
    pub rounds: Option<u64>,
    pub each: Option<u64>,
    pub shards: Option<u64>,
    /// Faults stop no later.
    pub chaos_us: Option<u64>,
    pub salt: Option<u64>,
}

/// What goes on all the time and can be switched off.
pub const CALMED: [&str; 11] = [
    "stalls",
    "reordering",
    "splitting",
    "disk-errors",
    "slow-readers",
    "dribbling",
    "slow-mesh",
    "slow-disk",
    "rot",
    "misdirection",
    "resharding",
];

impl Less {
    /// Shrinks what the seed has drawn; who is left out altogether is asked for where the world is made.
    pub fn apply(&self, plan: &mut Plan) {
        let faults = &mut plan.faults;
        for what in &self.calmed {
            match *what {
                "stalls" => faults.disk_stall = 0.0,
                "reordering" => faults.completions_reordered = 0.0,
                "splitting" => faults.bytes_split = 0.0,
                "disk-errors" => faults.disk_errors = Default::default(),
                "slow-readers" => faults.wide.slow = 0.0,
                "dribbling" => faults.wide.dribbles = 0.0,
                "slow-mesh" => faults.mesh_delay_ns = (500, 5_000),
                "slow-disk" => faults.disk_latency_ns = (20_000, 200_000),
                "rot" => plan.rots = false,
                "misdirection" => plan.misdirects = false,
                _ => plan.reshards = false,
            }
        }
        let work = &mut plan.work;
        let rounds = self.rounds.map_or(u32::MAX, |rounds| rounds as u32);
        for times in [&mut work.churn_rounds, &mut work.trims, &mut work.groups.commits, &mut work.groups.whims] {
            // One at the least of what there is: who is there draws as many numbers as before.
            *times = (*times).min(rounds.max(1));
        }
        faults.each_max = self.each.map_or(faults.each_max, |each| faults.each_max.min(each as u32));
        plan.shards = self.shards.map_or(plan.shards, |shards| plan.shards.min(shards.clamp(1, 3) as u16));
        plan.less = self.clone();
    }

    pub fn parse(text: &str) -> Option<Less> {
        let mut less = Less::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            if let Some((name, number)) = word.split_once('=') {
                let number: u64 = number.parse().ok()?;
                match name {
                    "client" => _ = less.clients.insert(number as usize),
                    "topic" => _ = less.topics.insert(number as usize),
                    _ => *less.numbers().into_iter().find(|(known, _)| *known == name)?.1 = Some(number),
                }
            } else if let Some(what) = CALMED.iter().find(|what| **what == word) {
                less.calmed.insert(what);
            } else {
                less.strikes.insert(Strike::ALL.into_iter().find(|strike| strike.name().replace(' ', "-") == word)?);
            }
        }
        Some(less)
    }

    fn numbers(&mut self) -> [(&'static str, &mut Option<u64>); 6] {
        [
            ("values", &mut self.values),
            ("rounds", &mut self.rounds),
            ("each", &mut self.each),
            ("shards", &mut self.shards),
            ("chaos-us", &mut self.chaos_us),
            ("salt", &mut self.salt),
        ]
    }
}

impl fmt::Display for Less {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = self.clients.iter().map(|client| format!("client={client}")).collect();
        words.extend(self.topics.iter().map(|topic| format!("topic={topic}")));
        words.extend(self.strikes.iter().map(|strike| strike.name().replace(' ', "-")));
        words.extend(self.calmed.iter().map(|what| what.to_string()));
        let mut copy = self.clone();
        words.extend(copy.numbers().into_iter().filter_map(|(name, number)| Some(format!("{name}={}", (*number)?))));
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let less = Less {
            clients: [2, 5].into(),
            topics: [1].into(),
            strikes: [Strike::Kill, Strike::WallJump].into(),
            calmed: ["stalls", "disk-errors"].into(),
            values: Some(3),
            chaos_us: Some(70_000),
            salt: Some(4),
            ..Less::default()
        };
        assert_eq!(Less::parse(&less.to_string()), Some(less));
        assert_eq!(Less::parse(""), Some(Less::default()));
        assert_eq!(Less::parse("kill"), None);
        assert_eq!(Less::parse("values=many"), None);
    }
}
