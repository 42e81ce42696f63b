//! `cleaner-offset-checkpoint`: up to where a log is compacted. Kafka keeps one file for all logs of a directory; here each log has its
//! own, in its own directory, in the same text: shards share no file.
//!
//! A lost one costs a pass over the whole log. One that is too far would cost data: a delete marker whose key was never looked for
//! would go while older values of the key stay. So it is written only when all it speaks of is in place.

use ringmain_types::Offset;

pub const NAME: &str = "cleaner-offset-checkpoint";
/// No file of this format is longer; more is not read.
pub(super) const BYTES_MAX: u64 = 512;

/// `name` is the log's directory: `<topic>-<partition>`.
pub(super) fn encode(name: &str, offset: Offset) -> Vec<u8> {
    let (topic, index) = name.rsplit_once('-').unwrap_or((name, "0"));
    format!("0\n1\n{topic} {index} {}\n", offset.0).into_bytes()
}

/// The offset; none where the bytes are no such file.
pub(super) fn decode(bytes: &[u8]) -> Option<Offset> {
    let text = std::str::from_utf8(bytes).ok()?.strip_prefix("0\n1\n")?;
    let line = text.strip_suffix('\n').filter(|line| !line.contains('\n'))?;
    let (_, offset) = line.rsplit_once(' ')?;
    offset.parse().ok().filter(|offset| *offset >= 0).map(Offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_and_damage() {
        let bytes = encode("my-orders-3", Offset(4711));
        assert_eq!(bytes, b"0\n1\nmy-orders 3 4711\n");
        assert_eq!(decode(&bytes), Some(Offset(4711)));
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut]), None, "{cut}");
        }
        assert_eq!(decode(b"0\n1\na 0 -1\n"), None);
        assert_eq!(decode(b"0\n2\na 0 1\nb 0 2\n"), None);
        assert_eq!(decode(&[0; 40]), None);
    }
}
