//! Keys of Thalweg's own, for what Kafka has no key for.
//!
//! One entry per key, as in the tables of Kafka's keys. A key is added here only where Kafka has none: `table::tests` checks it.

use super::super::check::{ANY, Check, LIST, LIST_OR_NULL, LISTEN_ADDRESS, listen_address, one_of};
use super::super::key::Support::Served;
use super::super::setting::unless_empty;
use super::declare::{names, settings};

settings! {
    /// The HTTP server.
    HttpSettings, HTTP "HTTP server";

    "http.listener": String = null, LISTEN_ADDRESS, Medium, ReadOnly, Served => listener: Option<(String, u16)> = listener,
        "`HOST:PORT` of an HTTP server for operators: `/metrics` in Prometheus' text format (`docs/metrics.md`). Off unless it is set. It has neither TLS nor authentication: keep it to a network that only operators reach. An empty host is every interface, port 0 a free one.",
        differs = "Kafka has no such key; there, metrics come by JMX and an exporter beside it.";
}

settings! {
    /// Streams that the broker hosts.
    StreamSettings, STREAMS "Hosted streams";

    "streams.enabled": Boolean = "false", ANY, Medium, ReadOnly, Served => enabled: bool,
        "Whether this broker hosts streams (`docs/streams.md`): those that are deployed on it are started with it, and `http.listener` serves the API to create, deploy, undeploy and destroy them. Whoever reaches that listener runs streams with the rights of this process.",
        differs = "Kafka has no such key; Kafka Streams and Connect are processes of their own.";
    "streams.bootstrap.servers": List = null, LIST_OR_NULL, Low, ReadOnly, Served => bootstrap: Option<String> = joined,
        "The brokers that hosted streams connect to first, as `HOST:PORT`: for their definitions, for topics between stages and for `kafka` stages that name no others. By default this broker's first listener, if that speaks what `streams.client.config` asks for.",
        differs = "Kafka has no such key.";
    "streams.client.config": String = null, ANY, Medium, ReadOnly, Served => client_config: Option<String> = unless_empty,
        "A file of client settings with which hosted streams connect, as `--command-config` of the command line takes it: `security.protocol`, `ssl.truststore.location`, `sasl.jaas.config` and others (`docs/security.md`). It is read for each connection of the host and each `kafka` stage that names no `--bootstrap`, so that certificates and passwords can be renewed. Without it, PLAINTEXT.",
        differs = "Kafka has no such key.";
    "streams.refused.modules": List = "exec", LIST, Medium, ReadOnly, Served => refused_modules: Vec<String>,
        "Stages that hosted streams may not have. `exec` runs any program; `file` reads and writes any file that this process may. Empty allows all but `stdin` and `stdout`, which a server has not.",
        differs = "Kafka has no such key.";
}

names! {
    /// What producers' batches are held to.
    ProduceKeys, PRODUCE "Producers' batches";

    "thalweg.produce.validation": String = "records", PRODUCE_VALIDATION, Medium, ClusterWide, Served => validation,
        "How far a producer's batch is looked into before it is stored; topics override it. `records` decompresses the batch and walks over its records, as Kafka does: a batch that consumers could not read is refused, and so is one whose records take more than 128 MiB decompressed. `header` checks the header and the CRC alone, and opens batches only where the topic demands it (compaction, bounds of timestamps, another codec): for producers that are trusted, since one batch of nonsense stops every consumer of its partition.",
        differs = "Kafka has no such key and always walks over the records.";
}

pub(super) const PRODUCE_VALIDATION: Check = one_of(&["records", "header"]);

fn listener(address: Option<String>) -> Option<(String, u16)> {
    address.map(|text| listen_address(&text).expect("the key's check parsed it"))
}

fn joined(servers: Option<Vec<String>>) -> Option<String> {
    servers.map(|servers| servers.join(","))
}
