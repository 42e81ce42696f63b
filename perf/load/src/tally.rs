//! What one part of a load did within the span.

use hdrhistogram::Histogram;

use crate::Span;

const LATENCY_MAX_NS: u64 = 120_000_000_000;

#[derive(Clone, Debug)]
pub struct Tally {
    /// Names the part within its run: `publish`, `tail`, `cold`, ...
    pub name: &'static str,
    /// Answered.
    pub requests: u64,
    pub records: u64,
    /// Of record batches, as they stand in the log.
    pub bytes: u64,
    /// In nanoseconds, from the instant at which something was *due*: a stall counts for all that should have happened during it.
    pub latency: Histogram<u64>,
}

impl Tally {
    pub fn new(name: &'static str) -> Tally {
        let latency = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("legal bounds");
        Tally { name, requests: 0, records: 0, bytes: 0, latency }
    }

    /// A request that was due at `due` is answered `now`.
    pub fn answered(&mut self, span: &Span, due: u64, now: u64, records: u64, bytes: u64) {
        if span.open() {
            self.requests += 1;
            self.records += records;
            self.bytes += bytes;
        }
        self.late(span, due, now);
    }

    /// Only the latency of what was due at `due`.
    pub fn late(&mut self, span: &Span, due: u64, now: u64) {
        if span.holds(due) {
            self.latency.saturating_record(now.saturating_sub(due).max(1));
        }
    }

    pub fn add(&mut self, other: &Tally) {
        self.requests += other.requests;
        self.records += other.records;
        self.bytes += other.bytes;
        self.latency.add(&other.latency).expect("equal bounds");
    }

    pub fn latency_ms(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1e6
    }
}
