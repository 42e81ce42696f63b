//! Another implementation of the protocol, the `kafka-protocol` crate, as judge: random bodies of every version that both speak must
//! come through each of them unchanged, so whatever one writes the other reads to the same bytes. And what a handler fills in under
//! a name must be what the other finds under that name.

mod facts;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Message, VersionRange};
use ringmain_buffer::Buf;
use ringmain_types::*;
use ringmain_wire::{self as ours, Field, RecordBytes, Writer};

const BODIES_PER_VERSION: u64 = 60;

struct Pair {
    name: &'static str,
    versions: VersionRange,
    /// Decodes and encodes.
    ours: fn(i16, &[u8]) -> Vec<u8>,
    theirs: fn(i16, &[u8]) -> Vec<u8>,
}

macro_rules! pairs { ($($spec:ident $name:ident;)*) => { [$(Pair {
    name: stringify!($name),
    versions: theirs::$name::VERSIONS,
    ours: |version, bytes| {
        let body: ours::$name = ours::decode(&ours::$spec, version, bytes).unwrap();
        let mut w = Writer::new(version, ours::$spec.is_flexible(version));
        body.write(&mut w);
        w.finish().concat()
    },
    theirs: |version, bytes| {
        let mut bytes = Bytes::copy_from_slice(bytes);
        let body = theirs::$name::decode(&mut bytes, version).unwrap();
        assert!(bytes.is_empty(), "{} bytes left", bytes.len());
        let mut out = BytesMut::new();
        body.encode(&mut out, version).unwrap();
        out.to_vec()
    },
}),*] } }

fn pairs() -> [Pair; 64] {
    pairs! {
        PRODUCE ProduceRequest;
        PRODUCE ProduceResponse;
        FETCH FetchRequest;
        FETCH FetchResponse;
        LIST_OFFSETS ListOffsetsRequest;
        LIST_OFFSETS ListOffsetsResponse;
        METADATA MetadataRequest;
        METADATA MetadataResponse;
        API_VERSIONS ApiVersionsRequest;
        API_VERSIONS ApiVersionsResponse;
        CREATE_TOPICS CreateTopicsRequest;
        CREATE_TOPICS CreateTopicsResponse;
        DELETE_TOPICS DeleteTopicsRequest;
        DELETE_TOPICS DeleteTopicsResponse;
        DELETE_RECORDS DeleteRecordsRequest;
        DELETE_RECORDS DeleteRecordsResponse;
        INIT_PRODUCER_ID InitProducerIdRequest;
        INIT_PRODUCER_ID InitProducerIdResponse;
        OFFSET_FOR_LEADER_EPOCH OffsetForLeaderEpochRequest;
        OFFSET_FOR_LEADER_EPOCH OffsetForLeaderEpochResponse;
        DESCRIBE_CONFIGS DescribeConfigsRequest;
        DESCRIBE_CONFIGS DescribeConfigsResponse;
        ALTER_CONFIGS AlterConfigsRequest;
        ALTER_CONFIGS AlterConfigsResponse;
        DESCRIBE_LOG_DIRS DescribeLogDirsRequest;
        DESCRIBE_LOG_DIRS DescribeLogDirsResponse;
        CREATE_PARTITIONS CreatePartitionsRequest;
        CREATE_PARTITIONS CreatePartitionsResponse;
        INCREMENTAL_ALTER_CONFIGS IncrementalAlterConfigsRequest;
        INCREMENTAL_ALTER_CONFIGS IncrementalAlterConfigsResponse;
        DESCRIBE_CLUSTER DescribeClusterRequest;
        DESCRIBE_CLUSTER DescribeClusterResponse;
        DESCRIBE_PRODUCERS DescribeProducersRequest;
        DESCRIBE_PRODUCERS DescribeProducersResponse;
        LIST_CONFIG_RESOURCES ListConfigResourcesRequest;
        LIST_CONFIG_RESOURCES ListConfigResourcesResponse;
        DESCRIBE_TOPIC_PARTITIONS DescribeTopicPartitionsRequest;
        DESCRIBE_TOPIC_PARTITIONS DescribeTopicPartitionsResponse;
        FIND_COORDINATOR FindCoordinatorRequest;
        FIND_COORDINATOR FindCoordinatorResponse;
        JOIN_GROUP JoinGroupRequest;
        JOIN_GROUP JoinGroupResponse;
        HEARTBEAT HeartbeatRequest;
        HEARTBEAT HeartbeatResponse;
        LEAVE_GROUP LeaveGroupRequest;
        LEAVE_GROUP LeaveGroupResponse;
        SYNC_GROUP SyncGroupRequest;
        SYNC_GROUP SyncGroupResponse;
        DESCRIBE_GROUPS DescribeGroupsRequest;
        DESCRIBE_GROUPS DescribeGroupsResponse;
        LIST_GROUPS ListGroupsRequest;
        LIST_GROUPS ListGroupsResponse;
        OFFSET_COMMIT OffsetCommitRequest;
        OFFSET_COMMIT OffsetCommitResponse;
        OFFSET_FETCH OffsetFetchRequest;
        OFFSET_FETCH OffsetFetchResponse;
        DELETE_GROUPS DeleteGroupsRequest;
        DELETE_GROUPS DeleteGroupsResponse;
        OFFSET_DELETE OffsetDeleteRequest;
        OFFSET_DELETE OffsetDeleteResponse;
        CONSUMER_GROUP_HEARTBEAT ConsumerGroupHeartbeatRequest;
        CONSUMER_GROUP_HEARTBEAT ConsumerGroupHeartbeatResponse;
        CONSUMER_GROUP_DESCRIBE ConsumerGroupDescribeRequest;
        CONSUMER_GROUP_DESCRIBE ConsumerGroupDescribeResponse;
    }
}

/// Per message: the versions that ran, of those that we speak.
#[test]
fn bodies_pass_through_both_unchanged() {
    let pairs = pairs();
    let mut not_judged = Vec::new();
    for message in facts::messages() {
        let pair = pairs.iter().find(|pair| pair.name == message.name).expect("a pair");
        let (min, max) = ours::api(message.key).unwrap().versions;
        for version in min..=max {
            let judged = (pair.versions.min..=pair.versions.max).contains(&version);
            if !judged {
                not_judged.push(format!("{} {version}", pair.name));
            }
            for seed in 0..BODIES_PER_VERSION {
                let body = facts::Bodies::new(seed, &message, version).body(&message.fields);
                assert_eq!((pair.ours)(version, &body), body, "ours: {} {version}, seed {seed}", pair.name);
                if judged {
                    assert_eq!((pair.theirs)(version, &body), body, "theirs: {} {version}, seed {seed}", pair.name);
                }
            }
        }
    }
    assert_eq!(not_judged, NOT_JUDGED, "versions that the other implementation does not have");
}

/// Newer than the crate, or (Produce) older: there the facts of the schemas are the only judge.
const NOT_JUDGED: &[&str] = &[
    "ProduceRequest 0",
    "ProduceRequest 1",
    "ProduceRequest 2",
    "ProduceResponse 0",
    "ProduceResponse 1",
    "ProduceResponse 2",
    "ListOffsetsRequest 11",
    "ListOffsetsResponse 11",
    "ApiVersionsRequest 5",
    "ApiVersionsResponse 5",
    "DescribeLogDirsRequest 5",
    "DescribeLogDirsResponse 5",
    "OffsetCommitRequest 10",
    "OffsetFetchRequest 10",
    "DeleteGroupsRequest 3",
    "DeleteGroupsResponse 3",
];

fn decode_theirs<T: Decodable>(mut bytes: Bytes, version: i16) -> T {
    let body = T::decode(&mut bytes, version).unwrap();
    assert!(bytes.is_empty());
    body
}

/// A whole frame without its length prefix, which is checked.
fn frame(parts: &[Buf]) -> Bytes {
    let bytes = parts.concat();
    assert_eq!(bytes[..4], ((bytes.len() - 4) as i32).to_be_bytes());
    Bytes::from(bytes).slice(4..)
}

#[test]
fn a_request_is_read_by_the_others_names() {
    for version in 3..=13 {
        let named = version <= 12;
        let body = ours::ProduceRequest {
            transactional_id: Some("tx"),
            acks: -1,
            timeout_ms: 1500,
            topic_data: vec![ours::produce::TopicProduceData {
                name: if named { "orders" } else { "" },
                topic_id: if named { TopicId::NONE } else { TopicId(0x1234 << 100) },
                partition_data: vec![
                    ours::produce::PartitionProduceData {
                        index: PartitionIndex(7),
                        records: RecordBytes::Parts(vec![Buf::copy_of(b"one"), Buf::copy_of(b"two")]),
                    },
                    ours::produce::PartitionProduceData { index: PartitionIndex(8), records: RecordBytes::Null },
                ]
                .into(),
            }]
            .into(),
        };
        let mut bytes = frame(&ours::encode_request(&ours::PRODUCE, version, 77, Some("me"), &body));
        let (header, at) = ours::request_header(&bytes).unwrap();
        assert_eq!(header, ours::RequestHeader { api: 0, version, correlation: 77, client_id: Some("me") });
        assert_eq!(ours::decode::<ours::ProduceRequest>(&ours::PRODUCE, version, &bytes[at..]).unwrap(), body);

        let header =
            theirs::RequestHeader::decode(&mut bytes, theirs::ProduceRequest::header_version(version)).unwrap();
        assert_eq!((header.request_api_key, header.request_api_version), (0, version));
        assert_eq!((header.correlation_id, header.client_id.unwrap().as_str()), (77, "me"));
        let read: theirs::ProduceRequest = decode_theirs(bytes, version);
        assert_eq!((read.transactional_id.unwrap().as_str(), read.acks, read.timeout_ms), ("tx", -1, 1500));
        let topic = &read.topic_data[0];
        assert_eq!(topic.name.as_str(), if named { "orders" } else { "" });
        assert_eq!(topic.topic_id.as_u128(), if named { 0 } else { 0x1234 << 100 });
        assert_eq!((topic.partition_data[0].index, topic.partition_data[1].index), (7, 8));
        assert_eq!(topic.partition_data[0].records.as_deref(), Some(&b"onetwo"[..]));
        assert_eq!(topic.partition_data[1].records, None);
    }
}

#[test]
fn a_reply_is_read_by_the_others_names_and_splices_its_records() {
    let records = Buf::copy_of(&[5; 1000]);
    for version in 4..=18 {
        let partition = ours::fetch::PartitionData {
            partition_index: PartitionIndex(3),
            error_code: ErrorCode::FencedLeaderEpoch,
            high_watermark: Offset(100),
            last_stable_offset: Offset(90),
            log_start_offset: Offset(if version >= 5 { 10 } else { -1 }),
            aborted_transactions: Some(
                vec![ours::fetch::AbortedTransaction { producer_id: ProducerId(4), first_offset: Offset(50) }].into(),
            ),
            records: RecordBytes::Parts(vec![records.clone(), records.clone()]),
            current_leader: match version {
                12.. => ours::fetch::LeaderIdAndEpoch { leader_id: BrokerId(2), leader_epoch: LeaderEpoch(6) },
                _ => Default::default(),
            },
            ..Default::default()
        };
        let body = ours::FetchResponse {
            throttle_time_ms: 12,
            session_id: if version >= 7 { 99 } else { 0 },
            responses: vec![ours::fetch::FetchableTopicResponse {
                topic: if version <= 12 { "orders" } else { "" },
                topic_id: if version <= 12 { TopicId::NONE } else { TopicId(9) },
                partitions: vec![partition].into(),
            }]
            .into(),
            ..Default::default()
        };
        let parts = ours::encode_reply(&ours::FETCH, version, 5, &body);
        assert_eq!(parts.iter().filter(|part| part.same_block(&records)).count(), 2, "spliced, not copied");
        let mut bytes = frame(&parts);
        assert_eq!(ours::decode_reply::<ours::FetchResponse>(&ours::FETCH, version, &bytes).unwrap(), (5, body));

        let header =
            theirs::ResponseHeader::decode(&mut bytes, theirs::FetchResponse::header_version(version)).unwrap();
        assert_eq!(header.correlation_id, 5);
        let read: theirs::FetchResponse = decode_theirs(bytes, version);
        let partition = &read.responses[0].partitions[0];
        assert_eq!((read.throttle_time_ms, read.session_id), (12, if version >= 7 { 99 } else { 0 }));
        assert_eq!((partition.partition_index, partition.error_code), (3, 74));
        assert_eq!((partition.high_watermark, partition.last_stable_offset), (100, 90));
        assert_eq!(partition.log_start_offset, if version >= 5 { 10 } else { -1 });
        assert_eq!(partition.current_leader.leader_id.0, if version >= 12 { 2 } else { -1 });
        assert_eq!(partition.aborted_transactions.as_ref().unwrap()[0].first_offset, 50);
        assert_eq!(partition.records.as_ref().unwrap().len(), 2000);
    }
}

#[test]
fn an_unknown_version_of_api_versions_gets_the_list() {
    let body = ours::ApiVersionsRequest { client_software_name: "x", ..Default::default() };
    let bytes = frame(&ours::encode_request(&ours::API_VERSIONS, 99, 8, Some("new"), &body));
    let (header, _) = ours::request_header(&bytes).unwrap();
    assert_eq!((header.api, header.version, header.correlation, header.client_id), (18, 99, 8, Some("new")));
    let (header, at) = ours::request_header(&[0, 18, 0, 99, 0, 0, 0, 8, 0xff]).unwrap();
    assert_eq!((header.version, header.correlation, header.client_id, at), (99, 8, None, 8));

    let mut bytes = frame(&ours::encode_unsupported_api_versions(8));
    let header = theirs::ResponseHeader::decode(&mut bytes, theirs::ApiVersionsResponse::header_version(4)).unwrap();
    assert_eq!(header.correlation_id, 8);
    let read: theirs::ApiVersionsResponse = decode_theirs(bytes, 0);
    assert_eq!((read.error_code, read.api_keys.len()), (35, ours::APIS.len()));
    let fetch = read.api_keys.iter().find(|api| api.api_key == 1).unwrap();
    assert_eq!((fetch.min_version, fetch.max_version), (4, 18));
}

#[test]
fn the_reply_of_api_versions_keeps_header_v0() {
    for version in 0..=4 {
        let body = ours::ApiVersionsResponse {
            api_keys: ours::advertised(),
            finalized_features_epoch: if version >= 3 { 7 } else { -1 },
            ..Default::default()
        };
        let mut bytes = frame(&ours::encode_reply(&ours::API_VERSIONS, version, 8, &body));
        let ours = ours::decode_reply::<ours::ApiVersionsResponse>(&ours::API_VERSIONS, version, &bytes).unwrap();
        assert_eq!(ours, (8, body));
        let header_version = theirs::ApiVersionsResponse::header_version(version);
        assert_eq!(theirs::ResponseHeader::decode(&mut bytes, header_version).unwrap().correlation_id, 8);
        let read: theirs::ApiVersionsResponse = decode_theirs(bytes, version);
        assert_eq!(read.finalized_features_epoch, if version >= 3 { 7 } else { -1 });
    }
}

#[test]
fn headers_are_the_others_headers() {
    for info in ours::API_INFOS {
        let spec = &info.spec;
        for version in spec.versions.0..=spec.versions.1 {
            let key = theirs::ApiKey::try_from(spec.key).unwrap();
            let header_version = key.request_header_version(version);
            assert_eq!(header_version, if spec.is_flexible(version) { 2 } else { 1 }, "{} {version}", spec.name);
            let header = theirs::RequestHeader::default()
                .with_request_api_key(spec.key)
                .with_request_api_version(version)
                .with_correlation_id(4)
                .with_client_id(None);
            let mut bytes = BytesMut::new();
            header.encode(&mut bytes, header_version).unwrap();
            let (ours, at) = ours::request_header(&bytes).unwrap();
            assert_eq!((ours.api, ours.version, ours.correlation, ours.client_id), (spec.key, version, 4, None));
            assert_eq!(at, bytes.len());
        }
    }
}
