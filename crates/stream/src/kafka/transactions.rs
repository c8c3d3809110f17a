//! The transactions of a stream: each carries the offsets of the source, the state of stages, and the output
//! of a sink that takes part. A transaction begins with the first message after a commit, or with the commit.
//!
//! Owns the producer, which may have to be replaced: when a transaction exceeds its timeout, the cluster
//! aborts it and fences the producer, and a new producer with the same id continues. If the cluster fences
//! the producer earlier, another process uses the id, and the stream fails.

use std::sync::Arc;
use std::time::Duration;

use thalweg_client::{Cluster, ProducerConfig, SendError, TransactionError};
use thalweg_wire::ErrorCode;
use tokio::time::{Instant, timeout_at};

use super::outlet::StateNotSent;
use super::{Opening, PendingMessages, TopicProducer, failed, producer, with_headers};
use crate::declaration::Settings;
use crate::stage::{GroupOffsets, StageError, TransactionOutcome};

/// Time after which the cluster aborts the transaction of a dead instance, as in Kafka Streams.
const TIMEOUT_MS: &str = "10000";
/// Extra wait beyond a transaction's timeout, because the cluster checks timeouts periodically.
const GRACE: Duration = Duration::from_secs(2);

/// The transactions of one instance of a stream.
pub struct Transactions {
    cluster: Cluster,
    config: ProducerConfig,
    topic: Arc<str>,
    id: Arc<str>,
    with_headers: bool,
    /// The time without a committed transaction after which the stream fails.
    patience: Duration,
    /// The producer, once open.
    outlet: Option<TopicProducer>,
    /// Opens the producer.
    opening: Opening,
    /// The start of the open transaction.
    open_since: Option<Instant>,
    /// True if the open transaction accepts no more messages and must be aborted.
    is_lost: bool,
    refused_since: Option<Instant>,
}

/// The reason why a transaction failed.
enum TransactionFailure {
    /// The transaction can be aborted and its messages sent again.
    Abortable(TransactionError),
    /// The producer is no longer usable.
    Over(ProducerFailure),
}

/// The reason why a producer is no longer usable.
struct ProducerFailure {
    reason: String,
    /// True if the cluster gave the id to another producer, or fenced this one.
    is_fenced: bool,
}

impl From<StateNotSent> for TransactionFailure {
    fn from(error: StateNotSent) -> TransactionFailure {
        // The commit has the reason for a transaction that takes no more records.
        TransactionFailure::Over(ProducerFailure { reason: error.to_string(), is_fenced: false })
    }
}

impl From<TransactionError> for ProducerFailure {
    fn from(error: TransactionError) -> ProducerFailure {
        ProducerFailure { reason: error.to_string(), is_fenced: error.is_fenced() }
    }
}

impl From<TransactionError> for TransactionFailure {
    fn from(error: TransactionError) -> TransactionFailure {
        if error.is_abortable() {
            TransactionFailure::Abortable(error)
        } else {
            TransactionFailure::Over(error.into())
        }
    }
}

impl Transactions {
    /// Transactions with the options of a `kafka` sink and a transactional id. Initialises transactions at
    /// once, on the current runtime: offsets left open by an earlier producer would keep the source from
    /// starting. A message must be delivered within its transaction; `--deliveryTimeout` bounds how long
    /// transactions may fail.
    pub fn new(settings: &Settings, id: &Arc<str>) -> Result<Transactions, StageError> {
        let fixed = [("transactional.id", &**id), ("enable.idempotence", "true")];
        let more = [
            ("transaction.timeout.ms", TIMEOUT_MS),
            ("delivery.timeout.ms", TIMEOUT_MS),
            ("max.block.ms", TIMEOUT_MS),
            ("request.timeout.ms", TIMEOUT_MS),
        ];
        let client = producer(settings, &fixed, &more)?;
        let (topic, with_headers) = (Arc::<str>::from(settings.text("topic")), with_headers(settings));
        let (cluster, config) = (client.cluster(), client.config);
        Ok(Transactions {
            opening: open(&cluster, &config, &topic, with_headers),
            cluster,
            config,
            topic,
            id: Arc::clone(id),
            with_headers,
            patience: settings.duration("deliveryTimeout"),
            outlet: None,
            open_since: None,
            is_lost: false,
            refused_since: None,
        })
    }

    /// The end of retries for a failure at this moment.
    fn given_up_at(&self) -> Instant {
        self.refused_since.unwrap_or_else(Instant::now) + self.patience
    }

    /// The time by which the open transaction must end, before the cluster aborts it.
    fn over_at(&self) -> Instant {
        let over = self.open_since.unwrap_or_else(Instant::now) + self.config.transaction_timeout + GRACE;
        over.min(self.given_up_at())
    }

    /// Adds messages to the open transaction. Returns true if all were added, or if the transaction must be
    /// aborted anyway.
    pub fn hand_over(&mut self, waiting: &mut PendingMessages) -> Result<bool, SendError> {
        // Messages not added are sent again after the abort.
        let Some(outlet) = self.outlet.as_mut().filter(|_| self.open_since.is_some() && !self.is_lost) else {
            return Ok(true);
        };
        match outlet.hand_over(waiting) {
            Err(SendError::Transaction(_)) => {
                self.is_lost = true;
                Ok(true)
            }
            other => other,
        }
    }

    /// Fails if the producer cannot be opened.
    pub fn check(&mut self) -> Result<(), StageError> {
        if let Some(outlet) = self.opening.opened()? {
            self.outlet = Some(outlet);
        }
        Ok(())
    }

    /// The time that a transaction may take.
    pub fn timeout(&self) -> Duration {
        self.config.transaction_timeout
    }

    /// True if the producer is open.
    pub fn is_known(&self) -> bool {
        self.outlet.is_some()
    }

    /// Begins a transaction if none is open. The cluster learns of the transaction with its first message.
    pub async fn open(&mut self) -> Result<(), StageError> {
        while self.open_since.is_none() {
            match self.known().await?.producer().begin_transaction() {
                Ok(()) => {
                    self.open_since = Some(Instant::now());
                    self.is_lost = false;
                }
                Err(error) => self.replace("Beginning a transaction", error.into()).await?,
            }
        }
        Ok(())
    }

    /// The producer, once open.
    async fn known(&mut self) -> Result<&mut TopicProducer, StageError> {
        if self.outlet.is_none() {
            self.outlet = self.opening.opened_until(self.given_up_at()).await?;
        }
        self.outlet.as_mut().ok_or_else(|| failed("Beginning with transactions", "there is no producer"))
    }

    /// Commits the written messages with the source's offsets.
    pub async fn commit(&mut self, progress: GroupOffsets) -> Result<TransactionOutcome, StageError> {
        self.open().await?;
        if self.is_lost {
            return self.refused("a message was not taken".to_owned());
        }
        let (since, until) = (Instant::now(), self.over_at());
        let committed = self.try_commit(&progress, until).await;
        if committed.is_err() {
            self.refused_since.get_or_insert(since);
        }
        match committed {
            Ok(()) => {
                (self.open_since, self.refused_since) = (None, None);
                Ok(TransactionOutcome::Committed)
            }
            Err(TransactionFailure::Abortable(error)) if is_hopeless(&error) => {
                Err(failed("Committing a transaction", error))
            }
            Err(TransactionFailure::Abortable(error)) => self.refused(error.to_string()),
            Err(TransactionFailure::Over(over)) => {
                self.replace("Committing a transaction", over).await?;
                self.refused("its producer came to its end".to_owned())
            }
        }
    }

    /// Retries calls that time out, until the deadline.
    async fn try_commit(
        &mut self,
        progress: &GroupOffsets,
        until: Instant,
    ) -> Result<(), TransactionFailure> {
        let outlet = self.outlet.as_mut().expect("a transaction is open");
        let GroupOffsets { offsets, group, state } = progress;
        decided(until, async {
            outlet.send_state(state).await?;
            let producer = outlet.producer();
            while let Err(error) = producer.send_offsets_to_transaction(offsets, group).await {
                retriable(error)?;
            }
            while let Err(error) = producer.commit_transaction().await {
                retriable(error)?;
            }
            Ok(())
        })
        .await
    }

    /// Aborts the open transaction, if there is one.
    pub async fn abort(&mut self) -> Result<(), StageError> {
        let until = self.over_at();
        let (Some(outlet), Some(_)) = (&mut self.outlet, self.open_since) else { return Ok(()) };
        let aborted = decided(until, async {
            while let Err(error) = outlet.producer().abort_transaction().await {
                retriable(error)?;
            }
            Ok(())
        });
        let over = match aborted.await {
            Ok(()) => None,
            Err(TransactionFailure::Abortable(error)) => Some(ProducerFailure::from(error)),
            Err(TransactionFailure::Over(over)) => Some(over),
        };
        if let Some(over) = over {
            self.replace("Aborting a transaction", over).await?;
        }
        self.open_since = None;
        Ok(())
    }

    /// Makes the source send the messages again, until the delivery timeout.
    fn refused(&mut self, reason: String) -> Result<TransactionOutcome, StageError> {
        let since = *self.refused_since.get_or_insert_with(Instant::now);
        if since.elapsed() > self.patience {
            return Err(failed("No transaction was taken for --deliveryTimeout", reason));
        }
        tracing::warn!(id = &*self.id, reason, "Transaction aborted, its messages are sent again");
        Ok(TransactionOutcome::Refused)
    }

    /// Replaces a producer that is no longer usable.
    async fn replace(&mut self, action: &'static str, over: ProducerFailure) -> Result<(), StageError> {
        let age = self.open_since.map_or(Duration::ZERO, |since| since.elapsed());
        if over.is_fenced && age < self.config.transaction_timeout {
            let id = &self.id;
            let reason = format!(
                "another process writes under the transactional id {id}: each that runs the same stream beside others needs a name \
                 of its own, --instance=NAME"
            );
            return Err(failed(action, reason));
        }
        let reason = over.reason;
        let since = *self.refused_since.get_or_insert_with(Instant::now);
        if since.elapsed() > self.patience {
            return Err(failed(action, reason));
        }
        tracing::warn!(id = &*self.id, reason, "{action} failed, opening another producer");
        (self.open_since, self.outlet) = (None, None);
        self.opening = open(&self.cluster, &self.config, &self.topic, self.with_headers);
        self.known().await?;
        Ok(())
    }
}

fn open(cluster: &Cluster, config: &ProducerConfig, topic: &Arc<str>, with_headers: bool) -> Opening {
    // The commit reports failed deliveries.
    Opening::begin(cluster.clone(), config.clone(), Arc::clone(topic), with_headers, |_| {})
}

/// The result of calls to the cluster. At the deadline the outcome is unknown, so the producer is no longer
/// usable.
async fn decided(
    until: Instant,
    calls: impl Future<Output = Result<(), TransactionFailure>>,
) -> Result<(), TransactionFailure> {
    match timeout_at(until, calls).await {
        Ok(ended) => ended,
        Err(_) => {
            let reason = "the cluster did not decide before the transaction's time was over".to_owned();
            Err(TransactionFailure::Over(ProducerFailure { reason, is_fenced: false }))
        }
    }
}

/// `Ok` if the same call should be retried; else the error.
fn retriable(error: TransactionError) -> Result<(), TransactionFailure> {
    if error.is_retriable() { Ok(()) } else { Err(error.into()) }
}

/// True if the same messages will meet the same error.
fn is_hopeless(error: &TransactionError) -> bool {
    matches!(
        error.error_code(),
        Some(
            ErrorCode::ClusterAuthorizationFailed
                | ErrorCode::GroupAuthorizationFailed
                | ErrorCode::TopicAuthorizationFailed
                | ErrorCode::TransactionalIdAuthorizationFailed
                | ErrorCode::UnknownTopicOrPartition
                | ErrorCode::MessageTooLarge
                | ErrorCode::RecordListTooLarge
                | ErrorCode::InvalidRecord
                | ErrorCode::PolicyViolation
        )
    )
}
