//! Corpora without a fuzzer: what `cargo xtask fuzz` calls, and the way to see what one input does.

use std::path::Path;
use std::process::ExitCode;
use std::{fs, io};

use ringmain_fuzz::{TARGETS, Target, corpus, target};

const USAGE: &str = "\
ringmain-corpus list                 the targets, with the longest input of each
ringmain-corpus unpack TARGET DIR    seeds, corpus and what once broke it, a file each
ringmain-corpus seeds TARGET DIR     the seeds alone
ringmain-corpus pack TARGET DIR      the files of DIR that are no seeds become the corpus in the tree
ringmain-corpus run TARGET FILE...   each file is an input";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["list"] => {
            TARGETS.iter().for_each(|target| println!("{} {} {}", target.name, target.bytes_max, target.about));
            Ok(())
        }
        ["unpack", name, dir] => named(name).and_then(|target| unpack(target, Path::new(dir))),
        ["seeds", name, dir] => named(name).and_then(|target| write(target, Path::new(dir), (target.seeds)())),
        ["pack", name, dir] => named(name).and_then(|target| pack(target, Path::new(dir))),
        ["run", name, ref files @ ..] => named(name).and_then(|target| run(target, files)),
        _ => Err(io::Error::other(USAGE)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn named(name: &str) -> io::Result<&'static Target> {
    target(name).ok_or_else(|| io::Error::other(format!("no target {name}")))
}

fn unpack(target: &Target, dir: &Path) -> io::Result<()> {
    let found = corpus::found(target.name)?.into_iter().map(|(_, input)| input);
    let inputs = (target.seeds)().into_iter().chain(corpus::read(target.name)?).chain(found);
    write(target, dir, inputs.collect())
}

fn write(target: &Target, dir: &Path, inputs: Vec<Vec<u8>>) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for input in inputs.iter().filter(|input| input.len() <= target.bytes_max) {
        fs::write(dir.join(format!("{:016x}", hash(input))), input)?;
    }
    Ok(())
}

/// FNV-1a: names files, nothing else.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// The shortest come first, so that the same files make the same corpus.
fn pack(target: &Target, dir: &Path) -> io::Result<()> {
    let mut inputs = Vec::new();
    for entry in fs::read_dir(dir)? {
        inputs.push(fs::read(entry?.path())?);
    }
    inputs.sort_by(|one, other| (one.len(), one).cmp(&(other.len(), other)));
    inputs.dedup();
    let seeds = (target.seeds)();
    inputs.retain(|input| !seeds.contains(input));
    let path = corpus::path(target.name);
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(path, corpus::pack(&inputs))
}

fn run(target: &Target, files: &[&str]) -> io::Result<()> {
    for file in files {
        let bytes = fs::read(file)?;
        println!("{file}: {} bytes", bytes.len());
        (target.run)(&bytes);
    }
    Ok(())
}
