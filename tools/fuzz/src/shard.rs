//! A whole shard behind its sockets: any requests of any client are answered in order or end their connection, and it serves on.

use ringmain_shard::Note;
use ringmain_types::{ConnectionId, ErrorCode, TopicId};
use ringmain_wire as wire;
use ringmain_wire::{APIS, Field, MetadataRequest, MetadataResponse, Writer};

use crate::input::Input;
use crate::theirs;
use crate::world::{World, batch};

/// Requests of one input: each runs a few turns.
const REQUESTS_MAX: usize = 8;
/// What a client may ask a shard to wait for is over by then: Kafka's clients wait half a second, their joins for five minutes.
const PATIENCE_MS: u64 = 600_000;

/// One shard or two; then requests: API, version, what comes with it, and the body behind its length. The header is right.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let shards = 1 + u16::from(input.byte() & 1);
    let mut world = World::new(shards);
    let mut client = world.connect(0);
    world.create_topic(client, "orders", 2, &[]);
    world.create_topic(client, "a", 1, &[("cleanup.policy", "compact"), ("flush", "async")]);
    let mut asked = Vec::new();
    for correlation in 0..REQUESTS_MAX as i32 {
        if input.is_empty() {
            break;
        }
        let api = input.below(APIS.len());
        let spec = &APIS[api];
        let (min, max) = spec.versions;
        let version = min + input.below((max - min + 1) as usize) as i16;
        let how = input.byte();
        let frame = frame(spec.key, version, spec.is_flexible(version), correlation, input.piece());
        world.send_bytes(client, frame);
        asked.push((correlation, api, version));
        if how & 1 == 0 {
            world.run();
        }
        if how & 2 != 0 {
            world.advance_ms(u64::from(how >> 2) * 100);
        }
        if !world.is_open(client) || how & 0x80 != 0 {
            answered(&mut world, client, &mut asked);
            client = world.connect(u16::from(how & 1) % shards);
            asked.clear();
        }
    }
    world.run();
    world.advance_ms(PATIENCE_MS);
    answered(&mut world, client, &mut asked);
    still_serves(&mut world, shards - 1);
    let fenced = world.notes.iter().find(|(_, note)| matches!(note, Note::Fenced { .. }));
    assert!(fenced.is_none(), "{fenced:?}");
    world.stop();
}

fn frame(key: i16, version: i16, flexible: bool, correlation: i32, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 4];
    frame.extend(key.to_be_bytes());
    frame.extend(version.to_be_bytes());
    frame.extend(correlation.to_be_bytes());
    frame.extend([0, 1, b'c']);
    frame.extend(flexible.then_some(0));
    frame.extend(body);
    let length = frame.len() as i32 - 4;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame
}

/// Replies come in the order of the requests, each to one of them (acks=0 has none), and can be read by those who sent them.
fn answered(world: &mut World, client: ConnectionId, asked: &mut Vec<(i32, usize, i16)>) {
    while let Some(reply) = world.frame(client) {
        let correlation = i32::from_be_bytes(*reply.first_chunk().expect("a reply has a header"));
        let at =
            asked.iter().position(|(known, ..)| *known == correlation).expect("a reply to what was asked, in order");
        let (_, api, version) = asked[at];
        asked.drain(..=at);
        let pair = &theirs::REPLIES[api];
        let flexible = pair.spec.is_flexible(version) && pair.spec.key != wire::API_VERSIONS.key;
        let body = &reply[4 + usize::from(flexible)..];
        let canonical = (pair.ours)(version, body);
        assert!(
            canonical.is_some(),
            "{} {version}: a reply that its client can't read: {}",
            pair.name,
            body.escape_ascii()
        );
    }
}

/// Another client is served as if nothing had been.
fn still_serves(world: &mut World, shard: u16) {
    let other = world.connect(shard);
    assert!(world.is_open(other));
    let request = MetadataRequest { topics: None, ..Default::default() };
    let reply = world.ask(other, &wire::METADATA, 12, &request);
    let read = wire::decode_reply::<MetadataResponse<'_>>(&wire::METADATA, 12, &reply).expect("a reply");
    assert!(read.1.topics.iter().all(|topic| topic.error_code == ErrorCode::None && topic.topic_id != TopicId::NONE));
}

/// Every API in its newest version, as `requests` has them, and a produce and a fetch that mean something.
pub fn seeds() -> Vec<Vec<u8>> {
    let step = |api: usize, version: i16, how: u8, body: &[u8]| {
        let at = (version - APIS[api].versions.0) as u8;
        [&[api as u8, at, how], &(body.len() as u16).to_le_bytes()[..], body].concat()
    };
    let mut seeds = Vec::new();
    for request in crate::seeds::requests() {
        let [api, at, body @ ..] = &request[..] else { continue };
        let version = APIS[usize::from(*api)].versions.0 + i16::from(*at);
        seeds.push([&[at & 1], &step(usize::from(*api), version, 0, body)[..]].concat());
    }
    let records = batch(&["one", "two"], None);
    let partition =
        wire::produce::PartitionProduceData { records: wire::RecordBytes::Wire(&records), ..Default::default() };
    let topic = wire::produce::TopicProduceData {
        name: "orders",
        partition_data: vec![partition].into(),
        ..Default::default()
    };
    let produce =
        wire::ProduceRequest { acks: -1, timeout_ms: 1000, topic_data: vec![topic].into(), ..Default::default() };
    let partition = wire::fetch::FetchPartition { partition_max_bytes: 1 << 20, ..Default::default() };
    let topic = wire::fetch::FetchTopic { topic: "orders", partitions: vec![partition].into(), ..Default::default() };
    let fetch = wire::FetchRequest { max_bytes: 1 << 20, topics: vec![topic].into(), ..Default::default() };
    let body = |version: i16, flexible: bool, write: &dyn Fn(&mut Writer)| {
        let mut w = Writer::new(version, flexible);
        write(&mut w);
        w.finish().concat()
    };
    let produce = step(0, 9, 0, &body(9, true, &|w| produce.write(w)));
    let fetch = step(1, 12, 2, &body(12, true, &|w| fetch.write(w)));
    seeds.push([&[0], &produce[..], &fetch].concat());
    seeds.push([&[1], &produce[..], &produce, &fetch].concat());
    seeds
}
