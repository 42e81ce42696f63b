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

use ringmain_log::Slices;
use ringmain_types::*;

use crate::asked::TopicKey;
use crate::fetch_session::{Context, Wanted};
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

#[derive(Debug)]
pub(crate) struct FetchJob {
    pub(crate) context: Context,
    pub(crate) by_id: bool,
    pub(crate) committed_only: bool,
    pub(crate) parts: Vec<FetchAsked>,
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
    pub(crate) fn new(shard: ShardId, parts: Vec<u32>) -> FetchOwner {
        FetchOwner { shard, parts, calling: true, watch: None, bytes: 0, stale: false, threshold: 0 }
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
    /// The first round: everybody, for his share.
    pub(crate) fn begin(&mut self) -> Next {
        let share = self.min_bytes.div_ceil(self.owners.len().max(1) as u64).max(1);
        self.last |= self.parts.iter().any(|asked| asked.part.is_none());
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
            self.parts[part as usize].result = result;
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
                found.calling = true;
                Next::Ask(vec![owner])
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
        for asked in &mut self.parts {
            asked.result.slices.parts.clear();
            asked.result.slices.bytes = 0;
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

    /// Lets go of what would make the reply larger than asked. The first partition with data is whole, whatever its size.
    pub(crate) fn trim(&mut self) {
        let mut total = 0u64;
        for asked in &mut self.parts {
            let bytes = u64::from(asked.result.slices.bytes);
            if total > 0 && total + bytes > self.bytes_max {
                asked.result.slices = Slices::default();
                continue;
            }
            total += bytes;
        }
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
        FetchJob {
            context: Context::Sessionless,
            by_id: true,
            committed_only: false,
            parts: (0..owners).map(asked).collect(),
            owners: (0..owners).map(|at| FetchOwner::new(ShardId(at), vec![u32::from(at)])).collect(),
            min_bytes,
            bytes_max: 100,
            until: Instant(1000),
            last: false,
            early: false,
        }
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
        let mut fetch = job(4, 1);
        for (asked, bytes) in fetch.parts.iter_mut().zip([0, 500, 10, 0]) {
            asked.result.slices.bytes = bytes;
        }
        fetch.trim();
        let left: Vec<u32> = fetch.parts.iter().map(|asked| asked.result.slices.bytes).collect();
        assert_eq!(left, [0, 500, 0, 0]);
        for (asked, bytes) in fetch.parts.iter_mut().zip([40, 50, 20, 10]) {
            asked.result.slices.bytes = bytes;
        }
        fetch.trim();
        let left: Vec<u32> = fetch.parts.iter().map(|asked| asked.result.slices.bytes).collect();
        assert_eq!(left, [40, 50, 0, 10]);
    }
}
