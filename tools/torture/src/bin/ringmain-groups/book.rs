//! What the members of one group were told, and whether it fits together.
//!
//! | promise | broken by |
//! |---|---|
//! | an acknowledged commit is neither lost nor moved back | `read` |
//! | one owner of a partition in a generation (classic) | `assigned` |
//! | one owner of a partition at a time, as long as its session lasts | `take` |
//! | a rebalance ends within session timeout + rebalance timeout of what caused it | `settled` |
//! | each record is delivered at least once | `undelivered` |

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ringmain_types::TopicId;

/// What all members of a group have in common.
#[derive(Clone, Debug)]
pub struct Plan {
    pub group: String,
    pub topic: String,
    pub topic_id: TopicId,
    pub partitions: i32,
    pub session: Duration,
    pub rebalance: Duration,
    /// How often members say that they are there.
    pub beat: Duration,
    /// How often they commit; not at all without it.
    pub commit: Option<Duration>,
    /// They read their partitions. Otherwise positions move on their own.
    pub reads: bool,
}

impl Plan {
    /// Members that came together do not beat together for ever.
    pub fn next_beat(&self) -> Duration {
        self.beat.mul_f64(0.6 + 0.4 * fastrand::f64())
    }

    /// A rebalance that takes longer is a broken promise.
    pub fn rebalance_max(&self) -> Duration {
        self.session + self.rebalance
    }
}

/// What is known of one committed offset.
#[derive(Clone, Debug)]
struct Committed {
    /// -1: none.
    acknowledged: i64,
    /// Sent, and not answered: it may be there.
    maybe: Vec<i64>,
}

/// Messages of broken promises that are kept; the rest are counted.
const BROKEN_MAX: usize = 20;

pub struct Book {
    pub plan: Plan,
    owners: Vec<Option<usize>>,
    /// Until then the broker has no reason to put a member out.
    alive_until: BTreeMap<usize, Instant>,
    of_generation: BTreeMap<(i32, i32), usize>,
    committed: Vec<Committed>,
    delivered: Vec<Vec<bool>>,
    /// Since when its members are not all in one generation with all partitions theirs: when that was last disturbed.
    pub disturbed: Option<Instant>,
    /// How long each rebalance took that was not disturbed again.
    pub rebalances: Vec<Duration>,
    /// Something changed that may have settled the group.
    pub changed: bool,
    pub commits: u64,
    pub broken: Vec<String>,
    pub broken_count: u64,
}

impl Book {
    pub fn new(plan: Plan) -> Book {
        let partitions = plan.partitions as usize;
        Book {
            owners: vec![None; partitions],
            alive_until: BTreeMap::new(),
            of_generation: BTreeMap::new(),
            committed: vec![Committed { acknowledged: -1, maybe: Vec::new() }; partitions],
            delivered: if plan.reads { vec![Vec::new(); partitions] } else { Vec::new() },
            disturbed: None,
            rebalances: Vec::new(),
            changed: false,
            commits: 0,
            broken: Vec::new(),
            broken_count: 0,
            plan,
        }
    }

    pub fn broken(&mut self, what: String) {
        self.broken_count += 1;
        if self.broken.len() < BROKEN_MAX {
            self.broken.push(format!("{}: {what}", self.plan.group));
        }
    }

    /// The broker took this member for alive at `sent` at the earliest.
    pub fn beat(&mut self, member: usize, sent: Instant) {
        self.alive_until.insert(member, sent + self.plan.session);
    }

    pub fn assigned(&mut self, member: usize, generation: i32, partitions: &[i32]) {
        // Only the newest few can still be told of.
        while self.of_generation.first_key_value().is_some_and(|((known, _), _)| *known < generation - 3) {
            self.of_generation.pop_first();
        }
        for partition in partitions {
            let owner = *self.of_generation.entry((generation, *partition)).or_insert(member);
            if owner != member {
                self.broken(format!(
                    "partition {partition} of generation {generation} has members {owner} and {member}"
                ));
            }
        }
    }

    pub fn take(&mut self, member: usize, partition: i32, now: Instant) {
        self.changed = true;
        let Some(slot) = self.owners.get_mut(partition as usize) else {
            return self.broken(format!("partition {partition}, which there is not, went to member {member}"));
        };
        let before = slot.replace(member);
        if let Some(other) = before.filter(|other| *other != member)
            && let Some(early) = self.alive_until.get(&other).and_then(|until| until.checked_duration_since(now))
        {
            let text = format!("partition {partition} went to member {member} {early:?} before {other}'s session ends");
            self.broken(text);
        }
    }

    pub fn release(&mut self, member: usize, partition: i32) {
        self.changed = true;
        if let Some(slot) = self.owners.get_mut(partition as usize)
            && *slot == Some(member)
        {
            *slot = None;
        }
    }

    pub fn owner(&self, partition: i32) -> Option<usize> {
        self.owners.get(partition as usize).copied().flatten()
    }

    /// Somebody came, left or vanished.
    pub fn disturb(&mut self, now: Instant) {
        self.disturbed = Some(now);
        self.changed = true;
    }

    /// All is as it should be, again.
    pub fn settled(&mut self, now: Instant) {
        let Some(since) = self.disturbed.take() else { return };
        let took = now - since;
        if took > self.plan.rebalance_max() {
            self.broken(format!("a rebalance took {took:?}"));
        }
        self.rebalances.push(took);
    }

    pub fn commit_sent(&mut self, partition: i32, offset: i64) {
        self.committed[partition as usize].maybe.push(offset);
    }

    pub fn commit_refused(&mut self, partition: i32, offset: i64) {
        self.committed[partition as usize].maybe.retain(|sent| *sent != offset);
    }

    pub fn commit_acknowledged(&mut self, partition: i32, offset: i64) {
        self.commits += 1;
        let known = &mut self.committed[partition as usize];
        known.acknowledged = offset;
        known.maybe.retain(|sent| *sent > offset);
    }

    /// The broker says that `offset` is committed (-1: nothing), with this metadata.
    pub fn read(&mut self, partition: i32, offset: i64, metadata: &str) {
        let Some(known) = self.committed.get_mut(partition as usize) else {
            return self.broken(format!("an offset of partition {partition}, which there is not"));
        };
        let legal = offset == known.acknowledged || known.maybe.contains(&offset);
        let before = known.clone();
        known.acknowledged = offset;
        known.maybe.retain(|sent| *sent > offset);
        if !legal {
            self.broken(format!("partition {partition}: {offset} is committed, known is {before:?}"));
        }
        if offset >= 0 && metadata != metadata_of(offset) {
            self.broken(format!("partition {partition}: offset {offset} came back with {metadata:?}"));
        }
    }

    pub fn partitions_committed(&self) -> usize {
        self.committed.iter().filter(|known| known.acknowledged >= 0).count()
    }

    pub fn deliver(&mut self, partition: i32, offset: i64) {
        let seen = &mut self.delivered[partition as usize];
        let at = offset as usize;
        if seen.len() <= at {
            seen.resize(at + 1, false);
        }
        seen[at] = true;
    }

    /// How many of these records, by partition, no member has been given.
    pub fn undelivered(&self, promised: &[Vec<i64>]) -> u64 {
        let missing = |(seen, offsets): (&Vec<bool>, &Vec<i64>)| {
            offsets.iter().filter(|offset| !seen.get(**offset as usize).copied().unwrap_or(false)).count() as u64
        };
        self.delivered.iter().zip(promised).map(missing).sum()
    }
}

/// What is committed beside an offset.
pub fn metadata_of(offset: i64) -> String {
    format!("at {offset}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book() -> Book {
        let second = Duration::from_secs(1);
        Book::new(Plan {
            group: "g".into(),
            topic: "t".into(),
            topic_id: TopicId(1),
            partitions: 2,
            session: second,
            rebalance: second,
            beat: second,
            commit: None,
            reads: true,
        })
    }

    #[test]
    fn commits_may_be_what_was_acknowledged_or_sent_last() {
        let mut book = book();
        book.read(0, -1, "");
        book.commit_sent(0, 5);
        book.commit_acknowledged(0, 5);
        book.commit_sent(0, 7);
        book.read(0, 7, "at 7");
        assert_eq!(book.broken_count, 0);
        book.read(0, 5, "at 5");
        assert_eq!(book.broken_count, 1, "moved back");
        book.commit_sent(1, 3);
        book.commit_acknowledged(1, 3);
        book.read(1, -1, "");
        assert_eq!(book.broken_count, 2, "lost");
        book.commit_sent(1, 3);
        book.read(1, 3, "at 5");
        assert_eq!(book.broken_count, 3, "somebody else's metadata");
    }

    #[test]
    fn a_partition_has_one_owner_while_its_session_lasts() {
        let (mut book, now) = (book(), Instant::now());
        book.beat(1, now);
        book.take(1, 0, now);
        book.release(1, 0);
        book.take(2, 0, now);
        book.beat(2, now);
        book.take(1, 0, now + Duration::from_secs(2));
        assert_eq!(book.broken_count, 0);
        book.beat(1, now);
        book.take(2, 0, now);
        assert_eq!(book.broken_count, 1);
        book.assigned(1, 7, &[0, 1]);
        book.assigned(2, 8, &[0]);
        assert_eq!(book.broken_count, 1);
        book.assigned(2, 7, &[1]);
        assert_eq!(book.broken_count, 2);
    }

    #[test]
    fn late_rebalances_and_missing_records_are_seen() {
        let (mut book, now) = (book(), Instant::now());
        book.disturb(now);
        book.settled(now + Duration::from_secs(2));
        assert_eq!(book.broken_count, 0);
        book.disturb(now);
        book.settled(now + Duration::from_millis(2001));
        assert_eq!(book.broken_count, 1);
        book.deliver(0, 1);
        assert_eq!(book.undelivered(&[vec![0, 1], vec![0]]), 2);
    }
}
