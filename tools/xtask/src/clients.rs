//! Real clients and real kills: builds the broker, then runs tools/conformance and tools/torture against it.

use std::process::Command;

use crate::{cargo, root, succeeds};

/// kcat, Kafka's own tools and three client libraries, with asserted results; what `run.py` takes may follow.
pub fn conformance(rest: &[String]) -> bool {
    succeeds(cargo(&["build", "--release", "--package", "ringmain"])) && succeeds(runner(rest))
}

/// kill -9 at random moments under load; what the torture binary takes may follow. librdkafka comes from the conformance runner's
/// environment.
pub fn torture(rest: &[String]) -> bool {
    if !succeeds(cargo(&["build", "--release", "--package", "ringmain", "--package", "ringmain-torture"])) {
        return false;
    }
    if !succeeds(runner(&["--prepare".to_string()])) {
        return false;
    }
    let mut torture = Command::new(root().join("target/release/ringmain-torture"));
    torture.current_dir(root()).arg("--python").arg(root().join("target/conformance/venv/bin/python")).args(rest);
    succeeds(torture)
}

/// Strangers, broken clients and poor machines, against the broker as it is shipped; what `ringmain-hostile` takes may follow.
pub fn hostile(rest: &[String]) -> bool {
    against_the_broker("ringmain-hostile", rest)
}

/// A disk that loses its power under load; what `ringmain-power` takes may follow.
pub fn power(rest: &[String]) -> bool {
    against_the_broker("ringmain-power", rest)
}

/// Members of consumer groups under load; what `ringmain-groups` takes.
pub fn groups(rest: &[String]) -> bool {
    against_the_broker("ringmain-groups", rest)
}

/// Compaction beside a paced producer, with a kill in its middle; what `ringmain-compaction` takes may follow.
pub fn compaction(rest: &[String]) -> bool {
    against_the_broker("ringmain-compaction", rest)
}

/// A program of tools/torture.
fn against_the_broker(program: &str, rest: &[String]) -> bool {
    if !succeeds(cargo(&["build", "--release", "--package", "ringmain", "--package", "ringmain-torture"])) {
        return false;
    }
    let mut command = Command::new(root().join("target/release").join(program));
    command.current_dir(root()).args(rest);
    succeeds(command)
}

fn runner(rest: &[String]) -> Command {
    let mut runner = Command::new("python3");
    runner.current_dir(root()).arg("tools/conformance/run.py").args(rest);
    runner
}
