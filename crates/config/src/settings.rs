//! A broker's settings by the part of the broker that they concern, typed and ready to use.
//!
//! Each is made from the checked values of the keys; what its fields mean stands with the keys in `table/`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::check::{host_and_port, listen_address};
use super::values::Values;

/// Connections and requests.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkSettings {
    /// `socket.request.max.bytes`.
    pub request_max_bytes: usize,
    /// `socket.send.buffer.bytes`; None leaves it to the system.
    pub send_buffer_bytes: Option<usize>,
    /// `socket.receive.buffer.bytes`; None leaves it to the system.
    pub receive_buffer_bytes: Option<usize>,
    /// `socket.listen.backlog.size`.
    pub listen_backlog: i32,
    /// `connections.max.idle.ms`; None never closes.
    pub connections_max_idle: Option<Duration>,
    /// `max.connections`.
    pub max_connections: usize,
    /// `max.connections.per.ip`.
    pub max_connections_per_ip: usize,
    /// `max.connections.per.ip.overrides`, by address or host name.
    pub max_connections_per_ip_overrides: BTreeMap<String, usize>,
    /// `queued.max.request.bytes`; None leaves it to the broker's own bound.
    pub queued_max_request_bytes: Option<usize>,
    /// `fetch.max.bytes`.
    pub fetch_max_bytes: usize,
    /// `max.incremental.fetch.session.cache.slots`.
    pub fetch_session_slots: usize,
    /// `max.request.partition.size.limit`.
    pub describe_partitions_limit: usize,
    /// `request.timeout.ms`.
    pub request_timeout: Duration,
    /// `unstable.api.versions.enable`.
    pub serves_unstable_versions: bool,
}

impl NetworkSettings {
    pub(super) fn new(values: &Values, overrides: BTreeMap<String, usize>) -> Self {
        let positive = |name| Some(values.size(name)).filter(|size| *size > 0);
        let idle = values.long("connections.max.idle.ms");
        Self {
            request_max_bytes: values.size("socket.request.max.bytes"),
            send_buffer_bytes: positive("socket.send.buffer.bytes"),
            receive_buffer_bytes: positive("socket.receive.buffer.bytes"),
            listen_backlog: values.int("socket.listen.backlog.size"),
            connections_max_idle: u64::try_from(idle).ok().map(Duration::from_millis),
            max_connections: values.size("max.connections"),
            max_connections_per_ip: values.size("max.connections.per.ip"),
            max_connections_per_ip_overrides: overrides,
            queued_max_request_bytes: positive("queued.max.request.bytes"),
            fetch_max_bytes: values.size("fetch.max.bytes"),
            fetch_session_slots: values.size("max.incremental.fetch.session.cache.slots"),
            describe_partitions_limit: values.size("max.request.partition.size.limit"),
            request_timeout: values.millis("request.timeout.ms"),
            serves_unstable_versions: values.boolean("unstable.api.versions.enable"),
        }
    }
}

/// The HTTP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    /// `http.listener`: host, empty for all interfaces, and port; None has no server.
    pub listener: Option<(String, u16)>,
}

impl HttpSettings {
    pub(super) fn new(values: &Values) -> Self {
        let listener = values.text("http.listener");
        Self { listener: listener.map(|text| listen_address(text).expect("the key's check parsed it")) }
    }
}

/// Streams that the broker hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSettings {
    /// `streams.enabled`.
    pub enabled: bool,
    /// `streams.bootstrap.servers`; None is the broker's own first listener.
    pub bootstrap: Option<String>,
    /// `streams.client.config`, a file of client settings.
    pub client_config: Option<String>,
    /// `streams.refused.modules`.
    pub refused_modules: Vec<String>,
}

impl StreamSettings {
    pub(super) fn new(values: &Values) -> Self {
        Self {
            enabled: values.boolean("streams.enabled"),
            bootstrap: values.list("streams.bootstrap.servers").map(|servers| servers.join(",")),
            client_config: values
                .text("streams.client.config")
                .filter(|path| !path.is_empty())
                .map(str::to_owned),
            refused_modules: values.list("streams.refused.modules").unwrap_or_default().to_vec(),
        }
    }
}

/// How topics come and go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSettings {
    /// `num.partitions`.
    pub num_partitions: i32,
    /// `default.replication.factor`.
    pub default_replication_factor: i16,
    /// `auto.create.topics.enable`.
    pub auto_create: bool,
    /// `delete.topic.enable`.
    pub delete_enable: bool,
}

impl TopicSettings {
    pub(super) fn new(values: &Values) -> Self {
        Self {
            num_partitions: values.int("num.partitions"),
            default_replication_factor: i16::try_from(values.int("default.replication.factor"))
                .unwrap_or(i16::MAX),
            auto_create: values.boolean("auto.create.topics.enable"),
            delete_enable: values.boolean("delete.topic.enable"),
        }
    }
}

/// Data directories and the work on logs that is not a topic's own.
#[derive(Debug, Clone, PartialEq)]
pub struct LogSettings {
    /// `log.dirs`, or `log.dir`.
    pub dirs: Vec<PathBuf>,
    /// `num.recovery.threads.per.data.dir`.
    pub recovery_threads_per_dir: usize,
    /// `num.replica.alter.log.dirs.threads`.
    pub move_threads: Option<usize>,
    /// `log.retention.check.interval.ms`.
    pub retention_check_interval: Duration,
    /// `log.flush.scheduler.interval.ms`; None never looks.
    pub flush_check_interval: Option<Duration>,
    /// `log.flush.offset.checkpoint.interval.ms`.
    pub recovery_point_checkpoint_interval: Duration,
    /// `log.flush.start.offset.checkpoint.interval.ms`.
    pub start_offset_checkpoint_interval: Duration,
    /// `replica.high.watermark.checkpoint.interval.ms`.
    pub high_watermark_checkpoint_interval: Duration,
    /// `log.initial.task.delay.ms`.
    pub initial_task_delay: Duration,
    /// `producer.id.expiration.ms`.
    pub producer_id_expiration: Duration,
    /// `producer.id.expiration.check.interval.ms`.
    pub producer_id_expiration_check_interval: Duration,
    /// `log.cleaner.*`.
    pub cleaner: CleanerSettings,
}

/// Compaction, as far as it is not a topic's own.
#[derive(Debug, Clone, PartialEq)]
pub struct CleanerSettings {
    /// `log.cleaner.enable`.
    pub enable: bool,
    /// `log.cleaner.threads`.
    pub threads: usize,
    /// `log.cleaner.dedupe.buffer.size`.
    pub dedupe_buffer_bytes: usize,
    /// `log.cleaner.io.max.bytes.per.second`.
    pub io_bytes_per_second: f64,
    /// `log.cleaner.backoff.ms`.
    pub backoff: Duration,
}

impl LogSettings {
    pub(super) fn new(values: &Values) -> Self {
        let dirs = values.list("log.dirs").or_else(|| values.list("log.dir")).unwrap_or_default();
        let flush_check = values.long("log.flush.scheduler.interval.ms");
        Self {
            dirs: dirs.iter().map(PathBuf::from).collect(),
            recovery_threads_per_dir: values.size("num.recovery.threads.per.data.dir"),
            move_threads: values
                .integer_or_null("num.replica.alter.log.dirs.threads")
                .map(|threads| usize::try_from(threads).unwrap_or(1)),
            retention_check_interval: values.millis("log.retention.check.interval.ms"),
            flush_check_interval: Some(flush_check)
                .filter(|ms| *ms < i64::MAX)
                .map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0))),
            recovery_point_checkpoint_interval: values.millis("log.flush.offset.checkpoint.interval.ms"),
            start_offset_checkpoint_interval: values.millis("log.flush.start.offset.checkpoint.interval.ms"),
            high_watermark_checkpoint_interval: values
                .millis("replica.high.watermark.checkpoint.interval.ms"),
            initial_task_delay: values.millis("log.initial.task.delay.ms"),
            producer_id_expiration: values.millis("producer.id.expiration.ms"),
            producer_id_expiration_check_interval: values.millis("producer.id.expiration.check.interval.ms"),
            cleaner: CleanerSettings {
                enable: values.boolean("log.cleaner.enable"),
                threads: values.size("log.cleaner.threads"),
                dedupe_buffer_bytes: values.size("log.cleaner.dedupe.buffer.size"),
                io_bytes_per_second: values.double("log.cleaner.io.max.bytes.per.second"),
                backoff: values.millis("log.cleaner.backoff.ms"),
            },
        }
    }
}

/// Classic groups and their committed offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSettings {
    /// `group.min.session.timeout.ms`.
    pub min_session_timeout_ms: i32,
    /// `group.max.session.timeout.ms`.
    pub max_session_timeout_ms: i32,
    /// `group.initial.rebalance.delay.ms`.
    pub initial_rebalance_delay: Duration,
    /// `group.max.size`.
    pub max_size: usize,
    /// `offset.metadata.max.bytes`.
    pub offset_metadata_max_bytes: usize,
    /// `offsets.commit.timeout.ms`.
    pub offsets_commit_timeout: Duration,
    /// `offsets.load.buffer.size`.
    pub offsets_load_buffer_bytes: usize,
    /// `offsets.retention.minutes`.
    pub offsets_retention: Duration,
    /// `offsets.retention.check.interval.ms`.
    pub offsets_retention_check_interval: Duration,
    /// `offsets.topic.*`.
    pub offsets_topic: InternalTopic,
    /// `offsets.topic.compression.codec`, by number.
    pub offsets_topic_codec: i32,
}

/// How an internal topic is created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InternalTopic {
    /// Its partitions.
    pub partitions: i32,
    /// The replicas of each.
    pub replication_factor: i16,
    /// Its configuration, by topic key.
    pub configs: BTreeMap<String, String>,
}

impl InternalTopic {
    fn compacted(values: &Values, prefix: &str, min_insync_replicas: Option<i32>) -> Self {
        let key = |name: &str| format!("{prefix}.{name}");
        let mut configs = BTreeMap::from([
            ("cleanup.policy".to_owned(), "compact".to_owned()),
            ("segment.bytes".to_owned(), values.int(&key("segment.bytes")).to_string()),
        ]);
        match min_insync_replicas {
            // As Kafka creates __transaction_state.
            Some(replicas) => configs.extend([
                ("compression.type".to_owned(), "uncompressed".to_owned()),
                ("min.insync.replicas".to_owned(), replicas.to_string()),
                ("unclean.leader.election.enable".to_owned(), "false".to_owned()),
            ]),
            None => {
                configs.insert("compression.type".to_owned(), "producer".to_owned());
            }
        }
        Self {
            partitions: values.int(&key("num.partitions")),
            replication_factor: values.short(&key("replication.factor")),
            configs,
        }
    }
}

impl GroupSettings {
    pub(super) fn new(values: &Values) -> Self {
        Self {
            min_session_timeout_ms: values.int("group.min.session.timeout.ms"),
            max_session_timeout_ms: values.int("group.max.session.timeout.ms"),
            initial_rebalance_delay: values.millis("group.initial.rebalance.delay.ms"),
            max_size: values.size("group.max.size"),
            offset_metadata_max_bytes: values.size("offset.metadata.max.bytes"),
            offsets_commit_timeout: values.millis("offsets.commit.timeout.ms"),
            offsets_load_buffer_bytes: values.size("offsets.load.buffer.size"),
            offsets_retention: values.seconds("offsets.retention.minutes") * 60,
            offsets_retention_check_interval: values.millis("offsets.retention.check.interval.ms"),
            offsets_topic: InternalTopic::compacted(values, "offsets.topic", None),
            offsets_topic_codec: values.int("offsets.topic.compression.codec"),
        }
    }
}

/// Transactions and idempotent producers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionSettings {
    /// `transaction.max.timeout.ms`.
    pub max_timeout_ms: i32,
    /// `transactional.id.expiration.ms`.
    pub id_expiration: Duration,
    /// `transaction.state.log.*`.
    pub state_topic: InternalTopic,
    /// `transaction.abort.timed.out.transaction.cleanup.interval.ms`.
    pub abort_timed_out_interval: Duration,
    /// `transaction.remove.expired.transaction.cleanup.interval.ms`.
    pub remove_expired_interval: Duration,
    /// `transaction.state.log.load.buffer.size`.
    pub load_buffer_bytes: usize,
    /// `transaction.partition.verification.enable`.
    pub verifies_partitions: bool,
    /// `transaction.two.phase.commit.enable`.
    pub two_phase_commit: bool,
    /// `add.partitions.to.txn.retry.backoff.ms`.
    pub add_retry_backoff: Duration,
    /// `add.partitions.to.txn.retry.backoff.max.ms`: how long adding is tried.
    pub add_retry_max: Duration,
}

impl TransactionSettings {
    pub(super) fn new(values: &Values) -> Self {
        let min_insync_replicas = Some(values.int("transaction.state.log.min.isr"));
        Self {
            max_timeout_ms: values.int("transaction.max.timeout.ms"),
            id_expiration: values.millis("transactional.id.expiration.ms"),
            state_topic: InternalTopic::compacted(values, "transaction.state.log", min_insync_replicas),
            abort_timed_out_interval: values
                .millis("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            remove_expired_interval: values
                .millis("transaction.remove.expired.transaction.cleanup.interval.ms"),
            load_buffer_bytes: values.size("transaction.state.log.load.buffer.size"),
            verifies_partitions: values.boolean("transaction.partition.verification.enable"),
            two_phase_commit: values.boolean("transaction.two.phase.commit.enable"),
            add_retry_backoff: values.millis("add.partitions.to.txn.retry.backoff.ms"),
            add_retry_max: values.millis("add.partitions.to.txn.retry.backoff.max.ms"),
        }
    }
}

/// A controller of a static quorum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Voter {
    /// Its node id.
    pub id: i32,
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// The way to the controllers, and the controller in this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerSettings {
    /// `controller.quorum.voters`; empty with the embedded controller.
    pub voters: Vec<Voter>,
    /// `controller.quorum.bootstrap.servers`, host and port.
    pub bootstrap_servers: Vec<(String, u16)>,
    /// `controller.quorum.request.timeout.ms`.
    pub request_timeout: Duration,
    /// `controller.quorum.retry.backoff.ms`.
    pub retry_backoff: Duration,
    /// `controller.quorum.fetch.timeout.ms`.
    pub fetch_timeout: Duration,
    /// `controller.quorum.fetch.max.bytes`.
    pub fetch_max_bytes: i32,
    /// `controller.quorum.fetch.snapshot.max.bytes`.
    pub fetch_snapshot_max_bytes: i32,
    /// `broker.heartbeat.interval.ms`.
    pub heartbeat_interval: Duration,
    /// `broker.session.timeout.ms`.
    pub session_timeout: Duration,
    /// `initial.broker.registration.timeout.ms`.
    pub initial_registration_timeout: Duration,
    /// `controlled.shutdown.enable`.
    pub controlled_shutdown: bool,
    /// `auto.leader.rebalance.enable`, and `leader.imbalance.check.interval.seconds` if so.
    pub leader_imbalance_check_interval: Option<Duration>,
    /// `unclean.leader.election.interval.ms`.
    pub unclean_election_interval: Duration,
    /// `metadata.log.*` and `metadata.max.*`.
    pub metadata_log: MetadataLogSettings,
}

/// The metadata log on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataLogSettings {
    /// `metadata.log.dir`, or the first of the data directories.
    pub dir: PathBuf,
    /// `metadata.log.segment.bytes`.
    pub segment_bytes: u32,
    /// `metadata.log.segment.ms`.
    pub segment_ms: i64,
    /// `metadata.log.max.record.bytes.between.snapshots`.
    pub max_bytes_between_snapshots: u64,
    /// `metadata.log.max.snapshot.interval.ms`; None sets no limit.
    pub max_snapshot_interval: Option<Duration>,
    /// `metadata.max.retention.bytes`.
    pub retention_bytes: i64,
    /// `metadata.max.retention.ms`.
    pub retention_ms: i64,
    /// `metadata.max.idle.interval.ms`; None writes nothing while idle.
    pub max_idle_interval: Option<Duration>,
}

impl ControllerSettings {
    pub(super) fn new(values: &Values, log: &LogSettings) -> Self {
        let nonzero = |name| Some(values.millis(name)).filter(|interval| !interval.is_zero());
        let dir = values.text("metadata.log.dir").map(PathBuf::from);
        Self {
            voters: values
                .list("controller.quorum.voters")
                .unwrap_or_default()
                .iter()
                .map(|entry| voter(entry))
                .collect(),
            bootstrap_servers: bootstrap_servers(values),
            request_timeout: values.millis("controller.quorum.request.timeout.ms"),
            retry_backoff: values.millis("controller.quorum.retry.backoff.ms"),
            fetch_timeout: values.millis("controller.quorum.fetch.timeout.ms"),
            fetch_max_bytes: values.int("controller.quorum.fetch.max.bytes"),
            fetch_snapshot_max_bytes: values.int("controller.quorum.fetch.snapshot.max.bytes"),
            heartbeat_interval: values.millis("broker.heartbeat.interval.ms"),
            session_timeout: values.millis("broker.session.timeout.ms"),
            initial_registration_timeout: values.millis("initial.broker.registration.timeout.ms"),
            controlled_shutdown: values.boolean("controlled.shutdown.enable"),
            leader_imbalance_check_interval: values
                .boolean("auto.leader.rebalance.enable")
                .then(|| values.seconds("leader.imbalance.check.interval.seconds")),
            unclean_election_interval: values.millis("unclean.leader.election.interval.ms"),
            metadata_log: MetadataLogSettings {
                dir: dir.or_else(|| log.dirs.first().cloned()).unwrap_or_default(),
                segment_bytes: u32::try_from(values.int("metadata.log.segment.bytes")).unwrap_or(0),
                segment_ms: values.long("metadata.log.segment.ms"),
                max_bytes_between_snapshots: u64::try_from(
                    values.long("metadata.log.max.record.bytes.between.snapshots"),
                )
                .unwrap_or(0),
                max_snapshot_interval: nonzero("metadata.log.max.snapshot.interval.ms"),
                retention_bytes: values.long("metadata.max.retention.bytes"),
                retention_ms: values.long("metadata.max.retention.ms"),
                max_idle_interval: nonzero("metadata.max.idle.interval.ms"),
            },
        }
    }
}

fn voter(entry: &str) -> Voter {
    let (id, server) = entry.split_once('@').expect("the key's check found the sign");
    let (host, port) = host_and_port(server).expect("the key's check parsed host and port");
    Voter { id: id.parse().expect("the key's check parsed the id"), host, port }
}

fn bootstrap_servers(values: &Values) -> Vec<(String, u16)> {
    let entries = values.list("controller.quorum.bootstrap.servers").unwrap_or_default();
    entries.iter().map(|entry| host_and_port(entry).expect("the key's check parsed host and port")).collect()
}

/// The one of Kafka's two selectors that does something.
pub(super) const RACK_AWARE_SELECTOR: &str = "org.apache.kafka.common.replica.RackAwareReplicaSelector";

/// Replicas of other brokers' partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicationSettings {
    /// `replica.lag.time.max.ms`.
    pub lag_time_max: Duration,
    /// `replica.socket.timeout.ms`.
    pub socket_timeout: Duration,
    /// `replica.fetch.max.bytes`.
    pub fetch_max_bytes: i32,
    /// `replica.fetch.wait.max.ms`.
    pub fetch_wait_max: Duration,
    /// `replica.fetch.min.bytes`.
    pub fetch_min_bytes: i32,
    /// `replica.fetch.response.max.bytes`.
    pub fetch_response_max_bytes: i32,
    /// `replica.fetch.backoff.ms`.
    pub fetch_backoff: Duration,
    /// `num.replica.fetchers`.
    pub fetchers: usize,
    /// `replication.quota.window.num`.
    pub quota_samples: usize,
    /// `replication.quota.window.size.seconds`.
    pub quota_sample: Duration,
    /// `leader.replication.throttled.rate`, in bytes per second.
    pub leader_throttled_rate: u64,
    /// `follower.replication.throttled.rate`, in bytes per second.
    pub follower_throttled_rate: u64,
    /// `replica.alter.log.dirs.io.max.bytes.per.second`.
    pub move_rate: u64,
    /// `alter.log.dirs.replication.quota.window.num`.
    pub move_quota_samples: usize,
    /// `alter.log.dirs.replication.quota.window.size.seconds`.
    pub move_quota_sample: Duration,
    /// Whether `replica.selector.class` sends consumers to replicas in their racks.
    pub reads_by_rack: bool,
}

impl ReplicationSettings {
    pub(super) fn new(values: &Values) -> Self {
        Self {
            lag_time_max: values.millis("replica.lag.time.max.ms"),
            socket_timeout: values.millis("replica.socket.timeout.ms"),
            fetch_max_bytes: values.int("replica.fetch.max.bytes"),
            fetch_wait_max: values.millis("replica.fetch.wait.max.ms"),
            fetch_min_bytes: values.int("replica.fetch.min.bytes"),
            fetch_response_max_bytes: values.int("replica.fetch.response.max.bytes"),
            fetch_backoff: values.millis("replica.fetch.backoff.ms"),
            fetchers: values.size("num.replica.fetchers"),
            quota_samples: values.size("replication.quota.window.num"),
            quota_sample: values.seconds("replication.quota.window.size.seconds"),
            leader_throttled_rate: values.size("leader.replication.throttled.rate") as u64,
            follower_throttled_rate: values.size("follower.replication.throttled.rate") as u64,
            move_rate: values.size("replica.alter.log.dirs.io.max.bytes.per.second") as u64,
            move_quota_samples: values.size("alter.log.dirs.replication.quota.window.num"),
            move_quota_sample: values.seconds("alter.log.dirs.replication.quota.window.size.seconds"),
            reads_by_rack: values.text("replica.selector.class") == Some(RACK_AWARE_SELECTOR),
        }
    }
}
