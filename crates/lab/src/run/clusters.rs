//! The clusters of a run: one per target, kept while points need the same kind. Clusters of several targets
//! run side by side if memory allows; an idle broker costs almost nothing, a start costs minutes.

use std::collections::BTreeMap;

use super::error::Failure;
use super::topics;
use crate::agent::{AgentError, Agents};
use crate::quantity;
use crate::result::{TargetInfo, system};
use crate::target::{self, RunningCluster, StartOptions, TargetError, TargetSpec};
use crate::worker::Driver;
use crate::workload::{ClusterSpec, Measure};

/// The clusters, by target index.
#[derive(Debug)]
pub(super) struct Clusters {
    options: StartOptions,
    running: Vec<Option<ClusterSlot>>,
}

#[derive(Debug)]
struct ClusterSlot {
    spec: ClusterSpec,
    cluster: RunningCluster,
    /// True if the lab has started the cluster.
    is_ours: bool,
    /// True if the cluster's idle partitions exist.
    has_idle_partitions: bool,
    /// True if the paths from the agents to the brokers are known.
    has_paths: bool,
    /// The measurements that have warmed the cluster: driver, measure, and the bytes written per repetition.
    warm: Vec<(Driver, Measure, u64)>,
}

impl Clusters {
    /// No cluster runs yet.
    pub(super) fn new(targets: usize, options: StartOptions) -> Clusters {
        Clusters { options, running: std::iter::repeat_with(|| None).take(targets).collect() }
    }

    /// The running cluster of a target, if any.
    pub(super) fn get(&self, target: usize) -> Option<&RunningCluster> {
        self.running[target].as_ref().map(|running| &running.cluster)
    }

    /// The processes on this machine of all clusters except a target's.
    pub(super) fn processes_beside(&self, target: usize) -> Vec<u32> {
        let others = self.running.iter().enumerate().filter(|(other, _)| *other != target);
        let others = others.filter_map(|(_, running)| running.as_ref());
        others.flat_map(|running| &running.cluster.cluster().processes).map(|(_, pid)| *pid).collect()
    }

    /// Notes a measurement that has warmed the cluster of a target, with the bytes written by a repetition.
    pub(super) fn note_warm(&mut self, target: usize, (driver, measure): (Driver, Measure), bytes: u64) {
        if let Some(running) = &mut self.running[target] {
            running.warm.retain(|warm| (warm.0, warm.1) != (driver, measure));
            running.warm.push((driver, measure, bytes));
        }
    }

    /// The bytes written per repetition, if the cluster of a target is warm for this measurement.
    pub(super) fn warm_bytes(&self, target: usize, kind: (Driver, Measure)) -> Option<u64> {
        let running = self.running[target].as_ref()?;
        running.warm.iter().find(|warm| (warm.0, warm.1) == kind).map(|warm| warm.2)
    }

    /// Starts the cluster of a target, unless a suitable one runs. Reports to `say`.
    pub(super) async fn ensure(
        &mut self,
        target: usize,
        spec: &TargetSpec,
        wanted: &ClusterSpec,
        say: &(dyn Fn(&str) + Sync),
    ) -> Result<(), TargetError> {
        if let Some(running) = &self.running[target] {
            if running.spec == *wanted && running.cluster.died().is_none() {
                return Ok(());
            }
            self.stop(target, say);
        }
        if wanted.brokers > 0 && spec.is_started_by_lab() {
            let brokers = if wanted.brokers == 1 { "broker" } else { "brokers" };
            let protocol = wanted.security.protocol.name();
            let limits = match wanted.node.is_none() {
                true => String::new(),
                false => format!(" of {}", wanted.node.describe()),
            };
            let name = name(spec);
            say(&format!("Starting {}: {} {brokers}{limits}, {protocol}", system(&name), wanted.brokers));
        }
        let cluster = target::start(spec, wanted, &self.options).await?;
        self.running[target] = Some(ClusterSlot {
            spec: wanted.clone(),
            cluster,
            is_ours: spec.is_started_by_lab(),
            has_idle_partitions: wanted.idle_partitions == 0,
            has_paths: false,
            warm: Vec::new(),
        });
        Ok(())
    }

    /// Creates the idle partitions of a target's cluster, unless they exist. Idle partitions are removed with
    /// the cluster. `run` distinguishes runs.
    pub(super) async fn ensure_idle_partitions(
        &mut self,
        target: usize,
        run: &str,
        say: &(dyn Fn(&str) + Sync),
    ) -> Result<(), Failure> {
        let Some(running) = self.running[target].as_mut().filter(|running| !running.has_idle_partitions)
        else {
            return Ok(());
        };
        let count = running.spec.idle_partitions;
        if !running.is_ours {
            return Err(Failure::IdlePartitionsElsewhere(count));
        }
        let cluster = running.cluster.cluster();
        say(&format!("Making {} idle partitions", quantity::count(u64::from(count))));
        let admin = target::connect(&cluster.bootstrap, &cluster.client_properties).await?;
        let created = topics::create_idle(&admin, run, count).await;
        running.has_idle_partitions = created.is_ok();
        let failed = created.map_err(|failure| running.cluster.died().map_or(failure, Failure::BrokerDied));
        if failed.is_err() {
            // Some idle partitions may exist: the next point starts with a new cluster.
            self.stop(target, say);
        }
        failed
    }

    /// Checks the paths from the agents to the brokers of a target, unless they are known.
    pub(super) async fn ensure_paths(
        &mut self,
        target: usize,
        agents: Option<&Agents>,
    ) -> Result<(), Failure> {
        let Some(running) = self.running[target].as_mut().filter(|running| !running.has_paths) else {
            return Ok(());
        };
        if let Some(agents) = agents {
            let cluster = running.cluster.cluster();
            if cluster.bootstrap.is_empty() {
                return Err(AgentError::NoClients.into());
            }
            agents.check_paths(&cluster.name, &cluster.bootstrap, &cluster.client_properties).await?;
        }
        running.has_paths = true;
        Ok(())
    }

    /// Stops the cluster of a target.
    pub(super) fn stop(&mut self, target: usize, say: &(dyn Fn(&str) + Sync)) {
        if let Some(running) = self.running[target].take() {
            for complaint in running.cluster.stop() {
                say(&complaint);
            }
        }
    }

    /// Stops all clusters except a target's.
    pub(super) fn stop_others(&mut self, target: usize, say: &(dyn Fn(&str) + Sync)) {
        for other in (0..self.running.len()).filter(|other| *other != target) {
            self.stop(other, say);
        }
    }

    /// Stops all clusters.
    pub(super) fn stop_all(&mut self, say: &(dyn Fn(&str) + Sync)) {
        for target in 0..self.running.len() {
            self.stop(target, say);
        }
    }
}

/// The name of a target that is not running.
pub(super) fn name(spec: &TargetSpec) -> String {
    match spec {
        TargetSpec::Embedded => "embedded".to_owned(),
        TargetSpec::ApacheKafka => "apache-kafka".to_owned(),
        TargetSpec::Pulsar => "pulsar".to_owned(),
        TargetSpec::PulsarCluster { service_url, .. } => service_url.clone(),
        TargetSpec::Bootstrap { servers, .. } => servers.first().cloned().unwrap_or_default(),
    }
}

/// The description of a target that did not start.
pub(super) fn unstarted(spec: &TargetSpec) -> TargetInfo {
    let kind = match spec {
        TargetSpec::Embedded => "embedded",
        TargetSpec::ApacheKafka => "apache-kafka",
        TargetSpec::Pulsar => "pulsar",
        TargetSpec::Bootstrap { .. } | TargetSpec::PulsarCluster { .. } => "bootstrap",
    };
    TargetInfo {
        kind: kind.to_owned(),
        version: "unknown".to_owned(),
        command: Vec::new(),
        notes: vec!["It failed to start.".to_owned()],
        facts: BTreeMap::new(),
    }
}
