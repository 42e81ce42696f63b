//! The reply to a Fetch: of a large one, encoded slice by slice. Neighbours of one topic are one in the reply, also across slices: the protocol
//! allows a topic several times, and Kafka tells of one so, but only to who asks so, and sarama keeps its last mention alone.

use ringmain_buffer::{Buf, Bufs};
use ringmain_types::*;
use ringmain_wire::fetch::{AbortedTransaction, EpochEndOffset, FetchResponse, FetchableTopicResponse, PartitionData};
use ringmain_wire::{Array, FETCH, Field, RecordBytes, Writer, encode_reply};

use crate::Note;
use crate::asked::TopicKey;
use crate::fetch::{FetchAsked, trim};
use crate::fetch_session::{Answer, Context, FetchSessions, TopicRef, Wanted};
use crate::jobs::ReplyTo;
use crate::mesh::FetchResult;

/// How far a reply was made.
#[derive(Default)]
pub(crate) struct Telling {
    /// Topics that are written.
    count: usize,
    slices: Vec<Buf>,
    /// The last topic: the next slice may go on with it.
    open: Option<OpenTopic>,
    /// Bytes of records so far.
    total: u64,
    pub(crate) error: ErrorCode,
}

/// What is the same of all slices.
pub(crate) struct Scope<'a> {
    pub(crate) sessions: &'a mut FetchSessions,
    pub(crate) context: Context,
    pub(crate) committed_only: bool,
    pub(crate) bytes_max: u64,
    pub(crate) notes: &'a mut Vec<Note>,
}

struct OpenTopic {
    topic: TopicRef,
    key: TopicKey,
    /// Partitions that are written.
    count: usize,
    slices: Vec<Buf>,
}

/// A topic's partitions in a reply.
type Topic<'a> = (TopicRef, TopicKey, Vec<PartitionData<'a>>);

/// What a reply says of one partition.
struct Told {
    key: TopicKey,
    result: FetchResult,
}

impl Telling {
    /// Adds a slice.
    pub(crate) fn add(&mut self, scope: &mut Scope<'_>, version: i16, parts: Vec<FetchAsked>) {
        let mut topics = self.topics(scope, parts);
        let open = self.open.as_ref().map(|open| &open.topic);
        let goes_on = topics.first().is_some_and(|(topic, ..)| open == Some(topic));
        let first = goes_on.then(|| topics.remove(0));
        if let (Some(open), Some((_, _, data))) = (&mut self.open, first) {
            open.add(version, data);
        }
        let Some((topic, key, data)) = topics.pop() else { return };
        self.close(version);
        let mut w = Writer::new(version, FETCH.is_flexible(version));
        for topic in responses(&mut topics) {
            self.count += 1;
            topic.write(&mut w);
        }
        if !w.is_empty() {
            self.slices.extend(w.finish());
        }
        let mut open = OpenTopic { topic, key, count: 0, slices: Vec::new() };
        open.add(version, data);
        self.open = Some(open);
    }

    /// Writes the last topic.
    fn close(&mut self, version: i16) {
        let Some(OpenTopic { topic, key, count, slices }) = self.open.take() else { return };
        let mut w = Writer::new(version, FETCH.is_flexible(version));
        response(&topic, &key, Array::Written { count, slices }).write(&mut w);
        self.count += 1;
        self.slices.extend(w.finish());
    }

    pub(crate) fn end(&mut self, to: &ReplyTo, context: Context) -> Bufs {
        self.close(to.version);
        let responses = Array::Written { count: self.count, slices: std::mem::take(&mut self.slices) };
        reply(to, context, responses)
    }

    /// All at once.
    pub(crate) fn whole(&mut self, scope: &mut Scope<'_>, to: &ReplyTo, parts: Vec<FetchAsked>) -> Bufs {
        let mut topics = self.topics(scope, parts);
        reply(to, scope.context, responses(&mut topics).collect())
    }

    fn topics<'a>(&mut self, scope: &mut Scope<'_>, mut parts: Vec<FetchAsked>) -> Vec<Topic<'a>> {
        trim(&mut parts, &mut self.total, scope.bytes_max);
        let told = |FetchAsked { wanted, key, result, .. }| (wanted, Told { key, result });
        let mut parts: Vec<(Wanted, Told)> = parts.into_iter().map(told).collect();
        scope.sessions.tell(scope.context, &mut parts, |told| Answer {
            error: told.result.error,
            high_watermark: told.result.high_watermark,
            start: told.result.start,
            bytes: told.result.slices.bytes,
            diverging: told.result.diverging.is_some(),
        });
        if self.error == ErrorCode::None {
            self.error = crate::api::first_error(parts.iter().map(|(_, told)| told.result.error));
        }
        let mut topics: Vec<Topic<'a>> = Vec::new();
        for (wanted, Told { key, result }) in parts {
            if result.slices.bytes > 0
                && let Ok(partition) = key.partition(wanted.index)
            {
                scope.notes.push(Note::Traffic { partition, in_bytes: 0, out_bytes: result.slices.bytes });
            }
            let data = partition_data(wanted.index, result, scope.committed_only);
            match topics.last_mut() {
                Some((topic, _, all)) if *topic == wanted.topic => all.push(data),
                _ => topics.push((wanted.topic, key, vec![data])),
            }
        }
        topics
    }
}

fn reply(to: &ReplyTo, context: Context, responses: Array<'_, FetchableTopicResponse<'_>>) -> Bufs {
    let reply = FetchResponse {
        throttle_time_ms: to.throttle_ms as i32,
        session_id: context.id(),
        responses,
        ..FetchResponse::default()
    };
    encode_reply(&FETCH, to.version, to.correlation, &reply)
}

impl OpenTopic {
    fn add(&mut self, version: i16, data: Vec<PartitionData<'_>>) {
        let mut w = Writer::new(version, FETCH.is_flexible(version));
        self.count += data.len();
        data.iter().for_each(|data| data.write(&mut w));
        self.slices.extend(w.finish());
    }
}

fn responses<'t>(topics: &'t mut [Topic<'_>]) -> impl Iterator<Item = FetchableTopicResponse<'t>> {
    topics.iter_mut().map(|(topic, key, data)| response(topic, key, std::mem::take(data).into()))
}

fn response<'t>(
    topic: &'t TopicRef,
    key: &TopicKey,
    partitions: Array<'t, PartitionData<'t>>,
) -> FetchableTopicResponse<'t> {
    let name = match topic {
        TopicRef::Name(name) => name,
        TopicRef::Id(_) => "",
    };
    FetchableTopicResponse { topic: name, topic_id: key.id(), partitions }
}

fn partition_data<'a>(index: PartitionIndex, result: FetchResult, committed_only: bool) -> PartitionData<'a> {
    let FetchResult { error, high_watermark, last_stable, start, diverging, slices } = result;
    let aborted = slices.aborted.iter();
    let aborted: Array<'_, _> =
        aborted.map(|&(producer_id, first_offset)| AbortedTransaction { producer_id, first_offset }).collect();
    PartitionData {
        partition_index: index,
        error_code: error,
        high_watermark,
        last_stable_offset: last_stable,
        log_start_offset: start,
        aborted_transactions: committed_only.then_some(aborted),
        records: RecordBytes::Parts(slices.parts),
        diverging_epoch: diverging
            .map_or_else(EpochEndOffset::default, |(epoch, end_offset)| EpochEndOffset { epoch, end_offset }),
        ..PartitionData::default()
    }
}
