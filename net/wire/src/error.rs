//! What can be wrong with bytes that claim to be a request or a reply.

use std::fmt;

/// Each variant names the field at which decoding stopped, as Kafka's schemas name it (in snake case).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireError {
    /// The bytes end inside the field.
    Short {
        field: &'static str,
    },
    /// A length or count that is negative, null where null is not allowed, larger than Kafka allows or than what is left.
    Length {
        field: &'static str,
        value: i64,
    },
    Utf8 {
        field: &'static str,
    },
    /// A value outside its range: a version, a varint of more than 32 bits, an element of no bytes.
    Value {
        field: &'static str,
        value: i64,
    },
    /// Bytes left behind a body, or behind the value of a tagged field.
    Trailing {
        bytes: usize,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::Short { field } => write!(f, "bytes end inside `{field}`"),
            WireError::Length { field, value } => write!(f, "length {value} of `{field}` is not possible"),
            WireError::Utf8 { field } => write!(f, "`{field}` is not UTF-8"),
            WireError::Value { field, value } => write!(f, "value {value} of `{field}` is not possible"),
            WireError::Trailing { bytes } => write!(f, "{bytes} bytes follow the end"),
        }
    }
}

impl std::error::Error for WireError {}
