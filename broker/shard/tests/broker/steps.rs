//! Large fetches go on step by step: others are served between the steps, and the steps do not show in what comes of them.

use ringmain_shard::Note;
use ringmain_types::*;
use ringmain_wire as wire;
use ringmain_wire::fetch::{FetchPartition, FetchTopic};

use crate::data::{Ask, Part, fetched, produce, send_fetch};
use crate::world::{World, batch};

const PARTITIONS: i32 = 150;
/// More than there are: the last ones are not there.
const NAMED: i32 = 160;
const NONE: ErrorCode = ErrorCode::None;

fn limits(step_elements_max: u32) -> Limits {
    Limits {
        step_elements_max,
        request_elements_max: 200_000,
        frame_bytes_max: 16 << 20,
        admin_frame_bytes_max: 4 << 20,
        journal_bytes: 8 << 20,
        connection_unsent_bytes_max: 64 << 20,
        fetch_reply_bytes_max: 8 << 20,
        fetch_session_bytes_max: 1 << 20,
        segment_bytes_max: 64 << 20,
        memory_bytes: [200 << 20; ACCOUNTS],
        ..Limits::tiny()
    }
}

struct Beside {
    world: World,
    connection: ConnectionId,
    topic: TopicId,
}

impl Beside {
    fn new(shards: u16, step_elements_max: u32) -> Beside {
        let mut world = World::with(shards, limits(step_elements_max), &[]);
        let connection = world.connect(0);
        let topic = world.create_topic(connection, "orders", PARTITIONS, &[]);
        Beside { world, connection, topic }
    }

    fn produce(&mut self, index: i32, text: &str) {
        let done = produce(&mut self.world, self.connection, "orders", 1, &[(index, batch(&[text], None))]);
        assert_eq!(done[0].0, NONE);
    }

    /// Asks, and waits until it is answered, for a second at most.
    fn ask(&mut self, ask: &Ask<'_>) -> Option<(ErrorCode, i32, Vec<Part>)> {
        send_fetch(&mut self.world, self.connection, self.topic, ask);
        self.answer(1000)
    }

    fn answer(&mut self, within_ms: u64) -> Option<(ErrorCode, i32, Vec<Part>)> {
        (0..=within_ms).find_map(|_| {
            let answer = fetched(&mut self.world, self.connection);
            if answer.is_none() {
                self.world.advance_ms(1);
            }
            answer
        })
    }

    /// All of it, from these offsets on.
    fn named(&self, from: i64) -> Vec<(i32, i64)> {
        (0..NAMED).map(|index| (index, from)).collect()
    }

    fn work_bytes(&mut self) -> u64 {
        self.world.work_bytes()
    }
}

/// Everything that a fetch may be, one after the other; what came of it.
fn script(step_elements_max: u32) -> Vec<Option<(ErrorCode, i32, Vec<Part>)>> {
    let mut beside = Beside::new(2, step_elements_max);
    let mut came = Vec::new();
    let all = beside.named(0);
    came.push(beside.ask(&Ask { parts: &all, ..Ask::default() }));
    for index in [0, 3, 70, 149] {
        beside.produce(index, &format!("first of {index}"));
    }
    came.push(beside.ask(&Ask { parts: &all, ..Ask::default() }));
    // The first ones are enough.
    came.push(beside.ask(&Ask { parts: &all, max_bytes: 100, ..Ask::default() }));
    // One is named twice, and what counts is the last time.
    let twice = [&all[..], &[(3, 1), (70, 9)]].concat();
    came.push(beside.ask(&Ask { parts: &twice, ..Ask::default() }));
    // A session: all, then news, then changes.
    came.push(beside.ask(&Ask { parts: &all, session: (0, 0), ..Ask::default() }));
    let id = came.last().unwrap().as_ref().unwrap().1;
    assert!(id != 0);
    let mut epoch = 0;
    let mut next = || {
        epoch += 1;
        (id, epoch)
    };
    // It is large for what it has, and its frame is small.
    came.push(beside.ask(&Ask { session: next(), ..Ask::default() }));
    let read: Vec<(i32, i64)> =
        (0..PARTITIONS).map(|index| (index, i64::from([0, 3, 70, 149].contains(&index)))).collect();
    let gone: Vec<i32> = (PARTITIONS..NAMED).collect();
    came.push(beside.ask(&Ask { session: next(), parts: &read, forget: &gone, ..Ask::default() }));
    // A long poll that ends with nothing, and one that ends with a record.
    let poll = |session| Ask { session, wait_ms: 300, ..Ask::default() };
    came.push(beside.ask(&poll(next())));
    send_fetch(&mut beside.world, beside.connection, beside.topic, &poll(next()));
    came.push(beside.answer(100));
    assert_eq!(came.last(), Some(&None), "there is nothing to tell");
    let other = beside.world.connect(1);
    let done = produce(&mut beside.world, other, "orders", 1, &[(101, batch(&["woken"], None))]);
    assert_eq!(done[0].0, NONE);
    came.push(beside.answer(100));
    assert_eq!(came.last().unwrap().as_ref().unwrap().2[0].values[0].1, "woken");
    // Everything is forgotten.
    let all: Vec<i32> = (0..NAMED).collect();
    came.push(beside.ask(&Ask { session: next(), forget: &all, ..Ask::default() }));
    came.push(beside.ask(&Ask { session: next(), ..Ask::default() }));
    assert_eq!(came.last().unwrap().as_ref().unwrap().0, ErrorCode::FetchSessionIdNotFound);
    // A long poll for more than comes.
    let valid: Vec<(i32, i64)> = (0..PARTITIONS).map(|index| (index, 0)).collect();
    came.push(beside.ask(&Ask { parts: &valid, wait_ms: 50, min_bytes: 1 << 20, ..Ask::default() }));
    assert_eq!(beside.work_bytes(), 0);
    came
}

#[test]
fn steps_do_not_show() {
    let whole = script(100_000);
    let bytes = |answer: &Option<(ErrorCode, i32, Vec<Part>)>| {
        answer.as_ref().map_or(0, |it| it.2.iter().map(|part| part.values.len()).sum())
    };
    assert_eq!(whole.iter().map(bytes).collect::<Vec<usize>>(), [0, 4, 1, 2, 4, 4, 0, 0, 0, 1, 0, 0, 5]);
    for step in [1, 7, 40, 149] {
        for (at, (stepped, whole)) in script(step).iter().zip(&whole).enumerate() {
            assert!(stepped == whole, "answer {at} in steps of {step}");
        }
    }
}

fn large(names: i32) -> wire::FetchRequest<'static> {
    let part = |index| FetchPartition { partition: PartitionIndex(index), ..Default::default() };
    let topic = FetchTopic { topic: "orders", partitions: (0..names).map(part).collect(), ..Default::default() };
    wire::FetchRequest { max_wait_ms: 60_000, min_bytes: 1, topics: vec![topic].into(), ..Default::default() }
}

#[test]
fn a_large_fetch_is_many_turns_and_others_are_served_between() {
    let names = 100_000;
    let mut beside = Beside::new(1, 1000);
    let world = &mut beside.world;
    world.queue(beside.connection, &wire::FETCH, 12, &large(names));
    let other = world.connect(0);
    let (mut turns, mut served) = (0, 0);
    let frame = loop {
        // A small one came after it, each turn.
        world.queue(other, &wire::METADATA, 9, &wire::MetadataRequest::default());
        world.now.mono = world.now.mono.plus_ms(1);
        world.turn(0);
        turns += 1;
        if let Some(frame) = world.frame(beside.connection) {
            break frame;
        }
        served += usize::from(world.frame(other).is_some());
        assert!(turns < 10_000);
    };
    // Each step is paid for with four times what it takes.
    assert!((100..650).contains(&turns), "{turns}");
    assert!(served + 3 >= turns, "{served} of {turns}");
    let reply: wire::FetchResponse<'_> = crate::world::decoded(&wire::FETCH, 12, &frame);
    let mut told = reply.responses.iter().flat_map(|topic| topic.partitions.iter().collect::<Vec<_>>());
    for index in 0..names {
        let part = told.next().unwrap();
        let error = if index < PARTITIONS { NONE } else { ErrorCode::UnknownTopicOrPartition };
        assert_eq!((part.partition_index.0, part.error_code), (index, error));
    }
    assert!(told.next().is_none());
}

/// What a frame names is counted some at a time: what is wrong at its end comes out turns later.
#[test]
fn a_large_frame_is_counted_in_several_turns() {
    for (names, turns_min) in [(1000, 1), (100_000, 4)] {
        let mut beside = Beside::new(1, 1000);
        let world = &mut beside.world;
        let parts = wire::encode_request(&wire::FETCH, 12, 7, None, &large(names));
        let mut bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        // The rack, and that there are no tagged fields.
        bytes.truncate(bytes.len() - 2);
        let length = bytes.len() as u32 - 4;
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        world.send_bytes(beside.connection, bytes);
        let mut turns = 0;
        while world.is_open(beside.connection) {
            world.now.mono = world.now.mono.plus_ms(1);
            world.turn(0);
            turns += 1;
            assert!(turns < 100);
        }
        assert!((turns_min..20).contains(&turns), "{turns}");
        let why = world.notes.iter().find_map(|(_, note)| match note {
            Note::Closed { why: ringmain_session::Close::Protocol(why), .. } => Some(why.clone()),
            _ => None,
        });
        let why = why.unwrap();
        assert!(why.starts_with("Fetch v12: ") && why.contains("rack_id"), "{why}");
    }
}

/// Whoever goes away in the middle leaves nothing behind, wherever that is.
#[test]
fn a_connection_may_go_in_the_middle() {
    for turns in 0..40 {
        let mut beside = Beside::new(2, 10);
        let all = beside.named(0);
        let session = (0, 0);
        beside.world.notes.clear();
        let gone = beside.world.connect(0);
        let part = |&(index, _): &(i32, i64)| FetchPartition { partition: PartitionIndex(index), ..Default::default() };
        let topic =
            FetchTopic { topic_id: beside.topic, partitions: all.iter().map(part).collect(), ..Default::default() };
        let request = wire::FetchRequest {
            session_id: session.0,
            session_epoch: session.1,
            max_wait_ms: 5,
            min_bytes: 1,
            topics: vec![topic].into(),
            ..Default::default()
        };
        beside.world.queue(gone, &wire::FETCH, 13, &request);
        for _ in 0..turns {
            beside.world.now.mono = Instant(beside.world.now.mono.0 + 100_000);
            beside.world.turn(0);
            beside.world.turn(1);
        }
        let answered = beside.world.frame(gone).is_some();
        assert!(turns > 0 || !answered);
        beside.world.disconnect(gone);
        beside.world.advance_ms(100);
        assert_eq!(beside.work_bytes(), 0, "after {turns} turns");
        // Its session went with it, so there is room for four.
        let sessions: Vec<i32> = (0..4)
            .filter_map(|_| beside.ask(&Ask { parts: &[(0, 0)], session: (0, 0), ..Ask::default() }))
            .map(|(_, id, _)| id)
            .collect();
        assert_eq!(sessions.iter().filter(|id| **id != 0).count(), if answered { 3 } else { 4 });
    }
}

#[test]
fn a_stop_ends_what_is_in_the_middle() {
    for turns in [1, 5, 20] {
        let mut beside = Beside::new(2, 10);
        let asked = large(PARTITIONS);
        beside.world.queue(beside.connection, &wire::FETCH, 12, &asked);
        for _ in 0..turns {
            beside.world.turn(0);
            beside.world.turn(1);
        }
        beside.world.begin_stop();
        for _ in 0..2000 {
            beside.world.advance_ms(1);
        }
        assert!(beside.world.frame(beside.connection).is_some(), "it is answered");
        let stopped = beside.world.notes.iter().filter(|(_, note)| matches!(note, Note::Stopped)).count();
        assert_eq!(stopped, 2);
    }
}
