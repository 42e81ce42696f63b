//! Work that nobody waits for: retention, forgetting silent producers.

use ringmain_buffer::Pool;
use ringmain_disk::DiskOp;
use ringmain_types::*;

use crate::log::Log;
use crate::store::Store;

/// Logs looked at in one slice.
const LOGS_PER_SLICE: usize = 256;

/// When the next pass over all logs begins, and how far the one under way is.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    next: Option<Instant>,
    at: Option<usize>,
    /// The first pass has begun: until then nothing goes.
    begun: bool,
}

enum Found {
    Nothing,
    Start(Offset),
    Roll,
    /// This sealed segment's largest timestamp is not known yet.
    Look(Offset),
}

impl Store {
    /// Spare files, compaction, retention, producer expiry: at most `bytes` read or written. A byte budget, so that a seed replays. True when there is more
    /// to do.
    pub fn background(&mut self, now: Now, pool: &mut Pool, bytes: u32, out: &mut Vec<DiskOp>) -> bool {
        if self.fenced.is_some() || self.closing || self.journal.is_none() {
            return false;
        }
        self.fill_spares(now, pool, bytes);
        let compacts = self.compact(now, pool, bytes);
        self.start_jobs(now, pool);
        self.take_queue(out);
        // However soon a start has its logs back: nothing of them goes before somebody could say that the clock is wrong.
        let first = now.mono.plus_ms(self.config.limits.retention_first_ms);
        let next = *self.maintenance.next.get_or_insert(first);
        let at = match self.maintenance.at {
            Some(at) => at,
            None if next <= now.mono => 0,
            None => return compacts,
        };
        self.maintenance.begun = true;
        self.maintenance.next = Some(now.mono.plus_ms(self.config.limits.retention_check_ms));
        let until = (at + LOGS_PER_SLICE).min(self.slots.len());
        for slot in at..until {
            self.retain(now, slot as u32);
        }
        let more = until < self.slots.len();
        self.maintenance.at = more.then_some(until);
        self.take_queue(out);
        more || compacts
    }

    /// Something that retention waited for is known now.
    pub(crate) fn maintenance_soon(&mut self) {
        self.maintenance.next = Some(Instant(0));
    }

    pub(crate) fn maintenance_at(&self) -> Option<Instant> {
        self.maintenance.next.filter(|_| !self.closing && self.slots.iter().any(|slot| slot.log.is_some()))
    }

    pub(crate) fn retain(&mut self, now: Now, slot: u32) {
        if !self.maintenance.begun {
            return;
        }
        let Some(log) = self.slots[slot as usize].log.as_deref_mut().filter(|log| log.ready()) else { return };
        let id = log.id;
        log.producers.expire(now.wall, log.config.producer_expiration_ms);
        if !log.config.delete {
            return;
        }
        match expired(log, now.wall) {
            Found::Nothing => {}
            Found::Start(to) => {
                if to > log.start && to <= log.flushed {
                    log.start = to;
                    log.pending.start = true;
                    log.epochs.truncate_start(to);
                    self.dirty.insert(slot);
                    // What lies behind it may have to be looked at.
                    self.maintenance_soon();
                }
            }
            Found::Roll => {
                log.roll(now.wall);
                self.dirty.insert(slot);
                self.settle.insert(slot);
            }
            Found::Look(base) if log.sealed[&base].built_to.is_some() => self.look_through(id, base),
            Found::Look(base) => self.load_index(id, base, None),
        }
    }
}

/// Where the log may start by its topic's time and size; whole segments, oldest first.
fn expired(log: &Log, now: WallMs) -> Found {
    let mut start = log.start;
    let mut size = log.size_bytes();
    let config = &log.config;
    let old = |at: WallMs| config.retention_ms >= 0 && at.0 >= 0 && now.0.saturating_sub(at.0) > config.retention_ms;
    let mut all = true;
    for segment in log.sealed.values() {
        let large = config.retention_bytes >= 0 && size - u64::from(segment.bytes) >= config.retention_bytes as u64;
        let newest = segment.newest();
        if !large && config.retention_ms >= 0 && newest.is_none() {
            return if start > log.start { Found::Start(start) } else { Found::Look(segment.base) };
        }
        size -= u64::from(segment.bytes);
        if !large && segment.left_timestamp == Some(WallMs(-1)) {
            // Nothing of it can be read: it goes with what is behind it.
            continue;
        }
        if !large && !newest.is_some_and(old) {
            all = false;
            break;
        }
        start = segment.next;
    }
    if start > log.start {
        return Found::Start(start);
    }
    let active = log.active();
    let max = active.index.max_timestamp().map(|(at, _)| at);
    let whole = log.open.len() == 1 && active.end > 0 && log.flushed == active.next && !log.in_flight;
    if all && whole && max.is_some_and(old) { Found::Roll } else { Found::Nothing }
}
