//! Keys of the node, its controllers, the metadata log and replication.
//!
//! An entry per key; `table::declare` documents the format.
//! Facts are compared with Kafka in `table::tests`.

use std::path::PathBuf;
use std::time::Duration;

use super::declare::{family, settings};
use super::reason::{CHANNEL, ELECTIONS, SAMPLES, SOCKET_BUFFERS, STARTUP, TESTING, TIERED, VOTER};
use crate::check::{ANY, BOOTSTRAP_SERVERS, FILLED_LIST, LIST, QUORUM_VOTERS, at_least, filled_list_of};
use crate::key::Support::{Accepted, Served, Startup, Unserved};
use crate::node::{Roles, Voter, servers, voters};
use crate::setting::unless_zero;

settings! {
    /// Node id and roles.
    NodeSettings, NODE "Node";

    "process.roles": List = "broker,controller", filled_list_of(&["broker", "controller"]), High, ReadOnly, Served => roles: Roles = Roles::of,
        "The roles of this process: `broker,controller` runs a broker with the embedded single-voter controller; `broker` joins the cluster of other controllers, Apache Kafka's or Thalweg's; `controller` runs only the embedded controller. See `docs/clusters.md`.",
        differs = "Required in Kafka. This default needs no further configuration.";
    "node.id": Int = "1", at_least(0), High, ReadOnly, Served => id: i32,
        "The id of this node, unique in the cluster.",
        differs = "Required in Kafka. A single broker needs no explicit id.";
    "broker.id": Int = "1", ANY, High, ReadOnly, Served => broker_id,
        "The older name of `node.id`; if both are set they must be equal.",
        differs = "It defaults to `node.id`.";
    "broker.rack": String = null, ANY, Medium, ReadOnly, Served => rack: Option<String>,
        "The rack or zone of this broker, reported to clients and used to spread replicas.";
}

family! { PROVIDERS "Values from elsewhere";
    "config.providers": List = "", LIST, Low, ClusterWide, Startup,
        "Names of providers, for values like `${NAME:KEY}` or `${NAME:PATH:KEY}` in the properties file. `config.providers.NAME.class` is Kafka's EnvVarConfigProvider, FileConfigProvider or DirectoryConfigProvider, with its package; `config.providers.NAME.param.allowlist.pattern` limits variables, `….param.allowed.paths` limits files. A placeholder without a value refuses the start; in Kafka it becomes the value.";
}

settings! {
    /// Connections to the controllers, and the controller in this process.
    ControllerSettings, CONTROLLERS "Controllers";

    "controller.listener.names": List = "CONTROLLER", FILLED_LIST, High, ReadOnly, Served => listener_names: Vec<String>,
        "The names of the controllers' listeners. With `process.roles=broker,controller` such a listener is optional: it lets other nodes join, and the embedded controller is then a single point of failure for all of them.",
        differs = "Required in Kafka. This is the name in Kafka's example configuration.";
    "controller.quorum.bootstrap.servers": List = "", BOOTSTRAP_SERVERS, High, ReadOnly, Served => bootstrap_servers: Vec<(String, u16)> = servers,
        "The addresses of the quorum's controllers: `host:port`, separated by commas. Any of them knows the active one.";
    "controller.quorum.voters": List = "", QUORUM_VOTERS, High, ReadOnly, Served => voters: Vec<Voter> = voters,
        "The controllers of a static quorum: `id@host:port`, separated by commas.";
    "controller.quorum.auto.join.enable": Boolean = "false", ANY, Low, ReadOnly, Unserved(VOTER),
        "Whether a controller joins the quorum's voters automatically.";
    "controller.quorum.election.timeout.ms": Int[Ms] = "1000", at_least(0), High, ReadOnly, Accepted(ELECTIONS),
        "How long a voter waits for its leader before it calls an election.";
    "controller.quorum.election.backoff.max.ms": Int[Ms] = "1000", at_least(0), High, ReadOnly, Accepted(ELECTIONS),
        "The longest pause between two elections.";
    "controller.quorum.fetch.timeout.ms": Int[Ms] = "2000", at_least(0), High, ReadOnly, Served => fetch_timeout: Duration,
        "How long this node's metadata fetches may fail before it searches for the quorum's leader again.";
    "controller.quorum.request.timeout.ms": Int[Ms] = "2000", at_least(0), Medium, ReadOnly, Served => request_timeout: Duration,
        "How long a request to the controllers may take.";
    "controller.quorum.retry.backoff.ms": Int[Ms] = "20", at_least(0), Low, ReadOnly, Served => retry_backoff: Duration,
        "The pause before a failed request to the controllers is retried.";
    "controller.quorum.append.linger.ms": Int[Ms] = "25", at_least(0), Medium, ReadOnly, Accepted(ELECTIONS),
        "How long a leader of the quorum collects records before it writes them.";
    "controller.quorum.fetch.max.bytes": Int[Bytes] = "1048576", at_least(1), Low, ReadOnly, Served => fetch_max_bytes: i32,
        "The maximum bytes of metadata records per fetch.";
    "controller.quorum.fetch.snapshot.max.bytes": Int[Bytes] = "1048576", at_least(1), Low, ReadOnly, Served => fetch_snapshot_max_bytes: i32,
        "The maximum bytes of a metadata snapshot per fetch.";
    "controller.socket.timeout.ms": Int[Ms] = "30000", ANY, Medium, ReadOnly, Accepted(CHANNEL),
        "Kafka's socket timeout between controller and broker.";
    "broker.heartbeat.interval.ms": Int[Ms] = "2000", ANY, Medium, ReadOnly, Served => heartbeat_interval: Duration,
        "How often this broker sends heartbeats to the controller.";
    "broker.session.timeout.ms": Int[Ms] = "9000", ANY, Medium, ReadOnly, Served => session_timeout: Duration,
        "How long the controller waits for a heartbeat before it fences a broker.";
    "initial.broker.registration.timeout.ms": Int[Ms] = "60000", ANY, Medium, ReadOnly, Served => initial_registration_timeout: Duration,
        "How long a starting broker tries to register before it gives up.";
    "controlled.shutdown.enable": Boolean = "true", ANY, Medium, ReadOnly, Served => controlled_shutdown: bool,
        "Whether leadership is handed over before the broker stops.";
    "auto.leader.rebalance.enable": Boolean = "true", ANY, High, ReadOnly, Served => rebalances_leaders: bool,
        "Whether the controller moves leadership back to the preferred replicas.";
    "leader.imbalance.check.interval.seconds": Long[Seconds] = "300", at_least(1), High, ReadOnly, Served => leader_imbalance_check_interval: Duration,
        "How often the controller checks for partitions not led by their preferred replica.";
    "unclean.leader.election.interval.ms": Long[Ms] = "300000", at_least(1), Medium, ReadOnly, Served => unclean_election_interval: Duration,
        "How often the controller checks for partitions that need an unclean election.", internal;
    "controller.quota.window.num": Int = "11", at_least(1), Low, ReadOnly, Served => quota_samples: usize,
        "The number of samples of `controller_mutation_rate`, the quota for created and deleted partitions: a client may use as many samples' worth at once.";
    "controller.quota.window.size.seconds": Int[Seconds] = "1", at_least(1), Low, ReadOnly, Served => quota_sample: Duration,
        "How long one sample of the quota for cluster changes lasts.";
    "controller.performance.sample.period.ms": Long[Ms] = "60000", at_least(100), Medium, ReadOnly, Accepted(SAMPLES),
        "How often the controller logs the timing of its events.", internal;
    "controller.performance.always.log.threshold.ms": Long[Ms] = "2000", at_least(0), Medium, ReadOnly, Accepted(SAMPLES),
        "The duration above which the controller always logs an event.", internal;
    "server.max.startup.time.ms": Long[Ms] = "9223372036854775807", at_least(0), Medium, ReadOnly, Accepted(STARTUP),
        "Kafka's time limit for the start.", internal;
}

settings! {
    /// The metadata log on disk.
    MetadataLogSettings, METADATA_LOG "Metadata log";

    "metadata.log.dir": String = null, ANY, High, ReadOnly, Served => dir: Option<PathBuf>,
        "The directory of the metadata log; by default the first of `log.dirs`.";
    "metadata.log.segment.bytes": Int[Bytes] = "1073741824", at_least(8388608), High, ReadOnly, Served => segment_bytes: u32,
        "Size at which a segment of the metadata log is closed.";
    "metadata.log.segment.ms": Long[Ms] = "604800000", ANY, High, ReadOnly, Served => segment_ms: i64,
        "Age at which a segment of the metadata log is closed.";
    "metadata.log.max.record.bytes.between.snapshots": Long[Bytes] = "20971520", at_least(1), High, ReadOnly, Served => max_bytes_between_snapshots: u64,
        "How many bytes of metadata records are written between two snapshots.";
    "metadata.log.max.snapshot.interval.ms": Long[Ms] = "3600000", at_least(0), High, ReadOnly, Served => max_snapshot_interval: Option<Duration> = unless_zero,
        "The maximum time between two snapshots if records were written; 0 disables it.";
    "metadata.max.retention.bytes": Long[Bytes] = "104857600", ANY, High, ReadOnly, Served => retention_bytes: i64,
        "Size of metadata log and snapshots above which the oldest are deleted.";
    "metadata.max.retention.ms": Long[Ms] = "604800000", ANY, High, ReadOnly, Served => retention_ms: i64,
        "Age at which metadata segments and snapshots are deleted, once a newer snapshot exists.";
    "metadata.max.idle.interval.ms": Int[Ms] = "500", at_least(0), Low, ReadOnly, Served => max_idle_interval: Option<Duration> = unless_zero,
        "How often an idle controller writes a record without effect, so that followers see that it is alive; 0 disables it.";
    "internal.metadata.log.segment.bytes": Int[Bytes] = null, ANY, Low, ReadOnly, Accepted(TESTING),
        "The segment size of the metadata log in Kafka's own tests.", internal;
    "internal.metadata.max.batch.size.in.bytes": Int[Bytes] = "8388608", ANY, Low, ReadOnly, Accepted(TESTING),
        "The largest metadata batch in Kafka's own tests.", internal;
    "internal.metadata.delete.delay.millis": Long[Ms] = "60000", ANY, Low, ReadOnly, Accepted(TESTING),
        "The delay of deleted metadata files in Kafka's own tests.", internal;
}

settings! {
    /// Replicas of other brokers' partitions.
    ReplicationSettings, REPLICATION_KEYS "Replication";

    "replica.lag.time.max.ms": Long[Ms] = "30000", ANY, High, ReadOnly, Served => lag_time_max: Duration,
        "How long a follower may stay behind before it leaves the in-sync replicas.";
    "replica.socket.timeout.ms": Int[Ms] = "30000", ANY, High, ReadOnly, Served => socket_timeout: Duration,
        "How long a follower waits for the leader's answer; at least `replica.fetch.wait.max.ms`.";
    "replica.socket.receive.buffer.bytes": Int[Bytes] = "65536", ANY, High, ReadOnly, Accepted(SOCKET_BUFFERS),
        "SO_RCVBUF of a follower's connection to the leader.";
    "replica.fetch.max.bytes": Int[Bytes] = "1048576", at_least(0), Medium, ReadOnly, Served => fetch_max_bytes: i32,
        "The maximum bytes per partition in a follower's fetch.";
    "replica.fetch.wait.max.ms": Int[Ms] = "500", ANY, High, ReadOnly, Served => fetch_wait_max: Duration,
        "How long the leader may delay the answer to a follower's fetch; at most `replica.lag.time.max.ms`.";
    "replica.fetch.min.bytes": Int[Bytes] = "1", ANY, High, ReadOnly, Served => fetch_min_bytes: i32,
        "The minimum bytes before the leader answers a follower's fetch.";
    "replica.fetch.response.max.bytes": Int[Bytes] = "10485760", at_least(0), Medium, ReadOnly, Served => fetch_response_max_bytes: i32,
        "The maximum bytes of an answer to a follower.";
    "replica.fetch.backoff.ms": Int[Ms] = "1000", at_least(0), Medium, ReadOnly, Served => fetch_backoff: Duration,
        "How long a follower pauses after a failed fetch.";
    "num.replica.fetchers": Int = "1", at_least(1), High, ClusterWide, Served => fetchers: usize,
        "The number of a follower's fetch connections per leader. A new number holds for a partition from its next change of leader or replicas on.";
    "replica.high.watermark.checkpoint.interval.ms": Long[Ms] = "5000", ANY, High, ReadOnly, Served => high_watermark_checkpoint_interval: Duration,
        "How often the high watermarks are written to disk.";
    "replica.selector.class": String = null, ANY, Medium, ReadOnly, Served => reads_by_rack: bool = is_rack_aware,
        "Which replica a consumer reads from: `org.apache.kafka.common.replica.RackAwareReplicaSelector` selects one in its rack; otherwise the leader. Other classes are refused.";
    "replication.quota.window.num": Int = "11", at_least(1), Low, ReadOnly, Served => quota_samples: usize,
        "The number of samples of a replication quota.";
    "replication.quota.window.size.seconds": Int[Seconds] = "1", at_least(1), Low, ReadOnly, Served => quota_sample: Duration,
        "How long one sample of a replication quota lasts.";
    "leader.replication.throttled.rate": Long[BytesPerSecond] = "9223372036854775807", at_least(0), Medium, ClusterWide, Served => leader_throttled_rate: u64,
        "How fast a leader may send throttled replicas, in bytes per second.";
    "follower.replication.throttled.rate": Long[BytesPerSecond] = "9223372036854775807", at_least(0), Medium, ClusterWide, Served => follower_throttled_rate: u64,
        "How fast a follower may fetch throttled replicas, in bytes per second.";
    "alter.log.dirs.replication.quota.window.num": Int = "11", at_least(1), Low, ReadOnly, Served => move_quota_samples: usize,
        "The number of samples of the quota for moves between directories.";
    "alter.log.dirs.replication.quota.window.size.seconds": Int[Seconds] = "1", at_least(1), Low, ReadOnly, Served => move_quota_sample: Duration,
        "How long one sample of the quota for moves between directories lasts.";
    "replica.alter.log.dirs.io.max.bytes.per.second": Long[BytesPerSecond] = "9223372036854775807", at_least(0), Medium, ClusterWide, Served => move_rate: u64,
        "How fast partitions may move between directories, in bytes per second.";
    "follower.fetch.last.tiered.offset.enable": Boolean = "false", ANY, Medium, ClusterWide, Unserved(TIERED),
        "Whether an empty follower skips records in tiered storage.";
}

/// The effective one of Kafka's two selectors; the other equals no selector.
pub(crate) const RACK_AWARE_SELECTOR: &str = "org.apache.kafka.common.replica.RackAwareReplicaSelector";

fn is_rack_aware(selector: Option<String>) -> bool {
    selector.as_deref() == Some(RACK_AWARE_SELECTOR)
}
