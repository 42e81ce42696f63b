//! Whole histories: few here; `cargo xtask sim` runs many.

use ringmain_sim::{Plan, Report, Trace, World};

fn run(plan: Plan) -> Report {
    let seed = plan.seed;
    World::new(plan, Trace::default()).run().unwrap_or_else(|violation| panic!("seed {seed}: {violation:?}"))
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let mut digests = Vec::new();
    for seed in 1..=12 {
        let (first, second) = (run(Plan::draw(seed)), run(Plan::draw(seed)));
        assert_eq!((first.digest, first.steps), (second.digest, second.steps), "seed {seed}");
        digests.push(first.digest);
    }
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 12, "and another seed gives others");
}

#[test]
fn a_history_does_something() {
    let reports: Vec<Report> = (100..130).map(|seed| run(Plan::draw(seed))).collect();
    assert!(reports.iter().map(|report| report.acked).sum::<u64>() > 500);
    assert!(reports.iter().map(|report| report.read).sum::<u64>() > 500);
    assert!(reports.iter().map(|report| report.strikes.len()).max() > Some(2));
    // What nobody does breaks no promise: a compaction that removes nothing, a group that nobody joins.
    let reached = |what| reports.iter().filter_map(|report| report.reached.get(what)).sum::<u64>();
    for what in [
        "records compacted away",
        "groups: assignments received",
        "groups: generations joined",
        "groups: offsets of a new topic looked for",
        "long polls over several owners",
    ] {
        assert!(reached(what) > 0, "no history reached: {what}");
    }
}

#[test]
fn power_may_go_at_any_point() {
    for point in (1..400).step_by(23) {
        run(Plan::cut(7, point));
    }
}
