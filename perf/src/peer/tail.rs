//! The generator's side of a consumer of the probe: counts the frames that it is sent.

use std::io;

use ringmain_load::{Actor, Connection, Frame, Span, Tally, Timeline};
use ringmain_wire::{FETCH, FetchRequest, encode_request};

pub struct ProbeTail {
    connection: [Connection; 1],
    asked: bool,
    frames: u64,
    timeline: Timeline,
    tally: Tally,
}

impl ProbeTail {
    /// The publisher's requests must all go to partition 0, over one connection.
    pub fn open(address: &str, timeline: Timeline) -> io::Result<ProbeTail> {
        let connection = [Connection::open(address)?];
        Ok(ProbeTail { connection, asked: false, frames: 0, timeline, tally: Tally::new("tail") })
    }

    fn offset(&self) -> i64 {
        (self.frames * self.timeline.records_a_batch()) as i64
    }
}

impl Actor for ProbeTail {
    fn act(&mut self, _: u64) {
        if !self.asked {
            self.asked = true;
            let frame = encode_request(&FETCH, 12, 1, Some("ringmain-perf"), &FetchRequest::default()).concat();
            self.connection[0].queue(Frame::whole(frame));
        }
    }

    fn receive(&mut self, _: usize, now: u64, span: &Span) -> io::Result<()> {
        let mut arrived = Vec::new();
        self.connection[0].receive(|frame| {
            arrived.push(frame.len() as u64);
            Ok(())
        })?;
        for bytes in arrived {
            let due = self.timeline.due(0, self.offset());
            let due = due.ok_or_else(|| io::Error::other("the probe sent more than was published"))?;
            self.frames += 1;
            self.tally.answered(span, due, now, self.timeline.records_a_batch(), bytes);
        }
        Ok(())
    }

    fn due(&self) -> Option<u64> {
        None
    }

    fn waiting(&self) -> bool {
        self.offset() < self.timeline.end(0)
    }

    fn connections(&mut self) -> &mut [Connection] {
        &mut self.connection
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }
}
