//! The clusters that run during a run: one for each target, kept as long as the points need the same kind of it. Clusters of
//! several targets run side by side when memory allows; an idle broker costs next to nothing, a start costs minutes.

use crate::result::Machine;
use crate::target::{self, RunningCluster, StartOptions, TargetError, TargetSpec};
use crate::workload::ClusterSpec;

/// What a broker is taken to need: a heap, and as much again beside it.
const BROKER_BYTES: u64 = 2 << 30;

/// The clusters, by the place of their target.
#[derive(Debug)]
pub(super) struct Clusters {
    options: StartOptions,
    running: Vec<Option<(ClusterSpec, RunningCluster)>>,
}

impl Clusters {
    /// None runs yet.
    pub(super) fn new(targets: usize, options: StartOptions) -> Clusters {
        Clusters { options, running: std::iter::repeat_with(|| None).take(targets).collect() }
    }

    /// The cluster of a target; none while it does not run.
    pub(super) fn get(&self, target: usize) -> Option<&RunningCluster> {
        self.running[target].as_ref().map(|(_, cluster)| cluster)
    }

    /// Starts the cluster of a target, unless it runs as it should. What is said on the way goes to `say`.
    pub(super) async fn ensure(
        &mut self,
        target: usize,
        spec: &TargetSpec,
        wanted: &ClusterSpec,
        say: &(dyn Fn(&str) + Sync),
    ) -> Result<(), TargetError> {
        if let Some((running, cluster)) = &self.running[target] {
            if running == wanted && cluster.died().is_none() {
                return Ok(());
            }
            self.stop(target, say).await;
        }
        if wanted.brokers > 0 && !matches!(spec, TargetSpec::Bootstrap { .. }) {
            let brokers = if wanted.brokers == 1 { "broker" } else { "brokers" };
            say(&format!("Starting {}: {} {brokers}", name(spec), wanted.brokers));
        }
        let cluster = target::start(spec, wanted, &self.options).await?;
        self.running[target] = Some((wanted.clone(), cluster));
        Ok(())
    }

    /// Stops the cluster of a target.
    pub(super) async fn stop(&mut self, target: usize, say: &(dyn Fn(&str) + Sync)) {
        if let Some((_, cluster)) = self.running[target].take() {
            for complaint in cluster.stop().await {
                say(&complaint);
            }
        }
    }

    /// Stops all but this one.
    pub(super) async fn stop_others(&mut self, target: usize, say: &(dyn Fn(&str) + Sync)) {
        for other in (0..self.running.len()).filter(|other| *other != target) {
            self.stop(other, say).await;
        }
    }

    /// Stops all.
    pub(super) async fn stop_all(&mut self, say: &(dyn Fn(&str) + Sync)) {
        for target in 0..self.running.len() {
            self.stop(target, say).await;
        }
    }
}

/// Whether the clusters of all targets may run at the same time: they take at most half of the memory.
pub(super) fn side_by_side(targets: &[TargetSpec], wanted: &ClusterSpec, machine: &Machine) -> bool {
    let started = targets.iter().filter(|spec| !matches!(spec, TargetSpec::Bootstrap { .. })).count() as u64;
    started < 2 || started * u64::from(wanted.brokers) * BROKER_BYTES <= machine.memory_bytes / 2
}

/// A target's name before it runs.
pub(super) fn name(spec: &TargetSpec) -> String {
    match spec {
        TargetSpec::Embedded => "embedded".to_owned(),
        TargetSpec::ApacheKafka => "apache-kafka".to_owned(),
        TargetSpec::Bootstrap { servers, .. } => servers.first().cloned().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_run_side_by_side_when_they_take_half_of_the_memory_at_most() {
        let machine = Machine { memory_bytes: 24 << 30, ..Machine::default() };
        let spec = |brokers| ClusterSpec { brokers, properties: Default::default() };
        let both = [TargetSpec::Embedded, TargetSpec::ApacheKafka];
        assert!(side_by_side(&both, &spec(1), &machine));
        assert!(side_by_side(&both, &spec(3), &machine));
        assert!(!side_by_side(&both, &spec(6), &machine));
        assert!(side_by_side(&both[1..], &spec(9), &machine));
    }
}
