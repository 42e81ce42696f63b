//! One fetch on the shard that was asked: which owners have answered, who watches, whether it is enough.
//!
//! ```text
//!            enough, or the last round
//! Calling ------------------------------> reply
//!    |  not enough         ^
//!    v                     | Ready, or max_wait is over and more may be there
//! Watching ----------------+
//! ```
//! Owners watch for their share of min_bytes: if all owners together have min_bytes more, one of them has its share more. Slices are not
//! held while a fetch waits; whoever had some is asked again at the end.
//!
//! A large one goes on a step at a time (`middle.rs`): it is read, its owners are asked, and it is told in slices. An owner of many partitions
//! is several then, one of which is asked at a time.

use std::collections::VecDeque;

use ringmain_log::Slices;
use ringmain_types::*;

use crate::asked::TopicKey;
use crate::fetch_reading::Reading;
use crate::fetch_session::{Context, Wanted};
use crate::fetch_telling::Telling;
use crate::mesh::{CallId, FetchPart, FetchResult};

/// One partition of a fetch.
#[derive(Debug)]
pub(crate) struct FetchAsked {
    pub(crate) wanted: Wanted,
    pub(crate) key: TopicKey,
    /// What its owner is asked; none when it has no owner: then `result` is an error.
    pub(crate) part: Option<FetchPart>,
    pub(crate) result: FetchResult,
}

#[derive(Debug)]
pub(crate) struct FetchOwner {
    pub(crate) shard: ShardId,
    pub(crate) parts: Vec<u32>,
    /// A call is under way.
    calling: bool,
    /// Set with its last answer.
    pub(crate) watch: Option<CallId>,
    /// In its last answer.
    bytes: u64,
    /// Its slices were let go.
    stale: bool,
    /// What it is to watch for.
    pub(crate) threshold: u64,
}

/// Partitions, in slices of one size: a large fetch lets go of them one by one.
#[derive(Debug)]
pub(crate) struct Parts {
    slices: VecDeque<Vec<FetchAsked>>,
    slice_max: usize,
    len: usize,
}

pub(crate) enum Stage {
    /// Only of a large one: another is read before it is a job.
    Reading(Box<Reading>),
    Asking,
    /// Only of a large one.
    Telling(Telling),
}

pub(crate) struct FetchJob {
    pub(crate) stage: Stage,
    /// It goes on a step at a time, of so many partitions.
    pub(crate) step: Option<u32>,
    /// What it names, or has in its session: known before it is read.
    pub(crate) names: usize,
    /// Owners to be asked when the one that was asked has answered; of a large one.
    pub(crate) due: VecDeque<u32>,
    /// Its next step has its place among those of others.
    pub(crate) queued: bool,
    pub(crate) context: Context,
    pub(crate) by_id: bool,
    pub(crate) committed_only: bool,
    pub(crate) parts: Parts,
    /// What they take in a session.
    pub(crate) session_bytes: usize,
    pub(crate) owners: Vec<FetchOwner>,
    pub(crate) min_bytes: u64,
    pub(crate) bytes_max: u64,
    /// End of max_wait.
    pub(crate) until: Instant,
    /// No waiting any more: what comes now is the reply.
    pub(crate) last: bool,
    /// It would have waited, but for the memory.
    pub(crate) early: bool,
}

/// What to do after an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Wait,
    /// Ask these owners (their places); watches that they have are of no use any more.
    Ask(Vec<u32>),
    Reply,
}

impl FetchOwner {
    fn new(shard: ShardId) -> FetchOwner {
        FetchOwner { shard, parts: Vec::new(), calling: true, watch: None, bytes: 0, stale: false, threshold: 0 }
    }
}

impl FetchAsked {
    /// What counts is how it is named last.
    pub(crate) fn name_again(&mut self, wanted: Wanted) {
        if let Some(part) = &mut self.part {
            (part.epoch, part.last_epoch) = (wanted.epoch, wanted.last_epoch);
            (part.from, part.bytes_max) = (wanted.from, wanted.bytes_max);
        }
        self.wanted = wanted;
    }
}

impl Parts {
    pub(crate) fn new(slice_max: usize) -> Parts {
        assert!(slice_max > 0);
        Parts { slices: VecDeque::new(), slice_max, len: 0 }
    }

    pub(crate) fn push(&mut self, asked: FetchAsked) {
        if self.len.is_multiple_of(self.slice_max) {
            // Behind a full one comes another, most likely.
            let expected = if self.len == 0 { 0 } else { self.slice_max };
            self.slices.push_back(Vec::with_capacity(expected));
        }
        self.len += 1;
        self.slices.back_mut().expect("there is one with room").push(asked);
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, at: u32) -> &FetchAsked {
        &self.slices[at as usize / self.slice_max][at as usize % self.slice_max]
    }

    pub(crate) fn get_mut(&mut self, at: u32) -> &mut FetchAsked {
        &mut self.slices[at as usize / self.slice_max][at as usize % self.slice_max]
    }

    /// Takes the first slice; only of parts that nobody asks for by number any more.
    pub(crate) fn pop(&mut self) -> Option<Vec<FetchAsked>> {
        self.slices.pop_front()
    }
}

impl FetchResult {
    pub(crate) fn failed(error: ErrorCode) -> FetchResult {
        FetchResult {
            error,
            high_watermark: Offset(-1),
            last_stable: Offset(-1),
            start: Offset(-1),
            diverging: None,
            slices: Slices::default(),
        }
    }
}

impl FetchJob {
    /// The next partition's owner: the open one of its shard, or another once that has a step's worth.
    pub(crate) fn deal(&mut self, shard: ShardId, open: Option<u32>) -> u32 {
        let most = self.step.map_or(usize::MAX, |step| step as usize);
        let open = open.filter(|open| self.owners[*open as usize].parts.len() < most).unwrap_or_else(|| {
            self.owners.push(FetchOwner::new(shard));
            (self.owners.len() - 1) as u32
        });
        let part = self.parts.len() as u32;
        self.owners[open as usize].parts.push(part);
        open
    }

    /// The first round: everybody, for his share.
    pub(crate) fn begin(&mut self) -> Next {
        self.stage = Stage::Asking;
        let share = self.min_bytes.div_ceil(self.owners.len().max(1) as u64).max(1);
        // One without an owner has its answer.
        let asked: usize = self.owners.iter().map(|owner| owner.parts.len()).sum();
        self.last |= asked < self.parts.len();
        for owner in &mut self.owners {
            owner.threshold = share;
        }
        match self.owners.len() as u32 {
            0 => Next::Reply,
            owners => Next::Ask((0..owners).collect()),
        }
    }

    /// An owner's answer, with the watch that it has set.
    pub(crate) fn returned(&mut self, owner: u32, results: Vec<FetchResult>, watch: Option<CallId>) {
        let Some(owner) = self.owners.get_mut(owner as usize) else { return };
        assert_eq!(owner.parts.len(), results.len());
        owner.bytes = results.iter().map(|result| u64::from(result.slices.bytes)).sum();
        owner.stale = false;
        owner.calling = false;
        owner.watch = watch;
        for (&part, result) in owner.parts.iter().zip(results) {
            self.last |= result.error != ErrorCode::None || result.diverging.is_some();
            self.parts.get_mut(part).result = result;
        }
    }

    /// An owner could not answer at all.
    pub(crate) fn failed(&mut self, owner: u32, error: ErrorCode) {
        let count = self.owners.get(owner as usize).map_or(0, |owner| owner.parts.len());
        self.returned(owner, (0..count).map(|_| FetchResult::failed(error)).collect(), None);
    }

    /// A watch fired: its owner is asked for what it has.
    pub(crate) fn ready(&mut self, owner: u32, call: CallId) -> Next {
        match self.owners.get_mut(owner as usize) {
            Some(found) if found.watch == Some(call) => {
                found.watch = None;
                // Of a large one it may be about to be asked.
                if std::mem::replace(&mut found.calling, true) { Next::Wait } else { Next::Ask(vec![owner]) }
            }
            _ => Next::Wait,
        }
    }

    pub(crate) fn next(&mut self, now: Instant) -> Next {
        if self.owners.iter().any(|owner| owner.calling) {
            return Next::Wait;
        }
        let bytes: u64 = self.owners.iter().map(|owner| owner.bytes).sum();
        if self.last || bytes >= self.min_bytes || now >= self.until {
            self.last = true;
            let stale = self.pick(|owner| owner.stale);
            return if stale.is_empty() { Next::Reply } else { Next::Ask(stale) };
        }
        // Who has answered without a watch gets one, for his share of what is missing on top of what he has.
        let share = (self.min_bytes - bytes).div_ceil(self.owners.len() as u64);
        for owner in &mut self.owners {
            owner.stale |= owner.bytes > 0;
            if owner.watch.is_none() {
                owner.threshold = owner.bytes + share;
            }
        }
        for owner in self.owners.iter().filter(|owner| owner.bytes > 0) {
            for part in &owner.parts {
                let slices = &mut self.parts.get_mut(*part).result.slices;
                slices.parts.clear();
                slices.bytes = 0;
            }
        }
        let unwatched = self.pick(|owner| owner.watch.is_none());
        if unwatched.is_empty() { Next::Wait } else { Next::Ask(unwatched) }
    }

    fn pick(&mut self, which: impl Fn(&FetchOwner) -> bool) -> Vec<u32> {
        let mut picked = Vec::new();
        for (at, owner) in self.owners.iter_mut().enumerate() {
            if which(owner) {
                owner.calling = true;
                picked.push(at as u32);
            }
        }
        picked
    }

    /// Every owner may use all of a small reply and its part of a large one; `trim` cuts what is too much. Of a large fetch one is asked after the
    /// other, for what is left; if that is nothing, for where its logs end.
    pub(crate) fn share_bytes_max(&self, limit: u32) -> u32 {
        let most = match self.step {
            None => {
                let floor = u64::from(limit / 4).min(self.bytes_max);
                (self.bytes_max / (self.owners.len() as u64).max(1)).max(floor).max(1)
            }
            Some(_) => self.bytes_max.max(1).saturating_sub(self.got_bytes()),
        };
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    /// What is there of the reply.
    pub(crate) fn got_bytes(&self) -> u64 {
        let answered = self.owners.iter().filter(|owner| !owner.calling && !owner.stale);
        answered.map(|owner| owner.bytes).sum()
    }

    /// It may ask the next owner.
    pub(crate) fn may_ask(&self) -> bool {
        matches!(self.stage, Stage::Asking)
            && !self.due.is_empty()
            && self.owners.iter().filter(|owner| owner.calling).count() == self.due.len()
    }
}

/// Lets go of what would make the reply larger than asked. The first partition with data is whole, whatever its size. `total` is of the slices
/// before.
pub(crate) fn trim(parts: &mut [FetchAsked], total: &mut u64, bytes_max: u64) {
    for asked in parts {
        let bytes = u64::from(asked.result.slices.bytes);
        if *total > 0 && *total + bytes > bytes_max {
            asked.result.slices = Slices::default();
            continue;
        }
        *total += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch_session::TopicRef;

    fn job(owners: u16, min_bytes: u64) -> FetchJob {
        let asked = |index: u16| {
            let partition = Partition { topic: TopicId(2), index: PartitionIndex(i32::from(index)) };
            let part = FetchPart {
                partition,
                epoch: None,
                last_epoch: None,
                from: Offset(0),
                bytes_max: 100,
                committed_only: false,
            };
            let wanted = Wanted {
                topic: TopicRef::Id(TopicId(2)),
                index: partition.index,
                epoch: None,
                last_epoch: None,
                from: Offset(0),
                bytes_max: 100,
            };
            let result = FetchResult::failed(ErrorCode::None);
            FetchAsked { wanted, key: TopicKey::Id(TopicId(2)), part: Some(part), result }
        };
        let mut job = FetchJob {
            stage: Stage::Asking,
            step: None,
            names: 0,
            due: VecDeque::new(),
            queued: false,
            context: Context::Sessionless,
            by_id: true,
            committed_only: false,
            parts: Parts::new(10),
            session_bytes: 0,
            owners: Vec::new(),
            min_bytes,
            bytes_max: 100,
            until: Instant(1000),
            last: false,
            early: false,
        };
        for at in 0..owners {
            job.deal(ShardId(at), None);
            job.parts.push(asked(at));
        }
        job
    }

    fn show(next: Next, job: &FetchJob) -> String {
        match next {
            Next::Wait => "wait".into(),
            Next::Reply => "reply".into(),
            Next::Ask(owners) => {
                let last = if job.last { "take" } else { "ask" };
                let one = |at: &u32| format!("{at}@{}", job.owners[*at as usize].threshold);
                format!("{last} {}", owners.iter().map(one).collect::<Vec<_>>().join(","))
            }
        }
    }

    /// Runs `tests/data/fetch.txt`.
    #[test]
    fn transcript() {
        let mut fetch = job(1, 1);
        let mut steps = 0;
        for line in include_str!("../tests/data/fetch.txt").lines() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            steps += 1;
            let (command, want) = line.split_once("=>").expect("a transcript line has its outcome");
            let words: Vec<&str> = command.split_whitespace().collect();
            let number = |at: usize| words[at].parse::<u32>().unwrap();
            let call = |slot: u32| CallId { from: ShardId(0), to: ShardId(0), slot: slot as u16, generation: 0 };
            let result = |bytes: u32| {
                let slices = Slices { bytes, ..Slices::default() };
                FetchResult { slices, ..FetchResult::failed(ErrorCode::None) }
            };
            let next = match words[0] {
                "new" => {
                    fetch = job(number(1) as u16, u64::from(number(2)));
                    fetch.begin()
                }
                "has" => {
                    fetch.returned(number(1), vec![result(number(2))], None);
                    fetch.next(Instant(0))
                }
                "watches" => {
                    fetch.returned(number(1), vec![result(number(2))], Some(call(number(1))));
                    fetch.next(Instant(0))
                }
                "fails" => {
                    fetch.failed(number(1), ErrorCode::KafkaStorageError);
                    fetch.next(Instant(0))
                }
                "ready" => fetch.ready(number(1), call(number(1))),
                "late" => fetch.next(Instant(1000)),
                other => panic!("unknown command {other}"),
            };
            assert_eq!(show(next, &fetch), want.trim(), "after: {line}");
        }
        assert!(steps > 20);
    }

    #[test]
    fn the_first_data_is_whole_and_the_rest_fits() {
        let trimmed = |bytes: [u32; 4], slice: usize| {
            let mut fetch = job(4, 1);
            let mut parts = fetch.parts.pop().unwrap();
            for (asked, bytes) in parts.iter_mut().zip(bytes) {
                asked.result.slices.bytes = bytes;
            }
            let mut total = 0;
            parts.chunks_mut(slice).for_each(|slice| trim(slice, &mut total, 100));
            parts.iter().map(|asked| asked.result.slices.bytes).collect::<Vec<_>>()
        };
        for slice in 1..=4 {
            assert_eq!(trimmed([0, 500, 10, 0], slice), [0, 500, 0, 0]);
            assert_eq!(trimmed([40, 50, 20, 10], slice), [40, 50, 0, 10]);
        }
    }

    #[test]
    fn an_owner_of_many_is_asked_in_pieces_for_what_is_left() {
        let mut fetch = job(0, 1);
        fetch.step = Some(2);
        let mut open = [None; 2];
        for at in 0..5u16 {
            let shard = ShardId(at % 2);
            open[usize::from(shard.0)] = Some(fetch.deal(shard, open[usize::from(shard.0)]));
            let one = job(1, 1).parts.pop().unwrap().remove(0);
            fetch.parts.push(one);
        }
        let dealt: Vec<(u16, Vec<u32>)> = fetch.owners.iter().map(|it| (it.shard.0, it.parts.clone())).collect();
        assert_eq!(dealt, [(0, vec![0, 2]), (1, vec![1, 3]), (0, vec![4])]);
        assert_eq!(show(fetch.begin(), &fetch), "ask 0@1,1@1,2@1");
        fetch.due.extend([0, 1, 2]);
        let mut asked = Vec::new();
        for bytes in [0, 90, 20] {
            assert!(fetch.may_ask());
            let owner = fetch.due.pop_front().unwrap();
            asked.push(fetch.share_bytes_max(1000));
            assert!(!fetch.may_ask(), "one is being asked");
            let count = fetch.owners[owner as usize].parts.len();
            let result = |at| {
                let slices = Slices { bytes: if at == 0 { bytes } else { 0 }, ..Slices::default() };
                FetchResult { slices, ..FetchResult::failed(ErrorCode::None) }
            };
            fetch.returned(owner, (0..count).map(result).collect(), None);
        }
        assert_eq!(asked, [100, 100, 10]);
        assert_eq!((fetch.share_bytes_max(1000), fetch.next(Instant(0))), (0, Next::Reply));
    }
}
