//! Hosting of named streams: deployed and undeployed at runtime, restarted with the process.
//!
//! A topic of the cluster holds the desired state (`definitions`). A host reads and follows that topic, and
//! runs the streams deployed on its node. A verb is checked against the topic up to its end, written as a
//! record, and answered when this host has read that record. So all hosts of a cluster see the same streams,
//! and any host can undeploy another's stream. Verbs on one host are serialised; if two hosts change the same
//! stream at once, the later record wins.
//!
//! - [`definition`] is a record of the topic.
//! - `supervisor` runs one stream: start, end, failure, drain.
//! - `verbs` are the operations of a host.
//! - [`onlooking`] shows passing messages to people.
//! - [`recorder`] passes changes on to an audit trail, with the principals of the requests.
//! - [`rights`] are the rights of streams' principals.
//! - [`rest`] is the HTTP API, [`metrics`] the figures for Prometheus.

pub mod definition;
mod definitions;
pub mod metrics;
pub mod onlooking;
pub mod recorder;
pub mod rest;
pub mod rights;
mod status;
mod supervisor;
mod verbs;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use thalweg_client::Cluster;
use thalweg_record::Offset;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::NotGuaranteed;
use crate::bad::OnError;
use crate::deployment::{Deployment, WrongProperty};
use crate::language::{self, Complaints};
use crate::module::{Module, StageOutput};
use crate::plan::{Plan, Surroundings, tappable};
use crate::reach::{Reach, Refusal};
use crate::runtime::Taps;
use crate::transport::{TopicScope, Transport};
use definition::Definition;
use definitions::{DefinitionReader, DefinitionRecord, DefinitionWriter, DefinitionsUnavailable};
use rights::{MissingRight, Right, Rights};
use supervisor::{DesiredState, Supervisor};

pub use definitions::TOPIC;
pub use status::{State, StreamReport, StreamStatus};

/// The prefix of a hosted stream's transactional ids.
const INSTANCE: &str = "hosted";
/// Pause before the topic is read again after a failure.
const AGAIN: Duration = Duration::from_secs(1);
/// Maximum time that a read waits for the next record.
const READ: Duration = Duration::from_secs(5);

/// The configuration of a host.
#[derive(Clone)]
pub struct HostSettings {
    /// The cluster for topics between stages, and kafka stages without an address.
    pub cluster: crate::Cluster,
    /// The same cluster for definitions. With a separate login here, streams need no right to the
    /// definitions.
    pub definitions: crate::Cluster,
    /// The node id recorded with deployments on this host.
    pub node: i32,
    /// The limits of streams outside the cluster.
    pub reach: Arc<Reach>,
    /// The rights of principals in the cluster.
    pub rights: Arc<dyn Rights>,
    /// Receives the lines that stages print.
    pub console: Arc<dyn StageOutput>,
}

/// The reason why a verb failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HostError {
    /// The text is invalid.
    #[error(transparent)]
    WrongDefinition(#[from] Complaints),
    /// A property is invalid.
    #[error(transparent)]
    WrongProperty(#[from] WrongProperty),
    /// The stream cannot have the requested guarantee.
    #[error(transparent)]
    NotGuaranteed(#[from] NotGuaranteed),
    /// The name is invalid.
    #[error(
        "{0:?} cannot be the name of a stream: use at most 100 letters, digits, _ and -, and do not begin with -"
    )]
    WrongName(String),
    #[error("There is no stream {name}{}", meant.as_deref().map(|meant| format!("; did you mean {meant}?")).unwrap_or_default())]
    NoSuchStream {
        /// The requested name.
        name: String,
        /// A similar name.
        meant: Option<String>,
    },
    #[error("The stream {stream} has no stage {stage} whose output could be looked at: use one of {stages}")]
    NoSuchStage {
        stream: String,
        /// The requested stage.
        stage: String,
        /// The labels of the stream's stages.
        stages: String,
    },
    /// This host does not allow a file, server or program of the definition.
    #[error("{0}")]
    Refused(String),
    /// The principal lacks a right that the stream needs.
    #[error(transparent)]
    MissingRight(#[from] MissingRight),
    /// The state of the streams does not allow the verb.
    #[error("{0}")]
    Conflict(String),
    /// The topic of definitions is unavailable, perhaps only until the host has started.
    #[error(transparent)]
    Unavailable(#[from] DefinitionsUnavailable),
}

impl HostState {
    /// The rights that a stream needs, including its topics between stages.
    fn needed(&self, laid: &Plan, deployment: &Deployment) -> BTreeSet<Right> {
        rights::needed(laid, deployment, &self.settings.cluster, INSTANCE)
    }

    /// The reason why this host refuses a deployment; `None` if allowed.
    fn refusal(&self, plan: &Plan, deployment: &Deployment) -> Option<String> {
        if let Some(address) = rights::address_of_strangers(plan, &self.settings.cluster) {
            return Some(format!(
                "kafka would send the client settings of this host to {address}: leave out --bootstrap and --properties, \
                 or use other client settings for another cluster"
            ));
        }
        let OnError::DeadLetter(path) = &deployment.on_error else { return None };
        let (message, right) = self.settings.reach.refusal_of_dead_letters(path)?;
        Some(format!("{message}. {right}"))
    }

    /// The transport: topics between stages are in the broker's cluster.
    fn transport(&self) -> Transport {
        Transport {
            cluster: self.settings.cluster.clone(),
            partitions: None,
            lies: TopicScope::AroundInstancesAndAtNames,
        }
    }
}

/// A host of streams. Clones are the same host.
#[derive(Clone)]
pub struct Host(Arc<HostState>);

struct HostState {
    settings: HostSettings,
    /// The client of verbs.
    cluster: Cluster,
    /// The client that follows the topic, with its own connections: while a fetch waits on a connection, a
    /// broker serves no other request there.
    followed: Cluster,
    writer: tokio::sync::Mutex<DefinitionWriter>,
    taps: Taps,
    state: Mutex<HostedStreams>,
    /// The offset up to which the topic was read and applied.
    read_to: watch::Sender<Offset>,
    stopping: watch::Sender<bool>,
    /// The runtime that runs the streams.
    runtime: Handle,
}

/// All streams of the cluster, and the streams running here.
#[derive(Default)]
struct HostedStreams {
    streams: BTreeMap<Arc<str>, KnownStream>,
    supervisors: BTreeMap<Arc<str>, Supervisor>,
}

struct KnownStream {
    definition: Definition,
    /// The stages that can be tapped, by label.
    tappable: Vec<Arc<str>>,
}

impl Host {
    /// Connects to the cluster, reads all definitions, and starts the streams deployed on this node. Returns
    /// a boxed future, so that this crate compiles it: the body of an `async fn` is compiled in the crate
    /// that awaits it.
    pub fn start(
        settings: HostSettings,
    ) -> Pin<Box<dyn Future<Output = Result<Host, DefinitionsUnavailable>> + Send>> {
        Box::pin(Host::open(settings))
    }

    async fn open(settings: HostSettings) -> Result<Host, DefinitionsUnavailable> {
        let cluster = definitions::connect(&settings.definitions).await?;
        let followed = definitions::connect(&settings.definitions).await?;
        let writer = DefinitionWriter::new(cluster.clone()).await?;
        let host = Host(Arc::new(HostState {
            settings,
            cluster: cluster.clone(),
            followed: followed.clone(),
            writer: tokio::sync::Mutex::new(writer),
            taps: Taps::default(),
            state: Mutex::default(),
            read_to: watch::Sender::new(Offset(0)),
            stopping: watch::Sender::new(false),
            runtime: Handle::current(),
        }));
        let end = definitions::end(&cluster).await?;
        let mut reader = DefinitionReader::begin(followed).await?;
        let mut at = reader.position().unwrap_or(Offset(0));
        // Read all definitions before the first start: a tap may come before the stream it taps.
        let mut latest = BTreeMap::new();
        while at < end {
            let Some((records, next)) = reader.next(READ).await? else { continue };
            latest.extend(records.into_iter().map(|record| (record.name.clone(), record)));
            at = next;
        }
        host.act(latest.into_values().collect());
        host.0.read_to.send_replace(at);
        tokio::spawn(host.clone().follow(reader));
        Ok(host)
    }

    /// The runtime of the streams.
    pub fn runtime(&self) -> &Handle {
        &self.0.runtime
    }

    fn state(&self) -> MutexGuard<'_, HostedStreams> {
        self.0.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Follows the topic for the life of the host.
    async fn follow(self, mut reader: DefinitionReader) {
        let mut stopping = self.0.stopping.subscribe();
        loop {
            let next = tokio::select! {
                next = reader.next(READ) => next,
                _ = stopping.wait_for(|stopping| *stopping) => return,
            };
            match next {
                Ok(None) => {}
                Ok(Some((records, next))) => {
                    self.act(records);
                    self.0.read_to.send_replace(next);
                }
                Err(error) => {
                    tracing::warn!(%error, "Failed to read the stream definitions, retrying");
                    sleep(AGAIN).await;
                    // Read from the beginning: rereading is idempotent.
                    match DefinitionReader::begin(self.0.followed.clone()).await {
                        Ok(again) => reader = again,
                        Err(error) => {
                            tracing::debug!(%error, "Cannot read the stream definitions yet")
                        }
                    }
                }
            }
        }
    }

    /// Applies records of the topic, then starts and stops streams to match.
    fn act(&self, records: Vec<DefinitionRecord>) {
        let mut state = self.state();
        let mut changed = BTreeSet::new();
        let read_to = *self.0.read_to.borrow();
        for DefinitionRecord { name, value, offset } in records {
            let name: Arc<str> = name.into();
            if offset < read_to {
                // Read again from the beginning.
                continue;
            }
            let definition = value.map(|value| Definition::from_record(&name, &value)).transpose();
            match definition {
                Ok(Some(definition)) => {
                    let tappable = tappable(&definition.text);
                    state.streams.insert(name.clone(), KnownStream { definition, tappable });
                }
                Ok(None) => {
                    state.streams.remove(&name);
                    self.0.taps.forget(&name);
                }
                Err(error) => {
                    tracing::warn!(%error, "Skipped a record that is not a stream definition");
                    continue;
                }
            }
            changed.insert(name);
        }
        for name in changed {
            self.order(&mut state, &name);
        }
    }

    /// Sends a stream's desired state to its supervisor.
    fn order(&self, state: &mut HostedStreams, name: &Arc<str>) {
        let known = state.streams.get(name);
        let here =
            known.and_then(|known| known.definition.deployed.as_ref().map(|deployed| (known, deployed)));
        let ordered = match here {
            Some((known, deployed)) if deployed.node == self.0.settings.node => DesiredState::Run {
                text: known.definition.text.as_str().into(),
                properties: Arc::new(deployed.properties.clone()),
                principal: known.definition.principal.as_deref().map(Arc::from),
            },
            Some(_) => DesiredState::Rest,
            None if known.is_some() => DesiredState::Rest,
            None => DesiredState::Leave,
        };
        match state.supervisors.get(name) {
            Some(supervisor) => supervisor.order(ordered),
            None if matches!(ordered, DesiredState::Run { .. }) => {
                let supervisor = Supervisor::start(self.clone(), name.clone(), ordered);
                state.supervisors.insert(name.clone(), supervisor);
            }
            None => {}
        }
    }

    /// Plans a definition as a stream of this host, with its possible connections.
    fn read(&self, state: &HostedStreams, name: &str, text: &str) -> Result<Plan, Complaints> {
        let reach = &self.0.settings.reach;
        let around = Surroundings {
            cluster: &self.0.settings.cluster,
            tappable: &|name| state.streams.get(name).map(|known| known.tappable.clone()),
            names: &|| state.streams.keys().cloned().collect(),
            refused: &|module| refused(module, reach),
            reach,
        };
        Plan::read_hosted(text, name, &around)
    }

    /// The rights needed by the tapped streams, and by the streams that those tap in turn.
    fn needed_of_tapped(&self, state: &HostedStreams, tapped: BTreeSet<Arc<str>>) -> BTreeSet<Right> {
        let (mut seen, mut waiting) = (BTreeSet::new(), Vec::from_iter(tapped));
        let mut needed = BTreeSet::new();
        while let Some(name) = waiting.pop() {
            let Some(KnownStream { definition, .. }) = state.streams.get(&name) else { continue };
            if !seen.insert(name.clone()) {
                continue;
            }
            // An unreadable definition does not run.
            let Ok(plan) = self.read(state, &name, &definition.text) else { continue };
            let deployed = definition.deployed.as_ref();
            let deployment = deployed.and_then(|deployed| Deployment::read(&deployed.properties).ok());
            let deployment = deployment.unwrap_or_default();
            waiting.extend(rights::tapped(&plan));
            let (laid, _topics) = self.0.transport().lay(plan, &deployment.counts);
            needed.extend(self.0.needed(&laid, &deployment));
        }
        needed
    }

    /// The definition of a stream. The error proposes a similar name.
    fn known(&self, name: &str) -> Result<Definition, HostError> {
        self.known_exactly(name).map_err(|_| {
            let state = self.state();
            let names = state.streams.keys().map(|name| &**name);
            let meant = language::closest(name, names).map(str::to_owned);
            HostError::NoSuchStream { name: name.to_owned(), meant }
        })
    }

    /// The definition of a stream to stop or delete. The error proposes no similar name.
    fn known_exactly(&self, name: &str) -> Result<Definition, HostError> {
        let known = self.state().streams.get(name).map(|known| known.definition.clone());
        known.ok_or_else(|| HostError::NoSuchStream { name: name.to_owned(), meant: None })
    }

    /// Checks a definition as a stream of this host, without creating it.
    pub fn check(&self, name: &str, text: &str) -> Result<(), HostError> {
        self.read(&self.state(), name, text)?;
        Ok(())
    }

    /// The status of all streams, by name.
    pub fn list(&self) -> Vec<StreamStatus> {
        let state = self.state();
        state.streams.iter().map(|(name, known)| self.status_of(&state, name, known)).collect()
    }

    /// The status of one stream.
    pub fn status(&self, name: &str) -> Result<StreamStatus, HostError> {
        self.known(name)?;
        let state = self.state();
        match state.streams.get_key_value(name) {
            Some((name, known)) => Ok(self.status_of(&state, name, known)),
            None => Err(HostError::NoSuchStream { name: name.to_owned(), meant: None }),
        }
    }

    fn status_of(&self, state: &HostedStreams, name: &Arc<str>, known: &KnownStream) -> StreamStatus {
        let mut status = StreamStatus {
            name: name.clone(),
            definition: Some(known.definition.clone()),
            state: State::Undeployed,
            reason: None,
            figures: None,
        };
        match (&known.definition.deployed, state.supervisors.get(name)) {
            (Some(deployed), _) if deployed.node != self.0.settings.node => status.state = State::Elsewhere,
            (_, Some(supervisor)) => supervisor.status().describe(&mut status),
            _ => {}
        }
        status
    }

    /// Drains all streams so that the next start resumes them. Drops messages still in flight after `within`.
    pub async fn stop(&self, within: Duration) {
        let deadline = Instant::now() + within;
        self.0.stopping.send_replace(true);
        let names: Vec<Arc<str>> = {
            let state = self.state();
            state.supervisors.values().for_each(|supervisor| supervisor.order(DesiredState::Rest));
            state.supervisors.keys().cloned().collect()
        };
        for name in names {
            self.rested(&name, deadline).await;
        }
        let mut state = self.state();
        for (name, supervisor) in std::mem::take(&mut state.supervisors) {
            if supervisor.status().state == State::Undeploying {
                tracing::warn!(
                    stream = &*name,
                    "The stream did not drain in time; dropped its messages in flight"
                );
            }
            supervisor.abort();
        }
    }
}

/// The reason why a stage cannot run on a server; `None` if it can.
fn refused(module: &Module, reach: &Reach) -> Option<Refusal> {
    match module.name {
        "stdin" => {
            Some(("A server has no standard input to read".to_owned(), "Use http, file or kafka.".to_owned()))
        }
        "stdout" => Some((
            "A server has no standard output to write to".to_owned(),
            "Use log, file or kafka.".to_owned(),
        )),
        name => reach.refusal(name),
    }
}
