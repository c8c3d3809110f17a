//! The cluster behind bootstrap addresses: its metadata, a connection per broker, coordinators.
//!
//! A connection is opened when first needed, shared by all callers for the same broker, and reopened after
//! its end. Requests that a broker may hold for a while (Fetch, JoinGroup) need a separate connection,
//! because a broker answers one request of a connection at a time: [`Cluster::dedicated`]. There are no
//! background tasks.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_dial::{
    AnswerBudget, BrokerUnknown, ClientError, Connection, ConnectionOptions, Connector, NoBootstrapServer,
    RefusedRequest,
};
use thalweg_hash::HashMap;
use thalweg_wire::request::metadata_request::MetadataRequestTopic;
use thalweg_wire::request::{
    FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequest, MetadataResponse,
};
use thalweg_wire::{ApiKey, ErrorCode, Request, Uuid};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::metadata::{BrokerAddress, LastSeen, Metadata};

/// The first version of FindCoordinator that finds several coordinators at once.
const FIND_COORDINATORS_FROM: i16 = 4;

/// Maximum number of keys in a request for several coordinators.
const KEYS_PER_REQUEST: usize = 1000;

/// Time without an answer after which another broker is asked, too: a stopped process keeps its connections.
pub(crate) const SILENCE: Duration = Duration::from_secs(1);

/// Poll interval while waiting for a topic.
const TOPIC_RETRY: Duration = Duration::from_millis(100);

/// Ticks per heartbeat interval. All members in a process wake up at common ticks, so that a process with
/// many members wakes up rarely.
const BEAT_TICKS: u32 = 4;

/// The kind of a coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CoordinatorKind {
    /// A consumer group.
    Group,
    /// The transactions of a transactional id.
    Transaction,
}

impl CoordinatorKind {
    /// The code in FindCoordinator.
    fn code(self) -> i8 {
        match self {
            CoordinatorKind::Group => 0,
            CoordinatorKind::Transaction => 1,
        }
    }
}

/// A cluster. Clones share connections and metadata.
#[derive(Clone, Debug)]
pub struct Cluster(Arc<SharedCluster>);

/// A weak reference to a cluster, which keeps no connection.
#[derive(Clone, Debug)]
pub struct WeakCluster(Weak<SharedCluster>);

impl WeakCluster {
    /// The cluster, if it is still in use.
    pub fn upgrade(&self) -> Option<Cluster> {
        self.0.upgrade().map(Cluster)
    }
}

#[derive(Debug)]
struct SharedCluster {
    bootstrap: Vec<String>,
    connector: Connector,
    options: ConnectionOptions,
    created: Instant,
    state: Mutex<State>,
    /// Serialises connecting to an address, so that concurrent callers share one connection. An unreachable
    /// broker does not delay connections to the others.
    connecting: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

#[derive(Debug, Default)]
struct State {
    metadata: Arc<Metadata>,
    seen: LastSeen,
    by_address: HashMap<String, Connection>,
    /// The addresses that no connection was made to yet, although it was tried.
    attempts: HashMap<String, Attempt>,
}

/// An attempt to connect that has not succeeded.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    began: Instant,
    has_failed: bool,
}

impl Cluster {
    /// The cluster behind `bootstrap`, a list of `host:port`. Connects to one address and learns the brokers.
    pub async fn connect(bootstrap: &[String], options: &ConnectionOptions) -> Result<Cluster, ClientError> {
        Cluster::connect_by(Connector::tcp(), bootstrap, options).await
    }

    /// Connects like [`Cluster::connect`], over streams that `connector` makes.
    pub async fn connect_by(
        connector: Connector,
        bootstrap: &[String],
        options: &ConnectionOptions,
    ) -> Result<Cluster, ClientError> {
        let cluster = Cluster::unconnected_by(connector, bootstrap, options);
        cluster.refresh(&[], false).await?;
        Ok(cluster)
    }

    /// The cluster behind `bootstrap`, without metadata: the first request connects.
    pub fn unconnected(bootstrap: &[String], options: &ConnectionOptions) -> Cluster {
        Cluster::unconnected_by(Connector::tcp(), bootstrap, options)
    }

    fn unconnected_by(connector: Connector, bootstrap: &[String], options: &ConnectionOptions) -> Cluster {
        Cluster(Arc::new(SharedCluster {
            bootstrap: bootstrap.to_vec(),
            connector,
            options: options.clone(),
            created: Instant::now(),
            state: Mutex::default(),
            connecting: Mutex::default(),
        }))
    }

    /// The same cluster over separate connections, opened when needed, for requests that brokers may hold.
    #[must_use]
    pub fn separate(&self) -> Cluster {
        let separate = Cluster::unconnected_by(self.0.connector.clone(), &self.0.bootstrap, &self.0.options);
        separate.0.state.lock().metadata = self.metadata();
        separate
    }

    /// True if both share connections and metadata.
    pub fn is_same(&self, other: &Cluster) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A weak reference to the cluster.
    pub fn downgrade(&self) -> WeakCluster {
        WeakCluster(Arc::downgrade(&self.0))
    }

    /// The last common tick up to `at`, at most one `period` before it. Work at common ticks wakes a process
    /// with many users once for all of them.
    pub(crate) fn tick_until(&self, at: Instant, period: Duration) -> Instant {
        let since = at.duration_since(self.0.created).as_nanos();
        let beyond = since.checked_rem(period.as_nanos()).unwrap_or(0);
        at - Duration::from_nanos(u64::try_from(beyond).expect("a period is less than 500 years"))
    }

    /// The time of the next heartbeat of a group, with the interval set by the coordinator. `least` is the
    /// minimum interval: a zero interval would be a loop without a pause.
    pub(crate) fn next_beat(&self, interval_ms: i32, least: Duration) -> Instant {
        let interval = Duration::from_millis(u64::try_from(interval_ms).unwrap_or(0)).max(least);
        self.beat_after(interval)
    }

    /// The time of a heartbeat at a common tick, at most a tick before `interval` is over.
    pub(crate) fn beat_after(&self, interval: Duration) -> Instant {
        self.tick_until(Instant::now() + interval, interval / BEAT_TICKS)
    }

    /// The current metadata.
    pub fn metadata(&self) -> Arc<Metadata> {
        Arc::clone(&self.0.state.lock().metadata)
    }

    /// The connector for new streams.
    pub fn connector(&self) -> &Connector {
        &self.0.connector
    }

    /// The options of connections.
    pub fn options(&self) -> &ConnectionOptions {
        &self.0.options
    }

    /// The ongoing failure, if the options have [`Waits`](crate::Waits).
    pub fn trouble(&self) -> Option<String> {
        self.0.options.waits.as_ref()?.trouble()
    }

    /// Requests the brokers and these topics. The answer replaces their metadata, except for partitions with
    /// a newer leader epoch from another broker; other topics do not change. With `create`, brokers that
    /// allow it create missing topics. Errors of single topics and partitions are in the answer.
    pub async fn refresh(&self, topics: &[String], create: bool) -> Result<Arc<Metadata>, ClientError> {
        let topics = topics
            .iter()
            .map(|name| MetadataRequestTopic { name: Some(name.clone()), ..MetadataRequestTopic::default() });
        self.request(Some(topics.collect()), create).await
    }

    /// Refreshes like [`Cluster::refresh`], for topics by id. Topics unknown to the broker are left out.
    pub async fn refresh_ids(&self, ids: &[Uuid]) -> Result<Arc<Metadata>, ClientError> {
        let topics = ids.iter().map(|&topic_id| MetadataRequestTopic { topic_id, name: None });
        self.request(Some(topics.collect()), false).await
    }

    /// Refreshes like [`Cluster::refresh`], for all topics: topics missing in the answer are forgotten.
    pub async fn refresh_all(&self) -> Result<Arc<Metadata>, ClientError> {
        self.request(None, false).await
    }

    /// Waits until the cluster knows a topic, created if necessary with `create`. Returns the reason if that
    /// takes longer than `within`.
    pub async fn wait_for_topic(
        &self,
        name: &str,
        create: bool,
        within: Duration,
    ) -> Result<(), ClientError> {
        let deadline = Instant::now() + within;
        loop {
            let metadata = self.refresh(&[name.to_owned()], create).await?;
            let topic = metadata.topics.get(name);
            let error_code = match topic {
                Some(topic) if topic.error.is_none() && !topic.partitions.is_empty() => return Ok(()),
                topic => topic.and_then(|topic| topic.error).unwrap_or(ErrorCode::UnknownTopicOrPartition),
            };
            let refused = RefusedRequest { what: format!("Topic {name}"), error_code, message: None };
            if !error_code.is_retriable() || Instant::now() >= deadline {
                return Err(refused.into());
            }
            self.0.options.failed(name, &refused);
            tokio::time::sleep(TOPIC_RETRY.min(within)).await;
        }
    }

    async fn request(
        &self,
        topics: Option<Vec<MetadataRequestTopic>>,
        create: bool,
    ) -> Result<Arc<Metadata>, ClientError> {
        let of_all_topics = topics.is_none();
        let request =
            MetadataRequest { topics, allow_auto_topic_creation: create, ..MetadataRequest::default() };
        let response = self.first_metadata(request).await?;
        RefusedRequest::check(response.error_code, None, || "Metadata of the cluster".to_owned())?;
        let mut answer = Metadata::from_response(response);
        let mut state = self.0.state.lock();
        answer.prefer_newer(&mut state.seen);
        let answer = Arc::new(answer);
        if of_all_topics {
            state.metadata = Arc::clone(&answer);
        } else {
            Arc::make_mut(&mut state.metadata).update(&answer);
        }
        Ok(answer)
    }

    /// The metadata of any broker: after a failure or a silence the next one is asked, too.
    pub async fn first_metadata(&self, request: MetadataRequest) -> Result<MetadataResponse, ClientError> {
        let request = Arc::new(request);
        let mut addresses = self.addresses().into_iter();
        let mut attempts = JoinSet::new();
        let mut first_failure = None;
        loop {
            if let Some(address) = addresses.next() {
                let (cluster, request) = (self.clone(), Arc::clone(&request));
                attempts.spawn(async move { cluster.connection_to(&address).await?.send(&*request).await });
            }
            let is_last = addresses.len() == 0;
            let answer = tokio::select! {
                biased;
                answer = attempts.join_next() => answer,
                () = tokio::time::sleep(SILENCE), if !is_last => continue,
            };
            match answer.map(|answer| answer.expect("an attempt neither panics nor is cancelled")) {
                Some(Err(failure)) if failure.is_retriable() || is_of_controller(&failure) => {
                    first_failure.get_or_insert(failure);
                }
                Some(other) => return other,
                None => return Err(first_failure.unwrap_or_else(|| NoBootstrapServer.into())),
            }
        }
    }

    /// Sends a request to any broker, and to another if the connection fails.
    pub async fn send_any<R: Request>(&self, request: &R) -> Result<R::Response, ClientError> {
        let mut first_failure = None;
        for address in self.addresses() {
            let answer = match self.connection_to(&address).await {
                Ok(connection) => connection.send(request).await,
                Err(failure) => Err(failure),
            };
            match answer {
                Err(failure) if failure.is_retriable() || is_of_controller(&failure) => {
                    first_failure.get_or_insert(failure);
                }
                other => return other,
            }
        }
        Err(first_failure.unwrap_or_else(|| NoBootstrapServer.into()))
    }

    /// A connection to any broker.
    pub async fn any(&self) -> Result<Connection, ClientError> {
        let mut first_failure = None;
        for address in self.addresses() {
            match self.connection_to(&address).await {
                Ok(connection) => return Ok(connection),
                Err(failure) => {
                    first_failure.get_or_insert(failure);
                }
            }
        }
        Err(first_failure.unwrap_or_else(|| NoBootstrapServer.into()))
    }

    /// Sends an administrative request to the controller's broker, or to any broker if it is unknown or
    /// unavailable: with KRaft, every broker forwards.
    pub async fn send_controller<R: Request>(&self, request: &R) -> Result<R::Response, ClientError> {
        if let Some(id) = self.metadata().controller_id
            && let Ok(connection) = self.broker(id).await
        {
            return connection.send(request).await;
        }
        self.send_any(request).await
    }

    /// The connection to a broker in the metadata.
    pub async fn broker(&self, id: i32) -> Result<Connection, ClientError> {
        let address = self.metadata().brokers.get(&id).map(BrokerAddress::address);
        match address {
            Some(address) => self.connection_to(&address).await,
            None => Err(BrokerUnknown { id }.into()),
        }
    }

    /// The connection to the coordinator of a group or transactional id. The coordinator may change: call
    /// again after NOT_COORDINATOR and COORDINATOR_NOT_AVAILABLE, which this call may return too.
    pub async fn coordinator(&self, kind: CoordinatorKind, key: &str) -> Result<Connection, ClientError> {
        let address = self.find_coordinator(kind, key).await?;
        self.connection_to(&address).await
    }

    /// The address of the coordinator of a group or transactional id.
    pub(crate) async fn find_coordinator(
        &self,
        kind: CoordinatorKind,
        key: &str,
    ) -> Result<String, ClientError> {
        let any = self.any().await?;
        let several =
            any.versions().newest(ApiKey::FindCoordinator, i16::MAX) >= Some(FIND_COORDINATORS_FROM);
        let key_type = kind.code();
        let request = match several {
            true => FindCoordinatorRequest {
                key_type,
                coordinator_keys: vec![key.to_owned()],
                ..FindCoordinatorRequest::default()
            },
            false => {
                FindCoordinatorRequest { key: key.to_owned(), key_type, ..FindCoordinatorRequest::default() }
            }
        };
        let response = any.send(&request).await?;
        Ok(coordinator_address(response, kind, key)?)
    }

    /// The addresses of the coordinators of several groups or transactional ids, by one request for many if
    /// the broker supports it.
    pub(crate) async fn find_coordinators(
        &self,
        kind: CoordinatorKind,
        keys: &[String],
    ) -> Result<BTreeMap<String, Result<String, ClientError>>, ClientError> {
        let any = self.any().await?;
        let newest = any.versions().newest(ApiKey::FindCoordinator, i16::MAX);
        let mut found = BTreeMap::new();
        if newest < Some(FIND_COORDINATORS_FROM) {
            for key in keys {
                found.insert(key.clone(), self.find_coordinator(kind, key).await);
            }
            return Ok(found);
        }
        for keys in keys.chunks(KEYS_PER_REQUEST) {
            let request = FindCoordinatorRequest {
                key_type: kind.code(),
                coordinator_keys: keys.to_vec(),
                ..FindCoordinatorRequest::default()
            };
            let response = any.send(&request).await?;
            RefusedRequest::check(response.error_code, response.error_message.as_deref(), || {
                format!("Coordinators of {} keys", keys.len())
            })?;
            for one in response.coordinators {
                let key = one.key.clone();
                let response = FindCoordinatorResponse { coordinators: vec![one], ..Default::default() };
                let address = coordinator_address(response, kind, &key).map_err(ClientError::from);
                found.insert(key, address);
            }
        }
        Ok(found)
    }

    /// A new unshared connection to an address, for requests that the broker may hold for a while.
    pub async fn dedicated(&self, address: &str) -> Result<Connection, ClientError> {
        Connection::connect_by(&self.0.connector, address, &self.0.options).await
    }

    /// Like [`Cluster::dedicated`]; large answers wait for a place in the budget.
    pub(crate) async fn dedicated_within(
        &self,
        address: &str,
        answer_budget: Option<Arc<dyn AnswerBudget>>,
    ) -> Result<Connection, ClientError> {
        let options = ConnectionOptions { answer_budget, ..self.0.options.clone() };
        Connection::connect_by(&self.0.connector, address, &options).await
    }

    /// A shared connection to an address, opened if there is no live one.
    pub async fn connection_to(&self, address: &str) -> Result<Connection, ClientError> {
        if let Some(connection) = self.living(address) {
            return Ok(connection);
        }
        let connecting = Arc::clone(self.0.connecting.lock().entry(address.to_owned()).or_default());
        let _one = connecting.lock().await;
        if let Some(connection) = self.living(address) {
            return Ok(connection);
        }
        let attempt = Attempt { began: Instant::now(), has_failed: false };
        self.0.state.lock().attempts.entry(address.to_owned()).or_insert(attempt);
        let connected = Connection::connect_by(&self.0.connector, address, &self.0.options).await;
        let mut state = self.0.state.lock();
        match connected {
            Ok(connection) => {
                state.attempts.remove(address);
                state.by_address.insert(address.to_owned(), connection.clone());
                Ok(connection)
            }
            Err(error) => {
                if let Some(attempt) = state.attempts.get_mut(address) {
                    attempt.has_failed = true;
                }
                Err(error)
            }
        }
    }

    fn living(&self, address: &str) -> Option<Connection> {
        let mut state = self.0.state.lock();
        let connection = state.by_address.get(address)?;
        if !connection.is_closed() {
            return Some(connection.clone());
        }
        state.by_address.remove(address);
        None
    }

    /// The addresses to try: of brokers with a live connection, of other brokers, of the bootstrap; last of
    /// all those that are silent or could not be connected to.
    fn addresses(&self) -> Vec<String> {
        let state = self.0.state.lock();
        let mut known: Vec<String> = state.metadata.brokers.values().map(BrokerAddress::address).collect();
        let brokers = known.len();
        for address in &self.0.bootstrap {
            if !known.contains(address) {
                known.push(address.clone());
            }
        }
        known[..brokers].sort_by_cached_key(|address| !state.is_connected(address));
        known.sort_by_cached_key(|address| state.silent_since(address));
        known
    }
}

impl State {
    fn connection(&self, address: &str) -> Option<&Connection> {
        self.by_address.get(address).filter(|connection| !connection.is_closed())
    }

    fn is_connected(&self, address: &str) -> bool {
        self.connection(address).is_some()
    }

    /// The time since which an address has not answered, if that is long ago or an attempt to connect failed.
    fn silent_since(&self, address: &str) -> Option<Instant> {
        if let Some(connection) = self.connection(address) {
            return connection.unanswered_since().filter(|since| since.elapsed() >= SILENCE);
        }
        let attempt = self.attempts.get(address)?;
        (attempt.has_failed || attempt.began.elapsed() >= SILENCE).then_some(attempt.began)
    }
}

/// True if the address was a controller's: the next may be a broker's.
fn is_of_controller(failure: &ClientError) -> bool {
    matches!(failure, ClientError::VersionMismatch(mismatch) if mismatch.is_controller)
}

fn coordinator_address(
    response: FindCoordinatorResponse,
    kind: CoordinatorKind,
    key: &str,
) -> Result<String, RefusedRequest> {
    let what = || match kind {
        CoordinatorKind::Group => format!("Coordinator of group {key}"),
        CoordinatorKind::Transaction => format!("Coordinator of transactional id {key}"),
    };
    RefusedRequest::check(response.error_code, response.error_message.as_deref(), what)?;
    let (id, host, port) = match response.coordinators.into_iter().find(|found| found.key == key) {
        Some(found) => {
            RefusedRequest::check(found.error_code, found.error_message.as_deref(), what)?;
            (found.node_id, found.host, found.port)
        }
        None => (response.node_id, response.host, response.port),
    };
    Ok(BrokerAddress { id, host, port, rack: None }.address())
}
