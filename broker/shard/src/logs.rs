//! From an image to the logs that this shard owns, and what each topic's configs say.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ringmain_batch::{CheckRules, Codec};
use ringmain_log::{CompactionConfig, FlushMode, Known, LogConfig, Store};
use ringmain_metadata::config::{Compression, Flush, Layers, TimestampType};
use ringmain_metadata::{BrokerConfig, ClusterImage, Topic, TopicConfig};
use ringmain_types::*;

use crate::Note;

/// The record that registers a broker's first life follows on the one that begins the metadata.
const FIRST_LIFE: BrokerEpoch = BrokerEpoch(1);

/// One partition of this shard.
pub(crate) struct OwnedLog {
    pub(crate) id: LogId,
    pub(crate) epoch: LeaderEpoch,
    pub(crate) flush: FlushMode,
    /// `cleanup.policy` has `delete`.
    pub(crate) delete: bool,
    /// Recovered, or new.
    pub(crate) usable: bool,
    /// Its files could not be read: whoever asks is told so, rather than shown an empty log.
    damaged: bool,
    /// High watermark: what readers see ends here.
    pub(crate) visible: Offset,
    /// Appended, not yet visible: the offset behind each batch, and its bytes.
    unseen: VecDeque<(Offset, u32)>,
}

impl OwnedLog {
    pub(crate) fn appended(&mut self, next: Offset, bytes: u32) {
        self.unseen.push_back((next, bytes));
    }

    /// Moves the high watermark; the bytes that became visible, when it moved.
    pub(crate) fn advance(&mut self, to: Offset) -> Option<u64> {
        if to <= self.visible {
            return None;
        }
        self.visible = to;
        let mut grown = 0;
        while let Some(&(next, bytes)) = self.unseen.front()
            && next <= to
        {
            grown += u64::from(bytes);
            self.unseen.pop_front();
        }
        // At least one: the watermark moved, whoever counted.
        Some(grown.max(1))
    }
}

/// A log that can't be made yet: another topic's log of this name is still being removed.
struct Blocked {
    partition: Partition,
    name: String,
}

pub(crate) struct Logs {
    shard: ShardId,
    shards: u16,
    owned: BTreeMap<Partition, OwnedLog>,
    by_id: BTreeMap<LogId, Partition>,
    recovering: BTreeSet<Partition>,
    removing: BTreeMap<String, LogId>,
    removing_names: BTreeMap<LogId, String>,
    blocked: Vec<Blocked>,
    configs: BTreeMap<TopicId, Arc<TopicConfig>>,
    /// Changed since `Note::Log` told of them.
    changed: BTreeSet<Partition>,
}

impl Logs {
    pub(crate) fn new(shard: ShardId, shards: u16) -> Logs {
        Logs {
            shard,
            shards,
            owned: BTreeMap::new(),
            by_id: BTreeMap::new(),
            recovering: BTreeSet::new(),
            removing: BTreeMap::new(),
            removing_names: BTreeMap::new(),
            blocked: Vec::new(),
            configs: BTreeMap::new(),
            changed: BTreeSet::new(),
        }
    }

    /// A usable log, or why there is none: 3, 6 while it is not ready, 56 when it can't be read.
    pub(crate) fn get(&mut self, partition: Partition) -> Result<&mut OwnedLog, ErrorCode> {
        match self.owned.get_mut(&partition) {
            Some(log) if log.damaged => Err(ErrorCode::KafkaStorageError),
            Some(log) if log.usable => Ok(log),
            Some(_) => Err(ErrorCode::NotLeaderOrFollower),
            None => Err(ErrorCode::UnknownTopicOrPartition),
        }
    }

    pub(crate) fn by_id(&mut self, log: LogId) -> Option<(Partition, &mut OwnedLog)> {
        let partition = *self.by_id.get(&log)?;
        Some((partition, self.owned.get_mut(&partition)?))
    }

    /// A log's size changed behind its back.
    pub(crate) fn compacted(&mut self, log: LogId) {
        if let Some(partition) = self.by_id.get(&log) {
            self.changed.insert(*partition);
        }
    }

    pub(crate) fn changed(&mut self, partition: Partition) {
        self.changed.insert(partition);
    }

    pub(crate) fn any_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Tells of each log that changed since the last time.
    pub(crate) fn tell(&mut self, store: &Store, notes: &mut Vec<Note>) {
        for partition in std::mem::take(&mut self.changed) {
            let Some(log) = self.owned.get(&partition).filter(|log| log.usable) else { continue };
            let (start, end, size_bytes) = (store.start(log.id), store.end(log.id), store.size_bytes(log.id));
            notes.push(Note::Log { partition, start, end, size_bytes });
        }
    }

    pub(crate) fn config(&self, topic: TopicId) -> Option<&Arc<TopicConfig>> {
        self.configs.get(&topic)
    }

    /// Everything that the image asks for exists.
    pub(crate) fn settled(&self) -> bool {
        self.recovering.is_empty() && self.blocked.is_empty()
    }

    /// Follows from the old image to the new one; the logs that went are put into `gone`. Linear in topics, and in the partitions of
    /// those that changed.
    pub(crate) fn apply(
        &mut self,
        now: Now,
        store: &mut Store,
        scope: &ImageScope<'_>,
        old: &ClusterImage,
        gone: &mut Vec<LogId>,
    ) {
        let image = scope.image;
        let configs_changed = old.broker_configs != image.broker_configs;
        for (id, topic) in old.topics.iter().filter(|(id, _)| !image.topics.contains_key(id)) {
            self.configs.remove(id);
            self.remove_topic(now, store, topic, gone);
        }
        for (id, topic) in &image.topics {
            let before = old.topics.get(id);
            if before.is_some_and(|before| Arc::ptr_eq(before, topic)) && !configs_changed {
                continue;
            }
            let layers = Layers::new(image, scope.broker_config, scope.broker);
            self.configs.insert(*id, Arc::new(TopicConfig::resolve(&layers, &topic.configs)));
            self.place_topic(now, store, topic);
        }
    }

    /// Behind the first image: what the store still has beyond it is of topics whose deletion was acknowledged in a life that was
    /// killed. Not when this life began the metadata: then logs without a topic are no leftovers, whatever they are.
    pub(crate) fn sweep(&self, now: Now, store: &mut Store, scope: &ImageScope<'_>) {
        let begun_before = scope.image.brokers.get(&scope.broker).is_some_and(|broker| broker.epoch > FIRST_LIFE);
        if !begun_before {
            return;
        }
        let layers = Layers::new(scope.image, scope.broker_config, scope.broker);
        let config = log_config(&TopicConfig::resolve(&layers, &BTreeMap::new()));
        let topics = scope.image.names.keys().map(|name| name.to_string()).collect();
        let removed = scope.image.removed.iter().copied().collect();
        store.remove_others(now, &config, Known { shards: self.shards, topics, removed });
    }

    /// Makes the missing logs of a topic and gives the others its configs.
    fn place_topic(&mut self, now: Now, store: &mut Store, topic: &Topic) {
        let Some(config) = self.configs.get(&topic.id).cloned() else { return };
        for (index, state) in topic.partitions.iter().enumerate() {
            let partition = Partition { topic: topic.id, index: PartitionIndex(index as i32) };
            if owner(partition, self.shards) != self.shard {
                continue;
            }
            if let Some(log) = self.owned.get_mut(&partition) {
                log.epoch = state.leader_epoch;
                log.flush = flush_mode(&config);
                log.delete = config.delete;
                store.configure(now, log.id, log_config(&config));
                continue;
            }
            let name = format!("{}-{index}", topic.name);
            if self.removing.contains_key(&name) {
                self.blocked.push(Blocked { partition, name });
            } else {
                self.create(now, store, partition, &name, state.leader_epoch);
            }
        }
    }

    fn create(&mut self, now: Now, store: &mut Store, partition: Partition, name: &str, epoch: LeaderEpoch) {
        let Some(config) = self.configs.get(&partition.topic) else { return };
        let id = store.create(now, partition, name, log_config(config));
        let usable = !store.recovering(id);
        let log = OwnedLog {
            id,
            epoch,
            flush: flush_mode(config),
            delete: config.delete,
            usable,
            damaged: false,
            visible: if usable { store.end(id) } else { Offset(0) },
            unseen: VecDeque::new(),
        };
        self.owned.insert(partition, log);
        self.by_id.insert(id, partition);
        self.changed.insert(partition);
        if !usable {
            self.recovering.insert(partition);
        }
    }

    fn remove_topic(&mut self, now: Now, store: &mut Store, topic: &Topic, gone: &mut Vec<LogId>) {
        self.blocked.retain(|blocked| blocked.partition.topic != topic.id);
        for index in 0..topic.partitions.len() {
            let partition = Partition { topic: topic.id, index: PartitionIndex(index as i32) };
            let Some(log) = self.owned.remove(&partition) else { continue };
            self.by_id.remove(&log.id);
            self.recovering.remove(&partition);
            store.remove(now, log.id);
            let name = format!("{}-{index}", topic.name);
            self.removing_names.insert(log.id, name.clone());
            self.removing.insert(name, log.id);
            gone.push(log.id);
        }
    }

    /// The log is usable from now on.
    pub(crate) fn recovered(&mut self, store: &Store, log: LogId) {
        let Some(&partition) = self.by_id.get(&log) else { return };
        self.recovering.remove(&partition);
        if let Some(owned) = self.owned.get_mut(&partition)
            && !owned.usable
        {
            owned.usable = true;
            owned.damaged = store.is_damaged(log);
            owned.visible = store.end(log);
            self.changed.insert(partition);
        }
    }

    /// Its files are gone: a log of the same name may be made.
    pub(crate) fn removed(&mut self, now: Now, store: &mut Store, image: &ClusterImage, log: LogId) {
        let Some(name) = self.removing_names.remove(&log) else { return };
        if self.removing.get(&name) == Some(&log) {
            self.removing.remove(&name);
        }
        let (free, still) = std::mem::take(&mut self.blocked).into_iter().partition(|blocked| blocked.name == name);
        self.blocked = still;
        let free: Vec<Blocked> = free;
        for Blocked { partition, name } in free {
            if let Some(state) = image.partition(partition) {
                self.create(now, store, partition, &name, state.leader_epoch);
            }
        }
    }
}

/// What an image means depends on who reads it.
pub(crate) struct ImageScope<'a> {
    pub(crate) image: &'a ClusterImage,
    pub(crate) broker_config: &'a BrokerConfig,
    pub(crate) broker: BrokerId,
}

fn flush_mode(config: &TopicConfig) -> FlushMode {
    match config.flush {
        Flush::Group => FlushMode::Group,
        Flush::Async => FlushMode::Async,
    }
}

pub(crate) fn log_config(config: &TopicConfig) -> LogConfig {
    // A segment that is still written to is not compacted: it must not grow older than its records may.
    let lag_ms = u64::try_from(config.max_compaction_lag_ms).unwrap_or(u64::MAX);
    let segment_ms = if config.compact { config.segment_ms.min(lag_ms) } else { config.segment_ms };
    LogConfig {
        segment_bytes: config.segment_bytes,
        segment_ms,
        segment_jitter_ms: config.segment_jitter_ms,
        segment_index_bytes: config.segment_index_bytes,
        index_interval_bytes: config.index_interval_bytes,
        retention_bytes: config.retention_bytes,
        retention_ms: config.retention_ms,
        delete: config.delete,
        compaction: config.compact.then_some(CompactionConfig {
            min_cleanable_dirty_ratio: config.min_cleanable_dirty_ratio,
            min_compaction_lag_ms: config.min_compaction_lag_ms,
            max_compaction_lag_ms: config.max_compaction_lag_ms,
            delete_retention_ms: config.delete_retention_ms,
        }),
        log_append_time: config.timestamp_type == TimestampType::LogAppendTime,
        producer_expiration_ms: config.producer_expiration_ms,
        flush: flush_mode(config),
        reserve_bytes: 0,
    }
}

/// What a topic asks of the batches it takes.
pub(crate) fn check_rules(config: &TopicConfig, limits: &Limits, now: Now) -> CheckRules {
    CheckRules {
        batch_bytes_max: config.max_message_bytes,
        decompressed_bytes_max: limits.batch_decompressed_bytes_max,
        compacted: config.compact,
        timestamps: (
            WallMs(now.wall.0.saturating_sub(config.timestamp_before_max_ms)),
            WallMs(now.wall.0.saturating_add(config.timestamp_after_max_ms)),
        ),
        log_append_time: config.timestamp_type == TimestampType::LogAppendTime,
        now: now.wall,
    }
}

/// The codec that a topic keeps its batches in; `None` is whatever the producer chose.
pub(crate) fn topic_codec(config: &TopicConfig) -> Option<Codec> {
    match config.compression {
        Compression::Producer => None,
        Compression::Uncompressed => Some(Codec::None),
        Compression::Gzip => Some(Codec::Gzip),
        Compression::Snappy => Some(Codec::Snappy),
        Compression::Lz4 => Some(Codec::Lz4),
        Compression::Zstd => Some(Codec::Zstd),
    }
}
