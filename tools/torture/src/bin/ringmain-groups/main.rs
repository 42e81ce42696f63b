//! Consumer groups under load, on real processes: `cargo xtask groups`.
//!
//! Raw members of the classic and of the KIP-848 protocol, thousands of them on one thread, each over a connection of its own; a book for
//! each group knows what they were promised. One run is one of:
//! `kills` (kill -9 under commits), `members` (joins, leaves and vanishing members while they read), `many` (ten thousand groups),
//! `large` (one group of a thousand members, and what others wait meanwhile).
#![forbid(unsafe_code)]

mod ask;
mod book;
mod kills;
mod large;
mod many;
mod member;
mod members;
mod swarm;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
pub struct Options {
    /// The broker's program.
    #[arg(long, default_value = "target/release/ringmain", global = true)]
    binary: PathBuf,
    /// A new directory for the broker's data and log.
    #[arg(long, default_value = "target/groups", global = true)]
    work: PathBuf,
    #[arg(long, default_value_t = 0, global = true)]
    seed: u64,
    #[command(subcommand)]
    run: Run,
}

#[derive(Subcommand)]
enum Run {
    /// The broker is killed again and again while members commit: no acknowledged commit is lost or moved back.
    Kills {
        #[arg(long, default_value_t = 200)]
        kills: u32,
    },
    /// Random joins, leaves and vanishing members of both protocols while they read what a producer writes.
    Members {
        #[arg(long, default_value_t = 50)]
        members: usize,
        #[arg(long, default_value_t = 200)]
        partitions: usize,
        #[arg(long, default_value_t = 300)]
        seconds: u64,
    },
    /// Memory a group, heartbeats, and a start with all their offsets.
    Many {
        /// Groups of one member, and a tenth as many of ten.
        #[arg(long, default_value_t = 10_000)]
        groups: usize,
        #[arg(long, default_value_t = 30)]
        seconds: u64,
    },
    /// One large group: how long a rebalance takes, and what others wait meanwhile.
    Large {
        #[arg(long, default_value_t = 1000)]
        members: usize,
        #[arg(long, default_value_t = 1000)]
        partitions: usize,
        #[arg(long, default_value_t = 10)]
        rebalances: u32,
    },
}

fn main() -> ExitCode {
    let mut options = Options::parse();
    if options.seed == 0 {
        options.seed = fastrand::u64(1..);
    }
    fastrand::seed(options.seed);
    println!("seed {}", options.seed);
    let outcome = match options.run {
        Run::Kills { kills } => kills::run(&options, kills),
        Run::Members { members, partitions, seconds } => members::run(&options, members, partitions, seconds),
        Run::Many { groups, seconds } => many::run(&options, groups, seconds),
        Run::Large { members, partitions, rebalances } => large::run(&options, members, partitions, rebalances),
    };
    match outcome {
        Ok(broken) => {
            println!("{}", if broken == 0 { "1 passed, 0 failed" } else { "0 passed, 1 failed" });
            if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(e) => {
            eprintln!("groups: {e}");
            ExitCode::FAILURE
        }
    }
}
