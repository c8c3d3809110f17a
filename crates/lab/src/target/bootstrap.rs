//! The target `--bootstrap`: a running cluster. The lab changes only the topics that it creates.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use thalweg_client::{ConnectionOptions, Properties};
use thalweg_wire::request::DescribeClusterRequest;

use super::error::{ConnectError, TargetError, TooFewBrokers};
use super::security::NegotiatedSecurity;
use super::{Cluster, TargetInfo, TargetSpec, unused_jvm_options};
use crate::workload::ClusterSpec;

/// Connects to a cluster with the client properties of its target. Properties of producers and consumers only
/// are ignored.
pub async fn connect(
    servers: &[String],
    properties: &BTreeMap<String, String>,
) -> Result<thalweg_client::Cluster, ConnectError> {
    let options = connection_options(servers, properties)?;
    let failed = |source| ConnectError::Client { bootstrap: servers.join(","), source };
    thalweg_client::Cluster::connect(servers, &options).await.map_err(failed)
}

/// Maximum time for a server to accept a connection before a run.
pub(super) const REACH_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum time for a connected server to answer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Checks that a running cluster exists: within a second one of its servers accepts connections, and then one
/// answers as a broker with the target's properties. Clusters that the lab starts need no check.
pub async fn reach(target: &TargetSpec) -> Result<(), ConnectError> {
    let (servers, properties) = match target {
        TargetSpec::Bootstrap { servers, properties } => (servers, properties),
        TargetSpec::PulsarCluster { service_url, admin_url } => {
            return super::pulsar::reach(service_url, admin_url).await;
        }
        TargetSpec::Embedded | TargetSpec::ApacheKafka | TargetSpec::Pulsar => return Ok(()),
    };
    accepts(servers).await?;
    let options = ConnectionOptions {
        connect_timeout: ANSWER_TIMEOUT,
        request_timeout: ANSWER_TIMEOUT,
        ..connection_options(servers, properties)?
    };
    let failed = |source| ConnectError::Client { bootstrap: servers.join(","), source };
    thalweg_client::Cluster::connect(servers, &options).await.map(drop).map_err(failed)
}

/// Checks that any server accepts connections.
async fn accepts(servers: &[String]) -> Result<(), ConnectError> {
    let mut tries = tokio::task::JoinSet::new();
    for (place, server) in servers.iter().cloned().enumerate() {
        tries.spawn(async move {
            let tried = tokio::time::timeout(REACH_TIMEOUT, tokio::net::TcpStream::connect(&server)).await;
            match tried {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err((place, format!("{server}: {error}"))),
                Err(_) => Err((place, format!("{server}: no answer within {} s", REACH_TIMEOUT.as_secs()))),
            }
        });
    }
    let mut reasons = Vec::new();
    while let Some(tried) = tries.join_next().await {
        match tried.expect("connecting does not panic") {
            Ok(()) => return Ok(()),
            Err(reason) => reasons.push(reason),
        }
    }
    reasons.sort();
    let reasons: Vec<String> = reasons.into_iter().map(|(_, reason)| reason).collect();
    Err(ConnectError::Unreachable { bootstrap: servers.join(","), reasons: reasons.join("; ") })
}

/// The options of connections to a cluster whose target has these client properties.
pub(super) fn connection_options(
    servers: &[String],
    properties: &BTreeMap<String, String>,
) -> Result<ConnectionOptions, ConnectError> {
    let mut taken = Properties::new();
    for (key, value) in properties {
        taken.set(key, value);
    }
    taken.set_default("client.id", "thalweg-lab");
    let invalid = |source| ConnectError::Setting { bootstrap: servers.join(","), source };
    ConnectionOptions::take(&mut taken, "lab").map_err(invalid)
}

/// Describes the cluster, and checks that it suffices for a point.
pub(super) async fn find(
    servers: &[String],
    properties: &BTreeMap<String, String>,
    spec: &ClusterSpec,
) -> Result<Cluster, TargetError> {
    let client = connect(servers, properties).await?;
    let metadata = client.metadata();
    let found = metadata.brokers.len();
    if found < spec.brokers as usize {
        let bootstrap = servers.join(",");
        return Err(TooFewBrokers { bootstrap, requested: spec.brokers, found }.into());
    }
    let failed = |source| ConnectError::Client { bootstrap: servers.join(","), source };
    let connection = client.any().await.map_err(failed)?;
    let metadata_version = connection.versions().feature("metadata.version");
    let described = client.send_any(&DescribeClusterRequest::default()).await;
    let releases = releases(&client, metadata.brokers.keys().copied()).await;

    let addresses: Vec<String> = metadata
        .brokers
        .iter()
        .map(|(id, broker)| {
            let rack = broker.rack.as_ref().map(|rack| format!(" in rack {rack}")).unwrap_or_default();
            format!("{id} at {}{rack}", broker.address())
        })
        .collect();
    let mut notes = vec![format!("Brokers: {}", addresses.join(", "))];
    if let Ok(described) = described {
        notes.push(format!("Cluster id {}", described.cluster_id));
    }
    if found > spec.brokers as usize {
        notes.push(format!("The point needs {} brokers, the cluster has {found}", spec.brokers));
    }
    let security = NegotiatedSecurity::of(&client.options().security);
    let requested = spec.security.protocol.name();
    if requested != security.protocol {
        notes.push(format!(
            "The workload asks for {requested}; the client settings for this cluster say {}",
            security.protocol
        ));
    }
    if !spec.node.is_none() {
        notes.push(format!("Limits of the workload for each node, not applied: {}", spec.node.describe()));
    }
    notes.extend(unused_jvm_options(spec));
    if !spec.racks.is_empty() {
        notes.push(format!("Racks of the workload, not applied: {}", spec.racks.join(", ")));
    }
    if !spec.properties.is_empty() {
        let list: Vec<String> = spec.properties.iter().map(|(key, value)| format!("{key}={value}")).collect();
        notes.push(format!("Broker settings of the workload, not applied: {}", list.join(" ")));
    }
    Ok(Cluster {
        name: servers.first().cloned().unwrap_or_default(),
        bootstrap: servers.to_vec(),
        pulsar_admin: None,
        client_properties: properties.clone(),
        security: Some(security),
        processes: Vec::new(),
        metrics: BTreeMap::new(),
        data_dir: None,
        info: TargetInfo {
            kind: "bootstrap".to_owned(),
            version: version(&releases, metadata_version),
            command: Vec::new(),
            notes,
            facts: facts(&releases),
        },
    })
}

/// The release of Apache Kafka that each broker corresponds to, by what the broker says of its features.
/// Brokers that say nothing, or cannot be reached, have none.
async fn releases(
    client: &thalweg_client::Cluster,
    brokers: impl Iterator<Item = i32>,
) -> BTreeMap<i32, Option<&'static str>> {
    let mut releases = BTreeMap::new();
    for id in brokers {
        let connection = client.broker(id).await;
        releases.insert(id, connection.ok().and_then(|connection| connection.versions().release()));
    }
    releases
}

/// The version of a cluster: the releases of its brokers, and the finalized `metadata.version`.
fn version(releases: &BTreeMap<i32, Option<&'static str>>, metadata_version: Option<i16>) -> String {
    let known: BTreeSet<&str> = releases.values().flatten().copied().collect();
    let known: Vec<&str> = known.into_iter().collect();
    let release = match known.is_empty() {
        true => "Kafka's protocol".to_owned(),
        false => format!("Apache Kafka {}, or compatible", known.join(" and ")),
    };
    match metadata_version {
        Some(level) => format!("{release}, metadata.version {level}"),
        None => release,
    }
}

/// The release of each broker, for the facts of a result.
fn facts(releases: &BTreeMap<i32, Option<&'static str>>) -> BTreeMap<String, String> {
    let fact = |(id, release): (&i32, &Option<&str>)| {
        let release = release.map_or_else(|| "unknown".to_owned(), |of| format!("{of}, or compatible"));
        (format!("broker {id}"), release)
    };
    releases.iter().map(fact).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_are_named_by_their_releases_where_known() {
        let mixed = BTreeMap::from([(1, Some("4.2")), (2, Some("4.3")), (3, None), (4, Some("4.3"))]);
        assert_eq!(version(&mixed, Some(28)), "Apache Kafka 4.2 and 4.3, or compatible, metadata.version 28");
        assert_eq!(facts(&mixed)["broker 1"], "4.2, or compatible");
        assert_eq!(facts(&mixed)["broker 3"], "unknown");
        assert_eq!(version(&BTreeMap::from([(1, None)]), None), "Kafka's protocol");
    }
}
