//! The small `name=value` files of the data directory.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::StartError;

pub struct Properties {
    path: PathBuf,
    values: BTreeMap<String, String>,
}

impl Properties {
    /// `None` when there is no such file. Lines that begin with `#` and empty ones say nothing.
    pub fn read(path: &Path) -> Result<Option<Properties>, StartError> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(StartError::Malformed { path: path.into(), why: "not text".into() });
            }
            Err(error) => return Err(StartError::path("read", path, error)),
        };
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let pairs = lines.filter_map(|line| line.split_once('='));
        let values = pairs.map(|(name, value)| (name.trim().to_string(), value.trim().to_string())).collect();
        Ok(Some(Properties { path: path.into(), values }))
    }

    pub fn text(&self, name: &str) -> Result<&str, StartError> {
        let value = self.values.get(name).map(String::as_str).filter(|value| !value.is_empty());
        value.ok_or_else(|| StartError::Malformed { path: self.path.clone(), why: format!("it has no {name}") })
    }

    pub fn number(&self, name: &str) -> Result<u64, StartError> {
        let text = self.text(name)?;
        text.parse().map_err(|_| StartError::Malformed {
            path: self.path.clone(),
            why: format!("{name}={text} is not a number"),
        })
    }
}
