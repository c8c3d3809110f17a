//! The plan of a fetch: the request, its session, and the partitions found.

use super::FetchFailed;
use crate::api::Call;
use crate::api::serve::elsewhere::TopicRef;
use crate::broker::Broker;
use crate::fetch_sessions::{
    FetchPartitionKey, Scope, SessionError, SessionFetch, StartedFetch, TOPIC_IDS_FROM, WantedPartition,
};
use crate::quotas::ClientQuotas;
use std::sync::Arc;
use std::time::Duration;
use thalweg_hash::HashMap;
use thalweg_metadata::{BrokerId, Image, ImageCell};
use thalweg_net::Holder;
use thalweg_record::{LeaderEpoch, Offset};
use thalweg_replica::partition::{Isolation, LocalTopic, News, Partition, Reader, Subscription};
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_wire::request::FetchRequest;
use thalweg_wire::{ErrorCode, Uuid};

/// The first version in which consumers may read from followers (KIP-392).
const ANY_REPLICA_FROM: i16 = 11;
/// The first version with the state of the follower, in place of its id (KIP-903).
const REPLICA_STATE_FROM: i16 = 15;

/// One partition of a fetch.
#[derive(Debug)]
pub struct FetchEntry {
    pub key: FetchPartitionKey,
    /// The slot of the partition in the session.
    pub slot: Option<u32>,
    /// The partition's entry in the session's news, if the fetch waits on news.
    pub subscription: Option<Arc<Subscription>>,
    pub partition: Result<Arc<Partition>, ErrorCode>,
    pub fetch_offset: Offset,
    /// The start of the follower's log; -1 for a client.
    pub log_start_offset: Offset,
    pub max_bytes: usize,
    /// The client's leader epoch; `None` if it is unknown.
    pub current_leader_epoch: Option<LeaderEpoch>,
    /// The epoch of the client's last batch; `None` if it is not given.
    pub last_fetched_epoch: Option<LeaderEpoch>,
}

/// A whole fetch.
#[derive(Debug)]
pub struct FetchPlan {
    pub entries: Vec<FetchEntry>,
    pub max_wait: Duration,
    pub min_bytes: usize,
    pub max_bytes: usize,
    pub reader: Reader,
    pub isolation: Isolation,
    pub session: SessionFetch,
    /// The session's news to wait on; `None` if every partition is watched.
    pub news: Option<Arc<News>>,
    /// True if the request's version supports reads from followers.
    pub from_any_replica: bool,
    /// The consumer's rack, if a replica in that rack may be preferred to this one.
    pub elsewhere: Option<String>,
}

impl FetchPlan {
    /// Finds the session and the partitions of a request.
    pub fn new(broker: &Broker, call: &Call, request: FetchRequest) -> Result<FetchPlan, FetchFailed> {
        let replica_id = if call.version >= REPLICA_STATE_FROM {
            request.replica_state.replica_id
        } else {
            request.replica_id
        };
        let reader = match replica_id {
            id if id >= 0 => {
                let broker_epoch = request.replica_state.replica_epoch;
                Reader::Follower { id: BrokerId(id), broker_epoch }
            }
            _ => Reader::Client,
        };
        // The broker limits the size of a client's fetch.
        let max_bytes = clamp(request.max_bytes).min(match reader {
            Reader::Client => broker.config().network.fetch_max_bytes,
            Reader::Follower { .. } | Reader::Internal => usize::MAX,
        });
        let elsewhere = other_rack(broker, call.version, reader, &request.rack_id);
        let (max_wait_ms, min_bytes) = (request.max_wait_ms, clamp(request.min_bytes));
        // Every fetch of a follower must visit all partitions, to report its offsets. Changes of permissions
        // and racks make no news.
        let has_all_news =
            reader == Reader::Client && call.permissions.are_unlimited() && elsewhere.is_none();
        let scope = if has_all_news { Scope::Unread } else { Scope::Whole };
        let isolation = Isolation::of(request.isolation_level).unwrap_or(Isolation::ReadUncommitted);
        let follows = reader != Reader::Client && call.permissions.may_on_cluster(Operation::ClusterAction);
        let holder = if follows { Holder::Brokers } else { call.holder() };
        let begun = broker.fetch_sessions.begin(&holder, call.version, request, scope, broker.clock.now_ms());
        let StartedFetch { fetch: session, wanted, news } = begun.map_err(session_error)?;
        let mut entries = find(broker, call, reader, wanted);
        if is_stale_follower(broker.images(), reader) {
            for entry in entries.iter_mut().filter(|entry| entry.partition.is_ok()) {
                entry.partition = Err(ErrorCode::NotLeaderOrFollower);
            }
        }
        Ok(FetchPlan {
            entries,
            max_wait: Duration::from_millis(u64::try_from(max_wait_ms).unwrap_or(0)),
            min_bytes: min_bytes.min(max_bytes),
            max_bytes,
            reader,
            isolation,
            session,
            news,
            from_any_replica: call.version >= ANY_REPLICA_FROM,
            elsewhere,
        })
    }
}

impl FetchPlan {
    /// Adds the partitions of the session with news since the fetch began, or since the last call; returns
    /// their indexes in `entries`. Partitions already in `entries` are looked up again, because their topic
    /// may have been replaced.
    pub fn add_news(&mut self, broker: &Broker, call: &Call) -> Vec<usize> {
        let wanted = broker.fetch_sessions.with_news(self.session);
        if wanted.is_empty() {
            return Vec::new();
        }
        let known = self.entries.iter().enumerate().filter_map(|(at, entry)| Some((entry.slot?, at)));
        let known: HashMap<u32, usize> = known.collect();
        let mut indexes = Vec::with_capacity(wanted.len());
        for entry in find(broker, call, self.reader, wanted) {
            match entry.slot.and_then(|slot| known.get(&slot)) {
                Some(&at) => {
                    self.entries[at] = entry;
                    indexes.push(at);
                }
                None => {
                    indexes.push(self.entries.len());
                    self.entries.push(entry);
                }
            }
        }
        indexes
    }

    /// Limits a client's fetch to the bytes that its quota could ever allow.
    pub fn keep_to_quota(&mut self, quotas: &ClientQuotas, call: &Call) {
        if self.reader == Reader::Client
            && let Some(max) = quotas.fetch_max(&call.caller())
        {
            self.max_bytes = self.max_bytes.min(max);
            self.min_bytes = self.min_bytes.min(self.max_bytes);
        }
    }
}

/// Looks up the partitions of a fetch.
fn find(broker: &Broker, call: &Call, reader: Reader, wanted: Vec<WantedPartition>) -> Vec<FetchEntry> {
    let mut topics = LastTopic::default();
    let mut rights = Rights::of(broker.images(), call, reader);
    let entries = wanted.into_iter().map(|wanted| {
        let partition = match rights.may_read(call, &wanted.key) {
            true => topics.find(broker, call.version, &wanted.key),
            false => Err(ErrorCode::TopicAuthorizationFailed),
        };
        entry(wanted, partition)
    });
    entries.collect()
}

/// The consumer's rack if it differs from this broker's and replicas are chosen by rack (KIP-392).
fn other_rack(broker: &Broker, version: i16, reader: Reader, rack: &str) -> Option<String> {
    if version < ANY_REPLICA_FROM || reader != Reader::Client || rack.is_empty() {
        return None;
    }
    let config = broker.config();
    let chosen = config.replication.reads_by_rack && config.node.rack.as_deref() != Some(rack);
    chosen.then(|| rack.to_owned())
}

/// True if the follower's broker has registered again since (KIP-903).
fn is_stale_follower(images: &ImageCell, reader: Reader) -> bool {
    let Reader::Follower { id, broker_epoch } = reader else { return false };
    let registered = || images.get().broker(id).map(|broker| broker.epoch.0);
    broker_epoch != -1 && registered().is_some_and(|epoch| broker_epoch < epoch)
}

/// A size from the wire; negative sizes mean 0.
fn clamp(bytes: i32) -> usize {
    usize::try_from(bytes).unwrap_or(0)
}

fn entry(wanted: WantedPartition, partition: Result<Arc<Partition>, ErrorCode>) -> FetchEntry {
    let epoch = |epoch: i32| (epoch >= 0).then_some(LeaderEpoch(epoch));
    let WantedPartition { key, partition: wanted, slot, subscription } = wanted;
    FetchEntry {
        partition,
        key,
        slot,
        subscription,
        fetch_offset: Offset(wanted.fetch_offset),
        log_start_offset: Offset(wanted.log_start_offset),
        max_bytes: clamp(wanted.partition_max_bytes),
        current_leader_epoch: epoch(wanted.current_leader_epoch),
        last_fetched_epoch: epoch(wanted.last_fetched_epoch),
    }
}

/// The topic of the last lookup. Partitions of one topic usually follow each other, and all connections share
/// the table of topics.
#[derive(Default)]
struct LastTopic(Option<(Arc<str>, Uuid, Arc<LocalTopic>)>);

impl LastTopic {
    fn find(
        &mut self,
        broker: &Broker,
        version: i16,
        key: &FetchPartitionKey,
    ) -> Result<Arc<Partition>, ErrorCode> {
        let same =
            |(name, id, _): &&(Arc<str>, Uuid, Arc<LocalTopic>)| *id == key.topic_id && *name == key.topic;
        let topic = match self.0.as_ref().filter(same) {
            Some((_, _, topic)) => Some(Arc::clone(topic)),
            None => named(version, key).here(&broker.partitions),
        };
        let partition = topic.as_ref().and_then(|topic| topic.partition(key.partition));
        self.0 = topic.map(|topic| (Arc::clone(&key.topic), key.topic_id, topic));
        partition.ok_or_else(|| named(version, key).missing(broker.node_id, &broker.image(), key.partition))
    }
}

/// A client's permission to read partitions.
enum Rights {
    /// The same for all partitions: a follower, or a client without an authorizer.
    Same(bool),
    /// A consumer, checked by topic. The last decision is kept, because the next partition usually has the
    /// same topic.
    ByTopic { image: Arc<Image>, last: Option<(Arc<str>, Uuid, bool)> },
}

impl Rights {
    fn of(images: &ImageCell, call: &Call, reader: Reader) -> Rights {
        match reader {
            _ if call.permissions.are_unlimited() => Rights::Same(true),
            Reader::Follower { .. } => {
                Rights::Same(call.permissions.may_on_cluster(Operation::ClusterAction))
            }
            Reader::Client | Reader::Internal => Rights::ByTopic { image: images.get(), last: None },
        }
    }

    fn may_read(&mut self, call: &Call, key: &FetchPartitionKey) -> bool {
        let (image, last) = match self {
            Rights::Same(may) => return *may,
            Rights::ByTopic { image, last } => (image, last),
        };
        if let Some((topic, id, may)) = last
            && *id == key.topic_id
            && *topic == key.topic
        {
            return *may;
        }
        let may = |name: &str| call.permissions.may(Operation::Read, ResourceType::Topic, name);
        let may = match named(call.version, key) {
            // An unknown topic id needs no permission: it is reported as unknown to every client.
            TopicRef::Id(id) => image.topic_by_id(id).is_none_or(|topic| may(&topic.name)),
            TopicRef::Name(name) => may(name),
        };
        *last = Some((Arc::clone(&key.topic), key.topic_id, may));
        may
    }
}

/// The topic of a partition, by id or by name as the version requires.
pub(super) fn named(version: i16, key: &FetchPartitionKey) -> TopicRef<'_> {
    TopicRef::of(version >= TOPIC_IDS_FROM, &key.topic, key.topic_id)
}

fn session_error(error: SessionError) -> ErrorCode {
    match error {
        SessionError::NotFound => ErrorCode::FetchSessionIdNotFound,
        SessionError::InvalidEpoch => ErrorCode::InvalidFetchSessionEpoch,
        SessionError::TopicIds => ErrorCode::FetchSessionTopicIdError,
    }
}
