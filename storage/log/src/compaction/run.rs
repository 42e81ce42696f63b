//! One log's compaction, from the first dirty offset to the checkpoint. A step goes on until it needs the disk or its budget is spent.

use std::collections::VecDeque;

use ringmain_batch::{BatchHeader, Filtered, HEADER_BYTES, crc_ok, delete_horizon, emptied, filter, records};
use ringmain_buffer::Pool;
use ringmain_disk::{DiskClass, DiskError, DiskKind, DiskOk, FileId};
use ringmain_types::*;

use super::key_map::KeyMap;
use super::{CompactionConfig, Part, Work};
use crate::STORED_RECORDS_BYTES_MAX;
use crate::doubt::in_order;
use crate::index::{IndexedBatch, SegmentIndex};
use crate::jobs::{Got, Job, Step, Then};
use crate::log::Log;
use crate::segment::file_name;
use crate::store::Store;

/// Segments that one may take the place of: it bounds the names changed by one swap.
const GROUP_SEGMENTS_MAX: usize = 64;

/// How a step ended.
pub(super) enum Went {
    More,
    /// A job, or a reader, must come back first.
    Waits,
    /// No memory now.
    Memory,
    Done,
    /// The log went, or changed, or can't be read.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Map,
    Copy,
    Drain,
    Checkpoint,
    Done,
    Over,
}

#[derive(Debug)]
pub(crate) struct Run {
    pub(super) log: LogId,
    pub(super) dir: String,
    pub(super) begun: Instant,
    config: CompactionConfig,
    /// What tombstones' times are compared with, and count from.
    wall: WallMs,
    pub(super) phase: Phase,
    map: KeyMap,
    from: Offset,
    /// The map knows everything dirty below.
    pub(super) mapped_to: Offset,
    /// All that may be rewritten, oldest first.
    parts: Vec<Part>,
    /// Those whose keys are still to be read.
    to_map: VecDeque<Part>,
    /// Those that become one segment each; the first is at work.
    pub(super) groups: VecDeque<Vec<Part>>,
    /// The part of the first group that is being copied.
    copying: usize,
    input: Option<Input>,
    pub(super) output: Option<Output>,
    /// A job is out.
    pub(super) waiting: bool,
    scratch: Vec<u8>,
}

/// A segment being read through.
#[derive(Debug)]
struct Input {
    part: Part,
    file: FileId,
    opened: bool,
    /// Bytes of the file that were asked for.
    read_to: u32,
    /// The segment's bytes from `position` on, as far as they were read.
    buffer: Vec<u8>,
    taken: usize,
    position: u32,
    next: Offset,
}

/// The file that takes a group's place, and its indexes.
#[derive(Debug)]
pub(super) struct Output {
    pub file: FileId,
    /// Of the segment, `.index` and `.timeindex`: temporary names.
    pub paths: [String; 3],
    opened: bool,
    /// Of the indexes, once they are made.
    indexes: [FileId; 2],
    written_to: u32,
    buffer: Vec<u8>,
    pub index: SegmentIndex,
    pub first_timestamp: Option<WallMs>,
    /// Something is not as it was.
    changed: bool,
}

impl Output {
    pub fn bytes(&self) -> u32 {
        self.written_to + self.buffer.len() as u32
    }
}

impl Input {
    fn new(part: Part, file: FileId) -> Input {
        let next = part.base;
        Input { part, file, opened: false, read_to: 0, buffer: Vec::new(), taken: 0, position: 0, next }
    }

    /// Length of the next batch when it is there whole; an error when what is there is none, or longer than `most`.
    fn whole(&self, most: u64) -> Result<Option<usize>, ()> {
        let bytes = &self.buffer[self.taken..];
        if bytes.len() < HEADER_BYTES {
            return Ok(None);
        }
        let header = BatchHeader::parse(bytes).map_err(|_| ())?;
        let length = header.info.bytes;
        let fits = self.position.checked_add(length).is_some_and(|end| end <= self.part.bytes);
        if !fits
            || u64::from(length) > most
            || !in_order(Some(self.next), true, &header)
            || header.next() > self.part.next
        {
            return Err(());
        }
        Ok(Some(length as usize).filter(|length| *length <= bytes.len()))
    }

    fn take(&mut self, length: usize, next: Offset) {
        self.taken += length;
        self.position += length as u32;
        self.next = next;
    }

    fn ended(&self) -> bool {
        self.position >= self.part.bytes
    }
}

/// What is to be done about a batch before another one can be.
enum Fed {
    Batch(usize),
    /// The segment is through.
    End,
    Stop(Went),
}

impl Run {
    pub(super) fn new(
        log: LogId,
        dir: String,
        now: Now,
        config: CompactionConfig,
        (map_bytes, seed): (u64, u64),
        from: Offset,
        parts: Vec<Part>,
    ) -> Run {
        let to_map: VecDeque<Part> = parts.iter().filter(|part| part.next > from).copied().collect();
        // No more keys than offsets. Its slots are met in no order, so that a large map is all paid for, however few are used.
        let records: i64 = to_map.iter().map(|part| part.next.0 - part.base.0.max(from.0)).sum();
        let map_bytes = map_bytes.min(KeyMap::bytes_for(records as u64));
        Run {
            log,
            dir,
            begun: now.mono,
            config,
            wall: now.wall,
            phase: Phase::Map,
            map: KeyMap::new(map_bytes, seed),
            from,
            mapped_to: from,
            parts,
            to_map,
            groups: VecDeque::new(),
            copying: 0,
            input: None,
            output: None,
            waiting: false,
            scratch: Vec::new(),
        }
    }

    /// Segments that are rewritten, in runs that fit one segment together.
    fn plan(&mut self, segment_bytes: u32) {
        let mapped_to = self.mapped_to;
        for part in self.parts.iter().filter(|part| part.base < mapped_to) {
            let joins = self.groups.back().is_some_and(|group| {
                let bytes: u64 = group.iter().map(|part| u64::from(part.bytes)).sum();
                let offsets = part.next.0 - group[0].base.0;
                bytes + u64::from(part.bytes) <= u64::from(segment_bytes)
                    && offsets <= i64::from(i32::MAX)
                    && group.len() < GROUP_SEGMENTS_MAX
            });
            match self.groups.back_mut() {
                Some(group) if joins => group.push(*part),
                _ => self.groups.push_back(vec![*part]),
            }
        }
    }

    pub(super) fn copying_done(&mut self) {
        self.copying = 0;
    }

    /// A batch's keys; false when there is no room for all of them.
    fn map_batch(&mut self, batch: &[u8], header: &BatchHeader) -> Result<bool, ()> {
        if header.next() <= self.from || header.info.control {
            self.mapped_to = self.mapped_to.max(header.next());
            return Ok(true);
        }
        for record in records(batch, &mut self.scratch, STORED_RECORDS_BYTES_MAX).map_err(|_| ())? {
            let record = record.map_err(|_| ())?;
            let offset = Offset(header.base.0.saturating_add(i64::from(record.offset_delta)));
            if offset < self.from {
                continue;
            }
            if let Some(key) = record.key
                && !self.map.put(key, offset)
            {
                self.mapped_to = self.mapped_to.max(offset);
                return Ok(false);
            }
        }
        self.mapped_to = self.mapped_to.max(header.next());
        Ok(true)
    }

    /// What stays of a batch, and how many records go. `keeps`: something of it must, if only its header.
    fn filter_batch(
        &mut self,
        batch: &[u8],
        header: &BatchHeader,
        keeps: bool,
    ) -> Result<(Option<Vec<u8>>, u64, bool), ()> {
        // Whether a marker may go is a transaction's business.
        if header.info.control {
            return Ok((Some(batch.to_vec()), 0, false));
        }
        let (map, mapped_to, wall) = (&self.map, self.mapped_to, self.wall);
        let expired = delete_horizon(batch).is_some_and(|horizon| horizon <= wall);
        let mut removed = 0;
        let mut keep = |record: &ringmain_batch::Record<'_>| {
            let offset = Offset(header.base.0.saturating_add(i64::from(record.offset_delta)));
            let stays = offset >= mapped_to
                || record.key.is_some_and(|key| {
                    let newest = map.get(key).is_none_or(|newest| newest <= offset);
                    newest && (record.value.is_some() || !expired)
                });
            removed += u64::from(!stays);
            stays
        };
        // A marker counts down from the compaction that applied it.
        let horizon = WallMs(wall.0.saturating_add(self.config.delete_retention_ms));
        let horizon = (header.next() <= mapped_to).then_some(horizon);
        let scratch = (&mut self.scratch, STORED_RECORDS_BYTES_MAX);
        match filter(batch, horizon, scratch, &mut keep).map_err(|_| ())? {
            Filtered::Whole => Ok((Some(batch.to_vec()), removed, false)),
            Filtered::Part { bytes, .. } => Ok((Some(bytes), removed, true)),
            Filtered::Nothing if keeps => {
                let bytes = emptied(batch).map_err(|_| ())?;
                let changed = bytes != batch;
                Ok((Some(bytes), removed, changed))
            }
            Filtered::Nothing => Ok((None, removed, true)),
        }
    }
}

impl Store {
    pub(super) fn run_step(&mut self, pool: &mut Pool, bytes: u32, run: &mut Run) -> Went {
        if run.waiting {
            return Went::Waits;
        }
        let wanted = self.log(run.log).is_some_and(|log| log.ready() && log.config.compaction.is_some());
        if !wanted {
            return Went::Over;
        }
        // What is hashed and packed at once is what is written at once: less than a millisecond's work.
        let bytes = bytes.min(self.config.limits.gather_bytes_max);
        match run.phase {
            Phase::Map => self.map_step(pool, bytes, run),
            Phase::Copy => self.copy_step(pool, bytes, run),
            Phase::Drain => self.drain_step(run),
            Phase::Checkpoint => self.clean_point_step(pool, run),
            Phase::Done => Went::Done,
            Phase::Over => Went::Over,
        }
    }

    fn map_step(&mut self, pool: &mut Pool, bytes: u32, run: &mut Run) -> Went {
        if !run.map.made_ready() {
            return Went::More;
        }
        let mut budget = i64::from(bytes);
        loop {
            let Some(part) = run.to_map.front().copied() else { return self.mapped(run, true) };
            match self.feed(pool, bytes, run, part) {
                Fed::Stop(went) => return went,
                Fed::End => {
                    self.close_input(run);
                    run.to_map.pop_front();
                }
                Fed::Batch(length) => {
                    let Some(mut input) = run.input.take() else { return Went::Over };
                    let batch = &input.buffer[input.taken..input.taken + length];
                    let Some(header) = self.sound(run.log, &input, batch) else {
                        return self.does_not_check(run, input);
                    };
                    run.scratch.clear();
                    let Ok(fits) = run.map_batch(batch, &header) else {
                        return self.does_not_check(run, input);
                    };
                    budget -= length as i64 + run.scratch.len() as i64;
                    input.take(length, header.next());
                    run.input = Some(input);
                    if !fits {
                        self.close_input(run);
                        return self.mapped(run, false);
                    }
                }
            }
            if budget <= 0 {
                return Went::More;
            }
        }
    }

    /// The map is full, or has all.
    fn mapped(&mut self, run: &mut Run, all: bool) -> Went {
        if let Some(last) = run.parts.last().filter(|_| all) {
            run.mapped_to = last.next;
        }
        let Some(log) = self.log(run.log) else { return Went::Over };
        run.plan(log.config.segment_bytes.min(self.config.limits.segment_bytes_max));
        run.to_map.clear();
        run.phase = Phase::Copy;
        Went::More
    }

    fn copy_step(&mut self, pool: &mut Pool, bytes: u32, run: &mut Run) -> Went {
        let gather = self.config.limits.gather_bytes_max;
        let mut budget = i64::from(bytes);
        loop {
            let Some(group) = run.groups.front() else {
                run.phase = Phase::Checkpoint;
                return Went::More;
            };
            let Some(part) = group.get(run.copying).copied() else { return self.finish_group(pool, run) };
            let last_part = run.copying + 1 == group.len();
            match run.output.as_ref().map(|output| output.opened) {
                None => return self.open_output(run),
                Some(false) => return Went::Over,
                Some(true) => {}
            }
            if run.output.as_ref().is_some_and(|output| output.buffer.len() >= gather as usize) {
                return self.write_output(pool, run);
            }
            match self.feed(pool, bytes, run, part) {
                Fed::Stop(went) => return went,
                Fed::End => {
                    self.close_input(run);
                    run.copying += 1;
                }
                Fed::Batch(length) => match self.copy_batch(run, length, last_part) {
                    Ok(spent) => budget -= spent,
                    Err(went) => return went,
                },
            }
            if budget <= 0 {
                return Went::More;
            }
        }
    }

    fn copy_batch(&mut self, run: &mut Run, length: usize, last_part: bool) -> Result<i64, Went> {
        let Some(mut input) = run.input.take() else { return Err(Went::Over) };
        let batch = &input.buffer[input.taken..input.taken + length];
        let Some(header) = self.sound(run.log, &input, batch) else { return Err(self.does_not_check(run, input)) };
        let Some(log) = self.log(run.log) else { return Err(Went::Over) };
        let interval = log.config.index_interval_bytes;
        // A segment ends with its last offset, or readers would wait for ever in front of a gap; and it is never empty.
        let ends = last_part && input.position + length as u32 >= input.part.bytes;
        let remembered =
            header.info.producer.is_some_and(|producer| log.producers.needs(producer.id, header.last(), log.flushed));
        run.scratch.clear();
        let Ok((left, removed, changed)) = run.filter_batch(batch, &header, ends || remembered) else {
            return Err(self.does_not_check(run, input));
        };
        input.take(length, header.next());
        run.input = Some(input);
        self.compaction.stats.records_removed += removed;
        let spent = length as i64 + run.scratch.len() as i64;
        let Some(output) = &mut run.output else { return Err(Went::Over) };
        output.changed |= changed;
        let Some(left) = left else { return Ok(spent) };
        let Ok(header) = BatchHeader::parse(&left) else { return Err(Went::Over) };
        if u64::from(output.bytes()) + left.len() as u64 > i32::MAX as u64 {
            // Its codec made more of less: no position would name what is behind.
            return Err(Went::Over);
        }
        let position = Position(output.bytes());
        output.first_timestamp.get_or_insert(header.info.max_timestamp);
        output.index.push(
            IndexedBatch {
                last: header.last(),
                position,
                bytes: header.info.bytes,
                max_timestamp: header.info.max_timestamp,
            },
            interval,
        );
        output.buffer.extend_from_slice(&left);
        Ok(spent + left.len() as i64)
    }

    /// The next batch of `part`; opens and reads it as far as that takes.
    fn feed(&mut self, pool: &mut Pool, budget: u32, run: &mut Run, part: Part) -> Fed {
        let here = self.log(run.log).and_then(|log| log.sealed.get(&part.base));
        if here.is_none_or(|segment| segment.next != part.next || segment.bytes != part.bytes) {
            return Fed::Stop(Went::Over);
        }
        let Some(input) = &mut run.input else { return Fed::Stop(self.open_input(run, part)) };
        if input.ended() {
            // One that was cut off at a batch's end, else.
            return if input.next == part.next { Fed::End } else { Fed::Stop(self.give_up(run)) };
        }
        // A damaged length must not fill the memory; and a batch that no reader could have is left as it is.
        match input.whole(pool.limit(Account::Cache)) {
            Ok(Some(length)) => return Fed::Batch(length),
            Ok(None) => {}
            Err(()) => return Fed::Stop(self.give_up(run)),
        }
        let block = self.block;
        let left = part.bytes.next_multiple_of(block) - input.read_to;
        if left == 0 {
            // A batch that is cut off.
            return Fed::Stop(self.give_up(run));
        }
        let room = (pool.left(Account::Background) / 4).min(u32::MAX as usize) as u32;
        let bytes = left.min((budget.min(room) / block * block).max(block));
        let Ok(into) = pool.take(Account::Background, bytes as usize) else { return Fed::Stop(Went::Memory) };
        let kind = DiskKind::Read { file: input.file, position: u64::from(input.read_to), bytes, into };
        input.buffer.drain(..input.taken);
        input.taken = 0;
        input.read_to += bytes;
        self.compaction.stats.read_bytes += u64::from(bytes);
        run.waiting = true;
        self.compaction_job(run.log, vec![Step::of(vec![kind])], Work::Read);
        Fed::Stop(Went::Waits)
    }

    fn open_input(&mut self, run: &mut Run, part: Part) -> Went {
        let (dir, file) = (self.config.dir, self.file());
        let path = format!("{}/{}", run.dir, file_name(part.base, "log"));
        run.input = Some(Input::new(part, file));
        run.waiting = true;
        let open = DiskKind::Open { dir, file, path, create: false };
        self.compaction_job(run.log, vec![Step::of(vec![open])], Work::InputOpened);
        Went::Waits
    }

    fn close_input(&mut self, run: &mut Run) {
        if let Some(input) = run.input.take().filter(|input| input.opened) {
            self.close_quietly(input.file);
        }
    }

    fn open_output(&mut self, run: &mut Run) -> Went {
        let (dir, file) = (self.config.dir, self.file());
        let Some(base) = run.groups.front().and_then(|group| group.first()).map(|part| part.base) else {
            return Went::Over;
        };
        let Some(index_bytes) = self.log(run.log).map(|log| log.config.segment_index_bytes) else { return Went::Over };
        let paths = ["", "-index", "-timeindex"].map(|kind| {
            self.compaction.number += 1;
            // Named like a spare: whatever a crash leaves of it goes with them.
            format!("{}/{}clean-{}{kind}", self.journal_dir(), self.spare_prefix(), self.compaction.number)
        });
        let open = DiskKind::Open { dir, file, path: paths[0].clone(), create: true };
        let cut = DiskKind::Truncate { file, bytes: 0 };
        run.output = Some(Output {
            file,
            paths,
            opened: false,
            indexes: [file; 2],
            written_to: 0,
            buffer: Vec::new(),
            index: SegmentIndex::new(base, index_bytes),
            first_timestamp: None,
            changed: false,
        });
        run.waiting = true;
        self.compaction_job(run.log, vec![Step::of(vec![open]), Step::of(vec![cut])], Work::OutputOpened);
        Went::Waits
    }

    /// Whole blocks of what is gathered.
    fn write_output(&mut self, pool: &mut Pool, run: &mut Run) -> Went {
        let Some(output) = &mut run.output else { return Went::Over };
        let block = self.block as usize;
        let whole = (output.buffer.len() / block * block).min(self.config.limits.gather_bytes_max as usize);
        let Ok(mut data) = pool.take(Account::Background, whole) else { return Went::Memory };
        data.extend(&output.buffer[..whole]);
        let write =
            DiskKind::Write { file: output.file, position: u64::from(output.written_to), data: vec![data.freeze()] };
        output.buffer.drain(..whole);
        output.written_to += whole as u32;
        self.compaction.stats.written_bytes += whole as u64;
        run.waiting = true;
        self.compaction_job(run.log, vec![Step::of(vec![write])], Work::Written);
        Went::Waits
    }

    /// The group's last bytes, its exact length, its indexes, all of it flushed; or, when nothing changed, nothing.
    fn finish_group(&mut self, pool: &mut Pool, run: &mut Run) -> Went {
        let (dir, block) = (self.config.dir, self.block as usize);
        let alone = run.groups.front().is_some_and(|group| group.len() == 1);
        let Some(output) = &mut run.output else { return Went::Over };
        if output.buffer.len() >= self.config.limits.gather_bytes_max as usize {
            return self.write_output(pool, run);
        }
        if alone && !output.changed {
            self.drop_output(run);
            run.groups.pop_front();
            run.copying = 0;
            return Went::More;
        }
        output.index.seal();
        let contents = [output.index.offsets().encode(), output.index.times().encode()];
        let mut writes = Vec::new();
        let (position, bytes) = (u64::from(output.written_to), u64::from(output.bytes()));
        let Ok(tail) = padded(pool, &output.buffer, block) else { return Went::Memory };
        writes.extend(tail.map(|data| DiskKind::Write { file: output.file, position, data: vec![data] }));
        let (mut opens, mut cuts, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
        let (log_file, paths) = (output.file, output.paths.clone());
        let mut files = vec![log_file];
        lengths.push(DiskKind::Truncate { file: log_file, bytes });
        let indexes = [self.file(), self.file()];
        for ((content, path), file) in contents.iter().zip(&paths[1..]).zip(indexes) {
            opens.push(DiskKind::Open { dir, file, path: path.clone(), create: true });
            cuts.push(DiskKind::Truncate { file, bytes: 0 });
            let Ok(data) = padded(pool, content, block) else { return Went::Memory };
            writes.extend(data.map(|data| DiskKind::Write { file, position: 0, data: vec![data] }));
            lengths.push(DiskKind::Truncate { file, bytes: content.len() as u64 });
            files.push(file);
        }
        output.indexes = indexes;
        self.compaction.stats.written_bytes += bytes - position;
        let closes = files.iter().map(|file| DiskKind::Close { file: *file }).collect();
        let flush = DiskKind::Flush { dir, files, after: Vec::new() };
        // A rename is no more durable than the name that it begins with.
        let names = DiskKind::SyncDir { dir, path: self.journal_dir() };
        let mut steps: Vec<Step> =
            [opens, cuts, writes, lengths, vec![flush, names]].into_iter().map(Step::of).collect();
        steps.push(Step::lenient(closes));
        run.waiting = true;
        self.compaction_job(run.log, steps, Work::Finished);
        Went::Waits
    }

    pub(super) fn run_done(&mut self, work: Work, error: Option<DiskError>, mut got: Got) {
        let Some(mut run) = self.compaction.run.take() else { return };
        run.waiting = false;
        if let Some(error) = error {
            run.phase = Phase::Over;
            if let (Work::Finished, Some(output)) = (work, &run.output) {
                // The first two operations opened them.
                let opened = |at: &u32| matches!(got.get(at), Some(Ok(DiskOk::Opened { .. })));
                let indexes = output.indexes.into_iter().zip(0..).filter(|(_, at)| opened(at));
                let files: Vec<FileId> = indexes.map(|(file, _)| file).collect();
                files.into_iter().for_each(|file| self.close_quietly(file));
            }
            // What can't be read is left as it is; no space is waited for.
            let harmless = matches!(work, Work::Read | Work::InputOpened) || error.errno == DiskError::ENOSPC;
            if !harmless || work == Work::Swapped {
                self.fence(error);
            }
            self.compaction.run = Some(run);
            return;
        }
        match work {
            Work::OutputOpened => run.output.iter_mut().for_each(|output| output.opened = true),
            Work::InputOpened => run.input.iter_mut().for_each(|input| input.opened = true),
            Work::Read => {
                if let (Some(input), Some(DiskOk::Read(read))) = (&mut run.input, Store::ok(&mut got, 0)) {
                    input.buffer.extend_from_slice(&read);
                    // Only whole reads are followed by more: one that ended early is found to be cut off.
                    let whole = (input.part.bytes - input.position) as usize;
                    input.buffer.truncate(input.taken + whole);
                }
            }
            Work::Finished => {
                run.output.iter_mut().for_each(|output| output.opened = false);
                run.phase = Phase::Drain;
            }
            Work::Swapped => self.swapped(&mut run),
            Work::Checkpointed => run.phase = Phase::Done,
            Work::Written | Work::LookOpened(_) | Work::LookRead => {}
        }
        self.compaction.run = Some(run);
    }

    /// The header of a whole batch whose CRC is right, and which is where it may be, as a reader would have it. Its base offset and epoch
    /// are under no checksum: damaged, it would put others' offsets in the map, and be copied to where nobody knows of the damage.
    fn sound(&self, log: LogId, input: &Input, batch: &[u8]) -> Option<BatchHeader> {
        let header = BatchHeader::parse(batch).ok().filter(|_| crc_ok(batch))?;
        let chain = self.log(log).and_then(|log| log.chain(input.part.base));
        chain.is_none_or(|chain| chain.joins(Some(input.next), &header)).then_some(header)
    }

    /// A batch does not check: whoever reads it will be told; the log is not compacted any more.
    fn does_not_check(&mut self, run: &mut Run, input: Input) -> Went {
        run.input = Some(input);
        self.give_up(run)
    }

    fn give_up(&mut self, run: &Run) -> Went {
        if let Some(log) = self.log_mut(run.log) {
            log.compaction.given_up = true;
        }
        Went::Over
    }

    fn drop_output(&mut self, run: &mut Run) {
        let dir = self.config.dir;
        let Some(output) = run.output.take() else { return };
        let close = output.opened.then_some(DiskKind::Close { file: output.file }).into_iter().collect();
        let removes = output.paths.into_iter().map(|path| DiskKind::Remove { dir, path }).collect();
        let steps = vec![Step::lenient(close), Step::lenient(removes)];
        self.jobs.add(Job::new(DiskClass::Background, steps, Then::Nothing));
    }

    pub(super) fn abort_run(&mut self, mut run: Run) {
        self.compaction.stats.aborted += 1;
        self.end_swap(run.log);
        self.close_input(&mut run);
        self.drop_output(&mut run);
    }
}

/// Bytes in whole blocks; none for nothing.
fn padded(
    pool: &mut Pool,
    bytes: &[u8],
    block: usize,
) -> Result<Option<ringmain_buffer::Buf>, ringmain_buffer::Refused> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let whole = bytes.len().next_multiple_of(block);
    let mut data = pool.take(Account::Background, whole)?;
    data.extend(bytes);
    data.extend_zeroes(whole - bytes.len());
    Ok(Some(data.freeze()))
}

/// What a swap needs to know of the log.
pub(super) fn whole_group(log: &Log, group: &[Part]) -> bool {
    group.iter().all(|part| {
        let segment = log.sealed.get(&part.base);
        segment.is_some_and(|segment| segment.next == part.next && segment.bytes == part.bytes && segment.declared)
    })
}
