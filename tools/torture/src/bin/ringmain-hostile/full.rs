//! A disk that fills up while the broker runs: what needs space gets 56, the rest goes on, and everything does when space returns.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use ringmain_torture::connection::Connection;

use crate::ask::{batch, create_topic, delete_topic, fetch_bytes, produce, produce_one, topics};
use crate::environment::verified;
use crate::mounts::Mount;
use crate::process::PATIENCE;
use crate::suite::{Case, Outcome, Stop, case, fail, must};
use crate::world::World;

const STORAGE_ERROR: i16 = 56;
/// Two journals and something beside.
const DISK_MIB: u32 = 256;
const LEFT_BYTES: u64 = 24 << 20;
const VALUE_BYTES: usize = 200_000;
/// Twice what fits.
const TRIES: usize = 2 * (LEFT_BYTES as usize) / VALUE_BYTES + 100;

pub const CASES: &[Case] = &[
    case("a memory disk that fills up: 56, reads and admin go on, and so does all when space returns", |world| {
        let mount = Mount::tmpfs(&world.place("tmpfs"), DISK_MIB)?;
        fills(world, &mount)
    }),
    case("an ext4 disk that fills up: the same", |world| {
        let mount = Mount::ext4(&world.place("ext4"), DISK_MIB)?;
        fills(world, &mount)
    }),
    case("a deleted topic makes room on a full disk", |world| {
        let mount = Mount::ext4(&world.place("ext4"), DISK_MIB)?;
        makes_room(world, &mount)
    }),
    case("a kill on a full disk loses nothing", |world| {
        let mount = Mount::ext4(&world.place("ext4"), DISK_MIB)?;
        killed(world, &mount)
    }),
];

/// Takes all space of a disk but `LEFT_BYTES`.
fn fill(mount: &Mount) -> Result<std::path::PathBuf, Stop> {
    let path = mount.path.join("filler");
    let mut file = File::create(&path)?;
    while file.write_all(&[0x46; 1 << 20]).is_ok() {}
    let bytes = file.metadata()?.len();
    file.set_len(bytes.saturating_sub(LEFT_BYTES))?;
    file.sync_all()?;
    Ok(path)
}

/// Writes until 56 comes; how many were acknowledged, each of them at its offset.
fn until_full(connection: &mut Connection, topic: &str) -> Result<i64, Stop> {
    for number in 0..TRIES {
        let answers = produce(connection, topic, &[(0, batch(&[b'x'; VALUE_BYTES]))])?;
        let (answer, offset) = &answers[0];
        match answer.code {
            0 => must(*offset == number as i64, || format!("record {number} at {offset}"))?,
            STORAGE_ERROR => {
                must(answer.message.contains("no space left"), || format!("{answer:?}"))?;
                return Ok(number as i64);
            }
            _ => return fail(format!("record {number}: {answer:?} instead of 56")),
        }
    }
    fail(format!("{TRIES} records were taken by a disk that is full"))
}

fn all_there(address: &str, topic: &str, count: i64) -> Outcome {
    let mut connection = Connection::open(address)?;
    for offset in 0..count {
        let bytes = fetch_bytes(&mut connection, topic, 0, offset)?;
        must(bytes.len() > VALUE_BYTES && bytes[..8] == offset.to_be_bytes(), || {
            format!("offset {offset} of {count} is gone")
        })?;
    }
    Ok(())
}

/// Tried again until it is taken, as clients do on 56.
fn until_taken(connection: &mut Connection, topic: &str) -> Result<i64, Stop> {
    let began = Instant::now();
    loop {
        let answers = produce(connection, topic, &[(0, batch(&[b'x'; VALUE_BYTES]))])?;
        match &answers[0] {
            (answer, offset) if answer.code == 0 => return Ok(*offset),
            (answer, _) if began.elapsed() > PATIENCE => return fail(format!("still {answer:?} with space again")),
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Everything that does not need more than a few bytes.
fn rest_goes_on(address: &str, count: i64) -> Outcome {
    all_there(address, "filling", count)?;
    let mut connection = Connection::open(address)?;
    for round in 0..500 {
        create_topic(&mut connection, "made.while.full", 3)?;
        let offset = produce_one(&mut connection, "made.while.full", 0, b"small")?;
        must(offset == 0, || format!("round {round}: the first record of a new topic at {offset}"))?;
        delete_topic(&mut connection, "made.while.full")?.ok("delete a topic on a full disk")?;
    }
    must(topics(&mut connection)?.contains(&"filling".to_string()), || "the list of topics".into())
}

fn fills(world: &mut World, mount: &Mount) -> Outcome {
    let dir = mount.path.join("data");
    let mut broker = world.launch(&dir).serve()?;
    let mut connection = Connection::open(&broker.address)?;
    create_topic(&mut connection, "filling", 1)?;
    let filler = fill(mount)?;
    let count = until_full(&mut connection, "filling")?;
    must(count > 20, || format!("only {count} records until it was full"))?;
    broker.says(&["no space left", "filling-0"])?;
    rest_goes_on(&broker.address, count)?;
    let answers = produce(&mut connection, "filling", &[(0, batch(&[b'x'; VALUE_BYTES]))])?;
    must(answers[0].0.code == STORAGE_ERROR, || format!("{answers:?}"))?;
    broker.lives()?;
    fs::remove_file(filler)?;
    let offset = until_taken(&mut connection, "filling")?;
    must(offset == count, || format!("the next record at {offset} instead of {count}"))?;
    broker.says(&["space again", "filling-0"])?;
    all_there(&broker.address, "filling", count + 1)?;
    broker.stop()?;
    verified(world, &dir)?;
    served_again(world, &dir, count + 1)
}

fn served_again(world: &mut World, dir: &Path, count: i64) -> Outcome {
    let broker = world.launch(dir).serve()?;
    all_there(&broker.address, "filling", count)?;
    broker.stop()
}

fn makes_room(world: &mut World, mount: &Mount) -> Outcome {
    let dir = mount.path.join("data");
    let broker = world.launch(&dir).serve()?;
    let mut connection = Connection::open(&broker.address)?;
    for topic in ["filling", "other"] {
        create_topic(&mut connection, topic, 1)?;
    }
    fill(mount)?;
    until_full(&mut connection, "filling")?;
    delete_topic(&mut connection, "filling")?.ok("delete")?;
    until_taken(&mut connection, "other")?;
    broker.stop()?;
    verified(world, &dir)
}

fn killed(world: &mut World, mount: &Mount) -> Outcome {
    let dir = mount.path.join("data");
    let broker = world.launch(&dir).serve()?;
    let mut connection = Connection::open(&broker.address)?;
    create_topic(&mut connection, "filling", 1)?;
    let filler = fill(mount)?;
    let count = until_full(&mut connection, "filling")?;
    broker.kill();
    fs::remove_file(filler)?;
    served_again(world, &dir, count)?;
    verified(world, &dir)
}
