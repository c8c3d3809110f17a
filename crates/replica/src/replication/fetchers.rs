//! All fetchers of this broker, and the assignment of partitions to them.
//!
//! There are `num.replica.fetchers` per leader broker, created when first needed; a partition is always
//! assigned to the same fetcher. A fetcher without partitions sleeps and holds no connection.

use super::Replication;
use super::fetcher::{Fetcher, FollowTarget, Inbox};
use crate::partition::Partition;
use parking_lot::Mutex;
use std::sync::Arc;
use thalweg_hash::HashMap;
use thalweg_metadata::{BrokerId, PartitionRegistration, TopicIdPartition};
use thalweg_record::LeaderEpoch;
use thalweg_watch as watch;
use tokio::task::JoinSet;

/// Leader broker and fetcher number.
type FetcherId = (BrokerId, usize);

/// The fetchers of a broker.
#[derive(Debug)]
pub struct Fetchers {
    replication: Arc<Replication>,
    state: Mutex<State>,
    stopping: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    inboxes: HashMap<FetcherId, Arc<Inbox>>,
    /// The fetcher of each partition.
    assigned: HashMap<TopicIdPartition, FetcherId>,
    tasks: JoinSet<()>,
}

impl Fetchers {
    /// An empty set of fetchers.
    pub fn new(replication: Arc<Replication>) -> Self {
        Self { replication, state: Mutex::default(), stopping: watch::Sender::new(false) }
    }

    /// Follows the partition's leader if it is another broker; otherwise stops following.
    pub fn follow(&self, partition: &Arc<Partition>, registration: &PartitionRegistration) {
        let key = (partition.topic_id, partition.index);
        let leader = registration.leader;
        if leader == BrokerId::NONE || leader == self.replication.broker.node_id {
            self.unfollow(key);
            return;
        }
        let id = (leader, self.fetcher_of(partition));
        let mut state = self.state.lock();
        if *self.stopping.borrow() {
            return;
        }
        if let Some(before) = state.assigned.insert(key, id).filter(|before| *before != id)
            && let Some(inbox) = state.inboxes.get(&before)
        {
            inbox.remove(key);
        }
        let inbox = match state.inboxes.get(&id) {
            Some(inbox) => Arc::clone(inbox),
            None => self.start(&mut state, id),
        };
        let (partition, epoch) = (Arc::clone(partition), LeaderEpoch(registration.leader_epoch));
        inbox.add(key, FollowTarget { partition, epoch });
    }

    /// Stops following the leader of this partition.
    pub fn unfollow(&self, key: TopicIdPartition) {
        let mut state = self.state.lock();
        if let Some(id) = state.assigned.remove(&key)
            && let Some(inbox) = state.inboxes.get(&id)
        {
            inbox.remove(key);
        }
    }

    fn start(&self, state: &mut State, id: FetcherId) -> Arc<Inbox> {
        let inbox = Arc::new(Inbox::default());
        let replication = Arc::clone(&self.replication);
        let fetcher = Fetcher::new(replication, id.0, Arc::clone(&inbox), self.stopping.subscribe());
        state.tasks.spawn(fetcher.run());
        state.inboxes.insert(id, Arc::clone(&inbox));
        inbox
    }

    /// Spreads partitions as Kafka does: neighbours over different fetchers.
    fn fetcher_of(&self, partition: &Partition) -> usize {
        let fetchers = self.replication.settings().fetchers.max(1);
        let hash = partition.topic.bytes().fold(0u32, |hash, byte| hash.wrapping_mul(31) + u32::from(byte));
        let index = u32::try_from(partition.index.0).unwrap_or(0);
        usize::try_from(hash.wrapping_mul(31).wrapping_add(index)).unwrap_or(0) % fetchers
    }

    /// Ends all fetchers; returns when none works on a log any more.
    pub async fn stop(&self) {
        self.stopping.send_replace(true);
        let mut tasks = {
            let mut state = self.state.lock();
            state.inboxes.clear();
            state.assigned.clear();
            std::mem::take(&mut state.tasks)
        };
        while tasks.join_next().await.is_some() {}
    }
}
