//! Bounded rings between shards: per ordered pair one for calls and one for returns, each in order, with a delay.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringmain_shard::mesh::{CallId, Mesh, Return};
use ringmain_types::ShardId;

use crate::random::Random;

/// One ring of one ordered pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ring {
    pub from: ShardId,
    pub to: ShardId,
    pub returns: bool,
}

pub struct SimMesh {
    delay_ns: (u64, u64),
    calls_max: usize,
    rings: BTreeMap<Ring, Lane>,
    /// Asked and not yet answered, with who is to answer: each pair has slots of its own.
    open: BTreeSet<(CallId, ShardId)>,
    /// Of each pair (from, to): how many of `open`.
    unanswered: BTreeMap<(ShardId, ShardId), usize>,
    answered: BTreeSet<(CallId, ShardId)>,
    /// Answered with `Waiting` or `Parked`: one `Ready` or `Late` may follow.
    watched: BTreeSet<(CallId, ShardId)>,
    pub messages: u64,
    /// How often a pair of shards came to have as many unanswered calls as it may.
    pub full: u64,
}

#[derive(Default)]
struct Lane {
    waiting: VecDeque<Mesh>,
    last_ns: u64,
}

impl SimMesh {
    pub fn new(delay_ns: (u64, u64), calls_max: u16) -> SimMesh {
        SimMesh {
            delay_ns,
            calls_max: usize::from(calls_max),
            rings: BTreeMap::new(),
            open: BTreeSet::new(),
            unanswered: BTreeMap::new(),
            answered: BTreeSet::new(),
            watched: BTreeSet::new(),
            messages: 0,
            full: 0,
        }
    }

    /// Takes a message and says which ring delivers its front when.
    pub fn send(
        &mut self,
        now_ns: u64,
        random: &mut Random,
        from: ShardId,
        to: ShardId,
        message: Mesh,
    ) -> Result<(u64, Ring), String> {
        if from == to {
            return Err(format!("shard {} sends to itself", from.0));
        }
        self.account(from, to, &message)?;
        self.messages += 1;
        let ring = Ring { from, to, returns: matches!(message, Mesh::Return { .. }) };
        let lane = self.rings.entry(ring).or_default();
        lane.waiting.push_back(message);
        lane.last_ns = (lane.last_ns + 1).max(now_ns + random.skewed(self.delay_ns.0, self.delay_ns.1));
        Ok((lane.last_ns, ring))
    }

    fn account(&mut self, from: ShardId, to: ShardId, message: &Mesh) -> Result<(), String> {
        match message {
            Mesh::Call { id, .. } => {
                if id.from != from {
                    return Err(format!("shard {} sends a call of shard {}", from.0, id.from.0));
                }
                if !self.open.insert((*id, to)) || self.answered.contains(&(*id, to)) {
                    return Err(format!("{id:?} is used twice"));
                }
                let count = self.unanswered.entry((from, to)).or_default();
                *count += 1;
                self.full += u64::from(*count == self.calls_max);
                if *count > self.calls_max {
                    return Err(format!("{count} unanswered calls from shard {} to {}", from.0, to.0));
                }
            }
            Mesh::Return { id, result: Return::Ready | Return::Late(_) } => {
                if !self.watched.remove(&(*id, from)) {
                    return Err(format!("shard {} says Ready to {id:?}, which does not wait for it", from.0));
                }
            }
            Mesh::Return { id, result } => {
                if !self.open.remove(&(*id, from)) || id.from != to {
                    return Err(format!(
                        "shard {} answers {id:?}, which nobody asked of it or which is answered",
                        from.0
                    ));
                }
                self.answered.insert((*id, from));
                *self.unanswered.entry((to, from)).or_default() -= 1;
                if matches!(result, Return::Waiting { .. } | Return::Parked) {
                    self.watched.insert((*id, from));
                }
            }
            Mesh::Cancel { .. } | Mesh::Image(_) | Mesh::Applied { .. } => {}
        }
        Ok(())
    }

    pub fn deliver(&mut self, ring: Ring) -> Option<Mesh> {
        self.rings.get_mut(&ring)?.waiting.pop_front()
    }

    /// A new process has new rings.
    pub fn reset(&mut self) {
        self.rings.clear();
        self.open.clear();
        self.unanswered.clear();
        self.answered.clear();
        self.watched.clear();
    }
}
