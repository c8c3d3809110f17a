//! Has leaders check batches that a follower fetches again and again. Answers to fetches are sent without a look at their
//! records, so that only followers, which check the CRCs, notice damage there.

use super::Replication;
use std::sync::Arc;
use std::time::Duration;

/// The shortest time between two looks.
const REST: Duration = Duration::from_millis(200);

/// Runs as long as the broker.
pub async fn run(replication: Arc<Replication>) {
    loop {
        for (topic_id, index) in replication.context.stuck_followers.next().await {
            let topic = replication.partitions.topic_by_id(topic_id);
            let Some(partition) = topic.and_then(|topic| topic.partition(index)) else { continue };
            let disk = replication.log_dirs.disk().clone();
            if disk.spawn(move || partition.check_for_stuck_follower()).await.is_err() {
                tracing::error!("Checking batches that a follower does not take panicked");
            }
        }
        tokio::time::sleep(REST).await;
    }
}
