//! The workers of a role in a repetition: assigned, awaited, started together, followed, gathered.

use std::path::Path;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::agents::AgentSessions;
use super::error::Failure;
use crate::worker::{Assignment, Event, Handle, HandleError, Interval, LastRead, Report, Role};
use crate::workload::Clients;

/// Maximum time for a worker to connect, create its payloads, and join its group. JVMs start slowly.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum time between two parts of a line that arrives.
const RECEIVING_PAUSE_MAX: Duration = Duration::from_secs(30);

/// A message from a worker.
#[derive(Debug)]
pub(super) enum Word {
    /// The worker's last interval.
    Interval { worker: usize, interval: Interval },
    /// The worker is done.
    Done { worker: usize, report: Box<Report> },
    /// The worker failed.
    Failed(HandleError),
}

/// The workers of a role.
#[derive(Debug)]
pub(super) struct Fleet {
    role: Role,
    workers: Vec<Handle>,
    /// Other processes of a worker, such as JVMs: the worker's index and their ids.
    children: Vec<(usize, u32)>,
    client: String,
    ready_s: f64,
}

/// Divides `whole` by weight, without losing a remainder.
pub(super) fn share(whole: u64, parts: &[u32]) -> Vec<u64> {
    let total: u64 = parts.iter().copied().map(u64::from).sum::<u64>().max(1);
    let (mut weight, mut given) = (0_u64, 0_u64);
    parts
        .iter()
        .map(|part| {
            weight += u64::from(*part);
            let until =
                u64::try_from(u128::from(whole) * u128::from(weight) / u128::from(total)).unwrap_or(whole);
            let own = until - given;
            given = until;
            own
        })
        .collect()
}

/// Divides an assignment for all clients of a role among processes.
///
/// Each worker has its own clients, client numbers, and shares of rate and records. The seed is common,
/// because stamps are checked against it.
pub(super) fn divide(whole: &Assignment, clients: &Clients) -> Vec<Assignment> {
    use crate::worker::StopWhen;
    let processes = clients.processes.clamp(1, clients.count.max(1));
    let counts = share(u64::from(clients.count), &vec![1; processes as usize]);
    let counts: Vec<u32> = counts.into_iter().map(|count| u32::try_from(count).unwrap_or(u32::MAX)).collect();
    let records = match whole.stop {
        StopWhen::Records(records) => share(records, &counts),
        StopWhen::Seconds(_) | StopWhen::OnCommand => vec![0; counts.len()],
    };
    let mut first_client = whole.first_client;
    counts
        .iter()
        .zip(records)
        .map(|(&count, records)| {
            let part = f64::from(count) / f64::from(clients.count.max(1));
            let assignment = Assignment {
                clients: count,
                all_clients: clients.count,
                first_client,
                threads: clients.threads.clamp(1, count.max(1)),
                records_per_s: whole.records_per_s.map(|rate| rate * part),
                stop: match whole.stop {
                    StopWhen::Records(_) => StopWhen::Records(records),
                    other => other,
                },
                ..whole.clone()
            };
            first_client += count;
            assignment
        })
        .collect()
}

impl Fleet {
    /// Spawns a worker per assignment, on the agents if there are any, and waits until all are ready.
    /// `before` is the number of workers that the agents have already.
    pub(super) async fn ready(
        role: Role,
        binary: &Path,
        (agents, before): (Option<&AgentSessions>, usize),
        assignments: &[Assignment],
    ) -> Result<Fleet, Failure> {
        let role_name = match role {
            Role::Producer => "producer",
            Role::Consumer => "consumer",
        };
        let mut began = Instant::now();
        let names = (0..assignments.len()).map(|number| format!("{role_name}-{number}"));
        let workers = match agents {
            Some(agents) => {
                let workers = agents.workers(role, before, names.collect()).await?;
                // The lab's connections are not a part of the workers' time.
                began = Instant::now();
                workers.iter().zip(assignments).for_each(|(worker, assignment)| worker.assign(assignment));
                workers
            }
            None => {
                let spawn = |(name, assignment)| Handle::spawn(name, binary, assignment);
                names.zip(assignments).map(spawn).collect::<Result<_, _>>()?
            }
        };
        let (children, client, ready_s) = (Vec::new(), String::new(), 0.0);
        let mut fleet = Fleet { role, workers, children, client, ready_s };
        let deadline = Instant::now() + READY_TIMEOUT;
        for (number, worker) in fleet.workers.iter_mut().enumerate() {
            let ready = tokio::time::timeout_at(deadline, worker.ready()).await;
            let (client, children) = ready.map_err(|_| Failure::NotReady {
                worker: worker.name().to_owned(),
                waited: READY_TIMEOUT,
            })??;
            fleet.children.extend(children.into_iter().map(|pid| (number, pid)));
            fleet.client = client;
        }
        fleet.ready_s = began.elapsed().as_secs_f64();
        Ok(fleet)
    }

    /// Seconds from the start of the processes, or of the work of those on agents, until all were ready.
    pub(super) fn ready_s(&self) -> f64 {
        self.ready_s
    }

    /// The client's name and version; empty without workers.
    pub(super) fn client(&self) -> &str {
        &self.client
    }

    /// All processes: the worker, and the id on its machine.
    pub(super) fn processes(&self) -> impl Iterator<Item = (&Handle, u32)> {
        let own = self.workers.iter().map(|worker| (worker, worker.pid()));
        own.chain(self.children.iter().map(|(number, pid)| (&self.workers[*number], *pid)))
    }

    /// Starts all workers at one time, and follows them from then on.
    pub(super) async fn start(mut self, at_us: u64, measure_from_us: u64) -> RunningFleet {
        for worker in &mut self.workers {
            worker.start(at_us, measure_from_us).await;
        }
        RunningFleet::to(self.role, self.workers)
    }
}

/// Running workers, killed when dropped.
#[derive(Debug)]
pub(super) struct RunningFleet {
    pub(super) role: Role,
    words: mpsc::Receiver<Word>,
    stops: Vec<mpsc::Sender<()>>,
    /// The name of each worker, and its last sign of life.
    heard: Vec<(String, LastRead)>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    /// The intervals of each worker, in order.
    pub(super) intervals: Vec<Vec<Interval>>,
    /// The final report of each worker.
    pub(super) reports: Vec<Option<Report>>,
}

impl RunningFleet {
    /// A fleet without workers.
    pub(super) fn none(role: Role) -> RunningFleet {
        RunningFleet::to(role, Vec::new())
    }

    fn to(role: Role, workers: Vec<Handle>) -> RunningFleet {
        let count = workers.len();
        let (say, words) = mpsc::channel(64);
        let (mut stops, mut tasks) = (Vec::new(), Vec::new());
        let heard = workers.iter().map(|worker| (worker.name().to_owned(), worker.last_read())).collect();
        for (number, worker) in workers.into_iter().enumerate() {
            let (stop, stopped) = mpsc::channel(1);
            stops.push(stop);
            tasks.push(tokio::spawn(listen(number, worker, say.clone(), stopped)));
        }
        RunningFleet {
            role,
            words,
            stops,
            heard,
            tasks,
            intervals: vec![Vec::new(); count],
            reports: vec![None; count],
        }
    }

    /// Waits for the next message, and records it. An error is a worker's failure.
    ///
    /// Cancel safe. When all workers are done, this function waits forever.
    pub(super) async fn next(&mut self) -> Result<Option<Interval>, Failure> {
        match self.words.recv().await {
            Some(Word::Interval { worker, interval }) => {
                self.intervals[worker].push(interval.clone());
                Ok(Some(interval))
            }
            Some(Word::Done { worker, report }) => {
                self.reports[worker] = Some(*report);
                Ok(None)
            }
            Some(Word::Failed(error)) => Err(error.into()),
            None => std::future::pending().await,
        }
    }

    /// True if all workers are done.
    pub(super) fn is_done(&self) -> bool {
        self.reports.iter().all(Option::is_some)
    }

    /// A worker that has not ended, and was not heard for longer than this: each reports every second.
    pub(super) fn silent(&self, longer: Duration) -> Option<(&str, Duration)> {
        let running = self.heard.iter().zip(&self.reports).filter(|(_, report)| report.is_none());
        let silent = running.map(|((name, heard), _)| (name.as_str(), heard.elapsed().0));
        silent.filter(|(_, silence)| *silence > longer).max_by_key(|(_, silence)| *silence)
    }

    /// True while a line of a worker arrives, such as a large report over a slow link.
    pub(super) fn is_receiving(&self) -> bool {
        self.heard.iter().any(|(_, heard)| {
            let (silence, is_in_line) = heard.elapsed();
            is_in_line && silence < RECEIVING_PAUSE_MAX
        })
    }

    /// Stops all workers.
    pub(super) fn stop(&self) {
        for stop in &self.stops {
            // One command suffices, and finished workers need none.
            let _ = stop.try_send(());
        }
    }

    /// Records acknowledged or consumed so far, warm-up included.
    pub(super) fn records(&self) -> u64 {
        let each = self.intervals.iter().zip(&self.reports).map(|(intervals, report)| match report {
            Some(report) => report.acknowledged,
            None => intervals.iter().map(|interval| interval.records).sum(),
        });
        each.sum()
    }

    /// Records of a backlog consumed so far, if the workers tell them.
    pub(super) fn drained(&self) -> u64 {
        self.intervals.iter().flatten().map(|interval| interval.backlog).sum()
    }

    /// The latest interval of all workers combined.
    pub(super) fn latest(&self) -> Interval {
        merge(self.intervals.iter().filter_map(|intervals| intervals.last()))
    }

    /// The intervals of all workers combined after a time. Workers start together, so their seconds coincide.
    pub(super) fn together(&self, from_us: u64) -> Vec<Interval> {
        let mut seconds: Vec<Vec<&Interval>> = Vec::new();
        for intervals in &self.intervals {
            let behind =
                |interval: &&Interval| interval.at_us.saturating_sub(interval.length_us / 2) >= from_us;
            for (second, interval) in intervals.iter().filter(behind).enumerate() {
                if second == seconds.len() {
                    seconds.push(Vec::new());
                }
                seconds[second].push(interval);
            }
        }
        seconds.into_iter().map(merge).collect()
    }
}

impl Drop for RunningFleet {
    fn drop(&mut self) {
        // Aborting a task drops its worker's handle, which kills the worker.
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

async fn listen(number: usize, mut worker: Handle, say: mpsc::Sender<Word>, mut stopped: mpsc::Receiver<()>) {
    loop {
        let event = tokio::select! {
            Some(()) = stopped.recv() => {
                worker.stop().await;
                continue;
            }
            event = worker.next_event() => event,
        };
        let (word, last) = match event {
            Ok(Event::Interval(interval)) => (Word::Interval { worker: number, interval }, false),
            Ok(Event::Done(report)) => (Word::Done { worker: number, report }, true),
            Ok(Event::Ready { .. }) => continue,
            Ok(Event::Failed { error }) => {
                let worker = worker.name().to_owned();
                (Word::Failed(crate::worker::WorkerFailed { worker, error }.into()), true)
            }
            Err(error) => (Word::Failed(error), true),
        };
        if say.send(word).await.is_err() || last {
            return;
        }
    }
}

/// A mean weighted by records.
#[derive(Clone, Copy, Debug, Default)]
struct WeightedMean {
    sum: f64,
    records: u64,
}

impl WeightedMean {
    fn add(&mut self, value: Option<u64>, records: u64) {
        if let Some(value) = value {
            self.sum += value as f64 * records as f64;
            self.records += records;
        }
    }

    fn value(self) -> Option<u64> {
        (self.records > 0).then(|| (self.sum / self.records as f64).round() as u64)
    }
}

/// Combines the intervals of several workers. Percentiles cannot be merged without histograms: high
/// percentiles are those of the slowest worker, median and mean are means weighted by records. The result
/// serves time lines only.
fn merge<'a>(parts: impl IntoIterator<Item = &'a Interval>) -> Interval {
    let mut all = Interval::default();
    let (mut median, mut mean) = (WeightedMean::default(), WeightedMean::default());
    for part in parts {
        all.at_us = all.at_us.max(part.at_us);
        all.length_us = all.length_us.max(part.length_us);
        all.records += part.records;
        all.bytes += part.bytes;
        all.backlog += part.backlog;
        all.p75_us = all.p75_us.max(part.p75_us);
        all.p95_us = all.p95_us.max(part.p95_us);
        all.p99_us = all.p99_us.max(part.p99_us);
        all.p999_us = all.p999_us.max(part.p999_us);
        all.p9999_us = all.p9999_us.max(part.p9999_us);
        all.max_us = all.max_us.max(part.max_us);
        median.add(part.p50_us, part.records);
        mean.add(part.mean_us, part.records);
    }
    (all.p50_us, all.mean_us) = (median.value(), mean.value());
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::worker::{Driver, StopWhen};
    use crate::workload::{Payload, RecordSpec, Verification};

    #[test]
    fn shares_lose_nothing() {
        assert_eq!(share(10, &[1, 1, 1]), [3, 3, 4]);
        assert_eq!(share(7, &[2, 1]), [4, 3]);
        assert_eq!(share(u64::MAX, &[3, 1]).iter().sum::<u64>(), u64::MAX);
    }

    #[test]
    fn clients_rate_and_records_are_divided_over_the_processes() {
        let whole = Assignment {
            role: Role::Producer,
            driver: Driver::Thalweg,
            bootstrap: vec!["b:1".to_owned()],
            properties: BTreeMap::new(),
            topics: vec!["t".to_owned()],
            clients: 0,
            first_client: 0,
            threads: 0,
            records: RecordSpec { size_bytes: 9, payload: Payload::Random, keys: None },
            verify: Verification::Off,
            records_per_s: Some(500.0),
            stop: StopWhen::Records(11),
            groups: Vec::new(),
            drains: false,
            all_clients: 0,
            seed: 7,
        };
        let clients = Clients {
            count: 5,
            processes: 2,
            threads: 4,
            properties: BTreeMap::new(),
            pulsar: BTreeMap::new(),
        };
        let parts = divide(&whole, &clients);
        let divided: Vec<_> = parts.iter().map(|p| (p.first_client, p.clients, p.threads)).collect();
        assert_eq!(divided, [(0, 2, 2), (2, 3, 3)]);
        assert_eq!(parts.iter().map(|p| p.records_per_s.expect("a rate")).sum::<f64>(), 500.0);
        assert_eq!(
            parts.iter().map(|p| p.stop).collect::<Vec<_>>(),
            [StopWhen::Records(4), StopWhen::Records(7)]
        );
        assert!(parts.iter().all(|part| part.seed == 7), "the seed makes the stamps that are checked");
    }

    #[test]
    fn a_second_of_several_workers_keeps_the_slowest() {
        let interval = |records, p50_us, max_us| Interval {
            at_us: 5,
            records,
            p50_us: Some(p50_us),
            max_us: Some(max_us),
            p9999_us: Some(max_us - 1),
            mean_us: Some(2 * p50_us),
            ..Interval::default()
        };
        let merged = merge(&[interval(1, 100, 900), interval(3, 200, 400)]);
        assert_eq!((merged.records, merged.p50_us, merged.max_us), (4, Some(175), Some(900)));
        assert_eq!((merged.mean_us, merged.p9999_us), (Some(350), Some(899)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_worker_is_named_while_another_reports() {
        let worker = |name: &str| {
            let (lab, agent) = tokio::io::duplex(1 << 16);
            let (output, input) = tokio::io::split(lab);
            let streams = (Box::new(tokio::io::BufReader::new(output)) as _, input);
            (Handle::over(name.to_owned(), "a:7000".to_owned(), 1, streams), agent)
        };
        let ((silent, _open), (heard, mut agent)) = (worker("producer-0 on a:7000"), worker("producer-1"));
        let mut fleet = RunningFleet::to(Role::Producer, vec![silent, heard]);
        let mut line = serde_json::to_vec(&Event::Interval(Interval::default())).expect("JSON");
        line.push(b'\n');
        for _ in 0..40 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            tokio::io::AsyncWriteExt::write_all(&mut agent, &line).await.expect("it is read");
            fleet.next().await.expect("an interval");
        }
        let (name, silence) = fleet.silent(Duration::from_secs(30)).expect("a silent worker");
        assert_eq!((name, silence.as_secs()), ("producer-0 on a:7000", 40));
        assert_eq!(fleet.silent(Duration::from_secs(41)), None);
        // A part of a line is a sign of life, too.
        assert!(!fleet.is_receiving());
        tokio::io::AsyncWriteExt::write_all(&mut agent, &line[..5]).await.expect("it is read");
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(fleet.is_receiving());
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(!fleet.is_receiving(), "nothing more has arrived");
    }
}
