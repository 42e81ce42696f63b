//! A batch without some of its records: compaction. What stays keeps its bytes, offset and timestamp.

use ringmain_types::WallMs;

use crate::compression::{compress, decompress};
use crate::header::{CONTROL, DELETE_HORIZON, HEADER_BYTES, LOG_APPEND_TIME, Raw, TRANSACTIONAL, set_codec};
use crate::records::{Record, Records};
use crate::varint::{Bytes, Source};
use crate::{BatchError, BatchHeader, Codec, varint};

/// What is left of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filtered {
    /// All of it, as it stands.
    Whole,
    /// Fewer records, or the same with a delete horizon; in the same codec, the header's offsets, producer and sequence kept.
    Part { bytes: Vec<u8>, records: u32 },
    /// No record.
    Nothing,
}

/// From when on the batch's records without a value may go (KIP-534); none: a compaction has not come by yet. `batch` begins with a
/// whole header.
pub fn delete_horizon(batch: &[u8]) -> Option<WallMs> {
    let raw = Raw::read(batch).ok()?;
    (raw.attributes & DELETE_HORIZON != 0).then_some(WallMs(raw.base_timestamp))
}

/// Leaves the records of one whole batch for which `keep` says so. `horizon`: where a record without a value stays and the batch has
/// no delete horizon yet, it gets this one. `scratch` is emptied and used; records decompress to at most `bytes_max`.
pub fn filter(
    batch: &[u8],
    horizon: Option<WallMs>,
    (scratch, bytes_max): (&mut Vec<u8>, usize),
    keep: &mut dyn FnMut(&Record<'_>) -> bool,
) -> Result<Filtered, BatchError> {
    let header = BatchHeader::parse(batch)?;
    let raw = Raw::read(batch)?;
    let packed = batch
        .get(HEADER_BYTES..header.info.bytes as usize)
        .ok_or(BatchError::Length { position: batch.len() as u32 })?;
    let codec = header.info.codec;
    let all: &[u8] = if codec == Codec::None {
        packed
    } else {
        decompress(codec, packed, scratch, bytes_max)?;
        scratch
    };
    let mut kept: Vec<(&[u8], i64)> = Vec::new();
    let (mut count, mut tombstones) = (0u32, false);
    let mut records = Records(all);
    loop {
        let before = records.0;
        let Some(record) = records.next() else { break };
        let record = record?;
        count += 1;
        if keep(&record) {
            tombstones |= record.value.is_none();
            kept.push((&before[..before.len() - records.0.len()], record.timestamp_delta));
        }
    }
    let horizon = horizon.filter(|_| tombstones && raw.attributes & DELETE_HORIZON == 0);
    if kept.is_empty() {
        return Ok(Filtered::Nothing);
    }
    if kept.len() as u32 == count && horizon.is_none() {
        return Ok(Filtered::Whole);
    }
    rebuild(&raw, codec, &kept, horizon)
}

fn rebuild(raw: &Raw, codec: Codec, kept: &[(&[u8], i64)], horizon: Option<WallMs>) -> Result<Filtered, BatchError> {
    let mut raw = *raw;
    let greatest = kept.iter().map(|(_, delta)| raw.base_timestamp.wrapping_add(*delta)).max();
    if raw.attributes & LOG_APPEND_TIME == 0 {
        raw.max_timestamp = greatest.unwrap_or(raw.max_timestamp);
    }
    let mut plain = Vec::with_capacity(kept.iter().map(|(record, _)| record.len()).sum::<usize>() + 16);
    match horizon {
        None => kept.iter().for_each(|(record, _)| plain.extend_from_slice(record)),
        Some(horizon) => {
            let shift = raw.base_timestamp.wrapping_sub(horizon.0);
            for (record, delta) in kept {
                rebase(record, delta.wrapping_add(shift), &mut plain)?;
            }
            raw.base_timestamp = horizon.0;
            raw.attributes |= DELETE_HORIZON;
        }
    }
    raw.count = kept.len() as i32;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + plain.len());
    raw.write(&mut bytes);
    compress(codec, None, &plain, &mut bytes);
    set_codec(&mut bytes, codec);
    Ok(Filtered::Part { bytes, records: kept.len() as u32 })
}

/// The same record with another timestamp delta.
fn rebase(record: &[u8], delta: i64, out: &mut Vec<u8>) -> Result<(), BatchError> {
    let mut from = Bytes::new(record);
    from.varint()?;
    let attributes = from.byte()?;
    from.varlong()?;
    let rest = from.rest();
    let mut front = vec![attributes];
    varint::put(&mut front, delta);
    varint::put(out, (front.len() + rest.len()) as i64);
    out.extend_from_slice(&front);
    out.extend_from_slice(rest);
    Ok(())
}

/// The header of a batch alone, for a producer's last sequence or a log's last offset outlives the records: offsets, producer,
/// sequence and greatest timestamp stay.
pub fn emptied(batch: &[u8]) -> Result<Vec<u8>, BatchError> {
    let mut raw = Raw::read(batch)?;
    raw.attributes &= LOG_APPEND_TIME | TRANSACTIONAL | CONTROL;
    raw.base_timestamp = raw.max_timestamp;
    raw.count = 0;
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    raw.write(&mut bytes);
    set_codec(&mut bytes, Codec::None);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use ringmain_types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence};

    use super::*;
    use crate::{Builder, Producer, crc_ok, records, stamp, stamp_time};

    type Shown = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<u8>);

    fn batch(codec: Codec) -> Vec<u8> {
        let producer = Producer { id: ProducerId(9), epoch: ProducerEpoch(2), first: Sequence(40), last: Sequence(43) };
        let mut builder = Builder::new(codec, Some(producer));
        builder.push(WallMs(5000), Some(b"a"), Some(b"one"), &[("h", Some(b"x")), ("h", None)]);
        builder.push(WallMs(9000), Some(b"b"), None, &[]);
        builder.push(WallMs(4000), Some(b"a"), Some(&[7; 3000]), &[]);
        builder.push(WallMs(6000), Some(b""), Some(b""), &[("", Some(b""))]);
        let mut bytes = builder.encode();
        stamp(&mut bytes, Offset(100), LeaderEpoch(3));
        bytes
    }

    fn shown(batch: &[u8]) -> Vec<Shown> {
        assert!(crc_ok(batch));
        let header = BatchHeader::parse(batch).unwrap();
        let mut scratch = Vec::new();
        let records = records(batch, &mut scratch, 1 << 20).unwrap().map(|record| {
            let record = record.unwrap();
            let owned = |part: Option<&[u8]>| part.map(<[u8]>::to_vec);
            let at = header.info.base_timestamp.0 + record.timestamp_delta;
            let offset = header.base.0 + i64::from(record.offset_delta);
            (offset, at, owned(record.key), owned(record.value), record.headers.0.to_vec())
        });
        records.collect()
    }

    fn filtered(batch: &[u8], horizon: Option<i64>, keep: &[i32]) -> Filtered {
        let mut scratch = Vec::new();
        let mut kept = |record: &Record<'_>| keep.contains(&record.offset_delta);
        filter(batch, horizon.map(WallMs), (&mut scratch, 1 << 20), &mut kept).unwrap()
    }

    #[test]
    fn what_stays_is_as_it_was_in_every_codec() {
        for codec in Codec::ALL {
            let whole = batch(codec);
            let all = shown(&whole);
            assert_eq!(filtered(&whole, None, &[0, 1, 2, 3]), Filtered::Whole);
            assert_eq!(filtered(&whole, None, &[]), Filtered::Nothing);
            for horizon in [None, Some(70_000), Some(-3)] {
                let Filtered::Part { bytes, records } = filtered(&whole, horizon, &[0, 1, 3]) else { panic!() };
                assert_eq!((records, shown(&bytes)), (3, [&all[..2], &all[3..]].concat()));
                let (before, after) = (BatchHeader::parse(&whole).unwrap(), BatchHeader::parse(&bytes).unwrap());
                assert_eq!((after.base, after.next(), after.epoch), (before.base, before.next(), before.epoch));
                assert_eq!((after.info.codec, after.info.producer), (codec, before.info.producer));
                assert_eq!(after.info.max_timestamp, WallMs(9000));
                assert_eq!(delete_horizon(&bytes), horizon.map(WallMs));
            }
        }
    }

    #[test]
    fn a_horizon_is_for_tombstones_and_set_once() {
        let whole = batch(Codec::Lz4);
        let Filtered::Part { bytes, .. } = filtered(&whole, Some(70_000), &[0, 3]) else { panic!() };
        assert_eq!(delete_horizon(&bytes), None, "no tombstone is left");
        assert_eq!(BatchHeader::parse(&bytes).unwrap().info.max_timestamp, WallMs(6000));
        let Filtered::Part { bytes, .. } = filtered(&whole, Some(70_000), &[0, 1, 2, 3]) else { panic!() };
        assert_eq!((delete_horizon(&bytes), shown(&bytes)), (Some(WallMs(70_000)), shown(&whole)));
        assert_eq!(filtered(&bytes, Some(90_000), &[0, 1, 2, 3]), Filtered::Whole);
    }

    #[test]
    fn a_log_s_time_stays_the_batch_s() {
        let mut whole = batch(Codec::None);
        stamp_time(&mut whole, WallMs(123));
        let Filtered::Part { bytes, .. } = filtered(&whole, Some(70_000), &[1]) else { panic!() };
        let header = BatchHeader::parse(&bytes).unwrap();
        assert!(header.info.log_append_time && crc_ok(&bytes));
        assert_eq!(header.info.max_timestamp, WallMs(123));
    }

    #[test]
    fn an_empty_batch_keeps_offsets_and_sequence() {
        for codec in Codec::ALL {
            let whole = batch(codec);
            let Filtered::Part { bytes: dated, .. } = filtered(&whole, Some(70_000), &[0, 1, 2, 3]) else { panic!() };
            for bytes in [&whole, &dated] {
                let empty = emptied(bytes).unwrap();
                assert_eq!((empty.len(), shown(&empty), delete_horizon(&empty)), (HEADER_BYTES, Vec::new(), None));
                let (before, after) = (BatchHeader::parse(&whole).unwrap(), BatchHeader::parse(&empty).unwrap());
                assert_eq!((after.base, after.next(), after.epoch), (before.base, before.next(), before.epoch));
                assert_eq!((after.info.producer, after.info.codec), (before.info.producer, Codec::None));
                assert_eq!(after.info.max_timestamp, WallMs(9000));
                assert_eq!(filtered(&empty, Some(1), &[0]), Filtered::Nothing);
            }
        }
    }

    #[test]
    fn any_bytes_are_an_error_or_a_batch() {
        let whole = batch(Codec::None);
        for at in 0..whole.len() {
            for flip in [1, 0x80] {
                let mut bad = whole.clone();
                bad[at] ^= flip;
                let _ =
                    filter(&bad, Some(WallMs(1)), (&mut Vec::new(), 1 << 20), &mut |record| record.offset_delta > 0);
                let _ = (emptied(&bad), delete_horizon(&bad));
            }
            let _ = filter(&whole[..at], None, (&mut Vec::new(), 1 << 20), &mut |_| true);
        }
    }
}
