//! `perf/`: how fast it is, beside what its work must cost and with nothing hidden. See DESIGN.md for what is measured and how.
#![forbid(unsafe_code)]

mod bar;
mod cli;
mod figure;
mod machine;
mod metrics;
mod peer;
mod plot;
mod report;
mod server;
mod sitting;
mod spread;
mod work;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use ringmain_load::{Control, Pace, Plan, Publisher, PublisherConfig, Versions, cpu, run};

use cli::{BenchArgs, Cli, Command, ProbeArgs, ProduceArgs};
use figure::Figures;
use peer::kafka::Kafka;
use peer::probe::{Probe, ProbeConfig};
use report::Report;
use server::Servers;
use sitting::Sitting;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Bench(args) => bench(&args),
        Command::Produce(args) => produce(args),
        Command::Probe(args) => probe(&args),
        Command::SendLoop(args) => peer::send_loop::run(&args.listen, args.memory_mib << 20, args.batch_bytes),
        Command::Echo(args) => peer::echo::run(&args.listen),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ringmain-perf: {error}");
            ExitCode::FAILURE
        }
    }
}

fn probe(args: &ProbeArgs) -> io::Result<()> {
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
    let partitions = args.partitions.max(1);
    let mut version = Versions::default().produce;
    if !args.no_create {
        let mut control = Control::open(&args.bootstrap, Duration::from_secs(5))?;
        control.create_topic(&args.topic, partitions, &args.configs)?;
        version = control.versions()?.produce;
    }
    let all: Vec<u32> = (0..partitions).collect();
    let config = PublisherConfig {
        topic: args.topic,
        record_bytes: args.record_bytes,
        batch_bytes: args.batch_bytes,
        pace: match args.rate {
            Some(megabytes) => Pace::Rate(megabytes * 1e6),
            None => Pace::Window(args.window.max(1)),
        },
        connections: (0..args.connections.max(1)).map(|_| (args.bootstrap.clone(), all.clone())).collect(),
        version,
        requests_max: None,
    };
    let plan = Plan {
        warm_up: Duration::from_secs_f64(args.warm_up),
        measure: Duration::from_secs_f64(args.seconds),
        server_pid: args.server_pid,
    };
    let outcome = run(&plan, vec![Box::new(Publisher::open(&config)?)])?;
    println!("{}", report::line(&Figures::flow(&outcome, "publish")));
    Ok(())
}

fn bench(args: &BenchArgs) -> io::Result<()> {
    let mut workloads = work::all(args.quick);
    let all = workloads.len();
    if !args.only.is_empty() {
        workloads.retain(|workload| args.only.iter().any(|only| workload.name.contains(only)));
    }
    if args.list || workloads.is_empty() {
        work::all(args.quick).iter().for_each(|workload| println!("{}", workload.name));
        return if args.list { Ok(()) } else { Err(io::Error::other("no workload has such a name; these there are")) };
    }
    let sitting = sitting(args)?;
    let command: Vec<String> = std::env::args().skip(1).collect();
    let command = format!("ringmain-perf {}", command.join(" "));
    let mut report = Report::new(command, &workloads, sitting.rounds, &args.dir);
    if workloads.len() < all {
        report.partial.push(format!("{} of {all} workloads", workloads.len()));
    }
    if args.against.is_none() {
        report.partial.push("without Kafka".into());
    }
    if args.quick {
        report.partial.push("a smoke run (--quick): its figures mean nothing".into());
    }
    report.notes = notes(args);
    let path = report.path(&args.results);
    sitting.run(&workloads, &mut report, &mut |report| write(args, report, &path))?;
    println!("\n{}", report.text());
    match report.failed() {
        true => Err(io::Error::other("some runs failed")),
        false => Ok(()),
    }
}

/// After every round, so that a sitting that is broken off leaves what it has.
fn write(args: &BenchArgs, report: &Report<'_>, path: &Path) {
    if args.no_results {
        return;
    }
    match report.write(path) {
        Ok(()) => println!("written to {}", path.display()),
        Err(error) => eprintln!("{}: {error}", path.display()),
    }
}

fn sitting(args: &BenchArgs) -> io::Result<Sitting> {
    std::fs::create_dir_all(&args.dir)?;
    let directory = args.dir.canonicalize()?;
    let jars = || args.kafka_jars.clone().unwrap_or_else(|| directory.join("kafka-jars"));
    let kafka = args.against.map(|_| Kafka::fetch(jars())).transpose()?;
    let seconds = |given: Option<f64>, full: f64, quick: f64| {
        Duration::from_secs_f64(given.unwrap_or(if args.quick { quick } else { full }))
    };
    Ok(Sitting {
        servers: Servers {
            ringmain: PathBuf::from(&args.ringmain),
            cores: args.cores,
            arguments: args.start_arguments.clone(),
            directory,
            port: args.port,
            probe_mib: args.probe_mib.unwrap_or(if args.quick { 256 } else { 2048 }),
            kafka,
        },
        configs: args.configs.clone(),
        rounds: args.rounds.unwrap_or(if args.quick { 1 } else { 5 }),
        settle: Duration::from_secs_f64(args.settle),
        warm_up: seconds(args.warm_up, 2.0, 0.3),
        kafka_warm_up: seconds(args.kafka_warm_up, 25.0, 3.0),
        measure: seconds(args.seconds, 10.0, 1.0),
    })
}

fn notes(args: &BenchArgs) -> Vec<String> {
    let placement = format!(
        "1 KB records, generator on the same machine. Placement: Ringmain with --cores {} places its own threads; peers and generator (one \
         thread) go where the scheduler puts them.",
        args.cores
    );
    let kafka = "Kafka 4.4, one KRaft node, 1 GB of heap; log.flush.interval.messages=1 where Ringmain's acknowledgement is flushed and the \
                 workload does not say otherwise, its default elsewhere.";
    let kafka = args.against.map(|_| kafka.to_string());
    std::iter::once(placement).chain(kafka).chain(args.note.iter().cloned()).collect()
}
