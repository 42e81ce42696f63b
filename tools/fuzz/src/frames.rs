//! A connection's bytes: where they are cut makes no difference.

use std::collections::VecDeque;

use ringmain_buffer::{Buf, Pool};
use ringmain_session::{Close, Incoming, Reply, Request, Session, Transport, Want};
use ringmain_types::*;

use crate::input::Input;

/// API, version, correlation id, client id, frame, where its body begins.
type Asked = (i16, i16, i32, Vec<u8>, Vec<u8>, u32);

/// What one driver saw of a connection.
#[derive(Debug, PartialEq)]
struct Seen {
    requests: Vec<Asked>,
    end: Option<Close>,
}

/// A count of pieces, each with the way it comes in its upper two bits, then the stream.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let count = usize::from(input.byte() & 15);
    let pieces: Vec<u16> = (0..count).map(|_| input.u16()).collect();
    let stream = input.rest();
    let whole = Driver::new(stream).run(&[]);
    let cut = Driver::new(stream).run(&pieces);
    assert_eq!(whole, cut, "cut into {pieces:?}");
    let single: Vec<u16> = stream.iter().map(|_| 1).collect();
    assert_eq!(whole, Driver::new(stream).run(&single), "byte by byte");
}

/// What a session takes for what came.
const GROWTH: usize = 2 * 16;
const BLOCK_BYTES: usize = 4 << 10;

struct Driver {
    session: Session,
    pool: Pool,
    stream: VecDeque<u8>,
    /// Bytes of it that the session has.
    came: usize,
    running: Vec<Request>,
    seen: Seen,
    clock: u64,
}

impl Driver {
    fn new(stream: &[u8]) -> Driver {
        let limits = Limits::tiny();
        let id = ConnectionId { shard: ShardId(0), slot: 1, generation: 1 };
        let now = Now { mono: Instant(0), wall: WallMs(0) };
        Driver {
            session: Session::open(id, Transport::Plain, &limits, now),
            pool: Pool::new(ShardId(0), &limits),
            stream: stream.iter().copied().collect(),
            came: 0,
            running: Vec::new(),
            seen: Seen { requests: Vec::new(), end: None },
            clock: 0,
        }
    }

    fn now(&mut self) -> Now {
        self.clock += 1;
        Now { mono: Instant(self.clock), wall: WallMs(0) }
    }

    fn run(mut self, pieces: &[u16]) -> Seen {
        let mut pieces = pieces.iter();
        // Every turn takes bytes, answers, or is the last.
        for _ in 0..2 * self.stream.len() + 100 {
            let now = self.now();
            let want = self.session.want(now, &mut self.pool);
            if self.stream.is_empty() || matches!(want, Want::Nothing { .. }) {
                if self.running.is_empty() || self.seen.end.is_some() {
                    break;
                }
                self.answer();
                continue;
            }
            let piece = pieces.next().copied().unwrap_or(u16::MAX);
            let bytes = usize::from(piece & 0x3fff).max(1).min(self.stream.len());
            self.receive(want, bytes, piece >> 14);
            if self.seen.end.is_some() {
                break;
            }
            if piece & 0x4000 == 0 {
                self.answer();
            }
        }
        while !self.running.is_empty() && self.seen.end.is_none() {
            self.answer();
        }
        let now = self.now();
        let end = self.session.tick(now).err();
        self.seen.end = self.seen.end.take().or(end);
        self.seen
    }

    fn receive(&mut self, want: Want, bytes: usize, way: u16) {
        let now = self.now();
        let mut out = Vec::new();
        let result = match want {
            Want::Direct { mut into, bytes: most } => {
                let piece: Vec<u8> = self.stream.drain(..bytes.min(most)).collect();
                self.came += piece.len();
                into.extend(&piece);
                self.session.received(now, &mut self.pool, Incoming::Direct(into), &mut out)
            }
            _ => {
                let piece: Vec<u8> = self.stream.drain(..bytes).collect();
                self.came += piece.len();
                let incoming = match way & 2 {
                    0 => Incoming::Lent(&piece),
                    _ => Incoming::Given(Buf::copy_of(&piece)),
                };
                self.session.received(now, &mut self.pool, incoming, &mut out)
            }
        };
        self.ran(out);
        self.seen.end = result.err();
        // net/session: a frame's block is at most sixteen times what came of it, or 4 KiB, and blocks are powers of two.
        self.pool.collect();
        let used = self.pool.used(Account::Receive) as usize;
        let allowed = self.came * GROWTH + (1 + self.seen.requests.len()) * BLOCK_BYTES;
        assert!(used <= allowed, "{} bytes came and {used} are held", self.came);
    }

    fn ran(&mut self, requests: Vec<Request>) {
        for request in requests {
            self.seen.requests.push((
                request.api,
                request.version,
                request.correlation,
                request.client_id.to_vec(),
                request.frame.to_vec(),
                request.body,
            ));
            self.running.push(request);
        }
    }

    /// All that run are answered, the last first, and what goes out is sent.
    fn answer(&mut self) {
        for request in std::mem::take(&mut self.running).into_iter().rev() {
            let now = self.now();
            let mut out = Vec::new();
            let parts = vec![Buf::copy_of(&[0; 8])];
            self.session.reply(now, Reply { slot: request.slot, parts: parts.into(), throttle_ms: 0 }, &mut out);
            self.ran(out);
        }
        loop {
            let bytes: usize = self.session.outgoing(1 << 20).iter().map(|part| part.len()).sum();
            if bytes == 0 {
                break;
            }
            let now = self.now();
            let mut out = Vec::new();
            self.session.sent(now, bytes, &mut out);
            self.ran(out);
        }
    }
}
