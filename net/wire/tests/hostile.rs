//! Bytes that lie, are cut or are noise: decoding fails or succeeds, but neither panics nor allocates, and what it accepts can be
//! walked to its end.

mod facts;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::{Debug, Write};

use facts::{Bodies, Message, Random};
use ringmain_types::{Offset, PartitionIndex, TopicId, WallMs};
use ringmain_wire::records::*;
use ringmain_wire::*;

/// Counts this thread's allocations.
struct Counting;

thread_local!(static ALLOCATED: Cell<usize> = const { Cell::new(0) });

#[allow(unsafe_code)]
// SAFETY: it passes everything on to `System`.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Decodes, walks what came out, and encodes it again; without allocations up to there.
type Codec = fn(i16, &[u8]) -> Result<Vec<u8>, WireError>;

/// Formatting visits every element.
struct Walk(usize);

impl Write for Walk {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

fn decode_and_walk<'a, T: Field<'a> + Debug>(
    spec: &ApiSpec,
    version: i16,
    bytes: &'a [u8],
) -> Result<Vec<u8>, WireError> {
    walk(version, spec.is_flexible(version), || decode::<T>(spec, version, bytes))
}

/// The prefix of a format says its version, or what its key is of; here it always says the right thing.
fn decode_format<'a, T: Format + Field<'a> + Debug>(version: i16, body: &'a [u8]) -> Result<Vec<u8>, WireError> {
    let flexible = version >= T::SPEC.flexible;
    walk(version, flexible, || {
        let mut r = Reader::new(body, version, flexible);
        let decoded = T::read(&mut r)?;
        r.end()?;
        Ok(decoded)
    })
}

fn walk<'a, T: Field<'a> + Debug>(
    version: i16,
    flexible: bool,
    decode: impl Fn() -> Result<T, WireError>,
) -> Result<Vec<u8>, WireError> {
    let before = ALLOCATED.get();
    let decoded = decode();
    if let Ok(body) = &decoded {
        let mut walk = Walk(0);
        write!(walk, "{body:?}").unwrap();
        assert!(walk.0 > 0);
    }
    assert_eq!(ALLOCATED.get(), before, "decoding and walking allocate nothing");
    let mut w = Writer::new(version, flexible);
    decoded?.write(&mut w);
    Ok(w.finish().concat())
}

macro_rules! codecs { ($($spec:ident $request:ident $response:ident;)*) => { &[$(
    (stringify!($request), |version, bytes| decode_and_walk::<$request>(&$spec, version, bytes)),
    (stringify!($response), |version, bytes| decode_and_walk::<$response>(&$spec, version, bytes)),
)*] } }

const CODECS: &[(&str, Codec)] = codecs! {
    PRODUCE ProduceRequest ProduceResponse;
    FETCH FetchRequest FetchResponse;
    LIST_OFFSETS ListOffsetsRequest ListOffsetsResponse;
    METADATA MetadataRequest MetadataResponse;
    API_VERSIONS ApiVersionsRequest ApiVersionsResponse;
    CREATE_TOPICS CreateTopicsRequest CreateTopicsResponse;
    DELETE_TOPICS DeleteTopicsRequest DeleteTopicsResponse;
    DELETE_RECORDS DeleteRecordsRequest DeleteRecordsResponse;
    INIT_PRODUCER_ID InitProducerIdRequest InitProducerIdResponse;
    OFFSET_FOR_LEADER_EPOCH OffsetForLeaderEpochRequest OffsetForLeaderEpochResponse;
    DESCRIBE_CONFIGS DescribeConfigsRequest DescribeConfigsResponse;
    ALTER_CONFIGS AlterConfigsRequest AlterConfigsResponse;
    DESCRIBE_LOG_DIRS DescribeLogDirsRequest DescribeLogDirsResponse;
    CREATE_PARTITIONS CreatePartitionsRequest CreatePartitionsResponse;
    INCREMENTAL_ALTER_CONFIGS IncrementalAlterConfigsRequest IncrementalAlterConfigsResponse;
    DESCRIBE_CLUSTER DescribeClusterRequest DescribeClusterResponse;
    DESCRIBE_PRODUCERS DescribeProducersRequest DescribeProducersResponse;
    LIST_CONFIG_RESOURCES ListConfigResourcesRequest ListConfigResourcesResponse;
    DESCRIBE_TOPIC_PARTITIONS DescribeTopicPartitionsRequest DescribeTopicPartitionsResponse;
    FIND_COORDINATOR FindCoordinatorRequest FindCoordinatorResponse;
    JOIN_GROUP JoinGroupRequest JoinGroupResponse;
    HEARTBEAT HeartbeatRequest HeartbeatResponse;
    LEAVE_GROUP LeaveGroupRequest LeaveGroupResponse;
    SYNC_GROUP SyncGroupRequest SyncGroupResponse;
    DESCRIBE_GROUPS DescribeGroupsRequest DescribeGroupsResponse;
    LIST_GROUPS ListGroupsRequest ListGroupsResponse;
    OFFSET_COMMIT OffsetCommitRequest OffsetCommitResponse;
    OFFSET_FETCH OffsetFetchRequest OffsetFetchResponse;
    DELETE_GROUPS DeleteGroupsRequest DeleteGroupsResponse;
    OFFSET_DELETE OffsetDeleteRequest OffsetDeleteResponse;
    CONSUMER_GROUP_HEARTBEAT ConsumerGroupHeartbeatRequest ConsumerGroupHeartbeatResponse;
    CONSUMER_GROUP_DESCRIBE ConsumerGroupDescribeRequest ConsumerGroupDescribeResponse;
};

macro_rules! formats { ($($name:ident)*) => { &[$(
    (stringify!($name), |version, bytes| decode_format::<$name>(version, bytes)),
)*] } }

const FORMATS: &[(&str, Codec)] = formats! {
    ConsumerProtocolSubscription ConsumerProtocolAssignment
    OffsetCommitKey OffsetCommitValue
    LegacyOffsetCommitKey LegacyOffsetCommitValue
    GroupMetadataKey GroupMetadataValue
    ConsumerGroupMetadataKey ConsumerGroupMetadataValue
    ConsumerGroupPartitionMetadataKey ConsumerGroupPartitionMetadataValue
    ConsumerGroupMemberMetadataKey ConsumerGroupMemberMetadataValue
    ConsumerGroupTargetAssignmentMetadataKey ConsumerGroupTargetAssignmentMetadataValue
    ConsumerGroupTargetAssignmentMemberKey ConsumerGroupTargetAssignmentMemberValue
    ConsumerGroupCurrentMemberAssignmentKey ConsumerGroupCurrentMemberAssignmentValue
    ConsumerGroupRegularExpressionKey ConsumerGroupRegularExpressionValue
};

/// Each message and format in each version that is spoken.
fn each(mut run: impl FnMut(&Message, i16, Codec)) {
    for message in facts::messages() {
        let codec = CODECS.iter().find(|(name, _)| *name == message.name).expect("a codec").1;
        let (min, max) = api(message.key).unwrap().versions;
        (min..=max).for_each(|version| run(&message, version, codec));
    }
    for format in facts::formats() {
        let codec = FORMATS.iter().find(|(name, _)| *name == format.name).expect("a codec").1;
        (format.valid.0..=format.valid.1).for_each(|version| run(&format, version, codec));
    }
}

#[test]
fn bodies_come_back() {
    each(|message, version, codec| {
        for seed in 100..130 {
            let body = Bodies::new(seed, message, version).body(&message.fields);
            assert_eq!(codec(version, &body).as_deref(), Ok(&body[..]), "{} {version}, seed {seed}", message.name);
        }
    });
}

#[test]
fn every_truncation_and_every_trailing_byte_is_an_error() {
    each(|message, version, codec| {
        for seed in 0..6 {
            let mut body = Bodies::new(seed, message, version).body(&message.fields);
            for len in 0..body.len() {
                assert!(codec(version, &body[..len]).is_err(), "{} {version}, seed {seed}, cut at {len}", message.name);
            }
            body.push(0);
            let error = codec(version, &body);
            assert_eq!(error, Err(WireError::Trailing { bytes: 1 }), "{} {version}, seed {seed}", message.name);
        }
    });
}

#[test]
fn unknown_tags_are_skipped() {
    let mut skipped = 0;
    each(|message, version, codec| {
        for seed in 0..10 {
            let mut bodies = Bodies::new(seed, message, version);
            if !bodies.flexible {
                continue;
            }
            bodies.unknown_tags = true;
            let body = bodies.body(&message.fields);
            let known = codec(version, &body).unwrap_or_else(|error| panic!("{} {version}: {error}", message.name));
            assert!(known.len() < body.len());
            assert_eq!(codec(version, &known).as_deref(), Ok(&known[..]), "{} {version}", message.name);
            skipped += 1;
        }
    });
    assert!(skipped > 500);
}

#[test]
fn mutations_neither_panic_nor_allocate() {
    let (mut accepted, mut refused) = (0, 0);
    let mut random = Random(42);
    each(|message, version, codec| {
        for seed in 0..8 {
            let body = Bodies::new(seed, message, version).body(&message.fields);
            for _ in 0..24 {
                let mut bytes = body.clone();
                for _ in 0..1 + random.below(3) {
                    mutate(&mut bytes, &mut random);
                }
                match codec(version, &bytes) {
                    Ok(_) => accepted += 1,
                    Err(_) => refused += 1,
                }
            }
        }
    });
    assert!(accepted > 1000 && refused > 1000, "{accepted} accepted, {refused} refused");
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len().max(1));
    match random.below(5) {
        _ if bytes.is_empty() => bytes.push(random.next() as u8),
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
        2 => bytes.insert(at, random.next() as u8),
        3 => drop(bytes.remove(at)),
        _ => bytes.iter_mut().skip(at).take(4).for_each(|byte| *byte = 0xff),
    }
}

#[test]
fn noise_is_refused_or_read() {
    let mut random = Random(7);
    each(|_, version, codec| {
        for _ in 0..40 {
            let small = random.one_in(2);
            let noise: Vec<u8> = (0..random.below(80))
                .map(|_| if small { random.below(4) as u8 } else { random.next() as u8 })
                .collect();
            let _ = codec(version, &noise);
            let before = ALLOCATED.get();
            let _ = request_header(&noise);
            assert_eq!(ALLOCATED.get(), before);
        }
    });
}

/// A tag that only later versions have is not skipped as one of the future is. Found by fuzzing against another implementation.
#[test]
fn a_tag_of_another_version_is_refused() {
    // Tag 1 of Fetch's request is the replica's state, from v15 on.
    let mut w = Writer::new(14, true);
    FetchRequest::default().write(&mut w);
    let mut body = w.finish().concat();
    assert_eq!(body.pop(), Some(0), "no tagged fields");
    body.extend([1, 1, 0]);
    let error = decode::<FetchRequest>(&FETCH, 14, &body).unwrap_err();
    assert_eq!(error, WireError::Value { field: "replica_state", value: 1 });
    let last = body.len() - 2;
    body[last] = 99;
    assert!(decode::<FetchRequest>(&FETCH, 14, &body).is_ok(), "one that nobody knows is skipped");
}

/// Keys say of what type they are, values in which version; what clients embed may be newer than we are.
#[test]
fn prefixes_are_checked() {
    let key = OffsetCommitKey { group: "g", topic: "t", partition: PartitionIndex(3) };
    let bytes = encode_key(&key);
    assert_eq!(bytes, [0, 1, 0, 1, b'g', 0, 1, b't', 0, 0, 0, 3]);
    assert_eq!((key_type(&bytes), decode_key::<OffsetCommitKey>(&bytes)), (Ok(1), Ok(key)));
    let error = decode_key::<GroupMetadataKey>(&bytes).unwrap_err();
    assert_eq!(error, WireError::Value { field: "key type", value: 1 });

    let value = OffsetCommitValue { offset: Offset(7), topic_id: TopicId(9), ..Default::default() };
    for version in 0..=4 {
        let bytes = encode_value(version, &value);
        let mut want = value.clone();
        want.topic_id = if version == 4 { TopicId(9) } else { TopicId::NONE };
        want.expire_timestamp = if version == 1 { WallMs(-1) } else { want.expire_timestamp };
        assert_eq!(decode_value::<OffsetCommitValue>(&bytes).as_ref(), Ok(&want));
        let newer = [&[0, 5], &bytes[2..]].concat();
        let error = decode_value::<OffsetCommitValue>(&newer).unwrap_err();
        assert_eq!(error, WireError::Value { field: "version", value: 5 });
    }

    let topics = ["a", "b"].into_iter().collect();
    let subscription = ConsumerProtocolSubscription { topics, rack_id: Some("r"), ..Default::default() };
    let newer = [&[0, 9], &encode_value(3, &subscription)[2..], b"what v9 adds"].concat();
    assert_eq!(decode_embedded::<ConsumerProtocolSubscription>(&newer), Ok(subscription));
    assert!(decode_embedded::<ConsumerProtocolSubscription>(&[0xff, 0xff, 0, 0, 0, 0]).is_err());
    assert!(decode_embedded::<ConsumerProtocolSubscription>(&[]).is_err());
}

/// Whatever count stands in a first array, only as many elements as there are bytes are looked at.
#[test]
fn counts_that_lie_fail_at_once() {
    for count in [i32::MAX, i32::MIN, -2, 1 << 30, 65_536] {
        let mut body = vec![0xff, 0xff, 0, 1, 0, 0, 0, 9];
        body.extend(count.to_be_bytes());
        body.extend([0; 64]);
        let before = ALLOCATED.get();
        assert!(decode::<ProduceRequest>(&PRODUCE, 3, &body).is_err(), "{count}");
        assert_eq!(ALLOCATED.get(), before);
    }
    // Compact: null id, acks, timeout, then a count of 2^32 - 2.
    let body = [0, 0, 1, 0, 0, 0, 9, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0];
    let error = decode::<ProduceRequest>(&PRODUCE, 9, &body).unwrap_err();
    assert_eq!(error, WireError::Length { field: "topic_data", value: (1 << 32) - 2 });
}

#[test]
fn null_where_a_version_has_none_is_refused_and_never_written() {
    // Metadata v0: a topic whose name is null.
    let error = decode::<MetadataRequest>(&METADATA, 0, &[0, 0, 0, 1, 0xff, 0xff]).unwrap_err();
    assert_eq!(error, WireError::Length { field: "name", value: -1 });
    let error = decode::<MetadataRequest>(&METADATA, 0, &[0xff; 4]).unwrap_err();
    assert_eq!(error, WireError::Length { field: "topics", value: -1 });
    assert_eq!(decode::<MetadataRequest>(&METADATA, 1, &[0xff; 4]).unwrap().topics, None);
    let mut w = Writer::new(0, false);
    MetadataRequest::default().write(&mut w);
    assert_eq!(w.finish().concat(), [0; 4], "all topics, in the words of v0");
}

/// The head, its block, the list of parts; the list of splices when there are any; and growth by doubling past 128 bytes.
#[test]
fn a_reply_costs_a_handful_of_allocations() {
    let records = ringmain_buffer::Buf::copy_of(&[1; 5000]);
    let partition = fetch::PartitionData { records: RecordBytes::Parts(vec![records]), ..Default::default() };
    let topic =
        fetch::FetchableTopicResponse { topic: "orders", partitions: vec![partition].into(), ..Default::default() };
    let body = FetchResponse { responses: vec![topic].into(), ..Default::default() };
    for version in [4, 11, 12, 18] {
        let before = ALLOCATED.get();
        let parts = encode_reply(&FETCH, version, 1, &body);
        assert!(ALLOCATED.get() - before <= 4, "{} allocations", ALLOCATED.get() - before);
        assert_eq!(parts.len(), if version < 12 { 2 } else { 3 });
    }
}

#[test]
fn versions_out_of_range_are_refused() {
    for version in [-1, 14, i16::MAX, i16::MIN] {
        let error = decode::<ProduceRequest>(&PRODUCE, version, &[]).unwrap_err();
        assert_eq!(error, WireError::Value { field: "version", value: i64::from(version) });
    }
    assert!(api(-1).is_none() && api(4).is_none() && api(i16::MAX).is_none());
}

/// The old Produce versions are answered with an error that names their partitions.
#[test]
fn old_produce_requests_show_their_partitions() {
    for version in 0..=2 {
        let mut body = vec![0, 1, 0, 0, 0, 9, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 3];
        body.extend(b"set");
        let request: ProduceRequest = decode(&PRODUCE, version, &body).unwrap();
        let topic = request.topic_data.iter().next().unwrap();
        let partition = topic.partition_data.iter().next().unwrap();
        assert_eq!((topic.name, partition.index.0, partition.records.wire()), ("t", 5, Some(&b"set"[..])));
    }
}

/// librdkafka 2.15 asks for all topics with the four bytes of an array's length where the format has one: three are left over.
#[test]
fn what_follows_a_request_is_ignored() {
    for version in 9..=13 {
        // No topics: all of them; no auto-creation and no operations. What was meant for these follows, and an empty tag section.
        let operations = if version <= 10 { 2 } else { 1 };
        let mut body = vec![0; 4 + 1 + operations + 1];
        // Where it would be read as a count of tags, librdkafka happens to send 0.
        body[4] = u8::from(version > 10);
        let error = decode::<MetadataRequest>(&METADATA, version, &body).unwrap_err();
        assert_eq!(error, WireError::Trailing { bytes: 3 }, "v{version}");
        let request: MetadataRequest = decode_request(&METADATA, version, &body).unwrap();
        assert!(request.topics.is_none(), "v{version}");
    }
}
