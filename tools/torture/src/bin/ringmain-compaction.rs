//! Compaction under load, on a real process: `cargo xtask compaction`.
//!
//! A keyed topic of gigabytes, nine tenths of it overwritten, is filled while its compaction is held back. Then a paced producer writes
//! into another topic, first alone, then while the first topic is compacted. In the middle the broker is killed. Each key's last
//! value must be right at once after that, and again when all is compacted; the log must have shrunk. Times are told, not judged.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;

use ringmain_torture::broker::{Broker, create_with, new_directory};
use ringmain_torture::connection::Connection;
use ringmain_torture::filler::Filler;
use ringmain_torture::pacer::{Pacer, Phase, WINDOW};
use ringmain_torture::producer::{self, Content, init_producer_id};
use ringmain_torture::verify::{each_record, number_of, read_partition};
use ringmain_types::ErrorCode;
use ringmain_wire::incremental_alter_configs::{AlterConfigsResource, AlterableConfig};
use ringmain_wire::{INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};

const KEYED: &str = "keyed";
const PACED: &str = "paced";
const VALUE_BYTES: usize = 1000;
const BATCH_RECORDS: u64 = 16;
/// Of each key, on average.
const WRITES: u64 = 10;
/// A segment of the keyed topic: as many a partition, within these.
const SEGMENTS: u64 = 12;
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=64 << 20;
/// What the paced topic keeps a partition: its files are used again, as in a broker that has run for a while.
const PACED_CONFIGS: [(&str, &str); 3] =
    [("segment.bytes", "33554432"), ("retention.bytes", "134217728"), ("cleanup.policy", "delete")];
const PACED_PARTITIONS: usize = 4;
/// All is compacted within so long, or the run has failed.
const COMPACTED_MAX: Duration = Duration::from_secs(900);
const LOOK: Duration = Duration::from_millis(50);
const RESOURCE_TOPIC: i8 = 2;
const READ: &str = "ringmain_compaction_read_bytes_total";
const WRITTEN: &str = "ringmain_compaction_written_bytes_total";

#[derive(Parser)]
struct Options {
    /// The broker's program.
    #[arg(long, default_value = "target/release/ringmain")]
    binary: PathBuf,
    /// A new directory for the broker's data and log; the data is removed at the end.
    #[arg(long, default_value = "target/compaction")]
    work: PathBuf,
    /// Size of the keyed topic before.
    #[arg(long, default_value_t = 5.0)]
    gigabytes: f64,
    #[arg(long, default_value_t = 8)]
    partitions: usize,
    /// Of the other topic's producer, MB/s; 0: none.
    #[arg(long, default_value_t = 30.0)]
    rate: f64,
    /// How long that producer is measured without compaction, before and after.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The broker is killed when this part of what is to be read is read (the topic twice: keys, then copies).
    #[arg(long, default_value_t = 0.5)]
    kill_at: f64,
}

/// What the paced producer is measured by.
const PHASES: [&str; 5] = ["settling", "before", "while it compacts", "while it compacts, after the kill", "after"];
const SETTLING: usize = 0;
const BEFORE: usize = 1;
const COMPACTS: usize = 2;
const COMPACTS_AGAIN: usize = 3;
const AFTER: usize = 4;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => {
            println!("1 passed, 0 failed");
            ExitCode::SUCCESS
        }
        Ok(false) => {
            println!("0 passed, 1 failed");
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("compaction: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<bool, String> {
    new_directory(&options.work)?;
    let mut bench = Bench::new(options)?;
    bench.fill()?;
    let mut phases = bench.until_the_kill()?;
    let killed = format!("killed with {}", bench.on_disk());
    let took = bench.broker.start()?;
    println!("{killed}; serves {} ms later", took.as_millis());
    let mut passed = bench.check("after the kill")?;
    phases.extend(bench.until_compacted()?);
    println!(
        "compacted: {}, of which {} is no more than one segment a partition",
        bench.on_disk(),
        bench.allowed_text()
    );
    bench.broker.kill();
    bench.broker.start()?;
    passed &= bench.check("compacted")?;
    bench.tell(&phases);
    bench.broker.kill();
    std::fs::remove_dir_all(options.work.join("data")).map_err(|e| format!("data: {e}"))?;
    Ok(passed)
}

type Phases = Vec<(usize, Phase)>;

struct Bench<'a> {
    options: &'a Options,
    broker: Broker,
    /// Of a partition.
    keys: u64,
    segment_bytes: u64,
    /// Records of each partition.
    records: u64,
    filled_bytes: u64,
    /// Each life's compaction: bytes read and written, and the time that took.
    compacted: Vec<(u64, u64, Duration)>,
    resident_before: u64,
    resident_most: u64,
}

impl<'a> Bench<'a> {
    fn new(options: &'a Options) -> Result<Bench<'a>, String> {
        let mut broker = Broker::new(&options.binary, &options.work, 2)?;
        broker.start()?;
        let each = (options.gigabytes * 1e9) as u64 / options.partitions as u64;
        let segment_bytes = (each / SEGMENTS).clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end());
        // Nothing is as dirty as this.
        let (segment, ratio) = (segment_bytes.to_string(), "1.0");
        let configs =
            [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", ratio), ("segment.bytes", &*segment)];
        create_with(&broker.address, KEYED, options.partitions, &configs)?;
        create_with(&broker.address, PACED, PACED_PARTITIONS, &PACED_CONFIGS)?;
        Ok(Bench {
            options,
            broker,
            keys: (each / VALUE_BYTES as u64 / WRITES).max(1),
            segment_bytes,
            records: 0,
            filled_bytes: 0,
            compacted: Vec::new(),
            resident_before: 0,
            resident_most: 0,
        })
    }

    fn fill(&mut self) -> Result<(), String> {
        let failed = |e: io::Error| format!("fill: {e}");
        let mut connection = Connection::open(&self.broker.address).map_err(failed)?;
        let producer_id = init_producer_id(&mut connection).map_err(failed)?;
        let (keys, partitions) = (self.keys, self.options.partitions);
        let record = |partition, number| Content {
            at: producer::now(),
            key: Some(key(partition, number, keys)),
            value: value(partition, number),
        };
        let mut filler = Filler::new(KEYED, producer_id, partitions, BATCH_RECORDS, record);
        let began = Instant::now();
        filler.fill(&mut connection, keys * WRITES).map_err(failed)?;
        filler.finish(&mut connection).map_err(failed)?;
        self.records = filler.acked();
        self.filled_bytes = bytes_of(&self.options.work)?;
        let took = began.elapsed().as_secs_f64();
        println!(
            "filled: {} in {took:.0} s, {partitions} partitions of {} records and {keys} keys",
            self.on_disk(),
            self.records
        );
        Ok(())
    }

    /// The other topic's producer alone, then beside compaction; ends with a kill.
    fn until_the_kill(&mut self) -> Result<Phases, String> {
        let seconds = Duration::from_secs(self.options.seconds);
        let address = self.broker.address.clone();
        let kill_at = (2.0 * self.filled_bytes as f64 * self.options.kill_at) as u64;
        self.paced(&address, |bench, phase, stop| {
            std::thread::sleep(seconds.min(WINDOW / 2));
            phase.store(BEFORE, Ordering::Relaxed);
            std::thread::sleep(seconds);
            bench.resident_before = bench.broker.resident()?;
            set(&address, KEYED, "min.cleanable.dirty.ratio", "0.01")?;
            // It may take until the next look.
            bench.watch(|read, _| read > 0)?;
            phase.store(COMPACTS, Ordering::Relaxed);
            bench.watch(|read, _| read >= kill_at)?;
            stop.store(true, Ordering::Relaxed);
            bench.broker.kill();
            Ok(())
        })
    }

    fn until_compacted(&mut self) -> Result<Phases, String> {
        let (address, allowed) = (self.broker.address.clone(), self.allowed_bytes());
        let seconds = Duration::from_secs(self.options.seconds);
        self.paced(&address, |bench, phase, stop| {
            std::thread::sleep(seconds.min(WINDOW / 2));
            // What is left of it may wait for the next look; it may also have ended meanwhile.
            let before = figure(&bench.broker.metrics()?, READ);
            bench.watch(|read, bytes| read > before || bytes <= allowed)?;
            phase.store(COMPACTS_AGAIN, Ordering::Relaxed);
            bench.watch(|_, bytes| bytes <= allowed)?;
            phase.store(SETTLING, Ordering::Relaxed);
            std::thread::sleep(seconds.min(WINDOW / 2));
            phase.store(AFTER, Ordering::Relaxed);
            std::thread::sleep(seconds);
            stop.store(true, Ordering::Relaxed);
            Ok(())
        })
    }

    /// Does this beside the paced producer.
    fn paced(
        &mut self,
        address: &str,
        beside: impl FnOnce(&mut Self, &AtomicUsize, &AtomicBool) -> Result<(), String>,
    ) -> Result<Phases, String> {
        let (phase, stop) = (AtomicUsize::new(SETTLING), AtomicBool::new(false));
        let pacer = Pacer {
            address,
            topic: PACED,
            partitions: PACED_PARTITIONS,
            bytes_per_second: self.options.rate * 1e6,
            phase: &phase,
            stop: &stop,
        };
        std::thread::scope(|scope| {
            let pacing = scope.spawn(|| pacer.run());
            let done = beside(self, &phase, &stop);
            stop.store(true, Ordering::Relaxed);
            let phases = pacing.join().map_err(|_| "the pacer panicked".to_string())??;
            done.map(|()| phases.into_iter().enumerate().filter_map(|(at, phase)| Some((at, phase?))).collect())
        })
    }

    /// Looks at what compaction has read and how large the topic is, until that will do.
    fn watch(&mut self, done: impl Fn(u64, u64) -> bool) -> Result<(), String> {
        let began = Instant::now();
        let (mut first, mut last) = (None, (Instant::now(), 0, 0));
        loop {
            let page = self.broker.metrics()?;
            let figure = |name| figure(&page, name);
            let (read, written) = (figure(READ), figure(WRITTEN));
            self.resident_most = self.resident_most.max(self.broker.resident()?);
            if read > last.1 {
                last = (Instant::now(), read, written);
                first.get_or_insert(last);
            }
            if done(read, bytes_of(&self.options.work)?) {
                if let Some(first) = first.filter(|first| first.1 < last.1) {
                    self.compacted.push((last.1 - first.1, last.2 - first.2, last.0 - first.0));
                }
                return Ok(());
            }
            if began.elapsed() > COMPACTED_MAX {
                return Err(format!("not compacted within {COMPACTED_MAX:?}: {}", self.on_disk()));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// What may be left: each key's last record, and a segment a partition that is still written to.
    fn allowed_bytes(&self) -> u64 {
        // With the key, the lengths, and a batch's header for every few records.
        let kept = self.keys * (VALUE_BYTES as u64 + 60);
        self.options.partitions as u64 * (kept + self.segment_bytes)
    }

    fn allowed_text(&self) -> String {
        format!("{:.2} GB", (self.options.partitions as u64 * self.segment_bytes) as f64 / 1e9)
    }

    /// Every record that is there is what was written at its offset, and of each key the last one is.
    fn check(&self, when: &str) -> Result<bool, String> {
        let (mut records, mut wrong, mut first) = (0u64, 0u64, None);
        let began = Instant::now();
        for partition in 0..self.options.partitions {
            let mut found: HashMap<Vec<u8>, u64> = HashMap::new();
            let mut before = None;
            let mut bad = |what: String| {
                wrong += 1;
                first.get_or_insert(what);
            };
            let read = read_partition(&self.broker.address, KEYED, partition, |bytes, from| {
                each_record(bytes, |offset, record| {
                    if offset < from {
                        return Ok(());
                    }
                    records += 1;
                    let number = number_of(offset, record.value)?;
                    let right = number == offset as u64
                        && before.is_none_or(|before| before < offset)
                        && record.value == Some(&value(partition, number))
                        && record.key == Some(&key(partition, number, self.keys));
                    if !right {
                        bad(format!("{KEYED}-{partition}: offset {offset} has record {number}, or what nobody wrote"));
                    }
                    before = Some(offset);
                    found.insert(record.key.unwrap_or_default().to_vec(), number);
                    Ok(())
                })
            });
            read.map_err(|e| e.to_string())?;
            let last: HashMap<Vec<u8>, u64> =
                (0..self.records).map(|number| (key(partition, number, self.keys), number)).collect();
            for (key, number) in &last {
                if found.get(key) != Some(number) {
                    let (key, found) = (String::from_utf8_lossy(key), found.get(key));
                    bad(format!("{KEYED}-{partition}: {key} is record {number}, there is {found:?}"));
                }
            }
        }
        let written = self.records * self.options.partitions as u64;
        println!(
            "{when}: {records} of {written} records read in {:.0} s, {wrong} wrong{}",
            began.elapsed().as_secs_f64(),
            first.map_or(String::new(), |first| format!(": {first}"))
        );
        Ok(wrong == 0)
    }

    fn on_disk(&self) -> String {
        format!("{:.2} GB", bytes_of(&self.options.work).unwrap_or_default() as f64 / 1e9)
    }

    fn tell(&self, phases: &Phases) {
        for (read, written, took) in &self.compacted {
            let seconds = took.as_secs_f64().max(0.001);
            let (read, written) = (*read as f64 / 1e6, *written as f64 / 1e6);
            println!(
                "compaction: {read:.0} MB read, {written:.0} MB written in {seconds:.1} s, {:.0} MB/s read",
                read / seconds
            );
        }
        let mib = |bytes: u64| bytes >> 20;
        println!(
            "memory: {} MiB before compaction, {} MiB at most",
            mib(self.resident_before),
            mib(self.resident_most)
        );
        println!("acknowledgements at {} MB/s, 16 KiB batches, each flushed:", self.options.rate);
        let mut sides = [[0u64; 2]; 3];
        for (at, phase) in phases.iter().filter(|(at, _)| *at != SETTLING) {
            let (whole, worst) = (phase.whole(), phase.worst_p99());
            let ms = |us: u64| us as f64 / 1000.0;
            let p99 = whole.value_at_quantile(0.99);
            println!(
                "  {}: {} answers, p50 {:.2} ms, p99 {:.2} ms, worst p99 of {WINDOW:?} {:.2} ms, longest {:.2} ms",
                PHASES[*at],
                whole.len(),
                ms(whole.value_at_quantile(0.5)),
                ms(p99),
                ms(worst),
                ms(whole.max())
            );
            let windows = phase.windows.iter().map(|window| format!("{:.1}", ms(window.value_at_quantile(0.99))));
            println!("    p99 of each window, ms: {}", windows.collect::<Vec<_>>().join(" "));
            let side = &mut sides[[BEFORE, AFTER].iter().position(|without| without == at).unwrap_or(2)];
            *side = [side[0].max(p99), side[1].max(worst)];
        }
        let [before, after, with] = sides;
        for (name, without) in [("before", before), ("after", after)] {
            let ratio = |at: usize| with[at] as f64 / without[at].max(1) as f64;
            println!("p99 with compaction to {name}: {:.2}; of the worst windows: {:.2}", ratio(0), ratio(1));
        }
    }
}

/// Keys come in no order, so that last values stand everywhere, the more the younger.
fn key(partition: usize, number: u64, keys: u64) -> Vec<u8> {
    format!("key-{}", mixed(number ^ (partition as u64) << 48) % keys).into_bytes()
}

fn value(partition: usize, number: u64) -> Vec<u8> {
    let mut value = format!("{partition}:{number}:").into_bytes();
    let filler = mixed(number.wrapping_mul(31) + partition as u64).to_le_bytes();
    value.extend(filler.iter().cycle().take(VALUE_BYTES - value.len()));
    value
}

/// SplitMix64's output function.
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Over all shards.
fn figure(page: &str, name: &str) -> u64 {
    let lines = page.lines().filter(|line| line.starts_with(name) && !line.starts_with('#'));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.trim().parse::<u64>().ok()).sum()
}

/// Of the keyed topic's segments.
fn bytes_of(work: &Path) -> Result<u64, String> {
    let mut bytes = 0;
    let data = work.join("data");
    for directory in std::fs::read_dir(&data).map_err(|e| format!("{}: {e}", data.display()))?.flatten() {
        if !directory.file_name().to_string_lossy().starts_with(KEYED) {
            continue;
        }
        for file in std::fs::read_dir(directory.path()).into_iter().flatten().flatten() {
            if file.path().extension().is_some_and(|extension| extension == "log" || extension == "swap") {
                // One that goes meanwhile counts for nothing.
                bytes += file.metadata().map_or(0, |data| data.len());
            }
        }
    }
    Ok(bytes)
}

fn set(address: &str, topic: &str, name: &str, value: &str) -> Result<(), String> {
    let config = AlterableConfig { name, config_operation: 0, value: Some(value) };
    let resource =
        AlterConfigsResource { resource_type: RESOURCE_TOPIC, resource_name: topic, configs: vec![config].into() };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource].into(), ..Default::default() };
    let asked = || -> io::Result<ErrorCode> {
        let frame = Connection::open(address)?.call(&INCREMENTAL_ALTER_CONFIGS, 1, &request)?;
        let (_, reply): (i32, IncrementalAlterConfigsResponse<'_>) = frame.decode(&INCREMENTAL_ALTER_CONFIGS, 1)?;
        reply.responses.iter().next().map(|one| one.error_code).ok_or_else(|| io::Error::other("an empty reply"))
    };
    match asked().map_err(|e| format!("IncrementalAlterConfigs: {e}"))? {
        ErrorCode::None => Ok(()),
        code => Err(format!("IncrementalAlterConfigs of {topic}: {code:?}")),
    }
}
