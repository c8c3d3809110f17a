//! The controller's decisions, pure: a request, the time and the image lead to records and a response. No
//! I/O, no clock, no waiting. Records are replayed on a copy of the image before they are appended
//! ([`Batch`]); the driver holds the response back until the records are committed.

mod acls;
mod alter_partition;
mod authorization;
mod batch;
mod brokers;
mod configs;
mod create_partitions;
mod create_topics;
mod credentials;
mod delegation_tokens;
mod delete_topics;
mod directories;
mod elections;
mod entry;
mod features;
mod heartbeats;
mod log_ends;
mod mutations;
mod names;
mod partition_change;
mod placement;
mod producer_ids;
mod quotas;
mod reassignments;
#[cfg(test)]
mod tests;
mod voters;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use thalweg_config::{EffectiveTopicConfig, Setting};
use thalweg_hash::HashMap;
use thalweg_metadata::{
    BrokerId, ConfigMap, ConfigResource, ConfigResourceKind, Image, MetadataVersion, Topic, VersionRange,
    VersionedRecord, feature,
};
use thalweg_security::acl::Authorizer;
use thalweg_wire::ErrorCode;

use crate::options::{ConfigRules, ControllerOptions};
use delegation_tokens::DelegationTokens;
use heartbeats::Heartbeats;
use mutations::Mutations;

pub(crate) use batch::{BATCH_OVERHEAD, Batch, Claim, Extent, RECORD_OVERHEAD, Unwritable};
pub(crate) use entry::{
    Access, Api, Call, Decide, Decider, Decision, LARGE_FRAME_BYTES, TaskRequest, encode,
};
pub use log_ends::{ComparedElection, UndecidedPartition};
pub(crate) use mutations::{MutationCall, QuotaUse};
pub(crate) use names::CLUSTER_METADATA_TOPIC;
pub(crate) use thalweg_log::Moment;

/// The entries of the APIs that the state decides, by file.
pub(crate) const APIS: &[&[Api]] = &[
    acls::APIS,
    alter_partition::APIS,
    brokers::APIS,
    configs::APIS,
    create_partitions::APIS,
    create_topics::APIS,
    credentials::APIS,
    delegation_tokens::APIS,
    delete_topics::APIS,
    directories::APIS,
    elections::APIS,
    features::APIS,
    producer_ids::APIS,
    quotas::APIS,
    reassignments::APIS,
    voters::APIS,
];

/// Maximum number of records for one request (Kafka's `MAX_RECORDS_PER_USER_OP`).
pub(crate) const RECORDS_PER_REQUEST_MAX: usize = 10_000;

/// Maximum size of error messages in one answer.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

const MIN_INSYNC_REPLICAS: &str = EffectiveTopicConfig::min_insync_replicas.name();

/// A refusal: Kafka's code and usually a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub code: ErrorCode,
    pub message: Option<String>,
}

impl ApiError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> ApiError {
        ApiError { code, message: Some(message.into()) }
    }

    /// A refusal with Kafka's default message for the code.
    pub fn plain(code: ErrorCode) -> ApiError {
        ApiError { code, message: Some(default_message(code).to_owned()) }
    }
}

/// Kafka's default message for an error code.
fn default_message(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::UnknownTopicOrPartition => "This server does not host this topic-partition.",
        ErrorCode::UnknownTopicId => "This server does not host this topic ID.",
        ErrorCode::ElectionNotNeeded => "Leader election not needed for topic partition.",
        ErrorCode::PreferredLeaderNotAvailable => "The preferred leader was not available.",
        ErrorCode::EligibleLeadersNotAvailable => "Eligible topic partition leaders are not available.",
        ErrorCode::NoReassignmentInProgress => "No partition reassignment is in progress.",
        ErrorCode::TopicAuthorizationFailed => "Topic authorization failed.",
        ErrorCode::GroupAuthorizationFailed => "Group authorization failed.",
        ErrorCode::ClusterAuthorizationFailed => "Cluster authorization failed.",
        ErrorCode::TopicDeletionDisabled => "Topic deletion is disabled.",
        other => other.name(),
    }
}

/// The messages of refusals in one answer. Messages may repeat a long name for each of many partitions, so
/// beyond a bound only codes are sent.
#[derive(Debug)]
struct MessageBudget {
    bytes_left: usize,
}

impl Default for MessageBudget {
    fn default() -> MessageBudget {
        MessageBudget { bytes_left: MESSAGE_BYTES_MAX }
    }
}

impl MessageBudget {
    /// Returns the message if there is room.
    fn keep(&mut self, message: Option<String>) -> Option<String> {
        let message = message?;
        self.bytes_left = self.bytes_left.checked_sub(message.len())?;
        Some(message)
    }
}

/// The outcome of a request: records to write as one batch, and the answer to send after their commit.
#[derive(Debug)]
pub(crate) struct Outcome<R> {
    pub records: Vec<VersionedRecord>,
    pub response: R,
}

impl<R> Outcome<R> {
    pub fn new(records: Vec<VersionedRecord>, response: R) -> Outcome<R> {
        Outcome { records, response }
    }

    pub fn answer(response: R) -> Outcome<R> {
        Outcome { records: Vec::new(), response }
    }
}

/// The state for decisions: the image with all records so far, committed or not, and the controller's state
/// outside the log.
#[derive(Clone)]
pub(crate) struct State {
    pub node_id: i32,
    pub cluster_id: String,
    default_num_partitions: i32,
    default_replication_factor: i16,
    delete_topics: bool,
    /// The segment size of the log, in bytes. A batch cannot exceed it.
    segment_bytes: usize,
    supported_features: BTreeMap<String, VersionRange>,
    /// The first records of a new cluster.
    bootstrap: Vec<VersionedRecord>,
    pub kraft_version: i16,
    rules: Arc<dyn ConfigRules>,
    image: Arc<Image>,
    authorizer: Option<Authorizer>,
    tokens: DelegationTokens,
    /// The offset of the next record in the log.
    next_offset: i64,
    /// The offset of the record that registered each broker, which the broker must have reached before it is
    /// unfenced.
    registered_at: HashMap<BrokerId, i64>,
    heartbeats: Heartbeats,
    /// The mutation quota of clients.
    mutations: Mutations,
    /// Brokers that returned after an unclean stop; see [`State::waits_for_others`].
    suspects: BTreeSet<BrokerId>,
    /// True if log ends are compared before a possibly incomplete replica leads (`log_ends`).
    compares_log_ends: bool,
    rng: SmallRng,
}

impl State {
    /// The state of a new controller before its log is read. `seed` randomizes replica placement.
    pub fn new(options: &ControllerOptions, rules: Arc<dyn ConfigRules>, seed: u64) -> State {
        let timeout = i64::try_from(options.broker_session_timeout.as_millis()).unwrap_or(i64::MAX);
        State {
            node_id: options.node_id,
            cluster_id: options.cluster_id.clone(),
            default_num_partitions: options.default_num_partitions,
            default_replication_factor: options.default_replication_factor,
            delete_topics: options.delete_topics,
            segment_bytes: usize::try_from(options.segment_bytes).unwrap_or(usize::MAX),
            supported_features: options.supported_features.clone(),
            bootstrap: features::of_new_cluster(&options.bootstrap_features),
            kraft_version: 1,
            rules,
            image: Arc::new(Image::empty()),
            authorizer: options.authorizer.clone().map(|rules| Authorizer::new(rules, [])),
            tokens: DelegationTokens::new(options.delegation_tokens.clone()),
            next_offset: 0,
            registered_at: HashMap::default(),
            heartbeats: Heartbeats::new(timeout),
            mutations: Mutations::new(options.quota_window),
            suspects: BTreeSet::new(),
            compares_log_ends: options.compares_log_ends,
            rng: SmallRng::seed_from_u64(seed),
        }
    }

    /// A copy for deciding a request while this state continues.
    pub fn draft(&mut self) -> State {
        let rng = SmallRng::from_rng(&mut self.rng);
        State { rng, ..self.clone() }
    }

    /// The image with all records so far.
    pub fn image(&self) -> &Arc<Image> {
        &self.image
    }

    /// The offset of the next record.
    pub fn next_offset(&self) -> i64 {
        self.next_offset
    }

    /// Starts to lead, after the log was read into `image` up to `next_offset`. Other brokers get a session,
    /// because they may be alive. The broker in this process is not running yet. It may register when the
    /// state of the other brokers is known, and is fenced like any broker if it never registers, because the
    /// node no longer has that role.
    pub fn activate(
        &mut self,
        image: Arc<Image>,
        next_offset: i64,
        registered_at: HashMap<BrokerId, i64>,
        now: Moment,
    ) {
        if let Some(authorizer) = &mut self.authorizer {
            // The authorizer from the start has the rules and no ACLs yet.
            let all = image.acls().iter().map(|(id, _)| id).collect();
            image.update_authorizer(authorizer, &self.image, &all);
        }
        self.tokens.load(&image);
        self.mutations.set(image.quotas());
        self.image = image;
        self.suspects = self.passed_over();
        self.next_offset = next_offset;
        self.registered_at = registered_at;
        for broker in self.image.cluster().brokers.values() {
            self.heartbeats.register(broker.id, broker.fenced);
            if broker.fenced {
                continue;
            }
            if broker.id.0 == self.node_id {
                self.heartbeats.await_return(broker.id, now);
            } else {
                self.heartbeats.expect(broker.id, broker.epoch, now);
            }
        }
    }

    /// Runs a decision as if these unwritten records had been written.
    fn staged<R>(
        &mut self,
        records: &[VersionedRecord],
        decide: impl FnOnce(&State) -> R,
    ) -> Result<R, Unwritable> {
        if records.is_empty() {
            return Ok(decide(self));
        }
        let staged = self.replayed(records)?.apply(self.image.provenance());
        let before = std::mem::replace(&mut self.image, staged);
        let decided = decide(self);
        self.image = before;
        Ok(decided)
    }

    /// Time of the next session expiry without further heartbeats, on the session clock.
    pub fn next_session_end_ms(&self) -> Option<i64> {
        self.heartbeats.next_end_ms()
    }

    /// True if any broker has a session at this time.
    pub fn has_open_sessions(&self, monotonic_ms: i64) -> bool {
        self.heartbeats.has_open_sessions(monotonic_ms)
    }

    /// Extends all sessions a little, because their end could not be written.
    pub fn postpone_sessions(&mut self, now: Moment, by: std::time::Duration) {
        self.heartbeats.postpone(now, i64::try_from(by.as_millis()).unwrap_or(i64::MAX));
    }

    fn metadata_version(&self) -> MetadataVersion {
        self.image.features().metadata_version().unwrap_or(MetadataVersion::LATEST)
    }

    /// The finalized features, including `kraft.version`.
    pub fn finalized_features(&self) -> BTreeMap<String, i16> {
        let mut features: BTreeMap<String, i16> =
            self.image.features().iter().map(|(name, level)| (name.to_owned(), level)).collect();
        if self.kraft_version > 0 {
            features.insert(feature::KRAFT_VERSION.to_owned(), self.kraft_version);
        }
        features
    }

    /// The features that this node supports.
    pub fn supported_features(&self) -> &BTreeMap<String, VersionRange> {
        &self.supported_features
    }

    fn is_active(&self, broker: BrokerId) -> bool {
        self.image.broker(broker).is_some_and(|broker| broker.is_active())
    }

    /// A setting of a topic: from the topic, this broker, all brokers, or the default. Values are stored as
    /// typed text and parsed by the table that has checked them. As in brokers, an invalid value counts as
    /// not set.
    fn topic_setting<T>(&self, topic: &str, setting: Setting<T>) -> Option<T> {
        let (configs, name) = (self.image.configs(), setting.name());
        let resources = [
            ConfigResource::topic(topic),
            ConfigResource::broker(BrokerId(self.node_id)),
            ConfigResource::brokers(),
        ];
        for resource in &resources {
            let set = configs.value(resource, name).and_then(|text| setting.parse_for_topic(text));
            if set.is_some() {
                return set;
            }
        }
        let default = self.rules.default_value(ConfigResourceKind::Topic, name)?;
        setting.parse_for_topic(&default)
    }

    /// True if eligible leader replicas are enabled.
    fn has_elr(&self) -> bool {
        self.image.has_elr() && self.metadata_version().has_eligible_leader_replicas()
    }

    /// `min.insync.replicas` of a topic, at most its number of replicas.
    fn effective_min_isr(&self, topic: &Topic) -> usize {
        let set = self.topic_setting(&topic.name, EffectiveTopicConfig::min_insync_replicas);
        let replicas = topic.partitions.values().next().map_or(1, |partition| partition.replicas.len());
        set.and_then(|set| usize::try_from(set).ok()).unwrap_or(1).min(replicas)
    }

    fn unclean_election_enabled(&self, topic: &str) -> bool {
        self.topic_setting(topic, EffectiveTopicConfig::unclean_leader_election_enable).unwrap_or(false)
    }

    fn config_map(&self, resource: &ConfigResource) -> Arc<ConfigMap> {
        self.image.config(resource)
    }
}

/// Adds the records of one element of a request. Returns the element's error code and message, or the refusal
/// of a request with too many records.
fn add_records(
    records: &mut Vec<VersionedRecord>,
    outcome: Result<Vec<VersionedRecord>, ApiError>,
) -> Result<(i16, Option<String>), ApiError> {
    match outcome {
        Ok(new) => {
            records.extend(new);
            if records.len() > RECORDS_PER_REQUEST_MAX {
                return Err(too_many_records());
            }
            Ok((0, None))
        }
        Err(error) => Ok((error.code.code(), error.message)),
    }
}

/// The refusal of a request with more records than fit into one atomic batch.
fn too_many_records() -> ApiError {
    ApiError::new(ErrorCode::PolicyViolation, "Unable to perform excessively large batch operation.")
}
