//! Why a target could not be started: a struct per failure, each with what would be right.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thalweg_client::{ClientError, InvalidSetting};

use super::BROKERS_MAX;
use super::jars::KAFKA_VERSION;

/// Why a target could not be started.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// A number of brokers that cannot be started.
    #[error(transparent)]
    InvalidBrokers(#[from] InvalidBrokers),
    /// A port that a cluster was to have.
    #[error(transparent)]
    PortTaken(#[from] PortTaken),
    /// A running cluster is smaller than the point needs.
    #[error(transparent)]
    TooFewBrokers(#[from] TooFewBrokers),
    /// A broker property that is the lab's to set.
    #[error(transparent)]
    PropertyOwned(#[from] PropertyOwned),
    /// There is no Java.
    #[error(transparent)]
    JavaMissing(#[from] JavaMissing),
    /// Java is too old.
    #[error(transparent)]
    JavaTooOld(#[from] JavaTooOld),
    /// There are no jars, and no Maven to fetch them.
    #[error(transparent)]
    MavenMissing(#[from] MavenMissing),
    /// Maven did not bring the jars.
    #[error(transparent)]
    JarsNotFetched(#[from] JarsNotFetched),
    /// A directory or file could not be made.
    #[error(transparent)]
    DirectoryFailed(#[from] DirectoryFailed),
    /// A program did not start.
    #[error(transparent)]
    NotStarted(#[from] NotStarted),
    /// Kafka refused to format a directory.
    #[error(transparent)]
    FormatFailed(#[from] FormatFailed),
    /// A broker ended while the others were awaited.
    #[error(transparent)]
    BrokerDied(#[from] BrokerDied),
    /// The brokers did not serve in time.
    #[error(transparent)]
    BrokerNotReady(#[from] BrokerNotReady),
    /// A running cluster cannot be spoken to.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// A number of brokers that cannot be started on one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cluster.brokers = {brokers}: 1 to {BROKERS_MAX} would be right for brokers that the lab starts")]
pub struct InvalidBrokers {
    /// What was asked for.
    pub brokers: u32,
}

/// A port that a cluster was to have is not free.
#[derive(Debug, thiserror::Error)]
#[error(
    "Port {port} of 127.0.0.1, which {user} needs, cannot be listened on: {source}{}. Another first port would be right, or 0 \
     for free ones", listener.as_ref().map(|listener| format!(", by {listener}")).unwrap_or_default()
)]
pub struct PortTaken {
    /// The port.
    pub port: u16,
    /// The node that was to have it.
    pub user: String,
    /// Who listens there, as far as it says.
    pub listener: Option<String>,
    /// What the system said.
    pub source: io::Error,
}

/// A running cluster has fewer brokers than the point needs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cluster.brokers = {asked}, but the cluster at {bootstrap} has {found}: a point for at most {found} would be right"
)]
pub struct TooFewBrokers {
    /// Where the cluster is.
    pub bootstrap: String,
    /// What was asked for.
    pub asked: u32,
    /// What is there.
    pub found: usize,
}

/// A broker property that the lab sets by itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cluster.properties: {key} is set by the lab for each broker; leave it out")]
pub struct PropertyOwned {
    /// The property.
    pub key: String,
}

/// There is no Java.
#[derive(Debug, thiserror::Error)]
#[error(
    "Apache Kafka needs Java 17 or later, and {program} does not run: {source}. Install one (Debian: apt install \
     openjdk-17-jre-headless), or let JAVA_HOME name the one to take"
)]
pub struct JavaMissing {
    /// What was tried.
    pub program: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// Java is too old, or not to be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Apache Kafka {KAFKA_VERSION} needs Java 17 or later, and {program} is {found:?}. Install a later one (Debian: apt \
     install openjdk-17-jre-headless), or let JAVA_HOME name the one to take"
)]
pub struct JavaTooOld {
    /// What was tried.
    pub program: PathBuf,
    /// The first line that it prints about its version.
    pub found: String,
}

/// There are no jars, and no Maven to fetch them.
#[derive(Debug, thiserror::Error)]
#[error(
    "The jars of Apache Kafka {KAFKA_VERSION} are not in {cache} and Maven, which would fetch them, does not run: \
     {source}. Install it (Debian: apt install maven), or let KAFKA_CLASSPATH name the jars, as in \
     KAFKA_CLASSPATH='/opt/kafka/libs/*'"
)]
pub struct MavenMissing {
    /// Where the jars' names would be kept.
    pub cache: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// Maven did not bring the jars.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Maven could not fetch Apache Kafka {KAFKA_VERSION} ({pom}): {reason}. A Maven that reaches a repository would be \
     right, or KAFKA_CLASSPATH with the jars"
)]
pub struct JarsNotFetched {
    /// What Maven was given.
    pub pom: PathBuf,
    /// The end of what it said.
    pub reason: String,
}

/// A directory or file could not be made.
#[derive(Debug, thiserror::Error)]
#[error("Cannot write {path}: {source}")]
pub struct DirectoryFailed {
    /// The directory or file.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// A program did not start.
#[derive(Debug, thiserror::Error)]
#[error("Cannot start {program}: {source}")]
pub struct NotStarted {
    /// The program.
    pub program: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// Kafka refused to format a directory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kafka.tools.StorageTool could not format the directory of {name}:\n{output}")]
pub struct FormatFailed {
    /// The broker.
    pub name: String,
    /// The end of what it said.
    pub output: String,
}

/// A broker ended that nobody had told to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} (process {pid}) ended by itself with {status}; the end of its log:\n{log_tail}")]
pub struct BrokerDied {
    /// The broker.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// How it ended.
    pub status: String,
    /// The last lines of its log.
    pub log_tail: String,
}

/// The brokers did not serve in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "The brokers at {bootstrap} did not all serve within {} s: {reason}; the end of the log of {name}:\n{log_tail}",
    waited.as_secs()
)]
pub struct BrokerNotReady {
    /// Where they were awaited.
    pub bootstrap: String,
    /// How long.
    pub waited: Duration,
    /// What was missing at the end.
    pub reason: String,
    /// The broker whose log follows.
    pub name: String,
    /// The last lines of its log.
    pub log_tail: String,
}

/// A cluster cannot be spoken to.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConnectError {
    /// No broker answers.
    #[error("{bootstrap} cannot be spoken to: {source}")]
    Client {
        /// Where it should be.
        bootstrap: String,
        /// Why.
        source: ClientError,
    },
    /// A client property that cannot be.
    #[error("A client property for {bootstrap} cannot be: {source}")]
    Setting {
        /// Where it should be.
        bootstrap: String,
        /// Which, and why.
        source: InvalidSetting,
    },
}
