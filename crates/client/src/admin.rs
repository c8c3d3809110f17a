//! Administrative requests as methods: topics, configurations, groups, records, leaders, reassignments, log
//! directories, transactions, quotas, features, the quorum, users, ACLs.
//!
//! Each request is sent to the broker that serves it: changes of the cluster to the controller (with KRaft,
//! any broker forwards them), groups to their coordinators, records to the leaders. Retriable errors, such as
//! a coordinator that moves, are retried within the timeout. Results are per item: a refused item does not
//! fail other items.

mod acls;
mod configs;
mod features;
mod group_figures;
mod group_offsets;
mod group_reading;
mod groups;
mod hanging;
mod listed_groups;
mod log_dirs;
mod nodes;
mod partitions;
mod placement;
mod quorum;
mod quotas;
mod reassignments;
mod throttles;
mod tokens;
mod topic_groups;
mod topics;
mod transactions;
mod users;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use thalweg_dial::{ClientError, RefusedRequest, RequestOptions, Retry};
use thalweg_wire::Request;

use crate::cluster::Cluster;
use crate::offsets::TopicPartition;

pub use configs::{
    ConfigChange, ConfigEntry, ConfigOperation, ConfigResource, ConfigResourceKind, ConfigSource,
    DescribeConfigs,
};
pub use features::{Feature, FeatureChange, FeatureUpdate, Features};
pub use group_figures::{GroupAssignment, GroupLag};
pub use group_offsets::ShareOffset;
pub use group_reading::{GroupPosition, GroupPositions};
pub use groups::{
    ActiveGroup, GroupDescription, GroupFilter, GroupKind, GroupListing, GroupMember, MemberToRemove,
    StreamsTask, StreamsTaskRole, Subtopology, is_without_members,
};
pub use hanging::{HangingTransactions, OpenTransaction};
pub use listed_groups::{ListedGroups, UnseenGroups};
pub use log_dirs::{LogDir, LogDirReplica, Replica};
pub use partitions::Election;
pub use placement::{
    PlannedMove, PlannedMoves, ReplicaAssignment, TooFewBrokers, UsableBroker, planned_moves, spread,
};
pub use quorum::{ControllerEndpoint, QuorumDescription, QuorumReplica};
pub use quotas::{QuotaChanges, QuotaEntity, QuotaEntityKind, QuotaFilter, QuotaMatch, Quotas};
pub use reassignments::PartitionReassignment;
pub use throttles::{ReplicaBytes, replica_bytes, throttle_rates};
pub use tokens::{DelegationToken, NewDelegationToken};
pub use topic_groups::{TopicGroup, TopicGroupPartition, TopicGroups};
pub use topics::{ClusterDescription, CreatedTopic, NewTopic};
pub use transactions::{
    AbortTransaction, ActiveProducer, FencedProducer, TransactionDescription, TransactionFilter,
    TransactionListing,
};
pub use users::{SCRAM_ITERATIONS, UserCredentials};

/// The result of each item.
pub type Outcomes<K, T = ()> = BTreeMap<K, Result<T, ClientError>>;

/// `retry.backoff.ms` of Kafka's clients.
const BACKOFF: Duration = Duration::from_millis(100);
/// Added to the broker's timeout, so that the broker reports a timeout first.
const GRACE: Duration = Duration::from_secs(5);

/// A client for administrative requests. Clones share the cluster's connections.
#[derive(Clone, Debug)]
pub struct Admin {
    cluster: Cluster,
    timeout: Duration,
    answer_limit: Option<Duration>,
    /// Brokers with a limit of their own.
    answer_limits: Arc<BTreeMap<i32, Duration>>,
    /// Time limit for a reading of many groups.
    groups_limit: Option<Duration>,
}

impl Admin {
    /// An admin client of a cluster. A call takes up to the cluster's `request.timeout.ms`.
    pub fn new(cluster: Cluster) -> Admin {
        let timeout = cluster.options().request_timeout;
        Admin { cluster, timeout, answer_limit: None, answer_limits: Arc::default(), groups_limit: None }
    }

    /// Sets the maximum time of each call.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Admin {
        self.timeout = timeout;
        self
    }

    /// Sets the maximum time for the answer of a single broker or coordinator; in requests to many of them,
    /// with the connection to it. A silent broker then does not use up the time of a call.
    #[must_use]
    pub fn with_answer_limit(mut self, limit: Duration) -> Admin {
        self.answer_limit = Some(limit);
        self
    }

    /// Sets smaller limits, like that of [`Admin::with_answer_limit`], for single brokers, such as those that
    /// have not answered before.
    #[must_use]
    pub fn with_answer_limits(mut self, limits: BTreeMap<i32, Duration>) -> Admin {
        self.answer_limits = Arc::new(limits);
        self
    }

    /// Sets the maximum time of each reading of many groups. Groups that are not read by then are named as
    /// such, and the others are not lost.
    #[must_use]
    pub fn with_groups_limit(mut self, limit: Duration) -> Admin {
        self.groups_limit = Some(limit);
        self
    }

    /// The cluster of this client.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    fn retry(&self) -> Retry {
        Retry::within(BACKOFF, self.timeout)
    }

    fn timeout_ms(&self) -> i32 {
        i32::try_from(self.timeout.as_millis()).unwrap_or(i32::MAX)
    }

    /// Sends a change of the cluster to the controller's broker, or to any broker, which forwards it. Retries
    /// as long as `check` returns a retriable error for the whole answer.
    async fn change<R: Request>(
        &self,
        request: &R,
        check: impl Fn(&R::Response) -> Result<(), RefusedRequest>,
    ) -> Result<R::Response, ClientError> {
        let mut retry = self.retry();
        let timeout = self.answer_limit.unwrap_or(self.timeout + GRACE);
        let options = RequestOptions { version: None, timeout: Some(timeout) };
        loop {
            let controller = self.cluster.metadata().controller_id;
            let connection = match controller {
                Some(id) => self.cluster.broker(id).await,
                None => self.cluster.any().await,
            };
            let answer = match connection {
                Ok(connection) => connection.send_with(request, options).await,
                Err(error) => Err(error),
            };
            let error = match answer {
                Ok(response) => match check(&response) {
                    Ok(()) => return Ok(response),
                    Err(refused) => ClientError::from(refused),
                },
                Err(error) => error,
            };
            let Some(pause) = retry.pause_after(&error) else { return Err(error) };
            tokio::time::sleep(pause).await;
            // The controller may have changed, or its broker. Without an answer, the old metadata is used
            // again.
            let _ = self.cluster.refresh(&[], false).await;
        }
    }
}

/// The partitions of each topic, in the form of requests.
fn by_topic<'a>(partitions: impl Iterator<Item = &'a TopicPartition>) -> BTreeMap<&'a str, Vec<i32>> {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for at in partitions {
        topics.entry(&at.topic).or_default().push(at.partition);
    }
    topics
}

fn refused(code: i16, message: Option<&str>, what: impl FnOnce() -> String) -> Result<(), ClientError> {
    Ok(RefusedRequest::check(code, message, what)?)
}
