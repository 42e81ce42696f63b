//! Between cores: one ring of messages for each ordered pair, and a bell for whoever sleeps.
//!
//! A pair's calls, cancels, returns and images share one ring: so they keep their order. What does not fit waits with its sender,
//! in order; the shards bound it (`Limits::calls_inflight_max` calls a pair, one cancel and two returns each), so a return always
//! has room and two full cores can't block each other. A core whose messages wait does not sleep.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use ringmain_shard::mesh::Mesh;
use ringmain_types::ShardId;
use rtrb::{Consumer, Producer, PushError, RingBuffer};

/// Slots of all rings into one core together.
const SLOTS_PER_CORE: usize = 4096;
/// Messages taken from one peer in one turn.
const TAKE_MAX: usize = 256;

/// What one core sends another.
#[derive(Debug)]
pub enum Parcel {
    Mesh(Mesh),
    /// A connection that core 0 accepted for this one.
    Connection {
        listener: u16,
        socket: OwnedFd,
    },
}

/// One a core, seen by all.
#[derive(Default)]
struct Bell {
    /// Its core waits, or is about to: whoever sends it something rings.
    sleeping: AtomicBool,
    /// What it waits on, once it runs.
    eventfd: OnceLock<OwnedFd>,
}

/// Wakes cores.
#[derive(Clone)]
pub struct Bells(Arc<[Bell]>);

impl Bells {
    pub fn new(cores: usize) -> Bells {
        Bells((0..cores).map(|_| Bell::default()).collect())
    }

    /// Where `core` waits from now on.
    pub fn install(&self, core: usize, eventfd: OwnedFd) {
        assert!(self.0[core].eventfd.set(eventfd).is_ok(), "once a core");
    }

    /// To be called after what it is to see was published.
    pub fn ring(&self, core: usize) {
        fence(Ordering::SeqCst);
        let bell = &self.0[core];
        if bell.sleeping.load(Ordering::Relaxed)
            && bell.sleeping.swap(false, Ordering::AcqRel)
            && let Some(eventfd) = bell.eventfd.get()
        {
            // It fails only when the counter is full, and then the core is woken anyway.
            let _ = rustix::io::write(eventfd, &1u64.to_ne_bytes());
        }
    }

    /// From here on `ring` wakes; what came before must be looked for after this.
    pub fn sleeps(&self, core: usize) {
        self.0[core].sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    pub fn wakes(&self, core: usize) {
        self.0[core].sleeping.store(false, Ordering::Relaxed);
    }
}

/// One core's ends of all its rings.
pub struct MeshEnds {
    me: usize,
    to: Vec<Option<Producer<Parcel>>>,
    from: Vec<Option<Consumer<Parcel>>>,
    /// What did not fit, per peer.
    waiting: Vec<VecDeque<Parcel>>,
    waiting_max: usize,
    /// Peers to ring at the end of the turn.
    told: Vec<bool>,
    bells: Bells,
}

impl MeshEnds {
    /// The ends of all cores, in their order. `waiting_max`: what may wait for one peer at most; more is a broken bound.
    pub fn all(cores: usize, waiting_max: usize, bells: &Bells) -> Vec<MeshEnds> {
        let slots = (SLOTS_PER_CORE / cores).clamp(64, 1024);
        let mut ends: Vec<MeshEnds> = (0..cores)
            .map(|me| MeshEnds {
                me,
                to: (0..cores).map(|_| None).collect(),
                from: (0..cores).map(|_| None).collect(),
                waiting: (0..cores).map(|_| VecDeque::new()).collect(),
                waiting_max,
                told: vec![false; cores],
                bells: bells.clone(),
            })
            .collect();
        for from in 0..cores {
            for to in (0..cores).filter(|to| *to != from) {
                let (producer, consumer) = RingBuffer::new(slots);
                ends[from].to[to] = Some(producer);
                ends[to].from[from] = Some(consumer);
            }
        }
        ends
    }

    pub fn send(&mut self, to: ShardId, parcel: Parcel) {
        let peer = usize::from(to.0);
        self.waiting[peer].push_back(parcel);
        assert!(self.waiting[peer].len() <= self.waiting_max, "more calls to {to:?} than their bound");
        self.told[peer] = true;
    }

    /// Once at the end of a turn: passes on what was sent, and rings where it went.
    pub fn flush(&mut self) {
        for peer in 0..self.to.len() {
            let Some(producer) = &mut self.to[peer] else { continue };
            while let Some(parcel) = self.waiting[peer].pop_front() {
                if let Err(PushError::Full(parcel)) = producer.push(parcel) {
                    self.waiting[peer].push_front(parcel);
                    break;
                }
                self.told[peer] = true;
            }
            if std::mem::take(&mut self.told[peer]) {
                self.bells.ring(peer);
            }
        }
    }

    /// What arrived, peer by peer, each in its order; at most a turn's worth.
    pub fn take(&mut self, each: &mut dyn FnMut(ShardId, Parcel)) -> usize {
        let mut count = 0;
        for (peer, consumer) in self.from.iter_mut().enumerate() {
            let Some(consumer) = consumer else { continue };
            let before = count;
            while count - before < TAKE_MAX
                && let Ok(parcel) = consumer.pop()
            {
                count += 1;
                each(ShardId(peer as u16), parcel);
            }
        }
        count
    }

    /// Nothing came, and nothing of ours waits for room.
    pub fn quiet(&self) -> bool {
        self.from.iter().flatten().all(Consumer::is_empty) && self.waiting.iter().all(VecDeque::is_empty)
    }

    pub fn sleeps(&self) {
        self.bells.sleeps(self.me)
    }
    pub fn wakes(&self) {
        self.bells.wakes(self.me)
    }
    pub fn install(&self, eventfd: OwnedFd) {
        self.bells.install(self.me, eventfd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringmain_types::Offset;

    fn applied(next: i64) -> Parcel {
        Parcel::Mesh(Mesh::Applied { next: Offset(next) })
    }
    fn number(parcel: Parcel) -> i64 {
        let Parcel::Mesh(Mesh::Applied { next }) = parcel else { panic!("{parcel:?}") };
        next.0
    }

    #[test]
    fn what_does_not_fit_waits_in_order_and_nothing_is_lost() {
        let bells = Bells::new(2);
        let mut ends = MeshEnds::all(2, 10_000, &bells);
        let (mut b, mut a) = (ends.pop().unwrap(), ends.pop().unwrap());
        for next in 0..5000 {
            a.send(ShardId(1), applied(next));
        }
        a.flush();
        assert!(!a.quiet() && !b.quiet(), "more than the ring holds");
        let (mut got, mut turns) = (Vec::new(), 0);
        while got.len() < 5000 {
            assert!(b.take(&mut |from, parcel| got.push((from, number(parcel)))) <= TAKE_MAX);
            a.flush();
            turns += 1;
        }
        assert!(got.iter().enumerate().all(|(at, (from, next))| *from == ShardId(0) && *next == at as i64));
        assert!(turns >= 5000 / TAKE_MAX && a.quiet() && b.quiet());
    }

    #[test]
    fn a_sleeper_is_never_left_asleep() {
        let bells = Bells::new(2);
        let mut ends = MeshEnds::all(2, 1000, &bells);
        let (mut b, mut a) = (ends.pop().unwrap(), ends.pop().unwrap());
        let eventfd = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
        b.install(eventfd.try_clone().unwrap());
        let sleeper = std::thread::spawn(move || {
            let mut next = 0;
            while next < 20_000 {
                b.take(&mut |_, parcel| {
                    assert_eq!(number(parcel), next);
                    next += 1;
                });
                b.sleeps();
                if b.quiet() && next < 20_000 {
                    // Blocks for ever if a ring was missed.
                    rustix::io::read(&eventfd, &mut [0; 8]).unwrap();
                }
                b.wakes();
            }
        });
        for next in 0..20_000 {
            a.send(ShardId(1), applied(next));
            a.flush();
            while !a.quiet() {
                a.flush();
                std::thread::yield_now();
            }
            if next % 7 == 0 {
                std::thread::yield_now();
            }
        }
        sleeper.join().unwrap();
    }
}
