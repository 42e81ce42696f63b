//! The first five minutes: what the README says, done as it says.

use std::path::Path;
use std::process::Command;

use crate::process::run;
use crate::suite::{Case, Outcome, Stop, case, must};
use crate::world::World;

pub const CASES: &[Case] = &[
    case("an empty directory is served, and the banner says what is where", banner),
    case("kcat's first message, by the README's lines", first_message),
    case("the README's own topic commands", topic_commands),
    case("the program says how it is used", help),
];

fn banner(world: &mut World) -> Outcome {
    let dir = world.place("data");
    let broker = world.launch(&dir).serve()?;
    let banner = broker.banner();
    for says in
        [&*broker.address, &*broker.admin, &dir.display().to_string(), "cores", "acknowledged", "kcat -P", "Ctrl-C"]
    {
        must(banner.contains(says), || format!("{says:?} is not in the banner: {banner}"))?;
    }
    let took = broker.started_in;
    broker.stop()?;
    println!("ready after {} ms on an empty directory", took.as_millis());
    Ok(())
}

/// The indented lines of the README that hold `word`, for a broker at `address`.
fn lines(word: &str, address: &str) -> Result<Vec<String>, Stop> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = std::fs::read_to_string(readme)?;
    let code = text.lines().filter_map(|line| line.strip_prefix("    "));
    let lines = code.filter(|line| line.contains(word)).map(|line| line.replace("127.0.0.1:9092", address));
    Ok(lines.collect())
}

fn shell(line: &str) -> Result<String, Stop> {
    let (code, text) = run(Command::new("sh").args(["-c", line]))?;
    must(code == Some(0), || format!("{line}: code {code:?}: {text}"))?;
    Ok(text)
}

fn first_message(world: &mut World) -> Outcome {
    if Command::new("kcat").arg("-V").output().is_err() {
        return Err(Stop::Skip("kcat is not installed".into()));
    }
    let address = world.broker()?.address.clone();
    let lines = lines("kcat -", &address)?;
    let [write, read] = &lines[..] else { return Err(format!("the README has other lines: {lines:?}").into()) };
    shell(write)?;
    let text = shell(read)?;
    must(text.lines().any(|line| line == "hello, ring"), || format!("{read}: {text}"))
}

fn topic_commands(world: &mut World) -> Outcome {
    let address = world.broker()?.address.clone();
    let lines = lines("ringmain topic", &address)?;
    must(lines.len() >= 3, || format!("the README has other lines: {lines:?}"))?;
    let program = world.program.display().to_string();
    let mut all = String::new();
    for line in lines {
        all += &shell(&format!("{} --bootstrap {address}", line.replace("target/release/ringmain", &program)))?;
    }
    for says in ["created orders", "8 partitions", "retention.ms = 3600000", "PARTITION", "TOPIC"] {
        must(all.contains(says), || format!("{says:?} is not in: {all}"))?;
    }
    Ok(())
}

fn help(world: &mut World) -> Outcome {
    let told: [(&[&str], &str); 6] = [
        (&["--help"], "start"),
        (&["help"], "start"),
        (&["start", "--help"], "--data-dir"),
        (&["topic", "--help"], "create"),
        (&["topic", "create", "--help"], "--partitions"),
        (&["log", "--help"], "verify"),
    ];
    for (words, says) in told {
        let (code, text) = run(Command::new(&world.program).args(words))?;
        must(code == Some(0) && text.contains(says), || format!("{words:?}: code {code:?}: {text}"))?;
    }
    let (code, text) = run(Command::new(&world.program).arg("topc"))?;
    must(code == Some(2) && text.contains("topic"), || format!("code {code:?}: {text}"))
}
