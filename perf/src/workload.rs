//! The loads of issue 3's "First speed".

use std::time::Duration;

use crate::load::Load;

pub struct Workload {
    pub name: &'static str,
    pub connections: u32,
    pub batch_bytes: usize,
    /// A connection's.
    pub window: usize,
    /// MB/s; `None`: flat out.
    pub rate: Option<f64>,
}

/// As many partitions as connections, and each connection's requests go round all of them: with two cores every second request is for
/// the other one's partition, and a group commit has news of all partitions of its core. Windows keep 1 to 8 MiB in flight, so that the
/// disk and not the round trip is the limit.
pub const FIRST_SPEED: &[Workload] = &[
    Workload { name: "flat out, 1 connection, 16 KiB", connections: 1, batch_bytes: 16 << 10, window: 64, rate: None },
    Workload { name: "flat out, 1 connection, 256 KiB", connections: 1, batch_bytes: 256 << 10, window: 8, rate: None },
    Workload { name: "flat out, 8 connections, 16 KiB", connections: 8, batch_bytes: 16 << 10, window: 16, rate: None },
    Workload {
        name: "flat out, 8 connections, 256 KiB",
        connections: 8,
        batch_bytes: 256 << 10,
        window: 4,
        rate: None,
    },
    Workload {
        name: "100 MB/s open loop, 16 KiB",
        connections: 1,
        batch_bytes: 16 << 10,
        window: 0,
        rate: Some(100.0),
    },
];

impl Workload {
    pub fn load(&self, address: &str, server_pid: u32, warm_up: Duration, measure: Duration) -> Load {
        Load {
            address: address.into(),
            topic: "bench".into(),
            partitions: self.connections,
            connections: self.connections,
            record_bytes: 1024,
            batch_bytes: self.batch_bytes,
            window: self.window,
            rate: self.rate.map(|megabytes| megabytes * 1e6),
            warm_up,
            measure,
            server_pid: Some(server_pid),
        }
    }
}
