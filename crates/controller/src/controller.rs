//! The controller's public interface: start, requests, stop.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use thalweg_log::disk::Disk;
use thalweg_metadata::{Image, TopicIdPartition, VersionedRecord};
use thalweg_places::{FairPermit, FairSemaphore};
use thalweg_security::Principal;
use thalweg_wire::frame;
use thalweg_wire::request::{EnvelopeRequest, EnvelopeResponse};
use thalweg_wire::{ApiKey, Decoder, ErrorCode, Message};
use tokio::sync::{mpsc, oneshot};

use crate::dispatch::{self, HandleError};
use crate::driver::{self, Command};
use crate::options::{ConfigRules, ControllerOptions};
use crate::published::{ControllerFigures, PublishedState};
use crate::quorum::ControllerStartError;
use crate::request_context::RequestContext;
use crate::requester::Requester;
use crate::state::{
    Batch, Claim, ComparedElection, Decider, Decision, Extent, Moment, State, TaskRequest,
    UndecidedPartition, encode,
};

/// Maximum number of requests that wait for the controller's task, in total and for one principal.
const COMMANDS_MAX: usize = 1024;
const COMMANDS_OF_ONE_MAX: usize = 256;
/// Maximum number of concurrent large requests, because each may use much memory.
const LARGE_AT_ONCE: usize = 4;

/// A permit for a principal's request; `None` for this process, which needs no permit.
async fn permit(semaphore: &FairSemaphore<Principal>, requester: &Requester) -> Option<FairPermit> {
    match requester {
        Requester::ThisProcess => None,
        Requester::Peer { principal, .. } => Some(semaphore.take(principal).await),
    }
}

/// The embedded controller. [`Controller::shutdown`] stops the controller. A dropped controller ends without
/// closing its log, and the next start recovers the log.
#[derive(Debug)]
pub struct Controller {
    commands: mpsc::Sender<Command>,
    node_id: i32,
    cluster_id: Arc<str>,
    published: Arc<PublishedState>,
    disk: Disk,
    /// Permits for the queue of commands, and for large requests, for principals other than this process.
    waiting: FairSemaphore<Principal>,
    large: FairSemaphore<Principal>,
    /// True if the witness notes permissions.
    notes_permissions: bool,
}

impl Controller {
    /// Opens or formats the metadata log, starts a new epoch, and leads. The answers of `rules` must not
    /// change while the controller runs.
    pub async fn start(
        options: ControllerOptions,
        rules: Arc<dyn ConfigRules>,
    ) -> Result<Controller, ControllerStartError> {
        let (node_id, cluster_id) = (options.node_id, Arc::from(options.cluster_id.as_str()));
        let disk = options.disk.clone();
        let has_authorizer = options.authorizer.is_some();
        let notes_permissions = options.witness.as_ref().is_some_and(|witness| witness.wants_permissions());
        let opened = disk.clone().spawn(move || driver::Driver::open(options, rules));
        let driver = opened.await.map_err(|_| ControllerStartError::Task)??;
        let (commands, queue) = mpsc::channel(COMMANDS_MAX);
        let published = Arc::clone(driver.published());
        tokio::spawn(driver.run(queue));
        // Without an authorizer, there are no shares of principals.
        let of_one = if has_authorizer { COMMANDS_OF_ONE_MAX } else { COMMANDS_MAX };
        Ok(Controller {
            commands,
            node_id,
            cluster_id,
            published,
            disk,
            waiting: FairSemaphore::new(COMMANDS_MAX, of_one),
            large: FairSemaphore::in_turn(LARGE_AT_ONCE),
            notes_permissions,
        })
    }

    /// The id of the node.
    pub fn node_id(&self) -> i32 {
        self.node_id
    }

    /// The id of the cluster.
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// Current figures, read without a command to the controller's task.
    pub fn figures(&self) -> ControllerFigures {
        self.published.figures(COMMANDS_MAX - self.commands.capacity())
    }

    /// The latest committed image.
    pub fn image(&self) -> Arc<Image> {
        self.published.image()
    }

    /// Completes when another image is committed after this call.
    pub fn image_changed(&self) -> impl Future<Output = ()> + Send + '_ {
        self.published.changed()
    }

    /// Answers a request: header and body in, header and body out, both without a length prefix. The effect
    /// of the response is then durable.
    pub async fn handle(&self, frame: Bytes, requester: &Requester) -> Result<Bytes, HandleError> {
        let prefix = frame::peek_request(&frame)?;
        if prefix.api_key == ApiKey::Envelope as i16 {
            return self.unwrap_envelope(frame, prefix, requester).await;
        }
        self.handle_plain(frame, requester).await
    }

    async fn handle_plain(&self, frame: Bytes, requester: &Requester) -> Result<Bytes, HandleError> {
        let _waiting = permit(&self.waiting, requester).await;
        if !dispatch::is_large(&frame) {
            return self.answer(dispatch::parse(frame, requester, self.notes_permissions)?).await;
        }
        let _large = permit(&self.large, requester).await;
        let parsed = self.disk.work_in_place(|| dispatch::parse(frame, requester, self.notes_permissions))?;
        self.answer(parsed).await
    }

    async fn answer(&self, parsed: dispatch::ParsedFrame) -> Result<Bytes, HandleError> {
        match parsed {
            dispatch::ParsedFrame::Answered(frame) => Ok(frame),
            dispatch::ParsedFrame::Request(request) => {
                self.request(|reply| Command::Request { request, reply }).await
            }
        }
    }

    /// True if the requester may forward requests of clients.
    async fn may_forward(&self, requester: &Requester) -> Result<bool, HandleError> {
        if *requester == Requester::ThisProcess {
            return Ok(true);
        }
        let (reply, answer) = oneshot::channel();
        let by = RequestContext::new(requester.clone(), ApiKey::Envelope)
            .noting_permissions(self.notes_permissions);
        let command = Command::MayUse { api: dispatch::ENVELOPE, by, reply };
        self.commands.send(command).await.map_err(|_| HandleError::Stopped)?;
        answer.await.map_err(|_| HandleError::Stopped)
    }

    async fn request(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<Bytes, HandleError>>) -> Command,
    ) -> Result<Bytes, HandleError> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_| HandleError::Stopped)?;
        answer.await.map_err(|_| HandleError::Stopped)?
    }

    /// A request that a broker forwards for a client (KIP-590).
    async fn unwrap_envelope(
        &self,
        frame: Bytes,
        prefix: frame::RequestPrefix,
        requester: &Requester,
    ) -> Result<Bytes, HandleError> {
        let version = prefix.api_version;
        dispatch::check_version(dispatch::ENVELOPE, version)?;
        let mut d = Decoder::new(frame).with_elements_max(dispatch::AROUND_MAX);
        frame::decode_request_header(&mut d, ApiKey::Envelope, version)?;
        let envelope = EnvelopeRequest::decode(&mut d, version)?;
        let refused = |code: ErrorCode| EnvelopeResponse { response_data: None, error_code: code.code() };
        let client = match self.may_forward(requester).await? {
            true => dispatch::check_envelope(&envelope),
            false => Err(ErrorCode::ClusterAuthorizationFailed),
        };
        let response = match client {
            Err(code) => refused(code),
            Ok(client) => match self.handle_plain(envelope.request_data, &client).await {
                Ok(response) => EnvelopeResponse { response_data: Some(response), error_code: 0 },
                Err(HandleError::Decode(_)) => refused(ErrorCode::InvalidRequest),
                Err(HandleError::UnknownApi { .. }) => refused(ErrorCode::InvalidRequest),
                Err(HandleError::UnsupportedVersion { .. }) => refused(ErrorCode::UnsupportedVersion),
                Err(error @ (HandleError::Encode(_) | HandleError::DiskFull | HandleError::Stopped)) => {
                    return Err(error);
                }
            },
        };
        Ok(encode(&response, ApiKey::Envelope, version, prefix.correlation_id)?)
    }

    /// The given partitions that have no leader and no replica known to be complete. The caller compares the
    /// ends of their logs, and calls [`Controller::elect_compared`].
    pub async fn undecided(
        &self,
        leaderless: Vec<TopicIdPartition>,
    ) -> Result<Vec<UndecidedPartition>, HandleError> {
        self.consult(move |state, now| (Vec::new(), state.undecided(&leaderless, now))).await
    }

    /// Elects the replicas with the best logs. Returns the elections made; all others are outdated.
    pub async fn elect_compared(
        &self,
        elections: Vec<ComparedElection>,
    ) -> Result<Vec<ComparedElection>, HandleError> {
        self.consult(move |state, _| state.elect_compared(&elections)).await
    }

    /// A decision without a request: the records, and an answer for this process, once they are committed.
    async fn consult<T: Clone + Default + Send + 'static>(
        &self,
        decide: impl Fn(&State, Moment) -> (Vec<VersionedRecord>, T) + Send + 'static,
    ) -> Result<T, HandleError> {
        let answer = Arc::new(Mutex::new(T::default()));
        let place = Arc::clone(&answer);
        let decide: Decider = Box::new(move |state, now| {
            let (records, answer) = decide(state, now);
            let (batch, unwritable) = match state.prepare(records, Extent::Several) {
                Ok(batch) => (batch, None),
                Err(unwritable) => (Batch::default(), Some(unwritable)),
            };
            // An unwritable decision has no effect.
            *place.lock() = if unwritable.is_some() { T::default() } else { answer };
            let (claim, answer) = (Claim::Ordinary, Ok(Bytes::new()));
            Decision { batch, claim, unwritable, answer, spent: None, rulings: None }
        });
        let request = TaskRequest::Decide { decide, is_large: false };
        self.request(|reply| Command::Request { request, reply }).await?;
        let answer = answer.lock().clone();
        Ok(answer)
    }

    /// Waits until the controller has stopped, by [`Controller::shutdown`] or because its log cannot be
    /// written. In the latter case the process must end.
    pub async fn stopped(&self) {
        self.commands.closed().await;
    }

    /// Stops: writes accepted changes and closes the log. Later requests are not answered. Returns true if
    /// the log was closed cleanly.
    pub async fn shutdown(&self) -> bool {
        let (done, finished) = oneshot::channel();
        // An error means that the task ended earlier, because the log could not be written.
        self.commands.send(Command::Stop(done)).await.is_ok() && finished.await.unwrap_or(false)
    }
}
