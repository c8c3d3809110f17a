//! The plan of a run: its options, its points in order, their contenders, and the length of repetitions.
//! Pure.

use std::path::PathBuf;

use crate::agent::Agents;
use crate::result::{Machine, PAIRS_MIN};
use crate::target::{KafkaOptions, PulsarMemory, TargetSpec};
use crate::worker::Driver;
use crate::workload::{ClusterSpec, Load, Measure, Point, Unit, Workload};

/// Maximum length of a warm-up, which fills caches and warms compilers.
const WARM_UP_SECONDS_MAX: f64 = 2.0;
/// Fraction of the records sent by the warm-up of a point with records instead of seconds.
const WARM_UP_SHARE: u64 = 4;
/// Minimum warm-up before a measurement with Kafka's tools.
const JAVA_WARM_UP_S: f64 = 5.0;
/// Cap of the estimated bytes of a repetition.
const EXPECTED_BYTES_MAX: u64 = 8 << 30;
/// Assumed memory of an Apache Kafka broker: the heap, and as much again.
const KAFKA_BYTES: u64 = 2 << 30;
/// Assumed memory of Apache Pulsar beside its heap and buffers.
const PULSAR_BYTES: u64 = 1 << 30;
/// Assumed memory of a broker of this binary.
const EMBEDDED_BYTES: u64 = 256 << 20;

/// The wanted precision of ratios.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precision {
    /// Half of the interval as a share of the ratio, such as 0.1 for ± 10 %.
    pub half_width: f64,
    /// Maximum number of repetitions of a point.
    pub repetitions_max: u32,
}

impl Precision {
    /// ± 10 %, with at most ten repetitions.
    pub const DEFAULT: Precision = Precision { half_width: 0.1, repetitions_max: 10 };
}

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The workloads, in order.
    pub workloads: Vec<Workload>,
    pub targets: Vec<TargetSpec>,
    /// True if each workload is measured on its own targets only, because the user has named none.
    pub by_workload: bool,
    /// The drivers; empty for those of each workload.
    pub drivers: Vec<Driver>,
    /// The wanted precision of targets' ratios; `None` for the workloads' numbers of repetitions.
    pub precision: Option<Precision>,
    /// The seed of payloads and keys.
    pub seed: u64,
    /// The directory of brokers' directories.
    pub work_dir: PathBuf,
    /// The release, Java and JVM options of the target apache-kafka.
    pub kafka: KafkaOptions,
    /// The binary of workers and embedded brokers.
    pub binary: PathBuf,
    /// The agents that run the workers; `None` for workers on this machine.
    pub agents: Option<Agents>,
    /// The agents that watch the machines of a running cluster's brokers; `None` if those are not watched.
    pub broker_agents: Option<Agents>,
    /// True to look inside the processes on this machine.
    pub look_inside: bool,
    /// The path of the result written after each point.
    pub partial: Option<PathBuf>,
    /// The arguments of the lab, for another run.
    pub arguments: Vec<String>,
    /// Version and commit of the lab.
    pub lab_version: String,
}

impl Options {
    /// The drivers of a workload.
    pub(super) fn drivers_of<'a>(&'a self, workload: &'a Workload) -> &'a [Driver] {
        drivers_of(&self.drivers, workload)
    }

    /// The targets of a point, with their indexes. A point without a cluster is measured once.
    pub(super) fn targets_of(&self, workload: &Workload, point: &Point) -> Vec<(usize, &TargetSpec)> {
        let own = targets_of(workload);
        let all = self.targets.iter().enumerate();
        let mut found: Vec<_> = all.filter(|(_, spec)| !self.by_workload || own.contains(spec)).collect();
        if point.cluster.brokers == 0 {
            found.truncate(1);
        }
        found
    }
}

/// The given drivers, or else those of the workload.
pub fn drivers_of<'a>(given: &'a [Driver], workload: &'a Workload) -> &'a [Driver] {
    match (given, &workload.drivers[..]) {
        ([], []) => &[Driver::Thalweg],
        ([], named) => named,
        (given, _) => given,
    }
}

/// The targets of a workload, if the user names none.
pub fn targets_of(workload: &Workload) -> Vec<TargetSpec> {
    match workload.targets.is_empty() {
        true => vec![TargetSpec::Embedded],
        false => workload.targets.iter().copied().map(TargetSpec::from).collect(),
    }
}

/// The number of repetitions of a run, including warm-ups. A search has more.
pub fn repetitions(options: &Options) -> u64 {
    points(options)
        .map(|planned| {
            let contenders =
                options.targets_of(planned.workload, planned.point).len() * planned.drivers.len();
            let counted = repetitions_of(options, planned.workload, planned.point);
            (u64::from(counted) + u64::from(planned.warms_up)) * contenders as u64
        })
        .sum()
}

/// The counted repetitions of a point; with a precision, the minimum for a ratio of targets.
pub(super) fn repetitions_of(options: &Options, workload: &Workload, point: &Point) -> u32 {
    let requested = point.repetitions.max(1);
    match options.precision {
        Some(precision) if options.targets_of(workload, point).len() > 1 => {
            requested.max(precision.repetitions_max.min(PAIRS_MIN as u32))
        }
        _ => requested,
    }
}

/// A point in a run.
pub(super) struct PlannedPoint<'a> {
    pub(super) workload: &'a Workload,
    /// The index of the workload, and of the point in it.
    pub(super) place: (usize, usize),
    pub(super) point: &'a Point,
    pub(super) drivers: &'a [Driver],
    /// True if a warm-up precedes the point: its cluster has not done the same before.
    pub(super) warms_up: bool,
}

/// All points, in order.
pub(super) fn points(options: &Options) -> impl Iterator<Item = PlannedPoint<'_>> {
    let mut cluster: Option<&ClusterSpec> = None;
    // The measurements that have warmed the cluster.
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
        PlannedPoint { workload, place, point, drivers, warms_up }
    })
}

/// True if the clusters of all targets may run at the same time: they take at most half of the memory.
pub(super) fn side_by_side(targets: &[TargetSpec], wanted: &ClusterSpec, machine: &Machine) -> bool {
    let of_broker = targets.iter().filter_map(|spec| match spec {
        TargetSpec::Embedded => Some(EMBEDDED_BYTES),
        TargetSpec::ApacheKafka => Some(KAFKA_BYTES),
        TargetSpec::Pulsar => {
            Some(PulsarMemory::on_machine(machine.memory_bytes >> 20).bytes() + PULSAR_BYTES)
        }
        TargetSpec::Bootstrap { .. } | TargetSpec::PulsarCluster { .. } => None,
    });
    let of_broker: Vec<u64> = of_broker.collect();
    of_broker.len() < 2
        || of_broker.iter().sum::<u64>() * u64::from(wanted.brokers) <= machine.memory_bytes / 2
}

/// True if the load is a search.
pub(super) fn is_search(load: &Load) -> bool {
    matches!(load, Load::AddProducers { .. } | Load::RaiseRate { .. })
}

/// The length of the warm-up repetition.
pub(super) fn warm_up_unit(point: &Point, driver: Driver) -> Unit {
    match point.extent.unit {
        // Kafka's tools are restarted in each repetition, which takes seconds.
        whole if driver == Driver::Java => whole,
        Unit::Seconds(seconds) => Unit::Seconds(seconds.min(WARM_UP_SECONDS_MAX)),
        Unit::Records(records) => Unit::Records(records.div_ceil(WARM_UP_SHARE)),
    }
}

/// The warm-up within a repetition, before its measurement.
pub(super) fn warm_up_s(point: &Point, driver: Driver) -> f64 {
    match (point.measure, driver) {
        // A backlog exists at once; the preceding repetition was the warm-up.
        (Measure::Consume | Measure::Drain, _) => 0.0,
        // Nothing is sent until the JVM has started, and little until it has compiled. Without any warm-up,
        // Kafka's tool counts its records from its own start.
        (Measure::Produce, Driver::Java)
            if point.extent.warm_up_s > 0.0 || matches!(point.extent.unit, Unit::Seconds(_)) =>
        {
            point.extent.warm_up_s.max(JAVA_WARM_UP_S)
        }
        (Measure::Produce, _) => point.extent.warm_up_s.max(0.0),
    }
}

/// The estimated bytes that a point writes to disks, from its settings; a maximum rate is guessed.
pub(super) fn expected_bytes(point: &Point) -> u64 {
    /// Assumed maximum bytes per second and broker.
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

/// The seed of a part of a run: equal for all contenders, different for each repetition.
pub(super) fn seed_of(seed: u64, parts: [u64; 3]) -> u64 {
    parts.into_iter().fold(seed, |seed, part| {
        // SplitMix64's mixing spreads neighbouring numbers.
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
    fn clusters_run_side_by_side_within_half_of_the_memory() {
        let machine = Machine { memory_bytes: 23 << 30, ..Machine::default() };
        let spec = |brokers| ClusterSpec::plaintext(brokers, Default::default());
        let both = [TargetSpec::Embedded, TargetSpec::ApacheKafka];
        assert!(side_by_side(&both, &spec(1), &machine));
        assert!(side_by_side(&both, &spec(3), &machine));
        assert!(!side_by_side(&both, &spec(6), &machine));
        assert!(side_by_side(&both[1..], &spec(9), &machine));
    }
}
