//! Features of a new cluster, and UpdateFeatures.

use std::collections::BTreeMap;

use thalweg_metadata::{MetadataVersion, VersionRange, VersionedRecord, feature};
use thalweg_security::acl::Operation::Alter;
use thalweg_wire::metadata::{
    AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord, FeatureLevelRecord,
};
use thalweg_wire::request::update_features_request::FeatureUpdateKey;
use thalweg_wire::request::update_features_response::UpdatableFeatureResult;
use thalweg_wire::request::{UpdateFeaturesRequest, UpdateFeaturesResponse};
use thalweg_wire::{ErrorCode, MetadataRecord};

use super::entry::Access::Cluster;
use super::entry::{Api, Call, Decide};
use super::{ApiError, Moment, Outcome, RECORDS_PER_REQUEST_MAX, State};

pub(super) const APIS: &[Api] = &[Api::new::<UpdateFeaturesRequest>(Cluster(Alter)).forwarded()];

impl Decide for UpdateFeaturesRequest {
    fn decide(&self, state: &mut State, call: &Call, _: Moment) -> Result<Outcome<Self::Response>, ApiError> {
        state.update_features(self, call.version)
    }
}

const UPGRADE: i8 = 1;
const SAFE_DOWNGRADE: i8 = 2;
const UNSAFE_DOWNGRADE: i8 = 3;

/// The minimum metadata version of a new cluster, 3.9-IV0, which `kraft.version` 1 needs.
const FIRST_BEGUN: i16 = 21;

/// Prefix of one feature's reason.
const ALL_OR_NONE: &str = "The update failed for all features since the following feature had an error: ";

fn feature_level(name: &str, feature_level: i16) -> VersionedRecord {
    let record = FeatureLevelRecord { name: name.to_owned(), feature_level };
    VersionedRecord::new(MetadataRecord::FeatureLevel(record), 0)
}

/// The feature levels of a new unformatted cluster, as `kafka-storage format` would write them.
pub(super) fn of_new_cluster(others: &BTreeMap<String, i16>) -> Vec<VersionedRecord> {
    let first = feature_level(feature::METADATA_VERSION, MetadataVersion::LATEST.level());
    let others = others.iter().map(|(name, level)| feature_level(name, *level));
    std::iter::once(first).chain(others).collect()
}

fn turns_elr_on(record: &VersionedRecord) -> bool {
    let MetadataRecord::FeatureLevel(record) = &record.record else { return false };
    record.name == feature::ELIGIBLE_LEADER_REPLICAS_VERSION && record.feature_level > 0
}

impl State {
    /// The first records of a new cluster.
    pub fn bootstrap_records(&self) -> Vec<VersionedRecord> {
        self.bootstrap.clone()
    }

    /// Uses the records of `kafka-storage format`: features and credentials. Returns the features that are
    /// left out because they are not served. Fails for a metadata version that new clusters cannot have.
    pub fn begin_with(&mut self, formatted: Vec<MetadataRecord>) -> Result<Vec<(String, i16)>, i16> {
        let mut left_off = Vec::new();
        let mut records = Vec::with_capacity(formatted.len());
        let mut version = None;
        for record in formatted {
            match &record {
                MetadataRecord::FeatureLevel(finalized) if finalized.name == feature::METADATA_VERSION => {
                    version = Some(finalized.feature_level);
                }
                MetadataRecord::FeatureLevel(finalized) if !self.serves(finalized) => {
                    left_off.push((finalized.name.clone(), finalized.feature_level));
                    continue;
                }
                _ => {}
            }
            records.push(VersionedRecord::new(record, 0));
        }
        match version {
            None => {
                records.insert(0, feature_level(feature::METADATA_VERSION, MetadataVersion::LATEST.level()))
            }
            Some(level) if !(FIRST_BEGUN..=MetadataVersion::LATEST.level()).contains(&level) => {
                return Err(level);
            }
            Some(_) => {}
        }
        self.bootstrap = records;
        Ok(left_off)
    }

    fn serves(&self, finalized: &FeatureLevelRecord) -> bool {
        let range = self.supported_features.get(&finalized.name).copied().unwrap_or(VersionRange::DISABLED);
        range.contains(finalized.feature_level)
    }

    /// The first records of a new leader: the features of a new cluster, in a transaction, or the end of a
    /// transaction that an earlier controller left open.
    pub fn activation_records(&self, open_transaction: bool) -> Vec<VersionedRecord> {
        let mut records = Vec::new();
        let mut push = |record| records.push(VersionedRecord::new(record, 0));
        if open_transaction {
            let reason = Some("Controller failover".to_owned());
            push(MetadataRecord::AbortTransaction(AbortTransactionRecord { reason }));
        }
        if self.image.features().metadata_version().is_none() {
            let name = Some("Bootstrap records".to_owned());
            push(MetadataRecord::BeginTransaction(BeginTransactionRecord { name }));
            records.extend(self.bootstrap_records());
            if self.bootstrap.iter().any(turns_elr_on) {
                records.extend(self.elr_safety_records());
            }
            let end = MetadataRecord::EndTransaction(EndTransactionRecord::default());
            records.push(VersionedRecord::new(end, 0));
        }
        records
    }

    pub fn update_features(
        &self,
        request: &UpdateFeaturesRequest,
        version: i16,
    ) -> Result<Outcome<UpdateFeaturesResponse>, ApiError> {
        let mut records = Vec::new();
        // The last of several updates of a feature counts, as in Kafka.
        let updates: BTreeMap<&str, &FeatureUpdateKey> =
            request.feature_updates.iter().map(|update| (&*update.feature, update)).collect();
        let requested = updates.get(feature::METADATA_VERSION);
        let proposed = requested.map_or(self.metadata_version().level(), |u| u.max_version_level);
        for update in updates.values() {
            let updated = self.update_feature(update, proposed, version).map_err(|error| ApiError {
                message: error.message.map(|why| format!("{ALL_OR_NONE}{why}")),
                ..error
            });
            records.extend(updated?);
            if records.len() > RECORDS_PER_REQUEST_MAX {
                return Err(super::too_many_records());
            }
        }
        let on = |update: &FeatureUpdateKey| {
            update.feature == feature::ELIGIBLE_LEADER_REPLICAS_VERSION && update.max_version_level > 0
        };
        if updates.values().any(|update| on(update)) {
            records.splice(0..0, self.elr_safety_records());
        }
        if request.validate_only {
            records.clear();
        }
        // From version 2 on, success is reported once for all features.
        let results = match version {
            2.. => Vec::new(),
            _ => updates
                .values()
                .map(|update| UpdatableFeatureResult {
                    feature: update.feature.clone(),
                    ..Default::default()
                })
                .collect(),
        };
        let response = UpdateFeaturesResponse { error_message: None, results, ..Default::default() };
        Ok(Outcome::new(records, response))
    }

    fn update_feature(
        &self,
        update: &FeatureUpdateKey,
        proposed: i16,
        version: i16,
    ) -> Result<Option<VersionedRecord>, ApiError> {
        let (name, level) = (update.feature.as_str(), update.max_version_level);
        let refuse = |why: String| {
            let message = format!("Invalid update version {level} for feature {name}. {why}");
            Err(ApiError::new(ErrorCode::InvalidUpdateVersion, message))
        };
        let kind = match version {
            0 if update.allow_downgrade => SAFE_DOWNGRADE,
            0 => UPGRADE,
            _ => update.upgrade_type,
        };
        if !(UPGRADE..=UNSAFE_DOWNGRADE).contains(&kind) {
            return refuse("The controller does not support the given upgrade type.".to_owned());
        }
        if level < 0 {
            return refuse("A feature version cannot be less than 0.".to_owned());
        }
        if let Some(why) = self.reason_not_supported(name, level) {
            return refuse(why);
        }
        let current = self.finalized_features().get(name).copied().unwrap_or(0);
        if level < current && kind == UPGRADE {
            return refuse(
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or \
                 unsafe downgrade."
                    .to_owned(),
            );
        }
        if level > current && kind != UPGRADE {
            return refuse("Can't downgrade to a newer version.".to_owned());
        }
        match name {
            feature::METADATA_VERSION => self.update_metadata_version(level, kind).map(Some),
            feature::KRAFT_VERSION if level == current => Ok(None),
            // A higher level would require recorded voters, which only a quorum of several nodes needs.
            feature::KRAFT_VERSION => {
                refuse("The version of this quorum is what it was formatted with.".to_owned())
            }
            feature::ELIGIBLE_LEADER_REPLICAS_VERSION if level > 0 => {
                let needed = MetadataVersion::WITH_ELIGIBLE_LEADER_REPLICAS.level();
                if proposed < needed {
                    return refuse(format!(
                        "{name} could not be set to {level} because it depends on metadata.version level {needed}"
                    ));
                }
                Ok(Some(feature_level(name, level)))
            }
            _ if !self.supported_features.contains_key(name) => refuse(format!("Feature {name} not found.")),
            _ => Ok(Some(feature_level(name, level))),
        }
    }

    fn update_metadata_version(&self, level: i16, kind: i8) -> Result<VersionedRecord, ApiError> {
        let current = self.metadata_version();
        let Some(new) = MetadataVersion::from_level(level) else {
            let message = format!(
                "Invalid metadata.version {level}. Valid versions are from {} to {}.",
                MetadataVersion::MINIMUM.level(),
                MetadataVersion::LATEST.level()
            );
            return Err(ApiError::new(ErrorCode::InvalidUpdateVersion, message));
        };
        if new < current && MetadataVersion::metadata_changes_between(new, current) {
            let why = if kind == UNSAFE_DOWNGRADE {
                "Unsafe metadata downgrade is not supported in this version."
            } else {
                "Refusing to perform the requested downgrade because it might delete metadata information."
            };
            let message = format!(
                "Unsupported metadata.version downgrade from {} to {}. {why}",
                current.level(),
                new.level()
            );
            return Err(ApiError::new(ErrorCode::InvalidUpdateVersion, message));
        }
        Ok(feature_level(feature::METADATA_VERSION, level))
    }

    fn reason_not_supported(&self, name: &str, level: i16) -> Option<String> {
        let why = |what: String, range: Option<&VersionRange>| match range {
            Some(range) if range.contains(level) => None,
            None if level == 0 => None,
            None => Some(format!("{what} does not support this feature.")),
            Some(range) => Some(format!("{what} only supports versions {}-{}", range.min, range.max)),
        };
        let local = why(format!("Local controller {}", self.node_id), self.supported_features.get(name));
        let brokers = self.image.cluster().brokers.values();
        local.or_else(|| {
            brokers.into_iter().find_map(|b| why(format!("Broker {}", b.id), b.features.get(name)))
        })
    }
}
