//! Groups: what a partition of `__consumer_offsets` may hold, and what members may ask.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringmain_coordinator::{Runtime, Waiter};
use ringmain_group::*;
use ringmain_types::*;
use ringmain_wire as wire;

use crate::allocations::within;
use crate::input::Input;

const NAMES: [&str; 3] = ["a", "b", "orders"];

/// Three topics.
struct World;

impl Topics for World {
    fn by_name(&self, name: &str) -> Option<(TopicId, u32)> {
        let at = NAMES.iter().position(|known| *known == name)?;
        Some((TopicId(at as u128 + 1), at as u32 + 2))
    }
    fn by_id(&self, id: TopicId) -> Option<(Arc<str>, u32)> {
        let name = NAMES.get(usize::try_from(id.0).ok()?.checked_sub(1)?)?;
        Some((Arc::from(*name), self.by_name(name)?.1))
    }
    fn version(&self) -> i64 {
        1
    }
    fn names(&self) -> Box<dyn Iterator<Item = Arc<str>> + '_> {
        Box::new(NAMES.iter().map(|name| Arc::from(*name)))
    }
}

fn now(ms: u64) -> Now {
    Now { mono: Instant(ms * 1_000_000), wall: WallMs(ms as i64) }
}

fn config() -> Arc<GroupConfig> {
    let limits = GroupLimits { targets_max: 2, members_max: 8, groups_max: 8, ..GroupLimits::default() };
    Arc::new(GroupConfig { limits, migration: Migration::Bidirectional, ..GroupConfig::default() })
}

/// What a record's parts are in memory, each text and list by itself: a partition of 4 bytes is a map's entry.
const PARTS: usize = 16;
const BESIDE_BYTES: usize = 4 << 10;
/// Moments that come after loading, one behind the other.
const TICKS: u32 = 20;

/// Records: a key behind its length, then whether there is a value, and that behind its length. Loaded like a partition that was led by
/// another broker, and then served.
pub fn records(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut play = Play::new();
    let mut at = 0;
    while !input.is_empty() {
        let key = input.piece();
        let value = (input.byte() & 1 == 1).then(|| input.piece());
        let bytes = key.len() + value.map_or(0, <[u8]>::len);
        if let Ok(Some(record)) = within(bytes * PARTS, BESIDE_BYTES, || Record::decode(key, value)) {
            let (key, value) = record.encode();
            assert_eq!(Record::decode(&key, value.as_deref()).as_ref(), Ok(&Some(record)));
        }
        let _ = play.runtime.load(now(at), Offset(at as i64), key, value);
        at += 1;
    }
    play.log_end = at as i64;
    play.runtime.serve(now(at), &World, Offset(at as i64));
    play.look();
    for _ in 0..TICKS {
        play.tick(u64::MAX);
    }
    play.look();
}

/// Requests of members, one behind the other, with time between them.
pub fn requests(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut play = Play::new();
    play.runtime.serve(now(0), &World, Offset(0));
    while !input.is_empty() {
        let (op, version, wait) = (input.byte(), input.byte(), input.byte());
        play.wait(u64::from(wait) * 200);
        play.ask(op, version, input.piece());
    }
    play.wait(600_000);
    play.look();
    play.reload();
}

struct Play {
    runtime: Runtime<GroupCoordinator>,
    now_ms: u64,
    waiters: u64,
    log: Vec<Written>,
    log_end: i64,
    /// Member ids that were given out: `@n` in a request is the n-th.
    ids: Vec<Arc<str>>,
}

type Written = (Vec<u8>, Option<Vec<u8>>);

/// A decoded request, or `None`: `decode` gets the version within the API's.
macro_rules! body {
    ($spec:ident, $version:expr, $bytes:expr) => {{
        let (min, max) = wire::$spec.versions;
        let version = min + i16::from($version) % (max - min + 1);
        let Ok(body) = wire::decode_request(&wire::$spec, version, $bytes) else { return };
        (version, body)
    }};
}

impl Play {
    fn new() -> Play {
        let runtime = Runtime::new(GroupCoordinator::new(config()), LeaderEpoch(1), Offset(0));
        Play { runtime, now_ms: 0, waiters: 0, log: Vec::new(), log_end: 0, ids: Vec::new() }
    }

    fn ask(&mut self, op: u8, version: u8, bytes: &[u8]) {
        let ids = self.ids.clone();
        let known = |id: &str| -> Option<usize> { id.strip_prefix('@')?.parse().ok().filter(|at| *at < ids.len()) };
        macro_rules! named {
            ($id:expr) => {
                known($id).map_or($id, |at| &ids[at])
            };
        }
        match op % 6 {
            0 => {
                let (version, mut body): (_, wire::JoinGroupRequest<'_>) = body!(JOIN_GROUP, version, bytes);
                body.member_id = named!(body.member_id);
                let client = self.client(version);
                self.request(Request::Join(&body, client));
            }
            1 => {
                let (_, mut body): (_, wire::SyncGroupRequest<'_>) = body!(SYNC_GROUP, version, bytes);
                body.member_id = named!(body.member_id);
                self.request(Request::Sync(&body));
            }
            2 => {
                let (_, mut body): (_, wire::HeartbeatRequest<'_>) = body!(HEARTBEAT, version, bytes);
                body.member_id = named!(body.member_id);
                self.request(Request::Heartbeat(&body));
            }
            3 => {
                let (version, mut body): (_, wire::LeaveGroupRequest<'_>) = body!(LEAVE_GROUP, version, bytes);
                body.member_id = named!(body.member_id);
                let client = self.client(version);
                self.request(Request::Leave(&body, client));
            }
            4 => {
                let (version, mut body): (_, wire::ConsumerGroupHeartbeatRequest<'_>) =
                    body!(CONSUMER_GROUP_HEARTBEAT, version, bytes);
                body.member_id = named!(body.member_id);
                let client = self.client(version);
                self.request(Request::ConsumerHeartbeat(&body, client));
            }
            _ => {
                let (_, mut body): (_, wire::OffsetCommitRequest<'_>) = body!(OFFSET_COMMIT, version, bytes);
                body.member_id = named!(body.member_id);
                self.commit_offsets(&body);
            }
        }
    }

    fn client(&self, version: i16) -> Client<'static> {
        Client { id: "c", host: "/h", version, random: u128::from(self.waiters) + 1 }
    }

    /// As the shard puts it: of topics that are known.
    fn commit_offsets(&mut self, body: &wire::OffsetCommitRequest<'_>) {
        let mut offsets = Vec::new();
        for topic in body.topics.iter() {
            let Some((id, _)) = World.by_name(topic.name) else { continue };
            offsets.extend(topic.partitions.iter().map(|partition| CommitOffset {
                topic: topic.name,
                id,
                partition: partition.partition_index,
                offset: partition.committed_offset,
                leader_epoch: partition.committed_leader_epoch,
                metadata: partition.committed_metadata.unwrap_or_default(),
            }));
        }
        self.request(Request::Commit(CommitOffsets {
            group: body.group_id,
            member: body.member_id,
            instance: body.group_instance_id,
            generation_or_epoch: body.generation_id_or_member_epoch,
            retention_ms: body.retention_time_ms,
            offsets,
        }));
    }

    fn request(&mut self, request: Request<'_>) {
        self.waiters += 1;
        let mut replies = Vec::new();
        let asked = self.runtime.request(now(self.now_ms), &World, Waiter(self.waiters), request, &mut replies);
        assert_eq!(asked, Ok(()), "it is loaded");
        self.heard(replies);
    }

    /// Everything decided is in the log at once.
    fn heard(&mut self, mut replies: Vec<(Waiter, Reply)>) {
        while let Some(append) = self.runtime.to_append(1 << 20) {
            assert!(self.runtime.appended(&append, append.base));
            self.log_end += append.records.len() as i64;
            self.log.extend(append.records);
        }
        self.runtime.committed(LeaderEpoch(1), Offset(self.log_end), &mut replies);
        for (_, reply) in replies {
            match reply {
                Reply::Join(Ok(joined)) => self.ids.push(joined.member),
                Reply::Join(Err((_, member))) if !member.is_empty() => self.ids.push(member),
                _ => {}
            }
        }
    }

    /// The next thing that is due, if it is by then.
    fn tick(&mut self, until_ms: u64) -> bool {
        let due = self.runtime.deadline().map(|at| at.0.div_ceil(1_000_000));
        let Some(due) = due.filter(|due| *due <= until_ms) else { return false };
        self.now_ms = self.now_ms.max(due);
        let mut replies = Vec::new();
        self.runtime.tick(now(self.now_ms), &World, &mut replies);
        self.heard(replies);
        true
    }

    fn wait(&mut self, ms: u64) {
        let until = self.now_ms.saturating_add(ms);
        for turn in 0.. {
            if !self.tick(until) {
                break;
            }
            assert!(turn < 100_000, "what is due does not end");
        }
        self.now_ms = until;
    }

    /// Everything that may be asked of groups without changing them.
    fn look(&mut self) {
        self.request(Request::List { states: vec![], types: vec![] });
        for group in ["g", "", "orders"] {
            self.request(Request::Describe { group });
            self.request(Request::DescribeConsumer { group });
            let ask = FetchOffsets { group, member: None, member_epoch: -1, topics: None };
            self.request(Request::Fetch(ask));
        }
    }

    fn described(&mut self) -> DescribedConsumer {
        self.waiters += 1;
        let mut replies = Vec::new();
        let request = Request::DescribeConsumer { group: "g" };
        let asked = self.runtime.request(now(self.now_ms), &World, Waiter(self.waiters), request, &mut replies);
        assert_eq!(asked, Ok(()));
        self.runtime.committed(LeaderEpoch(1), Offset(self.log_end), &mut replies);
        match replies.pop() {
            Some((_, Reply::DescribedConsumer(group))) => group,
            other => panic!("{other:?}"),
        }
    }

    /// What it wrote says what it was.
    fn reload(mut self) {
        let before = self.described();
        let mut last = BTreeMap::new();
        for (at, (key, _)) in self.log.iter().enumerate() {
            last.insert(key.clone(), at);
        }
        let mut again = Play::new();
        (again.now_ms, again.log_end) = (self.now_ms, self.log_end);
        for (at, (key, value)) in self.log.iter().enumerate() {
            if last[key] == at && value.is_some() {
                let loaded = again.runtime.load(now(self.now_ms), Offset(at as i64), key, value.as_deref());
                assert_eq!(loaded, Ok(()), "it wrote what it can't read");
            }
        }
        again.runtime.serve(now(self.now_ms), &World, Offset(self.log_end));
        let after = again.described();
        assert_eq!(after.error, before.error);
        if before.error == ErrorCode::None {
            assert_eq!(after, before, "a start changed a group");
        }
    }
}
