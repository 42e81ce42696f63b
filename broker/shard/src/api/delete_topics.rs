//! DeleteTopics, by name or id.

use std::collections::BTreeSet;

use ringmain_metadata::{Controller, Refusal, TopicKey};
use ringmain_session::Request;
use ringmain_types::{ErrorCode, Now, TopicId};
use ringmain_wire::delete_topics::{DeletableTopicResult, DeleteTopicState};
use ringmain_wire::{DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicsResponse};

use super::control::Outcome;
use super::{answered, body};

/// Ids may be given from this version on.
const BY_ID: i16 = 6;

pub(super) fn decide(controller: &mut Controller, now: Now, request: &Request) -> Outcome {
    let asked: DeleteTopicsRequest<'_> = body(&DELETE_TOPICS, request)?;
    let states: Vec<DeleteTopicState<'_>> = if request.version >= BY_ID {
        asked.topics.iter().collect()
    } else {
        asked.topic_names.iter().map(|name| DeleteTopicState { name: Some(name), ..Default::default() }).collect()
    };
    let both = |state: &DeleteTopicState<'_>| state.name.is_some() && state.topic_id != TopicId::NONE;
    let keys: Vec<TopicKey> = states.iter().filter(|state| !both(state)).map(key).collect();
    let decision = controller.delete_topics(now, &keys);
    let image = controller.image();
    let mut results = decision.results.iter();
    let contradiction = Err(Refusal {
        code: ErrorCode::InvalidRequest,
        message: "You may not specify both topic name and topic id.".into(),
    });
    let mut seen = BTreeSet::new();
    let mut responses = Vec::with_capacity(states.len());
    for state in &states {
        let result = if both(state) { Some(&contradiction) } else { results.next() };
        if !seen.insert((state.name, state.topic_id)) {
            continue;
        }
        let mut response = DeletableTopicResult { name: state.name, topic_id: state.topic_id, ..Default::default() };
        match result {
            Some(Ok(topic)) => {
                // What was not given is told, from the image that still has the topic.
                response.name = image.topics.get(&topic.id).map(|topic| &*topic.name).or(state.name);
                response.topic_id = topic.id;
            }
            Some(Err(refusal)) => {
                response.error_code = refusal.code;
                response.error_message = Some(&refusal.message);
            }
            None => response.error_code = ErrorCode::UnknownServerError,
        }
        responses.push(response);
    }
    let errors: Vec<ErrorCode> = responses.iter().map(|response| response.error_code).collect();
    let reply = DeleteTopicsResponse { responses: responses.into(), ..Default::default() };
    let reply = answered(&DELETE_TOPICS, request, &reply, errors);
    Ok((decision.records, reply))
}

fn key(state: &DeleteTopicState<'_>) -> TopicKey {
    match state.name {
        Some(name) => TopicKey::Name(name.into()),
        None => TopicKey::Id(state.topic_id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::fixture::{Fixture, call};

    fn by_state(fixture: &mut Fixture, states: &[(Option<&str>, TopicId)]) -> Vec<(Option<String>, TopicId, i16)> {
        let state = |(name, topic_id): &(_, _)| DeleteTopicState { name: *name, topic_id: *topic_id };
        let asked =
            DeleteTopicsRequest { topics: states.iter().map(state).collect(), timeout_ms: 9, ..Default::default() };
        let reply = fixture.change(&DELETE_TOPICS, 6, &asked);
        let got: DeleteTopicsResponse<'_> = call(&DELETE_TOPICS, 6, &reply);
        got.responses.iter().map(|it| (it.name.map(str::to_owned), it.topic_id, it.error_code.code())).collect()
    }

    #[test]
    fn names_in_every_version() {
        for version in 1..=5 {
            let mut fixture = Fixture::new();
            fixture.create("a", 2);
            let asked = DeleteTopicsRequest { topic_names: vec!["a", "b", "c", "c"].into(), ..Default::default() };
            let reply = fixture.change(&DELETE_TOPICS, version, &asked);
            let got: DeleteTopicsResponse<'_> = call(&DELETE_TOPICS, version, &reply);
            let codes: Vec<i16> = got.responses.iter().map(|it| it.error_code.code()).collect();
            assert_eq!(codes, [0, 3, 3]);
            let image = fixture.controller.image();
            assert_eq!((image.topics.len(), image.names.len(), image.partitions), (0, 0, 0));
        }
    }

    #[test]
    fn ids_and_names_and_both_and_neither() {
        let mut fixture = Fixture::new();
        let (a, b) = (fixture.create("a", 1), fixture.create("b", 1));
        let got = by_state(
            &mut fixture,
            &[(None, a), (Some("b"), TopicId::NONE), (Some("b"), b), (None, TopicId(9)), (None, TopicId::NONE)],
        );
        assert_eq!(
            got,
            [
                (Some("a".into()), a, 0),
                (Some("b".into()), b, 0),
                (Some("b".into()), b, 42),
                (None, TopicId(9), 100),
                (None, TopicId::NONE, 42)
            ]
        );
        let a = fixture.create("a", 1);
        let got = by_state(&mut fixture, &[(None, a), (Some("a"), TopicId::NONE)]);
        assert_eq!(got.iter().map(|it| it.2).collect::<Vec<_>>(), [42, 42], "one topic twice");
        assert_eq!(fixture.controller.image().topics.len(), 1);
    }
}
