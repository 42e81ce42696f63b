//! One member's next step towards its target.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringmain_types::*;

use super::ConsumerGroup;
use crate::record::{Assignment, CurrentAssignment, MemberState};

/// Partitions with the epochs at which they were assigned.
type Owned = BTreeMap<TopicId, BTreeMap<i32, i32>>;

impl ConsumerGroup {
    /// What the member has after it said what it owns (`None`: that did not change). `None` when nothing changes.
    pub(super) fn next_step(&self, id: &Arc<str>, owned: Option<&Assignment>) -> Option<CurrentAssignment> {
        let member = self.members.get(id)?;
        let current = &member.current;
        let next = match current.state {
            MemberState::UnrevokedPartitions => {
                // Silence is no answer here.
                let owned = owned?;
                if owns_any(owned, &current.pending_revocation) {
                    return None;
                }
                self.towards_target(id, current, Some(owned))
            }
            MemberState::Stable | MemberState::UnreleasedPartitions | MemberState::Unknown => {
                self.towards_target(id, current, owned)
            }
        };
        (next != *current).then_some(next)
    }

    fn towards_target(
        &self,
        id: &Arc<str>,
        current: &CurrentAssignment,
        owned: Option<&Assignment>,
    ) -> CurrentAssignment {
        let nothing = Assignment::new();
        let target = self.target_of(id).unwrap_or(&nothing);
        let wanted = |topic: &TopicId, index: &i32| target.get(topic).is_some_and(|set| set.contains(index));
        let (mut keeps, mut gives) = (Owned::new(), Owned::new());
        for (topic, partitions) in &current.assigned {
            for (index, since) in partitions {
                let into = if wanted(topic, index) { &mut keeps } else { &mut gives };
                into.entry(*topic).or_default().insert(*index, *since);
            }
        }
        // A member that does not say what it owns may own all of it.
        if !gives.is_empty() && owned.is_none_or(|owned| owns_any(owned, &gives)) {
            return CurrentAssignment {
                epoch: current.epoch,
                previous_epoch: current.previous_epoch,
                state: MemberState::UnrevokedPartitions,
                assigned: keeps,
                pending_revocation: gives,
            };
        }
        let mut waits = false;
        for (topic, partitions) in target {
            for index in partitions {
                if keeps.get(topic).is_some_and(|kept| kept.contains_key(index)) {
                    continue;
                }
                // What this member itself gives back in this very step is free for it.
                let free = match self.owners.get(&(*topic, *index)) {
                    None => true,
                    Some(owner) => owner == id,
                };
                if free {
                    keeps.entry(*topic).or_default().insert(*index, self.assignment_epoch);
                } else {
                    waits = true;
                }
            }
        }
        let previous_epoch =
            if current.epoch == self.assignment_epoch { current.previous_epoch } else { current.epoch };
        CurrentAssignment {
            epoch: self.assignment_epoch,
            previous_epoch,
            state: if waits { MemberState::UnreleasedPartitions } else { MemberState::Stable },
            assigned: keeps,
            pending_revocation: Owned::new(),
        }
    }
}

fn owns_any(owned: &Assignment, of: &Owned) -> bool {
    of.iter().any(|(topic, partitions)| {
        owned.get(topic).is_some_and(|owned| partitions.keys().any(|index| owned.contains(index)))
    })
}
