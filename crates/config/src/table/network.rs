//! Keys of the network and of topics: listeners, limits, creation of topics.
//!
//! An entry per key; `table::declare` documents the format.
//! Facts are compared with Kafka in `table::tests`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::declare::settings;
use super::reason::{BOUNDED_BY_BYTES, EARLY, NO_JAVA, ONE_POOL, PURGATORY, SETUP, UNSTABLE};
use crate::check::{
    ANY, CONNECTION_OVERRIDES, FILLED_LIST, FILLED_LIST_OR_NULL, GZIP_LEVEL, LIST_OR_NULL, at_least, between,
    connection_overrides, one_of,
};
use crate::key::Support::{Accepted, PerListener, Served, Unserved};
use crate::setting::{if_positive, millis_unless_negative};

settings! {
    /// The addresses of the broker, as text; resolved by [`Listeners`](crate::Listeners).
    ListenerSettings, LISTENERS "Listeners";

    "listeners": List = "PLAINTEXT://localhost:9092", FILLED_LIST, High, ReadOnly, Served => listeners: Vec<String>,
        "The addresses to listen on: `NAME://host:port`, separated by commas. An empty host means every interface; write IPv6 addresses in brackets. A name that is not a security protocol needs an entry in `listener.security.protocol.map`.",
        differs = "Kafka listens on every interface. By default Thalweg requires no login, so it is only reachable from this machine. Kafka can change listeners while it runs; here a change needs a restart.";
    "advertised.listeners": List = null, FILLED_LIST_OR_NULL, High, ReadOnly, Served => advertised: Option<Vec<String>>,
        "The addresses for clients and other brokers, if they differ from `listeners`. Each name must appear in `listeners`, and `0.0.0.0` cannot be advertised.";
    "listener.security.protocol.map": String = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", ANY, Low, ReadOnly, Served => protocol_map: String,
        "The security protocol of each listener name, as `NAME:PROTOCOL` pairs. `SSL` and `SASL_SSL` use TLS; see `docs/security.md`.",
        differs = "Kafka can change it while it runs; here a change needs a restart.";
    "inter.broker.listener.name": String = null, ANY, Medium, ReadOnly, Served => inter_broker_name: Option<String>,
        "The listener for connections between brokers; by default the one named by `security.inter.broker.protocol`.";
    "security.inter.broker.protocol": String = "PLAINTEXT", one_of(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]), Medium, ReadOnly, Served => inter_broker_protocol: String,
        "The protocol between brokers if `inter.broker.listener.name` is not set; setting both is an error.";
    "early.start.listeners": List = null, LIST_OR_NULL, High, ReadOnly, Accepted(EARLY),
        "Listeners that may open before the authorizer is ready.";
}

settings! {
    /// Connections and requests.
    NetworkSettings, NETWORK "Connections and requests";

    "num.network.threads": Int = "3", at_least(1), High, ClusterWide, Accepted(ONE_POOL),
        "Size of Kafka's pool of network threads.";
    "num.io.threads": Int = "8", at_least(1), High, ClusterWide, Accepted(ONE_POOL),
        "Size of Kafka's pool of request threads.";
    "background.threads": Int = "10", at_least(1), High, ClusterWide, Accepted(ONE_POOL),
        "Size of Kafka's pool of background threads.";
    "queued.max.requests": Int = "500", at_least(1), High, ReadOnly, Accepted(BOUNDED_BY_BYTES),
        "The size of Kafka's request queue.";
    "queued.max.request.bytes": Long[Bytes] = "-1", ANY, Medium, ReadOnly, Served => queued_max_request_bytes: Option<usize> = if_positive,
        "How many bytes of requests may be held in memory at once, over all connections; -1 leaves it to the broker's own bound, 512 MiB. All buffers of requests count as they are allocated, from the first byte to the end of their use. A part as large as `socket.request.max.bytes` is kept to complete one request at a time; where it leaves less than a quarter, it goes beyond the budget. While requests wait for memory, those that arrive too slowly are closed. Answers that clients do not take are bounded by a quarter of this, or 64 MiB if that is more; then the connection is closed whose answers take the most memory for the longest time.";
    "socket.request.max.bytes": Int[Bytes] = "104857600", at_least(1), High, ReadOnly, Served => request_max_bytes: usize,
        "The maximum size of a request, in bytes; a connection that announces more is closed.";
    "socket.send.buffer.bytes": Int[Bytes] = "102400", ANY, High, ReadOnly, Served => send_buffer_bytes: Option<usize> = if_positive,
        "SO_SNDBUF of client connections, in bytes; -1 keeps the system's default.";
    "socket.receive.buffer.bytes": Int[Bytes] = "-1", ANY, High, ReadOnly, Served => receive_buffer_bytes: Option<usize> = if_positive,
        "SO_RCVBUF of client connections, in bytes; -1 keeps the system's default.",
        differs = "Kafka's 102400 delays large requests: with requests of 256 KB it costs a third more CPU than the system's own sizing.";
    "socket.listen.backlog.size": Int = "4096", at_least(1), Medium, ReadOnly, Served => listen_backlog: i32,
        "How many connections may wait to be accepted on each listening socket; the system allows no more than `net.core.somaxconn`.",
        differs = "Kafka has 50. The system drops further connections within a few milliseconds, and their clients retry after a second.";
    "socket.connection.setup.timeout.ms": Long[Ms] = "10000", ANY, Medium, ReadOnly, Accepted(SETUP),
        "How long this broker's first attempt to connect to another node may take.";
    "socket.connection.setup.timeout.max.ms": Long[Ms] = "30000", ANY, Medium, ReadOnly, Accepted(SETUP),
        "The maximum of that timeout, which doubles with repeated failures.";
    "connections.max.idle.ms": Long[Ms] = "600000", ANY, Medium, ReadOnly, Served => connections_max_idle: Option<Duration> = millis_unless_negative,
        "A connection without progress for this long is closed: no byte of a request arrives, and none of an answer is accepted. A negative value disables it.";
    "max.connections": Int = "2147483647", at_least(0), Medium, ClusterWide, PerListener => max_connections: usize,
        "The maximum number of open connections, over all listeners, and of each listener; `listener.name.NAME.` before it sets it for one listener. At the limit, new connections wait. The listener between brokers, where there is another, is bound by its own limit only: what it takes beyond the broker's is made up for by closing the connections of other listeners that were used least recently. The limit of open files (RLIMIT_NOFILE), minus the files of logs, may reduce it.";
    "max.connections.per.ip": Int = "2147483647", at_least(0), Medium, ClusterWide, Served => max_connections_per_ip: usize,
        "The maximum number of connections per client address. Zero is only allowed together with overrides.";
    "max.connections.per.ip.overrides": String = "", CONNECTION_OVERRIDES, Medium, ClusterWide, Served => max_connections_per_ip_overrides: BTreeMap<String, usize> = parsed_overrides,
        "Exceptions to `max.connections.per.ip`: `address:limit` pairs, separated by commas.";
    "max.connection.creation.rate": Int = "2147483647", at_least(0), Medium, ClusterWide, PerListener => max_connection_creation_rate: u32,
        "The maximum number of accepted connections per second, over all listeners, and of each listener; `listener.name.NAME.` before it sets it for one listener. It is measured over the window of client quotas. Above it, a listener accepts no connection for a while. The broker's limit does not hold for the listener between brokers. The quota `connection_creation_rate` of entities `ip` limits addresses.";
    "quota.window.num": Int = "11", at_least(1), Low, ReadOnly, Served => quota_samples: usize,
        "The number of samples of a client quota: its rate is that over all of them.";
    "quota.window.size.seconds": Int[Seconds] = "1", at_least(1), Low, ReadOnly, Served => quota_sample: Duration,
        "How long one sample of a client quota lasts.";
    "max.request.partition.size.limit": Int = "2000", at_least(1), Medium, ReadOnly, Served => describe_partitions_limit: usize,
        "The maximum number of partitions in an answer to DescribeTopicPartitions.";
    "request.timeout.ms": Int[Ms] = "30000", ANY, High, ReadOnly, Served => request_timeout: Duration,
        "How long this broker waits for the answer to a request that it sends to another node.";
    "fetch.max.bytes": Int[Bytes] = "57671680", at_least(1024), Medium, ReadOnly, Served => fetch_max_bytes: usize,
        "The maximum bytes of a Fetch answer, whatever the client allows; the first batch is sent whole even if it is larger.";
    "max.incremental.fetch.session.cache.slots": Int = "1000", at_least(0), Medium, ReadOnly, Served => fetch_session_slots: usize,
        "The maximum number of incremental fetch sessions.";
    "fetch.purgatory.purge.interval.requests": Int = "1000", ANY, Medium, ReadOnly, Accepted(PURGATORY),
        "How often Kafka sweeps answered requests out of its fetch purgatory.";
    "producer.purgatory.purge.interval.requests": Int = "1000", ANY, Medium, ReadOnly, Accepted(PURGATORY),
        "How often Kafka sweeps answered requests out of its produce purgatory.";
    "delete.records.purgatory.purge.interval.requests": Int = "1", ANY, Medium, ReadOnly, Accepted(PURGATORY),
        "How often Kafka sweeps answered requests out of its DeleteRecords purgatory.";
    "connection.failed.authentication.delay.ms": Int[Ms] = "100", at_least(0), Low, ReadOnly, Served => failed_authentication_delay: Duration,
        "How long the answer to a failed authentication is delayed, and with it the end of the connection.";
    "unstable.api.versions.enable": Boolean = "false", ANY, High, ReadOnly, Served => serves_unstable_versions: bool,
        "Whether unstable API versions are supported: version 6 of InitProducerId.", internal;
    "telemetry.max.bytes": Int[Bytes] = "1048576", at_least(1), Low, ReadOnly, Served => telemetry_max_bytes: i32,
        "The maximum size of the metrics that a client sends at once, compressed (KIP-714).";
    "unstable.feature.versions.enable": Boolean = "false", ANY, High, ReadOnly, Unserved(UNSTABLE),
        "Whether unstable feature versions are supported.", internal;
}

settings! {
    /// Creation of topics. Default topic settings are in the topic configuration.
    TopicSettings, TOPICS "Topics";

    "num.partitions": Int = "1", at_least(1), Medium, ReadOnly, Served => num_partitions: i32,
        "The default number of partitions of a new topic.";
    "default.replication.factor": Int = "1", ANY, Medium, ReadOnly, Served => default_replication_factor: i16,
        "The default replication factor of a new topic.",
        alone = "there is only one broker: topics without another replication factor cannot be created; use 1";
    "auto.create.topics.enable": Boolean = "true", ANY, High, ReadOnly, Served => auto_create: bool,
        "Whether a missing topic is created when a client requests its metadata.";
    "delete.topic.enable": Boolean = "true", ANY, High, ReadOnly, Served => delete_enable: bool,
        "Whether topics can be deleted; if not, DeleteTopics is refused.";
    "message.max.bytes": Int[Bytes] = "1048588", at_least(0), High, ClusterWide, Served => message_max_bytes,
        "The maximum size of a record batch, in bytes as sent; topics override it with `max.message.bytes`.";
    "compression.type": String = "producer", one_of(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]), High, ClusterWide, Served => compression_type,
        "How batches are stored: as compressed by the producer (`producer`), uncompressed, or recompressed with the given codec.";
    "compression.gzip.level": Int = "-1", GZIP_LEVEL, Medium, ClusterWide, Served => compression_gzip_level,
        "The level of gzip when the broker recompresses; -1 is the codec's own default.";
    "compression.lz4.level": Int = "9", between(1, 17), Medium, ClusterWide, Served => compression_lz4_level,
        "The level of lz4 when the broker recompresses.";
    "compression.zstd.level": Int = "3", between(-131072, 22), Medium, ClusterWide, Served => compression_zstd_level,
        "The level of zstd when the broker recompresses.";
    "min.insync.replicas": Int = "1", at_least(1), High, ClusterWide, Served => min_insync_replicas,
        "How many replicas must be in sync for a produce request with acks=all to be accepted.",
        alone = "there is only one broker: every record sent with acks=all is refused; use 1";
    "unclean.leader.election.enable": Boolean = "false", ANY, High, ClusterWide, Served => unclean_leader_election,
        "Whether an out-of-sync replica may become leader if no other is left, which loses records.";
    "create.topic.policy.class.name": Class = null, ANY, Low, ReadOnly, Unserved(NO_JAVA),
        "A Java class that approves the creation of topics.";
    "alter.config.policy.class.name": Class = null, ANY, Low, ReadOnly, Unserved(NO_JAVA),
        "A Java class that approves changes of configuration.";
}

fn parsed_overrides(text: String) -> BTreeMap<String, usize> {
    connection_overrides(&text).expect("the key's check parsed it")
}
