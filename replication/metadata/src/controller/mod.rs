//! Decides changes of the cluster's metadata. A request yields records and an answer; only `replay` changes what the image says.
//!
//! The caller replays the records of a decision at once, before it asks for the next (writes see uncommitted state), publishes the
//! image and sends the answer when they are committed. An answer without records waits too until what was replayed before it is
//! committed: it may rest on that.

mod configs;
mod topics;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringmain_types::*;

use crate::config::{BrokerConfig, Entry, Layers};
use crate::image::{Broker, ClusterImage, PartitionState, Topic};
use crate::name::{collision_key, is_internal};
use crate::record::{ConfigResource, RECORD_BYTES_MAX, Record};

pub use configs::{AlterConfig, AlterOperation, AlterResource};
pub use topics::{Assignment, CreatedTopic, NewPartitions, NewTopic, TopicKey};

/// The records that may follow `ClusterFormat` of this version: 2 has `Broker` and `Removed`, and topics may be said again.
pub(crate) const CLUSTER_FORMAT: u16 = 2;
/// What a log begins with that was never said again.
const FIRST_FORMAT: u16 = 1;
/// Ids handed out between two records: a restart loses at most this many of 2^63.
const PRODUCER_ID_BLOCK: i64 = 1000;
/// Partitions that one request may make, as in Kafka: its records are one batch.
const PARTITIONS_PER_REQUEST_MAX: u32 = 10_000;

#[derive(Clone, Debug)]
pub struct ControllerConfig {
    pub broker: BrokerId,
    /// Keys topic ids; differs at every start.
    pub seed: u64,
    pub limits: Limits,
    pub properties: Arc<BrokerConfig>,
}

/// Records to append in one batch, and an answer to each thing asked, in the order asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<T> {
    pub records: Vec<Record>,
    pub results: Vec<T>,
}

/// Why something asked was not done: Kafka's code, and words for the person who asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: ErrorCode,
    pub message: String,
}

/// A message may quote what was sent; in older versions of the protocol it must fit 32767 bytes.
const MESSAGE_CHARS_MAX: usize = 2000;

impl Refusal {
    fn new(code: ErrorCode, message: impl Into<String>) -> Refusal {
        let message: String = message.into();
        Refusal { code, message: message.chars().take(MESSAGE_CHARS_MAX).collect() }
    }
}

/// The log does not fit together: it was written by a newer version, or is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayError {
    Format {
        version: u16,
        known: u16,
    },
    /// The offset is not the next one.
    Offset {
        expected: Offset,
        got: Offset,
    },
    UnknownTopic {
        at: Offset,
        topic: TopicId,
    },
    /// A topic whose id or name is taken.
    TopicExists {
        at: Offset,
        topic: TopicId,
    },
    /// An index that leaves a gap.
    PartitionGap {
        at: Offset,
        partition: Partition,
    },
    /// The first record does not say what the log is.
    NoFormat {
        at: Offset,
    },
}

impl std::fmt::Display for ReplayError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReplayError::Format { version, known } => {
                write!(
                    f,
                    "the metadata log is of format {version}; this version knows up to {known}: start a newer one"
                )
            }
            ReplayError::Offset { expected, got } => {
                write!(f, "the metadata log goes on at offset {} where {} was expected", got.0, expected.0)
            }
            ReplayError::UnknownTopic { at, topic } => {
                write!(f, "metadata record {} is about a topic that does not exist: {:032x}", at.0, topic.0)
            }
            ReplayError::TopicExists { at, topic } => {
                write!(f, "metadata record {} makes a topic whose id or name is taken: {:032x}", at.0, topic.0)
            }
            ReplayError::PartitionGap { at, partition } => {
                write!(f, "metadata record {} makes partition {} before those below it", at.0, partition.index.0)
            }
            ReplayError::NoFormat { at } => write!(f, "metadata record {} comes before the log's format", at.0),
        }
    }
}

/// Lives on shard 0. Its state is the image plus what follows from it.
pub struct Controller {
    config: ControllerConfig,
    image: Arc<ClusterImage>,
    /// Names by collision key, of those topics that have a '.' or '_'.
    collisions: BTreeMap<String, BTreeSet<Arc<str>>>,
    /// The unused part of the block of producer ids that this life took: (next, end).
    block: (i64, i64),
    /// The end of the block that was asked for last: it is ours once its record is replayed. If that never came to be, it is asked
    /// for again.
    asked: Option<i64>,
    /// Topic ids drawn in this life.
    drawn: u64,
    /// The log's first record was replayed.
    begun: bool,
}

impl Controller {
    pub fn new(config: ControllerConfig) -> Controller {
        // Said again they are one record.
        assert!(config.limits.removed_topics_max as usize * size_of::<TopicId>() <= RECORD_BYTES_MAX / 2);
        Controller {
            config,
            image: Arc::default(),
            collisions: BTreeMap::new(),
            block: (0, 0),
            asked: None,
            drawn: 0,
            begun: false,
        }
    }

    /// The log's first record is at `start`: what was before it was said again from there on, all of it, or it would not start there.
    pub fn begin(&mut self, start: Offset) {
        assert!(!self.begun);
        Arc::make_mut(&mut self.image).next = start;
    }

    /// The image of everything replayed so far: publish it when that is committed.
    pub fn image(&self) -> Arc<ClusterImage> {
        self.image.clone()
    }

    pub fn limits(&self) -> &Limits {
        &self.config.limits
    }

    /// The configs this broker was started with.
    pub fn properties(&self) -> &BrokerConfig {
        &self.config.properties
    }

    /// To be appended when the log has been replayed, before anything is decided: an empty log gets its format; this broker's
    /// new life is registered in any.
    pub fn start(&self, cluster_id: &str, host: &str, port: u16) -> Vec<Record> {
        let mut records = Vec::new();
        if !self.begun {
            records.push(Record::ClusterFormat { version: FIRST_FORMAT, cluster_id: cluster_id.to_owned() });
        }
        records.push(Record::RegisterBroker {
            broker: self.config.broker,
            host: host.to_owned(),
            port,
            rack: self.config.properties.rack.clone(),
        });
        records
    }

    /// An id that no producer had before. A record only when a new block is begun.
    pub fn allocate_producer_id(&mut self) -> Result<(Vec<Record>, ProducerId), Refusal> {
        let (next, end) = self.block;
        if next < end {
            self.block.0 += 1;
            return Ok((Vec::new(), ProducerId(next)));
        }
        let first = self.image.next_producer_id;
        let Some(end) = first.checked_add(PRODUCER_ID_BLOCK) else {
            return Err(Refusal::new(ErrorCode::UnknownServerError, "all producer ids were given out"));
        };
        self.asked = Some(end);
        Ok((vec![Record::ProducerIds { next: ProducerId(end) }], ProducerId(first)))
    }

    /// The only thing that changes the image. `offset` is the record's.
    pub fn replay(&mut self, offset: Offset, record: &Record) -> Result<(), ReplayError> {
        let expected = self.image.next;
        if offset != expected {
            return Err(ReplayError::Offset { expected, got: offset });
        }
        if !self.begun && !matches!(record, Record::ClusterFormat { .. }) {
            return Err(ReplayError::NoFormat { at: offset });
        }
        let image = Arc::make_mut(&mut self.image);
        match record {
            Record::ClusterFormat { version, cluster_id } => {
                if *version > CLUSTER_FORMAT {
                    return Err(ReplayError::Format { version: *version, known: CLUSTER_FORMAT });
                }
                image.cluster_id = cluster_id.clone();
            }
            Record::RegisterBroker { broker, host, port, rack } => {
                let epoch = BrokerEpoch(offset.0);
                let broker = Broker { id: *broker, epoch, host: host.clone(), port: *port, rack: rack.clone() };
                image.brokers.insert(broker.id, Arc::new(broker));
            }
            // Said again.
            Record::Topic { id, name } if image.topics.get(id).is_some_and(|topic| *topic.name == **name) => {}
            Record::Topic { id, name } => {
                if image.topics.contains_key(id) || image.names.contains_key(name.as_str()) {
                    return Err(ReplayError::TopicExists { at: offset, topic: *id });
                }
                let name: Arc<str> = name.as_str().into();
                if let Some(key) = collision_key(&name) {
                    self.collisions.entry(key).or_default().insert(name.clone());
                }
                image.names.insert(name.clone(), *id);
                let internal = is_internal(&name);
                let topic = Topic { id: *id, name, partitions: Vec::new(), configs: BTreeMap::new(), internal };
                image.topics.insert(*id, Arc::new(topic));
            }
            Record::Partition { partition, replicas, isr, leader, leader_epoch, partition_epoch } => {
                let state = PartitionState {
                    replicas: replicas.clone(),
                    isr: isr.clone(),
                    leader: *leader,
                    leader_epoch: *leader_epoch,
                    partition_epoch: *partition_epoch,
                };
                replay_partition(image, offset, *partition, state)?;
            }
            Record::RemoveTopic { id } => {
                let Some(topic) = image.topics.remove(id) else {
                    return Err(ReplayError::UnknownTopic { at: offset, topic: *id });
                };
                image.names.remove(&topic.name);
                let removed = Arc::make_mut(&mut image.removed);
                removed.push_back(*id);
                if removed.len() > self.config.limits.removed_topics_max as usize {
                    removed.pop_front();
                }
                image.partitions -= topic.partitions.len() as u32;
                if let Some(key) = collision_key(&topic.name)
                    && let Some(names) = self.collisions.get_mut(&key)
                {
                    names.remove(&topic.name);
                    if names.is_empty() {
                        self.collisions.remove(&key);
                    }
                }
            }
            Record::Config { resource, name, value } => replay_config(image, offset, resource, name, value)?,
            Record::ProducerIds { next } => {
                // The first of the block was given out with the record.
                if self.asked.take() == Some(next.0) {
                    self.block = (image.next_producer_id + 1, next.0);
                }
                image.next_producer_id = image.next_producer_id.max(next.0);
            }
            Record::Broker { broker, epoch, host, port, rack } => {
                let (id, epoch, port) = (*broker, *epoch, *port);
                let broker = Broker { id, epoch, host: host.clone(), port, rack: rack.clone() };
                image.brokers.insert(id, Arc::new(broker));
            }
            Record::Removed { topics } => {
                let most = self.config.limits.removed_topics_max as usize;
                let last = topics.len().saturating_sub(most);
                image.removed = Arc::new(topics[last..].iter().copied().collect());
            }
        }
        image.next = Offset(offset.0 + 1);
        self.begun = true;
        Ok(())
    }

    /// How a topic with these overrides is configured.
    pub fn topic_entries(&self, overrides: &BTreeMap<String, String>) -> Vec<Entry> {
        self.layers().topic_entries(overrides)
    }

    fn layers(&self) -> Layers<'_> {
        Layers::new(&self.image, &self.config.properties, self.config.broker)
    }
}

fn replay_partition(
    image: &mut ClusterImage,
    at: Offset,
    partition: Partition,
    state: PartitionState,
) -> Result<(), ReplayError> {
    let Some(topic) = image.topics.get_mut(&partition.topic) else {
        return Err(ReplayError::UnknownTopic { at, topic: partition.topic });
    };
    let index = usize::try_from(partition.index.0).map_err(|_| ReplayError::PartitionGap { at, partition })?;
    if index > topic.partitions.len() {
        return Err(ReplayError::PartitionGap { at, partition });
    }
    if topic.partitions.get(index) == Some(&state) {
        // Said again: what was published is not copied for it.
        return Ok(());
    }
    let topic = Arc::make_mut(topic);
    if index == topic.partitions.len() {
        topic.partitions.push(state);
        image.partitions += 1;
    } else {
        topic.partitions[index] = state;
    }
    Ok(())
}

fn replay_config(
    image: &mut ClusterImage,
    at: Offset,
    resource: &ConfigResource,
    name: &str,
    value: &Option<String>,
) -> Result<(), ReplayError> {
    match resource {
        ConfigResource::Group(group) => {
            let configs = image.group_configs.entry(group.as_str().into()).or_default();
            if configs.get(name) != value.as_ref() {
                set(Arc::make_mut(configs), name, value);
            }
            if configs.is_empty() {
                image.group_configs.remove(group.as_str());
            }
        }
        ConfigResource::Topic(id) => {
            let topic = image.topics.get_mut(id).ok_or(ReplayError::UnknownTopic { at, topic: *id })?;
            if topic.configs.get(name) != value.as_ref() {
                set(&mut Arc::make_mut(topic).configs, name, value);
            }
        }
        ConfigResource::Broker(broker) => {
            let key = broker.map_or(String::new(), |broker| broker.0.to_string());
            let configs = image.broker_configs.entry(key.clone()).or_default();
            set(configs, name, value);
            if configs.is_empty() {
                image.broker_configs.remove(&key);
            }
        }
    }
    Ok(())
}

fn set(configs: &mut BTreeMap<String, String>, name: &str, value: &Option<String>) {
    match value {
        Some(value) => drop(configs.insert(name.to_owned(), value.clone())),
        None => drop(configs.remove(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now { mono: Instant(0), wall: WallMs(0) };

    fn controller(seed: u64) -> Controller {
        let mut limits = Limits::production(1 << 30);
        limits.topics_max = 1_000_000;
        let config = ControllerConfig { broker: BrokerId(1), seed, limits, properties: Arc::default() };
        let mut controller = Controller::new(config);
        for record in controller.start("c", "h", 9092) {
            controller.replay(controller.image.next, &record).unwrap();
        }
        controller
    }

    #[test]
    fn topic_ids_are_version_4_and_never_come_twice() {
        let mut seen = BTreeSet::new();
        for seed in 0..20 {
            let mut controller = controller(seed);
            for nth in 0..500 {
                let new =
                    NewTopic { name: format!("t{nth}"), partitions: 1, replication_factor: 1, ..Default::default() };
                let decision = controller.create_topics(NOW, &[new], false);
                let id = decision.results[0].as_ref().unwrap().id;
                assert!(seen.insert(id), "seed {seed}, topic {nth}");
                assert_eq!((id.0 >> 76 & 0xf, id.0 >> 62 & 3), (4, 2));
                assert_ne!(id.0 >> 122, 62, "begins with '-' in base64");
                // Every second decision is lost: the next one must not draw the same.
                for record in decision.records.iter().filter(|_| nth % 2 == 0) {
                    controller.replay(controller.image.next, record).unwrap();
                }
            }
        }
    }

    #[test]
    fn a_block_of_producer_ids_counts_only_once_its_record_does() {
        let mut controller = controller(1);
        // The caller could not append: nobody got that id.
        for _ in 0..3 {
            let (records, id) = controller.allocate_producer_id().unwrap();
            assert_eq!((records.len(), id), (1, ProducerId(0)));
        }
        let (records, _) = controller.allocate_producer_id().unwrap();
        controller.replay(controller.image.next, &records[0]).unwrap();
        assert_eq!(controller.allocate_producer_id(), Ok((vec![], ProducerId(1))));
        // A block of another life is not ours.
        let foreign = Record::ProducerIds { next: ProducerId(5000) };
        controller.replay(controller.image.next, &foreign).unwrap();
        assert_eq!(controller.allocate_producer_id(), Ok((vec![], ProducerId(2))));
    }

    #[test]
    fn an_image_that_was_published_does_not_change() {
        let mut controller = controller(1);
        let new = NewTopic { name: "a".into(), partitions: 1, replication_factor: 1, ..Default::default() };
        let created = controller.create_topics(NOW, &[new], false);
        for record in &created.records {
            controller.replay(controller.image.next, record).unwrap();
        }
        let before = controller.image();
        let copy = (*before).clone();
        let id = created.results[0].as_ref().unwrap().id;
        for index in 1..3 {
            let record = Record::Partition {
                partition: Partition { topic: id, index: PartitionIndex(index) },
                replicas: vec![BrokerId(1)],
                isr: vec![BrokerId(1)],
                leader: BrokerId(1),
                leader_epoch: LeaderEpoch(0),
                partition_epoch: PartitionEpoch(0),
            };
            controller.replay(controller.image.next, &record).unwrap();
        }
        assert_eq!(*before, copy);
        assert_eq!((before.partitions, controller.image().partitions), (1, 3));
    }

    #[test]
    fn a_log_that_does_not_fit_together_is_an_error_and_changes_nothing() {
        let mut controller = controller(1);
        let next = controller.image.next;
        let topic = Record::Topic { id: TopicId(9), name: "a".into() };
        controller.replay(next, &topic).unwrap();
        let at = controller.image.next;
        let before = (*controller.image).clone();
        let partition = |topic, index| Partition { topic: TopicId(topic), index: PartitionIndex(index) };
        let record = |partition| Record::Partition {
            partition,
            replicas: vec![],
            isr: vec![],
            leader: BrokerId(1),
            leader_epoch: LeaderEpoch(0),
            partition_epoch: PartitionEpoch(0),
        };
        let gap = |partition| Err(ReplayError::PartitionGap { at, partition });
        let unknown = |topic| Err(ReplayError::UnknownTopic { at, topic: TopicId(topic) });
        let mut replay = |record: Record| {
            let result = controller.replay(at, &record);
            assert_eq!(*controller.image, before);
            result
        };
        // Another name for the id, another id for the name.
        let taken = |topic| Err(ReplayError::TopicExists { at, topic: TopicId(topic) });
        assert_eq!(replay(Record::Topic { id: TopicId(9), name: "b".into() }), taken(9));
        assert_eq!(replay(Record::Topic { id: TopicId(8), name: "a".into() }), taken(8));
        assert_eq!(replay(record(partition(9, 1))), gap(partition(9, 1)));
        assert_eq!(replay(record(partition(9, -1))), gap(partition(9, -1)));
        assert_eq!(replay(record(partition(8, 0))), unknown(8));
        assert_eq!(replay(Record::RemoveTopic { id: TopicId(8) }), unknown(8));
        let resource = ConfigResource::Topic(TopicId(8));
        assert_eq!(replay(Record::Config { resource, name: "x".into(), value: None }), unknown(8));
        let format = Record::ClusterFormat { version: 3, cluster_id: "c".into() };
        assert_eq!(replay(format), Err(ReplayError::Format { version: 3, known: 2 }));
        let skipped = controller.replay(Offset(at.0 + 1), &Record::RemoveTopic { id: TopicId(9) });
        assert_eq!(skipped, Err(ReplayError::Offset { expected: at, got: Offset(at.0 + 1) }));
        let config =
            ControllerConfig { broker: BrokerId(1), seed: 0, limits: Limits::tiny(), properties: Arc::default() };
        let empty = Controller::new(config).replay(Offset(0), &Record::RemoveTopic { id: TopicId(9) });
        assert_eq!(empty, Err(ReplayError::NoFormat { at: Offset(0) }));
    }

    /// A state that was made by all kinds of records.
    fn full() -> Controller {
        let mut controller = controller(1);
        let partition = |topic, index| Record::Partition {
            partition: Partition { topic: TopicId(topic), index: PartitionIndex(index) },
            replicas: vec![BrokerId(1)],
            isr: vec![BrokerId(1)],
            leader: BrokerId(1),
            leader_epoch: LeaderEpoch(index),
            partition_epoch: PartitionEpoch(2),
        };
        let config = |resource, name: &str, value: Option<&str>| Record::Config {
            resource,
            name: name.into(),
            value: value.map(str::to_owned),
        };
        let mut records = vec![Record::RegisterBroker { broker: BrokerId(2), host: "g".into(), port: 2, rack: None }];
        for topic in 1..9 {
            records.push(Record::Topic { id: TopicId(topic), name: format!("a.topic_{topic}") });
            records.extend((0..topic as i32).map(|index| partition(topic, index)));
            records.push(config(ConfigResource::Topic(TopicId(topic)), "retention.ms", Some("5")));
            records.push(config(ConfigResource::Topic(TopicId(topic)), "flush", Some("async")));
        }
        records.push(config(ConfigResource::Topic(TopicId(4)), "flush", None));
        records.extend([2, 7].map(|topic| Record::RemoveTopic { id: TopicId(topic) }));
        for broker in [None, Some(BrokerId(1)), Some(BrokerId(3))] {
            records.push(config(ConfigResource::Broker(broker), "log.retention.ms", Some("7")));
        }
        records.push(config(ConfigResource::Broker(Some(BrokerId(3))), "log.retention.ms", None));
        records.push(config(ConfigResource::Group("g".into()), "consumer.session.timeout.ms", Some("50000")));
        records.push(Record::ProducerIds { next: ProducerId(3000) });
        for record in records {
            controller.replay(controller.image.next, &record).unwrap();
        }
        controller
    }

    /// Written by format 1, which did not say its state again.
    #[test]
    fn a_log_of_format_1_is_read() {
        let mut controller = Controller::new(full().config);
        for line in include_str!("../../tests/data/log-v1.txt").lines() {
            let bytes: Vec<u8> =
                (0..line.len()).step_by(2).map(|at| u8::from_str_radix(&line[at..at + 2], 16).unwrap()).collect();
            controller.replay(controller.image.next, &Record::decode(&bytes).unwrap()).unwrap();
        }
        assert_eq!(controller.image, full().image);
    }

    #[test]
    fn a_state_that_is_said_again_is_the_same_with_what_was_before_and_without() {
        let mut controller = full();
        let before = controller.image();
        let said: Vec<Record> = before.said_again().collect();
        assert_eq!(said.first(), Some(&Record::ClusterFormat { version: 2, cluster_id: "c".into() }));
        let mut from_there = Controller::new(controller.config.clone());
        from_there.begin(before.next);
        for (at, record) in said.iter().enumerate() {
            let record = Record::decode(&record.encode()).unwrap();
            // Cut off anywhere: all that was is still there.
            assert_eq!(ClusterImage { next: before.next, ..(*controller.image).clone() }, *before, "{at}");
            controller.replay(controller.image.next, &record).unwrap();
            from_there.replay(from_there.image.next, &record).unwrap();
        }
        assert_eq!(ClusterImage { next: before.next, ..(*controller.image).clone() }, *before);
        assert_eq!((&controller.image, &controller.collisions), (&from_there.image, &from_there.collisions));
        // Nothing that was published was copied for it.
        let same = |(id, topic): (&TopicId, &Arc<Topic>)| Arc::ptr_eq(topic, &controller.image.topics[id]);
        assert!(before.topics.iter().all(same));
        // Both go on alike.
        let remove = Record::RemoveTopic { id: TopicId(3) };
        for controller in [&mut controller, &mut from_there] {
            controller.replay(controller.image.next, &remove).unwrap();
        }
        assert_eq!(controller.image, from_there.image);
    }

    /// Histories of records that replay, from few names so that all of them meet: topics that come, grow and go, configs of every kind, lives,
    /// blocks of ids.
    struct Histories {
        state: u64,
        drawn: u128,
    }

    impl Histories {
        fn below(&mut self, bound: u64) -> u64 {
            self.state = self.state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.state >> 33) % bound
        }

        fn next(&mut self, image: &ClusterImage) -> Record {
            let ids: Vec<TopicId> = image.topics.keys().copied().collect();
            let broker = BrokerId(self.below(3) as i32);
            let value = [None, Some("7"), Some("8")][self.below(3) as usize].map(str::to_owned);
            let configured = |resource, name: &str| Record::Config { resource, name: name.to_owned(), value };
            let kind = self.below(10);
            let nth = self.below(ids.len().max(1) as u64) as usize;
            match (kind, ids.get(nth)) {
                (0, _) => Record::RegisterBroker { broker, host: "h".into(), port: self.below(9) as u16, rack: None },
                (1, _) => Record::ProducerIds { next: ProducerId(image.next_producer_id + 1000) },
                (2, _) => configured(ConfigResource::Group(format!("g{}", broker.0)), "consumer.session.timeout.ms"),
                (3, _) => configured(ConfigResource::Broker((broker.0 > 0).then_some(broker)), "log.retention.ms"),
                (4, Some(id)) => Record::RemoveTopic { id: *id },
                (5, Some(id)) => configured(ConfigResource::Topic(*id), "retention.ms"),
                (6 | 7, Some(id)) => Record::Partition {
                    partition: Partition {
                        topic: *id,
                        index: PartitionIndex(self.below(image.topics[id].partitions.len() as u64 + 1) as i32),
                    },
                    replicas: vec![broker],
                    isr: vec![broker],
                    leader: broker,
                    leader_epoch: LeaderEpoch(self.below(3) as i32),
                    partition_epoch: PartitionEpoch(0),
                },
                _ => {
                    // In no order of their ids.
                    self.drawn += 1;
                    let name = format!("a{}{}", ["", ".", "_"][self.below(3) as usize], self.below(4));
                    match image.names.get(name.as_str()) {
                        Some(id) => Record::RemoveTopic { id: *id },
                        None => Record::Topic { id: TopicId(self.drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15)), name },
                    }
                }
            }
        }
    }

    #[test]
    fn whatever_came_before_and_comes_after_what_was_said_again_stands_for_all_of_it() {
        let replay = |controller: &mut Controller, record: &Record| {
            let record = Record::decode(&record.encode()).unwrap();
            controller.replay(controller.image.next, &record).unwrap();
        };
        for seed in 0..200 {
            let mut histories = Histories { state: seed, drawn: 0 };
            let mut controller = controller(seed);
            controller.config.limits.removed_topics_max = 3;
            for _ in 0..histories.below(80) {
                let record = histories.next(&controller.image);
                replay(&mut controller, &record);
            }
            let before = controller.image();
            let said: Vec<Record> = before.said_again().collect();
            // Cut off after so many, by a crash or by want of room: what comes then is about the same state.
            let cut = histories.below(said.len() as u64) as usize;
            said[..cut].iter().for_each(|record| replay(&mut controller, record));
            let record = histories.next(&controller.image);
            replay(&mut controller, &record);
            let start = controller.image();
            let mut from_there = Controller::new(controller.config.clone());
            from_there.begin(start.next);
            let said: Vec<Record> = start.said_again().collect();
            for record in &said {
                replay(&mut controller, record);
                replay(&mut from_there, record);
            }
            assert_eq!(controller.image, from_there.image, "seed {seed}");
            assert_eq!(ClusterImage { next: start.next, ..(*controller.image).clone() }, *start, "seed {seed}");
            for _ in 0..20 {
                let record = histories.next(&controller.image);
                replay(&mut controller, &record);
                replay(&mut from_there, &record);
                let both = [&controller, &from_there].map(|one| (one.image.clone(), one.collisions.clone()));
                assert_eq!(both[0], both[1], "seed {seed}");
            }
            let (records, id) = from_there.allocate_producer_id().unwrap();
            assert!(!records.is_empty() && id.0 == controller.image.next_producer_id, "seed {seed}");
        }
    }

    #[test]
    fn a_log_that_does_not_begin_with_what_it_is_is_none() {
        let controller = full();
        let said: Vec<Record> = controller.image().said_again().collect();
        let mut late = Controller::new(controller.config.clone());
        late.begin(Offset(77));
        assert_eq!(late.replay(Offset(77), &said[1]), Err(ReplayError::NoFormat { at: Offset(77) }));
    }
}
