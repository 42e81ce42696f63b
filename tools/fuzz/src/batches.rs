//! Record batches, as a client sends them and as they stand in a log.

use bytes::Bytes;
use kafka_protocol::records::RecordBatchDecoder;
use ringmain_batch::{
    BatchHeader, CheckRules, CheckedBatches, Codec, Filtered, HEADER_BYTES, check, crc_ok, delete_horizon, emptied,
    filter, recode, records,
};
use ringmain_buffer::Buf;
use ringmain_types::WallMs;

use crate::allocations::within;
use crate::input::Input;

/// What a codec's decoder needs before it has read anything: gzip's window and tables, a block of lz4.
const CODEC_BYTES: usize = 128 << 10;
/// Of decompressed records, which a target's bytes may claim any number of.
const RECORDS_BYTES_MAX: usize = 64 << 10;

const FIX_LENGTH: u8 = 1;
const FIX_CRC: u8 = 2;
const FIX_FRONT: u8 = 4;
const COMPACTED: u8 = 8;
const LOG_APPEND_TIME: u8 = 16;

/// Flags, a codec to be written into the header (above 4: as it stands), then the batch.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (flags, codec) = (input.byte(), input.byte());
    let mut batch = input.rest().to_vec();
    fix(&mut batch, flags, codec);
    let rules = CheckRules {
        batch_bytes_max: 1 << 20,
        decompressed_bytes_max: RECORDS_BYTES_MAX as u32,
        compacted: flags & COMPACTED != 0,
        timestamps: (WallMs(0), WallMs(i64::MAX / 2)),
        log_append_time: flags & LOG_APPEND_TIME != 0,
        now: WallMs(1_000),
    };
    let sent = Buf::copy_of(&batch);
    if let Ok(checked) = within(batch.len(), CODEC_BYTES, || check(sent, &rules)) {
        accepted(&checked);
    }
    stored(&batch);
}

fn fix(batch: &mut [u8], flags: u8, codec: u8) {
    if batch.len() < HEADER_BYTES {
        return;
    }
    if flags & FIX_LENGTH != 0 {
        let length = batch.len() as u32 - 12;
        batch[8..12].copy_from_slice(&length.to_be_bytes());
    }
    if flags & FIX_FRONT != 0 {
        batch[..8].fill(0);
        batch[16] = 2;
    }
    if codec <= 4 {
        batch[22] = batch[22] & !7 | codec;
    }
    if flags & FIX_CRC != 0 {
        let crc = crc32c::crc32c(&batch[21..]);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
    }
}

/// Key, value and headers of each record, with offset and timestamp.
type Shown = Vec<(i64, i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<(Vec<u8>, Option<Vec<u8>>)>)>;

fn shown(batch: &[u8]) -> Shown {
    let header = BatchHeader::parse(batch).expect("a header that was checked");
    let mut scratch = Vec::new();
    let read = records(batch, &mut scratch, RECORDS_BYTES_MAX).expect("records that were checked");
    let owned = |part: Option<&[u8]>| part.map(<[u8]>::to_vec);
    read.map(|record| {
        let record = record.expect("a record that was checked");
        let headers: Vec<_> = record.headers.into_iter().map(|(key, value)| (key.to_vec(), owned(value))).collect();
        assert_eq!(headers.len(), record.headers.count() as usize);
        let offset = header.base.0 + i64::from(record.offset_delta);
        let at = header.info.base_timestamp.0.saturating_add(record.timestamp_delta);
        (offset, at, owned(record.key), owned(record.value), headers)
    })
    .collect()
}

/// What a client may write, everybody can read: each record, in any codec, with some of them left out, and by others.
fn accepted(checked: &CheckedBatches) {
    let [info] = checked.infos[..] else { panic!("one batch") };
    let all = shown(&checked.bytes);
    assert_eq!(all.len(), info.offsets as usize);
    judged(&checked.bytes, &all);
    for codec in Codec::ALL {
        let mut scratch = Vec::new();
        let other = recode(checked, codec, None, &mut scratch, RECORDS_BYTES_MAX).expect("a batch that was checked");
        let into = ringmain_buffer::Pool::new(ringmain_types::ShardId(0), &ringmain_types::Limits::tiny())
            .take(ringmain_types::Account::Tail, other.bytes());
        let Ok(into) = into else { continue };
        let other = other.finish(into);
        assert!(crc_ok(&other.bytes) && other.infos[0].codec == codec);
        assert_eq!(shown(&other.bytes), all, "{codec:?}");
    }
    let keep = |bytes: &[u8], horizon, keep: fn(i32) -> bool| {
        let mut scratch = Vec::new();
        filter(bytes, horizon, (&mut scratch, RECORDS_BYTES_MAX), &mut |record| keep(record.offset_delta))
            .expect("a batch that was checked")
    };
    assert_eq!(keep(&checked.bytes, None, |_| true), Filtered::Whole);
    assert_eq!(keep(&checked.bytes, None, |_| false), Filtered::Nothing);
    if let Filtered::Part { bytes, records } = keep(&checked.bytes, Some(WallMs(500)), |delta| delta % 2 == 0) {
        let left: Shown = all.iter().filter(|record| record.0 % 2 == 0).cloned().collect();
        assert!(crc_ok(&bytes) && records as usize == left.len());
        assert_eq!(shown(&bytes), left);
    }
}

/// What `kafka-protocol` reads. It wants header keys to be texts, keeps one header a key, and of lengths below 0 takes -1 alone for
/// null, where Kafka takes them all; and snappy streams of version 1 alone.
fn judged(batch: &[u8], all: &Shown) {
    let read = match RecordBatchDecoder::decode(&mut Bytes::copy_from_slice(batch)) {
        Ok(read) => read.records,
        Err(error) => {
            let texts = all.iter().all(|record| record.4.iter().all(|(key, _)| std::str::from_utf8(key).is_ok()));
            let null = error.to_string().starts_with("Unexpected negative record");
            let version = batch[HEADER_BYTES..].starts_with(b"\x82SNAPPY\0") && error.to_string().contains("snappy");
            assert!(!texts || null || version, "we accept what they refuse: {error}");
            return;
        }
    };
    assert_eq!(read.len(), all.len());
    for (theirs, ours) in read.iter().zip(all) {
        assert_eq!((theirs.offset, theirs.timestamp), (ours.0, ours.1));
        assert_eq!((theirs.key.as_deref(), theirs.value.as_deref()), (ours.2.as_deref(), ours.3.as_deref()));
        for (key, value) in &theirs.headers {
            let last = ours.4.iter().rev().find(|(ours, _)| ours == key.as_bytes());
            assert_eq!(last.map(|(_, value)| value.as_deref()), Some(value.as_deref()));
        }
    }
}

/// Bytes that a disk gave back: whatever they are, an error or records.
fn stored(batch: &[u8]) {
    let _ = (BatchHeader::parse(batch), crc_ok(batch), delete_horizon(batch));
    if let Ok(empty) = emptied(batch) {
        assert!(crc_ok(&empty) && empty.len() == HEADER_BYTES);
    }
    // Records are decompressed into one block, which grows by doubling.
    let beside = CODEC_BYTES + 3 * RECORDS_BYTES_MAX;
    within(batch.len(), beside, || {
        let mut scratch = Vec::new();
        if let Ok(read) = records(batch, &mut scratch, RECORDS_BYTES_MAX) {
            for record in read.flatten() {
                let _ = record.headers.into_iter().count();
            }
        }
    });
    within(batch.len(), beside + 2 * RECORDS_BYTES_MAX, || {
        let mut scratch = Vec::new();
        let kept = filter(batch, Some(WallMs(500)), (&mut scratch, RECORDS_BYTES_MAX), &mut |record| {
            record.key.is_some_and(|key| key.len() % 2 == 1)
        });
        if let Ok(Filtered::Part { bytes, .. }) = kept {
            assert!(crc_ok(&bytes));
        }
    });
}
