//! What groups ask about the cluster.

use std::sync::Arc;

use ringmain_types::TopicId;

/// The topics of one cluster image.
pub trait Topics {
    /// Id and number of partitions.
    fn by_name(&self, name: &str) -> Option<(TopicId, u32)>;
    fn by_id(&self, id: TopicId) -> Option<(Arc<str>, u32)>;
    /// Rises with every change of any topic.
    fn version(&self) -> i64;
    /// All names that a pattern may match, in order; internal topics are left out.
    fn names(&self) -> Box<dyn Iterator<Item = Arc<str>> + '_>;
}
