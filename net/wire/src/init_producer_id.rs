//! InitProducerId (key 22).

use ringmain_types::{ErrorCode, ProducerEpoch, ProducerId};

use crate::api::api;

api! {
    /// Gives a producer its id and epoch (KIP-98, KIP-360). v6 (two-phase commit, KIP-939) is not stable in Kafka 4.4.
    api INIT_PRODUCER_ID "InitProducerId" = 22, versions 0..=5, flexible 2, Barrier,
        InitProducerIdRequest, InitProducerIdResponse;

    struct InitProducerIdRequest<'a> {
        /// Null when only idempotent.
        transactional_id: Option<&'a str> = 0..;
        transaction_timeout_ms: i32 = 0..;
        producer_id: ProducerId = 3.., default ProducerId(-1);
        producer_epoch: ProducerEpoch = 3.., default ProducerEpoch(-1);
    }

    struct InitProducerIdResponse {
        throttle_time_ms: i32 = 0..;
        error_code: ErrorCode = 0..;
        producer_id: ProducerId = 0.., default ProducerId(-1);
        producer_epoch: ProducerEpoch = 0..;
    }
}
