//! What consumers at the tail feel of one that reads from the disk.

use std::io;

use ringmain_load::{Actor, End, Offsets, Pace, Publisher, Reader, ReaderConfig, Versions};

use super::consume::tail;
use super::fetch::BATCH_BYTES;
use crate::bar::at_most;
use crate::figure::{Figures, Metric};
use crate::sitting::{RINGMAIN, Side, Sitting, TOPIC, Workload, publisher};

const RATE: f64 = 50e6;
const TAILS: usize = 4;
const OLD: &str = "old";
const ALONE: &str = "tail alone";
const BESIDE: &str = "beside a cold reader";

pub fn workload(quick: bool) -> Workload {
    let old_bytes: u64 = if quick { 256 << 20 } else { 4 << 30 };
    let side = |label: &str, variant| Side { label: label.into(), peer: RINGMAIN, variant };
    Workload {
        name: "mixed".into(),
        what: format!(
            "50 MB/s into one partition, open loop, 16 KiB batches, {TAILS} consumers at its tail; and the same while one more connection \
             reads {} MiB of another topic from the disk, 1 MiB a fetch. Figures are the tail's.",
            old_bytes >> 20
        ),
        sides: vec![side(ALONE, 0), side(BESIDE, 1)],
        headline: Metric::P99,
        bars: vec![at_most(BESIDE, ALONE, Metric::P99, 2.0)],
        run: Box::new(move |sitting, side| mixed(sitting, side, old_bytes)),
    }
}

fn mixed(sitting: &Sitting, side: &Side, old_bytes: u64) -> io::Result<Figures> {
    // Both sides start on the same log: only the reader differs.
    let server = sitting.servers.start(side.peer)?;
    sitting.create(&server, OLD, 1, &[])?;
    let end = sitting.fill(&server, OLD, 1, BATCH_BYTES, old_bytes)?;
    server.halt()?;
    let server = sitting.servers.start_again(side.peer)?;
    sitting.create(&server, TOPIC, 1, &[])?;
    std::thread::sleep(sitting.settle);
    let connections = vec![(server.address.clone(), vec![0])];
    let mut publisher = Publisher::open(&publisher(connections, 16 << 10, Pace::Rate(RATE)))?;
    let timeline = publisher.timeline(1, Offsets::Checked);
    let mut actors: Vec<Box<dyn Actor>> = Vec::new();
    for _ in 0..TAILS {
        actors.push(Box::new(Reader::open(tail(&server.address), Some(timeline.clone()))?));
    }
    actors.push(Box::new(publisher));
    if side.variant == 1 {
        let cold = ReaderConfig {
            name: "cold",
            address: server.address.clone(),
            topic: OLD.into(),
            partition: 0,
            bytes_max: 1 << 20,
            from: 0,
            end: End::Again(end),
            version: Versions::default().fetch,
        };
        actors.push(Box::new(Reader::open(cold, None)?));
    }
    let outcome = sitting.load(server, actors)?;
    if side.variant == 1 {
        let cold = outcome.tally("cold").bytes;
        println!("    the cold reader read {} MB in {:.1} s", cold / 1_000_000, outcome.seconds);
    }
    Ok(Figures::flow(&outcome, "tail"))
}
