//! Our config tables against Kafka 4.4's own: `data/kafka-4.4-configs.tsv` was read from its ConfigDefs and a running broker.

use ringmain_metadata::config::{
    Definition, Kind, Rule, Scale, TopicDefinition, broker_definitions, group_definitions, topic_definitions,
};

struct Fact<'a> {
    resource: &'a str,
    name: &'a str,
    kind: &'a str,
    default: &'a str,
    allowed: &'a str,
    read_only: bool,
    from: &'a str,
}

fn facts() -> Vec<Fact<'static>> {
    let text = include_str!("data/kafka-4.4-configs.tsv");
    let fact = |line: &'static str| {
        let [resource, name, kind, default, allowed, read_only, from] =
            line.split('\t').collect::<Vec<_>>().try_into().expect("seven columns");
        Fact { resource, name, kind, default, allowed, read_only: read_only == "ro", from }
    };
    text.lines().filter(|line| !line.starts_with('#')).map(fact).collect()
}

fn kind(kind: Kind) -> String {
    format!("{kind:?}").to_uppercase()
}

/// As Kafka prints its validators.
fn allowed(definition: &Definition) -> String {
    let most = match definition.kind {
        Kind::Short => i64::from(i16::MAX),
        Kind::Int => i64::from(i32::MAX),
        _ => i64::MAX,
    };
    match definition.rule {
        Rule::Range(from, to) if to == most => format!("[{from},...]"),
        Rule::Range(from, to) => format!("[{from},...,{to}]"),
        Rule::Fraction(from, to) => format!("[{from},...,{to}]"),
        Rule::OneOf(all) | Rule::EachOf(all) => format!("[{}]", all.join(", ")),
        Rule::OneOfAnyCase(all) => format!("(case insensitive) [{}]", all.join(", ")),
        Rule::GzipLevel => "[1,...,9] or -1".into(),
        Rule::OffsetReset => "[latest, earliest, by_duration:PnDTnHnMn.nS]".into(),
        Rule::Throttled => "[partitionId]:[brokerId],[partitionId]:[brokerId],...".into(),
        Rule::Any => String::new(),
    }
}

/// Rules of Kafka's that we do not have: an empty text is as good as none for names of classes and voters that have no effect here.
const LOOSER: [&str; 3] = ["non-null string", "non-empty list", "non-empty string"];

fn differences(fact: &Fact<'_>, ours: &Definition) -> Vec<String> {
    let default = match fact.default {
        "<null>" | "<none>" => None,
        text => Some(text),
    };
    let mut out = Vec::new();
    let mut compare = |what: &str, theirs: String, ours: String| {
        if theirs != ours {
            out.push(format!("{} {}: {what} is {theirs} in Kafka and {ours} here", fact.resource, fact.name));
        }
    };
    compare("the type", fact.kind.into(), kind(ours.kind));
    compare("the default", format!("{default:?}"), format!("{:?}", ours.default));
    if !LOOSER.contains(&fact.allowed) {
        compare("what is allowed", fact.allowed.into(), allowed(ours));
    }
    compare("read-only", fact.read_only.to_string(), (!ours.dynamic).to_string());
    out
}

#[test]
fn broker_configs_are_kafkas() {
    let facts: Vec<Fact<'_>> = facts().into_iter().filter(|fact| fact.resource == "BROKER").collect();
    assert!(facts.len() > 300);
    let names: Vec<&str> = facts.iter().map(|fact| fact.name).collect();
    let ours: Vec<&str> = broker_definitions().iter().map(|one| one.name).collect();
    assert_eq!(names, ours);
    let found: Vec<String> =
        facts.iter().zip(broker_definitions()).flat_map(|(fact, ours)| differences(fact, ours)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn topic_configs_are_kafkas_and_our_one_more() {
    let facts: Vec<Fact<'_>> = facts().into_iter().filter(|fact| fact.resource == "TOPIC").collect();
    let ours: Vec<&TopicDefinition> = topic_definitions().iter().filter(|one| one.definition.name != "flush").collect();
    assert_eq!(ours.len() + 1, topic_definitions().len());
    let names: Vec<&str> = facts.iter().map(|fact| fact.name).collect();
    assert_eq!(names, ours.iter().map(|one| one.definition.name).collect::<Vec<_>>());
    let mut found = Vec::new();
    for (fact, ours) in facts.iter().zip(ours) {
        found.extend(differences(fact, &ours.definition));
        let from: Vec<String> = ours.from.iter().map(|(name, scale)| format!("{name}*{}", factor(*scale))).collect();
        if from.join(";") != fact.from {
            found.push(format!("{}: comes from {} in Kafka and {} here", fact.name, fact.from, from.join(";")));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn group_configs_are_kafkas() {
    let facts: Vec<Fact<'_>> = facts().into_iter().filter(|fact| fact.resource == "GROUP").collect();
    let names: Vec<&str> = facts.iter().map(|fact| fact.name).collect();
    assert_eq!(names, group_definitions().iter().map(|one| one.definition.name).collect::<Vec<_>>());
    let mut found = Vec::new();
    for (fact, ours) in facts.iter().zip(group_definitions()) {
        found.extend(differences(fact, &ours.definition));
        // A name's default is no list's.
        if ours.from.unwrap_or_default() != fact.from && fact.name != "streams.assignor.name" {
            found.push(format!("{}: comes from {} in Kafka and {:?} here", fact.name, fact.from, ours.from));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

fn factor(scale: Scale) -> u32 {
    match scale {
        Scale::Same => 1,
        Scale::Minutes => 60_000,
        Scale::Hours => 3_600_000,
    }
}
