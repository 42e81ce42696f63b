//! Assignors of the server: who is to have which partition. Pure: the same input gives the same assignment on every broker.

mod range;
mod uniform;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringmain_types::TopicId;

use crate::record::Assignment;

/// Kafka's names, `uniform` and `range`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignor {
    /// Evenly, and as before where it can be.
    Uniform,
    /// Each topic in ranges, so that partitions of one number meet at one member.
    Range,
}

impl Assignor {
    pub fn parse(name: &str) -> Option<Assignor> {
        match name {
            "uniform" => Some(Assignor::Uniform),
            "range" => Some(Assignor::Range),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Assignor::Uniform => "uniform",
            Assignor::Range => "range",
        }
    }

    /// Every partition of every topic that somebody reads goes to exactly one of its readers.
    pub(crate) fn assign(self, spec: &Spec) -> BTreeMap<Arc<str>, Assignment> {
        match self {
            Assignor::Uniform => uniform::assign(spec),
            Assignor::Range => range::assign(spec),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Spec {
    pub(crate) members: BTreeMap<Arc<str>, Reader>,
    /// Partitions of each topic that exists.
    pub(crate) topics: BTreeMap<TopicId, u32>,
}

#[derive(Debug, Default)]
pub(crate) struct Reader {
    pub(crate) instance: Option<Arc<str>>,
    /// Of `Spec::topics`.
    pub(crate) topics: BTreeSet<TopicId>,
    /// What it was to have so far.
    pub(crate) before: Assignment,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Partitions by topic number, members with their topics, both drawn from a seed.
    fn spec(seed: u64, before: &BTreeMap<Arc<str>, Assignment>) -> Spec {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = |end: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % end
        };
        let topics: BTreeMap<TopicId, u32> =
            (1..=1 + below(6)).map(|id| (TopicId(id.into()), below(9) as u32)).collect();
        let alike = below(2) == 0;
        let count = below(8);
        let members = (0..count).map(|n| {
            let id: Arc<str> = format!("m{}", (n * 7 + seed) % 23).into();
            let reads: BTreeSet<TopicId> = topics.keys().copied().filter(|_| alike || below(3) > 0).collect();
            let before = before.get(&id).cloned().unwrap_or_default();
            (id, Reader { instance: None, topics: reads, before })
        });
        Spec { members: members.collect(), topics: topics.clone() }
    }

    fn check(spec: &Spec, assigned: &BTreeMap<Arc<str>, Assignment>) {
        let mut owners = BTreeMap::new();
        for (member, topics) in assigned {
            for (topic, partitions) in topics {
                assert!(spec.members[member].topics.contains(topic), "{member} does not read {topic:?}");
                for index in partitions {
                    assert!(u32::try_from(*index).unwrap() < spec.topics[topic]);
                    assert!(owners.insert((*topic, *index), member).is_none(), "two owners");
                }
            }
        }
        for (topic, count) in &spec.topics {
            let read = spec.members.values().any(|member| member.topics.contains(topic));
            let owned = (0..*count as i32).filter(|index| owners.contains_key(&(*topic, *index))).count();
            assert_eq!(owned, if read { *count as usize } else { 0 });
        }
        assert!(assigned.keys().all(|member| spec.members.contains_key(member)));
    }

    fn load(assignment: &Assignment) -> usize {
        assignment.values().map(BTreeSet::len).sum()
    }

    #[test]
    fn each_partition_has_one_reader_whatever_was_before() {
        for assignor in [Assignor::Uniform, Assignor::Range] {
            let mut before = BTreeMap::new();
            for seed in 0..2000 {
                let spec = spec(seed, &before);
                let assigned = assignor.assign(&spec);
                check(&spec, &assigned);
                assert_eq!(assignor.assign(&spec), assigned, "the same again");
                before = assigned;
            }
        }
    }

    #[test]
    fn uniform_is_even_where_all_read_the_same_and_moves_no_more_than_it_must() {
        let topics: BTreeMap<TopicId, u32> = [(TopicId(1), 7), (TopicId(2), 5)].into();
        let with = |ids: &[&str], before: &BTreeMap<Arc<str>, Assignment>| {
            let reader = |id: &&str| {
                let before = before.get(*id).cloned().unwrap_or_default();
                (Arc::from(*id), Reader { instance: None, topics: topics.keys().copied().collect(), before })
            };
            Spec { members: ids.iter().map(reader).collect(), topics: topics.clone() }
        };
        let mut before = BTreeMap::new();
        let rounds: [&[&str]; 6] =
            [&["a"], &["a", "b"], &["a", "b", "c", "d", "e"], &["b", "c", "d", "e"], &["c"], &["c", "x", "y"]];
        for ids in rounds {
            let assigned = Assignor::Uniform.assign(&with(ids, &before));
            let loads: Vec<usize> = assigned.values().map(load).collect();
            let (least, most) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
            assert!(most - least <= 1, "{ids:?}: {loads:?}");
            // Nobody both gives and takes.
            for (id, topics) in &assigned {
                let Some(had) = before.get(id) else { continue };
                let kept: usize = topics
                    .iter()
                    .map(|(topic, set)| had.get(topic).map_or(0, |had| set.intersection(had).count()))
                    .sum();
                assert!(kept == load(had) || kept == load(topics), "{id} of {ids:?}");
            }
            before = assigned;
        }
    }

    #[test]
    fn range_keeps_partitions_of_one_number_together() {
        let topics: BTreeMap<TopicId, u32> = [(TopicId(1), 5), (TopicId(2), 5)].into();
        let reader = |instance: Option<&str>| Reader {
            instance: instance.map(Arc::from),
            topics: topics.keys().copied().collect(),
            before: Assignment::new(),
        };
        let members = [("a", reader(None)), ("b", reader(None)), ("z", reader(Some("0")))];
        let spec =
            Spec { members: members.into_iter().map(|(id, r)| (Arc::from(id), r)).collect(), topics: topics.clone() };
        let assigned = Assignor::Range.assign(&spec);
        let of =
            |id: &str| -> Vec<Vec<i32>> { assigned[id].values().map(|set| set.iter().copied().collect()).collect() };
        assert_eq!(of("z"), [[0, 1], [0, 1]], "static members come first, by instance");
        assert_eq!((of("a"), of("b")), (vec![vec![2, 3]; 2], vec![vec![4]; 2]));
    }
}
