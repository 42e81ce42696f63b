//! Connections between clients and shards: byte streams with latency, split anywhere, that can vanish.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ringmain_buffer::{Buf, BufMut};
use ringmain_session::{Incoming, Want};
use ringmain_shard::Input;
use ringmain_types::{ConnectionId, ShardId};

use crate::random::Random;

/// A connection as the clients and the world name it; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link(pub u64);

/// The server's side of one connection.
struct Connection {
    link: Link,
    client: usize,
    arrived: VecDeque<u8>,
    /// Behind `arrived`: the client sends no more.
    eof: bool,
    want: Wanted,
    /// Held until `Sent`, as a ring holds them.
    sending: Option<Vec<Buf>>,
    /// A `Readable` waits in the shard's inbox.
    readable: bool,
    /// The client takes its time to read.
    slow: bool,
    /// What it sends comes in small pieces.
    dribbles: bool,
    /// Bytes of each direction arrive in order.
    to_server_ns: u64,
    to_client_ns: u64,
}

enum Wanted {
    Any,
    Direct { into: BufMut, bytes: usize },
    Nothing,
}

#[derive(Clone, Debug)]
pub struct Manner {
    pub latency_ns: (u64, u64),
    /// Chance that what arrives is handed over in two parts.
    pub split: f32,
    /// Chances that a client reads slowly, and that it sends in small pieces.
    pub slow: f32,
    pub dribbles: f32,
}

/// How much later a slow reader reads.
const LAG_NS: (u64, u64) = (1_000_000, 200_000_000);
/// Of one that dribbles: how many of its requests do, the time between two pieces, and how many pieces there are at most.
const DRIBBLED: f32 = 0.3;
const DRIBBLE_NS: (u64, u64) = (1_000, 300_000);
const PIECES_MAX: usize = 40;

pub struct Network {
    manner: Manner,
    /// Of what not every history has: those without are what they were before there was any.
    random: Random,
    /// No client is slow any more.
    pub calm: bool,
    /// Sends that a slow client took its time for, requests that came in pieces, and receptions cut in two, so far.
    pub slow: u64,
    pub dribbled: u64,
    pub split: u64,
    connections: BTreeMap<ConnectionId, Connection>,
    links: BTreeMap<Link, ConnectionId>,
    /// Per shard: slots in use, and the generation of each slot.
    slots: Vec<Vec<(bool, u32)>>,
}

impl Network {
    pub fn new(manner: Manner, shards: u16, random: Random) -> Network {
        Network {
            manner,
            random,
            calm: false,
            slow: 0,
            dribbled: 0,
            split: 0,
            connections: BTreeMap::new(),
            links: BTreeMap::new(),
            slots: vec![Vec::new(); usize::from(shards)],
        }
    }

    pub fn latency(&self, random: &mut Random) -> u64 {
        random.skewed(self.manner.latency_ns.0, self.manner.latency_ns.1)
    }

    pub fn accept(&mut self, shard: ShardId, link: Link, client: usize) -> (ConnectionId, SocketAddr) {
        let slots = &mut self.slots[usize::from(shard.0)];
        let slot = slots.iter().position(|(used, _)| !used).unwrap_or_else(|| {
            slots.push((false, 0));
            slots.len() - 1
        });
        slots[slot].0 = true;
        slots[slot].1 += 1;
        let id = ConnectionId { shard, slot: slot as u32, generation: slots[slot].1 };
        let (slow, dribbles) = (self.random.chance(self.manner.slow), self.random.chance(self.manner.dribbles));
        let (slow, dribbles) = (slow && !self.calm, dribbles && !self.calm);
        let connection = Connection {
            link,
            client,
            slow,
            dribbles,
            arrived: VecDeque::new(),
            eof: false,
            want: Wanted::Nothing,
            sending: None,
            readable: false,
            to_server_ns: 0,
            to_client_ns: 0,
        };
        self.connections.insert(id, connection);
        self.links.insert(link, id);
        let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, client as u8));
        (id, SocketAddr::new(address, 1024 + (link.0 % 60_000) as u16))
    }

    pub fn find(&self, link: Link) -> Option<ConnectionId> {
        self.links.get(&link).copied()
    }

    pub fn client(&self, id: ConnectionId) -> Option<(Link, usize)> {
        self.connections.get(&id).map(|connection| (connection.link, connection.client))
    }

    /// When bytes that a client sends now arrive.
    pub fn server_at(&mut self, now_ns: u64, random: &mut Random, link: Link) -> Option<u64> {
        let latency = self.latency(random);
        let connection = self.connections.get_mut(self.links.get(&link)?)?;
        connection.to_server_ns = (connection.to_server_ns + 1).max(now_ns + latency);
        Some(connection.to_server_ns)
    }

    /// As `server_at`, in the pieces in which they arrive.
    pub fn pieces(&mut self, now_ns: u64, random: &mut Random, link: Link, bytes: Vec<u8>) -> Vec<(u64, Vec<u8>)> {
        let Some(mut at_ns) = self.server_at(now_ns, random, link) else { return Vec::new() };
        let Some(connection) = self.links.get(&link).and_then(|id| self.connections.get_mut(id)) else {
            return Vec::new();
        };
        if !connection.dribbles || self.calm || !self.random.chance(DRIBBLED) {
            return vec![(at_ns, bytes)];
        }
        self.dribbled += 1;
        // Many single bytes, and no more pieces than the history can bear.
        let least = bytes.len().div_ceil(PIECES_MAX);
        let mut pieces = Vec::new();
        for piece in bytes.chunks(least) {
            pieces.push((at_ns, piece.to_vec()));
            connection.to_server_ns = at_ns;
            at_ns += self.random.skewed(DRIBBLE_NS.0, DRIBBLE_NS.1);
        }
        pieces
    }

    /// How much later than others this client reads what is sent now.
    pub fn lag(&mut self, id: ConnectionId) -> u64 {
        let slow = self.connections.get(&id).is_some_and(|connection| connection.slow);
        if !slow || self.calm {
            return 0;
        }
        self.slow += 1;
        self.random.skewed(LAG_NS.0, LAG_NS.1)
    }

    pub fn client_at(&mut self, now_ns: u64, random: &mut Random, id: ConnectionId) -> Option<u64> {
        let latency = self.latency(random);
        let connection = self.connections.get_mut(&id)?;
        connection.to_client_ns = (connection.to_client_ns + 1).max(now_ns + latency);
        Some(connection.to_client_ns)
    }

    /// Bytes reach the server's socket. True when the shard is to be told.
    pub fn arrived(&mut self, id: ConnectionId, bytes: &[u8]) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        connection.arrived.extend(bytes);
        connection.wake()
    }

    /// The client's end reaches the server's socket. True when the shard is to be told.
    pub fn ended(&mut self, id: ConnectionId) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        connection.eof = true;
        connection.wake()
    }

    /// What the shard wants next. True when there is something to be had at once.
    pub fn want(&mut self, id: ConnectionId, want: Want) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        connection.want = match want {
            Want::Any => Wanted::Any,
            Want::Direct { into, bytes } => Wanted::Direct { into, bytes },
            Want::Nothing { .. } => Wanted::Nothing,
        };
        connection.wake()
    }

    /// Hands over what is there, as far as the shard wants it. True: there is more.
    pub fn receive(&mut self, random: &mut Random, id: ConnectionId, step: &mut dyn FnMut(Input<'_>)) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        connection.readable = false;
        let mut count = connection.arrived.len();
        if count == 0 {
            if std::mem::take(&mut connection.eof) {
                connection.want = Wanted::Nothing;
                step(Input::Eof { connection: id });
            }
            return false;
        }
        if count > 1 && random.chance(self.manner.split) {
            count = random.between(1, count as u64 - 1) as usize;
            self.split += 1;
        }
        match std::mem::replace(&mut connection.want, Wanted::Nothing) {
            Wanted::Nothing => return false,
            Wanted::Any => {
                connection.want = Wanted::Any;
                let lent = connection.take(count);
                // Some drivers give what others lend.
                let incoming = match lent.len() % 2 {
                    0 => Incoming::Lent(&lent),
                    _ => Incoming::Given(Buf::copy_of(&lent)),
                };
                step(Input::Received { connection: id, incoming });
            }
            Wanted::Direct { mut into, bytes } => {
                let count = count.min(bytes);
                into.spare_mut()[..count].copy_from_slice(&connection.take(count));
                into.advance(count);
                step(Input::Received { connection: id, incoming: Incoming::Direct(into) });
            }
        }
        connection.wake()
    }

    /// A send leaves the shard. `Err` when one is under way already.
    pub fn send(&mut self, id: ConnectionId, parts: Vec<Buf>) -> Result<Option<Vec<u8>>, String> {
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(None) };
        if connection.sending.is_some() {
            return Err(format!("two sends under way on {id:?}"));
        }
        let bytes = parts.concat();
        if bytes.is_empty() {
            return Err(format!("an empty send on {id:?}"));
        }
        connection.sending = Some(parts);
        Ok(Some(bytes))
    }

    /// The kernel took it all.
    pub fn sent(&mut self, id: ConnectionId) -> bool {
        self.connections.get_mut(&id).is_some_and(|connection| connection.sending.take().is_some())
    }

    /// Ends a connection on both sides; returns whom to tell.
    pub fn close(&mut self, id: ConnectionId) -> Option<(Link, usize)> {
        let connection = self.connections.remove(&id)?;
        self.links.remove(&connection.link);
        self.slots[usize::from(id.shard.0)][id.slot as usize].0 = false;
        Some((connection.link, connection.client))
    }

    pub fn all(&self) -> Vec<ConnectionId> {
        self.connections.keys().copied().collect()
    }
}

impl Connection {
    /// The first `count` bytes that arrived.
    fn take(&mut self, count: usize) -> Vec<u8> {
        let taken = self.arrived.make_contiguous()[..count].to_vec();
        self.arrived.drain(..count);
        taken
    }

    fn wake(&mut self) -> bool {
        let there = !self.arrived.is_empty() || self.eof;
        let ready = there && !self.readable && !matches!(self.want, Wanted::Nothing);
        self.readable |= ready;
        ready
    }
}
