//! `ringmain`: the one binary. Starts a broker, talks to one, reads the files of one that is stopped.
#![forbid(unsafe_code)]

mod bench;
mod cli;
mod client;
mod data_dir;
mod dump;
mod group;
mod properties;
mod settings;
mod start;
mod topic;
mod verify;

use std::process::ExitCode;

/// What one core allocates another one may free: with glibc's allocator the block then stays with the other's thread, and both take one
/// lock for it from then on.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use clap::Parser;

use cli::{Cli, Command, LogCommand};

fn main() -> ExitCode {
    // The allocator is built without huge pages, and says so for the whole process; what asks for one by itself may have it. It fails only on
    // kernels that have none.
    let _ = rustix::thread::disable_transparent_huge_pages(false);
    match Cli::parse().command {
        Command::Start(args) => start::run(&args),
        Command::Topic(command) => ended(topic::run(&command)),
        Command::Group(command) => ended(group::run(&command)),
        Command::Bench(args) => ended(bench::run_bench(&args)),
        Command::Log(command) => read_files(&command),
        Command::Version => {
            println!("ringmain {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
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

/// Fails when something is damaged, too: what is wrong was printed.
fn read_files(command: &LogCommand) -> ExitCode {
    let out = std::io::BufWriter::new(std::io::stdout().lock());
    let (result, damaged) = match command {
        LogCommand::Verify { paths } => {
            let mut verify = verify::Verify::new(out);
            (verify.paths(paths), verify.damaged)
        }
        LogCommand::Dump { paths, records } => {
            let mut dump = dump::Dump { out, records: *records, damaged: 0 };
            (dump.paths(paths), dump.damaged)
        }
    };
    if damaged > 0 && result.is_ok() { ExitCode::FAILURE } else { ended(result) }
}
