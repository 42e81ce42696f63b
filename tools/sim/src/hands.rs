//! One shard's hands for one turn: what came in, and the world outside to put effects into.

use std::collections::VecDeque;
use std::net::SocketAddr;

use ringmain_disk::{DiskDone, DiskOp};
use ringmain_session::Close;
use ringmain_shard::mesh::Mesh;
use ringmain_shard::{Effects, Hands, Input, NetOp, Note};
use ringmain_types::{ConnectionId, ShardId};

use crate::digest::Digest;
use crate::disk::SimDisk;
use crate::events::{Event, Events};
use crate::mesh::SimMesh;
use crate::network::Network;
use crate::random::Random;
use crate::trace::Trace;

/// What waits for a shard. Received bytes stay in the socket until they are taken: how much is taken is then the shard's say.
#[derive(Debug)]
pub enum Arrived {
    Accepted { connection: ConnectionId, peer: SocketAddr },
    Readable(ConnectionId),
    Sent { connection: ConnectionId, bytes: usize },
    Closed { connection: ConnectionId, why: Close },
    Disk(DiskDone),
    Mesh { from: ShardId, message: Mesh },
    Stop,
}

/// All that is not a shard.
pub struct Outside {
    pub now_ns: u64,
    pub random: Random,
    pub events: Events,
    pub disk: SimDisk,
    pub mesh: SimMesh,
    pub network: Network,
    pub digest: Digest,
    pub trace: Trace,
    /// Points at which power could be cut so far: submissions and completions of disk operations.
    pub points: u64,
    pub cut_at: Option<u64>,
    /// The cut has come: nothing else leaves the shard.
    pub cut: bool,
    pub fault: Option<String>,
}

impl Outside {
    /// Counts a point; true when power goes here.
    pub fn point(&mut self) -> bool {
        self.points += 1;
        if self.cut_at == Some(self.points) {
            self.cut = true;
        }
        self.cut
    }

    /// Hands operations to the disk; none after the power is gone.
    pub fn submit(&mut self, shard: ShardId, operations: &mut Vec<DiskOp>) {
        let mut due = Vec::new();
        for op in operations.drain(..) {
            if self.cut {
                continue;
            }
            self.trace.line(self.now_ns, || format!("shard {}", shard.0), || shown(&op));
            self.disk.submit(self.now_ns, &mut self.random, shard, op, &mut due);
            self.point();
        }
        for (at, operation) in due {
            self.events.push(at, Event::Disk(operation));
        }
    }

    fn broken(&mut self, what: String) {
        self.fault.get_or_insert(what);
    }
}

pub struct SimHands<'a> {
    pub shard: ShardId,
    pub inbox: &'a mut VecDeque<Arrived>,
    pub outside: &'a mut Outside,
    pub notes: &'a mut Vec<Note>,
    /// Inputs in this turn at most.
    pub inputs_max: usize,
}

impl Hands for SimHands<'_> {
    fn poll(&mut self, step: &mut dyn FnMut(Input<'_>)) -> usize {
        let mut count = 0;
        while count < self.inputs_max {
            let Some(arrived) = self.inbox.pop_front() else { break };
            count += 1;
            match arrived {
                Arrived::Accepted { connection, peer } => step(Input::Accepted { connection, listener: 0, peer }),
                Arrived::Readable(connection) => {
                    let outside = &mut *self.outside;
                    if outside.network.receive(&mut outside.random, connection, step) {
                        self.inbox.push_back(Arrived::Readable(connection));
                    }
                }
                Arrived::Sent { connection, bytes } => {
                    if self.outside.network.sent(connection) {
                        step(Input::Sent { connection, bytes });
                    }
                }
                Arrived::Closed { connection, why } => step(Input::Closed { connection, why }),
                Arrived::Disk(done) => step(Input::Disk(done)),
                Arrived::Mesh { from, message } => step(Input::Mesh { from, message }),
                Arrived::Stop => step(Input::Stop),
            }
        }
        count
    }

    /// Sends before disk operations: none may depend on one that is submitted in the same turn.
    fn perform(&mut self, effects: &mut Effects) {
        self.notes.append(&mut effects.notes);
        for op in effects.net.drain(..) {
            self.net(op);
        }
        for (to, message) in effects.mesh.drain(..) {
            self.mesh(to, message);
        }
        self.outside.submit(self.shard, &mut effects.disk);
    }
}

/// One line a disk operation; buffers by their sizes.
fn shown(op: &DiskOp) -> String {
    format!("disk {} {:?} {:?}", op.token.0, op.class, op.kind)
}

impl SimHands<'_> {
    fn net(&mut self, op: NetOp) {
        let outside = &mut *self.outside;
        match op {
            NetOp::Receive { connection, want } => {
                if outside.network.want(connection, want) {
                    self.inbox.push_back(Arrived::Readable(connection));
                }
            }
            NetOp::Send { connection, parts } => {
                let bytes = match outside.network.send(connection, parts) {
                    Ok(Some(bytes)) => bytes,
                    Ok(None) => return,
                    Err(what) => return outside.broken(what),
                };
                outside.digest.number(u64::from(connection.slot) << 32 | u64::from(connection.generation));
                outside.digest.bytes(&bytes);
                let lag_ns = outside.network.lag(connection);
                let sent = outside.now_ns + lag_ns + outside.network.latency(&mut outside.random);
                outside.events.push(sent, Event::Sent { connection, bytes: bytes.len() });
                let Some((link, client)) = outside.network.client(connection) else { return };
                let read_ns = outside.now_ns + lag_ns;
                if let Some(at) = outside.network.client_at(read_ns, &mut outside.random, connection) {
                    outside.events.push(at, Event::ToClient { client, link, bytes });
                }
            }
            NetOp::Close { connection } => {
                let at = outside.network.client_at(outside.now_ns, &mut outside.random, connection);
                if let Some((link, client)) = outside.network.close(connection) {
                    outside.events.push(at.unwrap_or(outside.now_ns), Event::ClientClosed { client, link });
                    self.inbox.push_back(Arrived::Closed { connection, why: Close::Shutdown });
                }
            }
        }
    }

    fn mesh(&mut self, to: ShardId, message: Mesh) {
        let outside = &mut *self.outside;
        outside.digest.number(0x6d00 | u64::from(self.shard.0) << 8 | u64::from(to.0));
        match outside.mesh.send(outside.now_ns, &mut outside.random, self.shard, to, message) {
            Ok((at, ring)) => outside.events.push(at, Event::Mesh(ring)),
            Err(what) => outside.broken(what),
        }
    }
}
