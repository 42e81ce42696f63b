//! What users set, by Kafka's names, and what bounds a coordinator.

use crate::assignor::Assignor;

/// Which groups may change their protocol while they have members (`group.consumer.migration.policy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migration {
    Disabled,
    Upgrade,
    Downgrade,
    Bidirectional,
}

impl Migration {
    /// Kafka's words, in any case.
    pub fn parse(text: &str) -> Option<Migration> {
        match text.to_ascii_lowercase().as_str() {
            "disabled" => Some(Migration::Disabled),
            "upgrade" => Some(Migration::Upgrade),
            "downgrade" => Some(Migration::Downgrade),
            "bidirectional" => Some(Migration::Bidirectional),
            _ => None,
        }
    }

    pub(crate) fn upgrades(self) -> bool {
        matches!(self, Migration::Upgrade | Migration::Bidirectional)
    }

    pub(crate) fn downgrades(self) -> bool {
        matches!(self, Migration::Downgrade | Migration::Bidirectional)
    }
}

/// Defaults are Kafka 4.4's.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// `group.min.session.timeout.ms`
    pub min_session_timeout_ms: i32,
    /// `group.max.session.timeout.ms`
    pub max_session_timeout_ms: i32,
    /// `group.initial.rebalance.delay.ms`
    pub initial_rebalance_delay_ms: i32,
    /// `group.max.size`
    pub max_size: u32,
    /// `offset.metadata.max.bytes`
    pub offset_metadata_max_bytes: u32,
    /// `offsets.retention.minutes`
    pub offsets_retention_ms: i64,
    /// `offsets.retention.check.interval.ms`
    pub offsets_retention_check_ms: u64,
    /// `group.consumer.session.timeout.ms`
    pub consumer_session_timeout_ms: i32,
    /// `group.consumer.heartbeat.interval.ms`
    pub consumer_heartbeat_interval_ms: i32,
    /// `group.consumer.max.size`
    pub consumer_max_size: u32,
    /// `group.consumer.assignment.interval.ms`: no new assignment sooner after the last one.
    pub consumer_assignment_interval_ms: i64,
    /// `group.consumer.regex.refresh.interval.ms`
    pub consumer_regex_refresh_ms: i64,
    /// `group.consumer.assignors`; the first is the default.
    pub consumer_assignors: Vec<Assignor>,
    pub migration: Migration,
    pub limits: GroupLimits,
}

/// Bounds that Kafka has not; a request beyond one is refused with a code that clients show.
#[derive(Clone, Debug)]
pub struct GroupLimits {
    /// Groups of one partition of `__consumer_offsets`, its share of what a shard may have: a million distinct ids must not fill the memory.
    pub groups_max: u32,
    /// Members of one group, those without an id of their own yet included.
    pub members_max: u32,
    /// Committed offsets of one group.
    pub offsets_max: u32,
    /// All that one member says of its protocols.
    pub member_bytes_max: u32,
    /// All assignments of one generation, and all protocols of one group's members.
    pub group_bytes_max: u32,
    /// Records that only hold together: one batch of the log.
    pub batch_bytes_max: u32,
    /// Topics and partitions that a KIP-848 member may name.
    pub subscription_max: u32,
    /// What a compiled regular expression may take.
    pub regex_bytes_max: u32,
    /// A group's id.
    pub id_bytes_max: u32,
    /// About what all groups of this coordinator may take in memory. Beyond it nothing is taken in that makes it more.
    pub state_bytes_max: u64,
    /// Groups that are looked after at once when their time is up.
    pub expired_max: u32,
    /// Offsets that are taken away at once.
    pub removed_max: u32,
    /// Members of one KIP-848 group whose target is written at once; the others' in the turns to come.
    pub targets_max: u32,
}

impl Default for GroupLimits {
    fn default() -> Self {
        GroupLimits {
            groups_max: 100_000,
            members_max: 10_000,
            offsets_max: 1_000_000,
            member_bytes_max: 1 << 20,
            group_bytes_max: 16 << 20,
            batch_bytes_max: 48 << 20,
            subscription_max: 100_000,
            regex_bytes_max: 1 << 20,
            id_bytes_max: 1024,
            state_bytes_max: 1 << 30,
            expired_max: 64,
            removed_max: 1000,
            targets_max: 100,
        }
    }
}

impl GroupConfig {
    /// What holds for a group with configs of its own.
    pub(crate) fn with(&self, own: crate::GroupOverrides) -> GroupConfig {
        GroupConfig {
            consumer_session_timeout_ms: own.session_timeout_ms,
            consumer_heartbeat_interval_ms: own.heartbeat_interval_ms,
            consumer_assignment_interval_ms: own.assignment_interval_ms.into(),
            ..self.clone()
        }
    }
}

impl Default for GroupConfig {
    fn default() -> Self {
        GroupConfig {
            min_session_timeout_ms: 6_000,
            max_session_timeout_ms: 1_800_000,
            initial_rebalance_delay_ms: 3_000,
            max_size: i32::MAX as u32,
            offset_metadata_max_bytes: 4096,
            offsets_retention_ms: 10_080 * 60_000,
            offsets_retention_check_ms: 600_000,
            consumer_session_timeout_ms: 45_000,
            consumer_heartbeat_interval_ms: 5_000,
            consumer_max_size: i32::MAX as u32,
            consumer_assignment_interval_ms: 1_000,
            consumer_regex_refresh_ms: 600_000,
            consumer_assignors: vec![Assignor::Uniform, Assignor::Range],
            migration: Migration::Bidirectional,
            limits: GroupLimits::default(),
        }
    }
}
