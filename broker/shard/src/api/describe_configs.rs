//! DescribeConfigs: every config with its source, synonyms, type and words.

use std::collections::{BTreeMap, BTreeSet};

use ringmain_metadata::{Entry, Synonym, check_topic_name, config::Layers};
use ringmain_session::Request;
use ringmain_types::ErrorCode;
use ringmain_wire::describe_configs::{
    DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use ringmain_wire::{Array, DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResponse};

use super::list_config_resources::{BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC};
use super::local::LocalContext;
use super::{Answered, answered, body};

pub(super) fn answer(context: &LocalContext<'_>, request: &Request) -> Result<Answered, String> {
    let asked: DescribeConfigsRequest<'_> = body(&DESCRIBE_CONFIGS, request)?;
    let mut seen = BTreeSet::new();
    let mut room = context.config.limits.describe_reply_bytes_max as usize;
    let found: Vec<(DescribeConfigsResource<'_>, Found)> = asked
        .resources
        .iter()
        .filter(|resource| seen.insert((resource.resource_type, resource.resource_name)))
        .map(|resource| {
            let found = entries(context, &resource, &mut room);
            (resource, found)
        })
        .collect();
    let results = found
        .iter()
        .map(|(resource, found)| {
            let result = DescribeConfigsResult {
                resource_type: resource.resource_type,
                resource_name: resource.resource_name,
                ..Default::default()
            };
            match found {
                Ok(entries) => DescribeConfigsResult { configs: configs(&asked, entries), ..result },
                Err((error_code, message)) => {
                    DescribeConfigsResult { error_code: *error_code, error_message: Some(message), ..result }
                }
            }
        })
        .collect();
    let reply = DescribeConfigsResponse { results, ..Default::default() };
    let errors = found.iter().filter_map(|(_, found)| Some(found.as_ref().err()?.0));
    Ok(answered(&DESCRIBE_CONFIGS, request, &reply, errors))
}

type Found = Result<Vec<Entry>, (ErrorCode, String)>;

/// The configs asked for of one resource, once it is known that there is room for them in the reply.
fn entries(context: &LocalContext<'_>, resource: &DescribeConfigsResource<'_>, room: &mut usize) -> Found {
    let mut entries = all(context, resource)?;
    // Null and empty both are all, as in Kafka.
    if let Some(keys) = resource.configuration_keys.as_ref().filter(|keys| !keys.is_empty()) {
        let keys: BTreeSet<&str> = keys.iter().collect();
        entries.retain(|entry| keys.contains(entry.name));
    }
    let bytes = entries.iter().map(entry_bytes).sum();
    match room.checked_sub(bytes) {
        Some(left) => *room = left,
        None => {
            let message = "The reply would be too large: ask for fewer resources, or for some of their configs";
            return Err((ErrorCode::InvalidRequest, message.into()));
        }
    }
    Ok(entries)
}

/// About what an entry takes in the reply.
fn entry_bytes(entry: &Entry) -> usize {
    let value = |value: &Option<String>| value.as_ref().map_or(0, String::len);
    let synonyms: usize = entry.synonyms.iter().map(|it| it.name.len() + value(&it.value) + 8).sum();
    entry.name.len() + value(&entry.value) + entry.documentation.len() + synonyms + 16
}

fn all(context: &LocalContext<'_>, resource: &DescribeConfigsResource<'_>) -> Found {
    let layers = Layers::new(context.image, context.broker_config, context.config.broker);
    let name = resource.resource_name;
    let own = context.config.broker.0.to_string();
    match resource.resource_type {
        TOPIC => {
            check_topic_name(name).map_err(|message| (ErrorCode::InvalidTopicException, message))?;
            let missing = || (ErrorCode::UnknownTopicOrPartition, format!("Topic '{name}' does not exist."));
            Ok(layers.topic_entries(&context.image.topic(name).ok_or_else(missing)?.configs))
        }
        BROKER if name.is_empty() => Ok(layers.default_broker_entries()),
        BROKER if name == own => Ok(layers.broker_entries()),
        BROKER | BROKER_LOGGER if name != own => {
            let name: String = name.chars().take(100).collect();
            let message =
                format!("Unexpected broker id, expected {own} or empty string, but received {}", name.escape_debug());
            Err((ErrorCode::InvalidRequest, message))
        }
        GROUP | CLIENT_METRICS if name.is_empty() => Err((ErrorCode::InvalidRequest, "a name is needed".into())),
        GROUP => {
            let own = context.image.group_configs.get(name);
            Ok(layers.group_entries(own.map_or(&BTreeMap::new(), |own| own)))
        }
        // Nothing of these kinds has configs yet.
        BROKER_LOGGER | CLIENT_METRICS => Ok(Vec::new()),
        kind => Err((
            ErrorCode::InvalidRequest,
            format!("Unsupported resource type: {kind}; allowed are 2 topic, 4 broker, 8 logger, 16 metrics, 32 group"),
        )),
    }
}

fn configs<'a>(
    asked: &DescribeConfigsRequest<'_>,
    entries: &'a [Entry],
) -> Array<'a, DescribeConfigsResourceResult<'a>> {
    entries
        .iter()
        .map(|entry| DescribeConfigsResourceResult {
            name: entry.name,
            value: entry.value.as_deref(),
            read_only: entry.read_only,
            config_source: entry.source as i8,
            is_sensitive: entry.sensitive,
            synonyms: match asked.include_synonyms {
                true => synonyms(entry),
                false => Array::default(),
            },
            config_type: entry.kind as i8,
            documentation: asked.include_documentation.then_some(entry.documentation),
        })
        .collect()
}

fn synonyms(entry: &Entry) -> Array<'_, DescribeConfigsSynonym<'_>> {
    entry
        .synonyms
        .iter()
        .map(|Synonym { name, value, source }| DescribeConfigsSynonym {
            name,
            value: value.as_deref(),
            source: *source as i8,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::fixture::{Fixture, call};
    use ringmain_metadata::{AlterConfig, AlterOperation, AlterResource};

    fn ask(fixture: &Fixture, kind: i8, name: &str, keys: Option<&[&str]>) -> (ErrorCode, Vec<String>) {
        let asked = DescribeConfigsRequest {
            resources: [DescribeConfigsResource {
                resource_type: kind,
                resource_name: name,
                configuration_keys: keys.map(|keys| keys.iter().copied().collect()),
            }]
            .into_iter()
            .collect(),
            include_synonyms: true,
            include_documentation: true,
        };
        let reply = fixture.ask(&DESCRIBE_CONFIGS, 4, &asked);
        let got: DescribeConfigsResponse<'_> = call(&DESCRIBE_CONFIGS, 4, &reply);
        let result = got.results.iter().next().unwrap();
        let lines = result.configs.iter().map(|it| {
            assert!(it.documentation.is_some_and(|words| !words.is_empty()));
            let synonyms =
                it.synonyms.iter().map(|it| format!(" {}:{}={}", it.source, it.name, it.value.unwrap_or("-")));
            format!("{}={} {}{}", it.name, it.value.unwrap_or("-"), it.config_source, synonyms.collect::<String>())
        });
        (result.error_code, lines.collect())
    }

    fn set(fixture: &mut Fixture, kind: i8, name: &str, key: &str, value: &str) {
        let alter = AlterConfig { name: key.into(), operation: AlterOperation::Set(Some(value.into())) };
        let resource = AlterResource { kind, name: name.into() };
        let decision =
            fixture.controller.incremental_alter_configs(crate::api::fixture::NOW, &[(resource, vec![alter])], false);
        assert_eq!(decision.results, [Ok(())]);
        fixture.replay(&decision.records);
    }

    #[test]
    fn a_value_comes_from_the_strongest_layer_and_shows_what_it_hides() {
        let mut fixture = Fixture::new();
        fixture.create("a", 1);
        let key: Option<&[&str]> = Some(&["retention.ms"]);
        let look = |fixture: &Fixture| ask(fixture, TOPIC, "a", key).1.join("");
        assert_eq!(look(&fixture), "retention.ms=604800000 5");
        fixture.properties("log.retention.hours", "2");
        assert_eq!(look(&fixture), "retention.ms=7200000 4 4:log.retention.hours=2");
        set(&mut fixture, BROKER, "", "log.retention.ms", "5000");
        assert_eq!(look(&fixture), "retention.ms=5000 3 3:log.retention.ms=5000 4:log.retention.hours=2");
        set(&mut fixture, BROKER, "1", "log.retention.ms", "6000");
        set(&mut fixture, TOPIC, "a", "retention.ms", "-1");
        assert_eq!(
            look(&fixture),
            "retention.ms=-1 1 1:retention.ms=-1 2:log.retention.ms=6000 3:log.retention.ms=5000 4:log.retention.hours=2"
        );
        let shown = ask(&fixture, BROKER, "", None).1;
        assert_eq!(shown, ["log.retention.ms=5000 3 3:log.retention.ms=5000"]);
    }

    #[test]
    fn a_resource_is_answered_once_and_a_reply_has_a_bound() {
        let mut fixture = Fixture::new();
        fixture.create("a", 1);
        fixture.create("b", 1);
        let resource =
            |name| DescribeConfigsResource { resource_type: TOPIC, resource_name: name, ..Default::default() };
        let asked = DescribeConfigsRequest {
            resources: ["a", "a", "b"].into_iter().map(resource).collect(),
            include_documentation: true,
            include_synonyms: true,
        };
        let codes = |fixture: &Fixture| {
            let reply = fixture.ask(&DESCRIBE_CONFIGS, 4, &asked);
            let got: DescribeConfigsResponse<'_> = call(&DESCRIBE_CONFIGS, 4, &reply);
            (got.results.iter().map(|it| it.error_code).collect::<Vec<_>>(), reply.len())
        };
        let (both, bytes) = codes(&fixture);
        assert_eq!(both, [ErrorCode::None, ErrorCode::None]);
        fixture.config.limits.describe_reply_bytes_max = bytes as u32 * 3 / 4;
        assert_eq!(codes(&fixture).0, [ErrorCode::None, ErrorCode::InvalidRequest]);
    }

    #[test]
    fn all_configs_of_a_topic_and_of_this_broker_are_shown_and_others_are_refused() {
        let mut fixture = Fixture::new();
        fixture.create("a", 1);
        assert_eq!(ask(&fixture, TOPIC, "a", None).1.len(), 38);
        assert_eq!(ask(&fixture, TOPIC, "a", Some(&[])).1.len(), 38);
        assert_eq!(ask(&fixture, TOPIC, "a", Some(&["no.such"])).1.len(), 0);
        assert!(ask(&fixture, BROKER, "1", None).1.len() > 300);
        assert_eq!(ask(&fixture, BROKER, "2", None).0, ErrorCode::InvalidRequest);
        assert_eq!(ask(&fixture, TOPIC, "b", None).0, ErrorCode::UnknownTopicOrPartition);
        assert_eq!(ask(&fixture, TOPIC, "b b", None).0, ErrorCode::InvalidTopicException);
        assert_eq!(ask(&fixture, 77, "", None).0, ErrorCode::InvalidRequest);
        assert_eq!(ask(&fixture, CLIENT_METRICS, "m", None), (ErrorCode::None, vec![]));
        let key: Option<&[&str]> = Some(&["consumer.session.timeout.ms"]);
        let default = "5:group.consumer.session.timeout.ms=45000";
        assert_eq!(ask(&fixture, GROUP, "g", key).1, [format!("consumer.session.timeout.ms=45000 5 {default}")]);
        set(&mut fixture, GROUP, "g", "consumer.session.timeout.ms", "50000");
        let own = "8:consumer.session.timeout.ms=50000";
        assert_eq!(ask(&fixture, GROUP, "g", key).1, [format!("consumer.session.timeout.ms=50000 8 {own} {default}")]);
        assert_eq!(ask(&fixture, GROUP, "", None).0, ErrorCode::InvalidRequest);
        fixture.properties("ssl.key.password", "hunter2");
        let secret = ask(&fixture, BROKER, "1", Some(&["ssl.key.password"])).1;
        assert_eq!(secret, ["ssl.key.password=- 4 4:ssl.key.password=-"]);
    }
}
