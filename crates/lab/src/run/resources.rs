//! What a run makes outside of itself, and removes: the one owner of its clean-up.
//!
//! | what | made in | removed |
//! |---|---|---|
//! | clusters, with their processes and directories | `ClusterUp` | when the plan needs another, and at the tear-down |
//! | topics of a repetition | `Prepare` | in `CleanUp`, whatever came of the repetition; after an interrupt or a panic at once |
//! | memory that is held | `Prepare`, `CleanUp` | with this |
//!
//! Workers belong to the step that they run in: a step that ends, or is dropped, kills those that are left. Dropped without
//! a tear-down, as by a panic, this kills the brokers and removes their directories. When the whole process is killed,
//! each cluster's guard does.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::clusters::Clusters;
use super::error::Failure;
use super::memory::Memory;
use super::topics;
use crate::target::{self, Cluster, StartOptions};
use crate::workload::Measure;

/// Time to delete topics after a failure, when the cluster may be gone.
const DELETE_TIMEOUT: Duration = Duration::from_secs(20);

/// What a run has made.
#[derive(Debug)]
pub(super) struct Resources {
    pub(super) clusters: Clusters,
    pub(super) memory: Memory,
    /// Of the repetition under way.
    topics: Option<Made>,
}

/// Topics that are to be deleted.
#[derive(Debug)]
struct Made {
    names: Vec<String>,
    /// The place of the target.
    target: usize,
    cluster: Cluster,
    admin: thalweg_client::Cluster,
    measure: Measure,
}

impl Resources {
    /// Nothing is made yet.
    pub(super) fn new(targets: usize, options: StartOptions) -> Resources {
        Resources { clusters: Clusters::new(targets, options), memory: Memory::default(), topics: None }
    }

    /// Connects to the cluster of a target for a repetition that is about to create topics. From here on they are
    /// removed, whether or not they all come to be.
    pub(super) async fn own_topics(
        &mut self,
        target: usize,
        cluster: &Cluster,
        names: &[String],
        measure: Measure,
    ) -> Result<thalweg_client::Cluster, Failure> {
        let admin = target::connect(&cluster.bootstrap, &cluster.client_properties).await?;
        let (names, cluster) = (names.to_vec(), cluster.clone());
        self.topics = Some(Made { names, target, cluster, admin: admin.clone(), measure });
        Ok(admin)
    }

    /// Removes what a repetition has made, and takes the memory that its files give back. Must follow each repetition,
    /// taken or failed; without topics it does nothing.
    ///
    /// Safe to cancel: what is left is left to [`Resources::abandon`].
    pub(super) async fn end_repetition(&mut self, written_bytes: u64) -> Result<(), Failure> {
        let Some(made) = &self.topics else { return Ok(()) };
        let cluster = self.clusters.get(made.target);
        if let Some(reason) = cluster.and_then(target::RunningCluster::died) {
            // There is nobody to ask: topics and files go with the cluster.
            self.topics = None;
            return Err(Failure::BrokerDied(reason));
        }
        tracing::debug!("Deleting topics");
        let is_gone = Arc::new(AtomicBool::new(false));
        let deleting = async {
            let deleted = made.delete(&made.admin).await;
            tracing::debug!("The topics' files are gone");
            is_gone.store(true, Ordering::Release);
            deleted
        };
        let deleted = match &made.written_below() {
            Some(dir) => tokio::join!(deleting, self.memory.take_freed(dir, written_bytes, &is_gone)).0,
            None => deleting.await,
        };
        self.topics = None;
        deleted
    }

    /// Removes what a repetition has made that was left in the middle. Topics of a cluster of the lab go with it; those on
    /// a cluster of others are deleted whatever happens.
    pub(super) async fn abandon(&mut self) -> Result<(), Failure> {
        let Some(made) = self.topics.take() else { return Ok(()) };
        if made.cluster.data_dir.is_some() {
            return Ok(());
        }
        // The connection of the repetition may have been left in the middle of anything.
        let admin = target::connect(&made.cluster.bootstrap, &made.cluster.client_properties).await?;
        made.delete(&admin).await
    }

    /// Ends all clusters. What is odd about one goes to `say`, unless the run was interrupted: nobody waits for it then.
    pub(super) fn tear_down(&mut self, interrupted: bool, say: &(dyn Fn(&str) + Sync)) {
        let quiet = |_: &str| {};
        self.clusters.stop_all(if interrupted { &quiet } else { say });
    }
}

impl Made {
    /// Deletes the topics, and waits until their files are gone.
    async fn delete(&self, admin: &thalweg_client::Cluster) -> Result<(), Failure> {
        match tokio::time::timeout(DELETE_TIMEOUT, topics::delete(admin, &self.names)).await {
            Ok(deleted) => deleted?,
            Err(_) => tracing::warn!(topic = self.names.first(), "The run's topics were not deleted in time"),
        }
        match &self.cluster.data_dir {
            Some(dir) => topics::await_files_gone(dir, &self.names).await,
            None => Ok(()),
        }
    }

    /// Where brokers on this machine wrote the records that were measured.
    fn written_below(&self) -> Option<PathBuf> {
        self.cluster.data_dir.clone().filter(|_| self.measure != Measure::Consume)
    }
}
