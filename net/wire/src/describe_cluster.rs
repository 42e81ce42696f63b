//! DescribeCluster (key 60).

use ringmain_types::{BrokerId, ErrorCode};

use crate::Array;
use crate::api::api;

api! {
    /// The cluster's id, controller and brokers (KIP-700, KIP-919, KIP-1073).
    api DESCRIBE_CLUSTER "DescribeCluster" = 60, versions 0..=2, flexible 0, Ordered,
        DescribeClusterRequest, DescribeClusterResponse;

    struct DescribeClusterRequest {
        include_cluster_authorized_operations: bool = 0..;
        /// 1 brokers, 2 controllers.
        endpoint_type: i8 = 1.., default 1;
        include_fenced_brokers: bool = 2..;
    }

    struct DescribeClusterResponse<'a> {
        throttle_time_ms: i32 = 0..;
        error_code: ErrorCode = 0..;
        error_message: Option<&'a str> = 0..;
        /// 1 brokers, 2 controllers.
        endpoint_type: i8 = 1.., default 1;
        cluster_id: &'a str = 0..;
        controller_id: BrokerId = 0.., default BrokerId(-1);
        brokers: Array<'a, DescribeClusterBroker<'a>> = 0..;
        /// A bit field; `i32::MIN` when not asked for.
        cluster_authorized_operations: i32 = 0.., default i32::MIN;
    }

    struct DescribeClusterBroker<'a> {
        broker_id: BrokerId = 0..;
        host: &'a str = 0..;
        port: i32 = 0..;
        rack: Option<&'a str> = 0..;
        is_fenced: bool = 2..;
    }
}
