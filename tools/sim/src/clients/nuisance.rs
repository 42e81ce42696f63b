//! A client that means no good, or is broken: halves of requests, garbage, lengths of gigabytes, requests whose answers it does not wait
//! for, requests that name hundreds of things. It is promised nothing; the broker and everybody else must live with it.

use ringmain_types::{BrokerId, LeaderEpoch, PartitionIndex};
use ringmain_wire::fetch::{FetchPartition, FetchTopic};
use ringmain_wire::offset_for_leader_epoch::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use ringmain_wire::{
    API_VERSIONS, ApiVersionsRequest, FETCH, FetchRequest, METADATA, MetadataRequest, OFFSET_FOR_LEADER_EPOCH,
    OffsetForLeaderEpochRequest, encode_request,
};

use super::{Action, Client, Context};
use crate::ledger::Ledger;
use crate::network::Link;

/// Between two of its ideas, the pace times.
const PAUSE_NS: (u64, u64) = (100_000, 20_000_000);
/// Requests that it sends without reading an answer.
const PIPELINE_MAX: u64 = 12;
/// What one of its large requests names: a few of them take a turn's share of the core, and more than may be asked at once with little memory.
const NAMES: (u64, u64) = (300, 640);

#[derive(Default)]
pub struct Nuisance {
    link: Option<Link>,
    thinks: (u64, u64),
}

impl Nuisance {
    fn annoy(&mut self, context: &mut Context<'_>, link: Link) {
        // As often as all else together: others are to meet them.
        let kind = if context.random.chance(0.5) { 5 } else { context.random.below(7) };
        let what =
            ["garbage", "a gigabyte announced", "half a request", "a pipeline", "nothing", "large requests", "an end"]
                [kind as usize];
        context.say(|| format!("annoys with {what}"));
        context.ledger.reach(match kind {
            0 => "nuisances: garbage",
            1 => "nuisances: gigabytes announced",
            2 => "nuisances: halves of requests",
            3 => "nuisances: pipelines that nobody reads",
            4 => "nuisances: silence",
            5 => "nuisances: large requests",
            _ => "nuisances: ends in peace",
        });
        let bytes = match kind {
            0 => {
                let length = context.random.between(1, 64);
                (0..length).map(|_| context.random.next() as u8).collect()
            }
            1 => [i32::MAX.to_be_bytes(), [0x41; 4]].concat(),
            2 => {
                let mut whole = request(1);
                whole.truncate(context.random.between(1, whole.len() as u64 - 1) as usize);
                whole
            }
            3 => pipeline(context.random.between(1, PIPELINE_MAX), request),
            4 => return,
            5 => {
                let names = context.random.between(NAMES.0, NAMES.1) as i32;
                pipeline(context.random.between(1, PIPELINE_MAX), |number| large(number, names))
            }
            _ => {
                self.link = None;
                return context.actions.push(Action::Leave(link));
            }
        };
        context.actions.push(Action::Send(link, bytes));
    }
}

fn pipeline(count: u64, frame: impl Fn(i32) -> Vec<u8>) -> Vec<u8> {
    (0..count as i32).map(frame).collect::<Vec<_>>().concat()
}

/// A whole frame of a small request.
fn request(correlation: i32) -> Vec<u8> {
    match correlation % 2 {
        0 => encode_request(&API_VERSIONS, 3, correlation, Some("sim"), &ApiVersionsRequest::default()).concat(),
        _ => encode_request(&METADATA, 9, correlation, Some("sim"), &MetadataRequest::default()).concat(),
    }
}

/// One that asks for many partitions, most of which are not there: every other one a fetch, which goes on in steps.
fn large(correlation: i32, names: i32) -> Vec<u8> {
    if correlation % 2 == 1 {
        return large_fetch(correlation, names / 2);
    }
    let partitions = (0..names).map(|index| OffsetForLeaderPartition {
        partition: PartitionIndex(index),
        current_leader_epoch: LeaderEpoch(-1),
        leader_epoch: LeaderEpoch(0),
    });
    let topic = OffsetForLeaderTopic { topic: "topic-0", partitions: partitions.collect() };
    let body = OffsetForLeaderEpochRequest { replica_id: BrokerId(-1), topics: vec![topic].into() };
    encode_request(&OFFSET_FOR_LEADER_EPOCH, 4, correlation, Some("sim"), &body).concat()
}

/// Some wait, some make a session.
fn large_fetch(correlation: i32, names: i32) -> Vec<u8> {
    let part =
        |index| FetchPartition { partition: PartitionIndex(index), partition_max_bytes: 1 << 20, ..Default::default() };
    let topic = FetchTopic { topic: "topic-0", partitions: (0..names).map(part).collect(), ..Default::default() };
    let body = FetchRequest {
        max_wait_ms: correlation % 4 * 100,
        min_bytes: 1 << 20,
        session_epoch: -(correlation / 4 % 2),
        topics: vec![topic].into(),
        ..Default::default()
    };
    encode_request(&FETCH, 12, correlation, Some("sim"), &body).concat()
}

impl Client for Nuisance {
    fn poll(&mut self, context: &mut Context<'_>) {
        if context.calm {
            if let Some(link) = self.link.take() {
                context.actions.push(Action::Leave(link));
            }
            return;
        }
        let until_ns = self.thinks.0 + self.thinks.1 * context.pace;
        if context.now_ns < until_ns {
            return;
        }
        self.thinks = (context.now_ns, context.random.skewed(PAUSE_NS.0, PAUSE_NS.1));
        context.wake_in(self.thinks.1 * context.pace);
        match self.link {
            Some(link) => self.annoy(context, link),
            None => self.link = Some(context.connect()),
        }
    }

    fn received(&mut self, _: &mut Context<'_>, _: Link, _: &[u8]) {}

    fn closed(&mut self, _: &mut Context<'_>, link: Link) {
        self.link.take_if(|own| *own == link);
    }

    fn finished(&self, _: &Ledger) -> bool {
        self.link.is_none()
    }

    fn describe(&self) -> String {
        format!("a nuisance with {:?}", self.link)
    }
}
