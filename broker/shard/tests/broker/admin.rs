//! Topics come and go without a window.

use ringmain_types::*;
use ringmain_wire as wire;
use ringmain_wire::delete_topics::DeleteTopicState;
use ringmain_wire::metadata::MetadataRequestTopic;

use crate::data::{Ask, fetch, produce};
use crate::world::{World, batch, decoded};

fn delete_topic(world: &mut World, connection: ConnectionId, name: &str) -> ErrorCode {
    let state = DeleteTopicState { name: Some(name), ..Default::default() };
    let request = wire::DeleteTopicsRequest { topics: vec![state].into(), ..Default::default() };
    let frame = world.ask(connection, &wire::DELETE_TOPICS, 6, &request);
    let reply: wire::DeleteTopicsResponse<'_> = decoded(&wire::DELETE_TOPICS, 6, &frame);
    reply.responses.iter().next().unwrap().error_code
}

#[test]
fn recreated_fifty_times_it_is_new_each_time() {
    let mut world = World::new(2);
    let (one, two) = (world.connect(0), world.connect(1));
    let mut before = TopicId::NONE;
    for _ in 0..50 {
        let topic = world.create_topic(one, "orders", 4, &[]);
        assert_ne!(topic, before);
        let parts: Vec<(i32, Vec<u8>)> = (0..4).map(|index| (index, batch(&["a"], None))).collect();
        assert_eq!(produce(&mut world, two, "orders", -1, &parts), [(ErrorCode::None, 0); 4]);
        let ask = Ask { parts: &[(0, 0), (1, 0), (2, 0), (3, 0)], ..Ask::default() };
        let parts = fetch(&mut world, two, topic, &ask).2;
        assert!(parts.iter().all(|part| part.values.len() == 1), "{parts:?}");
        assert_eq!(delete_topic(&mut world, two, "orders"), ErrorCode::None);
        let gone = fetch(&mut world, one, topic, &ask).2;
        assert!(gone.iter().all(|part| part.error == ErrorCode::UnknownTopicId));
        let unknown = (ErrorCode::UnknownTopicOrPartition, -1);
        assert_eq!(produce(&mut world, one, "orders", 1, &[(0, batch(&["a"], None))]), [unknown]);
        before = topic;
    }
}

#[test]
fn a_deleted_topic_ends_long_polls() {
    let mut world = World::new(2);
    let (one, two) = (world.connect(0), world.connect(1));
    let topic = world.create_topic(one, "orders", 2, &[]);
    crate::data::send_fetch(
        &mut world,
        one,
        topic,
        &Ask { parts: &[(0, 0), (1, 0)], wait_ms: 10_000, ..Ask::default() },
    );
    delete_topic(&mut world, two, "orders");
    let (_, _, parts) = crate::data::fetched(&mut world, one).expect("it does not wait for what is gone");
    assert!(parts.iter().any(|part| part.error != ErrorCode::None), "{parts:?}");
}

#[test]
fn metadata_makes_missing_topics_and_all_shards_serve_them() {
    let mut world = World::with(2, Limits::tiny(), &[("num.partitions", "3")]);
    let connection = world.connect(1);
    let topic = MetadataRequestTopic { name: Some("made"), ..Default::default() };
    let request = wire::MetadataRequest {
        topics: Some(vec![topic].into()),
        allow_auto_topic_creation: true,
        ..Default::default()
    };
    let frame = world.ask(connection, &wire::METADATA, 12, &request);
    let reply: wire::MetadataResponse<'_> = decoded(&wire::METADATA, 12, &frame);
    let topic = reply.topics.iter().next().unwrap();
    assert_eq!((topic.error_code, topic.partitions.len()), (ErrorCode::None, 3));
    let parts: Vec<(i32, Vec<u8>)> = (0..3).map(|index| (index, batch(&["a"], None))).collect();
    assert_eq!(produce(&mut world, connection, "made", -1, &parts), [(ErrorCode::None, 0); 3]);
}

#[test]
fn log_directories_show_what_partitions_hold() {
    let mut world = World::new(2);
    let connection = world.connect(1);
    world.create_topic(connection, "orders", 2, &[]);
    let one = batch(&["a"], None);
    produce(&mut world, connection, "orders", 1, &[(1, one.clone())]);
    let frame = world.ask(connection, &wire::DESCRIBE_LOG_DIRS, 4, &wire::DescribeLogDirsRequest { topics: None });
    let reply: wire::DescribeLogDirsResponse<'_> = decoded(&wire::DESCRIBE_LOG_DIRS, 4, &frame);
    let directory = reply.results.iter().next().unwrap();
    assert_eq!((directory.error_code, directory.log_dir), (ErrorCode::None, "/data"));
    assert_eq!((directory.total_bytes, directory.usable_bytes), (5000, 3000), "the file system's");
    let topic = directory.topics.iter().next().unwrap();
    let sizes: Vec<i64> = topic.partitions.iter().map(|part| part.partition_size).collect();
    assert_eq!((topic.name, sizes), ("orders", vec![0, one.len() as i64]));
}

#[test]
fn configs_of_a_topic_take_hold_at_once() {
    use wire::incremental_alter_configs::{AlterConfigsResource, AlterableConfig};
    let mut world = World::new(2);
    let connection = world.connect(1);
    world.create_topic(connection, "orders", 2, &[]);
    let config = AlterableConfig { name: "max.message.bytes", config_operation: 0, value: Some("50") };
    let resource = AlterConfigsResource { resource_type: 2, resource_name: "orders", configs: vec![config].into() };
    let request = wire::IncrementalAlterConfigsRequest { resources: vec![resource].into(), validate_only: false };
    let frame = world.ask(connection, &wire::INCREMENTAL_ALTER_CONFIGS, 1, &request);
    let reply: wire::IncrementalAlterConfigsResponse<'_> = decoded(&wire::INCREMENTAL_ALTER_CONFIGS, 1, &frame);
    assert_eq!(reply.responses.iter().next().unwrap().error_code, ErrorCode::None);
    let other = world.connect(0);
    for connection in [connection, other] {
        let code = produce(&mut world, connection, "orders", 1, &[(0, batch(&["a"], None))])[0].0;
        assert_eq!(code, ErrorCode::MessageTooLarge);
    }
}
