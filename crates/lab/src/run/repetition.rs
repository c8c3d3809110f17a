//! One repetition of a point on a cluster: fresh topics, a backlog where one is needed, workers, warm memory, one moment to
//! start at, the course, the evidence; then topics and files gone.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::clock::now_us;
use super::contender::warm_up_s;
use super::course::Course;
use super::error::Failure;
use super::figures::{Gathered, figures, gather, seconds};
use super::fleet::{Fleet, Listening, divide};
use super::reading_back::{read_back, stamps};
use super::topics;
use crate::evidence::{self, ReadBack, Watch};
use crate::result::{Evidence, Repetition};
use crate::sample::{Sampler, Usage};
use crate::target::{self, Cluster};
use crate::terminal::Progress;
use crate::warm::{self, Held, More};
use crate::worker::{Assignment, Driver, Report, Role, StopWhen};
use crate::workload::{Clients, Load, Measure, Point, Unit, Verify};

/// From the word to start to the start itself: time for the word to reach every worker.
const LEAD_US: u64 = 100_000;
/// Memory is not warmed beyond this.
const WARM_BYTES_MAX: u64 = 8 << 30;
/// Time to delete topics after a failure, when the cluster may be gone.
const TIDY_TIMEOUT: Duration = Duration::from_secs(20);

/// All that a repetition needs.
pub(super) struct Setting<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) died: &'a (dyn Fn() -> Option<String> + Sync),
    pub(super) driver: Driver,
    /// The binary of the workers.
    pub(super) binary: &'a Path,
    /// The point, with the producers and the load of this repetition.
    pub(super) point: &'a Point,
    pub(super) number: u32,
    /// Whether it counts: what does not is not read back.
    pub(super) counts: bool,
    pub(super) seed: u64,
    /// Names of the topics; no other repetition has them.
    pub(super) topics: &'a [String],
    /// What it may write: memory is warmed for so much.
    pub(super) expected_bytes: u64,
    /// Memory that was made ready, and is held between repetitions.
    pub(super) memory: &'a Memory,
    pub(super) progress: &'a Progress,
}

/// Memory that is held between repetitions.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Vec<Held>>);

impl Memory {
    fn held(&self) -> MutexGuard<'_, Vec<Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bytes(&self) -> u64 {
        self.held().iter().map(Held::bytes).sum()
    }

    /// Gives so much back, or all there is. What is left is for a later repetition, which may write more than the next.
    fn give_back(&self, mut bytes: u64) {
        let mut held = self.held();
        while bytes > 0
            && let Some(mut last) = held.pop()
        {
            let given = bytes.min(last.bytes());
            bytes -= given;
            if last.give_back(given).is_ok() && last.bytes() > 0 {
                held.push(last);
            }
        }
    }
}

/// What came of a repetition.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) repetition: Repetition,
    /// The client's name and version.
    pub(super) client: String,
}

/// What the workers did.
struct Ran {
    client: String,
    producers: Listening,
    consumers: Listening,
    /// The least number of in-sync replicas, from each moment on.
    in_sync: Vec<(u64, u32)>,
    /// When the workers began.
    began_us: u64,
    measure_from_us: u64,
    drain_s: Option<f64>,
}

/// Takes it.
pub(super) async fn take(setting: &Setting<'_>) -> Result<Taken, Failure> {
    if setting.point.cluster.brokers == 0 {
        return without_cluster(setting).await;
    }
    let admin = target::connect(&setting.cluster.bootstrap, &setting.cluster.client_properties).await?;
    let taken = with_topics(setting, &admin).await;
    if let Some(reason) = (setting.died)() {
        return Err(Failure::BrokerDied(reason));
    }
    tracing::debug!("Deleting topics");
    setting.progress.phase("deleting the topics");
    // What the files had becomes free now, and is no longer ours a second or two later.
    let written = taken.as_ref().map_or(0, |taken| taken.repetition.evidence.bytes_on_disk);
    let room = WARM_BYTES_MAX.saturating_sub(setting.memory.bytes());
    let is_gone = Arc::new(AtomicBool::new(false));
    let tidying = async {
        let tidied = tidy(&admin, setting.cluster, setting.topics).await;
        tracing::debug!("The topics' files are gone");
        is_gone.store(true, Ordering::Release);
        tidied
    };
    let (tidied, held) = tokio::join!(tidying, take_memory(setting, written.min(room), &is_gone));
    let taken = taken?;
    tidied?;
    setting.memory.held().extend(held);
    Ok(taken)
}

/// Streams in memory: there is nothing to make before and nothing to find after. The streams check what they carry.
async fn without_cluster(setting: &Setting<'_>) -> Result<Taken, Failure> {
    let sampler = Sampler::start(Vec::new());
    let ran = run_workers(setting, 0, &sampler, None).await?;
    let reports: Vec<Report> = ran.producers.reports.iter().flatten().cloned().collect();
    let produced = gather(reports.iter())?;
    let nobody = Gathered::default();
    let main = main_of(setting.point.measure, &produced, &nobody)?;
    let usage = sampler.finish(main.span.from_us, main.span.to_us);
    let evidence = Evidence {
        acknowledged: produced.acknowledged,
        not_read_back: Some("there is no log: the streams checked each message themselves".to_owned()),
        ..Evidence::default()
    };
    let client = ran.client.clone();
    let repetition = put_together(setting, &ran, &produced, &nobody, usage, evidence)?;
    Ok(Taken { repetition, client })
}

/// Deletes the topics of a repetition, and waits until their files are gone.
pub(super) async fn tidy(
    admin: &thalweg_client::Cluster,
    cluster: &Cluster,
    names: &[String],
) -> Result<(), Failure> {
    match tokio::time::timeout(TIDY_TIMEOUT, topics::delete(admin, names)).await {
        Ok(deleted) => deleted?,
        Err(_) => tracing::warn!(topic = names.first(), "The run's topics were not deleted in time"),
    }
    match &cluster.data_dir {
        Some(dir) => topics::await_files_gone(dir, names).await,
        None => Ok(()),
    }
}

async fn with_topics(setting: &Setting<'_>, admin: &thalweg_client::Cluster) -> Result<Taken, Failure> {
    tracing::debug!("Creating topics");
    topics::create(admin, setting.topics, &setting.point.topics).await?;
    let prefilled = match setting.point.measure {
        Measure::Produce => Vec::new(),
        Measure::Consume | Measure::Drain => prefill(setting).await?,
    };
    let backlog = prefilled.iter().map(|report| report.acknowledged).sum();
    tracing::debug!("Starting workers");
    let sampler = Sampler::start(setting.cluster.processes.clone());
    let watch = Watch::start(admin.clone(), setting.topics.to_vec());
    let ran = run_workers(setting, backlog, &sampler, Some(&watch)).await?;
    let watched = watch.finish().await;
    tracing::debug!("Gathering evidence");

    let reports = |fleet: &Listening| fleet.reports.iter().flatten().cloned().collect::<Vec<Report>>();
    let (produced_by, consumed_by) = (reports(&ran.producers), reports(&ran.consumers));
    let (produced, consumed) = (gather(produced_by.iter())?, gather(consumed_by.iter())?);
    let main = main_of(setting.point.measure, &produced, &consumed)?;
    let mut usage = sampler.finish(main.span.from_us, main.span.to_us);
    for sample in &mut usage.samples {
        let before = ran.in_sync.iter().rev().find(|(at_us, _)| *at_us <= sample.at_us);
        sample.in_sync_replicas_min = before.map(|(_, least)| *least);
    }
    let producers: Vec<Report> = prefilled.into_iter().chain(produced_by).collect();
    let read_back = match setting.counts {
        true => {
            let took = main.span.to_us.saturating_sub(ran.began_us);
            read_back(&stamps(setting.point, setting.driver), Duration::from_micros(took))
        }
        false => ReadBack::No("it does not count".to_owned()),
    };
    setting.progress.phase(match read_back {
        ReadBack::No(_) => "looking at the log",
        ReadBack::Within(_) | ReadBack::Whole => "reading back",
    });
    let evidence = evidence::collect(evidence::Claim {
        cluster: admin,
        topics: setting.topics,
        replication_factor: setting.point.topics.replication_factor,
        producers: &producers,
        consumers: &consumed_by,
        records: &setting.point.records,
        seed: setting.seed,
        read_back: &read_back,
        watched: &watched,
    })
    .await?;
    let client = ran.client.clone();
    let repetition = put_together(setting, &ran, &produced, &consumed, usage, evidence)?;
    Ok(Taken { repetition, client })
}

/// What the point measures: of producers and consumers the one whose stretch counts.
fn main_of<'a>(
    measure: Measure,
    produced: &'a Gathered,
    consumed: &'a Gathered,
) -> Result<&'a Gathered, Failure> {
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
    ran: &Ran,
    produced: &Gathered,
    consumed: &Gathered,
    usage: Usage,
    evidence: Evidence,
) -> Result<Repetition, Failure> {
    let main = main_of(setting.point.measure, produced, consumed)?;
    let mut notes: Vec<String> = produced.notes.iter().chain(&consumed.notes).cloned().collect();
    if let Some(why) = &produced.first_failure {
        notes.push(format!("{} records were given up: {why}", produced.failed));
    }
    Ok(Repetition {
        number: setting.number,
        began_at_us: main.span.from_us,
        measured_s: seconds(&main.span),
        figures: figures(produced, consumed, &usage.processes, ran.drain_s),
        acknowledge_latency: produced.acknowledge_latency.clone(),
        end_to_end_latency: consumed.end_to_end_latency.clone(),
        produced: ran.producers.together(ran.measure_from_us),
        consumed: ran.consumers.together(ran.measure_from_us),
        processes: usage.processes,
        host: usage.host,
        samples: usage.samples,
        evidence,
        given_up: produced.failed,
        notes,
    })
}

/// What all workers of this repetition have in common.
fn assignment(setting: &Setting<'_>, role: Role, clients: &Clients) -> Assignment {
    let mut properties = setting.cluster.client_properties.clone();
    properties.extend(clients.properties.clone());
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
            // Kafka's consumer knows no stamps, whoever wrote them, and streams do not either.
            (Driver::Java | Driver::Stream, Role::Consumer) => Verify::Off,
            _ => stamps(setting.point, setting.driver).unwrap_or(Verify::Off),
        },
        records_per_s: None,
        stop: StopWhen::Told,
        group: None,
        seed: setting.seed,
    }
}

fn stop_when(unit: Unit) -> StopWhen {
    match unit {
        Unit::Seconds(seconds) => StopWhen::Seconds(seconds),
        Unit::Records(records) => StopWhen::Records(records),
    }
}

/// Produces a backlog as fast as it goes, by our own driver whatever the point's is: that of so many records, or of so many
/// seconds.
async fn prefill(setting: &Setting<'_>) -> Result<Vec<Report>, Failure> {
    let point = setting.point;
    let mut clients = point.producers.clone();
    if clients.count == 0 {
        (clients.count, clients.processes, clients.threads) = (1, 1, 1);
    }
    let whole = Assignment {
        driver: Driver::Thalweg,
        // The producers of a drain have the numbers below.
        first_client: point.producers.count,
        stop: stop_when(point.extent.unit),
        ..assignment(setting, Role::Producer, &clients)
    };
    let fleet = Fleet::ready(Role::Producer, setting.binary, &divide(&whole, &clients)).await?;
    let at_us = now_us() + LEAD_US;
    let mut course = Course {
        measure: Measure::Produce,
        producers: fleet.start(at_us, at_us).await,
        consumers: Listening::none(Role::Consumer),
        watch: None,
        in_sync: Vec::new(),
        data_dir: setting.cluster.data_dir.as_deref(),
        backlog: 0,
        consume_s_max: None,
        died: setting.died,
        progress: setting.progress,
    };
    course.run().await?;
    let reports: Vec<Report> = course.producers.reports.iter().flatten().cloned().collect();
    main_of(Measure::Produce, &gather(reports.iter())?, &Gathered::default())?;
    Ok(reports)
}

async fn run_workers(
    setting: &Setting<'_>,
    backlog: u64,
    sampler: &Sampler,
    watch: Option<&Watch>,
) -> Result<Ran, Failure> {
    let point = setting.point;
    let (producing, consuming) = match point.measure {
        Measure::Produce | Measure::Drain => (point.producers.count > 0, point.consumers.count > 0),
        Measure::Consume => (false, true),
    };
    let consumers = match consuming {
        true => Some(ready_consumers(setting).await?),
        false => None,
    };
    let producers = match producing {
        true => Some(ready_producers(setting).await?),
        false => None,
    };
    let mut client = String::new();
    for fleet in [&consumers, &producers].into_iter().flatten() {
        fleet.client().clone_into(&mut client);
        for (name, pid) in fleet.processes() {
            sampler.add(&name, pid);
        }
    }
    tracing::debug!("Making memory ready");
    setting.progress.phase("making memory ready");
    warm_memory(setting).await;
    tracing::debug!("Starting");
    setting.progress.phase("beginning");

    let at_us = now_us() + LEAD_US;
    let measure_from_us = at_us + (warm_up_s(point, setting.driver) * 1e6) as u64;
    let mut course = Course {
        measure: point.measure,
        producers: start(producers, Role::Producer, at_us, measure_from_us).await,
        consumers: start(consumers, Role::Consumer, at_us, measure_from_us).await,
        watch,
        in_sync: Vec::new(),
        data_dir: setting.cluster.data_dir.as_deref(),
        backlog,
        consume_s_max: match point.extent.unit {
            Unit::Seconds(seconds) => Some(seconds),
            Unit::Records(_) => None,
        },
        died: setting.died,
        progress: setting.progress,
    };
    let drain_s = course.run().await?;
    let Course { producers, consumers, in_sync, .. } = course;
    Ok(Ran { client, producers, consumers, in_sync, began_us: at_us, measure_from_us, drain_s })
}

async fn start(fleet: Option<Fleet>, role: Role, at_us: u64, measure_from_us: u64) -> Listening {
    match fleet {
        Some(fleet) => fleet.start(at_us, measure_from_us).await,
        None => Listening::none(role),
    }
}

async fn ready_producers(setting: &Setting<'_>) -> Result<Fleet, Failure> {
    let point = setting.point;
    let whole = Assignment {
        records_per_s: match point.load {
            Load::Rate { records_per_s } => Some(records_per_s),
            _ => None,
        },
        // The producers of a drain go on until the backlog is gone.
        stop: match point.measure {
            Measure::Drain => StopWhen::Told,
            Measure::Produce | Measure::Consume => stop_when(point.extent.unit),
        },
        ..assignment(setting, Role::Producer, &point.producers)
    };
    Fleet::ready(Role::Producer, setting.binary, &divide(&whole, &point.producers)).await
}

async fn ready_consumers(setting: &Setting<'_>) -> Result<Fleet, Failure> {
    let clients = &setting.point.consumers;
    let mut whole = Assignment {
        group: setting.topics.first().map(|topic| format!("{topic}-group")),
        ..assignment(setting, Role::Consumer, clients)
    };
    whole.properties.entry("auto.offset.reset".to_owned()).or_insert_with(|| "earliest".to_owned());
    Fleet::ready(Role::Consumer, setting.binary, &divide(&whole, clients)).await
}

/// Makes memory ready for what will be written, for each target alike and right before the start: else one pays for pages
/// that another was given.
async fn warm_memory(setting: &Setting<'_>) {
    let bytes = setting.expected_bytes.min(WARM_BYTES_MAX);
    let is_freed = Arc::new(AtomicBool::new(true));
    let more = take_memory(setting, bytes.saturating_sub(setting.memory.bytes()), &is_freed).await;
    setting.memory.held().extend(more);
    setting.memory.give_back(bytes);
}

/// Takes memory, also such as becomes free until `is_freed`. None where none is asked for, the repetition writes little, or
/// it cannot be had.
async fn take_memory(setting: &Setting<'_>, bytes: u64, is_freed: &Arc<AtomicBool>) -> Option<Held> {
    let dir = setting.cluster.data_dir.clone()?;
    if bytes == 0 || setting.point.measure == Measure::Consume {
        return None;
    }
    // An interrupted run drops this future, and with it what the thread looks at: nobody waits for the rest.
    let waiting = Arc::new(());
    let waited_for = Arc::downgrade(&waiting);
    let is_freed = is_freed.clone();
    let more = move || match (waited_for.strong_count(), is_freed.load(Ordering::Acquire)) {
        (0, _) => More::IsUnwanted,
        (_, true) => More::IsNone,
        (_, false) => More::Comes,
    };
    let taken = tokio::task::spawn_blocking(move || warm::memory(&dir, bytes, more)).await;
    drop(waiting);
    let taken = taken.unwrap_or_else(|error| Err(error.into()));
    taken.inspect_err(|error| tracing::warn!(%error, "Memory was not made ready before a repetition")).ok()
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
    bytes.clamp(0.0, WARM_BYTES_MAX as f64) as u64
}
