//! Names, counts and configs that are not allowed: Kafka's code, and a message that says what is.

use ringmain_torture::connection::Connection;
use ringmain_wire::create_partitions::CreatePartitionsTopic;
use ringmain_wire::incremental_alter_configs::{AlterConfigsResource, AlterableConfig};
use ringmain_wire::{
    CREATE_PARTITIONS, CreatePartitionsRequest, CreatePartitionsResponse, INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};

use crate::ask::{Answer, create, create_all, create_topic, delete_topic, topics};
use crate::process::{PATIENCE, run};
use crate::suite::{Case, Outcome, case, fail, must};
use crate::world::World;

pub const CASES: &[Case] = &[
    case("illegal topic names get 17 and what is allowed", names),
    case("illegal partition counts get 37 and what is allowed", partitions),
    case("unknown and malformed configs get 40 and what is allowed", configs),
    case("one illegal topic of a request fails alone", alone),
    case("errors of admin requests are counted in /metrics", counted),
    case("the program's own errors are one line", own),
];

fn names(world: &mut World) -> Outcome {
    let mut connection = world.connect()?;
    let long = "a".repeat(250);
    let illegal = [
        ("", "empty"),
        (".", "'.'"),
        ("..", "'..'"),
        ("a b", "ASCII letters"),
        ("a/b", "ASCII letters"),
        ("../../etc", "ASCII letters"),
        ("a\0b", "ASCII letters"),
        ("a\nb", "ASCII letters"),
        ("é", "ASCII letters"),
        (&long, "249"),
    ];
    for (name, says) in illegal {
        let answer = create(&mut connection, name, 1, &[])?;
        refused(name, &answer, 17, says)?;
        must(!answer.message.contains(['\0', '\n']), || format!("a message with the name's own bytes: {answer:?}"))?;
    }
    must(create(&mut connection, &long[1..], 1, &[])?.code == 0, || "249 characters are legal".into())?;
    delete_topic(&mut connection, &long[1..])?.ok("delete it")?;
    create_topic(&mut connection, "same.name", 1)?;
    refused("same.name", &create(&mut connection, "same.name", 1, &[])?, 36, "same.name")?;
    // Their metrics would have one name.
    refused("same_name", &create(&mut connection, "same_name", 1, &[])?, 17, "same.name")
}

fn partitions(world: &mut World) -> Outcome {
    let mut connection = world.connect()?;
    for count in [0, -2, i32::MIN] {
        refused(&count.to_string(), &create(&mut connection, "counted", count, &[])?, 37, "larger than 0")?;
    }
    for count in [10_001, i32::MAX] {
        refused(&count.to_string(), &create(&mut connection, "counted", count, &[])?, 44, "10000")?;
    }
    create_topic(&mut connection, "counted", 2)?;
    for (count, says) in [(2, "2"), (1, "2"), (0, "2"), (-1, "2"), (i32::MAX, "10000")] {
        let answer = add_partitions(&mut connection, "counted", count)?;
        must(answer.code != 0 && answer.message.contains(says), || format!("{count}: {answer:?}"))?;
    }
    Ok(())
}

fn add_partitions(connection: &mut Connection, name: &str, count: i32) -> std::io::Result<Answer> {
    let topic = CreatePartitionsTopic { name, count, assignments: None };
    let request = CreatePartitionsRequest { topics: vec![topic].into(), timeout_ms: 10_000, validate_only: false };
    let frame = connection.call(&CREATE_PARTITIONS, 3, &request)?;
    let (_, reply): (i32, CreatePartitionsResponse<'_>) = frame.decode(&CREATE_PARTITIONS, 3)?;
    let result = reply.results.iter().next().ok_or(std::io::ErrorKind::InvalidData)?;
    Ok(Answer { code: result.error_code.code(), message: result.error_message.unwrap_or_default().into() })
}

fn configs(world: &mut World) -> Outcome {
    let mut connection = world.connect()?;
    let illegal = [
        ("no.such.config", "1", "retention.ms"),
        ("retention.ms", "soon", "-1"),
        ("retention.ms", "-2", "-1"),
        ("cleanup.policy", "shred", "delete"),
        ("compression.type", "rar", "zstd"),
        ("segment.bytes", "-1", "segment.bytes"),
        ("segment.bytes", "99999999999", "segment.bytes"),
        ("max.message.bytes", "-1", "max.message.bytes"),
        ("min.insync.replicas", "0", "1"),
        ("message.timestamp.type", "Yesterday", "LogAppendTime"),
        ("unclean.leader.election.enable", "perhaps", "true"),
        ("flush", "never", "group"),
    ];
    create_topic(&mut connection, "configured", 1)?;
    for (name, value, says) in illegal {
        let what = format!("{name}={value}");
        let answer = create(&mut connection, "not.configured", 1, &[(name, value)])?;
        refused(&what, &answer, 40, says)?;
        must(answer.message.contains(name), || format!("{what} is not named: {answer:?}"))?;
        refused(&what, &set(&mut connection, "configured", (name, value))?, 40, says)?;
    }
    must(!topics(&mut connection)?.contains(&"not.configured".to_string()), || "a refused topic exists".into())?;
    refused("a topic that is not there", &set(&mut connection, "not.there", ("retention.ms", "1"))?, 3, "")
}

fn set(connection: &mut Connection, topic: &str, (name, value): (&str, &str)) -> std::io::Result<Answer> {
    let config = AlterableConfig { name, config_operation: 0, value: Some(value) };
    let resource = AlterConfigsResource { resource_type: 2, resource_name: topic, configs: vec![config].into() };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource].into(), validate_only: false };
    let frame = connection.call(&INCREMENTAL_ALTER_CONFIGS, 1, &request)?;
    let (_, reply): (i32, IncrementalAlterConfigsResponse<'_>) = frame.decode(&INCREMENTAL_ALTER_CONFIGS, 1)?;
    let result = reply.responses.iter().next().ok_or(std::io::ErrorKind::InvalidData)?;
    Ok(Answer { code: result.error_code.code(), message: result.error_message.unwrap_or_default().into() })
}

fn refused(what: &str, answer: &Answer, code: i16, says: &str) -> Outcome {
    must(answer.code == code && answer.message.contains(says), || {
        format!("{}: {answer:?} instead of {code} with {says:?}", what.escape_debug())
    })
}

fn alone(world: &mut World) -> Outcome {
    let mut connection = world.connect()?;
    let names = ["alone.1", "a b", "alone.2", "alone.3", "alone.3"];
    let answers = create_all(&mut connection, &names, 1, &[])?;
    // The one that is named twice is answered once.
    must(answers.len() == names.len() - 1, || format!("{} answers", answers.len()))?;
    for (name, answer) in answers {
        let expected = match name.as_str() {
            "alone.1" | "alone.2" => 0,
            "a b" => 17,
            // Twice in one request: nobody can say which was meant.
            _ => 42,
        };
        must(answer.code == expected, || format!("{name}: {answer:?} instead of {expected}"))?;
    }
    Ok(())
}

fn counted(world: &mut World) -> Outcome {
    let mut connection = world.connect()?;
    create(&mut connection, "a b", 1, &[])?;
    delete_topic(&mut connection, "not.there")?;
    set(&mut connection, "not.there", ("retention.ms", "1"))?;
    add_partitions(&mut connection, "not.there", 3)?;
    let broker = world.broker()?;
    let began = std::time::Instant::now();
    loop {
        let page = get(&broker.admin, "/metrics")?;
        let errors = |api: &str| format!("ringmain_request_errors_total{{api=\"{api}\",error=");
        let apis = ["CreateTopics", "DeleteTopics", "IncrementalAlterConfigs", "CreatePartitions"];
        match apis.iter().find(|api| !page.contains(&errors(api))) {
            None => break,
            Some(api) if began.elapsed() > PATIENCE => return fail(format!("errors of {api} are not counted")),
            Some(_) => std::thread::sleep(std::time::Duration::from_millis(50)),
        }
    }
    must(get(&broker.admin, "/health/ready")?.contains("200 OK"), || "/health/ready".into())?;
    must(get(&broker.admin, "/health/live")?.contains("200 OK"), || "/health/live".into())?;
    must(get(&broker.admin, "/other")?.contains("404"), || "/other".into())
}

/// Head and body.
pub fn get(address: &str, path: &str) -> std::io::Result<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn own(world: &mut World) -> Outcome {
    let (address, admin) = (world.broker()?.address.clone(), world.broker()?.admin.clone());
    let wrong: [(&[&str], &str, &str); 9] = [
        (&["topic", "create", "a b"], &address, "ASCII letters"),
        (&["topic", "create", "x", "-c", "retention.ms=soon"], &address, "retention.ms"),
        (&["topic", "create", "x", "-p", "20000"], &address, "10000"),
        (&["topic", "describe", "not.there"], &address, "not.there"),
        (&["topic", "delete", "not.there"], &address, "not.there"),
        (&["topic", "alter", "beside"], &address, "--config"),
        (&["topic", "alter", "not.there", "-p", "3"], &address, "not.there"),
        (&["topic", "list"], "127.0.0.1:1", "--bootstrap"),
        (&["topic", "list"], &admin, "Kafka's protocol"),
    ];
    for (words, bootstrap, says) in wrong {
        let mut command = std::process::Command::new(&world.program);
        let (code, text) = run(command.args(words).args(["--bootstrap", bootstrap]))?;
        let one = text.lines().count() == 1 && text.starts_with("ringmain: ") && text.contains(says);
        must(code == Some(1) && one, || format!("{words:?}: code {code:?}, {says:?} is not in {text:?}"))?;
    }
    Ok(())
}
