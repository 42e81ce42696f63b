//! What the cases share: the program, a place for files, a broker and the client beside.

use std::path::{Path, PathBuf};

use ringmain_torture::connection::Connection;

use crate::neighbour::Neighbour;
use crate::process::{Broker, Launch};
use crate::suite::{Outcome, Stop};

pub struct World {
    pub program: PathBuf,
    work: PathBuf,
    number: u32,
    /// Started by the first case that wants it; serves the rest.
    beside: Option<(Neighbour, Broker)>,
}

impl World {
    pub fn new(program: PathBuf, work: PathBuf) -> World {
        World { program, work, number: 0, beside: None }
    }

    /// A path for a case's files; nothing is there yet.
    pub fn place(&mut self, name: &str) -> PathBuf {
        self.number += 1;
        self.work.join(format!("{:02}-{name}", self.number))
    }

    /// A start on `dir`; its output is kept beside the case's files.
    pub fn launch(&mut self, dir: &Path) -> Launch {
        let log = self.place("start");
        Launch::new(&self.program, dir, log)
    }

    /// The broker that most cases attack.
    pub fn broker(&mut self) -> Result<&mut Broker, Stop> {
        if self.beside.is_none() {
            let dir = self.place("data");
            let broker = self.launch(&dir).serve()?;
            self.beside = Some((Neighbour::start(&broker.address)?, broker));
        }
        match &mut self.beside {
            Some((_, broker)) => Ok(broker),
            None => Err(Stop::Fail("no broker".into())),
        }
    }

    pub fn connect(&mut self) -> Result<Connection, Stop> {
        let address = self.broker()?.address.clone();
        Ok(Connection::open(&address)?)
    }

    /// Broker and client beside still work, where there are such.
    pub fn goes_on(&mut self) -> Outcome {
        match &mut self.beside {
            Some((neighbour, broker)) => {
                broker.lives()?;
                neighbour.goes_on()
            }
            None => Ok(()),
        }
    }

    /// The slowest round of the client beside since the last call: told, not judged.
    pub fn slowest_beside(&self) -> Option<std::time::Duration> {
        self.beside.as_ref().map(|(neighbour, _)| neighbour.slowest())
    }

    /// After a failure the next case gets a broker of its own.
    pub fn renew(&mut self) {
        self.beside = None;
    }
}
