//! Why a key has no effect, or is not served: one sentence per cause, for warnings and the documentation.

pub(super) const ONE_POOL: &str = "one worker thread per core does the work of all of Kafka's thread pools";
pub(super) const BOUNDED_BY_BYTES: &str =
    "waiting requests are bounded by their bytes, see queued.max.request.bytes";
pub(super) const CREATION_RATE: &str = "the rate of new connections is not limited yet";
pub(super) const PURGATORY: &str = "a request leaves memory as soon as it is answered";
pub(super) const AUTHORIZER: &str = "access control is not served yet";
pub(super) const SASL: &str = "SASL is not served yet";
pub(super) const TLS: &str = "TLS is not served yet";
pub(super) const UNSTABLE: &str = "only stable feature levels are served";
pub(super) const NO_JAVA: &str = "Java classes cannot be loaded";
pub(super) const CORDON: &str = "cordoned directories are not served yet";
pub(super) const DIRS: &str = "the embedded controller shares the fate of its broker";
pub(super) const VOTER: &str = "Thalweg does not vote in a quorum";
pub(super) const ELECTIONS: &str = "Thalweg does not vote in a quorum, so it holds no elections";
pub(super) const CHANNEL: &str = "requests to controllers follow controller.quorum.request.timeout.ms";
pub(super) const SAMPLES: &str = "the controller keeps no timing samples";
pub(super) const STARTUP: &str = "a start is not given up";
pub(super) const TESTING: &str = "it belongs to Kafka's own tests";
pub(super) const SOCKET_BUFFERS: &str = "the system sizes the buffers of a follower's connection";
pub(super) const TIERED: &str = "tiered storage is not served";
pub(super) const CLASSIC: &str = "only classic groups are served yet";
pub(super) const LINGER: &str = "the coordinator writes without waiting for more";
pub(super) const CONSUMER_GROUPS: &str = "the consumer group protocol of KIP-848 is not served yet";
pub(super) const SHARE_GROUPS_LATER: &str = "share groups are not served yet";
pub(super) const STREAMS_GROUPS: &str = "streams groups are not served yet";
pub(super) const QUOTAS: &str = "quotas are not enforced yet";
pub(super) const TOKENS: &str = "delegation tokens are not served yet";
pub(super) const PROVIDERS: &str = "configuration providers are Java classes, which cannot be loaded";
pub(super) const JMX: &str = "metrics reporters are Java classes, which cannot be loaded";
pub(super) const METRICS: &str = "metrics are not sampled in windows";
pub(super) const TELEMETRY: &str = "client telemetry is not served yet";
pub(super) const CLEANER_BUFFERS: &str = "each cleaner thread reads 1 MiB at a time and writes 256 KiB";
pub(super) const CLEANER_LOAD: &str =
    "the map of keys takes what `log.cleaner.dedupe.buffer.size` allows, whole";
pub(super) const SETUP: &str = "connections to other nodes have the bounds of the requests that need them";
