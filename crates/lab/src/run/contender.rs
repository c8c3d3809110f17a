//! A contender: one target with one driver at one point, with its results so far and its next step. Pure.

use super::plan::{expected_bytes, is_search, seed_of, warm_up_unit};
use super::saturation::{Outcome, Search, SearchStep, Trial, fell_behind};
use super::summary::summarize;
use super::verdict::judge_result;
use crate::result::{
    Knee, Machine, NegotiatedSecurity, PointResult, ProcessUse, Repetition, Step, Subject, Summary, Verdict,
    consumers_fell_behind,
};
use crate::target::Cluster;
use crate::terminal::PointAt;
use crate::worker::Driver;
use crate::workload::{Load, Measure, Point, Unit, Workload};

/// A repetition may write up to this multiple of the previous one.
const BYTES_MARGIN: f64 = 1.25;

/// The stage of a contender.
#[derive(Clone, Debug)]
enum Stage {
    WarmUp,
    /// The search for saturation.
    Searching(Search),
    /// The counted repetitions.
    Measuring,
    /// The contender is done, or has failed.
    Over,
}

/// One target with one driver at one point.
#[derive(Debug)]
pub(super) struct Contender {
    /// The index of the contender's target.
    pub(super) target: usize,
    target_name: String,
    driver: Driver,
    workload: String,
    /// The point as specified.
    requested: Point,
    /// The point for the next repetition.
    current: Point,
    seed: u64,
    stage: Stage,
    tried: u32,
    client: String,
    /// The negotiated security of the cluster.
    security: Option<NegotiatedSecurity>,
    repetitions: Vec<Repetition>,
    steps: Vec<Step>,
    knee: Option<Knee>,
    failure: Option<String>,
    reasons: Vec<String>,
    bytes: u64,
    /// Additional repetitions beyond those of the point.
    more: u32,
}

impl Contender {
    /// A new contender.
    pub(super) fn new(
        target: usize,
        target_name: String,
        driver: Driver,
        workload: &Workload,
        point: &Point,
        seed: u64,
    ) -> Contender {
        let mut current = point.clone();
        if is_search(&point.load) {
            current.load = first_load(point);
        }
        current.extent.unit = warm_up_unit(point, driver);
        Contender {
            target,
            target_name,
            driver,
            workload: workload.name.clone(),
            requested: point.clone(),
            bytes: expected_bytes(&current),
            current,
            seed,
            stage: Stage::WarmUp,
            tried: 0,
            client: String::new(),
            security: None,
            repetitions: Vec::new(),
            steps: Vec::new(),
            knee: None,
            failure: None,
            reasons: Vec::new(),
            more: 0,
        }
    }

    /// Adds another repetition at the end.
    pub(super) fn go_on(&mut self) {
        if matches!(self.stage, Stage::Over) && self.failure.is_none() {
            self.more += 1;
            self.stage = Stage::Measuring;
        }
    }

    /// Number of counted repetitions to do.
    fn wanted(&self) -> u32 {
        self.requested.repetitions.max(1) + self.more
    }

    /// The counted repetitions so far.
    pub(super) fn repetitions(&self) -> &[Repetition] {
        &self.repetitions
    }

    /// The name of the main figure.
    pub(super) fn figure(&self) -> &'static str {
        let measured = |name: &str| self.repetitions.iter().any(|one| one.figures.value(name).is_some());
        Subject::of(&self.requested).figure_if(measured)
    }

    /// True if repetitions are left.
    pub(super) fn wants_more(&self) -> bool {
        !matches!(self.stage, Stage::Over)
    }

    /// The point for the next repetition.
    pub(super) fn point(&self) -> &Point {
        &self.current
    }

    /// True if the contender has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// The measurement that a repetition warms the cluster for.
    pub(super) fn kind(&self) -> (Driver, Measure) {
        (self.driver, self.requested.measure)
    }

    /// Maximum bytes that the next repetition may write.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Skips the warm-up: the cluster is warm from another point, whose repetitions wrote this many bytes.
    pub(super) fn skip_warm_up(&mut self, bytes: u64) {
        if matches!(self.stage, Stage::WarmUp) {
            self.begin();
            let is_guessed = !matches!(self.requested.extent.unit, Unit::Records(_))
                && !matches!(self.requested.load, Load::Rate { .. });
            let expected = expected_bytes(&self.current);
            self.bytes = if is_guessed { expected.max(bytes / 2 * 3) } else { expected };
        }
    }

    /// The client driver.
    pub(super) fn driver(&self) -> Driver {
        self.driver
    }

    /// The target's name, if known.
    pub(super) fn target_name(&self) -> &str {
        &self.target_name
    }

    /// Sets the target's name and the negotiated security.
    pub(super) fn set_cluster(&mut self, cluster: &Cluster) {
        self.target_name.clone_from(&cluster.name);
        self.security.clone_from(&cluster.security);
    }

    /// Notes that the target was measured before or after the others, not in turn with them.
    pub(super) fn note_alone(&mut self) {
        self.reasons.push(
            "memory does not suffice for the clusters of all targets at once: each was measured alone, not in turn"
                .to_owned(),
        );
    }

    /// Marks the contender as failed.
    pub(super) fn failed(&mut self, why: String) {
        self.failure = Some(why);
        self.stage = Stage::Over;
    }

    /// The number of the next counted repetition.
    pub(super) fn number(&self) -> u32 {
        self.repetitions.len() as u32
    }

    /// True if the next repetition is a step of a search.
    pub(super) fn is_searching(&self) -> bool {
        matches!(self.stage, Stage::Searching(_))
    }

    /// True if the next repetition counts.
    pub(super) fn counts(&self) -> bool {
        matches!(self.stage, Stage::Measuring)
    }

    /// The seed of the next repetition.
    pub(super) fn next_seed(&self) -> u64 {
        seed_of(self.seed, [u64::from(self.tried), 0, 0])
    }

    /// The next repetition, for the progress display.
    pub(super) fn at(&self) -> PointAt {
        let (repetition, what) = match self.stage {
            Stage::WarmUp => (0, " (warm-up, not counted)"),
            Stage::Searching(_) => (0, " (search)"),
            Stage::Measuring | Stage::Over => (self.repetitions.len() as u32 + 1, ""),
        };
        PointAt {
            workload: self.workload.clone(),
            label: format!("{}{what}", self.requested.label),
            target: self.target_name.clone(),
            driver: self.driver,
            repetition,
            repetitions: if repetition == 0 { 0 } else { self.wanted() },
        }
    }

    /// Records a repetition by a client of this name and version, and advances to the next step.
    pub(super) fn taken(&mut self, mut repetition: Repetition, client: String, cpus: u32) {
        self.client = client;
        self.tried += 1;
        // Memory freed by a repetition can be reused for a moment; anything beyond it is expensive.
        let longer = length_s(&self.requested) / length_s(&self.current);
        let bytes = repetition.evidence.bytes_on_disk as f64 * longer * BYTES_MARGIN;
        self.bytes = (bytes as u64).max(1 << 20);
        match &mut self.stage {
            Stage::WarmUp => self.begin(),
            Stage::Searching(search) => {
                let trial = trial_of(&self.current);
                let (outcome, step) = step(trial, &repetition, cpus);
                search.observe(trial, outcome);
                self.steps.push(step);
                self.seek();
            }
            Stage::Measuring => {
                repetition.number = self.repetitions.len() as u32;
                self.repetitions.push(repetition);
                if self.repetitions.len() >= self.wanted() as usize {
                    self.stage = Stage::Over;
                }
            }
            Stage::Over => {}
        }
    }

    /// Begins the next stage: counted repetitions, or trials of a search.
    fn begin(&mut self) {
        self.current.extent = self.requested.extent;
        self.stage = match Search::new(&self.requested.load, self.requested.producers.count) {
            Some(search) => Stage::Searching(search),
            None => Stage::Measuring,
        };
        self.seek();
    }

    /// Sets the next trial of a search, or its result.
    fn seek(&mut self) {
        let Stage::Searching(search) = &self.stage else { return };
        match search.next() {
            SearchStep::Try(trial) => set(&mut self.current, &self.requested, trial),
            SearchStep::Found(knee) => {
                let records_per_s =
                    matches!(self.requested.load, Load::RaiseRate { .. }).then_some(knee.low_records_per_s);
                let trial = Trial { producers: knee.producers, records_per_s };
                set(&mut self.current, &self.requested, trial);
                self.knee = Some(knee);
                self.stage = Stage::Measuring;
            }
            SearchStep::NotFound(why) => {
                self.failure = Some(format!("the search for saturation found no knee: {why}"));
                self.stage = Stage::Over;
            }
        }
    }

    /// The contender's result.
    pub(super) fn result(self, machine: &Machine) -> PointResult {
        let mut failure = self.failure;
        let summary = summarize(&self.repetitions).unwrap_or_else(|error| {
            failure.get_or_insert_with(|| error.to_string());
            Summary::default()
        });
        let mut result = PointResult {
            point: self.requested.without_secrets(),
            target: self.target_name,
            driver: self.driver,
            client: self.client,
            security: self.security,
            repetitions: self.repetitions,
            summary,
            steps: self.steps,
            knee: self.knee,
            verdict: Verdict::default(),
            failure,
        };
        result.verdict = judge_result(&result, machine);
        result.verdict.reasons.extend(self.reasons);
        result
    }
}

/// The duration of a repetition in seconds, for proportions.
fn length_s(point: &Point) -> f64 {
    match point.extent.unit {
        Unit::Seconds(seconds) => seconds + point.extent.warm_up_s,
        Unit::Records(records) => records as f64,
    }
}

/// The warm-up of a search: its first trial.
fn first_load(point: &Point) -> Load {
    match point.load {
        Load::RaiseRate { first_records_per_s, .. } => Load::Rate { records_per_s: first_records_per_s },
        _ => Load::Maximum,
    }
}

/// The trial that a point represents.
fn trial_of(point: &Point) -> Trial {
    let records_per_s = match point.load {
        Load::Rate { records_per_s } => Some(records_per_s),
        _ => None,
    };
    Trial { producers: point.producers.count, records_per_s }
}

/// Applies a trial to a point. If each producer has its own process, that stays so.
fn set(current: &mut Point, requested: &Point, trial: Trial) {
    current.load = match trial.records_per_s {
        Some(records_per_s) => Load::Rate { records_per_s },
        None => Load::Maximum,
    };
    let (own_process, own_thread) = (
        requested.producers.processes >= requested.producers.count,
        requested.producers.processes * requested.producers.threads >= requested.producers.count,
    );
    current.producers.count = trial.producers;
    if own_process {
        current.producers.processes = trial.producers;
    } else if own_thread {
        current.producers.threads = trial.producers.div_ceil(requested.producers.processes.max(1));
    }
}

/// The outcome of a trial.
fn step(trial: Trial, repetition: &Repetition, cpus: u32) -> (Outcome, Step) {
    let records_per_s = repetition.figures.records_per_s().unwrap_or_default();
    let behind = trial
        .records_per_s
        .and_then(|requested| fell_behind(requested, records_per_s, &repetition.produced))
        .is_some();
    // Failed records were not sustained, regardless of the rate of the others.
    let lags = consumers_fell_behind(&repetition.figures).is_some();
    let fell_behind = trial.records_per_s.is_some() && (behind || lags || repetition.given_up > 0);
    let share = |prefix: &str| {
        let of_them = |used: &&ProcessUse| used.name.starts_with(prefix);
        let of_them = || repetition.processes.iter().filter(of_them);
        let used_s: f64 = of_them().map(|used| used.user_s + used.system_s).sum();
        // Processes of agents have the processors of all agents of clients, or of brokers.
        let cpus = match of_them().any(|used| used.agent.is_some()) {
            true if prefix == "broker" => cpus_of_brokers(repetition),
            true => repetition.agents.iter().map(|agent| agent.cpus).sum(),
            false => cpus,
        };
        used_s / (repetition.measured_s * f64::from(cpus.max(1))).max(f64::MIN_POSITIVE)
    };
    let step = Step {
        producers: trial.producers,
        asked_records_per_s: trial.records_per_s,
        records_per_s,
        p99_us: repetition.figures.acknowledge_p99_us,
        fell_behind,
        broker_cpu_share: share("broker"),
        producer_cpu_share: share("producer"),
    };
    (Outcome { records_per_s, fell_behind }, step)
}

/// Processors of the watched machines with a broker whose process is known, each machine once.
fn cpus_of_brokers(repetition: &Repetition) -> u32 {
    let mut counted: Vec<&str> = Vec::new();
    let mut cpus = 0;
    for machine in &repetition.broker_machines {
        let id = machine.boot_id.as_ref().unwrap_or(&machine.address);
        let is_of = |used: &ProcessUse| {
            used.agent.as_ref() == Some(&machine.address) && used.name.starts_with("broker")
        };
        if !counted.contains(&&**id) && repetition.processes.iter().any(is_of) {
            counted.push(id);
            cpus += machine.cpus;
        }
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{BrokerMachineUse, Figures};

    #[test]
    fn processors_of_brokers_are_those_of_machines_with_their_processes() {
        let mut one = repetition();
        one.measured_s = 10.0;
        for (address, boot_id, cpus) in
            [("a:7000", "a", 4), ("a:7001", "a", 4), ("b:7000", "b", 8), ("lost:7000", "c", 64)]
        {
            one.broker_machines.push(BrokerMachineUse {
                address: address.to_owned(),
                boot_id: Some(boot_id.to_owned()),
                cpus,
                ..BrokerMachineUse::default()
            });
        }
        for address in ["a:7000", "a:7001", "b:7000"] {
            one.processes.push(ProcessUse {
                name: format!("broker-1 on {address}"),
                agent: Some(address.to_owned()),
                user_s: 20.0,
                ..ProcessUse::default()
            });
        }
        assert_eq!(cpus_of_brokers(&one), 12);
        let (_, step) = step(Trial { producers: 1, records_per_s: None }, &one, 1);
        assert!((step.broker_cpu_share - 0.5).abs() < 1e-9, "{step:?}");
    }
    use crate::result::testing::{point, repetition};

    #[test]
    fn trials_keep_each_producer_its_process_or_thread() {
        let trial = |producers| Trial { producers, records_per_s: None };
        let mut requested = point();
        requested.producers.count = 1;
        let mut current = requested.clone();
        set(&mut current, &requested, trial(5));
        assert_eq!((current.producers.count, current.producers.processes), (5, 5));

        (requested.producers.count, requested.producers.processes, requested.producers.threads) = (4, 2, 2);
        let mut current = requested.clone();
        set(&mut current, &requested, trial(7));
        assert_eq!((current.producers.processes, current.producers.threads), (2, 4));

        (requested.producers.count, requested.producers.processes, requested.producers.threads) = (4, 1, 1);
        let mut current = requested.clone();
        set(&mut current, &requested, Trial { producers: 4, records_per_s: Some(9.0) });
        assert_eq!((current.producers.processes, current.producers.threads), (1, 1));
        assert_eq!(current.load, Load::Rate { records_per_s: 9.0 });
    }

    #[test]
    fn a_step_has_fallen_behind_when_records_were_given_up() {
        let trial = Trial { producers: 1, records_per_s: Some(100.0) };
        let mut taken = Repetition {
            figures: Figures { produced_records_per_s: Some(99.9), ..Figures::default() },
            ..repetition()
        };
        assert!(!step(trial, &taken, 4).0.fell_behind);
        taken.given_up = 1;
        assert!(step(trial, &taken, 4).0.fell_behind);
    }

    #[test]
    fn a_step_is_what_reached_its_consumers() {
        let trial = Trial { producers: 1, records_per_s: Some(100.0) };
        let mut taken = repetition();
        taken.figures.produced_records_per_s = Some(100.0);
        taken.figures.consumed_records_per_s = Some(40.0);
        taken.figures.set_carried(1);
        let (outcome, step) = step(trial, &taken, 4);
        assert!(outcome.fell_behind && outcome.records_per_s == 40.0, "{step:?}");
    }
}
