//! `ringmain`: the one binary. Starts a broker, talks to one, reads the files of one that is stopped.
#![forbid(unsafe_code)]

mod cli;
mod client;
mod properties;
mod settings;
mod start;
mod topic;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Start(args) => start::run(&args),
        Command::Topic(command) => ended(topic::run(&command)),
        Command::Log(_) => ended(Err("not in this commit yet")),
        Command::Version => ended(Ok::<(), &str>(println!("ringmain {}", env!("CARGO_PKG_VERSION")))),
    }
}

fn ended<E: std::fmt::Display>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ringmain: {error}");
            ExitCode::FAILURE
        }
    }
}
