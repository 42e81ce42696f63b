//! FindCoordinator: a cluster of one coordinates everything itself, once there is a topic to keep it in.

use std::collections::BTreeSet;

use ringmain_metadata::OFFSETS_TOPIC;
use ringmain_session::Request;
use ringmain_types::{BrokerId, ErrorCode};
use ringmain_wire::find_coordinator::Coordinator;
use ringmain_wire::{FIND_COORDINATOR, FindCoordinatorRequest, FindCoordinatorResponse};

use super::local::{Local, LocalContext};
use super::{answered, body};

/// Key types.
const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
/// From here on several are asked for at once.
const BATCHES: i16 = 4;

pub(super) fn answer(
    context: &LocalContext<'_>,
    request: &Request,
    created: Option<&[(String, ErrorCode)]>,
) -> Result<Local, String> {
    let asked: FindCoordinatorRequest<'_> = body(&FIND_COORDINATOR, request)?;
    let ready = context.image.topic(OFFSETS_TOPIC).is_some();
    if asked.key_type == GROUP && !ready && created.is_none() {
        return Ok(Local::Create(vec![OFFSETS_TOPIC.to_owned()]));
    }
    let error = match asked.key_type {
        GROUP if ready => ErrorCode::None,
        // Asked again by clients.
        GROUP => ErrorCode::CoordinatorNotAvailable,
        // Final: who waits for a coordinator that will never be there waits a minute and learns nothing.
        TRANSACTION => ErrorCode::UnsupportedVersion,
        _ => ErrorCode::InvalidRequest,
    };
    let here = context.image.brokers.get(&context.config.broker).filter(|_| error == ErrorCode::None);
    let (node_id, host, port) =
        here.map_or((BrokerId(-1), "", -1), |broker| (broker.id, &broker.host[..], i32::from(broker.port)));
    let message = match error {
        ErrorCode::CoordinatorNotAvailable => Some("The coordinator is not available."),
        ErrorCode::UnsupportedVersion => Some("Transactions do not exist in this version."),
        ErrorCode::InvalidRequest => Some("Coordinators of this key type do not exist in this version."),
        _ => None,
    };
    let mut seen = BTreeSet::new();
    let coordinator = |key| Coordinator { key, node_id, host, port, error_code: error, error_message: message };
    let reply = match request.version {
        ..BATCHES => FindCoordinatorResponse {
            error_code: error,
            error_message: message,
            node_id,
            host,
            port,
            ..Default::default()
        },
        _ => FindCoordinatorResponse {
            // Each key once, however often it is named.
            coordinators: asked.coordinator_keys.iter().filter(|key| seen.insert(*key)).map(coordinator).collect(),
            ..Default::default()
        },
    };
    Ok(Local::Reply(answered(&FIND_COORDINATOR, request, &reply, [error])))
}
