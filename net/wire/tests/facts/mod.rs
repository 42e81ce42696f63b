//! The facts of Kafka's schemas (`tests/data/schemas.tsv`, written by `tests/facts.py`), and random bodies made from them alone:
//! nothing here knows `ringmain-wire`'s structs.
#![allow(dead_code)] // each test binary uses its part

/// Inclusive; an empty range is (1, 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions(pub i16, pub i16);

impl Versions {
    fn parse(text: &str) -> Versions {
        let number = |text: &str| text.parse::<i16>().expect("a version");
        match text {
            "-" | "none" => Versions(1, 0),
            _ if text.ends_with('+') => Versions(number(&text[..text.len() - 1]), i16::MAX),
            _ => text
                .split_once('-')
                .map_or_else(|| Versions(number(text), number(text)), |(from, to)| Versions(number(from), number(to))),
        }
    }
    pub fn has(self, version: i16) -> bool {
        (self.0..=self.1).contains(&version)
    }
    pub fn meets(self, other: Versions) -> bool {
        self.0.max(other.0) <= self.1.min(other.1)
    }
}

#[derive(Debug)]
pub struct Message {
    pub format: bool,
    pub name: String,
    pub key: i16,
    pub valid: Versions,
    pub flexible: Versions,
    pub latest_unstable: bool,
    pub fields: Vec<Field>,
}

#[derive(Debug)]
pub struct Field {
    pub name: String,
    /// Without the `[]` of an array.
    pub element: String,
    pub array: bool,
    pub versions: Versions,
    pub nullable: Versions,
    pub tag: Option<u32>,
    pub tagged: Versions,
    pub default: Option<String>,
    pub fields: Vec<Field>,
}

/// Requests and responses.
pub fn messages() -> Vec<Message> {
    all().into_iter().filter(|message| !message.format).collect()
}

/// What is no API's: records, and what members of a group tell each other.
pub fn formats() -> Vec<Message> {
    all().into_iter().filter(|message| message.format).collect()
}

fn all() -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    for line in include_str!("../data/schemas.tsv").lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        match columns[..] {
            [kind @ ("message" | "format"), name, key, valid, flexible, unstable] => messages.push(Message {
                format: kind == "format",
                name: name.into(),
                key: key.parse().unwrap(),
                valid: Versions::parse(valid),
                flexible: Versions::parse(flexible),
                latest_unstable: unstable == "true",
                fields: Vec::new(),
            }),
            ["field", message, path, kind, versions, nullable, tag, tagged, default] => {
                let parent = messages.last_mut().unwrap();
                assert_eq!(parent.name, message);
                let mut fields = &mut parent.fields;
                let mut names = path.split('.').peekable();
                let mut name = names.next().unwrap();
                while names.peek().is_some() {
                    fields = &mut fields.iter_mut().find(|field| field.name == name).unwrap().fields;
                    name = names.next().unwrap();
                }
                fields.push(Field {
                    name: name.into(),
                    element: kind.trim_start_matches("[]").into(),
                    array: kind.starts_with("[]"),
                    versions: Versions::parse(versions),
                    nullable: Versions::parse(nullable),
                    tag: tag.parse().ok(),
                    tagged: Versions::parse(tagged),
                    default: (default != "-").then(|| default.into()),
                    fields: Vec::new(),
                });
            }
            _ => panic!("not a fact: {line}"),
        }
    }
    messages
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Encodes random bodies of one version, as the schema has it.
pub struct Bodies {
    pub random: Random,
    pub version: i16,
    pub flexible: bool,
    /// Adds a tagged field that nobody knows to every section of tagged fields.
    pub unknown_tags: bool,
}

impl Bodies {
    pub fn new(seed: u64, message: &Message, version: i16) -> Bodies {
        Bodies { random: Random(seed), version, flexible: message.flexible.has(version), unknown_tags: false }
    }

    pub fn body(&mut self, fields: &[Field]) -> Vec<u8> {
        let mut out = Vec::new();
        let version = self.version;
        for field in fields.iter().filter(|field| field.tag.is_none() && field.versions.has(version)) {
            self.value(field, &mut out);
        }
        if self.flexible {
            self.tags(fields, &mut out);
        }
        out
    }

    fn tags(&mut self, fields: &[Field], out: &mut Vec<u8>) {
        let mut tagged: Vec<&Field> = fields.iter().filter(|field| field.tagged.has(self.version)).collect();
        tagged.sort_by_key(|field| field.tag);
        let mut values = Vec::new();
        for field in tagged {
            let mut value = Vec::new();
            self.value(field, &mut value);
            if !self.random.one_in(3) && value != self.default(field) {
                values.push((field.tag.unwrap(), value));
            }
        }
        if self.unknown_tags {
            values.push((1 << 20, vec![0xff; self.random.below(200)]));
        }
        uvar(values.len() as u32, out);
        for (tag, value) in values {
            uvar(tag, out);
            uvar(value.len() as u32, out);
            out.extend(value);
        }
    }

    /// The encoded default of a field that is tagged.
    fn default(&self, field: &Field) -> Vec<u8> {
        let number: i64 = field.default.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0);
        let null = field.default.as_deref() == Some("null");
        match (field.array || null, field.element.as_str()) {
            (true, _) if !null => vec![1],
            (true, _) if !field.array && !field.fields.is_empty() => vec![0xff],
            (true, _) => vec![0],
            (_, "bool") => vec![0],
            (_, "int16") => (number as i16).to_be_bytes().into(),
            (_, "int32") => (number as i32).to_be_bytes().into(),
            (_, "int64") => number.to_be_bytes().into(),
            (_, "uuid") => vec![0; 16],
            (_, "string") => vec![1],
            _ => {
                let nullable = field.nullable.has(self.version).then_some(1);
                let present = field.fields.iter().filter(|field| field.versions.has(self.version));
                nullable.into_iter().chain(present.flat_map(|field| self.default(field))).chain([0]).collect()
            }
        }
    }

    fn value(&mut self, field: &Field, out: &mut Vec<u8>) {
        let null = field.nullable.has(self.version) && self.random.one_in(4);
        if !field.array {
            return self.element(field, null, out);
        }
        let count = self.random.below(4);
        self.len(true, (!null).then_some(count), out);
        for _ in 0..if null { 0 } else { count } {
            self.element(field, false, out);
        }
    }

    fn element(&mut self, field: &Field, null: bool, out: &mut Vec<u8>) {
        let number = match self.random.below(4) {
            0 => -1,
            1 => self.random.below(10) as i64,
            _ => self.random.next() as i64,
        };
        match field.element.as_str() {
            "bool" => out.push((number & 1) as u8),
            "int8" => out.push(number as u8),
            "int16" if field.name.ends_with("ErrorCode") => {
                out.extend((number.rem_euclid(138) as i16 - 1).to_be_bytes())
            }
            "int16" => out.extend((number as i16).to_be_bytes()),
            "int32" => out.extend((number as i32).to_be_bytes()),
            "int64" => out.extend(number.to_be_bytes()),
            "uuid" => out.extend((u128::from(self.random.next()) << 64 | u128::from(self.random.next())).to_be_bytes()),
            "string" => {
                let text = &"größer als 127 ".repeat(12)[..[0, 1, 2, 7, 130, 180][self.random.below(6)]];
                self.len(false, (!null).then_some(text.len()), out);
                out.extend(if null { &[] } else { text.as_bytes() });
            }
            "records" | "bytes" => {
                let bytes: Vec<u8> = (0..self.random.below(200)).map(|_| self.random.next() as u8).collect();
                self.len(true, (!null).then_some(bytes.len()), out);
                out.extend(if null { &[] } else { &bytes[..] });
            }
            _ if null => out.push(if field.tag.is_some() { 0 } else { 0xff }),
            _ => {
                if field.nullable.has(self.version) && !field.array {
                    out.push(1);
                }
                out.extend(self.body(&field.fields));
            }
        }
    }

    fn len(&self, wide: bool, len: Option<usize>, out: &mut Vec<u8>) {
        match (self.flexible, wide) {
            (true, _) => uvar(len.map_or(0, |len| len as u32 + 1), out),
            (false, true) => out.extend(len.map_or(-1, |len| len as i32).to_be_bytes()),
            (false, false) => out.extend(len.map_or(-1, |len| len as i16).to_be_bytes()),
        }
    }
}

pub fn uvar(mut value: u32, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
