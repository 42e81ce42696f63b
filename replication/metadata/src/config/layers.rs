//! Where a config's value comes from: a topic's overrides, one broker's dynamic configs, those of all brokers, the properties it was
//! started with, the default. The first that has it wins; of several names in one layer, the most exact.

use std::collections::BTreeMap;

use ringmain_types::BrokerId;

use super::broker::{self, BrokerConfig};
use super::definition::{Definition, Kind};
use super::group_table::{self, GroupDefinition};
use super::topic_table::{self, Scale, TopicDefinition};
use crate::image::ClusterImage;

/// The discriminant is DescribeConfigs' `ConfigSource`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum Source {
    Topic = 1,
    DynamicBroker = 2,
    DynamicDefaultBroker = 3,
    StaticBroker = 4,
    Default = 5,
    Group = 8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synonym {
    pub name: &'static str,
    /// `None` when it is null, or must not be shown.
    pub value: Option<String>,
    pub source: Source,
}

/// One config as DescribeConfigs shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: &'static str,
    /// `None` when it is null, or must not be shown.
    pub value: Option<String>,
    pub source: Source,
    pub kind: Kind,
    pub read_only: bool,
    pub sensitive: bool,
    /// The value's own source first, then what it hides.
    pub synonyms: Vec<Synonym>,
    pub documentation: &'static str,
}

/// Everything below a topic's overrides.
#[derive(Clone, Debug)]
pub struct Layers<'a> {
    image: &'a ClusterImage,
    properties: &'a BrokerConfig,
    broker: String,
}

impl<'a> Layers<'a> {
    pub fn new(image: &'a ClusterImage, properties: &'a BrokerConfig, broker: BrokerId) -> Layers<'a> {
        Layers { image, properties, broker: broker.0.to_string() }
    }

    /// What `name` is worth for a topic with these overrides; "" for an unknown name.
    pub fn topic_value(&self, overrides: &BTreeMap<String, String>, name: &str) -> String {
        let Some(found) = topic_table::definition(name) else { return String::new() };
        if let Some(value) = overrides.get(name).and_then(|value| found.definition.check(value).ok()) {
            return value;
        }
        self.inherited(found).0
    }

    /// What the broker config `name` is worth; "" for an unknown name and for null.
    pub fn broker_value(&self, name: &str) -> String {
        let Some(found) = broker::definition(name) else { return String::new() };
        let value = self.set(name).find_map(|(value, _)| found.check(value).ok());
        value.unwrap_or_else(|| found.default.unwrap_or_default().to_owned())
    }

    /// A topic config's value without overrides, and where it is set. What a layer holds was checked when it was put there; a value
    /// that does not check (a newer version's) is passed over.
    fn inherited(&self, found: &TopicDefinition) -> (String, Source) {
        for (name, scale) in found.from {
            for (value, source) in self.set(name) {
                let scaled = scale_up(value, *scale);
                if let Ok(value) = found.definition.check(&scaled) {
                    return (value, source);
                }
            }
        }
        (found.definition.default.unwrap_or_default().to_owned(), Source::Default)
    }

    /// A group config's value, and where it is set.
    pub(crate) fn group_value(
        &self,
        overrides: &BTreeMap<String, String>,
        found: &GroupDefinition,
    ) -> (String, Source) {
        let own = overrides.get(found.definition.name).map(|value| (&**value, Source::Group));
        let inherited = found.from.and_then(|name| self.set(name).next());
        match own.or(inherited) {
            Some((value, source)) => (value.to_owned(), source),
            None => (found.definition.default.unwrap_or_default().to_owned(), Source::Default),
        }
    }

    pub fn group_entries(&self, overrides: &BTreeMap<String, String>) -> Vec<Entry> {
        group_table::definitions().iter().map(|found| self.group_entry(overrides, found)).collect()
    }

    fn group_entry(&self, overrides: &BTreeMap<String, String>, found: &'static GroupDefinition) -> Entry {
        let definition = &found.definition;
        let (value, source) = self.group_value(overrides, found);
        let mut synonyms = Vec::new();
        if source == Source::Group {
            synonyms.push(Synonym { name: definition.name, value: Some(value.clone()), source });
        }
        if let Some(name) = found.from {
            let set = self.set(name).map(|(value, source)| Synonym { name, value: Some(value.into()), source });
            synonyms.extend(set);
            synonyms.extend(broker::definition(name).and_then(default_of));
        }
        let known = source != Source::Default || definition.default.is_some();
        let value = known.then(|| shown(definition, &value));
        Entry { synonyms, ..self.entry(definition, value, source) }
    }

    /// What was set for the broker config `name`, the strongest first.
    fn set(&self, name: &str) -> impl Iterator<Item = (&str, Source)> {
        let layers = [
            (self.image.dynamic(&self.broker, name), Source::DynamicBroker),
            (self.image.dynamic("", name), Source::DynamicDefaultBroker),
            (self.properties.given(name), Source::StaticBroker),
        ];
        layers.into_iter().filter_map(|(value, source)| Some((value?, source)))
    }

    pub fn topic_entries(&self, overrides: &BTreeMap<String, String>) -> Vec<Entry> {
        topic_table::definitions().iter().map(|found| self.topic_entry(overrides, found)).collect()
    }

    fn topic_entry(&self, overrides: &BTreeMap<String, String>, found: &TopicDefinition) -> Entry {
        let definition = &found.definition;
        let (value, source) = match overrides.get(definition.name) {
            Some(value) => (value.clone(), Source::Topic),
            None => self.inherited(found),
        };
        let mut synonyms = Vec::new();
        if source == Source::Topic {
            synonyms.push(Synonym { name: definition.name, value: Some(value.clone()), source });
        }
        for layer in [Source::DynamicBroker, Source::DynamicDefaultBroker, Source::StaticBroker] {
            for (name, _) in found.from {
                let set = self.set(name).find(|(_, source)| *source == layer);
                synonyms.extend(set.map(|(value, source)| Synonym { name, value: Some(value.into()), source }));
            }
        }
        synonyms.extend(found.from.first().and_then(|(name, _)| default_of(broker::definition(name)?)));
        Entry {
            name: definition.name,
            value: Some(shown(definition, &value)),
            source,
            kind: definition.kind,
            read_only: false,
            sensitive: false,
            synonyms,
            documentation: definition.documentation,
        }
    }

    /// All configs of this broker.
    pub fn broker_entries(&self) -> Vec<Entry> {
        broker::definitions().iter().map(|definition| self.broker_entry(definition)).collect()
    }

    fn broker_entry(&self, definition: &'static Definition) -> Entry {
        let hide = |value: &str| (!definition.sensitive()).then(|| shown(definition, value));
        let mut synonyms: Vec<Synonym> = self
            .set(definition.name)
            .map(|(value, source)| Synonym { name: definition.name, value: hide(value), source })
            .collect();
        synonyms.extend(default_of(definition));
        let (value, source) = match synonyms.first() {
            Some(first) => (first.value.clone(), first.source),
            None => (None, Source::Default),
        };
        Entry { synonyms, ..self.entry(definition, value, source) }
    }

    /// What was set for all brokers while they ran: DescribeConfigs of the broker "".
    pub fn default_broker_entries(&self) -> Vec<Entry> {
        let Some(set) = self.image.broker_configs.get("") else { return Vec::new() };
        let found = set.iter().filter_map(|(name, value)| Some((broker::definition(name)?, value)));
        found
            .map(|(definition, value)| {
                let value = (!definition.sensitive()).then(|| shown(definition, value));
                let source = Source::DynamicDefaultBroker;
                let mut synonyms = vec![Synonym { name: definition.name, value: value.clone(), source }];
                synonyms.extend(default_of(definition));
                Entry { synonyms, ..self.entry(definition, value, source) }
            })
            .collect()
    }

    fn entry(&self, definition: &'static Definition, value: Option<String>, source: Source) -> Entry {
        Entry {
            name: definition.name,
            value,
            source,
            kind: definition.kind,
            read_only: !definition.dynamic,
            sensitive: definition.sensitive(),
            synonyms: Vec::new(),
            documentation: match definition.documentation {
                "" => "Accepted and kept; has no effect in this version.",
                words => words,
            },
        }
    }
}

fn default_of(definition: &'static Definition) -> Option<Synonym> {
    let value = definition.default?;
    let hidden = definition.sensitive();
    Some(Synonym { name: definition.name, value: (!hidden).then(|| value.to_owned()), source: Source::Default })
}

/// Kafka prints booleans in lower case, whatever was given.
fn shown(definition: &Definition, value: &str) -> String {
    if definition.kind == Kind::Boolean { value.to_ascii_lowercase() } else { value.to_owned() }
}

/// A negative time is for ever, as in Kafka.
fn scale_up(value: &str, scale: Scale) -> String {
    let factor = match scale {
        Scale::Same => return value.to_owned(),
        Scale::Minutes => 60_000,
        Scale::Hours => 3_600_000,
    };
    match value.parse::<i64>() {
        Ok(number) if number < 0 => "-1".to_owned(),
        Ok(number) => number.saturating_mul(factor).to_string(),
        Err(_) => value.to_owned(),
    }
}
