//! The other client: writes a record, reads it back, and so on, while next to it somebody misbehaves.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringmain_torture::connection::Connection;

use crate::ask::{create_topic, fetch_bytes, produce_one};
use crate::suite::{Outcome, fail};

const TOPIC: &str = "beside";
/// Rounds that must be made after whatever happened, and how long that may take: a bound for a hang, not a promise of speed.
const ROUNDS: u64 = 3;
const ROUNDS_MAX: Duration = Duration::from_secs(10);

pub struct Neighbour {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    rounds: AtomicU64,
    /// Since it was last asked for.
    slowest_us: AtomicU64,
    failed: Mutex<Option<String>>,
}

impl Neighbour {
    pub fn start(address: &str) -> io::Result<Neighbour> {
        let mut connection = Connection::open(address)?;
        create_topic(&mut connection, TOPIC, 2)?;
        let shared = Arc::new(Shared::default());
        let (theirs, address) = (shared.clone(), address.to_string());
        let thread = std::thread::spawn(move || {
            if let Err(error) = rounds(&theirs, connection, &address)
                && let Ok(mut failed) = theirs.failed.lock()
            {
                *failed = Some(error.to_string());
            }
        });
        Ok(Neighbour { shared, thread: Some(thread) })
    }

    /// The longest that a round took since this was last asked.
    pub fn slowest(&self) -> Duration {
        Duration::from_micros(self.shared.slowest_us.swap(0, Ordering::Relaxed))
    }

    /// Waits until some more rounds were made.
    pub fn goes_on(&self) -> Outcome {
        let (from, began) = (self.shared.rounds.load(Ordering::Relaxed), Instant::now());
        while self.shared.rounds.load(Ordering::Relaxed) < from + ROUNDS {
            if let Some(why) = self.shared.failed.lock().ok().and_then(|failed| failed.clone()) {
                return fail(format!("the client beside it failed: {why}"));
            }
            if began.elapsed() > ROUNDS_MAX {
                return fail(format!("the client beside it made no {ROUNDS} rounds in {ROUNDS_MAX:?}"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It catches its own errors; a panic was printed.
            let _ = thread.join();
        }
    }
}

/// Over two connections, which are on different shards.
fn rounds(shared: &Shared, mut writes: Connection, address: &str) -> io::Result<()> {
    let mut reads = Connection::open(address)?;
    while !shared.stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let round = shared.rounds.load(Ordering::Relaxed);
        let partition = (round % 2) as i32;
        let value = format!("round {round}");
        let offset = produce_one(&mut writes, TOPIC, partition, value.as_bytes())?;
        let bytes = fetch_bytes(&mut reads, TOPIC, partition, offset)?;
        if !bytes.windows(value.len()).any(|window| window == value.as_bytes()) {
            return Err(io::Error::other(format!("{TOPIC}-{partition}: {value} is not at offset {offset}")));
        }
        shared.rounds.fetch_add(1, Ordering::Relaxed);
        shared.slowest_us.fetch_max(began.elapsed().as_micros() as u64, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
