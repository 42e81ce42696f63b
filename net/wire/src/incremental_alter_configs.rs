//! IncrementalAlterConfigs (key 44).

use ringmain_types::ErrorCode;

use crate::Array;
use crate::api::api;

api! {
    /// Sets, deletes, appends to or subtracts from single configs (KIP-339).
    api INCREMENTAL_ALTER_CONFIGS "IncrementalAlterConfigs" = 44, versions 0..=1, flexible 1, Barrier,
        IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse;

    struct IncrementalAlterConfigsRequest<'a> {
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
        /// 0 set, 1 delete, 2 append, 3 subtract.
        config_operation: i8 = 0..;
        value: Option<&'a str> = 0..;
    }

    struct IncrementalAlterConfigsResponse<'a> {
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
