//! A process without descriptors. Its limit is the process's, so this file has one test and a process of its own.
#![allow(unsafe_code)]

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use ringmain_disk::{Disk, DiskClass, DiskDone, DiskKind, DiskOk, DiskOp, DiskToken, FileId};
use ringmain_ring::{Ring, RingConfig};
use ringmain_types::{DirId, ShardId};

const DIR: DirId = DirId(0);

fn open(ring: &mut Ring, file: u64) {
    let kind = DiskKind::Open { dir: DIR, file: FileId(file), path: format!("{file}.log"), create: true };
    Disk::submit(ring, DiskOp { token: DiskToken(file), class: DiskClass::Commit, kind });
}

fn turn(ring: &mut Ring) -> Vec<DiskDone> {
    ring.wait(Duration::from_millis(100));
    let mut done = Vec::new();
    Disk::poll(ring, &mut done);
    done
}

/// Every descriptor that the process may still have.
fn take_all() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

#[test]
fn a_file_waits_for_descriptors_that_others_have_for_a_moment_and_not_for_ever() {
    let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
    // SAFETY: the pointer is to a limit that lives as long as the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("descriptors-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    let mut ring = Ring::new(&RingConfig::new(ShardId(0), 64)).unwrap();
    ring.add_directory(DIR, &path, true).unwrap();

    // None of ours is open that could be closed for it.
    let others = take_all();
    assert!(!others.is_empty());
    open(&mut ring, 1);
    for _ in 0..3 {
        let done = turn(&mut ring);
        assert!(done.is_empty(), "failed at once: {done:?}");
    }
    drop(others);
    let done = std::iter::repeat_with(|| turn(&mut ring)).find(|done| !done.is_empty()).unwrap();
    assert!(matches!(done[0].result, Ok(DiskOk::Opened { bytes: 0 })), "{done:?}");

    // Nobody gives one back: it is said.
    let others = take_all();
    open(&mut ring, 2);
    let done = std::iter::repeat_with(|| turn(&mut ring)).find(|done| !done.is_empty()).unwrap();
    drop(others);
    let error = done[0].result.as_ref().expect_err("there is no descriptor");
    assert_eq!((error.operation, error.errno), ("open", libc::EMFILE), "{error:?}");
    std::fs::remove_dir_all(&path).unwrap();
}
