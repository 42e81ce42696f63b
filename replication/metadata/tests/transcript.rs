//! The controller by transcript: `data/controller.txt` holds commands and what came of them. `UPDATE=1 cargo test` writes what comes now.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use ringmain_metadata::{
    AlterConfig, AlterOperation, AlterResource, BrokerConfig, ConfigResource, Controller, ControllerConfig, Decision,
    NewPartitions, NewTopic, Record, Refusal, TopicKey,
};
use ringmain_types::*;

/// Records of a decision that the transcript shows.
const SHOWN: usize = 8;
const NOW: Now = Now { mono: Instant(0), wall: WallMs(0) };

struct Script {
    controller: Controller,
    log: Vec<Vec<u8>>,
    /// Ids in the order of their topics' creation: the script shows #1, #2.
    ids: Vec<TopicId>,
    life: u64,
}

fn controller(seed: u64, properties: &BrokerConfig) -> Controller {
    Controller::new(ControllerConfig {
        broker: BrokerId(1),
        seed,
        limits: Limits::tiny(),
        properties: Arc::new(properties.clone()),
    })
}

impl Script {
    fn new() -> Script {
        Script { controller: controller(0, &BrokerConfig::default()), log: Vec::new(), ids: Vec::new(), life: 0 }
    }

    fn run(&mut self, line: &str) -> String {
        let mut words = line.split(' ');
        let command = words.next().unwrap_or_default();
        let words: Vec<&str> = words.collect();
        match command {
            "start" => self.start(&words),
            "create" => self.create(&words, false),
            "validate" => self.create(&words, true),
            "delete" => {
                let decision =
                    self.controller.delete_topics(NOW, &words.iter().map(|word| self.key(word)).collect::<Vec<_>>());
                self.apply(decision, |topic| format!("deleted {}", topic.name))
            }
            "grow" => {
                let one = |word: &&str| {
                    let (topic, count) = word.split_once('=').unwrap();
                    NewPartitions { topic: topic.into(), count: count.parse().unwrap(), assignments: None }
                };
                let decision =
                    self.controller.create_partitions(NOW, &words.iter().map(one).collect::<Vec<_>>(), false);
                self.apply(decision, |()| "grown".into())
            }
            "alter" => self.alter(&words),
            "id" => match self.controller.allocate_producer_id() {
                Ok((records, id)) => {
                    self.apply(Decision { records, results: vec![Ok(id)] }, |id| format!("id {}", id.0))
                }
                Err(refusal) => format!("  {refusal:?}\n"),
            },
            "ids" => {
                let count: u32 = words[0].parse().unwrap();
                (0..count).map(|_| self.run("id")).last().unwrap_or_default()
            }
            "image" => self.image(),
            other => panic!("no command {other}"),
        }
    }

    /// A new life over the same log.
    fn start(&mut self, properties: &[&str]) -> String {
        let given = properties.iter().filter_map(|word| word.split_once('='));
        let given: BTreeMap<String, String> = given.map(|(name, value)| (name.into(), value.into())).collect();
        let properties = match BrokerConfig::parse(&given) {
            Ok(properties) => properties,
            Err(errors) => return errors.iter().map(|error| format!("  {error}\n")).collect(),
        };
        self.life += 1;
        self.controller = controller(self.life, &properties);
        for (at, bytes) in (0..).zip(&self.log) {
            self.controller.replay(Offset(at), &Record::decode(bytes).unwrap()).unwrap();
        }
        let records = self.controller.start("cluster", "here", 9092);
        self.apply(Decision { records, results: Vec::<Result<(), Refusal>>::new() }, |()| String::new())
    }

    fn create(&mut self, words: &[&str], validate_only: bool) -> String {
        let mut new = NewTopic { name: words[0].into(), partitions: -1, replication_factor: -1, ..Default::default() };
        for (name, value) in words[1..].iter().filter_map(|word| word.split_once('=')) {
            match name {
                "partitions" => new.partitions = value.parse().unwrap(),
                "replication" => new.replication_factor = value.parse().unwrap(),
                _ => new.configs.push((name.into(), Some(value.into()))),
            }
        }
        let decision = self.controller.create_topics(NOW, &[new], validate_only);
        self.apply(decision, |created| format!("{} partitions of {}", created.partitions, created.replication_factor))
    }

    /// `alter topic|broker NAME name=value name+=value name-=value name!`
    fn alter(&mut self, words: &[&str]) -> String {
        let kind = match words[0] {
            "topic" => 2,
            "group" => 32,
            _ => 4,
        };
        let name = if words[1] == "default" { "" } else { words[1] };
        let resource = AlterResource { kind, name: name.into() };
        let one = |word: &&str| {
            let some = |value: &str| Some(value.to_owned());
            let (name, operation) = match (word.split_once("+="), word.split_once("-="), word.split_once('=')) {
                (Some((name, value)), _, _) => (name, AlterOperation::Append(some(value))),
                (_, Some((name, value)), _) => (name, AlterOperation::Subtract(some(value))),
                (_, _, Some((name, value))) => (name, AlterOperation::Set(some(value))),
                _ => (word.trim_end_matches('!'), AlterOperation::Delete),
            };
            AlterConfig { name: name.into(), operation }
        };
        let alters = words[2..].iter().map(one).collect();
        let decision = self.controller.incremental_alter_configs(NOW, &[(resource, alters)], false);
        self.apply(decision, |()| "altered".into())
    }

    fn apply<T>(&mut self, decision: Decision<Result<T, Refusal>>, show: impl Fn(&T) -> String) -> String {
        let mut out = String::new();
        for (nth, record) in decision.records.iter().enumerate() {
            if let Record::Topic { id, .. } = record {
                self.ids.push(*id);
            }
            match nth {
                0..SHOWN => writeln!(out, "  {} {}", self.log.len(), self.show(record)).unwrap(),
                SHOWN => writeln!(out, "  ... {} more", decision.records.len() - SHOWN).unwrap(),
                _ => {}
            }
            self.controller.replay(Offset(self.log.len() as i64), record).unwrap();
            self.log.push(record.encode());
        }
        for result in &decision.results {
            match result {
                Ok(done) => writeln!(out, "  -> {}", show(done)).unwrap(),
                Err(refusal) => writeln!(out, "  -> {:?}: {}", refusal.code, refusal.message).unwrap(),
            }
        }
        out
    }

    fn show(&self, record: &Record) -> String {
        match record {
            Record::ClusterFormat { version, cluster_id } => format!("ClusterFormat {version} {cluster_id}"),
            Record::RegisterBroker { broker, host, port, rack } => {
                format!("RegisterBroker {} {host}:{port} {}", broker.0, rack.as_deref().unwrap_or("-"))
            }
            Record::Topic { id, name } => format!("Topic {} {name}", self.number(*id)),
            Record::Partition { partition, replicas, leader, leader_epoch, partition_epoch, .. } => {
                let replicas: Vec<i32> = replicas.iter().map(|broker| broker.0).collect();
                let (topic, index) = (self.number(partition.topic), partition.index.0);
                let (leader, epochs) = (leader.0, (leader_epoch.0, partition_epoch.0));
                format!("Partition {topic} {index} {replicas:?} led by {leader}, epochs {epochs:?}")
            }
            Record::RemoveTopic { id } => format!("RemoveTopic {}", self.number(*id)),
            Record::Config { resource, name, value } => {
                let resource = match resource {
                    ConfigResource::Topic(id) => self.number(*id),
                    ConfigResource::Broker(Some(broker)) => format!("broker {}", broker.0),
                    ConfigResource::Broker(None) => "all brokers".into(),
                    ConfigResource::Group(group) => format!("group {group}"),
                };
                format!("Config {resource} {name}={}", value.as_deref().unwrap_or("(none)"))
            }
            Record::ProducerIds { next } => format!("ProducerIds {}", next.0),
            // Of a state that is said again: no decision has them.
            Record::Broker { .. } | Record::Removed { .. } => unreachable!("{record:?}"),
        }
    }

    fn number(&self, id: TopicId) -> String {
        let number = self.ids.iter().position(|one| *one == id).map_or(0, |at| at + 1);
        format!("#{number}")
    }

    fn key(&self, word: &str) -> TopicKey {
        match word.strip_prefix('#').and_then(|number| number.parse::<usize>().ok()) {
            Some(number) => TopicKey::Id(self.ids.get(number.wrapping_sub(1)).copied().unwrap_or(TopicId(7))),
            None => TopicKey::Name(word.into()),
        }
    }

    fn image(&self) -> String {
        let image = self.controller.image();
        let mut out = String::new();
        writeln!(
            out,
            "  next {}, {} partitions, producers from {}",
            image.next.0, image.partitions, image.next_producer_id
        )
        .unwrap();
        for broker in image.brokers.values() {
            writeln!(out, "  broker {} epoch {} at {}:{}", broker.id.0, broker.epoch.0, broker.host, broker.port)
                .unwrap();
        }
        for (name, id) in &image.names {
            let topic = &image.topics[id];
            writeln!(out, "  {} {name}: {} partitions {:?}", self.number(*id), topic.partitions.len(), topic.configs)
                .unwrap();
        }
        for (group, configs) in &image.group_configs {
            writeln!(out, "  group {group:?}: {configs:?}").unwrap();
        }
        for (broker, configs) in image.broker_configs.iter().filter(|(_, configs)| !configs.is_empty()) {
            writeln!(out, "  broker {broker:?}: {configs:?}").unwrap();
        }
        out
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the test's own file, when it is asked to write it")]
fn the_controller_does_what_the_transcript_says() {
    let expected = include_str!("data/controller.txt");
    let (mut script, mut got) = (Script::new(), String::new());
    for line in expected.lines() {
        match line.strip_prefix("> ") {
            Some(command) => {
                let came = script.run(command);
                write!(got, "> {command}\n{came}").unwrap();
            }
            None if line.starts_with("  ") => {}
            None => writeln!(got, "{line}").unwrap(),
        }
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/controller.txt"), &got).unwrap();
    }
    assert!(got == expected, "the transcript is now:\n{got}");
}
