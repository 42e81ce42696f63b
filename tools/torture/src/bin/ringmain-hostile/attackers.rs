//! Broken clients, each on and on until told to stop. What becomes of them is nobody's concern: whoever is closed comes again.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

use ringmain_torture::connection::Connection;
use ringmain_types::PartitionIndex;
use ringmain_wire::fetch::{FetchPartition, FetchTopic};
use ringmain_wire::{ApiSpec, FETCH, FetchRequest, Field, METADATA, MetadataRequest, encode_request};
use rustix::process::{Resource, Rlimit, getrlimit, setpriority_process, setrlimit};

use crate::ask::{FETCH_VERSION, create_all, create_topic, delete_topic, fetch_request, produce_one};
use crate::frames::framed;

const IDLE: u64 = 10_000;
/// Where the idle class can't be had.
const NICE: i32 = 19;

type Attack = fn(&str, &AtomicBool) -> io::Result<()>;

const ATTACKS: &[(&str, Attack)] = &[
    ("idle", idle),
    ("half", half),
    ("byte", byte_a_second),
    ("pipelines", pipelines),
    ("unread", unread),
    ("garbage", garbage),
    ("topics", topics),
    ("names", names),
];

/// Each on a thread of its own; all, or those that are named in `only`.
pub fn start<'scope>(scope: &'scope Scope<'scope, '_>, address: &'scope str, only: &str, stop: &'scope AtomicBool) {
    // Refused only by policy; then there are fewer.
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let asked = ATTACKS.iter().filter(|(name, _)| only.is_empty() || only.split(',').any(|word| word == *name));
    for (number, (_, attack)) in asked.enumerate() {
        scope.spawn(move || {
            let class = stand_back();
            if number == 0 {
                println!("  attackers run {class}");
            }
            while !stop.load(Ordering::Relaxed) {
                // Closed, refused or reset: that is what it is there for.
                let _ = attack(address, stop);
                pause(stop, Duration::from_millis(100));
            }
        });
    }
}

/// Gives this thread what nobody else wants of the processor, as clients elsewhere take none of the broker's; how. `chrt` (util-linux) does
/// it, because no safe wrapper of the system call is at hand.
fn stand_back() -> &'static str {
    let thread = rustix::thread::gettid();
    let id = thread.as_raw_nonzero().to_string();
    if Command::new("chrt").args(["--idle", "--pid", "0", &id]).status().is_ok_and(|status| status.success()) {
        return "in the idle class (SCHED_IDLE)";
    }
    // Of this thread alone, as Linux has it.
    let _ = setpriority_process(Some(thread), NICE);
    "at nice 19, for want of chrt: they take more of the broker's processor than clients elsewhere would"
}

fn pause(stop: &AtomicBool, span: Duration) {
    let until = Instant::now() + span;
    while !stop.load(Ordering::Relaxed) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20).min(span));
    }
}

fn whole<'a, T: Field<'a>>(spec: &ApiSpec, version: i16, body: &T) -> Vec<u8> {
    encode_request(spec, version, 1, None, body).concat()
}

/// Ten thousand that do nothing, every other one after a first word.
fn idle(address: &str, stop: &AtomicBool) -> io::Result<()> {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(IDLE * 2);
    let mut open = Vec::new();
    for number in 0..IDLE.min(descriptors / 2) {
        let mut connection = Connection::open(address)?;
        if number % 2 == 0 {
            connection.stream().write_all(&framed(18, 0, &[]))?;
            connection.receive()?;
        }
        open.push(connection);
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
    }
    pause(stop, Duration::from_secs(300));
    Ok(())
}

/// Frames that never come whole, and clients that ask and then only listen.
fn half(address: &str, stop: &AtomicBool) -> io::Result<()> {
    let mut open = Vec::new();
    for number in 0..200 {
        let mut connection = Connection::open(address)?;
        match number % 2 {
            0 => connection.stream().write_all(&[0, 0x10, 0, 0, 0, 0, 0, 9])?,
            _ => {
                let fetch = fetch_request("large", 0, i64::from(i32::MAX), 1 << 20);
                connection.stream().write_all(&whole(&FETCH, FETCH_VERSION, &fetch))?;
                connection.stream().shutdown(Shutdown::Write)?;
            }
        }
        open.push(connection);
    }
    pause(stop, Duration::from_secs(10));
    Ok(())
}

fn byte_a_second(address: &str, stop: &AtomicBool) -> io::Result<()> {
    let mut open: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(address)).collect::<io::Result<_>>()?;
    let frame = framed(18, 0, &[]);
    for byte in frame.iter().cycle() {
        open.retain_mut(|stream| stream.write_all(&[*byte]).is_ok());
        pause(stop, Duration::from_secs(1));
        if open.is_empty() || stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(())
}

/// As much as is taken, then silence for a while.
fn stuff(stream: &mut TcpStream, frame: &[u8], count: usize) -> io::Result<()> {
    stream.set_write_timeout(Some(Duration::from_millis(50)))?;
    for _ in 0..count {
        match stream.write_all(frame) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(()),
            other => other?,
        }
    }
    Ok(())
}

/// Ten thousand requests at once; their replies are read by one client of two.
fn pipelines(address: &str, stop: &AtomicBool) -> io::Result<()> {
    let frame = whole(&METADATA, 9, &MetadataRequest { topics: None, ..Default::default() });
    let mut open = Vec::new();
    for number in 0..4 {
        let mut stream = TcpStream::connect(address)?;
        stuff(&mut stream, &frame, 10_000)?;
        if number % 2 == 0 {
            stream.set_read_timeout(Some(Duration::from_millis(50)))?;
            let mut bytes = vec![0; 64 << 10];
            while !stop.load(Ordering::Relaxed) && stream.read(&mut bytes).is_ok_and(|read| read > 0) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        open.push(stream);
    }
    pause(stop, Duration::from_secs(1));
    Ok(())
}

/// Fetches of all that there is, whose replies nobody reads.
fn unread(address: &str, stop: &AtomicBool) -> io::Result<()> {
    let mut writes = Connection::open(address)?;
    create_topic(&mut writes, "large", 2)?;
    for _ in 0..4 {
        produce_one(&mut writes, "large", 0, &[b'x'; 900_000])?;
    }
    let frame = whole(&FETCH, FETCH_VERSION, &fetch_request("large", 0, 0, i32::MAX));
    let mut open = Vec::new();
    for _ in 0..30 {
        let mut stream = TcpStream::connect(address)?;
        stuff(&mut stream, &frame, 500)?;
        open.push(stream);
    }
    pause(stop, Duration::from_secs(5));
    Ok(())
}

fn garbage(address: &str, stop: &AtomicBool) -> io::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let mut stream = TcpStream::connect(address)?;
        let mut bytes = vec![0; fastrand::usize(1..2000)];
        bytes.fill_with(|| fastrand::u8(..));
        // Every other one begins like a request.
        if fastrand::bool() && bytes.len() > 12 {
            let length = bytes.len() as u32 - 4;
            bytes[..4].copy_from_slice(&length.to_be_bytes());
            bytes[4..8].copy_from_slice(&[0, fastrand::u8(0..76), 0, fastrand::u8(0..12)]);
        }
        // Closed meanwhile, as it should be.
        let _ = stream.write_all(&bytes);
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn topics(address: &str, stop: &AtomicBool) -> io::Result<()> {
    let mut connection = Connection::open(address)?;
    let mut round = 0;
    loop {
        round += 1;
        let names: Vec<String> = (0..100).map(|at| format!("siege.{}.{at}", round % 10)).collect();
        create_all(&mut connection, &names, 2, &[])?;
        for name in &names {
            delete_topic(&mut connection, name)?;
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
        pause(stop, Duration::from_millis(500));
    }
}

/// Requests of thousands of names, and long polls of them.
fn names(address: &str, stop: &AtomicBool) -> io::Result<()> {
    let part = |index| FetchPartition { partition: PartitionIndex(index), ..Default::default() };
    let topic = FetchTopic { topic: "large", partitions: (0..100_000).map(part).collect(), ..Default::default() };
    let fetch = FetchRequest { max_wait_ms: i32::MAX, topics: vec![topic].into(), ..Default::default() };
    let mut open = Vec::new();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(address)?;
        stuff(&mut stream, &whole(&FETCH, FETCH_VERSION, &fetch), 4)?;
        open.push(stream);
        pause(stop, Duration::from_millis(500));
    }
    pause(stop, Duration::from_secs(2));
    Ok(())
}
