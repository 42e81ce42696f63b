//! What requests under way take of memory, and of the core: what they name, decoded, and what is to be answered. Their memory counts to
//! the account Reply, beside replies that are not sent.
//!
//! ```text
//!          names little, or its kind has time left, and there is memory
//! request -------------------------------------------------------------> runs
//!    |  else                                                        ^
//!    v      in its line: small ones, or large ones; connections in turn
//!  waits ------------------------------------------------------------
//! ```
//! Small ones may use half of the core while others have work for it, and all of it otherwise. Large ones use a quarter: fetches step by step
//! (`middle.rs`), others for milliseconds at a stretch. Long polls give way to large ones that wait for memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ringmain_session::{Close, Request};
use ringmain_types::*;
use ringmain_wire as wire;
use ringmain_wire::{ApiSpec, Count, Counted, FetchRequest};

use crate::api::control::is_control;
use crate::api::groups::is_group;
use crate::api::local::is_local;
use crate::api::metadata::told_by_metadata;
use crate::api::too_large;
use crate::dispatch::{REQUEST_MS, body};
use crate::fetch::FetchAsked;
use crate::jobs::{Job, Work};
use crate::mesh::{FetchPart, FetchResult};
use crate::middle::Middle;
use crate::slab::Key;
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
/// What is told and was not named takes in the reply.
const TOLD_BYTES: u64 = 32;
/// What the core needs for a partition of a fetch, for anything else that is named, and for what is told and was not named; measured
/// (two virtual cores of 2.6 GHz), rounded up.
const PART_NS: u64 = 1_000;
const NAME_NS: u64 = 500;
const TOLD_NS: u64 = 100;
/// For a request that names nothing. Thousands of them may come in one buffer.
const REQUEST_NS: u64 = 4_000;
/// To count what is in a byte of a frame.
const COUNT_NS: u64 = 3;
/// Of what a large frame names so much is counted at a time, and so long that takes, about.
const COUNT_ELEMENTS: usize = 8192;
const COUNT_PIECE_NS: u64 = 200_000;
/// Every resource has so many configs.
const CONFIGS: u64 = 50;
/// A request that takes less than this share of the account needs no free memory.
const SMALL_SHARE: u64 = 64;
/// Small polls give way only while they take more than this share together.
const SMALL_POLLS_SHARE: u64 = 16;
/// How long small requests may take of one turn together, about. All others of this core wait meanwhile.
const TURN_NS: u64 = 400_000;
/// A request that takes longer is large.
const SMALL_NS: u64 = 1_000_000;
/// For each part of the core that small ones, or large ones, use, so many go by.
const SMALL_SHARE_OF_CORE: u64 = 2;
const LARGE_SHARE_OF_CORE: u64 = 4;
/// Of larger frames what they name is not counted before there is time for that.
const UNCOUNTED_FRAME_BYTES: usize = 64 << 10;
/// Fetch sessions that take less together name little.
const SESSIONS_BYTES: usize = 64 << 10;
/// Frames of those that wait take less than this share of what is there for receiving.
const FRAMES_SHARE: u64 = 4;
/// So many steps of what is in the middle are done while others wait to begin.
const STEPS_MAX: u32 = 500;
/// How soon long polls are ended again for the same request.
const PRESS_MS: u64 = 500;

/// What running a request takes, about: memory until it is answered, and time of the core.
#[derive(Clone, Copy, Default)]
struct Cost {
    bytes: u64,
    ns: u64,
    /// What it names, as far as that was counted.
    names: usize,
    /// The time of its steps is paid for when they are done.
    in_steps: bool,
}

/// A request that may run.
pub(crate) struct Admitted {
    pub(crate) request: Request,
    pub(crate) names: usize,
}

/// Whose turn it is.
pub(crate) enum InTurn {
    Request(Admitted),
    /// Of a large request in the middle.
    Step(Key),
    /// What a large one has left behind.
    Waste,
}

struct Waiting {
    request: Request,
    cost: Cost,
    /// How far what it names was counted; until all is, the cost is that of the next piece.
    count: Option<Box<Count>>,
    until: Instant,
}

/// Requests of one kind that wait.
struct Line {
    /// Their connections, in turn.
    order: VecDeque<ConnectionId>,
    share_of_core: u64,
    /// What ran took, as far as it is not made up for, at this time.
    owed_ns: u64,
    owed_at: Instant,
}

impl Line {
    fn new(share_of_core: u64) -> Line {
        Line { order: VecDeque::new(), share_of_core, owed_ns: 0, owed_at: Instant(0) }
    }

    /// Whether so much more may be done now.
    fn has_time(&mut self, now: Now, ns: u64) -> bool {
        self.owed_ns = self.owed_ns.saturating_sub(now.mono.since(self.owed_at) / self.share_of_core);
        self.owed_at = now.mono;
        self.owed_ns == 0 || self.owed_ns + ns <= TURN_NS
    }

    /// When nothing is owed any more.
    fn free_at(&self) -> Instant {
        Instant(self.owed_at.0.saturating_add(self.owed_ns.saturating_mul(self.share_of_core)))
    }
}

/// Requests that wait for time or memory.
pub(crate) struct Crowd {
    /// In the order in which they came: what a client asks is not overtaken by what it asks later.
    of: BTreeMap<ConnectionId, VecDeque<Waiting>>,
    /// By the first request of a connection.
    small: Line,
    large: Line,
    pub(crate) middle: Middle,
    /// Of these, taken since one that waits in the large line could have begun.
    steps: u32,
    /// When the first request of each connection has waited for too long.
    until: BTreeSet<(Instant, ConnectionId)>,
    /// The frames of all.
    frames: u64,
    /// For whom long polls were ended, and when.
    pressed: Option<(ConnectionId, Instant)>,
    /// What small fetches under way take together: polls, most of them.
    polls: u64,
}

impl Default for Crowd {
    fn default() -> Self {
        Crowd {
            of: BTreeMap::new(),
            small: Line::new(SMALL_SHARE_OF_CORE),
            large: Line::new(LARGE_SHARE_OF_CORE),
            middle: Middle::default(),
            steps: 0,
            until: BTreeSet::new(),
            frames: 0,
            pressed: None,
            polls: 0,
        }
    }
}

impl Crowd {
    /// Nobody waits any more; what is in the middle goes on.
    pub(crate) fn clear(&mut self) {
        let middle = std::mem::take(&mut self.middle);
        *self = Crowd { polls: self.polls, middle, ..Crowd::default() };
    }

    /// Nobody waits for what a closed connection asked.
    pub(crate) fn forget(&mut self, id: ConnectionId) {
        let Some(all) = self.of.remove(&id) else { return };
        self.frames -= all.iter().map(|waiting| waiting.request.frame.len() as u64).sum::<u64>();
        if let Some(first) = all.front() {
            self.until.remove(&(first.until, id));
        }
        self.small.order.retain(|waiting| *waiting != id);
        self.large.order.retain(|waiting| *waiting != id);
    }

    /// Nobody else has work for the core.
    pub(crate) fn idle(&mut self) {
        self.small.owed_ns = 0;
    }

    fn begins(&mut self, large: bool, cost: Cost) {
        self.line(large).owed_ns += cost.due_ns();
        if large {
            self.steps = 0;
        }
    }

    /// What is in the middle had its time: who is first in the large line begins beside it.
    fn line_is_due(&self) -> bool {
        self.steps >= STEPS_MAX
    }

    /// Who holds most, if all hold more than `most`.
    fn worst(&self, most: u64) -> Option<ConnectionId> {
        let frames = |all: &VecDeque<Waiting>| all.iter().map(|waiting| waiting.request.frame.len()).sum::<usize>();
        if self.frames <= most {
            return None;
        }
        self.of.iter().max_by_key(|(_, all)| frames(all)).map(|(id, _)| *id)
    }

    fn line(&mut self, large: bool) -> &mut Line {
        if large { &mut self.large } else { &mut self.small }
    }

    fn first(&self, large: bool) -> Option<(ConnectionId, &Waiting)> {
        let line = if large { &self.large } else { &self.small };
        let id = *line.order.front()?;
        Some((id, self.of.get(&id)?.front()?))
    }

    fn push(&mut self, waiting: Waiting, small_bytes: u64) {
        let id = waiting.request.connection;
        self.frames += waiting.request.frame.len() as u64;
        let all = self.of.entry(id).or_default();
        all.push_back(waiting);
        if all.len() == 1 {
            self.stand(id, small_bytes);
        }
    }

    /// Puts a connection at the end of its first request's line.
    fn stand(&mut self, id: ConnectionId, small_bytes: u64) {
        let Some(first) = self.of.get(&id).and_then(VecDeque::front) else { return };
        let large = first.cost.is_large(small_bytes);
        self.until.insert((first.until, id));
        self.line(large).order.push_back(id);
    }

    /// The first request of a line.
    fn pop(&mut self, large: bool, small_bytes: u64) -> Option<Waiting> {
        let id = self.line(large).order.pop_front()?;
        let all = self.of.get_mut(&id)?;
        let first = all.pop_front()?;
        self.frames -= first.request.frame.len() as u64;
        self.until.remove(&(first.until, id));
        if all.is_empty() {
            self.of.remove(&id);
        } else {
            self.stand(id, small_bytes);
        }
        Some(first)
    }

    /// Back to where its connection's first one is, now that it is known what it takes.
    fn put_back(&mut self, first: Waiting, small_bytes: u64) {
        let id = first.request.connection;
        if let Some(next) = self.of.get(&id).and_then(VecDeque::front) {
            self.until.remove(&(next.until, id));
            self.small.order.retain(|waiting| *waiting != id);
            self.large.order.retain(|waiting| *waiting != id);
        }
        self.frames += first.request.frame.len() as u64;
        self.of.entry(id).or_default().push_front(first);
        self.stand(id, small_bytes);
    }
}

impl Cost {
    /// Large in time or in memory.
    fn is_large(self, small_bytes: u64) -> bool {
        self.ns > SMALL_NS || self.bytes > small_bytes || self.in_steps
    }

    /// What its line pays when it begins.
    fn due_ns(self) -> u64 {
        if self.in_steps { REQUEST_NS } else { self.ns }
    }
}

impl Job {
    /// What it takes until it is answered, about.
    pub(crate) fn work_bytes(&self) -> u64 {
        let names = match &self.work {
            Work::Fetch(fetch) => return JOB_BYTES + fetch.names as u64 * PART_BYTES + self.named_bytes(),
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

fn failed(spec: &ApiSpec, request: &Request, error: wire::WireError) -> String {
    format!("{} v{}: {error}", spec.name, request.version)
}

impl Shard {
    fn account(&self) -> u64 {
        self.config.limits.memory_bytes[Account::Reply as usize]
    }

    fn fits(&self, bytes: u64) -> bool {
        self.sessions.work_bytes() + bytes <= self.account()
    }

    fn small_bytes(&self) -> u64 {
        self.account() / SMALL_SHARE
    }

    fn is_small(&self, bytes: u64) -> bool {
        bytes <= self.small_bytes()
    }

    /// Counts some more of what it names. How much that is in all, once it is known; or why it is not run.
    fn count(&self, spec: &ApiSpec, request: &mut Request, count: &mut Count) -> Result<Option<usize>, String> {
        if request.frame.len() <= SMALL_FRAME_BYTES || !spec.supports(request.version) {
            return Ok(Some(0));
        }
        let info = wire::api_info(spec.key).expect("a known API");
        let body = request.frame.get(request.body as usize..).unwrap_or_default();
        let counted =
            count.go_on(info, request.version, body, COUNT_ELEMENTS).map_err(|error| failed(spec, request, error))?;
        let names = counted.as_ref().map(Counted::elements);
        let most = self.config.limits.request_elements_max as usize;
        let named = names.unwrap_or(count.announced());
        if named > most {
            let name = spec.name;
            return Err(format!("{name} names {named} things (topics, partitions); at most {most} are allowed"));
        }
        request.counted = counted.filter(Counted::is_of_use).map(Arc::new);
        Ok(names)
    }

    /// What running one that names so much would take; or why it is not run at all.
    fn cost(&self, spec: &ApiSpec, request: &Request, mut elements: usize) -> Result<Cost, String> {
        let large = request.frame.len() > SMALL_FRAME_BYTES;
        let failed = |error: wire::WireError| failed(spec, request, error);
        if !spec.supports(request.version) {
            return Ok(Cost::default());
        }
        // A small one may go on with much.
        if spec.key == wire::FETCH.key && self.fetch_sessions.bytes() > SESSIONS_BYTES {
            let fetch: FetchRequest<'_> = body(&wire::FETCH, request).map_err(failed)?;
            elements += self.fetch_sessions.partitions_of(fetch.session_id);
        }
        let fetch = spec.key == wire::FETCH.key;
        let (bytes, ns) = if fetch { (PART_BYTES, PART_NS) } else { (NAME_BYTES, NAME_NS) };
        let names = if large && spec.key != wire::PRODUCE.key { 2 * request.frame.len() as u64 } else { 0 };
        let told = self.told(spec, request).map_err(failed)?;
        let cost = Cost {
            bytes: elements as u64 * bytes + told * TOLD_BYTES + names,
            ns: REQUEST_NS + elements as u64 * ns + told * TOLD_NS,
            names: elements,
            in_steps: fetch && elements > self.config.limits.step_elements_max as usize,
        };
        // The rest is for what others hold.
        let most = self.account() / 8 * 7;
        if cost.bytes > most {
            let (bytes, takes) = (request.frame.len(), cost.bytes);
            return Err(format!(
                "a request of {bytes} bytes that would take about {takes} to answer; one may take {most}"
            ));
        }
        Ok(cost)
    }

    /// How much it is told of that it does not name.
    fn told(&self, spec: &ApiSpec, request: &Request) -> Result<u64, wire::WireError> {
        Ok(match spec.key {
            key if key == wire::METADATA.key => {
                let asked: wire::MetadataRequest<'_> = body(&wire::METADATA, request)?;
                told_by_metadata(&self.image, self.image_elements, request.version, &asked)
            }
            key if key == wire::DESCRIBE_LOG_DIRS.key => {
                let asked: wire::DescribeLogDirsRequest<'_> = body(&wire::DESCRIBE_LOG_DIRS, request)?;
                if asked.topics.is_none() { self.image_elements * (NAME_NS / TOLD_NS) } else { 0 }
            }
            key if key == wire::DESCRIBE_CONFIGS.key => {
                let asked: wire::DescribeConfigsRequest<'_> = body(&wire::DESCRIBE_CONFIGS, request)?;
                asked.resources.len() as u64 * CONFIGS
            }
            _ => 0,
        })
    }

    /// The request, if it may run now. What waits comes out of `next_of_crowd`. Otherwise, why it never may.
    pub(crate) fn admit(
        &mut self,
        now: Now,
        spec: &ApiSpec,
        mut request: Request,
        out: &mut Effects,
    ) -> Result<Option<Admitted>, String> {
        let admin = is_local(spec.key) || is_control(spec.key) || is_group(spec.key);
        if let Some(why) = too_large(&self.config.limits, &request).filter(|_| admin) {
            return Err(why);
        }
        let produce = spec.key == wire::PRODUCE.key;
        let until = now.mono.plus_ms(REQUEST_MS);
        let counting = Cost { ns: (request.frame.len() as u64 * COUNT_NS).min(COUNT_PIECE_NS), ..Cost::default() };
        let mut count = Count::default();
        let long = !produce && request.frame.len() > UNCOUNTED_FRAME_BYTES;
        let behind = self.crowd.of.contains_key(&request.connection);
        let counts = !long || (self.crowd.small.order.is_empty() && self.crowd.small.has_time(now, counting.ns));
        // What it takes may depend on what is before it.
        let names = if behind || !counts { None } else { self.count(spec, &mut request, &mut count)? };
        if long && counts && !behind {
            self.crowd.small.owed_ns += counting.ns;
        }
        let Some(names) = names else {
            self.wait(now, Waiting { request, cost: counting, count: Some(Box::new(count)), until }, out);
            return Ok(None);
        };
        let cost = self.cost(spec, &request, names)?;
        let large = cost.is_large(self.small_bytes());
        if long && large {
            // It begins in another turn.
            self.crowd.large.owed_ns += counting.ns;
        }
        // Acknowledgements wait for nobody who names much, and nobody for them.
        if cost.ns == 0 || (produce && !large) {
            return Ok(Some(Admitted { request, names: cost.names }));
        }
        if self.crowd.line(large).order.is_empty() && self.may_begin(now, large, cost) {
            self.crowd.begins(large, cost);
            return Ok(Some(Admitted { request, names: cost.names }));
        }
        self.wait(now, Waiting { request, cost, count: None, until }, out);
        Ok(None)
    }

    /// Whether there is time for it, and memory for a large one.
    fn may_begin(&mut self, now: Now, large: bool, cost: Cost) -> bool {
        let room = !large || ((self.crowd.middle.is_empty() || self.crowd.line_is_due()) && self.fits(cost.bytes));
        room && self.crowd.line(large).has_time(now, cost.ns)
    }

    fn wait(&mut self, now: Now, waiting: Waiting, out: &mut Effects) {
        self.crowd.push(waiting, self.small_bytes());
        let most = self.config.limits.memory_bytes[Account::Receive as usize] / FRAMES_SHARE;
        while let Some(worst) = self.crowd.worst(most) {
            self.close(worst, Close::Memory, out);
        }
        self.press(now, out);
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
        self.crowd.first(true).is_some_and(|(_, first)| !self.fits(first.cost.bytes))
    }

    /// Ends long polls until there is room for the first one that waits for it: large ones, and small ones as far as they take more than
    /// their share.
    fn press(&mut self, now: Now, out: &mut Effects) {
        let Some((id, first)) = self.crowd.first(true).filter(|(_, first)| !self.fits(first.cost.bytes)) else {
            return;
        };
        let (bytes, ns) = (first.cost.bytes, first.cost.ns);
        // What is given back before it may run others would take.
        if self.crowd.pressed.is_some_and(|(of, at)| of == id && now.mono < at.plus_ms(PRESS_MS))
            || !self.crowd.large.has_time(now, ns)
        {
            return;
        }
        self.crowd.pressed = Some((id, now.mono));
        let mut missing = (self.sessions.work_bytes() + bytes).saturating_sub(self.account());
        let (most, share) = (self.small_bytes(), self.account() / SMALL_POLLS_SHARE);
        for small in [false, true] {
            for key in self.jobs.keys() {
                if missing == 0 || (small && self.crowd.polls <= share) {
                    break;
                }
                if let Some(Job { work: Work::Fetch(fetch), bytes, .. }) = self.jobs.get_mut(key)
                    && !fetch.last
                    && (*bytes <= most) == small
                {
                    fetch.early = true;
                    missing = missing.saturating_sub(*bytes);
                    self.end_wait(now, key, out);
                }
            }
        }
    }

    /// The next that waited, once there is time and memory for it, or the next step.
    pub(crate) fn next_of_crowd(&mut self, now: Now, out: &mut Effects) -> Option<InTurn> {
        self.press(now, out);
        let small_bytes = self.small_bytes();
        loop {
            let mut can_run = |large: bool| {
                let Some((_, first)) = self.crowd.first(large) else { return false };
                let cost = first.cost;
                self.may_begin(now, large, cost)
            };
            let large = match (can_run(false), can_run(true)) {
                (true, _) => false,
                (false, true) => true,
                (false, false) => return self.next_step(now),
            };
            let mut waiting = self.crowd.pop(large, small_bytes)?;
            self.crowd.begins(large, waiting.cost);
            let Some(mut count) = waiting.count.take() else {
                return Some(InTurn::Request(Admitted { request: waiting.request, names: waiting.cost.names }));
            };
            let spec = wire::api(waiting.request.api).expect("a known API");
            let names = self.count(spec, &mut waiting.request, &mut count);
            match names.and_then(|names| names.map(|names| self.cost(spec, &waiting.request, names)).transpose()) {
                Ok(None) => {
                    waiting.count = Some(count);
                    self.crowd.put_back(waiting, small_bytes);
                }
                Ok(Some(cost)) => {
                    if cost.is_large(small_bytes) {
                        // It begins in another turn.
                        self.crowd.large.owed_ns += waiting.cost.ns;
                    }
                    waiting.cost = cost;
                    self.crowd.put_back(waiting, small_bytes);
                }
                Err(why) => self.close(waiting.request.connection, Close::Protocol(why), out),
            }
        }
    }

    /// The next step of those in the middle, if there is time for it. At a stop nobody else needs it.
    fn next_step(&mut self, now: Now) -> Option<InTurn> {
        let step_ns = self.step_ns();
        let has_time = self.stopping.is_some() || self.crowd.large.has_time(now, step_ns);
        let could_begin = self.crowd.first(true).is_some_and(|(_, first)| self.fits(first.cost.bytes));
        if self.crowd.middle.is_empty() || !has_time || (could_begin && self.crowd.line_is_due()) {
            return None;
        }
        self.crowd.steps = self.crowd.steps.saturating_add(u32::from(could_begin));
        self.crowd.large.owed_ns += step_ns;
        self.crowd.middle.pop()
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
        let step = (!self.crowd.middle.is_empty()).then(|| self.crowd.large.free_at());
        let Some((until, _)) = self.crowd.until.first().copied() else { return step };
        if !self.crowd.small.order.is_empty() {
            return Some(Instant(0));
        }
        let again = self.crowd.pressed.map_or(Instant(0), |(_, at)| at.plus_ms(PRESS_MS));
        let next = self.crowd.large.free_at();
        let next = if self.is_pressed() { next.max(again) } else { next };
        [Some(next), Some(until), step].into_iter().flatten().min()
    }
}
