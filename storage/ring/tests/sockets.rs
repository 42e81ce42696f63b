//! The socket half over loopback.
#![allow(clippy::unit_arg)]

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ringmain_buffer::{Buf, Pool};
use ringmain_ring::{Ended, Event, Received, Ring, RingConfig, SocketEvent, Want};
use ringmain_types::{Account, ConnectionId, Limits, ShardId};

fn ring(buffers: u16) -> (Ring, SocketAddr) {
    let mut config = RingConfig::new(ShardId(3), 8);
    config.receive_buffers = buffers;
    config.receive_buffer_bytes = 4096;
    let mut ring = Ring::new(&config).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    assert_eq!(ring.add_listener(listener.into()), 0);
    (ring, address)
}

enum Got {
    Accepted(ConnectionId),
    Bytes(ConnectionId, Vec<u8>),
    Direct(Vec<u8>),
    Eof(ConnectionId),
    Sent(ConnectionId, usize),
    Closed(ConnectionId, Ended),
}

/// One turn: what came, with accepted sockets adopted.
fn turn(ring: &mut Ring) -> Vec<Got> {
    ring.wait(Duration::from_millis(50));
    let (mut got, mut sockets) = (Vec::new(), Vec::new());
    ring.poll(&mut |event| match event {
        Event::Socket(SocketEvent::Accepted { listener, socket }) => {
            assert_eq!(listener, 0);
            sockets.push(socket);
        }
        Event::Socket(SocketEvent::Received { connection, received: Received::Lent(bytes) }) => {
            got.push(Got::Bytes(connection, bytes.to_vec()))
        }
        Event::Socket(SocketEvent::Received { connection, received: Received::Given(block) }) => {
            got.push(Got::Bytes(connection, block.to_vec()))
        }
        Event::Socket(SocketEvent::Received { received: Received::Direct(into), .. }) => {
            got.push(Got::Direct(into.to_vec()))
        }
        Event::Socket(SocketEvent::Eof { connection }) => got.push(Got::Eof(connection)),
        Event::Socket(SocketEvent::Sent { connection, bytes }) => got.push(Got::Sent(connection, bytes)),
        Event::Socket(SocketEvent::Closed { connection, why }) => got.push(Got::Closed(connection, why)),
        Event::Socket(SocketEvent::AcceptFailed { errno, .. }) => panic!("accept: {errno}"),
        Event::Disk(done) => panic!("{done:?}"),
    });
    for socket in sockets {
        let id = ring.adopt(socket);
        got.push(Got::Accepted(id));
    }
    got
}

fn until<T>(ring: &mut Ring, mut found: impl FnMut(&mut Ring, Got) -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        let mut result = None;
        for got in turn(ring) {
            let found = found(ring, got);
            result = result.or(found);
        }
        if let Some(result) = result {
            return result;
        }
    }
    panic!("it never came");
}

fn connect(ring: &mut Ring, address: SocketAddr) -> (TcpStream, ConnectionId) {
    let client = TcpStream::connect(address).unwrap();
    let id = until(ring, |_, got| if let Got::Accepted(id) = got { Some(id) } else { None });
    (client, id)
}

#[test]
fn echo_in_parts() {
    let (mut ring, address) = ring(4);
    let (mut client, id) = connect(&mut ring, address);
    assert_eq!(id.shard, ShardId(3));
    let sent: Vec<u8> = (0..3_000_000u32).map(|at| (at * 7 + at / 251) as u8).collect();
    let (copy, mut reader) = (sent.clone(), client.try_clone().unwrap());
    let writer = std::thread::spawn(move || copy.chunks(1777).for_each(|part| client.write_all(part).unwrap()));
    let reader = std::thread::spawn(move || {
        let mut all = vec![0; 3_000_000];
        reader.read_exact(&mut all).unwrap();
        all
    });
    let (mut waiting, mut sending, mut total) = (Vec::new(), false, 0usize);
    until(&mut ring, |ring, got| {
        match got {
            // Each byte its own part now and then: more parts than one call takes.
            Got::Bytes(from, bytes) => {
                assert_eq!(from, id);
                let step = if waiting.len() % 5 == 0 { 1 } else { 4096 };
                waiting.extend(bytes.chunks(step).map(Buf::copy_of));
            }
            Got::Sent(_, bytes) => (sending, total) = (false, total + bytes),
            _ => panic!(),
        }
        if !sending && !waiting.is_empty() {
            sending = true;
            ring.send(id, std::mem::take(&mut waiting));
        }
        (total == 3_000_000).then_some(())
    });
    writer.join().unwrap();
    assert!(reader.join().unwrap() == sent);
    assert_eq!(ring.socket_counters().sent_bytes, 3_000_000);
    until(&mut ring, |ring, got| match got {
        Got::Eof(who) => {
            ring.close(who);
            None
        }
        Got::Closed(who, why) => Some(assert_eq!((who, why), (id, Ended::Asked))),
        _ => None,
    });
    assert_eq!(ring.connections(), 0);
}

#[test]
fn a_body_goes_straight_into_its_block() {
    let (mut ring, address) = ring(4);
    let mut pool = Pool::new(ShardId(0), &Limits::production(256 << 20));
    let (mut client, id) = connect(&mut ring, address);
    client.write_all(b"head").unwrap();
    until(&mut ring, |ring, got| match got {
        Got::Bytes(_, bytes) => {
            assert_eq!(bytes, b"head");
            let into = pool.take(Account::Receive, 1 << 20).unwrap();
            ring.receive(id, Want::Direct { into, bytes: 1 << 20 });
            Some(())
        }
        _ => None,
    });
    let body: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 3) as u8).collect();
    let mut both = body.clone();
    both.extend_from_slice(b"next");
    let mut writer = client.try_clone().unwrap();
    let writer = std::thread::spawn(move || writer.write_all(&both).unwrap());
    until(&mut ring, |ring, got| match got {
        Got::Direct(bytes) => {
            assert!(bytes == body, "the whole body at once");
            ring.receive(id, Want::Any);
            Some(())
        }
        Got::Bytes(..) => panic!("the body was lent"),
        _ => None,
    });
    until(&mut ring, |_, got| if let Got::Bytes(_, bytes) = got { Some(assert_eq!(bytes, b"next")) } else { None });
    writer.join().unwrap();
    // The peer ends in the middle of a body: what came, then the end.
    let into = pool.take(Account::Receive, 4096).unwrap();
    ring.receive(id, Want::Direct { into, bytes: 4096 });
    client.write_all(b"half").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let mut seen = Vec::new();
    until(&mut ring, |ring, got| match got {
        Got::Direct(bytes) | Got::Bytes(_, bytes) => {
            seen.extend_from_slice(&bytes);
            ring.receive(id, Want::Any);
            None
        }
        Got::Eof(who) => Some(assert_eq!(who, id)),
        _ => None,
    });
    assert_eq!(seen, b"half");
}

#[test]
fn a_peer_that_sends_no_more_still_reads() {
    let (mut ring, address) = ring(4);
    let (mut client, id) = connect(&mut ring, address);
    client.write_all(b"last words").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let mut heard = Vec::new();
    until(&mut ring, |_, got| match got {
        Got::Bytes(_, bytes) => {
            heard.extend(bytes);
            None
        }
        Got::Eof(who) => Some(assert_eq!(who, id)),
        _ => panic!(),
    });
    assert_eq!(heard, b"last words");
    // Told once, whatever is wanted; sends go on until it is closed from here.
    ring.receive(id, Want::Any);
    for _ in 0..3 {
        assert!(turn(&mut ring).is_empty());
    }
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        client.read_to_end(&mut all).unwrap();
        all
    });
    for part in [1, 2] {
        ring.send(id, vec![Buf::copy_of(&vec![part; 1 << 20])]);
        until(&mut ring, |_, got| if let Got::Sent(..) = got { Some(()) } else { panic!() });
    }
    ring.close(id);
    until(
        &mut ring,
        |_, got| if let Got::Closed(_, why) = got { Some(assert_eq!(why, Ended::Asked)) } else { panic!() },
    );
    let all = reader.join().unwrap();
    assert!(all.len() == 2 << 20 && all[..1 << 20].iter().all(|byte| *byte == 1), "{}", all.len());
}

#[test]
fn a_want_that_changes_under_way_loses_and_reorders_nothing() {
    let (mut ring, address) = ring(4);
    let mut pool = Pool::new(ShardId(0), &Limits::production(256 << 20));
    let (mut client, id) = connect(&mut ring, address);
    turn(&mut ring);
    // A lent receive is armed by now; mute, then bytes come.
    ring.receive(id, Want::Nothing);
    client.write_all(b"abcdef").unwrap();
    for _ in 0..5 {
        assert!(turn(&mut ring).is_empty(), "muted");
    }
    let into = pool.take(Account::Receive, 512).unwrap();
    ring.receive(id, Want::Direct { into, bytes: 4 });
    assert!(ring.ready());
    until(&mut ring, |_, got| if let Got::Direct(bytes) = got { Some(assert_eq!(bytes, b"abcd")) } else { None });
    client.write_all(b"ghi").unwrap();
    for _ in 0..5 {
        assert!(turn(&mut ring).is_empty(), "nothing is wanted after a direct receive");
    }
    ring.receive(id, Want::Any);
    let mut rest = Vec::new();
    until(&mut ring, |_, got| {
        if let Got::Bytes(_, bytes) = got {
            rest.extend_from_slice(&bytes);
        }
        (rest == b"efghi").then_some(())
    });
}

#[test]
fn closed_comes_once_and_last() {
    let (mut ring, address) = ring(4);
    let (mut client, first) = connect(&mut ring, address);
    // A send that can't finish, as nobody reads it, and a receive that waits.
    let block = Buf::copy_of(&vec![1; 1 << 20]);
    ring.send(first, vec![block; 64]);
    for _ in 0..5 {
        turn(&mut ring);
    }
    ring.close(first);
    ring.close(first);
    ring.receive(first, Want::Any);
    ring.send(first, vec![Buf::copy_of(b"too late")]);
    until(&mut ring, |_, got| match got {
        Got::Closed(who, why) => Some(assert_eq!((who, why), (first, Ended::Asked))),
        _ => panic!("something came of a closing connection"),
    });
    let mut all = Vec::new();
    let _ = client.read_to_end(&mut all);
    assert!(all.len() < 64 << 20 && all.iter().all(|byte| *byte == 1));
    // Its slot lives again; the old name reaches nothing.
    let (mut client, second) = connect(&mut ring, address);
    assert_eq!((second.slot, second.generation), (first.slot, first.generation + 1));
    ring.close(first);
    ring.send(first, vec![Buf::copy_of(b"of an earlier life")]);
    ring.send(second, vec![Buf::copy_of(b"x")]);
    until(&mut ring, |_, got| if let Got::Sent(who, 1) = got { Some(assert_eq!(who, second)) } else { None });
    let mut byte = [0];
    client.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"x");
}

#[test]
fn an_abrupt_end_is_an_error_and_a_graceful_one_is_not() {
    let (mut ring, address) = ring(4);
    let (client, abrupt) = connect(&mut ring, address);
    ring.send(abrupt, vec![Buf::copy_of(b"unread")]);
    until(&mut ring, |_, got| if let Got::Sent(..) = got { Some(()) } else { None });
    // Closing with unread bytes makes the kernel send a reset.
    drop(client);
    let why = until(&mut ring, |_, got| if let Got::Closed(_, why) = got { Some(why) } else { None });
    assert_eq!(why, Ended::Errno(104));
    let (mut client, graceful) = connect(&mut ring, address);
    client.write_all(b"bye").unwrap();
    drop(client);
    let mut bytes = Vec::new();
    let who = until(&mut ring, |_, got| match got {
        Got::Bytes(_, part) => {
            bytes.extend(part);
            None
        }
        Got::Eof(who) => Some(who),
        _ => None,
    });
    assert_eq!((bytes, who), (b"bye".to_vec(), graceful));
}

#[test]
fn thousands_of_connections_share_four_buffers() {
    const COUNT: usize = 2000;
    let (mut ring, address) = ring(4);
    let clients = std::thread::spawn(move || {
        let mut clients: Vec<TcpStream> = (0..COUNT).map(|_| TcpStream::connect(address).unwrap()).collect();
        for round in 0..3u8 {
            for (at, client) in clients.iter_mut().enumerate() {
                client.write_all(&[at as u8, round, (at >> 8) as u8]).unwrap();
            }
            for (at, client) in clients.iter_mut().enumerate() {
                let mut reply = [0; 3];
                client.read_exact(&mut reply).unwrap();
                assert_eq!(reply, [at as u8, round, (at >> 8) as u8]);
            }
        }
    });
    let (mut closed, mut sending, mut waiting) = (0, HashMap::new(), HashMap::<ConnectionId, Vec<u8>>::new());
    until(&mut ring, |ring, got| {
        let id = match got {
            Got::Accepted(id) => id,
            Got::Bytes(id, bytes) => {
                waiting.entry(id).or_default().extend(bytes);
                id
            }
            Got::Sent(id, _) => {
                sending.remove(&id);
                id
            }
            Got::Eof(id) => {
                ring.close(id);
                id
            }
            Got::Closed(id, _) => {
                closed += 1;
                id
            }
            Got::Direct(..) => panic!(),
        };
        if !sending.contains_key(&id)
            && let Some(bytes) = waiting.remove(&id)
        {
            sending.insert(id, ());
            ring.send(id, vec![Buf::copy_of(&bytes)]);
        }
        (closed == COUNT).then_some(())
    });
    clients.join().unwrap();
    assert_eq!(ring.connections(), 0);
    assert!(ring.socket_counters().starved > 0, "the test means to run out of buffers");
}

#[test]
fn a_sleep_ends_with_a_completion_the_bell_or_its_time() {
    const LONG: Duration = Duration::from_secs(60);
    let (mut ring, address) = ring(4);
    turn(&mut ring);
    ring.submit();
    let client = TcpStream::connect(address).unwrap();
    ring.sleep(LONG);
    until(&mut ring, |_, got| if let Got::Accepted(_) = got { Some(()) } else { None });
    let start = ringmain_ring::monotonic_ns();
    let took = || ringmain_ring::monotonic_ns() - start;
    let mut bell = std::fs::File::from(ring.bell().unwrap());
    // Rung before, during, and again after it was heard.
    for _ in 0..3 {
        bell.write_all(&1u64.to_ne_bytes()).unwrap();
        ring.sleep(LONG);
        assert_eq!(ring.poll(&mut |event| panic!("{event:?}")), 0);
    }
    let ringer = std::thread::spawn(move || bell.write_all(&1u64.to_ne_bytes()).unwrap());
    ring.sleep(LONG);
    ringer.join().unwrap();
    ring.poll(&mut |event| panic!("{event:?}"));
    assert!(took() < LONG.as_nanos() as u64);
    // What ended is not told twice: these end by their time.
    while took() < 20_000_000 {
        ring.sleep(Duration::from_millis(20));
    }
    drop(client);
}
