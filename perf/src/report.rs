//! The table, on the terminal and in `perf/results`.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use crate::bar::{Round, Verdict};
use crate::figure::{Figures, Metric};
use crate::machine::{Machine, load_average};
use crate::plot;
use crate::sitting::{Side, Workload};
use crate::spread::Spread;

/// One side of one workload in one round.
struct Entry {
    round: usize,
    /// In the list of workloads.
    workload: usize,
    label: String,
    figures: Figures,
}

pub struct Report<'a> {
    pub command: String,
    /// How servers and generator are placed, and what else a reader must know.
    pub notes: Vec<String>,
    /// Why this is not the whole table of the issue, as far as it is known before the first round.
    pub partial: Vec<String>,
    workloads: &'a [Workload],
    machine: Machine,
    load_before: String,
    rounds_wanted: usize,
    entries: Vec<Entry>,
    failures: Vec<String>,
}

impl<'a> Report<'a> {
    pub fn new(command: String, workloads: &'a [Workload], rounds_wanted: usize, directory: &Path) -> Report<'a> {
        Report {
            command,
            notes: Vec::new(),
            partial: Vec::new(),
            workloads,
            machine: Machine::read(directory),
            load_before: load_average(),
            rounds_wanted,
            entries: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Also says it, since a sitting takes long.
    pub fn add(&mut self, round: usize, workload: usize, side: &Side, figures: Figures) {
        println!("  {:<12} {}", side.label, line(&figures));
        self.entries.push(Entry { round, workload, label: side.label.clone(), figures });
    }

    pub fn fail(&mut self, round: usize, workload: usize, side: &Side, error: &io::Error) {
        let what = format!("round {}, {}, {}: {error}", round + 1, self.workloads[workload].name, side.label);
        println!("  FAILED {what}");
        self.failures.push(what);
    }

    pub fn failed(&self) -> bool {
        !self.failures.is_empty()
    }

    fn rounds(&self) -> usize {
        self.entries.iter().map(|entry| entry.round + 1).max().unwrap_or(0)
    }

    fn figures(&self, workload: usize, round: usize, label: &str) -> Option<&Figures> {
        let of = |entry: &&Entry| entry.workload == workload && entry.round == round && entry.label == label;
        self.entries.iter().find(of).map(|entry| &entry.figures)
    }

    /// Median and spread of one side's number over the rounds.
    pub fn spread(&self, workload: usize, label: &str, metric: Metric) -> Option<Spread> {
        let rounds = 0..self.rounds();
        Spread::of(rounds.filter_map(|round| self.figures(workload, round, label)?.get(metric)))
    }

    pub fn text(&self) -> String {
        let mut out = String::new();
        let Machine { processor, cpus, kernel, file_system, commit, date } = &self.machine;
        let _ = writeln!(out, "# Speed and size, {date}\n");
        let mut partial = self.partial.clone();
        if self.rounds() < self.rounds_wanted {
            partial.push(format!("{} of {} rounds were run", self.rounds(), self.rounds_wanted));
        }
        if self.failed() {
            partial.push("some runs failed, see below".into());
        }
        if !partial.is_empty() {
            let _ = writeln!(out, "**PARTIAL**: {}.\n", partial.join("; "));
        }
        let _ = writeln!(out, "`{}`\n", self.command);
        let _ = writeln!(out, "{processor}, {cpus} CPUs, kernel {kernel}, {file_system}; commit {commit}.");
        let _ = writeln!(out, "Load average {} before, {} after.", self.load_before, load_average());
        for note in &self.notes {
            let _ = writeln!(out, "{note}");
        }
        self.bars(&mut out);
        for failure in &self.failures {
            let _ = writeln!(out, "- FAILED: {failure}");
        }
        let _ = writeln!(
            out,
            "\n## Figures\n\nMedian (least-most) over the rounds; MB are 10^6 bytes of record batches; latencies of all rounds' medians."
        );
        for (number, workload) in self.workloads.iter().enumerate() {
            self.table(&mut out, number, workload);
        }
        self.each_round(&mut out);
        out
    }

    fn bars(&self, out: &mut String) {
        let _ = writeln!(out, "\n## Bars\n\nMedian (least-most) over {} rounds.\n", self.rounds());
        let _ = writeln!(out, "| work | bar | seen | |\n|---|---|---|---|");
        let (mut met, mut missed, mut open) = (0, 0, 0);
        for (number, workload) in self.workloads.iter().enumerate() {
            for bar in &workload.bars {
                let round = |round: usize| move |label: &str| self.figures(number, round, label);
                let rounds: Vec<_> = (0..self.rounds()).map(round).collect();
                let rounds: Vec<Round<'_>> = rounds.iter().map(|round| round as Round<'_>).collect();
                let (seen, word) = match bar.judge(&rounds) {
                    Verdict::Judged(true, seen) => (seen, "met"),
                    Verdict::Judged(false, seen) => (seen, "MISSED"),
                    Verdict::NotMeasured => (String::new(), "not measured"),
                };
                match word {
                    "met" => met += 1,
                    "MISSED" => missed += 1,
                    _ => open += 1,
                }
                let _ = writeln!(out, "| {} | {} | {seen} | {word} |", workload.name, bar.text);
            }
        }
        let _ = writeln!(out, "\n{met} met, {missed} missed, {open} not measured.");
    }

    fn table(&self, out: &mut String, number: usize, workload: &Workload) {
        let mut metrics: Vec<Metric> = Vec::new();
        for entry in self.entries.iter().filter(|entry| entry.workload == number) {
            for (metric, _) in entry.figures.iter() {
                if !metrics.contains(&metric) {
                    metrics.push(metric);
                }
            }
        }
        if metrics.is_empty() {
            return;
        }
        let headings: Vec<&str> = metrics.iter().map(|metric| metric.heading()).collect();
        let _ = writeln!(out, "\n### {}\n\n{}\n", workload.name, workload.what);
        let _ = writeln!(out, "| | {} |\n|---|{}", headings.join(" | "), "---|".repeat(headings.len()));
        for side in &workload.sides {
            let cell = |metric: &Metric| {
                let spread = self.spread(number, &side.label, *metric);
                spread.map_or(String::new(), |spread| spread.text(metric.decimals()))
            };
            let cells: Vec<String> = metrics.iter().map(cell).collect();
            if cells.iter().any(|cell| !cell.is_empty()) {
                let _ = writeln!(out, "| {} | {} |", side.label, cells.join(" | "));
            }
        }
    }

    fn each_round(&self, out: &mut String) {
        let _ = writeln!(out, "\n## Each round\n");
        for Entry { round, workload, label, figures } in &self.entries {
            let name = &self.workloads[*workload].name;
            let _ = writeln!(out, "- {}, {name}, {label}: {}", round + 1, line(figures));
        }
    }

    pub fn workloads(&self) -> &[Workload] {
        self.workloads
    }

    /// A name for `<directory>/<date>-speed.md` that no earlier result of the day has.
    pub fn path(&self, directory: &Path) -> PathBuf {
        let mut path = directory.join(format!("{}-speed.md", self.machine.date));
        let mut number = 2;
        while path.exists() {
            path = directory.join(format!("{}-speed-{number}.md", self.machine.date));
            number += 1;
        }
        path
    }

    /// Writes the table to `path` and the plots beside it.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let plots = path.with_extension("svg");
        plot::draw(self, &plots)?;
        let name = plots.file_name().unwrap_or_default().to_string_lossy();
        std::fs::write(path, format!("{}\n![plots]({name})\n", self.text()))
    }
}

/// Figures in one line.
pub fn line(figures: &Figures) -> String {
    let number = |(metric, value): (Metric, f64)| format!("{} {value:.*}", metric.heading(), metric.decimals());
    figures.iter().map(number).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bar::at_least;
    use crate::server::Peer;
    use crate::sitting::side;

    fn workloads() -> Vec<Workload> {
        vec![Workload {
            name: "w".into(),
            what: "What.".into(),
            sides: vec![side("a", Peer::Echo), side("b", Peer::Echo)],
            headline: Metric::Megabytes,
            bars: vec![at_least("a", "b", Metric::Megabytes, 0.8)],
            run: Box::new(|_, _| Ok(Figures::default())),
        }]
    }

    fn rate(megabytes: f64) -> Figures {
        let mut figures = Figures::default();
        figures.set(Metric::Megabytes, megabytes);
        figures
    }

    #[test]
    fn a_report_says_what_it_lacks() {
        let workloads = workloads();
        let mut report = Report::new("c".into(), &workloads, 2, Path::new("."));
        let (a, b) = (&workloads[0].sides[0], &workloads[0].sides[1]);
        report.add(0, 0, a, rate(80.0));
        assert!(report.text().contains("| w | MB/s: a >= 0.8 x b |  | not measured |"), "{}", report.text());
        assert!(report.text().contains("**PARTIAL**: 1 of 2 rounds were run."));
        report.add(0, 0, b, rate(100.0));
        report.add(1, 0, b, rate(100.0));
        report.add(1, 0, a, rate(90.0));
        assert!(report.text().contains("| w | MB/s: a >= 0.8 x b | 0.85 (0.80-0.90) x | met |"), "{}", report.text());
        assert!(!report.text().contains("PARTIAL"));
        report.fail(1, 0, a, &io::Error::other("broken"));
        assert!(report.text().contains("PARTIAL") && report.text().contains("FAILED: round 2, w, a: broken"));
    }
}
