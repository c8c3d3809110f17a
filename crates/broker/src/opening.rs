//! Start-up steps that brokers and controllers share: sockets, log directories and connection limits; and the
//! errors of a failed start.

use crate::connection_limits;
use crate::loading::Loading;
use crate::secured::{SecuredListeners, TlsRefused};
use std::sync::Arc;
use std::time::Duration;
use thalweg_audit::FileError;
use thalweg_config::{BrokerConfig, Listener};
use thalweg_dial::InvalidSetting;
use thalweg_log::{CleanupPolicy, LogConfig, LogDirs, LogDirsOptions, TopicPartition};
use thalweg_membership::{JoinError, LinkError};
use thalweg_net::{BindError, BoundListener, ConnectionSettings, Machine, SocketOptions};

/// Time for connections to finish started requests when the broker stops. By then the broker leads no
/// partitions, and later requests are refused.
pub(crate) const DRAIN: Duration = Duration::from_secs(2);

/// A failed start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listener's address is not available.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The data directories cannot be used.
    #[error(transparent)]
    LogDirs(#[from] thalweg_log::OpenError),
    /// The embedded controller cannot be started.
    #[error(transparent)]
    Controller(#[from] thalweg_controller::ControllerStartError),
    /// The configured security does not allow connections to the controllers.
    #[error("Connections to controllers: {0}")]
    Security(InvalidSetting),
    /// A host in the connection limits is unknown.
    #[error(transparent)]
    ConnectionLimits(InvalidSetting),
    /// The TLS of a listener cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsRefused),
    /// The audit trail cannot be written.
    #[error(transparent)]
    Audit(#[from] FileError),
    /// The cluster rejects the broker.
    #[error(transparent)]
    Membership(#[from] JoinError),
    /// No controller returned its cluster id, which empty data directories need.
    #[error("the controllers at {servers} did not return a cluster id within {} ms: {last}", after.as_millis())]
    NoClusterId {
        /// Addresses of the controllers.
        servers: String,
        /// Duration of the attempts.
        after: Duration,
        /// Error of the last attempt.
        last: LinkError,
    },
    /// The data directories belong to another cluster than the controllers.
    #[error(
        "the data directories belong to cluster {ours}, and the controllers at {servers} to cluster {theirs}: name the \
             controllers of {ours} in controller.quorum.bootstrap.servers, or use other directories (log.dirs)"
    )]
    OtherCluster {
        /// Cluster id of the data directories.
        ours: String,
        /// Addresses of the controllers.
        servers: String,
        /// Cluster id of the controllers.
        theirs: String,
    },
    /// The embedded controller has ended before the broker had joined.
    #[error(
        "the embedded controller has ended, because its metadata log cannot be written; its errors are in the log"
    )]
    ControllerEnded,
    /// The configuration needs a feature that this version lacks.
    #[error("{0}")]
    Unsupported(String),
}

/// Opens the sockets of listeners, after resolving the hosts in their limits and reading their TLS and the
/// HTTP listener's. The socket of the HTTP listener is opened elsewhere.
pub(crate) fn bind_all(
    machine: &Machine,
    listeners: &[Listener],
    http: Option<&Listener>,
    config: &BrokerConfig,
) -> Result<(Vec<BoundListener>, Arc<SecuredListeners>), StartError> {
    connection_limits::check_hosts(&config.network).map_err(StartError::ConnectionLimits)?;
    let secured = SecuredListeners::open(config, listeners.iter().chain(http))?;
    let network = &config.network;
    let options =
        SocketOptions { backlog: network.listen_backlog, receive_buffer_bytes: network.receive_buffer_bytes };
    let bind = |l: &Listener| {
        let bound = machine.network.bind(&l.name, l.host.as_deref().unwrap_or_default(), l.port, options)?;
        Ok(bound.over(secured.of(&l.name)))
    };
    let listening = listeners.iter().map(bind).collect::<Result<_, BindError>>()?;
    Ok((listening, Arc::new(secured)))
}

/// Opens the log directories, checked against the cluster id if it is known, and the partitions in the
/// directories.
pub(crate) fn open_logs(
    machine: &Machine,
    config: &BrokerConfig,
    cluster_id: Option<String>,
    loading: &Loading,
) -> Result<(Arc<LogDirs>, Vec<thalweg_log::PartitionLog>), StartError> {
    let mut options = LogDirsOptions::new(config.log.data_dirs().to_vec(), config.node.id);
    options.threads = config.log.recovery_threads_per_dir * config.log.data_dirs().len();
    options.clock = machine.clock.clone();
    options.disk = machine.disk.clone();
    options.metadata_log_dir = config.node.roles.controller.then(|| config.metadata_log_dir());
    options.cluster_id = cluster_id;
    options.adds = config.directories.adds;
    // The settings of topics are known from the first image on. Until then the broker's defaults apply, but
    // no log counts as compacted: otherwise signs of lost records, which compaction could explain, would be
    // removed permanently.
    let defaults = config.log_config(&config.topic(&std::collections::BTreeMap::new()));
    let cleanup_policy = CleanupPolicy { compact: false, ..defaults.cleanup_policy };
    let until_known = Arc::new(LogConfig { cleanup_policy, ..defaults });
    let settings_of = |_: &TopicPartition| {
        loading.open_one();
        Arc::clone(&until_known)
    };
    let opened = machine.disk.work_in_place(|| {
        loading.begin(&options);
        LogDirs::open(options, settings_of)
    });
    loading.end();
    let (dirs, found) = opened?;
    Ok((Arc::new(dirs), found))
}

pub(crate) fn endpoint(listener: &Listener) -> thalweg_metadata::Endpoint {
    thalweg_metadata::Endpoint {
        listener: listener.name.clone(),
        host: listener.host.clone().unwrap_or_default(),
        port: listener.port,
        security_protocol: listener.protocol.code(),
    }
}

/// The machine's host name, for listeners on all interfaces without an advertised address.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The settings of all connections of the process, which share its memory and its descriptors.
pub(crate) fn connection_settings(machine: &Machine, config: &BrokerConfig) -> ConnectionSettings {
    let descriptors = machine.disk.descriptors();
    if let Some((open_files_max, connections_max)) = descriptors.max().zip(descriptors.connections_max())
        && connections_max < config.network.max_connections
    {
        tracing::info!(
            open_files_max,
            connections_max,
            "Limited connections to keep file descriptors for logs"
        );
    }
    ConnectionSettings::of(&config.network)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use thalweg_config::ServerProperties;
    use thalweg_log::{Damage, PartitionLog};
    use thalweg_record::{BatchBuilder, BatchOptions, LeaderEpoch, Offset};

    fn broker_of(dir: &Path) -> BrokerConfig {
        let mut properties = ServerProperties::default();
        properties.set("log.dirs", dir.to_str().expect("a path of letters"));
        properties.set("log.cleanup.policy", "compact");
        BrokerConfig::new(&properties).expect("a configuration")
    }

    fn open(dir: &Path, loading: &Loading) -> (Arc<LogDirs>, Vec<PartitionLog>) {
        open_logs(&Machine::real(), &broker_of(dir), None, loading).expect("the directory opens")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn first_segment_that_is_lost_is_damage_although_the_broker_compacts_other_topics() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let loading = Loading::default();
        let (dirs, _) = open(dir.path(), &loading);
        let config = Arc::new(LogConfig { segment_bytes: 500, ..LogConfig::default() });
        let created = dirs.create(&TopicPartition::new("t", 0), None, Arc::clone(&config), None);
        let mut log = created.expect("creates");
        for _ in 0..20 {
            let mut builder = BatchBuilder::new(BatchOptions::default());
            builder.append(1, None, Some(&[b'v'; 100]), &[]).expect("fits");
            log.append_as_leader(&builder.build(), LeaderEpoch(0), Default::default()).expect("accepted");
        }
        log.close().expect("closes");
        dirs.close(1);
        drop((log, dirs));
        std::fs::remove_file(dir.path().join(format!("t-0/{:020}.log", 0))).expect("removes");
        let (_dirs, mut found) = open(dir.path(), &loading);
        let mut log = found.pop().expect("it is there");
        log.set_config(config);
        log.end_at_gap().expect("it is looked through");
        assert_eq!(log.damage(), Some(Damage::Unreadable(Offset(0))));
    }
}
