//! `tools/fuzz`: every decoder as a function of bytes. A target panics when something is wrong; whether a fuzzer feeds it
//! (`cargo xtask fuzz`) or a test feeds it what fuzzers found (`tests/corpora.rs`, in every check) is nothing to it.
//!
//! What each target asserts beside "no panic": allocations stay within [`allocations::within`], what decodes and is encoded decodes
//! to the same, and where another implementation decodes the same bytes it finds the same in them.

pub mod allocations;
pub mod bad_input;
mod batches;
pub mod corpus;
mod damage;
mod directory;
/// A disk and a world of shards, as the shard's own tests have them.
#[path = "../../../broker/shard/tests/broker/disk.rs"]
#[allow(dead_code)]
mod disk;
mod files;
mod frames;
mod groups;
mod input;
mod metadata;
pub mod much;
#[path = "../../ringmain/src/properties.rs"]
mod properties;
mod seeds;
mod settings;
mod shard;
mod store;
mod theirs;
mod wire;
#[path = "../../../broker/shard/tests/broker/world.rs"]
#[allow(dead_code)]
mod world;

/// One decoder, or a few that belong together.
pub struct Target {
    pub name: &'static str,
    pub about: &'static str,
    pub run: fn(&[u8]),
    /// Of one input; longer ones are not tried.
    pub bytes_max: usize,
    /// Inputs from our own encoders, to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

pub const TARGETS: &[Target] = &[
    Target {
        name: "frames",
        about: "a session: any bytes in any pieces are the same requests, and the same end, as in one piece",
        run: frames::run,
        bytes_max: 4096,
        seeds: seeds::frames,
    },
    Target {
        name: "requests",
        about: "each API's request in each version; kafka-protocol reads the same in what is accepted",
        run: wire::requests,
        bytes_max: 2048,
        seeds: seeds::requests,
    },
    Target {
        name: "replies",
        about: "each API's reply in each version; kafka-protocol reads the same in what is accepted",
        run: wire::replies,
        bytes_max: 2048,
        seeds: seeds::replies,
    },
    Target {
        name: "formats",
        about: "keys and values of __consumer_offsets, subscriptions and assignments of group members",
        run: wire::formats,
        bytes_max: 2048,
        seeds: seeds::formats,
    },
    Target {
        name: "batches",
        about: "record batches of each codec, length and CRC set right or not: check, read, recode, filter",
        run: batches::run,
        bytes_max: 2048,
        seeds: seeds::batches,
    },
    Target {
        name: "journal",
        about: "a journal's file: any bytes, and entries in frames that check",
        run: files::journal,
        bytes_max: 4096,
        seeds: seeds::journal,
    },
    Target {
        name: "store",
        about: "a store whose files were changed between two lives, with CRCs left wrong or made right",
        run: store::run,
        bytes_max: 512,
        seeds: store::seeds,
    },
    Target {
        name: "small-files",
        about: "indexes, time indexes, producer snapshots, leader epochs, partition.metadata",
        run: files::small,
        bytes_max: 1024,
        seeds: seeds::small_files,
    },
    Target {
        name: "metadata",
        about: "records of the metadata log, each alone and replayed one behind the other",
        run: metadata::run,
        bytes_max: 2048,
        seeds: seeds::metadata,
    },
    Target {
        name: "group-records",
        about: "records of __consumer_offsets, each alone, and loaded one behind the other into a coordinator that then serves",
        run: groups::records,
        bytes_max: 2048,
        seeds: seeds::group_records,
    },
    Target {
        name: "group-requests",
        about: "a coordinator and what members ask of it, whatever it is and in whatever order; what it wrote says what it was",
        run: groups::requests,
        bytes_max: 2048,
        seeds: seeds::group_requests,
    },
    Target {
        name: "shard",
        about: "a whole shard behind its sockets: any requests are answered in order, or end their connection, and it serves on",
        run: shard::run,
        bytes_max: 1024,
        seeds: shard::seeds,
    },
    Target {
        name: "settings",
        about: "a server.properties, and any value of each config",
        run: settings::run,
        bytes_max: 1024,
        seeds: seeds::settings,
    },
];

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
