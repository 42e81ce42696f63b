//! What fuzzing begins with, made by our own encoders: a fuzzer finds its way further from inputs that mean something.

use ringmain_batch::{Builder, Codec, Producer};
use ringmain_log::epochs::LeaderEpochs;
use ringmain_log::{partition_metadata, snapshot};
use ringmain_metadata::{ConfigResource, Record};
use ringmain_types::*;
use ringmain_wire::{API_INFOS, FORMAT_INFOS, Kind, StructInfo};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Encodes what a message may be, from what it says of itself.
struct Bodies {
    random: Random,
    version: i16,
    flexible: bool,
}

impl Bodies {
    fn length(&self, length: Option<usize>, wide: bool, out: &mut Vec<u8>) {
        let length = length.map_or(-1, |length| length as i64);
        match (self.flexible, wide) {
            (true, _) => uvar((length + 1) as u32, out),
            (false, true) => out.extend((length as i32).to_be_bytes()),
            (false, false) => out.extend((length as i16).to_be_bytes()),
        }
    }

    fn number(&mut self, bytes: usize, out: &mut Vec<u8>) {
        let number = match self.random.below(3) {
            0 => u64::MAX,
            _ => self.random.below(4),
        };
        let all = [[0xff * u8::from(number == u64::MAX); 8], number.to_be_bytes()].concat();
        out.extend(&all[16 - bytes..]);
    }

    fn value(&mut self, kind: Kind, null: bool, out: &mut Vec<u8>) {
        match kind {
            Kind::Bool => out.push(self.random.below(2) as u8),
            Kind::Int8 => self.number(1, out),
            Kind::Int16 => self.number(2, out),
            Kind::Int32 => self.number(4, out),
            Kind::Int64 => self.number(8, out),
            Kind::Uuid => self.number(16, out),
            Kind::String => {
                let text = ["", "a", "orders"][self.random.below(3) as usize];
                self.length(Some(text.len()), false, out);
                out.extend(text.as_bytes());
            }
            Kind::Bytes | Kind::Records => {
                self.length(Some(3), true, out);
                out.extend(b"abc");
            }
            Kind::Array(element) => {
                let count = 1 + self.random.below(2) as usize;
                self.length(Some(count), true, out);
                (0..count).for_each(|_| self.value(*element, false, out));
            }
            Kind::Nullable(Kind::Struct(_)) if null => out.push(0xff),
            Kind::Nullable(Kind::Struct(of)) => {
                out.push(1);
                self.body(of, out);
            }
            Kind::Nullable(Kind::String) if null => self.length(None, false, out),
            Kind::Nullable(_) if null => self.length(None, true, out),
            Kind::Nullable(of) => self.value(*of, false, out),
            Kind::Struct(of) => self.body(of, out),
        }
    }

    fn body(&mut self, of: &StructInfo, out: &mut Vec<u8>) {
        let spoken = |tagged: bool, version: i16| {
            of.fields.iter().filter(move |field| field.tag.is_some() == tagged && (field.versions)(version))
        };
        for field in spoken(false, self.version) {
            let null = (field.nullable)(self.version) && self.random.below(4) == 0;
            self.value(field.kind, null, out);
        }
        if self.flexible {
            let tagged: Vec<_> = spoken(true, self.version).collect();
            uvar(tagged.len() as u32, out);
            for field in tagged {
                let mut value = Vec::new();
                self.value(field.kind, false, &mut value);
                uvar(field.tag.unwrap_or(0), out);
                uvar(value.len() as u32, out);
                out.extend(value);
            }
        }
    }
}

fn uvar(mut value: u32, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn bodies(kind: Kind, seed: u64, version: i16, flexible: bool) -> Vec<u8> {
    let mut out = Vec::new();
    Bodies { random: Random(seed), version, flexible }.value(kind, false, &mut out);
    out
}

fn messages(of: fn(&ringmain_wire::ApiInfo) -> Kind) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (at, info) in API_INFOS.iter().enumerate() {
        let (min, max) = info.spec.versions;
        for version in min..=max {
            let mut seed = vec![at as u8, (version - min) as u8];
            seed.extend(bodies(of(info), version as u64, version, info.spec.is_flexible(version)));
            seeds.push(seed);
        }
    }
    seeds
}

pub fn requests() -> Vec<Vec<u8>> {
    messages(|info| info.request)
}

pub fn replies() -> Vec<Vec<u8>> {
    messages(|info| info.response)
}

pub fn formats() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (at, info) in FORMAT_INFOS.iter().enumerate() {
        let (min, max) = info.spec.versions;
        for version in min..=max {
            let prefix = if info.spec.key >= 0 { [info.spec.key, version].to_vec() } else { vec![version] };
            for prefix in prefix {
                let mut seed = vec![at as u8];
                seed.extend(prefix.to_be_bytes());
                seed.extend(bodies(info.body, version as u64, version, version >= info.spec.flexible));
                seeds.push(seed);
            }
        }
    }
    seeds
}

/// A script of pieces, then three frames.
pub fn frames() -> Vec<Vec<u8>> {
    let mut stream = Vec::new();
    for (at, info) in API_INFOS.iter().enumerate().take(4) {
        let version = info.spec.versions.1;
        let body = bodies(info.request, at as u64, version, info.spec.is_flexible(version));
        let mut frame = [info.spec.key.to_be_bytes(), version.to_be_bytes()].concat();
        frame.extend((at as i32).to_be_bytes());
        frame.extend([0, 2, b'm', b'e']);
        frame.extend(info.spec.is_flexible(version).then_some(0));
        frame.extend(body);
        stream.extend((frame.len() as i32).to_be_bytes());
        stream.extend(frame);
    }
    let scripts: [&[u8]; 3] = [&[0], &[2, 1, 0, 3, 0], &[3, 4, 0x40, 1, 0x80, 100, 0xc0]];
    scripts.iter().map(|script| [script, &stream[..]].concat()).collect()
}

/// A batch of each codec, with a producer and without.
pub(crate) fn batch(codec: Codec, producer: bool) -> Vec<u8> {
    let id = Producer { id: ProducerId(9), epoch: ProducerEpoch(2), first: Sequence(0), last: Sequence(0) };
    let mut builder = Builder::new(codec, producer.then_some(id));
    builder.push(WallMs(1000), Some(b"a"), Some(b"one"), &[("h", Some(b"x")), ("h", None)]);
    builder.push(WallMs(1001), Some(b"b"), None, &[]);
    builder.push(WallMs(1000), None, Some(&[7; 60]), &[]);
    builder.encode()
}

pub fn batches() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for codec in Codec::ALL {
        for flags in [0x00, 0x07, 0x3f] {
            seeds.push([&[flags, 0xff], &batch(codec, flags == 7)[..]].concat());
        }
    }
    for (codec, packed) in claims() {
        let plain = batch(Codec::None, false);
        seeds.push([&[7, codec.id()], &plain[..ringmain_batch::HEADER_BYTES], &packed].concat());
    }
    seeds
}

/// Frames that are sound and say that they need as much memory as their codec allows: an lz4 frame of 4 MiB blocks, one whose block says
/// that it is 4 MiB long, one of the old format, and a zstd frame with a window of 128 MiB.
fn claims() -> Vec<(Codec, Vec<u8>)> {
    let plain = batch(Codec::None, false).split_off(ringmain_batch::HEADER_BYTES);
    let raw = (plain.len() as u32 | 1 << 31).to_le_bytes();
    let large = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x70, 0x73];
    let linked = [0x04, 0x22, 0x4d, 0x18, 0x40, 0x70, 0xdf];
    let lies = (4u32 << 20).to_le_bytes();
    let end = [0; 4];
    let last_raw_block = (plain.len() as u32) << 3 | 1;
    let zstd = [&[0x28, 0xb5, 0x2f, 0xfd, 0, (27 - 10) << 3][..], &last_raw_block.to_le_bytes()[..3], &plain].concat();
    vec![
        (Codec::Lz4, [&large[..], &raw, &plain, &end].concat()),
        (Codec::Lz4, [&linked[..], &raw, &plain, &end].concat()),
        (Codec::Lz4, [&large[..], &lies, &plain].concat()),
        (Codec::Lz4, [&[0x02, 0x21, 0x4c, 0x18][..], &lies, &plain].concat()),
        (Codec::Zstd, zstd),
    ]
}

pub fn journal() -> Vec<Vec<u8>> {
    vec![vec![0], vec![1]]
}

pub fn small_files() -> Vec<Vec<u8>> {
    let mut offsets = vec![0];
    offsets.extend([[0, 0, 0, 3], [0, 0, 0, 9]].concat());
    let mut times = vec![1];
    times.extend([[0; 8], [0, 0, 0, 3, 0, 0, 0, 0]].concat());
    let row = |id: i64, last: i64| snapshot::SnapshotRow {
        id: ProducerId(id),
        epoch: ProducerEpoch(1),
        last_sequence: Sequence(last as i32),
        last_offset: Offset(last),
        offset_delta: 2,
        timestamp: WallMs(1000),
        coordinator_epoch: LeaderEpoch(-1),
        txn_start: None,
    };
    let snapshot = [&[2], &snapshot::encode(&[row(1, 4), row(1, 9), row(2, 3)])[..]].concat();
    let mut known = LeaderEpochs::new(16);
    known.assign(LeaderEpoch(0), Offset(0));
    known.assign(LeaderEpoch(5), Offset(12));
    let epochs = [&[4], known.encode().as_bytes()].concat();
    let names = [&[5], partition_metadata::encode(TopicId(77)).as_bytes()].concat();
    vec![offsets, times, snapshot, epochs, names]
}

pub(crate) fn records() -> Vec<Record> {
    let partition = |index| Record::Partition {
        partition: Partition { topic: TopicId(5), index: PartitionIndex(index) },
        replicas: vec![BrokerId(1), BrokerId(2)],
        isr: vec![BrokerId(1)],
        leader: BrokerId(1),
        leader_epoch: LeaderEpoch(0),
        partition_epoch: PartitionEpoch(0),
    };
    let config = |resource, value: Option<&str>| Record::Config {
        resource,
        name: "retention.ms".into(),
        value: value.map(Into::into),
    };
    vec![
        Record::ClusterFormat { version: 1, cluster_id: "a-cluster-of-some-name".into() },
        Record::RegisterBroker {
            broker: BrokerId(1),
            host: "h".into(),
            port: 9092,
            rack: Some("a-rack-that-is-long".into()),
        },
        Record::Topic { id: TopicId(5), name: "some_orders".into() },
        partition(0),
        partition(1),
        config(ConfigResource::Topic(TopicId(5)), Some("1000")),
        config(ConfigResource::Broker(None), Some("1000")),
        config(ConfigResource::Broker(Some(BrokerId(1))), None),
        config(ConfigResource::Group("g".into()), Some("1000")),
        Record::ProducerIds { next: ProducerId(1000) },
        Record::RemoveTopic { id: TopicId(5) },
    ]
}

pub fn metadata() -> Vec<Vec<u8>> {
    let encoded: Vec<Vec<u8>> = records().iter().map(Record::encode).collect();
    let mut seeds: Vec<Vec<u8>> = encoded.iter().map(|record| [&[0], &piece(record)[..]].concat()).collect();
    // All in one, as they stand and with their headers left to the target.
    let whole: Vec<u8> = encoded.iter().flat_map(|record| piece(record)).collect();
    let bare: Vec<u8> = encoded.iter().flat_map(|record| piece(&record[5..])).collect();
    seeds.push([&[0], &whole[..]].concat());
    seeds.push([&[1], &bare[..]].concat());
    seeds
}

pub fn settings() -> Vec<Vec<u8>> {
    let file = "# a comment\nnum.partitions = 3\nlisteners=PLAINTEXT://:9092\nlog.retention.ms:1000\nbroker.rack r\\u0041\\\n  b\n";
    let mut seeds = vec![[&[0], file.as_bytes()].concat(), [&[4], &b"some.topic_name-1"[..]].concat()];
    let tables = [
        (1, ringmain_metadata::config::broker_definitions().iter().map(|one| one.default).collect::<Vec<_>>()),
        (2, ringmain_metadata::config::topic_definitions().iter().map(|one| one.definition.default).collect()),
        (3, ringmain_metadata::config::group_definitions().iter().map(|one| one.definition.default).collect()),
    ];
    for (kind, defaults) in tables {
        for (at, default) in defaults.iter().enumerate() {
            seeds.push([&[kind, at as u8], default.unwrap_or("1").as_bytes()].concat());
        }
    }
    seeds.push([&[2, 0], &b"by_duration:P1DT2H"[..]].concat());
    seeds
}

/// Behind its length.
fn piece(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_le_bytes()[..], bytes].concat()
}

pub fn group_records() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let mut all = Vec::new();
    for pair in FORMAT_INFOS.chunks(2).filter(|pair| pair[0].spec.key >= 0) {
        let [key, value] = pair else { continue };
        let mut name = key.spec.key.to_be_bytes().to_vec();
        name.extend(bodies(key.body, 1, 0, key.spec.flexible == 0));
        let (min, max) = value.spec.versions;
        for version in min..=max {
            let mut says = version.to_be_bytes().to_vec();
            says.extend(bodies(value.body, 3, version, version >= value.spec.flexible));
            let record = [&piece(&name)[..], &[1], &piece(&says)].concat();
            all.extend(&record);
            seeds.push(record);
        }
    }
    seeds.push(all);
    seeds
}

/// A classic member that joins, syncs, commits and leaves; KIP-848 members that beat.
pub fn group_requests() -> Vec<Vec<u8>> {
    use ringmain_wire as wire;
    let body = |version: i16, flexible: bool, write: &dyn Fn(&mut wire::Writer)| {
        let mut w = wire::Writer::new(version, flexible);
        write(&mut w);
        w.finish().concat()
    };
    let step = |op: u8, at: i16, wait: u8, body: &[u8]| [&[op, at as u8, wait], &piece(body)[..]].concat();
    let subscription = wire::encode_value(
        3,
        &wire::ConsumerProtocolSubscription { topics: ["a", "b"].into_iter().collect(), ..Default::default() },
    );
    let assignment = wire::encode_value(3, &wire::ConsumerProtocolAssignment::default());
    let join = |member_id: &'static str| {
        let protocols = vec![wire::join_group::JoinGroupRequestProtocol { name: "range", metadata: &subscription }];
        let join = wire::JoinGroupRequest {
            group_id: "g",
            session_timeout_ms: 30_000,
            rebalance_timeout_ms: 30_000,
            member_id,
            protocol_type: "consumer",
            protocols: protocols.into(),
            ..Default::default()
        };
        body(5, false, &|w| wire::Field::write(&join, w))
    };
    let (first, last) = wire::JOIN_GROUP.versions;
    assert!(first <= 5 && last >= 5);
    let sync = wire::SyncGroupRequest {
        group_id: "g",
        generation_id: 1,
        member_id: "@1",
        assignments: vec![wire::sync_group::SyncGroupRequestAssignment { member_id: "@1", assignment: &assignment }]
            .into(),
        ..Default::default()
    };
    let sync_version = 3;
    let beat = |member_id: &'static str, member_epoch: i32| {
        let beat = wire::ConsumerGroupHeartbeatRequest {
            group_id: "g",
            member_id,
            member_epoch,
            rebalance_timeout_ms: 20_000,
            subscribed_topic_names: Some(["a", "orders"].into_iter().collect()),
            topic_partitions: Some(Default::default()),
            ..Default::default()
        };
        body(1, true, &|w| wire::Field::write(&beat, w))
    };
    let classic = [
        step(0, 5 - first, 0, &join("")),
        step(0, 5 - first, 0, &join("@0")),
        step(
            1,
            sync_version - wire::SYNC_GROUP.versions.0,
            20,
            &body(sync_version, false, &|w| wire::Field::write(&sync, w)),
        ),
    ]
    .concat();
    let at = 1 - wire::CONSUMER_GROUP_HEARTBEAT.versions.0;
    let modern = [
        step(4, at, 0, &beat("m", 0)),
        step(4, at, 10, &beat("n", 0)),
        step(4, at, 10, &beat("m", 1)),
        step(4, at, 10, &beat("m", -1)),
    ]
    .concat();
    vec![[&classic[..], &modern].concat(), classic, modern]
}
