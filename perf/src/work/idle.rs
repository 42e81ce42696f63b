//! What a broker takes when nobody wants anything: CPU, memory, a quiet connection, a quiet partition, and how fast it is back.

use std::io;
use std::time::{Duration, Instant};

use ringmain_load::{Control, cpu};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::bar::own_at_most;
use crate::figure::{Figures, Metric};
use crate::server::Peer;
use crate::sitting::{RINGMAIN, Side, Sitting, TOPIC, Workload};

/// Until what the start left to do is done.
const CALM: Duration = Duration::from_secs(3);
/// Descriptors that are no quiet connections.
const OTHER_DESCRIPTORS: u64 = 200;

#[derive(Clone, Copy)]
struct Size {
    watch: Duration,
    connections: usize,
}

pub fn workload(quick: bool) -> Workload {
    let size = match quick {
        true => Size { watch: Duration::from_secs(2), connections: 1000 },
        false => Size { watch: Duration::from_secs(20), connections: 10_000 },
    };
    let partitions = if quick { 500 } else { 7200 };
    let kafka_partitions = if quick { 100 } else { 1000 };
    Workload {
        name: "idle".into(),
        what: format!(
            "CPU over {} s of quiet and resident memory then; memory more with {} connections that asked once, a connection; with \
             {partitions} empty partitions ({kafka_partitions} of Kafka's), a partition; until all of them are served, after \
             their creation and after a restart.",
            size.watch.as_secs(),
            size.connections
        ),
        sides: vec![
            Side { label: "Ringmain".into(), peer: RINGMAIN, variant: partitions },
            Side { label: "Kafka".into(), peer: Peer::Kafka { flush: false }, variant: kafka_partitions },
        ],
        headline: Metric::IdleCpu,
        bars: vec![
            own_at_most("Ringmain", Metric::IdleCpu, 1.0),
            own_at_most("Ringmain", Metric::Resident, 48.0),
            own_at_most("Ringmain", Metric::Connection, 8.0),
            own_at_most("Ringmain", Metric::Partition, 64.0),
            own_at_most("Ringmain", Metric::Create, 30.0),
            own_at_most("Ringmain", Metric::Restart, 10.0),
        ],
        run: Box::new(move |sitting, side| idle(sitting, side, size)),
    }
}

fn idle(sitting: &Sitting, side: &Side, size: Size) -> io::Result<Figures> {
    let mut figures = Figures::default();
    // Before the start: a server inherits it.
    let connections = descriptors_for(size.connections)?;
    let server = sitting.servers.start(side.peer)?;
    std::thread::sleep(CALM);
    let before = cpu::process_seconds(server.pid())?;
    std::thread::sleep(size.watch);
    let used = cpu::process_seconds(server.pid())? - before;
    figures.set(Metric::IdleCpu, used / size.watch.as_secs_f64() * 100.0);
    let resident = cpu::resident_bytes(server.pid())?;
    figures.set(Metric::Resident, resident as f64 / 1024.0 / 1024.0);
    // All are open at once.
    let mut open = Vec::with_capacity(connections);
    for _ in 0..connections {
        let mut control = Control::open(&server.address, Duration::from_secs(5))?;
        control.greet()?;
        open.push(control);
    }
    std::thread::sleep(CALM);
    let grown = cpu::resident_bytes(server.pid())?.saturating_sub(resident);
    figures.set(Metric::Connection, grown as f64 / 1024.0 / connections as f64);
    drop(open);
    server.stop()?;
    partitions(sitting, side, figures)
}

fn partitions(sitting: &Sitting, side: &Side, mut figures: Figures) -> io::Result<Figures> {
    let count = side.variant as u32;
    let server = sitting.servers.start(side.peer)?;
    std::thread::sleep(CALM);
    let resident = cpu::resident_bytes(server.pid())?;
    let began = Instant::now();
    sitting.create(&server, TOPIC, count, &[])?;
    figures.set(Metric::Create, began.elapsed().as_secs_f64());
    std::thread::sleep(CALM);
    let grown = cpu::resident_bytes(server.pid())?.saturating_sub(resident);
    figures.set(Metric::Partition, grown as f64 / 1024.0 / f64::from(count));
    server.halt()?;
    let began = Instant::now();
    let server = sitting.servers.start_again(side.peer)?;
    server.control()?.await_serving(TOPIC, count)?;
    figures.set(Metric::Restart, began.elapsed().as_secs_f64());
    server.stop()?;
    Ok(figures)
}

/// Raises the limit of descriptors for `connections`, or says how many there can be.
fn descriptors_for(connections: usize) -> io::Result<usize> {
    let wanted = connections as u64 + OTHER_DESCRIPTORS;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(connections);
    }
    let raised = limit.maximum.map_or(wanted, |most| most.min(wanted));
    setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum })?;
    if raised < wanted {
        println!("    only {raised} descriptors are allowed: fewer connections than meant");
    }
    Ok(connections.min(raised.saturating_sub(OTHER_DESCRIPTORS) as usize))
}
