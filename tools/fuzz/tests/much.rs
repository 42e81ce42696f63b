//! Requests that name much: see `much.rs`, which holds what they take in memory against bounds.

use ringmain_fuzz::much;

/// As many as a cluster may have partitions. Each is answered, though none is there.
#[test]
fn a_fetch_of_200_000_partitions_is_answered() {
    assert_eq!(much::a_fetch_of(10), 10);
    // One topic's name comes again and again, each time with other partitions.
    assert_eq!(much::a_fetch_of(200_000), 200_000);
}

#[test]
fn one_name_a_hundred_thousand_times_is_answered_once() {
    for (api, bytes) in much::one_name_a_hundred_thousand_times() {
        assert!(bytes < 1000, "{api}: {bytes} bytes");
    }
}
