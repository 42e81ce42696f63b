//! Which request may run, and in which order replies go out.

use std::collections::VecDeque;

use ringmain_buffer::{Buf, Bufs};
use ringmain_wire::Overlap;

use crate::ReplySlot;
use crate::output::cost;

/// ```text
/// slots:   answered, gone | waits for its turn .. not answered .. | not given out yet
///                         ^ first                                 ^ next
/// ```
pub(crate) struct Order {
    first: u64,
    places: VecDeque<Place>,
    unanswered: usize,
    unanswered_max: usize,
    /// The request under way runs alone.
    barrier: bool,
    /// Of the replies that wait for an earlier one.
    cost: usize,
}

enum Place {
    Unanswered,
    /// No parts: the request has no reply (acks=0).
    Answered(Bufs),
}

impl Order {
    pub(crate) fn new(unanswered_max: usize) -> Order {
        Order { first: 0, places: VecDeque::new(), unanswered: 0, unanswered_max, barrier: false, cost: 0 }
    }

    pub(crate) fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// Whether no request at all may run now.
    pub(crate) fn full(&self) -> bool {
        self.barrier || self.unanswered == self.unanswered_max
    }

    pub(crate) fn may_run(&self, overlap: Overlap) -> bool {
        !self.full() && (overlap == Overlap::Ordered || self.unanswered == 0)
    }

    /// The place of a request that runs from now on; `may_run` said so.
    pub(crate) fn run(&mut self, overlap: Overlap) -> ReplySlot {
        assert!(self.may_run(overlap));
        self.barrier = overlap == Overlap::Barrier;
        self.unanswered += 1;
        self.places.push_back(Place::Unanswered);
        ReplySlot(self.first + self.places.len() as u64 - 1)
    }

    /// Each slot is answered once. What may go out because of it comes out in `ready`.
    pub(crate) fn answer(&mut self, slot: ReplySlot, parts: Bufs, mut ready: impl FnMut(Buf)) {
        let index = slot.0.checked_sub(self.first).expect("a slot that is not answered yet");
        let place = self.places.get_mut(index as usize).expect("a slot that was given out");
        assert!(matches!(place, Place::Unanswered), "a slot is answered once");
        self.cost += parts.iter().map(cost).sum::<usize>();
        *place = Place::Answered(parts);
        self.unanswered -= 1;
        self.barrier = false;
        while let Some(Place::Answered(_)) = self.places.front() {
            self.first += 1;
            if let Some(Place::Answered(parts)) = self.places.pop_front() {
                self.cost -= parts.iter().map(cost).sum::<usize>();
                parts.into_iter().for_each(&mut ready);
            }
        }
    }

    /// What the replies that wait for earlier ones cost.
    pub(crate) fn cost(&self) -> usize {
        self.cost
    }

    /// Parts of replies that wait for earlier ones.
    pub(crate) fn held(&self) -> impl Iterator<Item = &Buf> {
        self.places.iter().flat_map(|place| match place {
            Place::Answered(parts) => &parts[..],
            Place::Unanswered => &[],
        })
    }
}
