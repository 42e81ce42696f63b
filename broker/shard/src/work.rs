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
use ringmain_wire::{ApiSpec, FetchRequest};

use crate::api::control::is_control;
use crate::api::groups::is_group;
use crate::api::local::is_local;
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
/// What requests that name much may cost together in one turn; one alone may cost more. It is about a millisecond of the core, for which all
/// others wait.
const TURN_BYTES: u64 = 1 << 20;
/// In this time so much is paid back: what names much gets a quarter of the core when it comes without end.
const PAYS_NS: u64 = 4_000_000;

/// Larger ones that wait anyway are not even counted before their turn comes: counting is the first of what they cost.
const UNCOUNTED_FRAME_BYTES: usize = 64 << 10;
/// About what a frame costs for each of its bytes.
const COST_OF_BYTE: u64 = 10;

struct Waiting {
    request: Request,
    /// By the frame's length while it is not counted.
    cost: u64,
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
    /// What ran cost, as far as it is not paid back, at this time.
    owed: u64,
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

    /// Pays back `each` in `PAYS_NS`.
    fn pay(&mut self, now: Now, each: u64) {
        let paid = u128::from(now.mono.since(self.owed_at)) * u128::from(each) / u128::from(PAYS_NS);
        self.owed = self.owed.saturating_sub(u64::try_from(paid).unwrap_or(u64::MAX));
        // What is less than a byte is not lost: the time goes on when something was paid.
        if paid > 0 || self.owed == 0 {
            self.owed_at = now.mono;
        }
    }

    /// What the first large one costs.
    fn large_cost(&self) -> Option<u64> {
        Some(self.of.get(self.large.front()?)?.front()?.cost)
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
        if first.cost <= small { &mut self.small } else { &mut self.large }.push_back(id);
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
    fn cost(&self, spec: &ApiSpec, request: &Request) -> Result<u64, String> {
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
        let names = if large && spec.key != wire::PRODUCE.key { 2 * request.frame.len() as u64 } else { 0 };
        let each = if spec.key == wire::FETCH.key { PART_BYTES } else { NAME_BYTES };
        Ok(elements as u64 * each + names)
    }

    /// Why it is not run at all, if it costs more than any may: the rest is for what others wait for.
    fn too_dear(&self, request: &Request, cost: u64) -> Option<String> {
        let (bytes, most) = (request.frame.len(), self.account() / 8 * 7);
        (cost > most)
            .then(|| format!("a request of {bytes} bytes that would take about {cost} to answer; one may take {most}"))
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
        let about = (request.frame.len() as u64 * COST_OF_BYTE).min(self.account() / 2);
        let uncounted = !ordered && request.frame.len() > UNCOUNTED_FRAME_BYTES;
        if uncounted && (!self.crowd.of.is_empty() || !self.has_turn(now, about)) {
            self.crowd.push(Waiting { request, cost: about, counted: false, until }, self.small_bytes());
            return Ok(None);
        }
        let cost = self.cost(spec, &request)?;
        if let Some(why) = self.too_dear(&request, cost) {
            return Err(why);
        }
        let room = self.is_small(cost) || self.fits(cost);
        let runs = cost == 0 || (room && self.crowd.of.is_empty() && self.has_turn(now, cost));
        if ordered || (runs && !behind) {
            self.crowd.owed += cost;
            return Ok(Some(request));
        }
        self.crowd.push(Waiting { request, cost, counted: true, until }, self.small_bytes());
        self.press(now, out);
        Ok(None)
    }

    fn small_bytes(&self) -> u64 {
        self.account() / SMALL_SHARE
    }

    fn turn_bytes(&self) -> u64 {
        (self.account() / 4).min(TURN_BYTES)
    }

    /// Whether so much more may be done now.
    fn has_turn(&mut self, now: Now, cost: u64) -> bool {
        let each = self.turn_bytes();
        self.crowd.pay(now, each);
        self.crowd.owed == 0 || self.crowd.owed + cost <= each
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
        self.crowd.large_cost().is_some_and(|cost| !self.fits(cost))
    }

    /// Ends long polls until there is room for the first one that waits for it: large ones, and small ones as far as they take more than
    /// their share.
    fn press(&mut self, now: Now, out: &mut Effects) {
        if self.crowd.pressed || !self.is_pressed() {
            return;
        }
        self.crowd.pressed = true;
        let Some(cost) = self.crowd.large_cost() else { return };
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
            let large = self.crowd.large_cost().filter(|cost| self.fits(*cost));
            let takes_large = large.is_some() && (self.crowd.large_next || self.crowd.small.is_empty());
            let cost = if takes_large { large? } else { self.crowd.of.get(self.crowd.small.front()?)?.front()?.cost };
            if !self.has_turn(now, cost) {
                return None;
            }
            let mut waiting = self.crowd.pop(takes_large, self.small_bytes())?;
            if !std::mem::replace(&mut waiting.counted, true) {
                let counted = wire::api(waiting.request.api).map_or(Ok(0), |spec| self.cost(spec, &waiting.request));
                match counted.and_then(|cost| self.too_dear(&waiting.request, cost).map_or(Ok(cost), Err)) {
                    Ok(cost) => waiting.cost = cost,
                    Err(why) => {
                        self.crowd.owed += waiting.request.frame.len() as u64;
                        self.close(waiting.request.connection, Close::Protocol(why), out);
                        continue;
                    }
                }
                if !self.is_small(waiting.cost) && !self.fits(waiting.cost) {
                    self.crowd.put_back(waiting);
                    continue;
                }
            }
            self.crowd.owed += waiting.cost;
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
        let wait_ns = u128::from(self.crowd.owed) * u128::from(PAYS_NS) / u128::from(self.turn_bytes().max(1));
        let paid = Instant(self.crowd.owed_at.0.saturating_add(u64::try_from(wait_ns).unwrap_or(u64::MAX)));
        Some(paid.min(*until))
    }
}
