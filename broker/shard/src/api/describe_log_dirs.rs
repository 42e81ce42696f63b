//! DescribeLogDirs: the one log directory and the partitions in it.

use std::collections::{BTreeMap, BTreeSet};

use ringmain_buffer::Bufs;
use ringmain_session::Request;
use ringmain_types::*;
use ringmain_wire::describe_log_dirs::{
    DescribeLogDirsPartition, DescribeLogDirsRequest, DescribeLogDirsResponse, DescribeLogDirsResult,
    DescribeLogDirsTopic,
};
use ringmain_wire::{DESCRIBE_LOG_DIRS, WireError, encode_reply};

use crate::asked::{Asked, Dealt, TopicKey};
use crate::dispatch::{REQUEST_MS, body};
use crate::jobs::{ReplyTo, Work};
use crate::mesh::{Call, LogView};
use crate::{Effects, Shard};

impl Shard {
    pub(crate) fn ask_log_dirs(&mut self, request: &Request, out: &mut Effects) -> Result<(), WireError> {
        let _: DescribeLogDirsRequest<'_> = body(&DESCRIBE_LOG_DIRS, request)?;
        self.space.ask(self.config.dir, request.clone(), out);
        Ok(())
    }

    /// The file system's room is known.
    pub(crate) fn describe_log_dirs(
        &mut self,
        now: Now,
        request: &Request,
        out: &mut Effects,
    ) -> Result<(), WireError> {
        let wanted: DescribeLogDirsRequest<'_> = body(&DESCRIBE_LOG_DIRS, request)?;
        let mut asked = Asked::new();
        let mut dealt = Dealt::new(self.config.shards);
        let mut ask = |key: TopicKey, indexes: &mut dyn Iterator<Item = PartitionIndex>| {
            asked.topic(key.clone());
            for index in indexes {
                // What does not exist is left out, as on Kafka.
                if let Ok(partition) = key.partition(index) {
                    let place = asked.part(index, None);
                    dealt.push(partition, place, partition);
                }
            }
        };
        match &wanted.topics {
            Some(topics) => {
                // A set, as on Kafka: a partition is told once however often it is named.
                let mut once: BTreeMap<&str, BTreeSet<PartitionIndex>> = BTreeMap::new();
                for topic in topics {
                    once.entry(topic.topic).or_default().extend(topic.partitions.iter());
                }
                for (name, indexes) in once {
                    ask(TopicKey::by_name(&self.image, name), &mut indexes.into_iter());
                }
            }
            None => {
                for topic in self.image.topics.values() {
                    let indexes = 0..topic.partitions.len() as i32;
                    ask(TopicKey::Known(topic.clone()), &mut indexes.map(PartitionIndex));
                }
            }
        }
        let to = ReplyTo::new(now, request);
        let make = (Work::Describe, |parts| Call::Describe { parts });
        self.ask_owners(now, (to, now.mono.plus_ms(REQUEST_MS)), asked, dealt, make, out);
        Ok(())
    }
}

pub(crate) fn encode(
    to: &ReplyTo,
    asked: &Asked<Option<LogView>>,
    log_dir: &str,
    ((total_bytes, usable_bytes), fenced): ((i64, i64), bool),
) -> (Bufs, ErrorCode) {
    let topics = asked.iter().filter(|(_, parts)| !parts.is_empty() && !fenced).map(|(key, parts)| {
        let views = parts.iter().filter_map(|(index, view)| Some((index, view.as_ref()?)));
        let views = views.filter(|(_, view)| view.error == ErrorCode::None);
        DescribeLogDirsTopic {
            name: key.name(),
            partitions: views
                .map(|(index, view)| DescribeLogDirsPartition {
                    partition_index: *index,
                    partition_size: i64::try_from(view.bytes).unwrap_or(i64::MAX),
                    offset_lag: 0,
                    is_future_key: false,
                })
                .collect(),
        }
    });
    let error_code = if fenced { ErrorCode::KafkaStorageError } else { ErrorCode::None };
    let directory = DescribeLogDirsResult {
        error_code,
        log_dir,
        topics: topics.collect(),
        total_bytes,
        usable_bytes,
        ..DescribeLogDirsResult::default()
    };
    let reply = DescribeLogDirsResponse { results: vec![directory].into(), ..DescribeLogDirsResponse::default() };
    (encode_reply(&DESCRIBE_LOG_DIRS, to.version, to.correlation, &reply), error_code)
}
