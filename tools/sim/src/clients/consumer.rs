//! A consumer that reads every shared partition from the start, with a fetch session or without, and now and then once more.

use std::collections::BTreeMap;

use ringmain_batch::{BatchHeader, HEADER_BYTES, crc_ok, records};
use ringmain_types::{ErrorCode, Offset, PartitionIndex, TopicId};
use ringmain_wire::fetch::{FetchPartition, FetchTopic, PartitionData};
use ringmain_wire::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use ringmain_wire::{FETCH, FetchRequest, FetchResponse, LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse};

use super::line::{Line, PROMPT_NS_MAX, Patience, reply};
use super::{Client, Context};
use crate::ledger::{Keeping, Key, Ledger, TimeAsked};
use crate::network::Link;
use crate::value;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
/// Far below `ANSWER_NS_MAX`, whatever the pace.
const MAX_WAIT_MS: u64 = 5_000;
/// Of ListOffsets.
const LIST_VERSION: i16 = 7;

#[derive(Clone, Debug)]
pub struct Style {
    pub version: i16,
    pub session: bool,
    /// Chance, after a fetch, to begin again.
    pub rewind: f32,
    pub max_wait_ms: i32,
    pub bytes_max: i32,
    /// Chance to ask for offsets instead of records.
    pub list: f32,
    /// By time, it is for the greatest mostly.
    pub greatest: bool,
    /// After a fetch that gave nothing.
    pub pause_ns: u64,
}

/// What was known when a question was asked.
struct Floor {
    end: i64,
    start: i64,
    from: i64,
}

enum Asked {
    Fetch { floors: BTreeMap<Key, Floor>, whole: bool },
    List { key: Key, timestamp: i64, end: i64, start: i64 },
    Find { key: Key, asked: TimeAsked, end: i64 },
}

/// Where a pass through a partition is.
struct Place {
    next: i64,
    /// The last value of each producer's line, in this pass.
    last: BTreeMap<(u32, u32), u32>,
    /// The start must be asked for.
    lost: bool,
    /// It can't be read further: its bytes rotted, and that was said.
    rotten: bool,
}

pub struct Consumer {
    style: Style,
    line: Line<Asked>,
    places: BTreeMap<Key, Place>,
    session: (i32, i32),
    /// What the server's session knows: the offset of each partition.
    known: BTreeMap<Key, i64>,
    scratch: Vec<u8>,
    /// Idles from then on, for so long and the pace times that.
    idles: (u64, u64),
}

impl Consumer {
    pub fn new(style: Style) -> Consumer {
        Consumer {
            style,
            line: Line::default(),
            places: BTreeMap::new(),
            session: (0, 0),
            known: BTreeMap::new(),
            scratch: Vec::new(),
            idles: (0, 0),
        }
    }

    fn forget_session(&mut self) {
        self.session = (0, 0);
        self.known.clear();
    }

    fn list(&mut self, context: &mut Context<'_>, key: Key, timestamp: i64) {
        let (end, start) = (context.ledger.end(key), context.ledger.start(key));
        self.ask_offset(context, key, timestamp, Asked::List { key, timestamp, end, start });
    }

    /// By time.
    fn find(&mut self, context: &mut Context<'_>, key: Key) {
        let wall = context.wall.0;
        let kind = if self.style.greatest && context.random.chance(0.6) { 0 } else { context.random.below(4) };
        let asked = match kind {
            0 => TimeAsked::Max,
            1 => TimeAsked::At(wall - context.random.below(2_000_000) as i64),
            _ => TimeAsked::At(wall - context.random.skewed(0, 1_000) as i64),
        };
        let timestamp = match asked {
            TimeAsked::Max => MAX_TIMESTAMP,
            TimeAsked::At(at) => at,
        };
        let end = context.ledger.end(key);
        self.ask_offset(context, key, timestamp, Asked::Find { key, asked, end });
    }

    fn ask_offset(&mut self, context: &mut Context<'_>, key: Key, timestamp: i64, asked: Asked) {
        let topic = context.ledger.topic(key.topic).clone();
        let part = ListOffsetsPartition { partition_index: PartitionIndex(key.index), timestamp, ..Default::default() };
        let topics = vec![ListOffsetsTopic { name: &topic.name, partitions: vec![part].into() }];
        let body = ListOffsetsRequest {
            replica_id: ringmain_types::BrokerId(-1),
            topics: topics.into(),
            timeout_ms: 10_000,
            ..Default::default()
        };
        self.line.ask(context, &LIST_OFFSETS, LIST_VERSION, &body, asked);
    }

    /// The one partition of an answer; none when it has an error.
    fn offset(&mut self, context: &mut Context<'_>, key: Key, frame: &[u8]) -> Option<(i64, i64)> {
        let body = reply::<ListOffsetsResponse<'_>>(context, &LIST_OFFSETS, LIST_VERSION, frame)?;
        let found = body.topics.iter().flat_map(|topic| topic.partitions.iter().collect::<Vec<_>>());
        let Some(part) = found.into_iter().next().filter(|part| part.partition_index.0 == key.index) else {
            context.fail("answers name what was asked", format!("ListOffsets of {key:?}"));
            return None;
        };
        if part.error_code == ErrorCode::None {
            return Some((part.offset.0, part.timestamp));
        }
        if refuses_rot(part.error_code) && context.ledger.rot.is_some() {
            if let Some(place) = self.places.get_mut(&key) {
                place.rotten = true;
            }
            // A session would go on with it.
            self.forget_session();
            rotten(context, key, -1);
        } else if !context.ledger.legal(part.error_code) {
            context.fail("a topic that was acknowledged lists offsets", format!("{key:?}: {:?}", part.error_code));
        }
        None
    }

    fn listed(&mut self, context: &mut Context<'_>, key: Key, timestamp: i64, floor: (i64, i64), frame: &[u8]) {
        let Some((offset, _)) = self.offset(context, key, frame) else { return };
        let offset = Offset(offset);
        context.say(|| format!("listed {key:?} {timestamp}: {}", offset.0));
        if timestamp == LATEST {
            return context.ledger.end_seen("latest offset", key, floor.0, offset);
        }
        context.ledger.start_seen(key, floor.1, offset);
        if let Some(place) = self.places.get_mut(&key)
            && place.lost
        {
            *place = Place { next: offset.0, last: BTreeMap::new(), lost: false, rotten: false };
        }
    }

    fn found(&mut self, context: &mut Context<'_>, key: Key, asked: TimeAsked, end: i64, frame: &[u8]) {
        let Some((offset, at)) = self.offset(context, key, frame) else { return };
        context.say(|| format!("found {key:?} {asked:?}: {offset} of {at}"));
        context.ledger.found(key, asked, end, (offset >= 0).then_some((offset, at)));
    }

    fn fetch(&mut self, context: &mut Context<'_>) {
        let whole = self.session.1 == 0;
        let mut floors = BTreeMap::new();
        let mut topics: BTreeMap<_, Vec<FetchPartition>> = BTreeMap::new();
        for (key, place) in &self.places {
            if place.lost || place.rotten {
                continue;
            }
            floors.insert(
                *key,
                Floor { end: context.ledger.end(*key), start: context.ledger.start(*key), from: place.next },
            );
            if whole || self.known.get(key) != Some(&place.next) {
                topics.entry(key.topic).or_default().push(FetchPartition {
                    partition: PartitionIndex(key.index),
                    fetch_offset: Offset(place.next),
                    partition_max_bytes: context.random.between(1, self.style.bytes_max as u64) as i32,
                    ..Default::default()
                });
                self.known.insert(*key, place.next);
            }
        }
        let named: Vec<_> =
            topics.into_iter().map(|(topic, parts)| (context.ledger.topic(topic).clone(), parts)).collect();
        let topics = named.iter().map(|(topic, parts)| FetchTopic {
            topic: &topic.name,
            topic_id: topic.id,
            partitions: parts.clone().into(),
        });
        let max_wait_ms = match context.calm {
            true => self.style.max_wait_ms.min(10),
            false => (self.style.max_wait_ms as u64 * context.pace).min(MAX_WAIT_MS) as i32,
        };
        let body = FetchRequest {
            max_wait_ms,
            min_bytes: context.random.below(300) as i32,
            max_bytes: self.style.bytes_max,
            session_id: self.session.0,
            session_epoch: if self.style.session { self.session.1 } else { -1 },
            topics: topics.collect(),
            ..Default::default()
        };
        context.say(|| format!("fetch {:?}", floors.iter().map(|(key, floor)| (key, floor.from)).collect::<Vec<_>>()));
        let patience = Patience { waits_ns: max_wait_ms as u64 * 1_000_000, prompt_ns: PROMPT_NS_MAX };
        self.line.ask_waiting(context, &FETCH, self.style.version, &body, (Asked::Fetch { floors, whole }, patience));
    }

    fn fetched(&mut self, context: &mut Context<'_>, floors: BTreeMap<Key, Floor>, whole: bool, frame: &[u8]) {
        let Some(body) = reply::<FetchResponse<'_>>(context, &FETCH, self.style.version, frame) else { return };
        match body.error_code {
            ErrorCode::None => {}
            ErrorCode::FetchSessionIdNotFound | ErrorCode::InvalidFetchSessionEpoch if !whole => {
                // A shard that needs the slot may end any session.
                return self.forget_session();
            }
            error if context.ledger.legal(error) => return self.forget_session(),
            error => return context.fail("a fetch is answered", format!("{error:?}, session {:?}", self.session)),
        }
        if self.style.session {
            self.session = match body.session_id {
                0 => (0, 0),
                id => (id, self.session.1 + 1),
            };
            if body.session_id == 0 {
                self.known.clear();
            }
        }
        let mut answered = 0;
        let before: i64 = self.places.values().map(|place| place.next).sum();
        for topic in &body.responses {
            let number = match topic.topic_id {
                TopicId::NONE => context.ledger.by_name(topic.topic),
                id => context.ledger.by_id(id),
            };
            for part in &topic.partitions {
                let key = number.map(|topic| Key { topic, index: part.partition_index.0 });
                let Some((key, floor)) = key.and_then(|key| Some((key, floors.get(&key)?))) else {
                    context.fail(
                        "answers name what was asked",
                        format!("fetch: {} {:?}", topic.topic, part.partition_index),
                    );
                    continue;
                };
                answered += 1;
                self.part(context, key, floor, &part);
            }
        }
        // Where all take their time, a reader does too: it would begin again and again for hours.
        let rests = context.pace > 1 || before == self.places.values().map(|place| place.next).sum::<i64>();
        if rests && self.style.pause_ns > 0 {
            self.idles = (context.now_ns, context.random.skewed(0, self.style.pause_ns));
        }
        if self.places.values().any(|place| place.rotten) {
            // A session would go on with it.
            self.forget_session();
        }
        if whole && answered != floors.len() {
            context.fail("answers name all that was asked", format!("fetch: {answered} of {}", floors.len()));
        }
    }

    fn part(&mut self, context: &mut Context<'_>, key: Key, floor: &Floor, part: &PartitionData<'_>) {
        let (keeping, retained) = {
            let topic = context.ledger.topic(key.topic);
            (topic.keeping, topic.retained)
        };
        let Some(place) = self.places.get_mut(&key) else { return };
        match part.error_code {
            ErrorCode::None => {}
            // Deleted below, or lost with a process where that is allowed.
            ErrorCode::OffsetOutOfRange
                if retained || keeping == Keeping::Async || floor.from < context.ledger.delete_limit(key) =>
            {
                place.lost = true;
                self.known.remove(&key);
                return;
            }
            error if refuses_rot(error) && context.ledger.rot.is_some() => {
                place.rotten = true;
                self.known.remove(&key);
                return rotten(context, key, floor.from);
            }
            error if context.ledger.legal(error) => {
                self.known.remove(&key);
                return;
            }
            error => {
                let text = format!("{key:?} from {}: {error:?}", floor.from);
                return context.fail("a topic that was acknowledged can be read", text);
            }
        }
        context.ledger.end_seen("high watermark", key, floor.end, part.high_watermark);
        if self.style.version >= 5 {
            context.ledger.bounds(key, part.log_start_offset, part.high_watermark);
            context.ledger.start_seen(key, floor.start, part.log_start_offset);
        }
        if part.last_stable_offset > part.high_watermark {
            context.fail("last stable offset <= high watermark", format!("{key:?}"));
        }
        let bytes = part.records.wire().unwrap_or(&[]);
        if place.next != floor.from {
            return;
        }
        if let Err(broken) = take(place, &mut self.scratch, context, key, bytes, part.high_watermark) {
            let text = format!("{key:?} from {}: {}; of {:?}", floor.from, broken.1, outline(bytes));
            context.fail(broken.0, text);
        }
    }
}

/// A damaged batch; a log that is damaged where it would be appended to.
fn refuses_rot(error: ErrorCode) -> bool {
    matches!(error, ErrorCode::CorruptMessage | ErrorCode::KafkaStorageError)
}

/// A partition is refused: it must be the one whose bytes changed, and somebody must have said so.
fn rotten(context: &mut Context<'_>, key: Key, from: i64) {
    let rot = context.ledger.rot.clone();
    match context.ledger.rotten(key) {
        None => context.fail("rot is refused where it is, and nowhere else", format!("{key:?} from {from}, {rot:?}")),
        Some(false) => context.fail("rot is named", format!("{key:?} from {from}")),
        Some(true) => {}
    }
    context.ledger.reach("rot: refused");
}

/// Offsets and lengths of what look like batches.
fn outline(mut bytes: &[u8]) -> Vec<(i64, i64, u32)> {
    let mut outline = Vec::new();
    while let Ok(header) = BatchHeader::parse(bytes) {
        outline.push((header.base.0, header.next().0, header.info.bytes));
        bytes = bytes.get(header.info.bytes as usize..).unwrap_or_default();
        if bytes.len() < HEADER_BYTES {
            break;
        }
    }
    outline
}

/// Walks through whole batches and hands each record to the ledger.
fn take(
    place: &mut Place,
    scratch: &mut Vec<u8>,
    context: &mut Context<'_>,
    key: Key,
    mut bytes: &[u8],
    high_watermark: Offset,
) -> Result<(), (&'static str, String)> {
    const WHOLE: &str = "a fetch gives whole, sound batches";
    let compacted = context.ledger.topic(key.topic).compacted.is_some();
    while !bytes.is_empty() {
        if bytes.len() < HEADER_BYTES {
            return Err((WHOLE, format!("{} bytes left over", bytes.len())));
        }
        let header = BatchHeader::parse(bytes).map_err(|error| (WHOLE, format!("{error:?}")))?;
        let length = header.info.bytes as usize;
        if bytes.len() < length {
            return Err((WHOLE, format!("{} of {length} bytes", bytes.len())));
        }
        let (batch, rest) = bytes.split_at(length);
        bytes = rest;
        if !crc_ok(batch) {
            return Err((WHOLE, format!("the CRC of the batch at {} is wrong", header.base.0)));
        }
        if header.next() > high_watermark {
            return Err(("reads end at the high watermark", format!("{:?} > {high_watermark:?}", header.next())));
        }
        // What is not there was compacted away, or nothing may be missing.
        if compacted && header.base.0 > place.next && header.next().0 > place.next {
            context.ledger.skipped(key, place.next..header.base.0);
            place.next = header.base.0;
        }
        if header.next().0 <= place.next || header.base.0 > place.next {
            let text = format!("a batch of {}..{} where {} is next", header.base.0, header.next().0, place.next);
            return Err(("offsets are dense", text));
        }
        let mut offset = header.base.0;
        for record in records(batch, scratch, 1 << 20).map_err(|error| (WHOLE, format!("{error:?}")))? {
            let record = record.map_err(|error| (WHOLE, format!("{error:?}")))?;
            let at = header.base.0 + i64::from(record.offset_delta);
            if compacted && at > offset && at < header.next().0 {
                context.ledger.skipped(key, offset.max(place.next)..at.max(place.next));
                offset = at;
            }
            if at != offset {
                return Err(("offsets are dense", format!("delta {} where {offset} is next", record.offset_delta)));
            }
            let named = || record.headers.into_iter().find_map(|(_, value)| value);
            let name = if compacted && record.value.is_none() { named() } else { record.value };
            let Some(id) = name.and_then(value::decode) else {
                return Err(("the same bytes for ever", format!("the value at {offset} is none that anybody wrote")));
            };
            context.ledger.read(key, offset, id);
            if offset >= place.next
                && let Some(last) = place.last.insert((id.client, context.ledger.line_of(id)), id.number)
                && last >= id.number
            {
                return Err(("order per producer", format!("{id:?} at {offset}, behind {last}")));
            }
            offset += 1;
        }
        if compacted && offset < header.next().0 {
            context.ledger.skipped(key, offset.max(place.next)..header.next().0);
            offset = header.next().0;
        }
        if offset != header.next().0 {
            return Err(("offsets are dense", format!("records end at {offset}, the batch at {}", header.next().0)));
        }
        place.next = offset;
    }
    Ok(())
}

impl Client for Consumer {
    fn poll(&mut self, context: &mut Context<'_>) {
        if !self.line.up(context) || self.line.pending() > 0 {
            return;
        }
        for key in context.ledger.shared().iter() {
            self.places.entry(*key).or_insert_with(|| Place {
                next: 0,
                last: BTreeMap::new(),
                lost: true,
                rotten: false,
            });
        }
        if self.places.is_empty() {
            return context.wake_in(5_000_000);
        }
        if let Some((key, _)) = self.places.iter().find(|(_, place)| place.lost && !place.rotten) {
            let key = *key;
            return self.list(context, key, EARLIEST);
        }
        if context.random.chance(self.style.list) {
            let at = context.random.below(self.places.len() as u64) as usize;
            let key = *self.places.keys().nth(at).expect("below the length");
            return match context.random.below(4) {
                0 => self.list(context, key, LATEST),
                1 => self.list(context, key, EARLIEST),
                _ => self.find(context, key),
            };
        }
        if self.finished(context.ledger) && context.calm {
            return context.wake_in(50_000_000);
        }
        let idle_until_ns = self.idles.0 + self.idles.1 * context.pace;
        if context.now_ns < idle_until_ns {
            return context.wake_in(idle_until_ns - context.now_ns);
        }
        self.fetch(context);
    }

    fn received(&mut self, context: &mut Context<'_>, link: Link, bytes: &[u8]) {
        self.line.received(link, bytes);
        while let Some(answer) = self.line.next(context) {
            match answer.asked {
                Asked::List { key, timestamp, end, start } => {
                    self.listed(context, key, timestamp, (end, start), &answer.frame);
                }
                Asked::Find { key, asked, end } => self.found(context, key, asked, end, &answer.frame),
                Asked::Fetch { floors, whole } => {
                    self.fetched(context, floors, whole, &answer.frame);
                    if !context.calm && context.random.chance(self.style.rewind) {
                        self.places.values_mut().for_each(|place| place.lost = true);
                    }
                }
            }
        }
    }

    fn closed(&mut self, context: &mut Context<'_>, link: Link) {
        if self.line.closed(context, link).is_some() {
            self.forget_session();
            // What was lost with a process where that is allowed is read anew; and what must not be is looked for.
            for (key, place) in &mut self.places {
                let topic = context.ledger.topic(key.topic);
                place.lost |=
                    topic.keeping == Keeping::Async || topic.compacted.is_some() && context.random.chance(0.5);
            }
        }
    }

    fn finished(&self, ledger: &Ledger) -> bool {
        let reached = |key: &Key| {
            self.places.get(key).is_some_and(|place| place.rotten || !place.lost && place.next >= ledger.end(*key))
        };
        ledger.shared().iter().all(reached)
    }

    fn describe(&self) -> String {
        let places: Vec<_> =
            self.places.iter().map(|(key, place)| (key.topic.0, key.index, place.next, place.lost)).collect();
        format!("consumer at {places:?}, {} requests in flight", self.line.pending())
    }
}
