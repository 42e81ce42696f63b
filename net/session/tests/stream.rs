//! A byte stream that arrives in any pieces, replies that come in any order, memory that is short: the same requests come out, the
//! replies go out in order, and the bounds hold.

use std::collections::VecDeque;

use ringmain_buffer::{Buf, BufMut, Pool};
use ringmain_session::*;
use ringmain_types::*;
use ringmain_wire::{APIS, Overlap, api};

struct Random(u64);
impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
    fn below(&mut self, bound: usize) -> usize {
        self.next() as usize % bound
    }
    fn one_in(&mut self, chance: usize) -> bool {
        self.below(chance) == 0
    }
}

fn id() -> ConnectionId {
    ConnectionId { shard: ShardId(0), slot: 1, generation: 1 }
}

fn now(ms: u64) -> Now {
    Now { mono: Instant(ms * 1_000_000), wall: WallMs(0) }
}

/// A request frame with its length prefix: any API, `body` filler bytes.
fn frame(api_key: i16, correlation: i32, body: usize) -> Vec<u8> {
    let spec = api(api_key).unwrap();
    let version = spec.versions.1;
    let mut bytes = vec![0; 4];
    bytes.extend(api_key.to_be_bytes());
    bytes.extend(version.to_be_bytes());
    bytes.extend(correlation.to_be_bytes());
    bytes.extend([0, 2, b'm', b'e']);
    if spec.is_flexible(version) {
        bytes.push(0);
    }
    bytes.extend((0..body).map(|at| (at as i32 ^ correlation) as u8));
    let length = bytes.len() as i32 - 4;
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

fn reply_bytes(correlation: i32) -> Vec<u8> {
    let mut bytes = correlation.to_be_bytes().to_vec();
    bytes.extend(vec![correlation as u8; (correlation as usize * 37) % 300]);
    bytes
}

/// A driver and a shard around one session, both moody.
struct World {
    random: Random,
    session: Session,
    pool: Pool,
    stream: VecDeque<u8>,
    want: Want,
    clock: u64,
    /// Taken away from the pool now and then.
    hoard: Vec<BufMut>,
    running: Vec<Request>,
    seen: Vec<Request>,
    sending: usize,
    sent: Vec<u8>,
    limits: Limits,
}

impl World {
    fn new(seed: u64, stream: Vec<u8>) -> World {
        let limits = Limits { frame_bytes_max: 1 << 20, ..Limits::tiny() };
        let limits = Limits { memory_bytes: [2 << 20; ACCOUNTS], ..limits };
        let mut pool = Pool::new(ShardId(0), &limits);
        let mut session = Session::open(id(), Transport::Plain, &limits, now(0));
        let want = session.want(now(0), &mut pool);
        World {
            random: Random(seed),
            session,
            pool,
            stream: stream.into(),
            want,
            clock: 0,
            hoard: Vec::new(),
            running: Vec::new(),
            seen: Vec::new(),
            sending: 0,
            sent: Vec::new(),
            limits,
        }
    }

    fn chunk(&mut self, max: usize) -> Vec<u8> {
        let max = max.min(self.stream.len());
        let bytes = if self.random.one_in(4) { max } else { self.random.below(max + 1) };
        self.stream.drain(..bytes).collect()
    }

    fn lend(&mut self, max: usize) {
        let chunk = self.chunk(max);
        let mut out = Vec::new();
        let incoming = match self.random.one_in(2) {
            true => Incoming::Lent(&chunk),
            false => Incoming::Given(Buf::copy_of(&chunk)),
        };
        self.session.received(now(self.clock), &mut self.pool, incoming, &mut out).unwrap();
        self.ran(out);
    }

    fn receive(&mut self) {
        let max = if self.random.one_in(2) { 20 } else { 64 << 10 };
        let want = std::mem::replace(&mut self.want, Want::Nothing { until: None });
        match want {
            Want::Any => self.lend(max),
            Want::Direct { mut into, bytes } => {
                // What was under way when the driver heard of it.
                if self.random.one_in(3) {
                    self.lend(64 << 10);
                }
                let chunk = self.chunk(bytes);
                into.spare_mut()[..chunk.len()].copy_from_slice(&chunk);
                into.advance(chunk.len());
                let mut out = Vec::new();
                self.session.received(now(self.clock), &mut self.pool, Incoming::Direct(into), &mut out).unwrap();
                self.ran(out);
            }
            Want::Nothing { .. } => {
                if self.random.one_in(10) {
                    self.lend(max);
                }
            }
        }
    }

    fn ran(&mut self, out: Vec<Request>) {
        for request in out {
            let overlap = |request: &Request| api(request.api).unwrap().overlap;
            assert!(self.running.len() < usize::from(self.limits.requests_inflight_max));
            assert!(self.running.iter().all(|other| overlap(other) == Overlap::Ordered), "behind a barrier");
            assert!(overlap(&request) == Overlap::Ordered || self.running.is_empty(), "a barrier among others");
            self.running.push(request.clone());
            self.seen.push(request);
        }
    }

    fn answer(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let at = self.random.below(self.running.len());
        let request = self.running.remove(at);
        let mut out = Vec::new();
        if request.correlation % 5 == 0 {
            self.session.skip(now(self.clock), request.slot, &mut out);
        } else {
            let bytes = reply_bytes(request.correlation);
            let cut = self.random.below(bytes.len() + 1);
            let parts = vec![Buf::copy_of(&bytes[..cut]), Buf::copy_of(&bytes[cut..])];
            self.session.reply(
                now(self.clock),
                Reply { slot: request.slot, parts: parts.into(), throttle_ms: 0 },
                &mut out,
            );
        }
        self.ran(out);
    }

    fn send(&mut self) {
        let max = 1 + self.random.below(1000);
        let parts = self.session.outgoing(max);
        let bytes = parts.concat();
        assert!(bytes.len() <= max && parts.len() <= SEND_PARTS_MAX && parts.iter().all(|part| !part.is_empty()));
        if self.sending > 0 {
            assert!(bytes.is_empty(), "one send at a time");
            let mut out = Vec::new();
            self.session.sent(now(self.clock), self.sending, &mut out);
            self.sending = 0;
            self.ran(out);
        } else {
            // Now and then a driver that sends less.
            let take = if self.random.one_in(4) { self.random.below(bytes.len() + 1) } else { bytes.len() };
            self.sent.extend(&bytes[..take]);
            self.sending = take;
            if take < bytes.len() {
                let mut out = Vec::new();
                self.session.sent(now(self.clock), take, &mut out);
                self.sending = 0;
                self.ran(out);
            }
        }
    }

    fn step(&mut self) {
        self.clock += 1;
        match self.random.below(8) {
            0..4 => self.receive(),
            4..6 => self.answer(),
            6 => self.send(),
            _ if self.random.one_in(3) => {
                let hungry = self.random.one_in(2);
                self.hoard.clear();
                if hungry {
                    let size = 1 << (9 + self.random.below(8));
                    self.hoard = std::iter::from_fn(|| self.pool.take(Account::Receive, size).ok()).collect();
                }
                self.pool.collect();
            }
            _ => {}
        }
        if !matches!(self.want, Want::Direct { .. }) {
            self.want = self.session.want(now(self.clock), &mut self.pool);
        }
    }
}

fn run(seed: u64) {
    let mut random = Random(seed ^ 0xabcdef);
    let count = 1 + random.below(60) as i32;
    let mut frames = Vec::new();
    for correlation in 0..count {
        let body = match random.below(6) {
            0 => random.below(200_000),
            1 => random.below(5000),
            _ => random.below(100),
        };
        let key = if random.one_in(4) { APIS[random.below(APIS.len())].key } else { 0 };
        frames.push(frame(key, correlation, body));
    }
    let mut world = World::new(seed, frames.concat());
    let mut steps = 0;
    while world.seen.len() < frames.len() || !world.session.quiet() {
        world.step();
        steps += 1;
        assert!(steps < 200_000, "seed {seed}: stuck at {} of {count}, {:?}", world.seen.len(), world.want);
    }
    assert!(world.stream.is_empty());
    for (request, frame) in world.seen.iter().zip(&frames) {
        assert_eq!(&request.frame[..], &frame[4..], "seed {seed}");
        assert_eq!(&request.client_id[..], b"me");
        let body = request.frame.len() - request.body as usize;
        assert!(
            request.frame[request.body as usize..]
                .iter()
                .enumerate()
                .all(|(at, byte)| { *byte == (at as i32 ^ request.correlation) as u8 && at < body })
        );
    }
    let want: Vec<u8> = (0..count).filter(|at| at % 5 != 0).flat_map(reply_bytes).collect();
    assert!(world.sent == want, "seed {seed}: replies out of order");
    assert_eq!(world.session.held_bytes(), 0);
    world.seen.clear();
    world.hoard.clear();
    world.want = Want::Any;
    world.pool.collect();
    assert_eq!(world.pool.used(Account::Receive), 0, "seed {seed}: a quiet connection holds nothing");
}

#[test]
fn any_pieces_any_order_any_memory() {
    for seed in 0..300 {
        run(seed);
    }
}
