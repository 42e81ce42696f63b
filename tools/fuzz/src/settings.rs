//! What people write: files of properties, and the values of configs.

use std::collections::BTreeMap;

use ringmain_metadata::config::{self, BrokerConfig, Layers};
use ringmain_metadata::{ClusterImage, check_topic_name};
use ringmain_types::{BrokerId, Limits};

use crate::allocations::within;
use crate::input::Input;
use crate::properties;

/// Messages name what is allowed: each wrong name gets the list of all.
const WORDS_BYTES: usize = 16 << 10;

/// 0: a server.properties. 1 to 3: a broker's, topic's or group's config by its number, and a value. 4: a topic's name.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let kind = input.byte() % 5;
    match kind {
        0 => {
            if let Ok(text) = std::str::from_utf8(input.rest()) {
                file(text);
            }
        }
        4 => {
            if let Ok(name) = std::str::from_utf8(input.rest()) {
                let _ = within(name.len(), WORDS_BYTES, || check_topic_name(name));
            }
        }
        _ => {
            let number = input.byte();
            if let Ok(value) = std::str::from_utf8(input.rest()) {
                one(kind, usize::from(number), value);
            }
        }
    }
}

fn file(text: &str) {
    // Lines are joined, split and unescaped: three copies, and two texts a line.
    let Ok(pairs) = within(text.len() * 16, WORDS_BYTES, || properties::parse(text)) else { return };
    let written: String = pairs.iter().map(|(name, value)| format!("{}={}\n", escaped(name), escaped(value))).collect();
    assert_eq!(properties::parse(&written).as_ref(), Ok(&pairs));
    let given: BTreeMap<String, String> = pairs.into_iter().collect();
    let words = given.len() * WORDS_BYTES;
    if let Ok(config) = within(text.len() * 8, words + WORDS_BYTES, || BrokerConfig::parse(&given)) {
        // The relations between the limits are asserted at the start.
        config.bound(Limits::tiny(), 3).check();
        config.bound(Limits::production(1 << 30), 3).check();
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0c' => out.push_str("\\f"),
            ' ' | '=' | ':' | '#' | '!' | '\\' => out.extend(['\\', c]),
            _ => out.push(c),
        }
    }
    out
}

/// A value alone, and in the place where it comes to count.
fn one(kind: u8, number: usize, value: &str) {
    let definition = match kind {
        1 => &config::broker_definitions()[number % config::broker_definitions().len()],
        2 => &config::topic_definitions()[number % config::topic_definitions().len()].definition,
        _ => &config::group_definitions()[number % config::group_definitions().len()].definition,
    };
    let checked = within(value.len(), WORDS_BYTES, || definition.check(value));
    if let Ok(kept) = &checked {
        assert_eq!(definition.check(kept).as_ref(), Ok(kept), "{}", definition.name);
    }
    let given = BTreeMap::from([(definition.name.to_owned(), value.to_owned())]);
    let image = ClusterImage::default();
    match kind {
        1 => {
            if let Ok(config) = BrokerConfig::parse(&given) {
                config.bound(Limits::tiny(), 3).check();
                let layers = Layers::new(&image, &config, BrokerId(1));
                let _ = config::TopicConfig::resolve(&layers, &BTreeMap::new());
                let _ = config::GroupSettings::resolve(&layers, &BTreeMap::new());
            }
        }
        2 => {
            let broker = BrokerConfig::default();
            let layers = Layers::new(&image, &broker, BrokerId(1));
            if let Ok(kept) = config::check_overrides(&layers, &given) {
                assert_eq!(config::check_overrides(&layers, &kept).as_ref(), Ok(&kept));
                let _ = layers.topic_entries(&kept);
            }
        }
        _ => {
            let broker = BrokerConfig::default();
            let layers = Layers::new(&image, &broker, BrokerId(1));
            if let Ok(kept) = config::check_group(&layers, &given) {
                assert_eq!(config::check_group(&layers, &kept).as_ref(), Ok(&kept));
                let _ = layers.group_entries(&kept);
            }
        }
    }
}
