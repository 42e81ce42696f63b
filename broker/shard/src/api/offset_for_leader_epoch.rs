//! OffsetForLeaderEpoch (KIP-101, KIP-320).

use ringmain_buffer::Bufs;
use ringmain_session::Request;
use ringmain_types::*;
use ringmain_wire::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult,
};
use ringmain_wire::{OFFSET_FOR_LEADER_EPOCH, WireError, encode_reply};

use crate::asked::{Asked, Dealt, TopicKey};
use crate::dispatch::{REQUEST_MS, body};
use crate::jobs::{ReplyTo, Work};
use crate::mesh::Call;
use crate::serve_fetch::check_epoch;
use crate::{Effects, Shard};

pub(crate) type Answer = Result<(LeaderEpoch, Offset), ErrorCode>;
const UNDEFINED: (LeaderEpoch, Offset) = (LeaderEpoch(-1), Offset(-1));

impl Shard {
    pub(crate) fn ask_epochs(&mut self, now: Now, request: &Request, out: &mut Effects) -> Result<(), WireError> {
        let wanted: OffsetForLeaderEpochRequest<'_> = body(&OFFSET_FOR_LEADER_EPOCH, request)?;
        let mut asked = Asked::new();
        let mut dealt = Dealt::new(self.config.shards);
        for topic in &wanted.topics {
            let key = TopicKey::by_name(&self.image, topic.topic);
            asked.topic(key.clone());
            for part in &topic.partitions {
                let place = asked.part(part.partition, Err(ErrorCode::RequestTimedOut));
                match key.partition(part.partition) {
                    Err(error) => asked.set(place, Err(error)),
                    Ok(partition) => {
                        let current = part.current_leader_epoch;
                        let current = (current.0 >= 0).then_some(current);
                        dealt.push(partition, place, (partition, current, part.leader_epoch));
                    }
                }
            }
        }
        let to = ReplyTo::new(now, request);
        let make = (Work::Epochs, |parts| Call::Epochs { parts });
        self.ask_owners(now, (to, now.mono.plus_ms(REQUEST_MS)), asked, dealt, make, out);
        Ok(())
    }

    /// The largest epoch at most `epoch`, and where it ends; (-1, -1) of an epoch that is still to come.
    pub(crate) fn epoch_end(
        &mut self,
        partition: Partition,
        current: Option<LeaderEpoch>,
        epoch: LeaderEpoch,
    ) -> Answer {
        let log = self.logs.get(partition)?;
        let (id, ours) = (log.id, log.epoch);
        check_epoch(ours, current)?;
        if epoch == ours {
            return Ok((ours, self.store.end(id)));
        }
        Ok(if epoch > ours || epoch.0 < 0 { UNDEFINED } else { self.store.epoch_end(id, epoch) })
    }
}

pub(crate) fn encode(to: &ReplyTo, asked: &Asked<Answer>) -> (Bufs, ErrorCode) {
    let topics = asked.iter().map(|(key, parts)| OffsetForLeaderTopicResult {
        topic: key.name(),
        partitions: parts
            .iter()
            .map(|(partition, answer)| {
                let (leader_epoch, end_offset) = answer.unwrap_or(UNDEFINED);
                let error_code = answer.err().unwrap_or_default();
                EpochEndOffset { error_code, partition: *partition, leader_epoch, end_offset }
            })
            .collect(),
    });
    let reply = OffsetForLeaderEpochResponse { topics: topics.collect(), ..OffsetForLeaderEpochResponse::default() };
    let error = asked.parts.iter().find_map(|(_, answer)| answer.err()).unwrap_or_default();
    (encode_reply(&OFFSET_FOR_LEADER_EPOCH, to.version, to.correlation, &reply), error)
}
