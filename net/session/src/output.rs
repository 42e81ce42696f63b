//! Bytes on their way out.

use std::collections::VecDeque;

use ringmain_buffer::Buf;

/// Parts of one vectored send. Linux takes 1024 (`IOV_MAX`); past a few dozen a longer list no longer makes a send cheaper, and the
/// driver keeps one `iovec` of 16 bytes for each.
pub const SEND_PARTS_MAX: usize = 64;

#[derive(Default)]
pub(crate) struct Output {
    /// Not empty ones, in order. Those of the send under way stay in front until it is over.
    parts: VecDeque<Buf>,
    /// Of the send under way; 0 without one.
    sending: usize,
    /// What all parts cost, see `cost`.
    cost: usize,
}

/// Whatever its size, a part has a block or an allocation, and its place in the list.
const PART_COST: usize = 256;

pub(crate) fn cost(part: &Buf) -> usize {
    part.len() + PART_COST
}

impl Output {
    pub(crate) fn push(&mut self, part: Buf) {
        if !part.is_empty() {
            self.cost += cost(&part);
            self.parts.push_back(part);
        }
    }

    pub(crate) fn cost(&self) -> usize {
        self.cost
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(crate) fn sending(&self) -> bool {
        self.sending > 0
    }

    /// Of several replies, if they are ready: at most `bytes` (at least 1) and `SEND_PARTS_MAX` parts.
    pub(crate) fn send(&mut self, bytes: usize) -> Vec<Buf> {
        if self.sending() {
            return Vec::new();
        }
        let mut out = Vec::with_capacity(self.parts.len().min(SEND_PARTS_MAX));
        let bytes = bytes.max(1);
        for part in self.parts.iter().take(SEND_PARTS_MAX) {
            let left = bytes - self.sending;
            if left == 0 {
                break;
            }
            let part = if part.len() <= left { part.clone() } else { part.slice(0..left) };
            self.sending += part.len();
            out.push(part);
        }
        out
    }

    /// The send under way is over, having sent `bytes`. After less than it was given, the rest is sent again next.
    pub(crate) fn sent(&mut self, bytes: usize) {
        let mut left = bytes.min(self.sending);
        self.sending = 0;
        while left > 0 {
            let Some(part) = self.parts.pop_front() else { break };
            self.cost -= cost(&part);
            if part.len() > left {
                self.push_front(part.slice(left..part.len()));
                break;
            }
            left -= part.len();
        }
        // A burst's list is given back, so that a quiet connection is small.
        if self.parts.is_empty() && self.parts.capacity() > SEND_PARTS_MAX {
            self.parts = VecDeque::new();
        }
    }

    fn push_front(&mut self, part: Buf) {
        self.cost += cost(&part);
        self.parts.push_front(part);
    }

    pub(crate) fn held(&self) -> impl Iterator<Item = &Buf> {
        self.parts.iter()
    }
}
