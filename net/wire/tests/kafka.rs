//! Kafka itself as judge, where there is a Java and Kafka's jars:
//! `KAFKA_LIB=/path/to/kafka/lib cargo test -p ringmain-wire --test kafka -- --ignored`.

#![allow(clippy::disallowed_methods)] // it starts Java and feeds it

mod facts;

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

const BODIES_PER_VERSION: u64 = 40;

/// The same kind of bodies as in `oracle.rs`, which shows that ours come through unchanged; here they come through Kafka unchanged.
#[test]
#[ignore = "needs java and Kafka's jars"]
fn bodies_pass_through_kafka_unchanged() {
    let lib = std::env::var("KAFKA_LIB").expect("KAFKA_LIB is the folder of Kafka's jars");
    let (mut lines, mut count) = (String::new(), 0);
    for message in facts::messages().into_iter().chain(facts::formats()) {
        let (min, max) = match message.format {
            true => (message.valid.0, message.valid.1),
            false => ringmain_wire::api(message.key).unwrap().versions,
        };
        for version in min.max(message.valid.0)..=max {
            for seed in 0..BODIES_PER_VERSION {
                write!(lines, "{} {version} ", message.name).unwrap();
                let body = facts::Bodies::new(seed, &message, version).body(&message.fields);
                body.iter().for_each(|byte| write!(lines, "{byte:02x}").unwrap());
                lines.push('\n');
                count += 1;
            }
        }
    }
    let mut judge = Command::new("java")
        .args(["-cp", &format!("{lib}/*"), concat!(env!("CARGO_MANIFEST_DIR"), "/tests/Judge.java")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("java runs");
    let mut input = judge.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = judge.wait_with_output().unwrap();
    feeder.join().unwrap().expect("java reads all lines");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{count} same\n"));
}
