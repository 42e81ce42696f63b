//! Reclaim: what the oldest groups say is said again, so that their space is used anew. `room.rs` says why there is always room for it.

use ringmain_buffer::Pool;
use ringmain_types::*;

use crate::commit::{Draft, NAME_BYTES_MAX, Telling, due, put_state, state_bytes};
use crate::entry::{ENTRY_BYTES, Entry, PIECE_BYTES};
use crate::journal::Needs;
use crate::log::{Log, Phase};
use crate::plan::{Least, Tells};
use crate::store::Store;

/// What all logs need of the journal is estimated anew after this many groups.
const LIVE_GROUPS: u64 = 16;

impl Store {
    /// Whether saying again what the oldest groups say makes room, and somebody waits for it.
    pub(crate) fn reclaims(&mut self, now: Now, group: u64) -> bool {
        let ring = self.ring();
        let (used, eighth, sequence) = (ring.used(), ring.ring_bytes / 8, ring.sequence_next);
        // Once everything was said again behind the last news, once more makes no more room.
        if used <= eighth * 3 || ring.oldest().next().is_none_or(|(oldest, _)| *oldest > self.told_news) {
            return false;
        }
        let news = |slot: &u32| {
            let log = self.slots[*slot as usize].log.as_deref();
            log.is_some_and(|log| log.news() && due(log, now, self.closing))
        };
        // Without news, room is made for the appends that a crowded ring refuses.
        if used <= eighth * 4 && self.gone.is_empty() && !self.dirty.iter().any(news) {
            return false;
        }
        // Looked at again now and then: it takes a look at every log.
        if used > eighth * 4 || self.live.is_none_or(|(_, at)| sequence >= at + LIVE_GROUPS) {
            let live: usize = self.ring().oldest().map(|(_, who)| self.state_bytes(who)).sum();
            self.live = Some((live as u64, sequence));
        }
        let margin = if used > eighth * 5 { group } else { 2 * group };
        self.live.is_some_and(|(live, _)| live + margin < used)
    }

    /// Whether news that wait for room in the ring get some by a pass: it makes the ring smaller, or tells of directories, without
    /// which there are no files for what makes the logs large.
    pub(crate) fn makes_room(&self) -> bool {
        let ring = self.ring();
        let named = |slot: &u32| {
            let log = self.slots[*slot as usize].log.as_deref();
            log.is_some_and(|log| log.ready() && log.pending.state && log.since.is_some())
        };
        if self.dirty.iter().any(named) {
            return true;
        }
        let least = ring.oldest_bytes().map(|((_, who), bytes)| self.least_bytes(who).unwrap_or(bytes)).sum();
        ring.needed_bytes() > ring.again(least) + 2 * ring.block
    }

    /// Of a log whose whole blocks can leave for its file.
    fn least_bytes(&self, who: &Needs) -> Option<u64> {
        let Needs::Log(slot) = who else { return None };
        let log = self.slots[*slot as usize].log.as_deref().filter(|log| log.ready())?;
        Some(Least::none(self.block).plans(log, Tells::Again).live(log))
    }

    /// Says again what the oldest groups say.
    pub(crate) fn reclaim(&mut self, draft: &mut Draft, pool: &mut Pool) {
        draft.again = true;
        self.say_oldest(draft, pool);
        draft.again = false;
    }

    fn say_oldest(&mut self, draft: &mut Draft, pool: &mut Pool) {
        let ring = self.ring();
        let budget = draft.bytes_max() / 2;
        let mut oldest = Vec::new();
        let mut bytes = 0;
        for (_, who) in ring.oldest().take(1024) {
            if bytes >= budget {
                break;
            }
            bytes += self.state_bytes(who);
            oldest.push(who.clone());
        }
        for who in oldest {
            match who {
                Needs::Log(slot) => {
                    if self.slots[slot as usize]
                        .log
                        .as_ref()
                        .is_some_and(|log| log.ready() || (matches!(log.phase, Phase::Removing) && log.jobs == 0))
                    {
                        let told = self.tell(slot, draft, pool, Tells::State);
                        if told != Telling::Told && self.tell(slot, draft, pool, Tells::Again) != Telling::Told {
                            // Younger ones would not make room.
                            self.settle.insert(slot);
                            return;
                        }
                    } else if !self.tell_recovering(slot, draft) {
                        return;
                    }
                }
                Needs::Unopened(partition) => {
                    let Some((state, _)) = self.unopened.get(&partition) else { continue };
                    if !draft.fits(state_bytes(state)) {
                        return;
                    }
                    put_state(draft, state);
                    draft.tell_unopened(partition);
                }
                Needs::Removing(dir) => {
                    if !draft.fits(ENTRY_BYTES + dir.len()) {
                        return;
                    }
                    draft.put(&Entry::Removing { dir: &dir });
                    draft.tell_removing(dir);
                }
            }
        }
    }

    /// A log whose recovery is under way is told as the journal had it. False when it can't be told now.
    fn tell_recovering(&mut self, slot: u32, draft: &mut Draft) -> bool {
        let Some(log) = self.slots[slot as usize].log.as_deref() else { return false };
        let state = match (&log.phase, &log.kept_state) {
            (Phase::Recovering(recovering), _) => &recovering.state,
            (Phase::Damaged, Some(state)) => &**state,
            _ => return false,
        };
        if !draft.fits(state_bytes(state)) {
            return false;
        }
        put_state(draft, state);
        let live = self.live_bytes(log);
        draft.tell_again(log, live);
        true
    }

    /// What the ring counts for a log.
    pub(crate) fn live_bytes(&self, log: &Log) -> u64 {
        log.since.map_or(0, |since| self.ring().bytes(since, Needs::Log(log.id.slot)))
    }

    fn state_bytes(&self, who: &Needs) -> usize {
        match who {
            Needs::Log(slot) => self.slots[*slot as usize].log.as_ref().map_or(0, |log| {
                if matches!(log.phase, Phase::Removing | Phase::Removed) {
                    return ENTRY_BYTES + NAME_BYTES_MAX;
                }
                Least::none(self.block).plans(log, Tells::State).kept(log) + PIECE_BYTES + 64
            }),
            Needs::Unopened(partition) => self.unopened.get(partition).map_or(0, |(state, _)| state_bytes(state)),
            Needs::Removing(dir) => ENTRY_BYTES + dir.len(),
        }
    }
}
