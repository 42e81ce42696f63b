//! Evenly over the readers, with as little moved as evenness allows.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringmain_types::TopicId;

use super::Spec;
use crate::record::Assignment;

/// Passes over all partitions when readers differ. Each move makes the loads more even, so that few are ever needed; the bound is for
/// time.
const PASSES_MAX: usize = 32;

pub(super) fn assign(spec: &Spec) -> BTreeMap<Arc<str>, Assignment> {
    let Some(first) = spec.members.values().next() else { return BTreeMap::new() };
    let alike = spec.members.values().all(|reader| reader.topics == first.topics);
    let ids: Vec<Arc<str>> = spec.members.keys().cloned().collect();
    let owners = if alike { alike_owners(spec, &ids) } else { mixed_owners(spec, &ids) };
    let mut out: BTreeMap<Arc<str>, Assignment> = ids.iter().map(|id| (id.clone(), Assignment::new())).collect();
    for ((topic, index), owner) in owners {
        if let Some(assignment) = out.get_mut(&ids[owner]) {
            assignment.entry(topic).or_default().insert(index);
        }
    }
    out
}

/// Members are numbers in the order of their ids.
type Owners = BTreeMap<(TopicId, i32), usize>;

/// What members had that they may keep: still read, still there, and nobody else's.
fn kept(spec: &Spec) -> (Owners, Vec<usize>) {
    let (mut owners, mut loads) = (Owners::new(), vec![0; spec.members.len()]);
    for (member, reader) in spec.members.values().enumerate() {
        for (topic, partitions) in reader.before.iter().filter(|(topic, _)| reader.topics.contains(topic)) {
            let count = spec.topics.get(topic).copied().unwrap_or(0);
            for index in partitions.iter().filter(|index| u32::try_from(**index).is_ok_and(|index| index < count)) {
                if let Entry::Vacant(free) = owners.entry((*topic, *index)) {
                    free.insert(member);
                    loads[member] += 1;
                }
            }
        }
    }
    (owners, loads)
}

fn free<'a>(spec: &'a Spec, topics: &'a BTreeSet<TopicId>, owners: &'a Owners) -> impl Iterator<Item = (TopicId, i32)> {
    let partitions = topics.iter().filter_map(|topic| spec.topics.get(topic).map(|count| (*topic, *count as i32)));
    partitions
        .flat_map(|(topic, count)| (0..count).map(move |index| (topic, index)))
        .filter(|at| !owners.contains_key(at))
}

/// All read the same: everybody has the same number, or one more.
fn alike_owners(spec: &Spec, ids: &[Arc<str>]) -> Owners {
    let Some(first) = spec.members.values().next() else { return Owners::new() };
    let total: usize =
        first.topics.iter().filter_map(|topic| spec.topics.get(topic)).map(|count| *count as usize).sum();
    let (least, mut extra) = (total / ids.len(), total % ids.len());
    let (mut owners, loads) = kept(spec);
    // Those who had more keep the extra one.
    let mut quota = vec![least; ids.len()];
    let mut by_load: Vec<usize> = (0..ids.len()).collect();
    by_load.sort_by_key(|member| std::cmp::Reverse(loads[*member]));
    for member in by_load {
        if extra > 0 {
            (extra, quota[member]) = (extra - 1, least + 1);
        }
    }
    let mut held = vec![0; ids.len()];
    owners.retain(|_, member| {
        held[*member] += 1;
        held[*member] <= quota[*member]
    });
    let mut left: Vec<usize> = (0..ids.len()).map(|member| quota[member] - held[member].min(quota[member])).collect();
    let unowned: Vec<(TopicId, i32)> = free(spec, &first.topics, &owners).collect();
    let mut member = 0;
    for at in unowned {
        while left[member % ids.len()] == 0 {
            member += 1;
        }
        left[member % ids.len()] -= 1;
        owners.insert(at, member % ids.len());
        // Round and round, so that a topic's partitions spread.
        member += 1;
    }
    owners
}

/// Readers differ: each partition goes to its least loaded reader, then partitions move while that evens out.
fn mixed_owners(spec: &Spec, ids: &[Arc<str>]) -> Owners {
    let (mut owners, mut loads) = kept(spec);
    let mut readers: BTreeMap<TopicId, Vec<usize>> = BTreeMap::new();
    for (member, reader) in spec.members.values().enumerate() {
        for topic in &reader.topics {
            readers.entry(*topic).or_default().push(member);
        }
    }
    assert_eq!(loads.len(), ids.len());
    let read: BTreeSet<TopicId> = readers.keys().copied().collect();
    let unowned: Vec<(TopicId, i32)> = free(spec, &read, &owners).collect();
    // Partitions with few readers first: they have no choice.
    let mut unowned: Vec<_> = unowned.into_iter().map(|at| (readers[&at.0].len(), at)).collect();
    unowned.sort_unstable();
    for (_, at) in unowned {
        if let Some(member) = readers[&at.0].iter().copied().min_by_key(|member| loads[*member]) {
            loads[member] += 1;
            owners.insert(at, member);
        }
    }
    for _ in 0..PASSES_MAX {
        let mut moved = false;
        for ((topic, _), owner) in owners.iter_mut() {
            let lightest = readers[topic].iter().copied().min_by_key(|member| loads[*member]).unwrap_or(*owner);
            if loads[lightest] + 1 < loads[*owner] {
                loads[*owner] -= 1;
                loads[lightest] += 1;
                *owner = lightest;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    owners
}
