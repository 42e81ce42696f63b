//! The hands of a core: its data ring, its ends of the mesh, its sink of notes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use ringmain_disk::{Disk, DiskError};
use ringmain_ring::{Ended, Event, Received, Ring, SocketEvent, Want as RingWant};
use ringmain_session::{Close, Incoming, Want};
use ringmain_shard::{Effects, Hands, Input, NetOp, Note};
use ringmain_types::{ACCOUNTS, ConnectionId, Now, ShardId};
use rustix::fd::OwnedFd;

use crate::mesh::{MeshEnds, Parcel};
use crate::notes::{Gauges, NoteSink};

/// After accepting failed (no descriptors left, say): until it is tried again.
const ACCEPT_PAUSE_NS: u64 = 100_000_000;
/// A turn that took longer is counted.
const TURN_LONG_US: u64 = 10_000;

/// What a core tells the main thread.
#[derive(Debug)]
pub enum Report {
    Ready,
    /// The clean stop is done.
    Stopped,
    /// The log directory failed.
    Fenced(DiskError),
    /// This core can't go on.
    Failed(String),
    /// SIGTERM or SIGINT.
    Signal,
}

pub struct CoreHands {
    shard: ShardId,
    shards: u16,
    ring: Ring,
    mesh: MeshEnds,
    sink: Box<dyn NoteSink>,
    reports: Sender<Report>,
    stop: Arc<AtomicBool>,
    stopping: bool,
    stopped: bool,
    now: Now,
    /// Accepted in this poll, to be dealt.
    accepted: Vec<(u16, OwnedFd)>,
    /// To become connections here.
    adopting: Vec<(u16, OwnedFd)>,
    /// The next shard to get a connection.
    next: u16,
    accept_again: Option<(u16, u64)>,
    pub gauges: Gauges,
}

pub struct Parts {
    pub shard: ShardId,
    pub shards: u16,
    pub ring: Ring,
    pub mesh: MeshEnds,
    pub sink: Box<dyn NoteSink>,
    pub reports: Sender<Report>,
    pub stop: Arc<AtomicBool>,
    pub now: Now,
}

impl CoreHands {
    pub fn new(parts: Parts) -> CoreHands {
        CoreHands {
            shard: parts.shard,
            shards: parts.shards,
            ring: parts.ring,
            mesh: parts.mesh,
            sink: parts.sink,
            reports: parts.reports,
            stop: parts.stop,
            stopping: false,
            stopped: false,
            now: parts.now,
            accepted: Vec::new(),
            adopting: Vec::new(),
            next: 0,
            accept_again: None,
            gauges: Gauges::default(),
        }
    }

    /// Both clocks, read once: everything until the next call happens at this time.
    pub fn begin(&mut self, now: Now) {
        self.now = now;
        self.gauges.turns += 1;
    }

    /// The turn is over.
    pub fn ended(&mut self, now_ns: u64) {
        let took_us = now_ns.saturating_sub(self.now.mono.0) / 1000;
        self.gauges.turn_longest_us = self.gauges.turn_longest_us.max(took_us);
        self.gauges.turns_over_10ms += u64::from(took_us > TURN_LONG_US);
    }

    /// `Note::Stopped` was seen.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    pub fn ring(&mut self) -> &mut Ring {
        &mut self.ring
    }

    /// Something waits for the next turn. No system call.
    pub fn ready(&mut self) -> bool {
        self.ring.ready() || !self.mesh.quiet() || self.stop.load(Ordering::Relaxed) != self.stopping
    }

    /// When the hands themselves want a turn.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.accept_again.map(|(_, at)| at)
    }

    /// Blocks until something comes, or `deadline_ns`. Returns at once when something came already.
    pub fn sleep(&mut self, deadline_ns: u64) {
        self.mesh.sleeps();
        if self.mesh.quiet() && self.stop.load(Ordering::SeqCst) == self.stopping {
            self.gauges.parks += 1;
            let left = deadline_ns.saturating_sub(ringmain_ring::monotonic_ns());
            self.ring.sleep(Duration::from_nanos(left));
        }
        self.mesh.wakes();
    }

    /// Publishes what is not a note.
    pub fn publish(&mut self, memory: [(u64, u64); ACCOUNTS]) {
        let (disk, net) = (self.ring.disk_counters(), self.ring.socket_counters());
        self.gauges = Gauges {
            turns: self.gauges.turns,
            parks: self.gauges.parks,
            enters: self.ring.enters(),
            connections: self.ring.connections(),
            connections_accepted: net.accepted,
            received_bytes: net.received_bytes,
            sent_bytes: net.sent_bytes,
            disk_written_bytes: disk.written_bytes,
            disk_read_bytes: disk.read_bytes,
            disk_flushes: disk.flushes,
            memory,
            open_files: self.ring.open_files(),
            turn_longest_us: self.gauges.turn_longest_us,
            turns_over_10ms: self.gauges.turns_over_10ms,
        };
        self.sink.turn(self.now, &self.gauges);
    }

    fn note(&mut self, note: Note) {
        self.sink.note(self.now, &note);
        // The main thread listens until all cores ended.
        let _ = match note {
            Note::Ready => self.reports.send(Report::Ready),
            Note::Fenced { error, .. } => self.reports.send(Report::Fenced(error)),
            Note::Stopped => {
                self.stopped = true;
                self.reports.send(Report::Stopped)
            }
            _ => Ok(()),
        };
    }

    /// Connections go round over the shards, the accepting one included.
    fn deal(&mut self) {
        for (listener, socket) in self.accepted.drain(..) {
            let to = ShardId(self.next);
            self.next = (self.next + 1) % self.shards;
            if to == self.shard {
                self.adopting.push((listener, socket));
            } else {
                self.mesh.send(to, Parcel::Connection { listener, socket });
            }
        }
    }

    fn adopt(&mut self, step: &mut dyn FnMut(Input<'_>)) -> usize {
        let adopting = std::mem::take(&mut self.adopting);
        let count = adopting.len();
        for (listener, socket) in adopting {
            // A peer that is gone already has no address, and is no connection.
            let Some(peer) = rustix::net::getpeername(&socket).ok().flatten().and_then(|any| any.try_into().ok())
            else {
                continue;
            };
            let connection = self.ring.adopt(socket);
            step(Input::Accepted { connection, listener, peer });
        }
        count
    }

    fn poll_stop(&mut self, step: &mut dyn FnMut(Input<'_>)) -> usize {
        if self.stopping || !self.stop.load(Ordering::SeqCst) {
            return 0;
        }
        self.stopping = true;
        self.ring.stop_listening(0);
        step(Input::Stop);
        1
    }

    fn net(&mut self, op: NetOp) {
        match op {
            NetOp::Receive { connection, want } => {
                let want = match want {
                    Want::Any => RingWant::Any,
                    Want::Direct { into, bytes } => RingWant::Direct { into, bytes },
                    // The shard asks again at `until`: its own deadline.
                    Want::Nothing { .. } => RingWant::Nothing,
                };
                self.ring.receive(connection, want);
            }
            NetOp::Send { connection, parts } => self.ring.send(connection, parts),
            NetOp::Close { connection } => self.ring.close(connection),
        }
    }
}

impl Hands for CoreHands {
    fn poll(&mut self, step: &mut dyn FnMut(Input<'_>)) -> usize {
        let mut count = self.poll_stop(step);
        let adopting = &mut self.adopting;
        count += self.mesh.take(&mut |from, parcel| match parcel {
            Parcel::Mesh(message) => step(Input::Mesh { from, message }),
            Parcel::Connection { listener, socket } => adopting.push((listener, socket)),
        });
        if let Some((listener, at)) = self.accept_again
            && at <= self.now.mono.0
            && !self.stopping
        {
            self.accept_again = None;
            self.ring.accept(listener);
        }
        let (accepted, accept_again) = (&mut self.accepted, &mut self.accept_again);
        let again_ns = self.now.mono.0 + ACCEPT_PAUSE_NS;
        count += self.ring.poll(&mut |event| match event {
            Event::Disk(done) => step(Input::Disk(done)),
            Event::Socket(SocketEvent::Accepted { listener, socket }) => accepted.push((listener, socket)),
            Event::Socket(SocketEvent::AcceptFailed { listener, errno }) => {
                let error = std::io::Error::from_raw_os_error(errno);
                tracing::warn!(%error, "accepting connections failed; tried again in 100 ms");
                *accept_again = Some((listener, again_ns));
            }
            Event::Socket(event) => socket_event(event, step),
        });
        self.deal();
        count + self.adopt(step)
    }

    fn perform(&mut self, effects: &mut Effects) {
        for op in effects.disk.drain(..) {
            Disk::submit(&mut self.ring, op);
        }
        for op in effects.net.drain(..) {
            self.net(op);
        }
        for (to, message) in effects.mesh.drain(..) {
            self.mesh.send(to, Parcel::Mesh(message));
        }
        self.mesh.flush();
        self.ring.submit();
        for note in effects.notes.drain(..) {
            self.note(note);
        }
    }
}

fn socket_event(event: SocketEvent<'_>, step: &mut dyn FnMut(Input<'_>)) {
    match event {
        SocketEvent::Received { connection, received } => {
            let incoming = match received {
                Received::Lent(bytes) => Incoming::Lent(bytes),
                Received::Given(block) => Incoming::Given(block),
                Received::Direct(into) => Incoming::Direct(into),
            };
            step(Input::Received { connection, incoming });
        }
        SocketEvent::Eof { connection } => step(Input::Eof { connection }),
        SocketEvent::Sent { connection, bytes } => step(Input::Sent { connection, bytes }),
        SocketEvent::Closed { connection, why } => closed(connection, why, step),
        SocketEvent::Accepted { .. } | SocketEvent::AcceptFailed { .. } => {}
    }
}

fn closed(connection: ConnectionId, why: Ended, step: &mut dyn FnMut(Input<'_>)) {
    let why = match why {
        // The shard asked and knows why.
        Ended::Asked => Close::Shutdown,
        Ended::Errno(errno) => Close::Errno(errno),
    };
    step(Input::Closed { connection, why });
}
