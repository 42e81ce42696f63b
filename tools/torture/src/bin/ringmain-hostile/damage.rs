//! Bits that turned over on the disk: `log verify` and `log dump` say so, and a broker starts or refuses; nothing crashes.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringmain_torture::connection::Connection;

use crate::admin::get;
use crate::ask::{create, fetch, produce_one};
use crate::environment::verified;
use crate::process::{Broker, run};
use crate::suite::{Case, Outcome, Stop, case, fail, must};
use crate::world::World;

pub const CASES: &[Case] = &[
    case("log verify finds a flipped bit in any file of a partition", partition_files),
    case("a bit that turned is named and never served, and all else is", served_but_for_it),
    case("log verify and dump survive flipped bits and cuts in journals", journals),
    case("a broker on a damaged journal serves or refuses in a line", start_on_damage),
];

/// Records of each partition.
const WRITTEN_EACH: i64 = 40;
const CORRUPT_MESSAGE: i16 = 2;

/// Partitions with sealed segments, indexes and snapshots, some records only in the journals, cleanly stopped.
fn written(world: &mut World, stop: bool) -> Result<PathBuf, Stop> {
    let dir = world.place("data");
    let broker = world.launch(&dir).serve()?;
    let mut connection = Connection::open(&broker.address)?;
    create(&mut connection, "written", 2, &[("segment.bytes", "1048576")])?.ok("create")?;
    for number in 0..60 {
        produce_one(&mut connection, "written", number % 2, &[b'x'; 90_000])?;
    }
    for number in 0..20 {
        produce_one(&mut connection, "written", number % 2, b"small")?;
    }
    if stop {
        broker.stop()?;
        verified(world, &dir)?;
    } else {
        broker.kill();
    }
    Ok(dir)
}

fn files(dir: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>, Stop> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path, extensions)?);
        } else if path.extension().is_some_and(|extension| extensions.iter().any(|known| extension == *known)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// `log dump` of a file and `log verify` of `dir`: both end by themselves. Verify's code and words.
fn looked_at(world: &World, file: &Path, dir: &Path) -> Result<(i32, String), Stop> {
    let mut seen = (0, String::new());
    for (words, path) in [(&["log", "dump", "--records"][..], file), (&["log", "verify"], dir)] {
        let (code, text) = run(Command::new(&world.program).args(words).arg(path))?;
        match code {
            Some(code @ (0 | 1)) => seen = (code, text),
            other => return fail(format!("{words:?} {}: ended with {other:?}: {}", path.display(), text.trim())),
        }
        must(!seen.1.contains("panicked"), || format!("{words:?} {}: {}", path.display(), seen.1.trim()))?;
    }
    Ok(seen)
}

/// Turns one bit over, in place.
fn flip(path: &Path, at: u64) -> std::io::Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)?;
    file.write_all_at(&[byte[0] ^ 1 << (at % 8)], at)
}

fn partition_files(world: &mut World) -> Outcome {
    let dir = written(world, true)?;
    for extension in ["log", "index", "timeindex", "snapshot"] {
        // The first one is sealed: of an open segment the journal has a copy of its last bytes, which counts.
        let found = files(&dir.join("written-0"), &[extension])?;
        let path = found.iter().find(|path| path.metadata().is_ok_and(|data| data.len() > 0));
        let Some(path) = path else { return fail(format!("no {extension} file with anything in it")) };
        let whole = fs::read(path)?;
        for at in [0, whole.len() / 2, whole.len() - 1] {
            flip(path, at as u64)?;
            let (code, text) = looked_at(world, path, &dir)?;
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            must(code == 1 && text.contains(&name), || {
                format!("byte {at} of {}: code {code}: {text}", path.display())
            })?;
            flip(path, at as u64)?;
        }
        fs::write(path, &whole[..whole.len() - 1])?;
        let (code, text) = looked_at(world, path, &dir)?;
        must(code == 1, || format!("{} without its last byte: {text}", path.display()))?;
        fs::write(path, whole)?;
    }
    verified(world, &dir)
}

/// The first batch from each offset of partition 0 on, or why there is none; one after the other, by a broker of its own.
fn batches(broker: &Broker) -> Result<Vec<Result<Vec<u8>, i16>>, Stop> {
    let mut connection = Connection::open(&broker.address)?;
    let mut found = Vec::new();
    for offset in 0..WRITTEN_EACH {
        let (answer, bytes) = fetch(&mut connection, "written", 0, offset)?;
        let length =
            bytes.get(8..12).and_then(|length| Some(12 + u32::from_be_bytes(length.try_into().ok()?) as usize));
        let first = length.and_then(|length| Some(bytes.get(..length)?.to_vec()));
        found.push(match (answer.code, first) {
            (0, Some(first)) => Ok(first),
            (0, None) => return fail(format!("offset {offset}: no whole batch")),
            (code, _) => Err(code),
        });
    }
    Ok(found)
}

fn served_but_for_it(world: &mut World) -> Outcome {
    let dir = written(world, true)?;
    let broker = world.launch(&dir).serve()?;
    let sound = batches(&broker)?;
    broker.stop()?;
    must(sound.iter().all(Result::is_ok), || format!("before: {:?}", sound.iter().find(|one| one.is_err())))?;
    for (extension, refused_most) in [("log", 1), ("index", 0), ("timeindex", 0), ("snapshot", 0)] {
        let mut found = files(&dir.join("written-0"), &[extension])?;
        if extension == "snapshot" {
            // Of those a start reads the newest.
            found.reverse();
        }
        let path = found.iter().find(|path| path.metadata().is_ok_and(|data| data.len() > 0));
        let Some(path) = path else { return fail(format!("no {extension} file with anything in it")) };
        let bytes = path.metadata()?.len();
        // In the records of a batch; in an entry's offset; in that of the last, which tells of the whole segment.
        let at = match extension {
            "log" => bytes / 2,
            "index" => bytes / 16 * 8 + 3,
            "snapshot" => bytes / 2,
            _ => bytes - 1,
        };
        flip(path, at)?;
        let broker = world.launch(&dir).serve()?;
        let now = batches(&broker)?;
        let mut refused = 0;
        for (offset, (now, sound)) in now.iter().zip(&sound).enumerate() {
            refused += usize::from(now.is_err());
            let right = now == sound || refused_most > 0 && *now == Err(CORRUPT_MESSAGE);
            must(right, || format!("{extension}, offset {offset}: {:?}", now.as_ref().map(Vec::len)))?;
        }
        must(refused == refused_most, || format!("{extension}: {refused} offsets were refused"))?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        broker.says(&["ERROR", &name, "position="])?;
        let page = get(&broker.admin, "/metrics")?;
        let told = page.lines().any(|line| line.starts_with("ringmain_damaged_places_total") && !line.ends_with(" 0"));
        must(told, || format!("{extension}: /metrics tells of no damage"))?;
        broker.stop()?;
        flip(path, at)?;
    }
    verified(world, &dir)
}

fn journals(world: &mut World) -> Outcome {
    let dir = written(world, false)?;
    for path in files(&dir, &["journal"])? {
        for at in [5, 8, 30, 4100, 4176, 10_000, 45_000] {
            flip(&path, at)?;
            looked_at(world, &path, &path)?;
            flip(&path, at)?;
        }
        let whole = path.with_extension("whole");
        fs::copy(&path, &whole)?;
        for cut in [5000, 47, 0] {
            File::options().write(true).open(&path)?.set_len(cut)?;
            looked_at(world, &path, &path)?;
        }
        fs::rename(&whole, &path)?;
    }
    verified(world, &dir)
}

fn start_on_damage(world: &mut World) -> Outcome {
    let mut refused = 0;
    for at in [0, 41, 4096, 4160, 8192 + 80] {
        // A start that goes well writes a group of its own: each begins with files of its own.
        let dir = written(world, false)?;
        let path = dir.join("journal-1/0.journal");
        flip(&path, at)?;
        match world.launch(&dir).serve() {
            Ok(broker) => broker.kill(),
            Err(Stop::Fail(why)) => {
                must(why.contains("ended with exit status: 1"), || format!("byte {at}: {why}"))?;
                world.launch(&dir).refused(&["ringmain: ", &path.display().to_string(), "log verify"])?;
                refused += 1;
            }
            Err(skip) => return Err(skip),
        }
    }
    must(refused >= 2, || format!("only {refused} of the flips were noticed"))
}
