//! `tools/sim`: one broker of several shards in one thread, from one seed. The real `Shard`s run through the real `turn`; the disk,
//! the mesh, the network, both clocks and the clients are simulated. Owns no rule of the broker: it asks what the clients were
//! promised.
#![forbid(unsafe_code)]

mod clients;
mod digest;
mod disk;
mod events;
mod faults;
mod groups;
mod hands;
mod ledger;
mod mesh;
mod network;
mod random;
mod reshard;
mod trace;
mod value;
mod world;

pub use disk::Counts;
pub use faults::{Faults, Groups, Plan, Strike, Work};
pub use trace::Trace;
pub use world::{Report, Violation, World};
