//! All broken clients at once, beside a producer and a consumer that keep their pace: what those wait, and that nothing of theirs is lost.
//!
//! The attackers are processes in the idle class, as clients on other machines would take no processor of the broker's.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use ringmain_torture::connection::Connection;
use ringmain_torture::verify::each_record;
use ringmain_types::ErrorCode;
use ringmain_wire::{FETCH, FetchResponse};

use crate::admin::get;
use crate::ask::{FETCH_VERSION, batch, create_topic, fetch_request, produce};
use crate::attackers;
use crate::process::Broker;
use crate::suite::{Case, Outcome, Stop, case, fail, must};
use crate::world::World;

pub const CASES: &[Case] = &[case("all broken clients at once, beside a paced producer and consumer", short)];

const TOPIC: &str = "beside.a.siege";
const PARTITIONS: usize = 2;
/// Of each partition's producer.
const GAP: Duration = Duration::from_millis(10);
const RECORD_BYTES: usize = 1000;
const PHASES: [&str; 3] = ["before", "during", "after"];
/// What p99 may become.
const RATIO_MAX: f64 = 3.0;
/// What the allocator keeps, and what topics that are made and deleted leave for a while.
const SLACK_BYTES: u64 = 192 << 20;
const CONNECTION_BYTES: u64 = 8 << 10;
/// For what was acknowledged to be read.
const PATIENCE: Duration = Duration::from_secs(30);
const LATENCY_MAX_US: u64 = 120_000_000;

/// Without a judgement of times: a loaded machine is no fault.
fn short(world: &mut World) -> Outcome {
    let seconds = |count| Duration::from_secs(count);
    run(world, [seconds(4), seconds(20), seconds(4)], "").map(|_| ())
}

/// As long as asked, and judged.
pub fn long(world: &mut World, minutes: u64, attacks: &str) -> Outcome {
    let quiet = Duration::from_secs((minutes * 30).clamp(4, 60));
    let ratio = run(world, [quiet, Duration::from_secs((minutes * 60).max(15)), quiet], attacks)?;
    must(ratio <= RATIO_MAX, || format!("p99 during the siege is {ratio:.2} times that before; {RATIO_MAX} is allowed"))
}

struct Siege {
    address: String,
    started: Instant,
    stop: AtomicBool,
    phase: AtomicUsize,
    /// Of acknowledgements and of records that came to the consumer, by phase; microseconds from when they were due.
    acked: [Mutex<Histogram<u64>>; PHASES.len()],
    came: [Mutex<Histogram<u64>>; PHASES.len()],
    /// Offsets behind the last acknowledged and the last consumed record.
    ends: [AtomicU64; PARTITIONS],
    read: [AtomicU64; PARTITIONS],
    failed: Mutex<Option<String>>,
}

/// The worse of the two ratios of p99, during to before.
fn run(world: &mut World, spans: [Duration; PHASES.len()], attacks: &str) -> Result<f64, Stop> {
    let dir = world.place("siege");
    let mut broker = world.launch(&dir).serve()?;
    let mut connection = Connection::open(&broker.address)?;
    create_topic(&mut connection, TOPIC, PARTITIONS as i32)?;
    let histogram = || Mutex::new(Histogram::new_with_bounds(1, LATENCY_MAX_US, 3).expect("legal bounds"));
    let siege = Siege {
        address: broker.address.clone(),
        started: Instant::now(),
        stop: AtomicBool::new(false),
        phase: AtomicUsize::new(0),
        acked: [(); PHASES.len()].map(|()| histogram()),
        came: [(); PHASES.len()].map(|()| histogram()),
        ends: Default::default(),
        read: Default::default(),
        failed: Mutex::new(None),
    };
    let before = broker.resident()?;
    let watched = std::thread::scope(|scope| {
        for partition in 0..PARTITIONS {
            let siege = &siege;
            scope.spawn(move || siege.ends_with(siege.producer(partition)));
            scope.spawn(move || siege.ends_with(siege.consumer(partition)));
        }
        let watched = siege.watch(&mut broker, spans, attacks);
        siege.stop.store(true, Ordering::Relaxed);
        watched
    })?;
    let ratio = siege.told();
    let inside = watched.judged(before);
    if let Some(why) = siege.failed.lock().ok().and_then(|failed| failed.clone()) {
        return fail(why);
    }
    inside?;
    for (partition, (end, read)) in siege.ends.iter().zip(&siege.read).enumerate() {
        let (end, read) = (end.load(Ordering::Relaxed), read.load(Ordering::Relaxed));
        println!("  {TOPIC}-{partition}: {end} acknowledged, {read} read");
        must(end > 0 && read >= end, || {
            format!("{TOPIC}-{partition}: of {end} acknowledged records {read} were read")
        })?;
    }
    broker.stop()?;
    Ok(ratio)
}

/// The most that was seen of the broker's memory.
#[derive(Default)]
struct Watched {
    resident: u64,
    /// Of all accounts together; of Reply what it may take, since requests come and go between two looks.
    used: u64,
    connections: u64,
    turn_us: u64,
    over: Option<String>,
}

impl Watched {
    fn look(&mut self, broker: &Broker) -> Result<(), Stop> {
        self.resident = self.resident.max(broker.resident()?);
        let page = get(&broker.admin, "/metrics")?;
        let (used, limits) = (samples(&page, "ringmain_memory_bytes"), samples(&page, "ringmain_memory_limit_bytes"));
        let reply = |(labels, _): &&(String, u64)| labels.contains("reply");
        let others: u64 = used.iter().filter(|one| !reply(one)).map(|(_, bytes)| bytes).sum();
        let replies: u64 = limits.iter().filter(reply).map(|(_, bytes)| bytes).sum();
        self.used = self.used.max(others + replies);
        self.connections =
            self.connections.max(samples(&page, "ringmain_connections").iter().map(|(_, count)| count).sum());
        let longest = samples(&page, "ringmain_turn_longest_microseconds");
        self.turn_us = longest.iter().map(|(_, us)| *us).max().unwrap_or_default();
        must(!used.is_empty() && used.len() == limits.len(), || "no memory in /metrics".into())?;
        let over = used.iter().zip(&limits).find(|((_, used), (_, limit))| used > limit);
        if let Some(((account, used), (_, limit))) = over {
            self.over.get_or_insert(format!("{account}: {used} bytes, and {limit} are allowed"));
        }
        Ok(())
    }

    fn judged(self, before: u64) -> Outcome {
        let allowed = before + self.used + self.connections * CONNECTION_BYTES + SLACK_BYTES;
        println!(
            "  resident {} MiB before, {} MiB at most; accounts (Reply by its limit) {} MiB at most; {} connections; the longest turn took {} ms",
            before >> 20,
            self.resident >> 20,
            self.used >> 20,
            self.connections,
            self.turn_us / 1000
        );
        must(self.over.is_none(), || {
            format!("an account has more than its own: {}", self.over.clone().unwrap_or_default())
        })?;
        must(self.resident <= allowed, || {
            format!(
                "resident memory of {} MiB is not explained by accounts and connections: {} MiB",
                self.resident >> 20,
                allowed >> 20
            )
        })
    }
}

/// Labels and value of each sample of this name.
fn samples(page: &str, name: &str) -> Vec<(String, u64)> {
    let lines = page.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{')?.split_once("} "));
    lines.filter_map(|(labels, value)| Some((labels.to_string(), value.trim().parse().ok()?))).collect()
}

impl Siege {
    fn watch(&self, broker: &mut Broker, spans: [Duration; PHASES.len()], attacks: &str) -> Result<Watched, Stop> {
        let mut watched = Watched::default();
        let mut attackers = None;
        for (phase, span) in spans.into_iter().enumerate() {
            self.phase.store(phase, Ordering::Relaxed);
            attackers = match PHASES[phase] {
                "during" => Some(attackers::start(&self.address, attacks)?),
                "after" => None,
                _ => attackers,
            };
            let until = Instant::now() + span;
            while Instant::now() < until && !self.has_failed() {
                std::thread::sleep(Duration::from_millis(500).min(until.saturating_duration_since(Instant::now())));
                broker.lives()?;
                watched.look(broker)?;
            }
        }
        Ok(watched)
    }

    fn has_failed(&self) -> bool {
        self.failed.lock().is_ok_and(|failed| failed.is_some())
    }

    fn ends_with(&self, result: io::Result<()>) {
        if let Err(error) = result
            && let Ok(mut failed) = self.failed.lock()
        {
            failed.get_or_insert(format!("the client beside the siege failed: {error}"));
        }
    }

    /// A record each `GAP`, whatever the last one took; its time counts from when it was due.
    fn producer(&self, partition: usize) -> io::Result<()> {
        let mut connection = Connection::open(&self.address)?;
        let mut due = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let phase = self.phase.load(Ordering::Relaxed);
            let mut value = format!("{}:{phase}:", due.duration_since(self.started).as_micros()).into_bytes();
            value.resize(RECORD_BYTES, b'.');
            let answers = produce(&mut connection, TOPIC, &[(partition as i32, batch(&value))])?;
            let (answer, offset) = answers.first().ok_or_else(|| io::Error::other("an empty reply"))?;
            answer.ok("produce")?;
            note(&self.acked[phase], due);
            self.ends[partition].store(*offset as u64 + 1, Ordering::Relaxed);
            due += GAP;
        }
        Ok(())
    }

    /// Every record in its place, until all that was acknowledged has come.
    fn consumer(&self, partition: usize) -> io::Result<()> {
        let mut connection = Connection::open(&self.address)?;
        let mut next = 0;
        let mut stopped = None;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                let began = *stopped.get_or_insert_with(Instant::now);
                if next >= self.ends[partition].load(Ordering::Relaxed) as i64 || began.elapsed() > PATIENCE {
                    // The producer may still wait for its last one.
                    std::thread::sleep(Duration::from_millis(200));
                    if next >= self.ends[partition].load(Ordering::Relaxed) as i64 || began.elapsed() > PATIENCE {
                        return Ok(());
                    }
                }
            }
            let request = fetch_request(TOPIC, partition as i32, next, 1 << 20);
            let frame = connection.call(&FETCH, FETCH_VERSION, &request)?;
            let (_, reply): (i32, FetchResponse<'_>) = frame.decode(&FETCH, FETCH_VERSION)?;
            let topic = reply.responses.iter().next().ok_or_else(|| io::Error::other("an empty reply"))?;
            let part = topic.partitions.iter().next().ok_or_else(|| io::Error::other("an empty reply"))?;
            if part.error_code != ErrorCode::None {
                return Err(io::Error::other(format!("fetch: {:?}", part.error_code)));
            }
            each_record(part.records.wire().unwrap_or_default(), |offset, record| {
                if offset != next {
                    return Err(io::Error::other(format!("offset {offset} came where {next} was due")));
                }
                next += 1;
                self.record_came(record.value.unwrap_or_default())
            })?;
            self.read[partition].store(next as u64, Ordering::Relaxed);
        }
    }

    fn record_came(&self, value: &[u8]) -> io::Result<()> {
        let text = std::str::from_utf8(value).unwrap_or_default();
        let mut words = text.split(':').map(|word| word.parse::<u64>().ok());
        match (words.next().flatten(), words.next().flatten().and_then(|phase| self.came.get(phase as usize))) {
            (Some(due), Some(came)) => note(came, self.started + Duration::from_micros(due)),
            _ => return Err(io::Error::other("a record that nobody sent")),
        }
        Ok(())
    }

    /// Prints all; the worse ratio.
    fn told(&self) -> f64 {
        let mut worst: f64 = 0.0;
        for (what, histograms) in [("acknowledged", &self.acked), ("consumed", &self.came)] {
            let at = |phase: usize, quantile| {
                histograms[phase].lock().map_or(0, |found| found.value_at_quantile(quantile)) as f64 / 1000.0
            };
            for (phase, name) in PHASES.iter().enumerate() {
                let count = histograms[phase].lock().map_or(0, |found| found.len());
                println!("  {what} {name}: {count}, p50 {:.2} ms, p99 {:.2} ms", at(phase, 0.5), at(phase, 0.99));
            }
            let ratio = at(1, 0.99) / at(0, 0.99).max(0.001);
            println!("  {what}: p99 during is {ratio:.2} times that before");
            worst = worst.max(ratio);
        }
        worst
    }
}

fn note(histogram: &Mutex<Histogram<u64>>, due: Instant) {
    if let Ok(mut histogram) = histogram.lock() {
        histogram.saturating_record(due.elapsed().as_micros().max(1) as u64);
    }
}
