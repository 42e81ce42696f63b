//! ApiVersions (key 18).

use ringmain_types::{BrokerId, ErrorCode};

use crate::Array;
use crate::api::api;

api! {
    /// The first request of most clients. Its reply always has header v0, whatever its version (KIP-511); features are KIP-584's.
    api API_VERSIONS "ApiVersions" = 18, versions 0..=5, flexible 3, Ordered,
        ApiVersionsRequest, ApiVersionsResponse;

    struct ApiVersionsRequest<'a> {
        client_software_name: &'a str = 3..;
        client_software_version: &'a str = 3..;
        cluster_id: Option<&'a str> = 5..;
        /// With `cluster_id`: whom the client believes to talk to; an error says when it is mistaken.
        node_id: BrokerId = 5.., default BrokerId(-1);
    }

    struct ApiVersionsResponse<'a> {
        error_code: ErrorCode = 0..;
        api_keys: Array<'a, ApiVersion> = 0..;
        throttle_time_ms: i32 = 1..;
        supported_features: Array<'a, SupportedFeatureKey<'a>> = 3.., tag 0;
        finalized_features_epoch: i64 = 3.., tag 1, default -1;
        finalized_features: Array<'a, FinalizedFeatureKey<'a>> = 3.., tag 2;
        zk_migration_ready: bool = 3.., tag 3;
    }

    struct ApiVersion {
        api_key: i16 = 0..;
        min_version: i16 = 0..;
        max_version: i16 = 0..;
    }

    struct SupportedFeatureKey<'a> {
        name: &'a str = 3..;
        min_version: i16 = 3..;
        max_version: i16 = 3..;
    }

    struct FinalizedFeatureKey<'a> {
        name: &'a str = 3..;
        max_version_level: i16 = 3..;
        min_version_level: i16 = 3..;
    }
}
