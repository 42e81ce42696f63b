//! From when a record was due to be published to when a consumer at the tail has it, at 100 MB/s.

use std::io;

use ringmain_load::{Actor, End, Offsets, Pace, Publisher, Reader, ReaderConfig, Versions};

use crate::bar::at_most_unless;
use crate::figure::{Figures, Metric};
use crate::peer::tail::ProbeTail;
use crate::server::Peer;
use crate::sitting::{RINGMAIN, Side, Sitting, TOPIC, Workload, publisher, side};

const RATE: f64 = 100e6;
const BATCH_BYTES: usize = 16 << 10;

pub fn workload() -> Workload {
    Workload {
        name: "publish to consume at 100 MB/s".into(),
        what: "Open loop, one partition, 16 KiB batches, one consumer; latency from when a batch was due to when the consumer has it. \
               Ringmain and the probe hand out only what is flushed, Kafka does not flush."
            .into(),
        sides: vec![
            side("Ringmain", RINGMAIN),
            side("probe", Peer::Probe { flush: true }),
            side("Kafka", Peer::Kafka { flush: false }),
        ],
        headline: Metric::P99,
        bars: vec![at_most_unless("Ringmain", "probe", Metric::P99, 2.0, (2.0, 5.0))],
        run: Box::new(consume),
    }
}

fn consume(sitting: &Sitting, side: &Side) -> io::Result<Figures> {
    let server = sitting.serve(side.peer, 1, &[])?;
    let connections = vec![(server.address.clone(), vec![0])];
    let mut publisher = Publisher::open(&publisher(connections, BATCH_BYTES, Pace::Rate(RATE)))?;
    let offsets = if side.peer.is_broker() { Offsets::Checked } else { Offsets::Unknown };
    let timeline = publisher.timeline(1, offsets);
    let consumer: Box<dyn Actor> = match side.peer {
        Peer::Probe { .. } => Box::new(ProbeTail::open(&server.address, timeline)?),
        _ => Box::new(Reader::open(tail(&server.address), Some(timeline))?),
    };
    // The consumer connects and asks first.
    Ok(Figures::flow(&sitting.load(server, vec![consumer, Box::new(publisher)])?, "tail"))
}

/// A consumer of partition 0, with Kafka's default of 1 MiB.
pub fn tail(address: &str) -> ReaderConfig {
    ReaderConfig {
        name: "tail",
        address: address.into(),
        topic: TOPIC.into(),
        partition: 0,
        bytes_max: 1 << 20,
        from: 0,
        end: End::Tail,
        version: Versions::default().fetch,
    }
}
