//! Conversion of an image to the records of a snapshot.

use crate::{ConfigResource, Image, MetadataVersion, VersionedRecord, feature};
use std::sync::Arc;
use thalweg_wire::MetadataRecord;
use thalweg_wire::metadata::client_quota_record::EntityData;
use thalweg_wire::metadata::{
    AccessControlEntryRecord, ClientQuotaRecord, ConfigRecord, DelegationTokenRecord, FeatureLevelRecord,
    ProducerIdsRecord, TopicRecord, UserScramCredentialRecord,
};

impl Image {
    /// The records that recreate this image from an empty one, with record versions of the image's metadata
    /// version, in the order of Kafka's snapshots. Values that the metadata version cannot express are
    /// omitted.
    pub fn to_records(&self) -> Vec<VersionedRecord> {
        let version = self.features.metadata_version().unwrap_or(MetadataVersion::MINIMUM);
        let mut records = Vec::with_capacity(64 + self.topics.len() + self.topics.partition_count());
        let mut push = |record: MetadataRecord| records.push(VersionedRecord::new(record, 0));
        for (name, level) in self.features.iter() {
            push(MetadataRecord::FeatureLevel(FeatureLevelRecord {
                name: name.to_owned(),
                feature_level: level,
            }));
        }
        records.extend(self.cluster.brokers.values().map(|broker| broker.to_record(version)));
        if version.has_controller_registrations() {
            records.extend(self.cluster.controllers.values().map(|controller| controller.to_record()));
        }
        for topic in self.topics.sorted() {
            let record = TopicRecord { name: topic.name.to_string(), topic_id: topic.id };
            records.push(VersionedRecord::new(MetadataRecord::Topic(record), 0));
            let partitions = topic.partitions.iter();
            records
                .extend(partitions.map(|(index, partition)| partition.to_record(topic.id, *index, version)));
        }
        let others = self.config_records().into_iter().chain(self.quota_records());
        let others = others.chain(self.producer_id_record()).chain(self.access_records(version));
        records.extend(others.map(|record| VersionedRecord::new(record, 0)));
        records
    }

    fn config_records(&self) -> Vec<MetadataRecord> {
        let mut resources: Vec<(&ConfigResource, &Arc<_>)> = self.configs.iter().collect();
        resources.sort_by_key(|(resource, _)| *resource);
        let mut records = Vec::new();
        for (resource, map) in resources {
            for (name, value) in map.iter() {
                records.push(MetadataRecord::Config(ConfigRecord {
                    resource_type: resource.kind.id(),
                    resource_name: resource.name.clone(),
                    name: name.clone(),
                    value: Some(value.clone()),
                }));
            }
        }
        records
    }

    fn quota_records(&self) -> Vec<MetadataRecord> {
        let mut records = Vec::new();
        for (entity, quotas) in self.quotas.iter() {
            for (key, value) in quotas {
                let entity = entity.iter().map(|(entity_type, entity_name)| EntityData {
                    entity_type: entity_type.clone(),
                    entity_name: entity_name.clone(),
                });
                records.push(MetadataRecord::ClientQuota(ClientQuotaRecord {
                    entity: entity.collect(),
                    key: key.clone(),
                    value: *value,
                    remove: false,
                }));
            }
        }
        records
    }

    fn producer_id_record(&self) -> Option<MetadataRecord> {
        (self.next_producer_id >= 0).then(|| {
            MetadataRecord::ProducerIds(ProducerIdsRecord {
                broker_id: -1,
                broker_epoch: -1,
                next_producer_id: self.next_producer_id,
            })
        })
    }

    fn access_records(&self, version: MetadataVersion) -> Vec<MetadataRecord> {
        let mut records = Vec::new();
        for (id, acl) in self.acls.iter() {
            records.push(MetadataRecord::AccessControlEntry(AccessControlEntryRecord {
                id,
                resource_type: acl.resource_type,
                resource_name: acl.resource_name.clone(),
                pattern_type: acl.pattern_type,
                principal: acl.principal.clone(),
                host: acl.host.clone(),
                operation: acl.operation,
                permission_type: acl.permission_type,
            }));
        }
        let scram = self.scram.iter().filter(|_| version.has_scram());
        for ((name, mechanism), credential) in scram {
            records.push(MetadataRecord::UserScramCredential(UserScramCredentialRecord {
                name: name.clone(),
                mechanism: *mechanism,
                salt: credential.salt.clone(),
                stored_key: credential.stored_key.clone(),
                server_key: credential.server_key.clone(),
                iterations: credential.iterations,
            }));
        }
        let tokens = self.delegation_tokens.iter().filter(|_| version.has_delegation_tokens());
        for (token_id, token) in tokens {
            records.push(MetadataRecord::DelegationToken(DelegationTokenRecord {
                owner: token.owner.clone(),
                requester: token.requester.clone(),
                renewers: token.renewers.clone(),
                issue_timestamp: token.issue_timestamp,
                max_timestamp: token.max_timestamp,
                expiration_timestamp: token.expiration_timestamp,
                token_id: token_id.clone(),
            }));
        }
        records
    }

    /// True if a feature is finalized above 0.
    pub fn has_feature(&self, name: &str) -> bool {
        self.features.level(name) > 0
    }

    /// True if eligible leader replicas are enabled.
    pub fn has_elr(&self) -> bool {
        self.has_feature(feature::ELIGIBLE_LEADER_REPLICAS_VERSION)
    }
}
