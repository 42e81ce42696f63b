//! `tools/sim`: one broker of several shards in one thread, from one seed. The real `Shard`s run through the real `turn`; the disk,
//! the mesh, the network, both clocks and the clients are simulated. Owns no rule of the broker: it asks what the clients were
//! promised.
#![forbid(unsafe_code)]

mod clients;
mod coverage;
mod digest;
mod disk;
mod events;
mod faults;
mod groups;
mod hands;
mod images;
mod ledger;
mod less;
mod mesh;
mod network;
mod random;
mod reshard;
mod trace;
mod value;
mod world;

pub use coverage::{Fault, STATES};
pub use disk::Counts;
pub use faults::{Faults, Groups, Plan, Strike, WIDE_FROM, Wide, Work};
pub use less::{CALMED, Less};
pub use trace::{Trace, kept};
pub use world::{Report, Violation, World};
