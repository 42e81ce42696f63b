//! What fuzzers found worth keeping, in the tree: `corpus/<target>.bin`, inputs one behind the other, each behind its length (u32,
//! little-endian); and `found/<target>-<what>`, one input each that once broke something.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Of this crate, in the tree that built it.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

pub fn path(target: &str) -> PathBuf {
    folder("corpus").join(format!("{target}.bin"))
}

/// The committed corpus of a target; empty when it has none yet.
pub fn read(target: &str) -> io::Result<Vec<Vec<u8>>> {
    match fs::read(path(target)) {
        Ok(bytes) => {
            unpack(&bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a corpus that is cut off"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// What once broke this target, each with its file's name.
pub fn found(target: &str) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder("found"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // `small-files` has a dash of its own, so the longest target that fits is the one.
        let owner = crate::TARGETS.iter().filter(|target| name.starts_with(&format!("{}-", target.name)));
        if owner.max_by_key(|owner| owner.name.len()).is_some_and(|owner| owner.name == target) {
            found.push((name, fs::read(entry.path())?));
        }
    }
    found.sort();
    Ok(found)
}

pub fn pack(inputs: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for input in inputs {
        bytes.extend((input.len() as u32).to_le_bytes());
        bytes.extend(input);
    }
    bytes
}

/// `None` when the bytes end inside an input.
pub fn unpack(mut bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut inputs = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (input, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        inputs.push(input.to_vec());
        bytes = rest;
    }
    Some(inputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_and_what_is_cut_off() {
        let inputs = vec![b"abc".to_vec(), Vec::new(), vec![7; 300]];
        let bytes = pack(&inputs);
        assert_eq!(unpack(&bytes), Some(inputs));
        assert_eq!(unpack(&bytes[..bytes.len() - 1]), None);
    }
}
