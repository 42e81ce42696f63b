//! DescribeProducers (KIP-664): the idempotent producers that partitions remember.

use std::collections::{BTreeMap, BTreeSet};

use ringmain_buffer::Bufs;
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
use crate::mesh::{Call, Parts};
use crate::{Effects, Shard};

pub(crate) type Answer = Result<Vec<ProducerView>, ErrorCode>;

/// What a producer takes in a reply.
const PRODUCER_BYTES: usize = 37;

impl Shard {
    pub(crate) fn ask_producers(&mut self, now: Now, request: &Request, out: &mut Effects) -> Result<(), WireError> {
        let wanted: DescribeProducersRequest<'_> = body(&DESCRIBE_PRODUCERS, request)?;
        let mut asked = Asked::new();
        let mut dealt = Dealt::new(self.config.shards);
        let mut once: BTreeMap<&str, BTreeSet<PartitionIndex>> = BTreeMap::new();
        for topic in &wanted.topics {
            once.entry(topic.name).or_default().extend(topic.partition_indexes.iter());
        }
        for (name, indexes) in once {
            let key = TopicKey::by_name(&self.image, name);
            asked.topic(key.clone());
            for index in indexes {
                let place = asked.part(index, Err(ErrorCode::RequestTimedOut));
                match key.partition(index) {
                    Err(error) => asked.set(place, Err(error)),
                    Ok(partition) => dealt.push(partition, place, partition),
                }
            }
        }
        let to = ReplyTo::new(now, request);
        // Each owner's part of a reply, whole partitions; of the first one all.
        let most =
            self.config.limits.describe_reply_bytes_max as usize / PRODUCER_BYTES / usize::from(self.config.shards);
        let make = (Work::Producers, |parts| Call::Producers { parts, most });
        self.ask_owners(now, (to, now.mono.plus_ms(REQUEST_MS)), asked, dealt, make, out);
        Ok(())
    }
}

pub(crate) fn encode(to: &ReplyTo, asked: &Asked<Answer>) -> (Bufs, ErrorCode) {
    let topics = asked.iter().map(|(key, parts)| TopicResponse {
        name: key.name(),
        partitions: parts
            .iter()
            .map(|(index, answer)| PartitionResponse {
                partition_index: *index,
                error_code: answer.as_ref().err().copied().unwrap_or_default(),
                error_message: (answer.as_ref().err() == Some(&ErrorCode::InvalidRequest))
                    .then_some("The reply would be too large: ask for fewer partitions"),
                active_producers: answer.iter().flatten().map(state).collect(),
            })
            .collect(),
    });
    let reply = DescribeProducersResponse { topics: topics.collect(), ..DescribeProducersResponse::default() };
    let error = asked.parts.iter().find_map(|(_, answer)| answer.as_ref().err().copied()).unwrap_or_default();
    (encode_reply(&DESCRIBE_PRODUCERS, to.version, to.correlation, &reply), error)
}

impl Shard {
    /// The producers of each partition, `most` in all, or those of the first alone.
    pub(crate) fn producers(&mut self, parts: Parts<Partition>, most: usize) -> Vec<Answer> {
        let mut told = 0;
        let mut of = |partition| {
            let log = self.logs.get(partition)?.id;
            let mut producers = Vec::new();
            self.store.producers(log, &mut producers);
            if told > 0 && told + producers.len() > most {
                return Err(ErrorCode::InvalidRequest);
            }
            told += producers.len();
            Ok(producers)
        };
        parts.into_iter().map(&mut of).collect()
    }
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
