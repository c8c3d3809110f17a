//! Hosting: streams that are created under a name, deployed and undeployed while the process runs, and started again
//! after a restart.
//!
//! What is to run is written in a topic of the cluster (`definitions`); a host reads it, follows it, and runs the
//! streams that are deployed on its node. A verb is a record: it is judged against what the topic says up to its end,
//! written, and answered when this host has read it again. So several hosts of a cluster see the same streams, and
//! any of them can undeploy a stream of another. Verbs at the same host come one after the other; of two hosts that
//! are asked for the same stream at the same moment, the later record holds.
//!
//! - [`definition`] is a record of the topic.
//! - `supervisor` runs one stream: start, end, failure, drain.
//! - `verbs` are what a host is asked for.
//! - [`rest`] is the API over HTTP, [`metrics`] the figures for Prometheus.

pub mod definition;
mod definitions;
pub mod metrics;
pub mod rest;
mod status;
mod supervisor;
mod verbs;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use thalweg_client::Cluster;
use thalweg_record::Offset;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::NotExactlyOnce;
use crate::deployment::WrongProperty;
use crate::language::{self, Complaints};
use crate::module::{Console, Module};
use crate::plan::{Plan, Surroundings, tappable};
use crate::runtime::Taps;
use crate::transport::{Lies, Transport};
use definition::Definition;
use definitions::{DefinitionsUnavailable, Reader, Said, Writer};
use supervisor::{Ordered, Supervisor};

pub use definitions::TOPIC;
pub use status::{State, StreamStatus};

/// The pause before the topic is read anew after a failure.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a read of the topic waits for the next record.
const READ: Duration = Duration::from_secs(5);

/// What a host is told at its start.
#[derive(Clone)]
pub struct HostSettings {
    /// For the topic of definitions, topics between stages and kafka stages that name no other.
    pub cluster: crate::Cluster,
    /// The node that deployments on this host are recorded with.
    pub node: i32,
    /// Stages that are not allowed.
    pub refused_modules: BTreeSet<String>,
    /// Where stages show lines.
    pub console: Arc<dyn Console>,
}

/// Why a verb was not done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HostError {
    /// The text is wrong.
    #[error(transparent)]
    WrongDefinition(#[from] Complaints),
    /// A property is wrong.
    #[error(transparent)]
    WrongProperty(#[from] WrongProperty),
    /// It cannot have the guarantee that is asked for.
    #[error(transparent)]
    NotExactlyOnce(#[from] NotExactlyOnce),
    /// The name cannot be one.
    #[error(
        "{0:?} cannot be the name of a stream: letters, digits, _ and - would be right, 100 at the most, a letter, a digit or _ first"
    )]
    WrongName(String),
    /// There is no such stream.
    #[error("There is no stream {name}{}", meant.as_deref().map(|meant| format!(": {meant} would be right")).unwrap_or_default())]
    NoSuchStream {
        /// What was asked for.
        name: String,
        /// What may have been meant.
        meant: Option<String>,
    },
    /// Something else stands against it.
    #[error("{0}")]
    Conflict(String),
    /// The topic cannot be read or written, or not yet.
    #[error(transparent)]
    Unavailable(#[from] DefinitionsUnavailable),
}

impl Shared {
    /// The topics between stages, which are in the broker's cluster.
    fn transport(&self) -> Transport {
        Transport {
            cluster: self.settings.cluster.clone(),
            partitions: None,
            lies: Lies::AroundInstancesAndAtNames,
        }
    }
}

/// A host of streams. Clones are the same host.
#[derive(Clone)]
pub struct Host(Arc<Shared>);

struct Shared {
    settings: HostSettings,
    /// Where verbs ask and write.
    cluster: Cluster,
    /// Where the topic is followed: over connections of its own, since a broker looks at nothing else on a connection while a
    /// fetch waits there.
    followed: Cluster,
    writer: tokio::sync::Mutex<Writer>,
    taps: Taps,
    state: Mutex<Hosted>,
    /// Up to where the topic was read and acted upon.
    read_to: watch::Sender<Offset>,
    stopping: watch::Sender<bool>,
    /// Where the streams run.
    runtime: Handle,
}

/// All streams of the cluster, and those that run here.
#[derive(Default)]
struct Hosted {
    streams: BTreeMap<Arc<str>, Known>,
    supervisors: BTreeMap<Arc<str>, Supervisor>,
}

struct Known {
    definition: Definition,
    /// What of it can be tapped.
    tappable: Vec<Arc<str>>,
}

impl Host {
    /// Connects to the cluster, reads all definitions, and starts what is deployed on this node.
    pub async fn start(settings: HostSettings) -> Result<Host, DefinitionsUnavailable> {
        let cluster = definitions::connect(&settings.cluster).await?;
        let followed = definitions::connect(&settings.cluster).await?;
        let writer = Writer::new(cluster.clone()).await?;
        let host = Host(Arc::new(Shared {
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
        let mut reader = Reader::begin(followed).await?;
        let mut at = reader.position().unwrap_or(Offset(0));
        // All definitions come before the first start: what is tapped may have been written after its tap.
        let mut latest = BTreeMap::new();
        while at < end {
            let Some((said, next)) = reader.next(READ).await? else { continue };
            latest.extend(said.into_iter().map(|said| (said.name.clone(), said)));
            at = next;
        }
        host.act(latest.into_values().collect());
        host.0.read_to.send_replace(at);
        tokio::spawn(host.clone().follow(reader));
        Ok(host)
    }

    /// Where the streams run, and what is done with them.
    pub fn runtime(&self) -> &Handle {
        &self.0.runtime
    }

    fn state(&self) -> MutexGuard<'_, Hosted> {
        self.0.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Reads the topic on, as long as the host runs.
    async fn follow(self, mut reader: Reader) {
        let mut stopping = self.0.stopping.subscribe();
        loop {
            let next = tokio::select! {
                next = reader.next(READ) => next,
                _ = stopping.wait_for(|stopping| *stopping) => return,
            };
            match next {
                Ok(None) => {}
                Ok(Some((said, next))) => {
                    self.act(said);
                    self.0.read_to.send_replace(next);
                }
                Err(error) => {
                    tracing::warn!(%error, "The definitions of streams cannot be read; it is tried again");
                    sleep(AGAIN).await;
                    // From the beginning: what was read already says nothing new.
                    match Reader::begin(self.0.followed.clone()).await {
                        Ok(again) => reader = again,
                        Err(error) => {
                            tracing::debug!(%error, "The definitions of streams cannot be read yet")
                        }
                    }
                }
            }
        }
    }

    /// Takes over what the topic says, then starts and stops what that asks for.
    fn act(&self, said: Vec<Said>) {
        let mut state = self.state();
        let mut changed = BTreeSet::new();
        let read_to = *self.0.read_to.borrow();
        for Said { name, value, offset } in said {
            let name: Arc<str> = name.into();
            if offset < read_to {
                // Read again, from the beginning.
                continue;
            }
            let definition = value.map(|value| Definition::from_record(&name, &value)).transpose();
            match definition {
                Ok(Some(definition)) => {
                    let tappable = tappable(&definition.text);
                    state.streams.insert(name.clone(), Known { definition, tappable });
                }
                Ok(None) => {
                    state.streams.remove(&name);
                    self.0.taps.forget(&name);
                }
                Err(error) => {
                    tracing::warn!(%error, "A record is passed over");
                    continue;
                }
            }
            changed.insert(name);
        }
        for name in changed {
            self.order(&mut state, &name);
        }
    }

    /// Tells the supervisor of a stream what is wanted of it now.
    fn order(&self, state: &mut Hosted, name: &Arc<str>) {
        let known = state.streams.get(name);
        let here =
            known.and_then(|known| known.definition.deployed.as_ref().map(|deployed| (known, deployed)));
        let ordered = match here {
            Some((known, deployed)) if deployed.node == self.0.settings.node => Ordered::Run {
                text: known.definition.text.as_str().into(),
                properties: Arc::new(deployed.properties.clone()),
            },
            Some(_) => Ordered::Rest,
            None if known.is_some() => Ordered::Rest,
            None => Ordered::Leave,
        };
        match state.supervisors.get(name) {
            Some(supervisor) => supervisor.order(ordered),
            None if matches!(ordered, Ordered::Run { .. }) => {
                let supervisor = Supervisor::start(self.clone(), name.clone(), ordered);
                state.supervisors.insert(name.clone(), supervisor);
            }
            None => {}
        }
    }

    /// Reads a definition as that of a stream of this host, with what it may be joined to.
    fn read(&self, state: &Hosted, name: &str, text: &str) -> Result<Plan, Complaints> {
        let refused_modules = &self.0.settings.refused_modules;
        let around = Surroundings {
            cluster: &self.0.settings.cluster,
            tappable: &|name| state.streams.get(name).map(|known| known.tappable.clone()),
            names: &|| state.streams.keys().cloned().collect(),
            refused: &|module| refused(module, refused_modules),
        };
        Plan::read_hosted(text, name, &around)
    }

    fn known(&self, name: &str) -> Result<Definition, HostError> {
        let state = self.state();
        match state.streams.get(name) {
            Some(known) => Ok(known.definition.clone()),
            None => {
                let names = state.streams.keys().map(|name| &**name);
                let meant = language::closest(name, names).map(str::to_owned);
                Err(HostError::NoSuchStream { name: name.to_owned(), meant })
            }
        }
    }

    /// How all streams are, by name.
    pub fn list(&self) -> Vec<StreamStatus> {
        let state = self.state();
        state.streams.iter().map(|(name, known)| self.status_of(&state, name, known)).collect()
    }

    /// How a stream is.
    pub fn status(&self, name: &str) -> Result<StreamStatus, HostError> {
        self.known(name)?;
        let state = self.state();
        match state.streams.get_key_value(name) {
            Some((name, known)) => Ok(self.status_of(&state, name, known)),
            None => Err(HostError::NoSuchStream { name: name.to_owned(), meant: None }),
        }
    }

    fn status_of(&self, state: &Hosted, name: &Arc<str>, known: &Known) -> StreamStatus {
        let mut status = StreamStatus {
            name: name.clone(),
            definition: Some(known.definition.clone()),
            state: State::Undeployed,
            reason: None,
            figures: None,
        };
        match (&known.definition.deployed, state.supervisors.get(name)) {
            (Some(deployed), _) if deployed.node != self.0.settings.node => status.state = State::Elsewhere,
            (_, Some(supervisor)) => supervisor.status().tell(&mut status),
            _ => {}
        }
        status
    }

    /// Stops all streams in order, for the next start to go on. What has not arrived within `within` is given up.
    pub async fn stop(&self, within: Duration) {
        let deadline = Instant::now() + within;
        self.0.stopping.send_replace(true);
        let names: Vec<Arc<str>> = {
            let state = self.state();
            state.supervisors.values().for_each(|supervisor| supervisor.order(Ordered::Rest));
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
                    "The stream had no time to drain; what is on its way is given up"
                );
            }
            supervisor.abort();
        }
    }
}

/// Why a stage is not for a server, if it is not.
fn refused(module: &Module, refused_modules: &BTreeSet<String>) -> Option<(String, String)> {
    let name = module.name;
    match name {
        "stdin" => Some((
            "A server has no standard input to read".to_owned(),
            "http, file or kafka would be right.".to_owned(),
        )),
        "stdout" => Some((
            "A server has no standard output to write to".to_owned(),
            "log, file or kafka would be right.".to_owned(),
        )),
        _ if refused_modules.contains(name) => {
            let right = format!(
                "streams.refused.modules of the broker names it; without {name} there it is allowed."
            );
            Some((format!("{name} is not allowed on this host"), right))
        }
        _ => None,
    }
}
