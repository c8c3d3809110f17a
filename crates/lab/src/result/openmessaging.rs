//! A result in the JSON format of the OpenMessaging Benchmark (github.com/openmessaging/benchmark, class
//! `TestResult`), for its charts and tables. Rates are per second, latencies milliseconds.
//!
//! - Series concatenate all repetitions, with an entry per interval of about a second; the benchmark's
//!   entries are ten seconds.
//! - Aggregated latencies come from the merged histograms of all repetitions.
//! - Publish latency starts at the *intended* send time. The benchmark reports the time between intended and
//!   actual sending separately as publish delay; this document includes that time, and reports no delay.
//! - Unknown series are empty, as those of results of earlier versions, whose intervals have two percentiles
//!   only. Unknown aggregates are left out.

use serde_json::{Map, Value, json};

use super::{Histogram, PointResult, Repetition};
use crate::worker::Interval;
use crate::workload::{Measure, Unit};

/// Quantile steps per halving of the distance to 100 %, as in the benchmark.
const QUANTILE_STEPS: u32 = 100;

/// The names of a kind of latency: of its series, and of its aggregate.
const PUBLISH: [&str; 2] = ["publishLatency", "aggregatedPublishLatency"];
const PUBLISH_DELAY: [&str; 2] = ["publishDelayLatency", "aggregatedPublishDelayLatency"];
const END_TO_END: [&str; 2] = ["endToEndLatency", "aggregatedEndToEndLatency"];

/// The suffixes of each name: percentiles, mean and maximum.
const PERCENTILES: [(&str, f64); 6] = [
    ("50pct", 0.5),
    ("75pct", 0.75),
    ("95pct", 0.95),
    ("99pct", 0.99),
    ("999pct", 0.999),
    ("9999pct", 0.9999),
];

/// The document of one point.
pub fn write(result: &PointResult) -> Value {
    let point = &result.point;
    let topics = point.topics.count.max(1);
    let mut document = Map::new();
    let mut put = |name: &str, value: Value| {
        document.insert(name.to_owned(), value);
    };
    put("workload", json!(point.label));
    put("driver", json!(format!("{}, {}", result.target, result.client)));
    put("messageSize", json!(point.records.size_bytes));
    put("topics", json!(point.topics.count));
    put("partitions", json!(point.topics.partitions));
    put("producersPerTopic", json!(point.producers.count.div_ceil(topics)));
    put("consumersPerTopic", json!(point.consumers.count.div_ceil(topics)));
    let produced = || result.repetitions.iter().flat_map(|repetition| &repetition.produced);
    let consumed = || result.repetitions.iter().flat_map(|repetition| &repetition.consumed);
    put("publishRate", produced().map(rate).collect());
    put("publishErrorRate", json!([]));
    put("consumeRate", consumed().map(rate).collect());
    put("backlog", result.repetitions.iter().flat_map(|repetition| backlog(result, repetition)).collect());
    series(&mut document, PUBLISH[0], &produced().collect::<Vec<_>>());
    series(&mut document, PUBLISH_DELAY[0], &[]);
    series(&mut document, END_TO_END[0], &consumed().collect::<Vec<_>>());
    aggregate(&mut document, PUBLISH[1], result.summary.acknowledge_latency.as_ref());
    aggregate(&mut document, PUBLISH_DELAY[1], None);
    aggregate(&mut document, END_TO_END[1], result.summary.end_to_end_latency.as_ref());
    Value::Object(document)
}

fn rate(interval: &Interval) -> Value {
    match interval.length_us {
        0 => json!(0.0),
        length_us => json!(interval.records as f64 / (length_us as f64 / 1e6)),
    }
}

/// Records produced but not yet consumed at the end of each interval of the producers; 0 without consumers.
fn backlog(result: &PointResult, repetition: &Repetition) -> Vec<Value> {
    let mut left = match (result.point.measure, result.point.extent.unit) {
        (Measure::Drain, Unit::Records(records)) => i128::from(records),
        _ => 0,
    };
    let mut consumed = repetition.consumed.iter().peekable();
    let mut backlog = Vec::new();
    for interval in &repetition.produced {
        left += i128::from(interval.records);
        while let Some(read) = consumed.next_if(|read| read.at_us <= interval.at_us) {
            left -= i128::from(read.records);
        }
        let shown = if repetition.consumed.is_empty() { 0 } else { left.max(0) };
        backlog.push(json!(u64::try_from(shown).unwrap_or(u64::MAX)));
    }
    backlog
}

/// The latencies of intervals. If an interval has none, the series is empty.
fn series(document: &mut Map<String, Value>, name: &str, intervals: &[&Interval]) {
    let all = |of: fn(&Interval) -> Option<u64>| {
        let values: Option<Vec<Value>> = intervals.iter().map(|each| Some(ms(of(each)? as f64))).collect();
        Value::Array(values.unwrap_or_default())
    };
    document.insert(format!("{name}Avg"), all(|interval| interval.mean_us));
    for (percentile, _) in PERCENTILES {
        let values = match percentile {
            "50pct" => all(|interval| interval.p50_us),
            "75pct" => all(|interval| interval.p75_us),
            "95pct" => all(|interval| interval.p95_us),
            "99pct" => all(|interval| interval.p99_us),
            "999pct" => all(|interval| interval.p999_us),
            "9999pct" => all(|interval| interval.p9999_us),
            _ => json!([]),
        };
        document.insert(format!("{name}{percentile}"), values);
    }
    document.insert(format!("{name}Max"), all(|interval| interval.max_us));
}

/// The latencies of all repetitions together.
fn aggregate(document: &mut Map<String, Value>, name: &str, histogram: Option<&Histogram>) {
    let mut quantiles = Map::new();
    if let Some(histogram) = histogram {
        document.insert(format!("{name}Avg"), ms(histogram.mean_us));
        document.insert(format!("{name}Max"), ms(histogram.max_us as f64));
        // A histogram with unreadable counts still has its own percentiles.
        let known = [
            histogram.p50_us,
            histogram.p75_us,
            histogram.p95_us,
            histogram.p99_us,
            histogram.p999_us,
            histogram.p9999_us,
        ];
        for ((percentile, _), us) in PERCENTILES.iter().zip(known) {
            document.insert(format!("{name}{percentile}"), ms(us as f64));
        }
        if let Ok(recorded) = histogram.recorded() {
            for step in recorded.iter_quantiles(QUANTILE_STEPS) {
                // Rounds away the error of adding the steps, about 1e-14.
                let percentile = (step.quantile_iterated_to() * 1e8).round() / 1e6;
                quantiles.insert(format!("{percentile:?}"), ms(step.value_iterated_to() as f64));
            }
        }
    }
    document.insert(format!("{name}Quantiles"), Value::Object(quantiles));
}

fn ms(us: f64) -> Value {
    json!(us / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Figures, Summary, Verdict};
    use crate::worker::Driver;
    use crate::workload::load;

    fn latency(us: u64) -> Option<Histogram> {
        let mut recorded = Histogram::recorder();
        recorded.record_n(us, 99).expect("within bounds");
        recorded.record(us * 10).expect("within bounds");
        Histogram::of(&recorded)
    }

    fn second(number: u64, records: u64, p99_us: Option<u64>) -> Interval {
        let at_us = 1_000_000 * (number + 1);
        let (p50_us, max_us) = (p99_us.map(|us| us / 2), p99_us.map(|us| us * 2));
        let bytes = records * 100;
        let p95_us = p99_us.map(|us| us - 500);
        let latencies = Interval { p50_us, p95_us, p99_us, max_us, mean_us: p50_us, ..Interval::default() };
        Interval { at_us, length_us: 500_000, records, bytes, ..latencies }
    }

    fn result() -> PointResult {
        let point = load("queue", None).expect("it is built in").points.remove(5);
        let repetition = Repetition {
            number: 0,
            began_at_us: 0,
            measured_s: 2.0,
            given_up: 0,
            notes: Vec::new(),
            figures: Figures::default(),
            acknowledge_latency: None,
            end_to_end_latency: None,
            produced: vec![second(0, 100, Some(4000)), second(1, 300, Some(2000))],
            consumed: vec![second(0, 60, None), second(1, 200, Some(9000))],
            processes: Vec::new(),
            host: Default::default(),
            agents: Vec::new(),
            broker_machines: Vec::new(),
            unwatched_brokers: Vec::new(),
            samples: Vec::new(),
            profile: None,
            evidence: Default::default(),
        };
        PointResult {
            point,
            target: "embedded".to_owned(),
            driver: Driver::Thalweg,
            client: "thalweg 0.1.0".to_owned(),
            security: None,
            repetitions: vec![repetition.clone(), repetition],
            summary: Summary { acknowledge_latency: latency(1000), ..Summary::default() },
            steps: Vec::new(),
            knee: None,
            verdict: Verdict::default(),
            failure: None,
        }
    }

    #[test]
    fn series_hold_all_repetitions() {
        let document = write(&result());
        assert_eq!(document["publishRate"], json!([200.0, 600.0, 200.0, 600.0]));
        assert_eq!(document["consumeRate"], json!([120.0, 400.0, 120.0, 400.0]));
        assert_eq!(document["backlog"], json!([40, 140, 40, 140]));
        assert_eq!(document["publishLatency99pct"], json!([4.0, 2.0, 4.0, 2.0]));
        assert_eq!(document["publishLatencyMax"], json!([8.0, 4.0, 8.0, 4.0]));
        assert_eq!(document["publishLatency95pct"], json!([3.5, 1.5, 3.5, 1.5]));
        assert_eq!(document["publishLatencyAvg"], json!([2.0, 1.0, 2.0, 1.0]));
        assert_eq!(document["publishLatency75pct"], json!([]), "intervals of an earlier version");
        assert_eq!(document["endToEndLatency99pct"], json!([]), "an interval without latencies");
    }

    #[test]
    fn aggregates_come_from_the_merged_histogram_in_milliseconds() {
        let document = write(&result());
        assert_eq!(document["aggregatedPublishLatency50pct"], json!(1.0));
        let most = document["aggregatedPublishLatencyMax"].as_f64().expect("a number");
        assert!((most - 10.0).abs() < 0.02, "{most}");
        let quantiles = document["aggregatedPublishLatencyQuantiles"].as_object().expect("an object");
        assert_eq!(quantiles["50.0"].as_f64().map(f64::round), Some(1.0));
        assert_eq!(quantiles["100.0"].as_f64().map(f64::round), Some(10.0));
        assert_eq!(document["aggregatedEndToEndLatencyQuantiles"], json!({}));
        assert!(document.get("aggregatedEndToEndLatencyAvg").is_none());
    }

    #[test]
    fn what_was_run_is_named() {
        let document = write(&result());
        assert_eq!(document["workload"], "latency 1,000 B");
        assert_eq!(document["driver"], "embedded, thalweg 0.1.0");
        assert_eq!((&document["messageSize"], &document["consumersPerTopic"]), (&json!(1000), &json!(1)));
    }
}
