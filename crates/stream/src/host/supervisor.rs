//! Runs one hosted stream: starts it, drains it, and keeps its outcome.
//!
//! A failed stream stays failed until it is deployed again, because only the user can decide if repeated
//! messages are acceptable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::rights::{MissingRight, Right};
use super::{Host, INSTANCE, State, StreamStatus, rights};
use crate::deployment::Deployment;
use crate::passwords;
use crate::runtime::{self, Meters, RunOptions, RunningStreams};

/// Interval of checks of the principal's rights while a stream runs.
const RIGHTS_CHECKED_EVERY: Duration = Duration::from_secs(5);
/// Maximum time to drain a stream after its principal lost a right.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The desired state of a stream.
#[derive(Clone, Debug)]
pub enum DesiredState {
    Run {
        /// The definition's text.
        text: Arc<str>,
        /// The properties of the deployment.
        properties: Arc<BTreeMap<String, String>>,
        /// The principal whose rights the stream has, if its definition names one.
        principal: Option<Arc<str>>,
    },
    /// Stop, until the next deployment.
    Rest,
    /// Stop and never run again.
    Leave,
}

/// The actual state of a stream.
#[derive(Clone)]
pub struct Status {
    /// The stream's state.
    pub state: State,
    reason: Option<String>,
    meters: Option<Meters>,
}

impl Status {
    fn new(state: State) -> Status {
        Status { state, reason: None, meters: None }
    }

    /// Adds the details known to the supervisor.
    pub fn describe(&self, status: &mut StreamStatus) {
        status.state = self.state;
        status.reason = self.reason.clone();
        status.figures = self.meters.as_ref().map(Meters::figures);
    }
}

/// The handle of a stream's supervisor.
pub struct Supervisor {
    ordered: watch::Sender<DesiredState>,
    status: watch::Sender<Status>,
    task: JoinHandle<()>,
}

impl Supervisor {
    /// Starts a supervisor.
    pub fn start(host: Host, name: Arc<str>, first: DesiredState) -> Supervisor {
        let (ordered, orders) = watch::channel(first);
        let status = watch::Sender::new(Status::new(State::Deploying));
        let task = tokio::spawn(Work { host, name, status: status.clone() }.run(orders));
        Supervisor { ordered, status, task }
    }

    /// Sets the desired state.
    pub fn order(&self, ordered: DesiredState) {
        if matches!(ordered, DesiredState::Run { .. }) {
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

/// The rights that a running stream needs.
struct RequiredRights {
    /// The stream's own rights.
    own: BTreeSet<Right>,
    /// The tapped streams, whose rights are needed too.
    tapped: BTreeSet<Arc<str>>,
}

struct Work {
    host: Host,
    name: Arc<str>,
    status: watch::Sender<Status>,
}

impl Work {
    async fn run(self, mut orders: watch::Receiver<DesiredState>) {
        loop {
            let ordered = orders.borrow_and_update().clone();
            match ordered {
                DesiredState::Run { text, properties, principal } => {
                    self.status.send_replace(Status::new(State::Deploying));
                    let started = tokio::select! {
                        started = self.start(&text, &properties, principal.as_deref()) => started,
                        // The order changed before the start.
                        Ok(()) = orders.changed() => continue,
                    };
                    match started {
                        Ok((running, needed)) => {
                            let lost = self.lost(principal.as_deref(), &needed);
                            if self.watch(running, lost, &mut orders).await {
                                continue;
                            }
                        }
                        Err(reason) => self.failed(reason, None),
                    }
                }
                DesiredState::Rest => drop(self.status.send_replace(Status::new(State::Undeployed))),
                DesiredState::Leave => {
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

    /// Builds the stream. Returns it with the rights that its principal needs.
    async fn start(
        &self,
        text: &str,
        properties: &BTreeMap<String, String>,
        principal: Option<&str>,
    ) -> Result<(RunningStreams, RequiredRights), String> {
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
        // The record may be older than the API's checks, or written by another program.
        if let Some(refused) = shared.refusal(&plan, &deployment) {
            return Err(refused);
        }
        let needed = RequiredRights { own: shared.needed(&plan, &deployment), tapped: rights::tapped(&plan) };
        self.check(principal, &needed).map_err(|error| message(&error))?;
        transport.create_topics(&topics).await.map_err(|error| message(&error))?;
        let options = RunOptions {
            on_error: deployment.on_error,
            cluster: shared.settings.cluster.clone(),
            guarantee: deployment.guarantee,
            // A stream runs on one node: a later deployment elsewhere fences this one.
            instance: INSTANCE.to_owned(),
            console: shared.settings.console.clone(),
            taps: shared.taps.clone(),
            reach: shared.settings.reach.clone(),
        };
        let running = runtime::start(&plan, &options).map_err(|error| message(&error))?;
        Ok((running, needed))
    }

    /// Waits until the principal lacks a right that the stream needs.
    async fn lost(&self, principal: Option<&str>, needed: &RequiredRights) -> MissingRight {
        loop {
            sleep(RIGHTS_CHECKED_EVERY).await;
            if let Err(lost) = self.check(principal, needed) {
                return lost;
            }
        }
    }

    /// Checks the rights of the stream and of the streams it taps, which may have changed.
    fn check(&self, principal: Option<&str>, needed: &RequiredRights) -> Result<(), MissingRight> {
        let rights = &*self.host.0.settings.rights;
        rights::check(rights, principal, &needed.own)?;
        let of_tapped = self.host.needed_of_tapped(&self.host.state(), needed.tapped.clone());
        rights::check(rights, principal, &of_tapped)
    }

    /// Waits until the stream ends, or its principal has lost a right. Returns true if the order changed.
    async fn watch(
        &self,
        mut running: RunningStreams,
        lost: impl Future<Output = MissingRight>,
        orders: &mut watch::Receiver<DesiredState>,
    ) -> bool {
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
            lost = lost => {
                stopper.stop();
                // Messages in flight were read while the principal had the right.
                let _ = timeout(DRAIN_TIMEOUT, running.ended()).await;
                drop(running);
                self.failed(lost.to_string(), Some(meters));
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
        // The reason may show the definition.
        let reason = passwords::hidden(&reason).into_owned();
        tracing::error!(stream = &*self.name, reason, "The stream failed; deploy it again to restart it");
        self.status.send_replace(Status { state: State::Failed, reason: Some(reason), meters });
    }

    /// Removes the supervisor from the host, unless the stream exists again.
    fn leave(&self, orders: &watch::Receiver<DesiredState>) -> bool {
        let mut state = self.host.state();
        if orders.has_changed().unwrap_or(false) {
            return false;
        }
        self.status.send_replace(Status::new(State::Undeployed));
        state.supervisors.remove(&self.name);
        true
    }
}
