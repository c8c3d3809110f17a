//! Routing of requests: to coordinators of groups and transactional ids, to leaders of partitions, or to each
//! broker. A request for many objects is split by broker, sent to many brokers at the same time, and repeated
//! for objects with retriable errors, within the time of a call.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use thalweg_dial::{
    BrokerUnknown, ClientError, ConnectTimedOut, Connection, RefusedRequest, RequestOptions, Retry,
};
use thalweg_wire::{ErrorCode, Request};
use tokio::time::Instant;

use super::{Admin, GRACE, Outcomes};
use crate::cluster::{Cluster, CoordinatorKind};
use crate::coordinator::version_up_to;
use crate::offsets::TopicPartition;
use crate::parallel::in_parallel;

/// Maximum number of groups or transactional ids per request. Kafka has no limit, but a large answer delays
/// the broker.
const KEYS_PER_REQUEST: usize = 500;

/// A broker, by id or address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    Id(i32),
    Address(String),
}

impl Node {
    async fn connection(&self, cluster: &Cluster) -> Result<Connection, ClientError> {
        match self {
            Node::Id(id) => cluster.broker(*id).await,
            Node::Address(address) => cluster.connection_to(address).await,
        }
    }
}

impl std::fmt::Display for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Node::Id(id) => write!(f, "broker {id}"),
            Node::Address(address) => f.write_str(address),
        }
    }
}

/// Objects without a final outcome so far.
struct PendingKeys<K, T> {
    retry: Retry,
    left: BTreeSet<K>,
    outcomes: Outcomes<K, T>,
}

impl<K: Ord + Clone, T> PendingKeys<K, T> {
    fn new(retry: Retry, keys: impl IntoIterator<Item = K>) -> PendingKeys<K, T> {
        PendingKeys { retry, left: keys.into_iter().collect(), outcomes: Outcomes::new() }
    }

    /// Takes outcomes. Waits and returns true if some objects are worth another attempt.
    async fn again(&mut self, outcomes: Outcomes<K, T>) -> bool {
        self.outcomes.extend(outcomes);
        let outcomes = &self.outcomes;
        let failure = |key: &K| outcomes.get(key)?.as_ref().err();
        self.left.retain(|key| failure(key).is_some_and(ClientError::is_retriable));
        let first = self.left.iter().find_map(failure);
        let Some(pause) = first.and_then(|error| self.retry.pause_after(error)) else { return false };
        tokio::time::sleep(pause).await;
        true
    }
}

/// A connection within the time limit of an answer, if there is one, and the time that is left of it.
pub(super) async fn connect_within(
    limit: Option<Duration>,
    node: impl FnOnce() -> String,
    connecting: impl Future<Output = Result<Connection, ClientError>>,
) -> Result<(Connection, Option<Duration>), ClientError> {
    let Some(limit) = limit else { return Ok((connecting.await?, None)) };
    let until = Instant::now() + limit;
    match tokio::time::timeout_at(until, connecting).await {
        Ok(connection) => Ok((connection?, Some(until.saturating_duration_since(Instant::now())))),
        Err(_) => Err(ConnectTimedOut { peer: node().into(), timeout: limit }.into()),
    }
}

/// The error of an object that the answer omits.
fn left_out(what: String) -> ClientError {
    let message = Some("the broker's answer leaves it out".to_owned());
    RefusedRequest { what, error_code: ErrorCode::UnknownServerError, message }.into()
}

impl Admin {
    /// The time limit for the answer of a broker.
    fn limit_of(&self, node: &Node) -> Option<Duration> {
        let own = match node {
            Node::Id(id) => self.answer_limits.get(id).copied(),
            Node::Address(_) => None,
        };
        own.into_iter().chain(self.answer_limit).min()
    }

    /// Sends requests at versions up to `newest`, many at the same time. Returns the answers with their
    /// labels.
    async fn send_all<L, R>(
        &self,
        requests: impl IntoIterator<Item = (L, Node, R)>,
        newest: i16,
    ) -> Vec<(L, Result<R::Response, ClientError>)>
    where
        L: Send + 'static,
        R: Request + Send + Sync + 'static,
        R::Response: Send + 'static,
    {
        let timeout = self.timeout + GRACE;
        let sending = requests.into_iter().map(|(label, node, request)| {
            let (cluster, limit) = (self.cluster.clone(), self.limit_of(&node));
            async move {
                let answer = async {
                    let name = || node.to_string();
                    let (connection, left) = connect_within(limit, name, node.connection(&cluster)).await?;
                    let version = Some(version_up_to::<R>(&connection, newest)?);
                    let timeout = Some(left.map_or(timeout, |left| timeout.min(left)));
                    connection.send_with(&request, RequestOptions { version, timeout }).await
                };
                (label, answer.await)
            }
        });
        in_parallel(sending.collect()).await
    }

    /// Sends one request to each coordinator, for all its groups or transactional ids.
    pub(super) async fn send_to_coordinators<R, T>(
        &self,
        kind: CoordinatorKind,
        keys: &[String],
        request: impl Fn(Vec<String>) -> R,
        read: impl Fn(R::Response) -> Outcomes<String, T>,
    ) -> Outcomes<String, T>
    where
        R: Request + Send + Sync + 'static,
        R::Response: Send + 'static,
    {
        self.send_to_coordinators_up_to(kind, keys, i16::MAX, request, read).await
    }

    /// Sends requests like [`Admin::ask_coordinators`], at versions up to `newest`.
    pub(super) async fn send_to_coordinators_up_to<R, T>(
        &self,
        kind: CoordinatorKind,
        keys: &[String],
        newest: i16,
        request: impl Fn(Vec<String>) -> R,
        read: impl Fn(R::Response) -> Outcomes<String, T>,
    ) -> Outcomes<String, T>
    where
        R: Request + Send + Sync + 'static,
        R::Response: Send + 'static,
    {
        let mut pending = PendingKeys::new(self.retry(), keys.iter().cloned());
        loop {
            let left: Vec<String> = pending.left.iter().cloned().collect();
            let outcomes = self.send_to_coordinators_once((kind, newest), left, &request, &read).await;
            if !pending.again(outcomes).await {
                return pending.outcomes;
            }
        }
    }

    async fn send_to_coordinators_once<R, T>(
        &self,
        (kind, newest): (CoordinatorKind, i16),
        keys: Vec<String>,
        request: &impl Fn(Vec<String>) -> R,
        read: &impl Fn(R::Response) -> Outcomes<String, T>,
    ) -> Outcomes<String, T>
    where
        R: Request + Send + Sync + 'static,
        R::Response: Send + 'static,
    {
        let mut outcomes = Outcomes::new();
        let mut by_address: BTreeMap<String, Vec<String>> = BTreeMap::new();
        match self.cluster.find_coordinators(kind, &keys).await {
            Ok(found) => {
                for (key, address) in found {
                    match address {
                        Ok(address) => by_address.entry(address).or_default().push(key),
                        Err(error) => drop(outcomes.insert(key, Err(error))),
                    }
                }
            }
            Err(error) => {
                outcomes.extend(keys.iter().map(|key| (key.clone(), Err(error.clone()))));
                return outcomes;
            }
        }
        let requests = by_address.into_iter().flat_map(|(address, keys)| {
            let chunks: Vec<Vec<String>> = keys.chunks(KEYS_PER_REQUEST).map(<[String]>::to_vec).collect();
            chunks.into_iter().map(move |keys| (keys, Node::Address(address.clone())))
        });
        let requests = requests.map(|(keys, node)| (keys.clone(), node, request(keys)));
        for (keys, answer) in self.send_all(requests, newest).await {
            match answer {
                Ok(response) => {
                    outcomes.extend(read(response));
                    for key in keys {
                        let what = || match kind {
                            CoordinatorKind::Group => format!("Group {key}"),
                            CoordinatorKind::Transaction => format!("Transactional id {key}"),
                        };
                        outcomes.entry(key.clone()).or_insert_with(|| Err(left_out(what())));
                    }
                }
                Err(error) => outcomes.extend(keys.into_iter().map(|key| (key, Err(error.clone())))),
            }
        }
        outcomes
    }

    /// Sends one request to each leader, for all its partitions. `what` begins the sentence of an error.
    pub(super) async fn send_to_leaders<V, R, T>(
        &self,
        items: &BTreeMap<TopicPartition, V>,
        what: &str,
        request: impl Fn(&[(TopicPartition, V)]) -> R,
        read: impl Fn(R::Response) -> Outcomes<TopicPartition, T>,
    ) -> Result<Outcomes<TopicPartition, T>, ClientError>
    where
        V: Clone,
        R: Request + Send + Sync + 'static,
        R::Response: Send + 'static,
    {
        let mut pending = PendingKeys::new(self.retry(), items.keys().cloned());
        loop {
            let left = pending.left.iter().map(|at| (at.clone(), items[at].clone())).collect();
            let outcomes = self.send_to_leaders_once(left, what, &request, &read).await?;
            if !pending.again(outcomes).await {
                return Ok(pending.outcomes);
            }
        }
    }

    async fn send_to_leaders_once<V, R, T>(
        &self,
        items: Vec<(TopicPartition, V)>,
        what: &str,
        request: &impl Fn(&[(TopicPartition, V)]) -> R,
        read: &impl Fn(R::Response) -> Outcomes<TopicPartition, T>,
    ) -> Result<Outcomes<TopicPartition, T>, ClientError>
    where
        R: Request + Send + Sync + 'static,
        R::Response: Send + 'static,
    {
        let mut topics: Vec<String> = items.iter().map(|(at, _)| at.topic.to_string()).collect();
        topics.dedup();
        let metadata = self.cluster.refresh(&topics, false).await?;
        let mut outcomes = Outcomes::new();
        let mut by_leader: BTreeMap<i32, Vec<(TopicPartition, V)>> = BTreeMap::new();
        for (at, value) in items {
            match metadata.leader(&at.topic, at.partition) {
                Some(leader) => by_leader.entry(leader).or_default().push((at, value)),
                None => {
                    let topic = metadata.topics.get(&*at.topic);
                    let missing = || topic.is_some_and(|topic| topic.partition(at.partition).is_none());
                    let error_code = match topic.and_then(|topic| topic.error) {
                        Some(error) => error,
                        None if missing() => ErrorCode::UnknownTopicOrPartition,
                        None => ErrorCode::LeaderNotAvailable,
                    };
                    let refused = RefusedRequest { what: format!("{what} {at}"), error_code, message: None };
                    outcomes.insert(at, Err(refused.into()));
                }
            }
        }
        let requests = by_leader.into_iter().map(|(leader, items)| {
            let request = request(&items);
            let partitions: Vec<TopicPartition> = items.into_iter().map(|(at, _)| at).collect();
            (partitions, Node::Id(leader), request)
        });
        for (partitions, answer) in self.send_all(requests, i16::MAX).await {
            match answer {
                Ok(response) => {
                    outcomes.extend(read(response));
                    for at in partitions {
                        let error = || Err(left_out(format!("{what} {at}")));
                        outcomes.entry(at.clone()).or_insert_with(error);
                    }
                }
                Err(error) => outcomes.extend(partitions.into_iter().map(|at| (at, Err(error.clone())))),
            }
        }
        Ok(outcomes)
    }

    /// Sends a separate request to each of these brokers, or to all.
    pub(super) async fn send_to_brokers<R, T>(
        &self,
        brokers: Option<&[i32]>,
        request: impl Fn(i32) -> R,
        read: impl Fn(i32, R::Response) -> Result<T, ClientError>,
    ) -> Result<Outcomes<i32, T>, ClientError>
    where
        R: Request + Send + Sync + 'static,
        R::Response: Send + 'static,
    {
        let metadata = self.cluster.refresh(&[], false).await?;
        let all: Vec<i32> = metadata.brokers.keys().copied().collect();
        let mut pending = PendingKeys::new(self.retry(), brokers.unwrap_or(&all).iter().copied());
        // Another attempt would not find a broker that the cluster does not know.
        let unknown = pending.left.iter().filter(|id| !metadata.brokers.contains_key(id));
        let unknown: Vec<i32> = unknown.copied().collect();
        for id in unknown {
            pending.left.remove(&id);
            pending.outcomes.insert(id, Err(BrokerUnknown { id }.into()));
        }
        loop {
            let requests: Vec<(i32, Node, R)> =
                pending.left.iter().map(|&id| (id, Node::Id(id), request(id))).collect();
            let answers = self.send_all(requests, i16::MAX).await.into_iter();
            let outcomes = answers.map(|(id, answer)| (id, answer.and_then(|response| read(id, response))));
            if !pending.again(outcomes.collect()).await {
                return Ok(pending.outcomes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn connecting_counts_against_the_limit_of_an_answer() {
        let never = std::future::pending::<Result<Connection, ClientError>>();
        let begun = Instant::now();
        let limit = Some(Duration::from_secs(3));
        let failed = connect_within(limit, || "broker 2".to_owned(), never).await;
        let error = failed.expect_err("there is no connection");
        assert_eq!(error.to_string(), "Cannot connect to broker 2 within 3000 ms");
        assert!(begun.elapsed() < Duration::from_secs(4));
    }

    #[test]
    fn a_silent_broker_has_a_limit_of_its_own() {
        let cluster = Cluster::unconnected(&[], &thalweg_dial::ConnectionOptions::default());
        let [short, long] = [500, 5000].map(Duration::from_millis);
        let admin = Admin::new(cluster);
        assert_eq!(admin.limit_of(&Node::Id(2)), None);
        let admin = admin.with_answer_limit(long).with_answer_limits([(2, short)].into());
        assert_eq!([1, 2].map(|id| admin.limit_of(&Node::Id(id))), [Some(long), Some(short)]);
    }
}
