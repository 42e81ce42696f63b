//! Publishing flat out: one and eight connections, small and large batches, flushed before the acknowledgement and not.

use std::io;

use ringmain_load::{Pace, Publisher};

use crate::bar::{at_least, at_most};
use crate::figure::{Figures, Metric};
use crate::server::Peer;
use crate::sitting::{RINGMAIN, Side, Sitting, Workload, publisher, side};

/// Connections, bytes of a batch, unanswered requests a connection. Windows keep 1 to 8 MiB in flight, so that the disk and not the
/// round trip is the limit.
const SHAPES: [(u32, usize, usize); 4] = [(1, 16 << 10, 64), (1, 256 << 10, 8), (8, 16 << 10, 16), (8, 256 << 10, 4)];

pub fn workloads() -> Vec<Workload> {
    let flushes = [true, false];
    flushes.iter().flat_map(|flush| SHAPES.iter().map(|shape| workload(*flush, *shape))).collect()
}

fn workload(flush: bool, (connections, batch_bytes, window): (u32, usize, usize)) -> Workload {
    let small = batch_bytes < 64 << 10;
    let mut bars = Vec::new();
    if flush {
        bars.push(at_least("Ringmain", "probe", Metric::Megabytes, 0.8));
        bars.push(at_least("Ringmain", "Kafka", Metric::Megabytes, if small { 10.0 } else { 2.0 }));
        bars.push(at_most("Ringmain", "probe", Metric::CpuGigabyte, 1.4));
        bars.push(at_most("Ringmain", "Kafka", Metric::CpuGigabyte, if small { 0.25 } else { 0.5 }));
    } else {
        bars.push(at_least("Ringmain", "probe", Metric::Megabytes, 1.0));
        bars.push(at_least("Ringmain", "Kafka", Metric::Megabytes, 1.0));
    }
    let kind = if flush { "durable publish" } else { "async publish" };
    let plural = if connections == 1 { "" } else { "s" };
    Workload {
        name: format!("{kind}, {connections} connection{plural}, {} KiB", batch_bytes >> 10),
        what: format!(
            "Closed loop, {window} requests in flight a connection, as many partitions as connections, all connections to all of them; \
             {}.",
            match flush {
                true => "every acknowledgement flushed",
                false => "flush=async; the probe acknowledges after the write, Kafka from the page cache",
            }
        ),
        sides: vec![
            side("Ringmain", RINGMAIN),
            side("probe", Peer::Probe { flush }),
            side("Kafka", Peer::Kafka { flush }),
        ],
        headline: Metric::Megabytes,
        bars,
        run: Box::new(move |sitting, side| publish(sitting, side, flush, connections, batch_bytes, window)),
    }
}

fn publish(
    sitting: &Sitting,
    side: &Side,
    flush: bool,
    connections: u32,
    batch_bytes: usize,
    window: usize,
) -> io::Result<Figures> {
    let configs: &[(&str, &str)] = if flush { &[] } else { &[("flush", "async")] };
    let server = sitting.serve(side.peer, connections, configs)?;
    let partitions: Vec<u32> = (0..connections).collect();
    let connections = (0..connections).map(|_| (server.address.clone(), partitions.clone())).collect();
    let publisher = Publisher::open(&publisher(connections, batch_bytes, Pace::Window(window)))?;
    Ok(Figures::flow(&sitting.load(server, vec![Box::new(publisher)])?, "publish"))
}
