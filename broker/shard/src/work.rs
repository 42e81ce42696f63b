//! What requests under way take of memory, and of a turn: what they name, decoded, and what is to be answered. It counts to the account
//! Reply, beside replies that are not sent.
//!
//! ```text
//!          names little, or there is room, in memory and in this turn
//! request ----------------------------------------------------------> runs
//!    |  else                                                     ^
//!    v      connections in turn; of small ones and large ones in turn
//!  waits ---------------------------------------------------------
//! ```
//! Long polls give way to those that wait for memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringmain_session::{Close, Request};
use ringmain_types::*;
use ringmain_wire as wire;
use ringmain_wire::{ApiSpec, FetchRequest, MetadataRequest};

use crate::api::control::is_control;
use crate::api::groups::is_group;
use crate::api::local::is_local;
use crate::api::metadata::asks_all;
use crate::api::too_large;
use crate::dispatch::{REQUEST_MS, body};
use crate::fetch::FetchAsked;
use crate::jobs::{Job, Work};
use crate::mesh::{FetchPart, FetchResult};
use crate::{Effects, Shard};

/// Frames up to this name little, whatever they name.
const SMALL_FRAME_BYTES: usize = 4 << 10;
/// What a request takes that names nothing.
const JOB_BYTES: u64 = 512;
/// A partition of a fetch, where it was asked and with its owner, and its place in the reply.
const PART_BYTES: u64 =
    (size_of::<FetchAsked>() + 2 * size_of::<FetchPart>() + 2 * size_of::<FetchResult>() + 64) as u64;
/// Anything else that is named: what is asked of it, what came of it, and its place in the reply.
const NAME_BYTES: u64 = 320;
/// What needs no free memory takes less than this share of the account.
const SMALL_SHARE: u64 = 64;
/// Small polls give way only while they take more than this share together.
const SMALL_POLLS_SHARE: u64 = 8;
/// How long requests that name much may take of one turn together, about; one alone may take more. All others of this core wait meanwhile.
const TURN_NS: u64 = 1_000_000;
/// Each of theirs is paid back with so many others': what names much gets a quarter of the core when it comes without end.
const SHARE_OF_CORE: u64 = 4;
/// What the core needs for a partition of a fetch, for anything else that is named, and for what is told and was not named; measured
/// (two virtual cores of 2.6 GHz), rounded up.
const PART_NS: u64 = 1_000;
const NAME_NS: u64 = 500;
const TOLD_NS: u64 = 100;
/// What is told and was not named takes in the reply.
const TOLD_BYTES: u64 = 32;

/// Larger ones that wait anyway are not even counted before their turn comes: counting is the first of what they cost.
const UNCOUNTED_FRAME_BYTES: usize = 64 << 10;

/// What running a request takes, about: memory until it is answered, and time of the core.
#[derive(Clone, Copy, Default)]
struct Cost {
    bytes: u64,
    ns: u64,
}

struct Waiting {
    request: Request,
    /// By the frame's length while it is not counted.
    cost: Cost,
    counted: bool,
    until: Instant,
}

/// Requests that wait for room. The sessions bound their number, and the account Receive their bytes.
#[derive(Default)]
pub(crate) struct Crowd {
    /// In the order in which they came: what a client asks is not overtaken by what it asks later.
    of: BTreeMap<ConnectionId, VecDeque<Waiting>>,
    /// Connections whose first request is small, and the others, each in turn.
    small: VecDeque<ConnectionId>,
    large: VecDeque<ConnectionId>,
    /// When the first request of each connection has waited for too long.
    until: BTreeSet<(Instant, ConnectionId)>,
    /// What ran took of the core, as far as it is not paid back, at this time.
    owed_ns: u64,
    owed_at: Instant,
    /// The last one that waited and ran was small: the next may be large.
    large_next: bool,
    /// Long polls were ended for the first large one.
    pressed: bool,
    /// What small fetches under way take together: polls, most of them.
    polls: u64,
}

impl Crowd {
    pub(crate) fn clear(&mut self) {
        *self = Crowd { polls: self.polls, ..Crowd::default() };
    }

    /// Nobody waits for what a closed connection asked.
    pub(crate) fn forget(&mut self, id: ConnectionId) {
        if let Some(first) = self.of.remove(&id).and_then(|mut all| all.pop_front()) {
            self.until.remove(&(first.until, id));
            self.small.retain(|waiting| *waiting != id);
            self.large.retain(|waiting| *waiting != id);
        }
    }

    fn pay(&mut self, now: Now) {
        let paid = now.mono.since(self.owed_at) / SHARE_OF_CORE;
        self.owed_ns = self.owed_ns.saturating_sub(paid);
        self.owed_at = now.mono;
    }

    /// When nothing is owed any more.
    fn paid_at(&self) -> Instant {
        Instant(self.owed_at.0.saturating_add(self.owed_ns.saturating_mul(SHARE_OF_CORE)))
    }

    fn first(&self, line: &VecDeque<ConnectionId>) -> Option<Cost> {
        Some(self.of.get(line.front()?)?.front()?.cost)
    }

    /// What the first large one takes of memory.
    fn large_bytes(&self) -> Option<u64> {
        self.first(&self.large).map(|cost| cost.bytes)
    }

    fn push(&mut self, waiting: Waiting, small: u64) {
        let id = waiting.request.connection;
        let all = self.of.entry(id).or_default();
        all.push_back(waiting);
        if all.len() == 1 {
            self.stand(id, small);
        }
    }

    /// Puts a connection at the end of its first request's line.
    fn stand(&mut self, id: ConnectionId, small: u64) {
        let Some(first) = self.of.get(&id).and_then(VecDeque::front) else { return };
        self.until.insert((first.until, id));
        if first.cost.bytes <= small { &mut self.small } else { &mut self.large }.push_back(id);
    }

    /// The first request of a line.
    fn pop(&mut self, large: bool, small: u64) -> Option<Waiting> {
        let id = if large { self.large.pop_front() } else { self.small.pop_front() }?;
        let all = self.of.get_mut(&id)?;
        let first = all.pop_front()?;
        self.until.remove(&(first.until, id));
        if all.is_empty() {
            self.of.remove(&id);
        } else {
            self.stand(id, small);
        }
        self.large_next = !large;
        self.pressed &= !large;
        Some(first)
    }

    /// Back to where it was, counted: it must wait for memory.
    fn put_back(&mut self, first: Waiting) {
        let id = first.request.connection;
        let all = self.of.entry(id).or_default();
        if let Some(next) = all.front() {
            self.until.remove(&(next.until, id));
            self.small.retain(|waiting| *waiting != id);
            self.large.retain(|waiting| *waiting != id);
        }
        self.until.insert((first.until, id));
        all.push_front(first);
        self.large.push_front(id);
        self.large_next = true;
    }
}

impl Job {
    /// What it takes until it is answered, about.
    pub(crate) fn work_bytes(&self) -> u64 {
        let names = match &self.work {
            Work::Fetch(fetch) => return JOB_BYTES + fetch.parts.len() as u64 * PART_BYTES + self.named_bytes(),
            Work::Produce { asked, .. } => asked.elements(),
            Work::Offsets(asked) => asked.elements(),
            Work::Epochs(asked) => asked.elements(),
            Work::DeleteRecords(asked) => asked.elements(),
            Work::Describe(asked) => asked.elements(),
            Work::Producers(asked) => asked.elements(),
            Work::Groups(job) => job.answers.len(),
            Work::Control(_) | Work::AutoCreate(..) => 0,
        };
        JOB_BYTES + names as u64 * NAME_BYTES + self.named_bytes()
    }

    /// Records stay where they are; names are copied, and told again.
    fn named_bytes(&self) -> u64 {
        if matches!(self.work, Work::Produce { .. }) { 0 } else { 2 * u64::from(self.to.frame_bytes) }
    }
}

impl Shard {
    fn account(&self) -> u64 {
        self.config.limits.memory_bytes[Account::Reply as usize]
    }

    fn fits(&self, bytes: u64) -> bool {
        self.sessions.work_bytes() + bytes <= self.account()
    }

    /// What running it would take, about, if it names much; or why it is not run at all.
    fn cost(&self, spec: &ApiSpec, request: &Request) -> Result<Cost, String> {
        let mut elements = 0;
        let large = request.frame.len() > SMALL_FRAME_BYTES;
        let admin = is_local(spec.key) || is_control(spec.key) || is_group(spec.key);
        if let Some(why) = too_large(&self.config.limits, request).filter(|_| admin) {
            return Err(why);
        }
        let failed = |error: wire::WireError| format!("{} v{}: {error}", spec.name, request.version);
        if large && spec.supports(request.version) {
            let info = wire::api_info(spec.key).expect("a known API");
            let bytes = request.frame.get(request.body as usize..).unwrap_or_default();
            elements = (info.elements)(request.version, bytes).map_err(failed)?;
            let most = self.config.limits.request_elements_max as usize;
            if elements > most {
                return Err(format!(
                    "{} names {elements} things (topics, partitions); at most {most} are allowed",
                    spec.name
                ));
            }
        }
        // A small one may go on with much.
        if spec.key == wire::FETCH.key && self.fetch_sessions.bytes() as u64 > self.account() / SMALL_SHARE {
            let fetch: FetchRequest<'_> = body(&wire::FETCH, request).map_err(failed)?;
            elements += self.fetch_sessions.partitions_of(fetch.session_id);
        }
        // Or mean all that there is.
        let mut told = 0;
        if spec.key == wire::METADATA.key && !large && spec.supports(request.version) {
            let asked: MetadataRequest<'_> = body(&wire::METADATA, request).map_err(failed)?;
            told = if asks_all(request.version, &asked) { self.image_elements } else { 0 };
        }
        let names = if large && spec.key != wire::PRODUCE.key { 2 * request.frame.len() as u64 } else { 0 };
        let fetch = spec.key == wire::FETCH.key;
        let (bytes, ns) = if fetch { (PART_BYTES, PART_NS) } else { (NAME_BYTES, NAME_NS) };
        Ok(Cost {
            bytes: elements as u64 * bytes + told * TOLD_BYTES + names,
            ns: elements as u64 * ns + told * TOLD_NS,
        })
    }

    /// Why it is not run at all, if it costs more than any may: the rest is for what others wait for.
    fn too_dear(&self, request: &Request, cost: Cost) -> Option<String> {
        let (bytes, takes, most) = (request.frame.len(), cost.bytes, self.account() / 8 * 7);
        (takes > most)
            .then(|| format!("a request of {bytes} bytes that would take about {takes} to answer; one may take {most}"))
    }

    /// The request, if it may run now. What waits comes out of `next_of_crowd`. Otherwise, why it never may.
    pub(crate) fn admit(
        &mut self,
        now: Now,
        spec: &ApiSpec,
        request: Request,
        out: &mut Effects,
    ) -> Result<Option<Request>, String> {
        // Batches of one producer stay in order.
        let ordered = request.api == wire::PRODUCE.key;
        let behind = self.crowd.of.contains_key(&request.connection);
        let until = now.mono.plus_ms(REQUEST_MS);
        let about = Cost { bytes: request.frame.len() as u64, ns: TURN_NS };
        let uncounted = !ordered && request.frame.len() > UNCOUNTED_FRAME_BYTES;
        if uncounted && (!self.crowd.of.is_empty() || !self.has_turn(now, about.ns)) {
            self.crowd.push(Waiting { request, cost: about, counted: false, until }, self.small_bytes());
            return Ok(None);
        }
        let cost = self.cost(spec, &request)?;
        if let Some(why) = self.too_dear(&request, cost) {
            return Err(why);
        }
        let room = self.is_small(cost.bytes) || self.fits(cost.bytes);
        let runs = cost.ns == 0 || (room && self.crowd.of.is_empty() && self.has_turn(now, cost.ns));
        if ordered || (runs && !behind) {
            self.crowd.owed_ns += cost.ns;
            return Ok(Some(request));
        }
        self.crowd.push(Waiting { request, cost, counted: true, until }, self.small_bytes());
        self.press(now, out);
        Ok(None)
    }

    fn small_bytes(&self) -> u64 {
        self.account() / SMALL_SHARE
    }

    /// Whether so much more may be done now.
    fn has_turn(&mut self, now: Now, ns: u64) -> bool {
        self.crowd.pay(now);
        self.crowd.owed_ns == 0 || self.crowd.owed_ns + ns <= TURN_NS
    }

    fn is_small(&self, bytes: u64) -> bool {
        bytes <= self.small_bytes()
    }

    /// Whether a fetch of so many partitions is to be answered with what there is, rather than held for more. Small ones are everybody's,
    /// and held whatever others do, as long as they all take less than half.
    pub(crate) fn no_room_to_wait(&self, parts: usize) -> bool {
        let bytes = parts as u64 * PART_BYTES;
        match self.is_small(bytes) {
            true => self.crowd.polls + bytes > self.account() / 2,
            false => self.is_pressed() || !self.fits(self.account() / 2),
        }
    }

    /// Counts a fetch among the small ones, if it is one.
    pub(crate) fn poll_begins(&mut self, bytes: u64) {
        self.crowd.polls += if self.is_small(bytes) { bytes } else { 0 };
    }

    pub(crate) fn poll_ends(&mut self, bytes: u64) {
        self.crowd.polls -= if self.is_small(bytes) { bytes } else { 0 };
    }

    /// Somebody waits for memory.
    fn is_pressed(&self) -> bool {
        self.crowd.large_bytes().is_some_and(|cost| !self.fits(cost))
    }

    /// Ends long polls until there is room for the first one that waits for it: large ones, and small ones as far as they take more than
    /// their share.
    fn press(&mut self, now: Now, out: &mut Effects) {
        if self.crowd.pressed || !self.is_pressed() {
            return;
        }
        self.crowd.pressed = true;
        let Some(cost) = self.crowd.large_bytes() else { return };
        let mut missing = (self.sessions.work_bytes() + cost).saturating_sub(self.account());
        let (most, share) = (self.small_bytes(), self.account() / SMALL_POLLS_SHARE);
        for small in [false, true] {
            for key in self.jobs.keys() {
                if missing == 0 || (small && self.crowd.polls <= share) {
                    break;
                }
                if let Some(Job { work: Work::Fetch(fetch), bytes, .. }) = self.jobs.get_mut(key)
                    && (*bytes <= most) == small
                {
                    fetch.early = true;
                    missing = missing.saturating_sub(*bytes);
                    self.end_wait(now, key, out);
                }
            }
        }
    }

    /// The next that waited, once there is room.
    pub(crate) fn next_of_crowd(&mut self, now: Now, out: &mut Effects) -> Option<Request> {
        loop {
            self.press(now, out);
            let takes_large = self.crowd.large_bytes().is_some_and(|bytes| self.fits(bytes))
                && (self.crowd.large_next || self.crowd.small.is_empty());
            let line = if takes_large { &self.crowd.large } else { &self.crowd.small };
            let ns = self.crowd.first(line)?.ns;
            if !self.has_turn(now, ns) {
                return None;
            }
            let mut waiting = self.crowd.pop(takes_large, self.small_bytes())?;
            if !std::mem::replace(&mut waiting.counted, true) {
                let counted = wire::api(waiting.request.api)
                    .map_or(Ok(Cost::default()), |spec| self.cost(spec, &waiting.request));
                match counted.and_then(|cost| self.too_dear(&waiting.request, cost).map_or(Ok(cost), Err)) {
                    Ok(cost) => waiting.cost = cost,
                    Err(why) => {
                        self.crowd.owed_ns += TURN_NS;
                        self.close(waiting.request.connection, Close::Protocol(why), out);
                        continue;
                    }
                }
                if !self.is_small(waiting.cost.bytes) && !self.fits(waiting.cost.bytes) {
                    self.crowd.put_back(waiting);
                    continue;
                }
            }
            self.crowd.owed_ns += waiting.cost.ns;
            return Some(waiting.request);
        }
    }

    /// Who waited for too long is closed.
    pub(crate) fn expire_crowd(&mut self, now: Now, out: &mut Effects) {
        while let Some((_, id)) = self.crowd.until.first().copied().filter(|(until, _)| *until <= now.mono) {
            self.crowd.forget(id);
            self.close(id, Close::Memory, out);
        }
    }

    /// When somebody's turn has come, or never will.
    pub(crate) fn crowd_deadline(&self) -> Option<Instant> {
        let (until, _) = self.crowd.until.first()?;
        if self.crowd.small.is_empty() && self.is_pressed() {
            return Some(*until);
        }
        Some(self.crowd.paid_at().min(*until))
    }
}
