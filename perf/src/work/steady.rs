//! What requests allocate in the steady state. No measurement: the counts that the broker's own tests take.

use std::io;
use std::process::{Command, Stdio};

use crate::bar::own_at_most;
use crate::figure::{Figures, Metric};
use crate::server::Peer;
use crate::sitting::{Workload, side};

/// "At most a handful" of the issue.
const HANDFUL: f64 = 5.0;

pub fn workload() -> Workload {
    Workload {
        name: "steady state".into(),
        what: "Allocations, counted by broker/shard/tests/broker/lean.rs: for a request beside what its turn takes (16 KiB Produce), and \
               for a record more in a batch."
            .into(),
        sides: vec![side("Ringmain", Peer::Command)],
        headline: Metric::AllocationsARequest,
        bars: vec![
            own_at_most("Ringmain", Metric::AllocationsARequest, HANDFUL),
            own_at_most("Ringmain", Metric::AllocationsARecord, 0.0),
        ],
        run: Box::new(|_, _| counts()),
    }
}

fn counts() -> io::Result<Figures> {
    let mut command = Command::new("cargo");
    command.args(["test", "--quiet", "--package", "ringmain-shard", "--test", "broker", "lean::", "--", "--nocapture"]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(io::Error::other(format!("the counting tests failed: {text}")));
    }
    let mut figures = Figures::default();
    for (metric, name) in [
        (Metric::AllocationsARequest, "allocations a Produce request"),
        (Metric::AllocationsARecord, "allocations a record"),
    ] {
        let most = counted(&text, name).ok_or_else(|| io::Error::other(format!("the tests counted no {name}")))?;
        figures.set(metric, most);
    }
    Ok(figures)
}

/// The greatest number in lines of `counted NAME: NUMBER`.
fn counted(text: &str, name: &str) -> Option<f64> {
    let number = |line: &str| {
        let (_, rest) = line.split_once("counted ")?;
        rest.strip_prefix(name)?.strip_prefix(": ")?.trim().parse::<f64>().ok()
    };
    text.lines().filter_map(number).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_count_is_taken() {
        let text = ".counted allocations a record: 0\ncounted allocations a record: 0.5\nok\n";
        assert_eq!((counted(text, "allocations a record"), counted(text, "flushes")), (Some(0.5), None));
    }
}
