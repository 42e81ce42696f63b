//! A run: all connections of a load on one thread, by readiness, until the span is over and what is open is answered.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::{Connection, Span, Tally, cpu};

/// After the end, what is still unanswered may take this long.
const LAST_ANSWERS_MAX: Duration = Duration::from_secs(15);
const EVENTS: usize = 256;

/// A part of a load: some connections and what they do.
pub trait Actor {
    /// Queues what is due; not called after the end of the span.
    fn act(&mut self, now: u64);
    /// Takes what has arrived at a connection.
    fn receive(&mut self, connection: usize, now: u64, span: &Span) -> io::Result<()>;
    /// When `act` has something to do next, if the clock says so.
    fn due(&self) -> Option<u64>;
    /// After the end: something is still to come.
    fn waiting(&self) -> bool;
    /// All that there was to do is done. When it is with everyone, the span ends early.
    fn exhausted(&self) -> bool {
        false
    }
    fn connections(&mut self) -> &mut [Connection];
    /// What it counted.
    fn tally(&self) -> &Tally;
}

pub struct Plan {
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
    /// 0 when no process was named.
    pub server_cpu_seconds: f64,
    pub own_cpu_seconds: f64,
    /// One an actor, those of one name added up.
    pub tallies: Vec<Tally>,
}

impl Outcome {
    pub fn tally(&self, name: &str) -> &Tally {
        self.tallies.iter().find(|tally| tally.name == name).expect("a part of the load has this name")
    }
}

struct Run<'a> {
    plan: &'a Plan,
    actors: Vec<Box<dyn Actor + 'a>>,
    epoll: OwnedFd,
    began: Instant,
    span: Span,
    begun: (f64, f64),
    ended: (f64, f64),
}

/// Blocks this thread, which does all of the generator's work.
pub fn run<'a>(plan: &'a Plan, actors: Vec<Box<dyn Actor + 'a>>) -> io::Result<Outcome> {
    let span = Span::new(plan.warm_up.as_nanos() as u64, plan.measure.as_nanos() as u64);
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let mut run = Run { plan, actors, epoll, began: Instant::now(), span, begun: (0.0, 0.0), ended: (0.0, 0.0) };
    run.register()?;
    run.began = Instant::now();
    run.turns()?;
    Ok(run.outcome())
}

impl Run<'_> {
    fn register(&mut self) -> io::Result<()> {
        for (number, actor) in self.actors.iter_mut().enumerate() {
            for (at, connection) in actor.connections().iter().enumerate() {
                epoll::add(&self.epoll, connection.descriptor(), data(number, at), EventFlags::IN)?;
            }
        }
        Ok(())
    }

    fn turns(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            self.edges()?;
            if self.span.ended {
                if !self.actors.iter().any(|actor| actor.waiting()) {
                    return Ok(());
                }
                if self.now() > self.span.until + LAST_ANSWERS_MAX.as_nanos() as u64 {
                    return Err(io::Error::other(format!("requests stayed unanswered for {LAST_ANSWERS_MAX:?}")));
                }
            } else {
                let now = self.now();
                self.actors.iter_mut().for_each(|actor| actor.act(now));
            }
            self.send()?;
            self.wait(&mut events)?;
            let now = self.now();
            for event in events.drain(..) {
                let (actor, connection) = place(event);
                self.event(actor, connection, event.flags, now)?;
            }
        }
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn cpu(&self) -> io::Result<(f64, f64)> {
        let server = self.plan.server_pid.map_or(Ok(0.0), cpu::process_seconds)?;
        Ok((server, cpu::process_seconds(std::process::id())?))
    }

    fn edges(&mut self) -> io::Result<()> {
        let now = self.now();
        if !self.span.begun && now >= self.span.from {
            self.begun = self.cpu()?;
            // The edge is where the clocks were read.
            self.span.from = self.now();
            self.span.until = self.span.from + self.plan.measure.as_nanos() as u64;
            self.span.begun = true;
        }
        let over = now >= self.span.until || self.actors.iter().all(|actor| actor.exhausted());
        if self.span.begun && !self.span.ended && over {
            self.ended = self.cpu()?;
            self.span.until = now;
            self.span.ended = true;
        }
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        for (number, actor) in self.actors.iter_mut().enumerate() {
            for (at, connection) in actor.connections().iter_mut().enumerate() {
                if connection.blocked {
                    continue;
                }
                connection.send()?;
                if connection.blocked {
                    let both = EventFlags::IN | EventFlags::OUT;
                    epoll::modify(&self.epoll, connection.descriptor(), data(number, at), both)?;
                }
            }
        }
        Ok(())
    }

    fn event(&mut self, actor: usize, at: usize, flags: EventFlags, now: u64) -> io::Result<()> {
        if flags.contains(EventFlags::OUT) {
            let connection = &mut self.actors[actor].connections()[at];
            connection.blocked = false;
            epoll::modify(&self.epoll, connection.descriptor(), data(actor, at), EventFlags::IN)?;
        }
        // An error or a hang-up shows when it is read.
        match flags == EventFlags::OUT {
            true => Ok(()),
            false => self.actors[actor].receive(at, now, &self.span),
        }
    }

    /// Until a socket is ready, the next request is due, or the span's next edge.
    fn wait(&self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        let give_up = self.span.until + LAST_ANSWERS_MAX.as_nanos() as u64;
        let mut due = self.span.edge().unwrap_or(give_up);
        if !self.span.ended {
            due = self.actors.iter().filter_map(|actor| actor.due()).fold(due, u64::min);
        }
        let left = due.saturating_sub(self.now());
        let timeout = Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn outcome(self) -> Outcome {
        let mut tallies: Vec<Tally> = Vec::new();
        for actor in &self.actors {
            let tally = actor.tally();
            match tallies.iter_mut().find(|known| known.name == tally.name) {
                Some(known) => known.add(tally),
                None => tallies.push(tally.clone()),
            }
        }
        Outcome {
            seconds: (self.span.until - self.span.from) as f64 / 1e9,
            server_cpu_seconds: self.ended.0 - self.begun.0,
            own_cpu_seconds: self.ended.1 - self.begun.1,
            tallies,
        }
    }
}

fn data(actor: usize, connection: usize) -> EventData {
    EventData::new_u64((actor as u64) << 32 | connection as u64)
}

fn place(event: epoll::Event) -> (usize, usize) {
    let data = event.data.u64();
    ((data >> 32) as usize, (data & u64::from(u32::MAX)) as usize)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use ringmain_types::Offset;
    use ringmain_wire::produce::{PartitionProduceResponse, TopicProduceResponse};
    use ringmain_wire::{PRODUCE, ProduceResponse, encode_reply, request_header};

    use super::*;
    use crate::{Offsets, Pace, Publisher, PublisherConfig};

    /// Acknowledges whatever comes, request by request, with offsets `step` apart.
    fn broker(step: i64) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                std::thread::spawn(move || acknowledge(stream.unwrap(), step));
            }
        });
        address
    }

    fn acknowledge(mut stream: TcpStream, step: i64) {
        for number in 0.. {
            let mut length = [0; 4];
            if stream.read_exact(&mut length).is_err() {
                return;
            }
            let mut frame = vec![0; u32::from_be_bytes(length) as usize];
            stream.read_exact(&mut frame).unwrap();
            let (header, _) = request_header(&frame).unwrap();
            let partition = PartitionProduceResponse { base_offset: Offset(number * step), ..Default::default() };
            let topic = TopicProduceResponse { partition_responses: vec![partition].into(), ..Default::default() };
            let body = ProduceResponse { responses: vec![topic].into(), ..Default::default() };
            let reply = encode_reply(&PRODUCE, header.version, header.correlation, &body).concat();
            // In two pieces.
            stream.write_all(&reply[..7]).unwrap();
            stream.write_all(&reply[7..]).unwrap();
        }
    }

    fn publisher(address: String, connections: usize, pace: Pace) -> Publisher {
        Publisher::open(&PublisherConfig {
            topic: "t".into(),
            record_bytes: 1000,
            batch_bytes: 100_000,
            pace,
            connections: vec![(address, vec![0]); connections],
            version: 12,
            requests_max: Some(60),
        })
        .unwrap()
    }

    const PLAN: Plan = Plan { warm_up: Duration::ZERO, measure: Duration::from_secs(60), server_pid: None };

    #[test]
    fn a_run_ends_when_all_is_answered_and_counts_it() {
        for pace in [Pace::Window(7), Pace::Rate(1e9)] {
            let publisher = publisher(broker(0), 3, pace);
            let records = publisher.records_a_batch();
            let outcome = run(&PLAN, vec![Box::new(publisher)]).unwrap();
            let tally = outcome.tally("publish");
            assert_eq!((tally.requests, tally.records), (60, 60 * records));
            // By a schedule, some may have been due before the span began.
            assert!(tally.latency.len() == 60 || matches!(pace, Pace::Rate(_)));
        }
    }

    #[test]
    fn an_offset_that_can_not_be_ends_the_run() {
        let records = crate::batch(1000, 100_000).1 as i64;
        for (step, right) in [(records, true), (records - 1, false)] {
            let mut publisher = publisher(broker(step), 1, Pace::Window(2));
            publisher.timeline(1, Offsets::Checked);
            assert_eq!(run(&PLAN, vec![Box::new(publisher)]).is_ok(), right);
        }
    }
}
