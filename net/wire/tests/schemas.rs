//! Every struct of `ringmain-wire`, field by field, against the facts of Kafka 4.4's schemas: names, order, types, versions,
//! null-ability, tags and defaults.

mod facts;

use facts::{Field, Message, Versions};
use ringmain_wire::{API_INFOS, FORMAT_INFOS, FieldInfo, FormatInfo, Kind, StructInfo, Writer};

/// Probed one by one; schemas have far fewer.
const VERSIONS_PROBED: std::ops::Range<i16> = 0..64;

#[test]
fn apis_are_the_schemas() {
    let messages = facts::messages();
    assert_eq!(messages.len(), 2 * API_INFOS.len(), "each API has a request and a response");
    for info in API_INFOS {
        for (kind, suffix) in [(info.request, "Request"), (info.response, "Response")] {
            let name = format!("{}{suffix}", info.spec.name);
            let message = messages.iter().find(|message| message.name == name).expect("a schema");
            check_spec(info, message);
            check_body(kind, message, &Spoken { versions: info.spec.versions, flexible: info.spec.flexible });
        }
    }
}

#[test]
fn formats_are_the_schemas() {
    let formats = facts::formats();
    assert_eq!(formats.len(), FORMAT_INFOS.len());
    for FormatInfo { spec, body } in FORMAT_INFOS {
        let Kind::Struct(ours) = body else { panic!("{body:?} is not a struct") };
        let format = formats.iter().find(|format| format.name == ours.name).expect("a schema");
        assert_eq!(spec.key, format.key, "{}", format.name);
        assert_eq!(flexible(spec.flexible), format.flexible, "{}", format.name);
        assert_eq!(Versions(spec.versions.0, spec.versions.1), format.valid, "{}", format.name);
        check_body(*body, format, &Spoken { versions: spec.versions, flexible: spec.flexible });
    }
}

struct Spoken {
    versions: (i16, i16),
    flexible: i16,
}

fn flexible(first: i16) -> Versions {
    if first == i16::MAX { Versions(1, 0) } else { Versions(first, i16::MAX) }
}

fn check_body(kind: Kind, message: &Message, spoken: &Spoken) {
    let Kind::Struct(ours) = kind else { panic!("{} is not a struct", message.name) };
    assert_eq!(ours.name, message.name);
    check_struct(ours, &message.fields, spoken, &message.name);
}

/// Key, versions and the first flexible one. Produce is advertised from 0 on, which is answered with an error (KAFKA-18659);
/// an unstable last version is not spoken.
fn check_spec(info: &ringmain_wire::ApiInfo, message: &Message) {
    let spec = &info.spec;
    assert_eq!(spec.key, message.key, "{}", message.name);
    assert_eq!(flexible(spec.flexible), message.flexible, "{}", message.name);
    let Versions(mut min, mut max) = message.valid;
    if spec.name == "Produce" {
        min = 0;
    }
    // Kafka marks the request alone.
    if message.latest_unstable || message.name == "InitProducerIdResponse" {
        max -= 1;
    }
    assert_eq!(spec.versions, (min, max), "{}", message.name);
}

fn check_struct(ours: &StructInfo, facts: &[Field], info: &Spoken, path: &str) {
    let spoken = Versions(info.versions.0, info.versions.1);
    let mut facts: Vec<&Field> = facts.iter().filter(|field| field.versions.meets(spoken)).collect();
    // Stable: plain fields keep their order, tagged ones follow by tag.
    facts.sort_by_key(|field| field.tag.map_or(0, |tag| tag + 1));
    let names: Vec<String> = facts.iter().map(|field| snake_case(&field.name)).collect();
    assert_eq!(ours.fields.iter().map(|field| field.name).collect::<Vec<_>>(), names, "fields of {path}");
    for (field, fact) in ours.fields.iter().zip(facts) {
        check_field(field, fact, info, &format!("{path}.{}", fact.name));
    }
}

fn check_field(ours: &FieldInfo, fact: &Field, info: &Spoken, path: &str) {
    let (min, max) = info.versions;
    assert_eq!(ours.tag, fact.tag, "tag of {path}");
    let versions = if fact.tag.is_some() { fact.tagged } else { fact.versions };
    for version in VERSIONS_PROBED {
        assert_eq!((ours.versions)(version), versions.has(version), "is {path} in version {version}?");
    }
    let (mut kind, nullable_kind) = match ours.kind {
        Kind::Nullable(kind) => (*kind, true),
        kind => (kind, false),
    };
    assert_eq!(nullable_kind, fact.nullable.meets(versions), "may {path} be null?");
    for version in (min..=max).filter(|version| nullable_kind && versions.has(*version)) {
        assert_eq!((ours.nullable)(version), fact.nullable.has(version), "may {path} be null in version {version}?");
    }
    assert_eq!(encoded(ours.default, min), default(fact, nullable_kind, min), "default of {path}");
    if let Kind::Array(element) = kind {
        assert!(fact.array, "{path} is no array");
        kind = *element;
    } else {
        assert!(!fact.array, "{path} is an array");
    }
    match kind {
        Kind::Struct(ours) => {
            assert_eq!(ours.name, fact.element, "type of {path}");
            check_struct(ours, &fact.fields, info, path);
            for version in (min..=max).filter(|version| fact.array && versions.has(*version)) {
                let present = ours.fields.iter().any(|field| field.tag.is_none() && (field.versions)(version));
                assert!(present || version >= info.flexible, "elements of {path} have no bytes in {version}");
            }
        }
        kind => assert_eq!(type_name(kind), fact.element, "type of {path}"),
    }
}

fn encoded(write: fn(&mut Writer), version: i16) -> Vec<u8> {
    let mut w = Writer::new(version, false);
    write(&mut w);
    w.finish().concat()
}

/// The default in the form that is not flexible. One rule is ours: where Kafka names no default, a nullable field is null and not empty, so that a handler which leaves out an error
/// message or a list says nothing rather than "". Not so for tagged fields: what is absent on the wire is Kafka's default.
fn default(fact: &Field, nullable: bool, version: i16) -> Vec<u8> {
    let text = fact.default.as_deref();
    if nullable && (text == Some("null") || text.is_none() && fact.tag.is_none()) {
        return match (fact.array, fact.element.as_str()) {
            (true, _) | (_, "records" | "bytes") => vec![0xff; 4],
            (_, "string") => vec![0xff; 2],
            _ => vec![0xff],
        };
    }
    if fact.array {
        return vec![0; 4];
    }
    let number: i64 = text.and_then(|text| text.parse().ok()).unwrap_or(0);
    match fact.element.as_str() {
        "bool" => vec![u8::from(text == Some("true"))],
        "int8" => vec![number as u8],
        "int16" => (number as i16).to_be_bytes().into(),
        "int32" => (number as i32).to_be_bytes().into(),
        "int64" => number.to_be_bytes().into(),
        "uuid" => vec![0; 16],
        "string" => vec![0; 2],
        "bytes" => vec![0; 4],
        _ => {
            let present = fact.fields.iter().filter(|field| field.versions.has(version));
            let body = present.flat_map(|field| default(field, false, version));
            nullable.then_some(1).into_iter().chain(body).collect()
        }
    }
}

fn type_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "bool",
        Kind::Int8 => "int8",
        Kind::Int16 => "int16",
        Kind::Int32 => "int32",
        Kind::Int64 => "int64",
        Kind::Uuid => "uuid",
        Kind::String => "string",
        Kind::Bytes => "bytes",
        Kind::Records => "records",
        Kind::Array(_) | Kind::Nullable(_) | Kind::Struct(_) => "nested",
    }
}

/// `ClusterId` -> `cluster_id`, `Enable2Pc` -> `enable2_pc`.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for (i, c) in name.char_indices() {
        if c.is_ascii_uppercase() && i > 0 {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}
