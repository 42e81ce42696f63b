//! Requests that any shard answers from its own image.

use ringmain_buffer::Buf;
use ringmain_metadata::{BrokerConfig, ClusterImage};
use ringmain_session::Request;
use ringmain_types::{ErrorCode, Now};

/// What an answer may look at.
pub(crate) struct LocalContext<'a> {
    pub image: &'a ClusterImage,
    pub config: &'a crate::Config,
    pub broker_config: &'a BrokerConfig,
    pub now: Now,
}
pub(crate) enum Local {
    /// The whole reply frame.
    Reply(Vec<Buf>),
    /// Metadata that wants missing topics made first (auto.create.topics.enable, and the request allows it): ask again with
    /// `created` once they are served.
    Create(Vec<String>),
    /// The body does not parse: the connection is closed, as Kafka does, with the reason.
    Close(String),
}

#[allow(unused_variables)]
pub(crate) fn answer(context: &LocalContext<'_>, request: &Request, created: Option<&[(String, ErrorCode)]>) -> Local {
    unimplemented!()
}
