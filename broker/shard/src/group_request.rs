//! A request about groups on its way from its frame to a coordinator: what it says in the machine's words, with the topics as they are now.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringmain_group::{Client, CommitOffset, CommitOffsets, FetchOffsets, FetchTopic, GroupOverrides, Reply, Topics};
use ringmain_metadata::config::Layers;
use ringmain_metadata::{BrokerConfig, ClusterImage, GroupSettings, OFFSETS_TOPIC, TopicConfig};
use ringmain_session::Request;
use ringmain_types::*;
use ringmain_wire as wire;

use crate::dispatch::body;
use crate::mesh::{FetchGroup, Return};

/// The topics and group configs of one image.
pub(crate) struct ImageTopics {
    pub(crate) image: Arc<ClusterImage>,
    pub(crate) properties: Arc<BrokerConfig>,
    pub(crate) broker: BrokerId,
}

impl Topics for ImageTopics {
    fn by_name(&self, name: &str) -> Option<(TopicId, u32)> {
        self.image.topic(name).map(|topic| (topic.id, topic.partitions.len() as u32))
    }
    fn by_id(&self, id: TopicId) -> Option<(Arc<str>, u32)> {
        self.image.topics.get(&id).map(|topic| (topic.name.clone(), topic.partitions.len() as u32))
    }
    fn version(&self) -> i64 {
        self.image.next.0
    }
    fn names(&self) -> Box<dyn Iterator<Item = Arc<str>> + '_> {
        let mut names: Vec<Arc<str>> = self.image.topics.values().map(|topic| topic.name.clone()).collect();
        names.sort_unstable();
        Box::new(names.into_iter())
    }
    fn batch_bytes_max(&self) -> usize {
        let layers = Layers::new(&self.image, &self.properties, self.broker);
        let found = self.image.topic(OFFSETS_TOPIC).map(|topic| TopicConfig::resolve(&layers, &topic.configs));
        found.map_or(usize::MAX, |config| config.max_message_bytes as usize)
    }
    fn overrides(&self, group: &str) -> Option<GroupOverrides> {
        let own = self.image.group_configs.get(group);
        // The broker's own may change while it runs; without a change it is what coordinators were made with.
        if own.is_none() && self.image.broker_configs.is_empty() {
            return None;
        }
        let layers = Layers::new(&self.image, &self.properties, self.broker);
        let found = GroupSettings::resolve(&layers, own.map_or(&BTreeMap::new(), |own| own));
        Some(GroupOverrides {
            session_timeout_ms: found.session_timeout_ms,
            heartbeat_interval_ms: found.heartbeat_interval_ms,
            assignment_interval_ms: found.assignment_interval_ms,
        })
    }
}

pub(crate) type Decide<'d> = dyn for<'a> FnMut(ringmain_group::Request<'a>) -> Result<(), Return> + 'd;

/// Decodes the request and has it decided; the codes of what was not passed on.
pub(crate) fn decide_request(
    topics: &ImageTopics,
    request: &Request,
    client: Client<'_>,
    decide: &mut Decide<'_>,
) -> Result<Vec<(usize, ErrorCode)>, Return> {
    use ringmain_group::Request as Ask;
    // Whoever asks has decoded it already.
    let parsed = |_: wire::WireError| Return::Failed(ErrorCode::InvalidRequest);
    match request.api {
        key if key == wire::JOIN_GROUP.key => {
            let ask = body(&wire::JOIN_GROUP, request).map_err(parsed)?;
            decide(Ask::Join(&ask, client))?;
        }
        key if key == wire::SYNC_GROUP.key => {
            let ask = body(&wire::SYNC_GROUP, request).map_err(parsed)?;
            decide(Ask::Sync(&ask))?;
        }
        key if key == wire::HEARTBEAT.key => {
            let ask = body(&wire::HEARTBEAT, request).map_err(parsed)?;
            decide(Ask::Heartbeat(&ask))?;
        }
        key if key == wire::LEAVE_GROUP.key => {
            let ask = body(&wire::LEAVE_GROUP, request).map_err(parsed)?;
            decide(Ask::Leave(&ask, client))?;
        }
        key if key == wire::CONSUMER_GROUP_HEARTBEAT.key => {
            let ask = body(&wire::CONSUMER_GROUP_HEARTBEAT, request).map_err(parsed)?;
            decide(Ask::ConsumerHeartbeat(&ask, client))?;
        }
        key if key == wire::OFFSET_COMMIT.key => {
            let ask: wire::OffsetCommitRequest<'_> = body(&wire::OFFSET_COMMIT, request).map_err(parsed)?;
            return commit(topics, request.version, &ask, decide);
        }
        _ => {
            let ask: wire::OffsetDeleteRequest<'_> = body(&wire::OFFSET_DELETE, request).map_err(parsed)?;
            let topics = ask.topics.iter();
            let topics = topics.map(|topic| (topic.name, topic.partitions.iter().map(|p| p.partition_index).collect()));
            decide(Ask::DeleteOffsets { group: ask.group_id, topics: topics.collect() })?;
        }
    }
    Ok(Vec::new())
}

/// Topics and partitions that are not there are refused here, each alone: 3, or 100 by id.
fn commit(
    topics: &ImageTopics,
    version: i16,
    ask: &wire::OffsetCommitRequest<'_>,
    decide: &mut Decide<'_>,
) -> Result<Vec<(usize, ErrorCode)>, Return> {
    let (mut refused, mut names, mut place) = (Vec::new(), Vec::new(), 0);
    for topic in &ask.topics {
        let found = match version {
            10.. => topics.by_id(topic.topic_id).map(|(name, count)| (name, topic.topic_id, count)),
            _ => topics.by_name(topic.name).map(|(id, count)| (Arc::from(topic.name), id, count)),
        };
        let missing = if version >= 10 { ErrorCode::UnknownTopicId } else { ErrorCode::UnknownTopicOrPartition };
        for partition in &topic.partitions {
            match &found {
                None => refused.push((place, missing)),
                Some((.., count)) if u32::try_from(partition.partition_index.0).is_ok_and(|index| index < *count) => {}
                Some(_) => refused.push((place, ErrorCode::UnknownTopicOrPartition)),
            }
            place += 1;
        }
        names.push(found);
    }
    let mut offsets = Vec::with_capacity(place - refused.len());
    let (mut place, mut next_refused) = (0, refused.iter().peekable());
    for (topic, found) in ask.topics.iter().zip(&names) {
        for partition in &topic.partitions {
            let skip = next_refused.next_if(|(at, _)| *at == place).is_some();
            place += 1;
            if let Some((name, id, _)) = found.as_ref().filter(|_| !skip) {
                offsets.push(CommitOffset {
                    topic: name,
                    id: *id,
                    partition: partition.partition_index,
                    offset: partition.committed_offset,
                    leader_epoch: partition.committed_leader_epoch,
                    metadata: partition.committed_metadata.unwrap_or_default(),
                });
            }
        }
    }
    decide(ringmain_group::Request::Commit(CommitOffsets {
        group: ask.group_id,
        member: ask.member_id,
        instance: ask.group_instance_id,
        generation_or_epoch: ask.generation_id_or_member_epoch,
        retention_ms: ask.retention_time_ms,
        offsets,
    }))?;
    Ok(refused)
}

/// Puts the codes of what was refused here between those of what was decided.
pub(crate) fn with_refused(reply: Reply, refused: &[(usize, ErrorCode)]) -> Reply {
    let Reply::Committed(Ok(mut codes)) = reply else { return reply };
    for (place, code) in refused {
        codes.insert((*place).min(codes.len()), *code);
    }
    Reply::Committed(Ok(codes))
}

pub(crate) fn fetch_of<'a>(fetch: &'a FetchGroup) -> FetchOffsets<'a> {
    let topic = |(name, id, partitions): &'a (String, TopicId, Vec<PartitionIndex>)| FetchTopic {
        name,
        id: *id,
        partitions: partitions.clone().into(),
    };
    FetchOffsets {
        group: &fetch.group,
        member: fetch.member.as_deref(),
        member_epoch: fetch.member_epoch,
        topics: fetch.topics.as_ref().map(|topics| topics.iter().map(topic).collect()),
    }
}
