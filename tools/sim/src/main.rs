//! Runs histories: one readable, or many on all cores. A failing seed prints its command.
#![forbid(unsafe_code)]
// Worlds are single-threaded and know no real clock; this starts many of them side by side and measures how long they take.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use ringmain_sim::{Less, Plan, Report, Trace, Violation, WIDE_FROM, World};

mod shrink;
mod tally;

use tally::Tally;

/// A seed, what was to be said of its history, and what broke.
type Broken = (u64, String, Violation);

const USAGE: &str = "\
--seed N [--cut P]    one history, readable; with its power cut at point P
--seed N --less WHAT  what a shrunk one left of it
--shrink N [SECONDS]  makes a failing history smaller while it fails, for two minutes, and shows what is left
--seeds FROM..TO      these, on all cores
--count K             K seeds from a random start
--cuts [--seed N]     a short history, once for every point at which power can be cut
--old-failures        the seeds in tools/sim/seeds.txt
--hunt N              until something fails: N seeds, narrow and wide ones in turn, then cuts and old failures";

/// Every so many seeds one runs twice, and both must be alike to the byte; of many seeds, about this many do.
const TWICE_EVERY: u64 = 16;
const TWICE: u64 = 500;
/// More than these are not worth the wait.
const FAILURES_MAX: usize = 5;

const SHRINK_SECONDS: u64 = 120;

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
        ["--seed", seed, "--less", less] => {
            number(seed).zip(Less::parse(less)).is_some_and(|(seed, less)| show(shrink::plan(seed, &less)))
        }
        ["--shrink", seed] => number(seed).is_some_and(|seed| shrunk(seed, SHRINK_SECONDS)),
        ["--shrink", seed, seconds] => {
            number(seed).zip(number(seconds)).is_some_and(|(seed, seconds)| shrunk(seed, seconds))
        }
        ["--seeds", range] => range
            .split_once("..")
            .and_then(|(from, to)| Some((number(from)?, number(to)?)))
            .is_some_and(|(from, to)| many(&(from..to).collect::<Vec<_>>())),
        ["--count", count] => number(count).is_some_and(fresh),
        ["--cuts"] => cuts(CUTS_SEED),
        ["--cuts", "--seed", seed] => number(seed).is_some_and(cuts),
        ["--old-failures"] => many(&old_failures()),
        ["--hunt", count] => number(count).is_some_and(hunt),
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
    let base = WIDE_FROM + (clock.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32);
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

fn shrunk(seed: u64, seconds: u64) -> bool {
    shrink::shrink(seed, Duration::from_secs(seconds), &|plan, trace| run(plan, trace).err())
}

fn show(plan: Plan) -> bool {
    println!(
        "seed {}: {} shards, {:?}, flush covers others: {}",
        plan.seed, plan.shards, plan.faults, plan.flush_covers
    );
    match run(plan, Trace::Printed) {
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

/// Runs `job` for 0.. on all cores until it says that there are no more, or enough have failed. Failures in the order of their numbers.
fn spread(
    failures_max: usize,
    job: impl Fn(u64) -> Option<Result<Report, (String, Violation)>> + Sync,
) -> (Tally, Vec<(u64, String, Violation)>) {
    let next = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    let outcome: Mutex<(Tally, Vec<Broken>)> = Mutex::default();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(result) = job(at) else { break };
                    let took = began.elapsed();
                    let mut outcome = outcome.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    match result {
                        Ok(report) => outcome.0.add(&report, took),
                        Err((command, violation)) => {
                            println!("{command}");
                            print_violation(&violation);
                            outcome.1.push((at, command, violation));
                            over.store(outcome.1.len() >= failures_max, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let mut outcome = outcome.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    outcome.1.sort_by_key(|(at, ..)| *at);
    outcome
}

fn many(seeds: &[u64]) -> bool {
    let started = Instant::now();
    let twice_every = TWICE_EVERY.max(seeds.len() as u64 / TWICE);
    let (tally, failures) = spread(FAILURES_MAX, |at| {
        let seed = *seeds.get(at as usize)?;
        let failed = |violation| (format!("cargo xtask sim --seed {seed}"), violation);
        let result = run(Plan::draw(seed), Trace::default());
        Some(match result {
            Ok(report) if at.is_multiple_of(twice_every) => match run(Plan::draw(seed), Trace::default()) {
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
    print_failed("seeds", failures.iter().map(|(.., violation)| violation.seed.to_string()))
}

/// The last line says what failed, however much was printed since. True when nothing did.
fn print_failed(what: &str, failed: impl Iterator<Item = String>) -> bool {
    let failed: Vec<String> = failed.collect();
    if !failed.is_empty() {
        println!("failed: {what} {}", failed.join(", "));
    }
    failed.is_empty()
}

/// For a tree with a bug in it: what finds it, and after how many histories, in one line. False when something did.
fn hunt(count: u64) -> bool {
    let seed_at = |at: u64| if at.is_multiple_of(2) { at / 2 } else { WIDE_FROM + at / 2 };
    let seeds: Vec<u64> = (0..count).map(seed_at).collect();
    let old = old_failures();
    let cut = |at: u64| {
        let result = run(Plan::cut(CUTS_SEED, at + 1), Trace::default());
        result.map(|report| report.cut.then_some(report)).transpose()
    };
    let nth = |seeds: &[u64], at: u64| Some(run(Plan::draw(*seeds.get(at as usize)?), Trace::default()));
    type Source<'a> = (&'static str, &'static str, Box<dyn Fn(u64) -> Option<Result<Report, Violation>> + Sync + 'a>);
    let sources: [Source<'_>; 3] = [
        ("seeds", "seed", Box::new(|at| nth(&seeds, at))),
        ("cuts", "cut", Box::new(cut)),
        ("old failures", "seed", Box::new(|at| nth(&old, at))),
    ];
    let mut before = Vec::new();
    for (many, one, source) in sources {
        let number = |at: u64, violation: &Violation| if one == "cut" { at + 1 } else { violation.seed };
        let (tally, failures) = spread(1, |at| {
            let named = |violation: Violation| (format!("{one} {}", number(at, &violation)), violation);
            Some(source(at)?.map_err(named))
        });
        if let Some((at, what, violation)) = failures.first() {
            before.push(format!("{} {many}", at + 1));
            println!("FOUND after {}: {what}: {}", before.join(" and "), violation.invariant);
            return false;
        }
        before.push(format!("{} {many}", tally.histories));
    }
    println!("NOT FOUND by {}", before.join(", "));
    true
}

/// The same short history again and again, its power cut one point later each time, until there is no such point.
fn cuts(seed: u64) -> bool {
    let started = Instant::now();
    let (tally, failures) = spread(FAILURES_MAX, |at| {
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
    print_failed("histories:", failures.into_iter().map(|(_, command, _)| command)) && tally.histories > 0
}
