//! What a log's directory holds, against what the journal declares: which files are the log's, and what of them is to be read.

use ringmain_disk::{DiskError, Entry, FileId};
use ringmain_types::*;

use super::{Load, Loaded, Recovering, Stretch};
use crate::Damage;
use crate::entry::Checkpoint;
use crate::log::Log;
use crate::segment::{SealedSegment, file_name, parse_file_name, segment_bytes};

/// Sorts the directory's files into sealed segments, open ones and what does not belong there.
pub(super) fn look_at_files(log: &mut Log, recovering: &mut Recovering, entries: &[Entry], dir: &str) {
    let state = &recovering.state;
    let first_open = state.segments.first().map_or(Offset(0), |segment| segment.base);
    let mut bases: Vec<(Offset, u64)> = Vec::new();
    for entry in entries {
        let Some((base, extension)) = parse_file_name(&entry.name) else { continue };
        let open = state.segments.iter().any(|segment| segment.base == base);
        // A roll that an earlier life began and nobody declared leaves an empty file; what was sealed is never empty.
        let left = extension == "log" && entry.bytes == 0 && !open;
        if extension == "log" && base < first_open && !left {
            bases.push((base, entry.bytes));
        }
        let snapshot = extension == "snapshot" && state.checkpoint.as_ref().is_some_and(|c| c.offset == base);
        let declared = base < first_open && !left || open || snapshot;
        if !declared {
            recovering.garbage.push(format!("{dir}/{}", entry.name));
        }
    }
    bases.sort_unstable();
    for (at, (base, bytes)) in bases.iter().enumerate() {
        let next = bases.get(at + 1).map_or(first_open, |(next, _)| *next);
        if next <= state.start {
            for extension in ["log", "index", "timeindex", "snapshot"] {
                recovering.garbage.push(format!("{dir}/{}", file_name(*base, extension)));
            }
            continue;
        }
        let bytes = segment_bytes(*bytes);
        log.sealed.insert(
            *base,
            SealedSegment {
                base: *base,
                next,
                bytes,
                file: None,
                overwritten: 0,
                first_timestamp: None,
                max_timestamp: None,
                left_timestamp: None,
                index: None,
                built_to: None,
                declared: true,
            },
        );
    }
    let missing = state.start < first_open && log.sealed.keys().next().is_none_or(|base| *base > state.start);
    if missing {
        let path = format!("{dir}/{}", file_name(state.start, "log"));
        let error = DiskError { operation: "open", path, errno: DiskError::ENOENT };
        recovering.report.damage.push(Damage::Unreadable(error));
    }
    for segment in state.segments.iter().filter(|segment| segment.written_to > 0) {
        let name = file_name(segment.base, "log");
        let found = entries.iter().find(|entry| entry.name == name);
        if found.is_none_or(|entry| entry.bytes < u64::from(segment.written_to)) {
            let position = found.map_or(0, |entry| entry.bytes);
            recovering.report.damage.push(Damage::Rot { path: format!("{dir}/{name}"), position });
        }
    }
}

/// What is to be read: the newest snapshot, the indexes of a checkpoint, the open segments, and sealed ones behind the snapshot.
pub(super) fn plan_scan(recovering: &mut Recovering, entries: &[Entry]) {
    let state = &recovering.state;
    let first = state.segments.first();
    let first_open = first.map_or(Offset(0), |segment| segment.base);
    let plausible = |checkpoint: &Checkpoint| {
        first.is_some_and(|segment| checkpoint.base == segment.base && checkpoint.from <= segment.written_to)
    };
    recovering.distrusted |= !state.checkpoint.as_deref().is_some_and(plausible);
    let checkpoint = state.checkpoint.as_deref().filter(|_| !recovering.distrusted);
    let snapshots = entries.iter().filter_map(|entry| match parse_file_name(&entry.name) {
        Some((offset, "snapshot")) if offset <= first_open => Some(offset),
        _ => None,
    });
    let newest = snapshots.filter(|offset| !recovering.bad_snapshots.contains(offset)).max();
    let snapshot = checkpoint.map(|checkpoint| checkpoint.offset).or(newest);
    // The store gives it its number.
    let load = |what, bytes| Load { what, file: FileId(0), bytes, got: Vec::new(), unread: false };
    recovering.loads = snapshot.map(|offset| load(Loaded::Snapshot(offset), 0)).into_iter().collect();
    for (at, file) in checkpoint.iter().flat_map(|checkpoint| checkpoint.files.iter().enumerate()) {
        if file.bytes > 0 {
            recovering.loads.push_back(load(Loaded::Index(at), file.bytes));
        }
    }
    recovering.producers_from = snapshot.unwrap_or(Offset(0));
    let mut sealed: Vec<(Offset, u64)> = entries
        .iter()
        .filter_map(|entry| match parse_file_name(&entry.name) {
            Some((base, "log")) if base < first_open && entry.bytes > 0 => Some((base, entry.bytes)),
            _ => None,
        })
        .collect();
    sealed.sort_unstable();
    for (at, (base, bytes)) in sealed.iter().enumerate() {
        let next = sealed.get(at + 1).map_or(first_open, |(next, _)| *next);
        if next > state.start && snapshot.is_none_or(|snapshot| next > snapshot) {
            let bytes = segment_bytes(*bytes);
            recovering.stretches.push_back(Stretch { base: *base, file: None, bytes, open: None });
        }
    }
    for (at, segment) in state.segments.iter().enumerate() {
        let stretch = Stretch { base: segment.base, file: None, bytes: segment.written_to, open: Some(at) };
        recovering.stretches.push_back(stretch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LogConfig;
    use crate::entry::{LogState, SegmentState};
    use crate::segment::SEGMENT_BYTES_MAX;

    /// No position could name what lies behind; a reader that comes there finds no batch.
    #[test]
    fn of_a_file_that_is_longer_than_a_segment_can_be_no_more_is_looked_at() {
        let partition = Partition { topic: TopicId(1), index: PartitionIndex(0) };
        let config = LogConfig::keeping_all(1 << 20);
        let now = Now { mono: Instant(1), wall: WallMs(1) };
        let id = LogId { slot: 0, generation: 0 };
        let mut log = Log::new(id, partition, "t-0", config, &Limits::tiny(), now);
        let mut recovering = Recovering::new(LogState {
            partition,
            dir: Some("t-0".to_owned()),
            start: Offset(0),
            epochs: Vec::new(),
            segments: vec![SegmentState { base: Offset(9), written_to: 0, inline: Vec::new(), next: Offset(9) }],
            sealed: true,
            checkpoint: None,
            holes: false,
        });
        for bytes in [4 << 30, (4 << 30) + 100, u64::MAX] {
            let entries = [Entry { name: file_name(Offset(0), "log"), bytes, directory: false }];
            look_at_files(&mut log, &mut recovering, &entries, "t-0");
            assert_eq!(log.sealed[&Offset(0)].bytes, SEGMENT_BYTES_MAX);
            recovering.stretches.clear();
            plan_scan(&mut recovering, &entries);
            assert_eq!(recovering.stretches[0].bytes, SEGMENT_BYTES_MAX);
        }
    }
}
