//! All workloads, all sides of each by turns, in one sitting: only ratios from one sitting count.

use std::io;
use std::time::Duration;

use ringmain_load::{Actor, Outcome, Pace, Plan, Publisher, PublisherConfig, Versions, run};

use crate::bar::Bar;
use crate::figure::{Figures, Metric};
use crate::report::Report;
use crate::server::{Peer, Server, Servers};

/// Every workload's topic.
pub const TOPIC: &str = "bench";
pub const RECORD_BYTES: usize = 1024;

/// One of those that are compared.
pub struct Side {
    pub label: String,
    pub peer: Peer,
    /// What a workload tells sides of one peer apart by.
    pub variant: usize,
}

/// Measures one side once.
pub type Run = dyn Fn(&Sitting, &Side) -> io::Result<Figures>;

pub struct Workload {
    pub name: String,
    /// One sentence for who reads the table.
    pub what: String,
    pub sides: Vec<Side>,
    /// What the plot shows.
    pub headline: Metric,
    pub bars: Vec<Bar>,
    pub run: Box<Run>,
}

pub struct Sitting {
    pub servers: Servers,
    /// Of the topics of Ringmain.
    pub configs: Vec<(String, String)>,
    pub rounds: usize,
    /// How long Ringmain is left alone between its start and the load.
    pub settle: Duration,
    pub warm_up: Duration,
    /// A JVM's.
    pub kafka_warm_up: Duration,
    pub measure: Duration,
}

impl Sitting {
    /// Runs all rounds. Who goes first changes from round to round, so that nobody always gets the warmer disk. What fails is said in
    /// the report and does not end the sitting. `after` is told of every round.
    pub fn run(
        &self,
        workloads: &[Workload],
        report: &mut Report<'_>,
        after: &mut dyn FnMut(&Report<'_>),
    ) -> io::Result<()> {
        if workloads.iter().any(|workload| workload.sides.iter().any(|side| matches!(side.peer, Peer::Probe { .. }))) {
            // The first start of the probe prewrites its file; that is no part of the first round.
            self.servers.start(Peer::Probe { flush: true })?.stop()?;
        }
        for round in 0..self.rounds {
            for (number, workload) in workloads.iter().enumerate() {
                println!("round {}, {}", round + 1, workload.name);
                let count = workload.sides.len();
                for at in 0..count {
                    let side = &workload.sides[(at + round) % count];
                    if side.peer.is_kafka() && self.servers.kafka.is_none() {
                        continue;
                    }
                    match (workload.run)(self, side) {
                        Ok(figures) => report.add(round, number, side, figures),
                        Err(error) => report.fail(round, number, side, &error),
                    }
                }
            }
            after(report);
        }
        Ok(())
    }

    /// A server on nothing, with the workload's topic where it has topics.
    pub fn serve(&self, peer: Peer, partitions: u32, configs: &[(&str, &str)]) -> io::Result<Server> {
        let server = self.servers.start(peer)?;
        if peer.is_broker() {
            self.create(&server, TOPIC, partitions, configs)?;
        }
        if matches!(peer, Peer::Ringmain { .. }) {
            std::thread::sleep(self.settle);
        }
        Ok(server)
    }

    pub fn create(&self, server: &Server, topic: &str, partitions: u32, configs: &[(&str, &str)]) -> io::Result<()> {
        let own = configs.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        // Kafka has no `flush`: its broker's settings say it.
        let all = match server.peer {
            Peer::Kafka { .. } => Vec::new(),
            _ => own.chain(self.configs.iter().cloned()).collect(),
        };
        server.control()?.create_topic(topic, partitions, &all)
    }

    pub fn plan(&self, server: &Server) -> Plan {
        let warm_up = if server.peer.is_kafka() { self.kafka_warm_up } else { self.warm_up };
        Plan { warm_up, measure: self.measure, server_pid: Some(server.pid()) }
    }

    /// Publishes `bytes` bytes, a connection a partition, and returns the offset at which each of the partitions ends.
    pub fn fill(
        &self,
        server: &Server,
        topic: &str,
        partitions: u32,
        batch_bytes: usize,
        bytes: u64,
    ) -> io::Result<i64> {
        let requests = (bytes / batch_bytes as u64 / u64::from(partitions)).max(1);
        let connections = (0..partitions).map(|partition| (server.address.clone(), vec![partition])).collect();
        let mut config = publisher(connections, batch_bytes, Pace::Window(8));
        config.topic = topic.into();
        let mut records = 0;
        for partition in 0..partitions {
            let one = vec![config.connections[partition as usize].clone()];
            let publisher =
                Publisher::open(&PublisherConfig { connections: one, requests_max: Some(requests), ..config.clone() })?;
            records = publisher.records_a_batch();
            let plan = Plan { warm_up: Duration::ZERO, measure: Duration::from_secs(600), server_pid: None };
            run(&plan, vec![Box::new(publisher)])?;
        }
        Ok((requests * records) as i64)
    }

    /// Loads a server with `actors` and stops it.
    pub fn load(&self, server: Server, actors: Vec<Box<dyn Actor>>) -> io::Result<Outcome> {
        let outcome = run(&self.plan(&server), actors)?;
        server.stop()?;
        Ok(outcome)
    }
}

pub fn publisher(connections: Vec<(String, Vec<u32>)>, batch_bytes: usize, pace: Pace) -> PublisherConfig {
    PublisherConfig {
        topic: TOPIC.into(),
        record_bytes: RECORD_BYTES,
        batch_bytes,
        pace,
        connections,
        version: Versions::default().produce,
        requests_max: None,
    }
}

pub fn side(label: &str, peer: Peer) -> Side {
    Side { label: label.into(), peer, variant: 0 }
}

/// As many cores as the sitting says.
pub const RINGMAIN: Peer = Peer::Ringmain { cores: 0 };
