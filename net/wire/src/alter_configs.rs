//! AlterConfigs (key 33).

use ringmain_types::ErrorCode;

use crate::Array;
use crate::api::api;

api! {
    /// Replaces all dynamic configs of a resource: what it does not name is reset.
    api ALTER_CONFIGS "AlterConfigs" = 33, versions 0..=2, flexible 2, Barrier,
        AlterConfigsRequest, AlterConfigsResponse;

    struct AlterConfigsRequest<'a> {
        resources: Array<'a, AlterConfigsResource<'a>> = 0..;
        validate_only: bool = 0..;
    }

    struct AlterConfigsResource<'a> {
        /// 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.
        resource_type: i8 = 0..;
        resource_name: &'a str = 0..;
        configs: Array<'a, AlterableConfig<'a>> = 0..;
    }

    struct AlterableConfig<'a> {
        name: &'a str = 0..;
        /// Null resets to the default.
        value: Option<&'a str> = 0..;
    }

    struct AlterConfigsResponse<'a> {
        throttle_time_ms: i32 = 0..;
        responses: Array<'a, AlterConfigsResourceResponse<'a>> = 0..;
    }

    struct AlterConfigsResourceResponse<'a> {
        error_code: ErrorCode = 0..;
        error_message: Option<&'a str> = 0..;
        /// 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.
        resource_type: i8 = 0..;
        resource_name: &'a str = 0..;
    }
}
