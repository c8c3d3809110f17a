//! The files of the OpenMessaging Benchmark (github.com/openmessaging/benchmark) as a [`Workload`]: a
//! workload's YAML, and the YAML of its Kafka driver.
//!
//! The meaning is preserved where possible, and keys that cannot be expressed are refused by name.
//! Differences:
//! - Producers write to all topics in turn, and each group of consumers reads all of them; in the benchmark,
//!   each client belongs to one topic. The number of clients is the same.
//! - `producerRate: 0` means the maximum sustainable rate: a search from 10,000 records per second, as in the
//!   benchmark. The rate is sent open loop, at intended times.
//! - Partly random values, and values from `payloadFile`, are fully random. Without compression this makes no
//!   difference to a broker; with compression it does, and is refused.
//! - `bootstrap.servers` belongs to the target.
//! - `consumerBacklogSizeGB` is one point that drains this many GiB; the benchmark's time after the drain is
//!   not measured.

mod driver;

use std::collections::BTreeMap;
use std::path::Path;

use super::document::{self, Entry, Node, Value};
use super::layer::unknown;
use super::mistake::{InvalidFile, Mistake, Position, WorkloadError};
use super::{
    Clients, ClusterSpec, Extent, Keys, Load, Measure, Payload, Point, RecordSpec, Topics, Unit,
    Verification, Workload, read,
};
use driver::Driver;

/// Number of keys of the benchmark's distributors.
const KEYS_DISTINCT: u64 = 10_000;
/// The first rate of the benchmark's search for the maximum.
const FIRST_RATE: f64 = 10_000.0;
const GIB: i64 = 1 << 30;

/// Reads a workload's YAML and its Kafka driver's; without the latter, topics have one replica and clients
/// their defaults.
pub fn load(workload: &Path, driver: Option<&Path>) -> Result<Workload, WorkloadError> {
    let text = read(workload)?;
    let driver = match driver {
        Some(path) => Driver::parse(&path.to_string_lossy(), &read(path)?)?,
        None => Driver::default(),
    };
    let stem = workload.file_stem().unwrap_or_default().to_string_lossy();
    Ok(parse(&stem, &workload.to_string_lossy(), &text, &driver)?)
}

/// Parses a workload's YAML.
fn parse(stem: &str, file: &str, text: &str, driver: &Driver) -> Result<Workload, InvalidFile> {
    let invalid = |mistakes| InvalidFile::of(file, text, mistakes);
    let root = document::yaml::parse(text).map_err(|mistake| invalid(vec![mistake]))?;
    let mut fields = Fields::of(root, &KEYS);
    let name = fields.text("name").unwrap_or_else(|| stem.to_owned());
    let point = Point { label: name.clone(), ..point(&mut fields, driver) };
    if !fields.mistakes.is_empty() {
        return Err(invalid(fields.mistakes));
    }
    let description = [
        format!("Read from {file}, a workload of the OpenMessaging Benchmark."),
        format!("Driver: {}.", driver.name),
        fields.notes.join(" "),
    ];
    Ok(Workload {
        name: stem.to_owned(),
        title: name,
        description: description.join(" ").trim().to_owned(),
        drivers: Vec::new(),
        targets: Vec::new(),
        has_steps: false,
        why: BTreeMap::new(),
        scale: 1.0,
        points: vec![point],
        published: Vec::new(),
    })
}

const KEYS: [&str; 17] = [
    "name",
    "topics",
    "partitionsPerTopic",
    "keyDistributor",
    "messageSize",
    "useRandomizedPayloads",
    "randomBytesRatio",
    "randomizedPayloadPoolSize",
    "payloadFile",
    "subscriptionsPerTopic",
    "producersPerTopic",
    "consumerPerSubscription",
    "producerRate",
    "consumerBacklogSizeGB",
    "backlogDrainRatio",
    "testDurationMinutes",
    "warmupDurationMinutes",
];

fn point(fields: &mut Fields, driver: &Driver) -> Point {
    let topics = fields.whole("topics", None, 1, 100_000);
    let partitions = fields.whole("partitionsPerTopic", None, 1, 100_000);
    let size = fields.whole("messageSize", None, 1, 100 << 20);
    let subscriptions = fields.whole("subscriptionsPerTopic", Some(0), 0, 10_000);
    let producers = fields.whole("producersPerTopic", Some(0), 0, 10_000) * topics;
    let consumers = fields.whole("consumerPerSubscription", Some(0), 0, 10_000) * topics * subscriptions;
    for (key, count) in [("producersPerTopic", producers), ("consumerPerSubscription", consumers)] {
        if count > 10_000 {
            fields.refuse(key, format!("{count} clients in total"), "use at most 10,000");
        }
    }
    if topics * partitions * i64::from(driver.replication_factor) > 100_000 {
        let problem = format!("{} partitions, replicas included", topics * partitions);
        fields.refuse("partitionsPerTopic", problem, "use at most 100,000 in total");
    }
    let rate = fields.number("producerRate", Some(0.0), 0.0, 1e9);
    let minutes = fields.number("testDurationMinutes", None, 0.0, 1440.0);
    let warm_up = fields.number("warmupDurationMinutes", Some(1.0), 0.0, 1440.0);
    let backlog = fields.whole("consumerBacklogSizeGB", Some(0), 0, 1_000_000);
    let (measure, load, unit) = extent(fields, rate, minutes, backlog, size);
    if producers == 0 {
        fields.refuse("producersPerTopic", "no producers".to_owned(), "use at least 1");
    }
    if measure == Measure::Drain && consumers == 0 {
        fields.refuse(
            "consumerPerSubscription",
            "no consumers to drain the backlog".to_owned(),
            "use at least 1",
        );
    }
    let clients = |count: i64, properties: &BTreeMap<String, String>| Clients {
        count: u32::try_from(count).unwrap_or(u32::MAX),
        processes: 1,
        threads: 1,
        properties: properties.clone(),
        pulsar: BTreeMap::new(),
    };
    Point {
        label: String::new(),
        cluster: ClusterSpec::plaintext(u32::from(driver.replication_factor), BTreeMap::new()),
        topics: Topics {
            count: u32::try_from(topics).unwrap_or(u32::MAX),
            partitions: u32::try_from(partitions).unwrap_or(u32::MAX),
            replication_factor: driver.replication_factor,
            created_per_s: 0,
            properties: driver.topic.clone(),
        },
        records: RecordSpec {
            size_bytes: u32::try_from(size).unwrap_or(u32::MAX),
            payload: payload(fields, driver),
            keys: keys(fields),
        },
        producers: clients(producers, &driver.producer),
        consumers: clients(consumers, &driver.consumer),
        consumer_groups: if consumers == 0 { 1 } else { u32::try_from(subscriptions).unwrap_or(u32::MAX) },
        measure,
        load,
        extent: Extent { warm_up_s: if measure == Measure::Drain { 0.0 } else { warm_up * 60.0 }, unit },
        repetitions: 1,
        verify: Verification::default(),
    }
}

/// Measure, load and length.
fn extent(fields: &mut Fields, rate: f64, minutes: f64, backlog: i64, size: i64) -> (Measure, Load, Unit) {
    let load = match rate {
        0.0 => Load::RaiseRate { first_records_per_s: FIRST_RATE, factor: 1.5, precision: 0.05 },
        records_per_s => Load::Rate { records_per_s },
    };
    if backlog == 0 {
        if minutes == 0.0 {
            fields.refuse("testDurationMinutes", "0 minutes".to_owned(), "use more than 0");
        }
        return (Measure::Produce, load, Unit::Seconds(minutes * 60.0));
    }
    if rate == 0.0 {
        let problem = "0 searches for the highest rate, which builds no backlog".to_owned();
        fields.refuse("producerRate", problem, "use a rate, or consumerBacklogSizeGB: 0");
    }
    let ratio = fields.number("backlogDrainRatio", Some(1.0), 0.0, 1.0);
    if ratio != 1.0 {
        let problem = format!("{ratio}: the lab always drains the whole backlog");
        fields.refuse("backlogDrainRatio", problem, "use 1.0");
    }
    let records = u64::try_from(backlog * GIB / size.max(1)).unwrap_or(1).max(1);
    (Measure::Drain, load, Unit::Records(records))
}

fn payload(fields: &mut Fields, driver: &Driver) -> Payload {
    let compression = driver.producer.get("compression.type").filter(|codec| *codec != "none");
    let pool = fields.whole("randomizedPayloadPoolSize", Some(0), 0, i64::MAX);
    let ratio = fields.number("randomBytesRatio", Some(0.0), 0.0, 1.0);
    let file = fields.text("payloadFile");
    if fields.flag("useRandomizedPayloads") {
        if pool == 0 {
            let problem = "the pool is empty, with useRandomizedPayloads".to_owned();
            fields.refuse("randomizedPayloadPoolSize", problem, "use at least 1");
        }
        match (ratio, compression) {
            (1.0, _) => return Payload::Random,
            (0.0, _) => return Payload::Zeros,
            (ratio, None) => {
                fields.notes.push(format!(
                    "Values are fully random instead of randomBytesRatio = {ratio}, which makes no difference without compression."
                ));
            }
            (ratio, Some(codec)) => {
                let problem = format!("{ratio} cannot be expressed with compression.type={codec}");
                fields.refuse("randomBytesRatio", problem, "use 0.0 or 1.0, or a driver without compression");
            }
        }
        return Payload::Random;
    }
    match (file, compression) {
        (None, _) => {
            let problem = "is missing, without useRandomizedPayloads".to_owned();
            fields.refuse("payloadFile", problem, "use the path of a file, or useRandomizedPayloads: true");
        }
        (Some(file), Some(codec)) => {
            let problem = format!("{file:?} cannot be expressed with compression.type={codec}");
            let remedy = "use useRandomizedPayloads: true, or a driver without compression";
            fields.refuse("payloadFile", problem, remedy);
        }
        (Some(file), None) => fields.notes.push(format!(
            "Values are random bytes of messageSize instead of {file}, which makes no difference without compression."
        )),
    }
    Payload::Random
}

fn keys(fields: &mut Fields) -> Option<Keys> {
    match fields.text("keyDistributor").as_deref() {
        None | Some("NO_KEY") => None,
        // Both round robin and by the nanosecond are uniform over the keys.
        Some("KEY_ROUND_ROBIN" | "RANDOM_NANO") => Some(Keys { distinct: KEYS_DISTINCT }),
        Some(other) => {
            let problem = format!("{other:?} is invalid");
            fields.refuse("keyDistributor", problem, "use one of NO_KEY, KEY_ROUND_ROBIN, RANDOM_NANO");
            None
        }
    }
}

/// The keys and values of a YAML file.
struct Fields {
    entries: Vec<Entry>,
    mistakes: Vec<Mistake>,
    /// Differences, as text.
    notes: Vec<String>,
}

impl Fields {
    /// The fields of a table; unknown keys are mistakes.
    fn of(root: Node, known: &[&str]) -> Fields {
        let Value::Table(entries) = root.value else {
            return Fields { entries: Vec::new(), mistakes: Vec::new(), notes: Vec::new() };
        };
        let names = || known.iter().map(|name| (*name).to_owned()).collect();
        let strange = entries.iter().filter(|entry| !known.contains(&entry.name.as_str()));
        let mistakes = strange.map(|entry| unknown(entry.at, &entry.name, names())).collect();
        Fields { entries, mistakes, notes: Vec::new() }
    }

    /// The value of a key; `None` if missing or null.
    fn get(&self, key: &str) -> Option<&Node> {
        let entry = self.entries.iter().find(|entry| entry.name == key)?;
        (!matches!(&entry.node.value, Value::Other(text) if text == "null")).then_some(&entry.node)
    }

    /// Reports a key, with a remedy.
    fn refuse(&mut self, key: &str, problem: String, remedy: &str) {
        let position = self.get(key).map_or(Position::START, |node| node.at);
        let remedy = remedy.to_owned();
        self.mistakes.push(Mistake { position, key: key.to_owned(), problem, remedy });
    }

    /// A number within bounds; a required key has no default.
    fn number(&mut self, key: &str, default: Option<f64>, min: f64, max: f64) -> f64 {
        let number = match self.get(key).map(|node| &node.value) {
            None => default,
            Some(Value::Whole(number)) => Some(*number as f64),
            Some(Value::Number(number)) => Some(*number),
            Some(_) => Some(f64::NAN),
        };
        match number {
            Some(number) if (min..=max).contains(&number) => number,
            Some(_) => {
                let problem = self.problem(key);
                self.refuse(key, problem, &format!("use a number from {min} to {max}"));
                min
            }
            None => {
                self.refuse(key, "is missing".to_owned(), &format!("add {key}: NUMBER"));
                min
            }
        }
    }

    /// A whole number within bounds.
    fn whole(&mut self, key: &str, default: Option<i64>, min: i64, max: i64) -> i64 {
        let number = match self.get(key).map(|node| &node.value) {
            None => default.map(Ok),
            Some(Value::Whole(number)) if (min..=max).contains(number) => Some(Ok(*number)),
            Some(_) => Some(Err(())),
        };
        match number {
            Some(Ok(number)) => number,
            Some(Err(())) => {
                let problem = self.problem(key);
                let remedy = match max {
                    i64::MAX => format!("use a whole number of at least {min}"),
                    _ => format!("use a whole number from {min} to {max}"),
                };
                self.refuse(key, problem, &remedy);
                min
            }
            None => {
                self.refuse(key, "is missing".to_owned(), &format!("add {key}: NUMBER"));
                min
            }
        }
    }

    fn text(&mut self, key: &str) -> Option<String> {
        let node = self.get(key)?;
        match node.value.as_property() {
            Some(text) => Some(text),
            None => {
                let problem = self.problem(key);
                self.refuse(key, problem, "use a string");
                None
            }
        }
    }

    fn flag(&mut self, key: &str) -> bool {
        match self.get(key).map(|node| &node.value) {
            None => false,
            Some(Value::Flag(flag)) => *flag,
            Some(_) => {
                let problem = self.problem(key);
                self.refuse(key, problem, "use true or false");
                false
            }
        }
    }

    fn problem(&self, key: &str) -> String {
        let what = self.get(key).map_or_else(String::new, |node| node.value.describe());
        format!("{what} is invalid")
    }
}

#[cfg(test)]
mod tests;
