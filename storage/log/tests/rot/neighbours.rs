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

/// Entries that lead to damaged batches are sound: they are no reason to make the index anew, which would end at the first of those.
#[test]
fn damaged_batches_do_not_cost_the_index() {
    let mut world = World::new(2);
    world.settle();
    world.config.segment_bytes = 16 << 10;
    world.config.index_interval_bytes = 400;
    let p = partition(7, 0);
    world.create(p, "orders-0");
    for n in 0..BATCHES * 4 {
        world.append(p, &batch(2, 80, n as u8, 1_000_000 + n * 1000, None)).unwrap();
        world.settle();
    }
    stop(&mut world);
    let paths = world.disk.paths();
    let of = |extension: &str| {
        let mut of = paths.iter().filter(|(path, _)| path.starts_with("orders-0") && path.ends_with(extension));
        of.nth(1).map(|(path, bytes)| (path.clone(), bytes.clone())).unwrap()
    };
    let ((log, _), (index, entries)) = (of(".log"), of(".index"));
    assert!(entries.len() / 8 >= 20, "{}", entries.len() / 8);
    let field = |at: usize| u32::from_be_bytes(entries[at..at + 4].try_into().unwrap());
    let base: i64 = index.split(['/', '.']).nth(1).unwrap().parse().unwrap();
    let (last, position) = (|number: usize| base + i64::from(field(number * 8)), |number: usize| field(number * 8 + 4));
    // Records of nine batches that entries lead to.
    for number in 1..10 {
        world.disk.turn_bit(&log, (position(number) as usize + 70) * 8);
    }
    let offsets = || (0..BATCHES * 4).map(|n| 2 * n);
    let (damaged, _) = said_from(&mut world, 1, offsets());
    // And an entry far behind them says another offset than its batch has.
    let far = entries.len() / 8 - 3;
    world.disk.turn_bit(&index, (far * 8 + 3) * 8);
    world.kill();
    world.settle();
    let id = world.create(p, "orders-0");
    world.settle();
    let read = |world: &mut World, offset: i64| match world.try_read(id, Offset(offset), 1) {
        ReadResult::Ready(slices) => Some(slices.parts.concat()),
        ReadResult::Failed(ReadError::Rot { .. }) => None,
        other => panic!("{other:?}"),
    };
    for number in 1..10 {
        assert!(read(&mut world, last(number)).is_none(), "{number}");
    }
    assert!(read(&mut world, last(far)).is_some());
    let told = |event: &StoreEvent| {
        matches!(event, StoreEvent::Damaged { damage: Damage::Rot { path, position }, .. }
            if *path == index && *position == far as u64 * 8)
    };
    assert!(world.events.iter().any(told), "{:?}", world.events);
    for (offset, damaged) in offsets().rev().zip(&damaged.batches) {
        assert!(read(&mut world, offset) == *damaged, "{offset}");
    }
}
