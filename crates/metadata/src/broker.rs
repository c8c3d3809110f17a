//! Registrations of brokers and controllers.

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

/// A listener endpoint of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// The listener name.
    pub listener: String,
    /// The advertised host name or address.
    pub host: String,
    /// The advertised port.
    pub port: u16,
    /// The security protocol code: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    pub security_protocol: i16,
}

/// The range of supported levels of a feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VersionRange {
    /// The lowest level.
    pub min: i16,
    /// The highest level.
    pub max: i16,
}

impl VersionRange {
    /// The range of a feature that a node does not list.
    pub const DISABLED: VersionRange = VersionRange { min: 0, max: 0 };

    /// True if a level is in the range.
    pub fn contains(self, level: i16) -> bool {
        (self.min..=self.max).contains(&level)
    }
}

/// The registration of a broker, with its fencing state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokerRegistration {
    /// The node id.
    pub id: BrokerId,
    /// The broker epoch of this registration.
    pub epoch: BrokerEpoch,
    /// The incarnation id of the process.
    pub incarnation_id: Uuid,
    /// The listener endpoints, sorted by listener name.
    pub endpoints: Vec<Endpoint>,
    /// Supported levels by feature name.
    pub features: BTreeMap<String, VersionRange>,
    /// The rack of the broker.
    pub rack: Option<String>,
    /// True for a fenced broker, which leads no partition and is hidden from clients.
    pub fenced: bool,
    /// True during a controlled shutdown.
    pub in_controlled_shutdown: bool,
    /// True if the broker is migrating from ZooKeeper. Kept to preserve records.
    pub is_migrating_zk_broker: bool,
    /// The online log directories, sorted.
    pub directories: Vec<Uuid>,
    /// Log directories closed to new replicas; `None` until the broker has reported them.
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

    /// The registration after a change record.
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

    /// The endpoint of a listener.
    pub fn endpoint(&self, listener: &str) -> Option<&Endpoint> {
        self.endpoints.iter().find(|e| e.listener == listener)
    }

    /// True if the broker may lead partitions: neither fenced nor shutting down.
    pub fn is_active(&self) -> bool {
        !self.fenced && !self.in_controlled_shutdown
    }

    /// True if a directory of this broker is online. Reserved ids except "lost" and "full" count as online,
    /// as do all directories of a broker that has reported none.
    pub fn has_online_directory(&self, directory: Uuid) -> bool {
        if directory == DIRECTORY_LOST || directory == DIRECTORY_FULL {
            return false;
        }
        directory.is_reserved() || self.directories.is_empty() || self.directories.contains(&directory)
    }

    /// True if this broker's replica of a partition is in an online or unknown directory.
    pub fn has_online_replica(&self, partition: &PartitionRegistration) -> bool {
        partition.directory(self.id).is_none_or(|directory| self.has_online_directory(directory))
    }

    /// True if at least one directory accepts new replicas.
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

/// The registration of a controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControllerRegistration {
    /// The node id.
    pub id: i32,
    /// The incarnation id of the process.
    pub incarnation_id: Uuid,
    /// True if the controller is ready for a ZooKeeper migration. Kept to preserve records.
    pub zk_migration_ready: bool,
    /// The listener endpoints, sorted by listener name.
    pub endpoints: Vec<Endpoint>,
    /// Supported levels by feature name.
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
