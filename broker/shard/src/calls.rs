//! Calls that this shard made: a bounded number of slots per peer, and a bounded queue of those that wait for one.
//!
//! A slot is free again when its return came, never earlier: that is what leaves room for every return. A caller that gives up
//! abandons its slot; the late return then finds nobody.

use std::collections::VecDeque;

use ringmain_types::{Instant, Limits, ShardId};

use crate::mesh::{Call, CallId};

/// What to send, once there is a slot.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) id: CallId,
    pub(crate) deadline: Instant,
    pub(crate) call: Call,
}

struct Slot<W> {
    generation: u32,
    busy: bool,
    /// None when the caller gave up.
    waiter: Option<W>,
}

struct Peer<W> {
    slots: Vec<Slot<W>>,
    free: Vec<u16>,
    queue: VecDeque<(Instant, Call, W)>,
}

pub(crate) struct Calls<W> {
    from: ShardId,
    slots_max: u16,
    queue_max: usize,
    peers: Vec<Peer<W>>,
}

impl<W> Calls<W> {
    pub(crate) fn new(from: ShardId, shards: u16, limits: &Limits) -> Calls<W> {
        let peer = || Peer { slots: Vec::new(), free: Vec::new(), queue: VecDeque::new() };
        Calls {
            from,
            slots_max: limits.calls_inflight_max,
            queue_max: limits.calls_queued_max as usize,
            peers: (0..shards).map(|_| peer()).collect(),
        }
    }

    /// What to send now; nothing when the call has to wait for a slot; the waiter back when not even the queue has room.
    pub(crate) fn make(
        &mut self,
        to: ShardId,
        deadline: Instant,
        call: Call,
        waiter: W,
    ) -> Result<Option<Outgoing>, W> {
        let queue_max = self.queue_max;
        let peer = &mut self.peers[usize::from(to.0)];
        if !peer.queue.is_empty() || !peer.has_slot(self.slots_max) {
            if peer.queue.len() >= queue_max {
                return Err(waiter);
            }
            peer.queue.push_back((deadline, call, waiter));
            return Ok(None);
        }
        Ok(Some(peer.start((self.from, to), self.slots_max, deadline, call, waiter)))
    }

    /// The waiter of a return, if it still waits; frees the slot. A stale or made-up id finds nothing.
    pub(crate) fn returned(&mut self, from: ShardId, id: CallId) -> Option<W> {
        let peer = self.peers.get_mut(usize::from(from.0))?;
        let slot = peer.slots.get_mut(usize::from(id.slot))?;
        if id.from != self.from || id.to != from || !slot.busy || slot.generation != id.generation {
            return None;
        }
        slot.busy = false;
        slot.generation = slot.generation.wrapping_add(1);
        let waiter = slot.waiter.take();
        peer.free.push(id.slot);
        waiter
    }

    /// The next call that has waited and may go now.
    pub(crate) fn next(&mut self, to: ShardId) -> Option<Outgoing> {
        let peer = &mut self.peers[usize::from(to.0)];
        if peer.queue.is_empty() || !peer.has_slot(self.slots_max) {
            return None;
        }
        let (deadline, call, waiter) = peer.queue.pop_front()?;
        Some(peer.start((self.from, to), self.slots_max, deadline, call, waiter))
    }
}

impl<W> Peer<W> {
    fn has_slot(&self, slots_max: u16) -> bool {
        !self.free.is_empty() || self.slots.len() < usize::from(slots_max)
    }

    fn start(
        &mut self,
        (from, to): (ShardId, ShardId),
        slots_max: u16,
        deadline: Instant,
        call: Call,
        waiter: W,
    ) -> Outgoing {
        let slot = self.free.pop().unwrap_or_else(|| {
            assert!(self.slots.len() < usize::from(slots_max));
            self.slots.push(Slot { generation: 0, busy: false, waiter: None });
            (self.slots.len() - 1) as u16
        });
        let place = &mut self.slots[usize::from(slot)];
        assert!(!place.busy);
        place.busy = true;
        place.waiter = Some(waiter);
        Outgoing { id: CallId { from, to, slot, generation: place.generation }, deadline, call }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        Call::Describe { parts: Default::default() }
    }

    #[test]
    fn full_slots_queue_and_a_full_queue_gives_back() {
        let mut limits = Limits::tiny();
        limits.calls_inflight_max = 2;
        limits.calls_queued_max = 1;
        let mut calls = Calls::new(ShardId(0), 2, &limits);
        let to = ShardId(1);
        let make = |calls: &mut Calls<char>, waiter| calls.make(to, Instant(9), call(), waiter);
        let first = make(&mut calls, 'a').unwrap().unwrap();
        make(&mut calls, 'b').unwrap().unwrap();
        assert!(make(&mut calls, 'c').unwrap().is_none(), "waits for a slot");
        assert_eq!(make(&mut calls, 'd').unwrap_err(), 'd', "no room at all");
        assert!(calls.next(to).is_none());

        assert_eq!(calls.returned(to, first.id), Some('a'));
        assert_eq!(calls.returned(to, first.id), None, "a second return of the same call");
        let third = calls.next(to).unwrap();
        assert_eq!(third.id.slot, first.id.slot);
        assert_ne!(third.id.generation, first.id.generation);
        assert_eq!(calls.returned(to, first.id), None, "an earlier life's return");
        assert_eq!(calls.returned(ShardId(0), third.id), None, "from the wrong shard");
        assert_eq!(calls.returned(to, third.id), Some('c'));
    }

    #[test]
    fn calls_to_two_owners_have_two_ids() {
        let mut calls = Calls::new(ShardId(0), 2, &Limits::tiny());
        let mut made = |to| calls.make(to, Instant(9), call(), ()).unwrap().unwrap().id;
        // What comes late is looked up by the id alone.
        assert_ne!(made(ShardId(0)), made(ShardId(1)));
    }
}
