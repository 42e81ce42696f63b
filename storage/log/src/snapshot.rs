//! `<offset>.snapshot`: the producers of one log as they stood before that offset, in Kafka's file format (version 1).
//!
//! A row is a batch. Kafka writes the last batch of each producer; here all remembered ones are written, oldest first, with the
//! producer's id repeated: Kafka keeps the last row of an id, and a restart keeps all five batches for telling a retry.

use std::fmt;

use ringmain_types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, WallMs};

const VERSION: i16 = 1;
/// Version (i16), CRC-32C (u32) of everything behind it, number of rows (i32).
const HEADER_BYTES: usize = 10;
/// Where what the CRC covers begins.
const COVERED: usize = 6;
const ROW_BYTES: usize = 46;

/// One remembered batch of one producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotRow {
    pub id: ProducerId,
    pub epoch: ProducerEpoch,
    /// Of the batch's last record; -1 when the producer has written nothing in this epoch.
    pub last_sequence: Sequence,
    /// Of the batch's last record; -1 like it.
    pub last_offset: Offset,
    /// Records of the batch less one.
    pub offset_delta: i32,
    /// The batch's largest timestamp.
    pub timestamp: WallMs,
    /// Of the transaction coordinator that wrote the producer's last marker; -1 without one.
    pub coordinator_epoch: LeaderEpoch,
    /// Where the producer's open transaction begins.
    pub txn_start: Option<Offset>,
}

/// No snapshot of so many producers is longer.
pub fn bytes_max(producers: u32) -> u32 {
    let rows = (producers as usize).saturating_mul(crate::producer::BATCHES);
    u32::try_from(HEADER_BYTES.saturating_add(rows.saturating_mul(ROW_BYTES))).unwrap_or(u32::MAX)
}

pub fn encode(rows: &[SnapshotRow]) -> Vec<u8> {
    let count = i32::try_from(rows.len()).expect("Limits bounds producers, five rows each");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + rows.len() * ROW_BYTES);
    bytes.extend_from_slice(&VERSION.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&count.to_be_bytes());
    for row in rows {
        bytes.extend_from_slice(&row.id.0.to_be_bytes());
        bytes.extend_from_slice(&row.epoch.0.to_be_bytes());
        bytes.extend_from_slice(&row.last_sequence.0.to_be_bytes());
        bytes.extend_from_slice(&row.last_offset.0.to_be_bytes());
        bytes.extend_from_slice(&row.offset_delta.to_be_bytes());
        bytes.extend_from_slice(&row.timestamp.0.to_be_bytes());
        bytes.extend_from_slice(&row.coordinator_epoch.0.to_be_bytes());
        bytes.extend_from_slice(&row.txn_start.map_or(-1, |start| start.0).to_be_bytes());
    }
    let crc = crc32c::crc32c(&bytes[COVERED..]);
    bytes[2..COVERED].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// The rows of a whole file. Allocates no more than the file is long, whatever it claims.
pub fn decode(bytes: &[u8]) -> Result<Vec<SnapshotRow>, SnapshotError> {
    let (header, rows) = bytes.split_at_checked(HEADER_BYTES).ok_or(SnapshotError::Short { bytes: bytes.len() })?;
    let mut fields = Fields(header);
    let version = i16::from_be_bytes(fields.take());
    if version != VERSION {
        return Err(SnapshotError::Version { version });
    }
    let want = u32::from_be_bytes(fields.take());
    let got = crc32c::crc32c(&bytes[COVERED..]);
    if want != got {
        return Err(SnapshotError::Crc { want, got });
    }
    let claimed = i32::from_be_bytes(fields.take());
    let found = rows.len() / ROW_BYTES;
    if usize::try_from(claimed) != Ok(found) || !rows.len().is_multiple_of(ROW_BYTES) {
        return Err(SnapshotError::Count { claimed, bytes: rows.len() });
    }
    rows.chunks_exact(ROW_BYTES).enumerate().map(|(at, row)| decode_row(at, row)).collect()
}

fn decode_row(at: usize, bytes: &[u8]) -> Result<SnapshotRow, SnapshotError> {
    let mut fields = Fields(bytes);
    let row = SnapshotRow {
        id: ProducerId(i64::from_be_bytes(fields.take())),
        epoch: ProducerEpoch(i16::from_be_bytes(fields.take())),
        last_sequence: Sequence(i32::from_be_bytes(fields.take())),
        last_offset: Offset(i64::from_be_bytes(fields.take())),
        offset_delta: i32::from_be_bytes(fields.take()),
        timestamp: WallMs(i64::from_be_bytes(fields.take())),
        coordinator_epoch: LeaderEpoch(i32::from_be_bytes(fields.take())),
        txn_start: Some(Offset(i64::from_be_bytes(fields.take()))).filter(|start| start.0 >= 0),
    };
    let what = if row.id.0 < 0 {
        "producer id"
    } else if row.epoch.0 < 0 {
        "producer epoch"
    } else if row.last_offset.0 < 0 {
        return Ok(row);
    } else if row.last_sequence.0 < 0 {
        "last sequence"
    } else if row.offset_delta < 0 || i64::from(row.offset_delta) > row.last_offset.0 {
        "offset delta"
    } else {
        return Ok(row);
    };
    Err(SnapshotError::Row { at, what })
}

/// Takes fixed fields off a slice whose length was checked.
struct Fields<'a>(&'a [u8]);
impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk().expect("the caller checked the length");
        self.0 = rest;
        *field
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotError {
    Short {
        bytes: usize,
    },
    Version {
        version: i16,
    },
    Crc {
        want: u32,
        got: u32,
    },
    /// The rows that follow do not have the length that the count says.
    Count {
        claimed: i32,
        bytes: usize,
    },
    /// Row `at`, from 0, has a field that cannot be.
    Row {
        at: usize,
        what: &'static str,
    },
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotError::Short { bytes } => write!(f, "{bytes} bytes are less than a header"),
            SnapshotError::Version { version } => write!(f, "version {version} is not {VERSION}"),
            SnapshotError::Crc { want, got } => write!(f, "CRC is {want:#010x}, the bytes give {got:#010x}"),
            SnapshotError::Count { claimed, bytes } => write!(f, "{claimed} rows are claimed, {bytes} bytes are there"),
            SnapshotError::Row { at, what } => write!(f, "row {at}: impossible {what}"),
        }
    }
}
impl std::error::Error for SnapshotError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: i64, last_sequence: i32, last_offset: i64) -> SnapshotRow {
        SnapshotRow {
            id: ProducerId(id),
            epoch: ProducerEpoch(3),
            last_sequence: Sequence(last_sequence),
            last_offset: Offset(last_offset),
            offset_delta: 4,
            timestamp: WallMs(1_700_000_000_000),
            coordinator_epoch: LeaderEpoch(-1),
            txn_start: None,
        }
    }

    #[test]
    fn a_round_trip_keeps_every_row() {
        let mut open = row(2, 9, 90);
        open.txn_start = Some(Offset(80));
        open.coordinator_epoch = LeaderEpoch(6);
        let empty =
            SnapshotRow { last_sequence: Sequence(-1), last_offset: Offset(-1), offset_delta: 0, ..row(3, 0, 0) };
        for rows in [vec![], vec![row(1, 4, 4), row(1, 9, 9), open, empty]] {
            assert_eq!(decode(&encode(&rows)), Ok(rows));
        }
        assert_eq!(encode(&[row(1, 4, 4)]).len(), HEADER_BYTES + ROW_BYTES);
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_found() {
        let whole = encode(&[row(1, 4, 4), row(2, 9, 9)]);
        for length in 0..whole.len() {
            assert!(decode(&whole[..length]).is_err(), "{length}");
        }
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bytes).is_err(), "{bit}");
        }
    }

    #[test]
    fn claims_are_checked_even_under_a_good_crc() {
        let sealed = |mut bytes: Vec<u8>| {
            let crc = crc32c::crc32c(&bytes[COVERED..]);
            bytes[2..COVERED].copy_from_slice(&crc.to_be_bytes());
            decode(&bytes)
        };
        let mut bytes = encode(&[row(1, 4, 4)]);
        bytes[COVERED..HEADER_BYTES].copy_from_slice(&i32::MAX.to_be_bytes());
        assert_eq!(sealed(bytes), Err(SnapshotError::Count { claimed: i32::MAX, bytes: 46 }));
        let mut bytes = encode(&[row(1, 4, 4)]);
        bytes[COVERED..HEADER_BYTES].copy_from_slice(&(-1i32).to_be_bytes());
        assert_eq!(sealed(bytes), Err(SnapshotError::Count { claimed: -1, bytes: 46 }));
        let fault = |row| decode(&encode(&[row])).unwrap_err();
        assert_eq!(fault(row(-1, 4, 4)), SnapshotError::Row { at: 0, what: "producer id" });
        assert_eq!(fault(row(1, -1, 4)), SnapshotError::Row { at: 0, what: "last sequence" });
        assert_eq!(fault(row(1, 4, 3)), SnapshotError::Row { at: 0, what: "offset delta" });
        assert_eq!(
            fault(SnapshotRow { epoch: ProducerEpoch(-1), ..row(1, 4, 4) }),
            SnapshotError::Row { at: 0, what: "producer epoch" }
        );
    }
}
