//! Power loss on real files: `cargo xtask power`.
//!
//! The broker's directory is on ext4 or xfs, on a loop device, on a file that this process serves over FUSE and that forgets what was not
//! flushed when the power is cut. Under load the power goes at random moments, in starts too; then the file system is mounted again, which
//! replays its own journal, and the broker starts. At the end everything that was acknowledged must be there, in order, once.
//!
//! A disk without power is also one that fails every write and flush with EIO: now and then the broker lives on beside it for a while, and
//! must say so, refuse with 56 what it can't promise, and answer all else.
#![forbid(unsafe_code)]

mod device;
mod disk;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;

use device::{Device, FileSystem};
use disk::Cut;
use ringmain_torture::broker::{Broker, create, new_directory};
use ringmain_torture::producer::RawProducer;
use ringmain_torture::verify::verify;

const PARTITIONS: usize = 8;
/// A broker under load meets an error of its disk, and says so, within this.
const TOLD_MAX: Duration = Duration::from_secs(10);

#[derive(Parser)]
struct Options {
    /// How often the power is cut.
    #[arg(long, default_value_t = 100)]
    cuts: u32,
    #[arg(long, value_enum, default_value_t = FileSystem::Ext4)]
    fs: FileSystem,
    /// The broker's program.
    #[arg(long, default_value = "target/release/ringmain")]
    binary: PathBuf,
    /// A new directory for the disk's image, the mounts and the broker's log.
    #[arg(long, default_value = "target/power")]
    work: PathBuf,
    #[arg(long, default_value_t = 8192)]
    image_mib: u64,
    /// To see that this finds something: a disk that does nothing at seven flushes of eight, so that something must be missing.
    #[arg(long)]
    lies: bool,
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

fn main() -> ExitCode {
    let mut options = Options::parse();
    if let Some(what) = missing(&options) {
        println!("power loss: left out, {what}\n0 passed, 0 failed, 1 left out");
        return ExitCode::SUCCESS;
    }
    if options.seed == 0 {
        options.seed = fastrand::u64(1..);
    }
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(what) => {
            eprintln!("power, seed {}: {what}", options.seed);
            ExitCode::FAILURE
        }
    }
}

/// What a machine must have for this; what is missing is said, and nothing is passed or failed.
fn missing(options: &Options) -> Option<String> {
    let mkfs = format!("mkfs.{}", options.fs.name());
    let programs = ["setpriv", "unshare", "losetup", "mount", "umount", &mkfs];
    let program = programs.iter().find(|name| Command::new(name).arg("--version").output().is_err());
    let device = ["/dev/fuse", "/dev/loop-control"]
        .into_iter()
        .find(|path| std::fs::File::options().read(true).write(true).open(path).is_err());
    let no = |what: &str| format!("no {what} here");
    program.map(|name| no(name)).or(device.map(|path| no(&format!("access to {path}"))))
}

fn run(options: &Options) -> Result<bool, String> {
    fastrand::seed(options.seed);
    // Of a run that was killed: a mount that nobody serves any more. There is none as a rule, and then this fails.
    let _ = Command::new("umount").arg("-l").arg(options.work.join("fuse")).output();
    new_directory(&options.work)?;
    let work = options.work.canonicalize().map_err(|e| e.to_string())?;
    let image = work.join("image");
    let made = std::fs::File::create_new(&image).and_then(|file| file.set_len(options.image_mib << 20));
    made.map_err(|e| format!("{}: {e}", image.display()))?;
    options.fs.make(&image)?;
    let power = Power { work: &work, image: &image, options };
    let mut broker = Broker::new(&options.binary, &work, 2)?;
    let device = power.on(&mut broker)?;
    broker.start()?;
    let address = broker.address.clone();
    create(&address, "raw", PARTITIONS)?;
    let (stop, acked) = (AtomicBool::new(false), AtomicU64::new(0));
    // Paced: the image must hold all of it.
    let pause = Duration::from_micros(100);
    let raw =
        RawProducer { address: &address, topic: "raw", partitions: PARTITIONS, stop: &stop, acked: &acked, pause };
    let began = Instant::now();
    let mut met = Met::default();
    let (promised, lived) = std::thread::scope(|scope| {
        let producer = scope.spawn(|| raw.run());
        let lived = power.lives(device, &mut broker, &mut met);
        stop.store(true, Ordering::Relaxed);
        (producer.join(), lived)
    });
    let promised = promised.map_err(|_| "the producer panicked".to_string())?;
    let (device, kept) = lived?;
    let refused = promised.as_ref().map_or(0, |promised| promised.storage_errors);
    let found = match (kept, promised) {
        (Ok(()), Ok(promised)) => verify(&address, "raw", &promised.offsets).map_err(|e| e.to_string()),
        (Ok(()), Err(what)) | (Err(what), _) => Err(what),
    };
    broker.kill();
    device.detach()?;
    println!(
        "seed {}: {} on a loop device over a disk that forgets (FUSE); {met}; {:.0} s, {} records acknowledged, {refused} batches refused with 56",
        options.seed,
        options.fs.name(),
        began.elapsed().as_secs_f64(),
        acked.load(Ordering::Relaxed),
    );
    match &found {
        Ok(verdict) => println!("raw, five in flight: {verdict}"),
        Err(what) => println!("{what}"),
    }
    let shown = met.sectors.undone > 0 && acked.load(Ordering::Relaxed) > 0;
    if !shown {
        println!("nothing was written, or no cut took anything: nothing was shown");
    }
    let clean = found.is_ok_and(|verdict| verdict.clean() && verdict.records > 0);
    let passed = shown && clean != options.lies;
    if passed {
        std::fs::remove_file(&image).map_err(|e| format!("{}: {e}", image.display()))?;
    }
    println!("{} passed, {} failed", u32::from(passed), u32::from(!passed));
    Ok(passed)
}

struct Power<'a> {
    work: &'a Path,
    image: &'a Path,
    options: &'a Options,
}

impl Power<'_> {
    /// A device on what the last one left, where the broker's next life has its directory.
    fn on(&self, broker: &mut Broker) -> Result<Device, String> {
        let data = self.work.join("data");
        std::fs::create_dir_all(&data).map_err(|e| format!("{}: {e}", data.display()))?;
        let device = Device::new(self.work, self.image, self.options.lies)?;
        broker.through(device.mounted(self.options.fs, &data));
        Ok(device)
    }

    /// Cuts, and starts behind them; the last life goes on. What keeps the broker from starting is told beside the device: that is what
    /// a lying disk is found out by, and trouble with the device itself is not.
    fn lives(
        &self,
        mut device: Device,
        broker: &mut Broker,
        met: &mut Met,
    ) -> Result<(Device, Result<(), String>), String> {
        let mut serves = true;
        while met.cuts < self.options.cuts {
            std::thread::sleep(Duration::from_millis(fastrand::u64(20..900)));
            // A start that is not through ends with the disk's error.
            let ready = serves && broker.get("/health/ready")?.starts_with("HTTP/1.1 200");
            met.cut(&device)?;
            // A lying disk is to be found out by what it lost, and by nothing else.
            if ready && !self.options.lies && fastrand::u8(..4) == 0 {
                if let Err(what) = fenced(broker) {
                    return Ok((device, Err(what)));
                }
                met.fenced += 1;
            }
            broker.kill();
            device.detach()?;
            device = self.on(broker)?;
            // One start in four does not get to its end.
            serves = fastrand::u8(..4) > 0;
            if !serves {
                broker.launch()?;
                continue;
            }
            match broker.start() {
                Ok(took) => met.slowest = met.slowest.max(took),
                Err(what) => return Ok((device, Err(what))),
            }
        }
        broker.kill();
        device.detach()?;
        device = self.on(broker)?;
        let last = broker.start().map(|took| met.slowest = met.slowest.max(took));
        Ok((device, last))
    }
}

/// The process lives on a disk that fails: it answers, and says what is wrong where an operator looks.
fn fenced(broker: &mut Broker) -> Result<(), String> {
    let began = Instant::now();
    loop {
        let health = broker.get("/health/ready")?;
        if health.starts_with("HTTP/1.1 503") && health.contains("directory is fenced: ") {
            // EIO as the kernel says it.
            if !health.contains("os error 5") {
                return Err(format!("/health/ready names no error of a disk: {health}"));
            }
            break;
        }
        if began.elapsed() > TOLD_MAX {
            return Err(format!("the disk fails since {TOLD_MAX:?}, and /health/ready says {health}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let page = broker.metrics()?;
    let told = page.lines().find_map(|line| line.strip_prefix("ringmain_fenced_dirs ")?.parse::<u64>().ok());
    if told.is_none_or(|dirs| dirs == 0) {
        return Err(format!("a directory is fenced, and /metrics counts {told:?}"));
    }
    broker.answers()
}

/// What the cuts did.
#[derive(Default)]
struct Met {
    cuts: u32,
    /// Beside which the broker lived on, and told of it.
    fenced: u32,
    sectors: Cut,
    slowest: Duration,
}

impl Met {
    fn cut(&mut self, device: &Device) -> Result<(), String> {
        let cut = device.cut(fastrand::bool())?;
        self.cuts += 1;
        self.sectors.unflushed += cut.unflushed;
        self.sectors.undone += cut.undone;
        Ok(())
    }
}

impl std::fmt::Display for Met {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Cut { unflushed, undone } = self.sectors;
        let slowest = self.slowest.as_millis();
        let Met { cuts, fenced, .. } = self;
        write!(
            f,
            "{cuts} cuts met {unflushed} unflushed sectors and undid {undone}, {fenced} times the broker lived on and told of the errors, slowest start {slowest} ms"
        )
    }
}
