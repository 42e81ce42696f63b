//! Another implementation as judge: what the `kafka-protocol` crate writes is read here, and the other way round, in every codec.

use bytes::{Bytes, BytesMut};
use kafka_protocol::indexmap::IndexMap;
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records::{
    Compression, Record as OracleRecord, RecordBatchDecoder, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};
use ringmain_batch::*;
use ringmain_buffer::Buf;
use ringmain_types::*;

const CODECS: [(Codec, Compression); 5] = [
    (Codec::None, Compression::None),
    (Codec::Gzip, Compression::Gzip),
    (Codec::Snappy, Compression::Snappy),
    (Codec::Lz4, Compression::Lz4),
    (Codec::Zstd, Compression::Zstd),
];

fn part(at: i32, salt: i32) -> Option<Vec<u8>> {
    match (at + salt) % 4 {
        0 => None,
        1 => Some(Vec::new()),
        len => Some(vec![at as u8; (len * at * 7 % 900) as usize]),
    }
}

fn oracle_record(at: i32, producer: bool) -> OracleRecord {
    let mut headers = IndexMap::new();
    for header in 0..at % 3 {
        headers.insert(StrBytes::from_string(format!("h{header}")), part(at, header).map(Bytes::from));
    }
    OracleRecord {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: -1,
        producer_id: if producer { 9 } else { -1 },
        producer_epoch: if producer { 2 } else { -1 },
        timestamp_type: TimestampType::Creation,
        offset: i64::from(at),
        // It counts on from the header's -1.
        sequence: if producer { 100 + at } else { at - 1 },
        timestamp: 1_000 + i64::from(at * 37 % 11),
        key: part(at, 0).map(Bytes::from),
        value: part(at, 1).map(Bytes::from),
        headers,
    }
}

fn rules() -> CheckRules {
    CheckRules {
        batch_bytes_max: 1 << 20,
        decompressed_bytes_max: 1 << 20,
        compacted: false,
        timestamps: (WallMs(0), WallMs(2_000)),
        log_append_time: false,
        now: WallMs(1_000),
    }
}

#[test]
fn what_it_writes_is_checked_and_read_here() {
    for (codec, compression) in CODECS {
        for producer in [false, true] {
            let written: Vec<_> = (0..100).map(|at| oracle_record(at, producer)).collect();
            let mut bytes = BytesMut::new();
            RecordBatchEncoder::encode(&mut bytes, &written, &RecordEncodeOptions { version: 2, compression }).unwrap();
            let batches = check(Buf::copy_of(&bytes), &rules()).unwrap();
            let [info] = batches.infos[..] else { panic!() };
            assert_eq!((info.codec, info.offsets, info.bytes as usize), (codec, 100, bytes.len()));
            let last = info.producer.map(|producer| (producer.id, producer.epoch, producer.first, producer.last));
            let want = (ProducerId(9), ProducerEpoch(2), Sequence(100), Sequence(199));
            assert_eq!(last, producer.then_some(want));
            let mut scratch = Vec::new();
            let read: Vec<_> = records(&batches.bytes, &mut scratch, 1 << 20).unwrap().map(Result::unwrap).collect();
            assert_eq!(read.len(), written.len());
            for (read, written) in read.iter().zip(&written) {
                assert_eq!(i64::from(read.offset_delta), written.offset);
                assert_eq!(info.base_timestamp.0 + read.timestamp_delta, written.timestamp);
                assert_eq!((read.key, read.value), (written.key.as_deref(), written.value.as_deref()));
                let headers: Vec<_> = written.headers.iter().map(|(k, v)| (k.as_bytes(), v.as_deref())).collect();
                assert_eq!(read.headers.into_iter().collect::<Vec<_>>(), headers);
            }
        }
    }
}

#[test]
fn what_is_written_here_it_reads() {
    for (codec, _) in CODECS {
        for producer in [false, true] {
            let want: Vec<_> = (0..100).map(|at| oracle_record(at, producer)).collect();
            let id = Producer { id: ProducerId(9), epoch: ProducerEpoch(2), first: Sequence(100), last: Sequence(0) };
            let mut builder = Builder::new(codec, producer.then_some(id));
            for record in &want {
                let headers: Vec<_> = record.headers.iter().map(|(k, v)| (k.as_str(), v.as_deref())).collect();
                builder.push(WallMs(record.timestamp), record.key.as_deref(), record.value.as_deref(), &headers);
            }
            let mut bytes = Bytes::from(builder.encode());
            let read = RecordBatchDecoder::decode(&mut bytes).unwrap();
            assert_eq!(read.compression as u8, codec.id());
            assert_eq!(read.records.len(), want.len());
            for (read, want) in read.records.iter().zip(&want) {
                assert_eq!((read.offset, read.timestamp, read.sequence), (want.offset, want.timestamp, want.sequence));
                assert_eq!((&read.key, &read.value, &read.headers), (&want.key, &want.value, &want.headers));
            }
        }
    }
}
