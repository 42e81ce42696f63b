//! Producers: idempotent ones that send everything again after a reconnect, with the same sequences; plain ones that never do.

use std::collections::{BTreeMap, VecDeque};

use ringmain_batch::{Builder, Codec};
use ringmain_buffer::Buf;
use ringmain_types::{ErrorCode, PartitionIndex, ProducerEpoch, ProducerId, Sequence, TopicId, WallMs};
use ringmain_wire::produce::{PartitionProduceData, TopicProduceData};
use ringmain_wire::{
    INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse, PRODUCE, ProduceRequest, ProduceResponse,
    RecordBytes,
};

use super::line::{Line, reply};
use super::{Client, Context};
use crate::ledger::{Keeping, Key, Keyed, Ledger};
use crate::network::Link;
use crate::value::{self, ValueId};

#[derive(Clone, Debug)]
pub struct Style {
    /// Has a producer id, retries.
    pub idempotent: bool,
    pub acks: i16,
    pub version: i16,
    /// Values to write in all.
    pub values: u32,
    pub requests_inflight_max: usize,
    pub records_per_batch_max: u64,
    pub value_bytes_max: u64,
    /// Between two new batches.
    pub think_ns: (u64, u64),
    /// Chance that a batch is compressed.
    pub compressed: f32,
    /// Timestamps lie up to this far in the past.
    pub stamp_ms: u64,
    /// Chance that a request names dozens of partitions that are not there: a large one, which may have to wait for its turn, and what is sent
    /// behind it must not go before it.
    pub overreaches: f32,
}

/// So many, of a topic that has a handful from 0 on; and about so many bytes of records for all of them: what is small is not counted, and
/// what is very large finds no memory with the smallest accounts.
const MISSING: (u64, u64) = (14, 60);
const MISSING_FROM: i32 = 1000;
const MISSING_BYTES: u64 = 8_000;

struct Batch {
    key: Key,
    values: Vec<ValueId>,
    sequence: i32,
    bytes: Buf,
    flying: bool,
}

enum Asked {
    Identity,
    /// The first value of each batch in the request names the batch.
    Produce(Vec<(Key, ValueId)>),
}

pub struct Producer {
    id: u32,
    style: Style,
    line: Line<Asked>,
    identity: Option<(ProducerId, ProducerEpoch)>,
    sequences: BTreeMap<Key, i32>,
    batches: VecDeque<Batch>,
    left: u32,
    next_number: u32,
    /// Thinks from then on, for so long and the pace times that.
    thinks: (u64, u64),
    /// Connections that ended.
    connection: u32,
    /// Partitions with a batch that was refused: what was in flight behind it fails too. Nothing new goes out until all of it is back.
    stumbled: BTreeMap<Key, ErrorCode>,
}

impl Producer {
    pub fn new(id: u32, style: Style) -> Producer {
        let left = style.values;
        Producer {
            id,
            style,
            line: Line::default(),
            identity: None,
            sequences: BTreeMap::new(),
            batches: VecDeque::new(),
            left,
            next_number: 0,
            thinks: (0, 0),
            connection: 0,
            stumbled: BTreeMap::new(),
        }
    }

    fn identify(&mut self, context: &mut Context<'_>) {
        if self.line.pending() == 0 {
            let body = InitProducerIdRequest { transaction_timeout_ms: 60_000, ..Default::default() };
            self.line.ask(context, &INIT_PRODUCER_ID, 3, &body, Asked::Identity);
        }
    }

    fn make(&mut self, context: &mut Context<'_>) {
        let thinks = context.now_ns < self.thinks.0 + self.thinks.1 * context.pace;
        if self.left == 0 || thinks || self.batches.len() >= 8 {
            return;
        }
        let group = |key: &Key| !self.style.idempotent || context.ledger.topic(key.topic).keeping == Keeping::Group;
        let keys: Vec<Key> = context.ledger.shared().iter().copied().filter(group).collect();
        let count = context.random.between(1, self.style.records_per_batch_max).min(u64::from(self.left)) as u32;
        if keys.is_empty() {
            context.wake_in(5_000_000);
            return;
        }
        let key = keys[context.random.below(keys.len() as u64) as usize];
        let sequence = self.sequences.entry(key).or_default();
        let identity = self.identity.map(|(id, epoch)| ringmain_batch::Producer {
            id,
            epoch,
            first: Sequence(*sequence),
            last: Sequence(*sequence + count as i32 - 1),
        });
        // Not zstd: consumers of before Fetch v10 are refused it.
        let codecs = [Codec::Gzip, Codec::Snappy, Codec::Lz4];
        let codec = match context.random.chance(self.style.compressed) {
            true => codecs[context.random.below(3) as usize],
            false => Codec::None,
        };
        let mut builder = Builder::new(codec, identity);
        let mut values = Vec::new();
        for _ in 0..count {
            let value = ValueId { client: self.id, number: self.next_number };
            self.next_number += 1;
            let length = context.random.skewed(u64::from(value::BYTES_MIN), self.style.value_bytes_max) as u32;
            let at = context.wall.0 - context.random.below(self.style.stamp_ms + 1) as i64;
            let encoded = value::encode(value, length);
            match context.ledger.topic(key.topic).compacted {
                None => builder.push(WallMs(at), None, Some(&encoded), &[]),
                Some(compacted) => {
                    let keyed =
                        Keyed { key: context.random.below(compacted.keys), tombstone: context.random.chance(0.2) };
                    context.ledger.keyed(value, keyed);
                    // A tombstone's name is in a header: it has no value.
                    let name = value::encode(value, value::BYTES_MIN);
                    let headers = [("name", Some(&name[..]))];
                    let body = (!keyed.tombstone).then_some(&encoded[..]);
                    builder.push(WallMs(at), Some(&keyed.key.to_be_bytes()), body, &headers);
                }
            }
            context.ledger.meant(key, value);
            context.ledger.stamped(value, at);
            values.push(value);
        }
        let batch = Batch { key, values, sequence: *sequence, bytes: Buf::copy_of(&builder.encode()), flying: false };
        *sequence += count as i32;
        self.left -= count;
        self.batches.push_back(batch);
        self.thinks = (context.now_ns, context.random.skewed(self.style.think_ns.0, self.style.think_ns.1));
        context.wake_in(self.thinks.1 * context.pace + 1);
    }

    /// One request of the batches that are next on their partitions.
    fn send(&mut self, context: &mut Context<'_>) -> bool {
        let parts_max = context.random.between(1, 4) as usize;
        let mut chosen: BTreeMap<Key, usize> = BTreeMap::new();
        for (at, batch) in self.batches.iter().enumerate() {
            if !batch.flying && chosen.len() < parts_max && !chosen.contains_key(&batch.key) {
                chosen.insert(batch.key, at);
            }
        }
        if chosen.is_empty() {
            return false;
        }
        let mut topics: BTreeMap<_, Vec<PartitionProduceData<'_>>> = BTreeMap::new();
        let mut asked = Vec::new();
        for (key, at) in &chosen {
            let batch = &mut self.batches[*at];
            batch.flying = true;
            asked.push((*key, batch.values[0]));
            if !self.style.idempotent {
                batch.values.iter().for_each(|value| context.ledger.sends(*value, self.connection));
            }
            let records = RecordBytes::Parts(vec![batch.bytes.clone()]);
            topics
                .entry(key.topic)
                .or_default()
                .push(PartitionProduceData { index: PartitionIndex(key.index), records });
        }
        if self.style.overreaches > 0.0
            && context.random.chance(self.style.overreaches)
            && let Some((key, at)) = chosen.first_key_value()
            && self.batches[*at].bytes.len() as u64 * MISSING.0 <= MISSING_BYTES
        {
            context.ledger.reach("produce: dozens of missing partitions");
            let records = &self.batches[*at].bytes;
            let most = MISSING.1.min(MISSING_BYTES / records.len() as u64);
            let names = context.random.between(MISSING.0, most) as i32;
            topics.entry(key.topic).or_default().extend((MISSING_FROM..MISSING_FROM + names).map(|index| {
                PartitionProduceData {
                    index: PartitionIndex(index),
                    records: RecordBytes::Parts(vec![records.clone()]),
                }
            }));
        }
        context.say(|| {
            let shown =
                |at: &usize| (self.batches[*at].key, self.batches[*at].sequence, self.batches[*at].values.len());
            format!("produce {:?}", chosen.values().map(shown).collect::<Vec<_>>())
        });
        let named: Vec<_> =
            topics.into_iter().map(|(topic, parts)| (context.ledger.topic(topic).clone(), parts)).collect();
        let topic_data = named.iter().map(|(topic, parts)| TopicProduceData {
            name: &topic.name,
            topic_id: topic.id,
            partition_data: parts.clone().into(),
        });
        let body = ProduceRequest {
            transactional_id: None,
            acks: self.style.acks,
            timeout_ms: 10_000,
            topic_data: topic_data.collect(),
        };
        if self.style.acks == 0 {
            self.line.tell(context, &PRODUCE, self.style.version, &body);
            self.batches.retain(|batch| !batch.flying);
        } else {
            self.line.ask(context, &PRODUCE, self.style.version, &body, Asked::Produce(asked));
        }
        true
    }

    fn answered(&mut self, context: &mut Context<'_>, asked: Vec<(Key, ValueId)>, frame: &[u8]) {
        let Some(body) = reply::<ProduceResponse<'_>>(context, &PRODUCE, self.style.version, frame) else { return };
        let mut open: BTreeMap<Key, ValueId> = asked.into_iter().collect();
        for topic in &body.responses {
            let number = if topic.topic_id == TopicId::NONE {
                context.ledger.by_name(topic.name)
            } else {
                context.ledger.by_id(topic.topic_id)
            };
            for part in &topic.partition_responses {
                if part.index.0 >= MISSING_FROM && part.error_code != ErrorCode::None {
                    continue;
                }
                let key = number.map(|topic| Key { topic, index: part.index.0 });
                let Some((key, first)) = key.and_then(|key| open.remove_entry(&key)) else {
                    context.fail("answers name what was asked", format!("{} {:?}", topic.name, part.index));
                    continue;
                };
                let at = self.batches.iter().position(|batch| batch.values[0] == first);
                let at = at.expect("what is asked for stays until it is answered");
                self.settled(context, key, at, part.error_code, part.base_offset);
            }
        }
        if !open.is_empty() {
            context.fail("answers name all that was asked", format!("missing: {open:?}"));
        }
    }

    fn settled(
        &mut self,
        context: &mut Context<'_>,
        key: Key,
        at: usize,
        error: ErrorCode,
        base: ringmain_types::Offset,
    ) {
        context.say(|| format!("produced {key:?} {:?} {error:?} at {}", self.batches[at].values[0], base.0));
        if error == ErrorCode::None {
            let batch = self.batches.remove(at).expect("its place");
            // Where it is open whether the first was written, it may have been, by an attempt before.
            if self.stumbled.get(&key).is_some_and(|error| !open_ended(*error)) {
                context.fail("order per producer", format!("{key:?}: acknowledged behind a batch that was refused"));
            }
            return context.ledger.acked(key, base, &batch.values);
        }
        // Six batches of it were written since: an attempt nobody heard of had been, too.
        if error == ErrorCode::DuplicateSequenceNumber && self.style.idempotent {
            let batch = self.batches.remove(at).expect("its place");
            return context.ledger.appended(key, batch.values);
        }
        let follows = error == ErrorCode::OutOfOrderSequenceNumber && self.stumbled.contains_key(&key);
        if !context.ledger.legal(error) && !follows {
            context.fail("a topic that was acknowledged takes records", format!("{key:?}: {error:?}"));
        }
        if self.style.idempotent {
            self.stumbled.entry(key).or_insert(error);
            self.batches[at].flying = false;
        } else {
            let batch = self.batches.remove(at).expect("its place");
            if !open_ended(error) {
                for value in &batch.values {
                    context.ledger.refused(key, *value);
                }
            }
        }
    }
}

/// A timeout, and a disk that failed, leave it open whether records were written.
fn open_ended(error: ErrorCode) -> bool {
    matches!(error, ErrorCode::RequestTimedOut | ErrorCode::KafkaStorageError)
}

impl Client for Producer {
    fn poll(&mut self, context: &mut Context<'_>) {
        if self.finished(context.ledger) || !self.line.up(context) {
            return;
        }
        if self.style.idempotent && self.identity.is_none() {
            return self.identify(context);
        }
        if !self.stumbled.is_empty() {
            if self.line.pending() == 0 {
                // All that was in flight is back: once more, in order.
                self.stumbled.clear();
                context.wake_in(5_000_000);
            }
            return;
        }
        loop {
            self.make(context);
            if self.line.pending() >= self.style.requests_inflight_max || !self.send(context) {
                break;
            }
        }
    }

    fn received(&mut self, context: &mut Context<'_>, link: Link, bytes: &[u8]) {
        self.line.received(link, bytes);
        while let Some(answer) = self.line.next(context) {
            match answer.asked {
                Asked::Produce(asked) => self.answered(context, asked, &answer.frame),
                Asked::Identity => {
                    let Some(body) = reply::<InitProducerIdResponse>(context, &INIT_PRODUCER_ID, 3, &answer.frame)
                    else {
                        return;
                    };
                    if body.error_code == ErrorCode::None {
                        context.say(|| format!("is {:?}", body.producer_id));
                        context.ledger.producer(body.producer_id);
                        self.identity = Some((body.producer_id, body.producer_epoch));
                    } else if !context.ledger.legal(body.error_code) {
                        context.fail("producer ids are given", format!("{:?}", body.error_code));
                    }
                }
            }
        }
    }

    fn closed(&mut self, context: &mut Context<'_>, link: Link) {
        if self.line.closed(context, link).is_none() {
            return;
        }
        self.stumbled.clear();
        if self.style.idempotent {
            self.batches.iter_mut().for_each(|batch| batch.flying = false);
        } else {
            self.batches.retain(|batch| !batch.flying);
            self.connection += 1;
        }
    }

    fn finished(&self, _ledger: &Ledger) -> bool {
        self.left == 0 && self.batches.is_empty() && self.line.pending() == 0
    }

    fn describe(&self) -> String {
        format!(
            "producer {}: {} values to make, {} batches unanswered, {} requests in flight",
            self.id,
            self.left,
            self.batches.len(),
            self.line.pending()
        )
    }
}
