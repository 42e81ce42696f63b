//! Every bound of the system, as a value.

use crate::ACCOUNTS;

/// A value, not constants: the simulator runs the same code with [`Limits::tiny`], where every edge is a few KiB away. `check`
/// asserts the relations between fields, once, at start. Add a field, with its reason, rather than a constant elsewhere.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The unit of direct I/O: a power of two, at least the device's logical block.
    pub block_bytes: u32,
    /// Upper bound of a segment whatever a topic asks for: Kafka's indexes hold 31 bits.
    pub segment_bytes_max: u32,
    /// Step in which an active segment's space is allocated.
    pub segment_allocate_bytes: u32,
    /// Spare files of a shard, and their bytes in all: what retention and removed logs leave is kept up to here for new segments,
    /// because overwriting is what a flush of the journal covers (MEASURED.md: 1.5 x in commits). It is disk space that nobody else has.
    pub spare_files_max: u32,
    pub spare_bytes_max: u64,
    /// Of them, how many may be made of zeroes when there is nothing else to do, and how large; 0 files: none.
    pub spare_fill_files_max: u32,
    pub spare_fill_bytes: u32,
    /// ... once nothing was committed for this long.
    pub spare_quiet_ms: u64,
    /// A log that takes `segment_allocate_bytes` a second or more gets zeroes ahead of its end, in pieces of so many bytes: what it writes
    /// there is covered by the journal's flush. 0: never.
    pub zero_ahead_bytes: u32,
    /// Size of a shard's journal ring; a multiple of `block_bytes`.
    pub journal_bytes: u64,
    /// The largest single write to a segment.
    pub gather_bytes_max: u32,
    /// A tail below this lives in the journal only.
    pub trickle_bytes_max: u32,
    /// The same where whole blocks would go into fresh extents, which need a flush of their own: that costs more than writing twice
    /// what is less than this. In a small journal it is less.
    pub fresh_bytes_min: u32,
    /// Bytes of a shard's logs that recovery may have to scan: from half of it on, logs' producers and indexes are checkpointed, the
    /// one with the most to scan first. At 400 MB/s a start of two shards takes 1.3 s for it.
    pub recovery_bytes_max: u64,
    /// A log with less to scan than this gets no checkpoint: one costs three small writes, a flush and a name. With very many logs it
    /// is this, for each, that recovery scans.
    pub recovery_log_bytes_min: u32,
    /// Producers remembered per partition; the longest silent one goes first.
    pub producers_per_log_max: u32,
    /// Leader epochs remembered per partition; past it the oldest go, and their records answer with epoch -1.
    pub epochs_per_log_max: u32,
    /// The largest request frame (`socket.request.max.bytes`).
    pub frame_bytes_max: u32,
    /// The largest request frame that carries no records: what it names (topics, configs) is held in memory many times over while it
    /// is answered.
    pub admin_frame_bytes_max: u32,
    /// Elements of all arrays of one request (topics, partitions, names): more than a fetch has that names every partition of the cluster
    /// with its topic. What a request takes in memory follows from their number.
    pub request_elements_max: u32,
    /// Of a large fetch so many partitions are gone through at a stretch: a fraction of a millisecond, in which nobody else of the core is
    /// served.
    pub step_elements_max: u32,
    /// A DescribeConfigs reply stops at about this: every resource has dozens of configs with their words.
    pub describe_reply_bytes_max: u32,
    /// What the records of one compressed batch may come to when they are checked: it bounds the time that one batch can take from
    /// its shard (at about 1 GB/s, 64 ms). An honest client's compressed batch held less before it was compressed.
    pub batch_decompressed_bytes_max: u32,
    /// Fewer bytes than asked is legal, so no fetch reply is ever larger than this (a first batch comes whole).
    pub fetch_reply_bytes_max: u32,
    /// Unanswered requests of one connection; past it the connection is not read.
    pub requests_inflight_max: u16,
    /// Unsent replies of one connection; past it no more of its requests run, and it is not read: who does not take his replies gets
    /// no more of our memory, and no more work. A few fetch replies, so that a pipelining consumer never waits for it.
    pub connection_unsent_bytes_max: u32,
    /// Unanswered calls between one pair of shards, per direction.
    pub calls_inflight_max: u16,
    /// Calls that wait for such a slot; past it a request fails with a code that is retried.
    pub calls_queued_max: u32,
    /// Connections of one shard (`max.connections`, dealt to the shards).
    pub connections_max: u32,
    /// What the process's descriptors leave for connections of one shard: no property passes it.
    pub connections_possible: u32,
    /// Connections from one address, on one shard.
    pub connections_per_address_max: u32,
    /// A connection that sends nothing for this long is closed (`connections.max.idle.ms`).
    pub connection_idle_ms: u64,
    /// A started frame must be whole, and a reply must be taken, within this.
    pub connection_slow_ms: u64,
    /// Fetch sessions of one shard (KIP-227, `max.incremental.fetch.session.cache.slots`).
    pub fetch_sessions_max: u32,
    /// What the partitions of all of them take, about, besides the accounts: a client whose session finds no room makes full fetches.
    pub fetch_session_bytes_max: u64,
    /// Groups of one shard (twice as many where ids fall unevenly): ids cost nothing to make up. Each partition of `__consumer_offsets` has
    /// its share.
    pub groups_max: u32,
    /// Members of one group.
    pub group_members_max: u32,
    /// Committed offsets of one group.
    pub group_offsets_max: u32,
    /// About what the groups of one shard may take in memory, besides the accounts (twice as much where ids fall unevenly): members, what they
    /// say and have, and offsets with their metadata. Beyond it nothing is taken in that makes it more.
    pub group_state_bytes_max: u64,
    /// Requests that the coordinators of one shard decide in one turn; the rest in the next ones. A join costs up to 100 us.
    pub group_asks_max: u32,
    /// Answers of coordinators that leave in one turn; the rest leave in the next ones. A generation of a thousand members would take the core
    /// for 20 ms.
    pub group_answers_max: u32,
    /// Groups whose time is up that one coordinator looks after in one turn.
    pub group_expired_max: u32,
    /// Committed offsets that one coordinator takes away in one turn (expired, or of a group that is deleted): a microsecond each.
    pub group_removed_max: u32,
    /// Members of one KIP-848 group whose target is written in one turn: a few microseconds each.
    pub group_targets_max: u32,
    /// Groups with configs of their own: every change of the image copies a pointer for each.
    pub group_configs_max: u32,
    /// Decisions of one coordinator that wait for room in the log; past it requests are told to come again.
    pub coordinator_backlog_max: u32,
    /// The same in bytes.
    pub coordinator_backlog_bytes_max: u64,
    /// Topics and partitions of the cluster.
    pub topics_max: u32,
    /// Topics that are remembered as removed: what a killed life had no time to remove is among its last. 16 bytes each, copied with the
    /// image of a removal.
    pub removed_topics_max: u32,
    /// Of the metadata log: what is not needed any more goes by whole segments. A change is one batch, which no segment holds that is
    /// smaller: eight times the request that asks for it is more than the records of any (a config of 18 bytes becomes 100).
    pub metadata_segment_bytes: u32,
    /// The metadata log's state is said again when there are so many bytes of it, and so many times what the state comes to: a start
    /// replays about the larger of both, and what is said again is a third of what changes wrote.
    pub metadata_again_bytes: u64,
    pub metadata_again_times: u32,
    /// Topics that one Metadata request has made (auto.create.topics.enable); the names behind them are unknown until asked for again.
    pub auto_create_topics_max: u32,
    pub partitions_max: u32,
    /// Per account, in the order of `Account`.
    pub memory_bytes: [u64; ACCOUNTS],
    /// What the cache of written batches keeps while nobody reads from files: enough for consumers at the tail. Memory that is used
    /// over and over costs nothing; fresh memory costs as much as all else that a broker does with its bytes. Grows with what is read
    /// from files, up to the account's limit.
    pub cache_bytes_min: u64,
    /// Descriptors that a driver keeps open.
    pub open_files_max: u32,
    /// Read operations in flight; the rest wait in class order.
    pub reads_inflight_max: u32,
    /// What they read together; one read may go beyond it. Each needs memory, of which fresh one costs about a millisecond for 2 MiB.
    pub reads_inflight_bytes_max: u64,
    /// Partitions of one shard that have metric series of their own; the totals count all.
    pub metric_partitions_max: u32,
    /// Groups of one shard that have metric series of their own, and that are told of at once.
    pub metric_groups_max: u32,
    /// Partitions that a group's lag is counted over.
    pub metric_group_offsets_max: u32,
    /// How often retention is looked at (`log.retention.check.interval.ms`).
    pub retention_check_ms: u64,
    /// A start's first look at retention comes this much later: an operator whose clock is wrong has as long to see it, and what a
    /// life lets go does not depend on how soon its logs are back. Kafka's `log.initial.task.delay.ms`.
    pub retention_first_ms: u64,
    /// What compaction may use of a shard's memory for the newest offset of each key (`log.cleaner.dedupe.buffer.size`), 24 bytes a key,
    /// besides the accounts: only while it runs, and only as much as it meets keys. Past it a run ends earlier.
    pub compaction_map_bytes: u64,
    /// How often it is looked which log is dirty (`log.cleaner.backoff.ms`).
    pub compaction_check_ms: u64,
    /// Read and written a second by compaction while others commit: what acknowledgements wait for is the disk.
    pub compaction_busy_bytes_per_second: u64,
    /// Background work per turn.
    pub background_bytes_per_turn: u32,
}

impl Limits {
    /// For one shard that may use `memory_bytes` in all.
    pub fn production(memory_bytes: u64) -> Limits {
        let part = |percent: u64| memory_bytes / 100 * percent;
        let limits = Limits {
            block_bytes: 4096,
            segment_bytes_max: i32::MAX as u32,
            segment_allocate_bytes: 16 << 20,
            spare_files_max: 16,
            spare_bytes_max: 1 << 30,
            spare_fill_files_max: 4,
            spare_fill_bytes: 64 << 20,
            spare_quiet_ms: 1000,
            zero_ahead_bytes: 4 << 20,
            journal_bytes: 64 << 20,
            gather_bytes_max: 256 << 10,
            trickle_bytes_max: 64 << 10,
            fresh_bytes_min: 512 << 10,
            recovery_bytes_max: 256 << 20,
            recovery_log_bytes_min: 4 << 20,
            producers_per_log_max: 100_000,
            epochs_per_log_max: 1024,
            frame_bytes_max: 100 << 20,
            admin_frame_bytes_max: 4 << 20,
            request_elements_max: 1 << 19,
            step_elements_max: 1000,
            describe_reply_bytes_max: 32 << 20,
            batch_decompressed_bytes_max: 64 << 20,
            fetch_reply_bytes_max: 4 << 20,
            requests_inflight_max: 128,
            connection_unsent_bytes_max: 16 << 20,
            calls_inflight_max: 1024,
            calls_queued_max: 64 << 10,
            connections_max: 20_000,
            connections_possible: u32::MAX,
            connections_per_address_max: 20_000,
            connection_idle_ms: 600_000,
            connection_slow_ms: 60_000,
            fetch_sessions_max: 1000,
            fetch_session_bytes_max: part(5),
            groups_max: 100_000,
            group_members_max: 10_000,
            group_offsets_max: 1_000_000,
            group_state_bytes_max: part(10),
            group_asks_max: 32,
            group_answers_max: 64,
            group_expired_max: 64,
            group_removed_max: 1000,
            group_targets_max: 100,
            group_configs_max: 10_000,
            coordinator_backlog_max: 10_000,
            coordinator_backlog_bytes_max: part(5),
            topics_max: 100_000,
            removed_topics_max: 16_384,
            metadata_segment_bytes: 32 << 20,
            metadata_again_bytes: 1 << 20,
            metadata_again_times: 4,
            auto_create_topics_max: 1000,
            partitions_max: 200_000,
            memory_bytes: [part(25), part(25), part(20), part(20), part(5), part(5)],
            cache_bytes_min: 1 << 20,
            open_files_max: 4096,
            reads_inflight_max: 64,
            reads_inflight_bytes_max: 8 << 20,
            metric_partitions_max: 10_000,
            metric_groups_max: 1_000,
            metric_group_offsets_max: 10_000,
            retention_check_ms: 30_000,
            retention_first_ms: 30_000,
            compaction_map_bytes: part(4).clamp(1 << 20, 128 << 20),
            compaction_check_ms: 15_000,
            compaction_busy_bytes_per_second: 48 << 20,
            background_bytes_per_turn: 1 << 20,
        };
        limits.check();
        limits
    }

    /// Every edge a few KiB away.
    pub fn tiny() -> Limits {
        let limits = Limits {
            block_bytes: 512,
            segment_bytes_max: 64 << 10,
            segment_allocate_bytes: 4 << 10,
            spare_files_max: 3,
            spare_bytes_max: 24 << 10,
            spare_fill_files_max: 2,
            spare_fill_bytes: 6 << 10,
            spare_quiet_ms: 1,
            zero_ahead_bytes: 1 << 10,
            // Every log of a history, with all that a tail may hold inline, several times over: a ring that is full of states alone
            // can't move (storage/DESIGN.md, open).
            journal_bytes: 64 << 10,
            gather_bytes_max: 4 << 10,
            trickle_bytes_max: 1 << 10,
            fresh_bytes_min: 2 << 10,
            recovery_bytes_max: 8 << 10,
            recovery_log_bytes_min: 1 << 10,
            producers_per_log_max: 8,
            epochs_per_log_max: 16,
            frame_bytes_max: 64 << 10,
            admin_frame_bytes_max: 16 << 10,
            request_elements_max: 4 << 10,
            step_elements_max: 40,
            describe_reply_bytes_max: 256 << 10,
            batch_decompressed_bytes_max: 256 << 10,
            fetch_reply_bytes_max: 8 << 10,
            requests_inflight_max: 4,
            connection_unsent_bytes_max: 32 << 10,
            calls_inflight_max: 8,
            calls_queued_max: 64,
            connections_max: 16,
            connections_possible: u32::MAX,
            connections_per_address_max: 16,
            connection_idle_ms: 60_000,
            connection_slow_ms: 10_000,
            fetch_sessions_max: 4,
            fetch_session_bytes_max: 8 << 10,
            groups_max: 16,
            group_members_max: 16,
            group_offsets_max: 64,
            group_state_bytes_max: 1 << 20,
            group_asks_max: 2,
            group_answers_max: 2,
            group_expired_max: 2,
            group_removed_max: 2,
            group_targets_max: 2,
            group_configs_max: 4,
            coordinator_backlog_max: 16,
            coordinator_backlog_bytes_max: 128 << 10,
            topics_max: 64,
            removed_topics_max: 64,
            metadata_segment_bytes: 32 << 10,
            metadata_again_bytes: 4 << 10,
            metadata_again_times: 4,
            auto_create_topics_max: 8,
            partitions_max: 256,
            memory_bytes: [256 << 10, 256 << 10, 64 << 10, 256 << 10, 128 << 10, 128 << 10],
            cache_bytes_min: 32 << 10,
            open_files_max: 16,
            reads_inflight_max: 4,
            reads_inflight_bytes_max: 16 << 10,
            metric_partitions_max: 8,
            metric_groups_max: 4,
            metric_group_offsets_max: 8,
            retention_check_ms: 1_000,
            retention_first_ms: 700,
            compaction_map_bytes: 24 * 64,
            compaction_check_ms: 20,
            compaction_busy_bytes_per_second: 1 << 20,
            background_bytes_per_turn: 4 << 10,
        };
        limits.check();
        limits
    }

    /// Bytes of journal that one log may hold for good: less than a block of records that no file has, and the words around them.
    pub fn journal_log_bytes(&self) -> u64 {
        u64::from(self.block_bytes) + 512
    }

    /// Logs that a shard's journal holds however quiet they are. What they hold is said again before the ring comes round, so it may
    /// fill three eighths of it: the rest is room to say it in, and for news. 5461 with 64 MiB.
    pub fn journal_logs_max(&self) -> u64 {
        self.journal_bytes / 8 * 3 / self.journal_log_bytes()
    }

    /// Asserts the relations between the fields.
    pub fn check(&self) {
        let block = u64::from(self.block_bytes);
        assert!(self.block_bytes.is_power_of_two() && block >= 512);
        assert!(self.segment_bytes_max <= i32::MAX as u32);
        assert!(self.journal_bytes.is_multiple_of(block) && self.journal_bytes >= 16 * block);
        assert!(u64::from(self.segment_allocate_bytes).is_multiple_of(block));
        assert!(u64::from(self.spare_fill_bytes).is_multiple_of(block));
        assert!(u64::from(self.gather_bytes_max).is_multiple_of(block));
        assert!(u64::from(self.zero_ahead_bytes).is_multiple_of(block));
        assert!(self.trickle_bytes_max <= self.gather_bytes_max);
        assert!(self.trickle_bytes_max >= self.block_bytes && self.fresh_bytes_min >= self.trickle_bytes_max);
        assert!(self.connection_unsent_bytes_max >= 4 * self.fetch_reply_bytes_max);
        // Or what was just said would be said again for what its batches add to it.
        assert!(self.metadata_again_times >= 2);
        // What is said again goes in batches of so much, and one record.
        assert!(self.metadata_segment_bytes >= 2 * self.gather_bytes_max);
        assert!(self.metadata_segment_bytes <= self.segment_bytes_max);
        assert!(self.requests_inflight_max > 0 && self.calls_inflight_max > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sets_hold_together() {
        Limits::tiny();
        Limits::production(1 << 30);
    }
}
