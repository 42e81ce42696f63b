//! Builds broker and generator as they are shipped, and lets the generator measure. It never judges: a timing is no test.

use crate::{cargo, root, succeeds};

/// `arguments` go to `ringmain-perf first-speed`; a leading `--first-speed` only names what is measured by default.
pub fn run(arguments: &[String]) -> bool {
    let packages = ["build", "--release", "--package", "ringmain", "--package", "ringmain-perf"];
    if !succeeds(cargo(&packages)) {
        return false;
    }
    let arguments = match arguments {
        [first, rest @ ..] if first == "--first-speed" => rest,
        all => all,
    };
    let mut command = std::process::Command::new(root().join("target/release/ringmain-perf"));
    command.current_dir(root()).arg("first-speed").args(arguments);
    succeeds(command)
}
