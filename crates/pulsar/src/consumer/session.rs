//! A consumer between its caller, its connection and its task. The task sends acknowledgements whose delay is
//! over, and reconnects.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::error::ConsumeError;
use super::options::{ConsumerOptions, InitialPosition, SubscriptionType};
use super::state::{ConsumerState, QueuedEntry};
use crate::backoff::Backoff;
use crate::client::Client;
use crate::connection::{Connection, ConnectionId, ConsumerEvents, UNANSWERED};
use crate::error::{
    CloseReason, ConnectionClosed, PulsarError, RequestRefused, RequestSubject, TopicMoved, UnexpectedAnswer,
};
use crate::message_id::MessageId;
use crate::protocol::{
    Ack, AckResponse, CloseConsumer, Command, EntryCommand, GetLastMessageId, KeySharedMeta, MessageIdData,
    Seek, Subscribe, Unsubscribe,
};
use crate::server_error::ServerError;
use crate::topic::TopicName;

/// The part of a consumer that its handle, its task and its connection share.
pub(super) struct ConsumerCore {
    client: Client,
    pub topic: TopicName,
    /// The partition for message ids; `-1` for a topic without partitions.
    pub partition: i32,
    subscription: String,
    id: u64,
    pub options: ConsumerOptions,
    pub state: Mutex<ConsumerState>,
    /// The state's generation, for a look without the lock.
    generation: AtomicU64,
    /// Notified when an entry or the end arrives. The handle alone waits for it.
    pub arrived: Notify,
    /// Notified when the consumer is connected, or ends.
    connected: Notify,
    /// Notified when the task has something to do.
    signal: Notify,
}

impl fmt::Debug for ConsumerCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerCore")
            .field("topic", &self.topic)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl ConsumerCore {
    pub(super) async fn open(
        client: &Client,
        topic: TopicName,
        subscription: &str,
        options: ConsumerOptions,
    ) -> Result<Arc<ConsumerCore>, PulsarError> {
        let id = client.next_id();
        let core = Arc::new(ConsumerCore {
            client: client.clone(),
            partition: topic.partition_number(),
            topic,
            subscription: subscription.to_owned(),
            id,
            state: Mutex::new(ConsumerState::new(id, &options)),
            options,
            generation: AtomicU64::new(0),
            arrived: Notify::new(),
            connected: Notify::new(),
            signal: Notify::new(),
        });
        let backoff = Backoff::within(client.options().operation_timeout, client.options());
        backoff.repeat(|| core.connect(), PulsarError::is_retriable).await?;
        Ok(core)
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Takes the oldest entry out.
    pub(super) fn take_entry(&self, generation: u64) -> Result<Option<QueuedEntry>, ConsumeError> {
        self.state.lock().pop(generation)
    }

    /// Permits the broker to send `count` more messages, if `generation` is current.
    pub(super) fn give_permits(&self, generation: u64, count: u32) {
        let mut state = self.state.lock();
        if state.generation == generation {
            state.give_permits(count);
        }
    }

    /// Acknowledges an entry.
    pub(super) fn ack(&self, entry: MessageId) {
        self.change_acks(|state| state.acks.add(entry));
    }

    /// Acknowledges an entry and all before it.
    pub(super) fn ack_all_until(&self, entry: MessageId) {
        self.change_acks(|state| state.acks.add_all_until(entry));
    }

    fn change_acks(&self, change: impl FnOnce(&mut ConsumerState)) {
        let is_first = {
            let mut state = self.state.lock();
            let was_empty = state.acks.since().is_none();
            change(&mut state);
            // The clock is read for the first acknowledgement only; others wait at most as long.
            if self.options.ack_delay.is_zero() || state.acks.len() >= self.options.ack_group_max {
                state.send_acks();
            }
            was_empty && state.acks.since().is_some()
        };
        if is_first {
            self.signal.notify_one();
        }
    }

    pub(super) async fn flush_acks(&self) -> Result<(), ConsumeError> {
        let acks = {
            let mut state = self.state.lock();
            if state.acks.since().is_none() {
                return Ok(());
            }
            state.acks.take(self.id)
        };
        let connection = self.connection().await?;
        for ack in acks {
            let subject = self.subject("Acknowledgement in");
            let build = |request_id| Command::Ack(Ack { request_id: Some(request_id), ..ack });
            let answer = self.request(&connection, subject.clone(), build).await?;
            if let Command::AckResponse(AckResponse { error: Some(error), message, .. }) = answer {
                let (error, message) = (ServerError::of(error), message.unwrap_or_default());
                return Err(failed(RequestRefused { request: subject, error, message }));
            }
        }
        Ok(())
    }

    /// Moves the subscription. The broker closes its consumers; the task opens this one again.
    pub(super) async fn seek(&self, id: MessageId) -> Result<(), ConsumeError> {
        let connection = self.connection().await?;
        let before = {
            let mut state = self.state.lock();
            state.seek_target = Some(id);
            state.acks.clear();
            state.generation
        };
        let build = |request_id| {
            let message_id = Some(seek_data(&id));
            Command::Seek(Seek { consumer_id: self.id, request_id, message_id })
        };
        let sought = self.request(&connection, self.subject("Seek in"), build).await;
        let mut state = self.state.lock();
        if sought.is_err() {
            state.seek_target = None;
        } else if state.generation == before {
            // The consumer is not opened again yet, so the queue has messages of the last position.
            state.forget_queue(0);
            self.generation.store(state.generation, Ordering::Release);
        }
        sought.map(drop)
    }

    pub(super) fn redeliver_unacknowledged(&self, unread: u32) {
        let mut state = self.state.lock();
        state.redeliver(unread, self.options.subscription_type.is_ordered());
        self.generation.store(state.generation, Ordering::Release);
    }

    pub(super) async fn last_message_id(&self) -> Result<MessageId, ConsumeError> {
        let connection = self.connection().await?;
        let subject = self.subject("Last message of");
        let build =
            |request_id| Command::GetLastMessageId(GetLastMessageId { consumer_id: self.id, request_id });
        match self.request(&connection, subject.clone(), build).await? {
            Command::LastMessageIdResponse(answer) => {
                Ok(MessageId::of_entry(&answer.last_message_id, self.partition))
            }
            _ => Err(failed(UnexpectedAnswer { request: subject, missing: "message id" })),
        }
    }

    /// Closes the consumer at the broker, and waits for its answer.
    pub(super) async fn close(&self) -> Result<(), ConsumeError> {
        let Some(connection) = self.end(ConsumeError::Closed) else { return Ok(()) };
        connection.remove_consumer(self.id);
        let build = |request_id| self.close_command(request_id);
        self.request(&connection, self.subject("Closing of a consumer in"), build).await.map(drop)
    }

    pub(super) async fn unsubscribe(&self) -> Result<(), ConsumeError> {
        let connection = self.connection().await?;
        let build = |request_id| Command::Unsubscribe(Unsubscribe { consumer_id: self.id, request_id });
        self.request(&connection, self.subject("Removal of"), build).await?;
        connection.remove_consumer(self.id);
        self.end(ConsumeError::Closed);
        Ok(())
    }

    /// Closes the consumer without waiting.
    pub(super) fn abandon(&self) {
        self.state.lock().send_acks();
        let Some(connection) = self.end(ConsumeError::Closed) else { return };
        connection.remove_consumer(self.id);
        connection.send(self.close_command(UNANSWERED));
    }

    fn end(&self, error: ConsumeError) -> Option<Connection> {
        let connection = self.state.lock().end(error);
        self.signal.notify_one();
        self.arrived.notify_one();
        self.connected.notify_waiters();
        connection
    }

    /// The connection, after a reconnection if necessary.
    async fn connection(&self) -> Result<Connection, ConsumeError> {
        loop {
            let connected = self.connected.notified();
            {
                let state = self.state.lock();
                state.check()?;
                if let Some(connection) = &state.connection {
                    return Ok(connection.clone());
                }
            }
            connected.await;
        }
    }

    async fn request(
        &self,
        connection: &Connection,
        subject: RequestSubject,
        build: impl FnOnce(u64) -> Command + Send,
    ) -> Result<Command, ConsumeError> {
        let timeout = self.client.options().operation_timeout;
        connection.request(subject, timeout, build).await.map_err(failed)
    }

    fn close_command(&self, request_id: u64) -> Command {
        Command::CloseConsumer(CloseConsumer { consumer_id: self.id, request_id })
    }

    fn subject(&self, action: &'static str) -> RequestSubject {
        let subject = format!("subscription {} of {}", self.subscription, self.topic);
        RequestSubject { action, subject: subject.into() }
    }

    /// Opens the consumer at the topic's owner, once.
    async fn connect(self: &Arc<Self>) -> Result<(), PulsarError> {
        let connection = self.client.owner_of(&self.topic).await?;
        let epoch = {
            let mut state = self.state.lock();
            state.is_closed_early = false;
            state.epoch
        };
        if !connection.add_consumer(self.id, Arc::clone(self) as Arc<dyn ConsumerEvents>) {
            return Err(connection.closed().into());
        }
        let timeout = self.client.options().operation_timeout;
        let build = |request_id| self.subscribe_command(request_id, epoch);
        if let Err(error) = connection.request(self.subject("Consumer in"), timeout, build).await {
            connection.remove_consumer(self.id);
            if matches!(error, PulsarError::RequestTimedOut(_)) {
                // The broker may still be opening the consumer.
                connection.send(self.close_command(UNANSWERED));
            }
            return Err(error);
        }
        let mut state = self.state.lock();
        if state.has_ended() {
            connection.remove_consumer(self.id);
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
        state.adopt(connection, &self.options);
        self.generation.store(state.generation, Ordering::Release);
        drop(state);
        self.connected.notify_waiters();
        Ok(())
    }

    fn subscribe_command(&self, request_id: u64, epoch: u64) -> Command {
        let options = &self.options;
        let is_key_shared = options.subscription_type == SubscriptionType::KeyShared;
        Command::Subscribe(Box::new(Subscribe {
            topic: self.topic.to_string(),
            subscription: self.subscription.clone(),
            sub_type: options.subscription_type.code(),
            consumer_id: self.id,
            request_id,
            consumer_name: options.name.clone(),
            initial_position: Some(match options.initial_position {
                InitialPosition::Latest => 0,
                InitialPosition::Earliest => 1,
            }),
            key_shared: is_key_shared.then_some(KeySharedMeta { mode: 0 }),
            consumer_epoch: options.subscription_type.is_ordered().then_some(epoch),
            ..Subscribe::default()
        }))
    }

    /// Connects again until that succeeds or fails for good.
    async fn reconnect(self: &Arc<Self>) {
        let options = self.client.options();
        let backoff = Backoff::within(options.reconnect_timeout, options);
        self.state.lock().reconnects += 1;
        if let Err(error) = backoff.repeat(|| self.connect(), PulsarError::is_retriable_again).await {
            self.end(ConsumeError::Disconnected(Arc::new(error)));
        }
    }

    /// Sends acknowledgements in time, until `until` is true.
    async fn serve_timers(&self, until: impl Fn(&ConsumerState) -> bool) {
        loop {
            let next = {
                let mut state = self.state.lock();
                if until(&state) {
                    return;
                }
                state.send_due_acks(Instant::now(), &self.options);
                state.acks_due(&self.options)
            };
            match next {
                None => self.signal.notified().await,
                Some(at) => tokio::select! {
                    biased;
                    () = self.signal.notified() => {}
                    () = tokio::time::sleep_until(at) => {}
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

fn failed(error: impl Into<PulsarError>) -> ConsumeError {
    ConsumeError::Request(Arc::new(error.into()))
}

/// The form of a seek position for the protocol: messages of its batch before the position are acknowledged.
fn seek_data(id: &MessageId) -> MessageIdData {
    let mut data = id.entry_data();
    if let (Ok(index), Ok(size)) = (usize::try_from(id.batch_index), usize::try_from(id.batch_size))
        && index > 0
    {
        let is_open = |bit: usize| (index..size).contains(&bit);
        let word = |word: usize| {
            (0..64).filter(|bit| is_open(64 * word + bit)).fold(0u64, |bits, bit| bits | 1 << bit)
        };
        data.ack_set = (0..size.div_ceil(64)).map(|index| word(index).cast_signed()).collect();
    }
    data
}

/// The task of a consumer.
pub(super) async fn run(core: Arc<ConsumerCore>) {
    loop {
        core.serve_timers(|state| state.has_ended() || state.connection.is_none()).await;
        if core.state.lock().has_ended() {
            return;
        }
        tokio::select! {
            biased;
            () = core.reconnect() => {}
            () = core.serve_timers(ConsumerState::has_ended) => return,
        }
    }
}

impl ConsumerEvents for ConsumerCore {
    fn entry(
        &self,
        connection: ConnectionId,
        command: EntryCommand,
        entry: Bytes,
    ) -> Result<(), CloseReason> {
        let is_new = {
            let mut state = self.state.lock();
            state.is_on(connection) && state.push(command, entry)?
        };
        if is_new {
            self.arrived.notify_one();
        }
        Ok(())
    }

    fn active_changed(&self, is_active: bool) {
        self.state.lock().is_active = is_active;
    }

    fn end_of_topic(&self) {
        self.state.lock().note_end_of_topic();
        self.arrived.notify_one();
    }

    fn closed_by_broker(&self, connection: ConnectionId) {
        self.lose(connection);
    }

    fn connection_ended(&self, connection: ConnectionId, _: &ConnectionClosed) {
        self.lose(connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seek_into_a_batch_acknowledges_the_messages_before() {
        let id = MessageId { ledger: 1, entry: 2, batch_index: 65, batch_size: 70, partition: -1 };
        let [low, high] = seek_data(&id).ack_set.try_into().expect("70 bits");
        assert_eq!((low, high), (0, 0b11_1110));
        assert_eq!(seek_data(&MessageId { batch_index: 0, ..id }).ack_set, [0i64; 0]);
        assert_eq!(seek_data(&MessageId::EARLIEST).ledger_id, u64::MAX);
    }
}
