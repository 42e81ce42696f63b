//! Answers on their way out.

use std::collections::VecDeque;

use ringmain_types::Offset;

use crate::Waiter;

/// Answers that wait for the log, by rising offset: what is decided later has seen no less.
#[derive(Debug)]
pub(crate) struct Outbox<Reply> {
    waiting: VecDeque<(Offset, Waiter, Reply)>,
}

impl<Reply> Outbox<Reply> {
    pub(crate) fn new() -> Outbox<Reply> {
        Outbox { waiting: VecDeque::new() }
    }

    /// `saw` is the end of what the answer rests on.
    pub(crate) fn push(&mut self, saw: Offset, waiter: Waiter, reply: Reply) {
        assert!(self.waiting.back().is_none_or(|(last, ..)| *last <= saw));
        self.waiting.push_back((saw, waiter, reply));
    }

    /// The next answer that rests on nothing at or past `committed`.
    pub(crate) fn pop(&mut self, committed: Offset) -> Option<(Waiter, Reply)> {
        let (saw, ..) = self.waiting.front()?;
        if *saw > committed {
            return None;
        }
        self.waiting.pop_front().map(|(_, waiter, reply)| (waiter, reply))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
