//! Round trips, refusals, truncation, bit flips and bombs, over every codec.

use ringmain_batch::*;
use ringmain_buffer::{Buf, Pool};
use ringmain_types::*;

fn rules() -> CheckRules {
    CheckRules {
        batch_bytes_max: 1 << 20,
        decompressed_bytes_max: 1 << 20,
        compacted: false,
        timestamps: (WallMs(0), WallMs(10_000)),
        log_append_time: false,
        now: WallMs(5_000),
    }
}

fn producer() -> Producer {
    Producer { id: ProducerId(7), epoch: ProducerEpoch(3), first: Sequence(i32::MAX - 1), last: Sequence(1) }
}

type Shape = (i64, Option<&'static [u8]>, Option<&'static [u8]>, &'static [(&'static str, Option<&'static [u8]>)]);

/// Null and empty, repeated header keys, falling timestamps.
const SHAPES: [Shape; 4] = [
    (5_000, Some(b"key"), Some(b"value value value value"), &[("a", Some(b"1")), ("a", None), ("", Some(b""))]),
    (4_990, None, Some(b""), &[]),
    (5_100, Some(b""), None, &[("z", Some(b"zz"))]),
    (5_000, None, None, &[]),
];

fn built(codec: Codec) -> Vec<u8> {
    let mut builder = Builder::new(codec, Some(producer()));
    for (at, key, value, headers) in SHAPES {
        builder.push(WallMs(at), key, value, headers);
    }
    builder.encode()
}

/// `count` records of `bytes` zeroes.
fn zeroes(codec: Codec, count: usize, bytes: usize) -> Vec<u8> {
    let mut builder = Builder::new(codec, None);
    for _ in 0..count {
        builder.push(WallMs(1), Some(b"k"), Some(&vec![0; bytes]), &[]);
    }
    builder.encode()
}

fn checked(bytes: &[u8]) -> Result<CheckedBatches, BatchError> {
    check(Buf::copy_of(bytes), &rules())
}

fn assert_shapes(batch: &[u8]) {
    let header = BatchHeader::parse(batch).unwrap();
    let mut scratch = Vec::new();
    let mut count = 0;
    for (record, (index, (at, key, value, headers))) in
        records(batch, &mut scratch, 1 << 20).unwrap().zip(SHAPES.into_iter().enumerate())
    {
        let record = record.unwrap();
        assert_eq!(record.offset_delta, index as i32);
        assert_eq!(header.info.base_timestamp.0 + record.timestamp_delta, at);
        assert_eq!((record.key, record.value), (key, value));
        assert_eq!(record.headers.count() as usize, headers.len());
        let got: Vec<_> = record.headers.into_iter().collect();
        let want: Vec<_> = headers.iter().map(|(key, value)| (key.as_bytes(), *value)).collect();
        assert_eq!(got, want);
        count += 1;
    }
    assert_eq!(count, SHAPES.len());
}

/// Sets a header field and makes the CRC right again.
fn with(mut batch: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    batch[at..at + bytes.len()].copy_from_slice(bytes);
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

/// A batch whose records are `records`, as `built` but uncompressed and with a right length and CRC.
fn of_records(count: i32, records: &[u8]) -> Vec<u8> {
    let mut batch = built(Codec::None)[..HEADER_BYTES].to_vec();
    batch.extend_from_slice(records);
    let length = (batch.len() - LENGTH_OVERHEAD_BYTES) as i32;
    let batch = with(batch, 8, &length.to_be_bytes());
    let batch = with(batch, 23, &(count - 1).to_be_bytes());
    with(batch, 57, &count.to_be_bytes())
}

#[test]
fn what_was_built_is_checked_and_read_back() {
    for codec in Codec::ALL {
        let bytes = built(codec);
        let checked = checked(&bytes).unwrap();
        let [info] = checked.infos[..] else { panic!() };
        assert_eq!(
            info,
            BatchInfo {
                bytes: bytes.len() as u32,
                offsets: 4,
                codec,
                transactional: false,
                control: false,
                log_append_time: false,
                base_timestamp: WallMs(5_000),
                max_timestamp: WallMs(5_100),
                producer: Some(producer()),
            }
        );
        assert!(crc_ok(&bytes));
        assert_shapes(&bytes);
    }
}

#[test]
fn a_block_takes_what_was_built() {
    let mut pool = Pool::new(ShardId(0), &Limits::tiny());
    let mut builder = Builder::new(Codec::None, None);
    builder.push(WallMs(1), None, Some(b"v"), &[]);
    let into = pool.take(Account::Tail, builder.bytes()).unwrap();
    let batches = builder.clone().finish(into);
    assert_eq!(&batches.bytes[..], &builder.encode()[..]);
    assert_eq!(batches.infos[0].bytes as usize, batches.bytes.len());
}

#[test]
fn stamps_keep_the_crc_and_times_renew_it() {
    let mut bytes = built(Codec::Lz4);
    stamp(&mut bytes[..HEADER_BYTES], Offset(1 << 40), LeaderEpoch(9));
    assert!(crc_ok(&bytes));
    let header = BatchHeader::parse(&bytes).unwrap();
    assert_eq!((header.base, header.epoch), (Offset(1 << 40), LeaderEpoch(9)));
    assert_eq!((header.last(), header.next()), (Offset((1 << 40) + 3), Offset((1 << 40) + 4)));
    stamp_time(&mut bytes, WallMs(77));
    assert!(crc_ok(&bytes));
    let info = BatchHeader::parse(&bytes).unwrap().info;
    assert!(info.log_append_time && info.max_timestamp == WallMs(77) && info.base_timestamp == WallMs(5_000));
    assert_shapes(&bytes);
}

#[test]
fn every_codec_becomes_every_other_and_nothing_else_changes() {
    let mut pool = Pool::new(ShardId(0), &Limits::tiny());
    let mut scratch = Vec::new();
    for from in Codec::ALL {
        let batches = checked(&built(from)).unwrap();
        for to in Codec::ALL {
            let recoded = recode(&batches, to, None, &mut scratch, 1 << 20).unwrap();
            let into = pool.take(Account::Tail, recoded.bytes()).unwrap();
            let recoded = recoded.finish(into);
            assert_eq!(
                recoded.infos[..],
                [BatchInfo { codec: to, bytes: recoded.bytes.len() as u32, ..batches.infos[0] }]
            );
            checked(&recoded.bytes).unwrap();
            assert_shapes(&recoded.bytes);
        }
        assert_eq!(
            recode(&batches, Codec::None, None, &mut scratch, 10).err(),
            (from != Codec::None).then_some(BatchError::Expands { max: 10 })
        );
    }
}

#[test]
fn every_truncation_is_refused() {
    for codec in Codec::ALL {
        let bytes = built(codec);
        for cut in 0..bytes.len() {
            assert!(checked(&bytes[..cut]).is_err(), "{codec:?} {cut}");
            let mut scratch = Vec::new();
            assert!(records(&bytes[..cut], &mut scratch, 1 << 20).is_err(), "{codec:?} {cut}");
            assert!(!crc_ok(&bytes[..cut]));
        }
    }
}

#[test]
fn every_flipped_bit_is_caught_but_the_epochs() {
    for codec in Codec::ALL {
        let mut bytes = built(codec);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            // The leader epoch is the broker's to write; a client's value means nothing.
            assert_eq!(checked(&bytes).is_ok(), (12..16).contains(&(bit / 8)), "{codec:?} bit {bit}");
            if bit / 8 >= 21 {
                assert_eq!(checked(&bytes).unwrap_err().code(), ErrorCode::CorruptMessage);
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn every_flipped_bit_under_a_right_crc_is_refused_or_reads_well() {
    for codec in Codec::ALL {
        let bytes = built(codec);
        for bit in 21 * 8..bytes.len() * 8 {
            let flipped = with(bytes.clone(), bit / 8, &[bytes[bit / 8] ^ 1 << (bit % 8)]);
            let mut scratch = Vec::new();
            if let Ok(batches) = checked(&flipped) {
                let read = records(&flipped, &mut scratch, 1 << 20).unwrap();
                let read: Result<Vec<_>, _> = read.collect();
                assert_eq!(read.unwrap().len() as u32, batches.infos[0].offsets);
            } else if let Ok(read) = records(&flipped, &mut scratch, 1 << 20) {
                for record in read.flatten() {
                    record.headers.into_iter().count();
                }
            }
        }
    }
}

#[test]
fn each_refusal_has_kafkas_code() {
    let good = built(Codec::None);
    let code = |bytes: &[u8]| checked(bytes).err().map(|error| (error.code(), error.to_string()).0);
    let two = [good.clone(), good.clone()].concat();
    let cases: [(&str, Vec<u8>, ErrorCode); 18] = [
        ("nothing", vec![], ErrorCode::InvalidRecord),
        ("two batches", two, ErrorCode::InvalidRecord),
        ("trailing bytes", [good.clone(), vec![0; 3]].concat(), ErrorCode::InvalidRecord),
        ("magic 0", with(good.clone(), 16, &[0]), ErrorCode::InvalidRecord),
        ("magic 1", with(good.clone(), 16, &[1]), ErrorCode::InvalidRecord),
        ("magic 3", with(good.clone(), 16, &[3]), ErrorCode::UnsupportedVersion),
        ("codec 5", with(good.clone(), 22, &[5]), ErrorCode::UnsupportedCompressionType),
        ("log append time", with(good.clone(), 22, &[8]), ErrorCode::InvalidTimestamp),
        ("control", with(good.clone(), 22, &[32]), ErrorCode::InvalidRecord),
        ("delete horizon", with(good.clone(), 22, &[64]), ErrorCode::InvalidRecord),
        ("count", with(good.clone(), 57, &5i32.to_be_bytes()), ErrorCode::InvalidRecord),
        ("count below 0", with(good.clone(), 57, &(-4i32).to_be_bytes()), ErrorCode::InvalidRecord),
        ("delta", with(good.clone(), 23, &(-1i32).to_be_bytes()), ErrorCode::InvalidRecord),
        ("base offset", with(good.clone(), 0, &1i64.to_be_bytes()), ErrorCode::InvalidRecord),
        ("epoch", with(good.clone(), 51, &(-1i16).to_be_bytes()), ErrorCode::InvalidRecord),
        ("sequence", with(good.clone(), 53, &(-1i32).to_be_bytes()), ErrorCode::InvalidRecord),
        ("max timestamp", with(good.clone(), 35, &99_999i64.to_be_bytes()), ErrorCode::InvalidTimestamp),
        ("length", with(good.clone(), 8, &48i32.to_be_bytes()), ErrorCode::CorruptMessage),
    ];
    for (what, bytes, want) in cases {
        assert_eq!(code(&bytes), Some(want), "{what}");
    }
    let transactional = with(with(good.clone(), 22, &[16]), 43, &(-1i64).to_be_bytes());
    assert_eq!(code(&transactional), Some(ErrorCode::InvalidRecord));
    let error = check(Buf::copy_of(&good), &CheckRules { batch_bytes_max: 100, ..rules() }).unwrap_err();
    assert_eq!(error.code(), ErrorCode::MessageTooLarge);
    assert!(error.to_string().contains(&good.len().to_string()) && error.to_string().contains("100"));
}

#[test]
fn records_must_count_up_and_fill_their_lengths() {
    // length, attributes, timestamp delta, offset delta, key null, value null, no headers
    let record = |delta: u8| [12, 0, 0, delta * 2, 1, 1, 0];
    assert!(checked(&of_records(2, &[record(0), record(1)].concat())).is_ok());
    let refused: [(&str, i32, Vec<u8>); 12] = [
        ("repeated", 2, [record(0), record(0)].concat()),
        ("falling", 2, [record(1), record(0)].concat()),
        ("gap", 2, [record(0), record(2)].concat()),
        ("from 1", 1, record(1).to_vec()),
        ("fewer", 2, record(0).to_vec()),
        ("more", 1, [record(0), record(1)].concat()),
        ("length too long", 1, vec![14, 0, 0, 0, 1, 1, 0]),
        ("length too short", 1, vec![10, 0, 0, 0, 1, 1, 0]),
        ("length below 0", 1, vec![1, 0, 0, 0, 1, 1, 0]),
        ("header without key", 1, vec![16, 0, 0, 0, 1, 1, 2, 1, 1]),
        ("headers below 0", 1, vec![12, 0, 0, 0, 1, 1, 1]),
        ("2^31 - 1 headers", 1, vec![20, 0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f]),
    ];
    for (what, count, bytes) in refused {
        assert_eq!(checked(&of_records(count, &bytes)).unwrap_err().code(), ErrorCode::InvalidRecord, "{what}");
    }
    // A key that claims 2^31 - 1 bytes.
    let claim = [24, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0x0f, 1, 0, 0, 0];
    assert_eq!(checked(&of_records(1, &claim)).unwrap_err().code(), ErrorCode::InvalidRecord);
}

#[test]
fn topics_have_their_own_rules() {
    for codec in Codec::ALL {
        let bytes = Buf::copy_of(&built(codec));
        let error = check(bytes.clone(), &CheckRules { compacted: true, ..rules() }).unwrap_err();
        assert_eq!(
            (error.clone(), error.code()),
            (BatchError::NullKey { records: vec![1, 3] }, ErrorCode::InvalidRecord)
        );
        let narrow = CheckRules { timestamps: (WallMs(4_991), WallMs(9_999)), ..rules() };
        let error = check(bytes.clone(), &narrow).unwrap_err();
        assert!(matches!(error, BatchError::Timestamp { timestamp: WallMs(4_990), .. }), "{error}");
        assert!(check(bytes, &CheckRules { log_append_time: true, ..narrow }).is_ok());
    }
    // All are named: some for their time, some for want of a key.
    let mut builder = Builder::new(Codec::Lz4, None);
    for at in 0..30 {
        let key = (at % 10 != 3).then_some(&b"k"[..]);
        builder.push(WallMs(if at % 10 == 7 { 1 } else { 5_000 }), key, None, &[]);
    }
    let bytes = builder.encode();
    let compacted = CheckRules { compacted: true, timestamps: (WallMs(0), WallMs(9_999)), ..rules() };
    let error = check(Buf::copy_of(&bytes), &compacted).unwrap_err();
    assert_eq!(error, BatchError::NullKey { records: vec![3, 13, 23] });
    let narrow = CheckRules { timestamps: (WallMs(10), WallMs(9_999)), ..compacted };
    let (timestamp, earliest, latest) = (WallMs(1), WallMs(10), WallMs(9_999));
    let records = vec![3, 7, 13, 17, 23, 27];
    let error = check(Buf::copy_of(&bytes), &narrow).unwrap_err();
    assert_eq!(error, BatchError::Timestamp { records, timestamp, earliest, latest });
    // No timestamp at all is no timestamp out of bounds.
    let mut builder = Builder::new(Codec::None, None);
    builder.push(WallMs(-1), None, None, &[]);
    assert!(checked(&builder.encode()).is_ok());
}

#[test]
fn a_bomb_is_bounded() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let bomb = zeroes(codec, 16, 1 << 20);
        assert!(bomb.len() < 1 << 20, "{codec:?} {}", bomb.len());
        let error = checked(&bomb).unwrap_err();
        assert_eq!((error.clone(), error.code()), (BatchError::Expands { max: 1 << 20 }, ErrorCode::MessageTooLarge));
        assert!(check(Buf::copy_of(&bomb), &CheckRules { decompressed_bytes_max: 17 << 20, ..rules() }).is_ok());
        let mut scratch = Vec::new();
        assert!(records(&bomb, &mut scratch, 1 << 20).is_err());
        assert!(scratch.capacity() <= 2 << 20);
    }
}
