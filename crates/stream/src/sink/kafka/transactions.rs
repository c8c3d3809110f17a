//! The transactions of a sink: each begins with the first message after a commit, and carries the offsets of the source.
//!
//! Owns the producer, because a producer may come to its end: a transaction that was open for longer than its timeout is ended by
//! the cluster, and with it the producer, whose place another takes under the same id. Refuses to go on after some other process
//! has taken the id: then the cluster ended the producer before its time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use thalweg_client::{Cluster, ProducerConfig, SendError, TransactionError};
use thalweg_wire::ErrorCode;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};

use crate::kafka::{ClientSettings, Outlet, Waiting, failed, find_topic};
use crate::stage::{GroupOffsets, StageError, Transacted};

/// How long the cluster waits for an instance that is gone before it takes its transaction back: as Kafka Streams has it.
pub const TIMEOUT_MS: &str = "10000";
/// How much longer than its timeout a transaction is waited for: the cluster ends it in rounds.
const GRACE: Duration = Duration::from_secs(2);

/// The transactions of one instance of a sink.
pub struct Transactions {
    cluster: Cluster,
    config: ProducerConfig,
    topic: Arc<str>,
    id: Arc<str>,
    with_headers: bool,
    /// How long there may be no transaction that counts.
    patience: Duration,
    /// Once the cluster knows it.
    outlet: Option<Outlet>,
    /// Until then.
    opening: JoinSet<Result<Outlet, StageError>>,
    /// Why it is not there yet.
    trouble: Arc<Mutex<Option<String>>>,
    /// Since when a transaction is open.
    open_since: Option<Instant>,
    /// The open one takes no more messages, and can only be taken back.
    is_lost: bool,
    refused_since: Option<Instant>,
}

/// What becomes of a transaction that does not count.
enum Refused {
    /// It can be taken back, and its messages sent again.
    Abortable(TransactionError),
    /// Its producer is of no use any more.
    Over(Over),
}

/// Why a producer is of no use any more.
struct Over {
    reason: String,
    /// The cluster has given its id to another, or ended it.
    is_fenced: bool,
}

impl From<TransactionError> for Over {
    fn from(error: TransactionError) -> Over {
        Over { reason: error.to_string(), is_fenced: error.is_fenced() }
    }
}

impl From<TransactionError> for Refused {
    fn from(error: TransactionError) -> Refused {
        if error.is_abortable() { Refused::Abortable(error) } else { Refused::Over(error.into()) }
    }
}

impl Transactions {
    /// Under an id, which the configuration has, too. The cluster hears of it at once: offsets that a producer before it has left
    /// open would keep the source from beginning. To be called on a runtime.
    pub fn new(
        settings: ClientSettings<ProducerConfig>,
        topic: &str,
        with_headers: bool,
        id: Arc<str>,
        patience: Duration,
    ) -> Transactions {
        let mut transactions = Transactions {
            cluster: settings.cluster(),
            config: settings.config,
            topic: topic.into(),
            id,
            with_headers,
            patience,
            outlet: None,
            opening: JoinSet::new(),
            trouble: Arc::default(),
            open_since: None,
            is_lost: false,
            refused_since: None,
        };
        transactions.begin_opening();
        transactions
    }

    /// Makes a producer that the cluster knows: what one before it under this id has left open is taken back, and whoever still
    /// runs under it is shut out.
    fn begin_opening(&mut self) {
        self.opening.spawn(open(
            self.cluster.clone(),
            self.config.clone(),
            Arc::clone(&self.topic),
            self.with_headers,
            Arc::clone(&self.trouble),
        ));
    }

    /// Until when what fails now is tried again.
    fn given_up_at(&self) -> Instant {
        self.refused_since.unwrap_or_else(Instant::now) + self.patience
    }

    /// Until when the open transaction can be ended: the cluster has taken back what is open for longer.
    fn over_at(&self) -> Instant {
        let over = self.open_since.unwrap_or_else(Instant::now) + self.config.transaction_timeout + GRACE;
        over.min(self.given_up_at())
    }

    /// Hands over messages to the open transaction. Whether there was room for all, or they are of no use because it can only be
    /// taken back.
    pub fn hand_over(&mut self, waiting: &mut Waiting) -> Result<bool, SendError> {
        // What a transaction does not take is taken back with it.
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

    /// Fails when the producer cannot be opened.
    pub fn check(&mut self) -> Result<(), StageError> {
        match self.opening.try_join_next() {
            Some(opened) => self.opened(opened),
            None => Ok(()),
        }
    }

    /// Whether the cluster knows the producer.
    pub fn is_known(&self) -> bool {
        self.outlet.is_some()
    }

    fn opened(&mut self, opened: Result<Result<Outlet, StageError>, JoinError>) -> Result<(), StageError> {
        let opened = opened.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        self.outlet = Some(opened?);
        Ok(())
    }

    /// Opens a transaction, if none is open. The cluster hears of it with the first message.
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

    /// The producer, once the cluster knows it.
    async fn known(&mut self) -> Result<&mut Outlet, StageError> {
        if self.outlet.is_none() {
            match timeout_at(self.given_up_at(), self.opening.join_next()).await {
                Ok(Some(opened)) => self.opened(opened)?,
                Ok(None) => return Err(failed("Beginning with transactions", "there is no producer")),
                Err(_) => {
                    let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take();
                    let reason = trouble.unwrap_or_else(|| "no broker answers".to_owned());
                    return Err(failed("Beginning with transactions", reason));
                }
            }
        }
        Ok(self.outlet.as_mut().expect("it was just opened, or is there"))
    }

    /// Commits what was written and how far the source has come.
    pub async fn commit(&mut self, progress: GroupOffsets) -> Result<Transacted, StageError> {
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
                Ok(Transacted::Committed)
            }
            Err(Refused::Abortable(error)) if is_hopeless(&error) => {
                Err(failed("Committing a transaction", error))
            }
            Err(Refused::Abortable(error)) => self.refused(error.to_string()),
            Err(Refused::Over(over)) => {
                self.replace("Committing a transaction", over).await?;
                self.refused("its producer came to its end".to_owned())
            }
        }
    }

    /// Calls that are not decided in time are made again, up to a moment.
    async fn try_commit(&mut self, progress: &GroupOffsets, until: Instant) -> Result<(), Refused> {
        let producer = self.outlet.as_mut().expect("a transaction is open").producer();
        let GroupOffsets { offsets, group } = progress;
        decided(until, async {
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

    /// Takes back what is open, if anything is.
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
            Err(Refused::Abortable(error)) => Some(Over::from(error)),
            Err(Refused::Over(over)) => Some(over),
        };
        if let Some(over) = over {
            self.replace("Taking back a transaction", over).await?;
        }
        self.open_since = None;
        Ok(())
    }

    /// The messages come again, for as long as there is hope.
    fn refused(&mut self, reason: String) -> Result<Transacted, StageError> {
        let since = *self.refused_since.get_or_insert_with(Instant::now);
        if since.elapsed() > self.patience {
            return Err(failed("No transaction was taken for --deliveryTimeout", reason));
        }
        tracing::warn!(id = &*self.id, reason, "A transaction is taken back; its messages come again");
        Ok(Transacted::Refused)
    }

    /// Gives up a producer that is of no use any more, so that another takes its place.
    async fn replace(&mut self, action: &'static str, over: Over) -> Result<(), StageError> {
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
        tracing::warn!(id = &*self.id, reason, "{action} failed for good; another producer takes over");
        (self.open_since, self.outlet) = (None, None);
        self.begin_opening();
        self.known().await?;
        Ok(())
    }
}

/// What came of calls, unless they take longer than up to a moment: their producer is of no use any more then.
async fn decided(
    until: Instant,
    calls: impl Future<Output = Result<(), TransactionError>>,
) -> Result<(), Refused> {
    match timeout_at(until, calls).await {
        Ok(ended) => ended.map_err(Refused::from),
        Err(_) => {
            let reason = "the cluster did not decide before the transaction's time was over".to_owned();
            Err(Refused::Over(Over { reason, is_fenced: false }))
        }
    }
}

/// Whether the same call is to be made again; else its error.
fn retriable(error: TransactionError) -> Result<(), TransactionError> {
    if error.is_retriable() { Ok(()) } else { Err(error) }
}

/// A producer that the cluster knows under its id. A cluster that does not answer is asked again, for as long as somebody waits.
async fn open(
    cluster: Cluster,
    config: ProducerConfig,
    topic: Arc<str>,
    with_headers: bool,
    trouble: Arc<Mutex<Option<String>>>,
) -> Result<Outlet, StageError> {
    let note = |reason: String| {
        trouble.lock().unwrap_or_else(PoisonError::into_inner).replace(reason);
    };
    let mut outlet = loop {
        find_topic(&cluster, &topic, &trouble).await?;
        // What a transaction does not take, its commit tells.
        match Outlet::open(cluster.clone(), config.clone(), &topic, with_headers, |_| {}).await {
            Ok(outlet) => break outlet,
            Err(error) if error.is_retriable() => note(error.to_string()),
            Err(error) => return Err(failed(format!("Topic {topic}"), error)),
        }
    };
    loop {
        match outlet.producer().init_transactions().await {
            Ok(()) => return Ok(outlet),
            Err(error) if error.is_retriable() => note(error.to_string()),
            Err(error) => return Err(failed("Beginning with transactions", error)),
        }
    }
}

/// Whether the same messages will meet the same error.
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
