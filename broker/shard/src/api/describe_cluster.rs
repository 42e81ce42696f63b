//! DescribeCluster: the cluster's id, controller and brokers.

use ringmain_session::Request;
use ringmain_types::ErrorCode;
use ringmain_wire::describe_cluster::DescribeClusterBroker;
use ringmain_wire::{DESCRIBE_CLUSTER, DescribeClusterRequest, DescribeClusterResponse};

use super::local::LocalContext;
use super::{Answered, CLUSTER_OPERATIONS, NOT_ASKED, answered, body};

/// `EndpointType`s on the wire.
const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

pub(super) fn answer(context: &LocalContext<'_>, request: &Request) -> Result<Answered, String> {
    let asked: DescribeClusterRequest = body(&DESCRIBE_CLUSTER, request)?;
    let refuse = |error_code, message| DescribeClusterResponse {
        error_code,
        error_message: Some(message),
        endpoint_type: BROKERS,
        ..Default::default()
    };
    let reply = match asked.endpoint_type {
        BROKERS => describe(context, &asked),
        CONTROLLERS => refuse(
            ErrorCode::MismatchedEndpointType,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        ),
        _ => refuse(
            ErrorCode::UnsupportedEndpointType,
            "Unsupported endpoint type; allowed are 1 brokers, 2 controllers",
        ),
    };
    Ok(answered(&DESCRIBE_CLUSTER, request, &reply, [reply.error_code]))
}

fn describe<'a>(context: &LocalContext<'a>, asked: &DescribeClusterRequest) -> DescribeClusterResponse<'a> {
    let image = context.image;
    DescribeClusterResponse {
        endpoint_type: BROKERS,
        cluster_id: &image.cluster_id,
        controller_id: context.config.broker,
        brokers: image
            .brokers
            .values()
            .map(|broker| DescribeClusterBroker {
                broker_id: broker.id,
                host: &broker.host,
                port: broker.port.into(),
                rack: broker.rack.as_deref(),
                is_fenced: false,
            })
            .collect(),
        cluster_authorized_operations: match asked.include_cluster_authorized_operations {
            true => CLUSTER_OPERATIONS,
            false => NOT_ASKED,
        },
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::fixture::{Fixture, call};

    #[test]
    fn brokers_are_listed_and_controllers_are_elsewhere() {
        let fixture = Fixture::new();
        for version in 0..=2 {
            let reply = fixture.ask(&DESCRIBE_CLUSTER, version, &DescribeClusterRequest::default());
            let got: DescribeClusterResponse<'_> = call(&DESCRIBE_CLUSTER, version, &reply);
            assert_eq!((got.cluster_id, got.controller_id.0, got.brokers.len()), ("cluster", 1, 1));
            assert_eq!(got.cluster_authorized_operations, NOT_ASKED);
        }
        for (kind, code) in [(2, ErrorCode::MismatchedEndpointType), (3, ErrorCode::UnsupportedEndpointType)] {
            let asked = DescribeClusterRequest { endpoint_type: kind, ..Default::default() };
            let reply = fixture.ask(&DESCRIBE_CLUSTER, 1, &asked);
            assert_eq!(call::<DescribeClusterResponse<'_>>(&DESCRIBE_CLUSTER, 1, &reply).error_code, code);
        }
    }
}
