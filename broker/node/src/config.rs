//! What a node is told at its start.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// A host (name or address) and a port, as a person wrote them.
pub type HostPort = (String, u16);

/// Everything that `start` can be told. The caller has parsed the command line and the file; what is in `properties` is checked
/// where it is used.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Made when it is missing.
    pub data_dir: PathBuf,
    /// Where Kafka's clients connect; port 0 takes any free one.
    pub listen: HostPort,
    /// What clients are told to connect to (`advertised.listeners`); without it the address that was bound.
    pub advertise: Option<HostPort>,
    /// Where /metrics and /health are served; `None`: nowhere.
    pub admin_listen: Option<HostPort>,
    /// How many cores serve, one shard each; without it all that the process may use, or as many as the directory was last used with.
    pub cores: Option<usize>,
    /// Memory for all shards together in bytes; without it a quarter of the machine's.
    pub memory_bytes: Option<u64>,
    /// server.properties' names -> values, `--set` already applied. The node itself reads `node.id`.
    pub properties: BTreeMap<String, String>,
}

impl NodeConfig {
    /// The defaults of `start`, on `data_dir`.
    pub fn new(data_dir: impl Into<PathBuf>) -> NodeConfig {
        NodeConfig {
            data_dir: data_dir.into(),
            listen: ("127.0.0.1".into(), 9092),
            advertise: None,
            admin_listen: Some(("127.0.0.1".into(), 9644)),
            cores: None,
            memory_bytes: None,
            properties: BTreeMap::new(),
        }
    }
}
