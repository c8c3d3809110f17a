//! Keys of the network and of topics: where the broker listens, what it accepts, how topics come to be.
//!
//! An entry per key; `table::declare` says what is in one.
//! Facts are compared with Kafka in `table::tests`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::check::{
    ANY, CONNECTION_OVERRIDES, FILLED_LIST, FILLED_LIST_OR_NULL, GZIP_LEVEL, LIST_OR_NULL, at_least, between,
    connection_overrides, one_of,
};
use super::super::key::Support::{Accepted, Served, Unserved};
use super::super::setting::{if_positive, millis_unless_negative};
use super::declare::settings;
use super::reason::{
    AUTHORIZER, BOUNDED_BY_BYTES, CREATION_RATE, NO_JAVA, ONE_POOL, PURGATORY, SASL, SETUP, UNSTABLE,
};

settings! {
    /// Where the broker listens, as it was written; resolved by [`Listeners`](crate::Listeners).
    ListenerSettings, LISTENERS "Listeners";

    "listeners": List = "PLAINTEXT://localhost:9092", FILLED_LIST, High, ReadOnly, Served => listeners: Vec<String>,
        "Where the broker listens: `NAME://host:port`, several separated by commas. An empty host means every interface; an IPv6 address stands in brackets. A name that is not a security protocol needs an entry in `listener.security.protocol.map`.",
        differs = "Kafka listens on every interface. Thalweg serves no authentication yet, so it stays on this machine until it is told otherwise. Kafka can change listeners while it runs; here a change takes a restart.";
    "advertised.listeners": List = null, FILLED_LIST_OR_NULL, High, ReadOnly, Served => advertised: Option<Vec<String>>,
        "The addresses handed to clients and to other brokers, when they differ from `listeners`. Each name must appear in `listeners`, and `0.0.0.0` cannot be advertised.";
    "listener.security.protocol.map": String = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", ANY, Low, ReadOnly, Served => protocol_map: String,
        "Which security protocol each listener name speaks, as `NAME:PROTOCOL` pairs. Only `PLAINTEXT` listeners are served so far.",
        differs = "Kafka can change it while it runs; here a change takes a restart.";
    "inter.broker.listener.name": String = null, ANY, Medium, ReadOnly, Served => inter_broker_name: Option<String>,
        "The listener that brokers use among themselves. Without it, the listener named by `security.inter.broker.protocol`.";
    "security.inter.broker.protocol": String = "PLAINTEXT", one_of(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]), Medium, ReadOnly, Served => inter_broker_protocol: String,
        "The protocol between brokers when no `inter.broker.listener.name` is given; setting both is an error.";
    "early.start.listeners": List = null, LIST_OR_NULL, High, ReadOnly, Accepted(AUTHORIZER),
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
        "How many requests may wait in Kafka's request queue.";
    "queued.max.request.bytes": Long[Bytes] = "-1", ANY, Medium, ReadOnly, Served => queued_max_request_bytes: Option<usize> = if_positive,
        "How many bytes of requests may be held in memory at once, over all connections; -1 leaves it to the broker's own bound, 512 MiB. All buffers of requests count as they are allocated, from the first byte to the end of their use. A part as large as `socket.request.max.bytes` is kept to complete one request at a time; where it leaves less than a quarter, it goes beyond the budget. While requests wait for memory, those that arrive too slowly are closed. Answers that clients do not take are bounded by a quarter of this, or 64 MiB if that is more; then the connection is closed whose answers take the most memory for the longest time.";
    "socket.request.max.bytes": Int[Bytes] = "104857600", at_least(1), High, ReadOnly, Served => request_max_bytes: usize,
        "The largest request accepted, in bytes; a connection that announces more is closed.";
    "socket.send.buffer.bytes": Int[Bytes] = "102400", ANY, High, ReadOnly, Served => send_buffer_bytes: Option<usize> = if_positive,
        "SO_SNDBUF of client connections, in bytes; -1 keeps the system's default.";
    "socket.receive.buffer.bytes": Int[Bytes] = "-1", ANY, High, ReadOnly, Served => receive_buffer_bytes: Option<usize> = if_positive,
        "SO_RCVBUF of client connections, in bytes; -1 keeps the system's default.",
        differs = "Kafka has 102400, which holds large requests up: with requests of 256 KB it costs a third more CPU than a window that the system sizes.";
    "socket.listen.backlog.size": Int = "4096", at_least(1), Medium, ReadOnly, Served => listen_backlog: i32,
        "How many connections may wait to be accepted on each listening socket; the system allows no more than `net.core.somaxconn`.",
        differs = "Kafka has 50. More that come within a few milliseconds are dropped by the system, and their clients try again after a second.";
    "socket.connection.setup.timeout.ms": Long[Ms] = "10000", ANY, Medium, ReadOnly, Accepted(SETUP),
        "How long this broker waits for a connection that it opens to another node to be established, at the first attempt.";
    "socket.connection.setup.timeout.max.ms": Long[Ms] = "30000", ANY, Medium, ReadOnly, Accepted(SETUP),
        "The longest such wait after repeated failures; the wait doubles up to here.";
    "connections.max.idle.ms": Long[Ms] = "600000", ANY, Medium, ReadOnly, Served => connections_max_idle: Option<Duration> = millis_unless_negative,
        "A connection without progress for this long is closed: no byte of a request arrives, and none of an answer is taken. A negative value never closes one.";
    "max.connections": Int = "2147483647", at_least(0), Medium, ClusterWide, Served => max_connections: usize,
        "How many connections the broker keeps open at once, over all listeners. There are fewer where the limit of open files (RLIMIT_NOFILE) leaves fewer beside those that logs need.";
    "max.connections.per.ip": Int = "2147483647", at_least(0), Medium, ClusterWide, Served => max_connections_per_ip: usize,
        "How many connections one client address may hold. Zero is allowed only together with overrides.";
    "max.connections.per.ip.overrides": String = "", CONNECTION_OVERRIDES, Medium, ClusterWide, Served => max_connections_per_ip_overrides: BTreeMap<String, usize> = parsed_overrides,
        "Exceptions to `max.connections.per.ip`: `address:limit` pairs, separated by commas.";
    "max.connection.creation.rate": Int = "2147483647", at_least(0), Medium, ClusterWide, Unserved(CREATION_RATE),
        "How many connections are accepted per second, over all listeners.";
    "max.request.partition.size.limit": Int = "2000", at_least(1), Medium, ReadOnly, Served => describe_partitions_limit: usize,
        "How many partitions one request of DescribeTopicPartitions may be answered with.";
    "request.timeout.ms": Int[Ms] = "30000", ANY, High, ReadOnly, Served => request_timeout: Duration,
        "How long this broker waits for the answer to a request that it sends to another node.";
    "fetch.max.bytes": Int[Bytes] = "57671680", at_least(1024), Medium, ReadOnly, Served => fetch_max_bytes: usize,
        "The most bytes that one Fetch answer carries, whatever the client allows; the first batch is sent whole even when larger.";
    "max.incremental.fetch.session.cache.slots": Int = "1000", at_least(0), Medium, ReadOnly, Served => fetch_session_slots: usize,
        "How many incremental fetch sessions are remembered at once.";
    "fetch.purgatory.purge.interval.requests": Int = "1000", ANY, Medium, ReadOnly, Accepted(PURGATORY),
        "How often Kafka sweeps answered requests out of its fetch purgatory.";
    "producer.purgatory.purge.interval.requests": Int = "1000", ANY, Medium, ReadOnly, Accepted(PURGATORY),
        "How often Kafka sweeps answered requests out of its produce purgatory.";
    "delete.records.purgatory.purge.interval.requests": Int = "1", ANY, Medium, ReadOnly, Accepted(PURGATORY),
        "How often Kafka sweeps answered requests out of its DeleteRecords purgatory.";
    "connection.failed.authentication.delay.ms": Int[Ms] = "100", at_least(0), Low, ReadOnly, Unserved(SASL),
        "How long the closing of a connection is delayed after failed authentication.";
    "unstable.api.versions.enable": Boolean = "false", ANY, High, ReadOnly, Served => serves_unstable_versions: bool,
        "Whether API versions still in development are offered: version 6 of InitProducerId.", internal;
    "unstable.feature.versions.enable": Boolean = "false", ANY, High, ReadOnly, Unserved(UNSTABLE),
        "Whether feature versions still in development are offered.", internal;
}

settings! {
    /// How topics come to be. What they inherit is in their own configuration.
    TopicSettings, TOPICS "Topics";

    "num.partitions": Int = "1", at_least(1), Medium, ReadOnly, Served => num_partitions: i32,
        "Partitions of a topic that is created without a count.";
    "default.replication.factor": Int = "1", ANY, Medium, ReadOnly, Served => default_replication_factor: i16,
        "Replicas of a topic that is created without a count.",
        alone = "there is one broker: topics that ask for no other number fail, 1 would do";
    "auto.create.topics.enable": Boolean = "true", ANY, High, ReadOnly, Served => auto_create: bool,
        "Whether a topic is created when a client asks for the metadata of one that does not exist.";
    "delete.topic.enable": Boolean = "true", ANY, High, ReadOnly, Served => delete_enable: bool,
        "Whether topics can be deleted; if not, DeleteTopics is refused.";
    "message.max.bytes": Int[Bytes] = "1048588", at_least(0), High, ClusterWide, Served => message_max_bytes,
        "The largest record batch accepted, in bytes as it is sent; topics override it with `max.message.bytes`.";
    "compression.type": String = "producer", one_of(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]), High, ClusterWide, Served => compression_type,
        "How batches are stored: as the producer compressed them (`producer`), uncompressed, or recompressed with the codec named.";
    "compression.gzip.level": Int = "-1", GZIP_LEVEL, Medium, ClusterWide, Served => compression_gzip_level,
        "The level of gzip when the broker recompresses; -1 is the codec's own default.";
    "compression.lz4.level": Int = "9", between(1, 17), Medium, ClusterWide, Served => compression_lz4_level,
        "The level of lz4 when the broker recompresses.";
    "compression.zstd.level": Int = "3", between(-131072, 22), Medium, ClusterWide, Served => compression_zstd_level,
        "The level of zstd when the broker recompresses.";
    "min.insync.replicas": Int = "1", at_least(1), High, ClusterWide, Served => min_insync_replicas,
        "How many replicas must be in sync for a produce request with acks=all to be accepted.",
        alone = "there is one broker: every record sent with acks=all is refused, 1 would do";
    "unclean.leader.election.enable": Boolean = "false", ANY, High, ClusterWide, Served => unclean_leader_election,
        "Whether a replica that is not in sync may become leader when no other is left, at the price of lost records.";
    "create.topic.policy.class.name": Class = null, ANY, Low, ReadOnly, Unserved(NO_JAVA),
        "A Java class that approves the creation of topics.";
    "alter.config.policy.class.name": Class = null, ANY, Low, ReadOnly, Unserved(NO_JAVA),
        "A Java class that approves changes of configuration.";
}

fn parsed_overrides(text: String) -> BTreeMap<String, usize> {
    connection_overrides(&text).expect("the key's check parsed it")
}
