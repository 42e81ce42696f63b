//! The store on a disk that loses what may be lost.

mod model;

use model::*;
use ringmain_log::*;

#[test]
fn appended_flushed_read_and_there_after_a_crash() {
    let mut world = World::new(1);
    world.settle();
    assert!(world.opened);
    let p = partition(7, 0);
    world.create(p, "orders-0");
    for n in 0..5 {
        world.append(p, &batch(3, 20, n, 1000, None)).unwrap();
    }
    assert_eq!(world.logs[&p].flushed, 0, "nothing is flushed by itself");
    world.settle();
    assert_eq!(world.logs[&p].flushed, 15);
    world.check(p);
    world.crash();
    world.recover_and_check();
    assert_eq!(world.logs[&p].end, 15);
}

#[test]
fn large_appends_go_to_segments_and_roll() {
    let mut world = World::new(2);
    world.settle();
    let p = partition(7, 0);
    world.create(p, "orders-0");
    for n in 0..40 {
        world.append(p, &batch(2, 700, n, 1000, None)).unwrap();
        world.settle();
    }
    assert_eq!(world.logs[&p].flushed, 80);
    world.check(p);
    let logs = world.disk.paths().keys().filter(|path| path.ends_with(".log")).count();
    assert!(logs >= 3, "{:?}", world.disk.paths().keys());
    world.crash();
    world.recover_and_check();
    assert_eq!(world.logs[&p].end, 80);
    assert!(matches!(world.store.fenced(), None));
}
