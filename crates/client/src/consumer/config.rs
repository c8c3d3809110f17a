//! The consumer's settings, by Kafka's names and with Kafka's defaults.

use std::time::Duration;

use thalweg_dial::{ConnectionOptions, InvalidSetting, Properties};

use super::assignor::AssignmentStrategy;

/// The start of a consumer without an offset, or with an offset no longer in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffsetReset {
    /// `earliest`.
    Earliest,
    /// `latest`.
    Latest,
    /// `none`: a missing offset is an error.
    None,
}

/// Group protocol (`group.protocol`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GroupProtocol {
    /// `classic`: one of the members assigns.
    #[default]
    Classic,
    /// `consumer`: the coordinator assigns (KIP-848). Needs brokers of Kafka 4.0 or later.
    Consumer,
}

/// Settings of a [`Consumer`](crate::Consumer).
#[derive(Clone, Debug)]
pub struct ConsumerConfig {
    /// `group.id`.
    pub group: Option<String>,
    /// `group.instance.id`.
    pub group_instance_id: Option<String>,
    /// `group.protocol`.
    pub group_protocol: GroupProtocol,
    /// `group.remote.assignor`, with `group.protocol=consumer`: the coordinator's assignor, `uniform` or
    /// `range`; its default if not set.
    pub remote_assignor: Option<String>,
    /// `session.timeout.ms`; with `group.protocol=consumer`, the broker's `group.consumer.session.timeout.ms`
    /// applies.
    pub session_timeout: Duration,
    /// `heartbeat.interval.ms`; with `group.protocol=consumer`, the broker's
    /// `group.consumer.heartbeat.interval.ms` applies.
    pub heartbeat_interval: Duration,
    /// `max.poll.interval.ms`: time for members to rejoin, and maximum time of a member between two polls
    /// before it leaves.
    pub rebalance_timeout: Duration,
    /// `partition.assignment.strategy`, with `group.protocol=classic`. Members keep their partitions during a
    /// rebalance if all of these are cooperative.
    pub assignment_strategies: Vec<AssignmentStrategy>,
    /// `client.rack`: reads from followers in this rack, if the cluster's replica selector allows it
    /// (KIP-392).
    pub rack: Option<String>,
    /// `exclude.internal.topics`: true if patterns skip Kafka's internal topics.
    pub exclude_internal_topics: bool,
    /// `auto.offset.reset`.
    pub offset_reset: OffsetReset,
    /// `enable.auto.commit` and `auto.commit.interval.ms`: interval of committing the offsets of returned
    /// records.
    pub auto_commit: Option<Duration>,
    /// `fetch.min.bytes`.
    pub fetch_bytes_min: i32,
    /// `fetch.max.wait.ms`.
    pub fetch_wait_max: Duration,
    /// `fetch.max.bytes`.
    pub fetch_bytes_max: i32,
    /// `max.partition.fetch.bytes`.
    pub partition_fetch_bytes_max: i32,
    /// `isolation.level=read_committed`.
    pub read_committed: bool,
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

impl Default for ConsumerConfig {
    fn default() -> ConsumerConfig {
        ConsumerConfig {
            group: None,
            group_instance_id: None,
            group_protocol: GroupProtocol::Classic,
            remote_assignor: None,
            session_timeout: Duration::from_secs(45),
            heartbeat_interval: Duration::from_secs(3),
            rebalance_timeout: Duration::from_secs(300),
            assignment_strategies: vec![AssignmentStrategy::Range, AssignmentStrategy::CooperativeSticky],
            rack: None,
            exclude_internal_topics: true,
            offset_reset: OffsetReset::Latest,
            auto_commit: Some(Duration::from_secs(5)),
            fetch_bytes_min: 1,
            fetch_wait_max: Duration::from_millis(500),
            fetch_bytes_max: 50 << 20,
            partition_fetch_bytes_max: 1 << 20,
            read_committed: false,
            check_crcs: true,
            create_topics: true,
            retry_backoff: Duration::from_millis(100),
            metadata_max_age: Duration::from_secs(300),
            connection: ConnectionOptions::default(),
        }
    }
}

impl ConsumerConfig {
    /// Takes the consumer's settings from `properties`; unknown properties remain.
    pub fn take(properties: &mut Properties) -> Result<ConsumerConfig, InvalidSetting> {
        // Deserializers are Java classes; this consumer returns bytes. The system sizes the socket's buffer.
        for unused in ["key.deserializer", "value.deserializer", "receive.buffer.bytes"] {
            properties.take(unused);
        }
        let group_protocol = take_protocol(properties)?;
        let resets = [
            ("earliest", OffsetReset::Earliest),
            ("latest", OffsetReset::Latest),
            ("none", OffsetReset::None),
        ];
        let isolations = [("read_uncommitted", false), ("read_committed", true)];
        let auto_commit_interval = properties.take_ms("auto.commit.interval.ms", 5000)?;
        let auto_commit = properties.take_bool("enable.auto.commit", true)?;
        Ok(ConsumerConfig {
            group: properties.take("group.id").filter(|group| !group.is_empty()),
            group_instance_id: properties.take("group.instance.id"),
            group_protocol,
            remote_assignor: properties.take("group.remote.assignor").filter(|name| !name.is_empty()),
            session_timeout: properties.take_ms("session.timeout.ms", 45_000)?,
            heartbeat_interval: properties.take_ms("heartbeat.interval.ms", 3000)?,
            rebalance_timeout: properties.take_ms("max.poll.interval.ms", 300_000)?,
            assignment_strategies: take_strategies(properties)?,
            rack: properties.take("client.rack").filter(|rack| !rack.is_empty()),
            exclude_internal_topics: properties.take_bool("exclude.internal.topics", true)?,
            offset_reset: properties.take_choice("auto.offset.reset", OffsetReset::Latest, &resets)?,
            auto_commit: auto_commit.then_some(auto_commit_interval),
            fetch_bytes_min: properties.take_number("fetch.min.bytes", 1, 0, i32::MAX)?,
            fetch_wait_max: properties.take_ms("fetch.max.wait.ms", 500)?,
            fetch_bytes_max: properties.take_number("fetch.max.bytes", 50 << 20, 0, i32::MAX)?,
            partition_fetch_bytes_max: properties.take_number(
                "max.partition.fetch.bytes",
                1 << 20,
                0,
                i32::MAX,
            )?,
            read_committed: properties.take_choice("isolation.level", false, &isolations)?,
            check_crcs: properties.take_bool("check.crcs", true)?,
            create_topics: properties.take_bool("allow.auto.create.topics", true)?,
            retry_backoff: properties.take_ms("retry.backoff.ms", 100)?,
            metadata_max_age: properties.take_ms("metadata.max.age.ms", 300_000)?,
            connection: ConnectionOptions::take(properties, "consumer")?,
        })
    }
}

/// Takes `group.protocol`, in any case as Kafka's client does. Settings that exist only for the other
/// protocol are errors.
fn take_protocol(properties: &mut Properties) -> Result<GroupProtocol, InvalidSetting> {
    if let Some(name) = properties.get("group.protocol") {
        let name = name.trim().to_ascii_lowercase();
        properties.set("group.protocol", &name);
    }
    let protocols = [("classic", GroupProtocol::Classic), ("consumer", GroupProtocol::Consumer)];
    let protocol = properties.take_choice("group.protocol", GroupProtocol::Classic, &protocols)?;
    let unused: &[(&str, &str)] = match protocol {
        GroupProtocol::Classic => {
            &[("group.remote.assignor", "group.protocol=consumer with it, or partition.assignment.strategy")]
        }
        GroupProtocol::Consumer => &[
            ("partition.assignment.strategy", "group.remote.assignor with group.protocol=consumer"),
            (
                "session.timeout.ms",
                "none with group.protocol=consumer: the broker's group.consumer.session.timeout.ms counts",
            ),
            (
                "heartbeat.interval.ms",
                "none with group.protocol=consumer: the broker's group.consumer.heartbeat.interval.ms counts",
            ),
        ],
    };
    for (key, expected) in unused {
        if let Some(value) = properties.take(key) {
            return Err(properties.invalid(key, &value, *expected));
        }
    }
    Ok(protocol)
}

fn take_strategies(properties: &mut Properties) -> Result<Vec<AssignmentStrategy>, InvalidSetting> {
    let key = "partition.assignment.strategy";
    let Some(value) = properties.take(key) else {
        return Ok(ConsumerConfig::default().assignment_strategies);
    };
    let names = value.split(',').map(str::trim).filter(|name| !name.is_empty());
    let strategies: Option<Vec<AssignmentStrategy>> = names.map(AssignmentStrategy::from_name).collect();
    strategies
        .filter(|strategies| !strategies.is_empty())
        .ok_or_else(|| properties.invalid(key, &value, "a list of range, roundrobin and cooperative-sticky"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn librdkafkas_names_set_what_kafkas_set() {
        let text = "fetch.wait.max.ms=9\nfetch.message.max.bytes=1000\nqueued.max.messages.kbytes=64\n\
                    auto.offset.reset=smallest\nfetch.max.wait.ms=20\nenable.partition.eof=false";
        let mut properties = Properties::parse(text);
        properties.rename_librdkafka().expect("names of librdkafka");
        let config = ConsumerConfig::take(&mut properties).expect("right");
        assert_eq!(config.fetch_wait_max.as_millis(), 20, "Kafka's name counts");
        assert_eq!((config.partition_fetch_bytes_max, config.fetch_bytes_max), (1000, 64 << 10));
        assert_eq!((config.offset_reset, properties.rest().count()), (OffsetReset::Earliest, 0));
    }

    #[test]
    fn settings_of_the_other_group_protocol_are_refused() {
        let take = |text: &str| ConsumerConfig::take(&mut Properties::parse(text));
        let config = take("group.protocol=CONSUMER\ngroup.remote.assignor=range").expect("right");
        assert_eq!(config.group_protocol, GroupProtocol::Consumer);
        assert_eq!(config.remote_assignor.as_deref(), Some("range"));
        assert_eq!(take("session.timeout.ms=9000").expect("right").group_protocol, GroupProtocol::Classic);
        for (text, wrong) in [
            ("group.protocol=consumer\nsession.timeout.ms=9000", "session.timeout.ms=9000 is invalid: "),
            ("group.protocol=consumer\nheartbeat.interval.ms=9", "heartbeat.interval.ms=9 is invalid: "),
            (
                "group.protocol=consumer\npartition.assignment.strategy=range",
                "partition.assignment.strategy=range is invalid: expected group.remote.assignor",
            ),
            (
                "group.remote.assignor=range",
                "group.remote.assignor=range is invalid: expected group.protocol",
            ),
            ("group.protocol=share", "group.protocol=share is invalid: expected classic, consumer"),
        ] {
            let error = take(text).expect_err(text).to_string();
            assert!(error.starts_with(wrong), "{error}");
        }
    }

    #[test]
    fn strategies_are_named_as_kafka_names_them() {
        let take = |value: &str| {
            let mut properties = Properties::new();
            properties.set_text(&format!("partition.assignment.strategy={value}")).expect("key=value");
            ConsumerConfig::take(&mut properties).map(|config| config.assignment_strategies)
        };
        let both = [AssignmentStrategy::CooperativeSticky, AssignmentStrategy::RoundRobin];
        assert_eq!(take("cooperative-sticky, roundrobin").expect("right"), both);
        let class = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor";
        assert_eq!(take(class).expect("right"), both[..1]);
        assert!(take("sticky").is_err() && take(",").is_err());
    }
}
