//! Fetch, on the shard of the connection: sessions, owners, the reply.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use ringmain_batch::Codec;
use ringmain_buffer::Buf;
use ringmain_session::Request;
use ringmain_types::*;
use ringmain_wire::fetch::{
    AbortedTransaction, EpochEndOffset, FetchRequest, FetchResponse, FetchableTopicResponse, PartitionData,
};
use ringmain_wire::{Array, FETCH, RecordBytes, WireError, encode_reply};

use crate::asked::{Dealt, TopicKey};
use crate::dispatch::{REQUEST_MS, body};
use crate::fetch::{FetchAsked, FetchJob, FetchOwner, Next};
use crate::fetch_session::{Answer, Context, TopicRef, Wanted};
use crate::jobs::{ReplyTo, Waiter, Work};
use crate::logs::topic_codec;
use crate::mesh::{Call, CallId, FetchPart, FetchResult, Mesh};
use crate::slab::Key;
use crate::{Effects, Note, Shard};

/// From here on topics have ids.
const BY_ID: i16 = 13;
/// From here on a client knows zstd (KIP-110).
const ZSTD: i16 = 10;
const READ_COMMITTED: i8 = 1;
/// How long a client waits before it asks again when there was no memory to let it wait.
const THROTTLE_MS: u32 = 200;

impl Shard {
    pub(crate) fn ask_fetch(&mut self, now: Now, request: &Request, out: &mut Effects) -> Result<(), WireError> {
        let fetch: FetchRequest<'_> = body(&FETCH, request)?;
        let to = ReplyTo::new(now, request);
        let by_id = request.version >= BY_ID;
        let (wanted, forgotten) = named(&fetch, by_id);
        let session = (fetch.session_id, fetch.session_epoch);
        let (context, wanted) = match self.fetch_sessions.begin(now.mono, by_id, session, wanted, forgotten) {
            Ok(begun) => begun,
            Err(error) => {
                let reply = FetchResponse { error_code: error, ..FetchResponse::default() };
                let parts = encode_reply(&FETCH, to.version, to.correlation, &reply);
                self.reply(now, &to, parts, (error, false), out);
                return Ok(());
            }
        };
        let committed_only = fetch.isolation_level == READ_COMMITTED;
        let mut dealt = Dealt::new(self.config.shards);
        let mut parts = Vec::with_capacity(wanted.len());
        for wanted in wanted {
            let asked = self.fetch_asked(wanted, request.version, committed_only);
            if let Some(part) = &asked.part {
                dealt.push(part.partition, parts.len() as u32, ());
            }
            parts.push(asked);
        }
        let (shares, _) = dealt.shares();
        let wait_ms = u64::try_from(fetch.max_wait_ms).unwrap_or(0);
        let asked_bytes = u64::try_from(fetch.max_bytes).unwrap_or(0);
        // Who sends no more does not wait (`peer_ended`).
        let ended = self.sessions.get_mut(request.connection).is_none_or(|connection| connection.session.ended());
        let nothing = parts.is_empty();
        let no_room = self.no_room_to_wait(parts.len());
        let job = FetchJob {
            context,
            by_id,
            committed_only,
            parts,
            owners: shares.into_iter().map(|share| FetchOwner::new(share.shard, share.parts)).collect(),
            min_bytes: u64::try_from(fetch.min_bytes).unwrap_or(0).min(self.fetch_bytes_max()),
            bytes_max: asked_bytes.min(self.fetch_bytes_max()),
            until: now.mono.plus_ms(wait_ms),
            last: wait_ms == 0 || fetch.min_bytes <= 0 || nothing || ended || no_room,
            early: wait_ms > 0 && fetch.min_bytes > 0 && !nothing && no_room,
        };
        let until = job.until;
        let key = self.add_job(to, Work::Fetch(Box::new(job)), until);
        self.fetch_step(now, key, |job| job.begin(), out);
        Ok(())
    }

    /// No reply is larger: the limit, less when replies already hold much.
    fn fetch_bytes_max(&self) -> u64 {
        let limit = self.config.limits.fetch_reply_bytes_max.min(self.broker_config.fetch_bytes_max);
        u64::from(limit).min(self.sessions.reply_bytes_left() / 2).max(1)
    }

    fn fetch_asked(&self, wanted: Wanted, version: i16, committed_only: bool) -> FetchAsked {
        let key = match &wanted.topic {
            TopicRef::Name(name) => TopicKey::by_name(&self.image, name),
            TopicRef::Id(id) => TopicKey::by_id(&self.image, *id),
        };
        let partition = key.partition(wanted.index).and_then(|partition| {
            let config = self.logs.config(partition.topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
            let zstd = topic_codec(config) == Some(Codec::Zstd);
            if zstd && version < ZSTD { Err(ErrorCode::UnsupportedCompressionType) } else { Ok(partition) }
        });
        let part = partition.ok().map(|partition| FetchPart {
            partition,
            epoch: wanted.epoch,
            last_epoch: wanted.last_epoch,
            from: wanted.from,
            bytes_max: wanted.bytes_max,
            committed_only,
        });
        // Of a partition with an owner this is what stands when the owner says nothing.
        let result = FetchResult::failed(partition.err().unwrap_or(ErrorCode::RequestTimedOut));
        FetchAsked { wanted, key, part, result }
    }

    /// An owner has less than asked, and watches.
    pub(crate) fn fetch_waiting(
        &mut self,
        now: Now,
        id: CallId,
        waiter: Waiter,
        results: Vec<FetchResult>,
        out: &mut Effects,
    ) {
        let Some(Work::Fetch(fetch)) = self.jobs.get_mut(waiter.job).map(|job| &mut job.work) else { return };
        fetch.returned(waiter.share, results, Some(id));
        self.watching.insert(id, waiter);
        self.fetch_next(now, waiter.job, out);
    }

    pub(crate) fn watch_fired(&mut self, now: Now, id: CallId, out: &mut Effects) {
        if let Some(waiter) = self.watching.remove(&id) {
            self.fetch_step(now, waiter.job, |job| job.ready(waiter.share, id), out);
        }
    }

    pub(crate) fn fetch_next(&mut self, now: Now, key: Key, out: &mut Effects) {
        self.fetch_step(now, key, |job| job.next(now.mono), out);
    }

    fn fetch_step(&mut self, now: Now, key: Key, step: impl FnOnce(&mut FetchJob) -> Next, out: &mut Effects) {
        let Some(job) = self.jobs.get_mut(key) else { return };
        let Work::Fetch(fetch) = &mut job.work else { return };
        match step(fetch) {
            Next::Wait => {}
            Next::Reply => self.finish_job(now, key, out),
            Next::Ask(owners) => {
                let deadline = Shard::call_deadline(fetch.until.max(now.mono).plus_ms(REQUEST_MS));
                let (wait, count) = (!fetch.last, fetch.owners.len() as u64);
                let bytes_max = fetch.share_bytes_max(count, self.config.limits.fetch_reply_bytes_max);
                let mut watches = Vec::new();
                let calls: Vec<_> = owners
                    .into_iter()
                    .filter_map(|at| {
                        let owner = fetch.owners.get_mut(at as usize)?;
                        watches.extend(owner.watch.take().map(|id| (owner.shard, id)));
                        let part = |part: &u32| fetch.parts[*part as usize].part.clone();
                        let parts = owner.parts.iter().filter_map(part).collect();
                        let min_bytes = u32::try_from(owner.threshold).unwrap_or(u32::MAX);
                        Some((at, owner.shard, Call::Fetch { parts, bytes_max, min_bytes, wait }))
                    })
                    .collect();
                for (shard, id) in watches {
                    self.end_watch(shard, id, out);
                }
                for (share, shard, call) in calls {
                    self.call(shard, deadline, call, Waiter { job: key, share }, out);
                }
            }
        }
    }

    /// Nobody waits for these watches any more.
    pub(crate) fn end_watches(&mut self, fetch: &FetchJob, out: &mut Effects) {
        for owner in &fetch.owners {
            if let Some(id) = owner.watch {
                self.end_watch(owner.shard, id, out);
            }
        }
    }

    fn end_watch(&mut self, owner: ShardId, id: CallId, out: &mut Effects) {
        if self.watching.remove(&id).is_some() {
            self.send(owner, Mesh::Cancel { id }, out);
        }
    }

    pub(crate) fn encode_fetch(
        &mut self,
        now: Now,
        to: &mut ReplyTo,
        mut fetch: FetchJob,
        out: &mut Effects,
    ) -> (Vec<Buf>, ErrorCode) {
        self.end_watches(&fetch, out);
        fetch.trim();
        // It would ask again at once, and be answered at once.
        if fetch.early && fetch.parts.iter().all(|asked| asked.result.slices.bytes == 0) {
            let rest_ms = fetch.until.since(now.mono) / 1_000_000;
            to.throttle_ms = THROTTLE_MS.min(u32::try_from(rest_ms).unwrap_or(THROTTLE_MS));
        }
        let mut parts: Vec<(Wanted, Told)> = fetch
            .parts
            .into_iter()
            .map(|FetchAsked { wanted, key, result, .. }| (wanted, Told { key, result }))
            .collect();
        let session_id = self.fetch_sessions.finish(now.mono, fetch.by_id, fetch.context, &mut parts, |told| Answer {
            error: told.result.error,
            high_watermark: told.result.high_watermark,
            start: told.result.start,
            bytes: told.result.slices.bytes,
            diverging: told.result.diverging.is_some(),
        });
        debug_assert!(fetch.context != Context::Sessionless || session_id == 0);
        let errors = parts.iter().map(|(_, told)| told.result.error);
        let error = crate::api::first_error(errors);
        let committed_only = fetch.committed_only;
        let mut topics: Vec<(TopicRef, TopicKey, Vec<PartitionData<'_>>)> = Vec::new();
        for (wanted, Told { key, result }) in parts {
            if result.slices.bytes > 0
                && let Ok(partition) = key.partition(wanted.index)
            {
                out.notes.push(Note::Traffic { partition, in_bytes: 0, out_bytes: result.slices.bytes });
            }
            let data = partition_data(wanted.index, result, committed_only);
            match topics.last_mut() {
                Some((topic, _, all)) if *topic == wanted.topic => all.push(data),
                _ => topics.push((wanted.topic, key, vec![data])),
            }
        }
        let responses = topics.iter_mut().map(|(topic, key, data)| FetchableTopicResponse {
            topic: match topic {
                TopicRef::Name(name) => name,
                TopicRef::Id(_) => "",
            },
            topic_id: key.id(),
            partitions: std::mem::take(data).into(),
        });
        let reply = FetchResponse {
            throttle_time_ms: to.throttle_ms as i32,
            session_id,
            responses: responses.collect(),
            ..FetchResponse::default()
        };
        (encode_reply(&FETCH, to.version, to.correlation, &reply), error)
    }
}

/// What a reply says of one partition.
struct Told {
    key: TopicKey,
    result: FetchResult,
}

impl FetchJob {
    /// Every owner may use all of a small reply and its part of a large one; `trim` cuts what is too much.
    fn share_bytes_max(&self, owners: u64, limit: u32) -> u32 {
        let floor = u64::from(limit / 4).min(self.bytes_max);
        u32::try_from((self.bytes_max / owners.max(1)).max(floor)).unwrap_or(u32::MAX)
    }
}

fn some_epoch(epoch: LeaderEpoch) -> Option<LeaderEpoch> {
    (epoch.0 >= 0).then_some(epoch)
}

type Forgotten = Vec<(TopicRef, PartitionIndex)>;

/// What the request names, and what it forgets.
fn named(fetch: &FetchRequest<'_>, by_id: bool) -> (Vec<Wanted>, Forgotten) {
    let topic_ref = |name: &str, id| if by_id { TopicRef::Id(id) } else { TopicRef::Name(name.into()) };
    let mut wanted = Vec::new();
    let (mut topics, mut sorted) = (BTreeSet::new(), true);
    for topic in &fetch.topics {
        let key = topic_ref(topic.topic, topic.topic_id);
        let mut last = None;
        sorted &= topics.insert(key.clone());
        for part in &topic.partitions {
            sorted &= last.replace(part.partition).is_none_or(|last| last < part.partition);
            wanted.push(Wanted {
                topic: key.clone(),
                index: part.partition,
                epoch: some_epoch(part.current_leader_epoch),
                last_epoch: some_epoch(part.last_fetched_epoch),
                from: part.fetch_offset,
                bytes_max: u32::try_from(part.partition_max_bytes).unwrap_or(0),
            });
        }
    }
    if !sorted {
        wanted = once(wanted);
    }
    let mut forgotten = Vec::new();
    for topic in &fetch.forgotten_topics_data {
        let key = topic_ref(topic.topic, topic.topic_id);
        forgotten.extend(topic.partitions.iter().map(|index| (key.clone(), index)));
    }
    (wanted, forgotten)
}

/// Each partition once, in its first place, as it was named last: as Kafka's map has it.
fn once(wanted: Vec<Wanted>) -> Vec<Wanted> {
    let mut places = BTreeMap::new();
    let mut out: Vec<Wanted> = Vec::with_capacity(wanted.len());
    for part in wanted {
        match places.entry((part.topic.clone(), part.index)) {
            Entry::Occupied(place) => out[*place.get()] = part,
            Entry::Vacant(place) => {
                place.insert(out.len());
                out.push(part);
            }
        }
    }
    out
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
