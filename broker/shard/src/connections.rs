//! Connections by their slots: looked up several times a request.

use ringmain_types::ConnectionId;

/// A slot has one connection at a time; an id of an earlier life, or of another shard, finds nothing.
pub(crate) struct Connections<T> {
    /// Boxed: a slot that was used once costs a pointer.
    slots: Vec<Option<Box<(ConnectionId, T)>>>,
    count: usize,
}

impl<T> Connections<T> {
    pub(crate) fn new() -> Connections<T> {
        Connections { slots: Vec::new(), count: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Whether a connection has this slot, of whatever life.
    pub(crate) fn has(&self, id: ConnectionId) -> bool {
        self.slots.get(id.slot as usize).is_some_and(Option::is_some)
    }

    /// Panics when the slot is taken.
    pub(crate) fn insert(&mut self, id: ConnectionId, connection: T) {
        let slot = id.slot as usize;
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, || None);
        }
        let before = self.slots[slot].replace(Box::new((id, connection)));
        assert!(before.is_none(), "{id:?} has the slot of another");
        self.count += 1;
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&T> {
        let (of, connection) = &**self.slots.get(id.slot as usize)?.as_ref()?;
        (*of == id).then_some(connection)
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut T> {
        let (of, connection) = &mut **self.slots.get_mut(id.slot as usize)?.as_mut()?;
        (*of == id).then_some(connection)
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<T> {
        let (_, connection) = *self.slots.get_mut(id.slot as usize)?.take_if(|entry| entry.0 == id)?;
        self.count -= 1;
        Some(connection)
    }

    /// In the order of their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnectionId, &T)> {
        self.slots.iter().flatten().map(|entry| (entry.0, &entry.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringmain_types::ShardId;

    #[test]
    fn an_id_of_another_life_or_shard_finds_nothing() {
        let id = |shard, slot, generation| ConnectionId { shard: ShardId(shard), slot, generation };
        let mut connections = Connections::new();
        connections.insert(id(1, 3, 7), 'a');
        connections.insert(id(1, 0, 2), 'b');
        for other in [id(1, 3, 6), id(0, 3, 7), id(1, 1, 0), id(1, 9, 0)] {
            assert_eq!(connections.get(other), None);
            assert_eq!(connections.remove(other), None);
        }
        assert!(connections.has(id(1, 3, 8)), "the slot is taken");
        assert_eq!(connections.iter().map(|(_, of)| *of).collect::<String>(), "ba");
        *connections.get_mut(id(1, 3, 7)).unwrap() = 'c';
        assert_eq!((connections.remove(id(1, 3, 7)), connections.len()), (Some('c'), 1));
        assert!(!connections.has(id(1, 3, 8)));
        connections.insert(id(1, 3, 8), 'd');
        assert_eq!(connections.get(id(1, 3, 8)), Some(&'d'));
    }
}
