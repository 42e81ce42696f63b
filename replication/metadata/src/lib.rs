//! `replication/metadata`: the cluster image, its records, and the controller that decides them. No I/O: a request yields records and a
//! reply; only `replay` changes state.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use ringmain_types::*;

/// The whole cluster's metadata at one offset of the metadata log: immutable, one `Arc` that all cores read.
#[derive(Clone, Debug, Default)]
pub struct ClusterImage {
    /// Offset behind the last record replayed.
    pub next: Offset,
    pub cluster_id: String,
    pub topics: BTreeMap<TopicId, Arc<Topic>>,
    pub names: BTreeMap<String, TopicId>,
    pub brokers: BTreeMap<BrokerId, Arc<Broker>>,
    /// Dynamic broker configs: "" is the cluster default.
    pub broker_configs: BTreeMap<String, BTreeMap<String, String>>,
    pub partitions: u32,
}
#[derive(Clone, Debug)]
pub struct Topic {
    pub id: TopicId,
    pub name: String,
    pub partitions: Vec<PartitionState>,
    /// overrides only
    pub configs: BTreeMap<String, String>,
    pub internal: bool,
}
#[derive(Clone, Debug)]
pub struct PartitionState {
    pub replicas: Vec<BrokerId>,
    pub isr: Vec<BrokerId>,
    pub leader: BrokerId,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
}
#[derive(Clone, Debug)]
pub struct Broker {
    pub id: BrokerId,
    pub epoch: BrokerEpoch,
    pub host: String,
    pub port: u16,
    pub rack: Option<String>,
}

impl ClusterImage {
    pub fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topics.get(self.names.get(name)?)
    }
}
