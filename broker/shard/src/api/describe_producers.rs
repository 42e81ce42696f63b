//! DescribeProducers (KIP-664): the idempotent producers that partitions remember.

use ringmain_buffer::Buf;
use ringmain_log::ProducerView;
use ringmain_session::Request;
use ringmain_types::*;
use ringmain_wire::describe_producers::{
    DescribeProducersRequest, DescribeProducersResponse, PartitionResponse, ProducerState, TopicResponse,
};
use ringmain_wire::{DESCRIBE_PRODUCERS, WireError, encode_reply};

use crate::asked::{Asked, Dealt, TopicKey};
use crate::dispatch::{REQUEST_MS, body};
use crate::jobs::{ReplyTo, Work};
use crate::mesh::Call;
use crate::{Effects, Shard};

pub(crate) type Answer = Result<Vec<ProducerView>, ErrorCode>;

impl Shard {
    pub(crate) fn ask_producers(&mut self, now: Now, request: &Request, out: &mut Effects) -> Result<(), WireError> {
        let wanted: DescribeProducersRequest<'_> = body(&DESCRIBE_PRODUCERS, request)?;
        let mut asked = Asked::new();
        let mut dealt = Dealt::new(self.config.shards);
        for topic in &wanted.topics {
            let key = TopicKey::by_name(&self.image, topic.name);
            asked.topic(key.clone());
            for index in &topic.partition_indexes {
                let place = asked.part(index, Err(ErrorCode::RequestTimedOut));
                match key.partition(index) {
                    Err(error) => asked.set(place, Err(error)),
                    Ok(partition) => dealt.push(partition, place, partition),
                }
            }
        }
        let to = ReplyTo::new(now, request);
        let make = (Work::Producers, |parts| Call::Producers { parts });
        self.ask_owners(now, (to, now.mono.plus_ms(REQUEST_MS)), asked, dealt, make, out);
        Ok(())
    }
}

pub(crate) fn encode(to: &ReplyTo, asked: &Asked<Answer>) -> (Vec<Buf>, ErrorCode) {
    let topics = asked.iter().map(|(key, parts)| TopicResponse {
        name: key.name(),
        partitions: parts
            .iter()
            .map(|(index, answer)| PartitionResponse {
                partition_index: *index,
                error_code: answer.as_ref().err().copied().unwrap_or_default(),
                error_message: None,
                active_producers: answer.iter().flatten().map(state).collect(),
            })
            .collect(),
    });
    let reply = DescribeProducersResponse { topics: topics.collect(), ..DescribeProducersResponse::default() };
    let error = asked.parts.iter().find_map(|(_, answer)| answer.as_ref().err().copied()).unwrap_or_default();
    (encode_reply(&DESCRIBE_PRODUCERS, to.version, to.correlation, &reply), error)
}

fn state(view: &ProducerView) -> ProducerState {
    ProducerState {
        producer_id: view.id,
        producer_epoch: i32::from(view.epoch.0),
        last_sequence: view.last_sequence,
        last_timestamp: view.last_timestamp,
        coordinator_epoch: 0,
        current_txn_start_offset: Offset(-1),
    }
}
