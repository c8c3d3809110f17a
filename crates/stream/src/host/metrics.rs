//! Stream metrics in Prometheus' text format, labelled by stream, part, stage and instance.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use serde_json::Value;

use super::{State, StreamStatus};
use crate::runtime::{StageFigures, StreamFigures};

/// A metric: name, type, help, and its value in a stage's figures.
type StageMetric = (&'static str, &'static str, &'static str, fn(&StageFigures) -> f64);

/// The metrics of every stage.
const OF_STAGES: [StageMetric; 5] = [
    ("thalweg_stream_messages_in_total", "counter", "Messages that entered a stage.", |stage| {
        stage.messages_in as f64
    }),
    (
        "thalweg_stream_messages_out_total",
        "counter",
        "Messages that left a stage; for a sink, those it accepted.",
        |stage| stage.messages_out as f64,
    ),
    (
        "thalweg_stream_bytes_out_total",
        "counter",
        "Bytes of the message values that left a stage.",
        |stage| stage.bytes_out as f64,
    ),
    ("thalweg_stream_busy_seconds_total", "counter", "Time that a stage spent working.", |stage| {
        stage.busy.as_secs_f64()
    }),
    (
        "thalweg_stream_waited_seconds_total",
        "counter",
        "Time that a stream waited for a stage (backpressure).",
        |stage| stage.waited.as_secs_f64(),
    ),
];

/// Prometheus quantiles, by figure name.
const QUANTILES: [(&str, &str); 5] =
    [("p50", "0.5"), ("p90", "0.9"), ("p95", "0.95"), ("p99", "0.99"), ("p99.9", "0.999")];

/// Bucket bounds of latencies.
const LATENCY_BOUNDS: [Duration; 18] = [
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2500),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(600),
];

/// The metrics of all streams.
pub fn text(statuses: &[StreamStatus]) -> String {
    let mut out = String::new();
    states(statuses, &mut out);
    let parts: Vec<&StreamFigures> = statuses
        .iter()
        .filter_map(|status| status.figures.as_ref())
        .flat_map(|figures| &figures.streams)
        .collect();
    for (name, kind, help, value) in OF_STAGES {
        head(&mut out, name, kind, help);
        for part in &parts {
            for (place, stage) in part.stages.iter().enumerate() {
                line(&mut out, name, &labels(part, place), value(stage));
            }
        }
    }
    let name = "thalweg_stream_bad_messages_total";
    head(&mut out, name, "counter", "Bad messages that were skipped or sent to the dead letters.");
    for part in &parts {
        line(&mut out, name, &of_part(part), part.bad as f64);
    }
    late(&parts, &mut out);
    latencies(&parts, &mut out);
    counters(&parts, &mut out);
    histograms(&parts, &mut out);
    out
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(out: &mut String, name: &str, labels: &str, value: f64) {
    let _ = writeln!(out, "{name}{{{labels}}} {value}");
}

/// Escapes a label value.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn of_part(part: &StreamFigures) -> String {
    format!(
        "stream=\"{}\",part=\"{}\",instance=\"{}\"",
        quoted(&part.stream),
        quoted(&part.name),
        part.instance
    )
}

/// Includes the stage's position, because labels given by users may collide with those of topics.
fn labels(part: &StreamFigures, place: usize) -> String {
    let stage = &part.stages[place];
    format!(
        "{},place=\"{place}\",stage=\"{}\",module=\"{}\"",
        of_part(part),
        quoted(&stage.label),
        stage.module
    )
}

fn states(statuses: &[StreamStatus], out: &mut String) {
    let name = "thalweg_streams";
    head(out, name, "gauge", "Streams by state.");
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for state in [
        State::Undeployed,
        State::Deploying,
        State::Deployed,
        State::Undeploying,
        State::Complete,
        State::Failed,
        State::Elsewhere,
    ] {
        counts.insert(state.name(), 0);
    }
    for status in statuses {
        *counts.entry(status.state.name()).or_default() += 1;
    }
    for (state, count) in counts {
        line(out, name, &format!("state=\"{state}\""), count as f64);
    }
}

/// Messages that aggregates dropped because their windows were closed.
fn late(parts: &[&StreamFigures], out: &mut String) {
    let name = "thalweg_stream_late_messages_total";
    head(out, name, "counter", "Messages that an aggregate dropped, because their windows were closed.");
    for part in parts {
        for (place, stage) in part.stages.iter().enumerate() {
            if let Some(count) = stage.findings.get("late").and_then(Value::as_f64) {
                line(out, name, &labels(part, place), count);
            }
        }
    }
}

/// Message ages at the end of each part.
fn latencies(parts: &[&StreamFigures], out: &mut String) {
    let name = "thalweg_stream_latency_seconds";
    head(out, name, "histogram", "Age of messages when the last stage of a part has processed them.");
    for part in parts {
        let Some(last) = part.stages.len().checked_sub(1) else { continue };
        let labels = labels(part, last);
        let latency = &part.stages[last].latency;
        for bound in LATENCY_BOUNDS {
            let below = latency.count_through(bound) as f64;
            let bound = bound.as_secs_f64();
            line(out, &format!("{name}_bucket"), &format!("{labels},le=\"{bound}\""), below);
        }
        let all = latency.count() as f64;
        line(out, &format!("{name}_bucket"), &format!("{labels},le=\"+Inf\""), all);
        line(out, &format!("{name}_sum"), &labels, latency.sum_s());
        line(out, &format!("{name}_count"), &labels, all);
    }
}

/// The stages of a module that have results.
fn found<'a>(
    parts: &'a [&StreamFigures],
    module: &'a str,
) -> impl Iterator<Item = (String, &'a StageFigures)> {
    parts.iter().flat_map(move |part| {
        let stages = part.stages.iter().enumerate().filter(move |(_, stage)| stage.module == module);
        stages.map(move |(place, stage)| {
            let name = stage.findings.get("name").and_then(Value::as_str).unwrap_or(&part.stream);
            (format!("{},name=\"{}\"", labels(part, place), quoted(name)), stage)
        })
    })
}

fn counters(parts: &[&StreamFigures], out: &mut String) {
    let (all, by_key) = ("thalweg_stream_counter_total", "thalweg_stream_counter_by_key_total");
    head(out, all, "counter", "Messages that a counter has counted.");
    for (labels, stage) in found(parts, "counter") {
        let count = stage.findings.get("count").and_then(Value::as_f64);
        line(out, all, &labels, count.unwrap_or(0.0));
    }
    head(
        out,
        by_key,
        "counter",
        "Messages that a counter has counted by key, for the keys with the largest counts.",
    );
    for (labels, stage) in found(parts, "counter") {
        let counts = stage.findings.get("counts").and_then(Value::as_object);
        for (key, count) in counts.into_iter().flatten() {
            let labels = format!("{labels},key=\"{}\"", quoted(key));
            line(out, by_key, &labels, count.as_f64().unwrap_or(0.0));
        }
    }
}

fn histograms(parts: &[&StreamFigures], out: &mut String) {
    let name = "thalweg_stream_histogram";
    head(out, name, "summary", "Distribution of the numbers that a histogram has seen.");
    for (labels, stage) in found(parts, "histogram") {
        let figure = |name: &str| stage.findings.get(name).and_then(Value::as_f64);
        for (figure_name, quantile) in QUANTILES {
            if let Some(value) = figure(figure_name) {
                line(out, name, &format!("{labels},quantile=\"{quantile}\""), value);
            }
        }
        let count = figure("count").unwrap_or(0.0);
        line(out, &format!("{name}_sum"), &labels, figure("mean").unwrap_or(0.0) * count);
        line(out, &format!("{name}_count"), &labels, count);
    }
}
