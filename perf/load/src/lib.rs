//! `perf/load`: the load generator. One thread drives any number of connections that publish, read or ask, by a schedule that nothing
//! holds back, and counts what came of it. Speaks to any broker with Kafka's protocol; knows nothing of Ringmain's inside.
#![forbid(unsafe_code)]

mod asker;
mod connection;
mod control;
pub mod cpu;
mod keyed;
mod publisher;
mod reader;
mod run;
mod span;
mod tally;
mod template;
mod timeline;

pub use asker::{Asker, Right, list_offsets};
pub use connection::{Connection, Frame};
pub use control::{Control, Leader, Versions};
pub use keyed::{Keyed, KeyedConfig};
pub use publisher::{Offsets, Pace, Publisher, PublisherConfig};
pub use reader::{End, Reader, ReaderConfig};
pub use run::{Actor, Outcome, Plan, run};
pub use span::Span;
pub use tally::Tally;
pub use template::{Template, batch, batch_of};
pub use timeline::Timeline;
