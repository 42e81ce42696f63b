//! Produce, Fetch and the questions about offsets.

use ringmain_batch::Producer;
use ringmain_types::*;
use ringmain_wire as wire;
use ringmain_wire::fetch::{FetchPartition, FetchTopic, ForgottenTopic};
use ringmain_wire::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use ringmain_wire::produce::{PartitionProduceData, TopicProduceData};
use ringmain_wire::{RecordBytes, delete_records, offset_for_leader_epoch};

use crate::world::{World, batch, batch_at, decoded, values};

const NONE: ErrorCode = ErrorCode::None;

/// Sends batches to partitions of `topic`; error and base offset of each.
pub fn produce(
    world: &mut World,
    connection: ConnectionId,
    topic: &str,
    acks: i16,
    parts: &[(i32, Vec<u8>)],
) -> Vec<(ErrorCode, i64)> {
    send_produce(world, connection, topic, acks, parts);
    let frame = world.frame(connection).expect("a reply to Produce");
    produced(&frame)
}

pub fn send_produce(world: &mut World, connection: ConnectionId, topic: &str, acks: i16, parts: &[(i32, Vec<u8>)]) {
    let part = |(index, bytes): &'_ (i32, Vec<u8>)| (PartitionIndex(*index), bytes.clone());
    let owned: Vec<(PartitionIndex, Vec<u8>)> = parts.iter().map(part).collect();
    let data = owned
        .iter()
        .map(|(index, bytes)| PartitionProduceData { index: *index, records: RecordBytes::Wire(bytes) })
        .collect();
    let topic = TopicProduceData { name: topic, partition_data: data, ..Default::default() };
    let request = wire::ProduceRequest { acks, timeout_ms: 1000, topic_data: vec![topic].into(), ..Default::default() };
    world.send(connection, &wire::PRODUCE, 9, &request);
}

pub fn produced(frame: &ringmain_buffer::Buf) -> Vec<(ErrorCode, i64)> {
    let reply: wire::ProduceResponse<'_> = decoded(&wire::PRODUCE, 9, frame);
    reply
        .responses
        .iter()
        .flat_map(|topic| topic.partition_responses.iter().collect::<Vec<_>>())
        .map(|part| (part.error_code, part.base_offset.0))
        .collect()
}

/// What a fetch asks: session, partitions with their offsets, wait, min_bytes.
pub struct Ask<'a> {
    pub session: (i32, i32),
    pub parts: &'a [(i32, i64)],
    pub forget: &'a [i32],
    pub wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub epoch: i32,
}

impl Default for Ask<'_> {
    fn default() -> Self {
        Ask { session: (0, -1), parts: &[], forget: &[], wait_ms: 0, min_bytes: 1, max_bytes: 1 << 20, epoch: -1 }
    }
}

#[derive(Debug, PartialEq)]
pub struct Part {
    pub index: i32,
    pub error: ErrorCode,
    pub high_watermark: i64,
    pub values: Vec<(i64, String)>,
}

pub fn send_fetch(world: &mut World, connection: ConnectionId, topic: TopicId, ask: &Ask<'_>) {
    let part = |&(index, offset): &(i32, i64)| FetchPartition {
        partition: PartitionIndex(index),
        fetch_offset: Offset(offset),
        partition_max_bytes: 1 << 20,
        current_leader_epoch: LeaderEpoch(ask.epoch),
        ..Default::default()
    };
    let topics = if ask.parts.is_empty() {
        Vec::new()
    } else {
        let partitions = ask.parts.iter().map(part).collect();
        vec![FetchTopic { topic_id: topic, partitions, ..Default::default() }]
    };
    let partitions = ask.forget.iter().map(|&index| PartitionIndex(index)).collect();
    let forgotten = ForgottenTopic { topic_id: topic, partitions, ..Default::default() };
    let request = wire::FetchRequest {
        max_wait_ms: ask.wait_ms,
        min_bytes: ask.min_bytes,
        max_bytes: ask.max_bytes,
        session_id: ask.session.0,
        session_epoch: ask.session.1,
        topics: topics.into(),
        forgotten_topics_data: if ask.forget.is_empty() { Vec::new() } else { vec![forgotten] }.into(),
        ..Default::default()
    };
    world.send(connection, &wire::FETCH, 13, &request);
}

/// The next reply on this connection, which is one to Fetch: error, session id, partitions.
pub fn fetched(world: &mut World, connection: ConnectionId) -> Option<(ErrorCode, i32, Vec<Part>)> {
    let frame = world.frame(connection)?;
    let reply: wire::FetchResponse<'_> = decoded(&wire::FETCH, 13, &frame);
    let topics: Vec<TopicId> = reply.responses.iter().map(|topic| topic.topic_id).collect();
    assert!(topics.windows(2).all(|pair| pair[0] != pair[1]), "partitions of one topic are told together");
    let parts = reply.responses.iter().flat_map(|topic| {
        let part = |part: wire::fetch::PartitionData<'_>| Part {
            index: part.partition_index.0,
            error: part.error_code,
            high_watermark: part.high_watermark.0,
            values: values(part.records.wire().unwrap_or_default()),
        };
        topic.partitions.iter().map(part).collect::<Vec<_>>()
    });
    Some((reply.error_code, reply.session_id, parts.collect()))
}

pub fn fetch(
    world: &mut World,
    connection: ConnectionId,
    topic: TopicId,
    ask: &Ask<'_>,
) -> (ErrorCode, i32, Vec<Part>) {
    send_fetch(world, connection, topic, ask);
    fetched(world, connection).expect("a reply to Fetch")
}

fn texts(part: &Part) -> Vec<&str> {
    part.values.iter().map(|(_, text)| text.as_str()).collect()
}

fn list_offsets(world: &mut World, connection: ConnectionId, topic: &str, wanted: &[(i32, i64)]) -> Vec<(i64, i64)> {
    let part = |&(index, timestamp): &(i32, i64)| ListOffsetsPartition {
        partition_index: PartitionIndex(index),
        timestamp,
        ..Default::default()
    };
    let topic = ListOffsetsTopic { name: topic, partitions: wanted.iter().map(part).collect() };
    let request =
        wire::ListOffsetsRequest { replica_id: BrokerId(-1), topics: vec![topic].into(), ..Default::default() };
    let frame = world.ask(connection, &wire::LIST_OFFSETS, 9, &request);
    let reply: wire::ListOffsetsResponse<'_> = decoded(&wire::LIST_OFFSETS, 9, &frame);
    let topic = reply.topics.iter().next().unwrap();
    topic
        .partitions
        .iter()
        .map(|part| match part.error_code {
            ErrorCode::None => (part.offset.0, part.timestamp),
            error => (i64::from(error.code()), i64::MIN),
        })
        .collect()
}

#[test]
fn what_is_acknowledged_is_read_back_on_every_shard() {
    let mut world = World::new(2);
    let (one, two) = (world.connect(0), world.connect(1));
    let topic = world.create_topic(one, "orders", 4, &[]);
    // No window: every partition takes records at once, from a connection of either shard.
    let parts: Vec<(i32, Vec<u8>)> = (0..4).map(|index| (index, batch(&["a", "b"], None))).collect();
    assert_eq!(produce(&mut world, one, "orders", -1, &parts), [(NONE, 0); 4]);
    assert_eq!(produce(&mut world, two, "orders", 1, &parts), [(NONE, 2); 4]);
    for connection in [one, two] {
        let ask = Ask { parts: &[(3, 0), (0, 1), (2, 3), (1, 4)], ..Ask::default() };
        let (error, session, parts) = fetch(&mut world, connection, topic, &ask);
        assert_eq!((error, session), (NONE, 0));
        let order: Vec<i32> = parts.iter().map(|part| part.index).collect();
        assert_eq!(order, [3, 0, 2, 1], "in the order asked");
        assert_eq!(texts(&parts[0]), ["a", "b", "a", "b"]);
        assert_eq!(texts(&parts[1]), ["a", "b", "a", "b"], "the whole batch around the offset");
        assert_eq!(texts(&parts[2]), ["a", "b"]);
        assert_eq!(parts[3], Part { index: 1, error: NONE, high_watermark: 4, values: vec![] });
    }
}

#[test]
fn it_is_there_after_a_restart_and_after_a_clean_stop() {
    for clean in [false, true] {
        let mut world = World::new(2);
        let connection = world.connect(0);
        let topic = world.create_topic(connection, "orders", 4, &[]);
        let parts: Vec<(i32, Vec<u8>)> = (0..4).map(|index| (index, batch(&["a", "b"], None))).collect();
        produce(&mut world, connection, "orders", -1, &parts);
        if clean {
            world.stop();
        }
        world.start(2);
        let connection = world.connect(1);
        let ask = Ask { parts: &[(0, 0), (1, 0), (2, 0), (3, 0)], ..Ask::default() };
        let (_, _, parts) = fetch(&mut world, connection, topic, &ask);
        assert!(parts.iter().all(|part| texts(part) == ["a", "b"] && part.high_watermark == 2), "{parts:?}");
    }
}

#[test]
fn a_long_poll_ends_with_data_of_any_owner_or_with_time() {
    let mut world = World::new(2);
    let (reader, writer) = (world.connect(0), world.connect(1));
    let topic = world.create_topic(reader, "orders", 2, &[]);
    let ask = Ask { parts: &[(0, 0), (1, 0)], wait_ms: 500, ..Ask::default() };
    for index in 0..2 {
        send_fetch(&mut world, reader, topic, &Ask { parts: &[(0, i64::from(index)), (1, 0)], ..ask });
        assert_eq!(fetched(&mut world, reader), None, "nothing there yet");
        produce(&mut world, writer, "orders", 1, &[(index, batch(&["x"], None))]);
        let (_, _, parts) = fetched(&mut world, reader).expect("the record ends the wait");
        assert_eq!(parts.iter().map(|part| part.values.len()).sum::<usize>(), 1);
    }
    send_fetch(&mut world, reader, topic, &Ask { parts: &[(0, 1), (1, 1)], ..ask });
    world.advance_ms(499);
    assert_eq!(fetched(&mut world, reader), None);
    world.advance_ms(2);
    let (_, _, parts) = fetched(&mut world, reader).expect("max_wait is over");
    assert!(parts.iter().all(|part| part.values.is_empty() && part.high_watermark == 1));
}

/// Calls are numbered by peer: sooner or later those to both owners have one number, and a watch of one is not the other's.
#[test]
fn a_long_poll_over_two_owners_ends_whatever_was_asked_before() {
    let mut world = World::new(2);
    let (reader, writer) = (world.connect(0), world.connect(1));
    let topic = world.create_topic(reader, "orders", 2, &[]);
    let mut ends = [0i64; 2];
    for round in 0..64 {
        // One owner's numbers get ahead of the other's, and then the other's.
        let ahead = (round / 16 + 1) % 2;
        fetch(&mut world, reader, topic, &Ask { parts: &[(ahead, ends[ahead as usize])], ..Ask::default() });
        let parts = [(0, ends[0]), (1, ends[1])];
        send_fetch(&mut world, reader, topic, &Ask { parts: &parts, wait_ms: 500, ..Ask::default() });
        assert_eq!(fetched(&mut world, reader), None, "nothing there yet");
        let index = round % 2;
        produce(&mut world, writer, "orders", 1, &[(index, batch(&["x"], None))]);
        ends[index as usize] += 1;
        let (_, _, parts) =
            fetched(&mut world, reader).unwrap_or_else(|| panic!("round {round}: the record ends the wait"));
        assert_eq!(parts.iter().map(|part| part.values.len()).sum::<usize>(), 1);
    }
}

#[test]
fn min_bytes_counts_over_all_owners() {
    let mut world = World::new(2);
    let (reader, writer) = (world.connect(0), world.connect(1));
    let topic = world.create_topic(reader, "orders", 2, &[]);
    let ask = Ask { parts: &[(0, 0), (1, 0)], wait_ms: 500, min_bytes: 250, ..Ask::default() };
    send_fetch(&mut world, reader, topic, &ask);
    let one = batch(&["0123456789"], None);
    assert!(one.len() < 100, "{}", one.len());
    for round in 0..4 {
        assert_eq!(fetched(&mut world, reader), None, "after {round}");
        produce(&mut world, writer, "orders", 1, &[(round % 2, one.clone())]);
    }
    let (_, _, parts) = fetched(&mut world, reader).expect("250 bytes are there");
    assert_eq!(parts.iter().map(|part| part.values.len()).sum::<usize>(), 4);
}

#[test]
fn a_session_tells_only_news() {
    let mut world = World::new(2);
    let (reader, writer) = (world.connect(0), world.connect(1));
    let topic = world.create_topic(reader, "orders", 3, &[]);
    let ask = Ask { session: (0, 0), parts: &[(0, 0), (1, 0), (2, 0)], ..Ask::default() };
    let (error, session, parts) = fetch(&mut world, reader, topic, &ask);
    assert_eq!((error, parts.len()), (NONE, 3));
    assert!(session > 0);
    produce(&mut world, writer, "orders", 1, &[(1, batch(&["x"], None))]);
    let (_, again, parts) = fetch(&mut world, reader, topic, &Ask { session: (session, 1), ..Ask::default() });
    assert_eq!((again, parts.len(), parts[0].index), (session, 1, 1));
    let ask = Ask { session: (session, 2), parts: &[(1, 1)], forget: &[0], ..Ask::default() };
    let (_, _, parts) = fetch(&mut world, reader, topic, &ask);
    assert!(parts.is_empty(), "{parts:?}");
    let (error, _, _) = fetch(&mut world, reader, topic, &Ask { session: (session, 9), ..Ask::default() });
    assert_eq!(error, ErrorCode::InvalidFetchSessionEpoch);
    let (error, none, _) = fetch(&mut world, reader, topic, &Ask { session: (session + 1, 1), ..Ask::default() });
    assert_eq!((error, none), (ErrorCode::FetchSessionIdNotFound, 0));
}

#[test]
fn fetch_errors_are_kafkas() {
    let mut world = World::new(2);
    let connection = world.connect(0);
    let topic = world.create_topic(connection, "orders", 1, &[]);
    let mut code = |topic, parts: &[(i32, i64)], epoch| {
        let ask = Ask { parts, wait_ms: 10_000, epoch, ..Ask::default() };
        // Any error answers at once, whatever max_wait says.
        fetch(&mut world, connection, topic, &ask).2[0].error
    };
    assert_eq!(code(topic, &[(0, 1)], -1), ErrorCode::OffsetOutOfRange);
    assert_eq!(code(topic, &[(0, -1)], -1), ErrorCode::OffsetOutOfRange);
    assert_eq!(code(topic, &[(1, 0)], -1), ErrorCode::UnknownTopicOrPartition);
    assert_eq!(code(TopicId(99), &[(0, 0)], -1), ErrorCode::UnknownTopicId);
    assert_eq!(code(topic, &[(0, 0)], 5), ErrorCode::UnknownLeaderEpoch);
}

#[test]
fn a_reply_is_capped_but_the_first_batch_is_whole() {
    let mut world = World::new(2);
    let connection = world.connect(0);
    let topic = world.create_topic(connection, "orders", 2, &[]);
    let text = "x".repeat(3000);
    for index in [0, 1, 0, 1] {
        produce(&mut world, connection, "orders", 1, &[(index, batch(&[&text], None))]);
    }
    let mut counts = |max_bytes| {
        let ask = Ask { parts: &[(0, 0), (1, 0)], max_bytes, ..Ask::default() };
        let parts = fetch(&mut world, connection, topic, &ask).2;
        parts.iter().map(|part| part.values.len()).collect::<Vec<_>>()
    };
    assert_eq!(counts(1), [1, 0]);
    assert_eq!(counts(4000), [1, 0]);
    assert_eq!(counts(7000).iter().sum::<usize>(), 2);
    // 8 KiB is the limit of a tiny reply.
    assert_eq!(counts(1 << 20).iter().sum::<usize>(), 2);
}

#[test]
fn produce_errors_are_kafkas_and_one_partition_fails_alone() {
    let mut world = World::new(2);
    let connection = world.connect(0);
    world.create_topic(connection, "orders", 2, &[("max.message.bytes", "500")]);
    let good = batch(&["a"], None);
    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let large = batch(&[&"x".repeat(600)], None);
    let parts = [(0, good.clone()), (1, flipped), (7, good.clone()), (1, large), (1, good.clone())];
    let codes = produce(&mut world, connection, "orders", -1, &parts);
    let unknown = ErrorCode::UnknownTopicOrPartition;
    let want = [NONE, ErrorCode::CorruptMessage, unknown, ErrorCode::MessageTooLarge, NONE];
    assert_eq!(codes.iter().map(|(error, _)| *error).collect::<Vec<_>>(), want);
    assert_eq!(codes[4].1, 0, "what was refused took no offset");
    assert_eq!(produce(&mut world, connection, "nowhere", -1, &[(0, good.clone())])[0].0, unknown);
    assert_eq!(produce(&mut world, connection, "orders", 2, &[(0, good)])[0].0, ErrorCode::InvalidRequiredAcks);
}

#[test]
fn without_acks_there_is_no_reply_and_an_error_ends_the_connection() {
    let mut world = World::new(2);
    let connection = world.connect(0);
    world.create_topic(connection, "orders", 2, &[]);
    for index in 0..2 {
        send_produce(&mut world, connection, "orders", 0, &[(index, batch(&["a"], None))]);
    }
    assert_eq!(world.frame(connection), None);
    assert_eq!(list_offsets(&mut world, connection, "orders", &[(0, -1), (1, -1)]), [(1, -1), (1, -1)]);
    send_produce(&mut world, connection, "nowhere", 0, &[(0, batch(&["a"], None))]);
    assert!(!world.is_open(connection));
}

#[test]
fn a_repeated_batch_gets_its_first_offset() {
    let mut world = World::new(2);
    let connection = world.connect(0);
    world.create_topic(connection, "orders", 1, &[]);
    let part = |first| {
        let sequence = Sequence(first);
        let producer =
            Producer { id: ProducerId(5), epoch: ProducerEpoch(0), first: sequence, last: Sequence(first + 1) };
        (0, batch(&["a", "b"], Some(producer)))
    };
    let mut code = |first| produce(&mut world, connection, "orders", -1, &[part(first)])[0];
    assert_eq!([code(0), code(2), code(0), code(2)], [(NONE, 0), (NONE, 2), (NONE, 0), (NONE, 2)]);
    assert_eq!(code(9).0, ErrorCode::OutOfOrderSequenceNumber);
}

#[test]
fn a_producer_that_was_silent_for_long_is_forgotten() {
    let properties = [("log.retention.check.interval.ms", "1000"), ("producer.id.expiration.ms", "60000")];
    let mut world = World::with(2, Limits::tiny(), &properties);
    let connection = world.connect(0);
    world.create_topic(connection, "orders", 1, &[]);
    let code = |world: &mut World, sequence| {
        let (first, last) = (Sequence(sequence), Sequence(sequence));
        let producer = Producer { id: ProducerId(5), epoch: ProducerEpoch(0), first, last };
        produce(world, connection, "orders", -1, &[(0, batch(&["a"], Some(producer)))])[0].0
    };
    assert_eq!(code(&mut world, 0), NONE);
    world.advance_ms(50_000);
    assert_eq!(code(&mut world, 9), ErrorCode::OutOfOrderSequenceNumber);
    // Nothing was heard since the first.
    world.advance_ms(20_000);
    assert_eq!(code(&mut world, 9), NONE, "any sequence begins anew");
}

#[test]
fn a_topic_has_its_codecs_level() {
    let mut world = World::new(2);
    let connection = world.connect(0);
    let text: String = (0..400).map(|n| format!("{} {} ", n * n % 97, n % 13)).collect();
    for codec in ["gzip", "zstd"] {
        let mut size = |level: &str| {
            let name = format!("{codec}{level}");
            let configs = [("compression.type", codec), (&format!("compression.{codec}.level"), level)];
            let topic = world.create_topic(connection, &name, 1, &configs);
            assert_eq!(produce(&mut world, connection, &name, -1, &[(0, batch(&[&text], None))]), [(NONE, 0)]);
            let ask = Ask { parts: &[(0, 0)], ..Ask::default() };
            let parts = fetch(&mut world, connection, topic, &ask).2;
            assert_eq!(parts[0].values, [(0, text.clone())]);
            log_bytes(&mut world, connection, &name)
        };
        let (fast, small) = (size("1"), size("9"));
        assert!(small < fast, "{codec}: {small} bytes at level 9, {fast} at level 1");
    }
}

/// What DescribeLogDirs says of partition 0.
fn log_bytes(world: &mut World, connection: ConnectionId, topic: &str) -> i64 {
    use wire::describe_log_dirs::DescribableLogDirTopic;
    let asked = DescribableLogDirTopic { topic, partitions: vec![PartitionIndex(0)].into() };
    let request = wire::DescribeLogDirsRequest { topics: Some(vec![asked].into()) };
    let frame = world.ask(connection, &wire::DESCRIBE_LOG_DIRS, 4, &request);
    let reply: wire::DescribeLogDirsResponse<'_> = decoded(&wire::DESCRIBE_LOG_DIRS, 4, &frame);
    let directory = reply.results.iter().next().unwrap();
    let topic = directory.topics.iter().next().unwrap();
    topic.partitions.iter().next().unwrap().partition_size
}

#[test]
fn offsets_by_time_and_by_name() {
    let mut world = World::new(2);
    let connection = world.connect(0);
    world.create_topic(connection, "orders", 2, &[]);
    let now = world.now.wall.0;
    for at in [0, 10, 20] {
        produce(&mut world, connection, "orders", 1, &[(1, batch_at(now + at, &["a", "b"], None))]);
    }
    let wanted = [(1, -1), (1, -2), (1, -3), (1, -4), (1, -5), (1, now + 5), (1, now + 99), (0, -1), (0, now), (9, -1)];
    let unknown = (i64::from(ErrorCode::UnknownTopicOrPartition.code()), i64::MIN);
    let found =
        [(6, -1), (0, -1), (5, now + 21), (0, -1), (-1, -1), (2, now + 10), (-1, -1), (0, -1), (-1, -1), unknown];
    // One by one: a partition that is named twice in a request is refused.
    let each = wanted.map(|one| list_offsets(&mut world, connection, "orders", &[one])[0]);
    assert_eq!(each, found);
}

#[test]
fn deleted_records_are_gone_when_it_is_said() {
    use delete_records::{DeleteRecordsPartition, DeleteRecordsTopic};
    let mut world = World::new(2);
    let connection = world.connect(0);
    let topic = world.create_topic(connection, "orders", 1, &[]);
    for text in ["a", "b", "c"] {
        produce(&mut world, connection, "orders", 1, &[(0, batch(&[text], None))]);
    }
    let delete = |world: &mut World, connection, offset| {
        let part = DeleteRecordsPartition { partition_index: PartitionIndex(0), offset: Offset(offset) };
        let topic = DeleteRecordsTopic { name: "orders", partitions: vec![part].into() };
        let request = wire::DeleteRecordsRequest { topics: vec![topic].into(), timeout_ms: 1000 };
        let frame = world.ask(connection, &wire::DELETE_RECORDS, 2, &request);
        let reply: wire::DeleteRecordsResponse<'_> = decoded(&wire::DELETE_RECORDS, 2, &frame);
        let part = reply.topics.iter().next().unwrap().partitions.iter().next().unwrap();
        (part.error_code, part.low_watermark.0)
    };
    assert_eq!(delete(&mut world, connection, 4), (ErrorCode::OffsetOutOfRange, -1));
    assert_eq!(delete(&mut world, connection, 2), (NONE, 2));
    assert_eq!(delete(&mut world, connection, 1), (NONE, 2), "it is there already");
    let ask = |parts| Ask { parts, ..Ask::default() };
    assert_eq!(fetch(&mut world, connection, topic, &ask(&[(0, 1)])).2[0].error, ErrorCode::OffsetOutOfRange);
    assert_eq!(texts(&fetch(&mut world, connection, topic, &ask(&[(0, 2)])).2[0]), ["c"]);
    assert_eq!(delete(&mut world, connection, -1), (NONE, 3));
    world.start(2);
    let connection = world.connect(0);
    for which in [-2, -1] {
        assert_eq!(list_offsets(&mut world, connection, "orders", &[(0, which)]), [(3, -1)]);
    }
    // A start that will never be durable is nobody's answer.
    produce(&mut world, connection, "orders", 1, &[(0, batch(&["d", "e"], None))]);
    world.disks.iter_mut().for_each(|disk| disk.fail_flushes = true);
    assert_eq!(delete(&mut world, connection, 5), (ErrorCode::KafkaStorageError, -1));
    assert_eq!(delete(&mut world, connection, 4), (ErrorCode::KafkaStorageError, -1));
    assert_eq!(delete(&mut world, connection, 3), (ErrorCode::KafkaStorageError, -1));
}

#[test]
fn epochs_end_where_the_log_ends() {
    use offset_for_leader_epoch::{OffsetForLeaderPartition, OffsetForLeaderTopic};
    let mut world = World::new(2);
    let connection = world.connect(0);
    world.create_topic(connection, "orders", 1, &[]);
    produce(&mut world, connection, "orders", 1, &[(0, batch(&["a", "b"], None))]);
    let mut end = |current, epoch| {
        let part = OffsetForLeaderPartition {
            partition: PartitionIndex(0),
            current_leader_epoch: LeaderEpoch(current),
            leader_epoch: LeaderEpoch(epoch),
        };
        let topic = OffsetForLeaderTopic { topic: "orders", partitions: vec![part].into() };
        let request = wire::OffsetForLeaderEpochRequest { replica_id: BrokerId(-1), topics: vec![topic].into() };
        let frame = world.ask(connection, &wire::OFFSET_FOR_LEADER_EPOCH, 4, &request);
        let reply: wire::OffsetForLeaderEpochResponse<'_> = decoded(&wire::OFFSET_FOR_LEADER_EPOCH, 4, &frame);
        let part = reply.topics.iter().next().unwrap().partitions.iter().next().unwrap();
        (part.error_code, part.leader_epoch.0, part.end_offset.0)
    };
    assert_eq!(end(-1, 0), (NONE, 0, 2));
    assert_eq!(end(-1, 7), (NONE, -1, -1));
    assert_eq!(end(7, 0), (ErrorCode::UnknownLeaderEpoch, -1, -1));
}

#[test]
fn refused_records_are_named() {
    let mut world = World::new(2);
    let connection = world.connect(0);
    world.create_topic(connection, "latest", 1, &[("cleanup.policy", "compact")]);
    send_produce(&mut world, connection, "latest", -1, &[(0, batch(&["a", "b"], None))]);
    let frame = world.frame(connection).expect("a reply to Produce");
    let reply: wire::ProduceResponse<'_> = decoded(&wire::PRODUCE, 9, &frame);
    let part = reply.responses.iter().next().unwrap().partition_responses.iter().next().unwrap();
    let named: Vec<i32> = part.record_errors.iter().map(|record| record.batch_index).collect();
    assert_eq!((part.error_code, named), (ErrorCode::InvalidRecord, vec![0, 1]));
    assert!(part.error_message.is_some_and(|message| message.contains("no key")));
}
