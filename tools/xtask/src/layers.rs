//! Arrows point down only, and the rules have no hands (ARCHITECTURE.md, "Rooms"). Read from `cargo metadata`, not from text.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use crate::cargo;

/// Every crate of the workspace and its floor. A crate depends on lower floors only; one that is missing here is an error, so that
/// a new crate gets its place on the day it is made.
const FLOORS: &[(&str, u8)] = &[
    ("ringmain-types", 0),
    ("ringmain-buffer", 1),
    ("ringmain-batch", 2),
    ("ringmain-disk", 2),
    ("ringmain-wire", 2),
    ("ringmain-log", 3),
    ("ringmain-ring", 3),
    ("ringmain-session", 3),
    ("ringmain-load", 3),
    ("ringmain-coordinator", 3),
    ("ringmain-metadata", 4),
    ("ringmain-group", 4),
    ("ringmain-shard", 5),
    ("ringmain-node", 6),
    ("ringmain-sim", 6),
    ("ringmain", 7),
    ("ringmain-perf", 7),
    ("ringmain-fuzz", 7),
    ("ringmain-torture", 7),
    ("ringmain-xtask", 7),
];

/// The rules, and the simulator that must run them without hands.
const HANDLESS: &[&str] = &[
    "ringmain-types",
    "ringmain-buffer",
    "ringmain-batch",
    "ringmain-disk",
    "ringmain-wire",
    "ringmain-log",
    "ringmain-session",
    "ringmain-coordinator",
    "ringmain-group",
    "ringmain-metadata",
    "ringmain-shard",
    "ringmain-sim",
];

/// What has hands: executors, rings, sockets, and sources of randomness.
const HANDS: &[&str] = &[
    "glommio",
    "quinn",
    "quinn-udp",
    "io-uring",
    "tokio",
    "hyper",
    "mio",
    "async-std",
    "smol",
    "socket2",
    "rand",
    "getrandom",
    "ringmain-ring",
    "ringmain-node",
];

pub fn run() -> bool {
    let graph = match Graph::read() {
        Ok(graph) => graph,
        Err(error) => {
            eprintln!("layers: {error}");
            return false;
        }
    };
    let mut faults = graph.missing_floors();
    faults.extend(graph.arrows_up());
    for rule in HANDLESS {
        faults.extend(graph.hands_reached(rule));
    }
    for fault in &faults {
        eprintln!("layers: {fault}");
    }
    if faults.is_empty() {
        println!("layers: {} crates, every arrow points down, no hands below the node", graph.members.len());
    }
    faults.is_empty()
}

fn floor(name: &str) -> Option<u8> {
    FLOORS.iter().find(|(known, _)| *known == name).map(|(_, floor)| *floor)
}

/// Package names and what each depends on in an ordinary build; what only tests or build scripts use may have hands.
struct Graph {
    members: BTreeSet<String>,
    uses: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    fn read() -> Result<Graph, String> {
        let output = cargo(&["metadata", "--format-version", "1"])
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("cargo metadata: {error}"))?;
        if !output.status.success() {
            let _ = std::io::stderr().flush();
            return Err(format!("cargo metadata: {}", output.status));
        }
        let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
        Graph::parse(&metadata).ok_or_else(|| "cargo metadata has an unknown shape".into())
    }

    fn parse(metadata: &Value) -> Option<Graph> {
        let mut names = BTreeMap::new();
        for package in metadata["packages"].as_array()? {
            names.insert(package["id"].as_str()?, package["name"].as_str()?.to_string());
        }
        let members = metadata["workspace_members"]
            .as_array()?
            .iter()
            .map(|id| names.get(id.as_str()?).cloned())
            .collect::<Option<_>>()?;
        let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in metadata["resolve"]["nodes"].as_array()? {
            // Two versions of one package share an entry: their dependencies add up, which is the safe side.
            let entry = uses.entry(names.get(node["id"].as_str()?)?.clone()).or_default();
            for dependency in node["deps"].as_array()? {
                let ordinary = dependency["dep_kinds"].as_array()?.iter().any(|kind| kind["kind"].is_null());
                if ordinary {
                    entry.insert(names.get(dependency["pkg"].as_str()?)?.clone());
                }
            }
        }
        Some(Graph { members, uses })
    }

    fn missing_floors(&self) -> Vec<String> {
        let unplaced = self.members.iter().filter(|name| floor(name).is_none());
        unplaced.map(|name| format!("{name} has no floor: give it one in tools/xtask/src/layers.rs")).collect()
    }

    fn arrows_up(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for name in &self.members {
            for used in self.uses.get(name).into_iter().flatten() {
                if let (Some(from), Some(to)) = (floor(name), floor(used))
                    && from <= to
                {
                    faults.push(format!("{name} (floor {from}) depends on {used} (floor {to})"));
                }
            }
        }
        faults
    }

    /// Each hand that `rule` reaches, with the way there.
    fn hands_reached(&self, rule: &str) -> Vec<String> {
        let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
        let mut waiting = vec![rule];
        while let Some(name) = waiting.pop() {
            for used in self.uses.get(name).into_iter().flatten() {
                if used != rule && !came_from.contains_key(used.as_str()) {
                    came_from.insert(used, name);
                    waiting.push(used);
                }
            }
        }
        let reached = HANDS.iter().filter(|hand| came_from.contains_key(**hand));
        reached.map(|hand| format!("{rule} reaches {hand}: {}", way(&came_from, rule, hand))).collect()
    }
}

fn way(came_from: &BTreeMap<&str, &str>, rule: &str, hand: &str) -> String {
    let mut names = vec![hand];
    let mut at = hand;
    while at != rule {
        let Some(before) = came_from.get(at) else { break };
        at = before;
        names.push(at);
    }
    names.reverse();
    names.join(" -> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(arrows: &[(&str, &str)]) -> Graph {
        let mut graph = Graph { members: BTreeSet::new(), uses: BTreeMap::new() };
        for (from, to) in arrows {
            graph.uses.entry(from.to_string()).or_default().insert(to.to_string());
            for name in [from, to] {
                if name.starts_with("ringmain") {
                    graph.members.insert(name.to_string());
                }
            }
        }
        graph
    }

    #[test]
    fn an_arrow_up_is_found() {
        assert!(graph(&[("ringmain-log", "ringmain-types")]).arrows_up().is_empty());
        assert_eq!(graph(&[("ringmain-types", "ringmain-log")]).arrows_up().len(), 1);
        assert_eq!(graph(&[("ringmain-log", "ringmain-session")]).arrows_up().len(), 1);
    }

    #[test]
    fn hands_are_found_through_others() {
        let graph = graph(&[("ringmain-shard", "a"), ("a", "b"), ("b", "tokio"), ("ringmain-node", "glommio")]);
        assert_eq!(
            graph.hands_reached("ringmain-shard"),
            ["ringmain-shard reaches tokio: ringmain-shard -> a -> b -> tokio"]
        );
        assert!(graph.hands_reached("ringmain-log").is_empty());
    }

    #[test]
    fn a_crate_without_a_floor_is_found() {
        assert_eq!(graph(&[("ringmain-new", "ringmain-types")]).missing_floors().len(), 1);
    }
}
