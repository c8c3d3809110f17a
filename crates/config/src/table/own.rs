//! Thalweg's own keys, without a counterpart in Kafka.
//!
//! One entry per key, as in the tables of Kafka's keys. A key is added here only where Kafka has none: `table::tests` checks it.

use super::super::check::{
    ANY, Check, LIST, LIST_OR_NULL, LISTEN_ADDRESS, listen_address, one_of, one_of_any_case,
};
use super::super::key::Support::{Listener, Served};
use super::super::setting::unless_empty;
use super::declare::{family, names, settings};

settings! {
    /// The HTTP server.
    HttpSettings, HTTP "HTTP server";

    "http.listener": String = null, LISTEN_ADDRESS, Medium, ReadOnly, Served => listener: Option<(String, u16)> = listener,
        "`HOST:PORT` of an HTTP server for operators: `/metrics` in Prometheus' text format (`docs/metrics.md`). Off by default. By default it has neither TLS nor a login: see `http.security.protocol` and `http.authentication`. An empty host means every interface, port 0 a free port.",
        differs = "Kafka has no such key; its metrics need JMX and an exporter.";
    "http.security.protocol": String = "PLAINTEXT", one_of_any_case(&["PLAINTEXT", "SSL"]), Medium, ReadOnly, Served => has_tls: bool = is_ssl,
        "Whether `http.listener` speaks HTTP (`PLAINTEXT`) or HTTPS (`SSL`). Its certificate and everything else of TLS come from the `ssl.` settings, as those of a listener with the name HTTP: `listener.name.http.ssl.keystore.location` overrides `ssl.keystore.location`. With `ssl.client.auth=required` and without `http.authentication`, the client's certificate is its login.",
        differs = "Kafka has no such key.";
    "http.authentication": String = "none", one_of(&["none", "basic"]), Medium, ReadOnly, Served => has_login: bool = is_basic,
        "How clients of `http.listener` log in. `basic` asks for the name and the password of a SCRAM user of the cluster, or of a user in `listener.name.http.plain.sasl.jaas.config`; it needs `http.security.protocol=SSL`, unless only this machine can reach the listener. `listener.name.http.sasl.enabled.mechanisms` limits the users to those of some mechanisms. With an authorizer, reading needs DESCRIBE on the cluster and everything else ALTER (`docs/security.md`).",
        differs = "Kafka has no such key.";
}

settings! {
    /// Streams that the broker hosts.
    StreamSettings, STREAMS "Hosted streams";

    "streams.enabled": Boolean = "false", ANY, Medium, ReadOnly, Served => enabled: bool,
        "Whether this broker hosts streams (`docs/streams.md`): it starts the streams deployed on it, and `http.listener` serves the API to create, deploy, undeploy and destroy them. Whoever may change streams there runs them with the rights of this process: restrict it (`http.authentication`).",
        differs = "Kafka has no such key; Kafka Streams and Connect are separate processes.";
    "streams.bootstrap.servers": List = null, LIST_OR_NULL, Low, ReadOnly, Served => bootstrap: Option<String> = joined,
        "The bootstrap servers of hosted streams, as `HOST:PORT`: for their definitions, for topics between stages and for `kafka` stages without `--bootstrap`. By default this broker's first listener, if it supports the protocol in `streams.client.config`.",
        differs = "Kafka has no such key.";
    "streams.client.config": String = null, ANY, Medium, ReadOnly, Served => client_config: Option<String> = unless_empty,
        "A file of client settings for hosted streams, like `--command-config` on the command line: `security.protocol`, `ssl.truststore.location`, `sasl.jaas.config` and others (`docs/security.md`). It is read for each connection of the host and each `kafka` stage without `--bootstrap`, so that certificates and passwords can be renewed. The default is PLAINTEXT.",
        differs = "Kafka has no such key.";
    "streams.refused.modules": List = "exec", LIST, Medium, ReadOnly, Served => refused_modules: Vec<String>,
        "Stages that hosted streams must not use. `exec` runs any program; `file` reads and writes any file that this process can. An empty list allows all but `stdin` and `stdout`, which servers lack.",
        differs = "Kafka has no such key.";
}

family! { REVOCATION "Revoked certificates";
    "ssl.crl.location": String = null, ANY, Medium, PerBroker, Listener,
        "File with certificate revocation lists, in PEM, or one in DER: certificates of clients that they list are refused, and those of brokers and controllers that this node connects to. Needs a list of the authority that signed a certificate, and refuses it when that list's next update is overdue. When the file changes, it counts for new connections.",
        differs = "Kafka has no such key; the name is librdkafka's. Java has system properties instead (`com.sun.net.ssl.checkRevocation`, `com.sun.security.enableCRLDP`).";
}

names! {
    /// What producers' batches are held to.
    ProduceKeys, PRODUCE "Producers' batches";

    "thalweg.produce.validation": String = "records", PRODUCE_VALIDATION, Medium, ClusterWide, Served => validation,
        "How thoroughly a producer's batch is validated before it is stored; topics override it. `records` decompresses the batch and walks its records, as Kafka does: it refuses batches that consumers cannot read, and those with more than 128 MiB of decompressed records. `header` checks only the header and the CRC, unless the topic requires more (compaction, timestamp limits, another codec): use it for trusted producers only, because one invalid batch stops every consumer of its partition.",
        differs = "Kafka has no such key and always walks the records.";
}

pub(super) const PRODUCE_VALIDATION: Check = one_of(&["records", "header"]);

fn listener(address: Option<String>) -> Option<(String, u16)> {
    address.map(|text| listen_address(&text).expect("the key's check parsed it"))
}

fn is_ssl(protocol: String) -> bool {
    protocol.eq_ignore_ascii_case("SSL")
}

fn is_basic(scheme: String) -> bool {
    scheme == "basic"
}

fn joined(servers: Option<Vec<String>>) -> Option<String> {
    servers.map(|servers| servers.join(","))
}
