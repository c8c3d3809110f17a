//! The limit of a point, and the decision if its figures are quotable (see `objections`). Pure: figures in,
//! text with figures out.
//!
//! The limit is the first of this list that applies in most repetitions:
//!
//! - asked rate: a rate was requested, and at least 98 % of it was accepted.
//! - disk: a disk was busy for at least 90 % of the time, with a request in it for at least half of it, or
//!   processors waited for disks for at least 20 % of theirs; never a disk that the brokers' data is not on.
//!   The reason names the devices below the data. A volume or loop device of the data counts like a disk.
//! - broker CPU: nodes are limited (`cluster.node_cpus`), and a node used at least 90 % of its limit.
//! - machine CPU, generator CPU, broker CPU: at least 92 % of all processors were busy. Clients used more
//!   than 60 % of the lab's part (generator), brokers did (broker), or neither (machine); also machine CPU if
//!   other processes used more than the lab.
//! - lock: with `--look-inside`, at least half of the threads of a broker's JVM that were running or waiting
//!   for a lock waited for the same one, or for locks of one class at one place; or at least as many threads
//!   of a broker of Thalweg waited for the lock of a partition as ran.
//! - generator CPU: a thread of a client was busy for at least 90 % of the time.
//! - stream CPU: the same without a cluster, because the stream is measured.
//! - broker CPU: a thread of a broker was busy for at least 90 % of the time.
//! - network: an interface carried more than loopback, and at least 90 % of its speed in one direction; never
//!   if that speed is unknown, as that of bonds, whose members are judged instead. A limit of traffic control
//!   (`tc`) on what an interface sends counts like its speed.
//! - one partition: the topics have one partition, and nothing else is saturated.
//!
//! Garbage collection takes the place of broker CPU and machine CPU, or of no limit, if a broker's JVM spent
//! at least 20 % of its processor time on it.
//!
//! With agents, clients are elsewhere: generator CPU is also an agent whose processors are busy for at least
//! 92 % of the time, and network an interface of an agent with at least 90 % of its speed.
//!
//! With watched machines of brokers, disk, machine CPU, generator CPU, broker CPU and network are also those
//! of these machines, by the same rules, and name the machine, if a broker is on it. A disk of the lab's
//! machine limits no brokers that are all elsewhere. A full disk is acquitted only if the log files of all
//! replicas there were found on others.

mod agents;
mod brokers;
mod disk;
mod garbage;
mod link;
mod lock;
mod objections;

pub(super) use agents::negative_latencies;
use objections::{objections, unlike};

use crate::result::{HostUse, Machine, PointResult, Repetition, Summary, Verdict};
use crate::workload::{Load, Measure, Point};

/// The busy share at which a thread or disk is saturated.
const BUSY_MIN: f64 = 0.90;
/// Processor use, the lab's own included, from which the machine counts as saturated.
const MACHINE_BUSY_MIN: f64 = 0.92;
/// The share of the lab's processor usage that counts as most.
const MOST: f64 = 0.60;
/// Processors used by a process, above which threads without any usage were not sampled.
const THREADLESS: f64 = 0.02;
/// Accepted share of a requested rate from which on the request itself is the limit (asked rate).
const TAKEN_MIN: f64 = 0.98;

/// The limit of a point from its repetitions, and the objections to a headline.
pub fn judge(point: &Point, repetitions: &[Repetition], summary: &Summary, machine: &Machine) -> Verdict {
    let findings: Vec<Finding> =
        repetitions.iter().map(|repetition| finding(point, repetition, machine)).collect();
    let alike = |finding: &&Finding| findings.iter().filter(|other| other.limit == finding.limit).count();
    // The most frequent limit; the first of equally frequent ones.
    let Finding { limit, reasons } = findings.iter().rev().max_by_key(alike).cloned().unwrap_or_default();
    let no_headline = objections(point, repetitions, summary, machine, &limit);
    Verdict { limit, reasons, no_headline }
}

/// The verdict for a result that lacks only its verdict.
pub fn judge_result(result: &PointResult, machine: &Machine) -> Verdict {
    let mut verdict = judge(&result.point, &result.repetitions, &result.summary, machine);
    verdict.no_headline.extend(result.knee.as_ref().and_then(|knee| unlike(knee, &result.summary)));
    match &result.failure {
        Some(failure) if result.repetitions.is_empty() => {
            verdict.no_headline = vec![format!("it was not measured: {failure}")];
        }
        Some(failure) => {
            verdict.no_headline.insert(0, format!("the measurement did not complete: {failure}"))
        }
        None => {}
    }
    verdict
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    limit: String,
    reasons: Vec<String>,
}

impl Default for Finding {
    fn default() -> Finding {
        Finding { limit: "unknown".to_owned(), reasons: vec!["nothing was measured".to_owned()] }
    }
}

impl Finding {
    fn unknown(repetition: &Repetition) -> Finding {
        Finding { limit: "unknown".to_owned(), reasons: nothing_at_its_end(repetition) }
    }

    fn new(limit: &str, reason: String) -> Finding {
        Finding { limit: limit.to_owned(), reasons: vec![reason] }
    }
}

/// The limit of one repetition, with remarks on disks that are no limit.
fn finding(point: &Point, repetition: &Repetition, machine: &Machine) -> Finding {
    let mut finding = limit(point, repetition, machine);
    if finding.limit != "disk" {
        finding.reasons.extend(disk::remarks(repetition));
    }
    finding
}

fn limit(point: &Point, repetition: &Repetition, machine: &Machine) -> Finding {
    requested_rate(point, repetition)
        .or_else(|| disk::full(repetition))
        .or_else(|| node(point, repetition))
        .or_else(|| agents::full(repetition))
        .or_else(|| brokers::processors(repetition))
        .or_else(|| processors(repetition, machine))
        .or_else(|| lock::contended(repetition))
        .or_else(|| thread(point, repetition))
        .or_else(|| link::full(repetition))
        .or_else(|| link::full_of_agent(repetition))
        .or_else(|| link::full_of_broker(repetition))
        .or_else(|| one_partition(point, repetition))
        .map_or_else(
            || garbage::collected(repetition).unwrap_or_else(|| Finding::unknown(repetition)),
            |finding| garbage::behind(repetition, finding),
        )
}

fn requested_rate(point: &Point, repetition: &Repetition) -> Option<Finding> {
    let requested = match point.load {
        Load::Rate { records_per_s } => records_per_s,
        _ => return None,
    };
    let taken = repetition.figures.records_per_s()?;
    (point.measure == Measure::Produce && taken >= requested * TAKEN_MIN).then(|| {
        Finding::new("asked rate", format!("{taken:.0} of {requested:.0} requested records/s were accepted"))
    })
}

/// Processors of the lab's machine used by the processes with a name prefix.
fn processors_of(repetition: &Repetition, prefixes: &[&str]) -> f64 {
    let here = repetition.processes.iter().filter(|used| agents::is_here(repetition, used));
    let of_them = here.filter(|used| is_one_of(&used.name, prefixes));
    // The sum of nothing is -0.
    let used_s = of_them.map(|used| used.user_s + used.system_s).sum::<f64>() + 0.0;
    used_s / repetition.measured_s.max(0.001)
}

/// The processors of a machine, and those in use by the kinds of processes.
#[derive(Clone, Copy, Debug)]
struct Processors {
    /// The busy share of all, that of the hypervisor included.
    busy: f64,
    cpus: u32,
    clients: f64,
    brokers: f64,
    interrupts: f64,
    /// Those of processes that are neither clients nor brokers. Interrupts belong to the run: to its network
    /// and disks.
    others: f64,
}

impl Processors {
    fn new(host: &HostUse, cpus: u32, clients: f64, brokers: f64) -> Processors {
        let own = clients + brokers;
        Processors {
            busy: host.cpu_busy + host.cpu_steal,
            cpus,
            clients,
            brokers,
            interrupts: host.cpu_interrupts * f64::from(cpus),
            others: ((host.cpu_busy - host.cpu_interrupts) * f64::from(cpus) - own).max(0.0),
        }
    }

    /// Those of the lab's machine.
    fn here(repetition: &Repetition, machine: &Machine) -> Processors {
        let (clients, brokers) = (processors_of(repetition, &CLIENTS), processors_of(repetition, &BROKERS));
        Processors::new(&repetition.host, machine.cpus, clients, brokers)
    }

    /// The limit, if all are busy. `of` names the machine.
    fn finding(&self, of: &str) -> Finding {
        let Processors { busy, cpus, clients, brokers, interrupts, others } = *self;
        let both = (clients + brokers).max(f64::MIN_POSITIVE);
        let limit = match () {
            () if others > both => "machine CPU",
            () if clients / both > MOST => "generator CPU",
            () if brokers / both > MOST => "broker CPU",
            () => "machine CPU",
        };
        let reason = format!(
            "{:.0} % of {cpus} processors{of} were busy: clients used {clients:.2}, brokers {brokers:.2}, \
             interrupts {interrupts:.2}, others {others:.2}",
            busy * 100.0,
        );
        Finding::new(limit, reason)
    }
}

/// The share of all processors used by processes outside the run; zero if the brokers' processes are unknown,
/// because the others may include brokers.
fn others_share(repetition: &Repetition, machine: &Machine) -> f64 {
    let mut here = repetition.processes.iter().filter(|used| agents::is_here(repetition, used));
    let has_brokers = here.any(|used| is_one_of(&used.name, &BROKERS));
    let mut watched_here = brokers::with_brokers(repetition).filter(|machine| machine.is_on_lab_machine);
    match has_brokers && watched_here.all(brokers::has_all_brokers) {
        true => Processors::here(repetition, machine).others / f64::from(machine.cpus.max(1)),
        false => 0.0,
    }
}

fn is_one_of(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

const CLIENTS: [&str; 2] = ["producer", "consumer"];
const BROKERS: [&str; 2] = ["broker", "controller"];

fn processors(repetition: &Repetition, machine: &Machine) -> Option<Finding> {
    let processors = Processors::here(repetition, machine);
    let watched = brokers::with_brokers(repetition).find(|machine| machine.is_on_lab_machine);
    let of = watched.map(brokers::of).unwrap_or_default();
    (processors.busy >= MACHINE_BUSY_MIN).then(|| processors.finding(&of))
}

/// A node that used its whole limit, which is less than the machine has. A running cluster has no such limit:
/// its brokers' processes are those that agents watch.
fn node(point: &Point, repetition: &Repetition) -> Option<Finding> {
    let limit = f64::from(point.cluster.node.cpu_millis?) / 1000.0;
    let own = repetition.processes.iter().filter(|used| used.agent.is_none());
    let of_nodes = own.filter(|used| is_one_of(&used.name, &BROKERS));
    let used =
        |used: &crate::result::ProcessUse| (used.user_s + used.system_s) / repetition.measured_s.max(0.001);
    let most = of_nodes.max_by(|a, b| used(a).total_cmp(&used(b)))?;
    (used(most) >= limit * BUSY_MIN).then(|| {
        let reason = format!("{} used {:.2} processors of its limit of {limit}", most.name, used(most));
        Finding::new("broker CPU", reason)
    })
}

fn thread(point: &Point, repetition: &Repetition) -> Option<Finding> {
    // Without a cluster, the stream is measured.
    let of_clients = if point.cluster.brokers == 0 { "stream CPU" } else { "generator CPU" };
    let busiest = |prefixes: &[&str]| {
        let of_them = repetition.processes.iter().filter(|used| is_one_of(&used.name, prefixes));
        of_them.max_by(|a, b| a.busiest_thread.total_cmp(&b.busiest_thread))
    };
    [(of_clients, &CLIENTS), ("broker CPU", &BROKERS)].into_iter().find_map(|(limit, prefixes)| {
        let used = busiest(prefixes).filter(|used| used.busiest_thread >= BUSY_MIN)?;
        let share = used.busiest_thread * 100.0;
        Some(Finding::new(limit, format!("a thread of {} was busy for {share:.0} % of the time", used.name)))
    })
}

fn one_partition(point: &Point, repetition: &Repetition) -> Option<Finding> {
    // Streams in memory have no topics.
    let has_one = point.cluster.brokers > 0 && point.topics.count == 1 && point.topics.partitions == 1;
    has_one.then(|| Finding {
        limit: "one partition".to_owned(),
        reasons: std::iter::once("all records go through one partition".to_owned())
            .chain(nothing_at_its_end(repetition))
            .collect(),
    })
}

fn nothing_at_its_end(repetition: &Repetition) -> Vec<String> {
    let busiest = |prefixes: &[&str]| {
        let of_them = || repetition.processes.iter().filter(|used| is_one_of(&used.name, prefixes));
        let most = of_them().map(|used| used.busiest_thread).fold(0.0, f64::max);
        let used = of_them().map(|used| used.user_s + used.system_s).fold(0.0, f64::max);
        // A repetition shorter than the sampling interval of threads has no share of its threads, only that
        // of their process.
        match most > 0.0 || used < THREADLESS * repetition.measured_s {
            true => format!("{:.0} %", most * 100.0),
            false => format!(
                "unknown (its process used {:.2} processors)",
                used / repetition.measured_s.max(0.001)
            ),
        }
    };
    let disk = repetition.host.disks.iter().map(|disk| disk.busy).fold(0.0, f64::max) * 100.0;
    let machines = brokers::with_brokers(repetition).filter(|machine| !machine.host.is_unknown());
    let machines = machines.map(|machine| {
        let disk = machine.host.disks.iter().map(|disk| disk.busy).fold(0.0, f64::max) * 100.0;
        let busy = machine.host.cpu_busy * 100.0;
        format!("; all processors{} {busy:.0} % busy, disks {disk:.0} %", brokers::of(machine))
    });
    vec![format!(
        "nothing was seen saturated: all processors {:.0} % busy, the busiest thread of clients {} and of brokers {}, \
         disks {disk:.0} %{}",
        repetition.host.cpu_busy * 100.0,
        busiest(&CLIENTS),
        busiest(&BROKERS),
        machines.collect::<String>()
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::testing::{point, repetition};
    use crate::result::{DiskUse, Figures, ProcessUse};
    use crate::run::summary::summarize;

    fn used(name: &str, cpu_s: f64, busiest_thread: f64) -> ProcessUse {
        ProcessUse { name: name.to_owned(), user_s: cpu_s, busiest_thread, ..ProcessUse::default() }
    }

    /// A repetition of 10 s without saturation.
    pub(super) fn calm(rate: f64) -> Repetition {
        Repetition {
            measured_s: 10.0,
            figures: Figures { produced_records_per_s: Some(rate), ..Figures::default() },
            processes: vec![used("broker-1", 5.0, 0.3), used("producer-0", 5.0, 0.5)],
            host: HostUse { cpu_busy: 0.3, ..HostUse::default() },
            ..repetition()
        }
    }

    pub(super) fn verdict(point: &Point, repetitions: &[Repetition]) -> Verdict {
        let machine = Machine { cpus: 4, ..Machine::default() };
        judge(point, repetitions, &summarize(repetitions).expect("readable"), &machine)
    }

    /// The verdict on three such repetitions, over many partitions.
    pub(super) fn limit(change: impl Fn(&mut Repetition)) -> Verdict {
        let repetitions = [100.0, 101.0, 99.0].map(|rate| {
            let mut repetition = calm(rate);
            change(&mut repetition);
            repetition
        });
        let mut point = point();
        point.topics.partitions = 6;
        verdict(&point, &repetitions)
    }

    #[test]
    fn what_is_at_its_end_is_the_limit() {
        assert_eq!(limit(|_| ()).limit, "unknown");
        let disk = |busy| DiskUse { name: "vda".to_owned(), busy, ..DiskUse::default() };
        assert_eq!(limit(|r| r.host.disks = vec![disk(0.95)]).limit, "disk");
        assert_eq!(limit(|r| r.host.cpu_io_wait = 0.3).limit, "disk");
        assert_eq!(limit(|r| r.processes[1].busiest_thread = 0.96).limit, "generator CPU");
        assert_eq!(limit(|r| r.processes[0].busiest_thread = 0.96).limit, "broker CPU");
        let mut direct = point();
        direct.cluster.brokers = 0;
        let stream = || Repetition { processes: vec![used("producer-0", 10.0, 0.99)], ..calm(100.0) };
        let verdict = verdict(&direct, &[stream(), stream()]);
        assert_eq!((verdict.limit.as_str(), verdict.no_headline.len()), ("stream CPU", 0), "{verdict:?}");
    }

    #[test]
    fn a_stream_without_brokers_has_no_partition_and_no_negative_usage() {
        let mut direct = point();
        direct.cluster.brokers = 0;
        let of = |cpu_busy, cpu_s| {
            let one = || Repetition {
                processes: vec![used("producer-0", cpu_s, 0.5)],
                host: HostUse { cpu_busy, ..HostUse::default() },
                ..calm(100.0)
            };
            verdict(&direct, &[one(), one()])
        };
        assert_eq!(of(0.3, 10.0).limit, "unknown");
        let full = of(0.97, 38.0);
        assert!(full.reasons[0].contains("clients used 3.80, brokers 0.00, "), "{full:?}");
    }

    #[test]
    fn full_processors_are_charged_to_who_took_most() {
        let full = |broker_s: f64, producer_s: f64| {
            limit(|r| {
                r.host.cpu_busy = 0.97;
                r.processes = vec![used("broker-1", broker_s, 0.5), used("producer-0", producer_s, 0.5)];
            })
        };
        assert_eq!(full(8.0, 30.0).limit, "generator CPU");
        assert_eq!(full(30.0, 8.0).limit, "broker CPU");
        assert_eq!(full(19.0, 19.0).limit, "machine CPU");
        let disturbed = full(2.0, 10.0);
        assert_eq!(disturbed.limit, "machine CPU");
        assert!(disturbed.no_headline[0].contains("outside the run used 67 %"), "{disturbed:?}");
        let by_network = limit(|r| {
            (r.host.cpu_busy, r.host.cpu_interrupts) = (0.97, 0.67);
            r.processes = vec![used("broker-1", 8.0, 0.5), used("producer-0", 4.0, 0.5)];
        });
        assert_eq!(
            (by_network.limit.as_str(), by_network.no_headline.len()),
            ("broker CPU", 0),
            "{by_network:?}"
        );
    }

    #[test]
    fn a_node_at_its_limit_is_the_limit() {
        let by = |cpu_s: f64, agent: Option<&str>| {
            let mut point = point();
            point.topics.partitions = 6;
            point.cluster.node.cpu_millis = Some(100);
            let agent = agent.map(str::to_owned);
            let broker = || ProcessUse { agent: agent.clone(), ..used("broker-1", cpu_s, 0.1) };
            let one = || Repetition { processes: vec![broker()], ..calm(100.0) };
            verdict(&point, &[one(), one()])
        };
        let of = |cpu_s| by(cpu_s, None);
        let found = of(0.96);
        assert_eq!(found.limit, "broker CPU");
        assert_eq!(found.reasons, ["broker-1 used 0.10 processors of its limit of 0.1"]);
        assert_eq!(of(0.5).limit, "unknown");
        assert_eq!(by(0.96, Some("b:7000")).limit, "unknown", "a running cluster has no limits of the lab");
    }

    #[test]
    fn threads_without_samples_are_not_reported_as_idle() {
        let short = limit(|r| {
            r.measured_s = 0.25;
            r.processes = vec![used("broker-1", 0.2, 0.0), used("consumer-0", 0.001, 0.0)];
        });
        let reason = &short.reasons[0];
        assert!(
            reason.contains("clients 0 % and of brokers unknown (its process used 0.80 processors)"),
            "{reason}"
        );
    }

    #[test]
    fn one_partition_is_the_limit_when_nothing_else_is() {
        let mut point = point();
        point.topics.partitions = 1;
        let calm = [calm(100.0), calm(101.0)];
        let verdict = verdict(&point, &calm);
        assert_eq!(verdict.limit, "one partition");
        assert_eq!(verdict.no_headline, Vec::<String>::new());
    }

    #[test]
    fn an_accepted_rate_is_the_limit_and_others_are_no_headline() {
        let mut point = point();
        point.load = Load::Rate { records_per_s: 100.0 };
        assert_eq!(verdict(&point, &[calm(99.5), calm(100.0)]).limit, "asked rate");
        let behind = verdict(&point, &[calm(80.0), calm(80.0)]);
        assert_ne!(behind.limit, "asked rate");
        assert!(behind.no_headline.iter().any(|reason| reason.contains("fell behind")), "{behind:?}");
    }
}
