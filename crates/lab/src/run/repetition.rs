//! One repetition of a point on a cluster, in two steps: [`prepare`] creates topics, a backlog if needed,
//! workers and reserved memory; [`measure`] starts the workers together, follows their course, and gathers
//! the evidence.
//!
//! `resources` removes all remains, regardless of the outcome. Workers end with the step that drops them.

use std::path::Path;
use std::time::Duration;

use super::admin::Admin;
use super::agents::{AgentSessions, lead_us, placed, placed_before};
use super::broker_machines::{self, BrokerMachines, MachineUses};
use super::clock::now_us;
use super::course::{Course, disk_usage_max};
use super::drain::Drain;
use super::error::Failure;
use super::figures::{CombinedReport, figures, gather, seconds};
use super::fleet::{Fleet, RunningFleet, divide};
use super::idle::IdleConnections;
use super::memory::Memory;
use super::plan::warm_up_s;
use super::reading_back::{keeps_order, read_back, stamps};
use super::topic_churn::TopicChurn;
use super::topics;
use super::verdict::negative_latencies;
use crate::agent::Agents;
use crate::evidence::{self, ReadBack, Watch};
use crate::machine::storage::chain;
use crate::profile::Profiler;
use crate::quantity;
use crate::result::{Evidence, Profile, Repetition, Sample};
use crate::sample::{Sampler, Usage};
use crate::target::{self, Cluster};
use crate::terminal::Progress;
use crate::worker::{Assignment, Driver, Report, Role, Span, StopWhen};
use crate::workload::{Clients, Load, Measure, Point, Unit, Verification};

/// The context of a repetition.
pub(super) struct Setting<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) died: &'a (dyn Fn() -> Option<String> + Sync),
    pub(super) driver: Driver,
    /// The binary of the workers.
    pub(super) binary: &'a Path,
    /// The agents that run the workers; `None` for workers on this machine.
    pub(super) agents: Option<&'a Agents>,
    /// The agents that watch the brokers' machines; `None` for brokers of the lab.
    pub(super) broker_agents: Option<&'a Agents>,
    /// True to look inside the processes on this machine.
    pub(super) look_inside: bool,
    /// The point, with the producers and load of this repetition.
    pub(super) point: &'a Point,
    pub(super) number: u32,
    /// True if the repetition counts; a warm-up is not read back.
    pub(super) counts: bool,
    pub(super) seed: u64,
    /// Names of the topics, unique to this repetition.
    pub(super) topics: &'a [String],
    /// Maximum bytes written, for reserving memory.
    pub(super) expected_bytes: u64,
    /// The memory held between repetitions.
    pub(super) memory: &'a Memory,
    pub(super) progress: &'a Progress,
}

/// The result of a repetition.
#[derive(Debug)]
pub(super) struct RepetitionResult {
    pub(super) repetition: Repetition,
    /// The client's name and version.
    pub(super) client: String,
}

/// A repetition that is ready to start.
pub(super) struct PreparedRepetition {
    /// The lab's own client; `None` for streams in memory.
    admin: Option<Admin>,
    /// The producers' reports of the backlog.
    prefilled: Vec<Report>,
    observers: Observers,
    agents: Option<AgentSessions>,
    broker_machines: Option<BrokerMachines>,
    watch: Option<Watch>,
    idle: IdleConnections,
    producers: Option<Fleet>,
    consumers: Option<Fleet>,
    client: String,
    /// Time until the consumers had joined their groups, in seconds.
    group_start_s: f64,
    /// Notes for readers of the result.
    notes: Vec<String>,
}

impl PreparedRepetition {
    /// Adds a note for readers of the result.
    pub(super) fn note(&mut self, note: Option<String>) {
        self.notes.extend(note);
    }
}

/// The workers' results.
struct WorkerResults {
    producers: RunningFleet,
    consumers: RunningFleet,
    /// The smallest number of in-sync replicas, by time.
    in_sync: Vec<(u64, u32)>,
    /// Start time of the workers.
    began_us: u64,
    measure_from_us: u64,
    /// The records that existed before, once for each group.
    backlog: u64,
}

impl WorkerResults {
    /// Adds the smallest number of in-sync replicas to samples.
    fn note_replicas(&self, samples: &mut [Sample]) {
        for sample in samples {
            let before = self.in_sync.iter().rev().find(|(at_us, _)| *at_us <= sample.at_us);
            sample.in_sync_replicas_min = before.map(|(_, least)| *least);
        }
    }
}

/// Prepares topics, a backlog, workers and memory. The caller removes the topics.
pub(super) async fn prepare(
    setting: &Setting<'_>,
    admin: Option<Admin>,
) -> Result<PreparedRepetition, Failure> {
    let point = setting.point;
    let mut prefilled = Vec::new();
    if let Some(admin) = &admin {
        tracing::debug!("Creating topics");
        admin.create(setting.topics, &point.topics).await?;
    }
    // As late as possible: from here on, the drift of clocks is an error of times.
    let mut agents = match setting.agents {
        Some(agents) => Some(AgentSessions::begin(agents).await?),
        None => None,
    };
    if admin.is_some() && point.measure != Measure::Produce {
        prefilled = prefill(setting, agents.as_ref()).await?;
    }
    let kafka = admin.as_ref().and_then(Admin::kafka);
    let idle = match kafka {
        Some(admin) => IdleConnections::open(admin, point.cluster.idle_connections).await?,
        None => IdleConnections::default(),
    };
    tracing::debug!("Starting workers");
    let broker_machines = broker_machines::begin(setting.broker_agents, kafka).await;
    let observers = Observers::start(setting);
    let watch = kafka.map(|admin| Watch::start(admin.clone(), setting.topics.to_vec()));
    let (producing, consuming) = match point.measure {
        Measure::Produce | Measure::Drain => (point.producers.count > 0, point.consumers.count > 0),
        Measure::Consume => (false, true),
    };
    let consumers = match consuming {
        true => Some(ready_consumers(setting, agents.as_ref()).await?),
        false => None,
    };
    let group_start_s = consumers.as_ref().map_or(0.0, Fleet::ready_s);
    let producers = match producing {
        true => Some(ready_producers(setting, agents.as_ref()).await?),
        false => None,
    };
    let mut client = String::new();
    for fleet in [&consumers, &producers].into_iter().flatten() {
        fleet.client().clone_into(&mut client);
        for (worker, pid) in fleet.processes() {
            match (worker.agent(), &mut agents) {
                (Some(agent), Some(agents)) => agents.add(agent, worker.name(), pid).await?,
                _ => observers.add(worker.name(), pid),
            }
        }
    }
    tracing::debug!("Reserving memory");
    setting.progress.phase("reserving memory");
    let dir = setting.cluster.data_dir.as_deref().filter(|_| point.measure != Measure::Consume);
    setting.memory.make_ready(dir, setting.expected_bytes).await;
    Ok(PreparedRepetition {
        admin,
        prefilled,
        observers,
        agents,
        broker_machines,
        watch,
        idle,
        producers,
        consumers,
        client,
        group_start_s,
        notes: Vec::new(),
    })
}

/// Starts a prepared repetition, follows it to its end, and gathers the evidence.
pub(super) async fn measure(
    setting: &Setting<'_>,
    prepared: PreparedRepetition,
) -> Result<RepetitionResult, Failure> {
    let point = setting.point;
    let PreparedRepetition {
        admin,
        prefilled,
        observers,
        agents,
        broker_machines,
        watch,
        idle,
        producers,
        consumers,
        client,
        group_start_s,
        notes,
    } = prepared;
    tracing::debug!("Starting");
    setting.progress.phase("beginning");
    let backlog = prefilled.iter().map(|report| report.acknowledged).sum();
    let passing = match point.topics.created_per_s {
        0 => None,
        _ => Some(begin_passing(setting).await?),
    };
    let ran = run_workers(setting, (producers, consumers), backlog, watch.as_ref(), &observers).await?;
    let passed = match passing {
        Some(passing) => Some(passing.finish().await),
        None => None,
    };
    let metadata_us = match admin.as_ref().and_then(Admin::kafka) {
        Some(admin) if point.cluster.idle_partitions > 0 => Some(topics::metadata_us(admin).await?),
        _ => None,
    };
    let idle_note = idle.note();
    drop(idle);
    let watched = match watch {
        Some(watch) => watch.finish().await,
        None => evidence::ReplicaObservations::default(),
    };
    tracing::debug!("Gathering evidence");
    let reports = |fleet: &RunningFleet| fleet.reports.iter().flatten().cloned().collect::<Vec<Report>>();
    let (produced_by, consumed_by) = (reports(&ran.producers), reports(&ran.consumers));
    let produced = gather(produced_by.iter())?;
    let (consumed, drain) = consumption(setting, &ran, &consumed_by, group_start_s)?;
    let main = main_of(setting.point.measure, &produced, &consumed)?;
    let mut usage = observers.finish(setting, agents, main.span).await?;
    ran.note_replicas(&mut usage.samples);
    let machines = uses_of(broker_machines, main.span, &mut usage).await;
    let took = Duration::from_micros(main.span.to_us.saturating_sub(ran.began_us));
    let producers: Vec<Report> = prefilled.into_iter().chain(produced_by).collect();
    let (evidence, unproven) =
        evidence_of(setting, admin.as_ref(), &producers, &consumed_by, took, &watched).await?;
    let mut repetition = put_together(setting, &ran, (&produced, &consumed, drain), usage, evidence)?;
    if let Some(uses) = machines {
        add_machines(setting, admin.as_ref().and_then(Admin::kafka), &mut repetition, uses).await;
    }
    let figures = &mut repetition.figures;
    figures.metadata_us = metadata_us;
    if let Some(passed) = &passed {
        passed.set_figures(figures, (main.span.from_us, main.span.to_us));
    }
    let passed_note = passed.and_then(|passed| passed.note());
    repetition.notes.extend(notes.into_iter().chain(idle_note).chain(passed_note).chain(unproven));
    Ok(RepetitionResult { repetition, client })
}

/// The observers of processes and machines.
struct Observers {
    sampler: Sampler,
    profiler: Option<Profiler>,
}

impl Observers {
    /// Starts to observe this machine and the brokers on it.
    fn start(setting: &Setting<'_>) -> Observers {
        let brokers = &setting.cluster.processes;
        Observers {
            sampler: Sampler::start(brokers.clone()),
            // In the repetition that does not count, too: a JVM's first recording changes classes, whose code
            // is then compiled again. The look itself is not kept.
            profiler: setting.look_inside.then(|| Profiler::start(brokers, &setting.cluster.metrics)),
        }
    }

    /// Adds the process of a worker on this machine.
    fn add(&self, name: &str, pid: u32) {
        self.sampler.add(name, pid);
        self.profiler.iter().for_each(|profiler| profiler.add(name, pid));
    }

    /// The usage of this machine and of the agents' during the measurement.
    async fn finish(
        self,
        setting: &Setting<'_>,
        agents: Option<AgentSessions>,
        span: Span,
    ) -> Result<Usage, Failure> {
        let mut usage = self.sampler.finish(span.from_us, span.to_us);
        usage.host.storage.extend(setting.cluster.data_dir.as_deref().and_then(chain));
        if let Some(agents) = agents {
            let (of_agents, processes) = agents.finish((span.from_us, span.to_us)).await?;
            usage.agents = of_agents;
            usage.processes.extend(processes);
        }
        let Some(profiler) = self.profiler else { return Ok(usage) };
        if !setting.counts {
            // Recordings take a moment to stop; their end has no result.
            let _ = tokio::task::spawn_blocking(move || drop(profiler)).await;
            return Ok(usage);
        }
        let mut profile = profile_of(profiler, setting, span).await;
        for used in &usage.processes {
            profile.note_cpu(&used.name, used.user_s + used.system_s);
        }
        usage.profile = Some(profile);
        Ok(usage)
    }
}

/// The look inside the processes of this machine during the measurement.
async fn profile_of(profiler: Profiler, setting: &Setting<'_>, span: Span) -> Profile {
    setting.progress.phase("reading stacks");
    // Recordings take seconds to read.
    let read = tokio::task::spawn_blocking(move || profiler.finish(span.from_us, span.to_us));
    let mut profile = match read.await {
        Ok(profile) => profile,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    };
    if setting.agents.is_some() {
        profile.missing.push("clients: agents do not look inside processes".to_owned());
    }
    profile
}

/// Begins to create and delete temporary topics, over separate connections.
async fn begin_passing(setting: &Setting<'_>) -> Result<TopicChurn, Failure> {
    let cluster = target::connect(&setting.cluster.bootstrap, &setting.cluster.client_properties).await?;
    let prefix = topics::passing_prefix(setting.topics);
    Ok(TopicChurn::start(cluster, prefix, &setting.point.topics, now_us() + lead_us(setting.agents)))
}

/// The evidence, and what it does not prove.
async fn evidence_of(
    setting: &Setting<'_>,
    admin: Option<&Admin>,
    producers: &[Report],
    consumers: &[Report],
    took: Duration,
    watched: &evidence::ReplicaObservations,
) -> Result<(Evidence, Vec<String>), Failure> {
    let Some(admin) = admin else {
        let why = "there is no log: the streams checked each message themselves".to_owned();
        let acknowledged = producers.iter().map(|report| report.acknowledged).sum();
        return Ok((Evidence { acknowledged, not_read_back: Some(why), ..Evidence::default() }, Vec::new()));
    };
    let read_back = match setting.counts {
        true => read_back(&stamps(setting.point, setting.driver), took),
        false => ReadBack::No("it is a warm-up".to_owned()),
    };
    setting.progress.phase(match read_back {
        ReadBack::No(_) => "looking at the log",
        ReadBack::Within(_) | ReadBack::Whole => "reading back",
    });
    let (topics, records, seed, read_back) =
        (setting.topics, &setting.point.records, setting.seed, &read_back);
    let replication_factor = setting.point.topics.replication_factor;
    let cluster = match admin {
        Admin::Kafka(cluster) => cluster,
        Admin::Pulsar(admin) => {
            let claim = evidence::PulsarClaim {
                admin,
                service_url: setting.cluster.bootstrap.first().map_or("", String::as_str),
                facts: &setting.cluster.info.facts,
                topics,
                partitions: setting.point.topics.partitions,
                replication_factor,
                producers,
                consumers,
                records,
                seed,
                read_back,
            };
            return Ok(evidence::collect_pulsar(claim).await?);
        }
    };
    let claim = evidence::Claim {
        cluster,
        topics,
        replication_factor,
        producers,
        consumers,
        records,
        seed,
        keeps_order: keeps_order(&setting.point.producers.properties),
        read_back,
        watched,
    };
    let is_ordered = claim.keeps_order;
    let evidence = evidence::collect(claim).await?;
    let reordered = evidence.check.as_ref().map_or(0, |check| check.reordered);
    let note = (reordered > 0 && !is_ordered).then(|| {
        format!(
            "{} records are out of order in their partition: producers without enable.idempotence and with several \
             requests in flight promise no order after a retry",
            quantity::count(reordered)
        )
    });
    Ok((evidence, note.into_iter().collect()))
}

/// The measured role: producers or consumers, according to the point.
fn main_of<'a>(
    measure: Measure,
    produced: &'a CombinedReport,
    consumed: &'a CombinedReport,
) -> Result<&'a CombinedReport, Failure> {
    let (main, what) = match measure {
        Measure::Produce => (produced, "produced"),
        Measure::Consume | Measure::Drain => (consumed, "consumed"),
    };
    if main.acknowledged == 0 && main.failed > 0 {
        let why = main.first_failure.clone().unwrap_or_else(|| "no reason was given".to_owned());
        return Err(Failure::NothingTaken { given_up: main.failed, why });
    }
    if main.span.records == 0 {
        return Err(Failure::NothingMeasured { what });
    }
    Ok(main)
}

fn put_together(
    setting: &Setting<'_>,
    ran: &WorkerResults,
    (produced, consumed, drain): (&CombinedReport, &CombinedReport, Option<Drain>),
    usage: Usage,
    evidence: Evidence,
) -> Result<Repetition, Failure> {
    let main = main_of(setting.point.measure, produced, consumed)?;
    let mut figures = figures(produced, consumed, &usage.processes, drain.as_ref());
    if setting.point.measure == Measure::Produce && setting.point.consumers.count > 0 {
        figures.set_carried(setting.point.consumer_groups);
    }
    let mut notes: Vec<String> = produced.notes.iter().chain(&consumed.notes).cloned().collect();
    if drain.is_some() && !reports_backlog(setting) {
        notes.push(
            "The driver does not tell the backlog from later records: the drain ends with as many records as it had, at a time \
             between two of the driver's reports"
                .to_owned(),
        );
    }
    let late_us = produced.late_us.max(consumed.late_us);
    if late_us > 0 {
        notes.push(format!(
            "The start command reached a worker {} after its start: the worker began late",
            quantity::time_us(late_us as f64)
        ));
    }
    if let Some(why) = &produced.first_failure {
        notes.push(format!("{} records failed: {why}", produced.failed));
    }
    let mut repetition = Repetition {
        number: setting.number,
        began_at_us: main.span.from_us,
        measured_s: seconds(&main.span),
        figures,
        acknowledge_latency: produced.acknowledge_latency.clone(),
        end_to_end_latency: consumed.end_to_end_latency.clone(),
        produced: ran.producers.together(ran.measure_from_us),
        consumed: ran.consumers.together(ran.measure_from_us),
        processes: usage.processes,
        host: usage.host,
        agents: usage.agents,
        broker_machines: Vec::new(),
        unwatched_brokers: Vec::new(),
        samples: usage.samples,
        profile: usage.profile,
        evidence,
        given_up: produced.failed,
        notes,
    };
    // Without stamps, times are those of timestamps, which a broker may have set.
    if stamps(setting.point, setting.driver).is_ok() {
        let fault = negative_latencies(setting.point, &repetition, consumed.negative);
        repetition.evidence.faults.extend(fault);
    }
    Ok(repetition)
}

/// The usage of the watched machines of brokers, whose processes are added to the others.
async fn uses_of(machines: Option<BrokerMachines>, span: Span, usage: &mut Usage) -> Option<MachineUses> {
    let (uses, processes) = machines?.finish((span.from_us, span.to_us)).await;
    usage.processes.extend(processes);
    Some(uses)
}

/// Adds the watched machines of brokers, with the log files there.
async fn add_machines(
    setting: &Setting<'_>,
    cluster: Option<&thalweg_client::Cluster>,
    repetition: &mut Repetition,
    mut uses: MachineUses,
) {
    if let Some(agents) = setting.broker_agents {
        uses.add_logs(agents, cluster, setting.topics, &mut repetition.evidence).await;
    }
    uses.limit_figures(&mut repetition.figures);
    repetition.broker_machines = uses.machines;
    repetition.unwatched_brokers = uses.unwatched;
    repetition.notes.extend(uses.notes);
}

/// What consumers report, and the drain of a backlog, whose figures then are theirs.
fn consumption(
    setting: &Setting<'_>,
    ran: &WorkerResults,
    reports: &[Report],
    group_start_s: f64,
) -> Result<(CombinedReport, Option<Drain>), Failure> {
    // For streams in memory, the producers report deliveries.
    if setting.point.cluster.brokers == 0 {
        return Ok((CombinedReport::default(), None));
    }
    let mut consumed = gather(reports.iter())?;
    let drain = drain(setting, ran, group_start_s)?;
    if let Some(drain) = &drain {
        consumed.drain(&drain.span);
    }
    Ok((consumed, drain))
}

/// The drain of a backlog, if the point has one.
fn drain(setting: &Setting<'_>, ran: &WorkerResults, group_start_s: f64) -> Result<Option<Drain>, Failure> {
    if setting.point.measure != Measure::Drain {
        return Ok(None);
    }
    let drain = match reports_backlog(setting) {
        true => Drain::by_records(ran.consumers.reports.iter().flatten(), group_start_s)?,
        false => Drain::by_count(&ran.consumers.intervals, ran.backlog, ran.began_us),
    };
    // Workers are stopped at the end of the drain only.
    Ok(Some(drain.ok_or(Failure::NothingMeasured { what: "consumed" })?))
}

/// True if the consumers tell the records of the backlog from later ones.
fn reports_backlog(setting: &Setting<'_>) -> bool {
    assignment(setting, Role::Consumer, &setting.point.consumers).reports_backlog()
}

/// The assignment common to all workers of this repetition.
fn assignment(setting: &Setting<'_>, role: Role, clients: &Clients) -> Assignment {
    let mut properties = setting.cluster.client_properties.clone();
    properties.extend(clients.properties.clone());
    if setting.cluster.pulsar_admin.is_some() {
        properties.extend(clients.pulsar.clone());
    }
    Assignment {
        role,
        driver: setting.driver,
        bootstrap: setting.cluster.bootstrap.clone(),
        properties,
        topics: setting.topics.to_vec(),
        clients: clients.count,
        first_client: 0,
        threads: clients.threads,
        records: setting.point.records.clone(),
        verify: match (setting.driver, role) {
            // Kafka's consumer and streams ignore stamps.
            (Driver::Java | Driver::Stream, Role::Consumer) => Verification::Off,
            _ => stamps(setting.point, setting.driver).unwrap_or(Verification::Off),
        },
        records_per_s: None,
        stop: StopWhen::OnCommand,
        groups: Vec::new(),
        drains: role == Role::Consumer && setting.point.measure == Measure::Drain,
        all_clients: clients.count,
        seed: setting.seed,
    }
}

fn stop_when(unit: Unit) -> StopWhen {
    match unit {
        Unit::Seconds(seconds) => StopWhen::Seconds(seconds),
        Unit::Records(records) => StopWhen::Records(records),
    }
}

/// Produces a backlog at the maximum rate, always with Thalweg's driver: a number of records, or for a number
/// of seconds.
async fn prefill(setting: &Setting<'_>, agents: Option<&AgentSessions>) -> Result<Vec<Report>, Failure> {
    let point = setting.point;
    let mut clients = point.producers.clone();
    if clients.count == 0 {
        (clients.count, clients.processes, clients.threads) = (1, 1, 1);
    }
    let whole = Assignment {
        driver: Driver::Thalweg,
        // The producers of a drain have lower numbers.
        first_client: point.producers.count,
        stop: stop_when(point.extent.unit),
        ..assignment(setting, Role::Producer, &clients)
    };
    let fleet = ready(setting, agents, &whole, &clients).await?;
    let at_us = now_us() + lead_us(setting.agents);
    let mut course = Course {
        measure: Measure::Produce,
        producers: fleet.start(at_us, at_us).await,
        consumers: RunningFleet::none(Role::Consumer),
        watch: None,
        in_sync: Vec::new(),
        data_dir: setting.cluster.data_dir.as_deref(),
        disk_usage_max: disk_usage_max(setting.cluster),
        backlog: 0,
        reports_backlog: false,
        groups: 1,
        consume_s_max: None,
        died: setting.died,
        progress: setting.progress,
    };
    course.run().await?;
    let reports: Vec<Report> = course.producers.reports.iter().flatten().cloned().collect();
    main_of(Measure::Produce, &gather(reports.iter())?, &CombinedReport::default())?;
    Ok(reports)
}

async fn run_workers(
    setting: &Setting<'_>,
    (producers, consumers): (Option<Fleet>, Option<Fleet>),
    backlog: u64,
    watch: Option<&Watch>,
    observers: &Observers,
) -> Result<WorkerResults, Failure> {
    let point = setting.point;
    let groups = u64::from(point.consumer_groups);
    let at_us = now_us() + lead_us(setting.agents);
    let measure_from_us = at_us + (warm_up_s(point, setting.driver) * 1e6) as u64;
    observers.profiler.iter().for_each(|profiler| profiler.begin(measure_from_us));
    let mut course = Course {
        measure: point.measure,
        producers: start(producers, Role::Producer, at_us, measure_from_us).await,
        consumers: start(consumers, Role::Consumer, at_us, measure_from_us).await,
        watch,
        in_sync: Vec::new(),
        data_dir: setting.cluster.data_dir.as_deref(),
        disk_usage_max: disk_usage_max(setting.cluster),
        backlog: groups * backlog,
        reports_backlog: reports_backlog(setting),
        groups,
        consume_s_max: match point.extent.unit {
            Unit::Seconds(seconds) => Some(seconds),
            Unit::Records(_) => None,
        },
        died: setting.died,
        progress: setting.progress,
    };
    course.run().await?;
    observers.profiler.iter().for_each(Profiler::note_end);
    let Course { producers, consumers, in_sync, backlog, .. } = course;
    Ok(WorkerResults { producers, consumers, in_sync, began_us: at_us, measure_from_us, backlog })
}

async fn start(fleet: Option<Fleet>, role: Role, at_us: u64, measure_from_us: u64) -> RunningFleet {
    match fleet {
        Some(fleet) => fleet.start(at_us, measure_from_us).await,
        None => RunningFleet::none(role),
    }
}

async fn ready_producers(setting: &Setting<'_>, agents: Option<&AgentSessions>) -> Result<Fleet, Failure> {
    let point = setting.point;
    let whole = Assignment {
        records_per_s: match point.load {
            Load::Rate { records_per_s } => Some(records_per_s),
            _ => None,
        },
        // The producers of a drain continue until the backlog is drained.
        stop: match point.measure {
            Measure::Drain => StopWhen::OnCommand,
            Measure::Produce | Measure::Consume => stop_when(point.extent.unit),
        },
        ..assignment(setting, Role::Producer, &point.producers)
    };
    ready(setting, agents, &whole, &point.producers).await
}

async fn ready_consumers(setting: &Setting<'_>, agents: Option<&AgentSessions>) -> Result<Fleet, Failure> {
    let clients = &setting.point.consumers;
    let mut whole = Assignment { groups: groups(setting), ..assignment(setting, Role::Consumer, clients) };
    whole.properties.entry("auto.offset.reset".to_owned()).or_insert_with(|| "earliest".to_owned());
    ready(setting, agents, &whole, clients).await
}

/// The workers of a role: one for each process of its clients.
async fn ready(
    setting: &Setting<'_>,
    agents: Option<&AgentSessions>,
    whole: &Assignment,
    clients: &Clients,
) -> Result<Fleet, Failure> {
    let (role, of) = (whole.role, agents.and(setting.agents));
    let before = placed_before(of, role, &setting.point.producers);
    let assignments = divide(whole, &placed(of, clients, role));
    Fleet::ready(role, setting.binary, (agents, before), &assignments).await
}

/// The consumers' groups, named after the first topic.
fn groups(setting: &Setting<'_>) -> Vec<String> {
    let names = setting.topics.first().into_iter().flat_map(|topic| {
        (0..setting.point.consumer_groups).map(move |number| match number {
            0 => format!("{topic}-group"),
            _ => format!("{topic}-group-{number}"),
        })
    });
    names.collect()
}

/// A repetition in one line.
pub(super) fn in_a_line(repetition: &Repetition) -> String {
    let figures = &repetition.figures;
    let mut parts = Vec::new();
    for (what, rate) in
        [("produced", figures.produced_records_per_s), ("consumed", figures.consumed_records_per_s)]
    {
        if let Some(rate) = rate {
            parts.push(format!("{what} {} records/s", quantity::number(rate.round())));
        }
    }
    for (what, p99) in
        [("until acknowledged", figures.acknowledge_p99_us), ("end to end", figures.end_to_end_p99_us)]
    {
        if let Some(p99) = p99 {
            parts.push(format!("p99 {what} {}", quantity::time_us(p99)));
        }
    }
    if let Some(drain_s) = figures.drain_s {
        parts.push(format!("drained in {} s", quantity::number(drain_s)));
    }
    let faults = repetition.evidence.faults.len();
    if faults > 0 {
        let word = if faults == 1 { "fault" } else { "faults" };
        parts.push(format!("{faults} {word}: {}", repetition.evidence.faults[0]));
    }
    parts.join(", ")
}
