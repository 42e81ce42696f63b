//! What Kafka 4.4 refuses, and with which code: `data/kafka-4.4-edges.tsv` holds its answers to `tools/conformance/Edges.java`; the same
//! questions are put to our controller. Run that program against a Ringmain to see words beside words.

use std::sync::Arc;

use ringmain_metadata::{
    AlterConfig, AlterOperation, AlterResource, Assignment, Controller, ControllerConfig, NewPartitions, NewTopic,
    Record, Refusal, TopicKey,
};
use ringmain_types::*;

const NOW: Now = Now { mono: Instant(0), wall: WallMs(0) };

struct World(Controller);

impl World {
    fn new() -> World {
        let mut limits = Limits::production(1 << 30);
        limits.partitions_max = 1_000_000;
        let mut world = World(Controller::new(ControllerConfig {
            broker: BrokerId(1),
            seed: 5,
            limits,
            properties: Arc::default(),
        }));
        let records = world.0.start("c", "h", 9092);
        world.replay(&records);
        world
    }

    fn replay(&mut self, records: &[Record]) {
        for record in records {
            let next = self.0.image().next;
            self.0.replay(next, record).unwrap();
        }
    }

    fn create(&mut self, new: NewTopic) -> i16 {
        let decision = self.0.create_topics(NOW, &[new], false);
        self.replay(&decision.records);
        code(&decision.results[0])
    }

    fn grow(&mut self, topic: &str, count: i32, by_hand: Option<&[&[i32]]>) -> i16 {
        let brokers = |one: &&[i32]| one.iter().map(|id| BrokerId(*id)).collect();
        let assignments = by_hand.map(|all| all.iter().map(brokers).collect());
        let new = NewPartitions { topic: topic.into(), count, assignments };
        let decision = self.0.create_partitions(NOW, &[new], false);
        self.replay(&decision.records);
        code(&decision.results[0])
    }

    fn delete(&mut self, key: TopicKey) -> i16 {
        let decision = self.0.delete_topics(NOW, &[key]);
        self.replay(&decision.records);
        code(&decision.results[0])
    }

    fn alter(&mut self, kind: i8, resource: &str, changes: &[(&str, AlterOperation)]) -> i16 {
        let resource = AlterResource { kind, name: resource.into() };
        let change = |(name, operation): &(&str, AlterOperation)| AlterConfig {
            name: (*name).into(),
            operation: operation.clone(),
        };
        let changes = changes.iter().map(change).collect();
        let decision = self.0.incremental_alter_configs(NOW, &[(resource, changes)], false);
        self.replay(&decision.records);
        code(&decision.results[0])
    }

    fn policy(&self) -> Option<String> {
        self.0.image().topic("xa").unwrap().configs.get("cleanup.policy").cloned()
    }
}

fn code<T>(result: &Result<T, Refusal>) -> i16 {
    match result {
        Ok(_) => 0,
        Err(refusal) => {
            assert!(!refusal.message.is_empty());
            refusal.code.code()
        }
    }
}

fn topic(name: &str, partitions: i32, replication_factor: i16) -> NewTopic {
    NewTopic { name: name.into(), partitions, replication_factor, ..Default::default() }
}

fn by_hand(name: &str, assignments: &[(i32, &[i32])]) -> NewTopic {
    let assignment = |(index, brokers): &(i32, &[i32])| Assignment {
        partition: PartitionIndex(*index),
        replicas: brokers.iter().map(|id| BrokerId(*id)).collect(),
    };
    NewTopic { assignments: assignments.iter().map(assignment).collect(), ..topic(name, -1, -1) }
}

fn configured(configs: &[(&str, Option<&str>)]) -> NewTopic {
    let configs = configs.iter().map(|(name, value)| (name.to_string(), value.map(str::to_owned))).collect();
    NewTopic { configs, ..topic("configured", 1, 1) }
}

/// `None` for a case that is not the controller's.
fn ours(world: &mut World, case: &str) -> Option<i16> {
    if let Some(config) = case.strip_prefix("create config ") {
        let (name, value) = config.split_once('=').unwrap();
        let code = world.create(configured(&[(name, (value != "null").then_some(value))]));
        world.delete(TopicKey::Name("configured".into()));
        return Some(code);
    }
    created(world, case).or_else(|| grown_or_deleted(world, case)).or_else(|| altered(world, case))
}

fn created(world: &mut World, case: &str) -> Option<i16> {
    let long = "x".repeat(250);
    let new = match case {
        "create plain" | "create exists" => topic("xa", 2, 1),
        "create empty name" => topic("", 1, 1),
        "create dot" => topic(".", 1, 1),
        "create dotdot" => topic("..", 1, 1),
        "create long" => topic(&long, 1, 1),
        "create longest" => topic(&long[..249], 1, 1),
        "create blank" => topic("a b", 1, 1),
        "create umlaut" => topic("\u{fc}", 1, 1),
        "create internal name" => topic("__consumer_offsetsx", 1, 1),
        "create dotted" => topic("x.b", 1, 1),
        "create collides" => topic("x_b", 1, 1),
        "create partitions 0" => topic("xp", 0, 1),
        "create partitions -1" => topic("xp1", -1, 1),
        "create partitions -2" => topic("xp", -2, 1),
        "create partitions 10001" => topic("xp", 10001, 1),
        "create replication 0" => topic("xr", 1, 0),
        "create replication -1" => topic("xr1", 1, -1),
        "create replication -2" => topic("xr", 1, -2),
        "create replication 2" => topic("xr", 1, 2),
        "create by hand" => by_hand("xh", &[(0, &[1]), (1, &[1])]),
        "create by hand gap" => by_hand("xh1", &[(0, &[1]), (2, &[1])]),
        "create by hand unknown broker" => by_hand("xh2", &[(0, &[9])]),
        "create by hand twice" => by_hand("xh3", &[(0, &[1, 1])]),
        "create by hand empty" => by_hand("xh4", &[(0, &[])]),
        "create by hand negative" => by_hand("xh5", &[(-1, &[1])]),
        "create lags" => configured(&[("min.compaction.lag.ms", Some("9")), ("max.compaction.lag.ms", Some("8"))]),
        _ => return None,
    };
    Some(world.create(new))
}

fn grown_or_deleted(world: &mut World, case: &str) -> Option<i16> {
    Some(match case {
        "grow same" => world.grow("xa", 2, None),
        "grow less" => world.grow("xa", 1, None),
        "grow zero" => world.grow("xa", 0, None),
        "grow negative" => world.grow("xa", -4, None),
        "grow unknown" => world.grow("none", 4, None),
        "grow bad name" => world.grow("a b", 4, None),
        "grow by hand wrong count" => world.grow("xa", 4, Some(&[&[1]])),
        "grow by hand unknown broker" => world.grow("xa", 3, Some(&[&[9]])),
        "grow by hand two replicas" => world.grow("xa", 3, Some(&[&[1, 1]])),
        "grow too much" => world.grow("xa", 20_003, None),
        "grow" => world.grow("xa", 4, None),
        "delete unknown" => world.delete(TopicKey::Name("none".into())),
        "delete bad name" => world.delete(TopicKey::Name("a b".into())),
        "delete unknown id" => world.delete(TopicKey::Id(TopicId(77))),
        "delete" => world.delete(TopicKey::Name("xa".into())),
        _ => return None,
    })
}

fn altered(world: &mut World, case: &str) -> Option<i16> {
    use AlterOperation::{Append, Delete, Set, Subtract};
    const TOPIC: i8 = 2;
    const BROKER: i8 = 4;
    let some = |value: &str| Some(value.to_owned());
    let (kind, resource, name, operation) = match case {
        "alter topic set" => (TOPIC, "xa", "retention.ms", Set(some("5"))),
        "alter topic set bad" => (TOPIC, "xa", "retention.ms", Set(some("-9"))),
        "alter topic set unknown" => (TOPIC, "xa", "retention.m", Set(some("9"))),
        "alter topic delete unknown" => (TOPIC, "xa", "retention.m", Delete),
        "alter topic delete unset" => (TOPIC, "xa", "flush.ms", Delete),
        "alter topic append non-list" => (TOPIC, "xa", "retention.ms", Append(some("5"))),
        "alter topic append" | "alter topic append again" => (TOPIC, "xa", "cleanup.policy", Append(some("compact"))),
        "alter topic append bad" => (TOPIC, "xa", "cleanup.policy", Append(some("none"))),
        "alter topic subtract" | "alter topic subtract absent" => {
            (TOPIC, "xa", "cleanup.policy", Subtract(some("delete")))
        }
        "alter topic subtract last" => (TOPIC, "xa", "cleanup.policy", Subtract(some("compact"))),
        "alter topic subtract default" => (TOPIC, "xp1", "cleanup.policy", Subtract(some("compact"))),
        "alter topic missing" => (TOPIC, "none", "retention.ms", Set(some("5"))),
        "alter topic bad name" => (TOPIC, "a b", "retention.ms", Set(some("5"))),
        "alter topic empty name" => (TOPIC, "", "retention.ms", Set(some("5"))),
        "alter topic set null" => (TOPIC, "xa", "retention.ms", Set(None)),
        "alter broker read only" => (BROKER, "1", "node.id", Set(some("2"))),
        "alter broker default read only" => (BROKER, "", "num.partitions", Set(some("2"))),
        "alter broker unknown config" => (BROKER, "1", "no.such.config", Set(some("2"))),
        "alter broker bad value" => (BROKER, "1", "log.retention.ms", Set(some("abc"))),
        "alter broker set" => (BROKER, "1", "log.cleaner.threads", Set(some("2"))),
        "alter broker unset" => (BROKER, "1", "log.cleaner.threads", Delete),
        "alter broker default set" => (BROKER, "", "log.retention.ms", Set(some("700000000"))),
        "alter broker default unset" => (BROKER, "", "log.retention.ms", Delete),
        "alter broker delete unknown" => (BROKER, "1", "no.such.config", Delete),
        "alter broker delete read only" => (BROKER, "1", "node.id", Delete),
        "alter group config" => (32, "g", "consumer.session.timeout.ms", Set(some("50000"))),
        "alter unknown type" => (0, "g", "x", Set(some("5"))),
        "alter key twice" => {
            let twice = [("flush.ms", Set(some("1"))), ("flush.ms", Set(some("2")))];
            return Some(world.alter(TOPIC, "xa", &twice));
        }
        _ => return None,
    };
    let code = world.alter(kind, resource, &[(name, operation)]);
    // As Kafka showed the value at these places.
    match case {
        "alter topic append" | "alter topic append again" => {
            assert_eq!(world.policy().as_deref(), Some("delete,compact"));
        }
        "alter topic subtract" => assert_eq!(world.policy().as_deref(), Some("compact")),
        "alter topic subtract last" => assert_eq!(world.policy().as_deref(), Some("")),
        _ => {}
    }
    Some(code)
}

#[test]
fn codes_are_kafkas() {
    let mut world = World::new();
    let (mut asked, mut wrong) = (0, Vec::new());
    for line in include_str!("data/kafka-4.4-edges.tsv").lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let (case, theirs): (&str, i16) = (fields[0], fields[1].parse().unwrap());
        let exception: Option<i16> = fields.get(2).map(|code| code.parse().unwrap());
        let Some(ours) = ours(&mut world, case) else {
            let elsewhere = ["describe ", "list ", "create validate only"];
            assert!(elsewhere.iter().any(|prefix| case.starts_with(prefix)), "nobody answers {case}");
            continue;
        };
        asked += 1;
        assert_ne!(exception, Some(theirs), "{case} is no exception");
        let expected = exception.unwrap_or(theirs);
        if ours != expected {
            wrong.push(format!("{case}: expected {expected}, got {ours}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(asked > 100, "{asked}");
}
