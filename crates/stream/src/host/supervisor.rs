//! Runs one hosted stream: starts it, drains it, and keeps its outcome.
//!
//! A failed stream stays failed until it is deployed again: whether repeating its messages is acceptable is the user's
//! decision.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Host, State, StreamStatus};
use crate::deployment::Deployment;
use crate::runtime::{self, Meters, RunOptions, Running};

/// The prefix of a hosted stream's transactional ids.
const INSTANCE: &str = "hosted";

/// The desired state of a stream.
#[derive(Clone, Debug)]
pub enum Ordered {
    /// Run.
    Run {
        /// Its definition.
        text: Arc<str>,
        /// The properties of its deployment.
        properties: Arc<BTreeMap<String, String>>,
    },
    /// Stop.
    Rest,
    /// Stop and never run again.
    Leave,
}

/// The actual state of a stream.
#[derive(Clone)]
pub struct Status {
    /// What it is doing.
    pub state: State,
    reason: Option<String>,
    meters: Option<Meters>,
}

impl Status {
    fn new(state: State) -> Status {
        Status { state, reason: None, meters: None }
    }

    /// Adds the details known here.
    pub fn describe(&self, status: &mut StreamStatus) {
        status.state = self.state;
        status.reason = self.reason.clone();
        status.figures = self.meters.as_ref().map(Meters::figures);
    }
}

/// The handle of a stream's supervisor.
pub struct Supervisor {
    ordered: watch::Sender<Ordered>,
    status: watch::Sender<Status>,
    task: JoinHandle<()>,
}

impl Supervisor {
    /// Starts a supervisor.
    pub fn start(host: Host, name: Arc<str>, first: Ordered) -> Supervisor {
        let (ordered, orders) = watch::channel(first);
        let status = watch::Sender::new(Status::new(State::Deploying));
        let task = tokio::spawn(Work { host, name, status: status.clone() }.run(orders));
        Supervisor { ordered, status, task }
    }

    /// Sets the desired state.
    pub fn order(&self, ordered: Ordered) {
        if matches!(ordered, Ordered::Run { .. }) {
            // Readers must not mistake the outcome of the previous deployment for that of this one.
            self.status.send_if_modified(|status| {
                let rests = status.state.is_over() || status.state == State::Undeployed;
                if rests {
                    *status = Status::new(State::Deploying);
                }
                rests
            });
        }
        self.ordered.send_replace(ordered);
    }

    /// The current state.
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// A receiver of state changes.
    pub fn watch(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Aborts the supervisor and its stream.
    pub fn abort(self) {
        self.task.abort();
    }
}

struct Work {
    host: Host,
    name: Arc<str>,
    status: watch::Sender<Status>,
}

impl Work {
    async fn run(self, mut orders: watch::Receiver<Ordered>) {
        loop {
            let ordered = orders.borrow_and_update().clone();
            match ordered {
                Ordered::Run { text, properties } => {
                    self.status.send_replace(Status::new(State::Deploying));
                    let started = tokio::select! {
                        started = self.start(&text, &properties) => started,
                        // The order changed before the start.
                        Ok(()) = orders.changed() => continue,
                    };
                    match started {
                        Ok(running) => {
                            if self.watch(running, &mut orders).await {
                                continue;
                            }
                        }
                        Err(reason) => self.failed(reason, None),
                    }
                }
                Ordered::Rest => drop(self.status.send_replace(Status::new(State::Undeployed))),
                Ordered::Leave => {
                    if self.leave(&orders) {
                        return;
                    }
                    continue;
                }
            }
            if orders.changed().await.is_err() {
                return;
            }
        }
    }

    /// Builds the stream.
    async fn start(&self, text: &str, properties: &BTreeMap<String, String>) -> Result<Running, String> {
        let message = |error: &dyn std::error::Error| error.to_string();
        let shared = &self.host.0;
        let deployment = Deployment::read(properties).map_err(|error| message(&error))?;
        let plan = {
            let state = self.host.state();
            self.host.read(&state, &self.name, text).map_err(|error| message(&error))?
        };
        deployment.check(&plan).map_err(|error| message(&error))?;
        let transport = shared.transport();
        let (plan, topics) = transport.lay(plan, &deployment.counts);
        deployment.guarantee.check(&plan, &deployment.on_error).map_err(|error| message(&error))?;
        transport.create_topics(&topics).await.map_err(|error| message(&error))?;
        let options = RunOptions {
            on_error: deployment.on_error,
            cluster: shared.settings.cluster.clone(),
            guarantee: deployment.guarantee,
            // A stream runs on one node: a later deployment elsewhere fences this one.
            instance: INSTANCE.to_owned(),
            console: shared.settings.console.clone(),
            taps: shared.taps.clone(),
        };
        runtime::start(&plan, &options).map_err(|error| message(&error))
    }

    /// Waits until the stream ends. Returns whether that was because the order changed.
    async fn watch(&self, mut running: Running, orders: &mut watch::Receiver<Ordered>) -> bool {
        let meters = running.meters();
        let status = |state| Status { meters: Some(meters.clone()), ..Status::new(state) };
        self.status.send_replace(status(State::Deployed));
        let stopper = running.stopper();
        tokio::select! {
            ended = running.ended() => {
                match ended {
                    Ok(()) => drop(self.status.send_replace(status(State::Complete))),
                    Err(error) => self.failed(error.to_string(), Some(meters)),
                }
                return false;
            }
            Ok(()) = orders.changed() => {}
        }
        self.status.send_replace(status(State::Undeploying));
        stopper.stop();
        // The stages are dropped before the state changes, so their ports are free.
        if let Err(error) = running.ended().await {
            tracing::warn!(stream = &*self.name, %error, "The stream failed while draining");
        }
        true
    }

    fn failed(&self, reason: String, meters: Option<Meters>) {
        tracing::error!(stream = &*self.name, reason, "The stream failed; deploy it again to restart it");
        self.status.send_replace(Status { state: State::Failed, reason: Some(reason), meters });
    }

    /// Removes itself from the host, unless the stream exists again.
    fn leave(&self, orders: &watch::Receiver<Ordered>) -> bool {
        let mut state = self.host.state();
        if orders.has_changed().unwrap_or(false) {
            return false;
        }
        self.status.send_replace(Status::new(State::Undeployed));
        state.supervisors.remove(&self.name);
        true
    }
}
