//! Kafka 4.4's group configs, by name, with the broker's configs that their defaults come from and that bound them.

use super::definition::{Definition, Kind, Rule};

#[derive(Clone, Copy, Debug)]
pub struct GroupDefinition {
    pub definition: Definition,
    /// The broker config that gives the default.
    pub from: Option<&'static str>,
    /// The broker configs below and above which a value is refused.
    pub bounds: Option<(&'static str, &'static str)>,
}

const INT: i64 = i32::MAX as i64;

/// The group config called `name`.
pub fn definition(name: &str) -> Option<&'static GroupDefinition> {
    GROUP.binary_search_by(|one| one.definition.name.cmp(name)).ok().map(|at| &GROUP[at])
}

/// All of them, by rising name.
pub fn definitions() -> &'static [GroupDefinition] {
    GROUP
}

const fn define(
    name: &'static str,
    kind: Kind,
    default: Option<&'static str>,
    rule: Rule,
    from: Option<&'static str>,
    bounds: Option<(&'static str, &'static str)>,
    documentation: &'static str,
) -> GroupDefinition {
    let effect = !documentation.is_empty();
    GroupDefinition {
        definition: Definition { name, kind, default, rule, dynamic: true, effect, documentation },
        from,
        bounds,
    }
}

use Kind::{Boolean, Int, List, String};

const AT_LEAST_0: Rule = Rule::Range(0, INT);
const AT_LEAST_1: Rule = Rule::Range(1, INT);

/// By rising name; those without words are accepted, kept and shown, and have no effect here.
#[rustfmt::skip]
const GROUP: &[GroupDefinition] = &[
    define("consumer.assignment.interval.ms", Int, Some("1000"), AT_LEAST_0, Some("group.consumer.assignment.interval.ms"),
        Some(("group.consumer.min.assignment.interval.ms", "group.consumer.max.assignment.interval.ms")),
        "The group is assigned anew no sooner after the last time."),
    define("consumer.heartbeat.interval.ms", Int, Some("5000"), AT_LEAST_1, Some("group.consumer.heartbeat.interval.ms"),
        Some(("group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms")),
        "How often the group's members are told to say that they are there."),
    define("consumer.session.timeout.ms", Int, Some("45000"), AT_LEAST_1, Some("group.consumer.session.timeout.ms"),
        Some(("group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms")),
        "After this silence a member of the group is put out."),
    define("errors.deadletterqueue.copy.record.enable", Boolean, Some("false"), Rule::Any, None, None, ""),
    define("errors.deadletterqueue.topic.name", String, Some(""), Rule::Any, None, None, ""),
    define("share.assignment.interval.ms", Int, Some("1000"), AT_LEAST_0, Some("group.share.assignment.interval.ms"), None, ""),
    define("share.auto.offset.reset", String, Some("latest"), Rule::OffsetReset, None, None, ""),
    define("share.delivery.count.limit", Int, Some("5"), Rule::Range(2, INT), Some("group.share.delivery.count.limit"), None, ""),
    define("share.heartbeat.interval.ms", Int, Some("5000"), AT_LEAST_1, Some("group.share.heartbeat.interval.ms"), None, ""),
    define("share.isolation.level", String, Some("read_uncommitted"), Rule::OneOf(&["read_committed", "read_uncommitted"]), None, None, ""),
    define("share.partition.max.record.locks", Int, Some("2000"), Rule::Range(100, INT), Some("group.share.partition.max.record.locks"), None, ""),
    define("share.record.lock.duration.ms", Int, Some("30000"), Rule::Range(1000, INT), Some("group.share.record.lock.duration.ms"), None, ""),
    define("share.renew.acknowledge.enable", Boolean, Some("true"), Rule::Any, None, None, ""),
    define("share.session.timeout.ms", Int, Some("45000"), AT_LEAST_1, Some("group.share.session.timeout.ms"), None, ""),
    define("streams.assignment.interval.ms", Int, Some("1000"), AT_LEAST_0, Some("group.streams.assignment.interval.ms"), None, ""),
    define("streams.assignor.name", String, None, Rule::Any, None, None, ""),
    define("streams.heartbeat.interval.ms", Int, Some("5000"), AT_LEAST_1, Some("group.streams.heartbeat.interval.ms"), None, ""),
    define("streams.initial.rebalance.delay.ms", Int, Some("3000"), AT_LEAST_0, Some("group.streams.initial.rebalance.delay.ms"), None, ""),
    define("streams.num.standby.replicas", Int, Some("0"), AT_LEAST_0, Some("group.streams.num.standby.replicas"), None, ""),
    define("streams.rack.aware.assignment.tags", List, Some(""), Rule::Any, Some("group.streams.rack.aware.assignment.tags"), None, ""),
    define("streams.session.timeout.ms", Int, Some("45000"), AT_LEAST_1, Some("group.streams.session.timeout.ms"), None, ""),
];
