//! A blocking connection for the few requests around a measurement.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ringmain_types::{ErrorCode, PartitionIndex};
use ringmain_wire::create_topics::{CreatableTopic, CreatableTopicConfig};
use ringmain_wire::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use ringmain_wire::metadata::MetadataRequestTopic;
use ringmain_wire::{
    API_VERSIONS, ApiSpec, ApiVersionsRequest, ApiVersionsResponse, CREATE_TOPICS, CreateTopicsRequest,
    CreateTopicsResponse, DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicsResponse, FETCH, Field, LIST_OFFSETS,
    ListOffsetsRequest, ListOffsetsResponse, METADATA, MetadataRequest, MetadataResponse, PRODUCE, decode_reply,
    encode_request,
};

/// Creating thousands of partitions takes Kafka minutes.
const SILENCE: Duration = Duration::from_secs(300);
const REPLY_BYTES_MAX: usize = 64 << 20;
/// Kafka announces a new topic's leaders only after a while.
const LEADERLESS_MAX: Duration = Duration::from_secs(60);
/// The newest versions with topic names, so that no topic id is needed.
const NAMED_PRODUCE: i16 = 12;
const NAMED_FETCH: i16 = 12;
const NAMED_DELETE: i16 = 5;
const CREATE: i16 = 7;
const DESCRIBE: i16 = 12;
const ENDS: i16 = 7;
const LATEST: i64 = -1;

/// What both sides speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    pub produce: i16,
    pub fetch: i16,
}

/// The probe's, and those of every broker since Kafka 4.0.
impl Default for Versions {
    fn default() -> Versions {
        Versions { produce: NAMED_PRODUCE, fetch: NAMED_FETCH }
    }
}

/// A partition's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    pub partition: u32,
    pub address: String,
}

pub struct Control {
    stream: TcpStream,
    /// By API: the oldest and newest version that the broker has. Empty until it was asked.
    known: BTreeMap<i16, (i16, i16)>,
    correlation: i32,
}

impl Control {
    /// Tries until somebody listens, at most `patience`.
    pub fn open(address: &str, patience: Duration) -> io::Result<Control> {
        let began = Instant::now();
        let stream = loop {
            match TcpStream::connect(address) {
                Ok(stream) => break stream,
                Err(error) if began.elapsed() >= patience => {
                    return Err(io::Error::new(error.kind(), format!("connect to {address}: {error}")));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        Ok(Control { stream, known: BTreeMap::new(), correlation: 0 })
    }

    /// The newest version of `spec` that both know, at most `most`.
    fn version(&mut self, spec: &ApiSpec, most: i16) -> io::Result<i16> {
        if self.known.is_empty() {
            let frame = self.exchange(&API_VERSIONS, 0, &ApiVersionsRequest::default())?;
            let known: ApiVersionsResponse<'_> = reply(&API_VERSIONS, 0, &frame)?;
            self.known = known.api_keys.iter().map(|api| (api.api_key, (api.min_version, api.max_version))).collect();
        }
        let (oldest, newest) = self.known.get(&spec.key).copied().unwrap_or((i16::MAX, -1));
        let version = newest.min(most).min(spec.versions.1);
        match version >= oldest && version >= spec.versions.0 {
            true => Ok(version),
            false => Err(io::Error::other(format!(
                "the broker has {} in versions {oldest} to {newest}, which are not known here",
                spec.name
            ))),
        }
    }

    pub fn versions(&mut self) -> io::Result<Versions> {
        Ok(Versions { produce: self.version(&PRODUCE, NAMED_PRODUCE)?, fetch: self.version(&FETCH, NAMED_FETCH)? })
    }

    /// Sends a request and returns its version and its reply's frame, without the length prefix.
    fn call<'a, T: Field<'a>>(&mut self, spec: &ApiSpec, most: i16, body: &T) -> io::Result<(i16, Vec<u8>)> {
        let version = self.version(spec, most)?;
        Ok((version, self.exchange(spec, version, body)?))
    }

    fn exchange<'a, T: Field<'a>>(&mut self, spec: &ApiSpec, version: i16, body: &T) -> io::Result<Vec<u8>> {
        self.correlation += 1;
        let frame = encode_request(spec, version, self.correlation, Some("ringmain-perf"), body).concat();
        self.stream.write_all(&frame)?;
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > REPLY_BYTES_MAX {
            return Err(io::Error::other(format!("a reply of {length} bytes: this is no broker of Kafka's protocol")));
        }
        let mut frame = vec![0; length];
        self.stream.read_exact(&mut frame)?;
        Ok(frame)
    }

    /// Any request: a connection that has spoken.
    pub fn greet(&mut self) -> io::Result<()> {
        self.version(&METADATA, DESCRIBE).map(|_| ())
    }

    /// Creates a topic and waits until all of its partitions are served.
    pub fn create_topic(&mut self, name: &str, partitions: u32, configs: &[(String, String)]) -> io::Result<()> {
        let configs = configs.iter().map(|(name, value)| CreatableTopicConfig { name, value: Some(value) });
        let topic = CreatableTopic {
            name,
            num_partitions: partitions as i32,
            // The broker's own.
            replication_factor: -1,
            configs: configs.collect(),
            ..Default::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic].into(), timeout_ms: 240_000, ..Default::default() };
        let (version, frame) = self.call(&CREATE_TOPICS, CREATE, &request)?;
        for topic in &reply::<CreateTopicsResponse<'_>>(&CREATE_TOPICS, version, &frame)?.topics {
            if topic.error_code != ErrorCode::None {
                let message = topic.error_message.unwrap_or_default();
                return Err(io::Error::other(format!("topic {name}: {:?} {message}", topic.error_code)));
            }
        }
        self.await_serving(name, partitions)
    }

    /// Waits until each of a topic's partitions is answered for by its leader: that one is known is not enough, Kafka's says for
    /// seconds that it is none.
    pub fn await_serving(&mut self, name: &str, partitions: u32) -> io::Result<()> {
        let began = Instant::now();
        loop {
            let leaders = self.leaders(name)?;
            if leaders.len() >= partitions as usize && served(name, leaders)? {
                return Ok(());
            }
            if began.elapsed() > LEADERLESS_MAX {
                return Err(io::Error::other(format!("topic {name} has partitions without a leader")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn delete_topic(&mut self, name: &str) -> io::Result<()> {
        let request = DeleteTopicsRequest { topic_names: vec![name].into(), timeout_ms: 240_000, ..Default::default() };
        let (version, frame) = self.call(&DELETE_TOPICS, NAMED_DELETE, &request)?;
        for topic in &reply::<DeleteTopicsResponse<'_>>(&DELETE_TOPICS, version, &frame)?.responses {
            if topic.error_code != ErrorCode::None {
                return Err(io::Error::other(format!("delete topic {name}: {:?}", topic.error_code)));
            }
        }
        Ok(())
    }

    /// Where partitions end; to be asked of their leader.
    pub fn ends(&mut self, name: &str, partitions: &[u32]) -> io::Result<Vec<Result<i64, ErrorCode>>> {
        let of = |partition: &u32| ListOffsetsPartition {
            partition_index: PartitionIndex(*partition as i32),
            timestamp: LATEST,
            ..Default::default()
        };
        let topic = ListOffsetsTopic { name, partitions: partitions.iter().map(of).collect() };
        let request = ListOffsetsRequest { topics: vec![topic].into(), ..Default::default() };
        let (version, frame) = self.call(&LIST_OFFSETS, ENDS, &request)?;
        let reply: ListOffsetsResponse<'_> = reply(&LIST_OFFSETS, version, &frame)?;
        let mut ends: BTreeMap<i32, Result<i64, ErrorCode>> = BTreeMap::new();
        for topic in &reply.topics {
            for partition in &topic.partitions {
                let end = match partition.error_code {
                    ErrorCode::None => Ok(partition.offset.0),
                    code => Err(code),
                };
                ends.insert(partition.partition_index.0, end);
            }
        }
        let missing = || io::Error::other("a reply to ListOffsets without what was asked for");
        partitions.iter().map(|partition| ends.remove(&(*partition as i32)).ok_or_else(missing)).collect()
    }

    /// Of the partitions that have one, in their order.
    pub fn leaders(&mut self, name: &str) -> io::Result<Vec<Leader>> {
        let topic = MetadataRequestTopic { name: Some(name), ..Default::default() };
        let request = MetadataRequest {
            topics: Some(vec![topic].into()),
            allow_auto_topic_creation: false,
            ..Default::default()
        };
        let (version, frame) = self.call(&METADATA, DESCRIBE, &request)?;
        let reply: MetadataResponse<'_> = reply(&METADATA, version, &frame)?;
        let address = |broker: ringmain_wire::metadata::MetadataResponseBroker<'_>| {
            (broker.node_id, format!("{}:{}", broker.host, broker.port))
        };
        let brokers: BTreeMap<_, _> = reply.brokers.iter().map(address).collect();
        let mut leaders = Vec::new();
        for topic in &reply.topics {
            for partition in topic.partitions.iter().filter(|partition| partition.error_code == ErrorCode::None) {
                if let Some(address) = brokers.get(&partition.leader_id) {
                    leaders.push(Leader { partition: partition.partition_index.0 as u32, address: address.clone() });
                }
            }
        }
        leaders.sort_by_key(|leader| leader.partition);
        Ok(leaders)
    }
}

/// Whether every partition's leader answers for it.
fn served(name: &str, leaders: Vec<Leader>) -> io::Result<bool> {
    let mut brokers: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for leader in leaders {
        brokers.entry(leader.address).or_default().push(leader.partition);
    }
    for (address, partitions) in brokers {
        let ends = Control::open(&address, Duration::from_secs(5))?.ends(name, &partitions)?;
        if ends.iter().any(Result::is_err) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn reply<'a, T: Field<'a>>(spec: &ApiSpec, version: i16, frame: &'a [u8]) -> io::Result<T> {
    let decoded = decode_reply(spec, version, frame);
    decoded.map(|(_, body)| body).map_err(|error| io::Error::other(format!("{} v{version}: {error:?}", spec.name)))
}
