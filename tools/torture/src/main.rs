//! Real processes, really killed: `cargo xtask torture`.
//!
//! A broker is started, killed with SIGKILL at random moments and started again while two producers write: a raw one with five
//! idempotent requests in flight, and librdkafka with idempotence (through tools/conformance). At the end everything that was
//! acknowledged must stand where it was said to, once, in order, with no gap.
#![forbid(unsafe_code)]

mod large;

use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;

use ringmain_torture::broker::{Broker, create, new_directory};
use ringmain_torture::producer::{Promised, RawProducer};
use ringmain_torture::verify::{Verdict, verify};

#[derive(Parser)]
struct Options {
    /// How often the broker is killed.
    #[arg(long, default_value_t = 200)]
    kills: u32,
    #[arg(long, default_value_t = 8)]
    partitions: usize,
    /// The broker's program.
    #[arg(long, default_value = "target/release/ringmain")]
    binary: PathBuf,
    /// A new directory for the broker's data and the logs of the run.
    #[arg(long, default_value = "target/torture")]
    work: PathBuf,
    /// A Python that has confluent-kafka; without it librdkafka's half is left out, and said to be.
    #[arg(long)]
    python: Option<PathBuf>,
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Instead: fill so many GiB into the partitions, kill, and see how soon the broker is ready and that all of it is there.
    #[arg(long)]
    fill_gib: Option<u64>,
}

fn main() -> ExitCode {
    let mut options = Options::parse();
    if options.seed == 0 {
        options.seed = fastrand::u64(1..);
    }
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("torture: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<bool, String> {
    fastrand::seed(options.seed);
    new_directory(&options.work)?;
    let mut broker = Broker::new(&options.binary, &options.work, 2)?;
    broker.start()?;
    if let Some(gib) = options.fill_gib {
        return large::run(options, &mut broker, gib);
    }
    let address = broker.address.clone();
    for topic in ["raw", "librdkafka"] {
        create(&address, topic, options.partitions)?;
    }
    let library = options.python.as_ref().map(|python| Library::start(options, python, &address)).transpose()?;
    let (stop, acked) = (AtomicBool::new(false), AtomicU64::new(0));
    let raw = RawProducer {
        address: &address,
        topic: "raw",
        partitions: options.partitions,
        stop: &stop,
        acked: &acked,
        pause: Duration::ZERO,
    };
    let began = Instant::now();
    let (promised, slowest) = std::thread::scope(|scope| {
        let producer = scope.spawn(|| raw.run());
        let mut slowest = Duration::ZERO;
        let mut killing = || {
            for _ in 0..options.kills {
                std::thread::sleep(Duration::from_millis(fastrand::u64(20..900)));
                broker.kill();
                slowest = slowest.max(broker.start()?);
            }
            Ok::<(), String>(())
        };
        let killed = killing();
        stop.store(true, Ordering::Relaxed);
        let promised = producer.join().map_err(|_| "the producer panicked".to_string())?;
        killed?;
        Ok::<_, String>((promised?, slowest))
    })?;
    println!(
        "seed {}: {} kills in {:.0} s, {} records acknowledged, {} reconnects, slowest start {} ms",
        options.seed,
        options.kills,
        began.elapsed().as_secs_f64(),
        acked.load(Ordering::Relaxed),
        promised.reconnects,
        slowest.as_millis()
    );
    let mut verdicts = vec![("raw, five in flight", judge(&address, "raw", &promised)?)];
    match library {
        Some(library) => verdicts.push(("librdkafka", judge(&address, "librdkafka", &library.stop(options)?)?)),
        None => println!("librdkafka: left out (no --python)"),
    }
    for (name, v) in &verdicts {
        println!("{name}: {v}");
    }
    let failed = verdicts.iter().filter(|(_, v)| !v.clean()).count();
    println!("{} passed, {failed} failed", verdicts.len() - failed);
    Ok(failed == 0)
}

fn judge(address: &str, topic: &str, promised: &Promised) -> Result<Verdict, String> {
    if promised.offsets.iter().all(|offsets| offsets.is_empty()) {
        return Err(format!("{topic}: nothing was acknowledged, so nothing was shown"));
    }
    verify(address, topic, &promised.offsets).map_err(|e| e.to_string())
}

/// librdkafka as a process of its own: it writes a line `partition number offset` for each acknowledged record.
struct Library {
    child: Child,
}

impl Library {
    fn start(options: &Options, python: &PathBuf, address: &str) -> Result<Library, String> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/librdkafka.py");
        let mut command = Command::new(python);
        command.args([script, address, "librdkafka"]).arg(options.partitions.to_string());
        command.arg(options.work.join("acked.txt")).stdin(Stdio::piped());
        let child = command.spawn().map_err(|e| format!("{}: {e}", python.display()))?;
        Ok(Library { child })
    }

    /// Closes its input, which tells it to flush and end; what it was promised by then.
    fn stop(mut self, options: &Options) -> Result<Promised, String> {
        drop(self.child.stdin.take());
        let status = self.child.wait().map_err(|e| e.to_string())?;
        if !status.success() {
            return Err(format!("librdkafka's producer ended with {status}"));
        }
        let text = std::fs::read_to_string(options.work.join("acked.txt")).map_err(|e| format!("acked.txt: {e}"))?;
        let mut promised = Promised { offsets: vec![Vec::new(); options.partitions], ..Promised::default() };
        for line in text.lines() {
            let numbers: Vec<i64> = line.split(' ').filter_map(|n| n.parse().ok()).collect();
            let [partition, number, offset] = numbers[..] else { return Err(format!("acked.txt: {line}")) };
            let known = &mut promised.offsets[partition as usize];
            if known.len() as i64 != number {
                return Err(format!(
                    "librdkafka acknowledged record {number} of {partition} where {} was due",
                    known.len()
                ));
            }
            known.push(offset);
        }
        Ok(promised)
    }
}
