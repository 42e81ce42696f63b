//! Puts known bugs back, one at a time, and sees whether the simulator finds them: a checker that nothing can break checks nothing.
//!
//! All `tools/sim/mutations/*.patch` are applied to one copy of HEAD in `target/mutations`; each bug in them is there only where
//! `ringmain_types::mutation("its name")` says so, which this adds. So the copy is built once, and hunted (`ringmain-sim --hunt`) once for
//! each bug, told by the environment. What stands in front of a patch's first `diff` says what the bug is, and in its line `FAILURES: `
//! which of FAILURES.md's it is one of. The table of what was found, and after how many histories, comes last, as it stands in
//! tools/sim/DESIGN.md.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::root;

/// So many histories, half of them wide ones, must find a mutation; what only cuts or an old failure finds is told as that.
const SEEDS: &str = "3000";
/// And so many must find nothing where no bug was put back.
const SEEDS_CLEAN: &str = "300";

/// Appended to the crate that all others know.
const SWITCH: &str = r#"
/// Whether this known bug is put back (`cargo xtask mutations`).
pub fn mutation(name: &str) -> bool {
    static NAME: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    NAME.get_or_init(|| std::env::var("RINGMAIN_MUTATION").unwrap_or_default()) == name
}
"#;

pub fn run(wanted: &[String]) -> bool {
    let sim = match built() {
        Ok(sim) => sim,
        Err(error) => {
            eprintln!("mutations: {error}");
            return false;
        }
    };
    let clean = hunt(&sim, "", SEEDS_CLEAN);
    println!("without a bug: {}", clean.as_deref().unwrap_or_else(|error| error));
    if !clean.is_ok_and(|line| !line.starts_with(FOUND)) {
        return false;
    }
    let mut patches = patches().unwrap_or_default();
    patches.retain(|patch| wanted.is_empty() || wanted.iter().any(|word| name(patch).contains(word)));
    let mut missed = 0;
    let mut table = vec!["| bug | FAILURES | after | found by | as |".to_owned(), "|---|---|---|---|---|".to_owned()];
    for patch in &patches {
        let (name, began) = (name(patch), Instant::now());
        let outcome = hunt(&sim, &name, SEEDS);
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

fn name(patch: &Path) -> String {
    patch.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// A simulator with every bug in it.
fn built() -> Result<PathBuf, String> {
    let (copy, target) = (root().join("target/mutations/tree"), root().join("target/mutations/target"));
    if !copy.exists() {
        git(&root(), &["worktree", "prune"])?;
        git(&root(), &["worktree", "add", "--force", "--detach", &copy.to_string_lossy(), "HEAD"])?;
    }
    let head = git(&root(), &["rev-parse", "HEAD"])?;
    git(&copy, &["reset", "--quiet", "--hard", head.trim()])?;
    for patch in patches()? {
        let patch = fs::canonicalize(patch).map_err(|error| error.to_string())?;
        git(&copy, &["apply", &patch.to_string_lossy()])?;
    }
    let switched = copy.join("storage/types/src/lib.rs");
    let text = fs::read_to_string(&switched).map_err(|error| error.to_string())?;
    fs::write(&switched, text + SWITCH).map_err(|error| error.to_string())?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(&copy).env("CARGO_TARGET_DIR", &target);
    let status = cargo.args(["build", "--quiet", "--profile", "sim", "--package", "ringmain-sim"]).status();
    match status.map_err(|error| error.to_string())? {
        status if status.success() => Ok(target.join("sim/ringmain-sim")),
        status => Err(format!("with all bugs in it the tree does not build: {status}")),
    }
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

fn patches() -> Result<Vec<PathBuf>, String> {
    let folder = root().join("tools/sim/mutations");
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut patches: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    patches.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
    patches.sort();
    Ok(patches)
}

/// The line of the hunt for this bug.
fn hunt(sim: &Path, name: &str, seeds: &str) -> Result<String, String> {
    let mut command = Command::new(sim);
    command.args(["--hunt", seeds]).env("RINGMAIN_MUTATION", name).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| error.to_string())?;
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
