//! ApiVersions: what this broker speaks. No feature is finalized before there are transactions and a cluster.

use ringmain_session::Request;
use ringmain_types::{BrokerId, ErrorCode};
use ringmain_wire::{
    API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse, advertised, encode_unsupported_api_versions,
};

use super::local::LocalContext;
use super::{Answered, answered, body};

pub(super) fn answer(context: &LocalContext<'_>, request: &Request) -> Result<Answered, String> {
    if !API_VERSIONS.supports(request.version) {
        let parts = encode_unsupported_api_versions(request.correlation);
        return Ok(Answered { parts, error: ErrorCode::UnsupportedVersion });
    }
    let asked: ApiVersionsRequest<'_> = body(&API_VERSIONS, request)?;
    let error_code = judge(context, request.version, &asked);
    let api_keys = if error_code == ErrorCode::None { advertised() } else { Default::default() };
    let reply = ApiVersionsResponse { error_code, api_keys, ..Default::default() };
    Ok(answered(&API_VERSIONS, request, &reply, [error_code]))
}

fn judge(context: &LocalContext<'_>, version: i16, asked: &ApiVersionsRequest<'_>) -> ErrorCode {
    if version >= 3 && !(is_word(asked.client_software_name) && is_word(asked.client_software_version)) {
        return ErrorCode::InvalidRequest;
    }
    // KIP-1242: the address now belongs to another cluster or broker than the client believes.
    let cluster = asked.cluster_id.is_some_and(|id| id != context.image.cluster_id);
    let node = asked.node_id != BrokerId(-1) && asked.node_id != context.config.broker;
    if cluster || node { ErrorCode::RebootstrapRequired } else { ErrorCode::None }
}

/// KIP-511: letters, digits, '-' and '.', the latter two not at an end.
fn is_word(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    bytes.iter().all(|byte| inner(*byte)) && ends.iter().all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::fixture::{Fixture, call};

    #[test]
    fn every_version_lists_every_api_and_an_unknown_one_gets_the_list_in_the_oldest_shape() {
        let fixture = Fixture::new();
        for version in 0..=5 {
            let asked = ApiVersionsRequest {
                client_software_name: "kcat",
                client_software_version: "1.7.1",
                ..Default::default()
            };
            let reply = fixture.ask(&API_VERSIONS, version, &asked);
            let got: ApiVersionsResponse<'_> = call(&API_VERSIONS, version, &reply);
            assert_eq!((got.error_code, got.api_keys.len()), (ErrorCode::None, ringmain_wire::APIS.len()));
        }
        let reply = fixture.ask_raw(API_VERSIONS.key, 99, &[1, 2, 3]);
        let got: ApiVersionsResponse<'_> = call(&API_VERSIONS, 0, &reply);
        assert_eq!(got.error_code, ErrorCode::UnsupportedVersion);
        assert!(!got.api_keys.is_empty());
    }

    #[test]
    fn a_client_that_is_mistaken_about_us_is_told() {
        let fixture = Fixture::new();
        let ask = |name, cluster, node| {
            let asked = ApiVersionsRequest {
                client_software_name: name,
                client_software_version: "1",
                cluster_id: cluster,
                node_id: BrokerId(node),
            };
            let reply = fixture.ask(&API_VERSIONS, 5, &asked);
            call::<ApiVersionsResponse<'_>>(&API_VERSIONS, 5, &reply).error_code
        };
        assert_eq!(ask("a", Some("cluster"), 1), ErrorCode::None);
        assert_eq!(ask("a", Some("another"), 1), ErrorCode::RebootstrapRequired);
        assert_eq!(ask("a", Some("cluster"), 2), ErrorCode::RebootstrapRequired);
        assert_eq!(ask("-a", None, -1), ErrorCode::InvalidRequest);
        assert_eq!(ask("", None, -1), ErrorCode::InvalidRequest);
    }
}
