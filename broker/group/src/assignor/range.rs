//! Each topic in ranges over its readers.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Spec;
use crate::record::Assignment;

/// Static members come first, by instance, then the others by id: a member that restarts under a new id keeps its range.
pub(super) fn assign(spec: &Spec) -> BTreeMap<Arc<str>, Assignment> {
    let mut order: Vec<&Arc<str>> = spec.members.keys().collect();
    order.sort_by_key(|id| {
        let instance = spec.members[*id].instance.clone();
        (instance.is_none(), instance, *id)
    });
    let mut out: BTreeMap<Arc<str>, Assignment> =
        spec.members.keys().map(|id| (id.clone(), Assignment::new())).collect();
    for (topic, count) in &spec.topics {
        let readers: Vec<&Arc<str>> =
            order.iter().filter(|id| spec.members[**id].topics.contains(topic)).copied().collect();
        let mut next = 0;
        for (at, id) in readers.iter().enumerate() {
            let share = *count as usize / readers.len() + usize::from(at < *count as usize % readers.len());
            let range = next..next + share as i32;
            next = range.end;
            if share > 0
                && let Some(assignment) = out.get_mut(*id)
            {
                assignment.insert(*topic, range.collect());
            }
        }
    }
    out
}
