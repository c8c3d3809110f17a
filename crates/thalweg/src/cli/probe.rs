//! Asks every broker of a cluster on its own listener, concurrently and with a time limit: which brokers answer, and
//! their metadata. One broker's metadata proves nothing about the others: it lists a broker as alive until its
//! session expires, and forever while there is no controller.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use thalweg_client::{
    BrokerAddress, ClientError, Cluster, Connection, ConnectionOptions, Metadata, RefusedRequest,
};
use thalweg_wire::request::{DescribeClusterRequest, DescribeClusterResponse, MetadataRequest};
use tokio::task::JoinSet;

/// Rounds of asking addresses found in answers: one suffices, unless brokers belong to different clusters.
const ROUNDS_MAX: usize = 4;

/// A broker, from another one's view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// `host:port`.
    pub address: String,
    /// Its rack.
    pub rack: Option<String>,
    /// Whether the controller has fenced it.
    pub is_fenced: bool,
}

/// One broker's view of its cluster.
#[derive(Clone, Debug)]
pub struct View {
    /// The connection to it.
    pub connection: Connection,
    /// Its brokers that are not fenced, and its topics.
    pub metadata: Metadata,
    /// All its brokers, including fenced ones if it returns them.
    pub brokers: BTreeMap<i32, Registered>,
}

/// Why an address gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAnswer {
    /// The error.
    pub why: String,
    /// Whether a broker is there, and does not accept the login.
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
pub type Answers = BTreeMap<String, Result<View, NoAnswer>>;

/// Asks `bootstrap` and every broker that an answer names.
pub async fn probe(bootstrap: &[String], options: &ConnectionOptions, within: Duration) -> Answers {
    let mut options = options.clone();
    options.connect_timeout = options.connect_timeout.min(within);
    options.request_timeout = options.request_timeout.min(within);
    let mut answers = Answers::new();
    let mut next: BTreeSet<String> = bootstrap.iter().cloned().collect();
    for _ in 0..ROUNDS_MAX {
        if next.is_empty() {
            break;
        }
        answers.extend(ask_all(next, &options, within).await);
        let named = answers.values().flatten().flat_map(|view| view.brokers.values());
        next = named.map(|broker| broker.address.clone()).collect();
        next.retain(|address| !answers.contains_key(address));
    }
    refuse_other_clusters(bootstrap, &mut answers);
    answers
}

/// A port may have been taken by a broker of another cluster.
fn refuse_other_clusters(bootstrap: &[String], answers: &mut Answers) {
    let asked_first = bootstrap.iter().filter_map(|address| answers.get(address));
    let Some(ours) = asked_first.flatten().find_map(|view| view.metadata.cluster_id.clone()) else { return };
    for (address, answer) in answers.iter_mut() {
        let theirs = answer.as_ref().ok().and_then(|view| view.metadata.cluster_id.clone());
        if let Some(theirs) = theirs.filter(|theirs| *theirs != ours) {
            let why = format!("{address} is a broker of another cluster, {theirs}");
            *answer = Err(NoAnswer::new(why));
        }
    }
}

async fn ask_all(addresses: BTreeSet<String>, options: &ConnectionOptions, within: Duration) -> Answers {
    let mut tasks = JoinSet::new();
    for address in addresses {
        let options = options.clone();
        tasks.spawn(async move {
            let answer = match tokio::time::timeout(within, ask(&address, &options)).await {
                Ok(answer) => answer.map_err(NoAnswer::from),
                Err(_) => {
                    let why = format!("{address} did not answer within {} ms", within.as_millis());
                    Err(NoAnswer::new(why))
                }
            };
            (address, answer)
        });
    }
    tasks.join_all().await.into_iter().collect()
}

/// Connects to one broker and asks it alone.
pub async fn ask(address: &str, options: &ConnectionOptions) -> Result<View, ClientError> {
    let connection = Connection::connect(address, options).await?;
    let everything = MetadataRequest { topics: None, ..MetadataRequest::default() };
    let response = connection.send(&everything).await?;
    RefusedRequest::check(response.error_code, None, || "Metadata of the cluster".to_owned())?;
    let metadata = Metadata::from_response(response);
    let known = metadata.brokers.values().map(|broker| {
        let registered =
            Registered { address: broker.address(), rack: broker.rack.clone(), is_fenced: false };
        (broker.id, registered)
    });
    let mut brokers: BTreeMap<i32, Registered> = known.collect();
    // Not every broker, nor every principal, may request more.
    if let Ok(described) = describe(&connection).await
        && described.error_code == 0
    {
        brokers.extend(described.brokers.into_iter().map(|broker| {
            let address = thalweg_client::host_and_port(&broker.host, broker.port);
            (broker.broker_id, Registered { address, rack: broker.rack, is_fenced: broker.is_fenced })
        }));
    }
    Ok(View { connection, metadata, brokers })
}

async fn describe(connection: &Connection) -> Result<DescribeClusterResponse, ClientError> {
    let all = DescribeClusterRequest { include_fenced_brokers: true, ..DescribeClusterRequest::default() };
    match connection.send(&all).await {
        // Before version 2 fenced brokers cannot be requested.
        Err(ClientError::Unencodable(_)) => connection.send(&DescribeClusterRequest::default()).await,
        described => described,
    }
}

/// Time limit for a broker to accept a connection and return its versions, for commands that only check whether it
/// answers.
const ANSWER_WAIT: Duration = Duration::from_secs(3);

/// Warns of brokers that do not answer: the others' view of them may be outdated.
pub async fn warn_of_silent(cluster: &Cluster, brokers: BTreeSet<i32>) {
    let mut options = cluster.options().clone();
    options.connect_timeout = options.connect_timeout.min(ANSWER_WAIT);
    options.request_timeout = options.request_timeout.min(ANSWER_WAIT);
    let metadata = cluster.metadata();
    let mut tasks = JoinSet::new();
    for id in brokers {
        let Some(address) = metadata.brokers.get(&id).map(BrokerAddress::address) else { continue };
        let options = options.clone();
        tasks.spawn(async move { (id, Connection::connect(&address, &options).await) });
    }
    let mut silent: BTreeMap<i32, String> = BTreeMap::new();
    for (id, answer) in tasks.join_all().await {
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
