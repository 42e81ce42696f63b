//! A server under measurement: its own process, on its own fresh directory where it keeps a log.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::control::Control;

/// From start to a listening port. The probe's first start prewrites its file, which is why this is long.
const START_MAX: Duration = Duration::from_secs(120);
/// From SIGTERM to the end.
const STOP_MAX: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Ringmain,
    Probe,
}

impl Peer {
    pub fn name(self) -> &'static str {
        match self {
            Peer::Ringmain => "Ringmain",
            Peer::Probe => "probe",
        }
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
    /// Everything is kept below this: the file system that is measured.
    pub directory: PathBuf,
    pub port: u16,
}

pub struct Server {
    child: Child,
    /// Removed at the end.
    data: Option<PathBuf>,
    pub address: String,
    name: &'static str,
    output: PathBuf,
}

impl Servers {
    fn command(&self, peer: Peer, address: &str, data: &Path) -> io::Result<Command> {
        let mut command = match peer {
            Peer::Ringmain => Command::new(&self.ringmain),
            Peer::Probe => Command::new(std::env::current_exe()?),
        };
        match peer {
            Peer::Ringmain => {
                command.args(["start", "--listen", address, "--admin-listen", "none"]);
                command.args(["--cores", &self.cores.to_string(), "--data-dir"]).arg(data);
                command.args(&self.arguments);
            }
            Peer::Probe => {
                command.args(["probe", "--listen", address, "--dir"]).arg(data);
            }
        }
        Ok(command)
    }

    /// Starts a server and waits until it listens.
    pub fn start(&self, peer: Peer) -> io::Result<Server> {
        std::fs::create_dir_all(&self.directory)?;
        let address = format!("127.0.0.1:{}", self.port);
        let data = self.directory.join(peer.name());
        let output = self.directory.join(format!("{}.out", peer.name()));
        // The probe's file stays: it stands for a log whose files are used again. A broker starts on nothing.
        if peer == Peer::Ringmain {
            remove(&data)?;
        }
        let mut command = self.command(peer, &address, &data)?;
        let file = File::create(&output)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", command.get_program().to_string_lossy()))
        })?;
        let data = (peer == Peer::Ringmain).then_some(data);
        let mut server = Server { child, data, address, name: peer.name(), output };
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

    fn await_listening(&mut self) -> io::Result<()> {
        let began = Instant::now();
        loop {
            if Control::open(&self.address, Duration::ZERO).is_ok() {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("{} ended with {status}: {}", self.name, self.last_line())));
            }
            if began.elapsed() > START_MAX {
                return Err(io::Error::other(format!("{} does not listen after {START_MAX:?}", self.name)));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn last_line(&self) -> String {
        let text = std::fs::read_to_string(&self.output).unwrap_or_default();
        text.lines().last().unwrap_or("it said nothing").to_string()
    }

    /// Stops it, removes its log and lets the file system come to rest, so that the next measurement does not pay for it.
    pub fn stop(mut self) -> io::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            return Err(io::Error::other(format!("{} ended by itself, {status}: {}", self.name, self.last_line())));
        }
        self.end()?;
        if let Some(data) = &self.data {
            remove(data)?;
        }
        rustix::fs::sync();
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM)?;
        let began = Instant::now();
        while self.child.try_wait()?.is_none() {
            if began.elapsed() > STOP_MAX {
                eprintln!("{} still runs {STOP_MAX:?} after SIGTERM: killed", self.name);
                self.child.kill()?;
                self.child.wait()?;
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Only after an error: `stop` has waited for it otherwise.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.end();
        }
    }
}
