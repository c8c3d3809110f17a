//! Arguments for targets and drivers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use thalweg_client::{Properties, bootstrap_servers};
use thalweg_lab::target::{KafkaOptions, KafkaVersion, TargetSpec};
use thalweg_lab::worker::Driver;
use thalweg_lab::workload::{ClusterSecurity, Point, SaslMechanism, SecurityProtocol};

use super::arguments::HIDDEN;
use crate::failure::Usage;

/// A target that the lab starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TargetName {
    /// Brokers of this binary, started for the run and removed after it.
    Embedded,
    /// Apache Kafka, started for the run and removed after it; needs Java and, once, Maven.
    ApacheKafka,
}

/// The targets.
#[derive(Args, Debug, Clone)]
pub(crate) struct Targets {
    /// The target; can be repeated, then targets take turns [default: embedded, unless --bootstrap is given].
    #[arg(long = "target", value_name = "TARGET")]
    targets: Vec<TargetName>,
    #[command(flatten)]
    kafka: KafkaArguments,
    #[command(flatten)]
    cluster: RunningCluster,
}

/// How Apache Kafka is started.
#[derive(Args, Debug, Clone)]
pub(crate) struct KafkaArguments {
    /// The release of the target apache-kafka, from 3.3.0 on [default: that of KAFKA_CLASSPATH, or else
    /// 4.3.1].
    #[arg(long, value_name = "VERSION")]
    kafka_version: Option<KafkaVersion>,
    /// The Java of the target apache-kafka: the program, or its JAVA_HOME [default: that of JAVA_HOME, or
    /// else of PATH].
    #[arg(long, value_name = "PATH")]
    java: Option<PathBuf>,
    /// Options of the JVMs of the target apache-kafka, after the lab's own, such as '-Xmx4g -XX:+UseZGC'.
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    jvm_options: Option<String>,
}

/// A running cluster.
#[derive(Args, Debug, Clone)]
pub(crate) struct RunningCluster {
    /// The bootstrap servers of a running cluster.
    #[arg(long, value_name = "HOST:PORT,...")]
    bootstrap: Option<String>,
    /// A client setting for that cluster, for example request.timeout.ms=60000; can be repeated.
    #[arg(long = "property", value_name = "KEY=VALUE", requires = "bootstrap")]
    properties: Vec<String>,
    /// A properties file with client settings for that cluster.
    #[arg(long, value_name = "FILE", requires = "bootstrap")]
    client_config: Option<PathBuf>,
}

/// The drivers.
#[derive(Args, Debug, Clone)]
pub(crate) struct Drivers {
    /// The client that produces and consumes; can be repeated, then drivers take turns [default: set by the
    /// workload, or else thalweg].
    #[arg(long = "driver", value_name = "DRIVER")]
    drivers: Vec<Driver>,
}

/// Security of the brokers that the lab starts, and of their clients.
#[derive(Args, Debug, Clone)]
pub(crate) struct SecurityArguments {
    /// Security protocol of clients and brokers that the lab starts; certificates and passwords are made for
    /// the run [default: set by the workload, or else PLAINTEXT].
    #[arg(long, value_name = "PROTOCOL", ignore_case = true)]
    security_protocol: Option<SecurityProtocol>,
    /// SASL mechanism of these clients and brokers [default: set by the workload, or else SCRAM-SHA-512].
    #[arg(long, value_name = "MECHANISM", ignore_case = true)]
    sasl_mechanism: Option<SaslMechanism>,
}

impl SecurityArguments {
    /// Rejects these arguments if the lab starts no brokers.
    pub fn check(&self, targets: &[TargetSpec]) -> anyhow::Result<()> {
        let given = self.security_protocol.is_some() || self.sasl_mechanism.is_some();
        let starts = targets.iter().any(|target| !matches!(target, TargetSpec::Bootstrap { .. }));
        if given && !starts {
            let instead = "use --client-config, or --property security.protocol=PROTOCOL";
            let why = "have no effect on a running cluster, which is as it is";
            return Err(Usage(format!("--security-protocol and --sasl-mechanism {why}: {instead}")).into());
        }
        Ok(())
    }

    /// Applies these arguments to a point.
    pub fn apply(&self, point: &mut Point) -> anyhow::Result<()> {
        let cluster = &mut point.cluster;
        if cluster.brokers == 0 {
            return Ok(());
        }
        let protocol = self.security_protocol.unwrap_or(cluster.security.protocol);
        if self.sasl_mechanism.is_some() && !protocol.has_sasl() {
            let right = "add --security-protocol SASL_SSL, or SASL_PLAINTEXT";
            let message = format!("--sasl-mechanism has no effect with {}: {right}", protocol.name());
            return Err(Usage(message).into());
        }
        let mechanism = self.sasl_mechanism.or(cluster.security.mechanism);
        cluster.security = ClusterSecurity::new(protocol, mechanism);
        Ok(())
    }
}

impl Targets {
    /// How the target apache-kafka is started. Refused without it.
    pub fn kafka(&self) -> anyhow::Result<KafkaOptions> {
        let KafkaArguments { kafka_version, java, jvm_options } = &self.kafka;
        let given = [
            ("--kafka-version", kafka_version.is_some()),
            ("--java", java.is_some()),
            ("--jvm-options", jvm_options.is_some()),
        ];
        if let Some((name, _)) = given.into_iter().find(|(_, given)| *given)
            && !self.targets.contains(&TargetName::ApacheKafka)
        {
            return Err(Usage(format!("{name} has no effect: add --target apache-kafka")).into());
        }
        let options = jvm_options.iter().flat_map(|text| text.split_whitespace()).map(str::to_owned);
        Ok(KafkaOptions { version: *kafka_version, java: java.clone(), jvm_options: options.collect() })
    }

    /// All targets, each once.
    pub fn specs(&self) -> anyhow::Result<Vec<TargetSpec>> {
        let mut specs = Vec::new();
        for target in &self.targets {
            let spec = match target {
                TargetName::Embedded => TargetSpec::Embedded,
                TargetName::ApacheKafka => TargetSpec::ApacheKafka,
            };
            if !specs.contains(&spec) {
                specs.push(spec);
            }
        }
        specs.extend(self.cluster.spec()?);
        if specs.is_empty() {
            specs.push(TargetSpec::Embedded);
        }
        Ok(specs)
    }
}

impl RunningCluster {
    /// The cluster of `--bootstrap`, if given.
    pub fn spec(&self) -> anyhow::Result<Option<TargetSpec>> {
        let Some(bootstrap) = &self.bootstrap else { return Ok(None) };
        let servers = bootstrap_servers(bootstrap)?;
        let mut properties = BTreeMap::new();
        if let Some(path) = &self.client_config {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("Cannot read --client-config {}", path.display()))?;
            let parsed = Properties::parse(&text).resolve().with_context(|| path.display().to_string())?;
            let keys: Vec<String> = parsed.rest().map(str::to_owned).collect();
            properties.extend(
                keys.into_iter()
                    .filter_map(|key| parsed.get(&key).map(str::to_owned).map(|value| (key, value))),
            );
        }
        for text in &self.properties {
            let (key, value) = text.split_once('=').ok_or_else(|| {
                Usage(format!("--property {text} is not a setting: use KEY=VALUE, such as acks=all"))
            })?;
            if value == HIDDEN {
                let again = "results do not contain secrets, so add it again";
                return Err(Usage(format!("--property {key} has no value; {again}")).into());
            }
            properties.insert(key.trim().to_owned(), value.to_owned());
        }
        // Only --bootstrap sets the addresses.
        properties.remove("bootstrap.servers");
        Ok(Some(TargetSpec::Bootstrap { servers, properties }))
    }
}

impl Drivers {
    /// All drivers, each once.
    pub fn all(&self) -> Vec<Driver> {
        let mut drivers = Vec::new();
        for driver in &self.drivers {
            if !drivers.contains(driver) {
                drivers.push(*driver);
            }
        }
        drivers
    }
}
