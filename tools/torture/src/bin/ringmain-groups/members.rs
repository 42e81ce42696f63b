//! Random joins, leaves and vanishing members, while all of them read what a producer writes: a group of each protocol, and one of both.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ringmain_torture::broker::{Broker, create, new_directory};
use ringmain_torture::producer::{Promised, RawProducer};

use crate::Options;
use crate::ask::{find_coordinator, topic_id};
use crate::book::Plan;
use crate::member::Protocol;
use crate::swarm::Swarm;

const TOPIC: &str = "read";
/// Members speak these in turn. Where both are spoken the group changes over and back as they come and go.
const GROUPS: [(&str, &[Protocol]); 3] = [
    ("Classic", &[Protocol::Classic]),
    ("Consumer", &[Protocol::Consumer]),
    ("both", &[Protocol::Classic, Protocol::Consumer]),
];
const SESSION: Duration = Duration::from_secs(6);
const REBALANCE: Duration = Duration::from_secs(8);
/// For what is still to come when nobody joins or leaves any more: sessions of the vanished end first.
const CALM: Duration = Duration::from_secs(40);
/// The producer is slowed down, to some thousand records a second: the run is one of groups.
const PAUSE: Duration = Duration::from_millis(2);

/// How much was broken.
pub fn run(options: &Options, members: usize, partitions: usize, seconds: u64) -> Result<u64, String> {
    new_directory(&options.work)?;
    let mut broker = Broker::new(&options.binary, &options.work, 2)?
        .set("group.initial.rebalance.delay.ms=1000")
        .set("group.consumer.min.session.timeout.ms=6000")
        .set("group.consumer.session.timeout.ms=6000")
        .set("group.consumer.min.heartbeat.interval.ms=500")
        .set("group.consumer.heartbeat.interval.ms=500");
    broker.start()?;
    create(&broker.address, TOPIC, partitions)?;
    find_coordinator(&broker.address, "any")?;
    let address = broker.address.clone();
    let (stop, acked) = (AtomicBool::new(false), AtomicU64::new(0));
    let producer =
        RawProducer { address: &address, topic: TOPIC, partitions, stop: &stop, acked: &acked, pause: PAUSE };
    std::thread::scope(|scope| {
        let producer = scope.spawn(|| producer.run());
        let churned = churn(&broker, members, partitions as i32, seconds);
        stop.store(true, Ordering::Relaxed);
        let promised = producer.join().map_err(|_| "the producer panicked".to_string())??;
        finish(churned?, &promised, &broker)
    })
}

struct Churned {
    swarm: Swarm,
    began: Instant,
    joined: u64,
    left: u64,
    vanished: u64,
}

fn churn(broker: &Broker, members: usize, partitions: i32, seconds: u64) -> Result<Churned, String> {
    let mut swarm = Swarm::new(&broker.address)?;
    let topic_id = topic_id(&broker.address, TOPIC)?;
    for (name, protocols) in GROUPS {
        let group = swarm.add_group(Plan {
            group: name.into(),
            topic: TOPIC.into(),
            topic_id,
            partitions,
            session: SESSION,
            rebalance: REBALANCE,
            beat: Duration::from_millis(500),
            commit: Some(Duration::from_millis(500)),
            reads: true,
        });
        for number in 0..members {
            let member = swarm.add_member(group, protocols[number % protocols.len()]);
            swarm.enter(member)?;
        }
    }
    let mut churned = Churned { swarm, began: Instant::now(), joined: 0, left: 0, vanished: 0 };
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut next = [Instant::now() + Duration::from_secs(5); GROUPS.len()];
    while Instant::now() < until {
        let at = next.iter().copied().fold(until, Instant::min);
        churned.swarm.run(at, |_| false)?;
        for (group, next) in next.iter_mut().enumerate() {
            if *next <= Instant::now() {
                churned.disturb(group, members)?;
                // Quickly one after the other, or with time to settle.
                let ms = if fastrand::u32(..3) == 0 { 8000..12_000 } else { 10..3000 };
                *next = Instant::now() + Duration::from_millis(fastrand::u64(ms));
            }
        }
    }
    Ok(churned)
}

impl Churned {
    fn disturb(&mut self, group: usize, members: usize) -> Result<(), String> {
        let numbers: Vec<usize> =
            (0..self.swarm.members.len()).filter(|number| self.swarm.members[*number].group == group).collect();
        let live: Vec<usize> = self.swarm.live(group).collect();
        // About three in four are there.
        if fastrand::usize(..members) < (members - live.len()) * 2 || live.len() < 2 {
            let absent: Vec<usize> = numbers.into_iter().filter(|number| !live.contains(number)).collect();
            let member = absent[fastrand::usize(..absent.len())];
            self.joined += 1;
            return self.swarm.enter(member);
        }
        let member = live[fastrand::usize(..live.len())];
        if fastrand::bool() {
            self.left += 1;
            return self.swarm.leave(member);
        }
        self.vanished += 1;
        self.swarm.vanish(member);
        Ok(())
    }
}

fn finish(churned: Churned, promised: &Promised, broker: &Broker) -> Result<u64, String> {
    let Churned { mut swarm, began, joined, left, vanished } = churned;
    let (busy, cpu) = (began.elapsed(), broker.cpu()?);
    let all = |swarm: &Swarm| {
        swarm.books.iter().all(|book| book.disturbed.is_none() && book.undelivered(&promised.offsets) == 0)
    };
    // Looked at now and then: it takes long.
    let until = Instant::now() + CALM;
    while Instant::now() < until && !all(&swarm) {
        swarm.run(Instant::now() + Duration::from_millis(200), |_| false)?;
    }
    let records: usize = promised.offsets.iter().map(Vec::len).sum();
    println!(
        "{:.0} s, {records} records acknowledged, {joined} joined, {left} left, {vanished} vanished, {} generations or epochs of members",
        busy.as_secs_f64(),
        swarm.stats.joins
    );
    for book in &mut swarm.books {
        let mut took = std::mem::take(&mut book.rebalances);
        took.sort_unstable();
        let at = |part: usize| {
            took.get((took.len() * part / 100).min(took.len().saturating_sub(1))).copied().unwrap_or_default()
        };
        println!(
            "{}: {} commits, {} rebalances that nobody disturbed, p50 {} ms, p99 {} ms, longest {} ms",
            book.plan.group,
            book.commits,
            took.len(),
            at(50).as_millis(),
            at(99).as_millis(),
            took.last().copied().unwrap_or_default().as_millis()
        );
        let undelivered = book.undelivered(&promised.offsets);
        if undelivered > 0 {
            book.broken(format!("{undelivered} records were delivered to nobody"));
        }
        if book.disturbed.is_some() {
            book.broken("did not settle".into());
        }
        if took.is_empty() {
            return Err(format!("{} never settled: nothing was shown", book.plan.group));
        }
    }
    println!(
        "broker: {:.1} s of processor time in {:.0} s, {:.0} % of a core",
        cpu.as_secs_f64(),
        busy.as_secs_f64(),
        100.0 * cpu.as_secs_f64() / busy.as_secs_f64()
    );
    println!("heartbeats: {}", told(&swarm.stats.beats));
    Ok(swarm.verdict())
}

/// Latencies in us.
pub fn told(latencies: &hdrhistogram::Histogram<u64>) -> String {
    let ms = |us: u64| us as f64 / 1000.0;
    format!(
        "{} answers, p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, longest {:.2} ms",
        latencies.len(),
        ms(latencies.value_at_quantile(0.5)),
        ms(latencies.value_at_quantile(0.99)),
        ms(latencies.value_at_quantile(0.999)),
        ms(latencies.max())
    )
}
