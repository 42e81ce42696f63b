//! A producer at a given rate, whatever the broker does, and how long its acknowledgements take.
//!
//! A request's time counts from when it was *to be sent*, so that a stall counts for all that should have been sent during it.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use ringmain_batch::{Builder, Codec};
use ringmain_buffer::Buf;
use ringmain_types::ErrorCode;
use ringmain_wire::{PRODUCE, ProduceResponse};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::connection::{Connection, Frame};
use crate::producer::{self, PRODUCE_VERSION};

/// The shortest span whose p99 is told of its own.
pub const WINDOW: Duration = Duration::from_secs(10);
const RECORD_BYTES: usize = 1024;
const BATCH_RECORDS: usize = 16;
const LATENCY_MAX_US: u64 = 120_000_000;

/// Every request is one batch of 16 records of 1 KB, acknowledged by a flush.
pub struct Pacer<'a> {
    pub address: &'a str,
    pub topic: &'a str,
    /// As many connections, whose requests go to all of them in turn.
    pub partitions: usize,
    pub bytes_per_second: f64,
    /// What is going on: requests are counted by what it was when they were due.
    pub phase: &'a AtomicUsize,
    /// After this the broker may go; what is unanswered then counts with its age.
    pub stop: &'a AtomicBool,
}

/// Acknowledgements of one phase, in microseconds, by the window in which their requests were due.
pub struct Phase {
    began: Instant,
    pub windows: Vec<Histogram<u64>>,
}

struct Pending {
    due: Instant,
    phase: usize,
}

struct Line {
    connection: Connection,
    pending: VecDeque<Pending>,
}

struct Run<'a> {
    pacer: &'a Pacer<'a>,
    batch: Buf,
    lines: Vec<Line>,
    phases: Vec<Option<Phase>>,
}

impl Pacer<'_> {
    /// Until told to stop; by phase.
    pub fn run(&self) -> Result<Vec<Option<Phase>>, String> {
        let line = |_| Ok(Line { connection: Connection::open(self.address)?, pending: VecDeque::new() });
        let lines: io::Result<Vec<Line>> = (0..self.partitions).map(line).collect();
        let lines = lines.map_err(|e| format!("the pacer: {e}"))?;
        let mut builder = Builder::new(Codec::None, None);
        (0..BATCH_RECORDS).for_each(|_| builder.push(producer::now(), None, Some(&[b'.'; RECORD_BYTES]), &[]));
        let mut run = Run { pacer: self, batch: Buf::copy_of(&builder.encode()), lines, phases: Vec::new() };
        match run.go() {
            Err(error) if !self.stop.load(Ordering::Relaxed) => return Err(format!("the pacer: {error}")),
            _ => {}
        }
        let now = Instant::now();
        for line in 0..run.lines.len() {
            while let Some(pending) = run.lines[line].pending.pop_front() {
                run.count(&pending, now);
            }
        }
        Ok(run.phases)
    }
}

impl Run<'_> {
    fn go(&mut self) -> io::Result<()> {
        let gap = Duration::from_secs_f64(self.batch.len() as f64 / self.pacer.bytes_per_second);
        let (mut due, mut number) = (Instant::now(), 0);
        while !self.pacer.stop.load(Ordering::Relaxed) {
            while due <= Instant::now() {
                self.send(number, due)?;
                due += gap;
                number += 1;
            }
            for line in 0..self.lines.len() {
                while let Some(frame) = self.lines[line].connection.try_receive()? {
                    self.answered(line, &frame)?;
                }
            }
            self.wait(due)?;
        }
        Ok(())
    }

    fn send(&mut self, number: usize, due: Instant) -> io::Result<()> {
        let lines = self.lines.len();
        let line = &mut self.lines[number % lines];
        line.pending.push_back(Pending { due, phase: self.pacer.phase.load(Ordering::Relaxed) });
        // Each connection has requests for every partition.
        let partition = (number / lines + number) % self.pacer.partitions;
        producer::send(&mut line.connection, self.pacer.topic, [(partition, self.batch.clone())].into_iter())
    }

    fn answered(&mut self, line: usize, frame: &Frame) -> io::Result<()> {
        let now = Instant::now();
        let (_, reply): (i32, ProduceResponse<'_>) = frame.decode(&PRODUCE, PRODUCE_VERSION)?;
        let codes = reply
            .responses
            .iter()
            .flat_map(|topic| topic.partition_responses.iter().map(|p| p.error_code).collect::<Vec<_>>());
        if let Some(code) = codes.into_iter().find(|code| *code != ErrorCode::None) {
            return Err(io::Error::other(format!("{}: {code:?}", self.pacer.topic)));
        }
        let pending = self.lines[line].pending.pop_front().ok_or_else(|| io::Error::other("a reply to nothing"))?;
        self.count(&pending, now);
        Ok(())
    }

    fn count(&mut self, pending: &Pending, now: Instant) {
        if self.phases.len() <= pending.phase {
            self.phases.resize_with(pending.phase + 1, || None);
        }
        let phase = self.phases[pending.phase].get_or_insert(Phase { began: pending.due, windows: Vec::new() });
        let window = (pending.due.saturating_duration_since(phase.began).as_nanos() / WINDOW.as_nanos()) as usize;
        while phase.windows.len() <= window {
            phase.windows.push(Histogram::new_with_bounds(1, LATENCY_MAX_US, 3).expect("legal bounds"));
        }
        phase.windows[window].saturating_record(now.saturating_duration_since(pending.due).as_micros().max(1) as u64);
    }

    /// Until then, or until there is an answer.
    fn wait(&self, until: Instant) -> io::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut descriptors: Vec<PollFd<'_>> =
            self.lines.iter().map(|line| PollFd::new(&line.connection, PollFlags::IN)).collect();
        match poll(&mut descriptors, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Phase {
    /// All windows in one.
    pub fn whole(&self) -> Histogram<u64> {
        let mut whole = Histogram::new_with_bounds(1, LATENCY_MAX_US, 3).expect("legal bounds");
        self.windows.iter().for_each(|window| whole.add(window).expect("of the same bounds"));
        whole
    }

    /// The largest p99 of a window, in microseconds. A last one with less than half of the others' requests counts for nothing of
    /// its own.
    pub fn worst_p99(&self) -> u64 {
        let most = self.windows.iter().map(Histogram::len).max().unwrap_or_default();
        let full = self.windows.iter().filter(|window| window.len() * 2 >= most);
        full.map(|window| window.value_at_quantile(0.99)).max().unwrap_or_default()
    }
}
