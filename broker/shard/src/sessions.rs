//! The client connections of one shard: whom it knows, who has something to say, who is muted.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::ops::Bound;

use ringmain_buffer::Pool;
use ringmain_session::{Close, Session, Transport, Want};
use ringmain_types::*;

use crate::connections::Connections;
use crate::slab::Key;
use crate::timers::{TimerId, Timers};
use crate::{Effects, NetOp, Note};

/// How often muted connections are asked again when nothing else wakes them.
const MUTED_RETRY_MS: u64 = 10;
/// How many of them per turn.
const MUTED_RETRIES: usize = 8;
/// Unsent replies take little that take less than this share of their account.
const HELD_SHARE: u64 = 8;
/// Of all connections in a turn, about: the kernel copies it before the turn ends, for a millisecond.
const SEND_BYTES_MAX: usize = 1 << 20;
/// Connections that have more to send than this share of it divide it among them; no one's part is smaller.
const SEND_SHARE: usize = 64;

/// What the driver was told last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiving {
    /// Nothing, or a `Direct` that has completed.
    Idle,
    Any,
    Direct,
    Nothing,
}

pub(crate) struct Connection {
    pub(crate) session: Session,
    peer: SocketAddr,
    receiving: Receiving,
    timer: Option<(Instant, TimerId)>,
    held_bytes: usize,
    dirty: bool,
    /// Requests under way, at most `requests_inflight_max`, in the order in which they came.
    pub(crate) jobs: Vec<Key>,
}

pub(crate) struct Sessions {
    table: Connections<Connection>,
    by_address: BTreeMap<IpAddr, u32>,
    dirty: Vec<ConnectionId>,
    muted: BTreeSet<ConnectionId>,
    muted_retry_at: Option<Instant>,
    /// Who was asked again last: the next ones are behind it.
    muted_last: ConnectionId,
    /// Sum of `held_bytes`: what unsent replies keep alive.
    held_bytes: u64,
    /// What requests under way take.
    work_bytes: u64,
    held_bytes_max: u64,
    /// Of all in a turn, as far as they have much to send.
    send_bytes_max: usize,
    limits: Limits,
}

impl Sessions {
    pub(crate) fn new(limits: &Limits) -> Sessions {
        Sessions {
            table: Connections::new(),
            by_address: BTreeMap::new(),
            dirty: Vec::new(),
            muted: BTreeSet::new(),
            muted_retry_at: None,
            muted_last: ConnectionId { shard: ShardId(0), slot: 0, generation: 0 },
            held_bytes: 0,
            work_bytes: 0,
            held_bytes_max: limits.memory_bytes[Account::Reply as usize],
            send_bytes_max: (limits.fetch_reply_bytes_max as usize).min(SEND_BYTES_MAX),
            limits: limits.clone(),
        }
    }

    /// As Kafka writes a client's host.
    pub(crate) fn host(&self, id: ConnectionId) -> String {
        self.table.get(id).map_or(String::new(), |connection| format!("/{}", connection.peer.ip()))
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.table.get_mut(id)
    }

    /// What replies may still take, beside what requests under way do.
    pub(crate) fn reply_bytes_left(&self) -> u64 {
        self.held_bytes_max.saturating_sub(self.work_bytes())
    }

    /// What unsent replies and requests under way take.
    pub(crate) fn work_bytes(&self) -> u64 {
        self.held_bytes + self.work_bytes
    }

    /// A request takes so much from now on.
    pub(crate) fn charge(&mut self, bytes: u64) {
        self.work_bytes += bytes;
    }

    /// It does no more.
    pub(crate) fn discharge(&mut self, bytes: u64) {
        self.work_bytes -= bytes;
    }

    /// A reply was made; how much it really holds is seen when it is flushed.
    pub(crate) fn replied(&mut self, id: ConnectionId, bytes: usize) {
        if let Some(connection) = self.table.get_mut(id) {
            connection.held_bytes += bytes;
            self.held_bytes += bytes as u64;
        }
    }

    pub(crate) fn accept(&mut self, now: Now, id: ConnectionId, peer: SocketAddr, out: &mut Effects) {
        let of_address = self.by_address.get(&peer.ip()).copied().unwrap_or(0);
        if self.table.has(id)
            || self.table.len() >= self.limits.connections_max as usize
            || of_address >= self.limits.connections_per_address_max
        {
            out.net.push(NetOp::Close { connection: id });
            out.notes.push(Note::Closed { connection: id, peer, why: Close::TooMany });
            return;
        }
        let session = Session::open(id, Transport::Plain, &self.limits, now);
        self.by_address.insert(peer.ip(), of_address + 1);
        self.table.insert(
            id,
            Connection {
                session,
                peer,
                receiving: Receiving::Idle,
                timer: None,
                held_bytes: 0,
                dirty: false,
                jobs: Vec::new(),
            },
        );
        self.touch(id);
    }

    /// A `Direct` receive has ended, whatever it brought.
    pub(crate) fn direct_done(&mut self, id: ConnectionId) {
        if let Some(connection) = self.table.get_mut(id) {
            connection.receiving = Receiving::Idle;
        }
    }

    /// It is looked at in this turn's end.
    pub(crate) fn touch(&mut self, id: ConnectionId) {
        if let Some(connection) = self.table.get_mut(id)
            && !connection.dirty
        {
            connection.dirty = true;
            self.dirty.push(id);
        }
    }

    /// Forgets it; the driver is told. The caller ends its jobs.
    pub(crate) fn close<T>(
        &mut self,
        id: ConnectionId,
        why: Close,
        timers: &mut Timers<T>,
        out: &mut Effects,
    ) -> Option<Connection> {
        let connection = self.forget(id, why, timers, out)?;
        out.net.push(NetOp::Close { connection: id });
        Some(connection)
    }

    /// As `close`, when the driver's side is gone already.
    pub(crate) fn forget<T>(
        &mut self,
        id: ConnectionId,
        why: Close,
        timers: &mut Timers<T>,
        out: &mut Effects,
    ) -> Option<Connection> {
        let connection = self.table.remove(id)?;
        self.muted.remove(&id);
        self.held_bytes -= connection.held_bytes as u64;
        if let Some((_, timer)) = connection.timer {
            timers.cancel(timer);
        }
        let address = connection.peer.ip();
        match self.by_address.get_mut(&address) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.by_address.remove(&address)),
        }
        if !matches!(why, Close::Eof | Close::Shutdown) {
            out.notes.push(Note::Closed { connection: id, peer: connection.peer, why });
        }
        Some(connection)
    }

    /// Sends, receives and timers of those with news; asks a few muted ones again. Returns those that are owed nothing more.
    pub(crate) fn flush<T>(
        &mut self,
        now: Now,
        pool: &mut Pool,
        timers: &mut Timers<T>,
        timer: impl Fn(ConnectionId) -> T,
        out: &mut Effects,
    ) -> Vec<ConnectionId> {
        let mut finished = Vec::new();
        if self.muted_retry_at.is_some_and(|at| at <= now.mono) {
            self.muted_retry_at = None;
            for _ in 0..MUTED_RETRIES.min(self.muted.len()) {
                let after = (Bound::Excluded(self.muted_last), Bound::Unbounded);
                let next = self.muted.range(after).next().or_else(|| self.muted.first()).copied();
                let Some(id) = next else { break };
                self.muted_last = id;
                self.touch(id);
            }
        }
        let small = self.send_bytes_max / SEND_SHARE;
        let much = |id: &&ConnectionId| self.table.get(**id).is_some_and(|connection| connection.held_bytes > small);
        let send_bytes = (self.send_bytes_max / self.dirty.iter().filter(much).count().max(1)).max(small);
        let mut dirty = std::mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            let Some(connection) = self.table.get_mut(id) else { continue };
            connection.dirty = false;
            let parts = connection.session.outgoing(send_bytes);
            if !parts.is_empty() {
                out.net.push(NetOp::Send { connection: id, parts });
            }
            let held = connection.session.held_bytes();
            self.held_bytes = self.held_bytes - connection.held_bytes as u64 + held as u64;
            connection.held_bytes = held;
            if connection.session.finished() {
                finished.push(id);
                continue;
            }
            let want = (connection.receiving != Receiving::Direct).then(|| connection.session.want(now, pool));
            let told = connection.receiving;
            match want {
                None => {}
                Some(Want::Any) => {
                    connection.receiving = Receiving::Any;
                    self.muted.remove(&id);
                }
                Some(Want::Direct { .. }) => {
                    connection.receiving = Receiving::Direct;
                    self.muted.remove(&id);
                }
                Some(Want::Nothing { .. }) => {
                    connection.receiving = Receiving::Nothing;
                    self.muted.insert(id);
                }
            }
            if let Some(want) = want
                && (connection.receiving != told || matches!(want, Want::Direct { .. }))
            {
                out.net.push(NetOp::Receive { connection: id, want });
            }
            connection.arm(timers, || timer(id));
        }
        debug_assert!(self.dirty.is_empty(), "nobody is touched meanwhile");
        self.dirty = dirty;
        if !self.muted.is_empty() && self.muted_retry_at.is_none() {
            self.muted_retry_at = Some(now.mono.plus_ms(MUTED_RETRY_MS));
        }
        finished
    }

    /// Who holds most, once unsent replies and requests under way take more than the account. Not while replies take little: who polls for a
    /// long time would have those closed who are just answered.
    pub(crate) fn worst_holder(&self) -> Option<ConnectionId> {
        if self.work_bytes() <= self.held_bytes_max || self.held_bytes <= self.held_bytes_max / HELD_SHARE {
            return None;
        }
        let worst = self.table.iter().max_by_key(|(_, connection)| connection.held_bytes)?;
        Some(worst.0)
    }

    /// A session's timer fired: what it wants to be closed for.
    pub(crate) fn tick(&mut self, now: Now, id: ConnectionId) -> Result<(), Close> {
        let Some(connection) = self.table.get_mut(id) else { return Ok(()) };
        connection.timer = None;
        connection.session.tick(now)?;
        self.touch(id);
        Ok(())
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.muted_retry_at
    }

    /// No reply is still on its way.
    pub(crate) fn all_sent(&self) -> bool {
        self.held_bytes == 0
    }

    pub(crate) fn ids(&self) -> Vec<ConnectionId> {
        self.table.iter().map(|(id, _)| id).collect()
    }
}

impl Connection {
    /// A timer that is set too early stays: it is cheaper to look once in vain than to move it at each request.
    fn arm<T>(&mut self, timers: &mut Timers<T>, what: impl FnOnce() -> T) {
        let Some(deadline) = self.session.deadline() else { return };
        if let Some((at, id)) = self.timer {
            if at <= deadline {
                return;
            }
            timers.cancel(id);
        }
        self.timer = Some((deadline, timers.set(deadline, what())));
    }
}
