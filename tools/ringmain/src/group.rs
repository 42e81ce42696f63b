//! `ringmain group ...`.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use ringmain_types::{BrokerId, ErrorCode, LeaderEpoch, Offset, PartitionIndex, TopicId};
use ringmain_wire::consumer_group_describe::Assignment;
use ringmain_wire::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use ringmain_wire::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use ringmain_wire::offset_fetch::OffsetFetchRequestGroup;
use ringmain_wire::*;
use serde_json::{Value, json};

use crate::cli::{Connect, GroupCommand, ResetTo};
use crate::client::{Client, ClientError, REQUEST_TIMEOUT_MS, check};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
/// A coordinator that is being made or loaded is asked again for so long.
const COORDINATOR_PATIENCE: Duration = Duration::from_secs(20);

/// A line on standard output. Who closes it (`| head`) has seen enough, which is no error.
macro_rules! say {
    ($($words:tt)*) => { drop(writeln!(std::io::stdout(), $($words)*)) };
}

/// Prints what came of it to standard output.
pub fn run(command: &GroupCommand) -> Result<(), ClientError> {
    match command {
        GroupCommand::List { state, kind, connect } => list(connect, state, kind),
        GroupCommand::Describe { name, connect } => describe(connect, name),
        GroupCommand::Reset { name, topic, to, dry_run, connect } => reset(connect, name, topic, to, *dry_run),
        GroupCommand::Delete { names, connect } => delete(connect, names),
    }
}

fn list(connect: &Connect, states: &[String], kinds: &[String]) -> Result<(), ClientError> {
    let mut client = Client::connect(&connect.bootstrap)?;
    let request = ListGroupsRequest {
        states_filter: states.iter().map(String::as_str).collect(),
        types_filter: kinds.iter().map(String::as_str).collect(),
    };
    let reply = again_while_loading(|| {
        let reply = client.call(&LIST_GROUPS, &request)?;
        let code = reply.read::<ListGroupsResponse<'_>>()?.error_code;
        check("the list of groups", code, None).map(|()| reply)
    })?;
    let listed: ListGroupsResponse<'_> = reply.read()?;
    let mut groups: Vec<_> = listed.groups.iter().collect();
    groups.sort_by_key(|group| group.group_id);
    if connect.json {
        let groups = groups.iter().map(|group| {
            json!({ "group": group.group_id, "type": group.group_type, "protocol_type": group.protocol_type, "state": group.group_state })
        });
        print_json(&groups.collect());
    } else {
        let width = groups.iter().map(|group| group.group_id.len()).max().unwrap_or(0).max(5);
        say!("{:width$}  TYPE      PROTOCOL  STATE", "GROUP");
        for group in groups {
            let (id, kind, protocol) = (group.group_id, group.group_type, group.protocol_type);
            say!("{id:width$}  {kind:8}  {protocol:8}  {}", group.group_state);
        }
    }
    Ok(())
}

#[derive(Debug, PartialEq)]
struct Member {
    id: String,
    instance: Option<String>,
    client_id: String,
    host: String,
    /// By topic.
    partitions: BTreeMap<String, Vec<i32>>,
}

#[derive(Debug, Default, PartialEq)]
struct Group {
    state: String,
    kind: &'static str,
    assignor: String,
    epoch: Option<i32>,
    members: Vec<Member>,
}

/// One partition that a group has committed for or reads.
#[derive(Debug, PartialEq)]
struct Position {
    topic: String,
    partition: i32,
    committed: Option<i64>,
    end: Option<i64>,
    /// The member that has it.
    member: Option<usize>,
}

impl Position {
    /// What is left to read. `None` when nothing was committed, or the end is not known.
    fn lag(&self) -> Option<i64> {
        Some((self.end? - self.committed?).max(0))
    }
}

fn describe(connect: &Connect, name: &str) -> Result<(), ClientError> {
    let mut client = Client::connect(&connect.bootstrap)?;
    let group = group(&mut client, name)?;
    let topics = Topics::ask(&mut client)?;
    let positions = positions(&mut client, name, &topics, &group)?;
    if connect.json {
        print_json(&describe_json(name, &group, &positions));
    } else {
        say!("{}", describe_text(name, &group, &positions).trim_end());
    }
    Ok(())
}

/// Of whichever protocol it speaks.
fn group(client: &mut Client, name: &str) -> Result<Group, ClientError> {
    let request = ConsumerGroupDescribeRequest { group_ids: vec![name].into(), include_authorized_operations: false };
    let found = again_while_loading(|| {
        let reply = client.call(&CONSUMER_GROUP_DESCRIBE, &request)?;
        let reply: ConsumerGroupDescribeResponse<'_> = reply.read()?;
        let Some(group) = reply.groups.iter().next() else { return Ok(None) };
        if group.error_code == ErrorCode::GroupIdNotFound {
            return Ok(None);
        }
        check(name, group.error_code, group.error_message)?;
        let members = group.members.iter().map(|member| Member {
            id: member.member_id.into(),
            instance: member.instance_id.map(str::to_owned),
            client_id: member.client_id.into(),
            host: member.client_host.into(),
            partitions: assigned(&member.assignment),
        });
        Ok(Some(Group {
            state: group.group_state.into(),
            kind: "Consumer",
            assignor: group.assignor_name.into(),
            epoch: Some(group.group_epoch),
            members: members.collect(),
        }))
    })?;
    match found {
        Some(group) => Ok(group),
        None => classic_group(client, name),
    }
}

fn assigned(assignment: &Assignment<'_>) -> BTreeMap<String, Vec<i32>> {
    let topics = assignment.topic_partitions.iter();
    topics.map(|topic| (topic.topic_name.into(), topic.partitions.iter().map(|index| index.0).collect())).collect()
}

fn classic_group(client: &mut Client, name: &str) -> Result<Group, ClientError> {
    let request = DescribeGroupsRequest { groups: vec![name].into(), include_authorized_operations: false };
    again_while_loading(|| {
        let reply = client.call(&DESCRIBE_GROUPS, &request)?;
        let reply: DescribeGroupsResponse<'_> = reply.read()?;
        let Some(group) = reply.groups.iter().next() else { return Ok(Group::default()) };
        check(name, group.error_code, group.error_message)?;
        let members = group.members.iter().map(|member| {
            // What is no consumer's assignment has no partitions to show.
            let said: Option<ConsumerProtocolAssignment<'_>> = decode_embedded(member.member_assignment).ok();
            let topics = said.iter().flat_map(|said| said.assigned_partitions.iter());
            Member {
                id: member.member_id.into(),
                instance: member.group_instance_id.map(str::to_owned),
                client_id: member.client_id.into(),
                host: member.client_host.into(),
                partitions: topics
                    .map(|topic| (topic.topic.into(), topic.partitions.iter().map(|index| index.0).collect()))
                    .collect(),
            }
        });
        Ok(Group {
            state: group.group_state.into(),
            kind: "Classic",
            assignor: group.protocol_data.into(),
            epoch: None,
            members: members.collect(),
        })
    })
}

/// All topics: names, ids, and how many partitions.
struct Topics(BTreeMap<String, (TopicId, i32)>);

impl Topics {
    fn ask(client: &mut Client) -> Result<Topics, ClientError> {
        let request = MetadataRequest { allow_auto_topic_creation: false, ..Default::default() };
        let reply = client.call(&METADATA, &request)?;
        let metadata: MetadataResponse<'_> = reply.read()?;
        let topic = |topic: metadata::MetadataResponseTopic<'_>| {
            Some((topic.name?.to_owned(), (topic.topic_id, topic.partitions.len() as i32)))
        };
        Ok(Topics(metadata.topics.iter().filter_map(topic).collect()))
    }

    fn name(&self, id: TopicId) -> Option<&str> {
        self.0.iter().find(|(_, (found, _))| *found == id).map(|(name, _)| name.as_str())
    }
}

fn positions(client: &mut Client, name: &str, topics: &Topics, group: &Group) -> Result<Vec<Position>, ClientError> {
    let mut all: BTreeMap<(String, i32), (Option<i64>, Option<usize>)> = BTreeMap::new();
    for (at, offset) in committed(client, name, topics)? {
        all.entry(at).or_default().0 = Some(offset);
    }
    for (number, member) in group.members.iter().enumerate() {
        for (topic, partitions) in &member.partitions {
            for partition in partitions {
                all.entry((topic.clone(), *partition)).or_default().1 = Some(number);
            }
        }
    }
    let asked: Vec<(String, i32)> = all.keys().cloned().collect();
    let ends = offsets(client, &asked, LATEST)?;
    let positions = all.into_iter().map(|(at, (committed, member))| {
        let end = ends.get(&at).copied();
        Position { topic: at.0, partition: at.1, committed, end, member }
    });
    Ok(positions.collect())
}

/// Everything that the group committed.
fn committed(client: &mut Client, name: &str, topics: &Topics) -> Result<BTreeMap<(String, i32), i64>, ClientError> {
    let group = OffsetFetchRequestGroup { group_id: name, topics: None, ..Default::default() };
    let request = OffsetFetchRequest { group_id: name, groups: vec![group].into(), ..Default::default() };
    again_while_loading(|| {
        let reply = client.call(&OFFSET_FETCH, &request)?;
        let reply: OffsetFetchResponse<'_> = reply.read()?;
        check(name, reply.error_code, None)?;
        let mut found = BTreeMap::new();
        // Of brokers that answer about one group at a time.
        for topic in &reply.topics {
            let partitions = topic.partitions.iter().filter(|partition| partition.committed_offset.0 >= 0);
            found.extend(
                partitions.map(|partition| {
                    ((topic.name.to_owned(), partition.partition_index.0), partition.committed_offset.0)
                }),
            );
        }
        for group in &reply.groups {
            check(name, group.error_code, None)?;
            for topic in &group.topics {
                let Some(topic_name) =
                    (if topic.name.is_empty() { topics.name(topic.topic_id) } else { Some(topic.name) })
                else {
                    continue;
                };
                let partitions = topic.partitions.iter().filter(|partition| partition.committed_offset.0 >= 0);
                found.extend(partitions.map(|partition| {
                    ((topic_name.to_owned(), partition.partition_index.0), partition.committed_offset.0)
                }));
            }
        }
        Ok(found)
    })
}

/// Offsets at a time; partitions that have none there, or that do not answer, are left out.
fn offsets(
    client: &mut Client,
    partitions: &[(String, i32)],
    timestamp: i64,
) -> Result<BTreeMap<(String, i32), i64>, ClientError> {
    let mut topics: BTreeMap<&str, Vec<ListOffsetsPartition>> = BTreeMap::new();
    for (topic, partition) in partitions {
        topics.entry(topic).or_default().push(ListOffsetsPartition {
            partition_index: PartitionIndex(*partition),
            current_leader_epoch: LeaderEpoch(-1),
            timestamp,
        });
    }
    let topics = topics.into_iter().map(|(name, partitions)| ListOffsetsTopic { name, partitions: partitions.into() });
    let request = ListOffsetsRequest {
        replica_id: BrokerId(-1),
        topics: topics.collect(),
        timeout_ms: REQUEST_TIMEOUT_MS,
        ..Default::default()
    };
    let reply = client.call(&LIST_OFFSETS, &request)?;
    let mut offsets = BTreeMap::new();
    for topic in &reply.read::<ListOffsetsResponse<'_>>()?.topics {
        let known = topic.partitions.iter().filter(|one| one.error_code == ErrorCode::None && one.offset.0 >= 0);
        offsets.extend(known.map(|one| ((topic.name.to_owned(), one.partition_index.0), one.offset.0)));
    }
    Ok(offsets)
}

fn describe_json(name: &str, group: &Group, positions: &[Position]) -> Value {
    let members: Vec<Value> = group
        .members
        .iter()
        .map(|member| {
            json!({
                "member": member.id, "instance": member.instance, "client": member.client_id, "host": member.host,
                "partitions": member.partitions,
            })
        })
        .collect();
    let offsets: Vec<Value> = positions
        .iter()
        .map(|one| {
            json!({
                "topic": one.topic, "partition": one.partition, "committed_offset": one.committed,
                "end_offset": one.end, "lag": one.lag(), "member": one.member.map(|at| group.members[at].id.as_str()),
            })
        })
        .collect();
    json!({
        "group": name, "state": group.state, "type": group.kind, "assignor": group.assignor, "epoch": group.epoch,
        "lag_sum": positions.iter().filter_map(Position::lag).sum::<i64>(),
        "lag_max": positions.iter().filter_map(Position::lag).max(),
        "members": members, "offsets": offsets,
    })
}

fn describe_text(name: &str, group: &Group, positions: &[Position]) -> String {
    let mut text = format!("{name}: {} {}, {} members", group.kind, group.state, group.members.len());
    if !group.assignor.is_empty() {
        text += &format!(", {}", group.assignor);
    }
    if let Some(epoch) = group.epoch {
        text += &format!(", epoch {epoch}");
    }
    let sum: i64 = positions.iter().filter_map(Position::lag).sum();
    text += &format!("; lag {sum}\n");
    let width = |of: &dyn Fn(&Position) -> usize, least| positions.iter().map(of).max().unwrap_or(0).max(least);
    let topic_width = width(&|one| one.topic.len(), 5);
    text += &format!("{:topic_width$}  PARTITION  COMMITTED       END       LAG  MEMBER\n", "TOPIC");
    let or_dash = |number: Option<i64>| number.map_or("-".into(), |number| number.to_string());
    for one in positions {
        let (committed, end, lag) = (or_dash(one.committed), or_dash(one.end), or_dash(one.lag()));
        let member = one.member.map_or("-".into(), |at| {
            let member = &group.members[at];
            format!("{} {} {}", member.instance.as_deref().unwrap_or(&member.id), member.client_id, member.host)
        });
        let (topic, partition) = (&one.topic, one.partition);
        text += &format!("{topic:topic_width$}  {partition:9}  {committed:>9}  {end:>8}  {lag:>8}  {member}\n");
    }
    for member in group.members.iter().filter(|member| member.partitions.values().all(Vec::is_empty)) {
        text += &format!("without partitions: {} {} {}\n", member.id, member.client_id, member.host);
    }
    text
}

/// Topic and partitions as they are given: `name` is all of it, `name:0,2` some.
fn chosen(words: &[String], topics: &Topics) -> Result<Vec<(String, i32)>, ClientError> {
    let mut chosen = Vec::new();
    for word in words {
        let (name, indexes) = word.rsplit_once(':').map_or((word.as_str(), None), |(name, some)| (name, Some(some)));
        let wrong = |message: String| ClientError::Argument { what: word.clone(), message };
        let Some((_, count)) = topics.0.get(name) else {
            return Err(wrong("there is no such topic; `topic list` shows those there are".into()));
        };
        let Some(indexes) = indexes else {
            chosen.extend((0..*count).map(|index| (name.to_owned(), index)));
            continue;
        };
        for index in indexes.split(',') {
            match index.trim().parse::<i32>() {
                Ok(index) if (0..*count).contains(&index) => chosen.push((name.to_owned(), index)),
                _ => return Err(wrong(format!("{index} is no partition of {name}, which has 0 to {}", count - 1))),
            }
        }
    }
    chosen.sort();
    chosen.dedup();
    Ok(chosen)
}

/// Where each partition is put, within what its log has.
fn target(to: &ResetTo, committed: Option<i64>, (start, end): (i64, i64), at_time: Option<i64>) -> i64 {
    let wanted = match *to {
        ResetTo { earliest: true, .. } => start,
        ResetTo { offset: Some(offset), .. } => offset,
        ResetTo { shift: Some(by), .. } => committed.unwrap_or(start).saturating_add(by),
        // After the last record there is only the end.
        ResetTo { timestamp: Some(_), .. } => at_time.unwrap_or(end),
        _ => end,
    };
    wanted.clamp(start, end.max(start))
}

fn reset(connect: &Connect, name: &str, words: &[String], to: &ResetTo, dry_run: bool) -> Result<(), ClientError> {
    let mut client = Client::connect(&connect.bootstrap)?;
    coordinator(&mut client, name)?;
    let topics = Topics::ask(&mut client)?;
    let before = committed(&mut client, name, &topics)?;
    // Without a topic: all that it has committed for.
    let partitions = match words.is_empty() {
        true => before.keys().cloned().collect(),
        false => chosen(words, &topics)?,
    };
    if partitions.is_empty() {
        let options = "--topic: the group has committed nothing yet";
        return Err(ClientError::NothingToDo { what: name.into(), options });
    }
    let (starts, ends) = (offsets(&mut client, &partitions, EARLIEST)?, offsets(&mut client, &partitions, LATEST)?);
    let at_time = match to.timestamp {
        Some(timestamp) => offsets(&mut client, &partitions, timestamp)?,
        None => BTreeMap::new(),
    };
    let mut rows = Vec::new();
    for at in partitions {
        let (Some(start), Some(end)) = (starts.get(&at), ends.get(&at)) else {
            let message = "its offsets are not known; try again".to_owned();
            return Err(ClientError::Argument { what: format!("{}:{}", at.0, at.1), message });
        };
        let new = target(to, before.get(&at).copied(), (*start, *end), at_time.get(&at).copied());
        rows.push((at.clone(), before.get(&at).copied(), new));
    }
    if !dry_run {
        commit(&mut client, name, &topics, &rows)?;
    }
    if connect.json {
        let rows = rows.iter().map(|((topic, partition), old, new)| {
            json!({ "topic": topic, "partition": partition, "old_offset": old, "new_offset": new })
        });
        print_json(&json!({ "group": name, "dry_run": dry_run, "offsets": rows.collect::<Vec<_>>() }));
    } else {
        let width = rows.iter().map(|((topic, _), ..)| topic.len()).max().unwrap_or(0).max(5);
        say!("{:width$}  PARTITION       OLD       NEW", "TOPIC");
        for ((topic, partition), old, new) in &rows {
            let old = old.map_or("-".into(), |old| old.to_string());
            say!("{topic:width$}  {partition:9}  {old:>8}  {new:>8}");
        }
        if dry_run {
            say!("nothing was changed (--dry-run)");
        }
    }
    Ok(())
}

type Row = ((String, i32), Option<i64>, i64);

fn commit(client: &mut Client, name: &str, topics: &Topics, rows: &[Row]) -> Result<(), ClientError> {
    let mut by_topic: BTreeMap<&str, Vec<OffsetCommitRequestPartition<'_>>> = BTreeMap::new();
    for ((topic, partition), _, new) in rows {
        by_topic.entry(topic).or_default().push(OffsetCommitRequestPartition {
            partition_index: PartitionIndex(*partition),
            committed_offset: Offset(*new),
            committed_leader_epoch: LeaderEpoch(-1),
            committed_metadata: Some(""),
        });
    }
    let topic = |(name, partitions): (_, Vec<_>)| OffsetCommitRequestTopic {
        name,
        topic_id: topics.0.get(name).map_or(TopicId::NONE, |(id, _)| *id),
        partitions: partitions.into(),
    };
    let request = OffsetCommitRequest {
        group_id: name,
        generation_id_or_member_epoch: -1,
        topics: by_topic.into_iter().map(topic).collect(),
        ..Default::default()
    };
    let reply = client.call(&OFFSET_COMMIT, &request)?;
    for topic in &reply.read::<OffsetCommitResponse<'_>>()?.topics {
        for partition in &topic.partitions {
            let message = match partition.error_code {
                ErrorCode::UnknownMemberId | ErrorCode::RebalanceInProgress => {
                    Some("the group has members; stop them, or wait until their sessions end")
                }
                _ => None,
            };
            check(name, partition.error_code, message)?;
        }
    }
    Ok(())
}

/// Has the coordinator made where this is the cluster's first group.
fn coordinator(client: &mut Client, name: &str) -> Result<(), ClientError> {
    let request = FindCoordinatorRequest { key: name, key_type: 0, coordinator_keys: vec![name].into() };
    again_while_loading(|| {
        let reply = client.call(&FIND_COORDINATOR, &request)?;
        let reply: FindCoordinatorResponse<'_> = reply.read()?;
        check(name, reply.error_code, reply.error_message)?;
        reply.coordinators.iter().try_for_each(|found| check(name, found.error_code, found.error_message))
    })
}

fn delete(connect: &Connect, names: &[String]) -> Result<(), ClientError> {
    let mut client = Client::connect(&connect.bootstrap)?;
    let (mut deleted, mut first_error) = (Vec::new(), None);
    for name in names {
        let request = DeleteGroupsRequest { groups_names: vec![name.as_str()].into() };
        let result = again_while_loading(|| {
            let reply = client.call(&DELETE_GROUPS, &request)?;
            let reply: DeleteGroupsResponse<'_> = reply.read()?;
            reply.results.iter().try_for_each(|result| {
                let message = match result.error_code {
                    ErrorCode::NonEmptyGroup => {
                        Some("the group has members; stop them, or wait until their sessions end")
                    }
                    ErrorCode::GroupIdNotFound | ErrorCode::NotCoordinator => {
                        Some("there is no such group; `group list` shows those there are")
                    }
                    _ => result.error_message,
                };
                check(name, result.error_code, message)
            })
        });
        match result {
            Ok(()) => deleted.push(name.as_str()),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    if connect.json {
        print_json(&json!({ "deleted": deleted }));
    } else {
        deleted.iter().for_each(|name| say!("deleted {name}"));
    }
    first_error.map_or(Ok(()), Err)
}

/// A coordinator that is made or loaded just now is asked again.
fn again_while_loading<T>(mut ask: impl FnMut() -> Result<T, ClientError>) -> Result<T, ClientError> {
    let began = Instant::now();
    loop {
        match ask() {
            Err(ClientError::Broker {
                code: ErrorCode::CoordinatorLoadInProgress | ErrorCode::CoordinatorNotAvailable,
                ..
            }) if began.elapsed() < COORDINATOR_PATIENCE => std::thread::sleep(Duration::from_millis(50)),
            result => return result,
        }
    }
}

fn print_json(value: &Value) {
    say!("{value:#}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str, partitions: &[i32]) -> Member {
        Member {
            id: id.into(),
            instance: None,
            client_id: "c".into(),
            host: "/127.0.0.1".into(),
            partitions: BTreeMap::from([("t".into(), partitions.to_vec())]),
        }
    }

    #[test]
    fn a_group_is_shown_as_text_and_as_json() {
        let group = Group {
            state: "Stable".into(),
            kind: "Consumer",
            assignor: "uniform".into(),
            epoch: Some(3),
            members: vec![member("m1", &[0]), member("m2", &[])],
        };
        let position =
            |partition, committed, end, member| Position { topic: "t".into(), partition, committed, end, member };
        let positions = [
            position(0, Some(5), Some(9), Some(0)),
            position(1, Some(7), Some(3), None),
            position(2, None, Some(4), None),
        ];
        assert_eq!(
            describe_text("g", &group, &positions),
            "g: Consumer Stable, 2 members, uniform, epoch 3; lag 4
TOPIC  PARTITION  COMMITTED       END       LAG  MEMBER
t              0          5         9         4  m1 c /127.0.0.1
t              1          7         3         0  -
t              2          -         4         -  -
without partitions: m2 c /127.0.0.1
"
        );
        let shown = describe_json("g", &group, &positions);
        assert_eq!((&shown["lag_sum"], &shown["lag_max"]), (&json!(4), &json!(4)));
        assert_eq!(shown["offsets"][0]["member"], "m1");
        assert_eq!(shown["offsets"][2]["lag"], Value::Null);
    }

    #[test]
    fn a_reset_stays_within_the_log() {
        let go = |to: ResetTo, committed| target(&to, committed, (10, 20), Some(15));
        assert_eq!(go(ResetTo { earliest: true, ..Default::default() }, None), 10);
        assert_eq!(go(ResetTo { latest: true, ..Default::default() }, None), 20);
        assert_eq!(go(ResetTo { offset: Some(12), ..Default::default() }, None), 12);
        assert_eq!(go(ResetTo { offset: Some(99), ..Default::default() }, None), 20);
        assert_eq!(go(ResetTo { shift: Some(-3), ..Default::default() }, Some(14)), 11);
        assert_eq!(go(ResetTo { shift: Some(-9), ..Default::default() }, Some(14)), 10);
        assert_eq!(go(ResetTo { timestamp: Some(1), ..Default::default() }, None), 15);
        assert_eq!(target(&ResetTo { timestamp: Some(1), ..Default::default() }, None, (10, 20), None), 20);
    }

    #[test]
    fn topics_and_partitions_are_chosen_by_name() {
        let topics = Topics(BTreeMap::from([("t".into(), (TopicId(1), 3)), ("u:x".into(), (TopicId(2), 1))]));
        let go = |words: &[&str]| chosen(&words.iter().map(|word| (*word).into()).collect::<Vec<_>>(), &topics);
        let names = |found: Vec<(String, i32)>| found.into_iter().map(|(t, p)| format!("{t}/{p}")).collect::<Vec<_>>();
        assert_eq!(names(go(&["t"]).unwrap()), ["t/0", "t/1", "t/2"]);
        assert_eq!(names(go(&["t:2,0", "t:0"]).unwrap()), ["t/0", "t/2"]);
        assert!(go(&["t:3"]).unwrap_err().to_string().contains("no partition"));
        assert!(go(&["v"]).unwrap_err().to_string().contains("no such topic"));
    }
}
