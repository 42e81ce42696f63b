//! Where a core's notes go: metrics and logs read them, nobody else.

use ringmain_shard::Note;
use ringmain_types::{Now, ShardId};

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
}

/// Makes a core's sink, on that core.
pub type SinkFactory = Box<dyn Fn(ShardId) -> Box<dyn NoteSink> + Send + Sync>;

/// Drops every note.
pub struct NoSink;
impl NoteSink for NoSink {
    fn note(&mut self, _: Now, _: &Note) {}
}
