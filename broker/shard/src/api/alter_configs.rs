//! AlterConfigs: the older one, which replaces all configs of a resource.

use ringmain_metadata::{AlterResource, Controller};
use ringmain_session::Request;
use ringmain_types::Now;
use ringmain_wire::alter_configs::AlterConfigsResourceResponse;
use ringmain_wire::{ALTER_CONFIGS, AlterConfigsRequest, AlterConfigsResponse};

use super::control::{Outcome, refusals};
use super::{answered, body};

pub(super) fn decide(controller: &mut Controller, now: Now, request: &Request) -> Outcome {
    let asked: AlterConfigsRequest<'_> = body(&ALTER_CONFIGS, request)?;
    let wanted: Vec<_> = asked
        .resources
        .iter()
        .map(|it| {
            let configs = it.configs.iter().map(|it| (it.name.to_owned(), it.value.map(str::to_owned)));
            (AlterResource { kind: it.resource_type, name: it.resource_name.to_owned() }, configs.collect::<Vec<_>>())
        })
        .collect();
    let decision = controller.alter_configs(now, &wanted, asked.validate_only);
    let responses = wanted
        .iter()
        .zip(&decision.results)
        .map(|((resource, _), result)| AlterConfigsResourceResponse {
            error_code: result.as_ref().err().map_or_else(Default::default, |refusal| refusal.code),
            error_message: result.as_ref().err().map(|refusal| refusal.message.as_str()),
            resource_type: resource.kind,
            resource_name: &resource.name,
        })
        .collect();
    let reply = AlterConfigsResponse { responses, ..Default::default() };
    let reply = answered(&ALTER_CONFIGS, request, &reply, refusals(&decision.results));
    Ok((decision.records, reply))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::fixture::{Fixture, call};
    use ringmain_wire::alter_configs::{AlterConfigsResource, AlterableConfig};

    fn ask(fixture: &mut Fixture, version: i16, configs: &[(&str, Option<&str>)], validate_only: bool) -> i16 {
        let configs = configs.iter().map(|(name, value)| AlterableConfig { name, value: *value }).collect();
        let resource = AlterConfigsResource { resource_type: 2, resource_name: "a", configs };
        let asked = AlterConfigsRequest { resources: vec![resource].into(), validate_only };
        let reply = fixture.change(&ALTER_CONFIGS, version, &asked);
        let got: AlterConfigsResponse<'_> = call(&ALTER_CONFIGS, version, &reply);
        got.responses.iter().next().unwrap().error_code.code()
    }

    #[test]
    fn what_is_not_named_goes() {
        for version in 0..=2 {
            let mut fixture = Fixture::new();
            fixture.create("a", 1);
            assert_eq!(ask(&mut fixture, version, &[("retention.ms", Some("5")), ("flush.ms", Some("7"))], false), 0);
            assert_eq!(ask(&mut fixture, version, &[("retention.ms", Some("6"))], true), 0);
            let configs = |fixture: &Fixture| {
                let configs = fixture.controller.image().topic("a").unwrap().configs.clone();
                configs.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
            };
            assert_eq!(configs(&fixture), ["flush.ms=7", "retention.ms=5"], "validated only");
            assert_eq!(ask(&mut fixture, version, &[("retention.ms", Some("6"))], false), 0);
            assert_eq!(configs(&fixture), ["retention.ms=6"]);
            assert_eq!(ask(&mut fixture, version, &[("retention.ms", Some("-7"))], false), 40);
            assert_eq!(ask(&mut fixture, version, &[("retention.ms", None)], false), 42);
            assert_eq!(configs(&fixture), ["retention.ms=6"]);
        }
    }
}
