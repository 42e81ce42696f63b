//! What neither a batch nor an index entry says of itself is known by its neighbours.

use super::cut::{RECORDS, compacted};
use super::*;

/// A base offset that moves out of its gap: read and searched alike, from either side.
#[test]
fn a_base_offset_out_of_its_place_is_noticed_in_a_compacted_log() {
    let mut world = compacted();
    let (path, _) = file(&world, ".log");
    let whole = world.disk.paths()[&path].clone();
    let places = places(&whole);
    let headers: Vec<BatchHeader> =
        places[..places.len() - 1].iter().map(|place| BatchHeader::parse(&whole[*place..]).unwrap()).collect();
    let (sound, _) = said_from(&mut world, RECORDS, 0..RECORDS);
    for (number, header) in headers.iter().enumerate().skip(1) {
        let before = headers[number - 1].next().0;
        // Into the batch before; behind all.
        for base in [before - 1, before - 2, header.base.0 + 64] {
            let mut bytes = whole.clone();
            bytes[places[number]..places[number] + 8].copy_from_slice(&base.to_be_bytes());
            world.disk.replace(&path, &bytes);
            let (now, named) = said_from(&mut world, RECORDS, 0..RECORDS);
            for (now, sound) in now.batches.iter().zip(&sound.batches) {
                assert!(now.is_none() || now == sound, "batch {number} at {base}: {named:?}");
            }
            for (now, sound) in now.found.iter().zip(&sound.found) {
                assert!(now.is_err() || now == sound, "batch {number} at {base}: {now:?} for {sound:?}");
            }
            assert!(!named.is_empty(), "batch {number} at {base}");
        }
    }
    world.disk.replace(&path, &whole);
}
