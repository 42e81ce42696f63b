//! Fetching flat out what is in memory, beside a bare send loop.

use std::io;

use ringmain_load::{Actor, End, Reader, ReaderConfig, Versions};

use crate::bar::{at_least, at_most};
use crate::figure::{Figures, Metric};
use crate::server::Peer;
use crate::sitting::{RINGMAIN, Side, Sitting, TOPIC, Workload, side};

/// A connection and a partition each.
const READERS: u32 = 4;
/// What producers with some linger send; a fetch holds several.
pub const BATCH_BYTES: usize = 64 << 10;

pub fn workloads(quick: bool) -> Vec<Workload> {
    [1, 4].iter().map(|mib| workload(*mib, if quick { 8 << 20 } else { 64 << 20 })).collect()
}

fn workload(mib: usize, partition_bytes: usize) -> Workload {
    let bare = "send loop";
    Workload {
        name: format!("fetch from memory, {mib} MiB"),
        what: format!(
            "{READERS} connections read {} MiB each of a partition of their own round and round, {mib} MiB a fetch, one fetch at a time a \
             connection; latency is a fetch's.",
            partition_bytes >> 20
        ),
        sides: vec![
            side("Ringmain", RINGMAIN),
            side(bare, Peer::SendLoop { memory_bytes: partition_bytes }),
            side("Kafka", Peer::Kafka { flush: false }),
        ],
        headline: Metric::Megabytes,
        bars: vec![
            at_least("Ringmain", "Kafka", Metric::Megabytes, 1.2),
            at_most("Ringmain", "Kafka", Metric::CpuGigabyte, 0.8),
            at_most("Ringmain", bare, Metric::CpuGigabyte, 1.3),
        ],
        run: Box::new(move |sitting, side| fetch(sitting, side, mib << 20, partition_bytes)),
    }
}

fn fetch(sitting: &Sitting, side: &Side, bytes_max: usize, partition_bytes: usize) -> io::Result<Figures> {
    let server = sitting.serve(side.peer, READERS, &[])?;
    let end = match side.peer {
        // Its memory is made as it starts.
        Peer::SendLoop { .. } => {
            let (batch, records) = ringmain_load::batch(crate::sitting::RECORD_BYTES, BATCH_BYTES);
            (partition_bytes / batch.len()) as i64 * records as i64
        }
        _ => sitting.fill(&server, TOPIC, READERS, BATCH_BYTES, partition_bytes as u64 * u64::from(READERS))?,
    };
    let reader = |partition| {
        let config = ReaderConfig {
            name: "fetch",
            address: server.address.clone(),
            topic: TOPIC.into(),
            partition,
            bytes_max,
            from: 0,
            end: End::Again(end),
            version: Versions::default().fetch,
        };
        Ok(Box::new(Reader::open(config, None)?) as Box<dyn Actor>)
    };
    let readers = (0..READERS).map(reader).collect::<io::Result<_>>()?;
    Ok(Figures::flow(&sitting.load(server, readers)?, "fetch"))
}
