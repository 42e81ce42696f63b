//! What a node counts. Each core writes atomics of its own, which only it writes; the admin thread reads them. No lock is ever waited
//! for on a core: the two that are there (the list of a core's partitions, the image) are tried, and tried again a turn later.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ringmain_log::CompactionStats;
use ringmain_metadata::ClusterImage;
use ringmain_session::Close;
use ringmain_shard::{Figures, Note, Phases};
use ringmain_types::{ACCOUNTS, ErrorCode, Limits, Now, Partition, ShardId};
use ringmain_wire::APIS;

use crate::notes::{Gauges, NoteSink};

/// Upper bounds of the request histograms in nanoseconds; one more bucket holds the rest.
pub(crate) const BUCKETS_NS: [u64; 18] = {
    const MS: u64 = 1_000_000;
    [
        MS / 40,
        MS / 20,
        MS / 10,
        MS / 4,
        MS / 2,
        MS,
        MS * 5 / 2,
        MS * 5,
        MS * 10,
        MS * 25,
        MS * 50,
        MS * 100,
        MS * 250,
        MS * 500,
        MS * 1000,
        MS * 2500,
        MS * 5000,
        MS * 10_000,
    ]
};
pub(crate) const PHASES: [&str; 6] = ["queue", "local", "remote", "throttle", "send", "total"];
/// Closes that the notes tell of; a client that goes by itself is none.
pub(crate) const CLOSES: [&str; 7] = ["idle", "slow", "memory", "protocol", "too_large", "network_error", "too_many"];
/// Error codes run from -1; what is above is not told apart.
const CODES: usize = 160;

/// Written by one core, read by others.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);
impl Counter {
    fn add(&self, count: u64) {
        // One writer: no read-modify-write is needed.
        self.set(self.get().wrapping_add(count));
    }
    fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
pub(crate) struct Histogram {
    /// Not cumulative; the last one is what is above all bounds.
    pub(crate) buckets: [Counter; BUCKETS_NS.len() + 1],
    pub(crate) sum_ns: Counter,
}
impl Histogram {
    fn observe(&self, ns: u64) {
        self.buckets[BUCKETS_NS.partition_point(|bound| *bound < ns)].add(1);
        self.sum_ns.add(ns);
    }
}

pub(crate) struct Api {
    pub(crate) requests: Counter,
    /// By code + 1.
    pub(crate) errors: [Counter; CODES],
    pub(crate) phases: [Histogram; PHASES.len()],
}

/// One partition's series, on the core that owns it.
pub(crate) struct PartitionCell {
    pub(crate) partition: Partition,
    pub(crate) messages_in: Counter,
    pub(crate) bytes_in: Counter,
    pub(crate) bytes_out: Counter,
    pub(crate) start: Counter,
    pub(crate) end: Counter,
    pub(crate) high_watermark: Counter,
    pub(crate) size_bytes: Counter,
}

pub(crate) struct Core {
    pub(crate) ready: AtomicBool,
    pub(crate) stopped: AtomicBool,
    /// Why the core's directory takes no more writes.
    pub(crate) fenced: Mutex<Option<String>>,
    /// Rises while the core's loop goes round.
    pub(crate) beats: Counter,
    /// In the order of `APIS`; the last is what no API is.
    pub(crate) apis: Vec<Api>,
    pub(crate) closes: [Counter; CLOSES.len()],
    pub(crate) messages_in: Counter,
    pub(crate) bytes_in: Counter,
    pub(crate) bytes_out: Counter,
    pub(crate) no_space: Counter,
    pub(crate) damaged: Counter,
    /// In the order of `COMPACTION`.
    pub(crate) compaction: [Counter; COMPACTION.len()],
    /// In the order of `Gauges`.
    pub(crate) gauges: [Counter; GAUGES.len()],
    /// Used, and allowed, in the order of `MEMORY`.
    pub(crate) memory: [(Counter, Counter); ACCOUNTS],
    /// Groups that the core's coordinators know.
    pub(crate) groups_known: Counter,
    pub(crate) groups_left_out: Counter,
    pub(crate) groups: Mutex<Vec<(Arc<str>, Arc<Figures>)>>,
    /// What was left out of `partitions` because there are too many.
    pub(crate) partitions_left_out: Counter,
    pub(crate) partitions: Mutex<Vec<Arc<PartitionCell>>>,
}

/// Name, kind and help of each of the hands' gauges.
pub(crate) const GAUGES: [(&str, &str, &str); 13] = [
    ("turns_total", "counter", "Turns of the core's loop."),
    ("ring_enters_total", "counter", "io_uring_enter calls."),
    ("parks_total", "counter", "Times the core slept for want of work."),
    ("connections", "gauge", "Open client connections."),
    ("connections_accepted_total", "counter", "Client connections accepted."),
    ("network_received_bytes_total", "counter", "Bytes received from clients."),
    ("network_sent_bytes_total", "counter", "Bytes sent to clients."),
    ("disk_written_bytes_total", "counter", "Bytes written to files."),
    ("disk_read_bytes_total", "counter", "Bytes read from files."),
    ("flushes_total", "counter", "Flushes of files."),
    ("open_files", "gauge", "Files held open."),
    (
        "turn_longest_microseconds",
        "gauge",
        "The longest turn since the start: so long has all else of the core waited.",
    ),
    ("turns_over_10ms_total", "counter", "Turns longer than 10 ms."),
];

/// The accounts' names, in the order of `Account`.
pub(crate) const MEMORY: [&str; ACCOUNTS] = ["receive", "tail", "cache", "reply", "background", "control"];

/// Name, kind and help of what compaction tells.
pub(crate) const COMPACTION: [(&str, &str, &str); 10] = [
    ("runs_total", "counter", "Compactions of one log that came to their end."),
    ("aborted_total", "counter", "Compactions that were given up, and are done again."),
    ("read_bytes_total", "counter", "Bytes read to be compacted."),
    ("written_bytes_total", "counter", "Bytes that were left of them."),
    ("records_removed_total", "counter", "Records that compaction removed."),
    ("segments_replaced_total", "counter", "Segments that compacted ones took the place of."),
    ("dirty_bytes", "gauge", "Bytes of sealed segments that are to be compacted."),
    ("uncleanable_partitions", "gauge", "Compacted partitions that do not check and are left as they are."),
    ("last_run_milliseconds", "gauge", "Time that the last compaction took."),
    ("last_run_timestamp_seconds", "gauge", "When the last compaction ended, since 1970."),
];

fn compaction(stats: &CompactionStats) -> [u64; COMPACTION.len()] {
    [
        stats.runs,
        stats.aborted,
        stats.read_bytes,
        stats.written_bytes,
        stats.records_removed,
        stats.segments_replaced,
        stats.dirty_bytes,
        stats.uncleanable_logs,
        stats.last_run_ms,
        u64::try_from(stats.last_run_ended.0 / 1000).unwrap_or_default(),
    ]
}

fn gauges(from: &Gauges) -> [u64; GAUGES.len()] {
    [
        from.turns,
        from.enters,
        from.parks,
        u64::from(from.connections),
        from.connections_accepted,
        from.received_bytes,
        from.sent_bytes,
        from.disk_written_bytes,
        from.disk_read_bytes,
        from.disk_flushes,
        u64::from(from.open_files),
        from.turn_longest_us,
        from.turns_over_10ms,
    ]
}

/// A node's numbers.
pub struct Metrics {
    pub(crate) cores: Vec<Core>,
    pub(crate) started: Instant,
    image: Mutex<Option<Arc<ClusterImage>>>,
    /// Rises with each image.
    images: AtomicU64,
    partitions_per_core_max: usize,
    groups_per_core_max: usize,
}

/// Whether a node should be sent clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Ready,
    NotReady(String),
}

impl Metrics {
    pub fn new(cores: usize, limits: &Limits) -> Arc<Metrics> {
        Arc::new(Metrics {
            cores: (0..cores).map(|_| Core::new()).collect(),
            started: Instant::now(),
            image: Mutex::new(None),
            images: AtomicU64::new(0),
            partitions_per_core_max: limits.metric_partitions_max as usize,
            groups_per_core_max: limits.metric_groups_max as usize,
        })
    }

    /// What feeds the numbers of `shard`'s core.
    pub fn sink(self: &Arc<Metrics>, shard: ShardId) -> Box<dyn NoteSink> {
        let core = usize::from(shard.0);
        assert!(core < self.cores.len());
        Box::new(CoreSink {
            metrics: self.clone(),
            core,
            cells: BTreeMap::new(),
            groups: BTreeMap::new(),
            images: 0,
            unlisted: false,
            unlisted_groups: false,
            unpublished: None,
        })
    }

    pub fn health(&self) -> Health {
        for (shard, core) in self.cores.iter().enumerate() {
            let fenced = core.fenced.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(why) = &*fenced {
                return Health::NotReady(format!("shard {shard}'s directory is fenced: {why}"));
            }
            if core.stopped.load(Ordering::Relaxed) {
                return Health::NotReady("stopping".into());
            }
            if !core.ready.load(Ordering::Acquire) {
                return Health::NotReady(format!("shard {shard} is not ready yet"));
            }
        }
        Health::Ready
    }

    /// The newest that is known, for a core: `None` when another thread looks at it just now, too.
    pub(crate) fn try_image(&self) -> Option<Arc<ClusterImage>> {
        self.image.try_lock().ok().and_then(|image| image.clone())
    }

    /// The newest that is known.
    pub(crate) fn image(&self) -> Option<Arc<ClusterImage>> {
        self.image.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Core {
    fn new() -> Core {
        let api = |_| Api {
            requests: Counter::default(),
            errors: std::array::from_fn(|_| Counter::default()),
            phases: Default::default(),
        };
        Core {
            ready: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            fenced: Mutex::new(None),
            beats: Counter::default(),
            apis: (0..=APIS.len()).map(api).collect(),
            closes: Default::default(),
            messages_in: Counter::default(),
            bytes_in: Counter::default(),
            bytes_out: Counter::default(),
            no_space: Counter::default(),
            damaged: Counter::default(),
            compaction: Default::default(),
            memory: Default::default(),
            gauges: Default::default(),
            groups_known: Counter::default(),
            groups_left_out: Counter::default(),
            groups: Mutex::new(Vec::new()),
            partitions_left_out: Counter::default(),
            partitions: Mutex::new(Vec::new()),
        }
    }

    fn request(&self, api: i16, error: ErrorCode, phases: &Phases) {
        let at = APIS.binary_search_by_key(&api, |spec| spec.key).unwrap_or(APIS.len());
        let api = &self.apis[at];
        api.requests.add(1);
        if error != ErrorCode::None {
            let code = usize::try_from(i32::from(error as i16) + 1).unwrap_or(0);
            api.errors[code.min(CODES - 1)].add(1);
        }
        let Phases { queue_ns, local_ns, remote_ns, throttle_ns, send_ns } = *phases;
        let parts = [queue_ns, local_ns, remote_ns, throttle_ns, send_ns];
        let total = parts.iter().fold(0u64, |total, part| total.saturating_add(*part));
        for (histogram, ns) in api.phases.iter().zip(parts.into_iter().chain([total])) {
            histogram.observe(ns);
        }
    }
}

/// Which of `CLOSES` it is.
fn close_at(why: &Close) -> Option<usize> {
    match why {
        Close::Eof | Close::Shutdown => None,
        Close::Idle => Some(0),
        Close::Slow => Some(1),
        Close::Memory => Some(2),
        Close::Protocol(_) => Some(3),
        Close::TooLarge { .. } => Some(4),
        Close::Errno(_) => Some(5),
        Close::TooMany => Some(6),
    }
}

/// On its core's thread.
struct CoreSink {
    metrics: Arc<Metrics>,
    core: usize,
    cells: BTreeMap<Partition, Arc<PartitionCell>>,
    groups: BTreeMap<Arc<str>, Arc<Figures>>,
    /// The image whose topics `cells` was last compared with.
    images: u64,
    /// `cells` changed and the admin thread was not told yet.
    unlisted: bool,
    /// As `unlisted`, for `groups`.
    unlisted_groups: bool,
    /// An image that the admin thread was not told of yet.
    unpublished: Option<Arc<ClusterImage>>,
}

impl CoreSink {
    fn core(&self) -> &Core {
        &self.metrics.cores[self.core]
    }

    fn cell(&mut self, partition: Partition) -> Option<&PartitionCell> {
        if !self.cells.contains_key(&partition) {
            if self.cells.len() >= self.metrics.partitions_per_core_max {
                self.core().partitions_left_out.add(1);
                return None;
            }
            let cell = PartitionCell {
                partition,
                messages_in: Counter::default(),
                bytes_in: Counter::default(),
                bytes_out: Counter::default(),
                start: Counter::default(),
                end: Counter::default(),
                high_watermark: Counter::default(),
                size_bytes: Counter::default(),
            };
            self.cells.insert(partition, Arc::new(cell));
            self.unlisted = true;
        }
        self.cells.get(&partition).map(Arc::as_ref)
    }

    /// Forgets partitions of topics that are gone.
    fn compare_with_image(&mut self) {
        let newest = self.metrics.images.load(Ordering::Acquire);
        if newest == self.images {
            return;
        }
        let Ok(image) = self.metrics.image.try_lock().map(|image| image.clone()) else { return };
        self.images = newest;
        let Some(image) = image else { return };
        let before = self.cells.len();
        self.cells
            .retain(|partition, _| *partition == Partition::METADATA || image.topics.contains_key(&partition.topic));
        self.unlisted |= self.cells.len() != before;
    }

    fn list(&mut self) {
        if self.unlisted
            && let Ok(mut listed) = self.metrics.cores[self.core].partitions.try_lock()
        {
            *listed = self.cells.values().cloned().collect();
            self.unlisted = false;
        }
    }

    fn group(&mut self, group: &Arc<str>, figures: Option<&Arc<Figures>>) {
        match figures {
            Some(figures) => {
                if !self.groups.contains_key(group) && self.groups.len() >= self.metrics.groups_per_core_max {
                    return self.core().groups_left_out.add(1);
                }
                self.groups.insert(group.clone(), figures.clone());
            }
            None => drop(self.groups.remove(group)),
        }
        self.unlisted_groups = true;
    }

    fn list_groups(&mut self) {
        if self.unlisted_groups
            && let Ok(mut listed) = self.metrics.cores[self.core].groups.try_lock()
        {
            *listed = self.groups.iter().map(|(group, figures)| (group.clone(), figures.clone())).collect();
            self.unlisted_groups = false;
        }
    }

    fn publish(&mut self) {
        if self.unpublished.is_none() {
            return;
        }
        let Ok(mut slot) = self.metrics.image.try_lock() else { return };
        let Some(image) = self.unpublished.take() else { return };
        // Each core may say it, in any order.
        if slot.as_ref().is_none_or(|known| known.next <= image.next) {
            *slot = Some(image);
            self.metrics.images.fetch_add(1, Ordering::Release);
        }
    }
}

impl NoteSink for CoreSink {
    fn note(&mut self, _now: Now, note: &Note) {
        match note {
            Note::Ready => self.core().ready.store(true, Ordering::Release),
            Note::Stopped => self.core().stopped.store(true, Ordering::Relaxed),
            Note::Fenced { error, .. } => {
                // Rare, and held by a reader for a copy only.
                let mut fenced = self.core().fenced.lock().unwrap_or_else(PoisonError::into_inner);
                fenced.get_or_insert_with(|| error.to_string());
            }
            Note::Request { api, error, phases, .. } => self.core().request(*api, *error, phases),
            Note::Closed { why, .. } => {
                if let Some(at) = close_at(why) {
                    self.core().closes[at].add(1);
                }
            }
            Note::Acked { partition, base, next, .. } => {
                let messages = u64::try_from(next.0 - base.0).unwrap_or(0);
                self.core().messages_in.add(messages);
                if let Some(cell) = self.cell(*partition) {
                    cell.messages_in.add(messages);
                }
            }
            Note::Traffic { partition, in_bytes, out_bytes } => {
                self.core().bytes_in.add(u64::from(*in_bytes));
                self.core().bytes_out.add(u64::from(*out_bytes));
                if let Some(cell) = self.cell(*partition) {
                    cell.bytes_in.add(u64::from(*in_bytes));
                    cell.bytes_out.add(u64::from(*out_bytes));
                }
            }
            Note::Visible { partition, high_watermark } => {
                if let Some(cell) = self.cell(*partition) {
                    cell.high_watermark.set(u64::try_from(high_watermark.0).unwrap_or(0));
                }
            }
            Note::Log { partition, start, end, size_bytes } => {
                if let Some(cell) = self.cell(*partition) {
                    cell.start.set(u64::try_from(start.0).unwrap_or(0));
                    cell.end.set(u64::try_from(end.0).unwrap_or(0));
                    cell.size_bytes.set(*size_bytes);
                }
            }
            Note::Image(image) => self.unpublished = Some(image.clone()),
            // With one replica all that was recovered is visible, and no note of its own says so.
            Note::Recovered { partition, report } => {
                self.core().damaged.add(report.damage.len() as u64);
                if let Some(cell) = self.cell(*partition) {
                    cell.high_watermark.set(u64::try_from(report.end.0).unwrap_or(0));
                }
            }
            Note::Group { group, figures } => self.group(group, figures.as_ref()),
            Note::Groups { count } => self.core().groups_known.set(u64::from(*count)),
            Note::NoSpace { .. } => self.core().no_space.add(1),
            Note::Damaged { .. } => self.core().damaged.add(1),
            Note::Compaction(stats) => {
                for (counter, value) in self.core().compaction.iter().zip(compaction(stats)) {
                    counter.set(value);
                }
            }
            Note::Truncated { .. } | Note::SpaceAgain { .. } | Note::SaidAgain { .. } => {}
        }
    }

    fn turn(&mut self, _now: Now, from: &Gauges) {
        let core = self.core();
        core.beats.add(1);
        for (counter, value) in core.gauges.iter().zip(gauges(from)) {
            counter.set(value);
        }
        for ((used, allowed), (is, may)) in core.memory.iter().zip(from.memory) {
            used.set(is);
            allowed.set(may);
        }
        self.publish();
        self.compare_with_image();
        self.list();
        self.list_groups();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use ringmain_disk::DiskError;
    use ringmain_metadata::Topic;
    use ringmain_types::*;

    use super::*;

    pub(crate) const NOW: Now = Now { mono: ringmain_types::Instant(0), wall: WallMs(0) };

    pub(crate) fn partition(topic: u128, index: i32) -> Partition {
        Partition { topic: TopicId(topic), index: PartitionIndex(index) }
    }
    pub(crate) fn image(next: i64, topics: &[(u128, &str)]) -> Note {
        let topic = |id: u128, name: &str| Topic {
            id: TopicId(id),
            name: name.into(),
            partitions: Vec::new(),
            configs: BTreeMap::new(),
            internal: false,
        };
        Note::Image(Arc::new(ClusterImage {
            next: Offset(next),
            topics: topics.iter().map(|(id, name)| (TopicId(*id), Arc::new(topic(*id, name)))).collect(),
            ..ClusterImage::default()
        }))
    }
    fn acked(partition: Partition, base: i64, next: i64) -> Note {
        Note::Acked { partition, base: Offset(base), next: Offset(next), acks: -1 }
    }
    fn listed(metrics: &Metrics, core: usize) -> Vec<(Partition, u64)> {
        let listed = metrics.cores[core].partitions.lock().unwrap();
        listed.iter().map(|cell| (cell.partition, cell.messages_in.get())).collect()
    }

    #[test]
    fn a_node_is_ready_when_all_shards_are_and_no_directory_is_fenced() {
        let metrics = Metrics::new(2, &Limits::tiny());
        let mut sinks = [metrics.sink(ShardId(0)), metrics.sink(ShardId(1))];
        assert_eq!(metrics.health(), Health::NotReady("shard 0 is not ready yet".into()));
        sinks[0].note(NOW, &Note::Ready);
        assert_eq!(metrics.health(), Health::NotReady("shard 1 is not ready yet".into()));
        sinks[1].note(NOW, &Note::Ready);
        assert_eq!(metrics.health(), Health::Ready);
        let error = DiskError { operation: "flush", path: "journal".into(), errno: DiskError::EIO };
        sinks[1].note(NOW, &Note::Fenced { dir: DirId(0), error });
        let Health::NotReady(why) = metrics.health() else { panic!() };
        assert!(why.contains("shard 1") && why.contains("flush journal"), "{why}");
    }

    #[test]
    fn partitions_are_listed_and_forgotten_with_their_topic() {
        let metrics = Metrics::new(2, &Limits::tiny());
        let mut sinks = [metrics.sink(ShardId(0)), metrics.sink(ShardId(1))];
        sinks[0].note(NOW, &image(1, &[(5, "a"), (6, "b")]));
        for (sink, topic) in [(0, 5), (1, 6), (1, 5)] {
            sinks[sink].note(NOW, &acked(partition(topic, sink as i32), 10, 13));
            sinks[sink].turn(NOW, &Gauges::default());
        }
        assert_eq!(listed(&metrics, 0), [(partition(5, 0), 3)]);
        assert_eq!(listed(&metrics, 1), [(partition(5, 1), 3), (partition(6, 1), 3)]);
        sinks[0].note(NOW, &image(2, &[(6, "b")]));
        sinks[1].note(NOW, &image(1, &[(5, "a"), (6, "b")]));
        sinks.iter_mut().for_each(|sink| sink.turn(NOW, &Gauges::default()));
        assert_eq!(listed(&metrics, 0), []);
        assert_eq!(listed(&metrics, 1), [(partition(6, 1), 3)]);
        assert_eq!(metrics.cores[1].messages_in.get(), 6, "what the broker took in stays");
    }

    #[test]
    fn series_are_bounded() {
        let limits = Limits::tiny();
        let metrics = Metrics::new(1, &limits);
        let mut sink = metrics.sink(ShardId(0));
        for index in 0..limits.metric_partitions_max as i32 + 3 {
            sink.note(NOW, &acked(partition(5, index), 0, 1));
        }
        sink.turn(NOW, &Gauges::default());
        assert_eq!(listed(&metrics, 0).len(), limits.metric_partitions_max as usize);
        assert_eq!(metrics.cores[0].partitions_left_out.get(), 3);
        assert_eq!(metrics.cores[0].messages_in.get(), u64::from(limits.metric_partitions_max) + 3);
    }

    #[test]
    fn a_core_never_waits_for_the_reader() {
        let metrics = Metrics::new(1, &Limits::tiny());
        let mut sink = metrics.sink(ShardId(0));
        let (list, held) = (metrics.cores[0].partitions.lock().unwrap(), metrics.image.lock().unwrap());
        sink.note(NOW, &acked(partition(5, 0), 0, 1));
        sink.note(NOW, &image(1, &[(5, "a")]));
        sink.turn(NOW, &Gauges::default());
        drop((list, held));
        assert_eq!(listed(&metrics, 0), []);
        assert_eq!(metrics.image(), None);
        sink.turn(NOW, &Gauges::default());
        assert_eq!(listed(&metrics, 0), [(partition(5, 0), 1)]);
        assert!(metrics.image().is_some());
    }

    #[test]
    fn histograms_take_every_value() {
        let histogram = Histogram::default();
        for ns in [0, BUCKETS_NS[0], BUCKETS_NS[0] + 1, BUCKETS_NS[17], BUCKETS_NS[17] + 1, u64::MAX] {
            histogram.observe(ns);
        }
        let counts: Vec<u64> = histogram.buckets.iter().map(Counter::get).collect();
        assert_eq!((counts[0], counts[1], counts[17], counts[18]), (2, 1, 1, 2));
        assert!(BUCKETS_NS.is_sorted_by(|a, b| a < b));
    }
}
