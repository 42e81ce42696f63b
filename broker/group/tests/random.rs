//! KIP-848 members that come, go, fall silent, lose answers and change what they read, over a coordinator that restarts now and
//! then: a partition never has two owners, a restart changes nothing that was said, and when the trouble ends everything is owned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringmain_coordinator::{Runtime, Waiter};
use ringmain_group::*;
use ringmain_types::*;
use ringmain_wire as wire;

const TOPICS: [&str; 3] = ["a", "b", "c"];
const SEEDS: u64 = 300;
const STEPS: usize = 300;
/// Rounds of heartbeats in peace after which everything must be in its place.
const PEACE: usize = 40;

struct World(BTreeMap<&'static str, u32>, i64);

fn id_of(name: &str) -> TopicId {
    TopicId(TOPICS.iter().position(|topic| *topic == name).unwrap() as u128 + 1)
}

impl Topics for World {
    fn by_name(&self, name: &str) -> Option<(TopicId, u32)> {
        self.0.get(name).map(|count| (id_of(name), *count))
    }
    fn by_id(&self, id: TopicId) -> Option<(Arc<str>, u32)> {
        let name = TOPICS.get((id.0 as usize).checked_sub(1)?)?;
        Some((Arc::from(*name), *self.0.get(name)?))
    }
    fn version(&self) -> i64 {
        self.1
    }
    fn names(&self) -> Box<dyn Iterator<Item = Arc<str>> + '_> {
        Box::new(self.0.keys().map(|name| Arc::from(*name)))
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

type Owned = BTreeSet<(TopicId, i32)>;

#[derive(Default)]
struct Member {
    id: String,
    instance: Option<String>,
    epoch: i32,
    owned: Owned,
    reads: BTreeSet<&'static str>,
    /// Something to say of what it owns, or reads.
    news: bool,
}

struct Play {
    random: Random,
    now_ms: u64,
    world: World,
    runtime: Runtime<GroupCoordinator>,
    epoch: i32,
    log: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    waiters: u64,
    members: Vec<Member>,
    born: u64,
    /// Who was told of each partition in each epoch: by instance where there is one, since another id may take its place.
    told: BTreeMap<(i32, (TopicId, i32)), String>,
}

fn now(ms: u64) -> Now {
    Now { mono: Instant(ms * 1_000_000), wall: WallMs(ms as i64) }
}

/// Targets come in parts of two, so that much happens between them.
fn config() -> GroupConfig {
    GroupConfig { limits: GroupLimits { targets_max: 2, ..GroupLimits::default() }, ..GroupConfig::default() }
}

fn loaded(world: &World, log: &[(Vec<u8>, Option<Vec<u8>>)], epoch: i32, at: u64) -> Runtime<GroupCoordinator> {
    let last: BTreeMap<&[u8], usize> = log.iter().enumerate().map(|(at, (key, _))| (&key[..], at)).collect();
    let mut runtime = Runtime::new(GroupCoordinator::new(Arc::new(config())), LeaderEpoch(epoch), Offset(0));
    for (offset, (key, value)) in log.iter().enumerate() {
        if last[&key[..]] == offset && value.is_some() {
            runtime.load(now(at), Offset(offset as i64), key, value.as_deref()).unwrap();
        }
    }
    runtime.serve(now(at), world, Offset(log.len() as i64));
    runtime
}

impl Play {
    fn new(seed: u64) -> Play {
        let mut random = Random(seed);
        let world = World(TOPICS.iter().map(|name| (*name, 1 + random.below(6) as u32)).collect(), 1);
        let runtime = loaded(&world, &[], 0, 0);
        Play {
            random,
            now_ms: 0,
            world,
            runtime,
            epoch: 0,
            log: vec![],
            waiters: 0,
            members: vec![],
            born: 0,
            told: BTreeMap::new(),
        }
    }

    fn ask(&mut self, request: Request<'_>) -> Reply {
        self.waiters += 1;
        let mut replies = Vec::new();
        let (now, waiter) = (now(self.now_ms), Waiter(self.waiters));
        self.runtime.request(now, &self.world, waiter, request, &mut replies).unwrap();
        self.commit(&mut replies);
        assert_eq!((replies.len(), replies[0].0), (1, waiter));
        replies.remove(0).1
    }

    fn commit(&mut self, replies: &mut Vec<(Waiter, Reply)>) {
        while let Some(append) = self.runtime.to_append(1 << 20) {
            assert!(self.runtime.appended(&append, append.base));
            self.log.extend(append.records);
        }
        self.runtime.committed(LeaderEpoch(self.epoch), Offset(self.log.len() as i64), replies);
    }

    fn describe(&mut self) -> DescribedConsumer {
        match self.ask(Request::DescribeConsumer { group: "g" }) {
            Reply::DescribedConsumer(group) => group,
            other => panic!("{other:?}"),
        }
    }

    fn wait(&mut self, ms: u64) {
        let until = self.now_ms + ms;
        while let Some(due) = self.runtime.deadline().map(|at| at.0.div_ceil(1_000_000)).filter(|due| *due <= until) {
            self.now_ms = self.now_ms.max(due);
            let mut replies = Vec::new();
            self.runtime.tick(now(self.now_ms), &self.world, &mut replies);
            self.commit(&mut replies);
        }
        self.now_ms = until;
    }

    fn restart(&mut self) {
        let before = self.describe();
        self.epoch += 1;
        self.runtime = loaded(&self.world, &self.log, self.epoch, self.now_ms);
        let after = self.describe();
        if before.error == ErrorCode::None {
            assert_eq!(after, before, "what was said stands");
        } else {
            assert_eq!(after.error, before.error);
        }
    }

    fn join(&mut self) {
        self.born += 1;
        let reads = TOPICS.into_iter().filter(|_| self.random.one_in(2)).chain(["a"]).collect();
        let instance = self.random.one_in(3).then(|| format!("i{}", self.born));
        self.members.push(Member { id: format!("m{}", self.born), instance, reads, ..Member::default() });
        self.beat(self.members.len() - 1, 0);
    }

    /// One heartbeat; its answer is lost one time in `lost`, if that is not 0.
    fn beat(&mut self, at: usize, lost: u64) {
        let member = &self.members[at];
        let joins = member.epoch == 0;
        let mut owned: BTreeMap<TopicId, Vec<PartitionIndex>> = BTreeMap::new();
        member.owned.iter().for_each(|(topic, index)| owned.entry(*topic).or_default().push(PartitionIndex(*index)));
        let topic = |(topic_id, partitions): (TopicId, Vec<PartitionIndex>)| {
            wire::consumer_group_heartbeat::TopicPartitions { topic_id, partitions: partitions.into() }
        };
        let says = joins || member.news || self.random.one_in(4);
        let (id, instance, reads) = (member.id.clone(), member.instance.clone(), member.reads.clone());
        let ask = wire::ConsumerGroupHeartbeatRequest {
            group_id: "g",
            member_id: &id,
            member_epoch: member.epoch,
            instance_id: instance.as_deref(),
            // Kafka's clients say everything again when an answer is missing, and are told everything.
            rebalance_timeout_ms: if says { 20_000 } else { -1 },
            subscribed_topic_names: says.then(|| reads.iter().copied().collect()),
            topic_partitions: says.then(|| owned.into_iter().map(topic).collect()),
            ..Default::default()
        };
        let client = Client { id: "c", host: "/h", version: 1, random: 0 };
        let Reply::ConsumerHeartbeat(reply) = self.ask(Request::ConsumerHeartbeat(&ask, client)) else { panic!() };
        let is_lost = lost > 0 && self.random.one_in(lost);
        let member = &mut self.members[at];
        if is_lost {
            // It says again what it said.
            member.news = true;
            return;
        }
        match reply {
            Ok(beat) => {
                member.epoch = beat.epoch;
                member.news = false;
                if let Some(assignment) = beat.assignment {
                    let has: Owned = assignment
                        .iter()
                        .flat_map(|(topic, partitions)| partitions.iter().map(|index| (*topic, *index)))
                        .collect();
                    for at in &has {
                        let who = instance.clone().unwrap_or_else(|| id.clone());
                        let owner = self.told.entry((beat.epoch, *at)).or_insert_with(|| who.clone());
                        assert_eq!(*owner, who, "owner of {at:?} in epoch {}", beat.epoch);
                    }
                    member.news = member.owned != has;
                    member.owned = has;
                }
            }
            Err((ErrorCode::FencedMemberEpoch | ErrorCode::UnknownMemberId | ErrorCode::GroupIdNotFound, _)) => {
                member.epoch = 0;
                member.owned.clear();
            }
            Err((ErrorCode::FencedInstanceId | ErrorCode::UnreleasedInstanceId, _)) => drop(self.members.remove(at)),
            Err(other) => panic!("{other:?}"),
        }
        self.check();
    }

    /// Nobody has what another has; those apart who were put out and do not know it yet: their epoch is fenced.
    fn check(&mut self) {
        let inside: BTreeSet<Arc<str>> = self.describe().members.into_iter().map(|member| member.id).collect();
        let mut owners = BTreeMap::new();
        for member in self.members.iter().filter(|member| inside.contains(&*member.id)) {
            for at in &member.owned {
                if let Some(other) = owners.insert(*at, &member.id) {
                    panic!("{at:?} is owned by {other} and by {}", member.id);
                }
            }
        }
    }

    fn leave(&mut self, at: usize) {
        let member = self.members.remove(at);
        // A static member may be back soon, under another id.
        let epoch = if member.instance.is_some() && self.random.one_in(2) { -2 } else { -1 };
        let ask = wire::ConsumerGroupHeartbeatRequest {
            group_id: "g",
            member_id: &member.id,
            member_epoch: epoch,
            instance_id: member.instance.as_deref(),
            ..Default::default()
        };
        let client = Client { id: "c", host: "/h", version: 1, random: 0 };
        self.ask(Request::ConsumerHeartbeat(&ask, client));
        if epoch == -2 && self.random.one_in(2) {
            self.born += 1;
            let id = format!("m{}", self.born);
            self.members.push(Member { id, epoch: 0, owned: Owned::new(), news: false, ..member });
            self.beat(self.members.len() - 1, 0);
        }
    }

    fn step(&mut self) {
        let some = self.members.len() as u64;
        match self.random.below(20) {
            0 if some < 6 => self.join(),
            1 if some > 0 => {
                let at = self.random.below(some) as usize;
                self.leave(at);
            }
            // Dies without a word: what it had it reads no more.
            2 if some > 0 => drop(self.members.remove(self.random.below(some) as usize)),
            3 if some > 0 => {
                let at = self.random.below(some) as usize;
                let reads = TOPICS.into_iter().filter(|_| self.random.one_in(2)).chain(["b"]).collect();
                (self.members[at].reads, self.members[at].news) = (reads, true);
            }
            4 => {
                let name = TOPICS[self.random.below(3) as usize];
                *self.world.0.get_mut(name).unwrap() += 1;
                self.world.1 += 1;
            }
            5 => self.restart(),
            6..10 => {
                let ms = [100, 1_500, 4_000, 16_000][self.random.below(4) as usize];
                self.wait(ms);
            }
            _ if some > 0 => {
                let at = self.random.below(some) as usize;
                self.beat(at, 5);
            }
            _ => self.join(),
        }
    }

    /// Everybody beats; the dead are put out; everything finds its owner.
    fn peace(&mut self) {
        if self.members.is_empty() {
            self.join();
        }
        for _ in 0..PEACE {
            self.wait(3_000);
            for at in (0..self.members.len()).rev() {
                self.beat(at, 0);
            }
        }
        let owned: Owned = self.members.iter().flat_map(|member| member.owned.iter().copied()).collect();
        let read: BTreeSet<&str> = self.members.iter().flat_map(|member| member.reads.iter().copied()).collect();
        let all: Owned =
            read.iter().flat_map(|name| (0..self.world.0[name] as i32).map(|index| (id_of(name), index))).collect();
        assert_eq!(owned, all, "everything that is read has an owner");
        assert_eq!(self.describe().state, "Stable");
        self.restart();
    }
}

#[test]
fn one_owner_at_a_time_and_none_forgotten() {
    for seed in 0..SEEDS {
        let result = std::panic::catch_unwind(|| {
            let mut play = Play::new(seed);
            (0..STEPS).for_each(|_| play.step());
            play.peace();
        });
        assert!(result.is_ok(), "seed {seed}");
    }
}
