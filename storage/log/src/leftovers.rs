//! What lives that were killed left of logs that are gone: logs that the journal knows and no topic has, and directories that no
//! journal tells of.
//!
//! ```text
//! every log was asked for -> the others are removed, as any log is
//!                         -> the root is listed -> each suspect, one at a time: listed -> its topic is read -> removed, or left
//! ```
//! Shards share the root, so a shard touches what is its own by the topic's id in `partition.metadata`. That file outlives all
//! others of a removed directory until the journal has forgotten the directory: an empty one is in nobody's journal.

use std::collections::{BTreeSet, VecDeque};

use ringmain_buffer::Pool;
use ringmain_disk::{DiskClass, DiskKind, DiskOk, Entry};
use ringmain_types::*;

use crate::jobs::{Got, Job, Step, Then};
use crate::log::{Dir, Phase};
use crate::partition_metadata;
use crate::store::Store;
use crate::{Known, LogConfig};

/// The file that says whose a directory is.
pub(crate) const OWNER: &str = "partition.metadata";
const AWAY: &str = "-delete";
const NEW: &str = "-new";

/// Directories to be looked at.
#[derive(Debug)]
pub(crate) struct Leftovers {
    known: Known,
    left: VecDeque<String>,
    /// A directory was removed: the root is synced at the end.
    removed: bool,
}

impl Store {
    /// Every log of this shard that exists was asked for: what else the journal tells of, or lies there as a removal or a making that
    /// was cut off, goes. Only when it is certain that all of the metadata was read. Once a life.
    pub fn remove_others(&mut self, now: Now, config: &LogConfig, known: Known) {
        if self.fenced.is_some() || self.closing || self.journal.is_none() || self.leftovers.is_some() {
            return;
        }
        let others: Vec<Partition> =
            self.unopened.keys().copied().filter(|partition| known.removed.contains(&partition.topic)).collect();
        for partition in others {
            let id = self.create(now, partition, "", config.clone());
            self.remove(now, id);
        }
        self.leftovers = Some(Leftovers { known, left: VecDeque::new(), removed: false });
        let list = DiskKind::List { dir: self.config.dir, path: String::new() };
        self.jobs.add(Job::new(DiskClass::Background, vec![Step::lenient(vec![list])], Then::RootListed));
    }

    pub(crate) fn root_listed(&mut self, mut got: Got) {
        let Some(DiskOk::Listed(entries)) = Store::ok(&mut got, 0) else { return };
        let Some(leftovers) = &mut self.leftovers else { return };
        let topics = &leftovers.known.topics;
        // A directory of a topic that exists may be any shard's; the log that it was made for may still take it.
        let suspect = |entry: &Entry| {
            let cut_off = entry.name.ends_with(AWAY) || entry.name.ends_with(NEW);
            let topic = place(&entry.name).map(|(topic, _)| topic);
            entry.directory && topic.is_some_and(|topic| cut_off || !topics.contains(topic))
        };
        leftovers.left = entries.into_iter().filter(suspect).map(|entry| entry.name).collect();
        self.next_leftover();
    }

    fn next_leftover(&mut self) {
        let dir = self.config.dir;
        let stopped = self.closing || self.fenced.is_some();
        let Some(leftovers) = self.leftovers.as_mut().filter(|_| !stopped) else { return };
        let Some(path) = leftovers.left.pop_front() else {
            (leftovers.known.topics, leftovers.known.removed) = (BTreeSet::new(), BTreeSet::new());
            if std::mem::take(&mut leftovers.removed) {
                let sync = DiskKind::SyncDir { dir, path: String::new() };
                self.jobs.add(Job::new(DiskClass::Background, vec![Step::of(vec![sync])], Then::Nothing));
            }
            return;
        };
        let list = DiskKind::List { dir, path: path.clone() };
        self.jobs.add(Job::new(DiskClass::Background, vec![Step::lenient(vec![list])], Then::LeftoverListed(path)));
    }

    pub(crate) fn leftover_listed(&mut self, pool: &mut Pool, path: String, mut got: Got) {
        let Some(DiskOk::Listed(entries)) = Store::ok(&mut got, 0) else { return self.next_leftover() };
        let plain = entries.iter().all(|entry| !entry.directory);
        let named = entries.iter().any(|entry| entry.name == OWNER);
        let away = path.ends_with(AWAY);
        let names: Vec<String> = entries.into_iter().map(|entry| entry.name).collect();
        // Nobody's: what is made gets its name when it holds something already.
        if names.is_empty() && !path.ends_with(NEW) {
            return self.remove_leftover(path, names);
        }
        // Without a group that tells of it a directory hardly ever got a file of records. One that has some is a stray, and stays.
        if !plain || !away && names.iter().any(|name| name != OWNER) {
            return self.next_leftover();
        }
        // It was not finished: its name says whose it was to be.
        if let Some(partition) = being_made(&path) {
            let goes = self.may_go(partition, &path);
            return if goes { self.remove_leftover(path, names) } else { self.next_leftover() };
        }
        if !named {
            return self.next_leftover();
        }
        let (dir, file, block) = (self.config.dir, self.file(), self.block);
        let Ok(into) = pool.take(Account::Background, block as usize) else { return self.next_leftover() };
        let steps = vec![
            Step::of(vec![DiskKind::Open { dir, file, path: format!("{path}/{OWNER}"), create: false }]),
            Step::lenient(vec![DiskKind::Read { file, position: 0, bytes: block, into }]),
            Step::lenient(vec![DiskKind::Close { file }]),
        ];
        self.jobs.add(Job::new(DiskClass::Background, steps, Then::LeftoverRead(path, names)));
    }

    pub(crate) fn leftover_read(&mut self, path: String, names: Vec<String>, mut got: Got) {
        let Some(DiskOk::Read(read)) = Store::ok(&mut got, 1) else { return self.next_leftover() };
        let text = &read[..read.len().min(partition_metadata::BYTES_MAX)];
        let index = place(&path).map(|(_, index)| index);
        let (Ok(topic), Some(index)) = (partition_metadata::decode(text), index) else { return self.next_leftover() };
        let partition = Partition { topic, index };
        if self.may_go(partition, &path) { self.remove_leftover(path, names) } else { self.next_leftover() }
    }

    /// Whether the directory is this shard's to remove, and nothing of this life is about to use it or to remove it.
    fn may_go(&self, partition: Partition, path: &str) -> bool {
        let Some(leftovers) = &self.leftovers else { return false };
        let own = partition.topic != TopicId::METADATA
            && owner(partition, leftovers.known.shards) == self.config.shard
            && !self.unopened.contains_key(&partition);
        let name = path.strip_suffix(AWAY);
        let going = name.is_some_and(|name| self.removing.contains_key(name) || self.removals.contains_key(name));
        let used = self.slots.iter().filter_map(|slot| slot.log.as_deref()).any(|log| {
            let elsewhere = match &log.dir {
                Dir::Ready(dir) => dir != path && name != Some(dir),
                Dir::None => matches!(log.phase, Phase::Removing | Phase::Removed),
                Dir::Making => false,
            };
            log.partition == partition && !elsewhere
        });
        own && !going && !used
    }

    fn remove_leftover(&mut self, path: String, names: Vec<String>) {
        let dir = self.config.dir;
        let removes = names.into_iter().map(|name| DiskKind::Remove { dir, path: format!("{path}/{name}") }).collect();
        let steps = vec![Step::lenient(removes), Step::lenient(vec![DiskKind::RemoveDir { dir, path }])];
        self.jobs.add(Job::new(DiskClass::Background, steps, Then::LeftoverRemoved));
    }

    pub(crate) fn leftover_removed(&mut self) {
        if let Some(leftovers) = &mut self.leftovers {
            leftovers.removed = true;
        }
        self.next_leftover();
    }
}

/// The topic and the partition's number in a directory's name (`orders-3`, with `.<id>`, `-delete` or `-new` behind it). A name that
/// was cut for its length gives the front of the topic.
fn place(name: &str) -> Option<(&str, PartitionIndex)> {
    let name = name.strip_suffix(AWAY).or_else(|| name.strip_suffix(NEW)).unwrap_or(name);
    let (topic, rest) = name.rsplit_once('-')?;
    let number = rest.split('.').next()?;
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (digits && !topic.is_empty()).then(|| number.parse().ok().map(|number| (topic, PartitionIndex(number))))?
}

/// Of a directory that a log was making (`orders-3.<id>-new`).
fn being_made(path: &str) -> Option<Partition> {
    let (_, index) = place(path)?;
    let (_, id) = path.strip_suffix(NEW)?.rsplit_once('.')?;
    let whole = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let topic = TopicId(u128::from_str_radix(id, 16).ok().filter(|_| whole)?);
    Some(Partition { topic, index })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_topic_and_number() {
        let index = PartitionIndex;
        for name in ["a.b-c-12", "a.b-c-12.00ff", "a.b-c-12.00ff.3", "a.b-c-12-delete", "a.b-c-12.00ff-new"] {
            assert_eq!(place(name), Some(("a.b-c", index(12))), "{name}");
        }
        assert_eq!(place("a-b-1.x-2"), Some(("a-b-1.x", index(2))), "a topic may be called like a directory");
        let partition = Partition { topic: TopicId(0xab), index: index(3) };
        assert_eq!(being_made("orders-3.000000000000000000000000000000ab-new"), Some(partition));
        for name in ["orders-3-new", "orders-3.ab-new", "orders-3.000000000000000000000000000000ab"] {
            assert_eq!(being_made(name), None, "{name}");
        }
        for name in ["orders", "orders-", "-1", "orders-x", "orders--delete", "journal", "meta.properties"] {
            assert_eq!(place(name), None, "{name}");
        }
    }
}
