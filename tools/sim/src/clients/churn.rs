//! Creates, uses, deletes and recreates one topic, over two connections: there is no window after an acknowledged creation, and
//! nothing left after an acknowledged deletion.
//!
//! ```text
//! Create -> Lone (acks=0) -> Produce -> List -> Fetch -> Delete -> GoneFetch -> GoneProduce -> Create ...
//! (with a group: Create -> Offsets: none yet -> Lone ... Fetch -> Commit -> Delete)
//!    ^                                                     ^
//!    '--------- Create unanswered: Find ---- exists -------'      a connection that ends: Check (the topic as it was promised)
//! ```

use ringmain_batch::{Builder, Codec};
use ringmain_buffer::Buf;
use ringmain_types::{BrokerId, ErrorCode, LeaderEpoch, Offset, PartitionIndex, TopicId};
use ringmain_wire::create_topics::CreatableTopic;
use ringmain_wire::delete_topics::DeleteTopicState;
use ringmain_wire::fetch::{FetchPartition, FetchTopic};
use ringmain_wire::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use ringmain_wire::metadata::MetadataRequestTopic;
use ringmain_wire::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use ringmain_wire::offset_fetch::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use ringmain_wire::produce::{PartitionProduceData, TopicProduceData};
use ringmain_wire::{
    CREATE_TOPICS, CreateTopicsRequest, CreateTopicsResponse, DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicsResponse,
    FETCH, FetchRequest, FetchResponse, LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse, METADATA,
    MetadataRequest, MetadataResponse, OFFSET_COMMIT, OFFSET_FETCH, OffsetCommitRequest, OffsetCommitResponse,
    OffsetFetchRequest, OffsetFetchResponse, PRODUCE, ProduceRequest, ProduceResponse, RecordBytes,
};

use super::committer::LATE_NS;
use super::line::{Line, reply};
use super::{Client, Context};
use crate::groups::legal;
use crate::ledger::{Keeping, Key, Ledger, Topic, TopicNumber};
use crate::network::Link;
use crate::value::{self, ValueId};

/// Of OffsetCommit and OffsetFetch: the newest that name a topic.
const OFFSETS_VERSION: i16 = 9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create,
    Produce,
    List,
    Fetch,
    /// What a group committed in this life of the name: nothing.
    Offsets,
    Commit,
    Delete,
    GoneFetch,
    GoneProduce,
    /// Does it exist? Asked when an answer was lost.
    Find,
}

/// What is known of the topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Gone,
    There(TopicNumber),
    /// A creation or a deletion was not answered.
    Unsure(Option<TopicNumber>),
}

pub struct Churn {
    client: u32,
    name: String,
    partitions: i32,
    rounds: u32,
    lines: [Line<(Step, Option<TopicNumber>)>; 2],
    step: Step,
    known: Known,
    last_id: TopicId,
    next_number: u32,
    /// Written in this life of the topic: an acks=0 record, then an acked one, on each partition.
    sent: Vec<[ValueId; 2]>,
    alone: bool,
    /// A creation or deletion was not answered; it may be done yet.
    doubt: bool,
    /// Its creation was acknowledged, so all shards know it; else it was found on one that does.
    sure: bool,
    /// There are coordinators: a group commits an offset in each life.
    commits: bool,
    /// Until then a commit of an earlier life that was not answered may come.
    late_until_ns: u64,
}

impl Churn {
    pub fn new(client: u32, rounds: u32, partitions: i32, commits: bool) -> Churn {
        Churn {
            client,
            name: format!("churn-{client}"),
            partitions,
            rounds,
            lines: [Line::default(), Line::default()],
            step: Step::Create,
            known: Known::Gone,
            last_id: TopicId::NONE,
            next_number: 0,
            sent: Vec::new(),
            alone: true,
            doubt: false,
            sure: false,
            commits,
            late_until_ns: 0,
        }
    }

    fn number(&self) -> Option<TopicNumber> {
        match self.known {
            Known::There(number) | Known::Unsure(Some(number)) => Some(number),
            _ => None,
        }
    }

    fn ask(&mut self, context: &mut Context<'_>) {
        let at = context.random.below(2) as usize;
        if !self.lines[at].up(context) {
            return;
        }
        let step = self.step;
        context.say(|| format!("{}: {step:?}", self.name));
        match step {
            Step::Create => self.create(context, at),
            Step::Produce | Step::GoneProduce => self.produce(context, at),
            Step::List => self.list(context, at),
            Step::Fetch | Step::GoneFetch => self.fetch(context, at),
            Step::Offsets => self.offsets(context, at),
            Step::Commit => self.commit(context, at),
            Step::Delete => self.delete(context, at),
            Step::Find => self.find(context, at),
        }
    }

    fn create(&mut self, context: &mut Context<'_>, at: usize) {
        let topic = CreatableTopic {
            name: &self.name,
            num_partitions: self.partitions,
            replication_factor: 1,
            ..Default::default()
        };
        let body = CreateTopicsRequest { topics: vec![topic].into(), ..Default::default() };
        self.known = Known::Unsure(None);
        self.lines[at].ask(context, &CREATE_TOPICS, 7, &body, (Step::Create, None));
    }

    fn find(&mut self, context: &mut Context<'_>, at: usize) {
        let topic = MetadataRequestTopic { topic_id: TopicId::NONE, name: Some(&self.name) };
        let topics = Some(vec![topic].into());
        let body = MetadataRequest { topics, allow_auto_topic_creation: false, ..Default::default() };
        self.lines[at].ask(context, &METADATA, 12, &body, (Step::Find, self.number()));
    }

    /// By id of the life that is meant: a deleted one's must not be taken for the next one's.
    fn produce(&mut self, context: &mut Context<'_>, at: usize) {
        let id = self.last_id;
        let number = self.number();
        let gone = self.step == Step::GoneProduce;
        if !gone {
            self.sent.clear();
        }
        let acks: &[i16] = if gone { &[1] } else { &[0, 1] };
        for acks in acks {
            let mut parts = Vec::new();
            for index in 0..self.partitions {
                let id = ValueId { client: self.client, number: self.next_number };
                self.next_number += 1;
                let mut builder = Builder::new(Codec::None, None);
                // Now and then long enough for a file.
                let length = if context.random.chance(0.3) { 1_500 } else { 30 };
                builder.push(context.wall, None, Some(&value::encode(id, length)), &[]);
                if let Some(topic) = number {
                    context.ledger.meant(Key { topic, index }, id);
                }
                match (gone, acks) {
                    (true, _) => {}
                    (false, 0) => self.sent.push([id, id]),
                    (false, _) => self.sent[index as usize][1] = id,
                }
                let records = RecordBytes::Parts(vec![Buf::copy_of(&builder.encode())]);
                parts.push(PartitionProduceData { index: PartitionIndex(index), records });
            }
            let topic = TopicProduceData { name: &self.name, topic_id: id, partition_data: parts.into() };
            let body = ProduceRequest {
                acks: *acks,
                timeout_ms: 10_000,
                topic_data: vec![topic].into(),
                ..Default::default()
            };
            if *acks == 0 {
                self.lines[at].tell(context, &PRODUCE, 13, &body);
            } else {
                self.lines[at].ask(context, &PRODUCE, 13, &body, (self.step, number));
            }
        }
    }

    fn list(&mut self, context: &mut Context<'_>, at: usize) {
        let part = |index| ListOffsetsPartition {
            partition_index: PartitionIndex(index),
            timestamp: -1,
            ..Default::default()
        };
        let topic = ListOffsetsTopic { name: &self.name, partitions: (0..self.partitions).map(part).collect() };
        let body = ListOffsetsRequest { replica_id: BrokerId(-1), topics: vec![topic].into(), ..Default::default() };
        self.lines[at].ask(context, &LIST_OFFSETS, 7, &body, (Step::List, self.number()));
    }

    fn fetch(&mut self, context: &mut Context<'_>, at: usize) {
        let part = |index| FetchPartition {
            partition: PartitionIndex(index),
            fetch_offset: Offset(0),
            partition_max_bytes: 1 << 20,
            ..Default::default()
        };
        let topic = FetchTopic {
            topic: &self.name,
            topic_id: self.last_id,
            partitions: (0..self.partitions).map(part).collect(),
        };
        let body = FetchRequest { max_wait_ms: 0, topics: vec![topic].into(), ..Default::default() };
        self.lines[at].ask(context, &FETCH, 13, &body, (self.step, self.number()));
    }

    /// The topic's name is the group's too.
    fn offsets(&mut self, context: &mut Context<'_>, at: usize) {
        let topic = OffsetFetchRequestTopics {
            name: &self.name,
            partition_indexes: vec![PartitionIndex(0)].into(),
            ..Default::default()
        };
        let topics = Some(vec![topic].into());
        let group = OffsetFetchRequestGroup { group_id: &self.name, topics, ..Default::default() };
        let body = OffsetFetchRequest { groups: vec![group].into(), ..Default::default() };
        self.lines[at].ask(context, &OFFSET_FETCH, OFFSETS_VERSION, &body, (self.step, self.number()));
    }

    fn commit(&mut self, context: &mut Context<'_>, at: usize) {
        let partition = OffsetCommitRequestPartition {
            partition_index: PartitionIndex(0),
            committed_offset: Offset(1),
            committed_leader_epoch: LeaderEpoch(-1),
            committed_metadata: None,
        };
        let topic =
            OffsetCommitRequestTopic { name: &self.name, partitions: vec![partition].into(), ..Default::default() };
        let body = OffsetCommitRequest {
            group_id: &self.name,
            generation_id_or_member_epoch: -1,
            topics: vec![topic].into(),
            ..Default::default()
        };
        self.lines[at].ask(context, &OFFSET_COMMIT, OFFSETS_VERSION, &body, (self.step, self.number()));
    }

    fn delete(&mut self, context: &mut Context<'_>, at: usize) {
        let by_id = context.random.chance(0.5);
        let topic = DeleteTopicState {
            name: (!by_id).then_some(self.name.as_str()),
            topic_id: if by_id { self.last_id } else { TopicId::NONE },
        };
        let body = DeleteTopicsRequest { topics: vec![topic].into(), timeout_ms: 10_000, ..Default::default() };
        let number = self.number();
        self.known = Known::Unsure(number);
        self.lines[at].ask(context, &DELETE_TOPICS, 6, &body, (Step::Delete, number));
    }

    fn exists(&mut self, context: &mut Context<'_>, id: TopicId) -> TopicNumber {
        self.last_id = id;
        self.sent.clear();
        let name = self.name.clone();
        let (partitions, keeping) = (self.partitions, Keeping::Group);
        let number = context.ledger.ready(Topic {
            name,
            id,
            partitions,
            keeping,
            retained: false,
            compacted: None,
            private: true,
        });
        self.known = Known::There(number);
        self.step = Step::Produce;
        number
    }

    fn gone(&mut self, context: &mut Context<'_>, number: Option<TopicNumber>) {
        if let Some(number) = number {
            context.ledger.forget(number);
        }
        self.known = Known::Gone;
    }

    /// Not every shard may know a topic yet that nobody acknowledged.
    fn early(&self, error: ErrorCode) -> bool {
        !self.sure && matches!(error, ErrorCode::UnknownTopicOrPartition | ErrorCode::UnknownTopicId)
    }

    fn answered(&mut self, context: &mut Context<'_>, asked: (Step, Option<TopicNumber>), frame: &[u8]) {
        match asked.0 {
            Step::Create => self.created(context, frame),
            Step::Find => self.found(context, asked.1, frame),
            Step::Produce | Step::GoneProduce => self.produced(context, asked, frame),
            Step::List => self.listed(context, frame),
            Step::Fetch | Step::GoneFetch => self.fetched(context, asked, frame),
            Step::Offsets => self.told_offsets(context, frame),
            Step::Commit => self.committed(context, frame),
            Step::Delete => self.deleted(context, asked.1, frame),
        }
    }

    fn created(&mut self, context: &mut Context<'_>, frame: &[u8]) {
        let Some(body) = reply::<CreateTopicsResponse<'_>>(context, &CREATE_TOPICS, 7, frame) else { return };
        let Some(topic) = body.topics.iter().next() else { return };
        match topic.error_code {
            ErrorCode::None => {
                if topic.topic_id == self.last_id {
                    context.fail("a recreated topic has a new id", self.name.clone());
                }
                self.alone = true;
                self.exists(context, topic.topic_id);
                self.sure = true;
                if self.commits {
                    self.step = Step::Offsets;
                }
            }
            error if context.ledger.legal(error) => {
                self.doubt |= error == ErrorCode::KafkaStorageError;
                self.step = Step::Find;
            }
            ErrorCode::TopicAlreadyExists if self.doubt => self.step = Step::Find,
            error => context.fail("a deleted topic's name is free at once", format!("{}: {error:?}", self.name)),
        }
    }

    fn found(&mut self, context: &mut Context<'_>, number: Option<TopicNumber>, frame: &[u8]) {
        let Some(body) = reply::<MetadataResponse<'_>>(context, &METADATA, 12, frame) else { return };
        let Some(topic) = body.topics.iter().next() else { return };
        let known = self.known;
        match (topic.error_code, known) {
            (ErrorCode::None, Known::There(_)) if topic.topic_id == self.last_id => self.step = Step::Delete,
            (ErrorCode::None, Known::Unsure(Some(_))) if topic.topic_id == self.last_id => self.step = Step::Delete,
            // Taken for gone, for the shard that was asked had not heard of it yet.
            (ErrorCode::None, Known::Unsure(None)) if topic.topic_id == self.last_id && !self.sure => {
                self.known = Known::Unsure(context.ledger.by_id(topic.topic_id));
                self.step = Step::Delete;
            }
            (ErrorCode::None, Known::Unsure(None)) => {
                self.exists(context, topic.topic_id);
                (self.sure, self.alone) = (false, false);
            }
            (error, Known::There(_)) if self.early(error) => {}
            (ErrorCode::UnknownTopicOrPartition, Known::Gone | Known::Unsure(_)) => {
                self.gone(context, number);
                self.step = Step::Create;
            }
            (error, known) => {
                let text = format!("{}: {error:?} {:?}, known: {known:?}", self.name, topic.topic_id);
                context.fail("a topic is what was acknowledged", text);
            }
        }
    }

    fn produced(&mut self, context: &mut Context<'_>, asked: (Step, Option<TopicNumber>), frame: &[u8]) {
        let Some(body) = reply::<ProduceResponse<'_>>(context, &PRODUCE, 13, frame) else { return };
        let gone = asked.0 == Step::GoneProduce;
        for part in body.responses.iter().flat_map(|topic| topic.partition_responses.iter().collect::<Vec<_>>()) {
            match (gone, part.error_code, asked.1) {
                (true, ErrorCode::UnknownTopicId | ErrorCode::UnknownTopicOrPartition, _) => {}
                (false, ErrorCode::None, Some(topic)) => {
                    let key = Key { topic, index: part.index.0 };
                    let [lone, acked] = self.sent[part.index.0 as usize];
                    context.ledger.acked(key, part.base_offset, &[acked]);
                    // Sent before it on the same connection: no window, so it is there too.
                    context.ledger.acked(key, Offset(part.base_offset.0 - 1), &[lone]);
                }
                (false, error, _) if self.early(error) || context.ledger.legal(error) => self.alone = false,
                (gone, error, _) => {
                    let invariant = if gone { "a deleted topic is gone at once" } else { "no window after a creation" };
                    context.fail(invariant, format!("produce to {} {:?}: {error:?}", self.name, part.index));
                }
            }
        }
        if gone {
            self.rounds = self.rounds.saturating_sub(1);
            self.step = Step::Create;
        } else {
            self.step = Step::List;
        }
    }

    fn listed(&mut self, context: &mut Context<'_>, frame: &[u8]) {
        let Some(body) = reply::<ListOffsetsResponse<'_>>(context, &LIST_OFFSETS, 7, frame) else { return };
        for part in body.topics.iter().flat_map(|topic| topic.partitions.iter().collect::<Vec<_>>()) {
            if part.error_code != ErrorCode::None
                && !self.early(part.error_code)
                && !context.ledger.legal(part.error_code)
            {
                let text = format!("list {} {:?}: {:?}", self.name, part.partition_index, part.error_code);
                context.fail("no window after a creation", text);
            } else if self.alone && part.error_code == ErrorCode::None && part.offset.0 != 2 {
                let text = format!("list {} {:?}: {}", self.name, part.partition_index, part.offset.0);
                context.fail("a new topic holds what was sent to it", text);
            }
        }
        self.step = Step::Fetch;
    }

    fn fetched(&mut self, context: &mut Context<'_>, asked: (Step, Option<TopicNumber>), frame: &[u8]) {
        let Some(body) = reply::<FetchResponse<'_>>(context, &FETCH, 13, frame) else { return };
        let gone = asked.0 == Step::GoneFetch;
        for part in body.responses.iter().flat_map(|topic| topic.partitions.iter().collect::<Vec<_>>()) {
            match (gone, part.error_code) {
                (true, ErrorCode::UnknownTopicId | ErrorCode::UnknownTopicOrPartition) => {}
                (false, ErrorCode::None) => {
                    if self.alone && part.high_watermark.0 != 2 {
                        let text = format!("fetch {} {:?}: {:?}", self.name, part.partition_index, part.high_watermark);
                        context.fail("a new topic holds what was sent to it", text);
                    }
                }
                (false, error) if self.early(error) || context.ledger.legal(error) => {}
                (gone, error) => {
                    let invariant = if gone { "a deleted topic is gone at once" } else { "no window after a creation" };
                    context.fail(invariant, format!("fetch {} {:?}: {error:?}", self.name, part.partition_index));
                }
            }
        }
        self.step = match gone {
            true => Step::GoneProduce,
            false if self.commits => Step::Commit,
            false => Step::Delete,
        };
    }

    fn told_offsets(&mut self, context: &mut Context<'_>, frame: &[u8]) {
        self.step = Step::Produce;
        let Some(body) = reply::<OffsetFetchResponse<'_>>(context, &OFFSET_FETCH, OFFSETS_VERSION, frame) else {
            return;
        };
        let Some(group) = body.groups.iter().next() else {
            return context.fail("answers name what was asked", format!("{}: OffsetFetch", self.name));
        };
        if group.error_code != ErrorCode::None {
            if !legal(context.ledger, group.error_code) {
                context.fail("committed offsets can be asked for", format!("{}: {:?}", self.name, group.error_code));
            }
            return;
        }
        context.ledger.reach("groups: offsets of a new topic looked for");
        let partitions = group.topics.iter().flat_map(|topic| topic.partitions.iter().collect::<Vec<_>>());
        let made_up = partitions.map(|partition| partition.committed_offset.0).find(|offset| *offset != -1);
        if let Some(offset) = made_up.filter(|_| self.sure && context.now_ns >= self.late_until_ns) {
            let text = format!("{}: {offset} was committed for the topic that was deleted", self.name);
            context.fail("a new topic has no committed offsets", text);
        }
    }

    fn committed(&mut self, context: &mut Context<'_>, frame: &[u8]) {
        self.step = Step::Delete;
        let Some(body) = reply::<OffsetCommitResponse<'_>>(context, &OFFSET_COMMIT, OFFSETS_VERSION, frame) else {
            return;
        };
        for partition in body.topics.iter().flat_map(|topic| topic.partitions.iter().collect::<Vec<_>>()) {
            match partition.error_code {
                ErrorCode::None => context.ledger.reach("groups: offsets of a short-lived topic committed"),
                // It may be decided yet.
                error if legal(context.ledger, error) => self.late_until_ns = context.now_ns + LATE_NS,
                error if self.early(error) => {}
                error => context.fail("an offset can be committed", format!("{}: {error:?}", self.name)),
            }
        }
    }

    fn deleted(&mut self, context: &mut Context<'_>, number: Option<TopicNumber>, frame: &[u8]) {
        let Some(body) = reply::<DeleteTopicsResponse<'_>>(context, &DELETE_TOPICS, 6, frame) else { return };
        let Some(topic) = body.responses.iter().next() else { return };
        match topic.error_code {
            ErrorCode::UnknownTopicOrPartition | ErrorCode::UnknownTopicId if self.doubt => {
                self.gone(context, number);
                self.step = Step::GoneFetch;
            }
            ErrorCode::None => {
                self.gone(context, number);
                self.step = Step::GoneFetch;
            }
            error if context.ledger.legal(error) => {
                self.doubt |= error == ErrorCode::KafkaStorageError;
                // Some shards may have heard of it.
                self.sure = false;
                self.step = Step::Find;
            }
            error => context.fail("a topic that exists can be deleted", format!("{}: {error:?}", self.name)),
        }
    }
}

impl Client for Churn {
    fn poll(&mut self, context: &mut Context<'_>) {
        let idle = self.lines.iter().all(|line| line.pending() == 0);
        if idle && self.rounds > 0 {
            self.ask(context);
        }
    }

    fn received(&mut self, context: &mut Context<'_>, link: Link, bytes: &[u8]) {
        for at in 0..2 {
            self.lines[at].received(link, bytes);
            while let Some(answer) = self.lines[at].next(context) {
                self.answered(context, answer.asked, &answer.frame);
            }
        }
    }

    fn closed(&mut self, context: &mut Context<'_>, link: Link) {
        for at in 0..2 {
            let lost = self.lines[at].closed(context, link);
            let lost = lost.unwrap_or_default();
            self.doubt |= lost.iter().any(|(step, _)| matches!(step, Step::Create | Step::Delete));
            if lost.iter().any(|(step, _)| *step == Step::Commit) {
                self.late_until_ns = context.now_ns + LATE_NS;
            }
            if !lost.is_empty() {
                self.step = Step::Find;
                self.alone = false;
                self.sure &= !self.doubt;
            }
        }
    }

    fn finished(&self, _ledger: &Ledger) -> bool {
        self.rounds == 0 && self.lines.iter().all(|line| line.pending() == 0)
    }

    fn describe(&self) -> String {
        format!("churn {}: {} rounds left, {:?}, {:?}", self.client, self.rounds, self.step, self.known)
    }
}
