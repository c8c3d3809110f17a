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

/// Which part of the log an image holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Provenance {
    /// The last offset that is in the image; -1 for none.
    pub offset: i64,
    /// The epoch of the batch that brought it.
    pub epoch: i32,
    /// When that batch was written, in milliseconds since 1970.
    pub timestamp_ms: i64,
}

impl Provenance {
    /// Of the empty image.
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

/// The state of a cluster. A copy shares every part, and a change copies only the part that it changes.
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

    /// Whether nothing has been replayed.
    pub fn is_empty(&self) -> bool {
        self.has_content_of(&Image::default())
    }

    /// Whether another image has the same content, whichever part of the log it is from.
    pub fn has_content_of(&self, other: &Image) -> bool {
        Image { provenance: other.provenance, ..self.clone() } == *other
    }

    /// Which part of the log is in it.
    pub fn provenance(&self) -> Provenance {
        self.provenance
    }

    /// The last offset that is in it; also the epoch of the finalized features.
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

    /// A broker, fenced or not.
    pub fn broker(&self, id: BrokerId) -> Option<&Arc<BrokerRegistration>> {
        self.cluster.brokers.get(&id)
    }

    /// The brokers that are not fenced, in the order of their ids.
    pub fn alive_brokers(&self) -> impl Iterator<Item = &Arc<BrokerRegistration>> {
        self.cluster.brokers.values().filter(|broker| !broker.fenced)
    }

    /// The brokers that are not fenced and have a listener of this name, with where it is.
    pub fn alive_endpoints(
        &self,
        listener: &str,
    ) -> impl Iterator<Item = (&Arc<BrokerRegistration>, &Endpoint)> {
        self.alive_brokers().filter_map(move |broker| Some((broker, broker.endpoint(listener)?)))
    }

    /// Whether a broker is registered and not fenced.
    pub fn is_alive(&self, broker: BrokerId) -> bool {
        self.broker(broker).is_some_and(|broker| !broker.fenced)
    }

    /// All topics.
    pub fn topics(&self) -> &Topics {
        &self.topics
    }

    /// A topic by its name.
    pub fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topics.get(name)
    }

    /// A topic by its id.
    pub fn topic_by_id(&self, id: Uuid) -> Option<&Arc<Topic>> {
        self.topics.get_by_id(id)
    }

    /// A partition by the name of its topic.
    pub fn partition(&self, topic: &str, partition: PartitionIndex) -> Option<&Arc<PartitionRegistration>> {
        self.topic(topic)?.partition(partition)
    }

    /// A partition by the id of its topic.
    pub fn partition_by_id(
        &self,
        topic: Uuid,
        partition: PartitionIndex,
    ) -> Option<&Arc<PartitionRegistration>> {
        self.topic_by_id(topic)?.partition(partition)
    }

    /// The replicas of a partition that cannot serve: their broker is fenced, not registered, or has lost the
    /// directory.
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

    /// The configurations that were set at run time.
    pub fn configs(&self) -> &Configs {
        &self.configs
    }

    /// The settings of a resource; empty if there are none.
    pub fn config(&self, resource: &ConfigResource) -> Arc<BTreeMap<String, String>> {
        self.configs.get(resource).cloned().unwrap_or_default()
    }

    /// The quotas.
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// The first producer id that no broker has got yet.
    pub fn next_producer_id(&self) -> i64 {
        self.next_producer_id.max(0)
    }

    /// The access control entries by their ids.
    pub fn acls(&self) -> &AccessControlEntries {
        &self.acls
    }

    /// The SCRAM credentials by user and mechanism.
    pub fn scram_credentials(&self) -> &ScramCredentials {
        &self.scram
    }

    /// The delegation tokens by their ids.
    pub fn delegation_tokens(&self) -> &BTreeMap<String, Arc<DelegationToken>> {
        &self.delegation_tokens
    }
}

impl Image {
    /// Brings an authorizer from the ACLs of an image to those of this one, which differs in the entries `touched`.
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
