//! The share consumer's settings, by Kafka's names and with Kafka's defaults.

use std::time::Duration;

use thalweg_dial::{ConnectionOptions, InvalidSetting, Properties};

/// Acknowledgement mode of a share consumer (`share.acknowledgement.mode`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AcknowledgementMode {
    /// `implicit`: the next poll, a commit or the close accepts them.
    #[default]
    Implicit,
    /// `explicit`: the caller acknowledges each record. Unacknowledged records are delivered again when their
    /// lock expires.
    Explicit,
}

/// Number of records acquired by a fetch (KIP-1206).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AcquireMode {
    /// `batch_optimized`: whole batches, possibly more records than `max.poll.records`.
    #[default]
    BatchOptimized,
    /// `record_limit`: no more than `max.poll.records`. Needs brokers of Kafka 4.2 or later.
    RecordLimit,
}

/// Settings of a [`ShareConsumer`](crate::ShareConsumer).
#[derive(Clone, Debug)]
pub struct ShareConfig {
    /// `group.id`: the share group.
    pub group: String,
    /// `client.rack`.
    pub rack: Option<String>,
    /// `share.acknowledgement.mode`.
    pub acknowledgement_mode: AcknowledgementMode,
    /// `share.acquire.mode`.
    pub acquire_mode: AcquireMode,
    /// `max.poll.records`: maximum number of records that a fetch acquires from one broker.
    pub records_max: i32,
    /// `fetch.min.bytes`.
    pub fetch_bytes_min: i32,
    /// `fetch.max.wait.ms`.
    pub fetch_wait_max: Duration,
    /// `fetch.max.bytes`.
    pub fetch_bytes_max: i32,
    /// `check.crcs`.
    pub check_crcs: bool,
    /// `allow.auto.create.topics`.
    pub create_topics: bool,
    /// `retry.backoff.ms`.
    pub retry_backoff: Duration,
    /// `metadata.max.age.ms`.
    pub metadata_max_age: Duration,
    /// Client id, timeouts, security.
    pub connection: ConnectionOptions,
}

impl ShareConfig {
    /// The default settings, for a group.
    pub fn new(group: impl Into<String>) -> ShareConfig {
        ShareConfig {
            group: group.into(),
            rack: None,
            acknowledgement_mode: AcknowledgementMode::Implicit,
            acquire_mode: AcquireMode::BatchOptimized,
            records_max: 500,
            fetch_bytes_min: 1,
            fetch_wait_max: Duration::from_millis(500),
            fetch_bytes_max: 50 << 20,
            check_crcs: true,
            create_topics: true,
            retry_backoff: Duration::from_millis(100),
            metadata_max_age: Duration::from_secs(300),
            connection: ConnectionOptions::default(),
        }
    }

    /// Takes the share consumer's settings from `properties`; unknown properties remain. Settings of other
    /// consumers that the broker holds for a share group are errors.
    pub fn take(properties: &mut Properties) -> Result<ShareConfig, InvalidSetting> {
        for (key, expected) in OF_OTHERS {
            if let Some(value) = properties.take(key) {
                return Err(properties.invalid(key, &value, expected));
            }
        }
        // Deserializers are Java classes; this consumer returns bytes. The other settings have no meaning
        // without positions.
        for unused in [
            "key.deserializer",
            "value.deserializer",
            "receive.buffer.bytes",
            "auto.commit.interval.ms",
            "max.partition.fetch.bytes",
        ] {
            properties.take(unused);
        }
        let group = properties.take("group.id").filter(|group| !group.is_empty());
        let group = group.ok_or_else(|| InvalidSetting::missing("group.id", "the name of a share group"))?;
        let modes =
            [("implicit", AcknowledgementMode::Implicit), ("explicit", AcknowledgementMode::Explicit)];
        let acquires =
            [("batch_optimized", AcquireMode::BatchOptimized), ("record_limit", AcquireMode::RecordLimit)];
        let default = ShareConfig::new(group);
        let numbers = |properties: &mut Properties, key, default, min| {
            properties.take_number(key, default, min, i32::MAX)
        };
        Ok(ShareConfig {
            rack: properties.take("client.rack").filter(|rack| !rack.is_empty()),
            acknowledgement_mode: properties.take_choice(
                "share.acknowledgement.mode",
                AcknowledgementMode::Implicit,
                &modes,
            )?,
            acquire_mode: properties.take_choice(
                "share.acquire.mode",
                AcquireMode::BatchOptimized,
                &acquires,
            )?,
            records_max: numbers(properties, "max.poll.records", default.records_max, 1)?,
            fetch_bytes_min: numbers(properties, "fetch.min.bytes", default.fetch_bytes_min, 0)?,
            fetch_wait_max: properties.take_ms("fetch.max.wait.ms", 500)?,
            fetch_bytes_max: numbers(properties, "fetch.max.bytes", default.fetch_bytes_max, 0)?,
            check_crcs: properties.take_bool("check.crcs", true)?,
            create_topics: properties.take_bool("allow.auto.create.topics", true)?,
            retry_backoff: properties.take_ms("retry.backoff.ms", 100)?,
            metadata_max_age: properties.take_ms("metadata.max.age.ms", 300_000)?,
            connection: ConnectionOptions::take(properties, "share-consumer")?,
            ..default
        })
    }
}

/// Settings that Kafka's share consumer refuses, and their replacements.
const OF_OTHERS: [(&str, &str); 9] = [
    ("auto.offset.reset", "none in a share group: its share.auto.offset.reset on the broker counts"),
    ("enable.auto.commit", "none in a share group: share.acknowledgement.mode in its place"),
    ("group.instance.id", "none in a share group: it has no static members"),
    ("group.protocol", "none in a share group"),
    ("group.remote.assignor", "none in a share group"),
    ("heartbeat.interval.ms", "none in a share group: its share.heartbeat.interval.ms on the broker counts"),
    ("isolation.level", "none in a share group: its share.isolation.level on the broker counts"),
    ("partition.assignment.strategy", "none in a share group"),
    ("session.timeout.ms", "none in a share group: its share.session.timeout.ms on the broker counts"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_positions_are_refused() {
        let take = |text: &str| ShareConfig::take(&mut Properties::parse(text));
        let config =
            take("group.id=g\nshare.acknowledgement.mode=explicit\nmax.poll.records=7").expect("right");
        assert_eq!(config.acknowledgement_mode, AcknowledgementMode::Explicit);
        assert_eq!((&*config.group, config.records_max), ("g", 7));
        for (text, wrong) in [
            ("max.poll.records=7", "group.id="),
            (
                "group.id=g\nauto.offset.reset=earliest",
                "auto.offset.reset=earliest is invalid: expected none",
            ),
            ("group.id=g\nisolation.level=read_committed", "isolation.level=read_committed is invalid"),
            ("group.id=g\nshare.acquire.mode=x", "share.acquire.mode=x is invalid: expected batch_optimized"),
        ] {
            let error = take(text).expect_err(text).to_string();
            assert!(error.starts_with(wrong), "{error}");
        }
    }
}
