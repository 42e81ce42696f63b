//! One topic's configs, typed.

use std::collections::BTreeMap;

use super::definition::items;
use super::topic_table::definition;
use super::{Layers, Source};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    Producer,
    Uncompressed,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    CreateTime,
    LogAppendTime,
}

/// Ringmain's own `flush`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    Group,
    Async,
}

/// What a topic's configs are worth: overrides, the broker's dynamic configs, its properties, defaults, in this order.
/// Milliseconds and bytes where the name says so; -1 is no bound where Kafka has it.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicConfig {
    /// `cleanup.policy` has `delete`: retention deletes.
    pub delete: bool,
    /// `cleanup.policy` has `compact`: records need a key.
    pub compact: bool,
    pub compression: Compression,
    /// Of that codec, where its encoder has levels.
    pub compression_level: Option<i32>,
    pub delete_retention_ms: i64,
    pub flush: Flush,
    pub index_interval_bytes: u32,
    pub max_compaction_lag_ms: i64,
    pub min_compaction_lag_ms: i64,
    pub max_message_bytes: u32,
    pub min_cleanable_dirty_ratio: f64,
    pub timestamp_type: TimestampType,
    pub timestamp_after_max_ms: i64,
    pub timestamp_before_max_ms: i64,
    pub min_insync_replicas: u32,
    pub retention_bytes: i64,
    pub retention_ms: i64,
    pub segment_bytes: u32,
    pub segment_index_bytes: u32,
    pub segment_jitter_ms: u64,
    pub segment_ms: u64,
    pub remote_storage: bool,
    /// The broker's `producer.id.expiration.ms`.
    pub producer_expiration_ms: u64,
}

impl TopicConfig {
    pub fn resolve(layers: &Layers<'_>, overrides: &BTreeMap<String, String>) -> TopicConfig {
        let text = |name: &str| layers.topic_value(overrides, name);
        let long = |name: &str| text(name).parse::<i64>().unwrap_or_default();
        let natural = |name: &str| u32::try_from(long(name)).unwrap_or_default();
        let policy = text("cleanup.policy");
        TopicConfig {
            delete: items(&policy).any(|one| one == "delete"),
            compact: items(&policy).any(|one| one == "compact"),
            compression: match text("compression.type").as_str() {
                "uncompressed" => Compression::Uncompressed,
                "gzip" => Compression::Gzip,
                "snappy" => Compression::Snappy,
                "lz4" => Compression::Lz4,
                "zstd" => Compression::Zstd,
                _ => Compression::Producer,
            },
            compression_level: match text("compression.type").as_str() {
                codec @ ("gzip" | "zstd") => text(&format!("compression.{codec}.level")).parse().ok(),
                _ => None,
            },
            delete_retention_ms: long("delete.retention.ms"),
            flush: if text("flush") == "async" { Flush::Async } else { Flush::Group },
            index_interval_bytes: natural("index.interval.bytes"),
            max_compaction_lag_ms: long("max.compaction.lag.ms"),
            min_compaction_lag_ms: long("min.compaction.lag.ms"),
            max_message_bytes: natural("max.message.bytes"),
            min_cleanable_dirty_ratio: text("min.cleanable.dirty.ratio").parse().unwrap_or(0.5),
            timestamp_type: match text("message.timestamp.type").as_str() {
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            timestamp_after_max_ms: long("message.timestamp.after.max.ms"),
            timestamp_before_max_ms: long("message.timestamp.before.max.ms"),
            min_insync_replicas: natural("min.insync.replicas"),
            retention_bytes: long("retention.bytes"),
            retention_ms: long("retention.ms"),
            segment_bytes: natural("segment.bytes"),
            segment_index_bytes: natural("segment.index.bytes"),
            segment_jitter_ms: u64::try_from(long("segment.jitter.ms")).unwrap_or_default(),
            segment_ms: u64::try_from(long("segment.ms")).unwrap_or(u64::MAX),
            remote_storage: text("remote.storage.enable").eq_ignore_ascii_case("true"),
            producer_expiration_ms: layers.broker_value("producer.id.expiration.ms").parse().unwrap_or(u64::MAX),
        }
    }

    /// What must hold between configs; the error names both and what to do.
    fn check(&self) -> Result<(), String> {
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms {
            return Err(format!(
                "conflict between min.compaction.lag.ms ({}) and max.compaction.lag.ms ({}): the first must not be greater",
                self.min_compaction_lag_ms, self.max_compaction_lag_ms
            ));
        }
        if self.remote_storage {
            return Err("remote.storage.enable=true: this broker has no remote storage; allowed is false".into());
        }
        Ok(())
    }
}

/// Checks a topic's overrides, each alone and all together, and gives them in kept form. The error is for the client.
pub fn check_overrides(
    layers: &Layers<'_>,
    overrides: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, String> {
    let mut kept = BTreeMap::new();
    for (name, value) in overrides {
        let Some(found) = definition(name) else { return Err(unknown(name)) };
        kept.insert(name.clone(), found.definition.check(value)?);
    }
    TopicConfig::resolve(layers, &kept).check()?;
    Ok(kept)
}

/// Names what was meant, if it is close, and where all are listed.
pub(crate) fn unknown(name: &str) -> String {
    let names = super::topic_definitions().iter().map(|one| one.definition.name);
    let close = nearest(name, names).map_or(String::new(), |close| format!("; did you mean {close}?"));
    let all: Vec<&str> = super::topic_definitions().iter().map(|one| one.definition.name).collect();
    format!("Unknown topic config name: {}{close} Allowed are {}", name.escape_debug(), all.join(", "))
}

/// The candidate within three edits (or a third of the length), if any.
pub(crate) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > 100 {
        return None;
    }
    candidates
        .map(|candidate| (distance(name.as_bytes(), candidate.as_bytes()), candidate))
        .min()
        .filter(|(edits, _)| *edits <= 3.min(name.len() / 3))
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (diagonal + usize::from(x != y)).min(above + 1).min(row[j] + 1);
            diagonal = above;
        }
    }
    row[b.len()]
}

/// Whether a value at this source was set by someone.
impl Source {
    pub fn is_set(self) -> bool {
        self != Source::Default
    }
}
