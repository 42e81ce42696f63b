//! Metadata (key 3).

use ringmain_types::{BrokerId, ErrorCode, LeaderEpoch, PartitionIndex, TopicId};

use crate::Array;
use crate::api::api;

api! {
    /// Brokers, topics, partitions and their leaders; may create the topics it is asked for. Topic ids from v10 (KIP-516).
    api METADATA "Metadata" = 3, versions 0..=13, flexible 9, Ordered,
        MetadataRequest, MetadataResponse;

    struct MetadataRequest<'a> {
        /// Null asks for all topics; empty does in v0, and for none later.
        topics: Option<Array<'a, MetadataRequestTopic<'a>>> = 0.., nullable 1..;
        allow_auto_topic_creation: bool = 4.., default true;
        include_cluster_authorized_operations: bool = 8..=10;
        include_topic_authorized_operations: bool = 8..;
    }

    struct MetadataRequestTopic<'a> {
        topic_id: TopicId = 10..;
        /// Null when asked for by id.
        name: Option<&'a str> = 0.., nullable 10..;
    }

    struct MetadataResponse<'a> {
        throttle_time_ms: i32 = 3..;
        brokers: Array<'a, MetadataResponseBroker<'a>> = 0..;
        cluster_id: Option<&'a str> = 2..;
        controller_id: BrokerId = 1.., default BrokerId(-1);
        topics: Array<'a, MetadataResponseTopic<'a>> = 0..;
        /// A bit field; `i32::MIN` when not asked for.
        cluster_authorized_operations: i32 = 8..=10, default i32::MIN;
        error_code: ErrorCode = 13..;
    }

    struct MetadataResponseBroker<'a> {
        node_id: BrokerId = 0..;
        host: &'a str = 0..;
        port: i32 = 0..;
        rack: Option<&'a str> = 1..;
    }

    struct MetadataResponseTopic<'a> {
        error_code: ErrorCode = 0..;
        /// Null when an id was asked for that is not known.
        name: Option<&'a str> = 0.., nullable 12..;
        topic_id: TopicId = 10..;
        is_internal: bool = 1..;
        partitions: Array<'a, MetadataResponsePartition<'a>> = 0..;
        /// A bit field; `i32::MIN` when not asked for.
        topic_authorized_operations: i32 = 8.., default i32::MIN;
    }

    struct MetadataResponsePartition<'a> {
        error_code: ErrorCode = 0..;
        partition_index: PartitionIndex = 0..;
        leader_id: BrokerId = 0..;
        leader_epoch: LeaderEpoch = 7.., default LeaderEpoch(-1);
        replica_nodes: Array<'a, BrokerId> = 0..;
        isr_nodes: Array<'a, BrokerId> = 0..;
        offline_replicas: Array<'a, BrokerId> = 5..;
    }
}
