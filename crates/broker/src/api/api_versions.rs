//! ApiVersions (key 18), versions 0 to 4: the served APIs, and the features of the cluster (KIP-511,
//! KIP-584).
//!
//! A version beyond the last is answered at version 0 with UNSUPPORTED_VERSION and all served APIs, so that
//! the client can retry. Forwarding APIs have the versions that the controller serves. Produce is advertised
//! from version 0, though 0 to 2 are refused: librdkafka disables features for brokers that start at a higher
//! version (KAFKA-18659).

use super::entry::{Api, Open, now};
use super::serve::forward::served_with_controller;
use super::{Call, all_served};
use crate::broker::Broker;
use thalweg_config::BrokerConfig;
use thalweg_metadata::feature::KRAFT_VERSION;
use thalweg_net::{Frame, Reply, Software};
use thalweg_wire::frame::encode_response;
use thalweg_wire::request::api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use thalweg_wire::request::{ApiVersionsRequest, ApiVersionsResponse};
use thalweg_wire::{ApiKey, ErrorCode};

pub(super) const API: Api =
    Api::new(ApiKey::ApiVersions, 0..=4, Open, |b, c, d| now::<ApiVersionsRequest>(b, c, d, handle));

/// The first version with the name and version of the client (KIP-511).
const SOFTWARE_FROM: i16 = 3;
/// The first version whose clients accept features with a first level of 0. Java clients before 4.0 fail on
/// such a feature.
const LEVEL_ZERO_FROM: i16 = 4;

/// Answers a request at a version that is served.
pub fn handle(broker: &Broker, call: &Call, request: ApiVersionsRequest) -> ApiVersionsResponse {
    if call.version >= SOFTWARE_FROM
        && !(valid(&request.client_software_name) && valid(&request.client_software_version))
    {
        return ApiVersionsResponse { error_code: ErrorCode::InvalidRequest.code(), ..Default::default() };
    }
    // The first request of a connection sets the names; later requests change nothing.
    if let Some(id) = &call.client_id {
        call.peer.note_client_id(id);
    }
    if call.version >= SOFTWARE_FROM {
        let ApiVersionsRequest { client_software_name: name, client_software_version: version, .. } = request;
        let _ = call.peer.software.set(Software { name, version });
    }
    let (config, image) = (broker.config(), broker.image());
    let controller = &broker.registered.controller;
    // No image contains kraft.version.
    let kraft_version = (KRAFT_VERSION, controller.kraft_version());
    let registered = image.broker(broker.node_id).map(|registration| registration.features.clone());
    ApiVersionsResponse {
        error_code: ErrorCode::None.code(),
        api_keys: api_keys(|api| served_with_controller(&config, controller, api)),
        throttle_time_ms: 0,
        supported_features: registered
            .unwrap_or_else(thalweg_membership::features::ranges)
            .into_iter()
            .filter(|(_, range)| call.version >= LEVEL_ZERO_FROM || range.min > 0)
            .map(|(name, range)| SupportedFeatureKey { name, min_version: range.min, max_version: range.max })
            .collect(),
        finalized_features_epoch: image.provenance().offset,
        finalized_features: image
            .features()
            .iter()
            .chain([kraft_version])
            .filter(|(_, level)| *level > 0)
            .map(|(name, level)| FinalizedFeatureKey {
                name: name.to_owned(),
                max_version_level: level,
                min_version_level: level,
            })
            .collect(),
        zk_migration_ready: false,
    }
}

/// Answers a request at a version that is not served, at version 0.
pub fn unsupported(config: &BrokerConfig, correlation_id: i32) -> Reply {
    let response = ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion.code(),
        api_keys: api_keys(|api| Some((api.min, api.last(config)))),
        ..Default::default()
    };
    match encode_response(&response, ApiKey::ApiVersions, 0, correlation_id) {
        Ok((bytes, _)) => Reply::Now(Frame::bytes(bytes.freeze())),
        Err(error) => Reply::Close(format!("ApiVersions could not be encoded: {error}")),
    }
}

/// The served APIs. As in Kafka, those of consumer, share and streams groups are listed at any feature level.
fn api_keys(range: impl Fn(&Api) -> Option<(i16, i16)>) -> Vec<ApiVersion> {
    let version = |api: &Api| {
        let (min, max_version) = range(api)?;
        let min_version = if api.key == ApiKey::Produce { 0 } else { min };
        Some(ApiVersion { api_key: api.key as i16, min_version, max_version })
    };
    all_served().filter_map(version).collect()
}

/// Kafka's rule for a client's name and version: letters, digits, dots and dashes, ending in a letter or
/// digit.
fn valid(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let edge = |c: char| c.is_ascii_alphanumeric();
    text.chars().all(inner) && text.starts_with(edge) && text.ends_with(edge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apis_of_all_group_types_are_listed_at_any_feature_level() {
        let listed: Vec<i16> =
            api_keys(|api| Some((api.min, api.max))).into_iter().map(|version| version.api_key).collect();
        let served: Vec<i16> = all_served().map(|api| api.key as i16).collect();
        assert_eq!(listed, served);
        assert!([68, 69, 76, 77, 88, 89].iter().all(|key| listed.contains(key)), "{listed:?}");
    }
}
