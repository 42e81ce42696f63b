//! Runs histories: one readable, or many on all cores. A failing seed prints its command.
#![forbid(unsafe_code)]
// Worlds are single-threaded and know no real clock; this starts many of them side by side and measures how long they take.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use ringmain_sim::{Plan, Report, Strike, Trace, Violation, World};

const USAGE: &str = "\
--seed N [--cut P]    one history, readable; with its power cut at point P
--seeds FROM..TO      these, on all cores
--count K             K seeds from a random start
--cuts [--seed N]     a short history, once for every point at which power can be cut
--old-failures        the seeds in tools/sim/seeds.txt";

/// Every this many seeds runs twice, and both must be alike to the byte.
const TWICE_EVERY: u64 = 16;
/// More than these are not worth the wait.
const FAILURES_MAX: usize = 5;

/// Of the short history whose power is cut at every point: compaction replaces segments in it, and a topic comes and goes.
const CUTS_SEED: u64 = 2;

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        // Of the frames only ours.
        let trace = std::backtrace::Backtrace::force_capture().to_string();
        let lines: Vec<&str> = trace.lines().collect();
        let ours = lines.windows(2).filter(|pair| pair[1].trim_start().starts_with("at ./"));
        let ours: Vec<String> = ours.map(|pair| format!("{} {}", pair[0].trim(), pair[1].trim())).collect();
        let text = format!("{panic}\n{}", ours.join("\n"));
        PANIC.with(|slot| *slot.borrow_mut() = Some(text));
    }));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let passed = match words.as_slice() {
        ["--seed", seed] => number(seed).is_some_and(|seed| show(Plan::draw(seed))),
        ["--seed", seed, "--cut", point] => {
            number(seed).zip(number(point)).is_some_and(|(seed, point)| show(Plan::cut(seed, point)))
        }
        ["--seeds", range] => range
            .split_once("..")
            .and_then(|(from, to)| Some((number(from)?, number(to)?)))
            .is_some_and(|(from, to)| many(&(from..to).collect::<Vec<_>>())),
        ["--count", count] => number(count).is_some_and(fresh),
        ["--cuts"] => cuts(CUTS_SEED),
        ["--cuts", "--seed", seed] => number(seed).is_some_and(cuts),
        ["--old-failures"] => many(&old_failures()),
        _ => {
            eprintln!("{USAGE}");
            false
        }
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn number(text: &str) -> Option<u64> {
    text.replace('_', "").parse().ok()
}

fn old_failures() -> Vec<u64> {
    let lines = include_str!("../seeds.txt").lines();
    lines.filter_map(|line| number(line.split_whitespace().next()?)).collect()
}

fn fresh(count: u64) -> bool {
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    // Short enough to be typed.
    let base = clock.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    println!("seeds {base}..{}", base + count);
    many(&(base..base + count).collect::<Vec<_>>())
}

/// One history; a panic is a violation too.
fn run(plan: Plan, trace: Trace) -> Result<Report, Violation> {
    let seed = plan.seed;
    catch_unwind(AssertUnwindSafe(|| World::new(plan, trace).run())).unwrap_or_else(|_| {
        let text = PANIC.with(|slot| slot.borrow_mut().take()).unwrap_or_default();
        Err(Violation { seed, at_ns: 0, invariant: "no assertion fails".into(), text })
    })
}

fn show(plan: Plan) -> bool {
    println!(
        "seed {}: {} shards, {:?}, flush covers others: {}",
        plan.seed, plan.shards, plan.faults, plan.flush_covers
    );
    match run(plan, Trace { on: true }) {
        Ok(report) => {
            println!("digest {:016x}, {} steps, {} points", report.digest, report.steps, report.points);
            println!(
                "passed: {} acked, {} read, {} starts, {:?}, {:?}",
                report.acked, report.read, report.starts, report.strikes, report.reached
            );
            println!("slowest in peace, ns: {:?}", report.slowest_ns);
            true
        }
        Err(violation) => {
            print_violation(&violation);
            false
        }
    }
}

fn print_violation(violation: &Violation) {
    println!("VIOLATION at {:.6} ms: {}", violation.at_ns as f64 / 1e6, violation.invariant);
    println!("  {}", violation.text.trim_end().replace('\n', "\n  "));
}

/// What many histories have covered.
#[derive(Default)]
struct Tally {
    histories: u64,
    steps: u64,
    virtual_ns: u64,
    acked: u64,
    read: u64,
    starts: u64,
    reshards: u64,
    mesh: u64,
    operations: u64,
    flushes: u64,
    stalls: u64,
    reordered: u64,
    spared: u64,
    reused: u64,
    strikes: BTreeMap<Strike, u64>,
    reached: BTreeMap<&'static str, u64>,
    slowest_ns: BTreeMap<&'static str, u64>,
}

impl Tally {
    fn add(&mut self, report: &Report) {
        self.histories += 1;
        self.steps += report.steps;
        self.virtual_ns += report.virtual_ns;
        self.acked += report.acked;
        self.read += report.read;
        self.starts += u64::from(report.starts);
        self.reshards += u64::from(report.reshards);
        self.mesh += report.mesh;
        self.operations += report.disk.operations;
        self.flushes += report.disk.flushes;
        self.stalls += report.disk.stalls;
        self.reordered += report.disk.reordered;
        self.spared += report.disk.spared;
        self.reused += report.disk.reused;
        for (strike, count) in &report.strikes {
            *self.strikes.entry(*strike).or_default() += u64::from(*count);
        }
        for (what, count) in &report.reached {
            *self.reached.entry(what).or_default() += count;
        }
        for (name, ns) in &report.slowest_ns {
            let slowest = self.slowest_ns.entry(name).or_default();
            *slowest = (*slowest).max(*ns);
        }
    }

    fn print(&self, started: Instant) {
        let seconds = started.elapsed().as_secs_f64().max(1e-9);
        println!(
            "{} histories in {seconds:.1} s ({:.0}/s), {} steps, {} virtual s ({:.1} virtual s a second)",
            self.histories,
            self.histories as f64 / seconds,
            self.steps,
            self.virtual_ns / 1_000_000_000,
            self.virtual_ns as f64 / 1e9 / seconds
        );
        let strikes: Vec<_> = self.strikes.iter().map(|(strike, count)| format!("{strike:?} {count}")).collect();
        println!(
            "covered: {} acked, {} read, {} starts, {} with other shards; {}; disk {} operations, {} flushes, {} stalls, {} reordered, {} files made spare, {} used again; mesh {}",
            self.acked,
            self.read,
            self.starts,
            self.reshards,
            strikes.join(", "),
            self.operations,
            self.flushes,
            self.stalls,
            self.reordered,
            self.spared,
            self.reused,
            self.mesh
        );
        let reached: Vec<_> = self.reached.iter().map(|(what, count)| format!("{what} {count}")).collect();
        println!("reached: {}", reached.join(", "));
        let slowest = self.slowest_ns.iter().map(|(name, ns)| format!("{name} {:.0}", *ns as f64 / 1e6));
        println!("slowest in peace, ms beyond what was to wait: {}", slowest.collect::<Vec<_>>().join(", "));
    }
}

/// Runs `job` for 0.. on all cores until it says that there are no more, or enough have failed.
fn spread(
    job: impl Fn(u64) -> Option<Result<Report, (String, Violation)>> + Sync,
) -> (Tally, Vec<(String, Violation)>) {
    let next = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    let outcome = Mutex::new((Tally::default(), Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let Some(result) = job(next.fetch_add(1, Ordering::Relaxed)) else { break };
                    let mut outcome = outcome.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    match result {
                        Ok(report) => outcome.0.add(&report),
                        Err((command, violation)) => {
                            println!("{command}");
                            print_violation(&violation);
                            outcome.1.push((command, violation));
                            over.store(outcome.1.len() >= FAILURES_MAX, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    outcome.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn many(seeds: &[u64]) -> bool {
    let started = Instant::now();
    let (tally, failures) = spread(|at| {
        let seed = *seeds.get(at as usize)?;
        let failed = |violation| (format!("cargo xtask sim --seed {seed}"), violation);
        let result = run(Plan::draw(seed), Trace::default());
        Some(match result {
            Ok(report) if at.is_multiple_of(TWICE_EVERY) => match run(Plan::draw(seed), Trace::default()) {
                Ok(again) if again.digest == report.digest => Ok(report),
                other => {
                    let text = format!("{:016x}, then {:?}", report.digest, other.map(|report| report.digest));
                    let invariant = "the same seed gives the same digest".into();
                    Err(failed(Violation { seed, at_ns: 0, invariant, text }))
                }
            },
            result => result.map_err(failed),
        })
    });
    tally.print(started);
    println!("{} passed, {} failed", tally.histories, failures.len());
    print_failed("seeds", failures.iter().map(|(_, violation)| violation.seed.to_string()))
}

/// The last line says what failed, however much was printed since. True when nothing did.
fn print_failed(what: &str, failed: impl Iterator<Item = String>) -> bool {
    let failed: Vec<String> = failed.collect();
    if !failed.is_empty() {
        println!("failed: {what} {}", failed.join(", "));
    }
    failed.is_empty()
}

/// The same short history again and again, its power cut one point later each time, until there is no such point.
fn cuts(seed: u64) -> bool {
    let started = Instant::now();
    let (tally, failures) = spread(|at| {
        let point = at + 1;
        match run(Plan::cut(seed, point), Trace::default()) {
            Ok(report) if !report.cut => None,
            Ok(report) => Some(Ok(report)),
            Err(violation) => Some(Err((format!("cargo xtask sim --seed {seed} --cut {point}"), violation))),
        }
    });
    tally.print(started);
    println!(
        "power cut at {} points: {} passed, {} failed",
        tally.histories + failures.len() as u64,
        tally.histories,
        failures.len()
    );
    print_failed("histories:", failures.into_iter().map(|(command, _)| command)) && tally.histories > 0
}
