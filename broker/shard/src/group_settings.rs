//! What the coordinators of one shard are made with: Kafka's settings, and bounds by the shard's memory and the log's segments.

use std::sync::Arc;

use ringmain_group::{Assignor, GroupConfig, GroupLimits, Migration};
use ringmain_metadata::BrokerConfig;
use ringmain_types::*;

/// A batch is made in one turn.
const BATCH_BYTES_MAX: u64 = 48 << 20;
/// More than a batch's header takes.
const HEADER_BYTES: u32 = 4096;
const GROUP_BYTES_MAX: u32 = 16 << 20;
const MEMBER_BYTES_MAX: u32 = 1 << 20;

/// What holds for one of so many coordinators, with segments of this size: a shard's bounds are dealt to them, twice its share to each,
/// because ids don't fall evenly.
pub(crate) fn share(config: &GroupConfig, coordinators: usize, segment_bytes: u32) -> Arc<GroupConfig> {
    let coordinators = coordinators.max(1) as u32;
    let mut config = config.clone();
    let limits = &mut config.limits;
    limits.groups_max = (limits.groups_max / coordinators).saturating_mul(2).clamp(1, limits.groups_max);
    limits.state_bytes_max = (limits.state_bytes_max / u64::from(coordinators) * 2).min(limits.state_bytes_max);
    limits.batch_bytes_max = limits.batch_bytes_max.min(segment_bytes.saturating_sub(HEADER_BYTES));
    // A generation is one batch: what all members say of themselves, what all are assigned, and what is around it.
    limits.group_bytes_max = (limits.batch_bytes_max / 3).min(GROUP_BYTES_MAX);
    limits.member_bytes_max = (limits.batch_bytes_max / 4).min(MEMBER_BYTES_MAX);
    Arc::new(config)
}

pub(crate) fn group_config(properties: &BrokerConfig, limits: &Limits) -> GroupConfig {
    fn number<T: std::str::FromStr>(properties: &BrokerConfig, name: &str, otherwise: T) -> T {
        properties.value(name).parse().unwrap_or(otherwise)
    }
    let defaults = GroupConfig::default();
    let assignors: Vec<Assignor> = properties
        .value("group.consumer.assignors")
        .split(',')
        .filter_map(|name| Assignor::parse(name.trim()))
        .collect();
    GroupConfig {
        min_session_timeout_ms: number(properties, "group.min.session.timeout.ms", defaults.min_session_timeout_ms),
        max_session_timeout_ms: number(properties, "group.max.session.timeout.ms", defaults.max_session_timeout_ms),
        initial_rebalance_delay_ms: number(
            properties,
            "group.initial.rebalance.delay.ms",
            defaults.initial_rebalance_delay_ms,
        ),
        max_size: number(properties, "group.max.size", defaults.max_size),
        offset_metadata_max_bytes: number(properties, "offset.metadata.max.bytes", defaults.offset_metadata_max_bytes),
        offsets_retention_ms: number(properties, "offsets.retention.minutes", 10_080i64).saturating_mul(60_000),
        offsets_retention_check_ms: number(
            properties,
            "offsets.retention.check.interval.ms",
            defaults.offsets_retention_check_ms,
        ),
        consumer_session_timeout_ms: number(
            properties,
            "group.consumer.session.timeout.ms",
            defaults.consumer_session_timeout_ms,
        ),
        consumer_heartbeat_interval_ms: number(
            properties,
            "group.consumer.heartbeat.interval.ms",
            defaults.consumer_heartbeat_interval_ms,
        ),
        consumer_max_size: number(properties, "group.consumer.max.size", defaults.consumer_max_size),
        consumer_assignment_interval_ms: number(
            properties,
            "group.consumer.assignment.interval.ms",
            defaults.consumer_assignment_interval_ms,
        ),
        consumer_regex_refresh_ms: defaults.consumer_regex_refresh_ms,
        consumer_assignors: if assignors.is_empty() { defaults.consumer_assignors } else { assignors },
        migration: Migration::parse(properties.value("group.consumer.migration.policy")).unwrap_or(defaults.migration),
        limits: GroupLimits {
            groups_max: limits.groups_max,
            members_max: limits.group_members_max,
            offsets_max: limits.group_offsets_max,
            state_bytes_max: limits.group_state_bytes_max,
            expired_max: limits.group_expired_max,
            targets_max: limits.group_targets_max,
            removed_max: limits.group_removed_max,
            // Of what else there is room for a part at a time.
            batch_bytes_max: (limits.memory_bytes[Account::Control as usize] / 2).min(BATCH_BYTES_MAX) as u32,
            ..defaults.limits
        },
    }
}
