//! What a broker can't start on, each in one line within 2 s; and what it starts on all the same.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ringmain_torture::connection::Connection;

use crate::ask::{create_topic, fetch_bytes, produce_one};
use crate::mounts::Mount;
use crate::process::run;
use crate::suite::{Case, Outcome, Stop, case, must};
use crate::world::World;

pub const CASES: &[Case] = &[
    case("a second start on the same directory is refused, and names the first", second),
    case("a read-only directory is refused", read_only),
    case("a directory of somebody else's is refused", not_ours),
    case("a file as directory is refused", a_file),
    case("a full disk is refused at the start", full),
    case("a disk that is full of our own files is refused at the start", full_of_ours),
    case("a directory of a newer format is refused", newer),
    case("a directory whose files do not read is refused", malformed),
    case("a taken port is refused", port),
    case("an address that is not this machine's is refused", address),
    case("too few descriptors are refused", |world| limited(world, "nofile=100", &["RLIMIT_NOFILE", "100"])),
    case("more connections than there are descriptors for: the smaller bound holds, and is said", few_descriptors),
    case("too little locked memory is refused", |world| limited(world, "memlock=65536", &["RLIMIT_MEMLOCK", "65536"])),
    case("a limit on file sizes is refused", |world| limited(world, "fsize=1048576", &["RLIMIT_FSIZE", "1048576"])),
    case("io_uring forbidden by a seccomp filter is refused", |world| {
        limited(world, "no-io-uring=1", &["io_uring", "os error 1)"])
    }),
    case("a kernel without io_uring is refused", |world| {
        limited(world, "no-io-uring=38", &["io_uring", "os error 38)"])
    }),
    case("options and properties that mean nothing are refused", options),
    case("a file system without O_DIRECT is served, and the banner says how", no_direct),
];

fn second(world: &mut World) -> Outcome {
    let dir = world.place("data");
    let first = world.launch(&dir).serve()?;
    let process = format!("process {}", first.pid());
    world.launch(&dir).refused(&[&dir.display().to_string(), &process, "--data-dir"])?;
    Ok(create_topic(&mut Connection::open(&first.address)?, "still.there", 1)?)
}

fn read_only(world: &mut World) -> Outcome {
    let (at, from) = (world.place("read-only"), world.place("from"));
    fs::create_dir_all(&from)?;
    let mount = Mount::read_only(&at, &from)?;
    let path = mount.path.display().to_string();
    world.launch(&mount.path).refused(&[&path, "os error 30)", "writable"])?;
    world.launch(&mount.path.join("below")).refused(&[&path, "os error 30)", "writable"])
}

/// As a user who may not write there. The program goes where that user can run it.
fn not_ours(world: &mut World) -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return Err(Stop::Skip("needs root, to be somebody else".into()));
    }
    let place = PathBuf::from(format!("/tmp/ringmain-hostile-{}", std::process::id()));
    fs::create_dir_all(&place)?;
    let seen = || -> Outcome {
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755))?;
        let program = place.join("ringmain");
        fs::copy(&world.program, &program)?;
        fs::copy(std::env::current_exe()?, place.join("within"))?;
        let path = place.join("data").display().to_string();
        let launch = world.launch(&place.join("data")).of(&program);
        launch.within_by(&place.join("within"), "nobody").refused(&[&path, "os error 13)", "right"])
    }();
    fs::remove_dir_all(&place)?;
    seen
}

fn a_file(world: &mut World) -> Outcome {
    let path = world.place("file");
    fs::write(&path, "a file")?;
    world.launch(&path).refused(&[&path.display().to_string(), "os error", "directory"])?;
    world.launch(&path.join("below")).refused(&[&path.display().to_string(), "os error 20)", "directory"])
}

fn full(world: &mut World) -> Outcome {
    let mount = Mount::tmpfs(&world.place("small"), 16)?;
    let path = mount.path.display().to_string();
    world.launch(&mount.path).refused(&[&path, "os error 28)", "make room"])?;
    fs::write(mount.path.join("filler"), vec![0; 17 << 20]).err().ok_or_else(|| Stop::Fail("not full".into()))?;
    world.launch(&mount.path).refused(&[&path, "os error 28)", "make room"])
}

fn full_of_ours(world: &mut World) -> Outcome {
    let mount = Mount::ext4(&world.place("ours"), 192)?;
    let dir = mount.path.join("data");
    world.launch(&dir).serve()?.stop()?;
    fs::write(mount.path.join("filler"), vec![0; 192 << 20]).err().ok_or_else(|| Stop::Fail("not full".into()))?;
    world.launch(&dir).refused(&[&dir.display().to_string(), "os error 28)", "make room"])?;
    fs::remove_file(mount.path.join("filler"))?;
    world.launch(&dir).serve()?.stop()
}

/// A directory that was served and stopped.
fn served(world: &mut World) -> Result<PathBuf, Stop> {
    let dir = world.place("data");
    world.launch(&dir).serve()?.stop()?;
    Ok(dir)
}

fn newer(world: &mut World) -> Outcome {
    let dir = served(world)?;
    for (name, from, to) in [("ringmain.layout", "format=1", "format=2"), ("meta.properties", "version=1", "version=2")]
    {
        let path = dir.join(name);
        let text = fs::read_to_string(&path)?;
        fs::write(&path, text.replace(from, to))?;
        world.launch(&dir).refused(&[&path.display().to_string(), "2 is newer", "newer ringmain"])?;
        fs::write(&path, text)?;
    }
    // The journal's superblock has its format behind the magic, under a CRC.
    let path = dir.join("journal-1/0.journal");
    let bytes = fs::read(&path)?;
    for (format, says) in
        [(bytes[8] + 1, ["newer format", "newer ringmain"]), (bytes[8] - 1, ["older format", "first release"])]
    {
        let mut other = bytes[..48].to_vec();
        other[8] = format;
        let crc = crc32c::crc32c(&other[..40]).to_le_bytes();
        other[40..44].copy_from_slice(&crc);
        fs::write(&path, [&other, &bytes[48..]].concat())?;
        world.launch(&dir).refused(&[&path.display().to_string(), says[0], says[1]])?;
    }
    fs::write(&path, bytes)?;
    world.launch(&dir).serve()?.stop()
}

fn malformed(world: &mut World) -> Outcome {
    let dir = served(world)?;
    for name in ["ringmain.layout", "meta.properties"] {
        let path = dir.join(name);
        let text = fs::read(&path)?;
        for bad in [&b""[..], b"\0\xff\xfe", b"format=\nversion=\n"] {
            fs::write(&path, bad)?;
            world.launch(&dir).refused(&[&path.display().to_string(), "--data-dir"])?;
        }
        fs::write(&path, text)?;
    }
    // A journal that is gone is damage, never a beginning.
    let (path, aside) = (dir.join("journal-1/1.journal"), dir.with_extension("aside"));
    fs::rename(&path, &aside)?;
    world.launch(&dir).refused(&[&path.display().to_string(), "restore"])?;
    must(!path.exists(), || "a new journal was made in the place of the missing one".into())?;
    fs::rename(&aside, &path)?;
    let bytes = fs::read(&path)?;
    fs::write(&path, [&[0; 4096], &bytes[4096..]].concat())?;
    world.launch(&dir).refused(&[&path.display().to_string(), "restore"])?;
    fs::write(&path, bytes)?;
    world.launch(&dir).serve()?.stop()
}

fn port(world: &mut World) -> Outcome {
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    let dir = world.place("data");
    for option in ["--listen", "--admin-listen"] {
        world.launch(&dir).option(option, &address).refused(&[&address, "os error 98)", "another port"])?;
    }
    world.launch(&dir).serve()?.stop()
}

fn address(world: &mut World) -> Outcome {
    let dir = world.place("data");
    // From the range for documentation.
    world.launch(&dir).option("--listen", "192.0.2.1:9092").refused(&[
        "192.0.2.1:9092",
        "os error 99)",
        "address of this machine",
    ])?;
    world.launch(&dir).option("--listen", "no-such-host.invalid:9092").refused(&["no-such-host.invalid", "address"])
}

fn limited(world: &mut World, restriction: &str, says: &[&str]) -> Outcome {
    let dir = world.place("data");
    world.launch(&dir).within(restriction).refused(says)?;
    // Nothing was begun that the next start would trip over.
    world.launch(&dir).serve()?.stop()
}

fn few_descriptors(world: &mut World) -> Outcome {
    let dir = world.place("data");
    let launch =
        world.launch(&dir).within("nofile=700").also("--set", "max.connections=1000000").option("--cores", "2");
    let broker = launch.serve()?;
    must(broker.errors().contains("max.connections=1000000 is more than"), || broker.errors())?;
    // The rest of the descriptors are its own: it still opens files.
    let mut first = Connection::open(&broker.address)?;
    let mut open = Vec::new();
    for _ in 0..700 {
        open.push(Connection::open(&broker.address)?);
    }
    create_topic(&mut first, "few", 8)?;
    for partition in 0..8 {
        produce_one(&mut first, "few", partition, b"x")?;
    }
    // Many at once are accepted before the first of them is closed: that may fail for a moment, and nothing else.
    let errors = broker.errors();
    let failed =
        errors.lines().any(|line| line.contains("os error 24") && !line.contains("accepting connections failed"));
    must(!failed, || errors)?;
    drop(open);
    drop(first);
    broker.stop()
}

fn options(world: &mut World) -> Outcome {
    let dir = world.place("data");
    let file = world.place("properties");
    fs::write(&file, "num.partitions=none\n")?;
    let file = file.display().to_string();
    let wrong = [
        ("--set", "num.partition=1", "num.partition"),
        ("--set", "num.partitions=-1", "num.partitions"),
        ("--set", "log.retention.hours=soon", "log.retention.hours"),
        ("--set", "node.id=-1", "node.id"),
        ("--set", "listeners=SSL://127.0.0.1:1", "PLAINTEXT"),
        ("--cores", "0", "1 to 1024"),
        ("--listen", "9092", "HOST:PORT"),
        ("--listen", "127.0.0.1:70000", "65535"),
        ("--admin-listen", "x", "HOST:PORT"),
        ("--config", "/no/such/file", "os error 2"),
        ("--config", &file, "num.partitions"),
    ];
    for (option, value, says) in wrong {
        let launch = world.launch(&dir);
        let launch = match option {
            "--set" if value.starts_with("listeners") => launch.without("--listen").also(option, value),
            _ => launch.option(option, value),
        };
        launch.refused(&[says])?;
    }
    must(!dir.exists(), || "a start that was refused for its options made the directory".into())
}

fn no_direct(world: &mut World) -> Outcome {
    let mount = Mount::ramfs(&world.place("ramfs"))?;
    let dir = mount.path.join("data");
    let broker = world.launch(&dir).serve()?;
    let banner = broker.banner();
    must(banner.contains("buffered writes") && banner.contains("fdatasync"), || format!("the banner: {banner}"))?;
    let mut connection = Connection::open(&broker.address)?;
    create_topic(&mut connection, "buffered", 2)?;
    for number in 0..200 {
        let offset = produce_one(&mut connection, "buffered", number % 2, &[b'x'; 3000])?;
        must(offset == i64::from(number / 2), || format!("record {number} at {offset}"))?;
    }
    broker.kill();
    let broker = world.launch(&dir).serve()?;
    let mut connection = Connection::open(&broker.address)?;
    let bytes = fetch_bytes(&mut connection, "buffered", 1, 99)?;
    must(!bytes.is_empty(), || "the last record is gone after a kill".into())?;
    broker.stop()?;
    verified(world, &dir)
}

/// `ringmain log verify` finds nothing wrong.
pub fn verified(world: &World, dir: &Path) -> Outcome {
    let (code, text) = run(std::process::Command::new(&world.program).args(["log", "verify"]).arg(dir))?;
    must(code == Some(0), || {
        format!("log verify: code {code:?}: {}", text.lines().rev().take(3).collect::<Vec<_>>().join(" | "))
    })
}
