//! The table, on the terminal and in `perf/results`.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use crate::first_speed::Pair;
use crate::load::Outcome;
use crate::machine::{Machine, load_average};
use crate::spread::Spread;
use crate::workload::Workload;

/// A bar of issue 3 and what it is measured on.
struct Bar {
    text: &'static str,
    applies: fn(&Workload) -> bool,
    ratio: fn(&Pair) -> f64,
    met: fn(f64) -> bool,
}

const BARS: &[Bar] = &[
    Bar {
        text: "durable publish >= 0.5 x the probe's",
        applies: |workload| workload.rate.is_none(),
        ratio: |pair| pair.ringmain.megabytes_per_second() / pair.probe.megabytes_per_second(),
        met: |ratio| ratio >= 0.5,
    },
    Bar {
        text: "server CPU a GB <= 2 x the probe's",
        applies: |workload| workload.rate.is_none(),
        ratio: |pair| pair.ringmain.server_cpu_seconds_per_gigabyte() / pair.probe.server_cpu_seconds_per_gigabyte(),
        met: |ratio| ratio <= 2.0,
    },
    Bar {
        text: "ack p99 <= 3 x the probe's",
        applies: |workload| workload.rate.is_some(),
        ratio: |pair| pair.ringmain.latency_ms(0.99) / pair.probe.latency_ms(0.99),
        met: |ratio| ratio <= 3.0,
    },
];

pub struct Report {
    pub command: String,
    /// How server and generator threads are placed, and what else a reader must know.
    pub notes: Vec<String>,
    machine: Machine,
    load_before: String,
    rounds: Vec<(usize, Pair)>,
}

impl Report {
    pub fn new(command: String, notes: Vec<String>, directory: &Path) -> Report {
        Report { command, notes, machine: Machine::read(directory), load_before: load_average(), rounds: Vec::new() }
    }

    /// Also says it, since a sitting takes minutes.
    pub fn add(&mut self, round: usize, pair: Pair) {
        println!("round {}, {} (load {})", round + 1, pair.workload.name, load_average());
        println!("  Ringmain {}", line(&pair.ringmain));
        println!("  probe    {}", line(&pair.probe));
        self.rounds.push((round, pair));
    }

    fn workloads(&self) -> Vec<&'static Workload> {
        let mut workloads: Vec<&'static Workload> = Vec::new();
        for (_, pair) in &self.rounds {
            if !workloads.iter().any(|known| std::ptr::eq(*known, pair.workload)) {
                workloads.push(pair.workload);
            }
        }
        workloads
    }

    fn pairs<'a>(&'a self, workload: &'a Workload) -> impl Iterator<Item = &'a Pair> {
        self.rounds.iter().map(|(_, pair)| pair).filter(move |pair| std::ptr::eq(pair.workload, workload))
    }

    pub fn text(&self) -> String {
        let mut out = String::new();
        let Machine { processor, cpus, kernel, file_system, commit, date } = &self.machine;
        let _ = writeln!(out, "# First speed, {date}\n");
        let _ = writeln!(out, "`{}`\n", self.command);
        let _ = writeln!(out, "{processor}, {cpus} CPUs, kernel {kernel}, {file_system}; commit {commit}.");
        let _ = writeln!(out, "Load average {} before, {} after.", self.load_before, load_average());
        for note in &self.notes {
            let _ = writeln!(out, "{note}");
        }
        self.bars(&mut out);
        self.figures(&mut out);
        self.each_round(&mut out);
        out
    }

    fn bars(&self, out: &mut String) {
        let _ = writeln!(out, "\n## Bars\n\nRatios Ringmain / probe: median (least-most) over the rounds.\n");
        let _ = writeln!(out, "| work | bar | ratio | |\n|---|---|---|---|");
        let mut missed: Vec<String> = Vec::new();
        for workload in self.workloads() {
            for bar in BARS.iter().filter(|bar| (bar.applies)(workload)) {
                let Some(ratio) = Spread::of(self.pairs(workload).map(bar.ratio)) else { continue };
                let met = (bar.met)(ratio.median);
                if !met {
                    missed.push(format!("{}: {}, it is {:.2} x", workload.name, bar.text, ratio.median));
                }
                let word = if met { "met" } else { "MISSED" };
                let _ = writeln!(out, "| {} | {} | {} | {word} |", workload.name, bar.text, ratio.text(2));
            }
        }
        let _ = match missed.as_slice() {
            [] => writeln!(out, "\nAll bars are met."),
            missed => writeln!(out, "\nMissed: {}.", missed.join("; ")),
        };
    }

    fn figures(&self, out: &mut String) {
        let _ = writeln!(
            out,
            "\n## Figures\n\nMedian (least-most); MB are 10^6 bytes of record batches; latencies in ms.\n"
        );
        let _ = writeln!(
            out,
            "| work | server | MB/s | k msg/s | server CPU s/GB | ack p50 | p99 | p99.9 | generator CPU s/GB |\n|---|---|---|---|---|---|---|---|---|"
        );
        for workload in self.workloads() {
            for (name, side) in SIDES {
                let of = |figure: fn(&Outcome) -> f64, decimals: usize| {
                    let spread = Spread::of(self.pairs(workload).map(|pair| figure(side(pair))));
                    spread.map_or(String::new(), |spread| spread.text(decimals))
                };
                let _ = writeln!(
                    out,
                    "| {} | {name} | {} | {} | {} | {} | {} | {} | {} |",
                    workload.name,
                    of(Outcome::megabytes_per_second, 0),
                    of(|outcome| outcome.records_per_second() / 1e3, 0),
                    of(Outcome::server_cpu_seconds_per_gigabyte, 2),
                    of(|outcome| outcome.latency_ms(0.5), 2),
                    of(|outcome| outcome.latency_ms(0.99), 2),
                    of(|outcome| outcome.latency_ms(0.999), 2),
                    of(Outcome::own_cpu_seconds_per_gigabyte, 2),
                );
            }
        }
    }

    fn each_round(&self, out: &mut String) {
        let _ = writeln!(out, "\n## Each round\n");
        for (round, pair) in &self.rounds {
            for (name, side) in SIDES {
                let _ = writeln!(out, "- {}, {}, {name}: {}", round + 1, pair.workload.name, line(side(pair)));
            }
        }
    }

    /// Writes `<directory>/<date>-<name>.md`, beside earlier ones of the day.
    pub fn write(&self, directory: &Path, name: &str) -> io::Result<PathBuf> {
        std::fs::create_dir_all(directory)?;
        let mut path = directory.join(format!("{}-{name}.md", self.machine.date));
        let mut number = 2;
        while path.exists() {
            path = directory.join(format!("{}-{name}-{number}.md", self.machine.date));
            number += 1;
        }
        std::fs::write(&path, self.text())?;
        Ok(path)
    }
}

type Side = (&'static str, fn(&Pair) -> &Outcome);
const SIDES: [Side; 2] = [("Ringmain", |pair| &pair.ringmain), ("probe", |pair| &pair.probe)];

/// One run in one line.
pub fn line(outcome: &Outcome) -> String {
    format!(
        "{:.0} MB/s, {:.1} k msg/s; CPU s/GB: server {:.3}, generator {:.3}; ack ms: p50 {:.3}, p99 {:.3}, p99.9 {:.3}, max {:.3}",
        outcome.megabytes_per_second(),
        outcome.records_per_second() / 1e3,
        outcome.server_cpu_seconds_per_gigabyte(),
        outcome.own_cpu_seconds_per_gigabyte(),
        outcome.latency_ms(0.5),
        outcome.latency_ms(0.99),
        outcome.latency_ms(0.999),
        outcome.latency.max() as f64 / 1e6,
    )
}
