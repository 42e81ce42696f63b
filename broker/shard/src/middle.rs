//! Large requests that are in the middle: their steps take turns, and between two steps everybody else of the core is served.
//!
//! ```text
//! admitted -> step -> step ... -> reply
//!              |  ^
//!              v  | an owner has answered, or a long poll ends
//!             waits
//! ```
//! Steps are paid for in the line of large requests (`work.rs`), and no other large request begins while one has a step to do,
//! unless they waited for long.

use std::collections::VecDeque;

use ringmain_types::Now;

use crate::fetch::Parts;
use crate::fetch_reading::Places;
use crate::jobs::{Job, Work};
use crate::slab::Key;
use crate::work::InTurn;
use crate::{Effects, Shard};

/// What a step takes for each partition, about: reading it, asking its owner, or telling it; measured (two virtual cores of 2.6 GHz), rounded up.
const PART_NS: u64 = 400;
/// And whatever it is for.
const STEP_NS: u64 = 30_000;
/// What it takes to let go of one.
const WASTE_NS: u64 = 50;

/// Jobs that have a step to do, in turn.
#[derive(Default)]
pub(crate) struct Middle {
    order: VecDeque<Key>,
    waste: VecDeque<Waste>,
}

/// What a large fetch leaves behind. To let go of a hundred thousand small things takes milliseconds, too.
pub(crate) enum Waste {
    Parts(Parts),
    Places(Places),
}

impl Waste {
    /// Lets go of about `most` things. Whether that was all.
    fn some(&mut self, most: usize) -> bool {
        match self {
            Waste::Parts(parts) => parts.pop().is_none(),
            Waste::Places(places) => (0..most).any(|_| places.pop_first().is_none()),
        }
    }
}

impl Middle {
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty() && self.waste.is_empty()
    }

    pub(crate) fn throw(&mut self, waste: Waste) {
        self.waste.push_back(waste);
    }

    pub(crate) fn push(&mut self, job: Key) {
        self.order.push_back(job);
    }

    /// Waste goes first: what it takes is counted for nobody.
    pub(crate) fn pop(&mut self) -> Option<InTurn> {
        if !self.waste.is_empty() {
            return Some(InTurn::Waste);
        }
        self.order.pop_front().map(InTurn::Step)
    }

    pub(crate) fn let_go(&mut self, most: usize) {
        if self.waste.front_mut().is_some_and(|waste| waste.some(most)) {
            self.waste.pop_front();
        }
    }
}

impl Shard {
    /// What the next step takes of the core.
    pub(crate) fn step_ns(&self) -> u64 {
        let most = u64::from(self.config.limits.step_elements_max);
        if self.crowd.middle.waste.is_empty() { STEP_NS + most * PART_NS } else { most * WASTE_NS }
    }

    /// A large fetch has a step to do.
    pub(crate) fn has_step(&mut self, key: Key) {
        if let Some(Job { work: Work::Fetch(fetch), .. }) = self.jobs.get_mut(key)
            && !std::mem::replace(&mut fetch.queued, true)
        {
            self.crowd.middle.push(key);
        }
    }

    /// Does it, if its connection is still there.
    pub(crate) fn do_step(&mut self, now: Now, key: Key, out: &mut Effects) {
        if let Some(Job { work: Work::Fetch(fetch), .. }) = self.jobs.get_mut(key) {
            fetch.queued = false;
            self.fetch_goes_on(now, key, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use ringmain_types::*;

    use super::*;

    #[test]
    fn what_is_left_behind_goes_some_at_a_time() {
        let mut middle = Middle::default();
        middle.throw(Waste::Places((0..25).map(|at| ((0, PartitionIndex(at)), at as u32)).collect()));
        middle.throw(Waste::Places(Places::new()));
        let mut left: Vec<usize> = Vec::new();
        while matches!(middle.pop(), Some(InTurn::Waste)) {
            middle.let_go(10);
            left.push(
                middle.waste.iter().map(|waste| if let Waste::Places(places) = waste { places.len() } else { 0 }).sum(),
            );
        }
        assert_eq!(left, [15, 5, 0, 0]);
        assert!(middle.is_empty());
    }
}
