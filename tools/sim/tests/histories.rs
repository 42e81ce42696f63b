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
    let reports: Vec<Report> = (100..120).map(|seed| run(Plan::draw(seed))).collect();
    assert!(reports.iter().map(|report| report.acked).sum::<u64>() > 500);
    assert!(reports.iter().map(|report| report.read).sum::<u64>() > 500);
    assert!(reports.iter().map(|report| report.strikes.len()).max() > Some(2));
}

#[test]
fn power_may_go_at_any_point() {
    for point in (1..400).step_by(23) {
        run(Plan::cut(7, point));
    }
}
