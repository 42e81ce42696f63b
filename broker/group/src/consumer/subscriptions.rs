//! What a group reads, counted over its members: a group of a thousand is not gone through for each of their requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::record::MemberMetadata;

/// How many members name each topic and each expression.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    topics: BTreeMap<Arc<str>, usize>,
    patterns: BTreeMap<Arc<str>, usize>,
}

impl Subscriptions {
    pub(super) fn add(&mut self, meta: &MemberMetadata) {
        for topic in &meta.topics {
            *self.topics.entry(topic.clone()).or_default() += 1;
        }
        if let Some(pattern) = &meta.regex {
            *self.patterns.entry(pattern.clone()).or_default() += 1;
        }
    }

    /// Of what was added before.
    pub(super) fn take(&mut self, meta: &MemberMetadata) {
        meta.topics.iter().for_each(|topic| one_less(&mut self.topics, topic));
        meta.regex.iter().for_each(|pattern| one_less(&mut self.patterns, pattern));
    }

    /// Named, that is; what expressions match comes on top.
    pub(super) fn topics(&self) -> impl Iterator<Item = &Arc<str>> {
        self.topics.keys()
    }

    pub(super) fn patterns(&self) -> impl Iterator<Item = &Arc<str>> {
        self.patterns.keys()
    }

    pub(super) fn has_pattern(&self, pattern: &str) -> bool {
        self.patterns.contains_key(pattern)
    }
}

fn one_less(counts: &mut BTreeMap<Arc<str>, usize>, name: &Arc<str>) {
    match counts.get_mut(name) {
        Some(count) if *count > 1 => *count -= 1,
        _ => drop(counts.remove(name)),
    }
}
