//! Makes replicas check batches that a reader fetches repeatedly. Fetch answers are sent without reading
//! their records, so that only readers, which check the CRCs, notice damage there.

use super::Replication;
use std::sync::Arc;
use std::time::Duration;

/// Minimum time between two checks.
const REST: Duration = Duration::from_millis(200);

/// Runs as long as the broker.
pub async fn run(replication: Arc<Replication>) {
    loop {
        for (topic_id, index) in replication.context.stuck_readers.next().await {
            let topic = replication.partitions.topic_by_id(topic_id);
            let Some(partition) = topic.and_then(|topic| topic.partition(index)) else { continue };
            let disk = replication.log_dirs.disk().clone();
            if disk.spawn(move || partition.check_for_stuck_readers()).await.is_err() {
                tracing::error!("Checking batches that a reader does not take panicked");
            }
        }
        tokio::time::sleep(REST).await;
    }
}
