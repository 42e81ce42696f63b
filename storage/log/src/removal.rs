//! Removing a log: the journal says so, its directory is renamed away, emptied, and forgotten.
//!
//! The directory is the log's own (no other log ever gets its name while it stands), so nothing here can touch a topic that was
//! made anew under the same name.

use std::collections::BTreeMap;

use ringmain_disk::{DiskClass, DiskError, DiskKind, DiskOk};
use ringmain_types::*;

use crate::StoreEvent;
use crate::entry::ENTRY_BYTES;
use crate::jobs::{Job, Step, Then};
use crate::journal::Needs;
use crate::leftovers::OWNER;
use crate::log::Log;
use crate::segment::file_name;
use crate::segment::parse_file_name;
use crate::spares::Spare;
use crate::store::Store;

type Got = BTreeMap<u32, Result<DiskOk, DiskError>>;

impl Store {
    /// Group `sequence` says that the log is gone, and is flushed.
    pub(crate) fn removal_declared(&mut self, id: LogId, sequence: u64) {
        let Some(log) = self.log_any_mut(id) else { return };
        let since = log.since.take();
        let dir = log.dir_name().map(str::to_owned);
        let marks = marks(log);
        let open = log.open.iter().filter_map(|segment| segment.file_id());
        let files: Vec<_> = open.chain(log.sealed.values().filter_map(|segment| segment.file)).collect();
        log.open.iter_mut().for_each(|segment| segment.chunks.clear());
        log.cache.clear();
        if let Some(since) = since {
            self.ring_mut().release(since, Needs::Log(id.slot));
        }
        // What a reader still has under way must not become another log's bytes under its hands.
        let marks = if self.reads.reading(id, None) { BTreeMap::new() } else { marks };
        let closes = files.into_iter().map(|file| DiskKind::Close { file }).collect();
        self.jobs.add(Job::new(DiskClass::Background, vec![Step::lenient(closes)], Then::Nothing));
        match dir {
            Some(dir) => {
                let bytes = (ENTRY_BYTES + dir.len()) as u64;
                self.ring_mut().need(sequence, Needs::Removing(dir.clone()), bytes);
                self.removing.insert(dir.clone(), sequence);
                self.removals.insert(dir.clone(), Removal { log: id, marks });
                self.remove_directory(dir);
            }
            None => self.remove_done(id),
        }
    }

    /// Goes on with what an earlier life began. Where the renamed directory stands, the rename was done, and the old name may be
    /// another log's by now.
    pub(crate) fn resume_removal(&mut self, name: String) {
        let list = DiskKind::List { dir: self.config.dir, path: format!("{name}-delete") };
        self.jobs.add(Job::new(DiskClass::Background, vec![Step::lenient(vec![list])], Then::RemovalFound(name)));
    }

    pub(crate) fn removal_found(&mut self, name: String, got: Got) {
        let renamed = got.values().any(|got| matches!(got, Ok(DiskOk::Listed(_))));
        if renamed {
            self.remove_listed(name, got);
        } else {
            self.remove_directory(name);
        }
    }

    /// From the rename on.
    pub(crate) fn remove_directory(&mut self, name: String) {
        let dir = self.config.dir;
        let away = format!("{name}-delete");
        let steps = vec![
            Step::lenient(vec![DiskKind::Rename { dir, from: name.clone(), to: away.clone() }]),
            Step::of(vec![DiskKind::SyncDir { dir, path: String::new() }]),
            Step::lenient(vec![DiskKind::List { dir, path: away }]),
        ];
        self.jobs.add(Job::new(DiskClass::Background, steps, Then::RemoveListed(name)));
    }

    pub(crate) fn remove_listed(&mut self, name: String, got: Got) {
        let dir = self.config.dir;
        let listed = got.into_values().find_map(|got| match got {
            Ok(DiskOk::Listed(entries)) => Some(entries),
            _ => None,
        });
        let entries = listed.unwrap_or_default();
        let marks = self.removals.get_mut(&name).map(|removal| std::mem::take(&mut removal.marks)).unwrap_or_default();
        let (mut removes, mut renames, mut spares) = (Vec::new(), Vec::new(), Vec::new());
        // Whose it was is known to the end (leftovers.rs).
        for entry in entries.into_iter().filter(|entry| entry.name != OWNER) {
            let path = format!("{name}-delete/{}", entry.name);
            let mark =
                parse_file_name(&entry.name).filter(|(_, kind)| *kind == "log").and_then(|(at, _)| marks.get(&at));
            match mark.and_then(|bytes| self.reserve_spare(*bytes)) {
                Some(spare) => {
                    renames.push(DiskKind::Rename { dir, from: path, to: spare.path.clone() });
                    spares.push(spare);
                }
                None => removes.push(DiskKind::Remove { dir, path }),
            }
        }
        let sync = DiskKind::SyncDir { dir, path: self.journal_dir() };
        let steps = vec![
            Step::lenient(renames),
            Step::of(if spares.is_empty() { Vec::new() } else { vec![sync] }),
            Step::lenient(removes),
            Step::lenient(vec![DiskKind::SyncDir { dir, path: format!("{name}-delete") }]),
        ];
        self.jobs.add(Job::new(DiskClass::Background, steps, Then::RemoveEmptied(name, spares)));
    }

    /// Only when the journal has forgotten the directory may its name go: until then it tells that the rename was done.
    pub(crate) fn remove_emptied(
        &mut self,
        name: String,
        (spares, mut got): (Vec<Spare>, Got),
        error: Option<DiskError>,
    ) {
        for (number, spare) in (0..).zip(spares) {
            let renamed = got.remove(&number).and_then(Result::err);
            self.spare_made(spare, renamed.or_else(|| error.clone()));
        }
        self.gone.push(name);
    }

    pub(crate) fn directory_gone(&mut self, name: String) {
        let dir = self.config.dir;
        let id = self.removals.remove(&name).map_or(crate::opening::NO_LOG, |removal| removal.log);
        let path = format!("{name}-delete");
        let owner = DiskKind::Remove { dir, path: format!("{path}/{OWNER}") };
        let steps = vec![Step::lenient(vec![owner]), Step::lenient(vec![DiskKind::RemoveDir { dir, path }])];
        self.jobs.add(Job::new(DiskClass::Background, steps, Then::RemoveDone(id)));
    }

    pub(crate) fn remove_done(&mut self, id: LogId) {
        if self.log_any_mut(id).is_some() {
            self.free_slot(id);
            self.events.push(StoreEvent::Removed { log: id });
        }
    }

    /// Sealed segments that lie wholly below the durable start go.
    pub(crate) fn remove_segments(&mut self, id: LogId) {
        let dir_id = self.config.dir;
        let Some(log) = self.log_mut(id) else { return };
        let Some(dir) = log.dir_name().map(str::to_owned) else { return };
        let started = log.started;
        let below: Vec<Offset> = log
            .sealed
            .values()
            .take_while(|s| s.declared && s.next <= started && !log.compaction.swaps(s.base))
            .map(|s| s.base)
            .collect();
        for base in below {
            let Some(log) = self.log_mut(id) else { return };
            let Some(segment) = log.sealed.remove(&base) else { continue };
            let cached: Vec<u32> =
                log.cache.range((base, 0)..=(base, u32::MAX)).map(|((_, first), _)| *first).collect();
            for first in cached {
                log.cache.remove(&(base, first));
            }
            self.reads.indexes.dropped(id, base);
            let path = |extension: &str| format!("{dir}/{}", file_name(base, extension));
            let read = self.reads.reading(id, segment.file);
            let spare = if read { None } else { self.reserve_front(segment.overwritten) };
            let longer = spare.as_ref().filter(|spare| spare.bytes < segment.overwritten);
            let cut =
                longer.zip(segment.file).map(|(spare, file)| DiskKind::Truncate { file, bytes: spare.bytes.into() });
            let close = segment.file.map(|file| DiskKind::Close { file }).into_iter().collect();
            let mut steps = vec![Step::of(cut.into_iter().collect()), Step::lenient(close)];
            let mut gone = vec!["index", "timeindex", "snapshot"];
            if spare.is_none() {
                gone.insert(0, "log");
            }
            let removes = gone.into_iter().map(|extension| DiskKind::Remove { dir: dir_id, path: path(extension) });
            steps.push(Step::lenient(removes.collect()));
            let then = match spare {
                None => Then::Nothing,
                Some(spare) => {
                    let rename = DiskKind::Rename { dir: dir_id, from: path("log"), to: spare.path.clone() };
                    steps.push(Step::of(vec![rename]));
                    steps.push(Step::of(vec![DiskKind::SyncDir { dir: dir_id, path: self.journal_dir() }]));
                    if let Some(log) = self.log_any_mut(id) {
                        // Its directory stays where it is until then.
                        log.jobs += 1;
                    }
                    Then::Recycled(id, spare)
                }
            };
            self.jobs.add(Job::new(DiskClass::Background, steps, then));
        }
    }

    pub(crate) fn recycled(&mut self, id: LogId, spare: Spare, error: Option<DiskError>) {
        if let Some(log) = self.log_any_mut(id) {
            log.jobs -= 1;
        }
        self.spare_made(spare, error);
    }
}

/// A directory that is being removed.
#[derive(Debug)]
pub(crate) struct Removal {
    log: LogId,
    /// By segment: how much of its file may be overwritten.
    marks: BTreeMap<Offset, u32>,
}

/// Of each segment's file, the extents that are durable: what was there when it was taken, and what groups told of since.
fn marks(log: &Log) -> BTreeMap<Offset, u32> {
    let open = log.open.iter().map(|segment| (segment.base, segment.overwritten.max(segment.written_to)));
    let sealed = log.sealed.values().map(|segment| (segment.base, segment.overwritten));
    open.chain(sealed).filter(|(_, bytes)| *bytes > 0).collect()
}
