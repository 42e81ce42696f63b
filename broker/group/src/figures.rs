//! What metrics show of groups.

use std::sync::Arc;

use ringmain_types::*;

use crate::coordinator::GroupCoordinator;
use crate::group::Kind;

/// One group's numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub members: u32,
    /// Generations or epochs so far: a counter, as long as the group speaks one protocol.
    pub rebalances: u64,
    /// Offsets committed since this coordinator was loaded.
    pub commits: u64,
    /// What is committed, for topics with ids; no more than were asked for.
    pub offsets: Vec<(Partition, Offset)>,
}

impl GroupCoordinator {
    /// Whether a group changed since it was told of.
    pub fn any_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Up to `groups_max` groups that changed, each with at most `offsets_max` offsets; `None` of one that is gone. `offsets_left` is what
    /// may be told in all: it ends with the group that uses it up.
    pub fn take_changed(
        &mut self,
        groups_max: usize,
        offsets_max: usize,
        offsets_left: &mut usize,
    ) -> Vec<(Arc<str>, Option<Figures>)> {
        let mut out = Vec::new();
        while out.len() < groups_max
            && *offsets_left > 0
            && let Some(id) = self.changed.pop_first()
        {
            let figures = self.figures(&id, offsets_max);
            *offsets_left = offsets_left.saturating_sub(figures.as_ref().map_or(0, |figures| figures.offsets.len()));
            out.push((id, figures));
        }
        out
    }

    fn figures(&self, id: &str, offsets_max: usize) -> Option<Figures> {
        let group = self.groups.get(id)?;
        let (members, rebalances) = match &group.kind {
            Kind::Simple => (0, 0),
            Kind::Classic(classic) => (classic.member_count(), classic.generation_id()),
            Kind::Consumer(consumer) => (consumer.members().len(), consumer.epoch()),
        };
        let known = group.offsets.iter().filter(|(.., offset)| offset.topic != TopicId::NONE);
        let offsets =
            known.take(offsets_max).map(|(_, index, offset)| (Partition { topic: offset.topic, index }, offset.offset));
        Some(Figures {
            members: members as u32,
            rebalances: u64::try_from(rebalances).unwrap_or(0),
            commits: group.commits,
            offsets: offsets.collect(),
        })
    }
}
