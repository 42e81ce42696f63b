//! The probe's disk: one prewritten file, written round and round with O_DIRECT, flushed as groups.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::time::Duration;

use ringmain_buffer::{Buf, Pool};
use ringmain_disk::{Disk, DiskDone, DiskKind, DiskOk, DiskOp, DiskToken, FileId};
use ringmain_ring::{Ring, RingConfig};
use ringmain_types::{Account, DirId, Limits, ShardId};

/// Writes in flight: MEASURED.md, "Disk".
pub const WRITES_MAX: usize = 4;
const FILE: FileId = FileId(1);
const DIR: DirId = DirId(0);
/// The file, for who else wants to read it.
pub const NAME: &str = "probe.dat";
/// Prewriting goes in steps of this.
const STEP_BYTES: usize = 1 << 20;

/// `T` is what waits for the bytes of a write to be durable.
pub struct Sink<T> {
    ring: Ring,
    file_bytes: u64,
    position: u64,
    token: u64,
    flushing: bool,
    /// In the order of submission; acknowledged in that order, whatever order they finish in.
    writes: VecDeque<Write<T>>,
    /// Written, and not yet in a flush.
    written: Vec<T>,
    /// In the flush that is under way.
    flush: Option<(DiskToken, Vec<T>)>,
    done: Vec<DiskDone>,
}

struct Write<T> {
    token: DiskToken,
    finished: bool,
    waiting: T,
}

impl<T> Sink<T> {
    /// Opens `directory`'s file and writes it once from end to end when it is not yet that long: a flush into extents that exist
    /// has no metadata to commit.
    pub fn open(directory: &Path, file_bytes: u64, flushing: bool, pool: &mut Pool) -> io::Result<Sink<T>> {
        let mut ring = Ring::new(&RingConfig::new(ShardId(0), 8))?;
        ring.add_directory(DIR, directory, true)?;
        let mut sink = Sink {
            ring,
            file_bytes: file_bytes.next_multiple_of(STEP_BYTES as u64),
            position: 0,
            token: 0,
            flushing,
            writes: VecDeque::new(),
            written: Vec::new(),
            flush: None,
            done: Vec::new(),
        };
        let open = DiskKind::Open { dir: DIR, file: FILE, path: NAME.into(), create: true };
        let DiskOk::Opened { bytes } = sink.call(open)? else {
            return Err(io::Error::other("an open that opened nothing"));
        };
        if sink.ring.direct(DIR) != Some(true) {
            return Err(io::Error::other(format!("{}: no O_DIRECT here", directory.display())));
        }
        if bytes < sink.file_bytes {
            sink.prewrite(pool)?;
        }
        Ok(sink)
    }

    fn submit(&mut self, kind: DiskKind) -> DiskToken {
        self.token += 1;
        let token = DiskToken(self.token);
        Disk::submit(&mut self.ring, DiskOp { token, class: ringmain_disk::DiskClass::Commit, kind });
        token
    }

    /// Submits one operation and waits for it, with nothing else under way.
    fn call(&mut self, kind: DiskKind) -> io::Result<DiskOk> {
        self.submit(kind);
        loop {
            Disk::poll(&mut self.ring, &mut self.done);
            match self.done.pop() {
                Some(done) => return done.result.map_err(io::Error::other),
                None => self.ring.wait(Duration::from_secs(1)),
            }
        }
    }

    fn prewrite(&mut self, pool: &mut Pool) -> io::Result<()> {
        let mut block = pool.take(Account::Tail, STEP_BYTES).map_err(|r| io::Error::other(format!("{r:?}")))?;
        let mut random = fastrand::Rng::with_seed(2);
        random.fill(&mut block.spare_mut()[..STEP_BYTES]);
        block.advance(STEP_BYTES);
        let block = block.freeze();
        for position in (0..self.file_bytes).step_by(STEP_BYTES) {
            self.call(DiskKind::Write { file: FILE, position, data: vec![block.clone()] })?;
        }
        self.call(DiskKind::Flush { dir: DIR, files: vec![FILE], after: Vec::new() }).map(|_| ())
    }

    pub fn busy(&self) -> bool {
        !self.writes.is_empty() || self.flush.is_some()
    }

    pub fn full(&self) -> bool {
        self.writes.len() >= WRITES_MAX
    }

    /// One write of `data`, whole blocks, for whoever is `waiting`.
    pub fn write(&mut self, data: Vec<Buf>, waiting: T) {
        let bytes: u64 = data.iter().map(|part| part.len() as u64).sum();
        if self.position + bytes > self.file_bytes {
            self.position = 0;
        }
        let position = self.position;
        self.position += bytes;
        let token = self.submit(DiskKind::Write { file: FILE, position, data });
        self.writes.push_back(Write { token, finished: false, waiting });
    }

    /// Submits, takes completions, starts the next flush, and moves whoever waited long enough into `ready`. True when anything
    /// finished or was started.
    pub fn turn(&mut self, ready: &mut Vec<T>) -> io::Result<bool> {
        let mut done = std::mem::take(&mut self.done);
        Disk::poll(&mut self.ring, &mut done);
        let mut progress = !done.is_empty();
        for done in done.drain(..) {
            done.result.map_err(io::Error::other)?;
            if self.flush.as_ref().is_some_and(|(token, _)| *token == done.token) {
                ready.extend(self.flush.take().into_iter().flat_map(|(_, waiting)| waiting));
            } else if let Some(write) = self.writes.iter_mut().find(|write| write.token == done.token) {
                write.finished = true;
            }
        }
        self.done = done;
        while let Some(write) = self.writes.pop_front_if(|write| write.finished) {
            self.written.push(write.waiting);
        }
        if !self.flushing {
            ready.append(&mut self.written);
        } else if self.flush.is_none() && !self.written.is_empty() {
            let token = self.submit(DiskKind::Flush { dir: DIR, files: vec![FILE], after: Vec::new() });
            self.ring.submit();
            self.flush = Some((token, std::mem::take(&mut self.written)));
            progress = true;
        }
        Ok(progress)
    }

    pub fn wait(&mut self, max: Duration) {
        self.ring.wait(max);
    }
}

/// Memory for the probe: its blocks are a few, and none may be refused.
pub fn pool() -> Pool {
    Pool::new(ShardId(0), &Limits::production(1 << 30))
}
