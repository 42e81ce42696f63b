//! A request that means something, and what can be wrong with it: from what each API says of itself.

use ringmain_types::TopicId;
use ringmain_wire as wire;
use ringmain_wire::{FieldInfo, Kind, StructInfo};

/// What a request names.
pub struct Words {
    pub api: i16,
    pub topic: TopicId,
    /// Of a classic group.
    pub member: String,
    pub batch: Vec<u8>,
}

/// A value of a request, in the order of the bytes, those of tagged fields last.
pub struct Place {
    shape: Shape,
    nullable: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Number,
    Uuid,
    Text,
    Bytes,
    Array,
    Struct,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    Null,
    Empty,
    Twice,
    /// A count, or a length, of as much as can be said.
    Claim,
    Unknown,
    /// The longest text that there is.
    Long,
    Negative,
    Least,
    Most,
}

impl Damage {
    pub fn of(place: &Place) -> &'static [Damage] {
        use Damage::*;
        match place.shape {
            Shape::Number => &[Negative, Least, Most],
            Shape::Uuid => &[Unknown, Empty],
            Shape::Text => &[Null, Empty, Unknown, Long, Claim],
            Shape::Bytes => &[Null, Empty, Unknown, Claim],
            Shape::Array => &[Null, Empty, Twice, Claim],
            Shape::Struct if place.nullable => &[Null],
            Shape::Struct => &[],
        }
    }

    pub fn name(self, place: &Place) -> &'static str {
        match self {
            Damage::Null if place.nullable => "null where it may be",
            Damage::Null => "null where it may not be",
            Damage::Empty if place.shape == Shape::Array => "an empty array",
            Damage::Empty => "an empty name, or bytes",
            Damage::Twice => "an array's elements twice",
            Damage::Claim => "a length that is not there",
            Damage::Unknown => "a name, an id or bytes that nobody knows",
            Damage::Long => "a name of 32 767 bytes",
            Damage::Negative => "-1",
            Damage::Least => "the least number",
            Damage::Most => "the greatest number",
        }
    }
}

/// Requests of members of classic groups.
pub fn has_members(api: i16) -> bool {
    [wire::JOIN_GROUP, wire::SYNC_GROUP, wire::HEARTBEAT, wire::LEAVE_GROUP].iter().any(|spec| spec.key == api)
}

/// Requests of and about members of KIP-848 groups.
fn is_modern(api: i16) -> bool {
    [wire::CONSUMER_GROUP_HEARTBEAT, wire::CONSUMER_GROUP_DESCRIBE].iter().any(|spec| spec.key == api)
}

/// With its length and header.
pub fn frame(key: i16, version: i16, flexible: bool, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 4];
    frame.extend(key.to_be_bytes());
    frame.extend(version.to_be_bytes());
    frame.extend(77i32.to_be_bytes());
    frame.extend([0, 1, b'c']);
    frame.extend(flexible.then_some(0));
    frame.extend(body);
    let length = frame.len() as i32 - 4;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame
}

/// A body, and its places; with damage to one of them.
pub fn body(
    kind: Kind,
    version: i16,
    flexible: bool,
    words: &Words,
    damage: Option<(usize, Damage)>,
) -> (Vec<u8>, Vec<Place>) {
    let mut maker = Maker { version, flexible, words, damage, places: Vec::new(), out: Vec::new() };
    maker.value(kind, "", false);
    (maker.out, maker.places)
}

struct Maker<'w> {
    version: i16,
    flexible: bool,
    words: &'w Words,
    damage: Option<(usize, Damage)>,
    places: Vec<Place>,
    out: Vec<u8>,
}

impl Maker<'_> {
    /// Notes a place; what is wrong with it.
    fn place(&mut self, shape: Shape, nullable: bool) -> Option<Damage> {
        let at = self.places.len();
        self.places.push(Place { shape, nullable });
        self.damage.filter(|(damaged, _)| *damaged == at).map(|(_, damage)| damage)
    }

    fn value(&mut self, kind: Kind, name: &str, nullable: bool) {
        match kind {
            Kind::Bool => self.out.push(1),
            Kind::Int8 => self.number(1, name),
            Kind::Int16 => self.number(2, name),
            Kind::Int32 => self.number(4, name),
            Kind::Int64 => self.number(8, name),
            Kind::Uuid => {
                let id = match self.place(Shape::Uuid, false) {
                    Some(Damage::Unknown) => 0xee,
                    Some(_) => 0,
                    // One or the other, where a version has both.
                    None if matches!(self.words.api, 3 | 20) => 0,
                    None => self.words.topic.0,
                };
                self.out.extend(id.to_be_bytes());
            }
            Kind::String => self.text(name, false),
            Kind::Bytes | Kind::Records => self.bytes(kind, false),
            Kind::Array(of) => self.array(*of, name, false),
            Kind::Nullable(Kind::Struct(of)) => match self.place(Shape::Struct, nullable) {
                Some(_) => self.out.push(0xff),
                None => {
                    self.out.push(1);
                    self.fields(of);
                }
            },
            Kind::Nullable(of) => self.nullable_value(*of, name, nullable),
            Kind::Struct(of) => self.fields(of),
        }
    }

    fn nullable_value(&mut self, kind: Kind, name: &str, nullable: bool) {
        match kind {
            Kind::String => self.text(name, nullable),
            Kind::Bytes | Kind::Records => self.bytes(kind, nullable),
            Kind::Array(of) => self.array(*of, name, nullable),
            other => self.value(other, name, nullable),
        }
    }

    fn number(&mut self, bytes: usize, name: &str) {
        let value = match self.place(Shape::Number, false) {
            Some(Damage::Negative) => -1,
            Some(Damage::Least) => i64::MIN >> (64 - 8 * bytes),
            Some(Damage::Most) => i64::MAX >> (64 - 8 * bytes),
            _ => self.sample(name),
        };
        self.out.extend(&value.to_be_bytes()[8 - bytes..]);
    }

    /// What a client would say.
    fn sample(&self, name: &str) -> i64 {
        match name {
            "acks" | "timestamp" | "retention_time_ms" | "producer_id" | "producer_epoch" => -1,
            "replica_id" | "current_leader_epoch" | "last_fetched_epoch" | "replica_epoch" | "session_epoch" => -1,
            "generation_id_or_member_epoch" => -1,
            // Its assignments say how many.
            "num_partitions" | "replication_factor" => -1,
            "member_epoch" if self.words.api == wire::OFFSET_FETCH.key => -1,
            "timeout_ms" | "max_bytes" | "partition_max_bytes" | "transaction_timeout_ms" => 1000,
            "session_timeout_ms" | "rebalance_timeout_ms" => 10_000,
            "response_partition_limit" => 10,
            "broker_ids" | "node_id" => 1,
            "count" => 3,
            "resource_type" | "resource_types" => 2,
            "generation_id" | "endpoint_type" => 1,
            _ => 0,
        }
    }

    fn text(&mut self, name: &str, nullable: bool) {
        let damage = self.place(Shape::Text, nullable);
        let text: &str = match (damage, name) {
            (Some(Damage::Empty), _) => "",
            (Some(Damage::Unknown), _) => "nowhere",
            (Some(Damage::Long), _) => &"x".repeat(32_767),
            (None, "group_instance_id" | "instance_id" | "subscribed_topic_regex" | "transactional_id") if nullable => {
                return self.length(None, false);
            }
            (_, "group_id" | "group_ids") if is_modern(self.words.api) => "modern",
            (_, "group_id") if has_members(self.words.api) => "joined",
            (_, "group_id" | "groups" | "groups_names" | "coordinator_keys" | "key") => "group",
            (_, "member_id") if is_modern(self.words.api) => "member",
            (_, "member_id") if has_members(self.words.api) => &self.words.member.clone(),
            (None, "member_id") if nullable => return self.length(None, false),
            (_, "member_id") => "",
            (_, "cluster_id") => "test",
            (_, "protocol_type") => "consumer",
            (_, "protocol_name") => "range",
            (_, "name") if self.words.api == wire::JOIN_GROUP.key => "range",
            (_, "name") if self.words.api == wire::CREATE_TOPICS.key => "made",
            (_, "configuration_keys" | "config") => "retention.ms",
            (_, "value") => "1000",
            (_, "states_filter") => "Empty",
            (_, "types_filter") => "classic",
            (_, "server_assignor") => "uniform",
            (_, "config_name") => "retention.ms",
            _ => "orders",
        };
        match damage {
            Some(Damage::Null) => return self.length(None, false),
            Some(Damage::Claim) => self.claim(false),
            _ => self.length(Some(text.len()), false),
        }
        let text = text.to_owned();
        self.out.extend(text.as_bytes());
    }

    fn bytes(&mut self, kind: Kind, nullable: bool) {
        let damage = self.place(Shape::Bytes, nullable);
        let bytes = match (kind, damage) {
            (_, Some(Damage::Empty)) => Vec::new(),
            (_, Some(Damage::Unknown)) => b"nonsense".to_vec(),
            (Kind::Records, _) => self.words.batch.clone(),
            // A subscription, or an assignment, to nothing.
            _ => vec![0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
        };
        match damage {
            Some(Damage::Null) => return self.length(None, true),
            Some(Damage::Claim) => self.claim(true),
            _ => self.length(Some(bytes.len()), true),
        }
        self.out.extend(bytes);
    }

    fn array(&mut self, of: Kind, name: &str, nullable: bool) {
        let damage = self.place(Shape::Array, nullable);
        match damage {
            Some(Damage::Null) => return self.length(None, true),
            Some(Damage::Empty) => return self.length(Some(0), true),
            Some(Damage::Twice) => self.length(Some(2), true),
            Some(Damage::Claim) => self.claim(true),
            // Who joins has none.
            None if name == "topic_partitions" => return self.length(Some(0), true),
            _ => self.length(Some(1), true),
        }
        let from = self.out.len();
        self.value(of, name, false);
        if damage == Some(Damage::Twice) {
            self.out.extend_from_within(from..);
        }
    }

    fn fields(&mut self, of: &StructInfo) {
        let version = self.version;
        let spoken = |field: &&FieldInfo| (field.versions)(version);
        for field in of.fields.iter().filter(spoken).filter(|field| field.tag.is_none()) {
            // A config's name, not its topic's.
            let config = of.name.contains("Config") && field.name == "name";
            let name = if config { "config_name" } else { field.name };
            self.value(field.kind, name, (field.nullable)(version));
        }
        if !self.flexible {
            return;
        }
        let tagged: Vec<&FieldInfo> = of.fields.iter().filter(spoken).filter(|field| field.tag.is_some()).collect();
        self.uvar(tagged.len() as u32);
        for field in tagged {
            let before = std::mem::take(&mut self.out);
            // In tagged fields a nullable struct says with 1 that it is there.
            self.value(field.kind, field.name, (field.nullable)(version));
            let value = std::mem::replace(&mut self.out, before);
            self.uvar(field.tag.unwrap_or(0));
            self.uvar(value.len() as u32);
            self.out.extend(value);
        }
    }

    /// `None` is null.
    fn length(&mut self, length: Option<usize>, wide: bool) {
        let number = length.map_or(-1, |length| length as i32);
        match (self.flexible, wide) {
            (true, _) => self.uvar((number + 1) as u32),
            (false, true) => self.out.extend(number.to_be_bytes()),
            (false, false) => self.out.extend((number as i16).to_be_bytes()),
        }
    }

    fn claim(&mut self, wide: bool) {
        match (self.flexible, wide) {
            (true, _) => self.uvar(u32::MAX),
            (false, true) => self.out.extend(i32::MAX.to_be_bytes()),
            (false, false) => self.out.extend(i16::MAX.to_be_bytes()),
        }
    }

    fn uvar(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }
}
