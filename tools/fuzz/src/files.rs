//! Files of a log, read whole: the journal, and the small ones.

use ringmain_log::epochs::LeaderEpochs;
use ringmain_log::index::{OffsetIndex, TimeEntry, TimeIndex};
use ringmain_log::{inspect, partition_metadata, snapshot};
use ringmain_types::*;

use crate::allocations::within;
use crate::input::Input;

const BLOCK: usize = 512;
const NONCE: u64 = 99;
const RING_BLOCKS: usize = 16;

/// What errors say, and containers that hold a single thing.
const BESIDE_BYTES: usize = 2 << 10;

/// 0: a file as it stands. 1: groups whose headers and CRCs are right, so that their entries are reached.
pub fn journal(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut file = match input.byte() & 1 {
        0 => input.rest().to_vec(),
        _ => framed(input),
    };
    read_journal(&file);
    // The same with the first block set right.
    if file.len() >= 48 {
        let crc = crc32c::crc32c(&file[..40]);
        file[40..44].copy_from_slice(&crc.to_le_bytes());
        read_journal(&file);
    }
}

fn read_journal(file: &[u8]) {
    // It tells each entry in words, for people.
    let Ok(report) = within(file.len() * 4, BESIDE_BYTES, || inspect::journal(file)) else { return };
    assert!(report.groups.len() <= file.len() / BLOCK);
    for log in &report.logs {
        assert!(!log.segments.is_empty() && log.segments.windows(2).all(|pair| pair[0].next == pair[1].base));
    }
}

pub(crate) fn superblock() -> Vec<u8> {
    let mut out = b"RMJRNL01".to_vec();
    out.extend(2u16.to_le_bytes());
    out.extend(0u16.to_le_bytes());
    out.extend((BLOCK as u32).to_le_bytes());
    out.extend(1u64.to_le_bytes());
    out.extend(NONCE.to_le_bytes());
    out.extend(((RING_BLOCKS * BLOCK) as u64).to_le_bytes());
    let crc = crc32c::crc32c(&out);
    out.extend(crc.to_le_bytes());
    out.resize(BLOCK, 0);
    out
}

/// Groups: each a byte for its count of entries, one for how far it knows what is flushed, and its entries behind their length.
fn framed(mut input: Input) -> Vec<u8> {
    let mut file = superblock();
    let mut sequence = 1u64;
    while !input.is_empty() && file.len() < (RING_BLOCKS + 1) * BLOCK {
        let (entries, behind) = (input.byte(), input.byte());
        let body = input.piece();
        let flushed = sequence - 1 - u64::from(behind & 3).min(sequence - 1);
        let group = group(sequence, flushed, u32::from(entries), body);
        file.extend(group);
        sequence += 1;
    }
    file.truncate((RING_BLOCKS + 1) * BLOCK);
    file.resize((RING_BLOCKS + 1) * BLOCK, 0);
    file
}

/// FORMAT.md, "The journal".
fn group(sequence: u64, flushed: u64, entries: u32, body: &[u8]) -> Vec<u8> {
    let bytes = 72 + body.len() + 4;
    let mut out = b"RMGROUP1".to_vec();
    out.extend(2u16.to_le_bytes());
    out.extend([0; 2]);
    out.extend(1u32.to_le_bytes());
    out.extend(NONCE.to_le_bytes());
    out.extend(sequence.to_le_bytes());
    out.extend(flushed.to_le_bytes());
    out.extend(1u64.to_le_bytes());
    out.extend((bytes as u32).to_le_bytes());
    out.extend(entries.to_le_bytes());
    out.resize(68, 0);
    let crc = crc32c::crc32c(&out);
    out.extend(crc.to_le_bytes());
    out.extend(body);
    out.extend(crc32c::crc32c_append(crc, body).to_le_bytes());
    out.resize(bytes.next_multiple_of(BLOCK), 0);
    out
}

/// A selector, then the file.
pub fn small(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.byte() % 6 {
        0 => offset_index(input),
        1 => time_index(input),
        2 => snapshot(input.rest().to_vec()),
        3 => {
            let mut file = input.rest().to_vec();
            if file.len() >= 10 {
                file[..2].copy_from_slice(&1i16.to_be_bytes());
                let rows = ((file.len() - 10) / 46) as i32;
                file[6..10].copy_from_slice(&rows.to_be_bytes());
                let crc = crc32c::crc32c(&file[6..]);
                file[2..6].copy_from_slice(&crc.to_be_bytes());
            }
            snapshot(file);
        }
        4 => epochs(input.rest()),
        _ => {
            let file = input.rest();
            if let Ok(topic) = within(file.len(), BESIDE_BYTES, || partition_metadata::decode(file)) {
                assert_eq!(partition_metadata::decode(partition_metadata::encode(topic).as_bytes()), Ok(topic));
            }
        }
    }
}

/// Offsets near the greatest that there are can't be told apart in an index; no log comes there.
const BASE_MAX: i64 = i64::MAX >> 1;

fn offset_index(mut input: Input) {
    let base = Offset(input.u64() as i64 & BASE_MAX);
    let segment_bytes = input.u32();
    let file = input.rest();
    let Ok(index) = within(file.len(), BESIDE_BYTES, || OffsetIndex::decode(base, segment_bytes, file)) else { return };
    assert_eq!(index.encode(), file, "an index says a thing in one way only");
    for cut in 0..file.len().min(20) {
        assert_eq!(index.encode_from(cut), file[cut..]);
    }
    for (offset, position) in index.entries() {
        assert!(offset >= base && position.0 < segment_bytes);
        assert_eq!(index.floor(offset), position);
        assert_eq!(index.batch_before(position), position);
    }
    assert!(index.floor(Offset(i64::MAX)).0 <= segment_bytes);
}

fn time_index(mut input: Input) {
    let base = Offset(input.u64() as i64 & BASE_MAX);
    let end = Offset(base.0.saturating_add(i64::from(input.u32())));
    let file = input.rest();
    let Ok(index) = within(file.len(), BESIDE_BYTES, || TimeIndex::decode(base, end, file)) else { return };
    assert_eq!(index.encode(), file, "an index says a thing in one way only");
    for cut in 0..file.len().min(20) {
        assert_eq!(index.encode_from(cut), file[cut..]);
    }
    for (number, (timestamp, last)) in index.entries().enumerate() {
        assert!(last >= base && last < end);
        assert_eq!(index.floor(timestamp), Some(TimeEntry { number, timestamp, last }));
    }
}

fn snapshot(file: Vec<u8>) {
    let Ok(rows) = within(file.len(), BESIDE_BYTES, || snapshot::decode(&file)) else { return };
    let written = snapshot::encode(&rows);
    assert_eq!(written.len(), file.len());
    assert_eq!(snapshot::decode(&written), Ok(rows));
}

fn epochs(file: &[u8]) {
    const ENTRIES_MAX: u32 = 16;
    let Ok(epochs) = within(file.len(), BESIDE_BYTES, || LeaderEpochs::decode(file, ENTRIES_MAX)) else { return };
    assert!(epochs.entries().len() <= ENTRIES_MAX as usize);
    assert_eq!(LeaderEpochs::decode(epochs.encode().as_bytes(), ENTRIES_MAX).as_ref(), Ok(&epochs));
    for entry in epochs.entries() {
        assert_eq!(epochs.epoch_of(entry.start), entry.epoch);
    }
}
