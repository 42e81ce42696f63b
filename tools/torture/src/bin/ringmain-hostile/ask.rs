//! Plain requests, and what came of them.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use ringmain_batch::{Builder, Codec};
use ringmain_buffer::Buf;
use ringmain_torture::connection::Connection;
use ringmain_types::{ErrorCode, LeaderEpoch, Offset, PartitionIndex, WallMs};
use ringmain_wire::create_topics::{CreatableTopic, CreatableTopicConfig};
use ringmain_wire::fetch::{FetchPartition, FetchTopic};
use ringmain_wire::produce::{PartitionProduceData, TopicProduceData};
use ringmain_wire::{
    CREATE_TOPICS, CreateTopicsRequest, CreateTopicsResponse, DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicsResponse,
    FETCH, FetchRequest, FetchResponse, METADATA, MetadataRequest, MetadataResponse, PRODUCE, ProduceRequest,
    ProduceResponse, RecordBytes,
};

pub const FETCH_VERSION: i16 = 12;
pub const PRODUCE_VERSION: i16 = 12;
const TIMEOUT_MS: i32 = 10_000;

/// A code, and the words that came with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub code: i16,
    pub message: String,
}

impl Answer {
    fn new(code: ErrorCode, message: Option<&str>) -> Answer {
        Answer { code: code.code(), message: message.unwrap_or_default().into() }
    }

    /// As an error that names `what`, unless all is well.
    pub fn ok(&self, what: &str) -> io::Result<()> {
        match self.code {
            0 => Ok(()),
            code => Err(io::Error::other(format!("{what}: error {code} {}", self.message))),
        }
    }
}

fn nothing(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what}: an empty reply"))
}

pub fn create(
    connection: &mut Connection,
    name: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> io::Result<Answer> {
    let (_, answer) =
        create_all(connection, &[name], partitions, configs)?.pop().ok_or_else(|| nothing("CreateTopics"))?;
    Ok(answer)
}

/// All in one request; the answers in the order of the reply, each with its topic's name.
pub fn create_all<N: AsRef<str>>(
    connection: &mut Connection,
    names: &[N],
    partitions: i32,
    configs: &[(&str, &str)],
) -> io::Result<Vec<(String, Answer)>> {
    let topics = names.iter().map(|name| CreatableTopic {
        name: name.as_ref(),
        num_partitions: partitions,
        replication_factor: 1,
        configs: configs.iter().map(|(name, value)| CreatableTopicConfig { name, value: Some(value) }).collect(),
        ..Default::default()
    });
    let request = CreateTopicsRequest { topics: topics.collect(), timeout_ms: TIMEOUT_MS, ..Default::default() };
    let frame = connection.call(&CREATE_TOPICS, 7, &request)?;
    let (_, reply): (i32, CreateTopicsResponse<'_>) = frame.decode(&CREATE_TOPICS, 7)?;
    let answers = reply.topics.iter();
    Ok(answers.map(|topic| (topic.name.into(), Answer::new(topic.error_code, topic.error_message))).collect())
}

/// One that exists already is fine.
pub fn create_topic(connection: &mut Connection, name: &str, partitions: i32) -> io::Result<()> {
    let answer = create(connection, name, partitions, &[])?;
    if answer.code == ErrorCode::TopicAlreadyExists.code() { Ok(()) } else { answer.ok(name) }
}

pub fn delete_topic(connection: &mut Connection, name: &str) -> io::Result<Answer> {
    let request = DeleteTopicsRequest { topic_names: vec![name].into(), timeout_ms: TIMEOUT_MS, ..Default::default() };
    let frame = connection.call(&DELETE_TOPICS, 5, &request)?;
    let (_, reply): (i32, DeleteTopicsResponse<'_>) = frame.decode(&DELETE_TOPICS, 5)?;
    let topic = reply.responses.iter().next().ok_or_else(|| nothing("DeleteTopics"))?;
    Ok(Answer::new(topic.error_code, topic.error_message))
}

/// All topics' names.
pub fn topics(connection: &mut Connection) -> io::Result<Vec<String>> {
    let frame = connection.call(&METADATA, 9, &MetadataRequest { topics: None, ..Default::default() })?;
    let (_, reply): (i32, MetadataResponse<'_>) = frame.decode(&METADATA, 9)?;
    Ok(reply.topics.iter().filter_map(|topic| topic.name.map(str::to_string)).collect())
}

pub fn batch(value: &[u8]) -> Vec<u8> {
    let mut builder = Builder::new(Codec::None, None);
    // Older records would go by retention.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    builder.push(WallMs(now.as_millis() as i64), None, Some(value), &[]);
    builder.encode()
}

/// One batch to each of these partitions; what became of each, in this order, with its base offset.
pub fn produce(connection: &mut Connection, topic: &str, parts: &[(i32, Vec<u8>)]) -> io::Result<Vec<(Answer, i64)>> {
    connection.send(&PRODUCE, PRODUCE_VERSION, &produce_request(topic, parts, -1))?;
    produced(connection)
}

pub fn produce_request<'a>(topic: &'a str, parts: &[(i32, Vec<u8>)], acks: i16) -> ProduceRequest<'a> {
    let data = parts.iter().map(|(index, bytes)| PartitionProduceData {
        index: PartitionIndex(*index),
        records: RecordBytes::Parts(vec![Buf::copy_of(bytes)]),
    });
    let topic = TopicProduceData { name: topic, partition_data: data.collect(), ..Default::default() };
    ProduceRequest { transactional_id: None, acks, timeout_ms: TIMEOUT_MS, topic_data: vec![topic].into() }
}

/// The next reply, which is a produce's.
pub fn produced(connection: &mut Connection) -> io::Result<Vec<(Answer, i64)>> {
    let frame = connection.receive()?;
    let (_, reply): (i32, ProduceResponse<'_>) = frame.decode(&PRODUCE, PRODUCE_VERSION)?;
    let topic = reply.responses.iter().next().ok_or_else(|| nothing("Produce"))?;
    let parts = topic.partition_responses.iter();
    Ok(parts.map(|part| (Answer::new(part.error_code, part.error_message), part.base_offset.0)).collect())
}

/// The record's offset.
pub fn produce_one(connection: &mut Connection, topic: &str, partition: i32, value: &[u8]) -> io::Result<i64> {
    let answers = produce(connection, topic, &[(partition, batch(value))])?;
    let (answer, offset) = answers.first().ok_or_else(|| nothing("Produce"))?;
    answer.ok(&format!("produce to {topic}-{partition}"))?;
    Ok(*offset)
}

pub fn fetch_request<'a>(topic: &'a str, partition: i32, offset: i64, bytes_max: i32) -> FetchRequest<'a> {
    let part = FetchPartition {
        partition: PartitionIndex(partition),
        current_leader_epoch: LeaderEpoch(-1),
        fetch_offset: Offset(offset),
        partition_max_bytes: bytes_max,
        ..Default::default()
    };
    let topic = FetchTopic { topic, partitions: vec![part].into(), ..Default::default() };
    FetchRequest {
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: bytes_max,
        topics: vec![topic].into(),
        ..Default::default()
    }
}

/// What there is from `offset` on, up to 1 MiB.
pub fn fetch_bytes(connection: &mut Connection, topic: &str, partition: i32, offset: i64) -> io::Result<Vec<u8>> {
    let (answer, bytes) = fetch(connection, topic, partition, offset)?;
    answer.ok("fetch")?;
    Ok(bytes)
}

/// The same with the partition's error.
pub fn fetch(connection: &mut Connection, topic: &str, partition: i32, offset: i64) -> io::Result<(Answer, Vec<u8>)> {
    let frame = connection.call(&FETCH, FETCH_VERSION, &fetch_request(topic, partition, offset, 1 << 20))?;
    let (_, reply): (i32, FetchResponse<'_>) = frame.decode(&FETCH, FETCH_VERSION)?;
    let topic = reply.responses.iter().next().ok_or_else(|| nothing("Fetch"))?;
    let part = topic.partitions.iter().next().ok_or_else(|| nothing("Fetch"))?;
    Ok((Answer::new(part.error_code, None), part.records.wire().unwrap_or_default().to_vec()))
}
