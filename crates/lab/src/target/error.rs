//! Errors of starting a target: a struct per failure, with advice.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thalweg_authority::AuthorityError;
use thalweg_client::{ClientError, InvalidSetting};

use super::BROKERS_MAX;
use super::pulsar::{AdminFailure, InvalidAdminUrl, PULSAR_ARTIFACT, PULSAR_NODE_MB_MIN, PULSAR_VERSION};
pub use crate::cgroup::NoControlGroups;

/// Why a target could not be started.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// A number of brokers that cannot be started.
    #[error(transparent)]
    InvalidBrokers(#[from] InvalidBrokers),
    /// A port is taken.
    #[error(transparent)]
    PortTaken(#[from] PortTaken),
    /// A running cluster is too small.
    #[error(transparent)]
    TooFewBrokers(#[from] TooFewBrokers),
    /// A broker property that the lab sets itself.
    #[error(transparent)]
    PropertyOwned(#[from] PropertyOwned),
    /// Java is missing.
    #[error(transparent)]
    JavaMissing(#[from] JavaMissing),
    /// Java is too old.
    #[error(transparent)]
    JavaTooOld(#[from] JavaTooOld),
    /// Java is too new for an old release.
    #[error(transparent)]
    JavaTooNew(#[from] JavaTooNew),
    /// Logins at brokers with ZooKeeper.
    #[error(transparent)]
    ZooKeeperLoginsUnserved(#[from] ZooKeeperLoginsUnserved),
    /// Pulsar's script cannot be made to run this Java.
    #[error(transparent)]
    JavaWithoutHome(#[from] JavaWithoutHome),
    /// Pulsar's distribution is missing.
    #[error(transparent)]
    PulsarMissing(#[from] PulsarMissing),
    /// Pulsar with several brokers.
    #[error(transparent)]
    PulsarClusterUnserved(#[from] PulsarClusterUnserved),
    /// Pulsar on a node with too little memory.
    #[error(transparent)]
    PulsarMemoryTooSmall(#[from] PulsarMemoryTooSmall),
    /// A path that Pulsar's script cannot take.
    #[error(transparent)]
    PulsarPathUnserved(#[from] PulsarPathUnserved),
    /// Pulsar with TLS or logins.
    #[error(transparent)]
    PulsarSecurityUnserved(#[from] PulsarSecurityUnserved),
    /// The URL of Pulsar's admin API is invalid.
    #[error(transparent)]
    InvalidAdminUrl(#[from] InvalidAdminUrl),
    /// The jars are missing, and so is Maven to fetch them.
    #[error(transparent)]
    MavenMissing(#[from] MavenMissing),
    /// Maven failed to fetch the jars.
    #[error(transparent)]
    JarsNotFetched(#[from] JarsNotFetched),
    /// A directory or file could not be created.
    #[error(transparent)]
    DirectoryFailed(#[from] DirectoryFailed),
    /// A program did not start.
    #[error(transparent)]
    NotStarted(#[from] NotStarted),
    /// Kafka refused to format a directory.
    #[error(transparent)]
    FormatFailed(#[from] FormatFailed),
    /// A broker exited during the start.
    #[error(transparent)]
    BrokerDied(#[from] BrokerDied),
    /// The brokers did not become ready in time.
    #[error(transparent)]
    BrokerNotReady(#[from] BrokerNotReady),
    /// The nodes cannot be limited here.
    #[error(transparent)]
    NoControlGroups(#[from] NoControlGroups),
    /// The nodes' limits exceed the machine.
    #[error(transparent)]
    LimitsExceeded(#[from] LimitsExceeded),
    /// A certificate could not be made.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// A running cluster does not answer.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// A number of brokers that cannot be started on one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cluster.brokers = {brokers}: use 1 to {BROKERS_MAX} for brokers that the lab starts")]
pub struct InvalidBrokers {
    /// The requested number.
    pub brokers: u32,
}

/// A port that a cluster needs is taken.
#[derive(Debug, thiserror::Error)]
#[error(
    "Port {port} of 127.0.0.1, which {user} needs, is not available: {source}{}. Use another first port, or 0 \
     for free ones", listener.as_ref().map(|listener| format!(", by {listener}")).unwrap_or_default()
)]
pub struct PortTaken {
    pub port: u16,
    /// The node that needs the port.
    pub user: String,
    /// The program that listens on the port, if known.
    pub listener: Option<String>,
    /// The system's error.
    pub source: io::Error,
}

/// The nodes' limits together exceed the machine, so that the limits would not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{brokers} nodes of {limits} need {requested}, but this machine has {found}, and the clients need some, too: use a point with \
     smaller nodes, or a larger machine"
)]
pub struct LimitsExceeded {
    /// Number of nodes.
    pub brokers: u32,
    /// The limits of each node.
    pub limits: String,
    /// The total of the limits.
    pub requested: String,
    /// The machine's capacity.
    pub found: String,
}

/// A running cluster has fewer brokers than the point needs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cluster.brokers = {requested}, but the cluster at {bootstrap} has {found}: use a point for at most {found}"
)]
pub struct TooFewBrokers {
    /// The bootstrap servers.
    pub bootstrap: String,
    /// The requested number.
    pub requested: u32,
    /// The actual number.
    pub found: usize,
}

/// A broker property that the lab sets itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{table}: {key} is set by the lab for each broker; remove it")]
pub struct PropertyOwned {
    /// The table of the workload with the property.
    pub table: &'static str,
    /// The property's name.
    pub key: String,
}

/// Java is missing.
#[derive(Debug, thiserror::Error)]
#[error(
    "{system} needs Java {least} or later, but {program} cannot be run: {source}. Install one (Debian: apt install \
     openjdk-17-jre-headless), or set JAVA_HOME"
)]
pub struct JavaMissing {
    /// The system that needs it.
    pub system: &'static str,
    /// The oldest Java that it supports.
    pub least: u32,
    /// The program that was tried.
    pub program: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

/// Java is too old, or its version unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{system} needs Java {least} or later, but {program} is {found:?}. Install a later one (Debian: apt \
     install openjdk-17-jre-headless), or set JAVA_HOME, or --java"
)]
pub struct JavaTooOld {
    /// The system that needs it, with its release.
    pub system: String,
    /// The oldest Java that it supports.
    pub least: u32,
    /// The program that was tried.
    pub program: PathBuf,
    /// The version line in the output of `java -version`, otherwise the first line.
    pub found: String,
}

/// The found Java is newer than an old release can run on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{system} runs on Java {least} to {most}, because its ZooKeeper resolves no addresses on later ones, but {program} is \
     {found:?}. Name an older one by --java"
)]
pub struct JavaTooNew {
    /// The system, with its release.
    pub system: String,
    /// The oldest Java that it supports.
    pub least: u32,
    /// The newest Java that it runs on.
    pub most: u32,
    /// The program that was tried.
    pub program: PathBuf,
    /// The version line in the output of `java -version`.
    pub found: String,
}

/// Logins at brokers with ZooKeeper, where the first user cannot be made before the start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Apache Kafka {release} has ZooKeeper, and the lab starts it without logins: use PLAINTEXT or SSL, or a release from 3.3.0 on"
)]
pub struct ZooKeeperLoginsUnserved {
    /// The release of Apache Kafka.
    pub release: String,
}

/// A Java that is no `bin/java` of a directory, which is all that Pulsar's script runs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Apache Pulsar's script runs the bin/java of a directory, but {program} is not one. Name the directory or its bin/java by \
     JAVA_HOME or --java"
)]
pub struct JavaWithoutHome {
    /// The program, without symbolic links.
    pub program: PathBuf,
}

/// Pulsar's distribution is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Apache Pulsar is not in {home}. Fetch and unpack its distribution (245 MB): mvn dependency:copy -Dartifact={PULSAR_ARTIFACT} \
     -DoutputDirectory=DIR, then tar -xzf DIR/pulsar-server-distribution-{PULSAR_VERSION}-bin.tar.gz -C DIR, and set \
     PULSAR_HOME=DIR/apache-pulsar-{PULSAR_VERSION}. It needs Java 17 or later; found: {java_version}"
)]
pub struct PulsarMissing {
    /// The directory that was tried.
    pub home: PathBuf,
    /// The version of the Java that would be used.
    pub java_version: String,
}

/// Pulsar with several brokers, which the lab does not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cluster.brokers = {brokers}: the target pulsar is one process, broker, bookie and metadata store. Use a point with 1 broker, \
     or a running cluster: --bootstrap pulsar://HOST:PORT"
)]
pub struct PulsarClusterUnserved {
    /// The requested number of brokers.
    pub brokers: u32,
}

/// Pulsar on a node with too little memory for its JVM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cluster.node_memory_mb = {memory_mb}: the target pulsar needs {PULSAR_NODE_MB_MIN} MB or more")]
pub struct PulsarMemoryTooSmall {
    /// The limit of the node, in MiB.
    pub memory_mb: u32,
}

/// A path with white space or a wildcard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Apache Pulsar's script cannot take {path}: a path with a space, *, ? or [ is taken apart. Use another one (--work-dir, \
     PULSAR_HOME, --java)"
)]
pub struct PulsarPathUnserved {
    /// The path of data, of the distribution, or of Java.
    pub path: PathBuf,
}

/// Pulsar with TLS or logins, which the lab's client lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "The target pulsar has no {protocol}: the lab's client of Pulsar has neither TLS nor logins. Use PLAINTEXT"
)]
pub struct PulsarSecurityUnserved {
    /// The requested protocol.
    pub protocol: &'static str,
}

/// The jars are missing, and so is Maven to fetch them.
#[derive(Debug, thiserror::Error)]
#[error(
    "The jars of Apache Kafka {version} are not in {cache}, and Maven, which would fetch them, cannot be run: \
     {source}. Install it (Debian: apt install maven), or set KAFKA_CLASSPATH to the jars, as in \
     KAFKA_CLASSPATH='/opt/kafka/libs/*'"
)]
pub struct MavenMissing {
    /// The release of Kafka.
    pub version: String,
    /// The cache path of the list of jars.
    pub cache: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

/// Maven failed to fetch the jars.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Maven could not fetch Apache Kafka {version} ({pom}): {reason}. Give Maven access to a repository, or set \
     KAFKA_CLASSPATH to the jars"
)]
pub struct JarsNotFetched {
    /// The release of Kafka.
    pub version: String,
    /// The project file for Maven.
    pub pom: PathBuf,
    /// The end of Maven's output.
    pub reason: String,
}

/// A directory or file could not be created.
#[derive(Debug, thiserror::Error)]
#[error("Cannot write {path}: {source}")]
pub struct DirectoryFailed {
    /// The directory or file.
    pub path: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

/// A program did not start.
#[derive(Debug, thiserror::Error)]
#[error("Cannot start {program}: {source}")]
pub struct NotStarted {
    pub program: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

/// Kafka refused to format a directory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kafka.tools.StorageTool could not format the directory of {name}:\n{output}")]
pub struct FormatFailed {
    /// The name of the broker.
    pub name: String,
    /// The end of the tool's output.
    pub output: String,
}

/// A broker exited unexpectedly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} (process {pid}) exited unexpectedly with {status}; the end of its log:\n{log_tail}")]
pub struct BrokerDied {
    /// The name of the broker.
    pub name: String,
    /// The broker's process id.
    pub pid: u32,
    /// The broker's exit status.
    pub status: String,
    /// The last lines of the broker's log.
    pub log_tail: String,
}

/// The brokers did not become ready in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "The brokers at {bootstrap} did not all serve within {} s: {reason}; the end of the log of {name}:\n{log_tail}",
    waited.as_secs()
)]
pub struct BrokerNotReady {
    /// The brokers' addresses.
    pub bootstrap: String,
    /// The time limit.
    pub waited: Duration,
    /// The reason why the brokers are not ready.
    pub reason: String,
    /// The broker whose log follows.
    pub name: String,
    /// The last lines of its log.
    pub log_tail: String,
}

/// A cluster does not answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConnectError {
    /// No server accepts connections.
    #[error(
        "No server of {bootstrap} can be reached: {reasons}. Check the address, and that the cluster runs"
    )]
    Unreachable {
        /// The cluster's addresses.
        bootstrap: String,
        /// The cause for each server.
        reasons: String,
    },
    /// No broker answers.
    #[error("Cannot connect to {bootstrap}: {source}")]
    Client {
        /// The cluster's addresses.
        bootstrap: String,
        source: ClientError,
    },
    /// The admin API of a Pulsar cluster does not answer.
    #[error("Pulsar's admin API does not answer: {source}. Name it by --pulsar-admin http://HOST:PORT")]
    PulsarAdmin { source: AdminFailure },
    /// The URL of the admin API of a Pulsar cluster is invalid.
    #[error(transparent)]
    PulsarAdminUrl { source: InvalidAdminUrl },
    /// An invalid client property.
    #[error("Invalid client property for {bootstrap}: {source}")]
    Setting {
        /// The cluster's addresses.
        bootstrap: String,
        /// The property, and the cause.
        source: InvalidSetting,
    },
}
