//! What a second core costs: CPU time a message with one and with two.

use std::io;

use ringmain_load::{Pace, Publisher};

use crate::bar::at_most;
use crate::figure::{Figures, Metric};
use crate::server::Peer;
use crate::sitting::{Side, Sitting, Workload, publisher};

const CONNECTIONS: u32 = 8;
const BATCH_BYTES: usize = 16 << 10;
const WINDOW: usize = 16;

pub fn workload() -> Workload {
    let side = |label: &str, cores| Side { label: label.into(), peer: Peer::Ringmain { cores }, variant: cores };
    Workload {
        name: "one core to two".into(),
        what: format!(
            "Durable publish, closed loop, {CONNECTIONS} connections to {CONNECTIONS} partitions, 16 KiB batches, --cores 1 and 2."
        ),
        sides: vec![side("1 core", 1), side("2 cores", 2)],
        headline: Metric::CpuMessage,
        bars: vec![at_most("2 cores", "1 core", Metric::CpuMessage, 1.15)],
        run: Box::new(cores),
    }
}

fn cores(sitting: &Sitting, side: &Side) -> io::Result<Figures> {
    let server = sitting.serve(side.peer, CONNECTIONS, &[])?;
    let partitions: Vec<u32> = (0..CONNECTIONS).collect();
    let connections = (0..CONNECTIONS).map(|_| (server.address.clone(), partitions.clone())).collect();
    let publisher = Publisher::open(&publisher(connections, BATCH_BYTES, Pace::Window(WINDOW)))?;
    let outcome = sitting.load(server, vec![Box::new(publisher)])?;
    let mut figures = Figures::flow(&outcome, "publish");
    let records = outcome.tally("publish").records as f64;
    figures.set(Metric::CpuMessage, outcome.server_cpu_seconds * 1e6 / records);
    Ok(figures)
}
