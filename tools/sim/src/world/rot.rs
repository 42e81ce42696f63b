//! What a disk does to what it holds while nobody looks.

use super::World;
use crate::ledger::Rot;

impl World {
    /// A bit changes while nobody looks: in a journal, or in a file of a topic that clients read.
    pub(super) fn rot(&mut self) {
        let wanted =
            |path: &str| !path.starts_with("__") && (path.ends_with(".journal") || !path.starts_with("journal-"));
        // Kafka's format has no checksum over a batch's base offset, and in a compacted log its neighbours do not tell it.
        let ledger = &self.ledger;
        let spared = |path: &str, content: &[u8], at: u64| {
            path.ends_with(".log") && ledger.compacted(path) && in_base_offset(content, at as usize)
        };
        let outside = &mut self.outside;
        let Some((path, at)) = outside.disk.rot(&mut outside.random, wanted, spared) else { return };
        outside.trace.line(outside.now_ns, || "world".into(), || format!("==== rot in {path} at {at}"));
        let kind = ["journal", "log", "timeindex", "index", "snapshot"].into_iter().find(|kind| path.ends_with(kind));
        self.ledger.reach(match kind {
            Some("journal") => "rot: in a journal",
            Some("log") => "rot: in records",
            Some("timeindex" | "index") => "rot: in an index",
            Some("snapshot") => "rot: in a snapshot",
            _ => "rot: elsewhere",
        });
        self.ledger.rot = Some(Rot { path, named: false });
    }
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
