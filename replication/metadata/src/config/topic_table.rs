//! Kafka 4.4's topic configs, by name, with the broker's configs that their defaults come from; and Ringmain's own `flush`.

use super::definition::{Definition, Kind, Rule};

/// How a broker config's number becomes the topic config's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    Same,
    Minutes,
    Hours,
}

#[derive(Clone, Copy, Debug)]
pub struct TopicDefinition {
    pub definition: Definition,
    /// Broker configs that give the default, the strongest first.
    pub from: &'static [(&'static str, Scale)],
}

const INT: i64 = i32::MAX as i64;
const LONG: i64 = i64::MAX;
const LONG_TEXT: &str = "9223372036854775807";
const AT_LEAST_0: Rule = Rule::Range(0, LONG);
const CODECS: &[&str] = &["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"];

/// The topic config called `name`.
pub fn definition(name: &str) -> Option<&'static TopicDefinition> {
    TOPIC.binary_search_by(|one| one.definition.name.cmp(name)).ok().map(|at| &TOPIC[at])
}

/// All of them, by rising name.
pub fn definitions() -> &'static [TopicDefinition] {
    TOPIC
}

const fn define(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    rule: Rule,
    effect: bool,
    from: &'static [(&'static str, Scale)],
    documentation: &'static str,
) -> TopicDefinition {
    TopicDefinition {
        definition: Definition { name, kind, default: Some(default), rule, dynamic: true, effect, documentation },
        from,
    }
}

use Kind::{Boolean, Double, Int, List, Long, String};
use Scale::{Hours, Minutes, Same};

/// By rising name.
#[rustfmt::skip]
const TOPIC: &[TopicDefinition] = &[
    define("cleanup.policy", List, "delete", Rule::EachOf(&["compact", "delete"]), true, &[("log.cleanup.policy", Same)],
        "What happens to old segments: delete them by age and size, compact them by key, or both."),
    define("compression.gzip.level", Int, "-1", Rule::GzipLevel, true, &[("compression.gzip.level", Same)],
        "The level when the broker compresses with gzip."),
    define("compression.lz4.level", Int, "9", Rule::Range(1, 17), false, &[("compression.lz4.level", Same)],
        "Accepted and kept; Ringmain's lz4 encoder has one level."),
    define("compression.type", String, "producer", Rule::OneOf(CODECS), true, &[("compression.type", Same)],
        "The codec of stored batches; producer keeps what the producer chose, anything else is compressed anew."),
    define("compression.zstd.level", Int, "3", Rule::Range(-131_072, 22), true, &[("compression.zstd.level", Same)],
        "The level when the broker compresses with zstd."),
    define("delete.retention.ms", Long, "86400000", AT_LEAST_0, false, &[("log.cleaner.delete.retention.ms", Same)],
        "How long compaction keeps a tombstone."),
    define("errors.deadletterqueue.group.enable", Boolean, "false", Rule::Any, false, &[],
        "Whether share groups may send what they could not process to a topic of its own."),
    define("file.delete.delay.ms", Long, "60000", AT_LEAST_0, false, &[("log.segment.delete.delay.ms", Same)],
        "How long a deleted segment's file is kept; Ringmain removes or reuses it at once."),
    define("flush", String, "group", Rule::OneOf(&["group", "async"]), true, &[],
        "Ringmain's own: group makes every record durable before it is acknowledged; async acknowledges first and flushes within 100 ms."),
    define("flush.messages", Long, LONG_TEXT, Rule::Range(1, LONG), false, &[("log.flush.interval.messages", Same)],
        "Records between flushes; Ringmain flushes before it acknowledges, see flush."),
    define("flush.ms", Long, LONG_TEXT, AT_LEAST_0, false,
        &[("log.flush.interval.ms", Same), ("log.flush.scheduler.interval.ms", Same)],
        "Time between flushes; Ringmain flushes before it acknowledges, see flush."),
    define("follower.replication.throttled.replicas", List, "", Rule::Throttled, false, &[],
        "Replicas whose catching up is throttled on followers."),
    define("index.interval.bytes", Int, "4096", Rule::Range(0, INT), true, &[("log.index.interval.bytes", Same)],
        "Bytes of a segment between two entries of its indexes."),
    define("leader.replication.throttled.replicas", List, "", Rule::Throttled, false, &[],
        "Replicas whose catching up is throttled on leaders."),
    define("local.retention.bytes", Long, "-2", Rule::Range(-2, LONG), false, &[("log.local.retention.bytes", Same)],
        "Bytes of a partition kept here once they are in remote storage; -2 is retention.bytes."),
    define("local.retention.ms", Long, "-2", Rule::Range(-2, LONG), false, &[("log.local.retention.ms", Same)],
        "How long a segment stays here once it is in remote storage; -2 is retention.ms."),
    define("max.compaction.lag.ms", Long, LONG_TEXT, Rule::Range(1, LONG), false,
        &[("log.cleaner.max.compaction.lag.ms", Same)], "A record older than this is due for compaction."),
    define("max.decompressed.message.bytes", Int, "2147483639", Rule::Range(1, 2_147_483_639), false,
        &[("max.decompressed.message.bytes", Same)], "The largest batch after decompression."),
    define("max.message.bytes", Int, "1048588", Rule::Range(0, INT), true, &[("message.max.bytes", Same)],
        "The largest batch, as it comes, with its header."),
    define("message.timestamp.after.max.ms", Long, "3600000", AT_LEAST_0, true,
        &[("log.message.timestamp.after.max.ms", Same)], "How far a record's timestamp may lie ahead of the broker's clock."),
    define("message.timestamp.before.max.ms", Long, LONG_TEXT, AT_LEAST_0, true,
        &[("log.message.timestamp.before.max.ms", Same)], "How far a record's timestamp may lie behind the broker's clock."),
    define("message.timestamp.type", String, "CreateTime", Rule::OneOf(&["CreateTime", "LogAppendTime"]), true,
        &[("log.message.timestamp.type", Same)], "Whether records keep the producer's time or get the broker's."),
    define("min.cleanable.dirty.ratio", Double, "0.5", Rule::Fraction(0.0, 1.0), false,
        &[("log.cleaner.min.cleanable.ratio", Same)], "The part of a log that must be uncompacted before it is compacted."),
    define("min.compaction.lag.ms", Long, "0", AT_LEAST_0, false, &[("log.cleaner.min.compaction.lag.ms", Same)],
        "A record younger than this is not compacted."),
    define("min.insync.replicas", Int, "1", Rule::Range(1, INT), true, &[("min.insync.replicas", Same)],
        "In-sync replicas that acks=all needs; never more than there are replicas."),
    define("preallocate", Boolean, "false", Rule::Any, false, &[("log.preallocate", Same)],
        "Whether segments are allocated ahead; Ringmain always does, in steps."),
    define("remote.copy.lag.bytes", Long, "-1", Rule::Range(-1, LONG), false, &[("log.remote.copy.lag.bytes", Same)],
        "Bytes that may wait for being copied to remote storage."),
    define("remote.copy.lag.ms", Long, "0", Rule::Range(-1, LONG), false, &[("log.remote.copy.lag.ms", Same)],
        "How long a segment may wait for being copied to remote storage."),
    define("remote.log.copy.disable", Boolean, "false", Rule::Any, false, &[],
        "Whether segments are no longer copied to remote storage."),
    define("remote.log.delete.on.disable", Boolean, "false", Rule::Any, false, &[],
        "Whether remote segments go when remote storage is disabled."),
    define("remote.storage.enable", Boolean, "false", Rule::Any, false, &[],
        "Whether old segments move to remote storage; refused until it exists."),
    define("retention.bytes", Long, "-1", Rule::Any, true, &[("log.retention.bytes", Same)],
        "Bytes that a partition keeps before its oldest segments are deleted; -1 is no bound."),
    define("retention.ms", Long, "604800000", Rule::Range(-1, LONG), true,
        &[("log.retention.ms", Same), ("log.retention.minutes", Minutes), ("log.retention.hours", Hours)],
        "How long records are kept before their segment is deleted; -1 is for ever."),
    define("segment.bytes", Int, "1073741824", Rule::Range(1_048_576, INT), true, &[("log.segment.bytes", Same)],
        "A segment of this size is closed and the next begun."),
    define("segment.index.bytes", Int, "10485760", Rule::Range(4, INT), true, &[("log.index.size.max.bytes", Same)],
        "A segment whose index is this large is closed."),
    define("segment.jitter.ms", Long, "0", AT_LEAST_0, true,
        &[("log.roll.jitter.ms", Same), ("log.roll.jitter.hours", Hours)],
        "At most so much earlier than segment.ms a segment is closed, so that not all close at once."),
    define("segment.ms", Long, "604800000", Rule::Range(1, LONG), true,
        &[("log.roll.ms", Same), ("log.roll.hours", Hours)], "A segment of this age is closed."),
    define("unclean.leader.election.enable", Boolean, "false", Rule::Any, false,
        &[("unclean.leader.election.enable", Same)], "Whether a replica that is not in sync may lead, losing records."),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_its_defaults_are_allowed() {
        assert!(TOPIC.windows(2).all(|pair| pair[0].definition.name < pair[1].definition.name));
        for one in TOPIC {
            assert!(one.definition.check(one.definition.default.unwrap()).is_ok(), "{}", one.definition.name);
            for (name, _) in one.from {
                assert!(super::super::broker_definition(name).is_some(), "{name}");
            }
        }
    }
}
