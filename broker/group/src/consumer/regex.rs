//! Subscriptions by regular expression.

use std::collections::BTreeSet;
use std::sync::Arc;

use regex::RegexBuilder;

use super::ConsumerGroup;
use crate::Topics;
use crate::classic::Turn;
use crate::record::{Record, Resolved};

/// New topics are looked for no more often, as on Kafka.
const REFRESH_MIN_MS: i64 = 10_000;

impl ConsumerGroup {
    /// Looks at the topics anew where an expression was never looked at, or topics changed since. True when anything matches
    /// differently now.
    pub(super) fn refresh_regexes(&mut self, turn: &mut Turn, topics: &dyn Topics) -> bool {
        let used: Vec<Arc<str>> = self.subscriptions.patterns().cloned().collect();
        let mut changed = false;
        let has = |regex: &&Arc<str>| self.subscriptions.has_pattern(regex);
        let unused: Vec<Arc<str>> = self.regexes.keys().filter(|regex| !has(regex)).cloned().collect();
        for regex in unused {
            self.write(turn, Record::Regex { group: turn.group.clone(), regex, value: None });
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
        for regex in used {
            let before = self.regexes.get(&regex);
            if before.is_some() && !due {
                continue;
            }
            // It was compiled before it was let in.
            let Ok(pattern) = compile(&regex, turn.config.limits.regex_bytes_max as usize) else { continue };
            let matched: BTreeSet<Arc<str>> = topics.names().filter(|name| pattern.is_match(name)).collect();
            if before.is_none_or(|before| before.topics != matched) {
                changed = true;
                let value = Some(Resolved { topics: matched, version, at: turn.now.wall });
                self.write(turn, Record::Regex { group: turn.group.clone(), regex, value });
            }
        }
        if due {
            self.regexes_seen = Some((version, turn.now.wall));
        }
        changed
    }
}

/// Matches whole names. RE2's syntax, as on Kafka, but for its escapes of single bytes.
pub(super) fn compile(regex: &str, bytes_max: usize) -> Result<regex::Regex, String> {
    let build = |pattern: &str| RegexBuilder::new(pattern).size_limit(bytes_max).dfa_size_limit(bytes_max).build();
    // Alone first: `a)|(b` is none, but would be one between the anchors.
    let whole = build(regex).and_then(|_| build(&format!("^(?:{regex})$")));
    // The last line says what is wrong; those before it draw where.
    whole.map_err(|error| error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned())
}
