//! Starts the simulator in its own profile: optimised, with overflow checks and assertions, and unwinding, so that a panic names
//! its seed.

use crate::{cargo, succeeds};

/// Fresh seeds in every check.
const FRESH_SEEDS: u32 = 2000;

pub fn run(arguments: &[String]) -> bool {
    let mut command = cargo(&["run", "--quiet", "--profile", "sim", "--package", "ringmain-sim", "--"]);
    command.args(arguments);
    succeeds(command)
}

pub fn old_failures() -> bool {
    run(&["--old-failures".into()])
}

pub fn cuts() -> bool {
    run(&["--cuts".into()])
}

/// The simulator prints where they start.
pub fn fresh() -> bool {
    run(&["--count".into(), FRESH_SEEDS.to_string()])
}
