//! Translates Kafka's client properties to librdkafka's names.
//!
//! Most names are equal. If librdkafka's default differs from Kafka's in a way that changes the measurement
//! (batches, idempotence, checksums), Kafka's default is set, so that the same properties mean the same work.
//! TLS and SASL are parsed by Thalweg's client and passed on.
//!
//! This module is separate from the driver, because streams in every build accept these names, too.

use std::collections::BTreeMap;

use thalweg_client::{InvalidSetting, Properties, Security};

use crate::worker::{Assignment, Role};

/// Kafka's defaults for producers where librdkafka's differ.
const PRODUCER_DEFAULTS: &[(&str, &str)] = &[
    ("acks", "all"),
    ("batch.size", "16384"),
    ("buffer.memory", "33554432"),
    ("linger.ms", "5"),
    // Batches are limited by bytes, not by records.
    ("batch.num.messages", "1000000"),
    // The buffer is limited by bytes: this is the maximum number of records.
    ("queue.buffering.max.messages", "10000000"),
    // Kafka's partitioner for keys.
    ("partitioner", "murmur2_random"),
];
/// Kafka's defaults for consumers where librdkafka's differ.
const CONSUMER_DEFAULTS: &[(&str, &str)] =
    &[("isolation.level", "read_uncommitted"), ("check.crcs", "true"), ("auto.offset.reset", "earliest")];

/// Properties with other names.
const RENAMED: &[(&str, &str)] = &[
    ("compression.gzip.level", "compression.level"),
    ("compression.lz4.level", "compression.level"),
    ("compression.zstd.level", "compression.level"),
    ("fetch.max.wait.ms", "fetch.wait.max.ms"),
    ("max.request.size", "message.max.bytes"),
    ("receive.buffer.bytes", "socket.receive.buffer.bytes"),
    ("send.buffer.bytes", "socket.send.buffer.bytes"),
];
/// Properties of Java's clients without a counterpart or effect on the measurement.
const JAVA_ONLY: &[&str] = &["key.serializer", "value.serializer", "key.deserializer", "value.deserializer"];

/// Settings under librdkafka's names, with notes for readers of the result.
pub(super) type LibrdkafkaSettings = (BTreeMap<String, String>, Vec<String>);

/// Translates the properties of an assignment, without cluster and group. The settings may contain secrets.
pub(super) fn named(assignment: &Assignment, number: u32) -> Result<LibrdkafkaSettings, InvalidSetting> {
    let mut properties = Properties::new();
    for (key, value) in &assignment.properties {
        properties.set(key, value);
    }
    let security = Security::take(&mut properties)?;
    let mut set = BTreeMap::new();
    let (kind, defaults) = match assignment.role {
        Role::Producer => ("producer", PRODUCER_DEFAULTS),
        Role::Consumer => ("consumer", CONSUMER_DEFAULTS),
    };
    for (key, value) in defaults {
        set.insert((*key).to_owned(), (*value).to_owned());
    }
    set.insert("client.id".to_owned(), format!("thalweg-lab-{kind}-{number}"));
    let mut notes = Vec::new();
    for key in properties.rest() {
        let value = properties.get(key).unwrap_or_default().trim();
        match key {
            java if JAVA_ONLY.contains(&java) => {}
            // Settings of layers that security.protocol excludes.
            unused if unused.starts_with("ssl.") || unused.starts_with("sasl.") => {
                notes.push(format!("{unused} had no effect with security.protocol={}", security.protocol()));
            }
            "max.block.ms" | "max.poll.records" => {
                notes.push(format!("librdkafka has no {key}, which had no effect"));
            }
            "partition.assignment.strategy" => {
                set.insert(key.to_owned(), assignors(value));
            }
            _ => {
                let renamed = RENAMED.iter().find(|(kafka, _)| *kafka == key);
                set.insert(renamed.map_or(key, |(_, own)| own).to_owned(), value.to_owned());
            }
        }
    }
    set.extend(security.librdkafka().into_iter().map(|(key, value)| (key.to_owned(), value)));
    if assignment.role == Role::Producer {
        resolve_idempotence(&mut set);
        limit_buffer(&mut set);
    }
    Ok((set, notes))
}

/// Kafka's rule: idempotent unless an explicit setting forbids it.
fn resolve_idempotence(set: &mut BTreeMap<String, String>) {
    if set.contains_key("enable.idempotence") {
        return;
    }
    let is = |key: &str, wanted: &[&str]| set.get(key).is_none_or(|value| wanted.contains(&value.as_str()));
    let in_flight: u32 =
        set.get("max.in.flight.requests.per.connection").map_or(5, |value| value.parse().unwrap_or(5));
    let idempotent =
        is("acks", &["all", "-1"]) && set.get("retries").is_none_or(|value| value != "0") && in_flight <= 5;
    set.entry("max.in.flight.requests.per.connection".to_owned()).or_insert_with(|| "5".to_owned());
    set.insert("enable.idempotence".to_owned(), idempotent.to_string());
}

/// Converts bytes to librdkafka's KiB, at least one.
fn limit_buffer(set: &mut BTreeMap<String, String>) {
    if let Some(bytes) = set.remove("buffer.memory") {
        let kbytes =
            bytes.parse::<u64>().map_or(bytes, |bytes| (bytes / 1024).clamp(1, 2_147_483_647).to_string());
        set.insert("queue.buffering.max.kbytes".to_owned(), kbytes);
    }
}

/// Converts Kafka's class names to librdkafka's words.
fn assignors(classes: &str) -> String {
    let word = |class: &str| match class.trim().rsplit('.').next().unwrap_or_default() {
        "RangeAssignor" => "range".to_owned(),
        "RoundRobinAssignor" => "roundrobin".to_owned(),
        "CooperativeStickyAssignor" => "cooperative-sticky".to_owned(),
        other => other.to_owned(),
    };
    classes.split(',').map(word).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::{Driver, testing};

    fn translated(role: Role, properties: &[(&str, &str)]) -> LibrdkafkaSettings {
        let assignment = Assignment {
            properties: properties
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            ..testing::assignment(role, Driver::Librdkafka)
        };
        named(&assignment, 0).expect("settings that can be")
    }

    #[test]
    fn the_same_properties_mean_the_same_work() {
        let properties =
            [("buffer.memory", "67108864"), ("batch.size", "100000"), ("max.request.size", "2000000")];
        let config = translated(Role::Producer, &properties).0;
        for (key, value) in [
            ("queue.buffering.max.kbytes", "65536"),
            ("batch.size", "100000"),
            ("message.max.bytes", "2000000"),
            ("acks", "all"),
            ("linger.ms", "5"),
            ("enable.idempotence", "true"),
        ] {
            assert_eq!(config.get(key).map(String::as_str), Some(value), "{key}");
        }
        assert_eq!(config.get("buffer.memory"), None);
        let consumer = translated(Role::Consumer, &[("fetch.max.wait.ms", "7")]).0;
        assert_eq!(consumer.get("fetch.wait.max.ms").map(String::as_str), Some("7"));
        assert_eq!(consumer.get("acks"), None);
    }

    #[test]
    fn idempotence_gives_way_unless_it_was_requested() {
        let idempotent = |properties: &[(&str, &str)]| {
            translated(Role::Producer, properties).0["enable.idempotence"] == "true"
        };
        assert!(idempotent(&[("acks", "-1")]));
        assert!(!idempotent(&[("acks", "1")]));
        assert!(!idempotent(&[("max.in.flight.requests.per.connection", "6")]));
        assert!(idempotent(&[("acks", "1"), ("enable.idempotence", "true")]), "librdkafka reports the error");
    }

    #[test]
    fn security_settings_are_translated() {
        let jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"ann\" password='b c';";
        let properties = [
            ("security.protocol", "SASL_PLAINTEXT"),
            ("sasl.mechanism", "PLAIN"),
            ("sasl.jaas.config", jaas),
            ("ssl.truststore.location", "/nowhere"),
        ];
        let (config, notes) = translated(Role::Producer, &properties);
        assert_eq!((&*config["sasl.username"], &*config["sasl.password"]), ("ann", "b c"));
        assert_eq!(config.get("sasl.jaas.config"), None);
        assert_eq!(notes, ["ssl.truststore.location had no effect with security.protocol=SASL_PLAINTEXT"]);
    }

    #[test]
    fn kafkas_assignors_are_translated() {
        let strategy = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor";
        let config = translated(Role::Consumer, &[("partition.assignment.strategy", strategy)]).0;
        assert_eq!(config["partition.assignment.strategy"], "cooperative-sticky");
    }
}
