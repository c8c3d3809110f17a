//! The whole cluster at a glance, and what is wrong with it in words.

use std::sync::Arc;

use serde::Serialize;
use thalweg_client::ClientError;
use utoipa::ToSchema;

use super::View;
use super::catalog::{Catalog, Sums};
use super::disks::LogDirectory;
use super::rates::Point;
use crate::format;

/// The share of a disk below which its free space is an alert.
const FREE_MIN: f64 = 0.1;

/// The whole cluster at a glance.
#[derive(Debug, Serialize, ToSchema)]
pub struct Overview {
    /// Its id.
    pub cluster_id: Option<String>,
    /// The active controller; none if it cannot be asked for.
    pub controller: Option<Controller>,
    /// Its brokers, also those that are away but hold replicas.
    pub brokers: Vec<BrokerLine>,
    /// Topics of its users.
    pub topics: usize,
    /// Its internal topics.
    pub internal_topics: usize,
    /// Partitions of all topics.
    pub partitions: usize,
    /// Partitions with fewer replicas in sync than assigned.
    pub under_replicated: usize,
    /// Partitions without a leader.
    pub leaderless: usize,
    /// Bytes of all replicas.
    pub log_bytes: u64,
    /// The log directories of all brokers.
    pub directories: Vec<LogDirectory>,
    /// Brokers whose log directories are not known, and why.
    pub directories_unknown: Vec<String>,
    /// Throughput lately, oldest first; empty until two measurements were made.
    pub history: Vec<Point>,
    /// What is wrong, worst first.
    pub alerts: Vec<Alert>,
}

/// The active controller.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct Controller {
    /// Its node id.
    pub id: i32,
    /// Its epoch.
    pub epoch: i32,
}

/// A broker.
#[derive(Debug, Serialize, ToSchema)]
pub struct BrokerLine {
    /// Its node id.
    pub id: i32,
    /// Its address; none while it is away.
    pub address: Option<String>,
    /// Its rack.
    pub rack: Option<String>,
    /// Partitions that it leads.
    pub leaders: usize,
    /// Replicas that it holds.
    pub replicas: usize,
    /// Those of them that are not in sync.
    pub lagging: usize,
    /// Bytes of its replicas.
    pub log_bytes: u64,
}

/// Something that is wrong.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Alert {
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, and what it means.
    pub text: String,
    /// The page that shows more.
    pub page: Option<&'static str>,
}

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something does not work.
    Critical,
    /// Something may stop working.
    Warning,
}

/// Reads the overview.
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
