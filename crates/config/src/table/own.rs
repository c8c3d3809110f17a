//! Thalweg's own keys, without a counterpart in Kafka.
//!
//! One entry per key, as in the tables of Kafka's keys. Kafka must not have the key; `table::tests` checks
//! this.

use std::path::PathBuf;
use std::time::Duration;

use super::declare::{family, names, settings};
use crate::check::{
    ANY, Check, LIST, LIST_OR_NULL, LISTEN_ADDRESS, at_least, between, filled_list_of, list_or_null_of,
    listen_address, one_of, one_of_any_case,
};
use crate::key::Support::{Listener, Served};
use crate::setting::{SecretText, millis_unless_negative, unless_empty};

settings! {
    /// The HTTP server.
    HttpSettings, HTTP "HTTP server";

    "http.listener": String = null, LISTEN_ADDRESS, Medium, ReadOnly, Served => listener: Option<(String, u16)> = listener,
        "`HOST:PORT` of an HTTP server for operators: the console (`docs/console.md`), its API, `/metrics` in Prometheus' text format (`docs/metrics.md`), and `/healthz`, `/readyz` and `/livez`, which are open to all. Off by default, except for `thalweg serve` without a properties file, which takes `localhost:9090` if that port is free (`thalweg.console.enabled`). By default it has neither TLS nor a login: see `http.security.protocol` and `http.authentication`. An empty host means every interface, port 0 a free port.",
        differs = "Kafka has no such key; its metrics need JMX and an exporter.";
    "http.security.protocol": String = "PLAINTEXT", one_of_any_case(&["PLAINTEXT", "SSL"]), Medium, ReadOnly, Served => has_tls: bool = is_ssl,
        "Whether `http.listener` speaks HTTP (`PLAINTEXT`) or HTTPS (`SSL`). Its certificate and everything else of TLS come from the `ssl.` settings, as those of a listener with the name HTTP: `listener.name.http.ssl.keystore.location` overrides `ssl.keystore.location`. With `ssl.client.auth=required` and without `http.authentication`, the client's certificate is its login.",
        differs = "Kafka has no such key.";
    "http.authentication": String = "none", one_of(&["none", "basic"]), Medium, ReadOnly, Served => has_login: bool = is_basic,
        "How clients of `http.listener` log in. `basic` asks for the name and the password of a SCRAM user of the cluster, or of a user in `listener.name.http.plain.sasl.jaas.config`; it needs `http.security.protocol=SSL`, unless only this machine can reach the listener. `listener.name.http.sasl.enabled.mechanisms` limits the users to those of some mechanisms. With an authorizer, reading needs DESCRIBE on the cluster and everything else ALTER (`docs/security.md`).",
        differs = "Kafka has no such key.";
}

settings! {
    /// The console of a node.
    ConsoleSettings, CONSOLE "Console";

    "thalweg.console.enabled": Boolean = "true", ANY, Medium, ReadOnly, Served => enabled: bool,
        "Whether a broker's `http.listener` serves the console (`docs/console.md`): pages and a JSON API for the whole cluster. It connects to this broker as a client with the login of the person who uses it, so that ACLs, quotas and the audit trail apply. Without an `http.listener`, `thalweg serve` without a properties file serves it at `localhost:9090`, if that port is free.",
        differs = "Kafka has no such key, and no console.";
    "thalweg.console.read.only": Boolean = "false", ANY, Medium, ReadOnly, Served => read_only: bool,
        "Whether the console refuses every change.",
        differs = "Kafka has no such key.";
    "thalweg.console.hosts": List = "", LIST, Low, ReadOnly, Served => hosts: Vec<String>,
        "Names by which browsers may call a console without a login, besides `localhost`, IP addresses, the host of `http.listener` and the name of the machine. Any other name is refused, because another site could point its own name to this machine and act through a browser here. A console with a login takes any name.",
        differs = "Kafka has no such key.";
    "thalweg.console.lab.directory": String = null, ANY, Low, ReadOnly, Served => lab_directory: Option<PathBuf> = file,
        "A directory for results of the lab, by which the console may run the lab (`docs/console.md`): those with ALTER on the cluster start built-in workloads on this machine, one at a time, in a separate process, against brokers started for the run or against this cluster. A measurement takes the processor and the disk of the machine. The directory is made by the first run. Off by default.",
        differs = "Kafka has no such key, and no lab.";
    "thalweg.console.client.config": String = null, ANY, Low, ReadOnly, Served => client_config: Option<String> = unless_empty,
        "A file of client settings by which the console connects to this broker, like `--command-config` on the command line: `ssl.truststore.location` and others. The name and the password of the person who uses it take the place of those in the file. By default the console trusts what the listener trusts (`ssl.truststore.location`), or the system.",
        differs = "Kafka has no such key.";
    "thalweg.console.masking": String = null, ANY, Medium, ReadOnly, Served => masking: Option<String> = unless_empty,
        "Rules that hide parts of messages in the console, separated by semicolons, such as `payments: card, /customer/email, header:token = ***; people\\..*: key, value` (`docs/console.md`). Rules also apply to what searches compare. The broker does not start with a rule that it cannot read.",
        differs = "Kafka has no such key.";
    "thalweg.console.masking.file": String = null, ANY, Medium, ReadOnly, Served => masking_file: Option<PathBuf> = file,
        "A file with more rules like those of `thalweg.console.masking`, one on each line. It is read at the start; the broker does not start without it.",
        differs = "Kafka has no such key.";
    "thalweg.console.history.interval.ms": Int[Ms] = "10000", at_least(0), Low, ReadOnly, Served => history_interval: Duration,
        "How often a broker with a console samples its figures for the last hour (`docs/console.md`): throughput, lag, request times, disks. It keeps 360 samples in at most 4 MiB of memory, which is an hour with the default. A broker whose samples take longer than a two-hundredth of the time takes fewer. `0` keeps none.",
        differs = "Kafka has no such key.";
    "thalweg.console.schema.registry.url": String = null, ANY, Medium, ReadOnly, Served => registry_url: Option<String> = unless_empty,
        "The schema registry by which the console decodes keys and values, such as `http://localhost:8081`.",
        differs = "Kafka has no such key; the clients of Confluent have `schema.registry.url`.";
    "thalweg.console.schema.registry.basic.auth.user.info": Password = null, ANY, Low, ReadOnly, Served => registry_user: Option<RegistryUser> = registry_user,
        "`USER:PASSWORD` for the schema registry, if it asks for a login.",
        differs = "Kafka has no such key; the clients of Confluent have `basic.auth.user.info`.";
}

settings! {
    /// Streams that the broker hosts.
    StreamSettings, STREAMS "Hosted streams";

    "streams.enabled": Boolean = "false", ANY, Medium, ReadOnly, Served => enabled: bool,
        "Whether this broker hosts streams (`docs/streams.md`): it starts the streams deployed on it, and `http.listener` serves the API to create, deploy, undeploy and destroy them. A person who may change streams there runs them in this process: restrict that right (`http.authentication`, `streams.allowed.modules`).",
        differs = "Kafka has no such key; Kafka Streams and Connect are separate processes.";
    "streams.bootstrap.servers": List = null, LIST_OR_NULL, Low, ReadOnly, Served => bootstrap: Option<String> = joined,
        "The bootstrap servers of hosted streams, as `HOST:PORT`: for their definitions, for topics between stages and for `kafka` stages without `--bootstrap`. By default this broker's first listener, if it supports the protocol in `streams.client.config`.",
        differs = "Kafka has no such key.";
    "streams.client.config": String = null, ANY, Medium, ReadOnly, Served => client_config: Option<String> = unless_empty,
        "A file of client settings for hosted streams, like `--command-config` on the command line: `security.protocol`, `ssl.truststore.location`, `sasl.jaas.config` and others (`docs/security.md`). It is read for each connection of the host and each `kafka` stage without `--bootstrap`, so that certificates and passwords can be renewed. The default is PLAINTEXT.",
        differs = "Kafka has no such key.";
    "streams.allowed.modules": List = null, list_or_null_of(&["exec", "file", "http", "kafka"]), Medium, ReadOnly, Served => allowed_modules: Option<Vec<String>>,
        "The stages by which hosted streams may reach outside the cluster. `exec` runs any program. `file` reads and writes files of `streams.file.directories`, also for dead letters. `http` opens ports and posts to any server that this machine reaches. `kafka` is for the options `--bootstrap` and `--properties`, thus for other clusters and logins; stages of the broker's own cluster are always allowed. By default none; but where no listener can be reached from other machines, and there is no authorizer, all but `exec`.",
        differs = "Kafka has no such key.";
    "streams.file.directories": List = null, LIST_OR_NULL, Medium, ReadOnly, Served => file_directories: Option<Vec<String>>,
        "Directories whose files hosted streams may read and write: those of `file` and of dead letters. A path is checked behind links and `..`. Only trusted users may be able to write to these directories, and none of them should contain secrets. By default none; but all files where no listener can be reached from other machines, and there is no authorizer.",
        differs = "Kafka has no such key.";
    "streams.properties.directories": List = null, LIST_OR_NULL, Low, ReadOnly, Served => properties_directories: Option<Vec<String>>,
        "Directories of client settings for `--properties` of `kafka`, and of certificates for `--caFile` of `http`, in hosted streams. Settings may name other files of the machine, such as tokens and key stores, so that streams must not be able to write them: files that are also in `streams.file.directories` are refused. By default none; but all files where no listener can be reached from other machines, and there is no authorizer.",
        differs = "Kafka has no such key.";
    "streams.refused.modules": List = null, LIST_OR_NULL, Medium, ReadOnly, Served => refused_modules: Option<Vec<String>>,
        "Stages that hosted streams must not use, whatever `streams.allowed.modules` says. By default none but `exec`, unless that is allowed by name; an empty list allows `exec`, too, where all stages are allowed by default. Servers have neither `stdin` nor `stdout`.",
        differs = "Kafka has no such key.";
}

family! { REVOCATION "Revoked certificates";
    "ssl.crl.location": String = null, ANY, Medium, PerBroker, Listener,
        "File with certificate revocation lists, in PEM, or one in DER: certificates of clients that they list are refused, and those of brokers and controllers that this node connects to. Needs a list of the authority that signed a certificate, and refuses it when that list's next update is overdue. When the file changes, it counts for new connections.",
        differs = "Kafka has no such key; the name is librdkafka's. Java has system properties instead (`com.sun.net.ssl.checkRevocation`, `com.sun.security.enableCRLDP`).";
}

names! {
    /// Validation of producers' batches.
    ProduceKeys, PRODUCE "Producers' batches";

    "thalweg.produce.validation": String = "records", PRODUCE_VALIDATION, Medium, ClusterWide, Served => validation,
        "How thoroughly a producer's batch is validated before it is stored; topics override it. `records` decompresses the batch and walks its records, as Kafka does: it refuses batches that consumers cannot read, and those with more than 128 MiB of decompressed records. `header` checks only the header and the CRC, unless the topic requires more (compaction, timestamp limits, another codec): use it for trusted producers only, because one invalid batch stops every consumer of its partition.",
        differs = "Kafka has no such key and always walks the records.";
}

settings! {
    /// The audit trail.
    AuditSettings, AUDIT "Audit trail";

    "thalweg.audit.file": String = null, ANY, Medium, ReadOnly, Served => file: Option<PathBuf> = file,
        "A file to which audit events are written, one JSON object per line (`docs/security.md`). Its directory must exist. The file is created with mode 0600. Off by default; `thalweg serve --secure` writes to `audit.log` in the first data directory.",
        differs = "Kafka has no such key; its authorizer logs decisions only.";
    "thalweg.audit.file.max.bytes": Long[Bytes] = "104857600", at_least(4096), Low, ReadOnly, Served => file_bytes_max: u64,
        "The size at which the audit file is renamed to `FILE.1`, `FILE.1` to `FILE.2` and so on, and a new one begins.",
        differs = "Kafka has no such key.";
    "thalweg.audit.file.count": Int = "10", between(1, 1000), Low, ReadOnly, Served => files_max: usize,
        "How many audit files are kept, with the one that is written; older ones are deleted.",
        differs = "Kafka has no such key.";
    "thalweg.audit.topic": String = null, ANY, Medium, ReadOnly, Served => topic: Option<String> = unless_empty,
        "A topic of the cluster to which audit events are written, as records with a JSON object each. It is created with the defaults of the cluster if it is missing. Only brokers write to it; a controller without a broker needs `thalweg.audit.file`.",
        differs = "Kafka has no such key.";
    "thalweg.audit.events": List = "denied,logins,administration", filled_list_of(&["denied", "allowed", "logins", "administration", "all"]), Medium, ReadOnly, Served => kinds: Vec<AuditKind> = audit_kinds,
        "The events of the audit trail. `denied` and `allowed`: decisions of the authorizer, but not permissions of brokers to act in the cluster, nor those on the topic of the trail itself. `logins`: by SASL, client certificate or HTTP, with the reason of a failure. `administration`: changes of the cluster, and whether they succeeded. `all`: everything.",
        differs = "Kafka has no such key.";
    "thalweg.audit.events.per.second": Int = "1000", at_least(1), Low, ReadOnly, Served => events_per_second: u32,
        "The most audit events in a second, for each of the four kinds of `thalweg.audit.events`, so that a flood of one kind does not hide another. More are dropped, counted in `thalweg_audit_events_dropped_total`, and reported in the trail.",
        differs = "Kafka has no such key.";
}

settings! {
    /// The data directories.
    DirectorySettings, DIRECTORIES "Data directories";

    "thalweg.log.dirs.add": Boolean = "false", ANY, Medium, ReadOnly, Served => adds: bool,
        "Whether a directory of `log.dirs` that was never used may be added to others that were. Otherwise the start is refused, because its disk may not be mounted, and partitions whose only replica is there would start empty. Set it for one start, with `--set`.",
        differs = "Kafka has no such key: a directory is added with `kafka-storage.sh format --ignore-formatted`, which works, too.";
}

settings! {
    LogLineSettings, LOG_LINES "Log lines";

    "thalweg.log.format": String = "text", one_of(&["text", "json"]), Low, ReadOnly, Served => is_json: bool = is_json,
        "The form of the lines on standard error: `text` for people, `json` for programs, one object a line with `timestamp`, `level`, `target`, `message` and `fields` (`docs/logging.md`). `thalweg serve --log-format` sets it, too.",
        differs = "Kafka has no such key; the file of log4j2 describes its logs.";
    "thalweg.log.slow.request.ms": Long[Ms] = "10000", ANY, Low, ReadOnly, Served => slow_request: Option<Duration> = millis_unless_negative,
        "How long a request may take before it is logged, with its API, client and what it waited for. Requests that wait by their nature (Fetch, JoinGroup, SyncGroup) are not logged for that. `-1` logs none.",
        differs = "Kafka has no such key; its request log at level DEBUG has all requests.";
}

/// A kind of audit events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuditKind {
    /// Decisions that refuse something.
    Denied,
    /// Decisions that grant something.
    Allowed,
    /// Logins, successful or not.
    Logins,
    /// Changes of the cluster, successful or not.
    Administration,
}

impl AuditKind {
    pub const ALL: [AuditKind; 4] =
        [AuditKind::Denied, AuditKind::Allowed, AuditKind::Logins, AuditKind::Administration];

    /// The name in `thalweg.audit.events`.
    pub const fn name(self) -> &'static str {
        match self {
            AuditKind::Denied => "denied",
            AuditKind::Allowed => "allowed",
            AuditKind::Logins => "logins",
            AuditKind::Administration => "administration",
        }
    }
}

fn audit_kinds(names: Vec<String>) -> Vec<AuditKind> {
    let is_named = |kind: &AuditKind| names.iter().any(|name| name == "all" || name == kind.name());
    AuditKind::ALL.into_iter().filter(is_named).collect()
}

fn file(path: Option<String>) -> Option<PathBuf> {
    unless_empty(path).map(PathBuf::from)
}

pub(super) const PRODUCE_VALIDATION: Check = one_of(&["records", "header"]);

/// A `USER:PASSWORD` for a schema registry.
#[derive(Clone, PartialEq, Eq)]
pub struct RegistryUser(pub String);

impl std::fmt::Debug for RegistryUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RegistryUser([hidden])")
    }
}

fn registry_user(text: Option<SecretText>) -> Option<RegistryUser> {
    text.map(|text| RegistryUser(text.0)).filter(|user| !user.0.is_empty())
}

fn listener(address: Option<String>) -> Option<(String, u16)> {
    address.map(|text| listen_address(&text).expect("the key's check parsed it"))
}

fn is_ssl(protocol: String) -> bool {
    protocol.eq_ignore_ascii_case("SSL")
}

fn is_json(format: String) -> bool {
    format == "json"
}

fn is_basic(scheme: String) -> bool {
    scheme == "basic"
}

fn joined(servers: Option<Vec<String>>) -> Option<String> {
    servers.map(|servers| servers.join(","))
}
