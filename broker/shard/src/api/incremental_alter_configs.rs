//! IncrementalAlterConfigs: sets, deletes, appends to or subtracts from single configs.

use ringmain_metadata::{AlterConfig, AlterOperation, AlterResource, Controller};
use ringmain_session::Request;
use ringmain_types::Now;
use ringmain_wire::incremental_alter_configs::{AlterConfigsResourceResponse, AlterableConfig};
use ringmain_wire::{INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};

use super::control::{Outcome, refusals};
use super::{answered, body};

pub(super) fn decide(controller: &mut Controller, now: Now, request: &Request) -> Outcome {
    let asked: IncrementalAlterConfigsRequest<'_> = body(&INCREMENTAL_ALTER_CONFIGS, request)?;
    let wanted: Vec<_> = asked
        .resources
        .iter()
        .map(|it| {
            let resource = AlterResource { kind: it.resource_type, name: it.resource_name.to_owned() };
            (resource, it.configs.iter().map(|config| alter(&config)).collect::<Vec<_>>())
        })
        .collect();
    let decision = controller.incremental_alter_configs(now, &wanted, asked.validate_only);
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
    let reply = IncrementalAlterConfigsResponse { responses, ..Default::default() };
    let reply = answered(&INCREMENTAL_ALTER_CONFIGS, request, &reply, refusals(&decision.results));
    Ok((decision.records, reply))
}

fn alter(config: &AlterableConfig<'_>) -> AlterConfig {
    let value = config.value.map(str::to_owned);
    let operation = match config.config_operation {
        0 => AlterOperation::Set(value),
        1 => AlterOperation::Delete,
        2 => AlterOperation::Append(value),
        3 => AlterOperation::Subtract(value),
        other => AlterOperation::Unknown(other),
    };
    AlterConfig { name: config.name.to_owned(), operation }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::fixture::{Fixture, call};
    use ringmain_wire::incremental_alter_configs::AlterConfigsResource;

    fn ask(fixture: &mut Fixture, kind: i8, name: &str, configs: &[(&str, i8, Option<&str>)]) -> (i16, String) {
        let configs = configs
            .iter()
            .map(|(name, config_operation, value)| AlterableConfig {
                name,
                config_operation: *config_operation,
                value: *value,
            })
            .collect();
        let resource = AlterConfigsResource { resource_type: kind, resource_name: name, configs };
        let asked = IncrementalAlterConfigsRequest { resources: vec![resource].into(), validate_only: false };
        let reply = fixture.change(&INCREMENTAL_ALTER_CONFIGS, 1, &asked);
        let got: IncrementalAlterConfigsResponse<'_> = call(&INCREMENTAL_ALTER_CONFIGS, 1, &reply);
        let it = got.responses.iter().next().unwrap();
        (it.error_code.code(), it.error_message.unwrap_or_default().to_owned())
    }

    #[test]
    fn operations_work_on_what_holds() {
        let mut fixture = Fixture::new();
        fixture.create("a", 1);
        let policy =
            |fixture: &Fixture| fixture.controller.image().topic("a").unwrap().configs.get("cleanup.policy").cloned();
        assert_eq!(ask(&mut fixture, 2, "a", &[("cleanup.policy", 2, Some("compact"))]).0, 0);
        assert_eq!(policy(&fixture).as_deref(), Some("delete,compact"), "the default and what was added");
        assert_eq!(ask(&mut fixture, 2, "a", &[("cleanup.policy", 3, Some("delete"))]).0, 0);
        assert_eq!(policy(&fixture).as_deref(), Some("compact"));
        assert_eq!(ask(&mut fixture, 2, "a", &[("cleanup.policy", 1, None)]).0, 0);
        assert_eq!(policy(&fixture), None);
        assert_eq!(ask(&mut fixture, 2, "a", &[("flush", 0, Some("async"))]).0, 0);
        assert!(ask(&mut fixture, 2, "a", &[("flush", 0, Some("never"))]).1.contains("one of group, async"));
    }

    #[test]
    fn refusals() {
        let mut fixture = Fixture::new();
        fixture.create("a", 1);
        let lags = [("min.compaction.lag.ms", 0, Some("9")), ("max.compaction.lag.ms", 0, Some("8"))];
        let (code, message) = ask(&mut fixture, 2, "a", &lags);
        assert_eq!(code, 40);
        assert!(message.contains("min.compaction.lag.ms (9)"), "{message}");
        assert_eq!(ask(&mut fixture, 2, "a", &[("retention.ms", 2, Some("9"))]).0, 40, "not a list");
        assert_eq!(ask(&mut fixture, 2, "a", &[("retention.ms", 9, Some("9"))]).0, 42);
        assert_eq!(ask(&mut fixture, 2, "a", &[("retention.ms", 0, None)]).0, 42);
        assert_eq!(ask(&mut fixture, 2, "a", &[("flush", 1, None), ("flush", 1, None)]).0, 42);
        assert_eq!(ask(&mut fixture, 2, "b", &[]).0, 3);
        assert_eq!(ask(&mut fixture, 4, "x", &[]).0, 42);
        assert_eq!(ask(&mut fixture, 4, "9", &[]).0, 42);
        assert_eq!(ask(&mut fixture, 4, "1", &[("node.id", 0, Some("2"))]).0, 42);
        assert_eq!(ask(&mut fixture, 8, "1", &[]).0, 42);
        assert_eq!(ask(&mut fixture, 4, "", &[("log.retention.ms", 0, Some("77"))]).0, 0);
        let image = fixture.controller.image();
        assert_eq!(image.dynamic("", "log.retention.ms"), Some("77"));
        assert!(image.topic("a").unwrap().configs.is_empty());
    }
}
