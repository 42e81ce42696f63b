//! KIP-848 groups in `__consumer_offsets`: epochs and members. No value: it is gone.

use ringmain_types::{PartitionIndex, TopicId, WallMs};

use crate::Array;
use crate::api::api;

api! {
    /// Record type 3.
    format ConsumerGroupMetadataKey<'_> = 3, versions 0..=0, flexible 32767;

    struct ConsumerGroupMetadataKey<'a> {
        group_id: &'a str = 0..=0;
    }
}

api! {
    /// The group epoch: it rises with every change that asks for a new assignment.
    format ConsumerGroupMetadataValue = 3, versions 0..=0, flexible 0;

    struct ConsumerGroupMetadataValue {
        epoch: i32 = 0..;
        metadata_hash: i64 = 0.., tag 0;
    }
}

api! {
    /// Record type 4; Kafka 4.0 and older. Later ones only delete it.
    format ConsumerGroupPartitionMetadataKey<'_> = 4, versions 0..=0, flexible 32767;

    struct ConsumerGroupPartitionMetadataKey<'a> {
        group_id: &'a str = 0..=0;
    }
}

api! {
    /// What a group of Kafka 4.0 knew of its topics.
    format ConsumerGroupPartitionMetadataValue<'_> = 4, versions 0..=0, flexible 0;

    struct ConsumerGroupPartitionMetadataValue<'a> {
        topics: Array<'a, TopicMetadata<'a>> = 0..;
    }

    struct TopicMetadata<'a> {
        topic_id: TopicId = 0..;
        topic_name: &'a str = 0..;
        num_partitions: i32 = 0..;
        partition_metadata: Array<'a, PartitionMetadata<'a>> = 0..;
    }

    struct PartitionMetadata<'a> {
        partition: PartitionIndex = 0..;
        racks: Array<'a, &'a str> = 0..;
    }
}

api! {
    /// Record type 5.
    format ConsumerGroupMemberMetadataKey<'_> = 5, versions 0..=0, flexible 32767;

    struct ConsumerGroupMemberMetadataKey<'a> {
        group_id: &'a str = 0..=0;
        member_id: &'a str = 0..=0;
    }
}

api! {
    /// What a member said of itself.
    format ConsumerGroupMemberMetadataValue<'_> = 5, versions 0..=0, flexible 0;

    struct ConsumerGroupMemberMetadataValue<'a> {
        instance_id: Option<&'a str> = 0..;
        rack_id: Option<&'a str> = 0..;
        client_id: &'a str = 0..;
        client_host: &'a str = 0..;
        subscribed_topic_names: Array<'a, &'a str> = 0..;
        subscribed_topic_regex: Option<&'a str> = 0..;
        rebalance_timeout_ms: i32 = 0.., default -1;
        server_assignor: Option<&'a str> = 0..;
        /// Present while the member speaks the classic protocol.
        /// Kafka's schema has it so that absent is an empty one, and null is written.
        classic_member_metadata: Option<ClassicMemberMetadata<'a>> = 0.., tag 0, default Some(Default::default());
    }

    struct ClassicMemberMetadata<'a> {
        session_timeout_ms: i32 = 0..;
        supported_protocols: Array<'a, ClassicProtocol<'a>> = 0..;
    }

    struct ClassicProtocol<'a> {
        name: &'a str = 0..;
        metadata: &'a [u8] = 0..;
    }
}

api! {
    /// Record type 6.
    format ConsumerGroupTargetAssignmentMetadataKey<'_> = 6, versions 0..=0, flexible 32767;

    struct ConsumerGroupTargetAssignmentMetadataKey<'a> {
        group_id: &'a str = 0..=0;
    }
}

api! {
    /// The group epoch that the target assignments are of.
    format ConsumerGroupTargetAssignmentMetadataValue = 6, versions 0..=0, flexible 0;

    struct ConsumerGroupTargetAssignmentMetadataValue {
        assignment_epoch: i32 = 0..;
        assignment_timestamp: WallMs = 0.., tag 0;
    }
}
