//! Runs one hosted stream: starts it when it is ordered to, drains it when it is ordered to rest, and keeps what has
//! become of it.
//!
//! A stream that failed stays so until it is deployed again: whether its messages may come twice is for people to say.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Host, State, StreamStatus};
use crate::deployment::Deployment;
use crate::runtime::{self, Meters, RunOptions, Running};

/// What a hosted stream's transactions are called by.
const INSTANCE: &str = "hosted";

/// What is wanted of a stream.
#[derive(Clone, Debug)]
pub enum Ordered {
    /// To run.
    Run {
        /// Its text.
        text: Arc<str>,
        /// The properties of its deployment.
        properties: Arc<BTreeMap<String, String>>,
    },
    /// Not to run.
    Rest,
    /// Not to run, ever again.
    Leave,
}

/// What has become of a stream.
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

    /// Adds what is known here.
    pub fn tell(&self, status: &mut StreamStatus) {
        status.state = self.state;
        status.reason = self.reason.clone();
        status.figures = self.meters.as_ref().map(Meters::figures);
    }
}

/// Holds on to a stream.
pub struct Supervisor {
    ordered: watch::Sender<Ordered>,
    status: watch::Sender<Status>,
    task: JoinHandle<()>,
}

impl Supervisor {
    /// Starts one.
    pub fn start(host: Host, name: Arc<str>, first: Ordered) -> Supervisor {
        let (ordered, orders) = watch::channel(first);
        let status = watch::Sender::new(Status::new(State::Deploying));
        let task = tokio::spawn(Work { host, name, status: status.clone() }.run(orders));
        Supervisor { ordered, status, task }
    }

    /// Says what is wanted from now on.
    pub fn order(&self, ordered: Ordered) {
        if matches!(ordered, Ordered::Run { .. }) {
            // Whoever looks next must not take what came of the deployment before for what comes of this one.
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

    /// What has become of the stream so far.
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// The same, to be waited for.
    pub fn watch(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Ends it, and the stream with it, in the middle of whatever they do.
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
                        // What is ordered has changed before the start.
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

    /// Puts the stream up.
    async fn start(&self, text: &str, properties: &BTreeMap<String, String>) -> Result<Running, String> {
        let told = |error: &dyn std::error::Error| error.to_string();
        let shared = &self.host.0;
        let deployment = Deployment::read(properties).map_err(|error| told(&error))?;
        let plan = {
            let state = self.host.state();
            self.host.read(&state, &self.name, text).map_err(|error| told(&error))?
        };
        deployment.check(&plan).map_err(|error| told(&error))?;
        let transport = shared.transport();
        let (plan, topics) = transport.lay(plan, &deployment.counts);
        deployment.guarantee.check(&plan, &deployment.on_error).map_err(|error| told(&error))?;
        transport.create_topics(&topics).await.map_err(|error| told(&error))?;
        let options = RunOptions {
            on_error: deployment.on_error,
            cluster: shared.settings.cluster.clone(),
            guarantee: deployment.guarantee,
            // A stream runs on one node: wherever it is deployed next, it takes the place of the one before.
            instance: INSTANCE.to_owned(),
            console: shared.settings.console.clone(),
            taps: shared.taps.clone(),
        };
        runtime::start(&plan, &options).map_err(|error| told(&error))
    }

    /// Stays with a stream until it has ended. Whether that was because something else is ordered.
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
        // Its stages are gone before anybody hears of it: their ports are free.
        if let Err(error) = running.ended().await {
            tracing::warn!(stream = &*self.name, %error, "The stream failed while it was drained");
        }
        true
    }

    fn failed(&self, reason: String, meters: Option<Meters>) {
        tracing::error!(stream = &*self.name, reason, "The stream failed; deploying it again starts it");
        self.status.send_replace(Status { state: State::Failed, reason: Some(reason), meters });
    }

    /// Takes itself out of the host, unless the stream is there again.
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
