//! What each API makes of input that is wrong in one place: for `tests/bad_input.rs`, which holds it against a table.
//!
//! A request that means something is made of what each API says of its fields, for each version; then it is damaged, one thing at a
//! time, and given to a whole shard as a client would. Whatever comes of it, there is one reply that its client can read, or the
//! connection's end; another client's connection goes on, and memory stays within what the shard may use.

use std::collections::{BTreeMap, BTreeSet};

use ringmain_shard::Note;
use ringmain_types::{ConnectionId, ErrorCode, Limits, TopicId};
use ringmain_wire as wire;
use ringmain_wire::{API_INFOS, API_VERSIONS, ApiInfo, Kind, MetadataRequest, Overlap, Reader};

use crate::allocations::within;
use crate::damage::{self, Damage, Words};
use crate::theirs;
use crate::world::{World, batch};

/// Requests that one world sees, and of those that change what is there: topics, groups, their members.
const CASES_A_WORLD: usize = 64;
const CHANGES_A_WORLD: usize = 8;
/// How long a client waits for what it asked to wait for.
const PATIENCE_MS: [u64; 4] = [10, 5_000, 60_000, 600_000];
/// Beside four times the frame: all accounts of `Limits::tiny`, and what disks (whole files, with zeroes ahead of their ends) and clients
/// of this world keep in memory.
const BESIDE_BYTES: usize = 6 << 20;
/// What a byte is changed by: each bit, all, and all but the sign's.
const CHANGES: [u8; 10] = [1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80, 0xff, 0x7f];

/// API, kind of damage, and what clients got.
pub type Table = BTreeMap<(usize, &'static str), BTreeSet<String>>;

/// All damage to all versions of one API, by its place in `API_INFOS`; how many requests that were.
pub fn run(api: usize, table: &mut Table) -> usize {
    let info = &API_INFOS[api];
    let mut count = 0;
    for version in info.spec.versions.0..=info.spec.versions.1 {
        // Damaged in place: frames differ only in the ids that their world's topics have.
        let kinds: BTreeSet<&'static str> =
            cases(info, version, TopicId(7), "m").iter().map(|case| case.kind).collect();
        for kind in kinds {
            count += run_kind(info, version, kind, table.entry((api, kind)).or_default());
        }
    }
    count
}

fn run_kind(info: &ApiInfo, version: i16, kind: &str, outcomes: &mut BTreeSet<String>) -> usize {
    let mut at = 0;
    let changes = info.spec.overlap == Overlap::Barrier || damage::has_members(info.spec.key);
    let most = if changes { CHANGES_A_WORLD } else { CASES_A_WORLD };
    loop {
        let mut client = Client::new();
        let cases = cases(info, version, client.topic, &client.member);
        let mut left = cases.into_iter().filter(|case| case.kind == kind).skip(at).peekable();
        if left.peek().is_none() {
            return at;
        }
        for case in left.by_ref().take(most) {
            outcomes.insert(client.ask(&case.frame));
            at += 1;
        }
        client.others_go_on();
    }
}

struct Case {
    kind: &'static str,
    /// With its length.
    frame: Vec<u8>,
}

/// Every damage to one request.
fn cases(info: &ApiInfo, version: i16, topic: TopicId, member: &str) -> Vec<Case> {
    let member = member.to_owned();
    let words = Words { api: info.spec.key, topic, member, batch: batch(&["one", "two"], None) };
    let flexible = info.spec.is_flexible(version);
    let whole = |body: &[u8]| damage::frame(info.spec.key, version, flexible, body);
    let (body, places) = damage::body(info.request, version, flexible, &words, None);
    let frame = whole(&body);
    let head = frame.len() - body.len();
    let mut cases = vec![Case { kind: "whole", frame: frame.clone() }];
    for end in 0..body.len() {
        cases.push(Case { kind: "cut", frame: whole(&body[..end]) });
    }
    for at in 4..frame.len() {
        let kind = if at < head { "a byte of the header changed" } else { "a byte changed" };
        for change in CHANGES {
            let mut frame = frame.clone();
            frame[at] ^= change;
            cases.push(Case { kind, frame });
        }
    }
    cases.push(Case { kind: "more bytes than it has", frame: whole(&[&body[..], &[0x7f; 3]].concat()) });
    for (at, place) in places.iter().enumerate() {
        for damage in Damage::of(place) {
            let (body, _) = damage::body(info.request, version, flexible, &words, Some((at, *damage)));
            cases.push(Case { kind: damage.name(place), frame: whole(&body) });
        }
    }
    cases
}

/// A world with something in it, the client that asks, and one beside it.
struct Client {
    world: World,
    topic: TopicId,
    /// Of the group `joined`.
    member: String,
    asks: ConnectionId,
    beside: ConnectionId,
}

impl Client {
    fn new() -> Client {
        // Nobody is closed for being silent.
        let limits = Limits {
            connection_idle_ms: 1 << 40,
            connection_slow_ms: 1 << 40,
            // The longest name fits.
            frame_bytes_max: 256 << 10,
            admin_frame_bytes_max: 128 << 10,
            ..Limits::tiny()
        };
        let properties = [("offsets.topic.num.partitions", "1"), ("group.initial.rebalance.delay.ms", "0")];
        let mut world = World::with(1, limits, &properties);
        let (beside, asks) = (world.connect(0), world.connect(0));
        let topic = world.create_topic(beside, "orders", 2, &[]);
        let coordinator = wire::FindCoordinatorRequest { key: "group", ..Default::default() };
        world.ask(beside, &wire::FIND_COORDINATOR, 3, &coordinator);
        let member = join(&mut world, beside);
        let mut client = Client { world, topic, member, asks, beside };
        for (api, version) in [
            (wire::PRODUCE, 9),
            (wire::OFFSET_COMMIT, 8),
            (wire::SYNC_GROUP, 3),
            (wire::HEARTBEAT, 4),
            (wire::CONSUMER_GROUP_HEARTBEAT, 1),
        ] {
            let info = wire::api_info(api.key).expect("an API");
            let got = client.ask(&cases(info, version, topic, &client.member)[0].frame);
            assert_eq!(got, "answered", "{}", api.name);
        }
        client
    }

    /// What came of it.
    fn ask(&mut self, frame: &[u8]) -> String {
        if !self.world.is_open(self.asks) {
            self.asks = self.world.connect(0);
        }
        let (world, asks) = (&mut self.world, self.asks);
        let reply = within(frame.len(), BESIDE_BYTES, || {
            world.send_bytes(asks, frame.to_vec());
            world.run();
            for wait in PATIENCE_MS {
                let reply = world.frame(asks);
                if reply.is_some() || !world.is_open(asks) {
                    return reply;
                }
                world.advance_ms(wait);
            }
            world.frame(asks)
        });
        let open = self.world.is_open(self.asks);
        assert!(self.world.is_open(self.beside), "another connection was closed: {}", frame.escape_ascii());
        match reply {
            Some(reply) => {
                assert!(self.world.frame(self.asks).is_none(), "two replies: {}", frame.escape_ascii());
                let codes = read(frame, &reply);
                match codes.is_empty() {
                    true => "answered".into(),
                    false => {
                        codes.iter().map(|code| format!("{} {code:?}", code.code())).collect::<Vec<_>>().join(" + ")
                    }
                }
            }
            None if open => {
                self.world.disconnect(self.asks);
                self.asks = self.world.connect(0);
                "silence".into()
            }
            None => "closed".into(),
        }
    }

    fn others_go_on(&mut self) {
        let request = MetadataRequest { topics: None, ..Default::default() };
        let reply = self.world.ask(self.beside, &wire::METADATA, 12, &request);
        wire::decode_reply::<wire::MetadataResponse<'_>>(&wire::METADATA, 12, &reply).expect("a reply");
        let fenced = self.world.notes.iter().find(|(_, note)| matches!(note, Note::Fenced { .. }));
        assert!(fenced.is_none(), "{fenced:?}");
    }
}

/// The first member of the group `joined`.
fn join(world: &mut World, client: ConnectionId) -> String {
    let protocol = wire::join_group::JoinGroupRequestProtocol { name: "range", metadata: &[0, 0, 0, 0, 0, 0] };
    let asked = wire::JoinGroupRequest {
        group_id: "joined",
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        protocol_type: "consumer",
        protocols: vec![protocol].into(),
        ..Default::default()
    };
    let reply = world.ask(client, &wire::JOIN_GROUP, 3, &asked);
    let reply: wire::JoinGroupResponse<'_> = wire::decode_reply(&wire::JOIN_GROUP, 3, &reply).expect("a reply").1;
    assert_eq!((reply.error_code, reply.generation_id), (ErrorCode::None, 1));
    reply.member_id.to_owned()
}

/// The error codes in a reply, which is read by both implementations, as a client of the request's version reads it.
fn read(frame: &[u8], reply: &[u8]) -> BTreeSet<ErrorCode> {
    let number = |at: usize| i16::from_be_bytes([frame[at], frame[at + 1]]);
    let (key, mut version) = (number(4), number(6));
    assert_eq!(reply[..4], frame[8..12], "another request's reply");
    let at = API_INFOS.iter().position(|info| info.spec.key == key).expect("an API that is answered is known");
    let (info, pair) = (&API_INFOS[at], &theirs::REPLIES[at]);
    if key == API_VERSIONS.key && !info.spec.supports(version) {
        version = 0;
    }
    let flexible = info.spec.is_flexible(version);
    let body = &reply[4 + usize::from(flexible && key != API_VERSIONS.key)..];
    let canonical = (pair.ours)(version, body);
    let wrong = || format!("{} v{version}: a reply that nobody can read: {}", pair.name, body.escape_ascii());
    let canonical = canonical.unwrap_or_else(|| panic!("{}", wrong()));
    if (pair.versions.min..=pair.versions.max).contains(&version) {
        theirs::judge(pair, version, body, &canonical);
    }
    let mut codes = BTreeSet::new();
    let mut r = Reader::new(body, version, flexible);
    collect(info.response, "", &mut r, &mut codes).unwrap_or_else(|error| panic!("{error}: {}", wrong()));
    codes
}

fn collect(kind: Kind, name: &str, r: &mut Reader<'_>, codes: &mut BTreeSet<ErrorCode>) -> Result<(), wire::WireError> {
    match kind {
        Kind::Bool | Kind::Int8 => drop(r.take(1)?),
        Kind::Int16 => {
            let code = i16::from_be_bytes(r.array()?);
            if name == "error_code" && code != 0 {
                codes.insert(ErrorCode::from_code(code).expect("one of Kafka's codes"));
            }
        }
        Kind::Int32 => drop(r.take(4)?),
        Kind::Int64 => drop(r.take(8)?),
        Kind::Uuid => drop(r.take(16)?),
        Kind::String | Kind::Nullable(Kind::String) => {
            let length = r.string_len()?.unwrap_or(0);
            r.take(length)?;
        }
        Kind::Bytes | Kind::Records | Kind::Nullable(Kind::Bytes | Kind::Records) => {
            let length = r.wide_len()?.unwrap_or(0);
            r.take(length)?;
        }
        Kind::Array(of) | Kind::Nullable(&Kind::Array(of)) => {
            for _ in 0..r.wide_len()?.unwrap_or(0) {
                collect(*of, "", r, codes)?;
            }
        }
        Kind::Nullable(of) => {
            if r.take(1)? == [1] {
                collect(*of, name, r, codes)?;
            }
        }
        Kind::Struct(of) => {
            let version = r.version;
            for field in of.fields.iter().filter(|field| field.tag.is_none() && (field.versions)(version)) {
                collect(field.kind, field.name, r, codes)?;
            }
            if r.flexible {
                r.tags(|_, _| Ok(false))?;
            }
        }
    }
    Ok(())
}
