//! Where a core's notes go: metrics and logs read them, nobody else.

use std::sync::Arc;

use ringmain_shard::Note;
use ringmain_types::{ACCOUNTS, Now, ShardId};

use crate::log_lines::LogLines;
use crate::metrics::Metrics;

/// One per core, made and called on that core's thread between two turns: it must not wait. What it publishes to other threads it
/// publishes through atomics.
pub trait NoteSink {
    fn note(&mut self, now: Now, note: &Note);
    /// Once for each pass that had work (and at least once a second): what is not a note.
    fn turn(&mut self, _now: Now, _gauges: &Gauges) {}
}

/// What the hands know and the shard does not.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gauges {
    pub turns: u64,
    /// `io_uring_enter` calls.
    pub enters: u64,
    pub parks: u64,
    pub connections: u32,
    pub connections_accepted: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    pub disk_written_bytes: u64,
    pub disk_read_bytes: u64,
    pub disk_flushes: u64,
    pub open_files: u32,
    /// What nothing else of the core could go on for: a turn and the slice of background work behind it.
    pub turn_longest_us: u64,
    pub turns_over_10ms: u64,
    /// Of each account: what is used, and what may be.
    pub memory: [(u64, u64); ACCOUNTS],
}

/// Makes a core's sink, on that core.
pub type SinkFactory = Box<dyn Fn(ShardId) -> Box<dyn NoteSink> + Send + Sync>;

/// Drops every note.
pub struct NoSink;
impl NoteSink for NoSink {
    fn note(&mut self, _: Now, _: &Note) {}
}

/// A core's notes go to the metrics, to the log, and to the caller's sink.
struct All([Box<dyn NoteSink>; 3]);
impl NoteSink for All {
    fn note(&mut self, now: Now, note: &Note) {
        self.0.iter_mut().for_each(|sink| sink.note(now, note));
    }
    fn turn(&mut self, now: Now, gauges: &Gauges) {
        self.0.iter_mut().for_each(|sink| sink.turn(now, gauges));
    }
}

/// Makes sinks that feed `metrics` and the log, and what `caller` makes.
pub fn observed(metrics: Arc<Metrics>, caller: SinkFactory) -> SinkFactory {
    Box::new(move |shard| {
        Box::new(All([metrics.sink(shard), Box::new(LogLines::new(shard, metrics.clone())), caller(shard)]))
    })
}
