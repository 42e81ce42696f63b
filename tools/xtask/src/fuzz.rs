//! Coverage-guided fuzzing of every decoder: libFuzzer around each target of `tools/fuzz`, and its own numbers at the end.
//!
//! The coverage that libFuzzer wants is an LLVM pass that stable Rust has too, so no nightly is asked for; libFuzzer itself is C++, and
//! without a compiler for it nothing is fuzzed and that is said.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::{cargo, root, succeeds};

const USAGE: &str = "\
cargo xtask fuzz [--minutes N] [--target NAME]... [--keep] [--deep]
  --minutes N     for all targets together, in equal parts; 10 when nothing is said
  --target NAME   only this one (`list` shows them); may be said again
  --keep          what was found goes back into tools/fuzz/corpus, made small
  --deep          with value profiles: slower, and further past comparisons";

/// What libFuzzer needs to be told of where a run went, in all crates but the standard library.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks --cfg fuzzing";
/// One input may take so long: none that was seen takes a hundredth of it.
const INPUT_SECONDS_MAX: u32 = 10;
const MEMORY_MB_MAX: u32 = 2048;

#[derive(Default)]
struct Options {
    minutes: f64,
    targets: BTreeSet<String>,
    keep: bool,
    deep: bool,
}

pub fn run(arguments: &[String]) -> bool {
    let Some(options) = parse(arguments) else {
        eprintln!("{USAGE}");
        return false;
    };
    match Fuzzer::build().and_then(|fuzzer| fuzzer.all(&options)) {
        Ok(passed) => passed,
        Err(error) => {
            eprintln!("fuzz: {error}");
            false
        }
    }
}

fn parse(arguments: &[String]) -> Option<Options> {
    let mut options = Options { minutes: 10.0, ..Options::default() };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--minutes" => options.minutes = words.next()?.parse().ok().filter(|minutes| *minutes > 0.0)?,
            "--target" => drop(options.targets.insert(words.next()?.clone())),
            "--keep" => options.keep = true,
            "--deep" => options.deep = true,
            _ => return None,
        }
    }
    Some(options)
}

struct Target {
    name: String,
    bytes_max: String,
}

struct Fuzzer {
    /// Without coverage: reads and writes corpora.
    corpus: PathBuf,
    binary: PathBuf,
    targets: Vec<Target>,
}

impl Fuzzer {
    fn build() -> Result<Fuzzer, String> {
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
        let quiet = Command::new(&compiler).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !quiet.is_ok_and(|status| status.success()) {
            return Err(format!("libFuzzer is C++ and `{compiler}` does not run: nothing was fuzzed"));
        }
        if !succeeds(cargo(&["build", "--quiet", "--package", "ringmain-fuzz", "--bin", "ringmain-corpus"])) {
            return Err("ringmain-corpus does not build".into());
        }
        // With a target named, build scripts and macros stay without coverage.
        let triple = host()?;
        let mut build = cargo(&["build", "--quiet", "--profile", "sim", "--package", "ringmain-fuzz"]);
        build.args(["--bin", "ringmain-fuzz", "--features", "libfuzzer", "--target-dir", "target/fuzz"]);
        build.args(["--target", &triple]).env("RUSTFLAGS", COVERAGE);
        if !succeeds(build) {
            return Err("the fuzzer does not build: nothing was fuzzed".into());
        }
        let corpus = target_dir().join("debug/ringmain-corpus");
        let binary = root().join("target/fuzz").join(triple).join("sim/ringmain-fuzz");
        let list = output(Command::new(&corpus).arg("list"))?;
        let targets = list.lines().filter_map(|line| {
            let mut words = line.split(' ');
            Some(Target { name: words.next()?.into(), bytes_max: words.next()?.into() })
        });
        Ok(Fuzzer { corpus, binary, targets: targets.collect() })
    }

    fn all(&self, options: &Options) -> Result<bool, String> {
        let chosen = |target: &&Target| options.targets.is_empty() || options.targets.contains(&target.name);
        let targets: Vec<&Target> = self.targets.iter().filter(chosen).collect();
        if targets.is_empty() || targets.len() < options.targets.len() {
            let names: Vec<&str> = self.targets.iter().map(|target| target.name.as_str()).collect();
            return Err(format!("the targets are {}", names.join(", ")));
        }
        let seconds = (options.minutes * 60.0 / targets.len() as f64).ceil() as u64;
        let mut rows = Vec::new();
        let mut failed = 0;
        for target in &targets {
            println!("== {} ({seconds} s)", target.name);
            let row = self.one(target, seconds, options)?;
            failed += u32::from(!row.passed);
            println!("{row}");
            rows.push(row);
        }
        println!(
            "\n{:<14} {:>12} {:>8} {:>7} {:>9} {:>7} {:>8}",
            "target", "executions", "/s", "edges", "features", "inputs", "seconds"
        );
        rows.iter().for_each(|row| println!("{row}"));
        println!("{} passed, {failed} failed", rows.len() as u32 - failed);
        Ok(failed == 0)
    }

    fn one(&self, target: &Target, seconds: u64, options: &Options) -> Result<Row, String> {
        let folder = root().join("target/fuzz/corpus").join(&target.name);
        let artifacts = root().join("target/fuzz/artifacts").join(&target.name);
        fs::create_dir_all(&artifacts).map_err(|error| error.to_string())?;
        output(Command::new(&self.corpus).arg("unpack").arg(&target.name).arg(&folder))?;
        let started = Instant::now();
        let mut fuzz = Command::new(&self.binary);
        fuzz.env("RINGMAIN_FUZZ", &target.name).arg(&folder).args([
            format!("-max_total_time={seconds}"),
            format!("-max_len={}", target.bytes_max),
            format!("-timeout={INPUT_SECONDS_MAX}"),
            format!("-rss_limit_mb={MEMORY_MB_MAX}"),
            format!("-use_value_profile={}", u8::from(options.deep)),
            format!("-artifact_prefix={}/", artifacts.display()),
            "-print_final_stats=1".into(),
            "-reload=0".into(),
        ]);
        let done = fuzz.output().map_err(|error| format!("{}: {error}", self.binary.display()))?;
        let log = String::from_utf8_lossy(&done.stderr).into_owned();
        let row = Row::read(&target.name, &log, done.status.success(), started.elapsed().as_secs());
        if !row.passed {
            println!("{log}\nagain: ringmain-corpus run {} {}/<file>", target.name, artifacts.display());
        } else if options.keep {
            self.keep(target, &folder)?;
        }
        Ok(row)
    }

    /// The smallest set of inputs that libFuzzer can find, beside the seeds, that goes to all the places that all of them go to.
    fn keep(&self, target: &Target, folder: &Path) -> Result<(), String> {
        let small = folder.with_extension("small");
        let _ = fs::remove_dir_all(&small);
        output(Command::new(&self.corpus).arg("seeds").arg(&target.name).arg(&small))?;
        let mut merge = Command::new(&self.binary);
        merge.env("RINGMAIN_FUZZ", &target.name).args(["-merge=1", "-use_counters=0"]);
        merge.arg(format!("-max_len={}", target.bytes_max)).arg(&small).arg(folder);
        let done = merge.output().map_err(|error| error.to_string())?;
        if !done.status.success() {
            return Err(format!("merge: {}", String::from_utf8_lossy(&done.stderr)));
        }
        output(Command::new(&self.corpus).arg("pack").arg(&target.name).arg(&small)).map(drop)
    }
}

/// libFuzzer's own numbers.
struct Row {
    name: String,
    passed: bool,
    executions: u64,
    edges: String,
    features: String,
    inputs: String,
    seconds: u64,
}

impl Row {
    /// The last line that tells of coverage is `#executions WORD cov: edges ft: features corp: inputs/bytes ...`.
    fn read(name: &str, log: &str, passed: bool, seconds: u64) -> Row {
        let last = log.lines().rfind(|line| line.starts_with('#') && line.contains(" cov: ")).unwrap_or_default();
        let behind = |what: &str| {
            let mut words = last.split_whitespace().skip_while(|word| *word != what);
            words.nth(1).unwrap_or("-").to_owned()
        };
        let executed = log.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
        Row {
            name: name.into(),
            passed: passed && executed.is_some(),
            executions: executed.and_then(|count| count.trim().parse().ok()).unwrap_or(0),
            edges: behind("cov:"),
            features: behind("ft:"),
            inputs: behind("corp:").split('/').next().unwrap_or_default().into(),
            seconds,
        }
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rate = self.executions / self.seconds.max(1);
        let Row { name, executions, edges, features, inputs, seconds, .. } = self;
        write!(f, "{name:<14} {executions:>12} {rate:>8} {edges:>7} {features:>9} {inputs:>7} {seconds:>8}")?;
        if self.passed { Ok(()) } else { f.write_str(" FAIL") }
    }
}

/// The machine that rustc builds for.
fn host() -> Result<String, String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let words = output(Command::new(rustc).arg("-vV"))?;
    let line = words.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_owned).ok_or_else(|| "rustc does not say what it builds for".into())
}

/// Where this tree's ordinary builds go.
fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output().map_err(|error| format!("{name}: {error}"))?;
    if !done.status.success() {
        return Err(format!("{name}: {}", String::from_utf8_lossy(&done.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libfuzzers_numbers_are_read() {
        let log = "#2\tINITED cov: 3 ft: 4 corp: 1/1b exec/s: 0 rss: 26Mb\n\
            #412841\tDONE   cov: 611 ft: 1575 corp: 361/83Kb lim: 1910 exec/s: 37531 rss: 32Mb\n\
            stat::number_of_executed_units: 412841\n";
        let row = Row::read("journal", log, true, 11);
        assert_eq!((row.passed, row.executions), (true, 412_841));
        assert_eq!((&row.edges[..], &row.features[..], &row.inputs[..]), ("611", "1575", "361"));
        assert!(!Row::read("journal", log, false, 11).passed);
        assert!(!Row::read("journal", "", true, 11).passed, "a run that says nothing of itself was none");
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let options = parse(&words("--minutes 0.5 --target a --target b --keep")).unwrap();
        assert!(options.minutes == 0.5 && options.targets.len() == 2 && options.keep && !options.deep);
        for wrong in ["--minutes", "--minutes 0", "--minutes x", "--target", "--seconds 3"] {
            assert!(parse(&words(wrong)).is_none(), "{wrong}");
        }
    }
}
