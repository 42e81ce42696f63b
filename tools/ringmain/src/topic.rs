//! `ringmain topic ...`.

use std::collections::BTreeMap;
use std::io::Write;

use ringmain_types::{BrokerId, ErrorCode, LeaderEpoch, PartitionIndex, TopicId};
use ringmain_wire::create_partitions::CreatePartitionsTopic;
use ringmain_wire::create_topics::{CreatableTopic, CreatableTopicConfig};
use ringmain_wire::delete_topics::DeleteTopicState;
use ringmain_wire::describe_configs::DescribeConfigsResource;
use ringmain_wire::describe_log_dirs::DescribableLogDirTopic;
use ringmain_wire::incremental_alter_configs::{AlterConfigsResource, AlterableConfig};
use ringmain_wire::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use ringmain_wire::metadata::{MetadataRequestTopic, MetadataResponseTopic};
use ringmain_wire::*;
use serde_json::{Value, json};

use crate::cli::{Connect, TopicCommand};
use crate::client::{Client, ClientError, REQUEST_TIMEOUT_MS, check};

/// Kafka's resource type of topics in the config APIs.
const TOPIC: i8 = 2;
/// Kafka's config operations.
const SET: i8 = 0;
const UNSET: i8 = 1;
/// Kafka's config source of a topic's own configs.
const SOURCE_TOPIC: i8 = 1;
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;

/// A line on standard output. Who closes it (`| head`) has seen enough, which is no error.
macro_rules! say {
    ($($words:tt)*) => { drop(writeln!(std::io::stdout(), $($words)*)) };
}

/// Prints what came of it to standard output.
pub fn run(command: &TopicCommand) -> Result<(), ClientError> {
    match command {
        TopicCommand::Create { name, partitions, replication_factor, config, connect } => {
            let (partitions, replicas) = (partitions.unwrap_or(-1), replication_factor.unwrap_or(-1));
            create(connect, name, partitions, replicas, config)
        }
        TopicCommand::List { connect } => list(connect),
        TopicCommand::Describe { name, all, connect } => describe(connect, name, *all),
        TopicCommand::Alter { name, config, unset, partitions, connect } => {
            alter(connect, name, config, unset, *partitions)
        }
        TopicCommand::Delete { names, connect } => delete(connect, names),
    }
}

fn create(
    connect: &Connect,
    name: &str,
    partitions: i32,
    replicas: i16,
    configs: &[(String, String)],
) -> Result<(), ClientError> {
    let mut client = Client::connect(&connect.bootstrap)?;
    let configs = configs.iter().map(|(name, value)| CreatableTopicConfig { name, value: Some(value) }).collect();
    let topic = CreatableTopic {
        name,
        num_partitions: partitions,
        replication_factor: replicas,
        configs,
        ..Default::default()
    };
    let request =
        CreateTopicsRequest { topics: vec![topic].into(), timeout_ms: REQUEST_TIMEOUT_MS, ..Default::default() };
    let reply = client.call(&CREATE_TOPICS, &request)?;
    for topic in &reply.read::<CreateTopicsResponse<'_>>()?.topics {
        check(topic.name, topic.error_code, topic.error_message)?;
        if connect.json {
            let (id, partitions) = (topic.topic_id.to_string(), topic.num_partitions);
            print_json(&json!({ "name": topic.name, "topic_id": id, "partitions": partitions }));
        } else {
            say!("created {} ({}) with {} partitions", topic.name, topic.topic_id, topic.num_partitions);
        }
    }
    Ok(())
}

fn list(connect: &Connect) -> Result<(), ClientError> {
    let mut client = Client::connect(&connect.bootstrap)?;
    let reply = client.call(&METADATA, &MetadataRequest { allow_auto_topic_creation: false, ..Default::default() })?;
    let metadata: MetadataResponse<'_> = reply.read()?;
    let mut topics: Vec<_> = metadata.topics.iter().filter_map(|topic| Some((topic.name?, topic))).collect();
    topics.sort_by_key(|(name, _)| *name);
    if connect.json {
        let topics: Vec<_> = topics.iter().map(|(name, topic)| json!({ "name": name, "topic_id": topic.topic_id.to_string(), "partitions": topic.partitions.len(), "internal": topic.is_internal })).collect();
        print_json(&Value::from(topics));
    } else {
        let width = topics.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(5);
        say!("{:width$}  PARTITIONS  ID", "TOPIC");
        for (name, topic) in topics {
            say!("{name:width$}  {:10}  {}", topic.partitions.len(), topic.topic_id);
        }
    }
    Ok(())
}

/// One partition as `describe` shows it; what the broker did not say is `None`.
struct Described {
    index: i32,
    leader: i32,
    epoch: i32,
    replicas: Vec<i32>,
    isr: Vec<i32>,
    error: ErrorCode,
    start: Option<i64>,
    end: Option<i64>,
    bytes: Option<i64>,
}

fn describe(connect: &Connect, name: &str, all: bool) -> Result<(), ClientError> {
    let mut client = Client::connect(&connect.bootstrap)?;
    let asked = MetadataRequestTopic { name: Some(name), ..Default::default() };
    let request =
        MetadataRequest { topics: Some(vec![asked].into()), allow_auto_topic_creation: false, ..Default::default() };
    let reply = client.call(&METADATA, &request)?;
    let metadata: MetadataResponse<'_> = reply.read()?;
    let topic = metadata.topics.iter().next().unwrap_or_default();
    check(name, topic.error_code, None)?;

    let mut partitions = described(&topic);
    let starts = offsets(&mut client, name, &partitions, EARLIEST)?;
    let ends = offsets(&mut client, name, &partitions, LATEST)?;
    let sizes = sizes(&mut client, name, &partitions)?;
    for partition in &mut partitions {
        partition.start = starts.get(&partition.index).copied();
        partition.end = ends.get(&partition.index).copied();
        partition.bytes = sizes.get(&partition.index).copied();
    }
    let configs = configs(&mut client, name, all)?;
    if connect.json {
        print_json(&describe_json(name, topic.topic_id, &partitions, &configs));
    } else {
        say!("{}", describe_text(name, topic.topic_id, &partitions, &configs).trim_end());
    }
    Ok(())
}

fn described(topic: &MetadataResponseTopic<'_>) -> Vec<Described> {
    let ids = |brokers: &Array<'_, BrokerId>| brokers.iter().map(|broker| broker.0).collect();
    let mut partitions: Vec<_> = topic
        .partitions
        .iter()
        .map(|partition| Described {
            index: partition.partition_index.0,
            leader: partition.leader_id.0,
            epoch: partition.leader_epoch.0,
            replicas: ids(&partition.replica_nodes),
            isr: ids(&partition.isr_nodes),
            error: partition.error_code,
            start: None,
            end: None,
            bytes: None,
        })
        .collect();
    partitions.sort_by_key(|partition| partition.index);
    partitions
}

fn offsets(
    client: &mut Client,
    name: &str,
    partitions: &[Described],
    timestamp: i64,
) -> Result<BTreeMap<i32, i64>, ClientError> {
    let ask = |partition: &Described| ListOffsetsPartition {
        partition_index: PartitionIndex(partition.index),
        current_leader_epoch: LeaderEpoch(-1),
        timestamp,
    };
    let topic = ListOffsetsTopic { name, partitions: partitions.iter().map(ask).collect() };
    let request = ListOffsetsRequest {
        replica_id: BrokerId(-1),
        topics: vec![topic].into(),
        timeout_ms: REQUEST_TIMEOUT_MS,
        ..Default::default()
    };
    let reply = client.call(&LIST_OFFSETS, &request)?;
    let mut offsets = BTreeMap::new();
    for topic in &reply.read::<ListOffsetsResponse<'_>>()?.topics {
        let known = topic.partitions.iter().filter(|partition| partition.error_code == ErrorCode::None);
        offsets.extend(known.map(|partition| (partition.partition_index.0, partition.offset.0)));
    }
    Ok(offsets)
}

fn sizes(client: &mut Client, name: &str, partitions: &[Described]) -> Result<BTreeMap<i32, i64>, ClientError> {
    let indexes = partitions.iter().map(|partition| PartitionIndex(partition.index)).collect();
    let topics = vec![DescribableLogDirTopic { topic: name, partitions: indexes }];
    let reply = client.call(&DESCRIBE_LOG_DIRS, &DescribeLogDirsRequest { topics: Some(topics.into()) })?;
    let mut sizes = BTreeMap::new();
    for dir in &reply.read::<DescribeLogDirsResponse<'_>>()?.results {
        for topic in dir.topics.iter().filter(|topic| topic.name == name) {
            sizes.extend(topic.partitions.iter().map(|one| (one.partition_index.0, one.partition_size)));
        }
    }
    Ok(sizes)
}

/// Names, values and whether the topic itself was given them.
fn configs(client: &mut Client, name: &str, all: bool) -> Result<Vec<(String, String, bool)>, ClientError> {
    let resource = DescribeConfigsResource { resource_type: TOPIC, resource_name: name, configuration_keys: None };
    let request = DescribeConfigsRequest { resources: vec![resource].into(), ..Default::default() };
    let reply = client.call(&DESCRIBE_CONFIGS, &request)?;
    let mut configs = Vec::new();
    for result in &reply.read::<DescribeConfigsResponse<'_>>()?.results {
        check(name, result.error_code, result.error_message)?;
        for config in &result.configs {
            let own = config.config_source == SOURCE_TOPIC;
            if own || all {
                configs.push((config.name.to_owned(), config.value.unwrap_or_default().to_owned(), own));
            }
        }
    }
    configs.sort();
    Ok(configs)
}

fn describe_json(name: &str, id: TopicId, partitions: &[Described], configs: &[(String, String, bool)]) -> Value {
    let partitions: Vec<_> = partitions
        .iter()
        .map(|one| {
            json!({
                "partition": one.index, "leader": one.leader, "leader_epoch": one.epoch,
                "replicas": one.replicas, "isr": one.isr, "error": one.error as i16,
                "start_offset": one.start, "end_offset": one.end, "bytes": one.bytes,
            })
        })
        .collect();
    let configs: serde_json::Map<_, _> =
        configs.iter().map(|(name, value, _)| (name.clone(), Value::from(value.as_str()))).collect();
    json!({ "name": name, "topic_id": id.to_string(), "partitions": partitions, "configs": configs })
}

fn describe_text(name: &str, id: TopicId, partitions: &[Described], configs: &[(String, String, bool)]) -> String {
    let mut text = format!("{name} ({id})\n");
    for (name, value, own) in configs {
        text += &format!("  {name} = {value}{}\n", if *own { "" } else { "  (default)" });
    }
    text += "PARTITION  LEADER  EPOCH  REPLICAS  ISR  START  END  BYTES\n";
    let or_dash = |number: Option<i64>| number.map_or("-".into(), |number| number.to_string());
    let joined = |ids: &[i32]| ids.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
    for one in partitions {
        let (start, end, bytes) = (or_dash(one.start), or_dash(one.end), or_dash(one.bytes));
        let (replicas, isr) = (joined(&one.replicas), joined(&one.isr));
        text += &format!(
            "{:9}  {:6}  {:5}  {replicas:8}  {isr:3}  {start:>5}  {end:>3}  {bytes:>5}",
            one.index, one.leader, one.epoch
        );
        if one.error != ErrorCode::None {
            text += &format!("  {:?}", one.error);
        }
        text.push('\n');
    }
    text
}

fn alter(
    connect: &Connect,
    name: &str,
    set: &[(String, String)],
    unset: &[String],
    partitions: Option<i32>,
) -> Result<(), ClientError> {
    if set.is_empty() && unset.is_empty() && partitions.is_none() {
        let options = "--config, --unset or --partitions";
        return Err(ClientError::NothingToDo { what: name.into(), options });
    }
    let mut client = Client::connect(&connect.bootstrap)?;
    if !set.is_empty() || !unset.is_empty() {
        let set = set.iter().map(|(name, value)| AlterableConfig { name, config_operation: SET, value: Some(value) });
        let unset = unset.iter().map(|name| AlterableConfig { name, config_operation: UNSET, value: None });
        let resource =
            AlterConfigsResource { resource_type: TOPIC, resource_name: name, configs: set.chain(unset).collect() };
        let request = IncrementalAlterConfigsRequest { resources: vec![resource].into(), validate_only: false };
        let reply = client.call(&INCREMENTAL_ALTER_CONFIGS, &request)?;
        for resource in &reply.read::<IncrementalAlterConfigsResponse<'_>>()?.responses {
            check(name, resource.error_code, resource.error_message)?;
        }
    }
    if let Some(count) = partitions {
        let topics = vec![CreatePartitionsTopic { name, count, assignments: None }].into();
        let request = CreatePartitionsRequest { topics, timeout_ms: REQUEST_TIMEOUT_MS, validate_only: false };
        let reply = client.call(&CREATE_PARTITIONS, &request)?;
        for result in &reply.read::<CreatePartitionsResponse<'_>>()?.results {
            check(name, result.error_code, result.error_message)?;
        }
    }
    if connect.json {
        return describe(connect, name, false);
    }
    say!("altered {name}");
    Ok(())
}

fn delete(connect: &Connect, names: &[String]) -> Result<(), ClientError> {
    let mut client = Client::connect(&connect.bootstrap)?;
    // By name, in the field that the version in use has.
    let request = DeleteTopicsRequest {
        topics: names.iter().map(|name| DeleteTopicState { name: Some(name), topic_id: TopicId::NONE }).collect(),
        topic_names: names.iter().map(String::as_str).collect(),
        timeout_ms: REQUEST_TIMEOUT_MS,
    };
    let reply = client.call(&DELETE_TOPICS, &request)?;
    let mut deleted = Vec::new();
    let mut first_error = None;
    for result in &reply.read::<DeleteTopicsResponse<'_>>()?.responses {
        let name = result.name.unwrap_or_default();
        match check(name, result.error_code, result.error_message) {
            Ok(()) => deleted.push(name.to_owned()),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    if connect.json {
        print_json(&json!({ "deleted": deleted }));
    } else {
        deleted.iter().for_each(|name| say!("deleted {name}"));
    }
    first_error.map_or(Ok(()), Err)
}

fn print_json(value: &Value) {
    say!("{value:#}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_shown_as_text_and_as_json() {
        let partition = |index, error, known: Option<i64>| Described {
            index,
            leader: 1,
            epoch: 4,
            replicas: vec![1, 2],
            isr: vec![1],
            error,
            start: known,
            end: known.map(|known| known + 5),
            bytes: known,
        };
        let partitions = [partition(0, ErrorCode::None, Some(7)), partition(1, ErrorCode::LeaderNotAvailable, None)];
        let configs = [("cleanup.policy".into(), "delete".into(), false), ("retention.ms".into(), "1".into(), true)];
        assert_eq!(
            describe_text("t", TopicId::METADATA, &partitions, &configs),
            "t (AAAAAAAAAAAAAAAAAAAAAQ)
  cleanup.policy = delete  (default)
  retention.ms = 1
PARTITION  LEADER  EPOCH  REPLICAS  ISR  START  END  BYTES
        0       1      4  1,2       1        7   12      7
        1       1      4  1,2       1        -    -      -  LeaderNotAvailable
"
        );
        let shown = describe_json("t", TopicId::METADATA, &partitions, &configs);
        assert_eq!(shown["partitions"][0]["end_offset"], 12);
        assert_eq!(shown["partitions"][1]["end_offset"], Value::Null);
        assert_eq!(shown["partitions"][1]["error"], 5);
        assert_eq!(shown["configs"]["retention.ms"], "1");
    }
}
