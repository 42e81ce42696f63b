//! DescribeConfigs (key 32).

use ringmain_types::ErrorCode;

use crate::Array;
use crate::api::api;

api! {
    /// Configs with their sources, synonyms (KIP-226), types and documentation (KIP-569).
    api DESCRIBE_CONFIGS "DescribeConfigs" = 32, versions 1..=4, flexible 4, Ordered,
        DescribeConfigsRequest, DescribeConfigsResponse;

    struct DescribeConfigsRequest<'a> {
        resources: Array<'a, DescribeConfigsResource<'a>> = 0..;
        include_synonyms: bool = 1..;
        include_documentation: bool = 3..;
    }

    struct DescribeConfigsResource<'a> {
        /// 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.
        resource_type: i8 = 0..;
        resource_name: &'a str = 0..;
        /// Null is all.
        configuration_keys: Option<Array<'a, &'a str>> = 0..;
    }

    struct DescribeConfigsResponse<'a> {
        throttle_time_ms: i32 = 0..;
        results: Array<'a, DescribeConfigsResult<'a>> = 0..;
    }

    struct DescribeConfigsResult<'a> {
        error_code: ErrorCode = 0..;
        error_message: Option<&'a str> = 0..;
        /// 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.
        resource_type: i8 = 0..;
        resource_name: &'a str = 0..;
        configs: Array<'a, DescribeConfigsResourceResult<'a>> = 0..;
    }

    struct DescribeConfigsResourceResult<'a> {
        name: &'a str = 0..;
        /// Null when not set, or sensitive.
        value: Option<&'a str> = 0..;
        read_only: bool = 0..;
        /// 1 topic, 2 dynamic broker, 3 dynamic default broker, 4 static broker, 5 default, 6 broker logger, 7 client metrics, 8 group.
        config_source: i8 = 1.., default -1;
        is_sensitive: bool = 0..;
        synonyms: Array<'a, DescribeConfigsSynonym<'a>> = 1..;
        /// 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password.
        config_type: i8 = 3..;
        documentation: Option<&'a str> = 3..;
    }

    struct DescribeConfigsSynonym<'a> {
        name: &'a str = 1..;
        /// Null when not set, or sensitive.
        value: Option<&'a str> = 1..;
        /// As `config_source`.
        source: i8 = 1..;
    }
}
