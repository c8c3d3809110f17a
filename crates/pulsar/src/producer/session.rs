//! A producer between its callers, its connection and its task. The task finishes batches whose delay is
//! over, gives up overdue ones, and reconnects.
//!
//! A batch that the broker refuses is sent again after a reconnection, unless its topic is terminated or the
//! batch is not allowed.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_timer::Timer;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::batch::OutgoingMessage;
use super::error::{ProducerClosed, SendError, SendRefused, SendTimedOut};
use super::options::ProducerOptions;
use super::receipt::{SendReceipt, StoredEntry};
use super::state::{DueOutcome, ProducerContext, ProducerState, TakenBatch};
use crate::backoff::Backoff;
use crate::client::Client;
use crate::connection::{Connection, ConnectionId, ProducerEvents, UNANSWERED};
use crate::error::{
    CloseReason, ConnectionClosed, PulsarError, RequestSubject, TopicMoved, UnexpectedAnswer,
};
use crate::message_id::MessageId;
use crate::protocol::{CloseProducer, Command, RegisterProducer, SendReceiptCommand};
use crate::server_error::ServerError;
use crate::topic::TopicName;

/// The part of a producer that its handle, its task and its connection share.
pub(super) struct ProducerCore {
    client: Client,
    pub topic: TopicName,
    /// The partition for message ids; `-1` for a topic without partitions.
    partition: i32,
    id: u64,
    options: ProducerOptions,
    pub state: Mutex<ProducerState>,
    /// Notified when messages have their outcome.
    pub progress: Notify,
    /// Notified when the task has something to do.
    signal: Notify,
}

impl fmt::Debug for ProducerCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProducerCore")
            .field("topic", &self.topic)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl ProducerCore {
    pub(super) async fn open(
        client: &Client,
        topic: TopicName,
        options: ProducerOptions,
    ) -> Result<Arc<ProducerCore>, PulsarError> {
        let name = options.name.as_deref().unwrap_or_default().into();
        let core = Arc::new(ProducerCore {
            client: client.clone(),
            partition: topic.partition_number(),
            topic,
            id: client.next_id(),
            state: Mutex::new(ProducerState::new(name, &options)),
            options,
            progress: Notify::new(),
            signal: Notify::new(),
        });
        let backoff = Backoff::within(client.options().operation_timeout, client.options());
        backoff.repeat(|| core.connect(), PulsarError::is_retriable).await?;
        Ok(core)
    }

    pub(super) fn append(&self, message: &OutgoingMessage<'_>) -> Result<Option<SendReceipt>, SendError> {
        let appended = self.state.lock().append(message, &self.context())?;
        Ok(appended.map(|appended| {
            if appended.needs_timer {
                self.signal.notify_one();
            }
            appended.receipt
        }))
    }

    /// Sends the open batch.
    pub(super) fn seal(&self) {
        self.state.lock().seal(&self.context());
    }

    /// Closes the producer at the broker, and waits for its answer.
    pub(super) async fn close(&self) -> Result<(), PulsarError> {
        let Some(connection) = self.end(&ProducerClosed.into()) else { return Ok(()) };
        connection.remove_producer(self.id);
        let timeout = self.client.options().operation_timeout;
        let subject = self.subject("Closing of a producer for");
        connection.request(subject, timeout, |request_id| self.close_command(request_id)).await?;
        Ok(())
    }

    /// Closes the producer without waiting.
    pub(super) fn abandon(&self) {
        let Some(connection) = self.end(&ProducerClosed.into()) else { return };
        connection.remove_producer(self.id);
        connection.send(self.close_command(UNANSWERED));
    }

    fn close_command(&self, request_id: u64) -> Command {
        Command::CloseProducer(CloseProducer { producer_id: self.id, request_id })
    }

    fn end(&self, error: &SendError) -> Option<Connection> {
        let (connection, due) = self.state.lock().end(error);
        self.complete(due);
        self.signal.notify_one();
        connection
    }

    fn complete(&self, due: impl IntoIterator<Item = DueOutcome>) {
        for (outcome, result) in due {
            outcome.complete(result);
        }
        self.progress.notify_waiters();
    }

    fn context(&self) -> ProducerContext<'_> {
        ProducerContext { id: self.id, options: &self.options }
    }

    fn subject(&self, action: &'static str) -> RequestSubject {
        RequestSubject { action, subject: self.topic.as_str().into() }
    }

    /// Opens the producer at the topic's owner, once.
    async fn connect(self: &Arc<Self>) -> Result<(), PulsarError> {
        let connection = self.client.owner_of(&self.topic).await?;
        let (name, epoch) = {
            let mut state = self.state.lock();
            state.is_closed_early = false;
            (Some(state.name.to_string()).filter(|name| !name.is_empty()), state.reconnects)
        };
        if !connection.add_producer(self.id, Arc::clone(self) as Arc<dyn ProducerEvents>) {
            return Err(connection.closed().into());
        }
        let build = |request_id| {
            Command::RegisterProducer(Box::new(RegisterProducer {
                topic: self.topic.to_string(),
                producer_id: self.id,
                request_id,
                producer_name: name,
                epoch: Some(epoch),
                user_provided_producer_name: Some(self.options.name.is_some()),
            }))
        };
        let subject = self.subject("Producer for");
        let timeout = self.client.options().operation_timeout;
        let opened = connection.request(subject.clone(), timeout, build).await;
        let success = match opened {
            Ok(Command::ProducerSuccess(success)) => success,
            Ok(_) => {
                connection.remove_producer(self.id);
                return Err(UnexpectedAnswer { request: subject, missing: "name" }.into());
            }
            Err(error) => {
                connection.remove_producer(self.id);
                if matches!(error, PulsarError::RequestTimedOut(_)) {
                    // The broker may still be opening the producer.
                    connection.send(self.close_command(UNANSWERED));
                }
                return Err(error);
            }
        };
        let mut state = self.state.lock();
        if state.has_ended() {
            connection.remove_producer(self.id);
            connection.send(self.close_command(UNANSWERED));
            return Ok(());
        }
        // Events before this point found no connection, so the end of it must be looked for here.
        if state.is_closed_early {
            return Err(TopicMoved { topic: self.topic.to_string() }.into());
        }
        if connection.is_closed() {
            return Err(connection.closed().into());
        }
        if let Some(last) = success.last_sequence_id.and_then(|last| u64::try_from(last).ok()) {
            state.next_sequence_id = state.next_sequence_id.max(last + 1);
        }
        state.adopt(connection, success.producer_name.into());
        Ok(())
    }

    /// Connects again until that succeeds or fails for good.
    async fn reconnect(self: &Arc<Self>) {
        let options = self.client.options();
        let mut backoff = Backoff::within(options.reconnect_timeout, options);
        let is_refused = {
            let mut state = self.state.lock();
            state.reconnects += 1;
            std::mem::take(&mut state.is_refused)
        };
        if is_refused {
            // The broker would probably refuse the same batch again at once.
            backoff.pause().await;
        }
        if let Err(error) = backoff.repeat(|| self.connect(), PulsarError::is_retriable_again).await {
            self.end(&SendError::Disconnected(Arc::new(error)));
        }
    }

    /// Acts on time until `until` is true.
    async fn serve_timers(&self, until: impl Fn(&ProducerState) -> bool) {
        // Delays of batches are about a millisecond, as long as a tick of the runtime's timers.
        let mut timer = Timer::new();
        loop {
            let (overdue, next) = {
                let mut state = self.state.lock();
                if until(&state) {
                    return;
                }
                let overdue = state.act_on_time(Instant::now(), &self.context());
                state.timer_at = state.next_act(&self.options);
                (overdue, state.timer_at)
            };
            if let Some(timeout) = self.options.send_timeout.filter(|_| !overdue.is_empty()) {
                let timed_out = SendTimedOut { topic: self.topic.as_str().into(), timeout };
                let result = || Err(SendError::from(timed_out.clone()));
                self.complete(overdue.into_iter().map(|batch| (batch.outcome, result())));
            }
            match next {
                None => self.signal.notified().await,
                Some(at) => tokio::select! {
                    biased;
                    () = self.signal.notified() => {}
                    () = timer.wait(at) => {}
                },
            }
        }
    }

    /// Forgets a lost connection, and notifies the task.
    fn lose(&self, connection: ConnectionId) {
        {
            let mut state = self.state.lock();
            if !state.is_on(connection) {
                state.is_closed_early = true;
                return;
            }
            state.connection = None;
        }
        self.signal.notify_one();
    }
}

/// The task of a producer.
pub(super) async fn run(core: Arc<ProducerCore>) {
    loop {
        core.serve_timers(|state| state.has_ended() || state.connection.is_none()).await;
        if core.state.lock().has_ended() {
            return;
        }
        tokio::select! {
            biased;
            () = core.reconnect() => {}
            () = core.serve_timers(ProducerState::has_ended) => return,
        }
    }
}

impl ProducerEvents for ProducerCore {
    fn stored(&self, connection: ConnectionId, receipt: &SendReceiptCommand) -> Result<(), CloseReason> {
        let due = {
            let mut state = self.state.lock();
            if !state.is_on(connection) {
                return Ok(());
            }
            state.take_stored(receipt.sequence_id)?
        };
        if let Some(TakenBatch { outcome, count, bytes }) = due {
            let id = MessageId::of_entry(&receipt.message_id.clone().unwrap_or_default(), self.partition);
            self.complete([(outcome, Ok(StoredEntry { id, count, bytes }))]);
        }
        Ok(())
    }

    fn refused(
        &self,
        connection: ConnectionId,
        sequence_id: u64,
        error: ServerError,
        message: String,
    ) -> Result<(), CloseReason> {
        let refused =
            || SendRefused { topic: self.topic.as_str().into(), error, message: message.as_str().into() };
        let mut state = self.state.lock();
        if !state.is_on(connection) {
            return Ok(());
        }
        // As by Pulsar's Java client.
        match error {
            ServerError::NotAllowedError => {
                let batch = state.take_refused(sequence_id);
                drop(state);
                self.complete(batch.map(|batch| (batch.outcome, Err(refused().into()))));
            }
            ServerError::TopicTerminatedError => {
                drop(state);
                if let Some(connection) = self.end(&refused().into()) {
                    connection.remove_producer(self.id);
                }
            }
            ServerError::ChecksumError => {
                let corrupted = state.take_corrupted(sequence_id);
                state.send_again();
                drop(state);
                self.complete(corrupted.map(|batch| (batch.outcome, Err(refused().into()))));
            }
            _ => {
                state.is_refused = true;
                if let Some(connection) = state.connection.take() {
                    connection.remove_producer(self.id);
                }
                drop(state);
                self.signal.notify_one();
            }
        }
        Ok(())
    }

    fn closed_by_broker(&self, connection: ConnectionId) {
        self.lose(connection);
    }

    fn connection_ended(&self, connection: ConnectionId, _: &ConnectionClosed) {
        self.lose(connection);
    }
}
