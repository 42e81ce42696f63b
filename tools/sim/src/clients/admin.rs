//! Creates the shared topics, some at once and some later, and tells everybody the moment a creation is acknowledged.

use std::collections::VecDeque;

use ringmain_types::{ErrorCode, TopicId};
use ringmain_wire::create_topics::{CreatableTopic, CreatableTopicConfig};
use ringmain_wire::metadata::MetadataRequestTopic;
use ringmain_wire::{
    CREATE_TOPICS, CreateTopicsRequest, CreateTopicsResponse, METADATA, MetadataRequest, MetadataResponse,
};

use super::line::{Line, reply};
use super::{Client, Context};
use crate::ledger::{Keeping, Ledger, Topic};
use crate::network::Link;

#[derive(Clone, Debug)]
pub struct Wish {
    pub name: String,
    pub partitions: i32,
    pub configs: Vec<(&'static str, String)>,
    pub keeping: Keeping,
    pub retained: bool,
    pub not_before_ns: u64,
}

enum Asked {
    Create,
    Find,
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

    fn find(&mut self, context: &mut Context<'_>) {
        let Some(wish) = self.wishes.front() else { return };
        let topic = MetadataRequestTopic { topic_id: TopicId::NONE, name: Some(&wish.name) };
        let body = MetadataRequest {
            topics: Some(vec![topic].into()),
            allow_auto_topic_creation: false,
            ..Default::default()
        };
        self.line.ask(context, &METADATA, 12, &body, Asked::Find);
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
            error if super::producer::legal(error) => self.unsure = true,
            error => {
                let text = format!("{}: {error:?} {:?}", topic.name, topic.error_message);
                context.fail("a legal topic is created", text);
            }
        }
    }

    fn found(&mut self, context: &mut Context<'_>, frame: &[u8]) {
        let Some(body) = reply::<MetadataResponse<'_>>(context, &METADATA, 12, frame) else { return };
        let Some(topic) = body.topics.iter().next() else {
            return context.fail("answers name what was asked", "Metadata names no topic".into());
        };
        if topic.error_code == ErrorCode::None {
            self.ready(context, topic.topic_id);
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
        if self.find { self.find(context) } else { self.create(context) }
    }

    fn received(&mut self, context: &mut Context<'_>, link: Link, bytes: &[u8]) {
        self.line.received(link, bytes);
        while let Some(answer) = self.line.next(context) {
            match answer.asked {
                Asked::Create => self.created(context, &answer.frame),
                Asked::Find => self.found(context, &answer.frame),
            }
        }
    }

    fn closed(&mut self, context: &mut Context<'_>, link: Link) {
        let unanswered = self.line.closed(context, link).unwrap_or_default();
        self.unsure |= unanswered.iter().any(|asked| matches!(asked, Asked::Create));
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
