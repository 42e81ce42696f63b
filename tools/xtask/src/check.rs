//! The README's test command.

use std::time::Instant;

use crate::{cargo, layers, sim, succeeds};

type Step = (&'static str, fn() -> bool);

/// Runs every step, also after one has failed, so that one run tells everything.
pub fn run() -> bool {
    let steps: &[Step] = &[
        ("format", || succeeds(cargo(&["fmt", "--all", "--check"]))),
        ("clippy", || succeeds(cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]))),
        ("layers", layers::run),
        ("unit and transcript tests", || succeeds(cargo(&["test", "--quiet", "--workspace"]))),
        ("simulator: seeds that once failed", sim::old_failures),
        ("simulator: power cut at every disk operation", sim::cuts),
        ("simulator: fresh seeds", sim::fresh),
    ];
    let mut outcomes = Vec::new();
    for (name, step) in steps {
        println!("== {name}");
        let started = Instant::now();
        let passed = step();
        outcomes.push((name, passed, started.elapsed().as_secs_f32()));
    }
    println!();
    for (name, passed, seconds) in &outcomes {
        println!("{} {name} ({seconds:.1} s)", if *passed { "pass" } else { "FAIL" });
    }
    let failed = outcomes.iter().filter(|(_, passed, _)| !passed).count();
    println!("{} passed, {failed} failed", outcomes.len() - failed);
    failed == 0
}
