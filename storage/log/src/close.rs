//! The clean stop. The journal stays the truth; the files become what other tools read.

use ringmain_buffer::Pool;
use ringmain_disk::{DiskClass, DiskError, DiskKind};
use ringmain_types::*;

use crate::commit::Draft;
use crate::files::{SmallFile, rest_writes};
use crate::jobs::{Job, Step, Then};
use crate::log::Log;
use crate::room::Rank;
use crate::store::Store;
use crate::{LogState, StoreEvent};

impl Store {
    /// Clean stop: tails to segments, exact lengths (so that Kafka's tools read every file), indexes, epochs; then `Closed`. No
    /// append is taken any more.
    pub fn close(&mut self, _now: Now) {
        self.closing = true;
        for (slot, entry) in self.slots.iter().enumerate() {
            if entry.log.as_ref().is_some_and(|log| log.ready()) {
                self.settle.insert(slot as u32);
                self.dirty.insert(slot as u32);
                self.to_close.insert(slot as u32);
            }
        }
    }

    /// What the next generation's journals begin with: the state of every log, opened or not. Only after `Closed`.
    pub fn export(&self) -> Vec<LogState> {
        let opened = self.slots.iter().filter_map(|slot| slot.log.as_deref()).filter_map(Log::exported);
        opened.chain(self.unopened.values().map(|(state, _)| state.clone())).collect()
    }

    pub(crate) fn close_step(&mut self, _now: Now, pool: &mut Pool) {
        let begins = self.opening.is_some() || self.resume.is_some();
        if !self.closing || self.closed || begins && self.fenced.is_none() {
            return;
        }
        self.stop_compaction();
        // What a driver still has to do must not meet the next life, and its buffers are lent.
        if self.operations_out() || !self.reads.quiet() {
            return;
        }
        self.remove_spares();
        if self.fenced.is_none() {
            let slots: Vec<u32> = self.to_close.iter().copied().collect();
            for slot in slots {
                if self.close_log(slot, pool) {
                    self.to_close.remove(&slot);
                }
            }
        }
        let quiet = self.flight.is_none() && self.jobs.idle();
        let news = self.dirty.iter().any(|slot| self.slots[*slot as usize].log.as_ref().is_some_and(|log| log.news()));
        let news = news || !self.gone.is_empty();
        if quiet && !news && self.to_close.is_empty() && self.unconfirmed && self.fenced.is_none() {
            // Says that the last group was flushed: should it rot, nobody takes it for a torn write.
            let (ring, block) = (self.ring(), self.ring().block);
            let room = ring.measure(block, ring.live()) <= ring.measure_max(Rank::Metadata);
            if room && ring.place(block).is_some() {
                return self.send(Draft::new(block as usize), pool);
            }
        }
        // A ring that is full of what must stay takes no more news. Nobody was told of them, so the stop need not wait.
        let stuck = quiet && self.settle.is_empty() && self.starved.is_empty() && self.full.is_empty();
        if stuck
            || self.fenced.is_some() && self.jobs.idle() && self.flight.is_none()
            || quiet && !news && self.to_close.is_empty()
        {
            self.closed = true;
            self.events.push(StoreEvent::Closed);
        }
    }

    /// True when nothing more is to be begun for this log.
    fn close_log(&mut self, slot: u32, pool: &mut Pool) -> bool {
        let block = self.block;
        let gather = self.config.limits.gather_bytes_max;
        let dir_id = self.config.dir;
        let Some(log) = self.slots[slot as usize].log.as_deref() else { return true };
        if !log.ready() {
            return true;
        }
        if log.news() || log.in_flight || log.jobs > 0 || log.open.len() > 1 {
            // A full disk does not keep the broker from stopping: the journal has everything.
            return log.full_until.is_some() && !log.news() && !log.in_flight && log.jobs == 0;
        }
        if self.checkpoint_at_close(slot, pool) {
            return false;
        }
        let Some(log) = self.slots[slot as usize].log.as_deref() else { return true };
        let id = log.id;
        let active = log.active();
        if log.since.is_none() || (active.end == 0 && log.sealed.is_empty()) {
            return true;
        }
        let (Some(dir), true) = (log.dir_name().map(str::to_owned), active.end == 0 || active.file_id().is_some())
        else {
            return log.full_until.is_some();
        };
        let file = active.file_id();
        let mut index = active.index.clone();
        index.seal();
        let name = "leader-epoch-checkpoint".to_owned();
        let mut contents = vec![SmallFile { name, from: 0, bytes: log.epochs.encode().into_bytes() }];
        let mut steps = Vec::new();
        let mut files = Vec::new();
        if let Some(file) = file {
            let Some(rest) = rest_writes(active, file, pool, block, gather) else { return false };
            steps.push(Step::of(rest));
            steps.push(Step::of(vec![DiskKind::Truncate { file, bytes: u64::from(active.end) }]));
            files.push(file);
            contents.extend(active.index_files(&index));
        }
        let Some(small) = self.small_files(dir_id, &dir, &contents, pool) else { return false };
        files.extend(small.files);
        steps.extend(small.steps);
        steps.push(Step::of(vec![
            DiskKind::Flush { dir: dir_id, files, after: Vec::new() },
            DiskKind::SyncDir { dir: dir_id, path: dir },
        ]));
        steps.push(Step::of(small.close));
        if let Some(log) = self.log_any_mut(id) {
            log.jobs += 1;
            log.at_rest = true;
        }
        self.jobs.add(Job::new(DiskClass::Background, steps, Then::Settled(id)));
        true
    }

    pub(crate) fn log_closed(&mut self, id: LogId, error: Option<DiskError>) {
        if let Some(log) = self.log_any_mut(id) {
            log.jobs -= 1;
        }
        match error {
            // The journal has it all: a full disk costs only the tools' view.
            Some(error) if error.errno != DiskError::ENOSPC => self.fence(error),
            _ => {}
        }
    }
}

impl Log {
    fn exported(&self) -> Option<LogState> {
        match &self.phase {
            crate::log::Phase::Ready if self.since.is_some() => Some(self.state()),
            crate::log::Phase::Recovering(recovering) => Some(recovering.state.clone()),
            crate::log::Phase::Damaged => self.kept_state.as_deref().cloned(),
            _ => None,
        }
    }
}
