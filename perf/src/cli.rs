//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

#[derive(Parser)]
#[command(
    name = "ringmain-perf",
    about = "Measures Ringmain beside what its work must cost, and beside Kafka",
    version
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// All workloads of issue 6, all sides by turns; the table and the plots go to perf/results
    Bench(Box<BenchArgs>),
    /// Loads a broker (or the probe) with Produce requests, and nothing else
    Produce(ProduceArgs),
    /// The least that any broker must do: receives Produce frames, writes and flushes them, acknowledges
    Probe(ProbeArgs),
    /// A bare send loop: answers Fetch requests from memory
    SendLoop(SendLoopArgs),
    /// A bare tokio server that sends back what it gets
    Echo(EchoArgs),
}

#[derive(Args)]
pub struct ProbeArgs {
    #[arg(long, default_value = "127.0.0.1:29092")]
    pub listen: String,
    /// Where the probe's file is: on the file system to be measured
    #[arg(long, default_value = "./ringmain-perf-data")]
    pub dir: PathBuf,
    /// Size of the file, which is prewritten once and then written round and round
    #[arg(long, default_value_t = 2048)]
    pub file_mib: u64,
    /// Acknowledge what is written and not flushed
    #[arg(long)]
    pub no_flush: bool,
    /// Keep to one CPU
    #[arg(long)]
    pub cpu: Option<usize>,
}

#[derive(Args)]
pub struct SendLoopArgs {
    #[arg(long, default_value = "127.0.0.1:29092")]
    pub listen: String,
    /// What is sent, round and round
    #[arg(long, default_value_t = 64)]
    pub memory_mib: usize,
    #[arg(long, default_value_t = 64 << 10)]
    pub batch_bytes: usize,
}

#[derive(Args)]
pub struct EchoArgs {
    #[arg(long, default_value = "127.0.0.1:29092")]
    pub listen: String,
}

#[derive(Args)]
pub struct ProduceArgs {
    #[arg(long, default_value = "127.0.0.1:9092")]
    pub bootstrap: String,
    #[arg(long, default_value = "bench")]
    pub topic: String,
    #[arg(long, default_value_t = 1)]
    pub partitions: u32,
    /// Do not create the topic first: it exists, or this is the probe
    #[arg(long)]
    pub no_create: bool,
    /// Configs of the topic that is created, `name=value`
    #[arg(long = "config", value_parser = name_and_value)]
    pub configs: Vec<(String, String)>,
    #[arg(long, default_value_t = 1)]
    pub connections: u32,
    #[arg(long, default_value_t = 1024)]
    pub record_bytes: usize,
    #[arg(long, default_value_t = 16 << 10)]
    pub batch_bytes: usize,
    /// Unanswered requests a connection
    #[arg(long, default_value_t = 32)]
    pub window: usize,
    /// Open loop at so many MB/s (10^6 bytes); without it, as fast as the window lets
    #[arg(long)]
    pub rate: Option<f64>,
    #[arg(long, default_value_t = 1.0)]
    pub warm_up: f64,
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// Process of the server, for its CPU time
    #[arg(long)]
    pub server_pid: Option<u32>,
    /// Keep to one CPU
    #[arg(long)]
    pub cpu: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Against {
    Kafka,
}

#[derive(Args)]
pub struct BenchArgs {
    /// Only see that everything runs: one round, small data, short spans
    #[arg(long)]
    pub quick: bool,
    /// One more peer in the same sitting (Java 17 and Maven)
    #[arg(long, value_enum)]
    pub against: Option<Against>,
    /// Only workloads whose name holds this; repeatable
    #[arg(long)]
    pub only: Vec<String>,
    /// Name the workloads, and do nothing
    #[arg(long)]
    pub list: bool,
    /// [default: 5; 1 with --quick]
    #[arg(long)]
    pub rounds: Option<usize>,
    /// Seconds of load before what is measured [default: 2; 0.3 with --quick]
    #[arg(long)]
    pub warm_up: Option<f64>,
    /// The same for Kafka, whose JVM warms up [default: 25; 3 with --quick]
    #[arg(long)]
    pub kafka_warm_up: Option<f64>,
    /// Seconds that are measured [default: 10; 1 with --quick]
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Seconds between Ringmain's start and its load. From 30 on its retention is at work: together with --config segment.bytes
    /// and retention.bytes its log uses its files again, as the probe does
    #[arg(long, default_value_t = 0.0)]
    pub settle: f64,
    /// Configs of Ringmain's topics, `name=value`
    #[arg(long = "config", value_parser = name_and_value)]
    pub configs: Vec<(String, String)>,
    /// The broker's binary
    #[arg(long, default_value = "target/release/ringmain")]
    pub ringmain: PathBuf,
    /// The broker's --cores
    #[arg(long, default_value_t = 2)]
    pub cores: usize,
    /// A further argument of `ringmain start`; repeatable
    #[arg(long = "start-argument", allow_hyphen_values = true)]
    pub start_arguments: Vec<String>,
    /// Data goes below this: the file system to be measured
    #[arg(long, default_value = "./ringmain-perf-data")]
    pub dir: PathBuf,
    /// Size of the probe's file, which is also what is read cold beside Ringmain [default: 2048; 256 with --quick]
    #[arg(long)]
    pub probe_mib: Option<u64>,
    /// Kafka's jars; fetched when they are not there [default: kafka-jars below --dir]
    #[arg(long)]
    pub kafka_jars: Option<PathBuf>,
    /// Servers listen on it, and on the one behind it
    #[arg(long, default_value_t = 29_192)]
    pub port: u16,
    /// Where the table and the plots are written
    #[arg(long, default_value = "perf/results")]
    pub results: PathBuf,
    /// Only print the table
    #[arg(long)]
    pub no_results: bool,
    /// A further line for the table: what else ran on the machine, and the like
    #[arg(long)]
    pub note: Vec<String>,
}

fn name_and_value(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as name=value")?;
    Ok((name.into(), value.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_holds_together() {
        Cli::command().debug_assert();
        assert!(Cli::try_parse_from(["ringmain-perf", "bench", "--against", "kafka", "--only", "idle"]).is_ok());
        assert!(Cli::try_parse_from(["ringmain-perf", "bench", "--config", "a"]).is_err());
    }
}
