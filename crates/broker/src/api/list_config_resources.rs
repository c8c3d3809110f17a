//! ListConfigResources (key 74), versions 0 and 1: the resources with a configuration.
//!
//! Version 0 lists subscriptions to clients' metrics (KIP-714). Version 1 lists the requested kinds, or all
//! of them (KIP-1142): groups and subscriptions that have settings, every topic, every live broker.

use super::Call;
use super::entry::{Api, Cost, cluster, now};
use thalweg_metadata::{ConfigResourceKind, Image};
use thalweg_security::acl::Operation;
use thalweg_wire::request::list_config_resources_response::ConfigResource;
use thalweg_wire::request::{ListConfigResourcesRequest, ListConfigResourcesResponse};
use thalweg_wire::{ApiKey, ErrorCode};

pub(super) const API: Api = Api::new(
    ApiKey::ListConfigResources,
    0..=1,
    cluster::<ListConfigResourcesRequest>(&[Operation::DescribeConfigs]),
    |b, c, d| now(b, c, d, |b, c, r| handle(&b.image(), c, r)),
)
.cost(Cost::ByTopics);

/// The kinds that are listed.
const KINDS: [ConfigResourceKind; 5] = [
    ConfigResourceKind::Group,
    ConfigResourceKind::ClientMetrics,
    ConfigResourceKind::BrokerLogger,
    ConfigResourceKind::Broker,
    ConfigResourceKind::Topic,
];

/// Lists from the image.
pub fn handle(
    image: &Image,
    call: &Call,
    request: ListConfigResourcesRequest,
) -> ListConfigResourcesResponse {
    let requested: Vec<_> =
        request.resource_types.iter().map(|id| ConfigResourceKind::from_id(*id)).collect();
    if requested.iter().any(|kind| !KINDS.contains(kind)) {
        let error_code = ErrorCode::UnsupportedVersion.code();
        return ListConfigResourcesResponse { error_code, ..Default::default() };
    }
    let is_requested = |kind: &ConfigResourceKind| match call.version {
        0 => *kind == ConfigResourceKind::ClientMetrics,
        _ => requested.is_empty() || requested.contains(kind),
    };
    let config_resources = KINDS.into_iter().filter(is_requested).flat_map(|kind| {
        let named = move |resource_name| ConfigResource { resource_name, resource_type: kind.id() };
        names(image, kind).into_iter().map(named)
    });
    ListConfigResourcesResponse {
        throttle_time_ms: 0,
        error_code: 0,
        config_resources: config_resources.collect(),
    }
}

fn names(image: &Image, kind: ConfigResourceKind) -> Vec<String> {
    match kind {
        ConfigResourceKind::Topic => {
            image.topics().sorted().into_iter().map(|topic| topic.name.to_string()).collect()
        }
        ConfigResourceKind::Broker | ConfigResourceKind::BrokerLogger => {
            image.alive_brokers().map(|broker| broker.id.to_string()).collect()
        }
        kind => {
            let of_kind =
                image.configs().iter().map(|(resource, _)| resource).filter(|resource| resource.kind == kind);
            let mut names: Vec<_> = of_kind.map(|resource| resource.name.clone()).collect();
            names.sort_unstable();
            names
        }
    }
}
