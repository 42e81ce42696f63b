//! The session: what comes in becomes requests, what is answered goes out.

use ringmain_buffer::{Buf, BufMut, Bufs, Pool};
use ringmain_types::{Account, ConnectionId, Instant, Limits, Now, PrincipalId};
use ringmain_wire::{API_VERSIONS, ApiSpec, Overlap, api, request_header};

use crate::backlog::Backlog;
use crate::frame::Frame;
use crate::greeting::{PREFIX_BYTES, stranger};
use crate::order::Order;
use crate::output::Output;
use crate::pace::Pace;
use crate::{Close, Incoming, Reply, ReplySlot, Request, Transport, Want};

/// Frames up to this share a block.
const GATHERED_FRAME_BYTES_MAX: usize = 1 << 10;
/// The block they share: a request that waits long (a fetch) keeps no more than this alive.
const GATHERED_BLOCK_BYTES: usize = 4 << 10;
/// Frames from here on keep the whole block alive that they were received in, instead of being copied: at most 32 times themselves.
const SLICED_FRAME_BYTES_MIN: usize = 4 << 10;
/// One provided buffer of the driver: with less room left than this in the account, nothing is asked for.
const LENT_BYTES: usize = 128 << 10;

/// ```text
///            may run                      in their turn
/// bytes -> frame -> waiting -> requests ... replies -> output -> bytes
///    \-> backlog -^
/// ```
/// While a request runs alone, or the connection's share of unanswered ones or of unsent replies is used up, what arrives goes to the backlog; and while
/// anything is there or waits, nothing is read. So no queue here is longer than what one receive brings.
pub struct Session {
    id: ConnectionId,
    frame_bytes_max: u32,
    /// The last call's clock, for `outgoing`.
    now: Instant,
    prefix: [u8; PREFIX_BYTES],
    prefix_bytes: usize,
    frame: Option<Frame>,
    backlog: Backlog,
    waiting: Option<Waiting>,
    order: Order,
    output: Output,
    /// No request runs while unsent replies cost more.
    unsent_max: usize,
    pace: Pace,
    /// Not read before, by a quota's order.
    muted_until: Instant,
    /// Of no frame yet the length was read: strangers are recognised by their first bytes.
    fresh: bool,
    failed: Option<Close>,
    /// The client sends no more.
    ended: bool,
}

/// A request whose turn has not come.
struct Waiting {
    request: Request,
    overlap: Overlap,
}

impl Session {
    pub fn open(id: ConnectionId, transport: Transport, limits: &Limits, now: Now) -> Session {
        let Transport::Plain = transport;
        Session {
            id,
            frame_bytes_max: limits.frame_bytes_max,
            now: now.mono,
            prefix: [0; PREFIX_BYTES],
            prefix_bytes: 0,
            frame: None,
            backlog: Backlog::default(),
            waiting: None,
            order: Order::new(usize::from(limits.requests_inflight_max)),
            output: Output::default(),
            unsent_max: limits.connection_unsent_bytes_max as usize,
            pace: Pace::new(limits, now.mono),
            muted_until: Instant(0),
            fresh: true,
            failed: None,
            ended: false,
        }
    }

    /// Not called while a `Direct` is under way.
    pub fn want(&mut self, now: Now, pool: &mut Pool) -> Want {
        self.now = now.mono;
        if self.muted_until > now.mono {
            return Want::Nothing { until: Some(self.muted_until) };
        }
        // One receive ahead is taken while a request runs alone, so that a client that waits for each reply never costs a change
        // of mind to the driver.
        if self.failed.is_some()
            || self.ended
            || (self.blocked() && !(self.waiting.is_none() && self.backlog.is_empty()))
        {
            return Want::Nothing { until: None };
        }
        // What is left of it is the beginning of a frame: whole ones were taken out when the last reply came.
        if let Err(close) = self.take_backlog(now, pool, &mut Vec::new()) {
            self.failed = Some(close);
            return Want::Nothing { until: None };
        }
        let Some(frame) = &mut self.frame else {
            let room = LENT_BYTES.min(pool.limit(Account::Receive) as usize / 16);
            return if pool.left(Account::Receive) < room { Want::Nothing { until: None } } else { Want::Any };
        };
        if frame.lent() {
            return Want::Nothing { until: None };
        }
        if frame.cramped() && !frame.room(pool, 1) {
            self.pace.frame_starves(now.mono);
            return Want::Nothing { until: None };
        }
        match frame.lend() {
            Some((into, bytes)) => Want::Direct { into, bytes },
            None => Want::Any,
        }
    }

    /// Whole requests come out in order; a Barrier request only once all before it are answered, and none after it until it is.
    /// After an error nothing more comes out of this connection.
    pub fn received(
        &mut self,
        now: Now,
        pool: &mut Pool,
        incoming: Incoming<'_>,
        out: &mut impl Extend<Request>,
    ) -> Result<(), Close> {
        self.now = now.mono;
        if let Some(close) = &self.failed {
            return Err(close.clone());
        }
        self.pace.active(now.mono);
        let result = match incoming {
            Incoming::Lent(bytes) => {
                self.take_backlog(now, pool, out).and_then(|()| self.take(now, pool, (bytes, None), out))
            }
            Incoming::Given(block) => {
                self.take_backlog(now, pool, out).and_then(|()| self.take(now, pool, (&block, Some(&block)), out))
            }
            Incoming::Direct(block) => self.take_block(now, pool, block, out),
        };
        self.failed = result.clone().err();
        result
    }

    /// The client sends no more. What it asked runs to its end; a frame that did not come whole never will.
    pub fn end(&mut self, now: Now) {
        self.now = now.mono;
        self.ended = true;
        self.pace.frame_over();
    }

    /// The client sends no more and is owed nothing more: to be closed as `Close::Eof`.
    pub fn finished(&self) -> bool {
        // Whole frames of the backlog would be running: they are released as soon as the replies before them are there.
        self.ended && self.order.unanswered() == 0 && self.waiting.is_none() && self.output.is_empty()
    }

    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Replies in any order; held until their turn. `out` gets requests that had to wait. Panics when the slot is not one of an
    /// unanswered request.
    pub fn reply(&mut self, now: Now, reply: Reply, out: &mut impl Extend<Request>) {
        self.now = now.mono;
        if reply.throttle_ms > 0 {
            self.muted_until = self.muted_until.max(now.mono.plus_ms(u64::from(reply.throttle_ms)));
        }
        self.order.answer(reply.slot, reply.parts, |part| self.output.push(part));
        self.pace.active(now.mono);
        if self.failed.is_none() {
            self.failed = self.release(now, out).err();
        }
    }

    /// acks=0: the slot is passed without bytes.
    pub fn skip(&mut self, now: Now, slot: ReplySlot, out: &mut impl Extend<Request>) {
        self.reply(now, Reply { slot, parts: Bufs::new(), throttle_ms: 0 }, out);
    }

    /// The next bytes to send, at most `bytes` and [`crate::SEND_PARTS_MAX`] parts, of several replies if they are ready; empty when
    /// there are none or a send is under way.
    pub fn outgoing(&mut self, bytes: usize) -> Vec<Buf> {
        let parts = self.output.send(bytes);
        if !parts.is_empty() {
            self.pace.send_started(self.now);
        }
        parts
    }

    /// The send under way is over. Drivers send all of it; were it less, the rest would come out of `outgoing` again. `out` gets
    /// requests that waited for it.
    pub fn sent(&mut self, now: Now, bytes: usize, out: &mut impl Extend<Request>) {
        self.now = now.mono;
        let clogged = self.clogged();
        self.output.sent(bytes);
        self.pace.send_over(now.mono);
        if clogged && self.failed.is_none() {
            self.failed = self.release(now, out).err();
        }
    }

    /// Blocks kept alive by unsent replies, those that wait for an earlier reply included.
    pub fn held_bytes(&self) -> usize {
        let mut before: Option<&Buf> = None;
        let mut bytes = 0;
        for part in self.output.held().chain(self.order.held()) {
            if !before.is_some_and(|before| before.same_block(part)) {
                bytes += part.block_bytes();
            }
            before = Some(part);
        }
        bytes
    }

    pub fn deadline(&self) -> Option<Instant> {
        if self.failed.is_some() {
            return Some(Instant(0));
        }
        let mut at = self.pace.deadline(self.busy());
        if self.muted_until > self.now {
            at = at.min(self.muted_until);
        }
        (at < Instant(u64::MAX)).then_some(at)
    }

    /// What the deadline asks for: close, or nothing yet.
    pub fn tick(&mut self, now: Now) -> Result<(), Close> {
        self.now = now.mono;
        if let Some(close) = &self.failed {
            return Err(close.clone());
        }
        let busy = self.busy();
        self.pace.tick(now.mono, busy)
    }

    /// Nothing unanswered, unsent or half received.
    pub fn quiet(&self) -> bool {
        !self.busy() && self.frame.is_none() && self.prefix_bytes == 0
    }

    /// The client waits for us.
    fn busy(&self) -> bool {
        self.order.unanswered() > 0 || self.waiting.is_some() || !self.backlog.is_empty() || !self.output.is_empty()
    }

    /// No request may be taken out of what arrives.
    fn blocked(&self) -> bool {
        self.waiting.is_some() || self.order.full() || self.clogged()
    }

    /// The client does not take its replies, or lets them wait for one that takes long.
    fn clogged(&self) -> bool {
        self.output.cost() + self.order.cost() > self.unsent_max
    }

    fn take_backlog(&mut self, now: Now, pool: &mut Pool, out: &mut impl Extend<Request>) -> Result<(), Close> {
        if self.backlog.is_empty() || self.blocked() {
            return Ok(());
        }
        let bytes = self.backlog.take();
        self.take(now, pool, (&bytes, None), out)
    }

    fn take_block(
        &mut self,
        now: Now,
        pool: &mut Pool,
        block: BufMut,
        out: &mut impl Extend<Request>,
    ) -> Result<(), Close> {
        let frame = self.frame.as_mut().expect("a Direct was asked for");
        let before = frame.have();
        let excess = frame.take_back(block);
        self.pace.frame_gained(now.mono, frame.have().saturating_sub(before));
        self.end_frame(now, out)?;
        self.take(now, pool, (&excess, None), out)
    }

    /// Takes all of `bytes`: into frames, or into the backlog once no more of them may run. Large whole frames stay in `block`, if the
    /// bytes are of one.
    fn take(
        &mut self,
        now: Now,
        pool: &mut Pool,
        (mut bytes, block): (&[u8], Option<&Buf>),
        out: &mut impl Extend<Request>,
    ) -> Result<(), Close> {
        let mut gather = None;
        while !bytes.is_empty() {
            if let Some(frame) = &mut self.frame {
                let taken = frame.fill(pool, bytes);
                bytes = &bytes[taken..];
                self.pace.frame_gained(now.mono, taken);
                self.end_frame(now, out)?;
                continue;
            }
            if self.blocked() {
                self.backlog.push(pool, bytes);
                break;
            }
            let Some(length) = self.length(now, &mut bytes)? else { break };
            if let Some((whole, rest)) = bytes.split_at_checked(length) {
                let frame = match block {
                    Some(block) if whole.len() >= SLICED_FRAME_BYTES_MIN => block.slice_of(whole),
                    _ => copy(pool, &mut gather, whole, bytes.len()),
                };
                bytes = rest;
                self.pace.frame_over();
                self.accept(now, frame, out)?;
            } else {
                self.frame = Some(Frame::new(length));
            }
        }
        Ok(())
    }

    /// The next frame's length, off the front of `bytes`; none while not all of it is here.
    fn length(&mut self, now: Now, bytes: &mut &[u8]) -> Result<Option<usize>, Close> {
        let (head, rest) = bytes.split_at(bytes.len().min(PREFIX_BYTES - self.prefix_bytes));
        self.prefix[self.prefix_bytes..self.prefix_bytes + head.len()].copy_from_slice(head);
        self.prefix_bytes += head.len();
        *bytes = rest;
        self.pace.frame_gained(now.mono, head.len());
        if self.prefix_bytes < PREFIX_BYTES {
            return Ok(None);
        }
        self.prefix_bytes = 0;
        self.frame_length(self.prefix).map(Some)
    }

    fn frame_length(&mut self, prefix: [u8; PREFIX_BYTES]) -> Result<usize, Close> {
        if std::mem::take(&mut self.fresh)
            && let Some(what) = stranger(prefix)
        {
            return Err(Close::Protocol(what.to_owned()));
        }
        let length = i32::from_be_bytes(prefix);
        match u32::try_from(length) {
            Ok(0) | Err(_) => Err(Close::Protocol(format!("a frame of length {length}"))),
            Ok(bytes) if bytes > self.frame_bytes_max => Err(Close::TooLarge { bytes, max: self.frame_bytes_max }),
            Ok(bytes) => Ok(bytes as usize),
        }
    }

    fn end_frame(&mut self, now: Now, out: &mut impl Extend<Request>) -> Result<(), Close> {
        let Some(frame) = self.frame.take_if(|frame| frame.whole()) else { return Ok(()) };
        self.pace.frame_over();
        self.accept(now, frame.finish(), out)
    }

    fn accept(&mut self, now: Now, frame: Buf, out: &mut impl Extend<Request>) -> Result<(), Close> {
        assert!(self.waiting.is_none());
        self.waiting = Some(self.parse(now, frame)?);
        self.release(now, out)
    }

    fn parse(&self, now: Now, frame: Buf) -> Result<Waiting, Close> {
        // Which header it is follows from the API and its version: they are looked at first, so that the error names them.
        let spec = match frame.first_chunk::<4>() {
            Some([a, b, c, d]) => Some(spoken(i16::from_be_bytes([*a, *b]), i16::from_be_bytes([*c, *d]))?),
            None => None,
        };
        let (header, body) = request_header(&frame)
            .map_err(|error| Close::Protocol(format!("a request header that does not decode: {error}")))?;
        let overlap = spec.map_or(Overlap::Barrier, |spec| spec.overlap);
        let request = Request {
            connection: self.id,
            slot: ReplySlot(0),
            api: header.api,
            version: header.version,
            correlation: header.correlation,
            client_id: header.client_id.map_or_else(Buf::default, |id| frame.slice_of(id.as_bytes())),
            principal: PrincipalId(0),
            body: body as u32,
            received: now.mono,
            frame,
            counted: None,
        };
        Ok(Waiting { request, overlap })
    }

    /// Lets run what may: the waiting request, then those of the backlog that are whole.
    fn release(&mut self, now: Now, out: &mut impl Extend<Request>) -> Result<(), Close> {
        loop {
            if let Some(waiting) = self.waiting.take() {
                if !self.order.may_run(waiting.overlap) || self.clogged() {
                    self.waiting = Some(waiting);
                    return Ok(());
                }
                let slot = self.order.run(waiting.overlap);
                out.extend([Request { slot, ..waiting.request }]);
            }
            if self.order.full() || self.clogged() {
                return Ok(());
            }
            let Some(frame) = self.next_in_backlog()? else { return Ok(()) };
            self.waiting = Some(self.parse(now, frame)?);
        }
    }

    /// The first frame of the backlog, if it is whole.
    fn next_in_backlog(&mut self) -> Result<Option<Buf>, Close> {
        let bytes = self.backlog.bytes().clone();
        let Some(prefix) = bytes.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
        let end = PREFIX_BYTES + self.frame_length(*prefix)?;
        if bytes.len() < end {
            return Ok(None);
        }
        self.backlog.skip(end);
        Ok(Some(bytes.slice(PREFIX_BYTES..end)))
    }
}

/// The API of this key, when we speak this version of it. ApiVersions is how a client finds out which we speak, so it may ask in
/// any (KIP-511).
fn spoken(key: i16, version: i16) -> Result<&'static ApiSpec, Close> {
    let Some(spec) = api(key) else {
        return Err(Close::Protocol(format!("API {key} version {version}, which is not spoken here")));
    };
    if !spec.supports(version) && key != API_VERSIONS.key {
        let (first, last) = spec.versions;
        return Err(Close::Protocol(format!("{} version {version}; {first} to {last} are spoken", spec.name)));
    }
    Ok(spec)
}

/// A frame that came whole, in a block of its own or, with the others of these `ahead` bytes, in a shared one. It is here already:
/// when the pool refuses, it goes to the heap, and nothing more is asked for until there is room.
fn copy(pool: &mut Pool, gather: &mut Option<BufMut>, frame: &[u8], ahead: usize) -> Buf {
    let shared = frame.len() <= GATHERED_FRAME_BYTES_MAX;
    if !shared || gather.as_ref().is_none_or(|block| block.spare() < frame.len()) {
        let bytes = if shared { ahead.clamp(frame.len(), GATHERED_BLOCK_BYTES) } else { frame.len() };
        let Ok(mut block) = pool.take(Account::Receive, bytes) else { return Buf::from_vec(frame.to_vec()) };
        if !shared {
            block.extend(frame);
            return block.freeze();
        }
        *gather = Some(block);
    }
    let Some(block) = gather else { return Buf::from_vec(frame.to_vec()) };
    block.extend(frame);
    block.freeze_to(frame.len())
}
