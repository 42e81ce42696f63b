//! Kafka as a peer: one KRaft node from Maven's jars, on a fresh directory.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const POM: &str = include_str!("../../kafka/pom.xml");
/// Kafka's own flags for the JVM, and one gigabyte of heap, its default.
const JAVA: &[&str] = &[
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
];
/// Any cluster id will do.
const CLUSTER: &str = "cmluZ21haW4tcGVlci0wMQ";

#[derive(Clone, Debug)]
pub struct Kafka {
    /// Where its jars are.
    pub jars: PathBuf,
}

impl Kafka {
    /// Uses the jars in `jars`, or has Maven put them there when there are none.
    pub fn fetch(jars: PathBuf) -> io::Result<Kafka> {
        let there = |name: &str| name.starts_with("kafka_2.13-") && name.ends_with(".jar");
        let mut entries = std::fs::read_dir(&jars).into_iter().flatten().flatten();
        if !entries.any(|entry| there(&entry.file_name().to_string_lossy())) {
            println!("fetching Kafka's jars with Maven into {}", jars.display());
            std::fs::create_dir_all(&jars)?;
            let pom = jars.join("pom.xml");
            std::fs::write(&pom, POM)?;
            let mut maven = Command::new("mvn");
            maven.args(["-q", "-B", "-f"]).arg(&pom).arg("dependency:copy-dependencies").arg("-DincludeScope=runtime");
            maven.arg(format!("-DoutputDirectory={}", jars.canonicalize()?.display()));
            run(&mut maven)?;
        }
        Ok(Kafka { jars })
    }

    fn java(&self) -> Command {
        let mut command = Command::new("java");
        command.args(JAVA).arg("-cp").arg(format!("{}/*", self.jars.display()));
        command
    }

    /// Formats `data` when it is new, and returns the command that starts the broker on it. `flush`: before each acknowledgement.
    pub fn command(&self, data: &Path, port: u16, flush: bool) -> io::Result<Command> {
        std::fs::create_dir_all(data)?;
        let properties = data.join("server.properties");
        std::fs::write(&properties, properties_of(data, port, flush))?;
        if !data.join("log/meta.properties").exists() {
            let mut format = self.java();
            format.args(["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c"]).arg(&properties);
            run(format.stdout(Stdio::null()))?;
        }
        let mut command = self.java();
        command.arg("kafka.Kafka").arg(&properties);
        Ok(command)
    }
}

fn properties_of(data: &Path, port: u16, flush: bool) -> String {
    let controller = port + 1;
    let mut text = format!(
        "process.roles=broker,controller\n\
         node.id=1\n\
         controller.quorum.voters=1@127.0.0.1:{controller}\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n\
         controller.listener.names=CONTROLLER\n\
         listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n\
         inter.broker.listener.name=PLAINTEXT\n\
         log.dirs={}/log\n\
         num.network.threads=2\n\
         num.io.threads=2\n\
         offsets.topic.replication.factor=1\n\
         auto.create.topics.enable=false\n",
        data.display()
    );
    if flush {
        text.push_str("log.flush.interval.messages=1\n");
    }
    text
}

fn run(command: &mut Command) -> io::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{name}: {status}"))) }
}
