//! Keys that Thalweg does not serve, declared so that a file with such a key gets a warning with the reason.
//!
//! An entry per key; `table::declare` documents the format.
//! Facts are compared with Kafka in `table::tests`.

use super::declare::{family, names};
use super::reason::{JMX, METRICS, NO_JAVA, TIERED};
use crate::check::{ANY, LIST, NOT_EMPTY, at_least, ratio};
use crate::key::Support::{Accepted, Unserved};

family! { QUOTA_KEYS "Principals and quotas";
    "principal.builder.class": Class = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder", ANY, Medium, PerBroker, Unserved(NO_JAVA),
        "The Java class that determines a connection's principal.";
    "client.quota.callback.class": Class = null, ANY, Low, ReadOnly, Unserved(NO_JAVA),
        "The Java class that decides client quotas.";
    "security.providers": String = null, ANY, Low, ReadOnly, Unserved(NO_JAVA),
        "Java classes that provide security algorithms.";
}

family! { METRIC_KEYS "Metrics";
    "metric.reporters": List = "org.apache.kafka.common.metrics.JmxReporter", LIST, Low, ClusterWide, Unserved(JMX),
        "Java classes that report metrics.";
    "metrics.num.samples": Int = "2", at_least(1), Low, ReadOnly, Accepted(METRICS),
        "The number of samples of a metric.";
    "metrics.sample.window.ms": Long[Ms] = "30000", at_least(1), Low, ReadOnly, Accepted(METRICS),
        "How long one sample of a metric lasts.";
    "metrics.recording.level": String = "INFO", ANY, Low, ReadOnly, Accepted(METRICS),
        "The detail level of metrics.";
    "kafka.metrics.reporters": List = "", LIST, Low, ReadOnly, Unserved(JMX),
        "Java classes that report metrics of the older kind.";
    "kafka.metrics.polling.interval.secs": Int[Seconds] = "10", at_least(1), Low, ReadOnly, Unserved(JMX),
        "How often those classes are called.";
}

names! {
    /// Settings of tiered storage.
    TieredStorageKeys, TIERED_STORAGE "Tiered storage";

    "remote.log.storage.system.enable": Boolean = "false", ANY, Medium, ReadOnly, Unserved(TIERED),
        "Whether tiered storage is enabled.";
    "remote.log.storage.manager.class.name": String = null, NOT_EMPTY, Medium, ReadOnly, Unserved(TIERED),
        "The Java class that stores segments in tiered storage.";
    "remote.log.storage.manager.class.path": String = null, ANY, Medium, ReadOnly, Unserved(TIERED),
        "The class path of that class.";
    "remote.log.storage.manager.impl.prefix": String = "rsm.config.", NOT_EMPTY, Medium, ReadOnly, Unserved(TIERED),
        "The prefix of that class's own settings.";
    "remote.log.metadata.manager.class.name": String = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager", NOT_EMPTY, Medium, ReadOnly, Unserved(TIERED),
        "The Java class that tracks segments in tiered storage.";
    "remote.log.metadata.manager.class.path": String = null, ANY, Medium, ReadOnly, Unserved(TIERED),
        "The class path of that class.";
    "remote.log.metadata.manager.impl.prefix": String = "rlmm.config.", NOT_EMPTY, Medium, ReadOnly, Unserved(TIERED),
        "The prefix of that class's own settings.";
    "remote.log.metadata.manager.listener.name": String = null, NOT_EMPTY, Medium, ReadOnly, Unserved(TIERED),
        "The listener over which that class reaches the brokers.";
    "remote.log.metadata.custom.metadata.max.bytes": Int[Bytes] = "128", at_least(0), Low, ReadOnly, Unserved(TIERED),
        "The largest metadata that a storage class may attach to a segment.";
    "remote.log.index.file.cache.total.size.bytes": Long[Bytes] = "1073741824", at_least(1), Low, ClusterWide, Unserved(TIERED),
        "Disk space for indexes of remote segments.";
    "remote.log.index.file.cache.ttl.ms": Long[Ms] = "900000", at_least(-1), Low, ReadOnly, Unserved(TIERED),
        "How long an index of a remote segment is kept unused.", internal;
    "remote.log.manager.thread.pool.size": Int = "2", at_least(1), Medium, ReadOnly, Unserved(TIERED),
        "How many threads follow remote segments.";
    "remote.log.manager.copier.thread.pool.size": Int = "10", at_least(1), Medium, ClusterWide, Unserved(TIERED),
        "How many threads copy segments away.";
    "remote.log.manager.expiration.thread.pool.size": Int = "10", at_least(1), Medium, ClusterWide, Unserved(TIERED),
        "How many threads delete expired remote segments.";
    "remote.log.manager.follower.thread.pool.size": Int = "2", at_least(1), Medium, ClusterWide, Unserved(TIERED),
        "How many threads keep a follower's view of remote segments.";
    "remote.log.manager.task.interval.ms": Long[Ms] = "30000", at_least(1), Low, ReadOnly, Unserved(TIERED),
        "How often segments to copy or delete are looked for.";
    "remote.log.manager.task.retry.backoff.ms": Long[Ms] = "500", at_least(1), Low, ReadOnly, Unserved(TIERED),
        "The pause before a failed copy is repeated.", internal;
    "remote.log.manager.task.retry.backoff.max.ms": Long[Ms] = "30000", at_least(1), Low, ReadOnly, Unserved(TIERED),
        "The longest such pause.", internal;
    "remote.log.manager.task.retry.jitter": Double = "0.2", ratio(0.5), Low, ReadOnly, Unserved(TIERED),
        "The random share of such a pause.", internal;
    "remote.log.manager.copy.max.bytes.per.second": Long[BytesPerSecond] = "9223372036854775807", at_least(1), Medium, ClusterWide, Unserved(TIERED),
        "How fast segments may be copied away.";
    "remote.log.manager.copy.quota.window.num": Int = "11", at_least(1), Medium, ReadOnly, Unserved(TIERED),
        "How many samples the copy quota looks back on.";
    "remote.log.manager.copy.quota.window.size.seconds": Int[Seconds] = "1", at_least(1), Medium, ReadOnly, Unserved(TIERED),
        "How long one sample of the copy quota lasts.";
    "remote.log.manager.fetch.max.bytes.per.second": Long[BytesPerSecond] = "9223372036854775807", at_least(1), Medium, ClusterWide, Unserved(TIERED),
        "How fast remote segments may be read.";
    "remote.log.manager.fetch.quota.window.num": Int = "11", at_least(1), Medium, ReadOnly, Unserved(TIERED),
        "How many samples the remote read quota looks back on.";
    "remote.log.manager.fetch.quota.window.size.seconds": Int[Seconds] = "1", at_least(1), Medium, ReadOnly, Unserved(TIERED),
        "How long one sample of the remote read quota lasts.";
    "remote.log.reader.threads": Int = "10", at_least(1), Medium, ClusterWide, Unserved(TIERED),
        "How many threads read remote segments.";
    "remote.log.reader.max.pending.tasks": Int = "100", at_least(1), Medium, ReadOnly, Unserved(TIERED),
        "How many remote reads may wait.";
    "remote.fetch.max.wait.ms": Int[Ms] = "500", at_least(1), Medium, ClusterWide, Unserved(TIERED),
        "How long a Fetch waits for remote data.";
    "remote.list.offsets.request.timeout.ms": Long[Ms] = "30000", at_least(1), Medium, ClusterWide, Unserved(TIERED),
        "How long ListOffsets waits for remote data.";
    "log.local.retention.ms": Long[Ms] = "-2", at_least(-2), Medium, ClusterWide, Unserved(TIERED) => local_retention_ms,
        "Age at which segments already stored elsewhere are deleted here; -2 follows `log.retention.ms`.";
    "log.local.retention.bytes": Long[Bytes] = "-2", at_least(-2), Medium, ClusterWide, Unserved(TIERED) => local_retention_bytes,
        "Size above which segments already stored elsewhere are deleted here; -2 follows `log.retention.bytes`.";
}
