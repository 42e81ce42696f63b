//! What strangers may fill: ids are short, groups and their memory are bounded, and what is there goes on when no more is taken in.

use std::sync::Arc;

use ringmain_coordinator::{Runtime, Waiter};
use ringmain_group::*;
use ringmain_types::*;
use ringmain_wire as wire;
use ringmain_wire::join_group::JoinGroupRequestProtocol;

const NOW: Now = Now { mono: Instant(1_000_000_000), wall: WallMs(1_000_000) };
const TOPIC: TopicId = TopicId(7);

struct World;

impl Topics for World {
    fn by_name(&self, name: &str) -> Option<(TopicId, u32)> {
        (name == "t").then_some((TOPIC, 10))
    }
    fn by_id(&self, id: TopicId) -> Option<(Arc<str>, u32)> {
        (id == TOPIC).then(|| ("t".into(), 10))
    }
    fn version(&self) -> i64 {
        1
    }
    fn names(&self) -> Box<dyn Iterator<Item = Arc<str>> + '_> {
        Box::new(std::iter::once("t".into()))
    }
}

/// Of classic members.
const SESSION_MS: i32 = 10_000;

/// With the end of its log, and what was drawn last.
struct Coordinator(Runtime<GroupCoordinator>, i64, u128);

impl Coordinator {
    fn new(limits: GroupLimits) -> Coordinator {
        let config = GroupConfig { initial_rebalance_delay_ms: 0, limits, ..GroupConfig::default() };
        let mut runtime = Runtime::new(GroupCoordinator::new(Arc::new(config)), LeaderEpoch(0), Offset(0));
        runtime.serve(NOW, &World, Offset(0));
        Coordinator(runtime, 0, 0)
    }

    /// Sessions end, and ids that were handed out lapse.
    fn time_passes(&mut self) {
        let later = Now { mono: NOW.mono.plus_ms(600_000), wall: WallMs(NOW.wall.0 + 600_000) };
        for _ in 0..100 {
            let mut replies = Vec::new();
            self.0.tick(later, &World, &mut replies);
            self.append();
            assert!(replies.is_empty(), "nobody waits");
        }
    }

    fn append(&mut self) {
        while let Some(append) = self.0.to_append(1 << 20) {
            assert!(self.0.appended(&append, append.base));
            self.1 += append.records.len() as i64;
        }
    }

    fn leave(&mut self, group: &str, member: &str) {
        let ask = wire::LeaveGroupRequest { group_id: group, member_id: member, ..Default::default() };
        let client = Client { id: "c", host: "/h", version: 1, random: 1 };
        let left = vec![LeftMember { member: member.into(), instance: None, error: ErrorCode::None }];
        assert_eq!(self.ask(Request::Leave(&ask, client)), Reply::Left(left));
    }

    fn groups(&self) -> usize {
        self.0.machine().len()
    }

    fn ask(&mut self, request: Request<'_>) -> Reply {
        let mut replies = Vec::new();
        self.0.request(NOW, &World, Waiter(1), request, &mut replies).unwrap();
        self.append();
        self.0.committed(LeaderEpoch(0), Offset(self.1), &mut replies);
        replies.pop().expect("an answer").1
    }

    fn commit(&mut self, group: &str, partition: i32, metadata: &str) -> ErrorCode {
        let offset = CommitOffset {
            topic: "t",
            id: TOPIC,
            partition: PartitionIndex(partition),
            offset: Offset(1),
            leader_epoch: LeaderEpoch(-1),
            metadata,
        };
        let commit = CommitOffsets {
            group,
            member: "",
            instance: None,
            generation_or_epoch: -1,
            retention_ms: -1,
            offsets: vec![offset],
        };
        match self.ask(Request::Commit(commit)) {
            Reply::Committed(Ok(codes)) => codes[0],
            Reply::Committed(Err(code)) => code,
            other => panic!("{other:?}"),
        }
    }

    fn delete(&mut self, group: &str) -> Reply {
        self.ask(Request::DeleteGroup { group })
    }

    /// v3: without an id that must be had first. The member's id, or the code.
    fn join(&mut self, group: &str, kind: &str, metadata: &[u8]) -> Result<Arc<str>, ErrorCode> {
        self.join_as(group, kind, &[("range", metadata)], ("c", 3))
    }

    /// By a client of this name, in this version.
    fn join_as(
        &mut self,
        group: &str,
        kind: &str,
        protocols: &[(&str, &[u8])],
        (client, version): (&str, i16),
    ) -> Result<Arc<str>, ErrorCode> {
        let protocols = protocols.iter().map(|(name, metadata)| JoinGroupRequestProtocol { name, metadata });
        let request = wire::JoinGroupRequest {
            group_id: group,
            session_timeout_ms: SESSION_MS,
            rebalance_timeout_ms: 10_000,
            protocol_type: kind,
            protocols: protocols.collect(),
            ..Default::default()
        };
        self.2 += 1;
        let client = Client { id: client, host: "/h", version, random: self.2 };
        let mut replies = Vec::new();
        self.0.request(NOW, &World, Waiter(2), Request::Join(&request, client), &mut replies).unwrap();
        self.0.tick(NOW, &World, &mut replies);
        self.append();
        self.0.committed(LeaderEpoch(0), Offset(self.1), &mut replies);
        match replies.pop() {
            Some((_, Reply::Join(Ok(joined)))) => Ok(joined.member),
            Some((_, Reply::Join(Err((code, _))))) => Err(code),
            other => panic!("{other:?}"),
        }
    }

    fn beat(&mut self, group: &str, topics: &[&str]) -> ErrorCode {
        self.beat_as(group, "m", topics, 0)
    }

    fn beat_as(&mut self, group: &str, member_id: &str, topics: &[&str], member_epoch: i32) -> ErrorCode {
        let request = wire::ConsumerGroupHeartbeatRequest {
            group_id: group,
            member_id,
            member_epoch,
            rebalance_timeout_ms: 10_000,
            subscribed_topic_names: Some(topics.to_vec().into()),
            topic_partitions: Some(Vec::new().into()),
            ..Default::default()
        };
        let client = Client { id: "c", host: "/h", version: 1, random: 1 };
        match self.ask(Request::ConsumerHeartbeat(&request, client)) {
            Reply::ConsumerHeartbeat(Ok(_)) => ErrorCode::None,
            Reply::ConsumerHeartbeat(Err((code, text))) => {
                assert!(!text.is_empty());
                code
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn ids_of_groups_are_short() {
    let mut coordinator = Coordinator::new(GroupLimits { id_bytes_max: 10, ..GroupLimits::default() });
    let long = "12345678901";
    assert_eq!(coordinator.join(long, "consumer", b""), Err(ErrorCode::InvalidGroupId));
    assert_eq!(coordinator.beat(long, &["t"]), ErrorCode::InvalidGroupId);
    assert_eq!(coordinator.commit(long, 0, ""), ErrorCode::InvalidGroupId);
    assert_eq!(coordinator.groups(), 0);
    assert_eq!(coordinator.commit(&long[1..], 0, ""), ErrorCode::None);
}

#[test]
fn a_refused_join_leaves_no_group_behind() {
    let mut coordinator = Coordinator::new(GroupLimits { member_bytes_max: 300, ..GroupLimits::default() });
    for number in 0..10 {
        let group = format!("g{number}");
        assert_eq!(coordinator.join(&group, "", b""), Err(ErrorCode::InconsistentGroupProtocol));
        assert_eq!(coordinator.join(&group, "consumer", &[0; 301]), Err(ErrorCode::GroupMaxSizeReached));
    }
    assert_eq!(coordinator.groups(), 0);
}

#[test]
fn where_memory_is_used_up_what_is_there_goes_on_and_nothing_comes_on_top() {
    let mut coordinator = Coordinator::new(GroupLimits { state_bytes_max: 64 << 10, ..GroupLimits::default() });
    assert_eq!(coordinator.commit("first", 0, "some"), ErrorCode::None);
    coordinator.join("classic", "consumer", b"x").unwrap();
    assert_eq!(coordinator.beat("consumer", &["t"]), ErrorCode::None);
    let mut filled = 0;
    let metadata = "m".repeat(2000);
    while coordinator.commit("filler", filled, &metadata) == ErrorCode::None {
        filled += 1;
    }
    // About what it says, in what it counts.
    assert!((20..=32).contains(&filled), "{filled} offsets with 2000 bytes");
    assert_eq!(coordinator.commit("filler", filled, ""), ErrorCode::InvalidCommitOffsetSize);
    assert_eq!(coordinator.commit("first", 0, "more of it"), ErrorCode::InvalidCommitOffsetSize);
    assert_eq!(coordinator.commit("another", 0, ""), ErrorCode::GroupMaxSizeReached);
    assert_eq!(coordinator.join("another", "consumer", b""), Err(ErrorCode::GroupMaxSizeReached));
    assert_eq!(coordinator.join("classic", "consumer", b"x"), Err(ErrorCode::GroupMaxSizeReached));
    assert_eq!(coordinator.beat("another", &["t"]), ErrorCode::GroupMaxSizeReached);
    // What is there.
    assert_eq!(coordinator.commit("first", 0, "less"), ErrorCode::None);
    assert_eq!(coordinator.beat("consumer", &["t"]), ErrorCode::None);
    // Whatever is taken away makes room again.
    assert_eq!(coordinator.delete("filler"), Reply::Code(ErrorCode::None));
    assert_eq!(coordinator.commit("another", 0, "more of it"), ErrorCode::None);
    coordinator.join("yet another", "consumer", b"x").unwrap();
}

#[test]
fn what_is_counted_comes_and_goes_with_the_groups() {
    let mut coordinator = Coordinator::new(GroupLimits { state_bytes_max: 16 << 10, ..GroupLimits::default() });
    // Many times what there is room for at once.
    for round in 0..200 {
        let group = format!("g{round}");
        for partition in 0..10 {
            assert_eq!(coordinator.commit(&group, partition, "metadata"), ErrorCode::None, "round {round}");
            assert_eq!(coordinator.commit(&group, partition, "other"), ErrorCode::None, "round {round}");
        }
        assert_eq!(coordinator.delete(&group), Reply::Code(ErrorCode::None));
    }
    assert_eq!(coordinator.groups(), 0);
}

/// How many of them are let in, one after the other, until there is no room.
fn count(mut enter: impl FnMut(usize) -> ErrorCode) -> usize {
    for number in 0..100_000 {
        match enter(number) {
            ErrorCode::None => {}
            ErrorCode::GroupMaxSizeReached => return number,
            other => panic!("{other:?}"),
        }
    }
    panic!("no end");
}

/// Room for this much, and strings of which about fifty fill it.
const STATE_BYTES: u64 = 1 << 20;
const LONG_BYTES: usize = 10_000;

fn small() -> Coordinator {
    let limits = GroupLimits { state_bytes_max: STATE_BYTES, members_max: 1_000_000, ..GroupLimits::default() };
    Coordinator::new(limits)
}

fn code(joined: Result<Arc<str>, ErrorCode>) -> ErrorCode {
    joined.err().unwrap_or_default()
}

#[test]
fn what_classic_members_are_called_is_counted_and_given_back() {
    let mut coordinator = small();
    let long = "c".repeat(LONG_BYTES);
    for round in 0..3 {
        let mut members = Vec::new();
        let taken = count(|number| {
            let group = format!("g{number}");
            let joined = coordinator.join_as(&group, "consumer", &[("range", b"")], (&long, 3));
            members.extend(joined.as_ref().ok().map(|id| (group, id.clone())));
            code(joined)
        });
        // Its id begins with the client's.
        assert!((40..=52).contains(&taken), "{taken} members in round {round}");
        match round {
            0 => members.iter().for_each(|(group, member)| coordinator.leave(group, member)),
            _ => coordinator.time_passes(),
        }
    }
}

#[test]
fn ids_that_are_handed_out_are_counted_and_given_back() {
    let mut coordinator = small();
    let long = "c".repeat(LONG_BYTES);
    for round in 0..3 {
        let taken = count(|number| {
            let group = format!("g{}", number % 10);
            match coordinator.join_as(&group, "consumer", &[("range", b"")], (&long, 9)) {
                Err(ErrorCode::MemberIdRequired) => ErrorCode::None,
                other => code(other),
            }
        });
        assert!((90..=105).contains(&taken), "{taken} ids in round {round}");
        coordinator.time_passes();
        assert_eq!(coordinator.groups(), 0);
    }
}

#[test]
fn many_small_protocols_are_no_small_member() {
    let mut coordinator = small();
    let names: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    let protocols: Vec<(&str, &[u8])> = names.iter().map(|name| (&**name, &b""[..])).collect();
    let taken = count(|number| code(coordinator.join_as(&format!("g{number}"), "connect", &protocols, ("c", 3))));
    assert!((5..=10).contains(&taken), "{taken} members of a thousand protocols");
    // Nor are they let in as one.
    let mut coordinator = Coordinator::new(GroupLimits { member_bytes_max: 64 << 10, ..GroupLimits::default() });
    let joined = coordinator.join_as("g", "connect", &protocols, ("c", 3));
    assert_eq!(code(joined), ErrorCode::GroupMaxSizeReached);
}

#[test]
fn what_kip_848_members_are_called_is_counted_and_given_back() {
    let mut coordinator = small();
    let id = |number: usize| format!("{number:0>LONG_BYTES$}");
    for round in 0..3 {
        let taken = count(|number| coordinator.beat_as("g", &id(number), &["t"], 0));
        // Once as a member, once for its target.
        assert!((40..=100).contains(&taken), "{taken} members in round {round}");
        match round {
            0 => (0..taken)
                .for_each(|number| assert_eq!(coordinator.beat_as("g", &id(number), &["t"], -1), ErrorCode::None)),
            _ => coordinator.time_passes(),
        }
    }
}
