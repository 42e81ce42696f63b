//! Puts known bugs back, one at a time, and sees whether the simulator finds them: a checker that nothing can break checks nothing.
//!
//! All `tools/sim/mutations/*.patch` are applied to one copy of HEAD in `target/mutations`; each bug in them is there only where
//! `ringmain_types::mutation("its name")` says so, which this adds. So the copy is built once, and hunted (`ringmain-sim --hunt`) once for
//! each bug, told by the environment. What stands in front of a patch's first `diff` says what the bug is, and in its line `FAILURES: `
//! which of FAILURES.md's it is one of. What the simulator does not find the store's own tests must, which drive a store alone on a disk of their own
//! through thousands of lives, and can fill its journal or lay a block where they like. What was found, and after how many histories, is a row of the table in tools/sim/DESIGN.md: each
//! hunt writes its own, so that some bugs alone may be hunted again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime};

use crate::root;

/// So many histories, half of them wide ones, must find a mutation, if no other number is given; what only cuts or an old failure finds
/// is told as that.
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

/// Where the table stands, and how its first line begins.
const TABLE: &str = "tools/sim/DESIGN.md";
const TABLE_HEAD: &str = "| bug | ";

pub fn run(wanted: &[String]) -> bool {
    let copy = match Copy::built() {
        Ok(copy) => copy,
        Err(error) => {
            eprintln!("mutations: {error}");
            return false;
        }
    };
    if !copy.clean() {
        return false;
    }
    let mut patches = patches().unwrap_or_default();
    let names: Vec<String> = patches.iter().map(|patch| name(patch)).collect();
    let (numbers, wanted): (Vec<&String>, Vec<&String>) = wanted.iter().partition(|word| word.parse::<u64>().is_ok());
    let seeds = numbers.first().map_or(SEEDS, |number| number);
    patches.retain(|patch| wanted.is_empty() || wanted.iter().any(|word| name(patch).contains(*word)));
    let mut missed = 0;
    for patch in &patches {
        let (name, began) = (name(patch), Instant::now());
        let outcome = match copy.hunt(&name, seeds) {
            Ok(line) if !line.starts_with(FOUND) => copy.test(&name).map(|found| found.unwrap_or(line)),
            outcome => outcome,
        };
        let found = outcome.as_ref().is_ok_and(|line| line.starts_with(FOUND));
        missed += usize::from(!found);
        let text = outcome.unwrap_or_else(|error| format!("BROKEN: {error}"));
        println!("{name} ({} s): {text}", began.elapsed().as_secs());
        if let Err(error) = note(&names, &name, &row(&name, &failures(patch), &text)) {
            eprintln!("mutations: {TABLE}: {error}");
            return false;
        }
    }
    println!("{} found, {missed} missed", patches.len() - missed);
    missed == 0
}

fn name(patch: &Path) -> String {
    patch.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// A tree with every bug in it, and its simulator.
struct Copy {
    tree: PathBuf,
    target: PathBuf,
}

impl Copy {
    fn sim(&self) -> PathBuf {
        self.target.join("sim/ringmain-sim")
    }

    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target).args(arguments);
        cargo
    }

    fn built() -> Result<Copy, String> {
        let copy = Copy { tree: root().join("target/mutations/tree"), target: root().join("target/mutations/target") };
        let (tree, sim, stamp) = (&copy.tree, copy.sim(), root().join("target/mutations/built"));
        let head = git(&root(), &["rev-parse", "HEAD"])?.trim().to_owned();
        let mut made_of = format!("{head}\n{SWITCH}");
        for patch in patches()? {
            made_of += &fs::read_to_string(&patch).map_err(|error| format!("{}: {error}", patch.display()))?;
        }
        if sim.exists() && fs::read_to_string(&stamp).is_ok_and(|built| built == made_of) {
            return Ok(copy);
        }
        if !tree.exists() {
            git(&root(), &["worktree", "prune"])?;
            git(&root(), &["worktree", "add", "--force", "--detach", &tree.to_string_lossy(), "HEAD"])?;
        }
        let _ = (fs::remove_file(&stamp), fs::remove_file(sim.with_extension("clean")));
        let before = changed(tree)?;
        git(tree, &["reset", "--quiet", "--hard", &head])?;
        for patch in patches()? {
            let patch = fs::canonicalize(patch).map_err(|error| error.to_string())?;
            git(tree, &["apply", &patch.to_string_lossy()])?;
        }
        let switched = tree.join("storage/types/src/lib.rs");
        let text = fs::read_to_string(&switched).map_err(|error| error.to_string())?;
        fs::write(&switched, text + SWITCH).map_err(|error| error.to_string())?;
        // What is as it was is as old as it was: only the rest is built again.
        for (path, bytes, age) in before {
            if fs::read(&path).is_ok_and(|now| now == bytes) {
                let file = fs::File::options().write(true).open(&path);
                file.and_then(|file| file.set_modified(age)).map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
        let status = copy.cargo(&["build", "--quiet", "--profile", "sim", "--package", "ringmain-sim"]).status();
        let status = status.map_err(|error| error.to_string())?;
        if !status.success() {
            return Err(format!("with all bugs in it the tree does not build: {status}"));
        }
        fs::write(&stamp, made_of).map_err(|error| error.to_string())?;
        Ok(copy)
    }

    /// Whether nothing is found without a bug; seen once for each build.
    fn clean(&self) -> bool {
        let seen = self.sim().with_extension("clean");
        if seen.exists() {
            return true;
        }
        let (clean, tests) = (self.hunt("", SEEDS_CLEAN), self.test(""));
        println!("without a bug: {}; {tests:?}", clean.as_deref().unwrap_or_else(|error| error));
        let clean = clean.is_ok_and(|line| !line.starts_with(FOUND)) && tests == Ok(None);
        clean && fs::write(&seen, "").is_ok()
    }

    /// The line of the simulator's hunt for this bug.
    fn hunt(&self, name: &str, seeds: &str) -> Result<String, String> {
        let mut command = Command::new(self.sim());
        command.args(["--hunt", seeds]).env("RINGMAIN_MUTATION", name).stderr(Stdio::inherit());
        let output = command.output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().rev().find(|line| line.starts_with(FOUND) || line.starts_with("NOT FOUND"));
        line.map(str::to_owned).ok_or_else(|| format!("sim: {}", output.status))
    }

    /// As `hunt`, of the store's own tests; nothing when all of them pass.
    fn test(&self, name: &str) -> Result<Option<String>, String> {
        let mut cargo = self.cargo(&["test", "--quiet", "--no-fail-fast", "--package", "ringmain-log"]);
        let output = cargo.env("RINGMAIN_MUTATION", name).output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        match failed_test(&text) {
            None if !output.status.success() => Err(format!("tests of the store: {}", output.status)),
            found => Ok(found),
        }
    }
}

/// The first failed test in what the test runner printed, and what it said.
fn failed_test(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("\n---- ")?;
    let (test, said) = rest.split_once(" stdout ----")?;
    let said = said.lines().skip_while(|line| !line.contains(" panicked at ")).nth(1).unwrap_or("it failed");
    Some(format!("{FOUND}{TESTS}: {test}: {}", said.replace('|', "/")))
}

/// Files that are not as in HEAD, what they hold, and when they were written.
fn changed(copy: &Path) -> Result<Vec<(PathBuf, Vec<u8>, SystemTime)>, String> {
    let names = git(copy, &["diff", "--name-only", "HEAD"])?;
    let read = |name| {
        let path = copy.join(name);
        let age = fs::metadata(&path).and_then(|known| known.modified()).ok()?;
        Some((path.clone(), fs::read(&path).ok()?, age))
    };
    Ok(names.lines().filter_map(read).collect())
}

/// How a hunt's line begins.
const FOUND: &str = "FOUND after ";
/// What stands there in the place of the number of histories.
const TESTS: &str = "the store's own tests";

/// `FOUND after <histories>: <which>: <invariant>` as a row.
fn row(name: &str, failures: &str, text: &str) -> String {
    let found = text.strip_prefix(FOUND).and_then(|rest| rest.split_once(": "));
    match found.and_then(|(after, rest)| Some((after, rest.split_once(": ")?))) {
        Some((after, (which, invariant))) => {
            format!("| {name} | {failures} | {after} | {which} | {invariant} |")
        }
        None => format!("| {name} | {failures} | | | {text} |"),
    }
}

/// Puts the row into the table that stands in the file.
fn note(names: &[String], name: &str, row: &str) -> Result<(), String> {
    let path = root().join(TABLE);
    let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
    let noted = with_row(&text, names, name, row).ok_or_else(|| format!("no table begins with {TABLE_HEAD:?}"))?;
    fs::write(&path, noted).map_err(|error| error.to_string())
}

/// The text with this row in its table, in the place of the one that was there; rows of what is no bug's name any more go.
fn with_row(text: &str, names: &[String], name: &str, row: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.iter().position(|line| line.starts_with(TABLE_HEAD))? + 2;
    let rows = lines.get(from..)?.iter().take_while(|line| line.starts_with("| ")).count();
    let (before, rest) = lines.split_at(from);
    let (old, after) = rest.split_at(rows);
    let of = |row: &str| row.split(" | ").next().unwrap_or_default().trim_start_matches("| ").to_owned();
    let mut rows: Vec<&str> = old.iter().copied().filter(|old| of(old) != name && names.contains(&of(old))).collect();
    rows.push(row);
    rows.sort_unstable();
    let all: Vec<&str> = before.iter().chain(&rows).chain(after).copied().collect();
    Some(all.join("\n") + "\n")
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
        let all = "| bug | 27, 39 | 7 seeds | seed 3 | one offset, one value, for ever |";
        assert_eq!(row("bug", "27, 39", text), all);
        assert_eq!(row("bug", "1", "NOT FOUND by 3 seeds"), "| bug | 1 | | | NOT FOUND by 3 seeds |");
    }

    #[test]
    fn a_test_that_fails_is_a_find() {
        let printed = "\nfailures:\n\n---- lives::many stdout ----\n\nthread 'lives::many' (7) panicked at a.rs:1:2:\nno room | left\n";
        let line = failed_test(printed).expect("one failed");
        assert_eq!(row("bug", "28", &line), "| bug | 28 | the store's own tests | lives::many | no room / left |");
        assert_eq!(failed_test("\nrunning 3 tests\n...\ntest result: ok. 3 passed\n"), None);
    }

    #[test]
    fn a_row_takes_the_place_of_its_bugs_row() {
        let text = |rows: &str| format!("before\n| bug | FAILURES |\n|---|---|\n{rows}\nafter\n| c | no row |\n");
        let names: Vec<String> = ["a", "b", "c"].map(str::to_owned).into();
        let with = |old: &str, name: &str, row: &str| with_row(&text(old), &names, name, row);
        assert_eq!(with("", "b", "| b | 1 |"), Some(text("| b | 1 |\n")));
        assert_eq!(with("| a | 2 |\n| c | 3 |\n", "b", "| b | 1 |"), Some(text("| a | 2 |\n| b | 1 |\n| c | 3 |\n")));
        assert_eq!(with("| b | 4 |\n| gone | 5 |\n", "b", "| b | 1 |"), Some(text("| b | 1 |\n")));
        assert_eq!(with_row("no table\n", &names, "b", "| b | 1 |"), None);
    }
}
