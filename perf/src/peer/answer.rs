//! The probe's one reply: an acknowledgement of partition 0, whatever was asked.

use ringmain_wire::produce::{PartitionProduceResponse, TopicProduceResponse};
use ringmain_wire::{PRODUCE, ProduceResponse, encode_reply};

/// What the generator speaks to the probe.
const PRODUCE_VERSION: i16 = 12;

/// Behind the length prefix.
const CORRELATION: usize = 4;

pub struct Answer {
    frame: Vec<u8>,
}

impl Answer {
    pub fn new() -> Answer {
        let partition = PartitionProduceResponse::default();
        let topic =
            TopicProduceResponse { name: "bench", partition_responses: vec![partition].into(), ..Default::default() };
        let body = ProduceResponse { responses: vec![topic].into(), ..Default::default() };
        Answer { frame: encode_reply(&PRODUCE, PRODUCE_VERSION, 0, &body).concat() }
    }

    pub fn append(&self, correlation: i32, out: &mut Vec<u8>) {
        let at = out.len() + CORRELATION;
        out.extend_from_slice(&self.frame);
        out[at..at + 4].copy_from_slice(&correlation.to_be_bytes());
    }
}
