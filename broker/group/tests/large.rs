//! A group of a thousand: what one turn has to do for it is bounded, counted in records and not in time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringmain_coordinator::{Runtime, Waiter};
use ringmain_group::*;
use ringmain_types::*;
use ringmain_wire as wire;
use ringmain_wire::consumer_group_heartbeat::TopicPartitions;

const TOPIC: TopicId = TopicId(7);
const MEMBERS: usize = 1000;
/// Besides targets: a join is five records, and an epoch one.
const OTHERS_MAX: usize = 8;

struct World;

impl Topics for World {
    fn by_name(&self, name: &str) -> Option<(TopicId, u32)> {
        (name == "t").then_some((TOPIC, MEMBERS as u32))
    }
    fn by_id(&self, id: TopicId) -> Option<(Arc<str>, u32)> {
        (id == TOPIC).then(|| ("t".into(), MEMBERS as u32))
    }
    fn version(&self) -> i64 {
        1
    }
    fn names(&self) -> Box<dyn Iterator<Item = Arc<str>> + '_> {
        Box::new(std::iter::once("t".into()))
    }
}

#[derive(Default)]
struct Member {
    epoch: i32,
    owns: Vec<i32>,
    says: bool,
}

struct Play {
    runtime: Runtime<GroupCoordinator>,
    members: BTreeMap<String, Member>,
    now_ms: u64,
    end: i64,
    /// Records of the largest decision.
    most: usize,
    /// Who was told of each partition in each epoch.
    told: BTreeMap<(i32, i32), String>,
}

impl Play {
    fn new(config: &GroupConfig) -> Play {
        let mut runtime = Runtime::new(GroupCoordinator::new(Arc::new(config.clone())), LeaderEpoch(0), Offset(0));
        let now = Now { mono: Instant(1), wall: WallMs(1) };
        runtime.serve(now, &World, Offset(0));
        Play { runtime, members: BTreeMap::new(), now_ms: 1000, end: 0, most: 0, told: BTreeMap::new() }
    }

    /// Time goes on by a millisecond a turn.
    fn now(&mut self) -> Now {
        self.now_ms += 1;
        Now { mono: Instant(self.now_ms * 1_000_000), wall: WallMs(self.now_ms as i64) }
    }

    fn append(&mut self) -> Vec<(Waiter, Reply)> {
        let mut replies = Vec::new();
        // One decision at a time.
        while let Some(append) = self.runtime.to_append(1) {
            self.most = self.most.max(append.records.len());
            self.end += append.records.len() as i64;
            assert!(self.runtime.appended(&append, append.base));
        }
        self.runtime.committed(LeaderEpoch(0), Offset(self.end), &mut replies);
        replies
    }

    fn tick(&mut self) {
        let now = self.now();
        self.runtime.tick(now, &World, &mut Vec::new());
        assert!(self.runtime.deadline().is_none_or(|due| due > now.mono), "a turn's end is no loop");
        self.append();
    }

    fn beat(&mut self, id: &str, epoch: Option<i32>) {
        let now = self.now();
        let member = self.members.entry(id.to_owned()).or_default();
        let joins = member.epoch == 0;
        let says = std::mem::take(&mut member.says) || joins;
        let owned = TopicPartitions {
            topic_id: TOPIC,
            partitions: member.owns.iter().map(|index| PartitionIndex(*index)).collect::<Vec<_>>().into(),
        };
        let owned = if member.owns.is_empty() { Vec::new() } else { vec![owned] };
        let request = wire::ConsumerGroupHeartbeatRequest {
            group_id: "g",
            member_id: id,
            member_epoch: epoch.unwrap_or(member.epoch),
            rebalance_timeout_ms: if joins { 60_000 } else { -1 },
            subscribed_topic_names: joins.then(|| vec!["t"].into()),
            topic_partitions: says.then(|| owned.into()),
            ..Default::default()
        };
        let client = Client { id: "c", host: "/h", version: 1, random: 1 };
        let mut replies = Vec::new();
        let ask = Request::ConsumerHeartbeat(&request, client);
        self.runtime.request(now, &World, Waiter(1), ask, &mut replies).unwrap();
        replies.extend(self.append());
        let Some((_, Reply::ConsumerHeartbeat(Ok(told)))) = replies.pop() else { panic!("{id} was refused") };
        if epoch.is_some_and(|epoch| epoch < 0) {
            self.members.remove(id);
            return;
        }
        let member = self.members.get_mut(id).unwrap();
        member.epoch = told.epoch;
        if let Some(assignment) = told.assignment {
            member.owns = assignment.into_iter().flat_map(|(_, partitions)| partitions).collect();
            member.says = true;
            for index in &member.owns {
                let owner = self.told.entry((told.epoch, *index)).or_insert_with(|| id.to_owned());
                assert_eq!(owner, id, "owner of {index} in epoch {}", told.epoch);
            }
        }
    }

    /// Rounds of heartbeats, and of ticks, until every partition is owned, evenly, and everybody knows it.
    fn settle(&mut self) {
        for _ in 0..40 {
            self.now_ms += 1000;
            let ids: Vec<String> = self.members.keys().cloned().collect();
            for id in ids {
                self.beat(&id, None);
            }
            (0..2 * MEMBERS / 100).for_each(|_| self.tick());
            let owned: BTreeSet<i32> = self.members.values().flat_map(|member| member.owns.clone()).collect();
            let count: usize = self.members.values().map(|member| member.owns.len()).sum();
            let epochs: BTreeSet<i32> = self.members.values().map(|member| member.epoch).collect();
            assert_eq!(count, owned.len(), "two owners");
            let even = self.members.values().all(|member| member.owns.len().abs_diff(count / self.members.len()) <= 1);
            if owned.len() == MEMBERS && epochs.len() == 1 && even {
                return;
            }
        }
        panic!(
            "not everything is owned: {:?}",
            self.members.values().map(|m| (m.epoch, m.owns.len())).take(9).collect::<Vec<_>>()
        );
    }
}

fn id(number: usize) -> String {
    format!("{:x}-{number:04}", (number * 7919) % 4096)
}

#[test]
fn a_turn_writes_a_part_of_a_large_target() {
    let config = GroupConfig::default();
    let most = config.limits.targets_max as usize + OTHERS_MAX;
    assert!(most < MEMBERS / 4, "this shows nothing");
    let mut play = Play::new(&config);
    (0..MEMBERS).for_each(|number| play.beat(&id(number), None));
    play.settle();
    assert!(play.members.values().all(|member| member.owns.len() == 1));
    // Half of them leave while what the last leaver changed is still being written, and some come.
    for number in 0..MEMBERS / 2 {
        play.beat(&id(number), Some(-1));
        if number % 100 == 0 {
            play.now_ms += 1000;
            play.beat(&id(MEMBERS + number), None);
        }
    }
    play.settle();
    let loads: BTreeSet<usize> = play.members.values().map(|member| member.owns.len()).collect();
    assert!(loads.iter().all(|load| (1..=2).contains(load)), "{loads:?}");
    assert!(play.most <= most, "{} records in one turn", play.most);
}

/// One target at a time, and changes at every step.
#[test]
fn everything_is_owned_however_small_the_parts() {
    let config =
        GroupConfig { limits: GroupLimits { targets_max: 3, ..GroupLimits::default() }, ..GroupConfig::default() };
    let mut play = Play::new(&config);
    for number in 0..60 {
        play.beat(&id(number), None);
        play.tick();
        if number % 3 == 2 {
            play.beat(&id(number - 1), Some(-1));
        }
    }
    (0..40).for_each(|_| play.tick());
    play.settle();
    assert!(play.most <= 3 + OTHERS_MAX, "{} records in one turn", play.most);
}
