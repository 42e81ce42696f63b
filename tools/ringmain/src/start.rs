//! `ringmain start`.

use std::io::IsTerminal;
use std::process::ExitCode;

use tracing_subscriber::EnvFilter;

use crate::cli::{LogFormat, StartArgs};
use crate::settings;

pub fn run(args: &StartArgs) -> ExitCode {
    log_to_stderr(args.log_format);
    let (config, warnings) = match settings::resolve(args) {
        Ok(resolved) => resolved,
        Err(error) => return failed(&error),
    };
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    match ringmain_node::run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// One line that says what, where and what to do.
fn failed(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("ringmain: {error}");
    ExitCode::FAILURE
}

/// Lines of `RUST_LOG`'s choice, `info` without it.
fn log_to_stderr(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let set = match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).with_target(false).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    // Fails only when there is one already, which is as good.
    drop(set);
}
