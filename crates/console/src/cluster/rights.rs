//! Operations that the login may do on the cluster, as reported by the cluster.

use thalweg_client::{ClientError, Cluster, RefusedRequest, RequestTimedOut};
use thalweg_wire::ApiKey;
use thalweg_wire::request::DescribeClusterRequest;

use super::BROKER_WAIT;

/// Reads the permitted operations: one bit per operation code.
pub async fn read(cluster: &Cluster) -> Result<i32, ClientError> {
    let request =
        DescribeClusterRequest { include_cluster_authorized_operations: true, ..Default::default() };
    let Ok(response) = tokio::time::timeout(BROKER_WAIT, cluster.send_any(&request)).await else {
        let (peer, api) = ("the cluster".into(), ApiKey::DescribeCluster);
        return Err(RequestTimedOut { peer, api, timeout: BROKER_WAIT }.into());
    };
    let response = response?;
    RefusedRequest::check(response.error_code, response.error_message.as_deref(), || {
        "The cluster".to_owned()
    })?;
    Ok(response.cluster_authorized_operations)
}
