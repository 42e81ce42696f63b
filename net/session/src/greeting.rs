//! What a connection that does not speak Kafka's protocol speaks instead, by its first bytes.

/// Bytes in front of each frame: its length, big-endian, signed.
pub(crate) const PREFIX_BYTES: usize = 4;

const HTTP: [&[u8; 4]; 10] = [b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI "];

/// Of a connection's first four bytes: none of these is the length of a frame that anybody sends first.
pub(crate) fn stranger(prefix: [u8; PREFIX_BYTES]) -> Option<&'static str> {
    match prefix {
        _ if HTTP.contains(&&prefix) => Some("an HTTP request; this port speaks Kafka's protocol"),
        [b'H', b'T', b'T', b'P'] => Some("an HTTP response; this port speaks Kafka's protocol"),
        [0x16, 0x03, 0..=4, _] => Some("a TLS ClientHello; this port does not speak TLS"),
        [b'S', b'S', b'H', b'-'] => Some("SSH; this port speaks Kafka's protocol"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_are_named_and_lengths_are_not() {
        assert!(stranger(*b"GET ").unwrap().contains("HTTP"));
        assert!(stranger([0x16, 3, 1, 2]).unwrap().contains("TLS"));
        for length in [1i32, 100, 1 << 20, 100 << 20] {
            assert_eq!(stranger(length.to_be_bytes()), None);
        }
    }
}
