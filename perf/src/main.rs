//! `perf/`: how fast it is, beside the ceiling probe and with nothing hidden. See DESIGN.md for what is measured and how.
#![forbid(unsafe_code)]

mod answer;
mod control;
mod cpu;
mod first_speed;
mod load;
mod machine;
mod probe;
mod receiver;
mod report;
mod sender;
mod server;
mod sink;
mod spread;
mod template;
mod workload;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use control::Control;
use first_speed::FirstSpeed;
use load::Load;
use probe::{Probe, ProbeConfig};
use report::Report;
use server::Servers;

#[derive(Parser)]
#[command(name = "ringmain-perf", about = "Measures Ringmain beside the ceiling probe", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The least that any broker must do: receives Produce frames, writes and flushes them, acknowledges
    Probe(ProbeArgs),
    /// Loads a broker (or the probe) with Produce requests
    Produce(ProduceArgs),
    /// Ringmain and the probe by turns: issue 3's bars, written to perf/results
    FirstSpeed(FirstSpeedArgs),
}

#[derive(Args)]
struct ProbeArgs {
    #[arg(long, default_value = "127.0.0.1:29092")]
    listen: String,
    /// Where the probe's file is: on the file system to be measured
    #[arg(long, default_value = "./ringmain-perf-data")]
    dir: PathBuf,
    /// Size of the file, which is prewritten once and then written round and round
    #[arg(long, default_value_t = 2048)]
    file_mib: u64,
    /// Acknowledge what is written and not flushed
    #[arg(long)]
    no_flush: bool,
    /// Keep to one CPU
    #[arg(long)]
    cpu: Option<usize>,
}

#[derive(Args)]
struct ProduceArgs {
    #[arg(long, default_value = "127.0.0.1:9092")]
    bootstrap: String,
    #[arg(long, default_value = "bench")]
    topic: String,
    #[arg(long, default_value_t = 1)]
    partitions: u32,
    /// Do not create the topic first: it exists, or this is the probe
    #[arg(long)]
    no_create: bool,
    /// Configs of the topic that is created, `name=value`
    #[arg(long = "config", value_parser = name_and_value)]
    configs: Vec<(String, String)>,
    #[arg(long, default_value_t = 1)]
    connections: u32,
    #[arg(long, default_value_t = 1024)]
    record_bytes: usize,
    #[arg(long, default_value_t = 16 << 10)]
    batch_bytes: usize,
    /// Unanswered requests a connection
    #[arg(long, default_value_t = 32)]
    window: usize,
    /// Open loop at so many MB/s (10^6 bytes); without it, as fast as the window lets
    #[arg(long)]
    rate: Option<f64>,
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Process of the server, for its CPU time
    #[arg(long)]
    server_pid: Option<u32>,
    /// Keep to one CPU
    #[arg(long)]
    cpu: Option<usize>,
}

#[derive(Args)]
struct FirstSpeedArgs {
    /// The broker's binary
    #[arg(long, default_value = "target/release/ringmain")]
    ringmain: PathBuf,
    /// The broker's --cores
    #[arg(long, default_value_t = 2)]
    cores: usize,
    /// A further argument of `ringmain start`; repeatable
    #[arg(long = "start-argument", allow_hyphen_values = true)]
    start_arguments: Vec<String>,
    /// Configs of the topic, `name=value`: small segments and little retention make a log that uses its files again, as the probe does
    #[arg(long = "config", value_parser = name_and_value)]
    configs: Vec<(String, String)>,
    /// Data goes below this: the file system to be measured
    #[arg(long, default_value = "./ringmain-perf-data")]
    dir: PathBuf,
    #[arg(long, default_value_t = 29_192)]
    port: u16,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds between the broker's start and its load. From 30 on its retention is at work: together with --config segment.bytes
    /// and retention.bytes its log uses its files again
    #[arg(long, default_value_t = 0.0)]
    settle: f64,
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Only workloads whose name holds this
    #[arg(long)]
    only: Option<String>,
    /// Where the table is written
    #[arg(long, default_value = "perf/results")]
    results: PathBuf,
    /// Only print the table
    #[arg(long)]
    no_results: bool,
    /// A further line for the table: what else ran on the machine, and the like
    #[arg(long)]
    note: Vec<String>,
}

fn name_and_value(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as name=value")?;
    Ok((name.into(), value.into()))
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Probe(args) => run_probe(&args),
        Command::Produce(args) => produce(args),
        Command::FirstSpeed(args) => first_speed(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ringmain-perf: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_probe(args: &ProbeArgs) -> io::Result<()> {
    args.cpu.map_or(Ok(()), cpu::pin)?;
    let config = ProbeConfig {
        listen: args.listen.clone(),
        directory: args.dir.clone(),
        file_bytes: args.file_mib << 20,
        flush: !args.no_flush,
    };
    let mut probe = Probe::new(&config)?;
    println!("probe listens on {}, {}", probe.address()?, if config.flush { "flushes" } else { "does not flush" });
    probe.run()
}

fn produce(args: ProduceArgs) -> io::Result<()> {
    args.cpu.map_or(Ok(()), cpu::pin)?;
    if !args.no_create {
        let mut control = Control::open(&args.bootstrap, Duration::from_secs(5))?;
        control.create_topic(&args.topic, args.partitions, &args.configs)?;
    }
    let load = Load {
        address: args.bootstrap,
        topic: args.topic,
        partitions: args.partitions.max(1),
        connections: args.connections.max(1),
        record_bytes: args.record_bytes,
        batch_bytes: args.batch_bytes,
        window: args.window.max(1),
        rate: args.rate.map(|megabytes| megabytes * 1e6),
        warm_up: Duration::from_secs_f64(args.warm_up),
        measure: Duration::from_secs_f64(args.seconds),
        server_pid: args.server_pid,
    };
    println!("{}", report::line(&load.run()?));
    Ok(())
}

fn first_speed(args: FirstSpeedArgs) -> io::Result<()> {
    std::fs::create_dir_all(&args.dir)?;
    let placement = format!(
        "1 KB records, every acknowledgement flushed. Placement: Ringmain with --cores {} places its own threads; the probe is one \
         thread that the scheduler may place on any CPU, and so is the generator.",
        args.cores
    );
    let notes = std::iter::once(placement).chain(args.note).collect();
    let command: Vec<String> = std::env::args().skip(1).collect();
    let mut report = Report::new(format!("ringmain-perf {}", command.join(" ")), notes, &args.dir);
    let sitting = FirstSpeed {
        servers: Servers {
            ringmain: args.ringmain,
            cores: args.cores,
            arguments: args.start_arguments,
            directory: args.dir,
            port: args.port,
        },
        configs: args.configs,
        rounds: args.rounds,
        settle: Duration::from_secs_f64(args.settle),
        warm_up: Duration::from_secs_f64(args.warm_up),
        measure: Duration::from_secs_f64(args.seconds),
        only: args.only,
    };
    sitting.run(&mut report)?;
    println!("\n{}", report.text());
    if !args.no_results {
        let name = if args.settle > 0.0 { "first-speed-settled" } else { "first-speed" };
        println!("written to {}", report.write(&args.results, name)?.display());
    }
    Ok(())
}
