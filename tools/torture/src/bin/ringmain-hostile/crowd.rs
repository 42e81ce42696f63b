//! Clients that take and give nothing back: idle ones, slow ones, ones that never read, ones that ask for everything.

use std::io::{ErrorKind, Write};
use std::time::Duration;

use ringmain_torture::connection::Connection;
use ringmain_types::ErrorCode;
use ringmain_wire::metadata::MetadataRequestTopic;
use ringmain_wire::{FETCH, METADATA, MetadataRequest, MetadataResponse, PRODUCE, encode_request};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::ask::{
    FETCH_VERSION, PRODUCE_VERSION, batch, create_all, create_topic, delete_topic, fetch_bytes, fetch_request,
    produce_one, produce_request,
};
use crate::frames::framed;
use crate::suite::{Case, Outcome, Stop, case, must};
use crate::world::World;

pub const CASES: &[Case] = &[
    case("thousands of idle connections cost 8 KiB each at most", idle),
    case("requests that come byte by byte are answered", byte_by_byte),
    case("10 000 requests whose replies are never read", replies_not_read),
    case("fetches of 2^31-1 bytes that are never read", fetches_not_read),
    case("records of a client that reads no acknowledgement", acks_not_read),
    case("Metadata of 100 000 names", metadata),
    case("CreateTopics of 100 000 names", create_many),
    case("thousands of topics made and deleted", churn),
    case("a fetch of nothing but limits", fetch_limits),
];

/// What the allocator may keep, whatever was asked.
const SLACK_BYTES: u64 = 24 << 20;

fn grew(world: &mut World, before: u64, allowed: u64) -> Outcome {
    world.goes_on()?;
    let after = world.broker()?.resident()?;
    must(after <= before + allowed + SLACK_BYTES, || {
        format!(
            "resident memory went from {} to {} KiB; {} KiB more is allowed",
            before >> 10,
            after >> 10,
            allowed >> 10
        )
    })
}

fn idle(world: &mut World) -> Outcome {
    const WANTED: u64 = 10_000;
    let limit = getrlimit(Resource::Nofile);
    // Refused only by policy; then there are fewer.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(WANTED * 2);
    let count = WANTED.min(descriptors / 2);
    if count < 1000 {
        return Err(Stop::Skip(format!("needs 2000 descriptors, has {descriptors}")));
    }
    let before = world.broker()?.resident()?;
    let mut open = Vec::new();
    for number in 0..count {
        let mut connection = world.connect()?;
        // Every other one has spoken once.
        if number % 2 == 0 {
            connection.stream().write_all(&framed(18, 0, &[]))?;
            connection.receive()?;
        }
        open.push(connection);
    }
    grew(world, before, count * 8192)?;
    for connection in open.iter_mut().step_by(97) {
        connection.stream().write_all(&framed(18, 0, &[]))?;
        connection.receive()?;
    }
    Ok(())
}

fn byte_by_byte(world: &mut World) -> Outcome {
    let mut connection = world.connect()?;
    for byte in framed(18, 0, &[]).iter().chain(&framed(3, 1, &[0, 0, 0, 0])) {
        connection.stream().write_all(&[*byte])?;
        std::thread::sleep(Duration::from_millis(5));
    }
    connection.receive()?;
    connection.receive()?;
    Ok(())
}

/// Writes until the broker takes no more, or all is written; then the broker holds what it holds.
fn stuff(connection: &mut Connection, frame: &[u8], count: usize) -> std::io::Result<usize> {
    connection.stream().set_write_timeout(Some(Duration::from_millis(200)))?;
    for number in 0..count {
        match connection.stream().write_all(frame) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(number),
            // Closed as the worst holder: as good.
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                return Ok(number);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

fn replies_not_read(world: &mut World) -> Outcome {
    let before = world.broker()?.resident()?;
    let mut open = Vec::new();
    let request = MetadataRequest { topics: None, ..Default::default() };
    let frame = encode_request(&METADATA, 9, 1, None, &request);
    let frame: Vec<u8> = frame.iter().flat_map(|part| part.iter().copied()).collect();
    for _ in 0..8 {
        let mut connection = world.connect()?;
        stuff(&mut connection, &frame, 10_000)?;
        open.push(connection);
    }
    // Each may hold `Limits::connection_unsent_bytes_max` of replies.
    grew(world, before, 8 * (16 << 20))
}

fn fetches_not_read(world: &mut World) -> Outcome {
    let mut writes = world.connect()?;
    create_topic(&mut writes, "large", 2)?;
    for _ in 0..10 {
        produce_one(&mut writes, "large", 0, &[b'x'; 900_000])?;
    }
    let before = world.broker()?.resident()?;
    let mut open = Vec::new();
    let frame = encode_request(&FETCH, FETCH_VERSION, 1, None, &fetch_request("large", 0, 0, i32::MAX));
    let frame: Vec<u8> = frame.iter().flat_map(|part| part.iter().copied()).collect();
    for _ in 0..50 {
        let mut connection = world.connect()?;
        stuff(&mut connection, &frame, 1000)?;
        open.push(connection);
    }
    // The ten records themselves may be cached; what the replies hold are slices of that.
    grew(world, before, 64 << 20)
}

fn acks_not_read(world: &mut World) -> Outcome {
    let mut connection = world.connect()?;
    create_topic(&mut connection, "unheard", 2)?;
    let before = world.broker()?.resident()?;
    let request = produce_request("unheard", &[(0, batch(&[b'x'; 50_000])), (1, batch(&[b'x'; 50_000]))], 1);
    let frame = encode_request(&PRODUCE, PRODUCE_VERSION, 1, None, &request);
    let frame: Vec<u8> = frame.iter().flat_map(|part| part.iter().copied()).collect();
    let taken = stuff(&mut connection, &frame, 1000)?;
    must(taken > 100, || format!("only {taken} requests were taken"))?;
    // 100 MB went through; the cache may keep what its account allows, and its blocks are what may stay.
    grew(world, before, 160 << 20)
}

fn metadata(world: &mut World) -> Outcome {
    const COUNT: usize = 100_000;
    let names: Vec<String> = (0..COUNT).map(|number| format!("no.topic.{number}")).collect();
    let topics = names.iter().map(|name| MetadataRequestTopic { name: Some(name), ..Default::default() });
    let request =
        MetadataRequest { topics: Some(topics.collect()), allow_auto_topic_creation: false, ..Default::default() };
    let before = world.broker()?.resident()?;
    let mut connection = world.connect()?;
    for _ in 0..3 {
        let frame = connection.call(&METADATA, 9, &request)?;
        let (_, reply): (i32, MetadataResponse<'_>) = frame.decode(&METADATA, 9)?;
        let unknown =
            reply.topics.iter().filter(|topic| topic.error_code == ErrorCode::UnknownTopicOrPartition).count();
        must(reply.topics.len() == COUNT && unknown == COUNT, || {
            format!("{unknown} of {} unknown", reply.topics.len())
        })?;
    }
    // And with leave to make them all: the broker makes only as many as it has partitions for, in bounded time.
    let request = MetadataRequest { allow_auto_topic_creation: true, ..request };
    let mut connection = world.connect()?;
    connection.send(&METADATA, 9, &request)?;
    world.goes_on()?;
    grew(world, before, 256 << 20)?;
    world.renew();
    Ok(())
}

fn create_many(world: &mut World) -> Outcome {
    const COUNT: usize = 100_000;
    let names: Vec<String> = (0..COUNT).map(|number| format!("many.{number}")).collect();
    let before = world.broker()?.resident()?;
    let mut connection = world.connect()?;
    let answers = create_all(&mut connection, &names, 1, &[])?;
    let refused = answers.iter().filter(|(_, answer)| answer.code == ErrorCode::PolicyViolation.code()).count();
    must(refused >= COUNT - 10_000, || format!("{refused} of {COUNT} refused"))?;
    grew(world, before, 256 << 20)?;
    world.renew();
    Ok(())
}

fn churn(world: &mut World) -> Outcome {
    let mut connection = world.connect()?;
    let mut round = |world: &mut World, number: usize| -> Outcome {
        let names: Vec<String> = (0..500).map(|at| format!("churn.{number}.{at}")).collect();
        let answers = create_all(&mut connection, &names, 2, &[])?;
        must(answers.len() == names.len() && answers.iter().all(|(_, answer)| answer.code == 0), || {
            "not all were made".into()
        })?;
        for name in names.iter().step_by(50) {
            produce_one(&mut connection, name, 1, b"x")?;
        }
        for name in &names {
            delete_topic(&mut connection, name)?.ok(name)?;
        }
        world.goes_on()
    };
    round(world, 0)?;
    let before = world.broker()?.resident()?;
    for number in 1..4 {
        round(world, number)?;
    }
    grew(world, before, 0)
}

fn fetch_limits(world: &mut World) -> Outcome {
    let mut connection = world.connect()?;
    create_topic(&mut connection, "limits", 1)?;
    produce_one(&mut connection, "limits", 0, b"x")?;
    for bytes_max in [i32::MIN, -1, 0, 1, i32::MAX] {
        let mut request = fetch_request("limits", 0, 0, bytes_max);
        (request.max_wait_ms, request.min_bytes) = (i32::MIN, i32::MAX);
        connection.call(&FETCH, FETCH_VERSION, &request)?;
    }
    for offset in [-1, i64::MIN, i64::MAX, 2] {
        let told = fetch_bytes(&mut connection, "limits", 0, offset);
        must(told.is_err_and(|error| error.to_string().contains("error 1 ")), || {
            format!("offset {offset} is out of range")
        })?;
    }
    Ok(())
}
