//! A log's directory and files: made when first needed, extended ahead, sealed behind a roll. Nothing here is in the way of an
//! acknowledgement: until a file is ready, the journal holds the records.

use std::collections::BTreeMap;

use ringmain_buffer::{Buf, Pool};
use ringmain_disk::{DiskClass, DiskError, DiskKind, DiskOk, FileId};
use ringmain_types::*;

use crate::StoreEvent;
use crate::checkpoint::padded;
use crate::commit::gather_writes;
use crate::index::SegmentIndex;
use crate::jobs::{Job, Step, Then};
use crate::log::{Dir, Log};
use crate::partition_metadata;
use crate::plan::Tells;
use crate::segment::{OpenSegment, SealedSegment, SegmentFile, file_name};
use crate::spares::Spare;
use crate::store::Store;

/// After "no space left" a reservation is tried again this much later.
const FULL_RETRY_MS: u64 = 1000;
/// Names of files and directories are at most 255 bytes long; what is put behind a log's name takes up to 60.
const NAME_BYTES_MAX: usize = 190;
/// Directories of one log that lives before the journal knew of them may leave.
const NAMES_MAX: u32 = 999;
const EEXIST: i32 = 17;
const ENOTEMPTY: i32 = 39;

type Got = BTreeMap<u32, Result<DiskOk, DiskError>>;

/// A log that takes a whole step of space within this is a fast one.
const FAST_STEP_NS: u64 = 1_000_000_000;

impl Store {
    pub(crate) fn full_at(&self) -> Option<Instant> {
        self.full.first().map(|(at, _)| *at)
    }

    /// Looks after the files of the logs in `settle`.
    pub(crate) fn settle_logs(&mut self, now: Now, pool: &mut Pool) {
        while let Some((at, slot)) = self.full.first().copied().filter(|(at, _)| *at <= now.mono) {
            self.full.remove(&(at, slot));
            self.settle.insert(slot);
            if let Some(log) = self.slots[slot as usize].log.as_deref_mut() {
                log.full_until = None;
            }
        }
        if self.fenced.is_some() {
            return;
        }
        for slot in std::mem::take(&mut self.settle) {
            self.weigh(slot);
            self.settle_log(slot, pool);
        }
    }

    fn settle_log(&mut self, slot: u32, pool: &mut Pool) {
        let block = self.block;
        let Some(log) = self.slots[slot as usize].log.as_deref_mut().filter(|log| log.ready()) else { return };
        let id = log.id;
        let mut moved = Vec::new();
        for segment in &mut log.open {
            let base = segment.base;
            moved.extend(segment.written_chunks().into_iter().map(|chunk| (base, chunk)));
        }
        for (base, chunk) in moved {
            let data = chunk.slice(chunk.first(), chunk.end());
            if !data.is_empty() {
                self.cache_insert(pool, id, base, chunk.first(), data);
            }
        }
        let Some(log) = self.slots[slot as usize].log.as_deref_mut() else { return };
        if log.full_until.is_some() {
            return;
        }
        let early = self.closing || log.config.reserve_bytes > 0;
        self.make_files(pool, id, |s| {
            let whole = s.end / block * block > s.written_to;
            s.file == SegmentFile::None && (whole || (s.end > 0 && (early || s.rolled.is_some())))
        });
        self.allocate_ahead(id);
        self.zero_ahead(pool, id);
        self.seal_rolled(id, pool);
    }

    /// Makes the directory, or the files of the segments that `wanted` names.
    pub(crate) fn make_files(&mut self, pool: &Pool, id: LogId, wanted: impl Fn(&OpenSegment) -> bool) {
        let dir_id = self.config.dir;
        let inline_max = self.ring().group_bytes_max() as u32 / 4 * 3;
        let Some(log) = self.log_mut(id) else { return };
        let bases: Vec<Offset> = log.open.iter().filter(|s| wanted(s)).map(|s| s.base).collect();
        if bases.is_empty() {
            return;
        }
        let dir = match &log.dir {
            Dir::Making => return,
            // Files in a directory that no group tells of could not be told from a stray's. So the journal comes first, where it can
            // hold what waits for the file and has room for it: a log's first word that waits asks for less with a file.
            Dir::Ready(_)
                if !log.declared() && log.inline_bytes() <= inline_max && !(log.waits && log.since.is_none()) =>
            {
                return;
            }
            Dir::Ready(dir) => dir.clone(),
            Dir::None => {
                log.dir = Dir::Making;
                log.jobs += 1;
                let list = |path| DiskKind::List { dir: dir_id, path };
                let lists = vec![list(log.name.clone()), list(format!("{}-delete", log.name))];
                self.jobs.add(Job::new(DiskClass::Background, vec![Step::lenient(lists)], Then::DirListed(id)));
                return;
            }
        };
        for base in bases {
            let Ok(spare) = self.take_spare(pool, id, base) else { continue };
            let file = self.file();
            let Some(log) = self.log_mut(id) else { return };
            log.jobs += 1;
            let Some(segment) = log.segment_mut(base) else { continue };
            segment.file = SegmentFile::Making;
            let path = format!("{dir}/{}", file_name(base, "log"));
            let mut steps = match &spare {
                Some(spare) => vec![
                    Step::of(vec![DiskKind::Rename { dir: dir_id, from: spare.path.clone(), to: path.clone() }]),
                    Step::of(vec![DiskKind::Open { dir: dir_id, file, path, create: false }]),
                ],
                None => vec![
                    Step::of(vec![DiskKind::Open { dir: dir_id, file, path, create: true }]),
                    // Nothing that an earlier life left here was ever declared.
                    Step::of(vec![DiskKind::Truncate { file, bytes: 0 }]),
                ],
            };
            steps.push(Step::of(vec![DiskKind::SyncDir { dir: dir_id, path: dir.clone() }]));
            self.jobs.add(Job::new(DiskClass::Background, steps, Then::FileMade(id, base, file, spare)));
        }
    }

    /// Whether the wished name is free decides the directory's. It is made under a name of its own and renamed when it holds
    /// something, so that two shards never share one.
    pub(crate) fn dir_listed(&mut self, id: LogId, mut got: Got) {
        let taken = matches!(Store::ok(&mut got, 0), Some(DiskOk::Listed(entries)) if !entries.is_empty());
        // Of a removal that is not over: its last step must never meet a second one of the same name, nor a start take this log's
        // directory for the one that was to go.
        let going = matches!(Store::ok(&mut got, 1), Some(DiskOk::Listed(_)));
        let Some(log) = self.log_any_mut(id) else { return };
        let taken = taken || going || reserved(&log.name);
        let to = if taken { other_name(log) } else { log.name.clone() };
        self.make_dir(id, to);
    }

    fn make_dir(&mut self, id: LogId, to: String) {
        let (dir, file) = (self.config.dir, self.file());
        let block = self.block as usize;
        let Some(log) = self.log_any_mut(id) else { return };
        let from = format!("{}-new", other_name(log));
        let text = partition_metadata::encode(log.partition.topic);
        let mut padded = text.clone().into_bytes();
        padded.resize(text.len().next_multiple_of(block), 0);
        let path = format!("{from}/partition.metadata");
        let steps = vec![
            Step::of(vec![DiskKind::MakeDir { dir, path: from.clone() }]),
            Step::of(vec![DiskKind::Open { dir, file, path, create: true }]),
            Step::of(vec![DiskKind::Truncate { file, bytes: 0 }]),
            Step::of(vec![DiskKind::Write { file, position: 0, data: vec![Buf::copy_of(&padded)] }]),
            Step::of(vec![DiskKind::Truncate { file, bytes: text.len() as u64 }]),
            Step::of(vec![DiskKind::Flush { dir, files: vec![file], after: Vec::new() }]),
            Step::of(vec![DiskKind::Close { file }, DiskKind::SyncDir { dir, path: from.clone() }]),
            Step::of(vec![DiskKind::Rename { dir, from, to: to.clone() }]),
            Step::of(vec![DiskKind::SyncDir { dir, path: String::new() }]),
        ];
        self.jobs.add(Job::new(DiskClass::Background, steps, Then::DirMade(id, to)));
    }

    pub(crate) fn dir_made(&mut self, now: Now, id: LogId, name: String, error: Option<DiskError>) {
        let Some(log) = self.log_any_mut(id) else { return };
        match error {
            None => {
                log.jobs -= 1;
                log.dir = Dir::Ready(name);
                // The journal must know the name before it tells of a file in it.
                log.pending.state = true;
                self.dirty.insert(id.slot);
                self.settle.insert(id.slot);
            }
            Some(error) if [EEXIST, ENOTEMPTY].contains(&error.errno) && next_name(log, &name).is_some() => {
                let next = next_name(log, &name).unwrap_or_default();
                self.make_dir(id, next);
            }
            Some(error) => {
                log.jobs -= 1;
                log.dir = Dir::None;
                self.file_failed(now, id, error);
            }
        }
    }

    pub(crate) fn file_made(
        &mut self,
        now: Now,
        id: LogId,
        (base, file, spare): (Offset, FileId, Option<Spare>),
        error: Option<DiskError>,
    ) {
        if let (Some(spare), Some(error)) = (&spare, &error) {
            self.spare_failed(spare, error.clone());
        }
        let step = self.config.limits.segment_allocate_bytes / 2;
        let Some(log) = self.log_any_mut(id) else { return };
        log.jobs -= 1;
        let failed = error.is_some();
        if let Some(segment) = log.segment_mut(base) {
            segment.file = if failed { SegmentFile::None } else { SegmentFile::Ready(file) };
            let bytes = spare.filter(|_| !failed).map_or(0, |spare| spare.bytes);
            (segment.allocated, segment.overwritten) = (bytes, bytes);
            // What follows a spare's extents is no trickle.
            segment.allocate_step = if bytes > 0 { step } else { segment.allocate_step };
        }
        self.dirty.insert(id.slot);
        match error {
            None => self.file_done(id),
            Some(error) => self.file_failed(now, id, error),
        }
    }

    /// No space is waited for; anything else fences.
    pub(crate) fn file_failed(&mut self, now: Now, id: LogId, error: DiskError) {
        if error.errno != DiskError::ENOSPC {
            return self.fence(error);
        }
        let until = now.mono.plus_ms(FULL_RETRY_MS);
        let Some(log) = self.log_any_mut(id) else { return };
        log.full_until = Some(until);
        if !std::mem::replace(&mut log.full, true) {
            let partition = log.partition;
            self.events.push(StoreEvent::NoSpace { partition, error });
        }
        self.full.insert((until, id.slot));
        // What is kept for speed goes first.
        self.release_spares();
    }

    /// A file was made, extended or sealed.
    fn file_done(&mut self, id: LogId) {
        self.settle.insert(id.slot);
        let Some(log) = self.log_any_mut(id) else { return };
        if std::mem::take(&mut log.full) {
            let partition = log.partition;
            self.events.push(StoreEvent::SpaceAgain { partition });
        }
    }

    /// Space is reserved before anything is written, so that a full disk is met where nothing can be torn.
    fn allocate_ahead(&mut self, id: LogId) {
        let (block, limits) = (self.block, &self.config.limits);
        let (first, most) = (limits.trickle_bytes_max.saturating_mul(4), limits.segment_allocate_bytes);
        let Some(log) = self.log_mut(id) else { return };
        let whole = log.config.segment_bytes.next_multiple_of(block);
        let reserve = log.config.reserve_bytes.next_multiple_of(block);
        let mut wanted = Vec::new();
        for segment in log.open.iter_mut().filter(|segment| !segment.allocating) {
            let Some(file) = segment.file_id() else { continue };
            let rolled = segment.rolled.is_some();
            let must = if rolled { segment.end.next_multiple_of(block) } else { segment.end / block * block };
            let free = segment.allocated - segment.end.min(segment.allocated);
            let margin = if segment.fast { segment.allocate_step / 2 } else { segment.allocate_step / 4 };
            let ahead = !rolled && (segment.written_to > 0 && free < margin || free < reserve);
            if segment.allocated >= must && !ahead {
                continue;
            }
            let step = segment.allocate_step.saturating_mul(2).clamp(first.min(most), most).max(reserve);
            let to = segment.allocated.saturating_add(if rolled { 0 } else { step }).min(whole).max(must);
            if to <= segment.allocated {
                continue;
            }
            segment.allocate_step = step;
            segment.allocating = true;
            wanted.push((segment.base, file, segment.allocated, to));
        }
        for (base, file, from, to) in wanted {
            let kind = DiskKind::Allocate { file, from: u64::from(from), bytes: u64::from(to - from) };
            if let Some(log) = self.log_mut(id) {
                log.jobs += 1;
            }
            self.jobs.add(Job::new(DiskClass::Background, vec![Step::of(vec![kind])], Then::Allocated(id, base, to)));
        }
    }

    pub(crate) fn allocated(&mut self, now: Now, id: LogId, base: Offset, to: u32, error: Option<DiskError>) {
        let step = self.config.limits.segment_allocate_bytes;
        let Some(log) = self.log_any_mut(id) else { return };
        log.jobs -= 1;
        if let Some(segment) = log.segment_mut(base) {
            segment.allocating = false;
            if error.is_none() {
                segment.allocated = to;
                if segment.allocate_step == step {
                    segment.fast = segment.stepped.is_some_and(|at| now.mono.since(at) < FAST_STEP_NS);
                    segment.stepped = Some(now.mono);
                }
            }
        }
        self.dirty.insert(id.slot);
        match error {
            None => self.file_done(id),
            Some(error) => self.file_failed(now, id, error),
        }
    }

    /// A rolled segment whose every byte is declared gets its last blocks, its exact length and its indexes.
    fn seal_rolled(&mut self, id: LogId, pool: &mut Pool) {
        let block = self.block;
        let Some(log) = self.log_mut(id) else { return };
        // A checkpoint writes the index, too.
        if log.in_flight || log.checkpointing || log.disbelieved {
            return;
        }
        let ready = |s: &OpenSegment| {
            let waits = s.rolled.as_ref().is_some_and(|rolled| !rolled.sealing);
            let space = s.allocated >= s.end.next_multiple_of(block);
            waits
                && !s.allocating
                && s.zeroing.is_none()
                && s.file_id().is_some()
                && space
                && s.undeclared() == 0
                && s.writing_to == s.written_to
        };
        // Oldest first, one behind the other: recovery takes what lies below the first open segment for sealed, and nothing above it.
        let oldest = log.open.front().filter(|s| ready(s)).map(|s| s.base);
        if let Some(base) = oldest {
            let Some(job) = self.seal_job(id, base, pool) else {
                // No memory now.
                self.settle_later.insert(id.slot);
                return;
            };
            if let Some(log) = self.log_mut(id) {
                log.jobs += 1;
                if let Some(rolled) = log.segment_mut(base).and_then(|segment| segment.rolled.as_mut()) {
                    rolled.sealing = true;
                }
            }
            self.jobs.add(job);
        }
    }

    fn seal_job(&mut self, id: LogId, base: Offset, pool: &mut Pool) -> Option<Job> {
        let (dir_id, block) = (self.config.dir, self.block);
        let gather = self.config.limits.gather_bytes_max;
        let log = self.log(id)?;
        let dir = log.dir_name()?.to_owned();
        let segment = log.segment(base)?;
        let file = segment.file_id()?;
        let (end, next) = (segment.end, segment.next);
        let rest = rest_writes(segment, file, pool, block, gather)?;
        let mut contents = segment.index_files(&segment.index).to_vec();
        // A checkpoint at the very end has made it, and needs it until the seal is told.
        if log.checkpoint_told(Tells::State).is_none_or(|checkpoint| checkpoint.offset != next) {
            let bytes = segment.rolled.as_ref().map_or_else(Vec::new, |rolled| rolled.snapshot.clone());
            contents.push(SmallFile { name: file_name(next, "snapshot"), from: 0, bytes });
        }
        let small = self.small_files(dir_id, &dir, &contents, pool)?;
        let mut files = small.files;
        files.push(file);
        // What may find no space comes first: a seal that is tried again must not write a block a second time.
        let mut steps = small.steps;
        steps.push(Step::of(rest));
        steps.push(Step::of(vec![DiskKind::Truncate { file, bytes: u64::from(end) }]));
        steps.push(Step::of(vec![
            DiskKind::Flush { dir: dir_id, files, after: Vec::new() },
            DiskKind::SyncDir { dir: dir_id, path: dir },
        ]));
        steps.push(Step::of(small.close));
        Some(Job::new(DiskClass::Background, steps, Then::Sealed(id, base, file, end)))
    }

    /// Small files: opened, cut to what is to stay of them, written from there on, cut to their length. Not flushed.
    pub(crate) fn small_files(
        &mut self,
        dir: DirId,
        path: &str,
        contents: &[SmallFile],
        pool: &mut Pool,
    ) -> Option<SmallFiles> {
        let mut small = SmallFiles::default();
        let (mut open, mut cut, mut write, mut length) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for SmallFile { name, from, bytes } in contents {
            let file = self.file();
            let from = u64::from(*from);
            open.push(DiskKind::Open { dir, file, path: format!("{path}/{name}"), create: true });
            cut.push(DiskKind::Truncate { file, bytes: from });
            if !bytes.is_empty() {
                let data = vec![padded(bytes, self.block, pool)?];
                write.push(DiskKind::Write { file, position: from, data });
                length.push(DiskKind::Truncate { file, bytes: from + bytes.len() as u64 });
            }
            small.files.push(file);
            small.close.push(DiskKind::Close { file });
        }
        small.steps = [open, cut, write, length].into_iter().map(Step::of).collect();
        Some(small)
    }

    pub(crate) fn sealed(
        &mut self,
        now: Now,
        id: LogId,
        base: Offset,
        file: FileId,
        bytes: u32,
        error: Option<DiskError>,
    ) {
        let block = self.block;
        let Some(log) = self.log_any_mut(id) else { return };
        log.jobs -= 1;
        if let Some(error) = error {
            if let Some(rolled) = log.segment_mut(base).and_then(|segment| segment.rolled.as_mut()) {
                rolled.sealing = false;
            }
            return self.file_failed(now, id, error);
        }
        let Some(at) = log.open.iter().position(|segment| segment.base == base) else { return };
        let Some(segment) = log.open.remove(at) else { return };
        log.pending.sealed.push(base);
        log.checkpoint_over(base);
        let max_timestamp = Some(segment.index.max_timestamp().map_or(WallMs(-1), |(at, _)| at));
        let (next, first_timestamp) = (segment.next, segment.first_timestamp);
        let memory = index_bytes(&segment.index);
        for chunk in &segment.chunks {
            let data = chunk.slice(chunk.first(), chunk.end());
            if !data.is_empty() {
                self.cache_later.push((id, base, chunk.first(), data));
            }
        }
        let Some(log) = self.log_any_mut(id) else { return };
        let index = Some(segment.index);
        log.sealed.insert(
            base,
            SealedSegment {
                base,
                next,
                bytes,
                file: Some(file),
                overwritten: bytes / block * block,
                first_timestamp,
                max_timestamp,
                left_timestamp: None,
                index,
                built_to: None,
                declared: false,
            },
        );
        self.reads.indexes.loaded(id, base, memory);
        self.bound_indexes(id, base);
        // A log that is written fast must not wait for the clock to let go of what is too much.
        self.retain(now, id.slot);
        self.dirty.insert(id.slot);
        self.file_done(id);
    }
}

/// A small file's name and bytes from `from` on, a multiple of the block.
#[derive(Clone, Debug)]
pub(crate) struct SmallFile {
    pub name: String,
    pub from: u32,
    pub bytes: Vec<u8>,
}

#[derive(Debug, Default)]
pub(crate) struct SmallFiles {
    pub files: Vec<FileId>,
    pub steps: Vec<Step>,
    pub close: Vec<DiskKind>,
}

impl OpenSegment {
    /// What the index files lack of `index`, the segment's own or a sealed copy.
    pub fn index_files(&self, index: &SegmentIndex) -> [SmallFile; 2] {
        let file = |extension: &str, at: usize, bytes: Vec<u8>| SmallFile {
            name: file_name(self.base, extension),
            from: self.index_written[at].bytes,
            bytes,
        };
        let [from, times_from] = self.index_written.map(|written| written.bytes as usize);
        [
            file("index", 0, index.offsets().encode_from(from)),
            file("timeindex", 1, index.times().encode_from(times_from)),
        ]
    }
}

/// Of a loaded index, in memory.
pub(crate) fn index_bytes(index: &SegmentIndex) -> usize {
    index.offsets().len() * 16 + index.times().len() * 16
}

/// The writes of what a segment's file does not have yet, the last block padded with zeroes.
pub(crate) fn rest_writes(
    segment: &OpenSegment,
    file: FileId,
    pool: &mut Pool,
    block: u32,
    gather: u32,
) -> Option<Vec<DiskKind>> {
    let whole = segment.end / block * block;
    let mut writes = Vec::new();
    if whole > segment.written_to {
        gather_writes(&mut writes, file, segment.written_to, segment.parts(segment.written_to, whole), gather);
    }
    if segment.end > whole {
        let mut last = pool.take(Account::Background, block as usize).ok()?;
        last.extend(&segment.bytes(whole, segment.end));
        last.extend_zeroes((block - (segment.end - whole)) as usize);
        writes.push((file, u64::from(whole), vec![last.freeze()]));
    }
    Some(writes.into_iter().map(|(file, position, data)| DiskKind::Write { file, position, data }).collect())
}

/// A topic called `journal` must not get a directory that journals of some generation have or will have.
fn reserved(name: &str) -> bool {
    name.strip_prefix("journal-").is_some_and(|number| number.parse::<u64>().is_ok())
}

/// The directory's name when the wished one is taken: the topic's id makes it this topic's alone.
fn other_name(log: &Log) -> String {
    format!("{}.{:032x}", short_name(&log.name), log.partition.topic.0)
}

/// After `taken`. Even the topic's own may be: by a life that ended before the journal knew of the directory. What lies there was never
/// declared, and is left alone.
fn next_name(log: &Log, taken: &str) -> Option<String> {
    let other = other_name(log);
    if taken == log.name {
        return Some(other);
    }
    let number = taken.strip_prefix(&other)?.strip_prefix('.').map_or(Some(0), |number| number.parse::<u32>().ok())?;
    (number < NAMES_MAX).then(|| format!("{other}.{}", number + 1))
}

/// The topic's name is cut when the whole gets too long; the partition's number is not.
fn short_name(name: &str) -> String {
    if name.len() <= NAME_BYTES_MAX {
        return name.to_owned();
    }
    let number = name.rsplit_once('-').map_or("", |(_, number)| number);
    let mut cut = NAME_BYTES_MAX - number.len() - 1;
    while !name.is_char_boundary(cut) {
        cut -= 1;
    }
    format!("{}-{number}", &name[..cut])
}
