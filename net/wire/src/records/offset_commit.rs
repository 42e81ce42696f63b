//! A committed offset in `__consumer_offsets`. No value: the offset is gone.

use ringmain_types::{LeaderEpoch, Offset, PartitionIndex, TopicId, WallMs};

use crate::api::api;

api! {
    /// Record type 1.
    format OffsetCommitKey<'_> = 1, versions 0..=0, flexible 32767;

    struct OffsetCommitKey<'a> {
        group: &'a str = 0..=0;
        topic: &'a str = 0..=0;
        partition: PartitionIndex = 0..=0;
    }
}

api! {
    /// v1 has an expiry of its own, v4 the topic id.
    format OffsetCommitValue<'_> = 1, versions 0..=4, flexible 4;

    struct OffsetCommitValue<'a> {
        offset: Offset = 0..;
        leader_epoch: LeaderEpoch = 3.., default LeaderEpoch(-1);
        metadata: &'a str = 0..;
        commit_timestamp: WallMs = 0..;
        expire_timestamp: WallMs = 1..=1, default WallMs(-1);
        /// None before v4: the offset then counts for whatever topic has the name.
        topic_id: TopicId = 4.., tag 0;
    }
}

api! {
    /// Record type 0, of brokers before 0.9; only read.
    format LegacyOffsetCommitKey<'_> = 0, versions 0..=0, flexible 32767;

    struct LegacyOffsetCommitKey<'a> {
        group: &'a str = 0..=0;
        topic: &'a str = 0..=0;
        partition: PartitionIndex = 0..=0;
    }
}

api! {
    /// What record type 0 may have had; Kafka reads it as v0 of the new one.
    format LegacyOffsetCommitValue<'_> = 0, versions 0..=0, flexible 32767;

    struct LegacyOffsetCommitValue<'a> {
        offset: Offset = 0..=0;
        metadata: &'a str = 0..=0;
        commit_timestamp: WallMs = 0..=0;
    }
}
