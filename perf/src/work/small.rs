//! Requests of 100 bytes over many connections, beside a bare tokio server that echoes them.

use std::io;

use ringmain_load::{Asker, Right, list_offsets};

use crate::bar::at_least;
use crate::figure::{Figures, Metric};
use crate::server::Peer;
use crate::sitting::{RINGMAIN, Side, Sitting, TOPIC, Workload, side};

const REQUEST_BYTES: usize = 100;
/// With two cores every second question is for the other one's.
const PARTITIONS: u32 = 8;

pub fn workloads() -> Vec<Workload> {
    [16, 64, 256].iter().map(|connections| workload(*connections)).collect()
}

fn workload(connections: usize) -> Workload {
    Workload {
        name: format!("100-byte requests, {connections} connections"),
        what: format!(
            "ListOffsets of one partition in a frame of {REQUEST_BYTES} bytes, one at a time a connection, over {PARTITIONS} partitions; the \
             echo is a tokio server of one thread that sends the same bytes back."
        ),
        sides: vec![side("Ringmain", RINGMAIN), side("echo", Peer::Echo), side("Kafka", Peer::Kafka { flush: false })],
        headline: Metric::RequestsACpuSecond,
        bars: vec![
            at_least("Ringmain", "echo", Metric::RequestsACpuSecond, 0.8),
            at_least("Ringmain", "Kafka", Metric::RequestsACpuSecond, 5.0),
        ],
        run: Box::new(move |sitting, side| ask(sitting, side, connections)),
    }
}

fn ask(sitting: &Sitting, side: &Side, connections: usize) -> io::Result<Figures> {
    let server = sitting.serve(side.peer, PARTITIONS, &[])?;
    let question = |number: usize| list_offsets(TOPIC, number as u32 % PARTITIONS, REQUEST_BYTES).0;
    let right: Right = match side.peer {
        Peer::Echo => |_| Ok(()),
        _ => list_offsets(TOPIC, 0, REQUEST_BYTES).1,
    };
    let asker = Asker::open(&server.address, connections, question, right)?;
    let outcome = sitting.load(server, vec![Box::new(asker)])?;
    let requests = outcome.tally("ask").requests as f64 / 1e3;
    let mut figures = Figures::default();
    figures.set(Metric::Requests, requests / outcome.seconds);
    figures.set(Metric::RequestsACpuSecond, requests / outcome.server_cpu_seconds);
    Ok(figures.with_latency(&outcome, "ask").with_cpu(&outcome))
}
