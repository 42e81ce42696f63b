//! Deletes records from the front of shared topics (DeleteRecords).

use ringmain_types::{ErrorCode, Offset, PartitionIndex};
use ringmain_wire::delete_records::{DeleteRecordsPartition, DeleteRecordsTopic};
use ringmain_wire::{DELETE_RECORDS, DeleteRecordsRequest, DeleteRecordsResponse};

use super::line::{Line, reply};
use super::{Client, Context};
use crate::ledger::{Keeping, Key, Ledger};
use crate::network::Link;

struct Asked {
    key: Key,
    to: i64,
}

pub struct Trimmer {
    line: Line<Asked>,
    left: u32,
    last_ns: Option<u64>,
    pause_ns: u64,
}

impl Trimmer {
    pub fn new(times: u32, pause_ns: u64) -> Trimmer {
        Trimmer { line: Line::default(), left: times, last_ns: None, pause_ns }
    }

    fn trimmed(&mut self, context: &mut Context<'_>, asked: &Asked, frame: &[u8]) {
        let Some(body) = reply::<DeleteRecordsResponse<'_>>(context, &DELETE_RECORDS, 2, frame) else { return };
        let found: Vec<_> = body.topics.iter().flat_map(|topic| topic.partitions.iter().collect::<Vec<_>>()).collect();
        let Some(part) = found.first() else {
            return context.fail("answers name what was asked", format!("DeleteRecords of {:?}", asked.key));
        };
        context
            .say(|| format!("trimmed {:?} to {}: {:?} {}", asked.key, asked.to, part.error_code, part.low_watermark.0));
        match part.error_code {
            ErrorCode::None if part.low_watermark.0 < asked.to => {
                let text = format!("{:?}: {} after {}", asked.key, part.low_watermark.0, asked.to);
                context.fail("deleted records stay deleted", text);
            }
            ErrorCode::None => context.ledger.deleted(asked.key, part.low_watermark),
            error if context.ledger.legal(error) => {}
            error => context.fail("records below the end can be deleted", format!("{:?}: {error:?}", asked.key)),
        }
    }
}

impl Client for Trimmer {
    fn poll(&mut self, context: &mut Context<'_>) {
        if self.left == 0 {
            return;
        }
        let next_ns = self.last_ns.map_or(0, |last| last + self.pause_ns * context.pace);
        if context.now_ns < next_ns {
            return context.wake_in(next_ns - context.now_ns);
        }
        if !self.line.up(context) || self.line.pending() > 0 {
            return;
        }
        self.last_ns = Some(context.now_ns);
        self.left -= 1;
        let ledger = &context.ledger;
        // Where nothing is deleted, DeleteRecords is against the policy.
        let deletes = |key: &Key| {
            let topic = ledger.topic(key.topic);
            topic.keeping == Keeping::Group && (topic.compacted.is_none() || topic.retained)
        };
        let fit = |key: &Key| deletes(key) && ledger.end(*key) > ledger.start(*key);
        let keys: Vec<Key> = ledger.shared().iter().copied().filter(fit).collect();
        if keys.is_empty() {
            return context.wake_in(self.pause_ns * context.pace);
        }
        let key = keys[context.random.below(keys.len() as u64) as usize];
        let span = (context.ledger.end(key) - context.ledger.start(key)) as u64;
        let to = context.ledger.start(key) + context.random.between(1, span) as i64;
        context.ledger.delete_asked(key, to);
        let name = context.ledger.topic(key.topic).name.clone();
        let part = DeleteRecordsPartition { partition_index: PartitionIndex(key.index), offset: Offset(to) };
        let topics = vec![DeleteRecordsTopic { name: &name, partitions: vec![part].into() }];
        let body = DeleteRecordsRequest { topics: topics.into(), timeout_ms: 10_000 };
        self.line.ask(context, &DELETE_RECORDS, 2, &body, Asked { key, to });
    }

    fn received(&mut self, context: &mut Context<'_>, link: Link, bytes: &[u8]) {
        self.line.received(link, bytes);
        while let Some(answer) = self.line.next(context) {
            self.trimmed(context, &answer.asked, &answer.frame);
        }
    }

    fn closed(&mut self, context: &mut Context<'_>, link: Link) {
        self.line.closed(context, link);
    }

    fn finished(&self, _ledger: &Ledger) -> bool {
        self.left == 0 && self.line.pending() == 0
    }

    fn describe(&self) -> String {
        format!("trimmer: {} left, {} requests in flight", self.left, self.line.pending())
    }
}
