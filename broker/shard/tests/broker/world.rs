//! Shards, their mesh, disks in memory, and clients that speak frames.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};

use ringmain_batch::{Builder, Codec, Producer};
use ringmain_buffer::Buf;
use ringmain_disk::DiskDone;
use ringmain_session::{Close, Incoming, Want};
use ringmain_shard::mesh::Mesh;
use ringmain_shard::{Config, Effects, Hands, Input, NetOp, Note, Shard, turn};
use ringmain_types::*;
use ringmain_wire as wire;
use ringmain_wire::{ApiSpec, Field};

use crate::disk::MemoryDisk;

/// What has happened to one shard and waits for its turn.
#[derive(Default)]
struct Inbox {
    accepted: Vec<(ConnectionId, SocketAddr)>,
    received: VecDeque<(ConnectionId, Vec<u8>)>,
    ended: Vec<ConnectionId>,
    closed: Vec<(ConnectionId, Close)>,
    sent: Vec<(ConnectionId, usize)>,
    disk: Vec<DiskDone>,
    mesh: VecDeque<(ShardId, Mesh)>,
    stop: bool,
}

/// What a client sees.
#[derive(Default)]
struct Wire {
    bytes: Vec<u8>,
    direct: Option<(ringmain_buffer::BufMut, usize)>,
    open: bool,
}

pub struct World {
    shards: Vec<Shard>,
    inboxes: Vec<Inbox>,
    pub disks: Vec<MemoryDisk>,
    wires: BTreeMap<ConnectionId, Wire>,
    pub notes: Vec<(ShardId, Note)>,
    pub now: Now,
    correlation: i32,
    connections: u32,
    pub properties: BTreeMap<String, String>,
    pub limits: Limits,
    /// Not for the first time.
    started: bool,
    /// Of each shard, kept from turn to turn as a core does.
    effects: Vec<Effects>,
    /// Counts something, of which all turns together, but for what is outside of shards, came to `counted`.
    pub counter: fn() -> usize,
    pub counted: usize,
    /// The most that a shard sent in a turn, in bytes.
    pub sent_most: usize,
}

struct InboxHands<'a> {
    inbox: Inbox,
    wires: &'a mut BTreeMap<ConnectionId, Wire>,
}

impl Hands for InboxHands<'_> {
    fn poll(&mut self, step: &mut dyn FnMut(Input<'_>)) -> usize {
        let inbox = std::mem::take(&mut self.inbox);
        let mut count = 0;
        let mut each = |input: Input<'_>| {
            count += 1;
            step(input);
        };
        for (connection, peer) in inbox.accepted {
            each(Input::Accepted { connection, listener: 0, peer });
        }
        for done in inbox.disk {
            each(Input::Disk(done));
        }
        for (from, message) in inbox.mesh {
            each(Input::Mesh { from, message });
        }
        for (connection, bytes) in inbox.sent {
            each(Input::Sent { connection, bytes });
        }
        for (connection, bytes) in inbox.received {
            let direct = self.wires.get_mut(&connection).and_then(|wire| wire.direct.take());
            let mut rest = &bytes[..];
            if let Some((mut into, wanted)) = direct {
                let taken = rest.len().min(wanted);
                into.extend(&rest[..taken]);
                rest = &rest[taken..];
                each(Input::Received { connection, incoming: Incoming::Direct(into) });
            }
            if !rest.is_empty() {
                each(Input::Received { connection, incoming: Incoming::Lent(rest) });
            }
        }
        for connection in inbox.ended {
            each(Input::Eof { connection });
        }
        for (connection, why) in inbox.closed {
            each(Input::Closed { connection, why });
        }
        if inbox.stop {
            each(Input::Stop);
        }
        count
    }

    /// They stay where they are until the turn is over.
    fn perform(&mut self, _: &mut Effects) {}
}

impl World {
    pub fn new(shards: u16) -> World {
        World::with(shards, Limits::tiny(), &[])
    }

    pub fn with(shards: u16, limits: Limits, properties: &[(&str, &str)]) -> World {
        let now = Now { mono: Instant(1_000_000_000), wall: WallMs(1_700_000_000_000) };
        let mut world = World {
            shards: Vec::new(),
            inboxes: Vec::new(),
            disks: (0..shards).map(|_| MemoryDisk::default()).collect(),
            wires: BTreeMap::new(),
            notes: Vec::new(),
            now,
            correlation: 0,
            connections: 0,
            properties: properties.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            limits,
            started: false,
            effects: Vec::new(),
            counter: || 0,
            counted: 0,
            sent_most: 0,
        };
        world.start(shards);
        world
    }

    /// Opens all shards on what the disks hold, and runs until they are ready.
    pub fn start(&mut self, shards: u16) {
        self.wires.clear();
        self.notes.clear();
        self.inboxes = (0..shards).map(|_| Inbox::default()).collect();
        self.shards.clear();
        self.effects = (0..shards).map(|_| Effects::default()).collect();
        for shard in 0..shards {
            let config = Config {
                broker: BrokerId(1),
                shard: ShardId(shard),
                shards,
                dir: DirId(0),
                limits: self.limits.clone(),
                seed: 7,
                journal_generation: 1,
                journal_exists: self.started,
                journal_flush_covers: true,
                cluster_id: "test".into(),
                advertised: ("localhost".into(), 9092),
                dir_path: "/data".into(),
                properties: self.properties.clone(),
            };
            let mut effects = Effects::default();
            self.shards.push(Shard::open(config, self.now, &mut effects));
            self.take(ShardId(shard), &mut effects);
        }
        self.run();
        let ready = self.notes.iter().filter(|(_, note)| matches!(note, Note::Ready)).count();
        assert_eq!(ready, usize::from(shards), "{:?}", self.notes);
        self.started = true;
    }

    /// Runs turns until nothing happens any more.
    pub fn run(&mut self) {
        for _ in 0..10_000 {
            let mut busy = false;
            for shard in 0..self.shards.len() {
                busy |= self.turn(shard);
                busy |= self.shards[shard].deadline().is_some_and(|at| at <= self.now.mono);
            }
            if !busy {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    pub fn turn(&mut self, shard: usize) -> bool {
        let inbox = std::mem::take(&mut self.inboxes[shard]);
        let mut hands = InboxHands { inbox, wires: &mut self.wires };
        let mut effects = std::mem::take(&mut self.effects[shard]);
        let before = (self.counter)();
        let mut busy = turn(&mut self.shards[shard], &mut hands, self.now, &mut effects);
        self.counted += (self.counter)() - before;
        busy |= !effects.disk.is_empty() || !effects.mesh.is_empty() || !effects.net.is_empty();
        self.take(ShardId(shard as u16), &mut effects);
        if !busy && self.shards[shard].background(self.now, 1 << 20, &mut effects) {
            busy |= !effects.disk.is_empty();
        }
        self.take(ShardId(shard as u16), &mut effects);
        self.effects[shard] = effects;
        busy
    }

    fn take(&mut self, shard: ShardId, effects: &mut Effects) {
        let at = usize::from(shard.0);
        for op in effects.disk.drain(..) {
            let done = self.disks[at].run(op);
            self.inboxes[at].disk.push(done);
        }
        for (to, message) in effects.mesh.drain(..) {
            self.inboxes[usize::from(to.0)].mesh.push_back((shard, message));
        }
        let mut sent = 0;
        for op in effects.net.drain(..) {
            match op {
                NetOp::Send { connection, parts } => {
                    let bytes: usize = parts.iter().map(|part| part.len()).sum();
                    sent += bytes;
                    self.sent_most = self.sent_most.max(sent);
                    let wire = self.wires.get_mut(&connection).expect("a known connection");
                    parts.iter().for_each(|part| wire.bytes.extend_from_slice(part));
                    self.inboxes[at].sent.push((connection, bytes));
                }
                NetOp::Receive { connection, want } => {
                    let wire = self.wires.get_mut(&connection).expect("a known connection");
                    if let Want::Direct { into, bytes } = want {
                        wire.direct = Some((into, bytes));
                    }
                }
                NetOp::Close { connection } => {
                    self.wires.get_mut(&connection).expect("a known connection").open = false;
                    self.inboxes[at].closed.push((connection, Close::Shutdown));
                }
            }
        }
        self.notes.extend(effects.notes.drain(..).map(|note| (shard, note)));
    }

    pub fn advance_ms(&mut self, ms: u64) {
        self.now.mono = self.now.mono.plus_ms(ms);
        self.now.wall = WallMs(self.now.wall.0 + ms as i64);
        self.run();
    }

    /// The same, a millisecond at a time: what has a share of the core gets on.
    pub fn pass_ms(&mut self, ms: u64) {
        (0..ms).for_each(|_| self.advance_ms(1));
    }

    pub fn begin_stop(&mut self) {
        self.inboxes.iter_mut().for_each(|inbox| inbox.stop = true);
        self.run();
    }

    pub fn stop(&mut self) {
        self.begin_stop();
        let stopped = self.notes.iter().filter(|(_, note)| matches!(note, Note::Stopped)).count();
        assert_eq!(stopped, self.shards.len(), "{:?}", self.notes.iter().rev().take(10).collect::<Vec<_>>());
    }

    pub fn connect(&mut self, shard: u16) -> ConnectionId {
        self.connections += 1;
        let connection = ConnectionId { shard: ShardId(shard), slot: self.connections, generation: 0 };
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1000));
        self.wires.insert(connection, Wire { open: true, ..Wire::default() });
        self.inboxes[usize::from(shard)].accepted.push((connection, peer));
        self.run();
        connection
    }

    pub fn disconnect(&mut self, connection: ConnectionId) {
        self.inboxes[usize::from(connection.shard.0)].closed.push((connection, Close::Errno(104)));
        self.run();
    }

    /// The client sends no more, behind what it has sent.
    pub fn end(&mut self, connection: ConnectionId) {
        self.inboxes[usize::from(connection.shard.0)].ended.push(connection);
    }

    pub fn is_open(&self, connection: ConnectionId) -> bool {
        self.wires[&connection].open
    }

    pub fn send_bytes(&mut self, connection: ConnectionId, bytes: Vec<u8>) {
        self.inboxes[usize::from(connection.shard.0)].received.push_back((connection, bytes));
    }

    /// Of all shards.
    pub fn memory_used(&self, account: Account) -> u64 {
        self.shards.iter().map(|shard| shard.memory_used(account)).sum()
    }

    /// What replies and requests under way take, of all shards.
    pub fn work_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.memory()[Account::Reply as usize].0).sum()
    }

    /// Sends a request without waiting for its reply.
    pub fn send<'a, T: Field<'a>>(&mut self, connection: ConnectionId, spec: &ApiSpec, version: i16, body: &T) {
        self.queue(connection, spec, version, body);
        self.run();
    }

    /// The same, without a turn of the shard's.
    pub fn queue<'a, T: Field<'a>>(&mut self, connection: ConnectionId, spec: &ApiSpec, version: i16, body: &T) {
        self.correlation += 1;
        let parts = wire::encode_request(spec, version, self.correlation, Some("test"), body);
        let bytes = parts.iter().flat_map(|part| part.iter().copied()).collect();
        self.send_bytes(connection, bytes);
    }

    /// The next whole reply frame, without its length; none when there is none.
    pub fn frame(&mut self, connection: ConnectionId) -> Option<Buf> {
        let wire = self.wires.get_mut(&connection)?;
        let length = u32::from_be_bytes(*wire.bytes.first_chunk::<4>()?) as usize;
        if wire.bytes.len() < 4 + length {
            return None;
        }
        let frame = Buf::copy_of(&wire.bytes[4..4 + length]);
        wire.bytes.drain(..4 + length);
        Some(frame)
    }

    /// Sends a request and gives its reply's frame. A large one begins in a later turn.
    pub fn ask<'a, T: Field<'a>>(&mut self, connection: ConnectionId, spec: &ApiSpec, version: i16, body: &T) -> Buf {
        self.send(connection, spec, version, body);
        for _ in 0..20 {
            if let Some(frame) = self.frame(connection) {
                return frame;
            }
            self.advance_ms(1);
        }
        panic!("{} is answered: {:?}", spec.name, self.notes.last())
    }

    /// Makes a topic by CreateTopics on connection `connection`.
    pub fn create_topic(
        &mut self,
        connection: ConnectionId,
        name: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> TopicId {
        use wire::create_topics::{CreatableTopic, CreatableTopicConfig};
        let configs = configs.iter().map(|&(name, value)| CreatableTopicConfig { name, value: Some(value) });
        let topic = CreatableTopic {
            name,
            num_partitions: partitions,
            replication_factor: 1,
            configs: configs.collect(),
            ..CreatableTopic::default()
        };
        let request = wire::CreateTopicsRequest { topics: vec![topic].into(), ..Default::default() };
        let frame = self.ask(connection, &wire::CREATE_TOPICS, 7, &request);
        let reply: wire::CreateTopicsResponse<'_> = decoded(&wire::CREATE_TOPICS, 7, &frame);
        let topic = reply.topics.iter().next().unwrap();
        assert_eq!(topic.error_code, ErrorCode::None, "{:?}", topic.error_message);
        topic.topic_id
    }
}

pub fn decoded<'a, T: Field<'a>>(spec: &ApiSpec, version: i16, frame: &'a Buf) -> T {
    wire::decode_reply::<T>(spec, version, frame).unwrap().1
}

/// One batch of records with these values.
pub fn batch(values: &[&str], producer: Option<Producer>) -> Vec<u8> {
    batch_at(1_700_000_000_000, values, producer)
}

pub fn batch_at(at: i64, values: &[&str], producer: Option<Producer>) -> Vec<u8> {
    let mut builder = Builder::new(Codec::None, producer);
    for (index, value) in values.iter().enumerate() {
        builder.push(WallMs(at + index as i64), None, Some(value.as_bytes()), &[]);
    }
    builder.encode()
}

/// The values in whole batches, in order, with their offsets.
pub fn values(mut bytes: &[u8]) -> Vec<(i64, String)> {
    let mut out = Vec::new();
    let mut scratch = Vec::new();
    while !bytes.is_empty() {
        let header = ringmain_batch::BatchHeader::parse(bytes).unwrap();
        let (batch, rest) = bytes.split_at(header.info.bytes as usize);
        assert!(ringmain_batch::crc_ok(batch));
        for record in ringmain_batch::records(batch, &mut scratch, 1 << 20).unwrap() {
            let record = record.unwrap();
            let value = String::from_utf8(record.value.unwrap_or_default().to_vec()).unwrap();
            out.push((header.base.0 + i64::from(record.offset_delta), value));
        }
        bytes = rest;
    }
    out
}
