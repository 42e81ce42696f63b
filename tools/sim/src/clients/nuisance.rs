//! A client that means no good, or is broken: halves of requests, garbage, lengths of gigabytes, requests whose answers it does not wait
//! for. It is promised nothing; the broker and everybody else must live with it.

use ringmain_wire::{API_VERSIONS, ApiVersionsRequest, METADATA, MetadataRequest, encode_request};

use super::{Action, Client, Context};
use crate::ledger::Ledger;
use crate::network::Link;

/// Between two of its ideas, the pace times.
const PAUSE_NS: (u64, u64) = (100_000, 20_000_000);
/// Requests that it sends without reading an answer.
const PIPELINE_MAX: u64 = 12;

#[derive(Default)]
pub struct Nuisance {
    link: Option<Link>,
    thinks: (u64, u64),
}

impl Nuisance {
    fn annoy(&mut self, context: &mut Context<'_>, link: Link) {
        let kind = context.random.below(6);
        let what =
            ["garbage", "a gigabyte announced", "half a request", "a pipeline", "nothing", "an end"][kind as usize];
        context.say(|| format!("annoys with {what}"));
        context.ledger.reach(match kind {
            0 => "nuisances: garbage",
            1 => "nuisances: gigabytes announced",
            2 => "nuisances: halves of requests",
            3 => "nuisances: pipelines that nobody reads",
            4 => "nuisances: silence",
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
            3 => (0..context.random.between(1, PIPELINE_MAX)).flat_map(|number| request(number as i32)).collect(),
            4 => return,
            _ => {
                self.link = None;
                return context.actions.push(Action::Leave(link));
            }
        };
        context.actions.push(Action::Send(link, bytes));
    }
}

/// A whole frame of a small request.
fn request(correlation: i32) -> Vec<u8> {
    match correlation % 2 {
        0 => encode_request(&API_VERSIONS, 3, correlation, Some("sim"), &ApiVersionsRequest::default()).concat(),
        _ => encode_request(&METADATA, 9, correlation, Some("sim"), &MetadataRequest::default()).concat(),
    }
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
