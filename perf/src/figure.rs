//! What is measured, one number each.

use ringmain_load::Outcome;

/// A kind of number: a column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    Megabytes,
    Messages,
    Requests,
    CpuGigabyte,
    CpuMessage,
    RequestsACpuSecond,
    P50,
    P99,
    P999,
    Max,
    Flushes,
    Create,
    Restart,
    IdleCpu,
    Resident,
    Connection,
    Partition,
    AllocationsARequest,
    AllocationsARecord,
    ServerCpu,
    OwnCpu,
}

impl Metric {
    pub fn heading(self) -> &'static str {
        match self {
            Metric::Megabytes => "MB/s",
            Metric::Messages => "k msg/s",
            Metric::Requests => "k requests/s",
            Metric::CpuGigabyte => "server CPU s/GB",
            Metric::CpuMessage => "server CPU us/msg",
            Metric::RequestsACpuSecond => "k requests/server CPU s",
            Metric::P50 => "p50 ms",
            Metric::P99 => "p99 ms",
            Metric::P999 => "p99.9 ms",
            Metric::Max => "max ms",
            Metric::Flushes => "flushes/s",
            Metric::Create => "created in s",
            Metric::Restart => "restarted in s",
            Metric::IdleCpu => "idle CPU % of a core",
            Metric::Resident => "idle MiB",
            Metric::Connection => "KiB/connection",
            Metric::Partition => "KiB/partition",
            Metric::AllocationsARequest => "allocations/request",
            Metric::AllocationsARecord => "allocations/record",
            Metric::ServerCpu => "server CPU, cores",
            Metric::OwnCpu => "generator CPU, cores",
        }
    }

    pub fn decimals(self) -> usize {
        match self {
            Metric::Megabytes | Metric::Flushes => 0,
            Metric::Messages | Metric::Requests | Metric::RequestsACpuSecond | Metric::Resident => 1,
            Metric::Connection | Metric::Partition => 1,
            _ => 2,
        }
    }
}

/// What one side of a workload gave in one round.
#[derive(Clone, Debug, Default)]
pub struct Figures(Vec<(Metric, f64)>);

impl Figures {
    pub fn set(&mut self, metric: Metric, value: f64) {
        self.0.retain(|(known, _)| *known != metric);
        self.0.push((metric, value));
    }

    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.0.iter().find(|(known, _)| *known == metric).map(|(_, value)| *value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Metric, f64)> {
        self.0.iter().copied()
    }

    /// Rate and CPU time of the part `name`.
    pub fn flow(outcome: &Outcome, name: &str) -> Figures {
        let tally = outcome.tally(name);
        let gigabytes = tally.bytes as f64 / 1e9;
        let mut figures = Figures::default();
        figures.set(Metric::Megabytes, tally.bytes as f64 / outcome.seconds / 1e6);
        figures.set(Metric::Messages, tally.records as f64 / outcome.seconds / 1e3);
        figures.set(Metric::CpuGigabyte, outcome.server_cpu_seconds / gigabytes);
        figures.with_latency(outcome, name).with_cpu(outcome)
    }

    pub fn with_latency(mut self, outcome: &Outcome, name: &str) -> Figures {
        let tally = outcome.tally(name);
        self.set(Metric::P50, tally.latency_ms(0.5));
        self.set(Metric::P99, tally.latency_ms(0.99));
        self.set(Metric::P999, tally.latency_ms(0.999));
        self.set(Metric::Max, tally.latency.max() as f64 / 1e6);
        self
    }

    /// CPU time of both sides over the span, to be compared.
    pub fn with_cpu(mut self, outcome: &Outcome) -> Figures {
        self.set(Metric::ServerCpu, outcome.server_cpu_seconds / outcome.seconds);
        self.set(Metric::OwnCpu, outcome.own_cpu_seconds / outcome.seconds);
        self
    }
}
