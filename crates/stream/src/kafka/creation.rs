//! Creation of the topics that a stream needs.

use std::time::Duration;

use thalweg_client::{Admin, ClientError, Cluster, NewTopic};
use thalweg_wire::ErrorCode;

/// Timeout for creating topics.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The failed creation of topics.
pub struct CreationFailed {
    /// The topic; `None` if the whole request failed.
    pub topic: Option<String>,
    pub error: ClientError,
}

/// The administration of a cluster, with the timeout for creating topics.
pub fn admin(cluster: &Cluster) -> Admin {
    Admin::new(cluster.clone()).with_timeout(TIMEOUT)
}

/// Creates topics; those that another instance created first stay as they are.
pub async fn create_topics(cluster: &Cluster, new: &[NewTopic]) -> Result<(), CreationFailed> {
    let created = admin(cluster).create_topics(new, false).await;
    for (topic, created) in created.map_err(|error| CreationFailed { topic: None, error })? {
        if let Err(error) = created
            && error.error_code() != Some(ErrorCode::TopicAlreadyExists)
        {
            return Err(CreationFailed { topic: Some(topic), error });
        }
    }
    Ok(())
}

/// Waits until a topic is known: other brokers may learn of it later than the broker that created it.
pub async fn wait_for_topic(cluster: &Cluster, topic: &str) -> Result<(), ClientError> {
    cluster.wait_for_topic(topic, false, TIMEOUT).await.map(drop)
}
