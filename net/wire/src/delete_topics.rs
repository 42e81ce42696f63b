//! DeleteTopics (key 20).

use ringmain_types::{ErrorCode, TopicId};

use crate::Array;
use crate::api::api;

api! {
    /// Deletes topics by name, from v6 by id too (KIP-516).
    api DELETE_TOPICS "DeleteTopics" = 20, versions 1..=6, flexible 4, Barrier,
        DeleteTopicsRequest, DeleteTopicsResponse;

    struct DeleteTopicsRequest<'a> {
        topics: Array<'a, DeleteTopicState<'a>> = 6..;
        topic_names: Array<'a, &'a str> = 0..=5;
        timeout_ms: i32 = 0..;
    }

    struct DeleteTopicState<'a> {
        /// Null when given by id.
        name: Option<&'a str> = 6..;
        topic_id: TopicId = 6..;
    }

    struct DeleteTopicsResponse<'a> {
        throttle_time_ms: i32 = 1..;
        responses: Array<'a, DeletableTopicResult<'a>> = 0..;
    }

    struct DeletableTopicResult<'a> {
        name: Option<&'a str> = 0.., nullable 6..;
        topic_id: TopicId = 6..;
        error_code: ErrorCode = 0..;
        error_message: Option<&'a str> = 5..;
    }
}
