//! ConsumerGroupHeartbeat.

use std::collections::BTreeSet;
use std::sync::Arc;

use ringmain_types::*;
use ringmain_wire::ConsumerGroupHeartbeatRequest;

use super::{ConsumerGroup, LEAVES, LEAVES_STATIC, regex};
use crate::assignor::Assignor;
use crate::classic::{Turn, uuid};
use crate::record::{Assignment, MemberMetadata, Record};
use crate::{Client, Topics};

/// What a member is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    pub member: Arc<str>,
    pub epoch: i32,
    pub interval_ms: i32,
    /// `None` when it did not change.
    pub assignment: Option<Vec<(TopicId, Vec<i32>)>>,
}

/// Code and words.
pub(crate) type Refusal = (ErrorCode, String);

type Ask<'a> = ConsumerGroupHeartbeatRequest<'a>;

/// What holds whatever the group is.
pub(crate) fn check(ask: &Ask, client: &Client, config: &crate::GroupConfig) -> Result<(), Refusal> {
    let invalid = |text: &str| Err((ErrorCode::InvalidRequest, text.to_owned()));
    let blank = |text: &str| text.trim().is_empty();
    if blank(ask.group_id) {
        return invalid("GroupId can't be empty.");
    }
    if ask.group_id.len() > config.limits.id_bytes_max as usize {
        let text = format!("GroupId is longer than {} bytes.", config.limits.id_bytes_max);
        return Err((ErrorCode::InvalidGroupId, text));
    }
    if ask.instance_id.is_some_and(blank) {
        return invalid("InstanceId can't be empty.");
    }
    if ask.rack_id.is_some_and(blank) {
        return invalid("RackId can't be empty.");
    }
    if (client.version >= 1 || ask.member_epoch != 0) && blank(ask.member_id) {
        return invalid("MemberId can't be empty.");
    }
    match ask.member_epoch {
        0 => {
            if ask.rebalance_timeout_ms == -1 {
                return invalid("RebalanceTimeoutMs must be provided in first request.");
            }
            if ask.topic_partitions.as_ref().is_none_or(|owned| !owned.is_empty()) {
                return invalid("TopicPartitions must be empty when (re-)joining.");
            }
            // No names are an answer too: who looks for its topics itself (Java's Pattern) may join before it has found any.
            if ask.subscribed_topic_names.is_none() && ask.subscribed_topic_regex.is_none() {
                return invalid(
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
                );
            }
        }
        LEAVES_STATIC if ask.instance_id.is_none() => return invalid("InstanceId can't be null."),
        epoch if epoch < LEAVES_STATIC => return invalid("MemberEpoch is invalid."),
        _ => {}
    }
    let bound = config.limits.subscription_max as usize;
    let names = ask.subscribed_topic_names.as_ref().map_or(0, |names| names.len());
    let owned: usize = ask.topic_partitions.iter().flatten().map(|topic| topic.partitions.len()).sum();
    if names > bound || owned > bound {
        return invalid("A member may name at most as many topics and partitions as this broker allows.");
    }
    let assignor = ask.server_assignor;
    if assignor
        .is_some_and(|name| Assignor::parse(name).is_none_or(|assignor| !config.consumer_assignors.contains(&assignor)))
    {
        let names: Vec<&str> = config.consumer_assignors.iter().map(|assignor| assignor.name()).collect();
        let text = format!(
            "ServerAssignor {} is not supported. Supported assignors: {}.",
            assignor.unwrap_or_default(),
            names.join(", ")
        );
        return Err((ErrorCode::UnsupportedAssignor, text));
    }
    if let Some(pattern) = ask.subscribed_topic_regex.filter(|pattern| !pattern.is_empty())
        && let Err(error) = regex::compile(pattern, config.limits.regex_bytes_max as usize)
    {
        return Err((
            ErrorCode::InvalidRegularExpression,
            format!("SubscribedTopicRegex `{pattern}` is not valid: {error}"),
        ));
    }
    Ok(())
}

impl ConsumerGroup {
    /// The request was checked.
    pub(crate) fn heartbeat(
        &mut self,
        turn: &mut Turn,
        topics: &dyn Topics,
        ask: &Ask,
        client: &Client,
    ) -> Result<Heartbeat, Refusal> {
        if ask.member_epoch < 0 {
            return self.leave(turn, topics, ask);
        }
        let id: Arc<str> = match ask.member_id {
            "" => uuid(client.random).into(),
            id => id.into(),
        };
        let owned = ask.topic_partitions.as_ref().map(|owned| {
            let owned = owned.iter();
            owned
                .map(|topic| (topic.topic_id, topic.partitions.iter().map(|index| index.0).collect()))
                .collect::<Assignment>()
        });
        self.check_pattern(turn, topics, ask)?;
        let joins = ask.member_epoch == 0;
        let changed = if joins {
            self.enter(turn, &id, ask, client)?
        } else {
            self.check_epoch(&id, ask, owned.as_ref())?;
            let meta = self.meta(&id, ask, client);
            self.check_bytes(turn, &id, &meta)?;
            if turn.full && self.members.get(&id).is_some_and(|member| meta.bytes() > member.meta.bytes()) {
                let text = "This coordinator has no memory left for a larger subscription.".to_owned();
                return Err((ErrorCode::GroupMaxSizeReached, text));
            }
            self.update(turn, &id, meta)
        };
        // As on Kafka, topics by name do not wait for those of a new pattern: these come with the next heartbeat.
        let both = ask.subscribed_topic_regex.is_some()
            && ask.subscribed_topic_names.as_ref().is_some_and(|names| !names.is_empty());
        let matched = !(both && changed) && self.refresh_regexes(turn, topics);
        self.advance_epoch(turn, topics, changed || matched);
        self.update_target(turn, topics);
        let next = self.next_step(&id, owned.as_ref());
        let moved = next.is_some();
        if let Some(next) = next {
            let record = Record::Current { group: turn.group.clone(), member: id.clone(), value: Some(next) };
            self.write(turn, record);
        }
        self.touch(turn, &id);
        // A request that says everything is answered with everything.
        let whole = ask.rebalance_timeout_ms != -1
            && (ask.subscribed_topic_names.is_some() || ask.subscribed_topic_regex.is_some())
            && ask.topic_partitions.is_some();
        let Some(member) = self.members.get(&id) else {
            return Err((ErrorCode::UnknownMemberId, String::new()));
        };
        let assignment = (joins || moved || whole).then(|| {
            let assigned = member.current.assigned.iter();
            assigned.map(|(topic, partitions)| (*topic, partitions.keys().copied().collect())).collect()
        });
        let epoch = member.current.epoch;
        let interval_ms = turn.config.consumer_heartbeat_interval_ms;
        Ok(Heartbeat { member: id, epoch, interval_ms, assignment })
    }

    /// A member joins, for the first time or again. Whether the group has to be assigned anew.
    fn enter(&mut self, turn: &mut Turn, id: &Arc<str>, ask: &Ask, client: &Client) -> Result<bool, Refusal> {
        let meta = self.meta(id, ask, client);
        self.check_bytes(turn, id, &meta)?;
        let before = ask.instance_id.and_then(|instance| self.statics.get(instance).cloned());
        if let Some(old) = before
            && old != *id
        {
            let instance = ask.instance_id.unwrap_or_default();
            let found = self.members.get(&old);
            if found.is_some_and(|found| found.current.epoch != LEAVES_STATIC) {
                let text = format!(
                    "Static member {id} with instance id {instance} cannot join the group because the instance id is owned by {old} member."
                );
                return Err((ErrorCode::UnreleasedInstanceId, text));
            }
            let changed = found.is_none_or(|found| !same_subscription(&found.meta, &meta));
            self.replace(turn, &old, id, meta);
            return Ok(changed);
        }
        let max = turn.config.consumer_max_size.min(turn.config.limits.members_max) as usize;
        match self.members.contains_key(id) {
            true => Ok(self.update(turn, id, meta)),
            false if turn.full => {
                let text = "This coordinator has no memory left for another member.".to_owned();
                Err((ErrorCode::GroupMaxSizeReached, text))
            }
            false if self.members.len() >= max => {
                let text = format!("The consumer group has reached its maximum capacity of {max} members.");
                Err((ErrorCode::GroupMaxSizeReached, text))
            }
            false => {
                let record = Record::Member { group: turn.group.clone(), member: id.clone(), value: Some(meta) };
                self.write(turn, record);
                Ok(true)
            }
        }
    }

    /// What the member is now: what the request leaves out stays.
    fn meta(&self, id: &Arc<str>, ask: &Ask, client: &Client) -> MemberMetadata {
        let mut meta = self.members.get(id).map(|member| member.meta.clone()).unwrap_or_default();
        (meta.client_id, meta.client_host) = (client.id.into(), client.host.into());
        meta.classic = None;
        if let Some(instance) = ask.instance_id {
            meta.instance = Some(instance.into());
        }
        if let Some(rack) = ask.rack_id {
            meta.rack = Some(rack.into());
        }
        if ask.rebalance_timeout_ms != -1 {
            meta.rebalance_timeout_ms = ask.rebalance_timeout_ms;
        }
        if let Some(assignor) = ask.server_assignor {
            meta.assignor = Some(assignor.into());
        }
        if let Some(names) = &ask.subscribed_topic_names {
            meta.topics = names.iter().map(Into::into).collect::<BTreeSet<Arc<str>>>();
        }
        if let Some(pattern) = ask.subscribed_topic_regex {
            meta.regex = Some(pattern.into()).filter(|_| !pattern.is_empty());
        }
        meta
    }

    /// 42: what the member says of itself, with the epoch that it makes, must be one batch.
    fn check_bytes(&self, turn: &Turn, id: &Arc<str>, meta: &MemberMetadata) -> Result<(), Refusal> {
        let bytes_max = turn.config.limits.batch_bytes_max as usize / 2;
        if self.members.get(id).is_some_and(|member| member.meta == *meta) || is_within(turn, id, meta, bytes_max) {
            return Ok(());
        }
        let text = format!("What member {id} says of itself takes more than {bytes_max} bytes.");
        Err((ErrorCode::InvalidRequest, text))
    }

    /// Whether the group has to be assigned anew.
    pub(super) fn update(&mut self, turn: &mut Turn, id: &Arc<str>, meta: MemberMetadata) -> bool {
        let Some(member) = self.members.get(id) else { return false };
        if member.meta == meta {
            return false;
        }
        let changed = !same_subscription(&member.meta, &meta);
        self.write(turn, Record::Member { group: turn.group.clone(), member: id.clone(), value: Some(meta) });
        changed
    }

    /// 25, 82, and 110: a member of another epoch. One that missed the last answer may come with the epoch before, if it owns
    /// nothing but what it was given.
    fn check_epoch(&self, id: &Arc<str>, ask: &Ask, owned: Option<&Assignment>) -> Result<(), Refusal> {
        let group = ask.group_id;
        if let Some(instance) = ask.instance_id {
            match self.statics.get(instance) {
                None => {
                    let text = format!("Instance id {instance} is unknown in group {group}.");
                    return Err((ErrorCode::UnknownMemberId, text));
                }
                Some(owner) if owner != id => {
                    let text = format!("Static member {id} with instance id {instance} was fenced by member {owner}.");
                    return Err((ErrorCode::FencedInstanceId, text));
                }
                Some(_) => {}
            }
        }
        let Some(member) = self.members.get(id) else {
            return Err((ErrorCode::UnknownMemberId, format!("Member {id} is not a member of group {group}.")));
        };
        let (epoch, current) = (ask.member_epoch, &member.current);
        let fenced = |text: String| Err((ErrorCode::FencedMemberEpoch, text));
        if epoch > current.epoch {
            return fenced(format!(
                "The consumer group member has a greater member epoch ({epoch}) than the one known by the group coordinator ({}). The member must abandon all its partitions and rejoin.",
                current.epoch
            ));
        }
        let within = |owned: &Assignment| {
            owned.iter().all(|(topic, partitions)| {
                let assigned = current.assigned.get(topic);
                partitions.iter().all(|index| assigned.is_some_and(|assigned| assigned.contains_key(index)))
            })
        };
        if epoch < current.epoch && (epoch != current.previous_epoch || !owned.is_some_and(within)) {
            return fenced(format!(
                "The consumer group member has a smaller member epoch ({epoch}) than the one known by the group coordinator ({}). The member must abandon all its partitions and rejoin.",
                current.epoch
            ));
        }
        Ok(())
    }

    fn leave(&mut self, turn: &mut Turn, topics: &dyn Topics, ask: &Ask) -> Result<Heartbeat, Refusal> {
        let id: Arc<str> = ask.member_id.into();
        let unknown = || {
            let text = format!("Member {id} is not a member of group {}.", ask.group_id);
            Err((ErrorCode::UnknownMemberId, text))
        };
        if let Some(instance) = ask.instance_id {
            match self.statics.get(instance) {
                None => return unknown(),
                Some(owner) if *owner != id => {
                    let text = format!("Static member {id} with instance id {instance} was fenced by member {owner}.");
                    return Err((ErrorCode::FencedInstanceId, text));
                }
                Some(_) => {}
            }
        }
        if !self.members.contains_key(&id) {
            return unknown();
        }
        match ask.member_epoch {
            LEAVES => self.remove(turn, topics, std::slice::from_ref(&id)),
            _ => self.step_out(turn, &id),
        }
        Ok(Heartbeat { member: id, epoch: ask.member_epoch, interval_ms: 0, assignment: None })
    }
}

/// Whether the member's record takes no more than this.
pub(super) fn is_within(turn: &Turn, id: &Arc<str>, meta: &MemberMetadata, bytes_max: usize) -> bool {
    // In memory it takes more than in its record, but for the key.
    let memory = meta.bytes() + turn.group.len() + id.len();
    let record = || Record::Member { group: turn.group.clone(), member: id.clone(), value: Some(meta.clone()) };
    memory <= bytes_max || record().bytes() <= bytes_max
}

/// Whether the same would be assigned.
fn same_subscription(a: &MemberMetadata, b: &MemberMetadata) -> bool {
    (&a.topics, &a.regex, &a.assignor, &a.rack) == (&b.topics, &b.regex, &b.assignor, &b.rack)
}
