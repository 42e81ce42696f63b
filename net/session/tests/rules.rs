//! Strangers, claims, clocks and bounds.

use ringmain_buffer::{Buf, Pool};
use ringmain_session::*;
use ringmain_types::*;

fn now(ms: u64) -> Now {
    Now { mono: Instant(ms * 1_000_000), wall: WallMs(0) }
}

struct Rig {
    session: Session,
    pool: Pool,
    limits: Limits,
    out: Vec<Request>,
}

impl Rig {
    fn new(limits: Limits) -> Rig {
        let id = ConnectionId { shard: ShardId(0), slot: 0, generation: 0 };
        let session = Session::open(id, Transport::Plain, &limits, now(0));
        Rig { session, pool: Pool::new(ShardId(0), &limits), limits, out: Vec::new() }
    }
    fn lend(&mut self, ms: u64, bytes: &[u8]) -> Result<(), Close> {
        self.session.received(now(ms), &mut self.pool, Incoming::Lent(bytes), &mut self.out)
    }
    fn want(&mut self, ms: u64) -> Want {
        self.session.want(now(ms), &mut self.pool)
    }
    fn muted(&mut self) -> bool {
        matches!(self.want(0), Want::Nothing { .. })
    }
    fn used(&mut self) -> u64 {
        self.pool.collect();
        self.pool.used(Account::Receive)
    }
    fn reply(&mut self, ms: u64, slot: ReplySlot, parts: Vec<Buf>) {
        self.session.reply(now(ms), Reply { slot, parts: parts.into(), throttle_ms: 0 }, &mut self.out);
    }
}

fn tiny() -> Rig {
    Rig::new(Limits::tiny())
}

/// Header v1 without a client id.
fn frame(api: i16, version: i16, body: usize) -> Vec<u8> {
    let mut bytes = (10 + body as i32).to_be_bytes().to_vec();
    bytes.extend(api.to_be_bytes());
    bytes.extend(version.to_be_bytes());
    bytes.extend([0, 0, 0, 7, 0xff, 0xff]);
    bytes.extend(vec![0; body]);
    bytes
}
fn produce(body: usize) -> Vec<u8> {
    frame(0, 3, body)
}
/// CreateTopics.
const BARRIER: (i16, i16) = (19, 2);

fn protocol(bytes: &[u8]) -> String {
    match tiny().lend(0, bytes) {
        Err(Close::Protocol(what)) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn strangers_are_closed_by_name() {
    assert!(protocol(b"GET / HTTP/1.1\r\n").contains("HTTP"));
    assert!(protocol(&[0x16, 3, 1, 0, 200, 1]).contains("TLS"));
    assert!(protocol(&[0, 0, 0, 0]).contains("length 0"));
    assert!(protocol(&[0xff; 4]).contains("length -1"));
    assert!(protocol(&[0, 0, 0, 3, 1, 2, 3]).contains("header"));
    assert!(protocol(&frame(999, 4, 0)).contains("API 999 version 4"));
    assert!(protocol(&frame(1, 99, 0)).contains("Fetch version 99"));
    assert!(protocol(&frame(1, -1, 0)).contains("Fetch version -1"));
    let max = Limits::tiny().frame_bytes_max;
    assert_eq!(tiny().lend(0, &(max as i32 + 1).to_be_bytes()), Err(Close::TooLarge { bytes: max + 1, max }));
    assert_eq!(tiny().lend(0, &i32::MAX.to_be_bytes()), Err(Close::TooLarge { bytes: i32::MAX as u32, max }));
    assert_eq!(tiny().lend(0, &(max as i32).to_be_bytes()), Ok(()));
}

#[test]
fn a_stranger_in_single_bytes_is_closed_at_the_fourth() {
    let mut rig = tiny();
    for byte in b"GET" {
        rig.lend(0, &[*byte]).unwrap();
    }
    assert!(rig.lend(0, b" ").is_err());
    assert!(rig.lend(0, &produce(0)).is_err(), "nothing more is taken");
    assert!(rig.muted() && rig.session.tick(now(0)).is_err() && rig.out.is_empty());
}

#[test]
fn requests_before_a_bad_frame_come_out() {
    let mut rig = tiny();
    let result = rig.lend(0, &[produce(5), vec![0; 4]].concat());
    assert!(result.is_err() && rig.out.len() == 1);
}

#[test]
fn an_unknown_version_of_api_versions_is_a_request() {
    let mut rig = tiny();
    rig.lend(0, &frame(18, 99, 30)).unwrap();
    assert_eq!((rig.out[0].api, rig.out[0].version, rig.out[0].correlation), (18, 99, 7));
}

#[test]
fn a_claim_moves_no_memory() {
    let mut rig = Rig::new(Limits::production(1 << 30));
    rig.lend(0, &(rig.limits.frame_bytes_max as i32).to_be_bytes()).unwrap();
    assert!(matches!(rig.want(0), Want::Any));
    assert_eq!(rig.used(), 0);
    rig.lend(0, &[0]).unwrap();
    assert!(matches!(rig.want(0), Want::Any));
    assert_eq!(rig.used(), 4096);
}

#[test]
fn a_large_body_goes_straight_into_its_block_and_is_copied_but_once() {
    let mut rig = Rig::new(Limits::production(1 << 30));
    let bytes = produce(1_000_000);
    rig.lend(0, &bytes[..64 << 10]).unwrap();
    let mut at = 64 << 10;
    let mut blocks = Vec::new();
    while rig.out.is_empty() {
        let Want::Direct { mut into, bytes: take } = rig.want(0) else { panic!() };
        into.extend(&bytes[at..at + take]);
        at += take;
        blocks.push(into.as_ptr());
        rig.session.received(now(0), &mut rig.pool, Incoming::Direct(into), &mut rig.out).unwrap();
    }
    assert_eq!(at, bytes.len());
    assert!(rig.out[0].frame[..] == bytes[4..]);
    assert!(blocks.iter().all(|block| *block == blocks[0]), "one block");
}

#[test]
fn small_frames_share_a_block() {
    let mut rig = tiny();
    rig.lend(0, &[produce(50), produce(60), produce(70)].concat()).unwrap();
    assert_eq!(rig.out.len(), 3);
    assert!(rig.out[0].frame.same_block(&rig.out[2].frame));
    assert!(rig.used() <= 512);
}

#[test]
fn unanswered_requests_are_bounded_and_the_rest_waits() {
    let mut rig = tiny();
    let max = usize::from(rig.limits.requests_inflight_max);
    rig.lend(0, &produce(9).repeat(max + 3)).unwrap();
    assert!(rig.out.len() == max && rig.muted());
    let slot = rig.out[0].slot;
    rig.reply(0, slot, vec![]);
    assert!(rig.out.len() == max + 1 && rig.muted());
    for at in 1..4 {
        rig.session.skip(now(0), rig.out[at].slot, &mut rig.out);
    }
    assert!(rig.out.len() == max + 3 && !rig.muted());
}

#[test]
fn a_barrier_runs_alone_and_one_receive_ahead_is_taken() {
    let mut rig = tiny();
    let barrier = frame(BARRIER.0, BARRIER.1, 0);
    rig.lend(0, &[produce(1), barrier.clone()].concat()).unwrap();
    assert!(rig.out.len() == 1 && rig.muted());
    rig.reply(0, ReplySlot(0), vec![]);
    assert!(rig.out.len() == 2 && !rig.muted());
    rig.lend(0, &[produce(1), produce(1)].concat()).unwrap();
    assert!(rig.out.len() == 2 && rig.muted(), "nothing overtakes");
    rig.reply(0, ReplySlot(1), vec![]);
    assert!(rig.out.len() == 4 && !rig.muted());
}

#[test]
fn a_bad_frame_behind_a_barrier_closes_when_its_turn_comes() {
    let mut rig = tiny();
    rig.lend(0, &[frame(BARRIER.0, BARRIER.1, 0), vec![0xff; 4]].concat()).unwrap();
    assert!(rig.session.tick(now(0)).is_ok());
    rig.reply(0, ReplySlot(0), vec![]);
    assert_eq!(rig.session.deadline(), Some(Instant(0)));
    assert!(matches!(rig.session.tick(now(0)), Err(Close::Protocol(_))));
}

#[test]
fn several_replies_leave_in_one_send() {
    let mut rig = tiny();
    rig.lend(0, &produce(1).repeat(3)).unwrap();
    let (a, b, c) = (Buf::copy_of(b"aa"), Buf::copy_of(b"bb"), Buf::copy_of(b"cc"));
    rig.reply(0, ReplySlot(2), vec![c]);
    assert!(rig.session.outgoing(100).is_empty() && rig.session.held_bytes() == 512);
    rig.reply(0, ReplySlot(1), vec![b.slice(0..1), b.slice(1..2)]);
    assert_eq!(rig.session.held_bytes(), 1024, "a block counts once");
    rig.reply(0, ReplySlot(0), vec![a]);
    assert_eq!(rig.session.outgoing(5).concat(), b"aabbc");
    assert!(rig.session.outgoing(5).is_empty());
    rig.session.sent(now(0), 5, &mut rig.out);
    assert_eq!(rig.session.outgoing(5).concat(), b"c");
    rig.session.sent(now(0), 1, &mut rig.out);
    assert!(rig.session.quiet() && rig.session.held_bytes() == 0);
}

#[test]
fn who_does_not_take_his_replies_has_no_more_requests_run() {
    let mut rig = tiny();
    let (max, reply) = (rig.limits.connection_unsent_bytes_max as usize, Buf::copy_of(&[7; 1000]));
    rig.lend(0, &produce(1).repeat(200)).unwrap();
    let mut answered = 0;
    // The first one takes long; what comes behind it is answered, and waits for it.
    let first = rig.out.remove(0);
    while let Some(request) = rig.out.pop() {
        answered += 1;
        rig.reply(0, request.slot, vec![reply.clone()]);
    }
    rig.reply(0, first.slot, vec![reply.clone()]);
    answered += 1;
    assert!((max / 1256..=max / 1256 + 4).contains(&answered), "{answered} of 200");
    assert!(rig.muted());
    // The rest, in the order they came, as the replies are taken.
    while !rig.session.quiet() {
        let bytes = rig.session.outgoing(5000).concat().len();
        assert!(bytes > 0);
        rig.session.sent(now(0), bytes, &mut rig.out);
        for request in std::mem::take(&mut rig.out) {
            answered += 1;
            rig.reply(0, request.slot, vec![reply.clone()]);
        }
    }
    assert_eq!(answered, 200);
    assert!(!rig.muted());
}

#[test]
fn a_throttled_client_is_not_read_until() {
    let mut rig = tiny();
    rig.lend(0, &produce(1)).unwrap();
    rig.session.reply(now(5), Reply { slot: ReplySlot(0), parts: Default::default(), throttle_ms: 10 }, &mut rig.out);
    assert!(matches!(rig.want(14), Want::Nothing { until: Some(at) } if at == now(15).mono));
    assert_eq!(rig.session.deadline(), Some(now(15).mono), "it is asked again then");
    rig.session.tick(now(15)).unwrap();
    assert!(rig.session.deadline() > Some(now(15).mono));
    assert!(matches!(rig.want(15), Want::Any));
}

#[test]
fn silence_is_closed_unless_the_client_waits_for_us() {
    let mut rig = tiny();
    let idle = rig.limits.connection_idle_ms;
    assert_eq!(rig.session.deadline(), Some(now(idle).mono));
    rig.lend(10, &produce(1)).unwrap();
    assert_eq!(rig.session.deadline(), None, "a long poll is not idle");
    assert_eq!(rig.session.tick(now(10 * idle)), Ok(()));
    rig.reply(20, ReplySlot(0), vec![Buf::copy_of(b"x")]);
    assert_eq!(rig.session.outgoing(10).len(), 1);
    rig.session.sent(now(30), 1, &mut rig.out);
    assert_eq!(rig.session.deadline(), Some(now(30 + idle).mono));
    assert_eq!(rig.session.tick(now(29 + idle)), Ok(()));
    assert_eq!(rig.session.tick(now(30 + idle)), Err(Close::Idle));
}

#[test]
fn a_frame_that_does_not_get_on_is_closed_and_a_slow_one_is_not() {
    let mut rig = tiny();
    let slow = rig.limits.connection_slow_ms;
    rig.lend(0, &produce(50_000)[..3]).unwrap();
    assert_eq!(rig.session.tick(now(slow)), Err(Close::Slow), "three bytes of a length");

    let mut rig = tiny();
    let bytes = produce(50_000);
    for (at, chunk) in bytes.chunks(1_000).enumerate() {
        let ms = at as u64 * 900;
        rig.lend(ms, chunk).unwrap();
        if rig.session.deadline().is_some_and(|deadline| deadline <= now(ms).mono) {
            rig.session.tick(now(ms)).unwrap();
        }
    }
    assert_eq!(rig.out.len(), 1, "45 s, but always more than a byte a millisecond");
}

#[test]
fn who_does_not_take_replies_is_closed() {
    let mut rig = tiny();
    let slow = rig.limits.connection_slow_ms;
    rig.lend(0, &produce(1)).unwrap();
    rig.reply(7, ReplySlot(0), vec![Buf::copy_of(b"reply")]);
    rig.session.outgoing(100);
    assert_eq!(rig.session.deadline(), Some(now(7 + slow).mono));
    assert_eq!(rig.session.tick(now(7 + slow)), Err(Close::Slow));
}

#[test]
fn without_memory_what_came_whole_runs_and_what_did_not_waits_then_closes() {
    let mut rig = tiny();
    let hoard: Vec<_> = std::iter::from_fn(|| rig.pool.take(Account::Receive, 512).ok()).collect();
    let bytes = produce(9_000);
    rig.lend(0, &[&produce(8)[..], &bytes[..5_000]].concat()).unwrap();
    assert!(rig.out.len() == 1 && rig.muted());
    drop(hoard);
    assert!(!rig.muted(), "memory came back");
    rig.lend(0, &bytes[5_000..]).unwrap();
    assert!(rig.out.len() == 2 && rig.out[1].frame[..] == bytes[4..]);

    rig.lend(0, &bytes[..4]).unwrap();
    let _hoard: Vec<_> = std::iter::from_fn(|| rig.pool.take(Account::Receive, 512).ok()).collect();
    rig.lend(0, &bytes[4..3_000]).unwrap();
    assert!(rig.muted());
    assert_eq!(rig.session.tick(now(rig.limits.connection_slow_ms)), Err(Close::Memory));
}

#[test]
fn a_session_can_move_and_a_quiet_one_is_small() {
    fn send<T: Send>() {}
    send::<Session>();
    assert!(size_of::<Session>() <= 1024, "{}", size_of::<Session>());
}

#[test]
fn a_client_that_sends_no_more_gets_its_replies() {
    let mut rig = tiny();
    // Two that may overlap, one that runs alone, one behind it, and the beginning of another.
    let mut bytes = [produce(3), produce(3), frame(BARRIER.0, BARRIER.1, 3), produce(3)].concat();
    bytes.extend(&produce(3)[..9]);
    rig.lend(0, &bytes).unwrap();
    rig.session.end(now(0));
    assert!(rig.muted() && !rig.session.finished());
    for at in 0..4u8 {
        assert_eq!(rig.out.len(), [2, 2, 3, 4][usize::from(at)], "requests that run, at {at}");
        let slot = rig.out[usize::from(at)].slot;
        rig.reply(1, slot, vec![Buf::copy_of(&[at])]);
        assert!(!rig.session.finished(), "not while a reply is unsent");
        assert_eq!(&*rig.session.outgoing(100)[0], [at]);
        rig.session.sent(now(1), 1, &mut rig.out);
        assert_eq!(rig.session.finished(), at == 3);
        assert!(rig.muted());
    }
    let mut rig = tiny();
    assert!(!rig.session.finished());
    rig.session.end(now(0));
    assert!(rig.session.finished(), "nothing was asked");
}
