//! What members of groups were told, and whether it fits together.
//!
//! | invariant | broken by |
//! |---|---|
//! | a generation has one leader, and never comes again | `joined` |
//! | a generation never falls back | `joined` |
//! | one owner of a partition in a generation | `assigned` |
//! | one owner of a partition at a time, as long as its session lasts (KIP-848) | `taken` |
//! | who is of an old generation is told so | `accepted` |
//! | all partitions have an owner again, soon after faults are quiet | `whole` |

use std::collections::BTreeMap;

use ringmain_types::ErrorCode;

use crate::ledger::Ledger;

/// Groups of each protocol, whose coordinators are partitions of their own: with more than one shard, those of several shards.
pub const GROUPS: usize = 2;
/// The one that members of both protocols share, among the books of KIP-848 groups; the third partition is its.
pub const MIXED: usize = GROUPS;
/// Of `__consumer_offsets` in these histories.
pub const OFFSETS_PARTITIONS: i32 = 3;
/// Once faults are quiet, a group's members have found each other and share all partitions within this: a few times what one
/// rebalance may take.
pub const WHOLE_NS_MAX: u64 = 5_000_000_000;

/// The first name of its kind that belongs to partition `at` of the offsets topic, by Kafka's rule.
pub fn name(kind: &str, at: usize) -> String {
    let hash = |name: &str| name.bytes().fold(0i32, |hash, byte| hash.wrapping_mul(31).wrapping_add(i32::from(byte)));
    let there = |name: &String| hash(name).unsigned_abs() % OFFSETS_PARTITIONS as u32 == at as u32;
    (0..).map(|number: u32| format!("{kind}-{number}")).find(there).expect("hashes differ")
}

/// What a coordinator may answer that is made, loaded, or without room for a moment.
pub fn legal(ledger: &mut Ledger, error: ErrorCode) -> bool {
    let coming = [ErrorCode::CoordinatorLoadInProgress, ErrorCode::CoordinatorNotAvailable, ErrorCode::NotCoordinator];
    if coming.contains(&error) {
        ledger.reach("answers: no coordinator yet");
        return true;
    }
    // Members that died and are not put out yet take the room of others: a simulated broker's groups are small.
    if error == ErrorCode::GroupMaxSizeReached {
        ledger.reach("answers: a group is full");
        return true;
    }
    ledger.legal(error)
}

/// A group of the classic protocol.
#[derive(Debug, Default)]
pub struct Classic {
    /// The newest generation that anybody was told of.
    generation: i32,
    leaders: BTreeMap<i32, String>,
    owners: BTreeMap<(i32, i32), String>,
    /// The newest generation when the faults were over.
    floor: Option<i32>,
    /// Its members had all partitions after the faults, in a generation that began since.
    pub whole: bool,
}

/// A KIP-848 group.
#[derive(Debug, Default)]
pub struct Modern {
    /// Who uses a partition, by his own account.
    owners: BTreeMap<i32, u32>,
    /// Until then the broker has no reason to put a member out.
    alive_until_ns: BTreeMap<u32, u64>,
    /// Its members had all partitions after the faults.
    pub whole: bool,
}

pub type Broken = (&'static str, String);

impl Classic {
    pub fn generation(&self) -> i32 {
        self.generation
    }

    /// Faults are over: does somebody have each of so many partitions, in a generation that began since?
    pub fn look(&mut self, partitions: i32) -> bool {
        let new = self.generation > *self.floor.get_or_insert(self.generation);
        self.whole |= new && (0..partitions).all(|index| self.owners.contains_key(&(self.generation, index)));
        self.whole
    }

    /// Faults are over: this is still a generation of before.
    pub fn old(&self, generation: i32) -> bool {
        self.floor.is_some_and(|floor| generation <= floor)
    }

    /// A member is told of a generation; `floor` was the newest known when it asked.
    pub fn joined(&mut self, member: &str, generation: i32, leader: &str, floor: i32) -> Result<(), Broken> {
        if generation < floor {
            return Err(("a generation never falls back", format!("{member} joined {generation} after {floor}")));
        }
        self.generation = self.generation.max(generation);
        let known = self.leaders.entry(generation).or_insert_with(|| leader.to_owned());
        if known != leader {
            let text = format!("{generation} is led by {known}, and by {leader} for {member}");
            return Err(("a generation has one leader", text));
        }
        Ok(())
    }

    /// A member is told what it has in a generation.
    pub fn assigned(&mut self, member: &str, generation: i32, partitions: &[i32]) -> Result<(), Broken> {
        for partition in partitions {
            let owner = self.owners.entry((generation, *partition)).or_insert_with(|| member.to_owned());
            if owner != member {
                let text = format!("partition {partition} of generation {generation}: {owner} and {member}");
                return Err(("one owner of a partition in an epoch", text));
            }
        }
        Ok(())
    }

    /// A heartbeat or commit of `generation` was accepted that was sent when `floor` was known.
    pub fn accepted(&self, what: &str, member: &str, generation: i32, floor: i32) -> Result<(), Broken> {
        match generation < floor {
            true => Err((
                "an old generation is refused",
                format!("{what} of {member} in {generation} was accepted after {floor}"),
            )),
            false => Ok(()),
        }
    }
}

impl Modern {
    /// The broker answered a heartbeat that was sent at `sent_ns`.
    pub fn beat(&mut self, member: u32, sent_ns: u64, session_ns: u64) {
        let until = self.alive_until_ns.entry(member).or_default();
        *until = (*until).max(sent_ns + session_ns);
    }

    /// A member begins to use a partition that it was given. Who hears of it only when its own session may be over has been put out, and
    /// will be told: that somebody else has it by then is as it should be.
    pub fn taken(&mut self, member: u32, partition: i32, now_ns: u64) -> Result<(), Broken> {
        let alive = |member: &u32| self.alive_until_ns.get(member).copied().unwrap_or(0) > now_ns;
        let other = self.owners.get(&partition).copied().filter(|other| *other != member && alive(other));
        match other {
            None => drop(self.owners.insert(partition, member)),
            Some(_) if !alive(&member) => {}
            Some(other) => {
                let text = format!("partition {partition} is given to {member} while {other} has it");
                return Err(("one owner of a partition in an epoch", text));
            }
        }
        Ok(())
    }

    /// A member that has a partition is told of no change.
    pub fn keeps(&mut self, member: u32, partition: i32) {
        self.owners.entry(partition).or_insert(member);
    }

    /// A member uses a partition no more.
    pub fn released(&mut self, member: u32, partition: i32) {
        if self.owners.get(&partition) == Some(&member) {
            self.owners.remove(&partition);
        }
    }

    /// Faults are over: does somebody have each of so many partitions?
    pub fn look(&mut self, partitions: i32) -> bool {
        self.whole |= (0..partitions).all(|index| self.owners.contains_key(&index));
        self.whole
    }

    /// Somebody else has been given it since.
    pub fn lost(&self, member: u32, partition: i32) -> bool {
        self.owners.get(&partition).is_some_and(|owner| *owner != member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_promise_can_be_broken() {
        let mut group = Classic::default();
        assert_eq!(group.joined("a", 1, "a", 0), Ok(()));
        assert_eq!(group.assigned("a", 1, &[0, 1]), Ok(()));
        assert_eq!(group.assigned("b", 1, &[1]).unwrap_err().0, "one owner of a partition in an epoch");
        assert_eq!(group.joined("b", 1, "b", 1).unwrap_err().0, "a generation has one leader");
        assert_eq!(group.joined("b", 2, "b", 1), Ok(()));
        assert_eq!(group.joined("a", 1, "a", 2).unwrap_err().0, "a generation never falls back");
        assert_eq!(group.accepted("a commit", "a", 1, 1), Ok(()));
        assert_eq!(group.accepted("a commit", "a", 1, 2).unwrap_err().0, "an old generation is refused");
    }

    #[test]
    fn a_group_is_whole_when_every_partition_has_an_owner() {
        let (mut classic, mut modern) = (Classic::default(), Modern::default());
        classic.joined("a", 1, "a", 0).unwrap();
        classic.assigned("a", 1, &[0, 1]).unwrap();
        assert!(!classic.look(2) && classic.old(1), "it may be of those who are gone");
        classic.joined("a", 2, "a", 1).unwrap();
        classic.assigned("a", 2, &[1]).unwrap();
        modern.taken(1, 0, 0).unwrap();
        assert_eq!([classic.look(2), modern.look(2)], [false, false]);
        classic.assigned("b", 2, &[0]).unwrap();
        modern.taken(2, 1, 0).unwrap();
        assert_eq!([classic.look(2), modern.look(2)], [true, true]);
    }

    #[test]
    fn names_are_spread() {
        // Asked of a JVM: `Math.abs("members-0".hashCode()) % 3`, and so on.
        let names: Vec<String> = (0..3).map(|at| name("members", at)).collect();
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
        assert!(names.iter().all(|name| name.len() == "members-0".len()));
    }

    #[test]
    fn a_partition_is_free_when_it_is_given_back_or_its_session_is_over() {
        let mut group = Modern::default();
        group.beat(1, 100, 50);
        assert_eq!(group.taken(1, 0, 110), Ok(()));
        assert_eq!(group.taken(2, 0, 149), Ok(()), "an answer that came too late: the first one keeps it");
        assert!(group.lost(2, 0) && !group.lost(1, 0));
        group.beat(2, 140, 50);
        assert!(group.taken(2, 0, 149).is_err());
        group.released(2, 0);
        assert_eq!(group.taken(1, 0, 120), Ok(()));
        assert_eq!(group.taken(2, 0, 150), Ok(()));
        assert!(group.lost(1, 0) && !group.lost(2, 0));
    }
}
