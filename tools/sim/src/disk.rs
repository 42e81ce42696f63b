//! A simulated file system and device: every `DiskKind`, with latencies from the seed, and every rule of the seam asserted.
//!
//! One for the whole broker: it outlives processes. Operations of all shards share it, as they share a device.

mod accepted;
mod media;
mod misdirected;
mod names;

use std::collections::{BTreeMap, BTreeSet};

use ringmain_buffer::BufMut;
use ringmain_disk::{DiskDone, DiskError, DiskKind, DiskOk, DiskOp, DiskToken, FileId};
use ringmain_types::ShardId;

use crate::digest::Digest;
use crate::faults::DiskErrors;
use crate::random::Random;
use media::{Bytes, Media, Snapshot};
use misdirected::Past;
pub use misdirected::Touched;
use names::{Change, Inode, Names, Node};

/// How this disk behaves; drawn once a seed.
#[derive(Clone, Debug)]
pub struct Manner {
    pub block_bytes: u32,
    /// A flush covers other files' mapped extents (`Config::journal_flush_covers`).
    pub flush_covers: bool,
    pub latency_ns: (u64, u64),
    /// Chance that an operation takes `stall_ns` more.
    pub stall: f32,
    pub stall_ns: (u64, u64),
    /// Completions come in the order of submissions unless this hits.
    pub reordered: f32,
    pub errors: DiskErrors,
    /// What writes replaced is remembered, for one of them may turn out to have gone elsewhere.
    pub remembers: bool,
}

/// Names an operation in flight, for the world's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Operation(pub u64);

struct InFlight {
    shard: ShardId,
    token: DiskToken,
    work: Work,
    /// It will fail.
    fails: bool,
}

/// What is left to do when the operation completes.
enum Work {
    Write {
        inode: Inode,
        first: u64,
        blocks: Vec<Bytes>,
    },
    /// Waits for `after`, then for its own time.
    Flush {
        files: Vec<Inode>,
        after: BTreeSet<(ShardId, DiskToken)>,
        started: Option<Vec<(Inode, Snapshot)>>,
    },
    Read {
        inode: Inode,
        position: u64,
        bytes: u32,
        into: BufMut,
    },
    Open {
        file: FileId,
        path: String,
        create: bool,
    },
    Close {
        file: FileId,
    },
    Grow {
        inode: Inode,
        size: u64,
    },
    Truncate {
        inode: Inode,
        size: u64,
    },
    Name(Change),
    Space,
    List {
        path: String,
    },
    SyncDir {
        path: String,
        mark: usize,
    },
}

pub struct SimDisk {
    manner: Manner,
    names: Names,
    files: Vec<Media>,
    open: BTreeMap<(ShardId, FileId), (Inode, String)>,
    flight: BTreeMap<Operation, InFlight>,
    /// Blocks with a write in flight.
    writing: BTreeSet<(Inode, u64)>,
    /// Every token of this process: none comes twice, and `Flush::after` names none that never was.
    tokens: BTreeSet<(ShardId, DiskToken)>,
    submitted: u64,
    /// Flushes that wait for writes.
    waiting: usize,
    /// When the last operation in order completes.
    ordered_ns: u64,
    stale: Vec<Bytes>,
    past: Past,
    /// Operations may fail.
    pub hostile: bool,
    /// There is no space.
    pub full: bool,
    /// Some operation of this process failed, or found no space.
    pub troubled: bool,
    pub digest: Digest,
    pub counts: Counts,
    /// A broken rule of the seam: the world ends with it.
    pub fault: Option<String>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub operations: u64,
    pub writes: u64,
    pub flushes: u64,
    pub written_bytes: u64,
    pub stalls: u64,
    pub reordered: u64,
    /// Blocks of zeroes in front of a log's end.
    pub zeroed: u64,
    /// Files that became spares, and spares that became segments.
    pub spared: u64,
    pub reused: u64,
    pub write_errors: u64,
    pub flush_errors: u64,
    pub read_errors: u64,
    pub other_errors: u64,
    /// Of flushes that failed and of what they were to make durable, blocks that are as they were before.
    pub dropped_blocks: u64,
    pub no_space: u64,
    /// Files renamed, and directories synced.
    pub named: u64,
    /// After power losses: blocks that show what another file, or an older life of this one, has or had.
    pub stale_blocks: u64,
}

impl SimDisk {
    pub fn new(manner: Manner) -> SimDisk {
        SimDisk {
            manner,
            names: Names::default(),
            files: Vec::new(),
            open: BTreeMap::new(),
            flight: BTreeMap::new(),
            writing: BTreeSet::new(),
            tokens: BTreeSet::new(),
            submitted: 0,
            waiting: 0,
            ordered_ns: 0,
            stale: Vec::new(),
            past: Past::default(),
            hostile: false,
            full: false,
            troubled: false,
            digest: Digest::default(),
            counts: Counts::default(),
            fault: None,
        }
    }

    pub fn in_flight(&self) -> usize {
        self.flight.len()
    }

    /// Takes an operation. Those that now have a time of completion are pushed to `due`.
    pub fn submit(
        &mut self,
        now_ns: u64,
        random: &mut Random,
        shard: ShardId,
        op: DiskOp,
        due: &mut Vec<(u64, Operation)>,
    ) {
        self.submitted += 1;
        self.counts.operations += 1;
        self.digest.number(u64::from(shard.0));
        self.digest.number(op.token.0);
        if !self.tokens.insert((shard, op.token)) {
            self.broken(format!("{:?} of shard {} was used before", op.token, shard.0));
        }
        let operation = Operation(self.submitted);
        let fails = self.fails(random, &op.kind);
        let Some(work) = self.accept(shard, op.kind) else { return };
        let waits = matches!(&work, Work::Flush { after, .. } if !after.is_empty());
        self.flight.insert(operation, InFlight { shard, token: op.token, work, fails });
        if waits {
            self.waiting += 1;
        } else {
            self.start(operation);
            due.push((self.completion(now_ns, random), operation));
        }
    }

    fn fails(&mut self, random: &mut Random, kind: &DiskKind) -> bool {
        let DiskErrors { write, flush, read, other } = self.manner.errors;
        let (rate, count) = match kind {
            DiskKind::Write { .. } => (write, &mut self.counts.write_errors),
            DiskKind::Flush { .. } => (flush, &mut self.counts.flush_errors),
            DiskKind::Read { .. } => (read, &mut self.counts.read_errors),
            DiskKind::Close { .. } => return false,
            _ => (other, &mut self.counts.other_errors),
        };
        let fails = self.hostile && random.chance(rate);
        *count += u64::from(fails);
        self.troubled |= fails;
        fails
    }

    fn completion(&mut self, now_ns: u64, random: &mut Random) -> u64 {
        let (from, to) = self.manner.latency_ns;
        let mut at = now_ns + random.skewed(from, to);
        if random.chance(self.manner.stall) {
            self.counts.stalls += 1;
            at += random.between(self.manner.stall_ns.0, self.manner.stall_ns.1);
        }
        if random.chance(self.manner.reordered) {
            self.counts.reordered += 1;
        } else {
            at = at.max(self.ordered_ns + 1);
            self.ordered_ns = at;
        }
        at
    }

    /// What an operation covers is settled when it starts, not when it is done.
    fn start(&mut self, operation: Operation) {
        let covers = self.manner.flush_covers;
        let Some(flying) = self.flight.get_mut(&operation) else { return };
        match &mut flying.work {
            Work::Flush { files, started, .. } => {
                let mut snapshots = Vec::new();
                for (at, media) in self.files.iter_mut().enumerate() {
                    let inode = Inode(at as u32);
                    let own = files.contains(&inode);
                    if own || (covers && media.dirty()) {
                        snapshots.push((inode, media.snapshot(own)));
                    }
                }
                *started = Some(snapshots);
            }
            Work::SyncDir { mark, .. } => *mark = self.names.mark(),
            _ => {}
        }
    }

    /// Completes an operation; `None` when its process is gone. Flushes that waited for it get their time.
    pub fn complete(
        &mut self,
        now_ns: u64,
        random: &mut Random,
        operation: Operation,
        due: &mut Vec<(u64, Operation)>,
    ) -> Option<(ShardId, DiskDone)> {
        let InFlight { shard, token, work, fails } = self.flight.remove(&operation)?;
        let wrote = matches!(work, Work::Write { .. });
        let result = if fails { Err(self.fail(random, work)) } else { self.finish(shard, work) };
        if wrote {
            self.release(now_ns, random, (shard, token, result.is_err()), due);
        }
        Some((shard, DiskDone { token, result }))
    }

    fn release(
        &mut self,
        now_ns: u64,
        random: &mut Random,
        (shard, token, failed): (ShardId, DiskToken, bool),
        due: &mut Vec<(u64, Operation)>,
    ) {
        if self.waiting == 0 {
            return;
        }
        let mut ready = Vec::new();
        for (operation, flying) in &mut self.flight {
            if let Work::Flush { after, started: None, .. } = &mut flying.work
                && after.remove(&(shard, token))
            {
                // A flush whose write failed is never begun.
                flying.fails |= failed;
                if after.is_empty() {
                    ready.push(*operation);
                }
            }
        }
        self.waiting -= ready.len();
        for operation in ready {
            self.start(operation);
            due.push((self.completion(now_ns, random), operation));
        }
    }

    fn finish(&mut self, shard: ShardId, work: Work) -> Result<DiskOk, DiskError> {
        match work {
            Work::Write { inode, first, blocks } => {
                let end = (first + blocks.len() as u64) * u64::from(self.manner.block_bytes);
                (first..first + blocks.len() as u64).for_each(|block| _ = self.writing.remove(&(inode, block)));
                if end > self.files[inode.0 as usize].size() {
                    self.space("write")?;
                }
                let media = &mut self.files[inode.0 as usize];
                if self.manner.remembers {
                    self.past.wrote(media, inode, first, &blocks);
                }
                for (block, bytes) in (first..).zip(blocks) {
                    media.write(block, bytes);
                }
            }
            Work::Flush { started, .. } => {
                for (inode, snapshot) in started.into_iter().flatten() {
                    self.files[inode.0 as usize].flushed(snapshot);
                }
            }
            Work::Read { inode, position, bytes, into } => {
                return Ok(DiskOk::Read(self.read(inode, position, bytes, into)));
            }
            Work::Open { file, path, create } => return self.opened(shard, file, path, create),
            Work::Close { file } => {
                self.open.remove(&(shard, file));
            }
            Work::Grow { inode, size } => {
                if size > self.files[inode.0 as usize].size() {
                    self.space("allocate")?;
                }
                self.files[inode.0 as usize].grow(size);
            }
            Work::Truncate { inode, size } => {
                self.files[inode.0 as usize].truncate(size, u64::from(self.manner.block_bytes));
            }
            Work::Name(change) => {
                if matches!(&change, Change::MakeDirectory { path } if !self.names.exists(path)) {
                    self.space("mkdir")?;
                }
                self.change(change)?;
            }
            Work::Space => return Ok(DiskOk::Space { total_bytes: 1 << 40, usable_bytes: 1 << 39 }),
            Work::List { path } => {
                let files = &self.files;
                let listed = self.names.list(&path, |inode| files[inode.0 as usize].size());
                return listed.map(DiskOk::Listed).map_err(|errno| error("list", &path, errno));
            }
            Work::SyncDir { path, mark } => {
                if !self.names.exists(&path) {
                    return Err(error("syncdir", &path, DiskError::ENOENT));
                }
                self.names.synced(&path, mark);
                self.counts.named += 1;
            }
        }
        Ok(DiskOk::Done)
    }

    /// The operation fails, and what it was about is in any state that may come of that.
    fn fail(&mut self, random: &mut Random, work: Work) -> DiskError {
        let operation = match work {
            Work::Write { inode, first, blocks } => {
                let media = &mut self.files[inode.0 as usize];
                for (block, bytes) in (first..).zip(blocks) {
                    self.writing.remove(&(inode, block));
                    match random.below(3) {
                        0 => {}
                        1 => media.write(block, bytes),
                        _ => {
                            let mut torn = vec![0; bytes.len()];
                            media.read(block, &mut torn);
                            let cut = random.below(bytes.len() as u64) as usize;
                            torn[..cut].copy_from_slice(&bytes[..cut]);
                            media.write(block, torn.into());
                        }
                    }
                }
                "write"
            }
            Work::Flush { started, .. } => {
                // The device was reset and lost what it had not written yet, or it did not.
                if random.chance(0.5) {
                    for (inode, snapshot) in started.into_iter().flatten() {
                        self.counts.dropped_blocks += self.files[inode.0 as usize].dropped(snapshot);
                    }
                }
                "flush"
            }
            Work::Read { .. } => "read",
            Work::Open { .. } => "open",
            Work::Close { .. } => "close",
            Work::Grow { .. } => "allocate",
            Work::Truncate { .. } => "truncate",
            Work::Name(_) => "change of a name",
            Work::Space => "statvfs",
            Work::List { .. } => "list",
            Work::SyncDir { .. } => "syncdir",
        };
        error(operation, "(simulated)", DiskError::EIO)
    }

    /// For what needs space.
    fn space(&mut self, operation: &'static str) -> Result<(), DiskError> {
        if !self.full {
            return Ok(());
        }
        self.troubled = true;
        self.counts.no_space += 1;
        Err(error(operation, "(simulated)", DiskError::ENOSPC))
    }

    fn read(&self, inode: Inode, position: u64, bytes: u32, mut into: BufMut) -> BufMut {
        let media = &self.files[inode.0 as usize];
        let block = u64::from(self.manner.block_bytes);
        let wanted = media.size().saturating_sub(position).min(u64::from(bytes)) as usize;
        let spare = into.spare_mut();
        let mut at = 0;
        let mut scratch = vec![0; block as usize];
        while at < wanted {
            let length = (wanted - at).min(block as usize);
            media.read((position + at as u64) / block, &mut scratch);
            spare[at..at + length].copy_from_slice(&scratch[..length]);
            at += length;
        }
        into.advance(wanted);
        into
    }

    fn opened(&mut self, shard: ShardId, file: FileId, path: String, create: bool) -> Result<DiskOk, DiskError> {
        let inode = match self.names.find(&path) {
            Some(Node::File(inode)) => inode,
            Some(Node::Directory) => return Err(error("open", &path, 21)),
            None if create => {
                self.space("open")?;
                let inode = Inode(self.files.len() as u32);
                self.names
                    .change(Change::Create { path: path.clone(), inode })
                    .map_err(|errno| error("open", &path, errno))?;
                self.files.push(Media::default());
                inode
            }
            None => return Err(error("open", &path, DiskError::ENOENT)),
        };
        let bytes = self.files[inode.0 as usize].size();
        self.open.insert((shard, file), (inode, path));
        Ok(DiskOk::Opened { bytes })
    }

    fn change(&mut self, change: Change) -> Result<(), DiskError> {
        if let Change::Rename { from, to } = &change {
            self.counts.named += 1;
            self.counts.spared += u64::from(to.contains(".spare-"));
            self.counts.reused += u64::from(from.contains(".spare-"));
            for (inode, path) in self.open.values_mut() {
                if path == from {
                    to.clone_into(path);
                    self.files[inode.0 as usize].renew();
                }
            }
            if let Some(Node::File(inode)) = self.names.find(from) {
                self.files[inode.0 as usize].renew();
            }
        }
        let (operation, path) = match &change {
            Change::Create { path, .. } => ("open", path.clone()),
            Change::MakeDirectory { path } => ("mkdir", path.clone()),
            Change::Remove { path } => ("remove", path.clone()),
            Change::RemoveDirectory { path } => ("rmdir", path.clone()),
            Change::Rename { from, .. } => ("rename", from.clone()),
        };
        self.names.change(change).map_err(|errno| error(operation, &path, errno))
    }

    /// The process is gone. What was in flight happens, in part or not at all; what was written stays, as dirty as it was.
    pub fn kill(&mut self, random: &mut Random) {
        for (_, flying) in std::mem::take(&mut self.flight) {
            match flying.work {
                Work::Write { inode, first, blocks } => {
                    for (block, bytes) in (first..).zip(blocks) {
                        if random.chance(0.5) {
                            self.files[inode.0 as usize].write(block, bytes);
                        }
                    }
                }
                Work::Read { .. } | Work::List { .. } | Work::Close { .. } => {}
                // A flush that has not started never will; one that has may.
                Work::Flush { started: None, .. } => {}
                work => {
                    if random.chance(0.5) {
                        // Nobody is left to be told of an error.
                        let _ = self.finish(flying.shard, work);
                    }
                }
            }
        }
        self.waiting = 0;
        self.writing.clear();
        self.open.clear();
        self.tokens.clear();
        self.troubled = false;
        self.ordered_ns = 0;
        for media in &mut self.files {
            media.renew();
        }
    }

    /// As `kill`, and everything that was not flushed is kept, lost or torn on its own.
    pub fn lose_power(&mut self, random: &mut Random) {
        self.kill(random);
        for media in &self.files {
            self.stale.extend(media.sample(random));
        }
        let surplus = self.stale.len().saturating_sub(32);
        self.stale.drain(..surplus);
        for media in &mut self.files {
            self.counts.stale_blocks += media.lose_power(random, u64::from(self.manner.block_bytes), &self.stale);
        }
        self.names.lose_power(random);
    }

    /// A driver of this process ends, and with it what it had open.
    pub fn release_driver(&mut self, shard: ShardId) {
        self.open.retain(|(of, _), _| *of != shard);
    }

    /// Removes a directory and the files in it; nothing is synced.
    pub fn remove_tree(&mut self, directory: &str) {
        let below: Vec<String> = self
            .names
            .paths()
            .filter(|(path, _)| names::parent(path) == directory)
            .map(|(path, _)| path.into())
            .collect();
        for path in below {
            // Errors can't be: it was listed just now.
            let _ = self.change(Change::Remove { path });
        }
        let _ = self.change(Change::RemoveDirectory { path: directory.into() });
    }

    /// A bit of one of the files that `wanted` names changes, unless it is `spared` by its file, what that holds, and its place. The file, and where.
    pub fn rot(
        &mut self,
        random: &mut Random,
        wanted: impl Fn(&str) -> bool,
        spared: impl Fn(&str, &[u8], u64) -> bool,
    ) -> Option<(String, u64)> {
        let files = self.names.paths().filter_map(|(path, node)| match node {
            Node::File(inode) if wanted(path) => Some((path.to_string(), inode)),
            _ => None,
        });
        let mut files: Vec<_> = files.collect();
        if files.is_empty() {
            return None;
        }
        let (path, inode) = files.swap_remove(random.below(files.len() as u64) as usize);
        let block_bytes = u64::from(self.manner.block_bytes);
        let at = self.files[inode.0 as usize].rot(random, block_bytes, |content, at| spared(&path, content, at))?;
        Some((path, at))
    }

    /// Paths and sizes, for a readable history.
    pub fn listing(&self) -> Vec<(String, u64)> {
        let files = self.names.paths().filter_map(|(path, node)| match node {
            Node::File(inode) => Some((path.to_string(), self.files[inode.0 as usize].size())),
            Node::Directory => None,
        });
        files.collect()
    }
}

fn error(operation: &'static str, path: &str, errno: i32) -> DiskError {
    DiskError { operation, path: path.to_string(), errno }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use ringmain_buffer::Buf;
    use ringmain_disk::DiskClass;
    use ringmain_types::DirId;

    const SHARD: ShardId = ShardId(0);
    const FILE: FileId = FileId(1);

    pub(crate) struct Bench {
        pub disk: SimDisk,
        pub random: Random,
        due: Vec<(u64, Operation)>,
        token: u64,
        done: Vec<DiskDone>,
    }

    impl Bench {
        pub fn new(seed: u64, flush_covers: bool) -> Bench {
            let latency_ns = (1_000, 50_000);
            let manner = Manner {
                block_bytes: 512,
                flush_covers,
                latency_ns,
                stall: 0.0,
                stall_ns: (1, 2),
                reordered: 1.0,
                errors: DiskErrors::default(),
                remembers: true,
            };
            let disk = SimDisk::new(manner);
            Bench { disk, random: Random::new(seed), due: Vec::new(), token: 0, done: Vec::new() }
        }

        fn submit(&mut self, kind: DiskKind) -> DiskToken {
            self.token += 1;
            let op = DiskOp { token: DiskToken(self.token), class: DiskClass::Commit, kind };
            self.disk.submit(0, &mut self.random, SHARD, op, &mut self.due);
            DiskToken(self.token)
        }

        /// Completes all that is in flight, by time.
        pub fn settle(&mut self) {
            while let Some(first) = (0..self.due.len()).min_by_key(|at| self.due[*at]) {
                let (at, operation) = self.due.remove(first);
                let done = self.disk.complete(at, &mut self.random, operation, &mut self.due);
                self.done.extend(done.map(|(_, done)| done));
            }
        }

        fn run(&mut self, kind: DiskKind) -> Result<DiskOk, DiskError> {
            let token = self.submit(kind);
            self.settle();
            let at = self.done.iter().position(|done| done.token == token).expect("it was settled");
            self.done.remove(at).result
        }

        pub fn open(&mut self, file: FileId, path: &str) -> u64 {
            match self.run(DiskKind::Open { dir: DirId(0), file, path: path.into(), create: true }) {
                Ok(DiskOk::Opened { bytes }) => bytes,
                other => panic!("{other:?}"),
            }
        }

        pub fn write(&mut self, file: FileId, block: u64, byte: u8) -> DiskToken {
            self.submit(DiskKind::Write { file, position: block * 512, data: vec![Buf::copy_of(&[byte; 512])] })
        }

        pub fn flush(&mut self, files: &[FileId], after: Vec<DiskToken>) {
            self.run(DiskKind::Flush { dir: DirId(0), files: files.into(), after }).unwrap();
        }
    }

    #[test]
    fn a_flush_waits_for_its_writes() {
        for seed in 0..50 {
            let mut bench = Bench::new(seed, true);
            bench.open(FILE, "a");
            bench.run(DiskKind::SyncDir { dir: DirId(0), path: String::new() }).unwrap();
            let writes = vec![bench.write(FILE, 0, 1), bench.write(FILE, 1, 2)];
            bench.flush(&[FILE], writes);
            bench.disk.lose_power(&mut bench.random);
            assert_eq!(bench.open(FileId(2), "a"), 1024);
            assert_eq!(bench.disk.fault, None);
        }
    }

    #[test]
    fn without_its_flush_a_write_may_be_lost_and_without_its_sync_a_name_may_be() {
        let mut sizes = BTreeSet::new();
        for seed in 0..100 {
            let mut bench = Bench::new(seed, true);
            bench.open(FILE, "a");
            bench.write(FILE, 0, 1);
            bench.settle();
            bench.disk.lose_power(&mut bench.random);
            sizes.insert(bench.disk.listing().first().map(|(_, bytes)| *bytes));
        }
        assert_eq!(sizes, [None, Some(0), Some(512)].into());
    }

    #[test]
    fn a_flush_behind_a_failed_write_fails_and_nothing_is_sure() {
        let (mut kept, mut lost) = (0, 0);
        for seed in 0..100 {
            let mut bench = Bench::new(seed, true);
            bench.open(FILE, "a");
            bench.run(DiskKind::SyncDir { dir: DirId(0), path: String::new() }).unwrap();
            (bench.disk.hostile, bench.disk.manner.errors.write) = (true, 1.0);
            let write = bench.write(FILE, 0, 1);
            let flush = DiskKind::Flush { dir: DirId(0), files: vec![FILE], after: vec![write] };
            assert_eq!(bench.run(flush).unwrap_err().errno, DiskError::EIO);
            assert!(bench.disk.troubled);
            bench.disk.hostile = false;
            bench.disk.lose_power(&mut bench.random);
            if bench.open(FileId(2), "a") == 512 { kept += 1 } else { lost += 1 }
        }
        assert!(kept > 5 && lost > 5, "{kept} {lost}");
    }

    #[test]
    fn a_flush_that_fails_may_undo_what_was_written() {
        let mut read = BTreeSet::new();
        for seed in 0..50 {
            let mut bench = Bench::new(seed, true);
            bench.open(FILE, "a");
            bench.write(FILE, 0, 7);
            bench.settle();
            (bench.disk.hostile, bench.disk.manner.errors.flush) = (true, 1.0);
            let flush = DiskKind::Flush { dir: DirId(0), files: vec![FILE], after: Vec::new() };
            bench.run(flush).unwrap_err();
            let mut block = [0; 512];
            bench.disk.files[0].read(0, &mut block);
            read.insert(block[0]);
        }
        assert_eq!(read, [0, 7].into());
    }

    #[test]
    fn a_full_disk_takes_only_what_it_has_room_for() {
        let mut bench = Bench::new(1, true);
        bench.open(FILE, "a");
        bench.run(DiskKind::Allocate { file: FILE, from: 0, bytes: 1024 }).unwrap();
        bench.disk.full = true;
        let write =
            |block: u64| DiskKind::Write { file: FILE, position: block * 512, data: vec![Buf::copy_of(&[3; 512])] };
        bench.run(write(1)).unwrap();
        assert_eq!(bench.run(write(2)).unwrap_err().errno, DiskError::ENOSPC);
        let more = DiskKind::Allocate { file: FILE, from: 0, bytes: 1025 };
        assert_eq!(bench.run(more).unwrap_err().errno, DiskError::ENOSPC);
        let dir = DirId(0);
        assert!(bench.run(DiskKind::MakeDir { dir, path: "d".into() }).is_err());
        assert!(bench.run(DiskKind::Open { dir, file: FileId(2), path: "b".into(), create: true }).is_err());
        bench.run(DiskKind::Open { dir, file: FileId(3), path: "a".into(), create: true }).unwrap();
        assert_eq!(bench.disk.counts.no_space, 4);
    }

    #[test]
    fn broken_rules_are_told() {
        let fault = |play: &dyn Fn(&mut Bench)| {
            let mut bench = Bench::new(1, true);
            bench.open(FILE, "a.log");
            play(&mut bench);
            bench.settle();
            bench.disk.fault.unwrap_or_default()
        };
        assert_eq!(fault(&|_| {}), "");
        let unaligned = |bench: &mut Bench| {
            bench.submit(DiskKind::Write { file: FILE, position: 100, data: vec![Buf::copy_of(&[0; 512])] });
        };
        assert!(fault(&unaligned).contains("aligned"));
        let twice_in_flight = |bench: &mut Bench| {
            bench.write(FILE, 3, 1);
            bench.write(FILE, 3, 2);
        };
        assert!(fault(&twice_in_flight).contains("in flight"));
        let again = |bench: &mut Bench| {
            bench.write(FILE, 3, 1);
            bench.settle();
            bench.write(FILE, 3, 2);
        };
        assert!(fault(&again).contains("a second time"));
        let cut_between = |bench: &mut Bench| {
            bench.write(FILE, 3, 1);
            bench.settle();
            bench.run(DiskKind::Truncate { file: FILE, bytes: 512 }).unwrap();
            bench.write(FILE, 3, 2);
        };
        assert_eq!(fault(&cut_between), "");
        let unknown = |bench: &mut Bench| {
            bench.submit(DiskKind::Flush { dir: DirId(0), files: vec![FILE], after: vec![DiskToken(99)] });
        };
        assert!(fault(&unknown).contains("never submitted"));
    }
}
