//! Requests that name as much as they may, in a world as large as a broker's: for `tests/much.rs`. What they take is what they are
//! charged, and what is named a thousand times is not answered a thousand times.

use ringmain_buffer::Buf;
use ringmain_types::{ConnectionId, Limits, PartitionIndex};
use ringmain_wire as wire;
use ringmain_wire::fetch::{FetchPartition, FetchTopic};
use ringmain_wire::{ApiSpec, Field};

use crate::allocations::within;
use crate::world::World;

/// A shard with what it has of an ordinary machine.
const MEMORY_BYTES: u64 = 1 << 30;
/// What a request may take beside what is said of it: a turn of the world around it.
const BESIDE_BYTES: usize = 2 << 20;

/// In which everything is answered.
const STEPS_MS: u64 = 5_000;

struct Much {
    world: World,
    client: ConnectionId,
}

impl Much {
    fn new() -> Much {
        let mut world = World::with(1, Limits::production(MEMORY_BYTES), &[("offsets.topic.num.partitions", "4")]);
        let client = world.connect(0);
        world.create_topic(client, "orders", 4, &[]);
        let find = wire::FindCoordinatorRequest { key: "group", ..Default::default() };
        world.ask(client, &wire::FIND_COORDINATOR, 3, &find);
        Much { world, client }
    }

    /// The reply, and how often the request's bytes it took in memory at most.
    fn ask<'a, T: Field<'a>>(&mut self, spec: &ApiSpec, version: i16, times: usize, body: &T) -> Buf {
        let frame = wire::encode_request(spec, version, 1, None, body).concat();
        let (world, client) = (&mut self.world, self.client);
        // `within` allows four times what it is told.
        within(frame.len() * times / 4, BESIDE_BYTES, || {
            world.send_bytes(client, frame);
            world.run();
            // A large fetch goes on in steps, each of which is made up for.
            let frame = (0..STEPS_MS).find_map(|_| {
                let frame = world.frame(client);
                if frame.is_none() {
                    world.advance_ms(1);
                }
                frame
            });
            // What it took of the core is made up for.
            world.advance_ms(2_000);
            frame
        })
        .unwrap_or_else(|| panic!("{}: {:?}", spec.name, self.world.notes.last()))
    }
}

fn fetch(partitions: i32) -> wire::FetchRequest<'static> {
    let part = |index| FetchPartition { partition: PartitionIndex(index), ..Default::default() };
    // As many topics as a cluster may have partitions for.
    let topic = |at: i32| FetchTopic {
        topic: "orders.of.a.region.that.is.long.gone",
        partitions: (at * 10..at * 10 + 10).map(part).collect(),
        ..Default::default()
    };
    wire::FetchRequest { max_bytes: 1 << 20, topics: (0..partitions / 10).map(topic).collect(), ..Default::default() }
}

/// Returns how many partitions were answered.
pub fn a_fetch_of(partitions: i32) -> usize {
    let mut much = Much::new();
    // 33 bytes and a share of a name are some 800 in memory.
    let frame = much.ask(&wire::FETCH, 12, 26, &fetch(partitions));
    let reply = wire::decode_reply::<wire::FetchResponse<'_>>(&wire::FETCH, 12, &frame).expect("a reply").1;
    reply.responses.iter().map(|topic| topic.partitions.len()).sum()
}

/// The bytes of replies to one name, a hundred thousand times.
pub fn one_name_a_hundred_thousand_times() -> Vec<(&'static str, usize)> {
    const COUNT: usize = 100_000;
    let mut much = Much::new();
    let names = || vec!["group"; COUNT];
    let indexes = || vec![PartitionIndex(1); COUNT];
    let mut sizes = Vec::new();
    let body = wire::DescribeGroupsRequest { groups: names().into(), ..Default::default() };
    sizes.push(("DescribeGroups", much.ask(&wire::DESCRIBE_GROUPS, 5, 8, &body).len()));
    let body = wire::DeleteGroupsRequest { groups_names: names().into() };
    sizes.push(("DeleteGroups", much.ask(&wire::DELETE_GROUPS, 2, 8, &body).len()));
    let body = wire::ConsumerGroupDescribeRequest { group_ids: names().into(), ..Default::default() };
    sizes.push(("ConsumerGroupDescribe", much.ask(&wire::CONSUMER_GROUP_DESCRIBE, 1, 8, &body).len()));
    let body = wire::FindCoordinatorRequest { coordinator_keys: names().into(), ..Default::default() };
    sizes.push(("FindCoordinator", much.ask(&wire::FIND_COORDINATOR, 6, 8, &body).len()));
    let body = wire::ListGroupsRequest { states_filter: names().into(), types_filter: names().into() };
    sizes.push(("ListGroups", much.ask(&wire::LIST_GROUPS, 5, 8, &body).len()));
    let topic = wire::offset_fetch::OffsetFetchRequestTopics {
        name: "orders",
        partition_indexes: indexes().into(),
        ..Default::default()
    };
    let group = wire::offset_fetch::OffsetFetchRequestGroup {
        group_id: "group",
        topics: Some(vec![topic].into()),
        ..Default::default()
    };
    let body = wire::OffsetFetchRequest { groups: vec![group].into(), ..Default::default() };
    sizes.push(("OffsetFetch", much.ask(&wire::OFFSET_FETCH, 8, 8, &body).len()));
    let topic = wire::describe_producers::TopicRequest { name: "orders", partition_indexes: indexes().into() };
    let body = wire::DescribeProducersRequest { topics: vec![topic].into() };
    sizes.push(("DescribeProducers", much.ask(&wire::DESCRIBE_PRODUCERS, 0, 8, &body).len()));
    let topic = wire::describe_log_dirs::DescribableLogDirTopic { topic: "orders", partitions: indexes().into() };
    let body = wire::DescribeLogDirsRequest { topics: Some(vec![topic].into()) };
    sizes.push(("DescribeLogDirs", much.ask(&wire::DESCRIBE_LOG_DIRS, 4, 8, &body).len()));
    sizes
}
