//! A start after kill -9 with gigabytes in segments that are not sealed: how long until the broker is ready, and is all of it there.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use ringmain_torture::broker::{Broker, create};
use ringmain_torture::connection::Connection;
use ringmain_torture::filler::Filler;
use ringmain_torture::producer::{self, Content, init_producer_id};
use ringmain_torture::verify::verify;
use ringmain_types::WallMs;

use crate::Options;

const TOPIC: &str = "large";
const VALUE_BYTES: usize = 1000;
const BATCH_RECORDS: u64 = 64;
/// The broker is killed and started so often.
const STARTS: usize = 3;
/// Issue 3: ready in less than this.
const READY_MAX: Duration = Duration::from_secs(5);

pub fn run(options: &Options, broker: &mut Broker, gib: u64) -> Result<bool, String> {
    create(&broker.address, TOPIC, options.partitions)?;
    let wanted = (gib << 30) / (options.partitions as u64 * VALUE_BYTES as u64);
    let mut connection = Connection::open(&broker.address).map_err(|e| e.to_string())?;
    let producer_id = init_producer_id(&mut connection).map_err(|e| e.to_string())?;
    let partitions = options.partitions;
    let began = producer::now();
    let record = |partition, number| {
        let mut value = format!("{partition}:{number}:").into_bytes();
        value.resize(VALUE_BYTES, b'.');
        Content { at: WallMs(began.0 + (number / 1000) as i64), key: None, value }
    };
    let mut filler = Filler::new(TOPIC, producer_id, partitions, BATCH_RECORDS, record);
    let began = Instant::now();
    filler.fill(&mut connection, wanted).map_err(|e| format!("fill: {e}"))?;
    let took = began.elapsed().as_secs_f64();
    let bytes = filler.acked() * options.partitions as u64 * VALUE_BYTES as u64;
    println!("{:.1} GB in {took:.0} s ({:.0} MB/s)", bytes as f64 / 1e9, bytes as f64 / 1e6 / took);
    let mut slowest = Duration::ZERO;
    for _ in 0..STARTS {
        // Requests are in flight: this is no stop.
        broker.kill();
        drop(connection);
        let ready = start(broker)?;
        println!("ready {} ms after the start, {}", ready.as_millis(), on_disk(&options.work));
        slowest = slowest.max(ready);
        connection = Connection::open(&broker.address).map_err(|e| e.to_string())?;
        // What was not answered is sent again: producers that were not recovered would take it twice.
        filler.again(&mut connection).map_err(|e| format!("after the start: {e}"))?;
        let more = filler.acked() + (64 << 20) / (VALUE_BYTES as u64 * options.partitions as u64);
        filler.fill(&mut connection, more).map_err(|e| format!("after the start: {e}"))?;
    }
    let promised = vec![(0..filler.acked() as i64).collect::<Vec<i64>>(); options.partitions];
    let verdict = verify(&broker.address, TOPIC, &promised).map_err(|e| e.to_string())?;
    println!("{verdict}");
    let passed = verdict.clean() && slowest < READY_MAX;
    println!("slowest start {} ms: {}", slowest.as_millis(), if passed { "passed" } else { "FAILED" });
    Ok(passed)
}

/// Starts the broker; how long it took until it said that it is ready.
fn start(broker: &mut Broker) -> Result<Duration, String> {
    let began = Instant::now();
    broker.start()?;
    loop {
        if ready(&broker.admin) {
            return Ok(began.elapsed());
        }
        if began.elapsed() > Duration::from_secs(300) {
            return Err("not ready within 5 minutes".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn ready(admin: &str) -> bool {
    let asked = || -> io::Result<String> {
        let mut stream = TcpStream::connect(admin)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /health/ready HTTP/1.1\r\nHost: ringmain\r\nConnection: close\r\n\r\n")?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        Ok(reply)
    };
    asked().is_ok_and(|reply| reply.starts_with("HTTP/1.1 200"))
}

/// How much lies in how many segments.
fn on_disk(work: &Path) -> String {
    let (mut bytes, mut files) = (0, 0);
    for directory in std::fs::read_dir(work.join("data")).into_iter().flatten().flatten() {
        for file in std::fs::read_dir(directory.path()).into_iter().flatten().flatten() {
            if file.path().extension().is_some_and(|extension| extension == "log") {
                bytes += file.metadata().map_or(0, |data| data.len());
                files += 1;
            }
        }
    }
    format!("with {:.1} GB in {files} segments", bytes as f64 / 1e9)
}
