//! One member of a classic group.

use std::sync::Arc;

use ringmain_coordinator::Waiter;
use ringmain_types::*;
use ringmain_wire::JoinGroupRequest;

use crate::Client;
use crate::record::{GenerationMember, Protocols, protocol_bytes};

#[derive(Debug)]
pub(crate) struct Member {
    pub(super) id: Arc<str>,
    pub(super) instance: Option<Arc<str>>,
    pub(super) client_id: Arc<str>,
    pub(super) client_host: Arc<str>,
    pub(super) rebalance_timeout_ms: i32,
    pub(super) session_timeout_ms: i32,
    pub(super) protocols: Protocols,
    /// Of the generation; empty until the leader assigned.
    pub(super) assignment: Arc<[u8]>,

    // Of this life of the coordinator.
    /// Its JoinGroup, while the next generation is made.
    pub(super) joining: Option<Waiter>,
    /// Its SyncGroup, while the leader's is missing.
    pub(super) syncing: Option<Waiter>,
    /// Sent its SyncGroup of this generation.
    pub(super) synced: bool,
    /// Has not been in any generation.
    pub(super) new: bool,
    /// When its session ends, unless it waits for us.
    pub(super) until: Instant,
}

impl Member {
    pub(super) fn new(id: Arc<str>, ask: &JoinGroupRequest, client: &Client, protocols: Protocols) -> Member {
        let mut member = Member {
            id,
            instance: ask.group_instance_id.map(Into::into),
            client_id: client.id.into(),
            client_host: client.host.into(),
            rebalance_timeout_ms: 0,
            session_timeout_ms: 0,
            protocols: Vec::new(),
            assignment: Arc::default(),
            joining: None,
            syncing: None,
            synced: false,
            new: true,
            until: Instant(u64::MAX),
        };
        member.update(ask, protocols);
        member
    }

    pub(super) fn of(record: &GenerationMember, protocol: Option<&Arc<str>>) -> Member {
        Member {
            id: record.id.clone(),
            instance: record.instance.clone(),
            client_id: record.client_id.clone(),
            client_host: record.client_host.clone(),
            rebalance_timeout_ms: record.rebalance_timeout_ms,
            session_timeout_ms: record.session_timeout_ms,
            protocols: protocol.map(|name| (name.clone(), record.subscription.clone())).into_iter().collect(),
            assignment: record.assignment.clone(),
            joining: None,
            syncing: None,
            synced: true,
            new: false,
            until: Instant(u64::MAX),
        }
    }

    pub(super) fn update(&mut self, ask: &JoinGroupRequest, protocols: Protocols) {
        self.session_timeout_ms = ask.session_timeout_ms;
        // v0 has one timeout for both.
        self.rebalance_timeout_ms =
            if ask.rebalance_timeout_ms < 0 { ask.session_timeout_ms } else { ask.rebalance_timeout_ms };
        self.protocols = protocols;
    }

    pub(super) fn metadata(&self, protocol: &str) -> Arc<[u8]> {
        self.protocols.iter().find(|(name, _)| **name == *protocol).map(|(_, bytes)| bytes.clone()).unwrap_or_default()
    }

    /// A sign of life. `soonest` is the group's.
    pub(super) fn touch(&mut self, now: Now, soonest: &mut Instant) {
        self.until = now.mono.plus_ms(self.session_timeout_ms.max(1) as u64);
        *soonest = self.until.min(*soonest);
    }

    /// When it is to be given up: never while it waits for our answer, but for the first one.
    pub(super) fn expires(&self) -> Option<Instant> {
        let waits = self.joining.is_some() || self.syncing.is_some();
        (self.new || !waits).then_some(self.until)
    }

    /// All that it says of itself, in memory.
    pub(super) fn bytes(&self) -> usize {
        let instance = self.instance.as_deref().map_or(0, str::len);
        self.id.len() + instance + self.client_id.len() + self.client_host.len() + protocol_bytes(&self.protocols)
    }

    pub(super) fn record(&self, protocol: &str) -> GenerationMember {
        GenerationMember {
            id: self.id.clone(),
            instance: self.instance.clone(),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            rebalance_timeout_ms: self.rebalance_timeout_ms,
            session_timeout_ms: self.session_timeout_ms,
            subscription: self.metadata(protocol),
            assignment: self.assignment.clone(),
        }
    }
}
