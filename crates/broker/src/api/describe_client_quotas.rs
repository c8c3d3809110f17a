//! DescribeClientQuotas (key 48), versions 0 and 1 (KIP-546; 1 is flexible): the quotas of users, clients and
//! addresses, from the image.
//!
//! A filter names entity types, each with an exact name, the default, or any name. A strict filter leaves out
//! entities with further types. Without components, a strict filter therefore finds nothing.
//!
//! Entities are sorted, and so are the values of each. Kafka defines no order of them: it is that of hash
//! maps whose size depends on earlier changes (`ClientQuotasDelta`), so two brokers of a cluster may differ.
//! The parts of an entity have Kafka's order: the client id before the user.

use super::entry::{Api, Cost, cluster, now};
use std::collections::BTreeMap;
use thalweg_metadata::{Image, QuotaEntity};
use thalweg_security::acl::Operation;
use thalweg_wire::request::describe_client_quotas_request::ComponentData;
use thalweg_wire::request::describe_client_quotas_response::{EntityData, EntryData, ValueData};
use thalweg_wire::request::{DescribeClientQuotasRequest, DescribeClientQuotasResponse};
use thalweg_wire::{ApiKey, ErrorCode};

pub(super) const API: Api = Api::new(
    ApiKey::DescribeClientQuotas,
    0..=1,
    cluster::<DescribeClientQuotasRequest>(&[Operation::DescribeConfigs]),
    |b, c, d| now(b, c, d, |b, _, r| handle(&b.image(), r)),
)
.cost(Cost::Always);

/// The filter for one type of an entity.
enum FilterComponent<'a> {
    /// An exact name; `None` means the default of the type.
    Exactly(Option<&'a str>),
    /// Any name, or the default.
    Any,
}

type Filter<'a> = BTreeMap<&'a str, FilterComponent<'a>>;

/// Finds the entities that the filter lets through.
pub fn handle(image: &Image, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse {
    let filter = match filter(&request.components) {
        Ok(filter) => filter,
        Err((error, message)) => {
            return DescribeClientQuotasResponse {
                error_code: error.code(),
                error_message: Some(message),
                entries: None,
                ..Default::default()
            };
        }
    };
    let found = image.quotas().iter().filter(|(entity, _)| matches(entity, &filter, request.strict));
    let entries = found.map(|(entity, values)| EntryData {
        entity: entity
            .iter()
            .map(|(kind, name)| EntityData { entity_type: kind.clone(), entity_name: name.clone() })
            .collect(),
        values: values.iter().map(|(key, value)| ValueData { key: key.clone(), value: *value }).collect(),
    });
    DescribeClientQuotasResponse {
        throttle_time_ms: 0,
        error_code: 0,
        error_message: Some(String::new()),
        entries: Some(entries.collect()),
    }
}

fn filter(components: &[ComponentData]) -> Result<Filter<'_>, (ErrorCode, String)> {
    let invalid = |message: &str| Err((ErrorCode::InvalidRequest, message.to_owned()));
    let mut filter = Filter::new();
    for component in components {
        let kind = component.entity_type.as_str();
        if kind.is_empty() {
            return invalid("Invalid empty entity type.");
        }
        if filter.contains_key(kind) {
            return invalid(&format!("Entity type {kind} cannot appear more than once in the filter."));
        }
        if !matches!(kind, "user" | "client-id" | "ip") {
            return Err((ErrorCode::UnsupportedVersion, format!("Unsupported entity type {kind}")));
        }
        let wanted = match (component.match_type, component.r#match.as_deref()) {
            (0, Some(name)) => FilterComponent::Exactly(Some(name)),
            (0, None) => return invalid("Request specified MATCH_TYPE_EXACT, but set match string to null."),
            (1, None) => FilterComponent::Exactly(None),
            (1, Some(_)) => {
                return invalid("Request specified MATCH_TYPE_DEFAULT, but also specified a match string.");
            }
            (2, None) => FilterComponent::Any,
            (2, Some(_)) => {
                return invalid("Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.");
            }
            (other, _) => return invalid(&format!("Unknown match type {other}")),
        };
        filter.insert(kind, wanted);
    }
    if filter.contains_key("ip") && filter.len() > 1 {
        return invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or \
             clientId filter component.",
        );
    }
    Ok(filter)
}

fn matches(entity: &QuotaEntity, filter: &Filter<'_>, strict: bool) -> bool {
    let holds = |(kind, wanted): (&&str, &FilterComponent<'_>)| match (entity.get(*kind), wanted) {
        (None, _) => false,
        (Some(_), FilterComponent::Any) => true,
        (Some(name), FilterComponent::Exactly(wanted)) => name.as_deref() == *wanted,
    };
    (!strict || entity.len() == filter.len()) && filter.iter().all(holds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(kind: &str, match_type: i8, name: Option<&str>) -> ComponentData {
        ComponentData { entity_type: kind.to_owned(), match_type, r#match: name.map(str::to_owned) }
    }

    fn entity(pairs: &[(&str, Option<&str>)]) -> QuotaEntity {
        pairs.iter().map(|(kind, name)| ((*kind).to_owned(), name.map(str::to_owned))).collect()
    }

    #[test]
    fn filters_match_as_in_kafka() {
        let both = entity(&[("user", Some("u")), ("client-id", None)]);
        let matches = |components: &[ComponentData], strict| {
            matches(&both, &filter(components).unwrap_or_else(|(_, message)| panic!("{message}")), strict)
        };
        assert!(matches(&[], false));
        assert!(!matches(&[], true), "a strict filter names every type");
        assert!(matches(&[component("user", 0, Some("u"))], false));
        assert!(!matches(&[component("user", 0, Some("u"))], true));
        assert!(matches(&[component("user", 2, None), component("client-id", 1, None)], true));
        assert!(!matches(&[component("user", 1, None)], false), "u is not the default");
        assert!(!matches(&[component("ip", 2, None)], false));
    }

    #[test]
    fn filters_are_refused_in_kafkas_words() {
        let refusal = |components: &[ComponentData]| filter(components).err().expect("a refusal");
        let invalid = |message: &str| (ErrorCode::InvalidRequest, message.to_owned());
        assert_eq!(refusal(&[component("", 2, None)]), invalid("Invalid empty entity type."));
        assert_eq!(
            refusal(&[component("user", 0, None)]),
            invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        );
        assert_eq!(refusal(&[component("user", 9, None)]), invalid("Unknown match type 9"));
        assert_eq!(
            refusal(&[component("foo", 2, None)]),
            (ErrorCode::UnsupportedVersion, "Unsupported entity type foo".to_owned())
        );
        assert_eq!(
            refusal(&[component("user", 2, None), component("user", 0, Some("u"))]),
            invalid("Entity type user cannot appear more than once in the filter.")
        );
        assert!(refusal(&[component("ip", 2, None), component("user", 2, None)]).1.contains("combination"));
    }
}
