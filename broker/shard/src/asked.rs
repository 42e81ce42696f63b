//! The partitions that a request names, in its order, and which owner answers for which.

use std::sync::Arc;

use ringmain_metadata::{ClusterImage, Topic};
use ringmain_types::*;
use smallvec::SmallVec;

use crate::mesh::Parts;

/// A topic as a reply has to name it again.
#[derive(Clone, Debug)]
pub(crate) enum TopicKey {
    Known(Arc<Topic>),
    Name(Arc<str>),
    Id(TopicId),
}

impl TopicKey {
    pub(crate) fn by_name(image: &ClusterImage, name: &str) -> TopicKey {
        image.topic(name).map_or_else(|| TopicKey::Name(name.into()), |topic| TopicKey::Known(topic.clone()))
    }

    pub(crate) fn by_id(image: &ClusterImage, id: TopicId) -> TopicKey {
        image.topics.get(&id).map_or(TopicKey::Id(id), |topic| TopicKey::Known(topic.clone()))
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            TopicKey::Known(topic) => &topic.name,
            TopicKey::Name(name) => name,
            TopicKey::Id(_) => "",
        }
    }

    pub(crate) fn id(&self) -> TopicId {
        match self {
            TopicKey::Known(topic) => topic.id,
            TopicKey::Name(_) => TopicId::NONE,
            TopicKey::Id(id) => *id,
        }
    }

    /// UNKNOWN_TOPIC_OR_PARTITION, or UNKNOWN_TOPIC_ID when it was asked for by id.
    pub(crate) fn partition(&self, index: PartitionIndex) -> Result<Partition, ErrorCode> {
        match self {
            TopicKey::Known(topic) => match usize::try_from(index.0) {
                Ok(at) if at < topic.partitions.len() => Ok(Partition { topic: topic.id, index }),
                _ => Err(ErrorCode::UnknownTopicOrPartition),
            },
            TopicKey::Name(_) => Err(ErrorCode::UnknownTopicOrPartition),
            TopicKey::Id(_) => Err(ErrorCode::UnknownTopicId),
        }
    }
}

/// One owner's part of a request.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    pub(crate) shard: ShardId,
    /// Indexes into `Asked::parts`.
    pub(crate) parts: SmallVec<[u32; 4]>,
}

/// `R` is what each partition's answer says.
#[derive(Debug)]
pub(crate) struct Asked<R> {
    /// Each topic with the number of its partitions in `parts`.
    pub(crate) topics: SmallVec<[(TopicKey, u32); 1]>,
    pub(crate) parts: SmallVec<[(PartitionIndex, R); 1]>,
    pub(crate) shares: SmallVec<[Share; 1]>,
    /// Shares without an answer.
    pub(crate) waiting: u32,
}

impl<R> Asked<R> {
    pub(crate) fn new() -> Asked<R> {
        Asked { topics: SmallVec::new(), parts: SmallVec::new(), shares: SmallVec::new(), waiting: 0 }
    }

    pub(crate) fn topic(&mut self, key: TopicKey) {
        self.topics.push((key, 0));
    }

    /// Adds a partition of the last topic; its number in `parts`.
    pub(crate) fn part(&mut self, index: PartitionIndex, result: R) -> u32 {
        let topic = self.topics.last_mut().expect("a topic comes before its partitions");
        topic.1 += 1;
        self.parts.push((index, result));
        (self.parts.len() - 1) as u32
    }

    /// Topics and partitions that are named.
    pub(crate) fn elements(&self) -> usize {
        self.topics.len() + self.parts.len()
    }

    pub(crate) fn set(&mut self, part: u32, result: R) {
        self.parts[part as usize].1 = result;
    }

    /// A share's answers, in its order. Too few of them are this program's error.
    pub(crate) fn answered(&mut self, share: u32, results: impl ExactSizeIterator<Item = R>) {
        let Some(share) = self.shares.get(share as usize) else { return };
        assert_eq!(share.parts.len(), results.len());
        for (&part, result) in share.parts.iter().zip(results) {
            self.parts[part as usize].1 = result;
        }
        self.waiting -= 1;
    }

    /// Each topic with its partitions.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&TopicKey, &[(PartitionIndex, R)])> {
        self.by_topic(&self.parts)
    }

    /// Each topic with its part of `rest`, which has one for each partition.
    pub(crate) fn by_topic<'s, T>(&'s self, mut rest: &'s [T]) -> impl Iterator<Item = (&'s TopicKey, &'s [T])> {
        self.topics.iter().map(move |(key, count)| {
            let (these, others) = rest.split_at(*count as usize);
            rest = others;
            (key, these)
        })
    }
}

/// Collects what each owner is asked: `T` is one partition's question.
pub(crate) struct Dealt<T> {
    shards: u16,
    shares: SmallVec<[Share; 1]>,
    /// Beside each share.
    questions: SmallVec<[Parts<T>; 1]>,
    /// Shard -> its place in `shares`, plus one.
    place: SmallVec<[u16; 16]>,
}

impl<T> Dealt<T> {
    pub(crate) fn new(shards: u16) -> Dealt<T> {
        let place = SmallVec::from_elem(0, usize::from(shards));
        Dealt { shards, shares: SmallVec::new(), questions: SmallVec::new(), place }
    }

    pub(crate) fn push(&mut self, partition: Partition, part: u32, question: T) {
        let shard = owner(partition, self.shards);
        let place = &mut self.place[usize::from(shard.0)];
        if *place == 0 {
            self.shares.push(Share { shard, parts: SmallVec::new() });
            self.questions.push(SmallVec::new());
            *place = self.shares.len() as u16;
        }
        let at = usize::from(*place - 1);
        self.shares[at].parts.push(part);
        self.questions[at].push(question);
    }

    /// The shares, and beside each its questions.
    pub(crate) fn shares(self) -> (SmallVec<[Share; 1]>, SmallVec<[Parts<T>; 1]>) {
        (self.shares, self.questions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_back_to_the_order_of_the_request() {
        let mut asked = Asked::new();
        let mut dealt = Dealt::new(2);
        for topic in [2u128, 3] {
            asked.topic(TopicKey::Id(TopicId(topic)));
            for index in 0..3 {
                let index = PartitionIndex(index);
                let part = asked.part(index, 0);
                dealt.push(Partition { topic: TopicId(topic), index }, part, (topic, index.0));
            }
        }
        let (shares, questions) = dealt.shares();
        assert_eq!(shares.len(), 2);
        asked.waiting = 2;
        asked.shares = shares;
        for (share, questions) in questions.into_iter().enumerate().rev() {
            let answers = questions.into_iter().map(|(topic, index)| topic as i32 * 10 + index);
            asked.answered(share as u32, answers);
        }
        assert_eq!(asked.waiting, 0);
        let all: Vec<(TopicId, Vec<i32>)> =
            asked.iter().map(|(key, parts)| (key.id(), parts.iter().map(|part| part.1).collect())).collect();
        assert_eq!(all, vec![(TopicId(2), vec![20, 21, 22]), (TopicId(3), vec![30, 31, 32])]);
    }
}
