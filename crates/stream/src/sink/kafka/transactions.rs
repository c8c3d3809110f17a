//! The transactions of a sink: each begins with the first message after a commit, and carries the offsets of the source.
//!
//! Owns the producer, because a producer may come to its end: a transaction that was open for longer than its timeout
//! is ended by the cluster, and with it the producer, whose place another takes under the same id. So it is with a
//! producer whose call does not come back: librdkafka may wait for ever for a coordinator that the cluster has named
//! no more since, though it be back. Refuses to go on after some other process has taken the id: then the cluster
//! ended the producer before its time.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{Producer, ThreadedProducer};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::reports::{Context, Reports};
use crate::kafka::{self, Cluster};
use crate::stage::{GroupOffsets, StageError, Transacted};

/// How long the cluster waits for an instance that is gone before it takes its transaction back: as Kafka Streams has it.
pub const TIMEOUT_MS: &str = "10000";
/// How long one call may take before it is made again.
const CALL: Duration = Duration::from_secs(10);
/// How long the cluster is asked for a producer before it is looked whether it has shut it out meanwhile.
const ASKED: Duration = Duration::from_secs(1);
/// How much longer it may take before its producer is given up: librdkafka does not keep to every time that it is given.
const GRACE: Duration = Duration::from_secs(2);

/// A producer, and what has come of what it was given.
#[derive(Clone)]
pub struct Outlet {
    pub producer: ThreadedProducer<Context>,
    pub reports: Arc<Reports>,
}

impl Outlet {
    /// Makes one.
    pub fn open(config: &ClientConfig, cluster: &Cluster) -> Result<Outlet, StageError> {
        let reports = Arc::new(Reports::default());
        let context = Context { reports: reports.clone(), cluster: cluster.clone() };
        let producer = ThreadedProducer::from_config_and_context(config, context)
            .map_err(|error| kafka::failed("The producer of librdkafka cannot be made", error))?;
        Ok(Outlet { producer, reports })
    }
}

/// The transactions of one instance of a sink.
pub struct Transactions {
    config: ClientConfig,
    cluster: Cluster,
    id: Arc<str>,
    timeout: Duration,
    /// How long there may be no transaction that counts.
    patience: Duration,
    /// Once the cluster knows it.
    outlet: Option<Outlet>,
    /// Until then.
    opening: Option<JoinHandle<Result<Outlet, StageError>>>,
    /// While somebody waits for that.
    is_wanted: Arc<()>,
    /// Since when a transaction is open.
    open_since: Option<Instant>,
    /// The open one takes no more messages, and can only be taken back.
    is_lost: bool,
    refused_since: Option<Instant>,
}

/// What becomes of a transaction that does not count.
enum Refused {
    /// It can be taken back, and its messages sent again.
    Abortable(KafkaError),
    /// Its producer is of no use any more.
    Over(Over),
}

/// Why a producer is of no use any more.
struct Over {
    reason: String,
    /// The cluster has given its id to another, or ended it.
    is_fenced: bool,
}

impl From<KafkaError> for Over {
    fn from(error: KafkaError) -> Over {
        let is_fenced = error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fenced);
        Over { reason: error.to_string(), is_fenced }
    }
}

impl Transactions {
    /// Under an id, which the configuration has, too. The cluster hears of it at once: offsets that a producer before it has
    /// left open would keep the source from beginning.
    pub fn new(config: ClientConfig, cluster: Cluster, id: Arc<str>, patience: Duration) -> Transactions {
        let timeout_ms = config.get("transaction.timeout.ms").and_then(|text| text.parse().ok());
        let timeout = Duration::from_millis(timeout_ms.unwrap_or(u64::MAX));
        let mut transactions = Transactions {
            config,
            cluster,
            id,
            timeout,
            patience,
            outlet: None,
            opening: None,
            is_wanted: Arc::new(()),
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
        let (config, cluster, until) = (self.config.clone(), self.cluster.clone(), self.given_up_at());
        let is_wanted = Arc::downgrade(&self.is_wanted);
        self.opening = Some(tokio::task::spawn_blocking(move || {
            let outlet = Outlet::open(&config, &cluster)?;
            loop {
                let Err(error) = outlet.producer.init_transactions(ASKED) else { break };
                let is_for_good = outlet.reports.failure();
                let may_mend = is_retriable(&error) && is_for_good.is_none();
                if !may_mend || Instant::now() >= until || is_wanted.strong_count() == 0 {
                    let reason = is_for_good.unwrap_or_else(|| error.to_string());
                    return Err(kafka::failed("Beginning with transactions", reason));
                }
            }
            outlet.reports.let_in();
            Ok(outlet)
        }));
    }

    /// Until when what fails now is tried again.
    fn given_up_at(&self) -> Instant {
        self.refused_since.unwrap_or_else(Instant::now) + self.patience
    }

    /// The producer, if a transaction is open that takes messages.
    pub fn outlet(&self) -> Option<&Outlet> {
        self.outlet.as_ref().filter(|_| self.open_since.is_some() && !self.is_lost)
    }

    /// The open transaction takes no more.
    pub fn lose(&mut self) {
        self.is_lost = true;
    }

    /// Opens a transaction, if none is open. The cluster hears of it with the first message.
    pub async fn open(&mut self) -> Result<(), StageError> {
        while self.open_since.is_none() {
            let outlet = self.known().await?;
            match outlet.producer.begin_transaction() {
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
    async fn known(&mut self) -> Result<Outlet, StageError> {
        if let Some(opening) = &mut self.opening {
            let opened = opening.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
            self.opening = None;
            self.outlet = Some(opened?);
        }
        Ok(self.outlet.clone().expect("it is there when it is not on its way"))
    }

    /// Commits what was written and how far the source has come.
    pub async fn commit(&mut self, progress: GroupOffsets) -> Result<Transacted, StageError> {
        self.open().await?;
        let Some(outlet) = self.outlet().cloned() else {
            return self.refused("a message was not taken".to_owned());
        };
        let (since, until) = (Instant::now(), self.given_up_at());
        let GroupOffsets { offsets, group } = progress;
        let producer = outlet.producer.clone();
        let mut committed =
            again(until, move || producer.send_offsets_to_transaction(&offsets, &group, CALL)).await;
        if committed.is_ok() {
            committed = again(until, move || outlet.producer.commit_transaction(CALL)).await;
        }
        if committed.is_err() {
            self.refused_since.get_or_insert(since);
        }
        match committed {
            Ok(()) => {
                (self.open_since, self.refused_since) = (None, None);
                Ok(Transacted::Committed)
            }
            Err(Refused::Abortable(error)) if is_hopeless(&error) => {
                Err(kafka::failed("Committing a transaction", error))
            }
            Err(Refused::Abortable(error)) => self.refused(error.to_string()),
            Err(Refused::Over(over)) => {
                self.replace("Committing a transaction", over).await?;
                self.refused("its producer came to its end".to_owned())
            }
        }
    }

    /// Takes back what is open, if anything is.
    pub async fn abort(&mut self) -> Result<(), StageError> {
        let (Some(outlet), Some(_)) = (self.outlet.clone(), self.open_since) else { return Ok(()) };
        let aborted = again(self.given_up_at(), move || outlet.producer.abort_transaction(CALL)).await;
        let over = match aborted {
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
            return Err(kafka::failed("No transaction was taken for --deliveryTimeout", reason));
        }
        tracing::warn!(id = &*self.id, reason, "A transaction is taken back; its messages come again");
        Ok(Transacted::Refused)
    }

    /// Gives up a producer that is of no use any more, so that another takes its place.
    async fn replace(&mut self, action: &'static str, over: Over) -> Result<(), StageError> {
        let age = self.open_since.map_or(Duration::ZERO, |since| since.elapsed());
        if over.is_fenced && age < self.timeout {
            let id = &self.id;
            let reason = format!(
                "another process writes under the transactional id {id}: each that runs the same stream beside others needs a name \
                 of its own, --instance=NAME"
            );
            return Err(kafka::failed(action, reason));
        }
        let reason = over.reason;
        let since = *self.refused_since.get_or_insert_with(Instant::now);
        if since.elapsed() > self.patience {
            return Err(kafka::failed(action, reason));
        }
        tracing::warn!(id = &*self.id, reason, "{action} failed for good; another producer takes over");
        self.open_since = None;
        // Its end waits for its threads. A call that does not come back keeps it until librdkafka hears of any change
        // of a broker; what it may do then, the cluster refuses: the next one has its id.
        let outlet = self.outlet.take();
        blocking(move || drop(outlet)).await;
        self.begin_opening();
        self.known().await?;
        Ok(())
    }
}

/// On a thread that may wait.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

fn is_retriable(error: &KafkaError) -> bool {
    match error {
        KafkaError::Transaction(error) => {
            error.is_retriable() && !error.is_fatal() && !error.txn_requires_abort()
        }
        // The messages that are under way have their own bound.
        KafkaError::Flush(code) => *code == RDKafkaErrorCode::OperationTimedOut,
        _ => false,
    }
}

/// Whether the same messages will meet the same error.
fn is_hopeless(error: &KafkaError) -> bool {
    let hopeless = [
        RDKafkaErrorCode::ClusterAuthorizationFailed,
        RDKafkaErrorCode::GroupAuthorizationFailed,
        RDKafkaErrorCode::TopicAuthorizationFailed,
        RDKafkaErrorCode::TransactionalIdAuthorizationFailed,
        RDKafkaErrorCode::UnknownTopic,
        RDKafkaErrorCode::UnknownTopicOrPartition,
        RDKafkaErrorCode::UnknownPartition,
        RDKafkaErrorCode::MessageSizeTooLarge,
        RDKafkaErrorCode::MessageBatchTooLarge,
        RDKafkaErrorCode::InvalidRecord,
        RDKafkaErrorCode::PolicyViolation,
    ];
    error.rdkafka_error_code().is_some_and(|code| hopeless.contains(&code))
}

/// Calls until the cluster has decided: a call whose answer did not come in time may be made again, up to a moment.
async fn again(
    until: Instant,
    mut call: impl Fn() -> Result<(), KafkaError> + Send + 'static,
) -> Result<(), Refused> {
    loop {
        let called = blocking(move || {
            let answer = call();
            (call, answer)
        });
        let Ok((same_call, answer)) = timeout(CALL + GRACE, called).await else {
            let reason =
                "librdkafka does not answer; a broker may have left the cluster for a while".to_owned();
            return Err(Refused::Over(Over { reason, is_fenced: false }));
        };
        call = same_call;
        match answer {
            Ok(()) => return Ok(()),
            Err(error) if is_retriable(&error) && Instant::now() < until => {}
            Err(KafkaError::Transaction(error)) if error.txn_requires_abort() => {
                return Err(Refused::Abortable(KafkaError::Transaction(error)));
            }
            Err(error) => return Err(Refused::Over(error.into())),
        }
    }
}
