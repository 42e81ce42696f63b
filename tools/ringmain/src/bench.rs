//! `ringmain bench`: publish, consume and latency of whatever speaks Kafka's protocol.

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringmain_load::{
    Actor, Control, End, Leader, Offsets, Outcome, Pace, Plan, Publisher, PublisherConfig, Reader, ReaderConfig,
    Versions, run,
};
use serde_json::{Value, json};

use crate::cli::BenchArgs;

const WARM_UP: Duration = Duration::from_secs(1);
/// What a consumer asks for at once: Kafka's default.
const FETCH_BYTES: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(5);
/// A rate or a span beyond these is a slip of the hand.
const RATE_MAX: f64 = 100_000.0;
const SECONDS_MAX: f64 = 3600.0;

struct Bench<'a> {
    args: &'a BenchArgs,
    control: Control,
    versions: Versions,
    /// Where throughput is measured.
    topic: String,
    /// Of one partition, where latency is.
    latency_topic: String,
}

/// A line of the table.
struct Row {
    name: String,
    megabytes: f64,
    messages: f64,
    /// p50, p99, p99.9, greatest, in milliseconds.
    latency: [f64; 4],
    /// Of this process, in cores.
    own_cpu: f64,
}

/// Prints what came of it to standard output.
pub fn run_bench(args: &BenchArgs) -> io::Result<()> {
    let within = |value: f64, most: f64| value > 0.0 && value <= most;
    if !within(args.rate, RATE_MAX) || !within(args.seconds, SECONDS_MAX) {
        return Err(io::Error::other(format!("--rate is up to {RATE_MAX} MB/s, --seconds up to {SECONDS_MAX}")));
    }
    let mut control = Control::open(&args.connect.bootstrap, PATIENCE)?;
    let versions = control.versions()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let topic = format!("ringmain-bench-{now}");
    let mut bench = Bench { args, control, versions, latency_topic: format!("{topic}-latency"), topic };
    let rows = bench.measure();
    let left = bench.clean_up();
    let rows = rows?;
    if args.connect.json {
        print(&format!("{:#}\n", Value::Array(rows.iter().map(Row::json).collect())));
    } else {
        print(&table(args, &rows));
    }
    left
}

impl Bench<'_> {
    fn measure(&mut self) -> io::Result<Vec<Row>> {
        self.control.create_topic(&self.topic, self.args.partitions, &self.args.config)?;
        self.control.create_topic(&self.latency_topic, 1, &self.args.config)?;
        let mut rows = vec![self.publish()?, self.consume()?];
        rows.extend(self.latency()?);
        Ok(rows)
    }

    /// Deletes what was created, as far as it was.
    fn clean_up(&mut self) -> io::Result<()> {
        let mut left = Ok(());
        for topic in [&self.topic, &self.latency_topic] {
            if !self.control.leaders(topic)?.is_empty() {
                left = left.and(self.control.delete_topic(topic));
            }
        }
        left
    }

    fn plan(&self) -> Plan {
        Plan { warm_up: WARM_UP, measure: Duration::from_secs_f64(self.args.seconds), server_pid: None }
    }

    fn publisher(&self, topic: &str, pace: Pace, connections: Vec<(String, Vec<u32>)>) -> io::Result<Publisher> {
        Publisher::open(&PublisherConfig {
            topic: topic.into(),
            record_bytes: self.args.record_bytes as usize,
            batch_bytes: self.args.batch_bytes as usize,
            pace,
            connections,
            version: self.versions.produce,
            requests_max: None,
        })
    }

    fn reader(&self, name: &'static str, topic: &str, leader: &Leader, end: End) -> ReaderConfig {
        ReaderConfig {
            name,
            address: leader.address.clone(),
            topic: topic.into(),
            partition: leader.partition,
            bytes_max: FETCH_BYTES,
            from: 0,
            end,
            version: self.versions.fetch,
        }
    }

    fn publish(&mut self) -> io::Result<Row> {
        let leaders = self.control.leaders(&self.topic)?;
        let connections = spread(&leaders, self.args.connections as usize);
        let publisher = self.publisher(&self.topic, Pace::Window(self.args.window as usize), connections)?;
        let outcome = run(&self.plan(), vec![Box::new(publisher)])?;
        Ok(Row::of("publish, latency: ack".into(), &outcome, "publish"))
    }

    /// A connection a partition.
    fn consume(&mut self) -> io::Result<Row> {
        let mut readers: Vec<Box<dyn Actor>> = Vec::new();
        for leader in self.control.leaders(&self.topic)? {
            let ends = Control::open(&leader.address, PATIENCE)?.ends(&self.topic, &[leader.partition])?;
            if let [Ok(end)] = ends[..]
                && end > 0
            {
                let config = self.reader("consume", &self.topic, &leader, End::Again(end));
                readers.push(Box::new(Reader::open(config, None)?));
            }
        }
        if readers.is_empty() {
            return Err(io::Error::other("nothing was published that could be read"));
        }
        let outcome = run(&self.plan(), readers)?;
        Ok(Row::of("consume, latency: fetch".into(), &outcome, "consume"))
    }

    fn latency(&mut self) -> io::Result<[Row; 2]> {
        let leaders = self.control.leaders(&self.latency_topic)?;
        let leader = leaders.first().ok_or_else(|| io::Error::other("the topic of the latencies has no leader"))?;
        let connections = vec![(leader.address.clone(), vec![0])];
        let mut publisher = self.publisher(&self.latency_topic, Pace::Rate(self.args.rate * 1e6), connections)?;
        let config = self.reader("tail", &self.latency_topic, leader, End::Tail);
        let reader = Reader::open(config, Some(publisher.timeline(1, Offsets::Checked)))?;
        let outcome = run(&self.plan(), vec![Box::new(reader), Box::new(publisher)])?;
        let rate = self.args.rate;
        Ok([
            Row::of(format!("at {rate} MB/s: due to ack"), &outcome, "publish"),
            Row::of(format!("at {rate} MB/s: due to consumed"), &outcome, "tail"),
        ])
    }
}

/// `count` connections over the brokers in turn, each to all partitions of its broker.
fn spread(leaders: &[Leader], count: usize) -> Vec<(String, Vec<u32>)> {
    let mut brokers: Vec<(String, Vec<u32>)> = Vec::new();
    for leader in leaders {
        match brokers.iter_mut().find(|(address, _)| *address == leader.address) {
            Some((_, partitions)) => partitions.push(leader.partition),
            None => brokers.push((leader.address.clone(), vec![leader.partition])),
        }
    }
    brokers.iter().cycle().take(if brokers.is_empty() { 0 } else { count }).cloned().collect()
}

impl Row {
    fn of(name: String, outcome: &Outcome, part: &str) -> Row {
        let tally = outcome.tally(part);
        Row {
            name,
            megabytes: tally.bytes as f64 / outcome.seconds / 1e6,
            messages: tally.records as f64 / outcome.seconds / 1e3,
            latency: [
                tally.latency_ms(0.5),
                tally.latency_ms(0.99),
                tally.latency_ms(0.999),
                tally.latency.max() as f64 / 1e6,
            ],
            own_cpu: outcome.own_cpu_seconds / outcome.seconds,
        }
    }

    fn json(&self) -> Value {
        let [p50, p99, p999, max] = self.latency;
        json!({
            "name": self.name, "megabytes_per_second": self.megabytes, "messages_per_second": self.messages * 1e3,
            "p50_ms": p50, "p99_ms": p99, "p99.9_ms": p999, "max_ms": max, "own_cpu_cores": self.own_cpu,
        })
    }
}

fn table(args: &BenchArgs, rows: &[Row]) -> String {
    let mut out = format!(
        "{}: records of {} bytes in batches of {}, {} connections to {} partitions\n\n",
        args.connect.bootstrap, args.record_bytes, args.batch_bytes, args.connections, args.partitions
    );
    let heads = ["MB/s", "k msg/s", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "own CPU"];
    out.push_str(&format!("{:<32}", ""));
    heads.iter().for_each(|head| out.push_str(&format!("{head:>10}")));
    out.push('\n');
    for row in rows {
        let [p50, p99, p999, max] = row.latency;
        out.push_str(&format!(
            "{:<32}{:>10.1}{:>10.1}{p50:>10.2}{p99:>10.2}{p999:>10.2}{max:>10.2}{:>10.2}\n",
            row.name, row.megabytes, row.messages, row.own_cpu
        ));
    }
    out.push_str("\nMB are 10^6 bytes of batches; own CPU is this command's, in cores. Latencies at a rate count from when a batch was due.\n");
    out
}

/// Who closes standard output has seen enough, which is no error.
fn print(text: &str) {
    drop(io::stdout().write_all(text.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_go_to_leaders() {
        let leader = |partition, address: &str| Leader { partition, address: address.into() };
        let leaders = [leader(0, "a:1"), leader(1, "b:1"), leader(2, "a:1")];
        let spread_over = spread(&leaders, 3);
        let (a, b) = (("a:1".to_string(), vec![0, 2]), ("b:1".to_string(), vec![1]));
        assert_eq!(spread_over, [a.clone(), b, a]);
        assert!(spread(&[], 3).is_empty());
    }
}
