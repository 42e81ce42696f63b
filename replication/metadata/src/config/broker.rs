//! The configs a broker was started with.

use std::collections::BTreeMap;

use ringmain_types::Limits;

use super::broker_table::BROKER;
use super::definition::{Definition, items};
use super::topic::nearest;

/// The broker config called `name`.
pub fn definition(name: &str) -> Option<&'static Definition> {
    BROKER.binary_search_by(|one| one.name.cmp(name)).ok().map(|at| &BROKER[at])
}

/// All of them, by rising name.
pub fn definitions() -> &'static [Definition] {
    BROKER
}

/// server.properties' names, checked, with those typed that the broker itself looks at. Topic defaults are read through `Layers`.
#[derive(Clone, Debug, PartialEq)]
pub struct BrokerConfig {
    given: BTreeMap<String, String>,
    /// One line each: what was accepted and has no effect.
    pub warnings: Vec<String>,
    pub auto_create_topics: bool,
    pub num_partitions: i32,
    pub default_replication_factor: i16,
    pub delete_topics: bool,
    pub fetch_bytes_max: u32,
    pub request_bytes_max: u32,
    pub connection_idle_ms: u64,
    pub connections_max: u32,
    pub connections_per_address_max: u32,
    pub fetch_sessions_max: u32,
    pub retention_check_ms: u64,
    pub rack: Option<String>,
}

impl Default for BrokerConfig {
    fn default() -> BrokerConfig {
        BrokerConfig::typed(BTreeMap::new(), Vec::new())
    }
}

impl BrokerConfig {
    /// Every error in one go, each naming the key, its value and what is allowed.
    pub fn parse(properties: &BTreeMap<String, String>) -> Result<BrokerConfig, Vec<String>> {
        let (mut given, mut warnings, mut errors) = (BTreeMap::new(), Vec::new(), Vec::new());
        for (name, value) in properties {
            let Some(found) = definition(name) else {
                match unknown(name) {
                    Ok(warning) => warnings.push(warning),
                    Err(error) => errors.push(error),
                }
                continue;
            };
            match found.check(value).and_then(|value| unsupported(name, &value).map(|()| value)) {
                Ok(value) => drop(given.insert(name.clone(), value)),
                Err(error) => errors.push(error),
            }
            if !found.effect {
                warnings.push(format!("{name} is accepted and has no effect in this version"));
            }
        }
        if errors.is_empty() { Ok(BrokerConfig::typed(given, warnings)) } else { Err(errors) }
    }

    fn typed(given: BTreeMap<String, String>, warnings: Vec<String>) -> BrokerConfig {
        let text = |name: &str| match given.get(name) {
            Some(value) => value.as_str(),
            None => definition(name).and_then(|found| found.default).unwrap_or_default(),
        };
        let boolean = |name: &str| text(name).eq_ignore_ascii_case("true");
        // Checked values; a negative number, where Kafka allows it, is no bound.
        let natural = |name: &str| text(name).parse::<i64>().map_or(u64::MAX, |n| u64::try_from(n).unwrap_or(u64::MAX));
        let small = |name: &str| u32::try_from(natural(name)).unwrap_or(u32::MAX);
        BrokerConfig {
            auto_create_topics: boolean("auto.create.topics.enable"),
            num_partitions: text("num.partitions").parse().unwrap_or(1),
            default_replication_factor: text("default.replication.factor").parse().unwrap_or(1),
            delete_topics: boolean("delete.topic.enable"),
            fetch_bytes_max: small("fetch.max.bytes"),
            request_bytes_max: small("socket.request.max.bytes"),
            connection_idle_ms: natural("connections.max.idle.ms"),
            connections_max: small("max.connections"),
            connections_per_address_max: small("max.connections.per.ip"),
            fetch_sessions_max: small("max.incremental.fetch.session.cache.slots"),
            retention_check_ms: natural("log.retention.check.interval.ms"),
            rack: given.get("broker.rack").cloned(),
            warnings,
            given,
        }
    }

    /// What the properties say of `name`; `None` when they are silent.
    pub fn given(&self, name: &str) -> Option<&str> {
        self.given.get(name).map(String::as_str)
    }

    /// What `name` is: as given, or Kafka's default. Empty for a name that is not known, or that has neither.
    pub fn value(&self, name: &str) -> &str {
        self.given(name).or_else(|| definition(name)?.default).unwrap_or_default()
    }

    /// Limits with what the properties say of them; what they do not name keeps the limit's own default. `max.connections` is the
    /// broker's and dealt to its shards, and never more than there are descriptors for; from one address each shard takes
    /// `max.connections.per.ip`, since nobody knows which shard its connections come to.
    pub fn bound(&self, mut limits: Limits, shards: u16) -> Limits {
        let given = |name: &str| self.given(name).is_some();
        if given("socket.request.max.bytes") {
            limits.frame_bytes_max = self.request_bytes_max;
        }
        if given("connections.max.idle.ms") {
            limits.connection_idle_ms = self.connection_idle_ms;
        }
        if given("max.connections") {
            limits.connections_max = self.connections_max.div_ceil(u32::from(shards.max(1)));
        }
        if given("max.connections.per.ip") {
            limits.connections_per_address_max = self.connections_per_address_max;
        }
        limits.connections_max = limits.connections_max.min(limits.connections_possible);
        limits.connections_per_address_max = limits.connections_per_address_max.min(limits.connections_max);
        if given("log.retention.check.interval.ms") {
            limits.retention_check_ms = self.retention_check_ms;
        }
        if given("max.incremental.fetch.session.cache.slots") {
            limits.fetch_sessions_max = self.fetch_sessions_max;
        }
        limits
    }

    /// What the node settled (a listener's real address, the data directory): shown as if it had been given.
    pub fn settle(&mut self, name: &'static str, value: String) {
        debug_assert!(definition(name).is_some());
        self.given.insert(name.to_owned(), value);
    }
}

/// Settings whose silent neglect would hurt: access that looks guarded and is not, data spread over fewer disks than asked.
fn unsupported(name: &str, value: &str) -> Result<(), String> {
    let refuse = |why: &str| Err(format!("Invalid value {} for configuration {name}: {why}", value.escape_debug()));
    match name {
        "authorizer.class.name" if !value.is_empty() => refuse("ACLs do not exist in this version; allowed is none"),
        "log.dirs" | "log.dir" if items(value).count() > 1 => refuse("one directory is allowed in this version"),
        "listeners" if items(value).any(|one| !plaintext(one)) => {
            refuse("allowed is PLAINTEXT://HOST:PORT (and a CONTROLLER listener, which is not needed)")
        }
        "security.inter.broker.protocol" if value != "PLAINTEXT" => refuse("allowed is PLAINTEXT in this version"),
        _ => Ok(()),
    }
}

fn plaintext(listener: &str) -> bool {
    let name = listener.split("://").next().unwrap_or_default();
    !["SSL", "SASL_PLAINTEXT", "SASL_SSL"].iter().any(|secure| name.eq_ignore_ascii_case(secure))
}

/// Names that older Kafkas had, or that belong to plugins: a file that has them still starts a broker. Anything else is a slip, and
/// a slip in a name must not go unseen.
fn unknown(name: &str) -> Result<String, String> {
    const OLD: [&str; 17] = [
        "advertised.host.name",
        "advertised.port",
        "broker.id.generation.enable",
        "controlled.shutdown.max.retries",
        "controlled.shutdown.retry.backoff.ms",
        "control.plane.listener.name",
        "eligible.leader.replicas.enable",
        "host.name",
        "inter.broker.protocol.version",
        "log.message.downconversion.enable",
        "log.message.format.version",
        "log.message.timestamp.difference.max.ms",
        "offsets.commit.required.acks",
        "port",
        "replication.quota.window.size",
        "reserved.broker.max.id",
        "producer.id.expiration.check.interval.ms",
    ];
    const PREFIXES: [&str; 8] = [
        "confluent.",
        "group.",
        "internal.",
        "listener.name.",
        "password.encoder.",
        "rlmm.config.",
        "rsm.config.",
        "zookeeper.",
    ];
    let shown = name.escape_debug();
    let close = nearest(name, BROKER.iter().map(|one| one.name));
    match close {
        Some(close) if !OLD.contains(&name) => Err(format!("Unknown configuration {shown}: did you mean {close}?")),
        _ if OLD.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix)) => {
            Ok(format!("{shown} is not known to this version and has no effect"))
        }
        _ => Err(format!("Unknown configuration {shown}: allowed are the names of Kafka 4.4's broker configs")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<BrokerConfig, Vec<String>> {
        BrokerConfig::parse(&pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect())
    }

    #[test]
    fn the_table_is_sorted_and_its_defaults_are_allowed() {
        assert!(BROKER.windows(2).all(|pair| pair[0].name < pair[1].name));
        for one in BROKER {
            if let Some(default) = one.default {
                assert!(one.check(default).is_ok(), "{} = {default}: {}", one.name, one.allowed());
            }
        }
    }

    #[test]
    fn properties_are_typed() {
        let config =
            parse(&[("num.partitions", " 4 "), ("auto.create.topics.enable", "FALSE"), ("num.io.threads", "3")]);
        let config = config.unwrap();
        assert_eq!((config.num_partitions, config.auto_create_topics), (4, false));
        assert_eq!(config.given("num.partitions"), Some("4"));
        assert_eq!(config.warnings, ["num.io.threads is accepted and has no effect in this version"]);
        assert_eq!(config.connection_idle_ms, 600_000);
        assert_eq!(BrokerConfig::default(), parse(&[]).unwrap());
    }

    #[test]
    fn properties_bound_what_they_name() {
        let limits = parse(&[("max.connections", "5"), ("socket.request.max.bytes", "2000")]).unwrap();
        let limits = limits.bound(Limits::tiny(), 2);
        assert_eq!((limits.connections_max, limits.frame_bytes_max), (3, 2000));
        assert_eq!(limits.fetch_sessions_max, Limits::tiny().fetch_sessions_max);
    }

    #[test]
    fn of_two_bounds_on_connections_the_smaller_holds() {
        let possible = Limits { connections_possible: 10, ..Limits::tiny() };
        let bound = |given: &[(&str, &str)]| {
            let limits = parse(given).unwrap().bound(possible.clone(), 2);
            (limits.connections_max, limits.connections_per_address_max)
        };
        assert_eq!(bound(&[("max.connections", "6"), ("max.connections.per.ip", "2")]), (3, 2));
        assert_eq!(bound(&[("max.connections", "1000000"), ("max.connections.per.ip", "1000000")]), (10, 10));
        assert_eq!(bound(&[]), (10, 10), "nor does the default pass it");
    }

    #[test]
    fn every_error_is_told_at_once() {
        let errors = parse(&[
            ("num.partitions", "0"),
            ("lgo.retention.hours", "1"),
            ("no.such.thing", "1"),
            ("zookeeper.connect", "h:2181"),
            ("authorizer.class.name", "x.Y"),
            ("listeners", "SASL_SSL://:9093"),
        ])
        .unwrap_err();
        let text = errors.join("\n");
        assert_eq!(errors.len(), 5, "{text}");
        assert!(text.contains("num.partitions") && text.contains("at least 1"));
        assert!(text.contains("did you mean log.retention.hours?"));
    }
}
