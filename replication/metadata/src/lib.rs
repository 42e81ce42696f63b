//! `replication/metadata`: the cluster image, its records, the controller that decides them, and every config by Kafka's name.
//! No I/O, clock or randomness: a request yields records and an answer; only `replay` changes state. The controller lives on shard 0;
//! images are immutable and go to all cores.
#![forbid(unsafe_code)]

pub mod config;
mod controller;
mod image;
mod name;
mod record;

pub use config::{BrokerConfig, Entry, GroupSettings, Kind, Source, Synonym, TopicConfig};
pub use controller::{
    AlterConfig, AlterOperation, AlterResource, Assignment, Controller, ControllerConfig, CreatedTopic, Decision,
    NewPartitions, NewTopic, Refusal, ReplayError, TopicKey,
};
pub use image::{Broker, ClusterImage, PartitionState, Topic};
pub use name::{OFFSETS_TOPIC, TOPIC_NAME_LENGTH_MAX, check_topic_name, is_internal};
pub use record::{ConfigResource, FORMAT_VERSION, Record, RecordError};
