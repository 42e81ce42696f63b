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

use crate::jobs::{Job, Work};
use crate::slab::Key;
use crate::{Effects, Shard};

/// What a step takes for each partition, about: reading it, asking its owner, or telling it; measured (two virtual cores of 2.6 GHz), rounded up.
const PART_NS: u64 = 400;
/// And whatever it is for.
const STEP_NS: u64 = 30_000;

/// Jobs that have a step to do, in turn.
#[derive(Default)]
pub(crate) struct Middle {
    order: VecDeque<Key>,
}

impl Middle {
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(crate) fn push(&mut self, job: Key) {
        self.order.push_back(job);
    }

    pub(crate) fn pop(&mut self) -> Option<Key> {
        self.order.pop_front()
    }
}

impl Shard {
    /// What a step takes of the core.
    pub(crate) fn step_ns(&self) -> u64 {
        STEP_NS + u64::from(self.config.limits.step_elements_max) * PART_NS
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
