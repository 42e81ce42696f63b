//! The records of the metadata log: each is the value of one record of a batch.
//!
//! Layout: a format version (1 byte), the length of what follows (4 bytes, little-endian), then the record archived by rkyv
//! (little-endian, unaligned). Reading validates before anything is looked at. A version's stored form never changes: a new one
//! gets a new number, and the old ones stay readable.

use ringmain_types::*;
use rkyv::rancor::Error as Archiving;

pub const FORMAT_VERSION: u8 = 2;
const HEADER_BYTES: usize = 5;
/// A bound on what is read: the largest record is a config value, or all topics that are remembered as removed.
pub(crate) const RECORD_BYTES_MAX: usize = 1 << 20;
const _: () = assert!(crate::config::VALUE_BYTES_MAX * 2 <= RECORD_BYTES_MAX);

/// One change of the cluster's metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The first of a log, and of a state that is said again: what it is and which records may follow.
    ClusterFormat {
        version: u16,
        cluster_id: String,
    },
    /// A broker's new life; its epoch is this record's offset.
    RegisterBroker {
        broker: BrokerId,
        host: String,
        port: u16,
        rack: Option<String>,
    },
    Topic {
        id: TopicId,
        name: String,
    },
    /// A partition's whole state, new or changed. Indexes of a topic come without a gap.
    Partition {
        partition: Partition,
        replicas: Vec<BrokerId>,
        isr: Vec<BrokerId>,
        leader: BrokerId,
        leader_epoch: LeaderEpoch,
        partition_epoch: PartitionEpoch,
    },
    RemoveTopic {
        id: TopicId,
    },
    /// `None` takes the value back.
    Config {
        resource: ConfigResource,
        name: String,
        value: Option<String>,
    },
    /// Producer ids below `next` are given out or lost.
    ProducerIds {
        next: ProducerId,
    },
    /// A broker's life that was registered before: only where the state is said again.
    Broker {
        broker: BrokerId,
        epoch: BrokerEpoch,
        host: String,
        port: u16,
        rack: Option<String>,
    },
    /// All topics that are remembered as removed, oldest first: only where the state is said again.
    Removed {
        topics: Vec<TopicId>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigResource {
    Topic(TopicId),
    /// `None` is the default of all brokers.
    Broker(Option<BrokerId>),
    Group(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordError {
    Short {
        bytes: usize,
    },
    /// Written by a newer Ringmain (or not by one).
    Version {
        version: u8,
        known: u8,
    },
    Length {
        claimed: u32,
        bytes: usize,
    },
    Invalid {
        cause: String,
    },
}

impl std::fmt::Display for RecordError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RecordError::Short { bytes } => write!(f, "a metadata record of {bytes} bytes has no header"),
            RecordError::Version { version, known } => {
                write!(f, "a metadata record of format {version}; this version reads up to {known}")
            }
            RecordError::Length { claimed, bytes } => {
                write!(f, "a metadata record claims {claimed} bytes and has {bytes}")
            }
            RecordError::Invalid { cause } => write!(f, "a metadata record that does not validate: {cause}"),
        }
    }
}

impl Record {
    pub fn encode(&self) -> Vec<u8> {
        let (version, body) = match v2::Stored::of(self) {
            Some(stored) => (2, rkyv::to_bytes::<Archiving>(&stored)),
            None => (1, rkyv::to_bytes::<Archiving>(&v1::Stored::from(self))),
        };
        let body = body.expect("archiving into memory does not fail");
        // What is decided is bounded; a record that could not be read again must never be written.
        assert!(body.len() <= RECORD_BYTES_MAX);
        let mut out = Vec::with_capacity(HEADER_BYTES + body.len());
        out.push(version);
        out.extend((body.len() as u32).to_le_bytes());
        out.extend(&body[..]);
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Record, RecordError> {
        let Some((header, body)) = bytes.split_at_checked(HEADER_BYTES) else {
            return Err(RecordError::Short { bytes: bytes.len() });
        };
        if !(1..=FORMAT_VERSION).contains(&header[0]) {
            return Err(RecordError::Version { version: header[0], known: FORMAT_VERSION });
        }
        let claimed = u32::from_le_bytes([header[1], header[2], header[3], header[4]]);
        if claimed as usize != body.len() || body.len() > RECORD_BYTES_MAX {
            return Err(RecordError::Length { claimed, bytes: body.len() });
        }
        let decoded = match header[0] {
            1 => rkyv::from_bytes::<v1::Stored, Archiving>(body).map(Record::from),
            _ => rkyv::from_bytes::<v2::Stored, Archiving>(body).map(Record::from),
        };
        decoded.map_err(|error| RecordError::Invalid { cause: error.to_string() })
    }
}

/// The stored form of format 1: bare integers, so that no change of a type elsewhere changes bytes on disk.
mod v1 {
    use super::*;
    use rkyv::{Archive, Deserialize, Serialize};

    #[derive(Archive, Serialize, Deserialize)]
    pub(super) enum Stored {
        ClusterFormat {
            version: u16,
            cluster_id: String,
        },
        RegisterBroker {
            broker: i32,
            host: String,
            port: u16,
            rack: Option<String>,
        },
        Topic {
            id: u128,
            name: String,
        },
        Partition {
            topic: u128,
            index: i32,
            replicas: Vec<i32>,
            isr: Vec<i32>,
            leader: i32,
            leader_epoch: i32,
            partition_epoch: i32,
        },
        RemoveTopic {
            id: u128,
        },
        TopicConfig {
            id: u128,
            name: String,
            value: Option<String>,
        },
        BrokerConfig {
            broker: Option<i32>,
            name: String,
            value: Option<String>,
        },
        ProducerIds {
            next: i64,
        },
        GroupConfig {
            group: String,
            name: String,
            value: Option<String>,
        },
    }

    fn ids(brokers: &[BrokerId]) -> Vec<i32> {
        brokers.iter().map(|broker| broker.0).collect()
    }
    fn brokers(ids: Vec<i32>) -> Vec<BrokerId> {
        ids.into_iter().map(BrokerId).collect()
    }

    impl From<&Record> for Stored {
        fn from(record: &Record) -> Stored {
            match record {
                Record::ClusterFormat { version, cluster_id } => {
                    Stored::ClusterFormat { version: *version, cluster_id: cluster_id.clone() }
                }
                Record::RegisterBroker { broker, host, port, rack } => {
                    Stored::RegisterBroker { broker: broker.0, host: host.clone(), port: *port, rack: rack.clone() }
                }
                Record::Topic { id, name } => Stored::Topic { id: id.0, name: name.clone() },
                Record::Partition { partition, replicas, isr, leader, leader_epoch, partition_epoch } => {
                    Stored::Partition {
                        topic: partition.topic.0,
                        index: partition.index.0,
                        replicas: ids(replicas),
                        isr: ids(isr),
                        leader: leader.0,
                        leader_epoch: leader_epoch.0,
                        partition_epoch: partition_epoch.0,
                    }
                }
                Record::RemoveTopic { id } => Stored::RemoveTopic { id: id.0 },
                Record::Config { resource: ConfigResource::Topic(id), name, value } => {
                    Stored::TopicConfig { id: id.0, name: name.clone(), value: value.clone() }
                }
                Record::Config { resource: ConfigResource::Broker(broker), name, value } => Stored::BrokerConfig {
                    broker: broker.map(|broker| broker.0),
                    name: name.clone(),
                    value: value.clone(),
                },
                Record::Config { resource: ConfigResource::Group(group), name, value } => {
                    Stored::GroupConfig { group: group.clone(), name: name.clone(), value: value.clone() }
                }
                Record::ProducerIds { next } => Stored::ProducerIds { next: next.0 },
                Record::Broker { .. } | Record::Removed { .. } => unreachable!("a record of format 2"),
            }
        }
    }

    impl From<Stored> for Record {
        fn from(stored: Stored) -> Record {
            match stored {
                Stored::ClusterFormat { version, cluster_id } => Record::ClusterFormat { version, cluster_id },
                Stored::RegisterBroker { broker, host, port, rack } => {
                    Record::RegisterBroker { broker: BrokerId(broker), host, port, rack }
                }
                Stored::Topic { id, name } => Record::Topic { id: TopicId(id), name },
                Stored::Partition { topic, index, replicas, isr, leader, leader_epoch, partition_epoch } => {
                    Record::Partition {
                        partition: Partition { topic: TopicId(topic), index: PartitionIndex(index) },
                        replicas: brokers(replicas),
                        isr: brokers(isr),
                        leader: BrokerId(leader),
                        leader_epoch: LeaderEpoch(leader_epoch),
                        partition_epoch: PartitionEpoch(partition_epoch),
                    }
                }
                Stored::RemoveTopic { id } => Record::RemoveTopic { id: TopicId(id) },
                Stored::TopicConfig { id, name, value } => {
                    Record::Config { resource: ConfigResource::Topic(TopicId(id)), name, value }
                }
                Stored::BrokerConfig { broker, name, value } => {
                    Record::Config { resource: ConfigResource::Broker(broker.map(BrokerId)), name, value }
                }
                Stored::GroupConfig { group, name, value } => {
                    Record::Config { resource: ConfigResource::Group(group), name, value }
                }
                Stored::ProducerIds { next } => Record::ProducerIds { next: ProducerId(next) },
            }
        }
    }
}

/// The stored form of format 2: what only a state that is said again has. A broker that knows format 1 alone refuses it by that number, whatever
/// it reads first: such a log begins with one of these.
mod v2 {
    use super::*;
    use rkyv::{Archive, Deserialize, Serialize};

    #[derive(Archive, Serialize, Deserialize)]
    pub(super) enum Stored {
        ClusterFormat { version: u16, cluster_id: String },
        Broker { broker: i32, epoch: i64, host: String, port: u16, rack: Option<String> },
        Removed { ids: Vec<u128> },
    }

    impl Stored {
        /// None: of format 1.
        pub(super) fn of(record: &Record) -> Option<Stored> {
            Some(match record {
                Record::ClusterFormat { version: version @ 2.., cluster_id } => {
                    Stored::ClusterFormat { version: *version, cluster_id: cluster_id.clone() }
                }
                Record::Broker { broker, epoch, host, port, rack } => Stored::Broker {
                    broker: broker.0,
                    epoch: epoch.0,
                    host: host.clone(),
                    port: *port,
                    rack: rack.clone(),
                },
                Record::Removed { topics } => Stored::Removed { ids: topics.iter().map(|id| id.0).collect() },
                _ => return None,
            })
        }
    }

    impl From<Stored> for Record {
        fn from(stored: Stored) -> Record {
            match stored {
                Stored::ClusterFormat { version, cluster_id } => Record::ClusterFormat { version, cluster_id },
                Stored::Broker { broker, epoch, host, port, rack } => {
                    Record::Broker { broker: BrokerId(broker), epoch: BrokerEpoch(epoch), host, port, rack }
                }
                Stored::Removed { ids } => Record::Removed { topics: ids.into_iter().map(TopicId).collect() },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_of_each() -> Vec<Record> {
        let partition = Partition { topic: TopicId(7 << 90), index: PartitionIndex(3) };
        vec![
            Record::ClusterFormat { version: 1, cluster_id: "a cluster's long enough id".into() },
            Record::RegisterBroker { broker: BrokerId(1), host: "h".into(), port: 9092, rack: None },
            Record::RegisterBroker { broker: BrokerId(2), host: "".into(), port: 1, rack: Some("r1".into()) },
            Record::Topic { id: TopicId(u128::MAX), name: "orders".into() },
            Record::Partition {
                partition,
                replicas: vec![BrokerId(1), BrokerId(2), BrokerId(3)],
                isr: vec![BrokerId(2)],
                leader: BrokerId(2),
                leader_epoch: LeaderEpoch(9),
                partition_epoch: PartitionEpoch(-4),
            },
            Record::RemoveTopic { id: TopicId(2) },
            Record::Config {
                resource: ConfigResource::Topic(TopicId(5)),
                name: "retention.ms".into(),
                value: Some("-1".into()),
            },
            Record::Config { resource: ConfigResource::Broker(None), name: "x".into(), value: None },
            Record::Config {
                resource: ConfigResource::Broker(Some(BrokerId(4))),
                name: "log.segment.delete.delay.ms".into(),
                value: Some("".into()),
            },
            Record::ProducerIds { next: ProducerId(i64::MAX) },
            Record::Config {
                resource: ConfigResource::Group("a group's name".into()),
                name: "consumer.session.timeout.ms".into(),
                value: Some("50000".into()),
            },
        ]
    }

    fn one_of_each_of_format_2() -> Vec<Record> {
        vec![
            Record::ClusterFormat { version: 2, cluster_id: "a cluster's long enough id".into() },
            Record::Broker {
                broker: BrokerId(3),
                epoch: BrokerEpoch(7000),
                host: "a host's name".into(),
                port: 9093,
                rack: Some("r2".into()),
            },
            Record::Removed { topics: vec![TopicId(3), TopicId(u128::MAX)] },
        ]
    }

    fn all() -> Vec<Record> {
        one_of_each().into_iter().chain(one_of_each_of_format_2()).collect()
    }

    #[test]
    fn every_kind_comes_back() {
        for record in all() {
            assert_eq!(Record::decode(&record.encode()), Ok(record));
        }
    }

    /// Bytes written by format 1 must be readable for ever: this is what it writes.
    #[test]
    fn format_1_stays() {
        let bytes = Record::ProducerIds { next: ProducerId(1000) }.encode();
        assert_eq!(bytes[0], 1);
        assert_eq!(u32::from_le_bytes(bytes[1..5].try_into().unwrap()) as usize, bytes.len() - 5);
        written_as(&one_of_each(), include_str!("../tests/data/records-v1.txt"));
    }

    /// The same of format 2. A broker that knows only format 1 looks at the first byte and says so.
    #[test]
    fn format_2_stays() {
        written_as(&one_of_each_of_format_2(), include_str!("../tests/data/records-v2.txt"));
        assert!(one_of_each_of_format_2().iter().all(|record| record.encode()[0] == 2));
    }

    fn written_as(records: &[Record], expected: &str) {
        let all: Vec<String> = records.iter().map(|record| hex(&record.encode())).collect();
        assert_eq!(all, expected.lines().collect::<Vec<_>>(), "\n{}", all.join("\n"));
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn no_prefix_and_no_longer_form_is_a_record() {
        for record in all() {
            let mut bytes = record.encode();
            for length in 0..bytes.len() {
                assert!(Record::decode(&bytes[..length]).is_err());
            }
            bytes.push(0);
            assert!(matches!(Record::decode(&bytes), Err(RecordError::Length { .. })));
        }
    }

    #[test]
    fn changed_bytes_are_an_error_or_another_record_never_a_panic() {
        for record in all() {
            let bytes = record.encode();
            for at in 0..bytes.len() {
                for value in 0..=255u8 {
                    let mut changed = bytes.clone();
                    changed[at] = value;
                    if let Ok(other) = Record::decode(&changed) {
                        assert_eq!(Record::decode(&other.encode()), Ok(other));
                    }
                }
            }
        }
        for version in [0, 3, 9] {
            let wrong = Err(RecordError::Version { version, known: 2 });
            assert_eq!(Record::decode(&[version, 0, 0, 0, 0]), wrong);
        }
    }
}
