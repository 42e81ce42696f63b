//! The broker's process: started, killed, measured.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use ringmain_wire::create_topics::{CreatableTopic, CreatableTopicConfig};
use ringmain_wire::{CREATE_TOPICS, CreateTopicsRequest, CreateTopicsResponse, METADATA, MetadataRequest};

use crate::connection::Connection;

/// A start that takes longer has failed.
const START_MAX: Duration = Duration::from_secs(300);

/// Killed when dropped.
pub struct Broker {
    program: PathBuf,
    work: PathBuf,
    cores: u32,
    settings: Vec<String>,
    /// A command that becomes the broker's, with its arguments.
    through: Vec<OsString>,
    /// Of Kafka's port, and of the admin port: the same in all lives.
    pub address: String,
    pub admin: String,
    child: Option<Child>,
}

impl Broker {
    /// Its data and log go into `work`.
    pub fn new(program: &Path, work: &Path, cores: u32) -> Result<Broker, String> {
        let free =
            || std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).map_err(|e| e.to_string());
        Ok(Broker {
            program: program.into(),
            work: work.into(),
            cores,
            settings: Vec::new(),
            through: Vec::new(),
            address: free()?.to_string(),
            admin: free()?.to_string(),
            child: None,
        })
    }

    /// A broker property, `name=value`.
    pub fn set(mut self, property: &str) -> Broker {
        self.settings.push(property.into());
        self
    }

    /// The next lives begin as this command, which must become the program that follows it (exec).
    pub fn through(&mut self, command: Vec<OsString>) {
        self.through = command;
    }

    /// Starts the process and waits until it serves; returns how long that took. A start that fails leaves no process.
    pub fn start(&mut self) -> Result<Duration, String> {
        self.launch()?;
        self.ready().inspect_err(|_| self.kill())
    }

    fn ready(&mut self) -> Result<Duration, String> {
        let began = Instant::now();
        loop {
            let child = self.child.as_mut().ok_or("the broker does not run")?;
            if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
                return Err(format!("the broker ended with {status}: see broker.log"));
            }
            if serves(&self.address) {
                return Ok(began.elapsed());
            }
            if began.elapsed() > START_MAX {
                return Err(format!("the broker does not serve within {START_MAX:?}"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Starts the process and does not wait.
    pub fn launch(&mut self) -> Result<(), String> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.work.join("broker.log"));
        let log = log.map_err(|e| format!("broker.log: {e}"))?;
        let mut words = self.through.iter().map(OsString::as_os_str).chain([self.program.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .arg("start")
            .arg("--data-dir")
            .arg(self.work.join("data"))
            .args(["--listen", &self.address]);
        command.args(["--admin-listen", &self.admin, "--cores", &self.cores.to_string()]);
        for property in &self.settings {
            command.args(["--set", property]);
        }
        command.stdout(log.try_clone().map_err(|e| e.to_string())?).stderr(log);
        let child = command.spawn().map_err(|e| format!("{}: {e}", self.program.display()))?;
        self.child = Some(child);
        Ok(())
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Both fail only when the process is gone, which is what is wanted.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Time on processors so far, of all its threads, user and system.
    pub fn cpu(&self) -> Result<Duration, String> {
        let stat = self.proc("stat")?;
        // Behind the name, which may hold anything: the 12th and 13th word, in hundredths of a second (proc_pid_stat(5)).
        let words: Vec<u64> = stat
            .rsplit_once(')')
            .map(|(_, rest)| rest.split_whitespace().skip(11).take(2).filter_map(|word| word.parse().ok()).collect())
            .unwrap_or_default();
        match words[..] {
            [user, system] => Ok(Duration::from_millis((user + system) * 10)),
            _ => Err(format!("no times in {stat}")),
        }
    }

    /// Resident memory in bytes.
    pub fn resident(&self) -> Result<u64, String> {
        let status = self.proc("status")?;
        let kib = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kib.map(|kib| kib << 10).ok_or_else(|| format!("no VmRSS in {status}"))
    }

    /// What `/metrics` says.
    pub fn metrics(&self) -> Result<String, String> {
        self.get("/metrics")
    }

    /// The admin port's reply, status line and all.
    pub fn get(&self, path: &str) -> Result<String, String> {
        let asked = || -> io::Result<String> {
            let mut stream = TcpStream::connect(&self.admin)?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            let request = format!("GET {path} HTTP/1.1\r\nHost: ringmain\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes())?;
            let mut reply = String::new();
            stream.read_to_string(&mut reply)?;
            Ok(reply)
        };
        asked().map_err(|e| format!("{path}: {e}"))
    }

    /// The process runs, and answers a request of Kafka's protocol.
    pub fn answers(&mut self) -> Result<(), String> {
        let child = self.child.as_mut().ok_or("the broker does not run")?;
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) => Err(format!("the broker ended with {status}: see broker.log")),
            None if serves(&self.address) => Ok(()),
            None => Err("the broker runs and does not answer".into()),
        }
    }

    fn proc(&self, name: &str) -> Result<String, String> {
        let pid = self.child.as_ref().map(Child::id).ok_or("the broker does not run")?;
        std::fs::read_to_string(format!("/proc/{pid}/{name}")).map_err(|e| format!("/proc/{pid}/{name}: {e}"))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Answers a request: that a port takes connections says little, for a moment it may still be a killed process's.
fn serves(address: &str) -> bool {
    let request = MetadataRequest { topics: None, ..Default::default() };
    Connection::open(address).and_then(|mut c| c.call(&METADATA, 9, &request)).is_ok()
}

/// Empty, whatever was there before.
pub fn new_directory(path: &Path) -> Result<(), String> {
    if path.exists() {
        std::fs::remove_dir_all(path).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    std::fs::create_dir_all(path).map_err(|e| format!("{}: {e}", path.display()))
}

pub fn create(address: &str, topic: &str, partitions: usize) -> Result<(), String> {
    create_with(address, topic, partitions, &[])
}

pub fn create_with(address: &str, topic: &str, partitions: usize, configs: &[(&str, &str)]) -> Result<(), String> {
    let configs = configs.iter().map(|(name, value)| CreatableTopicConfig { name, value: Some(value) });
    let topic = CreatableTopic {
        name: topic,
        num_partitions: partitions as i32,
        replication_factor: 1,
        configs: configs.collect(),
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic].into(), timeout_ms: 10_000, ..Default::default() };
    let made = Connection::open(address).and_then(|mut c| c.call(&CREATE_TOPICS, 7, &request));
    let frame = made.map_err(|e| format!("CreateTopics: {e}"))?;
    let (_, reply): (i32, CreateTopicsResponse<'_>) = frame.decode(&CREATE_TOPICS, 7).map_err(|e| e.to_string())?;
    match reply.topics.iter().next() {
        Some(topic) if topic.error_code.code() == 0 => Ok(()),
        other => Err(format!("CreateTopics: {other:?}")),
    }
}
