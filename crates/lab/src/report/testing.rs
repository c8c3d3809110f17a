//! Results of made-up runs.

use std::collections::BTreeMap;

use crate::result::testing::{point, repetition, result};
use crate::result::{Machine, PointResult, Repetition, RunResult, SCHEMA, State, WorkloadResult};
use crate::workload::{Point, Workload};

/// A run of one workload on Thalweg and Apache Kafka, in turns: points, and how many times Apache Kafka's 100
/// records per second Thalweg carries. Labels that contain `at a rate` measure latency at a fixed rate, in
/// which Thalweg takes so many times Apache Kafka's 100 µs.
pub(crate) fn run(points: &[(&str, f64)]) -> RunResult {
    let results = points.iter().enumerate().flat_map(|(place, (label, factor))| {
        let mut shape = point();
        (*label).clone_into(&mut shape.label);
        if let Some(brokers) = label.split(' ').next().and_then(|word| word.parse().ok()) {
            shape.cluster.brokers = brokers;
        }
        if label.contains("at a rate") {
            shape.load = crate::workload::Load::Rate { records_per_s: 100.0 };
        }
        let at = 100 * place as u64;
        [
            measured(&shape, "embedded", at, &[1.0, 1.01, 0.99].map(|noise| noise * factor * 100.0)),
            measured(&shape, "apache-kafka", at + 1, &[100.0, 100.0, 100.0]),
        ]
    });
    run_of(results.collect())
}

/// A run of one workload with these results.
pub(crate) fn run_of(results: Vec<PointResult>) -> RunResult {
    RunResult {
        schema: SCHEMA.to_owned(),
        condensed: false,
        began_at: String::new(),
        ended_at: String::new(),
        state: State::Complete,
        arguments: Vec::new(),
        seed: 1,
        lab_version: String::new(),
        machine: Machine::default(),
        agents: Vec::new(),
        agents_place: None,
        broker_machines: Vec::new(),
        targets: BTreeMap::new(),
        workloads: vec![WorkloadResult {
            workload: Workload {
                name: "ibm-fast".to_owned(),
                title: "A workload".to_owned(),
                description: String::new(),
                drivers: Vec::new(),
                targets: Vec::new(),
                has_steps: false,
                why: BTreeMap::new(),
                scale: 1.0,
                points: Vec::new(),
                published: Vec::new(),
            },
            points: results,
        }],
    }
}

/// A point with these values of its main figure, of repetitions that began at `at`, `at` + 2 and so on.
pub(crate) fn measured(shape: &Point, target: &str, at: u64, values: &[f64]) -> PointResult {
    let is_rate = matches!(shape.load, crate::workload::Load::Rate { .. });
    let repetitions: Vec<Repetition> = values
        .iter()
        .zip(0u32..)
        .map(|(value, number)| {
            let mut one = repetition();
            (one.number, one.began_at_us) = (number, at + 2 * u64::from(number));
            match is_rate {
                true => one.figures.acknowledge_p99_us = Some(*value),
                false => one.figures.produced_records_per_s = Some(*value),
            }
            one
        })
        .collect();
    result(shape.clone(), target, repetitions)
}
