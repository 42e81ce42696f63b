//! What requests under way take of memory: what they name, decoded, and what is to be answered. It counts to the account Reply, beside
//! replies that are not sent.
//!
//! ```text
//!          names little, or there is room
//! request ---------------------------------> runs
//!    |  else                          ^
//!    v          in order, as others end
//!  waits ------------------------------
//! ```
//! Long polls that name much give way to those that wait.

use std::collections::VecDeque;

use ringmain_session::{Close, Request};
use ringmain_types::*;
use ringmain_wire as wire;
use ringmain_wire::{ApiSpec, FetchRequest};

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
/// What always runs takes less than this share of the account.
const SMALL_SHARE: u64 = 64;

/// Requests that wait for room, with what they will take and how long they wait.
#[derive(Default)]
pub(crate) struct Crowd {
    /// The sessions bound their number, and the account Receive their bytes.
    waiting: VecDeque<(Request, u64, Instant)>,
}

impl Crowd {
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Nobody waits for what a closed connection asked.
    pub(crate) fn forget(&mut self, id: ConnectionId) {
        self.waiting.retain(|(request, ..)| request.connection != id);
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
    pub(crate) fn cost(&self, spec: &ApiSpec, request: &Request) -> Result<u64, String> {
        let mut elements = 0;
        let large = request.frame.len() > SMALL_FRAME_BYTES;
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

    /// The request, if it may run now. What waits comes out of `next_of_crowd`.
    pub(crate) fn admit(&mut self, now: Now, request: Request, cost: u64, out: &mut Effects) -> Option<Request> {
        // The rest is for what others wait for.
        let most = self.account() / 8 * 7;
        if cost > most {
            let why = format!(
                "a request of {} bytes that would take about {cost} to answer; one may take {most}",
                request.frame.len()
            );
            self.close(request.connection, Close::Protocol(why), out);
            return None;
        }
        // Batches of one producer stay in order.
        let ordered = request.api == wire::PRODUCE.key;
        // And whatever a connection asks behind what waits comes behind it: a newer commit must not be overtaken by an older one.
        let behind = self.crowd.waiting.iter().any(|(waiting, ..)| waiting.connection == request.connection);
        let runs = self.is_small(cost) || (self.crowd.waiting.is_empty() && self.fits(cost));
        if ordered || (runs && !behind) {
            return Some(request);
        }
        let first = self.crowd.waiting.is_empty();
        self.crowd.waiting.push_back((request, cost, now.mono.plus_ms(REQUEST_MS)));
        if first {
            self.end_large_polls(now, out);
        }
        None
    }

    fn is_small(&self, bytes: u64) -> bool {
        bytes <= self.account() / SMALL_SHARE
    }

    /// Whether a fetch of so many partitions is to be answered with what there is, rather than held for more.
    pub(crate) fn no_room_to_wait(&self, parts: usize) -> bool {
        let bytes = parts as u64 * PART_BYTES;
        !(self.is_small(bytes) || self.crowd.waiting.is_empty() && self.fits(self.account() / 2))
    }

    fn end_large_polls(&mut self, now: Now, out: &mut Effects) {
        for key in self.jobs.keys() {
            if self.jobs.get(key).is_some_and(|job| !self.is_small(job.bytes)) {
                self.end_wait(now, key, out);
            }
        }
    }

    /// The first that waited, once there is room.
    pub(crate) fn next_of_crowd(&mut self) -> Option<Request> {
        let (_, cost, _) = self.crowd.waiting.front()?;
        if !self.fits(*cost) {
            return None;
        }
        self.crowd.waiting.pop_front().map(|(request, ..)| request)
    }

    /// Who waited for too long is closed.
    pub(crate) fn expire_crowd(&mut self, now: Now, out: &mut Effects) {
        while self.crowd.waiting.front().is_some_and(|(.., until)| *until <= now.mono) {
            if let Some((request, ..)) = self.crowd.waiting.pop_front() {
                self.close(request.connection, Close::Memory, out);
            }
        }
    }

    /// When somebody's turn has come, or never will.
    pub(crate) fn crowd_deadline(&self) -> Option<Instant> {
        let (_, cost, until) = self.crowd.waiting.front()?;
        Some(if self.fits(*cost) { Instant(0) } else { *until })
    }
}
