//! A queue that takes turns.

use std::collections::{BTreeMap, VecDeque};

/// Queues by key, one item of each in turn: who has many waits for itself.
#[derive(Debug)]
pub(crate) struct Fair<K, T> {
    queues: BTreeMap<K, VecDeque<T>>,
    /// Whose turn was last.
    last: Option<K>,
}

impl<K: Ord + Copy, T> Fair<K, T> {
    pub(crate) fn new() -> Fair<K, T> {
        Fair { queues: BTreeMap::new(), last: None }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Nothing of this key waits.
    pub(crate) fn idle(&self, key: K) -> bool {
        !self.queues.contains_key(&key)
    }

    pub(crate) fn push(&mut self, key: K, item: T) {
        self.queues.entry(key).or_default().push_back(item);
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        use std::ops::Bound::{Excluded, Unbounded};
        let behind = self.last.and_then(|last| self.queues.range((Excluded(last), Unbounded)).next());
        let (&key, _) = behind.or_else(|| self.queues.first_key_value())?;
        self.last = Some(key);
        let queue = self.queues.get_mut(&key)?;
        let item = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&key);
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_each_in_turn_and_each_in_its_order() {
        let mut fair = Fair::new();
        for (key, item) in [(5, 'a'), (5, 'b'), (5, 'c'), (2, 'x'), (9, 'm'), (9, 'n')] {
            fair.push(key, item);
        }
        assert!(!fair.idle(5) && fair.idle(3));
        let mut order: String = (0..4).filter_map(|_| fair.pop()).collect();
        fair.push(2, 'y');
        order.extend(std::iter::from_fn(|| fair.pop()));
        assert_eq!(order, "xambnyc");
        assert!(fair.is_empty() && fair.pop().is_none());
    }
}
