//! ListOffsets: by timestamp, or by one of Kafka's special ones.

use std::collections::{BTreeMap, BTreeSet};

use ringmain_buffer::Bufs;
use ringmain_log::{FindResult, Found, ReadToken, TimeQuery};
use ringmain_session::Request;
use ringmain_types::*;
use ringmain_wire::list_offsets::{
    ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse,
};
use ringmain_wire::{LIST_OFFSETS, WireError, encode_reply};

use crate::asked::{Asked, Dealt, TopicKey};
use crate::dispatch::{REQUEST_MS, body};
use crate::jobs::{ReplyTo, Work};
use crate::mesh::{Call, CallId, OffsetQuery, Parts, Return};
use crate::serve::{OffsetsServe, Serving};
use crate::serve_fetch::{check_epoch, read_error};
use crate::{Effects, Shard};

pub(crate) type Answer = Result<Option<Found>, ErrorCode>;
type Question = (Partition, Option<LeaderEpoch>, OffsetQuery);

enum Special {
    Ask(OffsetQuery),
    /// There is no tiered storage: -1, without an error, as on Kafka without it.
    Nothing,
}

/// What a timestamp means in this version; UNSUPPORTED_VERSION for one that it does not have.
fn meaning(timestamp: i64, version: i16) -> Result<Special, ErrorCode> {
    let since = match timestamp {
        -3 => 7,
        -4 => 8,
        -5 => 9,
        -6 => 11,
        ..-6 => return Err(ErrorCode::UnsupportedVersion),
        _ => 1,
    };
    if version < since {
        return Err(ErrorCode::UnsupportedVersion);
    }
    Ok(match timestamp {
        -1 => Special::Ask(OffsetQuery::Latest),
        -2 | -4 => Special::Ask(OffsetQuery::Earliest),
        -3 => Special::Ask(OffsetQuery::Time(TimeQuery::Max)),
        -5 | -6 => Special::Nothing,
        at => Special::Ask(OffsetQuery::Time(TimeQuery::At(WallMs(at)))),
    })
}

/// Which partitions are named more than once. Topics have numbers: a name may be long, and stand before many partitions.
struct Repeated<'a> {
    numbers: BTreeMap<&'a str, u32>,
    repeated: BTreeSet<(u32, PartitionIndex)>,
}

impl<'a> Repeated<'a> {
    fn of(list: &ListOffsetsRequest<'a>) -> Repeated<'a> {
        let (mut numbers, mut seen, mut repeated) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        for topic in &list.topics {
            let count = numbers.len() as u32;
            let number = *numbers.entry(topic.name).or_insert(count);
            let again = topic.partitions.iter().map(|part| (number, part.partition_index));
            repeated.extend(again.filter(|named| !seen.insert(*named)));
        }
        Repeated { numbers, repeated }
    }

    fn number(&self, topic: &str) -> u32 {
        self.numbers.get(topic).copied().unwrap_or(u32::MAX)
    }
}

impl Shard {
    pub(crate) fn ask_list_offsets(&mut self, now: Now, request: &Request, out: &mut Effects) -> Result<(), WireError> {
        let list: ListOffsetsRequest<'_> = body(&LIST_OFFSETS, request)?;
        let mut asked = Asked::new();
        let mut dealt = Dealt::new(self.config.shards);
        let repeated = Repeated::of(&list);
        let mut told = BTreeSet::new();
        for topic in &list.topics {
            let key = TopicKey::by_name(&self.image, topic.name);
            asked.topic(key.clone());
            let number = repeated.number(topic.name);
            for part in &topic.partitions {
                let named = (number, part.partition_index);
                if repeated.repeated.contains(&named) {
                    // As on Kafka: it is named once, and refused.
                    if told.insert(named) {
                        asked.part(part.partition_index, Err(ErrorCode::InvalidRequest));
                    }
                    continue;
                }
                let place = asked.part(part.partition_index, Err(ErrorCode::RequestTimedOut));
                let meaning = meaning(part.timestamp, request.version);
                match key.partition(part.partition_index).and_then(|partition| Ok((partition, meaning?))) {
                    Err(error) => asked.set(place, Err(error)),
                    Ok((_, Special::Nothing)) => asked.set(place, Ok(None)),
                    Ok((partition, Special::Ask(query))) => {
                        let epoch = part.current_leader_epoch;
                        dealt.push(partition, place, (partition, (epoch.0 >= 0).then_some(epoch), query));
                    }
                }
            }
        }
        let to = ReplyTo::new(now, request);
        let make = (Work::Offsets, |parts| Call::Offsets { parts });
        self.ask_owners(now, (to, now.mono.plus_ms(REQUEST_MS)), asked, dealt, make, out);
        Ok(())
    }

    pub(crate) fn serve_offsets(
        &mut self,
        now: Now,
        (id, deadline): (CallId, Instant),
        parts: Parts<Question>,
        out: &mut Effects,
    ) {
        let mut results = Vec::with_capacity(parts.len());
        let mut pending = Vec::new();
        for (at, &(partition, epoch, query)) in parts.iter().enumerate() {
            let result = match self.find(now, partition, epoch, query) {
                Ok(FindResult::Ready(found)) => self.visible_found(partition, found),
                Ok(FindResult::Pending(token)) => {
                    pending.push((token, at as u32));
                    Err(ErrorCode::RequestTimedOut)
                }
                Ok(FindResult::Memory(_)) => Err(ErrorCode::RequestTimedOut),
                Ok(FindResult::Failed(error)) => Err(read_error(&error)),
                Err(error) => Err(error),
            };
            results.push(result);
        }
        if pending.is_empty() {
            return self.answer(id, Return::Offsets(results), out);
        }
        let waiting = pending.len() as u32;
        let parts = parts.into_iter().map(|(partition, ..)| partition).collect();
        let key = self.add_serve(id, deadline, Serving::Offsets(OffsetsServe { results, parts, waiting }));
        for (token, at) in pending {
            self.reads.insert(token, (key, at));
        }
    }

    fn find(
        &mut self,
        now: Now,
        partition: Partition,
        theirs: Option<LeaderEpoch>,
        query: OffsetQuery,
    ) -> Result<FindResult, ErrorCode> {
        let log = self.logs.get(partition)?;
        let (id, epoch, visible) = (log.id, log.epoch, log.visible);
        check_epoch(epoch, theirs)?;
        let ready = |offset, epoch| FindResult::Ready(Some(Found { offset, timestamp: WallMs(-1), epoch }));
        Ok(match query {
            OffsetQuery::Latest => ready(visible, epoch),
            OffsetQuery::Earliest => {
                let start = self.store.start(id);
                let known = self.store.epoch_of(id, start);
                ready(start, if known.0 >= 0 { known } else { epoch })
            }
            OffsetQuery::Time(query) => self.store.find(now, &mut self.pool, id, query),
        })
    }

    /// What readers can't see yet is not found; the end itself is no record.
    fn visible_found(&mut self, partition: Partition, found: Option<Found>) -> Answer {
        let visible = self.logs.get(partition)?.visible;
        Ok(found.filter(|found| found.offset < visible || found.timestamp == WallMs(-1)))
    }

    /// A search by time has ended.
    pub(crate) fn find_done(&mut self, token: ReadToken, result: FindResult, out: &mut Effects) {
        let Some((key, at)) = self.reads.remove(&token) else { return };
        let Some(Serving::Offsets(offsets)) = self.serves.get(key).map(|serve| &serve.work) else { return };
        let partition = offsets.parts[at as usize];
        let answer = match result {
            FindResult::Ready(found) => self.visible_found(partition, found),
            FindResult::Pending(_) | FindResult::Memory(_) => Err(ErrorCode::RequestTimedOut),
            FindResult::Failed(error) => Err(read_error(&error)),
        };
        let Some(Serving::Offsets(offsets)) = self.serves.get_mut(key).map(|serve| &mut serve.work) else { return };
        offsets.results[at as usize] = answer;
        offsets.waiting -= 1;
        if offsets.waiting == 0 {
            self.finish_serve(key, out);
        }
    }
}

pub(crate) fn encode(to: &ReplyTo, asked: &Asked<Answer>) -> (Bufs, ErrorCode) {
    let topics = asked.iter().map(|(key, parts)| ListOffsetsTopicResponse {
        name: key.name(),
        partitions: parts
            .iter()
            .map(|(index, answer)| {
                let found = answer.ok().flatten();
                let none = Found { offset: Offset(-1), timestamp: WallMs(-1), epoch: LeaderEpoch(-1) };
                let found = found.unwrap_or(none);
                ListOffsetsPartitionResponse {
                    partition_index: *index,
                    error_code: answer.err().unwrap_or_default(),
                    timestamp: found.timestamp.0,
                    offset: found.offset,
                    leader_epoch: found.epoch,
                }
            })
            .collect(),
    });
    let reply = ListOffsetsResponse { topics: topics.collect(), ..ListOffsetsResponse::default() };
    let error = asked.parts.iter().find_map(|(_, answer)| answer.err()).unwrap_or_default();
    (encode_reply(&LIST_OFFSETS, to.version, to.correlation, &reply), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_timestamps_have_their_versions() {
        let code = |timestamp, version| meaning(timestamp, version).err();
        let old = Some(ErrorCode::UnsupportedVersion);
        assert_eq!([code(-3, 6), code(-4, 7), code(-5, 8), code(-6, 10), code(-7, 11)], [old; 5]);
        let known = [code(-1, 1), code(-2, 1), code(-3, 7), code(-4, 8), code(-5, 9), code(-6, 11), code(0, 1)];
        assert_eq!(known, [None; 7]);
        assert!(matches!(meaning(-5, 9), Ok(Special::Nothing)));
        assert!(matches!(meaning(7, 1), Ok(Special::Ask(OffsetQuery::Time(TimeQuery::At(WallMs(7)))))));
    }
}
