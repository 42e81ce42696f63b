//! A batch's length is under no checksum. One that says more than all memory for reads is read all the same, and judged.

use ringmain_batch::{Builder, CheckRules, Codec, check};
use ringmain_buffer::Buf;

use super::*;

const CACHE: usize = Account::Cache as usize;

fn kib(kib: u64) -> u64 {
    kib << 10
}

/// A stopped store with segments that are larger than what there is to read them.
fn long_segments() -> World {
    let mut world = World::new(2);
    world.settle();
    world.config.segment_bytes = 60 << 10;
    world.config.index_interval_bytes = 3000;
    let p = partition(7, 0);
    world.create(p, "orders-0");
    for n in 0..BATCHES * 5 {
        world.append(p, &batch(2, 400, n as u8, 1_000_000 + n * 1000, None)).unwrap();
        world.settle();
    }
    stop(&mut world);
    world.limits.memory_bytes[CACHE] = kib(32);
    world
}

#[test]
fn a_length_that_no_memory_holds_is_named_and_costs_one_batch() {
    let mut world = long_segments();
    let paths = world.disk.paths();
    let (path, bytes) = paths.iter().find(|(path, _)| path.ends_with("0.log") && path.starts_with("orders-0")).unwrap();
    let places = places(bytes);
    let (sound, named) = said_from(&mut world, BATCHES, 0..BATCHES * 10);
    assert!(named.is_empty() && sound.batches.iter().all(Option::is_some));
    let mut tried = 0;
    for place in &places {
        // 32 KiB more, within the segment.
        if place + (33 << 10) > bytes.len() {
            break;
        }
        tried += 1;
        world.disk.turn_bit(path, (place + 10) * 8 + 7);
        let (now, named) = said_from(&mut world, BATCHES, (0..BATCHES * 10).filter(|offset| offset % 7 == 0));
        world.disk.turn_bit(path, (place + 10) * 8 + 7);
        assert!(named.iter().any(|named| *named == (path.clone(), *place as u64)), "{place}: {named:?}");
        let refused = now.batches.iter().filter(|batch| batch.is_none()).count();
        assert!(refused <= 4, "{place}: {refused}");
        let sound = sound.batches.iter().rev().step_by(7).collect::<Vec<_>>().into_iter().rev();
        assert!(now.batches.iter().zip(sound).all(|(now, sound)| now.is_none() || now == sound), "{place}");
    }
    assert!(tried > 20, "{tried}");
}

#[test]
fn a_sound_batch_that_no_memory_holds_is_told_of() {
    let mut world = World::new(2);
    world.settle();
    world.config.segment_bytes = 64 << 10;
    let p = partition(7, 0);
    world.create(p, "orders-0");
    for n in 0..4 {
        world.append(p, &batch(1, 20 << 10, n, 1_000_000 + i64::from(n), None)).unwrap();
        world.append(p, &batch(1, 40 << 10, n, 1_000_000 + i64::from(n), None)).unwrap();
        world.settle();
    }
    // More than there is to read it is not even taken.
    let most = world.limits.memory_bytes[CACHE] as u32;
    let refused = world.append(p, &batch(1, 64_700, 9, 1_000_000, None));
    let Err(AppendError::TooLarge { bytes, max }) = refused else { panic!("{refused:?}") };
    assert!(bytes > max && max < most && bytes < 64 << 10, "{bytes} {max}");
    stop(&mut world);
    world.limits.memory_bytes[CACHE] = kib(32);
    world.kill();
    world.settle();
    let id = world.create(p, "orders-0");
    world.settle();
    for n in 0..3 {
        let small = world.try_read(id, Offset(2 * n), 1);
        assert!(matches!(&small, ReadResult::Ready(slices) if slices.next == Offset(2 * n + 1)), "{small:?}");
        drop(small);
        for _ in 0..2 {
            let read = world.try_read(id, Offset(2 * n + 1), 1);
            let ReadResult::Failed(ReadError::TooLarge { bytes, max, .. }) = read else { panic!("{read:?}") };
            assert!(bytes > max && max == 32 << 10, "{bytes} {max}");
        }
    }
    let told = world
        .events
        .iter()
        .filter(|event| matches!(event, StoreEvent::Damaged { damage: Damage::TooLarge { .. }, .. }));
    assert_eq!(told.count(), 3, "{:?}", world.events);
}

/// `socket.request.max.bytes` may be less than what a batch that was taken comes to.
#[test]
fn a_search_does_not_depend_on_how_large_frames_may_be_now() {
    let mut limits = Limits::tiny();
    limits.frame_bytes_max = 1 << 10;
    let mut world = World::with(2, limits);
    world.settle();
    let p = partition(7, 0);
    let id = world.create(p, "orders-0");
    let mut builder = Builder::new(Codec::Zstd, None);
    for n in 0..40 {
        builder.push(WallMs(1_000_000 + n), None, Some(&[7; 200]), &[]);
    }
    let checked = check(Buf::copy_of(&builder.encode()), &CheckRules::lenient(1 << 20)).unwrap();
    world.append(p, &checked).unwrap();
    world.settle();
    let found = world.find(id, TimeQuery::At(WallMs(1_000_030)));
    assert!(matches!(found, FindResult::Ready(Some(Found { offset: Offset(30), .. }))), "{found:?}");
}
