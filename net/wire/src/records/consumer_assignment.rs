//! KIP-848 groups in `__consumer_offsets`: who is to own what, who owns what, and what an expression means. No value: it is gone.

use ringmain_types::{PartitionIndex, TopicId, WallMs};

use crate::Array;
use crate::api::api;

api! {
    /// Record type 7.
    format ConsumerGroupTargetAssignmentMemberKey<'_> = 7, versions 0..=0, flexible 32767;

    struct ConsumerGroupTargetAssignmentMemberKey<'a> {
        group_id: &'a str = 0..=0;
        member_id: &'a str = 0..=0;
    }
}

api! {
    /// What the assignor gave a member.
    format ConsumerGroupTargetAssignmentMemberValue<'_> = 7, versions 0..=0, flexible 0;

    struct ConsumerGroupTargetAssignmentMemberValue<'a> {
        topic_partitions: Array<'a, TopicPartition<'a>> = 0..;
    }

    struct TopicPartition<'a> {
        topic_id: TopicId = 0..;
        partitions: Array<'a, PartitionIndex> = 0..;
    }
}

api! {
    /// Record type 8.
    format ConsumerGroupCurrentMemberAssignmentKey<'_> = 8, versions 0..=0, flexible 32767;

    struct ConsumerGroupCurrentMemberAssignmentKey<'a> {
        group_id: &'a str = 0..=0;
        member_id: &'a str = 0..=0;
    }
}

api! {
    /// What a member may own now, and what it has to give back before it gets more.
    format ConsumerGroupCurrentMemberAssignmentValue<'_> = 8, versions 0..=0, flexible 0;

    struct ConsumerGroupCurrentMemberAssignmentValue<'a> {
        member_epoch: i32 = 0..;
        previous_member_epoch: i32 = 0..;
        /// 0 stable, 1 unrevoked partitions, 2 unreleased partitions, 127 unknown.
        state: i8 = 0..;
        assigned_partitions: Array<'a, TopicPartitions<'a>> = 0..;
        partitions_pending_revocation: Array<'a, TopicPartitions<'a>> = 0..;
    }

    struct TopicPartitions<'a> {
        topic_id: TopicId = 0..;
        partitions: Array<'a, PartitionIndex> = 0..;
        /// As many as partitions: the member epoch at which each was assigned. A commit of an older one is stale.
        /// Absent is empty: then all have the member's epoch.
        assignment_epochs: Option<Array<'a, i32>> = 0.., tag 0, default Some(Default::default());
    }
}

api! {
    /// Record type 16.
    format ConsumerGroupRegularExpressionKey<'_> = 16, versions 0..=0, flexible 32767;

    struct ConsumerGroupRegularExpressionKey<'a> {
        group_id: &'a str = 0..=0;
        regular_expression: &'a str = 0..=0;
    }
}

api! {
    /// The topics that matched when it was looked at last.
    format ConsumerGroupRegularExpressionValue<'_> = 16, versions 0..=0, flexible 0;

    struct ConsumerGroupRegularExpressionValue<'a> {
        topics: Array<'a, &'a str> = 0..;
        /// The offset of the metadata image.
        version: i64 = 0..;
        timestamp: WallMs = 0..;
    }
}
