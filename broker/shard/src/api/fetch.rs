//! Fetch, on the shard of the connection: sessions, owners, the reply.

use std::collections::VecDeque;

use ringmain_buffer::Bufs;
use ringmain_session::Request;
use ringmain_types::*;
use ringmain_wire::fetch::{FetchRequest, FetchResponse};
use ringmain_wire::{FETCH, WireError, encode_reply};

use crate::dispatch::{REQUEST_MS, body};
use crate::fetch::{FetchJob, Next, Parts, Stage};
use crate::fetch_reading::{self, BY_ID, Reading};
use crate::fetch_session::{Context, FetchSessions};
use crate::fetch_telling::{self, Telling};
use crate::jobs::{Job, ReplyTo, Waiter, Work};
use crate::mesh::{Call, CallId, FetchResult, Mesh};
use crate::middle::Waste;
use crate::slab::Key;
use crate::{Effects, Note, Shard};

const READ_COMMITTED: i8 = 1;
/// How long a client waits before it asks again when there was no memory to let it wait.
const THROTTLE_MS: u32 = 200;

impl Shard {
    /// `names`: what it names, or has in its session, if that is more than a little.
    pub(crate) fn ask_fetch(
        &mut self,
        now: Now,
        request: &Request,
        names: usize,
        out: &mut Effects,
    ) -> Result<(), WireError> {
        let fetch: FetchRequest<'_> = body(&FETCH, request)?;
        let to = ReplyTo::new(now, request);
        let by_id = request.version >= BY_ID;
        let context = match self.fetch_sessions.begin(now.mono, by_id, (fetch.session_id, fetch.session_epoch)) {
            Ok(context) => context,
            Err(error) => {
                self.refuse_fetch(now, &to, error, out);
                return Ok(());
            }
        };
        // It may have grown since it was counted.
        let names = match context {
            Context::Incremental { id } => names.max(self.fetch_sessions.partitions_of(id)),
            _ => names,
        };
        let most = self.config.limits.step_elements_max;
        let step = (names > most as usize).then_some(most);
        let wait_ms = u64::try_from(fetch.max_wait_ms).unwrap_or(0);
        let asked_bytes = u64::try_from(fetch.max_bytes).unwrap_or(0);
        // Who sends no more does not wait (`peer_ended`).
        let ended = self.sessions.get_mut(request.connection).is_none_or(|connection| connection.session.ended());
        let mut job = Box::new(FetchJob {
            stage: Stage::Asking,
            step,
            names,
            due: VecDeque::new(),
            queued: false,
            context,
            by_id,
            committed_only: fetch.isolation_level == READ_COMMITTED,
            parts: Parts::new(step.map_or(usize::MAX, |step| step as usize)),
            session_bytes: 0,
            owners: Vec::new(),
            min_bytes: u64::try_from(fetch.min_bytes).unwrap_or(0).min(self.fetch_bytes_max()),
            bytes_max: asked_bytes.min(self.fetch_bytes_max()),
            until: now.mono.plus_ms(wait_ms),
            last: wait_ms == 0 || fetch.min_bytes <= 0 || ended,
            early: false,
        });
        let mut reading = Reading::new(request, &fetch, self.config.shards);
        if step.is_none() {
            let mut scope = self.reading_scope(now);
            loop {
                match reading.some(&mut scope, &mut job, usize::MAX) {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(error) => {
                        self.refuse_fetch(now, &to, error, out);
                        return Ok(());
                    }
                }
            }
            job.names = job.parts.len();
        }
        if !job.last && job.names > 0 && self.no_room_to_wait(job.names) {
            (job.last, job.early) = (true, true);
        }
        job.last |= job.names == 0;
        if step.is_some() {
            job.stage = Stage::Reading(Box::new(reading));
        }
        let until = job.until;
        let key = self.add_job(to, Work::Fetch(job), until);
        match step {
            None => self.fetch_step(now, key, |job| job.begin(), out),
            Some(_) => self.has_step(key),
        }
        Ok(())
    }

    fn refuse_fetch(&mut self, now: Now, to: &ReplyTo, error: ErrorCode, out: &mut Effects) {
        let reply = FetchResponse { error_code: error, ..FetchResponse::default() };
        let parts = encode_reply(&FETCH, to.version, to.correlation, &reply);
        self.reply(now, to, parts, (error, false), out);
    }

    /// No reply is larger: the limit, less when replies already hold much.
    fn fetch_bytes_max(&self) -> u64 {
        let limit = self.config.limits.fetch_reply_bytes_max.min(self.broker_config.fetch_bytes_max);
        u64::from(limit).min(self.sessions.reply_bytes_left() / 2).max(1)
    }

    fn reading_scope(&mut self, now: Now) -> fetch_reading::Scope<'_> {
        fetch_reading::Scope {
            now: now.mono,
            image: &self.image,
            logs: &self.logs,
            sessions: &mut self.fetch_sessions,
            shards: self.config.shards,
        }
    }

    /// A large fetch's next step.
    pub(crate) fn fetch_goes_on(&mut self, now: Now, key: Key, out: &mut Effects) {
        let Some(Job { to, work: Work::Fetch(fetch), .. }) = self.jobs.get_mut(key) else { return };
        let Some(step) = fetch.step else { return };
        match std::mem::replace(&mut fetch.stage, Stage::Asking) {
            Stage::Reading(mut reading) => {
                let mut scope = fetch_reading::Scope {
                    now: now.mono,
                    image: &self.image,
                    logs: &self.logs,
                    sessions: &mut self.fetch_sessions,
                    shards: self.config.shards,
                };
                match reading.some(&mut scope, fetch, step as usize) {
                    Ok(true) => {
                        self.crowd.middle.throw(Waste::Places(reading.end()));
                        self.fetch_step(now, key, |job| job.begin(), out);
                    }
                    Ok(false) => {
                        fetch.stage = Stage::Reading(reading);
                        self.has_step(key);
                    }
                    Err(error) => {
                        let to = *to;
                        self.crowd.middle.throw(Waste::Places(reading.end()));
                        if let Some(Job { work: Work::Fetch(fetch), .. }) = self.take_job(key) {
                            self.throw(*fetch);
                        }
                        self.refuse_fetch(now, &to, error, out);
                    }
                }
            }
            Stage::Asking => {
                if fetch.may_ask()
                    && let Some(owner) = fetch.due.pop_front()
                {
                    self.ask_fetch_owner(now, key, owner, out);
                }
            }
            Stage::Telling(mut telling) => {
                let Some(slice) = fetch.parts.pop() else {
                    let (to, context) = (*to, fetch.context);
                    let remote = self.take_job(key).is_some_and(|job| job.remote);
                    let parts = telling.end(&to, context);
                    return self.reply(now, &to, parts, (telling.error, remote), out);
                };
                let mut scope = fetch.telling_scope(&mut self.fetch_sessions, &mut out.notes);
                telling.add(&mut scope, to.version, slice);
                fetch.stage = Stage::Telling(telling);
                self.has_step(key);
            }
        }
    }

    /// An owner has less than asked, and watches.
    pub(crate) fn fetch_waiting(
        &mut self,
        now: Now,
        id: CallId,
        waiter: Waiter,
        results: Vec<FetchResult>,
        out: &mut Effects,
    ) {
        match self.jobs.get_mut(waiter.job).map(|job| &mut job.work) {
            Some(Work::Fetch(fetch)) if matches!(fetch.stage, Stage::Asking) => {
                fetch.returned(waiter.share, results, Some(id));
                self.watching.insert(id, waiter);
                self.fetch_next(now, waiter.job, out);
            }
            // Nobody waits any more.
            _ => self.send(id.to, Mesh::Cancel { id }, out),
        }
    }

    pub(crate) fn watch_fired(&mut self, now: Now, id: CallId, out: &mut Effects) {
        if let Some(waiter) = self.watching.remove(&id) {
            self.fetch_step(now, waiter.job, |job| job.ready(waiter.share, id), out);
        }
    }

    pub(crate) fn fetch_next(&mut self, now: Now, key: Key, out: &mut Effects) {
        self.fetch_step(now, key, |job| job.next(now.mono), out);
    }

    fn fetch_step(&mut self, now: Now, key: Key, step: impl FnOnce(&mut FetchJob) -> Next, out: &mut Effects) {
        let Some(Job { work: Work::Fetch(fetch), .. }) = self.jobs.get_mut(key) else { return };
        if !matches!(fetch.stage, Stage::Asking) {
            return;
        }
        match step(fetch) {
            Next::Wait => {}
            Next::Reply => return self.finish_job(now, key, out),
            Next::Ask(owners) if fetch.step.is_some() => fetch.due.extend(owners),
            Next::Ask(owners) => {
                for owner in owners {
                    self.ask_fetch_owner(now, key, owner, out);
                }
                return;
            }
        }
        if fetch.may_ask() {
            self.has_step(key);
        }
    }

    fn ask_fetch_owner(&mut self, now: Now, key: Key, at: u32, out: &mut Effects) {
        let Some(Job { work: Work::Fetch(fetch), .. }) = self.jobs.get_mut(key) else { return };
        let deadline = Shard::call_deadline(fetch.until.max(now.mono).plus_ms(REQUEST_MS));
        let bytes_max = fetch.share_bytes_max(self.config.limits.fetch_reply_bytes_max);
        // Who is asked after others need not watch for what these have.
        let wait = !fetch.last && (fetch.step.is_none() || fetch.got_bytes() < fetch.min_bytes);
        let Some(owner) = fetch.owners.get_mut(at as usize) else { return };
        let (shard, watch) = (owner.shard, owner.watch.take());
        let part = |part: &u32| fetch.parts.get(*part).part.clone();
        let parts = owner.parts.iter().filter_map(part).collect();
        let min_bytes = u32::try_from(owner.threshold).unwrap_or(u32::MAX);
        let call = Call::Fetch { parts, bytes_max, min_bytes, wait };
        if let Some(id) = watch {
            self.end_watch(shard, id, out);
        }
        self.call(shard, deadline, call, Waiter { job: key, share: at }, out);
    }

    /// Nobody waits for these watches any more.
    pub(crate) fn end_watches(&mut self, fetch: &FetchJob, out: &mut Effects) {
        for owner in &fetch.owners {
            if let Some(id) = owner.watch {
                self.end_watch(owner.shard, id, out);
            }
        }
    }

    fn end_watch(&mut self, owner: ShardId, id: CallId, out: &mut Effects) {
        if self.watching.remove(&id).is_some() {
            self.send(owner, Mesh::Cancel { id }, out);
        }
    }

    /// A fetch that nobody waits for.
    pub(crate) fn give_fetch_up(&mut self, fetch: FetchJob, out: &mut Effects) {
        self.end_watches(&fetch, out);
        match fetch.context {
            // Nobody was told of it.
            Context::Made { id } => self.fetch_sessions.remove(id),
            // Half changed, and its client would be told of an epoch that is over.
            Context::Incremental { id } if matches!(fetch.stage, Stage::Reading(_)) => self.fetch_sessions.remove(id),
            _ => {}
        }
        self.throw(fetch);
    }

    /// Lets go of what may be much.
    fn throw(&mut self, fetch: FetchJob) {
        if fetch.step.is_some() {
            self.crowd.middle.throw(Waste::Parts(fetch.parts));
            if let Stage::Reading(reading) = fetch.stage {
                self.crowd.middle.throw(Waste::Places(reading.end()));
            }
        }
    }

    /// A large fetch has all that it is to tell: the steps of its reply follow.
    pub(crate) fn tell_fetch(&mut self, now: Now, key: Key, out: &mut Effects) {
        let Some(Job { to, work: Work::Fetch(fetch), .. }) = self.jobs.get_mut(key) else { return };
        if !matches!(fetch.stage, Stage::Asking) {
            return;
        }
        fetch.stage = Stage::Telling(Telling::default());
        to.throttle_ms = fetch.throttle_ms(now);
        if fetch.context == Context::Full {
            fetch.context = self.fetch_sessions.create(now.mono, fetch.by_id, fetch.session_bytes);
        }
        for owner in std::mem::take(&mut fetch.owners) {
            if let Some(id) = owner.watch {
                self.end_watch(owner.shard, id, out);
            }
        }
        self.has_step(key);
    }

    /// The reply to a fetch that is none of the large ones.
    pub(crate) fn encode_fetch(
        &mut self,
        now: Now,
        to: &mut ReplyTo,
        mut fetch: FetchJob,
        out: &mut Effects,
    ) -> (Bufs, ErrorCode) {
        self.end_watches(&fetch, out);
        to.throttle_ms = fetch.throttle_ms(now);
        if fetch.context == Context::Full {
            fetch.context = self.fetch_sessions.create(now.mono, fetch.by_id, fetch.session_bytes);
        }
        let mut scope = fetch.telling_scope(&mut self.fetch_sessions, &mut out.notes);
        let mut telling = Telling::default();
        let parts = telling.whole(&mut scope, to, fetch.parts.pop().unwrap_or_default());
        (parts, telling.error)
    }
}

impl FetchJob {
    fn telling_scope<'a>(&self, sessions: &'a mut FetchSessions, notes: &'a mut Vec<Note>) -> fetch_telling::Scope<'a> {
        let FetchJob { context, committed_only, bytes_max, .. } = *self;
        fetch_telling::Scope { sessions, context, committed_only, bytes_max, notes }
    }

    /// It would ask again at once, and be answered at once.
    fn throttle_ms(&self, now: Now) -> u32 {
        if !self.early || self.got_bytes() > 0 {
            return 0;
        }
        let rest_ms = self.until.since(now.mono) / 1_000_000;
        THROTTLE_MS.min(u32::try_from(rest_ms).unwrap_or(THROTTLE_MS))
    }
}
