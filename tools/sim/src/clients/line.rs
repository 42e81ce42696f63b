//! One connection of a client: frames, and the requests that wait for an answer, in order.

use std::collections::VecDeque;

use ringmain_wire::{ApiSpec, Field, decode_reply, encode_request};

use super::{Action, Context};
use crate::network::Link;

/// A connection that failed is tried again after this.
const BACKOFF_NS: (u64, u64) = (1_000_000, 20_000_000);
/// Longer than any fault lasts: an answer that takes this long never comes.
const ANSWER_NS_MAX: u64 = 30_000_000_000;
/// Once faults are quiet, what waits for nobody is answered within this: a search through dozens of small segments on a disk that stalls
/// now and then has taken a second.
pub const PROMPT_NS_MAX: u64 = 4_000_000_000;

/// `P`: what the client needs to know of a request when its answer comes.
pub struct Line<P> {
    link: Option<Link>,
    bytes: Vec<u8>,
    pending: VecDeque<Pending<P>>,
    correlation: i32,
    retry_at_ns: u64,
    /// Somebody looks then whether the oldest question was answered.
    watched_ns: u64,
}

/// How long a request may take.
#[derive(Clone, Copy)]
pub struct Patience {
    /// It waits for others, by its own wish.
    pub waits_ns: u64,
    /// Beyond that, once faults are quiet.
    pub prompt_ns: u64,
}

struct Pending<P> {
    correlation: i32,
    name: &'static str,
    at_ns: u64,
    patience: Patience,
    asked: P,
}

/// A reply frame without its length, and what it answers.
pub struct Answer<P> {
    pub asked: P,
    pub frame: Vec<u8>,
}

impl<P> Pending<P> {
    /// How long it has been waiting in peace.
    fn quiet_ns(&self, context: &Context<'_>) -> Option<u64> {
        Some(context.now_ns.saturating_sub(self.at_ns.max(context.quiet_since_ns?)))
    }
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
        self.judge(context);
        self.watch(context);
        true
    }

    /// Whether the oldest question waits for too long.
    fn judge(&mut self, context: &mut Context<'_>) {
        let Some(first) = self.pending.front() else { return };
        let waited_ns = context.now_ns - first.at_ns;
        if waited_ns > ANSWER_NS_MAX {
            let text = format!("{}: no answer for {} ms on a connection that lives", first.name, waited_ns / 1_000_000);
            return context.fail("every request is answered", text);
        }
        let Some(quiet_ns) = first.quiet_ns(context) else { return };
        if quiet_ns > first.patience.waits_ns + first.patience.prompt_ns {
            let text = format!("{}: no answer for {} ms of peace", first.name, quiet_ns / 1_000_000);
            context.fail("every request is answered within its bound", text);
        }
    }

    fn watch(&mut self, context: &mut Context<'_>) {
        let Some(first) = self.pending.front() else { return };
        let due_ns = match context.quiet_since_ns {
            Some(since) => first.at_ns.max(since) + first.patience.waits_ns + first.patience.prompt_ns,
            None => first.at_ns + ANSWER_NS_MAX,
        };
        if context.now_ns >= self.watched_ns || due_ns < self.watched_ns {
            self.watched_ns = due_ns + 1_000_000;
            context.wake_in(self.watched_ns.saturating_sub(context.now_ns));
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
        let patience = Patience { waits_ns: 0, prompt_ns: PROMPT_NS_MAX };
        self.ask_waiting(context, spec, version, body, (asked, patience));
    }

    /// A request that may wait for others.
    pub fn ask_waiting<'a, T: Field<'a>>(
        &mut self,
        context: &mut Context<'_>,
        spec: &ApiSpec,
        version: i16,
        body: &T,
        (asked, patience): (P, Patience),
    ) {
        self.tell(context, spec, version, body);
        let (correlation, name, at_ns) = (self.correlation, spec.name, context.now_ns);
        self.pending.push_back(Pending { correlation, name, at_ns, patience, asked });
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
        self.judge(context);
        match self.pending.pop_front() {
            Some(first) if first.correlation == correlation => {
                if let Some(quiet_ns) = first.quiet_ns(context) {
                    context.ledger.took(first.name, quiet_ns.saturating_sub(first.patience.waits_ns));
                }
                Some(Answer { asked: first.asked, frame })
            }
            Some(first) => {
                context.fail("replies come in order", format!("{correlation} came, {} was next", first.correlation));
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
        Some(self.pending.drain(..).map(|pending| pending.asked).collect())
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
