//! What a coordinator is asked and what it answers. Requests borrow the frame; answers own what they say, because they wait.

use std::sync::Arc;

use ringmain_types::*;
use ringmain_wire::{
    Array, ConsumerGroupHeartbeatRequest, HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest,
};

use crate::offsets::CommittedOffset;

/// Who asks, as records and descriptions name him.
#[derive(Clone, Copy, Debug)]
pub struct Client<'a> {
    pub id: &'a str,
    /// The address, with Kafka's slash before it.
    pub host: &'a str,
    /// The version of the API that asks.
    pub version: i16,
    /// The random part of a member id, if one is to be made: drawn anew for each request.
    pub random: u128,
}

pub enum Request<'a> {
    Join(&'a JoinGroupRequest<'a>, Client<'a>),
    Sync(&'a SyncGroupRequest<'a>),
    Heartbeat(&'a HeartbeatRequest<'a>),
    Leave(&'a LeaveGroupRequest<'a>, Client<'a>),
    Commit(CommitOffsets<'a>),
    Fetch(FetchOffsets<'a>),
    DeleteOffsets { group: &'a str, topics: Vec<(&'a str, Vec<PartitionIndex>)> },
    DeleteGroup { group: &'a str },
    Describe { group: &'a str },
    DescribeConsumer { group: &'a str },
    List { states: Vec<&'a str>, types: Vec<&'a str> },
    ConsumerHeartbeat(&'a ConsumerGroupHeartbeatRequest<'a>, Client<'a>),
}

/// Of topics that are known: the shard has answered for the others.
#[derive(Clone, Debug)]
pub struct CommitOffsets<'a> {
    pub group: &'a str,
    pub member: &'a str,
    pub instance: Option<&'a str>,
    pub generation_or_epoch: i32,
    /// -1 has the broker decide.
    pub retention_ms: i64,
    pub offsets: Vec<CommitOffset<'a>>,
}

#[derive(Clone, Copy, Debug)]
pub struct CommitOffset<'a> {
    pub topic: &'a str,
    pub id: TopicId,
    pub partition: PartitionIndex,
    pub offset: Offset,
    pub leader_epoch: LeaderEpoch,
    pub metadata: &'a str,
}

#[derive(Clone, Debug)]
pub struct FetchOffsets<'a> {
    pub group: &'a str,
    pub member: Option<&'a str>,
    pub member_epoch: i32,
    /// Null asks for all. The id is what the name or the image says now; none when the topic is not known.
    pub topics: Option<Vec<FetchTopic<'a>>>,
}

#[derive(Clone, Debug)]
pub struct FetchTopic<'a> {
    pub name: &'a str,
    pub id: TopicId,
    pub partitions: Array<'a, PartitionIndex>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Join(JoinReply),
    Sync(SyncReply),
    /// Heartbeat, DeleteGroup.
    Code(ErrorCode),
    /// The code of a group that is not there goes to all; else each member's own.
    Left(Vec<LeftMember>),
    /// In the order asked, or one code for all.
    Committed(Result<Vec<ErrorCode>, ErrorCode>),
    Fetched(Result<Vec<OffsetTopic>, ErrorCode>),
    DeletedOffsets(Result<Vec<Vec<ErrorCode>>, ErrorCode>),
    Described(Described),
    DescribedConsumer(DescribedConsumer),
    Listed(Vec<Listed>),
    ConsumerHeartbeat(Result<crate::consumer::Heartbeat, (ErrorCode, String)>),
}

/// `Err` names the member id that goes with the code (79 hands one out).
pub type JoinReply = Result<Joined, (ErrorCode, Arc<str>)>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    pub member: Arc<str>,
    pub generation: i32,
    pub protocol_type: Arc<str>,
    pub protocol: Arc<str>,
    pub leader: Arc<str>,
    pub skip_assignment: bool,
    /// Of the leader: all members with their metadata in the chosen protocol.
    pub members: Vec<JoinedMember>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinedMember {
    pub id: Arc<str>,
    pub instance: Option<Arc<str>>,
    pub metadata: Arc<[u8]>,
}

/// Protocol type, protocol, assignment.
pub type SyncReply = Result<(Arc<str>, Arc<str>, Arc<[u8]>), ErrorCode>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftMember {
    pub member: Arc<str>,
    pub instance: Option<Arc<str>>,
    pub error: ErrorCode,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetTopic {
    pub topic: Arc<str>,
    pub id: TopicId,
    pub partitions: Vec<FetchedOffset>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedOffset {
    pub partition: PartitionIndex,
    pub committed: Option<CommittedOffset>,
}

/// A classic group. `Dead` and 69 when there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    pub error: ErrorCode,
    pub message: Option<String>,
    pub group: Arc<str>,
    pub state: &'static str,
    pub protocol_type: Arc<str>,
    pub protocol: Arc<str>,
    pub members: Vec<DescribedMember>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribedMember {
    pub id: Arc<str>,
    pub instance: Option<Arc<str>>,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
    pub metadata: Arc<[u8]>,
    pub assignment: Arc<[u8]>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribedConsumer {
    pub error: ErrorCode,
    pub message: Option<String>,
    pub group: Arc<str>,
    pub state: &'static str,
    pub epoch: i32,
    pub assignment_epoch: i32,
    pub assignor: &'static str,
    pub members: Vec<DescribedConsumerMember>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribedConsumerMember {
    pub id: Arc<str>,
    pub instance: Option<Arc<str>>,
    pub rack: Option<Arc<str>>,
    pub epoch: i32,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
    pub topics: Vec<Arc<str>>,
    pub regex: Option<Arc<str>>,
    pub assigned: Vec<(TopicId, Arc<str>, Vec<i32>)>,
    pub target: Vec<(TopicId, Arc<str>, Vec<i32>)>,
    pub classic: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub group: Arc<str>,
    pub protocol_type: Arc<str>,
    pub state: &'static str,
    pub kind: &'static str,
}
