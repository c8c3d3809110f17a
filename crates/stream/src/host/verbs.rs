//! The verbs of a host. A verb is checked against the topic up to its end and written there; it is complete
//! when this host has read and applied its record.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_record::Offset;
use tokio::time::{Instant, timeout, timeout_at};

use super::definition::{Definition, NodeDeployment};
use super::definitions::{self, DefinitionWriter, DefinitionsUnavailable};
use super::supervisor::Supervisor;
use super::{Host, HostError, HostedStreams, State, rights};
use crate::deployment::Deployment;
use crate::language;
use crate::plan::{Input, Plan};

/// Maximum time that a verb waits until this host has read the topic to its end, or the verb's record.
const FOLLOWED: Duration = Duration::from_secs(10);
/// Maximum wait of undeploy. The drain continues after that.
const DRAINED: Duration = Duration::from_secs(30);
/// Maximum number of streams in a cluster.
const STREAMS_MAX: usize = 100_000;

impl Host {
    /// Creates a stream for a principal, and deploys it here if properties are given.
    pub async fn create(
        &self,
        name: &str,
        text: &str,
        deploy: Option<BTreeMap<String, String>>,
        principal: Option<String>,
    ) -> Result<(), HostError> {
        if !language::is_name(name) {
            return Err(HostError::WrongName(name.to_owned()));
        }
        let mut writer = self.0.writer.lock().await;
        self.catch_up().await?;
        {
            let state = self.state();
            if state.streams.contains_key(name) {
                let reason = format!("A stream {name} exists already: use another name, or destroy it first");
                return Err(HostError::Conflict(reason));
            }
            if state.streams.len() >= STREAMS_MAX {
                return Err(HostError::Conflict(format!(
                    "There are {STREAMS_MAX} streams already, the maximum: destroy one first"
                )));
            }
            let plan = self.read(&state, name, text)?;
            self.check_deployment(&state, plan, deploy.as_ref(), principal.as_deref())?;
        }
        let deployed = deploy.map(|properties| NodeDeployment { node: self.0.settings.node, properties });
        let definition = Definition { text: text.to_owned(), principal, deployed };
        self.write(&mut writer, name, Some(&definition)).await?;
        drop(writer);
        self.started(name).await;
        Ok(())
    }

    fn check_deployment(
        &self,
        state: &HostedStreams,
        plan: Plan,
        properties: Option<&BTreeMap<String, String>>,
        principal: Option<&str>,
    ) -> Result<(), HostError> {
        let deployment = properties.map(Deployment::read).transpose()?.unwrap_or_default();
        if properties.is_some() {
            deployment.check(&plan)?;
            self.check_taps(state, &plan)?;
        }
        let shared = &self.0;
        if let Some(refused) = shared.refusal(&plan, &deployment) {
            return Err(HostError::Refused(refused));
        }
        let mut needed = self.needed_of_tapped(state, rights::tapped(&plan));
        let (laid, _topics) = shared.transport().lay(plan, &deployment.counts);
        // A definition may get its guarantee with its deployment.
        if properties.is_some() {
            deployment.guarantee.check(&laid, &deployment.on_error)?;
        }
        needed.extend(shared.needed(&laid, &deployment));
        Ok(rights::check(&*shared.settings.rights, principal, &needed)?)
    }

    /// A tap works in memory, so its stream must run in the same process.
    fn check_taps(&self, state: &HostedStreams, plan: &Plan) -> Result<(), HostError> {
        for stream in &plan.streams {
            let Input::Beside { stream: tapped, .. } = &stream.input else { continue };
            let deployed = state.streams.get(tapped).and_then(|known| known.definition.deployed.as_ref());
            if let Some(NodeDeployment { node, .. }) = deployed
                && *node != self.0.settings.node
            {
                let reason = format!(
                    "{} taps {tapped}, which runs on node {node}: deploy it there, or put a named \
                     destination, topic:NAME, between them",
                    stream.name
                );
                return Err(HostError::Conflict(reason));
            }
        }
        Ok(())
    }

    /// Deploys a stream on this node, with the rights of this principal.
    pub async fn deploy(
        &self,
        name: &str,
        properties: BTreeMap<String, String>,
        principal: Option<String>,
    ) -> Result<(), HostError> {
        let mut writer = self.0.writer.lock().await;
        self.catch_up().await?;
        let mut definition = self.known(name)?;
        {
            let state = self.state();
            if let Some(NodeDeployment { node, .. }) = definition.deployed {
                let is_over = node == self.0.settings.node
                    && state
                        .supervisors
                        .get(name)
                        .is_some_and(|supervisor| supervisor.status().state.is_over());
                if !is_over {
                    let reason =
                        format!("The stream {name} is deployed already, on node {node}: undeploy it first");
                    return Err(HostError::Conflict(reason));
                }
            }
            let plan = self.read(&state, name, &definition.text)?;
            self.check_deployment(&state, plan, Some(&properties), principal.as_deref())?;
        }
        definition.principal = principal;
        definition.deployed = Some(NodeDeployment { node: self.0.settings.node, properties });
        self.write(&mut writer, name, Some(&definition)).await?;
        drop(writer);
        self.started(name).await;
        Ok(())
    }

    /// Stops a stream cleanly, on any node: its source is closed, and messages in flight are delivered.
    pub async fn undeploy(&self, name: &str) -> Result<(), HostError> {
        let mut writer = self.0.writer.lock().await;
        self.catch_up().await?;
        let mut definition = self.known_exactly(name)?;
        if definition.deployed.take().is_none() {
            return Err(HostError::Conflict(format!("The stream {name} is not deployed")));
        }
        self.write(&mut writer, name, Some(&definition)).await?;
        drop(writer);
        self.rested(name, Instant::now() + DRAINED).await;
        Ok(())
    }

    /// Deletes a stream, after stopping it cleanly.
    pub async fn destroy(&self, name: &str) -> Result<(), HostError> {
        let mut writer = self.0.writer.lock().await;
        self.catch_up().await?;
        self.known_exactly(name)?;
        let tapping = self.tapping(name);
        if !tapping.is_empty() {
            let reason =
                format!("The stream {name} is tapped by {}: destroy the tap first", tapping.join(", "));
            return Err(HostError::Conflict(reason));
        }
        self.write(&mut writer, name, None).await?;
        drop(writer);
        self.rested(name, Instant::now() + DRAINED).await;
        Ok(())
    }

    /// The streams that tap a stream.
    fn tapping(&self, name: &str) -> Vec<String> {
        let state = self.state();
        let taps = |text: &str| language::taps(text).iter().any(|tapped| tapped == name);
        let tapping = state.streams.iter().filter(|(_, known)| taps(&known.definition.text));
        tapping.map(|(name, _)| name.to_string()).collect()
    }

    /// Waits until a stream has started or failed to start.
    async fn started(&self, name: &str) {
        self.await_state(name, Instant::now() + FOLLOWED, |state| *state != State::Deploying).await;
    }

    /// Waits until a stream has stopped.
    pub(super) async fn rested(&self, name: &str, deadline: Instant) {
        let rests = |state: &State| !matches!(state, State::Deploying | State::Deployed | State::Undeploying);
        self.await_state(name, deadline, rests).await;
    }

    async fn await_state(&self, name: &str, deadline: Instant, holds: impl Fn(&State) -> bool) {
        let watched = self.state().supervisors.get(name).map(Supervisor::watch);
        if let Some(mut watched) = watched {
            // A longer drain continues; the status shows it.
            let _ = timeout_at(deadline, watched.wait_for(|status| holds(&status.state))).await;
        }
    }

    /// Waits until this host has read the topic to its end.
    async fn catch_up(&self) -> Result<(), HostError> {
        let end = definitions::end(&self.0.cluster).await?;
        self.read_to(end).await
    }

    async fn read_to(&self, end: Offset) -> Result<(), HostError> {
        let mut read_to = self.0.read_to.subscribe();
        let read = timeout(FOLLOWED, read_to.wait_for(|at| *at >= end)).await;
        match read {
            Ok(Ok(_)) => Ok(()),
            _ => {
                let reason =
                    format!("its end was not reached within {FOLLOWED:?}; the change may still take effect");
                Err(DefinitionsUnavailable { reason }.into())
            }
        }
    }

    /// Writes a record, and waits until this host has applied it.
    async fn write(
        &self,
        writer: &mut DefinitionWriter,
        name: &str,
        definition: Option<&Definition>,
    ) -> Result<(), HostError> {
        let value = definition.map(Definition::to_record);
        let offset = writer.write(name, value.as_deref()).await?;
        self.read_to(Offset(offset.0 + 1)).await
    }
}
