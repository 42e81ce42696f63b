//! A disk in memory that may lose, at a crash, all that was not flushed: any block, any size, any name.

use std::collections::BTreeMap;

use ringmain_disk::{DiskDone, DiskError, DiskKind, DiskOk, DiskOp, DiskToken, Entry, FileId};

pub struct Random(pub u64);
impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

const BLOCK: usize = 512;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Node {
    Dir(usize),
    File(usize),
}
#[derive(Clone, Default)]
struct Dir {
    now: BTreeMap<String, Node>,
    durable: BTreeMap<String, Node>,
}
#[derive(Clone, Default)]
struct File {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Blocks that were written, and those of them whose extents a flush of this file made durable.
    filled: Vec<bool>,
    mapped: Vec<bool>,
}

impl File {
    fn flush(&mut self) {
        self.durable = self.now.clone();
        self.mapped = self.filled.clone();
    }

    /// Another file's flush: what lies in mapped extents.
    fn covered(&mut self) {
        for block in 0..self.mapped.len() {
            let range = block * BLOCK..(block + 1) * BLOCK;
            if let (true, Some(from), Some(to)) =
                (self.mapped[block], self.now.get(range.clone()), self.durable.get_mut(range))
            {
                to.copy_from_slice(from);
            }
        }
    }

    fn cut(&mut self, bytes: usize) {
        self.now.resize(bytes, 0);
        self.filled.truncate(bytes.div_ceil(BLOCK));
        self.mapped.truncate(bytes.div_ceil(BLOCK));
    }
}

pub struct Disk {
    dirs: Vec<Dir>,
    files: Vec<File>,
    open: BTreeMap<FileId, usize>,
    pub flight: Vec<DiskOp>,
    pub completed: u64,
    /// Allocations fail with ENOSPC.
    pub full: bool,
    /// The next write or flush fails with EIO.
    pub fail: Option<fn(&DiskKind) -> bool>,
    /// Blocks written since the file was cut or extended: none twice, the journal apart.
    written: BTreeMap<usize, Vec<bool>>,
    journals: Vec<usize>,
    /// A flush covers other files' mapped extents.
    pub covers: bool,
    /// Renames of a spare to a segment, and of a segment to a spare.
    pub taken: u32,
    /// Segments flushed by themselves in a group.
    pub own_flushes: u32,
    pub given: u32,
}

impl Disk {
    pub fn new() -> Disk {
        Disk {
            dirs: vec![Dir::default()],
            files: Vec::new(),
            open: BTreeMap::new(),
            flight: Vec::new(),
            completed: 0,
            full: false,
            fail: None,
            written: BTreeMap::new(),
            journals: Vec::new(),
            covers: false,
            taken: 0,
            own_flushes: 0,
            given: 0,
        }
    }

    pub fn submit(&mut self, op: DiskOp) {
        if let DiskKind::Write { data, position, .. } = &op.kind {
            assert!(position.is_multiple_of(BLOCK as u64));
            for part in data {
                assert!(
                    !part.is_empty()
                        && part.len().is_multiple_of(BLOCK)
                        && (part.as_ptr() as usize).is_multiple_of(BLOCK)
                );
            }
        }
        self.flight.push(op);
    }

    /// Completes one operation, chosen at random among those that may.
    pub fn step(&mut self, random: &mut Random) -> Option<DiskDone> {
        let tokens: Vec<DiskToken> = self.flight.iter().map(|op| op.token).collect();
        let ready: Vec<usize> = (0..self.flight.len())
            .filter(|at| match &self.flight[*at].kind {
                DiskKind::Flush { after, .. } => !after.iter().any(|token| tokens.contains(token)),
                _ => true,
            })
            .collect();
        if ready.is_empty() {
            assert!(self.flight.is_empty());
            return None;
        }
        let at = ready[random.below(ready.len() as u64) as usize];
        let op = self.flight.remove(at);
        self.completed += 1;
        if self.fail.is_some_and(|fails| fails(&op.kind)) {
            self.fail = None;
            return Some(DiskDone { token: op.token, result: Err(error("injected", "", DiskError::EIO)) });
        }
        Some(DiskDone { token: op.token, result: self.perform(op.kind) })
    }

    /// Power is cut: what is in flight happens in part or not at all, and what was not flushed is kept or lost block by block.
    pub fn crash(&mut self, random: &mut Random) {
        for op in std::mem::take(&mut self.flight) {
            if let DiskKind::Write { file, position, data } = op.kind {
                let Some(inode) = self.open.get(&file).copied() else { continue };
                let bytes = data.concat();
                for (n, block) in bytes.chunks(BLOCK).enumerate() {
                    if random.below(2) == 0 {
                        self.write(inode, position as usize + n * BLOCK, block);
                    }
                }
            }
        }
        for file in &mut self.files {
            let keep = random.below(4);
            let size = if keep < 2 { file.now.len() } else { file.durable.len() };
            let mut after = vec![0; size];
            for (n, block) in after.chunks_mut(BLOCK).enumerate() {
                let from = match keep {
                    0 => &file.now,
                    3 => &file.durable,
                    _ if random.below(2) == 0 => &file.now,
                    _ => &file.durable,
                };
                let old = from.get(n * BLOCK..).unwrap_or(&[]);
                let bytes = old.len().min(block.len());
                block[..bytes].copy_from_slice(&old[..bytes]);
            }
            file.now = after.clone();
            file.durable = after;
            // What is left is all durable.
            file.filled.resize(file.now.len().div_ceil(BLOCK), false);
            file.mapped = file.filled.clone();
        }
        for dir in &mut self.dirs {
            if random.below(2) == 0 {
                dir.now = dir.durable.clone();
            } else {
                dir.durable = dir.now.clone();
            }
        }
        self.restart();
    }

    /// The process is gone; nothing of the disk is.
    pub fn restart(&mut self) {
        self.open.clear();
        self.flight.clear();
        self.written.clear();
    }

    fn dir(&self, path: &str) -> Option<usize> {
        let mut at = 0;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            match self.dirs[at].now.get(part)? {
                Node::Dir(dir) => at = *dir,
                Node::File(_) => return None,
            }
        }
        Some(at)
    }
    fn parent<'a>(&self, path: &'a str) -> Option<(usize, &'a str)> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        Some((self.dir(parent)?, name))
    }

    fn write(&mut self, inode: usize, at: usize, bytes: &[u8]) {
        let file = &mut self.files[inode].now;
        if file.len() < at + bytes.len() {
            file.resize(at + bytes.len(), 0);
        }
        file[at..at + bytes.len()].copy_from_slice(bytes);
        let filled = &mut self.files[inode].filled;
        filled.resize(filled.len().max((at + bytes.len()) / BLOCK), false);
        filled[at / BLOCK..(at + bytes.len()) / BLOCK].fill(true);
    }

    /// No block of a segment is written twice; zeroes may go ahead of what is written.
    fn once(&mut self, inode: usize, from: usize, bytes: &[u8]) {
        if self.journals.contains(&inode) {
            return;
        }
        let written = self.written.entry(inode).or_default();
        for (block, bytes) in (from / BLOCK..).zip(bytes.chunks_exact(BLOCK)) {
            if written.len() <= block {
                written.resize(block + 1, false);
            }
            assert!(!written[block], "block {block} of file {inode} is written twice");
            written[block] = bytes.iter().any(|byte| *byte != 0);
        }
    }

    fn perform(&mut self, kind: DiskKind) -> Result<DiskOk, DiskError> {
        match kind {
            DiskKind::Write { file, position, data } => {
                let inode = self.open[&file];
                let bytes = data.concat();
                self.once(inode, position as usize, &bytes);
                self.write(inode, position as usize, &bytes);
            }
            DiskKind::Flush { files, .. } => {
                let journals = files.iter().filter(|file| self.journals.contains(&self.open[file])).count();
                self.own_flushes += if journals > 0 { (files.len() - journals) as u32 } else { 0 };
                for file in files {
                    self.files[self.open[&file]].flush();
                }
                if self.covers {
                    self.files.iter_mut().for_each(File::covered);
                }
            }
            DiskKind::Read { file, position, bytes, mut into } => {
                let Some(inode) = self.open.get(&file) else { return Err(error("read", "", 9)) };
                let file = &self.files[*inode].now;
                let from = (position as usize).min(file.len());
                let to = (position as usize + bytes as usize).min(file.len());
                into.extend(&file[from..to]);
                return Ok(DiskOk::Read(into));
            }
            DiskKind::Open { file, path, create, .. } => {
                let Some((parent, name)) = self.parent(&path) else { return Err(error("open", &path, 2)) };
                let inode = match self.dirs[parent].now.get(name) {
                    Some(Node::File(inode)) => *inode,
                    Some(Node::Dir(_)) => return Err(error("open", &path, 21)),
                    None if create => {
                        self.files.push(File::default());
                        let inode = self.files.len() - 1;
                        if path.ends_with(".journal") || path.ends_with(".journal.new") {
                            self.journals.push(inode);
                        }
                        self.dirs[parent].now.insert(name.to_owned(), Node::File(inode));
                        inode
                    }
                    None => return Err(error("open", &path, 2)),
                };
                self.open.insert(file, inode);
                return Ok(DiskOk::Opened { bytes: self.files[inode].now.len() as u64 });
            }
            DiskKind::Close { file } => {
                self.open.remove(&file);
            }
            DiskKind::Allocate { file, from, bytes } => {
                if self.full {
                    return Err(error("allocate", "", DiskError::ENOSPC));
                }
                let inode = self.open[&file];
                let file = &mut self.files[inode].now;
                let to = (from + bytes) as usize;
                if file.len() < to {
                    file.resize(to, 0);
                }
            }
            DiskKind::Truncate { file, bytes } => {
                let inode = self.open[&file];
                self.files[inode].cut(bytes as usize);
                if let Some(written) = self.written.get_mut(&inode) {
                    written.truncate(bytes as usize / BLOCK);
                }
            }
            DiskKind::Rename { from, to, .. } => {
                let Some((parent, name)) = self.parent(&from) else { return Err(error("rename", &from, 2)) };
                let Some(node) = self.dirs[parent].now.get(name).copied() else {
                    return Err(error("rename", &from, 2));
                };
                let Some((target, new)) = self.parent(&to) else { return Err(error("rename", &to, 2)) };
                if let Some(Node::Dir(dir)) = self.dirs[target].now.get(new)
                    && !self.dirs[*dir].now.is_empty()
                {
                    return Err(error("rename", &to, 39));
                }
                if let Node::File(inode) = node {
                    self.written.remove(&inode);
                    self.taken += u32::from(from.contains(".spare-"));
                    self.given += u32::from(to.contains(".spare-"));
                }
                self.dirs[parent].now.remove(name);
                self.dirs[target].now.insert(new.to_owned(), node);
            }
            DiskKind::Remove { path, .. } => {
                let Some((parent, name)) = self.parent(&path) else { return Err(error("remove", &path, 2)) };
                if self.dirs[parent].now.remove(name).is_none() {
                    return Err(error("remove", &path, 2));
                }
            }
            DiskKind::MakeDir { path, .. } => {
                let Some((parent, name)) = self.parent(&path) else { return Err(error("mkdir", &path, 2)) };
                if !self.dirs[parent].now.contains_key(name) {
                    self.dirs.push(Dir::default());
                    let dir = Node::Dir(self.dirs.len() - 1);
                    self.dirs[parent].now.insert(name.to_owned(), dir);
                }
            }
            DiskKind::RemoveDir { path, .. } => {
                let Some(dir) = self.dir(&path) else { return Err(error("rmdir", &path, 2)) };
                if !self.dirs[dir].now.is_empty() {
                    return Err(error("rmdir", &path, 39));
                }
                if let Some((parent, name)) = self.parent(&path) {
                    self.dirs[parent].now.remove(name);
                }
            }
            DiskKind::List { path, .. } => {
                let Some(dir) = self.dir(&path) else { return Err(error("list", &path, 2)) };
                let entries = self.dirs[dir].now.iter().map(|(name, node)| Entry {
                    name: name.clone(),
                    bytes: match node {
                        Node::File(inode) => self.files[*inode].now.len() as u64,
                        Node::Dir(_) => 0,
                    },
                    directory: matches!(node, Node::Dir(_)),
                });
                return Ok(DiskOk::Listed(entries.collect()));
            }
            DiskKind::Space { .. } => return Ok(DiskOk::Space { total_bytes: 1 << 40, usable_bytes: 1 << 39 }),
            DiskKind::SyncDir { path, .. } => {
                let Some(dir) = self.dir(&path) else { return Err(error("syncdir", &path, 2)) };
                self.dirs[dir].durable = self.dirs[dir].now.clone();
            }
        }
        Ok(DiskOk::Done)
    }

    /// A bit of a file turns, in what is written and in what is durable.
    pub fn rot(&mut self, path: &str, at: usize) {
        let Some((parent, name)) = self.parent(path) else { panic!("{path}") };
        let Some(Node::File(inode)) = self.dirs[parent].now.get(name) else { panic!("{path}") };
        let file = &mut self.files[*inode];
        file.now[at] ^= 4;
        file.durable = file.now.clone();
    }

    /// This bit of a file turns.
    pub fn turn_bit(&mut self, path: &str, bit: usize) {
        let Some((parent, name)) = self.parent(path) else { panic!("{path}") };
        let Some(Node::File(inode)) = self.dirs[parent].now.get(name) else { panic!("{path}") };
        let file = &mut self.files[*inode];
        file.now[bit / 8] ^= 1 << (bit % 8);
        file.durable = file.now.clone();
    }

    /// A file holds something else, nobody knows why.
    pub fn replace(&mut self, path: &str, bytes: &[u8]) {
        let Some((parent, name)) = self.parent(path) else { panic!("{path}") };
        let Some(Node::File(inode)) = self.dirs[parent].now.get(name) else { panic!("{path}") };
        let file = &mut self.files[*inode];
        (file.now, file.durable) = (bytes.to_vec(), bytes.to_vec());
    }

    /// A file is gone, nobody knows how.
    pub fn lose(&mut self, path: &str) {
        let Some((parent, name)) = self.parent(path) else { panic!("{path}") };
        let name = name.to_owned();
        self.dirs[parent].now.remove(&name);
        self.dirs[parent].durable.remove(&name);
    }

    /// What a directory holds.
    pub fn names(&self, path: &str) -> Vec<String> {
        self.dir(path).map_or(Vec::new(), |dir| self.dirs[dir].now.keys().cloned().collect())
    }

    /// A file that somebody else put into a directory of the root.
    pub fn put(&mut self, path: &str, bytes: &[u8]) {
        let (directory, name) = path.split_once('/').unwrap();
        if self.dir(directory).is_none() {
            self.dirs.push(Dir::default());
            let dir = Node::Dir(self.dirs.len() - 1);
            self.dirs[0].now.insert(directory.to_owned(), dir);
        }
        self.files.push(File::default());
        let inode = self.files.len() - 1;
        self.files[inode].now = bytes.to_vec();
        let dir = self.dir(directory).unwrap();
        self.dirs[dir].now.insert(name.to_owned(), Node::File(inode));
    }

    /// Every file's path and bytes, for looking at.
    pub fn paths(&self) -> BTreeMap<String, Vec<u8>> {
        let mut paths = BTreeMap::new();
        let mut left = vec![(String::new(), 0usize)];
        while let Some((at, dir)) = left.pop() {
            for (name, node) in &self.dirs[dir].now {
                let path = if at.is_empty() { name.clone() } else { format!("{at}/{name}") };
                match node {
                    Node::Dir(dir) => left.push((path, *dir)),
                    Node::File(inode) => {
                        paths.insert(path, self.files[*inode].now.clone());
                    }
                }
            }
        }
        paths
    }
}

fn error(operation: &'static str, path: &str, errno: i32) -> DiskError {
    DiskError { operation, path: path.to_owned(), errno }
}
