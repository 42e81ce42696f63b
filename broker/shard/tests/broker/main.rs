//! Whole brokers in one process: real frames in, real frames out, through the shard's own turn.

mod counting;
mod disk;
mod world;

mod admin;
mod data;
mod faults;
mod groups;
mod lean;
mod much;
mod steps;
