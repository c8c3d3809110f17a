//! The status of a stream.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;

use super::definition::Definition;
use crate::passwords;
use crate::runtime::{Figures, PartReport, StreamEnd};

/// The state of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Not running, and not deployed.
    Undeployed,
    /// The stages are starting.
    Deploying,
    /// The stages are running.
    Deployed,
    /// Stopping: messages in flight are delivered.
    Undeploying,
    /// The source has ended.
    Complete,
    /// The stream failed to start, or while running.
    Failed,
    /// Deployed on another node, which has the details.
    Elsewhere,
}

impl State {
    /// The state's name, for people.
    pub fn name(self) -> &'static str {
        match self {
            State::Undeployed => "undeployed",
            State::Deploying => "deploying",
            State::Deployed => "deployed",
            State::Undeploying => "undeploying",
            State::Complete => "complete",
            State::Failed => "failed",
            State::Elsewhere => "deployed elsewhere",
        }
    }

    /// True if the stream is deployed but has ended.
    pub fn is_over(self) -> bool {
        matches!(self, State::Complete | State::Failed)
    }
}

/// The status of a stream.
#[derive(Clone, Debug)]
pub struct StreamStatus {
    /// The stream's name.
    pub name: Arc<str>,
    /// The stream's definition, if hosted.
    pub definition: Option<Definition>,
    /// The stream's state.
    pub state: State,
    /// The reason of a failure.
    pub reason: Option<String>,
    /// The stream's figures since the start, on this node.
    pub figures: Option<Figures>,
}

impl StreamStatus {
    /// The streams of a run without a host, from the run's figures.
    pub fn of_run(figures: &Figures) -> Vec<StreamStatus> {
        let mut statuses: Vec<StreamStatus> = Vec::new();
        for part in &figures.streams {
            let state = match &part.ended {
                None => State::Deployed,
                Some(StreamEnd::Failed(_)) => State::Failed,
                Some(StreamEnd::Complete) => State::Complete,
                Some(StreamEnd::Stopped) => State::Undeployed,
            };
            let reason = match &part.ended {
                Some(StreamEnd::Failed(reason)) => Some(reason.clone()),
                _ => None,
            };
            let at = statuses.iter().position(|status| status.name == part.stream).unwrap_or(statuses.len());
            if at == statuses.len() {
                let figures = Figures { elapsed: figures.elapsed, streams: Vec::new() };
                let name = part.stream.clone();
                statuses.push(StreamStatus {
                    name,
                    definition: None,
                    state,
                    reason: None,
                    figures: Some(figures),
                });
            }
            let status = &mut statuses[at];
            if state == State::Failed || status.state.is_over() && status.state != State::Failed {
                status.state = state;
            }
            status.reason = status.reason.take().or(reason);
            if let Some(figures) = &mut status.figures {
                figures.streams.push(part.clone());
            }
        }
        statuses
    }

    /// The status for programs, optionally with the figures of each stage.
    pub fn report(&self, with_figures: bool) -> StreamReport {
        let deployed = self.definition.as_ref().and_then(|definition| definition.deployed.as_ref());
        let figures = self.figures.as_ref().filter(|_| with_figures);
        StreamReport {
            name: self.name.to_string(),
            definition: self
                .definition
                .as_ref()
                .map(|definition| passwords::hidden(&definition.text).into_owned()),
            principal: self.definition.as_ref().and_then(|definition| definition.principal.clone()),
            node: deployed.map(|deployed| deployed.node),
            properties: deployed.map(|deployed| deployed.properties.clone()),
            state: self.state.name(),
            reason: self.reason.clone(),
            elapsed_s: figures.map(|figures| figures.elapsed.as_secs_f64()),
            parts: figures.map(Figures::reports),
        }
    }
}

/// A stream, for programs.
#[derive(Debug, Serialize, ToSchema)]
pub struct StreamReport {
    /// The name of the stream.
    pub name: String,
    /// The text of the stream, from source to sink; absent for a run without a host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition: Option<String>,
    /// The principal whose rights the stream has; absent for a run without a host, or if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// The node on which the stream is deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<i32>,
    /// The properties of the deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub properties: Option<BTreeMap<String, String>>,
    /// `undeployed`, `deploying`, `deployed`, `undeploying`, `complete`, `failed` or `deployed elsewhere`.
    pub state: &'static str,
    /// The reason of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Seconds since the start of the stream on this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elapsed_s: Option<f64>,
    /// The parts of the stream, with figures since its start on this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<Vec<PartReport>>,
}
