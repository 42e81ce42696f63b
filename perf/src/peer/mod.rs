//! What Ringmain is measured beside: each the least that a job can cost, or another broker.

pub mod answer;
pub mod direct;
pub mod echo;
pub mod kafka;
pub mod probe;
mod receiver;
pub mod send_loop;
mod sink;
mod subscriber;
pub mod tail;
