//! The measured part of a run.

/// In nanoseconds from the run's start. Before `from` everything warms up, behind `until` only what is open is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from: u64,
    pub until: u64,
    pub begun: bool,
    pub ended: bool,
}

impl Span {
    pub fn new(warm_up: u64, measure: u64) -> Span {
        Span { from: warm_up, until: warm_up + measure, begun: false, ended: false }
    }

    /// What comes in now counts for the rate.
    pub fn open(&self) -> bool {
        self.begun && !self.ended
    }

    /// What was due at `instant` counts for the latencies.
    pub fn holds(&self, instant: u64) -> bool {
        self.begun && instant >= self.from && instant < self.until
    }

    /// The edge that is next, if one is.
    pub fn edge(&self) -> Option<u64> {
        match (self.begun, self.ended) {
            (false, _) => Some(self.from),
            (_, false) => Some(self.until),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts() {
        let mut span = Span::new(10, 5);
        assert!(!span.open() && !span.holds(12) && span.edge() == Some(10));
        span.begun = true;
        assert!(span.open() && span.holds(10) && span.holds(14) && !span.holds(9) && !span.holds(15));
        span.ended = true;
        assert!(!span.open() && span.holds(14) && span.edge().is_none());
    }
}
