//! Writes that went elsewhere: the device said that they were done, the intended place holds what it held before, and another place of
//! the same file or of another one holds the write, or no file's.
//!
//! Which write it was is settled afterwards, among those that are still all of what their place should hold, while nobody looks: a history
//! in which the next life is the first to look. Before that, what a promise means while a record is somewhere else is not defined.

use std::collections::VecDeque;

use super::SimDisk;
use super::media::{Bytes, Media};
use super::names::{Inode, Node};
use crate::random::Random;

/// As many writes are remembered: those of several lives.
const WRITES_MAX: usize = 1024;
/// Tries to find one that is worth it.
const TRIES: u32 = 16;
/// Of files' names: what they hold differs in what can be told of it.
const KINDS: [&str; 6] = [".journal", ".log", ".index", ".timeindex", ".snapshot", ""];

struct Write {
    inode: Inode,
    first: u64,
    /// New and old.
    blocks: Vec<(Bytes, Option<Bytes>)>,
}

/// Writes that were done, oldest first.
#[derive(Default)]
pub(super) struct Past(VecDeque<Write>);

impl Past {
    pub fn wrote(&mut self, media: &Media, inode: Inode, first: u64, blocks: &[Bytes]) {
        let pairs = (first..).zip(blocks).map(|(block, bytes)| (bytes.clone(), media.block(block).cloned()));
        self.0.push_back(Write { inode, first, blocks: pairs.collect() });
        if self.0.len() > WRITES_MAX {
            self.0.pop_front();
        }
    }
}

/// What a misdirected write does to one file.
pub struct Touched {
    pub path: String,
    /// It should have gone here; otherwise it went here.
    pub missing: bool,
    pub at: u64,
    pub before: Vec<u8>,
    pub after: Vec<u8>,
    /// Nothing was written to the file later.
    pub last: bool,
}

impl SimDisk {
    /// One write to a file that `wanted` names went elsewhere, unless `spared` says of what it does to a file that nobody could tell. What it
    /// did, and how many were spared.
    pub fn misdirect(
        &mut self,
        random: &mut Random,
        wanted: impl Fn(&str) -> bool,
        spared: impl Fn(&Touched) -> bool,
    ) -> (Vec<Touched>, u64) {
        let files = self.names.paths().filter_map(|(path, node)| match node {
            Node::File(inode) if wanted(path) => Some((path.to_owned(), inode)),
            _ => None,
        });
        let files: Vec<(String, Inode)> = files.collect();
        let mut count = 0;
        for _ in 0..TRIES {
            let Some((places, touched)) = self.elsewhere(random, &files) else { continue };
            if touched.iter().all(|touched| touched.before == touched.after) {
                continue;
            }
            if touched.iter().any(&spared) {
                count += 1;
                continue;
            }
            for (inode, block, bytes) in places {
                self.files[inode.0 as usize].replace(block, bytes);
            }
            return (touched, count);
        }
        (Vec::new(), count)
    }

    /// A write that may have gone elsewhere: the blocks that change, and the files.
    #[allow(clippy::type_complexity)]
    fn elsewhere(
        &self,
        random: &mut Random,
        files: &[(String, Inode)],
    ) -> Option<(Vec<(Inode, u64, Option<Bytes>)>, Vec<Touched>)> {
        let kind = KINDS[random.below(KINDS.len() as u64) as usize];
        let kind_of = |path: &str| KINDS.iter().find(|kind| path.ends_with(**kind)).copied();
        let path_of = |inode: Inode| files.iter().find(|(_, of)| *of == inode).map(|(path, _)| path);
        let block_bytes = u64::from(self.manner.block_bytes);
        let whole = |write: &Write| {
            let media = &self.files[write.inode.0 as usize];
            // The file may have been cut within its last block since.
            let holds = |(at, (new, _)): (u64, &(Bytes, _))| {
                let bytes = media.size().saturating_sub(at * block_bytes).min(block_bytes) as usize;
                bytes > 0 && media.block(at).is_some_and(|now| now[..bytes] == new[..bytes])
            };
            (write.first..).zip(&write.blocks).all(holds)
        };
        let of_kind = |write: &&Write| path_of(write.inode).is_some_and(|path| kind_of(path) == Some(kind));
        let writes: Vec<&Write> = self.past.0.iter().filter(of_kind).filter(|write| whole(write)).collect();
        let write = *writes.get(random.below(writes.len().max(1) as u64) as usize)?;
        let mut places: Vec<_> =
            (write.first..).zip(&write.blocks).map(|(block, (_, old))| (write.inode, block, old.clone())).collect();
        let mut ends = vec![(write.inode, true, write.first)];
        if !random.chance(0.25) {
            let there = match random.chance(0.5) {
                true => write.inode,
                false => files[random.below(files.len() as u64) as usize].1,
            };
            let blocks = self.files[there.0 as usize].size() / block_bytes;
            // Near by, as when one bit of an address is wrong; or anywhere.
            let first = match random.chance(0.5) {
                true => write.first ^ (1 << random.below(4)),
                false => random.below(blocks.max(1)),
            };
            let fits = (first..blocks).zip(&write.blocks);
            places.extend(fits.map(|(block, (new, _))| (there, block, Some(new.clone()))));
            ends.push((there, false, first));
        }
        let touched = ends.into_iter().filter_map(|(inode, missing, first)| {
            let before = self.files[inode.0 as usize].content(block_bytes);
            let mut after = before.clone();
            for (_, block, bytes) in places.iter().filter(|(of, ..)| *of == inode) {
                let from = ((block * block_bytes) as usize).min(after.len());
                let until = (from + block_bytes as usize).min(after.len());
                match bytes {
                    Some(bytes) => after[from..until].copy_from_slice(&bytes[..until - from]),
                    None => after[from..until].fill(0),
                }
            }
            let later = self.past.0.iter().rev().find(|other| other.inode == inode);
            let last = later.is_some_and(|later| std::ptr::eq(later, write));
            Some(Touched { path: path_of(inode)?.clone(), missing, at: first * block_bytes, before, after, last })
        });
        let touched = touched.collect();
        Some((places, touched))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::tests::Bench;
    use ringmain_disk::FileId;
    use std::collections::BTreeSet;

    fn blocks(bench: &SimDisk, inode: usize) -> Vec<u8> {
        bench.files[inode].content(512).iter().step_by(512).copied().collect()
    }

    #[test]
    fn the_place_keeps_what_it_held_and_another_has_the_write() {
        let mut seen = BTreeSet::new();
        for seed in 0..200 {
            let mut bench = Bench::new(seed, true);
            bench.open(FileId(1), "a.journal");
            bench.open(FileId(2), "b.journal");
            for (file, byte) in [(1, 1), (2, 5)] {
                bench.write(FileId(file), 0, byte);
                bench.write(FileId(file), 1, byte + 1);
                bench.settle();
            }
            bench.write(FileId(1), 1, 9);
            bench.settle();
            bench.flush(&[FileId(1), FileId(2)], Vec::new());
            let only_last = |touched: &Touched| touched.missing && !(touched.path == "a.journal" && touched.at == 512);
            let (touched, _) = bench.disk.misdirect(&mut bench.random, |_| true, only_last);
            if touched.is_empty() {
                continue;
            }
            assert!(touched[0].missing && touched[0].last);
            for touched in &touched {
                let inode = usize::from(touched.path == "b.journal");
                assert_eq!(bench.disk.files[inode].content(512), touched.after);
            }
            bench.disk.lose_power(&mut bench.random);
            seen.insert((blocks(&bench.disk, 0), blocks(&bench.disk, 1)));
        }
        // In its own file in front of where it belonged, in the other one at either place, or nowhere.
        assert!(seen.contains(&(vec![9, 2], vec![5, 6])), "{seen:?}");
        assert!(seen.contains(&(vec![1, 2], vec![9, 6])), "{seen:?}");
        assert!(seen.contains(&(vec![1, 2], vec![5, 9])), "{seen:?}");
        assert!(seen.contains(&(vec![1, 2], vec![5, 6])), "{seen:?}");
    }
}
