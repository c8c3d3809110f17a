//! Options of the embedded controller: its identity, its log directory, its limits, and the rules of
//! configurations, which the broker defines.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thalweg_config::{BrokerConfig, DelegationTokenSettings};
use thalweg_log::Clock;
use thalweg_log::disk::Disk;
use thalweg_metadata::{ConfigMap, ConfigResource, ConfigResourceKind, Endpoint, VersionRange, feature};
use thalweg_security::acl::Rules;
use thalweg_security::quota::Window;
use thalweg_security::sasl::scram::NewUser;
use thalweg_wire::{ErrorCode, Uuid};

use crate::request_context::Witness;

/// Options of a controller.
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// The id of this node, the only voter of its quorum.
    pub node_id: i32,
    /// The id of the cluster, from `meta.properties`.
    pub cluster_id: String,
    /// The id of the log directory that holds the metadata log.
    pub directory_id: Uuid,
    /// The log directory (`metadata.log.dir`) that contains `__cluster_metadata-0`.
    pub metadata_log_dir: PathBuf,
    /// The controller's listeners; empty if it serves only this process.
    pub listeners: Vec<Endpoint>,
    /// `num.partitions`.
    pub default_num_partitions: i32,
    /// `default.replication.factor`.
    pub default_replication_factor: i16,
    /// `delete.topic.enable`.
    pub delete_topics: bool,
    /// `broker.session.timeout.ms`.
    pub broker_session_timeout: Duration,
    /// `metadata.log.max.record.bytes.between.snapshots`.
    pub snapshot_bytes: u64,
    /// `metadata.log.max.snapshot.interval.ms`; zero for never.
    pub snapshot_interval: Duration,
    /// `metadata.log.segment.bytes`.
    pub segment_bytes: u32,
    /// `metadata.log.segment.ms`.
    pub segment_ms: i64,
    /// `metadata.max.retention.bytes`; negative for no limit.
    pub retention_bytes: i64,
    /// `metadata.max.retention.ms`; negative for no limit.
    pub retention_ms: i64,
    /// `auto.leader.rebalance.enable`.
    pub rebalance_leaders: bool,
    /// `leader.imbalance.check.interval.seconds`.
    pub rebalance_interval: Duration,
    /// `unclean.leader.election.interval.ms`: interval of elections outside the in-sync replicas, for
    /// leaderless partitions that allow it.
    pub unclean_election_interval: Duration,
    /// True if the broker's side compares the ends of logs of partitions without a complete replica (see
    /// [`crate::UndecidedPartition`]). Otherwise the last leader leads.
    pub compares_log_ends: bool,
    /// `controller.quota.window.num` and `controller.quota.window.size.seconds`.
    pub quota_window: Window,
    pub delegation_tokens: DelegationTokenSettings,
    /// The features that this node supports, with their levels.
    pub supported_features: BTreeMap<String, VersionRange>,
    /// The features, besides `metadata.version`, that a new cluster is formatted with.
    pub bootstrap_features: BTreeMap<String, i16>,
    /// The users of a new cluster.
    pub bootstrap_users: Vec<NewUser>,
    /// Rules that take precedence over ACLs; `None` without an authorizer, which allows everything.
    pub authorizer: Option<Rules>,
    /// The observer of authorization decisions, in addition to the log.
    pub witness: Option<Arc<dyn Witness>>,
    /// True if a new cluster may be created without a metadata log. False if data of a cluster exists.
    pub may_format: bool,
    /// The disk for all files.
    pub disk: Disk,
    /// The wall clock, for the timestamps of records.
    pub clock: Clock,
}

impl ControllerOptions {
    /// The options from a configuration, for a cluster and the directory of its metadata log.
    pub fn of(
        config: &BrokerConfig,
        cluster_id: &str,
        directory_id: Uuid,
        metadata_log_dir: PathBuf,
    ) -> ControllerOptions {
        let (settings, metadata_log) = (&config.controller, &config.metadata_log);
        ControllerOptions {
            node_id: config.node.id,
            cluster_id: cluster_id.to_owned(),
            directory_id,
            metadata_log_dir,
            listeners: Vec::new(),
            default_num_partitions: config.topics.num_partitions,
            default_replication_factor: config.topics.default_replication_factor,
            delete_topics: config.topics.delete_enable,
            broker_session_timeout: settings.session_timeout,
            snapshot_bytes: metadata_log.max_bytes_between_snapshots,
            snapshot_interval: metadata_log.max_snapshot_interval.unwrap_or(Duration::ZERO),
            segment_bytes: metadata_log.segment_bytes,
            segment_ms: metadata_log.segment_ms,
            retention_bytes: metadata_log.retention_bytes,
            retention_ms: metadata_log.retention_ms,
            rebalance_leaders: settings.rebalances_leaders,
            rebalance_interval: settings.leader_imbalance_check_interval,
            unclean_election_interval: settings.unclean_election_interval,
            compares_log_ends: false,
            quota_window: Window::new(settings.quota_samples, settings.quota_sample),
            delegation_tokens: config.delegation_tokens.clone(),
            supported_features: default_supported_features(),
            bootstrap_features: BTreeMap::new(),
            bootstrap_users: config.first_users.clone(),
            authorizer: config.authorizer_rules(),
            witness: None,
            may_format: true,
            disk: Disk::real(),
            clock: Clock::system(),
        }
    }
}

/// The features of the controller alone. A node with a broker sets more in
/// [`ControllerOptions::supported_features`].
pub fn default_supported_features() -> BTreeMap<String, VersionRange> {
    BTreeMap::from([
        (feature::METADATA_VERSION.to_owned(), VersionRange { min: 7, max: 30 }),
        (feature::KRAFT_VERSION.to_owned(), VersionRange { min: 0, max: 1 }),
    ])
}

/// The refusal of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigRefusal {
    /// The error code; usually INVALID_CONFIG.
    pub code: ErrorCode,
    /// The reason in Kafka's words.
    pub message: String,
}

/// The effective setting of a topic, for the response to CreateTopics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveConfig {
    /// The property's name.
    pub name: String,
    /// The value; `None` if it is sensitive.
    pub value: Option<String>,
    /// True if the setting cannot be changed.
    pub read_only: bool,
    /// Kafka's id of the setting's source: 1 topic, 2 dynamic broker, 3 dynamic default broker, 4 static
    /// broker, 5 default.
    pub source: i8,
    /// True if the value is secret.
    pub sensitive: bool,
}

/// The rules of configurations that a controller needs.
pub trait ConfigRules: Send + Sync {
    /// Checks the new configuration of a resource. `existing` is the previous one. The name of the resource
    /// was checked before.
    fn validate(
        &self,
        resource: &ConfigResource,
        configs: &ConfigMap,
        existing: &ConfigMap,
    ) -> Result<(), ConfigRefusal>;

    /// True if a value is a list, which allows APPEND and SUBTRACT.
    fn is_list(&self, kind: ConfigResourceKind, name: &str) -> bool;

    /// The value of a property without a dynamic value: from the properties file, or Kafka's default.
    fn default_value(&self, kind: ConfigResourceKind, name: &str) -> Option<String>;

    /// All settings of a new topic with these overrides, sorted by name. `broker` and `brokers` are the
    /// dynamic settings of this broker and of all brokers.
    fn effective_topic_configs(
        &self,
        overrides: &ConfigMap,
        broker: &ConfigMap,
        brokers: &ConfigMap,
    ) -> Vec<EffectiveConfig>;
}
