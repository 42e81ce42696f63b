//! Makes a failing seed's history smaller as long as the same promise is broken, and shows what is left.
//!
//! Greedy: one thing after the other is taken out for good when the history still fails without it, the large ones first, until nothing
//! more goes. Since the course of a history shifts with everything that is taken out, each attempt gets a few courses.

use std::time::{Duration, Instant};

use ringmain_sim::{CALMED, Less, Plan, Trace, Violation, kept};

/// Courses of one attempt: the one that failed last, and others.
const COURSES: u64 = 8;

struct Shrink<'a> {
    seed: u64,
    until: Instant,
    run: &'a dyn Fn(Plan, Trace) -> Option<Violation>,
    invariant: String,
    tried: u64,
}

/// The smallest history that was found, with its trace; false when the seed does not fail.
pub fn shrink(seed: u64, time: Duration, run: &dyn Fn(Plan, Trace) -> Option<Violation>) -> bool {
    let until = Instant::now() + time;
    let Some(first) = run(plan(seed, &Less::default()), Trace::Off) else {
        println!("seed {seed} passes: there is nothing to shrink");
        return false;
    };
    println!("seed {seed} breaks \"{}\" at {:.3} ms", first.invariant, first.at_ns as f64 / 1e6);
    let mut shrink = Shrink { seed, until, run, invariant: first.invariant.clone(), tried: 1 };
    let (less, violation) = shrink.down(Less::default(), first);
    println!("after {} histories, left out of it: {less}", shrink.tried);
    println!("cargo xtask sim --seed {seed} --less {less}");
    let _ = kept();
    run(plan(seed, &less), Trace::Kept);
    for line in kept() {
        println!("{line}");
    }
    println!("VIOLATION at {:.6} ms: {}\n  {}", violation.at_ns as f64 / 1e6, violation.invariant, violation.text);
    true
}

pub fn plan(seed: u64, less: &Less) -> Plan {
    let mut plan = Plan::draw(seed);
    less.apply(&mut plan);
    plan
}

impl Shrink<'_> {
    fn down(&mut self, mut less: Less, mut violation: Violation) -> (Less, Violation) {
        loop {
            let before = less.clone();
            for idea in self.ideas(&before, &violation) {
                // What an earlier idea of this round took out stays out.
                let mut wanted = less.clone();
                idea(&mut wanted);
                if wanted == less || Instant::now() > self.until {
                    continue;
                }
                if let Some(found) = self.attempt(wanted) {
                    (less, violation) = found;
                }
            }
            if less == before || Instant::now() > self.until {
                return (less, violation);
            }
        }
    }

    /// One attempt, on several courses.
    fn attempt(&mut self, less: Less) -> Option<(Less, Violation)> {
        let salts = std::iter::once(less.salt).chain((1..COURSES).map(Some));
        for salt in salts {
            if Instant::now() > self.until {
                return None;
            }
            let less = Less { salt, ..less.clone() };
            self.tried += 1;
            let broken = (self.run)(plan(self.seed, &less), Trace::Off);
            if let Some(broken) = broken.filter(|broken| broken.invariant == self.invariant) {
                return Some((less, broken));
            }
        }
        None
    }

    /// What may be taken out next; each idea is about whatever is left by then.
    fn ideas(&self, less: &Less, violation: &Violation) -> Vec<Idea> {
        let whole = plan(self.seed, less);
        let mut ideas: Vec<Idea> = Vec::new();
        let spent_us = (whole.chaos_ns / 1_000).min(violation.at_ns / 1_000);
        lower(&mut ideas, |less| &mut less.chaos_us, less.chaos_us.unwrap_or(spent_us));
        for client in (1..whole.clients()).filter(|client| !less.clients.contains(client)) {
            ideas.push(Box::new(move |less| _ = less.clients.insert(client)));
        }
        for (strike, _) in whole.faults.strikes().into_iter().filter(|(_, mean_ns)| *mean_ns > 0) {
            ideas.push(Box::new(move |less| _ = less.strikes.insert(strike)));
        }
        let shown = |plan: &Plan| format!("{:?} {} {} {}", plan.faults, plan.reshards, plan.rots, plan.misdirects);
        for what in CALMED {
            let mut without = less.clone();
            without.calmed.insert(what);
            // Not what the seed has not.
            if shown(&plan(self.seed, &without)) != shown(&whole) {
                ideas.push(Box::new(move |less| _ = less.calmed.insert(what)));
            }
        }
        for topic in 1..=whole.work.topics as usize {
            ideas.push(Box::new(move |less| _ = less.topics.insert(topic)));
        }
        let (work, groups) = (&whole.work, &whole.work.groups);
        let rounds = work.churn_rounds.max(work.trims).max(groups.commits).max(groups.whims);
        lower(&mut ideas, |less| &mut less.shards, u64::from(whole.shards));
        lower(&mut ideas, |less| &mut less.values, less.values.unwrap_or(work.values.1));
        lower(&mut ideas, |less| &mut less.rounds, u64::from(rounds));
        lower(&mut ideas, |less| &mut less.each, u64::from(whole.faults.each_max));
        ideas
    }
}

/// Takes something out.
type Idea = Box<dyn Fn(&mut Less)>;

/// A number that stands at `now`: all but one, most, half, a quarter less.
fn lower(ideas: &mut Vec<Idea>, field: fn(&mut Less) -> &mut Option<u64>, now: u64) {
    let mut before = now;
    for to in [1, now / 4, now / 2, now * 3 / 4] {
        if to > 0 && to < now && to != before {
            ideas.push(Box::new(move |less| {
                let field = field(less);
                *field = Some(field.map_or(to, |known| known.min(to)));
            }));
        }
        before = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_failure_does_not_need_goes() {
        // It fails as long as client 1 is there, on every course but the third.
        let fails = |plan: Plan, _: Trace| {
            let broken = !plan.less.clients.contains(&1) && plan.less.salt != Some(3);
            let violation =
                Violation { seed: 7, at_ns: 2_000_000_000, invariant: "it works".into(), text: "no".into() };
            broken.then_some(violation)
        };
        let mut shrink = Shrink {
            seed: 7,
            until: Instant::now() + Duration::from_secs(600),
            run: &fails,
            invariant: "it works".into(),
            tried: 0,
        };
        let first = fails(plan(7, &Less::default()), Trace::Off).expect("nothing is taken out of it");
        let (less, _) = shrink.down(Less::default(), first);
        let clients: Vec<usize> = less.clients.iter().copied().collect();
        assert_eq!(clients, (2..Plan::draw(7).clients()).collect::<Vec<_>>());
        assert_eq!((less.values, less.chaos_us), (Some(1), Some(1)));
        assert!(
            plan(7, &less)
                .faults
                .strikes()
                .iter()
                .all(|(strike, mean_ns)| *mean_ns == 0 || less.strikes.contains(strike))
        );
    }
}
