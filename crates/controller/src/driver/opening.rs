//! Opens a driver that leads: recovers the log, starts an epoch, writes its first records.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use thalweg_log::LogError;
use thalweg_log::disk::is_disk_full;
use thalweg_metadata::{Endpoint, Image, VersionRange, VersionedRecord};
use thalweg_record::ControlRecordType;
use thalweg_wire::data::leader_change_message::Voter;
use thalweg_wire::data::voters_record::{
    Endpoint as VoterEndpoint, KRaftVersionFeature, Voter as VotersRecordVoter,
};
use thalweg_wire::data::{KRaftVersionRecord, LeaderChangeMessage, VotersRecord};
use thalweg_wire::{Message, Uuid};
use tokio::time::Instant;

use super::Driver;
use super::session_clock::SessionClock;
use crate::options::{ConfigRules, ControllerOptions};
use crate::quorum::{
    AppendFailure, ControllerStartError, Leader, MetadataLog, Observers, QuorumState, QuorumStateError,
    RecoveredMetadata, encode_control_batch, formatted_with,
};
use crate::state::{Claim, Extent, Moment, State};

impl Driver {
    /// Opens the log and starts to lead. Blocks.
    pub fn open(
        options: ControllerOptions,
        rules: Arc<dyn ConfigRules>,
    ) -> Result<Driver, ControllerStartError> {
        let (mut log, recovered) = MetadataLog::open(&options)?;
        if log.end_offset() == 0 && !options.may_format {
            return Err(ControllerStartError::NoMetadataLog { dir: options.metadata_log_dir });
        }
        check_features(&options, &recovered.image)?;
        if recovered.voters.iter().any(|id| *id != options.node_id) {
            let (dir, voters) = (options.metadata_log_dir, recovered.voters);
            return Err(ControllerStartError::OtherVoters { dir, voters });
        }
        // The next start relies on this epoch's start as proof that all earlier records are synced.
        let is_full = |error: &LogError| matches!(error, LogError::Io(error) if is_disk_full(error));
        log.with_reserve(Claim::Urgent, MetadataLog::flush, is_full)?;
        let epoch = begin_epoch(&options, &mut log)?;
        let seed = u64::try_from(Uuid::random().0 & u128::from(u64::MAX)).expect("64 bits fit");
        let state = State::new(&options, rules, seed);
        let leader = Leader {
            node_id: options.node_id,
            epoch,
            cluster_id: options.cluster_id.clone(),
            endpoints: options.listeners.clone(),
            directory_id: options.directory_id,
        };
        let mut driver = Driver {
            committed: state.image().clone(),
            state,
            log,
            leader,
            observers: Observers::default(),
            drafts: super::Drafts::default(),
            waiting: VecDeque::new(),
            parked: VecDeque::new(),
            flush: None,
            flush_again_at: None,
            snapshotting: None,
            snapshot_bytes: options.snapshot_bytes,
            snapshot_interval: options.snapshot_interval,
            snapshot_at: None,
            rebalance_interval: options.rebalance_leaders.then_some(options.rebalance_interval),
            rebalance_at: None,
            unclean_election_interval: options.unclean_election_interval,
            unclean_election_at: None,
            expire_tokens_at: None,
            reserve_at: None,
            sessions: SessionClock::new(options.broker_session_timeout, Instant::now()),
            clock: options.clock.clone(),
            witness: options.witness.clone(),
            published: Arc::default(),
            is_full: false,
            unwritable: None,
            dead: false,
        };
        driver.lead(&options, recovered)?;
        Ok(driver)
    }

    /// Writes and syncs the first records of an epoch, and in a new log also the first records of the
    /// cluster.
    fn lead(
        &mut self,
        options: &ControllerOptions,
        recovered: RecoveredMetadata,
    ) -> Result<(), ControllerStartError> {
        let now = self.now();
        let is_new = self.log.end_offset() == 0;
        let formatted = match recovered.image.features().metadata_version() {
            None => {
                let formatted = self.begin_as_formatted(options)?;
                self.state.begin_with_users(&options.bootstrap_users);
                formatted
            }
            Some(_) => {
                if !options.bootstrap_users.is_empty() {
                    tracing::warn!(
                        "Did not add users: the cluster exists already (kafka-configs --entity-type users adds them)"
                    );
                }
                true
            }
        };
        self.state.kraft_version = recovered.kraft_version.unwrap_or(i16::from(is_new));
        let mut control = vec![leader_change(options.node_id)];
        if is_new {
            let quorum = self.quorum_records();
            let records = (!formatted).then(|| self.state.bootstrap_records());
            self.log.format(options, quorum.clone(), records)?;
            control.extend(quorum);
        }
        self.log.begin_epoch(self.leader.epoch);
        let batch = encode_control_batch(self.log.end_offset(), self.leader.epoch, now.wall_ms, &control);
        self.log.append(&batch, self.leader.epoch, Claim::Urgent).map_err(start_error)?;
        let RecoveredMetadata { image, registered_at, open_transaction, .. } = recovered;
        self.state.activate(image, self.log.end_offset(), registered_at, now);
        let records = self.state.activation_records(open_transaction);
        self.write_first(records, now)?;
        let registration = self.state.register_controller(Uuid::random(), options.listeners.clone());
        self.write_first(vec![registration], now)?;
        self.log.flush()?;
        self.fill_reserve();
        self.commit(self.state.image().clone());
        self.published.lead(self.leader.epoch);
        tracing::info!(
            epoch = self.leader.epoch,
            offset = self.log.end_offset(),
            topics = self.committed.topics().len(),
            "Controller leads the metadata quorum"
        );
        Ok(())
    }

    fn write_first(
        &mut self,
        records: Vec<VersionedRecord>,
        now: Moment,
    ) -> Result<(), ControllerStartError> {
        let batch = self
            .state
            .prepare(records, Extent::One)
            .map_err(|unwritable| ControllerStartError::FirstRecords { reason: unwritable.to_string() })?;
        self.write(batch, now, Claim::Urgent).map_err(start_error)
    }

    /// Starts the cluster with the records of its formatted directory, if any.
    fn begin_as_formatted(&mut self, options: &ControllerOptions) -> Result<bool, ControllerStartError> {
        let Some(records) = formatted_with(options)? else { return Ok(false) };
        let left_off =
            self.state.begin_with(records).map_err(|level| ControllerStartError::FormattedVersion {
                path: options.metadata_log_dir.join("bootstrap.checkpoint"),
                level,
            })?;
        if !left_off.is_empty() {
            let features =
                left_off.iter().map(|(name, level)| format!("{name}={level}")).collect::<Vec<_>>().join(",");
            tracing::warn!(features, "Ignored formatted features that are not supported");
        }
        Ok(true)
    }

    /// The quorum's control records, for a new log and for snapshots.
    pub(super) fn quorum_records(&self) -> Vec<(ControlRecordType, Bytes)> {
        let kraft_version = self.state.kraft_version;
        if kraft_version == 0 {
            // The voters of such a quorum are configured, not recorded.
            return Vec::new();
        }
        let version = KRaftVersionRecord { version: 0, k_raft_version: kraft_version };
        let voters = voters(self.leader.node_id, self.leader.directory_id, &self.leader.endpoints);
        let encoded = "version 0 holds all that is set";
        vec![
            (ControlRecordType::KRaftVersion, version.to_bytes(0).expect(encoded)),
            (ControlRecordType::KRaftVoters, voters.to_bytes(0).expect(encoded)),
        ]
    }
}

fn start_error(failure: AppendFailure) -> ControllerStartError {
    match failure {
        AppendFailure::Full(error) => ControllerStartError::Io(error),
        AppendFailure::Dead(error) => ControllerStartError::Append(error),
    }
}

/// Refuses to lead a cluster with features that this node does not serve.
fn check_features(options: &ControllerOptions, image: &Image) -> Result<(), ControllerStartError> {
    for (feature, level) in image.features().iter() {
        let served = options.supported_features.get(feature).copied().unwrap_or(VersionRange::DISABLED);
        if !served.contains(level) && level != 0 {
            let feature = feature.to_owned();
            return Err(ControllerStartError::UnservedFeature { feature, level, served: served.max });
        }
    }
    Ok(())
}

/// The next epoch, made durable before the first record of the epoch is written. On a full disk, only the log
/// records the epoch: this node is the only voter, votes for no other node, and serves nothing before the
/// first batch of the epoch is synced. An epoch whose first batch is lost was never visible.
fn begin_epoch(options: &ControllerOptions, log: &mut MetadataLog) -> Result<i32, ControllerStartError> {
    let (disk, dir) = log.snapshot_place();
    let before = QuorumState::read(&disk, &dir)?.map_or(0, |state| state.leader_epoch);
    let epoch = before.max(log.last_epoch()) + 1;
    let state = QuorumState { leader_id: options.node_id, leader_epoch: epoch };
    let is_full =
        |error: &QuorumStateError| matches!(error, QuorumStateError::Io { error, .. } if is_disk_full(error));
    match log.with_reserve(Claim::Urgent, |_| state.write(&disk, &dir), is_full) {
        Err(QuorumStateError::Io { path, error }) if is_disk_full(&error) && log.end_offset() > 0 => {
            tracing::warn!(
                path = %path.display(), epoch, %error,
                "Disk is full: began an epoch that only the metadata log records. The next start with room writes the file"
            );
        }
        written => written?,
    }
    Ok(epoch)
}

fn leader_change(node_id: i32) -> (ControlRecordType, Bytes) {
    let voter = Voter { voter_id: node_id, ..Voter::default() };
    let message = LeaderChangeMessage {
        version: 0,
        leader_id: node_id,
        voters: vec![voter.clone()],
        granting_voters: vec![voter],
    };
    (ControlRecordType::LeaderChange, message.to_bytes(0).expect("version 0 holds all that is set"))
}

/// The only voter.
fn voters(node_id: i32, directory_id: Uuid, endpoints: &[Endpoint]) -> VotersRecord {
    let endpoints = endpoints.iter().map(|endpoint| VoterEndpoint {
        name: endpoint.listener.clone(),
        host: endpoint.host.clone(),
        port: endpoint.port,
    });
    let voter = VotersRecordVoter {
        voter_id: node_id,
        voter_directory_id: directory_id,
        endpoints: endpoints.collect(),
        k_raft_version_feature: KRaftVersionFeature { min_supported_version: 0, max_supported_version: 1 },
    };
    VotersRecord { version: 0, voters: vec![voter] }
}
