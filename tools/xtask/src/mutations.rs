//! Puts known bugs back, one at a time, and sees whether the simulator finds them: a checker that nothing can break checks nothing.
//!
//! Each `tools/sim/mutations/*.patch` is applied to a copy of HEAD in `target/mutations`, built, and hunted (`ringmain-sim --hunt`). What
//! stands in front of a patch's first `diff` says what the bug is, and in its line `FAILURES: ` which of FAILURES.md's it is one of. The
//! table of what was found, and after how many histories, comes last, as it stands in tools/sim/DESIGN.md.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::root;

/// So many histories, half of them wide ones, must find a mutation; what only cuts or an old failure finds is told as that.
const SEEDS: &str = "3000";

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
    let mut table = vec!["| bug | FAILURES | after | found by | as |".to_owned(), "|---|---|---|---|---|".to_owned()];
    for patch in &patches {
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let began = Instant::now();
        let outcome = hunt(&copy, patch);
        let found = outcome.as_ref().is_ok_and(|line| line.starts_with(FOUND));
        missed += usize::from(!found);
        let text = outcome.unwrap_or_else(|error| format!("BROKEN: {error}"));
        println!("{name} ({} s): {text}", began.elapsed().as_secs());
        table.push(row(&name, &failures(patch), &text));
    }
    table.iter().for_each(|row| println!("{row}"));
    println!("{} found, {missed} missed", patches.len() - missed);
    missed == 0
}

/// How a hunt's line begins.
const FOUND: &str = "FOUND after ";

/// `FOUND after <histories>: <which>: <invariant>` as a row.
fn row(name: &str, failures: &str, text: &str) -> String {
    let found = text.strip_prefix(FOUND).and_then(|rest| rest.split_once(": "));
    match found.and_then(|(after, rest)| Some((after, rest.split_once(": ")?))) {
        Some((after, (which, invariant))) => format!("| {name} | {failures} | {after} | {which} | {invariant} |"),
        None => format!("| {name} | {failures} | | | {text} |"),
    }
}

/// Which lines of FAILURES.md the patch says that it is about.
fn failures(patch: &Path) -> String {
    let text = fs::read_to_string(patch).unwrap_or_default();
    let head = text.lines().take_while(|line| !line.starts_with("diff ") && !line.starts_with("--- "));
    head.filter_map(|line| line.strip_prefix("FAILURES: ")).collect::<Vec<_>>().join(", ")
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

/// The line of the hunt for this bug.
fn hunt(copy: &Path, patch: &Path) -> Result<String, String> {
    if !copy.exists() {
        git(&root(), &["worktree", "prune"])?;
        git(&root(), &["worktree", "add", "--force", "--detach", &copy.to_string_lossy(), "HEAD"])?;
    }
    let head = git(&root(), &["rev-parse", "HEAD"])?;
    git(copy, &["reset", "--quiet", "--hard", head.trim()])?;
    let patch = fs::canonicalize(patch).map_err(|error| error.to_string())?;
    git(copy, &["apply", &patch.to_string_lossy()])?;
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", root().join("target/mutations/target"))
        .args(["run", "--quiet", "--profile", "sim", "--package", "ringmain-sim", "--", "--hunt", SEEDS])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().rev().find(|line| line.starts_with(FOUND) || line.starts_with("NOT FOUND"));
    line.map(str::to_owned).ok_or_else(|| format!("sim: {}", output.status))
}

fn git(folder: &Path, arguments: &[&str]) -> Result<String, String> {
    let output =
        Command::new("git").current_dir(folder).args(arguments).output().map_err(|error| format!("git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_find_is_a_row() {
        let text = "FOUND after 7 seeds: seed 3: one offset, one value, for ever";
        assert_eq!(row("bug", "27, 39", text), "| bug | 27, 39 | 7 seeds | seed 3 | one offset, one value, for ever |");
        assert_eq!(row("bug", "1", "NOT FOUND by 3 seeds"), "| bug | 1 | | | NOT FOUND by 3 seeds |");
    }
}
