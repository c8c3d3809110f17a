//! Asks every broker of a cluster on its own listener, concurrently and with a time limit: which brokers
//! answer, and their metadata. The metadata of one broker proves nothing about other brokers: a dead broker
//! is listed as alive until its session expires, and forever while there is no controller.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use thalweg_client::{
    ClientError, Cluster, Connection, ConnectionOptions, Metadata, RefusedRequest, in_parallel,
};
use thalweg_wire::request::{DescribeClusterRequest, DescribeClusterResponse, MetadataRequest};

/// Limit of the rounds for addresses found in answers: one round suffices, unless brokers belong to different
/// clusters.
const ROUNDS_MAX: usize = 4;

/// A broker in the metadata of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RegisteredBroker {
    /// `host:port`.
    pub address: String,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// True if the controller has fenced the broker.
    pub is_fenced: bool,
}

/// One broker's view of its cluster.
#[derive(Clone, Debug)]
pub(crate) struct BrokerView {
    /// The connection to the broker.
    pub connection: Connection,
    /// The brokers that are not fenced, and the topics.
    pub metadata: Metadata,
    /// All brokers, including fenced brokers if the broker returns them.
    pub brokers: BTreeMap<i32, RegisteredBroker>,
}

/// The reason why an address gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoAnswer {
    /// The error, as text.
    pub why: String,
    /// True if a broker runs there, but does not accept the login.
    pub is_login: bool,
}

impl NoAnswer {
    fn new(why: String) -> NoAnswer {
        NoAnswer { why, is_login: false }
    }
}

impl From<ClientError> for NoAnswer {
    fn from(error: ClientError) -> NoAnswer {
        NoAnswer { is_login: matches!(error, ClientError::Authentication(_)), why: error.to_string() }
    }
}

/// The answer of each address, or the reason for its absence.
pub(crate) type Answers = BTreeMap<String, Result<BrokerView, NoAnswer>>;

/// Asks `bootstrap` and every broker that an answer names.
pub(crate) async fn probe(bootstrap: &[String], options: &ConnectionOptions, within: Duration) -> Answers {
    let mut options = options.clone();
    options.connect_timeout = options.connect_timeout.min(within);
    options.request_timeout = options.request_timeout.min(within);
    let mut answers = Answers::new();
    let mut next: BTreeSet<String> = bootstrap.iter().cloned().collect();
    for _ in 0..ROUNDS_MAX {
        if next.is_empty() {
            break;
        }
        answers.extend(request_views(next, &options, within).await);
        let named = answers.values().flatten().flat_map(|view| view.brokers.values());
        next = named.map(|broker| broker.address.clone()).collect();
        next.retain(|address| !answers.contains_key(address));
    }
    refuse_other_clusters(bootstrap, &mut answers);
    answers
}

/// Refuses answers of other clusters, whose brokers may have taken a port.
fn refuse_other_clusters(bootstrap: &[String], answers: &mut Answers) {
    let requested_first = bootstrap.iter().filter_map(|address| answers.get(address));
    let Some(ours) = requested_first.flatten().find_map(|view| view.metadata.cluster_id.clone()) else {
        return;
    };
    for (address, answer) in answers.iter_mut() {
        let theirs = answer.as_ref().ok().and_then(|view| view.metadata.cluster_id.clone());
        if let Some(theirs) = theirs.filter(|theirs| *theirs != ours) {
            let why = format!("{address} is a broker of another cluster, {theirs}");
            *answer = Err(NoAnswer::new(why));
        }
    }
}

async fn request_views(
    addresses: BTreeSet<String>,
    options: &ConnectionOptions,
    within: Duration,
) -> Answers {
    let requests = addresses.into_iter().map(|address| {
        let options = options.clone();
        async move {
            let answer = match tokio::time::timeout(within, request_view(&address, &options)).await {
                Ok(answer) => answer.map_err(NoAnswer::from),
                Err(_) => {
                    let why = format!("{address} did not answer within {} ms", within.as_millis());
                    Err(NoAnswer::new(why))
                }
            };
            (address, answer)
        }
    });
    in_parallel(requests.collect()).await.into_iter().collect()
}

/// Connects to one broker and returns its view.
pub(crate) async fn request_view(
    address: &str,
    options: &ConnectionOptions,
) -> Result<BrokerView, ClientError> {
    let connection = Connection::connect(address, options).await?;
    let everything = MetadataRequest { topics: None, ..MetadataRequest::default() };
    let response = connection.send(&everything).await?;
    RefusedRequest::check(response.error_code, None, || "Metadata of the cluster".to_owned())?;
    let metadata = Metadata::from_response(response);
    let known = metadata.brokers.values().map(|broker| {
        let registered =
            RegisteredBroker { address: broker.address(), rack: broker.rack.clone(), is_fenced: false };
        (broker.id, registered)
    });
    let mut brokers: BTreeMap<i32, RegisteredBroker> = known.collect();
    // Older brokers and principals without rights get the metadata only.
    if let Ok(described) = describe(&connection).await
        && described.error_code == 0
    {
        brokers.extend(described.brokers.into_iter().map(|broker| {
            let address = thalweg_client::host_and_port(&broker.host, broker.port);
            (broker.broker_id, RegisteredBroker { address, rack: broker.rack, is_fenced: broker.is_fenced })
        }));
    }
    Ok(BrokerView { connection, metadata, brokers })
}

async fn describe(connection: &Connection) -> Result<DescribeClusterResponse, ClientError> {
    let all = DescribeClusterRequest { include_fenced_brokers: true, ..DescribeClusterRequest::default() };
    match connection.send(&all).await {
        // Versions before 2 cannot return fenced brokers.
        Err(ClientError::Unencodable(_)) => connection.send(&DescribeClusterRequest::default()).await,
        described => described,
    }
}

/// Time limit for a broker to accept a connection and return its versions, for commands that only check for
/// an answer.
const ANSWER_WAIT: Duration = Duration::from_secs(3);

/// Warns of brokers that do not answer, because the metadata about such a broker may be outdated.
pub(crate) async fn warn_of_silent(cluster: &Cluster, brokers: BTreeSet<i32>) {
    let mut options = cluster.options().clone();
    options.connect_timeout = options.connect_timeout.min(ANSWER_WAIT);
    options.request_timeout = options.request_timeout.min(ANSWER_WAIT);
    let metadata = cluster.metadata();
    let connecting = brokers.into_iter().filter_map(|id| {
        let address = metadata.brokers.get(&id)?.address();
        let options = options.clone();
        Some(async move { (id, Connection::connect(&address, &options).await) })
    });
    let mut silent: BTreeMap<i32, String> = BTreeMap::new();
    for (id, answer) in in_parallel(connecting.collect()).await {
        if let Err(error) = answer {
            silent.insert(id, error.to_string());
        }
    }
    for (id, why) in silent {
        tracing::warn!(
            "Broker {id} does not answer: {why}. The other brokers' view of it may be outdated; `thalweg cluster status` asks every broker"
        );
    }
}
