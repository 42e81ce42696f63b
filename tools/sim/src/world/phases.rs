//! The parts of a history, and when one gives way to the next.

use super::World;
use crate::clients;
use crate::events::Event;
use crate::faults::WIDE_FROM;

/// Once faults have stopped, all that is pending ends within this, and so does each audit.
const CALM_NS_MAX: u64 = 60_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Chaos,
    Calm,
    Audit,
    /// The clean stop after the first audit.
    Stop,
    SecondAudit,
    /// One more clean stop, and a bit changes, or a write went elsewhere.
    Rot,
    RotAudit,
    End,
}

impl World {
    /// Since when nothing is wrong.
    pub(super) fn quiet_since(&self) -> Option<u64> {
        let peace = self.phase > Phase::Chaos
            && !matches!(self.phase, Phase::Stop | Phase::Rot)
            && !self.restart_due
            && self.serving();
        peace.then_some(self.quiet_since_ns)
    }

    pub(super) fn phase(&mut self, phase: Phase) {
        self.outside.trace.line(self.outside.now_ns, || "world".into(), || format!("==== {phase:?}"));
        self.phase = phase;
        self.phase_until_ns = self.outside.now_ns + CALM_NS_MAX;
        for client in 0..self.clients.len() {
            self.outside.events.push(self.outside.now_ns, Event::Wake { client });
        }
    }

    /// Goes on to the next phase when this one is done.
    pub(super) fn advance(&mut self) {
        if !std::mem::take(&mut self.stirred) {
            return;
        }
        match self.phase {
            Phase::Calm | Phase::Audit | Phase::SecondAudit | Phase::RotAudit => {
                if !self.running || !self.clients.iter().all(|client| client.finished(&self.ledger)) {
                    return;
                }
            }
            Phase::Stop | Phase::Rot => {
                if self.stopping || !self.running {
                    return;
                }
            }
            Phase::Chaos | Phase::End => return,
        }
        match self.phase {
            Phase::Calm => self.audit(Phase::Audit),
            Phase::Audit => {
                self.phase(Phase::Stop);
                self.stop();
            }
            Phase::Stop => self.audit(Phase::SecondAudit),
            Phase::SecondAudit if self.plan.rots || self.plan.misdirects => {
                self.ledger.compacted_away();
                self.ledger.appended_is_there();
                self.phase(Phase::Rot);
                self.stop();
            }
            Phase::Rot => self.audit(Phase::RotAudit),
            Phase::RotAudit => self.phase = Phase::End,
            _ => {
                self.ledger.compacted_away();
                self.ledger.appended_is_there();
                self.phase = Phase::End;
            }
        }
    }

    /// A fresh reader of everything, from the start.
    pub(super) fn audit(&mut self, phase: Phase) {
        let style = clients::ConsumerStyle {
            version: if self.auditors == 0 { 17 } else { 4 },
            session: false,
            rewind: 0.0,
            max_wait_ms: 5,
            bytes_max: 1 << 20,
            list: 0.1,
            greatest: false,
            pause_ns: 0,
        };
        let wide = self.plan.seed >= WIDE_FROM;
        let style = match wide {
            // In small steps, and by time: what an index says is asked for again and again.
            true => clients::ConsumerStyle {
                bytes_max: [500, 5_000, 1 << 20][self.outside.random.below(3) as usize],
                list: 0.4,
                greatest: true,
                ..style
            },
            false => style,
        };
        self.auditors += 1;
        self.clients.push(Box::new(clients::Consumer::new(style)));
        self.phase(phase);
    }
}
