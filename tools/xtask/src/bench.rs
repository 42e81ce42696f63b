//! Builds broker and generator as they are shipped, and lets the generator measure. It never judges: a timing is no test.

use crate::{cargo, root, succeeds};

/// `arguments` go to `ringmain-perf bench`.
pub fn run(arguments: &[String]) -> bool {
    let packages = ["build", "--release", "--package", "ringmain", "--package", "ringmain-perf"];
    // What is counted, not timed, comes from a test: built now, so that no compiler runs within the sitting.
    let counts = ["test", "--quiet", "--package", "ringmain-shard", "--test", "broker", "--no-run"];
    if !succeeds(cargo(&packages)) || !succeeds(cargo(&counts)) {
        return false;
    }
    let mut command = std::process::Command::new(root().join("target/release/ringmain-perf"));
    command.current_dir(root()).arg("bench").args(arguments);
    succeeds(command)
}
