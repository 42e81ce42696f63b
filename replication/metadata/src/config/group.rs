//! One group's configs, typed.

use std::collections::BTreeMap;

use super::Layers;
use super::group_table::{GroupDefinition, definition, definitions};
use super::topic::nearest;

/// What a KIP-848 group's configs are worth: its own, the broker's dynamic configs, its properties, defaults, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    pub session_timeout_ms: i32,
    pub heartbeat_interval_ms: i32,
    pub assignment_interval_ms: i32,
}

impl GroupSettings {
    /// A value that the broker's bounds have overtaken since it was set counts as the nearest allowed one, as on Kafka.
    pub fn resolve(layers: &Layers<'_>, overrides: &BTreeMap<String, String>) -> GroupSettings {
        let number = |name: &str| {
            let Some(found) = definition(name) else { return 0 };
            let value = layers.group_value(overrides, found).0.parse().unwrap_or_default();
            let (least, most) = bounds(layers, found);
            i64::clamp(value, least, most.max(least)) as i32
        };
        GroupSettings {
            session_timeout_ms: number("consumer.session.timeout.ms"),
            heartbeat_interval_ms: number("consumer.heartbeat.interval.ms"),
            assignment_interval_ms: number("consumer.assignment.interval.ms"),
        }
    }
}

/// What the broker allows, in the range of the config's type.
fn bounds(layers: &Layers<'_>, found: &GroupDefinition) -> (i64, i64) {
    let number = |name: &str| layers.broker_value(name).parse().ok();
    let (least, most) = found.bounds.map_or((None, None), |(least, most)| (number(least), number(most)));
    (least.unwrap_or(0), most.unwrap_or(i64::from(i32::MAX)))
}

/// Checks a group's configs, each alone and together, and gives them in kept form. The error is for the client.
pub fn check_group(
    layers: &Layers<'_>,
    overrides: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, String> {
    let mut kept = BTreeMap::new();
    for (name, value) in overrides {
        let Some(found) = definition(name) else { return Err(unknown(name)) };
        let value = found.definition.check(value)?;
        if let (Some((least_name, most_name)), Ok(number)) = (found.bounds, value.parse::<i64>()) {
            let (least, most) = bounds(layers, found);
            if number < least || number > most {
                return Err(format!("{name} must be from {least} ({least_name}) to {most} ({most_name})"));
            }
        }
        kept.insert(name.clone(), value);
    }
    let settings = GroupSettings::resolve(layers, &kept);
    if settings.session_timeout_ms <= settings.heartbeat_interval_ms {
        return Err(format!(
            "consumer.session.timeout.ms ({}) must be greater than consumer.heartbeat.interval.ms ({})",
            settings.session_timeout_ms, settings.heartbeat_interval_ms
        ));
    }
    Ok(kept)
}

fn unknown(name: &str) -> String {
    let names = || definitions().iter().map(|one| one.definition.name);
    let close = nearest(name, names()).map_or(String::new(), |close| format!("; did you mean {close}?"));
    let all: Vec<&str> = names().collect();
    format!("Unknown group config name: {}{close} Allowed are {}", name.escape_debug(), all.join(", "))
}
