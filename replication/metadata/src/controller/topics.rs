//! Making, widening and deleting topics.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringmain_types::*;

use super::{Controller, Decision, PARTITIONS_PER_REQUEST_MAX, Refusal};
use crate::config::{Entry, check_overrides};
use crate::image::Topic;
use crate::name::{check_topic_name, collision_key};
use crate::record::{ConfigResource, Record};

/// One topic of CreateTopics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewTopic {
    pub name: String,
    /// -1: the broker's default, or as assigned.
    pub partitions: i32,
    /// -1: the broker's default, or as assigned.
    pub replication_factor: i16,
    /// Empty: the controller places.
    pub assignments: Vec<Assignment>,
    /// A null value is an error, as in Kafka.
    pub configs: Vec<(String, Option<String>)>,
}
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub partition: PartitionIndex,
    /// In order of preference: the first leads.
    pub replicas: Vec<BrokerId>,
}
#[derive(Clone, Debug, PartialEq)]
pub struct CreatedTopic {
    /// `TopicId::NONE` when it was only validated.
    pub id: TopicId,
    pub partitions: i32,
    pub replication_factor: i16,
    pub configs: Arc<[Entry]>,
}

/// One topic of CreatePartitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPartitions {
    pub topic: String,
    /// Partitions afterwards.
    pub count: i32,
    /// Replicas of each new partition; `None`: the controller places.
    pub assignments: Option<Vec<Vec<BrokerId>>>,
}

/// One topic of DeleteTopics.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopicKey {
    Name(String),
    Id(TopicId),
}

/// What a request has taken so far of what is bounded.
#[derive(Default)]
struct Taken {
    topics: u32,
    partitions: u32,
    names: BTreeMap<String, String>,
    /// The configs of a topic that was given none: the same for all of them.
    plain: Option<Arc<[Entry]>>,
}

type Replicas = Vec<Vec<BrokerId>>;

impl Controller {
    /// One result for each of `topics`, in their order: the topic as made, or why not. One refusal does not touch the others.
    pub fn create_topics(
        &mut self,
        _now: Now,
        topics: &[NewTopic],
        validate_only: bool,
    ) -> Decision<Result<CreatedTopic, Refusal>> {
        let mut count = BTreeMap::<&str, u32>::new();
        topics.iter().for_each(|topic| *count.entry(&topic.name).or_default() += 1);
        let mut decision = Decision { records: Vec::new(), results: Vec::with_capacity(topics.len()) };
        let mut taken = Taken::default();
        for topic in topics {
            let result = if count[topic.name.as_str()] > 1 {
                Err(Refusal::new(ErrorCode::InvalidRequest, "Duplicate topic name: a request may name a topic once"))
            } else {
                self.create_topic(topic, validate_only, &mut taken, &mut decision.records)
            };
            decision.results.push(result);
        }
        decision
    }

    fn create_topic(
        &mut self,
        new: &NewTopic,
        validate_only: bool,
        taken: &mut Taken,
        records: &mut Vec<Record>,
    ) -> Result<CreatedTopic, Refusal> {
        self.check_name(&new.name, taken)?;
        let overrides = self.check_configs(new)?;
        let replicas = self.place(new)?;
        self.check_room(&replicas, taken)?;
        taken.topics += 1;
        taken.partitions += replicas.len() as u32;
        if let Some(key) = collision_key(&new.name) {
            taken.names.insert(key, new.name.clone());
        }
        let mut created = CreatedTopic {
            id: TopicId::NONE,
            partitions: replicas.len() as i32,
            replication_factor: replicas.first().map_or(0, Vec::len) as i16,
            configs: match overrides.is_empty() {
                true => taken.plain.get_or_insert_with(|| self.topic_entries(&overrides).into()).clone(),
                false => self.topic_entries(&overrides).into(),
            },
        };
        if validate_only {
            return Ok(created);
        }
        created.id = self.draw_id();
        records.push(Record::Topic { id: created.id, name: new.name.clone() });
        records.extend(overrides.into_iter().map(|(name, value)| Record::Config {
            resource: ConfigResource::Topic(created.id),
            name,
            value: Some(value),
        }));
        push_partitions(created.id, 0, replicas, records);
        Ok(created)
    }

    fn check_name(&self, name: &str, taken: &Taken) -> Result<(), Refusal> {
        check_topic_name(name).map_err(|message| Refusal::new(ErrorCode::InvalidTopicException, message))?;
        if self.image.names.contains_key(name) {
            return Err(Refusal::new(ErrorCode::TopicAlreadyExists, format!("Topic '{name}' already exists.")));
        }
        let Some(key) = collision_key(name) else { return Ok(()) };
        let existing = self.collisions.get(&key).and_then(|names| names.first()).map(|name| &**name);
        match existing.or(taken.names.get(&key).map(String::as_str)) {
            Some(other) => Err(Refusal::new(
                ErrorCode::InvalidTopicException,
                format!("Topic '{name}' collides with existing topic: {other} ('.' and '_' are one in metric names)"),
            )),
            None => Ok(()),
        }
    }

    fn check_configs(&self, new: &NewTopic) -> Result<BTreeMap<String, String>, Refusal> {
        let invalid = |message: String| Refusal::new(ErrorCode::InvalidConfig, message);
        let mut overrides = BTreeMap::new();
        for (name, value) in &new.configs {
            let Some(value) = value else {
                return Err(invalid(format!("Null value not supported for topic config: {}", name.escape_debug())));
            };
            overrides.insert(name.clone(), value.clone());
        }
        check_overrides(&self.layers(), &overrides).map_err(invalid)
    }

    /// Which brokers hold each partition.
    fn place(&self, new: &NewTopic) -> Result<Replicas, Refusal> {
        if !new.assignments.is_empty() {
            return self.placed_by_hand(new);
        }
        let partitions = match new.partitions {
            -1 => self.config.properties.num_partitions,
            count => count,
        };
        let factor = match new.replication_factor {
            -1 => self.config.properties.default_replication_factor,
            factor => factor,
        };
        if partitions <= 0 {
            return Err(Refusal::new(
                ErrorCode::InvalidPartitions,
                "Number of partitions must be larger than 0, or -1 to use the broker's default.",
            ));
        }
        if factor <= 0 {
            return Err(Refusal::new(
                ErrorCode::InvalidReplicationFactor,
                "Replication factor must be larger than 0, or -1 to use the broker's default.",
            ));
        }
        // Before a list of that length is made.
        self.check_count(partitions)?;
        self.place_from(0, partitions as u32, factor as usize)
    }

    /// Around the ring of brokers, each partition one further.
    fn place_from(&self, first: u32, count: u32, factor: usize) -> Result<Replicas, Refusal> {
        let brokers: Vec<BrokerId> = self.image.brokers.keys().copied().collect();
        if factor > brokers.len() {
            return Err(Refusal::new(
                ErrorCode::InvalidReplicationFactor,
                format!(
                    "Unable to replicate the partition {factor} time(s): the replication factor is at most {}, the number of brokers",
                    brokers.len()
                ),
            ));
        }
        let one = |partition: u32| {
            (0..factor).map(|nth| brokers[(partition as usize + nth) % brokers.len()]).collect::<Vec<_>>()
        };
        Ok((first..first + count).map(one).collect())
    }

    fn placed_by_hand(&self, new: &NewTopic) -> Result<Replicas, Refusal> {
        if new.replication_factor != -1 {
            return Err(Refusal::new(
                ErrorCode::InvalidRequest,
                "A manual partition assignment was specified, but replication factor was not set to -1.",
            ));
        }
        if new.partitions != -1 {
            return Err(Refusal::new(
                ErrorCode::InvalidRequest,
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            ));
        }
        let mut by_index = BTreeMap::new();
        for assignment in &new.assignments {
            if by_index.insert(assignment.partition, assignment.replicas.clone()).is_some() {
                return Err(Refusal::new(
                    ErrorCode::InvalidReplicaAssignment,
                    format!("Found multiple manual partition assignments for partition {}", assignment.partition.0),
                ));
            }
        }
        let mut replicas = Vec::with_capacity(by_index.len());
        for (nth, (index, brokers)) in by_index.into_iter().enumerate() {
            if i32::try_from(nth) != Ok(index.0) {
                return Err(Refusal::new(
                    ErrorCode::InvalidReplicaAssignment,
                    "partitions should be a consecutive 0-based integer sequence",
                ));
            }
            self.check_replicas(&brokers, replicas.first().map(Vec::len))?;
            replicas.push(brokers);
        }
        Ok(replicas)
    }

    fn check_replicas(&self, brokers: &[BrokerId], expected: Option<usize>) -> Result<(), Refusal> {
        let refuse = |message: String| Err(Refusal::new(ErrorCode::InvalidReplicaAssignment, message));
        if brokers.is_empty() {
            return refuse("The manual partition assignment includes an empty replica list.".into());
        }
        if let Some(unknown) = brokers.iter().find(|broker| !self.image.brokers.contains_key(broker)) {
            return refuse(format!(
                "The manual partition assignment includes broker {}, but no such broker is registered.",
                unknown.0
            ));
        }
        if let Some(twice) = brokers.iter().enumerate().find(|(at, broker)| brokers[..*at].contains(broker)) {
            return refuse(format!(
                "The manual partition assignment includes the broker {} more than once.",
                twice.1.0
            ));
        }
        match expected {
            Some(expected) if expected != brokers.len() => refuse(format!(
                "The manual partition assignment includes a partition with {} replica(s), but the others have {expected}.",
                brokers.len()
            )),
            _ => Ok(()),
        }
    }

    fn check_room(&self, replicas: &Replicas, taken: &Taken) -> Result<(), Refusal> {
        let limits = &self.config.limits;
        if self.image.topics.len() as u64 + u64::from(taken.topics) >= u64::from(limits.topics_max) {
            return Err(Refusal::new(
                ErrorCode::PolicyViolation,
                format!("The cluster has {} topics and may have no more.", limits.topics_max),
            ));
        }
        self.check_partitions(replicas.len() as u64, taken)
    }

    fn check_partitions(&self, more: u64, taken: &Taken) -> Result<(), Refusal> {
        let asked = u64::from(taken.partitions) + more;
        if asked > u64::from(PARTITIONS_PER_REQUEST_MAX) {
            return Err(Refusal::new(
                ErrorCode::PolicyViolation,
                format!("Excessively large number of partitions per request: allowed are {PARTITIONS_PER_REQUEST_MAX}"),
            ));
        }
        if u64::from(self.image.partitions) + asked > u64::from(self.config.limits.partitions_max) {
            return Err(Refusal::new(
                ErrorCode::PolicyViolation,
                format!(
                    "The cluster has {} partitions and may have {}: {asked} more are too many.",
                    self.image.partitions, self.config.limits.partitions_max
                ),
            ));
        }
        Ok(())
    }

    fn check_count(&self, partitions: i32) -> Result<(), Refusal> {
        self.check_partitions(u64::try_from(partitions).unwrap_or_default(), &Taken::default())
    }

    /// By name or id; one result for each key, in order: what was deleted.
    pub fn delete_topics(&mut self, _now: Now, keys: &[TopicKey]) -> Decision<Result<Arc<Topic>, Refusal>> {
        let mut decision = Decision { records: Vec::new(), results: Vec::with_capacity(keys.len()) };
        let found: Vec<Result<Arc<Topic>, Refusal>> = keys.iter().map(|key| self.find(key)).collect();
        let mut count = BTreeMap::<TopicId, u32>::new();
        found.iter().flatten().for_each(|topic| *count.entry(topic.id).or_default() += 1);
        for result in found {
            let result = result.and_then(|topic| {
                if count[&topic.id] > 1 {
                    return Err(Refusal::new(ErrorCode::InvalidRequest, "Duplicate topic: a request may name it once"));
                }
                Ok(topic)
            });
            if let Ok(topic) = &result {
                decision.records.push(Record::RemoveTopic { id: topic.id });
            }
            decision.results.push(result);
        }
        decision
    }

    fn find(&self, key: &TopicKey) -> Result<Arc<Topic>, Refusal> {
        if !self.config.properties.delete_topics {
            return Err(Refusal::new(ErrorCode::TopicDeletionDisabled, "delete.topic.enable is false on this broker"));
        }
        match key {
            TopicKey::Name(name) => self.image.topic(name).cloned().ok_or_else(unknown_topic),
            TopicKey::Id(TopicId::NONE) => {
                Err(Refusal::new(ErrorCode::InvalidRequest, "Neither topic name nor id were specified."))
            }
            TopicKey::Id(id) => self
                .image
                .topics
                .get(id)
                .cloned()
                .ok_or_else(|| Refusal::new(ErrorCode::UnknownTopicId, "This server does not host this topic ID.")),
        }
    }

    /// Widens topics; one result for each, in order.
    pub fn create_partitions(
        &mut self,
        _now: Now,
        topics: &[NewPartitions],
        validate_only: bool,
    ) -> Decision<Result<(), Refusal>> {
        let mut decision = Decision { records: Vec::new(), results: Vec::with_capacity(topics.len()) };
        let mut count = BTreeMap::<&str, u32>::new();
        topics.iter().for_each(|topic| *count.entry(&topic.topic).or_default() += 1);
        let mut taken = Taken::default();
        for topic in topics {
            let result = if count[topic.topic.as_str()] > 1 {
                Err(Refusal::new(ErrorCode::InvalidRequest, "Duplicate topic name: a request may name a topic once"))
            } else {
                self.widen(topic, &mut taken)
            };
            decision.results.push(result.map(|(id, first, replicas)| {
                if !validate_only {
                    push_partitions(id, first, replicas, &mut decision.records);
                }
            }));
        }
        decision
    }

    fn widen(&self, new: &NewPartitions, taken: &mut Taken) -> Result<(TopicId, i32, Replicas), Refusal> {
        let topic = self.image.topic(&new.topic).ok_or_else(unknown_topic)?;
        let current = topic.partitions.len() as i32;
        let more = match new.count.checked_sub(current) {
            Some(more) if more > 0 => more,
            Some(0) => {
                let message = format!("Topic already has {current} partition(s).");
                return Err(Refusal::new(ErrorCode::InvalidPartitions, message));
            }
            _ => {
                return Err(Refusal::new(
                    ErrorCode::InvalidPartitions,
                    format!(
                        "The topic {} currently has {current} partition(s); {} would not be an increase.",
                        new.topic, new.count
                    ),
                ));
            }
        };
        self.check_partitions(more as u64, taken)?;
        let factor = topic.partitions.first().map_or(1, |partition| partition.replicas.len());
        let replicas = match &new.assignments {
            None => self.place_from(current as u32, more as u32, factor)?,
            Some(given) if given.len() != more as usize => {
                return Err(Refusal::new(
                    ErrorCode::InvalidReplicaAssignment,
                    format!(
                        "Attempted to add {more} additional partition(s), but only {} assignment(s) were specified.",
                        given.len()
                    ),
                ));
            }
            Some(given) => {
                given.iter().try_for_each(|brokers| self.check_replicas(brokers, Some(factor)))?;
                given.clone()
            }
        };
        taken.partitions += more as u32;
        Ok((topic.id, current, replicas))
    }

    /// A random (version 4) UUID that no topic had: seed, place in the log and count make each draw another one. Never 0 or 1, which
    /// Kafka reserves, and never one that begins with '-' in base64, which tools would take for an option.
    fn draw_id(&mut self) -> TopicId {
        loop {
            let place = (self.image.next.0 as u64).rotate_left(32) ^ self.drawn;
            self.drawn += 1;
            let high = mix(mix(self.config.seed) ^ place);
            let low = mix(high ^ self.config.seed.rotate_left(17)).wrapping_add(mix(place));
            let mut bits = u128::from(high) << 64 | u128::from(low);
            bits = bits & !(0xf << 76) | 0x4 << 76;
            bits = bits & !(0x3 << 62) | 0x2 << 62;
            const DASH: u128 = 62;
            if bits >> 122 != DASH && !self.image.topics.contains_key(&TopicId(bits)) {
                return TopicId(bits);
            }
        }
    }
}

fn unknown_topic() -> Refusal {
    Refusal::new(ErrorCode::UnknownTopicOrPartition, "This server does not host this topic-partition.")
}

fn push_partitions(topic: TopicId, first: i32, replicas: Replicas, records: &mut Vec<Record>) {
    records.extend((first..).zip(replicas).map(|(index, replicas)| Record::Partition {
        partition: Partition { topic, index: PartitionIndex(index) },
        isr: replicas.clone(),
        leader: replicas.first().copied().unwrap_or(BrokerId(-1)),
        replicas,
        leader_epoch: LeaderEpoch(0),
        partition_epoch: PartitionEpoch(0),
    }));
}

/// SplitMix64's finalizer.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
