//! Work of several steps: the operations of one step go out together, the next step follows when all are back.

use std::collections::{BTreeMap, VecDeque};

use ringmain_disk::{DiskClass, DiskError, DiskKind, DiskOk, FileId};
use ringmain_types::{LogId, Offset};

use crate::ReadToken;
use crate::checkpoint::Wrote;
use crate::doubt::Proving;
use crate::spares::Spare;

/// Jobs that run at once; the rest wait in order. Enough to keep a device busy, few enough to leave it to commits.
pub(crate) const JOBS_MAX: usize = 16;

/// What a finished job leads to.
#[derive(Debug)]
pub(crate) enum Then {
    Nothing,
    /// The log directory was listed: under which name can this log's be made?
    DirListed(LogId),
    DirMade(LogId, String),
    /// Of a spare, when there was one.
    FileMade(LogId, Offset, FileId, Option<Spare>),
    Allocated(LogId, Offset, u32),
    Zeroed(LogId, Offset),
    Sealed(LogId, Offset, FileId, u32),
    RecoverListed(LogId),
    RecoverOpened(LogId),
    RecoverRead(LogId),
    Swept(LogId),
    RemovalFound(String),
    RemoveListed(String),
    /// With the files that were renamed to be spares, in the order of the job's first operations.
    RemoveEmptied(String, Vec<Spare>),
    RemoveDone(LogId),
    SegmentOpened(LogId, Offset, FileId, ReadToken),
    IndexOpened(LogId, Offset, [FileId; 2], Option<ReadToken>),
    IndexRead(LogId, Offset, [u64; 2], Option<ReadToken>),
    IndexProved(LogId, Offset, Box<Proving>),
    Settled(LogId),
    RootListed,
    LeftoverListed(String),
    /// With the names of its files.
    LeftoverRead(String, Vec<String>),
    LeftoverRemoved,
    SparesListed,
    SparesSwept,
    /// A segment went; its file is to be a spare.
    Recycled(LogId, Spare),
    Filled(FileId),
    Checkpointed(LogId, Box<Wrote>),
    Compaction(LogId, crate::compaction::Work),
}

/// An operation's number in its job, and what came of it.
pub(crate) type Got = BTreeMap<u32, Result<DiskOk, DiskError>>;

#[derive(Debug)]
pub(crate) struct Step {
    pub kinds: Vec<DiskKind>,
    pub forgives: Forgives,
}

/// The errors of a step that are passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forgives {
    Nothing,
    /// What is to be removed may be gone.
    Missing,
    Anything,
}

impl Forgives {
    fn forgives(self, error: &DiskError) -> bool {
        match self {
            Forgives::Nothing => false,
            Forgives::Missing => error.missing(),
            Forgives::Anything => true,
        }
    }
}

impl Step {
    pub fn of(kinds: Vec<DiskKind>) -> Step {
        Step { kinds, forgives: Forgives::Nothing }
    }
    pub fn lenient(kinds: Vec<DiskKind>) -> Step {
        Step { kinds, forgives: Forgives::Anything }
    }
    /// All of it is gone afterwards.
    pub fn gone(removes: Vec<DiskKind>) -> Step {
        Step { kinds: removes, forgives: Forgives::Missing }
    }
}

#[derive(Debug)]
pub(crate) struct Job {
    pub class: DiskClass,
    pub steps: VecDeque<Step>,
    pub then: Then,
    left: usize,
    forgives: Forgives,
    /// The first that was not passed over.
    pub error: Option<DiskError>,
    /// What came back other than `Done`, by the operation's number in the whole job.
    pub got: BTreeMap<u32, Result<DiskOk, DiskError>>,
    numbered: u32,
}

impl Job {
    pub fn new(class: DiskClass, steps: Vec<Step>, then: Then) -> Job {
        let steps = steps.into_iter().filter(|step| !step.kinds.is_empty()).collect();
        Job { class, steps, then, left: 0, forgives: Forgives::Nothing, error: None, got: BTreeMap::new(), numbered: 0 }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Jobs {
    next: u64,
    running: BTreeMap<u64, Job>,
    waiting: VecDeque<Job>,
}

impl Jobs {
    pub fn add(&mut self, job: Job) {
        self.waiting.push_back(job);
    }
    pub fn idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// The next waiting job's first operations, with its number and theirs. A job without steps is finished at once.
    pub fn start(&mut self) -> Option<Started> {
        if self.running.len() >= JOBS_MAX {
            return None;
        }
        let mut job = self.waiting.pop_front()?;
        self.next += 1;
        let number = self.next;
        let kinds = Jobs::step(&mut job);
        if kinds.is_empty() {
            return Some(Started::Finished(job));
        }
        let class = job.class;
        self.running.insert(number, job);
        Some(Started::Operations(number, class, kinds))
    }

    fn step(job: &mut Job) -> Vec<(u32, DiskKind)> {
        let Some(step) = job.steps.pop_front() else { return Vec::new() };
        job.left = step.kinds.len();
        job.forgives = step.forgives;
        let first = job.numbered;
        job.numbered += step.kinds.len() as u32;
        (first..).zip(step.kinds).collect()
    }

    /// An operation of job `number` is back.
    pub fn done(&mut self, number: u64, operation: u32, result: Result<DiskOk, DiskError>) -> Option<Started> {
        let job = self.running.get_mut(&number)?;
        job.left -= 1;
        match result {
            Ok(DiskOk::Done) => {}
            Ok(got) => {
                job.got.insert(operation, Ok(got));
            }
            Err(error) => {
                if !job.forgives.forgives(&error) && job.error.is_none() {
                    job.error = Some(error.clone());
                }
                job.got.insert(operation, Err(error));
            }
        }
        if job.left > 0 {
            return None;
        }
        let kinds = if job.error.is_some() { Vec::new() } else { Jobs::step(job) };
        if kinds.is_empty() {
            return self.running.remove(&number).map(Started::Finished);
        }
        Some(Started::Operations(number, job.class, kinds))
    }
}

pub(crate) enum Started {
    Operations(u64, DiskClass, Vec<(u32, DiskKind)>),
    Finished(Job),
}
