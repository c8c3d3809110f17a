//! A running cluster of Apache Pulsar (`--bootstrap pulsar://...`). The lab changes only the topics that it
//! creates there.

use std::collections::BTreeMap;

use thalweg_pulsar::{Client, ClientOptions};

use super::PulsarAdmin;
use crate::target::error::{ConnectError, TargetError};
use crate::target::security::NegotiatedSecurity;
use crate::target::{Cluster, TargetInfo};
use crate::workload::{ClusterSpec, SecurityProtocol};

/// Checks that a running cluster answers at both of its URLs.
pub async fn reach(service_url: &str, admin_url: &str) -> Result<(), ConnectError> {
    let unreachable = |reason: String| ConnectError::Unreachable {
        bootstrap: service_url.to_owned(),
        reasons: format!("{service_url}: {reason}"),
    };
    let options = ClientOptions {
        connect_timeout: crate::target::bootstrap::REACH_TIMEOUT,
        operation_timeout: crate::target::bootstrap::ANSWER_TIMEOUT,
        ..ClientOptions::default()
    };
    Client::connect(service_url, options).await.map_err(|error| unreachable(error.to_string()))?;
    admin(admin_url)?.version().await.map(drop).map_err(|source| ConnectError::PulsarAdmin { source })
}

/// The client of an admin API.
fn admin(url: &str) -> Result<PulsarAdmin, ConnectError> {
    PulsarAdmin::new(url).map_err(|source| ConnectError::PulsarAdminUrl { source })
}

/// Describes the cluster.
pub(in crate::target) async fn find(
    service_url: &str,
    admin_url: &str,
    spec: &ClusterSpec,
) -> Result<Cluster, TargetError> {
    reach(service_url, admin_url).await?;
    let admin = admin(admin_url)?;
    let version = admin.version().await.map_err(|source| ConnectError::PulsarAdmin { source })?;
    let mut facts = BTreeMap::new();
    match admin.persistence().await {
        Some(copies) => {
            facts.insert("ackQuorum".to_owned(), copies.bookkeeper_ack_quorum.to_string());
            facts.insert("writeQuorum".to_owned(), copies.bookkeeper_write_quorum.to_string());
        }
        None => {
            for key in ["managedLedgerDefaultAckQuorum", "managedLedgerDefaultWriteQuorum"] {
                if let Some(value) = admin.setting(key).await {
                    facts.insert(key.to_owned(), value);
                }
            }
        }
    }
    let mut notes = vec![format!("Admin API at {admin_url}")];
    if spec.security.protocol != SecurityProtocol::Plaintext {
        notes.push(format!(
            "The workload asks for {}; Pulsar is measured without",
            spec.security.protocol.name()
        ));
    }
    if !spec.node.is_none() {
        notes.push(format!("Limits of the workload for each node, not applied: {}", spec.node.describe()));
    }
    if !spec.pulsar.is_empty() {
        let list: Vec<String> = spec.pulsar.iter().map(|(key, value)| format!("{key}={value}")).collect();
        notes.push(format!("Broker settings of the workload, not applied: {}", list.join(" ")));
    }
    Ok(Cluster {
        name: service_url.to_owned(),
        bootstrap: vec![service_url.to_owned()],
        pulsar_admin: Some(admin_url.to_owned()),
        client_properties: BTreeMap::new(),
        security: Some(NegotiatedSecurity::plaintext()),
        processes: Vec::new(),
        metrics: BTreeMap::new(),
        data_dir: None,
        info: TargetInfo {
            kind: "bootstrap".to_owned(),
            version: format!("Apache Pulsar {version}"),
            command: Vec::new(),
            notes,
            facts,
        },
    })
}
