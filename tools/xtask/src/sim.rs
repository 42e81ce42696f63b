//! Starts the simulator in its own profile: optimised, with overflow checks and assertions, and unwinding, so that a panic names
//! its seed.

use crate::{cargo, succeeds};

pub fn run(arguments: &[String]) -> bool {
    let mut command = cargo(&["run", "--quiet", "--profile", "sim", "--package", "ringmain-sim", "--"]);
    command.args(arguments);
    succeeds(command)
}
