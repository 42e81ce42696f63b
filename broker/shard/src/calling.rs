//! Which calls of others are being served, by who asked and the slot: a slot is used again only when its call was answered.

use crate::mesh::CallId;
use crate::slab::Key;

/// Grows to what callers use of their `calls_inflight_max` slots.
#[derive(Default)]
pub(crate) struct Calling {
    /// By the calling shard, then by its slot: the call's generation, and what serves it.
    of: Vec<Vec<Option<(u32, Key)>>>,
}

impl Calling {
    pub(crate) fn insert(&mut self, id: CallId, serve: Key) {
        let (from, slot) = (usize::from(id.from.0), usize::from(id.slot));
        if self.of.len() <= from {
            self.of.resize_with(from + 1, Vec::new);
        }
        let slots = &mut self.of[from];
        if slots.len() <= slot {
            slots.resize(slot + 1, None);
        }
        let before = slots[slot].replace((id.generation, serve));
        assert!(before.is_none(), "a call for each slot");
    }

    pub(crate) fn get(&self, id: CallId) -> Option<Key> {
        let slots = self.of.get(usize::from(id.from.0))?;
        let (generation, serve) = (*slots.get(usize::from(id.slot))?)?;
        (generation == id.generation).then_some(serve)
    }

    pub(crate) fn remove(&mut self, id: CallId) {
        if self.get(id).is_some() {
            self.of[usize::from(id.from.0)][usize::from(id.slot)] = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;
    use ringmain_types::ShardId;

    #[test]
    fn a_call_is_found_by_its_whole_id() {
        let id = |from, slot, generation| CallId { from: ShardId(from), to: ShardId(0), slot, generation };
        let mut serves = Slab::new();
        let (first, second) = (serves.insert('a'), serves.insert('b'));
        let mut calling = Calling::default();
        calling.insert(id(1, 4, 9), first);
        calling.insert(id(0, 4, 9), second);
        assert_eq!((calling.get(id(1, 4, 9)), calling.get(id(0, 4, 9))), (Some(first), Some(second)));
        calling.remove(id(1, 4, 8));
        assert_eq!(calling.get(id(1, 4, 8)), None, "an earlier call");
        assert_eq!(calling.get(id(1, 4, 9)), Some(first));
        calling.remove(id(1, 4, 9));
        assert_eq!((calling.get(id(1, 4, 9)), calling.get(id(7, 0, 0))), (None, None));
        calling.insert(id(1, 4, 10), second);
        assert_eq!(calling.get(id(1, 4, 10)), Some(second));
    }
}
