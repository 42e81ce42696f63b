//! The names of a file system. A change of a name is durable only after its directory was synced; until then a power loss may undo
//! each change on its own.

use std::collections::BTreeMap;

use ringmain_disk::{DiskError, Entry};

use crate::random::Random;

const ENOTEMPTY: i32 = 39;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Inode(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    Directory,
    File(Inode),
}

#[derive(Clone, Debug)]
pub enum Change {
    Create {
        path: String,
        inode: Inode,
    },
    MakeDirectory {
        path: String,
    },
    Remove {
        path: String,
    },
    RemoveDirectory {
        path: String,
    },
    /// One step: a file system with a journal never shows both names, or neither. Durable with the directory of `to`.
    Rename {
        from: String,
        to: String,
    },
}

impl Change {
    fn directory(&self) -> &str {
        match self {
            Change::Create { path, .. }
            | Change::MakeDirectory { path }
            | Change::Remove { path }
            | Change::RemoveDirectory { path } => parent(path),
            Change::Rename { to, .. } => parent(to),
        }
    }
}

pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

#[derive(Clone, Default, Debug)]
struct Tree(BTreeMap<String, Node>);

impl Tree {
    fn directory(&self, path: &str) -> bool {
        path.is_empty() || self.0.get(path) == Some(&Node::Directory)
    }

    fn empty(&self, directory: &str) -> bool {
        !self.0.keys().any(|path| inside(path, directory))
    }

    /// False when it can't be done: the caller answers with an error, or, after a power loss, what it stood on is gone.
    fn apply(&mut self, change: &Change) -> Result<(), i32> {
        const ENOTDIR: i32 = 20;
        if !self.directory(change.directory()) {
            return Err(DiskError::ENOENT);
        }
        match change {
            Change::Create { path, inode } => {
                self.0.insert(path.clone(), Node::File(*inode));
            }
            Change::MakeDirectory { path } => match self.0.get(path) {
                Some(Node::File(_)) => return Err(ENOTDIR),
                _ => {
                    self.0.insert(path.clone(), Node::Directory);
                }
            },
            Change::Remove { path } => match self.0.get(path) {
                Some(Node::File(_)) => {
                    self.0.remove(path);
                }
                _ => return Err(DiskError::ENOENT),
            },
            Change::RemoveDirectory { path } => match self.0.get(path) {
                Some(Node::Directory) if self.empty(path) => {
                    self.0.remove(path);
                }
                Some(Node::Directory) => return Err(ENOTEMPTY),
                _ => return Err(DiskError::ENOENT),
            },
            Change::Rename { from, to } => self.rename(from, to)?,
        }
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), i32> {
        // A directory that holds something is never replaced.
        if self.0.get(to) == Some(&Node::Directory) && !self.empty(to) {
            return Err(ENOTEMPTY);
        }
        let Some(node) = self.0.remove(from) else { return Err(DiskError::ENOENT) };
        if node == Node::Directory {
            let below: Vec<String> = self.0.keys().filter(|path| under(path, from)).cloned().collect();
            for path in below {
                let node = self.0.remove(&path).expect("it was listed just now");
                self.0.insert(format!("{to}{}", &path[from.len()..]), node);
            }
        }
        self.0.insert(to.to_string(), node);
        Ok(())
    }
}

/// Directly in.
fn inside(path: &str, directory: &str) -> bool {
    let name = match directory {
        "" => Some(path),
        _ => path.strip_prefix(directory).and_then(|rest| rest.strip_prefix('/')),
    };
    name.is_some_and(|name| !name.contains('/'))
}
/// Anywhere below.
fn under(path: &str, directory: &str) -> bool {
    path.len() > directory.len() && path.starts_with(directory) && path.as_bytes()[directory.len()] == b'/'
}

#[derive(Debug)]
struct Pending {
    change: Change,
    /// As long as its directory is not synced; none: synced, but behind a change that is not.
    directory: Option<String>,
}

#[derive(Default, Debug)]
pub struct Names {
    current: Tree,
    /// What a power loss leaves if it undoes all that it may.
    durable: Tree,
    /// Since `durable`, in order.
    changes: Vec<Pending>,
}

impl Names {
    pub fn find(&self, path: &str) -> Option<Node> {
        self.current.0.get(path).copied()
    }

    pub fn change(&mut self, change: Change) -> Result<(), i32> {
        self.current.apply(&change)?;
        let directory = Some(change.directory().to_owned());
        self.changes.push(Pending { change, directory });
        Ok(())
    }

    /// How many changes there are so far: a sync covers those that were made before it started.
    pub fn mark(&self) -> usize {
        self.changes.len()
    }

    pub fn exists(&self, directory: &str) -> bool {
        self.current.directory(directory)
    }

    /// Changes in `directory` among the first `mark` are durable.
    pub fn synced(&mut self, directory: &str, mark: usize) {
        for pending in self.changes.iter_mut().take(mark) {
            pending.directory.take_if(|open| open == directory);
        }
        if self.changes.iter().all(|pending| pending.directory.is_none()) {
            self.durable = self.current.clone();
            self.changes.clear();
        }
    }

    /// Like a real directory: in no order that means anything, but here always the same.
    pub fn list(&self, directory: &str, size: impl Fn(Inode) -> u64) -> Result<Vec<Entry>, i32> {
        if !self.current.directory(directory) {
            return Err(DiskError::ENOENT);
        }
        let entries = self.current.0.iter().filter(|(path, _)| inside(path, directory));
        let entry = |(path, node): (&String, &Node)| {
            let name = path.rsplit('/').next().unwrap_or(path).to_string();
            match node {
                Node::Directory => Entry { name, bytes: 0, directory: true },
                Node::File(inode) => Entry { name, bytes: size(*inode), directory: false },
            }
        };
        Ok(entries.map(entry).collect())
    }

    /// Each change that was not synced is kept or undone on its own; what stood on an undone one goes with it.
    pub fn lose_power(&mut self, random: &mut Random) {
        let mut tree = std::mem::take(&mut self.durable);
        for Pending { change, directory } in self.changes.drain(..) {
            if directory.is_none() || random.chance(0.5) {
                // A change whose ground was undone can't be made: that is the undoing.
                let _ = tree.apply(&change);
            }
        }
        self.current = tree.clone();
        self.durable = tree;
    }

    pub fn paths(&self) -> impl Iterator<Item = (&str, Node)> {
        self.current.0.iter().map(|(path, node)| (path.as_str(), *node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(path: &str, inode: u32) -> Change {
        Change::Create { path: path.into(), inode: Inode(inode) }
    }

    /// The outcomes of a power loss over many seeds: which of `paths` were there.
    fn outcomes(make: impl Fn() -> Names, paths: &[&str]) -> std::collections::BTreeSet<Vec<bool>> {
        (0..200)
            .map(|seed| {
                let mut names = make();
                names.lose_power(&mut Random::new(seed));
                paths.iter().map(|path| names.find(path).is_some()).collect()
            })
            .collect()
    }

    #[test]
    fn unsynced_names_come_and_go_on_their_own() {
        let make = || {
            let mut names = Names::default();
            names.change(create("a", 1)).unwrap();
            names.change(create("b", 2)).unwrap();
            names
        };
        assert_eq!(outcomes(make, &["a", "b"]).len(), 4);
        let synced = || {
            let mut names = make();
            names.synced("", names.mark());
            names
        };
        assert_eq!(outcomes(synced, &["a", "b"]).len(), 1);
    }

    #[test]
    fn a_sync_covers_its_directory_only() {
        let make = || {
            let mut names = Names::default();
            names.change(Change::MakeDirectory { path: "d".into() }).unwrap();
            names.change(create("d/a", 1)).unwrap();
            names.synced("d", names.mark());
            names
        };
        let seen = outcomes(make, &["d", "d/a"]);
        assert!(seen.contains(&vec![false, false]) && seen.contains(&vec![true, true]) && seen.len() == 2, "{seen:?}");
    }

    #[test]
    fn a_rename_is_one_step() {
        let make = || {
            let mut names = Names::default();
            names.change(create("new", 1)).unwrap();
            names.change(create("name", 2)).unwrap();
            names.synced("", names.mark());
            names.change(Change::Rename { from: "new".into(), to: "name".into() }).unwrap();
            assert_eq!(names.find("name"), Some(Node::File(Inode(1))));
            names
        };
        let seen = outcomes(make, &["new", "name"]);
        assert!(seen.contains(&vec![true, true]) && seen.contains(&vec![false, true]) && seen.len() == 2);
    }

    #[test]
    fn a_directory_moves_with_what_it_holds() {
        let mut names = Names::default();
        names.change(Change::MakeDirectory { path: "d".into() }).unwrap();
        names.change(create("d/a", 1)).unwrap();
        names.change(Change::Rename { from: "d".into(), to: "e".into() }).unwrap();
        assert_eq!(names.find("e/a"), Some(Node::File(Inode(1))));
        assert_eq!(names.find("d/a"), None);
        assert!(names.change(Change::RemoveDirectory { path: "e".into() }).is_err());
        names.change(Change::MakeDirectory { path: "f".into() }).unwrap();
        let onto_it = Change::Rename { from: "f".into(), to: "e".into() };
        assert_eq!(names.change(onto_it), Err(ENOTEMPTY));
        assert!(names.change(create("d/b", 2)).is_err());
    }
}
