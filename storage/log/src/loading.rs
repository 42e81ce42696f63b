//! Indexes of sealed segments in memory: loaded from their files, proved before they are gone by, kept within a bound, and made anew
//! where they are no good.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringmain_batch::BatchHeader;
use ringmain_buffer::Pool;
use ringmain_disk::{DiskClass, DiskError, DiskKind, DiskOk, FileId};
use ringmain_types::*;

use crate::TimeQuery;
use crate::doubt::Proving;
use crate::find::Find;
use crate::index::{IndexedBatch, OFFSET_ENTRY_BYTES, OffsetIndex, SegmentIndex, TIME_ENTRY_BYTES, TimeIndex};
use crate::jobs::{Job, Step, Then};
use crate::log::Log;
use crate::read::Ask;
use crate::segment::file_name;
use crate::store::Store;
use crate::{ReadError, ReadToken};

/// Which are loaded, and which are on their way.
#[derive(Debug, Default)]
pub(crate) struct Indexes {
    /// Oldest first, with their bytes.
    loaded: VecDeque<(LogId, Offset, usize)>,
    /// Of all of them.
    bytes: usize,
    loading: BTreeSet<(LogId, Offset)>,
}

impl Indexes {
    pub fn loaded(&mut self, id: LogId, base: Offset, bytes: usize) {
        self.dropped(id, base);
        self.bytes += bytes;
        self.loaded.push_back((id, base, bytes));
    }

    /// It is not loaded now.
    pub fn refused(&mut self, id: LogId, base: Offset) {
        self.loading.remove(&(id, base));
    }

    pub fn dropped(&mut self, id: LogId, base: Offset) {
        if let Some(at) = self.loaded.iter().position(|(log, of, _)| (*log, *of) == (id, base))
            && let Some((_, _, bytes)) = self.loaded.remove(at)
        {
            self.bytes -= bytes;
        }
    }

    pub fn loading(&self, id: LogId, base: Offset) -> bool {
        self.loading.contains(&(id, base))
    }
}

impl Store {
    /// Loads a sealed segment's indexes; whoever waits for them goes on then.
    pub(crate) fn load_index(&mut self, id: LogId, base: Offset, token: Option<ReadToken>) {
        if self.swapping(id, base) {
            return self.reads.wait(token);
        }
        if let Some(error) = self.swap_failed(id, base) {
            return token.into_iter().for_each(|token| self.read_failed(token, ReadError::Disk(error.clone())));
        }
        if !self.reads.indexes.loading.insert((id, base)) {
            // Somebody does already: asked again when the queue comes round.
            return self.reads.wait(token);
        }
        let dir_id = self.config.dir;
        let Some(dir) = self.log(id).and_then(|log| log.dir_name().map(str::to_owned)) else {
            self.reads.indexes.loading.remove(&(id, base));
            return;
        };
        let files = [self.file(), self.file()];
        let opens = ["index", "timeindex"].iter().zip(files).map(|(extension, file)| DiskKind::Open {
            dir: dir_id,
            file,
            path: format!("{dir}/{}", file_name(base, extension)),
            create: false,
        });
        let steps = vec![Step::lenient(opens.collect())];
        self.add_jobs(id, 1);
        self.jobs.add(Job::new(DiskClass::Read, steps, Then::IndexOpened(id, base, files, token)));
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn index_opened(
        &mut self,
        now: Now,
        pool: &mut Pool,
        id: LogId,
        base: Offset,
        files: [FileId; 2],
        token: Option<ReadToken>,
        mut got: BTreeMap<u32, Result<DiskOk, DiskError>>,
    ) {
        let sizes = [0, 1].map(|at| match Store::ok(&mut got, at) {
            Some(DiskOk::Opened { bytes }) => Some(bytes),
            _ => None,
        });
        let mut reads = Vec::new();
        let mut refused = None;
        let block = u64::from(self.block);
        let whole = |bytes: u64| bytes.next_multiple_of(block) as usize;
        let fits = |bytes| pool.fits(Account::Background, whole(bytes)) || pool.fits(Account::Cache, whole(bytes));
        // One that no memory holds is not waited for.
        let bytes = sizes.map(|bytes| bytes.filter(|bytes| *bytes < 1 << 30 && fits(*bytes)).unwrap_or(u64::MAX));
        for (file, bytes) in files.iter().zip(bytes).filter(|(_, bytes)| *bytes > 0 && *bytes < u64::MAX) {
            let whole = whole(bytes);
            let into = pool.take(Account::Background, whole).or_else(|_| pool.take(Account::Cache, whole));
            let into = match into {
                Ok(into) => into,
                Err(short) => {
                    refused = Some(short);
                    break;
                }
            };
            reads.push(DiskKind::Read { file: *file, position: 0, bytes: whole as u32, into });
        }
        // One that is missing was not opened.
        let opened = files.iter().zip(sizes).filter(|(_, bytes)| bytes.is_some());
        let closes = opened.map(|(file, _)| DiskKind::Close { file: *file }).collect();
        if let Some(refused) = refused {
            // Not a reason to make the index anew.
            self.reads.indexes.loading.remove(&(id, base));
            self.add_jobs(id, -1);
            self.jobs.add(Job::new(DiskClass::Read, vec![Step::lenient(closes)], Then::Nothing));
            if let Some(token) = token {
                self.answer_refused(token, refused);
            }
            return;
        }
        // Numbered behind the two opens; an empty index is not read.
        let steps = vec![Step::lenient(reads), Step::lenient(closes)];
        self.jobs.add(Job::new(DiskClass::Read, steps, Then::IndexRead(id, base, bytes, token)));
        self.start_jobs(now, pool);
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn index_read(
        &mut self,
        now: Now,
        pool: &mut Pool,
        id: LogId,
        base: Offset,
        bytes: [u64; 2],
        token: Option<ReadToken>,
        mut got: BTreeMap<u32, Result<DiskOk, DiskError>>,
    ) {
        let mut content = [Vec::new(), Vec::new()];
        let mut number = 0;
        let mut good = bytes.iter().all(|bytes| *bytes != u64::MAX);
        for (content, bytes) in content.iter_mut().zip(bytes) {
            if bytes == 0 || bytes == u64::MAX {
                continue;
            }
            match Store::ok(&mut got, number) {
                Some(DiskOk::Read(read)) if read.len() as u64 >= bytes => content.extend(&read[..bytes as usize]),
                _ => good = false,
            }
            number += 1;
        }
        let Some(segment) = self.log_mut(id).and_then(|log| log.sealed.get_mut(&base)) else {
            return self.index_known(now, pool, (id, base), token);
        };
        let offsets = OffsetIndex::decode(base, segment.bytes, &content[0]);
        let times = TimeIndex::decode(base, segment.next, &content[1]);
        let memory = content.iter().map(Vec::len).sum::<usize>() * 2;
        match (offsets, times) {
            (Ok(offsets), Ok(times)) if good => {
                let index = SegmentIndex::resume(offsets, times, u32::MAX);
                return self.prove_index(now, pool, (id, base), Proving::new(index, memory, token));
            }
            (offsets, times) => {
                if let Some(log) = self.log_mut(id) {
                    log.index_anew(base);
                }
                self.reads.indexes.loaded(id, base, memory);
                if good && let Err(error) = offsets {
                    self.tell_rot(id, base, "index", error.position(OFFSET_ENTRY_BYTES));
                }
                if good && let Err(error) = times {
                    self.tell_rot(id, base, "timeindex", error.position(TIME_ENTRY_BYTES));
                }
            }
        }
        self.index_known(now, pool, (id, base), token);
    }

    /// An index was loaded, or is made anew: who waited for it goes on.
    pub(crate) fn index_known(
        &mut self,
        now: Now,
        pool: &mut Pool,
        (id, base): (LogId, Offset),
        token: Option<ReadToken>,
    ) {
        self.reads.indexes.loading.remove(&(id, base));
        self.add_jobs(id, -1);
        self.bound_indexes(id, base);
        match token {
            Some(token) => self.read_again(now, pool, token),
            None => self.maintenance_soon(),
        }
    }

    /// Drops the oldest loaded indexes past a quarter of the cache's limit; the one just loaded stays.
    pub(crate) fn bound_indexes(&mut self, id: LogId, base: Offset) {
        let most = (self.config.limits.memory_bytes[Account::Cache as usize] / 4) as usize;
        for _ in 0..self.reads.indexes.loaded.len() {
            if self.reads.indexes.bytes <= most {
                break;
            }
            let Some((log, of, bytes)) = self.reads.indexes.loaded.pop_front() else { break };
            if (log, of) == (id, base) {
                self.reads.indexes.loaded.push_back((log, of, bytes));
                continue;
            }
            self.reads.indexes.bytes -= bytes;
            if let Some(segment) = self.log_mut(log).and_then(|log| log.sealed.get_mut(&of)) {
                segment.index = None;
                if segment.built_to.take().is_some() {
                    // It counted as young for now.
                    segment.max_timestamp = None;
                }
            }
        }
    }
}

/// Goes on with an index that is made anew, when these batches are the next it lacks.
pub(crate) fn build_index(log: &mut Log, base: Offset, batches: &[(BatchHeader, u32)], interval: u32) {
    let Some(segment) = log.sealed.get_mut(&base) else { return };
    let (Some((built, next)), Some(index)) = (&mut segment.built_to, &mut segment.index) else { return };
    for (header, position) in batches {
        if *position != *built || header.base < *next {
            continue;
        }
        let batch = IndexedBatch {
            last: header.last(),
            position: Position(*position),
            bytes: header.info.bytes,
            max_timestamp: header.info.max_timestamp,
        };
        index.push(batch, interval);
        *built += header.info.bytes;
        *next = header.next();
    }
    if *built >= segment.bytes {
        index.seal();
        let whole = *next == segment.next;
        // Of one that was cut off nobody knows what was in it: who searches it by time comes to where it is.
        let left = index.max_timestamp().map_or(WallMs(-1), |(at, _)| at);
        (segment.max_timestamp, segment.built_to) = (Some(if whole { left } else { WallMs(i64::MAX) }), None);
        segment.left_timestamp = (!whole).then_some(left);
    }
}

impl Store {
    /// Reads a segment through whose index is being made anew, for nobody else may: retention waits for its largest timestamp.
    pub(crate) fn look_through(&mut self, id: LogId, base: Offset) {
        if self.reads.own.is_none() {
            let asked = self.ask(id, Ask::Find(Find::new(TimeQuery::Max, Some(base))));
            self.reads.own = asked.err().flatten().map(|token| (token, base));
        }
    }

    pub(crate) fn looked_through(&mut self, id: LogId, base: Offset) {
        let segment = self.log(id).and_then(|log| log.sealed.get(&base));
        // Else the disk failed or memory was short: at the next pass.
        if segment.is_some_and(|segment| segment.newest().is_some()) {
            self.maintenance_soon();
        }
    }
}

impl Log {
    /// No batch begins here. When that is where an index that is made anew has come to, it gets no further.
    pub(crate) fn index_ends(&mut self, base: Offset, position: Position) {
        let Some(segment) = self.sealed.get_mut(&base) else { return };
        if segment.built_to.is_some_and(|(to, _)| to == position.0) {
            let left = segment.index.as_ref().and_then(|index| index.max_timestamp());
            segment.left_timestamp = Some(left.map_or(WallMs(-1), |(at, _)| at));
        }
    }
}
