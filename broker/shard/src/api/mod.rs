//! One file an API. `control` is decided by shard 0 against the controller; `local` is answered by any shard from its image; the rest
//! (produce, fetch, offsets) goes to the owners of partitions.

mod alter_configs;
mod api_versions;
pub(crate) mod control;
mod create_partitions;
mod create_topics;
pub(crate) mod delete_records;
mod delete_topics;
mod describe_cluster;
mod describe_configs;
pub(crate) mod describe_log_dirs;
pub(crate) mod describe_producers;
mod describe_topic_partitions;
pub(crate) mod fetch;
mod find_coordinator;
pub(crate) mod group_replies;
pub(crate) mod groups;
mod incremental_alter_configs;
mod init_producer_id;
mod list_config_resources;
pub(crate) mod list_offsets;
pub(crate) mod local;
pub(crate) mod metadata;
pub(crate) mod offset_for_leader_epoch;
pub(crate) mod produce;
pub(crate) mod refuse;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod hostile;

use ringmain_buffer::Bufs;
use ringmain_session::Request;
use ringmain_types::{BrokerId, ErrorCode, Limits};
use ringmain_wire::{ApiSpec, Array, Field, encode_reply};

/// `AclOperation` bits that a topic has, all of them given: what Kafka answers without an authorizer (read, write, create, delete,
/// alter, describe, describe configs, alter configs).
const TOPIC_OPERATIONS: i32 = 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 11;
/// As above for the cluster (create, alter, describe, cluster action, describe configs, alter configs, idempotent write).
const CLUSTER_OPERATIONS: i32 = 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12;
/// A bit field that was not asked for.
const NOT_ASKED: i32 = i32::MIN;

/// The body, or why it does not parse. Kafka closes such a connection: nothing behind it can be trusted.
fn body<'a, T: Field<'a>>(spec: &ApiSpec, request: &'a Request) -> Result<T, String> {
    crate::dispatch::body(spec, request).map_err(|error| format!("{} v{}: {error}", spec.name, request.version))
}

/// Why a request is too large to be looked at, if it is: what a frame names is held in memory many times over.
pub(crate) fn too_large(limits: &Limits, request: &Request) -> Option<String> {
    let (bytes, most) = (request.frame.len(), limits.admin_frame_bytes_max);
    (bytes > most as usize).then(|| format!("a request of {bytes} bytes without records; at most {most} are allowed"))
}

/// A whole reply frame, and the first error in it, which the request is counted by.
#[derive(Debug)]
pub(crate) struct Answered {
    pub parts: Bufs,
    pub error: ErrorCode,
}

/// `errors`: of the reply's parts.
fn answered<'a, T: Field<'a>>(
    spec: &ApiSpec,
    request: &Request,
    reply: &T,
    errors: impl IntoIterator<Item = ErrorCode>,
) -> Answered {
    Answered { parts: frame(spec, request, reply), error: first_error(errors) }
}

fn frame<'a, T: Field<'a>>(spec: &ApiSpec, request: &Request, reply: &T) -> Bufs {
    encode_reply(spec, request.version, request.correlation, reply)
}

pub(crate) fn first_error(errors: impl IntoIterator<Item = ErrorCode>) -> ErrorCode {
    errors.into_iter().find(|error| *error != ErrorCode::None).unwrap_or_default()
}

fn brokers(ids: &[BrokerId]) -> Array<'static, BrokerId> {
    Array::Owned(ids.to_vec())
}
