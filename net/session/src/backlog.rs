//! Bytes that came, whole frames among them, while no request could be taken out of them.

use ringmain_buffer::{Buf, Pool};
use ringmain_types::Account;

/// Starts at a frame's length prefix. Bounded by what receives that were under way bring: with a backlog, nothing is asked for.
#[derive(Default)]
pub(crate) struct Backlog {
    bytes: Buf,
}

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Copies: the driver lends its bytes for a call only. When the pool refuses they go to the heap, since they are here already.
    pub(crate) fn push(&mut self, pool: &mut Pool, more: &[u8]) {
        self.bytes = match pool.take(Account::Receive, self.bytes.len() + more.len()) {
            Ok(mut block) => {
                block.extend(&self.bytes);
                block.extend(more);
                block.freeze()
            }
            Err(_) => Buf::from_vec([&self.bytes[..], more].concat()),
        };
    }

    pub(crate) fn bytes(&self) -> &Buf {
        &self.bytes
    }

    pub(crate) fn skip(&mut self, bytes: usize) {
        self.bytes = self.bytes.slice(bytes..self.bytes.len());
    }

    pub(crate) fn take(&mut self) -> Buf {
        std::mem::take(&mut self.bytes)
    }
}
