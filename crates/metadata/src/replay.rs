//! The effect of each record on an image.

use crate::{
    AccessControlEntry, BrokerEpoch, BrokerId, BrokerRegistration, ConfigResource, ConfigResourceKind,
    ControllerRegistration, DelegationToken, Delta, MetadataVersion, PartitionIndex, PartitionRegistration,
    QuotaEntity, ReplayError, ScramCredential, Topic, feature,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_wire::metadata::{
    AccessControlEntryRecord, BrokerRegistrationChangeRecord, ClearElrRecord, ClientQuotaRecord,
    ConfigRecord, DelegationTokenRecord, FeatureLevelRecord, PartitionChangeRecord, PartitionRecord,
    RegisterBrokerRecord, RegisterControllerRecord, RemoveTopicRecord, TopicRecord,
    UserScramCredentialRecord,
};
use thalweg_wire::{MetadataRecord, Uuid};

impl Delta {
    pub(crate) fn replay_record(&mut self, record: &MetadataRecord) -> Result<(), ReplayError> {
        match record {
            MetadataRecord::Topic(r) => self.topic(r),
            MetadataRecord::Partition(r) => self.partition(r),
            MetadataRecord::PartitionChange(r) => self.partition_change(r),
            MetadataRecord::RemoveTopic(r) => self.remove_topic(r),
            MetadataRecord::ClearElr(r) => self.clear_elr(r),
            MetadataRecord::RegisterBroker(r) => self.register_broker(r),
            MetadataRecord::BrokerRegistrationChange(r) => self.broker_change(r),
            MetadataRecord::FenceBroker(r) => self.fence(r.id, BrokerEpoch(r.epoch), 1),
            MetadataRecord::UnfenceBroker(r) => self.fence(r.id, BrokerEpoch(r.epoch), -1),
            MetadataRecord::UnregisterBroker(r) => self.unregister_broker(BrokerId(r.broker_id)),
            MetadataRecord::RegisterController(r) => self.register_controller(r),
            MetadataRecord::Config(r) => self.config(r),
            MetadataRecord::FeatureLevel(r) => self.feature_level(r),
            MetadataRecord::ClientQuota(r) => self.client_quota(r),
            MetadataRecord::ProducerIds(r) => self.producer_ids(r.next_producer_id),
            MetadataRecord::AccessControlEntry(r) => self.acl(r),
            MetadataRecord::RemoveAccessControlEntry(r) => self.remove_acl(r.id),
            MetadataRecord::UserScramCredential(r) => self.scram(r),
            MetadataRecord::RemoveUserScramCredential(r) => self.remove_scram(&r.name, r.mechanism),
            MetadataRecord::DelegationToken(r) => self.token(r),
            MetadataRecord::RemoveDelegationToken(r) => self.remove_token(&r.token_id),
            MetadataRecord::NoOp(_) | MetadataRecord::ZkMigrationState(_) => Ok(()),
            MetadataRecord::BeginTransaction(_) => {
                Err(ReplayError::Bracket { record: "BeginTransactionRecord" })
            }
            MetadataRecord::EndTransaction(_) => Err(ReplayError::Bracket { record: "EndTransactionRecord" }),
            MetadataRecord::AbortTransaction(_) => {
                Err(ReplayError::Bracket { record: "AbortTransactionRecord" })
            }
        }
    }

    fn topic(&mut self, record: &TopicRecord) -> Result<(), ReplayError> {
        if self.image.topics.get(&record.name).is_some()
            || self.image.topics.get_by_id(record.topic_id).is_some()
        {
            return Err(ReplayError::TopicExists { name: record.name.clone(), topic: record.topic_id });
        }
        let topic =
            Topic { name: Arc::from(record.name.as_str()), id: record.topic_id, partitions: BTreeMap::new() };
        Arc::make_mut(&mut self.image.topics).insert(topic);
        self.changes.created_topics.insert(record.topic_id);
        self.changes.changed_topics.entry(record.topic_id).or_default();
        Ok(())
    }

    fn topic_mut(&mut self, topic: Uuid) -> Result<&mut Topic, ReplayError> {
        if self.image.topics.get_by_id(topic).is_none() {
            return Err(ReplayError::NoTopic { topic });
        }
        let topics = Arc::make_mut(&mut self.image.topics);
        Ok(topics.get_mut(topic).expect("the topic was just seen"))
    }

    fn put_partition(
        &mut self,
        topic: Uuid,
        partition: PartitionIndex,
        registration: PartitionRegistration,
    ) -> Result<(), ReplayError> {
        self.topic_mut(topic)?.partitions.insert(partition, Arc::new(registration));
        self.changes.changed_topics.entry(topic).or_default().insert(partition);
        Ok(())
    }

    fn partition(&mut self, record: &PartitionRecord) -> Result<(), ReplayError> {
        let registration = PartitionRegistration::from_record(record)?;
        self.put_partition(record.topic_id, PartitionIndex(record.partition_id), registration)
    }

    fn partition_change(&mut self, record: &PartitionChangeRecord) -> Result<(), ReplayError> {
        let (id, index) = (record.topic_id, PartitionIndex(record.partition_id));
        let topic = self.image.topics.get_by_id(id).ok_or(ReplayError::NoTopic { topic: id })?;
        let partition =
            topic.partition(index).ok_or(ReplayError::NoPartition { topic: id, partition: index })?;
        let merged = partition.merge(record)?;
        self.put_partition(id, index, merged)
    }

    fn remove_topic(&mut self, record: &RemoveTopicRecord) -> Result<(), ReplayError> {
        let id = record.topic_id;
        if self.image.topics.get_by_id(id).is_none() {
            return Err(ReplayError::NoTopic { topic: id });
        }
        let topic = Arc::make_mut(&mut self.image.topics).remove(id).expect("the topic was just seen");
        self.changes.changed_topics.remove(&id);
        if !self.changes.created_topics.remove(&id) {
            self.changes.deleted_topics.insert(id);
        }
        let resource = ConfigResource::topic(&topic.name);
        if self.image.configs.get(&resource).is_some() {
            Arc::make_mut(&mut self.image.configs).remove(&resource);
            self.changes.configs.insert(resource);
        }
        Ok(())
    }

    fn clear_elr(&mut self, record: &ClearElrRecord) -> Result<(), ReplayError> {
        let topics: Vec<Uuid> = if record.topic_name.is_empty() {
            self.image.topics.iter().map(|topic| topic.id).collect()
        } else {
            let name = &record.topic_name;
            let topic = self.image.topics.get(name);
            vec![topic.ok_or_else(|| ReplayError::NoTopicNamed { name: name.clone() })?.id]
        };
        for id in topics {
            let topic = self.image.topics.get_by_id(id).expect("the topic was just seen");
            let holding: Vec<_> = topic
                .partitions
                .iter()
                .filter(|(_, p)| !p.eligible_leader_replicas.is_empty() || !p.last_known_elr.is_empty())
                .map(|(index, partition)| (*index, partition.clone()))
                .collect();
            for (index, partition) in holding {
                let change = PartitionChangeRecord {
                    eligible_leader_replicas: Some(Vec::new()),
                    last_known_elr: Some(Vec::new()),
                    ..Default::default()
                };
                self.put_partition(id, index, partition.merge(&change)?)?;
            }
        }
        Ok(())
    }

    fn register_broker(&mut self, record: &RegisterBrokerRecord) -> Result<(), ReplayError> {
        self.put_broker(BrokerRegistration::from_record(record));
        Ok(())
    }

    fn put_broker(&mut self, broker: BrokerRegistration) {
        self.changes.brokers.insert(broker.id);
        Arc::make_mut(&mut self.image.cluster).brokers.insert(broker.id, Arc::new(broker));
    }

    fn broker_change(&mut self, record: &BrokerRegistrationChangeRecord) -> Result<(), ReplayError> {
        let (broker, epoch) = (BrokerId(record.broker_id), BrokerEpoch(record.broker_epoch));
        let registration = self.image.broker(broker).filter(|registration| registration.epoch == epoch);
        let registration = registration.ok_or(ReplayError::NoBroker { broker, epoch })?;
        let merged = registration.merge(record)?;
        if merged != **registration {
            self.put_broker(merged);
        }
        Ok(())
    }

    fn fence(&mut self, broker_id: i32, epoch: BrokerEpoch, fenced: i8) -> Result<(), ReplayError> {
        let change =
            BrokerRegistrationChangeRecord { broker_id, broker_epoch: epoch.0, fenced, ..Default::default() };
        self.broker_change(&change)
    }

    fn unregister_broker(&mut self, broker: BrokerId) -> Result<(), ReplayError> {
        Arc::make_mut(&mut self.image.cluster).brokers.remove(&broker);
        self.changes.brokers.insert(broker);
        Ok(())
    }

    fn register_controller(&mut self, record: &RegisterControllerRecord) -> Result<(), ReplayError> {
        let controller = ControllerRegistration::from_record(record);
        self.changes.controllers.insert(controller.id);
        Arc::make_mut(&mut self.image.cluster).controllers.insert(controller.id, Arc::new(controller));
        Ok(())
    }

    fn config(&mut self, record: &ConfigRecord) -> Result<(), ReplayError> {
        let kind = ConfigResourceKind::from_id(record.resource_type);
        let resource = ConfigResource { kind, name: record.resource_name.clone() };
        Arc::make_mut(&mut self.image.configs).set(&resource, &record.name, record.value.as_deref());
        self.changes.configs.insert(resource);
        Ok(())
    }

    fn feature_level(&mut self, record: &FeatureLevelRecord) -> Result<(), ReplayError> {
        let level = record.feature_level;
        self.changes.features = true;
        let features = Arc::make_mut(&mut self.image.features);
        match record.name.as_str() {
            feature::METADATA_VERSION => {
                let latest = MetadataVersion::LATEST;
                let version = MetadataVersion::from_level(level);
                features.set_metadata_version(
                    version.ok_or(ReplayError::UnknownMetadataVersion { level, latest })?,
                );
            }
            // The quorum stores this version in its own control records (KAFKA-18979).
            feature::KRAFT_VERSION => {}
            name => features.set_level(name, level),
        }
        Ok(())
    }

    fn client_quota(&mut self, record: &ClientQuotaRecord) -> Result<(), ReplayError> {
        let entity: QuotaEntity =
            record.entity.iter().map(|e| (e.entity_type.clone(), e.entity_name.clone())).collect();
        let value = (!record.remove).then_some(record.value);
        Arc::make_mut(&mut self.image.quotas).set(entity, &record.key, value);
        self.changes.quotas = true;
        Ok(())
    }

    fn producer_ids(&mut self, next: i64) -> Result<(), ReplayError> {
        self.image.next_producer_id = next;
        self.changes.producer_ids = true;
        Ok(())
    }

    fn acl(&mut self, record: &AccessControlEntryRecord) -> Result<(), ReplayError> {
        let entry = AccessControlEntry {
            resource_type: record.resource_type,
            resource_name: record.resource_name.clone(),
            pattern_type: record.pattern_type,
            principal: record.principal.clone(),
            host: record.host.clone(),
            operation: record.operation,
            permission_type: record.permission_type,
        };
        self.image.acls.insert(record.id, entry);
        self.changes.acls.insert(record.id);
        Ok(())
    }

    fn remove_acl(&mut self, id: Uuid) -> Result<(), ReplayError> {
        self.changes.acls.insert(id);
        if self.image.acls.remove(id) { Ok(()) } else { Err(ReplayError::NoAcl { id }) }
    }

    fn scram(&mut self, record: &UserScramCredentialRecord) -> Result<(), ReplayError> {
        let credential = ScramCredential {
            salt: record.salt.clone(),
            stored_key: record.stored_key.clone(),
            server_key: record.server_key.clone(),
            iterations: record.iterations,
        };
        Arc::make_mut(&mut self.image.scram).insert((record.name.clone(), record.mechanism), credential);
        self.changes.scram = true;
        Ok(())
    }

    fn remove_scram(&mut self, name: &str, mechanism: i8) -> Result<(), ReplayError> {
        Arc::make_mut(&mut self.image.scram).remove(&(name.to_owned(), mechanism));
        self.changes.scram = true;
        Ok(())
    }

    fn token(&mut self, record: &DelegationTokenRecord) -> Result<(), ReplayError> {
        let token = DelegationToken {
            owner: record.owner.clone(),
            requester: record.requester.clone(),
            renewers: record.renewers.clone(),
            issue_timestamp: record.issue_timestamp,
            max_timestamp: record.max_timestamp,
            expiration_timestamp: record.expiration_timestamp,
        };
        Arc::make_mut(&mut self.image.delegation_tokens).insert(record.token_id.clone(), Arc::new(token));
        self.changes.delegation_tokens = true;
        Ok(())
    }

    fn remove_token(&mut self, id: &str) -> Result<(), ReplayError> {
        Arc::make_mut(&mut self.image.delegation_tokens).remove(id);
        self.changes.delegation_tokens = true;
        Ok(())
    }
}
