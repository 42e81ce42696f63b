//! The protocol's decoders: what is accepted comes back, and the other implementation reads the same in it.

use std::fmt::{Debug, Write};

use ringmain_wire::records::*;
use ringmain_wire::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, Count, Field, Format, Writer, api_info, decode_embedded,
    decode_key, decode_value, encode_key, encode_value, request_header,
};

use crate::allocations::within;
use crate::input::Input;
use crate::theirs;

/// Decoding allocates nothing at all, whatever the bytes claim; `Debug` walks to every element.
pub fn decoded<T: Debug>(decode: impl FnOnce() -> Option<T>) -> Option<T> {
    within(0, 0, || {
        let decoded = decode()?;
        let mut walk = Walk(0);
        write!(walk, "{decoded:?}").expect("it only counts");
        Some(decoded)
    })
}

struct Walk(usize);

impl Write for Walk {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

/// Beside four times what was read: the head of a message that says nothing but defaults.
pub const ENCODED_BYTES: usize = 1 << 10;

pub fn encoded<'a, T: Field<'a>>(version: i16, flexible: bool, body: &T, bytes: usize) -> Vec<u8> {
    within(bytes, ENCODED_BYTES, || {
        let mut w = Writer::new(version, flexible);
        body.write(&mut w);
        w.finish().concat()
    })
}

/// API and version, then a body; the header in front of it is the same bytes read as one.
pub fn requests(bytes: &[u8]) {
    let _ = within(0, 0, || request_header(bytes));
    through(bytes, theirs::REQUESTS);
    counted(bytes);
}

/// In pieces and at once it comes to the same: so many elements, or the same error; and what was counted decodes.
fn counted(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let pair = &theirs::REQUESTS[input.below(theirs::REQUESTS.len())];
    let (min, max) = pair.spec.versions;
    let version = min + input.below((max - min + 1) as usize) as i16;
    let body = input.rest();
    let info = api_info(pair.spec.key).expect("an API that we speak");
    let count = |most: usize| {
        let mut count = Count::default();
        // Each pass reads an element at least.
        (0..=body.len()).find_map(|_| count.go_on(info, version, body, most).transpose()).expect("it ends")
    };
    let whole = count(usize::MAX).map(|counted| counted.elements());
    for most in [1, 5] {
        assert_eq!(count(most).map(|counted| counted.elements()), whole, "{} {version}, {most} a pass", pair.name);
    }
}

pub fn replies(bytes: &[u8]) {
    through(bytes, theirs::REPLIES);
}

fn through(bytes: &[u8], pairs: &[theirs::Pair]) {
    let mut input = Input::new(bytes);
    let pair = &pairs[input.below(pairs.len())];
    let (min, max) = pair.spec.versions;
    let version = min + input.below((max - min + 1) as usize) as i16;
    let body = input.rest();
    let Some(canonical) = (pair.ours)(version, body) else { return };
    let again = (pair.ours)(version, &canonical);
    assert_eq!(again.as_ref(), Some(&canonical), "{} {version}: not what it was", pair.name);
    if (pair.versions.min..=pair.versions.max).contains(&version) {
        theirs::judge(pair, version, body, &canonical);
    }
}

/// A selector, then what each format is read from: a key, a value, or what a client embeds.
pub fn formats(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (_, format) = FORMATS[input.below(FORMATS.len())];
    format(input.rest());
}

macro_rules! formats { ($($name:ident)*) => { &[$((stringify!($name), |bytes| {
    if let Some(key) = decoded(|| decode_key::<$name>(bytes).ok()) {
        let written = encode_key(&key);
        assert_eq!(decode_key::<$name>(&written).as_ref(), Ok(&key), stringify!($name));
    }
    if let Some(value) = decoded(|| decode_value::<$name>(bytes).ok()) {
        let version = i16::from_be_bytes([bytes[0], bytes[1]]);
        let written = within(bytes.len(), ENCODED_BYTES, || encode_value(version, &value));
        assert_eq!(decode_value::<$name>(&written).as_ref(), Ok(&value), "{} {version}", stringify!($name));
    }
    if let Some(value) = decoded(|| decode_embedded::<$name>(bytes).ok()) {
        // A later version is read as the last that is known.
        let version = i16::from_be_bytes([bytes[0], bytes[1]]).min($name::SPEC.versions.1);
        let written = within(bytes.len(), ENCODED_BYTES, || encode_value(version, &value));
        assert_eq!(decode_embedded::<$name>(&written).as_ref(), Ok(&value), "{} {version}", stringify!($name));
    }
})),*] } }

type FormatTarget = (&'static str, fn(&[u8]));

/// In the order of `ringmain_wire::FORMAT_INFOS`, which the tests hold against it.
const FORMATS: &[FormatTarget] = formats! {
    ConsumerProtocolSubscription ConsumerProtocolAssignment
    OffsetCommitKey OffsetCommitValue
    LegacyOffsetCommitKey LegacyOffsetCommitValue
    GroupMetadataKey GroupMetadataValue
    ConsumerGroupMetadataKey ConsumerGroupMetadataValue
    ConsumerGroupPartitionMetadataKey ConsumerGroupPartitionMetadataValue
    ConsumerGroupMemberMetadataKey ConsumerGroupMemberMetadataValue
    ConsumerGroupTargetAssignmentMetadataKey ConsumerGroupTargetAssignmentMetadataValue
    ConsumerGroupTargetAssignmentMemberKey ConsumerGroupTargetAssignmentMemberValue
    ConsumerGroupCurrentMemberAssignmentKey ConsumerGroupCurrentMemberAssignmentValue
    ConsumerGroupRegularExpressionKey ConsumerGroupRegularExpressionValue
};

#[cfg(test)]
mod tests {
    use ringmain_wire::{API_INFOS, FORMAT_INFOS, Kind};

    use super::*;

    #[test]
    fn nothing_that_is_decoded_is_left_out() {
        for pairs in [theirs::REQUESTS, theirs::REPLIES] {
            let keys: Vec<i16> = pairs.iter().map(|pair| pair.spec.key).collect();
            assert_eq!(keys, API_INFOS.iter().map(|info| info.spec.key).collect::<Vec<_>>());
        }
        let names = FORMAT_INFOS.iter().map(|info| match info.body {
            Kind::Struct(body) => body.name,
            kind => panic!("{kind:?}"),
        });
        assert_eq!(names.collect::<Vec<_>>(), FORMATS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    }
}
