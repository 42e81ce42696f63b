//! A readable history, when asked for: on standard output, or its end kept for whoever wants it afterwards.

use std::cell::RefCell;
use std::collections::VecDeque;

/// As many lines as somebody reads.
const KEPT_MAX: usize = 250;
/// A line's length, then.
const LINE_MAX: usize = 220;

thread_local! {
    static KEPT: RefCell<VecDeque<String>> = const { RefCell::new(VecDeque::new()) };
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trace {
    #[default]
    Off,
    Printed,
    /// The last lines, without those that every request and every operation of a disk has.
    Kept,
}

impl Trace {
    /// Virtual time in milliseconds, who, what. Nothing is formatted when nobody reads.
    pub fn line(&self, now_ns: u64, who: impl FnOnce() -> String, what: impl FnOnce() -> String) {
        if *self == Trace::Off {
            return;
        }
        let what = what();
        let dull = [
            "disk ",
            "note Request",
            "note Traffic",
            "note Acked",
            "note Image",
            "note Log",
            "note Visible",
            "note Group",
        ];
        if *self == Trace::Kept && dull.iter().any(|dull| what.starts_with(dull)) {
            return;
        }
        let line = format!("{:>12.6} {:<14} {what}", now_ns as f64 / 1e6, who());
        match self {
            Trace::Kept => KEPT.with_borrow_mut(|kept| {
                kept.push_back(line.chars().take(LINE_MAX).collect());
                kept.drain(..kept.len().saturating_sub(KEPT_MAX));
            }),
            _ => println!("{line}"),
        }
    }
}

/// What `Kept` has kept of this thread's last history.
pub fn kept() -> Vec<String> {
    KEPT.with_borrow_mut(|kept| kept.drain(..).collect())
}
