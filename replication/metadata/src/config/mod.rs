//! Every config by Kafka's name: what it may be, where its value comes from, and what it is worth.

mod broker;
mod broker_table;
mod definition;
mod group;
mod group_table;
mod layers;
mod topic;
mod topic_table;

pub use broker::{BrokerConfig, definition as broker_definition, definitions as broker_definitions};
pub use definition::{Definition, Kind, Rule, VALUE_BYTES_MAX, items};
pub use group::{GroupSettings, check_group};
pub use group_table::{GroupDefinition, definition as group_definition, definitions as group_definitions};
pub use layers::{Entry, Layers, Source, Synonym};
pub use topic::{Compression, Flush, TimestampType, TopicConfig, check_overrides};
pub use topic_table::{Scale, TopicDefinition, definition as topic_definition, definitions as topic_definitions};
