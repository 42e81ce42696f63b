//! What the clients were promised, and whether it is kept. Fed by what clients saw and by the shards' notes, never by a look into a
//! shard.
//!
//! | invariant | broken by |
//! |---|---|
//! | one offset, one value, the same bytes for ever | `acked`, `read` |
//! | offsets dense from the log start to the end | `read` after `read` |
//! | what is said to have been written long ago, nobody knows where, is there | `appended_is_there` |
//! | no value twice (nobody here writes a value twice but idempotent retries) | `acked`, `read` |
//! | order per producer and partition | `read` after `read` |
//! | nothing that was refused, or was meant for another partition, appears | `read` |
//! | an acknowledged end never falls back: high watermark, latest offset, recovered end | `end_seen`, `recovered` |
//! | log start <= high watermark; the start is where DeleteRecords put it | `bounds` |
//! | a search by time finds the first record at or after it, or the greatest | `found` |
//! | compaction takes only what has a younger value of its key, and tombstones whose time is over | `skipped`, `compacted_away` |
//! | a producer id is given once | `producer` |
//! | an acknowledged topic keeps its id | `topic_id` |

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use ringmain_types::{ErrorCode, Offset, Partition, ProducerId, TopicId};

use crate::groups::{Classic, GROUPS, Modern};
use crate::value::ValueId;

/// A topic as the simulation counts them: another number for each life of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopicNumber(pub u32);

/// One partition of one life of a topic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub topic: TopicNumber,
    pub index: i32,
}

/// As short as it stands in nearly every line of a history.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "topic {}/{}", self.topic.0, self.index)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// Acked is durable.
    Group,
    /// Acked may be lost with its process.
    Async,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// As many keys as there are.
    pub keys: u64,
    /// No history lasts until a tombstone may go.
    pub tombstones_stay: bool,
}

/// The key of a value in a compacted topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keyed {
    pub key: u64,
    pub tombstone: bool,
}

#[derive(Clone, Debug)]
pub struct Topic {
    pub name: String,
    pub id: TopicId,
    pub partitions: i32,
    pub keeping: Keeping,
    /// Retention moves its start.
    pub retained: bool,
    /// Some records go, those of a key but the last.
    pub compacted: Option<Compacted>,
    /// One client's own: others leave it alone.
    pub private: bool,
}

#[derive(Default, Debug)]
struct Log {
    at: BTreeMap<i64, ValueId>,
    place: BTreeMap<ValueId, i64>,
    refused: BTreeSet<ValueId>,
    /// Said to have been written so long ago that its offset is forgotten.
    appended: BTreeSet<ValueId>,
    /// Offsets that a reader found to be gone.
    skipped: BTreeSet<i64>,
    /// Behind the last offset that was acked or read.
    end: i64,
    /// Acknowledged, and asked for, by DeleteRecords.
    start: i64,
    start_asked: i64,
}

/// What ListOffsets searches for.
#[derive(Clone, Copy, Debug)]
pub enum TimeAsked {
    /// The first record at or after it.
    At(i64),
    /// The greatest timestamp.
    Max,
}

#[derive(Clone, Debug)]
pub struct Broken {
    pub invariant: &'static str,
    pub text: String,
}

/// Something changed on the disk, between two lives, in these files.
#[derive(Clone, Debug)]
pub struct Rot {
    pub paths: Vec<String>,
    /// Of them, those that a shard told of.
    pub named: BTreeSet<String>,
    /// A journal's group that is needed is gone: no start may be made without it.
    pub fatal: bool,
}

#[derive(Default, Debug)]
pub struct Ledger {
    topics: BTreeMap<TopicNumber, Topic>,
    ids: BTreeMap<TopicId, TopicNumber>,
    logs: BTreeMap<Key, Log>,
    /// Of `logs`, those of topics that are nobody's own: asked for all the time.
    shared: Rc<[Key]>,
    meant: BTreeMap<ValueId, Key>,
    producers: BTreeSet<ProducerId>,
    /// Which of its connections a plain producer sent a value on.
    lines: BTreeMap<ValueId, u32>,
    /// The timestamp of each value.
    stamps: BTreeMap<ValueId, i64>,
    keyed: BTreeMap<ValueId, Keyed>,
    next_topic: u32,
    /// The classic groups that members share, and the KIP-848 ones, the mixed one last.
    pub classic: [Classic; GROUPS],
    pub modern: [Modern; GROUPS + 1],
    pub acked: u64,
    pub read: u64,
    /// What is heard now was said by a process that has ended since.
    pub late: bool,
    /// A clean stop is under way: shards that are done send clients elsewhere.
    pub stopping: bool,
    /// A disk operation of this process failed, or found no space; or of any process so far.
    pub troubled: bool,
    pub was_troubled: bool,
    /// Memory is so short that the controller may be refused some.
    pub tight: bool,
    /// What was reached, for the statistics: a fault or a state that is never seen is not tested.
    pub reached: BTreeMap<&'static str, u64>,
    /// By request: how long the slowest took while faults were quiet, beyond what it wished to wait.
    pub slowest_ns: BTreeMap<&'static str, u64>,
    pub rot: Option<Rot>,
    broken: Option<Broken>,
}

impl Ledger {
    pub fn new(tight: bool) -> Ledger {
        Ledger { tight, ..Ledger::default() }
    }

    pub fn broken(&mut self) -> Option<Broken> {
        self.broken.take()
    }

    pub fn fail(&mut self, invariant: &'static str, text: String) {
        self.broken.get_or_insert(Broken { invariant, text });
    }

    /// What a broker that is short of something, or stops, may answer; everything else breaks the promise that a topic has no window.
    pub fn legal(&mut self, error: ErrorCode) -> bool {
        let (legal, what) = match error {
            ErrorCode::RequestTimedOut => (true, "answers: timed out"),
            ErrorCode::NotLeaderOrFollower => (self.stopping || self.late, "answers: not leader"),
            ErrorCode::NotController => (self.stopping || self.late || self.tight, "answers: not controller"),
            ErrorCode::KafkaStorageError => {
                let trouble = self.troubled || self.late && self.was_troubled || self.rot.is_some();
                (trouble, "answers: storage error")
            }
            _ => (false, "answers: others"),
        };
        self.reach(what);
        legal
    }

    /// Rot in the records of this partition: all else must be served. Whether a shard told of it.
    pub fn rotten(&self, key: Key) -> Option<bool> {
        let name = format!("{}-{}", self.topics[&key.topic].name, key.index);
        let of = |path: &&String| {
            path.ends_with(".log") && path.strip_prefix(&name).is_some_and(|rest| rest.starts_with(['/', '-', '.']))
        };
        let rot = self.rot.as_ref()?;
        let mut paths = rot.paths.iter().filter(of).peekable();
        paths.peek()?;
        Some(paths.any(|path| rot.named.contains(path)))
    }

    /// The file is of a compacted topic.
    pub fn compacted(&self, path: &str) -> bool {
        let of = |topic: &&Topic| {
            topic.compacted.is_some() && path.strip_prefix(&*topic.name).is_some_and(|rest| rest.starts_with('-'))
        };
        self.topics.values().any(|topic| of(&topic))
    }

    /// A shard said that this file is damaged.
    pub fn named(&mut self, path: &str) {
        let beside = self.beside_rot(path);
        let found =
            self.rot.as_mut().and_then(|rot| Some((rot.paths.iter().find(|of| path.contains(*of))?, &mut rot.named)));
        match found {
            Some((path, named)) => _ = named.insert(path.clone()),
            None if beside => {}
            None => self.fail("nothing rots here", path.to_owned()),
        }
    }

    /// An index of records that rotted: a batch's base offset is under no checksum, and an entry that leads to one whose offset is another
    /// is told of, whichever of the two is wrong (DESIGN.md).
    fn beside_rot(&self, path: &str) -> bool {
        let records = path.strip_suffix(".timeindex").or(path.strip_suffix(".index")).map(|stem| format!("{stem}.log"));
        let rotten = |records: &String| self.rot.iter().flat_map(|rot| &rot.paths).any(|of| records.contains(of));
        records.is_some_and(|records| rotten(&records))
    }

    /// The controller may be unable to create what is asked for.
    pub fn hampered(&self) -> bool {
        self.stopping || self.troubled || self.late
    }

    pub fn reach(&mut self, what: &'static str) {
        debug_assert!(crate::coverage::STATES.contains(&what), "{what} is not in the list: nobody would miss it");
        *self.reached.entry(what).or_default() += 1;
    }

    pub fn took(&mut self, name: &'static str, ns: u64) {
        let slowest = self.slowest_ns.entry(name).or_default();
        *slowest = (*slowest).max(ns);
    }

    pub fn stamped(&mut self, value: ValueId, timestamp: i64) {
        self.stamps.insert(value, timestamp);
    }

    /// An answer to a search by time: `asked` of a partition whose acknowledged end was `end` then. Whoever was acknowledged before
    /// the question and was not deleted since must have been considered.
    pub fn found(&mut self, key: Key, asked: TimeAsked, end: i64, found: Option<(i64, i64)>) {
        let topic = &self.topics[&key.topic];
        let Some(log) = self.logs.get(&key).filter(|_| topic.keeping == Keeping::Group) else { return };
        let text = |what: String| format!("{asked:?} of {key:?}, end {end}: {found:?}, but {what}");
        let stamp = |value: &ValueId| self.stamps.get(value).copied().unwrap_or(-1);
        let mut broken = None;
        if let Some((offset, at)) = found {
            let known = log.at.get(&offset).map(stamp);
            if known.is_some_and(|known| known != at) {
                broken = Some(text(format!("it has {known:?}")));
            } else if matches!(asked, TimeAsked::At(wanted) if at < wanted) {
                broken = Some(text("that is earlier".into()));
            }
        }
        let until = match (asked, found) {
            (TimeAsked::At(_), Some((offset, _))) => offset.min(end),
            _ => end,
        };
        let fits = |at: i64| match asked {
            TimeAsked::At(wanted) => at >= wanted,
            // None while the record that has it is not committed yet, as on Kafka.
            TimeAsked::Max => found.is_some_and(|(_, max)| at > max),
        };
        let from = log.start_asked;
        // Retention moves the start of its topics whenever it likes.
        if broken.is_none() && !topic.retained && topic.compacted.is_none() && from < until {
            let missed = log.at.range(from..until).find(|(_, value)| fits(stamp(value)));
            broken = missed.map(|(offset, value)| text(format!("{offset} has {}", stamp(value))));
        }
        if let Some(text) = broken {
            self.fail("a search by time finds the first", text);
        }
        self.reach(if found.is_some() { "found by time" } else { "nothing found by time" });
    }

    /// A topic whose creation was acknowledged, or that was found after a creation that nobody answered.
    pub fn ready(&mut self, topic: Topic) -> TopicNumber {
        let number = TopicNumber(self.next_topic);
        self.next_topic += 1;
        if let Some(before) = self.ids.insert(topic.id, number) {
            let name = &self.topics[&before].name;
            self.fail("topic ids are unique", format!("{:?} of {} was {name}'s", topic.id, topic.name));
        }
        for index in 0..topic.partitions {
            self.logs.insert(Key { topic: number, index }, Log::default());
        }
        self.topics.insert(number, topic);
        self.share();
        number
    }

    pub fn grown(&mut self, name: &str, partitions: i32) {
        let Some(number) = self.by_name(name) else { return };
        for index in 0..partitions {
            self.logs.entry(Key { topic: number, index }).or_default();
        }
        self.share();
    }

    pub fn topic(&self, number: TopicNumber) -> &Topic {
        &self.topics[&number]
    }

    pub fn by_id(&self, id: TopicId) -> Option<TopicNumber> {
        self.ids.get(&id).copied()
    }

    pub fn by_name(&self, name: &str) -> Option<TopicNumber> {
        self.topics.iter().rev().find(|(_, topic)| topic.name == name).map(|(number, _)| *number)
    }

    /// Partitions that everybody may use.
    pub fn shared(&self) -> Rc<[Key]> {
        self.shared.clone()
    }

    /// `logs` or `topics` have changed.
    fn share(&mut self) {
        self.shared = self.logs.keys().filter(|key| !self.topics[&key.topic].private).copied().collect();
    }

    /// Everything of this topic is gone and nobody will ask for it again.
    pub fn forget(&mut self, number: TopicNumber) {
        self.logs.retain(|key, _| key.topic != number);
        self.share();
    }

    /// Behind the last offset that was acknowledged or read: what any later answer must reach.
    pub fn end(&self, key: Key) -> i64 {
        self.logs.get(&key).map_or(0, |log| log.end)
    }

    pub fn producer(&mut self, id: ProducerId) {
        if !self.producers.insert(id) {
            self.fail("a producer id is given once", format!("{id:?} was given twice"));
        }
    }

    pub fn meant(&mut self, key: Key, value: ValueId) {
        self.meant.insert(value, key);
    }

    /// A plain producer sends a value, once, on its `line`th connection. What it sends on the next one may overtake what is still
    /// under way on this one: order is promised within a line. An idempotent producer's sequences keep it over all of them.
    pub fn sends(&mut self, value: ValueId, line: u32) {
        self.lines.insert(value, line);
    }

    /// The line of a value; 0 for an idempotent producer's.
    pub fn line_of(&self, value: ValueId) -> u32 {
        self.lines.get(&value).copied().unwrap_or_default()
    }

    pub fn refused(&mut self, key: Key, value: ValueId) {
        if let Some(log) = self.logs.get_mut(&key) {
            log.refused.insert(value);
        }
    }

    pub fn acked(&mut self, key: Key, base: Offset, values: &[ValueId]) {
        self.acked += values.len() as u64;
        for (offset, value) in (base.0..).zip(values) {
            self.place("acked", key, offset, *value);
        }
    }

    /// 46: written, so long ago that the broker has forgotten where.
    pub fn appended(&mut self, key: Key, values: Vec<ValueId>) {
        self.reach("answers: written long ago");
        self.acked += values.len() as u64;
        if let Some(log) = self.logs.get_mut(&key) {
            log.appended.extend(values);
        }
    }

    /// Everything was read to its end, by a fresh reader: what was said to be written was met, where no record may be gone.
    pub fn appended_is_there(&mut self) {
        let whole = |key: &Key, log: &Log| {
            let topic = &self.topics[&key.topic];
            topic.keeping == Keeping::Group && topic.compacted.is_none() && !topic.retained && log.start_asked == 0
        };
        let lost = |(key, log): (&Key, &Log)| {
            let value = log.appended.iter().find(|value| !log.place.contains_key(value))?;
            Some(format!("{value:?} of {key:?}"))
        };
        let lost = self.logs.iter().filter(|(key, log)| whole(key, log)).find_map(lost);
        if let Some(text) = lost {
            self.fail("what is said to be written is there", text);
        }
    }

    pub fn keyed(&mut self, value: ValueId, keyed: Keyed) {
        self.keyed.insert(value, keyed);
    }

    /// A reader of a compacted topic found no record at these offsets: each has a younger value of its key by now, or is told of at once.
    /// What is lost would be hidden by what is written behind it.
    pub fn skipped(&mut self, key: Key, offsets: std::ops::Range<i64>) {
        let Some(compacted) = self.topics[&key.topic].compacted else { return };
        for offset in offsets {
            let new = self.logs.get_mut(&key).is_some_and(|log| log.skipped.insert(offset));
            if new && !self.may_be_gone(key, offset, compacted) {
                let value = self.logs[&key].at[&offset];
                let text = format!("{offset} of {key:?} is gone before its time: {value:?} {:?}", self.keyed[&value]);
                self.fail("compaction keeps the last value of every key", text);
            }
        }
    }

    fn may_be_gone(&self, key: Key, offset: i64, compacted: Compacted) -> bool {
        let log = &self.logs[&key];
        let keyed_of = |value: &ValueId| self.keyed.get(value).copied();
        let Some(keyed) = log.at.get(&offset).and_then(keyed_of) else { return true };
        let rival = |value: &ValueId| keyed_of(value).is_some_and(|other| other.key == keyed.key);
        // Written, perhaps, but nobody was told where, or not yet.
        let unsure = |value: &ValueId| !log.place.contains_key(value) && !log.refused.contains(value);
        keyed.tombstone && !compacted.tombstones_stay
            || log.at.range(offset + 1..).any(|(_, value)| rival(value))
            || self.meant.iter().any(|(value, meant)| *meant == key && rival(value) && unsure(value))
    }

    /// Everything was read to its end, by a fresh reader: of what is gone, each had a younger value of its key.
    pub fn compacted_away(&mut self) {
        let mut found = None;
        let (mut gone, mut markers) = (0, 0);
        for (key, log) in &self.logs {
            let Some(compacted) = self.topics[&key.topic].compacted else { continue };
            for offset in &log.skipped {
                let Some(keyed) = log.at.get(offset).and_then(|value| self.keyed.get(value)) else { continue };
                let same = |value: &ValueId| self.keyed.get(value).is_some_and(|other| other.key == keyed.key);
                gone += 1;
                markers += u64::from(keyed.tombstone && !log.at.range(offset + 1..).any(|(_, value)| same(value)));
                if !self.may_be_gone(*key, *offset, compacted) {
                    found = found.or(Some(format!("{offset} of {key:?} is gone: {keyed:?}")));
                }
            }
        }
        if let Some(text) = found {
            self.fail("compaction keeps the last value of every key", text);
        }
        *self.reached.entry("records compacted away").or_default() += gone;
        *self.reached.entry("tombstones that went").or_default() += markers;
    }

    pub fn read(&mut self, key: Key, offset: i64, value: ValueId) {
        self.read += 1;
        self.place("read", key, offset, value);
    }

    fn place(&mut self, how: &'static str, key: Key, offset: i64, value: ValueId) {
        let what = |key: Key| format!("{how}: {value:?} at {offset} of {key:?}");
        if self.meant.get(&value) != Some(&key) {
            let meant = self.meant.get(&value).copied();
            return self.fail("a record is where it was sent", format!("{}, meant for {meant:?}", what(key)));
        }
        if self.late && self.topics[&key.topic].keeping == Keeping::Async {
            return;
        }
        let Some(log) = self.logs.get_mut(&key) else { return };
        if log.refused.contains(&value) {
            return self.fail("what was refused does not appear", what(key));
        }
        if let Some(before) = log.at.insert(offset, value)
            && before != value
        {
            return self.fail("one offset, one value, for ever", format!("{}, where {before:?} was", what(key)));
        }
        if let Some(before) = log.place.insert(value, offset)
            && before != offset
        {
            return self.fail("no value twice", format!("{}, and it was at {before}", what(key)));
        }
        log.end = log.end.max(offset + 1);
    }

    /// A high watermark or a latest offset in an answer to a question that was asked when the end was `floor`.
    pub fn end_seen(&mut self, what: &str, key: Key, floor: i64, end: Offset) {
        if end.0 < floor && self.topics[&key.topic].keeping == Keeping::Group {
            self.fail("an acknowledged end never falls back", format!("{what} {} of {key:?}, after {floor}", end.0));
        }
    }

    /// Log start and high watermark in one answer.
    pub fn bounds(&mut self, key: Key, start: Offset, end: Offset) {
        if start.0 < 0 || start.0 > end.0 {
            self.fail("log start <= high watermark", format!("{} > {} of {key:?}", start.0, end.0));
        }
        let Some(log) = self.logs.get(&key) else { return };
        if start.0 > log.start_asked && !self.topics[&key.topic].retained {
            let asked = log.start_asked;
            self.fail("the log starts where it was put", format!("{} of {key:?}, never asked above {asked}", start.0));
        }
    }

    /// The log start in an answer to a question that was asked when `floor` was acknowledged as deleted.
    pub fn start_seen(&mut self, key: Key, floor: i64, start: Offset) {
        if start.0 < floor {
            self.fail("deleted records stay deleted", format!("start {} of {key:?}, after {floor}", start.0));
        }
    }

    pub fn start(&self, key: Key) -> i64 {
        self.logs.get(&key).map_or(0, |log| log.start)
    }

    /// Below this, records may be gone.
    pub fn delete_limit(&self, key: Key) -> i64 {
        self.logs.get(&key).map_or(0, |log| log.start_asked)
    }

    pub fn delete_asked(&mut self, key: Key, to: i64) {
        if let Some(log) = self.logs.get_mut(&key) {
            log.start_asked = log.start_asked.max(to);
        }
    }

    pub fn deleted(&mut self, key: Key, start: Offset) {
        if let Some(log) = self.logs.get_mut(&key) {
            log.start = log.start.max(start.0);
        }
    }

    /// A shard says how far a log reaches after a start.
    pub fn recovered(&mut self, partition: Partition, start: Offset, end: Offset) {
        let Some(number) = self.by_id(partition.topic) else { return };
        let key = Key { topic: number, index: partition.index.0 };
        if !self.logs.contains_key(&key) {
            return;
        }
        if self.rotten(key).is_none() {
            self.end_seen("recovered end", key, self.end(key), end);
        }
        self.start_seen(key, self.start(key), start);
    }

    /// The process ended without being asked to: what was not promised may be gone.
    pub fn crashed(&mut self) {
        for (key, log) in &mut self.logs {
            if self.topics[&key.topic].keeping == Keeping::Async {
                log.at.clear();
                log.place.clear();
                log.end = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key { topic: TopicNumber(0), index: 0 };

    fn value(number: u32) -> ValueId {
        ValueId { client: 1, number }
    }
    fn ledger(keeping: Keeping) -> Ledger {
        let mut ledger = Ledger::default();
        let name = "t".to_string();
        ledger.ready(Topic {
            name,
            id: TopicId(5),
            partitions: 2,
            keeping,
            retained: false,
            compacted: None,
            private: false,
        });
        for number in 0..10 {
            ledger.meant(KEY, value(number));
        }
        ledger
    }
    fn broken(play: impl Fn(&mut Ledger)) -> Option<&'static str> {
        let mut ledger = ledger(Keeping::Group);
        play(&mut ledger);
        ledger.broken().map(|broken| broken.invariant)
    }

    #[test]
    fn each_promise_can_be_broken() {
        let acked = |ledger: &mut Ledger| ledger.acked(KEY, Offset(0), &[value(0), value(1)]);
        assert_eq!(broken(acked), None);
        type Case = (&'static str, fn(&mut Ledger));
        let cases: [Case; 8] = [
            ("one offset, one value, for ever", |l| l.read(KEY, 1, value(2))),
            ("no value twice", |l| l.read(KEY, 5, value(1))),
            ("a record is where it was sent", |l| l.read(KEY, 5, value(77))),
            ("an acknowledged end never falls back", |l| l.end_seen("end", KEY, 2, Offset(1))),
            ("log start <= high watermark", |l| l.bounds(KEY, Offset(3), Offset(2))),
            ("the log starts where it was put", |l| l.bounds(KEY, Offset(1), Offset(2))),
            ("deleted records stay deleted", |l| l.start_seen(KEY, 1, Offset(0))),
            ("what was refused does not appear", |l| {
                l.refused(KEY, value(3));
                l.read(KEY, 2, value(3));
            }),
        ];
        for (invariant, play) in cases {
            let found = broken(|ledger| {
                acked(ledger);
                play(ledger);
            });
            assert_eq!(found, Some(invariant));
        }
    }

    #[test]
    fn what_is_said_to_be_written_is_missed() {
        let mut ledger = ledger(Keeping::Group);
        ledger.appended(KEY, vec![value(0)]);
        ledger.read(KEY, 0, value(0));
        ledger.appended_is_there();
        assert!(ledger.broken().is_none());
        ledger.appended(KEY, vec![value(1)]);
        ledger.appended_is_there();
        assert!(ledger.broken().is_some());
        ledger.delete_asked(KEY, 1);
        ledger.appended_is_there();
        assert!(ledger.broken().is_none(), "it may have been deleted");
    }

    #[test]
    fn what_is_gone_without_a_successor_is_missed() {
        let gone = |offset: i64, tombstones_stay: bool| {
            let mut ledger = ledger(Keeping::Group);
            ledger.topics.get_mut(&KEY.topic).unwrap().compacted = Some(Compacted { keys: 2, tombstones_stay });
            ledger.meant.retain(|value, _| value.number < 4);
            for (number, (key, tombstone)) in [(0, false), (1, false), (0, false), (1, true)].into_iter().enumerate() {
                ledger.keyed(value(number as u32), Keyed { key, tombstone });
            }
            ledger.acked(KEY, Offset(0), &[value(0), value(1), value(2), value(3)]);
            ledger.skipped(KEY, offset..offset + 1);
            let at_once = ledger.broken().is_some();
            ledger.compacted_away();
            assert_eq!(ledger.broken().is_some(), at_once);
            at_once
        };
        assert_eq!([0, 1, 2].map(|offset| gone(offset, true)), [false, false, true]);
        assert_eq!([true, false].map(|stay| gone(3, stay)), [true, false]);
    }

    #[test]
    fn what_a_later_value_hides_is_missed_at_once() {
        let mut ledger = ledger(Keeping::Group);
        ledger.topics.get_mut(&KEY.topic).unwrap().compacted = Some(Compacted { keys: 1, tombstones_stay: true });
        let keyed = Keyed { key: 0, tombstone: false };
        ledger.meant.retain(|value, _| value.number < 2);
        ledger.keyed(value(0), keyed);
        ledger.keyed(value(1), keyed);
        ledger.acked(KEY, Offset(0), &[value(0)]);
        ledger.skipped(KEY, 0..1);
        assert!(ledger.broken().is_none(), "the other one may have been written");
        ledger.logs.get_mut(&KEY).unwrap().skipped.clear();
        ledger.refused(KEY, value(1));
        ledger.skipped(KEY, 0..1);
        assert!(ledger.broken().is_some());
    }

    #[test]
    fn a_crash_releases_only_what_was_not_promised() {
        for (keeping, held) in [(Keeping::Group, true), (Keeping::Async, false)] {
            let mut ledger = ledger(keeping);
            ledger.acked(KEY, Offset(0), &[value(0)]);
            ledger.crashed();
            ledger.read(KEY, 0, value(1));
            assert_eq!(ledger.broken().is_some(), held);
        }
    }
}
