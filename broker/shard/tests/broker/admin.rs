//! Topics come and go without a window.

use std::sync::Arc;

use ringmain_metadata::ClusterImage;
use ringmain_types::*;
use ringmain_wire as wire;
use ringmain_wire::delete_topics::DeleteTopicState;
use ringmain_wire::metadata::MetadataRequestTopic;

use ringmain_shard::Note;

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

fn image(world: &World) -> Arc<ClusterImage> {
    let images = world.notes.iter().rev().find_map(|(_, note)| match note {
        Note::Image(image) => Some(image.clone()),
        _ => None,
    });
    images.expect("an image was published")
}

fn producer_id(world: &mut World, connection: ConnectionId) -> i64 {
    let request =
        wire::InitProducerIdRequest { transactional_id: None, producer_id: ProducerId(-1), ..Default::default() };
    let frame = world.ask(connection, &wire::INIT_PRODUCER_ID, 4, &request);
    let reply: wire::InitProducerIdResponse = decoded(&wire::INIT_PRODUCER_ID, 4, &frame);
    assert_eq!(reply.error_code, ErrorCode::None);
    reply.producer_id.0
}

/// Where the metadata log was let begin in this life.
fn said_again(world: &World) -> Vec<i64> {
    let of = |note: &Note| if let Note::SaidAgain { start } = note { Some(start.0) } else { None };
    world.notes.iter().filter_map(|(_, note)| of(note)).collect()
}

/// What it knows, besides how far it is and whose lives there were.
fn known(image: &ClusterImage) -> ClusterImage {
    ClusterImage { next: Offset(0), brokers: Default::default(), ..image.clone() }
}

#[test]
fn the_metadata_log_does_not_grow_with_what_is_gone() {
    let mut world = World::new(2);
    world.limits.metadata_segment_bytes = 8 << 10;
    world.limits.metadata_again_bytes = 2 << 10;
    world.start(2);
    let mut lives = Vec::new();
    for life in 0..3 {
        let connection = world.connect(0);
        world.create_topic(connection, &format!("stays.{life}"), 3, &[("retention.ms", "77")]);
        let id = producer_id(&mut world, connection);
        for _ in 0..200 {
            world.create_topic(connection, "goes", 2, &[("flush", "async")]);
            assert_eq!(delete_topic(&mut world, connection, "goes"), ErrorCode::None);
        }
        world.advance_ms(5000);
        let starts = said_again(&world);
        assert!(starts.len() > 10 && starts.is_sorted(), "{starts:?}");
        // A state of 64 removals and a few topics comes to 3 KiB; the changes of one life to 150.
        let bytes = world.disks[0].bytes_of("__cluster_metadata");
        assert!(bytes < 40 << 10, "{bytes}");
        let before = image(&world);
        // Once as if it was killed, once cleanly.
        if life == 1 {
            world.stop();
        }
        world.start(2);
        let after = image(&world);
        assert!(after.next > before.next);
        assert_eq!(known(&after), known(&before));
        assert!(after.brokers[&BrokerId(1)].epoch > before.brokers[&BrokerId(1)].epoch);
        lives.push((id, before.topics.len()));
    }
    assert!(lives.is_sorted() && lives.len() == 3 && lives[2].0 > lives[1].0, "{lives:?}");
}

#[test]
fn what_is_said_again_counts_when_it_is_flushed() {
    let mut limits = Limits::tiny();
    (limits.metadata_again_bytes, limits.metadata_again_times) = (64, 2);
    let changed = |world: &mut World, connection, nth: u32| {
        if nth.is_multiple_of(2) {
            let topic = wire::create_topics::CreatableTopic {
                name: "goes",
                num_partitions: 1,
                replication_factor: 1,
                ..Default::default()
            };
            let request = wire::CreateTopicsRequest { topics: vec![topic].into(), ..Default::default() };
            world.send(connection, &wire::CREATE_TOPICS, 7, &request);
        } else {
            delete_topic(world, connection, "goes");
        }
        world.frame(connection);
    };
    let mut world = World::with(1, limits.clone(), &[]);
    let connection = world.connect(0);
    let counts = (0..100).find(|nth| {
        changed(&mut world, connection, *nth);
        !said_again(&world).is_empty()
    });
    // Once more, and now the flush fails.
    let mut world = World::with(1, limits, &[]);
    let connection = world.connect(0);
    let counts = counts.expect("the state is said again");
    (0..counts).for_each(|nth| changed(&mut world, connection, nth));
    world.disks[0].fail_flushes = true;
    changed(&mut world, connection, counts);
    assert!(world.notes.iter().any(|(_, note)| matches!(note, Note::Fenced { .. })));
    assert!(said_again(&world).is_empty());
}

/// What finds no room for all of it has said nothing.
#[test]
fn half_of_the_metadata_is_never_where_the_log_begins() {
    let mut world = World::new(1);
    world.limits.metadata_segment_bytes = 8 << 10;
    world.limits.metadata_again_times = 2;
    world.start(1);
    let connection = world.connect(0);
    let name = |nth: u32| format!("{nth:0240}");
    // More than the segments of a log that may be open at once.
    for nth in 0..60 {
        world.create_topic(connection, &name(nth), 4, &[]);
    }
    for _ in 0..300 {
        world.create_topic(connection, "goes", 1, &[]);
        assert_eq!(delete_topic(&mut world, connection, "goes"), ErrorCode::None);
    }
    let before = image(&world);
    assert_eq!(before.topics.len(), 60);
    assert!(said_again(&world).is_empty());
    world.start(1);
    assert_eq!(known(&image(&world)), known(&before));
}
