//! What is to happen, and when. Events of one moment happen in the order in which they were put in.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ringmain_types::{ConnectionId, ShardId};

use crate::disk::Operation;
use crate::faults::Strike;
use crate::mesh::Ring;
use crate::network::Link;

#[derive(Debug)]
pub enum Event {
    /// Stale when the shard's turn was moved since.
    Turn(ShardId),
    Disk(Operation),
    /// Of one process; its rings end with it.
    Mesh(Ring),
    ToServer {
        link: Link,
        bytes: Vec<u8>,
    },
    ToClient {
        client: usize,
        link: Link,
        bytes: Vec<u8>,
    },
    Sent {
        connection: ConnectionId,
        bytes: usize,
    },
    /// The end of what a client sends arrives.
    ClientEnded {
        connection: ConnectionId,
    },
    ClientClosed {
        client: usize,
        link: Link,
    },
    Wake {
        client: usize,
    },
    Strike(Strike),
    Start,
    /// A turn of the change of the number of shards. Stale when it was moved since.
    Reshard,
    /// Somebody starts a process anew whose disk failed.
    Restart,
    /// A full disk has space again.
    Space,
    Calm,
}

/// One process's life: what was meant for an earlier one does not happen.
pub type Life = u32;

struct Entry {
    at_ns: u64,
    order: u64,
    life: Life,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.order == other.order
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        (self.at_ns, self.order).cmp(&(other.at_ns, other.order))
    }
}

#[derive(Default)]
pub struct Events {
    heap: BinaryHeap<Reverse<Entry>>,
    order: u64,
    pub life: Life,
}

impl Events {
    pub fn push(&mut self, at_ns: u64, event: Event) {
        self.order += 1;
        self.heap.push(Reverse(Entry { at_ns, order: self.order, life: self.life, event }));
    }

    /// The next event that still counts, its time, and the life that it comes from.
    pub fn pop(&mut self) -> Option<(u64, Life, Event)> {
        loop {
            let Reverse(entry) = self.heap.pop()?;
            let of_process = matches!(
                entry.event,
                Event::Turn(_)
                    | Event::Disk(_)
                    | Event::Mesh(_)
                    | Event::Sent { .. }
                    | Event::ToServer { .. }
                    | Event::Reshard
                    | Event::Restart
                    | Event::ClientEnded { .. }
            );
            if !of_process || entry.life == self.life {
                return Some((entry.at_ns, entry.life, entry.event));
            }
        }
    }
}
