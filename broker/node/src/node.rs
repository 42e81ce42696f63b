//! Boot and end of a node.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use ringmain_metadata::BrokerConfig;
use ringmain_ring::{Ring, RingConfig};
use ringmain_shard::Config;
use ringmain_types::{BrokerId, DirId, Limits, ShardId};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::core::{Core, now};
use crate::directory::{Directory, FileSystem, Identity, Layout};
use crate::error::StartError;
use crate::executor::{self, Running};
use crate::hands::{CoreHands, Parts, Report};
use crate::mesh::{Bells, MeshEnds};
use crate::metrics::Metrics;
use crate::notes::{SinkFactory, observed};
use crate::reshard::Resharding;
use crate::{Admin, AdminLimits, Hooks, HostPort, NodeConfig, Started, resources};

/// The one log directory of a node, for now.
const DIR: DirId = DirId(0);
/// A clean stop that takes longer is given up; recovery does the rest at the next start.
const STOP_MAX: Duration = Duration::from_secs(10);
/// How long a taken port may be given up by its last owner, and how often that is tried; a start is refused within 2 s.
const PORT_WAIT: std::time::Duration = std::time::Duration::from_millis(1000);
const PORT_RETRY: std::time::Duration = std::time::Duration::from_millis(10);
/// Connections that the kernel holds for us before they are accepted.
const BACKLOG: i32 = 4096;

/// Everything that was found or decided before the first core runs.
struct Plan {
    directory: Directory,
    file_system: FileSystem,
    identity: Identity,
    layout: Layout,
    limits: Limits,
    cpus: Vec<usize>,
    memory_bytes: u64,
    listener: TcpListener,
    listen: SocketAddr,
    admin: Option<Admin>,
    advertised: HostPort,
    properties: BTreeMap<String, String>,
}

pub fn run(config: NodeConfig, hooks: Hooks) -> Result<(), StartError> {
    let begun = Instant::now();
    let plan = plan(&config)?;
    let (reports, inbox) = mpsc::channel();
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(|error| StartError::Failed(error.to_string()))?;
    let signalled = signals.handle();
    let signal_reports = reports.clone();
    std::thread::spawn(move || {
        for (nth, signal) in signals.forever().enumerate() {
            if nth > 0 {
                std::process::exit(128 + signal);
            }
            let _ = signal_reports.send(Report::Signal);
        }
    });
    let result = serve(plan, hooks, begun, reports, inbox);
    signalled.close();
    result
}

fn plan(config: &NodeConfig) -> Result<Plan, StartError> {
    let descriptors = resources::raise_descriptors();
    resources::check_locked_memory()?;
    resources::check_file_size()?;
    // Before anything is written: without io_uring nothing works.
    drop(Ring::new(&RingConfig::new(ShardId(0), 4)).map_err(StartError::IoUring)?);
    let node_id = node_id(config)?;
    let properties = properties(config)?;
    config.cores.map(check_cores).transpose()?;
    let directory = Directory::open(&config.data_dir)?;
    let found = directory.layout()?;
    directory.check_whole(found)?;
    let file_system = directory.probe()?;
    let available = resources::cpus();
    let cores = config.cores.or(found.map(|layout| layout.cores)).unwrap_or(available.len());
    check_cores(cores)?;
    let memory_bytes = resources::memory_bytes(config.memory_bytes);
    let mut limits = resources::limits(memory_bytes, descriptors, cores, &directory.path)?;
    resources::bound_spares(&mut limits, file_system.free_bytes, cores);
    tell_of_connections(&properties, limits.connections_possible, cores);
    let limits = properties.bound(limits, cores as u16);
    let (listener, listen) = listen(&config.listen)?;
    let admin = config.admin_listen.as_ref().map(Admin::bind).transpose()?;
    let identity = directory.identity(node_id)?;
    let layout = match found {
        Some(layout) if layout.cores == cores => layout,
        Some(layout) => reshard(&directory, &file_system, &limits, (layout, cores))?,
        None => first_layout(&directory, &file_system, &limits, cores)?,
    };
    Ok(Plan {
        advertised: config.advertise.clone().unwrap_or_else(|| advertised(&config.listen.0, listen)),
        cpus: (0..cores).map(|core| available[core % available.len()]).collect(),
        properties: config.properties.clone(),
        directory,
        file_system,
        identity,
        layout,
        limits,
        memory_bytes,
        listener,
        listen,
        admin,
    })
}

fn check_cores(cores: usize) -> Result<(), StartError> {
    if (1..=1024).contains(&cores) {
        return Ok(());
    }
    Err(StartError::Config { name: "cores".into(), value: cores.to_string(), allowed: "1 to 1024".into() })
}

fn node_id(config: &NodeConfig) -> Result<i32, StartError> {
    let value = config.properties.get("node.id").map_or("1", String::as_str);
    let legal = value.trim().parse::<i32>().ok().filter(|id| *id >= 0);
    legal.ok_or_else(|| StartError::Config {
        name: "node.id".into(),
        value: value.into(),
        allowed: "a number from 0 to 2147483647".into(),
    })
}

/// A shard does not start on properties that it can't read.
fn properties(config: &NodeConfig) -> Result<BrokerConfig, StartError> {
    BrokerConfig::parse(&config.properties).map_err(|errors| StartError::Properties(errors.join("; ")))
}

/// Who asks for more connections than there can be is told so.
fn tell_of_connections(properties: &BrokerConfig, possible: u32, cores: usize) {
    let possible = u64::from(possible) * cores as u64;
    if let Some(asked) =
        properties.given("max.connections").filter(|_| u64::from(properties.connections_max) > possible)
    {
        tracing::warn!(
            "max.connections={asked} is more than the limit of open files (RLIMIT_NOFILE) allows: {possible} it is"
        );
    }
}

/// A directory that was never used: there must be room for the journals at least.
fn first_layout(
    directory: &Directory,
    file_system: &FileSystem,
    limits: &Limits,
    cores: usize,
) -> Result<Layout, StartError> {
    let needs = limits.journal_bytes * cores as u64;
    if file_system.free_bytes < needs {
        let full = std::io::Error::from_raw_os_error(libc::ENOSPC);
        return Err(StartError::path("reserve journals in", directory.path.clone(), full));
    }
    let layout = Layout { journal_generation: 1, cores, served: false };
    directory.write_layout(layout)?;
    Ok(layout)
}

fn reshard(
    directory: &Directory,
    file_system: &FileSystem,
    limits: &Limits,
    (old, cores): (Layout, usize),
) -> Result<Layout, StartError> {
    tracing::info!(from = old.cores, to = cores, "another number of cores: the journals are made anew");
    let resharding = Resharding {
        path: &directory.path,
        dir: DIR,
        limits,
        direct_io: file_system.direct_io,
        journal_flush_covers: file_system.journal_flush_covers.is_ok(),
    };
    let layout = resharding.run(old, cores)?;
    directory.write_layout(layout)?;
    Ok(layout)
}

fn listen((host, port): &HostPort) -> Result<(TcpListener, SocketAddr), StartError> {
    let address = ringmain_shard::address(host, *port);
    let failed = |error| StartError::Listen { address: address.clone(), error };
    // Names may have several addresses: the first that can be had (std tries them in order).
    let addresses: Vec<SocketAddr> = (host.as_str(), *port).to_socket_addrs().map_err(failed)?.collect();
    let listener = bind(&addresses).map_err(failed)?;
    rustix::net::listen(&listener, BACKLOG).map_err(|error| failed(error.into()))?;
    // Accepted sockets inherit it: replies leave at once.
    rustix::net::sockopt::set_tcp_nodelay(&listener, true).map_err(|error| failed(error.into()))?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// A killed broker's port is free only once the kernel has taken its rings apart, a moment after the process is gone: a supervisor
/// that starts us again at once must not be refused for that.
fn bind(addresses: &[SocketAddr]) -> std::io::Result<TcpListener> {
    let began = std::time::Instant::now();
    loop {
        match TcpListener::bind(addresses) {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && began.elapsed() < PORT_WAIT => {
                std::thread::sleep(PORT_RETRY);
            }
            done => return done,
        }
    }
}

/// Without `--advertise`: the host as it was written, or the machine's name when that was "any address".
fn advertised(host: &str, bound: SocketAddr) -> HostPort {
    let host = if bound.ip().is_unspecified() {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        tracing::warn!(
            name,
            "--listen is any address and --advertise is not given: clients are told this machine's name"
        );
        name
    } else {
        host.to_string()
    };
    (host, bound.port())
}

/// The cores' threads and how they are told to stop.
struct Cores {
    running: Vec<Running>,
    stop: Arc<AtomicBool>,
    bells: Bells,
}

impl Cores {
    fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        for core in 0..self.running.len() {
            self.bells.ring(core);
        }
    }

    fn join(self) -> Result<(), StartError> {
        for running in self.running {
            running.join().map_err(StartError::Failed)?;
        }
        Ok(())
    }
}

fn serve(
    mut plan: Plan,
    hooks: Hooks,
    begun: Instant,
    reports: Sender<Report>,
    inbox: Receiver<Report>,
) -> Result<(), StartError> {
    let count = plan.cpus.len();
    let admin = plan.admin.take();
    let started = Started {
        version: env!("CARGO_PKG_VERSION"),
        node_id: plan.identity.node_id,
        cluster_id: plan.identity.cluster_id.clone(),
        listen: plan.listen,
        advertised: plan.advertised.clone(),
        admin: admin.as_ref().map(Admin::address),
        cores: plan.cpus.clone(),
        data_dir: plan.directory.path.clone(),
        memory_bytes: plan.memory_bytes,
        direct_io: plan.file_system.direct_io,
        file_system: plan.file_system.name.clone(),
        journal_flush_covers: plan.file_system.journal_flush_covers,
        spare_bytes: plan.limits.spare_bytes_max * count as u64,
        connections_max: u64::from(plan.limits.connections_max) * count as u64,
        ready_ms: 0,
    };
    let metrics = Metrics::new(count, &plan.limits);
    let serving = admin.map(|admin| admin.serve(metrics.clone(), AdminLimits::default())).transpose();
    let _serving = serving.map_err(|error| StartError::Failed(format!("admin port: {error}")))?;
    let layout = plan.layout;
    let (cores, directory) = start_cores(plan, observed(metrics, hooks.sinks), &reports)?;
    match until_ready(&inbox, count, &directory.path)? {
        Begin::Ready => {
            settle_layout(&directory, layout)?;
            let ready_ms = begun.elapsed().as_millis() as u64;
            tracing::info!(listen = %started.listen, cluster_id = started.cluster_id, cores = count, ready_ms, "ready");
            (hooks.started)(&Started { ready_ms, ..started });
            until_signal(&inbox)?;
        }
        Begin::Signalled => {}
    }
    tracing::info!("stopping");
    cores.stop();
    if until_stopped(&inbox, count)? {
        cores.join()?;
        tracing::info!("stopped");
    } else {
        tracing::warn!("the clean stop took too long; what is acknowledged is durable, and the next start recovers");
    }
    Ok(())
}

/// Once every core was ready: its journals exist, and no others are needed.
fn settle_layout(directory: &Directory, layout: Layout) -> Result<(), StartError> {
    if !layout.served {
        directory.write_layout(Layout { served: true, ..layout })?;
    }
    if let Err(error) = directory.remove_old_journals(layout) {
        tracing::warn!(%error, "journals that are no longer in force could not be removed");
    }
    Ok(())
}

fn start_cores(plan: Plan, sinks: SinkFactory, reports: &Sender<Report>) -> Result<(Cores, Directory), StartError> {
    let count = plan.cpus.len();
    let (stop, bells, sinks) = (Arc::new(AtomicBool::new(false)), Bells::new(count), Arc::new(sinks));
    // A pair's calls with a cancel each, two returns for each of the other side's, images, and a burst of connections. Long polls hold
    // no call slot: each of the other side's may be told Ready, each of ours cancelled, all in one turn.
    let long_polls = plan.limits.connections_max as usize * usize::from(plan.limits.requests_inflight_max);
    let waiting_max = 8 * usize::from(plan.limits.calls_inflight_max) + 4 * BACKLOG as usize + 2 * long_polls;
    let mut listener = Some(plan.listener);
    let mut running = Vec::new();
    for (core, mesh) in MeshEnds::all(count, waiting_max, &bells).into_iter().enumerate() {
        let shard = ShardId(core as u16);
        let seat = Seat {
            config: Config {
                broker: BrokerId(plan.identity.node_id),
                shard,
                shards: count as u16,
                dir: DIR,
                limits: plan.limits.clone(),
                seed: getrandom::u64().map_err(|error| StartError::Failed(error.to_string()))?,
                journal_generation: plan.layout.journal_generation,
                journal_exists: plan.layout.served,
                journal_flush_covers: plan.file_system.journal_flush_covers.is_ok(),
                cluster_id: plan.identity.cluster_id.clone(),
                advertised: plan.advertised.clone(),
                dir_path: plan.directory.path.display().to_string(),
                properties: plan.properties.clone(),
            },
            direct_io: plan.file_system.direct_io,
            mesh,
            listener: listener.take(),
            sinks: sinks.clone(),
            reports: reports.clone(),
            stop: stop.clone(),
        };
        let mut witness = Witness { core, reports: reports.clone(), built: false };
        let started = executor::start(plan.cpus[core], move || {
            let taken = seat.take();
            witness.built = true;
            taken.inspect_err(|error| {
                let _ = witness.reports.send(Report::Failed(error.clone()));
            })
        });
        running.push(started.map_err(|error| StartError::Failed(format!("core {core}: {error}")))?);
    }
    Ok((Cores { running, stop, bells }, plan.directory))
}

/// Says so when a core's thread ends before it could build its core: then nobody else would.
struct Witness {
    core: usize,
    reports: Sender<Report>,
    built: bool,
}

impl Drop for Witness {
    fn drop(&mut self) {
        if !self.built {
            let why =
                format!("core {}: its executor did not start (is RLIMIT_MEMLOCK, ulimit -l, too low?)", self.core);
            let _ = self.reports.send(Report::Failed(why));
        }
    }
}

/// What a core's thread is given to build its core from.
struct Seat {
    config: Config,
    direct_io: bool,
    mesh: MeshEnds,
    /// Core 0's.
    listener: Option<TcpListener>,
    sinks: Arc<SinkFactory>,
    reports: Sender<Report>,
    stop: Arc<AtomicBool>,
}

impl Seat {
    /// On the core's own thread: the ring belongs to it.
    fn take(self) -> Result<Core, String> {
        let shard = self.config.shard;
        let failed = |what: &'static str| move |error: std::io::Error| format!("core {}: {what}: {error}", shard.0);
        let ring_config = RingConfig::new(shard, self.config.limits.open_files_max);
        let mut ring = Ring::new(&ring_config).map_err(failed("io_uring"))?;
        let path = std::path::Path::new(&self.config.dir_path);
        ring.add_directory(self.config.dir, path, self.direct_io).map_err(failed("open the data directory"))?;
        if let Some(listener) = self.listener {
            ring.add_listener(listener.into());
        }
        self.mesh.install(ring.bell().map_err(failed("eventfd"))?);
        let hands = CoreHands::new(Parts {
            shard,
            shards: self.config.shards,
            ring,
            mesh: self.mesh,
            sink: (self.sinks)(shard),
            reports: self.reports,
            stop: self.stop,
            now: now(),
        });
        Ok(Core::new(self.config, hands))
    }
}

enum Begin {
    Ready,
    Signalled,
}

/// `path`: of the data directory, below which what failed is named.
fn until_ready(inbox: &Receiver<Report>, count: usize, path: &Path) -> Result<Begin, StartError> {
    let mut ready = 0;
    while ready < count {
        match inbox.recv() {
            Ok(Report::Ready) => ready += 1,
            Ok(Report::Signal) => return Ok(Begin::Signalled),
            Ok(Report::Fenced(error)) => {
                let cause = std::io::Error::from_raw_os_error(error.errno);
                return Err(StartError::path(error.operation, path.join(error.path), cause));
            }
            Ok(Report::Failed(why)) => return Err(StartError::Failed(why)),
            Ok(Report::Stopped) => {}
            Err(_) => return Err(StartError::Failed("a core's thread ended".into())),
        }
    }
    Ok(Begin::Ready)
}

fn until_signal(inbox: &Receiver<Report>) -> Result<(), StartError> {
    loop {
        match inbox.recv() {
            Ok(Report::Signal) => return Ok(()),
            Ok(Report::Failed(why)) => return Err(StartError::Failed(why)),
            // Reads go on; the log said it.
            Ok(_) => {}
            Err(_) => return Err(StartError::Failed("a core's thread ended".into())),
        }
    }
}

/// False when it takes too long.
fn until_stopped(inbox: &Receiver<Report>, count: usize) -> Result<bool, StartError> {
    let until = Instant::now() + STOP_MAX;
    let mut stopped = 0;
    while stopped < count {
        match inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Report::Stopped) => stopped += 1,
            Ok(Report::Failed(why)) => return Err(StartError::Failed(why)),
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => return Ok(false),
            Err(RecvTimeoutError::Disconnected) => return Err(StartError::Failed("a core's thread ended".into())),
        }
    }
    Ok(true)
}
