//! Signals: what stops a broker, and what does not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ringmain_torture::connection::Connection;
use rustix::process::Signal;

use crate::ask::{create_topic, delete_topic, fetch_bytes, produce_one, topics};
use crate::environment::verified;
use crate::process::PATIENCE;
use crate::suite::{Case, Outcome, case, must};
use crate::world::World;

pub const CASES: &[Case] = &[
    case("a stopped process goes on where it was", stopped),
    case("SIGTERM under load is a clean stop, and everything acknowledged is there", terminated),
    case("SIGTERM again while it stops ends it at once", terminated_twice),
    case("a kill in the middle of deletions leaves whole topics or none", deleting),
    case("SIGHUP, SIGPIPE and SIGUSR1 are survived or end it, never half", other_signals),
];

fn stopped(world: &mut World) -> Outcome {
    let mut connection = world.connect()?;
    world.broker()?.signal(Signal::STOP)?;
    connection.send(
        &ringmain_wire::METADATA,
        9,
        &ringmain_wire::MetadataRequest { topics: None, ..Default::default() },
    )?;
    std::thread::sleep(Duration::from_secs(2));
    world.broker()?.signal(Signal::CONT)?;
    connection.receive()?;
    Ok(())
}

fn terminated(world: &mut World) -> Outcome {
    let dir = world.place("data");
    let broker = world.launch(&dir).serve()?;
    let mut connection = Connection::open(&broker.address)?;
    create_topic(&mut connection, "loaded", 4)?;
    let address = broker.address.clone();
    let (stop, acked) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 4]);
    std::thread::scope(|scope| -> Outcome {
        for partition in 0..4 {
            let (address, acked, stop) = (&address, &acked[partition as usize], &stop);
            scope.spawn(move || {
                let Ok(mut connection) = Connection::open(address) else { return };
                while !stop.load(Ordering::Relaxed) {
                    // Refused or cut off by the stop.
                    let Ok(offset) = produce_one(&mut connection, "loaded", partition, &[b'x'; 5000]) else { return };
                    acked.store(offset as u64 + 1, Ordering::Relaxed);
                }
            });
        }
        while acked.iter().any(|count| count.load(Ordering::Relaxed) < 50) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let stopped = broker.stop();
        stop.store(true, Ordering::Relaxed);
        stopped
    })?;
    verified(world, &dir)?;
    let broker = world.launch(&dir).serve()?;
    let mut connection = Connection::open(&broker.address)?;
    for (partition, count) in acked.iter().enumerate() {
        let last = count.load(Ordering::Relaxed) as i64 - 1;
        must(!fetch_bytes(&mut connection, "loaded", partition as i32, last)?.is_empty(), || {
            format!("loaded-{partition}: offset {last} was acknowledged and is gone")
        })?;
    }
    broker.stop()
}

fn terminated_twice(world: &mut World) -> Outcome {
    let dir = world.place("data");
    let broker = world.launch(&dir).serve()?;
    broker.signal(Signal::TERM)?;
    broker.signal(Signal::TERM)?;
    broker.gone()?;
    let broker = world.launch(&dir).serve()?;
    broker.stop()
}

fn deleting(world: &mut World) -> Outcome {
    let dir = world.place("data");
    for life in 0..5 {
        let broker = world.launch(&dir).serve()?;
        let mut connection = Connection::open(&broker.address)?;
        let names: Vec<String> = (0..20).map(|number| format!("going.{number}")).collect();
        for name in &names {
            create_topic(&mut connection, name, 3)?;
            // Enough for a file and for what is only in the journal.
            for (partition, bytes) in [(0, 100_000), (1, 3000)] {
                let offset = produce_one(&mut connection, name, partition, &vec![b'x'; bytes])?;
                must(offset == 0, || format!("life {life}: {name}-{partition} was made anew and begins at {offset}"))?;
            }
        }
        let killed_at = 4 * life + 1;
        for name in &names[..killed_at] {
            delete_topic(&mut connection, name)?.ok(name)?;
        }
        broker.kill();
        let broker = world.launch(&dir).serve()?;
        let mut connection = Connection::open(&broker.address)?;
        let left = topics(&mut connection)?;
        for (at, name) in names.iter().enumerate() {
            must(left.contains(name) != (at < killed_at), || {
                format!("life {life}: {name} of {killed_at} deleted ones")
            })?;
        }
        for name in &names[killed_at..] {
            must(fetch_bytes(&mut connection, name, 0, 0)?.len() > 100_000, || format!("{name} lost its record"))?;
            delete_topic(&mut connection, name)?.ok(name)?;
        }
        broker.stop()?;
        verified(world, &dir)?;
    }
    // What a kill or a stop cut off the next start goes on with.
    let broker = world.launch(&dir).serve()?;
    let began = Instant::now();
    loop {
        let left = std::fs::read_dir(&dir)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let left: Vec<String> = left.filter(|name| name.contains("going")).collect();
        if left.is_empty() {
            return broker.stop();
        }
        must(began.elapsed() < PATIENCE, || format!("directories of deleted topics are left: {left:?}"))?;
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn other_signals(world: &mut World) -> Outcome {
    for signal in [Signal::PIPE, Signal::WINCH, Signal::CHILD] {
        world.broker()?.signal(signal)?;
        world.goes_on()?;
    }
    let dir = world.place("data");
    for signal in [Signal::HUP, Signal::USR1] {
        let broker = world.launch(&dir).serve()?;
        broker.signal(signal)?;
        broker.kill();
    }
    let broker = world.launch(&dir).serve()?;
    broker.stop()?;
    verified(world, &dir)
}
