//! A client of a cluster: connections that its producers and consumers share, partitions of topics, and the
//! brokers that own them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::BoxedFuture;
use crate::connection::{Connection, ConnectionId, ConnectionTarget};
use crate::connector::Connector;
use crate::error::{PulsarError, RequestRefused, RequestSubject, TooManyRedirects, UnexpectedAnswer};
use crate::options::ClientOptions;
use crate::protocol::{
    Command, LookupResponse, LookupResult, LookupTopic, PartitionsRequest, PartitionsResponse,
    PartitionsResult,
};
use crate::server_error::ServerError;
use crate::service_url::{BrokerAddress, address_of, addresses};
use crate::topic::TopicName;

/// A client of a cluster. Clones share its connections, one to each broker; two clients share nothing.
#[derive(Clone)]
pub struct Client(Arc<ClientState>);

struct ClientState {
    /// The brokers (or proxies) of the service URL.
    service: Vec<BrokerAddress>,
    /// The index of the broker to ask first.
    preferred: AtomicUsize,
    options: ClientOptions,
    connector: Connector,
    /// The lock of a connection is held while it is opened.
    connections: Mutex<BTreeMap<ConnectionTarget, Arc<tokio::sync::Mutex<Option<Connection>>>>>,
    next_connection: AtomicU64,
    /// Ids of producers and consumers, unique among all connections.
    next_id: AtomicU64,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("service", &self.0.service).finish_non_exhaustive()
    }
}

impl Client {
    /// Connects to a broker of `service_url`, `pulsar://HOST:PORT[,HOST:PORT...]`.
    pub fn connect(
        service_url: &str,
        options: ClientOptions,
    ) -> BoxedFuture<'_, Result<Client, PulsarError>> {
        Client::connect_by(Connector::tcp(), service_url, options)
    }

    /// Connects by `connector`, like [`Client::connect`].
    pub fn connect_by(
        connector: Connector,
        service_url: &str,
        options: ClientOptions,
    ) -> BoxedFuture<'_, Result<Client, PulsarError>> {
        Box::pin(async move {
            let client = Client(Arc::new(ClientState {
                service: addresses(service_url)?,
                preferred: AtomicUsize::new(0),
                options,
                connector,
                connections: Mutex::default(),
                next_connection: AtomicU64::new(1),
                next_id: AtomicU64::new(0),
            }));
            client.service_connection().await?;
            Ok(client)
        })
    }

    pub fn options(&self) -> &ClientOptions {
        &self.0.options
    }

    /// The broker's limit of a message in bytes (`maxMessageSize`), as the broker of the service URL names
    /// it.
    pub async fn message_bytes_max(&self) -> Result<usize, PulsarError> {
        Ok(self.service_connection().await?.message_bytes_max())
    }

    /// Number of partitions of a topic; 0 for a topic without partitions, also for one that does not exist
    /// (brokers create it when it is used, unless `allowAutoTopicCreation=false`).
    pub async fn partition_count(&self, topic: &str) -> Result<u32, PulsarError> {
        let topic = TopicName::parse(topic)?;
        let subject = RequestSubject { action: "Partitions of", subject: topic.as_str().into() };
        let connection = self.service_connection().await?;
        let build =
            |request_id| Command::Partitions(PartitionsRequest { topic: topic.to_string(), request_id });
        let answer = connection.request(subject.clone(), self.0.options.operation_timeout, build).await?;
        let Command::PartitionsResponse(PartitionsResponse { partitions, response, error, message, .. }) =
            answer
        else {
            return Err(UnexpectedAnswer { request: subject, missing: "partitions" }.into());
        };
        if response == Some(PartitionsResult::Failed.into()) || error.is_some() {
            return Err(refused(subject, error, message).into());
        }
        Ok(partitions.unwrap_or_default())
    }

    /// The topics to produce to and consume from: the partitions of `topic`, or the topic itself.
    pub async fn partitions(&self, topic: &str) -> Result<Vec<TopicName>, PulsarError> {
        let name = TopicName::parse(topic)?;
        Ok(match self.partition_count(topic).await? {
            0 => vec![name],
            count => (0..count).map(|index| name.partition(index)).collect(),
        })
    }

    /// A new id of a producer or consumer.
    pub(crate) fn next_id(&self) -> u64 {
        self.0.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// A connection to the broker that owns `topic`.
    pub(crate) async fn owner_of(&self, topic: &TopicName) -> Result<Connection, PulsarError> {
        let mut connection = self.service_connection().await?;
        let mut is_authoritative = false;
        let redirects_max = self.0.options.lookup_redirects_max;
        for _ in 0..=redirects_max {
            let answer = self.look_up(&connection, topic, is_authoritative).await?;
            match self.follow(&connection, answer, topic).await? {
                LookupStep::Owner(owner) => return Ok(owner),
                LookupStep::Ask(next, authoritative) => {
                    (connection, is_authoritative) = (next, authoritative)
                }
            }
        }
        let broker = Arc::clone(connection.peer());
        Err(TooManyRedirects { topic: topic.to_string(), redirects: redirects_max, broker }.into())
    }

    async fn look_up(
        &self,
        connection: &Connection,
        topic: &TopicName,
        is_authoritative: bool,
    ) -> Result<LookupResponse, PulsarError> {
        let build = |request_id| {
            let authoritative = Some(is_authoritative);
            Command::Lookup(LookupTopic { topic: topic.to_string(), request_id, authoritative })
        };
        let timeout = self.0.options.operation_timeout;
        match connection.request(lookup_of(topic), timeout, build).await? {
            Command::LookupResponse(answer) => Ok(answer),
            _ => Err(UnexpectedAnswer { request: lookup_of(topic), missing: "broker" }.into()),
        }
    }

    /// The next step after an answer of the broker behind `asked`.
    async fn follow(
        &self,
        asked: &Connection,
        answer: LookupResponse,
        topic: &TopicName,
    ) -> Result<LookupStep, PulsarError> {
        let result = answer.response.and_then(|code| LookupResult::try_from(code).ok());
        let Some(result @ (LookupResult::Redirect | LookupResult::Connect)) = result else {
            return Err(refused(lookup_of(topic), answer.error, answer.message).into());
        };
        let Some(url) = answer.broker_service_url else {
            return Err(UnexpectedAnswer { request: lookup_of(topic), missing: "broker" }.into());
        };
        let broker = address_of(&url)?;
        let target = if answer.proxy_through_service_url.unwrap_or_default() {
            let proxy = self.0.service.iter().find(|service| service.as_str() == &**asked.peer());
            let address = proxy.cloned().unwrap_or_else(|| self.0.service[0].clone());
            ConnectionTarget { address, behind: Some(broker) }
        } else {
            ConnectionTarget { address: broker, behind: None }
        };
        let connection = self.connection(&target).await?;
        Ok(match result {
            LookupResult::Connect => LookupStep::Owner(connection),
            _ => LookupStep::Ask(connection, answer.authoritative.unwrap_or_default()),
        })
    }

    /// A connection to a broker of the service URL: to the one that answered last, or the next that answers.
    async fn service_connection(&self) -> Result<Connection, PulsarError> {
        let service = &self.0.service;
        let first = self.0.preferred.load(Ordering::Relaxed);
        let mut failure = None;
        for index in (0..service.len()).map(|step| (first + step) % service.len()) {
            let target = ConnectionTarget { address: service[index].clone(), behind: None };
            match self.connection(&target).await {
                Ok(connection) => {
                    self.0.preferred.store(index, Ordering::Relaxed);
                    return Ok(connection);
                }
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.expect("a service URL has at least one broker"))
    }

    async fn connection(&self, target: &ConnectionTarget) -> Result<Connection, PulsarError> {
        let shared = &*self.0;
        let place = Arc::clone(shared.connections.lock().entry(target.clone()).or_default());
        let mut place = place.lock().await;
        if let Some(open) = place.as_ref().filter(|open| !open.is_closed()) {
            return Ok(open.clone());
        }
        let id = ConnectionId(shared.next_connection.fetch_add(1, Ordering::Relaxed));
        let opened = Connection::open(&shared.connector, target, id, &shared.options).await?;
        Ok(place.insert(opened).clone())
    }
}

enum LookupStep {
    /// The connection to the owner.
    Owner(Connection),
    /// The connection to ask next, and whether the broker there decides.
    Ask(Connection, bool),
}

fn lookup_of(topic: &TopicName) -> RequestSubject {
    RequestSubject { action: "Lookup of", subject: topic.as_str().into() }
}

fn refused(request: RequestSubject, error: Option<i32>, message: Option<String>) -> RequestRefused {
    let error = error.map_or(ServerError::UnknownError, ServerError::of);
    RequestRefused { request, error, message: message.unwrap_or_default() }
}

#[cfg(test)]
mod tests;
