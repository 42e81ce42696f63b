//! Groups through whole brokers: the topic is made on first use, answers wait for the disk, and everything outlives a restart.

use ringmain_types::*;
use ringmain_wire as wire;

use crate::world::{World, decoded};

const SMALL: &[(&str, &str)] = &[("offsets.topic.num.partitions", "5"), ("group.initial.rebalance.delay.ms", "0")];

fn limits() -> Limits {
    let mut limits = Limits::tiny();
    limits.journal_bytes = 1 << 20;
    limits.memory_bytes = [1 << 20; ACCOUNTS];
    limits
}

/// Two shards, a connection to each, and the topic `orders`.
fn world() -> (World, [ConnectionId; 2], TopicId) {
    let mut world = World::with(2, limits(), SMALL);
    let connections = [world.connect(0), world.connect(1)];
    let topic = world.create_topic(connections[0], "orders", 3, &[]);
    (world, connections, topic)
}

fn find(world: &mut World, connection: ConnectionId, group: &str) -> ErrorCode {
    let asked = wire::FindCoordinatorRequest { coordinator_keys: vec![group].into(), ..Default::default() };
    let frame = world.ask(connection, &wire::FIND_COORDINATOR, 6, &asked);
    let reply: wire::FindCoordinatorResponse<'_> = decoded(&wire::FIND_COORDINATOR, 6, &frame);
    let found = reply.coordinators.iter().next().unwrap();
    if found.error_code == ErrorCode::None {
        assert_eq!((found.key, found.node_id, found.host, found.port), (group, BrokerId(1), "localhost", 9092));
    }
    found.error_code
}

fn join(world: &mut World, connection: ConnectionId, group: &str, member: &str) {
    let protocol = wire::join_group::JoinGroupRequestProtocol { name: "range", metadata: b"meta" };
    let asked = wire::JoinGroupRequest {
        group_id: group,
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 60_000,
        member_id: member,
        protocol_type: "consumer",
        protocols: vec![protocol].into(),
        ..Default::default()
    };
    world.send(connection, &wire::JOIN_GROUP, 9, &asked);
}

/// Code, member, generation and number of members, if it was answered.
fn joined(world: &mut World, connection: ConnectionId) -> Option<(ErrorCode, String, i32, usize)> {
    let frame = world.frame(connection)?;
    let reply: wire::JoinGroupResponse<'_> = decoded(&wire::JOIN_GROUP, 9, &frame);
    Some((reply.error_code, reply.member_id.to_owned(), reply.generation_id, reply.members.len()))
}

/// A member with an id of its own, waiting for its generation.
fn enter(world: &mut World, connection: ConnectionId, group: &str) -> String {
    join(world, connection, group, "");
    let (code, member, ..) = joined(world, connection).unwrap();
    assert_eq!(code, ErrorCode::MemberIdRequired);
    assert!(member.starts_with("test-"), "{member}");
    join(world, connection, group, &member);
    member
}

fn sync(world: &mut World, connection: ConnectionId, group: &str, generation: i32, member: &str, gives: &[&str]) {
    let assignments = gives
        .iter()
        .map(|id| wire::sync_group::SyncGroupRequestAssignment { member_id: id, assignment: id.as_bytes() });
    let asked = wire::SyncGroupRequest {
        group_id: group,
        generation_id: generation,
        member_id: member,
        assignments: assignments.collect(),
        ..Default::default()
    };
    world.send(connection, &wire::SYNC_GROUP, 5, &asked);
}

fn synced(world: &mut World, connection: ConnectionId) -> Option<(ErrorCode, String)> {
    let frame = world.frame(connection)?;
    let reply: wire::SyncGroupResponse<'_> = decoded(&wire::SYNC_GROUP, 5, &frame);
    Some((reply.error_code, String::from_utf8(reply.assignment.to_vec()).unwrap()))
}

fn heartbeat(world: &mut World, connection: ConnectionId, group: &str, generation: i32, member: &str) -> ErrorCode {
    let asked =
        wire::HeartbeatRequest { group_id: group, generation_id: generation, member_id: member, ..Default::default() };
    let frame = world.ask(connection, &wire::HEARTBEAT, 4, &asked);
    decoded::<wire::HeartbeatResponse>(&wire::HEARTBEAT, 4, &frame).error_code
}

/// By name; the codes in the order asked.
fn commit(world: &mut World, connection: ConnectionId, group: &str, of: &[(&str, i32, i64)]) -> Vec<ErrorCode> {
    use wire::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
    let topic = |&(name, index, offset): &(&'static str, i32, i64)| OffsetCommitRequestTopic {
        name,
        partitions: vec![OffsetCommitRequestPartition {
            partition_index: PartitionIndex(index),
            committed_offset: Offset(offset),
            committed_metadata: Some("note"),
            ..Default::default()
        }]
        .into(),
        ..Default::default()
    };
    let of: Vec<(&'static str, i32, i64)> =
        of.iter().map(|(name, index, offset)| (&*name.to_string().leak(), *index, *offset)).collect();
    let asked =
        wire::OffsetCommitRequest { group_id: group, topics: of.iter().map(topic).collect(), ..Default::default() };
    let frame = world.ask(connection, &wire::OFFSET_COMMIT, 9, &asked);
    let reply: wire::OffsetCommitResponse<'_> = decoded(&wire::OFFSET_COMMIT, 9, &frame);
    let codes = reply.topics.iter().flat_map(|topic| topic.partitions.iter().map(|p| p.error_code).collect::<Vec<_>>());
    codes.collect()
}

/// All of the group, or the code.
fn fetch(world: &mut World, connection: ConnectionId, group: &str) -> Result<Vec<(String, i32, i64)>, ErrorCode> {
    let one = wire::offset_fetch::OffsetFetchRequestGroup { group_id: group, ..Default::default() };
    let asked = wire::OffsetFetchRequest { groups: vec![one].into(), ..Default::default() };
    let frame = world.ask(connection, &wire::OFFSET_FETCH, 9, &asked);
    let reply: wire::OffsetFetchResponse<'_> = decoded(&wire::OFFSET_FETCH, 9, &frame);
    let group = reply.groups.iter().next().unwrap();
    if group.error_code != ErrorCode::None {
        return Err(group.error_code);
    }
    let mut out = Vec::new();
    for topic in &group.topics {
        for partition in &topic.partitions {
            out.push((topic.name.to_owned(), partition.partition_index.0, partition.committed_offset.0));
        }
    }
    Ok(out)
}

#[test]
fn the_topic_is_made_on_first_use_with_kafkas_configs() {
    let (mut world, [first, second], _) = world();
    assert_eq!(commit(&mut world, first, "g", &[("orders", 0, 5)]), [ErrorCode::NotCoordinator]);
    assert_eq!(fetch(&mut world, first, "g"), Err(ErrorCode::NotCoordinator));
    assert_eq!(find(&mut world, second, "g"), ErrorCode::None);
    assert_eq!(commit(&mut world, first, "g", &[("orders", 0, 5)]), [ErrorCode::None]);

    let asked = wire::describe_configs::DescribeConfigsResource {
        resource_type: 2,
        resource_name: "__consumer_offsets",
        configuration_keys: None,
    };
    let asked = wire::DescribeConfigsRequest { resources: vec![asked].into(), ..Default::default() };
    let frame = world.ask(first, &wire::DESCRIBE_CONFIGS, 4, &asked);
    let reply: wire::DescribeConfigsResponse<'_> = decoded(&wire::DESCRIBE_CONFIGS, 4, &frame);
    let result = reply.results.iter().next().unwrap();
    let value = |name: &str| result.configs.iter().find(|config| config.name == name).and_then(|config| config.value);
    assert_eq!(value("cleanup.policy"), Some("compact"));
    assert_eq!(value("segment.bytes"), Some("104857600"));
    assert_eq!(value("compression.type"), Some("producer"));
    let frame = world.ask(first, &wire::METADATA, 12, &wire::MetadataRequest::default());
    let reply: wire::MetadataResponse<'_> = decoded(&wire::METADATA, 12, &frame);
    let topic = reply.topics.iter().find(|topic| topic.name == Some("__consumer_offsets")).unwrap();
    assert_eq!((topic.is_internal, topic.partitions.len()), (true, 5));
}

#[test]
fn a_generation_over_two_shards() {
    let (mut world, [first, second], _) = world();
    for group in ["a", "b", "c", "d", "e"] {
        find(&mut world, first, group);
        let one = enter(&mut world, first, group);
        let two = enter(&mut world, second, group);
        world.advance_ms(1);
        let (code, member, generation, members) = joined(&mut world, first).unwrap();
        assert_eq!((code, &member, generation), (ErrorCode::None, &one, 1));
        // The second may have come in time for the first generation.
        let (generation, members) = match joined(&mut world, second) {
            Some((code, _, generation, others)) => {
                assert_eq!(code, ErrorCode::None);
                (generation, members + others)
            }
            None => {
                assert_eq!(heartbeat(&mut world, first, group, 1, &one), ErrorCode::RebalanceInProgress);
                join(&mut world, first, group, &one);
                let (_, _, generation, members) = joined(&mut world, first).unwrap();
                (generation, members + joined(&mut world, second).unwrap().3)
            }
        };
        assert_eq!(members, 2, "the leader knows both, the other nobody");
        sync(&mut world, second, group, generation, &two, &[]);
        assert_eq!(synced(&mut world, second), None, "the leader has not assigned");
        sync(&mut world, first, group, generation, &one, &[&one, &two]);
        assert_eq!(synced(&mut world, first).unwrap(), (ErrorCode::None, one.clone()));
        assert_eq!(synced(&mut world, second).unwrap(), (ErrorCode::None, two.clone()));
        assert_eq!(heartbeat(&mut world, first, group, generation, &one), ErrorCode::None);
        assert_eq!(heartbeat(&mut world, first, group, generation - 1, &one), ErrorCode::IllegalGeneration);
        assert_eq!(heartbeat(&mut world, second, group, generation, "nobody"), ErrorCode::UnknownMemberId);
    }
    // Both die silently.
    world.advance_ms(10_000);
    let asked = wire::ListGroupsRequest { states_filter: vec!["empty"].into(), ..Default::default() };
    let frame = world.ask(second, &wire::LIST_GROUPS, 5, &asked);
    let reply: wire::ListGroupsResponse<'_> = decoded(&wire::LIST_GROUPS, 5, &frame);
    let mut groups: Vec<&str> = reply.groups.iter().map(|group| group.group_id).collect();
    groups.sort_unstable();
    assert_eq!((reply.error_code, groups), (ErrorCode::None, vec!["a", "b", "c", "d", "e"]));
}

#[test]
fn offsets_and_generations_outlive_a_restart() {
    let (mut world, [first, second], topic) = world();
    let groups: Vec<String> = (0..12).map(|nth| format!("group-{nth}")).collect();
    find(&mut world, first, "any");
    for (nth, group) in groups.iter().enumerate() {
        let of = [("orders", 0, nth as i64), ("orders", 3, 1), ("orders", 2, 7), ("none", 0, 1)];
        let connection = [first, second][nth % 2];
        let missing = ErrorCode::UnknownTopicOrPartition;
        assert_eq!(commit(&mut world, connection, group, &of), [ErrorCode::None, missing, ErrorCode::None, missing]);
    }
    let member = enter(&mut world, first, "alive");
    world.advance_ms(1);
    joined(&mut world, first).unwrap();
    sync(&mut world, first, "alive", 1, &member, &[&member]);
    synced(&mut world, first).unwrap();

    world.stop();
    world.start(2);
    let [first, second] = [world.connect(0), world.connect(1)];
    for (nth, group) in groups.iter().enumerate() {
        let connection = [second, first][nth % 2];
        let want = vec![("orders".to_owned(), 0, nth as i64), ("orders".to_owned(), 2, 7)];
        assert_eq!(fetch(&mut world, connection, group), Ok(want));
    }
    assert_eq!(heartbeat(&mut world, second, "alive", 1, &member), ErrorCode::None);
    // By id, several groups at once, and an id that nobody has.
    use wire::offset_fetch::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
    let one = |group_id| OffsetFetchRequestGroup {
        group_id,
        topics: Some(
            [topic, TopicId(77)]
                .iter()
                .map(|id| OffsetFetchRequestTopics {
                    topic_id: *id,
                    partition_indexes: vec![PartitionIndex(2)].into(),
                    ..Default::default()
                })
                .collect(),
        ),
        ..Default::default()
    };
    let asked = wire::OffsetFetchRequest { groups: groups.iter().map(|g| one(g)).collect(), ..Default::default() };
    let frame = world.ask(first, &wire::OFFSET_FETCH, 10, &asked);
    let reply: wire::OffsetFetchResponse<'_> = decoded(&wire::OFFSET_FETCH, 10, &frame);
    assert_eq!(reply.groups.len(), groups.len());
    for (group, id) in reply.groups.iter().zip(&groups) {
        let found: Vec<(TopicId, i64, ErrorCode)> = group
            .topics
            .iter()
            .map(|topic| {
                let partition = topic.partitions.iter().next().unwrap();
                (topic.topic_id, partition.committed_offset.0, partition.error_code)
            })
            .collect();
        assert_eq!(group.group_id, id);
        assert_eq!(found, [(topic, 7, ErrorCode::None), (TopicId(77), -1, ErrorCode::UnknownTopicId)]);
    }
}

#[test]
fn describing_and_deleting() {
    let (mut world, [first, second], _) = world();
    find(&mut world, first, "g");
    commit(&mut world, first, "idle", &[("orders", 0, 5)]);
    let member = enter(&mut world, first, "busy");
    world.advance_ms(1);
    joined(&mut world, first).unwrap();
    sync(&mut world, first, "busy", 1, &member, &[&member]);
    synced(&mut world, first).unwrap();

    let asked = wire::DescribeGroupsRequest {
        groups: vec!["busy", "idle", "none"].into(),
        include_authorized_operations: true,
    };
    for version in [5, 6] {
        let frame = world.ask(second, &wire::DESCRIBE_GROUPS, version, &asked);
        let reply: wire::DescribeGroupsResponse<'_> = decoded(&wire::DESCRIBE_GROUPS, version, &frame);
        let groups: Vec<_> =
            reply.groups.iter().map(|g| (g.group_id, g.error_code, g.group_state, g.members.len())).collect();
        let missing = if version == 6 { ErrorCode::GroupIdNotFound } else { ErrorCode::None };
        let none = ErrorCode::None;
        assert_eq!(groups, [("busy", none, "Stable", 1), ("idle", none, "Empty", 0), ("none", missing, "Dead", 0)]);
        let busy = reply.groups.iter().next().unwrap();
        let shown = busy.members.iter().next().unwrap();
        assert_eq!((shown.member_id, shown.client_id, shown.client_host), (&*member, "test", "/127.0.0.1"));
        assert_eq!((shown.member_metadata, shown.member_assignment), (&b"meta"[..], member.as_bytes()));
        assert_eq!(busy.authorized_operations, 3400);
    }
    let asked = wire::DeleteGroupsRequest { groups_names: vec!["busy", "idle", "none"].into() };
    let frame = world.ask(second, &wire::DELETE_GROUPS, 2, &asked);
    let reply: wire::DeleteGroupsResponse<'_> = decoded(&wire::DELETE_GROUPS, 2, &frame);
    let codes: Vec<ErrorCode> = reply.results.iter().map(|result| result.error_code).collect();
    assert_eq!(codes, [ErrorCode::NonEmptyGroup, ErrorCode::None, ErrorCode::GroupIdNotFound]);
    assert_eq!(fetch(&mut world, first, "idle"), Ok(vec![]));
    world.stop();
    world.start(2);
    let first = world.connect(0);
    assert_eq!(fetch(&mut world, first, "idle"), Ok(vec![]));
}

#[test]
fn a_consumer_group_over_two_shards() {
    use wire::consumer_group_heartbeat::TopicPartitions;
    let (mut world, [first, second], topic) = world();
    find(&mut world, first, "new");
    let beat = |world: &mut World, connection, member: &str, epoch: i32, owned: Option<Vec<i32>>| {
        let owned = owned.map(|owned| {
            let partitions = owned.into_iter().map(PartitionIndex).collect();
            vec![TopicPartitions { topic_id: topic, partitions }].into()
        });
        let asked = wire::ConsumerGroupHeartbeatRequest {
            group_id: "new",
            member_id: member,
            member_epoch: epoch,
            rebalance_timeout_ms: if epoch == 0 { 5_000 } else { -1 },
            subscribed_topic_names: (epoch == 0).then(|| vec!["orders"].into()),
            topic_partitions: if epoch == 0 { Some(Default::default()) } else { owned },
            ..Default::default()
        };
        let frame = world.ask(connection, &wire::CONSUMER_GROUP_HEARTBEAT, 1, &asked);
        let reply: wire::ConsumerGroupHeartbeatResponse<'_> = decoded(&wire::CONSUMER_GROUP_HEARTBEAT, 1, &frame);
        let has: Option<Vec<i32>> = reply.assignment.map(|assignment| {
            let topics = assignment.topic_partitions.iter();
            topics.flat_map(|topic| topic.partitions.iter().map(|index| index.0).collect::<Vec<_>>()).collect()
        });
        (reply.error_code, reply.member_epoch, has)
    };
    let none = ErrorCode::None;
    assert_eq!(beat(&mut world, first, "one", 0, None), (none, 1, Some(vec![0, 1, 2])));
    world.advance_ms(1000);
    assert_eq!(beat(&mut world, second, "two", 0, None), (none, 2, Some(vec![])));
    assert_eq!(beat(&mut world, first, "one", 1, None), (none, 1, Some(vec![0, 1])));
    assert_eq!(beat(&mut world, first, "one", 1, Some(vec![0, 1])), (none, 2, Some(vec![0, 1])));
    assert_eq!(beat(&mut world, second, "two", 2, None), (none, 2, Some(vec![2])));
    world.stop();
    world.start(2);
    let first = world.connect(0);
    assert_eq!(beat(&mut world, first, "two", 2, None), (none, 2, None));
    let asked = wire::ConsumerGroupDescribeRequest { group_ids: vec!["new", "old"].into(), ..Default::default() };
    let frame = world.ask(first, &wire::CONSUMER_GROUP_DESCRIBE, 1, &asked);
    let reply: wire::ConsumerGroupDescribeResponse<'_> = decoded(&wire::CONSUMER_GROUP_DESCRIBE, 1, &frame);
    let groups: Vec<_> = reply.groups.iter().map(|g| (g.error_code, g.group_state, g.group_epoch)).collect();
    assert_eq!(groups, [(none, "Stable", 2), (ErrorCode::GroupIdNotFound, "", 0)]);
    let member = reply.groups.iter().next().unwrap().members.iter().next().unwrap();
    assert_eq!((member.member_id, member.member_epoch, member.member_type), ("one", 2, 1));
}

#[test]
fn a_pattern_matches_internal_topics_too() {
    let (mut world, [first, _], orders) = world();
    assert_eq!(find(&mut world, first, "all"), ErrorCode::None);
    let asked = wire::ConsumerGroupHeartbeatRequest {
        group_id: "all",
        member_id: "one",
        rebalance_timeout_ms: 5_000,
        subscribed_topic_regex: Some("orders|__consumer_offsets|orders-"),
        topic_partitions: Some(Default::default()),
        ..Default::default()
    };
    let frame = world.ask(first, &wire::CONSUMER_GROUP_HEARTBEAT, 1, &asked);
    let reply: wire::ConsumerGroupHeartbeatResponse<'_> = decoded(&wire::CONSUMER_GROUP_HEARTBEAT, 1, &frame);
    let assigned = reply.assignment.map(|assignment| assignment.topic_partitions);
    let counts = assigned
        .iter()
        .flat_map(|topics| topics.iter())
        .map(|topic| (topic.topic_id == orders, topic.partitions.len()));
    let mut counts: Vec<(bool, usize)> = counts.collect();
    counts.sort_unstable();
    assert_eq!((reply.error_code, counts), (ErrorCode::None, vec![(false, 5), (true, 3)]));
}

#[test]
fn a_stop_lets_waiting_members_go() {
    let mut world = World::with(2, limits(), &[("offsets.topic.num.partitions", "5")]);
    let [first, second] = [world.connect(0), world.connect(1)];
    find(&mut world, first, "any");
    for group in ["a", "b"] {
        // One waits for the end of the delay, one behind the other shard.
        enter(&mut world, if group == "a" { first } else { second }, group);
    }
    world.stop();
    for connection in [first, second] {
        let (code, ..) = joined(&mut world, connection).unwrap();
        assert_eq!(code, ErrorCode::NotCoordinator);
    }
}

#[test]
fn clients_do_not_write_to_the_topic_and_a_new_one_starts_clean() {
    let (mut world, [first, _], _) = world();
    find(&mut world, first, "g");
    commit(&mut world, first, "g", &[("orders", 0, 5)]);
    let asked = wire::DeleteTopicsRequest {
        topics: vec![wire::delete_topics::DeleteTopicState { name: Some("orders"), ..Default::default() }].into(),
        timeout_ms: 1000,
        ..Default::default()
    };
    world.ask(first, &wire::DELETE_TOPICS, 6, &asked);
    world.create_topic(first, "orders", 3, &[]);
    assert_eq!(fetch(&mut world, first, "g"), Ok(vec![]), "FAILURES 55");
    assert_eq!(commit(&mut world, first, "g", &[("orders", 0, 1)]), [ErrorCode::None]);
    assert_eq!(fetch(&mut world, first, "g"), Ok(vec![("orders".to_owned(), 0, 1)]));
}

/// One generation for a thousand members is as long as the slowest of them: what they sent is not kept for so long.
#[test]
fn who_waits_for_others_keeps_no_frame() {
    let mut limits = limits();
    limits.segment_bytes_max = 4 << 20;
    let mut world = World::with(2, limits, &[("offsets.topic.num.partitions", "5")]);
    let connections: Vec<ConnectionId> = (0..12).map(|nth| world.connect(nth % 2)).collect();
    find(&mut world, connections[0], "g");
    let before = world.memory_used(Account::Receive);
    let metadata = vec![7; 12 << 10];
    for connection in &connections {
        let protocol = wire::join_group::JoinGroupRequestProtocol { name: "range", metadata: &metadata };
        let asked = wire::JoinGroupRequest {
            group_id: "g",
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 60_000,
            protocol_type: "consumer",
            protocols: vec![protocol].into(),
            ..Default::default()
        };
        world.send(*connection, &wire::JOIN_GROUP, 3, &asked);
        let answered = world.frame(*connection);
        let code =
            answered.map(|frame| decoded::<wire::JoinGroupResponse<'_>>(&wire::JOIN_GROUP, 3, &frame).error_code);
        assert_eq!(code, None, "it waits for the end of the delay");
    }
    world.run();
    assert_eq!(world.memory_used(Account::Receive), before);
    for _ in 0..4 {
        world.advance_ms(3000);
    }
    let mut joined = Vec::new();
    for connection in &connections {
        let frame = world.frame(*connection).expect("the generation");
        let reply: wire::JoinGroupResponse<'_> = decoded(&wire::JOIN_GROUP, 3, &frame);
        joined.push((reply.error_code, reply.generation_id, reply.member_id.to_owned(), reply.members.len()));
    }
    assert!(joined.iter().all(|(code, generation, ..)| (*code, *generation) == (ErrorCode::None, 1)), "{joined:?}");
    assert_eq!(joined.iter().map(|(.., members)| members).sum::<usize>(), connections.len());
    // The same for those who wait for what the leader assigns.
    for (connection, (.., member, members)) in
        connections.iter().zip(&joined).filter(|(_, (.., members))| *members == 0)
    {
        assert_eq!(*members, 0);
        let given = wire::sync_group::SyncGroupRequestAssignment { member_id: member, assignment: &metadata };
        let asked = wire::SyncGroupRequest {
            group_id: "g",
            generation_id: 1,
            member_id: member,
            assignments: vec![given].into(),
            ..Default::default()
        };
        world.send(*connection, &wire::SYNC_GROUP, 3, &asked);
        assert!(world.frame(*connection).is_none(), "the leader has not assigned");
    }
    world.run();
    assert_eq!(world.memory_used(Account::Receive), before);
}

/// `count` partitions with this metadata; how many have each code.
fn commit_large(world: &mut World, connection: ConnectionId, count: i32, metadata: &str) -> Vec<(ErrorCode, usize)> {
    use wire::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
    let partition = |index| OffsetCommitRequestPartition {
        partition_index: PartitionIndex(index),
        committed_metadata: Some(metadata),
        ..Default::default()
    };
    let topic = OffsetCommitRequestTopic {
        name: "wide",
        partitions: (0..count).map(partition).collect::<Vec<_>>().into(),
        ..Default::default()
    };
    let asked = wire::OffsetCommitRequest { group_id: "g", topics: vec![topic].into(), ..Default::default() };
    // The last one is paid for.
    world.advance_ms(100);
    let frame = world.ask(connection, &wire::OFFSET_COMMIT, 9, &asked);
    let reply: wire::OffsetCommitResponse<'_> = decoded(&wire::OFFSET_COMMIT, 9, &frame);
    let mut codes: Vec<(ErrorCode, usize)> = Vec::new();
    for code in reply.topics.iter().flat_map(|topic| topic.partitions.iter().map(|p| p.error_code).collect::<Vec<_>>())
    {
        match codes.last_mut().filter(|(last, _)| *last == code) {
            Some((_, count)) => *count += 1,
            None => codes.push((code, 1)),
        }
    }
    codes
}

/// A config of the offsets topic.
fn configure(world: &mut World, connection: ConnectionId, name: &str, value: &str) {
    use wire::incremental_alter_configs::{AlterConfigsResource, AlterableConfig};
    let config = AlterableConfig { name, config_operation: 0, value: Some(value) };
    let resource =
        AlterConfigsResource { resource_type: 2, resource_name: "__consumer_offsets", configs: vec![config].into() };
    let asked = wire::IncrementalAlterConfigsRequest { resources: vec![resource].into(), ..Default::default() };
    let frame = world.ask(connection, &wire::INCREMENTAL_ALTER_CONFIGS, 1, &asked);
    let reply: wire::IncrementalAlterConfigsResponse<'_> = decoded(&wire::INCREMENTAL_ALTER_CONFIGS, 1, &frame);
    assert_eq!(reply.responses.iter().next().unwrap().error_code, ErrorCode::None);
}

/// What fits no segment any more is refused, and ends nobody: neither its coordinator nor the group's other commits.
#[test]
fn a_decision_that_no_segment_holds_ends_no_coordinator() {
    let mut limits = limits();
    limits.segment_bytes_max = 64 << 20;
    limits.memory_bytes = [8 << 20; ACCOUNTS];
    limits.frame_bytes_max = 4 << 20;
    limits.admin_frame_bytes_max = 4 << 20;
    limits.group_state_bytes_max = 64 << 20;
    limits.journal_bytes = 8 << 20;
    let properties = [("offsets.topic.num.partitions", "1"), ("offset.metadata.max.bytes", "32000")];
    let mut world = World::with(2, limits, &properties);
    let connection = world.connect(0);
    world.create_topic(connection, "wide", 50, &[]);
    find(&mut world, connection, "g");
    let metadata = "m".repeat(30_000);
    let too_large = [(ErrorCode::InvalidCommitOffsetSize, 50)];
    assert_eq!(commit_large(&mut world, connection, 50, &metadata), too_large, "more than max.message.bytes");
    configure(&mut world, connection, "max.message.bytes", "4194304");
    assert_eq!(commit_large(&mut world, connection, 50, &metadata), [(ErrorCode::None, 50)], "in one batch of 1.5 MB");
    configure(&mut world, connection, "segment.bytes", "1048576");
    // It was loaded when segments were larger.
    assert_eq!(commit_large(&mut world, connection, 50, &metadata), [(ErrorCode::NotCoordinator, 50)]);
    world.advance_ms(50);
    assert_eq!(commit_large(&mut world, connection, 50, &metadata), too_large);
    assert_eq!(commit_large(&mut world, connection, 30, &metadata), [(ErrorCode::None, 30)]);
    assert_eq!(fetch(&mut world, connection, "g").map(|offsets| offsets.len()), Ok(50));
}

/// Whatever waits for the log is bounded in bytes too: more is told to come again, and does.
#[test]
fn a_coordinator_whose_log_is_behind_decides_nothing_more() {
    let mut limits = limits();
    limits.coordinator_backlog_bytes_max = 1;
    let properties = [("offsets.topic.num.partitions", "1")];
    let mut world = World::with(1, limits, &properties);
    let connections = [world.connect(0), world.connect(0)];
    world.create_topic(connections[0], "orders", 3, &[]);
    find(&mut world, connections[0], "g");
    let asked = wire::OffsetCommitRequest {
        group_id: "g",
        topics: vec![wire::offset_commit::OffsetCommitRequestTopic {
            name: "orders",
            partitions: vec![Default::default()].into(),
            ..Default::default()
        }]
        .into(),
        ..Default::default()
    };
    for connection in connections {
        let parts = wire::encode_request(&wire::OFFSET_COMMIT, 9, 1, Some("test"), &asked);
        world.send_bytes(connection, parts.concat());
    }
    world.run();
    let code = |world: &mut World, connection| {
        let frame = world.frame(connection).unwrap();
        let reply: wire::OffsetCommitResponse<'_> = decoded(&wire::OFFSET_COMMIT, 9, &frame);
        reply.topics.iter().next().unwrap().partitions.iter().next().unwrap().error_code
    };
    let codes = connections.map(|connection| code(&mut world, connection));
    assert_eq!(codes, [ErrorCode::None, ErrorCode::CoordinatorLoadInProgress]);
    assert_eq!(commit(&mut world, connections[1], "g", &[("orders", 0, 5)]), [ErrorCode::None]);
}
