//! Registration, heartbeats and shutdown of brokers (Kafka's `ClusterControlManager`).

use std::collections::BTreeSet;

use thalweg_metadata::{
    BrokerEpoch, BrokerId, BrokerRegistration, ControllerRegistration, VersionRange, VersionedRecord, feature,
};
use thalweg_security::acl::Operation::{Alter, ClusterAction};
use thalweg_wire::metadata::register_broker_record::{BrokerEndpoint, BrokerFeature};
use thalweg_wire::metadata::{BrokerRegistrationChangeRecord, RegisterBrokerRecord, UnregisterBrokerRecord};
use thalweg_wire::request::{
    BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationRequest, BrokerRegistrationResponse,
    UnregisterBrokerRequest, UnregisterBrokerResponse,
};
use thalweg_wire::{ErrorCode, MetadataRecord, Uuid};

use super::elections::{RegistrationChange, ReturningBroker};
use super::entry::Access::Cluster;
use super::entry::{Api, Call, Decide};
use super::heartbeats::{BrokerState, Wish};
use super::{ApiError, Claim, Moment, Outcome, State};

pub(super) const APIS: &[Api] = &[
    Api::new::<BrokerRegistrationRequest>(Cluster(ClusterAction)).in_batches().claiming(Claim::Urgent),
    Api::new::<BrokerHeartbeatRequest>(Cluster(ClusterAction)).in_batches().claiming(Claim::Urgent),
    Api::new::<UnregisterBrokerRequest>(Cluster(Alter)).in_batches().forwarded(),
];

impl Decide for BrokerRegistrationRequest {
    fn decide(&self, state: &mut State, _: &Call, now: Moment) -> Result<Outcome<Self::Response>, ApiError> {
        state.register_broker(self, now)
    }
}

impl Decide for BrokerHeartbeatRequest {
    fn decide(&self, state: &mut State, _: &Call, now: Moment) -> Result<Outcome<Self::Response>, ApiError> {
        state.broker_heartbeat(self, now)
    }
}

impl Decide for UnregisterBrokerRequest {
    fn decide(&self, state: &mut State, _: &Call, _: Moment) -> Result<Outcome<Self::Response>, ApiError> {
        state.unregister_broker(self)
    }
}

/// The epoch of an unregistered broker: not even -1, which a broker sends if it does not know its previous
/// epoch.
const NOT_REGISTERED: BrokerEpoch = BrokerEpoch(-2);

/// Sessions that have ended.
pub(crate) struct Fencing {
    pub records: Vec<VersionedRecord>,
    /// Number of fenced brokers.
    pub brokers: usize,
}

impl State {
    pub fn register_broker(
        &mut self,
        request: &BrokerRegistrationRequest,
        now: Moment,
    ) -> Result<Outcome<BrokerRegistrationResponse>, ApiError> {
        if request.cluster_id != self.cluster_id {
            let message =
                format!("Expected cluster ID {}, but got cluster ID {}", self.cluster_id, request.cluster_id);
            return Err(ApiError::new(ErrorCode::InconsistentClusterId, message));
        }
        let existing = self.image.broker(BrokerId(request.broker_id)).cloned();
        let same_process = existing.as_ref().is_some_and(|b| b.incarnation_id == request.incarnation_id);
        if let Some(existing) = &existing
            && !same_process
            && self.heartbeats.has_valid_session(existing.id, existing.epoch, now)
        {
            let message = "Another broker is registered with that broker id. If the broker was recently restarted \
                           this should self-resolve once the heartbeat manager expires the broker's session.";
            return Err(ApiError::new(ErrorCode::DuplicateBrokerRegistration, message));
        }
        if request.is_migrating_zk_broker {
            let message = "Controller does not support registering ZK brokers.";
            return Err(ApiError::new(ErrorCode::BrokerIdNotRegistered, message));
        }
        self.check_directories(request)?;
        let mut records = Vec::new();
        let mut record = self.registration_record(request)?;
        let registered = existing.clone();
        match existing.filter(|_| same_process) {
            Some(existing) => {
                record.fenced = existing.fenced;
                record.in_controlled_shutdown = existing.in_controlled_shutdown;
                record.broker_epoch = existing.epoch.0;
                // Heartbeats report failed directories. A directory that returned by registration would get
                // no elections.
                if !existing.directories.is_empty() && !record.log_dirs.is_empty() {
                    record.log_dirs.clone_from(&existing.directories);
                }
            }
            None => {
                // First the earlier process loses its leaderships.
                let returning = self.returning(request, registered.as_deref());
                self.note_suspect(&returning);
                self.leader_and_isr_updates(RegistrationChange::Returns(&returning), &mut records);
                record.broker_epoch = self.next_offset;
            }
        }
        let broker_epoch = record.broker_epoch;
        let version = self.metadata_version().register_broker_record();
        records.push(VersionedRecord::new(MetadataRecord::RegisterBroker(record), version));
        Ok(Outcome::new(records, BrokerRegistrationResponse { broker_epoch, ..Default::default() }))
    }

    /// Compares a new process with the one registered before.
    fn returning(
        &self,
        request: &BrokerRegistrationRequest,
        before: Option<&BrokerRegistration>,
    ) -> ReturningBroker {
        let epoch = before.map_or(NOT_REGISTERED, |before| before.epoch);
        let has_directories = self.metadata_version().has_directories();
        let directories = if has_directories { request.log_dirs.clone() } else { Vec::new() };
        let is_missing = |directory: &Uuid| !directories.contains(directory);
        let lacks_directory =
            has_directories && before.is_some_and(|before| before.directories.iter().any(is_missing));
        ReturningBroker {
            broker: BrokerId(request.broker_id),
            unclean: epoch != BrokerEpoch(request.previous_broker_epoch),
            directories,
            lacks_directory,
        }
    }

    fn check_directories(&self, request: &BrokerRegistrationRequest) -> Result<(), ApiError> {
        if !self.metadata_version().has_directories() {
            return Ok(());
        }
        let refuse = |message: String| Err(ApiError::new(ErrorCode::InvalidRegistration, message));
        if request.log_dirs.is_empty() {
            return refuse("No directories specified in request".to_owned());
        }
        if request.log_dirs.iter().any(|directory| directory.is_reserved()) {
            return refuse("Reserved directory ID in request".to_owned());
        }
        let set: BTreeSet<Uuid> = request.log_dirs.iter().copied().collect();
        if set.len() != request.log_dirs.len() {
            return refuse("Duplicate directory ID in request".to_owned());
        }
        for broker in self.image.cluster().brokers.values().filter(|b| b.id.0 != request.broker_id) {
            if let Some(taken) = broker.directories.iter().find(|directory| set.contains(directory)) {
                return refuse(format!("Broker {} is already registered with directory {taken}", broker.id));
            }
        }
        Ok(())
    }

    fn registration_record(
        &self,
        request: &BrokerRegistrationRequest,
    ) -> Result<RegisterBrokerRecord, ApiError> {
        if request.listeners.is_empty() || request.listeners.iter().any(|listener| listener.name.is_empty()) {
            let message = "Broker listeners must be named.";
            return Err(ApiError::new(ErrorCode::InvalidRegistration, message));
        }
        for feature in &request.features {
            let range =
                VersionRange { min: feature.min_supported_version, max: feature.max_supported_version };
            self.check_feature(&feature.name, range)?;
        }
        let listed = |name: &str| request.features.iter().any(|feature| feature.name == name);
        if !listed(feature::METADATA_VERSION) {
            let message = "Request features do not contain 'metadata.version'";
            return Err(ApiError::new(ErrorCode::InvalidRegistration, message));
        }
        for name in self.finalized_features().keys().filter(|name| !listed(name)) {
            self.check_feature(name, VersionRange::DISABLED)?;
        }
        let has_directories = self.metadata_version().has_directories();
        Ok(RegisterBrokerRecord {
            broker_id: request.broker_id,
            is_migrating_zk_broker: false,
            incarnation_id: request.incarnation_id,
            broker_epoch: -1,
            end_points: request
                .listeners
                .iter()
                .map(|listener| BrokerEndpoint {
                    name: listener.name.clone(),
                    host: listener.host.clone(),
                    port: listener.port,
                    security_protocol: listener.security_protocol,
                })
                .collect(),
            features: request
                .features
                .iter()
                .map(|feature| BrokerFeature {
                    name: feature.name.clone(),
                    min_supported_version: feature.min_supported_version,
                    max_supported_version: feature.max_supported_version,
                })
                .collect(),
            rack: request.rack.clone(),
            fenced: true,
            in_controlled_shutdown: false,
            log_dirs: if has_directories { request.log_dirs.clone() } else { Vec::new() },
            cordoned_log_dirs: None,
        })
    }

    /// Checks that a node with this supported range of a feature can join.
    fn check_feature(&self, name: &str, range: VersionRange) -> Result<(), ApiError> {
        let finalized = self.finalized_features().get(name).copied().unwrap_or(0);
        if range.contains(finalized) {
            return Ok(());
        }
        let message = format!(
            "Unable to register because the broker does not support finalized version {finalized} of {name}. The \
             broker wants a version between {} and {}, inclusive.",
            range.min, range.max
        );
        Err(ApiError::new(ErrorCode::UnsupportedVersion, message))
    }

    /// The registration of a broker, if its epoch is current.
    pub(super) fn check_broker_epoch(
        &self,
        broker: BrokerId,
        epoch: i64,
    ) -> Result<std::sync::Arc<BrokerRegistration>, ApiError> {
        let stale = |message| ApiError::new(ErrorCode::StaleBrokerEpoch, message);
        match self.image.broker(broker) {
            None => Err(stale(format!("No broker registration found for broker id {broker}"))),
            Some(registration) if registration.epoch != BrokerEpoch(epoch) => {
                let expected = registration.epoch;
                Err(stale(format!("Expected broker epoch {expected}, but got broker epoch {epoch}")))
            }
            Some(registration) => Ok(registration.clone()),
        }
    }

    pub fn broker_heartbeat(
        &mut self,
        request: &BrokerHeartbeatRequest,
        now: Moment,
    ) -> Result<Outcome<BrokerHeartbeatResponse>, ApiError> {
        let id = BrokerId(request.broker_id);
        let registration = self.check_broker_epoch(id, request.broker_epoch)?;
        self.heartbeats.touch(id, registration.epoch, now);
        if !registration.in_controlled_shutdown {
            // The earlier decision to let the broker leave could not be written.
            self.heartbeats.cancel_shutdown(id);
        }
        let registered_at = self.registered_at.get(&id).copied().unwrap_or(registration.epoch.0);
        let wish = Wish {
            metadata_offset: request.current_metadata_offset,
            want_fence: request.want_fence,
            want_shut_down: request.want_shut_down,
        };
        let current = self.heartbeats.current(id);
        let next = self.heartbeats.next(id, wish, registered_at, || self.has_leaderships(id));
        // Directories first: a broker that is unfenced by this request must not lead partitions in a lost
        // one.
        let mut records = self.directory_changes(&registration, request);
        if next != current {
            // Records that do not fit are reported when they are prepared.
            let moved = self.staged(&records, |state| state.state_change(&registration, next));
            records.extend(moved.unwrap_or_default());
        }
        self.heartbeats.set_metadata_offset(id, request.current_metadata_offset);
        if next == BrokerState::ControlledShutdown {
            let count = i64::try_from(records.len()).expect("a request makes a bounded number of records");
            self.heartbeats.begin_shutdown(id, self.next_offset + count - 1);
        }
        if next == BrokerState::ShutdownNow {
            self.heartbeats.let_go(id);
        }
        let response = BrokerHeartbeatResponse {
            is_caught_up: request.current_metadata_offset >= registered_at,
            is_fenced: next.is_fenced(),
            should_shut_down: next == BrokerState::ShutdownNow,
            ..Default::default()
        };
        Ok(Outcome::new(records, response))
    }

    fn state_change(&self, registration: &BrokerRegistration, next: BrokerState) -> Vec<VersionedRecord> {
        let mut records = Vec::new();
        match next {
            BrokerState::Fenced | BrokerState::ShutdownNow => {
                self.fence_records(&[registration], &mut records)
            }
            BrokerState::Unfenced => {
                records.push(registration_change(registration, 0, |change| change.fenced = -1));
                self.leader_and_isr_updates(RegistrationChange::Comes(registration.id), &mut records);
            }
            BrokerState::ControlledShutdown => {
                if !registration.in_controlled_shutdown {
                    let change = registration_change(registration, 1, |c| c.in_controlled_shutdown = 1);
                    records.push(change);
                }
                self.leader_and_isr_updates(RegistrationChange::Leave(&[registration.id]), &mut records);
            }
        }
        records
    }

    /// Fences all brokers together, so that none of them becomes leader in place of another.
    fn fence_records(&self, registrations: &[&BrokerRegistration], records: &mut Vec<VersionedRecord>) {
        let ids: Vec<BrokerId> = registrations.iter().map(|registration| registration.id).collect();
        self.leader_and_isr_updates(RegistrationChange::Leave(&ids), records);
        for registration in registrations.iter().filter(|registration| !registration.fenced) {
            records.push(registration_change(registration, 0, |change| change.fenced = 1));
        }
    }

    fn directory_changes(
        &self,
        registration: &BrokerRegistration,
        request: &BrokerHeartbeatRequest,
    ) -> Vec<VersionedRecord> {
        let mut records = Vec::new();
        let version = self.metadata_version();
        let lost: BTreeSet<Uuid> = request.offline_log_dirs.iter().copied().collect();
        let offline = |directory: &Uuid| lost.contains(directory);
        if version.has_directories() && registration.directories.iter().any(offline) {
            for directory in registration.directories.iter().filter(|directory| offline(directory)) {
                self.updates_for_directory(registration.id, *directory, &mut records);
            }
            let online =
                registration.directories.iter().copied().filter(|directory| !offline(directory)).collect();
            records.push(registration_change(registration, 2, |change| change.log_dirs = online));
        }
        if version.has_cordoned_directories()
            && let Some(cordoned) = &request.cordoned_log_dirs
            && registration.cordoned_directories.as_ref() != Some(cordoned)
        {
            let cordoned = cordoned.clone();
            records.push(registration_change(registration, 3, |change| {
                change.cordoned_log_dirs = Some(cordoned)
            }));
        }
        records
    }

    /// The records that fence brokers with expired sessions; `None` if there are none. Sessions that expire
    /// at about the same time are fenced together: the order of the last heartbeats does not show which
    /// replica is better.
    pub fn fence_stale_brokers(&mut self, now: Moment) -> Option<Fencing> {
        let ids = self.heartbeats.stale(now);
        if !ids.is_empty() {
            self.forget_suspects();
        }
        let stale: Vec<_> = ids
            .iter()
            .map(|id| self.image.broker(*id).expect("a broker with a session is registered").as_ref())
            .collect();
        for registration in &stale {
            tracing::info!(
                broker = registration.id.0,
                epoch = registration.epoch.0,
                "Fenced a broker whose session expired"
            );
        }
        let mut records = Vec::new();
        self.fence_records(&stale, &mut records);
        (!stale.is_empty()).then(|| Fencing { records, brokers: stale.len() })
    }

    pub fn unregister_broker(
        &self,
        request: &UnregisterBrokerRequest,
    ) -> Result<Outcome<UnregisterBrokerResponse>, ApiError> {
        let id = BrokerId(request.broker_id);
        let Some(registration) = self.image.broker(id) else {
            let message = format!("Broker ID {id} is not currently registered");
            return Err(ApiError::new(ErrorCode::BrokerIdNotRegistered, message));
        };
        let mut records = Vec::new();
        self.leader_and_isr_updates(RegistrationChange::Leave(&[id]), &mut records);
        let record = UnregisterBrokerRecord { broker_id: id.0, broker_epoch: registration.epoch.0 };
        records.push(VersionedRecord::new(MetadataRecord::UnregisterBroker(record), 0));
        Ok(Outcome::new(records, UnregisterBrokerResponse::default()))
    }

    /// The record by which this controller registers itself.
    pub fn register_controller(
        &self,
        incarnation_id: Uuid,
        endpoints: Vec<thalweg_metadata::Endpoint>,
    ) -> VersionedRecord {
        ControllerRegistration {
            id: self.node_id,
            incarnation_id,
            zk_migration_ready: false,
            endpoints,
            features: self.supported_features.clone(),
        }
        .to_record()
    }
}

fn registration_change(
    registration: &BrokerRegistration,
    version: i16,
    set: impl FnOnce(&mut BrokerRegistrationChangeRecord),
) -> VersionedRecord {
    let mut record = BrokerRegistrationChangeRecord {
        broker_id: registration.id.0,
        broker_epoch: registration.epoch.0,
        ..Default::default()
    };
    set(&mut record);
    VersionedRecord::new(MetadataRecord::BrokerRegistrationChange(record), version)
}
