//! Rates, latency and backpressure of each stage between two samples, from the JSON of a host or a run.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use thalweg_lab::quantity;
use thalweg_stream::runtime::Latency;

use crate::table::row;

/// The states of streams that have ended, but still have figures.
const OVER: [&str; 2] = ["complete", "failed"];

/// The key of a stage: stream, part, index. Sorts by stream name and stage order.
type StageKey = (String, usize, usize);

/// A sample of all stages.
#[derive(Default)]
pub(crate) struct Sample {
    stages: BTreeMap<StageKey, Counts>,
    /// The state of each stream.
    states: BTreeMap<String, String>,
}

/// The counts of a stage, summed over its instances.
#[derive(Clone, Default)]
struct Counts {
    part: String,
    label: String,
    instances: u64,
    elapsed_s: f64,
    messages_out: f64,
    bytes_out: f64,
    busy_s: f64,
    waited_s: f64,
    latency: Latency,
}

/// The activity of a stage between two samples.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// The name of the stream.
    pub stream: String,
    /// The state of the stream.
    pub state: String,
    /// The part of the stream: the stream's name, unless topics divide it.
    pub part: String,
    /// The label of the stage.
    pub stage: String,
    /// Number of instances.
    pub instances: u64,
    /// Messages passed on per second.
    pub messages_per_s: f64,
    /// Bytes passed on per second.
    pub bytes_per_s: f64,
    /// Messages passed on since the start.
    pub messages: u64,
    /// Bytes passed on since the start.
    pub bytes: u64,
    /// Median and 99th percentile of message ages, in microseconds.
    pub latency_us: Option<(u64, u64)>,
    /// The share of time spent working, per instance.
    pub busy: f64,
    /// The share of time that the stream waited for the stage.
    pub waited: f64,
}

impl Sample {
    /// A sample from an answer of `/streams?figures=true`.
    pub fn of(answer: &Value) -> Sample {
        let mut sample = Sample::default();
        for stream in answer["streams"].as_array().into_iter().flatten() {
            let name = stream["name"].as_str().unwrap_or_default();
            let state = stream["state"].as_str().unwrap_or_default();
            sample.states.insert(name.to_owned(), state.to_owned());
            let elapsed_s = stream["elapsed_s"].as_f64().unwrap_or(0.0);
            let mut parts: Vec<&str> = Vec::new();
            for part in stream["parts"].as_array().into_iter().flatten() {
                let part_name = part["name"].as_str().unwrap_or_default();
                // Instances of a part are consecutive.
                if part["instance"].as_u64().unwrap_or(0) == 0 {
                    parts.push(part_name);
                }
                for (place, stage) in part["stages"].as_array().into_iter().flatten().enumerate() {
                    let place = (name.to_owned(), parts.len(), place);
                    sample.stages.entry(place).or_default().add(part_name, stage, elapsed_s);
                }
            }
        }
        sample
    }

    /// True if there are no stages.
    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// The activity of each stage since an earlier sample, or since the start for a restarted stream.
    pub fn since(&self, before: &Sample) -> Vec<Row> {
        let nothing = Counts::default();
        let rows = self.stages.iter().map(|(place, now)| {
            let is_over = self.states.get(&place.0).is_some_and(|state| OVER.contains(&state.as_str()));
            let before = match is_over {
                // A stream that has ended does nothing.
                true => now,
                false => {
                    let before = before.stages.get(place);
                    before.filter(|before| before.elapsed_s < now.elapsed_s).unwrap_or(&nothing)
                }
            };
            let seconds = (now.elapsed_s - before.elapsed_s).max(1e-6);
            let rate = |count: fn(&Counts) -> f64| (count(now) - count(before)).max(0.0) / seconds;
            let instances = now.instances.max(1) as f64;
            let latency = now.latency.since(&before.latency);
            let (name, _, _) = place;
            Row {
                stream: name.clone(),
                state: self.states.get(name).cloned().unwrap_or_default(),
                part: now.part.clone(),
                stage: now.label.clone(),
                instances: now.instances,
                messages_per_s: rate(|counts| counts.messages_out),
                bytes_per_s: rate(|counts| counts.bytes_out),
                messages: now.messages_out as u64,
                bytes: now.bytes_out as u64,
                latency_us: latency.quantile_us(0.5).zip(latency.quantile_us(0.99)),
                busy: (rate(|counts| counts.busy_s) / instances).min(1.0),
                waited: (rate(|counts| counts.waited_s) / instances).min(1.0),
            }
        });
        rows.collect()
    }

    /// The number of streams without local stages, by state.
    pub fn others(&self) -> BTreeMap<&str, usize> {
        let mut others = BTreeMap::new();
        for (name, state) in &self.states {
            if self
                .stages
                .range((name.clone(), 0, 0)..)
                .next()
                .is_none_or(|((stream, _, _), _)| stream != name)
            {
                *others.entry(state.as_str()).or_default() += 1;
            }
        }
        others
    }
}

impl Counts {
    fn add(&mut self, part: &str, stage: &Value, elapsed_s: f64) {
        let number = |name: &str| stage[name].as_f64().unwrap_or(0.0);
        self.part = part.to_owned();
        self.label = stage["label"].as_str().unwrap_or_default().to_owned();
        self.instances += 1;
        self.elapsed_s = elapsed_s;
        self.messages_out += number("messages_out");
        self.bytes_out += number("bytes_out");
        self.busy_s += number("busy_s");
        self.waited_s += number("waited_s");
        let steps = stage["latency"]["messages_by_us"].as_array().into_iter().flatten();
        let steps = steps.filter_map(|step| step[0].as_u64().zip(step[1].as_u64()));
        self.latency = std::mem::take(&mut self.latency).plus(&Latency::of(steps));
    }
}

impl Row {
    /// The row as a JSON document.
    pub fn to_json(&self) -> Value {
        json!({
            "stream": self.stream,
            "state": self.state,
            "part": self.part,
            "stage": self.stage,
            "instances": self.instances,
            "messages_per_s": self.messages_per_s,
            "bytes_per_s": self.bytes_per_s,
            "messages": self.messages,
            "bytes": self.bytes,
            "latency_p50_us": self.latency_us.map(|(half, _)| half),
            "latency_p99_us": self.latency_us.map(|(_, most)| most),
            "busy_share": self.busy,
            "waited_share": self.waited,
        })
    }
}

/// The basis of the figures in a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Basis {
    /// Figures per second.
    Rates,
    /// Since the start.
    Totals,
}

/// Table rows with a header.
pub(crate) fn cells(rows: &[Row], basis: Basis) -> Vec<Vec<String>> {
    let (messages, bytes) = match basis {
        Basis::Rates => ("MESSAGES/S", "BYTES/S"),
        Basis::Totals => ("MESSAGES", "BYTES"),
    };
    let mut cells = vec![row([
        "STREAM",
        "STAGE",
        "COUNT",
        messages,
        bytes,
        "LATENCY 50%",
        "99%",
        "BUSY",
        "WAITED FOR",
        "STATE",
    ])];
    let mut last = None;
    for of in rows {
        // Print the name only at the first stage.
        let name = if last == Some(&of.part) { "" } else { of.part.as_str() };
        let state = if last == Some(&of.part) { "" } else { of.state.as_str() };
        last = Some(&of.part);
        let latency = |us: Option<u64>| us.map_or_else(|| "-".to_owned(), |us| quantity::time_us(us as f64));
        let share = |share: f64| format!("{:.0} %", share * 100.0);
        let (messages, bytes) = match basis {
            Basis::Rates => (quantity::short(of.messages_per_s), quantity::short(of.bytes_per_s)),
            Basis::Totals => (of.messages.to_string(), quantity::short(of.bytes as f64)),
        };
        cells.push(row([
            name,
            &of.stage,
            &of.instances.to_string(),
            &messages,
            &bytes,
            &latency(of.latency_us.map(|(half, _)| half)),
            &latency(of.latency_us.map(|(_, most)| most)),
            &share(of.busy),
            &share(of.waited),
            state,
        ]));
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(elapsed_s: f64, messages: u64) -> Value {
        let stage = |label: &str, waited_s: f64| {
            json!({
                "label": label,
                "messages_in": messages,
                "messages_out": messages,
                "bytes_out": messages * 10,
                "busy_s": elapsed_s / 4.0,
                "waited_s": waited_s,
                "latency": { "messages_by_us": [[37, messages], [1999, messages / 100]] },
            })
        };
        let part = |name: &str, instance: u64| json!({ "name": name, "instance": instance, "stages": [stage("time", 0.0), stage("log", elapsed_s / 2.0)] });
        json!({ "streams": [
            { "name": "a", "state": "deployed", "elapsed_s": elapsed_s, "parts": [part("a.x", 0), part("a.x", 1), part("a.y", 0)] },
            { "name": "b", "state": "undeployed" },
        ]})
    }

    #[test]
    fn instances_are_summed_and_rates_cover_the_interval() {
        let (before, now) = (Sample::of(&answer(10.0, 100)), Sample::of(&answer(12.0, 300)));
        let rows = now.since(&before);
        let listed: Vec<_> =
            rows.iter().map(|row| (row.part.as_str(), row.stage.as_str(), row.instances)).collect();
        assert_eq!(listed, [("a.x", "time", 2), ("a.x", "log", 2), ("a.y", "time", 1), ("a.y", "log", 1)]);
        assert_eq!(
            (rows[0].messages_per_s, rows[0].bytes_per_s, rows[3].messages_per_s),
            (200.0, 2000.0, 100.0)
        );
        assert_eq!((rows[0].busy, rows[0].waited, rows[1].waited), (0.25, 0.0, 0.5));
        assert_eq!(rows[0].latency_us, Some((37, 37)));
        assert_eq!(now.others(), BTreeMap::from([("undeployed", 1)]));
        assert_eq!(cells(&rows, Basis::Rates).len(), 5);
        assert_eq!((rows[0].messages, &*cells(&rows, Basis::Totals)[1][3]), (600, "600"));
    }

    #[test]
    fn a_stream_that_has_ended_is_not_busy() {
        for state in OVER {
            let mut ended = answer(10.0, 100);
            ended["streams"][0]["state"] = state.into();
            let ended = Sample::of(&ended);
            for row in ended.since(&Sample::default()).iter().chain(&ended.since(&ended)) {
                assert_eq!((row.messages_per_s, row.busy, row.waited), (0.0, 0.0, 0.0));
                assert_eq!(row.messages % 100, 0);
            }
        }
    }

    #[test]
    fn a_restarted_stream_counts_from_its_start() {
        let (before, now) = (Sample::of(&answer(10.0, 100)), Sample::of(&answer(2.0, 20)));
        assert_eq!(now.since(&before)[3].messages_per_s, 10.0);
        let same = now.since(&now);
        assert_eq!(same[3].messages_per_s, 10.0, "no time has passed: figures since the start");
    }
}
