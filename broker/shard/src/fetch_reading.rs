//! What a Fetch names, read out of its frame some at a time: a hundred thousand partitions are milliseconds, in which nobody else of the core
//! would be served.
//!
//! ```text
//! named --> forgotten --> of the session     (the last two of an incremental fetch alone)
//! ```

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use ringmain_batch::Codec;
use ringmain_metadata::ClusterImage;
use ringmain_session::Request;
use ringmain_types::*;
use ringmain_wire::fetch::{FetchPartition, FetchRequest, FetchTopic, ForgottenTopic};
use ringmain_wire::{Array, Body, FETCH, Place};

use crate::asked::TopicKey;
use crate::fetch::{FetchAsked, FetchJob};
use crate::fetch_session::{Context, FetchSessions, PartKey, SessionPlace, TopicRef, Wanted, part_bytes};
use crate::logs::{Logs, topic_codec};
use crate::mesh::{FetchPart, FetchResult};

/// From here on topics have ids.
pub(crate) const BY_ID: i16 = 13;
/// From here on a client knows zstd (KIP-110).
const ZSTD: i16 = 10;

/// Where in a job the partitions are, by topic and number.
pub(crate) type Places = BTreeMap<(u32, PartitionIndex), u32>;

/// How far a request was read.
pub(crate) struct Reading {
    request: Request,
    named: Topics,
    forgotten: Topics,
    session: Session,
    /// Where in the job each partition is that was named. Each is fetched once, in its first place, as it was named last: as Kafka's map has it.
    numbers: BTreeMap<TopicRef, u32>,
    places: Places,
    topic: Option<Topic>,
    /// The owner of each shard, in the job, that takes more partitions.
    open: Vec<Option<u32>>,
}

/// How far a list of topics and their partitions was read.
struct Topics {
    topics: Place,
    topic: TopicRef,
    parts: Place,
}

enum Session {
    Unchanged,
    Read(Option<SessionPlace>),
}

/// What is the same of all partitions of a topic.
struct Topic {
    name: TopicRef,
    /// Of what the request names, among its topics.
    number: Option<u32>,
    key: TopicKey,
    /// Only if there is such a topic.
    codec: Option<Option<Codec>>,
}

/// What reading needs of the shard.
pub(crate) struct Scope<'a> {
    pub(crate) now: Instant,
    pub(crate) image: &'a ClusterImage,
    pub(crate) logs: &'a Logs,
    pub(crate) sessions: &'a mut FetchSessions,
    pub(crate) shards: u16,
}

impl Topics {
    fn of<T>(body: Body<'_>, topics: &Array<'_, T>) -> Topics {
        Topics { topics: Place::of(body, topics), topic: TopicRef::Id(TopicId::NONE), parts: Place::default() }
    }

    fn left(&self) -> bool {
        self.topics.left() > 0 || self.parts.left() > 0
    }
}

fn topic_ref(version: i16, name: &str, id: TopicId) -> TopicRef {
    if version >= BY_ID { TopicRef::Id(id) } else { TopicRef::Name(name.into()) }
}

fn some_epoch(epoch: LeaderEpoch) -> Option<LeaderEpoch> {
    (epoch.0 >= 0).then_some(epoch)
}

impl Reading {
    /// What is of no use any more once all is read.
    pub(crate) fn end(self) -> Places {
        self.places
    }

    pub(crate) fn new(request: &Request, fetch: &FetchRequest<'_>, shards: u16) -> Reading {
        let body = body(request);
        Reading {
            named: Topics::of(body, &fetch.topics),
            forgotten: Topics::of(body, &fetch.forgotten_topics_data),
            request: request.clone(),
            session: Session::Unchanged,
            numbers: BTreeMap::new(),
            places: BTreeMap::new(),
            topic: None,
            open: vec![None; usize::from(shards)],
        }
    }

    /// Reads `most` of what it names, or has in its session, into the job; whether that was all. Otherwise the error of the whole request.
    pub(crate) fn some(&mut self, scope: &mut Scope<'_>, job: &mut FetchJob, most: usize) -> Result<bool, ErrorCode> {
        let Context::Incremental { id } = job.context else {
            for wanted in self.some_named(most) {
                self.put(scope, job, wanted);
            }
            return Ok(!self.named.left());
        };
        if self.named.left() {
            scope.sessions.change(scope.now, id, self.some_named(most), &[])?;
        } else if self.forgotten.left() {
            scope.sessions.change(scope.now, id, Vec::new(), &self.some_forgotten(most))?;
        } else if let Session::Read(place) = &mut self.session {
            for wanted in scope.sessions.some(id, place, most) {
                self.add(scope, job, wanted);
            }
        } else {
            let place = scope.sessions.changed(id)?;
            self.session = Session::Read(place);
            if place.is_none() {
                job.context = Context::Sessionless;
            }
        }
        Ok(matches!(self.session, Session::Read(None)))
    }

    fn some_named(&mut self, most: usize) -> Vec<Wanted> {
        let (body, mut left, mut some) = (body(&self.request), most, Vec::new());
        let Topics { topics, topic, parts } = &mut self.named;
        while left > 0 {
            if parts.left() == 0 {
                let Some(next) = topics.next::<FetchTopic<'_>>(body) else { break };
                *topic = topic_ref(body.version, next.topic, next.topic_id);
                *parts = Place::of(body, &next.partitions);
                left -= 1;
            }
            left -= parts.walk(body, left, |part: FetchPartition| {
                some.push(Wanted {
                    topic: topic.clone(),
                    index: part.partition,
                    epoch: some_epoch(part.current_leader_epoch),
                    last_epoch: some_epoch(part.last_fetched_epoch),
                    from: part.fetch_offset,
                    bytes_max: u32::try_from(part.partition_max_bytes).unwrap_or(0),
                });
            });
        }
        some
    }

    fn some_forgotten(&mut self, most: usize) -> Vec<PartKey> {
        let (body, mut left, mut some) = (body(&self.request), most, Vec::new());
        let Topics { topics, topic, parts } = &mut self.forgotten;
        while left > 0 {
            if parts.left() == 0 {
                let Some(next) = topics.next::<ForgottenTopic<'_>>(body) else { break };
                *topic = topic_ref(body.version, next.topic, next.topic_id);
                *parts = Place::of(body, &next.partitions);
                left -= 1;
            }
            left -= parts.walk(body, left, |index: PartitionIndex| some.push((topic.clone(), index)));
        }
        some
    }

    /// One that may have been named before.
    fn put(&mut self, scope: &Scope<'_>, job: &mut FetchJob, wanted: Wanted) {
        let topic = Topic::of(&mut self.topic, scope, &wanted.topic);
        let count = self.numbers.len() as u32;
        let number = *topic.number.get_or_insert_with(|| *self.numbers.entry(wanted.topic.clone()).or_insert(count));
        match self.places.entry((number, wanted.index)) {
            Entry::Occupied(place) => job.parts.get_mut(*place.get()).name_again(wanted),
            Entry::Vacant(place) => {
                place.insert(job.parts.len() as u32);
                self.add(scope, job, wanted);
            }
        }
    }

    fn add(&mut self, scope: &Scope<'_>, job: &mut FetchJob, wanted: Wanted) {
        let topic = Topic::of(&mut self.topic, scope, &wanted.topic);
        let asked = topic.asked(wanted, self.request.version, job.committed_only);
        job.session_bytes += part_bytes(&asked.wanted.topic);
        if let Some(part) = &asked.part {
            let shard = owner(part.partition, scope.shards);
            let open = &mut self.open[usize::from(shard.0)];
            *open = Some(job.deal(shard, *open));
        }
        job.parts.push(asked);
    }
}

fn body(request: &Request) -> Body<'_> {
    let bytes = request.frame.get(request.body as usize..).unwrap_or_default();
    Body::new(&FETCH, request.version, bytes, request.counted.as_deref())
}

impl Topic {
    /// The last one, as mostly, or another.
    fn of<'t>(last: &'t mut Option<Topic>, scope: &Scope<'_>, name: &TopicRef) -> &'t mut Topic {
        let same = last.take().filter(|topic| topic.name == *name);
        last.insert(same.unwrap_or_else(|| Topic::find(scope, name)))
    }

    fn find(scope: &Scope<'_>, name: &TopicRef) -> Topic {
        let key = match name {
            TopicRef::Name(name) => scope
                .image
                .topic(name)
                .map_or_else(|| TopicKey::Name(name.clone()), |topic| TopicKey::Known(topic.clone())),
            TopicRef::Id(id) => TopicKey::by_id(scope.image, *id),
        };
        let codec = scope.logs.config(key.id()).map(|config| topic_codec(config));
        Topic { name: name.clone(), number: None, key, codec }
    }

    fn asked(&self, wanted: Wanted, version: i16, committed_only: bool) -> FetchAsked {
        let partition = self.key.partition(wanted.index).and_then(|partition| match self.codec {
            None => Err(ErrorCode::UnknownTopicOrPartition),
            Some(Some(Codec::Zstd)) if version < ZSTD => Err(ErrorCode::UnsupportedCompressionType),
            Some(_) => Ok(partition),
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
        FetchAsked { wanted, key: self.key.clone(), part, result }
    }
}
