//! Requests that name much, or one thing many times: what they take is bounded, and nobody else waits for them.

use std::collections::BTreeMap;

use ringmain_buffer::Buf;
use ringmain_session::Close;
use ringmain_shard::Note;
use ringmain_types::*;
use ringmain_wire as wire;
use ringmain_wire::fetch::{FetchPartition, FetchTopic};
use ringmain_wire::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use ringmain_wire::{ApiSpec, Field};

use crate::data::produce;
use crate::world::{World, batch, decoded};

const SMALL: &[(&str, &str)] = &[("offsets.topic.num.partitions", "1"), ("group.initial.rebalance.delay.ms", "0")];

fn world() -> (World, ConnectionId, TopicId) {
    let mut world = World::with(2, Limits::tiny(), SMALL);
    let connection = world.connect(0);
    let topic = world.create_topic(connection, "orders", 2, &[]);
    (world, connection, topic)
}

/// Why a connection was closed.
fn closed(world: &mut World, connection: ConnectionId) -> Close {
    let told = world.notes.iter().find_map(|(_, note)| match note {
        Note::Closed { connection: closed, why, .. } if *closed == connection => Some(why.clone()),
        _ => None,
    });
    assert!(!world.is_open(connection) && world.frame(connection).is_none());
    told.expect("a note")
}

fn fetch(indexes: impl Iterator<Item = i32>, max_wait_ms: i32) -> wire::FetchRequest<'static> {
    let part =
        |index| FetchPartition { partition: PartitionIndex(index), partition_max_bytes: 1 << 20, ..Default::default() };
    let topic = FetchTopic { topic: "orders", partitions: indexes.map(part).collect(), ..Default::default() };
    wire::FetchRequest {
        max_wait_ms,
        min_bytes: 1,
        max_bytes: 1 << 20,
        topics: vec![topic].into(),
        ..Default::default()
    }
}

fn list(indexes: impl Iterator<Item = i32>) -> wire::ListOffsetsRequest<'static> {
    let part =
        |index| ListOffsetsPartition { partition_index: PartitionIndex(index), timestamp: -1, ..Default::default() };
    let topic = ListOffsetsTopic { name: "orders", partitions: indexes.map(part).collect() };
    wire::ListOffsetsRequest { topics: vec![topic].into(), ..Default::default() }
}

fn fetched(frame: &Buf) -> Vec<(i32, ErrorCode)> {
    let reply: wire::FetchResponse<'_> = decoded(&wire::FETCH, 12, frame);
    let topics = reply.responses.iter();
    topics
        .flat_map(|topic| topic.partitions.iter().collect::<Vec<_>>())
        .map(|it| (it.partition_index.0, it.error_code))
        .collect()
}

#[test]
fn what_is_named_again_is_answered_once() {
    let (mut world, connection, _) = world();
    let none = ErrorCode::None;
    // Twice beside each other, and in a topic that comes again.
    let mut asked = fetch([1, 0, 1, 1].into_iter(), 0);
    asked.topics = [asked.topics.iter().collect::<Vec<_>>(), asked.topics.iter().collect()].concat().into();
    let frame = world.ask(connection, &wire::FETCH, 12, &asked);
    assert_eq!(fetched(&frame), [(1, none), (0, none)]);
    let frame = world.ask(connection, &wire::LIST_OFFSETS, 6, &list([1, 0, 1, 1].into_iter()));
    let reply: wire::ListOffsetsResponse<'_> = decoded(&wire::LIST_OFFSETS, 6, &frame);
    let parts = reply.topics.iter().next().unwrap().partitions;
    let parts: Vec<_> = parts.iter().map(|it| (it.partition_index.0, it.error_code)).collect();
    assert_eq!(parts, [(1, ErrorCode::InvalidRequest), (0, none)]);

    use wire::describe_producers::TopicRequest;
    let topic =
        |_| TopicRequest { name: "orders", partition_indexes: [0, 0, 9, 9].map(PartitionIndex).to_vec().into() };
    let asked = wire::DescribeProducersRequest { topics: (0..3).map(topic).collect() };
    let frame = world.ask(connection, &wire::DESCRIBE_PRODUCERS, 0, &asked);
    let reply: wire::DescribeProducersResponse<'_> = decoded(&wire::DESCRIBE_PRODUCERS, 0, &frame);
    let parts: Vec<_> = reply.topics.iter().flat_map(|it| it.partitions.iter().collect::<Vec<_>>()).collect();
    let parts: Vec<_> = parts.iter().map(|it| (it.partition_index.0, it.error_code)).collect();
    assert_eq!(parts, [(0, none), (9, ErrorCode::UnknownTopicOrPartition)]);

    use wire::describe_log_dirs::DescribableLogDirTopic;
    let topic = |_| DescribableLogDirTopic { topic: "orders", partitions: [0, 0].map(PartitionIndex).to_vec().into() };
    let asked = wire::DescribeLogDirsRequest { topics: Some((0..3).map(topic).collect()) };
    let frame = world.ask(connection, &wire::DESCRIBE_LOG_DIRS, 4, &asked);
    let reply: wire::DescribeLogDirsResponse<'_> = decoded(&wire::DESCRIBE_LOG_DIRS, 4, &frame);
    let topics: Vec<_> = reply.results.iter().next().unwrap().topics.iter().collect();
    assert_eq!((topics.len(), topics[0].partitions.len()), (1, 1));
}

#[test]
fn groups_and_offsets_that_are_named_again_are_answered_once() {
    let (mut world, connection, _) = world();
    let asked = wire::FindCoordinatorRequest { coordinator_keys: vec!["g", "h", "g"].into(), ..Default::default() };
    let frame = world.ask(connection, &wire::FIND_COORDINATOR, 6, &asked);
    let reply: wire::FindCoordinatorResponse<'_> = decoded(&wire::FIND_COORDINATOR, 6, &frame);
    assert_eq!(reply.coordinators.iter().map(|it| it.key).collect::<Vec<_>>(), ["g", "h"]);
    let asked = wire::DescribeGroupsRequest { groups: vec!["g", "h", "g", "g"].into(), ..Default::default() };
    let frame = world.ask(connection, &wire::DESCRIBE_GROUPS, 5, &asked);
    let reply: wire::DescribeGroupsResponse<'_> = decoded(&wire::DESCRIBE_GROUPS, 5, &frame);
    assert_eq!(reply.groups.iter().map(|it| it.group_id).collect::<Vec<_>>(), ["g", "h"]);
    let asked = wire::DeleteGroupsRequest { groups_names: vec!["g", "g"].into() };
    let frame = world.ask(connection, &wire::DELETE_GROUPS, 2, &asked);
    let reply: wire::DeleteGroupsResponse<'_> = decoded(&wire::DELETE_GROUPS, 2, &frame);
    assert_eq!(reply.results.len(), 1);

    use wire::offset_fetch::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
    let topic = |_| OffsetFetchRequestTopics {
        name: "orders",
        partition_indexes: [1, 0, 1].map(PartitionIndex).to_vec().into(),
        ..Default::default()
    };
    let group =
        |_| OffsetFetchRequestGroup { group_id: "g", topics: Some((0..3).map(topic).collect()), ..Default::default() };
    let asked = wire::OffsetFetchRequest { groups: (0..3).map(group).collect(), ..Default::default() };
    let frame = world.ask(connection, &wire::OFFSET_FETCH, 8, &asked);
    let reply: wire::OffsetFetchResponse<'_> = decoded(&wire::OFFSET_FETCH, 8, &frame);
    let topics: Vec<_> = reply.groups.iter().flat_map(|it| it.topics.iter().collect::<Vec<_>>()).collect();
    assert_eq!((reply.groups.len(), topics.len()), (1, 1));
    assert_eq!(topics[0].partitions.iter().map(|it| it.partition_index.0).collect::<Vec<_>>(), [1, 0]);
}

/// Words that no state has pass nothing, and are not compared with each group each.
#[test]
fn a_filter_of_words_that_mean_nothing_passes_nothing() {
    let (mut world, connection, _) = world();
    let asked = wire::FindCoordinatorRequest { coordinator_keys: vec!["g"].into(), ..Default::default() };
    world.ask(connection, &wire::FIND_COORDINATOR, 6, &asked);
    let partition =
        wire::offset_commit::OffsetCommitRequestPartition { committed_offset: Offset(5), ..Default::default() };
    let topic = wire::offset_commit::OffsetCommitRequestTopic {
        name: "orders",
        partitions: vec![partition].into(),
        ..Default::default()
    };
    let asked = wire::OffsetCommitRequest {
        group_id: "g",
        generation_id_or_member_epoch: -1,
        topics: vec![topic].into(),
        ..Default::default()
    };
    world.ask(connection, &wire::OFFSET_COMMIT, 8, &asked);
    let mut listed = |states: &[&'static str], types: &[&'static str]| {
        let asked =
            wire::ListGroupsRequest { states_filter: states.to_vec().into(), types_filter: types.to_vec().into() };
        let frame = world.ask(connection, &wire::LIST_GROUPS, 5, &asked);
        let reply: wire::ListGroupsResponse<'_> = decoded(&wire::LIST_GROUPS, 5, &frame);
        assert_eq!(reply.error_code, ErrorCode::None);
        reply.groups.len()
    };
    assert_eq!(listed(&[], &[]), 1);
    assert_eq!(listed(&["nothing", "EMPTY", "empty"], &["Classic"]), 1);
    assert_eq!((listed(&["nothing"], &[]), listed(&[], &["nothing"]), listed(&["Stable"], &[])), (0, 0, 0));
}

fn much<'a, T: Field<'a>>(spec: &ApiSpec, version: i16, asked: &T, says: &[&str]) {
    let (mut world, beside, _) = world();
    let connection = world.connect(0);
    world.send(connection, spec, version, asked);
    let Close::Protocol(why) = closed(&mut world, connection) else { panic!("another reason") };
    assert!(says.iter().all(|word| why.contains(word)), "{why}");
    world.ask(beside, &wire::METADATA, 9, &wire::MetadataRequest { topics: None, ..Default::default() });
}

#[test]
fn a_request_has_a_bound_on_what_it_names() {
    let most = Limits::tiny().request_elements_max as i32;
    much(&wire::LIST_OFFSETS, 1, &list(0..most), &["ListOffsets names 4097", "at most 4096"]);
    let names = vec![""; most as usize + 1];
    let asked = wire::FindCoordinatorRequest { coordinator_keys: names.into(), ..Default::default() };
    much(&wire::FIND_COORDINATOR, 6, &asked, &["FindCoordinator names 4097", "at most 4096"]);
    // Less than that, and more than nearly all that there is for all.
    much(&wire::FETCH, 12, &fetch(0..400, 0), &["would take about", "one may take 229376"]);
}

#[test]
fn long_polls_that_name_much_give_way() {
    // Three of them are more than there is room for.
    let limits = Limits { journal_bytes: 1 << 20, ..Limits::tiny() };
    let mut world = World::with(2, limits, SMALL);
    let connection = world.connect(0);
    world.create_topic(connection, "orders", 150, &[]);
    let [first, second, third, small] = [(); 4].map(|()| world.connect(0));
    world.send(small, &wire::FETCH, 12, &fetch(0..1, 60_000));
    world.send(first, &wire::FETCH, 12, &fetch(0..150, 60_000));
    world.advance_ms(100);
    world.send(second, &wire::FETCH, 12, &fetch(0..150, 60_000));
    world.advance_ms(100);
    assert!([first, second, small].iter().all(|client| world.frame(*client).is_none()), "there is room for two");
    world.send(third, &wire::FETCH, 12, &fetch(0..150, 60_000));
    let frame = world.frame(first).expect("a reply, though nothing came");
    assert_eq!(fetched(&frame).len(), 150);
    let waits = [second, third, small];
    assert!(
        waits.iter().all(|client| world.frame(*client).is_none() && world.is_open(*client)),
        "there is room for these"
    );
    // What they took is given back.
    for _ in 0..10 {
        world.advance_ms(100);
        let frame = world.ask(first, &wire::FETCH, 12, &fetch(0..150, 0));
        assert_eq!(fetched(&frame).len(), 150);
    }
    world.advance_ms(61_000);
    assert!(waits.iter().all(|client| world.frame(*client).is_some()));
}

fn throttle_ms(frame: &Buf) -> i32 {
    decoded::<wire::FetchResponse<'_>>(&wire::FETCH, 12, frame).throttle_time_ms
}

/// Whoever is answered early for want of memory would ask again at once.
#[test]
fn who_gives_way_is_throttled() {
    let limits = Limits { journal_bytes: 1 << 20, ..Limits::tiny() };
    let mut world = World::with(2, limits, SMALL);
    let connection = world.connect(0);
    world.create_topic(connection, "orders", 150, &[]);
    let clients = [(); 3].map(|()| world.connect(0));
    for client in clients {
        world.send(client, &wire::FETCH, 12, &fetch(0..150, 60_000));
        world.pass_ms(100);
    }
    let [first, second, third] = clients;
    assert_eq!(throttle_ms(&world.frame(first).unwrap()), 200);
    // Those that end by their own time are not.
    world.advance_ms(61_000);
    world.pass_ms(20);
    assert_eq!([second, third].map(|client| throttle_ms(&world.frame(client).unwrap())), [0, 0]);
}

/// Small polls are many: together they leave room for what others wait for.
#[test]
fn many_small_polls_leave_room() {
    let limits =
        Limits { journal_bytes: 1 << 20, connections_max: 500, connections_per_address_max: 500, ..Limits::tiny() };
    let account = limits.memory_bytes[Account::Reply as usize];
    let mut world = World::with(2, limits, SMALL);
    let connection = world.connect(0);
    world.create_topic(connection, "orders", 250, &[]);
    let mut polls = Vec::new();
    let waits = loop {
        let client = world.connect(0);
        world.send(client, &wire::FETCH, 12, &fetch(0..4, 60_000));
        world.pass_ms(2);
        match world.frame(client) {
            None => polls.push(client),
            Some(frame) => break throttle_ms(&frame),
        }
        assert!(polls.len() < 1000);
    };
    assert!(waits > 0 && polls.len() > 20, "{waits} {}", polls.len());
    let used = world.work_bytes();
    assert!(used <= account / 4 * 3, "{used} of {account}");
    // One that needs more than the rest: as many end as it takes, and no more.
    let large = world.connect(0);
    world.send(large, &wire::FETCH, 12, &fetch(0..200, 0));
    world.pass_ms(20);
    assert_eq!(fetched(&world.frame(large).expect("a reply")).len(), 200);
    let ended: Vec<i32> = polls.iter().filter_map(|client| world.frame(*client).map(|it| throttle_ms(&it))).collect();
    assert!(!ended.is_empty() && ended.len() < polls.len() && ended.iter().all(|ms| *ms == 200), "{ended:?}");
}

/// Memory for all that is asked here.
fn roomy() -> Limits {
    Limits {
        journal_bytes: 8 << 20,
        connection_unsent_bytes_max: 4 << 20,
        segment_bytes_max: 64 << 20,
        memory_bytes: [16 << 20; ACCOUNTS],
        ..Limits::tiny()
    }
}

/// One connection's pipeline of large requests is not one turn, nor does it go before what others ask.
#[test]
fn large_requests_go_one_a_turn_and_connections_in_turn() {
    let mut world = World::with(1, roomy(), SMALL);
    let connection = world.connect(0);
    world.create_topic(connection, "orders", 2, &[]);
    let [greedy, other] = [(); 2].map(|()| world.connect(0));
    for client in [greedy, greedy, greedy, greedy, other] {
        world.queue(client, &wire::FETCH, 12, &fetch(0..1900, 0));
    }
    let mut order = Vec::new();
    for _ in 0..200 {
        world.now.mono = world.now.mono.plus_ms(1);
        world.turn(0);
        let answered = order.len();
        order.extend([greedy, other].into_iter().filter(|client| world.frame(*client).is_some()));
        assert!(order.len() <= answered + 1, "two in one turn");
    }
    assert_eq!(order, [greedy, greedy, other, greedy, greedy]);
}

/// A few bytes may ask for all that there is, or for a topic that is large.
#[test]
fn a_pipeline_of_small_ones_that_are_told_much_is_many_turns() {
    use wire::metadata::MetadataRequestTopic;
    let named = MetadataRequestTopic { name: Some("orders"), ..Default::default() };
    for topics in [None, Some(vec![named].into())] {
        let mut world = World::with(1, roomy(), SMALL);
        let [connection, beside] = [(); 2].map(|()| world.connect(0));
        world.create_topic(connection, "orders", 250, &[]);
        let asked = wire::MetadataRequest { topics, ..Default::default() };
        (0..150).for_each(|_| world.queue(connection, &wire::METADATA, 9, &asked));
        let mut turns = Vec::new();
        while turns.iter().sum::<usize>() < 150 {
            // The core has something else to do in each turn.
            world.queue(beside, &wire::FIND_COORDINATOR, 3, &wire::FindCoordinatorRequest::default());
            world.notes.clear();
            world.turn(0);
            let ran =
                |note: &&(ShardId, Note)| matches!(note.1, Note::Request { api, .. } if api == wire::METADATA.key);
            turns.push(world.notes.iter().filter(ran).count());
            while world.frame(connection).is_some() {}
            world.now.mono = world.now.mono.plus_ms(1);
            assert!(turns.len() < 1000, "{turns:?}");
        }
        assert!(turns[0] > 10 && turns.iter().all(|ran| *ran <= 40), "{turns:?}");
        assert!(turns.iter().filter(|ran| **ran > 0).count() > 5, "{turns:?}");
    }
}

/// Thousands of requests that name nothing may come in one buffer.
#[test]
fn a_pipeline_of_small_ones_is_many_turns() {
    let mut world = World::with(1, roomy(), SMALL);
    let [connection, beside] = [(); 2].map(|()| world.connect(0));
    (0..1000).for_each(|_| world.queue(connection, &wire::API_VERSIONS, 3, &wire::ApiVersionsRequest::default()));
    let mut turns = Vec::new();
    while turns.iter().sum::<usize>() < 1000 {
        world.queue(beside, &wire::FIND_COORDINATOR, 3, &wire::FindCoordinatorRequest::default());
        world.notes.clear();
        world.turn(0);
        let ran =
            |note: &&(ShardId, Note)| matches!(note.1, Note::Request { api, .. } if api == wire::API_VERSIONS.key);
        turns.push(world.notes.iter().filter(ran).count());
        while world.frame(connection).is_some() {}
        world.now.mono = world.now.mono.plus_ms(1);
        assert!(turns.len() < 1000, "{turns:?}");
    }
    assert!(turns.iter().all(|ran| *ran <= 150), "{turns:?}");
}

/// Who is sent much does not keep the core: a turn sends as much as one reply may have.
#[test]
fn what_a_turn_sends_is_bounded() {
    let mut world = World::with(1, roomy(), SMALL);
    let connection = world.connect(0);
    world.create_topic(connection, "orders", 1, &[]);
    let value = "x".repeat(900);
    (0..20).for_each(|_| drop(produce(&mut world, connection, "orders", -1, &[(0, batch(&[&value], None))])));
    let clients: Vec<ConnectionId> = (0..10).map(|_| world.connect(0)).collect();
    for client in &clients {
        (0..4).for_each(|_| world.queue(*client, &wire::FETCH, 12, &fetch(0..1, 0)));
    }
    world.sent_most = 0;
    let mut replies = BTreeMap::<ConnectionId, Vec<i32>>::new();
    for turn in 0..200 {
        world.turn(0);
        world.now.mono = world.now.mono.plus_ms(1);
        for client in clients.iter().filter(|client| world.frame(**client).is_some()) {
            replies.entry(*client).or_default().push(turn);
        }
    }
    assert!(replies.len() == clients.len() && replies.values().all(|turns| turns.len() == 4), "{replies:?}");
    // Side by side: nobody's first reply waits for somebody's last.
    let last = replies.values().filter_map(|turns| turns.last()).min();
    assert!(replies.values().all(|turns| turns.first() < last), "{replies:?}");
    let most = world.limits.fetch_reply_bytes_max as usize;
    let allowed = most + clients.len() * most / 64;
    assert!(world.sent_most <= allowed, "{} in a turn, {allowed} are allowed", world.sent_most);
}

/// While nobody else has work for the core there is no reason to wait.
#[test]
fn an_idle_core_does_what_waits() {
    let mut world = World::with(1, roomy(), SMALL);
    let connection = world.connect(0);
    world.create_topic(connection, "orders", 250, &[]);
    let all = wire::MetadataRequest { topics: None, ..Default::default() };
    (0..150).for_each(|_| world.queue(connection, &wire::METADATA, 9, &all));
    world.run();
    assert_eq!(std::iter::from_fn(|| world.frame(connection)).count(), 150);
}

/// What is produced is no debt that others would have to pay.
#[test]
fn records_of_many_partitions_are_nobodys_debt() {
    use wire::produce::{PartitionProduceData, TopicProduceData};
    let (mut world, connection, _) = world();
    let part = |index| PartitionProduceData { index: PartitionIndex(index), ..Default::default() };
    let topic =
        TopicProduceData { name: "nothing", partition_data: (0..1500).map(part).collect(), ..Default::default() };
    let asked =
        wire::ProduceRequest { acks: 1, timeout_ms: 1000, topic_data: vec![topic].into(), ..Default::default() };
    let other = world.connect(0);
    for _ in 0..20 {
        world.queue(connection, &wire::PRODUCE, 9, &asked);
    }
    world.queue(other, &wire::METADATA, 9, &wire::MetadataRequest { topics: None, ..Default::default() });
    for _ in 0..4 {
        world.turn(0);
    }
    assert!(world.frame(other).is_some());
}
