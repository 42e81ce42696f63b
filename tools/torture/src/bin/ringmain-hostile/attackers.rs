//! Broken clients, each a process that goes on until it is ended. What becomes of them is nobody's concern: whoever is closed comes again.
//!
//! Processes, because threads beside the clients that are measured would share with these what a process has one of, its memory map
//! before all: an attacker that holds a lock of it and gets no processor would be waited for by them, and the broker be blamed.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Command, ExitCode};
use std::thread::sleep;
use std::time::Duration;

use ringmain_torture::connection::Connection;
use ringmain_types::PartitionIndex;
use ringmain_wire::fetch::{FetchPartition, FetchTopic};
use ringmain_wire::{ApiSpec, FETCH, FetchRequest, Field, METADATA, MetadataRequest, encode_request};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit};

use crate::ask::{FETCH_VERSION, create_all, create_topic, delete_topic, fetch_request, produce_one};
use crate::frames::framed;

const IDLE: u64 = 10_000;
/// What gives attackers of the processor what nobody else wants, as clients elsewhere take none of the broker's; the first that is there.
const STANDS_BACK: [(&[&str], &str); 2] = [
    (&["chrt", "--idle", "0"], "in the idle class (SCHED_IDLE)"),
    (
        &["nice", "-n", "19"],
        "at nice 19, for want of chrt: they take more of the broker's processor than clients elsewhere would",
    ),
];

/// Written in one call. Most kernels take a call's bytes at a stretch, in which nobody else has the CPU: a millisecond for some MiB. The
/// attackers of a broker elsewhere would not take that from it.
const CALL_BYTES: usize = 16 << 10;

type Attack = fn(&str) -> io::Result<()>;

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

/// Ended with this.
pub struct Attackers(Vec<Child>);

impl Drop for Attackers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Neither fails for a child that is ours.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// All, or those that are named in `only`.
pub fn start(address: &str, only: &str) -> io::Result<Attackers> {
    let works =
        |way: &[&str]| Command::new(way[0]).args(&way[1..]).arg("true").status().is_ok_and(|status| status.success());
    let (way, class) = STANDS_BACK.into_iter().find(|(way, _)| works(way)).ok_or(ErrorKind::Unsupported)?;
    println!("  attackers run {class}");
    let own = std::env::current_exe()?;
    let mut attackers = Attackers(Vec::new());
    for (name, _) in ATTACKS.iter().filter(|(name, _)| only.is_empty() || only.split(',').any(|word| word == *name)) {
        let mut command = Command::new(way[0]);
        attackers.0.push(command.args(&way[1..]).arg(&own).args(["attack", name, address]).spawn()?);
    }
    Ok(attackers)
}

/// `ringmain-hostile attack NAME ADDRESS`: one of them, until it is ended.
pub fn run(words: &[String]) -> ExitCode {
    let [name, address] = words else { return ExitCode::FAILURE };
    let Some((_, attack)) = ATTACKS.iter().find(|(known, _)| known == name) else { return ExitCode::FAILURE };
    if set_parent_process_death_signal(Some(Signal::KILL)).is_err() {
        return ExitCode::FAILURE;
    }
    // Refused only by policy; then there are fewer.
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    loop {
        // Closed, refused or reset: that is what it is there for.
        let _ = attack(address);
        sleep(Duration::from_millis(100));
    }
}

fn whole<'a, T: Field<'a>>(spec: &ApiSpec, version: i16, body: &T) -> Vec<u8> {
    encode_request(spec, version, 1, None, body).concat()
}

/// Ten thousand that do nothing, every other one after a first word.
fn idle(address: &str) -> io::Result<()> {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(IDLE * 2);
    let mut open = Vec::new();
    for number in 0..IDLE.min(descriptors / 2) {
        let mut connection = Connection::open(address)?;
        if number % 2 == 0 {
            connection.stream().write_all(&framed(18, 0, &[]))?;
            connection.receive()?;
        }
        open.push(connection);
    }
    sleep(Duration::from_secs(300));
    Ok(())
}

/// Frames that never come whole, and clients that ask and then only listen.
fn half(address: &str) -> io::Result<()> {
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
    sleep(Duration::from_secs(10));
    Ok(())
}

fn byte_a_second(address: &str) -> io::Result<()> {
    let mut open: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(address)).collect::<io::Result<_>>()?;
    let frame = framed(18, 0, &[]);
    for byte in frame.iter().cycle() {
        open.retain_mut(|stream| stream.write_all(&[*byte]).is_ok());
        sleep(Duration::from_secs(1));
        if open.is_empty() {
            break;
        }
    }
    Ok(())
}

/// As much as is taken, then silence for a while.
fn stuff(stream: &mut TcpStream, frame: &[u8], count: usize) -> io::Result<()> {
    stream.set_write_timeout(Some(Duration::from_millis(50)))?;
    for piece in (0..count).flat_map(|_| frame.chunks(CALL_BYTES)) {
        match stream.write_all(piece) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(()),
            other => other?,
        }
    }
    Ok(())
}

/// Ten thousand requests at once; their replies are read by one client of two.
fn pipelines(address: &str) -> io::Result<()> {
    let frame = whole(&METADATA, 9, &MetadataRequest { topics: None, ..Default::default() });
    let mut open = Vec::new();
    for number in 0..4 {
        let mut stream = TcpStream::connect(address)?;
        stuff(&mut stream, &frame, 10_000)?;
        if number % 2 == 0 {
            stream.set_read_timeout(Some(Duration::from_millis(50)))?;
            let mut bytes = vec![0; 64 << 10];
            while stream.read(&mut bytes).is_ok_and(|read| read > 0) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        open.push(stream);
    }
    sleep(Duration::from_secs(1));
    Ok(())
}

/// Fetches of all that there is, whose replies nobody reads.
fn unread(address: &str) -> io::Result<()> {
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
    sleep(Duration::from_secs(5));
    Ok(())
}

fn garbage(address: &str) -> io::Result<()> {
    loop {
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
        sleep(Duration::from_millis(10));
    }
}

fn topics(address: &str) -> io::Result<()> {
    let mut connection = Connection::open(address)?;
    let mut round = 0;
    loop {
        round += 1;
        let names: Vec<String> = (0..100).map(|at| format!("siege.{}.{at}", round % 10)).collect();
        create_all(&mut connection, &names, 2, &[])?;
        for name in &names {
            delete_topic(&mut connection, name)?;
        }
        sleep(Duration::from_millis(500));
    }
}

/// Requests of thousands of names, and long polls of them.
fn names(address: &str) -> io::Result<()> {
    let part = |index| FetchPartition { partition: PartitionIndex(index), ..Default::default() };
    let topic = FetchTopic { topic: "large", partitions: (0..100_000).map(part).collect(), ..Default::default() };
    let fetch = FetchRequest { max_wait_ms: i32::MAX, topics: vec![topic].into(), ..Default::default() };
    let mut open = Vec::new();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(address)?;
        stuff(&mut stream, &whole(&FETCH, FETCH_VERSION, &fetch), 4)?;
        open.push(stream);
        sleep(Duration::from_millis(500));
    }
    sleep(Duration::from_secs(2));
    Ok(())
}
