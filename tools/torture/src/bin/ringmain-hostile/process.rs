//! Brokers as processes: started, refused, watched, ended.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::suite::{Outcome, Stop, fail, must};

/// A start that is to be refused is refused within this. Told, not judged, like all times here: a busy disk is no fault of the broker.
const REFUSED_MAX: Duration = Duration::from_secs(2);
/// For whatever is waited for: longer means that it does not come.
pub const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// How a broker is to be started.
pub struct Launch {
    /// What the program is run by: wrappers that take rights from it.
    within: Vec<String>,
    program: PathBuf,
    arguments: Vec<String>,
    /// Where its output goes: `<log>.out` and `<log>.err`.
    log: PathBuf,
}

impl Launch {
    /// On free ports, with `dir` as its data directory.
    pub fn new(program: &Path, dir: &Path, log: PathBuf) -> Launch {
        let launch = Launch { within: Vec::new(), program: program.into(), arguments: vec!["start".into()], log };
        launch
            .option("--data-dir", &dir.display().to_string())
            .option("--listen", "127.0.0.1:0")
            .option("--admin-listen", "127.0.0.1:0")
    }

    /// Replaces an option that was given before.
    pub fn option(mut self, name: &str, value: &str) -> Launch {
        match self.arguments.iter().position(|argument| argument == name) {
            Some(at) => self.arguments[at + 1] = value.into(),
            None => self.arguments.extend([name.into(), value.into()]),
        }
        self
    }

    pub fn without(mut self, name: &str) -> Launch {
        if let Some(at) = self.arguments.iter().position(|argument| argument == name) {
            self.arguments.drain(at..at + 2);
        }
        self
    }

    /// One more, beside those of the same name.
    pub fn also(mut self, name: &str, value: &str) -> Launch {
        self.arguments.extend([name.into(), value.into()]);
        self
    }

    /// A copy of the program.
    pub fn of(mut self, program: &Path) -> Launch {
        self.program = program.into();
        self
    }

    /// Run by this program itself, which restricts itself first (see `within.rs`).
    pub fn within(self, restriction: &str) -> Launch {
        let own = std::env::current_exe().unwrap_or_else(|_| "ringmain-hostile".into());
        self.within_by(&own, restriction)
    }

    /// As [`Launch::within`], by a copy of this program.
    pub fn within_by(mut self, own: &Path, restriction: &str) -> Launch {
        self.within = vec![own.display().to_string(), "within".into(), restriction.into()];
        self
    }

    fn spawn(&self) -> Result<Child, Stop> {
        let mut command = match self.within.split_first() {
            None => Command::new(&self.program),
            Some((wrapper, rest)) => {
                let mut command = Command::new(wrapper);
                command.args(rest).arg("--").arg(&self.program);
                command
            }
        };
        command.args(&self.arguments).env_remove("RUST_LOG");
        command
            .stdout(File::create(self.log.with_extension("out"))?)
            .stderr(File::create(self.log.with_extension("err"))?);
        command.spawn().map_err(|error| Stop::Fail(format!("{}: {error}", self.program.display())))
    }

    /// Starts it and waits until it says that it is ready.
    pub fn serve(&self) -> Result<Broker, Stop> {
        let began = Instant::now();
        let mut broker = Broker {
            child: self.spawn()?,
            address: String::new(),
            admin: String::new(),
            log: self.log.clone(),
            started_in: Duration::ZERO,
        };
        loop {
            let banner = read(&self.log.with_extension("out"));
            // Its last line.
            if let Some((shown, _)) = banner.split_once("Ctrl-C\n") {
                broker.address = word_after(shown, "kafka").unwrap_or_default();
                let admin = word_after(shown, "admin").unwrap_or_default();
                broker.admin = admin.trim_start_matches("http://").trim_end_matches("/metrics").into();
                broker.started_in = began.elapsed();
                return Ok(broker);
            }
            if let Some(status) = broker.child.try_wait()? {
                return fail(format!("the broker ended with {status}: {}", broker.errors().trim()));
            }
            if began.elapsed() > PATIENCE {
                return fail(format!("the broker is not ready after {PATIENCE:?}: {}", broker.errors().trim()));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Starts it and sees it refuse: with a code that is not 0, and one line on standard error that holds all of `says`.
    pub fn refused(&self, says: &[&str]) -> Outcome {
        let began = Instant::now();
        let mut child = self.spawn()?;
        let status = match ended(&mut child, PATIENCE)? {
            Some(status) => status,
            None => {
                let _ = child.kill();
                let _ = child.wait();
                return fail(format!(
                    "it was not refused within {PATIENCE:?}: {}",
                    read(&self.log.with_extension("out")).trim()
                ));
            }
        };
        let took = began.elapsed();
        let (out, errors) = (read(&self.log.with_extension("out")), read(&self.log.with_extension("err")));
        must(status.code().is_some_and(|code| code != 0), || format!("ended with {status}: {}", errors.trim()))?;
        must(out.is_empty(), || format!("wrote to standard output: {}", out.trim()))?;
        must(errors.lines().count() == 1 && errors.ends_with('\n'), || format!("not one line: {errors:?}"))?;
        for word in says {
            must(errors.contains(word), || format!("{word:?} is not in: {}", errors.trim()))?;
        }
        if took > REFUSED_MAX {
            println!("late: refused only after {took:?}: {}", errors.trim());
        }
        Ok(())
    }
}

/// Killed when dropped.
pub struct Broker {
    child: Child,
    /// Of Kafka's port, and of the admin port.
    pub address: String,
    pub admin: String,
    log: PathBuf,
    /// From the start of the process to its banner.
    pub started_in: Duration,
}

impl Broker {
    pub fn banner(&self) -> String {
        read(&self.log.with_extension("out"))
    }

    /// Its log so far.
    pub fn errors(&self) -> String {
        read(&self.log.with_extension("err"))
    }

    /// Waits for a line of the log that holds all of these.
    pub fn says(&self, words: &[&str]) -> Outcome {
        let began = Instant::now();
        while !self.errors().lines().any(|line| words.iter().all(|word| line.contains(word))) {
            if began.elapsed() > PATIENCE {
                return fail(format!("no line of the log has {words:?}; its last: {:?}", self.errors().lines().last()));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = Pid::from_raw(self.child.id() as i32).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(kill_process(pid, signal)?)
    }

    /// Resident memory in bytes.
    pub fn resident(&self) -> Result<u64, Stop> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let kib = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kib.map(|kib| kib << 10).ok_or_else(|| Stop::Fail("the broker's process is gone".into()))
    }

    pub fn lives(&mut self) -> Outcome {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => fail(format!("the broker ended with {status}: {}", last_lines(&self.errors()))),
        }
    }

    /// Waits until it has ended, however it did.
    pub fn gone(mut self) -> Outcome {
        let status = ended(&mut self.child, PATIENCE)?;
        must(status.is_some(), || "it does not end".into())
    }

    pub fn kill(mut self) {
        self.end();
    }

    /// SIGTERM, and its end: clean, with code 0.
    pub fn stop(mut self) -> Outcome {
        self.signal(Signal::TERM)?;
        let status = ended(&mut self.child, PATIENCE)?;
        must(status.is_some_and(|status| status.success()), || {
            format!("the stop ended with {status:?}: {}", last_lines(&self.errors()))
        })?;
        must(self.errors().contains("stopped"), || format!("no clean stop: {}", last_lines(&self.errors())))
    }

    fn end(&mut self) {
        // Both fail only when it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs a command to its end; its code and all that it printed.
pub fn run(command: &mut Command) -> Result<(Option<i32>, String), Stop> {
    let output = command.output().map_err(|error| format!("{}: {error}", command.get_program().to_string_lossy()))?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8_lossy(&text).into_owned()))
}

fn ended(child: &mut Child, within: Duration) -> io::Result<Option<ExitStatus>> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if began.elapsed() > within {
            return Ok(None);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn read(path: &Path) -> String {
    let mut text = Vec::new();
    // Missing until it was started.
    let _ = File::open(path).and_then(|mut file| file.read_to_end(&mut text));
    String::from_utf8_lossy(&text).into_owned()
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().rev().take(3).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
}

/// The word behind the first line that begins with this label.
fn word_after(text: &str, label: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(label))?;
    line.split_whitespace().next().map(str::to_string)
}
