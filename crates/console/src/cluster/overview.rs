//! The cluster at a glance, with alerts in words.

use std::sync::Arc;

use serde::Serialize;
use thalweg_client::ClientError;
use utoipa::ToSchema;

use super::View;
use super::catalog::{Catalog, Sums};
use super::disks::LogDirectory;
use super::rates::Point;
use crate::format;

/// Alert threshold: minimum free share of a disk.
const FREE_MIN: f64 = 0.1;

/// The cluster at a glance.
#[derive(Debug, Serialize, ToSchema)]
pub struct Overview {
    /// The cluster id.
    pub cluster_id: Option<String>,
    /// The active controller; none if the quorum cannot be read.
    pub controller: Option<Controller>,
    /// The brokers, including offline ones that hold replicas.
    pub brokers: Vec<BrokerLine>,
    /// Number of user topics.
    pub topics: usize,
    /// Number of internal topics.
    pub internal_topics: usize,
    /// Number of partitions of all topics.
    pub partitions: usize,
    /// Partitions with fewer replicas in sync than assigned.
    pub under_replicated: usize,
    /// Partitions without a leader.
    pub leaderless: usize,
    /// Total bytes of all replicas.
    pub log_bytes: u64,
    /// The log directories of all brokers.
    pub directories: Vec<LogDirectory>,
    /// Brokers that did not report their log directories, with the reason.
    pub directories_unknown: Vec<String>,
    /// Recent throughput, oldest first; empty before the second measurement.
    pub history: Vec<Point>,
    /// Alerts, most severe first.
    pub alerts: Vec<Alert>,
}

/// The active controller.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct Controller {
    /// The node id.
    pub id: i32,
    /// The controller epoch.
    pub epoch: i32,
}

/// A broker in the overview.
#[derive(Debug, Serialize, ToSchema)]
pub struct BrokerLine {
    /// The node id.
    pub id: i32,
    /// The address; none while the broker is offline.
    pub address: Option<String>,
    /// The rack, if configured.
    pub rack: Option<String>,
    /// Number of partitions that the broker leads.
    pub leaders: usize,
    /// Number of replicas on the broker.
    pub replicas: usize,
    /// Number of replicas out of sync.
    pub lagging: usize,
    /// Total bytes of the replicas.
    pub log_bytes: u64,
}

/// A fault of the cluster that needs attention.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Alert {
    /// Critical for a loss of service, else a warning.
    pub severity: Severity,
    /// The fault and its consequence.
    pub text: String,
    /// Path of the page with details.
    pub page: Option<&'static str>,
}

/// Severity of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something does not work.
    Critical,
    /// Something may stop working.
    Warning,
}

/// Reads all parts of the overview.
pub async fn read(view: &Arc<View>) -> Result<Overview, ClientError> {
    let catalog = view.catalog().await?;
    let disks = view.disks().await?;
    let controller = controller(view).await;
    let measured = view.rates();
    let sums = catalog.sums();
    let directories = disks.directories.clone();
    let log_bytes = directories.iter().map(|directory| directory.log_bytes).sum();
    let brokers = brokers(&catalog, &directories);
    let alerts = alerts(&brokers, &sums, &directories);
    Ok(Overview {
        cluster_id: catalog.cluster_id.clone(),
        controller,
        brokers,
        topics: sums.topics,
        internal_topics: sums.internal_topics,
        partitions: sums.partitions,
        under_replicated: sums.under_replicated,
        leaderless: sums.leaderless,
        log_bytes,
        directories,
        directories_unknown: disks.unknown.clone(),
        history: measured.history.iter().copied().collect(),
        alerts,
    })
}

async fn controller(view: &View) -> Option<Controller> {
    let quorum = view.admin().describe_quorum().await.ok()?;
    Some(Controller { id: quorum.leader_id?, epoch: quorum.leader_epoch })
}

fn brokers(catalog: &Catalog, directories: &[LogDirectory]) -> Vec<BrokerLine> {
    let mut ids: Vec<i32> = catalog.brokers.keys().chain(catalog.held.keys()).copied().collect();
    ids.sort_unstable();
    ids.dedup();
    let lines = ids.into_iter().map(|id| {
        let address = catalog.brokers.get(&id);
        let held = catalog.held.get(&id).copied().unwrap_or_default();
        let own = directories.iter().filter(|directory| directory.broker == id);
        BrokerLine {
            id,
            address: address.map(|address| address.address()),
            rack: address.and_then(|address| address.rack.clone()),
            leaders: held.leaders,
            replicas: held.replicas,
            lagging: held.lagging,
            log_bytes: own.map(|directory| directory.log_bytes).sum(),
        }
    });
    lines.collect()
}

fn alerts(brokers: &[BrokerLine], sums: &Sums, directories: &[LogDirectory]) -> Vec<Alert> {
    let mut alerts = Vec::new();
    let mut alert = |severity, page, text: String| alerts.push(Alert { severity, text, page });
    if sums.leaderless > 0 {
        let text = format!(
            "{} without a leader: producers and consumers of them wait until a replica in sync is back.",
            format::counted(sums.leaderless, "partition")
        );
        alert(Severity::Critical, Some("/topics?state=leaderless&internal=on"), text);
    }
    for broker in brokers.iter().filter(|broker| broker.address.is_none()) {
        let text = format!(
            "Broker {} is not in the cluster, and {} assigned to it.",
            broker.id,
            match broker.replicas {
                1 => "1 replica is".to_owned(),
                replicas => format!("{} replicas are", format::count(replicas)),
            }
        );
        alert(Severity::Critical, Some("/brokers"), text);
    }
    for directory in directories {
        let place = format!("Broker {}, {}", directory.broker, directory.path);
        if let Some(error) = &directory.error {
            let text = format!("{place}: the log directory cannot be used: {error}.");
            alert(Severity::Critical, Some("/brokers"), text);
        }
        if let (Some(total), Some(usable)) = (directory.total_bytes, directory.usable_bytes)
            && total > 0
            && (usable as f64) < total as f64 * FREE_MIN
        {
            let text = format!(
                "{place}: {} free, {} % of the disk. A full disk stops writes.",
                format::bytes(usable),
                usable * 100 / total
            );
            alert(Severity::Warning, Some("/brokers"), text);
        }
    }
    if sums.under_replicated > 0 {
        let text = format!(
            "{} with fewer replicas in sync than assigned: they survive fewer failures.",
            format::counted(sums.under_replicated, "partition")
        );
        alert(Severity::Warning, Some("/topics?state=under-replicated&internal=on"), text);
    }
    alerts.sort_by_key(|alert| alert.severity);
    alerts
}
