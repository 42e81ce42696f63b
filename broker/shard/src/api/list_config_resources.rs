//! ListConfigResources: names of what can have configs.

use ringmain_session::Request;
use ringmain_types::ErrorCode;
use ringmain_wire::list_config_resources::ConfigResource;
use ringmain_wire::{LIST_CONFIG_RESOURCES, ListConfigResourcesRequest, ListConfigResourcesResponse};

use super::local::LocalContext;
use super::{Answered, answered, body};

/// `ConfigResource.Type`s on the wire.
pub(super) const TOPIC: i8 = 2;
pub(super) const BROKER: i8 = 4;
pub(super) const BROKER_LOGGER: i8 = 8;
pub(super) const CLIENT_METRICS: i8 = 16;
pub(super) const GROUP: i8 = 32;

pub(super) fn answer(context: &LocalContext<'_>, request: &Request) -> Result<Answered, String> {
    let asked: ListConfigResourcesRequest<'_> = body(&LIST_CONFIG_RESOURCES, request)?;
    let wanted: Vec<i8> = match request.version {
        0 => vec![CLIENT_METRICS],
        _ if asked.resource_types.is_empty() => vec![TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP],
        _ => asked.resource_types.iter().collect(),
    };
    let all = [TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP];
    if wanted.iter().any(|kind| !all.contains(kind)) {
        let error_code = ErrorCode::UnsupportedVersion;
        let reply = ListConfigResourcesResponse { error_code, ..Default::default() };
        return Ok(answered(&LIST_CONFIG_RESOURCES, request, &reply, [error_code]));
    }
    let ids: Vec<String> = context.image.brokers.keys().map(|broker| broker.0.to_string()).collect();
    let named = |names: &mut dyn Iterator<Item = &'_ str>, kind| -> Vec<(String, i8)> {
        names.map(|name| (name.to_owned(), kind)).collect()
    };
    let mut found: Vec<(String, i8)> = Vec::new();
    for kind in all.into_iter().filter(|kind| wanted.contains(kind)) {
        match kind {
            TOPIC => found.extend(named(&mut context.image.names.keys().map(|name| &**name), kind)),
            BROKER | BROKER_LOGGER => found.extend(named(&mut ids.iter().map(String::as_str), kind)),
            GROUP => found.extend(named(&mut context.image.group_configs.keys().map(|name| &**name), kind)),
            // No client metrics exist yet.
            _ => {}
        }
    }
    let config_resources = found
        .iter()
        .map(|(name, kind)| ConfigResource { resource_name: name.as_str(), resource_type: *kind })
        .collect();
    let reply = ListConfigResourcesResponse { config_resources, ..Default::default() };
    Ok(answered(&LIST_CONFIG_RESOURCES, request, &reply, []))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::fixture::{Fixture, call};

    #[test]
    fn topics_and_brokers_are_listed_by_type() {
        let mut fixture = Fixture::new();
        fixture.create("a", 1);
        let ask = |version, types: &[i8]| {
            let asked = ListConfigResourcesRequest { resource_types: types.to_vec().into() };
            let reply = fixture.ask(&LIST_CONFIG_RESOURCES, version, &asked);
            let got: ListConfigResourcesResponse<'_> = call(&LIST_CONFIG_RESOURCES, version, &reply);
            let names = got.config_resources.iter().map(|it| format!("{} {}", it.resource_type, it.resource_name));
            (got.error_code, names.collect::<Vec<_>>())
        };
        assert_eq!(ask(1, &[]), (ErrorCode::None, vec!["2 a".into(), "4 1".into(), "8 1".into()]));
        assert_eq!(ask(1, &[TOPIC]), (ErrorCode::None, vec!["2 a".into()]));
        assert_eq!(ask(0, &[]), (ErrorCode::None, vec![]));
        assert_eq!(ask(1, &[99]), (ErrorCode::UnsupportedVersion, vec![]));
    }
}
