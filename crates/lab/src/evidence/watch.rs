//! Observes the in-sync replicas during a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use thalweg_client::{Cluster, Metadata};
use thalweg_wire::request::MetadataRequest;
use thalweg_wire::request::metadata_request::MetadataRequestTopic;

const INTERVAL: Duration = Duration::from_secs(1);
/// No observation yet.
const NONE: u32 = u32::MAX;

/// Observes once a second, until finished or dropped.
#[derive(Debug)]
pub struct Watch {
    seen: Arc<WatchCounters>,
    task: tokio::task::JoinHandle<()>,
}

/// The observations of a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaObservations {
    /// The smallest number of in-sync replicas of any partition; none without observations.
    pub in_sync_replicas_min: Option<u32>,
    /// Number of successful observations.
    pub looks: u32,
    /// Failed observations: the cluster did not answer.
    pub failures: u32,
}

#[derive(Debug)]
struct WatchCounters {
    least: AtomicU32,
    latest: AtomicU32,
    looks: AtomicU32,
    failures: AtomicU32,
}

impl Watch {
    /// Starts observing these topics. Must be called on a runtime.
    pub fn start(cluster: Cluster, topics: Vec<String>) -> Watch {
        let seen = Arc::new(WatchCounters {
            least: AtomicU32::new(NONE),
            latest: AtomicU32::new(NONE),
            looks: AtomicU32::new(0),
            failures: AtomicU32::new(0),
        });
        let task = tokio::spawn(look(cluster, topics, Arc::clone(&seen)));
        Watch { seen, task }
    }

    /// The smallest number of in-sync replicas at the last observation; none if that failed.
    pub fn latest(&self) -> Option<u32> {
        some(self.seen.latest.load(Ordering::Relaxed))
    }

    /// Ends the watch, and returns its observations.
    pub async fn finish(self) -> ReplicaObservations {
        self.task.abort();
        ReplicaObservations {
            in_sync_replicas_min: some(self.seen.least.load(Ordering::Relaxed)),
            looks: self.seen.looks.load(Ordering::Relaxed),
            failures: self.seen.failures.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn some(replicas: u32) -> Option<u32> {
    (replicas != NONE).then_some(replicas)
}

async fn look(cluster: Cluster, topics: Vec<String>, seen: Arc<WatchCounters>) {
    let mut tick = tokio::time::interval(INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let latest = match tokio::time::timeout(5 * INTERVAL, in_sync_min(&cluster, &topics)).await {
            Ok(Some(least)) => {
                seen.looks.fetch_add(1, Ordering::Relaxed);
                seen.least.fetch_min(least, Ordering::Relaxed);
                least
            }
            Ok(None) | Err(_) => {
                seen.failures.fetch_add(1, Ordering::Relaxed);
                NONE
            }
        };
        seen.latest.store(latest, Ordering::Relaxed);
    }
}

/// The answer is not stored in the cluster's shared metadata.
async fn in_sync_min(cluster: &Cluster, topics: &[String]) -> Option<u32> {
    let topics = topics
        .iter()
        .map(|name| MetadataRequestTopic { name: Some(name.clone()), ..MetadataRequestTopic::default() });
    let request = MetadataRequest { topics: Some(topics.collect()), ..MetadataRequest::default() };
    least(&Metadata::from_response(cluster.send_any(&request).await.ok()?))
}

fn least(metadata: &Metadata) -> Option<u32> {
    let partitions = metadata.topics.values().flat_map(|topic| &topic.partitions);
    partitions.map(|partition| u32::try_from(partition.isr.len()).unwrap_or(NONE)).min()
}
