//! The plan of a run: what it is to do, its points in order, who takes part in each, and how long their repetitions are. Pure.

use std::path::PathBuf;

use crate::result::Machine;
use crate::target::TargetSpec;
use crate::worker::Driver;
use crate::workload::{ClusterSpec, Load, Measure, Point, Unit, Workload};

/// The repetition that does not count is no longer than this: it is there for caches and compilers.
const WARM_UP_SECONDS_MAX: f64 = 2.0;
/// Where a point has records in place of seconds, one of so many is sent.
const WARM_UP_SHARE: u64 = 4;
/// Kafka's tools work at least so long before a measurement.
const JAVA_WARM_UP_S: f64 = 5.0;
/// What a repetition writes, as far as it counts here.
const EXPECTED_BYTES_MAX: u64 = 8 << 30;
/// What a broker of Apache Kafka is taken to need: a heap, and as much again beside it.
const KAFKA_BYTES: u64 = 2 << 30;
/// What a broker of this binary is taken to need.
const EMBEDDED_BYTES: u64 = 256 << 20;

/// What a run is to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is measured, in this order.
    pub workloads: Vec<Workload>,
    /// What it is measured on.
    pub targets: Vec<TargetSpec>,
    /// Who speaks to it; empty for those that each workload names.
    pub drivers: Vec<Driver>,
    /// The seed of payloads and keys.
    pub seed: u64,
    /// Where brokers have their directories.
    pub work_dir: PathBuf,
    /// The binary of workers and embedded brokers.
    pub binary: PathBuf,
    /// Where the result is written after each point.
    pub partial: Option<PathBuf>,
    /// The arguments of the lab, for another run.
    pub arguments: Vec<String>,
    /// Version and commit of the lab.
    pub lab_version: String,
}

impl Options {
    /// Who measures a workload.
    pub(super) fn drivers_of<'a>(&'a self, workload: &'a Workload) -> &'a [Driver] {
        drivers_of(&self.drivers, workload)
    }

    /// What a point is measured on. One without a cluster has nothing to do with any of them, and is measured once.
    pub(super) fn targets_of(&self, point: &Point) -> &[TargetSpec] {
        let count = if point.cluster.brokers == 0 { 1 } else { self.targets.len() };
        &self.targets[..count.min(self.targets.len())]
    }
}

/// Who measures a workload: those given, else those that it names.
pub fn drivers_of<'a>(given: &'a [Driver], workload: &'a Workload) -> &'a [Driver] {
    match (given, &workload.drivers[..]) {
        ([], []) => &[Driver::Thalweg],
        ([], named) => named,
        (given, _) => given,
    }
}

/// How many repetitions a run has, those that do not count among them. A search has more.
pub fn repetitions(options: &Options) -> u64 {
    points(options)
        .map(|planned| {
            let contenders = options.targets_of(planned.point).len() * planned.drivers.len();
            let repetitions = u64::from(planned.point.repetitions.max(1)) + u64::from(planned.warms_up);
            repetitions * contenders as u64
        })
        .sum()
}

/// A point, as a run takes it.
pub(super) struct Planned<'a> {
    pub(super) workload: &'a Workload,
    /// The place of the workload among all, and that of the point in it.
    pub(super) place: (usize, usize),
    pub(super) point: &'a Point,
    pub(super) drivers: &'a [Driver],
    /// Whether a repetition that does not count goes before: its cluster has not done the same for a point before.
    pub(super) warms_up: bool,
}

/// All points, in order.
pub(super) fn points(options: &Options) -> impl Iterator<Item = Planned<'_>> {
    let mut cluster: Option<&ClusterSpec> = None;
    // What the cluster has done.
    let mut warm: Vec<(&[Driver], Measure)> = Vec::new();
    let all = options.workloads.iter().enumerate().flat_map(|(number, workload)| {
        workload.points.iter().enumerate().map(move |(place, point)| (workload, (number, place), point))
    });
    all.map(move |(workload, place, point)| {
        let drivers = options.drivers_of(workload);
        if cluster.replace(&point.cluster) != Some(&point.cluster) {
            warm.clear();
        }
        let warms_up = !warm.contains(&(drivers, point.measure));
        if warms_up {
            warm.push((drivers, point.measure));
        }
        Planned { workload, place, point, drivers, warms_up }
    })
}

/// Whether the clusters of all targets may run at the same time: they take at most half of the memory.
pub(super) fn side_by_side(targets: &[TargetSpec], wanted: &ClusterSpec, machine: &Machine) -> bool {
    let of_broker = targets.iter().filter_map(|spec| match spec {
        TargetSpec::Embedded => Some(EMBEDDED_BYTES),
        TargetSpec::ApacheKafka => Some(KAFKA_BYTES),
        TargetSpec::Bootstrap { .. } => None,
    });
    let of_broker: Vec<u64> = of_broker.collect();
    of_broker.len() < 2
        || of_broker.iter().sum::<u64>() * u64::from(wanted.brokers) <= machine.memory_bytes / 2
}

/// Whether a load is searched for rather than given.
pub(super) fn is_search(load: &Load) -> bool {
    matches!(load, Load::AddProducers { .. } | Load::RaiseRate { .. })
}

/// How long the repetition that does not count is.
pub(super) fn warm_up_unit(point: &Point, driver: Driver) -> Unit {
    match point.extent.unit {
        // Kafka's tools start anew in each repetition, which takes them seconds.
        whole if driver == Driver::Java => whole,
        Unit::Seconds(seconds) => Unit::Seconds(seconds.min(WARM_UP_SECONDS_MAX)),
        Unit::Records(records) => Unit::Records(records.div_ceil(WARM_UP_SHARE)),
    }
}

/// How long is worked before the measurement begins.
pub(super) fn warm_up_s(point: &Point, driver: Driver) -> f64 {
    match (point.measure, driver) {
        // A backlog is there at once, and gone when it is gone: the repetition before it was the warm-up.
        (Measure::Consume | Measure::Drain, _) => 0.0,
        // Nothing is sent before the virtual machine is there, and little before it has compiled what it runs. Without any
        // warm-up, Kafka's tool counts so many records from its own beginning.
        (Measure::Produce, Driver::Java)
            if point.extent.warm_up_s > 0.0 || matches!(point.extent.unit, Unit::Seconds(_)) =>
        {
            point.extent.warm_up_s.max(JAVA_WARM_UP_S)
        }
        (Measure::Produce, _) => point.extent.warm_up_s.max(0.0),
    }
}

/// About what a point writes to disks, as far as its settings tell; a maximum rate is guessed.
pub(super) fn expected_bytes(point: &Point) -> u64 {
    /// What a broker may write a second at its maximum.
    const BYTES_PER_S: f64 = 400e6;
    if point.cluster.brokers == 0 {
        return 0;
    }
    let record = f64::from(point.records.size_bytes) + 12.0;
    let replicas = f64::from(point.topics.replication_factor.max(1));
    let bytes = match (point.extent.unit, &point.load) {
        (Unit::Records(records), _) => records as f64 * record * replicas,
        (Unit::Seconds(seconds), Load::Rate { records_per_s }) => {
            (seconds + point.extent.warm_up_s) * records_per_s * record * replicas
        }
        (Unit::Seconds(seconds), _) => (seconds + point.extent.warm_up_s) * BYTES_PER_S,
    };
    bytes.clamp(0.0, EXPECTED_BYTES_MAX as f64) as u64
}

/// A seed for a part of a run: the same for all contenders, another for each repetition.
pub(super) fn seed_of(seed: u64, parts: [u64; 3]) -> u64 {
    parts.into_iter().fold(seed, |seed, part| {
        // SplitMix64's mixing: near numbers come out far apart.
        let mut mixed = seed.wrapping_add(part.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::testing;

    #[test]
    fn seeds_differ_in_every_part() {
        let mut seeds: Vec<u64> = (0..4)
            .flat_map(|a| (0..4).flat_map(move |b| (0..4).map(move |c| seed_of(7, [a, b, c]))))
            .collect();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 64);
        assert_eq!(seed_of(7, [1, 2, 3]), seed_of(7, [1, 2, 3]));
    }

    #[test]
    fn a_cluster_is_warmed_once_for_what_it_does() {
        let mut options =
            testing::options(&["ibm-payload"], vec![TargetSpec::Embedded, TargetSpec::ApacheKafka]);
        let counted = options.workloads[0].points.len() as u64 * 2;
        assert_eq!(repetitions(&options), (counted + 1) * 2);
        options.workloads[0].points[3].measure = Measure::Consume;
        assert_eq!(repetitions(&options), (counted + 2) * 2);
        options.workloads[0].points[5].cluster.brokers += 1;
        assert_eq!(repetitions(&options), (counted + 4) * 2, "another cluster, and the first again");
    }

    #[test]
    fn clusters_run_side_by_side_when_they_take_half_of_the_memory_at_most() {
        let machine = Machine { memory_bytes: 23 << 30, ..Machine::default() };
        let spec = |brokers| ClusterSpec { brokers, properties: Default::default() };
        let both = [TargetSpec::Embedded, TargetSpec::ApacheKafka];
        assert!(side_by_side(&both, &spec(1), &machine));
        assert!(side_by_side(&both, &spec(3), &machine));
        assert!(!side_by_side(&both, &spec(6), &machine));
        assert!(side_by_side(&both[1..], &spec(9), &machine));
    }
}
