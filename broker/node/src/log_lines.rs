//! The notes of a core that a person should read, as log lines. What a client can cause is limited in its rate.

use std::sync::Arc;

use ringmain_disk::DiskError;
use ringmain_log::{Damage, Recovery};
use ringmain_session::Close;
use ringmain_shard::Note;
use ringmain_types::{Instant, Now, Partition, ShardId};

use crate::metrics::Metrics;
use crate::notes::NoteSink;

/// Lines about single connections that a core writes in a second; more are counted and named in the next.
const LINES_PER_SECOND: u32 = 10;
/// Places of damage that are named for one log; `ringmain log verify` names all.
const DAMAGE_LINES: usize = 20;

pub(crate) struct LogLines {
    shard: u16,
    /// Before that a failure ends the start, which says so itself, in one line.
    ready: bool,
    /// Knows the topics' names, on whichever core they came up.
    metrics: Arc<Metrics>,
    rate: Rate,
}

/// A bucket of lines that fills up each second.
#[derive(Default)]
struct Rate {
    since: Instant,
    lines: u32,
    left_out: u64,
}

impl Rate {
    /// How many were left out since the last line, if one may be written now.
    fn take(&mut self, now: Instant) -> Option<u64> {
        if now.since(self.since) >= 1_000_000_000 {
            (self.since, self.lines) = (now, 0);
        }
        if self.lines == LINES_PER_SECOND {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl LogLines {
    pub(crate) fn new(shard: ShardId, metrics: Arc<Metrics>) -> LogLines {
        LogLines { shard: shard.0, ready: false, metrics, rate: Rate::default() }
    }

    fn name(&self, partition: Partition) -> String {
        let image = self.metrics.try_image();
        let topic = image.as_ref().and_then(|image| image.topics.get(&partition.topic));
        let name = topic.map_or_else(|| partition.topic.to_string(), |topic| topic.name.to_string());
        format!("{name}-{}", partition.index.0)
    }

    fn closed(&mut self, now: Now, peer: std::net::SocketAddr, why: &Close) {
        let Some(what) = unusual(why) else { return };
        let Some(left_out) = self.rate.take(now.mono) else { return };
        let shard = self.shard;
        match left_out {
            0 => tracing::warn!(shard, %peer, "connection closed: {what}"),
            _ => tracing::warn!(shard, %peer, left_out, "connection closed: {what}"),
        }
    }

    /// Of thousands of partitions that wait, a few are told.
    fn no_space(&mut self, now: Now, partition: Partition, error: &DiskError) {
        let Some(left_out) = self.rate.take(now.mono) else { return };
        let (shard, partition) = (self.shard, self.name(partition));
        tracing::warn!(
            shard,
            partition,
            left_out,
            %error,
            "no space left: records are refused with error 56 until there is some; make room on that file system"
        );
    }

    fn recovered(&self, partition: Partition, report: &Recovery) {
        let (shard, partition) = (self.shard, self.name(partition));
        let (start, end) = (report.start.0, report.end.0);
        if report.torn_bytes > 0 || report.scanned_bytes > 0 {
            let (scanned_bytes, torn_bytes) = (report.scanned_bytes, report.torn_bytes);
            tracing::info!(shard, partition, start, end, scanned_bytes, torn_bytes, "log recovered");
        } else {
            tracing::debug!(shard, partition, start, end, "log opened");
        }
        for damage in report.damage.iter().take(DAMAGE_LINES) {
            damaged(shard, &partition, damage);
        }
        let more = report.damage.len().saturating_sub(DAMAGE_LINES);
        if more > 0 {
            tracing::error!(shard, partition, more, "more is damaged: see `ringmain log verify`");
        }
    }
}

fn damaged(shard: u16, partition: &str, damage: &Damage) {
    match damage {
        Damage::Rot { path, position } if path.ends_with("index") => {
            tracing::error!(shard, partition, path, position, "an index entry does not fit its batch: passed over")
        }
        Damage::Rot { path, position } if path.ends_with(".snapshot") => {
            tracing::error!(
                shard,
                partition,
                path,
                position,
                "a producers' snapshot does not check: made anew from the batches"
            )
        }
        Damage::Rot { path, position } => {
            tracing::error!(shard, partition, path, position, "acknowledged bytes do not check: not served")
        }
        Damage::TooLarge { path, position, bytes, max } => tracing::error!(
            shard,
            partition,
            path,
            position,
            bytes,
            max,
            "a batch is larger than the memory for reads: not served until the broker is given more"
        ),
        Damage::Unreadable(error) => tracing::error!(shard, partition, %error, "log can't be read"),
        Damage::Stray { path } => tracing::warn!(shard, partition, path, "set aside: belongs to no log"),
    }
}

/// What a close was, if a person may want to know.
fn unusual(why: &Close) -> Option<String> {
    match why {
        Close::Eof | Close::Idle | Close::Shutdown | Close::Errno(_) => None,
        Close::Slow => Some("too slow in sending a request or taking a reply".into()),
        Close::TooMany => Some("too many connections, in all or from its address".into()),
        Close::Memory => Some("no memory left for it".into()),
        Close::Protocol(what) => Some(format!("not Kafka's protocol: {what}")),
        Close::TooLarge { bytes, max } => {
            Some(format!("a request of {bytes} bytes, more than socket.request.max.bytes = {max}"))
        }
    }
}

impl NoteSink for LogLines {
    fn note(&mut self, now: Now, note: &Note) {
        let shard = self.shard;
        match note {
            Note::Ready => {
                self.ready = true;
                tracing::debug!(shard, "ready")
            }
            Note::Fenced { .. } if !self.ready => {}
            Note::Stopped => tracing::debug!(shard, "stopped"),
            Note::Recovered { partition, report } => self.recovered(*partition, report),
            Note::Truncated { partition, to } => {
                tracing::info!(shard, partition = self.name(*partition), to = to.0, "log truncated")
            }
            Note::Fenced { dir, error } => tracing::error!(
                shard,
                dir = dir.0,
                %error,
                "the log directory failed and takes no more writes: check the disk, then restart"
            ),
            Note::NoSpace { partition, error } => self.no_space(now, *partition, error),
            Note::Damaged { partition, damage } => damaged(shard, &self.name(*partition), damage),
            Note::SpaceAgain { partition } => {
                tracing::info!(shard, partition = self.name(*partition), "there is space again: records are taken")
            }
            Note::SaidAgain { start } => {
                tracing::info!(shard, start = start.0, "the metadata log begins anew: what was before is not needed")
            }
            Note::Closed { peer, why, .. } => self.closed(now, *peer, why),
            Note::Image(_)
            | Note::Acked { .. }
            | Note::Visible { .. }
            | Note::Request { .. }
            | Note::Traffic { .. }
            | Note::Compaction(_)
            | Note::Log { .. }
            | Note::Group { .. }
            | Note::Groups { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_limited_and_what_is_left_out_is_counted() {
        let mut rate = Rate::default();
        let at = |ms: u64| Instant(ms * 1_000_000);
        for _ in 0..LINES_PER_SECOND {
            assert_eq!(rate.take(at(5000)), Some(0));
        }
        for _ in 0..7 {
            assert_eq!(rate.take(at(5999)), None);
        }
        assert_eq!(rate.take(at(6000)), Some(7));
        assert_eq!(rate.take(at(6001)), Some(0));
    }

    #[test]
    fn a_close_says_what_it_was_when_it_was_unusual() {
        assert_eq!(unusual(&Close::Eof), None);
        assert_eq!(unusual(&Close::Protocol("HTTP".into())).unwrap(), "not Kafka's protocol: HTTP");
        let text = unusual(&Close::TooLarge { bytes: 2_000_000_000, max: 100 }).unwrap();
        assert!(text.contains("2000000000") && text.contains("100"), "{text}");
    }
}
