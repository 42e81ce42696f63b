//! What comes in at the port and is no request.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use ringmain_torture::connection::Connection;
use ringmain_types::ErrorCode;
use ringmain_wire::{API_VERSIONS, ApiVersionsResponse, decode_reply};

use crate::process::PATIENCE;
use crate::suite::{Case, Outcome, Stop, case, fail, must};
use crate::world::World;

pub const CASES: &[Case] = &[
    case("a frame of negative length ends its connection", |world| closed(world, &[0xff, 0xff, 0xff, 0xff], "-1")),
    case("a frame of the most negative length ends its connection", |world| {
        closed(world, &[0x80, 0, 0, 0], "-2147483648")
    }),
    case("a frame of no length ends its connection", |world| closed(world, &[0, 0, 0, 0], "0")),
    case("a frame of 2^31-1 bytes ends its connection, and both sizes are named", |world| {
        closed(world, &[0x7f, 0xff, 0xff, 0xff], "2147483647")?;
        world.broker()?.says(&["2147483647", "socket.request.max.bytes = 104857600"])
    }),
    case("a frame too short for a header ends its connection", |world| {
        closed(world, &[0, 0, 0, 2, 0, 3], "not Kafka's protocol")
    }),
    case("a request that claims 2^31-1 elements ends its connection", |world| {
        closed(world, &framed(3, 1, &[0x7f, 0xff, 0xff, 0xff]), "Metadata")
    }),
    case("a request that claims 2^32-2 elements in a varint ends its connection", |world| {
        closed(world, &framed(3, 9, &[0, 0xff, 0xff, 0xff, 0xff, 0x0f]), "Metadata")
    }),
    case("a string longer than its frame ends its connection", |world| {
        closed(world, &framed(3, 1, &[0, 0, 0, 1, 0x7f, 0xff, b'x']), "Metadata")
    }),
    case("bytes behind a request are ignored, as on Kafka", bytes_behind),
    case("an unknown API ends its connection", |world| closed(world, &framed(99, 0, &[]), "99")),
    case("an API of controllers ends its connection", |world| closed(world, &framed(52, 0, &[]), "52")),
    case("an unknown version of an API ends its connection", |world| closed(world, &framed(3, 99, &[]), "99")),
    case("a negative version ends its connection", |world| closed(world, &framed(3, -1, &[]), "-1")),
    case("ApiVersions of an unknown version is answered with 35 and the list", api_versions),
    case("HTTP at the port is named", |world| closed(world, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP")),
    case("TLS at the port is named", |world| closed(world, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS")),
    case("SSH at the port is named", |world| closed(world, b"SSH-2.0-OpenSSH_9.9\r\n", "SSH")),
    case("a truncated frame is forgotten with its connection", truncated),
    case("a thousand bad frames move no memory, and the log has a few lines of them", many),
    case("four hundred claims of 100 MiB move no memory", claims),
];

/// A request frame with header v1, or v2 where `version` of `api` has that; the body follows as it is.
pub fn framed(api: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut frame = [api.to_be_bytes(), version.to_be_bytes()].concat();
    frame.extend(7i32.to_be_bytes());
    frame.extend([0, 1, b'h']);
    frame.extend(body);
    let mut whole = (frame.len() as i32).to_be_bytes().to_vec();
    whole.extend(frame);
    whole
}

/// Sends `bytes`; the connection is ended without an answer, and the log says of that peer what it was.
fn closed(world: &mut World, bytes: &[u8], says: &str) -> Outcome {
    let mut connection = world.connect()?;
    let peer = connection.local_address()?.to_string();
    connection.stream().write_all(bytes)?;
    ends(connection.stream())?;
    world.broker()?.says(&["connection closed", says, &format!("peer={peer}")])
}

/// The peer ends the connection, and has sent nothing.
pub fn ends(stream: &mut TcpStream) -> Outcome {
    stream.set_read_timeout(Some(PATIENCE))?;
    match stream.read(&mut [0; 64]) {
        Ok(0) => Ok(()),
        Ok(bytes) => fail(format!("answered with {bytes} bytes")),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(()),
        Err(error) => fail(format!("the connection was not ended: {error}")),
    }
}

fn api_versions(world: &mut World) -> Outcome {
    for version in [6i16, 99, i16::MAX] {
        let mut connection = world.connect()?;
        // Header v2: tagged fields behind the client's name.
        connection.stream().write_all(&framed(18, version, &[0, 1, 1, 0]))?;
        let frame = connection.receive()?;
        let (correlation, reply): (i32, ApiVersionsResponse<'_>) =
            decode_reply(&API_VERSIONS, 0, frame.bytes()).map_err(|error| format!("{error:?}"))?;
        must(correlation == 7 && reply.error_code == ErrorCode::UnsupportedVersion, || format!("{reply:?}"))?;
        let own = reply.api_keys.iter().find(|api| api.api_key == API_VERSIONS.key);
        must(own.as_ref().is_some_and(|own| own.max_version == API_VERSIONS.versions.1), || {
            format!("not in the list: {own:?}")
        })?;
        // The connection is as good as new: clients go on with a version of the list.
        connection.stream().write_all(&framed(18, 0, &[]))?;
        let frame = connection.receive()?;
        must(frame.bytes().len() > 6, || "no second answer".into())?;
    }
    Ok(())
}

/// librdkafka sends such requests.
fn bytes_behind(world: &mut World) -> Outcome {
    let mut connection = world.connect()?;
    for _ in 0..2 {
        connection.stream().write_all(&framed(3, 1, &[0, 0, 0, 0, 1, 2, 3]))?;
        connection.receive()?;
    }
    Ok(())
}

fn truncated(world: &mut World) -> Outcome {
    let whole = framed(3, 1, &[0, 0, 0, 0]);
    for cut in 1..whole.len() {
        let mut connection = world.connect()?;
        connection.stream().write_all(&whole[..cut])?;
        connection.stream().shutdown(Shutdown::Write)?;
        ends(connection.stream())?;
    }
    Ok(())
}

/// What many connections may cost for good: nothing. This is the room of pools and allocator, which keep what they once had.
const MEMORY_MAX: u64 = 16 << 20;
/// A frame under way has a block of 16 times what came of it.
const CLAIM_BLOCK_BYTES: u64 = 32 << 10;

fn grew(world: &mut World, before: u64) -> Outcome {
    let after = world.broker()?.resident()?;
    must(after <= before + MEMORY_MAX, || format!("resident memory went from {} to {} KiB", before >> 10, after >> 10))
}

fn many(world: &mut World) -> Outcome {
    let bad: [&[u8]; 4] = [&[0xff; 4], &[0x7f, 0xff, 0xff, 0xff], b"GET / HTTP/1.1\r\n\r\n", &framed(99, 0, &[])];
    let before = world.broker()?.resident()?;
    let lines = world.broker()?.errors().lines().count();
    for bytes in bad.iter().cycle().take(1000) {
        let mut connection = world.connect()?;
        connection.stream().write_all(bytes)?;
        ends(connection.stream())?;
    }
    grew(world, before)?;
    let more = world.broker()?.errors().lines().count() - lines;
    must(more < 500, || format!("{more} lines in the log for 1000 bad connections"))
}

fn claims(world: &mut World) -> Outcome {
    let before = world.broker()?.resident()?;
    let mut open: Vec<Connection> = Vec::new();
    for _ in 0..400 {
        let mut connection = world.connect()?;
        let claim = [&104_857_600i32.to_be_bytes()[..], &framed(0, 9, &[0; 2000])[4..]].concat();
        connection.stream().write_all(&claim)?;
        open.push(connection);
    }
    world.goes_on()?;
    grew(world, before + open.len() as u64 * CLAIM_BLOCK_BYTES)?;
    // None was ended for its claim: each may still come.
    for connection in &mut open {
        connection.stream().set_read_timeout(Some(Duration::from_millis(1)))?;
        match connection.stream().read(&mut [0; 1]) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            other => return Err(Stop::Fail(format!("a claim within the limit was ended: {other:?}"))),
        }
    }
    Ok(())
}
