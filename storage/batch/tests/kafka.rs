//! Bytes that a Kafka 4.4.0 broker stored: per codec, one batch of librdkafka (kcat: idempotent, null and empty values, headers) and
//! one of Kafka's own console producer. `tests/data/kafka-4.4-<codec>.log` is the segment as it lay on disk.
#![allow(clippy::disallowed_methods)] // it reads its data

use ringmain_batch::*;
use ringmain_buffer::Buf;
use ringmain_types::*;

fn segment(codec: Codec) -> Vec<u8> {
    let path = format!("{}/tests/data/kafka-4.4-{}.log", env!("CARGO_MANIFEST_DIR"), codec.name());
    std::fs::read(path).unwrap()
}

#[test]
fn what_clients_write_and_kafka_keeps_is_taken() {
    let rules = CheckRules {
        batch_bytes_max: 1 << 20,
        decompressed_bytes_max: 1 << 20,
        compacted: false,
        timestamps: (WallMs(0), WallMs(i64::MAX)),
        log_append_time: false,
        now: WallMs(0),
    };
    for codec in Codec::ALL {
        let segment = segment(codec);
        let (mut at, mut next, mut keys, mut values) = (0, Offset(0), Vec::new(), Vec::new());
        let mut idempotent = 0;
        while at < segment.len() {
            let header = BatchHeader::parse(&segment[at..]).unwrap();
            assert_eq!((header.base, header.epoch, header.info.codec), (next, LeaderEpoch(0), codec));
            let mut batch = segment[at..at + header.info.bytes as usize].to_vec();
            assert!(crc_ok(&batch));
            stamp(&mut batch, Offset(0), LeaderEpoch(-1));
            check(Buf::copy_of(&batch), &rules).unwrap();
            idempotent += u32::from(header.info.producer.is_some());
            let mut scratch = Vec::new();
            for record in records(&batch, &mut scratch, 1 << 20).unwrap() {
                let record = record.unwrap();
                keys.push(record.key.map(<[u8]>::to_vec));
                values.push(record.value.map(<[u8]>::to_vec));
                let headers: Vec<_> = record.headers.into_iter().collect();
                if record.key.is_some() {
                    let want: [(&[u8], Option<&[u8]>); 4] =
                        [(b"a", Some(b"1")), (b"a", Some(b"2")), (b"empty", Some(b"")), (b"null", None)];
                    assert_eq!(headers, want);
                }
            }
            (at, next) = (at + batch.len(), header.next());
        }
        assert!(idempotent > 0);
        let some = |bytes: &[u8]| Some(bytes.to_vec());
        assert_eq!(values[..4], [some(b"v1"), None, some(b"v3"), some(&[b'x'; 300])], "{codec:?}");
        assert_eq!(values[4..], [some(b"one"), some(b"two"), some(&[b'y'; 300])], "{codec:?}");
        assert!(keys[4..].iter().all(Option::is_none));
    }
}
