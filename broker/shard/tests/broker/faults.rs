//! What goes wrong, and whom it concerns.

use ringmain_session::Close;
use ringmain_shard::Note;
use ringmain_types::*;
use ringmain_wire as wire;

use crate::data::{Ask, fetch, fetched, produce, produced, send_fetch, send_produce};
use crate::world::{World, batch, decoded};

fn closed_for(world: &World) -> Option<String> {
    world.notes.iter().rev().find_map(|(_, note)| match note {
        Note::Closed { why: Close::Protocol(why), .. } => Some(why.clone()),
        _ => None,
    })
}

#[test]
fn a_body_of_nonsense_ends_its_connection_alone_and_names_the_field() {
    let mut world = World::new(2);
    let (bad, good) = (world.connect(0), world.connect(0));
    // Produce v3, correlation 1, no client id, transactional id of a length that is not there.
    let mut frame = vec![0, 0, 0, 3, 0, 0, 0, 1, 0xff, 0xff];
    frame.extend([0x7f, 0xff, 1]);
    let mut bytes = (frame.len() as u32).to_be_bytes().to_vec();
    bytes.extend(frame);
    world.send_bytes(bad, bytes);
    world.run();
    assert!(!world.is_open(bad));
    let why = closed_for(&world).expect("a note of it");
    assert!(why.starts_with("Produce v3") && why.contains("transactional_id"), "{why}");
    let topic = world.create_topic(good, "orders", 1, &[]);
    assert_eq!(fetch(&mut world, good, topic, &Ask { parts: &[(0, 0)], ..Ask::default() }).0, ErrorCode::None);
}

#[test]
fn a_failed_flush_acknowledges_nothing_and_fences() {
    let mut world = World::new(2);
    let connection = world.connect(0);
    let topic = world.create_topic(connection, "orders", 2, &[]);
    let good: Vec<(i32, Vec<u8>)> = (0..2).map(|index| (index, batch(&["a"], None))).collect();
    assert_eq!(produce(&mut world, connection, "orders", -1, &good), [(ErrorCode::None, 0); 2]);
    world.disks.iter_mut().for_each(|disk| disk.fail_flushes = true);
    for _ in 0..2 {
        let codes = produce(&mut world, connection, "orders", -1, &good);
        assert!(codes.iter().all(|(error, _)| *error == ErrorCode::KafkaStorageError), "{codes:?}");
    }
    assert!(world.notes.iter().any(|(_, note)| matches!(note, Note::Fenced { .. })));
    // What was durable is still served.
    let ask = Ask { parts: &[(0, 0), (1, 0)], ..Ask::default() };
    let parts = fetch(&mut world, connection, topic, &ask).2;
    assert!(parts.iter().all(|part| part.high_watermark == 1 && part.values.len() == 1), "{parts:?}");
    // The controller says so too.
    let request = wire::CreateTopicsRequest {
        topics: vec![wire::create_topics::CreatableTopic {
            name: "more",
            num_partitions: 1,
            replication_factor: 1,
            ..Default::default()
        }]
        .into(),
        ..Default::default()
    };
    let frame = world.ask(connection, &wire::CREATE_TOPICS, 7, &request);
    let reply: wire::CreateTopicsResponse<'_> = decoded(&wire::CREATE_TOPICS, 7, &frame);
    assert_eq!(reply.topics.iter().next().unwrap().error_code, ErrorCode::KafkaStorageError);
}

#[test]
fn a_vanished_reader_leaves_nothing_behind() {
    let mut world = World::new(2);
    let (reader, writer) = (world.connect(0), world.connect(1));
    let topic = world.create_topic(writer, "orders", 2, &[]);
    send_fetch(&mut world, reader, topic, &Ask { parts: &[(0, 0), (1, 0)], wait_ms: 60_000, ..Ask::default() });
    assert_eq!(fetched(&mut world, reader), None);
    world.disconnect(reader);
    for index in 0..2 {
        produce(&mut world, writer, "orders", 1, &[(index, batch(&["a"], None))]);
    }
    world.stop();
}

#[test]
fn more_requests_than_call_slots_are_all_answered() {
    // Eight slots between two shards; four requests of each of twelve connections.
    let mut world = World::new(2);
    let connections: Vec<ConnectionId> = (0..12).map(|_| world.connect(0)).collect();
    world.create_topic(connections[0], "orders", 4, &[]);
    for &connection in &connections {
        for index in 0..4 {
            send_produce(&mut world, connection, "orders", -1, &[(index, batch(&["a"], None))]);
        }
    }
    world.run();
    for connection in connections {
        for _ in 0..4 {
            let frame = world.frame(connection).expect("answered");
            assert_eq!(produced(&frame)[0].0, ErrorCode::None);
        }
    }
}

#[test]
fn a_stop_answers_what_waits() {
    let mut world = World::new(2);
    let reader = world.connect(0);
    let topic = world.create_topic(reader, "orders", 2, &[]);
    send_fetch(&mut world, reader, topic, &Ask { parts: &[(0, 0), (1, 0)], wait_ms: 60_000, ..Ask::default() });
    world.stop();
    let (error, _, parts) = fetched(&mut world, reader).expect("a long poll ends with what there is");
    assert_eq!((error, parts.len()), (ErrorCode::None, 2));
    assert!(!world.is_open(reader));
}

#[test]
fn a_client_that_sends_no_more_is_answered_and_then_closed() {
    let mut world = World::new(2);
    let connection = world.connect(0);
    let topic = world.create_topic(connection, "orders", 2, &[]);
    produce(&mut world, connection, "orders", -1, &[(0, batch(&["a"], None))]);
    let poll = Ask { parts: &[(0, 0), (1, 0)], wait_ms: 60_000, min_bytes: 1 << 20, ..Ask::default() };
    // A long poll ends with what there is.
    send_fetch(&mut world, connection, topic, &poll);
    assert!(fetched(&mut world, connection).is_none() && world.is_open(connection));
    world.end(connection);
    world.run();
    let (_, _, parts) = fetched(&mut world, connection).expect("an answer to the long poll");
    assert_eq!(parts.iter().map(|part| part.values.len()).sum::<usize>(), 1);
    assert!(!world.is_open(connection));
    // So does one that runs only behind a request that runs alone; everything and the end come in one turn.
    let connection = world.connect(1);
    let topics = vec![wire::create_topics::CreatableTopic {
        name: "more",
        num_partitions: 2,
        replication_factor: 1,
        ..Default::default()
    }];
    let create = wire::CreateTopicsRequest { topics: topics.into(), ..Default::default() };
    let parts = wire::encode_request(&wire::CREATE_TOPICS, 7, 1, Some("test"), &create);
    world.send_bytes(connection, parts.concat());
    world.end(connection);
    send_fetch(&mut world, connection, topic, &poll);
    let frame = world.frame(connection).expect("an answer to CreateTopics");
    let reply: wire::CreateTopicsResponse<'_> = decoded(&wire::CREATE_TOPICS, 7, &frame);
    assert!(reply.topics.iter().all(|topic| topic.error_code == ErrorCode::None));
    assert!(fetched(&mut world, connection).is_some(), "an answer to the long poll");
    assert!(!world.is_open(connection));
    // Nothing was asked.
    let connection = world.connect(0);
    world.end(connection);
    world.run();
    assert!(!world.is_open(connection));
}
