//! Waits for records of a topic of several owners, and writes one meanwhile: a long poll ends with data of any owner, not with its time.
//!
//! ```text
//! Create -> glances, a poll of all partitions .. a write to one of them -> the poll ends within `WAKE_NS_MAX` of the ack -> glances ..
//! ```

use ringmain_batch::{Builder, Codec};
use ringmain_buffer::Buf;
use ringmain_types::{ErrorCode, Offset, PartitionIndex};
use ringmain_wire::create_topics::CreatableTopic;
use ringmain_wire::fetch::{FetchPartition, FetchTopic};
use ringmain_wire::produce::{PartitionProduceData, TopicProduceData};
use ringmain_wire::{
    CREATE_TOPICS, CreateTopicsRequest, CreateTopicsResponse, FETCH, FetchRequest, FetchResponse, PRODUCE,
    ProduceRequest, ProduceResponse, RecordBytes,
};

use super::line::{Line, PROMPT_NS_MAX, Patience, reply};
use super::{Client, Context};
use crate::ledger::Ledger;
use crate::network::Link;

/// One more than there may be shards.
const PARTITIONS: usize = 4;
/// Nobody waits it out but whom the broker forgot.
const MAX_WAIT_MS: i32 = 5_000;
/// From an acknowledgement on, once faults are quiet.
const WAKE_NS_MAX: u64 = 2_000_000_000;
const GLANCES_MAX: u64 = 3;
/// By name, as of before topics had ids: nothing has to be known of a topic whose creation was not answered.
const FETCH_VERSION: i16 = 12;
const PRODUCE_VERSION: i16 = 12;

enum Asked {
    Create,
    /// Reads what is there, of one partition: the numbers of calls to its owner get ahead of those to others.
    Glance,
    Poll,
    Write,
}

pub struct Watcher {
    name: String,
    made: bool,
    reader: Line<Asked>,
    writer: Line<Asked>,
    ends: [i64; PARTITIONS],
    /// How many polls are to end: in all, and of those that began when faults were over.
    rounds: u32,
    calm_rounds: u32,
    glances: u64,
    /// A poll is under way.
    polls: bool,
    /// It waits for a record that is to be written then.
    write_at_ns: Option<u64>,
    /// The record was acknowledged.
    acked_ns: Option<u64>,
    pause_until_ns: u64,
}

impl Watcher {
    pub fn new(number: u32, rounds: u32, calm_rounds: u32) -> Watcher {
        Watcher {
            name: format!("watch-{number}"),
            made: false,
            reader: Line::default(),
            writer: Line::default(),
            ends: [0; PARTITIONS],
            rounds,
            calm_rounds,
            glances: 0,
            polls: false,
            write_at_ns: None,
            acked_ns: None,
            pause_until_ns: 0,
        }
    }

    fn create(&mut self, context: &mut Context<'_>) {
        let topic = CreatableTopic {
            name: &self.name,
            num_partitions: PARTITIONS as i32,
            replication_factor: 1,
            ..Default::default()
        };
        let body = CreateTopicsRequest { topics: vec![topic].into(), ..Default::default() };
        self.reader.ask(context, &CREATE_TOPICS, 7, &body, Asked::Create);
    }

    fn fetch(&mut self, context: &mut Context<'_>, partitions: &[usize], max_wait_ms: i32, asked: Asked) {
        let part = |index: &usize| FetchPartition {
            partition: PartitionIndex(*index as i32),
            fetch_offset: Offset(self.ends[*index]),
            partition_max_bytes: 1 << 20,
            ..Default::default()
        };
        let partitions = partitions.iter().map(part).collect();
        let topic = FetchTopic { topic: &self.name, partitions, ..Default::default() };
        let body = FetchRequest { max_wait_ms, min_bytes: 1, topics: vec![topic].into(), ..Default::default() };
        let patience = Patience { waits_ns: max_wait_ms as u64 * 1_000_000, prompt_ns: PROMPT_NS_MAX };
        self.reader.ask_waiting(context, &FETCH, FETCH_VERSION, &body, (asked, patience));
    }

    fn poll_all(&mut self, context: &mut Context<'_>) {
        context.say(|| format!("{}: poll from {:?}", self.name, self.ends));
        self.fetch(context, &[0, 1, 2, 3], MAX_WAIT_MS, Asked::Poll);
        (self.polls, self.acked_ns) = (true, None);
        self.glances = context.random.below(GLANCES_MAX + 1);
        let wait_ns = context.random.skewed(0, 30_000_000);
        self.write_at_ns = Some(context.now_ns + wait_ns);
        context.wake_in(wait_ns);
    }

    fn write(&mut self, context: &mut Context<'_>) {
        self.write_at_ns = None;
        let index = context.random.below(PARTITIONS as u64) as i32;
        context.say(|| format!("{}: write to {index}", self.name));
        let mut builder = Builder::new(Codec::None, None);
        builder.push(context.wall, None, Some(b"watched"), &[]);
        let records = RecordBytes::Parts(vec![Buf::copy_of(&builder.encode())]);
        let part = PartitionProduceData { index: PartitionIndex(index), records };
        let topic = TopicProduceData { name: &self.name, partition_data: vec![part].into(), ..Default::default() };
        let body =
            ProduceRequest { acks: -1, timeout_ms: 10_000, topic_data: vec![topic].into(), ..Default::default() };
        self.writer.ask(context, &PRODUCE, PRODUCE_VERSION, &body, Asked::Write);
    }

    /// The poll waits for a record that is there.
    fn judge(&self, context: &mut Context<'_>) {
        let Some((acked_ns, since)) = self.acked_ns.filter(|_| self.polls).zip(context.quiet_since_ns) else { return };
        let waited_ns = context.now_ns.saturating_sub(acked_ns.max(since));
        if waited_ns > WAKE_NS_MAX {
            let text = format!("{}: {} ms after an acknowledged record", self.name, waited_ns / 1_000_000);
            context.fail("a long poll ends with data of any owner", text);
        }
    }

    fn answered(&mut self, context: &mut Context<'_>, asked: &Asked, frame: &[u8]) {
        match asked {
            Asked::Create => {
                let Some(body) = reply::<CreateTopicsResponse<'_>>(context, &CREATE_TOPICS, 7, frame) else { return };
                let code = body.topics.iter().next().map(|topic| topic.error_code);
                self.made = matches!(code, Some(ErrorCode::None | ErrorCode::TopicAlreadyExists));
                self.pause_until_ns = context.now_ns + 5_000_000;
            }
            Asked::Glance => self.fetched(context, frame),
            Asked::Poll => {
                self.judge(context);
                self.fetched(context, frame);
                context.ledger.reach("long polls over several owners");
                self.rounds = self.rounds.saturating_sub(1);
                self.calm_rounds = self.calm_rounds.saturating_sub(u32::from(context.calm));
                (self.polls, self.write_at_ns, self.acked_ns) = (false, None, None);
            }
            Asked::Write => {
                let Some(body) = reply::<ProduceResponse<'_>>(context, &PRODUCE, PRODUCE_VERSION, frame) else {
                    return;
                };
                let parts =
                    body.responses.iter().flat_map(|topic| topic.partition_responses.iter().collect::<Vec<_>>());
                match parts.map(|part| part.error_code).next() {
                    Some(ErrorCode::None) => self.acked_ns = Some(context.now_ns),
                    _ => self.write_again(context),
                }
                context.wake_in(WAKE_NS_MAX + 1_000_000);
            }
        }
    }

    fn write_again(&mut self, context: &mut Context<'_>) {
        if self.polls {
            self.write_at_ns = Some(context.now_ns + 5_000_000);
            context.wake_in(5_000_000);
        }
    }

    /// What was there is seen; what can't be read, for a shard has not heard of the topic or its disk failed, is asked for again.
    fn fetched(&mut self, context: &mut Context<'_>, frame: &[u8]) {
        let Some(body) = reply::<FetchResponse<'_>>(context, &FETCH, FETCH_VERSION, frame) else { return };
        for part in body.responses.iter().flat_map(|topic| topic.partitions.iter().collect::<Vec<_>>()) {
            let end = self.ends.get_mut(part.partition_index.0 as usize);
            match (part.error_code, end) {
                (ErrorCode::None, Some(end)) if part.records.wire().is_some_and(|bytes| !bytes.is_empty()) => {
                    *end = part.high_watermark.0;
                }
                (ErrorCode::None, Some(_)) => {}
                _ => self.pause_until_ns = context.now_ns + 5_000_000,
            }
        }
    }
}

impl Client for Watcher {
    fn poll(&mut self, context: &mut Context<'_>) {
        self.judge(context);
        if self.finished(context.ledger) || self.rounds == 0 && !context.calm {
            return;
        }
        if context.now_ns < self.pause_until_ns {
            return context.wake_in(self.pause_until_ns - context.now_ns);
        }
        if !self.reader.up(context) {
            return;
        }
        if !self.made {
            if self.reader.pending() == 0 {
                self.create(context);
            }
            return;
        }
        if !self.writer.up(context) {
            return;
        }
        if self.reader.pending() == 0 && self.writer.pending() == 0 {
            if self.glances == 0 {
                return self.poll_all(context);
            }
            self.glances -= 1;
            let index = context.random.below(PARTITIONS as u64) as usize;
            self.fetch(context, &[index], 0, Asked::Glance);
        } else if self.polls
            && self.writer.pending() == 0
            && let Some(at) = self.write_at_ns
        {
            match at <= context.now_ns {
                true => self.write(context),
                false => context.wake_in(at - context.now_ns),
            }
        }
    }

    fn received(&mut self, context: &mut Context<'_>, link: Link, bytes: &[u8]) {
        self.reader.received(link, bytes);
        while let Some(answer) = self.reader.next(context) {
            self.answered(context, &answer.asked, &answer.frame);
        }
        self.writer.received(link, bytes);
        while let Some(answer) = self.writer.next(context) {
            self.answered(context, &answer.asked, &answer.frame);
        }
    }

    fn closed(&mut self, context: &mut Context<'_>, link: Link) {
        if self.reader.closed(context, link).is_some() {
            (self.polls, self.write_at_ns, self.acked_ns) = (false, None, None);
        } else if self.writer.closed(context, link).is_some_and(|asked| !asked.is_empty()) {
            self.write_again(context);
        }
    }

    fn finished(&self, _ledger: &Ledger) -> bool {
        self.calm_rounds == 0 && self.reader.pending() == 0 && self.writer.pending() == 0
    }

    fn describe(&self) -> String {
        format!(
            "{}: {} calm rounds left, polls: {}, acked {:?}",
            self.name, self.calm_rounds, self.polls, self.acked_ns
        )
    }
}
