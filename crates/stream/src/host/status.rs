//! The status of a stream.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::definition::{Definition, shown};
use crate::runtime::{Ended, Figures};

/// The state of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Not running, and not deployed.
    Undeployed,
    /// Starting.
    Deploying,
    /// Running.
    Deployed,
    /// Stopping: messages in flight are delivered.
    Undeploying,
    /// Its source has ended.
    Complete,
    /// It failed to start, or while running.
    Failed,
    /// Deployed on another node, which has the details.
    Elsewhere,
}

impl State {
    /// Its name for people.
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

    /// Whether it is deployed but has ended.
    pub fn is_over(self) -> bool {
        matches!(self, State::Complete | State::Failed)
    }
}

/// The status of a stream.
#[derive(Clone, Debug)]
pub struct StreamStatus {
    /// Its name.
    pub name: Arc<str>,
    /// Its definition, if hosted.
    pub definition: Option<Definition>,
    /// Its state.
    pub state: State,
    /// Why it failed.
    pub reason: Option<String>,
    /// Its figures since the start, on this node.
    pub figures: Option<Figures>,
}

impl StreamStatus {
    /// The streams of a run without a host, from its figures.
    pub fn of_run(figures: &Figures) -> Vec<StreamStatus> {
        let mut statuses: Vec<StreamStatus> = Vec::new();
        for part in &figures.streams {
            let state = match &part.ended {
                None => State::Deployed,
                Some(Ended::Failed(_)) => State::Failed,
                Some(Ended::Complete) => State::Complete,
                Some(Ended::Stopped) => State::Undeployed,
            };
            let reason = match &part.ended {
                Some(Ended::Failed(reason)) => Some(reason.clone()),
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

    /// As JSON, optionally with the figures of each stage.
    pub fn to_json(&self, with_figures: bool) -> Value {
        let mut object = match &self.definition {
            Some(definition) => shown(&self.name, definition),
            None => Map::from_iter([("name".to_owned(), Value::from(&*self.name))]),
        };
        object.insert("state".to_owned(), self.state.name().into());
        if let Some(reason) = &self.reason {
            object.insert("reason".to_owned(), reason.clone().into());
        }
        if let (true, Some(figures)) = (with_figures, &self.figures) {
            let Value::Object(figures) = figures.to_json() else { return object.into() };
            object.insert("elapsed_s".to_owned(), figures.get("elapsed_s").cloned().unwrap_or_default());
            object.insert("parts".to_owned(), figures.get("streams").cloned().unwrap_or_default());
        }
        object.into()
    }
}
