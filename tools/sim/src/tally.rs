//! What many histories have covered, in a few lines: how much time they simulated, which faults struck, what was reached and what never was.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ringmain_sim::{Report, STATES};

/// So many histories can be expected to reach everything.
const EXPECTED_FROM: u64 = 2_000;

#[derive(Default)]
struct Fault {
    drawn: u64,
    reached: u64,
    hits: u64,
}

/// Of histories of one pace.
#[derive(Default)]
struct Pace {
    histories: u64,
    virtual_ns: u64,
    steps: u64,
    took: Duration,
}

#[derive(Default)]
pub struct Tally {
    pub histories: u64,
    /// Of all digests, whatever their order: two builds that should play the same histories can be held against each other.
    digest: u64,
    /// Those in which everybody takes his time apart from the others.
    paces: [Pace; 2],
    acked: u64,
    read: u64,
    starts: u64,
    operations: u64,
    flushes: u64,
    mesh: u64,
    faults: BTreeMap<&'static str, Fault>,
    reached: BTreeMap<&'static str, u64>,
    slowest_ns: BTreeMap<&'static str, u64>,
}

impl Tally {
    pub fn add(&mut self, report: &Report, took: Duration) {
        self.histories += 1;
        self.digest = self.digest.wrapping_add(report.digest);
        let pace = &mut self.paces[usize::from(report.paced)];
        pace.histories += 1;
        pace.virtual_ns += report.virtual_ns;
        pace.steps += report.steps;
        pace.took += took;
        self.acked += report.acked;
        self.read += report.read;
        self.starts += u64::from(report.starts);
        self.operations += report.disk.operations;
        self.flushes += report.disk.flushes;
        self.mesh += report.mesh;
        for fault in &report.faults {
            let known = self.faults.entry(fault.name).or_default();
            known.drawn += u64::from(fault.drawn);
            known.reached += u64::from(fault.drawn && fault.hits > 0);
            known.hits += fault.hits;
        }
        for (what, count) in &report.reached {
            *self.reached.entry(what).or_default() += count;
        }
        for (name, ns) in &report.slowest_ns {
            let slowest = self.slowest_ns.entry(name).or_default();
            *slowest = (*slowest).max(*ns);
        }
    }

    pub fn print(&self, started: Instant) {
        let seconds = started.elapsed().as_secs_f64().max(1e-9);
        let took: Duration = self.paces.iter().map(|pace| pace.took).sum();
        println!("{} histories in {seconds:.1} s ({:.0}/s)", self.histories, self.histories as f64 / seconds);
        let cpu = cpu_seconds().unwrap_or(took.as_secs_f64()).max(1e-9);
        // Cores that others use too: a history's share of the process's own time.
        let share = cpu / took.as_secs_f64().max(1e-9);
        for (pace, name) in self.paces.iter().zip(["moments", "hours"]).filter(|(pace, _)| pace.histories > 0) {
            let simulated = pace.virtual_ns as f64 / 1e9;
            println!(
                "  of {name}: {} histories, {} steps, {:.4} simulated years, {:.0} x real time on one core",
                pace.histories,
                pace.steps,
                simulated / 31_557_600.0,
                simulated / (pace.took.as_secs_f64() * share).max(1e-9)
            );
        }
        let simulated = self.paces.iter().map(|pace| pace.virtual_ns).sum::<u64>() as f64 / 1e9;
        println!(
            "simulated time / real time: {:.4} years in {cpu:.1} s of one core, {:.0} x; digests, added up: {:016x}",
            simulated / 31_557_600.0,
            simulated / cpu,
            self.digest
        );
        println!(
            "covered: {} acked, {} read, {} starts; disk {} operations, {} flushes; mesh {}",
            self.acked, self.read, self.starts, self.operations, self.flushes, self.mesh
        );
        let fault = |(name, fault): (&&str, &Fault)| format!("{name} {}/{}/{}", fault.drawn, fault.reached, fault.hits);
        let faults: Vec<_> = self.faults.iter().map(fault).collect();
        println!("faults (histories that drew it / in which it came / times): {}", faults.join(", "));
        let reached: Vec<_> = self.reached.iter().map(|(what, count)| format!("{what} {count}")).collect();
        println!("reached: {}", reached.join(", "));
        let slowest = self.slowest_ns.iter().map(|(name, ns)| format!("{name} {:.0}", *ns as f64 / 1e6));
        println!("slowest in peace, ms beyond what was to wait: {}", slowest.collect::<Vec<_>>().join(", "));
        self.print_missed();
    }

    /// A fault that never strikes and a state that nobody gets into are not tested.
    fn print_missed(&self) {
        let states = STATES.iter().filter(|state| !self.reached.contains_key(*state)).copied();
        let faults = self.faults.iter().filter(|(_, fault)| fault.hits == 0).map(|(name, _)| *name);
        let missed: Vec<&str> = states.chain(faults).collect();
        if missed.is_empty() {
            println!("never: nothing; all {} states and {} faults were reached", STATES.len(), self.faults.len());
        } else if self.histories >= EXPECTED_FROM {
            println!("NEVER REACHED: {}", missed.join(", "));
        } else {
            println!("never, in so few histories: {}", missed.join(", "));
        }
    }
}

/// What the process has used of all cores, by the kernel's account.
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Behind the name, which may hold anything: user and system time are fields 14 and 15 of proc(5), in hundredths of a second.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some((ticks(11)? + ticks(12)?) as f64 / 100.0)
}
