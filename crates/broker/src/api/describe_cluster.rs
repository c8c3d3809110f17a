//! DescribeCluster (key 60), versions 0 to 2: the cluster's id and brokers, without any permission. The
//! authorized operations need DESCRIBE on the cluster.

use super::Call;
use super::entry::{Api, Open, now};
use super::metadata::OPERATIONS_OMITTED;
use crate::broker::some_broker;
use thalweg_metadata::{BrokerId, Image};
use thalweg_wire::request::describe_cluster_response::DescribeClusterBroker;
use thalweg_wire::request::{DescribeClusterRequest, DescribeClusterResponse};
use thalweg_wire::{ApiKey, ErrorCode};

pub(super) const API: Api = Api::new(ApiKey::DescribeCluster, 0..=2, Open, |b, c, d| {
    now(b, c, d, |b, c, r| handle(&b.cluster_id, b.node_id, &b.image(), c, r))
});

/// The first version with an endpoint type (KIP-919).
const ENDPOINT_TYPE_FROM: i16 = 1;
/// A request for brokers, not for controllers.
const BROKERS: i8 = 1;
/// A request for controllers, which only controllers answer.
const CONTROLLERS: i8 = 2;

/// Answers from the image.
pub fn handle(
    cluster_id: &str,
    node_id: BrokerId,
    image: &Image,
    call: &Call,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse {
    if call.version >= ENDPOINT_TYPE_FROM && request.endpoint_type != BROKERS {
        let (error, message) = match request.endpoint_type {
            CONTROLLERS => (
                ErrorCode::MismatchedEndpointType,
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
                    .to_owned(),
            ),
            other => (ErrorCode::UnsupportedEndpointType, format!("Unsupported endpoint type {other}")),
        };
        return DescribeClusterResponse {
            error_code: error.code(),
            error_message: Some(message),
            endpoint_type: BROKERS,
            ..Default::default()
        };
    }
    let with_fenced = request.include_fenced_brokers;
    let brokers = image.cluster().brokers.values().filter(|broker| with_fenced || !broker.fenced);
    DescribeClusterResponse {
        endpoint_type: BROKERS,
        cluster_id: cluster_id.to_owned(),
        controller_id: some_broker(node_id, image),
        brokers: brokers
            .filter_map(|broker| {
                let endpoint = broker.endpoint(&call.peer.listener)?;
                Some(DescribeClusterBroker {
                    broker_id: broker.id.0,
                    host: endpoint.host.clone(),
                    port: i32::from(endpoint.port),
                    rack: broker.rack.clone(),
                    is_fenced: broker.fenced,
                })
            })
            .collect(),
        cluster_authorized_operations: if request.include_cluster_authorized_operations {
            call.permissions.operations_on_cluster()
        } else {
            OPERATIONS_OMITTED
        },
        ..Default::default()
    }
}
