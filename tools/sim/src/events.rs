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
    /// A power loss just behind a change of names: what follows on a new name is about to be done, or just was.
    Aimed,
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

/// When, in which order among those of one moment, and where the event is kept.
type Entry = (u64, u64, usize);

#[derive(Default)]
pub struct Events {
    /// Small entries: they are moved about far more often than events happen.
    heap: BinaryHeap<Reverse<Entry>>,
    kept: Vec<Option<(Life, Event)>>,
    free: Vec<usize>,
    order: u64,
    pub life: Life,
}

impl Events {
    pub fn push(&mut self, at_ns: u64, event: Event) {
        self.order += 1;
        let kept = Some((self.life, event));
        let place = self.free.pop().unwrap_or(self.kept.len());
        match self.kept.get_mut(place) {
            Some(free) => *free = kept,
            None => self.kept.push(kept),
        }
        self.heap.push(Reverse((at_ns, self.order, place)));
    }

    /// The next event that still counts, its time, and the life that it comes from.
    pub fn pop(&mut self) -> Option<(u64, Life, Event)> {
        loop {
            let Reverse((at_ns, _, place)) = self.heap.pop()?;
            let (life, event) = self.kept[place].take()?;
            self.free.push(place);
            let of_process = matches!(
                event,
                Event::Turn(_)
                    | Event::Disk(_)
                    | Event::Mesh(_)
                    | Event::Sent { .. }
                    | Event::ToServer { .. }
                    | Event::Reshard
                    | Event::Restart
                    | Event::ClientEnded { .. }
            );
            if !of_process || life == self.life {
                return Some((at_ns, life, event));
            }
        }
    }
}
