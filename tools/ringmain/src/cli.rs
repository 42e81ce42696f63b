//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// A message broker that speaks Kafka's protocol.
#[derive(Debug, Parser)]
#[command(
    name = "ringmain",
    version,
    after_help = "A broker on 127.0.0.1:9092, data in ./ringmain-data:  ringmain start"
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a broker.
    Start(StartArgs),
    /// Create, list, describe, alter and delete topics of a running broker.
    #[command(subcommand)]
    Topic(TopicCommand),
    /// List, describe, reset and delete consumer groups of a running broker.
    #[command(subcommand)]
    Group(GroupCommand),
    /// Read the files of a stopped broker.
    #[command(subcommand)]
    Log(LogCommand),
    /// Measure a running broker of Kafka's protocol: publishing, consuming, latency.
    ///
    /// Makes two topics of its own and deletes them at the end. First it publishes as fast as the broker acknowledges, then it reads
    /// what was published (round and round, so mostly from memory), then it publishes at a fixed rate, whatever the broker does, and
    /// tells how late acknowledgements and a consumer at the tail were. One thread makes the load; on a machine of few cores it takes
    /// CPU from a broker that runs there too.
    Bench(BenchArgs),
    /// Print the version.
    Version,
}

#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    #[command(flatten)]
    pub connect: Connect,
    /// Partitions of the topic that is published to and read.
    #[arg(long, short = 'p', value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub partitions: u32,
    /// Connections that publish.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub connections: u32,
    /// Requests that a publishing connection has unanswered.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub window: u32,
    /// Of a record's value.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub record_bytes: u32,
    /// Of a batch, which is what a request publishes.
    #[arg(long, value_name = "N", default_value_t = 16384, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub batch_bytes: u32,
    /// Of the latencies' load, in 10^6 bytes a second.
    #[arg(long, value_name = "MB/S", default_value_t = 20.0)]
    pub rate: f64,
    /// Seconds that each part takes, after one of warming up.
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    pub seconds: f64,
    /// A config of the topics; repeatable.
    #[arg(long, short = 'c', value_name = "NAME=VALUE", value_parser = name_value)]
    pub config: Vec<(String, String)>,
}

/// What is given here wins over --set, and --set over the file; the same property in an option of its own and in --set is an error.
#[derive(Args, Clone, Debug, Default)]
pub struct StartArgs {
    /// Where everything is kept; made when missing (log.dirs) [default: ./ringmain-data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Where clients connect (listeners) [default: 127.0.0.1:9092]
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// What clients are told to connect to (advertised.listeners) [default: as --listen]
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// How many cores serve [default: all]
    #[arg(long, value_name = "N")]
    pub cores: Option<usize>,
    /// Where /metrics and /health/{live,ready} are served, or "none" [default: 127.0.0.1:9644]
    #[arg(long, value_name = "HOST:PORT")]
    pub admin_listen: Option<String>,
    /// Broker properties by Kafka's names, as in a server.properties.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// One broker property; repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = name_value)]
    pub set: Vec<(String, String)>,
    /// How log lines are written to standard error; which ones, RUST_LOG says [default there: info]
    #[arg(long, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    pub log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(Args, Clone, Debug)]
pub struct Connect {
    /// A broker of the cluster.
    #[arg(long, short = 'b', value_name = "HOST:PORT", default_value = "127.0.0.1:9092")]
    pub bootstrap: String,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum TopicCommand {
    /// Create a topic.
    Create {
        /// Up to 249 letters, digits, '.', '_' and '-'.
        name: String,
        /// How many partitions [default: the broker's num.partitions]
        #[arg(long, short = 'p', value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
        partitions: Option<i32>,
        /// How many replicas of each [default: the broker's default.replication.factor]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(i16).range(1..))]
        replication_factor: Option<i16>,
        /// A topic config by Kafka's name; repeatable.
        #[arg(long, short = 'c', value_name = "NAME=VALUE", value_parser = name_value)]
        config: Vec<(String, String)>,
        #[command(flatten)]
        connect: Connect,
    },
    /// List topics.
    List {
        #[command(flatten)]
        connect: Connect,
    },
    /// Show a topic's partitions, offsets, sizes and the configs it was given.
    Describe {
        /// The topic's.
        name: String,
        /// Show every config, not only what differs from its default.
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        connect: Connect,
    },
    /// Change a topic's configs, or add partitions.
    Alter {
        /// The topic's.
        name: String,
        /// A config to set; repeatable.
        #[arg(long, short = 'c', value_name = "NAME=VALUE", value_parser = name_value)]
        config: Vec<(String, String)>,
        /// A config to go back to its default; repeatable.
        #[arg(long, value_name = "NAME")]
        unset: Vec<String>,
        /// How many partitions there should be; more than there are.
        #[arg(long, short = 'p', value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
        partitions: Option<i32>,
        #[command(flatten)]
        connect: Connect,
    },
    /// Delete topics, with everything in them.
    Delete {
        /// The topics'.
        #[arg(required = true)]
        names: Vec<String>,
        #[command(flatten)]
        connect: Connect,
    },
}

#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// List groups, with their types and states.
    List {
        /// Only groups in this state (Stable, Empty, ...); repeatable.
        #[arg(long, value_name = "STATE")]
        state: Vec<String>,
        /// Only groups of this type (classic, consumer); repeatable.
        #[arg(long = "type", value_name = "TYPE")]
        kind: Vec<String>,
        #[command(flatten)]
        connect: Connect,
    },
    /// Show a group's members, committed offsets and lag.
    Describe {
        /// The group's.
        name: String,
        #[command(flatten)]
        connect: Connect,
    },
    /// Put a group without members to other offsets; what a partition's log has not is the nearest that it has.
    Reset {
        /// The group's.
        name: String,
        /// TOPIC or TOPIC:PARTITION,...; repeatable [default: all that the group has committed for]
        #[arg(long, short = 't', value_name = "TOPIC[:N,...]")]
        topic: Vec<String>,
        #[command(flatten)]
        to: ResetTo,
        /// Only show what would be done.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        connect: Connect,
    },
    /// Delete groups without members, with all that they committed.
    Delete {
        /// The groups'.
        #[arg(required = true)]
        names: Vec<String>,
        #[command(flatten)]
        connect: Connect,
    },
}

#[derive(Args, Clone, Debug, Default)]
#[group(required = true, multiple = false)]
pub struct ResetTo {
    /// To the first record that is kept.
    #[arg(long = "to-earliest")]
    pub earliest: bool,
    /// Behind the last record.
    #[arg(long = "to-latest")]
    pub latest: bool,
    /// To this offset.
    #[arg(long = "to-offset", value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    pub offset: Option<i64>,
    /// So many records on, or back with a minus.
    #[arg(long = "shift-by", value_name = "N", allow_negative_numbers = true)]
    pub shift: Option<i64>,
    /// To the first record at or after this time, in milliseconds since 1970.
    #[arg(long = "to-timestamp", value_name = "MS", value_parser = clap::value_parser!(i64).range(0..))]
    pub timestamp: Option<i64>,
}

#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Check every byte of segments, indexes, snapshots and journals; exit code 1 when something is wrong.
    Verify {
        /// Data directories, partition directories or files.
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Print what a file holds: batches of a segment, entries of an index, rows of a snapshot, entries of a journal.
    Dump {
        /// Data directories, partition directories or files.
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// Print a segment's records too.
        #[arg(long)]
        records: bool,
    },
}

fn name_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().into(), value.trim().into())),
        _ => Err("not NAME=VALUE".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_holds_together() {
        Cli::command().debug_assert();
        let parsed = Cli::try_parse_from(["ringmain", "start", "--set", "a=b=c", "--set", "d="]).unwrap();
        let Command::Start(args) = parsed.command else { panic!() };
        assert_eq!(args.set, [("a".into(), "b=c".into()), ("d".into(), String::new())]);
        assert!(Cli::try_parse_from(["ringmain", "start", "--set", "a"]).is_err());
        assert!(Cli::try_parse_from(["ringmain", "topic", "create", "t", "-p", "0"]).is_err());
        assert!(Cli::try_parse_from(["ringmain", "log", "verify"]).is_err());
        assert!(Cli::try_parse_from(["ringmain", "bench", "-b", "a:1", "--rate", "0.5"]).is_ok());
        assert!(Cli::try_parse_from(["ringmain", "bench", "--partitions", "0"]).is_err());
        assert!(Cli::try_parse_from(["ringmain", "group", "reset", "g", "--shift-by", "-3"]).is_ok());
        assert!(Cli::try_parse_from(["ringmain", "group", "reset", "g"]).is_err(), "to where?");
        assert!(Cli::try_parse_from(["ringmain", "group", "reset", "g", "--to-latest", "--to-earliest"]).is_err());
    }
}
