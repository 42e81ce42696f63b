//! What a disk does to what it holds while nobody looks: a bit turns, or a write turns out to have gone elsewhere. Either way in a journal
//! or in files of a topic that clients read.

use std::collections::BTreeSet;

use ringmain_batch::{BatchHeader, crc_ok};
use ringmain_log::{inspect, snapshot};
use ringmain_types::Offset;

use super::World;
use crate::disk::Touched;
use crate::faults::WIDE_FROM;
use crate::ledger::Rot;

/// What the ends of names say of what files hold. Indexes have no checksum: what is wrong in them has the most ways to be believed.
const ROTS: [&str; 8] = [".journal", ".log", ".index", ".index", ".index", ".timeindex", ".snapshot", ""];

fn wanted(path: &str) -> bool {
    !path.starts_with("__") && (path.ends_with(".journal") || !path.starts_with("journal-"))
}

impl World {
    pub(super) fn rot(&mut self) {
        if self.plan.misdirects {
            return self.misdirect();
        }
        // Kafka's format has no checksum over a batch's base offset, and in a compacted log its neighbours do not tell it.
        let ledger = &self.ledger;
        let spared = |path: &str, content: &[u8], at: u64| {
            path.ends_with(".log") && ledger.compacted(path) && in_base_offset(content, at as usize)
        };
        let outside = &mut self.outside;
        // By kind, however few files of it there are.
        let kind = (self.plan.seed >= WIDE_FROM).then(|| ROTS[outside.random.below(ROTS.len() as u64) as usize]);
        let of_kind = |path: &str| wanted(path) && kind.is_none_or(|kind| path.ends_with(kind));
        let rotten = outside.disk.rot(&mut outside.random, of_kind, spared);
        let Some((path, at)) = rotten.or_else(|| outside.disk.rot(&mut outside.random, wanted, spared)) else { return };
        outside.trace.line(outside.now_ns, || "world".into(), || format!("==== rot in {path} at {at}"));
        let kind = ["journal", "log", "timeindex", "index", "snapshot"].into_iter().find(|kind| path.ends_with(kind));
        self.ledger.reach(match kind {
            Some("journal") => "rot: in a journal",
            Some("log") => "rot: in records",
            Some("timeindex" | "index") => "rot: in an index",
            Some("snapshot") => "rot: in a snapshot",
            _ => "rot: elsewhere",
        });
        self.ledger.rot = Some(Rot { paths: vec![path], named: BTreeSet::new(), fatal: false });
    }

    fn misdirect(&mut self) {
        let (outside, ledger) = (&mut self.outside, &self.ledger);
        let told = |touched: &Touched| nobody_can_tell(touched, ledger.compacted(&touched.path));
        // Of journals the model does not yet know all that follows (DESIGN.md).
        let wanted = |path: &str| wanted(path) && !path.ends_with(".journal");
        let (touched, spared) = outside.disk.misdirect(&mut outside.random, wanted, told);
        for _ in 0..spared {
            self.ledger.reach("misdirected: spared");
        }
        for touched in &touched {
            let what = || format!("==== misdirected: {} at {}, missing: {}", touched.path, touched.at, touched.missing);
            outside.trace.line(outside.now_ns, || "world".into(), what);
            let kind = ["journal", "log", "timeindex", "index"].into_iter().find(|kind| touched.path.ends_with(kind));
            self.ledger.reach(match (kind, touched.missing) {
                (Some("journal"), true) => "misdirected: missing in a journal",
                (Some("journal"), false) => "misdirected: a copy in a journal",
                (Some("log"), true) => "misdirected: missing in records",
                (Some("log"), false) => "misdirected: a copy in records",
                (Some(_), true) => "misdirected: missing in an index",
                (Some(_), false) => "misdirected: a copy in an index",
                (None, true) => "misdirected: missing elsewhere",
                (None, false) => "misdirected: a copy elsewhere",
            });
        }
        if !touched.is_empty() {
            let journals = format!("journal-{}/", self.layout.generation);
            let fatal = touched.iter().filter(|touched| touched.path.starts_with(&journals)).any(breaks_journal);
            let paths = touched.into_iter().map(|touched| touched.path).collect();
            self.ledger.rot = Some(Rot { paths, named: BTreeSet::new(), fatal });
        }
    }
}

/// Whether a group that is needed is gone, or not where it was: all but the newest, which says only that the one before is flushed. When the
/// newest went too, one that stands elsewhere follows on nothing, and all that it says still counts.
fn breaks_journal(touched: &Touched) -> bool {
    let groups = |bytes: &[u8]| {
        let report = inspect::journal(bytes).ok()?;
        Some(report.groups.iter().map(|group| (group.sequence, group.position)).collect::<Vec<_>>())
    };
    let Some(before) = groups(&touched.before) else { return false };
    let after = groups(&touched.after).unwrap_or_default();
    let Some((newest, older)) = before.split_last() else { return false };
    let all = |(sequence, _): &(u64, u64)| after.iter().any(|(there, _)| there == sequence);
    !older.iter().all(all) || after.contains(newest) && !older.iter().all(|group| after.contains(group))
}

/// What the formats leave without a word that could be held against it:
/// - the newest group of a journal that was never written: what is left is a journal that ended before it;
/// - a batch, whole and sound, in the place of another one that begins with the same offset (behind the one before, in a compacted log):
///   Kafka's batches do not say of which log they are;
/// - a producers' snapshot, whole and sound, of another log or another offset;
/// - the text files, which have no checksums, when what they say can be read.
fn nobody_can_tell(touched: &Touched, compacted: bool) -> bool {
    match touched.path.rsplit('.').next() {
        Some("journal") => touched.missing && touched.last,
        Some("log") => {
            let name = touched.path.rsplit('/').next().and_then(|name| name.split('.').next());
            let base = name.and_then(|name| name.parse().ok()).map_or(Offset(0), Offset);
            batch_replaced(&touched.before, &touched.after, compacted.then_some(base))
        }
        Some("snapshot") => snapshot::decode(&touched.after).is_ok(),
        _ => false,
    }
}

/// Whether a reader that looks where a batch was finds another one that fits. Of a compacted log, with its segment's base.
fn batch_replaced(before: &[u8], after: &[u8], compacted: Option<Offset>) -> bool {
    let (mut begin, mut follows) = (0, compacted);
    while let Ok(header) = BatchHeader::parse(&before[begin..]) {
        let end = begin + header.info.bytes as usize;
        let Some(batch) = before.get(begin..end) else { break };
        let found = BatchHeader::parse(&after[begin..]).ok().and_then(|found| {
            let whole = after.get(begin..begin + found.info.bytes as usize)?;
            (crc_ok(whole) && whole != batch).then_some(found.base)
        });
        if found.is_some_and(|base| base == header.base || follows.is_some_and(|follows| base >= follows)) {
            return true;
        }
        follows = follows.map(|_| header.next());
        begin = end;
    }
    false
}

/// Whether a segment's byte is of a batch's base offset.
fn in_base_offset(segment: &[u8], byte: usize) -> bool {
    let mut begin = 0;
    while let Some(&[a, b, c, d]) = segment.get(begin + 8..begin + 12) {
        if (begin..begin + 8).contains(&byte) {
            return true;
        }
        begin += 12 + u32::from_be_bytes([a, b, c, d]) as usize;
    }
    false
}
