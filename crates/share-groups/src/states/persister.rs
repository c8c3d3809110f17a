//! Sends requests for share partitions to their coordinator, on this broker or another (Kafka's
//! `DefaultStatePersister` and `PersisterStateManager`).
//!
//! Owns: finding the coordinator, which leads a partition of `__share_group_state`, and retries until it
//! answers. Requests of one API for one broker are sent one after the other, each with all questions
//! collected meanwhile. The state topic is not created here: [`Persister::state_topic_wanted`] reports the
//! need.

mod rpc;

use super::coordinator::ShareCoordinator;
use super::error::PersistError;
use super::request::{StateReply, StateRequest, StateWrite};
use rpc::Question;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use thalweg_membership::{Outbox, Peers};
use thalweg_metadata::topic_name::SHARE_STATE;
use thalweg_metadata::{BrokerId, ImageCell};
use thalweg_share::{SharePartitionKey, ShareState, StateSummary, StateUpdate};
use tokio::sync::Notify;

/// Attempts per request. With the pauses, they outlast the replacement of a failed broker.
const ATTEMPTS: u32 = 10;
/// The first pause; every further pause is twice as long.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(4);

type Outcome = Result<StateReply, PersistError>;

/// Reads and changes the states of share partitions at their coordinators, here or on other brokers.
pub struct Persister {
    node_id: BrokerId,
    image: Arc<ImageCell>,
    coordinator: Arc<ShareCoordinator>,
    /// Questions for remote coordinators.
    outbox: Outbox<Question>,
    topic_wanted: Notify,
}

impl fmt::Debug for Persister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Persister").field("outbox", &self.outbox).finish_non_exhaustive()
    }
}

impl Persister {
    /// Requests go to `coordinator` for share partitions of this node, and to peers for the rest.
    pub fn new(
        node_id: BrokerId,
        image: Arc<ImageCell>,
        coordinator: Arc<ShareCoordinator>,
        peers: Arc<Peers>,
    ) -> Persister {
        Persister { node_id, image, coordinator, outbox: Outbox::new(peers), topic_wanted: Notify::new() }
    }

    /// Initializes the state of a share partition at an offset; with -1, the leader will choose the offset.
    pub async fn initialize(
        &self,
        key: &SharePartitionKey,
        state_epoch: i32,
        start_offset: i64,
    ) -> Result<(), PersistError> {
        self.change(key, StateRequest::Initialize { state_epoch, start_offset }).await
    }

    /// Reads the state for the leader of this epoch, which fences earlier leaders.
    pub async fn read(&self, key: &SharePartitionKey, leader_epoch: i32) -> Result<ShareState, PersistError> {
        match self.request(key, StateRequest::Read { leader_epoch }).await? {
            StateReply::State { state_epoch, start_offset, runs } => {
                // A state without a code for clients is never persisted.
                let batches = runs.into_iter().map(|run| run.batch().ok_or(PersistError::Invalid));
                let batches = batches.collect::<Result<_, _>>()?;
                Ok(ShareState { state_epoch, start_offset, batches })
            }
            StateReply::Changed | StateReply::Summary(_) => unreachable!("a read is answered by a state"),
        }
    }

    /// Changes the state. After [`PersistError::Unavailable`] the change may or may not have happened.
    pub async fn write(&self, key: &SharePartitionKey, update: &StateUpdate) -> Result<(), PersistError> {
        self.change(key, StateRequest::Write(StateWrite::from(update))).await
    }

    /// Deletes the state.
    pub async fn delete(&self, key: &SharePartitionKey) -> Result<(), PersistError> {
        self.change(key, StateRequest::Delete).await
    }

    /// Reads the state without its runs. Fences no leader.
    pub async fn read_summary(
        &self,
        key: &SharePartitionKey,
        leader_epoch: i32,
    ) -> Result<StateSummary, PersistError> {
        match self.request(key, StateRequest::Summarize { leader_epoch }).await? {
            StateReply::Summary(summary) => Ok(summary),
            StateReply::Changed | StateReply::State { .. } => unreachable!("a summary is answered by one"),
        }
    }

    /// Returns when a request needs `__share_group_state`, which does not exist.
    pub async fn state_topic_wanted(&self) {
        self.topic_wanted.notified().await;
    }

    async fn change(&self, key: &SharePartitionKey, request: StateRequest) -> Result<(), PersistError> {
        self.request(key, request).await.map(|_| ())
    }

    /// Repeats a request until there is an answer or a further attempt is pointless.
    async fn request(&self, key: &SharePartitionKey, request: StateRequest) -> Outcome {
        let request = (key.clone(), request);
        let mut pause = PAUSE;
        for attempt in 1.. {
            match self.attempt(&request).await {
                Err(error) if error.is_worth_retrying() && attempt < ATTEMPTS => {
                    tracing::debug!(?key, attempt, %error, "Retrying a request for the state of a share partition");
                }
                outcome => return outcome,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        unreachable!("the last attempt returns")
    }

    async fn attempt(&self, request: &(SharePartitionKey, StateRequest)) -> Outcome {
        let image = self.image.get();
        if image.topic(SHARE_STATE).is_none() {
            self.topic_wanted.notify_one();
            return Err(PersistError::Unavailable);
        }
        let registration = image.partition(SHARE_STATE, self.coordinator.partition_for(&request.0));
        let leader = registration.map(|registration| registration.leader);
        let leader = leader.filter(|leader| image.is_alive(*leader)).ok_or(PersistError::Unavailable)?;
        if leader != self.node_id {
            let (key, request) = request.clone();
            let answered = self.outbox.ask(leader, Question { key, request }).await;
            return answered.unwrap_or(Err(PersistError::Unavailable));
        }
        let mut answers = self.coordinator.serve(std::slice::from_ref(request)).await;
        let answer = answers.pop().expect("one request has one answer");
        answer.map_err(|error| PersistError::of(error.code()))
    }
}
