//! Whole brokers in one process: real frames in, real frames out, through the shard's own turn.

mod disk;
mod world;

mod admin;
mod data;
mod faults;
mod groups;
mod much;
mod steps;
