//! The state of a cluster at one offset of its metadata log.

use crate::{
    AccessControlEntries, BrokerId, BrokerRegistration, ConfigResource, Configs, ControllerRegistration,
    DelegationToken, Endpoint, Features, PartitionIndex, PartitionRegistration, Quotas, ScramCredential,
    Topic, Topics,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_security::acl::Authorizer;
use thalweg_wire::Uuid;

/// The position of an image in the metadata log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Provenance {
    /// The last offset in the image; -1 for none.
    pub offset: i64,
    /// The epoch of the last batch.
    pub epoch: i32,
    /// The timestamp of the last batch in milliseconds since 1970.
    pub timestamp_ms: i64,
}

impl Provenance {
    /// The provenance of the empty image.
    pub const EMPTY: Provenance = Provenance { offset: -1, epoch: -1, timestamp_ms: -1 };
}

/// Brokers and controllers by their node ids.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Cluster {
    /// The registered brokers.
    pub brokers: BTreeMap<BrokerId, Arc<BrokerRegistration>>,
    /// The registered controllers.
    pub controllers: BTreeMap<i32, Arc<ControllerRegistration>>,
}

/// SCRAM credentials by user and mechanism (1 SHA-256, 2 SHA-512).
pub type ScramCredentials = BTreeMap<(String, i8), ScramCredential>;

/// The state of a cluster. A clone shares every part, and a change copies only the changed part.
#[derive(Clone, PartialEq, Debug)]
pub struct Image {
    pub(crate) provenance: Provenance,
    pub(crate) features: Arc<Features>,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) topics: Arc<Topics>,
    pub(crate) configs: Arc<Configs>,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) next_producer_id: i64,
    pub(crate) acls: AccessControlEntries,
    pub(crate) scram: Arc<ScramCredentials>,
    pub(crate) delegation_tokens: Arc<BTreeMap<String, Arc<DelegationToken>>>,
}

impl Default for Image {
    fn default() -> Image {
        Image {
            provenance: Provenance::EMPTY,
            features: Arc::default(),
            cluster: Arc::default(),
            topics: Arc::default(),
            configs: Arc::default(),
            quotas: Arc::default(),
            next_producer_id: -1,
            acls: AccessControlEntries::default(),
            scram: Arc::default(),
            delegation_tokens: Arc::default(),
        }
    }
}

impl Image {
    /// The image of an empty log.
    pub fn empty() -> Image {
        Image::default()
    }

    /// True if nothing has been replayed.
    pub fn is_empty(&self) -> bool {
        self.has_content_of(&Image::default())
    }

    /// True if another image has the same content, regardless of its provenance.
    pub fn has_content_of(&self, other: &Image) -> bool {
        Image { provenance: other.provenance, ..self.clone() } == *other
    }

    /// The position in the metadata log.
    pub fn provenance(&self) -> Provenance {
        self.provenance
    }

    /// The last offset in the image, which is also the epoch of the finalized features.
    pub fn offset(&self) -> i64 {
        self.provenance.offset
    }

    /// The finalized features.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// The brokers and controllers.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The registration of a broker, fenced or not.
    pub fn broker(&self, id: BrokerId) -> Option<&Arc<BrokerRegistration>> {
        self.cluster.brokers.get(&id)
    }

    /// The unfenced brokers in id order.
    pub fn alive_brokers(&self) -> impl Iterator<Item = &Arc<BrokerRegistration>> {
        self.cluster.brokers.values().filter(|broker| !broker.fenced)
    }

    /// The unfenced brokers with a listener of this name, with its endpoint.
    pub fn alive_endpoints(
        &self,
        listener: &str,
    ) -> impl Iterator<Item = (&Arc<BrokerRegistration>, &Endpoint)> {
        self.alive_brokers().filter_map(move |broker| Some((broker, broker.endpoint(listener)?)))
    }

    /// True if a broker is registered and not fenced.
    pub fn is_alive(&self, broker: BrokerId) -> bool {
        self.broker(broker).is_some_and(|broker| !broker.fenced)
    }

    pub fn topics(&self) -> &Topics {
        &self.topics
    }

    pub fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topics.get(name)
    }

    pub fn topic_by_id(&self, id: Uuid) -> Option<&Arc<Topic>> {
        self.topics.get_by_id(id)
    }

    /// A partition by topic name.
    pub fn partition(&self, topic: &str, partition: PartitionIndex) -> Option<&Arc<PartitionRegistration>> {
        self.topic(topic)?.partition(partition)
    }

    /// A partition by topic id.
    pub fn partition_by_id(
        &self,
        topic: Uuid,
        partition: PartitionIndex,
    ) -> Option<&Arc<PartitionRegistration>> {
        self.topic_by_id(topic)?.partition(partition)
    }

    /// The replicas of a partition that are offline: their broker is fenced or not registered, or their
    /// directory is not online.
    pub fn offline_replicas(&self, partition: &PartitionRegistration) -> Vec<BrokerId> {
        let online = |index: usize, replica: BrokerId| match self.broker(replica) {
            None => false,
            Some(broker) => {
                !broker.fenced
                    && partition.directories.get(index).is_none_or(|dir| broker.has_online_directory(*dir))
            }
        };
        let replicas = partition.replicas.iter().enumerate();
        replicas.filter(|(index, replica)| !online(*index, **replica)).map(|(_, replica)| *replica).collect()
    }

    /// The dynamic configurations.
    pub fn configs(&self) -> &Configs {
        &self.configs
    }

    /// The settings of a resource; empty without settings.
    pub fn config(&self, resource: &ConfigResource) -> Arc<BTreeMap<String, String>> {
        self.configs.get(resource).cloned().unwrap_or_default()
    }

    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// The first producer id that no broker has allocated.
    pub fn next_producer_id(&self) -> i64 {
        self.next_producer_id.max(0)
    }

    /// The access control entries by id.
    pub fn acls(&self) -> &AccessControlEntries {
        &self.acls
    }

    /// The SCRAM credentials by user and mechanism.
    pub fn scram_credentials(&self) -> &ScramCredentials {
        &self.scram
    }

    /// The delegation tokens by id.
    pub fn delegation_tokens(&self) -> &BTreeMap<String, Arc<DelegationToken>> {
        &self.delegation_tokens
    }
}

impl Image {
    /// Updates an authorizer from the ACLs of `base` to those of this image, which differ in the entries
    /// `touched`.
    pub fn update_authorizer(&self, authorizer: &mut Authorizer, base: &Image, touched: &BTreeSet<Uuid>) {
        for id in touched {
            if let Some(acl) = base.acls().get(*id).and_then(|entry| entry.to_acl().ok()) {
                authorizer.remove(&acl);
            }
            if let Some(acl) = self.acls().get(*id).and_then(|entry| entry.to_acl().ok()) {
                authorizer.add(acl);
            }
        }
    }
}
