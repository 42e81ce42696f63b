//! Requests that change metadata: decided by shard 0 against the controller, answered once every shard serves what was decided.

use ringmain_metadata::{Controller, NewTopic, OFFSETS_TOPIC, Record, Refusal};
use ringmain_session::Request;
use ringmain_types::{ErrorCode, Now};
use ringmain_wire::{
    ALTER_CONFIGS, CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, INCREMENTAL_ALTER_CONFIGS, INIT_PRODUCER_ID,
};

use super::{
    Answered, alter_configs, create_partitions, create_topics, delete_topics, incremental_alter_configs,
    init_producer_id,
};

/// What a request asks for: records to append in one batch and to replay at once, and the reply, to be sent when they
/// are committed and applied everywhere. Without records it waits for those before it all the same: the reply may rest on them.
pub(crate) struct Decided {
    pub records: Vec<Record>,
    pub reply: Reply,
}
pub(crate) enum Reply {
    Answer(Answered),
    /// The body does not parse: the connection is closed, as Kafka does, with the reason.
    Close(String),
}

/// The keys that `decide` knows.
pub(crate) fn is_control(api: i16) -> bool {
    [CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS, INIT_PRODUCER_ID]
        .iter()
        .any(|spec| spec.key == api)
}

pub(crate) fn decide(controller: &mut Controller, now: Now, request: &Request) -> Decided {
    if let Some(why) = super::too_large(controller.limits(), request) {
        return Decided { records: Vec::new(), reply: Reply::Close(why) };
    }
    let decided = match request.api {
        key if key == CREATE_TOPICS.key => create_topics::decide(controller, now, request),
        key if key == DELETE_TOPICS.key => delete_topics::decide(controller, now, request),
        key if key == CREATE_PARTITIONS.key => create_partitions::decide(controller, now, request),
        key if key == ALTER_CONFIGS.key => alter_configs::decide(controller, now, request),
        key if key == INCREMENTAL_ALTER_CONFIGS.key => incremental_alter_configs::decide(controller, now, request),
        key if key == INIT_PRODUCER_ID.key => init_producer_id::decide(controller, request),
        key => Err(format!("API {key} is not decided here")),
    };
    match decided {
        Ok((records, answer)) => Decided { records, reply: Reply::Answer(answer) },
        Err(why) => Decided { records: Vec::new(), reply: Reply::Close(why) },
    }
}

/// Records and a reply, or why the body does not parse.
pub(super) type Outcome = Result<(Vec<Record>, Answered), String>;

/// The codes of what was refused.
pub(super) fn refusals<T>(results: &[Result<T, Refusal>]) -> impl Iterator<Item = ErrorCode> {
    results.iter().filter_map(|result| Some(result.as_ref().err()?.code))
}

/// Topics that a Metadata request wants made with the broker's defaults: the records, and for each name how it went. A name that
/// another request made in the meantime is fine.
pub(crate) fn auto_create(
    controller: &mut Controller,
    now: Now,
    names: &[String],
) -> (Vec<Record>, Vec<(String, ErrorCode)>) {
    let wanted: Vec<NewTopic> = names
        .iter()
        .map(|name| match name.as_str() {
            OFFSETS_TOPIC => offsets_topic(controller),
            _ => NewTopic { name: name.clone(), partitions: -1, replication_factor: -1, ..Default::default() },
        })
        .collect();
    let decision = controller.create_topics(now, &wanted, false);
    let outcomes = names.iter().zip(&decision.results).map(|(name, result)| {
        let error = match result {
            Err(refusal) if refusal.code != ErrorCode::TopicAlreadyExists => refusal.code,
            _ => ErrorCode::None,
        };
        (name.clone(), error)
    });
    let outcomes = outcomes.collect();
    (decision.records, outcomes)
}

/// As Kafka makes it, but on no more brokers than there are.
fn offsets_topic(controller: &Controller) -> NewTopic {
    let properties = controller.properties();
    let brokers = i16::try_from(controller.image().brokers.len()).unwrap_or(i16::MAX);
    let factor: i16 = properties.value("offsets.topic.replication.factor").parse().unwrap_or(1);
    let configs = [
        ("cleanup.policy", "compact"),
        ("compression.type", "producer"),
        ("segment.bytes", properties.value("offsets.topic.segment.bytes")),
    ];
    NewTopic {
        name: OFFSETS_TOPIC.to_owned(),
        partitions: properties.value("offsets.topic.num.partitions").parse().unwrap_or(50),
        replication_factor: factor.min(brokers).max(1),
        configs: configs.map(|(name, value)| (name.to_owned(), Some(value.to_owned()))).into(),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use ringmain_buffer::Buf;
    use ringmain_wire::CreateTopicsRequest;
    use ringmain_wire::create_topics::CreatableTopic;

    use super::*;
    use crate::api::fixture::{Fixture, NOW};

    #[test]
    fn auto_creation_takes_the_brokers_defaults_and_tolerates_a_race() {
        let mut fixture = Fixture::new();
        fixture.create("old", 2);
        let names = ["old", "new", "b.d", "b_d"].map(str::to_owned);
        let (records, outcomes) = auto_create(&mut fixture.controller, NOW, &names);
        let codes: Vec<ErrorCode> = outcomes.iter().map(|(_, error)| *error).collect();
        use ErrorCode::{InvalidTopicException, None};
        assert_eq!(codes, [None, None, None, InvalidTopicException]);
        fixture.replay(&records);
        assert_eq!(fixture.controller.image().topic("new").unwrap().partitions.len(), 1);
        assert_eq!(fixture.controller.image().topic("old").unwrap().partitions.len(), 2);
    }

    #[test]
    fn a_request_is_counted_by_its_first_error() {
        let mut fixture = Fixture::new();
        let topic = |name| CreatableTopic { name, num_partitions: 1, replication_factor: 1, ..Default::default() };
        let mut error = |names: &[&'static str]| {
            let asked =
                CreateTopicsRequest { topics: names.iter().map(|name| topic(name)).collect(), ..Default::default() };
            let request = crate::api::fixture::request(&CREATE_TOPICS, 7, &asked);
            let Reply::Answer(answer) = decide(&mut fixture.controller, NOW, &request).reply else { panic!() };
            answer.error
        };
        assert_eq!(error(&["a", "b"]), ErrorCode::None);
        assert_eq!(error(&["a", "no/name", "b"]), ErrorCode::InvalidTopicException);
    }

    #[test]
    fn bytes_that_do_not_parse_close_with_the_field() {
        let mut fixture = Fixture::new();
        for api in 0..80 {
            let mut request = crate::api::fixture::request(
                &CREATE_TOPICS,
                7,
                &ringmain_wire::CreateTopicsRequest { timeout_ms: 5, ..Default::default() },
            );
            (request.api, request.version) = (api, 1);
            request.frame = Buf::copy_of(&[0, 0, 0, 1, 0xff]);
            request.body = 0;
            let decided = decide(&mut fixture.controller, NOW, &request);
            assert!(decided.records.is_empty());
            assert!(matches!(decided.reply, Reply::Close(why) if !why.is_empty()), "{api}");
        }
    }
}
