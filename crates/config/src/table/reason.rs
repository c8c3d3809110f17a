//! Reasons why keys have no effect or are not supported, for warnings and the documentation.

pub(super) const ONE_POOL: &str = "one worker thread per core replaces all of Kafka's thread pools";
pub(super) const BOUNDED_BY_BYTES: &str = "queued requests are limited by size, see queued.max.request.bytes";
pub(super) const PURGATORY: &str = "a request leaves memory as soon as it is answered";
pub(super) const EARLY: &str = "the ACLs are loaded before any listener opens";
pub(super) const KERBEROS: &str = "Kerberos is not served";
pub(super) const TOKEN_REQUESTS: &str = "this node does not request tokens yet";
pub(super) const TLS: &str = "rustls does the work of Java's TLS providers";
pub(super) const UNSTABLE: &str = "only stable feature levels are served";
pub(super) const NO_JAVA: &str = "Java classes cannot be loaded";
pub(super) const CORDON: &str = "cordoned directories are not served yet";
pub(super) const DIRS: &str = "the embedded controller stops with its broker";
pub(super) const VOTER: &str = "Thalweg does not vote in a quorum";
pub(super) const ELECTIONS: &str = "Thalweg does not vote in a quorum, so it holds no elections";
pub(super) const CHANNEL: &str = "requests to controllers follow controller.quorum.request.timeout.ms";
pub(super) const SAMPLES: &str = "the controller keeps no timing samples";
pub(super) const STARTUP: &str = "a start has no time limit";
pub(super) const BEFORE_IMAGE: &str = "logs are opened before the node knows values set at run time";
pub(super) const TESTING: &str = "it is for Kafka's own tests";
pub(super) const SOCKET_BUFFERS: &str = "the system sizes the buffers of a follower's connection";
pub(super) const TIERED: &str = "tiered storage is not served";
pub(super) const LINGER: &str = "the coordinator writes without delay";
pub(super) const JMX: &str = "metrics reporters are Java classes, which cannot be loaded";
pub(super) const METRICS: &str = "metrics are not sampled in windows";
pub(super) const CLEANER_BUFFERS: &str = "each cleaner thread reads 1 MiB at a time and writes 256 KiB";
pub(super) const CLEANER_LOAD: &str = "the map of keys may fill the whole `log.cleaner.dedupe.buffer.size`";
pub(super) const SETUP: &str = "connections to other nodes are limited by the timeouts of their requests";
