//! Replies of a controller that could not decide, or could not write down what it decided: the same error for everything asked.

use ringmain_buffer::Bufs;
use ringmain_session::Request;
use ringmain_types::ErrorCode;
use ringmain_wire as wire;
use ringmain_wire::{alter_configs, create_partitions, create_topics, delete_topics, incremental_alter_configs};

use super::{body, frame};

/// The whole reply frame, or why the body does not parse.
pub(crate) fn refuse(request: &Request, error: ErrorCode) -> Result<Bufs, String> {
    match request.api {
        key if key == wire::CREATE_TOPICS.key => {
            let asked: wire::CreateTopicsRequest<'_> = body(&wire::CREATE_TOPICS, request)?;
            let result = |topic: create_topics::CreatableTopic<'_>| topic.name.to_owned();
            let names: Vec<String> = asked.topics.iter().map(result).collect();
            let results = names.iter().map(|name| create_topics::CreatableTopicResult {
                name,
                error_code: error,
                ..Default::default()
            });
            let reply = wire::CreateTopicsResponse { topics: results.collect(), ..Default::default() };
            Ok(frame(&wire::CREATE_TOPICS, request, &reply))
        }
        key if key == wire::DELETE_TOPICS.key => {
            let asked: wire::DeleteTopicsRequest<'_> = body(&wire::DELETE_TOPICS, request)?;
            let names = asked.topic_names.iter().map(|name| (Some(name), Default::default()));
            let states = asked.topics.iter().map(|topic| (topic.name, topic.topic_id));
            let results = names.chain(states).map(|(name, topic_id)| delete_topics::DeletableTopicResult {
                name,
                topic_id,
                error_code: error,
                error_message: None,
            });
            let reply = wire::DeleteTopicsResponse { responses: results.collect(), ..Default::default() };
            Ok(frame(&wire::DELETE_TOPICS, request, &reply))
        }
        key if key == wire::CREATE_PARTITIONS.key => {
            let asked: wire::CreatePartitionsRequest<'_> = body(&wire::CREATE_PARTITIONS, request)?;
            let results = asked.topics.iter().map(|topic| create_partitions::CreatePartitionsTopicResult {
                name: topic.name,
                error_code: error,
                error_message: None,
            });
            let reply = wire::CreatePartitionsResponse { results: results.collect(), ..Default::default() };
            Ok(frame(&wire::CREATE_PARTITIONS, request, &reply))
        }
        key if key == wire::ALTER_CONFIGS.key => {
            let asked: wire::AlterConfigsRequest<'_> = body(&wire::ALTER_CONFIGS, request)?;
            let results = asked.resources.iter().map(|resource| alter_configs::AlterConfigsResourceResponse {
                error_code: error,
                error_message: None,
                resource_type: resource.resource_type,
                resource_name: resource.resource_name,
            });
            let reply = wire::AlterConfigsResponse { responses: results.collect(), ..Default::default() };
            Ok(frame(&wire::ALTER_CONFIGS, request, &reply))
        }
        key if key == wire::INCREMENTAL_ALTER_CONFIGS.key => {
            let asked: wire::IncrementalAlterConfigsRequest<'_> = body(&wire::INCREMENTAL_ALTER_CONFIGS, request)?;
            let result = |resource: incremental_alter_configs::AlterConfigsResource<'_>| {
                (resource.resource_type, resource.resource_name.to_owned())
            };
            let named: Vec<(i8, String)> = asked.resources.iter().map(result).collect();
            let results =
                named.iter().map(|(resource_type, name)| incremental_alter_configs::AlterConfigsResourceResponse {
                    error_code: error,
                    error_message: None,
                    resource_type: *resource_type,
                    resource_name: name,
                });
            let reply = wire::IncrementalAlterConfigsResponse { responses: results.collect(), ..Default::default() };
            Ok(frame(&wire::INCREMENTAL_ALTER_CONFIGS, request, &reply))
        }
        key if key == wire::INIT_PRODUCER_ID.key => {
            let reply = wire::InitProducerIdResponse { error_code: error, ..Default::default() };
            Ok(frame(&wire::INIT_PRODUCER_ID, request, &reply))
        }
        key => Err(format!("API {key} is not the controller's")),
    }
}
