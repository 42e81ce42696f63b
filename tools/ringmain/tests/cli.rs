//! The binary as a person runs it: what it says, and with which exit code.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn ringmain(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringmain"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Exit code, standard output, standard error.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = ringmain(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The one line that a refusal is.
fn refusal(arguments: &[&str]) -> String {
    let begun = Instant::now();
    let (code, out, error) = run(arguments);
    assert_eq!((code, out.as_str()), (Some(1), ""), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

/// A directory of this test, removed with the value.
struct Temp(PathBuf);
impl Temp {
    fn new(name: &str) -> Temp {
        let path = std::env::temp_dir().join(format!("ringmain-cli-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Temp(path)
    }
    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}
impl Drop for Temp {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// A broker of its own; killed with the value.
struct Broker {
    child: Child,
    kafka: String,
    admin: String,
}

impl Broker {
    /// Ports are taken from the banner.
    fn start(dir: &Path) -> Broker {
        let dir = dir.to_str().unwrap();
        let any = "127.0.0.1:0";
        let arguments = ["start", "--cores", "2", "--data-dir", dir, "--listen", any, "--admin-listen", any];
        let mut child = ringmain(&arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut value = |name: &str| {
            let line = lines.find(|line| line.trim_start().starts_with(name)).expect("the banner");
            line.split_whitespace().nth(1).unwrap().to_owned()
        };
        let (kafka, admin) = (value("kafka"), value("admin"));
        let admin = admin.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap().to_owned();
        // The banner's other lines must find a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Broker { child, kafka, admin }
    }

    fn terminate(&mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success(), "a clean stop ends with 0");
    }
}
impl Drop for Broker {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

#[test]
fn refusals_are_one_line_with_a_remedy() {
    assert_eq!(run(&["version"]).1, format!("ringmain {}\n", env!("CARGO_PKG_VERSION")));
    let dir = Temp::new("refusals");
    let line = refusal(&["start", "--data-dir", dir.path(), "--config", "/no/such/file"]);
    assert!(line.contains("/no/such/file") && line.contains("os error 2"), "{line}");
    let line = refusal(&["start", "--data-dir", dir.path(), "--set", "num.partitions=many"]);
    assert!(line.contains("num.partitions") && line.contains("many"), "{line}");
    let line = refusal(&["start", "--data-dir", dir.path(), "--set", "log.dirs=/other"]);
    assert!(line.contains("--data-dir") && line.contains("log.dirs"), "{line}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (ours, other) in [("--listen", "--admin-listen"), ("--admin-listen", "--listen")] {
        let line = refusal(&["start", "--data-dir", dir.path(), ours, &address, other, "127.0.0.1:0"]);
        assert!(line.contains(&address) && line.contains("os error 98") && line.contains("another port"), "{line}");
    }
    drop(taken);
    let line = refusal(&["topic", "list", "--bootstrap", &address]);
    assert!(line.contains(&address) && line.contains("--bootstrap"), "{line}");
    let line = refusal(&["log", "verify", dir.path()]);
    assert!(line.contains(dir.path()), "{line}");
}

#[test]
fn a_brokers_life() {
    let dir = Temp::new("life");
    let data = dir.0.join("data");
    let mut broker = Broker::start(&data);
    let kafka = broker.kafka.clone();
    assert!(get(&broker.admin, "/health/ready").starts_with("HTTP/1.1 200"));

    let topic = |arguments: &[&str]| run(&[&["topic"], arguments, &["--bootstrap", &kafka]].concat());
    let (code, out, error) = topic(&["create", "orders", "-p", "3", "-c", "retention.ms=60000"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(out.starts_with("created orders (") && out.ends_with(") with 3 partitions\n"), "{out}");
    let (code, _, error) = topic(&["create", "orders"]);
    assert!(code == Some(1) && error.contains("TopicAlreadyExists (36)"), "{error}");
    let (code, _, error) = topic(&["create", "other", "-c", "retention.ms=soon"]);
    assert!(code == Some(1) && error.contains("InvalidConfig (40)") && error.contains("retention.ms"), "{error}");
    let (code, ..) = topic(&["alter", "orders", "-p", "4", "--unset", "retention.ms", "-c", "max.message.bytes=5000"]);
    assert_eq!(code, Some(0));
    let (_, out, _) = topic(&["describe", "orders", "--json"]);
    let described: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(described["partitions"].as_array().unwrap().len(), 4);
    assert_eq!(described["partitions"][3]["end_offset"], 0);
    assert_eq!(described["configs"], serde_json::json!({ "max.message.bytes": "5000" }));
    // Told behind the answer; longer than this means that it does not come.
    let told = || get(&broker.admin, "/metrics").contains("\nringmain_partitions 4\n");
    let seen = (0..500).any(|_| {
        told() || {
            std::thread::sleep(Duration::from_millis(20));
            false
        }
    });
    assert!(seen, "the new partition is in no metrics");

    let line = refusal(&["log", "verify", data.to_str().unwrap()]);
    assert!(line.contains("in use"), "{line}");
    // Dead at once, and again after a clean stop, its files are whole.
    drop(broker);
    let whole = || {
        let (code, out, error) = run(&["log", "verify", data.to_str().unwrap()]);
        assert_eq!(code, Some(0), "{out}{error}");
        assert!(out.ends_with("0 damaged places\n"), "{out}");
    };
    whole();
    broker = Broker::start(&data);
    let (_, out, _) = run(&["topic", "list", "--bootstrap", &broker.kafka]);
    assert!(out.contains("orders"), "{out}");
    assert_eq!(run(&["topic", "delete", "orders", "--bootstrap", &broker.kafka]).1, "deleted orders\n");
    broker.terminate();
    whole();
    let (code, out, _) = run(&["log", "dump", data.join("journal-1/0.journal").to_str().unwrap()]);
    assert!(code == Some(0) && out.contains("  group ") && out.contains("  log "), "{out}");

    // A journal whose first block is gone is damage, with its name.
    let journal = data.join("journal-1/1.journal");
    let mut bytes = std::fs::read(&journal).unwrap();
    bytes[3] ^= 1;
    std::fs::write(&journal, bytes).unwrap();
    let (code, out, _) = run(&["log", "verify", data.to_str().unwrap()]);
    assert!(code == Some(1) && out.contains("1.journal: position 0"), "{out}");
}

#[test]
fn a_groups_offsets() {
    let dir = Temp::new("group");
    let broker = Broker::start(&dir.0.join("data"));
    let kafka = broker.kafka.clone();
    let group = |arguments: &[&str]| run(&[&["group"], arguments, &["--bootstrap", &kafka]].concat());
    assert_eq!(group(&["list", "--json"]), (Some(0), "[]\n".into(), String::new()));
    assert_eq!(run(&["topic", "create", "orders", "-p", "2", "--bootstrap", &kafka]).0, Some(0));
    // Without a coordinator yet: it is made.
    let (code, out, error) = group(&["reset", "billing", "--topic", "orders", "--to-latest", "--dry-run"]);
    assert!(code == Some(0) && out.contains("nothing was changed"), "{out}{error}");
    assert!(group(&["list", "--json"]).1.starts_with("[]"), "a dry run makes no group");
    let (code, out, error) = group(&["reset", "billing", "--topic", "orders:1", "--to-offset", "0", "--json"]);
    assert!(code == Some(0) && out.contains("\"new_offset\": 0"), "{out}{error}");
    let (code, out, error) = group(&["describe", "billing"]);
    assert!(code == Some(0) && out.starts_with("billing: Classic Empty, 0 members; lag 0"), "{out}{error}");
    assert!(get(&broker.admin, "/metrics").contains("ringmain_groups{shard="));
    let (code, out, _) = group(&["list"]);
    assert!(code == Some(0) && out.lines().any(|line| line.starts_with("billing  Classic")), "{out}");
    assert_eq!(group(&["delete", "billing"]), (Some(0), "deleted billing\n".into(), String::new()));
    for arguments in [&["describe", "billing"][..], &["delete", "billing"], &["reset", "billing", "--to-latest"]] {
        let (code, _, error) = group(arguments);
        assert!(code == Some(1) && error.lines().count() == 1 && error.contains("billing"), "{error}");
    }
}
