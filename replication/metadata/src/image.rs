//! The cluster's metadata at one offset of the metadata log.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ringmain_types::*;

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
