//! ListConfigResources (key 74).

use ringmain_types::ErrorCode;

use crate::Array;
use crate::api::api;

api! {
    /// Names of the resources that can have configs (KIP-1142).
    api LIST_CONFIG_RESOURCES "ListConfigResources" = 74, versions 0..=1, flexible 0, Ordered,
        ListConfigResourcesRequest, ListConfigResourcesResponse;

    struct ListConfigResourcesRequest<'a> {
        /// Empty is all; v0 is always client metrics.
        resource_types: Array<'a, i8> = 1..;
    }

    struct ListConfigResourcesResponse<'a> {
        throttle_time_ms: i32 = 0..;
        error_code: ErrorCode = 0..;
        config_resources: Array<'a, ConfigResource<'a>> = 0..;
    }

    struct ConfigResource<'a> {
        resource_name: &'a str = 0..;
        /// 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.
        resource_type: i8 = 1.., default 16;
    }
}
