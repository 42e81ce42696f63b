//! A blocking connection for the few requests around a measurement.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ringmain_types::ErrorCode;
use ringmain_wire::create_topics::{CreatableTopic, CreatableTopicConfig};
use ringmain_wire::metadata::MetadataRequestTopic;
use ringmain_wire::{
    ApiSpec, CREATE_TOPICS, CreateTopicsRequest, CreateTopicsResponse, Field, METADATA, MetadataRequest,
    MetadataResponse, decode_reply, encode_request,
};

const SILENCE: Duration = Duration::from_secs(30);
const REPLY_BYTES_MAX: usize = 64 << 20;
const CREATE_TOPICS_VERSION: i16 = 7;
const METADATA_VERSION: i16 = 12;
/// Kafka announces a new topic's leaders only after a while.
const LEADERLESS_MAX: Duration = Duration::from_secs(20);

pub struct Control {
    stream: TcpStream,
    correlation: i32,
}

impl Control {
    /// Tries until somebody listens, at most `patience`.
    pub fn open(address: &str, patience: Duration) -> io::Result<Control> {
        let began = Instant::now();
        let stream = loop {
            match TcpStream::connect(address) {
                Ok(stream) => break stream,
                Err(error) if began.elapsed() > patience => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        Ok(Control { stream, correlation: 0 })
    }

    /// Sends a request and returns its reply's frame, without the length prefix.
    fn call<'a, T: Field<'a>>(&mut self, spec: &ApiSpec, version: i16, body: &T) -> io::Result<Vec<u8>> {
        self.correlation += 1;
        let frame = encode_request(spec, version, self.correlation, Some("ringmain-perf"), body).concat();
        self.stream.write_all(&frame)?;
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > REPLY_BYTES_MAX {
            return Err(io::Error::other(format!("a reply of {length} bytes")));
        }
        let mut frame = vec![0; length];
        self.stream.read_exact(&mut frame)?;
        Ok(frame)
    }

    /// Creates a topic and waits until all of its partitions have a leader.
    pub fn create_topic(&mut self, name: &str, partitions: u32, configs: &[(String, String)]) -> io::Result<()> {
        let config = |(name, value): &'_ (String, String)| (name.clone(), value.clone());
        let configs: Vec<(String, String)> = configs.iter().map(config).collect();
        let configs = configs.iter().map(|(name, value)| CreatableTopicConfig { name, value: Some(value) });
        let topic = CreatableTopic {
            name,
            num_partitions: partitions as i32,
            replication_factor: 1,
            configs: configs.collect(),
            ..Default::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic].into(), timeout_ms: 30_000, ..Default::default() };
        let frame = self.call(&CREATE_TOPICS, CREATE_TOPICS_VERSION, &request)?;
        let (_, reply): (_, CreateTopicsResponse<'_>) = reply(&CREATE_TOPICS, CREATE_TOPICS_VERSION, &frame)?;
        for topic in &reply.topics {
            if topic.error_code != ErrorCode::None {
                let message = topic.error_message.unwrap_or_default();
                return Err(io::Error::other(format!("topic {name}: {:?} {message}", topic.error_code)));
            }
        }
        let began = Instant::now();
        while self.leaders(name)? < partitions as usize {
            if began.elapsed() > LEADERLESS_MAX {
                return Err(io::Error::other(format!("topic {name} has partitions without a leader")));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn leaders(&mut self, name: &str) -> io::Result<usize> {
        let topic = MetadataRequestTopic { name: Some(name), ..Default::default() };
        let request = MetadataRequest { topics: Some(vec![topic].into()), ..Default::default() };
        let frame = self.call(&METADATA, METADATA_VERSION, &request)?;
        let (_, reply): (_, MetadataResponse<'_>) = reply(&METADATA, METADATA_VERSION, &frame)?;
        let led = |topic: ringmain_wire::metadata::MetadataResponseTopic<'_>| {
            topic.partitions.iter().filter(|p| p.error_code == ErrorCode::None && p.leader_id.0 >= 0).count()
        };
        Ok(reply.topics.iter().map(led).sum())
    }
}

fn reply<'a, T: Field<'a>>(spec: &ApiSpec, version: i16, frame: &'a [u8]) -> io::Result<(i32, T)> {
    decode_reply(spec, version, frame).map_err(|error| io::Error::other(format!("{} v{version}: {error:?}", spec.name)))
}
