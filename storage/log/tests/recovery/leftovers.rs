//! What is left of removed logs by lives that were cut off.

use std::collections::BTreeSet;

use ringmain_log::Known;
use ringmain_types::*;

use crate::model::*;

const STAYS: u128 = 7;
const GOING: u128 = 8;

fn small(fill: u8) -> ringmain_batch::CheckedBatches {
    batch(1, 100, fill, 1000, None)
}

/// Two logs of a topic that is deleted in the middle, and one of another's. True when it ended after `operations`; then, whether the
/// deletion was acknowledged.
fn live(world: &mut World, operations: u64) -> (bool, bool) {
    let logs = [(partition(STAYS, 0), "stays-0"), (partition(GOING, 0), "going-0"), (partition(GOING, 1), "going-1")];
    for (p, name) in logs {
        world.create(p, name);
    }
    let mut deleted = false;
    for round in 0..40u8 {
        let there: Vec<Partition> = world.ids.keys().copied().collect();
        for p in there {
            let bytes = if p.index == PartitionIndex(0) { 300 } else { 20 };
            let _ = world.append(p, &batch(1, bytes, round, 1000, None));
        }
        if round == 12 {
            deleted = true;
            for p in [partition(GOING, 0), partition(GOING, 1)] {
                let id = world.ids.remove(&p).unwrap();
                world.logs.remove(&p);
                world.store.remove(world.now, id);
            }
        }
        for _ in 0..4 {
            world.turn();
            if world.disk.completed >= operations {
                return (true, deleted);
            }
        }
    }
    (false, deleted)
}

fn sweep(world: &mut World, removed: &[u128]) {
    let config = world.config.clone();
    let topics: BTreeSet<String> =
        world.logs.values().filter_map(|l| Some(l.name.rsplit_once('-')?.0.to_owned())).collect();
    world.store.remove_others(
        world.now,
        &config,
        Known { shards: 1, topics, removed: removed.iter().copied().map(TopicId).collect() },
    );
}

/// The store is open and its logs are asked for, with what else a first image leads to.
fn start(world: &mut World, removed: &[u128]) {
    world.recover_and_check();
    sweep(world, removed);
}

#[test]
fn nothing_is_left_of_a_log_whose_removal_was_cut_off() {
    let mut kept = 0;
    for seed in 0..10 {
        let mut operations = 10;
        loop {
            let mut world = World::new(seed + operations * 10);
            world.settle();
            let (cut, deleted) = live(&mut world, operations);
            let gone: &[u128] = if deleted { &[GOING] } else { &[] };
            for _ in 0..world.random.below(3) {
                if world.random.below(2) == 0 {
                    world.kill()
                } else {
                    world.crash()
                }
                start(&mut world, gone);
                for _ in 0..world.random.below(40) {
                    world.turn();
                }
            }
            if world.random.below(2) == 0 {
                world.kill()
            } else {
                world.crash()
            }
            start(&mut world, gone);
            world.settle();
            let names = world.disk.names("");
            let going = names.iter().filter(|name| name.starts_with("going")).count();
            if deleted {
                let files: Vec<String> = world.disk.paths().into_keys().collect();
                assert_eq!(going, 0, "seed {seed}, cut after {operations}: {names:?} {files:?}");
                assert_eq!(world.store.export().len(), usize::from(world.logs[&partition(STAYS, 0)].end > 0));
            } else {
                kept += going;
            }
            world.append(partition(STAYS, 0), &small(9)).unwrap();
            world.settle();
            world.kill();
            start(&mut world, gone);
            world.settle();
            if !cut {
                break;
            }
            operations += 1;
        }
        assert!(operations > 100, "{operations}");
    }
    assert!(kept > 0, "where the topic was not deleted its logs stay");
}

#[test]
fn what_is_not_known_to_be_left_over_stays() {
    let mut world = World::new(4);
    world.settle();
    let (_, deleted) = live(&mut world, u64::MAX);
    assert!(deleted);
    world.settle();
    // A stray with records, one of another shard's topic, and what is no partition's.
    let owned = |topic: u128| ringmain_log::partition_metadata::encode(TopicId(topic)).into_bytes();
    world.disk.put("stray-0/partition.metadata", &owned(99));
    world.disk.put("stray-0/00000000000000000000.log", b"records");
    world.disk.put("notes/readme", b"mine");
    world.disk.put("unread-0/partition.metadata", b"version: 7");
    world.disk.put("left-0/partition.metadata", &owned(98));
    // A log whose topic the metadata has lost: nothing says that it was removed.
    let lost = partition(77, 0);
    world.create(lost, "lost-0");
    for _ in 0..20 {
        world.append(lost, &batch(1, 300, 1, 1000, None)).unwrap();
    }
    world.settle();
    world.logs.remove(&lost);
    world.kill();
    start(&mut world, &[GOING]);
    world.settle();
    let names = world.disk.names("");
    for name in ["stray-0", "notes", "unread-0", "stays-0", "lost-0"] {
        assert!(names.iter().any(|found| found == name), "{name} in {names:?}");
    }
    assert!(!names.iter().any(|name| name == "left-0"), "{names:?}");
    assert!(world.store.export().iter().any(|log| log.partition == lost), "and the journal still tells of it");
}
