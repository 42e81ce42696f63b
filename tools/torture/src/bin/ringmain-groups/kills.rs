//! kill -9 under commits: what was acknowledged is there after each start, and no member that was told of its generation is forgotten.

use std::time::{Duration, Instant};

use ringmain_torture::broker::{Broker, create, new_directory};
use ringmain_torture::connection::Connection;

use crate::Options;
use crate::ask::{committed, find_coordinator, topic_id};
use crate::book::Plan;
use crate::member::Protocol;
use crate::swarm::Swarm;

const TOPIC: &str = "committed";
const PARTITIONS: i32 = 12;
const GROUPS: [(Protocol, usize); 8] = [
    (Protocol::Classic, 1),
    (Protocol::Classic, 4),
    (Protocol::Classic, 4),
    (Protocol::Consumer, 1),
    (Protocol::Consumer, 4),
    (Protocol::Consumer, 4),
    (Protocol::Outside, 1),
    (Protocol::Outside, 1),
];
/// Sessions outlast a start.
const SESSION: Duration = Duration::from_secs(20);

/// How much was broken.
pub fn run(options: &Options, kills: u32) -> Result<u64, String> {
    new_directory(&options.work)?;
    let mut broker = Broker::new(&options.binary, &options.work, 2)?
        .set("group.initial.rebalance.delay.ms=100")
        .set("group.consumer.assignment.interval.ms=100");
    broker.start()?;
    create(&broker.address, TOPIC, PARTITIONS as usize)?;
    find_coordinator(&broker.address, "any")?;
    let mut swarm = Swarm::new(&broker.address)?;
    let topic_id = topic_id(&broker.address, TOPIC)?;
    for (number, (protocol, members)) in GROUPS.into_iter().enumerate() {
        let group = swarm.add_group(Plan {
            group: format!("killed-{number}"),
            topic: TOPIC.into(),
            topic_id,
            partitions: PARTITIONS,
            session: SESSION,
            rebalance: SESSION,
            beat: Duration::from_millis(200),
            commit: Some(Duration::ZERO),
            reads: false,
        });
        for _ in 0..members {
            let member = swarm.add_member(group, protocol);
            swarm.enter(member)?;
        }
    }
    // The first generations.
    swarm.run(Instant::now() + Duration::from_secs(20), |swarm| {
        swarm.books.iter().all(|book| book.disturbed.is_none() || book.commits > 0)
    })?;
    let (began, mut slowest, mut absent) = (Instant::now(), Duration::ZERO, None);
    for _ in 0..kills {
        let until = Instant::now() + Duration::from_micros(fastrand::u64(20_000..900_000));
        // Now and then a generation is being made when the broker dies.
        match absent.take() {
            Some(member) => swarm.enter(member)?,
            None if fastrand::bool() => absent = somebody(&mut swarm)?,
            None => {}
        }
        swarm.run(until, |_| false)?;
        broker.kill();
        swarm.disconnect();
        slowest = slowest.max(broker.start()?);
        read_back(&broker, &mut swarm)?;
        swarm.reconnect()?;
    }
    let commits: u64 = swarm.books.iter().map(|book| book.commits).sum();
    println!(
        "{kills} kills in {:.0} s, {commits} commits acknowledged, {} generations or epochs, {} members forgotten, slowest start {} ms",
        began.elapsed().as_secs_f64(),
        swarm.stats.joins,
        swarm.stats.forgotten,
        slowest.as_millis()
    );
    let idle = swarm.books.iter().filter(|book| book.commits < u64::from(kills)).map(|book| &*book.plan.group);
    let idle: Vec<&str> = idle.collect();
    if !idle.is_empty() {
        return Err(format!("groups that hardly committed show nothing: {idle:?}"));
    }
    Ok(swarm.verdict())
}

/// One member of a larger group leaves.
fn somebody(swarm: &mut Swarm) -> Result<Option<usize>, String> {
    let group = *[1, 2, 4, 5].get(fastrand::usize(..4)).unwrap_or(&1);
    let live: Vec<usize> = swarm.live(group).collect();
    let member = live[fastrand::usize(..live.len())];
    swarm.leave(member)?;
    Ok(Some(member))
}

fn read_back(broker: &Broker, swarm: &mut Swarm) -> Result<(), String> {
    let mut connection = Connection::open(&broker.address).map_err(|e| e.to_string())?;
    let names: Vec<String> = swarm.books.iter().map(|book| book.plan.group.clone()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (book, offsets) in swarm.books.iter_mut().zip(committed(&mut connection, &names, TOPIC, PARTITIONS)?) {
        if offsets.len() != PARTITIONS as usize {
            book.broken(format!("{} offsets", offsets.len()));
        }
        offsets.iter().for_each(|(partition, offset, metadata)| book.read(*partition, *offset, metadata));
    }
    Ok(())
}
