//! A server under measurement: its own process, on its own directory.

use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ringmain_load::Control;
use rustix::fs::Advice;
use rustix::process::{Pid, Signal, kill_process};

use crate::peer::kafka::Kafka;

/// From start to a listening port. The probe's first start prewrites its file, which is why this is long.
const START_MAX: Duration = Duration::from_secs(120);
/// From SIGTERM to the end.
const STOP_MAX: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// 0: as many cores as the sitting says.
    Ringmain {
        cores: usize,
    },
    Probe {
        flush: bool,
    },
    Kafka {
        flush: bool,
    },
    /// Of this much memory.
    SendLoop {
        memory_bytes: usize,
    },
    Echo,
    /// No server: something that is run and looked at.
    Command,
}

impl Peer {
    /// Of its directory and its output.
    fn name(self) -> &'static str {
        match self {
            Peer::Ringmain { .. } => "ringmain",
            Peer::Probe { .. } => "probe",
            Peer::Kafka { .. } => "kafka",
            Peer::SendLoop { .. } => "send-loop",
            Peer::Echo => "echo",
            Peer::Command => "command",
        }
    }

    pub fn is_kafka(self) -> bool {
        matches!(self, Peer::Kafka { .. })
    }

    /// It has topics.
    pub fn is_broker(self) -> bool {
        matches!(self, Peer::Ringmain { .. } | Peer::Kafka { .. })
    }
}

/// How servers are started.
#[derive(Clone, Debug)]
pub struct Servers {
    /// The broker's binary.
    pub ringmain: PathBuf,
    /// The broker's `--cores`.
    pub cores: usize,
    /// Further arguments of `ringmain start`.
    pub arguments: Vec<String>,
    /// Everything is kept below this: the file system that is measured. Absolute.
    pub directory: PathBuf,
    /// The next one is for metrics (Ringmain) or the controller (Kafka).
    pub port: u16,
    pub probe_mib: u64,
    pub kafka: Option<Kafka>,
}

pub struct Server {
    pub peer: Peer,
    child: Child,
    data: PathBuf,
    pub address: String,
    output: PathBuf,
}

impl Servers {
    pub fn data(&self, peer: Peer) -> PathBuf {
        self.directory.join(peer.name())
    }

    fn command(&self, peer: Peer, address: &str) -> io::Result<Command> {
        let data = self.data(peer);
        if let Peer::Kafka { flush } = peer {
            let kafka = self.kafka.as_ref().ok_or_else(|| io::Error::other("Kafka is not in this sitting"))?;
            return kafka.command(&data, self.port, flush);
        }
        let mut command = match peer {
            Peer::Ringmain { .. } => Command::new(&self.ringmain),
            _ => Command::new(std::env::current_exe()?),
        };
        match peer {
            Peer::Ringmain { cores } => {
                let cores = if cores == 0 { self.cores } else { cores };
                command.args(["start", "--listen", address, "--cores", &cores.to_string()]);
                command.args(["--admin-listen", &self.metrics_address(), "--data-dir"]).arg(data);
                command.args(&self.arguments);
            }
            Peer::Probe { flush } => {
                command.args(["probe", "--listen", address, "--file-mib", &self.probe_mib.to_string()]);
                command.arg("--dir").arg(data).args((!flush).then_some("--no-flush"));
            }
            Peer::SendLoop { memory_bytes } => {
                command.args(["send-loop", "--listen", address, "--memory-mib"]);
                command.arg((memory_bytes >> 20).to_string());
            }
            Peer::Echo => drop(command.args(["echo", "--listen", address])),
            Peer::Kafka { .. } | Peer::Command => return Err(io::Error::other("no server is started for this")),
        }
        Ok(command)
    }

    pub fn metrics_address(&self) -> String {
        format!("127.0.0.1:{}", self.port + 1)
    }

    /// Starts a server on nothing and waits until it listens. Only the probe's file stays from before: it stands for a log whose
    /// files are used again.
    pub fn start(&self, peer: Peer) -> io::Result<Server> {
        if !matches!(peer, Peer::Probe { .. }) {
            remove(&self.data(peer))?;
        }
        self.start_again(peer)
    }

    /// On what an earlier one left.
    pub fn start_again(&self, peer: Peer) -> io::Result<Server> {
        std::fs::create_dir_all(&self.directory)?;
        let address = format!("127.0.0.1:{}", self.port);
        let output = self.directory.join(format!("{}.out", peer.name()));
        let mut command = self.command(peer, &address)?;
        let file = File::create(&output)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", command.get_program().to_string_lossy()))
        })?;
        let mut server = Server { peer, child, data: self.data(peer), address, output };
        server.await_listening()?;
        Ok(server)
    }
}

fn remove(directory: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

impl Server {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// For the requests around a load.
    pub fn control(&self) -> io::Result<Control> {
        Control::open(&self.address, Duration::from_secs(5))
    }

    fn await_listening(&mut self) -> io::Result<()> {
        let began = Instant::now();
        while TcpStream::connect(&self.address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                return Err(self.error(format!("ended with {status}")));
            }
            if began.elapsed() > START_MAX {
                return Err(self.error(format!("does not listen after {START_MAX:?}")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn error(&self, what: String) -> io::Error {
        let text = std::fs::read_to_string(&self.output).unwrap_or_default();
        let said = text.lines().last().unwrap_or("it said nothing");
        io::Error::other(format!("{} {what}: {said}", self.peer.name()))
    }

    /// Stops it, removes its log and lets the file system come to rest, so that the next measurement does not pay for it.
    pub fn stop(self) -> io::Result<()> {
        let (peer, data) = (self.peer, self.data.clone());
        self.halt()?;
        if !matches!(peer, Peer::Probe { .. }) {
            remove(&data)?;
        }
        rustix::fs::sync();
        Ok(())
    }

    /// Stops it and keeps its log, out of the page cache.
    pub fn halt(mut self) -> io::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            return Err(self.error(format!("ended by itself with {status}")));
        }
        self.end()?;
        rustix::fs::sync();
        forget_pages(&self.data)
    }

    fn end(&mut self) -> io::Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let began = Instant::now();
        while self.child.try_wait()?.is_none() {
            if began.elapsed() > STOP_MAX {
                eprintln!("{} still runs {STOP_MAX:?} after SIGTERM: killed", self.peer.name());
                self.child.kill()?;
                self.child.wait()?;
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// Drops the clean pages of all files below.
fn forget_pages(directory: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        match path.is_dir() {
            true => forget_pages(&path)?,
            false => rustix::fs::fadvise(&File::open(&path)?, 0, None, Advice::DontNeed)?,
        }
    }
    Ok(())
}

impl Drop for Server {
    fn drop(&mut self) {
        // Only after an error: `halt` has waited for it otherwise.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.end();
        }
    }
}
