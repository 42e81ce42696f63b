//! DescribeGroups, ConsumerGroupDescribe and ListGroups.

use ringmain_types::*;

use crate::coordinator::GroupCoordinator;
use crate::group::{Kind, State};
use crate::{Described, DescribedConsumer, Listed, Topics};

impl GroupCoordinator {
    pub(crate) fn describe(&self, id: &str) -> Described {
        let Some((name, group)) = self.groups.get_key_value(id) else { return missing(id, "Group") };
        let (protocol, members) = match &group.kind {
            Kind::Simple => Default::default(),
            Kind::Classic(classic) => classic.describe(),
            Kind::Consumer(_) => return missing(id, "Group"),
        };
        let (state, protocol_type) = (group.state().name(), group.protocol_type());
        Described { group: name.clone(), state, protocol_type, protocol, members, ..Default::default() }
    }

    pub(crate) fn describe_consumer(&self, id: &str, topics: &dyn Topics) -> DescribedConsumer {
        let found = self.groups.get_key_value(id);
        let Some((name, group, consumer)) = found.and_then(|(name, group)| match &group.kind {
            Kind::Consumer(consumer) => Some((name, group, consumer)),
            _ => None,
        }) else {
            // Kafka's clients fall back to DescribeGroups on this.
            let text = match found {
                Some(_) => format!("Group {id} is not a consumer group."),
                None => format!("Group {id} not found."),
            };
            let error = ErrorCode::GroupIdNotFound;
            return DescribedConsumer { error, message: Some(text), group: id.into(), state: "", ..Default::default() };
        };
        DescribedConsumer {
            error: ErrorCode::None,
            message: None,
            group: name.clone(),
            state: group.state().name(),
            epoch: consumer.epoch(),
            assignment_epoch: consumer.assignment_epoch(),
            assignor: consumer.assignor(&self.config.consumer_assignors).name(),
            members: consumer.describe(topics),
        }
    }

    /// Filters by state and by type; none of a kind lets all pass, and case is ignored.
    pub(crate) fn list(&self, states: &[&str], types: &[&str]) -> Vec<Listed> {
        let passes = |filter: &[&str], name: &str| {
            filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(name))
        };
        let listed = self.groups.iter().map(|(id, group)| Listed {
            group: id.clone(),
            protocol_type: group.protocol_type(),
            state: group.state().name(),
            kind: group.type_name(),
        });
        listed.filter(|group| passes(states, group.state) && passes(types, group.kind)).collect()
    }
}

fn missing(id: &str, kind: &str) -> Described {
    let (error, message) = (ErrorCode::GroupIdNotFound, Some(format!("{kind} {id} not found.")));
    Described { error, message, group: id.into(), state: State::Dead.name(), ..Default::default() }
}
