//! All external resources of a run; the only owner of the clean-up.
//!
//! | resource | created in | removed |
//! |---|---|---|
//! | clusters, with processes and directories | `ClusterUp` | when the plan needs another, and at tear-down |
//! | topics of a repetition | `Prepare` | in `CleanUp`; after an interrupt or panic, immediately |
//! | held memory | `Prepare`, `CleanUp` | with the resources |
//!
//! Workers belong to their step: a step that ends or is dropped kills remaining workers. If the resources are
//! dropped without a tear-down, as after a panic, the drop kills the brokers and removes their directories.
//! If the whole process is killed, the guard of each cluster does so.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::admin::Admin;
use super::clusters::Clusters;
use super::error::Failure;
use super::memory::Memory;
use super::topics;
use crate::target::{self, Cluster, StartOptions};
use crate::workload::{Measure, Point};

/// Timeout for deleting topics after a failure, when the cluster may be gone.
const DELETE_TIMEOUT: Duration = Duration::from_secs(20);

/// The resources of a run.
#[derive(Debug)]
pub(super) struct Resources {
    pub(super) clusters: Clusters,
    pub(super) memory: Memory,
    /// Topics of the current repetition.
    topics: Option<OwnTopics>,
}

/// Topics to delete.
#[derive(Debug)]
struct OwnTopics {
    names: Vec<String>,
    /// The index of the target.
    target: usize,
    cluster: Cluster,
    admin: Admin,
    measure: Measure,
    /// True if temporary topics exist beside them.
    others_pass: bool,
}

impl Resources {
    /// No resources yet.
    pub(super) fn new(targets: usize, options: StartOptions) -> Resources {
        Resources { clusters: Clusters::new(targets, options), memory: Memory::default(), topics: None }
    }

    /// Connects to the cluster of a target for a repetition that is about to create topics. From now on these
    /// topics will be removed, whether or not all were created.
    pub(super) async fn own_topics(
        &mut self,
        target: usize,
        cluster: &Cluster,
        names: &[String],
        point: &Point,
    ) -> Result<Admin, Failure> {
        let admin = Admin::connect(cluster).await?;
        let (names, cluster) = (names.to_vec(), cluster.clone());
        let (measure, others_pass) = (point.measure, point.topics.created_per_s > 0);
        self.topics = Some(OwnTopics { names, target, cluster, admin: admin.clone(), measure, others_pass });
        Ok(admin)
    }

    /// Removes the topics of a repetition, and takes the memory that their files free. Must follow each
    /// repetition, completed or failed; does nothing without topics.
    ///
    /// Cancel safe: [`Resources::abandon`] removes the rest.
    pub(super) async fn end_repetition(&mut self, written_bytes: u64) -> Result<(), Failure> {
        let Some(made) = &self.topics else { return Ok(()) };
        let cluster = self.clusters.get(made.target);
        if let Some(reason) = cluster.and_then(target::RunningCluster::died) {
            // The cluster has died: topics and files disappear with it.
            self.topics = None;
            return Err(Failure::BrokerDied(reason));
        }
        tracing::debug!("Deleting topics");
        let is_gone = Arc::new(AtomicBool::new(false));
        let deleting = async {
            let deleted = made.delete(&made.admin).await;
            tracing::debug!("The topics' files are deleted");
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

    /// Removes the topics of an abandoned repetition. Topics on a cluster of the lab disappear with it; those
    /// on other clusters are deleted in any case.
    pub(super) async fn abandon(&mut self) -> Result<(), Failure> {
        let Some(made) = self.topics.take() else { return Ok(()) };
        if made.cluster.data_dir.is_some() {
            return Ok(());
        }
        // The repetition's connection may be in any state.
        let admin = Admin::connect(&made.cluster).await?;
        made.delete(&admin).await
    }

    /// Stops all clusters. Oddities are reported to `say`, unless the run was interrupted.
    pub(super) fn tear_down(&mut self, interrupted: bool, say: &(dyn Fn(&str) + Sync)) {
        let quiet = |_: &str| {};
        self.clusters.stop_all(if interrupted { &quiet } else { say });
    }
}

impl OwnTopics {
    /// Deletes the topics, and waits until their files are deleted.
    async fn delete(&self, admin: &Admin) -> Result<(), Failure> {
        let deleting = async {
            admin.delete(&self.names).await?;
            match admin.kafka().filter(|_| self.others_pass) {
                Some(admin) => topics::delete_passing(admin, &self.names).await,
                None => Ok(()),
            }
        };
        match tokio::time::timeout(DELETE_TIMEOUT, deleting).await {
            Ok(deleted) => deleted?,
            Err(_) => tracing::warn!(topic = self.names.first(), "Failed to delete the run's topics in time"),
        }
        match self.files_below() {
            Some(dir) => topics::await_files_gone(dir, &self.names).await,
            None => Ok(()),
        }
    }

    /// The data directory of brokers on this machine whose files go with their topics. Bookies of Pulsar keep
    /// the files until these have no other topic's entries.
    fn files_below(&self) -> Option<&Path> {
        self.cluster.data_dir.as_deref().filter(|_| self.admin.kafka().is_some())
    }

    /// The data directory of brokers on this machine, if this repetition has written there.
    fn written_below(&self) -> Option<PathBuf> {
        self.files_below().map(Path::to_owned).filter(|_| self.measure != Measure::Consume)
    }
}
