//! Connects a broker to its controller: starts the embedded one, or finds the configured quorum.
//!
//! Data directories without a cluster id take the id of the quorum's cluster. The error for a different id
//! names both clusters.

use crate::broker::Broker;
use crate::controller_node::ControllerNode;
use crate::embedded_controller::EmbeddedController;
use crate::loading::Loading;
use crate::opening::{StartError, bind_all, open_logs};
use crate::trails::Trails;
use std::sync::Arc;
use std::time::Duration;
use thalweg_config::{BrokerConfig, SaslKeys};
use thalweg_dial::{Connector, host_and_port};
use thalweg_log::LogDirs;
use thalweg_membership::{ControllerLink, JoinError, OutgoingSecurity, QuorumOptions};
use thalweg_net::ConnectionSettings;
use thalweg_net::Machine;
use tokio::time::Instant;

/// Delay before the cluster id is requested again.
const RETRY: Duration = Duration::from_millis(200);

/// The link to the controller, and the log directories of the same cluster.
pub(crate) struct JoinedCluster {
    pub controller: Option<ControllerNode>,
    pub link: ControllerLink,
    pub log_dirs: Arc<LogDirs>,
    pub found: Vec<thalweg_log::PartitionLog>,
    pub trails: Trails,
}

/// Starts the embedded controller, or finds the quorum. Directories without a cluster id take the quorum's.
pub(crate) async fn find_controller(
    machine: &Machine,
    config: &Arc<BrokerConfig>,
    loading: &Loading,
    connections: &ConnectionSettings,
) -> Result<JoinedCluster, StartError> {
    if config.node.roles.controller {
        let (listening, secured) = bind_all(machine, &config.listeners.controller, None, config)?;
        let (log_dirs, found) = open_logs(machine, config, None, loading)?;
        let may_format = found.is_empty();
        let trails = Trails::open(machine, config, log_dirs.cluster_id())?;
        let node = ControllerNode::start(
            machine,
            config,
            &log_dirs,
            may_format,
            (listening, secured),
            connections,
            &trails,
        )
        .await?;
        let link = ControllerLink::in_process(Arc::new(EmbeddedController(Arc::clone(node.controller()))));
        return Ok(JoinedCluster { controller: Some(node), link, log_dirs, found, trails });
    }
    let options = quorum_options(config, machine.network.connector())?;
    let servers = options.servers.join(",");
    let link = ControllerLink::to_quorum(options);
    let cluster_id = match LogDirs::recorded_cluster_id(&machine.disk, config.log.data_dirs()) {
        Some(_) => None,
        None => Some(cluster_id_of(&link, servers, config.controller.initial_registration_timeout).await?),
    };
    let (log_dirs, found) = open_logs(machine, config, cluster_id, loading)?;
    let trails = Trails::open(machine, config, log_dirs.cluster_id())?;
    Ok(JoinedCluster { controller: None, link, log_dirs, found, trails })
}

/// Requests the id of the quorum's cluster until one of its nodes answers.
async fn cluster_id_of(
    link: &ControllerLink,
    servers: String,
    patience: Duration,
) -> Result<String, StartError> {
    let started = Instant::now();
    let mut logged = false;
    loop {
        let last = match link.cluster_id().await {
            Ok(cluster_id) => {
                tracing::info!(cluster_id, "Empty data directories join the controllers' cluster");
                return Ok(cluster_id);
            }
            Err(error) => error,
        };
        if !logged {
            tracing::info!(servers, %last, "No controller has returned the cluster id, retrying");
            logged = true;
        }
        let after = started.elapsed();
        if after >= patience {
            return Err(StartError::NoClusterId { servers, after, last });
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// The reason why the cluster rejects the broker, with both cluster names if they differ.
pub(crate) async fn refusal(broker: &Broker, error: JoinError) -> StartError {
    if error.is_of_other_cluster()
        && let Ok(theirs) = broker.registered.controller.cluster_id().await
        && theirs != broker.cluster_id
    {
        let servers = quorum_servers(&broker.config()).join(",");
        return StartError::OtherCluster { ours: broker.cluster_id.clone(), servers, theirs };
    }
    error.into()
}

fn voters(config: &BrokerConfig) -> impl Iterator<Item = (i32, String)> {
    let voters = config.controller.voters.iter();
    voters.map(|voter| (voter.id, host_and_port(&voter.host, voter.port)))
}

/// The addresses of the controllers.
fn quorum_servers(config: &BrokerConfig) -> Vec<String> {
    let servers = config.controller.bootstrap_servers.iter();
    let servers: Vec<String> = servers.map(|(host, port)| host_and_port(host, *port)).collect();
    match servers.is_empty() {
        true => voters(config).map(|(_, address)| address).collect(),
        false => servers,
    }
}

fn quorum_options(config: &BrokerConfig, connector: &Connector) -> Result<QuorumOptions, StartError> {
    let settings = &config.controller;
    let security = OutgoingSecurity::new(config.towards_controllers()).map_err(|mut source| {
        if source.key == "sasl.mechanism" {
            source.key = SaslKeys::mechanism_controller.name().to_owned();
        }
        StartError::Security(source)
    })?;
    Ok(QuorumOptions {
        servers: quorum_servers(config),
        listener: config.listeners.controller_names.first().cloned().unwrap_or_default(),
        voters: voters(config).collect(),
        quorum_timeout: settings.request_timeout,
        session_timeout: settings.session_timeout,
        request_timeout: config.network.request_timeout,
        client_id: format!("thalweg-broker-{}", config.node.id),
        connector: connector.clone(),
        security,
    })
}
