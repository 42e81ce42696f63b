//! How long an acknowledgement takes at 100 MB/s, whatever the server does.

use std::io;

use ringmain_load::{Pace, Publisher};

use crate::bar::at_most_unless;
use crate::figure::{Figures, Metric};
use crate::server::Peer;
use crate::sitting::{RINGMAIN, Side, Sitting, Workload, publisher, side};

const RATE: f64 = 100e6;
const BATCH_BYTES: usize = 16 << 10;

pub fn workload() -> Workload {
    Workload {
        name: "ack at 100 MB/s".into(),
        what: "Open loop, one connection, one partition, 16 KiB batches, every acknowledgement flushed; latency from the instant at which a \
               batch was due."
            .into(),
        sides: vec![
            side("Ringmain", RINGMAIN),
            side("probe", Peer::Probe { flush: true }),
            side("Kafka", Peer::Kafka { flush: true }),
        ],
        headline: Metric::P99,
        bars: vec![
            at_most_unless("Ringmain", "probe", Metric::P99, 2.0, (4.0, 10.0)),
            at_most_unless("Ringmain", "probe", Metric::P999, 2.0, (4.0, 10.0)),
        ],
        run: Box::new(ack),
    }
}

fn ack(sitting: &Sitting, side: &Side) -> io::Result<Figures> {
    let server = sitting.serve(side.peer, 1, &[])?;
    let connections = vec![(server.address.clone(), vec![0])];
    // Kafka can't hold the rate when it flushes: a schedule that runs away would say nothing. It is shown flat out then.
    let pace = if side.peer.is_kafka() { Pace::Window(64) } else { Pace::Rate(RATE) };
    let publisher = Publisher::open(&publisher(connections, BATCH_BYTES, pace))?;
    Ok(Figures::flow(&sitting.load(server, vec![Box::new(publisher)])?, "publish"))
}
