//! Publishes equal batches over some connections, flat out or at a rate.

use std::collections::VecDeque;
use std::io;

use ringmain_types::{ErrorCode, PartitionIndex};
use ringmain_wire::{PRODUCE, ProduceResponse, decode_reply};

use crate::{Actor, Connection, Span, Tally, Template, Timeline};

#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// So many unanswered requests a connection: as fast as the server lets.
    Window(usize),
    /// Bytes of batches a second over all connections, whatever the server does.
    Rate(f64),
}

/// What the replies' offsets say, where a timeline tells what they must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offsets {
    Checked,
    /// The probe has no offsets.
    Unknown,
}

#[derive(Clone, Debug)]
pub struct PublisherConfig {
    pub topic: String,
    pub record_bytes: usize,
    pub batch_bytes: usize,
    pub pace: Pace,
    /// A connection each: where to, and the partitions that its requests go to in turn.
    pub connections: Vec<(String, Vec<u32>)>,
    pub version: i16,
    /// No more requests than these, over all connections.
    pub requests_max: Option<u64>,
}

pub struct Publisher {
    template: Template,
    pace: Pace,
    connections: Vec<Connection>,
    states: Vec<State>,
    /// Requests that were queued.
    scheduled: u64,
    requests_max: u64,
    timeline: Option<Timeline>,
    offsets: Offsets,
    tally: Tally,
}

struct State {
    partitions: Vec<u32>,
    /// Whose turn it is.
    turn: usize,
    correlation: i32,
    /// Unanswered, oldest first: when it was due, and which offset it must get where that is known.
    open: VecDeque<(u64, Option<i64>)>,
}

impl Publisher {
    pub fn open(config: &PublisherConfig) -> io::Result<Publisher> {
        let template = Template::new(&config.topic, config.record_bytes, config.batch_bytes, config.version)
            .map_err(io::Error::other)?;
        let connections = config.connections.iter().map(|(address, _)| Connection::open(address));
        let state = |(number, (_, partitions)): (usize, &(String, Vec<u32>))| State {
            partitions: partitions.clone(),
            turn: number % partitions.len(),
            correlation: 0,
            open: VecDeque::new(),
        };
        Ok(Publisher {
            template,
            pace: config.pace,
            connections: connections.collect::<io::Result<_>>()?,
            states: config.connections.iter().enumerate().map(state).collect(),
            scheduled: 0,
            requests_max: config.requests_max.unwrap_or(u64::MAX),
            timeline: None,
            offsets: Offsets::Checked,
            tally: Tally::new("publish"),
        })
    }

    /// For consumers. Each partition must be empty and belong to one connection.
    pub fn timeline(&mut self, partitions: u32, offsets: Offsets) -> Timeline {
        self.offsets = offsets;
        let timeline = Timeline::new(partitions, self.template.records_count);
        self.timeline = Some(timeline.clone());
        timeline
    }

    pub fn records_a_batch(&self) -> u64 {
        self.template.records_count
    }

    fn queue(&mut self, number: usize, due: u64) {
        self.scheduled += 1;
        let state = &mut self.states[number];
        state.correlation = state.correlation.wrapping_add(1);
        let partition = state.partitions[state.turn];
        state.turn = (state.turn + 1) % state.partitions.len();
        let offset = self.timeline.as_ref().map(|timeline| timeline.push(partition, due));
        let offset = offset.filter(|_| self.offsets == Offsets::Checked);
        state.open.push_back((due, offset));
        let frame = self.template.frame(state.correlation, PartitionIndex(partition as i32));
        self.connections[number].queue(frame);
    }

    /// When request `number` of an open loop is to be sent.
    fn schedule(&self, number: u64, rate: f64) -> u64 {
        (number as f64 * self.template.batch_bytes() as f64 / rate * 1e9) as u64
    }
}

impl Actor for Publisher {
    fn act(&mut self, now: u64) {
        match self.pace {
            Pace::Window(window) => {
                for number in 0..self.states.len() {
                    while self.states[number].open.len() < window && self.scheduled < self.requests_max {
                        self.queue(number, now);
                    }
                }
            }
            // What is due is due, whether or not the one before was answered: a stall of the server must not thin out the
            // schedule. So there is no window here; what the kernel does not take waits in our queue, and its clock runs.
            Pace::Rate(rate) => loop {
                let due = self.schedule(self.scheduled, rate);
                if due > now || self.scheduled == self.requests_max {
                    break;
                }
                self.queue((self.scheduled % self.states.len() as u64) as usize, due);
            },
        }
    }

    fn receive(&mut self, number: usize, now: u64, span: &Span) -> io::Result<()> {
        let (template, state, tally) = (&self.template, &mut self.states[number], &mut self.tally);
        self.connections[number].receive(|frame| {
            let (due, offset) = state.open.pop_front().ok_or_else(|| io::Error::other("a reply to nothing"))?;
            let want = state.correlation.wrapping_sub(state.open.len() as i32);
            acknowledged(frame, template.version, want, offset)?;
            tally.answered(span, due, now, template.records_count, template.batch_bytes());
            Ok(())
        })
    }

    fn due(&self) -> Option<u64> {
        match self.pace {
            Pace::Window(_) => None,
            Pace::Rate(_) if self.scheduled == self.requests_max => None,
            Pace::Rate(rate) => Some(self.schedule(self.scheduled, rate)),
        }
    }

    fn waiting(&self) -> bool {
        self.states.iter().any(|state| !state.open.is_empty())
    }

    fn exhausted(&self) -> bool {
        self.scheduled == self.requests_max && !self.waiting()
    }

    fn connections(&mut self) -> &mut [Connection] {
        &mut self.connections
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }
}

/// An acknowledgement is the right reply, without an error in any partition, and with the offset that must be.
pub(crate) fn acknowledged(frame: &[u8], version: i16, want: i32, offset: Option<i64>) -> io::Result<()> {
    let decoded = decode_reply(&PRODUCE, version, frame);
    let (correlation, reply): (i32, ProduceResponse<'_>) =
        decoded.map_err(|error| io::Error::other(format!("Produce v{version}: {error:?}")))?;
    if correlation != want {
        return Err(io::Error::other(format!("reply {correlation} where {want} was due")));
    }
    for topic in &reply.responses {
        for partition in &topic.partition_responses {
            let index = partition.index.0;
            if partition.error_code != ErrorCode::None {
                let message = partition.error_message.unwrap_or_default();
                return Err(io::Error::other(format!("partition {index}: {:?} {message}", partition.error_code)));
            }
            if let Some(offset) = offset
                && partition.base_offset.0 != offset
            {
                let got = partition.base_offset.0;
                return Err(io::Error::other(format!("partition {index}: offset {got} where {offset} was due")));
            }
        }
    }
    Ok(())
}
