//! Every admin API against bytes that went wrong: a reply or a close, never a panic, and what was decided can always be replayed.

use ringmain_buffer::Buf;
use ringmain_session::Request;
use ringmain_types::{BrokerId, PartitionIndex, TopicId};
use ringmain_wire::*;

use super::control::{self, Reply};
use super::fixture::{Fixture, NOW, request};
use super::local::{self, Local};

/// One request of each version of each API, with something in every array.
fn requests(topic_id: TopicId) -> Vec<Request> {
    let mut out = Vec::new();
    macro_rules! every { ($($spec:expr => $body:expr;)*) => {$(
        for version in $spec.versions.0..=$spec.versions.1 {
            out.push(request(&$spec, version, &$body));
        }
    )*} }
    let by_hand = create_topics::CreatableReplicaAssignment {
        partition_index: PartitionIndex(0),
        broker_ids: vec![BrokerId(1)].into(),
    };
    let config = create_topics::CreatableTopicConfig { name: "retention.ms", value: Some("5") };
    let altered = alter_configs::AlterableConfig { name: "cleanup.policy", value: Some("compact") };
    let changed = incremental_alter_configs::AlterableConfig {
        name: "cleanup.policy",
        config_operation: 2,
        value: Some("compact"),
    };
    every! {
        METADATA => MetadataRequest {
            topics: Some(vec![metadata::MetadataRequestTopic { name: Some("a"), ..Default::default() }].into()),
            ..Default::default()
        };
        API_VERSIONS => ApiVersionsRequest {
            client_software_name: "x", client_software_version: "1", ..Default::default()
        };
        DESCRIBE_CONFIGS => DescribeConfigsRequest {
            resources: vec![describe_configs::DescribeConfigsResource {
                resource_type: 2, resource_name: "a", configuration_keys: Some(vec!["flush"].into()),
            }].into(),
            include_synonyms: true,
            include_documentation: true,
        };
        DESCRIBE_CLUSTER => DescribeClusterRequest::default();
        LIST_CONFIG_RESOURCES => ListConfigResourcesRequest { resource_types: vec![2, 4].into() };
        DESCRIBE_TOPIC_PARTITIONS => DescribeTopicPartitionsRequest {
            topics: vec![describe_topic_partitions::TopicRequest { name: "a" }].into(),
            cursor: Some(describe_topic_partitions::Cursor { topic_name: "a", partition_index: PartitionIndex(1) }),
            ..Default::default()
        };
        CREATE_TOPICS => CreateTopicsRequest {
            topics: vec![
                create_topics::CreatableTopic {
                    name: "b", num_partitions: 2, replication_factor: 1, configs: vec![config.clone()].into(),
                    ..Default::default()
                },
                create_topics::CreatableTopic {
                    name: "c", num_partitions: -1, replication_factor: -1, assignments: vec![by_hand.clone()].into(),
                    ..Default::default()
                },
            ].into(),
            ..Default::default()
        };
        DELETE_TOPICS => DeleteTopicsRequest {
            topics: vec![
                delete_topics::DeleteTopicState { name: Some("a"), ..Default::default() },
                delete_topics::DeleteTopicState { name: None, topic_id },
            ].into(),
            topic_names: vec!["a"].into(),
            ..Default::default()
        };
        CREATE_PARTITIONS => CreatePartitionsRequest {
            topics: vec![create_partitions::CreatePartitionsTopic {
                name: "a", count: 3,
                assignments: Some(vec![
                    create_partitions::CreatePartitionsAssignment { broker_ids: vec![BrokerId(1)].into() }
                ].into()),
            }].into(),
            ..Default::default()
        };
        ALTER_CONFIGS => AlterConfigsRequest {
            resources: vec![alter_configs::AlterConfigsResource {
                resource_type: 2, resource_name: "a", configs: vec![altered.clone()].into(),
            }].into(),
            ..Default::default()
        };
        INCREMENTAL_ALTER_CONFIGS => IncrementalAlterConfigsRequest {
            resources: vec![incremental_alter_configs::AlterConfigsResource {
                resource_type: 2, resource_name: "a", configs: vec![changed.clone()].into(),
            }].into(),
            ..Default::default()
        };
        INIT_PRODUCER_ID => InitProducerIdRequest { transactional_id: Some("t"), ..Default::default() };
    }
    out
}

/// Whether it was answered, rather than the connection closed.
fn put(fixture: &mut Fixture, request: Request) -> bool {
    if local::is_local(request.api) {
        return match fixture.answer(request, None) {
            Local::Reply(answer) => !answer.parts.is_empty(),
            Local::Create(names) => !names.is_empty(),
            Local::Close(why) => why.is_empty(),
        };
    }
    assert!(control::is_control(request.api));
    let decided = control::decide(&mut fixture.controller, NOW, &request);
    fixture.replay(&decided.records);
    match decided.reply {
        Reply::Answer(answer) => !answer.parts.is_empty(),
        Reply::Close(why) => {
            assert!(decided.records.is_empty() && !why.is_empty());
            false
        }
    }
}

fn world() -> (Fixture, TopicId) {
    let mut fixture = Fixture::new();
    let id = fixture.create("a", 2);
    (fixture, id)
}

#[test]
fn whole_requests_are_answered() {
    let (_, id) = world();
    for request in requests(id) {
        let (mut fixture, _) = world();
        let (api, version) = (request.api, request.version);
        assert!(put(&mut fixture, request), "API {api} v{version}");
    }
}

#[test]
fn a_cut_body_closes() {
    let (mut fixture, id) = world();
    for request in requests(id).into_iter().filter(|request| request.api != API_VERSIONS.key) {
        for end in request.body as usize..request.frame.len() {
            let cut = Request { frame: request.frame.slice(0..end), ..request.clone() };
            assert!(!put(&mut fixture, cut), "API {} v{} cut at {end}", request.api, request.version);
        }
    }
}

#[test]
fn an_overlong_frame_closes() {
    let (mut fixture, id) = world();
    for request in requests(id) {
        let mut bytes = request.frame.to_vec();
        bytes.resize(fixture.config.limits.admin_frame_bytes_max as usize + 1, 0);
        let request = Request { frame: Buf::copy_of(&bytes), ..request };
        let why = match local::is_local(request.api) {
            true => match fixture.answer(request, None) {
                Local::Close(why) => why,
                _ => panic!("answered"),
            },
            false => match control::decide(&mut fixture.controller, NOW, &request).reply {
                Reply::Close(why) => why,
                Reply::Answer(_) => panic!("answered"),
            },
        };
        assert!(why.contains("at most"), "{why}");
    }
}

#[test]
fn changed_bytes_never_panic() {
    let (mut fixture, id) = world();
    for request in requests(id) {
        for at in request.body as usize..request.frame.len() {
            for value in [0, 1, 2, 0x7f, 0x80, 0xfe, 0xff] {
                let mut bytes = request.frame.to_vec();
                bytes[at] = value;
                put(&mut fixture, Request { frame: Buf::copy_of(&bytes), ..request.clone() });
            }
        }
    }
}
