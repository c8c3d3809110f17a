//! The partitions of a topic.

use std::time::Duration;

use thalweg_client::{ClientError, Cluster};
use thalweg_wire::ErrorCode;
use tokio::time::{Instant, sleep};

use super::{failed, with_grant};
use crate::stage::StageError;

/// Timeout for listing topics.
const METADATA_TIMEOUT: Duration = Duration::from_secs(15);
/// Pause before a retry.
const ASKED_AGAIN: Duration = Duration::from_millis(200);

/// The numbers of a topic's partitions. An unreachable cluster is tried for some seconds.
pub async fn partitions_of(cluster: &Cluster, topic: &str) -> Result<Vec<i32>, StageError> {
    let denied = |reason: String| {
        let right = format!("--topic {topic} --allow read");
        failed(format!("Topic {topic}"), with_grant(reason, cluster, &right))
    };
    let until = Instant::now() + METADATA_TIMEOUT;
    loop {
        let reason = match cluster.refresh(&[topic.to_owned()], false).await {
            Ok(metadata) => {
                let known = metadata.topics.get(topic);
                match known.map_or(Some(ErrorCode::UnknownTopicOrPartition), |known| known.error) {
                    None => {
                        let partitions = known.map(|known| &*known.partitions).unwrap_or_default();
                        return Ok(partitions.iter().map(|partition| partition.index).collect());
                    }
                    Some(ErrorCode::UnknownTopicOrPartition) => {
                        return Err(failed(format!("Topic {topic}"), "there is no such topic"));
                    }
                    Some(code) if code.is_retriable() => code.to_string(),
                    Some(code) => return Err(denied(code.to_string())),
                }
            }
            Err(error) if !error.is_retriable() => return Err(denied(error.to_string())),
            Err(error) => unreachable_broker(&error),
        };
        if Instant::now() >= until {
            return Err(failed(format!("Topic {topic}"), reason));
        }
        sleep(ASKED_AGAIN).await;
    }
}

fn unreachable_broker(error: &ClientError) -> String {
    format!("no broker answers ({error})")
}
