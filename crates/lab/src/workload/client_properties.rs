//! The settings known to clients, and warnings about a workload's settings. A workload may run with several
//! drivers, each with its own client: a setting known to only one client is no mistake, but worth a warning.

use std::collections::BTreeSet;

use super::Driver;
use super::{Clients, Workload};

/// Settings of both producers and consumers of Kafka 4.3.
const JAVA_CLIENTS: &str = "\
    bootstrap.servers client.dns.lookup client.id config.providers connections.max.idle.ms \
    enable.metrics.push interceptor.classes metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms \
    metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level \
    metrics.sample.window.ms receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms \
    request.timeout.ms retry.backoff.max.ms retry.backoff.ms security.protocol security.providers \
    send.buffer.bytes socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms";

/// Settings of Kafka 4.3's producer only.
const JAVA_PRODUCER: &str = "\
    acks batch.size buffer.memory compression.gzip.level compression.lz4.level compression.type \
    compression.zstd.level delivery.timeout.ms enable.idempotence key.serializer linger.ms max.block.ms \
    max.in.flight.requests.per.connection max.request.size metadata.max.idle.ms \
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class \
    partitioner.ignore.keys retries transaction.timeout.ms transaction.two.phase.commit.enable \
    transactional.id value.serializer";

/// Settings of Kafka 4.3's consumer only.
const JAVA_CONSUMER: &str = "\
    allow.auto.create.topics auto.commit.interval.ms auto.offset.reset check.crcs client.rack \
    default.api.timeout.ms enable.auto.commit exclude.internal.topics fetch.max.bytes fetch.max.wait.ms \
    fetch.min.bytes group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms \
    isolation.level key.deserializer max.partition.fetch.bytes max.poll.interval.ms max.poll.records \
    partition.assignment.strategy session.timeout.ms value.deserializer";

/// Settings of all librdkafka clients.
const LIBRDKAFKA_CLIENTS: &str = "\
    allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms \
    bootstrap.servers broker.address.family broker.address.ttl broker.version.fallback builtin.features \
    client.dns.lookup client.id client.rack connections.max.idle.ms debug default_topic_conf \
    enable.metrics.push enable.random.seed enable.sasl.oauthbearer.unsecure.jwt \
    enable.ssl.certificate.verification enabled_events https.ca.location https.ca.pem interceptors \
    internal.termination.signal log.connection.close log.queue log.thread.name log_level max.in.flight \
    max.in.flight.requests.per.connection message.copy.max.bytes message.max.bytes metadata.broker.list \
    metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy opaque \
    plugin.library.paths receive.message.max.bytes reconnect.backoff.jitter.ms reconnect.backoff.max.ms \
    reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms security.protocol socket.blocking.max.ms \
    socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails socket.nagle.disable \
    socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms ssl_ca ssl_certificate \
    ssl_engine_callback_data ssl_key statistics.interval.ms topic.blacklist \
    topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt \
    topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms \
    topic.metadata.refresh.sparse";

/// Settings of librdkafka's producers only.
const LIBRDKAFKA_PRODUCER: &str = "\
    acks batch.num.messages batch.size compression.codec compression.level compression.type \
    delivery.report.only.error delivery.timeout.ms enable.gapless.guarantee enable.idempotence linger.ms \
    message.send.max.retries message.timeout.ms msg_order_cmp partitioner produce.offset.report \
    queue.buffering.backpressure.threshold queue.buffering.max.kbytes queue.buffering.max.messages \
    queue.buffering.max.ms queuing.strategy request.required.acks request.timeout.ms retries \
    sticky.partitioning.linger.ms transaction.timeout.ms transactional.id";

/// Settings of librdkafka's consumers only.
const LIBRDKAFKA_CONSUMER: &str = "\
    auto.commit.enable auto.commit.interval.ms auto.offset.reset check.crcs consume.callback.max.messages \
    coordinator.query.interval.ms enable.auto.commit enable.auto.offset.store enable.partition.eof \
    fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms \
    fetch.wait.max.ms group.id group.instance.id group.protocol group.protocol.type group.remote.assignor \
    heartbeat.interval.ms isolation.level max.partition.fetch.bytes max.poll.interval.ms max.poll.records \
    offset.store.method offset.store.path offset.store.sync.interval.ms partition.assignment.strategy \
    queued.max.messages.kbytes queued.min.messages session.timeout.ms share.acknowledgement.mode";

/// Settings of librdkafka that the lab's own client has, too.
const OWN_CLIENT: &str = "batch.num.messages";

/// Topic properties of Kafka 4.3.
const TOPIC: &str = "\
    cleanup.policy compression.gzip.level compression.lz4.level compression.type compression.zstd.level \
    delete.retention.ms file.delete.delay.ms flush.messages flush.ms \
    follower.replication.throttled.replicas index.interval.bytes leader.replication.throttled.replicas \
    local.retention.bytes local.retention.ms max.compaction.lag.ms max.message.bytes \
    message.timestamp.after.max.ms message.timestamp.before.max.ms message.timestamp.type \
    min.cleanable.dirty.ratio min.compaction.lag.ms min.insync.replicas preallocate remote.log.copy.disable \
    remote.log.delete.on.disable remote.storage.enable retention.bytes retention.ms segment.bytes \
    segment.index.bytes segment.jitter.ms segment.ms unclean.leader.election.enable";

/// Prefixes of security settings of both families, which belong to the target.
const SECURITY: [&str; 2] = ["sasl.", "ssl."];

/// Maximum overhead of a record in a request.
const RECORD_OVERHEAD: u64 = 100;
/// The smaller of Kafka's defaults of `max.request.size` and `max.message.bytes`.
const REQUEST_BYTES_DEFAULT: u64 = 1_048_576;

/// All warnings about a workload, each once, in the order of its points.
pub(super) fn warnings(workload: &Workload) -> Vec<String> {
    let mut all = Vec::new();
    let uses_librdkafka = |driver: &Driver| matches!(driver, Driver::Librdkafka | Driver::Stream);
    let librdkafka_alone = !workload.drivers.is_empty() && workload.drivers.iter().all(uses_librdkafka);
    for point in &workload.points {
        clients(
            "producers",
            &point.producers,
            (JAVA_PRODUCER, LIBRDKAFKA_PRODUCER),
            librdkafka_alone,
            &mut all,
        );
        clients(
            "consumers",
            &point.consumers,
            (JAVA_CONSUMER, LIBRDKAFKA_CONSUMER),
            librdkafka_alone,
            &mut all,
        );
        for key in point.topics.properties.keys().filter(|key| !has(TOPIC, key)) {
            all.push(format!("topics.properties.{key}: Kafka has no such topic property"));
        }
        let partitions = u64::from(point.topics.count) * u64::from(point.topics.partitions);
        // The first group has at least as many consumers as any other.
        let consumers = u64::from(point.consumers.count).div_ceil(u64::from(point.consumer_groups.max(1)));
        if consumers > partitions {
            all.push(format!(
                "{}: {consumers} consumers of a group share {partitions} partitions: {} of them are idle",
                point.label,
                consumers - partitions
            ));
        }
        let properties = &point.producers.properties;
        let limit = ["max.request.size", "message.max.bytes"].iter().find_map(|key| properties.get(*key));
        let limit = limit.and_then(|value| value.parse().ok()).unwrap_or(REQUEST_BYTES_DEFAULT);
        if u64::from(point.records.size_bytes) + RECORD_OVERHEAD > limit {
            all.push(format!(
                "{}: records of {} bytes exceed the client's limit of {limit}: raise the producers' \
                 max.request.size (librdkafka: message.max.bytes) and the topic's max.message.bytes",
                point.label, point.records.size_bytes
            ));
        }
    }
    let mut seen = BTreeSet::new();
    all.retain(|warning| seen.insert(warning.clone()));
    all
}

/// Warns about client settings. `librdkafka_alone`: no other client gets these settings.
fn clients(
    section: &str,
    clients: &Clients,
    (java, librdkafka): (&str, &str),
    librdkafka_alone: bool,
    all: &mut Vec<String>,
) {
    let ours = clients.properties.keys().filter(|key| !SECURITY.iter().any(|start| key.starts_with(start)));
    for key in ours {
        let in_java = has(JAVA_CLIENTS, key) || has(java, key);
        let in_librdkafka = has(LIBRDKAFKA_CLIENTS, key) || has(librdkafka, key);
        // Kafka's names are the standard; a driver reports unsupported ones itself.
        let what = match (in_java, in_librdkafka) {
            (true, _) => continue,
            (false, true) if librdkafka_alone => continue,
            (false, true) if has(OWN_CLIENT, key) => "Kafka's Java client has no setting with this name",
            (false, true) => "only librdkafka has a setting with this name",
            (false, false) => "no Kafka client has a setting with this name",
        };
        all.push(format!("{section}.properties.{key}: {what}"));
    }
}

fn has(names: &str, key: &str) -> bool {
    names.split_whitespace().any(|name| name == key)
}
