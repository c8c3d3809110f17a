//! Results like those of a run, generated from a seed: several workloads, targets and drivers, a search for
//! saturation, failed points and points that are not quotable.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use thalweg_lab::result::{
    Check, DiskUse, Evidence, Figures, Histogram, HostUse, Knee, Machine, PartitionEvidence, PointResult,
    ProcessUse, Repetition, ReplicaEvidence, RunResult, SCHEMA, Sample, Spread, State, Step, Summary,
    TargetInfo, Verdict, WorkloadResult,
};
use thalweg_lab::worker::{Driver, Interval};
use thalweg_lab::workload::{
    Clients, ClusterSpec, Extent, Load, Measure, Payload, Point, PublishedFigure, RecordSpec, Topics, Unit,
    Verification, Workload,
};

const BEGAN_US: u64 = 1_795_320_000_000_000;
const SECONDS: u64 = 30;
/// Mbit (10^6 bits) in a MB (2^20 bytes).
const MBIT_IN_MB: f64 = 8.388_608;

/// The behaviour of a point on a target.
#[derive(Clone, Copy)]
pub struct Behaviour {
    pub records_per_s: f64,
    /// Relative standard deviation between repetitions.
    pub spread: f64,
    pub p50_us: f64,
    pub broker_cpu_us: f64,
    pub producer_cpu_us: f64,
}

/// A result of three workloads on two targets.
pub fn run(seed: u64) -> RunResult {
    let mut made = FixtureBuilder { random: SmallRng::seed_from_u64(seed), number: 0 };
    let mut workloads = vec![made.ibm_fast(), made.ibm_payload(), made.queue_kafka(), made.saturation()];
    workloads.iter_mut().for_each(take_turns);
    RunResult {
        schema: SCHEMA.to_owned(),
        condensed: false,
        began_at: "2026-11-22T04:00:00.000Z".to_owned(),
        ended_at: "2026-11-22T04:14:31.250Z".to_owned(),
        state: State::Complete,
        arguments: [
            "lab",
            "run",
            "ibm-fast",
            "ibm-payload",
            "queue-kafka",
            "aiven-saturation",
            "--scale",
            "0.1",
        ]
        .map(str::to_owned)
        .to_vec(),
        seed: 42,
        lab_version: "thalweg 0.1.0 (dfc02f0)".to_owned(),
        machine: machine(),
        agents: Vec::new(),
        agents_place: None,
        broker_machines: Vec::new(),
        targets: targets(),
        workloads,
    }
}

/// Moves the repetitions of each point to where they would be had its targets and drivers taken turns.
fn take_turns(workload: &mut WorkloadResult) {
    let contenders = workload.points.len() as u64;
    for (place, repetition) in workload
        .points
        .iter_mut()
        .enumerate()
        .flat_map(|(place, point)| point.repetitions.iter_mut().map(move |one| (place as u64, one)))
    {
        let turn = u64::from(repetition.number) * contenders + place;
        let began_at_us = BEGAN_US + turn * 60_000_000;
        let moved = |at_us: u64| at_us - repetition.began_at_us + began_at_us;
        let intervals = repetition.produced.iter_mut().chain(&mut repetition.consumed);
        intervals.for_each(|interval| interval.at_us = moved(interval.at_us));
        repetition.samples.iter_mut().for_each(|sample| sample.at_us = moved(sample.at_us));
        repetition.began_at_us = began_at_us;
    }
}

/// The same, with names that would break out of a page without escaping.
pub fn hostile(seed: u64) -> RunResult {
    const EVIL: &str =
        "\"><img src=http://evil.invalid/x onerror=alert(1)><script>document.title='owned'</script>";
    let mut run = run(seed);
    run.lab_version = EVIL.to_owned();
    run.machine.cpu = EVIL.to_owned();
    run.machine.facts.insert(EVIL.to_owned(), EVIL.to_owned());
    run.arguments.push(EVIL.to_owned());
    run.state = State::Partial { why: EVIL.to_owned() };
    run.targets.insert(EVIL.to_owned(), run.targets["embedded"].clone());
    for workload in &mut run.workloads {
        workload.workload.title = EVIL.to_owned();
        workload.workload.description = EVIL.to_owned();
        workload.workload.name += EVIL;
        for published in &mut workload.workload.published {
            published.source = EVIL.to_owned();
            published.figure = EVIL.to_owned();
        }
        for point in &mut workload.points {
            point.target = EVIL.to_owned();
            point.point.label += EVIL;
            point.client = EVIL.to_owned();
            point.verdict.limit = EVIL.to_owned();
            point.verdict.reasons = vec![EVIL.to_owned()];
            point.verdict.no_headline = vec![EVIL.to_owned()];
            point.failure = Some(EVIL.to_owned());
            for repetition in &mut point.repetitions {
                repetition.evidence.fsync_policy = EVIL.to_owned();
                repetition.evidence.faults = vec![EVIL.to_owned()];
                for sample in &mut repetition.samples {
                    sample.process_cpus.push((format!("broker{EVIL}"), 0.5));
                }
            }
        }
    }
    run
}

fn machine() -> Machine {
    Machine {
        cpu: "AMD EPYC 9V74 80-Core Processor".to_owned(),
        cpus: 4,
        memory_bytes: 16_780_000_000,
        kernel: "6.18.5".to_owned(),
        os: "Debian GNU/Linux 12 (bookworm)".to_owned(),
        filesystem: "ext4".to_owned(),
        hypervisor: Some("Microsoft Hv".to_owned()),
        facts: BTreeMap::from([("clock source".to_owned(), "tsc".to_owned())]),
    }
}

fn targets() -> BTreeMap<String, TargetInfo> {
    let info = |kind: &str, version: &str, command: &[&str], note: &str| TargetInfo {
        kind: kind.to_owned(),
        version: version.to_owned(),
        command: command.iter().map(|part| (*part).to_owned()).collect(),
        notes: vec![note.to_owned()],
        facts: BTreeMap::new(),
    };
    BTreeMap::from([
        (
            "embedded".to_owned(),
            info(
                "embedded",
                "thalweg 0.1.0 (dfc02f0)",
                &["thalweg", "serve", "server.properties"],
                "one process",
            ),
        ),
        (
            "apache-kafka".to_owned(),
            info(
                "apache-kafka",
                "Apache Kafka 4.3.1, OpenJDK 17.0.17",
                &["java", "-Xmx1G", "-Xms1G", "-XX:+UseG1GC", "kafka.Kafka", "server.properties"],
                "the JVM was warmed by a run that is not measured",
            ),
        ),
    ])
}

/// A point that produces at the maximum rate.
pub fn point(label: &str, size_bytes: u32, partitions: u32) -> Point {
    let clients = |count: u32, properties: &[(&str, &str)]| Clients {
        count,
        processes: 1,
        threads: 1,
        properties: properties
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        pulsar: BTreeMap::new(),
    };
    Point {
        label: label.to_owned(),
        cluster: ClusterSpec::plaintext(1, BTreeMap::from([("num.io.threads".to_owned(), "8".to_owned())])),
        topics: Topics {
            count: 1,
            partitions,
            replication_factor: 1,
            created_per_s: 0,
            properties: BTreeMap::new(),
        },
        records: RecordSpec { size_bytes, payload: Payload::Random, keys: None },
        producers: clients(4, &[("acks", "1"), ("batch.size", "65536"), ("linger.ms", "5")]),
        consumers: clients(0, &[]),
        consumer_groups: 1,
        measure: Measure::Produce,
        load: Load::Maximum,
        extent: Extent { warm_up_s: 5.0, unit: Unit::Seconds(SECONDS as f64) },
        repetitions: 3,
        verify: Verification::Whole,
    }
}

struct FixtureBuilder {
    random: SmallRng,
    number: u64,
}

impl FixtureBuilder {
    fn ibm_fast(&mut self) -> WorkloadResult {
        let mut points = Vec::new();
        for (label, brokers, factor) in [("3 brokers", 3, 1.0), ("6 brokers", 6, 0.8)] {
            let mut shape = point(label, 128, 24);
            shape.cluster.brokers = brokers;
            shape.topics.replication_factor = 3;
            shape.consumers = Clients { count: 24, ..shape.producers.clone() };
            for (target, rate, broker_cpu_us, spread) in
                [("embedded", 4.2e6, 0.21, 0.018), ("apache-kafka", 2.15e6, 0.43, 0.03)]
            {
                let behaviour = Behaviour {
                    records_per_s: rate * factor,
                    spread,
                    p50_us: 3e9 / rate,
                    broker_cpu_us,
                    producer_cpu_us: 0.062,
                };
                points.push(self.result(&shape, target, Driver::Thalweg, behaviour));
            }
        }
        let noisy = &mut points[3];
        noisy.verdict.no_headline = vec!["the spread over 3 repetitions is 14 %, more than 10 %".to_owned()];
        let Some(replicas) = noisy.repetitions.first_mut() else { unreachable!("three were made") };
        replicas.evidence.in_sync_replicas_min = 2;
        workload(
            "ibm-fast",
            "Replication factor 1, acks=1, as many partitions as consumers",
            0.1,
            points,
            &[("3 brokers", "records_per_s", 2_307_902.0), ("6 brokers", "records_per_s", 3_462_023.0)],
        )
    }

    fn ibm_payload(&mut self) -> WorkloadResult {
        let sizes = [1_024, 10_240, 25_600, 51_200, 102_400, 204_800, 512_000];
        let mut points = Vec::new();
        for size in sizes {
            let shape = point(&format!("{} B", thalweg_lab::quantity::count(u64::from(size))), size, 1);
            for (target, mb, broker_cpu_us) in [("embedded", 1150.0, 0.42), ("apache-kafka", 690.0, 0.95)] {
                let behaviour = Behaviour {
                    records_per_s: mb * 1_048_576.0 / f64::from(size)
                        * (1.0 - 20.0 / f64::from(size).sqrt() / 4.0),
                    spread: 0.025,
                    p50_us: 900.0,
                    broker_cpu_us: broker_cpu_us * f64::from(size) / 1024.0,
                    producer_cpu_us: 0.1 * f64::from(size) / 1024.0,
                };
                points.push(self.result(&shape, target, Driver::Thalweg, behaviour));
            }
        }
        let failed = points.last_mut().expect("fourteen points");
        failed.failure = Some("broker-1 died: exit status 1 (OutOfMemoryError: Java heap space)".to_owned());
        (failed.repetitions, failed.summary) = (Vec::new(), Summary::default());
        workload(
            "ibm-payload",
            "Size of the payload: one topic, one partition, one producer",
            1.0,
            points,
            &[
                ("1,024 B", "records_per_s", 29_753.0),
                ("1,024 B", "mb_per_s", 28.94),
                ("10,240 B", "records_per_s", 3_020.0),
                ("10,240 B", "mb_per_s", 29.49),
                ("512,000 B", "mb_per_s", 30.49),
            ],
        )
    }

    fn queue_kafka(&mut self) -> WorkloadResult {
        let mut points = Vec::new();
        let produce = point("produce 1,000 B", 1000, 1);
        for (target, driver, rate, producer_cpu_us) in [
            ("embedded", Driver::Thalweg, 980e3, 0.11),
            ("embedded", Driver::Librdkafka, 760e3, 0.52),
            ("embedded", Driver::Java, 410e3, 1.9),
            ("apache-kafka", Driver::Thalweg, 620e3, 0.12),
            ("apache-kafka", Driver::Librdkafka, 560e3, 0.55),
            ("apache-kafka", Driver::Java, 370e3, 2.0),
        ] {
            let broker_cpu_us = if target == "embedded" { 0.4 } else { 0.9 };
            let behaviour = Behaviour {
                records_per_s: rate,
                spread: 0.03,
                p50_us: 2e9 / rate,
                broker_cpu_us,
                producer_cpu_us,
            };
            let mut result = self.result(&produce, target, driver, behaviour);
            if driver == Driver::Java {
                result.verdict.limit = "generator CPU".to_owned();
                result.verdict.no_headline = vec!["the generator was the limit".to_owned()];
            }
            points.push(result);
        }
        let mut latency = point("20,000 records/s, end to end", 1000, 1);
        latency.load = Load::Rate { records_per_s: 20_000.0 };
        latency.consumers = latency.producers.clone();
        for (target, p50_us) in [("embedded", 420.0), ("apache-kafka", 1300.0)] {
            let behaviour = Behaviour {
                records_per_s: 20_000.0,
                spread: 0.0002,
                p50_us,
                broker_cpu_us: p50_us / 140.0,
                producer_cpu_us: 1.1,
            };
            let mut result = self.result(&latency, target, Driver::Thalweg, behaviour);
            result.verdict.limit = "asked rate".to_owned();
            points.push(result);
        }
        let mut drain = point("drain 2,000,000 x 1,000 B", 1000, 1);
        drain.measure = Measure::Drain;
        for (target, drain_s) in [("embedded", 1.9), ("apache-kafka", 3.4)] {
            let behaviour = Behaviour {
                records_per_s: 50_000.0,
                spread: 0.02,
                p50_us: 900.0,
                broker_cpu_us: 0.8,
                producer_cpu_us: 0.2,
            };
            let mut result = self.result(&drain, target, Driver::Thalweg, behaviour);
            for repetition in &mut result.repetitions {
                repetition.figures.drain_s = Some(drain_s * (1.0 + 0.02 * f64::from(repetition.number)));
            }
            result.summary = summary(&result.repetitions);
            points.push(result);
        }
        workload(
            "queue-kafka",
            "A queue on three small machines: produce, wait, drain",
            1.0,
            points,
            &[("produce 1,000 B", "records_per_s", 33_654.0), ("produce 1,000 B", "p99_us", 2_745_000.0)],
        )
    }

    fn saturation(&mut self) -> WorkloadResult {
        let mut points = Vec::new();
        let mut adding = point("3 nodes, 512 B", 512, 3);
        adding.load = Load::AddProducers { producers_max: 12, gain_min: 0.03 };
        let mut raising = point("3 nodes, 512 B, by rate", 512, 3);
        raising.load = Load::RaiseRate { first_records_per_s: 100e3, factor: 1.5, precision: 0.05 };
        for (target, ceiling, cpu) in [("embedded", 1.62e6, 0.9), ("apache-kafka", 0.91e6, 1.0)] {
            let behaviour = Behaviour {
                records_per_s: ceiling,
                spread: 0.02,
                p50_us: 1500.0,
                broker_cpu_us: 0.5,
                producer_cpu_us: 0.1,
            };
            let mut added = self.result(&adding, target, Driver::Thalweg, behaviour);
            added.steps = (1..=9)
                .map(|producers| {
                    let share = 1.0 - (-f64::from(producers) / 2.2).exp();
                    step(producers, None, ceiling * share * (1.0 + 0.01 * self.normal()), share * 0.7 * cpu)
                })
                .collect();
            let last = added.steps.len() - 2;
            added.knee = Some(knee(&added.steps[last], 0.02));
            points.push(added);
            let mut raised = self.result(&raising, target, Driver::Thalweg, behaviour);
            let mut asked: Vec<f64> = (0..8)
                .map(|power| 100e3 * 1.5f64.powi(power))
                .take_while(|rate| *rate < ceiling * 1.5)
                .collect();
            asked.extend([ceiling * 1.12, ceiling * 0.97, ceiling * 1.03]);
            raised.steps = asked
                .into_iter()
                .map(|asked| {
                    step(4, Some(asked), asked.min(ceiling * 0.99), 0.7 * cpu * (asked / ceiling).min(1.0))
                })
                .collect();
            let carried = raised.steps.iter().rev().nth(1).expect("eight at the least").clone();
            raised.knee = Some(knee(&carried, 0.03));
            points.push(raised);
        }
        workload(
            "aiven-saturation",
            "Producers are added until the rate stops rising",
            1.0,
            points,
            &[("3 nodes, 512 B", "records_per_s", 200_000.0)],
        )
    }

    /// The result of a point with this behaviour.
    fn result(&mut self, shape: &Point, target: &str, driver: Driver, behaviour: Behaviour) -> PointResult {
        let repetitions: Vec<Repetition> =
            (0..shape.repetitions).map(|number| self.repetition(shape, number, behaviour)).collect();
        PointResult {
            point: shape.clone(),
            target: target.to_owned(),
            driver,
            client: match driver {
                Driver::Thalweg => "thalweg-client 0.1.0",
                Driver::Librdkafka => "librdkafka 2.10.0",
                Driver::Java => "kafka-clients 4.3.1",
                Driver::Stream => "thalweg 0.1.0 streams",
            }
            .to_owned(),
            security: None,
            summary: summary(&repetitions),
            repetitions,
            steps: Vec::new(),
            knee: None,
            verdict: Verdict {
                limit: "broker CPU".to_owned(),
                reasons: vec!["the brokers used 2.9 of 4 processors, the producers 0.3".to_owned()],
                no_headline: Vec::new(),
            },
            failure: None,
        }
    }

    fn repetition(&mut self, shape: &Point, number: u32, behaviour: Behaviour) -> Repetition {
        self.number += 1;
        let began_at_us = BEGAN_US + self.number * 60_000_000;
        let rate = behaviour.records_per_s * (1.0 + behaviour.spread * self.normal());
        let records = (rate * SECONDS as f64) as u64;
        let latency = self.latency(behaviour.p50_us, records);
        let consumed = shape.consumers.count > 0;
        let end_to_end = consumed.then(|| self.latency(behaviour.p50_us * 1.6, records));
        let mb = f64::from(shape.records.size_bytes) / 1_048_576.0;
        let us = |of: fn(&Histogram) -> u64| Some(of(&latency) as f64);
        let mut figures = Figures {
            produced_records_per_s: Some(rate),
            produced_mb_per_s: Some(rate * mb),
            produced_mbit_per_s: Some(rate * mb * MBIT_IN_MB),
            consumed_records_per_s: consumed.then_some(rate * 0.998),
            consumed_mb_per_s: consumed.then_some(rate * mb * 0.998),
            consumed_mbit_per_s: consumed.then_some(rate * mb * MBIT_IN_MB * 0.998),
            broker_cpu_us_per_record: Some(behaviour.broker_cpu_us * (1.0 + 0.02 * self.normal())),
            producer_cpu_us_per_record: Some(behaviour.producer_cpu_us * (1.0 + 0.02 * self.normal())),
            consumer_cpu_us_per_record: consumed.then_some(0.05),
            records_per_batch: Some(118.0),
            bytes_per_batch: Some(16_000.0),
            broker_memory_bytes_max: Some(412 << 20),
            carried_records_per_s: None,
            carried_mb_per_s: None,
            carried_mbit_per_s: None,
            drain_s: None,
            group_start_s: None,
            acknowledge_p50_us: us(|h| h.p50_us),
            acknowledge_mean_us: Some(latency.mean_us),
            acknowledge_p95_us: us(|h| h.p95_us),
            acknowledge_p99_us: us(|h| h.p99_us),
            acknowledge_p999_us: us(|h| h.p999_us),
            acknowledge_p9999_us: us(|h| h.p9999_us),
            acknowledge_max_us: us(|h| h.max_us),
            end_to_end_p50_us: end_to_end.as_ref().map(|h| h.p50_us as f64),
            end_to_end_mean_us: end_to_end.as_ref().map(|h| h.mean_us),
            end_to_end_p95_us: end_to_end.as_ref().map(|h| h.p95_us as f64),
            end_to_end_p99_us: end_to_end.as_ref().map(|h| h.p99_us as f64),
            end_to_end_p999_us: end_to_end.as_ref().map(|h| h.p999_us as f64),
            end_to_end_p9999_us: end_to_end.as_ref().map(|h| h.p9999_us as f64),
            end_to_end_max_us: end_to_end.as_ref().map(|h| h.max_us as f64),
            drained_p50_us: None,
            drained_mean_us: None,
            drained_p95_us: None,
            drained_p99_us: None,
            drained_p999_us: None,
            drained_p9999_us: None,
            drained_max_us: None,
            topics_ready_per_s: None,
            topic_ready_p50_us: None,
            topic_ready_p99_us: None,
            metadata_us: None,
        };
        if consumed && shape.measure == Measure::Produce {
            figures.set_carried(1);
        }
        let produced = self.intervals(began_at_us, rate, shape.records.size_bytes, &latency);
        let taken = match &end_to_end {
            Some(latency) => self.intervals(began_at_us, rate, shape.records.size_bytes, latency),
            None => Vec::new(),
        };
        Repetition {
            number,
            began_at_us,
            measured_s: SECONDS as f64,
            figures,
            acknowledge_latency: Some(latency),
            end_to_end_latency: end_to_end,
            produced,
            consumed: taken,
            processes: vec![ProcessUse {
                name: "broker-1".to_owned(),
                pid: 4711,
                user_s: 21.0,
                ..ProcessUse::default()
            }],
            host: HostUse {
                cpu_busy: 0.83,
                cpu_steal: 0.004,
                disks: vec![DiskUse {
                    name: "vda".to_owned(),
                    written_bytes: records * 128,
                    busy: 0.4,
                    ..DiskUse::default()
                }],
                ..HostUse::default()
            },
            agents: Vec::new(),
            broker_machines: Vec::new(),
            unwatched_brokers: Vec::new(),
            samples: self.samples(shape, began_at_us, rate, behaviour),
            profile: None,
            evidence: evidence(shape, records),
            given_up: 0,
            notes: Vec::new(),
        }
    }

    fn intervals(
        &mut self,
        began_at_us: u64,
        rate: f64,
        size_bytes: u32,
        latency: &Histogram,
    ) -> Vec<Interval> {
        let intervals = (1..=SECONDS).map(|second| {
            // An occasional pause of the garbage collector or the disk.
            let pause = self.random.random_bool(0.07);
            let records = (rate * (1.0 + 0.03 * self.normal()) * if pause { 0.7 } else { 1.0 }) as u64;
            let factor = if pause { 4.0 } else { 1.0 + 0.1 * self.normal().abs() };
            Interval {
                at_us: began_at_us + second * 1_000_000,
                length_us: 1_000_000,
                records,
                bytes: records * u64::from(size_bytes),
                p50_us: Some((latency.p50_us as f64 * factor) as u64),
                p99_us: Some((latency.p99_us as f64 * factor) as u64),
                max_us: Some(latency.max_us),
                ..Interval::default()
            }
        });
        intervals.collect()
    }

    fn samples(&mut self, shape: &Point, began_at_us: u64, rate: f64, behaviour: Behaviour) -> Vec<Sample> {
        let brokers = shape.cluster.brokers;
        let samples = (0..=SECONDS).map(|second| {
            let mut process_cpus = Vec::new();
            for broker in 1..=brokers {
                let cpus = rate * behaviour.broker_cpu_us / 1e6 / f64::from(brokers);
                process_cpus.push((format!("broker-{broker}"), cpus * (1.0 + 0.05 * self.normal())));
            }
            let cpus = rate * behaviour.producer_cpu_us / 1e6;
            process_cpus.push(("producer-0".to_owned(), cpus * (1.0 + 0.04 * self.normal())));
            if shape.consumers.count > 0 {
                process_cpus.push(("consumer-0".to_owned(), rate * 0.05e-6 * (1.0 + 0.04 * self.normal())));
            }
            Sample {
                at_us: began_at_us + second * 1_000_000,
                host_cpus: process_cpus.iter().map(|(_, cpus)| cpus).sum(),
                process_cpus,
                process_memory_bytes: vec![("broker-1".to_owned(), 400 << 20)],
                steal_cpus: (0.01 + 0.01 * self.normal()).max(0.0),
                disk_written_bytes: (rate * f64::from(shape.records.size_bytes) * (1.0 + 0.2 * self.normal()))
                    as u64,
                in_sync_replicas_min: (shape.topics.replication_factor > 1).then_some(if second == 17 {
                    2
                } else {
                    3
                }),
            }
        });
        samples.collect()
    }

    /// Log-normal, with a tail of pauses.
    fn latency(&mut self, p50_us: f64, records: u64) -> Histogram {
        let mut recorder = Histogram::recorder();
        let draws: u64 = 4_000;
        let each = (records / draws).max(1);
        for _ in 0..draws {
            let pause = if self.random.random_bool(0.004) { 6.0 } else { 1.0 };
            let value = p50_us * (0.45 * self.normal()).exp() * pause;
            recorder.record_n(value as u64 + 1, each).expect("far below an hour");
        }
        Histogram::of(&recorder).expect("thousands of values")
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.random.random::<f64>()).sum::<f64>() - 6.0
    }
}

fn step(producers: u32, asked: Option<f64>, records_per_s: f64, broker_cpu_share: f64) -> Step {
    Step {
        producers,
        asked_records_per_s: asked,
        records_per_s,
        p99_us: Some(3_000.0),
        fell_behind: asked.is_some_and(|asked| records_per_s < asked * 0.99),
        broker_cpu_share,
        producer_cpu_share: broker_cpu_share * 0.25,
    }
}

fn knee(at: &Step, width: f64) -> Knee {
    Knee {
        records_per_s: at.records_per_s,
        low_records_per_s: at.records_per_s * (1.0 - width),
        high_records_per_s: at.records_per_s * (1.0 + width),
        producers: at.producers,
    }
}

fn evidence(shape: &Point, records: u64) -> Evidence {
    let partitions = shape.topics.partitions;
    let end_offset = (records / u64::from(partitions)) as i64;
    let replica = |broker: i32| ReplicaEvidence {
        broker,
        end_offset,
        bytes: end_offset as u64 * 128,
        file_bytes: None,
        in_sync: true,
    };
    let partition = |partition: u32| PartitionEvidence {
        topic: "lab-0".to_owned(),
        partition: partition as i32,
        start_offset: 0,
        end_offset,
        replicas: (1..=i32::from(shape.topics.replication_factor)).map(replica).collect(),
        ledgers: Vec::new(),
    };
    Evidence {
        acknowledged: records,
        in_log: records,
        partitions: (0..partitions).map(partition).collect(),
        replicas: None,
        bytes_on_disk: records * u64::from(shape.records.size_bytes + 8),
        in_sync_replicas_min: u32::from(shape.topics.replication_factor),
        replication_factor: shape.topics.replication_factor,
        fsync_policy: "by the kernel (flush.messages not set)".to_owned(),
        check: Some(Check { read: records, whole: true, ..Check::default() }),
        not_read_back: None,
        faults: Vec::new(),
    }
}

/// The summary, as the runner calculates it.
pub fn summary(repetitions: &[Repetition]) -> Summary {
    let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for repetition in repetitions {
        for (figure, value) in repetition.figures.each() {
            if let Some(value) = value {
                values.entry(figure.name.to_owned()).or_default().push(value);
            }
        }
    }
    let merged = |of: fn(&Repetition) -> &Option<Histogram>| {
        Histogram::merged(repetitions.iter().filter_map(|repetition| of(repetition).as_ref()))
            .expect("readable")
    };
    Summary {
        figures: values.into_iter().map(|(name, values)| (name, spread(values))).collect(),
        acknowledge_latency: merged(|repetition| &repetition.acknowledge_latency),
        end_to_end_latency: merged(|repetition| &repetition.end_to_end_latency),
    }
}

fn spread(mut values: Vec<f64>) -> Spread {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    let mean = values.iter().sum::<f64>() / count as f64;
    let deviation =
        values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count.max(2) - 1) as f64;
    Spread {
        count: count as u32,
        mean,
        median: values[count / 2],
        min: values[0],
        max: values[count - 1],
        variation: deviation.sqrt() / mean,
    }
}

fn workload(
    name: &str,
    title: &str,
    scale: f64,
    results: Vec<PointResult>,
    published: &[(&str, &str, f64)],
) -> WorkloadResult {
    let mut points: Vec<Point> = Vec::new();
    for result in &results {
        if !points.iter().any(|point| point.label == result.point.label) {
            points.push(result.point.clone());
        }
    }
    let published = published.iter().map(|(point, figure, value)| PublishedFigure {
        point: (*point).to_owned(),
        system: "Kafka 2.3.0".to_owned(),
        hardware: "brokers of 4 CPUs and 8 GB each".to_owned(),
        price: String::new(),
        figure: (*figure).to_owned(),
        value: *value,
        source: "a published report, October 2019".to_owned(),
    });
    WorkloadResult {
        workload: Workload {
            name: name.to_owned(),
            title: title.to_owned(),
            description: "As published: workload, load and duration are listed under every setting below."
                .to_owned(),
            drivers: Vec::new(),
            targets: Vec::new(),
            has_steps: false,
            why: BTreeMap::new(),
            scale,
            points,
            published: published.collect(),
        },
        points: results,
    }
}
