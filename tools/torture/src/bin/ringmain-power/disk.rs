//! A disk whose write cache power loss empties: what was flushed stays, of what was not each sector has what it had before or any
//! later content, as if the disk had got so far.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

pub const SECTOR: usize = 512;

type Sector = [u8; SECTOR];

pub struct Disk {
    /// What is durable.
    image: File,
    pub bytes: u64,
    /// By sector, every content that no flush covered, each with the number of its write, oldest first; never empty.
    cached: BTreeMap<u64, Vec<(u64, Box<Sector>)>>,
    writes: u64,
    powered: bool,
}

/// What a cut met.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cut {
    /// Sectors that were written and not flushed.
    pub unflushed: u64,
    /// Of them those that did not get their newest content.
    pub undone: u64,
}

impl Disk {
    /// All of `image`, whose length is whole sectors.
    pub fn open(image: File) -> io::Result<Disk> {
        let bytes = image.metadata()?.len();
        Ok(Disk { image, bytes, cached: BTreeMap::new(), writes: 0, powered: true })
    }

    /// At most `bytes` from `at` on, which is the begin of a sector.
    pub fn read(&self, at: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let mut data = vec![0; bytes.min(self.bytes.saturating_sub(at) as usize)];
        self.image.read_exact_at(&mut data, at)?;
        let first = at / SECTOR as u64;
        let sectors = data.len().div_ceil(SECTOR) as u64;
        for (sector, contents) in self.cached.range(first..first + sectors) {
            let into = &mut data[(sector - first) as usize * SECTOR..];
            let bytes = into.len().min(SECTOR);
            into[..bytes].copy_from_slice(&contents[contents.len() - 1].1[..bytes]);
        }
        Ok(data)
    }

    /// Whole sectors.
    pub fn write(&mut self, at: u64, data: &[u8]) -> io::Result<()> {
        let whole = at.is_multiple_of(SECTOR as u64) && data.len().is_multiple_of(SECTOR);
        if !self.powered || !whole || at + data.len() as u64 > self.bytes {
            return Err(io::ErrorKind::Other.into());
        }
        self.writes += 1;
        for (sector, content) in (at / SECTOR as u64..).zip(data.as_chunks::<SECTOR>().0) {
            self.cached.entry(sector).or_default().push((self.writes, Box::new(*content)));
        }
        Ok(())
    }

    /// The writes that are done: a flush that begins now covers them and no others.
    pub fn written(&self) -> u64 {
        self.writes
    }

    /// What was written up to then is durable.
    pub fn flush(&mut self, written: u64) -> io::Result<()> {
        if !self.powered {
            return Err(io::ErrorKind::Other.into());
        }
        for (sector, contents) in &mut self.cached {
            let covered = contents.partition_point(|(number, _)| *number <= written);
            if let Some((_, content)) = contents.drain(..covered).next_back() {
                self.image.write_all_at(&content[..], sector * SECTOR as u64)?;
            }
        }
        self.cached.retain(|_, contents| !contents.is_empty());
        Ok(())
    }

    /// From here on every write and flush fails. `torn`: sectors fare alone; else all of 4096 bytes alike.
    pub fn cut(&mut self, torn: bool) -> io::Result<Cut> {
        self.powered = false;
        let mut cut = Cut::default();
        let mut fate = (u64::MAX, 0.0);
        for (sector, contents) in std::mem::take(&mut self.cached) {
            // ext4's superblock is two sectors, and not in its journal: torn, it is no ext4 any more.
            let unit = if torn && sector >= 8 { sector } else { sector / 8 };
            if fate.0 != unit {
                // Nothing, something or everything of it, often enough each.
                fate = (unit, [0.0, fastrand::f64(), 1.0][fastrand::usize(..3)]);
            }
            let done = (fate.1 * contents.len() as f64).round() as usize;
            cut.unflushed += 1;
            cut.undone += u64::from(done < contents.len());
            if let Some(last) = done.checked_sub(1) {
                self.image.write_all_at(&contents[last].1[..], sector * SECTOR as u64)?;
            }
        }
        Ok(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(sectors: u64) -> (Disk, std::path::PathBuf) {
        let path = std::env::temp_dir().join(format!("ringmain-power-{}-{}", std::process::id(), fastrand::u64(..)));
        let image = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        image.set_len(sectors * SECTOR as u64).unwrap();
        (Disk::open(image).unwrap(), path)
    }

    #[test]
    fn what_was_flushed_stays_and_what_was_not_may_go() {
        fastrand::seed(7);
        let (mut first, path) = disk(1000);
        let at = |sector: u64| sector * SECTOR as u64;
        for sector in 0..1000 {
            first.write(at(sector), &[1; SECTOR]).unwrap();
        }
        first.flush(first.written()).unwrap();
        let written = first.written();
        for content in 2..5 {
            for sector in 500..1000 {
                first.write(at(sector), &[content; SECTOR]).unwrap();
            }
        }
        first.flush(written).unwrap();
        assert_eq!(first.read(at(499), 2 * SECTOR).unwrap(), [[1; SECTOR], [4; SECTOR]].concat());
        let cut = first.cut(true).unwrap();
        assert_eq!(cut.unflushed, 500);
        assert!(cut.undone > 100 && cut.undone < 500, "{cut:?}");
        assert!(first.write(0, &[9; SECTOR]).is_err() && first.flush(first.written()).is_err());
        let next = Disk::open(File::open(&path).unwrap()).unwrap();
        let mut seen = [0; 5];
        for sector in 0..1000 {
            let content = next.read(at(sector), SECTOR).unwrap();
            assert!(content.iter().all(|byte| *byte == content[0]));
            assert!(sector >= 500 || content[0] == 1);
            seen[content[0] as usize] += 1;
        }
        assert!(seen[0] == 0 && seen[1..].iter().all(|seen| *seen > 0), "each content is found: {seen:?}");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn blocks_fare_as_one_unless_torn() {
        fastrand::seed(9);
        let (mut first, path) = disk(800);
        first.write(0, &[1; 800 * SECTOR]).unwrap();
        first.cut(false).unwrap();
        let next = Disk::open(File::open(&path).unwrap()).unwrap().read(0, 800 * SECTOR).unwrap();
        let blocks: Vec<u8> = next.chunks(8 * SECTOR).map(|block| block[0]).collect();
        assert!(next.chunks(8 * SECTOR).all(|block| block.iter().all(|byte| *byte == block[0])));
        assert!(blocks.contains(&0) && blocks.contains(&1));
        std::fs::remove_file(path).unwrap();
    }
}
