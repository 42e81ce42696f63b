//! Which file a `FileId` is: its path, and its descriptor while one is open. A bounded number of them is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use ringmain_disk::{DiskToken, FileId};
use ringmain_types::DirId;

pub(crate) struct FileState {
    pub(crate) dir: DirId,
    /// Follows renames.
    pub(crate) path: String,
    pub(crate) descriptor: Option<OwnedFd>,
    pub(crate) opening: bool,
    /// Operations that use the descriptor now.
    pub(crate) users: u32,
    /// Operations that wait for it, by slot.
    pub(crate) waiting: Vec<u32>,
    /// Buffered writes since the last flush: the descriptor stays, so that a failed write-back is reported through it.
    pub(crate) dirty: bool,
    /// Its name is gone or another file's: it can't be opened again.
    pub(crate) unnamed: bool,
    /// Close was asked; done once nothing uses it.
    pub(crate) close: Option<DiskToken>,
    /// Its place in the order of last use, while idle.
    stamp: u64,
}

#[derive(Default)]
pub(crate) struct FileTable {
    files: HashMap<FileId, FileState>,
    names: BTreeSet<(DirId, String, FileId)>,
    /// Open, unused and clean: last used first to go.
    idle: BTreeMap<u64, FileId>,
    clock: u64,
    open: u32,
}

impl FileTable {
    /// False when the id is taken.
    pub(crate) fn insert(&mut self, file: FileId, dir: DirId, path: String) -> bool {
        if self.files.contains_key(&file) {
            return false;
        }
        self.names.insert((dir, path.clone(), file));
        let state = FileState {
            dir,
            path,
            descriptor: None,
            opening: true,
            users: 0,
            waiting: Vec::new(),
            dirty: false,
            unnamed: false,
            close: None,
            stamp: 0,
        };
        self.files.insert(file, state);
        true
    }

    pub(crate) fn get(&self, file: FileId) -> Option<&FileState> {
        self.files.get(&file)
    }

    pub(crate) fn get_mut(&mut self, file: FileId) -> Option<&mut FileState> {
        self.files.get_mut(&file)
    }

    pub(crate) fn open(&self) -> u32 {
        self.open
    }

    /// Counts one more user. `None` when it has no descriptor now.
    pub(crate) fn acquire(&mut self, file: FileId) -> Option<RawFd> {
        let state = self.files.get_mut(&file)?;
        let descriptor = state.descriptor.as_ref()?.as_raw_fd();
        if state.users == 0 {
            self.idle.remove(&state.stamp);
        }
        state.users += 1;
        Some(descriptor)
    }

    pub(crate) fn release(&mut self, file: FileId) {
        let Some(state) = self.files.get_mut(&file) else { return };
        assert!(state.users > 0);
        state.users -= 1;
        self.rest(file);
    }

    /// Enters it among the idle when it is.
    pub(crate) fn rest(&mut self, file: FileId) {
        let Some(state) = self.files.get_mut(&file) else { return };
        if state.users == 0 && state.descriptor.is_some() && !state.dirty && state.close.is_none() {
            self.idle.remove(&state.stamp);
            self.clock += 1;
            state.stamp = self.clock;
            self.idle.insert(self.clock, file);
        }
    }

    pub(crate) fn opened(&mut self, file: FileId, descriptor: OwnedFd) {
        let Some(state) = self.files.get_mut(&file) else { return };
        state.opening = false;
        state.descriptor = Some(descriptor);
        self.open += 1;
    }

    /// The descriptor of the file that was idle for the longest time.
    pub(crate) fn evict(&mut self) -> Option<OwnedFd> {
        let (_, file) = self.idle.pop_first()?;
        self.open -= 1;
        self.files.get_mut(&file)?.descriptor.take()
    }

    pub(crate) fn remove(&mut self, file: FileId) -> Option<FileState> {
        let state = self.files.remove(&file)?;
        self.idle.remove(&state.stamp);
        self.names.remove(&(state.dir, state.path.clone(), file));
        if state.descriptor.is_some() {
            self.open -= 1;
        }
        Some(state)
    }

    /// `path` and what lies below it is gone.
    pub(crate) fn removed(&mut self, dir: DirId, path: &str) {
        for (_, file) in self.at_or_below(dir, path) {
            if let Some(state) = self.files.get_mut(&file) {
                state.unnamed = true;
            }
        }
    }

    /// Open files follow: those of `from` and, when that is a directory, those in it. Those of `to` were replaced.
    pub(crate) fn renamed(&mut self, dir: DirId, from: &str, to: &str) {
        self.removed(dir, to);
        for (path, file) in self.at_or_below(dir, from) {
            let Some(state) = self.files.get_mut(&file) else { continue };
            if state.unnamed {
                continue;
            }
            let path_now = format!("{to}{}", &path[from.len()..]);
            self.names.remove(&(dir, path, file));
            self.names.insert((dir, path_now.clone(), file));
            state.path = path_now;
        }
    }

    fn at_or_below(&self, dir: DirId, path: &str) -> Vec<(String, FileId)> {
        let below = format!("{path}/");
        let exact =
            self.names.range((dir, path.to_string(), FileId(0))..).take_while(|(d, name, _)| *d == dir && name == path);
        let inside = self
            .names
            .range((dir, below.clone(), FileId(0))..)
            .take_while(|(d, name, _)| *d == dir && name.starts_with(&below));
        exact.chain(inside).map(|(_, name, file)| (name.clone(), *file)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(names: &[&str]) -> FileTable {
        let mut table = FileTable::default();
        for (id, name) in names.iter().enumerate() {
            assert!(table.insert(FileId(id as u64), DirId(0), name.to_string()));
        }
        table
    }
    fn path(table: &FileTable, id: u64) -> &str {
        &table.get(FileId(id)).unwrap().path
    }

    #[test]
    fn open_files_follow_their_directory_and_no_neighbour_does() {
        let mut table = table(&["a-1/0.log", "a-1/0.index", "a-10/0.log", "a-1.x"]);
        table.renamed(DirId(0), "a-1", "b-1");
        assert_eq!([0, 1, 2, 3].map(|id| path(&table, id)), ["b-1/0.log", "b-1/0.index", "a-10/0.log", "a-1.x"]);
        table.renamed(DirId(1), "b-1", "c");
        assert_eq!(path(&table, 0), "b-1/0.log", "another log directory");
    }

    #[test]
    fn a_replaced_file_keeps_its_descriptor_only() {
        let mut table = table(&["new", "old"]);
        table.renamed(DirId(0), "new", "old");
        assert_eq!(path(&table, 0), "old");
        assert!(!table.get(FileId(0)).unwrap().unnamed);
        assert!(table.get(FileId(1)).unwrap().unnamed);
        table.removed(DirId(0), "old");
        assert!(table.get(FileId(0)).unwrap().unnamed);
    }

    #[test]
    fn the_longest_idle_goes_first_and_one_in_use_never() {
        let mut table = table(&["a", "b", "c"]);
        for id in 0..3 {
            table.opened(FileId(id), std::fs::File::open("/dev/null").unwrap().into());
            table.rest(FileId(id));
        }
        table.acquire(FileId(0)).unwrap();
        table.acquire(FileId(1)).unwrap();
        table.release(FileId(1));
        assert_eq!(table.open(), 3);
        assert!(table.evict().is_some());
        assert!(table.get(FileId(2)).unwrap().descriptor.is_none());
        assert!(table.evict().is_some());
        assert!(table.get(FileId(1)).unwrap().descriptor.is_none());
        assert!(table.evict().is_none());
        assert_eq!(table.open(), 1);
    }
}
