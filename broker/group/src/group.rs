//! One group: its offsets, and the protocol that its members speak, if it has any.

use std::sync::Arc;

use ringmain_types::*;

use crate::classic::ClassicGroup;
use crate::consumer::ConsumerGroup;
use crate::offsets::Offsets;

/// Kafka's names. `Dead` is a group that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Empty,
    PreparingRebalance,
    CompletingRebalance,
    Stable,
    Assigning,
    Reconciling,
    Dead,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Empty => "Empty",
            State::PreparingRebalance => "PreparingRebalance",
            State::CompletingRebalance => "CompletingRebalance",
            State::Stable => "Stable",
            State::Assigning => "Assigning",
            State::Reconciling => "Reconciling",
            State::Dead => "Dead",
        }
    }
}

#[derive(Debug, Default)]
pub(crate) enum Kind {
    /// Only offsets, committed from outside.
    #[default]
    Simple,
    Classic(Box<ClassicGroup>),
    Consumer(Box<ConsumerGroup>),
}

#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) offsets: Offsets,
    pub(crate) kind: Kind,
    /// Offsets committed since the coordinator was loaded.
    pub(crate) commits: u64,
    /// The coordinator's place for it in its timers.
    pub(crate) wake: Option<Instant>,
    /// Its offsets are being taken away, and then it goes: nothing comes to it.
    pub(crate) deleting: bool,
    /// What the coordinator counts for it.
    pub(crate) counted: usize,
}

/// What a group takes besides all that can be counted, with its places in maps.
const GROUP_BYTES: usize = 600;

impl Group {
    /// About what it takes in memory, with an id of so many bytes.
    pub(crate) fn bytes(&self, id_bytes: usize) -> usize {
        let kind = match &self.kind {
            Kind::Simple => 0,
            Kind::Classic(group) => group.bytes(),
            Kind::Consumer(group) => group.bytes(),
        };
        GROUP_BYTES + id_bytes + self.offsets.bytes() + kind
    }

    pub(crate) fn state(&self) -> State {
        match &self.kind {
            Kind::Simple => State::Empty,
            Kind::Classic(group) => group.state(),
            Kind::Consumer(group) => group.state(),
        }
    }

    /// Nobody is in it and nobody is about to be: offsets may expire, it may be deleted or change its protocol.
    pub(crate) fn is_vacant(&self) -> bool {
        match &self.kind {
            Kind::Simple => true,
            Kind::Classic(group) => group.state() == State::Empty && !group.has_members() && !group.has_pending(),
            Kind::Consumer(group) => group.members().is_empty(),
        }
    }

    /// `Classic` or `Consumer`: a group of offsets alone is a classic one to Kafka.
    pub(crate) fn type_name(&self) -> &'static str {
        match &self.kind {
            Kind::Consumer(_) => "Consumer",
            _ => "Classic",
        }
    }

    pub(crate) fn protocol_type(&self) -> Arc<str> {
        match &self.kind {
            Kind::Simple => Arc::from(""),
            Kind::Classic(group) => group.protocol_type().unwrap_or_default(),
            Kind::Consumer(_) => Arc::from("consumer"),
        }
    }

    /// The next moment at which something is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match &self.kind {
            Kind::Simple => None,
            Kind::Classic(group) => group.deadline(),
            Kind::Consumer(group) => group.deadline(),
        }
    }

    /// When its offsets began to be nobody's; `None` where each counts from its own commit.
    pub(crate) fn empty_since(&self) -> Option<WallMs> {
        match &self.kind {
            Kind::Classic(group) => group.since(),
            Kind::Consumer(group) => group.empty_since(),
            Kind::Simple => None,
        }
    }
}
