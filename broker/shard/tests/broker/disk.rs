//! A file system in memory that never fails: what these tests are about is above it.

use std::collections::BTreeMap;

use ringmain_disk::*;

#[derive(Default)]
pub struct MemoryDisk {
    files: BTreeMap<String, Vec<u8>>,
    directories: BTreeMap<String, ()>,
    open: BTreeMap<FileId, String>,
    pub fail_flushes: bool,
    /// Files that were flushed, so far: what a commit costs on a disk.
    pub flushes: usize,
}

impl MemoryDisk {
    /// Bytes of all files whose path has this in it.
    pub fn bytes_of(&self, part: &str) -> usize {
        self.files.iter().filter(|(path, _)| path.contains(part)).map(|(_, bytes)| bytes.len()).sum()
    }

    pub fn run(&mut self, op: DiskOp) -> DiskDone {
        let DiskOp { token, kind, .. } = op;
        DiskDone { token, result: self.kind(kind) }
    }

    fn missing<T>(operation: &'static str, path: &str) -> Result<T, DiskError> {
        Err(DiskError { operation, path: path.to_owned(), errno: DiskError::ENOENT })
    }

    fn file(&mut self, file: FileId) -> &mut Vec<u8> {
        let path = &self.open[&file];
        self.files.get_mut(path).expect("an open file")
    }

    fn kind(&mut self, kind: DiskKind) -> Result<DiskOk, DiskError> {
        match kind {
            DiskKind::Write { file, position, data } => {
                let bytes = self.file(file);
                let mut at = position as usize;
                for part in &data {
                    bytes.resize(bytes.len().max(at + part.len()), 0);
                    bytes[at..at + part.len()].copy_from_slice(part);
                    at += part.len();
                }
            }
            DiskKind::Flush { .. } if self.fail_flushes => {
                return Err(DiskError { operation: "flush", path: "journal".into(), errno: DiskError::EIO });
            }
            DiskKind::Read { file, position, bytes, mut into } => {
                let all = self.file(file);
                let from = (position as usize).min(all.len());
                let to = (from + bytes as usize).min(all.len());
                into.extend(&all[from..to]);
                return Ok(DiskOk::Read(into));
            }
            DiskKind::Open { file, path, create, .. } => {
                if !self.files.contains_key(&path) {
                    if !create {
                        return MemoryDisk::missing("open", &path);
                    }
                    self.files.insert(path.clone(), Vec::new());
                }
                let bytes = self.files[&path].len() as u64;
                self.open.insert(file, path);
                return Ok(DiskOk::Opened { bytes });
            }
            DiskKind::Close { file } => drop(self.open.remove(&file)),
            DiskKind::Allocate { file, from, bytes } => {
                let all = self.file(file);
                all.resize(all.len().max((from + bytes) as usize), 0);
            }
            DiskKind::Truncate { file, bytes } => self.file(file).resize(bytes as usize, 0),
            DiskKind::Rename { from, to, .. } => self.rename(&from, &to),
            DiskKind::Remove { path, .. } => match self.files.remove(&path) {
                Some(_) => {}
                None => return MemoryDisk::missing("remove", &path),
            },
            DiskKind::MakeDir { path, .. } => drop(self.directories.insert(path, ())),
            DiskKind::RemoveDir { path, .. } => drop(self.directories.remove(&path)),
            DiskKind::List { path, .. } => return self.list(&path),
            DiskKind::Space { .. } => return Ok(DiskOk::Space { total_bytes: 5000, usable_bytes: 3000 }),
            DiskKind::Flush { files, .. } => self.flushes += files.len(),
            DiskKind::SyncDir { .. } => {}
        }
        Ok(DiskOk::Done)
    }

    fn rename(&mut self, from: &str, to: &str) {
        let moved = |path: &str| match path.strip_prefix(from) {
            Some("") => Some(to.to_owned()),
            Some(rest) if rest.starts_with('/') => Some(format!("{to}{rest}")),
            _ => None,
        };
        for (path, bytes) in std::mem::take(&mut self.files) {
            self.files.insert(moved(&path).unwrap_or(path), bytes);
        }
        for (path, ()) in std::mem::take(&mut self.directories) {
            self.directories.insert(moved(&path).unwrap_or(path), ());
        }
        for path in self.open.values_mut() {
            if let Some(new) = moved(path) {
                *path = new;
            }
        }
    }

    fn list(&self, path: &str) -> Result<DiskOk, DiskError> {
        if !path.is_empty() && !self.directories.contains_key(path) {
            return MemoryDisk::missing("list", path);
        }
        let inside = |full: &str| {
            let rest = if path.is_empty() { full } else { full.strip_prefix(path)?.strip_prefix('/')? };
            (!rest.is_empty() && !rest.contains('/')).then(|| rest.to_owned())
        };
        let files = self.files.iter().filter_map(|(full, bytes)| {
            Some(Entry { name: inside(full)?, bytes: bytes.len() as u64, directory: false })
        });
        let directories =
            self.directories.keys().filter_map(|full| Some(Entry { name: inside(full)?, bytes: 0, directory: true }));
        Ok(DiskOk::Listed(files.chain(directories).collect()))
    }
}
