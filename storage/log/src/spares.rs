//! Spare files: every extent of theirs was written and flushed once, so that a segment that overwrites them needs no metadata and the
//! journal's flush covers it. Retention, removed logs and, when nothing else is to be done, zeroes make them; a new segment takes one.
//!
//! ```text
//! a segment that goes: Rename -> SyncDir \
//! zeroes: Open -> Write.. -> Flush -> SyncDir -> (ready) -> Rename -> Open -> SyncDir: a segment
//! ```
//! They live in the journals' directory, under names of this shard, and no longer than the process: what an earlier life left is
//! removed at the start, so that nobody has to believe what a name or a length says of a file's extents.

use ringmain_buffer::Pool;
use ringmain_disk::{DiskClass, DiskError, DiskKind, DiskOk, FileId};
use ringmain_types::*;

use crate::jobs::{Got, Job, Step, Then};
use crate::log::Log;
use crate::store::{Doing, Store};

/// A file without a log. Whatever it holds was never declared by anybody who gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spare {
    pub path: String,
    /// Whole blocks from its begin whose extents are durable.
    pub bytes: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Spares {
    /// What an earlier life left is gone: names may be used.
    swept: bool,
    ready: Vec<Spare>,
    /// Of those that are ready or on their way.
    files: u32,
    bytes: u64,
    number: u64,
    /// Bytes that segments took of fresh extents, less what was filled for it.
    fresh: u64,
    filling: Option<Filling>,
    /// The last commit of blocks.
    busy_at: Option<Instant>,
}

/// A file that gets zeroes.
#[derive(Debug)]
struct Filling {
    file: FileId,
    spare: Spare,
    at: u32,
    waiting: bool,
    synced: bool,
}

impl Spares {
    /// A name and a place for a file of `bytes`; `None` when there is no room.
    fn reserve(&mut self, limits: &Limits, bytes: u32, path: impl FnOnce(u64) -> String) -> Option<Spare> {
        let room = limits.spare_bytes_max.saturating_sub(self.bytes);
        if !self.swept || bytes == 0 || self.files >= limits.spare_files_max || u64::from(bytes) > room {
            return None;
        }
        self.files += 1;
        self.bytes += u64::from(bytes);
        self.number += 1;
        Some(Spare { path: path(self.number), bytes })
    }

    /// Temporary names of this shard may be used.
    pub fn swept(&self) -> bool {
        self.swept
    }

    fn forget(&mut self, spare: &Spare) {
        self.files -= 1;
        self.bytes -= u64::from(spare.bytes);
    }

    /// Segments took `bytes` of fresh extents, at `now`.
    pub fn wrote(&mut self, now: Instant, fresh: u64) {
        self.busy_at = Some(now);
        self.fresh = self.fresh.saturating_add(fresh);
    }

    /// Blocks were committed within the last `quiet_ms`.
    pub fn busy(&self, now: Instant, quiet_ms: u64) -> bool {
        self.busy_at.is_some_and(|at| now.since(at) < quiet_ms * 1_000_000)
    }
}

/// Whether stale bytes may get this segment's name: the journal must say, durably, that the log is in this directory and has this
/// segment open, with something in it. Otherwise a later life could take the file for a sealed one, or leave it as it is at a stop.
fn known(log: &Log, base: Offset) -> bool {
    log.declared() && log.segment(base).is_some_and(|segment| segment.roll_declared && segment.declared_to > 0)
}

impl Store {
    pub(crate) fn spare_prefix(&self) -> String {
        format!("{}.spare-", self.config.shard.0)
    }

    /// Whether it is of use: else every segment is flushed by itself, whatever its extents are.
    fn spares_wanted(&self) -> bool {
        self.config.journal_flush_covers && !self.closing && self.fenced.is_none()
    }

    /// At the start: an earlier life's go.
    pub(crate) fn sweep_spares(&mut self) {
        let list = DiskKind::List { dir: self.config.dir, path: self.journal_dir() };
        self.jobs.add(Job::new(DiskClass::Background, vec![Step::lenient(vec![list])], Then::SparesListed));
    }

    pub(crate) fn spares_listed(&mut self, mut got: Got) {
        let Some(DiskOk::Listed(entries)) = Store::ok(&mut got, 0) else { return };
        let (dir, journals, prefix) = (self.config.dir, self.journal_dir(), self.spare_prefix());
        let old = entries.into_iter().filter(|entry| entry.name.starts_with(&prefix));
        let removes = old.map(|entry| DiskKind::Remove { dir, path: format!("{journals}/{}", entry.name) });
        let steps = vec![Step::lenient(removes.collect())];
        self.jobs.add(Job::new(DiskClass::Background, steps, Then::SparesSwept));
    }

    pub(crate) fn spares_swept(&mut self) {
        self.spares.swept = true;
    }

    /// As `reserve_spare`; of a file that is too long for the room that is left, the front: the caller cuts it to the spare's length.
    pub(crate) fn reserve_front(&mut self, bytes: u32) -> Option<Spare> {
        let limits = &self.config.limits;
        let room = limits.spare_bytes_max.saturating_sub(self.spares.bytes).min(u64::from(u32::MAX)) as u32;
        // A front that is shorter than one of zeroes would be is not worth a file's place.
        let fits = bytes <= room || room >= limits.spare_fill_bytes;
        if fits { self.reserve_spare(bytes.min(room)) } else { None }
    }

    /// A place in the pool for a file of which `bytes` may be overwritten, when there is one.
    pub(crate) fn reserve_spare(&mut self, bytes: u32) -> Option<Spare> {
        if !self.spares_wanted() {
            return None;
        }
        let path = format!("{}/{}", self.journal_dir(), self.spare_prefix());
        let bytes = bytes / self.block * self.block;
        self.spares.reserve(&self.config.limits, bytes, |number| format!("{path}{number}"))
    }

    /// Its name is durable, or an error says that there is none.
    pub(crate) fn spare_made(&mut self, spare: Spare, error: Option<DiskError>) {
        match error {
            None if self.spares_wanted() => self.spares.ready.push(spare),
            None => {
                self.spares.ready.push(spare);
                self.remove_spares();
            }
            Some(error) => {
                self.spares.forget(&spare);
                self.spare_failed(&spare, error);
            }
        }
    }

    /// What is missing or has no room is only a spare less; anything else is the device's failure.
    pub(crate) fn spare_failed(&mut self, spare: &Spare, error: DiskError) {
        let remove = DiskKind::Remove { dir: self.config.dir, path: spare.path.clone() };
        self.jobs.add(Job::new(DiskClass::Background, vec![Step::lenient(vec![remove])], Then::Nothing));
        if !error.missing() && error.errno != DiskError::ENOSPC {
            self.fence(error);
        }
    }

    /// For this segment's file. `Err`: there is one, but not yet for a segment that the journal does not know.
    pub(crate) fn take_spare(&mut self, pool: &Pool, id: LogId, base: Offset) -> Result<Option<Spare>, NotYet> {
        if !self.spares_wanted() || self.spares.ready.is_empty() {
            return Ok(None);
        }
        let ring = self.ring();
        let most = (ring.group_bytes_max() / 4) as u32;
        let short = pool.left(Account::Tail) < pool.limit(Account::Tail) as usize / 2;
        let crowded = short || ring.used() > ring.ring_bytes / 8 * 3;
        let trickle = self.config.limits.trickle_bytes_max;
        let Some(log) = self.log(id) else { return Ok(None) };
        let Some(segment) = log.segment(base) else { return Ok(None) };
        let inline = segment.end - segment.written_to;
        // A log that is a trickle would hold far more than it needs.
        if inline < trickle || !known(log, base) {
            // Where the journal or memory is short, or much is waiting, any file is better than the right one.
            // One that has rolled grows no more: were it to wait, so would the log when it has too many of them.
            let stays = inline < trickle && segment.rolled.is_some();
            return if crowded || stays || inline > most { Ok(None) } else { Err(NotYet) };
        }
        // The longest: it covers most.
        let longest = (0..self.spares.ready.len()).max_by_key(|at| self.spares.ready[*at].bytes);
        let Some(spare) = longest.map(|at| self.spares.ready.remove(at)) else { return Ok(None) };
        self.spares.forget(&spare);
        Ok(Some(spare))
    }

    /// Zeroes into a file of their own, at most `bytes` of them and one write at a time, while nothing else is done. As much as was
    /// written into fresh extents since the start: a broker that nobody uses writes nothing.
    pub(crate) fn fill_spares(&mut self, now: Now, pool: &mut Pool, bytes: u32) {
        let limits = &self.config.limits;
        let (whole, files, quiet_ms) = (limits.spare_fill_bytes, limits.spare_fill_files_max, limits.spare_quiet_ms);
        let quiet = self.spares.busy_at.is_some_and(|at| now.mono.since(at) >= quiet_ms * 1_000_000);
        let idle = self.flight.is_none() && self.dirty.is_empty() && self.jobs.idle() && self.opening.is_none();
        if !quiet || !idle || !self.spares_wanted() {
            return;
        }
        match self.spares.filling.take() {
            Some(filling) => self.fill_on(pool, bytes, filling),
            None if self.spares.files < files && self.spares.fresh >= u64::from(whole) => self.fill_begin(whole),
            None => {}
        }
    }

    fn fill_begin(&mut self, whole: u32) {
        let Some(spare) = self.reserve_spare(whole) else { return };
        self.spares.fresh -= u64::from(whole);
        let (dir, file, path) = (self.config.dir, self.file(), spare.path.clone());
        let open = DiskKind::Open { dir, file, path, create: true };
        self.spares.filling = Some(Filling { file, spare, at: 0, waiting: true, synced: false });
        self.jobs.add(Job::new(DiskClass::Background, vec![Step::of(vec![open])], Then::Filled(file)));
    }

    fn fill_on(&mut self, pool: &mut Pool, bytes: u32, mut filling: Filling) {
        let (dir, file, block) = (self.config.dir, filling.file, self.block);
        if !filling.waiting {
            let left = filling.spare.bytes - filling.at;
            let bytes = left.min((bytes / block * block).max(block));
            let steps = if left == 0 {
                filling.synced = true;
                vec![
                    Step::of(vec![DiskKind::Flush { dir, files: vec![file], after: Vec::new() }]),
                    Step::of(vec![DiskKind::SyncDir { dir, path: self.journal_dir() }]),
                    Step::lenient(vec![DiskKind::Close { file }]),
                ]
            } else {
                // Without memory it waits for a better time.
                let Ok(mut zeroes) = pool.take(Account::Background, bytes as usize) else {
                    self.spares.filling = Some(filling);
                    return;
                };
                zeroes.extend_zeroes(bytes as usize);
                let position = u64::from(filling.at);
                filling.at += bytes;
                vec![Step::of(vec![DiskKind::Write { file, position, data: vec![zeroes.freeze()] }])]
            };
            filling.waiting = true;
            self.jobs.add(Job::new(DiskClass::Background, steps, Then::Filled(file)));
        }
        self.spares.filling = Some(filling);
    }

    pub(crate) fn filled(&mut self, file: FileId, error: Option<DiskError>) {
        let Some(mut filling) = self.spares.filling.take_if(|filling| filling.file == file) else {
            // A stop came between; the process ends with it.
            return;
        };
        filling.waiting = false;
        if error.is_none() && !filling.synced {
            self.spares.filling = Some(filling);
            return;
        }
        if error.is_some() && filling.at > 0 {
            self.operate(DiskClass::Background, DiskKind::Close { file }, Doing::Ignored);
        }
        self.spare_made(filling.spare, error);
    }

    /// A clean stop leaves none.
    /// On a full disk: the space of those that are ready is given back.
    pub(crate) fn release_spares(&mut self) {
        let dir = self.config.dir;
        let ready = std::mem::take(&mut self.spares.ready);
        ready.iter().for_each(|spare| self.spares.forget(spare));
        if !ready.is_empty() {
            let removes = ready.into_iter().map(|spare| DiskKind::Remove { dir, path: spare.path });
            let steps = vec![Step::lenient(removes.collect())];
            self.jobs.add(Job::new(DiskClass::Background, steps, Then::Nothing));
        }
    }

    pub(crate) fn remove_spares(&mut self) {
        let dir = self.config.dir;
        let mut paths: Vec<String> = self.spares.ready.drain(..).map(|spare| spare.path).collect();
        let filling = self.spares.filling.take();
        paths.extend(filling.map(|filling| filling.spare.path));
        if !paths.is_empty() {
            let removes = paths.into_iter().map(|path| DiskKind::Remove { dir, path });
            let steps = vec![Step::lenient(removes.collect())];
            self.jobs.add(Job::new(DiskClass::Background, steps, Then::Nothing));
        }
    }
}

/// A segment that the journal does not know durably gets no file with stale bytes.
#[derive(Debug)]
pub(crate) struct NotYet;
