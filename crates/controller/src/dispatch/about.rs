//! The controller's answers about itself: its APIs and features, and the controllers of the cluster.

use thalweg_security::acl::Operation;
use thalweg_wire::request::api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use thalweg_wire::request::describe_cluster_response::DescribeClusterBroker;
use thalweg_wire::request::{
    ApiVersionsRequest, ApiVersionsResponse, DescribeClusterRequest, DescribeClusterResponse,
    SaslAuthenticateRequest, SaslHandshakeRequest,
};
use thalweg_wire::{ApiKey, ErrorCode};

use super::served_keys;
use crate::state::Access::{Cluster, Everybody};
use crate::state::{Api, ApiError, Call, Decide, Moment, Outcome, State};

pub(super) const APIS: &[Api] = &[
    Api::new::<ApiVersionsRequest>(Everybody),
    Api::new::<SaslHandshakeRequest>(Everybody),
    Api::new::<SaslAuthenticateRequest>(Everybody),
    // A broker needs no permission for this API.
    Api::new::<DescribeClusterRequest>(Cluster(Operation::Alter)),
];

impl Decide for ApiVersionsRequest {
    fn decide(&self, state: &mut State, call: &Call, _: Moment) -> Result<Outcome<Self::Response>, ApiError> {
        Ok(Outcome::answer(api_versions(state, self, call.version)))
    }
}

impl Decide for SaslHandshakeRequest {
    fn decide(&self, _: &mut State, _: &Call, _: Moment) -> Result<Outcome<Self::Response>, ApiError> {
        Err(authenticated())
    }
}

impl Decide for SaslAuthenticateRequest {
    fn decide(&self, _: &mut State, _: &Call, _: Moment) -> Result<Outcome<Self::Response>, ApiError> {
        Err(authenticated())
    }
}

impl Decide for DescribeClusterRequest {
    fn decide(&self, state: &mut State, _: &Call, _: Moment) -> Result<Outcome<Self::Response>, ApiError> {
        describe_cluster(state, self)
    }
}

/// Authentication is complete before requests get here.
fn authenticated() -> ApiError {
    let message = "SaslAuthenticate request received after successful authentication";
    ApiError::new(ErrorCode::IllegalSaslState, message)
}

/// The versions of an API.
pub(super) fn api_version(api: ApiKey) -> ApiVersion {
    let (min_version, max_version) = api.versions();
    ApiVersion { api_key: api as i16, min_version, max_version }
}

fn api_versions(state: &State, request: &ApiVersionsRequest, version: i16) -> ApiVersionsResponse {
    let named = |text: &str| {
        let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        edge(text.chars().next()) && edge(text.chars().last()) && text.chars().all(inner)
    };
    if version >= 3 && !(named(&request.client_software_name) && named(&request.client_software_version)) {
        return ApiVersionsResponse { error_code: ErrorCode::InvalidRequest.code(), ..Default::default() };
    }
    // Below version 4, Java clients cannot read a range that starts at 0 (KAFKA-17011).
    let supported = state.supported_features().iter().filter(|(_, range)| version >= 4 || range.min > 0);
    ApiVersionsResponse {
        api_keys: served_keys().into_iter().map(api_version).collect(),
        supported_features: supported
            .map(|(name, range)| SupportedFeatureKey {
                name: name.clone(),
                min_version: range.min,
                max_version: range.max,
            })
            .collect(),
        finalized_features_epoch: state.image().offset(),
        finalized_features: state
            .finalized_features()
            .into_iter()
            .map(|(name, level)| FinalizedFeatureKey {
                name,
                max_version_level: level,
                min_version_level: level,
            })
            .collect(),
        ..Default::default()
    }
}

/// DescribeCluster of a controller: controllers, not brokers (KIP-919).
fn describe_cluster(
    state: &State,
    request: &DescribeClusterRequest,
) -> Result<Outcome<DescribeClusterResponse>, ApiError> {
    const BROKERS: i8 = 1;
    const CONTROLLERS: i8 = 2;
    match request.endpoint_type {
        CONTROLLERS => {}
        BROKERS => {
            let message = "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type \
                           BROKER";
            return Err(ApiError::new(ErrorCode::MismatchedEndpointType, message));
        }
        other => {
            let message = format!("Unsupported endpoint type {other}");
            return Err(ApiError::new(ErrorCode::UnsupportedEndpointType, message));
        }
    }
    let mut brokers = Vec::new();
    for controller in state.image().cluster().controllers.values() {
        if let Some(endpoint) = controller.endpoints.first() {
            brokers.push(DescribeClusterBroker {
                broker_id: controller.id,
                host: endpoint.host.clone(),
                port: i32::from(endpoint.port),
                ..Default::default()
            });
        }
    }
    Ok(Outcome::answer(DescribeClusterResponse {
        endpoint_type: CONTROLLERS,
        cluster_id: state.cluster_id.clone(),
        controller_id: state.node_id,
        brokers,
        ..Default::default()
    }))
}
