//! What waits on a shard's logs: acks for a flush, DeleteRecords for a durable start, long polls for data. Events name a log, and
//! only those who wait on that log are touched: 100 000 long polls cost memory, not scans.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringmain_types::{LogId, Offset};

use crate::mesh::CallId;
use crate::slab::{Key, Slab};

/// Those who wait until an offset of a log is passed, in the order of offsets, then of arrival.
pub(crate) struct OffsetWaits<W> {
    /// By the log's slot.
    logs: Vec<LogWaits<W>>,
}

/// A slot's logs come one after the other: who waited for the one before was told that it is gone.
struct LogWaits<W> {
    generation: u32,
    /// Offsets rise, as most do.
    waiting: VecDeque<(Offset, W)>,
    /// Those that came when one of a higher offset waited: retries of what is not flushed yet, as many of them as a client likes. With the number
    /// that each got.
    late: BTreeMap<(Offset, u64), W>,
    number: u64,
}

/// A log that nobody waits for keeps room for no more.
const WAITS_KEPT: usize = 128;

impl<W> OffsetWaits<W> {
    pub(crate) fn new() -> OffsetWaits<W> {
        OffsetWaits { logs: Vec::new() }
    }

    pub(crate) fn wait(&mut self, log: LogId, offset: Offset, who: W) {
        let slot = log.slot as usize;
        if self.logs.len() <= slot {
            self.logs.resize_with(slot + 1, LogWaits::new);
        }
        let LogWaits { generation, waiting, late, number } = &mut self.logs[slot];
        let nobody = waiting.is_empty() && late.is_empty();
        assert!(nobody || *generation == log.generation, "they wait for a log that is gone");
        *generation = log.generation;
        if waiting.back().is_some_and(|(last, _)| *last > offset) {
            *number += 1;
            late.insert((offset, *number), who);
        } else {
            waiting.push_back((offset, who));
        }
    }

    /// Everyone who waited for an offset up to and with `end`.
    pub(crate) fn reached(&mut self, log: LogId, end: Offset, out: &mut Vec<W>) {
        let waits = self.logs.get_mut(log.slot as usize).filter(|waits| waits.generation == log.generation);
        if let Some(waits) = waits {
            waits.reached(end, out);
        }
    }

    /// Everyone who waits on this log: it is gone.
    pub(crate) fn fail(&mut self, log: LogId, out: &mut Vec<W>) {
        self.reached(log, Offset(i64::MAX), out);
    }

    /// Everyone: the directory failed.
    pub(crate) fn fail_all(&mut self, out: &mut Vec<W>) {
        self.logs.drain(..).for_each(|mut waits| waits.reached(Offset(i64::MAX), out));
    }
}

impl<W> LogWaits<W> {
    fn new() -> LogWaits<W> {
        LogWaits { generation: 0, waiting: VecDeque::new(), late: BTreeMap::new(), number: 0 }
    }

    fn reached(&mut self, end: Offset, out: &mut Vec<W>) {
        loop {
            let first = self.waiting.front().map(|(offset, _)| *offset).filter(|offset| *offset <= end);
            let late = self.late.first_key_value().map(|((offset, _), _)| *offset).filter(|offset| *offset <= end);
            out.extend(match (first, late) {
                (None, None) => break,
                // Of one offset, who came in order was first.
                (Some(first), late) if late.is_none_or(|late| first <= late) => self.waiting.pop_front().map(|it| it.1),
                _ => self.late.pop_first().map(|it| it.1),
            });
        }
        if self.waiting.is_empty() && self.waiting.capacity() > WAITS_KEPT {
            self.waiting = VecDeque::new();
        }
    }
}

/// Long polls of any shard on this shard's logs. One-shot: what fires is unlinked everywhere.
pub(crate) struct Watches {
    watches: Slab<Watch>,
    by_call: BTreeMap<CallId, Key>,
    on_log: BTreeMap<LogId, BTreeSet<Key>>,
}

struct Watch {
    call: CallId,
    logs: Vec<LogId>,
    /// Bytes that a fetch would get now.
    available: u64,
    threshold: u64,
}

impl Watches {
    pub(crate) fn new() -> Watches {
        Watches { watches: Slab::new(), by_call: BTreeMap::new(), on_log: BTreeMap::new() }
    }

    /// Fires once `available` and what the logs grow by from now on reach `threshold`.
    pub(crate) fn watch(&mut self, call: CallId, mut logs: Vec<LogId>, available: u64, threshold: u64) {
        logs.sort_unstable();
        logs.dedup();
        let links = logs.clone();
        let key = self.watches.insert(Watch { call, logs, available, threshold });
        for log in links {
            self.on_log.entry(log).or_default().insert(key);
        }
        self.by_call.insert(call, key);
    }

    /// `bytes` more of `log` became visible.
    pub(crate) fn grew(&mut self, log: LogId, bytes: u64, ready: &mut Vec<CallId>) {
        let Some(keys) = self.on_log.get(&log) else { return };
        let mut fired = Vec::new();
        for &key in keys {
            let Some(watch) = self.watches.get_mut(key) else { continue };
            watch.available = watch.available.saturating_add(bytes);
            if watch.available >= watch.threshold {
                fired.push(key);
            }
        }
        self.fire(fired, ready);
    }

    /// A fetch of `log` would get an error now.
    pub(crate) fn fail(&mut self, log: LogId, ready: &mut Vec<CallId>) {
        let fired = self.on_log.get(&log).map(|keys| keys.iter().copied().collect());
        self.fire(fired.unwrap_or_default(), ready);
    }

    /// All of them: this shard stops.
    pub(crate) fn fail_all(&mut self, ready: &mut Vec<CallId>) {
        self.fire(self.watches.keys(), ready);
    }

    /// Whether there was such a watch.
    pub(crate) fn cancel(&mut self, call: CallId) -> bool {
        let Some(&key) = self.by_call.get(&call) else { return false };
        self.unlink(key).is_some()
    }

    fn fire(&mut self, keys: Vec<Key>, ready: &mut Vec<CallId>) {
        for key in keys {
            ready.extend(self.unlink(key));
        }
    }

    fn unlink(&mut self, key: Key) -> Option<CallId> {
        let watch = self.watches.remove(key)?;
        for log in &watch.logs {
            if let Some(keys) = self.on_log.get_mut(log) {
                keys.remove(&key);
                if keys.is_empty() {
                    self.on_log.remove(log);
                }
            }
        }
        self.by_call.remove(&watch.call);
        Some(watch.call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringmain_types::ShardId;

    #[test]
    fn a_slots_next_log_wakes_nobody_of_the_one_before() {
        let (mut waits, mut woken) = (OffsetWaits::new(), Vec::new());
        let [old, new] = [0, 1].map(|generation| LogId { slot: 3, generation });
        waits.wait(old, Offset(5), 'a');
        waits.reached(new, Offset(9), &mut woken);
        assert!(woken.is_empty());
        waits.fail(old, &mut woken);
        waits.wait(new, Offset(1), 'b');
        waits.reached(old, Offset(9), &mut woken);
        assert_eq!(woken, ['a']);
        waits.reached(new, Offset(1), &mut woken);
        assert_eq!(woken, ['a', 'b']);
    }

    /// Retries of two batches that are not flushed, in the worst order: each took a move of all that wait for the younger one.
    #[test]
    fn many_that_come_out_of_order_come_out_in_order() {
        let log = LogId { slot: 0, generation: 0 };
        let mut waits = OffsetWaits::new();
        let many = 200_000;
        let offsets = (0..many).map(|at| (20, at)).chain((many..2 * many).map(|at| (10, at)));
        offsets.for_each(|(offset, at)| waits.wait(log, Offset(offset), at));
        let mut out = Vec::new();
        waits.reached(log, Offset(10), &mut out);
        assert!(out.iter().copied().eq(many..2 * many));
        out.clear();
        waits.fail_all(&mut out);
        assert!(out.iter().copied().eq(0..many));
    }

    /// Runs `tests/data/purgatory.txt`: a line of commands, then `=>` and who came out.
    #[test]
    fn transcript() {
        let mut waits: OffsetWaits<String> = OffsetWaits::new();
        let mut watches = Watches::new();
        let mut lines = 0;
        for line in include_str!("../tests/data/purgatory.txt").lines() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (command, want) = line.split_once("=>").expect("a transcript line has its outcome");
            let words: Vec<&str> = command.split_whitespace().collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap();
            let log = |text: &str| LogId { slot: text.parse().unwrap(), generation: 0 };
            let call = |at: usize| CallId { from: ShardId(0), to: ShardId(0), slot: number(at) as u16, generation: 0 };
            let (mut acks, mut calls) = (Vec::new(), Vec::new());
            match words[0] {
                "wait" => waits.wait(log(words[1]), Offset(number(2) as i64), words[3].into()),
                "flushed" => waits.reached(log(words[1]), Offset(number(2) as i64), &mut acks),
                "gone" => {
                    waits.fail(log(words[1]), &mut acks);
                    watches.fail(log(words[1]), &mut calls);
                }
                "fenced" => waits.fail_all(&mut acks),
                "watch" => {
                    watches.watch(call(1), words[4..].iter().map(|text| log(text)).collect(), number(2), number(3))
                }
                "grew" => watches.grew(log(words[1]), number(2), &mut calls),
                "cancel" => assert!(watches.cancel(call(1))),
                "stop" => watches.fail_all(&mut calls),
                other => panic!("unknown command {other}"),
            }
            acks.extend(calls.iter().map(|call| call.slot.to_string()));
            assert_eq!(acks.join(" "), want.trim(), "after: {line}");
            lines += 1;
        }
        assert!(lines > 15);
        assert!(
            watches.watches.len() == 0 && watches.on_log.is_empty() && watches.by_call.is_empty(),
            "all is unlinked"
        );
    }
}
