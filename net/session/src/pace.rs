//! Whether a connection makes progress.

use ringmain_types::{Instant, Limits};

use crate::Close;

/// What a frame must gain per millisecond, over a window of `connection_slow_ms`: nobody who sends a large frame over a poor line is
/// that slow, and nobody keeps a started frame for long at this price.
const FRAME_BYTES_PER_MS_MIN: u64 = 1;

/// Three clocks: nothing happens (idle), a frame has started and does not get on, a send does not get on.
pub(crate) struct Pace {
    idle_ms: u64,
    slow_ms: u64,
    /// When bytes were last received or sent.
    active: Instant,
    frame: Option<Window>,
    send: Option<Instant>,
}

struct Window {
    since: Instant,
    bytes: u64,
    /// Of the frame's standing still, we are the cause: no memory for it.
    starved: bool,
}

impl Pace {
    pub(crate) fn new(limits: &Limits, now: Instant) -> Pace {
        let (idle_ms, slow_ms) = (limits.connection_idle_ms, limits.connection_slow_ms);
        Pace { idle_ms, slow_ms, active: now, frame: None, send: None }
    }

    pub(crate) fn active(&mut self, now: Instant) {
        self.active = now;
    }

    /// `bytes` came for the frame under way, or started it.
    pub(crate) fn frame_gained(&mut self, now: Instant, bytes: usize) {
        let window = self.frame.get_or_insert(Window { since: now, bytes: 0, starved: false });
        if window.starved {
            *window = Window { since: now, bytes: 0, starved: false };
        }
        window.bytes += bytes as u64;
    }

    /// No frame is under way, or it stands still for our own sake.
    pub(crate) fn frame_over(&mut self) {
        self.frame = None;
    }

    /// There is no memory for the frame under way.
    pub(crate) fn frame_starves(&mut self, now: Instant) {
        let window = self.frame.get_or_insert(Window { since: now, bytes: 0, starved: true });
        window.starved = true;
    }

    pub(crate) fn send_started(&mut self, now: Instant) {
        self.send = Some(now);
    }

    pub(crate) fn send_over(&mut self, now: Instant) {
        self.send = None;
        self.active = now;
    }

    /// `busy`: something is unanswered or unsent, so that the client is the one who waits.
    pub(crate) fn deadline(&self, busy: bool) -> Instant {
        let frame = self.frame.as_ref().map(|window| window.since.plus_ms(self.slow_ms));
        let send = self.send.map(|since| since.plus_ms(self.slow_ms));
        // While it is busy nothing is due: this only looks again, late.
        let idle = if busy || self.frame.is_some() { None } else { Some(self.active.plus_ms(self.idle_ms)) };
        [frame, send, idle].into_iter().flatten().min().unwrap_or(Instant(u64::MAX))
    }

    pub(crate) fn tick(&mut self, now: Instant, busy: bool) -> Result<(), Close> {
        if self.send.is_some_and(|since| since.plus_ms(self.slow_ms) <= now) {
            return Err(Close::Slow);
        }
        if let Some(window) = &mut self.frame
            && window.since.plus_ms(self.slow_ms) <= now
        {
            if window.starved {
                return Err(Close::Memory);
            }
            if window.bytes < self.slow_ms * FRAME_BYTES_PER_MS_MIN {
                return Err(Close::Slow);
            }
            *window = Window { since: now, bytes: 0, starved: false };
        }
        if !busy && self.frame.is_none() && self.active.plus_ms(self.idle_ms) <= now {
            return Err(Close::Idle);
        }
        Ok(())
    }
}
