//! What the login may do on the cluster as a whole, as the cluster itself says.

use thalweg_client::{ClientError, Cluster, Refused};
use thalweg_wire::request::DescribeClusterRequest;

/// The operations: a bit for each, by its code in the protocol.
pub async fn read(cluster: &Cluster) -> Result<i32, ClientError> {
    let request =
        DescribeClusterRequest { include_cluster_authorized_operations: true, ..Default::default() };
    let response = cluster.send_any(&request).await?;
    Refused::check(response.error_code, response.error_message.as_deref(), || "The cluster".to_owned())?;
    Ok(response.cluster_authorized_operations)
}
