//! Fetch (key 1).

use ringmain_types::{BrokerId, ErrorCode, LeaderEpoch, Offset, PartitionIndex, ProducerId, TopicId};

use crate::api::api;
use crate::{Array, RecordBytes};

api! {
    /// Reads record batches: sessions from v7 (KIP-227), epochs from v9 and v12 (KIP-320, KIP-595), topic ids from v13 (KIP-516),
    /// leader hints from v16 (KIP-951).
    api FETCH "Fetch" = 1, versions 4..=18, flexible 12, Ordered,
        FetchRequest, FetchResponse;

    struct FetchRequest<'a> {
        /// -1 of a consumer.
        replica_id: BrokerId = 0..=14, default BrokerId(-1);
        max_wait_ms: i32 = 0..;
        min_bytes: i32 = 0..;
        max_bytes: i32 = 3.., default i32::MAX;
        /// 0 read uncommitted, 1 read committed.
        isolation_level: i8 = 4..;
        /// 0 asks for, or is, no session.
        session_id: i32 = 7..;
        /// -1 closes the session, 0 starts one.
        session_epoch: i32 = 7.., default -1;
        topics: Array<'a, FetchTopic<'a>> = 0..;
        forgotten_topics_data: Array<'a, ForgottenTopic<'a>> = 7..;
        rack_id: &'a str = 11..;
        cluster_id: Option<&'a str> = 12.., tag 0;
        replica_state: ReplicaState = 15.., tag 1;
    }

    struct FetchTopic<'a> {
        topic: &'a str = 0..=12;
        topic_id: TopicId = 13..;
        partitions: Array<'a, FetchPartition> = 0..;
    }

    struct FetchPartition {
        partition: PartitionIndex = 0..;
        current_leader_epoch: LeaderEpoch = 9.., default LeaderEpoch(-1);
        fetch_offset: Offset = 0..;
        last_fetched_epoch: LeaderEpoch = 12.., default LeaderEpoch(-1);
        log_start_offset: Offset = 5.., default Offset(-1);
        partition_max_bytes: i32 = 0..;
        replica_directory_id: u128 = 17.., tag 0;
        high_watermark: Offset = 18.., tag 1, default Offset(i64::MAX);
    }

    /// What leaves the session.
    struct ForgottenTopic<'a> {
        topic: &'a str = 7..=12;
        topic_id: TopicId = 13..;
        partitions: Array<'a, PartitionIndex> = 7..;
    }

    struct ReplicaState {
        replica_id: BrokerId = 15.., default BrokerId(-1);
        replica_epoch: i64 = 15.., default -1;
    }

    struct FetchResponse<'a> {
        throttle_time_ms: i32 = 1..;
        error_code: ErrorCode = 7..;
        /// 0 when there is no session.
        session_id: i32 = 7..;
        responses: Array<'a, FetchableTopicResponse<'a>> = 0..;
        /// Endpoints of the current leaders named above.
        node_endpoints: Array<'a, NodeEndpoint<'a>> = 16.., tag 0;
    }

    struct FetchableTopicResponse<'a> {
        topic: &'a str = 0..=12;
        topic_id: TopicId = 13..;
        partitions: Array<'a, PartitionData<'a>> = 0..;
    }

    struct PartitionData<'a> {
        partition_index: PartitionIndex = 0..;
        error_code: ErrorCode = 0..;
        high_watermark: Offset = 0..;
        last_stable_offset: Offset = 4.., default Offset(-1);
        log_start_offset: Offset = 5.., default Offset(-1);
        /// Null when read uncommitted.
        aborted_transactions: Option<Array<'a, AbortedTransaction>> = 4..;
        /// -1 is none (KIP-392).
        preferred_read_replica: BrokerId = 11.., default BrokerId(-1);
        records: RecordBytes<'a> = 0..;
        diverging_epoch: EpochEndOffset = 12.., tag 0;
        current_leader: LeaderIdAndEpoch = 12.., tag 1;
        snapshot_id: SnapshotId = 12.., tag 2;
    }

    struct AbortedTransaction {
        producer_id: ProducerId = 4..;
        first_offset: Offset = 4..;
    }

    /// Where the fetcher's log and ours part (error-free, but without records).
    struct EpochEndOffset {
        epoch: LeaderEpoch = 12.., default LeaderEpoch(-1);
        end_offset: Offset = 12.., default Offset(-1);
    }

    struct LeaderIdAndEpoch {
        leader_id: BrokerId = 12.., default BrokerId(-1);
        leader_epoch: LeaderEpoch = 12.., default LeaderEpoch(-1);
    }

    /// Raft only: fetch this snapshot instead.
    struct SnapshotId {
        end_offset: Offset = 0.., default Offset(-1);
        epoch: LeaderEpoch = 0.., default LeaderEpoch(-1);
    }

    struct NodeEndpoint<'a> {
        node_id: BrokerId = 16..;
        host: &'a str = 16..;
        port: i32 = 16..;
        rack: Option<&'a str> = 16..;
    }
}
