//! The commits of a consumer, one at a time: offsets committed during a request are collected for the next
//! request, so that an earlier offset never overtakes a later one, and an unavailable coordinator delays only
//! commits.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use thalweg_dial::{ClientError, Connection, RefusedRequest, Retry};
use thalweg_wire::request::OffsetCommitRequest;
use thalweg_wire::{ErrorCode, Request};
use tokio::sync::oneshot;

use super::membership::Membership;
use super::shared_state::SharedState;
use super::{CommitFailed, ConsumerConfig, ConsumerError};
use crate::coordinator::Coordinator;
use crate::offsets::{CommittedOffset, GroupMetadata, TopicPartition, check_commit, commit_request};

/// A commit in flight. Dropping it does not cancel the commit.
#[derive(Debug)]
pub struct CommitInFlight(oneshot::Receiver<Result<(), ConsumerError>>);

impl CommitInFlight {
    /// A commit that was not sent.
    pub(super) fn refused(error: CommitFailed) -> CommitInFlight {
        let (ended, end) = oneshot::channel();
        let _ = ended.send(Err(error.into()));
        CommitInFlight(end)
    }
}

impl Future for CommitInFlight {
    type Output = Result<(), ConsumerError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // The committing task ends only with its runtime.
        Pin::new(&mut self.0).poll(context).map(|result| result.unwrap_or_else(|_| Err(abandoned().into())))
    }
}

/// The queue of commits.
#[derive(Debug)]
pub(super) struct CommitQueue {
    coordinator: Arc<Coordinator>,
    config: Arc<ConsumerConfig>,
    shared: Arc<SharedState>,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    next: Option<NextCommit>,
    is_running: bool,
}

/// The next commit.
#[derive(Debug)]
struct NextCommit {
    by: GroupMetadata,
    /// The membership, if the consumer is a member.
    member: Option<Arc<Membership>>,
    offsets: BTreeMap<TopicPartition, CommittedOffset>,
    waiting: Vec<oneshot::Sender<Result<(), ConsumerError>>>,
}

impl NextCommit {
    /// The member's current identity, if it has held the partitions since it was `by`: with the consumer
    /// protocol, the epoch can change meanwhile.
    fn renewed(&self) -> Option<GroupMetadata> {
        self.member.as_ref()?.renewed(&self.by, self.offsets.keys())
    }

    /// The error of a refused commit: the end of a membership has another remedy than other errors.
    fn failure(&self, error: ClientError) -> ConsumerError {
        match error.error_code().filter(|_| self.member.is_some()) {
            code @ Some(ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration) => {
                CommitFailed { by: self.by.clone(), error_code: code }.into()
            }
            _ => error.into(),
        }
    }

    fn end(self, result: &Result<(), ConsumerError>) {
        for waiting in self.waiting {
            // The caller may have dropped its handle.
            let _ = waiting.send(result.clone());
        }
    }
}

impl CommitQueue {
    pub(super) fn new(
        coordinator: Coordinator,
        config: Arc<ConsumerConfig>,
        shared: Arc<SharedState>,
    ) -> CommitQueue {
        CommitQueue { coordinator: Arc::new(coordinator), config, shared, queue: Mutex::default() }
    }

    /// The coordinator, over the connection of the commits.
    pub(super) fn coordinator(&self) -> Arc<Coordinator> {
        Arc::clone(&self.coordinator)
    }

    /// Commits offsets, after the request in flight.
    pub(super) fn commit(
        self: &Arc<Self>,
        by: GroupMetadata,
        member: Option<Arc<Membership>>,
        offsets: BTreeMap<TopicPartition, CommittedOffset>,
    ) -> CommitInFlight {
        let (ended, end) = oneshot::channel();
        if offsets.is_empty() {
            let _ = ended.send(Ok(()));
            return CommitInFlight(end);
        }
        let mut queue = self.queue.lock();
        // Offsets of an earlier generation cannot be committed by a later one: the partitions may belong to
        // another member.
        let is_stale = |next: &mut NextCommit| next.by != by && next.renewed().as_ref() != Some(&by);
        if let Some(stale) = queue.next.take_if(is_stale) {
            let error = stale.failure(superseded(&by.group));
            stale.end(&Err(error));
        }
        let next = queue.next.get_or_insert_with(|| NextCommit {
            by: by.clone(),
            member,
            offsets: BTreeMap::new(),
            waiting: Vec::new(),
        });
        next.by = by;
        next.offsets.extend(offsets);
        next.waiting.retain(|waiting| !waiting.is_closed());
        next.waiting.push(ended);
        if !std::mem::replace(&mut queue.is_running, true) {
            tokio::spawn(Arc::clone(self).run());
        }
        CommitInFlight(end)
    }

    async fn run(self: Arc<Self>) {
        loop {
            let next = {
                let mut queue = self.queue.lock();
                let next = queue.next.take();
                queue.is_running = next.is_some();
                next
            };
            let Some(next) = next else { return };
            let result = self.send(&next).await.map_err(|error| next.failure(error));
            match (&result, &next.member) {
                (Ok(()), _) => self.shared.assignment.lock().committed(&next.offsets),
                (Err(ConsumerError::CommitFailed(_)), Some(member)) => member.doubt(),
                _ => {}
            }
            next.end(&result);
        }
    }

    async fn send(&self, next: &NextCommit) -> Result<(), ClientError> {
        let config = &self.config;
        // After a session timeout without contact the member has lost its partitions.
        let patience = config.session_timeout.min(config.connection.request_timeout);
        let mut retry = Retry::within(config.retry_backoff, patience);
        // During SyncGroup the broker refuses commits. The generation in the request protects moving
        // partitions. An epoch may be older than the coordinator's by a heartbeat in flight.
        retry.also = &[ErrorCode::RebalanceInProgress, ErrorCode::StaleMemberEpoch];
        let make = |connection: &Connection| -> Result<(OffsetCommitRequest, i16), ClientError> {
            let by = next.renewed();
            commit_request(connection, by.as_ref().unwrap_or(&next.by), &next.offsets)
        };
        let read = |response: <OffsetCommitRequest as Request>::Response, _| {
            let checked = check_commit(response, &next.by.group);
            let is_stale = |error: &ClientError| error.error_code() == Some(ErrorCode::StaleMemberEpoch);
            match checked {
                Err(error) if is_stale(&error) && next.renewed().is_none() => Err(superseded(&next.by.group)),
                checked => checked,
            }
        };
        self.coordinator.request(retry, make, read).await
    }
}

fn superseded(group: &str) -> ClientError {
    let message = Some("the group has rebalanced since".to_owned());
    let what = format!("Commit of group {group}");
    RefusedRequest { what, error_code: ErrorCode::IllegalGeneration, message }.into()
}

fn abandoned() -> ClientError {
    let message = Some("the runtime has ended".to_owned());
    RefusedRequest { what: "A commit".to_owned(), error_code: ErrorCode::RequestTimedOut, message }.into()
}
