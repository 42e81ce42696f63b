//! The cluster's metadata at one offset of the metadata log.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ringmain_types::*;

use crate::controller::CLUSTER_FORMAT;
use crate::record::{ConfigResource, Record};

/// The whole cluster's metadata at one offset of the metadata log: immutable, one `Arc` that all cores read. A clone costs one
/// pointer a topic, not its contents.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterImage {
    /// Offset behind the last record replayed.
    pub next: Offset,
    pub cluster_id: String,
    pub topics: BTreeMap<TopicId, Arc<Topic>>,
    /// In the order that clients are shown.
    pub names: BTreeMap<Arc<str>, TopicId>,
    pub brokers: BTreeMap<BrokerId, Arc<Broker>>,
    /// Dynamic broker configs by broker id; "" is the cluster default.
    pub broker_configs: BTreeMap<String, BTreeMap<String, String>>,
    /// Configs of groups that have any, whether there is such a group or not.
    pub group_configs: BTreeMap<Arc<str>, Arc<BTreeMap<String, String>>>,
    /// Of all topics.
    pub partitions: u32,
    /// The first producer id that no block was taken from yet.
    pub next_producer_id: i64,
    /// Topics that were removed, oldest first: the last `removed_topics_max` of them.
    pub removed: Arc<VecDeque<TopicId>>,
}
#[derive(Clone, Debug, PartialEq)]
pub struct Topic {
    pub id: TopicId,
    pub name: Arc<str>,
    /// By index, without a gap.
    pub partitions: Vec<PartitionState>,
    /// Overrides only.
    pub configs: BTreeMap<String, String>,
    pub internal: bool,
}
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionState {
    /// In order of preference.
    pub replicas: Vec<BrokerId>,
    pub isr: Vec<BrokerId>,
    pub leader: BrokerId,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
}
#[derive(Clone, Debug, PartialEq)]
pub struct Broker {
    pub id: BrokerId,
    /// The offset of the record that registered this life.
    pub epoch: BrokerEpoch,
    pub host: String,
    pub port: u16,
    pub rack: Option<String>,
}

impl ClusterImage {
    /// Records that make this state again: of nothing, and of itself, so that one who is cut off while they are written has lost nothing. In
    /// an order in which they replay.
    pub fn said_again(&self) -> impl Iterator<Item = Record> {
        let format = Record::ClusterFormat { version: CLUSTER_FORMAT, cluster_id: self.cluster_id.clone() };
        let brokers = self.brokers.values().map(|broker| Record::Broker {
            broker: broker.id,
            epoch: broker.epoch,
            host: broker.host.clone(),
            port: broker.port,
            rack: broker.rack.clone(),
        });
        let ids = Record::ProducerIds { next: ProducerId(self.next_producer_id) };
        let removed = Record::Removed { topics: self.removed.iter().copied().collect() };
        let topics = self.topics.values().flat_map(|topic| topic.said_again());
        let of_brokers = self.broker_configs.iter().flat_map(|(key, configs)| {
            let broker = key.parse().ok().map(BrokerId);
            configs.iter().map(move |(name, value)| set(ConfigResource::Broker(broker), name, value))
        });
        let of_groups = self.group_configs.iter().flat_map(|(group, configs)| {
            let of = move || ConfigResource::Group(group.to_string());
            configs.iter().map(move |(name, value)| set(of(), name, value))
        });
        let configs = of_brokers.chain(of_groups);
        std::iter::once(format).chain(brokers).chain([ids, removed]).chain(topics).chain(configs)
    }

    pub fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topics.get(self.names.get(name)?)
    }

    pub fn partition(&self, partition: Partition) -> Option<&PartitionState> {
        self.topics.get(&partition.topic)?.partitions.get(usize::try_from(partition.index.0).ok()?)
    }

    /// Dynamic configs of one broker, or of the cluster's default with `""`.
    pub fn dynamic(&self, broker: &str, name: &str) -> Option<&str> {
        self.broker_configs.get(broker)?.get(name).map(String::as_str)
    }
}

impl Topic {
    fn said_again(&self) -> impl Iterator<Item = Record> {
        let topic = Record::Topic { id: self.id, name: self.name.to_string() };
        let partitions = self.partitions.iter().enumerate().map(|(index, state)| Record::Partition {
            partition: Partition { topic: self.id, index: PartitionIndex(index as i32) },
            replicas: state.replicas.clone(),
            isr: state.isr.clone(),
            leader: state.leader,
            leader_epoch: state.leader_epoch,
            partition_epoch: state.partition_epoch,
        });
        let configs = self.configs.iter().map(|(name, value)| set(ConfigResource::Topic(self.id), name, value));
        std::iter::once(topic).chain(partitions).chain(configs)
    }
}

fn set(resource: ConfigResource, name: &str, value: &str) -> Record {
    Record::Config { resource, name: name.to_owned(), value: Some(value.to_owned()) }
}
