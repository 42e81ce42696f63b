//! Cases: what they are, how they are run, what came of them.

use std::io;
use std::time::Instant;

use crate::world::World;

/// How a case ended when it did not pass.
#[derive(Debug)]
pub enum Stop {
    /// This machine does not allow it: why.
    Skip(String),
    Fail(String),
}

pub type Outcome = Result<(), Stop>;

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Fail(error.to_string())
    }
}

impl From<String> for Stop {
    fn from(why: String) -> Stop {
        Stop::Fail(why)
    }
}

pub fn fail<T>(why: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Fail(why.into()))
}

/// What must hold; `why` is only asked when it does not.
pub fn must(holds: bool, why: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(Stop::Fail(why())) }
}

pub struct Case {
    /// A sentence: what is seen when it passes.
    pub name: &'static str,
    pub run: fn(&mut World) -> Outcome,
}

pub const fn case(name: &'static str, run: fn(&mut World) -> Outcome) -> Case {
    Case { name, run }
}

/// Prints how a single one ended; true when it passed.
pub fn ended(name: &str, outcome: Outcome) -> bool {
    match &outcome {
        Ok(()) => println!("pass {name}"),
        Err(Stop::Skip(why)) => println!("skip {name}: {why}"),
        Err(Stop::Fail(why)) => println!("FAIL {name}: {why}"),
    }
    outcome.is_ok()
}

/// Runs those whose name holds `only`; true when none failed.
pub fn run(world: &mut World, cases: &[Case], only: &str) -> bool {
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for case in cases.iter().filter(|case| case.name.contains(only)) {
        let began = Instant::now();
        let outcome = (case.run)(world).and_then(|()| world.goes_on());
        let seconds = began.elapsed().as_secs_f32();
        let beside =
            world.slowest_beside().map_or(String::new(), |took| format!(", slowest beside {} ms", took.as_millis()));
        match outcome {
            Ok(()) => {
                passed += 1;
                println!("pass {} ({seconds:.1} s{beside})", case.name);
            }
            Err(Stop::Skip(why)) => {
                skipped += 1;
                println!("skip {}: {why}", case.name);
            }
            Err(Stop::Fail(why)) => {
                failed += 1;
                println!("FAIL {} ({seconds:.1} s): {why}", case.name);
                world.renew();
            }
        }
    }
    if skipped > 0 {
        println!("{skipped} skipped, as named above");
    }
    println!("{passed} passed, {failed} failed");
    failed == 0 && passed > 0
}
