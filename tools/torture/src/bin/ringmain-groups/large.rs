//! One group of a thousand members: how long its rebalances take, and what others on the broker's only core wait meanwhile.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use ringmain_torture::broker::{Broker, create, new_directory};
use ringmain_torture::connection::Connection;
use ringmain_types::ErrorCode;
use ringmain_wire::metadata::MetadataRequestTopic;
use ringmain_wire::{HEARTBEAT, HeartbeatRequest, METADATA, MetadataRequest};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Options;
use crate::ask::{find_coordinator, topic_id};
use crate::book::Plan;
use crate::member::Protocol;
use crate::members::told;
use crate::swarm::{Swarm, histogram};

const TOPIC: &str = "wide";
const SMALL: &str = "small";
/// Without an answer after this, what is measured is a hang.
const SETTLE_MAX: Duration = Duration::from_secs(90);
const PHASES: [&str; 3] = ["before", "while all join", "while one leaves and joins"];
/// Issue 4: no other request of the core waits longer. Told, not judged: on a busy machine a client waits for the machine.
const WAIT_MAX: Duration = Duration::from_millis(10);
/// The members' thread stands back behind the prober: their own work is not to be measured.
const NICE: i32 = 10;

/// How much was broken.
pub fn run(options: &Options, members: usize, partitions: usize, rebalances: u32) -> Result<u64, String> {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let mut broken = 0;
    for protocol in [Protocol::Classic, Protocol::Consumer] {
        println!("one {protocol:?} group of {members} members on {partitions} partitions:");
        new_directory(&options.work)?;
        let mut broker = Broker::new(&options.binary, &options.work, 1)?;
        broker.start()?;
        create(&broker.address, TOPIC, partitions)?;
        create(&broker.address, SMALL, 1)?;
        find_coordinator(&broker.address, "any")?;
        let (stop, phase) = (AtomicBool::new(false), AtomicUsize::new(0));
        let prober = Prober { address: broker.address.clone(), stop: &stop, phase: &phase };
        broken += std::thread::scope(|scope| {
            let waits = scope.spawn(|| prober.run());
            // Refused where it may not; then it shares.
            let _ = rustix::process::nice(NICE);
            let driven = drive(&broker, (protocol, members, partitions), rebalances, &phase);
            stop.store(true, Ordering::Relaxed);
            let waits = waits.join().map_err(|_| "the prober panicked".to_string())??;
            tell(&waits);
            driven
        })?;
    }
    Ok(broken)
}

fn drive(
    broker: &Broker,
    (protocol, members, partitions): (Protocol, usize, usize),
    rebalances: u32,
    phase: &AtomicUsize,
) -> Result<u64, String> {
    let mut swarm = Swarm::new(&broker.address)?;
    let group = swarm.add_group(Plan {
        group: "large".into(),
        topic: TOPIC.into(),
        topic_id: topic_id(&broker.address, TOPIC)?,
        partitions: partitions as i32,
        session: Duration::from_secs(45),
        rebalance: Duration::from_secs(60),
        beat: Duration::from_secs(3),
        commit: None,
        reads: false,
    });
    let mut open = Vec::new();
    for _ in 0..members {
        let member = swarm.add_member(group, protocol);
        open.push(swarm.open(member)?);
    }
    swarm.run(Instant::now() + Duration::from_secs(5), |_| false)?;
    let before = metadata_waits(&broker.metrics()?);
    phase.store(1, Ordering::Relaxed);
    for (number, connection) in open.into_iter().enumerate() {
        swarm.enter_over(number, connection)?;
    }
    settle(&mut swarm)?;
    println!("  all joined: {:?} after the last came", swarm.books[group].rebalances);
    swarm.books[group].rebalances.clear();
    phase.store(2, Ordering::Relaxed);
    let cpu = broker.cpu()?;
    for round in 0..rebalances as usize {
        let member = round * 7 % members;
        swarm.leave(member)?;
        settle(&mut swarm)?;
        swarm.enter(member)?;
        settle(&mut swarm)?;
    }
    let mut took = std::mem::take(&mut swarm.books[group].rebalances);
    took.sort_unstable();
    let ms = |at: usize| took.get(at).map_or(0, Duration::as_millis);
    println!(
        "  {} rebalances: shortest {} ms, median {} ms, longest {} ms, {} ms of the broker's time for each",
        took.len(),
        ms(0),
        ms(took.len() / 2),
        ms(took.len().saturating_sub(1)),
        broker.cpu()?.saturating_sub(cpu).as_millis() / took.len().max(1) as u128
    );
    println!("  heartbeats: {}", told(&swarm.stats.beats));
    let metrics = broker.metrics()?;
    for line in metrics.lines().filter(|line| line.starts_with("ringmain_turn")) {
        println!("  {line}");
    }
    // Its own waits for a processor are not in it.
    match (before, metadata_waits(&metrics)) {
        (Some((all_before, long_before)), Some((all, long))) => println!(
            "  Metadata as the broker has it: {}, of which {} took over 10ms; before any joined {all_before}, of which {long_before} did",
            all - all_before,
            long - long_before
        ),
        _ => println!("  Metadata as the broker has it: not told"),
    }
    Ok(swarm.verdict())
}

/// Requests for Metadata, and those that took over 10 ms, by the broker's histogram.
fn metadata_waits(metrics: &str) -> Option<(u64, u64)> {
    let below = |le: &str| {
        let name = format!("ringmain_request_seconds_bucket{{api=\"Metadata\",phase=\"total\",le=\"{le}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse::<u64>().ok())
    };
    let all = below("+Inf")?;
    Some((all, all - below("0.01")?))
}

fn settle(swarm: &mut Swarm) -> Result<(), String> {
    swarm.run(Instant::now() + SETTLE_MAX, |swarm| swarm.books.iter().all(|book| book.disturbed.is_none()))?;
    match swarm.books.iter().all(|book| book.disturbed.is_none()) {
        true => Ok(()),
        false => Err(format!("the group did not settle within {SETTLE_MAX:?}")),
    }
}

/// Asks for metadata and sends heartbeats of nobody, one after the other.
struct Prober<'a> {
    address: String,
    stop: &'a AtomicBool,
    phase: &'a AtomicUsize,
}

impl Prober<'_> {
    /// How long each took, by phase.
    fn run(&self) -> Result<Vec<Histogram<u64>>, String> {
        let mut waits = Vec::new();
        for _ in PHASES {
            waits.push(histogram()?);
        }
        let mut connection = Connection::open(&self.address).map_err(|e| e.to_string())?;
        let topics = vec![MetadataRequestTopic { name: Some(SMALL), ..Default::default() }];
        let metadata = MetadataRequest { topics: Some(topics.into()), ..Default::default() };
        // Its coordinator decides on it like on any other.
        let beat = HeartbeatRequest { group_id: "nobody", generation_id: 1, member_id: "nobody", ..Default::default() };
        let mut asks = 0u64;
        while !self.stop.load(Ordering::Relaxed) {
            let phase = self.phase.load(Ordering::Relaxed);
            let began = Instant::now();
            let answered = if asks.is_multiple_of(2) {
                connection.call(&METADATA, 9, &metadata).map(|_| ())
            } else {
                connection.call(&HEARTBEAT, 4, &beat).and_then(|frame| {
                    let (_, reply): (i32, ringmain_wire::HeartbeatResponse) = frame.decode(&HEARTBEAT, 4)?;
                    let expected = [ErrorCode::UnknownMemberId, ErrorCode::CoordinatorLoadInProgress];
                    match expected.contains(&reply.error_code) {
                        true => Ok(()),
                        false => Err(std::io::Error::other(format!("{:?}", reply.error_code))),
                    }
                })
            };
            answered.map_err(|e| format!("the prober: {e}"))?;
            waits[phase].saturating_record(began.elapsed().as_micros() as u64);
            asks += 1;
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(waits)
    }
}

fn tell(waits: &[Histogram<u64>]) {
    for (phase, waited) in PHASES.iter().zip(waits) {
        let over = waited.len() - waited.count_between(0, WAIT_MAX.as_micros() as u64);
        println!("  others, {phase}: {}; {over} over {WAIT_MAX:?}", told(waited));
    }
}
