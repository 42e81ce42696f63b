//! A group of segments gives way to the one that was made of it. Its file's name says which segments those are:
//!
//! ```text
//! temporary -> <base>-<next>.swap, synced      from here on a start finishes what follows
//! -> old files removed, synced -> indexes and <base>.log renamed, synced
//! ```

use ringmain_buffer::Pool;
use ringmain_disk::{DiskKind, Entry, FileId};
use ringmain_types::*;

use super::run::{Phase, Run, Went, whole_group};
use super::{Part, Work, checkpoint};
use crate::files::{SmallFile, index_bytes};
use crate::jobs::Step;
use crate::segment::{SealedSegment, file_name, parse_file_name};
use crate::store::Store;

fn swap_name(base: Offset, next: Offset) -> String {
    format!("{:020}-{:020}.swap", base.0, next.0)
}

/// Base and end of the segments that this file takes the place of.
fn parse_swap_name(name: &str) -> Option<(Offset, Offset)> {
    let (base, next) = name.strip_suffix(".swap")?.split_once('-')?;
    let number = |text: &str| {
        let digits = text.len() == 20 && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().ok().map(Offset)).flatten()
    };
    Some((number(base)?, number(next)?)).filter(|(base, next)| base < next)
}

/// What a swap that an earlier life was cut off in still needs: none when there is no such.
pub(crate) fn unfinished(dir: DirId, path: &str, entries: &[Entry]) -> Vec<Step> {
    let mut steps = Vec::new();
    for entry in entries {
        let Some((base, next)) = parse_swap_name(&entry.name) else { continue };
        let old = entries.iter().filter(|entry| {
            parse_file_name(&entry.name).is_some_and(|(at, extension)| match extension {
                "log" | "index" | "timeindex" => base <= at && at < next,
                "snapshot" => base < at && at < next,
                _ => false,
            })
        });
        let removes = old.map(|entry| DiskKind::Remove { dir, path: format!("{path}/{}", entry.name) }).collect();
        let (from, to) = (format!("{path}/{}", entry.name), format!("{path}/{}", file_name(base, "log")));
        steps.extend([
            // The life that gave the name may have ended before that was durable: what it stands for goes only then.
            Step::of(vec![DiskKind::SyncDir { dir, path: path.to_owned() }]),
            Step::gone(removes),
            Step::of(vec![DiskKind::SyncDir { dir, path: path.to_owned() }]),
            Step::of(vec![DiskKind::Rename { dir, from, to }]),
            Step::of(vec![DiskKind::SyncDir { dir, path: path.to_owned() }]),
        ]);
    }
    steps
}

impl Store {
    /// Lets nobody begin to read the group's files, and swaps when those who did are through.
    pub(super) fn drain_step(&mut self, run: &mut Run) -> Went {
        let Some(group) = run.groups.front() else { return Went::Over };
        let (id, dir) = (run.log, self.config.dir);
        let (base, next) = (group[0].base, group[group.len() - 1].next);
        let Some(log) = self.log_mut(id).filter(|log| whole_group(log, group)) else { return Went::Over };
        if !log.compaction.holes_declared {
            return Went::Waits;
        }
        log.compaction.swapping = Some((base, next));
        let files: Vec<Option<FileId>> = group.iter().map(|part| log.sealed[&part.base].file).collect();
        if group.iter().zip(&files).any(|(part, file)| self.reads.busy(id, part.base, *file)) {
            return Went::Waits;
        }
        let Some(output) = &run.output else { return Went::Over };
        let path = &run.dir;
        let swap = format!("{path}/{}", swap_name(base, next));
        let closes = files.into_iter().flatten().map(|file| DiskKind::Close { file }).collect();
        let sync = || Step::of(vec![DiskKind::SyncDir { dir, path: path.clone() }]);
        let name = |base: Offset, extension: &str| format!("{path}/{}", file_name(base, extension));
        let rename = |from: &str, to: String| DiskKind::Rename { dir, from: from.to_owned(), to };
        let [log_path, index_path, times_path] = &output.paths;
        let indexes = vec![rename(index_path, name(base, "index")), rename(times_path, name(base, "timeindex"))];
        let steps = vec![
            Step::lenient(closes),
            Step::of(vec![rename(log_path, swap.clone())]),
            sync(),
            // One that stayed would be taken for a segment by the next start, when the swap's own name is gone.
            Step::gone(removes(dir, path, group)),
            sync(),
            Step::of(indexes),
            Step::of(vec![rename(&swap, name(base, "log"))]),
            sync(),
        ];
        if let Some(log) = self.log_mut(id) {
            for part in group {
                if let Some(segment) = log.sealed.get_mut(&part.base) {
                    segment.file = None;
                }
            }
            log.compaction.renaming = true;
        }
        run.waiting = true;
        self.compaction_job(id, steps, Work::Swapped);
        Went::Waits
    }

    /// The new file has the first one's name: from here on the log is made of it.
    pub(super) fn swapped(&mut self, run: &mut Run) {
        let (id, block) = (run.log, self.block);
        let (Some(group), Some(output)) = (run.groups.pop_front(), run.output.take()) else { return };
        run.copying_done();
        let (base, next) = (group[0].base, group[group.len() - 1].next);
        self.compaction.stats.segments_replaced += group.len() as u64;
        let Some(log) = self.log_any_mut(id) else { return };
        log.compaction.renaming = false;
        let mut cached = Vec::new();
        for part in &group {
            log.sealed.remove(&part.base);
            let firsts = log.cache.range((part.base, 0)..=(part.base, u32::MAX));
            cached.extend(firsts.map(|(at, cached)| (*at, cached.order)));
        }
        cached.iter().for_each(|(at, _)| drop(log.cache.remove(at)));
        log.giants.retain(|(of, _), _| *of < base || *of >= next);
        let (bytes, memory) = (output.bytes(), index_bytes(&output.index));
        let segment = SealedSegment {
            base,
            next,
            bytes,
            file: None,
            overwritten: bytes / block * block,
            first_timestamp: output.first_timestamp,
            max_timestamp: Some(output.index.max_timestamp().map_or(WallMs(-1), |(at, _)| at)),
            left_timestamp: None,
            index: Some(output.index),
            built_to: None,
            declared: true,
        };
        log.sealed.insert(base, segment);
        self.cache.forget(cached.into_iter().map(|(_, order)| order));
        for part in &group {
            self.reads.indexes.dropped(id, part.base);
        }
        self.reads.indexes.loaded(id, base, memory);
        self.bound_indexes(id, base);
        self.end_swap(id);
        self.reads.replaced(id, base, next);
        run.phase = if run.groups.is_empty() { Phase::Checkpoint } else { Phase::Copy };
        // Retention may have waited for it.
        self.remove_segments(id);
    }

    /// One that failed half-way never ends: the next start finishes it.
    pub(super) fn end_swap(&mut self, id: LogId) {
        if let Some(log) = self.log_any_mut(id).filter(|log| !log.compaction.renaming) {
            log.compaction.swapping = None;
        }
    }

    /// All groups are in place: the next run begins here.
    pub(super) fn clean_point_step(&mut self, pool: &mut Pool, run: &mut Run) -> Went {
        let dir = self.config.dir;
        let path = run.dir.clone();
        let Some(log) = self.log_mut(run.log) else { return Went::Over };
        log.compaction.clean_to = Some(run.mapped_to);
        let new = format!("{}.new", checkpoint::NAME);
        let bytes = checkpoint::encode(&path, run.mapped_to);
        let contents = [SmallFile { name: new.clone(), from: 0, bytes }];
        let Some(small) = self.small_files(dir, &path, &contents, pool) else { return Went::Memory };
        let mut steps = small.steps;
        steps.push(Step::of(vec![DiskKind::Flush { dir, files: small.files, after: Vec::new() }]));
        steps.push(Step::of(small.close));
        let (from, to) = (format!("{path}/{new}"), format!("{path}/{}", checkpoint::NAME));
        steps.push(Step::of(vec![DiskKind::Rename { dir, from, to }]));
        steps.push(Step::of(vec![DiskKind::SyncDir { dir, path }]));
        run.waiting = true;
        self.compaction_job(run.log, steps, Work::Checkpointed);
        Went::Waits
    }
}

/// The files that the new segment takes the place of; a snapshot within it would stand at no segment's end.
fn removes(dir: DirId, path: &str, group: &[Part]) -> Vec<DiskKind> {
    let mut names = Vec::new();
    for (number, part) in group.iter().enumerate() {
        names.extend(["log", "index", "timeindex"].map(|extension| file_name(part.base, extension)));
        if number > 0 {
            names.push(file_name(part.base, "snapshot"));
        }
    }
    names.into_iter().map(|name| DiskKind::Remove { dir, path: format!("{path}/{name}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_s_name_says_what_it_replaces() {
        assert_eq!(parse_swap_name(&swap_name(Offset(7), Offset(900))), Some((Offset(7), Offset(900))));
        let bad = [
            "00000000000000000007-00000000000000000007.swap",
            "7-9.swap",
            "00000000000000000007.swap",
            "00000000000000000007-0000000000000000000x.swap",
            "00000000000000000007-00000000000000000009.log",
            "99999999999999999999-99999999999999999999.swap",
        ];
        assert!(bad.iter().all(|name| parse_swap_name(name).is_none()));
        assert_eq!(parse_file_name(&swap_name(Offset(7), Offset(900))), None, "it is no segment's");
    }

    #[test]
    fn a_start_finishes_a_swap() {
        let names = ["0", "10", "20", "30"]
            .map(|base| ["log", "index", "timeindex", "snapshot"].map(|extension| format!("{base:0>20}.{extension}")));
        let mut names: Vec<String> = names.into_iter().flatten().collect();
        names.push(swap_name(Offset(10), Offset(30)));
        let entry = |name: &String| Entry { name: name.clone(), bytes: 1, directory: false };
        let entries: Vec<Entry> = names.iter().map(entry).collect();
        let steps = unfinished(DirId(0), "t-0", &entries);
        let shown: Vec<String> = steps.iter().flat_map(|step| &step.kinds).map(|kind| format!("{kind:?}")).collect();
        assert_eq!(shown.len(), 11, "{shown:?}");
        assert!(shown[0].starts_with("SyncDir"), "before anything goes, the name is durable");
        assert!(shown[1..8].iter().all(|kind| kind.starts_with("Remove")));
        assert!(
            !shown
                .iter()
                .any(|kind| kind.contains("00010.snapshot") || kind.contains("00030") && !kind.contains("swap"))
        );
        assert!(shown[9].contains("to: \"t-0/00000000000000000010.log\""));
        assert!(unfinished(DirId(0), "t-0", &entries[..16]).is_empty());
    }
}
