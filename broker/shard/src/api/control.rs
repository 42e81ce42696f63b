//! Requests that change metadata: decided by shard 0 against the controller, answered once every shard serves what was decided.

use ringmain_buffer::Buf;
use ringmain_metadata::{Controller, Record};
use ringmain_session::Request;
use ringmain_types::{ErrorCode, Now};

/// What a request asks for: records to append in one batch, and the whole reply frame, to be sent once they are committed and
/// applied everywhere (at once when there are none).
pub(crate) struct Decided {
    pub records: Vec<Record>,
    pub reply: Reply,
}
pub(crate) enum Reply {
    Frame(Vec<Buf>),
    /// The body does not parse: the connection is closed, as Kafka does, with the reason.
    Close(String),
}

#[allow(unused_variables)]
pub(crate) fn decide(controller: &mut Controller, now: Now, request: &Request) -> Decided {
    unimplemented!()
}

/// Topics that a Metadata request wants made with the broker's defaults: the records, and for each name how it went.
#[allow(unused_variables)]
pub(crate) fn auto_create(
    controller: &mut Controller,
    now: Now,
    names: &[String],
) -> (Vec<Record>, Vec<(String, ErrorCode)>) {
    unimplemented!()
}
