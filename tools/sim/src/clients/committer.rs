//! Commits offsets of one partition for a group that nobody else uses, and asks for them: what was acknowledged stays until the next
//! one, through every crash, and nothing is made up.

use ringmain_types::{ErrorCode, LeaderEpoch, Offset, PartitionIndex};
use ringmain_wire::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use ringmain_wire::offset_fetch::{OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics};
use ringmain_wire::{
    FIND_COORDINATOR, FindCoordinatorRequest, FindCoordinatorResponse, OFFSET_COMMIT, OFFSET_FETCH,
    OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse,
};

use super::line::{Line, reply};
use super::{Client, Context};
use crate::groups::legal;
use crate::ledger::Ledger;
use crate::network::Link;

/// The topic that is there from the start.
const TOPIC: &str = "topic-0";
/// What was being done when a connection ended is done so long after that, or never: no core is paused, and no disk stalls or is full, for
/// longer. Of a client that left in peace what is asked behind it is done too, one after the other.
pub const LATE_NS: u64 = 2_000_000_000;
/// A large commit names so many partitions, all but one of which are not there, with so much metadata each: it may have to wait for its
/// turn, and a few of them take more memory than there is for answers.
const NAMES: (u64, u64) = (100, 400);
const METADATA_BYTES: usize = 24;
/// No topic has so many partitions.
const MISSING: i32 = 1000;
/// Large ones that may be sent at once; and something small behind them.
const LARGE_MAX: u64 = 3;
const COMMIT_VERSION: i16 = 9;
/// The oldest with one group, and the newest by name.
const FETCH_VERSIONS: [i16; 2] = [5, 9];

enum Asked {
    Find,
    Commit { offset: i64, at_ns: u64 },
    Fetch { version: i16 },
}

/// A commit without an answer.
struct Doubt {
    offset: i64,
    /// From then on it is done or never will be; not known while its connection lives.
    until_ns: u64,
}

pub struct Committer {
    group: String,
    line: Line<Asked>,
    left: u32,
    next_offset: i64,
    pause_ns: u64,
    idle_until_ns: u64,
    found: bool,
    /// What was acknowledged last; -1 before the first.
    acked: i64,
    doubts: Vec<Doubt>,
    /// Asked after all else was over.
    confirmed: bool,
    /// It may send large commits and, without waiting for them, something small.
    hastes: bool,
}

impl Committer {
    pub fn new(number: u32, times: u32, pause_ns: u64) -> Committer {
        Committer {
            group: format!("committer-{number}"),
            line: Line::default(),
            left: times,
            next_offset: 1,
            pause_ns,
            idle_until_ns: 0,
            found: false,
            acked: -1,
            doubts: Vec::new(),
            confirmed: false,
            hastes: false,
        }
    }

    pub fn hasty(self, hastes: bool) -> Committer {
        Committer { hastes, ..self }
    }

    fn find(&mut self, context: &mut Context<'_>) {
        let keys = vec![self.group.as_str()].into();
        let body = FindCoordinatorRequest { key_type: 0, coordinator_keys: keys, ..Default::default() };
        self.line.ask(context, &FIND_COORDINATOR, 4, &body, Asked::Find);
    }

    /// Names the partition, and others of which there are none.
    fn commit(&mut self, context: &mut Context<'_>, names: u64, metadata: &str) {
        let offset = self.next_offset;
        self.next_offset += 1;
        self.left = self.left.saturating_sub(1);
        let partitions = (0..names as i32).map(|at| OffsetCommitRequestPartition {
            partition_index: PartitionIndex(if at == 0 { 0 } else { MISSING + at }),
            committed_offset: Offset(offset),
            committed_leader_epoch: LeaderEpoch(-1),
            committed_metadata: Some(metadata),
        });
        let partitions: Vec<_> = partitions.collect();
        let topic = OffsetCommitRequestTopic { name: TOPIC, partitions: partitions.into(), ..Default::default() };
        let body = OffsetCommitRequest {
            group_id: &self.group,
            generation_id_or_member_epoch: -1,
            topics: vec![topic].into(),
            ..Default::default()
        };
        context.say(|| format!("{}: commit {offset}", self.group));
        self.line.ask(context, &OFFSET_COMMIT, COMMIT_VERSION, &body, Asked::Commit { offset, at_ns: context.now_ns });
    }

    fn fetch(&mut self, context: &mut Context<'_>) {
        let version = FETCH_VERSIONS[context.random.below(2) as usize];
        let whole = context.random.chance(0.3);
        let indexes = || vec![PartitionIndex(0)].into();
        let topics = vec![OffsetFetchRequestTopic { name: TOPIC, partition_indexes: indexes() }];
        let group = OffsetFetchRequestGroup {
            group_id: &self.group,
            topics: (!whole).then(|| {
                vec![OffsetFetchRequestTopics { name: TOPIC, partition_indexes: indexes(), ..Default::default() }]
                    .into()
            }),
            ..Default::default()
        };
        let body = OffsetFetchRequest {
            group_id: &self.group,
            topics: (!whole).then(|| topics.into()),
            groups: vec![group].into(),
            require_stable: false,
        };
        self.line.ask(context, &OFFSET_FETCH, version, &body, Asked::Fetch { version });
    }

    fn committed(&mut self, context: &mut Context<'_>, offset: i64, at_ns: u64, frame: &[u8]) {
        let Some(body) = reply::<OffsetCommitResponse<'_>>(context, &OFFSET_COMMIT, COMMIT_VERSION, frame) else {
            return;
        };
        let Some(code) = body.topics.iter().flat_map(|topic| topic.partitions.iter().collect::<Vec<_>>()).next() else {
            return context.fail("answers name what was asked", format!("{}: OffsetCommit", self.group));
        };
        context.say(|| format!("{}: commit {offset}: {:?}", self.group, code.error_code));
        match code.error_code {
            ErrorCode::None => {
                context.ledger.reach("groups: offsets committed");
                self.acked = offset;
                self.doubts.retain(|doubt| doubt.until_ns > at_ns);
            }
            // It may be written yet: an answer that waits is given up before its record.
            code if legal(context.ledger, code) => self.doubt(context, offset),
            code => context.fail("an offset can be committed", format!("{}: {code:?}", self.group)),
        }
    }

    fn doubt(&mut self, context: &Context<'_>, offset: i64) {
        let behind = self.doubts.iter().map(|doubt| doubt.until_ns).max().unwrap_or(0).max(context.now_ns);
        self.doubts.push(Doubt { offset, until_ns: behind + LATE_NS });
    }

    fn fetched(&mut self, context: &mut Context<'_>, version: i16, frame: &[u8]) {
        let Some(body) = reply::<OffsetFetchResponse<'_>>(context, &OFFSET_FETCH, version, frame) else { return };
        let group = body.groups.iter().next();
        let code = group.as_ref().map_or(body.error_code, |group| group.error_code);
        if code != ErrorCode::None {
            if !legal(context.ledger, code) {
                context.fail("committed offsets can be asked for", format!("{}: {code:?}", self.group));
            }
            return self.again(context);
        }
        let old = body.topics.iter().flat_map(|topic| topic.partitions.iter().collect::<Vec<_>>());
        let new = group.iter().flat_map(|group| group.topics.iter()).flat_map(|topic| {
            topic.partitions.iter().map(|partition| partition.committed_offset.0).collect::<Vec<_>>()
        });
        // A group without offsets names no topic.
        let got = old.map(|partition| partition.committed_offset.0).chain(new).next().unwrap_or(-1);
        context.say(|| format!("{}: has {got}", self.group));
        if got != self.acked && !self.doubts.iter().any(|doubt| doubt.offset == got) {
            let doubts: Vec<i64> = self.doubts.iter().map(|doubt| doubt.offset).collect();
            let text = format!("{}: {got}, acknowledged was {}, without an answer {doubts:?}", self.group, self.acked);
            return context.fail("an acknowledged commit stays", text);
        }
        context.ledger.reach("groups: offsets fetched");
        self.confirmed = context.calm && self.left == 0;
    }

    fn again(&mut self, context: &mut Context<'_>) {
        self.found = false;
        self.idle_until_ns = context.now_ns + 5_000_000;
    }
}

impl Client for Committer {
    fn poll(&mut self, context: &mut Context<'_>) {
        // There is no partition before the admin made it.
        if self.confirmed || context.ledger.by_name(TOPIC).is_none() {
            if !self.confirmed {
                context.wake_in(5_000_000);
            }
            return;
        }
        if context.now_ns < self.idle_until_ns {
            return context.wake_in(self.idle_until_ns - context.now_ns);
        }
        if !self.line.up(context) || self.line.pending() > 0 {
            return;
        }
        if !self.found {
            return self.find(context);
        }
        self.idle_until_ns = context.now_ns + context.random.below(self.pause_ns + 1);
        match context.calm {
            true => self.left = self.left.min(3),
            false if self.left == 0 => self.idle_until_ns += 20_000_000,
            false => {}
        }
        if self.left == 0 || context.random.chance(0.4) {
            return self.fetch(context);
        }
        if self.hastes && context.random.chance(0.5) {
            let metadata = "m".repeat(METADATA_BYTES);
            for _ in 0..context.random.between(1, LARGE_MAX) {
                context.ledger.reach("groups: large commits");
                let names = context.random.between(NAMES.0, NAMES.1);
                self.commit(context, names, &metadata);
            }
            if context.random.chance(0.5) {
                return self.fetch(context);
            }
        }
        self.commit(context, 1, "m");
    }

    fn received(&mut self, context: &mut Context<'_>, link: Link, bytes: &[u8]) {
        self.line.received(link, bytes);
        while let Some(answer) = self.line.next(context) {
            match answer.asked {
                Asked::Find => {
                    let found = reply::<FindCoordinatorResponse<'_>>(context, &FIND_COORDINATOR, 4, &answer.frame);
                    let code = found.and_then(|found| found.coordinators.iter().next().map(|one| one.error_code));
                    match code {
                        Some(ErrorCode::None) => self.found = true,
                        Some(code) if legal(context.ledger, code) => self.again(context),
                        code => context.fail("a coordinator can be found", format!("{}: {code:?}", self.group)),
                    }
                }
                Asked::Commit { offset, at_ns } => self.committed(context, offset, at_ns, &answer.frame),
                Asked::Fetch { version } => self.fetched(context, version, &answer.frame),
            }
        }
    }

    fn closed(&mut self, context: &mut Context<'_>, link: Link) {
        for asked in self.line.closed(context, link).unwrap_or_default() {
            if let Asked::Commit { offset, .. } = asked {
                self.doubt(context, offset);
            }
        }
        self.found &= context.random.chance(0.5);
    }

    fn finished(&self, _ledger: &Ledger) -> bool {
        self.confirmed
    }

    fn describe(&self) -> String {
        format!("{}: {} commits left, {} in flight", self.group, self.left, self.line.pending())
    }
}
