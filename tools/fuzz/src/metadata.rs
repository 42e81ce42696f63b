//! Records of the metadata log, and the image that they make.

use std::sync::Arc;

use ringmain_metadata::{Controller, ControllerConfig, Record};
use ringmain_types::*;

use crate::allocations::within;
use crate::input::Input;

/// What an error says of its cause.
const WORDS_BYTES: usize = 1 << 10;
/// A record's format and length.
const HEADER_BYTES: usize = 5;

/// The first byte says whether records have their own header or get one that is right; then each behind its length.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let bare = input.byte() & 1 == 1;
    let config = ControllerConfig { broker: BrokerId(1), seed: 7, limits: Limits::tiny(), properties: Arc::default() };
    let mut controller = Controller::new(config);
    while !input.is_empty() {
        let mut record = Vec::new();
        let piece = input.piece();
        if bare {
            record.push(ringmain_metadata::FORMAT_VERSION);
            record.extend((piece.len() as u32).to_le_bytes());
        }
        record.extend(piece);
        let Ok(read) = within(record.len(), WORDS_BYTES, || Record::decode(&record)) else { continue };
        let written = read.encode();
        assert!(written.len() >= HEADER_BYTES);
        assert_eq!(Record::decode(&written).as_ref(), Ok(&read));
        let before = controller.image();
        let next = before.next;
        match controller.replay(next, &read) {
            Ok(()) => assert_eq!(controller.image().next, Offset(next.0 + 1)),
            Err(_) => assert_eq!(*controller.image(), *before, "what was refused changed something"),
        }
    }
}
