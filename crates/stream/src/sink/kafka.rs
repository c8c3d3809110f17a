//! `kafka`: writes messages to a topic. A message is acknowledged to the source when the cluster has
//! acknowledged it; later messages are in flight meanwhile. The first failed delivery ends the stream,
//! because the producer has already retried for as long as allowed.
//!
//! In a stream that runs exactly once, everything written between two commits is a transaction that includes
//! the source's offsets. On failure the transaction is aborted, and its messages are read
//! again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::declaration::{
    Module, OptionDefault, OptionSpec, OptionType, Settings, Site, StageMaker, WrongMix,
};
use crate::kafka::{self, BOOTSTRAP, PROPERTIES, PendingMessages, TopicWriter, Transactions};
use crate::message::Batch;
use crate::stage::{GroupOffsets, Sink, StageError, TransactionOutcome, Turn, Wait};

/// Pause while the producer's buffer is full.
const FULL_PAUSE: Duration = Duration::from_millis(2);

/// Interval of checks for failures while no message arrives.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Limits of `--buffer`.
const BUFFER_BYTES: (u64, u64) = (1 << 20, 1 << 40);

/// The maximum of `--linger`.
const LINGER_MAX: Duration = Duration::from_secs(900);

pub const MODULE: Module = Module {
    name: "kafka",
    summary: "writes messages to a topic, with their keys",
    about: "An idempotent producer waits for all in-sync replicas: messages keep their order and are delivered at least once, \
            without duplicates unless the stream itself restarts. With `--guarantee=exactly-once`, the output and the source's \
            offsets form one transaction, ten times a second. Failed writes are retried for as long as `--deliveryTimeout` \
            allows. A message that the cluster refuses for good, because it is too large, is a bad message: `--on-error` skips it or makes \
            it a dead letter, unless the stream runs exactly once. Messages in a batch with it are sent again, behind later ones. A slow cluster slows the stream down; at most `--buffer` bytes wait in \
            memory, and with `--on-error`, or behind an `http` source, as many in copies.",
    options: &[
        OptionSpec {
            name: "topic",
            takes: OptionType::Topic,
            default: OptionDefault::Required,
            summary: "The topic.",
        },
        BOOTSTRAP,
        OptionSpec {
            name: "compression",
            takes: OptionType::Choice(&["none", "gzip", "lz4", "snappy", "zstd"]),
            default: OptionDefault::Value("none"),
            summary: "The compression of batches.",
        },
        OptionSpec {
            name: "linger",
            takes: OptionType::Duration,
            default: OptionDefault::Value("5ms"),
            summary: "How long a batch waits for more messages.",
        },
        OptionSpec {
            name: "deliveryTimeout",
            takes: OptionType::Duration,
            default: OptionDefault::Value("5m"),
            summary: "How long delivery of a message is retried.",
        },
        OptionSpec {
            name: "buffer",
            takes: OptionType::Size,
            default: OptionDefault::Value("64MiB"),
            summary: "The maximum number of bytes in flight to the cluster.",
        },
        kafka::MODE,
        PROPERTIES,
    ],
    examples: &[("stdin | kafka --topic=orders", "a record per line")],
    check,
    make: StageMaker::Sink(make),
};

fn check(settings: &Settings) -> Result<(), WrongMix> {
    let (least, most) = BUFFER_BYTES;
    if !(least..=most).contains(&settings.integer("buffer")) {
        return Err(WrongMix::new("buffer", "The buffer is too small or too large", "Use 1MiB to 1024GiB."));
    }
    let (linger, timeout) = (settings.duration("linger"), settings.duration("deliveryTimeout"));
    if timeout <= linger || timeout.as_millis() > i32::MAX as u128 {
        let message = "--deliveryTimeout leaves no time to deliver after --linger";
        return Err(WrongMix::new("deliveryTimeout", message, "Use more than --linger, and at most 24d."));
    }
    if linger > LINGER_MAX {
        return Err(WrongMix::new("linger", "A batch waits at most 15 minutes", "Use at most 15m."));
    }
    Ok(())
}

fn make(settings: &Settings, site: &Site) -> Result<Box<dyn Sink>, StageError> {
    let (way, acknowledged) = match &site.transactional_id {
        Some(id) => {
            let (transactions, committed) = (Transactions::new(settings, id)?, Arc::<AtomicU64>::default());
            let acknowledged = Arc::clone(&committed);
            let transacting = TransactionalSink { transactions, waiting: None, committed, uncommitted: 0 };
            (Way::ExactlyOnce(Box::new(transacting)), acknowledged)
        }
        None => {
            let writer = TopicWriter::open(settings, site.gives_refused_back)?;
            let acknowledged = writer.acknowledged();
            (Way::AtLeastOnce(Box::new(writer)), acknowledged)
        }
    };
    site.findings.count("acknowledged", acknowledged);
    // Report an authentication failure even if no message arrives.
    let look_at = Some(Instant::now() + LOOK_EVERY);
    Ok(Box::new(Kafka { topic: settings.text("topic").to_owned(), way, look_at }))
}

/// The writer, per guarantee.
enum Way {
    AtLeastOnce(Box<TopicWriter>),
    ExactlyOnce(Box<TransactionalSink>),
}

/// The transactions, and messages not yet accepted by them.
struct TransactionalSink {
    transactions: Transactions,
    waiting: Option<PendingMessages>,
    /// Messages in committed transactions.
    committed: Arc<AtomicU64>,
    /// Messages since the last transaction.
    uncommitted: u64,
}

impl TransactionalSink {
    fn take(&mut self, batch: &Batch) {
        if !batch.is_empty() {
            self.uncommitted += batch.len() as u64;
            self.waiting = Some(PendingMessages::new(batch.clone(), 0));
        }
    }

    /// Waits until the producer has accepted everything.
    async fn hand_over_rest(&mut self, topic: &str) -> Result<(), StageError> {
        let Some(mut waiting) = self.waiting.take() else { return Ok(()) };
        self.transactions.open().await?;
        loop {
            let handed_over = self.transactions.hand_over(&mut waiting);
            let reason = |error| kafka::failed(format!("Topic {topic} did not take a message"), error);
            if handed_over.map_err(reason)? {
                return Ok(());
            }
            sleep(FULL_PAUSE).await;
        }
    }

    async fn commit(
        &mut self,
        topic: &str,
        progress: GroupOffsets,
    ) -> Result<TransactionOutcome, StageError> {
        self.hand_over_rest(topic).await?;
        let transacted = self.transactions.commit(progress).await?;
        if transacted == TransactionOutcome::Committed {
            self.committed.fetch_add(std::mem::take(&mut self.uncommitted), Ordering::AcqRel);
        }
        Ok(transacted)
    }

    async fn abort(&mut self) -> Result<(), StageError> {
        (self.waiting, self.uncommitted) = (None, 0);
        self.transactions.abort().await
    }
}

/// A topic and the messages in flight to it.
struct Kafka {
    topic: String,
    way: Way,
    /// Time of the next check for failures.
    look_at: Option<Instant>,
}

impl Kafka {
    /// A transaction's failures are checked when it commits.
    fn check(&mut self) -> Result<(), StageError> {
        match &mut self.way {
            Way::AtLeastOnce(writer) => writer.check(),
            Way::ExactlyOnce(transacting) => transacting.transactions.check(),
        }
    }

    /// True if a failure is possible while no message arrives.
    fn is_busy(&self) -> bool {
        match &self.way {
            Way::AtLeastOnce(writer) => writer.is_busy(),
            Way::ExactlyOnce(transacting) => !transacting.transactions.is_known(),
        }
    }

    async fn hand_over_rest(&mut self) -> Result<(), StageError> {
        match &mut self.way {
            Way::AtLeastOnce(writer) => writer.hand_over_rest().await,
            Way::ExactlyOnce(transacting) => transacting.hand_over_rest(&self.topic).await,
        }
    }

    /// Waits for all deliveries. Deliveries in a transaction are awaited by its commit.
    async fn arrive(&mut self) -> Result<(), StageError> {
        match &mut self.way {
            Way::AtLeastOnce(writer) => writer.arrive().await,
            Way::ExactlyOnce(transacting) => transacting.hand_over_rest(&self.topic).await,
        }
    }

    fn transacting(&mut self) -> &mut TransactionalSink {
        match &mut self.way {
            Way::ExactlyOnce(transacting) => transacting,
            Way::AtLeastOnce(_) => unreachable!("a stream that runs exactly once has transactions"),
        }
    }
}

impl Sink for Kafka {
    fn write(&mut self, batch: &Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        self.look_at.get_or_insert(turn.now + LOOK_EVERY);
        match &mut self.way {
            Way::AtLeastOnce(writer) => writer.take(batch),
            Way::ExactlyOnce(transacting) => {
                transacting.take(batch);
                Ok(())
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.look_at
    }

    fn tick(&mut self, turn: &mut Turn<'_>) -> Result<(), StageError> {
        if self.look_at.is_some_and(|at| at <= turn.now) {
            self.check()?;
            self.look_at = self.is_busy().then(|| turn.now + LOOK_EVERY);
        }
        Ok(())
    }

    fn settle(&mut self) -> Option<Wait<'_, Result<(), StageError>>> {
        let is_waiting = match &self.way {
            Way::AtLeastOnce(writer) => writer.has_waiting() || writer.has_apart(),
            Way::ExactlyOnce(transacting) => transacting.waiting.is_some(),
        };
        is_waiting.then(|| -> Wait<'_, _> { Box::pin(self.hand_over_rest()) })
    }

    fn flush(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(self.arrive())
    }

    fn give_back(&mut self, turn: &mut Turn<'_>) -> Result<(), StageError> {
        let Way::AtLeastOnce(writer) = &self.way else { return Ok(()) };
        for refused in writer.take_refused() {
            for message in refused.message.messages() {
                turn.bad.take(&message, &refused.reason)?;
            }
            writer.settle(&refused);
        }
        Ok(())
    }

    fn reports_delivery(&mut self) -> Result<bool, StageError> {
        self.check()?;
        // A flush sends the messages of a refused batch again.
        Ok(match &self.way {
            Way::AtLeastOnce(writer) => !writer.has_apart(),
            Way::ExactlyOnce(_) => true,
        })
    }

    fn held_since(&mut self) -> Option<u64> {
        match &self.way {
            Way::AtLeastOnce(writer) => writer.held_since(),
            Way::ExactlyOnce(_) => None,
        }
    }

    fn commit(&mut self, progress: GroupOffsets) -> Wait<'_, Result<TransactionOutcome, StageError>> {
        Box::pin(async {
            let topic = self.topic.clone();
            self.transacting().commit(&topic, progress).await
        })
    }

    fn transaction_timeout(&self) -> Option<Duration> {
        match &self.way {
            Way::AtLeastOnce(_) => None,
            Way::ExactlyOnce(transacting) => Some(transacting.transactions.timeout()),
        }
    }

    fn abort(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async { self.transacting().abort().await })
    }
}
