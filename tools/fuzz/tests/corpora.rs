//! What fuzzers found, and what the seeds are, on stable Rust: every input of every target.

use std::panic::catch_unwind;

use ringmain_fuzz::{TARGETS, Target, corpus};

/// All inputs of a target, each with a name that leads back to it.
fn inputs(target: &Target) -> Vec<(String, Vec<u8>)> {
    let number = |what: &'static str| move |(at, input): (usize, Vec<u8>)| (format!("{what} {at}"), input);
    let seeds = (target.seeds)().into_iter().enumerate().map(number("seed"));
    let corpus = corpus::read(target.name).expect("a corpus").into_iter().enumerate().map(number("input"));
    let found = corpus::found(target.name).expect("a folder");
    seeds.chain(corpus).chain(found).collect()
}

#[test]
fn every_input_of_every_corpus() {
    let mut failures = Vec::new();
    for target in TARGETS {
        let inputs = inputs(target);
        assert!(!inputs.is_empty(), "{}: nothing to begin with", target.name);
        for (name, input) in inputs {
            if catch_unwind(|| (target.run)(&input)).is_err() {
                failures.push(format!("{}, {name}: {}", target.name, input.escape_ascii()));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A bound that nothing can break bounds nothing.
#[test]
fn too_much_memory_is_seen() {
    use ringmain_fuzz::allocations::within;
    assert_eq!(within(100, 50, || vec![0u8; 450].len()), 450);
    assert!(catch_unwind(|| within(100, 50, || vec![0u8; 451].len())).is_err());
    let grown = || {
        let mut bytes = vec![0u8; 10];
        bytes.resize(500, 1);
        bytes.truncate(0);
        bytes.shrink_to_fit();
    };
    assert!(catch_unwind(|| within(100, 0, grown)).is_err(), "the most, not what is left");
}
