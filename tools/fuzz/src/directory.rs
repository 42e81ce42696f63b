//! A directory in memory, which does what it is asked, in order. Faults are the fuzzer's: it changes files between two lives.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringmain_disk::{DiskDone, DiskError, DiskKind, DiskOk, DiskOp, Entry, FileId};

/// What is there while nobody has it open.
#[derive(Clone, Debug, Default)]
pub struct Image {
    pub dirs: BTreeSet<String>,
    pub files: BTreeMap<String, Vec<u8>>,
}

#[derive(Default)]
pub struct Disk {
    dirs: BTreeSet<String>,
    names: BTreeMap<String, usize>,
    /// Their bytes; a removed file keeps its place.
    files: Vec<Vec<u8>>,
    open: BTreeMap<FileId, usize>,
    waiting: VecDeque<DiskOp>,
}

fn error(operation: &'static str, path: &str, errno: i32) -> DiskError {
    DiskError { operation, path: path.to_owned(), errno }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

const EEXIST: i32 = 17;
const EBADF: i32 = 9;
const EISDIR: i32 = 21;
const ENOTEMPTY: i32 = 39;
/// No file of a target is longer: a length that a damaged file made up must not fill the memory.
const FILE_BYTES_MAX: u64 = 8 << 20;

impl Disk {
    pub fn new(image: &Image) -> Disk {
        let mut disk = Disk { dirs: image.dirs.clone(), ..Disk::default() };
        for (path, bytes) in &image.files {
            disk.names.insert(path.clone(), disk.files.len());
            disk.files.push(bytes.clone());
        }
        disk
    }

    pub fn image(&self) -> Image {
        let files = self.names.iter().map(|(path, at)| (path.clone(), self.files[*at].clone()));
        Image { dirs: self.dirs.clone(), files: files.collect() }
    }

    pub fn submit(&mut self, operations: Vec<DiskOp>) {
        self.waiting.extend(operations);
    }

    pub fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Completes the oldest operation.
    pub fn step(&mut self) -> Option<DiskDone> {
        let op = self.waiting.pop_front()?;
        Some(DiskDone { token: op.token, result: self.perform(op.kind) })
    }

    fn file(&mut self, operation: &'static str, file: FileId) -> Result<&mut Vec<u8>, DiskError> {
        let at = self.open.get(&file).copied().ok_or_else(|| error(operation, "", EBADF))?;
        Ok(&mut self.files[at])
    }

    fn exists(&self, dir: &str) -> bool {
        dir.is_empty() || self.dirs.contains(dir)
    }

    fn lengthen(&mut self, file: FileId, bytes: u64) -> Result<&mut Vec<u8>, DiskError> {
        if bytes > FILE_BYTES_MAX {
            return Err(error("write", "", DiskError::ENOSPC));
        }
        let file = self.file("write", file)?;
        if (file.len() as u64) < bytes {
            file.resize(bytes as usize, 0);
        }
        Ok(file)
    }

    fn perform(&mut self, kind: DiskKind) -> Result<DiskOk, DiskError> {
        match kind {
            DiskKind::Write { file, position, data } => {
                let bytes = data.concat();
                let file = self.lengthen(file, position + bytes.len() as u64)?;
                file[position as usize..position as usize + bytes.len()].copy_from_slice(&bytes);
            }
            DiskKind::Flush { files, .. } => {
                for file in files {
                    self.file("flush", file)?;
                }
            }
            DiskKind::Read { file, position, bytes, mut into } => {
                let file = self.file("read", file)?;
                let from = (position.min(file.len() as u64)) as usize;
                let to = (position.saturating_add(u64::from(bytes))).min(file.len() as u64) as usize;
                into.extend(&file[from..to]);
                return Ok(DiskOk::Read(into));
            }
            DiskKind::Open { file, path, create, .. } => return self.opened(file, path, create),
            DiskKind::Close { file } => drop(self.open.remove(&file)),
            DiskKind::Allocate { file, from, bytes } => drop(self.lengthen(file, from.saturating_add(bytes))?.len()),
            DiskKind::Truncate { file, bytes } => {
                self.lengthen(file, bytes)?.truncate(bytes as usize);
            }
            DiskKind::Rename { from, to, .. } => self.rename(&from, &to)?,
            DiskKind::Remove { path, .. } => {
                self.names.remove(&path).ok_or_else(|| error("remove", &path, DiskError::ENOENT))?;
            }
            DiskKind::MakeDir { path, .. } => {
                if !self.exists(parent(&path)) {
                    return Err(error("mkdir", &path, DiskError::ENOENT));
                }
                if self.names.contains_key(&path) {
                    return Err(error("mkdir", &path, EEXIST));
                }
                self.dirs.insert(path);
            }
            DiskKind::RemoveDir { path, .. } => {
                if !self.dirs.contains(&path) {
                    return Err(error("rmdir", &path, DiskError::ENOENT));
                }
                if !self.list(&path).is_empty() {
                    return Err(error("rmdir", &path, ENOTEMPTY));
                }
                self.dirs.remove(&path);
            }
            DiskKind::List { path, .. } => {
                if !self.exists(&path) {
                    return Err(error("list", &path, DiskError::ENOENT));
                }
                return Ok(DiskOk::Listed(self.list(&path)));
            }
            DiskKind::Space { .. } => return Ok(DiskOk::Space { total_bytes: 1 << 40, usable_bytes: 1 << 39 }),
            DiskKind::SyncDir { path, .. } => {
                if !self.exists(&path) {
                    return Err(error("syncdir", &path, DiskError::ENOENT));
                }
            }
        }
        Ok(DiskOk::Done)
    }

    fn opened(&mut self, file: FileId, path: String, create: bool) -> Result<DiskOk, DiskError> {
        if self.dirs.contains(&path) {
            return Err(error("open", &path, EISDIR));
        }
        let at = match self.names.get(&path) {
            Some(at) => *at,
            None if create && self.exists(parent(&path)) => {
                self.files.push(Vec::new());
                self.names.insert(path, self.files.len() - 1);
                self.files.len() - 1
            }
            None => return Err(error("open", &path, DiskError::ENOENT)),
        };
        self.open.insert(file, at);
        Ok(DiskOk::Opened { bytes: self.files[at].len() as u64 })
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        if !self.exists(parent(to)) {
            return Err(error("rename", to, DiskError::ENOENT));
        }
        if let Some(at) = self.names.remove(from) {
            self.names.insert(to.to_owned(), at);
            return Ok(());
        }
        if !self.dirs.remove(from) {
            return Err(error("rename", from, DiskError::ENOENT));
        }
        if !self.list(to).is_empty() {
            return Err(error("rename", to, ENOTEMPTY));
        }
        self.dirs.insert(to.to_owned());
        let inside = format!("{from}/");
        let moved: Vec<String> = self.names.keys().filter(|path| path.starts_with(&inside)).cloned().collect();
        for path in moved {
            if let Some(at) = self.names.remove(&path) {
                self.names.insert(format!("{to}/{}", &path[inside.len()..]), at);
            }
        }
        Ok(())
    }

    fn list(&self, path: &str) -> Vec<Entry> {
        let name = |one: &str| one.rsplit('/').next().unwrap_or(one).to_owned();
        let files = self.names.iter().filter(|(one, _)| parent(one) == path);
        let files =
            files.map(|(one, at)| Entry { name: name(one), bytes: self.files[*at].len() as u64, directory: false });
        let dirs = self.dirs.iter().filter(|one| parent(one) == path);
        let dirs = dirs.map(|one| Entry { name: name(one), bytes: 0, directory: true });
        files.chain(dirs).collect()
    }
}
