//! Reads a file from its start with O_DIRECT, several reads in flight: what a cold fetch can get at most. fio does it where there is
//! one, else the broker's own ring.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ringmain_disk::{Disk, DiskClass, DiskKind, DiskOk, DiskOp, DiskToken, FileId};
use ringmain_ring::{Ring, RingConfig};
use ringmain_types::{Account, DirId, ShardId};

use super::sink;

const FILE: FileId = FileId(1);
const DIR: DirId = DirId(0);

#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub bytes: u64,
    pub read_bytes: usize,
    pub depth: usize,
}

/// MB/s (10^6 bytes).
pub fn read(directory: &Path, name: &str, shape: Shape) -> io::Result<f64> {
    match with_fio(&directory.join(name), shape) {
        Some(rate) => rate,
        None => with_ring(directory, name, shape),
    }
}

/// `None`: there is no fio here.
fn with_fio(file: &Path, shape: Shape) -> Option<io::Result<f64>> {
    let mut command = Command::new("fio");
    command.args(["--name=cold", "--rw=read", "--direct=1", "--ioengine=io_uring", "--readonly"]);
    command.args(["--output-format=terse", "--terse-version=3"]).arg(format!("--filename={}", file.display()));
    command.arg(format!("--bs={}", shape.read_bytes)).arg(format!("--iodepth={}", shape.depth));
    command.arg(format!("--size={}", shape.bytes)).stdin(Stdio::null()).stderr(Stdio::inherit());
    match command.output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(Err(error)),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            Some(terse_rate(&text).ok_or_else(|| io::Error::other(format!("fio, {}: {text}", output.status))))
        }
    }
}

/// Field 7 of fio's terse format, KiB/s read, as MB/s.
fn terse_rate(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("3;"))?;
    let kib: f64 = line.split(';').nth(6)?.parse().ok()?;
    (kib > 0.0).then_some(kib * 1024.0 / 1e6)
}

fn with_ring(directory: &Path, name: &str, shape: Shape) -> io::Result<f64> {
    let mut ring = Ring::new(&RingConfig::new(ShardId(0), 8))?;
    ring.add_directory(DIR, directory, true)?;
    let mut pool = sink::pool();
    let mut done = Vec::new();
    let submit = |ring: &mut Ring, token: u64, kind: DiskKind| {
        Disk::submit(ring, DiskOp { token: DiskToken(token), class: DiskClass::Read, kind });
        ring.submit();
    };
    submit(&mut ring, 0, DiskKind::Open { dir: DIR, file: FILE, path: name.into(), create: false });
    let mut free: VecDeque<_> = (0..shape.depth)
        .map(|_| pool.take(Account::Tail, shape.read_bytes).map_err(|refused| io::Error::other(format!("{refused:?}"))))
        .collect::<io::Result<_>>()?;
    let (mut opened, mut position, mut read, mut began) = (None, 0, 0, Instant::now());
    while opened.is_none_or(|bytes| read < bytes) {
        if let Some(bytes) = opened {
            while position < bytes
                && let Some(into) = free.pop_front()
            {
                let kind = DiskKind::Read { file: FILE, position, bytes: shape.read_bytes as u32, into };
                submit(&mut ring, 1 + position, kind);
                position += shape.read_bytes as u64;
            }
        }
        ring.wait(Duration::from_secs(1));
        Disk::poll(&mut ring, &mut done);
        for done in done.drain(..) {
            match done.result.map_err(io::Error::other)? {
                DiskOk::Opened { bytes } => {
                    opened = Some(bytes.min(shape.bytes) / shape.read_bytes as u64 * shape.read_bytes as u64);
                    began = Instant::now();
                }
                DiskOk::Read(block) => {
                    read += block.len() as u64;
                    drop(block);
                    pool.collect();
                    let next = pool.take(Account::Tail, shape.read_bytes);
                    free.push_back(next.map_err(|refused| io::Error::other(format!("{refused:?}")))?);
                }
                _ => return Err(io::Error::other("a read that read nothing")),
            }
        }
    }
    Ok(read as f64 / began.elapsed().as_secs_f64() / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fios_rate_is_its_seventh_field() {
        assert_eq!(terse_rate("3;fio-3.33;cold;0;0;262144;1000;0;262;\n"), Some(1.024));
        assert_eq!(terse_rate("fio: no such file"), None);
    }
}
