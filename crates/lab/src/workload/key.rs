//! The table of keys in a workload file: type, default, unit and meaning. The parser and the documentation
//! use it.

use super::document::{Node, Value};
use super::mistake::Mistake;

/// A key of a workload file.
pub(super) struct Key {
    /// The path from the top of the file, or of a `[[point]]`.
    pub(super) path: &'static str,
    /// The type of the value.
    pub(super) kind: Kind,
    /// The default, as text.
    pub(super) default: &'static str,
    /// The unit; empty if there is none.
    pub(super) unit: &'static str,
    pub(super) meaning: &'static str,
}

/// The type of a key.
pub(super) enum Kind {
    /// A whole number in a range, inclusive.
    Whole(i64, i64),
    /// A number in a range, inclusive.
    Number(f64, f64),
    /// One of several words.
    Word(&'static [&'static str]),
    /// Text that is not empty.
    Text,
    /// A table of properties with arbitrary names.
    Properties,
}

impl Kind {
    /// The accepted values, for people.
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
            Kind::Text => "a quoted string".to_owned(),
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
    /// The mistake in a value of this key, if any, with its full path.
    pub(super) fn judge(&self, path: &str, node: &Node) -> Option<Mistake> {
        let remedy = match self.kind {
            Kind::Properties => "use a string, a number, true or false".to_owned(),
            _ => format!("use {}{}", self.kind.describe(), unit(self.unit)),
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

/// A whole number with thousands separators.
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

/// The key of a path: itself, or the table of properties that contains it.
pub(super) fn of(path: &str) -> Option<&'static Key> {
    POINT.iter().find(|key| match key.kind {
        Kind::Properties => {
            path.strip_prefix(key.path).is_some_and(|rest| rest.len() > 1 && rest.starts_with('.'))
        }
        _ => key.path == path,
    })
}

/// The property in a path of a table of properties: `linger.ms` of `producers.properties.linger.ms`.
pub(super) fn property(path: &str) -> Option<&str> {
    let key = of(path).filter(|key| matches!(key.kind, Kind::Properties))?;
    path.strip_prefix(key.path)?.strip_prefix('.')
}

/// True if a path is a table that contains keys.
pub(super) fn is_section(path: &str) -> bool {
    POINT.iter().any(|key| {
        matches!(key.kind, Kind::Properties) && key.path == path
            || key.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'))
    })
}

/// Maximum number of clients, topics and the like: more would test the machine, not the broker.
const CLIENTS_MAX: i64 = 10_000;
const PARTITIONS_MAX: i64 = 100_000;
/// The size limit of a request: `socket.request.max.bytes`.
const SIZE_MAX: i64 = 100 << 20;
const RECORDS_MAX: i64 = 1_000_000_000_000;
const RATE_MAX: f64 = 1e9;
/// Maximum duration: a day, in seconds.
const SECONDS_MAX: f64 = 86_400.0;

macro_rules! keys {
    ($($path:literal $kind:expr, $default:literal, $unit:literal, $meaning:literal;)*) => {
        &[$(Key { path: $path, kind: $kind, default: $default, unit: $unit, meaning: $meaning }),*]
    };
}

/// Keys at the top of the file only.
pub(super) const FILE: &[Key] = keys! {
    "title" Kind::Text, "none, required", "", "A one-line title.";
    "description" Kind::Text, "none, required", "", "Purpose, origin and limits of the workload.";
    "drivers" Kind::Text, "\"thalweg\"", "", "The drivers if no `--driver` is given: `thalweg`, `librdkafka`, `java` or `stream`, separated by commas; they take turns.";
    "targets" Kind::Text, "\"embedded\"", "", "The targets if no `--target` or `--bootstrap` is given: `embedded`, `apache-kafka` or `pulsar`, separated by commas; they take turns. What is not installed is left out, with a message.";
    "points" Kind::Word(&["apart", "steps"]), "\"apart\"", "", "How the points stand to each other: `steps` if each builds on the one above, as in a tuning study. The report then has a chart of the gain of each step.";
    "why" Kind::Properties, "empty", "", "The reasons for settings, which reports show beside them: the name of a property, such as `num.io.threads`, or a key of this file, such as `topics.partitions`, and a sentence.";
    "publication.system" Kind::Text, "none", "", "The system of all published figures.";
    "publication.hardware" Kind::Text, "none", "", "The hardware of all published figures.";
    "publication.price" Kind::Text, "none", "", "The price of all published systems, with currency, unit and date; or that the source has none.";
    "publication.source" Kind::Text, "none", "", "The source of all published figures: title, publisher, date.";
};

/// Keys of a point: at the top of the file for all points, or in one `[[point]]`.
pub(super) const POINT: &[Key] = keys! {
    "label" Kind::Text, "the keys that have lists", "", "The name of the point. Placeholders such as `{records.size_bytes}` are replaced by the point's values.";
    "cluster.brokers" Kind::Whole(0, 1000), "1", "brokers", "The number of brokers; 0 for none, for streams in memory with the driver `stream`. A point is not measured on targets with too few brokers.";
    "cluster.security_protocol" Kind::Word(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]), "\"PLAINTEXT\"", "", "How clients talk to brokers that the lab starts, and these to each other; certificates and passwords are made for the run. A running cluster (`--bootstrap`) is as it is: its client settings say how.";
    "cluster.sasl_mechanism" Kind::Word(&["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]), "\"SCRAM-SHA-512\"", "", "For `SASL_PLAINTEXT` and `SASL_SSL`: how clients and brokers log in.";
    "cluster.node_cpus" Kind::Number(0.01, 1024.0), "none", "processors", "The processor time that each node may use, such as 0.5; none for all of the machine. Control groups limit nodes that the lab starts; a machine that cannot refuses the point. A running cluster (`--bootstrap`) is as it is.";
    "cluster.node_memory_mb" Kind::Whole(256, 16_777_216), "none", "2^20 bytes", "The memory that each node may use, with the cached pages of its files; none for all of the machine. A JVM gets a quarter as its heap, at least 192 MB, unless it has the lab's 1,024 MB already; Apache Pulsar's a quarter as its heap and three eighths as buffers, of 1,024 MB at least.";
    "cluster.idle_connections" Kind::Whole(0, 100_000), "0", "connections", "Connections besides those of producers and consumers, spread over the brokers: opened before the start, and not used.";
    "cluster.idle_partitions" Kind::Whole(0, PARTITIONS_MAX), "0", "partitions", "Partitions besides those of the load, with one replica each: made once in a cluster that the lab starts, and not used. The result has the time of an answer with the metadata of all of them. None are made in a running cluster (`--bootstrap`).";
    "cluster.racks" Kind::Text, "none", "", "The `broker.rack` of brokers that the lab starts, separated by commas, in turns: `a,b,c` puts the brokers 1 and 4 into the rack `a`. Replicas are spread over racks. A running cluster (`--bootstrap`) is as it is.";
    "cluster.jvm_options" Kind::Text, "none", "", "Options of the brokers' JVMs, separated by blanks, after the lab's own and those of `--jvm-options`, for the targets `apache-kafka` and `pulsar`. Thalweg has no JVM; a running cluster (`--bootstrap`) is as it is.";
    "cluster.properties" Kind::Properties, "empty", "", "Broker properties that differ from the defaults.";
    "cluster.pulsar" Kind::Properties, "empty", "", "Settings of Apache Pulsar's `standalone.conf`, of its broker and bookie, for the target `pulsar`, such as `journalSyncData`.";
    "topics.count" Kind::Whole(1, PARTITIONS_MAX), "1", "topics", "The number of topics. Producers write to them in turn.";
    "topics.partitions" Kind::Whole(1, PARTITIONS_MAX), "1", "partitions", "The partitions of each topic; at most 100,000 in total.";
    "topics.replication_factor" Kind::Whole(1, 1000), "1", "replicas", "The replicas of each partition; at most the number of brokers.";
    "topics.created_per_s" Kind::Whole(0, 1000), "0", "topics", "Topics of one partition besides these: so many are created each second, and each is deleted when it has leaders. The result has the time that takes.";
    "topics.properties" Kind::Properties, "empty", "", "Topic properties that differ from the defaults.";
    "records.size_bytes" Kind::Whole(1, SIZE_MAX), "100", "bytes", "The size of each value; at least 24 for `verify = \"whole\"`.";
    "records.payload" Kind::Word(&["random", "zeros", "shared", "compressible", "json", "file"]), "\"random\"", "", "The contents of the values, from a pool made before the run: random bytes, zeros, the same zeros for all records (passed by reference in streams in memory), text that compresses to about a quarter, JSON objects like those of services, or the lines of `records.file`.";
    "records.file" Kind::Text, "none", "", "The file for the payload `\"file\"`; relative paths start at the workload's folder.";
    "records.keys_distinct" Kind::Whole(0, 1_000_000_000), "0", "keys", "The number of distinct keys, drawn uniformly; 0 for records without keys.";
    "producers.count" Kind::Whole(0, CLIENTS_MAX), "1", "clients", "The number of producers, each with its own connections.";
    "producers.processes" Kind::Whole(1, 1000), "1", "processes", "The number of processes that run them.";
    "producers.threads" Kind::Whole(1, 1000), "1", "threads", "The threads per process.";
    "producers.properties" Kind::Properties, "empty", "", "Producer properties that differ from the client's defaults.";
    "producers.pulsar" Kind::Properties, "empty", "", "Properties of Pulsar's producers, such as `batchingMaxBytes`, for targets that are Pulsar. They come before Kafka's properties that mean the same.";
    "consumers.count" Kind::Whole(0, CLIENTS_MAX), "0", "clients", "The number of consumers of all groups.";
    "consumers.groups" Kind::Whole(1, CLIENTS_MAX), "1", "groups", "The number of consumer groups, each of which consumes every record. Consumers join them in turn.";
    "consumers.processes" Kind::Whole(1, 1000), "1", "processes", "The number of processes that run them.";
    "consumers.threads" Kind::Whole(1, 1000), "1", "threads", "The threads per process.";
    "consumers.properties" Kind::Properties, "empty", "", "Consumer properties that differ from the client's defaults.";
    "consumers.pulsar" Kind::Properties, "empty", "", "Properties of Pulsar's consumers, such as `receiverQueueSize`, for targets that are Pulsar.";
    "measure" Kind::Word(&["produce", "consume", "drain"]), "\"produce\"", "", "`produce`: producing; consumers, if any, read at the same time. `consume`: consuming `extent.records` produced before. `drain`: consuming a backlog of `extent.records` while producing continues.";
    "load.kind" Kind::Word(&["maximum", "rate", "add-producers", "raise-rate"]), "\"maximum\"", "", "`maximum`: the maximum rate. `rate`: a fixed rate, each record at its intended time. `add-producers`: adds producers one by one until the rate stops rising. `raise-rate`: raises the rate until the cluster falls behind, then bisects the knee.";
    "load.records_per_s" Kind::Number(0.001, RATE_MAX), "none", "records per second", "For `rate`: the total of all producers.";
    "load.producers_max" Kind::Whole(1, CLIENTS_MAX), "none", "clients", "For `add-producers`: the maximum number.";
    "load.gain_min" Kind::Number(0.0, 1.0), "0.03", "share", "For `add-producers`: the minimum gain that counts.";
    "load.first_records_per_s" Kind::Number(0.001, RATE_MAX), "10000", "records per second", "For `raise-rate`: the first rate.";
    "load.factor" Kind::Number(1.01, 100.0), "1.5", "factor", "For `raise-rate`: the ratio of each rate to the previous one.";
    "load.precision" Kind::Number(0.001, 0.5), "0.05", "share", "For `raise-rate`: the relative precision of the knee.";
    "extent.warm_up_s" Kind::Number(0.0, SECONDS_MAX), "1", "seconds", "The warm-up before the measurement.";
    "extent.seconds" Kind::Number(0.1, SECONDS_MAX), "5", "seconds", "The duration of a measurement. Use either this or `extent.records`.";
    "extent.records" Kind::Whole(1, RECORDS_MAX), "none", "records", "The number of records in a measurement, for all producers together; for `consume` and `drain`, the number produced before.";
    "repetitions" Kind::Whole(1, 100), "3", "times", "The number of measurements.";
    "verify" Kind::Word(&["off", "bounded", "whole"]), "\"bounded\"", "", "How far the records are read back and checked after a measurement: for about as long as it took (`bounded`), to the last record (`whole`), or not at all. Checked records carry their producer, sequence and intended time.";
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::document;
    use crate::workload::layer::Layer;
    use crate::workload::mistake::Position;

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
