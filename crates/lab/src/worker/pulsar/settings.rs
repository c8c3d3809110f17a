//! The settings of Pulsar's clients: by Pulsar's names, or else by those of Kafka's settings that mean the
//! same, so that a workload's batches are alike on both.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use thalweg_pulsar::{Compression, ConsumerOptions, InitialPosition, ProducerOptions};

/// A setting of Pulsar's clients that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}={value} is not a setting of the lab's client for Pulsar: {problem}")]
pub struct InvalidPulsarSetting {
    pub key: String,
    pub value: String,
    pub problem: String,
}

/// Pulsar's settings of producers.
const PRODUCER: [&str; 8] = [
    "batchingEnabled",
    "batchingMaxBytes",
    "batchingMaxMessages",
    "batchingMaxPublishDelayMicros",
    "compressionType",
    "maxPendingMessages",
    "memoryLimitBytes",
    "sendTimeoutMs",
];
/// Pulsar's settings of consumers.
const CONSUMER: [&str; 3] = ["acknowledgementsGroupTimeMicros", "receiverQueueSize", "subscriptionType"];

/// The properties of an assignment, taken one by one.
struct Settings<'a> {
    properties: &'a BTreeMap<String, String>,
    /// Properties without effect.
    rest: Vec<&'a str>,
}

impl<'a> Settings<'a> {
    /// Pulsar's names have no dots, Kafka's do or are known.
    fn new(
        properties: &'a BTreeMap<String, String>,
        known: &[&str],
    ) -> Result<Settings<'a>, InvalidPulsarSetting> {
        let is_pulsars = |key: &str| !key.contains('.') && key.contains(|c: char| c.is_ascii_uppercase());
        for (key, value) in properties {
            if is_pulsars(key) && !known.contains(&key.as_str()) {
                let problem = format!("use one of {}", known.join(", "));
                return Err(InvalidPulsarSetting { key: key.clone(), value: value.clone(), problem });
            }
        }
        let rest = properties.keys().map(String::as_str).filter(|key| !is_pulsars(key));
        Ok(Settings { properties, rest: rest.collect() })
    }

    /// A setting by Pulsar's name, or else by Kafka's.
    fn take<T: FromStr<Err: Display>>(
        &mut self,
        name: &str,
        kafka: Option<&str>,
    ) -> Result<Option<T>, InvalidPulsarSetting> {
        let mut found = None;
        for key in [Some(name), kafka].into_iter().flatten() {
            self.rest.retain(|rest| *rest != key);
            if let (None, Some(value)) = (&found, self.properties.get(key)) {
                let invalid = |problem: String| InvalidPulsarSetting {
                    key: key.to_owned(),
                    value: value.clone(),
                    problem,
                };
                found = Some(value.trim().parse().map_err(|error: T::Err| invalid(error.to_string()))?);
            }
        }
        Ok(found)
    }

    /// A note on properties without effect.
    fn note(self) -> Option<String> {
        let rest: Vec<&str> = self.rest.into_iter().filter(|key| *key != "client.id").collect();
        (!rest.is_empty()).then(|| {
            format!(
                "Kafka's properties without a counterpart in Pulsar's clients, not applied: {}",
                rest.join(", ")
            )
        })
    }
}

/// The codec of a producer, by the names of both systems.
struct Codec(Compression);

impl FromStr for Codec {
    type Err = String;

    fn from_str(text: &str) -> Result<Codec, String> {
        let codecs = [Compression::None, Compression::Lz4, Compression::Zstd];
        let found = codecs.into_iter().find(|codec| codec.name().eq_ignore_ascii_case(text));
        found.map(Codec).ok_or_else(|| "the client has none, lz4 and zstd".to_owned())
    }
}

/// The settings of producers, and notes for readers of the result.
pub(super) fn producer(
    properties: &BTreeMap<String, String>,
) -> Result<(ProducerOptions, Vec<String>), InvalidPulsarSetting> {
    let mut settings = Settings::new(properties, &PRODUCER)?;
    let mut options = ProducerOptions::default();
    if let Some(messages) = settings.take("batchingMaxMessages", None)? {
        options.batch_messages_max = messages;
    }
    if let Some(bytes) = settings.take("batchingMaxBytes", Some("batch.size"))? {
        options.batch_bytes_max = bytes;
    }
    if settings.take("batchingEnabled", None)? == Some(false) {
        options.batch_messages_max = 1;
    }
    let pulsars: Option<u64> = settings.take("batchingMaxPublishDelayMicros", None)?;
    let kafkas: Option<u64> = settings.take("linger.ms", None)?;
    if let Some(micros) = pulsars.or(kafkas.map(|ms| ms.saturating_mul(1000))) {
        options.batch_delay = Duration::from_micros(micros);
    }
    if let Some(Codec(compression)) = settings.take("compressionType", Some("compression.type"))? {
        options.compression = compression;
    }
    options.pending_messages_max = settings.take("maxPendingMessages", None)?;
    if let Some(bytes) = settings.take("memoryLimitBytes", Some("buffer.memory"))? {
        options.pending_bytes_max = bytes;
    }
    if let Some(ms) = settings.take::<u64>("sendTimeoutMs", Some("delivery.timeout.ms"))? {
        options.send_timeout = (ms > 0).then(|| Duration::from_millis(ms));
    }
    let acks: Option<String> = settings.take("acks", None)?;
    let mut notes = Vec::new();
    if let Some(acks) = acks {
        notes.push(format!(
            "acks={acks} has no effect on Pulsar: a record is acknowledged when the ack quorum of bookies has written it"
        ));
    }
    notes.extend(settings.note());
    Ok((options, notes))
}

/// The settings of consumers, and notes for readers of the result.
pub(super) fn consumer(
    properties: &BTreeMap<String, String>,
) -> Result<(ConsumerOptions, Vec<String>), InvalidPulsarSetting> {
    let mut settings = Settings::new(properties, &CONSUMER)?;
    let mut options =
        ConsumerOptions { initial_position: InitialPosition::Earliest, ..ConsumerOptions::default() };
    if let Some(messages) = settings.take::<u32>("receiverQueueSize", None)? {
        options.receiver_queue_size = messages.max(1);
    }
    if let Some(micros) = settings.take("acknowledgementsGroupTimeMicros", None)? {
        options.ack_delay = Duration::from_micros(micros);
    }
    let subscription: Option<String> = settings.take("subscriptionType", None)?;
    if let Some(value) = subscription.filter(|value| !value.eq_ignore_ascii_case("Exclusive")) {
        let problem = "the lab's consumers are Exclusive, one for each partition".to_owned();
        return Err(InvalidPulsarSetting { key: "subscriptionType".to_owned(), value, problem });
    }
    if settings.take::<String>("auto.offset.reset", None)?.is_some_and(|value| value == "latest") {
        options.initial_position = InitialPosition::Latest;
    }
    let notes = settings.note().into_iter().collect();
    Ok((options, notes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn kafkas_settings_are_translated_and_pulsars_come_first() {
        let kafkas = [
            ("acks", "1"),
            ("batch.size", "8196"),
            ("linger.ms", "0"),
            ("compression.type", "lz4"),
            ("enable.idempotence", "false"),
            ("client.id", "x"),
        ];
        let (options, notes) = producer(&properties(&kafkas)).expect("settings");
        assert_eq!((options.batch_bytes_max, options.batch_delay), (8196, Duration::ZERO));
        assert_eq!(options.compression, Compression::Lz4);
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].starts_with("acks=1 has no effect") && notes[1].ends_with(": enable.idempotence"));
        let mut both = kafkas.to_vec();
        both.extend([("batchingMaxBytes", "131072"), ("batchingMaxPublishDelayMicros", "1000")]);
        let (options, _) = producer(&properties(&both)).expect("settings");
        assert_eq!((options.batch_bytes_max, options.batch_delay), (131_072, Duration::from_millis(1)));
    }

    #[test]
    fn unknown_and_unserved_settings_are_refused_with_the_known_ones() {
        let refusal = |pair| producer(&properties(&[pair])).expect_err("a refusal").to_string();
        let text = refusal(("batchingMaxByte", "1"));
        assert!(text.contains("batchingMaxByte=1") && text.contains("batchingMaxBytes"), "{text}");
        assert!(refusal(("compressionType", "SNAPPY")).contains("none, lz4 and zstd"));
        let shared = consumer(&properties(&[("subscriptionType", "Shared")])).expect_err("a refusal");
        assert!(shared.to_string().contains("Exclusive"), "{shared}");
        let (options, _) = consumer(&properties(&[("auto.offset.reset", "latest")])).expect("settings");
        assert_eq!(options.initial_position, InitialPosition::Latest);
    }
}
