//! What members, and those who are none, may ask of a group coordinator.

use std::io;

use ringmain_torture::connection::Connection;
use ringmain_types::{ErrorCode, LeaderEpoch, Offset, PartitionIndex, TopicId};
use ringmain_wire::join_group::JoinGroupRequestProtocol;
use ringmain_wire::leave_group::MemberIdentity;
use ringmain_wire::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use ringmain_wire::offset_fetch::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use ringmain_wire::*;

use crate::ask::{batch, create, create_topic, produce, topics};
use crate::process::PATIENCE;
use crate::suite::{Case, Outcome, Stop, case, fail, must};
use crate::world::World;

pub const CASES: &[Case] = &[
    case("requests of an old generation get 22, of an old epoch 110 and 113", old),
    case("requests of unknown members get 25", unknown),
    case("a static member whose place was taken gets 82", fenced),
    case("illegal group ids get 24", illegal_ids),
    case("joins that no group can take get 23, 26 and 81, and leave nothing", joins),
    case("bad KIP-848 heartbeats get 42, 112 and 128", heartbeats),
    case("oversized metadata gets 12 alone, and what was committed stays", metadata),
    case(
        "a commit of 200 000 repeated partitions counts once, one of too many gets 28, and no coordinator stops",
        large,
    ),
    case("commits for topics and partitions that are not there get 3 or 100 alone", missing),
    case("a record without a key fails alone with 87 in a compacted topic", keyless),
    case("a million distinct group ids are bounded, and told so", million),
];

const TOPIC: &str = "grouped";
/// The oldest that has no id to be had first.
const JOIN: i16 = 3;
/// The oldest with static members.
const JOIN_STATIC: i16 = 5;

/// Waits until groups are coordinated: the first time that makes a topic.
fn coordinator(world: &mut World) -> Result<Connection, Stop> {
    let mut connection = world.connect()?;
    create_topic(&mut connection, TOPIC, 2)?;
    let request = FindCoordinatorRequest { coordinator_keys: vec!["any"].into(), ..Default::default() };
    let began = std::time::Instant::now();
    loop {
        let frame = connection.call(&FIND_COORDINATOR, 4, &request)?;
        let (_, reply): (i32, FindCoordinatorResponse<'_>) = frame.decode(&FIND_COORDINATOR, 4)?;
        let found = reply.coordinators.iter().next().map(|found| found.error_code);
        if found == Some(ErrorCode::None) && beat(&mut connection, "any", "nobody", 1)? == ErrorCode::UnknownMemberId {
            return Ok(connection);
        }
        if began.elapsed() > PATIENCE {
            return fail(format!("no coordinator after {PATIENCE:?}: {found:?}"));
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// What a join says.
struct Join<'a> {
    group: &'a str,
    member: &'a str,
    instance: Option<&'a str>,
    session_ms: i32,
    kind: &'a str,
    metadata: &'a [u8],
}

impl Default for Join<'_> {
    fn default() -> Self {
        Join { group: "", member: "", instance: None, session_ms: 30_000, kind: "consumer", metadata: b"m" }
    }
}

impl Join<'_> {
    /// Code, member id and generation.
    fn ask(&self, connection: &mut Connection) -> io::Result<(ErrorCode, String, i32)> {
        let request = JoinGroupRequest {
            group_id: self.group,
            session_timeout_ms: self.session_ms,
            rebalance_timeout_ms: 30_000,
            member_id: self.member,
            group_instance_id: self.instance,
            protocol_type: self.kind,
            protocols: vec![JoinGroupRequestProtocol { name: "range", metadata: self.metadata }].into(),
            ..Default::default()
        };
        let version = if self.instance.is_some() { JOIN_STATIC } else { JOIN };
        let frame = connection.call(&JOIN_GROUP, version, &request)?;
        let (_, reply): (i32, JoinGroupResponse<'_>) = frame.decode(&JOIN_GROUP, version)?;
        Ok((reply.error_code, reply.member_id.into(), reply.generation_id))
    }
}

fn beat(connection: &mut Connection, group: &str, member: &str, generation: i32) -> io::Result<ErrorCode> {
    beat_as(connection, group, (member, None), generation)
}

fn beat_as(
    connection: &mut Connection,
    group: &str,
    (member_id, group_instance_id): (&str, Option<&str>),
    generation_id: i32,
) -> io::Result<ErrorCode> {
    let request = HeartbeatRequest { group_id: group, generation_id, member_id, group_instance_id };
    let frame = connection.call(&HEARTBEAT, 4, &request)?;
    let (_, reply): (i32, HeartbeatResponse) = frame.decode(&HEARTBEAT, 4)?;
    Ok(reply.error_code)
}

fn sync(
    connection: &mut Connection,
    group_id: &str,
    (member_id, group_instance_id): (&str, Option<&str>),
    generation_id: i32,
) -> io::Result<ErrorCode> {
    let request = SyncGroupRequest { group_id, generation_id, member_id, group_instance_id, ..Default::default() };
    let frame = connection.call(&SYNC_GROUP, 3, &request)?;
    let (_, reply): (i32, SyncGroupResponse<'_>) = frame.decode(&SYNC_GROUP, 3)?;
    Ok(reply.error_code)
}

fn leave(connection: &mut Connection, group_id: &str, member_id: &str) -> io::Result<ErrorCode> {
    let member = MemberIdentity { member_id, ..Default::default() };
    let request = LeaveGroupRequest { group_id, members: vec![member].into(), ..Default::default() };
    let frame = connection.call(&LEAVE_GROUP, 3, &request)?;
    let (_, reply): (i32, LeaveGroupResponse<'_>) = frame.decode(&LEAVE_GROUP, 3)?;
    let member = reply.members.iter().next().map(|member| member.error_code);
    Ok(if reply.error_code == ErrorCode::None { member.unwrap_or_default() } else { reply.error_code })
}

/// Who commits, and in which generation or epoch.
#[derive(Clone, Copy, Default)]
struct Committer<'a> {
    member: &'a str,
    instance: Option<&'a str>,
    generation: i32,
}

const OUTSIDE: Committer<'_> = Committer { member: "", instance: None, generation: -1 };

fn commit_request<'a>(
    group: &'a str,
    by: Committer<'a>,
    parts: &[(&'a str, i32, i64, &'a str)],
) -> OffsetCommitRequest<'a> {
    let topic = |(name, partition, offset, metadata): &(&'a str, i32, i64, &'a str)| OffsetCommitRequestTopic {
        name,
        topic_id: TopicId::NONE,
        partitions: vec![OffsetCommitRequestPartition {
            partition_index: PartitionIndex(*partition),
            committed_offset: Offset(*offset),
            committed_leader_epoch: LeaderEpoch(-1),
            committed_metadata: Some(metadata),
        }]
        .into(),
    };
    OffsetCommitRequest {
        group_id: group,
        generation_id_or_member_epoch: by.generation,
        member_id: by.member,
        group_instance_id: by.instance,
        topics: parts.iter().map(topic).collect(),
        ..Default::default()
    }
}

/// A code for each of (topic, partition, offset, metadata).
fn commit(
    connection: &mut Connection,
    group: &str,
    by: Committer<'_>,
    parts: &[(&str, i32, i64, &str)],
) -> io::Result<Vec<ErrorCode>> {
    connection.send(&OFFSET_COMMIT, 9, &commit_request(group, by, parts))?;
    committed(connection)
}

fn committed(connection: &mut Connection) -> io::Result<Vec<ErrorCode>> {
    let frame = connection.receive()?;
    let (_, reply): (i32, OffsetCommitResponse<'_>) = frame.decode(&OFFSET_COMMIT, 9)?;
    let partitions = reply.topics.iter().flat_map(|topic| topic.partitions.iter().collect::<Vec<_>>());
    Ok(partitions.map(|partition| partition.error_code).collect())
}

/// Offset and metadata of partition 0.
fn fetch(connection: &mut Connection, group_id: &str) -> io::Result<(i64, String)> {
    let topic = OffsetFetchRequestTopics {
        name: TOPIC,
        partition_indexes: vec![PartitionIndex(0)].into(),
        ..Default::default()
    };
    let group = OffsetFetchRequestGroup { group_id, topics: Some(vec![topic].into()), ..Default::default() };
    let request = OffsetFetchRequest { groups: vec![group].into(), ..Default::default() };
    let frame = connection.call(&OFFSET_FETCH, 9, &request)?;
    let (_, reply): (i32, OffsetFetchResponse<'_>) = frame.decode(&OFFSET_FETCH, 9)?;
    let group = reply.groups.iter().next();
    let partition = group.and_then(|group| group.topics.iter().next()).and_then(|topic| topic.partitions.iter().next());
    let partition = partition.ok_or(io::ErrorKind::InvalidData)?;
    Ok((partition.committed_offset.0, partition.metadata.unwrap_or_default().into()))
}

fn consumer<'a>(group: &'a str, epoch: i32) -> ConsumerGroupHeartbeatRequest<'a> {
    ConsumerGroupHeartbeatRequest {
        group_id: group,
        member_id: "m",
        member_epoch: epoch,
        rebalance_timeout_ms: 30_000,
        subscribed_topic_names: Some(vec![TOPIC].into()),
        topic_partitions: Some(Vec::new().into()),
        ..Default::default()
    }
}

/// Code, epoch, and words.
fn consumer_beat(
    connection: &mut Connection,
    request: &ConsumerGroupHeartbeatRequest<'_>,
) -> io::Result<(ErrorCode, i32, String)> {
    let frame = connection.call(&CONSUMER_GROUP_HEARTBEAT, 1, request)?;
    let (_, reply): (i32, ConsumerGroupHeartbeatResponse<'_>) = frame.decode(&CONSUMER_GROUP_HEARTBEAT, 1)?;
    Ok((reply.error_code, reply.member_epoch, reply.error_message.unwrap_or_default().into()))
}

fn eq<T: PartialEq + std::fmt::Debug>(what: &str, is: T, should: T) -> Outcome {
    must(is == should, || format!("{what}: {is:?} instead of {should:?}"))
}

fn old(world: &mut World) -> Outcome {
    let mut c = coordinator(world)?;
    let group = "old";
    let (code, member, first) = Join { group, ..Join::default() }.ask(&mut c)?;
    eq("join", code, ErrorCode::None)?;
    eq("sync", sync(&mut c, group, (&member, None), first)?, ErrorCode::None)?;
    // A leader that joins again asks for another generation.
    let (code, member, second) = Join { group, member: &member, ..Join::default() }.ask(&mut c)?;
    eq("join again", (code, second), (ErrorCode::None, first + 1))?;
    eq("sync", sync(&mut c, group, (&member, None), second)?, ErrorCode::None)?;
    for generation in [first, second + 1, -1, i32::MAX, i32::MIN] {
        let what = |ask: &str| format!("{ask} of generation {generation} in {second}");
        eq(&what("heartbeat"), beat(&mut c, group, &member, generation)?, ErrorCode::IllegalGeneration)?;
        eq(&what("sync"), sync(&mut c, group, (&member, None), generation)?, ErrorCode::IllegalGeneration)?;
        let by = Committer { member: &member, instance: None, generation };
        let codes = commit(&mut c, group, by, &[(TOPIC, 0, 1, "")])?;
        eq(&what("commit"), codes, vec![ErrorCode::IllegalGeneration])?;
    }
    eq("the present one", beat(&mut c, group, &member, second)?, ErrorCode::None)?;
    eq("nothing was committed", fetch(&mut c, group)?.0, -1)?;
    let group = "old-epoch";
    let (code, epoch, _) = consumer_beat(&mut c, &consumer(group, 0))?;
    eq("KIP-848 join", (code, epoch > 0), (ErrorCode::None, true))?;
    for other in [epoch + 1, i32::MAX] {
        let (code, _, text) = consumer_beat(&mut c, &consumer(group, other))?;
        eq(&format!("epoch {other}"), (code, text.is_empty()), (ErrorCode::FencedMemberEpoch, false))?;
        let by = Committer { member: "m", instance: None, generation: other };
        eq("commit", commit(&mut c, group, by, &[(TOPIC, 0, 1, "")])?, vec![ErrorCode::StaleMemberEpoch])?;
    }
    Ok(())
}

fn unknown(world: &mut World) -> Outcome {
    let mut c = coordinator(world)?;
    let (group, nobody) = ("unknown", "nobody");
    let (code, member, generation) = Join { group, ..Join::default() }.ask(&mut c)?;
    eq("join", code, ErrorCode::None)?;
    eq("sync", sync(&mut c, group, (&member, None), generation)?, ErrorCode::None)?;
    for group in [group, "no-such-group"] {
        eq("heartbeat", beat(&mut c, group, nobody, generation)?, ErrorCode::UnknownMemberId)?;
        eq("sync", sync(&mut c, group, (nobody, None), generation)?, ErrorCode::UnknownMemberId)?;
        eq("leave", leave(&mut c, group, nobody)?, ErrorCode::UnknownMemberId)?;
        let joined = Join { group, member: nobody, ..Join::default() }.ask(&mut c)?;
        eq("join", joined.0, ErrorCode::UnknownMemberId)?;
    }
    let by = Committer { member: nobody, instance: None, generation };
    eq("commit", commit(&mut c, group, by, &[(TOPIC, 0, 1, "")])?, vec![ErrorCode::UnknownMemberId])?;
    eq("commit from outside", commit(&mut c, group, OUTSIDE, &[(TOPIC, 0, 1, "")])?, vec![ErrorCode::UnknownMemberId])?;
    consumer_beat(&mut c, &consumer("unknown-848", 0))?;
    let stranger = ConsumerGroupHeartbeatRequest { member_id: nobody, ..consumer("unknown-848", 1) };
    eq("KIP-848", consumer_beat(&mut c, &stranger)?.0, ErrorCode::UnknownMemberId)?;
    eq("the member", beat(&mut c, group, &member, generation)?, ErrorCode::None)
}

fn fenced(world: &mut World) -> Outcome {
    let mut c = coordinator(world)?;
    let group = "fenced";
    let join = Join { group, instance: Some("i"), ..Join::default() };
    let (code, first, generation) = join.ask(&mut c)?;
    eq("join", code, ErrorCode::None)?;
    eq("sync", sync(&mut c, group, (&first, Some("i")), generation)?, ErrorCode::None)?;
    let (code, second, generation) = join.ask(&mut c)?;
    eq("join of the same instance", (code, second != first), (ErrorCode::None, true))?;
    let old = (&*first, Some("i"));
    eq("heartbeat", beat_as(&mut c, group, old, generation)?, ErrorCode::FencedInstanceId)?;
    eq("sync", sync(&mut c, group, old, generation)?, ErrorCode::FencedInstanceId)?;
    let by = Committer { member: &first, instance: Some("i"), generation };
    eq("commit", commit(&mut c, group, by, &[(TOPIC, 0, 1, "")])?, vec![ErrorCode::FencedInstanceId])?;
    let again = Join { member: &first, ..join }.ask(&mut c)?;
    eq("join under the old id", again.0, ErrorCode::FencedInstanceId)?;
    eq("the new one", beat_as(&mut c, group, (&second, Some("i")), generation)?, ErrorCode::None)
}

fn illegal_ids(world: &mut World) -> Outcome {
    let mut c = coordinator(world)?;
    let long = "g".repeat(1025);
    for group in ["", &long, &"x".repeat(32_000)] {
        let what = |ask: &str| format!("{ask} of an id of {} bytes", group.len());
        eq(&what("join"), Join { group, ..Join::default() }.ask(&mut c)?.0, ErrorCode::InvalidGroupId)?;
    }
    for group in [&*long, &"x".repeat(32_000)] {
        eq("commit", commit(&mut c, group, OUTSIDE, &[(TOPIC, 0, 1, "")])?, vec![ErrorCode::InvalidGroupId])?;
        let (code, _, text) = consumer_beat(&mut c, &consumer(group, 0))?;
        eq("KIP-848", (code, text.contains("1024")), (ErrorCode::InvalidGroupId, true))?;
    }
    eq("heartbeat", beat(&mut c, "", "m", 1)?, ErrorCode::InvalidGroupId)?;
    eq("sync", sync(&mut c, "", ("m", None), 1)?, ErrorCode::InvalidGroupId)?;
    eq("leave", leave(&mut c, "", "m")?, ErrorCode::InvalidGroupId)?;
    let longest = &long[1..];
    eq("1024 bytes", commit(&mut c, longest, OUTSIDE, &[(TOPIC, 0, 1, "")])?, vec![ErrorCode::None])
}

fn joins(world: &mut World) -> Outcome {
    let mut c = coordinator(world)?;
    let group = "unjoinable";
    for session_ms in [0, -1, 5999, 1_800_001, i32::MAX, i32::MIN] {
        let joined = Join { group, session_ms, ..Join::default() }.ask(&mut c)?;
        eq(&format!("a session of {session_ms} ms"), joined.0, ErrorCode::InvalidSessionTimeout)?;
    }
    let joined = Join { group, kind: "", ..Join::default() }.ask(&mut c)?;
    eq("no protocol type", joined.0, ErrorCode::InconsistentGroupProtocol)?;
    let joined = Join { group, metadata: &vec![0; 2 << 20], ..Join::default() }.ask(&mut c)?;
    eq("2 MiB of metadata", joined.0, ErrorCode::GroupMaxSizeReached)?;
    let (_, member, generation) = Join { group, ..Join::default() }.ask(&mut c)?;
    let joined = Join { group, kind: "connect", ..Join::default() }.ask(&mut c)?;
    eq("another protocol type", joined.0, ErrorCode::InconsistentGroupProtocol)?;
    eq("the member", beat(&mut c, group, &member, generation)?, ErrorCode::None)?;
    // Ids of their own, all refused: none of these groups exists.
    for number in 0..1000 {
        Join { group: &format!("refused-{number}"), kind: "", ..Join::default() }.ask(&mut c)?;
    }
    let frame = c.call(&LIST_GROUPS, 4, &ListGroupsRequest::default())?;
    let (_, reply): (i32, ListGroupsResponse<'_>) = frame.decode(&LIST_GROUPS, 4)?;
    let left = reply.groups.iter().filter(|group| group.group_id.starts_with("refused")).count();
    eq("groups of refused joins", left, 0)
}

fn heartbeats(world: &mut World) -> Outcome {
    let mut c = coordinator(world)?;
    let group = "bad-848";
    let bad = |request: ConsumerGroupHeartbeatRequest<'static>, code| (request, code);
    for (request, code) in [
        bad(consumer(" ", 0), ErrorCode::InvalidRequest),
        bad(consumer(group, -3), ErrorCode::InvalidRequest),
        bad(consumer(group, i32::MIN), ErrorCode::InvalidRequest),
        bad(ConsumerGroupHeartbeatRequest { member_id: "", ..consumer(group, 0) }, ErrorCode::InvalidRequest),
        bad(ConsumerGroupHeartbeatRequest { rack_id: Some(""), ..consumer(group, 0) }, ErrorCode::InvalidRequest),
        bad(
            ConsumerGroupHeartbeatRequest { server_assignor: Some("magic"), ..consumer(group, 0) },
            ErrorCode::UnsupportedAssignor,
        ),
        bad(
            ConsumerGroupHeartbeatRequest { subscribed_topic_regex: Some("(a"), ..consumer(group, 0) },
            ErrorCode::InvalidRegularExpression,
        ),
        // Would take gigabytes when compiled.
        bad(
            ConsumerGroupHeartbeatRequest {
                subscribed_topic_regex: Some("((a{1000}){1000}){1000}"),
                ..consumer(group, 0)
            },
            ErrorCode::InvalidRegularExpression,
        ),
    ] {
        let (is, _, text) = consumer_beat(&mut c, &request)?;
        must(is == code && !text.is_empty(), || format!("{request:?}: {is:?} {text:?} instead of {code:?}"))?;
    }
    eq("nobody joined", consumer_beat(&mut c, &consumer(group, 1))?.0, ErrorCode::GroupIdNotFound)
}

fn metadata(world: &mut World) -> Outcome {
    let mut c = coordinator(world)?;
    let (group, longest, long) = ("metadata", "m".repeat(4096), "m".repeat(4097));
    let codes = commit(&mut c, group, OUTSIDE, &[(TOPIC, 0, 1, &longest)])?;
    eq("4096 bytes", codes, vec![ErrorCode::None])?;
    for metadata in [&*long, &"m".repeat(32_000)] {
        let codes = commit(&mut c, group, OUTSIDE, &[(TOPIC, 0, 2, metadata), (TOPIC, 1, 2, "")])?;
        eq(&metadata.len().to_string(), codes, vec![ErrorCode::OffsetMetadataTooLarge, ErrorCode::None])?;
    }
    eq("what is committed", fetch(&mut c, group)?, (1, longest))
}

fn large(world: &mut World) -> Outcome {
    const REPEATED: usize = 200_000;
    const WIDE: &str = "wide";
    const PARTITIONS: i32 = 2000;
    /// What the broker may have more afterwards: the frames, and what was made of them in passing.
    const GREW_MAX: u64 = 200 << 20;
    let mut c = coordinator(world)?;
    create_topic(&mut c, WIDE, PARTITIONS)?;
    // Names make a record fifty times as large as what asks for it.
    let group = "g".repeat(1024);
    let before = world.broker()?.resident()?;
    let one = |topic: &'static str, count: i32, repeats: bool| OffsetCommitRequestTopic {
        name: topic,
        partitions: (0..count)
            .map(|nth| OffsetCommitRequestPartition {
                partition_index: PartitionIndex(if repeats { 0 } else { nth }),
                committed_offset: Offset(i64::from(nth) + 1),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    let mut ask = |topic: OffsetCommitRequestTopic<'_>| -> Result<Vec<ErrorCode>, Stop> {
        let request = OffsetCommitRequest { topics: vec![topic].into(), ..commit_request(&group, OUTSIDE, &[]) };
        c.send(&OFFSET_COMMIT, 9, &request)?;
        Ok(committed(&mut c)?)
    };
    let codes = ask(one(TOPIC, REPEATED as i32, true))?;
    eq("repeated", codes, vec![ErrorCode::None; REPEATED])?;
    let codes = ask(one(WIDE, PARTITIONS, false))?;
    eq("too many", codes, vec![ErrorCode::InvalidCommitOffsetSize; PARTITIONS as usize])?;
    let codes = ask(one(WIDE, 500, false))?;
    eq("not too many", codes, vec![ErrorCode::None; 500])?;
    eq("what is committed", fetch(&mut c, &group)?.0, REPEATED as i64)?;
    let (code, member, generation) = Join { group: "beside-large", ..Join::default() }.ask(&mut c)?;
    eq("join", code, ErrorCode::None)?;
    eq("heartbeat", beat(&mut c, "beside-large", &member, generation)?, ErrorCode::None)?;
    let after = world.broker()?.resident()?;
    must(after < before + GREW_MAX, || format!("from {} to {} MiB", before >> 20, after >> 20))
}

fn missing(world: &mut World) -> Outcome {
    let mut c = coordinator(world)?;
    let group = "missing";
    let parts = [
        ("no.such.topic", 0, 1, ""),
        (TOPIC, 0, 1, ""),
        (TOPIC, 2, 1, ""),
        (TOPIC, -1, 1, ""),
        (TOPIC, i32::MAX, 1, ""),
        ("", 0, 1, ""),
        (TOPIC, 1, 1, ""),
    ];
    let not = ErrorCode::UnknownTopicOrPartition;
    let codes = vec![not, ErrorCode::None, not, not, not, not, ErrorCode::None];
    eq("by name", commit(&mut c, group, OUTSIDE, &parts)?, codes)?;
    let request = OffsetCommitRequest {
        topics: vec![OffsetCommitRequestTopic {
            topic_id: TopicId(12345),
            partitions: vec![OffsetCommitRequestPartition::default()].into(),
            ..Default::default()
        }]
        .into(),
        ..commit_request(group, OUTSIDE, &[])
    };
    let frame = c.call(&OFFSET_COMMIT, 10, &request)?;
    let (_, reply): (i32, OffsetCommitResponse<'_>) = frame.decode(&OFFSET_COMMIT, 10)?;
    let code = reply.topics.iter().next().and_then(|topic| topic.partitions.iter().next()).map(|p| p.error_code);
    eq("by id", code, Some(ErrorCode::UnknownTopicId))?;
    must(!topics(&mut c)?.contains(&"no.such.topic".to_string()), || "a commit made a topic".into())
}

fn keyless(world: &mut World) -> Outcome {
    let mut c = world.connect()?;
    create(&mut c, "compacted", 2, &[("cleanup.policy", "compact")])?.ok("create")?;
    create(&mut c, "both", 2, &[("cleanup.policy", "compact,delete")])?.ok("create")?;
    for topic in ["compacted", "both"] {
        let answers = produce(&mut c, topic, &[(0, batch(b"no key"))])?;
        let [(answer, _)] = &answers[..] else { return fail(format!("{answers:?}")) };
        let named = answer.message.contains("key");
        must(answer.code == ErrorCode::InvalidRecord.code() && named, || format!("{answer:?} instead of 87"))?;
    }
    Ok(())
}

fn million(world: &mut World) -> Outcome {
    const COUNT: usize = 1_000_000;
    /// Commits of one connection wait for each other, those of many share a flush.
    const CONNECTIONS: usize = 250;
    /// Groups that are let in take a KiB or so; what is let in is bounded, whatever was asked for.
    const GREW_MAX: u64 = 900 << 20;
    world.renew();
    let mut c = coordinator(world)?;
    eq("before", commit(&mut c, "before", OUTSIDE, &[(TOPIC, 0, 7, "")])?, vec![ErrorCode::None])?;
    let before = world.broker()?.resident()?;
    let (mut taken, mut refused) = (0, 0);
    let mut crowd = (0..CONNECTIONS).map(|_| world.connect()).collect::<Result<Vec<Connection>, Stop>>()?;
    for first in (0..COUNT).step_by(CONNECTIONS) {
        for (at, one) in crowd.iter_mut().enumerate() {
            let group = format!("million-{}", first + at);
            one.send(&OFFSET_COMMIT, 9, &commit_request(&group, OUTSIDE, &[(TOPIC, 0, 1, "")]))?;
        }
        for one in &mut crowd {
            match committed(one)?[..] {
                [ErrorCode::None] => taken += 1,
                [ErrorCode::GroupMaxSizeReached] => refused += 1,
                ref codes => return fail(format!("{codes:?} after {taken} groups")),
            }
        }
    }
    let after = world.broker()?.resident()?;
    println!("  {taken} groups taken, {refused} refused, {} MiB more", after.saturating_sub(before) >> 20);
    must(refused > COUNT / 2 && taken > 10_000, || format!("{taken} taken, {refused} refused"))?;
    must(after < before + GREW_MAX, || format!("from {} to {} MiB", before >> 20, after >> 20))?;
    eq("join", Join { group: "million-more", ..Join::default() }.ask(&mut c)?.0, ErrorCode::GroupMaxSizeReached)?;
    // Who was there goes on.
    eq("commit", commit(&mut c, "before", OUTSIDE, &[(TOPIC, 0, 8, "")])?, vec![ErrorCode::None])?;
    eq("what is committed", fetch(&mut c, "before")?.0, 8)?;
    world.goes_on()?;
    world.renew();
    Ok(())
}
