//! No decision is more than one batch of the log may hold, whatever is asked: what would be is refused, or done in parts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringmain_coordinator::{Runtime, Waiter};
use ringmain_group::*;
use ringmain_types::*;
use ringmain_wire as wire;
use ringmain_wire::join_group::JoinGroupRequestProtocol;
use ringmain_wire::leave_group::MemberIdentity;
use ringmain_wire::sync_group::SyncGroupRequestAssignment;

/// Parts that are smaller are joined by the runtime.
const JOINED_BYTES: usize = 64 << 10;
const NONE: ErrorCode = ErrorCode::None;

/// `count` topics of 100 partitions; the names of the first are short.
struct World {
    count: u128,
    version: i64,
}

impl Topics for World {
    fn by_name(&self, name: &str) -> Option<(TopicId, u32)> {
        let number: u128 = name.trim_start_matches('t').parse().ok()?;
        self.by_id(TopicId(number + 1)).map(|_| (TopicId(number + 1), 100))
    }
    fn by_id(&self, id: TopicId) -> Option<(Arc<str>, u32)> {
        (1..=self.count).contains(&id.0).then(|| (name(id.0 - 1), 100))
    }
    fn version(&self) -> i64 {
        self.version
    }
    fn names(&self) -> Box<dyn Iterator<Item = Arc<str>> + '_> {
        Box::new((0..self.count).map(name))
    }
}

fn name(number: u128) -> Arc<str> {
    match number {
        0 => "t0".into(),
        _ => format!("{}{number}", "t".repeat(200)).into(),
    }
}

type Log = Vec<(Vec<u8>, Option<Vec<u8>>)>;

struct Play {
    config: GroupConfig,
    runtime: Runtime<GroupCoordinator>,
    world: World,
    now_ms: u64,
    log: Log,
    /// Where each batch ends.
    ends: Vec<usize>,
    /// Records of the largest decision so far.
    most: usize,
    asked: u64,
}

impl Play {
    fn new(limits: GroupLimits) -> Play {
        let config = GroupConfig { initial_rebalance_delay_ms: 0, limits, ..GroupConfig::default() };
        let world = World { count: 1, version: 1 };
        let runtime = load(&config, &world, 0, &[]);
        Play { config, runtime, world, now_ms: 0, log: Log::new(), ends: vec![0], most: 0, asked: 0 }
    }

    fn now(&self) -> Now {
        now(self.now_ms)
    }

    fn ask(&mut self, request: Request<'_>) -> Vec<(Waiter, Reply)> {
        self.asked += 1;
        let (mut replies, now) = (Vec::new(), self.now());
        self.runtime.request(now, &self.world, Waiter(self.asked), request, &mut replies).unwrap();
        self.append(&mut replies);
        replies
    }

    fn one(&mut self, request: Request<'_>) -> Reply {
        let mut replies = self.ask(request);
        assert_eq!(replies.len(), 1, "{replies:?}");
        replies.remove(0).1
    }

    fn tick(&mut self) -> Vec<(Waiter, Reply)> {
        let (mut replies, now) = (Vec::new(), self.now());
        self.runtime.tick(now, &self.world, &mut replies);
        self.append(&mut replies);
        replies
    }

    /// What is due, and what follows from it.
    fn wait(&mut self, ms: u64) {
        self.now_ms += ms;
        while self.runtime.deadline().is_some_and(|due| due <= self.now().mono) {
            self.tick();
        }
    }

    fn append(&mut self, replies: &mut Vec<(Waiter, Reply)>) {
        let before = self.log.len();
        let bytes_max = (self.config.limits.batch_bytes_max as usize).max(JOINED_BYTES);
        while let Some(append) = self.runtime.to_append(1) {
            // What a record takes besides: eight varints at the most.
            let bytes: usize =
                append.records.iter().map(|(key, value)| 23 + key.len() + value.as_ref().map_or(0, Vec::len)).sum();
            assert!(bytes <= bytes_max, "{} records of {bytes} bytes in one batch", append.records.len());
            assert!(self.runtime.appended(&append, append.base));
            self.log.extend(append.records);
            self.ends.push(self.log.len());
        }
        self.most = self.most.max(self.log.len() - before);
        self.runtime.committed(LeaderEpoch(0), Offset(self.log.len() as i64), replies);
    }

    fn commit(&mut self, group: &str, offsets: &[(&str, i32, i64, &str)]) -> Result<Vec<ErrorCode>, ErrorCode> {
        let offsets = offsets.iter().map(|&(topic, index, offset, metadata)| CommitOffset {
            topic,
            id: self.world.by_name(topic).map_or(TopicId(999), |(id, _)| id),
            partition: PartitionIndex(index),
            offset: Offset(offset),
            leader_epoch: LeaderEpoch(-1),
            metadata,
        });
        let commit = CommitOffsets {
            group,
            member: "",
            instance: None,
            generation_or_epoch: -1,
            retention_ms: -1,
            offsets: offsets.collect(),
        };
        match self.one(Request::Commit(commit)) {
            Reply::Committed(codes) => codes,
            other => panic!("{other:?}"),
        }
    }

    /// Of topic t0.
    fn fetch(&mut self, group: &str) -> BTreeMap<i32, i64> {
        let fetch = FetchOffsets { group, member: None, member_epoch: -1, topics: None };
        let Reply::Fetched(Ok(topics)) = self.one(Request::Fetch(fetch)) else { panic!("no offsets") };
        let found = topics.into_iter().flat_map(|topic| topic.partitions);
        found.map(|found| (found.partition.0, found.committed.unwrap().offset.0)).collect()
    }

    fn unoffset(&mut self, group: &str, partitions: Vec<PartitionIndex>) -> Result<Vec<Vec<ErrorCode>>, ErrorCode> {
        match self.one(Request::DeleteOffsets { group, topics: vec![("t0", partitions)] }) {
            Reply::DeletedOffsets(codes) => codes,
            other => panic!("{other:?}"),
        }
    }

    /// A classic member, in its generation at once when it is alone. Code and generation.
    fn join(&mut self, group: &str, member: &str, metadata: &[u8]) -> (ErrorCode, String, i32) {
        self.join_with(group, member, &[("range", metadata)])
    }

    fn join_with(&mut self, group: &str, member: &str, protocols: &[(&str, &[u8])]) -> (ErrorCode, String, i32) {
        let protocols = protocols.iter().map(|(name, metadata)| JoinGroupRequestProtocol { name, metadata });
        let ask = wire::JoinGroupRequest {
            group_id: group,
            member_id: member,
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 10_000,
            protocol_type: "consumer",
            protocols: protocols.collect(),
            ..Default::default()
        };
        let client = Client { id: "c", host: "/h", version: 3, random: u128::from(self.asked) };
        let mut replies = self.ask(Request::Join(&ask, client));
        replies.extend(self.tick());
        match replies.pop() {
            Some((_, Reply::Join(Ok(joined)))) => (NONE, joined.member.to_string(), joined.generation),
            Some((_, Reply::Join(Err((code, id))))) => (code, id.to_string(), -1),
            other => panic!("{other:?}"),
        }
    }

    fn sync(&mut self, group: &str, member: &str, generation: i32, assignment: &[u8]) -> ErrorCode {
        let ask = wire::SyncGroupRequest {
            group_id: group,
            generation_id: generation,
            member_id: member,
            assignments: vec![SyncGroupRequestAssignment { member_id: member, assignment }].into(),
            ..Default::default()
        };
        match self.one(Request::Sync(&ask)) {
            Reply::Sync(synced) => synced.err().unwrap_or_default(),
            other => panic!("{other:?}"),
        }
    }

    /// A KIP-848 member joins. The words of a refusal.
    fn enter(
        &mut self,
        group: &str,
        member: &str,
        reads: &[&str],
        regex: Option<&str>,
    ) -> Result<i32, (ErrorCode, String)> {
        let ask = wire::ConsumerGroupHeartbeatRequest {
            group_id: group,
            member_id: member,
            rebalance_timeout_ms: 60_000,
            subscribed_topic_names: Some(reads.to_vec().into()),
            subscribed_topic_regex: regex,
            topic_partitions: Some(Vec::new().into()),
            ..Default::default()
        };
        self.beat(&ask)
    }

    fn beat(&mut self, ask: &wire::ConsumerGroupHeartbeatRequest<'_>) -> Result<i32, (ErrorCode, String)> {
        let client = Client { id: "c", host: "/h", version: 1, random: 1 };
        match self.one(Request::ConsumerHeartbeat(ask, client)) {
            Reply::ConsumerHeartbeat(told) => told.map(|told| told.epoch),
            other => panic!("{other:?}"),
        }
    }

    fn state(&mut self, group: &str) -> (&'static str, usize) {
        if let Reply::Described(described) = self.one(Request::Describe { group })
            && described.error == NONE
        {
            return (described.state, described.members.len());
        }
        match self.one(Request::DescribeConsumer { group }) {
            Reply::DescribedConsumer(described) => (described.state, described.members.len()),
            other => panic!("{other:?}"),
        }
    }
}

fn now(ms: u64) -> Now {
    Now { mono: Instant(ms * 1_000_000), wall: WallMs(1_000_000 + ms as i64) }
}

fn load(config: &GroupConfig, world: &World, ms: u64, log: &[(Vec<u8>, Option<Vec<u8>>)]) -> Runtime<GroupCoordinator> {
    let mut runtime = Runtime::new(GroupCoordinator::new(Arc::new(config.clone())), LeaderEpoch(0), Offset(0));
    for (at, (key, value)) in log.iter().enumerate() {
        runtime.load(now(ms), Offset(at as i64), key, value.as_deref()).unwrap();
    }
    runtime.serve(now(ms), world, Offset(log.len() as i64));
    runtime
}

fn limits(batch_bytes_max: u32) -> GroupLimits {
    GroupLimits { batch_bytes_max, ..GroupLimits::default() }
}

#[test]
fn of_a_partition_that_comes_more_than_once_the_last_offset_counts() {
    let mut play = Play::new(limits(1 << 20));
    let repeated: Vec<(&str, i32, i64, &str)> = (0..200_000).map(|nth| ("t0", (nth % 2) as i32, nth, "")).collect();
    assert_eq!(play.commit("g", &repeated), Ok(vec![NONE; 200_000]));
    assert_eq!(play.log.len(), 2);
    assert_eq!(play.fetch("g"), BTreeMap::from([(0, 199_998), (1, 199_999)]));
    // One that is refused stands for none.
    let long = "m".repeat(5000);
    let codes = play.commit("g", &[("t0", 0, 1, ""), ("t0", 0, 2, ""), ("t0", 0, 3, &long)]);
    assert_eq!(codes, Ok(vec![NONE, NONE, ErrorCode::OffsetMetadataTooLarge]));
    assert_eq!(play.fetch("g")[&0], 2);
    assert_eq!(play.log.len(), 3);
}

#[test]
fn what_there_is_no_room_for_is_said_of_all_that_it_stands_for() {
    let mut play = Play::new(GroupLimits { offsets_max: 1, ..limits(1 << 20) });
    let codes = play.commit("g", &[("t0", 7, 1, ""), ("t0", 8, 1, ""), ("t0", 7, 2, ""), ("t0", 8, 2, "")]);
    let too_many = ErrorCode::InvalidCommitOffsetSize;
    assert_eq!(codes, Ok(vec![NONE, too_many, NONE, too_many]));
    assert_eq!(play.fetch("g"), BTreeMap::from([(7, 2)]));
}

#[test]
fn a_commit_of_more_than_a_batch_is_refused_and_the_next_one_is_not() {
    let mut play = Play::new(limits(64 << 10));
    let (metadata, long) = ("m".repeat(4000), "m".repeat(5000));
    let mut offsets: Vec<(&str, i32, i64, &str)> = (0..20).map(|index| ("t0", index, 1, &*metadata)).collect();
    offsets.push(("t0", 20, 1, &long));
    let mut codes = vec![ErrorCode::InvalidCommitOffsetSize; 20];
    codes.push(ErrorCode::OffsetMetadataTooLarge);
    assert_eq!(play.commit("g", &offsets), Ok(codes));
    assert_eq!((play.log.len(), play.runtime.machine().len()), (0, 0), "nothing of it, and no group");
    let fits = &offsets[..15];
    assert_eq!(play.commit("g", fits), Ok(vec![NONE; 15]));
    assert_eq!(play.fetch("g").len(), 15);
    // Names are counted too.
    let mut play = Play::new(limits(64 << 10));
    let (group, topic) = ("g".repeat(1000), name(0));
    let offsets: Vec<(&str, i32, i64, &str)> = (0..70).map(|index| (&*topic, index, 1, "")).collect();
    assert_eq!(play.commit(&group, &offsets), Ok(vec![ErrorCode::InvalidCommitOffsetSize; 70]));
    assert_eq!(play.commit("g", &offsets), Ok(vec![NONE; 70]));
}

#[test]
fn offsets_are_deleted_once_however_often_they_are_named_and_no_more_than_a_batch() {
    let mut play = Play::new(limits(64 << 10));
    let group = "g".repeat(1000);
    for index in 0..80 {
        assert_eq!(play.commit(&group, &[("t0", index, 1, "")]), Ok(vec![NONE]));
    }
    let (all, before) = ((0..80).map(PartitionIndex).collect(), play.log.len());
    assert_eq!(play.unoffset(&group, all), Err(ErrorCode::RecordListTooLarge));
    assert_eq!(play.log.len(), before);
    let repeated: Vec<PartitionIndex> = (0..100_000).map(|nth| PartitionIndex(nth % 10)).collect();
    assert_eq!(play.unoffset(&group, repeated), Ok(vec![vec![NONE; 100_000]]));
    assert_eq!(play.log.len(), before + 10);
    assert_eq!(play.fetch(&group).len(), 70);
}

/// 250 offsets, of which a turn takes ten.
fn large_group(group: &str) -> Play {
    let mut play = Play::new(GroupLimits { removed_max: 10, ..limits(1 << 20) });
    let offsets: Vec<(&str, i32, i64, &str)> = (0..250).map(|index| ("t0", index, 1, "")).collect();
    play.commit(group, &offsets).unwrap();
    play.commit("other", &offsets[..5]).unwrap();
    play.most = 0;
    play
}

#[test]
fn a_large_group_is_deleted_over_several_turns_and_nothing_comes_to_it_meanwhile() {
    let mut play = large_group("g");
    assert!(play.ask(Request::DeleteGroup { group: "g" }).is_empty(), "not yet");
    let deletion = Waiter(play.asked);
    assert!(play.ask(Request::DeleteGroup { group: "g" }).is_empty());
    let loading = ErrorCode::CoordinatorLoadInProgress;
    assert_eq!(play.commit("g", &[("t0", 0, 9, "")]), Err(loading));
    assert_eq!(play.enter("g", "m", &["t0"], None).unwrap_err().0, loading);
    let ask = wire::JoinGroupRequest {
        group_id: "g",
        session_timeout_ms: 10_000,
        protocol_type: "consumer",
        protocols: vec![JoinGroupRequestProtocol { name: "range", metadata: b"" }].into(),
        ..Default::default()
    };
    let client = Client { id: "c", host: "/h", version: 3, random: 1 };
    assert_eq!(play.one(Request::Join(&ask, client)), Reply::Join(Err((loading, "".into()))));
    assert_eq!(play.commit("other", &[("t0", 0, 9, "")]), Ok(vec![NONE]), "others go on");
    let mut answered = Vec::new();
    for _ in 0..30 {
        assert!(play.runtime.deadline().is_some_and(|due| due <= play.now().mono) || !answered.is_empty());
        answered.extend(play.tick());
    }
    assert_eq!(answered, [(deletion, Reply::Code(NONE)), (Waiter(deletion.0 + 1), Reply::Code(NONE))]);
    assert!(play.most <= 11, "{} records in one turn", play.most);
    assert_eq!(play.one(Request::DeleteGroup { group: "g" }), Reply::Code(ErrorCode::GroupIdNotFound));
    let (code, ..) = play.join("g", "", b"");
    assert_eq!(code, NONE);
    assert_eq!(play.fetch("other").len(), 5);
}

/// An admin client asks again after 30 s. What was deleted meanwhile may be somebody's again, and that is not what was asked for.
#[test]
fn a_deletion_asked_for_twice_spares_who_came_between() {
    let mut play = large_group("g");
    let offsets: Vec<(&str, i32, i64, &str)> = (0..250).map(|index| ("t0", index, 1, "")).collect();
    play.commit("h", &offsets).unwrap();
    assert!(play.ask(Request::DeleteGroup { group: "g" }).is_empty());
    let first = Waiter(play.asked);
    assert!(play.ask(Request::DeleteGroup { group: "h" }).is_empty());
    assert!(play.ask(Request::DeleteGroup { group: "g" }).is_empty());
    let mut answered = Vec::new();
    while answered.is_empty() {
        answered.extend(play.tick());
    }
    assert_eq!(answered, [(first, Reply::Code(NONE))]);
    assert_eq!(play.commit("g", &[("t0", 7, 9, "")]), Ok(vec![NONE]));
    while answered.len() < 3 {
        answered.extend(play.tick());
    }
    assert_eq!(play.fetch("g"), BTreeMap::from([(7, 9)]));
    assert!(play.fetch("h").is_empty());
}

#[test]
fn a_deletion_that_was_cut_off_is_asked_for_again() {
    let mut play = large_group("g");
    assert!(play.ask(Request::DeleteGroup { group: "g" }).is_empty());
    play.runtime = load(&play.config, &play.world, 0, &play.log);
    assert_eq!(play.fetch("g").len(), 240, "it was answered to nobody");
    assert_eq!(play.commit("g", &[("t0", 240, 7, "")]), Ok(vec![NONE]));
}

#[test]
fn offsets_expire_over_several_turns() {
    for orphaned in [false, true] {
        let mut play = large_group("g");
        let offsets: Vec<(&str, i32, i64, &str)> = (0..100).map(|index| ("t0", index, 1, "")).collect();
        (0..5).for_each(|number| drop(play.commit(&format!("h{number}"), &offsets)));
        let ms = play.config.offsets_retention_ms as u64;
        if orphaned {
            play.world.count = 0;
        }
        play.most = 0;
        // Those of other groups that go with the last are not counted.
        play.wait(if orphaned { 2 * play.config.offsets_retention_check_ms } else { ms + 1_000_000 });
        assert_eq!(play.runtime.machine().len(), 0);
        assert!(play.most <= 10, "{} records in one turn", play.most);
    }
}

#[test]
fn an_offset_that_is_not_due_is_passed_over_wherever_a_look_ends() {
    let mut play = Play::new(GroupLimits { removed_max: 3, ..limits(1 << 20) });
    let ms = play.config.offsets_retention_ms as u64;
    for index in 0..40 {
        play.commit("g", &[("t0", index, 1, "")]).unwrap();
    }
    play.wait(ms / 2);
    for index in (0..40).step_by(4) {
        play.commit("g", &[("t0", index, 2, "")]).unwrap();
    }
    play.wait(ms / 2 + 1_000_000);
    assert_eq!(play.fetch("g"), (0..40).step_by(4).map(|index| (index, 2)).collect());
}

#[test]
fn a_kip_848_member_of_more_than_half_a_batch_is_told_so() {
    let mut play = Play::new(limits(64 << 10));
    let names: Vec<String> = (0..400).map(|number| format!("{number:0>100}")).collect();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let (code, text) = play.enter("g", "m", &names, None).unwrap_err();
    assert_eq!(code, ErrorCode::InvalidRequest);
    assert!(text.contains('m') && text.contains("32768"), "{text}");
    assert_eq!((play.log.len(), play.runtime.machine().len()), (0, 0));
    let epoch = play.enter("g", "m", &names[..200], None).unwrap();
    // Nor may it grow to that.
    let ask = wire::ConsumerGroupHeartbeatRequest {
        group_id: "g",
        member_id: "m",
        member_epoch: epoch,
        rebalance_timeout_ms: -1,
        subscribed_topic_names: Some(names.clone().into()),
        ..Default::default()
    };
    assert_eq!(play.beat(&ask).unwrap_err().0, ErrorCode::InvalidRequest);
    assert_eq!(play.state("g"), ("Stable", 1));
    // Strings of one byte take more in memory than in a record: that is not what is bounded here.
    let many = ["x"; 10_000];
    play.enter("g", "n", &many, None).unwrap();
}

#[test]
fn an_expression_that_matches_more_than_a_record_may_be_is_told_so() {
    let mut play = Play::new(limits(64 << 10));
    play.world = World { count: 200, version: 2 };
    let (code, text) = play.enter("g", "m", &[], Some("t+[0-9]+")).unwrap_err();
    assert_eq!(code, ErrorCode::InvalidRequest);
    assert!(text.contains("t+[0-9]+") && text.contains("16384"), "{text}");
    assert_eq!((play.log.len(), play.runtime.machine().len()), (0, 0));
    play.enter("g", "m", &[], Some("t+[0-9]")).unwrap();
    // What one matches may grow to that later: it keeps what it had, and the rest is found.
    play.world = World { count: 50, version: 3 };
    for (member, regex) in [("a", "t+[0-9]+"), ("b", "t+[1-9][0-9]*"), ("c", "t+1[0-9]*")] {
        play.enter("g", member, &[], Some(regex)).unwrap();
    }
    play.world = World { count: 1000, version: 4 };
    play.now_ms += 20_000;
    for round in 0..10 {
        let epoch = play.state("g");
        assert_eq!(epoch.1, 4, "round {round}");
        play.enter("g", "m", &[], Some("t+[0-9]")).unwrap();
    }
}

#[test]
fn many_expressions_are_looked_at_over_several_heartbeats() {
    let mut play = Play::new(limits(64 << 10));
    play.enter("g", "m", &["t0"], None).unwrap();
    // Each matches twenty topics of two hundred bytes, once they are there.
    let regexes: Vec<String> = (0..40).map(|number| format!("t+{number}?[0-9]")).collect();
    for (number, regex) in regexes.iter().enumerate() {
        play.enter("g", &format!("m{number}"), &[], Some(regex)).unwrap();
    }
    play.world = World { count: 40, version: 9 };
    play.now_ms += 20_000;
    let before = play.log.len();
    for _ in 0..20 {
        play.enter("g", "m", &["t0"], None).unwrap();
    }
    let keys: BTreeSet<&Vec<u8>> = play.log[before..].iter().map(|(key, _)| key).filter(|key| key[1] == 16).collect();
    assert_eq!(keys.len(), regexes.len(), "all of them were");
}

/// Ids of a KiB.
fn long(number: usize) -> String {
    format!("{number:0>1000}")
}

#[test]
fn many_members_that_leave_at_once_leave_in_parts_and_every_part_stands_by_itself() {
    let mut play = Play::new(limits(64 << 10));
    let group = "g".repeat(1000);
    for number in 0..100 {
        play.enter(&group, &long(number), &["t0"], None).unwrap();
    }
    play.wait(10_000);
    play.enter(&group, "stays", &["t0"], None).unwrap();
    play.wait(36_000);
    assert_eq!(play.state(&group).1, 1, "the sessions of the others ended");
    // Wherever the log was cut off, those who are in it get everything that there is.
    for end in play.ends.clone().into_iter().rev().take(20) {
        let runtime = load(&play.config, &World { count: 1, version: 1 }, play.now_ms, &play.log[..end]);
        let mut cut =
            Play { runtime, log: play.log[..end].to_vec(), now_ms: play.now_ms, ..Play::new(limits(64 << 10)) };
        if !matches!(cut.state(&group), (_, 1..)) {
            continue;
        }
        for _ in 0..3 {
            cut.wait(30_000);
            cut.enter(&group, "stays", &["t0"], None).unwrap();
        }
        assert_eq!(cut.state(&group), ("Stable", 1), "cut off at {end} of {}", play.log.len());
        let Reply::DescribedConsumer(described) = cut.one(Request::DescribeConsumer { group: &group }) else {
            panic!()
        };
        assert_eq!(described.members[0].assigned[0].2.len(), 100, "cut off at {end} of {}", play.log.len());
    }
}

#[test]
fn many_groups_that_expire_at_once_are_parts() {
    let mut play = Play::new(limits(64 << 10));
    let count = play.config.limits.expired_max as usize;
    for group in 0..count {
        assert_eq!(play.join(&long(group), "", b"").0, NONE);
    }
    play.most = 0;
    play.wait(60_000);
    assert_eq!(play.most, count, "all of them in one turn");
    assert_eq!(play.state(&long(7)), ("Empty", 0));
}

/// What a consumer says that it reads: topic t0, and as many bytes of its own.
fn subscription(bytes: usize) -> Vec<u8> {
    let own = vec![7; bytes];
    wire::encode_value(
        0,
        &wire::ConsumerProtocolSubscription { topics: vec!["t0"].into(), user_data: Some(&own), ..Default::default() },
    )
}

#[test]
fn groups_that_are_too_large_for_one_batch_keep_their_protocol() {
    // Classic: what its only member says would be there more than once.
    let mut play = Play::new(limits(64 << 10));
    let (code, member, generation) = play.join("g", "", &subscription(60_000));
    assert_eq!((code, generation), (NONE, 1));
    assert_eq!(play.sync("g", &member, 1, b"what it has"), NONE);
    let before = play.log.len();
    let other = [("range", &subscription(60_000)[..]), ("other", &[1; 8000][..])];
    let (code, ..) = play.join_with("g", &member, &other);
    assert_eq!(code, NONE);
    assert!(play.log.len() > before);
    let before = play.log.len();
    let (code, text) = play.enter("g", "m", &["t0"], None).unwrap_err();
    assert_eq!((code, play.log.len()), (ErrorCode::GroupIdNotFound, before));
    assert!(text.contains("not a consumer group"), "{text}");
    // A small one may, and back again.
    let mut play = Play::new(limits(64 << 10));
    let (_, member, _) = play.join("g", "", &subscription(10));
    assert_eq!(play.sync("g", &member, 1, b""), NONE);
    play.enter("g", "m", &["t0"], None).unwrap();
    assert_eq!(play.state("g").1, 2);
    let members = vec![MemberIdentity { member_id: &member, ..Default::default() }];
    let leave = wire::LeaveGroupRequest { group_id: "g", members: members.into(), ..Default::default() };
    let client = Client { id: "c", host: "/h", version: 4, random: 1 };
    play.one(Request::Leave(&leave, client));
    assert_eq!(play.state("g").1, 1);
}

#[test]
fn assignments_are_bounded_where_memory_is_short_too() {
    let limits = GroupLimits { group_bytes_max: 500, state_bytes_max: 1000, ..limits(64 << 10) };
    let mut play = Play::new(limits);
    let (code, member, generation) = play.join("g", "", b"");
    assert_eq!(code, NONE);
    assert_eq!(play.commit("other", &[("t0", 0, 1, "")]), Err(ErrorCode::GroupMaxSizeReached), "memory is short");
    assert_eq!(play.sync("g", &member, generation, &[0; 600]), ErrorCode::RecordListTooLarge);
}
