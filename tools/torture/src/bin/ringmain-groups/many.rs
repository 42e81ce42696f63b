//! Ten thousand groups of one member, and a thousand of ten: memory, heartbeats, and a start with all their offsets.

use std::time::{Duration, Instant};

use ringmain_torture::broker::{Broker, create, new_directory};
use ringmain_torture::connection::Connection;
use ringmain_types::TopicId;
use ringmain_wire::{API_VERSIONS, ApiVersionsRequest};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Options;
use crate::ask::{committed, find_coordinator, topic_id};
use crate::book::Plan;
use crate::member::Protocol;
use crate::members::told;
use crate::swarm::{Swarm, histogram};

const TOPIC: &str = "shared";
/// Each group commits an offset for all of them.
const PARTITIONS: i32 = 10;
/// For all to be in their groups, and to have committed.
const SETTLE_MAX: Duration = Duration::from_secs(120);
/// Groups that one OffsetFetch asks for.
const GROUPS_A_FETCH: usize = 100;

/// How much was broken.
pub fn run(options: &Options, groups: usize, seconds: u64) -> Result<u64, String> {
    // Refused only by policy; then connecting fails, and says so.
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let mut broken = 0;
    for protocol in [Protocol::Classic, Protocol::Consumer] {
        for (groups, members) in [(groups, 1), (groups / 10, 10)] {
            println!("{groups} {protocol:?} groups of {members}:");
            broken += Crowd { protocol, groups, members }.run(options, seconds)?;
        }
    }
    Ok(broken)
}

struct Crowd {
    protocol: Protocol,
    groups: usize,
    members: usize,
}

impl Crowd {
    fn run(&self, options: &Options, seconds: u64) -> Result<u64, String> {
        new_directory(&options.work)?;
        let mut broker = Broker::new(&options.binary, &options.work, 2)?.set("group.initial.rebalance.delay.ms=1000");
        broker.start()?;
        create(&broker.address, TOPIC, PARTITIONS as usize)?;
        find_coordinator(&broker.address, "any")?;
        let mut swarm = self.swarm(&broker)?;
        let before = self.enter(&mut swarm, &broker)?;
        let began = Instant::now();
        let partitions = PARTITIONS as usize;
        swarm.run(began + SETTLE_MAX, |swarm| {
            swarm.books.iter().all(|book| book.disturbed.is_none() && book.partitions_committed() == partitions)
        })?;
        let settled = swarm.books.iter().filter(|book| book.disturbed.is_none()).count();
        let after = broker.resident()?;
        println!("  {settled} settled after {:.1} s", began.elapsed().as_secs_f64());
        println!(
            "  memory: {} MiB with {} connections, {} MiB with the groups, {} bytes a group",
            before >> 20,
            swarm.members.len(),
            after >> 20,
            after.saturating_sub(before) / self.groups as u64
        );
        swarm.stats.beats = histogram()?;
        let (began, cpu) = (Instant::now(), broker.cpu()?);
        swarm.run(began + Duration::from_secs(seconds), |_| false)?;
        let used = broker.cpu()?.saturating_sub(cpu).as_secs_f64() / began.elapsed().as_secs_f64();
        println!("  heartbeats: {}; broker: {:.0} % of a core", told(&swarm.stats.beats), 100.0 * used);
        self.start_again(&mut swarm, &mut broker)?;
        if settled < self.groups {
            return Err(format!("{} groups did not settle within {SETTLE_MAX:?}", self.groups - settled));
        }
        Ok(swarm.verdict())
    }

    fn swarm(&self, broker: &Broker) -> Result<Swarm, String> {
        let mut swarm = Swarm::new(&broker.address)?;
        let topic_id = topic_id(&broker.address, TOPIC)?;
        for number in 0..self.groups {
            let group = swarm.add_group(self.plan(number, topic_id));
            for _ in 0..self.members {
                swarm.add_member(group, self.protocol);
            }
        }
        Ok(swarm)
    }

    fn plan(&self, number: usize, topic_id: TopicId) -> Plan {
        Plan {
            group: format!("group-{number}"),
            topic: TOPIC.into(),
            topic_id,
            partitions: PARTITIONS,
            session: Duration::from_secs(45),
            rebalance: Duration::from_secs(60),
            beat: Duration::from_secs(3),
            commit: Some(Duration::from_secs(600)),
            reads: false,
        }
    }

    /// Connections first: what they cost is not the groups'. What the broker has then.
    fn enter(&self, swarm: &mut Swarm, broker: &Broker) -> Result<u64, String> {
        let mut open = Vec::new();
        for number in 0..swarm.members.len() {
            let mut connection = swarm.open(number)?;
            let spoken = connection.call(&API_VERSIONS, 3, &ApiVersionsRequest::default());
            spoken.map_err(|e| format!("ApiVersions: {e}"))?;
            open.push(connection);
        }
        let resident = broker.resident()?;
        for (number, connection) in open.into_iter().enumerate() {
            swarm.enter_over(number, connection)?;
        }
        Ok(resident)
    }

    fn start_again(&self, swarm: &mut Swarm, broker: &mut Broker) -> Result<(), String> {
        broker.kill();
        swarm.disconnect();
        let began = Instant::now();
        broker.start()?;
        let serves = began.elapsed();
        let mut connection = Connection::open(&broker.address).map_err(|e| e.to_string())?;
        for books in swarm.books.chunks_mut(GROUPS_A_FETCH) {
            let names: Vec<String> = books.iter().map(|book| book.plan.group.clone()).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let offsets = committed(&mut connection, &names, TOPIC, PARTITIONS)?;
            for (book, offsets) in books.iter_mut().zip(offsets) {
                offsets.iter().for_each(|(partition, offset, metadata)| book.read(*partition, *offset, metadata));
            }
        }
        println!(
            "  start after kill -9: serves after {} ms, all {} offsets read after {} ms, {} MiB",
            serves.as_millis(),
            swarm.books.iter().map(|book| book.partitions_committed()).sum::<usize>(),
            began.elapsed().as_millis(),
            broker.resident()? >> 20
        );
        swarm.reconnect()?;
        swarm.run(Instant::now() + Duration::from_secs(5), |_| false)?;
        println!("  members forgotten: {}", swarm.stats.forgotten);
        Ok(())
    }
}
