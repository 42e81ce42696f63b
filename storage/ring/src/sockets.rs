//! Client sockets: listeners, and connections with at most one receive and one send under way.
//!
//! ```text
//!            adopt                   error, close()               nothing under way        close done
//!  (fd) ----------------> open ------------------------> ending ---------------------> closing -----> Closed, slot free
//! ```
//! A receive is armed once for each completion rather than as multishot: so the shard's next want (a body straight into its
//! block, or nothing) holds from the very next byte, without cancelling a receive that may already have taken bytes.
//!
//! A peer that sends no more may still read: its end is told, and the connection stays open for sends until `close`.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

use io_uring::squeue::Flags;
use io_uring::types::Fd;
use io_uring::{cqueue, opcode};
use ringmain_buffer::{Buf, BufMut};
use ringmain_types::{ConnectionId, ShardId};

use crate::disk::fill_parts;
use crate::driver::{Completion, Driver, Kind};
use crate::provided::Provided;

/// include/uapi/linux/io_uring.h: wait for the socket before the first try.
const RECVSEND_POLL_FIRST: u16 = 1;

/// Behind a direct receive of at least this much only a frame's head is received into a provided buffer.
const BULKY_BYTES_MIN: usize = 64 << 10;
const BULKY_HEAD_BYTES: u32 = 4 << 10;

/// How to receive from now on.
#[derive(Debug)]
pub enum Want {
    /// Whatever comes, lent for one call; stays in force.
    Any,
    /// Once, at most `bytes`, into the spare part of `into`. Afterwards nothing until the next want.
    Direct {
        into: BufMut,
        bytes: usize,
    },
    Nothing,
}

#[derive(Debug)]
pub enum Received<'a> {
    /// For this call only.
    Lent(&'a [u8]),
    /// For good.
    Given(Buf),
    /// What `Want::Direct` gave, advanced by what came: all that was wanted, or less when the peer ended.
    Direct(BufMut),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// `close` was called.
    Asked,
    Errno(i32),
}

#[derive(Debug)]
pub enum SocketEvent<'a> {
    /// Not yet a connection: `adopt` makes it one, on any core's ring.
    Accepted {
        listener: u16,
        socket: OwnedFd,
    },
    /// Accepting stopped (EMFILE, ENOBUFS ...): `listen` again after a while.
    AcceptFailed {
        listener: u16,
        errno: i32,
    },
    Received {
        connection: ConnectionId,
        received: Received<'a>,
    },
    /// The peer sends no more; once, behind all that it sent. Whoever has nothing left to say to it calls `close`.
    Eof {
        connection: ConnectionId,
    },
    /// A whole `send`.
    Sent {
        connection: ConnectionId,
        bytes: usize,
    },
    /// Once per connection, after its last completion: the kernel holds none of its buffers.
    Closed {
        connection: ConnectionId,
        why: Ended,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketCounters {
    pub accepted: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    /// Receives that found no provided buffer and were armed again.
    pub starved: u64,
}

enum Receiving {
    Idle,
    /// Into a provided buffer.
    Lent,
    Direct {
        into: BufMut,
        bytes: usize,
    },
}

#[derive(Default)]
struct Sending {
    parts: Vec<Buf>,
    bytes: usize,
    done: usize,
    vector: Vec<libc::iovec>,
    /// Boxed: the kernel reads it while the connection may move.
    header: Option<Box<libc::msghdr>>,
    under_way: bool,
}

struct Connection {
    socket: OwnedFd,
    want: Want,
    receiving: Receiving,
    /// What came into a provided buffer when it was no longer wanted there; at most one buffer's worth.
    carry: Vec<u8>,
    /// The last completion said that more is there already.
    more: bool,
    /// The peer sends no more: there is nothing to receive.
    eof: bool,
    /// The last receive was of a large body: the next one probably begins another, whose bulk should come straight into its block.
    bulky: bool,
    sending: Sending,
    ending: Option<Ended>,
    shutdown_under_way: bool,
}

struct Slot {
    generation: u32,
    connection: Option<Connection>,
    closing: Option<Ended>,
}

struct Listener {
    socket: Option<OwnedFd>,
    armed: bool,
}

pub(crate) struct Sockets {
    shard: ShardId,
    slots: Vec<Slot>,
    free: Vec<u32>,
    open: u32,
    provided: Provided,
    listeners: Vec<Listener>,
    /// Connections whose receive is to be armed at the next submission.
    to_arm: Vec<u32>,
    /// Connections with a carry that is wanted now.
    to_deliver: VecDeque<u32>,
    /// Sends of nothing: answered at the next poll.
    sent_nothing: Vec<ConnectionId>,
    pub(crate) counters: SocketCounters,
}

impl Sockets {
    pub(crate) fn new(shard: ShardId, provided: Provided) -> Sockets {
        Sockets {
            shard,
            slots: Vec::new(),
            free: Vec::new(),
            open: 0,
            provided,
            listeners: Vec::new(),
            to_arm: Vec::new(),
            to_deliver: VecDeque::new(),
            sent_nothing: Vec::new(),
            counters: SocketCounters::default(),
        }
    }

    pub(crate) fn open(&self) -> u32 {
        self.open
    }

    /// Events wait that no completion will bring.
    pub(crate) fn pending(&self) -> bool {
        !self.to_deliver.is_empty() || !self.sent_nothing.is_empty()
    }

    // ---- listeners

    pub(crate) fn add_listener(&mut self, socket: OwnedFd, driver: &mut Driver) -> u16 {
        self.listeners.push(Listener { socket: Some(socket), armed: false });
        let listener = (self.listeners.len() - 1) as u16;
        self.accept(listener, driver);
        listener
    }

    pub(crate) fn accept(&mut self, listener: u16, driver: &mut Driver) {
        let Some(Listener { socket: Some(socket), armed }) = self.listeners.get_mut(usize::from(listener)) else {
            return;
        };
        if !std::mem::replace(armed, true) {
            let entry = opcode::AcceptMulti::new(Fd(socket.as_raw_fd())).flags(libc::SOCK_CLOEXEC).build();
            // SAFETY: it points to nothing; the listener's descriptor is closed only when its accept has ended.
            unsafe { driver.push(entry.user_data(Kind::Accept.tag(u32::from(listener)))) };
        }
    }

    pub(crate) fn stop_listening(&mut self, listener: u16, driver: &mut Driver) {
        let Some(state) = self.listeners.get_mut(usize::from(listener)) else { return };
        if !state.armed {
            state.socket = None;
            return;
        }
        let cancel = opcode::AsyncCancel::new(Kind::Accept.tag(u32::from(listener))).build();
        // SAFETY: it points to nothing.
        unsafe { driver.push(cancel.user_data(Kind::Silent.tag(0))) };
    }

    fn accepted(&mut self, completion: Completion, driver: &mut Driver, each: &mut dyn FnMut(SocketEvent<'_>)) {
        use std::os::fd::FromRawFd;
        let listener = completion.slot as u16;
        let ended = !completion.more();
        let state = &mut self.listeners[usize::from(listener)];
        if ended {
            state.armed = false;
        }
        match completion.result {
            fd if fd >= 0 => {
                // SAFETY: a successful accept gives a descriptor that nobody else has.
                let socket = unsafe { OwnedFd::from_raw_fd(fd) };
                self.counters.accepted += 1;
                if ended {
                    self.accept(listener, driver);
                }
                each(SocketEvent::Accepted { listener, socket });
            }
            error => match -error {
                libc::ECANCELED => state.socket = None,
                // That one connection is gone already (accept(2)).
                libc::ECONNABORTED | libc::EINTR | libc::EAGAIN | libc::EPROTO if ended => {
                    self.accept(listener, driver)
                }
                errno if ended => each(SocketEvent::AcceptFailed { listener, errno }),
                _ => {}
            },
        }
    }

    // ---- connections

    pub(crate) fn adopt(&mut self, socket: OwnedFd) -> ConnectionId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, connection: None, closing: None });
            (self.slots.len() - 1) as u32
        });
        let entry = &mut self.slots[slot as usize];
        entry.connection = Some(Connection {
            socket,
            want: Want::Any,
            receiving: Receiving::Idle,
            carry: Vec::new(),
            more: false,
            eof: false,
            bulky: false,
            sending: Sending::default(),
            ending: None,
            shutdown_under_way: false,
        });
        let generation = entry.generation;
        self.open += 1;
        self.to_arm.push(slot);
        ConnectionId { shard: self.shard, slot, generation }
    }

    fn id(&self, slot: u32) -> ConnectionId {
        ConnectionId { shard: self.shard, slot, generation: self.slots[slot as usize].generation }
    }

    /// `None` for an earlier life, and for one that is ending: its `Closed` is on the way.
    fn live(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        if slot.generation != id.generation || id.shard != self.shard {
            return None;
        }
        slot.connection.as_mut().filter(|connection| connection.ending.is_none())
    }

    pub(crate) fn receive(&mut self, id: ConnectionId, want: Want) {
        let Some(connection) = self.live(id).filter(|connection| !connection.eof) else { return };
        let wanted = !matches!(want, Want::Nothing);
        connection.want = want;
        if wanted && !connection.carry.is_empty() {
            if !self.to_deliver.contains(&id.slot) {
                self.to_deliver.push_back(id.slot);
            }
        } else if wanted {
            self.to_arm.push(id.slot);
        }
    }

    /// Panics when a send is under way: the shard's rule is one at a time.
    pub(crate) fn send(&mut self, id: ConnectionId, parts: Vec<Buf>, driver: &mut Driver) {
        let Some(connection) = self.live(id) else { return };
        assert!(!connection.sending.under_way, "{id:?}: one send at a time");
        let bytes = parts.iter().map(|part| part.len()).sum();
        if bytes == 0 {
            return self.sent_nothing.push(id);
        }
        let sending = &mut connection.sending;
        (sending.parts, sending.bytes, sending.done, sending.under_way) = (parts, bytes, 0, true);
        self.start_send(id.slot, driver);
    }

    pub(crate) fn close(&mut self, id: ConnectionId, driver: &mut Driver) {
        if self.live(id).is_some() {
            self.end(id.slot, Ended::Asked, driver);
        }
    }

    /// At the end of a turn, when the shard has said what it wants: arms receives.
    pub(crate) fn arm(&mut self, driver: &mut Driver) {
        let mut slots = std::mem::take(&mut self.to_arm);
        for slot in slots.drain(..) {
            self.arm_one(slot, driver);
        }
        self.to_arm = slots;
    }

    fn arm_one(&mut self, slot: u32, driver: &mut Driver) {
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else { return };
        let idle = matches!(connection.receiving, Receiving::Idle);
        if !idle || connection.ending.is_some() || !connection.carry.is_empty() {
            return;
        }
        let fd = Fd(connection.socket.as_raw_fd());
        // Trying first is worth it when bytes are known to be there; else it is a wasted call.
        let first = if connection.more { 0 } else { RECVSEND_POLL_FIRST };
        let entry = match std::mem::replace(&mut connection.want, Want::Nothing) {
            Want::Nothing => return,
            Want::Any => {
                connection.want = Want::Any;
                connection.receiving = Receiving::Lent;
                // Zero: as much as a buffer holds.
                let bytes = if std::mem::take(&mut connection.bulky) { BULKY_HEAD_BYTES } else { 0 };
                opcode::Recv::new(fd, std::ptr::null_mut(), bytes)
                    .buf_group(Provided::GROUP)
                    .ioprio(first)
                    .build()
                    .flags(Flags::BUFFER_SELECT)
            }
            Want::Direct { mut into, bytes } => {
                let spare = into.spare_mut();
                let bytes = bytes.min(spare.len());
                connection.bulky = bytes >= BULKY_BYTES_MIN;
                let entry = opcode::Recv::new(fd, spare.as_mut_ptr(), bytes as u32)
                    .flags(libc::MSG_WAITALL)
                    .ioprio(first)
                    .build();
                connection.receiving = Receiving::Direct { into, bytes };
                entry
            }
        };
        // SAFETY: the memory is the provided ring's, or the block of `into`, which stays in `receiving` until the completion; the
        // socket is closed only when nothing is under way.
        unsafe { driver.push(entry.user_data(Kind::Receive.tag(slot))) };
    }

    fn start_send(&mut self, slot: u32, driver: &mut Driver) {
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else { return };
        let fd = Fd(connection.socket.as_raw_fd());
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let Sending { parts, done, vector, header, .. } = &mut connection.sending;
        fill_parts(vector, parts, *done);
        let entry = match vector.as_slice() {
            [one] => opcode::Send::new(fd, one.iov_base.cast(), one.iov_len as u32).flags(flags).build(),
            many => {
                // SAFETY: a msghdr of zeroes is one without name, parts and control data.
                let header = header.get_or_insert_with(|| Box::new(unsafe { std::mem::zeroed() }));
                header.msg_iov = many.as_ptr().cast_mut();
                header.msg_iovlen = many.len() as _;
                opcode::SendMsg::new(fd, &**header).flags(flags as u32).build()
            }
        };
        // SAFETY: the parts, the vector and the boxed header stay in `sending`, untouched, until the completion.
        unsafe { driver.push(entry.user_data(Kind::Send.tag(slot))) };
    }

    pub(crate) fn complete(
        &mut self,
        completion: Completion,
        driver: &mut Driver,
        each: &mut dyn FnMut(SocketEvent<'_>),
    ) {
        let slot = completion.slot;
        match completion.kind {
            Kind::Accept => self.accepted(completion, driver, each),
            Kind::Receive => {
                self.received(completion, driver, each);
                self.close_when_done(slot, driver);
            }
            Kind::Send => {
                self.sent(slot, completion.result, driver, each);
                self.close_when_done(slot, driver);
            }
            Kind::Shutdown => {
                if let Some(connection) = self.slots[slot as usize].connection.as_mut() {
                    connection.shutdown_under_way = false;
                }
                self.close_when_done(slot, driver);
            }
            Kind::CloseSocket => {
                let connection = self.id(slot);
                let entry = &mut self.slots[slot as usize];
                let why = entry.closing.take().unwrap_or(Ended::Asked);
                entry.generation = entry.generation.wrapping_add(1);
                self.free.push(slot);
                self.open -= 1;
                each(SocketEvent::Closed { connection, why });
            }
            Kind::Disk | Kind::Bell | Kind::Silent => {}
        }
    }

    fn received(&mut self, completion: Completion, driver: &mut Driver, each: &mut dyn FnMut(SocketEvent<'_>)) {
        let slot = completion.slot;
        let buffer = cqueue::buffer_select(completion.flags);
        let id = self.id(slot);
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else { return };
        connection.more = cqueue::sock_nonempty(completion.flags);
        let receiving = std::mem::replace(&mut connection.receiving, Receiving::Idle);
        let bytes = completion.result.max(0) as usize;
        self.counters.received_bytes += bytes as u64;
        let ending = connection.ending.is_some();
        match (receiving, -completion.result) {
            _ if ending => {}
            (receiving, libc::EINTR | libc::EAGAIN | libc::ENOBUFS) => {
                // Without a buffer it waits for the next turn, when this turn's are back.
                self.counters.starved += 1;
                if completion.result == -libc::ENOBUFS {
                    self.provided.starved();
                }
                if let Receiving::Direct { into, bytes } = receiving {
                    connection.want = Want::Direct { into, bytes };
                }
                self.to_arm.push(slot);
            }
            (_, 0) => {
                (connection.eof, connection.want) = (true, Want::Nothing);
                each(SocketEvent::Eof { connection: id });
            }
            (_, errno) if errno > 0 => self.end(slot, Ended::Errno(errno), driver),
            (Receiving::Direct { mut into, .. }, _) => {
                into.advance(bytes);
                each(SocketEvent::Received { connection: id, received: Received::Direct(into) });
            }
            (Receiving::Lent, _) => {
                let Some(buffer) = buffer else { return };
                self.lend(slot, buffer, bytes, each);
            }
            (Receiving::Idle, _) => {}
        }
        if let Some(buffer) = buffer {
            self.provided.recycle(buffer);
        }
    }

    fn lend(&mut self, slot: u32, buffer: u16, bytes: usize, each: &mut dyn FnMut(SocketEvent<'_>)) {
        let id = self.id(slot);
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else { return };
        if matches!(connection.want, Want::Any) {
            self.to_arm.push(slot);
            let received = match self.provided.give(buffer, bytes) {
                Some(given) => Received::Given(given),
                None => Received::Lent(self.provided.get(buffer, bytes)),
            };
            each(SocketEvent::Received { connection: id, received });
        } else {
            // The shard changed its mind while this was under way.
            connection.carry.extend_from_slice(self.provided.get(buffer, bytes));
            if !matches!(connection.want, Want::Nothing) {
                self.to_deliver.push_back(slot);
            }
        }
    }

    /// Hands out what is there without a completion.
    pub(crate) fn deliver(&mut self, each: &mut dyn FnMut(SocketEvent<'_>)) -> usize {
        let mut count = 0;
        for id in std::mem::take(&mut self.sent_nothing) {
            if self.live(id).is_some() {
                each(SocketEvent::Sent { connection: id, bytes: 0 });
                count += 1;
            }
        }
        for slot in std::mem::take(&mut self.to_deliver) {
            let connection = self.id(slot);
            let Some(state) = self.slots[slot as usize].connection.as_mut() else { continue };
            if state.ending.is_some() || state.carry.is_empty() {
                continue;
            }
            let received = match std::mem::replace(&mut state.want, Want::Nothing) {
                Want::Nothing => continue,
                Want::Direct { mut into, bytes } => {
                    let take = bytes.min(into.spare()).min(state.carry.len());
                    into.extend(&state.carry[..take]);
                    state.carry.drain(..take);
                    each(SocketEvent::Received { connection, received: Received::Direct(into) });
                    count += 1;
                    continue;
                }
                Want::Any => std::mem::take(&mut state.carry),
            };
            state.want = Want::Any;
            self.to_arm.push(slot);
            each(SocketEvent::Received { connection, received: Received::Lent(&received) });
            count += 1;
        }
        count
    }

    fn sent(&mut self, slot: u32, result: i32, driver: &mut Driver, each: &mut dyn FnMut(SocketEvent<'_>)) {
        let id = self.id(slot);
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else { return };
        let sending = &mut connection.sending;
        if result > 0 {
            sending.done += result as usize;
            self.counters.sent_bytes += result as u64;
        }
        let whole = sending.done == sending.bytes;
        let again = result > 0 || matches!(-result, libc::EINTR | libc::EAGAIN);
        if !whole && again && connection.ending.is_none() {
            return self.start_send(slot, driver);
        }
        sending.under_way = false;
        sending.parts.clear();
        let bytes = sending.bytes;
        if connection.ending.is_some() {
            return;
        }
        if whole {
            each(SocketEvent::Sent { connection: id, bytes });
        } else {
            self.end(slot, Ended::Errno(if result < 0 { -result } else { libc::EPIPE }), driver);
        }
    }

    /// From here on nothing but `Closed` comes of it. What is under way is made to complete.
    fn end(&mut self, slot: u32, why: Ended, driver: &mut Driver) {
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else { return };
        if connection.ending.is_some() {
            return;
        }
        connection.ending = Some(why);
        connection.want = Want::Nothing;
        connection.carry = Vec::new();
        if !matches!(connection.receiving, Receiving::Idle) || connection.sending.under_way {
            connection.shutdown_under_way = true;
            let entry = opcode::Shutdown::new(Fd(connection.socket.as_raw_fd()), libc::SHUT_RDWR).build();
            // SAFETY: it points to nothing; the socket stays open until it completed.
            unsafe { driver.push(entry.user_data(Kind::Shutdown.tag(slot))) };
        }
        self.close_when_done(slot, driver);
    }

    fn close_when_done(&mut self, slot: u32, driver: &mut Driver) {
        let entry = &mut self.slots[slot as usize];
        let Some(connection) = entry.connection.as_ref() else { return };
        let busy = !matches!(connection.receiving, Receiving::Idle)
            || connection.sending.under_way
            || connection.shutdown_under_way;
        if busy || connection.ending.is_none() {
            return;
        }
        let Some(connection) = entry.connection.take() else { return };
        entry.closing = connection.ending;
        let close = opcode::Close::new(Fd(connection.socket.into_raw_fd())).build();
        // SAFETY: it points to nothing, and we gave the descriptor up.
        unsafe { driver.push(close.user_data(Kind::CloseSocket.tag(slot))) };
    }
}
