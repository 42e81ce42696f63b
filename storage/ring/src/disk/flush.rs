//! Flushes: each waits for its writes, then syncs all its files, and fails if any of them did.

use ringmain_disk::{DiskDone, DiskError, DiskOk, DiskToken, FileId};

use super::{Files, Task};
use crate::driver::Driver;

impl Files {
    pub(super) fn flush(&mut self, token: DiskToken, files: Vec<FileId>, after: &[DiskToken], driver: &mut Driver) {
        let slot = self.tasks.insert(Task::Flush { token, files, writes: 0, syncs: 0, error: None });
        let mut waits = 0;
        for write in after {
            if let Some(flushes) = self.writes.get_mut(write) {
                flushes.push(slot);
                waits += 1;
            }
        }
        if let Some(Task::Flush { writes, .. }) = self.tasks.get_mut(slot) {
            *writes = waits;
        }
        if waits == 0 {
            self.start_syncs(slot, driver);
        }
    }

    pub(super) fn write_done(&mut self, flush: u32, failed: Option<&DiskError>, driver: &mut Driver) {
        let Some(Task::Flush { writes, error, .. }) = self.tasks.get_mut(flush) else { return };
        if error.is_none() {
            *error = failed.cloned();
        }
        *writes -= 1;
        if *writes == 0 {
            self.start_syncs(flush, driver);
        }
    }

    pub(super) fn start_syncs(&mut self, flush: u32, driver: &mut Driver) {
        let Some(Task::Flush { files, syncs, error, .. }) = self.tasks.get_mut(flush) else { return };
        // One more than there are, so that failures on the way can't end it before all are started.
        *syncs = 1;
        if error.is_none() {
            let files = files.clone();
            *syncs += files.len();
            self.counters.flushes += files.len() as u64;
            for file in files {
                self.with_descriptor(file, Task::Sync { flush, file }, driver);
            }
        }
        self.sync_done(flush, None);
    }

    pub(super) fn sync_done(&mut self, flush: u32, failed: Option<DiskError>) {
        let Some(Task::Flush { syncs, error, .. }) = self.tasks.get_mut(flush) else { return };
        if error.is_none() {
            *error = failed;
        }
        *syncs -= 1;
        if *syncs > 0 {
            return;
        }
        let Some(Task::Flush { token, files, error, .. }) = self.tasks.take(flush) else { return };
        if error.is_none() {
            for file in files {
                if let Some(state) = self.table.get_mut(file) {
                    state.dirty = false;
                }
                self.table.rest(file);
            }
        }
        self.done.push(DiskDone { token, result: error.map_or(Ok(DiskOk::Done), Err) });
    }
}
