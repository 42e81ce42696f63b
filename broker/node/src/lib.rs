//! `broker/node`: boot, the hands of a core, mesh rings, listeners. One glommio executor a core; glommio is named in one file only.
#![forbid(unsafe_code)]

mod admin;
mod config;
mod core;
mod directory;
mod error;
mod executor;
mod exposition;
mod hands;
mod log_lines;
mod mesh;
mod metrics;
mod node;
mod notes;
mod properties;
mod reshard;
mod resources;

pub use admin::{Admin, AdminLimits, Serving};
pub use config::{HostPort, NodeConfig};
pub use error::StartError;
pub use metrics::{Health, Metrics};
pub use notes::{Gauges, NoSink, NoteSink, SinkFactory, observed};

/// What a caller of [`run`] hangs into a node.
pub struct Hooks {
    /// Makes each core's sink of notes.
    pub sinks: SinkFactory,
    /// Called once, on the main thread, when every shard is ready: prints the banner, marks /health/ready.
    pub started: Box<dyn FnOnce(&Started) + Send>,
}

impl Default for Hooks {
    fn default() -> Hooks {
        Hooks { sinks: Box::new(|_| Box::new(NoSink)), started: Box::new(|started| println!("{started}")) }
    }
}

/// What a ready node is: shown as the banner.
#[derive(Clone, Debug)]
pub struct Started {
    pub version: &'static str,
    pub node_id: i32,
    pub cluster_id: String,
    pub listen: std::net::SocketAddr,
    pub advertised: HostPort,
    pub admin: Option<std::net::SocketAddr>,
    /// The CPUs that are served, one shard each.
    pub cores: Vec<usize>,
    pub data_dir: std::path::PathBuf,
    pub memory_bytes: u64,
    pub direct_io: bool,
    pub file_system: String,
    /// Whether one flush a commit is enough where files are overwritten; else why not.
    pub journal_flush_covers: Result<(), &'static str>,
    /// What spare files may take of the disk, on all cores together.
    pub spare_bytes: u64,
    /// On all cores together: more are closed at once.
    pub connections_max: u64,
    pub ready_ms: u64,
}

impl std::fmt::Display for Started {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (host, port) = &self.advertised;
        let told = ringmain_shard::address(host, *port);
        writeln!(
            f,
            "ringmain {} is ready after {} ms: node {}, cluster {}",
            self.version, self.ready_ms, self.node_id, self.cluster_id
        )?;
        writeln!(f, "  kafka    {} (clients are told {told})", self.listen)?;
        if let Some(admin) = self.admin {
            writeln!(f, "  admin    http://{admin}/metrics")?;
        }
        writeln!(
            f,
            "  cores    {:?}, one shard each, {} MiB and {} connections in all",
            self.cores,
            self.memory_bytes >> 20,
            self.connections_max
        )?;
        let writes = match self.direct_io {
            true => "direct writes",
            false => "buffered writes with fdatasync (no O_DIRECT on this file system)",
        };
        writeln!(
            f,
            "  data     {} ({}): {writes}, acknowledged once flushed",
            self.data_dir.display(),
            self.file_system
        )?;
        match self.journal_flush_covers {
            Ok(()) => writeln!(
                f,
                "  flush    the journal's covers segments in used files (up to {} MiB of old ones are kept for that); others have their own",
                self.spare_bytes >> 20
            )?,
            Err(why) => writeln!(f, "  flush    each touched file has its own ({why})")?,
        }
        writeln!(f, "  next     echo hello | kcat -P -b {told} -t first; kcat -C -e -b {told} -t first")?;
        write!(f, "  stop     Ctrl-C")
    }
}

/// Runs a node until SIGTERM or SIGINT; the second of them ends the process at once.
pub fn run(config: NodeConfig) -> Result<(), StartError> {
    run_with(config, Hooks::default())
}

/// As [`run`], with the caller's hooks.
pub fn run_with(config: NodeConfig, hooks: Hooks) -> Result<(), StartError> {
    node::run(config, hooks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_banner_says_what_can_be_typed() {
        let banner = |host: &str| {
            let started = Started {
                version: "1",
                node_id: 1,
                cluster_id: String::new(),
                listen: ([127, 0, 0, 1], 9092).into(),
                advertised: (host.into(), 9092),
                admin: None,
                cores: vec![0],
                data_dir: "data".into(),
                memory_bytes: 0,
                direct_io: true,
                file_system: "ext4".into(),
                journal_flush_covers: Ok(()),
                spare_bytes: 0,
                connections_max: 1000,
                ready_ms: 1,
            };
            started.to_string()
        };
        assert!(banner("::1").contains("told [::1]:9092)") && banner("::1").contains("-b [::1]:9092 -t"));
        assert!(banner("broker").contains("told broker:9092)") && banner("broker").contains("-b broker:9092 -t"));
    }
}
