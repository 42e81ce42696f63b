//! Ringmain and the probe by turns, in one sitting: issue 3's "First speed".

use std::io;
use std::time::Duration;

use crate::control::Control;
use crate::load::Outcome;
use crate::report::Report;
use crate::server::{Peer, Servers};
use crate::workload::{FIRST_SPEED, Workload};

pub struct FirstSpeed {
    pub servers: Servers,
    /// Of the broker's topics.
    pub configs: Vec<(String, String)>,
    pub rounds: usize,
    /// How long the broker is left alone between its start and the load.
    pub settle: Duration,
    pub warm_up: Duration,
    pub measure: Duration,
    /// Only workloads whose name holds this.
    pub only: Option<String>,
}

/// What both did, one behind the other.
pub struct Pair {
    pub workload: &'static Workload,
    pub ringmain: Outcome,
    pub probe: Outcome,
}

impl FirstSpeed {
    /// Runs all rounds. The peer that goes first changes from round to round, so that neither always gets the warmer disk.
    pub fn run(&self, report: &mut Report) -> io::Result<()> {
        let chosen = |workload: &&Workload| self.only.as_ref().is_none_or(|only| workload.name.contains(only));
        let workloads: Vec<&'static Workload> = FIRST_SPEED.iter().filter(chosen).collect();
        if workloads.is_empty() {
            return Err(io::Error::other("no workload has such a name"));
        }
        // The first start of the probe prewrites its file; that is no part of the first round.
        self.servers.start(Peer::Probe)?.stop()?;
        for round in 0..self.rounds {
            for workload in &workloads {
                let pair = match round % 2 {
                    0 => {
                        let ringmain = self.one(Peer::Ringmain, workload)?;
                        Pair { workload, ringmain, probe: self.one(Peer::Probe, workload)? }
                    }
                    _ => {
                        let probe = self.one(Peer::Probe, workload)?;
                        Pair { workload, probe, ringmain: self.one(Peer::Ringmain, workload)? }
                    }
                };
                report.add(round, pair);
            }
        }
        Ok(())
    }

    fn one(&self, peer: Peer, workload: &Workload) -> io::Result<Outcome> {
        let named = |error: io::Error| io::Error::other(format!("{}, {}: {error}", peer.name(), workload.name));
        let server = self.servers.start(peer).map_err(named)?;
        let load = workload.load(&server.address, server.pid(), self.warm_up, self.measure);
        if peer == Peer::Ringmain {
            let mut control = Control::open(&server.address, Duration::from_secs(5)).map_err(named)?;
            control.create_topic(&load.topic, load.partitions, &self.configs).map_err(named)?;
            std::thread::sleep(self.settle);
        }
        let outcome = load.run().map_err(named)?;
        server.stop().map_err(named)?;
        Ok(outcome)
    }
}
