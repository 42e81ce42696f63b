//! Creates the shared topics, some at once and some later, by request or by asking for them, and gives one more partitions; tells
//! everybody the moment it is acknowledged.

use std::collections::VecDeque;

use ringmain_types::{ErrorCode, TopicId};
use ringmain_wire::create_partitions::CreatePartitionsTopic;
use ringmain_wire::create_topics::{CreatableTopic, CreatableTopicConfig};
use ringmain_wire::metadata::MetadataRequestTopic;
use ringmain_wire::{
    CREATE_PARTITIONS, CREATE_TOPICS, CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest,
    CreateTopicsResponse, METADATA, MetadataRequest, MetadataResponse,
};

use super::line::{Line, reply};
use super::{Client, Context};
use crate::ledger::{Keeping, Ledger, Topic};
use crate::network::Link;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    CreateTopics,
    /// auto.create.topics.enable; the default is one partition.
    Metadata,
    /// Of a topic that is there: `partitions` from then on.
    CreatePartitions,
}

#[derive(Clone, Debug)]
pub struct Wish {
    pub by: By,
    pub name: String,
    pub partitions: i32,
    pub configs: Vec<(&'static str, String)>,
    pub keeping: Keeping,
    pub retained: bool,
    pub not_before_ns: u64,
}

enum Asked {
    Create,
    Grow,
    Find { create: bool },
}

pub struct Admin {
    wishes: VecDeque<Wish>,
    line: Line<Asked>,
    /// A creation was sent and never answered: the topic may be there.
    unsure: bool,
    /// It is there, and its id must be asked for.
    find: bool,
}

impl Admin {
    pub fn new(wishes: Vec<Wish>) -> Admin {
        Admin { wishes: wishes.into(), line: Line::default(), unsure: false, find: false }
    }

    fn create(&mut self, context: &mut Context<'_>) {
        let Some(wish) = self.wishes.front() else { return };
        let config = |(name, value): &(&'static str, String)| (*name, value.clone());
        let configs: Vec<_> = wish.configs.iter().map(config).collect();
        let configs = configs.iter().map(|(name, value)| CreatableTopicConfig { name, value: Some(value) });
        let topic = CreatableTopic {
            name: &wish.name,
            num_partitions: wish.partitions,
            replication_factor: 1,
            configs: configs.collect(),
            ..Default::default()
        };
        context.say(|| format!("create {} with {} partitions {:?}", wish.name, wish.partitions, wish.configs));
        let body = CreateTopicsRequest { topics: vec![topic].into(), ..Default::default() };
        self.line.ask(context, &CREATE_TOPICS, 7, &body, Asked::Create);
    }

    fn grow(&mut self, context: &mut Context<'_>) {
        let Some(wish) = self.wishes.front() else { return };
        context.say(|| format!("grow {} to {} partitions", wish.name, wish.partitions));
        let topic = CreatePartitionsTopic { name: &wish.name, count: wish.partitions, assignments: None };
        let body = CreatePartitionsRequest { topics: vec![topic].into(), timeout_ms: 10_000, validate_only: false };
        self.line.ask(context, &CREATE_PARTITIONS, 3, &body, Asked::Grow);
    }

    fn grown(&mut self, context: &mut Context<'_>, frame: &[u8]) {
        let Some(body) = reply::<CreatePartitionsResponse<'_>>(context, &CREATE_PARTITIONS, 3, frame) else { return };
        let Some(topic) = body.results.iter().next() else {
            return context.fail("answers name what was asked", "CreatePartitions names no topic".into());
        };
        match topic.error_code {
            // It has as many already, by a request that was not answered.
            ErrorCode::InvalidPartitions if self.unsure => {}
            ErrorCode::None => {}
            error if context.ledger.legal(error) => return self.unsure = true,
            error => {
                let text = format!("{}: {error:?} {:?}", topic.name, topic.error_message);
                return context.fail("a topic can be given more partitions", text);
            }
        }
        let Some(wish) = self.wishes.pop_front() else { return };
        self.unsure = false;
        context.say(|| format!("{} has {} partitions", wish.name, wish.partitions));
        context.ledger.grown(&wish.name, wish.partitions);
    }

    fn find(&mut self, context: &mut Context<'_>, create: bool) {
        let Some(wish) = self.wishes.front() else { return };
        let topic = MetadataRequestTopic { topic_id: TopicId::NONE, name: Some(&wish.name) };
        let body = MetadataRequest {
            topics: Some(vec![topic].into()),
            allow_auto_topic_creation: create,
            ..Default::default()
        };
        context.say(|| format!("find {}, create: {create}", wish.name));
        self.line.ask(context, &METADATA, 12, &body, Asked::Find { create });
    }

    fn ready(&mut self, context: &mut Context<'_>, id: TopicId) {
        let Some(wish) = self.wishes.pop_front() else { return };
        context.say(|| format!("{} is there: {id:?}", wish.name));
        context.ledger.ready(Topic {
            name: wish.name,
            id,
            partitions: wish.partitions,
            keeping: wish.keeping,
            retained: wish.retained,
            private: false,
        });
        (self.unsure, self.find) = (false, false);
    }

    fn created(&mut self, context: &mut Context<'_>, frame: &[u8]) {
        let Some(body) = reply::<CreateTopicsResponse<'_>>(context, &CREATE_TOPICS, 7, frame) else { return };
        let Some(topic) = body.topics.iter().next() else {
            return context.fail("answers name what was asked", "CreateTopics names no topic".into());
        };
        match topic.error_code {
            ErrorCode::None => self.ready(context, topic.topic_id),
            ErrorCode::TopicAlreadyExists if self.unsure => self.find = true,
            error if context.ledger.legal(error) => self.unsure = true,
            error => {
                let text = format!("{}: {error:?} {:?}", topic.name, topic.error_message);
                context.fail("a legal topic is created", text);
            }
        }
    }

    fn found(&mut self, context: &mut Context<'_>, create: bool, frame: &[u8]) {
        let Some(body) = reply::<MetadataResponse<'_>>(context, &METADATA, 12, frame) else { return };
        let Some(topic) = body.topics.iter().next() else {
            return context.fail("answers name what was asked", "Metadata names no topic".into());
        };
        if topic.error_code == ErrorCode::None {
            self.ready(context, topic.topic_id);
        } else if create {
            self.unsure = true;
            // The controller's records need memory as all others do, and while a disk stalls there may be none. Metadata has no other word
            // for that; the topic is asked for with CreateTopics next, which has.
            let refused = topic.error_code == ErrorCode::UnknownTopicOrPartition;
            if refused {
                context.ledger.reach("topics not made by Metadata");
            }
            if !(refused || context.ledger.hampered() || context.ledger.legal(topic.error_code)) {
                context.fail("a topic that exists is found", format!("{:?}: {:?}", topic.name, topic.error_code));
            }
        } else {
            context.fail("a topic that exists is found", format!("{:?}: {:?}", topic.name, topic.error_code));
        }
    }
}

impl Client for Admin {
    fn poll(&mut self, context: &mut Context<'_>) {
        let Some(wish) = self.wishes.front() else { return };
        if context.now_ns < wish.not_before_ns {
            return context.wake_in(wish.not_before_ns - context.now_ns);
        }
        if !self.line.up(context) || self.line.pending() > 0 {
            return;
        }
        match wish.by {
            By::CreateTopics | By::Metadata if self.find => self.find(context, false),
            By::CreateTopics => self.create(context),
            // Somebody may know it already and others not yet: who creates it once more is answered when all do.
            By::Metadata if self.unsure => self.create(context),
            By::Metadata => self.find(context, true),
            By::CreatePartitions => self.grow(context),
        }
    }

    fn received(&mut self, context: &mut Context<'_>, link: Link, bytes: &[u8]) {
        self.line.received(link, bytes);
        while let Some(answer) = self.line.next(context) {
            match answer.asked {
                Asked::Create => self.created(context, &answer.frame),
                Asked::Grow => self.grown(context, &answer.frame),
                Asked::Find { create } => self.found(context, create, &answer.frame),
            }
        }
    }

    fn closed(&mut self, context: &mut Context<'_>, link: Link) {
        let unanswered = self.line.closed(context, link).unwrap_or_default();
        self.unsure |= unanswered.iter().any(|asked| !matches!(asked, Asked::Find { create: false }));
    }

    fn finished(&self, _ledger: &Ledger) -> bool {
        self.wishes.is_empty()
    }

    fn describe(&self) -> String {
        format!(
            "admin: {:?} to create, {} requests in flight",
            self.wishes.front().map(|wish| &wish.name),
            self.line.pending()
        )
    }
}
