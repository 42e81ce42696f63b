//! One connection of a client: frames, and the requests that wait for an answer, in order.

use std::collections::VecDeque;

use ringmain_wire::{ApiSpec, Field, decode_reply, encode_request};

use super::{Action, Context};
use crate::network::Link;

/// A connection that failed is tried again after this.
const BACKOFF_NS: (u64, u64) = (1_000_000, 20_000_000);
/// Longer than any fault lasts: an answer that takes this long never comes.
const ANSWER_NS_MAX: u64 = 30_000_000_000;

/// `P`: what the client needs to know of a request when its answer comes.
pub struct Line<P> {
    link: Option<Link>,
    bytes: Vec<u8>,
    pending: VecDeque<(i32, u64, P)>,
    correlation: i32,
    retry_at_ns: u64,
    /// Somebody looks then whether the oldest question was answered.
    watched_ns: u64,
}

/// A reply frame without its length, and what it answers.
pub struct Answer<P> {
    pub asked: P,
    pub frame: Vec<u8>,
}

impl<P> Default for Line<P> {
    fn default() -> Line<P> {
        Line { link: None, bytes: Vec::new(), pending: VecDeque::new(), correlation: 0, retry_at_ns: 0, watched_ns: 0 }
    }
}

impl<P> Line<P> {
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// True when there is a connection, made now if the last one is long enough ago.
    pub fn up(&mut self, context: &mut Context<'_>) -> bool {
        if self.link.is_none() {
            if context.now_ns < self.retry_at_ns {
                context.wake_in(self.retry_at_ns - context.now_ns);
                return false;
            }
            self.link = Some(context.connect());
        }
        if let Some((_, at, _)) = self.pending.front()
            && context.now_ns > at + ANSWER_NS_MAX
        {
            let waited = (context.now_ns - at) / 1_000_000;
            context.fail("every request is answered", format!("no answer for {waited} ms on a connection that lives"));
        }
        self.watch(context);
        true
    }

    fn watch(&mut self, context: &mut Context<'_>) {
        if let Some((_, at, _)) = self.pending.front()
            && context.now_ns >= self.watched_ns
        {
            self.watched_ns = at + ANSWER_NS_MAX + 1_000_000;
            context.wake_in(self.watched_ns - context.now_ns);
        }
    }

    pub fn ask<'a, T: Field<'a>>(
        &mut self,
        context: &mut Context<'_>,
        spec: &ApiSpec,
        version: i16,
        body: &T,
        asked: P,
    ) {
        self.tell(context, spec, version, body);
        self.pending.push_back((self.correlation, context.now_ns, asked));
        self.watch(context);
    }

    /// A request without an answer (acks=0).
    pub fn tell<'a, T: Field<'a>>(&mut self, context: &mut Context<'_>, spec: &ApiSpec, version: i16, body: &T) {
        let link = self.link.expect("asked only while up");
        self.correlation += 1;
        let parts = encode_request(spec, version, self.correlation, Some("sim"), body);
        context.actions.push(Action::Send(link, parts.concat()));
    }

    /// Takes bytes; gives the next whole answer.
    pub fn received(&mut self, link: Link, bytes: &[u8]) {
        if self.link == Some(link) {
            self.bytes.extend_from_slice(bytes);
        }
    }

    pub fn next(&mut self, context: &mut Context<'_>) -> Option<Answer<P>> {
        let length = i32::from_be_bytes(self.bytes.get(..4)?.try_into().ok()?);
        if !(4..=1 << 26).contains(&length) {
            context.fail("replies are frames", format!("a length of {length}"));
            return None;
        }
        let end = 4 + length as usize;
        if self.bytes.len() < end {
            return None;
        }
        let frame = self.bytes[4..end].to_vec();
        self.bytes.drain(..end);
        let correlation = i32::from_be_bytes(frame[..4].try_into().expect("at least 4"));
        match self.pending.pop_front() {
            Some((asked_as, _, asked)) if asked_as == correlation => Some(Answer { asked, frame }),
            Some((asked_as, ..)) => {
                context.fail("replies come in order", format!("{correlation} came, {asked_as} was next"));
                None
            }
            None => {
                context.fail("replies come in order", format!("{correlation} came, nothing was asked"));
                None
            }
        }
    }

    /// What was not answered, when `link` was this line's.
    pub fn closed(&mut self, context: &mut Context<'_>, link: Link) -> Option<Vec<P>> {
        if self.link != Some(link) {
            return None;
        }
        self.link = None;
        self.bytes.clear();
        let backoff = context.random.between(BACKOFF_NS.0, BACKOFF_NS.1);
        self.retry_at_ns = context.now_ns + backoff;
        context.wake_in(backoff);
        Some(self.pending.drain(..).map(|(_, _, asked)| asked).collect())
    }
}

/// Decodes a reply; one that does not decode is a broken promise.
pub fn reply<'a, T: Field<'a>>(context: &mut Context<'_>, spec: &ApiSpec, version: i16, frame: &'a [u8]) -> Option<T> {
    match decode_reply(spec, version, frame) {
        Ok((_, body)) => Some(body),
        Err(error) => {
            context.fail("replies decode", format!("{} v{version}: {error:?}", spec.name));
            None
        }
    }
}
