//! The state machine of a run.
//!
//! ```text
//! Plan ──► Turn ──► ClusterUp ──► Prepare ──► Measure ──► CleanUp ──► Turn … ──► Report ──► Plan … ──► end
//!                      │             │           │ fails      ▲
//!                      │ fails       └───────────┴────────────┘
//!                      └──► Turn
//! ```
//!
//! - A round is the set of contenders that are measured together, for one point. Contenders alternate by
//!   repetition: each starts with a warm-up, then come the trials of a search, then the counted repetitions.
//!   [`Contender`] chooses the next step.
//! - A contender that fails leaves its round; the others continue.
//! - When no contender of a round has repetitions left, contenders with imprecise ratios get another
//!   repetition.
//! - At an interrupt or panic in any state, the step is dropped, which kills its workers, and [`Resources`]
//!   removes all that the step has created. After an interrupt, the completed part of the round is reported,
//!   including a repetition whose clean-up was interrupted.
//! - At the end of the plan the clusters keep running, for a plan that continues later; [`Walk::tear_down`]
//!   stops them.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::task::Poll;
use std::time::Duration;

use super::admin::unserved_by_pulsar;
use super::clock::now_us;
use super::clusters::unstarted;
use super::contender::Contender;
use super::error::Failure;
use super::idle_brokers::await_idle;
use super::interrupt::Interrupt;
use super::plan::Options;
use super::precision::imprecise;
use super::repetition::{self, PreparedRepetition, RepetitionResult, Setting, in_a_line};
use super::resources::Resources;
use super::topics;
use crate::machine;
use crate::result::{Machine, PointResult, TargetInfo};
use crate::target::{Cluster, RunningCluster, StartOptions};
use crate::terminal::{PointAt, Progress};
use crate::worker::Driver;

/// Time for the interrupt to arrive if a worker received it first: Ctrl-C reaches all processes.
const INTERRUPT_GRACE: Duration = Duration::from_millis(300);

/// The source of rounds, and the receiver of their results.
pub(super) trait Plan {
    /// The next round; `None` at the end.
    fn next(&mut self) -> Option<Round>;

    /// Receives the results of the last round, and the current descriptions of the targets.
    fn report(&mut self, results: Vec<PointResult>, targets: &BTreeMap<String, TargetInfo>);
}

/// Contenders measured together.
#[derive(Debug)]
pub(super) struct Round {
    contenders: Vec<Contender>,
    /// Groups that alternate internally, one group after the other.
    groups: VecDeque<Group>,
}

#[derive(Debug)]
struct Group {
    /// Indexes of contenders.
    members: Vec<usize>,
    /// The member whose turn is next.
    next: usize,
    /// The target whose cluster runs alone, if memory does not suffice for all.
    alone: Option<usize>,
}

impl Round {
    /// A round in which all contenders alternate.
    pub(super) fn together(contenders: Vec<Contender>) -> Round {
        let members = (0..contenders.len()).collect();
        Round { contenders, groups: [Group { members, next: 0, alone: None }].into() }
    }

    /// A round of one target after another, each with the memory to itself.
    pub(super) fn apart(mut contenders: Vec<Contender>) -> Round {
        let mut groups: VecDeque<Group> = VecDeque::new();
        for (place, contender) in contenders.iter_mut().enumerate() {
            contender.note_alone();
            match groups.iter_mut().find(|group| group.alone == Some(contender.target)) {
                Some(group) => group.members.push(place),
                None => {
                    groups.push_back(Group { members: vec![place], next: 0, alone: Some(contender.target) })
                }
            }
        }
        Round { contenders, groups }
    }
}

impl Group {
    /// The member whose turn it is.
    fn turn(&mut self, wants_more: impl Fn(usize) -> bool) -> Option<usize> {
        let count = self.members.len();
        let mut places = (self.next..self.next + count).map(|turn| turn % count);
        let place = places.find(|place| wants_more(self.members[*place]))?;
        self.next = place + 1;
        Some(self.members[place])
    }
}

/// A repetition in progress.
#[derive(Debug)]
struct Turn {
    /// The index of the contender in its round.
    contender: usize,
    cluster: Cluster,
    topics: Vec<String>,
}

/// The state of a run.
enum State {
    /// Gets the next round of the plan.
    Plan,
    /// Chooses the next contender.
    Turn,
    /// Ensures that the contender's cluster runs.
    ClusterUp(usize),
    /// Prepares topics, backlog, workers and memory.
    Prepare(Turn),
    /// Starts the workers and follows them to the end: a warm-up, a trial of a search, or a counted
    /// repetition.
    Measure(Turn, Box<PreparedRepetition>),
    /// Removes all that the repetition has created, and records its outcome: the measurement, or this
    /// failure.
    CleanUp(Turn, Option<Failure>),
    /// Passes on the results of the round.
    Report,
    /// The plan has ended.
    End,
}

/// Why a step did not complete.
enum StepFailure {
    Interrupted(String),
    Panicked(Box<dyn Any + Send>),
}

/// A run in progress.
pub(super) struct Walk<'a> {
    pub(super) options: &'a Options,
    interrupt: &'a Interrupt,
    progress: &'a Progress,
    machine: Machine,
    targets: BTreeMap<String, TargetInfo>,
    resources: Resources,
    round: Round,
    /// A measured repetition that is not recorded yet, and its contender: an interrupted clean-up does not
    /// lose it.
    measured: Option<(usize, RepetitionResult)>,
    /// The current repetition, for the progress display.
    begun: Option<PointAt>,
    /// Distinguishes the topics of this run from others on the same cluster.
    id: String,
    /// Number of repetitions so far.
    serial: u32,
}

impl<'a> Walk<'a> {
    /// A walk that has not started.
    pub(super) fn new(options: &'a Options, interrupt: &'a Interrupt, progress: &'a Progress) -> Walk<'a> {
        let mut start = StartOptions::new(&options.work_dir);
        start.kafka.clone_from(&options.kafka);
        start.binary = Some(options.binary.clone());
        start.has_metrics = options.look_inside;
        Walk {
            options,
            interrupt,
            progress,
            machine: machine_of(&options.work_dir),
            targets: BTreeMap::new(),
            resources: Resources::new(options.targets.len(), start),
            round: Round::together(Vec::new()),
            measured: None,
            begun: None,
            id: topics::base_36(now_us()),
            serial: 0,
        }
    }

    pub(super) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Performs a plan, from its first round to its end. Returns the reason of an interrupt, if there was
    /// one.
    pub(super) async fn all(&mut self, plan: &mut dyn Plan) -> Option<String> {
        let mut state = State::Plan;
        let mut interrupted = None;
        loop {
            state = match self.unless_interrupted(state, plan).await {
                Ok(State::End) => return interrupted,
                Ok(State::Plan) if interrupted.is_some() => return interrupted,
                Ok(next) => next,
                Err(StepFailure::Interrupted(why)) => {
                    self.abandon().await;
                    interrupted = Some(why);
                    State::Report
                }
                Err(StepFailure::Panicked(panic)) => {
                    self.abandon().await;
                    resume_unwind(panic);
                }
            };
        }
    }

    /// The description of a target that has been started.
    pub(super) fn target(&self, name: &str) -> Option<&TargetInfo> {
        self.targets.get(name)
    }

    /// Stops the clusters, and returns the descriptions of the targets.
    pub(super) fn tear_down(mut self, interrupted: bool) -> BTreeMap<String, TargetInfo> {
        let progress = self.progress;
        self.resources.tear_down(interrupted, &|line| progress.log(line));
        self.targets
    }

    /// Performs one step, unless it is interrupted. A dropped step kills its workers.
    async fn unless_interrupted(&mut self, state: State, plan: &mut dyn Plan) -> Result<State, StepFailure> {
        let interrupt = self.interrupt;
        // Between awaited steps nothing takes time, so no result is lost to an interrupt.
        if matches!(state, State::Plan | State::Turn | State::Report | State::End) {
            return Ok(self.step(state, plan).await);
        }
        tokio::select! {
            biased;
            why = interrupt.wait() => Err(StepFailure::Interrupted(why)),
            next = caught(self.step(state, plan)) => next.map_err(StepFailure::Panicked),
        }
    }

    /// Performs a state's action, and returns the next state.
    async fn step(&mut self, state: State, plan: &mut dyn Plan) -> State {
        match state {
            State::Plan => match plan.next() {
                Some(round) => {
                    self.round = round;
                    State::Turn
                }
                None => State::End,
            },
            State::Turn => self.turn(),
            State::ClusterUp(contender) => self.cluster_up(contender).await,
            State::Prepare(turn) => self.prepare(turn).await,
            State::Measure(turn, prepared) => {
                let taken =
                    self.with_setting(&turn, async |setting| repetition::measure(&setting, *prepared).await);
                let taken = taken.await;
                let failure = match taken {
                    Ok(taken) => {
                        self.measured = Some((turn.contender, taken));
                        None
                    }
                    Err(failure) => Some(failure),
                };
                State::CleanUp(turn, failure)
            }
            State::CleanUp(turn, failure) => self.clean_up(turn, failure).await,
            State::Report => {
                let round = std::mem::replace(&mut self.round, Round::together(Vec::new()));
                let results = round.contenders.into_iter().map(|contender| contender.result(&self.machine));
                plan.report(results.collect(), &self.targets);
                State::Plan
            }
            State::End => State::End,
        }
    }

    fn turn(&mut self) -> State {
        let Round { contenders, groups } = &mut self.round;
        while let Some(group) = groups.front_mut() {
            if let Some(target) = group.alone {
                let progress = self.progress;
                self.resources.clusters.stop_others(target, &|line| progress.log(line));
            }
            if let Some(contender) = group.turn(|place| contenders[place].wants_more()) {
                return State::ClusterUp(contender);
            }
            let imprecise = match (group.alone, self.options.precision) {
                (None, Some(precision)) => imprecise(contenders, &group.members, precision),
                // Without turns there are no pairs.
                _ => Vec::new(),
            };
            match imprecise.is_empty() {
                true => drop(groups.pop_front()),
                false => imprecise.into_iter().for_each(|place| contenders[place].go_on()),
            }
        }
        State::Report
    }

    async fn cluster_up(&mut self, place: usize) -> State {
        let contender = &mut self.round.contenders[place];
        let target = contender.target;
        let spec = &self.options.targets[target];
        let wanted = contender.point().cluster.clone();
        let progress = self.progress;
        let started = match contender.driver() {
            driver if wanted.brokers == 0 && driver != Driver::Stream => {
                Err(Failure::NeedsCluster { driver: driver.words() })
            }
            driver => match unserved_by_pulsar(spec, driver, contender.point()) {
                Err(failure) => Err(failure),
                Ok(()) => {
                    let say = |line: &str| progress.log(line);
                    let clusters = &mut self.resources.clusters;
                    match clusters.ensure(target, spec, &wanted, &say).await {
                        Ok(()) => match clusters.ensure_idle_partitions(target, &self.id, &say).await {
                            Ok(()) => clusters.ensure_paths(target, self.options.agents.as_ref()).await,
                            failed => failed,
                        },
                        Err(failure) => Err(failure.into()),
                    }
                }
            },
        };
        if let Err(failure) = started {
            let name = contender.target_name().to_owned();
            self.targets.entry(name).or_insert_with(|| unstarted(spec));
            self.note_failure(place, &failure);
            return State::Turn;
        }
        if let Some(bytes) = self.resources.clusters.warm_bytes(target, contender.kind()) {
            contender.skip_warm_up(bytes);
        }
        let cluster = self.running(target).cluster().clone();
        self.targets.entry(cluster.name.clone()).or_insert_with(|| cluster.info.clone());
        self.serial += 1;
        let contender = &mut self.round.contenders[place];
        contender.set_cluster(&cluster);
        let topics = topics::names(&self.id, self.serial, &contender.point().topics);
        State::Prepare(Turn { contender: place, cluster, topics })
    }

    async fn prepare(&mut self, turn: Turn) -> State {
        let contender = &self.round.contenders[turn.contender];
        let at = contender.at();
        self.progress.point_began(&at);
        self.begun = Some(at);
        let (target, point) = (contender.target, contender.point());
        let admin = match point.cluster.brokers {
            0 => Ok(None),
            _ => self.resources.own_topics(target, &turn.cluster, &turn.topics, point).await.map(Some),
        };
        let prepared = match admin {
            Ok(admin) => {
                self.with_setting(&turn, async |setting| repetition::prepare(&setting, admin).await).await
            }
            Err(failure) => Err(failure),
        };
        match prepared {
            Ok(mut prepared) => {
                self.progress.phase("waiting for the other targets to rest");
                prepared.note(await_idle(&self.resources.clusters.processes_beside(target)).await);
                State::Measure(turn, Box::new(prepared))
            }
            Err(failure) => State::CleanUp(turn, Some(failure)),
        }
    }

    async fn clean_up(&mut self, turn: Turn, failure: Option<Failure>) -> State {
        self.progress.phase("deleting the topics");
        let measured = self.measured.as_ref();
        let written_bytes = measured.map_or(0, |(_, taken)| taken.repetition.evidence.bytes_on_disk);
        let failure = match (failure, self.resources.end_repetition(written_bytes).await) {
            // The death of a broker explains more than the repetition's own error.
            (_, Err(died @ Failure::BrokerDied(_))) => Some(died),
            (None, removed) => removed.err(),
            (failure, _) => failure,
        };
        if let Some(failure) = failure {
            tokio::time::sleep(INTERRUPT_GRACE).await;
            self.measured = None;
            self.note_failure(turn.contender, &failure);
            return State::Turn;
        }
        self.record();
        let contender = &self.round.contenders[turn.contender];
        if !contender.has_failed() {
            self.resources.clusters.note_warm(contender.target, contender.kind(), contender.bytes());
        }
        State::Turn
    }

    /// Records the measured repetition, if there is one.
    fn record(&mut self) {
        let Some((place, taken)) = self.measured.take() else { return };
        if let Some(at) = self.begun.take() {
            self.progress.point_ended(&at, &in_a_line(&taken.repetition));
        }
        self.round.contenders[place].taken(taken.repetition, taken.client, cpus());
    }

    /// Removes all that an abandoned step has created.
    async fn abandon(&mut self) {
        self.record();
        if let Some(at) = self.begun.take() {
            self.progress.point_ended(&at, "interrupted");
        }
        if let Err(error) = self.resources.abandon().await {
            self.progress.log(&format!("Failed to delete topics of the run: {error}"));
        }
    }

    fn note_failure(&mut self, place: usize, failure: &Failure) {
        let contender = &mut self.round.contenders[place];
        let at = self.begun.take().unwrap_or_else(|| contender.at());
        let text = failure.to_string();
        self.progress.point_ended(&at, &format!("failed: {text}"));
        contender.failed(text);
    }

    /// Performs an operation with the context of a repetition.
    async fn with_setting<T>(&self, turn: &Turn, act: impl AsyncFnOnce(Setting<'_>) -> T) -> T {
        let contender = &self.round.contenders[turn.contender];
        let running = self.running(contender.target);
        let died = || running.died();
        // The brokers of the lab are on this machine, and streams in memory have none.
        let is_ours = self.options.targets[contender.target].is_started_by_lab();
        let watches = !is_ours && contender.point().cluster.brokers > 0;
        let setting = Setting {
            cluster: &turn.cluster,
            died: &died,
            driver: contender.driver(),
            binary: &self.options.binary,
            agents: self.options.agents.as_ref(),
            broker_agents: self.options.broker_agents.as_ref().filter(|_| watches),
            look_inside: self.options.look_inside && !contender.is_searching(),
            point: contender.point(),
            number: contender.number(),
            counts: contender.counts(),
            seed: contender.next_seed(),
            topics: &turn.topics,
            expected_bytes: contender.bytes(),
            memory: &self.resources.memory,
            progress: self.progress,
        };
        act(setting).await
    }

    fn running(&self, target: usize) -> &RunningCluster {
        self.resources.clusters.get(target).expect("a repetition follows the start of its cluster")
    }
}

/// The machine, with the file system of the nearest existing directory.
fn machine_of(work_dir: &Path) -> Machine {
    let existing = work_dir.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("."));
    machine::fingerprint(existing)
}

fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX))
}

/// The result of a future, or its panic.
async fn caught<T>(future: impl Future<Output = T>) -> Result<T, Box<dyn Any + Send>> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        // The incomplete state is only removed before the panic continues.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(given)) => Poll::Ready(Ok(given)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_a_group_take_turns_until_none_wants_more() {
        let mut left = [2, 0, 3];
        let mut group = Group { members: vec![0, 1, 2], next: 0, alone: None };
        let mut order = Vec::new();
        while let Some(member) = group.turn(|member| left[member] > 0) {
            left[member] -= 1;
            order.push(member);
        }
        assert_eq!(order, [0, 2, 0, 2, 2]);
    }

    #[tokio::test]
    async fn a_panic_is_caught_between_two_polls_and_after_them() {
        assert_eq!(caught(async { 7 }).await.ok(), Some(7));
        let later = async {
            tokio::task::yield_now().await;
            panic!("a broken invariant");
        };
        let panic = caught::<()>(later).await.expect_err("it panics");
        assert_eq!(panic.downcast_ref(), Some(&"a broken invariant"));
    }
}
