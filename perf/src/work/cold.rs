//! Fetching what is only on the disk, beside a bare sequential read.

use std::io;
use std::time::Duration;

use ringmain_load::{Actor, End, Plan, Reader, ReaderConfig, Versions, run};

use super::fetch::BATCH_BYTES;
use crate::bar::at_least;
use crate::figure::{Figures, Metric};
use crate::peer::direct::{self, Shape};
use crate::peer::probe::FILE_NAME;
use crate::server::Peer;
use crate::sitting::{RINGMAIN, Side, Sitting, TOPIC, Workload, side};

/// A connection and a partition each; the bare read has as many in flight.
const READERS: u32 = 4;
const FETCH_BYTES: usize = 1 << 20;

pub fn workload(quick: bool) -> Workload {
    let bytes: u64 = if quick { 128 << 20 } else { 2 << 30 };
    Workload {
        name: "fetch cold".into(),
        what: format!(
            "{} MiB over {READERS} partitions, server restarted, its pages dropped; {READERS} connections read them to their ends, 1 MiB a \
             fetch, timed without a warm-up. Beside it O_DIRECT reads of 1 MiB, {READERS} in flight (fio, where there is one).",
            bytes >> 20
        ),
        sides: vec![
            side("Ringmain", RINGMAIN),
            side("direct read", Peer::Command),
            side("Kafka", Peer::Kafka { flush: false }),
        ],
        headline: Metric::Megabytes,
        bars: vec![at_least("Ringmain", "direct read", Metric::Megabytes, 0.8)],
        run: Box::new(move |sitting, side| cold(sitting, side, bytes)),
    }
}

fn cold(sitting: &Sitting, side: &Side, bytes: u64) -> io::Result<Figures> {
    if side.peer == Peer::Command {
        return direct_read(sitting, bytes);
    }
    let server = sitting.serve(side.peer, READERS, &[])?;
    let end = sitting.fill(&server, TOPIC, READERS, BATCH_BYTES, bytes)?;
    server.halt()?;
    let server = sitting.servers.start_again(side.peer)?;
    server.control()?.await_serving(TOPIC, READERS)?;
    let reader = |partition| {
        let config = ReaderConfig {
            name: "fetch",
            address: server.address.clone(),
            topic: TOPIC.into(),
            partition,
            bytes_max: FETCH_BYTES,
            from: 0,
            end: End::Stop(end),
            version: Versions::default().fetch,
        };
        Ok(Box::new(Reader::open(config, None)?) as Box<dyn Actor>)
    };
    let readers = (0..READERS).map(reader).collect::<io::Result<_>>()?;
    let plan = Plan { warm_up: Duration::ZERO, measure: Duration::from_secs(600), server_pid: Some(server.pid()) };
    let outcome = run(&plan, readers)?;
    server.stop()?;
    Ok(Figures::flow(&outcome, "fetch"))
}

/// Of the probe's file, which was written from end to end.
fn direct_read(sitting: &Sitting, bytes: u64) -> io::Result<Figures> {
    let probe = Peer::Probe { flush: true };
    let directory = sitting.servers.data(probe);
    if !directory.join(FILE_NAME).exists() {
        sitting.servers.start(probe)?.stop()?;
    }
    let bytes = bytes.min(sitting.servers.probe_mib << 20);
    let shape = Shape { bytes, read_bytes: FETCH_BYTES, depth: READERS as usize };
    let mut figures = Figures::default();
    figures.set(Metric::Megabytes, direct::read(&directory, FILE_NAME, shape)?);
    Ok(figures)
}
