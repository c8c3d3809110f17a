//! Arguments for targets and drivers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use thalweg_client::{Properties, bootstrap_servers};
use thalweg_lab::run::targets_of;
use thalweg_lab::target::{
    KafkaOptions, KafkaVersion, TargetError, TargetSpec, default_admin_url, kafka_jars, pulsar_distribution,
};
use thalweg_lab::worker::Driver;
use thalweg_lab::workload::{ClusterSecurity, Point, SaslMechanism, SecurityProtocol, TargetName, Workload};

use super::arguments::HIDDEN;
use crate::failure::Usage;

/// The beginning of service URLs of Apache Pulsar, also of those with TLS, which are refused later.
const PULSAR_SCHEMES: [&str; 2] = ["pulsar://", "pulsar+ssl://"];

/// The targets of a run.
#[derive(Clone, Debug)]
pub(crate) struct RunTargets {
    pub specs: Vec<TargetSpec>,
    /// True if the user has named none: each workload has its own.
    pub by_workload: bool,
}

impl RunTargets {
    /// Leaves out targets of workloads that are not installed, with a message. A target that the user has
    /// named stays, and its points fail.
    pub async fn leave_out_missing(&mut self, options: &KafkaOptions) -> anyhow::Result<()> {
        if !self.by_workload {
            return Ok(());
        }
        let mut kept = Vec::new();
        let mut reasons = Vec::new();
        for spec in std::mem::take(&mut self.specs) {
            match is_installed(&spec, options.clone()).await {
                Ok(()) => kept.push(spec),
                Err((name, reason)) => {
                    tracing::warn!("Skipped {name}, which is not measured: {reason}");
                    reasons.push(reason.to_string());
                }
            }
        }
        if kept.is_empty() {
            return Err(Usage(format!("No target is there: {}", reasons.join("; "))).into());
        }
        self.specs = kept;
        Ok(())
    }
}

/// Fails with the name of a system that is not installed.
async fn is_installed(spec: &TargetSpec, options: KafkaOptions) -> Result<(), (&'static str, TargetError)> {
    let name = match spec {
        TargetSpec::ApacheKafka => "Apache Kafka",
        TargetSpec::Pulsar => "Apache Pulsar",
        TargetSpec::Embedded | TargetSpec::Bootstrap { .. } | TargetSpec::PulsarCluster { .. } => {
            return Ok(());
        }
    };
    let is_pulsar = spec.is_pulsar();
    let find = move || match is_pulsar {
        true => pulsar_distribution(options.java.as_deref()).map(drop),
        false => kafka_jars(&options).map(drop),
    };
    let found = tokio::task::spawn_blocking(find).await;
    found.expect("finding files does not panic").map_err(|error| (name, error))
}

/// The targets.
#[derive(Args, Debug, Clone)]
pub(crate) struct Targets {
    /// The target; can be repeated, then targets take turns [default: set by the workload, or else embedded,
    /// unless --bootstrap is given].
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
    /// The release of the target apache-kafka, from 2.1.0 on [default: that of KAFKA_CLASSPATH, or else
    /// 4.3.1].
    #[arg(long, value_name = "VERSION")]
    kafka_version: Option<KafkaVersion>,
    /// The Java of the targets apache-kafka and pulsar: the program, or its JAVA_HOME [default: that of
    /// JAVA_HOME, or else of PATH].
    #[arg(long, value_name = "PATH")]
    java: Option<PathBuf>,
    /// Options of the JVMs of the targets apache-kafka and pulsar, after the lab's own, such as '-Xmx4g
    /// -XX:+UseZGC'.
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    jvm_options: Option<String>,
}

/// A running cluster.
#[derive(Args, Debug, Clone)]
pub(crate) struct RunningCluster {
    /// The bootstrap servers of a running cluster; of Apache Pulsar its service URL, pulsar://HOST:PORT.
    #[arg(long, value_name = "HOST:PORT,...")]
    bootstrap: Option<String>,
    /// The admin API of a running cluster of Apache Pulsar [default: port 8080 of its first broker].
    #[arg(long, value_name = "http://HOST:PORT", requires = "bootstrap")]
    pulsar_admin: Option<String>,
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
        let starts = targets.iter().any(TargetSpec::is_started_by_lab);
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

/// Limits of each node that the lab starts, like a provider's plan.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct NodeArguments {
    /// Processors that each broker that the lab starts may use, for example 4 or 0.5, by control groups
    /// [default: set by the workload, or else all].
    #[arg(long, value_name = "NUMBER", value_parser = node_cpus)]
    node_cpus: Option<f64>,
    /// Memory of each broker that the lab starts, in MB of 2^20 bytes, with the cached pages of its files
    /// [default: set by the workload, or else all].
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u32).range(256..=16_777_216))]
    node_memory_mb: Option<u32>,
}

impl NodeArguments {
    /// Rejects these arguments if the lab starts no brokers.
    pub fn check(&self, targets: &[TargetSpec]) -> anyhow::Result<()> {
        let given = self.node_cpus.is_some() || self.node_memory_mb.is_some();
        if given && !targets.iter().any(TargetSpec::is_started_by_lab) {
            let why = "have no effect on a running cluster: limit its nodes where they run";
            return Err(Usage(format!("--node-cpus and --node-memory-mb {why}")).into());
        }
        Ok(())
    }

    /// Applies these arguments to a point.
    pub fn apply(&self, point: &mut Point) {
        if point.cluster.brokers == 0 {
            return;
        }
        let node = &mut point.cluster.node;
        node.cpu_millis = self.node_cpus.map(|cpus| (cpus * 1000.0).round() as u32).or(node.cpu_millis);
        node.memory_mb = self.node_memory_mb.or(node.memory_mb);
    }
}

fn node_cpus(text: &str) -> Result<f64, String> {
    let cpus = text.parse().ok().filter(|cpus| (0.01..=1024.0).contains(cpus));
    cpus.ok_or_else(|| "use a number from 0.01 to 1024".to_owned())
}

impl Targets {
    /// How the targets in JVMs are started. Refused without one of them.
    pub fn kafka(&self, targets: &[TargetSpec]) -> anyhow::Result<KafkaOptions> {
        let KafkaArguments { kafka_version, java, jvm_options } = &self.kafka;
        let has_kafka = targets.contains(&TargetSpec::ApacheKafka);
        let has_jvm = has_kafka || targets.contains(&TargetSpec::Pulsar);
        let given = [
            ("--kafka-version", kafka_version.is_some(), has_kafka),
            ("--java", java.is_some(), has_jvm),
            ("--jvm-options", jvm_options.is_some(), has_jvm),
        ];
        if let Some((name, ..)) = given.into_iter().find(|(_, given, has_effect)| *given && !has_effect) {
            return Err(Usage(format!("{name} has no effect: add --target apache-kafka")).into());
        }
        let options = jvm_options.iter().flat_map(|text| text.split_whitespace()).map(str::to_owned);
        Ok(KafkaOptions { version: *kafka_version, java: java.clone(), jvm_options: options.collect() })
    }

    /// The named targets, each once; `None` if none is named.
    pub fn specs(&self) -> anyhow::Result<Option<Vec<TargetSpec>>> {
        let named = self.targets.iter().copied().map(TargetSpec::from);
        let specs = each_once(named.chain(self.cluster.spec()?));
        Ok((!specs.is_empty()).then_some(specs))
    }

    /// The targets of a run: the named ones, or those of its workloads.
    pub fn of(&self, workloads: &[Workload]) -> anyhow::Result<RunTargets> {
        Ok(match self.specs()? {
            Some(specs) => RunTargets { specs, by_workload: false },
            None => {
                let specs = each_once(workloads.iter().flat_map(targets_of));
                RunTargets { specs, by_workload: true }
            }
        })
    }
}

fn each_once(all: impl IntoIterator<Item = TargetSpec>) -> Vec<TargetSpec> {
    let mut specs = Vec::new();
    for spec in all {
        if !specs.contains(&spec) {
            specs.push(spec);
        }
    }
    specs
}

impl RunningCluster {
    /// The cluster of `--bootstrap`, if given.
    pub fn spec(&self) -> anyhow::Result<Option<TargetSpec>> {
        let Some(bootstrap) = &self.bootstrap else { return Ok(None) };
        if PULSAR_SCHEMES.iter().any(|scheme| bootstrap.starts_with(scheme)) {
            return self.pulsar(bootstrap).map(Some);
        }
        if self.pulsar_admin.is_some() {
            let message =
                "--pulsar-admin has no effect: --bootstrap is not a service URL, pulsar://HOST:PORT";
            return Err(Usage(message.to_owned()).into());
        }
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

impl RunningCluster {
    /// A running cluster of Apache Pulsar.
    fn pulsar(&self, service_url: &str) -> anyhow::Result<TargetSpec> {
        if self.client_config.is_some() || !self.properties.is_empty() {
            let message = "--property and --client-config have no effect on Pulsar: its client here has neither TLS nor logins";
            return Err(Usage(message.to_owned()).into());
        }
        let admin_url = self.pulsar_admin.clone().unwrap_or_else(|| default_admin_url(service_url));
        Ok(TargetSpec::PulsarCluster { service_url: service_url.to_owned(), admin_url })
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use thalweg_lab::workload::load;

    #[test]
    fn limits_of_nodes_are_those_of_all_points_with_brokers() {
        let limits = NodeArguments { node_cpus: Some(0.5), node_memory_mb: None };
        for (name, expected) in [("ibm-fast", Some(500)), ("xd-direct", None)] {
            let mut workload = load(name, None).expect("built in");
            workload.points.iter_mut().for_each(|point| limits.apply(point));
            assert!(workload.points.iter().all(|point| point.cluster.node.cpu_millis == expected), "{name}");
        }
        let running = TargetSpec::Bootstrap { servers: Vec::new(), properties: BTreeMap::new() };
        assert!(limits.check(&[TargetSpec::Embedded]).is_ok());
        let refused = limits.check(&[running]).expect_err("no node of the lab").to_string();
        assert!(refused.contains("no effect on a running cluster"), "{refused}");
        assert_eq!(node_cpus("0"), Err("use a number from 0.01 to 1024".to_owned()));
    }
}
