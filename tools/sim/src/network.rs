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
}

pub struct Network {
    manner: Manner,
    connections: BTreeMap<ConnectionId, Connection>,
    links: BTreeMap<Link, ConnectionId>,
    /// Per shard: slots in use, and the generation of each slot.
    slots: Vec<Vec<(bool, u32)>>,
}

impl Network {
    pub fn new(manner: Manner, shards: u16) -> Network {
        Network {
            manner,
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
        let connection = Connection {
            link,
            client,
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
        }
        match std::mem::replace(&mut connection.want, Wanted::Nothing) {
            Wanted::Nothing => return false,
            Wanted::Any => {
                connection.want = Wanted::Any;
                let lent: Vec<u8> = connection.arrived.drain(..count).collect();
                // Some drivers give what others lend.
                let incoming = match lent.len() % 2 {
                    0 => Incoming::Lent(&lent),
                    _ => Incoming::Given(Buf::copy_of(&lent)),
                };
                step(Input::Received { connection: id, incoming });
            }
            Wanted::Direct { mut into, bytes } => {
                let count = count.min(bytes);
                for (to, from) in into.spare_mut().iter_mut().zip(connection.arrived.drain(..count)) {
                    *to = from;
                }
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
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
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
    fn wake(&mut self) -> bool {
        let there = !self.arrived.is_empty() || self.eof;
        let ready = there && !self.readable && !matches!(self.want, Wanted::Nothing);
        self.readable |= ready;
        ready
    }
}
