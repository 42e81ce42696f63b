//! Changing configs of topics, brokers and groups.

use std::collections::BTreeMap;

use ringmain_types::*;

use super::{Controller, Decision, Refusal};
use crate::config::{
    Definition, Kind, broker_definition, check_group, check_overrides, group_definition, items, topic_definition,
};
use crate::name::check_topic_name;
use crate::record::{ConfigResource, Record};

/// What is altered, as the wire has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AlterResource {
    /// Kafka's `ConfigResource.Type`: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.
    pub kind: i8,
    /// A topic's or a group's name, or a broker's id ("" for the default of all).
    pub name: String,
}
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterConfig {
    pub name: String,
    pub operation: AlterOperation,
}
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlterOperation {
    Set(Option<String>),
    Delete,
    /// Adds to a list what is not in it.
    Append(Option<String>),
    /// Takes from a list.
    Subtract(Option<String>),
    /// A number that Kafka does not know.
    Unknown(i8),
}

/// A name and its value.
pub type WantedConfig = (String, Option<String>);

/// A group's name is in every record of its configs.
const GROUP_NAME_BYTES_MAX: usize = 1 << 10;

type Configs = BTreeMap<String, String>;

impl Controller {
    /// Changes some configs of each resource; one result for each, in order. A resource changes whole or not at all.
    pub fn incremental_alter_configs(
        &mut self,
        _now: Now,
        resources: &[(AlterResource, Vec<AlterConfig>)],
        validate_only: bool,
    ) -> Decision<Result<(), Refusal>> {
        self.alter(resources, validate_only, |controller, target, current, asked| {
            controller.changed(target, current, asked)
        })
    }

    /// Replaces all configs of each resource (the older AlterConfigs).
    pub fn alter_configs(
        &mut self,
        _now: Now,
        resources: &[(AlterResource, Vec<WantedConfig>)],
        validate_only: bool,
    ) -> Decision<Result<(), Refusal>> {
        self.alter(resources, validate_only, |_, _, _, asked| {
            let mut wanted = Configs::new();
            for (name, value) in asked {
                let Some(value) = value else {
                    return Err(Refusal::new(
                        ErrorCode::InvalidRequest,
                        format!("Null value not supported for config {}", name.escape_debug()),
                    ));
                };
                wanted.insert(name.clone(), value.clone());
            }
            Ok(wanted)
        })
    }

    fn alter<T>(
        &self,
        resources: &[(AlterResource, Vec<T>)],
        validate_only: bool,
        wanted: impl Fn(&Controller, &ConfigResource, &Configs, &[T]) -> Result<Configs, Refusal>,
    ) -> Decision<Result<(), Refusal>> {
        let mut decision = Decision { records: Vec::new(), results: Vec::with_capacity(resources.len()) };
        let mut count = BTreeMap::<&AlterResource, u32>::new();
        resources.iter().for_each(|(resource, _)| *count.entry(resource).or_default() += 1);
        for (resource, asked) in resources {
            let altered = if count[resource] > 1 {
                Err(Refusal::new(ErrorCode::InvalidRequest, "Each resource must appear at most once."))
            } else {
                self.resource(resource).and_then(|(target, current)| {
                    let wanted = self.check(&target, wanted(self, &target, &current, asked)?)?;
                    Ok(difference(&target, &current, &wanted))
                })
            };
            decision.results.push(altered.map(|records| {
                if !validate_only {
                    decision.records.extend(records);
                }
            }));
        }
        decision
    }

    /// The resource and its present configs.
    fn resource(&self, resource: &AlterResource) -> Result<(ConfigResource, Configs), Refusal> {
        match resource.kind {
            2 => match self.image.topic(&resource.name) {
                Some(topic) => Ok((ConfigResource::Topic(topic.id), topic.configs.clone())),
                None => Err(missing_topic(&resource.name)),
            },
            4 => {
                let broker = match resource.name.as_str() {
                    "" => None,
                    id => Some(id.parse().map(BrokerId).map_err(|_| {
                        Refusal::new(
                            ErrorCode::InvalidRequest,
                            format!("Unable to parse broker name as a base 10 number: {}", id.escape_debug()),
                        )
                    })?),
                };
                if let Some(broker) = broker.filter(|broker| !self.image.brokers.contains_key(broker)) {
                    let message = format!("There is no broker {}.", broker.0);
                    return Err(Refusal::new(ErrorCode::InvalidRequest, message));
                }
                let key = broker.map_or(String::new(), |broker| broker.0.to_string());
                let current = self.image.broker_configs.get(&key).cloned().unwrap_or_default();
                Ok((ConfigResource::Broker(broker), current))
            }
            32 => {
                let name = resource.name.as_str();
                if name.is_empty() || name.len() > GROUP_NAME_BYTES_MAX {
                    let message = format!("A group's name of 1 to {GROUP_NAME_BYTES_MAX} bytes is needed.");
                    return Err(Refusal::new(ErrorCode::InvalidRequest, message));
                }
                let current = self.image.group_configs.get(name);
                Ok((ConfigResource::Group(name.into()), current.map(|found| (**found).clone()).unwrap_or_default()))
            }
            kind => Err(Refusal::new(
                ErrorCode::InvalidRequest,
                format!(
                    "Configs of resource type {kind} can't be altered here; allowed are 2 topic, 4 broker, 32 group"
                ),
            )),
        }
    }

    fn changed(&self, target: &ConfigResource, current: &Configs, asked: &[AlterConfig]) -> Result<Configs, Refusal> {
        let mut wanted = current.clone();
        let mut seen = BTreeMap::<&str, ()>::new();
        for alter in asked {
            let name = alter.name.as_str();
            if seen.insert(name, ()).is_some() {
                return Err(Refusal::new(
                    ErrorCode::InvalidRequest,
                    format!("Error due to duplicate config keys: {}", name.escape_debug()),
                ));
            }
            match &alter.operation {
                AlterOperation::Delete => drop(wanted.remove(name)),
                AlterOperation::Set(Some(value)) => drop(wanted.insert(name.to_owned(), value.clone())),
                AlterOperation::Append(Some(value)) => {
                    let list = self.list(target, current, name)?;
                    let mut list: Vec<&str> = items(&list).collect();
                    for one in items(value) {
                        if !list.contains(&one) {
                            list.push(one);
                        }
                    }
                    wanted.insert(name.to_owned(), list.join(","));
                }
                AlterOperation::Subtract(Some(value)) => {
                    let list = self.list(target, current, name)?;
                    let less: Vec<&str> = items(value).collect();
                    let left: Vec<&str> = items(&list).filter(|one| !less.contains(one)).collect();
                    wanted.insert(name.to_owned(), left.join(","));
                }
                AlterOperation::Set(None) | AlterOperation::Append(None) | AlterOperation::Subtract(None) => {
                    return Err(Refusal::new(
                        ErrorCode::InvalidRequest,
                        format!("Null value not supported for config {}", name.escape_debug()),
                    ));
                }
                AlterOperation::Unknown(operation) => {
                    return Err(Refusal::new(
                        ErrorCode::InvalidRequest,
                        format!("Unknown operation {operation}; allowed are 0 set, 1 delete, 2 append, 3 subtract"),
                    ));
                }
            }
        }
        Ok(wanted)
    }

    /// The list that an append or subtract starts from: what was set, else what holds without it.
    fn list(&self, target: &ConfigResource, current: &Configs, name: &str) -> Result<String, Refusal> {
        let definition = match target {
            ConfigResource::Topic(_) => topic_definition(name).map(|found| &found.definition),
            ConfigResource::Broker(_) => broker_definition(name),
            ConfigResource::Group(_) => group_definition(name).map(|found| &found.definition),
        };
        match definition {
            Some(found) if found.kind != Kind::List => Err(Refusal::new(
                ErrorCode::InvalidConfig,
                format!("Can't append to or subtract from {name}: it is not a list"),
            )),
            Some(found) => Ok(match (current.get(name), target) {
                (Some(value), _) => value.clone(),
                (None, ConfigResource::Topic(_)) => self.layers().topic_value(&Configs::new(), name),
                (None, ConfigResource::Group(_)) => found.default.unwrap_or_default().to_owned(),
                (None, ConfigResource::Broker(_)) => {
                    let given = self.config.properties.given(name).or(found.default);
                    given.unwrap_or_default().to_owned()
                }
            }),
            // `check` says what is wrong with the name.
            None => Ok(String::new()),
        }
    }

    fn check(&self, target: &ConfigResource, wanted: Configs) -> Result<Configs, Refusal> {
        match target {
            ConfigResource::Topic(_) => check_overrides(&self.layers(), &wanted)
                .map_err(|message| Refusal::new(ErrorCode::InvalidConfig, message)),
            ConfigResource::Group(group) => {
                let most = self.config.limits.group_configs_max as usize;
                let is_new = !wanted.is_empty() && !self.image.group_configs.contains_key(group.as_str());
                if is_new && self.image.group_configs.len() >= most {
                    let message = format!("{most} groups have configs of their own, as many as may have");
                    return Err(Refusal::new(ErrorCode::PolicyViolation, message));
                }
                check_group(&self.layers(), &wanted).map_err(|message| Refusal::new(ErrorCode::InvalidConfig, message))
            }
            ConfigResource::Broker(_) => {
                wanted.into_iter().map(|(name, value)| Ok((name.clone(), check_broker(&name, &value)?))).collect()
            }
        }
    }
}

fn missing_topic(name: &str) -> Refusal {
    if name.is_empty() {
        return Refusal::new(ErrorCode::InvalidRequest, "A topic's name is needed: topics have no default resource.");
    }
    match check_topic_name(name) {
        Err(message) => Refusal::new(ErrorCode::InvalidTopicException, message),
        Ok(()) => Refusal::new(ErrorCode::UnknownTopicOrPartition, format!("The topic '{name}' does not exist.")),
    }
}

/// A broker config that is changed while it runs. Kafka's code for all that is wrong with one is 42, where a topic's is 40.
fn check_broker(name: &str, value: &str) -> Result<String, Refusal> {
    let found: &Definition = broker_definition(name).ok_or_else(|| {
        let message = format!("Unknown broker config {}", name.escape_debug());
        Refusal::new(ErrorCode::InvalidRequest, message)
    })?;
    if !found.dynamic {
        return Err(Refusal::new(
            ErrorCode::InvalidRequest,
            format!("Cannot update {name} while the broker runs: set it in the properties and restart"),
        ));
    }
    found.check(value).map_err(|message| Refusal::new(ErrorCode::InvalidRequest, message))
}

fn difference(target: &ConfigResource, current: &Configs, wanted: &Configs) -> Vec<Record> {
    let record = |name: &String, value: Option<&String>| Record::Config {
        resource: target.clone(),
        name: name.clone(),
        value: value.cloned(),
    };
    let gone = current.keys().filter(|name| !wanted.contains_key(*name)).map(|name| record(name, None));
    let set = wanted.iter().filter(|(name, value)| current.get(*name) != Some(*value));
    gone.chain(set.map(|(name, value)| record(name, Some(value)))).collect()
}
