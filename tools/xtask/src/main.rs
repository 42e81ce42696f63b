//! `cargo xtask`: what a person and the CI run to know that the tree is sound. Starts cargo and reads its answers; holds no logic of
//! the broker.
#![forbid(unsafe_code)]

mod bench;
mod check;
mod clients;
mod fuzz;
mod layers;
mod mutations;
mod sim;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

const USAGE: &str = "\
cargo xtask check                   format, clippy, layers, tests, simulator; ends with `N passed, N failed`
cargo xtask layers                  no arrow points up, and no hands are reached from the rules
cargo xtask sim --seed N            one history of the simulator, readable
cargo xtask sim --seeds FROM..TO    many, on both cores; or --count K from a random start; or --cuts (power cut at every operation)
cargo xtask sim --shrink N           makes a failing history smaller while it fails, and shows what is left
cargo xtask conformance             real clients with asserted results: kcat, Kafka's tools, librdkafka, franz-go, kafka-python
cargo xtask torture [--kills N]     kill -9 at random moments under load, then everything acknowledged is looked for
cargo xtask power [--fs xfs]        power loss on real files under load: a disk that forgets what was not flushed (root, Linux)
cargo xtask groups RUN [...]        consumer groups under load: kills, members, many, large; `groups help` says more
cargo xtask compaction [...]        gigabytes are compacted beside a paced producer, with a kill -9 in the middle; `--help` says more
cargo xtask hostile [--only TEXT]   bad input and bad environments on the real process; ends with `N passed, N failed`
cargo xtask hostile --minutes N     all broken clients at once beside a paced producer and consumer, whose p99 is judged
cargo xtask fuzz [--minutes N]      coverage-guided fuzzing of every decoder; `--target NAME`, `--keep`, `--deep`
cargo xtask bench [--quick] [--against kafka] [--only TEXT]   beside probe, peers and Kafka, to perf/results; `--help` names the rest
cargo xtask mutations [N] [NAME...] puts known bugs back and sees after how many of N (3000) histories the simulator finds them";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((command, rest)) = arguments.split_first() else {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    };
    let passed = match (command.as_str(), rest) {
        ("bench", rest) => bench::run(rest),
        ("check", []) => check::run(),
        ("layers", []) => layers::run(),
        ("sim", rest) => sim::run(rest),
        ("conformance", rest) => clients::conformance(rest),
        ("torture", rest) => clients::torture(rest),
        ("power", rest) => clients::power(rest),
        ("groups", rest) => clients::groups(rest),
        ("compaction", rest) => clients::compaction(rest),
        ("hostile", rest) => clients::hostile(rest),
        ("fuzz", rest) => fuzz::run(rest),
        ("mutations", rest) => mutations::run(rest),
        _ => {
            eprintln!("{USAGE}");
            false
        }
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The workspace's root: xtask always runs from the tree that built it.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The cargo that started us, in the root.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(arguments);
    command
}

/// Runs a command to its end; false when it failed or could not start.
pub fn succeeds(mut command: Command) -> bool {
    match command.status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("{}: {error}", command.get_program().to_string_lossy());
            false
        }
    }
}
