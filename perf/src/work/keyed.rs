//! 20 000 keyed messages a second over one, very many and even more partitions, durable.

use std::io;
use std::time::Instant;

use ringmain_load::{Keyed, KeyedConfig, Versions, run};

use crate::bar::at_most;
use crate::figure::{Figures, Metric};
use crate::metrics;
use crate::server::Peer;
use crate::sitting::{RECORD_BYTES, RINGMAIN, Side, Sitting, TOPIC, Workload};

const MESSAGES: f64 = 20_000.0;
/// A request every so often: what a producer with this linger sends.
const LINGER_MS: f64 = 5.0;

pub fn workload(quick: bool) -> Workload {
    let counts = if quick { [1, 100, 500] } else { [1, 1000, 7200] };
    let label = |count: usize| if count == 1 { "1 partition".into() } else { format!("{count} partitions") };
    let mut sides: Vec<Side> =
        counts.iter().map(|count| Side { label: label(*count), peer: RINGMAIN, variant: *count }).collect();
    let kafka = format!("Kafka, {} partitions", counts[1]);
    sides.push(Side { label: kafka, peer: Peer::Kafka { flush: false }, variant: counts[1] });
    let many = counts[1..].iter().map(|count| label(*count));
    let bars = many.flat_map(|many| {
        let flushes = at_most(&many, &label(1), Metric::Flushes, 2.0);
        [at_most(&many, &label(1), Metric::P99, 3.0), flushes]
    });
    Workload {
        name: "keyed, 20 000 messages/s".into(),
        what: format!(
            "Open loop: every {LINGER_MS} ms one request of 100 records of 1 KB, each to a random partition, in one batch a partition; \
             Ringmain flushes before it acknowledges, Kafka does not. Flushes are all of the server's (its /metrics)."
        ),
        sides,
        headline: Metric::P99,
        bars: bars.collect(),
        run: Box::new(keyed),
    }
}

fn keyed(sitting: &Sitting, side: &Side) -> io::Result<Figures> {
    let partitions = side.variant as u32;
    let server = sitting.servers.start(side.peer)?;
    let began = Instant::now();
    sitting.create(&server, TOPIC, partitions, &[])?;
    let created = began.elapsed().as_secs_f64();
    std::thread::sleep(sitting.settle);
    let publisher = Keyed::open(KeyedConfig {
        address: server.address.clone(),
        topic: TOPIC.into(),
        partitions,
        record_bytes: RECORD_BYTES,
        records_a_second: MESSAGES,
        linger_ms: LINGER_MS,
        version: Versions::default().produce,
    })?;
    let flushes = || match server.peer {
        Peer::Ringmain { .. } => metrics::sum(&sitting.servers.metrics_address(), "ringmain_flushes_total").map(Some),
        _ => Ok(None),
    };
    // Over warm-up and span alike, since the load is the same in both.
    let (before, began) = (flushes()?, Instant::now());
    let outcome = run(&sitting.plan(&server), vec![Box::new(publisher)])?;
    let (after, seconds) = (flushes()?, began.elapsed().as_secs_f64());
    server.stop()?;
    let mut figures = Figures::flow(&outcome, "publish");
    figures.set(Metric::Create, created);
    if let (Some(before), Some(after)) = (before, after) {
        figures.set(Metric::Flushes, (after - before) / seconds);
    }
    Ok(figures)
}
