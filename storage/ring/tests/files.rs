//! The disk half against real files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringmain_buffer::{Buf, BufMut, Pool};
use ringmain_disk::{Disk, DiskClass, DiskDone, DiskError, DiskKind, DiskOk, DiskOp, DiskToken, FileId};
use ringmain_ring::{Ring, RingConfig};
use ringmain_types::{Account, DirId, Limits, ShardId};

const DIR: DirId = DirId(0);
const BLOCK: usize = 4096;

struct Bench {
    ring: Ring,
    pool: Pool,
    path: PathBuf,
    tokens: u64,
    done: HashMap<DiskToken, Result<DiskOk, DiskError>>,
    order: Vec<DiskToken>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

impl Bench {
    fn new(name: &str, open_files_max: u32) -> Bench {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Bench::at(path, open_files_max)
    }
    fn at(path: PathBuf, open_files_max: u32) -> Bench {
        let mut ring = Ring::new(&RingConfig::new(ShardId(0), open_files_max)).unwrap();
        ring.add_directory(DIR, &path, true).unwrap();
        let pool = Pool::new(ShardId(0), &Limits::production(256 << 20));
        Bench { ring, pool, path, tokens: 0, done: HashMap::new(), order: Vec::new() }
    }
    fn start(&mut self, kind: DiskKind) -> DiskToken {
        self.tokens += 1;
        let token = DiskToken(self.tokens);
        Disk::submit(&mut self.ring, DiskOp { token, class: DiskClass::Commit, kind });
        token
    }
    fn wait(&mut self, token: DiskToken) -> Result<DiskOk, DiskError> {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(result) = self.done.remove(&token) {
                return result;
            }
            assert!(Instant::now() < until, "{token:?} never came");
            self.ring.wait(Duration::from_millis(100));
            let mut done = Vec::new();
            Disk::poll(&mut self.ring, &mut done);
            for DiskDone { token, result } in done {
                self.order.push(token);
                assert!(self.done.insert(token, result).is_none(), "{token:?} came twice");
            }
        }
    }
    fn run(&mut self, kind: DiskKind) -> Result<DiskOk, DiskError> {
        let token = self.start(kind);
        self.wait(token)
    }
    fn open(&mut self, id: u64, path: &str, create: bool) -> Result<u64, DiskError> {
        match self.run(DiskKind::Open { dir: DIR, file: FileId(id), path: path.into(), create })? {
            DiskOk::Opened { bytes } => Ok(bytes),
            other => panic!("{other:?}"),
        }
    }
    fn blocks(&mut self, byte: u8, count: usize) -> Buf {
        let mut buffer = self.pool.take(Account::Tail, count * BLOCK).unwrap();
        buffer.spare_mut()[..count * BLOCK].fill(byte);
        buffer.advance(count * BLOCK);
        buffer.freeze()
    }
    fn write(&mut self, id: u64, position: u64, data: Vec<Buf>) -> DiskToken {
        self.start(DiskKind::Write { file: FileId(id), position, data })
    }
    fn read(&mut self, id: u64, position: u64, bytes: usize) -> Result<BufMut, DiskError> {
        let into = self.pool.take(Account::Cache, bytes).unwrap();
        match self.run(DiskKind::Read { file: FileId(id), position, bytes: bytes as u32, into })? {
            DiskOk::Read(into) => Ok(into),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_is_written_and_flushed_is_read_back() {
    let mut bench = Bench::new("write", 64);
    assert_eq!(bench.open(1, "a.log", true).unwrap(), 0);
    bench.run(DiskKind::Allocate { file: FileId(1), from: 0, bytes: 1 << 20 }).unwrap();
    // More parts than one call takes.
    let data: Vec<Buf> = (0..1500).map(|part| bench.blocks(part as u8, 1)).collect();
    let write = bench.write(1, 8192, data);
    let second = bench.blocks(0xee, 1);
    let second = bench.write(1, 0, vec![second]);
    let flush = bench.start(DiskKind::Flush { dir: DIR, files: vec![FileId(1)], after: vec![write, second] });
    assert!(bench.wait(flush).is_ok());
    let place = |bench: &Bench, token| bench.order.iter().position(|done| *done == token).unwrap();
    assert!(place(&bench, write) < place(&bench, flush) && place(&bench, second) < place(&bench, flush));
    let end = 8192 + 1500 * BLOCK as u64;
    let read = bench.read(1, 8192, 1500 * BLOCK).unwrap();
    assert_eq!(read.len(), 1500 * BLOCK);
    assert!(read.chunks(BLOCK).enumerate().all(|(part, block)| block.iter().all(|byte| *byte == part as u8)));
    assert_eq!(bench.read(1, 0, BLOCK).unwrap()[..], [0xee; BLOCK]);
    assert_eq!(bench.read(1, end - BLOCK as u64, 4 * BLOCK).unwrap().len(), BLOCK, "short at the end");
    assert_eq!(bench.read(1, end + (1 << 20), BLOCK).unwrap().len(), 0);
    // An exact cut, then a read over it.
    bench.run(DiskKind::Truncate { file: FileId(1), bytes: 8192 + 100 }).unwrap();
    assert_eq!(bench.read(1, 8192, BLOCK).unwrap()[..], [0u8; 100]);
    bench.run(DiskKind::Close { file: FileId(1) }).unwrap();
    assert_eq!(bench.open(2, "a.log", false).unwrap(), 8292);
    assert_eq!(bench.ring.disk_counters().flushes, 1);
}

#[test]
fn names_are_made_listed_renamed_and_removed() {
    let mut bench = Bench::new("names", 64);
    let dir = |path: &str| DiskKind::MakeDir { dir: DIR, path: path.into() };
    bench.run(dir("t-0")).unwrap();
    bench.run(dir("t-0")).unwrap();
    bench.open(1, "t-0/x.log", true).unwrap();
    let data = bench.blocks(7, 1);
    let write = bench.write(1, 0, vec![data]);
    bench.wait(write).unwrap();
    bench.run(DiskKind::SyncDir { dir: DIR, path: "t-0".into() }).unwrap();
    bench.run(DiskKind::SyncDir { dir: DIR, path: "".into() }).unwrap();
    let DiskOk::Listed(list) = bench.run(DiskKind::List { dir: DIR, path: "t-0".into() }).unwrap() else { panic!() };
    assert_eq!(
        list.iter().map(|e| (e.name.as_str(), e.bytes, e.directory)).collect::<Vec<_>>(),
        [("x.log", 4096, false)]
    );
    bench.run(DiskKind::Rename { dir: DIR, from: "t-0".into(), to: "t-1".into() }).unwrap();
    assert_eq!(bench.read(1, 0, BLOCK).unwrap()[..], [7; BLOCK]);
    let busy = bench.run(DiskKind::RemoveDir { dir: DIR, path: "t-1".into() }).unwrap_err();
    assert_eq!((busy.operation, busy.errno), ("rmdir", 39));
    assert!(busy.path.ends_with("/t-1"), "{busy}");
    bench.run(DiskKind::Remove { dir: DIR, path: "t-1/x.log".into() }).unwrap();
    bench.run(DiskKind::Close { file: FileId(1) }).unwrap();
    bench.run(DiskKind::RemoveDir { dir: DIR, path: "t-1".into() }).unwrap();
    assert!(bench.run(DiskKind::List { dir: DIR, path: "t-1".into() }).unwrap_err().missing());
    assert!(bench.run(DiskKind::Remove { dir: DIR, path: "t-1".into() }).unwrap_err().missing());
    assert!(bench.open(2, "t-1/x.log", true).unwrap_err().missing());
    assert!(bench.open(3, "none", false).unwrap_err().missing());
    assert_eq!(bench.open(4, "../escape", true).unwrap_err().errno, 22);
    assert_eq!(bench.run(DiskKind::Close { file: FileId(3) }).unwrap_err().errno, 9, "a failed open leaves no file");
}

/// Its name goes at once, its space in steps; whoever has it open reads what is left.
#[test]
fn a_large_file_gives_its_space_back_in_steps() {
    let mut bench = Bench::new("large", 64);
    bench.open(1, "large", true).unwrap();
    bench.run(DiskKind::Allocate { file: FileId(1), from: 0, bytes: 100 << 20 }).unwrap();
    let watcher = std::fs::File::open(bench.path.join("large")).unwrap();
    let length = || watcher.metadata().unwrap().len();
    bench.run(DiskKind::Close { file: FileId(1) }).unwrap();
    bench.run(DiskKind::Remove { dir: DIR, path: "large".into() }).unwrap();
    assert!(!bench.path.join("large").exists());
    let mut seen = vec![length()];
    let until = Instant::now() + Duration::from_secs(20);
    while seen[seen.len() - 1] > 0 && Instant::now() < until {
        // What a poll finds completed it follows up once: no more than one step can lie between two looks.
        bench.ring.wait(Duration::from_millis(100));
        Disk::poll(&mut bench.ring, &mut Vec::new());
        seen.push(length());
    }
    assert!(seen.windows(2).all(|pair| pair[0] - pair[1] <= 8 << 20) && seen.last() == Some(&0), "{seen:?}");
    // A second one of the name is another file.
    assert_eq!(bench.open(2, "large", true).unwrap(), 0);
    bench.run(DiskKind::Remove { dir: DIR, path: "large".into() }).unwrap();
    assert!(bench.run(DiskKind::Remove { dir: DIR, path: "large".into() }).unwrap_err().missing());
    assert!(bench.run(DiskKind::MakeDir { dir: DIR, path: "d".into() }).is_ok());
    assert_eq!(bench.run(DiskKind::Remove { dir: DIR, path: "d".into() }).unwrap_err().errno, 21, "a directory");
}

#[test]
fn few_descriptors_serve_many_files_and_follow_renames() {
    let mut bench = Bench::new("lru", 8);
    for id in 0..100 {
        bench.open(id, &format!("f{id}"), true).unwrap();
        assert!(bench.ring.open_files() <= 8);
    }
    // All at once: every one has to be opened again.
    let writes: Vec<DiskToken> = (0..100)
        .map(|id| {
            let data = bench.blocks(id as u8, 1);
            bench.write(id, 0, vec![data])
        })
        .collect();
    let flush = bench.start(DiskKind::Flush { dir: DIR, files: (0..100).map(FileId).collect(), after: writes.clone() });
    assert!(bench.wait(flush).is_ok());
    writes.into_iter().for_each(|write| assert!(bench.wait(write).is_ok()));
    // A rename and the reads of files that are closed now, at the same time.
    let into: Vec<BufMut> = (0..50).map(|_| bench.pool.take(Account::Cache, BLOCK).unwrap()).collect();
    let renames: Vec<DiskToken> = (0..50)
        .map(|id| bench.start(DiskKind::Rename { dir: DIR, from: format!("f{id}"), to: format!("g{id}") }))
        .collect();
    let reads: Vec<DiskToken> = into
        .into_iter()
        .enumerate()
        .map(|(id, into)| {
            bench.start(DiskKind::Read { file: FileId(id as u64), position: 0, bytes: BLOCK as u32, into })
        })
        .collect();
    renames.into_iter().for_each(|rename| assert!(bench.wait(rename).is_ok()));
    for (id, read) in reads.into_iter().enumerate() {
        let DiskOk::Read(data) = bench.wait(read).unwrap() else { panic!() };
        assert_eq!(data[..], [id as u8; BLOCK]);
    }
    for id in 0..100 {
        assert_eq!(bench.read(id, 0, BLOCK).unwrap()[..], [id as u8; BLOCK]);
    }
    assert!(bench.ring.open_files() <= 8);
    // Replaced: what was evicted is gone, and is not mistaken for its successor.
    bench.run(DiskKind::Rename { dir: DIR, from: "g1".into(), to: "g0".into() }).unwrap();
    for id in 2..40 {
        bench.read(id, 0, BLOCK).unwrap();
    }
    assert_eq!(bench.read(1, 0, BLOCK).unwrap()[..], [1; BLOCK]);
    assert!(bench.read(0, 0, BLOCK).unwrap_err().missing());
    for id in 0..100 {
        bench.run(DiskKind::Close { file: FileId(id) }).unwrap();
    }
    assert_eq!(bench.ring.open_files(), 0);
}

#[test]
fn errors_name_operation_path_and_errno() {
    let mut bench = Bench::new("errors", 8);
    let unknown = bench.read(9, 0, BLOCK).unwrap_err();
    assert_eq!((unknown.operation, unknown.errno), ("use", 9));
    // A file size limit of the process gives EFBIG where a full disk would give ENOSPC.
    bench.open(1, "big", true).unwrap();
    let data = bench.blocks(1, 1);
    let write = bench.write(1, (i64::MAX as u64) / 4096 * 4096, vec![data]);
    let flush = bench.start(DiskKind::Flush { dir: DIR, files: vec![FileId(1)], after: vec![write] });
    let error = bench.wait(write).unwrap_err();
    assert_eq!(error.operation, "write");
    assert!(error.path.ends_with("/big") && (error.errno == 27 || error.errno == 22), "{error}");
    assert_eq!(bench.wait(flush).unwrap_err(), error, "the flush that waited for it fails with it");
    assert_eq!(bench.ring.disk_counters().flushes, 0);
}

#[test]
fn a_full_disk_is_an_error_and_stays_one() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("full-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    let mount =
        std::process::Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "none"]).arg(&path).status();
    if !mount.is_ok_and(|status| status.success()) {
        println!("skipped: no right to mount a tmpfs here");
        return;
    }
    let mut bench = Bench::at(path.clone(), 8);
    bench.open(1, "a", true).unwrap();
    let data: Vec<Buf> = (0..100).map(|_| bench.blocks(1, 1)).collect();
    let write = bench.write(1, 0, data);
    let flush = bench.start(DiskKind::Flush { dir: DIR, files: vec![FileId(1)], after: vec![write] });
    let results = (bench.wait(write), bench.wait(flush));
    let allocate = bench.run(DiskKind::Allocate { file: FileId(1), from: 0, bytes: 1 << 20 });
    drop(bench);
    assert!(std::process::Command::new("umount").arg(&path).status().unwrap().success());
    let _ = std::fs::remove_dir(&path);
    assert_eq!(results.0.unwrap_err().errno, DiskError::ENOSPC);
    assert_eq!(results.1.unwrap_err().errno, DiskError::ENOSPC);
    assert_eq!(allocate.unwrap_err().errno, DiskError::ENOSPC);
}

#[test]
fn more_operations_than_the_queue_holds() {
    let mut bench = Bench::new("many", 8);
    bench.open(1, "many", true).unwrap();
    let block = bench.blocks(5, 1);
    let writes: Vec<DiskToken> =
        (0..5000u64).map(|at| bench.write(1, at * BLOCK as u64, vec![block.clone()])).collect();
    let flush = bench.start(DiskKind::Flush { dir: DIR, files: vec![FileId(1)], after: writes.clone() });
    assert!(bench.wait(flush).is_ok());
    writes.into_iter().for_each(|write| assert!(bench.wait(write).is_ok()));
    assert_eq!(std::fs::metadata(bench.path.join("many")).unwrap().len(), 5000 * BLOCK as u64);
}
