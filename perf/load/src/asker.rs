//! Asks the same small question over many connections, one at a time each.

use std::io;

use ringmain_types::{ErrorCode, PartitionIndex};
use ringmain_wire::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use ringmain_wire::{LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse, decode_reply, encode_request};

use crate::{Actor, Connection, Frame, Span, Tally};

const LIST_OFFSETS_VERSION: i16 = 7;
const LATEST: i64 = -1;

/// What makes an answer one.
pub type Right = fn(&[u8]) -> io::Result<()>;

pub struct Asker {
    connections: Vec<Connection>,
    /// By connection: its question, and when it was asked.
    asked: Vec<(Frame, Option<u64>)>,
    right: Right,
    tally: Tally,
}

impl Asker {
    /// `question`: a whole frame, by connection.
    pub fn open(
        address: &str,
        connections: usize,
        question: impl Fn(usize) -> Vec<u8>,
        right: Right,
    ) -> io::Result<Asker> {
        let opened = (0..connections).map(|_| Connection::open(address)).collect::<io::Result<_>>()?;
        let asked = (0..connections).map(|number| (Frame::whole(question(number)), None)).collect();
        Ok(Asker { connections: opened, asked, right, tally: Tally::new("ask") })
    }
}

impl Actor for Asker {
    fn act(&mut self, now: u64) {
        for (connection, (question, at)) in self.connections.iter_mut().zip(&mut self.asked) {
            if at.is_none() {
                *at = Some(now);
                connection.queue(question.clone());
            }
        }
    }

    fn receive(&mut self, number: usize, now: u64, span: &Span) -> io::Result<()> {
        let (right, at, tally) = (self.right, &mut self.asked[number].1, &mut self.tally);
        self.connections[number].receive(|frame| {
            right(frame)?;
            let asked = at.take().ok_or_else(|| io::Error::other("an answer to nothing"))?;
            tally.answered(span, asked, now, 0, 0);
            Ok(())
        })
    }

    fn due(&self) -> Option<u64> {
        None
    }

    fn waiting(&self) -> bool {
        self.asked.iter().any(|(_, at)| at.is_some())
    }

    fn connections(&mut self) -> &mut [Connection] {
        &mut self.connections
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }
}

/// A question of `bytes` bytes (where that is enough): where does the partition end? And what an answer must be.
pub fn list_offsets(topic: &str, partition: u32, bytes: usize) -> (Vec<u8>, Right) {
    let at = ListOffsetsPartition {
        partition_index: PartitionIndex(partition as i32),
        timestamp: LATEST,
        ..Default::default()
    };
    let topic = ListOffsetsTopic { name: topic, partitions: vec![at].into() };
    let body = ListOffsetsRequest { topics: vec![topic].into(), ..Default::default() };
    let encode = |client: &str| encode_request(&LIST_OFFSETS, LIST_OFFSETS_VERSION, 1, Some(client), &body).concat();
    let padding = "p".repeat(bytes.saturating_sub(encode("").len()));
    (encode(&padding), |frame| {
        let decoded = decode_reply(&LIST_OFFSETS, LIST_OFFSETS_VERSION, frame);
        let (_, reply): (i32, ListOffsetsResponse<'_>) =
            decoded.map_err(|error| io::Error::other(format!("ListOffsets: {error:?}")))?;
        for topic in &reply.topics {
            for partition in &topic.partitions {
                if partition.error_code != ErrorCode::None {
                    return Err(io::Error::other(format!("ListOffsets: {:?}", partition.error_code)));
                }
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_as_long_as_asked() {
        let (question, _) = list_offsets("bench", 3, 100);
        assert_eq!(question.len(), 100);
        assert!(ringmain_wire::request_header(&question[4..]).is_ok());
    }
}
