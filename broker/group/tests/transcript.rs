//! Runs the scripts in `tests/data/*.txt`: a line is what was asked, the indented lines below it are what came of it. With
//! `BLESS=1` the outcomes are written anew, to be read before they are committed.
//!
//! Everything passes through the runtime, and every record through Kafka's bytes. `restart` replays what a compacted log holds.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // it reads its scripts

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use ringmain_coordinator::{Machine, Runtime, Waiter};
use ringmain_group::*;
use ringmain_types::*;
use ringmain_wire as wire;

/// Name, id and partitions of each topic.
#[derive(Default)]
struct World {
    topics: BTreeMap<Arc<str>, (TopicId, u32)>,
    version: i64,
    overrides: BTreeMap<String, GroupOverrides>,
}

impl Topics for World {
    fn by_name(&self, name: &str) -> Option<(TopicId, u32)> {
        self.topics.get(name).copied()
    }
    fn by_id(&self, id: TopicId) -> Option<(Arc<str>, u32)> {
        self.topics.iter().find(|(_, (found, _))| *found == id).map(|(name, (_, count))| (name.clone(), *count))
    }
    fn version(&self) -> i64 {
        self.version
    }
    fn names(&self) -> Box<dyn Iterator<Item = Arc<str>> + '_> {
        Box::new(self.topics.keys().cloned())
    }
    fn overrides(&self, group: &str) -> Option<GroupOverrides> {
        self.overrides.get(group).copied()
    }
}

type Log = Vec<(Vec<u8>, Option<Vec<u8>>)>;

struct Script {
    config: GroupConfig,
    runtime: Runtime<GroupCoordinator>,
    epoch: i32,
    log: Log,
    world: World,
    now_ms: u64,
    waiters: u64,
    names: BTreeMap<u64, String>,
    /// Ids that were handed out, and the short names they have here.
    ids: BTreeMap<String, String>,
    random: u128,
}

/// A line's words: positional ones, then `key=value`.
struct Words<'a> {
    plain: Vec<&'a str>,
    named: BTreeMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    fn of(line: &'a str) -> Words<'a> {
        let mut words = Words { plain: Vec::new(), named: BTreeMap::new() };
        for word in line.split_whitespace() {
            match word.split_once('=') {
                Some((key, value)) => drop(words.named.insert(key, value)),
                None => words.plain.push(word),
            }
        }
        words
    }
    fn int<T: std::str::FromStr>(&self, key: &str, default: T) -> T {
        self.named.get(key).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{key}={text}")))
    }
    fn text(&self, key: &str) -> Option<&'a str> {
        self.named.get(key).copied()
    }
    fn list(&self, key: &str) -> Vec<&'a str> {
        self.text(key).into_iter().flat_map(|text| text.split(',')).filter(|word| !word.is_empty()).collect()
    }
}

impl Script {
    fn new() -> Script {
        let config = GroupConfig::default();
        let runtime = Script::runtime(&config, LeaderEpoch(0), &Log::new(), (&World::default(), 0));
        Script {
            config,
            runtime,
            epoch: 0,
            log: Log::new(),
            world: World::default(),
            now_ms: 0,
            waiters: 0,
            names: BTreeMap::new(),
            ids: BTreeMap::new(),
            random: 0,
        }
    }

    fn now(&self) -> Now {
        now(self.now_ms)
    }

    /// A coordinator that loaded what compaction leaves of this log.
    fn runtime(config: &GroupConfig, epoch: LeaderEpoch, log: &Log, at: (&World, u64)) -> Runtime<GroupCoordinator> {
        let (world, now_ms) = at;
        let last: BTreeMap<&[u8], usize> = log.iter().enumerate().map(|(at, (key, _))| (&key[..], at)).collect();
        let mut runtime = Runtime::new(GroupCoordinator::new(Arc::new(config.clone())), epoch, Offset(0));
        for (at, (key, value)) in log.iter().enumerate() {
            // Tombstones are gone too.
            if last[&key[..]] == at && value.is_some() {
                runtime.load(now(now_ms), Offset(at as i64), key, value.as_deref()).unwrap();
            }
        }
        runtime.serve(now(now_ms), world, Offset(log.len() as i64));
        runtime
    }

    /// The real id behind a short name; any other text is itself.
    fn id(&self, name: &str) -> String {
        let found = self.ids.iter().find(|(_, short)| *short == name).map(|(id, _)| id.clone());
        found.unwrap_or_else(|| if name == "-" { String::new() } else { name.to_owned() })
    }

    fn short(&mut self, id: &str) -> String {
        if id.is_empty() {
            return "-".into();
        }
        if let Some(short) = self.ids.get(id) {
            return short.clone();
        }
        // `prefix-uuid`, or a uuid alone.
        let prefix = match id.len() {
            37.. => id[..id.len() - 37].to_owned(),
            36 => "u".to_owned(),
            _ => return id.to_owned(),
        };
        let nth = self.ids.values().filter(|short| short.trim_end_matches(char::is_numeric) == prefix).count() + 1;
        let short = format!("{prefix}{nth}");
        self.ids.insert(id.to_owned(), short.clone());
        short
    }

    fn run(&mut self, line: &str) -> Vec<String> {
        let words = Words::of(line);
        let mut out = Vec::new();
        match words.plain[0] {
            "config" => self.configure(&words),
            "topic" => {
                let count = words.plain[2].parse().unwrap();
                self.world.version += 1;
                let id = TopicId(0x1000 + self.world.version as u128);
                let entry = self.world.topics.entry(words.plain[1].into()).or_insert((id, count));
                entry.1 = count;
            }
            "untopic" => {
                self.world.version += 1;
                self.world.topics.remove(words.plain[1]);
            }
            "settings" => {
                let number = |key| words.int(key, 0);
                let own = GroupOverrides {
                    session_timeout_ms: number("session"),
                    heartbeat_interval_ms: number("heartbeat"),
                    assignment_interval_ms: number("interval"),
                };
                self.world.overrides.insert(words.plain[1].into(), own);
            }
            "wait" => {
                let until = self.now_ms + words.plain[1].parse::<u64>().unwrap();
                self.wait(until, &mut out);
            }
            "restart" => {
                self.epoch += 1;
                self.names.clear();
                self.runtime =
                    Script::runtime(&self.config, LeaderEpoch(self.epoch), &self.log, (&self.world, self.now_ms));
            }
            "log" => {
                for (key, value) in self.log.clone().iter().skip(words.int("from", 0)) {
                    let record = GroupCoordinator::decode(key, value.as_deref()).unwrap().unwrap();
                    out.push(self.show_record(&record));
                }
            }
            verb => self.ask(verb, &words, &mut out),
        }
        out
    }

    fn configure(&mut self, words: &Words) {
        let config = &mut self.config;
        config.initial_rebalance_delay_ms = words.int("delay", config.initial_rebalance_delay_ms);
        config.max_size = words.int("size", config.max_size);
        config.offset_metadata_max_bytes = words.int("metadata", config.offset_metadata_max_bytes);
        config.offsets_retention_ms = words.int("retention", config.offsets_retention_ms);
        config.consumer_max_size = words.int("consumers", config.consumer_max_size);
        config.consumer_assignment_interval_ms = words.int("interval", config.consumer_assignment_interval_ms);
        config.limits.groups_max = words.int("groups", config.limits.groups_max);
        config.limits.members_max = words.int("members", config.limits.members_max);
        config.limits.offsets_max = words.int("offsets", config.limits.offsets_max);
        config.limits.member_bytes_max = words.int("bytes", config.limits.member_bytes_max);
        self.runtime = Script::runtime(config, LeaderEpoch(self.epoch), &self.log, (&self.world, self.now_ms));
    }

    /// Everything that falls due, each at its time.
    fn wait(&mut self, until: u64, out: &mut Vec<String>) {
        for _ in 0..10_000 {
            let due = self.runtime.deadline().map(|at| at.0.div_ceil(1_000_000)).filter(|due| *due <= until);
            let Some(due) = due else { break };
            self.now_ms = self.now_ms.max(due);
            let mut replies = Vec::new();
            self.runtime.tick(self.now(), &self.world, &mut replies);
            let at = self.now_ms;
            self.commit(replies, out, Some(at));
        }
        self.now_ms = until;
    }

    /// Appends and commits what was decided, and shows who was answered.
    fn commit(&mut self, mut replies: Vec<(Waiter, Reply)>, out: &mut Vec<String>, at: Option<u64>) {
        while let Some(append) = self.runtime.to_append(1 << 20) {
            assert_eq!(append.base, Offset(self.log.len() as i64));
            assert!(self.runtime.appended(&append, append.base));
            self.log.extend(append.records);
        }
        self.runtime.committed(LeaderEpoch(self.epoch), Offset(self.log.len() as i64), &mut replies);
        for (waiter, reply) in replies {
            let name = self.names.remove(&waiter.0).expect("nobody is answered twice");
            let text = self.show(&reply);
            match at {
                Some(at) => out.push(format!("at {at} {name}: {text}")),
                None => out.push(format!("{name}: {text}")),
            }
        }
    }

    fn ask(&mut self, verb: &str, words: &Words, out: &mut Vec<String>) {
        self.waiters += 1;
        self.random += 1;
        let waiter = Waiter(self.waiters);
        let name = words.text("as").map_or_else(|| verb.to_owned(), str::to_owned);
        self.names.insert(self.waiters, name);
        let member = self.id(words.text("m").unwrap_or("-"));
        let (group, instance) = (words.plain.get(1).copied().unwrap_or("-"), words.text("i"));
        let group = if group == "-" { "" } else { group };
        let client = Client {
            id: words.text("c").unwrap_or("c"),
            host: "/h",
            version: words.int("v", if verb == "beat" { 1 } else { 9 }),
            random: self.random,
        };
        let mut replies = Vec::new();
        let now = self.now();
        let world = std::mem::take(&mut self.world);
        macro_rules! decide {
            ($request:expr) => {
                self.runtime.request(now, &world, waiter, $request, &mut replies).unwrap()
            };
        }
        match verb {
            "join" => {
                let known: Vec<(&str, Vec<u8>)> = words
                    .list("p")
                    .into_iter()
                    .map(|p| p.split_once(':').unwrap_or((p, "")))
                    .map(|(name, metadata)| (name, subscription(metadata)))
                    .collect();
                let protocols =
                    known.iter().map(|(name, metadata)| wire::join_group::JoinGroupRequestProtocol { name, metadata });
                let ask = wire::JoinGroupRequest {
                    group_id: group,
                    session_timeout_ms: words.int("session", 10_000),
                    rebalance_timeout_ms: words.int("rebalance", 60_000),
                    member_id: &member,
                    group_instance_id: instance,
                    protocol_type: words.text("type").unwrap_or("consumer"),
                    protocols: protocols.collect(),
                    reason: None,
                };
                decide!(Request::Join(&ask, client));
            }
            "sync" => {
                let given: Vec<(String, Vec<u8>)> = words
                    .list("give")
                    .into_iter()
                    .map(|word| word.split_once(':').unwrap())
                    .map(|(id, given)| (self.id(id), assignment(given)))
                    .collect();
                let ask = wire::SyncGroupRequest {
                    group_id: group,
                    generation_id: words.int("g", 0),
                    member_id: &member,
                    group_instance_id: instance,
                    protocol_type: words.text("type"),
                    protocol_name: words.text("p"),
                    assignments: given
                        .iter()
                        .map(|(id, assignment)| wire::sync_group::SyncGroupRequestAssignment {
                            member_id: id,
                            assignment,
                        })
                        .collect(),
                };
                decide!(Request::Sync(&ask));
            }
            "hb" => {
                let ask = wire::HeartbeatRequest {
                    group_id: group,
                    generation_id: words.int("g", 0),
                    member_id: &member,
                    group_instance_id: instance,
                };
                decide!(Request::Heartbeat(&ask));
            }
            "leave" => {
                let ids: Vec<(String, Option<&str>)> = match words.list("m")[..] {
                    [] => vec![(String::new(), instance)],
                    ref ids => ids.iter().map(|id| (self.id(id), instance)).collect(),
                };
                let ask = wire::LeaveGroupRequest {
                    group_id: group,
                    member_id: &member,
                    members: ids
                        .iter()
                        .map(|(id, instance)| wire::leave_group::MemberIdentity {
                            member_id: id,
                            group_instance_id: *instance,
                            reason: None,
                        })
                        .collect(),
                };
                decide!(Request::Leave(&ask, client));
            }
            "commit" => {
                let offsets = words.list("o").into_iter().map(|word| {
                    let parts: Vec<&str> = word.split(':').collect();
                    CommitOffset {
                        topic: parts[0],
                        id: world.by_name(parts[0]).map_or(TopicId::NONE, |(id, _)| id),
                        partition: PartitionIndex(parts[1].parse().unwrap()),
                        offset: Offset(parts[2].parse().unwrap()),
                        leader_epoch: LeaderEpoch(words.int("epoch", -1)),
                        metadata: parts.get(3).copied().unwrap_or(""),
                    }
                });
                decide!(Request::Commit(CommitOffsets {
                    group,
                    member: &member,
                    instance,
                    generation_or_epoch: words.int("g", -1),
                    retention_ms: words.int("retention", -1),
                    offsets: offsets.collect(),
                }));
            }
            "fetch" => {
                let topics = words.text("o").map(|_| {
                    let parts = words.list("o").into_iter().map(|word| word.split_once(':').unwrap());
                    let topic = |(topic, index): (&'static str, &str)| {
                        let id = world.by_name(topic).map_or(TopicId::NONE, |(id, _)| id);
                        FetchTopic { name: topic, id, partitions: vec![PartitionIndex(index.parse().unwrap())].into() }
                    };
                    parts.map(|(name, index)| topic((Box::leak(name.to_owned().into_boxed_str()), index))).collect()
                });
                let member = words.text("m").map(|_| &member[..]);
                decide!(Request::Fetch(FetchOffsets { group, member, member_epoch: words.int("e", -1), topics }));
            }
            "unoffset" => {
                let topics = words.list("o").into_iter().map(|word| {
                    let (topic, index) = word.split_once(':').unwrap();
                    (topic, vec![PartitionIndex(index.parse().unwrap())])
                });
                decide!(Request::DeleteOffsets { group, topics: topics.collect() });
            }
            "delete" => decide!(Request::DeleteGroup { group }),
            "describe" => decide!(Request::Describe { group }),
            "consumers" => decide!(Request::DescribeConsumer { group }),
            "list" => decide!(Request::List { states: words.list("states"), types: words.list("types") }),
            "beat" => {
                let names = words.text("read").map(|_| words.list("read").into_iter().collect());
                let owned = words.text("own").map(|_| {
                    let mut topics: BTreeMap<TopicId, Vec<PartitionIndex>> = BTreeMap::new();
                    for word in words.list("own") {
                        let (topic, index) = word.split_once(':').unwrap();
                        let id = world.by_name(topic).unwrap().0;
                        topics.entry(id).or_default().push(PartitionIndex(index.parse().unwrap()));
                    }
                    let topic = |(topic_id, partitions): (TopicId, Vec<PartitionIndex>)| {
                        wire::consumer_group_heartbeat::TopicPartitions { topic_id, partitions: partitions.into() }
                    };
                    topics.into_iter().map(topic).collect()
                });
                let ask = wire::ConsumerGroupHeartbeatRequest {
                    group_id: group,
                    member_id: &member,
                    member_epoch: words.int("e", 0),
                    instance_id: instance,
                    rack_id: words.text("rack"),
                    rebalance_timeout_ms: words.int("rebalance", -1),
                    subscribed_topic_names: names,
                    subscribed_topic_regex: words.text("regex"),
                    server_assignor: words.text("assignor"),
                    topic_partitions: owned,
                };
                decide!(Request::ConsumerHeartbeat(&ask, client));
            }
            other => panic!("unknown command {other}"),
        }
        self.world = world;
        self.commit(replies, out, None);
    }

    fn show(&mut self, reply: &Reply) -> String {
        let mut text = String::new();
        match reply {
            Reply::Code(code) => write!(text, "{}", code.code()).unwrap(),
            Reply::Join(Err((code, member))) => write!(text, "{} {}", code.code(), self.short(member)).unwrap(),
            Reply::Join(Ok(joined)) => {
                let (member, leader) = (self.short(&joined.member), self.short(&joined.leader));
                write!(text, "{member} in generation {} by {}, led by {leader}", joined.generation, joined.protocol)
                    .unwrap();
                for JoinedMember { id, instance, metadata } in &joined.members {
                    let id = self.short(id);
                    write!(text, "; {id}").unwrap();
                    if let Some(instance) = instance {
                        write!(text, "/{instance}").unwrap();
                    }
                    write!(text, " {}", subscription_text(metadata)).unwrap();
                }
                if joined.skip_assignment {
                    text.push_str("; skips the assignment");
                }
            }
            Reply::Sync(Err(code)) => write!(text, "{}", code.code()).unwrap(),
            Reply::Sync(Ok((kind, protocol, assignment))) => {
                write!(text, "{kind} {protocol} {}", assignment_text(assignment)).unwrap();
            }
            Reply::Left(members) => {
                for member in members {
                    let id = self.short(&member.member);
                    write!(text, "{id} {} ", member.error.code()).unwrap();
                }
            }
            Reply::Committed(result) => match result {
                Ok(codes) => codes.iter().for_each(|code| write!(text, "{} ", code.code()).unwrap()),
                Err(code) => write!(text, "all {}", code.code()).unwrap(),
            },
            Reply::Fetched(Err(code)) => write!(text, "{}", code.code()).unwrap(),
            Reply::Fetched(Ok(topics)) => {
                for topic in topics {
                    for partition in &topic.partitions {
                        write!(text, "{}-{} ", topic.topic, partition.partition.0).unwrap();
                        match &partition.committed {
                            None => text.push_str("none "),
                            Some(found) => {
                                write!(text, "{} epoch {} `{}` ", found.offset.0, found.leader_epoch.0, found.metadata)
                                    .unwrap()
                            }
                        }
                    }
                }
                text.push_str("end");
            }
            Reply::DeletedOffsets(Err(code)) => write!(text, "{}", code.code()).unwrap(),
            Reply::DeletedOffsets(Ok(codes)) => {
                codes.iter().flatten().for_each(|code| write!(text, "{} ", code.code()).unwrap());
            }
            Reply::Described(group) => self.show_described(group, &mut text),
            Reply::DescribedConsumer(group) => self.show_consumer(group, &mut text),
            Reply::Listed(groups) => {
                for group in groups {
                    write!(text, "{} {} `{}` {}; ", group.group, group.kind, group.protocol_type, group.state).unwrap();
                }
            }
            Reply::ConsumerHeartbeat(Err((code, words))) => write!(text, "{} {words}", code.code()).unwrap(),
            Reply::ConsumerHeartbeat(Ok(beat)) => {
                write!(text, "{} at epoch {}", self.short(&beat.member), beat.epoch).unwrap();
                if let Some(assignment) = &beat.assignment {
                    text.push_str(", has");
                    for (topic, partitions) in assignment {
                        let name = self.world.by_id(*topic).map_or_else(|| "?".into(), |(name, _)| name);
                        write!(text, " {name}{partitions:?}").unwrap();
                    }
                }
            }
        }
        // Ids in words too.
        for (id, short) in &self.ids {
            text = text.replace(id, short);
        }
        text.trim_end().to_owned()
    }

    fn show_record(&mut self, record: &Record) -> String {
        let mut text = match record {
            Record::Offset { group, topic, partition, value: None } => format!("{group} {topic}-{} gone", partition.0),
            Record::Offset { group, topic, partition, value: Some(offset) } => format!(
                "{group} {topic}-{} at {} epoch {} `{}` of topic {:x}",
                partition.0, offset.offset.0, offset.leader_epoch.0, offset.metadata, offset.topic.0
            ),
            Record::Classic { group, value: None } => format!("{group} no classic group"),
            Record::Classic { group, value: Some(value) } => {
                let protocol = value.protocol.as_deref().unwrap_or("-");
                let leader = value.leader.clone().map_or("-".into(), |leader| self.short(&leader));
                let mut text = format!("{group} generation {} by {protocol}, led by {leader}", value.generation);
                for member in &value.members {
                    let (subscription, assignment) =
                        (subscription_text(&member.subscription), assignment_text(&member.assignment));
                    write!(text, "; {} `{subscription}` `{assignment}`", self.short(&member.id)).unwrap();
                }
                text
            }
            Record::GroupEpoch { group, value } => {
                format!("{group} epoch {}", value.map_or("gone".into(), |(epoch, _)| epoch.to_string()))
            }
            Record::TargetEpoch { group, value } => {
                format!("{group} target epoch {}", value.map_or("gone".into(), |(epoch, _)| epoch.to_string()))
            }
            Record::Member { group, member, value } => match value {
                None => format!("{group} member {member} gone"),
                Some(meta) => format!("{group} member {member} reads {:?} {:?}", meta.topics, meta.regex),
            },
            Record::Target { group, member, value } => format!("{group} target of {member} {value:?}"),
            Record::Current { group, member, value } => match value {
                None => format!("{group} {member} has nothing"),
                Some(current) => format!(
                    "{group} {member} {:?} at {} after {}, has {:?}, gives {:?}",
                    current.state, current.epoch, current.previous_epoch, current.assigned, current.pending_revocation
                ),
            },
            Record::Regex { group, regex, value } => {
                format!("{group} `{regex}` is {:?}", value.as_ref().map(|value| &value.topics))
            }
        };
        for (id, short) in &self.ids {
            text = text.replace(id, short);
        }
        text
    }

    fn show_described(&mut self, group: &Described, text: &mut String) {
        if group.error != ErrorCode::None {
            write!(text, "{} ", group.error.code()).unwrap();
        }
        write!(text, "{} `{}` `{}`", group.state, group.protocol_type, group.protocol).unwrap();
        for member in &group.members {
            let (metadata, assignment) = (subscription_text(&member.metadata), assignment_text(&member.assignment));
            write!(text, "; {} `{metadata}` `{assignment}`", self.short(&member.id)).unwrap();
        }
    }

    fn show_consumer(&mut self, group: &DescribedConsumer, text: &mut String) {
        if group.error != ErrorCode::None {
            write!(text, "{} {}", group.error.code(), group.message.as_deref().unwrap_or("")).unwrap();
            return;
        }
        write!(text, "{} epoch {} assigned {} {}", group.state, group.epoch, group.assignment_epoch, group.assignor)
            .unwrap();
        for member in &group.members {
            write!(text, "; {} at {}", self.short(&member.id), member.epoch).unwrap();
            for (word, of) in [("has", &member.assigned), ("gets", &member.target)] {
                write!(text, " {word}").unwrap();
                of.iter().for_each(|(_, name, partitions)| write!(text, " {name}{partitions:?}").unwrap());
            }
        }
    }
}

/// `@t+u/t.0+u.1` is a subscription to t and u of who owns t-0 and u-1; all else stands for itself.
fn subscription(text: &str) -> Vec<u8> {
    use wire::consumer_protocol_subscription::TopicPartition;
    let Some(text) = text.strip_prefix('@') else { return text.as_bytes().to_vec() };
    let (topics, owned) = text.split_once('/').unwrap_or((text, ""));
    let owned = partitions(owned);
    let owned = owned.iter().map(|(topic, partitions)| TopicPartition { topic, partitions: partitions.clone().into() });
    let body = wire::ConsumerProtocolSubscription {
        topics: topics.split('+').collect(),
        owned_partitions: owned.collect(),
        ..Default::default()
    };
    wire::encode_value(1, &body)
}

/// `@t.0+u.1` is an assignment.
fn assignment(text: &str) -> Vec<u8> {
    use wire::consumer_protocol_assignment::TopicPartition;
    let Some(text) = text.strip_prefix('@') else { return text.as_bytes().to_vec() };
    let given = partitions(text);
    let given = given.iter().map(|(topic, partitions)| TopicPartition { topic, partitions: partitions.clone().into() });
    wire::encode_value(1, &wire::ConsumerProtocolAssignment { assigned_partitions: given.collect(), user_data: None })
}

fn partitions(text: &str) -> BTreeMap<&str, Vec<PartitionIndex>> {
    let mut topics: BTreeMap<&str, Vec<PartitionIndex>> = BTreeMap::new();
    for word in text.split('+').filter(|word| !word.is_empty()) {
        let (topic, index) = word.split_once('.').unwrap();
        topics.entry(topic).or_default().push(PartitionIndex(index.parse().unwrap()));
    }
    topics
}

fn subscription_text(bytes: &[u8]) -> String {
    match wire::decode_embedded::<wire::ConsumerProtocolSubscription>(bytes) {
        Ok(body) => format!("@{}", body.topics.iter().collect::<Vec<_>>().join("+")),
        Err(_) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

fn assignment_text(bytes: &[u8]) -> String {
    let Ok(body) = wire::decode_embedded::<wire::ConsumerProtocolAssignment>(bytes) else {
        return String::from_utf8_lossy(bytes).into_owned();
    };
    let topics = body.assigned_partitions.iter().map(|topic| {
        let indexes: Vec<i32> = topic.partitions.iter().map(|index| index.0).collect();
        format!("{}{indexes:?}", topic.topic)
    });
    format!("@{}", topics.collect::<Vec<_>>().join("+"))
}

fn now(ms: u64) -> Now {
    Now { mono: Instant(ms * 1_000_000), wall: WallMs(1_000_000 + ms as i64) }
}

fn run(name: &str) {
    let path = format!("{}/tests/data/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let mut script = Script::new();
    let (mut came, mut steps) = (String::new(), 0);
    for line in text.lines() {
        if line.starts_with("    ") {
            continue;
        }
        came.push_str(line);
        came.push('\n');
        if line.is_empty() || line.starts_with('#') {
            // Each part begins anew.
            if line.starts_with("## ") {
                script = Script::new();
            }
            continue;
        }
        steps += 1;
        for outcome in script.run(line) {
            writeln!(came, "    {}", outcome.trim_end()).unwrap();
        }
    }
    assert!(steps > 10, "{name} does something");
    if std::env::var("BLESS").is_ok() {
        return std::fs::write(&path, came).unwrap();
    }
    for (line, (want, got)) in text.lines().zip(came.lines()).enumerate() {
        assert_eq!(got, want, "{name}.txt, line {}", line + 1);
    }
    assert_eq!(text.lines().count(), came.lines().count(), "{name}.txt");
}

#[test]
fn classic() {
    run("classic");
}

#[test]
fn static_members() {
    run("static");
}

#[test]
fn offsets() {
    run("offsets");
}

#[test]
fn migration() {
    run("migration");
}

#[test]
fn consumer() {
    run("consumer");
}
