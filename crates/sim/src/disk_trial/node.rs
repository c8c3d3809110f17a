//! The settings of the broker in a trial, and its topics: small sizes and short intervals, so that a few
//! seconds include every kind of disk work.

use super::NAMES;
use std::collections::BTreeMap;
use thalweg_client::NewTopic;
use thalweg_config::{
    CleanerSettings, ControllerSettings, EffectiveTopicConfig, GroupSettings, ListenerSettings, LogSettings,
    MetadataLogSettings, NodeSettings, ReplicationSettings, ServerProperties, TopicSettings,
    TransactionSettings,
};

/// The log directories.
pub(super) const DIRS: [&str; 2] = ["/data/a", "/data/b"];

/// The records that a topic must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retention {
    All,
    /// The newest bytes.
    Newest,
    /// Records without a deletion.
    Undeleted,
    /// The last record of each key.
    LastOfKeys,
}

/// The topics of the load, with one partition each.
pub(super) const TOPICS: [(&str, Retention); 6] = [
    ("kept", Retention::All),
    ("expiring", Retention::Newest),
    ("cut", Retention::Undeleted),
    ("compacted", Retention::LastOfKeys),
    ("moved", Retention::All),
    (LEDGER, Retention::All),
];

/// The topic of the transactions.
pub(super) const LEDGER: &str = "ledger";

/// Size of a segment: a few batches.
const SEGMENT_BYTES: &str = "2400";
/// Size that an expiring topic keeps.
pub(super) const RETENTION_BYTES: usize = 4_000;

/// The settings of the broker.
pub(super) fn properties(flushes: bool) -> ServerProperties {
    let mut properties = ServerProperties::default();
    let mut set = |key: &str, value: &str| properties.set(key, value);
    set(LogSettings::dirs.name(), &DIRS.join(","));
    set(NodeSettings::roles.name(), "broker,controller");
    set(NodeSettings::id.name(), "1");
    set(ListenerSettings::listeners.name(), &format!("PLAINTEXT://{}:9092", NAMES[super::NODE]));
    set(ControllerSettings::session_timeout.name(), "3000");
    set(ControllerSettings::heartbeat_interval.name(), "300");
    set(MetadataLogSettings::max_bytes_between_snapshots.name(), "4000");
    set(ControllerSettings::initial_registration_timeout.name(), "15000");
    set(TopicSettings::auto_create.name(), "false");
    set(LogSettings::recovery_threads_per_dir.name(), "1");
    set(LogSettings::initial_task_delay.name(), "100");
    // Rare enough that several segments are due at once.
    set(LogSettings::retention_check_interval.name(), "1200");
    set(LogSettings::recovery_point_checkpoint_interval.name(), "500");
    set(LogSettings::start_offset_checkpoint_interval.name(), "500");
    set(ReplicationSettings::high_watermark_checkpoint_interval.name(), "500");
    set(CleanerSettings::backoff.name(), "300");
    set(CleanerSettings::dedupe_buffer_bytes.name(), "2097152");
    if flushes {
        set(LogSettings::flush_interval_messages.name(), "1");
    }
    set(GroupSettings::offsets_topic_partitions.name(), "1");
    set(GroupSettings::offsets_topic_replication_factor.name(), "1");
    set(TransactionSettings::state_topic_partitions.name(), "1");
    set(TransactionSettings::state_topic_replication_factor.name(), "1");
    set(TransactionSettings::state_topic_min_isr.name(), "1");
    properties
}

/// A topic to create.
pub(super) fn topic(name: &str, keeps: Retention) -> NewTopic {
    let mut configs = BTreeMap::new();
    let mut set = |key: &str, value: &str| configs.insert(key.to_owned(), value.to_owned());
    set(EffectiveTopicConfig::internal_segment_bytes.name(), SEGMENT_BYTES);
    set(EffectiveTopicConfig::retention_ms.name(), "-1");
    set(EffectiveTopicConfig::file_delete_delay_ms.name(), "200");
    match keeps {
        Retention::All | Retention::Undeleted => {}
        Retention::Newest => {
            set(EffectiveTopicConfig::retention_bytes.name(), &RETENTION_BYTES.to_string());
        }
        Retention::LastOfKeys => {
            set(EffectiveTopicConfig::cleanup_policy.name(), "compact");
            set(EffectiveTopicConfig::min_cleanable_dirty_ratio.name(), "0.01");
        }
    }
    NewTopic { partitions: Some(1), replication_factor: Some(1), configs, ..NewTopic::new(name) }
}
