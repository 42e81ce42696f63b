//! DescribeProducers (key 61).

use ringmain_types::{ErrorCode, Offset, PartitionIndex, ProducerId, Sequence, WallMs};

use crate::Array;
use crate::api::api;

api! {
    /// The producers that partitions remember (KIP-664).
    api DESCRIBE_PRODUCERS "DescribeProducers" = 61, versions 0..=0, flexible 0, Ordered,
        DescribeProducersRequest, DescribeProducersResponse;

    struct DescribeProducersRequest<'a> {
        topics: Array<'a, TopicRequest<'a>> = 0..;
    }

    struct TopicRequest<'a> {
        name: &'a str = 0..;
        partition_indexes: Array<'a, PartitionIndex> = 0..;
    }

    struct DescribeProducersResponse<'a> {
        throttle_time_ms: i32 = 0..;
        topics: Array<'a, TopicResponse<'a>> = 0..;
    }

    struct TopicResponse<'a> {
        name: &'a str = 0..;
        partitions: Array<'a, PartitionResponse<'a>> = 0..;
    }

    struct PartitionResponse<'a> {
        partition_index: PartitionIndex = 0..;
        error_code: ErrorCode = 0..;
        error_message: Option<&'a str> = 0..;
        active_producers: Array<'a, ProducerState> = 0..;
    }

    struct ProducerState {
        producer_id: ProducerId = 0..;
        producer_epoch: i32 = 0..;
        last_sequence: Sequence = 0.., default Sequence(-1);
        last_timestamp: WallMs = 0.., default WallMs(-1);
        coordinator_epoch: i32 = 0..;
        /// -1 when no transaction is open.
        current_txn_start_offset: Offset = 0.., default Offset(-1);
    }
}
