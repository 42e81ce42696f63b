//! Deadlines of one shard. Equal ones fire in the order in which they were set.

use std::collections::BTreeMap;

use ringmain_types::Instant;

/// Names one set timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimerId {
    at: Instant,
    sequence: u64,
}

pub(crate) struct Timers<T> {
    set: BTreeMap<TimerId, T>,
    sequence: u64,
}

impl<T> Timers<T> {
    pub(crate) fn new() -> Timers<T> {
        Timers { set: BTreeMap::new(), sequence: 0 }
    }

    pub(crate) fn set(&mut self, at: Instant, what: T) -> TimerId {
        self.sequence += 1;
        let id = TimerId { at, sequence: self.sequence };
        self.set.insert(id, what);
        id
    }

    /// Nothing happens when it has fired already.
    pub(crate) fn cancel(&mut self, id: TimerId) {
        self.set.remove(&id);
    }

    /// The next one that is due at `now`.
    pub(crate) fn fire(&mut self, now: Instant) -> Option<T> {
        let first = self.set.first_entry()?;
        (first.key().at <= now).then(|| first.remove())
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.set.first_key_value().map(|(id, _)| id.at)
    }
}

#[cfg(test)]
mod tests {
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
}
