//! How much room the log directory's file system has, and the requests that wait to know.

use std::collections::VecDeque;

use ringmain_disk::{DiskClass, DiskDone, DiskKind, DiskOk, DiskOp, DiskToken};
use ringmain_session::{Close, Request};
use ringmain_types::{DirId, Now};

use crate::{Effects, Shard};

/// The store counts its tokens up from 1; those of the shard's own operations lie above all of them.
const OWN_TOKENS: u64 = 1 << 63;

#[derive(Default)]
pub(crate) struct Space {
    /// Newest answer: bytes in all, and those that may still be used.
    known: Option<(u64, u64)>,
    asked: u64,
    /// In the order of their operations' tokens; sessions bound their number.
    waiting: VecDeque<(DiskToken, Request)>,
}

impl Space {
    /// (total, usable) as DescribeLogDirs has them: -1 is unknown.
    pub(crate) fn bytes(&self) -> (i64, i64) {
        let shown = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
        self.known.map_or((-1, -1), |(total, usable)| (shown(total), shown(usable)))
    }

    /// Asks the file system; the request comes out of `done`.
    pub(crate) fn ask(&mut self, dir: DirId, request: Request, out: &mut Effects) {
        let token = DiskToken(OWN_TOKENS + self.asked);
        self.asked += 1;
        self.waiting.push_back((token, request));
        out.disk.push(DiskOp { token, class: DiskClass::Background, kind: DiskKind::Space { dir } });
    }

    pub(crate) fn is_own(done: &DiskDone) -> bool {
        done.token.0 >= OWN_TOKENS
    }

    fn done(&mut self, done: DiskDone) -> Option<Request> {
        // A failure leaves what was known before: the answer says what it can.
        if let Ok(DiskOk::Space { total_bytes, usable_bytes }) = done.result {
            self.known = Some((total_bytes, usable_bytes));
        }
        let at = self.waiting.iter().position(|(token, _)| *token == done.token)?;
        self.waiting.remove(at).map(|(_, request)| request)
    }
}

impl Shard {
    pub(crate) fn space_known(&mut self, now: Now, done: DiskDone, out: &mut Effects) {
        let Some(request) = self.space.done(done) else { return };
        if let Err(error) = self.describe_log_dirs(now, &request, out) {
            self.close(request.connection, Close::Protocol(error.to_string()), out);
        }
    }
}
