//! A member of a KIP-848 group that others share: it beats, gives back what it is told to, commits what it has, and now and
//! then stalls past its session, vanishes, comes back, or leaves.

use std::collections::BTreeSet;

use ringmain_types::{ErrorCode, LeaderEpoch, Offset, PartitionIndex};
use ringmain_wire::consumer_group_heartbeat::TopicPartitions;
use ringmain_wire::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use ringmain_wire::{
    CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, FIND_COORDINATOR,
    FindCoordinatorRequest, FindCoordinatorResponse, OFFSET_COMMIT, OffsetCommitRequest, OffsetCommitResponse,
};

use super::line::{Line, reply};
use super::{Client, Context};
use crate::groups::{self, MIXED, legal};
use crate::ledger::Ledger;
use crate::network::Link;

const TOPIC: &str = "topic-0";
/// `group.consumer.session.timeout.ms` of the simulated broker.
pub const SESSION_MS: u64 = 200;
/// Longer than any stall: who is silent for too long loses its session first.
const REBALANCE_MS: i32 = 60_000;
const BEAT_NS: u64 = 30_000_000;
const LEAVES: i32 = -1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Out,
    Find,
    In,
}

enum Asked {
    Find,
    Beat {
        sent_ns: u64,
        epoch: i32,
    },
    /// The partitions that somebody else had been given when it was sent.
    Commit {
        lost: Vec<i32>,
    },
}

pub struct Modern {
    /// Its group: in the books, and by name.
    at: usize,
    group: String,
    number: u32,
    life: u32,
    line: Line<Asked>,
    state: State,
    epoch: i32,
    /// The epochs that it was told of before, in this life, oldest first.
    epochs: Vec<i32>,
    /// It may forget what it was told, as a machine that is put back to an earlier state does.
    forgets: bool,
    partitions: BTreeSet<i32>,
    /// What it has is to be said: it joins, or something changed, or an answer was lost.
    tell: bool,
    /// It was given an assignment since the calm began, or it is long enough ago.
    settled: bool,
    /// It vanished for good.
    gone: bool,
    whims: u32,
    next_ns: u64,
    offset: i64,
}

impl Modern {
    /// Of the `at`th KIP-848 group, or of the mixed one.
    pub fn new(at: usize, number: u32, whims: u32) -> Modern {
        Modern {
            at,
            group: groups::name(if at == MIXED { "mixed" } else { "modern" }, at),
            number,
            life: 0,
            line: Line::default(),
            state: State::Out,
            epoch: 0,
            epochs: Vec::new(),
            forgets: false,
            partitions: BTreeSet::new(),
            tell: true,
            settled: false,
            gone: false,
            whims,
            next_ns: 0,
            offset: 0,
        }
    }

    pub fn forgetful(self, forgets: bool) -> Modern {
        Modern { forgets, ..self }
    }

    /// Each life is another member, to the broker and to the books.
    fn me(&self) -> u32 {
        self.number * 1000 + self.life
    }

    fn id(&self) -> String {
        format!("member-{}", self.me())
    }

    fn find(&mut self, context: &mut Context<'_>) {
        let keys = vec![self.group.as_str()].into();
        let body = FindCoordinatorRequest { key_type: 0, coordinator_keys: keys, ..Default::default() };
        self.line.ask(context, &FIND_COORDINATOR, 4, &body, Asked::Find);
    }

    fn beat(&mut self, context: &mut Context<'_>) {
        self.beat_at(context, self.epoch);
    }

    fn beat_at(&mut self, context: &mut Context<'_>, epoch: i32) {
        let Some(topic) = context.ledger.by_name(TOPIC).map(|number| context.ledger.topic(number).id) else { return };
        let joins = epoch == 0;
        let owned = || {
            let partitions: Vec<PartitionIndex> = self.partitions.iter().map(|index| PartitionIndex(*index)).collect();
            match partitions.is_empty() {
                true => Vec::new(),
                false => vec![TopicPartitions { topic_id: topic, partitions: partitions.into() }],
            }
        };
        let whole = joins || self.tell;
        let id = self.id();
        let body = ConsumerGroupHeartbeatRequest {
            group_id: &self.group,
            member_id: &id,
            member_epoch: epoch,
            rebalance_timeout_ms: if whole { REBALANCE_MS } else { -1 },
            subscribed_topic_names: whole.then(|| vec![TOPIC].into()),
            topic_partitions: (whole && epoch >= 0).then(|| owned().into()),
            ..Default::default()
        };
        context.say(|| {
            format!("{id} beats at {epoch} with {:?}{}", self.partitions, if whole { ", all told" } else { "" })
        });
        let asked = Asked::Beat { sent_ns: context.now_ns, epoch };
        self.tell = false;
        self.line.ask(context, &CONSUMER_GROUP_HEARTBEAT, 1, &body, asked);
    }

    fn commit(&mut self, context: &mut Context<'_>) {
        self.offset += 1;
        let partitions = self.partitions.iter().map(|index| OffsetCommitRequestPartition {
            partition_index: PartitionIndex(*index),
            committed_offset: Offset(self.offset),
            committed_leader_epoch: LeaderEpoch(-1),
            committed_metadata: None,
        });
        let topic = OffsetCommitRequestTopic { name: TOPIC, partitions: partitions.collect(), ..Default::default() };
        let id = self.id();
        let body = OffsetCommitRequest {
            group_id: &self.group,
            generation_id_or_member_epoch: self.epoch,
            member_id: &id,
            topics: vec![topic].into(),
            ..Default::default()
        };
        let me = self.me();
        let lost =
            self.partitions.iter().copied().filter(|index| context.ledger.modern[self.at].lost(me, *index)).collect();
        self.line.ask(context, &OFFSET_COMMIT, 9, &body, Asked::Commit { lost });
    }

    fn release(&mut self, context: &mut Context<'_>, keep: &BTreeSet<i32>) {
        let me = self.me();
        for partition in self.partitions.difference(keep) {
            context.ledger.modern[self.at].released(me, *partition);
        }
        self.partitions.retain(|partition| keep.contains(partition));
    }

    /// Without anything, to join again: as the one it was, or as another.
    fn out(&mut self, context: &mut Context<'_>, reborn: bool) {
        self.release(context, &BTreeSet::new());
        self.life += u32::from(reborn);
        (self.state, self.epoch, self.tell) = (State::Out, 0, true);
        self.epochs.clear();
        self.next_ns = context.now_ns + context.random.between(1_000_000, 10_000_000);
        context.wake_in(self.next_ns - context.now_ns);
    }

    fn leave(&mut self, context: &mut Context<'_>) {
        self.release(context, &BTreeSet::new());
        self.epoch = LEAVES;
        self.beat(context);
    }

    fn whim(&mut self, context: &mut Context<'_>) {
        self.whims -= 1;
        let silent_ns = context.random.between(0, 3 * SESSION_MS) * 1_000_000;
        match context.random.below(3 + u64::from(self.forgets)) {
            0 => self.leave(context),
            3 => {
                // Neither the newest epoch nor the one before it, however many it was not told of.
                let old = self.epochs.iter().rev().nth(1).copied();
                if let Some(old) = old {
                    context.ledger.reach("groups: old epochs tried");
                    self.beat_at(context, old);
                }
            }
            1 => {
                context.ledger.reach("groups: members stalled");
                context.say(|| format!("{} stalls", self.id()));
                self.next_ns = context.now_ns + silent_ns;
                context.wake_in(silent_ns);
            }
            _ => {
                // It is not heard of again; what it had it uses no more.
                context.ledger.reach("groups: members vanished");
                context.say(|| format!("{} vanishes", self.id()));
                self.out(context, true);
                self.gone = context.random.chance(0.3);
            }
        }
    }

    fn beaten(&mut self, context: &mut Context<'_>, sent_ns: u64, epoch: i32, frame: &[u8]) {
        let body = reply::<ConsumerGroupHeartbeatResponse<'_>>(context, &CONSUMER_GROUP_HEARTBEAT, 1, frame);
        let Some(body) = body else { return };
        context.say(|| format!("{} at {epoch}: {:?} {}", self.id(), body.error_code, body.member_epoch));
        match body.error_code {
            ErrorCode::None if epoch == LEAVES => return self.out(context, true),
            ErrorCode::None if self.epochs.iter().rev().skip(1).any(|old| *old == epoch) => {
                let text = format!("{} beats at {epoch}, known: {:?} and {}", self.id(), self.epochs, self.epoch);
                return context.fail("an old epoch is refused", text);
            }
            ErrorCode::None => {}
            ErrorCode::FencedMemberEpoch => {
                context.ledger.reach("groups: old epochs refused");
                return self.out(context, false);
            }
            // A group of nobody is not there.
            ErrorCode::UnknownMemberId | ErrorCode::GroupIdNotFound => {
                context.ledger.reach("groups: members put out");
                return self.out(context, epoch == LEAVES);
            }
            code if legal(context.ledger, code) => {
                self.tell = true;
                self.state = State::Find;
                self.next_ns = context.now_ns + 5_000_000;
                return;
            }
            code => {
                return context
                    .fail("a member is told what it has to do", format!("{code:?} {:?}", body.error_message));
            }
        }
        let me = self.me();
        context.ledger.modern[self.at].beat(me, sent_ns, SESSION_MS * 1_000_000);
        if body.member_epoch < self.epoch {
            context.fail("an epoch never falls back", format!("{} after {}", body.member_epoch, self.epoch));
        }
        if body.member_epoch > self.epoch && self.epoch > 0 {
            self.epochs.push(self.epoch);
        }
        self.epoch = body.member_epoch;
        self.settled |= context.quiet_for(0);
        let Some(assignment) = body.assignment else {
            // Who was late to hear may have been taken for the owner, and let go since.
            self.partitions.iter().for_each(|partition| context.ledger.modern[self.at].keeps(me, *partition));
            return;
        };
        let topics = assignment.topic_partitions.iter();
        let mine: BTreeSet<i32> =
            topics.flat_map(|topic| topic.partitions.iter().map(|index| index.0).collect::<Vec<_>>()).collect();
        context.ledger.reach("groups: assignments received");
        self.tell |= mine != self.partitions;
        self.release(context, &mine);
        for partition in mine {
            if self.partitions.insert(partition)
                && let Err((invariant, text)) = context.ledger.modern[self.at].taken(me, partition, context.now_ns)
            {
                context.fail(invariant, text);
            }
        }
        if self.tell {
            self.next_ns = context.now_ns + context.random.below(BEAT_NS);
        }
    }

    fn committed(&mut self, context: &mut Context<'_>, lost: &[i32], frame: &[u8]) {
        let Some(body) = reply::<OffsetCommitResponse<'_>>(context, &OFFSET_COMMIT, 9, frame) else { return };
        for partition in body.topics.iter().flat_map(|topic| topic.partitions.iter().collect::<Vec<_>>()) {
            let index = partition.partition_index.0;
            match partition.error_code {
                ErrorCode::None if lost.contains(&index) => {
                    let text = format!("{} commits for partition {index}, which another one was given", self.id());
                    context.fail("who lost a partition commits nothing for it", text);
                }
                ErrorCode::None
                | ErrorCode::StaleMemberEpoch
                | ErrorCode::UnknownMemberId
                | ErrorCode::GroupIdNotFound
                // Where the group is not there, the epoch of a commit is taken for a generation.
                | ErrorCode::IllegalGeneration => {}
                code if legal(context.ledger, code) => {}
                code => context.fail("an offset can be committed", format!("{}: {code:?}", self.id())),
            }
        }
    }
}

impl Client for Modern {
    fn poll(&mut self, context: &mut Context<'_>) {
        if self.gone {
            return;
        }
        if context.ledger.by_name(TOPIC).is_none() {
            return context.wake_in(5_000_000);
        }
        if context.now_ns < self.next_ns {
            return context.wake_in(self.next_ns - context.now_ns);
        }
        if context.calm && self.finished(context.ledger) || !self.line.up(context) || self.line.pending() > 0 {
            return;
        }
        let partitions = context.ledger.by_name(TOPIC).map_or(0, |number| context.ledger.topic(number).partitions);
        let whole = context.quiet_for(0) && context.ledger.modern[self.at].look(partitions);
        if context.quiet_for(groups::WHOLE_NS_MAX) && !whole {
            context.fail("a group has all its partitions again", format!("{}: {}", self.group, self.describe()));
        }
        match self.state {
            State::Out | State::Find => {
                self.state = State::Find;
                self.find(context);
            }
            // It was answered in the calm, and the group is as it should be.
            State::In if whole && self.settled && !self.tell => self.leave(context),
            State::In if !context.calm && self.epoch > 0 && self.whims > 0 && context.random.chance(0.1) => {
                self.whim(context)
            }
            State::In => {
                self.next_ns = context.now_ns + context.random.below(2 * BEAT_NS);
                if self.epoch > 0 && !self.tell && !self.partitions.is_empty() && context.random.chance(0.3) {
                    self.commit(context);
                } else {
                    self.beat(context);
                }
            }
        }
    }

    fn received(&mut self, context: &mut Context<'_>, link: Link, bytes: &[u8]) {
        self.line.received(link, bytes);
        while let Some(answer) = self.line.next(context) {
            match answer.asked {
                Asked::Find => {
                    let found = reply::<FindCoordinatorResponse<'_>>(context, &FIND_COORDINATOR, 4, &answer.frame);
                    match found.and_then(|found| found.coordinators.iter().next().map(|one| one.error_code)) {
                        Some(ErrorCode::None) => self.state = State::In,
                        Some(code) if legal(context.ledger, code) => self.next_ns = context.now_ns + 5_000_000,
                        code => context.fail("a coordinator can be found", format!("{code:?}")),
                    }
                }
                Asked::Beat { sent_ns, epoch } => self.beaten(context, sent_ns, epoch, &answer.frame),
                Asked::Commit { lost } => self.committed(context, &lost, &answer.frame),
            }
        }
    }

    fn closed(&mut self, context: &mut Context<'_>, link: Link) {
        for asked in self.line.closed(context, link).unwrap_or_default() {
            match asked {
                // Whoever left without an answer comes back as another.
                Asked::Beat { epoch: LEAVES, .. } => self.out(context, true),
                Asked::Beat { .. } => self.tell = true,
                Asked::Find | Asked::Commit { .. } => {}
            }
        }
    }

    fn finished(&self, _ledger: &Ledger) -> bool {
        self.gone || self.state == State::Out && self.settled && self.line.pending() == 0
    }

    fn describe(&self) -> String {
        format!("{}: {:?} at {}, {} in flight", self.id(), self.state, self.epoch, self.line.pending())
    }
}
