//! Kafka's records of `__consumer_offsets`: any tool that reads Kafka's topic reads ours.

pub mod consumer_assignment;
pub mod consumer_group;
pub mod group_metadata;
pub mod offset_commit;

pub use consumer_assignment::*;
pub use consumer_group::*;
pub use group_metadata::{GroupMetadataKey, GroupMetadataValue};
pub use offset_commit::*;
