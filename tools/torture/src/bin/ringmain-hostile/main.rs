//! The bad input and the bad environment, on the real process: `cargo xtask hostile`.
//!
//! Each case does one thing that a stranger, a broken client or a poor machine may do, and sees that only the one concerned is
//! concerned: the process lives, a client beside it goes on, memory stays where it was, and what happened is said in a line.
#![forbid(unsafe_code)]

mod admin;
mod ask;
mod attackers;
mod batches;
mod crowd;
mod damage;
mod environment;
mod frames;
mod full;
mod groups;
mod lives;
mod mounts;
mod neighbour;
mod newcomer;
mod process;
mod siege;
mod suite;
mod within;
mod world;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Parser;

use suite::Case;
use world::World;

#[derive(Parser)]
struct Options {
    /// Only cases whose name holds this.
    #[arg(long, default_value = "")]
    only: String,
    /// The broker's program.
    #[arg(long, default_value = "target/release/ringmain")]
    binary: PathBuf,
    /// A new directory for what the cases make.
    #[arg(long, default_value = "target/hostile")]
    work: PathBuf,
    /// Only all broken clients at once, for so long, beside clients whose times are judged.
    #[arg(long)]
    minutes: Option<u64>,
    /// Of these clients only, by name and with commas: who does the harm.
    #[arg(long, default_value = "")]
    attacks: String,
    /// Set by this program when it has started itself in a mount namespace.
    #[arg(long, hide = true)]
    inside: bool,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some("within") => return within::run(&words[1..]),
        Some("attack") => return attackers::run(&words[1..]),
        _ => {}
    }
    let options = Options::parse();
    if !options.inside
        && let Some(code) = in_namespace(&words)
    {
        return code;
    }
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("hostile: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs this program again where its mounts are its own: as root, else as root of a user namespace. `None` where neither is allowed;
/// then the cases that mount are skipped, each by name.
fn in_namespace(words: &[String]) -> Option<ExitCode> {
    let own = std::env::current_exe().ok()?;
    let ways: [&[&str]; 2] = [&["--mount"], &["--user", "--map-root-user", "--mount"]];
    let way = ways.into_iter().find(|way| {
        let tried = Command::new("unshare").args(*way).arg("true").output();
        tried.is_ok_and(|output| output.status.success())
    })?;
    let status = Command::new("unshare").args(way).arg(own).args(words).arg("--inside").status().ok()?;
    Some(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run(options: &Options) -> Result<bool, String> {
    let program = options.binary.canonicalize().map_err(|error| format!("{}: {error}", options.binary.display()))?;
    if options.work.exists() {
        std::fs::remove_dir_all(&options.work).map_err(|error| format!("{}: {error}", options.work.display()))?;
    }
    let made = std::fs::create_dir_all(&options.work).and_then(|()| options.work.canonicalize());
    let work = made.map_err(|error| format!("{}: {error}", options.work.display()))?;
    let cases: Vec<Case> = [
        newcomer::CASES,
        frames::CASES,
        batches::CASES,
        admin::CASES,
        crowd::CASES,
        groups::CASES,
        environment::CASES,
        full::CASES,
        lives::CASES,
        damage::CASES,
        siege::CASES,
    ]
    .into_iter()
    .flat_map(|cases| cases.iter().map(|case| suite::case(case.name, case.run)))
    .collect();
    let mut world = World::new(program, work.clone());
    let passed = match options.minutes {
        Some(minutes) => suite::ended("all broken clients at once", siege::long(&mut world, minutes, &options.attacks)),
        None => suite::run(&mut world, &cases, &options.only),
    };
    drop(world);
    if passed {
        std::fs::remove_dir_all(&work).map_err(|error| format!("{}: {error}", work.display()))?;
    }
    Ok(passed)
}
