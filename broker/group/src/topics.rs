//! What groups ask about the cluster.

use std::sync::Arc;

use ringmain_types::TopicId;

/// What a group's own configs say, already within the broker's bounds; milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupOverrides {
    pub session_timeout_ms: i32,
    pub heartbeat_interval_ms: i32,
    pub assignment_interval_ms: i32,
}

/// The topics of one cluster image, and the configs of its groups.
pub trait Topics {
    /// Id and number of partitions.
    fn by_name(&self, name: &str) -> Option<(TopicId, u32)>;
    fn by_id(&self, id: TopicId) -> Option<(Arc<str>, u32)>;
    /// Rises with every change of any topic.
    fn version(&self) -> i64;
    /// All names that a pattern may match, in order; internal topics too, as on Kafka: leaving them out is the client's to do.
    fn names(&self) -> Box<dyn Iterator<Item = Arc<str>> + '_>;
    /// `None` for a group without configs of its own.
    /// What the offsets topic's configs allow one batch of offsets to be now (`max.message.bytes`).
    fn batch_bytes_max(&self) -> usize {
        usize::MAX
    }
    fn overrides(&self, _group: &str) -> Option<GroupOverrides> {
        None
    }
}
