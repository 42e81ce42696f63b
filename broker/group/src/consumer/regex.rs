//! Subscriptions by regular expression.

use std::collections::BTreeSet;
use std::sync::Arc;

use regex::RegexBuilder;
use ringmain_types::*;
use ringmain_wire::ConsumerGroupHeartbeatRequest;

use super::ConsumerGroup;
use super::heartbeat::Refusal;
use crate::Topics;
use crate::classic::Turn;
use crate::record::{Record, Resolved};

/// New topics are looked for no more often, as on Kafka.
const REFRESH_MIN_MS: i64 = 10_000;

impl ConsumerGroup {
    /// 42: what a new expression matches must be a record.
    pub(super) fn check_pattern(
        &self,
        turn: &Turn,
        topics: &dyn Topics,
        ask: &ConsumerGroupHeartbeatRequest,
    ) -> Result<(), Refusal> {
        let new = |pattern: &&str| !pattern.is_empty() && !self.regexes.contains_key(*pattern);
        let Some(pattern) = ask.subscribed_topic_regex.filter(new) else { return Ok(()) };
        let (regex, bytes_max) = (Arc::<str>::from(pattern), bytes_max(turn));
        match self.resolve(turn, topics, &regex) {
            Some(record) if record.bytes() > bytes_max => {
                let text = format!("SubscribedTopicRegex `{pattern}` matches topics of more than {bytes_max} bytes.");
                Err((ErrorCode::InvalidRequest, text))
            }
            _ => Ok(()),
        }
    }

    /// Looks at the topics anew where an expression was never looked at, or topics changed since. True when anything matches
    /// differently now. What would be more than one batch is left for the next time.
    pub(super) fn refresh_regexes(&mut self, turn: &mut Turn, topics: &dyn Topics) -> bool {
        let used: Vec<Arc<str>> = self.subscriptions.patterns().cloned().collect();
        let mut changed = false;
        let mut left = bytes_max(turn);
        let has = |regex: &&Arc<str>| self.subscriptions.has_pattern(regex);
        let unused: Vec<Arc<str>> = self.regexes.keys().filter(|regex| !has(regex)).cloned().collect();
        for regex in unused {
            let record = Record::Regex { group: turn.group.clone(), regex, value: None };
            let Some(rest) = left.checked_sub(record.bytes()) else { break };
            left = rest;
            self.write(turn, record);
        }
        if used.is_empty() {
            return false;
        }
        let version = topics.version();
        let due = match self.regexes_seen {
            Some((seen, at)) => {
                let age = turn.now.wall.0.saturating_sub(at.0);
                seen != version && age >= REFRESH_MIN_MS.min(turn.config.consumer_regex_refresh_ms)
            }
            None => true,
        };
        let mut all = true;
        for regex in used {
            if self.regexes.contains_key(&regex) && !due {
                continue;
            }
            let Some(record) = self.resolve(turn, topics, &regex) else { continue };
            let bytes = record.bytes();
            // It grew since it was let in, and keeps what it matched.
            if bytes > bytes_max(turn) {
                continue;
            }
            if bytes > left {
                all = false;
                break;
            }
            left -= bytes;
            changed = true;
            self.write(turn, record);
        }
        if due && all {
            self.regexes_seen = Some((version, turn.now.wall));
        }
        changed
    }

    /// What it matches now; `None` when that is what it matched before.
    fn resolve(&self, turn: &Turn, topics: &dyn Topics, regex: &Arc<str>) -> Option<Record> {
        // It was compiled before it was let in.
        let pattern = compile(regex, turn.config.limits.regex_bytes_max as usize).ok()?;
        let matched: BTreeSet<Arc<str>> = topics.names().filter(|name| pattern.is_match(name)).collect();
        if self.regexes.get(regex).is_some_and(|before| before.topics == matched) {
            return None;
        }
        let value = Some(Resolved { topics: matched, version: topics.version(), at: turn.now.wall });
        Some(Record::Regex { group: turn.group.clone(), regex: regex.clone(), value })
    }
}

/// Of expressions' records in one decision: beside them goes what a member says of itself.
fn bytes_max(turn: &Turn) -> usize {
    turn.config.limits.batch_bytes_max as usize / 4
}

/// Matches whole names. RE2's syntax, as on Kafka, but for its escapes of single bytes.
pub(super) fn compile(regex: &str, bytes_max: usize) -> Result<regex::Regex, String> {
    let build = |pattern: &str| RegexBuilder::new(pattern).size_limit(bytes_max).dfa_size_limit(bytes_max).build();
    // Alone first: `a)|(b` is none, but would be one between the anchors.
    let whole = build(regex).and_then(|_| build(&format!("^(?:{regex})$")));
    // The last line says what is wrong; those before it draw where.
    whole.map_err(|error| error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned())
}
