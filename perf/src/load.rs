//! A load of Produce requests, flat out or at a rate, and what came of it.

use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use ringmain_types::WallMs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::cpu;
use crate::sender::{Acked, Sender};
use crate::template::Template;

/// After the end, what is still unacknowledged may take this long.
const LAST_ACKS_MAX: Duration = Duration::from_secs(15);
const LATENCY_MAX_NS: u64 = 120_000_000_000;

#[derive(Clone, Debug)]
pub struct Load {
    pub address: String,
    pub topic: String,
    pub partitions: u32,
    pub connections: u32,
    pub record_bytes: usize,
    pub batch_bytes: usize,
    /// Unanswered requests a connection, at most; closed loop only.
    pub window: usize,
    /// Bytes of batches a second over all connections; `None`: closed loop, as fast as the window lets.
    pub rate: Option<f64>,
    /// Not measured.
    pub warm_up: Duration,
    pub measure: Duration,
    /// Whose CPU time to read.
    pub server_pid: Option<u32>,
}

/// Of the measured span.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub seconds: f64,
    /// Of acknowledged batches, as they stand in the log.
    pub bytes: u64,
    pub records: u64,
    /// 0 when no process was named.
    pub server_cpu_seconds: f64,
    pub own_cpu_seconds: f64,
    /// From when a request was to be sent to its acknowledgement, in nanoseconds.
    pub latency: Histogram<u64>,
}

impl Outcome {
    pub fn megabytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds / 1e6
    }
    pub fn records_per_second(&self) -> f64 {
        self.records as f64 / self.seconds
    }
    pub fn server_cpu_seconds_per_gigabyte(&self) -> f64 {
        self.server_cpu_seconds / (self.bytes as f64 / 1e9)
    }
    pub fn own_cpu_seconds_per_gigabyte(&self) -> f64 {
        self.own_cpu_seconds / (self.bytes as f64 / 1e9)
    }
    pub fn latency_ms(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1e6
    }
}

/// The spans of a run, in nanoseconds from its start, and the CPU times at their edges.
struct Span {
    from: u64,
    until: u64,
    begun: Option<(f64, f64)>,
    ended: Option<(f64, f64)>,
}

struct Run<'a> {
    load: &'a Load,
    template: Template,
    senders: Vec<Sender>,
    began: Instant,
    span: Span,
    /// Requests of the schedule that were queued; open loop only.
    scheduled: u64,
    bytes: u64,
    records: u64,
    latency: Histogram<u64>,
}

impl Load {
    /// Blocks this thread, which does all of the generator's work.
    pub fn run(&self) -> io::Result<Outcome> {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
        let template =
            Template::new(&self.topic, self.record_bytes, self.batch_bytes, WallMs(wall)).map_err(io::Error::other)?;
        let senders = (0..self.connections).map(|first| Sender::open(&self.address, first % self.partitions));
        let from = self.warm_up.as_nanos() as u64;
        let mut run = Run {
            load: self,
            template,
            senders: senders.collect::<io::Result<_>>()?,
            began: Instant::now(),
            span: Span { from, until: from + self.measure.as_nanos() as u64, begun: None, ended: None },
            scheduled: 0,
            bytes: 0,
            records: 0,
            latency: Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("legal bounds"),
        };
        run.turns()?;
        run.outcome()
    }

    fn cpu(&self) -> io::Result<(f64, f64)> {
        let server = self.server_pid.map_or(Ok(0.0), cpu::process_seconds)?;
        Ok((server, cpu::process_seconds(std::process::id())?))
    }
}

impl Run<'_> {
    fn turns(&mut self) -> io::Result<()> {
        let mut acked = Vec::new();
        loop {
            let now = self.now();
            self.edges(now)?;
            let over = self.span.ended.is_some();
            if over && self.senders.iter().all(|sender| sender.unacked() == 0) {
                return Ok(());
            }
            if now > self.span.until + LAST_ACKS_MAX.as_nanos() as u64 {
                return Err(io::Error::other(format!("requests stayed unanswered for {LAST_ACKS_MAX:?}")));
            }
            if !over {
                self.queue(now);
            }
            let mut progress = false;
            for sender in &mut self.senders {
                progress |= sender.send(&self.template)?;
            }
            for sender in &mut self.senders {
                if sender.unacked() > 0 {
                    sender.receive(&mut acked)?;
                }
            }
            if acked.is_empty() && !progress {
                self.sleep()?;
            }
            self.count(&mut acked);
        }
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn edges(&mut self, now: u64) -> io::Result<()> {
        if self.span.begun.is_none() && now >= self.span.from {
            self.span.begun = Some(self.load.cpu()?);
            // The edge is where the clocks were read.
            self.span.from = self.now();
            self.span.until = self.span.from + self.load.measure.as_nanos() as u64;
        }
        if self.span.ended.is_none() && now >= self.span.until {
            self.span.ended = Some(self.load.cpu()?);
            self.span.until = now;
        }
        Ok(())
    }

    fn queue(&mut self, now: u64) {
        let partitions = self.load.partitions;
        match self.load.rate {
            None => {
                for sender in &mut self.senders {
                    while sender.unacked() < self.load.window {
                        sender.queue(&self.template, partitions, now);
                    }
                }
            }
            // What is due is due, whether or not the one before was answered: a stall of the server must not thin out the
            // schedule. So there is no window here; what the kernel does not take waits in our queue, and its clock runs.
            Some(_) => {
                while self.due(self.scheduled) <= now {
                    let intended = self.due(self.scheduled);
                    let sender = (self.scheduled % self.senders.len() as u64) as usize;
                    self.senders[sender].queue(&self.template, partitions, intended);
                    self.scheduled += 1;
                }
            }
        }
    }

    /// When request `number` of an open loop is to be sent.
    fn due(&self, number: u64) -> u64 {
        let rate = self.load.rate.expect("only an open loop has a schedule");
        (number as f64 * self.template.records.len() as f64 / rate * 1e9) as u64
    }

    fn count(&mut self, acked: &mut Vec<Acked>) {
        if acked.is_empty() {
            return;
        }
        let now = self.now();
        let open = self.span.begun.is_some() && self.span.ended.is_none();
        for Acked { intended } in acked.drain(..) {
            if open {
                self.bytes += self.template.records.len() as u64;
                self.records += self.template.records_count;
            }
            if self.span.begun.is_some() && intended >= self.span.from && intended < self.span.until {
                self.latency.saturating_record(now.saturating_sub(intended).max(1));
            }
        }
    }

    /// Until a socket is ready, the next request is due, or the span's next edge.
    fn sleep(&self) -> io::Result<()> {
        let edge = match (self.span.begun, self.span.ended) {
            (None, _) => self.span.from,
            (_, None) => self.span.until,
            _ => self.span.until + LAST_ACKS_MAX.as_nanos() as u64,
        };
        let due = match self.load.rate {
            Some(_) if self.span.ended.is_none() => edge.min(self.due(self.scheduled)),
            _ => edge,
        };
        let left = due.saturating_sub(self.now());
        if left == 0 {
            return Ok(());
        }
        let timeout = Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
        let wanted = |sender: &Sender| match sender.blocked() {
            true => PollFlags::IN | PollFlags::OUT,
            false => PollFlags::IN,
        };
        let mut descriptors: Vec<PollFd<'_>> =
            self.senders.iter().map(|sender| PollFd::from_borrowed_fd(sender.descriptor(), wanted(sender))).collect();
        match poll(&mut descriptors, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn outcome(self) -> io::Result<Outcome> {
        let (Some(begun), Some(ended)) = (self.span.begun, self.span.ended) else {
            return Err(io::Error::other("the run ended before its span did"));
        };
        Ok(Outcome {
            seconds: (self.span.until - self.span.from) as f64 / 1e9,
            bytes: self.bytes,
            records: self.records,
            server_cpu_seconds: ended.0 - begun.0,
            own_cpu_seconds: ended.1 - begun.1,
            latency: self.latency,
        })
    }
}
