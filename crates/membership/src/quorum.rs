//! Connections to remote controllers.
//!
//! The Fetch of the metadata log finds the active controller and detects its loss; all other requests follow
//! it. A server answers the requests of one connection one after the other, so independent requests use
//! separate connections: the log, heartbeats, partition changes, and all other requests.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_dial::{
    ApiVersions, ClientError, Connection, ConnectionOptions, Connector, RequestOptions, host_and_port,
};
use thalweg_wire::data::voters_record::Voter;
use thalweg_wire::request::{ApiVersionsRequest, DescribeClusterRequest, FetchRequest, FetchResponse};
use thalweg_wire::{ApiKey, ErrorCode, Request, Response};
use tokio::time::Instant;

use super::error::LinkError;
use super::leader::{Leader, LeaderInfo, LeaderSearch};
use super::outgoing::OutgoingSecurity;
use thalweg_watch as watch;

/// Retry backoff for failed requests.
const RETRY: Duration = Duration::from_millis(50);
/// Maximum wait of a Fetch at the leader (Kafka's `MAX_FETCH_WAIT_MS` of a raft client).
pub(super) const FETCH_WAIT: Duration = Duration::from_millis(500);
/// Endpoint type of controllers in DescribeCluster.
const CONTROLLERS: i8 = 2;

/// The addresses of the controllers, and time limits.
#[derive(Clone, Debug)]
pub struct QuorumOptions {
    /// Addresses to ask for the active controller: `host:port`.
    pub servers: Vec<String>,
    /// The controller listener that this node uses: the first of `controller.listener.names`.
    pub listener: String,
    /// Addresses of the voters of a static quorum, by node id.
    pub voters: BTreeMap<i32, String>,
    /// `controller.quorum.request.timeout.ms`: for a connection, and for a Fetch in addition to its maximum
    /// wait.
    pub quorum_timeout: Duration,
    /// Timeout of heartbeats and registrations, after which another one is sent.
    pub session_timeout: Duration,
    /// `request.timeout.ms`: for all other requests.
    pub request_timeout: Duration,
    /// Client id of this node.
    pub client_id: String,
    /// Opens the connections.
    pub connector: Connector,
    /// Security of the connections.
    pub security: OutgoingSecurity,
}

/// The separate connections.
#[derive(Clone, Copy)]
enum Channel {
    Log,
    Life,
    Partitions,
    Rest,
}

impl Channel {
    /// The connection for a request to the active controller. A request that is not listed does not compile,
    /// so that none shares a connection by accident.
    const fn of(api: ApiKey) -> Channel {
        match api {
            ApiKey::FetchSnapshot => Channel::Log,
            ApiKey::BrokerRegistration | ApiKey::BrokerHeartbeat | ApiKey::ApiVersions => Channel::Life,
            ApiKey::AlterPartition | ApiKey::AssignReplicasToDirs => Channel::Partitions,
            ApiKey::Envelope
            | ApiKey::DescribeQuorum
            | ApiKey::CreateTopics
            | ApiKey::AllocateProducerIds => Channel::Rest,
            // Only tests send these without an envelope.
            ApiKey::CreatePartitions
            | ApiKey::DeleteTopics
            | ApiKey::IncrementalAlterConfigs
            | ApiKey::UnregisterBroker => Channel::Rest,
            _ => panic!("the request needs a connection: list it above"),
        }
    }
}

/// Connections to the active controller of a quorum.
pub(super) struct Quorum {
    options: QuorumOptions,
    search: Mutex<LeaderSearch>,
    leader: watch::Sender<Option<Leader>>,
    /// The newest epoch with a known leader, and the time when the leader was found.
    elected: Mutex<Option<(i32, Instant)>>,
    /// The versions that the active controller serves, once known.
    versions: Mutex<Option<ApiVersions>>,
    channels: [tokio::sync::Mutex<Option<Connection>>; 4],
}

impl Quorum {
    pub fn new(options: QuorumOptions) -> Quorum {
        Quorum {
            search: Mutex::new(LeaderSearch::new(options.servers.clone(), options.voters.clone())),
            options,
            leader: watch::Sender::new(None),
            elected: Mutex::new(None),
            versions: Mutex::new(None),
            channels: Default::default(),
        }
    }

    /// Adds the voters in the log, in case no configured server is left.
    pub fn learn(&self, voters: &[Voter]) {
        let endpoints = voters.iter().flat_map(|voter| &voter.endpoints);
        let reached = endpoints.filter(|endpoint| endpoint.name == self.options.listener);
        self.search
            .lock()
            .learn(reached.map(|endpoint| host_and_port(&endpoint.host, endpoint.port)).collect());
    }

    /// The versions of an API that the active controller serves; `None` if the versions are unknown or the
    /// API is not served.
    pub fn served(&self, api: ApiKey) -> Option<(i16, i16)> {
        self.versions.lock().as_ref()?.range(api)
    }

    /// The finalized features as reported by a controller.
    pub fn features(&self) -> Vec<(String, i16)> {
        let versions = self.versions.lock();
        let features = versions.iter().flat_map(ApiVersions::features);
        features.map(|(name, level)| (name.to_owned(), level)).collect()
    }

    /// Asks the active controller again for its versions and the finalized features.
    pub async fn ask_versions(&self) -> Result<(), LinkError> {
        let request = ApiVersionsRequest {
            client_software_name: "thalweg".to_owned(),
            client_software_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let response = self.send(&request, ApiVersionsRequest::KEY.versions().1).await?;
        *self.versions.lock() = Some(ApiVersions::from_response(&response));
        Ok(())
    }

    /// The time when the newest active controller was first found.
    pub fn elected(&self) -> Option<Instant> {
        self.elected.lock().map(|(_, at)| at)
    }

    /// True if the versions of the active controller are known.
    pub fn is_known(&self) -> bool {
        self.versions.lock().is_some()
    }

    /// Fetches from the leader, or from a node that names the leader.
    pub async fn fetch(&self, request: &FetchRequest, version: i16) -> Result<FetchResponse, LinkError> {
        let address = self.search.lock().target().to_owned();
        let limit = self.options.quorum_timeout + FETCH_WAIT;
        let answered = self.ask(Channel::Log, &address, request, version, limit).await;
        {
            let mut search = self.search.lock();
            match answered.as_ref().ok().and_then(leader_info) {
                Some(info) => search.on_answer(&address, &info),
                None => search.failed(&address),
            }
            let leader = search.leader().cloned();
            if let Some(Leader { epoch, .. }) = leader {
                let mut elected = self.elected.lock();
                if elected.is_none_or(|(newest, _)| newest < epoch) {
                    *elected = Some((epoch, Instant::now()));
                }
            }
            self.leader.send_if_modified(|known| {
                let changed = *known != leader;
                if changed {
                    match &leader {
                        Some(Leader { id, epoch, address }) => {
                            tracing::info!(id, epoch, address, "Following the active controller");
                        }
                        None => tracing::info!("Active controller is unknown, searching"),
                    }
                    *known = leader;
                }
                changed
            });
        }
        Ok(answered?)
    }

    /// Sends a request to the active controller, and again to a newly elected one.
    pub async fn send<R: Request>(&self, request: &R, version: i16) -> Result<R::Response, LinkError> {
        let channel = const { Channel::of(R::KEY) };
        let limit = match channel {
            Channel::Log => self.options.quorum_timeout,
            Channel::Life => self.options.session_timeout / 2,
            Channel::Partitions | Channel::Rest => self.options.request_timeout,
        };
        let deadline = Instant::now() + limit;
        let mut last = "none is known".to_owned();
        loop {
            let mut changes = self.leader.subscribe();
            let known = tokio::time::timeout_at(deadline, changes.wait_for(Option::is_some)).await;
            let known = known.ok().and_then(|leader| leader.ok()?.clone());
            let Some(leader) = known else { return Err(LinkError::NoController { after: limit, last }) };
            let left = deadline.saturating_duration_since(Instant::now());
            let answered = tokio::select! {
                biased;
                answered = self.ask(channel, &leader.address, request, version, left) => answered,
                // An answer of a former leader is invalid.
                _ = changes.wait_for(|now| now.as_ref().is_none_or(|now| *now != leader)) => {
                    last = format!("{} leads no longer", leader.address);
                    continue;
                }
            };
            last = match answered {
                Ok(response) if is_not_controller(&response) => {
                    format!("{} is not the active controller", leader.address)
                }
                Ok(response) => return Ok(response),
                Err(error) if error.is_retriable() => error.to_string(),
                Err(error) => return Err(error.into()),
            };
            if Instant::now() + RETRY >= deadline {
                return Err(LinkError::NoController { after: limit, last });
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// The cluster id, from the next node to ask, which need not be the leader.
    pub async fn cluster_id(&self) -> Result<String, LinkError> {
        let address = self.search.lock().target().to_owned();
        let request = DescribeClusterRequest { endpoint_type: CONTROLLERS, ..Default::default() };
        let version = DescribeClusterRequest::KEY.versions().1;
        let limit = self.options.quorum_timeout;
        match self.ask(Channel::Rest, &address, &request, version, limit).await {
            Ok(response) if response.error_code == 0 && !response.cluster_id.is_empty() => {
                Ok(response.cluster_id)
            }
            Ok(response) => {
                self.search.lock().failed(&address);
                let code = ErrorCode::from_i16(response.error_code).unwrap_or(ErrorCode::UnknownServerError);
                let message = response.error_message.unwrap_or_default();
                Err(LinkError::NoClusterId { address, code, message })
            }
            Err(error) => {
                self.search.lock().failed(&address);
                Err(error.into())
            }
        }
    }

    async fn ask<R: Request>(
        &self,
        channel: Channel,
        address: &str,
        request: &R,
        newest: i16,
        limit: Duration,
    ) -> Result<R::Response, ClientError> {
        let connection = self.connection(channel, address).await?;
        let newest = connection.versions().newest(R::KEY, newest);
        let version = newest.map_or_else(|| connection.version_of::<R>(), Ok)?;
        connection.send_with(request, RequestOptions { version: Some(version), timeout: Some(limit) }).await
    }

    async fn connection(&self, channel: Channel, address: &str) -> Result<Connection, ClientError> {
        let mut held = self.channels[channel as usize].lock().await;
        if let Some(connection) = held.as_ref()
            && &**connection.peer() == address
            && !connection.is_closed()
        {
            return Ok(connection.clone());
        }
        if let Some(other) = held.take() {
            other.close();
        }
        let options = ConnectionOptions {
            client_id: self.options.client_id.clone(),
            connect_timeout: self.options.quorum_timeout,
            request_timeout: self.options.request_timeout,
            security: self.options.security.read().await,
            ..ConnectionOptions::default()
        };
        let connection = Connection::connect_by(&self.options.connector, address, &options).await?;
        *self.versions.lock() = Some(connection.versions().clone());
        *held = Some(connection.clone());
        Ok(connection)
    }
}

/// The leader according to an answer to Fetch; `None` if the answer has no partition.
fn leader_info(response: &FetchResponse) -> Option<LeaderInfo> {
    let data = response.responses.first()?.partitions.first()?;
    let leader_id = data.current_leader.leader_id;
    let endpoint = response.node_endpoints.iter().find(|endpoint| endpoint.node_id == leader_id);
    Some(LeaderInfo {
        leader_id,
        epoch: data.current_leader.leader_epoch,
        address: endpoint.map(|endpoint| host_and_port(&endpoint.host, endpoint.port)),
        by_leader: data.error_code == ErrorCode::None.code(),
    })
}

/// True if the sender of an answer is not the active controller, by the first error code of the answer: the
/// code of the whole answer, or without one the code of the first topic. Later codes are about single
/// partitions.
fn is_not_controller(response: &impl Response) -> bool {
    let mut first = None;
    response.each_error_code(&mut |code| {
        first.get_or_insert(code);
    });
    first == Some(ErrorCode::NotController.code())
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::request::alter_partition_response::{PartitionData, TopicData};
    use thalweg_wire::request::create_topics_response::CreatableTopicResult;
    use thalweg_wire::request::*;

    #[test]
    fn an_answer_of_another_node_than_the_active_controller_is_known_by_its_first_code() {
        fn check(expected: bool, response: &impl Response) {
            assert_eq!(is_not_controller(response), expected, "{response:?}");
        }
        let error_code = ErrorCode::NotController.code();
        check(true, &BrokerRegistrationResponse { error_code, ..Default::default() });
        check(true, &BrokerHeartbeatResponse { error_code, ..Default::default() });
        check(true, &EnvelopeResponse { error_code, ..Default::default() });
        check(true, &AssignReplicasToDirsResponse { error_code, ..Default::default() });
        check(true, &AllocateProducerIdsResponse { error_code, ..Default::default() });
        check(true, &DescribeQuorumResponse { error_code, ..Default::default() });
        check(true, &AlterPartitionResponse { error_code, ..Default::default() });
        let topics = vec![CreatableTopicResult { error_code, ..Default::default() }];
        check(true, &CreateTopicsResponse { topics, ..Default::default() });

        let partitions = vec![PartitionData { error_code, ..Default::default() }];
        let topics = vec![TopicData { partitions, ..Default::default() }];
        check(false, &AlterPartitionResponse { topics, ..Default::default() });
        check(false, &CreateTopicsResponse::default());
        check(false, &EnvelopeResponse::default());
    }
}
