//! A run: workloads on targets, from their start to the result.
//!
//! - Targets and drivers of a run are contenders. A repetition of each is taken in turn, A B A B, so that what the machine
//!   does over time falls on all alike.
//! - Before the repetitions that count, each contender has one that does not, of two seconds or a quarter of its records at
//!   the most, with all the same settings: a JVM compiles what it runs often, and caches of all fill. It is not read back.
//!   A cluster that has done the same before, for another point, is warm already and does without.
//! - A contender that cannot run a point is noted with its failure, and the run goes on.
//! - What is there is written after each point. An interrupted run keeps its whole repetitions and says what ended it.
//!
//! [`saturation`], [`summary`] and [`verdict`] decide without touching anything; the rest touches and does not decide.

mod clock;
mod clusters;
mod contender;
mod course;
mod duel;
mod error;
pub mod estimate;
mod figures;
mod fleet;
mod interrupt;
mod reading_back;
mod repetition;
pub mod saturation;
pub mod summary;
mod topics;
pub mod verdict;

pub(crate) use clock::now_rfc_3339;
pub use clock::rfc_3339;
pub(crate) use duel::Duel;
pub use error::Failure;
pub use interrupt::{Interrupt, Interrupter, interrupt};

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::machine;
use crate::result::{self, Machine, PointResult, RunResult, SCHEMA, State, TargetInfo, WorkloadResult};
use crate::target::{StartOptions, TargetSpec};
use crate::terminal::Progress;
use crate::worker::Driver;
use crate::workload::{ClusterSpec, Load, Measure, Point, Workload};
use clock::now_us;
use clusters::{Clusters, name, side_by_side};
use contender::{Contender, Ended, Taking};
use repetition::Memory;

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
    fn drivers_of<'a>(&'a self, workload: &'a Workload) -> &'a [Driver] {
        drivers_of(&self.drivers, workload)
    }

    /// What a point is measured on. One without a cluster has nothing to do with any of them, and is measured once.
    fn targets_of(&self, point: &Point) -> &[TargetSpec] {
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
struct Planned<'a> {
    point: &'a Point,
    drivers: &'a [Driver],
    /// Whether a repetition that does not count goes before: its cluster has not done the same for a point before.
    warms_up: bool,
}

/// All points, in order.
fn points(options: &Options) -> impl Iterator<Item = Planned<'_>> {
    let mut cluster: Option<&ClusterSpec> = None;
    // What the cluster has done.
    let mut warm: Vec<(&[Driver], Measure)> = Vec::new();
    let all = options.workloads.iter().flat_map(|workload| {
        let drivers = options.drivers_of(workload);
        workload.points.iter().map(move |point| (point, drivers))
    });
    all.map(move |(point, drivers)| {
        if cluster.replace(&point.cluster) != Some(&point.cluster) {
            warm.clear();
        }
        let warms_up = !warm.contains(&(drivers, point.measure));
        if warms_up {
            warm.push((drivers, point.measure));
        }
        Planned { point, drivers, warms_up }
    })
}

/// Does it.
pub async fn run(options: &Options, interrupt: &Interrupt, progress: &Progress) -> RunResult {
    let mut run = Run::new(options, interrupt, progress);
    let interrupted = run.all().await;
    run.end(interrupted.is_some());
    let mut result = run.result;
    result.ended_at = rfc_3339(now_us());
    result.state = state(&result, interrupted);
    write(options.partial.as_deref(), &result, progress);
    result
}

/// The machine, with the file system of the first directory above that exists.
fn machine_of(work_dir: &Path) -> Machine {
    let existing = work_dir.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("."));
    machine::fingerprint(existing)
}

/// Digits and letters, for names of topics.
fn base_36(mut number: u64) -> String {
    let mut digits = Vec::new();
    while number > 0 {
        digits.push(char::from_digit((number % 36) as u32, 36).unwrap_or('0'));
        number /= 36;
    }
    digits.into_iter().rev().collect()
}

fn state(result: &RunResult, interrupted: Option<String>) -> State {
    if let Some(why) = interrupted {
        return State::Partial { why };
    }
    let points = || result.workloads.iter().flat_map(|workload| &workload.points);
    let failed = points().filter(|point| point.failure.is_some()).count();
    match failed {
        0 => State::Complete,
        _ => State::Partial { why: format!("{failed} of {} points were not measured", points().count()) },
    }
}

fn write(path: Option<&Path>, result: &RunResult, progress: &Progress) {
    if let Some(path) = path
        && let Err(error) = result::write(path, result)
    {
        progress.log(&format!("The result so far is not kept: {error}"));
    }
}

/// A seed for a part of a run: the same for all contenders, another for each repetition.
pub(crate) fn seed_of(seed: u64, parts: [u64; 3]) -> u64 {
    parts.into_iter().fold(seed, |seed, part| {
        // SplitMix64's mixing: near numbers come out far apart.
        let mut mixed = seed.wrapping_add(part.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

struct Run<'a> {
    options: &'a Options,
    interrupt: &'a Interrupt,
    progress: &'a Progress,
    clusters: Clusters,
    memory: Memory,
    /// Tells the topics of this run from those of others on the same cluster.
    id: String,
    /// Repetitions so far.
    serial: u32,
    result: RunResult,
}

impl<'a> Run<'a> {
    fn new(options: &'a Options, interrupt: &'a Interrupt, progress: &'a Progress) -> Run<'a> {
        let began_us = now_us();
        let mut start = StartOptions::new(&options.work_dir);
        start.binary = Some(options.binary.clone());
        let result = RunResult {
            schema: SCHEMA.to_owned(),
            began_at: rfc_3339(began_us),
            ended_at: rfc_3339(began_us),
            state: State::Partial { why: "the run was under way".to_owned() },
            arguments: options.arguments.clone(),
            seed: options.seed,
            lab_version: options.lab_version.clone(),
            machine: machine_of(&options.work_dir),
            targets: BTreeMap::new(),
            workloads: Vec::new(),
        };
        Run {
            options,
            interrupt,
            progress,
            clusters: Clusters::new(options.targets.len(), start),
            memory: Memory::default(),
            id: base_36(began_us),
            serial: 0,
            result,
        }
    }

    /// Ends all clusters; at once when the run was interrupted, for who interrupts does not want to wait.
    fn end(&mut self, interrupted: bool) {
        match interrupted {
            true => drop(std::mem::replace(&mut self.clusters, Clusters::new(0, StartOptions::new("")))),
            false => self.clusters.stop_all(&|line| self.progress.log(line)),
        }
    }
}

impl Run<'_> {
    /// All workloads. Why it was interrupted, if it was.
    async fn all(&mut self) -> Option<String> {
        let options = self.options;
        for (number, workload) in options.workloads.iter().enumerate() {
            self.result
                .workloads
                .push(WorkloadResult { workload: workload.without_secrets(), points: Vec::new() });
            for (place, point) in workload.points.iter().enumerate() {
                let seed = seed_of(options.seed, [number as u64, place as u64, 0]);
                let mut contenders = self.contenders(workload, point, seed);
                let interrupted = self.point(point, &mut contenders).await;
                let results = contenders.into_iter().map(|c| c.result(&self.result.machine));
                let results: Vec<PointResult> = results.collect();
                if let Some(last) = self.result.workloads.last_mut() {
                    last.points.extend(results);
                }
                self.result.ended_at = rfc_3339(now_us());
                write(options.partial.as_deref(), &self.result, self.progress);
                if interrupted.is_some() {
                    return interrupted;
                }
            }
        }
        None
    }

    fn contenders(&self, workload: &Workload, point: &Point, seed: u64) -> Vec<Contender> {
        let drivers = self.options.drivers_of(workload);
        let targets = self.options.targets_of(point).iter().enumerate();
        targets
            .flat_map(|(place, target)| {
                drivers
                    .iter()
                    .map(move |driver| Contender::new(place, name(target), *driver, workload, point, seed))
            })
            .collect()
    }

    /// One point for all contenders, in turn as far as memory allows.
    async fn point(&mut self, point: &Point, contenders: &mut [Contender]) -> Option<String> {
        if side_by_side(&self.options.targets, &point.cluster, &self.result.machine) {
            return self.in_turn(contenders).await;
        }
        for target in 0..self.options.targets.len() {
            let say = |line: &str| self.progress.log(line);
            self.clusters.stop_others(target, &say);
            let (from, to) = range_of(contenders, target);
            for contender in &mut contenders[from..to] {
                contender.note_alone();
            }
            if let Some(why) = self.in_turn(&mut contenders[from..to]).await {
                return Some(why);
            }
        }
        None
    }

    /// Takes one repetition of each after the other until none wants more.
    async fn in_turn(&mut self, contenders: &mut [Contender]) -> Option<String> {
        while contenders.iter().any(Contender::wants_more) {
            for contender in contenders.iter_mut().filter(|contender| contender.wants_more()) {
                if let Some(why) = self.one(contender).await {
                    return Some(why);
                }
            }
        }
        None
    }

    /// The next repetition of one contender.
    async fn one(&mut self, contender: &mut Contender) -> Option<String> {
        let spec = &self.options.targets[contender.target];
        let progress = self.progress;
        let say = |line: &str| progress.log(line);
        let wanted = contender.point().cluster.clone();
        if wanted.brokers == 0 && contender.driver() != Driver::Stream {
            let failure = Failure::NeedsCluster { driver: contender.driver().words() };
            self.learn(contender.target_name(), unstarted(spec));
            contender.failed(&failure, progress);
            return None;
        }
        let started = tokio::select! {
            biased;
            why = self.interrupt.wait() => return Some(why),
            started = self.clusters.ensure(contender.target, spec, &wanted, &say) => started,
        };
        if let Err(error) = started {
            self.learn(contender.target_name(), unstarted(spec));
            contender.failed(&error.into(), progress);
            return None;
        }
        if let Some(bytes) = self.clusters.warm_bytes(contender.target, contender.kind()) {
            contender.skip_warm_up(bytes);
        }
        let running = self.clusters.get(contender.target).expect("it was just started");
        let cluster = running.cluster().clone();
        contender.set_target_name(&cluster.name);
        self.serial += 1;
        let taking = Taking {
            running,
            binary: &self.options.binary,
            topics: topics::names(&self.id, self.serial, &contender.point().topics),
            memory: &self.memory,
            progress,
        };
        let ended = taking.take(contender, self.interrupt).await;
        self.learn(&cluster.name, cluster.info);
        match ended {
            Ended::Taken => {
                if !contender.has_failed() {
                    self.clusters.note_warm(contender.target, contender.kind(), contender.bytes());
                }
                None
            }
            Ended::Interrupted(why) => Some(why),
        }
    }

    fn learn(&mut self, name: &str, info: TargetInfo) {
        self.result.targets.entry(name.to_owned()).or_insert(info);
    }
}

/// Contenders of one target stand together.
fn range_of(contenders: &[Contender], target: usize) -> (usize, usize) {
    let from = contenders.iter().position(|contender| contender.target == target).unwrap_or(0);
    let count = contenders.iter().filter(|contender| contender.target == target).count();
    (from, from + count)
}

/// What is known of a target that did not start.
fn unstarted(spec: &TargetSpec) -> TargetInfo {
    let kind = match spec {
        TargetSpec::Embedded => "embedded",
        TargetSpec::ApacheKafka => "apache-kafka",
        TargetSpec::Bootstrap { .. } => "bootstrap",
    };
    TargetInfo {
        kind: kind.to_owned(),
        version: "unknown".to_owned(),
        command: Vec::new(),
        notes: vec!["It did not start.".to_owned()],
    }
}

/// Whether a load is searched for rather than given.
fn is_search(load: &Load) -> bool {
    matches!(load, Load::AddProducers { .. } | Load::RaiseRate { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn names_of_topics_hold_digits_and_letters() {
        assert_eq!(base_36(36 * 36 + 35), "10z");
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use std::collections::BTreeMap;

    use super::Options;
    use crate::result::{Evidence, Figures, HostUse, Repetition};
    use crate::target::TargetSpec;
    use crate::worker::Driver;
    use crate::workload::{
        self, Clients, ClusterSpec, Extent, Load, Measure, Payload, Point, RecordSpec, Topics, Unit, Verify,
    };

    /// A run of workloads that are built in, with our own driver.
    pub(crate) fn options(names: &[&str], targets: Vec<TargetSpec>) -> Options {
        Options {
            workloads: names.iter().map(|name| workload::load(name, None).expect("built in")).collect(),
            targets,
            drivers: vec![Driver::Thalweg],
            seed: 1,
            work_dir: "/".into(),
            binary: "/bin/true".into(),
            partial: None,
            arguments: Vec::new(),
            lab_version: String::new(),
        }
    }

    /// A repetition of nothing.
    pub(crate) fn repetition() -> Repetition {
        Repetition {
            number: 0,
            began_at_us: 0,
            measured_s: 0.0,
            figures: Figures::default(),
            acknowledge_latency: None,
            end_to_end_latency: None,
            produced: Vec::new(),
            consumed: Vec::new(),
            processes: Vec::new(),
            host: HostUse::default(),
            samples: Vec::new(),
            evidence: Evidence::default(),
            given_up: 0,
            notes: Vec::new(),
        }
    }

    /// A small point.
    pub(crate) fn point() -> Point {
        let clients = |count| Clients { count, processes: 1, threads: 1, properties: BTreeMap::new() };
        Point {
            label: "a point".to_owned(),
            cluster: ClusterSpec { brokers: 1, properties: BTreeMap::new() },
            topics: Topics { count: 1, partitions: 1, replication_factor: 1, properties: BTreeMap::new() },
            records: RecordSpec { size_bytes: 100, payload: Payload::Random, keys: None },
            producers: clients(1),
            consumers: clients(0),
            measure: Measure::Produce,
            load: Load::Maximum,
            extent: Extent { warm_up_s: 0.0, unit: Unit::Seconds(10.0) },
            repetitions: 3,
            verify: Verify::Off,
        }
    }
}
