//! `ringmain-hostile within RESTRICTION... -- PROGRAM ARGUMENT...`: gives up rights, then becomes the program.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Resource, Rlimit, setrlimit};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// io_uring_setup, _enter and _register have the same numbers everywhere.
const IO_URING_CALLS: [i64; 3] = [425, 426, 427];
/// Who owns nothing.
const NOBODY: u32 = 65534;

pub fn run(words: &[String]) -> ExitCode {
    let Some(at) = words.iter().position(|word| word == "--") else { return told("no -- in front of the program") };
    let (restrictions, command) = (&words[..at], &words[at + 1..]);
    let Some((program, arguments)) = command.split_first() else { return told("no program") };
    let mut command = Command::new(program);
    command.args(arguments);
    for restriction in restrictions {
        if let Err(why) = restrict(restriction, &mut command) {
            return told(&format!("{restriction}: {why}"));
        }
    }
    told(&format!("{program}: {}", command.exec()))
}

fn told(why: &str) -> ExitCode {
    eprintln!("ringmain-hostile within: {why}");
    ExitCode::FAILURE
}

/// `no-io-uring=ERRNO`, `nobody`, or a limit: `nofile=N`, `memlock=BYTES`, `fsize=BYTES`, `nproc=N`, `as=BYTES`.
fn restrict(restriction: &str, command: &mut Command) -> Result<(), String> {
    let (name, value) = restriction.split_once('=').unwrap_or((restriction, "0"));
    let value: u64 = value.parse().map_err(|_| "not a number")?;
    let resource = match name {
        "no-io-uring" => return forbid_io_uring(value as u32),
        "nobody" => {
            command.uid(NOBODY).gid(NOBODY);
            return Ok(());
        }
        "nofile" => Resource::Nofile,
        "memlock" => Resource::Memlock,
        "fsize" => Resource::Fsize,
        "as" => Resource::As,
        _ => return Err("no such restriction".into()),
    };
    let limit = Rlimit { current: Some(value), maximum: Some(value) };
    setrlimit(resource, limit).map_err(|error| error.to_string())
}

fn forbid_io_uring(errno: u32) -> Result<(), String> {
    let rules = IO_URING_CALLS.iter().map(|call| (*call, Vec::new())).collect();
    let target = std::env::consts::ARCH.try_into().map_err(|error: seccompiler::BackendError| error.to_string())?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno), target);
    let program: BpfProgram =
        filter.and_then(|filter| filter.try_into()).map_err(|error: seccompiler::BackendError| error.to_string())?;
    seccompiler::apply_filter(&program).map_err(|error| error.to_string())
}
