//! Deadlines of one shard. Equal ones fire in the order in which they were set.
//!
//! Most are set and cancelled, two a request, and few ever fire: a heap in which each knows its place, so that one that is cancelled is gone
//! at once and takes no memory of its own.

use ringmain_types::Instant;

use crate::slab::{Key, Slab};

/// Names one set timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerId(Key);

/// In the order in which they fire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Instant,
    sequence: u64,
    timer: Key,
}

struct Timer<T> {
    /// Its index in `heap`.
    place: usize,
    what: T,
}

pub(crate) struct Timers<T> {
    /// None is due before the one at half its index.
    heap: Vec<Due>,
    set: Slab<Timer<T>>,
    sequence: u64,
}

impl<T> Timers<T> {
    pub(crate) fn new() -> Timers<T> {
        Timers { heap: Vec::new(), set: Slab::new(), sequence: 0 }
    }

    pub(crate) fn set(&mut self, at: Instant, what: T) -> TimerId {
        self.sequence += 1;
        let place = self.heap.len();
        let timer = self.set.insert(Timer { place, what });
        self.heap.push(Due { at, sequence: self.sequence, timer });
        self.rise(place);
        TimerId(timer)
    }

    /// Nothing happens when it has fired already.
    pub(crate) fn cancel(&mut self, id: TimerId) {
        if let Some(timer) = self.set.remove(id.0) {
            self.take(timer.place);
        }
    }

    /// The next one that is due at `now`.
    pub(crate) fn fire(&mut self, now: Instant) -> Option<T> {
        let first = self.heap.first().filter(|due| due.at <= now)?;
        let timer = self.set.remove(first.timer)?;
        self.take(0);
        Some(timer.what)
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.heap.first().map(|due| due.at)
    }

    /// Out of the heap; the last one takes its place.
    fn take(&mut self, place: usize) {
        self.heap.swap_remove(place);
        if place < self.heap.len() {
            self.settle(place);
            self.rise(place);
            self.sink(place);
        }
    }

    /// Towards the front, as far as it is due before others.
    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let above = (place - 1) / 2;
            if self.heap[above] < self.heap[place] {
                break;
            }
            self.swap(place, above);
            place = above;
        }
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let below = [2 * place + 1, 2 * place + 2].into_iter().filter(|below| *below < self.heap.len());
            let Some(first) = below.min_by_key(|below| self.heap[*below]) else { break };
            if self.heap[place] < self.heap[first] {
                break;
            }
            self.swap(place, first);
            place = first;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.settle(a);
        self.settle(b);
    }

    /// Tells the timer at `place` where it is.
    fn settle(&mut self, place: usize) {
        let timer = self.set.get_mut(self.heap[place].timer);
        timer.expect("what is in the heap is set").place = place;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn they_fire_in_order_and_not_early() {
        let mut timers = Timers::new();
        let cancelled = timers.set(Instant(1), 'x');
        timers.set(Instant(5), 'b');
        timers.set(Instant(5), 'c');
        timers.set(Instant(3), 'a');
        timers.cancel(cancelled);
        assert_eq!(timers.deadline(), Some(Instant(3)));
        assert_eq!(timers.fire(Instant(2)), None);
        let fired: Vec<char> = std::iter::from_fn(|| timers.fire(Instant(5))).collect();
        assert_eq!(fired, ['a', 'b', 'c']);
        assert_eq!(timers.deadline(), None);
    }

    /// Beside a sorted map, which is what they are.
    #[test]
    fn whatever_is_set_and_cancelled_they_fire_as_a_sorted_map_would() {
        let (mut timers, mut model, mut ids) = (Timers::new(), BTreeMap::new(), Vec::new());
        let mut random = 7u64;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) % bound
        };
        for step in 0..20_000u64 {
            let now = step / 10;
            match below(8) {
                0..4 => {
                    let at = now + below(40);
                    model.insert((at, step), step);
                    ids.push((timers.set(Instant(at), step), (at, step)));
                }
                4..7 if !ids.is_empty() => {
                    let (id, key) = ids.swap_remove(below(ids.len() as u64) as usize);
                    // Of what has fired, an id finds nothing, though its place is used again.
                    model.remove(&key);
                    timers.cancel(id);
                }
                _ => {
                    let due = model.first_key_value().filter(|((at, _), _)| *at <= now).map(|(key, _)| *key);
                    assert_eq!(timers.fire(Instant(now)), due.and_then(|key| model.remove(&key)), "at {step}");
                }
            }
            assert_eq!(timers.deadline(), model.first_key_value().map(|((at, _), _)| Instant(*at)));
            assert_eq!(timers.heap.len(), model.len(), "nothing cancelled stays");
        }
    }
}
