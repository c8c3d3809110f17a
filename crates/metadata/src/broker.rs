//! The registrations of brokers and controllers.

use crate::{
    BrokerEpoch, BrokerId, DIRECTORY_FULL, DIRECTORY_LOST, MetadataVersion, PartitionRegistration,
    ReplayError, VersionedRecord,
};
use std::collections::BTreeMap;
use thalweg_wire::metadata::register_broker_record::{BrokerEndpoint, BrokerFeature};
use thalweg_wire::metadata::register_controller_record::{ControllerEndpoint, ControllerFeature};
use thalweg_wire::metadata::{
    BrokerRegistrationChangeRecord, RegisterBrokerRecord, RegisterControllerRecord,
};
use thalweg_wire::{MetadataRecord, Uuid};

/// Where a node listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// The name of the listener.
    pub listener: String,
    /// Host name or address, as advertised.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Kafka's id: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    pub security_protocol: i16,
}

/// The levels of a feature that a node supports, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VersionRange {
    /// The lowest.
    pub min: i16,
    /// The highest.
    pub max: i16,
}

impl VersionRange {
    /// The support of a node for a feature that it does not list.
    pub const DISABLED: VersionRange = VersionRange { min: 0, max: 0 };

    /// Whether a level is in the range.
    pub fn contains(self, level: i16) -> bool {
        (self.min..=self.max).contains(&level)
    }
}

/// A broker as it registered, and whether it is fenced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokerRegistration {
    /// Its node id.
    pub id: BrokerId,
    /// The epoch of this registration.
    pub epoch: BrokerEpoch,
    /// The id of the process.
    pub incarnation_id: Uuid,
    /// Its listeners, in the order of their names.
    pub endpoints: Vec<Endpoint>,
    /// Supported levels, by the name of the feature.
    pub features: BTreeMap<String, VersionRange>,
    /// Its rack.
    pub rack: Option<String>,
    /// Whether it is fenced: it leads nothing and clients do not see it.
    pub fenced: bool,
    /// Whether it is shutting down.
    pub in_controlled_shutdown: bool,
    /// Whether it was a broker of a ZooKeeper cluster; kept to preserve records.
    pub is_migrating_zk_broker: bool,
    /// Its online log directories, sorted.
    pub directories: Vec<Uuid>,
    /// The log directories that get no new replicas; `None` until the broker has reported them.
    pub cordoned_directories: Option<Vec<Uuid>>,
}

impl BrokerRegistration {
    /// The registration that a record creates.
    pub fn from_record(record: &RegisterBrokerRecord) -> BrokerRegistration {
        let mut directories = record.log_dirs.clone();
        directories.sort_unstable();
        let mut endpoints: Vec<Endpoint> = record
            .end_points
            .iter()
            .map(|e| Endpoint {
                listener: e.name.clone(),
                host: e.host.clone(),
                port: e.port,
                security_protocol: e.security_protocol,
            })
            .collect();
        endpoints.sort_by(|a, b| a.listener.cmp(&b.listener));
        let range =
            |f: &BrokerFeature| VersionRange { min: f.min_supported_version, max: f.max_supported_version };
        BrokerRegistration {
            id: BrokerId(record.broker_id),
            epoch: BrokerEpoch(record.broker_epoch),
            incarnation_id: record.incarnation_id,
            endpoints,
            features: record.features.iter().map(|f| (f.name.clone(), range(f))).collect(),
            rack: record.rack.clone(),
            fenced: record.fenced,
            in_controlled_shutdown: record.in_controlled_shutdown,
            is_migrating_zk_broker: record.is_migrating_zk_broker,
            directories,
            cordoned_directories: record.cordoned_log_dirs.clone(),
        }
    }

    /// The record that creates this registration.
    pub fn to_record(&self, version: MetadataVersion) -> VersionedRecord {
        let record_version = version.register_broker_record();
        let record = RegisterBrokerRecord {
            broker_id: self.id.0,
            is_migrating_zk_broker: record_version >= 2 && self.is_migrating_zk_broker,
            incarnation_id: self.incarnation_id,
            broker_epoch: self.epoch.0,
            end_points: self.endpoints.iter().map(broker_endpoint).collect(),
            features: self
                .features
                .iter()
                .map(|(name, range)| BrokerFeature {
                    name: name.clone(),
                    min_supported_version: range.min,
                    max_supported_version: range.max,
                })
                .collect(),
            rack: self.rack.clone(),
            fenced: self.fenced,
            in_controlled_shutdown: self.in_controlled_shutdown,
            log_dirs: if record_version >= 3 { self.directories.clone() } else { Vec::new() },
            cordoned_log_dirs: if record_version >= 4 { self.cordoned_directories.clone() } else { None },
        };
        VersionedRecord::new(MetadataRecord::RegisterBroker(record), record_version)
    }

    /// The registration after a change of it.
    pub(crate) fn merge(
        &self,
        record: &BrokerRegistrationChangeRecord,
    ) -> Result<BrokerRegistration, ReplayError> {
        let mut next = self.clone();
        match record.fenced {
            -1 => next.fenced = false,
            0 => {}
            1 => next.fenced = true,
            value => return Err(ReplayError::BrokerChange { broker: self.id, field: "fenced", value }),
        }
        match record.in_controlled_shutdown {
            0 => {}
            1 => next.in_controlled_shutdown = true,
            value => {
                let field = "inControlledShutdown";
                return Err(ReplayError::BrokerChange { broker: self.id, field, value });
            }
        }
        if !record.log_dirs.is_empty() {
            next.directories = record.log_dirs.clone();
            next.directories.sort_unstable();
        }
        if let Some(cordoned) = &record.cordoned_log_dirs {
            next.cordoned_directories = Some(cordoned.clone());
        }
        Ok(next)
    }

    /// Where it listens under a name.
    pub fn endpoint(&self, listener: &str) -> Option<&Endpoint> {
        self.endpoints.iter().find(|e| e.listener == listener)
    }

    /// Whether it may lead: neither fenced nor shutting down.
    pub fn is_active(&self) -> bool {
        !self.fenced && !self.in_controlled_shutdown
    }

    /// Whether a directory is one of its online ones. Reserved ids other than "lost" and "full" count as online, and so does
    /// every directory of a broker that has reported none.
    pub fn has_online_directory(&self, directory: Uuid) -> bool {
        if directory == DIRECTORY_LOST || directory == DIRECTORY_FULL {
            return false;
        }
        directory.is_reserved() || self.directories.is_empty() || self.directories.contains(&directory)
    }

    /// Whether its replica of a partition is in an online directory, as far as directories are known.
    pub fn has_online_replica(&self, partition: &PartitionRegistration) -> bool {
        partition.directory(self.id).is_none_or(|directory| self.has_online_directory(directory))
    }

    /// Whether a directory accepts new replicas.
    pub fn has_uncordoned_directory(&self) -> bool {
        match &self.cordoned_directories {
            None => true,
            Some(_) if self.directories.is_empty() => true,
            Some(cordoned) => self.directories.iter().any(|directory| !cordoned.contains(directory)),
        }
    }
}

fn broker_endpoint(e: &Endpoint) -> BrokerEndpoint {
    BrokerEndpoint {
        name: e.listener.clone(),
        host: e.host.clone(),
        port: e.port,
        security_protocol: e.security_protocol,
    }
}

/// A controller as it registered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControllerRegistration {
    /// Its node id.
    pub id: i32,
    /// The id of the process.
    pub incarnation_id: Uuid,
    /// Whether it was ready to take over from ZooKeeper; kept to preserve records.
    pub zk_migration_ready: bool,
    /// Its listeners, in the order of their names.
    pub endpoints: Vec<Endpoint>,
    /// Supported levels, by the name of the feature.
    pub features: BTreeMap<String, VersionRange>,
}

impl ControllerRegistration {
    /// The registration that a record creates.
    pub fn from_record(record: &RegisterControllerRecord) -> ControllerRegistration {
        let mut endpoints: Vec<Endpoint> = record
            .end_points
            .iter()
            .map(|e| Endpoint {
                listener: e.name.clone(),
                host: e.host.clone(),
                port: e.port,
                security_protocol: e.security_protocol,
            })
            .collect();
        endpoints.sort_by(|a, b| a.listener.cmp(&b.listener));
        let range = |f: &ControllerFeature| VersionRange {
            min: f.min_supported_version,
            max: f.max_supported_version,
        };
        ControllerRegistration {
            id: record.controller_id,
            incarnation_id: record.incarnation_id,
            zk_migration_ready: record.zk_migration_ready,
            endpoints,
            features: record.features.iter().map(|f| (f.name.clone(), range(f))).collect(),
        }
    }

    /// The record that creates this registration.
    pub fn to_record(&self) -> VersionedRecord {
        let record = RegisterControllerRecord {
            controller_id: self.id,
            incarnation_id: self.incarnation_id,
            zk_migration_ready: self.zk_migration_ready,
            end_points: self
                .endpoints
                .iter()
                .map(|e| ControllerEndpoint {
                    name: e.listener.clone(),
                    host: e.host.clone(),
                    port: e.port,
                    security_protocol: e.security_protocol,
                })
                .collect(),
            features: self
                .features
                .iter()
                .map(|(name, range)| ControllerFeature {
                    name: name.clone(),
                    min_supported_version: range.min,
                    max_supported_version: range.max,
                })
                .collect(),
        };
        VersionedRecord::new(MetadataRecord::RegisterController(record), 0)
    }
}
