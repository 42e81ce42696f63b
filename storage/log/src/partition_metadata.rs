//! `partition.metadata`: which topic a directory belongs to (KIP-516). A directory's name may be reused; its topic id is not.

use std::fmt;

use ringmain_types::TopicId;

/// No file of this format is longer; more is not read.
pub const BYTES_MAX: usize = 64;

/// `version: 0` and `topic_id: <22 characters>`, a line each.
pub fn encode(topic: TopicId) -> String {
    format!("version: 0\ntopic_id: {topic}\n")
}

/// The topic of a file's bytes. Kafka writes no newline after the last line; both are read.
pub fn decode(bytes: &[u8]) -> Result<TopicId, PartitionMetadataError> {
    let text = std::str::from_utf8(bytes).map_err(|_| PartitionMetadataError::Text)?;
    let mut lines = text.lines();
    let version = field(&mut lines, "version")?;
    if version != "0" {
        return Err(PartitionMetadataError::Version(version.chars().take(16).collect()));
    }
    let id: TopicId = field(&mut lines, "topic_id")?.parse().map_err(|_| PartitionMetadataError::TopicId)?;
    if lines.next().is_some() {
        return Err(PartitionMetadataError::Trailing);
    }
    if id == TopicId::NONE {
        return Err(PartitionMetadataError::TopicId);
    }
    Ok(id)
}

fn field<'a>(lines: &mut std::str::Lines<'a>, name: &'static str) -> Result<&'a str, PartitionMetadataError> {
    let line = lines.next().ok_or(PartitionMetadataError::Missing(name))?;
    let (key, value) = line.split_once(": ").ok_or(PartitionMetadataError::Missing(name))?;
    if key == name { Ok(value.trim_end()) } else { Err(PartitionMetadataError::Missing(name)) }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionMetadataError {
    /// Not UTF-8.
    Text,
    /// This line is not where it should be.
    Missing(&'static str),
    /// A version that this broker does not know.
    Version(String),
    /// No id, or the id of no topic.
    TopicId,
    /// Lines behind the last.
    Trailing,
}

impl fmt::Display for PartitionMetadataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PartitionMetadataError::Text => f.write_str("not a text"),
            PartitionMetadataError::Missing(name) => write!(f, "no line '{name}: ...' where it belongs"),
            PartitionMetadataError::Version(version) => write!(f, "version {version:?} is not 0"),
            PartitionMetadataError::TopicId => f.write_str("topic_id is not the id of a topic"),
            PartitionMetadataError::Trailing => f.write_str("more lines than two"),
        }
    }
}
impl std::error::Error for PartitionMetadataError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_keeps_the_id() {
        let id = TopicId(0x0123456789abcdef_fedcba9876543210);
        let text = encode(id);
        assert_eq!(text, "version: 0\ntopic_id: ASNFZ4mrze_-3LqYdlQyEA\n");
        assert!(text.len() <= BYTES_MAX);
        assert_eq!(decode(text.as_bytes()), Ok(id));
        assert_eq!(decode(text.trim_end().as_bytes()), Ok(id));
    }

    #[test]
    fn damage_has_a_name() {
        let whole = encode(TopicId(77));
        // Without its last newline the file still is one; every shorter piece is not.
        for length in 0..whole.len() - 1 {
            assert!(decode(&whole.as_bytes()[..length]).is_err(), "{length}");
        }
        assert_eq!(decode(&[0xff, 0xfe]), Err(PartitionMetadataError::Text));
        assert_eq!(decode(b"version: 1\ntopic_id: x\n"), Err(PartitionMetadataError::Version("1".into())));
        assert_eq!(decode(b"version: 0\nid: x\n"), Err(PartitionMetadataError::Missing("topic_id")));
        assert_eq!(decode(encode(TopicId::NONE).as_bytes()), Err(PartitionMetadataError::TopicId));
        assert_eq!(decode(format!("{whole}more\n").as_bytes()), Err(PartitionMetadataError::Trailing));
    }
}
