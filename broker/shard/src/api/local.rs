//! Requests that any shard answers from its own image.

use ringmain_metadata::{BrokerConfig, ClusterImage};
use ringmain_session::Request;
use ringmain_types::ErrorCode;
use ringmain_wire::{
    API_VERSIONS, DESCRIBE_CLUSTER, DESCRIBE_CONFIGS, DESCRIBE_TOPIC_PARTITIONS, FIND_COORDINATOR,
    LIST_CONFIG_RESOURCES, METADATA,
};

use super::{
    Answered, api_versions, describe_cluster, describe_configs, describe_topic_partitions, find_coordinator,
    list_config_resources, metadata,
};

/// What an answer may look at.
pub(crate) struct LocalContext<'a> {
    pub image: &'a ClusterImage,
    pub config: &'a crate::Config,
    pub broker_config: &'a BrokerConfig,
}
pub(crate) enum Local {
    Reply(Answered),
    /// Metadata that wants missing topics made first (auto.create.topics.enable, and the request allows it): ask again with
    /// `created` once they are served.
    Create(Vec<String>),
    /// The body does not parse: the connection is closed, as Kafka does, with the reason.
    Close(String),
}

/// The keys that `answer` knows.
pub(crate) fn is_local(api: i16) -> bool {
    let local = [
        API_VERSIONS,
        METADATA,
        DESCRIBE_CONFIGS,
        DESCRIBE_CLUSTER,
        LIST_CONFIG_RESOURCES,
        DESCRIBE_TOPIC_PARTITIONS,
        FIND_COORDINATOR,
    ];
    local.iter().any(|spec| spec.key == api)
}

/// `created`: what became of the names that an earlier `Create` asked for.
pub(crate) fn answer(context: &LocalContext<'_>, request: &Request, created: Option<&[(String, ErrorCode)]>) -> Local {
    if let Some(why) = super::too_large(&context.config.limits, request) {
        return Local::Close(why);
    }
    let answered = match request.api {
        key if key == API_VERSIONS.key => api_versions::answer(context, request),
        key if key == METADATA.key => return metadata::answer(context, request, created).unwrap_or_else(Local::Close),
        key if key == FIND_COORDINATOR.key => {
            return find_coordinator::answer(context, request, created).unwrap_or_else(Local::Close);
        }
        key if key == DESCRIBE_CONFIGS.key => describe_configs::answer(context, request),
        key if key == DESCRIBE_CLUSTER.key => describe_cluster::answer(context, request),
        key if key == LIST_CONFIG_RESOURCES.key => list_config_resources::answer(context, request),
        key if key == DESCRIBE_TOPIC_PARTITIONS.key => describe_topic_partitions::answer(context, request),
        key => Err(format!("API {key} is not answered here")),
    };
    answered.map_or_else(Local::Close, Local::Reply)
}
