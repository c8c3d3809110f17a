//! Differences of two results: those that forbid a comparison, and those to mention.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Comparison, Pairing};
use crate::result::{Machine, Objection, PointResult, RunResult, WorkloadResult};

/// Memory varies slightly between boots of one machine.
const MEMORY_TOLERANCE: f64 = 0.02;

/// A differing field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The field's path in the document.
    pub field: String,
    /// The field's value in the first result.
    pub a: String,
    /// The field's value in the second result.
    pub b: String,
}

/// Two results that cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The results cannot be compared:{}", lines(differences))]
pub struct NotComparable {
    pub differences: Vec<Difference>,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} in the first, {} in the second", self.field, self.a, self.b)
    }
}

fn lines(differences: &[Difference]) -> String {
    differences.iter().map(|difference| format!("\n  {difference}")).collect()
}

/// Differences that forbid ratios of any points.
pub(super) fn between_runs(a: &RunResult, b: &RunResult) -> Vec<Difference> {
    let mut found = Vec::new();
    between_machines(&mut found, "machine", &a.machine, &b.machine);
    differ(&mut found, "agents", &a.agents.len(), &b.agents.len());
    differ(&mut found, "agents_place", &placed(a), &placed(b));
    for (number, (a, b)) in a.agents.iter().zip(&b.agents).enumerate() {
        between_machines(&mut found, &format!("agents[{number}].machine"), &a.machine, &b.machine);
    }
    // A result without them does not tell the machines of its brokers.
    if !a.broker_machines.is_empty() && !b.broker_machines.is_empty() {
        differ(&mut found, "broker_machines", &a.broker_machines.len(), &b.broker_machines.len());
    }
    for (number, (a, b)) in a.broker_machines.iter().zip(&b.broker_machines).enumerate() {
        between_machines(&mut found, &format!("broker_machines[{number}].machine"), &a.machine, &b.machine);
    }
    found
}

/// The rule that placed clients.
fn placed(run: &RunResult) -> &str {
    run.agents_place.as_deref().unwrap_or(if run.agents.is_empty() { "no agents" } else { "unknown" })
}

fn between_machines(found: &mut Vec<Difference>, field: &str, a: &Machine, b: &Machine) {
    let larger = a.memory_bytes.max(b.memory_bytes) as f64;
    let same_memory = a.memory_bytes.abs_diff(b.memory_bytes) as f64 <= larger * MEMORY_TOLERANCE;
    let mut b = b.clone();
    if same_memory {
        b.memory_bytes = a.memory_bytes;
    }
    between_values(found, field, &value(a), &value(&b));
}

/// Differences that forbid comparing two points.
pub(super) fn between_points(
    (workload_a, a): (&WorkloadResult, &PointResult),
    (workload_b, b): (&WorkloadResult, &PointResult),
) -> Vec<Difference> {
    let mut found = Vec::new();
    differ(&mut found, "workload.scale", &workload_a.workload.scale, &workload_b.workload.scale);
    let (mut settings_a, settings_b) = (a.point.clone(), b.point.clone());
    // The number of repetitions changes the interval, not the point.
    settings_a.repetitions = settings_b.repetitions;
    between_values(&mut found, "point", &value(&settings_a), &value(&settings_b));
    differ(&mut found, "drain", &timed(a), &timed(b));
    if a.failure.is_some() || b.failure.is_some() {
        found.push(Difference { field: "failure".to_owned(), a: outcome(a), b: outcome(b) });
    } else if a.repetitions.is_empty() || b.repetitions.is_empty() {
        let count = |point: &PointResult| point.repetitions.len().to_string();
        found.push(Difference { field: "repetitions".to_owned(), a: count(a), b: count(b) });
    }
    found
}

/// How a drain was timed.
fn timed(point: &PointResult) -> &'static str {
    let in_steps = |text: &String| Objection::of(text) == Objection::DrainInSteps;
    match point.verdict.no_headline.iter().any(in_steps) {
        true => "timed in steps of a second",
        false => "timed to the last record",
    }
}

fn outcome(point: &PointResult) -> String {
    match &point.failure {
        Some(failure) => format!("\"{failure}\""),
        None => "measured to the end".to_owned(),
    }
}

/// Differences that allow a comparison and may explain it.
pub(super) fn beside(a: &RunResult, b: &RunResult, pairing: &Pairing) -> Vec<Difference> {
    let mut found = Vec::new();
    differ(&mut found, "lab_version", &a.lab_version, &b.lab_version);
    differ(&mut found, "seed", &a.seed, &b.seed);
    differ(&mut found, "state", &state(a), &state(b));
    match pairing {
        Pairing::SameTarget => {
            for (name, info) in &a.targets {
                if let Some(other) = b.targets.get(name) {
                    between_values(&mut found, &format!("targets.{name}"), &value(info), &value(other));
                }
            }
        }
        Pairing::Targets { a: first, b: second } => {
            if let (Some(info), Some(other)) = (a.targets.get(first), b.targets.get(second)) {
                differ(&mut found, "targets.version", &info.version, &other.version);
            }
        }
    }
    found
}

fn state(run: &RunResult) -> String {
    match &run.state {
        crate::result::State::Complete => "complete".to_owned(),
        crate::result::State::Partial { why } => format!("partial ({why})"),
    }
}

/// Why two results have no common point.
pub(super) fn nothing_in_common(comparison: Comparison, a: &RunResult, b: &RunResult) -> NotComparable {
    let mut differences = Vec::new();
    for refused in comparison.refused {
        differences.extend(refused.differences.into_iter().map(|difference| Difference {
            field: format!("{}: {}", refused.a, difference.field),
            ..difference
        }));
    }
    if differences.is_empty() {
        differences.push(Difference { field: "points".to_owned(), a: points(a), b: points(b) });
    }
    NotComparable { differences }
}

/// A short list of the points of a result, with a limit.
fn points(run: &RunResult) -> String {
    const SHOWN_MAX: usize = 12;
    let mut names: Vec<String> = Vec::new();
    for workload in &run.workloads {
        for point in &workload.points {
            names.push(super::name(workload, point).to_string());
        }
    }
    let more = names.len().saturating_sub(SHOWN_MAX);
    names.truncate(SHOWN_MAX);
    match (names.is_empty(), more) {
        (true, _) => "none".to_owned(),
        (false, 0) => names.join(", "),
        (false, more) => format!("{} and {more} more", names.join(", ")),
    }
}

fn differ<T: PartialEq + std::fmt::Display>(found: &mut Vec<Difference>, field: &str, a: &T, b: &T) {
    if a != b {
        found.push(Difference { field: field.to_owned(), a: a.to_string(), b: b.to_string() });
    }
}

fn value<T: Serialize>(of: &T) -> Value {
    serde_json::to_value(of).expect("results are plain data: strings, numbers, maps with string keys")
}

/// All differing leaves, with their paths.
fn between_values(found: &mut Vec<Difference>, path: &str, a: &Value, b: &Value) {
    match (a, b) {
        (Value::Object(fields_a), Value::Object(fields_b)) => {
            for (name, inner) in fields_a {
                let other = fields_b.get(name).unwrap_or(&Value::Null);
                between_values(found, &format!("{path}.{name}"), inner, other);
            }
            for (name, inner) in fields_b.iter().filter(|(name, _)| !fields_a.contains_key(*name)) {
                between_values(found, &format!("{path}.{name}"), &Value::Null, inner);
            }
        }
        (a, b) if a == b => {}
        (a, b) => found.push(Difference { field: path.to_owned(), a: shown(a), b: shown(b) }),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        other => other.to_string(),
    }
}
