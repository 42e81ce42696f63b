//! From a request to the API that runs it, and from its owners' answers to a reply.

use ringmain_session::{Close, Request};
use ringmain_types::*;
use ringmain_wire as wire;
use smallvec::SmallVec;

use crate::api::Answered;
use crate::api::control::is_control;
use crate::api::groups::is_group;
use crate::api::local::{self, Local, LocalContext, is_local};
use crate::asked::{Asked, Dealt};
use crate::fetch::Stage;
use crate::jobs::{Job, Produced, ReplyTo, Waiter, Work};
use crate::mesh::{Call, Parts, Return};
use crate::slab::Key;
use crate::work::Admitted;
use crate::{Effects, Shard};

/// How long a change of metadata, or a question without a timeout of its own, may take.
pub(crate) const REQUEST_MS: u64 = 30_000;
/// Bytes of a fetch that timed out may still be on their way for this long.
const FETCH_GRACE_MS: u64 = 30_000;

impl Shard {
    pub(crate) fn dispatch(&mut self, now: Now, request: Request, out: &mut Effects) {
        if self.stopping.is_some() || self.sessions.get_mut(request.connection).is_none() {
            return;
        }
        let Some(request) = self.hold(request) else { return };
        let Some(spec) = wire::api(request.api) else {
            let why = format!("unknown API {} v{}", request.api, request.version);
            return self.close(request.connection, Close::Protocol(why), out);
        };
        // An ApiVersions of any version is answered (KIP-511).
        if !spec.supports(request.version) && spec.key != wire::API_VERSIONS.key {
            let why = format!("unknown version {} of {}", request.version, spec.name);
            return self.close(request.connection, Close::Protocol(why), out);
        }
        let connection = request.connection;
        match self.admit(now, spec, request, out) {
            Ok(Some(admitted)) => self.run(now, &admitted, out),
            Ok(None) => {}
            Err(why) => self.close(connection, Close::Protocol(why), out),
        }
    }

    /// Runs a request of an API and version that are spoken, for which there is room.
    pub(crate) fn run(&mut self, now: Now, admitted: &Admitted, out: &mut Effects) {
        let Admitted { request, names } = admitted;
        let Some(spec) = wire::api(request.api).filter(|_| self.sessions.get_mut(request.connection).is_some()) else {
            return;
        };
        let result = match spec.key {
            key if key == wire::PRODUCE.key => self.ask_produce(now, request, out),
            key if key == wire::FETCH.key => self.ask_fetch(now, request, *names, out),
            key if key == wire::LIST_OFFSETS.key => self.ask_list_offsets(now, request, out),
            key if key == wire::OFFSET_FOR_LEADER_EPOCH.key => self.ask_epochs(now, request, out),
            key if key == wire::DELETE_RECORDS.key => self.ask_delete_records(now, request, out),
            key if key == wire::DESCRIBE_LOG_DIRS.key => self.ask_log_dirs(request, out),
            key if key == wire::DESCRIBE_PRODUCERS.key => self.ask_producers(now, request, out),
            key if is_group(key) => self.ask_groups(now, request, out),
            key if is_control(key) => {
                self.ask_controller(now, request, out);
                Ok(())
            }
            key if is_local(key) => {
                self.answer_here(now, request, None, out);
                Ok(())
            }
            key => unreachable!("API {key} is advertised and has no handler"),
        };
        if let Err(error) = result {
            let why = format!("{} v{}: {error}", spec.name, request.version);
            self.close(request.connection, Close::Protocol(why), out);
        }
    }

    fn ask_controller(&mut self, now: Now, request: &Request, out: &mut Effects) {
        let deadline = now.mono.plus_ms(REQUEST_MS);
        let call = Call::Control { request: request.clone() };
        let job = self.add_job(ReplyTo::new(now, request), Work::Control(request.clone()), deadline);
        self.call(ShardId(0), deadline, call, Waiter { job, share: 0 }, out);
    }

    /// Answers from this shard's image; with `created`, for the second time.
    fn answer_here(&mut self, now: Now, request: &Request, created: Option<&[(String, ErrorCode)]>, out: &mut Effects) {
        let context = LocalContext { image: &self.image, config: &self.config, broker_config: &self.broker_config };
        match local::answer(&context, request, created) {
            Local::Reply(Answered { parts, error }) => {
                self.reply(now, &ReplyTo::new(now, request), parts, (error, false), out);
            }
            Local::Create(names) => {
                let deadline = now.mono.plus_ms(REQUEST_MS);
                let work = Work::AutoCreate(request.clone(), names.clone());
                let job = self.add_job(ReplyTo::new(now, request), work, deadline);
                self.call(ShardId(0), deadline, Call::AutoCreate { names }, Waiter { job, share: 0 }, out);
            }
            Local::Close(why) => self.close(request.connection, Close::Protocol(why), out),
        }
    }

    /// Starts a request over its owners, or answers it at once when it has none. `call` makes one owner's call of its questions.
    pub(crate) fn ask_owners<R, T>(
        &mut self,
        now: Now,
        (to, deadline): (ReplyTo, Instant),
        mut asked: Asked<R>,
        dealt: Dealt<T>,
        (work, call): (impl FnOnce(Asked<R>) -> Work, impl Fn(Parts<T>) -> Call),
        out: &mut Effects,
    ) {
        let (shares, questions) = dealt.shares();
        let owners: SmallVec<[ShardId; 16]> = shares.iter().map(|share| share.shard).collect();
        asked.waiting = owners.len() as u32;
        asked.shares = shares;
        let job = self.add_job(to, work(asked), Shard::call_deadline(deadline));
        if owners.is_empty() {
            return self.finish_job(now, job, out);
        }
        for (share, (shard, questions)) in owners.into_iter().zip(questions).enumerate() {
            self.call(shard, deadline, call(questions), Waiter { job, share: share as u32 }, out);
        }
    }

    /// An owner's answer.
    pub(crate) fn returned(&mut self, now: Now, waiter: Waiter, result: Return, out: &mut Effects) {
        let Waiter { job: key, share } = waiter;
        let Some(job) = self.jobs.get_mut(key) else { return };
        let done = match (&mut job.work, result) {
            (Work::Fetch(fetch), result) => {
                match result {
                    Return::Fetch(results) => fetch.returned(share, results, None),
                    Return::Failed(error) => fetch.failed(share, error),
                    other => unreachable!("a fetch is answered with {other:?}"),
                }
                return self.fetch_next(now, key, out);
            }
            (Work::Produce { asked, .. }, Return::Produce(results)) => {
                let produced = results.into_iter().map(|result| Produced { result, records: Vec::new() });
                fill(asked, share, produced)
            }
            (Work::Produce { asked, .. }, Return::Failed(error)) => {
                failed(asked, share, || Produced::failed(error, None))
            }
            (Work::Offsets(asked), Return::Offsets(results)) => fill(asked, share, results),
            (Work::Offsets(asked), Return::Failed(error)) => failed(asked, share, || Err(error)),
            (Work::Epochs(asked), Return::Epochs(results)) => fill(asked, share, results),
            (Work::Epochs(asked), Return::Failed(error)) => failed(asked, share, || Err(error)),
            (Work::DeleteRecords(asked), Return::DeleteRecords(results)) => fill(asked, share, results),
            (Work::DeleteRecords(asked), Return::Failed(error)) => failed(asked, share, || Err(error)),
            (Work::Producers(asked), Return::Producers(results)) => fill(asked, share, results),
            (Work::Producers(asked), Return::Failed(error)) => failed(asked, share, || Err(error)),
            (Work::Describe(asked), Return::Describe(views)) => fill(asked, share, views.into_iter().map(Some)),
            (Work::Describe(asked), Return::Failed(_)) => failed(asked, share, || None),
            (Work::Groups(groups), result) => {
                let answer = match result {
                    Return::Group(reply) => Ok(reply),
                    Return::Failed(error) => Err(error),
                    other => unreachable!("a coordinator answers with {other:?}"),
                };
                // The first one whole, as of a fetch.
                let bytes = answer.as_ref().map_or(0, crate::api::group_replies::answer_bytes);
                let all = (groups.bytes + bytes) as u64;
                let first = groups.bytes == 0 || bytes == 0;
                // One asks for less, or again: what others' replies take they give back.
                let refused = if first {
                    None
                } else if all > u64::from(self.config.limits.describe_reply_bytes_max) {
                    Some(ErrorCode::InvalidRequest)
                } else {
                    let left = self.sessions.reply_bytes_left() / 2;
                    (all > left).then_some(ErrorCode::CoordinatorLoadInProgress)
                };
                let fits = refused.is_none();
                if let Some(place) = groups.answers.get_mut(share as usize) {
                    *place = refused.map_or(answer, Err);
                    groups.waiting -= 1;
                }
                let done = groups.waiting == 0;
                if fits {
                    groups.bytes += bytes;
                    job.bytes += bytes as u64;
                    self.sessions.charge(bytes as u64);
                }
                done
            }
            (Work::Control(_) | Work::AutoCreate(..), result) => {
                return self.decided(now, key, result, out);
            }
            (_, other) => unreachable!("a call is answered with {other:?}"),
        };
        if done {
            self.finish_job(now, key, out);
        }
    }

    /// The controller's answer.
    fn decided(&mut self, now: Now, key: Key, result: Return, out: &mut Effects) {
        let Some(Job { to, work, remote, .. }) = self.take_job(key) else { return };
        match (work, result) {
            (_, Return::Control(parts, error)) => self.reply(now, &to, parts, (error, remote), out),
            (Work::AutoCreate(request, _), Return::AutoCreated(created)) => {
                self.answer_here(now, &request, Some(&created), out);
            }
            // Metadata is answered all the same: the topics that could not be made are missing, and so are those that this shard knows
            // and another may not yet.
            (Work::AutoCreate(request, names), Return::Failed(_)) => {
                let missing = names.into_iter().map(|name| (name, ErrorCode::UnknownTopicOrPartition));
                self.answer_here(now, &request, Some(&missing.collect::<Vec<_>>()), out);
            }
            (Work::Control(request), Return::Failed(error)) => match crate::api::refuse::refuse(&request, error) {
                Ok(parts) => self.reply(now, &to, parts, (error, remote), out),
                Err(why) => self.close(to.connection, Close::Protocol(why), out),
            },
            (_, Return::Close(why)) => self.close(to.connection, Close::Protocol(why), out),
            (_, other) => unreachable!("the controller answers with {other:?}"),
        }
    }

    /// The last moment of a request: it is answered with what there is.
    pub(crate) fn job_expired(&mut self, now: Now, key: Key, out: &mut Effects) {
        let Some(job) = self.jobs.get_mut(key) else { return };
        if let Some(timer) = job.timer.take() {
            self.timers.cancel(timer);
        }
        match &mut job.work {
            Work::Fetch(fetch) => {
                // Max_wait is over; what is being read still comes, within reason. What is in the middle goes on by itself.
                let in_the_middle = !matches!(fetch.stage, Stage::Asking);
                if !std::mem::replace(&mut fetch.last, true)
                    || in_the_middle
                    || now.mono < fetch.until.plus_ms(FETCH_GRACE_MS)
                {
                    let again = now.mono.plus_ms(FETCH_GRACE_MS);
                    job.timer = Some(self.timers.set(again, crate::shard::Timer::Job(key)));
                    self.fetch_next(now, key, out);
                } else {
                    self.finish_job(now, key, out);
                }
            }
            Work::Control(_) | Work::AutoCreate(..) => {
                self.decided(now, key, Return::Failed(ErrorCode::RequestTimedOut), out);
            }
            _ => self.finish_job(now, key, out),
        }
    }

    /// Encodes and sends the reply.
    pub(crate) fn finish_job(&mut self, now: Now, key: Key, out: &mut Effects) {
        if let Some(Job { work: Work::Fetch(fetch), .. }) = self.jobs.get(key)
            && fetch.step.is_some()
        {
            return self.tell_fetch(now, key, out);
        }
        let Some(Job { mut to, work, remote, .. }) = self.take_job(key) else { return };
        let (parts, error) = match work {
            Work::Produce { acks: 0, asked } => return self.finish_unanswered(now, &to, &asked, remote, out),
            Work::Produce { asked, .. } => crate::api::produce::encode(&to, &asked),
            Work::Fetch(fetch) => self.encode_fetch(now, &mut to, *fetch, out),
            Work::Offsets(asked) => crate::api::list_offsets::encode(&to, &asked),
            Work::Epochs(asked) => crate::api::offset_for_leader_epoch::encode(&to, &asked),
            Work::DeleteRecords(asked) => crate::api::delete_records::encode(&to, &asked),
            Work::Describe(asked) => {
                let fenced = self.store.fenced().is_some();
                crate::api::describe_log_dirs::encode(&to, &asked, &self.config.dir_path, (self.space.bytes(), fenced))
            }
            Work::Producers(asked) => crate::api::describe_producers::encode(&to, &asked),
            Work::Groups(job) => match crate::api::groups::encode(&job.request, &job.answers) {
                Ok(encoded) => encoded,
                Err(why) => return self.close(to.connection, Close::Protocol(why), out),
            },
            Work::Control(_) | Work::AutoCreate(..) => return,
        };
        self.reply(now, &to, parts, (error, remote), out);
    }
}

/// Puts one share's answers in their places. Whether that was the last share.
fn fill<R, I>(asked: &mut Asked<R>, share: u32, results: I) -> bool
where
    I: IntoIterator<Item = R>,
    I::IntoIter: ExactSizeIterator,
{
    asked.answered(share, results.into_iter());
    asked.waiting == 0
}

/// The same, for a share that has failed.
fn failed<R>(asked: &mut Asked<R>, share: u32, failure: impl Fn() -> R) -> bool {
    let count = asked.shares.get(share as usize).map_or(0, |share| share.parts.len());
    fill(asked, share, (0..count).map(|_| failure()))
}

/// The body of a request, decoded.
pub(crate) fn body<'a, T: wire::Field<'a>>(spec: &wire::ApiSpec, request: &'a Request) -> Result<T, wire::WireError> {
    let body = request.frame.get(request.body as usize..).unwrap_or_default();
    wire::decode_counted(spec, request.version, body, request.counted.as_deref())
}
