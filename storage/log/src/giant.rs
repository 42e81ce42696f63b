//! A batch that says it is larger than all memory for reads. Its length is under no checksum: damaged, it would be waited for without
//! end. So it is read piece by piece: either its CRC does not match, or there is too little memory, and both are said.

use ringmain_batch::CrcInPieces;
use ringmain_buffer::Pool;
use ringmain_types::*;

use crate::read::Need;
use crate::store::Store;
use crate::{ReadError, ReadToken};

/// Verdicts of one log that are kept: without, each try would read all of it again.
const GIANTS_MAX: usize = 64;

/// How far it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Giant {
    pub base: Offset,
    pub from: u32,
    pub bytes: u32,
    /// The CRC up to here; none in front of the first piece.
    pub at: u32,
    crc: Option<CrcInPieces>,
}

impl Giant {
    pub fn new(base: Offset, from: u32, bytes: u32) -> Giant {
        Giant { base, from, bytes, at: from, crc: None }
    }

    pub fn left(&self) -> u32 {
        self.from + self.bytes - self.at
    }

    /// More of it; none when there is no end in sight.
    fn add(mut self, piece: &[u8]) -> Option<Giant> {
        let piece = &piece[..piece.len().min(self.left() as usize)];
        self.at += piece.len() as u32;
        match &mut self.crc {
            None => self.crc = Some(CrcInPieces::begin(piece)?),
            Some(crc) => crc.append(piece),
        }
        (!piece.is_empty()).then_some(self)
    }

    fn sound(&self) -> bool {
        self.crc.is_some_and(|crc| crc.ok())
    }
}

impl Store {
    /// What was read of it from `begin` on.
    pub(crate) fn giant_read(
        &mut self,
        now: Now,
        pool: &mut Pool,
        (id, token): (LogId, ReadToken),
        giant: Giant,
        (begin, read): (u32, &[u8]),
    ) {
        let piece = read.get((giant.at - begin) as usize..).unwrap_or_default();
        let sound = match giant.add(piece) {
            Some(giant) if giant.left() > 0 => return self.read_on(token, Need::Giant(giant)),
            Some(giant) => giant.sound(),
            // The file is shorter than it was.
            None => false,
        };
        if let Some(log) = self.log_mut(id) {
            if log.giants.len() >= GIANTS_MAX {
                log.giants.clear();
            }
            log.giants.insert((giant.base, giant.from), sound);
        }
        self.giant_known(now, pool, (id, token), giant, sound);
    }

    pub(crate) fn giant_known(
        &mut self,
        now: Now,
        pool: &mut Pool,
        (id, token): (LogId, ReadToken),
        giant: Giant,
        sound: bool,
    ) {
        let (segment, position) = (giant.base, Position(giant.from));
        if sound {
            let max = pool.limit(Account::Cache).min(u32::MAX.into()) as u32;
            return self.read_failed(token, ReadError::TooLarge { segment, position, bytes: giant.bytes, max });
        }
        if self.led_astray(id, (giant.base, giant.from, true), token) {
            return self.read_again(now, pool, token);
        }
        self.read_failed(token, ReadError::Rot { segment, position });
    }
}
