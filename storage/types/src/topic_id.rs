//! A topic id as text: 16 bytes big-endian, base64 in the URL alphabet, no padding (Kafka's `Uuid`, KIP-516).

use std::fmt;
use std::str::FromStr;

use crate::TopicId;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// 128 bits in steps of 6: the last character carries two bits, the upper ones.
const CHARACTERS: usize = 22;

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0u8; CHARACTERS];
        for (i, character) in text.iter_mut().enumerate() {
            // How far the six bits lie above the lowest bit; negative for the last, which is filled up with zeroes.
            let shift = 122 - 6 * i as i32;
            let bits = if shift >= 0 { self.0 >> shift } else { self.0 << -shift };
            *character = ALPHABET[(bits & 63) as usize];
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

/// Why a text is no topic id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicIdError {
    /// Not 22 bytes.
    Length { bytes: usize },
    /// Outside the URL alphabet, or a last character with more than two bits set.
    Character { at: usize },
}

impl fmt::Display for TopicIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TopicIdError::Length { bytes } => write!(f, "a topic id has {CHARACTERS} characters, not {bytes}"),
            TopicIdError::Character { at } => write!(f, "character {at} of a topic id is not base64url"),
        }
    }
}
impl std::error::Error for TopicIdError {}

impl FromStr for TopicId {
    type Err = TopicIdError;

    fn from_str(text: &str) -> Result<TopicId, TopicIdError> {
        if text.len() != CHARACTERS {
            return Err(TopicIdError::Length { bytes: text.len() });
        }
        let mut id = 0u128;
        for (at, character) in text.bytes().enumerate() {
            let bits = sextet(character).ok_or(TopicIdError::Character { at })?;
            if at + 1 == CHARACTERS {
                if bits & 15 != 0 {
                    return Err(TopicIdError::Character { at });
                }
                id = id << 2 | u128::from(bits >> 4);
            } else {
                id = id << 6 | u128::from(bits);
            }
        }
        Ok(TopicId(id))
    }
}

fn sextet(character: u8) -> Option<u8> {
    match character {
        b'A'..=b'Z' => Some(character - b'A'),
        b'a'..=b'z' => Some(character - b'a' + 26),
        b'0'..=b'9' => Some(character - b'0' + 52),
        b'-' => Some(62),
        b'_' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_as_kafka_prints_them() {
        // Uuid.ZERO_UUID and Uuid.METADATA_TOPIC_ID of Kafka 4.4.
        assert_eq!(TopicId::NONE.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(TopicId::METADATA.to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        // new Uuid(0x0123456789abcdefL, 0xfedcba9876543210L)
        assert_eq!(TopicId(0x0123456789abcdef_fedcba9876543210).to_string(), "ASNFZ4mrze_-3LqYdlQyEA");
        assert_eq!(TopicId(u128::MAX).to_string(), "_____________________w");
    }

    #[test]
    fn a_round_trip_keeps_every_bit() {
        for bit in 0..128 {
            let id = TopicId(1 << bit);
            assert_eq!(id.to_string().parse(), Ok(id));
        }
    }

    #[test]
    fn what_is_not_an_id_is_refused() {
        let parse = |text: &str| text.parse::<TopicId>();
        assert_eq!(parse(""), Err(TopicIdError::Length { bytes: 0 }));
        assert_eq!(parse("AAAAAAAAAAAAAAAAAAAAAQ=="), Err(TopicIdError::Length { bytes: 24 }));
        assert_eq!(parse("AAAAAAAAAA+AAAAAAAAAAQ"), Err(TopicIdError::Character { at: 10 }));
        assert_eq!(parse("AAAAAAAAAAAAAAAAAAAAAB"), Err(TopicIdError::Character { at: 21 }));
        assert_eq!(parse("ääääääääääA"), Err(TopicIdError::Length { bytes: 21 }));
        assert_eq!(parse("äääääääääää"), Err(TopicIdError::Character { at: 0 }));
    }
}
