//! Incremental fetches (KIP-227): what a client asked for stays here, and a reply names only what changed.
//!
//! A session belongs to the shard of the connection that made it. A client that comes back on another shard gets 70 and starts anew,
//! as after a broker's restart.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringmain_types::{ErrorCode, Instant, LeaderEpoch, Limits, Offset, PartitionIndex, ShardId, TopicId};

/// How long a session is unused before another may take its place (`min.incremental.fetch.session.eviction.ms`).
const EVICTION_MS: u64 = 120_000;
const EPOCH_INITIAL: i32 = 0;
const EPOCH_FINAL: i32 = -1;

/// A topic as the request names it: by name up to v12, by id from v13.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TopicRef {
    Name(Arc<str>),
    Id(TopicId),
}
pub(crate) type PartKey = (TopicRef, PartitionIndex);

/// One partition of a fetch request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) topic: TopicRef,
    pub(crate) index: PartitionIndex,
    pub(crate) epoch: Option<LeaderEpoch>,
    pub(crate) last_epoch: Option<LeaderEpoch>,
    pub(crate) from: Offset,
    pub(crate) bytes_max: u32,
}

/// The part of a partition's answer that decides whether it is news.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) error: ErrorCode,
    pub(crate) high_watermark: Offset,
    pub(crate) start: Offset,
    pub(crate) bytes: u32,
    pub(crate) diverging: bool,
}

/// How the reply is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// All partitions, session id 0.
    Sessionless,
    /// All partitions; makes a session if there is room.
    Full,
    /// All partitions, of a session that was made for them.
    Made { id: i32 },
    /// Only what changed.
    Incremental { id: i32 },
}

/// How far a session was gone through. What moves behind the others meanwhile is left out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionPlace {
    next: u64,
    end: u64,
}

struct Cached {
    wanted: Wanted,
    /// Its place in the order; behind all others once it got data, so that the first ones do not starve the rest.
    place: u64,
    told: (Offset, Offset),
}

struct FetchSession {
    by_id: bool,
    epoch: i32,
    used: Instant,
    parts: BTreeMap<PartKey, Cached>,
    order: BTreeMap<u64, PartKey>,
    next_place: u64,
    /// What the parts take.
    bytes: usize,
}

/// About what a partition takes in a session, but for its topic's name; a name counts at each of its partitions.
const PART_BYTES: usize = 2 * (size_of::<PartKey>() + size_of::<Cached>());

pub(crate) fn part_bytes(topic: &TopicRef) -> usize {
    PART_BYTES
        + match topic {
            TopicRef::Name(name) => name.len(),
            TopicRef::Id(_) => 0,
        }
}

pub(crate) struct FetchSessions {
    sessions: BTreeMap<i32, FetchSession>,
    by_use: BTreeSet<(Instant, i32)>,
    sessions_max: usize,
    /// Of all sessions.
    bytes: usize,
    bytes_max: usize,
    shard: ShardId,
    shards: u16,
    counter: u32,
}

impl FetchSessions {
    pub(crate) fn new(shard: ShardId, shards: u16, seed: u64, limits: &Limits) -> FetchSessions {
        FetchSessions {
            sessions: BTreeMap::new(),
            by_use: BTreeSet::new(),
            sessions_max: limits.fetch_sessions_max as usize,
            bytes: 0,
            bytes_max: usize::try_from(limits.fetch_session_bytes_max).unwrap_or(usize::MAX),
            shard,
            shards,
            // Where ids start differs from one life of the broker to the next, so that an old session is not taken for a new one.
            counter: (seed ^ (seed >> 32)) as u32,
        }
    }

    /// What the sessions take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn partitions_of(&self, id: i32) -> usize {
        self.sessions.get(&id).map_or(0, |session| session.parts.len())
    }

    /// How to answer; or the error of the whole request: 70, 71, 106. Of an incremental one, `change` and `changed` follow.
    pub(crate) fn begin(&mut self, now: Instant, by_id: bool, (id, epoch): (i32, i32)) -> Result<Context, ErrorCode> {
        if epoch == EPOCH_INITIAL || epoch == EPOCH_FINAL {
            self.remove(id);
            return Ok(if epoch == EPOCH_FINAL { Context::Sessionless } else { Context::Full });
        }
        let session = self.sessions.get_mut(&id).ok_or(ErrorCode::FetchSessionIdNotFound)?;
        if session.epoch != epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if session.by_id != by_id {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        session.epoch = if epoch == i32::MAX { 1 } else { epoch + 1 };
        self.by_use.remove(&(session.used, id));
        session.used = now;
        self.by_use.insert((now, id));
        Ok(Context::Incremental { id })
    }

    /// Puts in what is named, then takes out what is forgotten. One that grows beyond what can be kept is gone: its client starts anew, and
    /// is told then that it has no session.
    pub(crate) fn change(
        &mut self,
        now: Instant,
        id: i32,
        wanted: Vec<Wanted>,
        forgotten: &[PartKey],
    ) -> Result<(), ErrorCode> {
        let session = self.sessions.get_mut(&id).ok_or(ErrorCode::FetchSessionIdNotFound)?;
        let before = session.bytes;
        for part in wanted {
            session.put(part);
        }
        for key in forgotten {
            session.forget(key);
        }
        let grows = session.bytes > before;
        self.bytes = self.bytes - before + session.bytes;
        if grows && !self.make_room(now, 0) {
            self.remove(id);
            return Err(ErrorCode::FetchSessionIdNotFound);
        }
        Ok(())
    }

    /// After all changes: where to begin to go through what to fetch. `None` when nothing is left, and with it no session.
    pub(crate) fn changed(&mut self, id: i32) -> Result<Option<SessionPlace>, ErrorCode> {
        let session = self.sessions.get(&id).ok_or(ErrorCode::FetchSessionIdNotFound)?;
        if session.parts.is_empty() {
            self.remove(id);
            return Ok(None);
        }
        Ok(Some(SessionPlace { next: 0, end: session.next_place }))
    }

    /// What to fetch, in its order, `most` at most; with the last of it, the place is none.
    pub(crate) fn some(&self, id: i32, place: &mut Option<SessionPlace>, most: usize) -> Vec<Wanted> {
        let (Some(SessionPlace { next, end }), Some(session)) = (*place, self.sessions.get(&id)) else {
            *place = None;
            return Vec::new();
        };
        let mut range = session.order.range(next..end);
        let some =
            range.by_ref().take(most).filter_map(|(_, key)| Some(session.parts.get(key)?.wanted.clone())).collect();
        *place = range.next().map(|(next, _)| SessionPlace { next: *next, end });
        some
    }

    /// Before the first `tell`: makes the session that a full fetch of so many bytes (`part_bytes`) asks for, if there is room.
    pub(crate) fn create(&mut self, now: Instant, by_id: bool, bytes: usize) -> Context {
        if bytes > self.bytes_max {
            return Context::Sessionless;
        }
        if self.sessions.len() >= self.sessions_max {
            match self.by_use.first() {
                Some(&(used, oldest)) if used.plus_ms(EVICTION_MS) <= now => self.remove(oldest),
                _ => return Context::Sessionless,
            }
        }
        if !self.make_room(now, bytes) {
            return Context::Sessionless;
        }
        let id = self.next_id();
        let session = FetchSession {
            by_id,
            epoch: 1,
            used: now,
            parts: BTreeMap::new(),
            order: BTreeMap::new(),
            next_place: 0,
            bytes,
        };
        // For all of it, before it is filled.
        self.bytes += bytes;
        self.sessions.insert(id, session);
        self.by_use.insert((now, id));
        Context::Made { id }
    }

    /// Takes out of `parts` what the reply need not name.
    pub(crate) fn tell<T>(&mut self, context: Context, parts: &mut Vec<(Wanted, T)>, answer: impl Fn(&T) -> Answer) {
        match context {
            Context::Sessionless | Context::Full => {}
            Context::Made { id } => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    for (wanted, result) in parts {
                        session.fill(wanted.clone());
                        session.tell(wanted, answer(result));
                    }
                }
            }
            Context::Incremental { id } => {
                // Evicted or replaced while its fetch waited: everything is named, and the client's next one gets 70.
                if let Some(session) = self.sessions.get_mut(&id) {
                    parts.retain(|(wanted, result)| session.tell(wanted, answer(result)));
                }
            }
        }
    }

    /// Takes away what was unused for long until `bytes` more have room; whether they have.
    fn make_room(&mut self, now: Instant, bytes: usize) -> bool {
        while self.bytes + bytes > self.bytes_max {
            match self.by_use.first() {
                Some(&(used, oldest)) if used.plus_ms(EVICTION_MS) <= now => self.remove(oldest),
                _ => return false,
            }
        }
        true
    }

    fn next_id(&mut self) -> i32 {
        loop {
            self.counter = self.counter.wrapping_add(1);
            let wide = u64::from(self.counter) * u64::from(self.shards) + u64::from(self.shard.0);
            let id = (wide & 0x7fff_ffff) as i32;
            if id != 0 && !self.sessions.contains_key(&id) {
                return id;
            }
        }
    }

    pub(crate) fn remove(&mut self, id: i32) {
        if let Some(session) = self.sessions.remove(&id) {
            self.by_use.remove(&(session.used, id));
            self.bytes -= session.bytes;
        }
    }
}

impl Context {
    /// What a reply says.
    pub(crate) fn id(self) -> i32 {
        match self {
            Context::Sessionless | Context::Full => 0,
            Context::Made { id } | Context::Incremental { id } => id,
        }
    }
}

impl FetchSession {
    /// A new partition comes last; a known one keeps its place.
    fn put(&mut self, wanted: Wanted) {
        let key = (wanted.topic.clone(), wanted.index);
        if let Some(cached) = self.parts.get_mut(&key) {
            cached.wanted = wanted;
            return;
        }
        self.bytes += part_bytes(&wanted.topic);
        self.fill(wanted);
    }

    /// A new partition whose bytes are counted.
    fn fill(&mut self, wanted: Wanted) {
        let key = (wanted.topic.clone(), wanted.index);
        let place = self.next_place;
        self.next_place += 1;
        self.order.insert(place, key.clone());
        self.parts.insert(key, Cached { wanted, place, told: (Offset(-1), Offset(-1)) });
    }

    fn forget(&mut self, key: &PartKey) {
        if let Some(cached) = self.parts.remove(key) {
            self.order.remove(&cached.place);
            self.bytes -= part_bytes(&key.0);
        }
    }

    /// Whether the reply has to name it.
    fn tell(&mut self, wanted: &Wanted, answer: Answer) -> bool {
        let key = (wanted.topic.clone(), wanted.index);
        let Some(cached) = self.parts.get_mut(&key) else { return true };
        if answer.error != ErrorCode::None {
            // Told again once it is well.
            cached.told = (Offset(-1), Offset(-1));
            return true;
        }
        let news = cached.told != (answer.high_watermark, answer.start);
        cached.told = (answer.high_watermark, answer.start);
        if answer.bytes > 0 {
            self.order.remove(&cached.place);
            cached.place = self.next_place;
            self.next_place += 1;
            self.order.insert(cached.place, key);
        }
        news || answer.bytes > 0 || answer.diverging
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl FetchSessions {
        /// All of a request at once: how to answer, and what to fetch.
        fn all(
            &mut self,
            now: Instant,
            by_id: bool,
            session: (i32, i32),
            wanted: Vec<Wanted>,
            forgotten: Vec<PartKey>,
        ) -> Result<(Context, Vec<Wanted>), ErrorCode> {
            let context = self.begin(now, by_id, session)?;
            let Context::Incremental { id } = context else { return Ok((context, wanted)) };
            self.change(now, id, wanted, &forgotten)?;
            let mut place = self.changed(id)?;
            if place.is_none() {
                return Ok((Context::Sessionless, Vec::new()));
            }
            let mut all = Vec::new();
            // In pieces, which must not show.
            while place.is_some() {
                all.extend(self.some(id, &mut place, 2));
            }
            Ok((context, all))
        }

        fn finish<T>(
            &mut self,
            now: Instant,
            by_id: bool,
            mut context: Context,
            parts: &mut Vec<(Wanted, T)>,
            answer: impl Fn(&T) -> Answer,
        ) -> i32 {
            if context == Context::Full {
                let bytes = parts.iter().map(|(wanted, _)| part_bytes(&wanted.topic)).sum();
                context = self.create(now, by_id, bytes);
            }
            let mut told = Vec::new();
            while !parts.is_empty() {
                let mut slice = parts.drain(..parts.len().min(2)).collect();
                self.tell(context, &mut slice, &answer);
                told.extend(slice);
            }
            *parts = told;
            context.id()
        }
    }

    fn wanted(text: &str) -> Wanted {
        let (topic, index) = text.split_once('-').unwrap();
        Wanted {
            topic: TopicRef::Name(topic.into()),
            index: PartitionIndex(index.parse().unwrap()),
            epoch: None,
            last_epoch: None,
            from: Offset(0),
            bytes_max: 1000,
        }
    }

    fn show(part: &Wanted) -> String {
        let TopicRef::Name(name) = &part.topic else { panic!("by name") };
        format!("{name}-{}", part.index.0)
    }

    fn list<'a>(words: &'a [&str], flag: &str) -> impl Iterator<Item = &'a str> {
        let found = words.iter().find_map(|word| word.strip_prefix(flag)).unwrap_or("");
        found.split(',').filter(|text| !text.is_empty()).collect::<Vec<_>>().into_iter()
    }

    #[test]
    fn who_grows_beyond_what_can_be_kept_is_gone_and_nobody_else() {
        let part = |name: &str| part_bytes(&wanted(name).topic);
        let limits = Limits { fetch_session_bytes_max: 3 * part("a-0") as u64, ..Limits::tiny() };
        let mut sessions = FetchSessions::new(ShardId(0), 1, 0, &limits);
        let now = Instant(1);
        let made: Vec<i32> = ["a-0", "b-0"]
            .map(|name| {
                let context = sessions.create(now, false, part(name));
                sessions.tell(context, &mut vec![(wanted(name), ())], |()| Answer {
                    error: ErrorCode::None,
                    high_watermark: Offset(0),
                    start: Offset(0),
                    bytes: 0,
                    diverging: false,
                });
                context.id()
            })
            .into();
        assert_eq!(sessions.begin(now, false, (made[0], 1)), Ok(Context::Incremental { id: made[0] }));
        assert_eq!(sessions.change(now, made[0], vec![wanted("a-1")], &[]), Ok(()));
        // In the middle of the next change the other one asks: it is not its doing.
        let gone = Err(ErrorCode::FetchSessionIdNotFound);
        assert_eq!(sessions.change(now, made[0], vec![wanted("a-2")], &[]), gone);
        assert_eq!(sessions.begin(now, false, (made[1], 1)), Ok(Context::Incremental { id: made[1] }));
        assert_eq!(sessions.change(now, made[1], Vec::new(), &[]), Ok(()));
        assert!(matches!(sessions.changed(made[1]), Ok(Some(_))));
        assert_eq!(sessions.bytes(), part("b-0"));
    }

    /// Runs `tests/data/fetch_session.txt`.
    #[test]
    fn transcript() {
        let mut sessions = FetchSessions::new(ShardId(0), 1, 0, &Limits { fetch_sessions_max: 2, ..Limits::tiny() });
        let mut steps = 0;
        for line in include_str!("../tests/data/fetch_session.txt").lines() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            steps += 1;
            let (command, want) = line.split_once(" => ").expect("a transcript line has its outcome");
            let words: Vec<&str> = command.split_whitespace().collect();
            let now = Instant::default().plus_ms(words[0].parse::<u64>().unwrap() * 1000);
            let by_id = words[1] == "id";
            let (id, epoch) = (words[2].parse().unwrap(), words[3].parse().unwrap());
            let forgotten = list(&words, "forget:").map(wanted).map(|part| (part.topic, part.index)).collect();
            let asked = list(&words, "ask:").map(wanted).collect();
            let got = match sessions.all(now, by_id, (id, epoch), asked, forgotten) {
                Err(code) => format!("error {}", code.code()),
                Ok((context, parts)) => {
                    let asked: Vec<String> = parts.iter().map(show).collect();
                    // data:orders-0@5 is what has data, with the high watermark; bad: what has an error.
                    let data: BTreeMap<&str, i64> = list(&words, "data:")
                        .map(|text| text.split_once('@').map(|(part, at)| (part, at.parse().unwrap())).unwrap())
                        .collect();
                    let bad: Vec<&str> = list(&words, "bad:").collect();
                    let mut parts: Vec<(Wanted, Answer)> = parts
                        .into_iter()
                        .map(|part| {
                            let name = show(&part);
                            let at = data.get(name.as_str());
                            let error = if bad.contains(&name.as_str()) {
                                ErrorCode::KafkaStorageError
                            } else {
                                ErrorCode::None
                            };
                            let high_watermark = Offset(at.copied().unwrap_or(0));
                            let bytes = u32::from(at.is_some());
                            (part, Answer { error, high_watermark, start: Offset(0), bytes, diverging: false })
                        })
                        .collect();
                    let id = sessions.finish(now, by_id, context, &mut parts, |answer| *answer);
                    let told: Vec<String> = parts.iter().map(|(part, _)| show(part)).collect();
                    format!("{id} reads {} tells {}", asked.join(","), told.join(","))
                }
            };
            assert_eq!(got.trim(), want.trim(), "after: {line}");
        }
        assert!(steps > 15);
    }

    #[test]
    fn partitions_of_all_sessions_have_a_bound() {
        let (topic, each) = (TopicRef::Name("t".into()), PART_BYTES + 1);
        let limits = Limits { fetch_session_bytes_max: 10 * each as u64, ..Limits::tiny() };
        let mut sessions = FetchSessions::new(ShardId(0), 1, 7, &limits);
        let quiet = |_: &()| Answer {
            error: ErrorCode::None,
            high_watermark: Offset(0),
            start: Offset(0),
            bytes: 0,
            diverging: false,
        };
        let list = |from: i32, count: i32| (from..from + count).map(|index| wanted(&format!("t-{index}")));
        let full = |sessions: &mut FetchSessions, now: Instant, count: i32| {
            let mut parts: Vec<(Wanted, ())> = list(0, count).map(|part| (part, ())).collect();
            sessions.finish(now, false, Context::Full, &mut parts, quiet)
        };
        let now = Instant(0);
        assert_eq!(full(&mut sessions, now, 11), 0, "more than all sessions may have");
        let first = full(&mut sessions, now, 6);
        assert!(first != 0 && sessions.bytes() == 6 * each);
        assert_eq!(full(&mut sessions, now, 5), 0, "no room, and nobody to take it from");
        // One that grows too much starts anew.
        let second = full(&mut sessions, now, 4);
        assert_eq!(sessions.bytes(), 10 * each);
        let grown = sessions.all(now, false, (second, 1), list(4, 1).collect(), Vec::new());
        assert_eq!(grown, Err(ErrorCode::FetchSessionIdNotFound));
        assert_eq!((sessions.bytes(), sessions.partitions_of(second)), (6 * each, 0));
        // It may change, and what was unused for long gives way.
        let swapped = sessions.all(now, false, (first, 1), list(6, 4).collect(), vec![(topic, PartitionIndex(0))]);
        assert_eq!(swapped.unwrap().1.len(), 9);
        let later = now.plus_ms(EVICTION_MS);
        let third = full(&mut sessions, later, 8);
        assert!(third != 0 && sessions.bytes() == 8 * each && sessions.partitions_of(first) == 0);
        sessions.all(later, false, (third, EPOCH_FINAL), Vec::new(), Vec::new()).unwrap();
        assert_eq!(sessions.bytes(), 0);
    }

    #[test]
    fn shards_never_share_an_id_and_epochs_wrap() {
        let limits = Limits::tiny();
        let mut one = FetchSessions::new(ShardId(0), 2, 7, &limits);
        let mut two = FetchSessions::new(ShardId(1), 2, 7, &limits);
        let ids: Vec<i32> = (0..50).map(|_| one.next_id()).collect();
        assert!((0..50).all(|_| !ids.contains(&two.next_id())));

        let mut parts = vec![(wanted("a-0"), ())];
        let quiet = |_: &()| Answer {
            error: ErrorCode::None,
            high_watermark: Offset(0),
            start: Offset(0),
            bytes: 0,
            diverging: false,
        };
        let id = one.finish(Instant(0), false, Context::Full, &mut parts, quiet);
        one.sessions.get_mut(&id).unwrap().epoch = i32::MAX;
        one.all(Instant(0), false, (id, i32::MAX), Vec::new(), Vec::new()).unwrap();
        assert_eq!(one.sessions[&id].epoch, 1);
    }
}
