//! Produce (key 0).

use ringmain_types::{BrokerId, ErrorCode, LeaderEpoch, Offset, PartitionIndex, TopicId, WallMs};

use crate::api::api;
use crate::{Array, RecordBytes};

api! {
    /// Appends record batches. Topic ids from v13 (KIP-516), record errors from v8 (KIP-467), leader hints from v10 (KIP-951).
    /// v0-2 are advertised for librdkafka's sake and answered with error 35.
    api PRODUCE "Produce" = 0, versions 0..=13, flexible 9, Ordered,
        ProduceRequest, ProduceResponse;

    struct ProduceRequest<'a> {
        /// Null when the producer is not transactional.
        transactional_id: Option<&'a str> = 3..;
        /// -1 all in-sync replicas, 0 no reply at all, 1 the leader.
        acks: i16 = 0..;
        timeout_ms: i32 = 0..;
        topic_data: Array<'a, TopicProduceData<'a>> = 0..;
    }

    struct TopicProduceData<'a> {
        name: &'a str = 0..=12;
        topic_id: TopicId = 13..;
        partition_data: Array<'a, PartitionProduceData<'a>> = 0..;
    }

    struct PartitionProduceData<'a> {
        index: PartitionIndex = 0..;
        records: RecordBytes<'a> = 0..;
    }

    struct ProduceResponse<'a> {
        responses: Array<'a, TopicProduceResponse<'a>> = 0..;
        throttle_time_ms: i32 = 1..;
        /// Endpoints of the current leaders named above.
        node_endpoints: Array<'a, NodeEndpoint<'a>> = 10.., tag 0;
    }

    struct TopicProduceResponse<'a> {
        name: &'a str = 0..=12;
        topic_id: TopicId = 13..;
        partition_responses: Array<'a, PartitionProduceResponse<'a>> = 0..;
    }

    struct PartitionProduceResponse<'a> {
        index: PartitionIndex = 0..;
        error_code: ErrorCode = 0..;
        base_offset: Offset = 0..;
        /// -1 unless the topic's timestamps are LogAppendTime.
        log_append_time_ms: WallMs = 2.., default WallMs(-1);
        log_start_offset: Offset = 5.., default Offset(-1);
        record_errors: Array<'a, BatchIndexAndErrorMessage<'a>> = 8..;
        error_message: Option<&'a str> = 8..;
        current_leader: LeaderIdAndEpoch = 10.., tag 0;
    }

    struct BatchIndexAndErrorMessage<'a> {
        batch_index: i32 = 8..;
        batch_index_error_message: Option<&'a str> = 8..;
    }

    /// Who leads now, beside error 6 or 74.
    struct LeaderIdAndEpoch {
        leader_id: BrokerId = 10.., default BrokerId(-1);
        leader_epoch: LeaderEpoch = 10.., default LeaderEpoch(-1);
    }

    struct NodeEndpoint<'a> {
        node_id: BrokerId = 10..;
        host: &'a str = 10..;
        port: i32 = 10..;
        rack: Option<&'a str> = 10..;
    }
}
