//! One partition's coordinator: loading, deciding, appending, answering.
//!
//! ```text
//! Loading (replay of what is committed) -> Serving -> dropped with the leadership
//! ```

use std::collections::VecDeque;

use ringmain_types::{ErrorCode, Instant, LeaderEpoch, Now, Offset};

use crate::outbox::Outbox;
use crate::{Decision, Machine, Waiter};

/// Answers, in the order in which they were decided.
pub type Replies<M> = Vec<(Waiter, <M as Machine>::Reply)>;

/// A record as it goes into the log: key, and value or tombstone.
pub type Written = (Vec<u8>, Option<Vec<u8>>);

/// Records to be appended next, as one batch that begins at `base`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    pub base: Offset,
    pub records: Vec<Written>,
}

/// Parts between cuts are joined up to this: most decisions are one part.
const PART_BYTES: usize = 64 << 10;

/// What a record takes in a batch besides key and value, at the most.
const RECORD_BYTES: usize = 32;

/// What goes into the log together.
#[derive(Default)]
struct Part {
    records: Vec<Written>,
    bytes: usize,
}

impl Part {
    fn push(&mut self, (key, value): Written) {
        self.bytes += RECORD_BYTES + key.len() + value.as_ref().map_or(0, Vec::len);
        self.records.push((key, value));
    }
}

pub struct Runtime<M: Machine> {
    machine: M,
    epoch: LeaderEpoch,
    loaded: bool,
    /// The offset that the next record gets: nobody else writes to the partition while this leads it.
    next: Offset,
    /// What of it is in the log.
    appended: Offset,
    committed: Offset,
    /// Parts of decisions that are not in the log yet, each to be appended whole.
    unappended: VecDeque<Part>,
    unappended_bytes: usize,
    outbox: Outbox<M::Reply>,
}

impl<M: Machine> Runtime<M> {
    /// Begins to load, in this epoch, a log that starts at `start`.
    pub fn new(machine: M, epoch: LeaderEpoch, start: Offset) -> Runtime<M> {
        Runtime {
            machine,
            epoch,
            loaded: false,
            next: start,
            appended: start,
            committed: start,
            unappended: VecDeque::new(),
            unappended_bytes: 0,
            outbox: Outbox::new(),
        }
    }

    /// A record that was committed before this epoch. Offsets rise; compaction leaves gaps.
    pub fn load(&mut self, now: Now, at: Offset, key: &[u8], value: Option<&[u8]>) -> Result<(), ErrorCode> {
        assert!(!self.loaded);
        if at < self.next {
            return Err(ErrorCode::CorruptMessage);
        }
        if let Some(record) = M::decode(key, value)? {
            self.machine.replay(now, &record);
        }
        self.next = Offset(at.0 + 1);
        Ok(())
    }

    /// What was loaded reaches to `next`: its last records may be gone, or nobody's.
    pub fn skip_to(&mut self, next: Offset) {
        assert!(!self.loaded && next >= self.next);
        self.next = next;
    }

    /// All of the log, which ends at `end`, was loaded: from now on requests are decided.
    pub fn serve(&mut self, now: Now, world: &M::World, end: Offset) {
        assert!(!self.loaded && end >= self.next);
        self.loaded = true;
        (self.next, self.appended, self.committed) = (end, end, end);
        self.machine.loaded(now, world);
    }

    pub fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    pub fn is_loaded(&self) -> bool {
        self.loaded
    }

    /// Where loading goes on.
    pub fn next(&self) -> Offset {
        self.next
    }

    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// For what is no record and no decision, such as what was told of it.
    pub fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// Decides; what may be answered at once comes back. While it loads, nothing is known: 14, and the client asks again.
    pub fn request(
        &mut self,
        now: Now,
        world: &M::World,
        waiter: Waiter,
        request: M::Request<'_>,
        replies: &mut Replies<M>,
    ) -> Result<(), ErrorCode> {
        if !self.loaded {
            return Err(ErrorCode::CoordinatorLoadInProgress);
        }
        let mut decision = Decision::default();
        self.machine.decide(now, world, waiter, request, &mut decision);
        self.decided(decision, replies);
        Ok(())
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Now, world: &M::World, replies: &mut Replies<M>) {
        if self.deadline().is_none_or(|due| due > now.mono) {
            return;
        }
        let mut decision = Decision::default();
        self.machine.expire(now, world, &mut decision);
        self.decided(decision, replies);
    }

    fn decided(&mut self, decision: Decision<M::Record, M::Reply>, replies: &mut Replies<M>) {
        self.next = Offset(self.next.0 + decision.records.len() as i64);
        let (mut part, mut uncut) = (Part::default(), Part::default());
        let mut cuts = decision.cuts.into_iter().peekable();
        for (at, record) in decision.records.iter().enumerate() {
            while cuts.next_if(|cut| *cut <= at).is_some() {
                self.join(&mut part, &mut uncut);
            }
            uncut.push(M::encode(record));
        }
        self.join(&mut part, &mut uncut);
        self.wait(part);
        for (waiter, reply) in decision.replies {
            self.outbox.push(self.next, waiter, reply);
        }
        self.release(replies);
    }

    /// Puts `more` behind `part`, which waits by itself first when both are too much for one.
    fn join(&mut self, part: &mut Part, more: &mut Part) {
        if part.bytes + more.bytes > PART_BYTES {
            self.wait(std::mem::take(part));
        }
        part.bytes += std::mem::take(&mut more.bytes);
        part.records.append(&mut more.records);
    }

    fn wait(&mut self, part: Part) {
        if !part.records.is_empty() {
            self.unappended_bytes += part.bytes;
            self.unappended.push_back(part);
        }
    }

    /// What to append now: whole parts of decisions, of about `bytes_max` together. Ask again after [`Runtime::appended`].
    pub fn to_append(&self, bytes_max: usize) -> Option<Append> {
        let mut records: Vec<Written> = Vec::new();
        let mut bytes = 0;
        for part in &self.unappended {
            bytes += part.bytes;
            if !records.is_empty() && bytes > bytes_max {
                break;
            }
            records.extend(part.records.iter().cloned());
        }
        (!records.is_empty()).then_some(Append { base: self.appended, records })
    }

    /// The log took that batch. `false` when it lies elsewhere than it was said to: somebody else wrote, and what this decided rests
    /// on a log that is not there. The runtime must be dropped.
    #[must_use]
    pub fn appended(&mut self, append: &Append, base: Offset) -> bool {
        if base != append.base || base != self.appended {
            return false;
        }
        let mut count = append.records.len();
        while count > 0 {
            let first = self.unappended.pop_front().expect("what was appended was waiting");
            self.unappended_bytes -= first.bytes;
            count = count.checked_sub(first.records.len()).expect("parts are appended whole");
        }
        self.appended = Offset(self.appended.0 + append.records.len() as i64);
        true
    }

    /// The high watermark moved, in `epoch`: a completion of an earlier life tells nobody anything (FAILURES 49).
    pub fn committed(&mut self, epoch: LeaderEpoch, high_watermark: Offset, replies: &mut Replies<M>) {
        if epoch != self.epoch || !self.loaded {
            return;
        }
        self.committed = self.committed.max(high_watermark.min(self.appended));
        self.release(replies);
    }

    fn release(&mut self, replies: &mut Replies<M>) {
        while let Some(answer) = self.outbox.pop(self.committed) {
            replies.push(answer);
        }
    }

    /// Parts of decisions that are not in the log yet.
    pub fn backlog(&self) -> usize {
        self.unappended.len()
    }

    /// What they take in batches.
    pub fn backlog_bytes(&self) -> usize {
        self.unappended_bytes
    }

    /// When `tick` wants to run.
    pub fn deadline(&self) -> Option<Instant> {
        self.machine.deadline().filter(|_| self.loaded)
    }

    /// Nothing waits to be appended, and no answer for the log. Parked waiters are the machine's.
    pub fn quiet(&self) -> bool {
        self.unappended.is_empty() && self.outbox.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringmain_types::WallMs;

    const NOW: Now = Now { mono: Instant(0), wall: WallMs(0) };
    const EPOCH: LeaderEpoch = LeaderEpoch(3);

    /// Is added so often, each time a part of its own: more than two that are joined.
    const MANY: i64 = 11;
    const EACH_BYTES: usize = RECORD_BYTES + 8;
    const JOINED: usize = PART_BYTES / EACH_BYTES;
    const COUNT: usize = 2 * JOINED + 1;

    /// Adds numbers up; even ones are answered by the next odd one.
    #[derive(Default)]
    struct Sum {
        total: i64,
        parked: Vec<Waiter>,
    }

    impl Machine for Sum {
        type Request<'a> = i64;
        type Reply = i64;
        type Record = i64;
        type World = ();

        fn decide(&mut self, now: Now, _: &(), waiter: Waiter, request: i64, out: &mut Decision<i64, i64>) {
            for _ in 0..if request == MANY { COUNT } else { usize::from(request != 0) } {
                self.replay(now, &request);
                out.records.push(request);
                out.cut();
            }
            self.parked.push(waiter);
            if request % 2 != 0 || request == 0 {
                out.replies.extend(self.parked.drain(..).map(|waiter| (waiter, self.total)));
            }
        }
        fn expire(&mut self, _: Now, _: &(), out: &mut Decision<i64, i64>) {
            out.replies.extend(self.parked.drain(..).map(|waiter| (waiter, -1)));
        }
        fn deadline(&self) -> Option<Instant> {
            (!self.parked.is_empty()).then_some(Instant(9))
        }
        fn replay(&mut self, _: Now, record: &i64) {
            self.total += record;
        }
        fn loaded(&mut self, _: Now, (): &()) {}
        fn encode(record: &i64) -> Written {
            (record.to_be_bytes().into(), None)
        }
        fn decode(key: &[u8], _: Option<&[u8]>) -> Result<Option<i64>, ErrorCode> {
            key.try_into().map(|bytes| Some(i64::from_be_bytes(bytes))).map_err(|_| ErrorCode::CorruptMessage)
        }
    }

    fn serving() -> Runtime<Sum> {
        let mut runtime = Runtime::new(Sum::default(), EPOCH, Offset(0));
        runtime.serve(NOW, &(), Offset(0));
        runtime
    }

    fn ask(runtime: &mut Runtime<Sum>, waiter: u64, number: i64) -> Vec<(u64, i64)> {
        let mut replies = Vec::new();
        runtime.request(NOW, &(), Waiter(waiter), number, &mut replies).unwrap();
        replies.into_iter().map(|(waiter, reply)| (waiter.0, reply)).collect()
    }

    fn commit(runtime: &mut Runtime<Sum>, epoch: LeaderEpoch, to: i64) -> Vec<(u64, i64)> {
        let mut replies = Vec::new();
        runtime.committed(epoch, Offset(to), &mut replies);
        replies.into_iter().map(|(waiter, reply)| (waiter.0, reply)).collect()
    }

    #[test]
    fn answers_wait_for_what_they_saw_reads_included() {
        let mut runtime = serving();
        assert_eq!(ask(&mut runtime, 1, 0), [(1, 0)], "nothing is pending");
        assert!(ask(&mut runtime, 2, 5).is_empty());
        assert!(ask(&mut runtime, 3, 0).is_empty(), "a read of what is not committed");
        assert!(ask(&mut runtime, 4, 7).is_empty());
        assert!(commit(&mut runtime, EPOCH, 9).is_empty(), "not even appended");
        let append = runtime.to_append(1).unwrap();
        assert_eq!((append.base, append.records.len()), (Offset(0), 1), "a decision a batch when they are large");
        assert!(runtime.appended(&append, Offset(0)));
        let append = runtime.to_append(100).unwrap();
        assert_eq!((append.base, append.records.len()), (Offset(1), 1));
        assert!(runtime.appended(&append, Offset(1)));
        assert!(runtime.to_append(100).is_none());
        assert_eq!(commit(&mut runtime, EPOCH, 1), [(2, 5), (3, 5)]);
        assert!(commit(&mut runtime, LeaderEpoch(2), 2).is_empty(), "of an earlier life");
        assert!(!runtime.quiet());
        assert_eq!(commit(&mut runtime, EPOCH, 2), [(4, 12)]);
        assert!(runtime.quiet());
    }

    #[test]
    fn a_large_decision_is_parted_where_it_may_be_and_answered_when_all_of_it_is_committed() {
        let mut runtime = serving();
        assert!(ask(&mut runtime, 1, MANY).is_empty());
        assert_eq!((runtime.backlog(), runtime.backlog_bytes()), (3, COUNT * EACH_BYTES));
        let mut end = 0;
        for part in [JOINED, JOINED, 1] {
            assert!(commit(&mut runtime, EPOCH, end).is_empty());
            let append = runtime.to_append(1).unwrap();
            assert_eq!((append.base, append.records.len()), (Offset(end), part));
            assert!(runtime.appended(&append, append.base));
            end += part as i64;
        }
        assert_eq!((runtime.to_append(1), runtime.backlog_bytes()), (None, 0));
        assert_eq!(commit(&mut runtime, EPOCH, end), [(1, MANY * COUNT as i64)]);
    }

    #[test]
    fn a_batch_that_lies_elsewhere_ends_it() {
        let mut runtime = serving();
        ask(&mut runtime, 1, 5);
        let append = runtime.to_append(100).unwrap();
        assert!(!runtime.appended(&append, Offset(1)));
    }

    #[test]
    fn the_parked_are_answered_by_a_later_decision_or_by_time() {
        let mut runtime = serving();
        assert!(ask(&mut runtime, 1, 2).is_empty());
        assert_eq!(runtime.deadline(), Some(Instant(9)));
        ask(&mut runtime, 2, 3);
        let append = runtime.to_append(100).unwrap();
        assert_eq!(append.records.len(), 2, "decisions of one turn share a batch");
        assert!(runtime.appended(&append, Offset(0)));
        assert_eq!(commit(&mut runtime, EPOCH, 2), [(1, 5), (2, 5)]);
        ask(&mut runtime, 3, 4);
        let append = runtime.to_append(100).unwrap();
        assert!(runtime.appended(&append, Offset(2)));
        commit(&mut runtime, EPOCH, 3);
        let mut replies = Vec::new();
        runtime.tick(Now { mono: Instant(8), wall: WallMs(0) }, &(), &mut replies);
        assert!(replies.is_empty());
        runtime.tick(Now { mono: Instant(9), wall: WallMs(0) }, &(), &mut replies);
        assert_eq!(replies, [(Waiter(3), -1)]);
        assert_eq!(runtime.deadline(), None);
    }

    #[test]
    fn loading_replays_with_gaps_and_refuses_what_goes_back() {
        let mut runtime = Runtime::new(Sum::default(), EPOCH, Offset(2));
        let mut replies = Vec::new();
        let refused = runtime.request(NOW, &(), Waiter(1), 1, &mut replies);
        assert_eq!(refused, Err(ErrorCode::CoordinatorLoadInProgress));
        for (at, number) in [(2, 10i64), (5, 20)] {
            runtime.load(NOW, Offset(at), &number.to_be_bytes(), None).unwrap();
        }
        assert_eq!(runtime.load(NOW, Offset(5), &[0; 8], None), Err(ErrorCode::CorruptMessage));
        assert_eq!(runtime.load(NOW, Offset(6), &[0; 3], None), Err(ErrorCode::CorruptMessage));
        runtime.serve(NOW, &(), Offset(9));
        assert_eq!((runtime.next(), runtime.machine().total), (Offset(9), 30));
        assert_eq!(ask(&mut runtime, 2, 0), [(2, 30)]);
    }
}
