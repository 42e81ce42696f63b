//! Removing a log: the journal says so, its directory is renamed away, emptied, and forgotten.
//!
//! The directory is the log's own (no other log ever gets its name while it stands), so nothing here can touch a topic that was
//! made anew under the same name.

use std::collections::BTreeMap;

use ringmain_disk::{DiskClass, DiskError, DiskKind, DiskOk};
use ringmain_types::*;

use crate::StoreEvent;
use crate::jobs::{Job, Step, Then};
use crate::journal::Needs;
use crate::segment::file_name;
use crate::store::Store;

type Got = BTreeMap<u32, Result<DiskOk, DiskError>>;

impl Store {
    /// Group `sequence` says that the log is gone, and is flushed.
    pub(crate) fn removal_declared(&mut self, id: LogId, sequence: u64) {
        let Some(log) = self.log_any_mut(id) else { return };
        let since = log.since.take();
        let dir = log.dir_name().map(str::to_owned);
        let open = log.open.iter().filter_map(|segment| segment.file_id());
        let files: Vec<_> = open.chain(log.sealed.values().filter_map(|segment| segment.file)).collect();
        log.open.iter_mut().for_each(|segment| segment.chunks.clear());
        log.cache.clear();
        if let Some(since) = since {
            self.ring_mut().release(since, Needs::Log(id.slot));
        }
        let closes = files.into_iter().map(|file| DiskKind::Close { file }).collect();
        self.jobs.add(Job::new(DiskClass::Background, vec![Step::lenient(closes)], Then::Nothing));
        match dir {
            Some(dir) => {
                self.ring_mut().need(sequence, Needs::Removing(dir.clone()));
                self.removing.insert(dir.clone(), sequence);
                self.removals.insert(dir.clone(), id);
                self.remove_directory(id, dir);
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
            self.remove_listed(crate::opening::NO_LOG, name, got);
        } else {
            self.remove_directory(crate::opening::NO_LOG, name);
        }
    }

    /// From the rename on.
    pub(crate) fn remove_directory(&mut self, id: LogId, name: String) {
        let dir = self.config.dir;
        let away = format!("{name}-delete");
        let steps = vec![
            Step::lenient(vec![DiskKind::Rename { dir, from: name.clone(), to: away.clone() }]),
            Step::of(vec![DiskKind::SyncDir { dir, path: String::new() }]),
            Step::lenient(vec![DiskKind::List { dir, path: away }]),
        ];
        self.jobs.add(Job::new(DiskClass::Background, steps, Then::RemoveListed(id, name)));
    }

    pub(crate) fn remove_listed(&mut self, id: LogId, name: String, got: Got) {
        let dir = self.config.dir;
        let listed = got.into_values().find_map(|got| match got {
            Ok(DiskOk::Listed(entries)) => Some(entries),
            _ => None,
        });
        let entries = listed.unwrap_or_default();
        let removes = entries.iter().map(|e| DiskKind::Remove { dir, path: format!("{name}-delete/{}", e.name) });
        let steps = vec![
            Step::lenient(removes.collect()),
            Step::lenient(vec![DiskKind::SyncDir { dir, path: format!("{name}-delete") }]),
        ];
        self.jobs.add(Job::new(DiskClass::Background, steps, Then::RemoveEmptied(id, name)));
    }

    /// Only when the journal has forgotten the directory may its name go: until then it tells that the rename was done.
    pub(crate) fn remove_emptied(&mut self, _id: LogId, name: String) {
        self.gone.push(name);
    }

    pub(crate) fn directory_gone(&mut self, name: String) {
        let dir = self.config.dir;
        let id = self.removals.remove(&name).unwrap_or(crate::opening::NO_LOG);
        let remove = DiskKind::RemoveDir { dir, path: format!("{name}-delete") };
        self.jobs.add(Job::new(DiskClass::Background, vec![Step::lenient(vec![remove])], Then::RemoveDone(id)));
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
        let below: Vec<Offset> =
            log.sealed.values().take_while(|s| s.declared && s.next <= started).map(|s| s.base).collect();
        for base in below {
            let Some(log) = self.log_mut(id) else { return };
            let Some(segment) = log.sealed.remove(&base) else { continue };
            let cached: Vec<u32> =
                log.cache.range((base, 0)..=(base, u32::MAX)).map(|((_, first), _)| *first).collect();
            for first in cached {
                log.cache.remove(&(base, first));
            }
            self.reads.index_dropped(id, base);
            let close = segment.file.map(|file| DiskKind::Close { file }).into_iter().collect();
            let remove = ["log", "index", "timeindex", "snapshot"].map(|extension| DiskKind::Remove {
                dir: dir_id,
                path: format!("{dir}/{}", file_name(base, extension)),
            });
            let steps = vec![Step::lenient(close), Step::lenient(remove.into())];
            self.jobs.add(Job::new(DiskClass::Background, steps, Then::Nothing));
        }
    }
}
