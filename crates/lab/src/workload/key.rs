//! The keys of a workload file: the one table that says which there are, what they take and what they mean. The reader
//! goes by it, and the documentation is written from it.

use super::document::{Node, Value};
use super::mistake::Mistake;

/// A key of a workload file.
pub(super) struct Key {
    /// From the top of the file, or of a `[[point]]`.
    pub(super) path: &'static str,
    /// What it takes.
    pub(super) kind: Kind,
    /// What holds where it is not written, in words.
    pub(super) default: &'static str,
    /// The unit; empty where there is none.
    pub(super) unit: &'static str,
    /// What it means.
    pub(super) meaning: &'static str,
}

/// What a key takes.
pub(super) enum Kind {
    /// A whole number within bounds.
    Whole(i64, i64),
    /// A number within bounds.
    Number(f64, f64),
    /// One of several words.
    Word(&'static [&'static str]),
    /// Text that is not empty.
    Text,
    /// A table of properties, under names that are not ours.
    Properties,
}

impl Kind {
    /// What it takes, for people.
    pub(super) fn describe(&self) -> String {
        match self {
            Kind::Whole(min, max) => {
                format!("a whole number from {} to {}", grouped(*min), grouped(*max))
            }
            Kind::Number(min, max) => format!("a number from {min} to {max}"),
            Kind::Word(words) => {
                format!(
                    "one of {}",
                    words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ")
                )
            }
            Kind::Text => "a text in quotes".to_owned(),
            Kind::Properties => "a table of properties".to_owned(),
        }
    }

    fn takes(&self, value: &Value) -> bool {
        match (self, value) {
            (Kind::Whole(min, max), Value::Whole(number)) => (min..=max).contains(&number),
            (Kind::Number(min, max), Value::Whole(number)) => (*min..=*max).contains(&(*number as f64)),
            (Kind::Number(min, max), Value::Number(number)) => (min..=max).contains(&number),
            (Kind::Word(words), Value::Text(text)) => words.contains(&text.as_str()),
            (Kind::Text, Value::Text(text)) => !text.trim().is_empty(),
            (Kind::Properties, value) => value.as_property().is_some(),
            _ => false,
        }
    }
}

impl Key {
    /// What is wrong with a value of this key, under its full path.
    pub(super) fn judge(&self, path: &str, node: &Node) -> Option<Mistake> {
        let remedy = match self.kind {
            Kind::Properties => "a text, a number, true or false would be right".to_owned(),
            _ => format!("{}{} would be right", self.kind.describe(), unit(self.unit)),
        };
        let problem = format!("{} is invalid", node.value.describe());
        (!self.kind.takes(&node.value)).then(|| Mistake {
            position: node.at,
            key: path.to_owned(),
            problem,
            remedy,
        })
    }
}

fn unit(unit: &str) -> String {
    if unit.is_empty() { String::new() } else { format!(" ({unit})") }
}

/// A whole number with commas between its thousands.
pub(super) fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if number < 0 {
        out.push('-');
    }
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The key that a path is of: its own, or the table of properties that it lies in.
pub(super) fn of(path: &str) -> Option<&'static Key> {
    POINT.iter().find(|key| match key.kind {
        Kind::Properties => {
            path.strip_prefix(key.path).is_some_and(|rest| rest.len() > 1 && rest.starts_with('.'))
        }
        _ => key.path == path,
    })
}

/// Whether a path is that of a table which holds keys.
pub(super) fn is_section(path: &str) -> bool {
    POINT.iter().any(|key| {
        matches!(key.kind, Kind::Properties) && key.path == path
            || key.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'))
    })
}

/// The most of clients, topics and their like: more is no test of a broker but of the machine that tests it.
const CLIENTS_MAX: i64 = 10_000;
const PARTITIONS_MAX: i64 = 100_000;
/// What a broker takes in one request: `socket.request.max.bytes`.
const SIZE_MAX: i64 = 100 << 20;
const RECORDS_MAX: i64 = 1_000_000_000_000;
const RATE_MAX: f64 = 1e9;
/// A day.
const SECONDS_MAX: f64 = 86_400.0;

macro_rules! keys {
    ($($path:literal $kind:expr, $default:literal, $unit:literal, $meaning:literal;)*) => {
        &[$(Key { path: $path, kind: $kind, default: $default, unit: $unit, meaning: $meaning }),*]
    };
}

/// Keys at the top of the file only.
pub(super) const FILE: &[Key] = keys! {
    "title" Kind::Text, "none, it must be there", "", "One line that says what the workload is.";
    "description" Kind::Text, "none, it must be there", "", "What it is for, where it comes from, and what it does not prove.";
    "drivers" Kind::Text, "\"thalweg\"", "", "Who measures it where no `--driver` is given: `thalweg`, `librdkafka`, `java` or `stream`, with commas between; they take turns.";
    "publication.system" Kind::Text, "none", "", "For all published figures: what was measured.";
    "publication.hardware" Kind::Text, "none", "", "For all published figures: on what.";
    "publication.source" Kind::Text, "none", "", "For all published figures: title, publisher, date.";
};

/// Keys of a point: at the top of the file for all points, or in one `[[point]]`.
pub(super) const POINT: &[Key] = keys! {
    "label" Kind::Text, "the keys that have lists", "", "What tells the point from the others. `{records.size_bytes}` and the like stand for the point's value.";
    "cluster.brokers" Kind::Whole(0, 1000), "1", "brokers", "The brokers of the cluster; 0 for none: streams in memory, of the driver `stream`. A target that cannot give so many says so, and the point is not measured there.";
    "cluster.properties" Kind::Properties, "empty", "", "Broker properties that differ from the defaults.";
    "topics.count" Kind::Whole(1, PARTITIONS_MAX), "1", "topics", "The topics. Producers go round them.";
    "topics.partitions" Kind::Whole(1, PARTITIONS_MAX), "1", "partitions", "The partitions of each topic; at most 100,000 of all topics.";
    "topics.replication_factor" Kind::Whole(1, 1000), "1", "replicas", "The replicas of each partition; at most as many as there are brokers.";
    "topics.properties" Kind::Properties, "empty", "", "Topic properties that differ from the defaults.";
    "records.size_bytes" Kind::Whole(1, SIZE_MAX), "100", "bytes", "The value of each record. To be verified, at least 24.";
    "records.payload" Kind::Word(&["random", "zeros", "shared", "compressible", "json", "file"]), "\"random\"", "", "What the values hold, from a pool made before the run: random bytes, zeros, the same zeros for all (which a stream in memory hands on by reference), text that shrinks to about a quarter, objects as services send them, or the lines of `records.file`.";
    "records.file" Kind::Text, "none", "", "The file of the payload `\"file\"`; a relative path begins at the workload's folder.";
    "records.keys_distinct" Kind::Whole(0, 1_000_000_000), "0", "keys", "How many different keys the records have, drawn evenly; 0 for records without a key.";
    "producers.count" Kind::Whole(0, CLIENTS_MAX), "1", "clients", "The producers, each with connections of its own.";
    "producers.processes" Kind::Whole(1, 1000), "1", "processes", "The processes that they are spread over.";
    "producers.threads" Kind::Whole(1, 1000), "1", "threads", "The threads of each of these processes.";
    "producers.properties" Kind::Properties, "empty", "", "Producer properties that differ from the client's defaults.";
    "consumers.count" Kind::Whole(0, CLIENTS_MAX), "0", "clients", "The consumers, all in one group, so that each record is consumed once.";
    "consumers.processes" Kind::Whole(1, 1000), "1", "processes", "The processes that they are spread over.";
    "consumers.threads" Kind::Whole(1, 1000), "1", "threads", "The threads of each of these processes.";
    "consumers.properties" Kind::Properties, "empty", "", "Consumer properties that differ from the client's defaults.";
    "measure" Kind::Word(&["produce", "consume", "drain"]), "\"produce\"", "", "`produce`: producing; consumers, if any, read at the same time. `consume`: consuming `extent.records` that were produced before. `drain`: consuming a backlog of `extent.records` while producing goes on.";
    "load.kind" Kind::Word(&["maximum", "rate", "add-producers", "raise-rate"]), "\"maximum\"", "", "`maximum`: as many records as go. `rate`: so many a second, each at its intended time. `add-producers`: producers are added, one by one, until the rate stops rising. `raise-rate`: the rate is raised until the cluster falls behind, then the knee is bisected.";
    "load.records_per_s" Kind::Number(0.001, RATE_MAX), "none", "records per second", "Of `rate`: all producers together.";
    "load.producers_max" Kind::Whole(1, CLIENTS_MAX), "none", "clients", "Of `add-producers`: the most to try.";
    "load.gain_min" Kind::Number(0.0, 1.0), "0.03", "share", "Of `add-producers`: the least gain that counts.";
    "load.first_records_per_s" Kind::Number(0.001, RATE_MAX), "10000", "records per second", "Of `raise-rate`: the first rate.";
    "load.factor" Kind::Number(1.01, 100.0), "1.5", "factor", "Of `raise-rate`: each rate to the one before it.";
    "load.precision" Kind::Number(0.001, 0.5), "0.05", "share", "Of `raise-rate`: how close the knee is enclosed.";
    "extent.warm_up_s" Kind::Number(0.0, SECONDS_MAX), "1", "seconds", "Before the measurement begins.";
    "extent.seconds" Kind::Number(0.1, SECONDS_MAX), "5", "seconds", "How long a measurement is. Either this or `extent.records`.";
    "extent.records" Kind::Whole(1, RECORDS_MAX), "none", "records", "How long a measurement is, all producers together; of `consume` and `drain` the records that were produced before.";
    "repetitions" Kind::Whole(1, 100), "3", "times", "How often the point is measured.";
    "verify" Kind::Word(&["off", "bounded", "whole"]), "\"bounded\"", "", "How far the records are read back after a measurement, and checked: for about as long as the measurement took, to the last record, or not at all. To be checked, each record carries its producer, sequence and intended time.";
};

#[cfg(test)]
mod tests {
    use super::super::document;
    use super::super::layer::Layer;
    use super::super::mistake::Position;
    use super::*;

    #[test]
    fn paths_find_their_keys() {
        assert_eq!(of("topics.partitions").map(|key| key.path), Some("topics.partitions"));
        assert_eq!(of("producers.properties.linger.ms").map(|key| key.path), Some("producers.properties"));
        assert!(
            of("producers.properties").is_none()
                && of("topics").is_none()
                && of("producers.propertiesx").is_none()
        );
        assert!(is_section("topics") && is_section("producers.properties") && !is_section("top"));
        assert!(!is_section("verify"));
    }

    #[test]
    fn every_key_of_the_table_is_read() {
        for key in POINT {
            let (path, value) = match key.kind {
                Kind::Whole(min, _) => (key.path.to_owned(), min.to_string()),
                Kind::Number(_, max) => (key.path.to_owned(), max.to_string()),
                Kind::Word(words) => (key.path.to_owned(), format!("{:?}", words[0])),
                Kind::Text => (key.path.to_owned(), "\"a\"".to_owned()),
                Kind::Properties => (format!("{}.a.b", key.path), "5".to_owned()),
            };
            let root = document::toml::parse(&format!("{path} = {value}\n")).expect("it is TOML");
            let Value::Table(entries) = root.value else { panic!("no table") };
            let mut mistakes = Vec::new();
            let layer = Layer::read(Position::START, &entries, &mut mistakes);
            assert!(mistakes.is_empty() && layer.settings.contains_key(&path), "{path}: {mistakes:?}");
        }
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(
            [0, 999, 1000, 1_234_567, -1234].map(grouped),
            ["0", "999", "1,000", "1,234,567", "-1,234"]
        );
    }
}
