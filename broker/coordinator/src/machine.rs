//! What a coordinator is to its runtime.

use ringmain_types::{ErrorCode, Instant, Now};

/// Who waits for an answer: the shard's number for one call, never used twice in one life of a coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Waiter(pub u64);

/// State that follows from the records of one partition, and what is forgotten with its leadership: who is alive, who waits.
///
/// What records say changes in `replay` alone, on load and at run time alike: a decision that needs a change writes its record
/// with [`Decision::records`] and replays it in the same breath, so that the rest of the decision sees it. Records are always
/// appended after that, in that order, or the machine is dropped whole.
pub trait Machine {
    type Request<'a>;
    type Reply;
    type Record;
    /// What it may ask about the cluster: changes between calls, never within one.
    type World: ?Sized;

    /// Answers `waiter` in `out`, or keeps it to be answered by a later decision.
    fn decide(
        &mut self,
        now: Now,
        world: &Self::World,
        waiter: Waiter,
        request: Self::Request<'_>,
        out: &mut Decision<Self::Record, Self::Reply>,
    );

    /// Does what is due at `now`.
    fn expire(&mut self, now: Now, world: &Self::World, out: &mut Decision<Self::Record, Self::Reply>);

    /// The next moment at which `expire` has something to do. Follows from the state: nothing is lost with a timer.
    fn deadline(&self) -> Option<Instant>;

    /// The only thing that changes what records say.
    fn replay(&mut self, now: Now, record: &Self::Record);

    /// Everything was replayed: liveness begins now.
    fn loaded(&mut self, now: Now, world: &Self::World);

    /// Key and value of a record; no value is a tombstone.
    fn encode(record: &Self::Record) -> (Vec<u8>, Option<Vec<u8>>);

    /// `None` when it is of a kind that this machine passes over.
    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Option<Self::Record>, ErrorCode>;
}

/// What a decision wrote, and whom it answers. Between two cuts the log takes all of it or nothing. An answer waits until all that was
/// written before and with it is committed: it may rest on that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<Record, Reply> {
    pub records: Vec<Record>,
    pub replies: Vec<(Waiter, Reply)>,
    /// How many records there were at each cut.
    pub(crate) cuts: Vec<usize>,
}

impl<Record, Reply> Decision<Record, Reply> {
    /// What was written so far stands without what comes: they need not be one batch, and a crash may leave the first alone.
    pub fn cut(&mut self) {
        self.cuts.push(self.records.len());
    }
}

impl<Record, Reply> Default for Decision<Record, Reply> {
    fn default() -> Self {
        Decision { records: Vec::new(), replies: Vec::new(), cuts: Vec::new() }
    }
}
