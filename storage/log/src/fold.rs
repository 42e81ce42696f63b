//! What the groups of a journal add up to.

use std::collections::{BTreeMap, BTreeSet};

use ringmain_types::{Offset, Partition};

use crate::entry::{Checkpoint, EPOCH_BYTES, Entries, Entry, LogState, Malformed, PIECE_BYTES, Piece, SegmentState};
use crate::room::unopened_bytes;

/// An extent that the newest group tells of: it may be torn, for nobody is known to have been told of that group.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    /// The group that tells of it.
    pub group: u64,
    pub partition: Partition,
    pub base: Offset,
    pub extent_from: u32,
    pub written_to: u32,
    pub declared_from: u32,
    pub headers_crc: u32,
    /// What was inline before, from `extent_from` on: the extent must repeat it.
    pub before: Vec<u8>,
    /// What is inline now, behind `written_to`.
    pub inline: Vec<u8>,
    /// The offset of the first added batch, and the one behind the last.
    pub from: Offset,
    pub next: Offset,
}

enum Undo {
    State(Partition, Option<Box<LogState>>, Option<u64>),
    Piece { partition: Partition, base: Offset, written_to: u32, inline: Inline, next: Offset },
    Start(Partition, Offset),
    Epochs(Partition, Vec<(ringmain_types::LeaderEpoch, Offset)>),
    Rolled(Partition),
    Sealed { partition: Partition, at: usize, segment: SegmentState, sealed: bool, checkpoint: Option<Box<Checkpoint>> },
    Checkpoint(Partition, Option<Box<Checkpoint>>),
}
enum Inline {
    Cut(usize),
    Was(Vec<u8>),
}

impl Undo {
    fn partition(&self) -> Partition {
        match self {
            Undo::State(partition, ..)
            | Undo::Piece { partition, .. }
            | Undo::Start(partition, _)
            | Undo::Epochs(partition, _)
            | Undo::Rolled(partition)
            | Undo::Sealed { partition, .. }
            | Undo::Checkpoint(partition, _) => *partition,
        }
    }
}

impl Undo {
    /// Of what it puts back.
    fn bytes(&self) -> u64 {
        match self {
            Undo::State(_, before, _) => before.as_deref().map_or(0, unopened_bytes),
            Undo::Piece { inline: Inline::Was(bytes), .. } => bytes.len() as u64,
            Undo::Epochs(_, epochs) => (epochs.len() * EPOCH_BYTES) as u64,
            Undo::Sealed { segment, checkpoint, .. } => {
                let checkpoint = checkpoint.as_deref().map_or(0, Checkpoint::entry_bytes);
                (PIECE_BYTES + segment.inline.len() + checkpoint) as u64
            }
            Undo::Checkpoint(_, before) => before.as_deref().map_or(0, Checkpoint::entry_bytes) as u64,
            Undo::Piece { .. } | Undo::Start(..) | Undo::Rolled(_) => 0,
        }
    }
}

/// Groups in, in their order; states out.
#[derive(Default)]
pub(crate) struct Fold {
    pub states: BTreeMap<Partition, LogState>,
    /// The group in which each state begins.
    pub since: BTreeMap<Partition, u64>,
    /// Directories still to be removed, and the group that says so.
    pub removing: BTreeMap<String, u64>,
    /// Of the groups that were not known to be flushed when the youngest one folded was written, each with its group.
    undo: Vec<(u64, Undo)>,
    pub checks: Vec<Check>,
}

impl Fold {
    /// The entries of group `sequence`, whose header calls all up to `flushed` flushed.
    ///
    /// What it drops, it drops of all groups behind that one: a life that could not flush its first group leaves two for the next
    /// one to judge, and so on.
    pub fn group(&mut self, sequence: u64, bytes: &[u8], count: u32, flushed: u64) -> Result<(), Malformed> {
        self.sure(flushed);
        let mut entries = Entries::new(bytes, count);
        let mut drops = BTreeSet::new();
        let mut begun = false;
        while let Some(entry) = entries.next()? {
            match entry {
                // Drops come first: what they take back is the group before.
                Entry::Drop { .. } if begun => return Err(Malformed("a drop behind other entries")),
                Entry::Drop { partition } => {
                    drops.insert(partition);
                }
                entry => {
                    if !begun {
                        self.revert(&drops);
                    }
                    begun = true;
                    self.apply(sequence, entry)?;
                }
            }
        }
        if !begun {
            self.revert(&drops);
        }
        Ok(())
    }

    /// Groups up to `flushed` are durable: they need no proof, and nothing takes them back.
    pub fn sure(&mut self, flushed: u64) {
        self.undo.retain(|(group, _)| *group > flushed);
        self.checks.retain(|check| check.group > flushed);
    }

    /// Takes back what the unsure groups said of these logs.
    pub fn revert(&mut self, drops: &BTreeSet<Partition>) {
        if drops.is_empty() {
            return;
        }
        self.checks.retain(|check| !drops.contains(&check.partition));
        let mut kept = Vec::new();
        while let Some((group, step)) = self.undo.pop() {
            if drops.contains(&step.partition()) { self.undo_step(step) } else { kept.push((group, step)) }
        }
        kept.reverse();
        self.undo = kept;
    }

    /// What `revert` makes the states larger by, at most.
    pub fn taken_back_bytes(&self, drops: &BTreeSet<Partition>) -> u64 {
        let dropped = self.undo.iter().filter(|(_, step)| drops.contains(&step.partition()));
        dropped.map(|(_, step)| step.bytes()).sum()
    }

    fn undo_step(&mut self, step: Undo) {
        if let Undo::State(partition, before, since) = step {
            match (before, since) {
                (Some(before), Some(since)) => {
                    self.states.insert(partition, *before);
                    self.since.insert(partition, since);
                }
                _ => {
                    self.states.remove(&partition);
                    self.since.remove(&partition);
                }
            }
            return;
        }
        let Some(state) = self.states.get_mut(&step.partition()) else { return };
        match step {
            Undo::State(..) => {}
            Undo::Piece { base, written_to, inline, next, .. } => {
                let Some(segment) = state.segments.iter_mut().find(|segment| segment.base == base) else { return };
                segment.written_to = written_to;
                segment.next = next;
                match inline {
                    Inline::Cut(bytes) => segment.inline.truncate(bytes),
                    Inline::Was(bytes) => segment.inline = bytes,
                }
            }
            Undo::Start(_, offset) => state.start = offset,
            Undo::Epochs(_, epochs) => state.epochs = epochs,
            Undo::Rolled(_) => {
                state.segments.pop();
            }
            Undo::Sealed { at, segment, sealed, checkpoint, .. } => {
                state.segments.insert(at, segment);
                state.sealed = sealed;
                state.checkpoint = checkpoint;
            }
            Undo::Checkpoint(_, checkpoint) => state.checkpoint = checkpoint,
        }
    }

    fn apply(&mut self, sequence: u64, entry: Entry<'_>) -> Result<(), Malformed> {
        match entry {
            Entry::State { partition, dir, start, sealed, holes, epochs, pieces } => {
                let before = self.states.remove(&partition);
                for piece in &pieces {
                    let segment =
                        before.as_ref().and_then(|state| state.segments.iter().find(|s| s.base == piece.base));
                    self.check(sequence, partition, piece, segment.cloned());
                }
                let segments = pieces.iter().map(segment_of).collect();
                let dir = dir.map(str::to_owned);
                let state = LogState { partition, dir, start, epochs, segments, sealed, holes, checkpoint: None };
                self.states.insert(partition, state);
                let since = self.since.insert(partition, sequence);
                self.undo.push((sequence, Undo::State(partition, before.map(Box::new), since)));
                Ok(())
            }
            Entry::Remove { partition, dir } => {
                let before = self.states.remove(&partition);
                let since = self.since.remove(&partition);
                self.undo.push((sequence, Undo::State(partition, before.map(Box::new), since)));
                if let Some(dir) = dir {
                    self.removing.insert(dir.to_owned(), sequence);
                }
                Ok(())
            }
            Entry::Removing { dir } => {
                self.removing.insert(dir.to_owned(), sequence);
                Ok(())
            }
            Entry::Gone { dir } => {
                self.removing.remove(dir);
                Ok(())
            }
            Entry::Drop { .. } => Err(Malformed("a drop behind other entries")),
            Entry::Commit { partition, .. }
            | Entry::Start { partition, .. }
            | Entry::Epoch { partition, .. }
            | Entry::Roll { partition, .. }
            | Entry::Sealed { partition, .. }
            | Entry::Checkpoint { partition, .. } => {
                // Without a state: it stands in a younger group, which says all this again.
                if !self.states.contains_key(&partition) {
                    return Ok(());
                }
                self.change(sequence, partition, entry)
            }
        }
    }

    fn change(&mut self, sequence: u64, partition: Partition, entry: Entry<'_>) -> Result<(), Malformed> {
        let Some(state) = self.states.get_mut(&partition) else { return Ok(()) };
        match entry {
            Entry::Commit { piece, .. } => return self.commit(sequence, partition, &piece),
            Entry::Start { offset, .. } => {
                self.undo.push((sequence, Undo::Start(partition, state.start)));
                state.start = offset;
            }
            Entry::Epoch { epoch, start, .. } => {
                self.undo.push((sequence, Undo::Epochs(partition, state.epochs.clone())));
                state.epochs.push((epoch, start));
            }
            Entry::Roll { base, .. } => {
                if state.end() != base {
                    return Err(Malformed("a segment that does not join the one before"));
                }
                self.undo.push((sequence, Undo::Rolled(partition)));
                state.segments.push(SegmentState { base, next: base, ..SegmentState::default() });
            }
            Entry::Sealed { base, .. } => {
                let at = state.segments.iter().position(|segment| segment.base == base);
                let Some(at) = at.filter(|at| at + 1 < state.segments.len()) else {
                    return Err(Malformed("a segment sealed that was not open"));
                };
                let segment = state.segments.remove(at);
                let checkpoint = if at == 0 { state.checkpoint.take() } else { state.checkpoint.clone() };
                let sealed = state.sealed;
                self.undo.push((sequence, Undo::Sealed { partition, at, segment, sealed, checkpoint }));
                state.sealed = true;
            }
            Entry::Checkpoint { checkpoint, .. } => {
                let first = state.segments.first().map(|segment| (segment.base, segment.next, segment.end()));
                let fits = first.is_some_and(|(base, next, end)| {
                    base == checkpoint.base && checkpoint.offset <= next && checkpoint.position <= end
                });
                if !fits {
                    return Err(Malformed("a checkpoint of what the log does not have"));
                }
                let before = state.checkpoint.replace(checkpoint);
                self.undo.push((sequence, Undo::Checkpoint(partition, before)));
            }
            _ => {}
        }
        Ok(())
    }

    fn commit(&mut self, sequence: u64, partition: Partition, piece: &Piece<'_>) -> Result<(), Malformed> {
        let Some(state) = self.states.get_mut(&partition) else { return Ok(()) };
        let Some(segment) = state.segments.iter_mut().find(|segment| segment.base == piece.base) else {
            return Err(Malformed("a commit to a segment that is not open"));
        };
        let before = (piece.written_to > piece.extent_from).then(|| segment.clone());
        let (written_to, next) = (segment.written_to, segment.next);
        if piece.extent_from != written_to || piece.declared_from != segment.end() {
            return Err(Malformed("a commit that does not join the one before"));
        }
        let inline = if piece.inline_from == piece.written_to && piece.written_to > written_to {
            Inline::Was(std::mem::replace(&mut segment.inline, piece.inline.to_vec()))
        } else if piece.inline_from == segment.end() {
            let kept = segment.inline.len();
            segment.inline.extend(piece.inline.to_vec());
            Inline::Cut(kept)
        } else {
            return Err(Malformed("a commit whose inline bytes leave a gap"));
        };
        segment.written_to = piece.written_to;
        segment.next = piece.next;
        self.undo.push((sequence, Undo::Piece { partition, base: piece.base, written_to, inline, next }));
        if before.is_some() {
            self.check(sequence, partition, piece, before);
        }
        Ok(())
    }

    fn check(&mut self, group: u64, partition: Partition, piece: &Piece<'_>, before: Option<SegmentState>) {
        if piece.written_to == piece.extent_from {
            return;
        }
        let from = before.as_ref().map_or(piece.base, |segment| segment.next);
        self.checks.push(Check {
            group,
            partition,
            base: piece.base,
            extent_from: piece.extent_from,
            written_to: piece.written_to,
            declared_from: piece.declared_from,
            headers_crc: piece.headers_crc,
            before: before.map_or(Vec::new(), |segment| segment.inline),
            inline: piece.inline.to_vec(),
            from,
            next: piece.next,
        });
    }
}

fn segment_of(piece: &Piece<'_>) -> SegmentState {
    SegmentState { base: piece.base, written_to: piece.written_to, inline: piece.inline.to_vec(), next: piece.next }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Batches;
    use crate::said::Said;
    use ringmain_types::{LeaderEpoch, PartitionIndex, TopicId};

    const LOG: Partition = Partition { topic: TopicId(7), index: PartitionIndex(0) };

    fn piece(extent_from: u32, written_to: u32, declared_from: u32, next: i64) -> Piece<'static> {
        let inline_from = written_to;
        let (base, next) = (Offset(0), Offset(next));
        Piece {
            base,
            extent_from,
            written_to,
            declared_from,
            headers_crc: 0,
            inline_from,
            inline: Batches::Read(b""),
            next,
        }
    }

    fn fold(fold: &mut Fold, sequence: u64, flushed: u64, entries: &[Entry<'_>]) {
        let mut said = Said::default();
        entries.iter().for_each(|entry| entry.encode(&mut said));
        fold.group(sequence, &said.bytes(), entries.len() as u32, flushed).unwrap();
    }

    /// A start whose first group is never flushed leaves that group and the one before it for the next start to judge.
    #[test]
    fn a_drop_takes_back_every_group_that_was_not_flushed() {
        let mut folded = Fold::default();
        let (epochs, pieces) = (vec![(LeaderEpoch(0), Offset(0))], vec![piece(0, 512, 0, 1)]);
        let state = Entry::State {
            partition: LOG,
            dir: Some("log"),
            start: Offset(0),
            sealed: false,
            holes: false,
            epochs,
            pieces,
        };
        fold(&mut folded, 1, 0, &[state]);
        fold(&mut folded, 2, 1, &[Entry::Commit { partition: LOG, piece: piece(512, 1024, 512, 2) }]);
        // The life that wrote this one found the second group whole, and then could not flush.
        fold(&mut folded, 3, 1, &[]);
        assert_eq!(folded.checks.len(), 1, "the blocks of group 2 are still unsure");
        fold(&mut folded, 4, 1, &[Entry::Drop { partition: LOG }]);
        assert_eq!(folded.states[&LOG].segments[0].written_to, 512);
        assert!(folded.checks.is_empty());
        fold(&mut folded, 5, 4, &[Entry::Commit { partition: LOG, piece: piece(512, 1536, 512, 3) }]);
        assert_eq!(folded.states[&LOG].end(), Offset(3));
        // Group 4 is flushed: what it left standing is not taken back any more.
        fold(&mut folded, 6, 5, &[Entry::Drop { partition: LOG }]);
        assert_eq!(folded.states[&LOG].end(), Offset(3));
    }
}
