//! Operations that the login may do on the cluster, as reported by the cluster.

use thalweg_client::{ClientError, Cluster, RefusedRequest};
use thalweg_wire::request::DescribeClusterRequest;

/// Reads the permitted operations: one bit per operation code.
pub async fn read(cluster: &Cluster) -> Result<i32, ClientError> {
    let request =
        DescribeClusterRequest { include_cluster_authorized_operations: true, ..Default::default() };
    let response = cluster.send_any(&request).await?;
    RefusedRequest::check(response.error_code, response.error_message.as_deref(), || {
        "The cluster".to_owned()
    })?;
    Ok(response.cluster_authorized_operations)
}
