//! One file an API. `control` is decided by shard 0 against the controller; `local` is answered by any shard from its image; the rest
//! (produce, fetch, offsets) goes to the owners of partitions.

pub(crate) mod control;
pub(crate) mod local;
