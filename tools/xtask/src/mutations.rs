//! Puts known bugs back, one at a time, and sees whether the simulator finds them: a checker that nothing can break checks nothing.
//!
//! Each `tools/sim/mutations/*.patch` is applied to a copy of HEAD in `target/mutations`, built, and run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::root;

/// What a mutation must be found by: the cuts, the old failures, then so many seeds, narrow ones and wide ones (`WIDE_FROM`).
const SEEDS: &str = "0..3000";
const WIDE_SEEDS: &str = "4294967296..4294970296";

pub fn run(wanted: &[String]) -> bool {
    let patches = match patches(wanted) {
        Ok(patches) => patches,
        Err(error) => {
            eprintln!("mutations: {error}");
            return false;
        }
    };
    let copy = root().join("target/mutations/tree");
    let mut missed = 0;
    for patch in &patches {
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match hunt(&copy, patch) {
            Ok(Some(found)) => println!("found   {name}: {found}"),
            Ok(None) => {
                println!("MISSED  {name}");
                missed += 1;
            }
            Err(error) => {
                println!("BROKEN  {name}: {error}");
                missed += 1;
            }
        }
    }
    println!("{} found, {missed} missed", patches.len() - missed);
    missed == 0
}

fn patches(wanted: &[String]) -> Result<Vec<PathBuf>, String> {
    let folder = root().join("tools/sim/mutations");
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut patches: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    patches.retain(|path| {
        let name = path.to_string_lossy();
        name.ends_with(".patch") && (wanted.is_empty() || wanted.iter().any(|word| name.contains(word)))
    });
    patches.sort();
    Ok(patches)
}

/// The first violation's command and invariant; `None` when all passed.
fn hunt(copy: &Path, patch: &Path) -> Result<Option<String>, String> {
    if !copy.exists() {
        git(&root(), &["worktree", "prune"])?;
        git(&root(), &["worktree", "add", "--force", "--detach", &copy.to_string_lossy(), "HEAD"])?;
    }
    let head = git(&root(), &["rev-parse", "HEAD"])?;
    git(copy, &["reset", "--quiet", "--hard", head.trim()])?;
    let patch = fs::canonicalize(patch).map_err(|error| error.to_string())?;
    git(copy, &["apply", &patch.to_string_lossy()])?;
    let sim = ["run", "--quiet", "--profile", "sim", "--package", "ringmain-sim", "--"];
    for arguments in [&["--cuts"][..], &["--old-failures"], &["--seeds", SEEDS], &["--seeds", WIDE_SEEDS]] {
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .current_dir(copy)
            .env("CARGO_TARGET_DIR", root().join("target/mutations/target"))
            .args(sim)
            .args(arguments)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        if let Some((before, after)) = text.split_once("VIOLATION") {
            let command = before.lines().last().unwrap_or_default();
            return Ok(Some(format!("{command}{}", after.lines().next().unwrap_or_default())));
        }
        if !output.status.success() {
            return Err(format!("sim {arguments:?}: {}", output.status));
        }
    }
    Ok(None)
}

fn git(folder: &Path, arguments: &[&str]) -> Result<String, String> {
    let output =
        Command::new("git").current_dir(folder).args(arguments).output().map_err(|error| format!("git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
